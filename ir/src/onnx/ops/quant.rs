//! Quantised operators in plain arithmetic: integers exact, rounding to even, saturation by clamping.

use crate::dtype::DTypeClass;
use crate::graph::Op;
use crate::onnx::builder::{Builder, axis};
use crate::onnx::call::{Call, Item, Outcome, one};
use crate::onnx::error::OpError;
use crate::{DType, Tensor, Value};

use super::linear::product;
use super::window;

/// Least and largest value of an integer type.
fn range(dtype: DType) -> (f64, f64) {
    let bits = dtype.bits() as i32;
    match dtype.class() {
        DTypeClass::Unsigned => (0.0, 2f64.powi(bits) - 1.0),
        _ => (-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - 1.0),
    }
}

/// A scale or zero point, shaped to broadcast with `x`: a scalar, one per index of `axis`, or one per
/// block along it.
fn parameter(b: &mut Builder, c: &Call, x: Value, value: Value) -> Result<Value, OpError> {
    let extents = b.extents(x);
    if b.ty(value).n_elems() == 1 {
        return b.reshape(value, &[]);
    }
    let at = axis(c.int("axis", 1)?, extents.len())?;
    let given = b.extents(value);
    if given == [extents[at]] {
        let mut shape = vec![1; extents.len()];
        shape[at] = extents[at];
        return b.reshape(value, &shape);
    }
    let block = usize::try_from(c.int("block_size", 0)?).unwrap_or(0);
    let fits =
        given.len() == extents.len() && block > 0 && given[at] == extents[at].div_ceil(block);
    if !fits {
        let expected = format!("one per index of axis {at} of {}", b.ty(x));
        return Err(OpError::Operand { index: 1, found: b.ty(value).to_string(), expected });
    }
    let column = b.unsqueeze(value, at + 1)?;
    let mut wide = b.extents(column);
    wide[at + 1] = block;
    let wide = b.expand(column, &wide)?;
    let mut merged = given;
    merged[at] *= block;
    let merged = b.reshape(wide, &merged)?;
    b.narrow(merged, at, 0, extents[at])
}

/// `saturate(round(x) + zero)` as an integer type.
fn saturate(b: &mut Builder, x: Value, zero: Option<Value>, to: DType) -> Result<Value, OpError> {
    let mut y = b.unary(Op::Round, x)?;
    if let Some(zero) = zero {
        let dtype = b.dtype(y);
        let zero = b.cast(zero, dtype)?;
        y = b.add(y, zero)?;
    }
    let (low, high) = range(to);
    y = b.with(Op::Max, y, low)?;
    y = b.with(Op::Min, y, high)?;
    b.cast(y, to)
}

pub(super) fn quantize(b: &mut Builder, c: &Call) -> Outcome {
    let (x, scale, zero) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    let to = match (zero, c.int("output_dtype", 0)?) {
        (Some(zero), _) => b.dtype(zero),
        (None, 0) => DType::U8,
        (None, code) => match i32::try_from(code).ok().and_then(DType::from_onnx) {
            Some(to) => to,
            None => return c.form(format!("element type {code}"), "integers of 4 to 16 bits"),
        },
    };
    let scale_of = parameter(b, c, x, scale)?;
    let zero = zero.map(|zero| parameter(b, c, x, zero)).transpose()?;
    let dtype = match c.int("precision", 0)? {
        0 => b.dtype(scale_of),
        code => {
            match i32::try_from(code).ok().and_then(DType::from_onnx).filter(|it| it.is_float()) {
                Some(dtype) => dtype,
                None => return c.form(format!("precision {code}"), "floats"),
            }
        }
    };
    let (x, scale_of) = (b.cast(x, dtype)?, b.cast(scale_of, dtype)?);
    let mut scaled = b.div(x, scale_of)?;
    if to.is_float() {
        // The zero point only names the type, unless it is not zero.
        if let Some(zero) = zero.filter(|&zero| {
            b.known(zero).is_none_or(|known| known.to_f64().iter().any(|&z| z != 0.0))
        }) {
            let zero = b.cast(zero, dtype)?;
            scaled = b.add(scaled, zero)?;
        }
        return one(super::elementwise::cast_to(b, c, scaled, to)?);
    }
    one(saturate(b, scaled, zero, to)?)
}

