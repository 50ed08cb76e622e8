//! What goes wrong: in a PTX text ([`LoadError`]), in a call ([`LaunchError`]) and in a kernel
//! ([`Fault`], which names kernel, line, block and thread).

use thiserror::Error;

/// Why a PTX text cannot be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not in the language that we print.
    #[error("PTX does not parse: {0}")]
    Parse(#[from] eggine_ptx::parse::ParseError),
    /// An instruction has operands that its row of the table does not allow.
    #[error("kernel `{kernel}`, line {line}: `{mnemonic}`: {problem}")]
    Operand {
        /// Entry.
        kernel: String,
        /// Line of the text, from 1.
        line: u32,
        /// Instruction.
        mnemonic: &'static str,
        /// What is wrong.
        problem: OperandProblem,
    },
    /// A branch to a label that is not placed.
    #[error("kernel `{kernel}`: label $L{label} is not placed")]
    Label {
        /// Entry.
        kernel: String,
        /// Number of the label.
        label: u32,
    },
    /// More shared memory than any device has.
    #[error("kernel `{kernel}`: {n_bytes} bytes of shared memory; a block can have 232448")]
    Shared {
        /// Entry.
        kernel: String,
        /// Of all arrays.
        n_bytes: u64,
    },
    /// Control can run past the last instruction.
    #[error("kernel `{kernel}`: control reaches the end of the body")]
    End {
        /// Entry.
        kernel: String,
    },
}

/// What is wrong with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OperandProblem {
    /// Too few operands.
    #[error("operand {0} is missing")]
    Missing(usize),
    /// An operand of a kind that the instruction does not take.
    #[error("operand {0} has the wrong kind")]
    Kind(usize),
    /// A register, parameter or shared array that is not declared.
    #[error("operand {0} is not declared")]
    Undeclared(usize),
    /// A literal out of its range.
    #[error("operand {0} is out of range")]
    Range(usize),
}

/// Why a launch did not start.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The module has no such entry.
    #[error("no kernel `{kernel}` in the module")]
    NoEntry {
        /// What was asked for.
        kernel: String,
    },
    /// Arguments differ from the `.param`s in number.
    #[error("kernel `{kernel}` takes {expected} arguments, found {found}")]
    ParamCount {
        /// Entry.
        kernel: String,
        /// Parameters of the entry.
        expected: usize,
        /// Arguments given.
        found: usize,
    },
    /// An argument has another type than its `.param`.
    #[error("kernel `{kernel}`: argument {index} has another type than its parameter")]
    ParamType {
        /// Entry.
        kernel: String,
        /// Position.
        index: usize,
    },
    /// The block is empty, larger than 1024 threads, or not what `.reqntid` says.
    #[error(
        "kernel `{kernel}` cannot be launched with blocks of {block:?} threads (.reqntid {reqntid:?})"
    )]
    Block {
        /// Entry.
        kernel: String,
        /// What was asked for.
        block: [u32; 3],
        /// What the text fixes.
        reqntid: Option<[u32; 3]>,
    },
    /// The grid is empty.
    #[error("kernel `{kernel}` cannot be launched with a grid of {grid:?} blocks")]
    Grid {
        /// Entry.
        kernel: String,
        /// What was asked for.
        grid: [u32; 3],
    },
    /// The kernel did something wrong.
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
}

/// A fault of a kernel while it ran.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("kernel `{kernel}`, line {line}, block {block:?}, thread {thread:?}: {kind}")]
pub struct Fault {
    /// Entry.
    pub kernel: String,
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// `%ctaid`.
    pub block: [u32; 3],
    /// `%tid` of the first thread concerned.
    pub thread: [u32; 3],
    /// What happened.
    pub kind: FaultKind,
}

/// Memory that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "PTX state spaces")]
pub enum Space {
    Global,
    Shared,
}

impl std::fmt::Display for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Space::Global => "global",
            Space::Shared => "shared",
        })
    }
}

/// The allocation nearest to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// Its first address.
    pub base: u64,
    /// Its size.
    pub n_bytes: u64,
    /// How far before its beginning (negative) or past its end (not negative) the access begins; an
    /// access that begins inside and ends outside has the (negative) distance of its first byte to the end.
    pub distance: i64,
}

/// What a kernel did wrong.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside every allocation.
    #[error("{space} access of {n_bytes} bytes at {address:#x} is out of bounds{}", near(.nearest, *.address))]
    OutOfBounds {
        /// Where.
        space: Space,
        /// First byte.
        address: u64,
        /// Of the access of one thread.
        n_bytes: u32,
        /// If the address is near an allocation.
        nearest: Option<Nearest>,
    },
    /// An address that is not a multiple of the access.
    #[error("{space} access of {n_bytes} bytes at {address:#x} is misaligned")]
    Misaligned {
        /// Where.
        space: Space,
        /// First byte.
        address: u64,
        /// Of the access of one thread.
        n_bytes: u32,
    },
    /// A store to memory that was mapped read-only.
    #[error("store to read-only memory at {address:#x}")]
    ReadOnly {
        /// First byte.
        address: u64,
    },
    /// A load of memory that nobody wrote (checking mode).
    #[error("{space} read of uninitialised memory at {address:#x}")]
    Uninitialised {
        /// Where.
        space: Space,
        /// First byte that was not written.
        address: u64,
    },
    /// A load or store of shared memory that an asynchronous copy is still to write (checking mode).
    #[error(
        "shared access at {address:#x} while a cp.async of line {other_line} to it is in flight"
    )]
    AsyncInFlight {
        /// First byte.
        address: u64,
        /// Line of the `cp.async`.
        other_line: u32,
    },
    /// Two warps access the same shared word without a barrier between, one of them writing (checking mode).
    #[error("shared race at {address:#x} with line {other_line} in warp {other_warp}")]
    Race {
        /// First byte.
        address: u64,
        /// Line of the earlier access.
        other_line: u32,
        /// Warp of the earlier access.
        other_warp: u32,
    },
    /// A barrier that not all threads of the warp reach together.
    #[error("barrier in divergent code: lanes {active:#010x} of {alive:#010x} reach it")]
    DivergentBarrier {
        /// Lanes at the barrier.
        active: u32,
        /// Lanes that have not returned.
        alive: u32,
    },
    /// Every warp that has not returned waits, and no barrier can open.
    #[error("deadlock: all warps wait, (warp, line, barrier): {waiting:?}")]
    Deadlock {
        /// Warp, line and barrier of each.
        waiting: Vec<(u32, u32, u32)>,
    },
    /// More instructions than allowed.
    #[error("step limit of {limit} warp instructions per block exceeded")]
    StepLimit {
        /// The limit.
        limit: u64,
    },
    /// Integer division by zero (checking mode; elsewhere the result is all ones).
    #[error("integer division by zero")]
    DivisionByZero,
    /// A shuffle reads a lane that does not take part (checking mode).
    #[error("shuffle reads lane {lane}, which does not take part")]
    ShuffleInactive {
        /// The lane read.
        lane: u32,
    },
}

fn near(nearest: &Option<Nearest>, address: u64) -> String {
    let Some(Nearest { base, n_bytes, distance }) = *nearest else {
        return ", not near any allocation".to_owned();
    };
    let n = distance.unsigned_abs();
    let place = match distance {
        0.. => "past the end of",
        _ if address < base => "before",
        _ => "before the end of",
    };
    format!(": {n} bytes {place} the allocation of {n_bytes} bytes at {base:#x}")
}
