//! Executes fused blocks of multiply-adds, half a warp (16 lanes) at a time.
//!
//! The factors of all steps are first put into two dense panels, `a[k][i]` and `b[k][j]`, each a vector of
//! 16 lanes or, if all lanes agree, a scalar; how depends on the pattern of the lanes' addresses, which is
//! found once per block. Then tiles of accumulators go through all steps in machine registers.

mod tiles;

use std::mem::MaybeUninit;

use crate::program::{Ctx, Flow, LANES, Uop};
use crate::simd::{LaneOp, Level, Simd};
use crate::vector;
use tiles::{Accumulators, multiply};

/// Lanes of a vector of a panel.
const HALF: usize = 16;
/// Most address registers of a block.
pub(crate) const MAX_GROUPS: usize = 8;
/// Vectors of both panels of a chunk: 16 KiB, half of a first-level cache.
pub(crate) const CHUNK_VECTORS: usize = 256;

/// Loads that share an address register.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Offset of the register.
    pub(crate) reg: u32,
    /// Least address offset.
    pub(crate) least: i64,
    /// Largest address offset plus size.
    pub(crate) end: i64,
    /// Largest size of a load; sizes are powers of two and divide the offsets.
    pub(crate) align: u32,
}

/// A load into a panel.
#[derive(Clone, Debug)]
pub(crate) struct StageLoad {
    pub(crate) group: u32,
    pub(crate) width: u32,
    pub(crate) offset: u32,
    /// Places of the words in the panel; unused words go to the place behind it.
    pub(crate) to: [u32; 4],
}

/// How a panel is filled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    pub(crate) loads: Vec<StageLoad>,
    /// (offset of a register, place)
    pub(crate) regs: Vec<(u32, u32)>,
    /// (from, to), after the loads
    pub(crate) copies: Vec<(u32, u32)>,
    /// Groups of the loads, each once.
    pub(crate) groups: Vec<u32>,
    /// Rows or columns.
    pub(crate) n: usize,
    /// If the loads are evenly spaced.
    pub(crate) regular: Option<Regular>,
}

/// Factor `i` of step `k` is loaded from `group + first[i] + k * step_bytes`.
#[derive(Clone, Debug)]
pub(crate) struct Regular {
    pub(crate) group: u32,
    pub(crate) first: Vec<u32>,
    pub(crate) step_bytes: u32,
    /// Words that neighbouring factors are loaded by: 1, 2 or 4; divides `n`.
    pub(crate) width: usize,
}

/// What a panel holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PanelKey {
    chunk: *const Chunk,
    is_scalar: bool,
    /// [`Ctx::epoch`] when it was filled.
    epoch: u64,
    /// Of the only group.
    offsets: [u32; HALF],
}

impl PanelKey {
    /// Nothing.
    pub(crate) const EMPTY: PanelKey =
        PanelKey { chunk: std::ptr::null(), is_scalar: false, epoch: 0, offsets: [0; HALF] };
}

/// Some steps of a block.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) n_steps: usize,
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// Registers that hold the accumulators (i, j) before and after, at `i * b.n + j`.
    pub(crate) from: Vec<u32>,
    pub(crate) to: Vec<u32>,
}

/// A fused block.
#[derive(Clone, Debug)]
pub(crate) struct FmaBlock {
    /// Of the first instruction.
    pub(crate) line: u32,
    pub(crate) groups: Vec<Group>,
    pub(crate) chunks: Vec<Chunk>,
}

impl FmaBlock {
    /// Floats of the panels of the largest chunk, for both halves.
    pub(crate) fn n_panel_floats(&self) -> usize {
        let floats =
            |c: &Chunk| 2 * (panel_floats(&c.a, c.n_steps) + panel_floats(&c.b, c.n_steps));
        self.chunks.iter().map(floats).max().unwrap_or(0)
    }
}

