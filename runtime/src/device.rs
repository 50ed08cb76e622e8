//! What execution, verification and timing need from a device.
//!
//! Memory is addressed by 64-bit device addresses; a kernel gets nothing but such addresses. A device
//! is used by one thread at a time and runs launches in the order in which they are given.

mod cpu;
pub mod cuda;
mod fake;
mod spec;

pub use cpu::{Checking, CpuDevice, CpuOptions};
pub use cuda::CudaDevice;
pub use fake::{FakeClock, FakeDevice, FakeKernel, FakeLateWork, FakeMemory};
pub use spec::{DeviceSpec, UnknownDevice, open, open_with};

use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Address of a byte in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The address `n_bytes` further.
    pub fn plus(self, n_bytes: u64) -> Self {
        Self(self.0 + n_bytes)
    }
}

/// A loaded PTX module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

/// A recorded sequence of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GraphId(pub u32);

/// What a device is: part of the key of every measurement made on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// For people: `cpu (AVX-512, 2 threads)`.
    pub name: String,
    /// For keys: equal exactly if measurements on both may be compared.
    pub identity: String,
    /// Threads or multiprocessors that blocks are spread over.
    pub n_threads: usize,
    /// Whether an access outside of an allocation is a fault, to the byte.
    pub checks_bounds: bool,
}

/// What no kernel can exceed: a generous upper bound of the hardware's rates, for the roofline floor
/// below which a time is not believed. A rate of 0 is not known, and bounds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    /// Floating-point operations (a fused multiply-add is two) per ns of the whole device.
    pub flops_per_ns: f64,
    /// Bytes per ns between processors and the nearest cache, loads and stores together: what a warm
    /// kernel cannot exceed.
    pub bytes_per_ns: f64,
}

/// What a launch asks for besides blocks and threads; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct LaunchAttributes {
    /// All blocks run at once, so that they may wait for each other: there are no more than the device
    /// holds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cooperative: bool,
    /// Blocks in x, y and z that form a cluster: neighbours on one part of the device. They divide the
    /// grid, and are at most [`MOST_CLUSTER_BLOCKS`](Self::MOST_CLUSTER_BLOCKS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// Bytes of shared memory of a block beside what the kernel declares, at most
    /// [`MOST_SHARED_BYTES`](Self::MOST_SHARED_BYTES) in all. What is more than 48 KiB a device has to be
    /// asked for, which the device does.
    #[serde(skip_serializing_if = "is_zero")]
    pub shared_bytes: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl LaunchAttributes {
    /// Blocks of a cluster that every device with clusters takes (CUDA C++ Programming Guide, thread
    /// block clusters).
    pub const MOST_CLUSTER_BLOCKS: u64 = 8;

    /// Shared memory of a block on the largest device (compute capability 9.0 and 10.0; CUDA C++
    /// Programming Guide, table of technical specifications).
    pub const MOST_SHARED_BYTES: u32 = 227 << 10;

    /// Whether there are none.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Why no device takes a launch of this grid with these attributes, if so.
    pub fn problem(&self, grid: [u32; 3]) -> Option<String> {
        if self.shared_bytes > Self::MOST_SHARED_BYTES {
            let (wanted, most) = (self.shared_bytes, Self::MOST_SHARED_BYTES);
            return Some(format!("{wanted} bytes of shared memory: a block has at most {most}"));
        }
        let cluster = self.cluster?;
        let n_blocks = cluster.iter().map(|&n| u64::from(n)).product::<u64>();
        if n_blocks == 0 || n_blocks > Self::MOST_CLUSTER_BLOCKS {
            let most = Self::MOST_CLUSTER_BLOCKS;
            return Some(format!("a cluster of {cluster:?} blocks: 1 to {most} are possible"));
        }
        let fits = grid.iter().zip(cluster).all(|(&all, part)| all.is_multiple_of(part));
        (!fits).then(|| format!("clusters of {cluster:?} blocks do not divide the grid {grid:?}"))
    }
}

