//! Operators whose result at an index depends on the operands at that index.

use crate::graph::Op;
use crate::onnx::builder::{Builder, axis};
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::error::OpError;
use crate::{DType, Value};

macro_rules! unaries {
    ($($name:ident $op:ident)+) => {$(
        pub(super) fn $name(b: &mut Builder, c: &Call) -> Outcome {
            one(b.unary(Op::$op, c.x(0)?)?)
        }
    )+};
}

macro_rules! binaries {
    ($($name:ident $op:ident)+) => {$(
        pub(super) fn $name(b: &mut Builder, c: &Call) -> Outcome {
            let (x, y) = operands(b, c)?;
            one(b.binary(Op::$op, x, y)?)
        }
    )+};
}

/// Both operands. Before opset 7 the second is broadcast only on request, from a given axis.
fn operands(b: &mut Builder, c: &Call) -> Result<(Value, Value), OpError> {
    let (x, y) = (c.x(0)?, c.x(1)?);
    if c.opset >= 7 || c.int("broadcast", 0)? == 0 {
        return Ok((x, y));
    }
    let (x_rank, mut extents) = (b.rank(x), b.extents(y));
    if let Some(at) = c.int_opt("axis")? {
        let at = axis(at, x_rank)?;
        let behind = x_rank.saturating_sub(at + extents.len());
        extents.extend(std::iter::repeat_n(1, behind));
    }
    Ok((x, b.reshape(y, &extents)?))
}

unaries! {
    neg Neg abs Abs sign Sign relu Relu exp Exp log Log sqrt Sqrt reciprocal Recip erf Erf tanh Tanh
    sigmoid Sigmoid sin Sin cos Cos floor Floor ceil Ceil round Round not Not is_nan IsNan
}

binaries! {
    add Add sub Sub mul Mul div Div and And or Or xor Xor equal Eq less Lt less_or_equal Le
}

pub(super) fn greater(b: &mut Builder, c: &Call) -> Outcome {
    let (x, y) = operands(b, c)?;
    one(b.binary(Op::Lt, y, x)?)
}

pub(super) fn greater_or_equal(b: &mut Builder, c: &Call) -> Outcome {
    one(b.binary(Op::Le, c.x(1)?, c.x(0)?)?)
}

/// `-1 - x`: all bits flip, in signed and unsigned types alike.
pub(super) fn bitwise_not(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let ones = b.constant(crate::Tensor::from_i64(b.dtype(x), &[], &[-1]));
    one(b.binary(Op::Xor, x, ones)?)
}

pub(super) fn is_inf(b: &mut Builder, c: &Call) -> Outcome {
    let mut x = c.x(0)?;
    match (c.int("detect_negative", 1)? != 0, c.int("detect_positive", 1)? != 0) {
        (true, true) => x = b.unary(Op::Abs, x)?,
        (true, false) => x = b.unary(Op::Neg, x)?,
        (false, true) => (),
        (false, false) => return c.form("detecting neither infinity", "one of both"),
    }
    one(b.with(Op::Eq, x, f64::INFINITY)?)
}

/// The angle whose tangent is `x`: two half-angle steps bring the argument below tan(π/16), where the
/// power series has twelve terms left of double precision.
fn arc_tangent(b: &mut Builder, x: Value) -> Result<Value, OpError> {
    let size = b.unary(Op::Abs, x)?;
    let large = {
        let unit = b.scalar_like(x, 1.0);
        b.binary(Op::Lt, unit, size)?
    };
    let inverse = b.unary(Op::Recip, size)?;
    let mut t = b.select(large, inverse, size)?;
    for _ in 0..2 {
        let square = b.mul(t, t)?;
        let inner = b.with(Op::Add, square, 1.0)?;
        let root = b.unary(Op::Sqrt, inner)?;
        let below = b.with(Op::Add, root, 1.0)?;
        t = b.div(t, below)?;
    }
    let square = b.mul(t, t)?;
    let mut series = b.scalar_like(x, -1.0 / 23.0);
    for k in (0..11).rev() {
        let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
        series = b.mul(series, square)?;
        series = b.with(Op::Add, series, sign / (2.0 * f64::from(k) + 1.0))?;
    }
    let quarter = b.mul(t, series)?;
    let angle = b.with(Op::Mul, quarter, 4.0)?;
    let right = b.scalar_like(x, std::f64::consts::FRAC_PI_2);
    let rest = b.sub(right, angle)?;
    let angle = b.select(large, rest, angle)?;
    let minus = b.unary(Op::Neg, angle)?;
    let negative = b.with(Op::Lt, x, 0.0)?;
    b.select(negative, minus, angle)
}