pub(super) fn dequantize(b: &mut Builder, c: &Call) -> Outcome {
    let (x, scale, zero) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    let scale = parameter(b, c, x, scale)?;
    let dtype = b.dtype(scale);
    let mut y = b.cast(x, dtype)?;
    let to = match c.int("output_dtype", 0)? {
        0 => dtype,
        code => {
            match i32::try_from(code).ok().and_then(DType::from_onnx).filter(|it| it.is_float()) {
                Some(to) => to,
                None => return c.form(format!("output_dtype {code}"), "floats"),
            }
        }
    };
    if let Some(zero) = zero {
        let zero = parameter(b, c, x, zero)?;
        if b.known(zero).is_none_or(|known| known.to_f64().iter().any(|&z| z != 0.0)) {
            let zero = b.cast(zero, dtype)?;
            y = b.sub(y, zero)?;
        }
    }
    let y = b.mul(y, scale)?;
    one(b.cast(y, to)?)
}

/// A tensor as unsigned bytes with its scale and zero point, from its own range, which includes 0.
pub(super) fn dynamic(b: &mut Builder, x: Value) -> Result<[Value; 3], OpError> {
    let on: Vec<usize> = (0..b.rank(x)).collect();
    let (low, high) =
        (b.reduce(Op::ReduceMin, x, &on, false)?, b.reduce(Op::ReduceMax, x, &on, false)?);
    let (low, high) = (b.with(Op::Min, low, 0.0)?, b.with(Op::Max, high, 0.0)?);
    let width = b.sub(high, low)?;
    let scale = b.with(Op::Div, width, 255.0)?;
    // A tensor of zeros has no range; any scale does.
    let (none, unit) = (b.with(Op::Eq, scale, 0.0)?, b.scalar_like(x, 1.0));
    let scale = b.select(none, unit, scale)?;
    let shift = b.div(low, scale)?;
    let shift = b.unary(Op::Neg, shift)?;
    let zero = saturate(b, shift, None, DType::U8)?;
    let scaled = b.div(x, scale)?;
    let y = saturate(b, scaled, Some(zero), DType::U8)?;
    Ok([y, scale, zero])
}

pub(super) fn dynamic_quantize(b: &mut Builder, c: &Call) -> Outcome {
    Ok(dynamic(b, c.x(0)?)?.map(Item::Tensor).to_vec())
}

/// `x - zero` in i32. A zero point with one element per row or column is shaped by `place`.
fn centred(
    b: &mut Builder,
    x: Value,
    zero: Option<Value>,
    place: &[usize],
) -> Result<Value, OpError> {
    let wide = b.cast(x, DType::I32)?;
    let Some(zero) = zero else { return Ok(wide) };
    if b.known(zero).is_some_and(|known| known.to_i64().iter().all(|&z| z == 0)) {
        return Ok(wide);
    }
    let zero = b.cast(zero, DType::I32)?;
    let n = b.ty(zero).n_elems();
    let shape: Vec<usize> =
        if n == 1 { vec![] } else { place.iter().map(|&e| if e == 0 { n } else { e }).collect() };
    let zero = if b.rank(zero) <= 1 { b.reshape(zero, &shape)? } else { zero };
    b.sub(wide, zero)
}

pub(super) fn matmul_integer(b: &mut Builder, c: &Call) -> Outcome {
    // A row's zero point broadcasts along columns, a column's along rows: 0 marks the extent.
    let x = centred(b, c.x(0)?, c.opt(2)?, &[0, 1])?;
    let y = centred(b, c.x(1)?, c.opt(3)?, &[0])?;
    one(product(b, x, y)?)
}

