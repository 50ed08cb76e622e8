//! Launches: arguments are copied when the call is made, as the API says, and the kernel runs at once
//! or is recorded.

use std::ffi::{CString, c_uint, c_void};

use eggine_cpu::{FaultKind, LaunchConfig, LaunchError, Options, Param};
use eggine_ptx::ast::ParamType;

use crate::attributes::Attributes;
use crate::call::get;
use crate::graph::{Kernel, Op};
use crate::result::{Code, Done};
use crate::state::{Function, Handle, State, to_id};

/// A block that takes more warp instructions than this hangs; a GPU with a display has such a limit too.
const STEP_LIMIT: u64 = 1 << 32;

/// `CU_LAUNCH_PARAM_…` of the packed form of arguments.
const PACKED_END: usize = 0;
const PACKED_BUFFER: usize = 1;
const PACKED_SIZE: usize = 2;

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Handle,
    attributes: *const Attribute,
    n_attributes: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: c_uint,
    pad: c_uint,
    value: [u64; 8],
}

impl State {
    /// A launch with its arguments copied.
    pub(crate) fn kernel(
        &self,
        function: Handle,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        params: *const *const c_void,
        extra: *const *const c_void,
    ) -> Done<Kernel> {
        let function = &self.functions.get(&to_id(function)).ok_or(Code::INVALID_HANDLE)?.it;
        let entry = function.module.entry(&function.entry).ok_or(Code::INVALID_HANDLE)?;
        let n_threads = block.iter().map(|&n| u64::from(n)).product::<u64>();
        if n_threads == 0 || n_threads > 1024 || grid.contains(&0) || block[2] > 64 {
            return Err(Code::INVALID_VALUE);
        }
        if grid[1] > 65535 || grid[2] > 65535 || grid[0] > 0x7fff_ffff {
            return Err(Code::INVALID_VALUE);
        }
        if entry.reqntid.is_some_and(|required| required != block) {
            return Err(Code::INVALID_VALUE);
        }
        let allowed = function.dynamic_shared_bytes.max(48 << 10) as u32;
        if shared_bytes > allowed {
            return Err(Code::INVALID_VALUE);
        }
        let mut values = Vec::with_capacity(entry.params.len());
        let mut offset = 0;
        let packed = if extra.is_null() { None } else { Some(packed(extra)?) };
        for (index, param) in entry.params.iter().enumerate() {
            let size = if param.ty == ParamType::U64 { 8 } else { 4 };
            offset = usize::next_multiple_of(offset, size);
            let place = match packed {
                Some((_, n_bytes)) if offset + size > n_bytes => return Err(Code::INVALID_VALUE),
                Some((buffer, _)) => buffer.wrapping_add(offset),
                None => get(params.wrapping_add(index))?.cast::<u8>(),
            };
            offset += size;
            values.push(match param.ty {
                ParamType::U64 => Param::U64(get(place.cast())?),
                ParamType::U32 => Param::U32(get(place.cast())?),
                ParamType::F32 => Param::F32(get(place.cast())?),
            });
        }
        let attributes = Attributes::default();
        Ok(Kernel { function: function.clone(), grid, block, params: values, attributes })
    }

    /// A launch as a `CUlaunchConfig` says it; without arguments it is only looked at.
    pub(crate) fn configured(
        &self,
        function: Handle,
        config: *const c_void,
        arguments: Option<(*const *const c_void, *const *const c_void)>,
    ) -> Done<Kernel> {
        let Config { grid, block, shared_bytes, attributes, n_attributes, .. } =
            get(config.cast())?;
        let mut kernel = match arguments {
            Some((params, extra)) => {
                self.kernel(function, grid, block, shared_bytes, params, extra)?
            }
            None => {
                let function =
                    &self.functions.get(&to_id(function)).ok_or(Code::INVALID_HANDLE)?.it;
                let (function, attributes) = (function.clone(), Attributes::default());
                Kernel { function, grid, block, params: Vec::new(), attributes }
            }
        };
        for index in 0..n_attributes as usize {
            let place = attributes.wrapping_add(index);
            let attribute = get(place)?;
            kernel.attributes.set(attribute.id, attribute.value.as_ptr().cast())?;
        }
        Ok(kernel)
    }

