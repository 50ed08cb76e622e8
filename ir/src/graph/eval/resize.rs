//! `resize`, as ONNX Resize-19 defines it (without `roi`, antialiasing and `exclude_outside`).
//!
//! All modes are separable: an axis at a time, each output position is a weighted sum of at most
//! four positions of the operand, and positions outside read the nearest inside.

use super::movement::take;
use super::{Array, Element, by_element};
use crate::TensorType;
use crate::graph::Attrs;

pub(in crate::graph) fn resize(args: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    by_element!(args[0], typed(args[0], attrs, ty))
}

/// For each position of the result along an axis, of extent `to`, the positions of the operand, of
/// extent `n`, that are summed, with their weights.
pub fn resize_taps(attrs: &Attrs, axis: usize, n: usize, to: usize) -> Vec<Vec<(usize, f64)>> {
    let scale = f64::from(f32::from_bits(attrs.ints(5)[axis] as u32));
    let source = |at: usize| source(attrs.word(2), at as f64, scale, n as f64, to as f64);
    (0..to)
        .map(|at| match attrs.word(1) {
            "nearest" => {
                vec![(nearest(attrs.word(3), source(at)).clamp(0.0, n as f64 - 1.0) as usize, 1.0)]
            }
            "linear" => linear_taps(source(at), n),
            _ => cubic_taps(source(at), n, attrs.float(4)),
        })
        .collect()
}

fn typed<T: Element>(arg: &Array, attrs: &Attrs, ty: &TensorType) -> Array {
    let mut extents = arg.extents.clone();
    let mut elements = T::of(arg).to_vec();
    for (axis, &to) in ty.extents().iter().enumerate() {
        let taps = resize_taps(attrs, axis, extents[axis], to);
        elements = if attrs.word(1) == "nearest" {
            let indices: Vec<usize> = taps.iter().map(|taps| taps[0].0).collect();
            take(&elements, &extents, axis, &indices)
        } else {
            T::interpolate(&elements, &extents, axis, &taps)
        };
        extents[axis] = to;
    }
    Array::with(ty, T::data(elements, ty.dtype))
}

/// The position in the operand, of extent `n`, of position `at` in the result, of extent `to`.
fn source(transform: &str, at: f64, scale: f64, n: f64, to: f64) -> f64 {
    match transform {
        "align_corners" if to <= 1.0 => 0.0,
        "align_corners" => at * (n - 1.0) / (to - 1.0),
        "asymmetric" => at / scale,
        "pytorch_half_pixel" if to <= 1.0 => 0.0,
        _ => (at + 0.5) / scale - 0.5,
    }
}

fn nearest(rounding: &str, x: f64) -> f64 {
    match rounding {
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "round_prefer_ceil" => (x + 0.5).floor(),
        _ => (x - 0.5).ceil(),
    }
}

fn inside(at: f64, n: usize) -> usize {
    at.clamp(0.0, n as f64 - 1.0) as usize
}

fn linear_taps(x: f64, n: usize) -> Vec<(usize, f64)> {
    let (low, ratio) = (x.floor(), x - x.floor());
    non_zero([(inside(low, n), 1.0 - ratio), (inside(low + 1.0, n), ratio)])
}

/// Keys' kernel with the coefficient `a`.
fn cubic_taps(x: f64, n: usize, a: f64) -> Vec<(usize, f64)> {
    let (low, ratio) = (x.floor(), x - x.floor());
    let near = |d: f64| ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
    let far = |d: f64| ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
    non_zero([
        (inside(low - 1.0, n), far(1.0 + ratio)),
        (inside(low, n), near(ratio)),
        (inside(low + 1.0, n), near(1.0 - ratio)),
        (inside(low + 2.0, n), far(2.0 - ratio)),
    ])
}

/// Without the taps of weight 0, which would turn an infinity next to a sample into a NaN.
fn non_zero<const N: usize>(taps: [(usize, f64); N]) -> Vec<(usize, f64)> {
    taps.into_iter().filter(|&(_, weight)| weight != 0.0).collect()
}

/// Weighted sums along one axis.
pub(super) fn interpolate(
    data: &[f64],
    extents: &[usize],
    axis: usize,
    taps: &[Vec<(usize, f64)>],
) -> Vec<f64> {
    let n_inner: usize = extents[axis + 1..].iter().product();
    let n_outer: usize = extents[..axis].iter().product();
    let mut elements = Vec::with_capacity(n_outer * taps.len() * n_inner);
    for outer in 0..n_outer {
        for taps in taps {
            let from = elements.len();
            elements.resize(from + n_inner, 0.0);
            for &(index, weight) in taps {
                let row = &data[(outer * extents[axis] + index) * n_inner..][..n_inner];
                elements[from..].iter_mut().zip(row).for_each(|(sum, &x)| *sum += weight * x);
            }
        }
    }
    elements
}
