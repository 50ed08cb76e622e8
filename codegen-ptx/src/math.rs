//! Map operators on scalars: accurate formulas from the operations that the hardware has.
//!
//! Polynomials are minimax fits (Lawson iteration on 400 Chebyshev points, in f64); the error next to
//! each is its maximum over the interval, before rounding to `f32`. Errors of results are a few ulp.

mod double;
mod narrow;

use eggine_ir::dtype::DTypeClass;
use eggine_ir::graph::OpClass;
use eggine_ir::{DType, Graph, NodeKind, Op, Tensor};

use crate::kir::{BinaryOp, Builder, CompareOp, Scalar, UnaryOp, Val, fold};

/// Element types of an operator's operands and result.
pub(crate) struct Types {
    pub(crate) args: Vec<DType>,
    pub(crate) out: DType,
}

/// Type in a register: booleans are predicates.
fn register(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Pred,
        _ => Scalar::of(dtype),
    }
}

/// The first node of a graph that kernels cannot compute, with the reason.
pub(crate) fn unsupported(graph: &Graph) -> Option<(String, &'static str)> {
    for (value, node) in graph.nodes.iter() {
        let NodeKind::Apply(op, _, args) = &node.kind else { continue };
        let name = || format!("{value}: {op}");
        let sums = matches!(op.spec().class, OpClass::Reduce | OpClass::Window | OpClass::Contract)
            || *op == Op::Resize;
        let coded = |&arg: &eggine_ir::Value| narrow::is_coded(graph.ty(arg).dtype);
        if sums && (args.iter().any(coded) || coded(&value)) {
            return Some((name(), "floats of 8 and 4 bits are not summed"));
        }
        let orders =
            matches!(op, Op::ReduceMax | Op::ReduceMin | Op::ArgMax | Op::ArgMin | Op::MaxPool);
        if orders && graph.ty(args[0]).dtype == DType::U64 {
            return Some((name(), "there is no u64 version of the reduction"));
        }
        if op.spec().class != OpClass::Generate && node.ty.n_elems() > i32::MAX as usize {
            return Some((name(), "indices are 32 bits"));
        }
    }
    None
}

/// An element of a constant.
pub(crate) fn constant(b: &mut Builder, tensor: &Tensor, at: usize) -> Val {
    let n_bits = tensor.dtype.bits();
    if narrow::is_coded(tensor.dtype) {
        let per_byte = 8 / n_bits;
        let code =
            tensor.bytes[at / per_byte] >> (n_bits * (at % per_byte)) & (0xff >> (8 - n_bits));
        return b.i32(i32::from(code));
    }
    let width = n_bits / 8;
    let element = match width {
        // Several to a byte.
        0 => Tensor::from_i64(tensor.dtype, &[], &[tensor.to_i64()[at]]),
        _ => Tensor::new(tensor.dtype, &[], tensor.bytes.slice(at * width..(at + 1) * width)),
    };
    match register(tensor.dtype) {
        Scalar::Pred => b.pred(element.to_i64()[0] != 0),
        Scalar::I32 => b.i32(element.to_i64()[0] as i32),
        Scalar::I64 => b.i64(element.to_i64()[0]),
        Scalar::F32 => b.f32(element.to_f64()[0] as f32),
        Scalar::F64 => b.f64(element.to_f64()[0]),
    }
}

/// A number of a type, the nearest one.
pub(crate) fn number(b: &mut Builder, dtype: DType, x: f64) -> Val {
    if narrow::is_coded(dtype) {
        return constant(b, &Tensor::from_f64(dtype, &[], &[x]), 0);
    }
    match register(dtype) {
        Scalar::Pred => b.pred(x != 0.0),
        Scalar::I32 => {
            let (lo, hi) = int_range(dtype);
            b.i32((x as i64).clamp(lo, hi) as i32)
        }
        Scalar::I64 if dtype == DType::U64 => b.i64(x as u64 as i64),
        Scalar::I64 if dtype == DType::U32 => b.i64(i64::from(x as u32)),
        Scalar::I64 => b.i64(x as i64),
        Scalar::F32 => b.f32(x as f32),
        Scalar::F64 => b.f64(x),
    }
}

