//! Constructors of computed values, with their simplifications.
//!
//! Floats are only simplified where the result is the same bits (any NaN for any NaN).

use super::Builder;
use crate::kir::fold;
use crate::kir::{BinaryOp, CompareOp, Expr, Scalar, UnaryOp, Val};

impl Builder {
    /// `a + b`
    pub fn add(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Add, a, b)
    }

    /// `a - b`
    pub fn sub(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Sub, a, b)
    }

    /// `a * b`
    pub fn mul(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Mul, a, b)
    }

    /// `a / b`
    pub fn div(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Div, a, b)
    }

    /// `a % b`
    pub fn rem(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Rem, a, b)
    }

    /// The smaller; NaN if either is.
    pub fn min(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Min, a, b)
    }

    /// The larger; NaN if either is.
    pub fn max(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Max, a, b)
    }

    /// Bitwise, or of predicates.
    pub fn and(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::And, a, b)
    }

    /// Bitwise, or of predicates.
    pub fn or(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Or, a, b)
    }

    /// Bitwise, or of predicates.
    pub fn xor(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Xor, a, b)
    }

    /// `a << b`
    pub fn shl(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Shl, a, b)
    }

    /// `a >> b`, keeping the sign.
    pub fn shr(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Shr, a, b)
    }

    /// `a + constant` on `i32`.
    pub fn add_const(&mut self, a: Val, constant: i32) -> Val {
        let constant = self.i32(constant);
        self.add(a, constant)
    }

    /// `a * constant` on `i32`.
    pub fn mul_const(&mut self, a: Val, constant: i32) -> Val {
        let constant = self.i32(constant);
        self.mul(a, constant)
    }

    /// `a / constant` on `i32`.
    pub fn div_const(&mut self, a: Val, constant: i32) -> Val {
        let constant = self.i32(constant);
        self.div(a, constant)
    }

    /// `a % constant` on `i32`.
    pub fn rem_const(&mut self, a: Val, constant: i32) -> Val {
        let constant = self.i32(constant);
        self.rem(a, constant)
    }

    /// `a * constant + b` on `i32`.
    pub fn mad_const(&mut self, a: Val, constant: i32, b: Val) -> Val {
        let product = self.mul_const(a, constant);
        self.add(product, b)
    }

    /// `-a`
    pub fn neg(&mut self, a: Val) -> Val {
        self.unary(UnaryOp::Neg, a)
    }

    /// `!a` of a predicate.
    pub fn not(&mut self, a: Val) -> Val {
        self.unary(UnaryOp::Not, a)
    }

    /// `a < b`
    pub fn lt(&mut self, a: Val, b: Val) -> Val {
        self.compare(CompareOp::Lt, a, b)
    }

    /// `a <= b`
    pub fn le(&mut self, a: Val, b: Val) -> Val {
        self.compare(CompareOp::Le, a, b)
    }

    /// `a > b`
    pub fn gt(&mut self, a: Val, b: Val) -> Val {
        self.compare(CompareOp::Lt, b, a)
    }

    /// `a >= b`
    pub fn ge(&mut self, a: Val, b: Val) -> Val {
        self.compare(CompareOp::Le, b, a)
    }

    /// `a == b`
    pub fn eq(&mut self, a: Val, b: Val) -> Val {
        self.compare(CompareOp::Eq, a, b)
    }

    /// `a != b`
    pub fn ne(&mut self, a: Val, b: Val) -> Val {
        self.compare(CompareOp::Ne, a, b)
    }

    /// `low <= a && a < high` on `i32`.
    pub fn in_bounds(&mut self, a: Val, low: i32, high: i32) -> Val {
        let (low, high) = (self.i32(low), self.i32(high));
        let (above, below) = (self.le(low, a), self.lt(a, high));
        self.and(above, below)
    }

    /// An operation of one operand.
    pub fn unary(&mut self, op: UnaryOp, a: Val) -> Val {
        let ty = self.ty(a);
        if let Some(bits) = self.as_const(a)
            && let Some(bits) = fold::unary(ty, op, bits)
            && !is_nan(ty, bits)
        {
            return self.constant(ty, bits);
        }
        match (op, self.info[a].expr) {
            (UnaryOp::Neg, _) if ty == Scalar::I32 => return self.i32_scale(a, -1),
            (UnaryOp::Neg, Some(Expr::Unary(UnaryOp::Neg, x))) => return x,
            (UnaryOp::Not, Some(Expr::Unary(UnaryOp::Not, x))) => return x,
            (UnaryOp::Not, Some(Expr::Compare(compare, x, y)))
                if matches!(self.ty(x), Scalar::I32 | Scalar::I64) =>
            {
                return match compare {
                    CompareOp::Eq => self.compare(CompareOp::Ne, x, y),
                    CompareOp::Ne => self.compare(CompareOp::Eq, x, y),
                    CompareOp::Lt => self.compare(CompareOp::Le, y, x),
                    CompareOp::Le => self.compare(CompareOp::Lt, y, x),
                };
            }
            (UnaryOp::Abs, Some(Expr::Unary(UnaryOp::Abs, _))) => return a,
            (UnaryOp::Abs, _) if ty == Scalar::I32 && self.range(a).0 >= 0 => return a,
            _ => {}
        }
        self.define(ty, Expr::Unary(op, a))
    }

    /// An operation of two operands of one type (shifts: the amount is an `i32`).
    pub fn binary(&mut self, op: BinaryOp, a: Val, b: Val) -> Val {
        let ty = self.ty(a);
        let shift = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
        assert_eq!(self.ty(b), if shift { Scalar::I32 } else { ty }, "operands of {op:?}");
        let (ca, cb) = (self.as_const(a), self.as_const(b));
        if let (Some(ca), Some(cb)) = (ca, cb)
            && let Some(bits) = fold::binary(ty, op, ca, cb)
            && !is_nan(ty, bits)
        {
            return self.constant(ty, bits);
        }
        match ty {
            Scalar::I32 => self.binary_i32(op, a, b),
            Scalar::I64 => self.binary_i64(op, a, b),
            Scalar::F32 | Scalar::F64 => self.binary_float(op, a, b),
            Scalar::Pred => self.binary_pred(op, a, b),
        }
    }

    fn commutative(&mut self, op: BinaryOp, a: Val, b: Val) -> Val {
        // A constant comes second, where instructions have their immediate.
        let swap = match (self.as_const(a), self.as_const(b)) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            _ => a > b,
        };
        let (a, b) = if swap { (b, a) } else { (a, b) };
        self.define(self.ty(a), Expr::Binary(op, a, b))
    }

    fn binary_i32(&mut self, op: BinaryOp, a: Val, b: Val) -> Val {
        let (ca, cb) = (self.as_i32(a), self.as_i32(b));
        let (ra, rb) = (self.range(a), self.range(b));
        match op {
            BinaryOp::Add => return self.i32_sum(a, b, false),
            BinaryOp::Sub => return self.i32_sum(a, b, true),
            BinaryOp::Mul => {
                if let Some(factor) = cb {
                    return self.i32_scale(a, factor);
                }
                if let Some(factor) = ca {
                    return self.i32_scale(b, factor);
                }
            }
            BinaryOp::Div | BinaryOp::Rem => {
                let remainder = op == BinaryOp::Rem;
                match cb {
                    Some(1) => return if remainder { self.i32(0) } else { a },
                    Some(divisor) if divisor > 0 && ra.0 >= 0 => {
                        return self.i32_divide(a, divisor, remainder);
                    }
                    _ => {}
                }
                if ra.0 >= 0 && ra.1 < rb.0 {
                    return if remainder { a } else { self.i32(0) };
                }
                return self.define(Scalar::I32, Expr::Binary(op, a, b));
            }
            BinaryOp::Min | BinaryOp::Max => {
                let (lower, upper) = if ra.1 <= rb.0 {
                    (a, b)
                } else if rb.1 <= ra.0 {
                    (b, a)
                } else {
                    match self.difference_range(a, b) {
                        Some((_, hi)) if hi <= 0 => (a, b),
                        Some((lo, _)) if lo >= 0 => (b, a),
                        _ => return self.commutative(op, a, b),
                    }
                };
                return if op == BinaryOp::Min { lower } else { upper };
            }
            BinaryOp::And => {
                if a == b || cb == Some(-1) {
                    return a;
                }
                if cb == Some(0) || ca == Some(0) {
                    return self.i32(0);
                }
                if let Some(mask) = cb
                    && mask > 0
                    && mask < i32::MAX
                    && (mask + 1).count_ones() == 1
                    && ra.0 >= 0
                {
                    return self.i32_divide(a, mask + 1, true);
                }
            }
            BinaryOp::Or => {
                if a == b || cb == Some(0) {
                    return a;
                }
                if ca == Some(0) {
                    return b;
                }
            }
            BinaryOp::Xor => {
                if a == b {
                    return self.i32(0);
                }
                if cb == Some(0) {
                    return a;
                }
                if ca == Some(0) {
                    return b;
                }
            }
            BinaryOp::Shl => {
                return match cb {
                    Some(amount @ 0..=31) => self.i32_scale(a, 1i32.wrapping_shl(amount as u32)),
                    _ => self.define(Scalar::I32, Expr::Binary(op, a, b)),
                };
            }
            BinaryOp::Shr => {
                return match cb {
                    Some(0) => a,
                    Some(amount @ 1..=30) if ra.0 >= 0 => self.i32_divide(a, 1 << amount, false),
                    _ => self.define(Scalar::I32, Expr::Binary(op, a, b)),
                };
            }
        }
        self.commutative(op, a, b)
    }

    fn binary_i64(&mut self, op: BinaryOp, a: Val, b: Val) -> Val {
        let (ca, cb) =
            (self.as_const(a).map(|bits| bits as i64), self.as_const(b).map(|bits| bits as i64));
        match (op, ca, cb) {
            (BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Sub, _, Some(0)) => a,
            (BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor, Some(0), _) => b,
            (BinaryOp::Mul | BinaryOp::Div, _, Some(1)) => a,
            (BinaryOp::Shl | BinaryOp::Shr, _, Some(0)) => a,
            (BinaryOp::Mul, Some(1), _) => b,
            (BinaryOp::Mul | BinaryOp::And, Some(0), _) => a,
            (BinaryOp::Mul | BinaryOp::And, _, Some(0)) => b,
            (BinaryOp::Rem, _, Some(1)) => self.i64(0),
            (BinaryOp::Sub | BinaryOp::Xor, ..) if a == b => self.i64(0),
            (BinaryOp::Min | BinaryOp::Max | BinaryOp::And | BinaryOp::Or, ..) if a == b => a,
            (BinaryOp::Sub | BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shl | BinaryOp::Shr, ..) => {
                self.define(Scalar::I64, Expr::Binary(op, a, b))
            }
            _ => self.commutative(op, a, b),
        }
    }

    fn binary_float(&mut self, op: BinaryOp, a: Val, b: Val) -> Val {
        let ty = self.ty(a);
        let value = |bits: u64| {
            if ty == Scalar::F32 { f64::from(fold::as_f32(bits)) } else { fold::as_f64(bits) }
        };
        let (ca, cb) = (self.as_const(a).map(value), self.as_const(b).map(value));
        let is = |c: Option<f64>, x: f64| c.is_some_and(|c| c.to_bits() == x.to_bits());
        match op {
            // x + 0 is not x where x is −0.
            BinaryOp::Add if is(cb, -0.0) => a,
            BinaryOp::Add if is(ca, -0.0) => b,
            BinaryOp::Sub if is(cb, 0.0) => a,
            BinaryOp::Mul if is(cb, 1.0) => a,
            BinaryOp::Mul if is(ca, 1.0) => b,
            BinaryOp::Mul if is(cb, -1.0) => self.neg(a),
            BinaryOp::Mul if is(ca, -1.0) => self.neg(b),
            BinaryOp::Div if is(cb, 1.0) => a,
            BinaryOp::Div => {
                // Dividing by 2ᵏ is multiplying by 2⁻ᵏ: the same real number, rounded the same way.
                if let Some(divisor) = cb
                    && let Some(reciprocal) = exact_reciprocal(divisor)
                {
                    let factor = if ty == Scalar::F32 {
                        self.f32(reciprocal as f32)
                    } else {
                        self.f64(reciprocal)
                    };
                    return self.mul(a, factor);
                }
                self.define(ty, Expr::Binary(op, a, b))
            }
            BinaryOp::Min | BinaryOp::Max if a == b => a,
            BinaryOp::Sub => self.define(ty, Expr::Binary(op, a, b)),
            _ => self.commutative(op, a, b),
        }
    }

    fn binary_pred(&mut self, op: BinaryOp, a: Val, b: Val) -> Val {
        let (ca, cb) = (self.as_const(a), self.as_const(b));
        match (op, ca, cb) {
            (BinaryOp::And, Some(1), _) | (BinaryOp::Or | BinaryOp::Xor, Some(0), _) => b,
            (BinaryOp::And, _, Some(1)) | (BinaryOp::Or | BinaryOp::Xor, _, Some(0)) => a,
            (BinaryOp::And, Some(0), _) | (BinaryOp::Or, Some(1), _) => a,
            (BinaryOp::And, _, Some(0)) | (BinaryOp::Or, _, Some(1)) => b,
            (BinaryOp::Xor, Some(1), _) => self.not(b),
            (BinaryOp::Xor, _, Some(1)) => self.not(a),
            (BinaryOp::And | BinaryOp::Or, ..) if a == b => a,
            (BinaryOp::Xor, ..) if a == b => self.pred(false),
            _ => self.commutative(op, a, b),
        }
    }

    /// A comparison; `Ne` is true on NaN, the others false.
    pub fn compare(&mut self, op: CompareOp, a: Val, b: Val) -> Val {
        let ty = self.ty(a);
        assert_eq!(ty, self.ty(b), "operands of {op:?}");
        if let (Some(ca), Some(cb)) = (self.as_const(a), self.as_const(b)) {
            return self.pred(fold::compare(ty, op, ca, cb));
        }
        let integer = matches!(ty, Scalar::I32 | Scalar::I64);
        if integer && a == b {
            return self.pred(matches!(op, CompareOp::Eq | CompareOp::Le));
        }
        if ty == Scalar::I32 {
            if let Some(holds) = fold::compare_range(op, self.range(a), self.range(b)) {
                return self.pred(holds);
            }
            if let Some((lo, hi)) = self.difference_range(a, b) {
                let holds = match op {
                    CompareOp::Lt if hi < 0 => Some(true),
                    CompareOp::Lt if lo >= 0 => Some(false),
                    CompareOp::Le if hi <= 0 => Some(true),
                    CompareOp::Le if lo > 0 => Some(false),
                    CompareOp::Eq if lo > 0 || hi < 0 => Some(false),
                    CompareOp::Ne if lo > 0 || hi < 0 => Some(true),
                    CompareOp::Eq if lo == 0 && hi == 0 => Some(true),
                    CompareOp::Ne if lo == 0 && hi == 0 => Some(false),
                    _ => None,
                };
                if let Some(holds) = holds {
                    return self.pred(holds);
                }
            }
        }
        // Equality is symmetric: a constant second, otherwise in order.
        let symmetric = matches!(op, CompareOp::Eq | CompareOp::Ne);
        let swap =
            symmetric && (self.as_const(a).is_some() || (self.as_const(b).is_none() && a > b));
        let (a, b) = if swap { (b, a) } else { (a, b) };
        self.define(Scalar::Pred, Expr::Compare(op, a, b))
    }

    /// `a * b + c`; for floats rounded once.
    pub fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        let ty = self.ty(a);
        assert!(ty == self.ty(b) && ty == self.ty(c), "operands of a fused multiply-add");
        if ty == Scalar::I32 {
            let product = self.mul(a, b);
            return self.add(product, c);
        }
        if let (Some(ca), Some(cb), Some(cc)) =
            (self.as_const(a), self.as_const(b), self.as_const(c))
            && let Some(bits) = fold::fma(ty, ca, cb, cc)
            && !is_nan(ty, bits)
        {
            return self.constant(ty, bits);
        }
        let (one, negative_zero) = match ty {
            Scalar::F32 => (u64::from(1f32.to_bits()), Some(u64::from((-0f32).to_bits()))),
            Scalar::F64 => (1f64.to_bits(), Some((-0f64).to_bits())),
            _ => (1, Some(0)),
        };
        if self.as_const(a) == Some(one) {
            return self.add(b, c);
        }
        if self.as_const(b) == Some(one) {
            return self.add(a, c);
        }
        if self.as_const(c) == negative_zero {
            return self.mul(a, b);
        }
        let (a, b) = if self.as_const(a).is_some() { (b, a) } else { (a, b) };
        self.define(ty, Expr::Fma(a, b, c))
    }

    /// `if cond { a } else { b }`
    pub fn select(&mut self, cond: Val, a: Val, b: Val) -> Val {
        let ty = self.ty(a);
        assert!(self.ty(cond) == Scalar::Pred && ty == self.ty(b), "operands of a selection");
        match self.as_const(cond) {
            Some(1) => return a,
            Some(_) => return b,
            None => {}
        }
        if a == b {
            return a;
        }
        if let Some(Expr::Unary(UnaryOp::Not, x)) = self.info[cond].expr {
            return self.select(x, b, a);
        }
        if ty == Scalar::Pred {
            match (self.as_const(a), self.as_const(b)) {
                (Some(1), Some(_)) => return cond,
                (Some(_), Some(_)) => return self.not(cond),
                _ => {
                    let not = self.not(cond);
                    let (first, second) = (self.and(cond, a), self.and(not, b));
                    return self.or(first, second);
                }
            }
        }
        self.define(ty, Expr::Select { cond, a, b })
    }

    /// Conversion to another type; see [`Expr::Convert`].
    pub fn convert(&mut self, a: Val, to: Scalar) -> Val {
        let from = self.ty(a);
        if from == to {
            return a;
        }
        if let Some(bits) = self.as_const(a)
            && let Some(bits) = fold::convert(from, to, bits)
            && !is_nan(to, bits)
        {
            return self.constant(to, bits);
        }
        assert_ne!(to, Scalar::Pred, "compare with 0 instead of converting to a predicate");
        if let Some(Expr::Convert(inner)) = self.info[a].expr
            && self.ty(inner) == to
            && matches!(
                (to, from),
                (Scalar::I32, Scalar::I64 | Scalar::F64) | (Scalar::F32, Scalar::F64)
            )
        {
            return inner;
        }
        self.define(to, Expr::Convert(a))
    }

    /// The bits of a value as the other type of their width; see [`Expr::Bits`].
    pub fn bits(&mut self, a: Val, to: Scalar) -> Val {
        let from = self.ty(a);
        let constant = self.as_const(a).unwrap_or(0);
        let folded = fold::bits(from, to, constant).expect("types of one width");
        if self.as_const(a).is_some() && !is_nan(to, folded) {
            return self.constant(to, folded);
        }
        if let Some(Expr::Bits(inner)) = self.info[a].expr {
            return inner;
        }
        self.define(to, Expr::Bits(a))
    }

    /// The value that the lane `lane ^ mask` has. All lanes of the warp must get here.
    pub fn shuffle_xor(&mut self, a: Val, mask: u32) -> Val {
        let (ty, depth) = (self.ty(a), self.scopes.len() - 1);
        self.fresh(ty, Expr::ShuffleXor(a, mask), depth)
    }
}

fn is_nan(ty: Scalar, bits: u64) -> bool {
    match ty {
        Scalar::F32 => fold::as_f32(bits).is_nan(),
        Scalar::F64 => fold::as_f64(bits).is_nan(),
        _ => false,
    }
}

/// `1/x` if `x` is a power of two whose reciprocal is a normal `f32`.
fn exact_reciprocal(x: f64) -> Option<f64> {
    let power_of_two = x.is_normal() && x.to_bits() & ((1 << 52) - 1) == 0;
    (power_of_two && x.abs() <= 2f64.powi(126) && x.abs() >= 2f64.powi(-126)).then(|| 1.0 / x)
}
