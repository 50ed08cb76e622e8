//! Everything that a cuda device holds in the driver, and its end: whatever happened before, nothing
//! stays behind.

use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::driver::sys::{
    CUevent, CUfunction, CUfunction_attribute, CUjit_option, CUlaunchConfig, CUmodule, CUstream,
    CUstream_flags,
};

use super::attributes::{attributes_of, describe};
use super::context::{Context, twice};
use super::driver::Failure;
use super::functions::*;
use super::graph::Graph;
use super::staging::Staging;
use crate::device::{DeviceError, Launch, ModuleId};

/// Space for what the driver's compiler says about a text.
const LOG_BYTES: usize = 8192;

/// Dynamic shared memory of a block that need not be asked for.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;

/// Threads that compile at the same time: each has a compiler's memory.
const MOST_WORKERS: usize = 16;

/// A module and its functions, found as they are first launched.
pub(super) struct Loaded {
    module: CUmodule,
    functions: Vec<Function>,
}

/// A function, and the dynamic shared memory that its launches may have.
struct Function {
    name: String,
    handle: CUfunction,
    shared_bytes: u32,
}

// SAFETY: modules may be used by any thread whose current context is theirs.
unsafe impl Send for Loaded {}

/// What was launched since the device was last waited for: one of these has faulted, if one has.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) last: String,
    pub(super) n_launches: usize,
}

/// Why a text was not compiled.
enum Refused {
    /// It is no text of the driver's.
    Zero,
    /// What the call says, and what the driver's compiler does.
    Failure((Failure, String)),
}

/// Compiles a text in the context that is current for this thread.
fn compile(ptx: &str) -> Result<Loaded, Refused> {
    let text = CString::new(ptx).map_err(|_| Refused::Zero)?;
    let mut log = vec![0u8; LOG_BYTES];
    let mut options =
        [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The size is passed in the place of its pointer.
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), LOG_BYTES as *mut c_void];
    let mut module = std::ptr::null_mut();
    let loaded = driver!(cuModuleLoadDataEx(
        &mut module,
        text.as_ptr().cast(),
        options.len() as c_uint,
        options.as_mut_ptr(),
        values.as_mut_ptr(),
    ));
    loaded.map_err(|failure| {
        let said = String::from_utf8_lossy(&log);
        Refused::Failure((failure, said.trim_end_matches('\0').trim().to_owned()))
    })?;
    Ok(Loaded { module, functions: Vec::new() })
}

/// See the [module](self).
pub(super) struct Live {
    pub(super) stream: CUstream,
    pub(super) staging: Staging,
    /// Sizes by address.
    pub(super) allocations: BTreeMap<u64, usize>,
    pub(super) modules: BTreeMap<u32, Loaded>,
    pub(super) graphs: BTreeMap<u32, Graph>,
    events: Vec<CUevent>,
    pub(super) pending: Pending,
    /// Set once a call has told that the context is of no more use.
    pub(super) lost: Option<String>,
    pub(super) context: Context,
}

// SAFETY: the handles and the pinned memory are used by one thread at a time, which makes the context
// current first.
unsafe impl Send for Live {}

impl Live {
    /// A stream in a context, and nothing else.
    pub(super) fn new(context: Context) -> Result<Self, DeviceError> {
        let mut live = Self {
            stream: std::ptr::null_mut(),
            staging: Staging::new(),
            allocations: BTreeMap::new(),
            modules: BTreeMap::new(),
            graphs: BTreeMap::new(),
            events: Vec::new(),
            pending: Pending::default(),
            lost: None,
            context,
        };
        live.make_stream().map_err(|failure| live.report(failure))?;
        Ok(live)
    }

    fn make_stream(&mut self) -> Result<(), Failure> {
        self.context.enter()?;
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        driver!(cuStreamCreate(&mut self.stream, flags))
    }

    /// Makes the context current, if it is still of use.
    pub(super) fn enter(&mut self) -> Result<(), DeviceError> {
        if self.lost.is_none() && !self.context.is_current_generation() {
            self.lost = Some("another user of the device reset it after a fault".into());
        }
        if let Some(reason) = &self.lost {
            return Err(DeviceError::Lost { reason: reason.clone() });
        }
        self.context.enter().map_err(|failure| self.report(failure))
    }