fn int_range(dtype: DType) -> (i64, i64) {
    let bits = dtype.bits() as u32;
    match dtype.class() {
        DTypeClass::Unsigned if bits == 64 => (i64::MIN, i64::MAX),
        DTypeClass::Unsigned => (0, (1i64 << bits) - 1),
        DTypeClass::Bool => (0, 1),
        _ if bits == 64 => (i64::MIN, i64::MAX),
        _ => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
    }
}

/// Brings an `i32` into the range of a narrower type, modulo its size, and an `i64` into that of `u32`.
pub(crate) fn wrap(b: &mut Builder, val: Val, to: DType) -> Val {
    if to == DType::U32 && b.ty(val) == Scalar::I64 {
        let mask = b.i64(i64::from(u32::MAX));
        return b.and(val, mask);
    }
    let bits = to.bits() as i32;
    if b.ty(val) != Scalar::I32 || bits >= 32 || to == DType::Bool {
        return val;
    }
    let (lo, hi) = int_range(to);
    let (known_lo, known_hi) = b.range(val);
    if known_lo >= lo && known_hi <= hi {
        return val;
    }
    if to.class() == DTypeClass::Unsigned {
        let mask = b.i32(hi as i32);
        return b.and(val, mask);
    }
    let shift = b.i32(32 - bits);
    let up = b.shl(val, shift);
    b.shr(up, shift)
}

/// Conversion between element types, as ONNX `Cast` has it.
pub(crate) fn cast(b: &mut Builder, val: Val, from: DType, to: DType) -> Val {
    if narrow::is_coded(from) {
        let number = narrow::decode(b, val, from);
        return cast(b, number, DType::F32, to);
    }
    if narrow::is_coded(to) {
        // Integers that an `f32` may not hold go by way of `f64`.
        let wide = if from.bits() < 32 { DType::F32 } else { DType::F64 };
        let number = if from.is_float() { val } else { cast(b, val, from, wide) };
        return narrow::encode(b, number, to);
    }
    let target = register(to);
    if to == DType::Bool {
        if from == DType::Bool {
            return val;
        }
        let zero = number(b, from, 0.0);
        return b.compare(CompareOp::Ne, val, zero);
    }
    if from == DType::U64 || to == DType::U64 || to == DType::U32 {
        return cast_unsigned(b, val, from, to);
    }
    if from.is_float() && to.bits() < 8 {
        return wrapped_whole(b, val, to);
    }
    let narrow_int = !to.is_float() && to.bits() < 32;
    if from.is_float() && narrow_int {
        let (lo, hi) = int_range(to);
        let whole = b.convert(val, Scalar::I32);
        let (lo, hi) = (b.i32(lo as i32), b.i32(hi as i32));
        let whole = b.max(whole, lo);
        return b.min(whole, hi);
    }
    let converted = if b.ty(val) == target { val } else { b.convert(val, target) };
    if narrow_int { wrap(b, converted, to) } else { converted }
}

/// The whole part of a float in an integer type of 4 or 2 bits, modulo its size: of 128 bits, as the
/// reference evaluator has it, of which all are ones where there are too few.
fn wrapped_whole(b: &mut Builder, val: Val, to: DType) -> Val {
    let (held, limit) = match b.ty(val) {
        Scalar::F64 => (Scalar::I64, 2f64.powi(63)),
        _ => (Scalar::I32, 2f64.powi(31)),
    };
    let number = |b: &mut Builder, x: f64| match held {
        Scalar::I64 => b.f64(x),
        _ => b.f32(x as f32),
    };
    let whole = b.convert(val, held);
    let whole = if held == Scalar::I64 { b.convert(whole, Scalar::I32) } else { whole };
    // The conversion saturates, but the lowest bits of numbers this large are 0.
    let (low, high) = (number(b, limit), number(b, 2f64.powi(127)));
    let (above, below) = (b.le(low, val), b.lt(val, high));
    let (large, zero) = (b.and(above, below), b.i32(0));
    let whole = b.select(large, zero, whole);
    wrap(b, whole, to)
}

