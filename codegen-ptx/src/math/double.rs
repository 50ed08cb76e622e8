//! Functions of `f64`, which no instruction approximates: range reduction, a polynomial, and the rest put
//! back, with a few ulp of error over all finite numbers.
//!
//! Where the reduced argument is small the coefficients are those of the Taylor series, as long as its
//! terms count; the two fits (Chebyshev nodes, 60 digits) say how far off they are.

use crate::kir::{BinaryOp, Builder, CompareOp, Scalar, UnaryOp, Val};

/// `c₀ + c₁·x + c₂·x² + …`
fn polynomial(b: &mut Builder, x: Val, coefficients: impl DoubleEndedIterator<Item = f64>) -> Val {
    let mut rest = coefficients.rev();
    let last = rest.next().expect("a coefficient");
    let mut sum = b.f64(last);
    for c in rest {
        let c = b.f64(c);
        sum = b.fma(sum, x, c);
    }
    sum
}

/// `1/k!`
fn reciprocal_factorial(k: u32) -> f64 {
    1.0 / (1..=k).map(f64::from).product::<f64>()
}

/// ln 2 in two parts. The first has 32 bits, so that its products with exponents are exact.
const LN_2: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];

/// `2ⁿ` for an `i32` in the range of exponents of normal numbers.
fn power_of_two(b: &mut Builder, n: Val) -> Val {
    let biased = b.add_const(n, 1023);
    let (wide, places) = (b.convert(biased, Scalar::I64), b.i32(52));
    let bits = b.shl(wide, places);
    b.bits(bits, Scalar::F64)
}

/// `(eˣ − 1 − x)/x²` for |x| up to 0.35: the first term left out is 1e-18 of the first.
fn exp_tail(b: &mut Builder, x: Val) -> Val {
    polynomial(b, x, (2..=13).map(reciprocal_factorial))
}

/// eˣ
pub(super) fn exp(b: &mut Builder, x: Val) -> Val {
    let zero = b.f64(0.0);
    exp_of_sum(b, x, zero)
}

/// `e^(x + low)` with a `low` of the order of `x`'s last bit.
fn exp_of_sum(b: &mut Builder, x: Val, low: Val) -> Val {
    // Beyond these bounds the result is 0 or infinite.
    let (least, most) = (b.f64(-746.0), b.f64(710.0));
    let x = b.max(x, least);
    let x = b.min(x, most);
    let log2_e = b.f64(std::f64::consts::LOG2_E);
    let n = b.mul(x, log2_e);
    let n = b.unary(UnaryOp::Round, n);
    let minus = b.neg(n);
    let mut rest = x;
    for part in LN_2 {
        let part = b.f64(part);
        rest = b.fma(minus, part, rest);
    }
    let rest = b.add(rest, low);
    let tail = exp_tail(b, rest);
    let square = b.mul(rest, rest);
    let above_one = b.fma(square, tail, rest);
    let one = b.f64(1.0);
    let power = b.add(above_one, one);
    // In two steps: 2ⁿ alone may be too large or too small for a number whose product is not.
    let (n, places) = (b.convert(n, Scalar::I32), b.i32(1));
    let half = b.shr(n, places);
    let other = b.sub(n, half);
    let (half, other) = (power_of_two(b, half), power_of_two(b, other));
    let power = b.mul(power, half);
    b.mul(power, other)
}

/// The natural logarithm of a positive finite number as a sum of two, the first the nearest `f64`; the
/// error is about 2⁻⁵⁹ of it.
fn log_of_finite(b: &mut Builder, x: Val) -> [Val; 2] {
    let (normal, up) = (b.f64(f64::MIN_POSITIVE), b.f64(2f64.powi(54)));
    let is_tiny = b.lt(x, normal);
    let scaled = b.mul(x, up);
    let x = b.select(is_tiny, scaled, x);
    // x = 2ᵏ·m with m from √½ to √2.
    let bits = b.bits(x, Scalar::I64);
    let (root, places) = (b.i64(0x3fe6_a09e_0000_0000), b.i32(52));
    let k = b.sub(bits, root);
    let k = b.shr(k, places);
    let exponent = b.shl(k, places);
    let m = b.sub(bits, exponent);
    let m = b.bits(m, Scalar::F64);
    let k = b.convert(k, Scalar::F64);
    let (tiny_k, one, zero) = (b.f64(-54.0), b.f64(1.0), b.f64(0.0));
    let correction = b.select(is_tiny, tiny_k, zero);
    let k = b.add(k, correction);
    // ln m = 2·atanh(s), s = (m − 1)/(m + 1); what s and m + 1 lost in rounding is in `s_low`.
    let difference = b.sub(m, one);
    let sum = b.add(m, one);
    let back = b.sub(sum, one);
    let sum_low = b.sub(m, back);
    let s = b.div(difference, sum);
    let minus_s = b.neg(s);
    let lost = b.fma(minus_s, sum, difference);
    let lost = b.fma(minus_s, sum_low, lost);
    let s_low = b.div(lost, sum);
    // s² is at most 0.0295: the first term left out is 1e-18 of the sum.
    let square = b.mul(s, s);
    let series = polynomial(b, square, (1..=11).map(|i| 2.0 / f64::from(2 * i + 1)));
    let cube = b.mul(square, s);
    let two = b.f64(2.0);
    let tail = b.mul(series, cube);
    let tail = b.fma(two, s_low, tail);
    let twice = b.add(s, s);
    let (high, low) = (b.f64(LN_2[0]), b.f64(LN_2[1]));
    let multiple = b.mul(k, high);
    let high = b.add(multiple, twice);
    let from_multiple = b.sub(high, multiple);
    let rest = b.sub(twice, from_multiple);
    let rest = b.add(rest, tail);
    let rest = b.fma(k, low, rest);
    let total = b.add(high, rest);
    let above = b.sub(total, high);
    let rest = b.sub(rest, above);
    [total, rest]
}