pub(super) fn atan(b: &mut Builder, c: &Call) -> Outcome {
    one(arc_tangent(b, c.x(0)?)?)
}

/// `atan(x / √(1 - x²))`; at ±1 the quotient is infinite.
pub(super) fn asin(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let unit = b.scalar_like(x, 1.0);
    let (up, down) = (b.add(unit, x)?, b.sub(unit, x)?);
    let product = b.mul(up, down)?;
    let root = b.unary(Op::Sqrt, product)?;
    let ratio = b.div(x, root)?;
    one(arc_tangent(b, ratio)?)
}

/// `2 atan(√((1 - x) / (1 + x)))`: exact at 1, where `π/2 - asin(x)` cancels.
pub(super) fn acos(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let unit = b.scalar_like(x, 1.0);
    let (up, down) = (b.add(unit, x)?, b.sub(unit, x)?);
    let ratio = b.div(down, up)?;
    let root = b.unary(Op::Sqrt, ratio)?;
    let half = arc_tangent(b, root)?;
    one(b.with(Op::Mul, half, 2.0)?)
}

/// Shifts by multiplying and dividing with a power of two from a table. A count outside of the width
/// leaves only the sign.
pub(super) fn bit_shift(b: &mut Builder, c: &Call) -> Outcome {
    let (x, y) = (c.x(0)?, c.x(1)?);
    let (dtype, y_dtype) = (b.dtype(x), b.dtype(y));
    if dtype.is_float() || dtype == DType::Bool {
        return c.form(format!("a shift of {dtype}"), "integers");
    }
    let signed = dtype.class() == crate::dtype::DTypeClass::Signed;
    let bits = dtype.bits();
    let powers: Vec<i64> = (0..bits).map(|i| 1i64.wrapping_shl(i as u32)).collect();
    let powers = b.constant(crate::Tensor::from_i64(dtype, &[bits], &powers));
    // A negative count is a large one here.
    let most = b.constant(crate::Tensor::from_i64(y_dtype, &[], &[bits as i64 - 1]));
    let mut outside = b.binary(Op::Lt, most, y)?;
    if signed {
        let zero = b.scalar(y_dtype, 0.0);
        let negative = b.binary(Op::Lt, y, zero)?;
        outside = b.binary(Op::Or, outside, negative)?;
    }
    let zero_count = b.scalar(y_dtype, 0.0);
    let count = b.select(outside, zero_count, y)?;
    let count = b.cast(count, DType::I64)?;
    let power = b.gather(powers, count, 0)?;
    let zero = b.scalar(dtype, 0.0);
    match c.word("direction", "")?.as_str() {
        "LEFT" => {
            let shifted = b.mul(x, power)?;
            one(b.select(outside, zero, shifted)?)
        }
        "RIGHT" if !signed => {
            let shifted = b.div(x, power)?;
            one(b.select(outside, zero, shifted)?)
        }
        "RIGHT" => {
            // Of a negative number the complement is shifted: quotients round towards zero.
            let ones = b.constant(crate::Tensor::from_i64(dtype, &[], &[-1]));
            let negative = b.binary(Op::Lt, x, zero)?;
            let sign = b.select(negative, ones, zero)?;
            let size = b.binary(Op::Xor, x, sign)?;
            let shifted = b.div(size, power)?;
            let shifted = b.select(outside, zero, shifted)?;
            one(b.binary(Op::Xor, shifted, sign)?)
        }
        other => c.form(format!("direction `{other}`"), "LEFT and RIGHT"),
    }
}

