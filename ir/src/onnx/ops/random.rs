//! Random operators. What they draw is decided at import and the same for every run of an engine; the reasons
//! are in `docs/random.md`.

use crate::graph::Op;
use crate::onnx::builder::Builder;
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::draw::Stream;
use crate::onnx::error::OpError;
use crate::onnx::load::product;
use crate::{DType, Tensor, Value};

use super::reduce::running_sum;

/// Draws are constants of the engine: 2²⁴ numbers of 4 bytes are 64 MiB.
const MAX_DRAWN: usize = 1 << 24;

/// The numbers of a node: of its seed, or of its place if it has none. A seed is a float (by its bits) or, for
/// `Dropout`, an integer.
fn stream(c: &Call) -> Result<Stream, OpError> {
    let seeded = |seed| Ok(Stream::seeded(seed, c.path));
    match c.attrs.get("seed") {
        None => Ok(Stream::unseeded(c.path)),
        Some(attr) if attr.r#type == Some(2) => seeded(c.int("seed", 0)? as u64),
        Some(_) => seeded(u64::from((c.float("seed", 0.0)? as f32).to_bits())),
    }
}

/// A constant of this shape, drawn element by element.
fn drawn(
    b: &mut Builder,
    c: &Call,
    extents: &[usize],
    dtype: DType,
    element: impl Fn(u64) -> f64,
) -> Result<Value, OpError> {
    let too_large = || OpError::TooLarge { extents: extents.iter().map(|&n| n as i64).collect() };
    let n = product(extents).ok_or_else(too_large)?;
    if n > MAX_DRAWN {
        return c.form(
            format!("a draw of {n} numbers, which would be a constant of the engine,"),
            "at most 2^24, or random numbers as an input",
        );
    }
    let elements: Vec<f64> = (0..n as u64).map(element).collect();
    Ok(b.constant(Tensor::from_f64(dtype, extents, &elements)))
}

fn dtype_of(c: &Call, default: DType) -> Result<DType, OpError> {
    let Some(code) = c.int_opt("dtype")? else { return Ok(default) };
    match i32::try_from(code).ok().and_then(DType::from_onnx) {
        Some(dtype) => Ok(dtype),
        None => c.form(format!("element type {code}"), "numbers and booleans"),
    }
}

/// Shape and type of the result: from attributes, or like the operand.
fn wanted(b: &Builder, c: &Call, like: bool) -> Result<(Vec<usize>, DType), OpError> {
    let (extents, default) = if like {
        let x = c.x(0)?;
        (b.extents(x), if b.dtype(x).is_float() { b.dtype(x) } else { DType::F32 })
    } else {
        let shape = c.ints("shape")?.ok_or(OpError::MissingAttribute { name: "shape" })?;
        let extents: Option<Vec<usize>> = shape.iter().map(|&n| usize::try_from(n).ok()).collect();
        (extents.ok_or(OpError::TooLarge { extents: shape })?, DType::F32)
    };
    let dtype = dtype_of(c, default)?;
    if !matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16) {
        return c.form(format!("a draw of {dtype}"), "f64, f32, f16 and bf16");
    }
    Ok((extents, dtype))
}

fn any_uniform(b: &mut Builder, c: &Call, like: bool) -> Outcome {
    let (extents, dtype) = wanted(b, c, like)?;
    let (low, high) = (c.float("low", 0.0)?, c.float("high", 1.0)?);
    let stream = stream(c)?;
    let element = |i| low + stream.uniform(i, dtype) * (high - low);
    one(drawn(b, c, &extents, dtype, element)?)
}

pub(super) fn uniform(b: &mut Builder, c: &Call) -> Outcome {
    any_uniform(b, c, false)
}

pub(super) fn uniform_like(b: &mut Builder, c: &Call) -> Outcome {
    any_uniform(b, c, true)
}

fn any_normal(b: &mut Builder, c: &Call, like: bool) -> Outcome {
    let (extents, dtype) = wanted(b, c, like)?;
    let (mean, scale) = (c.float("mean", 0.0)?, c.float("scale", 1.0)?);
    let stream = stream(c)?;
    one(drawn(b, c, &extents, dtype, |i| mean + scale * stream.normal(i))?)
}

pub(super) fn normal(b: &mut Builder, c: &Call) -> Outcome {
    any_normal(b, c, false)
}

pub(super) fn normal_like(b: &mut Builder, c: &Call) -> Outcome {
    any_normal(b, c, true)
}

/// 1 with the probability that the operand says, which may only be known at run time.
pub(super) fn bernoulli(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let dtype = dtype_of(c, b.dtype(x))?;
    let precise = if b.dtype(x) == DType::F64 { DType::F64 } else { DType::F32 };
    let (stream, extents) = (stream(c)?, b.extents(x));
    let drawn = drawn(b, c, &extents, precise, |i| stream.uniform(i, precise))?;
    let probability = b.cast(x, precise)?;
    let hit = b.binary(Op::Lt, drawn, probability)?;
    one(b.cast(hit, dtype)?)
}

/// `[batch, classes]` of logarithms of weights to `[batch, samples]` of classes: the first class whose running
/// sum of weights exceeds a uniform draw times their sum.
pub(super) fn multinomial(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let [batch, classes] = b.extents(x)[..] else {
        let (found, expected) = (b.ty(x).to_string(), "[batch, classes]".into());
        return Err(OpError::Operand { index: 0, found, expected });
    };
    let dtype = dtype_of(c, DType::I32)?;
    let samples = c.int("sample_size", 1)?;
    let Some(samples) = usize::try_from(samples).ok().filter(|_| classes > 0) else {
        return c.form(format!("{samples} samples of {classes} classes"), "one class or more");
    };
    let x = b.cast(x, DType::F32)?;
    let most = b.reduce(Op::ReduceMax, x, &[1], true)?;
    let shifted = b.sub(x, most)?;
    let weights = b.unary(Op::Exp, shifted)?;
    let running = running_sum(b, weights, 1, false, false)?;
    let total = b.narrow(running, 1, classes - 1, 1)?;
    let stream = stream(c)?;
    let drawn = drawn(b, c, &[batch, samples], DType::F32, |i| stream.uniform(i, DType::F32))?;
    let target = b.mul(drawn, total)?;
    let (target, running) = (b.unsqueeze(target, 2)?, b.unsqueeze(running, 1)?);
    let passed = b.binary(Op::Le, running, target)?;
    let passed = b.cast(passed, DType::I64)?;
    let class = b.reduce(Op::ReduceSum, passed, &[2], false)?;
    // A product that rounds up to the sum is of the last class.
    let class = b.with(Op::Min, class, classes as f64 - 1.0)?;
    one(b.cast(class, dtype)?)
}

/// Training: an element is dropped with the probability `ratio`, others grow by `1 / (1 - ratio)`.
pub(super) fn dropped(b: &mut Builder, c: &Call, x: Value, ratio: f64) -> Outcome {
    if !(0.0..1.0).contains(&ratio) {
        let expected = "a number from 0, below 1".into();
        return Err(OpError::Operand { index: 1, found: ratio.to_string(), expected });
    }
    let (stream, extents) = (stream(c)?, b.extents(x));
    let keep = |i| f64::from(u8::from(stream.uniform(i, DType::F32) >= ratio));
    let mask = drawn(b, c, &extents, DType::Bool, keep)?;
    let scaled = b.with(Op::Mul, x, 1.0 / (1.0 - ratio))?;
    let zero = b.scalar_like(x, 0.0);
    let y = b.select(mask, scaled, zero)?;
    Ok(vec![y.into(), mask.into()])
}