    /// The error that a failed call is, with the kernel if one is to blame. Remembers a lost context.
    pub(super) fn report(&mut self, failure: Failure) -> DeviceError {
        let lost = failure.loses_context();
        let error = if failure.is_fault() && self.pending.n_launches > 0 {
            let mut reason = failure.text();
            if self.pending.n_launches > 1 {
                let n_before = self.pending.n_launches - 1;
                reason.push_str(&format!(
                    " (told by {}; it, or one of the {n_before} launches before it)",
                    failure.call
                ));
            }
            DeviceError::Fault { entry: self.pending.last.clone(), reason }
        } else {
            failure.into()
        };
        if lost {
            self.lost = Some(error.to_string());
        }
        error
    }

    /// Waits for the stream.
    pub(super) fn synchronize(&mut self) -> Result<(), Failure> {
        driver!(cuStreamSynchronize(self.stream))?;
        self.staging.clear();
        self.pending.n_launches = 0;
        Ok(())
    }

    /// Compiles a text. What the driver's compiler says is the reason of the error.
    pub(super) fn load(&mut self, ptx: &str) -> Result<Loaded, DeviceError> {
        compile(ptx).map_err(|refused| self.refusal(refused))
    }

    /// Compiles texts, on as many threads as the machine has processors: a driver takes 0.1 s for a large
    /// kernel. If one is refused none is kept.
    pub(super) fn load_all(&mut self, texts: &[&str]) -> Result<Vec<Loaded>, DeviceError> {
        let n_processors = std::thread::available_parallelism().map_or(1, usize::from);
        let n_workers = n_processors.min(texts.len()).min(MOST_WORKERS);
        if n_workers <= 1 {
            let mut loaded = Vec::with_capacity(texts.len());
            for ptx in texts {
                match self.load(ptx) {
                    Ok(one) => loaded.push(one),
                    Err(err) => {
                        self.drop_all(loaded);
                        return Err(err);
                    }
                }
            }
            return Ok(loaded);
        }
        let next = AtomicUsize::new(0);
        let context = &self.context;
        let work = || -> Vec<(usize, Result<Loaded, Refused>)> {
            let mut done = Vec::new();
            let entered = context.enter();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(ptx) = texts.get(at) else { return done };
                let entered = entered.clone().map_err(|failure| (failure, String::new()));
                let result = entered.map_err(Refused::Failure).and_then(|()| compile(ptx));
                let is_over = result.is_err();
                done.push((at, result));
                if is_over {
                    next.store(texts.len(), Ordering::Relaxed);
                    return done;
                }
            }
        };
        let mut results: Vec<(usize, Result<Loaded, Refused>)> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..n_workers).map(|_| scope.spawn(work)).collect();
            let own = work();
            let others = others.into_iter().map(|it| it.join().expect("compiling does not panic"));
            others.flatten().chain(own).collect()
        });
        results.sort_by_key(|it| it.0);
        let mut loaded = Vec::with_capacity(texts.len());
        let mut first = None;
        for (_, result) in results {
            match result {
                Ok(one) => loaded.push(one),
                Err(refused) => first = first.or(Some(refused)),
            }
        }
        let Some(refused) = first else { return Ok(loaded) };
        let err = self.refusal(refused);
        self.drop_all(loaded);
        Err(err)
    }

    /// Gives modules back that nobody has seen, if that can be done.
    fn drop_all(&mut self, loaded: Vec<Loaded>) {
        for one in loaded {
            if self.lost.is_none() && !Self::unload(&one) {
                // It ends with the context at the latest.
                self.lost.get_or_insert("a module could not be given back".into());
            }
        }
    }

    fn refusal(&mut self, refused: Refused) -> DeviceError {
        match refused {
            Refused::Zero => {
                DeviceError::Load { reason: "the PTX text has a zero byte in it".into() }
            }
            Refused::Failure((failure, said)) => self.load_error(failure, &said),
        }
    }

    /// Loads machine code.
    pub(super) fn load_cubin(&mut self, cubin: &[u8]) -> Result<Loaded, DeviceError> {
        let mut module = std::ptr::null_mut();
        driver!(cuModuleLoadData(&mut module, cubin.as_ptr().cast()))
            .map_err(|failure| self.load_error(failure, ""))?;
        Ok(Loaded { module, functions: Vec::new() })
    }

    /// A module that is refused is the kernel's fault, not the driver's.
    fn load_error(&mut self, failure: Failure, said: &str) -> DeviceError {
        match failure.code {
            CUDA_ERROR_INVALID_PTX
            | CUDA_ERROR_INVALID_IMAGE
            | CUDA_ERROR_INVALID_SOURCE
            | CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
                let separator = if said.is_empty() { "" } else { ": " };
                let DeviceError::Driver { call, reason, advice, .. } = failure.into() else {
                    unreachable!("a failure is a driver error")
                };
                DeviceError::Load { reason: format!("{call}: {reason}{separator}{said}; {advice}") }
            }
            _ => self.report(failure),
        }
    }

    /// The function of a launch, with the shared memory that the launch wants allowed.
    pub(super) fn function(&mut self, launch: &Launch) -> Result<CUfunction, DeviceError> {
        let (id, entry, wanted) = (launch.module, &launch.entry, launch.attributes.shared_bytes);
        let handle = self.find(id, entry)?;
        let known = self.modules.get_mut(&id.0).map(|it| it.functions.iter_mut());
        let known = known.and_then(|mut it| it.find(|it| it.name == *entry));
        if let Some(known) = known.filter(|it| it.shared_bytes < wanted) {
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let allowed = driver!(
                cuFuncSetAttribute(handle, most, wanted as c_int),
                " of kernel `{entry}`, {wanted} bytes of shared memory"
            );
            match allowed {
                Ok(()) => known.shared_bytes = wanted,
                Err(failure) => return Err(self.launch_error(failure, entry)),
            }
        }
        Ok(handle)
    }

    /// A function by name.
    fn find(&mut self, id: ModuleId, entry: &str) -> Result<CUfunction, DeviceError> {
        let missing = || DeviceError::NoSuchKernel { entry: entry.to_owned() };
        let loaded = self.modules.get_mut(&id.0).ok_or_else(missing)?;
        if let Some(known) = loaded.functions.iter().find(|it| it.name == entry) {
            return Ok(known.handle);
        }
        let name = CString::new(entry).map_err(|_| missing())?;
        let mut function = std::ptr::null_mut();
        let found = driver!(
            cuModuleGetFunction(&mut function, loaded.module, name.as_ptr()),
            " of kernel `{entry}`"
        );
        match found {
            Ok(()) => loaded.functions.push(Function {
                name: entry.to_owned(),
                handle: function,
                shared_bytes: PLAIN_SHARED_BYTES,
            }),
            Err(failure) if failure.code == CUDA_ERROR_NOT_FOUND => return Err(missing()),
            Err(failure) => return Err(self.report(failure)),
        }
        // Kernels declare all that they need, and blocks that share a multiprocessor are worth more to
        // them than cached loads; a hint, so a refusal does not matter.
        let carveout = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        match driver!(cuFuncSetAttribute(function, carveout, -1), " of kernel `{entry}`") {
            Err(failure) if failure.loses_context() => Err(self.report(failure)),
            _ => Ok(function),
        }
    }

    /// Launches, without waiting.
    pub(super) fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        let function = self.function(launch)?;
        const MOST_ON_STACK: usize = 32;
        let mut on_stack = [std::ptr::null_mut::<c_void>(); MOST_ON_STACK];
        let mut on_heap = Vec::new();
        let pointers = if launch.params.len() <= MOST_ON_STACK {
            &mut on_stack[..launch.params.len()]
        } else {
            on_heap.resize(launch.params.len(), std::ptr::null_mut());
            &mut on_heap[..]
        };
        for (pointer, value) in pointers.iter_mut().zip(&launch.params) {
            // The driver reads the argument through the pointer and copies it.
            *pointer = std::ptr::from_ref(value).cast_mut().cast();
        }
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (launch.grid, launch.block);
        let none = std::ptr::null_mut();
        let is_plain = !launch.attributes.cooperative && launch.attributes.cluster.is_none();
        let launched = if is_plain {
            driver!(
                cuLaunchKernel(
                    function,
                    grid_x,
                    grid_y,
                    grid_z,
                    block_x,
                    block_y,
                    block_z,
                    launch.attributes.shared_bytes,
                    self.stream,
                    pointers.as_mut_ptr(),
                    none,
                ),
                " of kernel `{}`, grid {:?}, block {:?}",
                launch.entry,
                launch.grid,
                launch.block
            )
        } else {
            let (mut attributes, n_attributes) = attributes_of(&launch.attributes);
            let config = CUlaunchConfig {
                gridDimX: grid_x,
                gridDimY: grid_y,
                gridDimZ: grid_z,
                blockDimX: block_x,
                blockDimY: block_y,
                blockDimZ: block_z,
                sharedMemBytes: launch.attributes.shared_bytes,
                hStream: self.stream,
                attrs: attributes.as_mut_ptr(),
                numAttrs: n_attributes,
            };
            driver!(
                cuLaunchKernelEx(&config, function, pointers.as_mut_ptr(), none),
                " of kernel `{}`, grid {:?}, block {:?}, {}",
                launch.entry,
                launch.grid,
                launch.block,
                describe(&launch.attributes)
            )
        };
        match launched {
            Ok(()) => {
                self.pending.n_launches += 1;
                self.pending.last.clear();
                self.pending.last.push_str(&launch.entry);
                Ok(())
            }
            Err(failure) => Err(self.launch_error(failure, &launch.entry)),
        }
    }

    /// A launch that is refused for its size is the kernel's fault.
    pub(super) fn launch_error(&mut self, failure: Failure, entry: &str) -> DeviceError {
        match failure.code {
            CUDA_ERROR_INVALID_VALUE
            | CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
            | CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
            | CUDA_ERROR_INVALID_CLUSTER_SIZE
            | CUDA_ERROR_NOT_SUPPORTED => {
                let reason = format!("{}{}: {}", failure.call, failure.what, failure.text());
                DeviceError::Fault { entry: entry.to_owned(), reason }
            }
            _ => self.report(failure),
        }
    }

    /// At least so many events.
    pub(super) fn events(&mut self, n: usize) -> Result<(), Failure> {
        while self.events.len() < n {
            let mut event = std::ptr::null_mut();
            driver!(cuEventCreate(&mut event, 0))?;
            self.events.push(event);
        }
        Ok(())
    }

    /// Records event `index` behind what was launched.
    pub(super) fn mark(&mut self, index: usize) -> Result<(), Failure> {
        driver!(cuEventRecord(self.events[index], self.stream))
    }

    /// Time from event `index` to the next, in nanoseconds.
    pub(super) fn elapsed_ns(&self, index: usize) -> Result<u64, Failure> {
        let mut ms = 0f32;
        driver!(cuEventElapsedTime_v2(&mut ms, self.events[index], self.events[index + 1]))?;
        Ok((f64::from(ms) * 1e6).round().max(0.0) as u64)
    }

    /// Gives a module back; whether that worked.
    pub(super) fn unload(loaded: &Loaded) -> bool {
        twice(|| driver!(cuModuleUnload(loaded.module)))
    }

    /// Gives everything back; whether that worked.
    fn give_back(&mut self) -> bool {
        let stream = self.stream;
        let mut done = true;
        // What is in flight may still use what is freed.
        if !stream.is_null() {
            done &= twice(|| driver!(cuStreamSynchronize(stream)));
        }
        for graph in self.graphs.values_mut() {
            done &= graph.destroy();
        }
        for loaded in self.modules.values() {
            done &= Self::unload(loaded);
        }
        done &= self.staging.free();
        for &event in &self.events {
            done &= twice(|| driver!(cuEventDestroy_v2(event)));
        }
        for &address in self.allocations.keys() {
            done &= twice(|| driver!(cuMemFree_v2(address)));
        }
        if !stream.is_null() {
            done &= twice(|| driver!(cuStreamDestroy_v2(stream)));
        }
        done
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if !self.context.is_current_generation() {
            return; // It all went with the context.
        }
        let entered = self.lost.is_none() && twice(|| self.context.enter());
        if !(entered && self.give_back()) {
            self.context.reset();
        }
    }
}
