//! The kernel IR: what one thread of a block does, as structured code over scalars.
//!
//! Values are defined once and dominate their uses; variables are mutable registers (accumulators);
//! buffers are global tensors or shared arrays, addressed in elements. Loops and branches are
//! structured, so a barrier is uniform exactly when no enclosing condition depends on the thread.
//! Matrix instructions will be statements whose fragments name the atom that owns them.
//!
//! A family builds kernels through `Builder`, which folds constants and shares equal expressions.

pub mod builder;
pub mod dce;
pub mod eval;
pub mod fold;
pub mod parse;
pub mod range;
mod steps;
pub mod text;
pub mod uniform;
pub mod verify;

pub use builder::Builder;
pub use parse::parse;
pub use steps::steps_bound;
pub use verify::verify;

use cranelift_entity::{PrimaryMap, entity_impl};
use eggine_ir::DType;

/// An immutable scalar. Prints as `v3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Val(u32);
entity_impl!(Val, "v");

/// A mutable scalar register. Prints as `r3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(u32);
entity_impl!(Var, "r");

/// A global tensor (kernel parameter) or a shared array. Prints as `b3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buffer(u32);
entity_impl!(Buffer, "b");

/// Type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "named as the element types")]
pub enum Scalar {
    /// Index arithmetic wraps in 32 bits; an index is at most 2³¹ − 1.
    I32,
    I64,
    F32,
    F64,
    Pred,
}

impl Scalar {
    /// The type that elements of `dtype` have in registers. Floats of 8 and fewer bits are their codes.
    pub fn of(dtype: DType) -> Scalar {
        match dtype {
            DType::F64 => Scalar::F64,
            DType::F32 | DType::F16 | DType::BF16 => Scalar::F32,
            // A `u32` is a number of 64 bits, and a `u64` the bits of one.
            DType::I64 | DType::U64 | DType::U32 => Scalar::I64,
            DType::I32 | DType::I16 | DType::I8 | DType::U16 | DType::U8 | DType::Bool => {
                Scalar::I32
            }
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => Scalar::I32,
            DType::F8E4M3
            | DType::F8E5M2
            | DType::F8E4M3FNUZ
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1 => Scalar::I32,
        }
    }
}

/// Where a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// A kernel parameter: pointer to a tensor. In order of declaration.
    Global {
        /// Whether the kernel stores to it. A buffer that it does not store to may be cached.
        writable: bool,
    },
    /// An array that the threads of a block share.
    Shared,
}

/// Declaration of a [`Buffer`].
#[derive(Clone, Debug, PartialEq)]
pub struct BufferDecl {
    /// Where it lies.
    pub space: Space,
    /// Element type in memory. Loads widen (`f16`, `bf16` to `f32`; integers of fewer than 32 bits, `bool`
    /// and the codes of floats of 8 and 4 bits to `i32`; `u32` to `i64`), stores narrow. Elements of 4 and
    /// 2 bits are loaded one by one and not stored: who writes them owns the byte, and stores that.
    pub dtype: DType,
    /// Number of elements that may be accessed.
    pub n_elems: usize,
    /// Guaranteed alignment of element 0, in bytes.
    pub align_bytes: u32,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Name of the `.entry`.
    pub name: String,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block (in x).
    pub n_threads: u32,
    /// Least number of blocks that must fit on one multiprocessor, if asked for.
    pub min_blocks: Option<u32>,
    /// Buffers; the global ones, in order, are the parameters.
    pub buffers: PrimaryMap<Buffer, BufferDecl>,
    /// Types of the values.
    pub vals: PrimaryMap<Val, Scalar>,
    /// Types of the variables.
    pub vars: PrimaryMap<Var, Scalar>,
    /// What each thread does.
    pub body: Vec<Stmt>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// Defines a value.
    Let(Val, Expr),
    /// Assigns a variable.
    Set(Var, Val),
    /// Loads 1, 2 or 4 neighbouring elements starting at `index + offset`; more than one needs an
    /// address aligned to all of them. Where `mask` is false nothing is read and the values are zero.
    Load {
        /// Results.
        dsts: Vec<Val>,
        /// Read from.
        buffer: Buffer,
        /// In elements, of type [`Scalar::I32`].
        index: Val,
        /// Added to the index.
        offset: i32,
        /// Of type [`Scalar::Pred`].
        mask: Option<Val>,
    },
    /// Stores 1, 2 or 4 neighbouring elements.
    Store {
        /// Written to.
        buffer: Buffer,
        /// In elements.
        index: Val,
        /// Added to the index.
        offset: i32,
        /// What is stored.
        srcs: Vec<Val>,
        /// Where it is false nothing is written.
        mask: Option<Val>,
    },
    /// Copies `n_elems` neighbouring elements from global to shared memory without waiting
    /// (`cp.async`, sm_80). Where `mask` is false zeros are written by an ordinary store.
    CopyAsync {
        /// Shared buffer.
        dst: Buffer,
        /// In elements.
        dst_index: Val,
        /// Added to it.
        dst_offset: i32,
        /// Global buffer.
        src: Buffer,
        /// In elements.
        src_index: Val,
        /// Added to it.
        src_offset: i32,
        /// 4, 8 or 16 bytes' worth.
        n_elems: u32,
        /// Of type [`Scalar::Pred`].
        mask: Option<Val>,
    },
    /// Ends a group of asynchronous copies.
    CopyCommit,
    /// Waits until at most this many of the thread's groups are in flight.
    CopyWait(u32),
    /// Counted loop. A barrier inside needs bounds that are the same in all threads of the block.
    For {
        /// The counter, of type [`Scalar::I32`].
        counter: Val,
        /// First value.
        from: Operand,
        /// Exclusive end.
        to: Operand,
        /// Positive.
        step: i32,
        /// What is repeated.
        body: Vec<Stmt>,
    },
    /// Branch.
    If {
        /// Of type [`Scalar::Pred`].
        cond: Val,
        /// Taken where it holds.
        then: Vec<Stmt>,
        /// Taken elsewhere.
        otherwise: Vec<Stmt>,
    },
    /// All threads of the block wait for each other; shared and global writes before it are seen after.
    Barrier,
}

