//! Every PTX instruction that we emit, in one table: mnemonic, operand signature, and the least
//! target and ISA version that have it. Parser, printer, builder and executor read the row.
//!
//! Operand kinds: `dst`/`src` a register of the class, `imm` a register or an immediate, `any` also a
//! special register or (for `mov.u32`) a shared symbol, `addr`, `label`, `int` a literal. Classes: `P`
//! pred, `H` b16, `R` b32, `D` b64, `F` f32, `G` f64; `R|F` either; `Fx4` a vector of four.
//!
//! Source: PTX ISA 9.0, chapter 9; the order of operands is the manual's.

/// What the table says about an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpSpec {
    /// Mnemonic with all modifiers.
    pub mnemonic: &'static str,
    /// Operand signature, see the module's documentation.
    pub signature: &'static str,
    /// Least `sm` version.
    pub sm: u32,
    /// Least `.version`, as (major, minor).
    pub isa: (u32, u32),
}

macro_rules! insts {
    ($($op:ident $mnemonic:literal $signature:literal $sm:literal ($major:literal, $minor:literal);)+) => {
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
                    $(Op::$op => OpSpec { mnemonic: $mnemonic, signature: $signature, sm: $sm, isa: ($major, $minor) }),+
                }
            }
        }
    };
}

#[rustfmt::skip] // One instruction per row.
insts! {
    // instruction          mnemonic                      operands                              sm  isa
    // Moves and special registers.
    MovU32               "mov.u32"                     "dst R, any R"                        20  (1, 0);
    MovU64               "mov.u64"                     "dst D, any D"                        20  (1, 0);
    MovF32               "mov.f32"                     "dst F, any F"                        20  (1, 0);
    MovF64               "mov.f64"                     "dst G, any G"                        20  (1, 0);
    MovB16               "mov.b16"                     "dst H, any H"                        20  (1, 0);
    MovPred              "mov.pred"                    "dst P, any P"                        20  (1, 0);
    MovB32               "mov.b32"                     "dst R|F, src R|F"                    20  (1, 0); // Reinterprets bits between the two classes.
    MovB64               "mov.b64"                     "dst D|G, src D|G"                    20  (1, 0);
    // Integer arithmetic.
    AddS32               "add.s32"                     "dst R, src R, imm R"                 20  (1, 0);
    SubS32               "sub.s32"                     "dst R, src R, imm R"                 20  (1, 0);
    MulLoS32             "mul.lo.s32"                  "dst R, src R, imm R"                 20  (1, 0);
    MadLoS32             "mad.lo.s32"                  "dst R, src R, imm R, imm R"          20  (1, 0);
    MulHiS32             "mul.hi.s32"                  "dst R, src R, imm R"                 20  (1, 0);
    MulWideS32           "mul.wide.s32"                "dst D, src R, imm R"                 20  (1, 0);
    MadWideS32           "mad.wide.s32"                "dst D, src R, imm R, imm D"          20  (1, 0);
    DivS32               "div.s32"                     "dst R, src R, imm R"                 20  (1, 0);
    RemS32               "rem.s32"                     "dst R, src R, imm R"                 20  (1, 0);
    MinS32               "min.s32"                     "dst R, src R, imm R"                 20  (1, 0);
    MaxS32               "max.s32"                     "dst R, src R, imm R"                 20  (1, 0);
    NegS32               "neg.s32"                     "dst R, src R"                        20  (1, 0);
    AbsS32               "abs.s32"                     "dst R, src R"                        20  (1, 0);
    ShrS32               "shr.s32"                     "dst R, src R, imm R"                 20  (1, 0);
    MulHiU32             "mul.hi.u32"                  "dst R, src R, imm R"                 20  (1, 0);
    MulWideU32           "mul.wide.u32"                "dst D, src R, imm R"                 20  (1, 0);
    MadWideU32           "mad.wide.u32"                "dst D, src R, imm R, imm D"          20  (1, 0);
    DivU32               "div.u32"                     "dst R, src R, imm R"                 20  (1, 0);
    RemU32               "rem.u32"                     "dst R, src R, imm R"                 20  (1, 0);
    MinU32               "min.u32"                     "dst R, src R, imm R"                 20  (1, 0);
    MaxU32               "max.u32"                     "dst R, src R, imm R"                 20  (1, 0);
    ShrU32               "shr.u32"                     "dst R, src R, imm R"                 20  (1, 0);
    AddS64               "add.s64"                     "dst D, src D, imm D"                 20  (1, 0);
    SubS64               "sub.s64"                     "dst D, src D, imm D"                 20  (1, 0);
    MulLoS64             "mul.lo.s64"                  "dst D, src D, imm D"                 20  (1, 0);
    MadLoS64             "mad.lo.s64"                  "dst D, src D, imm D, imm D"          20  (1, 0);
    DivS64               "div.s64"                     "dst D, src D, imm D"                 20  (1, 0);
    RemS64               "rem.s64"                     "dst D, src D, imm D"                 20  (1, 0);
    MinS64               "min.s64"                     "dst D, src D, imm D"                 20  (1, 0);
    MaxS64               "max.s64"                     "dst D, src D, imm D"                 20  (1, 0);
    NegS64               "neg.s64"                     "dst D, src D"                        20  (1, 0);
    AbsS64               "abs.s64"                     "dst D, src D"                        20  (1, 0);
    ShrS64               "shr.s64"                     "dst D, src D, imm R"                 20  (1, 0);
    DivU64               "div.u64"                     "dst D, src D, imm D"                 20  (1, 0);
    RemU64               "rem.u64"                     "dst D, src D, imm D"                 20  (1, 0);
    MinU64               "min.u64"                     "dst D, src D, imm D"                 20  (1, 0);
    MaxU64               "max.u64"                     "dst D, src D, imm D"                 20  (1, 0);
    ShrU64               "shr.u64"                     "dst D, src D, imm R"                 20  (1, 0);
    AndB32               "and.b32"                     "dst R, src R, imm R"                 20  (1, 0);
    OrB32                "or.b32"                      "dst R, src R, imm R"                 20  (1, 0);
    XorB32               "xor.b32"                     "dst R, src R, imm R"                 20  (1, 0);
    NotB32               "not.b32"                     "dst R, src R"                        20  (1, 0);
    ShlB32               "shl.b32"                     "dst R, src R, imm R"                 20  (1, 0);
    AndB64               "and.b64"                     "dst D, src D, imm D"                 20  (1, 0);
    OrB64                "or.b64"                      "dst D, src D, imm D"                 20  (1, 0);
    XorB64               "xor.b64"                     "dst D, src D, imm D"                 20  (1, 0);
    NotB64               "not.b64"                     "dst D, src D"                        20  (1, 0);
    ShlB64               "shl.b64"                     "dst D, src D, imm R"                 20  (1, 0);
    AndPred              "and.pred"                    "dst P, src P, src P"                 20  (1, 0);
    OrPred               "or.pred"                     "dst P, src P, src P"                 20  (1, 0);
    XorPred              "xor.pred"                    "dst P, src P, src P"                 20  (1, 0);
    NotPred              "not.pred"                    "dst P, src P"                        20  (1, 0);
    // Floating-point arithmetic; rounding is always written.
    AddRnF32             "add.rn.f32"                  "dst F, src F, imm F"                 20  (1, 0);
    SubRnF32             "sub.rn.f32"                  "dst F, src F, imm F"                 20  (1, 0);
    MulRnF32             "mul.rn.f32"                  "dst F, src F, imm F"                 20  (1, 0);
    FmaRnF32             "fma.rn.f32"                  "dst F, src F, imm F, imm F"          20  (2, 0);
    DivRnF32             "div.rn.f32"                  "dst F, src F, imm F"                 20  (1, 4);
    SqrtRnF32            "sqrt.rn.f32"                 "dst F, src F"                        20  (1, 4);
    RcpRnF32             "rcp.rn.f32"                  "dst F, src F"                        20  (1, 4);
    MinF32               "min.f32"                     "dst F, src F, imm F"                 20  (1, 0);
    MaxF32               "max.f32"                     "dst F, src F, imm F"                 20  (1, 0);
    NegF32               "neg.f32"                     "dst F, src F"                        20  (1, 0);
    AbsF32               "abs.f32"                     "dst F, src F"                        20  (1, 0);
    CopysignF32          "copysign.f32"                "dst F, src F, imm F"                 20  (2, 0); // The sign of the first source, the magnitude of the second.
    AddRnF64             "add.rn.f64"                  "dst G, src G, imm G"                 13  (1, 0);
    SubRnF64             "sub.rn.f64"                  "dst G, src G, imm G"                 13  (1, 0);
    MulRnF64             "mul.rn.f64"                  "dst G, src G, imm G"                 13  (1, 0);
    FmaRnF64             "fma.rn.f64"                  "dst G, src G, imm G, imm G"          20  (1, 4);
    DivRnF64             "div.rn.f64"                  "dst G, src G, imm G"                 20  (1, 4);
    SqrtRnF64            "sqrt.rn.f64"                 "dst G, src G"                        20  (1, 4);
    RcpRnF64             "rcp.rn.f64"                  "dst G, src G"                        20  (1, 4);
    MinF64               "min.f64"                     "dst G, src G, imm G"                 20  (1, 0);
    MaxF64               "max.f64"                     "dst G, src G, imm G"                 20  (1, 0);
    NegF64               "neg.f64"                     "dst G, src G"                        20  (1, 0);
    AbsF64               "abs.f64"                     "dst G, src G"                        20  (1, 0);
    CopysignF64          "copysign.f64"                "dst G, src G, imm G"                 20  (2, 0); // The sign of the first source, the magnitude of the second.
    MinNanF32            "min.NaN.f32"                 "dst F, src F, imm F"                 80  (7, 0);
    MaxNanF32            "max.NaN.f32"                 "dst F, src F, imm F"                 80  (7, 0);
    Ex2ApproxF32         "ex2.approx.f32"              "dst F, src F"                        20  (1, 0);
    Lg2ApproxF32         "lg2.approx.f32"              "dst F, src F"                        20  (1, 0);
    RcpApproxF32         "rcp.approx.f32"              "dst F, src F"                        20  (1, 0);
    RsqrtApproxF32       "rsqrt.approx.f32"            "dst F, src F"                        20  (1, 0);
    SqrtApproxF32        "sqrt.approx.f32"             "dst F, src F"                        20  (1, 0);
    SinApproxF32         "sin.approx.f32"              "dst F, src F"                        20  (1, 0);
    CosApproxF32         "cos.approx.f32"              "dst F, src F"                        20  (1, 0);
    TanhApproxF32        "tanh.approx.f32"             "dst F, src F"                        75  (7, 0);
    // Comparison and selection.
    SetpEqS32            "setp.eq.s32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpNeS32            "setp.ne.s32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpLtS32            "setp.lt.s32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpLeS32            "setp.le.s32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpGtS32            "setp.gt.s32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpGeS32            "setp.ge.s32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpEqU32            "setp.eq.u32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpNeU32            "setp.ne.u32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpLtU32            "setp.lt.u32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpLeU32            "setp.le.u32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpGtU32            "setp.gt.u32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpGeU32            "setp.ge.u32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpEqS64            "setp.eq.s64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpNeS64            "setp.ne.s64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpLtS64            "setp.lt.s64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpLeS64            "setp.le.s64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpGtS64            "setp.gt.s64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpGeS64            "setp.ge.s64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpEqU64            "setp.eq.u64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpNeU64            "setp.ne.u64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpLtU64            "setp.lt.u64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpLeU64            "setp.le.u64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpGtU64            "setp.gt.u64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpGeU64            "setp.ge.u64"                 "dst P, src D, imm D"                 20  (1, 0);
    SetpEqF32            "setp.eq.f32"                 "dst P, src F, imm F"                 20  (1, 0);
    SetpNeF32            "setp.ne.f32"                 "dst P, src F, imm F"                 20  (1, 0);
    SetpLtF32            "setp.lt.f32"                 "dst P, src F, imm F"                 20  (1, 0);
    SetpLeF32            "setp.le.f32"                 "dst P, src F, imm F"                 20  (1, 0);
    SetpGtF32            "setp.gt.f32"                 "dst P, src F, imm F"                 20  (1, 0);
    SetpGeF32            "setp.ge.f32"                 "dst P, src F, imm F"                 20  (1, 0);
    SetpNeuF32           "setp.neu.f32"                "dst P, src F, imm F"                 20  (1, 0);
    SetpLtuF32           "setp.ltu.f32"                "dst P, src F, imm F"                 20  (1, 0);
    SetpLeuF32           "setp.leu.f32"                "dst P, src F, imm F"                 20  (1, 0);
    SetpGtuF32           "setp.gtu.f32"                "dst P, src F, imm F"                 20  (1, 0);
    SetpGeuF32           "setp.geu.f32"                "dst P, src F, imm F"                 20  (1, 0);
    SetpNumF32           "setp.num.f32"                "dst P, src F, imm F"                 20  (1, 0);
    SetpNanF32           "setp.nan.f32"                "dst P, src F, imm F"                 20  (1, 0);
    SetpEqF64            "setp.eq.f64"                 "dst P, src G, imm G"                 20  (1, 0);
    SetpNeF64            "setp.ne.f64"                 "dst P, src G, imm G"                 20  (1, 0);
    SetpLtF64            "setp.lt.f64"                 "dst P, src G, imm G"                 20  (1, 0);
    SetpLeF64            "setp.le.f64"                 "dst P, src G, imm G"                 20  (1, 0);
    SetpGtF64            "setp.gt.f64"                 "dst P, src G, imm G"                 20  (1, 0);
    SetpGeF64            "setp.ge.f64"                 "dst P, src G, imm G"                 20  (1, 0);
    SetpNeuF64           "setp.neu.f64"                "dst P, src G, imm G"                 20  (1, 0);
    SetpLtuF64           "setp.ltu.f64"                "dst P, src G, imm G"                 20  (1, 0);
    SetpLeuF64           "setp.leu.f64"                "dst P, src G, imm G"                 20  (1, 0);
    SetpGtuF64           "setp.gtu.f64"                "dst P, src G, imm G"                 20  (1, 0);
    SetpGeuF64           "setp.geu.f64"                "dst P, src G, imm G"                 20  (1, 0);
    SetpNumF64           "setp.num.f64"                "dst P, src G, imm G"                 20  (1, 0);
    SetpNanF64           "setp.nan.f64"                "dst P, src G, imm G"                 20  (1, 0);
    SetpEqB32            "setp.eq.b32"                 "dst P, src R, imm R"                 20  (1, 0);
    SetpNeB32            "setp.ne.b32"                 "dst P, src R, imm R"                 20  (1, 0);
    SelpB32              "selp.b32"                    "dst R, imm R, imm R, src P"          20  (1, 0);
    SelpB64              "selp.b64"                    "dst D, imm D, imm D, src P"          20  (1, 0);
    SelpF32              "selp.f32"                    "dst F, imm F, imm F, src P"          20  (1, 0);
    SelpF64              "selp.f64"                    "dst G, imm G, imm G, src P"          20  (1, 0);
    SelpB16              "selp.b16"                    "dst H, imm H, imm H, src P"          20  (1, 0);
    // Conversion.
    CvtU32U64            "cvt.u32.u64"                 "dst R, src D"                        20  (1, 0);
    CvtS32S64            "cvt.s32.s64"                 "dst R, src D"                        20  (1, 0);
    CvtU64U32            "cvt.u64.u32"                 "dst D, src R"                        20  (1, 0);
    CvtS64S32            "cvt.s64.s32"                 "dst D, src R"                        20  (1, 0);
    CvtS64U32            "cvt.s64.u32"                 "dst D, src R"                        20  (1, 0);
    CvtRnF32S32          "cvt.rn.f32.s32"              "dst F, src R"                        20  (1, 0);
    CvtRnF32U32          "cvt.rn.f32.u32"              "dst F, src R"                        20  (1, 0);
    CvtRnF32S64          "cvt.rn.f32.s64"              "dst F, src D"                        20  (1, 0);
    CvtRnF32U64          "cvt.rn.f32.u64"              "dst F, src D"                        20  (1, 0);
    CvtRnF64S32          "cvt.rn.f64.s32"              "dst G, src R"                        20  (1, 0);
    CvtRnF64U32          "cvt.rn.f64.u32"              "dst G, src R"                        20  (1, 0);
    CvtRnF64S64          "cvt.rn.f64.s64"              "dst G, src D"                        20  (1, 0);
    CvtF64F32            "cvt.f64.f32"                 "dst G, src F"                        20  (1, 0);
    CvtRnF32F64          "cvt.rn.f32.f64"              "dst F, src G"                        20  (1, 0);
    CvtRziS32F32         "cvt.rzi.s32.f32"             "dst R, src F"                        20  (1, 0);
    CvtRziU32F32         "cvt.rzi.u32.f32"             "dst R, src F"                        20  (1, 0);
    CvtRziS64F32         "cvt.rzi.s64.f32"             "dst D, src F"                        20  (1, 0);
    CvtRziU64F32         "cvt.rzi.u64.f32"             "dst D, src F"                        20  (1, 0);
    CvtRziS32F64         "cvt.rzi.s32.f64"             "dst R, src G"                        20  (1, 0);
    CvtRziS64F64         "cvt.rzi.s64.f64"             "dst D, src G"                        20  (1, 0);
    CvtRniS32F32         "cvt.rni.s32.f32"             "dst R, src F"                        20  (1, 0);
    CvtRmiS32F32         "cvt.rmi.s32.f32"             "dst R, src F"                        20  (1, 0);
    CvtF32F16            "cvt.f32.f16"                 "dst F, src H"                        20  (1, 0);
    CvtRnF16F32          "cvt.rn.f16.f32"              "dst H, src F"                        20  (1, 0);
    CvtF32Bf16           "cvt.f32.bf16"                "dst F, src H"                        90  (7, 8);
    CvtRnBf16F32         "cvt.rn.bf16.f32"             "dst H, src F"                        80  (7, 0);
    CvtRniF32F32         "cvt.rni.f32.f32"             "dst F, src F"                        20  (1, 0);
    CvtRmiF32F32         "cvt.rmi.f32.f32"             "dst F, src F"                        20  (1, 0);
    CvtRpiF32F32         "cvt.rpi.f32.f32"             "dst F, src F"                        20  (1, 0);
    CvtRziF32F32         "cvt.rzi.f32.f32"             "dst F, src F"                        20  (1, 0);
    CvtRniF64F64         "cvt.rni.f64.f64"             "dst G, src G"                        20  (1, 0);
    CvtRmiF64F64         "cvt.rmi.f64.f64"             "dst G, src G"                        20  (1, 0);
    CvtRpiF64F64         "cvt.rpi.f64.f64"             "dst G, src G"                        20  (1, 0);
    CvtRziF64F64         "cvt.rzi.f64.f64"             "dst G, src G"                        20  (1, 0);
    CvtU32U16            "cvt.u32.u16"                 "dst R, src H"                        20  (1, 0);
    CvtS32S16            "cvt.s32.s16"                 "dst R, src H"                        20  (1, 0);
    CvtU32U8             "cvt.u32.u8"                  "dst R, src R"                        20  (1, 0); // The low byte of the source, extended.
    CvtS32S8             "cvt.s32.s8"                  "dst R, src R"                        20  (1, 0); // The low byte of the source, extended.
    CvtU16U32            "cvt.u16.u32"                 "dst H, src R"                        20  (1, 0);
    CvtU8U32             "cvt.u8.u32"                  "dst R, src R"                        20  (1, 0); // Wraps to a byte, extended into the register.
    CvtS8S32             "cvt.s8.s32"                  "dst R, src R"                        20  (1, 0); // Wraps to a byte, extended into the register.
    // Memory.
    LdParamU64           "ld.param.u64"                "dst D, addr"                         20  (1, 0);
    LdParamU32           "ld.param.u32"                "dst R, addr"                         20  (1, 0);
    LdParamF32           "ld.param.f32"                "dst F, addr"                         20  (1, 0);
    LdGlobalF32          "ld.global.f32"               "dst F, addr"                         20  (1, 0);
    StGlobalF32          "st.global.f32"               "addr, src F"                         20  (1, 0);
    LdGlobalU32          "ld.global.u32"               "dst R, addr"                         20  (1, 0);
    StGlobalU32          "st.global.u32"               "addr, src R"                         20  (1, 0);
    LdGlobalU64          "ld.global.u64"               "dst D, addr"                         20  (1, 0);
    StGlobalU64          "st.global.u64"               "addr, src D"                         20  (1, 0);
    LdGlobalF64          "ld.global.f64"               "dst G, addr"                         20  (1, 0);
    StGlobalF64          "st.global.f64"               "addr, src G"                         20  (1, 0);
    LdGlobalB16          "ld.global.b16"               "dst H, addr"                         20  (1, 0);
    StGlobalB16          "st.global.b16"               "addr, src H"                         20  (1, 0);
    LdGlobalU8           "ld.global.u8"                "dst R, addr"                         20  (1, 0);
    StGlobalU8           "st.global.u8"                "addr, src R"                         20  (1, 0);
    LdGlobalS8           "ld.global.s8"                "dst R, addr"                         20  (1, 0);
    LdGlobalV2F32        "ld.global.v2.f32"            "dst Fx2, addr"                       20  (1, 0);
    StGlobalV2F32        "st.global.v2.f32"            "addr, src Fx2"                       20  (1, 0);
    LdGlobalV2U32        "ld.global.v2.u32"            "dst Rx2, addr"                       20  (1, 0);
    StGlobalV2U32        "st.global.v2.u32"            "addr, src Rx2"                       20  (1, 0);
    LdGlobalV4F32        "ld.global.v4.f32"            "dst Fx4, addr"                       20  (1, 0);
    StGlobalV4F32        "st.global.v4.f32"            "addr, src Fx4"                       20  (1, 0);
    LdGlobalV4U32        "ld.global.v4.u32"            "dst Rx4, addr"                       20  (1, 0);
    StGlobalV4U32        "st.global.v4.u32"            "addr, src Rx4"                       20  (1, 0);
    LdSharedF32          "ld.shared.f32"               "dst F, addr"                         20  (1, 0);
    StSharedF32          "st.shared.f32"               "addr, src F"                         20  (1, 0);
    LdSharedU32          "ld.shared.u32"               "dst R, addr"                         20  (1, 0);
    StSharedU32          "st.shared.u32"               "addr, src R"                         20  (1, 0);
    LdSharedU64          "ld.shared.u64"               "dst D, addr"                         20  (1, 0);
    StSharedU64          "st.shared.u64"               "addr, src D"                         20  (1, 0);
    LdSharedF64          "ld.shared.f64"               "dst G, addr"                         20  (1, 0);
    StSharedF64          "st.shared.f64"               "addr, src G"                         20  (1, 0);
    LdSharedB16          "ld.shared.b16"               "dst H, addr"                         20  (1, 0);
    StSharedB16          "st.shared.b16"               "addr, src H"                         20  (1, 0);
    LdSharedU8           "ld.shared.u8"                "dst R, addr"                         20  (1, 0);
    StSharedU8           "st.shared.u8"                "addr, src R"                         20  (1, 0);
    LdSharedS8           "ld.shared.s8"                "dst R, addr"                         20  (1, 0);
    LdSharedV2F32        "ld.shared.v2.f32"            "dst Fx2, addr"                       20  (1, 0);
    StSharedV2F32        "st.shared.v2.f32"            "addr, src Fx2"                       20  (1, 0);
    LdSharedV2U32        "ld.shared.v2.u32"            "dst Rx2, addr"                       20  (1, 0);
    StSharedV2U32        "st.shared.v2.u32"            "addr, src Rx2"                       20  (1, 0);
    LdSharedV4F32        "ld.shared.v4.f32"            "dst Fx4, addr"                       20  (1, 0);
    StSharedV4F32        "st.shared.v4.f32"            "addr, src Fx4"                       20  (1, 0);
    LdSharedV4U32        "ld.shared.v4.u32"            "dst Rx4, addr"                       20  (1, 0);
    StSharedV4U32        "st.shared.v4.u32"            "addr, src Rx4"                       20  (1, 0);
    LdGlobalV2F64        "ld.global.v2.f64"            "dst Gx2, addr"                       20  (1, 0);
    StGlobalV2F64        "st.global.v2.f64"            "addr, src Gx2"                       20  (1, 0);
    LdGlobalV2U64        "ld.global.v2.u64"            "dst Dx2, addr"                       20  (1, 0);
    StGlobalV2U64        "st.global.v2.u64"            "addr, src Dx2"                       20  (1, 0);
    LdGlobalV4B16        "ld.global.v4.b16"            "dst Hx4, addr"                       20  (1, 0);
    StGlobalV4B16        "st.global.v4.b16"            "addr, src Hx4"                       20  (1, 0);
    LdGlobalV2B16        "ld.global.v2.b16"            "dst Hx2, addr"                       20  (1, 0);
    StGlobalV2B16        "st.global.v2.b16"            "addr, src Hx2"                       20  (1, 0);
    LdGlobalNcF32        "ld.global.nc.f32"            "dst F, addr"                         35  (3, 1);
    LdGlobalNcU32        "ld.global.nc.u32"            "dst R, addr"                         35  (3, 1);
    LdGlobalNcV4F32      "ld.global.nc.v4.f32"         "dst Fx4, addr"                       35  (3, 1);
    LdGlobalNcV2F32      "ld.global.nc.v2.f32"         "dst Fx2, addr"                       35  (3, 1);
    RedGlobalAddF32      "red.global.add.f32"          "addr, src F"                         20  (1, 0);
    AtomGlobalAddU32     "atom.global.add.u32"         "dst R, addr, src R"                  20  (1, 0);
    CpAsyncCa            "cp.async.ca.shared.global"   "addr, addr, int"                     80  (7, 0); // Size 4, 8 or 16 bytes.
    CpAsyncCg            "cp.async.cg.shared.global"   "addr, addr, int"                     80  (7, 0); // Size 16.
    CpAsyncCommit        "cp.async.commit_group"       ""                                    80  (7, 0);
    CpAsyncWait          "cp.async.wait_group"         "int"                                 80  (7, 0);
    // Control and cooperation.
    Bra                  "bra"                         "label"                               20  (1, 0);
    BraUni               "bra.uni"                     "label"                               20  (1, 0);
    BarSync              "bar.sync"                    "int"                                 20  (1, 0);
    Ret                  "ret"                         ""                                    20  (1, 0);
    ShflSyncBflyB32      "shfl.sync.bfly.b32"          "dst R|F, src R|F, imm R, int, int"   30  (6, 0); // (destination, source, lane or mask, clamp, member mask)
    ShflSyncDownB32      "shfl.sync.down.b32"          "dst R|F, src R|F, imm R, int, int"   30  (6, 0); // (destination, source, lane or mask, clamp, member mask)
    ShflSyncUpB32        "shfl.sync.up.b32"            "dst R|F, src R|F, imm R, int, int"   30  (6, 0); // (destination, source, lane or mask, clamp, member mask)
    ShflSyncIdxB32       "shfl.sync.idx.b32"           "dst R|F, src R|F, imm R, int, int"   30  (6, 0); // (destination, source, lane or mask, clamp, member mask)
    VoteBallotB32        "vote.sync.ballot.b32"        "dst R, src P, int"                   30  (6, 0);
    ActivemaskB32        "activemask.b32"              "dst R"                               30  (6, 2);
    MembarGl             "membar.gl"                   ""                                    20  (1, 0);
}
