//! Operators whose result at an index depends on the operands at that index.

use crate::graph::Op;
use crate::onnx::builder::Builder;
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
            one(b.binary(Op::$op, c.x(0)?, c.x(1)?)?)
        }
    )+};
}

unaries! {
    neg Neg abs Abs sign Sign relu Relu exp Exp log Log sqrt Sqrt reciprocal Recip erf Erf tanh Tanh
    sigmoid Sigmoid sin Sin cos Cos floor Floor ceil Ceil round Round not Not is_nan IsNan
}

binaries! {
    add Add sub Sub mul Mul div Div and And or Or xor Xor equal Eq less Lt less_or_equal Le
}

pub(super) fn greater(b: &mut Builder, c: &Call) -> Outcome {
    one(b.binary(Op::Lt, c.x(1)?, c.x(0)?)?)
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
    let (x, y) = (c.x(0)?, c.x(1)?);
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

pub(super) fn cast(b: &mut Builder, c: &Call) -> Outcome {
    let code = c.int_opt("to")?.ok_or(OpError::MissingAttribute { name: "to" })?;
    let to = i32::try_from(code).ok().and_then(DType::from_onnx);
    match to {
        Some(to) => one(b.cast(c.x(0)?, to)?),
        None => {
            c.form(format!("a cast to element type {code}"), "casts between numbers and booleans")
        }
    }
}

pub(super) fn cast_like(b: &mut Builder, c: &Call) -> Outcome {
    let to = b.dtype(c.x(1)?);
    one(b.cast(c.x(0)?, to)?)
}

pub(super) fn identity(_: &mut Builder, c: &Call) -> Outcome {
    match c.inputs.first() {
        Some(Some(item)) => Ok(vec![item.clone()]),
        _ => Err(OpError::MissingInput { index: 0 }),
    }
}

/// Inference: the operand itself, and a mask of ones.
pub(super) fn dropout(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    if let Some(training) = c.opt(2)?
        && b.known_ints(training, "`training_mode`")?.first() == Some(&1)
    {
        return c.form("training mode", "inference");
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
    let (x, slope) = (c.x(0)?, c.x(1)?);
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
    // The defaults are ONNX's, from Klambauer et al., arXiv 1706.02515.
    let (alpha, gamma) = (c.float("alpha", 1.673_263_2)?, c.float("gamma", 1.050_701)?);
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