/// Whether `0 < x < ∞`.
fn is_positive_finite(b: &mut Builder, x: Val) -> Val {
    let (zero, infinity) = (b.f64(0.0), b.f64(f64::INFINITY));
    let (above, below) = (b.lt(zero, x), b.lt(x, infinity));
    b.and(above, below)
}

/// Natural logarithm.
pub(super) fn log(b: &mut Builder, x: Val) -> Val {
    let [log, _] = log_of_finite(b, x);
    let (zero, nan, least) = (b.f64(0.0), b.f64(f64::NAN), b.f64(f64::NEG_INFINITY));
    let ordinary = is_positive_finite(b, x);
    let (negative, none) = (b.lt(x, zero), b.eq(x, zero));
    // Infinity and NaN are their own logarithms.
    let special = b.select(negative, nan, x);
    let special = b.select(none, least, special);
    b.select(ordinary, log, special)
}

/// `xʸ`, as IEEE 754 has it for zeros, infinities and NaN.
pub(super) fn pow(b: &mut Builder, x: Val, y: Val) -> Val {
    let (zero, one, nan) = (b.f64(0.0), b.f64(1.0), b.f64(f64::NAN));
    let (infinity, minus_infinity) = (b.f64(f64::INFINITY), b.f64(f64::NEG_INFINITY));
    let size = b.unary(UnaryOp::Abs, x);
    let [log, log_low] = log_of_finite(b, size);
    let ordinary = is_positive_finite(b, size);
    let none = b.eq(size, zero);
    let special = b.select(none, minus_infinity, size);
    let log = b.select(ordinary, log, special);
    let product = b.mul(y, log);
    let minus = b.neg(product);
    let low = b.fma(y, log, minus);
    let low = b.fma(y, log_low, low);
    // Beyond, the result is 0 or infinite, and the low part no number.
    let (limit, size_of_product) = (b.f64(1000.0), b.unary(UnaryOp::Abs, product));
    let counts = b.lt(size_of_product, limit);
    let counts = b.and(counts, ordinary);
    let low = b.select(counts, low, zero);
    let power = exp_of_sum(b, product, low);
    let is_unit = b.eq(size, one);
    let power = b.select(is_unit, one, power);
    // A negative base: the sign of an odd exponent, NaN for one that is not whole.
    let (half, two) = (b.f64(0.5), b.f64(2.0));
    let floor = b.unary(UnaryOp::Floor, y);
    let is_broken = b.compare(CompareOp::Ne, floor, y);
    let halved = b.mul(y, half);
    let halved = b.unary(UnaryOp::Floor, halved);
    let doubled = b.mul(halved, two);
    let is_odd = b.compare(CompareOp::Ne, doubled, y);
    let is_whole = b.not(is_broken);
    let is_odd = b.and(is_odd, is_whole);
    // Also of −0.
    let (bits, no_bits) = (b.bits(x, Scalar::I64), b.i64(0));
    let signed = b.lt(bits, no_bits);
    let flips = b.and(signed, is_odd);
    let negative = b.neg(power);
    let power = b.select(flips, negative, power);
    let (below, above) = (b.lt(x, zero), b.lt(minus_infinity, x));
    let proper = b.and(below, above);
    let undefined = b.and(proper, is_broken);
    let power = b.select(undefined, nan, power);
    // 1 to any power, also NaN; −1 to an infinite one; anything to the power of 0.
    let size_of_y = b.unary(UnaryOp::Abs, y);
    let is_infinite = b.eq(size_of_y, infinity);
    let unit_to_infinity = b.and(is_unit, is_infinite);
    let (no_exponent, base_is_one) = (b.eq(y, zero), b.eq(x, one));
    let is_one = b.or(no_exponent, base_is_one);
    let is_one = b.or(is_one, unit_to_infinity);
    b.select(is_one, one, power)
}

