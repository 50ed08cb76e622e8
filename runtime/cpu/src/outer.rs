//! Executes fused blocks of multiply-adds, half a warp (16 lanes) at a time.
//!
//! The factors of all steps are first put into two dense panels, `a[k][i]` and `b[k][j]`, each a vector of
//! 16 lanes or, if all lanes agree, a scalar; how depends on the pattern of the lanes' addresses, which is
//! found once per block. Then tiles of accumulators go through all steps in machine registers.

use std::mem::MaybeUninit;

use crate::program::{Ctx, Flow, LANES, Uop};
use crate::simd::{Level, LaneOp, Simd};
use crate::vector;

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
    /// Floats of both panels of the largest chunk.
    pub(crate) fn n_panel_floats(&self) -> usize {
        self.chunks.iter().map(|c| ((c.a.n + c.b.n) * c.n_steps + 2) * HALF).max().unwrap_or(0)
    }
}

/// Which lanes of a half have which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// All the same.
    Uniform,
    /// The same within each aligned group of four lanes.
    Quads,
    /// 16 bytes apart within each aligned group of four lanes.
    Lines,
    /// 4 bytes apart.
    Words,
    Any,
}

#[inline(always)]
fn pattern(offsets: &[u32; HALF]) -> Pattern {
    let (mut uniform, mut quads, mut lines, mut words) = (0, 0, 0, 0);
    for i in 0..HALF {
        let (x, quad) = (offsets[i], offsets[i & !3]);
        uniform |= x ^ offsets[0];
        quads |= x ^ quad;
        lines |= x.wrapping_sub(quad) ^ (16 * (i as u32 & 3));
        words |= x.wrapping_sub(offsets[0]) ^ (4 * i as u32);
    }
    match (uniform, quads, lines, words) {
        (0, ..) => Pattern::Uniform,
        (_, 0, ..) => Pattern::Quads,
        (_, _, 0, _) => Pattern::Lines,
        (_, _, _, 0) => Pattern::Words,
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
/// All loads of the chunk are in bounds, and the offsets of their groups are written; the machine has the features of `L`.
#[inline(always)]
unsafe fn run_chunk<L: Level>(cx: &Ctx, chunk: &Chunk, offsets: &Offsets, patterns: &Patterns) {
    let (n_rows, n_cols) = (chunk.a.n, chunk.b.n);
    // SAFETY: by contract; each panel has a place more than it needs.
    unsafe {
        let panel_a = cx.panels;
        let panel_b = panel_a.add((n_rows * chunk.n_steps + 1) * HALF);
        let is_scalar = |side: &Side, h: usize| {
            side.regs.is_empty() && side.groups.iter().all(|&g| patterns[g as usize][h] == Pattern::Uniform)
        };
        let is_common = |side: &Side| {
            side.regs.is_empty()
                && side.groups.iter().all(|&g| {
                    let [low, high] = offsets[g as usize].assume_init_ref();
                    low == high
                })
        };
        let (common_a, common_b) = (is_common(&chunk.a), is_common(&chunk.b));
        for h in 0..2 {
            // At most one side is scalar; if the columns are, rows and columns change places.
            let scalar_a = is_scalar(&chunk.a, h);
            let scalar_b = !scalar_a && is_scalar(&chunk.b, h);
            let was_scalar_a = h == 1 && is_scalar(&chunk.a, 0);
            let was_scalar_b = h == 1 && !was_scalar_a && is_scalar(&chunk.b, 0);
            if h == 0 || !common_a || was_scalar_a != scalar_a {
                stage::<L>(cx, &chunk.a, panel_a, scalar_a, h, offsets, patterns);
            }
            if h == 0 || !common_b || was_scalar_b != scalar_b {
                stage::<L>(cx, &chunk.b, panel_b, scalar_b, h, offsets, patterns);
            }
            let lane = h * HALF;
            if scalar_b {
                let acc = Accumulators { chunk, lane, row_stride: 1, col_stride: n_cols };
                multiply::<L, true>(cx, &acc, panel_b, n_cols, panel_a, n_rows, chunk.n_steps);
            } else {
                let acc = Accumulators { chunk, lane, row_stride: n_cols, col_stride: 1 };
                if scalar_a {
                    multiply::<L, true>(cx, &acc, panel_a, n_rows, panel_b, n_cols, chunk.n_steps);
                } else {
                    multiply::<L, false>(cx, &acc, panel_a, n_rows, panel_b, n_cols, chunk.n_steps);
                }
            }
        }
    }
}

/// Fills a panel for one half.
///
/// # Safety
///
/// All loads are in bounds, their offsets are written, the panel has room; the machine has the features of `L`.
#[inline(always)]
unsafe fn stage<L: Level>(
    cx: &Ctx,
    side: &Side,
    panel: *mut f32,
    is_scalar: bool,
    h: usize,
    offsets: &Offsets,
    patterns: &Patterns,
) {
    // SAFETY: by contract.
    unsafe {
        if is_scalar {
            for load in &side.loads {
                let at = offsets[load.group as usize].assume_init_ref()[h][0].wrapping_add(load.offset);
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
        for load in &side.loads {
            let lanes = &offsets[load.group as usize].assume_init_ref()[h];
            let base = cx.shared.wrapping_add(load.offset as i32 as isize as usize);
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
                2 => {
                    for i in 0..HALF {
                        let from = base.wrapping_add(lanes[i] as usize).cast::<f32>();
                        *to[0].add(i) = *from;
                        *to[1].add(i) = *from.add(1);
                    }
                }
                _ => match pattern {
                    Pattern::Words => {
                        let from = base.wrapping_add(lanes[0] as usize).cast::<[f32; HALF]>();
                        *to[0].cast::<[f32; HALF]>() = from.read_unaligned();
                    }
                    Pattern::Uniform => {
                        *to[0].cast::<[f32; HALF]>() = [*base.wrapping_add(lanes[0] as usize).cast::<f32>(); HALF];
                    }
                    _ => {
                        for i in 0..HALF {
                            *to[0].add(i) = *base.wrapping_add(lanes[i] as usize).cast::<f32>();
                        }
                    }
                },
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

/// Four words per lane.
///
/// # Safety
///
/// All loads are in bounds, the places are writable; the machine has the features of `L`.
#[inline(always)]
unsafe fn stage4<L: Level>(base: *mut u8, lanes: &[u32; HALF], pattern: Pattern, to: [*mut f32; 4]) {
    let at = |i: usize| base.wrapping_add(lanes[i] as usize);
    // SAFETY: by contract.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if L::KIND == Simd::Avx512 {
            use std::arch::x86_64::*;
            match pattern {
                Pattern::Uniform | Pattern::Quads => {
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
                Pattern::Words | Pattern::Any => {}
            }
        }
        if matches!(pattern, Pattern::Uniform | Pattern::Quads) {
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

/// Where the accumulators of a tile are.
struct Accumulators<'a> {
    chunk: &'a Chunk,
    lane: usize,
    row_stride: usize,
    col_stride: usize,
}

impl Accumulators<'_> {
    #[inline(always)]
    fn index(&self, i: usize, j: usize) -> usize {
        i * self.row_stride + j * self.col_stride
    }

    /// # Safety
    ///
    /// (i, j) is an accumulator of the chunk.
    #[inline(always)]
    unsafe fn from(&self, cx: &Ctx, i: usize, j: usize) -> *const f32 {
        // SAFETY: by contract.
        unsafe { cx.reg::<f32>(*self.chunk.from.get_unchecked(self.index(i, j))).cast::<f32>().add(self.lane) }
    }

    /// # Safety
    ///
    /// (i, j) is an accumulator of the chunk.
    #[inline(always)]
    unsafe fn to(&self, cx: &Ctx, i: usize, j: usize) -> *mut f32 {
        // SAFETY: by contract.
        unsafe { cx.reg::<f32>(*self.chunk.to.get_unchecked(self.index(i, j))).cast::<f32>().add(self.lane) }
    }
}

/// All tiles of a half. `a` is scalar or a vector per row and step.
///
/// # Safety
///
/// The panels hold so many rows, columns and steps; the machine has the features of `L`.
#[inline(always)]
unsafe fn multiply<L: Level, const SCALAR: bool>(
    cx: &Ctx,
    acc: &Accumulators<'_>,
    a: *const f32,
    n_rows: usize,
    b: *const f32,
    n_cols: usize,
    n_steps: usize,
) {
    // SAFETY: by contract.
    unsafe {
        match L::KIND {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => tiles::<std::arch::x86_64::__m512, SCALAR, 4>(cx, acc, a, n_rows, b, n_cols, n_steps),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => tiles::<std::arch::x86_64::__m256, SCALAR, 2>(cx, acc, a, n_rows, b, n_cols, n_steps),
            _ => tiles::<[f32; 4], SCALAR, 2>(cx, acc, a, n_rows, b, n_cols, n_steps),
        }
    }
}

/// # Safety
///
/// As [`multiply`].
#[inline(always)]
unsafe fn tiles<V: Vector, const SCALAR: bool, const COLS: usize>(
    cx: &Ctx,
    acc: &Accumulators<'_>,
    a: *const f32,
    n_rows: usize,
    b: *const f32,
    n_cols: usize,
    n_steps: usize,
) {
    let mut j = 0;
    while j < n_cols {
        let c = if n_cols - j >= COLS { COLS } else if n_cols - j >= 2 { 2 } else { 1 };
        let mut i = 0;
        while i < n_rows {
            let r = if n_rows - i >= 4 { 4 } else if n_rows - i >= 2 { 2 } else { 1 };
            let t = Tile { a, n_rows, b, n_cols, n_steps, i, j };
            // SAFETY: by contract.
            unsafe {
                match (r, c) {
                    (4, 4) => tile::<V, SCALAR, 4, 4>(cx, acc, t),
                    (2, 4) => tile::<V, SCALAR, 2, 4>(cx, acc, t),
                    (_, 4) => tile::<V, SCALAR, 1, 4>(cx, acc, t),
                    (4, 2) => tile::<V, SCALAR, 4, 2>(cx, acc, t),
                    (2, 2) => tile::<V, SCALAR, 2, 2>(cx, acc, t),
                    (_, 2) => tile::<V, SCALAR, 1, 2>(cx, acc, t),
                    (4, _) => tile::<V, SCALAR, 4, 1>(cx, acc, t),
                    (2, _) => tile::<V, SCALAR, 2, 1>(cx, acc, t),
                    _ => tile::<V, SCALAR, 1, 1>(cx, acc, t),
                }
            }
            i += r;
        }
        j += c;
    }
}

#[derive(Clone, Copy)]
struct Tile {
    a: *const f32,
    n_rows: usize,
    b: *const f32,
    n_cols: usize,
    n_steps: usize,
    i: usize,
    j: usize,
}

/// # Safety
///
/// As [`multiply`]; rows `i..i + R` and columns `j..j + C` exist.
#[inline(always)]
unsafe fn tile<V: Vector, const SCALAR: bool, const R: usize, const C: usize>(cx: &Ctx, acc: &Accumulators<'_>, t: Tile) {
    // SAFETY: by contract.
    unsafe {
        let width = if SCALAR { 1 } else { HALF };
        for part in (0..HALF).step_by(V::N) {
            let mut sums = [[V::zero(); C]; R];
            for i in 0..R {
                for j in 0..C {
                    sums[i][j] = V::load(acc.from(cx, t.i + i, t.j + j).add(part));
                }
            }
            let mut a = t.a.add(t.i * width + if SCALAR { 0 } else { part });
            let mut b = t.b.add(t.j * HALF + part);
            for _ in 0..t.n_steps {
                let mut columns = [V::zero(); C];
                for j in 0..C {
                    columns[j] = V::load(b.add(j * HALF));
                }
                for i in 0..R {
                    let row = if SCALAR { V::splat(*a.add(i)) } else { V::load(a.add(i * HALF)) };
                    for j in 0..C {
                        sums[i][j] = V::fma(row, columns[j], sums[i][j]);
                    }
                }
                a = a.add(t.n_rows * width);
                b = b.add(t.n_cols * HALF);
            }
            for i in 0..R {
                for j in 0..C {
                    V::store(sums[i][j], acc.to(cx, t.i + i, t.j + j).add(part));
                }
            }
        }
    }
}

/// A machine vector of floats.
trait Vector: Copy {
    const N: usize;
    /// # Safety
    /// The features are there.
    unsafe fn zero() -> Self;
    /// # Safety
    /// `N` readable floats, aligned; the features are there.
    unsafe fn load(at: *const f32) -> Self;
    /// # Safety
    /// The features are there.
    unsafe fn splat(value: f32) -> Self;
    /// # Safety
    /// The features are there.
    unsafe fn fma(a: Self, b: Self, c: Self) -> Self;
    /// # Safety
    /// `N` writable floats, aligned; the features are there.
    unsafe fn store(self, at: *mut f32);
}

impl Vector for [f32; 4] {
    const N: usize = 4;
    #[inline(always)]
    unsafe fn zero() -> Self {
        [0.0; 4]
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: by contract.
        unsafe { *at.cast() }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        [value; 4]
    }
    #[inline(always)]
    unsafe fn fma(a: Self, b: Self, c: Self) -> Self {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: by contract.
        unsafe { *at.cast() = self }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    impl Vector for __m512 {
        const N: usize = 16;
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: by contract.
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn load(at: *const f32) -> Self {
            // SAFETY: by contract.
            unsafe { _mm512_load_ps(at) }
        }
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: by contract.
            unsafe { _mm512_set1_ps(value) }
        }
        #[inline(always)]
        unsafe fn fma(a: Self, b: Self, c: Self) -> Self {
            // SAFETY: by contract.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn store(self, at: *mut f32) {
            // SAFETY: by contract.
            unsafe { _mm512_store_ps(at, self) }
        }
    }

    impl Vector for __m256 {
        const N: usize = 8;
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: by contract.
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn load(at: *const f32) -> Self {
            // SAFETY: by contract.
            unsafe { _mm256_load_ps(at) }
        }
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: by contract.
            unsafe { _mm256_set1_ps(value) }
        }
        #[inline(always)]
        unsafe fn fma(a: Self, b: Self, c: Self) -> Self {
            // SAFETY: by contract.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn store(self, at: *mut f32) {
            // SAFETY: by contract.
            unsafe { _mm256_store_ps(at, self) }
        }
    }
}

const _: () = assert!(LANES == 2 * HALF, "a warp is two halves");
