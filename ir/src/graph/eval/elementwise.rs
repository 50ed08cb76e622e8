//! Elementwise operators with broadcasting.
//!
//! Rows give one function for floats and one for integers. Integers are handed over as `i128`, which
//! holds the result of every operator on `i64` and `u64`, and wrap to their type afterwards.

use super::parallel::for_each;
use super::walk::{broadcast_strides, runs};
use super::{Array, Data, int_range, round, widen, wrap};
use crate::graph::Attrs;
use crate::{DType, TensorType};

fn int_of(ty: &TensorType, elements: impl Iterator<Item = i128>) -> Array {
    Array::with(ty, Data::Int(elements.map(|x| wrap(ty.dtype, x)).collect()))
}

/// One operand, floats or integers.
pub(in crate::graph) fn map(
    args: &[&Array],
    ty: &TensorType,
    float: impl Fn(f64) -> f64,
    int: impl Fn(i128) -> i128,
) -> Array {
    match &args[0].data {
        Data::Float(data) => Array::with(ty, Data::Float(data.iter().map(|&x| float(x)).collect())),
        Data::Int(data) => int_of(ty, data.iter().map(|&x| int(widen(ty.dtype, x)))),
    }
}

/// One float operand. These are the functions that take long.
pub(in crate::graph) fn map_float(
    args: &[&Array],
    ty: &TensorType,
    float: impl Fn(f64) -> f64 + Sync,
) -> Array {
    let mut data = args[0].floats().to_vec();
    let work = 16 * data.len();
    for_each(data.chunks_mut(1 << 14), work, |chunk| {
        chunk.iter_mut().for_each(|x| *x = float(*x));
    });
    Array::with(ty, Data::Float(data))
}

/// A predicate of one float operand.
pub(in crate::graph) fn test(
    args: &[&Array],
    ty: &TensorType,
    float: impl Fn(f64) -> bool,
) -> Array {
    let data = args[0].floats().iter().map(|&x| i64::from(float(x))).collect();
    Array::with(ty, Data::Int(data))
}

/// Pairs of broadcast elements, in row-major order of `extents`.
fn pairs<T: Copy, U: Copy, R>(
    (lhs, lhs_extents): (&[T], &[usize]),
    (rhs, rhs_extents): (&[U], &[usize]),
    extents: &[usize],
    f: impl Fn(T, U) -> R,
) -> Vec<R> {
    let mut result = Vec::with_capacity(extents.iter().product());
    let strides =
        [broadcast_strides(lhs_extents, extents), broadcast_strides(rhs_extents, extents)];
    runs(extents, [&strides[0], &strides[1]], [0, 0], |len, [a, b], step| {
        let (a, b) = (a as usize, b as usize);
        match step {
            [1, 1] => {
                let both = lhs[a..a + len].iter().zip(&rhs[b..b + len]);
                result.extend(both.map(|(&x, &y)| f(x, y)));
            }
            [1, 0] => result.extend(lhs[a..a + len].iter().map(|&x| f(x, rhs[b]))),
            [0, 1] => result.extend(rhs[b..b + len].iter().map(|&y| f(lhs[a], y))),
            [p, q] => {
                let (p, q) = (p as usize, q as usize);
                result.extend((0..len).map(|i| f(lhs[a + i * p], rhs[b + i * q])));
            }
        }
    });
    result
}

/// Two operands of one type, floats or integers.
pub(in crate::graph) fn zip(
    args: &[&Array],
    ty: &TensorType,
    float: impl Fn(f64, f64) -> f64,
    int: impl Fn(i128, i128) -> i128,
) -> Array {
    let (lhs, rhs) = (args[0], args[1]);
    let data = match (&lhs.data, &rhs.data) {
        (Data::Float(x), Data::Float(y)) => {
            Data::Float(pairs((x, &lhs.extents), (y, &rhs.extents), &ty.extents(), float))
        }
        _ => {
            let int = |x, y| wrap(ty.dtype, int(widen(ty.dtype, x), widen(ty.dtype, y)));
            let (x, y) = ((lhs.ints(), &lhs.extents[..]), (rhs.ints(), &rhs.extents[..]));
            Data::Int(pairs(x, y, &ty.extents(), int))
        }
    };
    Array::with(ty, data)
}