/// Which lanes of a half have which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// All the same.
    Uniform,
    /// The same within each aligned group of eight lanes.
    Eights,
    /// The same within each aligned group of four lanes.
    Quads,
    /// 4 bytes apart within each aligned group of four lanes.
    Words,
    /// 8 bytes apart within each aligned group of four lanes.
    Pairs,
    /// 16 bytes apart within each aligned group of four lanes.
    Lines,
    Any,
}

#[inline(always)]
fn pattern(offsets: &[u32; HALF]) -> Pattern {
    let distance = offsets[1].wrapping_sub(offsets[0]);
    let (mut uniform, mut eights, mut even) = (0, 0, 0);
    for i in 0..HALF {
        uniform |= offsets[i] ^ offsets[0];
        eights |= offsets[i] ^ offsets[i & !7];
        even |= offsets[i].wrapping_sub(offsets[i & !3]) ^ distance.wrapping_mul(i as u32 & 3);
    }
    match (uniform, eights, even, distance) {
        (0, ..) => Pattern::Uniform,
        (_, 0, ..) => Pattern::Eights,
        (_, _, 0, 0) => Pattern::Quads,
        (_, _, 0, 4) => Pattern::Words,
        (_, _, 0, 8) => Pattern::Pairs,
        (_, _, 0, 16) => Pattern::Lines,
        _ => Pattern::Any,
    }
}

/// The micro-operation: block `imm`; continues at `r[0]` if all lanes are active and all loads are in
/// bounds, and at the next micro-operation, which does the same step by step, otherwise.
pub(crate) struct Outer;

impl LaneOp for Outer {
    #[inline(always)]
    unsafe fn run<L: Level>(cx: &mut Ctx, uop: &Uop) -> Flow {
        if cx.mask != !0 {
            return Flow::Next;
        }
        // SAFETY: the program outlives the launch; the decoder made the block.
        let program = unsafe { &*cx.program };
        let block = &program.fma_blocks[uop.imm as usize];
        let mut offsets: Offsets = [const { MaybeUninit::uninit() }; MAX_GROUPS];
        let mut patterns = [[Pattern::Any; 2]; MAX_GROUPS];
        for (g, group) in block.groups.iter().enumerate() {
            // SAFETY: the decoder made the offset.
            let addr = unsafe { &*cx.reg::<u32>(group.reg) };
            let (mut low, mut high, mut bits) = (!0u32, 0u32, 0u32);
            for &x in addr {
                low = low.min(x);
                high = high.max(x);
                bits |= x;
            }
            if i64::from(low) + group.least < 0
                || i64::from(high) + group.end > i64::from(cx.shared_bytes)
                || bits & (group.align - 1) != 0
            {
                return Flow::Next;
            }
            let mut halves = [[0; HALF]; 2];
            for h in 0..2 {
                let mut half = [0; HALF];
                half.copy_from_slice(&addr[HALF * h..HALF * (h + 1)]);
                halves[h] = half;
                patterns[g][h] = pattern(&half);
            }
            offsets[g].write(halves);
        }
        for chunk in &block.chunks {
            // SAFETY: the addresses were checked; the panels are as large as the largest chunk needs.
            unsafe { run_chunk::<L>(cx, chunk, &offsets, &patterns) }
        }
        cx.target = uop.r[0];
        Flow::Jump
    }
}

/// Of the groups of the block, both halves.
type Offsets = [MaybeUninit<[[u32; HALF]; 2]>; MAX_GROUPS];
type Patterns = [[Pattern; 2]; MAX_GROUPS];

