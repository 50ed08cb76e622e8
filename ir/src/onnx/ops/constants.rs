//! Constants and shapes: everything here is known at import, because every shape is.

use crate::Tensor;
use crate::graph::Op;
use crate::onnx::builder::Builder;
use crate::onnx::call::{Call, Item, Outcome, one};
use crate::onnx::error::OpError;
use crate::onnx::load::product;
use crate::onnx::part::NOTHING;

/// No list that import itself writes out (`Range`, `NonZero`) is longer.
const MAX_WRITTEN: usize = 1 << 26;

pub(super) fn constant(b: &mut Builder, c: &Call) -> Outcome {
    if let Some(proto) = c.tensor("value")? {
        if proto.data_type == Some(8) {
            return Ok(vec![Item::Foreign("a tensor of strings".into())]);
        }
        return one(b.load(proto)?);
    }
    if let Some(attr) = Some(())
        .filter(|()| c.has("sparse_value"))
        .and_then(|()| c.attrs.get("sparse_value"))
        .and_then(|attr| attr.sparse_tensor.as_ref())
    {
        let (_, tensor) = b.tensors.read_sparse(attr)?;
        return one(b.constant(tensor));
    }
    let tensor = if c.has("value_float") {
        Tensor::f32(&[], &[c.float("value_float", 0.0)? as f32])
    } else if c.has("value_int") {
        Tensor::i64(&[], &[c.int("value_int", 0)?])
    } else if let Some(floats) = c.floats("value_floats")? {
        Tensor::f32(&[floats.len()], &floats.iter().map(|&x| x as f32).collect::<Vec<_>>())
    } else if let Some(ints) = c.ints("value_ints")? {
        Tensor::i64(&[ints.len()], &ints)
    } else if c.has("value_string") || c.has("value_strings") {
        return Ok(vec![Item::Foreign("a tensor of strings".into())]);
    } else {
        return Err(OpError::MissingAttribute { name: "value" });
    };
    one(b.constant(tensor))
}

/// A scalar, expanded: a large result is never written out.
pub(super) fn constant_of_shape(b: &mut Builder, c: &Call) -> Outcome {
    let wanted = b.known_ints(c.x(0)?, "the shape")?;
    let value = match c.tensor("value")? {
        Some(proto) => b.load(proto)?,
        None => b.constant(Tensor::f32(&[], &[0.0])),
    };
    let too_large = || OpError::TooLarge { extents: wanted.clone() };
    let extents: Option<Vec<usize>> = wanted.iter().map(|&n| usize::try_from(n).ok()).collect();
    let extents = extents.ok_or_else(too_large)?;
    product(&extents).ok_or_else(too_large)?;
    let value = b.reshape(value, &[])?;
    one(b.expand(value, &extents)?)
}

/// Since opset 15 a range of the extents.
pub(super) fn shape(b: &mut Builder, c: &Call) -> Outcome {
    let dims = b.dims(c.x(0)?);
    let rank = dims.len() as i64;
    let bound =
        |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (start, end) = (bound(c.int("start", 0)?), bound(c.int("end", rank)?));
    one(b.ints(&dims[start.min(end)..end]))
}

pub(super) fn size(b: &mut Builder, c: &Call) -> Outcome {
    let n = b.ty(c.x(0)?).n_elems() as i64;
    one(b.constant(Tensor::i64(&[], &[n])))
}

/// `ceil((limit - start) / delta)` elements.
pub(super) fn range(b: &mut Builder, c: &Call) -> Outcome {
    let mut bounds = [0.0; 3];
    for (i, name) in ["start", "limit", "delta"].into_iter().enumerate() {
        let value = c.x(i)?;
        bounds[i] = *b
            .known_floats(value, &format!("`{name}`"))?
            .first()
            .ok_or(OpError::MissingInput { index: i })?;
    }
    let [start, limit, delta] = bounds;
    let count = ((limit - start) / delta).ceil().max(0.0);
    if !count.is_finite() || count > MAX_WRITTEN as f64 {
        return Err(OpError::TooLarge { extents: vec![count as i64] });
    }
    let dtype = b.dtype(c.x(0)?);
    let elements: Vec<f64> = (0..count as usize).map(|i| start + i as f64 * delta).collect();
    one(b.constant(Tensor::from_f64(dtype, &[elements.len()], &elements)))
}

/// Coordinates of the elements that are not zero, `[rank, count]`.
pub(super) fn non_zero(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let data = b.known_floats(x, "which elements are not zero")?;
    if data.len() > MAX_WRITTEN {
        return Err(OpError::TooLarge { extents: b.dims(x) });
    }
    let extents = b.extents(x);
    let hits: Vec<usize> = (0..data.len()).filter(|&i| data[i] != 0.0).collect();
    let strides = crate::shape::row_major_strides(&extents);
    let mut coordinates = Vec::with_capacity(hits.len() * extents.len());
    for (stride, extent) in strides.iter().zip(&extents) {
        coordinates.extend(hits.iter().map(|hit| (hit / stride % extent) as i64));
    }
    one(b.constant(Tensor::i64(&[extents.len(), hits.len()], &coordinates)))
}

/// Ones on a diagonal.
pub(super) fn eye_like(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let [rows, columns] = b.extents(x)[..] else {
        return Err(OpError::Operand {
            index: 0,
            found: b.ty(x).to_string(),
            expected: "rank 2".into(),
        });
    };
    let dtype = match c.int_opt("dtype")? {
        Some(code) => i32::try_from(code).ok().and_then(crate::DType::from_onnx),
        None => Some(b.dtype(x)),
    };
    let Some(dtype) = dtype else { return c.form("this element type", "numbers and booleans") };
    let row = b.iota(&[rows, 1], 0, crate::DType::I64)?;
    let column = b.iota(&[1, columns], 1, crate::DType::I64)?;
    let offset = b.constant(Tensor::i64(&[], &[c.int("k", 0)?]));
    let shifted = b.add(row, offset)?;
    let on = b.binary(Op::Eq, shifted, column)?;
    one(b.cast(on, dtype)?)
}

/// Its operand, or an optional without a value.
pub(super) fn optional(_: &mut Builder, c: &Call) -> Outcome {
    c.has("type");
    match c.inputs.first() {
        None | Some(None) => Ok(vec![Item::Foreign(NOTHING.into())]),
        Some(Some(item)) => Ok(vec![item.clone()]),
    }
}

/// Whether an optional is there: a tensor is, an operand that is left out is not.
pub(super) fn has_element(b: &mut Builder, c: &Call) -> Outcome {
    let there = match c.inputs.first() {
        None | Some(None) => 0,
        Some(Some(Item::Poison)) => return Err(OpError::Poisoned),
        Some(Some(Item::Foreign(what))) if what == NOTHING => 0,
        Some(Some(_)) => 1,
    };
    one(b.constant(Tensor::from_i64(crate::DType::Bool, &[], &[there])))
}