/// A comparison of two operands of one type.
pub(in crate::graph) fn compare(
    args: &[&Array],
    ty: &TensorType,
    float: impl Fn(f64, f64) -> bool,
    int: impl Fn(i128, i128) -> bool,
) -> Array {
    let (lhs, rhs) = (args[0], args[1]);
    let data = match (&lhs.data, &rhs.data) {
        (Data::Float(x), Data::Float(y)) => {
            let float = |x, y| i64::from(float(x, y));
            pairs((x, &lhs.extents), (y, &rhs.extents), &ty.extents(), float)
        }
        _ => {
            let int = |x, y| i64::from(int(widen(lhs.dtype, x), widen(lhs.dtype, y)));
            let (x, y) = ((lhs.ints(), &lhs.extents[..]), (rhs.ints(), &rhs.extents[..]));
            pairs(x, y, &ty.extents(), int)
        }
    };
    Array::with(ty, Data::Int(data))
}

/// The base's type decides the result's. An integer to a negative power is the truncated reciprocal
/// (0 to a negative power is 0, as for `div`), to a float power the truncated and saturated float.
pub(in crate::graph) fn pow(args: &[&Array], _: &Attrs, ty: &TensorType) -> Array {
    let (base, exponent) = (args[0], args[1]);
    if let (Data::Int(x), Data::Int(y)) = (&base.data, &exponent.data) {
        let int = |x, y| wrap(ty.dtype, int_pow(widen(ty.dtype, x), widen(exponent.dtype, y)));
        let data = pairs((x, &base.extents), (y, &exponent.extents), &ty.extents(), int);
        return Array::with(ty, Data::Int(data));
    }
    let (x, y) = (base.to_f64(), exponent.to_f64());
    let data = pairs((&x, &base.extents), (&y, &exponent.extents), &ty.extents(), f64::powf);
    Array::with(
        ty,
        match ty.dtype.is_float() {
            true => Data::Float(data),
            false => Data::Int(data.into_iter().map(|x| saturate(ty.dtype, x)).collect()),
        },
    )
}

/// By squaring, modulo 2¹²⁸, so that the result wraps to any integer type as it should.
fn int_pow(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i128, base, exponent);
    while rest > 0 {
        if rest % 2 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest /= 2;
    }
    result
}

/// `(condition, if true, if false)`.
pub(in crate::graph) fn select(args: &[&Array], _: &Attrs, ty: &TensorType) -> Array {
    let extents = ty.extents();
    let strides: Vec<Vec<isize>> =
        args.iter().map(|arg| broadcast_strides(&arg.extents, &extents)).collect();
    let condition = args[0].ints();
    let chosen = |visit: &mut dyn FnMut(bool, usize)| {
        runs(&extents, [&strides[0], &strides[1], &strides[2]], [0; 3], |len, at, step| {
            for i in 0..len as isize {
                let [c, x, y] = std::array::from_fn(|k| (at[k] + i * step[k]) as usize);
                let is_true = condition[c] != 0;
                visit(is_true, if is_true { x } else { y });
            }
        });
    };
    fn pick<T: Copy>(x: &[T], y: &[T], chosen: impl Fn(&mut dyn FnMut(bool, usize))) -> Vec<T> {
        let mut result = Vec::new();
        chosen(&mut |is_true, at| result.push(if is_true { x[at] } else { y[at] }));
        result
    }
    Array::with(
        ty,
        match (&args[1].data, &args[2].data) {
            (Data::Float(x), Data::Float(y)) => Data::Float(pick(x, y, chosen)),
            _ => Data::Int(pick(args[1].ints(), args[2].ints(), chosen)),
        },
    )
}