/// # Safety
///
/// All loads of the chunk are in bounds, and the offsets of their groups are written; the machine has the
/// features of `L`.
#[inline(always)]
unsafe fn run_chunk<L: Level>(cx: &mut Ctx, chunk: &Chunk, offsets: &Offsets, patterns: &Patterns) {
    let (n_rows, n_cols) = (chunk.a.n, chunk.b.n);
    // SAFETY: by contract; each panel has a place more than it needs.
    unsafe {
        let (floats_a, floats_b) =
            (panel_floats(&chunk.a, chunk.n_steps), panel_floats(&chunk.b, chunk.n_steps));
        let panels_a = [cx.panels, cx.panels.add(floats_a + floats_b)];
        let panels_b = [panels_a[0].add(floats_a), panels_a[1].add(floats_a)];
        let (common_a, common_b) = (is_common(&chunk.a, offsets), is_common(&chunk.b, offsets));
        let (mut staged_a, mut staged_b) = (None, None);
        for h in 0..2 {
            // At most one side is not vectors; if the columns are not, rows and columns change places.
            let kind_a = kind(&chunk.a, h, patterns);
            let kind_b = if kind_a == VECTORS { kind(&chunk.b, h, patterns) } else { VECTORS };
            let a = operand::<L>(
                cx,
                chunk,
                0,
                kind_a,
                h,
                common_a,
                &mut staged_a,
                panels_a,
                offsets,
                patterns,
            );
            let b = operand::<L>(
                cx,
                chunk,
                1,
                kind_b,
                h,
                common_b,
                &mut staged_b,
                panels_b,
                offsets,
                patterns,
            );
            let lane = h * HALF;
            if kind_b == VECTORS {
                let acc = Accumulators { chunk, lane, row_stride: n_cols, col_stride: 1 };
                match kind_a {
                    SCALARS => {
                        multiply::<L, SCALARS>(cx, &acc, a, n_rows, b, n_cols, chunk.n_steps)
                    }
                    HALVES => multiply::<L, HALVES>(cx, &acc, a, n_rows, b, n_cols, chunk.n_steps),
                    _ => multiply::<L, VECTORS>(cx, &acc, a, n_rows, b, n_cols, chunk.n_steps),
                }
            } else {
                let acc = Accumulators { chunk, lane, row_stride: 1, col_stride: n_cols };
                if kind_b == SCALARS {
                    multiply::<L, SCALARS>(cx, &acc, b, n_cols, a, n_rows, chunk.n_steps);
                } else {
                    multiply::<L, HALVES>(cx, &acc, b, n_cols, a, n_rows, chunk.n_steps);
                }
            }
        }
    }
}

/// How the factors of a side are given: a vector of 16 lanes each, …
const VECTORS: u8 = 0;
/// … one number for all lanes, …
const SCALARS: u8 = 1;
/// … or one for lanes 0 to 7 and one for lanes 8 to 15, in place.
const HALVES: u8 = 2;

fn panel_floats(side: &Side, n_steps: usize) -> usize {
    (side.n * n_steps + 1) * HALF
}

/// Whether both halves load the same.
///
/// # Safety
///
/// The offsets of the groups are written.
#[inline(always)]
unsafe fn is_common(side: &Side, offsets: &Offsets) -> bool {
    let mut diff = 0;
    for &g in &side.groups {
        // SAFETY: by contract.
        let [low, high] = unsafe { offsets[g as usize].assume_init_ref() };
        for i in 0..HALF {
            diff |= low[i] ^ high[i];
        }
    }
    side.regs.is_empty() && diff == 0
}

#[inline(always)]
fn kind(side: &Side, h: usize, patterns: &Patterns) -> u8 {
    match &side.regular {
        Some(regular) => match patterns[regular.group as usize][h] {
            Pattern::Uniform => SCALARS,
            Pattern::Eights => HALVES,
            _ => VECTORS,
        },
        None if side.regs.is_empty()
            && side.groups.iter().all(|&g| patterns[g as usize][h] == Pattern::Uniform) =>
        {
            SCALARS
        }
        None => VECTORS,
    }
}

/// Where the factors of a side are: factor `i` of step `k` at `base + first(i) + k * step_bytes`.
#[derive(Clone, Copy)]
struct Operand<'a> {
    base: *const u8,
    /// By row; if empty, rows are `pitch` bytes apart.
    first: &'a [u32],
    pitch: usize,
    step_bytes: usize,
    /// From lanes 0 to 7 to lanes 8 to 15, of `HALVES`.
    distance: usize,
}

