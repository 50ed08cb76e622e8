//! Every PTX instruction that we emit, in one table: mnemonic, operand signature, and the least
//! target and ISA version that have it. Parser, printer, builder and executor read the row.
//!
//! Operand kinds: `dst`/`src` a register of the class, `imm` a register or an immediate, `any` also a
//! special register or a shared symbol (class `R` only), `param`, `global` and `shared` an address in
//! that space, `label`, `int` a literal. Classes: `P` pred, `H` b16, `R` b32, `D` b64, `F` f32, `G` f64;
//! `RF` and `DG` either; `Fx4` a vector of four.
//!
//! Source: PTX ISA 9.0, chapter 9; the order of operands is the manual's.

use std::fmt;
use std::sync::LazyLock;

use crate::ast::{Base, Operand, RegClass};

/// What the table says about an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpSpec {
    /// Mnemonic with all modifiers.
    pub mnemonic: &'static str,
    /// What each operand may be.
    pub signature: &'static [Slot],
    /// Least `sm` version.
    pub sm: u32,
    /// Least `.version`, as (major, minor).
    pub isa: (u32, u32),
}

/// What an operand may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A register that the instruction writes.
    Dst(Classes),
    /// A register that it reads.
    Src(Classes),
    /// A register that it reads, or an immediate.
    Imm(RegClass),
    /// As `Imm`; in class [`RegClass::B32`] also a special register or a shared array's address.
    Any(RegClass),
    /// `[param]`
    Param,
    /// `[%rd+offset]`
    Global,
    /// `[%r+offset]` or `[array+offset]`
    Shared,
    /// A branch target.
    Label,
    /// A literal.
    Int,
}

/// Registers that a [`Slot`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classes {
    /// One of this class.
    One(RegClass),
    /// One of either class: the bits are what counts.
    Either(RegClass, RegClass),
    /// A vector of so many registers.
    Vector(RegClass, usize),
}

impl Classes {
    /// Whether the operand is a register, or a vector of registers, of these classes.
    pub fn accepts(self, operand: &Operand) -> bool {
        match (self, operand) {
            (Classes::One(class), Operand::Reg(reg)) => reg.class == class,
            (Classes::Either(a, b), Operand::Reg(reg)) => reg.class == a || reg.class == b,
            (Classes::Vector(class, n), Operand::Regs(regs)) => {
                regs.len() == n && regs.iter().all(|reg| reg.class == class)
            }
            _ => false,
        }
    }
}

impl Slot {
    /// Whether the operand may stand here. Does not know which registers, symbols and labels exist.
    pub fn accepts(self, operand: &Operand) -> bool {
        match self {
            Slot::Dst(classes) | Slot::Src(classes) => classes.accepts(operand),
            Slot::Imm(class) => accepts_immediate(class, operand),
            Slot::Any(class) => {
                accepts_immediate(class, operand)
                    || (class == RegClass::B32
                        && matches!(operand, Operand::Special(_) | Operand::Symbol(_)))
            }
            Slot::Param => matches!(operand, Operand::Address { base: Base::Param(_), .. }),
            Slot::Global => {
                matches!(operand, Operand::Address { base: Base::Reg(reg), .. } if reg.class == RegClass::B64)
            }
            Slot::Shared => match operand {
                Operand::Address { base: Base::Reg(reg), .. } => reg.class == RegClass::B32,
                Operand::Address { base: Base::Shared(_), .. } => true,
                _ => false,
            },
            Slot::Label => matches!(operand, Operand::Label(_)),
            Slot::Int => matches!(operand, Operand::Int(value) if fits(RegClass::B32, *value)),
        }
    }
}

/// Whether the integer is one of the class's width, signed or unsigned.
fn fits(class: RegClass, value: i64) -> bool {
    match class {
        RegClass::Pred => (0..=1).contains(&value),
        RegClass::B16 => (i64::from(i16::MIN)..=i64::from(u16::MAX)).contains(&value),
        RegClass::B32 => (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&value),
        RegClass::B64 => true,
        RegClass::F32 | RegClass::F64 => false,
    }
}

fn accepts_immediate(class: RegClass, operand: &Operand) -> bool {
    match operand {
        Operand::Reg(reg) => reg.class == class,
        Operand::Int(value) => fits(class, *value),
        Operand::F32(_) => class == RegClass::F32,
        Operand::F64(_) => class == RegClass::F64,
        _ => false,
    }
}

impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Classes::One(class) => write!(f, "a {class} register"),
            Classes::Either(a, b) => write!(f, "a {a} or {b} register"),
            Classes::Vector(class, n) => write!(f, "{n} {class} registers"),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Dst(classes) | Slot::Src(classes) => classes.fmt(f),
            Slot::Imm(class) => write!(f, "a {class} register or immediate"),
            Slot::Any(RegClass::B32) => {
                f.write_str("a .b32 register, special register, shared array or immediate")
            }
            Slot::Any(class) => write!(f, "a {class} register or immediate"),
            Slot::Param => f.write_str("a parameter in brackets"),
            Slot::Global => f.write_str("a global address, [%rd+offset]"),
            Slot::Shared => f.write_str("a shared address, [%r+offset] or [array+offset]"),
            Slot::Label => f.write_str("a label"),
            Slot::Int => f.write_str("a 32-bit integer"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec().mnemonic)
    }
}

