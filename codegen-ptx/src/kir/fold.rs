//! The meaning of expressions on constants, bit for bit, and the ranges of `i32` values.
//!
//! The evaluator and the builder's constant folding share it, so a fold cannot disagree with the
//! definition. Approximate operations have no value here ([`unary`] returns `None`).

use crate::kir::{BinaryOp, CompareOp, Expr, Kernel, Scalar, UnaryOp, Val};

/// Inclusive bounds of an `i32` value.
pub type Range = (i64, i64);

/// Every `i32`.
pub const FULL: Range = (i32::MIN as i64, i32::MAX as i64);

/// Bits of an `i32` as a [`Const`](crate::kir::Expr::Const) has them.
pub fn i32_bits(value: i32) -> u64 {
    i64::from(value) as u64
}

/// The `i32` of a constant's bits.
pub fn as_i32(bits: u64) -> i32 {
    bits as i32
}

/// The `f32` of a constant's bits.
pub fn as_f32(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// The `f64` of a constant's bits.
pub fn as_f64(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn f32_bits(value: f32) -> u64 {
    u64::from(value.to_bits())
}

/// Value of an exactly defined unary operation; `None` for the approximate ones and where the type
/// does not have the operation.
pub fn unary(ty: Scalar, op: UnaryOp, a: u64) -> Option<u64> {
    use UnaryOp::*;
    Some(match ty {
        Scalar::Pred => match op {
            Not => a ^ 1,
            _ => return None,
        },
        Scalar::I32 => match op {
            Neg => i32_bits(as_i32(a).wrapping_neg()),
            Abs => i32_bits(as_i32(a).wrapping_abs()),
            _ => return None,
        },
        Scalar::I64 => match op {
            Neg => (a as i64).wrapping_neg() as u64,
            Abs => (a as i64).wrapping_abs() as u64,
            _ => return None,
        },
        Scalar::F32 => {
            let x = as_f32(a);
            f32_bits(match op {
                Neg => -x,
                Abs => x.abs(),
                Floor => x.floor(),
                Ceil => x.ceil(),
                Round => x.round_ties_even(),
                Sqrt => x.sqrt(),
                Recip => 1.0 / x,
                _ => return None,
            })
        }
        Scalar::F64 => {
            let x = as_f64(a);
            (match op {
                Neg => -x,
                Abs => x.abs(),
                Floor => x.floor(),
                Ceil => x.ceil(),
                Round => x.round_ties_even(),
                Sqrt => x.sqrt(),
                Recip => 1.0 / x,
                _ => return None,
            })
            .to_bits()
        }
    })
}

/// Smaller of two, NaN if either is; −0 is smaller than +0.
fn min_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}

fn max_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b || (a == b && a.is_sign_positive()) {
        a
    } else {
        b
    }
}

/// Value of a binary operation; `None` where the divisor is 0 or the type does not have the operation.
pub fn binary(ty: Scalar, op: BinaryOp, a: u64, b: u64) -> Option<u64> {
    use BinaryOp::*;
    Some(match ty {
        Scalar::Pred => match op {
            And => a & b,
            Or => a | b,
            Xor => a ^ b,
            _ => return None,
        },
        Scalar::I32 => {
            let (x, y) = (as_i32(a), as_i32(b));
            i32_bits(match op {
                Add => x.wrapping_add(y),
                Sub => x.wrapping_sub(y),
                Mul => x.wrapping_mul(y),
                Div if y != 0 => x.wrapping_div(y),
                Rem if y != 0 => x.wrapping_rem(y),
                Div | Rem => return None,
                Min => x.min(y),
                Max => x.max(y),
                And => x & y,
                Or => x | y,
                Xor => x ^ y,
                // PTX clamps amounts above 31, taking them as unsigned.
                Shl => x.checked_shl(y as u32).unwrap_or(0),
                Shr => x >> (y as u32).min(31),
            })
        }
        Scalar::I64 => {
            let (x, y) = (a as i64, b as i64);
            (match op {
                Add => x.wrapping_add(y),
                Sub => x.wrapping_sub(y),
                Mul => x.wrapping_mul(y),
                Div if y != 0 => x.wrapping_div(y),
                Rem if y != 0 => x.wrapping_rem(y),
                Div | Rem => return None,
                Min => x.min(y),
                Max => x.max(y),
                And => x & y,
                Or => x | y,
                Xor => x ^ y,
                Shl => x.checked_shl(b as u32).unwrap_or(0),
                Shr => x >> (b as u32).min(63),
            }) as u64
        }
        Scalar::F32 => {
            let (x, y) = (as_f32(a), as_f32(b));
            f32_bits(match op {
                Add => x + y,
                Sub => x - y,
                Mul => x * y,
                Div => x / y,
                Min => min_f64(f64::from(x), f64::from(y)) as f32,
                Max => max_f64(f64::from(x), f64::from(y)) as f32,
                _ => return None,
            })
        }
        Scalar::F64 => {
            let (x, y) = (as_f64(a), as_f64(b));
            (match op {
                Add => x + y,
                Sub => x - y,
                Mul => x * y,
                Div => x / y,
                Min => min_f64(x, y),
                Max => max_f64(x, y),
                _ => return None,
            })
            .to_bits()
        }
    })
}

