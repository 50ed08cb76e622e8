//! The cuda device: an NVIDIA GPU, through the driver library that is found when the program runs.
//!
//! Nothing waits but [`Device::synchronize`], [`Device::read`] and [`Device::time`]. Copies to the device
//! go through pinned memory, and a recorded plan is one graph launch. A kernel that faults loses the
//! context with everything in it; the next allocation or module begins with a new one, so that the
//! device stays usable, and what was allocated before is told to be lost.

#[macro_use]
mod driver;
mod attributes;
mod context;
mod functions;
mod graph;
mod health;
mod live;
mod report;
mod staging;
mod tensor_map;

pub use driver::NEEDED_VERSION;
pub use health::{Health, health};
pub use report::{CudaReport, cuda_report};
pub use tensor_map::{Swizzle, TensorMap, TensorMapSpec};

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUuuid};

use super::{Device, DeviceError, DeviceInfo, DevicePtr, GraphId, Launch, ModuleId, Peak};
use context::Context;
use graph::Graph;
use live::Live;

/// What a device is, asked once.
struct Facts {
    name: String,
    uuid: String,
    /// Compute capability: 90 for 9.0.
    sm: i32,
    n_multiprocessors: i32,
    /// The highest clock of the multiprocessors.
    clock_khz: i32,
}

impl Facts {
    /// Fused multiply-adds of f32 that a multiprocessor begins in a clock (CUDA C++ Programming Guide,
    /// throughput of arithmetic instructions): the most of any architecture but those with 64.
    fn fmas_per_clk(&self) -> f64 {
        if self.sm == 80 { 64.0 } else { 128.0 }
    }
}

fn describe(device: CUdevice) -> Result<Facts, DeviceError> {
    let mut name = [0 as c_char; 256];
    driver!(cuDeviceGetName(name.as_mut_ptr(), 255, device), " of cuda:{device}")?;
    // SAFETY: the last byte is a zero whatever the driver wrote.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let mut uuid = CUuuid { bytes: [0; 16] };
    driver!(cuDeviceGetUuid_v2(&mut uuid, device), " of cuda:{device}")?;
    let attribute = |which: CUdevice_attribute| -> Result<i32, DeviceError> {
        let mut value = 0;
        driver!(cuDeviceGetAttribute(&mut value, which, device), " {which:?} of cuda:{device}")?;
        Ok(value)
    };
    use CUdevice_attribute::*;
    let major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let n_multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let clock_khz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
    let hex: String = uuid.bytes.iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    Ok(Facts {
        name,
        uuid: format!("GPU-{a}-{b}-{c}-{d}-{e}"),
        sm: major * 10 + minor,
        n_multiprocessors,
        clock_khz,
    })
}

/// See the [module](self).
pub struct CudaDevice {
    ordinal: u32,
    driver_version: String,
    facts: Facts,
    live: Live,
    /// Ids are never used twice: one from before a fault names nothing.
    n_ids: u32,
}