/// One kernel launch with its arguments bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Where the kernel is.
    pub module: ModuleId,
    /// Name of the `.entry`.
    pub entry: String,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// The parameters, all of them `.u64` addresses.
    pub params: Vec<u64>,
    /// What else it asks for.
    pub attributes: LaunchAttributes,
}

/// A device.
pub trait Device: Send {
    /// What it is.
    fn info(&self) -> DeviceInfo;

    /// Compute capability, if the device runs machine code: 90 for 9.0.
    fn architecture(&self) -> Option<u32> {
        None
    }

    /// Allocates memory, aligned to at least 64 bytes. The contents are undefined.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`].
    fn alloc(&mut self, n_bytes: usize) -> Result<DevicePtr, DeviceError>;

    /// Gives memory back; `ptr` is what [`alloc`](Self::alloc) or [`adopt`](Self::adopt) returned.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadAddress`].
    fn free(&mut self, ptr: DevicePtr) -> Result<(), DeviceError>;

    /// Copies to the device.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadAddress`] if the range is not inside one allocation.
    fn write(&mut self, ptr: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Copies from the device.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn read(&mut self, ptr: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies several ranges from the device, waiting once.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    fn read_all(&mut self, parts: &mut [(DevicePtr, &mut [u8])]) -> Result<(), DeviceError> {
        parts.iter_mut().try_for_each(|(ptr, bytes)| self.read(*ptr, bytes))
    }

    /// Prepares for writes and reads of so many bytes between two waits, so that they need not wait.
    ///
    /// # Errors
    ///
    /// The device's own.
    fn reserve_io(&mut self, n_bytes: usize) -> Result<(), DeviceError> {
        let _ = n_bytes;
        Ok(())
    }

    /// Sets bytes.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn fill(&mut self, ptr: DevicePtr, n_bytes: usize, byte: u8) -> Result<(), DeviceError>;

    /// Makes a device that tracks initialisation regard the allocation that starts at `ptr` as never written.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadAddress`].
    fn forget(&mut self, ptr: DevicePtr) -> Result<(), DeviceError> {
        let _ = ptr;
        Ok(())
    }

    /// Makes bytes that never change visible to kernels, without a copy where the device can do so.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`].
    fn adopt(&mut self, bytes: Bytes) -> Result<DevicePtr, DeviceError> {
        let ptr = self.alloc(bytes.len())?;
        self.write(ptr, &bytes)?;
        Ok(ptr)
    }

    /// Loads a module.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Load`] if the text is not PTX or uses what the device lacks.
    fn load(&mut self, ptx: &str) -> Result<ModuleId, DeviceError>;

    /// Loads several modules, at the same time where the device can: as so many [`load`](Self::load)s. If
    /// one of them fails none is loaded.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), of the first that fails.
    fn load_all(&mut self, texts: &[&str]) -> Result<Vec<ModuleId>, DeviceError> {
        let mut modules = Vec::with_capacity(texts.len());
        for ptx in texts {
            match self.load(ptx) {
                Ok(module) => modules.push(module),
                Err(err) => {
                    modules.into_iter().for_each(|module| self.unload(module));
                    return Err(err);
                }
            }
        }
        Ok(modules)
    }

    /// Loads machine code, made for exactly this device's architecture.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Load`] if the device does not execute it.
    fn load_cubin(&mut self, cubin: &[u8]) -> Result<ModuleId, DeviceError> {
        let _ = cubin;
        let device = self.info().name;
        Err(DeviceError::Load { reason: format!("{device} executes PTX text, not machine code") })
    }

    /// Forgets a module. Unknown modules are ignored.
    fn unload(&mut self, module: ModuleId);

    /// Runs one kernel, after everything launched before.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Fault`] if the kernel did what it must not; the device stays usable.
    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError>;

    /// Waits for everything launched.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Fault`], late.
    fn synchronize(&mut self) -> Result<(), DeviceError>;

    /// Records launches, to be [replayed](Self::replay) as one; `None` from a device that gains nothing
    /// by it. Later changes of `launches` have no effect but through [`rebind`](Self::rebind).
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch).
    fn record(&mut self, launches: &[Launch]) -> Result<Option<GraphId>, DeviceError> {
        let _ = launches;
        Ok(None)
    }

    /// Runs what was recorded, after everything launched before.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch).
    fn replay(&mut self, graph: GraphId) -> Result<(), DeviceError> {
        Err(DeviceError::NoSuchKernel { entry: format!("graph {}", graph.0) })
    }

    /// Changes grid or arguments of launch `index` of what was recorded; the kernel stays.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch).
    fn rebind(&mut self, graph: GraphId, index: usize, launch: &Launch) -> Result<(), DeviceError> {
        let _ = (index, launch);
        Err(DeviceError::NoSuchKernel { entry: format!("graph {}", graph.0) })
    }

    /// Forgets what was recorded. Unknown graphs are ignored.
    fn forget_graph(&mut self, graph: GraphId) {
        let _ = graph;
    }

    /// Runs the launches in order and appends the device time of each, in nanoseconds.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch); what was measured before stays appended.
    fn time(&mut self, launches: &[Launch], elapsed_ns: &mut Vec<u64>) -> Result<(), DeviceError>;

    /// The host's clock, in nanoseconds since some fixed moment: the witness against which the device's
    /// own clock is held.
    fn host_ns(&mut self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        let elapsed = START.get_or_init(Instant::now).elapsed();
        u64::try_from(elapsed.as_nanos()).expect("a process lives less than 500 years")
    }

    /// What no kernel can exceed.
    fn peak(&self) -> Peak {
        Peak::default()
    }

    /// Bounds the instructions of each block of the launches that follow, on a device that can stop a
    /// kernel that does not end; `None`: the device's own limit.
    fn limit_steps(&mut self, n_steps: Option<u64>) {
        let _ = n_steps;
    }

    /// Empties the caches, so that the next launch finds its operands in memory only. `false`: the
    /// device cannot, and what is timed next is warm.
    fn evict_caches(&mut self) -> bool {
        false
    }
}

/// What can go wrong on a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No memory left.
    #[error("the device has no {n_bytes} bytes of memory left")]
    OutOfMemory {
        /// Asked for.
        n_bytes: usize,
    },
    /// Not (entirely) inside one allocation.
    #[error("{n_bytes} bytes at device address {address:#x} are not inside one allocation")]
    BadAddress {
        /// First byte.
        address: u64,
        /// Length of the range.
        n_bytes: usize,
    },
    /// A write to adopted bytes.
    #[error("the allocation at device address {address:#x} is read-only")]
    ReadOnly {
        /// First byte.
        address: u64,
    },
    /// No such device on this machine.
    #[error("{reason}")]
    Unavailable {
        /// What is missing, and what to do.
        reason: String,
    },
    /// A driver call failed.
    #[error("{call}{what} failed: {reason}; {advice}")]
    Driver {
        /// The driver's function.
        call: String,
        /// What the call was about: kernel, bytes, device; begins with a space unless empty.
        what: String,
        /// The driver's code.
        code: u32,
        /// In the words of the driver.
        reason: String,
        /// What to do.
        advice: &'static str,
    },
    /// What was on the device is gone.
    #[error("the device was lost ({reason}): what was on it is gone, load the engine again")]
    Lost {
        /// Why.
        reason: String,
    },
    /// A module that cannot be loaded.
    #[error("cannot load the kernel: {reason}")]
    Load {
        /// In the words of the parser or the driver.
        reason: String,
    },
    /// There is no such module or entry.
    #[error("no loaded module has a kernel `{entry}`")]
    NoSuchKernel {
        /// Name of the entry.
        entry: String,
    },
    /// A kernel that trapped, hung, or accessed memory that is not its own.
    #[error("kernel `{entry}`: {reason}")]
    Fault {
        /// Name of the entry.
        entry: String,
        /// In the words of the device, with PTX line, block and thread where it knows them.
        reason: String,
    },
}