/// Conversions from `u64`, and to `u64` and `u32`.
fn cast_unsigned(b: &mut Builder, val: Val, from: DType, to: DType) -> Val {
    let target = register(to);
    match (from.is_float(), to.is_float()) {
        // Truncates and saturates; NaN gives 0.
        (true, false) if to == DType::U64 => {
            let (zero, half) = (number(b, from, 0.0), number(b, from, 2f64.powi(63)));
            let positive = b.max(val, zero);
            let low = b.convert(positive, Scalar::I64);
            let minus_half = b.neg(half);
            let rest = b.add(positive, minus_half);
            let upper = b.convert(rest, Scalar::I64);
            let top = b.i64(i64::MIN);
            let upper = b.xor(upper, top);
            // From 2⁶⁴ on the rest saturates at 2⁶³ − 1, which is all ones with the top bit.
            let is_upper = b.compare(CompareOp::Le, half, positive);
            let result = b.select(is_upper, upper, low);
            let (nan, none) = (b.compare(CompareOp::Ne, val, val), b.i64(0));
            b.select(nan, none, result)
        }
        (true, false) => {
            let whole = b.convert(val, Scalar::I64);
            let (low, high) = (b.i64(0), b.i64(i64::from(u32::MAX)));
            let whole = b.max(whole, low);
            b.min(whole, high)
        }
        // An odd bit that is lost decides ties: halved with it, and doubled.
        (false, true) if from == DType::U64 => {
            let (zero, one) = (b.i64(0), b.i64(1));
            let plain = b.convert(val, target);
            let shift = b.i32(1);
            let shifted = b.binary(BinaryOp::Shr, val, shift);
            let mask = b.i64(i64::MAX);
            let (shifted, odd) = (b.and(shifted, mask), b.and(val, one));
            let halved = b.or(shifted, odd);
            let halved = b.convert(halved, target);
            let doubled = b.add(halved, halved);
            let large = b.lt(val, zero);
            b.select(large, doubled, plain)
        }
        _ => {
            let converted = if b.ty(val) == target { val } else { b.convert(val, target) };
            wrap(b, converted, to)
        }
    }
}

/// An `u64` such that the order of signed integers is that of unsigned ones.
fn ordered(b: &mut Builder, dtype: DType, val: Val) -> Val {
    if dtype != DType::U64 {
        return val;
    }
    let top = b.i64(i64::MIN);
    b.xor(val, top)
}

