//! Operators that move elements, and `iota`.

use super::elementwise::saturate;
use super::walk::{broadcast_strides, copy};
use super::{Array, Data, Element, by_element, wrap};
use crate::TensorType;
use crate::graph::Attrs;
use crate::shape::row_major_strides;

pub(in crate::graph) fn reshape(args: &[&Array], _: &Attrs, ty: &TensorType) -> Array {
    Array::with(ty, args[0].data.clone())
}

fn strided<T: Element>(arg: &Array, ty: &TensorType, strides: &[isize], start: isize) -> Array {
    let elements = copy(T::of(arg), &ty.extents(), strides, start);
    Array::with(ty, T::data(elements, ty.dtype))
}

pub(in crate::graph) fn transpose(args: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    let from = row_major_strides(&args[0].extents);
    let strides: Vec<isize> = attrs.usizes(0).into_iter().map(|axis| from[axis] as isize).collect();
    by_element!(args[0], strided(args[0], ty, &strides, 0))
}

pub(in crate::graph) fn expand(args: &[&Array], _: &Attrs, ty: &TensorType) -> Array {
    let strides = broadcast_strides(&args[0].extents, &ty.extents());
    by_element!(args[0], strided(args[0], ty, &strides, 0))
}

pub(in crate::graph) fn slice(args: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    let from = row_major_strides(&args[0].extents);
    let starts =
        attrs.ints(0).iter().zip(&from).map(|(&start, &stride)| start as isize * stride as isize);
    let strides: Vec<isize> = attrs
        .ints(2)
        .iter()
        .zip(&from)
        .map(|(&step, &stride)| step as isize * stride as isize)
        .collect();
    let start = if ty.n_elems() == 0 { 0 } else { starts.sum() };
    by_element!(args[0], strided(args[0], ty, &strides, start))
}

/// Modes: `constant` fills with `value`; `edge` repeats the outermost element; `reflect` mirrors
/// without repeating it (and back and forth if the padding is longer than the operand); `wrap`
/// continues at the other end.
pub(in crate::graph) fn pad(args: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    fn typed<T: Element>(arg: &Array, attrs: &Attrs, ty: &TensorType, value: T) -> Array {
        let from = &arg.extents;
        let before = attrs.ints(0);
        // For each axis, where each output position reads; none for the fill value.
        let sources: Vec<Vec<Option<usize>>> = (ty.extents().iter().enumerate())
            .map(|(axis, &extent)| {
                let source = |at: usize| {
                    pad_source(at as i64 - before[axis], from[axis] as i64, attrs.word(2))
                };
                (0..extent).map(source).collect()
            })
            .collect();
        let mut elements = Vec::with_capacity(ty.n_elems());
        pad_axes(T::of(arg), from, &sources, Some(0), value, &mut elements);
        Array::with(ty, T::data(elements, ty.dtype))
    }
    match ty.dtype.is_float() {
        true => typed::<f64>(args[0], attrs, ty, attrs.float(3)),
        false => typed::<i64>(args[0], attrs, ty, saturate(ty.dtype, attrs.float(3))),
    }
}

fn pad_source(at: i64, extent: i64, mode: &str) -> Option<usize> {
    let source = match mode {
        "constant" if !(0..extent).contains(&at) => return None,
        "edge" => at.clamp(0, extent - 1),
        "wrap" => at.rem_euclid(extent),
        "reflect" if extent == 1 => 0,
        "reflect" => {
            let period = 2 * (extent - 1);
            let phase = at.rem_euclid(period);
            phase.min(period - phase)
        }
        _ => at,
    };
    Some(usize::try_from(source).expect("inside the operand"))
}

fn pad_axes<T: Copy>(
    data: &[T],
    extents: &[usize],
    sources: &[Vec<Option<usize>>],
    base: Option<usize>,
    value: T,
    elements: &mut Vec<T>,
) {
    let Some((first, rest)) = sources.split_first() else {
        elements.push(base.map_or(value, |at| data[at]));
        return;
    };
    for &source in first {
        let at = base.zip(source).map(|(base, source)| base * extents[0] + source);
        if rest.is_empty() {
            elements.push(at.map_or(value, |at| data[at]));
        } else {
            pad_axes(data, &extents[1..], rest, at, value, elements);
        }
    }
}

pub(in crate::graph) fn concat(args: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    fn typed<T: Element>(args: &[&Array], axis: usize, ty: &TensorType) -> Array {
        let mut elements = Vec::with_capacity(ty.n_elems());
        let n_outer: usize = ty.extents()[..axis].iter().product();
        for outer in 0..n_outer {
            for arg in args {
                let n_inner: usize = arg.extents[axis..].iter().product();
                elements.extend_from_slice(&T::of(arg)[outer * n_inner..][..n_inner]);
            }
        }
        Array::with(ty, T::data(elements, ty.dtype))
    }
    by_element!(args[0], typed(args, attrs.usize(0), ty))
}

/// For each index along `axis`, the slice of `data` there.
pub(super) fn take<T: Copy>(
    data: &[T],
    extents: &[usize],
    axis: usize,
    indices: &[usize],
) -> Vec<T> {
    let n_inner: usize = extents[axis + 1..].iter().product();
    let n_outer: usize = extents[..axis].iter().product();
    let mut elements = Vec::with_capacity(n_outer * indices.len() * n_inner);
    for outer in 0..n_outer {
        for index in indices {
            let at = (outer * extents[axis] + index) * n_inner;
            elements.extend_from_slice(&data[at..at + n_inner]);
        }
    }
    elements
}

pub(in crate::graph) fn gather(args: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    fn typed<T: Element>(data: &Array, axis: usize, indices: &[usize], ty: &TensorType) -> Array {
        Array::with(ty, T::data(take(T::of(data), &data.extents, axis, indices), ty.dtype))
    }
    let axis = attrs.usize(0);
    let extent = args[0].extents[axis] as i128;
    let resolve = |index: i64| {
        let index = super::widen(args[1].dtype, index);
        let from_start = if index < 0 { index + extent } else { index };
        from_start.clamp(0, extent - 1) as usize
    };
    let indices: Vec<usize> = args[1].ints().iter().map(|&index| resolve(index)).collect();
    by_element!(args[0], typed(args[0], axis, &indices, ty))
}

pub(in crate::graph) fn iota(_: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    let (extents, axis) = (ty.extents(), attrs.usize(1));
    let n_inner: usize = extents[axis + 1..].iter().product();
    let indices = (0..ty.n_elems()).map(|at| at / n_inner % extents[axis]);
    let data = match ty.dtype.is_float() {
        true => Data::Float(indices.map(|index| index as f64).collect()),
        false => Data::Int(indices.map(|index| wrap(ty.dtype, index as i128)).collect()),
    };
    Array::with(ty, data)
}