static BY_MNEMONIC: LazyLock<Vec<(&'static str, Op)>> = LazyLock::new(|| {
    let mut rows: Vec<_> = Op::ALL.iter().map(|&op| (op.spec().mnemonic, op)).collect();
    rows.sort_unstable();
    rows
});

impl Op {
    /// The instruction of a mnemonic with all modifiers, such as `fma.rn.f32`.
    pub fn from_mnemonic(mnemonic: &str) -> Option<Op> {
        let rows = &*BY_MNEMONIC;
        rows.binary_search_by(|(name, _)| (*name).cmp(mnemonic)).ok().map(|found| rows[found].1)
    }

    /// Whether the operands are as many, and of the kinds, that the row lists.
    pub fn accepts(self, operands: &[Operand]) -> bool {
        let signature = self.spec().signature;
        signature.len() == operands.len()
            && signature.iter().zip(operands).all(|(slot, operand)| slot.accepts(operand))
    }
}

macro_rules! class {
    (P) => {
        RegClass::Pred
    };
    (H) => {
        RegClass::B16
    };
    (R) => {
        RegClass::B32
    };
    (D) => {
        RegClass::B64
    };
    (F) => {
        RegClass::F32
    };
    (G) => {
        RegClass::F64
    };
}

macro_rules! classes {
    (RF) => {
        Classes::Either(RegClass::B32, RegClass::F32)
    };
    (DG) => {
        Classes::Either(RegClass::B64, RegClass::F64)
    };
    (Fx2) => {
        Classes::Vector(RegClass::F32, 2)
    };
    (Fx4) => {
        Classes::Vector(RegClass::F32, 4)
    };
    (Rx2) => {
        Classes::Vector(RegClass::B32, 2)
    };
    (Rx4) => {
        Classes::Vector(RegClass::B32, 4)
    };
    (Gx2) => {
        Classes::Vector(RegClass::F64, 2)
    };
    (Dx2) => {
        Classes::Vector(RegClass::B64, 2)
    };
    (Hx2) => {
        Classes::Vector(RegClass::B16, 2)
    };
    (Hx4) => {
        Classes::Vector(RegClass::B16, 4)
    };
    ($class:ident) => {
        Classes::One(class!($class))
    };
}

macro_rules! slot {
    (dst $class:ident) => {
        Slot::Dst(classes!($class))
    };
    (src $class:ident) => {
        Slot::Src(classes!($class))
    };
    (imm $class:ident) => {
        Slot::Imm(class!($class))
    };
    (any $class:ident) => {
        Slot::Any(class!($class))
    };
    (param) => {
        Slot::Param
    };
    (global) => {
        Slot::Global
    };
    (shared) => {
        Slot::Shared
    };
    (label) => {
        Slot::Label
    };
    (int) => {
        Slot::Int
    };
}

macro_rules! define_ops {
    ($($op:ident $method:ident $mnemonic:literal ($($kind:ident $($class:ident)?),*) $sm:literal ($major:literal, $minor:literal);)+) => {
        /// An instruction: a row of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "described by the table row")]
        pub enum Op { $($op),+ }

        impl Op {
            /// All instructions, in table order.
            pub const ALL: &[Op] = &[$(Op::$op),+];

            /// The instruction's row.
            pub const fn spec(self) -> OpSpec {
                match self {
                    $(Op::$op => OpSpec {
                        mnemonic: $mnemonic,
                        signature: &[$(slot!($kind $($class)?)),*],
                        sm: $sm,
                        isa: ($major, $minor),
                    }),+
                }
            }
        }
    };
}