/// Makes the factors of a side accessible: in place, or in a panel, which may be there already. `staged` is
/// what is in the panel of the first half.
///
/// # Safety
///
/// As [`run_chunk`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "it is inlined into its only user")]
unsafe fn operand<'c, L: Level>(
    cx: &mut Ctx,
    chunk: &'c Chunk,
    side_index: usize,
    kind: u8,
    h: usize,
    is_common: bool,
    staged: &mut Option<u8>,
    panels: [*mut f32; 2],
    offsets: &Offsets,
    patterns: &Patterns,
) -> Operand<'c> {
    let side = if side_index == 0 { &chunk.a } else { &chunk.b };
    // SAFETY: by contract.
    unsafe {
        if kind != VECTORS
            && let Some(regular) = &side.regular
        {
            let lanes = &offsets[regular.group as usize].assume_init_ref()[h];
            let base = cx.shared.wrapping_add(lanes[0] as usize);
            let distance = lanes[8].wrapping_sub(lanes[0]) as i32 as isize as usize;
            let step_bytes = regular.step_bytes as i32 as isize as usize;
            return Operand { base, first: &regular.first, pitch: 0, step_bytes, distance };
        }
        let is_scalar = kind == SCALARS;
        let place = if is_common { 0 } else { h };
        let panel = panels[place];
        let index = 2 * side_index + place;
        // Between two barriers no warp changes what another reads; what this warp stored itself it may read.
        let can_keep = side.groups.len() == 1 && side.regs.is_empty();
        let is_there = can_keep && !cx.has_stored && {
            let key = &(*cx.panel_keys)[index];
            let lanes = &offsets[side.groups[0] as usize].assume_init_ref()[h];
            let mut diff = 0;
            for i in 0..HALF {
                diff |= lanes[i] ^ key.offsets[i];
            }
            diff == 0
                && std::ptr::eq(key.chunk, chunk)
                && key.epoch == cx.epoch
                && key.is_scalar == is_scalar
        };
        let is_there = is_there || is_common && *staged == Some(kind);
        *staged = Some(kind);
        if !is_there {
            for key in &mut *cx.panel_keys {
                if !std::ptr::eq(key.chunk, chunk) {
                    *key = PanelKey::EMPTY;
                }
            }
            stage::<L>(cx, side, panel, is_scalar, h, chunk.n_steps, offsets, patterns);
            (*cx.panel_keys)[index] = if can_keep && !cx.has_stored {
                let lanes = offsets[side.groups[0] as usize].assume_init_ref()[h];
                PanelKey { chunk, is_scalar, epoch: cx.epoch, offsets: lanes }
            } else {
                PanelKey::EMPTY
            };
        }
        let word = if is_scalar { 4 } else { 4 * HALF };
        Operand {
            base: panel.cast(),
            first: &[],
            pitch: word,
            step_bytes: word * side.n,
            distance: 0,
        }
    }
}

