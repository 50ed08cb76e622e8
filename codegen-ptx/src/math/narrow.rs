//! Floats of 8 and 4 bits: a register holds the code, as memory does, and kernels compute with the number.
//!
//! [`encode`] and [`decode`] are integer operations on the bits of an `f32`, which holds every number of
//! these types; hardware conversions begin at sm_89 and do not know all types. `encode` rounds as the
//! reference evaluator's cast: to the nearest, ties to the even code (E8M0: ties up), saturating, also
//! from an infinity; NaN becomes the type's NaN, in E2M1 zero. Encoding what was decoded gives the code
//! back, but for the infinities of E5M2, which saturate.

use eggine_ir::DType;

use crate::kir::{Builder, CompareOp, Scalar, UnaryOp, Val};

/// Whether registers hold codes of this type rather than numbers.
pub(crate) fn is_coded(dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() <= 8
}

/// How a code is read, from the left: sign, exponent, mantissa.
struct Format {
    mantissa_bits: i32,
    /// A code with the exponent `e > 0` is `1.m · 2^(e − bias)`.
    bias: i32,
    /// Code of the largest finite number.
    largest: i32,
    /// The sign's bit.
    sign: i32,
    /// Whether the only NaN is where the others have −0.
    fnuz: bool,
}

impl Format {
    /// Of all but E8M0: OCP MX 1.0 and its 8-bit predecessor, and the FNUZ variants.
    fn of(dtype: DType) -> Option<Format> {
        let (mantissa_bits, bias, largest, sign, fnuz) = match dtype {
            DType::F8E4M3 => (3, 7, 0x7e, 0x80, false),
            DType::F8E5M2 => (2, 15, 0x7b, 0x80, false),
            DType::F8E4M3FNUZ => (3, 8, 0x7f, 0x80, true),
            DType::F8E5M2FNUZ => (2, 16, 0x7f, 0x80, true),
            DType::F4E2M1 => (1, 1, 7, 8, false),
            _ => return None,
        };
        Some(Format { mantissa_bits, bias, largest, sign, fnuz })
    }

    /// Bits of the `f32` with the magnitude of a code of a normal number.
    fn f32_bits(&self, code: i32) -> i32 {
        (code << (23 - self.mantissa_bits)) + ((127 - self.bias) << 23)
    }

    /// Places between the sign in a code and in an `f32`.
    fn sign_shift(&self) -> i32 {
        31 - self.sign.trailing_zeros() as i32
    }
}

fn shifted(b: &mut Builder, val: Val, left: i32) -> Val {
    let amount = b.i32(left.abs());
    if left < 0 { b.shr(val, amount) } else { b.shl(val, amount) }
}

fn masked(b: &mut Builder, val: Val, mask: i32) -> Val {
    let mask = b.i32(mask);
    b.and(val, mask)
}

/// The code nearest to a number, given as `f32` or `f64`.
pub(crate) fn encode(b: &mut Builder, x: Val, to: DType) -> Val {
    let x = if b.ty(x) == Scalar::F64 { rounded_to_odd(b, x) } else { x };
    let bits = b.bits(x, Scalar::I32);
    let nan = b.compare(CompareOp::Ne, x, x);
    let zero = b.i32(0);
    let Some(format) = Format::of(to) else {
        // Below the middle between 2⁻¹²⁷, which is no normal `f32`, and 2⁻¹²⁶; negative numbers, too.
        let (middle, half, most) = (b.i32(0x60_0000), b.i32(0x40_0000), b.i32(0xfe));
        let up = b.add(bits, half);
        let code = shifted(b, up, -23);
        let code = b.min(code, most);
        let least = b.lt(bits, middle);
        let code = b.select(least, zero, code);
        let nan_code = b.i32(0xff);
        return b.select(nan, nan_code, code);
    };
    let magnitude = masked(b, bits, i32::MAX);
    let largest = b.i32(format.f32_bits(format.largest));
    let magnitude = b.min(magnitude, largest);
    // Half of the last place is added, less a bit where it is even; a carry moves on to the exponent.
    let shift = 23 - format.mantissa_bits;
    let odd = shifted(b, magnitude, -shift);
    let odd = masked(b, odd, 1);
    let up = b.add_const(magnitude, (1 << (shift - 1)) - 1);
    let up = b.add(up, odd);
    let normal = shifted(b, up, -shift);
    let normal = b.add_const(normal, -((127 - format.bias) << format.mantissa_bits));
    // Beside a number whose last place is the type's least, the addition rounds to that.
    let anchor = 2f32.powi(24 - format.bias - format.mantissa_bits);
    let (size, anchor_val) = (b.bits(magnitude, Scalar::F32), b.f32(anchor));
    let sum = b.add(size, anchor_val);
    let small = b.bits(sum, Scalar::I32);
    let small = b.add_const(small, -(anchor.to_bits() as i32));
    let least_normal = b.i32(format.f32_bits(1 << format.mantissa_bits));
    let is_small = b.lt(magnitude, least_normal);
    let code = b.select(is_small, small, normal);
    let sign = shifted(b, bits, -format.sign_shift());
    let sign = masked(b, sign, format.sign);
    if to == DType::F4E2M1 {
        let code = b.or(code, sign);
        return b.select(nan, zero, code);
    }
    if format.fnuz {
        // There is no −0.
        let none = b.eq(code, zero);
        let code = b.or(code, sign);
        let code = b.select(none, zero, code);
        let nan_code = b.i32(format.sign);
        return b.select(nan, nan_code, code);
    }
    let nan_code = b.i32(0x7f);
    let code = b.select(nan, nan_code, code);
    b.or(code, sign)
}

