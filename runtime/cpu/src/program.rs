//! The decoded program: an array of micro-operations over a warp's register file, and the context in
//! which they run.
//!
//! A register is an array of 32 lanes. 32-bit and 16-bit registers take one slot of 128 bytes, 64-bit
//! registers two neighbouring slots; predicates are masks in an array of their own. Immediates are
//! registers too, written once per launch. Operands are byte offsets into the register file.

use eggine_ptx::table::Op;

use crate::check::Checker;
use crate::fault::FaultKind;
use crate::memory::View;
use crate::outer::{FmaBlock, PanelKey};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// Bytes of a 32-bit register of a warp.
pub(crate) const SLOT_BYTES: u32 = 128;
/// [`Uop::guard`] of an instruction without a guard.
pub(crate) const NO_GUARD: u16 = u16::MAX;

/// What happens after a micro-operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Flow {
    /// The next one.
    Next = 0,
    /// A branch: lanes [`Ctx::taken`] continue at [`Ctx::target`].
    Branch,
    /// All lanes continue at [`Ctx::target`].
    Jump,
    /// The warp waits at barrier [`Ctx::target`].
    Barrier,
    /// The active lanes are done.
    Ret,
    /// [`Ctx::fault`] is set.
    Fault,
}

/// Executes a micro-operation.
pub(crate) type OpFn = unsafe fn(&mut Ctx, &Uop) -> Flow;

/// A micro-operation.
#[derive(Clone, Copy)]
pub(crate) struct Uop {
    /// Executes it.
    pub(crate) run: OpFn,
    /// Offsets of registers, indices of predicates, or small literals; see the operation.
    pub(crate) r: [u32; 5],
    /// Predicate of the guard, or [`NO_GUARD`].
    pub(crate) guard: u16,
    /// Whether the guard is `@!%p`.
    pub(crate) guard_negated: bool,
    /// Whether a branch may lead here.
    pub(crate) is_label: bool,
    /// Index of a global load in [`Ctx::last`].
    pub(crate) extra: u32,
    /// Address offset, branch target or packed literals; see the operation.
    pub(crate) imm: i64,
}

/// What a micro-operation came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UopInfo {
    /// Instruction.
    pub(crate) op: Op,
    /// Line of the PTX text.
    pub(crate) line: u32,
}

/// Something to write into the register file of every warp before a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constant {
    /// Offset of the register.
    pub(crate) offset: u32,
    /// All lanes get these bits.
    pub(crate) bits: u64,
    /// Whether the register is one of 64 bits.
    pub(crate) is_wide: bool,
}

/// A decoded entry at one SIMD level.
pub(crate) struct Program {
    pub(crate) uops: Vec<Uop>,
    pub(crate) infos: Vec<UopInfo>,
    pub(crate) constants: Vec<Constant>,
    /// Bytes of a warp's register file.
    pub(crate) file_bytes: u32,
    pub(crate) n_preds: u32,
    /// Global loads.
    pub(crate) n_loads: u32,
    /// Bytes of shared memory, with red zones if the program is for checking mode.
    pub(crate) shared_bytes: u32,
    /// Valid ranges of shared memory: (first byte, bytes).
    pub(crate) shared_arrays: Vec<(u32, u32)>,
    /// Fused blocks, which a micro-operation names by index.
    pub(crate) fma_blocks: Vec<FmaBlock>,
    /// Floats of scratch that the largest fused block needs.
    pub(crate) n_panel_floats: usize,
}

impl Program {
    /// The fused blocks, in order.
    pub(crate) fn fused_blocks(&self) -> Vec<crate::FusedBlock> {
        let describe = |b: &FmaBlock| crate::FusedBlock {
            line: b.line,
            n_rows: b.chunks.first().map_or(0, |c| c.a.n),
            n_cols: b.chunks.first().map_or(0, |c| c.b.n),
            n_steps: b.chunks.iter().map(|c| c.n_steps).sum(),
        };
        self.fma_blocks.iter().map(describe).collect()
    }
}

