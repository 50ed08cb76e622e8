//! Instructions of expressions. An expansion of several writes the destination last, because the
//! destination may be a variable that an operand reads.

use super::magic::magic;
use super::{EmitError, Emitter, class, immediate, int, mov_op, reg};
use crate::kir::fold;
use crate::kir::{BinaryOp, CompareOp, Expr, Scalar, Special, UnaryOp, Val};
use eggine_ptx::ast::{self, Reg, RegClass};
use eggine_ptx::table::Op;

/// All lanes of a warp, for the member mask of a shuffle.
const FULL_WARP: i64 = 0xffff_ffff;

impl Emitter<'_> {
    pub(super) fn define(&mut self, val: Val, expr: &Expr) -> Result<(), EmitError> {
        self.depths[val] = self.depth();
        let ty = self.kernel.vals[val];
        match *expr {
            Expr::Const(_) => return Ok(()),
            Expr::Get(var) => {
                let source = self.var_reg(var);
                self.regs[val] = Some(source);
                if self.plan.alias[val].is_none() {
                    let dst = self.fresh(source.class);
                    self.inst(mov_op(source.class), vec![reg(dst), reg(source)]);
                    self.regs[val] = Some(dst);
                }
                return Ok(());
            }
            _ => {}
        }
        let dst = match self.plan.into_var[val] {
            Some(var) => self.var_reg(var),
            None => self.fresh(class(ty)),
        };
        if let (Scalar::I32, Expr::Binary(op @ (BinaryOp::Div | BinaryOp::Rem), a, b)) = (ty, *expr)
        {
            self.regs[val] = Some(self.divide(op == BinaryOp::Rem, dst, a, b)?);
            return Ok(());
        }
        let found = match *expr {
            Expr::Special(special) => {
                let special = match special {
                    Special::ThreadX => ast::Special::TidX,
                    Special::BlockX => ast::Special::CtaidX,
                    Special::BlockY => ast::Special::CtaidY,
                    Special::BlockZ => ast::Special::CtaidZ,
                };
                self.inst(Op::MovU32, vec![reg(dst), ast::Operand::Special(special)]);
                true
            }
            Expr::Unary(op, a) => self.unary(ty, op, dst, a)?,
            Expr::Binary(op, a, b) => match ty {
                Scalar::I32 => self.binary_i32(op, dst, a, b)?,
                _ => self.binary(ty, op, dst, a, b)?,
            },
            Expr::Compare(op, a, b) => self.compare(op, dst, a, b)?,
            Expr::Fma(a, b, c) => {
                let op = match ty {
                    Scalar::I32 => Some(Op::MadLoS32),
                    Scalar::I64 => Some(Op::MadLoS64),
                    Scalar::F32 => Some(Op::FmaRnF32),
                    Scalar::F64 => Some(Op::FmaRnF64),
                    Scalar::Pred => None,
                };
                if let Some(op) = op {
                    let operands = vec![reg(dst), self.src(a)?, self.operand(b)?, self.operand(c)?];
                    self.inst(op, operands);
                }
                op.is_some()
            }
            Expr::Select { cond, a, b } => {
                let op = match ty {
                    Scalar::I32 => Some(Op::SelpB32),
                    Scalar::I64 => Some(Op::SelpB64),
                    Scalar::F32 => Some(Op::SelpF32),
                    Scalar::F64 => Some(Op::SelpF64),
                    Scalar::Pred => None,
                };
                if let Some(op) = op {
                    let operands =
                        vec![reg(dst), self.operand(a)?, self.operand(b)?, self.src(cond)?];
                    self.inst(op, operands);
                }
                op.is_some()
            }
            Expr::Convert(a) => self.convert(ty, dst, a)?,
            Expr::Bits(a) => {
                let op = match ty {
                    Scalar::I32 | Scalar::F32 => Some(Op::MovB32),
                    Scalar::I64 | Scalar::F64 => Some(Op::MovB64),
                    Scalar::Pred => None,
                };
                if let Some(op) = op {
                    let src = self.src(a)?;
                    self.inst(op, vec![reg(dst), src]);
                }
                op.is_some()
            }
            Expr::ShuffleXor(a, mask) => self.shuffle(ty, dst, a, mask)?,
            Expr::Const(_) | Expr::Get(_) => unreachable!("handled above"),
        };
        if !found {
            let kernel = self.kernel.name.clone();
            return Err(EmitError::NoInstruction { kernel, val, expr: *expr, ty });
        }
        self.regs[val] = Some(dst);
        Ok(())
    }

    fn unary(&mut self, ty: Scalar, op: UnaryOp, dst: Reg, a: Val) -> Result<bool, EmitError> {
        use UnaryOp::*;
        let op = match (ty, op) {
            (Scalar::Pred, Not) => Op::NotPred,
            (Scalar::I32, Neg) => Op::NegS32,
            (Scalar::I32, Abs) => Op::AbsS32,
            (Scalar::I64, Neg) => Op::NegS64,
            (Scalar::I64, Abs) => Op::AbsS64,
            (Scalar::F32, Neg) => Op::NegF32,
            (Scalar::F32, Abs) => Op::AbsF32,
            (Scalar::F32, Floor) => Op::CvtRmiF32F32,
            (Scalar::F32, Ceil) => Op::CvtRpiF32F32,
            (Scalar::F32, Round) => Op::CvtRniF32F32,
            (Scalar::F32, Sqrt) => Op::SqrtRnF32,
            (Scalar::F32, Recip) => Op::RcpRnF32,
            (Scalar::F32, RsqrtApprox) => Op::RsqrtApproxF32,
            (Scalar::F32, Exp2Approx) => Op::Ex2ApproxF32,
            (Scalar::F32, Log2Approx) => Op::Lg2ApproxF32,
            (Scalar::F32, SinApprox) => Op::SinApproxF32,
            (Scalar::F32, CosApprox) => Op::CosApproxF32,
            (Scalar::F64, Neg) => Op::NegF64,
            (Scalar::F64, Abs) => Op::AbsF64,
            (Scalar::F64, Floor) => Op::CvtRmiF64F64,
            (Scalar::F64, Ceil) => Op::CvtRpiF64F64,
            (Scalar::F64, Round) => Op::CvtRniF64F64,
            (Scalar::F64, Sqrt) => Op::SqrtRnF64,
            (Scalar::F64, Recip) => Op::RcpRnF64,
            _ => return Ok(false),
        };
        let a = self.src(a)?;
        self.inst(op, vec![reg(dst), a]);
        Ok(true)
    }

    fn binary(
        &mut self,
        ty: Scalar,
        op: BinaryOp,
        dst: Reg,
        a: Val,
        b: Val,
    ) -> Result<bool, EmitError> {
        use BinaryOp::*;
        let op = match (ty, op) {
            (Scalar::Pred, And) if self.bounds_check(dst, a, b)? => return Ok(true),
            (Scalar::Pred, And) => Op::AndPred,
            (Scalar::Pred, Or) => Op::OrPred,
            (Scalar::Pred, Xor) => Op::XorPred,
            (Scalar::I64, Add) => Op::AddS64,
            (Scalar::I64, Sub) => Op::SubS64,
            (Scalar::I64, Mul) => Op::MulLoS64,
            (Scalar::I64, Div) => Op::DivS64,
            (Scalar::I64, Rem) => Op::RemS64,
            (Scalar::I64, Min) => Op::MinS64,
            (Scalar::I64, Max) => Op::MaxS64,
            (Scalar::I64, And) => Op::AndB64,
            (Scalar::I64, Or) => Op::OrB64,
            (Scalar::I64, Xor) => Op::XorB64,
            (Scalar::I64, Shl) => Op::ShlB64,
            (Scalar::I64, Shr) => Op::ShrS64,
            (Scalar::F32, Add) => Op::AddRnF32,
            (Scalar::F32, Sub) => Op::SubRnF32,
            (Scalar::F32, Mul) => Op::MulRnF32,
            (Scalar::F32, Div) => Op::DivRnF32,
            (Scalar::F32, Min) => Op::MinNanF32,
            (Scalar::F32, Max) => Op::MaxNanF32,
            (Scalar::F64, Add) => Op::AddRnF64,
            (Scalar::F64, Sub) => Op::SubRnF64,
            (Scalar::F64, Mul) => Op::MulRnF64,
            (Scalar::F64, Div) => Op::DivRnF64,
            (Scalar::F64, Min | Max) => {
                // There is no `min.NaN.f64`.
                let (a, b) = (self.src(a)?, self.src(b)?);
                let (least, nan) = (self.fresh(RegClass::F64), self.fresh(RegClass::Pred));
                let op = if op == Min { Op::MinF64 } else { Op::MaxF64 };
                self.inst(op, vec![reg(least), a.clone(), b.clone()]);
                self.inst(Op::SetpNanF64, vec![reg(nan), a, b]);
                let quiet = ast::Operand::F64(f64::NAN.to_bits());
                self.inst(Op::SelpF64, vec![reg(dst), quiet, reg(least), reg(nan)]);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let b = if ty == Scalar::Pred { self.src(b)? } else { self.operand(b)? };
        let operands = vec![reg(dst), self.src(a)?, b];
        self.inst(op, operands);
        Ok(true)
    }

    /// `low <= x && x < high` as one unsigned comparison.
    fn bounds_check(&mut self, dst: Reg, a: Val, b: Val) -> Result<bool, EmitError> {
        let parts = |emitter: &Self, lower: Val, upper: Val| {
            let Some(Expr::Compare(CompareOp::Le, low, x)) = emitter.plan.exprs[lower] else {
                return None;
            };
            let Some(Expr::Compare(CompareOp::Lt, y, high)) = emitter.plan.exprs[upper] else {
                return None;
            };
            let is_i32 = emitter.kernel.vals[x] == Scalar::I32;
            let low = emitter.constant(low).map(fold::as_i32)?;
            // `high - low` must be a non-negative `i32`, and a variable may have changed since.
            let (min, max) = emitter.plan.ranges[high];
            let fits = min >= i64::from(low) && max - i64::from(low) <= i64::from(i32::MAX);
            let constant = emitter.constant(high).map(fold::as_i32);
            let get = emitter.plan.is_get(x) || emitter.plan.is_get(high);
            (x == y && is_i32 && fits && !get && (low == 0 || constant.is_some()))
                .then_some((x, low, high, constant))
        };
        let Some((x, low, high, constant)) = parts(self, a, b).or_else(|| parts(self, b, a)) else {
            return Ok(false);
        };
        let mut x = self.src(x)?;
        let mut high = self.operand(high)?;
        if low != 0 {
            let shifted = self.fresh(RegClass::B32);
            self.inst(Op::AddS32, vec![reg(shifted), x, int(low.wrapping_neg())]);
            x = reg(shifted);
            high = int(constant.map_or(0, |high| i64::from(high) - i64::from(low)));
        }
        self.inst(Op::SetpLtU32, vec![reg(dst), x, high]);
        Ok(true)
    }

    /// If a value is a product, its factors. Not of variables, which may have changed since.
    fn product(&self, val: Val) -> Option<(Val, Val)> {
        match self.plan.exprs[val] {
            Some(Expr::Binary(BinaryOp::Mul, a, b))
                if !self.plan.is_get(a) && !self.plan.is_get(b) =>
            {
                Some((a, b))
            }
            _ => None,
        }
    }

    fn binary_i32(&mut self, op: BinaryOp, dst: Reg, a: Val, b: Val) -> Result<bool, EmitError> {
        let power = |bits: u64| {
            let value = fold::as_i32(bits);
            (value > 0 && value.count_ones() == 1).then(|| value.trailing_zeros())
        };
        let op = match op {
            BinaryOp::Add => {
                // A sum with a product is one instruction, whether or not the product is used elsewhere.
                if let Some((x, y)) = self.product(b) {
                    let operands = vec![reg(dst), self.src(x)?, self.operand(y)?, self.operand(a)?];
                    self.inst(Op::MadLoS32, operands);
                    return Ok(true);
                }
                if let Some((x, y)) = self.product(a) {
                    let operands = vec![reg(dst), self.src(x)?, self.operand(y)?, self.operand(b)?];
                    self.inst(Op::MadLoS32, operands);
                    return Ok(true);
                }
                Op::AddS32
            }
            BinaryOp::Sub => {
                if let Some((x, y)) = self.product(b)
                    && let Some(factor) = self.constant(y)
                {
                    let factor = int(fold::as_i32(factor).wrapping_neg());
                    let operands = vec![reg(dst), self.src(x)?, factor, self.operand(a)?];
                    self.inst(Op::MadLoS32, operands);
                    return Ok(true);
                }
                Op::SubS32
            }
            BinaryOp::Mul => {
                if let Some(shift) = self.constant(b).and_then(power) {
                    let operands = vec![reg(dst), self.src(a)?, int(shift)];
                    self.inst(Op::ShlB32, operands);
                    return Ok(true);
                }
                Op::MulLoS32
            }
            BinaryOp::Div | BinaryOp::Rem => unreachable!("divided by `define`"),
            BinaryOp::Min => Op::MinS32,
            BinaryOp::Max => Op::MaxS32,
            BinaryOp::And => Op::AndB32,
            BinaryOp::Or => Op::OrB32,
            BinaryOp::Xor => Op::XorB32,
            BinaryOp::Shl => Op::ShlB32,
            BinaryOp::Shr => Op::ShrS32,
        };
        let operands = vec![reg(dst), self.src(a)?, self.operand(b)?];
        self.inst(op, operands);
        Ok(true)
    }

    /// The register with the result: the destination, or one that has the quotient already.
    fn divide(&mut self, remainder: bool, dst: Reg, a: Val, b: Val) -> Result<Reg, EmitError> {
        let range = self.plan.ranges[a];
        let divisor =
            self.constant(b).map(fold::as_i32).filter(|&divisor| divisor >= 2 && range.0 >= 0);
        let Some(divisor) = divisor else {
            let unsigned = range.0 >= 0 && self.plan.ranges[b].0 >= 0;
            let op = match (unsigned, remainder) {
                (false, false) => Op::DivS32,
                (false, true) => Op::RemS32,
                (true, false) => Op::DivU32,
                (true, true) => Op::RemU32,
            };
            let operands = vec![reg(dst), self.src(a)?, self.operand(b)?];
            self.inst(op, operands);
            return Ok(dst);
        };
        let src = self.src(a)?;
        if divisor.count_ones() == 1 {
            let (op, amount) = if remainder {
                (Op::AndB32, divisor - 1)
            } else {
                (Op::ShrU32, divisor.trailing_zeros() as i32)
            };
            self.inst(op, vec![reg(dst), src, int(amount)]);
            return Ok(dst);
        }
        let key = (a, divisor as u32);
        let known = self.scopes.iter().find_map(|scope| scope.quotients.get(&key).copied());
        let quotient = match known {
            Some(quotient) => quotient,
            None => {
                let magic = magic(divisor as u32, range.1 as u32);
                // Not the destination: that may be a variable, which changes.
                let mut quotient = self.fresh(RegClass::B32);
                self.inst(Op::MulHiU32, vec![reg(quotient), src.clone(), int(magic.multiplier)]);
                if magic.shift > 0 {
                    let shifted = self.fresh(RegClass::B32);
                    self.inst(Op::ShrU32, vec![reg(shifted), reg(quotient), int(magic.shift)]);
                    quotient = shifted;
                }
                let depth = self.depth();
                self.scopes[depth].quotients.insert(key, quotient);
                quotient
            }
        };
        if remainder {
            self.inst(Op::MadLoS32, vec![reg(dst), reg(quotient), int(-divisor), src]);
        } else if self.is_var_reg.contains(&dst) {
            self.inst(Op::MovU32, vec![reg(dst), reg(quotient)]);
        } else {
            return Ok(quotient);
        }
        Ok(dst)
    }

    fn compare(&mut self, op: CompareOp, dst: Reg, a: Val, b: Val) -> Result<bool, EmitError> {
        use CompareOp::*;
        let ty = self.kernel.vals[a];
        // The immediate comes second.
        let swapped = self.constant(a).is_some() && self.constant(b).is_none();
        let op = match (ty, op, swapped) {
            (Scalar::I32, Eq, _) => Op::SetpEqS32,
            (Scalar::I32, Ne, _) => Op::SetpNeS32,
            (Scalar::I32, Lt, false) => Op::SetpLtS32,
            (Scalar::I32, Le, false) => Op::SetpLeS32,
            (Scalar::I32, Lt, true) => Op::SetpGtS32,
            (Scalar::I32, Le, true) => Op::SetpGeS32,
            (Scalar::I64, Eq, _) => Op::SetpEqS64,
            (Scalar::I64, Ne, _) => Op::SetpNeS64,
            (Scalar::I64, Lt, false) => Op::SetpLtS64,
            (Scalar::I64, Le, false) => Op::SetpLeS64,
            (Scalar::I64, Lt, true) => Op::SetpGtS64,
            (Scalar::I64, Le, true) => Op::SetpGeS64,
            (Scalar::F32, Eq, _) => Op::SetpEqF32,
            (Scalar::F32, Ne, _) => Op::SetpNeuF32,
            (Scalar::F32, Lt, false) => Op::SetpLtF32,
            (Scalar::F32, Le, false) => Op::SetpLeF32,
            (Scalar::F32, Lt, true) => Op::SetpGtF32,
            (Scalar::F32, Le, true) => Op::SetpGeF32,
            (Scalar::F64, Eq, _) => Op::SetpEqF64,
            (Scalar::F64, Ne, _) => Op::SetpNeuF64,
            (Scalar::F64, Lt, false) => Op::SetpLtF64,
            (Scalar::F64, Le, false) => Op::SetpLeF64,
            (Scalar::F64, Lt, true) => Op::SetpGtF64,
            (Scalar::F64, Le, true) => Op::SetpGeF64,
            (Scalar::Pred, ..) => return Ok(false),
        };
        let (a, b) = if swapped { (b, a) } else { (a, b) };
        let operands = vec![reg(dst), self.src(a)?, self.operand(b)?];
        self.inst(op, operands);
        Ok(true)
    }

    fn convert(&mut self, to: Scalar, dst: Reg, a: Val) -> Result<bool, EmitError> {
        use Scalar::*;
        let from = self.kernel.vals[a];
        let src = self.src(a)?;
        let op = match (from, to) {
            _ if from == to => mov_op(class(to)),
            (_, Pred) => return Ok(false),
            (Pred, _) => {
                let (op, one) = match to {
                    I32 => (Op::SelpB32, 1),
                    I64 => (Op::SelpB64, 1),
                    F32 => (Op::SelpF32, u64::from(1f32.to_bits())),
                    _ => (Op::SelpF64, 1f64.to_bits()),
                };
                let (one, zero) = (immediate(class(to), one), immediate(class(to), 0));
                self.inst(op, vec![reg(dst), one, zero, src]);
                return Ok(true);
            }
            (I32, I64) => Op::CvtS64S32,
            (I32, F32) => Op::CvtRnF32S32,
            (I32, _) => Op::CvtRnF64S32,
            (I64, I32) => Op::CvtS32S64,
            (I64, F32) => Op::CvtRnF32S64,
            (I64, _) => Op::CvtRnF64S64,
            (F32, I32) => Op::CvtRziS32F32,
            (F32, F64) => Op::CvtF64F32,
            (F64, F32) => Op::CvtRnF32F64,
            (F32, _) => return self.truncate(Op::CvtRziS64F32, Op::SetpNanF32, to, dst, &src),
            (F64, I32) => return self.truncate(Op::CvtRziS32F64, Op::SetpNanF64, to, dst, &src),
            (F64, _) => return self.truncate(Op::CvtRziS64F64, Op::SetpNanF64, to, dst, &src),
        };
        self.inst(op, vec![reg(dst), src]);
        Ok(true)
    }

    /// Float to integer where the instruction alone does not turn NaN into 0: PTX ISA, `cvt`.
    fn truncate(
        &mut self,
        op: Op,
        is_nan: Op,
        to: Scalar,
        dst: Reg,
        src: &ast::Operand,
    ) -> Result<bool, EmitError> {
        let (truncated, nan) = (self.fresh(class(to)), self.fresh(RegClass::Pred));
        self.inst(op, vec![reg(truncated), src.clone()]);
        self.inst(is_nan, vec![reg(nan), src.clone(), src.clone()]);
        let select = if to == Scalar::I32 { Op::SelpB32 } else { Op::SelpB64 };
        self.inst(select, vec![reg(dst), int(0), reg(truncated), reg(nan)]);
        Ok(true)
    }

    fn shuffle(&mut self, ty: Scalar, dst: Reg, a: Val, mask: u32) -> Result<bool, EmitError> {
        if !matches!(ty, Scalar::I32 | Scalar::F32) {
            return Ok(false);
        }
        let src = self.src(a)?;
        let operands = vec![reg(dst), src, int(mask), int(31), int(FULL_WARP)];
        self.inst(Op::ShflSyncBflyB32, operands);
        Ok(true)
    }
}