    /// Runs a kernel to its end. A fault loses the context; the call succeeds, as on a GPU.
    pub(crate) fn execute(&mut self, kernel: &Kernel) -> Done {
        self.stats.n_launches += 1;
        let Kernel { function: Function { module, entry, .. }, grid, block, params, attributes } =
            kernel;
        let config = LaunchConfig { grid: *grid, block: *block, params };
        // Of a cooperative launch every block has a thread, so that none waits for one that waits.
        let n_blocks = grid.iter().map(|&n| n as usize).product::<usize>();
        let threads = if attributes.cooperative { n_blocks } else { self.config.n_threads };
        let options = Options {
            threads,
            checking: self.config.checking,
            step_limit: Some(STEP_LIMIT),
            ..Options::default()
        };
        match eggine_cpu::launch(module, entry, &self.memory, &config, &options) {
            Ok(_) => Ok(()),
            Err(LaunchError::Fault(fault)) => {
                let code = match fault.kind {
                    FaultKind::OutOfBounds { .. } | FaultKind::ReadOnly { .. } => {
                        Code::ILLEGAL_ADDRESS
                    }
                    FaultKind::Misaligned { .. } => Code::MISALIGNED_ADDRESS,
                    FaultKind::StepLimit { .. } => Code::LAUNCH_TIMEOUT,
                    _ => Code::LAUNCH_FAILED,
                };
                let description = code.describe().map_or(c"", |it| it.1).to_string_lossy();
                self.fault = CString::new(format!("{description}: {fault}")).ok();
                if let Some(log) = &mut self.config.log {
                    // As for every line of the log.
                    let _ = std::io::Write::write_fmt(log, format_args!("# {fault}\n"));
                }
                self.lose(code);
                Ok(())
            }
            Err(_) => Err(Code::INVALID_VALUE),
        }
    }

    /// Runs an operation, or records it if the stream is being captured.
    pub(crate) fn submit(&mut self, stream: Handle, op: Op) -> Done {
        let stream = self.stream(stream)?;
        if let Some(ops) = self.streams.get_mut(&stream).and_then(|it| it.it.capture.as_mut()) {
            ops.push(op);
            return Ok(());
        }
        self.perform(&op)
    }

    /// Runs an operation.
    pub(crate) fn perform(&mut self, op: &Op) -> Done {
        match op {
            Op::Kernel(kernel) => self.execute(kernel),
            other => self.transfer(other),
        }
    }
}

/// Buffer and size of packed arguments.
fn packed(extra: *const *const c_void) -> Done<(*const u8, usize)> {
    let (mut buffer, mut n_bytes) = (std::ptr::null(), 0);
    let mut at = 0;
    loop {
        match get(extra.wrapping_add(at))? as usize {
            PACKED_END => break,
            PACKED_BUFFER => buffer = get(extra.wrapping_add(at + 1))?.cast::<u8>(),
            PACKED_SIZE => n_bytes = get(get(extra.wrapping_add(at + 1))?.cast::<usize>())?,
            _ => return Err(Code::INVALID_VALUE),
        }
        at += 2;
    }
    if buffer.is_null() { Err(Code::INVALID_VALUE) } else { Ok((buffer, n_bytes)) }
}

export! { TABLE;
    Context "cuLaunchKernel" 4000 cuLaunchKernel(
        s, function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint,
        stream: Handle, params: *const *const c_void, extra: *const *const c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let kernel = s.kernel(function, grid, block, shared_bytes, params, extra)?;
        s.submit(stream, Op::Kernel(kernel))?;
    }
    Context "cuLaunchCooperativeKernel" 9000 cuLaunchCooperativeKernel(
        s, function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint,
        stream: Handle, params: *const *const c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let mut kernel = s.kernel(function, grid, block, shared_bytes, params, std::ptr::null())?;
        kernel.attributes.cooperative = true;
        s.check_attributes(&kernel)?;
        s.submit(stream, Op::Kernel(kernel))?;
    }
    Context "cuLaunchKernelEx" 11060 cuLaunchKernelEx(
        s, config: *const c_void, function: Handle, params: *const *const c_void, extra: *const *const c_void,
    ) {
        let kernel = s.configured(function, config, Some((params, extra)))?;
        s.check_attributes(&kernel)?;
        let stream = get(config.cast::<Config>())?.stream;
        s.submit(stream, Op::Kernel(kernel))?;
    }
}