/// A map operator on one lane.
pub(crate) fn map(b: &mut Builder, op: Op, types: &Types, x: &[Val]) -> Val {
    let float = types.args[0].is_float();
    let double = types.args[0] == DType::F64;
    let computes = !matches!(op, Op::Cast | Op::Select);
    if computes && types.args.iter().chain([&types.out]).any(|&dtype| narrow::is_coded(dtype)) {
        let number = |dtype| if narrow::is_coded(dtype) { DType::F32 } else { dtype };
        let numbers = Types {
            args: types.args.iter().map(|&dtype| number(dtype)).collect(),
            out: number(types.out),
        };
        let x: Vec<Val> = (types.args.iter().zip(x))
            .map(
                |(&dtype, &x)| {
                    if narrow::is_coded(dtype) { narrow::decode(b, x, dtype) } else { x }
                },
            )
            .collect();
        let result = map(b, op, &numbers, &x);
        return match narrow::is_coded(types.out) {
            true => narrow::encode_result(b, result, types.out),
            false => result,
        };
    }
    match op {
        Op::Neg => {
            let negative = b.neg(x[0]);
            wrap(b, negative, types.out)
        }
        Op::Abs | Op::Relu if types.out.class() == DTypeClass::Unsigned => x[0],
        Op::Abs => {
            let magnitude = b.unary(UnaryOp::Abs, x[0]);
            wrap(b, magnitude, types.out)
        }
        Op::Sign => {
            let (zero, one, minus) =
                (number(b, types.out, 0.0), number(b, types.out, 1.0), number(b, types.out, -1.0));
            if types.out.class() == DTypeClass::Unsigned {
                let some = b.compare(CompareOp::Ne, x[0], zero);
                return b.select(some, one, zero);
            }
            let (above, below) = (b.lt(zero, x[0]), b.lt(x[0], zero));
            // A zero and a NaN stay what they are.
            let rest = if float { x[0] } else { zero };
            let rest = b.select(below, minus, rest);
            b.select(above, one, rest)
        }
        Op::Relu => {
            let zero = number(b, types.out, 0.0);
            b.max(x[0], zero)
        }
        Op::Exp if double => double::exp(b, x[0]),
        Op::Exp => exp(b, x[0]),
        Op::Log if double => double::log(b, x[0]),
        Op::Log => log(b, x[0]),
        Op::Sqrt => b.unary(UnaryOp::Sqrt, x[0]),
        Op::Rsqrt => {
            let root = b.unary(UnaryOp::Sqrt, x[0]);
            b.unary(UnaryOp::Recip, root)
        }
        Op::Recip => b.unary(UnaryOp::Recip, x[0]),
        Op::Erf if double => double::erf(b, x[0]),
        Op::Erf => erf(b, x[0]),
        Op::Tanh if double => double::tanh(b, x[0]),
        Op::Tanh => tanh(b, x[0]),
        Op::Sigmoid => {
            let negative = b.neg(x[0]);
            let e = if double { double::exp(b, negative) } else { exp(b, negative) };
            let one = number(b, types.out, 1.0);
            let sum = b.add(e, one);
            b.unary(UnaryOp::Recip, sum)
        }
        Op::Sin if double => double::sine(b, x[0], 0),
        Op::Cos if double => double::sine(b, x[0], 1),
        Op::Sin => sine(b, x[0], 0),
        Op::Cos => sine(b, x[0], 1),
        Op::Floor => b.unary(UnaryOp::Floor, x[0]),
        Op::Ceil => b.unary(UnaryOp::Ceil, x[0]),
        Op::Round => b.unary(UnaryOp::Round, x[0]),
        Op::Not => b.not(x[0]),
        Op::IsNan => b.compare(CompareOp::Ne, x[0], x[0]),
        Op::Cast => cast(b, x[0], types.args[0], types.out),
        Op::Add | Op::Sub | Op::Mul => {
            let op = match op {
                Op::Add => BinaryOp::Add,
                Op::Sub => BinaryOp::Sub,
                _ => BinaryOp::Mul,
            };
            let result = b.binary(op, x[0], x[1]);
            wrap(b, result, types.out)
        }
        Op::Div if float => b.div(x[0], x[1]),
        Op::Div => {
            let quotient = int_division(b, BinaryOp::Div, types.out, x);
            wrap(b, quotient, types.out)
        }
        Op::Mod if float => {
            let rest = fmod(b, x[0], x[1]);
            let zero = number(b, types.out, 0.0);
            let (nonzero, negative, negative_divisor) =
                (b.compare(CompareOp::Ne, rest, zero), b.lt(rest, zero), b.lt(x[1], zero));
            let differs = b.xor(negative, negative_divisor);
            let differs = b.and(differs, nonzero);
            let up = b.add(rest, x[1]);
            b.select(differs, up, rest)
        }
        Op::Mod if types.out.class() == DTypeClass::Unsigned => {
            int_division(b, BinaryOp::Rem, types.out, x)
        }
        Op::Mod => {
            let rest = int_division(b, BinaryOp::Rem, types.out, x);
            let zero = number(b, types.out, 0.0);
            let (nonzero, negative, negative_divisor) =
                (b.ne(rest, zero), b.lt(rest, zero), b.lt(x[1], zero));
            let differs = b.xor(negative, negative_divisor);
            let differs = b.and(differs, nonzero);
            let up = b.add(rest, x[1]);
            b.select(differs, up, rest)
        }
        Op::Fmod if float => fmod(b, x[0], x[1]),
        Op::Fmod => int_division(b, BinaryOp::Rem, types.out, x),
        Op::Pow => pow(b, types, x),
        Op::Min | Op::Max if types.out == DType::U64 => {
            let keys = [ordered(b, types.out, x[0]), ordered(b, types.out, x[1])];
            let less = b.lt(keys[0], keys[1]);
            let (if_less, otherwise) = if op == Op::Min { (x[0], x[1]) } else { (x[1], x[0]) };
            b.select(less, if_less, otherwise)
        }
        Op::Min => b.min(x[0], x[1]),
        Op::Max => b.max(x[0], x[1]),
        Op::And => b.and(x[0], x[1]),
        Op::Or => b.or(x[0], x[1]),
        Op::Xor => b.xor(x[0], x[1]),
        Op::Eq if b.ty(x[0]) == Scalar::Pred => {
            let differ = b.xor(x[0], x[1]);
            b.not(differ)
        }
        Op::Eq => b.eq(x[0], x[1]),
        Op::Lt | Op::Le if b.ty(x[0]) == Scalar::Pred => {
            let not = b.not(x[0]);
            if op == Op::Lt { b.and(not, x[1]) } else { b.or(not, x[1]) }
        }
        Op::Lt | Op::Le => {
            let keys = [ordered(b, types.args[0], x[0]), ordered(b, types.args[0], x[1])];
            if op == Op::Lt { b.lt(keys[0], keys[1]) } else { b.le(keys[0], keys[1]) }
        }
        Op::Select if b.ty(x[1]) == Scalar::Pred => {
            let not = b.not(x[0]);
            let (yes, no) = (b.and(x[0], x[1]), b.and(not, x[2]));
            b.or(yes, no)
        }
        Op::Select => b.select(x[0], x[1], x[2]),
        _ => unreachable!("{op} is not a map"),
    }
}