/// Calls the macro `$with` with the whole table: the enum is made from it here, the builder's methods in
/// [`crate::builder`].
#[rustfmt::skip] // One instruction per row.
macro_rules! with_insts {
    ($with:ident) => {
        $with! {
            // instruction   method               mnemonic                      operands                             sm  isa
            // Moves and special registers.
            MovU32           mov_u32              "mov.u32"                     (dst R, any R)                       20  (1, 0);
            MovU64           mov_u64              "mov.u64"                     (dst D, any D)                       20  (1, 0);
            MovF32           mov_f32              "mov.f32"                     (dst F, any F)                       20  (1, 0);
            MovF64           mov_f64              "mov.f64"                     (dst G, any G)                       20  (1, 0);
            MovB16           mov_b16              "mov.b16"                     (dst H, any H)                       20  (1, 0);
            MovPred          mov_pred             "mov.pred"                    (dst P, any P)                       20  (1, 0);
            MovB32           mov_b32              "mov.b32"                     (dst RF, src RF)                     20  (1, 0); // Reinterprets bits between the two classes.
            MovB64           mov_b64              "mov.b64"                     (dst DG, src DG)                     20  (1, 0);
            // Integer arithmetic.
            AddS32           add_s32              "add.s32"                     (dst R, src R, imm R)                20  (1, 0);
            SubS32           sub_s32              "sub.s32"                     (dst R, src R, imm R)                20  (1, 0);
            MulLoS32         mul_lo_s32           "mul.lo.s32"                  (dst R, src R, imm R)                20  (1, 0);
            MadLoS32         mad_lo_s32           "mad.lo.s32"                  (dst R, src R, imm R, imm R)         20  (1, 0);
            MulHiS32         mul_hi_s32           "mul.hi.s32"                  (dst R, src R, imm R)                20  (1, 0);
            MulWideS32       mul_wide_s32         "mul.wide.s32"                (dst D, src R, imm R)                20  (1, 0);
            MadWideS32       mad_wide_s32         "mad.wide.s32"                (dst D, src R, imm R, imm D)         20  (1, 0);
            DivS32           div_s32              "div.s32"                     (dst R, src R, imm R)                20  (1, 0);
            RemS32           rem_s32              "rem.s32"                     (dst R, src R, imm R)                20  (1, 0);
            MinS32           min_s32              "min.s32"                     (dst R, src R, imm R)                20  (1, 0);
            MaxS32           max_s32              "max.s32"                     (dst R, src R, imm R)                20  (1, 0);
            NegS32           neg_s32              "neg.s32"                     (dst R, src R)                       20  (1, 0);
            AbsS32           abs_s32              "abs.s32"                     (dst R, src R)                       20  (1, 0);
            ShrS32           shr_s32              "shr.s32"                     (dst R, src R, imm R)                20  (1, 0);
            MulHiU32         mul_hi_u32           "mul.hi.u32"                  (dst R, src R, imm R)                20  (1, 0);
            MulWideU32       mul_wide_u32         "mul.wide.u32"                (dst D, src R, imm R)                20  (1, 0);
            MadWideU32       mad_wide_u32         "mad.wide.u32"                (dst D, src R, imm R, imm D)         20  (1, 0);
            DivU32           div_u32              "div.u32"                     (dst R, src R, imm R)                20  (1, 0);
            RemU32           rem_u32              "rem.u32"                     (dst R, src R, imm R)                20  (1, 0);
            MinU32           min_u32              "min.u32"                     (dst R, src R, imm R)                20  (1, 0);
            MaxU32           max_u32              "max.u32"                     (dst R, src R, imm R)                20  (1, 0);
            ShrU32           shr_u32              "shr.u32"                     (dst R, src R, imm R)                20  (1, 0);
            AddS64           add_s64              "add.s64"                     (dst D, src D, imm D)                20  (1, 0);
            SubS64           sub_s64              "sub.s64"                     (dst D, src D, imm D)                20  (1, 0);
            MulLoS64         mul_lo_s64           "mul.lo.s64"                  (dst D, src D, imm D)                20  (1, 0);
            MadLoS64         mad_lo_s64           "mad.lo.s64"                  (dst D, src D, imm D, imm D)         20  (1, 0);
            DivS64           div_s64              "div.s64"                     (dst D, src D, imm D)                20  (1, 0);
            RemS64           rem_s64              "rem.s64"                     (dst D, src D, imm D)                20  (1, 0);
            MinS64           min_s64              "min.s64"                     (dst D, src D, imm D)                20  (1, 0);
            MaxS64           max_s64              "max.s64"                     (dst D, src D, imm D)                20  (1, 0);
            NegS64           neg_s64              "neg.s64"                     (dst D, src D)                       20  (1, 0);
            AbsS64           abs_s64              "abs.s64"                     (dst D, src D)                       20  (1, 0);
            ShrS64           shr_s64              "shr.s64"                     (dst D, src D, imm R)                20  (1, 0);
            DivU64           div_u64              "div.u64"                     (dst D, src D, imm D)                20  (1, 0);
            RemU64           rem_u64              "rem.u64"                     (dst D, src D, imm D)                20  (1, 0);
            MinU64           min_u64              "min.u64"                     (dst D, src D, imm D)                20  (1, 0);
            MaxU64           max_u64              "max.u64"                     (dst D, src D, imm D)                20  (1, 0);
            ShrU64           shr_u64              "shr.u64"                     (dst D, src D, imm R)                20  (1, 0);
            AndB32           and_b32              "and.b32"                     (dst R, src R, imm R)                20  (1, 0);
            OrB32            or_b32               "or.b32"                      (dst R, src R, imm R)                20  (1, 0);
            XorB32           xor_b32              "xor.b32"                     (dst R, src R, imm R)                20  (1, 0);
            NotB32           not_b32              "not.b32"                     (dst R, src R)                       20  (1, 0);
            ShlB32           shl_b32              "shl.b32"                     (dst R, src R, imm R)                20  (1, 0);
            AndB64           and_b64              "and.b64"                     (dst D, src D, imm D)                20  (1, 0);
            OrB64            or_b64               "or.b64"                      (dst D, src D, imm D)                20  (1, 0);
            XorB64           xor_b64              "xor.b64"                     (dst D, src D, imm D)                20  (1, 0);
            NotB64           not_b64              "not.b64"                     (dst D, src D)                       20  (1, 0);
            ShlB64           shl_b64              "shl.b64"                     (dst D, src D, imm R)                20  (1, 0);
            AndPred          and_pred             "and.pred"                    (dst P, src P, src P)                20  (1, 0);
            OrPred           or_pred              "or.pred"                     (dst P, src P, src P)                20  (1, 0);
            XorPred          xor_pred             "xor.pred"                    (dst P, src P, src P)                20  (1, 0);
            NotPred          not_pred             "not.pred"                    (dst P, src P)                       20  (1, 0);
            // Floating-point arithmetic; rounding is always written.
            AddRnF32         add_rn_f32           "add.rn.f32"                  (dst F, src F, imm F)                20  (1, 0);
            SubRnF32         sub_rn_f32           "sub.rn.f32"                  (dst F, src F, imm F)                20  (1, 0);
            MulRnF32         mul_rn_f32           "mul.rn.f32"                  (dst F, src F, imm F)                20  (1, 0);
            FmaRnF32         fma_rn_f32           "fma.rn.f32"                  (dst F, src F, imm F, imm F)         20  (2, 0);
            DivRnF32         div_rn_f32           "div.rn.f32"                  (dst F, src F, imm F)                20  (1, 4);
            SqrtRnF32        sqrt_rn_f32          "sqrt.rn.f32"                 (dst F, src F)                       20  (1, 4);
            RcpRnF32         rcp_rn_f32           "rcp.rn.f32"                  (dst F, src F)                       20  (1, 4);
            MinF32           min_f32              "min.f32"                     (dst F, src F, imm F)                20  (1, 0);
            MaxF32           max_f32              "max.f32"                     (dst F, src F, imm F)                20  (1, 0);
            NegF32           neg_f32              "neg.f32"                     (dst F, src F)                       20  (1, 0);
            AbsF32           abs_f32              "abs.f32"                     (dst F, src F)                       20  (1, 0);
            CopysignF32      copysign_f32         "copysign.f32"                (dst F, src F, imm F)                20  (2, 0); // The sign of the first source, the magnitude of the second.
            AddRnF64         add_rn_f64           "add.rn.f64"                  (dst G, src G, imm G)                13  (1, 0);
            SubRnF64         sub_rn_f64           "sub.rn.f64"                  (dst G, src G, imm G)                13  (1, 0);
            MulRnF64         mul_rn_f64           "mul.rn.f64"                  (dst G, src G, imm G)                13  (1, 0);
            FmaRnF64         fma_rn_f64           "fma.rn.f64"                  (dst G, src G, imm G, imm G)         20  (1, 4);
            DivRnF64         div_rn_f64           "div.rn.f64"                  (dst G, src G, imm G)                20  (1, 4);
            SqrtRnF64        sqrt_rn_f64          "sqrt.rn.f64"                 (dst G, src G)                       20  (1, 4);
            RcpRnF64         rcp_rn_f64           "rcp.rn.f64"                  (dst G, src G)                       20  (1, 4);
            MinF64           min_f64              "min.f64"                     (dst G, src G, imm G)                20  (1, 0);
            MaxF64           max_f64              "max.f64"                     (dst G, src G, imm G)                20  (1, 0);
            NegF64           neg_f64              "neg.f64"                     (dst G, src G)                       20  (1, 0);
            AbsF64           abs_f64              "abs.f64"                     (dst G, src G)                       20  (1, 0);
            CopysignF64      copysign_f64         "copysign.f64"                (dst G, src G, imm G)                20  (2, 0); // The sign of the first source, the magnitude of the second.
            MinNanF32        min_nan_f32          "min.NaN.f32"                 (dst F, src F, imm F)                80  (7, 0);
            MaxNanF32        max_nan_f32          "max.NaN.f32"                 (dst F, src F, imm F)                80  (7, 0);
            Ex2ApproxF32     ex2_approx_f32       "ex2.approx.f32"              (dst F, src F)                       20  (1, 0);
            Lg2ApproxF32     lg2_approx_f32       "lg2.approx.f32"              (dst F, src F)                       20  (1, 0);
            RcpApproxF32     rcp_approx_f32       "rcp.approx.f32"              (dst F, src F)                       20  (1, 0);
            RsqrtApproxF32   rsqrt_approx_f32     "rsqrt.approx.f32"            (dst F, src F)                       20  (1, 0);
            SqrtApproxF32    sqrt_approx_f32      "sqrt.approx.f32"             (dst F, src F)                       20  (1, 0);
            SinApproxF32     sin_approx_f32       "sin.approx.f32"              (dst F, src F)                       20  (1, 0);
            CosApproxF32     cos_approx_f32       "cos.approx.f32"              (dst F, src F)                       20  (1, 0);
            TanhApproxF32    tanh_approx_f32      "tanh.approx.f32"             (dst F, src F)                       75  (7, 0);
            // Comparison and selection.
            SetpEqS32        setp_eq_s32          "setp.eq.s32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpNeS32        setp_ne_s32          "setp.ne.s32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpLtS32        setp_lt_s32          "setp.lt.s32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpLeS32        setp_le_s32          "setp.le.s32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpGtS32        setp_gt_s32          "setp.gt.s32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpGeS32        setp_ge_s32          "setp.ge.s32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpEqU32        setp_eq_u32          "setp.eq.u32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpNeU32        setp_ne_u32          "setp.ne.u32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpLtU32        setp_lt_u32          "setp.lt.u32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpLeU32        setp_le_u32          "setp.le.u32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpGtU32        setp_gt_u32          "setp.gt.u32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpGeU32        setp_ge_u32          "setp.ge.u32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpEqS64        setp_eq_s64          "setp.eq.s64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpNeS64        setp_ne_s64          "setp.ne.s64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpLtS64        setp_lt_s64          "setp.lt.s64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpLeS64        setp_le_s64          "setp.le.s64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpGtS64        setp_gt_s64          "setp.gt.s64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpGeS64        setp_ge_s64          "setp.ge.s64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpEqU64        setp_eq_u64          "setp.eq.u64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpNeU64        setp_ne_u64          "setp.ne.u64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpLtU64        setp_lt_u64          "setp.lt.u64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpLeU64        setp_le_u64          "setp.le.u64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpGtU64        setp_gt_u64          "setp.gt.u64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpGeU64        setp_ge_u64          "setp.ge.u64"                 (dst P, src D, imm D)                20  (1, 0);
            SetpEqF32        setp_eq_f32          "setp.eq.f32"                 (dst P, src F, imm F)                20  (1, 0);
            SetpNeF32        setp_ne_f32          "setp.ne.f32"                 (dst P, src F, imm F)                20  (1, 0);
            SetpLtF32        setp_lt_f32          "setp.lt.f32"                 (dst P, src F, imm F)                20  (1, 0);
            SetpLeF32        setp_le_f32          "setp.le.f32"                 (dst P, src F, imm F)                20  (1, 0);
            SetpGtF32        setp_gt_f32          "setp.gt.f32"                 (dst P, src F, imm F)                20  (1, 0);
            SetpGeF32        setp_ge_f32          "setp.ge.f32"                 (dst P, src F, imm F)                20  (1, 0);
            SetpNeuF32       setp_neu_f32         "setp.neu.f32"                (dst P, src F, imm F)                20  (1, 0);
            SetpLtuF32       setp_ltu_f32         "setp.ltu.f32"                (dst P, src F, imm F)                20  (1, 0);
            SetpLeuF32       setp_leu_f32         "setp.leu.f32"                (dst P, src F, imm F)                20  (1, 0);
            SetpGtuF32       setp_gtu_f32         "setp.gtu.f32"                (dst P, src F, imm F)                20  (1, 0);
            SetpGeuF32       setp_geu_f32         "setp.geu.f32"                (dst P, src F, imm F)                20  (1, 0);
            SetpNumF32       setp_num_f32         "setp.num.f32"                (dst P, src F, imm F)                20  (1, 0);
            SetpNanF32       setp_nan_f32         "setp.nan.f32"                (dst P, src F, imm F)                20  (1, 0);
            SetpEqF64        setp_eq_f64          "setp.eq.f64"                 (dst P, src G, imm G)                20  (1, 0);
            SetpNeF64        setp_ne_f64          "setp.ne.f64"                 (dst P, src G, imm G)                20  (1, 0);
            SetpLtF64        setp_lt_f64          "setp.lt.f64"                 (dst P, src G, imm G)                20  (1, 0);
            SetpLeF64        setp_le_f64          "setp.le.f64"                 (dst P, src G, imm G)                20  (1, 0);
            SetpGtF64        setp_gt_f64          "setp.gt.f64"                 (dst P, src G, imm G)                20  (1, 0);
            SetpGeF64        setp_ge_f64          "setp.ge.f64"                 (dst P, src G, imm G)                20  (1, 0);
            SetpNeuF64       setp_neu_f64         "setp.neu.f64"                (dst P, src G, imm G)                20  (1, 0);
            SetpLtuF64       setp_ltu_f64         "setp.ltu.f64"                (dst P, src G, imm G)                20  (1, 0);
            SetpLeuF64       setp_leu_f64         "setp.leu.f64"                (dst P, src G, imm G)                20  (1, 0);
            SetpGtuF64       setp_gtu_f64         "setp.gtu.f64"                (dst P, src G, imm G)                20  (1, 0);
            SetpGeuF64       setp_geu_f64         "setp.geu.f64"                (dst P, src G, imm G)                20  (1, 0);
            SetpNumF64       setp_num_f64         "setp.num.f64"                (dst P, src G, imm G)                20  (1, 0);
            SetpNanF64       setp_nan_f64         "setp.nan.f64"                (dst P, src G, imm G)                20  (1, 0);
            SetpEqB32        setp_eq_b32          "setp.eq.b32"                 (dst P, src R, imm R)                20  (1, 0);
            SetpNeB32        setp_ne_b32          "setp.ne.b32"                 (dst P, src R, imm R)                20  (1, 0);
            SelpB32          selp_b32             "selp.b32"                    (dst R, imm R, imm R, src P)         20  (1, 0);
            SelpB64          selp_b64             "selp.b64"                    (dst D, imm D, imm D, src P)         20  (1, 0);
            SelpF32          selp_f32             "selp.f32"                    (dst F, imm F, imm F, src P)         20  (1, 0);
            SelpF64          selp_f64             "selp.f64"                    (dst G, imm G, imm G, src P)         20  (1, 0);
            SelpB16          selp_b16             "selp.b16"                    (dst H, imm H, imm H, src P)         20  (1, 0);
            // Conversion.
            CvtU32U64        cvt_u32_u64          "cvt.u32.u64"                 (dst R, src D)                       20  (1, 0);
            CvtS32S64        cvt_s32_s64          "cvt.s32.s64"                 (dst R, src D)                       20  (1, 0);
            CvtU64U32        cvt_u64_u32          "cvt.u64.u32"                 (dst D, src R)                       20  (1, 0);
            CvtS64S32        cvt_s64_s32          "cvt.s64.s32"                 (dst D, src R)                       20  (1, 0);
            CvtS64U32        cvt_s64_u32          "cvt.s64.u32"                 (dst D, src R)                       20  (1, 0);
            CvtRnF32S32      cvt_rn_f32_s32       "cvt.rn.f32.s32"              (dst F, src R)                       20  (1, 0);
            CvtRnF32U32      cvt_rn_f32_u32       "cvt.rn.f32.u32"              (dst F, src R)                       20  (1, 0);
            CvtRnF32S64      cvt_rn_f32_s64       "cvt.rn.f32.s64"              (dst F, src D)                       20  (1, 0);
            CvtRnF32U64      cvt_rn_f32_u64       "cvt.rn.f32.u64"              (dst F, src D)                       20  (1, 0);
            CvtRnF64S32      cvt_rn_f64_s32       "cvt.rn.f64.s32"              (dst G, src R)                       20  (1, 0);
            CvtRnF64U32      cvt_rn_f64_u32       "cvt.rn.f64.u32"              (dst G, src R)                       20  (1, 0);
            CvtRnF64S64      cvt_rn_f64_s64       "cvt.rn.f64.s64"              (dst G, src D)                       20  (1, 0);
            CvtF64F32        cvt_f64_f32          "cvt.f64.f32"                 (dst G, src F)                       20  (1, 0);
            CvtRnF32F64      cvt_rn_f32_f64       "cvt.rn.f32.f64"              (dst F, src G)                       20  (1, 0);
            CvtRziS32F32     cvt_rzi_s32_f32      "cvt.rzi.s32.f32"             (dst R, src F)                       20  (1, 0);
            CvtRziU32F32     cvt_rzi_u32_f32      "cvt.rzi.u32.f32"             (dst R, src F)                       20  (1, 0);
            CvtRziS64F32     cvt_rzi_s64_f32      "cvt.rzi.s64.f32"             (dst D, src F)                       20  (1, 0);
            CvtRziU64F32     cvt_rzi_u64_f32      "cvt.rzi.u64.f32"             (dst D, src F)                       20  (1, 0);
            CvtRziS32F64     cvt_rzi_s32_f64      "cvt.rzi.s32.f64"             (dst R, src G)                       20  (1, 0);
            CvtRziS64F64     cvt_rzi_s64_f64      "cvt.rzi.s64.f64"             (dst D, src G)                       20  (1, 0);
            CvtRniS32F32     cvt_rni_s32_f32      "cvt.rni.s32.f32"             (dst R, src F)                       20  (1, 0);
            CvtRmiS32F32     cvt_rmi_s32_f32      "cvt.rmi.s32.f32"             (dst R, src F)                       20  (1, 0);
            CvtF32F16        cvt_f32_f16          "cvt.f32.f16"                 (dst F, src H)                       20  (1, 0);
            CvtRnF16F32      cvt_rn_f16_f32       "cvt.rn.f16.f32"              (dst H, src F)                       20  (1, 0);
            CvtF32Bf16       cvt_f32_bf16         "cvt.f32.bf16"                (dst F, src H)                       80  (7, 1);
            CvtRnBf16F32     cvt_rn_bf16_f32      "cvt.rn.bf16.f32"             (dst H, src F)                       80  (7, 0);
            CvtRniF32F32     cvt_rni_f32_f32      "cvt.rni.f32.f32"             (dst F, src F)                       20  (1, 0);
            CvtRmiF32F32     cvt_rmi_f32_f32      "cvt.rmi.f32.f32"             (dst F, src F)                       20  (1, 0);
            CvtRpiF32F32     cvt_rpi_f32_f32      "cvt.rpi.f32.f32"             (dst F, src F)                       20  (1, 0);
            CvtRziF32F32     cvt_rzi_f32_f32      "cvt.rzi.f32.f32"             (dst F, src F)                       20  (1, 0);
            CvtRniF64F64     cvt_rni_f64_f64      "cvt.rni.f64.f64"             (dst G, src G)                       20  (1, 0);
            CvtRmiF64F64     cvt_rmi_f64_f64      "cvt.rmi.f64.f64"             (dst G, src G)                       20  (1, 0);
            CvtRpiF64F64     cvt_rpi_f64_f64      "cvt.rpi.f64.f64"             (dst G, src G)                       20  (1, 0);
            CvtRziF64F64     cvt_rzi_f64_f64      "cvt.rzi.f64.f64"             (dst G, src G)                       20  (1, 0);
            CvtU32U16        cvt_u32_u16          "cvt.u32.u16"                 (dst R, src H)                       20  (1, 0);
            CvtS32S16        cvt_s32_s16          "cvt.s32.s16"                 (dst R, src H)                       20  (1, 0);
            CvtU32U8         cvt_u32_u8           "cvt.u32.u8"                  (dst R, src R)                       20  (1, 0); // The low byte of the source, extended.
            CvtS32S8         cvt_s32_s8           "cvt.s32.s8"                  (dst R, src R)                       20  (1, 0); // The low byte of the source, extended.
            CvtU16U32        cvt_u16_u32          "cvt.u16.u32"                 (dst H, src R)                       20  (1, 0);
            CvtU8U32         cvt_u8_u32           "cvt.u8.u32"                  (dst R, src R)                       20  (1, 0); // Wraps to a byte, extended into the register.
            CvtS8S32         cvt_s8_s32           "cvt.s8.s32"                  (dst R, src R)                       20  (1, 0); // Wraps to a byte, extended into the register.
            // Memory.
            LdParamU64       ld_param_u64         "ld.param.u64"                (dst D, param)                       20  (1, 0);
            LdParamU32       ld_param_u32         "ld.param.u32"                (dst R, param)                       20  (1, 0);
            LdParamF32       ld_param_f32         "ld.param.f32"                (dst F, param)                       20  (1, 0);
            LdGlobalF32      ld_global_f32        "ld.global.f32"               (dst F, global)                      20  (1, 0);
            StGlobalF32      st_global_f32        "st.global.f32"               (global, src F)                      20  (1, 0);
            LdGlobalU32      ld_global_u32        "ld.global.u32"               (dst R, global)                      20  (1, 0);
            StGlobalU32      st_global_u32        "st.global.u32"               (global, src R)                      20  (1, 0);
            LdGlobalU64      ld_global_u64        "ld.global.u64"               (dst D, global)                      20  (1, 0);
            StGlobalU64      st_global_u64        "st.global.u64"               (global, src D)                      20  (1, 0);
            LdGlobalF64      ld_global_f64        "ld.global.f64"               (dst G, global)                      20  (1, 0);
            StGlobalF64      st_global_f64        "st.global.f64"               (global, src G)                      20  (1, 0);
            LdGlobalB16      ld_global_b16        "ld.global.b16"               (dst H, global)                      20  (1, 0);
            StGlobalB16      st_global_b16        "st.global.b16"               (global, src H)                      20  (1, 0);
            LdGlobalU8       ld_global_u8         "ld.global.u8"                (dst R, global)                      20  (1, 0);
            StGlobalU8       st_global_u8         "st.global.u8"                (global, src R)                      20  (1, 0);
            LdGlobalS8       ld_global_s8         "ld.global.s8"                (dst R, global)                      20  (1, 0);
            LdGlobalV2F32    ld_global_v2_f32     "ld.global.v2.f32"            (dst Fx2, global)                    20  (1, 0);
            StGlobalV2F32    st_global_v2_f32     "st.global.v2.f32"            (global, src Fx2)                    20  (1, 0);
            LdGlobalV2U32    ld_global_v2_u32     "ld.global.v2.u32"            (dst Rx2, global)                    20  (1, 0);
            StGlobalV2U32    st_global_v2_u32     "st.global.v2.u32"            (global, src Rx2)                    20  (1, 0);
            LdGlobalV4F32    ld_global_v4_f32     "ld.global.v4.f32"            (dst Fx4, global)                    20  (1, 0);
            StGlobalV4F32    st_global_v4_f32     "st.global.v4.f32"            (global, src Fx4)                    20  (1, 0);
            LdGlobalV4U32    ld_global_v4_u32     "ld.global.v4.u32"            (dst Rx4, global)                    20  (1, 0);
            StGlobalV4U32    st_global_v4_u32     "st.global.v4.u32"            (global, src Rx4)                    20  (1, 0);
            LdSharedF32      ld_shared_f32        "ld.shared.f32"               (dst F, shared)                      20  (1, 0);
            StSharedF32      st_shared_f32        "st.shared.f32"               (shared, src F)                      20  (1, 0);
            LdSharedU32      ld_shared_u32        "ld.shared.u32"               (dst R, shared)                      20  (1, 0);
            StSharedU32      st_shared_u32        "st.shared.u32"               (shared, src R)                      20  (1, 0);
            LdSharedU64      ld_shared_u64        "ld.shared.u64"               (dst D, shared)                      20  (1, 0);
            StSharedU64      st_shared_u64        "st.shared.u64"               (shared, src D)                      20  (1, 0);
            LdSharedF64      ld_shared_f64        "ld.shared.f64"               (dst G, shared)                      20  (1, 0);
            StSharedF64      st_shared_f64        "st.shared.f64"               (shared, src G)                      20  (1, 0);
            LdSharedB16      ld_shared_b16        "ld.shared.b16"               (dst H, shared)                      20  (1, 0);
            StSharedB16      st_shared_b16        "st.shared.b16"               (shared, src H)                      20  (1, 0);
            LdSharedU8       ld_shared_u8         "ld.shared.u8"                (dst R, shared)                      20  (1, 0);
            StSharedU8       st_shared_u8         "st.shared.u8"                (shared, src R)                      20  (1, 0);
            LdSharedS8       ld_shared_s8         "ld.shared.s8"                (dst R, shared)                      20  (1, 0);
            LdSharedV2F32    ld_shared_v2_f32     "ld.shared.v2.f32"            (dst Fx2, shared)                    20  (1, 0);
            StSharedV2F32    st_shared_v2_f32     "st.shared.v2.f32"            (shared, src Fx2)                    20  (1, 0);
            LdSharedV2U32    ld_shared_v2_u32     "ld.shared.v2.u32"            (dst Rx2, shared)                    20  (1, 0);
            StSharedV2U32    st_shared_v2_u32     "st.shared.v2.u32"            (shared, src Rx2)                    20  (1, 0);
            LdSharedV4F32    ld_shared_v4_f32     "ld.shared.v4.f32"            (dst Fx4, shared)                    20  (1, 0);
            StSharedV4F32    st_shared_v4_f32     "st.shared.v4.f32"            (shared, src Fx4)                    20  (1, 0);
            LdSharedV4U32    ld_shared_v4_u32     "ld.shared.v4.u32"            (dst Rx4, shared)                    20  (1, 0);
            StSharedV4U32    st_shared_v4_u32     "st.shared.v4.u32"            (shared, src Rx4)                    20  (1, 0);
            LdGlobalV2F64    ld_global_v2_f64     "ld.global.v2.f64"            (dst Gx2, global)                    20  (1, 0);
            StGlobalV2F64    st_global_v2_f64     "st.global.v2.f64"            (global, src Gx2)                    20  (1, 0);
            LdGlobalV2U64    ld_global_v2_u64     "ld.global.v2.u64"            (dst Dx2, global)                    20  (1, 0);
            StGlobalV2U64    st_global_v2_u64     "st.global.v2.u64"            (global, src Dx2)                    20  (1, 0);
            LdGlobalV4B16    ld_global_v4_b16     "ld.global.v4.b16"            (dst Hx4, global)                    20  (1, 0);
            StGlobalV4B16    st_global_v4_b16     "st.global.v4.b16"            (global, src Hx4)                    20  (1, 0);
            LdGlobalV2B16    ld_global_v2_b16     "ld.global.v2.b16"            (dst Hx2, global)                    20  (1, 0);
            StGlobalV2B16    st_global_v2_b16     "st.global.v2.b16"            (global, src Hx2)                    20  (1, 0);
            LdGlobalNcF32    ld_global_nc_f32     "ld.global.nc.f32"            (dst F, global)                      35  (3, 1);
            LdGlobalNcU32    ld_global_nc_u32     "ld.global.nc.u32"            (dst R, global)                      35  (3, 1);
            LdGlobalNcV4F32  ld_global_nc_v4_f32  "ld.global.nc.v4.f32"         (dst Fx4, global)                    35  (3, 1);
            LdGlobalNcV2F32  ld_global_nc_v2_f32  "ld.global.nc.v2.f32"         (dst Fx2, global)                    35  (3, 1);
            RedGlobalAddF32  red_global_add_f32   "red.global.add.f32"          (global, src F)                      20  (1, 0);
            AtomGlobalAddU32 atom_global_add_u32  "atom.global.add.u32"         (dst R, global, src R)               20  (1, 0);
            CpAsyncCa        cp_async_ca          "cp.async.ca.shared.global"   (shared, global, int)                80  (7, 0); // Size 4, 8 or 16 bytes.
            CpAsyncCg        cp_async_cg          "cp.async.cg.shared.global"   (shared, global, int)                80  (7, 0); // Size 16.
            CpAsyncCommit    cp_async_commit      "cp.async.commit_group"       ()                                   80  (7, 0);
            CpAsyncWait      cp_async_wait        "cp.async.wait_group"         (int)                                80  (7, 0);
            // Control and cooperation.
            Bra              bra                  "bra"                         (label)                              20  (1, 0);
            BraUni           bra_uni              "bra.uni"                     (label)                              20  (1, 0);
            BarSync          bar_sync             "bar.sync"                    (int)                                20  (1, 0);
            Ret              ret                  "ret"                         ()                                   20  (1, 0);
            ShflSyncBflyB32  shfl_sync_bfly_b32   "shfl.sync.bfly.b32"          (dst RF, src RF, imm R, int, int)    30  (6, 0); // (destination, source, lane or mask, clamp, member mask)
            ShflSyncDownB32  shfl_sync_down_b32   "shfl.sync.down.b32"          (dst RF, src RF, imm R, int, int)    30  (6, 0); // (destination, source, lane or mask, clamp, member mask)
            ShflSyncUpB32    shfl_sync_up_b32     "shfl.sync.up.b32"            (dst RF, src RF, imm R, int, int)    30  (6, 0); // (destination, source, lane or mask, clamp, member mask)
            ShflSyncIdxB32   shfl_sync_idx_b32    "shfl.sync.idx.b32"           (dst RF, src RF, imm R, int, int)    30  (6, 0); // (destination, source, lane or mask, clamp, member mask)
            VoteBallotB32    vote_ballot_b32      "vote.sync.ballot.b32"        (dst R, src P, int)                  30  (6, 0);
            ActivemaskB32    activemask_b32       "activemask.b32"              (dst R)                              30  (6, 2);
            MembarGl         membar_gl            "membar.gl"                   ()                                   20  (1, 0);
        }
    };
}

with_insts!(define_ops);
pub(crate) use with_insts;
