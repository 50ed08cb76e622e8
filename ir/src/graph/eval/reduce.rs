//! Reductions over whole axes.

use std::cmp::Ordering;

use super::walk::runs;
use super::{Array, Data, int_range, widen, wrap};
use crate::TensorType;
use crate::graph::Attrs;
use crate::shape::row_major_strides;

/// Folds in row-major order from `float_identity` or `int_identity` (clamped to the type), which is
/// also the result over an empty axis.
pub(in crate::graph) fn reduce(
    args: &[&Array],
    attrs: &Attrs,
    ty: &TensorType,
    float_identity: f64,
    float: impl Fn(f64, f64) -> f64,
    int_identity: i128,
    int: impl Fn(i128, i128) -> i128,
) -> Array {
    let mut strides: Vec<isize> =
        row_major_strides(&ty.extents()).into_iter().map(|stride| stride as isize).collect();
    for axis in attrs.usizes(0) {
        strides[axis] = 0;
    }
    let (arg, n_elems) = (args[0], ty.n_elems());
    let data = match &arg.data {
        Data::Float(data) => {
            let acc = vec![float_identity; n_elems];
            Data::Float(fold(data, &arg.extents, &strides, acc, float))
        }
        Data::Int(data) => {
            let (least, greatest) = int_range(ty.dtype);
            let data: Vec<i128> = data.iter().map(|&x| widen(ty.dtype, x)).collect();
            let acc = vec![int_identity.clamp(least, greatest); n_elems];
            let folded = fold(&data, &arg.extents, &strides, acc, int);
            Data::Int(folded.into_iter().map(|x| wrap(ty.dtype, x)).collect())
        }
    };
    Array::with(ty, data)
}

fn fold<T: Copy>(
    data: &[T],
    extents: &[usize],
    strides: &[isize],
    mut acc: Vec<T>,
    f: impl Fn(T, T) -> T,
) -> Vec<T> {
    let mut data = data.iter();
    runs(extents, [strides], [0], |len, [at], [step]| {
        let at = at as usize;
        let run = data.by_ref().take(len);
        match step {
            0 => acc[at] = run.fold(acc[at], |acc, &x| f(acc, x)),
            1 => acc[at..at + len].iter_mut().zip(run).for_each(|(acc, &x)| *acc = f(*acc, x)),
            _ => {
                for (i, &x) in run.enumerate() {
                    let acc = &mut acc[at + i * step as usize];
                    *acc = f(*acc, x);
                }
            }
        }
    });
    acc
}

/// The index along `axis` of the first element (`last`: the last) that no other one exceeds in the
/// sense of `order`. Comparisons with NaN fail: a NaN is chosen only if it is first.
pub(in crate::graph) fn arg(
    args: &[&Array],
    attrs: &Attrs,
    ty: &TensorType,
    order: Ordering,
) -> Array {
    fn indices<T: PartialOrd>(
        data: &[T],
        extents: &[usize],
        axis: usize,
        better: impl Fn(Option<Ordering>) -> bool,
    ) -> Vec<i64> {
        let n_inner: usize = extents[axis + 1..].iter().product();
        let n_outer: usize = extents[..axis].iter().product();
        let mut result = Vec::with_capacity(n_outer * n_inner);
        for outer in 0..n_outer {
            for inner in 0..n_inner {
                let at = |i: usize| &data[(outer * extents[axis] + i) * n_inner + inner];
                let choose = |best, i| if better(at(i).partial_cmp(at(best))) { i } else { best };
                result.push((1..extents[axis]).fold(0, choose) as i64);
            }
        }
        result
    }
    let (arg, axis, last) = (args[0], attrs.usize(0), attrs.int(1) == 1);
    let better =
        |found: Option<Ordering>| found == Some(order) || (last && found == Some(Ordering::Equal));
    let data = match &arg.data {
        Data::Float(data) => indices(data, &arg.extents, axis, better),
        Data::Int(data) => {
            let data: Vec<i128> = data.iter().map(|&x| widen(arg.dtype, x)).collect();
            indices(&data, &arg.extents, axis, better)
        }
    };
    Array::with(ty, Data::Int(data))
}