/// Truncated division or remainder; by 0 it is 0.
fn int_division(b: &mut Builder, op: BinaryOp, dtype: DType, x: &[Val]) -> Val {
    let (zero, one) = (number(b, dtype, 0.0), number(b, dtype, 1.0));
    let is_zero = b.eq(x[1], zero);
    let divisor = b.select(is_zero, one, x[1]);
    let result = match dtype {
        DType::U64 => unsigned_division(b, op, x[0], divisor),
        _ => b.binary(op, x[0], divisor),
    };
    b.select(is_zero, zero, result)
}

/// Division of the bits of `u64` by signed divisions (Warren, Hacker's Delight, 9-3): half of the
/// dividend is not negative, and its quotient doubled is at most one too small.
fn unsigned_division(b: &mut Builder, op: BinaryOp, x: Val, y: Val) -> Val {
    let (zero, one, shift) = (b.i64(0), b.i64(1), b.i32(1));
    let mask = b.i64(i64::MAX);
    let half = b.binary(BinaryOp::Shr, x, shift);
    let half = b.and(half, mask);
    // A divisor of 2⁶³ and more goes into the dividend once or not at all.
    let large = b.lt(y, zero);
    let divisor = b.select(large, one, y);
    let quotient = b.binary(BinaryOp::Div, half, divisor);
    let quotient = b.add(quotient, quotient);
    let quotient = b.select(large, zero, quotient);
    let product = b.mul(quotient, y);
    let rest = b.sub(x, product);
    let keys = [ordered(b, DType::U64, y), ordered(b, DType::U64, rest)];
    let once_more = b.le(keys[0], keys[1]);
    if op == BinaryOp::Rem {
        let less = b.sub(rest, y);
        return b.select(once_more, less, rest);
    }
    let more = b.add(quotient, one);
    b.select(once_more, more, quotient)
}

/// The remainder of truncated division, exactly. That of `f32` is one, and so is found in `f64`.
fn fmod(b: &mut Builder, x: Val, y: Val) -> Val {
    if b.ty(x) == Scalar::F64 {
        return double::fmod(b, x, y, double::F64_STEPS);
    }
    let (x, y) = (b.convert(x, Scalar::F64), b.convert(y, Scalar::F64));
    let rest = double::fmod(b, x, y, double::F32_STEPS);
    b.convert(rest, Scalar::F32)
}

