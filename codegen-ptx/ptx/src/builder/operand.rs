//! Typed operands: registers by class, and what may stand where the table says `imm`, `any` or an
//! address.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Not;

use super::Builder;
use crate::ast::{self, Base, Guard, Operand, RegClass, Special};

/// A register class, as a type.
pub trait Class: sealed::Sealed + Copy {
    /// The class.
    const CLASS: RegClass;
}

/// [`B32`] or [`F32`]: instructions that move bits take either.
pub trait Bits32: Class {}

/// [`B64`] or [`F64`]: instructions that move bits take either.
pub trait Bits64: Class {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! classes {
    ($($name:ident $doc:literal;)+) => {
        $(
            #[doc = $doc]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum $name {}
            impl sealed::Sealed for $name {}
            impl Class for $name {
                const CLASS: RegClass = RegClass::$name;
            }
        )+
    };
}

classes! {
    Pred "`.pred`";
    B16 "`.b16`: 16-bit integers, f16, bf16";
    B32 "`.b32`: 32-bit integers, shared addresses";
    B64 "`.b64`: 64-bit integers, global addresses";
    F32 "`.f32`";
    F64 "`.f64`";
}

impl Bits32 for B32 {}
impl Bits32 for F32 {}
impl Bits64 for B64 {}
impl Bits64 for F64 {}

/// A virtual register of class `C`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reg<C> {
    idx: u32,
    class: PhantomData<C>,
}

impl<C: Class> Reg<C> {
    /// The register, if it is of class `C`.
    pub fn of(reg: ast::Reg) -> Option<Self> {
        (reg.class == C::CLASS).then_some(Reg { idx: reg.idx, class: PhantomData })
    }
}

impl<C: Class> From<Reg<C>> for ast::Reg {
    fn from(reg: Reg<C>) -> ast::Reg {
        ast::Reg { class: C::CLASS, idx: reg.idx }
    }
}

impl<C: Class> fmt::Debug for Reg<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ast::Reg::from(*self))
    }
}

impl From<Reg<Pred>> for Guard {
    fn from(pred: Reg<Pred>) -> Guard {
        Guard { pred: pred.into(), negated: false }
    }
}

impl Not for Reg<Pred> {
    type Output = Guard;

    /// The guard `@!%p`.
    fn not(self) -> Guard {
        Guard { pred: self.into(), negated: true }
    }
}

/// What an instruction writes: a register or a vector of registers.
pub trait Destination: Copy {
    /// New registers.
    fn new(builder: &mut Builder) -> Self;
    /// As an operand.
    fn operand(self) -> Operand;
}

impl<C: Class> Destination for Reg<C> {
    fn new(builder: &mut Builder) -> Self {
        builder.reg()
    }

    fn operand(self) -> Operand {
        Operand::Reg(self.into())
    }
}

impl<C: Class, const N: usize> Destination for [Reg<C>; N] {
    fn new(builder: &mut Builder) -> Self {
        std::array::from_fn(|_| builder.reg())
    }

    fn operand(self) -> Operand {
        Operand::Regs(self.map(ast::Reg::from).to_vec())
    }
}

/// A register of class `C`, or an immediate.
#[derive(Clone, Debug)]
pub struct Imm<C>(pub(super) Operand, PhantomData<C>);

impl<C: Class> From<Reg<C>> for Imm<C> {
    fn from(reg: Reg<C>) -> Self {
        Imm(reg.operand(), PhantomData)
    }
}

macro_rules! immediates {
    ($($class:ident from $ty:ty = |$value:ident| $operand:expr;)+) => {
        $(impl From<$ty> for Imm<$class> {
            fn from($value: $ty) -> Self {
                Imm($operand, PhantomData)
            }
        })+
    };
}

immediates! {
    Pred from bool = |value| Operand::Int(value.into());
    B16 from u16 = |value| Operand::Int(value.into());
    B32 from i32 = |value| Operand::Int(value.into());
    B32 from u32 = |value| Operand::Int(value.into());
    B64 from i32 = |value| Operand::Int(value.into());
    B64 from u32 = |value| Operand::Int(value.into());
    B64 from i64 = |value| Operand::Int(value);
    F32 from f32 = |value| Operand::F32(value.to_bits());
    F64 from f64 = |value| Operand::F64(value.to_bits());
}

/// What `mov.u32` reads: a [`B32`] register, an immediate, a special register, or the address of a shared
/// array.
#[derive(Clone, Debug)]
pub struct AnyB32(pub(super) Operand);

impl<T: Into<Imm<B32>>> From<T> for AnyB32 {
    fn from(value: T) -> Self {
        AnyB32(value.into().0)
    }
}

impl From<Special> for AnyB32 {
    fn from(special: Special) -> Self {
        AnyB32(Operand::Special(special))
    }
}

impl From<Array> for AnyB32 {
    fn from(array: Array) -> Self {
        AnyB32(Operand::Symbol(array.0))
    }
}

/// A parameter of the kernel that is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamRef(pub(super) u32);

impl ParamRef {
    /// The parameter's address, `[name]`.
    pub fn operand(self) -> Operand {
        Operand::Address { base: Base::Param(self.0), offset: 0 }
    }
}

/// A shared array of the kernel that is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array(pub(super) u32);

impl Array {
    /// Index of the array among those of the kernel.
    pub fn idx(self) -> u32 {
        self.0
    }
}

/// `[%rd+offset]`: a register, or a register and an offset in bytes.
#[derive(Clone, Debug)]
pub struct GlobalAddress(pub(super) Operand);

impl From<Reg<B64>> for GlobalAddress {
    fn from(base: Reg<B64>) -> Self {
        (base, 0).into()
    }
}

impl From<(Reg<B64>, i64)> for GlobalAddress {
    fn from((base, offset): (Reg<B64>, i64)) -> Self {
        GlobalAddress(Operand::Address { base: Base::Reg(base.into()), offset })
    }
}

/// `[%r+offset]` or `[array+offset]`: a register or an array, alone or with an offset in bytes.
#[derive(Clone, Debug)]
pub struct SharedAddress(pub(super) Operand);

impl From<Reg<B32>> for SharedAddress {
    fn from(base: Reg<B32>) -> Self {
        (base, 0).into()
    }
}

impl From<(Reg<B32>, i64)> for SharedAddress {
    fn from((base, offset): (Reg<B32>, i64)) -> Self {
        SharedAddress(Operand::Address { base: Base::Reg(base.into()), offset })
    }
}

impl From<Array> for SharedAddress {
    fn from(array: Array) -> Self {
        (array, 0).into()
    }
}

impl From<(Array, i64)> for SharedAddress {
    fn from((array, offset): (Array, i64)) -> Self {
        SharedAddress(Operand::Address { base: Base::Shared(array.0), offset })
    }
}