pub(super) fn conv_integer(b: &mut Builder, c: &Call) -> Outcome {
    let x = centred(b, c.x(0)?, c.opt(2)?, &[])?;
    let rank = b.rank(x);
    let place: Vec<usize> = (0..rank).map(|i| usize::from(i != 0)).collect();
    let w = centred(b, c.x(1)?, c.opt(3)?, &place)?;
    one(window::convolve(b, c, x, w)?)
}

/// `saturate(round(sum * scale) + zero)` with the combined scale of operands and result.
fn requantise(b: &mut Builder, sum: Value, scale: Value, zero: Value) -> Outcome {
    let dtype = b.dtype(scale);
    let sum = b.cast(sum, dtype)?;
    let scaled = b.mul(sum, scale)?;
    let to = b.dtype(zero);
    one(saturate(b, scaled, Some(zero), to)?)
}

pub(super) fn qlinear_matmul(b: &mut Builder, c: &Call) -> Outcome {
    let x = centred(b, c.x(0)?, Some(c.x(2)?), &[0, 1])?;
    let y = centred(b, c.x(3)?, Some(c.x(5)?), &[0])?;
    let sum = product(b, x, y)?;
    let (x_scale, y_scale, scale, zero) = (c.x(1)?, c.x(4)?, c.x(6)?, c.x(7)?);
    let x_scale = match b.ty(x_scale).n_elems() {
        1 => b.reshape(x_scale, &[])?,
        n => b.reshape(x_scale, &[n, 1])?,
    };
    let both = b.mul(x_scale, y_scale)?;
    let both = b.div(both, scale)?;
    requantise(b, sum, both, zero)
}

pub(super) fn qlinear_conv(b: &mut Builder, c: &Call) -> Outcome {
    let x = centred(b, c.x(0)?, Some(c.x(2)?), &[])?;
    let rank = b.rank(x);
    let place: Vec<usize> = (0..rank).map(|i| usize::from(i != 0)).collect();
    let w = centred(b, c.x(3)?, Some(c.x(5)?), &place)?;
    let mut sum = window::convolve(b, c, x, w)?;
    if let Some(bias) = c.opt(8)? {
        let bias = b.channels(bias, rank)?;
        sum = b.add(sum, bias)?;
    }
    let (x_scale, w_scale, scale, zero) = (c.x(1)?, c.x(4)?, c.x(6)?, c.x(7)?);
    let w_scale = if b.ty(w_scale).n_elems() == 1 {
        b.reshape(w_scale, &[])?
    } else {
        b.channels(w_scale, rank)?
    };
    let x_scale = b.reshape(x_scale, &[])?;
    let both = b.mul(x_scale, w_scale)?;
    let scale = b.reshape(scale, &[])?;
    let both = b.div(both, scale)?;
    let zero = b.reshape(zero, &[])?;
    requantise(b, sum, both, zero)
}

