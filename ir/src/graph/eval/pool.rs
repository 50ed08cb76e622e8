//! Pools: a fold over a window of each plane. Padding is the identity of the fold.

use super::conv::Space;
use super::parallel::for_each;
use super::{Array, Data, int_range, max_nan, widen, wrap};
use crate::TensorType;
use crate::graph::Attrs;

pub(in crate::graph) fn max_pool(args: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    let (least, _) = range_or_zero(ty);
    pool(args[0], attrs, ty, f64::NEG_INFINITY, max_nan, least, i128::max)
}

pub(in crate::graph) fn sum_pool(args: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    pool(args[0], attrs, ty, 0.0, |x, y| x + y, 0, i128::wrapping_add)
}

fn range_or_zero(ty: &TensorType) -> (i128, i128) {
    if ty.dtype.is_float() { (0, 0) } else { int_range(ty.dtype) }
}

fn pool(
    arg: &Array,
    attrs: &Attrs,
    ty: &TensorType,
    float_identity: f64,
    float: impl Fn(f64, f64) -> f64 + Sync,
    int_identity: i128,
    int: impl Fn(i128, i128) -> i128 + Sync,
) -> Array {
    let space = Space::new(
        &arg.extents[2..],
        &attrs.usizes(0),
        &ty.extents()[2..],
        &attrs.usizes(1),
        &attrs.usizes(2),
        &attrs.usizes(4),
    );
    let data = match &arg.data {
        Data::Float(data) => {
            Data::Float(planes(data, &space, vec![float_identity; ty.n_elems()], float))
        }
        Data::Int(data) => {
            let data: Vec<i128> = data.iter().map(|&x| widen(ty.dtype, x)).collect();
            let folded = planes(&data, &space, vec![int_identity; ty.n_elems()], int);
            Data::Int(folded.into_iter().map(|x| wrap(ty.dtype, x)).collect())
        }
    };
    Array::with(ty, data)
}

fn planes<T: Copy + Send + Sync>(
    data: &[T],
    space: &Space,
    mut result: Vec<T>,
    f: impl Fn(T, T) -> T + Sync,
) -> Vec<T> {
    let (n_data, n_result) = (space.n_data(), space.n_result());
    let work = result.len() * space.n_kernel();
    for_each(result.chunks_mut(n_result.max(1)).enumerate(), work, |(i, plane)| {
        let data = &data[i * n_data..][..n_data];
        let [_, height, width] = space.result;
        for (flat, acc) in plane.iter_mut().enumerate() {
            let at = [flat / (height * width), flat / width % height, flat % width];
            for flat in 0..space.n_kernel() {
                let tap = space.taps(flat);
                let [z, y, x] = std::array::from_fn(|axis| space.source(axis, at[axis], tap[axis]));
                if let (Some(z), Some(y), Some(x)) = (z, y, x) {
                    *acc = f(*acc, data[(z * space.data[1] + y) * space.data[2] + x]);
                }
            }
        }
    });
    result
}