/// Fills a panel for one half.
///
/// # Safety
///
/// All loads are in bounds, their offsets are written, the panel has room; the machine has the features of
/// `L`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "it is inlined into its only user")]
unsafe fn stage<L: Level>(
    cx: &Ctx,
    side: &Side,
    panel: *mut f32,
    is_scalar: bool,
    h: usize,
    n_steps: usize,
    offsets: &Offsets,
    patterns: &Patterns,
) {
    // SAFETY: by contract.
    unsafe {
        if is_scalar {
            for load in &side.loads {
                let at =
                    offsets[load.group as usize].assume_init_ref()[h][0].wrapping_add(load.offset);
                let from = cx.shared.add(at as usize).cast::<f32>();
                for c in 0..load.width as usize {
                    *panel.add(load.to[c] as usize) = *from.add(c);
                }
            }
            for &(from, to) in &side.copies {
                *panel.add(to as usize) = *panel.add(from as usize);
            }
            return;
        }
        if let Some(regular) = &side.regular {
            let lanes = &offsets[regular.group as usize].assume_init_ref()[h];
            let pattern = patterns[regular.group as usize][h];
            let mut step = cx.shared;
            let mut to = panel;
            for _ in 0..n_steps {
                for i in (0..side.n).step_by(regular.width) {
                    let base =
                        step.wrapping_offset(*regular.first.get_unchecked(i) as i32 as isize);
                    let place = to.add(i * HALF);
                    match regular.width {
                        4 => stage4::<L>(
                            base,
                            lanes,
                            pattern,
                            [place, place.add(HALF), place.add(2 * HALF), place.add(3 * HALF)],
                        ),
                        2 => stage2::<L>(base, lanes, pattern, [place, place.add(HALF)]),
                        _ => stage1(base, lanes, pattern, place),
                    }
                }
                step = step.wrapping_offset(regular.step_bytes as i32 as isize);
                to = to.add(side.n * HALF);
            }
            return;
        }
        for load in &side.loads {
            let lanes = &offsets[load.group as usize].assume_init_ref()[h];
            let base = cx.shared.wrapping_offset(load.offset as i32 as isize);
            let [x, y, z, w] = load.to;
            let to = [
                panel.add(x as usize * HALF),
                panel.add(y as usize * HALF),
                panel.add(z as usize * HALF),
                panel.add(w as usize * HALF),
            ];
            let pattern = patterns[load.group as usize][h];
            match load.width {
                4 => stage4::<L>(base, lanes, pattern, to),
                2 => stage2::<L>(base, lanes, pattern, [to[0], to[1]]),
                _ => stage1(base, lanes, pattern, to[0]),
            }
        }
        for &(reg, to) in &side.regs {
            let from = &*cx.reg::<f32>(reg);
            let to = panel.add(to as usize * HALF).cast::<[f32; HALF]>();
            *to = *from.as_ptr().add(h * HALF).cast::<[f32; HALF]>();
        }
        for &(from, to) in &side.copies {
            let from = *panel.add(from as usize * HALF).cast::<[f32; HALF]>();
            *panel.add(to as usize * HALF).cast::<[f32; HALF]>() = from;
        }
    }
}

/// A word per lane.
///
/// # Safety
///
/// All loads are in bounds, the place is writable.
#[inline(always)]
unsafe fn stage1(base: *mut u8, lanes: &[u32; HALF], pattern: Pattern, to: *mut f32) {
    // SAFETY: by contract.
    unsafe {
        match pattern {
            Pattern::Words => {
                for q in 0..4 {
                    let from = base.wrapping_add(lanes[4 * q] as usize).cast::<[f32; 4]>();
                    *to.add(4 * q).cast::<[f32; 4]>() = from.read_unaligned();
                }
            }
            Pattern::Uniform => {
                *to.cast::<[f32; HALF]>() =
                    [*base.wrapping_add(lanes[0] as usize).cast::<f32>(); HALF];
            }
            Pattern::Eights | Pattern::Quads => {
                for q in 0..4 {
                    let value = *base.wrapping_add(lanes[4 * q] as usize).cast::<f32>();
                    *to.add(4 * q).cast::<[f32; 4]>() = [value; 4];
                }
            }
            _ => {
                for i in 0..HALF {
                    *to.add(i) = *base.wrapping_add(lanes[i] as usize).cast::<f32>();
                }
            }
        }
    }
}