/// Float to integer truncates and saturates (types of 4 and 2 bits wrap, as the standard's tests have it),
/// NaN gives 0; integer to integer wraps; to `bool` asks
/// whether it is not 0; to a float rounds, whatever the [`Rounding`](super::Rounding).
pub(in crate::graph) fn cast(args: &[&Array], _: &Attrs, ty: &TensorType) -> Array {
    let (from, to) = (args[0].dtype, ty.dtype);
    let data = match &args[0].data {
        Data::Float(data) if to.is_float() => {
            let mut data = data.clone();
            if to.bits() <= 8 {
                // A cast to such a type saturates, also from an infinity.
                data.iter_mut().for_each(|x| *x = x.clamp(-f64::MAX, f64::MAX));
            }
            round(to, &mut data);
            Data::Float(data)
        }
        Data::Float(data) if to == DType::Bool => {
            Data::Int(data.iter().map(|&x| i64::from(x != 0.0)).collect())
        }
        Data::Float(data) if to.bits() < 8 => {
            Data::Int(data.iter().map(|&x| wrap(to, x as i128)).collect())
        }
        Data::Float(data) => Data::Int(data.iter().map(|&x| saturate(to, x)).collect()),
        Data::Int(data) if to == DType::F32 => {
            // Not by way of f64, which would round twice.
            Data::Float(data.iter().map(|&x| f64::from(widen(from, x) as f32)).collect())
        }
        Data::Int(data) if to.is_float() => {
            let mut data: Vec<f64> = data.iter().map(|&x| widen(from, x) as f64).collect();
            round(to, &mut data);
            Data::Float(data)
        }
        Data::Int(data) => Data::Int(data.iter().map(|&x| wrap(to, widen(from, x))).collect()),
    };
    Array::with(ty, data)
}

/// Truncated towards zero, the nearest number of an integer type; NaN gives 0.
pub(super) fn saturate(dtype: DType, x: f64) -> i64 {
    let (least, greatest) = int_range(dtype);
    wrap(dtype, (x as i128).clamp(least, greatest))
}

/// -1, 0 or 1; zeros keep their sign, NaN stays NaN.
pub(in crate::graph) fn sign(x: f64) -> f64 {
    match x {
        _ if x > 0.0 => 1.0,
        _ if x < 0.0 => -1.0,
        _ => x,
    }
}

/// The smaller, NaN if either is; `-0.0` is smaller than `0.0`.
pub(in crate::graph) fn min_nan(x: f64, y: f64) -> f64 {
    match x.partial_cmp(&y) {
        None => f64::NAN,
        Some(std::cmp::Ordering::Equal) if x.is_sign_negative() => x,
        Some(std::cmp::Ordering::Less) => x,
        _ => y,
    }
}

/// The greater, NaN if either is; `0.0` is greater than `-0.0`.
pub(in crate::graph) fn max_nan(x: f64, y: f64) -> f64 {
    match x.partial_cmp(&y) {
        None => f64::NAN,
        Some(std::cmp::Ordering::Equal) if x.is_sign_positive() => x,
        Some(std::cmp::Ordering::Greater) => x,
        _ => y,
    }
}

/// Truncated quotient; by 0 it is 0.
pub(in crate::graph) fn int_div(x: i128, y: i128) -> i128 {
    if y == 0 { 0 } else { x / y }
}

/// Remainder with the sign of the dividend; by 0 it is 0.
pub(in crate::graph) fn int_rem(x: i128, y: i128) -> i128 {
    if y == 0 { 0 } else { x % y }
}

/// Remainder with the sign of the divisor; by 0 it is 0.
pub(in crate::graph) fn int_mod(x: i128, y: i128) -> i128 {
    match int_rem(x, y) {
        rest if rest != 0 && (rest < 0) != (y < 0) => rest + y,
        rest => rest,
    }
}

/// Remainder with the sign of the divisor; by 0 it is NaN.
pub(in crate::graph) fn float_mod(x: f64, y: f64) -> f64 {
    match x % y {
        rest if rest != 0.0 && (rest < 0.0) != (y < 0.0) => rest + y,
        rest => rest,
    }
}