/// The code of what was computed from such numbers: as [`encode`], but an infinity stays one in E5M2.
pub(crate) fn encode_result(b: &mut Builder, x: Val, to: DType) -> Val {
    let code = encode(b, x, to);
    if to != DType::F8E5M2 {
        return code;
    }
    let (size, infinity, one) = (b.unary(UnaryOp::Abs, x), b.f32(f32::INFINITY), b.i32(1));
    // The infinity's code follows that of the largest number.
    let following = b.add(code, one);
    let is_infinite = b.eq(size, infinity);
    b.select(is_infinite, following, code)
}

/// An `f64` as the `f32` towards zero, with the last bit set if something was lost: rounding that to
/// fewer bits is rounding the `f64`.
fn rounded_to_odd(b: &mut Builder, x: Val) -> Val {
    let nearest = b.convert(x, Scalar::F32);
    let back = b.convert(nearest, Scalar::F64);
    let bits = b.bits(nearest, Scalar::I32);
    let (size, size_back) = (b.unary(UnaryOp::Abs, x), b.unary(UnaryOp::Abs, back));
    let beyond = b.lt(size, size_back);
    let below = b.add_const(bits, -1);
    let towards_zero = b.select(beyond, below, bits);
    let (one, differs) = (b.i32(1), b.compare(CompareOp::Ne, back, x));
    let odd = b.or(towards_zero, one);
    let result = b.select(differs, odd, towards_zero);
    b.bits(result, Scalar::F32)
}

/// The number that a code stands for, as `f32`.
pub(crate) fn decode(b: &mut Builder, code: Val, from: DType) -> Val {
    let nan = b.f32(f32::NAN);
    let Some(format) = Format::of(from) else {
        let (zero, last) = (b.i32(0), b.i32(0xff));
        let bits = shifted(b, code, 23);
        // 2⁻¹²⁷ is no normal number.
        let (least, is_least) = (b.i32(0x40_0000), b.eq(code, zero));
        let bits = b.select(is_least, least, bits);
        let power = b.bits(bits, Scalar::F32);
        let is_nan = b.eq(code, last);
        return b.select(is_nan, nan, power);
    };
    let sign = masked(b, code, format.sign);
    let sign = shifted(b, sign, format.sign_shift());
    let magnitude = masked(b, code, format.sign - 1);
    let bits = shifted(b, magnitude, 23 - format.mantissa_bits);
    let bits = b.or(bits, sign);
    // Exact, and right for subnormal numbers, too: those are subnormal before.
    let (small, scale) = (b.bits(bits, Scalar::F32), b.f32(2f32.powi(127 - format.bias)));
    let number = b.mul(small, scale);
    let special = b.i32(match (from, format.fnuz) {
        (DType::F4E2M1, _) => return number,
        (_, true) => format.sign,
        (DType::F8E5M2, _) => 0x7c,
        _ => 0x7f,
    });
    if format.fnuz {
        let is_nan = b.eq(code, special);
        return b.select(is_nan, nan, number);
    }
    if from == DType::F8E5M2 {
        let infinity = b.f32(f32::INFINITY);
        // The sign is that of the number that the code would be.
        let infinite = b.mul(number, infinity);
        let is_infinite = b.eq(magnitude, special);
        let number = b.select(is_infinite, infinite, number);
        let is_nan = b.lt(special, magnitude);
        return b.select(is_nan, nan, number);
    }
    let is_nan = b.eq(magnitude, special);
    b.select(is_nan, nan, number)
}