/// `a * b + c`, for floats rounded once.
pub fn fma(ty: Scalar, a: u64, b: u64, c: u64) -> Option<u64> {
    Some(match ty {
        Scalar::I32 => i32_bits(as_i32(a).wrapping_mul(as_i32(b)).wrapping_add(as_i32(c))),
        Scalar::I64 => (a as i64).wrapping_mul(b as i64).wrapping_add(c as i64) as u64,
        Scalar::F32 => f32_bits(as_f32(a).mul_add(as_f32(b), as_f32(c))),
        Scalar::F64 => as_f64(a).mul_add(as_f64(b), as_f64(c)).to_bits(),
        Scalar::Pred => return None,
    })
}

/// Whether a comparison of two values of type `ty` holds.
pub fn compare(ty: Scalar, op: CompareOp, a: u64, b: u64) -> bool {
    fn holds<T: PartialOrd>(op: CompareOp, a: T, b: T) -> bool {
        match op {
            CompareOp::Eq => a == b,
            CompareOp::Ne => a != b,
            CompareOp::Lt => a < b,
            CompareOp::Le => a <= b,
        }
    }
    match ty {
        Scalar::I32 => holds(op, as_i32(a), as_i32(b)),
        Scalar::I64 => holds(op, a as i64, b as i64),
        Scalar::F32 => holds(op, as_f32(a), as_f32(b)),
        Scalar::F64 => holds(op, as_f64(a), as_f64(b)),
        Scalar::Pred => holds(op, a, b),
    }
}

/// Conversion between scalar types; `None` from a number to a predicate.
pub fn convert(from: Scalar, to: Scalar, a: u64) -> Option<u64> {
    use Scalar::*;
    Some(match (from, to) {
        _ if from == to => a,
        (_, Pred) => return None,
        (Pred, I32 | I64) => a,
        (Pred, F32) => f32_bits(a as f32),
        (Pred, F64) => (a as f64).to_bits(),
        (I32, I64) => a,
        (I32, F32) => f32_bits(as_i32(a) as f32),
        (I32, F64) => f64::from(as_i32(a)).to_bits(),
        (I64, I32) => i32_bits(a as i64 as i32),
        (I64, F32) => f32_bits(a as i64 as f32),
        (I64, F64) => (a as i64 as f64).to_bits(),
        (F32, I32) => i32_bits(as_f32(a) as i32),
        (F32, I64) => (as_f32(a) as i64) as u64,
        (F32, F64) => f64::from(as_f32(a)).to_bits(),
        (F64, I32) => i32_bits(as_f64(a) as i32),
        (F64, I64) => (as_f64(a) as i64) as u64,
        (F64, F32) => f32_bits(as_f64(a) as f32),
        _ => return None,
    })
}

/// The bits of a value as the other type of their width; `None` if the widths differ.
pub fn bits(from: Scalar, to: Scalar, a: u64) -> Option<u64> {
    use Scalar::*;
    Some(match (from, to) {
        (I32, F32) => u64::from(a as u32),
        (F32, I32) => i32_bits(a as i32),
        (I64, F64) | (F64, I64) => a,
        _ => return None,
    })
}

fn clip(lo: i128, hi: i128) -> Range {
    if lo >= i128::from(FULL.0) && hi <= i128::from(FULL.1) { (lo as i64, hi as i64) } else { FULL }
}

/// Bounds of `op a` on `i32`.
pub fn unary_range(op: UnaryOp, a: Range) -> Range {
    match op {
        UnaryOp::Neg => clip(-i128::from(a.1), -i128::from(a.0)),
        UnaryOp::Abs if a.0 >= 0 => a,
        UnaryOp::Abs => clip(0, i128::from(a.1).max(-i128::from(a.0))),
        _ => FULL,
    }
}