/// Weights of 4 or 8 bits in blocks along K, packed per column. They stay packed: the product's kernel
/// unpacks what it reads.
pub(super) fn matmul_n_bits(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let number = |name: &'static str| -> Result<usize, OpError> {
        let found = c.int_opt(name)?.ok_or(OpError::MissingAttribute { name })?;
        usize::try_from(found).ok().filter(|n| (1..1 << 31).contains(n)).ok_or(OpError::Attribute {
            name: name.to_owned(),
            found: found.to_string(),
            expected: "a positive number".into(),
        })
    };
    let (k, n, block) = (number("K")?, number("N")?, number("block_size")?);
    let bits = c.int("bits", 4)?;
    if (bits != 4 && bits != 8) || c.opt(4)?.is_some() {
        return c.form(format!("{bits} bits, or a group index,"), "4 and 8 bits in order");
    }
    let per_byte = (8 / bits) as usize;
    if !block.is_multiple_of(per_byte) {
        return c.form(format!("blocks of {block}"), "blocks of whole bytes");
    }
    let (n_blocks, blob) = (k.div_ceil(block), block / per_byte);
    let length = |index: usize, found: usize, expected: usize| match found == expected {
        true => Ok(()),
        false => Err(OpError::Operand {
            index,
            found: format!("{found} elements"),
            expected: expected.to_string(),
        }),
    };
    let n_bytes = n.checked_mul(n_blocks).and_then(|n| n.checked_mul(blob)).unwrap_or(usize::MAX);
    let dtype = b.dtype(x);
    // Two to a byte, the first in the low half, is also how tensors of 4 bits lie in memory.
    let narrow = if bits == 4 { DType::U4 } else { DType::U8 };
    let weights = match b.known(c.x(1)?) {
        Some(packed) => packed.clone(),
        None => return Err(OpError::Dynamic { what: "the packed weights".into() }),
    };
    length(1, weights.bytes.len(), n_bytes)?;
    let weights = b.constant(Tensor::new(narrow, &[n, n_blocks, block], weights.bytes));
    let scales = c.x(2)?;
    length(2, b.ty(scales).n_elems(), n * n_blocks)?;
    let middle = 2f64.powi(bits as i32 - 1);
    let zeros = match c.opt(3)? {
        None => b.scalar(dtype, middle),
        Some(value) if b.dtype(value).is_float() => {
            length(3, b.ty(value).n_elems(), n * n_blocks)?;
            let value = b.cast(value, dtype)?;
            b.reshape(value, &[n, n_blocks, 1])?
        }
        Some(value) => {
            let row = n_blocks.div_ceil(per_byte);
            let packed = b.known_ints(value, "the zero points")?;
            length(3, packed.len(), n * row)?;
            let zero = |i: usize| {
                let byte = packed[i / n_blocks * row + i % n_blocks / per_byte];
                let zero = match bits {
                    4 => byte >> (4 * (i % n_blocks % 2)) & 15,
                    _ => byte,
                };
                zero as f64
            };
            let zeros: Vec<f64> = (0..n * n_blocks).map(zero).collect();
            b.constant(Tensor::from_f64(dtype, &[n, n_blocks, 1], &zeros))
        }
    };
    let scales = b.cast(scales, dtype)?;
    let scales = b.reshape(scales, &[n, n_blocks, 1])?;
    let wide = b.cast(weights, dtype)?;
    let centred = b.sub(wide, zeros)?;
    let scaled = b.mul(centred, scales)?;
    let rows = b.reshape(scaled, &[n, n_blocks * block])?;
    let rows = b.narrow(rows, 1, 0, k)?;
    let columns = b.transpose(rows, &[1, 0])?;
    let mut y = product(b, x, columns)?;
    if let Some(bias) = c.opt(5)? {
        y = b.add(y, bias)?;
    }
    one(y)
}

/// `x[.., K] * w[K, N]` as ONNX Runtime's dynamically quantised recurrences compute it: the operand is
/// quantised from its own range, the weight has one scale for all or one per column.
pub(super) fn dynamic_product(
    b: &mut Builder,
    x: Value,
    w: Value,
    scale: Value,
    zero: Value,
) -> Result<Value, OpError> {
    let [quantised, x_scale, x_zero] = dynamic(b, x)?;
    let lhs = centred(b, quantised, Some(x_zero), &[])?;
    let rhs = centred(b, w, Some(zero), &[0])?;
    let sum = product(b, lhs, rhs)?;
    let dtype = b.dtype(x);
    let sum = b.cast(sum, dtype)?;
    let n = b.ty(scale).n_elems();
    let scale = b.reshape(scale, if n == 1 { &[] } else { std::slice::from_ref(&n) })?;
    let both = b.mul(x_scale, scale)?;
    b.mul(sum, both)
}