/// Two words per lane.
///
/// # Safety
///
/// All loads are in bounds, the places are writable; the machine has the features of `L`.
#[inline(always)]
unsafe fn stage2<L: Level>(
    base: *mut u8,
    lanes: &[u32; HALF],
    pattern: Pattern,
    to: [*mut f32; 2],
) {
    // SAFETY: by contract.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if L::KIND == Simd::Avx512 {
            use std::arch::x86_64::*;
            if matches!(pattern, Pattern::Uniform | Pattern::Eights | Pattern::Quads) {
                let pair =
                    |i: usize| base.wrapping_add(lanes[i] as usize).cast_const().cast::<f64>();
                let (p, q, r, s) = (pair(0), pair(4), pair(8), pair(12));
                let v = _mm512_castpd128_pd512(_mm_loaddup_pd(p));
                let v = _mm512_insertf64x2::<1>(v, _mm_loaddup_pd(q));
                let v = _mm512_insertf64x2::<2>(v, _mm_loaddup_pd(r));
                let v = _mm512_castpd_ps(_mm512_insertf64x2::<3>(v, _mm_loaddup_pd(s)));
                _mm512_store_ps(to[0], _mm512_permute_ps::<0x00>(v));
                _mm512_store_ps(to[1], _mm512_permute_ps::<0x55>(v));
                return;
            }
            if pattern == Pattern::Pairs {
                let quad =
                    |i: usize| base.wrapping_add(lanes[i] as usize).cast_const().cast::<f32>();
                let (p, q, r, s) = (quad(0), quad(4), quad(8), quad(12));
                let low = _mm512_insertf32x8::<1>(
                    _mm512_castps256_ps512(_mm256_loadu_ps(p)),
                    _mm256_loadu_ps(q),
                );
                let high = _mm512_insertf32x8::<1>(
                    _mm512_castps256_ps512(_mm256_loadu_ps(r)),
                    _mm256_loadu_ps(s),
                );
                let even =
                    _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
                let odd =
                    _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
                _mm512_store_ps(to[0], _mm512_permutex2var_ps(low, even, high));
                _mm512_store_ps(to[1], _mm512_permutex2var_ps(low, odd, high));
                return;
            }
        }
        let _ = pattern;
        for i in 0..HALF {
            let [x, y] = base.wrapping_add(lanes[i] as usize).cast::<[f32; 2]>().read_unaligned();
            *to[0].add(i) = x;
            *to[1].add(i) = y;
        }
    }
}

/// Four words per lane.
///
/// # Safety
///
/// All loads are in bounds, the places are writable; the machine has the features of `L`.
#[inline(always)]
unsafe fn stage4<L: Level>(
    base: *mut u8,
    lanes: &[u32; HALF],
    pattern: Pattern,
    to: [*mut f32; 4],
) {
    let at = |i: usize| base.wrapping_add(lanes[i] as usize);
    // SAFETY: by contract.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if L::KIND == Simd::Avx512 {
            use std::arch::x86_64::*;
            match pattern {
                Pattern::Uniform | Pattern::Eights | Pattern::Quads => {
                    let v = _mm512_castps128_ps512(_mm_loadu_ps(at(0).cast()));
                    let v = _mm512_insertf32x4::<1>(v, _mm_loadu_ps(at(4).cast()));
                    let v = _mm512_insertf32x4::<2>(v, _mm_loadu_ps(at(8).cast()));
                    let v = _mm512_insertf32x4::<3>(v, _mm_loadu_ps(at(12).cast()));
                    _mm512_store_ps(to[0], _mm512_permute_ps::<0x00>(v));
                    _mm512_store_ps(to[1], _mm512_permute_ps::<0x55>(v));
                    _mm512_store_ps(to[2], _mm512_permute_ps::<0xaa>(v));
                    _mm512_store_ps(to[3], _mm512_permute_ps::<0xff>(v));
                    return;
                }
                Pattern::Lines => {
                    let v = vector::load_split4_512([
                        at(0).cast_const().cast(),
                        at(4).cast_const().cast(),
                        at(8).cast_const().cast(),
                        at(12).cast_const().cast(),
                    ]);
                    for c in 0..4 {
                        _mm512_store_si512(to[c].cast(), v[c]);
                    }
                    return;
                }
                Pattern::Words | Pattern::Pairs | Pattern::Any => {}
            }
        }
        if matches!(pattern, Pattern::Uniform | Pattern::Eights | Pattern::Quads) {
            for q in 0..4 {
                let v = at(4 * q).cast::<[f32; 4]>().read_unaligned();
                for c in 0..4 {
                    *to[c].add(4 * q).cast::<[f32; 4]>() = [v[c]; 4];
                }
            }
            return;
        }
        vector::gather4::<L>(base, lanes, [to[0].cast(), to[1].cast(), to[2].cast(), to[3].cast()]);
    }
}

const _: () = assert!(LANES == 2 * HALF, "a warp is two halves");