/// An odd function of `x`, from that of `|x|`; the sign is also that of −0.
fn odd(b: &mut Builder, x: Val, of_size: Val) -> Val {
    let (bits, no_bits) = (b.bits(x, Scalar::I64), b.i64(0));
    let (negative, minus) = (b.lt(bits, no_bits), b.neg(of_size));
    b.select(negative, minus, of_size)
}

/// `(e − 1)/(e + 1)` with `e` the exponential of `2·|x|`.
pub(super) fn tanh(b: &mut Builder, x: Val) -> Val {
    let size = b.unary(UnaryOp::Abs, x);
    let twice = b.add(size, size);
    let (one, two) = (b.f64(1.0), b.f64(2.0));
    // Where e − 1 would cancel, it is the series without its first term.
    let tail = exp_tail(b, twice);
    let square = b.mul(twice, twice);
    let less_one = b.fma(square, tail, twice);
    let below = b.add(less_one, two);
    let near = b.div(less_one, below);
    let e = exp(b, twice);
    let sum = b.add(e, one);
    let quotient = b.div(two, sum);
    let far = b.sub(one, quotient);
    let limit = b.f64(0.35);
    let is_near = b.lt(twice, limit);
    let result = b.select(is_near, near, far);
    odd(b, x, result)
}

/// erf(x)/x in x² on [0, 1]; error 4.5e-17.
const ERF_NEAR: [f64; 12] = [
    std::f64::consts::FRAC_2_SQRT_PI,
    -0.37612638903183543,
    0.11283791670945006,
    -0.02686617064323777,
    0.0052239776071164225,
    -0.0008548325975389692,
    0.00012055294904839707,
    -1.492473690741966e-05,
    1.6447424703317362e-06,
    -1.6208483801871705e-07,
    1.3720064546777686e-08,
    -7.795898827002142e-10,
];
/// erfc(x)·e^x² in (x − 2.5)/(x + 2.5) on [1, 6]; error of erfc 3.2e-18.
const ERFC_FAR: [f64; 15] = [
    0.2108063640611436,
    -0.37173673394897294,
    0.2517131932174488,
    -0.12503305237891782,
    0.03992253907546523,
    -0.003993701160123029,
    -0.0026423659518134547,
    0.0008759152875774328,
    0.0002283799633257643,
    -0.00012887483134837842,
    -3.4175718896856294e-05,
    1.8596747731144528e-05,
    7.499735050763299e-06,
    -2.2328516517555215e-06,
    -1.587633893127344e-06,
];

pub(super) fn erf(b: &mut Builder, x: Val) -> Val {
    let size = b.unary(UnaryOp::Abs, x);
    let square = b.mul(x, x);
    let near = polynomial(b, square, ERF_NEAR.into_iter());
    let near = b.mul(near, x);
    // erfc(6) is 2e-17: erf is 1 from there on.
    let (six, one, centre) = (b.f64(6.0), b.f64(1.0), b.f64(2.5));
    let clipped = b.min(size, six);
    let (above, below) = (b.sub(clipped, centre), b.add(clipped, centre));
    let u = b.div(above, below);
    let scaled = polynomial(b, u, ERFC_FAR.into_iter());
    let minus = b.neg(clipped);
    let exponent = b.mul(minus, clipped);
    let e = exp(b, exponent);
    let complement = b.mul(e, scaled);
    let far = b.sub(one, complement);
    let far = odd(b, x, far);
    let is_near = b.lt(size, one);
    b.select(is_near, near, far)
}

/// π/2 in three parts.
const HALF_PI: [f64; 3] =
    [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33];

