//! The cpu device: executes PTX text on the CPU, a warp at a time.
//!
//! A [`Module`] is parsed and decoded once; [`launch`] runs a kernel of it over [`Memory`]. Every access is
//! checked for bounds and alignment; checking mode also finds reads of memory that nobody wrote, races on
//! shared memory, and copies that nobody waited for. What a kernel does wrong is a [`Fault`] with kernel,
//! line of the text, block and thread.
//!
//! NaNs: an arithmetic instruction returns some NaN where PTX returns the canonical one.
//!
//! Blocks run in parallel and a block's accesses to global memory are plain loads and stores, as on a GPU.
//! Only `red` and `atom` are atomic, so that a kernel whose blocks race has unordered results.

#![allow(clippy::needless_range_loop, reason = "a lane index runs over several arrays at once")]

mod analysis;
mod check;
mod counters;
mod decode;
mod exec;
mod fault;
mod fuse;
mod machine;
mod memory;
mod ops;
mod outer;
mod program;
mod simd;
mod vector;

use std::sync::OnceLock;

use eggine_ptx::ast::{Entry, ParamType};

pub use counters::{Class, Counters};
pub use fault::{Fault, FaultKind, LaunchError, LoadError, Nearest, OperandProblem, Space};
pub use memory::{ALIGN_BYTES, Memory, MemoryError};
pub use simd::Simd;

use decode::Variant;
use program::Program;

/// A loaded PTX text.
pub struct Module {
    kernels: Vec<Kernel>,
}

struct Kernel {
    entry: Entry,
    lines: Vec<u32>,
    /// By SIMD level and whether instrumented.
    programs: [OnceLock<Program>; 6],
}

impl Module {
    /// Parses a text and checks that its kernels can be executed.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn load(ptx: &str) -> Result<Module, LoadError> {
        let parsed = eggine_ptx::parse::parse_with_lines(ptx)?;
        let mut kernels = Vec::new();
        let usual = Variant { simd: Simd::detect(), is_instrumented: false };
        for (entry, lines) in parsed.module.entries.into_iter().zip(parsed.lines) {
            let program = decode::decode(&entry, &lines, usual)?;
            let kernel = Kernel { entry, lines, programs: Default::default() };
            kernel.programs[usual.index()].get_or_init(|| program);
            kernels.push(kernel);
        }
        Ok(Module { kernels })
    }

    /// Names of the kernels, in order.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|k| k.entry.name.as_str())
    }

    /// A kernel as it was parsed: its parameters, shared memory and the like.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.kernels.iter().find(|k| k.entry.name == name).map(|k| &k.entry)
    }
}

/// Straight-line code that is executed as one outer product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FusedBlock {
    /// Line of its first instruction.
    pub line: u32,
    /// Accumulators in one direction.
    pub n_rows: usize,
    /// Accumulators in the other.
    pub n_cols: usize,
    /// Multiply-adds per accumulator.
    pub n_steps: usize,
}

impl Module {
    /// What of a kernel is fused; empty if there is no such kernel. Most multiply-adds of a fast kernel are
    /// in such blocks.
    pub fn fused_blocks(&self, entry: &str) -> Vec<FusedBlock> {
        let Some(kernel) = self.kernels.iter().find(|k| k.entry.name == entry) else {
            return Vec::new();
        };
        let program = kernel.program(Variant { simd: Simd::detect(), is_instrumented: false });
        program.fused_blocks()
    }
}

impl Kernel {
    fn program(&self, variant: Variant) -> &Program {
        self.programs[variant.index()].get_or_init(|| {
            decode::decode(&self.entry, &self.lines, variant)
                .expect("another variant was decoded at load")
        })
    }
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Param {
    /// A device address or a 64-bit integer.
    U64(u64),
    /// A 32-bit integer.
    U32(u32),
    /// A float.
    F32(f32),
}

/// Size and arguments of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchConfig<'a> {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block in x, y and z; at most 1024.
    pub block: [u32; 3],
    /// Arguments, as many as the entry has parameters.
    pub params: &'a [Param],
}

/// How to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads over which blocks are spread. Results of kernels whose blocks write disjoint memory do not
    /// depend on it; float sums by `red` are reproducible with 1.
    pub threads: usize,
    /// SIMD level; `None` for the fastest of this machine. A level that the machine lacks is lowered.
    pub simd: Option<Simd>,
    /// Finds uninitialised reads, races, late copies and the like, block after block on one thread.
    pub checking: bool,
    /// Most warp instructions of a block. Without checking or counting it is applied at backward branches.
    pub step_limit: Option<u64>,
    /// Fills [`LaunchReport::counters`].
    pub count: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { threads: 1, simd: None, checking: false, step_limit: None, count: false }
    }
}

/// What a launch reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchReport {
    /// Counts, if they were asked for.
    pub counters: Counters,
}

/// Runs a kernel to its end.
///
/// # Errors
///
/// [`LaunchError::Fault`] if the kernel does something wrong; what it wrote until then remains. The other
/// variants say why it did not start.
pub fn launch(
    module: &Module,
    entry: &str,
    memory: &Memory,
    config: &LaunchConfig<'_>,
    options: &Options,
) -> Result<LaunchReport, LaunchError> {
    let name = || entry.to_owned();
    let kernel = module
        .kernels
        .iter()
        .find(|k| k.entry.name == entry)
        .ok_or_else(|| LaunchError::NoEntry { kernel: name() })?;
    let params = &kernel.entry.params;
    if params.len() != config.params.len() {
        return Err(LaunchError::ParamCount {
            kernel: name(),
            expected: params.len(),
            found: config.params.len(),
        });
    }
    let mut values = Vec::with_capacity(params.len() + 1);
    for (index, (param, value)) in params.iter().zip(config.params).enumerate() {
        values.push(match (param.ty, *value) {
            (ParamType::U64, Param::U64(v)) => v,
            (ParamType::U32, Param::U32(v)) => u64::from(v),
            (ParamType::F32, Param::F32(v)) => u64::from(v.to_bits()),
            _ => return Err(LaunchError::ParamType { kernel: name(), index }),
        });
    }
    let n_threads = config.block.iter().try_fold(1u32, |n, &d| n.checked_mul(d));
    let reqntid = kernel.entry.reqntid;
    if !n_threads.is_some_and(|n| (1..=1024).contains(&n))
        || reqntid.is_some_and(|r| r != config.block)
    {
        return Err(LaunchError::Block { kernel: name(), block: config.block, reqntid });
    }
    let n_blocks = config.grid.iter().try_fold(1u64, |n, &d| n.checked_mul(u64::from(d)));
    if n_blocks.is_none_or(|n| n == 0) {
        return Err(LaunchError::Grid { kernel: name(), grid: config.grid });
    }
    let simd = options.simd.unwrap_or(Simd::Avx512).min(Simd::detect());
    let variant = Variant { simd, is_instrumented: options.checking || options.count };
    let launch = exec::Launch {
        kernel: entry,
        program: kernel.program(variant),
        grid: config.grid,
        block: config.block,
        params: values,
        step_limit: options.step_limit.unwrap_or(u64::MAX),
        is_checking: options.checking,
        is_counting: options.count,
    };
    exec::launch(&launch, memory, options.threads).map_err(LaunchError::Fault)
}