/// The same bits as another type: of a constant.
pub(super) fn bit_cast(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let code = c.int_opt("to")?.ok_or(OpError::MissingAttribute { name: "to" })?;
    let Some(to) = i32::try_from(code).ok().and_then(DType::from_onnx) else {
        return c.form(format!("element type {code}"), "numbers and booleans");
    };
    if to.bits() != b.dtype(x).bits() {
        let (found, expected) = (to.to_string(), format!("a type as wide as {}", b.dtype(x)));
        return Err(OpError::Attribute { name: "to".into(), found, expected });
    }
    let known =
        b.known(x).ok_or_else(|| OpError::Dynamic { what: "what is reinterpreted".into() })?;
    let mut bytes = known.bytes.clone();
    if to == DType::Bool {
        bytes = bytes.iter().map(|&byte| u8::from(byte != 0)).collect::<Vec<_>>().into();
    }
    let tensor = crate::Tensor::new(to, &known.extents.clone(), bytes);
    one(b.constant(tensor))
}

pub(super) fn tan(b: &mut Builder, c: &Call) -> Outcome {
    let (sin, cos) = (b.unary(Op::Sin, c.x(0)?)?, b.unary(Op::Cos, c.x(0)?)?);
    one(b.div(sin, cos)?)
}

/// `(exp(x) + sign exp(-x)) / 2`.
fn hyperbolic(b: &mut Builder, x: Value, op: Op) -> Outcome {
    let minus = b.unary(Op::Neg, x)?;
    let (up, down) = (b.unary(Op::Exp, x)?, b.unary(Op::Exp, minus)?);
    let both = b.binary(op, up, down)?;
    one(b.with(Op::Mul, both, 0.5)?)
}

pub(super) fn sinh(b: &mut Builder, c: &Call) -> Outcome {
    hyperbolic(b, c.x(0)?, Op::Sub)
}

pub(super) fn cosh(b: &mut Builder, c: &Call) -> Outcome {
    hyperbolic(b, c.x(0)?, Op::Add)
}

/// `sign(x) log(|x| + sqrt(x² + 1))`.
pub(super) fn asinh(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let (size, sign, square) = (b.unary(Op::Abs, x)?, b.unary(Op::Sign, x)?, b.mul(x, x)?);
    let inner = b.with(Op::Add, square, 1.0)?;
    let root = b.unary(Op::Sqrt, inner)?;
    let sum = b.add(size, root)?;
    let log = b.unary(Op::Log, sum)?;
    one(b.mul(sign, log)?)
}

/// `log(x + sqrt(x² - 1))`.
pub(super) fn acosh(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let square = b.mul(x, x)?;
    let inner = b.with(Op::Sub, square, 1.0)?;
    let root = b.unary(Op::Sqrt, inner)?;
    let sum = b.add(x, root)?;
    one(b.unary(Op::Log, sum)?)
}

/// `log((1 + x) / (1 - x)) / 2`.
pub(super) fn atanh(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let unit = b.scalar_like(x, 1.0);
    let (up, down) = (b.add(unit, x)?, b.sub(unit, x)?);
    let ratio = b.div(up, down)?;
    let log = b.unary(Op::Log, ratio)?;
    one(b.with(Op::Mul, log, 0.5)?)
}

/// Whole constant exponents up to 3 become products; others stay powers, because `x^0.5` and a square
/// root differ at -0 and -∞.
pub(super) fn pow(b: &mut Builder, c: &Call) -> Outcome {
    let (x, y) = operands(b, c)?;
    let keeps_shape = b.rank(y) <= b.rank(x);
    let exponent = b.known_scalar(y).filter(|_| keeps_shape && b.dtype(x).is_float());
    match exponent {
        Some(1.0) => one(x),
        Some(2.0) => one(b.mul(x, x)?),
        Some(3.0) => {
            let square = b.mul(x, x)?;
            one(b.mul(square, x)?)
        }
        Some(-1.0) => one(b.unary(Op::Recip, x)?),
        _ => one(b.binary(Op::Pow, x, y)?),
    }
}

pub(super) fn modulo(b: &mut Builder, c: &Call) -> Outcome {
    let op = if c.int("fmod", 0)? != 0 { Op::Fmod } else { Op::Mod };
    one(b.binary(op, c.x(0)?, c.x(1)?)?)
}