/// Bounds of `a op b` on `i32`.
pub fn binary_range(op: BinaryOp, a: Range, b: Range) -> Range {
    let wide = |range: Range| (i128::from(range.0), i128::from(range.1));
    let ((al, ah), (bl, bh)) = (wide(a), wide(b));
    match op {
        BinaryOp::Add => clip(al + bl, ah + bh),
        BinaryOp::Sub => clip(al - bh, ah - bl),
        BinaryOp::Mul => {
            let products = [al * bl, al * bh, ah * bl, ah * bh];
            let (lo, hi) = products
                .iter()
                .fold((products[0], products[0]), |(lo, hi), &p| (lo.min(p), hi.max(p)));
            clip(lo, hi)
        }
        BinaryOp::Div if b.0 > 0 => {
            let quotients = [al / bl, al / bh, ah / bl, ah / bh];
            let (lo, hi) = quotients
                .iter()
                .fold((quotients[0], quotients[0]), |(lo, hi), &p| (lo.min(p), hi.max(p)));
            clip(lo, hi)
        }
        BinaryOp::Rem if b.0 > 0 && a.0 >= 0 => (0, a.1.min(b.1 - 1)),
        BinaryOp::Rem if b.0 > 0 => (a.0.max(-(b.1 - 1)), a.1.min(b.1 - 1).max(0)),
        BinaryOp::Div | BinaryOp::Rem => FULL,
        BinaryOp::Min => (a.0.min(b.0), a.1.min(b.1)),
        BinaryOp::Max => (a.0.max(b.0), a.1.max(b.1)),
        BinaryOp::And if a.0 >= 0 && b.0 >= 0 => (0, a.1.min(b.1)),
        BinaryOp::And if a.0 >= 0 => (0, a.1),
        BinaryOp::And if b.0 >= 0 => (0, b.1),
        BinaryOp::Or | BinaryOp::Xor if a.0 >= 0 && b.0 >= 0 => {
            let bits = 64 - (a.1.max(b.1) as u64).leading_zeros();
            (0, (1i64 << bits) - 1)
        }
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => FULL,
        BinaryOp::Shl if b.0 == b.1 && (0..31).contains(&b.0) => clip(al << b.0, ah << b.0),
        BinaryOp::Shl => FULL,
        BinaryOp::Shr if b.0 == b.1 && b.0 >= 0 => (a.0 >> b.0.min(31), a.1 >> b.0.min(31)),
        BinaryOp::Shr => (a.0.min(0), a.1.max(0)),
    }
}

/// What a comparison of two `i32` must be, if the bounds decide it.
pub fn compare_range(op: CompareOp, a: Range, b: Range) -> Option<bool> {
    match op {
        CompareOp::Lt if a.1 < b.0 => Some(true),
        CompareOp::Lt if a.0 >= b.1 => Some(false),
        CompareOp::Le if a.1 <= b.0 => Some(true),
        CompareOp::Le if a.0 > b.1 => Some(false),
        CompareOp::Eq if a.1 < b.0 || b.1 < a.0 => Some(false),
        CompareOp::Ne if a.1 < b.0 || b.1 < a.0 => Some(true),
        CompareOp::Eq if a.0 == a.1 && a == b => Some(true),
        CompareOp::Ne if a.0 == a.1 && a == b => Some(false),
        _ => None,
    }
}

/// Bounds of an `i32` expression, given those of its operands.
pub fn expr_range(expr: &Expr, kernel: &Kernel, range: impl Fn(Val) -> Range) -> Range {
    match *expr {
        Expr::Const(bits) => (i64::from(as_i32(bits)), i64::from(as_i32(bits))),
        Expr::Special(special) => (0, i64::from(kernel.extent(special)) - 1),
        Expr::Unary(op, a) => unary_range(op, range(a)),
        Expr::Binary(op, a, b) => binary_range(op, range(a), range(b)),
        Expr::Fma(a, b, c) => {
            let product = binary_range(BinaryOp::Mul, range(a), range(b));
            // A product that may wrap makes the sum unknown, too.
            if product == FULL { FULL } else { binary_range(BinaryOp::Add, product, range(c)) }
        }
        Expr::Select { a, b, .. } => (range(a).0.min(range(b).0), range(a).1.max(range(b).1)),
        Expr::Convert(a) if kernel.vals[a] == Scalar::Pred => (0, 1),
        Expr::ShuffleXor(a, _) => range(a),
        Expr::Get(_) | Expr::Compare(..) | Expr::Convert(_) | Expr::Bits(_) => FULL,
    }
}