/// An asynchronous copy of one lane that is not complete (checking mode).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCopy {
    pub(crate) shared: u32,
    pub(crate) global: u64,
    pub(crate) n_bytes: u32,
    pub(crate) lane: u32,
    pub(crate) line: u32,
}

/// Asynchronous copies of a warp: committed groups, oldest first, and the open group.
#[derive(Clone, Debug, Default)]
pub(crate) struct AsyncQueue {
    pub(crate) groups: Vec<Vec<PendingCopy>>,
    pub(crate) open: Vec<PendingCopy>,
}

/// What the operations of a warp see: its registers, its block and the launch.
pub(crate) struct Ctx {
    /// Register file of the running warp.
    pub(crate) regs: *mut u8,
    /// Its predicates.
    pub(crate) preds: *mut u32,
    /// Where its loads from global memory began when they were last executed.
    pub(crate) last: *mut u64,
    /// Active lanes.
    pub(crate) mask: u32,
    /// Its index in the block.
    pub(crate) warp: u32,
    /// Shared memory of the block.
    pub(crate) shared: *mut u8,
    pub(crate) shared_bytes: u32,
    /// Allocations by slot.
    pub(crate) views: *const View,
    pub(crate) n_views: usize,
    /// Arguments, 8 bytes each.
    pub(crate) params: *const u64,
    pub(crate) ntid: [u32; 3],
    pub(crate) ctaid: [u32; 3],
    pub(crate) nctaid: [u32; 3],
    pub(crate) program: *const Program,
    /// Scratch of fused blocks.
    pub(crate) panels: *mut f32,
    /// What it holds: rows and columns, for each half.
    pub(crate) panel_keys: *mut [PanelKey; 4],
    /// Changes whenever the block passes a barrier or begins.
    pub(crate) epoch: u64,
    /// Whether the running warp stored to shared memory since the last barrier.
    pub(crate) has_stored: bool,
    /// See [`Flow`].
    pub(crate) target: u32,
    /// See [`Flow`].
    pub(crate) taken: u32,
    /// Why the last operation returned [`Flow::Fault`], and in which lane.
    pub(crate) fault: Option<(FaultKind, u32)>,
    /// Asynchronous copies of the running warp, if they are to complete late.
    pub(crate) late: Option<AsyncQueue>,
    /// Line of the running instruction; maintained with `checker`.
    pub(crate) line: u32,
    /// Shadow state of checking mode.
    pub(crate) checker: Option<Box<Checker>>,
}

/// Type of one lane of a register.
pub(crate) trait Lane: Copy + Default + 'static {}
impl Lane for u32 {}
impl Lane for i32 {}
impl Lane for f32 {}
impl Lane for u64 {}
impl Lane for i64 {}
impl Lane for f64 {}

impl Ctx {
    /// Lanes of the register at `offset`.
    ///
    /// # Safety
    ///
    /// `offset` is that of a register of `T`'s width in the current register file.
    #[inline(always)]
    pub(crate) unsafe fn reg<T: Lane>(&self, offset: u32) -> *mut [T; LANES] {
        // SAFETY: the file is at least `offset` plus the register long.
        unsafe { self.regs.add(offset as usize).cast() }
    }

    /// Predicate `index`.
    ///
    /// # Safety
    ///
    /// `index` is less than the program's number of predicates.
    #[inline(always)]
    pub(crate) unsafe fn pred(&self, index: u32) -> *mut u32 {
        // SAFETY: by contract.
        unsafe { self.preds.add(index as usize) }
    }

    /// Records a fault.
    #[cold]
    pub(crate) fn fail(&mut self, kind: FaultKind, lane: u32) -> Flow {
        self.fault = Some((kind, lane));
        Flow::Fault
    }

    /// `%tid` of a lane of the running warp.
    pub(crate) fn tid(&self, lane: u32) -> [u32; 3] {
        let linear = self.warp * LANES as u32 + lane;
        let [x, y, _] = self.ntid;
        [linear % x, linear / x % y, linear / (x * y)]
    }
}