/// Folds any number of operands from the left.
fn variadic(b: &mut Builder, c: &Call, op: Op) -> Result<Value, OpError> {
    let all = c.all()?;
    let (&first, rest) = all.split_first().ok_or(OpError::MissingInput { index: 0 })?;
    rest.iter().try_fold(first, |acc, &x| b.binary(op, acc, x))
}

pub(super) fn min(b: &mut Builder, c: &Call) -> Outcome {
    one(variadic(b, c, Op::Min)?)
}

pub(super) fn max(b: &mut Builder, c: &Call) -> Outcome {
    one(variadic(b, c, Op::Max)?)
}

pub(super) fn sum(b: &mut Builder, c: &Call) -> Outcome {
    one(variadic(b, c, Op::Add)?)
}

pub(super) fn mean(b: &mut Builder, c: &Call) -> Outcome {
    let sum = variadic(b, c, Op::Add)?;
    one(b.with(Op::Div, sum, c.inputs.len() as f64)?)
}

pub(super) fn select(b: &mut Builder, c: &Call) -> Outcome {
    one(b.select(c.x(0)?, c.x(1)?, c.x(2)?)?)
}

/// Before opset 6 the type is a word, such as `FLOAT`.
pub(super) fn cast(b: &mut Builder, c: &Call) -> Outcome {
    if c.opset < 6 {
        let name = c.word("to", "")?;
        return match old_dtype(&name) {
            Some(to) => one(cast_to(b, c, c.x(0)?, to)?),
            None => c.form(
                format!("a cast to element type `{name}`"),
                "casts between numbers and booleans",
            ),
        };
    }
    let code = c.int_opt("to")?.ok_or(OpError::MissingAttribute { name: "to" })?;
    let to = i32::try_from(code).ok().and_then(DType::from_onnx);
    match to {
        Some(to) => one(cast_to(b, c, c.x(0)?, to)?),
        None => {
            c.form(format!("a cast to element type {code}"), "casts between numbers and booleans")
        }
    }
}

/// Element types that were there before opset 6, by their names in the format.
fn old_dtype(name: &str) -> Option<DType> {
    Some(match name {
        "FLOAT" => DType::F32,
        "UINT8" => DType::U8,
        "INT8" => DType::I8,
        "UINT16" => DType::U16,
        "INT16" => DType::I16,
        "INT32" => DType::I32,
        "INT64" => DType::I64,
        "BOOL" => DType::Bool,
        "FLOAT16" => DType::F16,
        "DOUBLE" => DType::F64,
        "UINT32" => DType::U32,
        "UINT64" => DType::U64,
        _ => return None,
    })
}

pub(super) fn cast_like(b: &mut Builder, c: &Call) -> Outcome {
    let to = b.dtype(c.x(1)?);
    one(cast_to(b, c, c.x(0)?, to)?)
}

/// A cast as the attributes say it: floats of 8 bits saturate unless `saturate` is 0, and E8M0 is rounded
/// up unless `round_mode` says otherwise.
pub(super) fn cast_to(b: &mut Builder, c: &Call, x: Value, to: DType) -> Result<Value, OpError> {
    if to == DType::F8E8M0 && b.dtype(x) != to {
        return cast_to_power(b, c, x);
    }
    let y = b.cast(x, to)?;
    // What rounds to something beyond the largest finite number: from the middle between it and the next
    // (behind the middle in E4M3, where the largest is even).
    let (limit, beyond) = match to {
        DType::F8E4M3 => (464.0, f64::NAN),
        DType::F8E5M2 => (61440.0, f64::INFINITY),
        DType::F8E4M3FNUZ => (248.0, f64::NAN),
        DType::F8E5M2FNUZ => (61440.0, f64::NAN),
        _ => return Ok(y),
    };
    if c.int("saturate", 1)? != 0 || !b.dtype(x).is_float() {
        return Ok(y);
    }
    let wide = b.cast(x, DType::F32)?;
    let size = b.unary(Op::Abs, wide)?;
    let limit = b.scalar(DType::F32, limit);
    let op = if to == DType::F8E4M3 { Op::Lt } else { Op::Le };
    let over = b.binary(op, limit, size)?;
    // From memory, as the bits of an infinity: a cast of one would saturate.
    let special = |b: &mut Builder, x: f64| match x.is_infinite() {
        true => {
            let code = if x > 0.0 { 0x7c } else { 0xfc };
            b.constant(crate::Tensor::new(to, &[], vec![code]))
        }
        false => b.scalar(to, x),
    };
    let (above, below) = (special(b, beyond), special(b, -beyond));
    let negative = b.with(Op::Lt, wide, 0.0)?;
    let special = b.select(negative, below, above)?;
    b.select(over, special, y)
}