/// A loop bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Known.
    Const(i32),
    /// Computed.
    Val(Val),
}

/// What a value is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// Bits of a constant of the value's type (`f32` in the low half; `i32` sign-extended; `pred` 0 or 1).
    Const(u64),
    /// Thread, block or lane index, of type [`Scalar::I32`].
    Special(Special),
    /// Current value of a variable.
    Get(Var),
    /// One operand.
    Unary(UnaryOp, Val),
    /// Two operands of the same type (for shifts the amount is `i32`).
    Binary(BinaryOp, Val, Val),
    /// Comparison of two `i32`, `i64`, `f32` or `f64`; ordered for floats (false on NaN, but `Ne` true).
    Compare(CompareOp, Val, Val),
    /// `a * b + c`, for floats rounded once.
    Fma(Val, Val, Val),
    /// `if cond { a } else { b }`
    Select {
        /// Of type [`Scalar::Pred`].
        cond: Val,
        /// If it holds.
        a: Val,
        /// If not.
        b: Val,
    },
    /// Conversion to the type of the defined value: float to integer truncates and saturates (NaN: 0),
    /// integer to float rounds to nearest, `i32` to `i64` extends the sign, predicate to 0 or 1.
    Convert(Val),
    /// The bits of a value as a number of the other type of their width: `i32` and `f32`, `i64` and `f64`.
    Bits(Val),
    /// The value that the lane `lane ^ mask` has; all lanes of the warp must execute it.
    ShuffleXor(Val, u32),
}

/// Indices that the hardware provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "CUDA's names")]
pub enum Special {
    ThreadX,
    BlockX,
    BlockY,
    BlockZ,
}

/// Operations of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named as the functions")]
pub enum UnaryOp {
    Neg,
    Abs,
    /// Of a predicate.
    Not,
    Floor,
    Ceil,
    /// To nearest, ties to even.
    Round,
    /// Correctly rounded.
    Sqrt,
    /// Correctly rounded reciprocal.
    Recip,
    /// `1/√x`, 2 ulp.
    RsqrtApprox,
    /// 2ˣ, 2 ulp.
    Exp2Approx,
    /// log₂ x, 1 ulp outside [0.5, 2], absolute error 2⁻²² inside.
    Log2Approx,
    /// Absolute error 2⁻²⁰·⁹ in [−π, π].
    SinApprox,
    /// As `SinApprox`.
    CosApprox,
}

/// Operations of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named as the functions")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    /// Floats: correctly rounded. Integers: truncating; the divisor is not 0.
    Div,
    /// Integers: sign of the dividend; the divisor is not 0.
    Rem,
    /// NaN if either is.
    Min,
    /// NaN if either is.
    Max,
    /// Integers and predicates.
    And,
    Or,
    Xor,
    Shl,
    /// Keeps the sign.
    Shr,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named as the relations")]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
}
