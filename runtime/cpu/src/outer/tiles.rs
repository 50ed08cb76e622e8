//! The inner loops of fused blocks: tiles of accumulators that stay in machine registers over all steps.

use super::{Chunk, HALF, HALVES, Operand, VECTORS};
use crate::machine::Vector;
use crate::program::Ctx;
use crate::simd::{Level, Simd};

/// Where the accumulators of a tile are.
pub(super) struct Accumulators<'a> {
    pub(super) chunk: &'a Chunk,
    pub(super) lane: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
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
        unsafe {
            cx.reg::<f32>(*self.chunk.from.get_unchecked(self.index(i, j)))
                .cast::<f32>()
                .add(self.lane)
        }
    }

    /// # Safety
    ///
    /// (i, j) is an accumulator of the chunk.
    #[inline(always)]
    unsafe fn to(&self, cx: &Ctx, i: usize, j: usize) -> *mut f32 {
        // SAFETY: by contract.
        unsafe {
            cx.reg::<f32>(*self.chunk.to.get_unchecked(self.index(i, j)))
                .cast::<f32>()
                .add(self.lane)
        }
    }
}

/// All tiles of a half. The columns are vectors.
///
/// # Safety
///
/// The operands hold so many rows, columns and steps; the machine has the features of `L`.
#[inline(always)]
pub(super) unsafe fn multiply<L: Level, const ROWS: u8>(
    cx: &Ctx,
    acc: &Accumulators<'_>,
    a: Operand<'_>,
    n_rows: usize,
    b: Operand<'_>,
    n_cols: usize,
    n_steps: usize,
) {
    // SAFETY: by contract.
    unsafe {
        match L::KIND {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => {
                tiles::<std::arch::x86_64::__m512, ROWS, 4>(cx, acc, a, n_rows, b, n_cols, n_steps)
            }
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => {
                tiles::<std::arch::x86_64::__m256, ROWS, 2>(cx, acc, a, n_rows, b, n_cols, n_steps)
            }
            _ => tiles::<[f32; 4], ROWS, 2>(cx, acc, a, n_rows, b, n_cols, n_steps),
        }
    }
}

/// # Safety
///
/// As [`multiply`].
#[inline(always)]
unsafe fn tiles<V: Vector, const ROWS: u8, const COLS: usize>(
    cx: &Ctx,
    acc: &Accumulators<'_>,
    a: Operand<'_>,
    n_rows: usize,
    b: Operand<'_>,
    n_cols: usize,
    n_steps: usize,
) {
    let mut j = 0;
    while j < n_cols {
        let c = if n_cols - j >= COLS {
            COLS
        } else if n_cols - j >= 2 {
            2
        } else {
            1
        };
        let mut i = 0;
        while i < n_rows {
            let r = if n_rows - i >= 4 {
                4
            } else if n_rows - i >= 2 {
                2
            } else {
                1
            };
            let t = Tile { a, b, n_steps, i, j };
            // SAFETY: by contract.
            unsafe {
                match (r, c) {
                    (4, 4) => tile::<V, ROWS, 4, 4>(cx, acc, t),
                    (2, 4) => tile::<V, ROWS, 2, 4>(cx, acc, t),
                    (_, 4) => tile::<V, ROWS, 1, 4>(cx, acc, t),
                    (4, 2) => tile::<V, ROWS, 4, 2>(cx, acc, t),
                    (2, 2) => tile::<V, ROWS, 2, 2>(cx, acc, t),
                    (_, 2) => tile::<V, ROWS, 1, 2>(cx, acc, t),
                    (4, _) => tile::<V, ROWS, 4, 1>(cx, acc, t),
                    (2, _) => tile::<V, ROWS, 2, 1>(cx, acc, t),
                    _ => tile::<V, ROWS, 1, 1>(cx, acc, t),
                }
            }
            i += r;
        }
        j += c;
    }
}

#[derive(Clone, Copy)]
struct Tile<'a> {
    a: Operand<'a>,
    b: Operand<'a>,
    n_steps: usize,
    i: usize,
    j: usize,
}

/// # Safety
///
/// As [`multiply`]; rows `i..i + R` and columns `j..j + C` exist.
#[inline(always)]
unsafe fn tile<V: Vector, const ROWS: u8, const R: usize, const C: usize>(
    cx: &Ctx,
    acc: &Accumulators<'_>,
    t: Tile<'_>,
) {
    // SAFETY: by contract.
    unsafe {
        // Vectors are never used in place.
        let mut rows = [t.a.base; R];
        for i in 0..R {
            rows[i] = match t.a.first.get(t.i + i) {
                Some(&first) if ROWS != VECTORS => t.a.base.wrapping_offset(first as i32 as isize),
                _ => t.a.base.wrapping_add((t.i + i) * t.a.pitch),
            };
        }
        for part in (0..HALF).step_by(V::N) {
            let mut sums = [[V::zero(); C]; R];
            for i in 0..R {
                for j in 0..C {
                    sums[i][j] = V::load(acc.from(cx, t.i + i, t.j + j).add(part));
                }
            }
            let mut b = t.b.base.cast::<f32>().add(t.j * HALF + part);
            let mut at = match ROWS {
                VECTORS => 4 * part,
                HALVES if part >= 8 => t.a.distance,
                _ => 0,
            };
            for _ in 0..t.n_steps {
                let mut columns = [V::zero(); C];
                for j in 0..C {
                    columns[j] = V::load(b.add(j * HALF));
                }
                for i in 0..R {
                    let row = rows[i].wrapping_add(at).cast::<f32>();
                    let row = match ROWS {
                        VECTORS => V::load(row),
                        HALVES if V::N == HALF => {
                            V::splat2(*row, *row.wrapping_byte_add(t.a.distance))
                        }
                        _ => V::splat(*row),
                    };
                    for j in 0..C {
                        sums[i][j] = V::fma(row, columns[j], sums[i][j]);
                    }
                }
                at = at.wrapping_add(t.a.step_bytes);
                b = b.wrapping_byte_add(t.b.step_bytes);
            }
            for i in 0..R {
                for j in 0..C {
                    V::store(sums[i][j], acc.to(cx, t.i + i, t.j + j).add(part));
                }
            }
        }
    }
}
