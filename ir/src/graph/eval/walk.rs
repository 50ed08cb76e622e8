//! Walks over strided index spaces, without an index vector per element.

use crate::shape::row_major_strides;

/// Visits the row-major index space of `extents` in runs along its innermost axis, after merging
/// axes that all operands traverse evenly. `visit(len, at, step)` covers `len` elements: operand `k`
/// is read at `at[k]`, `at[k] + step[k]`, and so on.
pub(super) fn runs<const K: usize>(
    extents: &[usize],
    strides: [&[isize]; K],
    start: [isize; K],
    mut visit: impl FnMut(usize, [isize; K], [isize; K]),
) {
    if extents.contains(&0) {
        return;
    }
    let mut axes: Vec<(usize, [isize; K])> = Vec::with_capacity(extents.len());
    for (axis, &extent) in extents.iter().enumerate() {
        let stride: [isize; K] = std::array::from_fn(|k| strides[k][axis]);
        let merged = match axes.last_mut() {
            _ if extent == 1 => continue,
            Some((outer, outer_stride))
                if (0..K).all(|k| outer_stride[k] == stride[k] * extent as isize) =>
            {
                *outer *= extent;
                *outer_stride = stride;
                true
            }
            _ => false,
        };
        if !merged {
            axes.push((extent, stride));
        }
    }
    let (len, step) = axes.pop().unwrap_or((1, [0; K]));
    let mut index = vec![0; axes.len()];
    let mut at = start;
    'visits: loop {
        visit(len, at, step);
        for axis in (0..axes.len()).rev() {
            let (extent, stride) = axes[axis];
            index[axis] += 1;
            if index[axis] < extent {
                (0..K).for_each(|k| at[k] += stride[k]);
                continue 'visits;
            }
            index[axis] = 0;
            (0..K).for_each(|k| at[k] -= stride[k] * (extent as isize - 1));
        }
        return;
    }
}

/// Strides that read a row-major array of extents `from` as one of extents `to`: 0 where it is
/// broadcast.
pub(super) fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<isize> {
    let strides = row_major_strides(from);
    let n_new = to.len() - from.len();
    (0..to.len())
        .map(|axis| match axis.checked_sub(n_new) {
            Some(axis) if from[axis] != 1 => strides[axis] as isize,
            _ => 0,
        })
        .collect()
}

/// The elements at a strided index space, in row-major order.
pub(super) fn copy<T: Copy>(
    data: &[T],
    extents: &[usize],
    strides: &[isize],
    start: isize,
) -> Vec<T> {
    let mut result = Vec::with_capacity(extents.iter().product());
    runs(extents, [strides], [start], |len, [at], [step]| match step {
        1 => result.extend_from_slice(&data[at as usize..at as usize + len]),
        0 => result.extend(std::iter::repeat_n(data[at as usize], len)),
        _ => result.extend((0..len as isize).map(|i| data[(at + i * step) as usize])),
    });
    result
}
