//! The cpu device: executes the PTX text that would run on a GPU, on this machine.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use eggine_cpu::{LaunchConfig, LaunchError, Memory, MemoryError, Module, Options, Param, Simd};

use super::{Device, DeviceError, DeviceInfo, DevicePtr, Launch, ModuleId};

/// How much is checked while kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checking {
    /// Bounds, alignment and the step limit.
    #[default]
    Bounds,
    /// Also uninitialised reads, races, late copies …: slow, on one thread, and with full counting of
    /// steps.
    Everything,
}

/// How a [`CpuDevice`] runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads over which the blocks of a launch are spread.
    pub n_threads: usize,
    /// What is checked.
    pub checking: Checking,
    /// Most warp instructions of a block; a kernel that needs more hangs.
    pub step_limit: u64,
}

impl Default for CpuOptions {
    /// All threads of this machine.
    fn default() -> Self {
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
        // A block that really takes 2³² warp instructions runs for more than ten seconds.
        Self { n_threads, checking: Checking::Bounds, step_limit: 1 << 32 }
    }
}

/// A device that executes PTX text on the CPU.
pub struct CpuDevice {
    memory: Memory,
    modules: Vec<Option<Module>>,
    options: CpuOptions,
    params: Vec<Param>,
}

impl Default for CpuDevice {
    fn default() -> Self {
        Self::new(CpuOptions::default())
    }
}

impl CpuDevice {
    /// An empty device.
    pub fn new(options: CpuOptions) -> Self {
        Self { memory: Memory::new(), modules: Vec::new(), options, params: Vec::new() }
    }

    /// How it runs kernels.
    pub fn options(&self) -> CpuOptions {
        self.options
    }

    fn run(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        let entry = || launch.entry.clone();
        let module = self.modules.get(launch.module.0 as usize).and_then(Option::as_ref);
        let module = module.ok_or_else(|| DeviceError::NoSuchKernel { entry: entry() })?;
        self.params.clear();
        self.params.extend(launch.params.iter().map(|&address| Param::U64(address)));
        let config = LaunchConfig { grid: launch.grid, block: launch.block, params: &self.params };
        let options = Options {
            threads: self.options.n_threads,
            checking: self.options.checking == Checking::Everything,
            step_limit: Some(self.options.step_limit),
            ..Options::default()
        };
        match eggine_cpu::launch(module, &launch.entry, &self.memory, &config, &options) {
            Ok(_) => Ok(()),
            Err(LaunchError::NoEntry { kernel }) => {
                Err(DeviceError::NoSuchKernel { entry: kernel })
            }
            Err(LaunchError::Fault(fault)) => {
                let (line, block, thread, kind) =
                    (fault.line, fault.block, fault.thread, &fault.kind);
                let reason = format!("line {line}, block {block:?}, thread {thread:?}: {kind}");
                Err(DeviceError::Fault { entry: entry(), reason })
            }
            Err(other) => Err(DeviceError::Fault { entry: entry(), reason: other.to_string() }),
        }
    }
}

/// Bytes that the device keeps alive while kernels see them.
struct Kept(Bytes);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn error(err: MemoryError) -> DeviceError {
    match err {
        MemoryError::OutOfMemory { n_bytes } => DeviceError::OutOfMemory { n_bytes },
        MemoryError::Range { address, n_bytes } => DeviceError::BadAddress { address, n_bytes },
        MemoryError::ReadOnly { address } => DeviceError::ReadOnly { address },
        // The enum may grow; every failure of memory is about some bytes.
        _ => DeviceError::OutOfMemory { n_bytes: 0 },
    }
}

impl Device for CpuDevice {
    fn info(&self) -> DeviceInfo {
        let (simd, n_threads) = (Simd::detect(), self.options.n_threads);
        let simd = match simd {
            Simd::Avx512 => "AVX-512",
            Simd::Avx2 => "AVX2",
            Simd::Portable => "portable",
        };
        let threads =
            if n_threads == 1 { "1 thread".into() } else { format!("{n_threads} threads") };
        DeviceInfo {
            name: format!("cpu ({simd}, {threads})"),
            identity: format!("cpu/{}/{simd}/{n_threads}", processor()),
            n_threads,
            checks_bounds: true,
        }
    }

    fn alloc(&mut self, n_bytes: usize) -> Result<DevicePtr, DeviceError> {
        self.memory.alloc(n_bytes).map(DevicePtr).map_err(error)
    }

    fn free(&mut self, ptr: DevicePtr) -> Result<(), DeviceError> {
        self.memory.free(ptr.0).map_err(error)
    }

    fn write(&mut self, ptr: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(ptr.0, bytes).map_err(error)
    }

    fn read(&mut self, ptr: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.read(ptr.0, bytes).map_err(error)
    }

    fn fill(&mut self, ptr: DevicePtr, n_bytes: usize, byte: u8) -> Result<(), DeviceError> {
        self.memory.fill(ptr.0, byte, n_bytes).map_err(error)
    }

    fn forget(&mut self, ptr: DevicePtr) -> Result<(), DeviceError> {
        self.memory.forget(ptr.0).map_err(error)
    }

    fn adopt(&mut self, bytes: Bytes) -> Result<DevicePtr, DeviceError> {
        // Vector accesses need the alignment of an allocation; a mapped weights section has it.
        if bytes.as_ptr().addr().is_multiple_of(eggine_cpu::ALIGN_BYTES) {
            return Ok(DevicePtr(self.memory.map(Arc::new(Kept(bytes)))));
        }
        let ptr = self.alloc(bytes.len())?;
        self.write(ptr, &bytes)?;
        Ok(ptr)
    }

    fn load(&mut self, ptx: &str) -> Result<ModuleId, DeviceError> {
        let module =
            Module::load(ptx).map_err(|err| DeviceError::Load { reason: err.to_string() })?;
        let slot = self.modules.iter().position(Option::is_none).unwrap_or(self.modules.len());
        if slot == self.modules.len() {
            self.modules.push(None);
        }
        self.modules[slot] = Some(module);
        Ok(ModuleId(u32::try_from(slot).expect("fewer than 2³² modules")))
    }

    fn unload(&mut self, module: ModuleId) {
        if let Some(slot) = self.modules.get_mut(module.0 as usize) {
            *slot = None;
        }
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        self.run(launch)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn time(&mut self, launches: &[Launch], elapsed_ns: &mut Vec<u64>) -> Result<(), DeviceError> {
        for launch in launches {
            let start = Instant::now();
            self.run(launch)?;
            let elapsed = start.elapsed().as_nanos();
            elapsed_ns.push(u64::try_from(elapsed).expect("a launch takes less than 500 years"));
        }
        Ok(())
    }
}

/// The processor's name, as Linux tells it.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