/// `c₀ + c₁·x + c₂·x² + …`
fn polynomial(b: &mut Builder, x: Val, coefficients: &[f32]) -> Val {
    let mut rest = coefficients.iter().rev();
    let last = *rest.next().expect("a coefficient");
    let mut sum = b.f32(last);
    for &c in rest {
        let c = b.f32(c);
        sum = b.fma(sum, x, c);
    }
    sum
}

/// log₂ e, rounded, and what the rounding lost.
const LOG2_E: [f32; 2] = [std::f32::consts::LOG2_E, 1.925_963e-8];

/// eˣ: 2^(x·log₂e), with the part of the product that the rounding lost put back as a factor.
fn exp(b: &mut Builder, x: Val) -> Val {
    // Beyond these bounds the result is 0 or infinite; infinite arguments would give NaN below.
    let (low, high) = (b.f32(-150.0), b.f32(150.0));
    let x = b.max(x, low);
    let x = b.min(x, high);
    let (hi, lo) = (b.f32(LOG2_E[0]), b.f32(LOG2_E[1]));
    let product = b.mul(x, hi);
    let negative = b.neg(product);
    let lost = b.fma(x, hi, negative);
    let lost = b.fma(x, lo, lost);
    let power = b.unary(UnaryOp::Exp2Approx, product);
    let (ln2, one) = (b.f32(std::f32::consts::LN_2), b.f32(1.0));
    let factor = b.fma(lost, ln2, one);
    b.mul(power, factor)
}

/// Natural logarithm. The hardware's has an absolute error near 1, so there it is the series
/// `2·atanh(s)` with `s = (x − 1)/(x + 1)`.
fn log(b: &mut Builder, x: Val) -> Val {
    let (one, half_up, low) = (b.f32(1.0), b.f32(1.42), b.f32(0.7));
    let log2 = b.unary(UnaryOp::Log2Approx, x);
    let ln2 = b.f32(std::f32::consts::LN_2);
    let far = b.mul(log2, ln2);
    let minus_one = b.f32(-1.0);
    let (below, above) = (b.add(x, minus_one), b.add(x, one));
    let s = b.div(below, above);
    let square = b.mul(s, s);
    // |s| < 0.1765: the first term left out is below 2e-11 of the sum.
    let tail = polynomial(b, square, &[2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0, 2.0 / 9.0, 2.0 / 11.0]);
    let two = b.f32(2.0);
    let factor = b.fma(tail, square, two);
    let near = b.mul(s, factor);
    let (over, under) = (b.lt(low, x), b.lt(x, half_up));
    let is_near = b.and(over, under);
    b.select(is_near, near, far)
}

/// erf(x)/x in x² on [0, 1]; error 1.2e-9.
#[allow(
    clippy::approx_constant,
    reason = "the first coefficient of the fit, not the limit that it is near"
)]
const ERF_NEAR: [f32; 7] = [
    1.128_379_1,
    -0.376_126_26,
    0.112_836,
    -0.026_854_444,
    0.005_189_535,
    -0.000_802_084_2,
    0.000_078_891_215,
];
/// −ln erfc(x) on [1, 4]; error of erfc 1.0e-9.
const ERFC_FAR: [f32; 7] = [
    0.000_353_715_82,
    1.127_04,
    0.638_225_7,
    0.103_037_395,
    -0.021_805_33,
    0.002_939_61,
    -0.000_185_574_26,
];

fn erf(b: &mut Builder, x: Val) -> Val {
    let magnitude = b.unary(UnaryOp::Abs, x);
    let square = b.mul(x, x);
    let near = polynomial(b, square, &ERF_NEAR);
    let near = b.mul(near, x);
    // erfc(4) is 1.5e-8: erf is 1 from there on.
    let (four, one, zero) = (b.f32(4.0), b.f32(1.0), b.f32(0.0));
    let clipped = b.min(magnitude, four);
    let exponent = polynomial(b, clipped, &ERFC_FAR);
    let exponent = b.neg(exponent);
    let complement = exp(b, exponent);
    let complement = b.neg(complement);
    let far = b.add(one, complement);
    let negative = b.lt(x, zero);
    let minus = b.neg(far);
    let far = b.select(negative, minus, far);
    let is_near = b.lt(magnitude, one);
    b.select(is_near, near, far)
}

