//! Elementary functions without calls or branches, so that they vectorise, and other per-lane helpers.
//!
//! Series are truncated Taylor series on an argument reduced to a small interval; the first neglected
//! term is below 2⁻²⁵ of the result.

const MAGIC: f32 = 12_582_912.0; // 1.5 · 2²³: adding and subtracting it rounds to an integer.

/// 2ˣ.
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f32 {
    // Beyond these the result is +inf and 0. NaN passes both comparisons.
    let x = if x > 129.0 { 129.0 } else { x };
    let x = if x < -151.0 { -151.0 } else { x };
    let shifted = x + MAGIC;
    let n = shifted - MAGIC;
    let f = x - n;
    // ln(2)ᵏ / k!, |f| <= 1/2.
    let p = 1.525_273_4e-5f32.mul_add(f, 1.540_353e-4);
    let p = p.mul_add(f, 1.333_355_8e-3);
    let p = p.mul_add(f, 9.618_129e-3);
    let p = p.mul_add(f, 5.550_411e-2);
    let p = p.mul_add(f, 2.402_265e-1);
    let p = p.mul_add(f, 6.931_472e-1);
    let p = p.mul_add(f, 1.0);
    // 2ⁿ in two factors, so that results below the normal range and above the finite one come out.
    let n = (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    let half = n >> 1;
    let (a, b) = (half, n.wrapping_sub(half));
    let scale = |e: i32| f32::from_bits((e.wrapping_add(127) << 23) as u32);
    p * scale(a) * scale(b)
}

/// log₂ x.
#[inline(always)]
pub(crate) fn log2(x: f32) -> f32 {
    let small = x < f32::MIN_POSITIVE;
    let scaled = if small { x * 8_388_608.0 } else { x };
    let bias = if small { 23.0 } else { 0.0 };
    // x = m · 2ᵉ with m in [√½, √2).
    let bits = scaled.to_bits();
    let e = (bits.wrapping_sub(0x3f35_04f3) as i32) >> 23;
    let m = f32::from_bits(bits.wrapping_sub((e << 23) as u32));
    // log m = 2 atanh(t / (2 + t)), t = m - 1.
    let t = m - 1.0;
    let s = t / (2.0 + t);
    let z = s * s;
    let p = (1.0f32 / 11.0).mul_add(z, 1.0 / 9.0);
    let p = p.mul_add(z, 1.0 / 7.0);
    let p = p.mul_add(z, 1.0 / 5.0);
    let p = p.mul_add(z, 1.0 / 3.0);
    // 2/ln 2 · (s + s³ p), with the constant in two parts.
    let q = z * p;
    let high = 2.885_39f32 * s;
    let low = s.mul_add(2.885_39, -high) + s * 3.851_926e-8; // 2/ln 2 - f32(2/ln 2)
    let log = high + (high * q + low);
    let result = (e as f32 - bias) + log;
    let result = if x == f32::INFINITY { x } else { result };
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    if x < 0.0 || x.is_nan() { f32::NAN } else { result }
}

/// sin and cos of `x` reduced by multiples of π/2, and the quadrant.
#[inline(always)]
fn reduced(x: f32) -> (f32, f32, i32) {
    let shifted = x.mul_add(std::f32::consts::FRAC_2_PI, MAGIC);
    let k = shifted - MAGIC;
    // π/2 in three parts.
    let r = k.mul_add(-1.570_796_4, x);
    let r = k.mul_add(4.371_139e-8, r);
    let r = k.mul_add(1.715_124_5e-15, r);
    let z = r * r;
    let p = (2.755_731_9e-6f32).mul_add(z, -1.984_127e-4);
    let p = p.mul_add(z, 8.333_333e-3);
    let p = p.mul_add(z, -1.666_666_7e-1);
    let sin = (p * z).mul_add(r, r);
    let q = (-2.755_732e-7f32).mul_add(z, 2.480_158_7e-5);
    let q = q.mul_add(z, -1.388_888_9e-3);
    let q = q.mul_add(z, 4.166_666_8e-2);
    let q = q.mul_add(z, -0.5);
    let cos = q.mul_add(z, 1.0);
    (sin, cos, (shifted.to_bits() as i32) & 3)
}

/// sin x, accurate for |x| up to about 10⁵.
#[inline(always)]
pub(crate) fn sin(x: f32) -> f32 {
    let (sin, cos, quadrant) = reduced(x);
    let value = if quadrant & 1 != 0 { cos } else { sin };
    let value = if quadrant & 2 != 0 { -value } else { value };
    if x == 0.0 {
        x
    } else if x.is_finite() {
        value
    } else {
        f32::NAN
    }
}

/// cos x, accurate for |x| up to about 10⁵.
#[inline(always)]
pub(crate) fn cos(x: f32) -> f32 {
    let (sin, cos, quadrant) = reduced(x);
    let value = if quadrant & 1 != 0 { sin } else { cos };
    let value = if (quadrant + 1) & 2 != 0 { -value } else { value };
    if x.is_finite() { value } else { f32::NAN }
}

/// tanh x.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let p = (-1_382.0f32 / 155_925.0).mul_add(z, 62.0 / 2_835.0);
    let p = p.mul_add(z, -17.0 / 315.0);
    let p = p.mul_add(z, 2.0 / 15.0);
    let p = p.mul_add(z, -1.0 / 3.0);
    let near = (p * z).mul_add(a, a);
    let far = 1.0 - 2.0 / (exp2(a * (2.0 * std::f32::consts::LOG2_E)) + 1.0);
    let value = if a < 0.35 { near } else { far };
    f32::from_bits(value.to_bits() | (x.to_bits() & 0x8000_0000))
}

