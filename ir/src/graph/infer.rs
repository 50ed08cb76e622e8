//! Result types: what each operator accepts and what it makes of it.
//!
//! [`infer`] checks the number of operands, the attributes' number, kinds and magnitude and that no
//! extent is symbolic; the functions named in the operator table then rely on that.

mod error;
mod movement;
mod window;

pub use error::{ScaleBits, TypeError};
pub(super) use movement::{concat, expand, gather, iota, pad, reshape, resize, slice, transpose};
pub(super) use window::{conv, conv_transpose, matmul, window};

use super::attrs::{Attr, Attrs};
use super::ops::Op;
use crate::dtype::DTypeClass;
use crate::{DType, Shape, TensorType};

/// No attribute that counts or indexes elements is larger, so that sums and products of two fit.
const MAX_ATTR: i64 = 1 << 40;

/// No tensor has more elements.
const MAX_ELEMS: usize = 1 << 48;

/// The type of `op` on operands of `types`.
///
/// # Errors
///
/// If the number of operands, the attributes or the operand types are not what the operator takes.
pub fn infer(op: Op, attrs: &Attrs, types: &[&TensorType]) -> Result<TensorType, TypeError> {
    let spec = op.spec();
    match spec.arity {
        Some(expected) if expected != types.len() => {
            return Err(TypeError::Arity { op, expected, found: types.len() });
        }
        None if types.is_empty() => return Err(TypeError::NoOperands { op }),
        _ => (),
    }
    if spec.attrs.len() != attrs.0.len() {
        return Err(TypeError::AttrCount { op, expected: spec.attrs.len(), found: attrs.0.len() });
    }
    for (&(name, expected), attr) in spec.attrs.iter().zip(&attrs.0) {
        if attr.kind() != expected {
            return Err(TypeError::AttrKind { op, attr: name, expected, found: attr.kind() });
        }
        let largest = match attr {
            Attr::Int(x) => x.unsigned_abs(),
            Attr::Ints(xs) => xs.iter().map(|x| x.unsigned_abs()).max().unwrap_or(0),
            _ => 0,
        };
        if largest > MAX_ATTR.unsigned_abs() {
            return Err(TypeError::AttrTooLarge { op, attr: name, limit: MAX_ATTR });
        }
    }
    if let Some(symbolic) = types.iter().find(|ty| ty.shape.extents().is_none()) {
        return Err(TypeError::Symbolic { found: (*symbolic).clone() });
    }
    for ty in types {
        check_size(ty)?;
    }
    let ty = (spec.infer)(types, attrs)?;
    check_size(&ty)?;
    Ok(ty)
}

/// Whether a tensor of this type can be indexed.
pub(super) fn check_size(ty: &TensorType) -> Result<(), TypeError> {
    let extents = ty.extents();
    let product = extents.iter().try_fold(1usize, |acc, &extent| acc.checked_mul(extent.max(1)));
    match product {
        Some(n) if n <= MAX_ELEMS => Ok(()),
        _ => Err(TypeError::TooManyElements { found: ty.clone(), limit: MAX_ELEMS }),
    }
}