/// (tanh(x)/x − 1)/x² in x² on [0, 0.36]; error 2.6e-9 of tanh(x)/x.
const TANH_NEAR: [f32; 5] =
    [-0.333_333, 0.133_319_59, -0.053_786_684, 0.020_805_381, -0.005_905_865];

fn tanh(b: &mut Builder, x: Val) -> Val {
    let magnitude = b.unary(UnaryOp::Abs, x);
    let square = b.mul(x, x);
    let near = polynomial(b, square, &TANH_NEAR);
    let near = b.mul(near, square);
    let near = b.fma(near, x, x);
    // 1 − 2/(e^2|x| + 1), which is 1 as soon as the exponential is infinite.
    let twice = b.add(magnitude, magnitude);
    let e = exp(b, twice);
    let (one, minus_two, zero) = (b.f32(1.0), b.f32(-2.0), b.f32(0.0));
    let sum = b.add(e, one);
    let quotient = b.div(minus_two, sum);
    let far = b.add(quotient, one);
    let negative = b.lt(x, zero);
    let minus = b.neg(far);
    let far = b.select(negative, minus, far);
    let limit = b.f32(0.6);
    let is_near = b.lt(magnitude, limit);
    b.select(is_near, near, far)
}

/// π/2 in three parts (Cody and Waite).
const HALF_PI: [f32; 3] = [1.570_796_4, -4.371_139e-8, -1.715_124_5e-15];
/// (sin(x)/x − 1)/x² in x² on [0, 0.62]; error 3.7e-9 of sin(x)/x.
const SIN: [f32; 3] = [-0.166_666_55, 0.008_332_167, -0.000_195_156_58];
/// ((cos x − 1)/x² + 1/2)/x² in x² on [0, 0.62]; error 1e-10 of cos x.
const COS: [f32; 3] = [0.041_666_646, -0.001_388_735_3, 0.000_024_436_607];

/// sin(x + quarter·π/2), for |x| up to about 10⁵.
fn sine(b: &mut Builder, x: Val, quarter: i32) -> Val {
    let per_quarter = b.f32(std::f32::consts::FRAC_2_PI);
    let turns = b.mul(x, per_quarter);
    let turns = b.unary(UnaryOp::Round, turns);
    let minus = b.neg(turns);
    let mut rest = x;
    for part in HALF_PI {
        let part = b.f32(part);
        rest = b.fma(minus, part, rest);
    }
    let quadrant = b.convert(turns, Scalar::I32);
    let shift = b.i32(quarter);
    let quadrant = b.add(quadrant, shift);
    let square = b.mul(rest, rest);
    let sin = polynomial(b, square, &SIN);
    let sin = b.mul(sin, square);
    let sin = b.fma(sin, rest, rest);
    let cos = polynomial(b, square, &COS);
    let minus_half = b.f32(-0.5);
    let cos = b.fma(cos, square, minus_half);
    let one = b.f32(1.0);
    let cos = b.fma(cos, square, one);
    let (bit0, bit1, zero) = (b.i32(1), b.i32(2), b.i32(0));
    let odd = b.and(quadrant, bit0);
    let odd = b.ne(odd, zero);
    let result = b.select(odd, cos, sin);
    let lower = b.and(quadrant, bit1);
    let lower = b.ne(lower, zero);
    let negative = b.neg(result);
    b.select(lower, negative, result)
}

fn whole_power(b: &mut Builder, dtype: DType, x: Val, n: i64) -> Val {
    let mut result: Option<Val> = None;
    let (mut square, mut rest) = (x, n);
    while rest > 0 {
        if rest & 1 == 1 {
            result = Some(result.map_or(square, |r| b.mul(r, square)));
        }
        rest >>= 1;
        if rest > 0 {
            square = b.mul(square, square);
        }
    }
    result.unwrap_or_else(|| number(b, dtype, 1.0))
}

