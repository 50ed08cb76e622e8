//! Result types of operators that move elements, and of `iota`.

use super::error::ScaleBits;
use super::{TypeError, at_least, check_axis, floating, integer, list, same_dtype, word};
use crate::dtype::DTypeClass;
use crate::graph::Attrs;
use crate::{DType, TensorType};

/// A typed list of extents, none negative.
fn result(
    dtype: DType,
    attrs: &Attrs,
    i: usize,
    attr: &'static str,
) -> Result<TensorType, TypeError> {
    for &extent in attrs.ints(i) {
        at_least(attr, extent, 0)?;
    }
    let ty = TensorType::fixed(dtype, &attrs.usizes(i));
    super::check_size(&ty)?;
    Ok(ty)
}

/// The same elements in row-major order under other extents.
pub(in crate::graph) fn reshape(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<TensorType, TypeError> {
    let ty = result(types[0].dtype, attrs, 0, "shape")?;
    match ty.n_elems() == types[0].n_elems() {
        true => Ok(ty),
        false => Err(TypeError::Reshape { shape: attrs.ints(0).to_vec(), found: types[0].clone() }),
    }
}

/// Output axis `i` is operand axis `perm[i]`.
pub(in crate::graph) fn transpose(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<TensorType, TypeError> {
    let (perm, extents) = (attrs.ints(0), types[0].extents());
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..extents.len() as i64) {
        return Err(TypeError::Permutation { perm: perm.to_vec(), found: types[0].clone() });
    }
    let extents: Vec<usize> = attrs.usizes(0).into_iter().map(|axis| extents[axis]).collect();
    Ok(TensorType::fixed(types[0].dtype, &extents))
}

/// Axes of extent 1 are repeated; the rank stays.
pub(in crate::graph) fn expand(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<TensorType, TypeError> {
    let ty = result(types[0].dtype, attrs, 0, "shape")?;
    let (from, to) = (types[0].extents(), ty.extents());
    match from.len() == to.len() && from.iter().zip(&to).all(|(&x, &y)| x == y || x == 1) {
        true => Ok(ty),
        false => Err(TypeError::Expand { shape: attrs.ints(0).to_vec(), found: types[0].clone() }),
    }
}

/// Along each axis: `extent` elements from `start`, `step` (not 0) apart, all inside.
pub(in crate::graph) fn slice(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<TensorType, TypeError> {
    let from = types[0].extents();
    let starts = list(attrs, 0, "starts", from.len(), i64::MIN)?;
    let extents = list(attrs, 1, "extents", from.len(), 0)?;
    let steps = list(attrs, 2, "steps", from.len(), i64::MIN)?;
    for axis in 0..from.len() {
        let (start, extent, step) = (starts[axis], extents[axis], steps[axis]);
        let last = i128::from(start) + i128::from(extent - 1) * i128::from(step);
        let inside = |at: i128| (0..from[axis] as i128).contains(&at);
        if step == 0 || (extent > 0 && !(inside(start.into()) && inside(last))) {
            let found = types[0].clone();
            return Err(TypeError::Slice { axis, start, extent, step, found });
        }
    }
    result(types[0].dtype, attrs, 1, "extents")
}

/// Each axis grows by `before + after`. Modes other than `constant` need an element to repeat.
pub(in crate::graph) fn pad(types: &[&TensorType], attrs: &Attrs) -> Result<TensorType, TypeError> {
    let from = types[0].extents();
    let before = list(attrs, 0, "before", from.len(), 0)?;
    let after = list(attrs, 1, "after", from.len(), 0)?;
    word(attrs, 2, "mode", &["constant", "edge", "reflect", "wrap"])?;
    let mut extents = Vec::with_capacity(from.len());
    for axis in 0..from.len() {
        let added = (before[axis] + after[axis]) as usize;
        if added > 0 && from[axis] == 0 && attrs.word(2) != "constant" {
            return Err(TypeError::EmptyAxis { axis, found: types[0].clone() });
        }
        extents.push(from[axis] + added);
    }
    Ok(TensorType::fixed(types[0].dtype, &extents))
}

/// One or more operands of one type except for the extent of `axis`, which adds up.
pub(in crate::graph) fn concat(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<TensorType, TypeError> {
    let axis = check_axis(attrs.int(0), types[0])?;
    let mut extents = types[0].extents();
    for ty in &types[1..] {
        same_dtype(types[0], ty)?;
        let other = ty.extents();
        let fits = other.len() == extents.len()
            && (0..other.len()).all(|i| i == axis || extents[i] == other[i]);
        if !fits {
            return Err(TypeError::Concat { axis, lhs: types[0].clone(), rhs: (*ty).clone() });
        }
        extents[axis] += other[axis];
    }
    Ok(TensorType::fixed(types[0].dtype, &extents))
}

/// `data[..axis] ++ indices ++ data[axis+1..]`, integer indices.
pub(in crate::graph) fn gather(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<TensorType, TypeError> {
    integer(types[1])?;
    let axis = check_axis(attrs.int(0), types[0])?;
    let (data, indices) = (types[0].extents(), types[1].extents());
    if data[axis] == 0 && types[1].n_elems() > 0 {
        return Err(TypeError::EmptyAxis { axis, found: types[0].clone() });
    }
    let extents = [&data[..axis], &indices, &data[axis + 1..]].concat();
    Ok(TensorType::fixed(types[0].dtype, &extents))
}

/// Resamples to `shape`, same rank; only `nearest` takes other than floats.
pub(in crate::graph) fn resize(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<TensorType, TypeError> {
    let from = types[0].extents();
    let shape = list(attrs, 0, "shape", from.len(), 0)?;
    word(attrs, 1, "mode", &["nearest", "linear", "cubic"])?;
    let transforms = &["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"];
    word(attrs, 2, "transform", transforms)?;
    word(attrs, 3, "rounding", &["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])?;
    for (axis, &bits) in list(attrs, 5, "scales", from.len(), 0)?.iter().enumerate() {
        let scale = f32::from_bits(bits as u32);
        let is_f32 = u32::try_from(bits).is_ok();
        if !is_f32 || scale.is_nan() || scale <= 0.0 || scale.is_infinite() {
            return Err(TypeError::Scale { axis, scale: ScaleBits(bits as u32) });
        }
    }
    if attrs.word(1) != "nearest" {
        floating(types[0])?;
    }
    if let Some(axis) = (0..from.len()).find(|&axis| from[axis] == 0 && shape[axis] > 0) {
        return Err(TypeError::EmptyAxis { axis, found: types[0].clone() });
    }
    result(types[0].dtype, attrs, 0, "shape")
}

/// A numeric tensor of `shape`.
pub(in crate::graph) fn iota(_: &[&TensorType], attrs: &Attrs) -> Result<TensorType, TypeError> {
    if attrs.dtype(2).class() == DTypeClass::Bool {
        return Err(TypeError::ResultDType { found: attrs.dtype(2) });
    }
    let ty = result(attrs.dtype(2), attrs, 0, "shape")?;
    check_axis(attrs.int(1), &ty)?;
    Ok(ty)
}
