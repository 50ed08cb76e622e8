//! The syntax tree: a module of entries, each a list of labels and instructions.

use crate::table::Op;

/// A PTX module.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// `.version`, as (major, minor).
    pub version: (u32, u32),
    /// `.target`, such as `sm_80` or `sm_90a`.
    pub target: String,
    /// Kernels, in order.
    pub entries: Vec<Entry>,
}

/// A `.visible .entry`.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// `.param`s, in order.
    pub params: Vec<Param>,
    /// `.reqntid`.
    pub reqntid: Option<[u32; 3]>,
    /// `.minnctapersm`.
    pub minnctapersm: Option<u32>,
    /// Number of registers of each class in use; registers are numbered from 0.
    pub n_regs: Vec<(RegClass, u32)>,
    /// Static shared arrays.
    pub shared: Vec<Shared>,
    /// Number of labels; labels are numbered from 0.
    pub n_labels: u32,
    /// Labels and instructions.
    pub body: Vec<Stmt>,
}

/// A kernel parameter. Only scalars of 4 and 8 bytes are used.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name, unique in the entry.
    pub name: String,
    /// `.u64` (a pointer), `.u32` or `.f32`.
    pub ty: ParamType,
}

/// Type of a [`Param`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "PTX type names")]
pub enum ParamType {
    U32,
    U64,
    F32,
}

/// `.shared .align A .b8 name[bytes];`
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// Its name.
    pub name: String,
    /// Alignment, a power of two.
    pub align_bytes: u32,
    /// Size.
    pub n_bytes: u32,
}

/// A register class: one `.reg` declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RegClass {
    /// `.pred %p`
    Pred,
    /// `.b16 %h`: also f16, bf16, u16.
    B16,
    /// `.b32 %r`: also u32, s32.
    B32,
    /// `.b64 %rd`: also u64, s64 and addresses.
    B64,
    /// `.f32 %f`
    F32,
    /// `.f64 %fd`
    F64,
}

/// A virtual register. Prints as `%f3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg {
    /// Class.
    pub class: RegClass,
    /// Index within the class.
    pub idx: u32,
}

/// A label of an entry. Prints as `$L3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(pub u32);

/// A line of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// `$L3:`
    Label(Label),
    /// An instruction.
    Inst(Inst),
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// `@%p0` or `@!%p0`.
    pub guard: Option<Guard>,
    /// Row of the instruction table.
    pub op: Op,
    /// Operands as the row lists them.
    pub operands: Vec<Operand>,
}

/// Executes the instruction only in lanes where the predicate has the given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// A register of class [`RegClass::Pred`].
    pub pred: Reg,
    /// `true` for `@!%p`.
    pub negated: bool,
}

/// One operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// `%f3`
    Reg(Reg),
    /// `{%f0, %f1, %f2, %f3}`
    Regs(Vec<Reg>),
    /// An integer, in decimal.
    Int(i64),
    /// Bits of an f32, printed `0f3F800000`.
    F32(u32),
    /// Bits of an f64, printed `0d3FF0000000000000`.
    F64(u64),
    /// `%tid.x` and the like.
    Special(Special),
    /// `[base+offset]`
    Address {
        /// What is added to.
        base: Base,
        /// Byte offset.
        offset: i64,
    },
    /// The address of a shared array, as in `mov.u32 %r1, smem;`.
    Symbol(u32),
    /// A branch target.
    Label(Label),
}

/// Base of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A register: 64 bits for global, 32 for shared memory.
    Reg(Reg),
    /// Index of a [`Param`].
    Param(u32),
    /// Index of a [`Shared`] array.
    Shared(u32),
}

/// Special registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "PTX names: %tid.x, %ntid.x, %ctaid.x, %nctaid.x, %laneid, %warpid")]
pub enum Special {
    TidX,
    TidY,
    TidZ,
    NtidX,
    NtidY,
    NtidZ,
    CtaidX,
    CtaidY,
    CtaidZ,
    NctaidX,
    NctaidY,
    NctaidZ,
    Laneid,
    Warpid,
}