/// Broadcasts extents as NumPy does: aligned at the last axis, 1 stretches.
pub fn broadcast_extents(lhs: &[usize], rhs: &[usize]) -> Option<Vec<usize>> {
    let rank = lhs.len().max(rhs.len());
    let at = |extents: &[usize], axis: usize| {
        (axis + extents.len()).checked_sub(rank).map_or(1, |axis| extents[axis])
    };
    (0..rank)
        .map(|axis| match (at(lhs, axis), at(rhs, axis)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// A numeric operand; the result has its type.
pub(super) fn same(types: &[&TensorType], _: &Attrs) -> Result<TensorType, TypeError> {
    numeric(types[0])?;
    Ok(types[0].clone())
}

/// A float operand; the result has its type.
pub(super) fn float(types: &[&TensorType], _: &Attrs) -> Result<TensorType, TypeError> {
    floating(types[0])?;
    Ok(types[0].clone())
}

/// A boolean operand; the result has its type.
pub(super) fn boolean(types: &[&TensorType], _: &Attrs) -> Result<TensorType, TypeError> {
    is_bool(types[0])?;
    Ok(types[0].clone())
}

/// A float operand, a boolean result.
pub(super) fn predicate(types: &[&TensorType], _: &Attrs) -> Result<TensorType, TypeError> {
    floating(types[0])?;
    Ok(TensorType { dtype: DType::Bool, shape: types[0].shape.clone() })
}

/// Any operand; the result has the element type `to`.
pub(super) fn cast(types: &[&TensorType], attrs: &Attrs) -> Result<TensorType, TypeError> {
    Ok(TensorType { dtype: attrs.dtype(0), shape: types[0].shape.clone() })
}

/// Two operands of one numeric element type, broadcast.
pub(super) fn broadcast(types: &[&TensorType], _: &Attrs) -> Result<TensorType, TypeError> {
    numeric(types[0])?;
    same_dtype(types[0], types[1])?;
    broadcast_shapes(types[0].dtype, types[0], types[1])
}

/// Two operands of one integer or boolean element type, broadcast.
pub(super) fn bitwise(types: &[&TensorType], _: &Attrs) -> Result<TensorType, TypeError> {
    if types[0].dtype.is_float() {
        return Err(TypeError::DType { expected: "integer or bool", found: types[0].clone() });
    }
    same_dtype(types[0], types[1])?;
    broadcast_shapes(types[0].dtype, types[0], types[1])
}

/// Two numeric operands, broadcast; the result has the element type of the first, the base.
pub(super) fn power(types: &[&TensorType], _: &Attrs) -> Result<TensorType, TypeError> {
    numeric(types[0])?;
    numeric(types[1])?;
    broadcast_shapes(types[0].dtype, types[0], types[1])
}

/// Two operands of one element type, broadcast; a boolean result.
pub(super) fn compare(types: &[&TensorType], _: &Attrs) -> Result<TensorType, TypeError> {
    same_dtype(types[0], types[1])?;
    broadcast_shapes(DType::Bool, types[0], types[1])
}

/// A boolean condition and two operands of one element type, all broadcast.
pub(super) fn select(types: &[&TensorType], _: &Attrs) -> Result<TensorType, TypeError> {
    is_bool(types[0])?;
    same_dtype(types[1], types[2])?;
    let both = broadcast_shapes(types[1].dtype, types[1], types[2])?;
    broadcast_shapes(types[1].dtype, types[0], &both)
}

/// A numeric operand; the extents of `axes` (strictly ascending) become 1.
pub(super) fn reduce(types: &[&TensorType], attrs: &Attrs) -> Result<TensorType, TypeError> {
    numeric(types[0])?;
    let mut extents = types[0].extents();
    let axes = attrs.ints(0);
    if !axes.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err(TypeError::AxesNotAscending { axes: axes.to_vec() });
    }
    for &axis in axes {
        extents[check_axis(axis, types[0])?] = 1;
    }
    Ok(TensorType::fixed(types[0].dtype, &extents))
}

/// A numeric operand; an i64 result where the extent of `axis` becomes 1. `last` is 0 or 1.
pub(super) fn arg(types: &[&TensorType], attrs: &Attrs) -> Result<TensorType, TypeError> {
    numeric(types[0])?;
    at_most("last", attrs.int(1), 1)?;
    at_least("last", attrs.int(1), 0)?;
    let mut extents = types[0].extents();
    let axis = check_axis(attrs.int(0), types[0])?;
    if extents[axis] == 0 {
        return Err(TypeError::EmptyAxis { axis, found: types[0].clone() });
    }
    extents[axis] = 1;
    Ok(TensorType::fixed(DType::I64, &extents))
}

fn numeric(ty: &TensorType) -> Result<(), TypeError> {
    match ty.dtype.class() {
        DTypeClass::Bool => Err(TypeError::DType { expected: "numbers", found: ty.clone() }),
        _ => Ok(()),
    }
}

fn floating(ty: &TensorType) -> Result<(), TypeError> {
    match ty.dtype.is_float() {
        true => Ok(()),
        false => Err(TypeError::DType { expected: "floats", found: ty.clone() }),
    }
}

fn is_bool(ty: &TensorType) -> Result<(), TypeError> {
    match ty.dtype {
        DType::Bool => Ok(()),
        _ => Err(TypeError::DType { expected: "bool", found: ty.clone() }),
    }
}

fn integer(ty: &TensorType) -> Result<(), TypeError> {
    match ty.dtype.class() {
        DTypeClass::Signed | DTypeClass::Unsigned => Ok(()),
        _ => Err(TypeError::DType { expected: "integers", found: ty.clone() }),
    }
}

fn same_dtype(lhs: &TensorType, rhs: &TensorType) -> Result<(), TypeError> {
    match lhs.dtype == rhs.dtype {
        true => Ok(()),
        false => Err(TypeError::DTypesDiffer { lhs: lhs.clone(), rhs: rhs.clone() }),
    }
}

fn broadcast_shapes(
    dtype: DType,
    lhs: &TensorType,
    rhs: &TensorType,
) -> Result<TensorType, TypeError> {
    match broadcast_extents(&lhs.extents(), &rhs.extents()) {
        Some(extents) => Ok(TensorType { dtype, shape: Shape::fixed(&extents) }),
        None => Err(TypeError::Broadcast { lhs: lhs.clone(), rhs: rhs.clone() }),
    }
}

/// `axis` as an index into the extents of `ty`.
fn check_axis(axis: i64, ty: &TensorType) -> Result<usize, TypeError> {
    match usize::try_from(axis) {
        Ok(index) if index < ty.shape.rank() => Ok(index),
        _ => Err(TypeError::Axis { axis, found: ty.clone() }),
    }
}

fn at_least(attr: &'static str, found: i64, least: i64) -> Result<(), TypeError> {
    match found >= least {
        true => Ok(()),
        false => Err(TypeError::AttrTooSmall { attr, found, least }),
    }
}

fn at_most(attr: &'static str, found: i64, most: i64) -> Result<(), TypeError> {
    match found <= most {
        true => Ok(()),
        false => Err(TypeError::AttrTooBig { attr, found, most }),
    }
}

/// The list `attr` if it has `len` members, none less than `least`.
fn list<'a>(
    attrs: &'a Attrs,
    i: usize,
    attr: &'static str,
    len: usize,
    least: i64,
) -> Result<&'a [i64], TypeError> {
    let found = attrs.ints(i);
    if found.len() != len {
        return Err(TypeError::AttrLength { attr, expected: len, found: found.len() });
    }
    for &x in found {
        at_least(attr, x, least)?;
    }
    Ok(found)
}

fn word(
    attrs: &Attrs,
    i: usize,
    attr: &'static str,
    expected: &'static [&'static str],
) -> Result<(), TypeError> {
    match expected.contains(&attrs.word(i)) {
        true => Ok(()),
        false => Err(TypeError::Word { attr, expected, found: attrs.word(i).to_owned() }),
    }
}
