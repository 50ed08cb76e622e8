//! Matrix products.

use super::parallel::{for_each, n_threads};
use super::walk::{broadcast_strides, runs};
use super::{Array, Element, by_element};
use crate::TensorType;
use crate::graph::Attrs;

/// A strided matrix.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    /// From its first element on.
    pub(super) data: &'a [T],
    /// Distance between rows.
    pub(super) row: usize,
    /// Distance between columns.
    pub(super) column: usize,
}

impl<T> Matrix<'_, T> {
    fn check(&self, n_rows: usize, n_columns: usize) {
        let last = (n_rows - 1) * self.row + (n_columns - 1) * self.column;
        assert!(last < self.data.len(), "matrix inside its slice");
    }
}

/// `c = a b` for `a` of `[m, k]`, `b` of `[k, n]` and `c` of `[m, n]` with rows `c_row` apart and
/// adjacent columns; `size` is `[m, k, n]`. Other elements of `c` stay.
pub(super) fn gemm<T: Element>(
    size: [usize; 3],
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    c: &mut [T],
    c_row: usize,
) {
    let [m, k, n] = size;
    if m == 0 || n == 0 {
        return;
    }
    assert!(c_row >= n && (m - 1) * c_row + n <= c.len(), "result inside its slice");
    if k == 0 {
        c.chunks_mut(c_row).take(m).for_each(|row| row[..n].fill(T::ZERO));
        return;
    }
    a.check(m, k);
    b.check(k, n);
    T::gemm(size, a, b, c, c_row);
}

pub(super) fn gemm_f64(
    [m, k, n]: [usize; 3],
    a: Matrix<'_, f64>,
    b: Matrix<'_, f64>,
    c: &mut [f64],
    c_row: usize,
) {
    // SAFETY: `gemm` has checked that the last element of each matrix lies in its slice, strides are
    // not negative, rows of `c` do not overlap, and `c` is borrowed exclusively.
    unsafe {
        matrixmultiply::dgemm(
            m,
            k,
            n,
            1.0,
            a.data.as_ptr(),
            a.row as isize,
            a.column as isize,
            b.data.as_ptr(),
            b.row as isize,
            b.column as isize,
            0.0,
            c.as_mut_ptr(),
            c_row as isize,
            1,
        );
    }
}

pub(super) fn gemm_i64(
    [m, k, n]: [usize; 3],
    a: Matrix<'_, i64>,
    b: Matrix<'_, i64>,
    c: &mut [i64],
    c_row: usize,
) {
    for i in 0..m {
        let row = &mut c[i * c_row..][..n];
        row.fill(0);
        for l in 0..k {
            let x = a.data[i * a.row + l * a.column];
            for (j, sum) in row.iter_mut().enumerate() {
                *sum = x.multiply_add(b.data[l * b.row + j * b.column], *sum);
            }
        }
    }
}

/// Rows per task, so that each thread has work and few tiles of the product are cut.
pub(super) fn rows_per_task(n_rows: usize) -> usize {
    n_rows.div_ceil(n_threads()).next_multiple_of(8).max(1)
}

pub(in crate::graph) fn matmul(args: &[&Array], _: &Attrs, ty: &TensorType) -> Array {
    by_element!(args[0], typed(args[0], args[1], ty))
}

fn typed<T: Element>(lhs: &Array, rhs: &Array, ty: &TensorType) -> Array {
    let extents = ty.extents();
    let rank = extents.len();
    let (m, n, k) = (extents[rank - 2], extents[rank - 1], lhs.extents[lhs.extents.len() - 1]);
    let mut elements = vec![T::ZERO; ty.n_elems()];
    if !elements.is_empty() {
        let batch = &extents[..rank - 2];
        let lhs_strides = broadcast_strides(&lhs.extents[..lhs.extents.len() - 2], batch);
        let rhs_strides = broadcast_strides(&rhs.extents[..rhs.extents.len() - 2], batch);
        let mut offsets = Vec::with_capacity(batch.iter().product());
        runs(batch, [&lhs_strides, &rhs_strides], [0, 0], |len, at, step| {
            offsets.extend((0..len as isize).map(|i| {
                let [a, b] = std::array::from_fn(|side| (at[side] + i * step[side]) as usize);
                (a * m * k, b * k * n)
            }));
        });
        let n_rows = if offsets.len() >= 2 * n_threads() { m } else { rows_per_task(m) };
        let mut tasks = Vec::new();
        for (result, &(a, b)) in elements.chunks_mut(m * n).zip(&offsets) {
            let rows = result.chunks_mut(n_rows * n).enumerate();
            tasks.extend(rows.map(|(i, rows)| (a + i * n_rows * k, b, rows)));
        }
        let work = offsets.len() * m * n * k;
        for_each(tasks.into_iter(), work, |(a, b, result)| {
            let a = Matrix { data: &T::of(lhs)[a..], row: k, column: 1 };
            let b = Matrix { data: &T::of(rhs)[b..], row: n, column: 1 };
            gemm([result.len() / n, k, n], a, b, result, n);
        });
    }
    Array::with(ty, T::data(elements, ty.dtype))
}
