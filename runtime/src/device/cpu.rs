//! The cpu device: executes the PTX text that would run on a GPU, on this machine.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use eggine_cpu::{LaunchConfig, LaunchError, Memory, MemoryError, Module, Options, Param, Simd};
use rayon::prelude::*;

use super::{Device, DeviceError, DeviceInfo, DevicePtr, Launch, ModuleId, Peak};

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
    /// Of the launches that follow, if it is less than the options'.
    step_limit: Option<u64>,
    /// What caches are emptied with; empty until then.
    evictor: Vec<u64>,
}

/// More than the last-level cache of a desktop processor, and most of a server's slice of it.
const EVICTOR_BYTES: usize = 64 << 20;

/// Blocks that run at once for each thread of the device, if they must.
const COOPERATIVE_BLOCKS: usize = 32;

/// A bound that no x86-64 core exceeds, per thread: two 512-bit fused multiply-adds a cycle at 6 GHz, and
/// two loads and one store of 64 bytes.
const THREAD_PEAK: Peak = Peak { flops_per_ns: 2.0 * 32.0 * 6.0, bytes_per_ns: 3.0 * 64.0 * 6.0 };

impl Default for CpuDevice {
    fn default() -> Self {
        Self::new(CpuOptions::default())
    }
}

impl CpuDevice {
    /// An empty device.
    pub fn new(options: CpuOptions) -> Self {
        Self {
            memory: Memory::new(),
            modules: Vec::new(),
            options,
            params: Vec::new(),
            step_limit: None,
            evictor: Vec::new(),
        }
    }

    /// How it runs kernels.
    pub fn options(&self) -> CpuOptions {
        self.options
    }

    /// Threads to run a launch on: a cooperative one has one for each block. Clusters change nothing: a
    /// text that addresses one is not taken.
    fn n_threads_for(&self, launch: &Launch) -> Result<usize, DeviceError> {
        let fault = |reason| DeviceError::Fault { entry: launch.entry.clone(), reason };
        if let Some(reason) = launch.attributes.problem(launch.grid) {
            return Err(fault(reason));
        }
        let n_blocks = launch.grid.iter().map(|&n| n as usize).product::<usize>();
        if !launch.attributes.cooperative || n_blocks == 1 {
            return Ok(self.options.n_threads);
        }
        if self.options.checking == Checking::Everything {
            return Err(fault(
                "a cooperative launch cannot be checked: its blocks run at once".into(),
            ));
        }
        let most = COOPERATIVE_BLOCKS * self.options.n_threads;
        match n_blocks <= most {
            true => Ok(n_blocks),
            false => Err(fault(format!(
                "a cooperative launch of {n_blocks} blocks: this device runs {most} at once"
            ))),
        }
    }

    /// Keeps a module in a free place.
    fn keep(&mut self, module: Module) -> ModuleId {
        let slot = self.modules.iter().position(Option::is_none).unwrap_or(self.modules.len());
        if slot == self.modules.len() {
            self.modules.push(None);
        }
        self.modules[slot] = Some(module);
        ModuleId(u32::try_from(slot).expect("fewer than 2³² modules"))
    }

    fn run(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        let entry = || launch.entry.clone();
        let n_threads = self.n_threads_for(launch)?;
        let module = self.modules.get(launch.module.0 as usize).and_then(Option::as_ref);
        let module = module.ok_or_else(|| DeviceError::NoSuchKernel { entry: entry() })?;
        self.params.clear();
        self.params.extend(launch.params.iter().map(|&address| Param::U64(address)));
        let config = LaunchConfig { grid: launch.grid, block: launch.block, params: &self.params };
        let options = Options {
            threads: n_threads,
            checking: self.options.checking == Checking::Everything,
            step_limit: Some(self.step_limit.unwrap_or(u64::MAX).min(self.options.step_limit)),
            ..Options::default()
        };
        // A kernel is data: if it brings the executor down, that is the kernel's fault as far as the
        // search is concerned, and a bug of ours that its text reproduces.
        let result = catch_unwind(AssertUnwindSafe(|| {
            eggine_cpu::launch(module, &launch.entry, &self.memory, &config, &options)
        }));
        let result = match result {
            Ok(result) => result,
            Err(panic) => {
                let reason = format!("the executor panicked: {}", message(&*panic));
                return Err(DeviceError::Fault { entry: entry(), reason });
            }
        };
        match result {
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

fn parse(ptx: &str) -> Result<Module, DeviceError> {
    let module = catch_unwind(|| Module::load(ptx)).map_err(|panic| DeviceError::Load {
        reason: format!("the parser panicked: {}", message(&*panic)),
    })?;
    module.map_err(|err| DeviceError::Load { reason: err.to_string() })
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
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
        Ok(self.keep(parse(ptx)?))
    }

    fn load_all(&mut self, texts: &[&str]) -> Result<Vec<ModuleId>, DeviceError> {
        let parsed: Vec<Result<Module, DeviceError>> =
            texts.par_iter().map(|ptx| parse(ptx)).collect();
        let parsed = parsed.into_iter().collect::<Result<Vec<Module>, DeviceError>>()?;
        Ok(parsed.into_iter().map(|module| self.keep(module)).collect())
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

    fn peak(&self) -> Peak {
        let n_threads = self.options.n_threads as f64;
        Peak {
            flops_per_ns: n_threads * THREAD_PEAK.flops_per_ns,
            bytes_per_ns: n_threads * THREAD_PEAK.bytes_per_ns,
        }
    }

    fn limit_steps(&mut self, n_steps: Option<u64>) {
        self.step_limit = n_steps;
    }

    fn evict_caches(&mut self) -> bool {
        self.evictor.resize(EVICTOR_BYTES / 8, 0);
        // One word of each line is enough, and a write takes the line for itself.
        self.evictor.iter_mut().step_by(8).for_each(|word| *word = word.wrapping_add(1));
        std::hint::black_box(&self.evictor);
        true
    }
}

/// The processor's name, as Linux tells it.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