/// PTX `min` of f32: a NaN operand is ignored, −0 is less than +0.
#[inline(always)]
pub(crate) fn min_f32(a: f32, b: f32) -> f32 {
    let r = if a < b { a } else { b };
    let r = if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { r };
    let r = if b.is_nan() { a } else { r };
    if a.is_nan() & b.is_nan() { NAN } else { r }
}

/// PTX `max` of f32.
#[inline(always)]
pub(crate) fn max_f32(a: f32, b: f32) -> f32 {
    let r = if a > b { a } else { b };
    let r = if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { r };
    let r = if b.is_nan() { a } else { r };
    if a.is_nan() & b.is_nan() { NAN } else { r }
}

/// PTX `min.NaN` of f32.
#[inline(always)]
pub(crate) fn min_nan_f32(a: f32, b: f32) -> f32 {
    let r = if a < b { a } else { b };
    let r = if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { r };
    if a.is_nan() | b.is_nan() { NAN } else { r }
}

/// PTX `max.NaN` of f32.
#[inline(always)]
pub(crate) fn max_nan_f32(a: f32, b: f32) -> f32 {
    let r = if a > b { a } else { b };
    let r = if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { r };
    if a.is_nan() | b.is_nan() { NAN } else { r }
}

/// The NaN that PTX instructions return.
pub(crate) const NAN: f32 = f32::from_bits(0x7fff_ffff);

/// PTX `min` of f64.
#[inline(always)]
pub(crate) fn min_f64(a: f64, b: f64) -> f64 {
    let r = if a < b { a } else { b };
    let r = if a == b { f64::from_bits(a.to_bits() | b.to_bits()) } else { r };
    if b.is_nan() { a } else { r }
}

/// PTX `max` of f64.
#[inline(always)]
pub(crate) fn max_f64(a: f64, b: f64) -> f64 {
    let r = if a > b { a } else { b };
    let r = if a == b { f64::from_bits(a.to_bits() & b.to_bits()) } else { r };
    if b.is_nan() { a } else { r }
}

/// `a / b`, all ones if `b` is zero. Exact: the quotient of two 32-bit integers differs from the next
/// integer by more than an f64 rounding error.
#[inline(always)]
pub(crate) fn div_u32(a: u32, b: u32) -> u32 {
    let divisor = if b == 0 { 1 } else { b };
    let q = f64::from(a) / f64::from(divisor);
    // SAFETY: 0 <= q < 2³².
    let q = unsafe { q.to_int_unchecked::<u32>() };
    if b == 0 { !0 } else { q }
}

/// `a / b` towards zero, all ones if `b` is zero.
#[inline(always)]
pub(crate) fn div_s32(a: i32, b: i32) -> i32 {
    let q = div_u32(a.unsigned_abs(), b.unsigned_abs()) as i32;
    let q = if (a ^ b) < 0 { q.wrapping_neg() } else { q };
    if b == 0 { -1 } else { q }
}

/// f32 of the low 16 bits, an f16.
#[inline(always)]
pub(crate) fn f32_of_f16(h: u32) -> f32 {
    let (sign, rest) = ((h & 0x8000) << 16, h & 0x7fff);
    let normal = (rest << 13).wrapping_add(0x3800_0000);
    let special = (rest << 13) | 0x7f80_0000;
    let tiny = (rest as i32 as f32 * 5.960_464_5e-8).to_bits(); // 2⁻²⁴
    let bits = if rest >= 0x7c00 { special } else { normal };
    let bits = if rest < 0x0400 { tiny } else { bits };
    f32::from_bits(bits | sign)
}

/// The f16 nearest to `x`, ties to even.
#[inline(always)]
pub(crate) fn f16_of_f32(x: f32) -> u32 {
    let bits = x.to_bits();
    let (sign, rest) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    let normal = rest.wrapping_sub(0x3800_0000).wrapping_add(0xfff + ((rest >> 13) & 1)) >> 13;
    let tiny = (f32::from_bits(rest) + 0.5).to_bits().wrapping_sub(0x3f00_0000); // ulp(½) = 2⁻²⁴
    let value = if rest < 0x3880_0000 { tiny } else { normal };
    let value = if rest >= 0x477f_f000 { 0x7c00 } else { value };
    if rest > 0x7f80_0000 { 0x7fff } else { value | sign }
}

/// The bf16 nearest to `x`, ties to even.
#[inline(always)]
pub(crate) fn bf16_of_f32(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff } else { rounded }
}