/// To a power of two: the core cast rounds to the nearest and ties up. The greatest power of two that is
/// not above `x` is the one nearest to 3/4 of it.
fn cast_to_power(b: &mut Builder, c: &Call, x: Value) -> Result<Value, OpError> {
    let to = DType::F8E8M0;
    let x = b.cast(x, DType::F32)?;
    let mode = c.word("round_mode", "up")?;
    let mut y = match mode.as_str() {
        "nearest" => b.cast(x, to)?,
        "up" | "down" => {
            let small = b.with(Op::Mul, x, 0.75)?;
            let power = b.cast(small, to)?;
            let below = b.cast(power, DType::F32)?;
            if mode == "down" {
                power
            } else {
                let (inexact, above) = (b.binary(Op::Lt, below, x)?, b.with(Op::Mul, below, 2.0)?);
                let up = b.select(inexact, above, below)?;
                b.cast(up, to)?
            }
        }
        other => return c.form(format!("round_mode `{other}`"), "up, down and nearest"),
    };
    if c.int("saturate", 1)? == 0 {
        let (low, high) =
            (b.scalar(DType::F32, 2f64.powi(-127)), b.scalar(DType::F32, 2f64.powi(127)));
        let (below, above) = (b.binary(Op::Lt, x, low)?, b.binary(Op::Lt, high, x)?);
        let nan = b.scalar(to, f64::NAN);
        for outside in [below, above] {
            y = b.select(outside, nan, y)?;
        }
    }
    Ok(y)
}

pub(super) fn identity(_: &mut Builder, c: &Call) -> Outcome {
    match c.inputs.first() {
        Some(Some(item)) => Ok(vec![item.clone()]),
        _ => Err(OpError::MissingInput { index: 0 }),
    }
}

/// Inference: the operand itself, and a mask of ones. Training is an operand that says so.
pub(super) fn dropout(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    if let Some(training) = c.opt(2)?
        && b.known_ints(training, "`training_mode`")?.first() == Some(&1)
    {
        // With ratio 0 nothing is drawn.
        let ratio = match c.opt(1)? {
            Some(ratio) => b.known_floats(ratio, "`ratio`")?.first().copied().unwrap_or(0.5),
            None => 0.5,
        };
        if ratio != 0.0 {
            return super::random::dropped(b, c, x, ratio);
        }
    }
    let mut results = vec![x.into()];
    if c.wants(1) {
        // Before opset 10 the mask had the operand's type.
        let dtype = if c.opset < 10 { b.dtype(x) } else { DType::Bool };
        let ones = b.scalar(dtype, 1.0);
        let extents = b.extents(x);
        results.push(b.expand(ones, &extents)?.into());
    }
    Ok(results)
}

/// `x < 0 ? negative : x`, NaN stays.
fn where_negative(b: &mut Builder, x: Value, negative: Value) -> Outcome {
    let below = b.with(Op::Lt, x, 0.0)?;
    one(b.select(below, negative, x)?)
}

pub(super) fn leaky_relu(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let scaled = b.with(Op::Mul, x, c.float("alpha", 0.01)?)?;
    where_negative(b, x, scaled)
}

pub(super) fn prelu(b: &mut Builder, c: &Call) -> Outcome {
    let (x, mut slope) = (c.x(0)?, c.x(1)?);
    // Before opset 7 a list is per channel.
    if c.opset < 7 && b.rank(x) > 1 && b.ty(slope).n_elems() > 1 {
        slope = b.channels(slope, b.rank(x))?;
    }
    let scaled = b.mul(x, slope)?;
    where_negative(b, x, scaled)
}