/// sin(x + quarter·π/2), for |x| up to about 10⁸.
pub(super) fn sine(b: &mut Builder, x: Val, quarter: i32) -> Val {
    let per_quarter = b.f64(std::f64::consts::FRAC_2_PI);
    let turns = b.mul(x, per_quarter);
    let turns = b.unary(UnaryOp::Round, turns);
    let minus = b.neg(turns);
    let mut rest = x;
    for part in HALF_PI {
        let part = b.f64(part);
        rest = b.fma(minus, part, rest);
    }
    let quadrant = b.convert(turns, Scalar::I64);
    let quadrant = b.convert(quadrant, Scalar::I32);
    let quadrant = b.add_const(quadrant, quarter);
    // |rest| is at most π/4: the first terms left out are 5e-19 and 2e-18 of the sums.
    let square = b.mul(rest, rest);
    let signed = |k: u32, sign_of: u32| {
        let sign = if (sign_of / 2).is_multiple_of(2) { 1.0 } else { -1.0 };
        sign * reciprocal_factorial(k)
    };
    let sin = polynomial(b, square, (1..=8).map(|i| signed(2 * i + 1, 2 * i)));
    let sin = b.mul(sin, square);
    let sin = b.fma(sin, rest, rest);
    let cos = polynomial(b, square, (1..=8).map(|i| signed(2 * i, 2 * i)));
    let one = b.f64(1.0);
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

/// Steps of [`fmod`] from the largest number to the smallest, 1024 + 1074 bits in steps of 48.
pub(super) const F64_STEPS: i32 = 44;
/// The same for operands that are `f32`: 128 + 149 bits.
pub(super) const F32_STEPS: i32 = 6;

/// The remainder of truncated division, exactly: long division in steps of 48 bits.
///
/// What is left is below `y·2^(step·k)` before step `k`, and a multiple of a last place of either operand,
/// so each difference is a number of the type, and each quotient, rounded to whole, at most one too large.
pub(super) fn fmod(b: &mut Builder, x: Val, y: Val, n_steps: i32) -> Val {
    const STEP: i32 = 48;
    let (size, by) = (b.unary(UnaryOp::Abs, x), b.unary(UnaryOp::Abs, y));
    let rest = b.var(size);
    b.for_loop(0, n_steps, 1, |b, step| {
        let left = b.get(rest);
        let power = b.mul_const(step, -STEP);
        let power = b.add_const(power, STEP * (n_steps - 1));
        // 2^power in three factors, each of which is a number.
        let third = b.div_const(power, 3);
        let factor = power_of_two(b, third);
        let scaled = b.mul(by, factor);
        let scaled = b.mul(scaled, factor);
        let scaled = b.mul(scaled, factor);
        let quotient = b.div(left, scaled);
        let quotient = b.unary(UnaryOp::Floor, quotient);
        let minus = b.neg(quotient);
        let less = b.fma(minus, scaled, left);
        let zero = b.f64(0.0);
        let (below, up) = (b.lt(less, zero), b.add(less, scaled));
        let less = b.select(below, up, less);
        let goes = b.le(scaled, left);
        let left = b.select(goes, less, left);
        b.set(rest, left);
    });
    let rest = b.get(rest);
    // Nothing goes into infinity or NaN, and zero goes nowhere: those have no remainder, but for a finite
    // number by infinity, which is left whole.
    let (infinity, zero, nan) = (b.f64(f64::INFINITY), b.f64(0.0), b.f64(f64::NAN));
    let (is_finite, divides) = (b.lt(size, infinity), b.lt(zero, by));
    let defined = b.and(is_finite, divides);
    let rest = b.select(defined, rest, nan);
    odd(b, x, rest)
}

/// `xⁿ` of integers modulo the size of a register; a negative power is the truncated reciprocal, of 0 also 0.
pub(super) fn int_pow(b: &mut Builder, x: Val, n: Val, n_bits: i32, signed: [bool; 2]) -> Val {
    let (held, exponent) = (b.ty(x), b.ty(n));
    let number = |b: &mut Builder, ty: Scalar, value: i64| match ty {
        Scalar::I64 => b.i64(value),
        _ => b.i32(value as i32),
    };
    let (zero, one, minus_one) = (number(b, held, 0), number(b, held, 1), number(b, held, -1));
    let (none, lowest) = (number(b, exponent, 0), number(b, exponent, 1));
    let (result, square) = (b.var(one), b.var(x));
    b.for_loop(0, n_bits, 1, |b, place| {
        let (power, factor) = (b.get(result), b.get(square));
        let bit = b.shr(n, place);
        let bit = b.and(bit, lowest);
        let counts = b.ne(bit, none);
        let product = b.mul(power, factor);
        let power = b.select(counts, product, power);
        b.set(result, power);
        let factor = b.binary(BinaryOp::Mul, factor, factor);
        b.set(square, factor);
    });
    let power = b.get(result);
    if !signed[1] {
        return power;
    }
    let unit = b.eq(x, one);
    let mut inverse = b.select(unit, one, zero);
    if signed[0] {
        let bit = b.and(n, lowest);
        let odd = b.ne(bit, none);
        let sign = b.select(odd, minus_one, one);
        let minus_unit = b.eq(x, minus_one);
        inverse = b.select(minus_unit, sign, inverse);
    }
    let negative = b.lt(n, none);
    b.select(negative, inverse, power)
}