/// An integer to a power: modulo its size, or to that of a float, the whole part of it, saturated.
fn int_pow(b: &mut Builder, types: &Types, x: &[Val]) -> Val {
    let (out, of_exponent) = (types.out, types.args[1]);
    if of_exponent.is_float() {
        let base = cast(b, x[0], out, DType::F64);
        let exponent = cast(b, x[1], of_exponent, DType::F64);
        let power = double::pow(b, base, exponent);
        // Powers that are whole are a few ulp off.
        let whole = b.unary(UnaryOp::Round, power);
        let off = b.sub(power, whole);
        let (off, ulps) = (b.unary(UnaryOp::Abs, off), b.f64(2f64.powi(-50)));
        let size = b.unary(UnaryOp::Abs, power);
        let allowed = b.mul(size, ulps);
        let is_whole = b.le(off, allowed);
        let power = b.select(is_whole, whole, power);
        return cast(b, power, DType::F64, out);
    }
    let signed = [out, of_exponent].map(|dtype| dtype.class() == DTypeClass::Signed);
    let n_bits = of_exponent.bits() as i32 - i32::from(signed[1]);
    let power = double::int_pow(b, x[0], x[1], n_bits, signed);
    wrap(b, power, out)
}

fn pow(b: &mut Builder, types: &Types, x: &[Val]) -> Val {
    let held = if types.out == DType::F64 { DType::F64 } else { DType::F32 };
    let exponent = cast(b, x[1], types.args[1], held);
    let known = b.as_const(exponent).map(|bits| match held {
        DType::F64 => fold::as_f64(bits),
        _ => f64::from(fold::as_f32(bits)),
    });
    if !types.out.is_float() {
        return match known {
            Some(n) if n == n.trunc() && (0.0..=8.0).contains(&n) && !types.args[1].is_float() => {
                let power = whole_power(b, types.out, x[0], n as i64);
                wrap(b, power, types.out)
            }
            _ => int_pow(b, types, x),
        };
    }
    match known {
        Some(n) if n == n.trunc() && (0.0..=8.0).contains(&n) => {
            return whole_power(b, types.out, x[0], n as i64);
        }
        Some(n) if n == n.trunc() && (-8.0..0.0).contains(&n) => {
            let power = whole_power(b, types.out, x[0], -n as i64);
            return b.unary(UnaryOp::Recip, power);
        }
        // Not exact for −0 and −∞, where pow(x, 0.5) is +0 and +∞.
        Some(0.5) if held == DType::F32 => return b.unary(UnaryOp::Sqrt, x[0]),
        _ if held == DType::F64 => return double::pow(b, x[0], exponent),
        _ => {}
    }
    let base = x[0];
    let (zero, one, two, nan) = (b.f32(0.0), b.f32(1.0), b.f32(2.0), b.f32(f32::NAN));
    let magnitude = b.unary(UnaryOp::Abs, base);
    let logarithm = log(b, magnitude);
    let product = b.mul(exponent, logarithm);
    let power = exp(b, product);
    // A negative base: the sign of an odd exponent, NaN for one that is not whole.
    let floor = b.unary(UnaryOp::Floor, exponent);
    let is_whole = b.eq(floor, exponent);
    let half = b.f32(0.5);
    let halved = b.mul(exponent, half);
    let halved_floor = b.unary(UnaryOp::Floor, halved);
    let doubled = b.mul(halved_floor, two);
    let is_odd = b.compare(CompareOp::Ne, doubled, exponent);
    let minus = b.neg(power);
    let signed = b.select(is_odd, minus, power);
    let signed = b.select(is_whole, signed, nan);
    let negative = b.lt(base, zero);
    let result = b.select(negative, signed, power);
    // 0·∞ in the exponent: x⁰ and 1ʸ are 1.
    let no_exponent = b.eq(exponent, zero);
    let unit = b.eq(base, one);
    let is_one = b.or(no_exponent, unit);
    b.select(is_one, one, result)
}