/// `alpha (exp(x / beta) - 1)`.
fn exp_minus_one(b: &mut Builder, x: Value, alpha: f64, beta: f64) -> Result<Value, OpError> {
    let x = if beta == 1.0 { x } else { b.with(Op::Div, x, beta)? };
    let exp = b.unary(Op::Exp, x)?;
    let minus = b.with(Op::Sub, exp, 1.0)?;
    if alpha == 1.0 { Ok(minus) } else { b.with(Op::Mul, minus, alpha) }
}

pub(super) fn elu(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let negative = exp_minus_one(b, x, c.float("alpha", 1.0)?, 1.0)?;
    where_negative(b, x, negative)
}

pub(super) fn celu(b: &mut Builder, c: &Call) -> Outcome {
    let (x, alpha) = (c.x(0)?, c.float("alpha", 1.0)?);
    let negative = exp_minus_one(b, x, alpha, alpha)?;
    where_negative(b, x, negative)
}

pub(super) fn selu(b: &mut Builder, c: &Call) -> Outcome {
    // The defaults are ONNX's, from Klambauer et al., arXiv 1706.02515; before opset 6 with fewer digits.
    let (alpha, gamma) = if c.opset < 6 { (1.6732, 1.0507) } else { (1.673_263_2, 1.050_701) };
    let (alpha, gamma) = (c.float("alpha", alpha)?, c.float("gamma", gamma)?);
    let x = c.x(0)?;
    let negative = exp_minus_one(b, x, alpha, 1.0)?;
    let below = b.with(Op::Lt, x, 0.0)?;
    let either = b.select(below, negative, x)?;
    one(b.with(Op::Mul, either, gamma)?)
}

pub(super) fn thresholded_relu(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let (alpha, zero) = (b.scalar_like(x, c.float("alpha", 1.0)?), b.scalar_like(x, 0.0));
    let above = b.binary(Op::Lt, alpha, x)?;
    one(b.select(above, x, zero)?)
}

/// `max(0, min(1, alpha x + beta))`.
fn hard(b: &mut Builder, x: Value, alpha: f64, beta: f64) -> Result<Value, OpError> {
    let scaled = b.with(Op::Mul, x, alpha)?;
    let shifted = b.with(Op::Add, scaled, beta)?;
    let capped = b.with(Op::Min, shifted, 1.0)?;
    b.with(Op::Max, capped, 0.0)
}

pub(super) fn hard_sigmoid(b: &mut Builder, c: &Call) -> Outcome {
    one(hard(b, c.x(0)?, c.float("alpha", 0.2)?, c.float("beta", 0.5)?)?)
}

pub(super) fn hard_swish(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let gate = hard(b, x, f64::from(1.0f32 / 6.0), 0.5)?;
    one(b.mul(x, gate)?)
}

/// `max(x, 0) + log(1 + exp(-|x|))`: does not overflow.
pub(super) fn soft_plus(b: &mut Builder, x: Value) -> Result<Value, OpError> {
    let size = b.unary(Op::Abs, x)?;
    let minus = b.unary(Op::Neg, size)?;
    let exp = b.unary(Op::Exp, minus)?;
    let inner = b.with(Op::Add, exp, 1.0)?;
    let (log, positive) = (b.unary(Op::Log, inner)?, b.unary(Op::Relu, x)?);
    b.add(positive, log)
}

pub(super) fn softplus(b: &mut Builder, c: &Call) -> Outcome {
    one(soft_plus(b, c.x(0)?)?)
}

pub(super) fn softsign(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let size = b.unary(Op::Abs, x)?;
    let below = b.with(Op::Add, size, 1.0)?;
    one(b.div(x, below)?)
}

pub(super) fn mish(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let soft = soft_plus(b, x)?;
    let gate = b.unary(Op::Tanh, soft)?;
    one(b.mul(x, gate)?)
}

/// `x sigmoid(alpha x)`.
pub(super) fn silu(b: &mut Builder, x: Value, alpha: f64) -> Result<Value, OpError> {
    let scaled = if alpha == 1.0 { x } else { b.with(Op::Mul, x, alpha)? };
    let gate = b.unary(Op::Sigmoid, scaled)?;
    b.mul(x, gate)
}

pub(super) fn swish(b: &mut Builder, c: &Call) -> Outcome {
    one(silu(b, c.x(0)?, c.float("alpha", 1.0)?)?)
}