impl CudaDevice {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unavailable`] in one sentence if there is no driver, it is too old, or there is no
    /// such device; else what the driver says.
    pub fn open(ordinal: u32) -> Result<Self, DeviceError> {
        let version = context::require()?;
        let device = context::find(ordinal)?;
        let facts = describe(device)?;
        let live = Live::new(Context::retain(device)?)?;
        let driver_version = driver::version_text(version);
        Ok(Self { ordinal, driver_version, facts, live, n_ids: 0 })
    }

    /// How NVML calls the device: `GPU-…`.
    pub fn uuid(&self) -> &str {
        &self.facts.uuid
    }

    /// Compute capability, 90 for 9.0.
    pub fn sm(&self) -> u32 {
        self.facts.sm.unsigned_abs()
    }

    /// What is in the driver, its context current.
    fn live(&mut self) -> Result<&mut Live, DeviceError> {
        self.live.enter()?;
        Ok(&mut self.live)
    }

    /// As [`live`](Self::live), with a new context if the old one is lost.
    fn fresh(&mut self) -> Result<&mut Live, DeviceError> {
        match self.live.enter() {
            Err(DeviceError::Lost { .. }) => {
                self.live.context.reset();
                let context = Context::retain(self.live.context.device)?;
                self.live = Live::new(context)?;
                tracing::warn!(device = self.ordinal, "the device was lost and is opened again");
                self.live.enter()?;
            }
            other => other?,
        }
        Ok(&mut self.live)
    }

    fn new_id(&mut self) -> u32 {
        self.n_ids += 1;
        self.n_ids - 1
    }
}

impl Live {
    /// Refuses a range that is not inside one allocation.
    fn check_range(&self, ptr: DevicePtr, n_bytes: usize) -> Result<(), DeviceError> {
        let inside = self.allocations.range(..=ptr.0).next_back().is_some_and(|(&base, &size)| {
            (ptr.0 - base).checked_add(n_bytes as u64).is_some_and(|end| end <= size as u64)
        });
        match inside {
            true => Ok(()),
            false => Err(DeviceError::BadAddress { address: ptr.0, n_bytes }),
        }
    }
}

impl Device for CudaDevice {
    fn info(&self) -> DeviceInfo {
        let Facts { name, sm, n_multiprocessors, .. } = &self.facts;
        let version = &self.driver_version;
        DeviceInfo {
            name: format!("{name} (cuda:{}, sm_{sm}, CUDA {version})", self.ordinal),
            identity: format!("cuda/{name}/sm_{sm}/{version}"),
            n_threads: usize::try_from(*n_multiprocessors).unwrap_or(1),
            checks_bounds: false,
        }
    }

    fn architecture(&self) -> Option<u32> {
        Some(self.facts.sm.unsigned_abs())
    }

    fn alloc(&mut self, n_bytes: usize) -> Result<DevicePtr, DeviceError> {
        let live = self.fresh()?;
        let mut address = 0;
        // An allocation of nothing is an error of the driver, and an address of its own for us.
        match driver!(cuMemAlloc_v2(&mut address, n_bytes.max(1)), " of {n_bytes} bytes") {
            Ok(()) => {
                live.allocations.insert(address, n_bytes);
                Ok(DevicePtr(address))
            }
            Err(failure) if failure.code == functions::CUDA_ERROR_OUT_OF_MEMORY => {
                Err(DeviceError::OutOfMemory { n_bytes })
            }
            Err(failure) => Err(live.report(failure)),
        }
    }

    fn free(&mut self, ptr: DevicePtr) -> Result<(), DeviceError> {
        match self.live.enter() {
            // It went with the context.
            Err(DeviceError::Lost { .. }) => return Ok(()),
            other => other?,
        }
        let live = &mut self.live;
        if !live.allocations.contains_key(&ptr.0) {
            return Err(DeviceError::BadAddress { address: ptr.0, n_bytes: 0 });
        }
        driver!(cuMemFree_v2(ptr.0), " at {:#x}", ptr.0).map_err(|failure| live.report(failure))?;
        live.allocations.remove(&ptr.0);
        Ok(())
    }

    fn write(&mut self, ptr: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        let live = self.live()?;
        live.check_range(ptr, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let from = match live.staging.take(bytes.len()) {
            Some(piece) => {
                // SAFETY: the piece is `bytes.len()` bytes of our own memory that nothing reads yet.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), piece, bytes.len()) }
                piece.cast_const()
            }
            // From pageable memory the driver has copied when it returns.
            None => bytes.as_ptr(),
        };
        let n_bytes = bytes.len();
        driver!(
            cuMemcpyHtoDAsync_v2(ptr.0, from.cast(), n_bytes, live.stream),
            " of {n_bytes} bytes"
        )
        .map_err(|failure| live.report(failure))
    }

    fn read(&mut self, ptr: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.read_all(&mut [(ptr, bytes)])
    }

    fn read_all(&mut self, parts: &mut [(DevicePtr, &mut [u8])]) -> Result<(), DeviceError> {
        let live = self.live()?;
        let mut pieces = Vec::with_capacity(parts.len());
        for (ptr, bytes) in parts.iter_mut() {
            live.check_range(*ptr, bytes.len())?;
            let n_bytes = bytes.len();
            let piece = live.staging.take(n_bytes);
            pieces.push(piece);
            if n_bytes == 0 {
                continue;
            }
            // To pageable memory the driver has copied when it returns.
            let to = piece.unwrap_or(bytes.as_mut_ptr());
            driver!(
                cuMemcpyDtoHAsync_v2(to.cast(), ptr.0, n_bytes, live.stream),
                " of {n_bytes} bytes"
            )
            .map_err(|failure| live.report(failure))?;
        }
        live.synchronize().map_err(|failure| live.report(failure))?;
        for ((_, bytes), piece) in parts.iter_mut().zip(pieces) {
            if let Some(piece) = piece {
                // SAFETY: the piece is `bytes.len()` bytes of our own, which the device has written.
                unsafe { std::ptr::copy_nonoverlapping(piece, bytes.as_mut_ptr(), bytes.len()) }
            }
        }
        Ok(())
    }

    fn reserve_io(&mut self, n_bytes: usize) -> Result<(), DeviceError> {
        let live = self.fresh()?;
        if live.staging.holds(n_bytes) {
            return Ok(());
        }
        live.synchronize().map_err(|failure| live.report(failure))?;
        live.staging.reserve(n_bytes).map_err(|failure| live.report(failure))
    }

    fn fill(&mut self, ptr: DevicePtr, n_bytes: usize, byte: u8) -> Result<(), DeviceError> {
        let live = self.live()?;
        live.check_range(ptr, n_bytes)?;
        if n_bytes == 0 {
            return Ok(());
        }
        driver!(cuMemsetD8Async(ptr.0, byte, n_bytes, live.stream), " of {n_bytes} bytes")
            .map_err(|failure| live.report(failure))
    }

    fn load(&mut self, ptx: &str) -> Result<ModuleId, DeviceError> {
        let loaded = self.fresh()?.load(ptx)?;
        let id = self.new_id();
        self.live.modules.insert(id, loaded);
        Ok(ModuleId(id))
    }

    fn load_all(&mut self, texts: &[&str]) -> Result<Vec<ModuleId>, DeviceError> {
        let loaded = self.fresh()?.load_all(texts)?;
        let keep = |one| {
            let id = self.new_id();
            self.live.modules.insert(id, one);
            ModuleId(id)
        };
        Ok(loaded.into_iter().map(keep).collect())
    }

    fn load_cubin(&mut self, cubin: &[u8]) -> Result<ModuleId, DeviceError> {
        let loaded = self.fresh()?.load_cubin(cubin)?;
        let id = self.new_id();
        self.live.modules.insert(id, loaded);
        Ok(ModuleId(id))
    }

    fn unload(&mut self, module: ModuleId) {
        if self.live.enter().is_ok()
            && let Some(loaded) = self.live.modules.remove(&module.0)
            && !Live::unload(&loaded)
        {
            // It is given back with the rest.
            self.live.modules.insert(module.0, loaded);
        }
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        self.live()?.launch(launch)
    }

    /// From the clock and the number of multiprocessors that the driver tells: f32 on the ordinary lanes,
    /// since no kernel family uses matrix units; from the first-level cache 128 bytes a clock, and as many
    /// to it.
    fn peak(&self) -> Peak {
        let clk_per_ns = f64::from(self.facts.clock_khz.max(0)) / 1e6;
        let clks = f64::from(self.facts.n_multiprocessors.max(0)) * clk_per_ns;
        Peak { flops_per_ns: 2.0 * self.facts.fmas_per_clk() * clks, bytes_per_ns: 256.0 * clks }
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        let live = self.live()?;
        live.synchronize().map_err(|failure| live.report(failure))
    }

    fn time(&mut self, launches: &[Launch], elapsed_ns: &mut Vec<u64>) -> Result<(), DeviceError> {
        let live = self.live()?;
        live.events(launches.len() + 1).map_err(|failure| live.report(failure))?;
        live.mark(0).map_err(|failure| live.report(failure))?;
        for (index, launch) in launches.iter().enumerate() {
            live.launch(launch)?;
            live.mark(index + 1).map_err(|failure| live.report(failure))?;
        }
        live.synchronize().map_err(|failure| live.report(failure))?;
        for index in 0..launches.len() {
            let elapsed = live.elapsed_ns(index).map_err(|failure| live.report(failure))?;
            elapsed_ns.push(elapsed);
        }
        Ok(())
    }

    fn record(&mut self, launches: &[Launch]) -> Result<Option<GraphId>, DeviceError> {
        let live = self.live()?;
        let functions = launches.iter().map(|launch| live.function(launch));
        let functions = functions.collect::<Result<Vec<_>, _>>()?;
        let graph = Graph::new(launches, &functions).map_err(|failure| live.report(failure))?;
        let id = self.new_id();
        self.live.graphs.insert(id, graph);
        Ok(Some(GraphId(id)))
    }

    fn replay(&mut self, id: GraphId) -> Result<(), DeviceError> {
        let live = self.live()?;
        let graph = live.graphs.get(&id.0).ok_or_else(|| no_graph(id))?;
        let n_launches = graph.len();
        graph.launch(live.stream).map_err(|failure| live.report(failure))?;
        live.pending.n_launches += n_launches;
        "(of a graph)".clone_into(&mut live.pending.last);
        Ok(())
    }

    fn rebind(&mut self, id: GraphId, index: usize, launch: &Launch) -> Result<(), DeviceError> {
        let live = self.live()?;
        let function = live.function(launch)?;
        let graph = live.graphs.get_mut(&id.0).filter(|graph| index < graph.len());
        let graph = graph.ok_or_else(|| no_graph(id))?;
        graph.rebind(index, launch, function).map_err(|failure| live.report(failure))
    }

    fn forget_graph(&mut self, id: GraphId) {
        if self.live.enter().is_ok()
            && let Some(mut graph) = self.live.graphs.remove(&id.0)
        {
            graph.destroy();
        }
    }
}

fn no_graph(id: GraphId) -> DeviceError {
    DeviceError::NoSuchKernel { entry: format!("graph {}", id.0) }
}