/// `swish(a) * b`.
pub(super) fn swi_glu(b: &mut Builder, c: &Call) -> Outcome {
    let gate = silu(b, c.x(0)?, c.float("alpha", 1.0)?)?;
    one(b.mul(gate, c.x(1)?)?)
}

pub(super) fn quick_gelu(b: &mut Builder, c: &Call) -> Outcome {
    one(silu(b, c.x(0)?, c.float("alpha", 1.702)?)?)
}

/// `x/2 (1 + erf(x / √2))`.
fn gelu_erf(b: &mut Builder, x: Value) -> Result<Value, OpError> {
    let scaled = b.with(Op::Mul, x, std::f64::consts::FRAC_1_SQRT_2)?;
    let erf = b.unary(Op::Erf, scaled)?;
    half_gate(b, x, erf)
}

/// `x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
fn gelu_tanh(b: &mut Builder, x: Value) -> Result<Value, OpError> {
    let square = b.mul(x, x)?;
    let cube = b.mul(square, x)?;
    let scaled = b.with(Op::Mul, cube, 0.044_715)?;
    let sum = b.add(x, scaled)?;
    let inner = b.with(Op::Mul, sum, (2.0 / std::f64::consts::PI).sqrt())?;
    let tanh = b.unary(Op::Tanh, inner)?;
    half_gate(b, x, tanh)
}

/// `x/2 (1 + gate)`.
fn half_gate(b: &mut Builder, x: Value, gate: Value) -> Result<Value, OpError> {
    let (half, above) = (b.with(Op::Mul, x, 0.5)?, b.with(Op::Add, gate, 1.0)?);
    b.mul(half, above)
}

pub(super) fn gelu(b: &mut Builder, c: &Call) -> Outcome {
    match c.word("approximate", "none")?.as_str() {
        "none" => one(gelu_erf(b, c.x(0)?)?),
        "tanh" => one(gelu_tanh(b, c.x(0)?)?),
        other => c.form(format!("approximation `{other}`"), "`none` and `tanh`"),
    }
}

fn with_bias(b: &mut Builder, c: &Call) -> Result<Value, OpError> {
    let x = c.x(0)?;
    match c.opt(1)? {
        Some(bias) => b.add(x, bias),
        None => Ok(x),
    }
}

pub(super) fn fast_gelu(b: &mut Builder, c: &Call) -> Outcome {
    let x = with_bias(b, c)?;
    one(gelu_tanh(b, x)?)
}

pub(super) fn bias_gelu(b: &mut Builder, c: &Call) -> Outcome {
    let x = with_bias(b, c)?;
    one(gelu_erf(b, x)?)
}

/// `x < -lambd: x + bias; x > lambd: x - bias; else 0`.
pub(super) fn shrink(b: &mut Builder, c: &Call) -> Outcome {
    let (x, lambd, bias) = (c.x(0)?, c.float("lambd", 0.5)?, c.float("bias", 0.0)?);
    let (low, high, zero) =
        (b.scalar_like(x, -lambd), b.scalar_like(x, lambd), b.scalar_like(x, 0.0));
    let (up, down) = (b.with(Op::Add, x, bias)?, b.with(Op::Sub, x, bias)?);
    let (below, above) = (b.binary(Op::Lt, x, low)?, b.binary(Op::Lt, high, x)?);
    let outer = b.select(above, down, zero)?;
    one(b.select(below, up, outer)?)
}

/// Bounds are attributes before opset 11 and optional operands since.
pub(super) fn clip(b: &mut Builder, c: &Call) -> Outcome {
    let mut x = c.x(0)?;
    let (low, high) = if c.opset < 11 {
        let (low, high) = (c.float("min", f32::MIN)?, c.float("max", f32::MAX)?);
        let low = (low > f64::from(f32::MIN)).then(|| b.scalar_like(x, low));
        (low, (high < f64::from(f32::MAX)).then(|| b.scalar_like(x, high)))
    } else {
        (c.opt(1)?, c.opt(2)?)
    };
    // A bound has one element; its rank must not become the result's.
    for (op, bound) in [(Op::Max, low), (Op::Min, high)] {
        if let Some(bound) = bound {
            let bound = b.reshape(bound, &[])?;
            x = b.binary(op, x, bound)?;
        }
    }
    one(x)
}
