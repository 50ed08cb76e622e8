//! Why an operator does not accept its operands or attributes.

use crate::graph::{AttrKind, Op};
use crate::{DType, TensorType};

/// Why an operator does not accept its operands or attributes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named as in the message")]
pub enum TypeError {
    /// The number of operands is not the row's.
    #[error("`{op}` takes {expected} operands, found {found}")]
    Arity { op: Op, expected: usize, found: usize },
    /// An operator of one or more operands has none.
    #[error("`{op}` takes at least one operand, found none")]
    NoOperands { op: Op },
    /// The number of attributes is not the row's.
    #[error("`{op}` takes {expected} attributes, found {found}")]
    AttrCount { op: Op, expected: usize, found: usize },
    /// An attribute is of another kind than the row's.
    #[error("attribute `{attr}` of `{op}` is {found:?}, expected {expected:?}")]
    AttrKind { op: Op, attr: &'static str, expected: AttrKind, found: AttrKind },
    /// A number is beyond what any tensor needs.
    #[error("attribute `{attr}` of `{op}` is beyond {limit}")]
    AttrTooLarge { op: Op, attr: &'static str, limit: i64 },
    /// A list has another length than the operand's rank asks for.
    #[error("attribute `{attr}` has {found} members, expected {expected}")]
    AttrLength { attr: &'static str, expected: usize, found: usize },
    /// A number is too small.
    #[error("attribute `{attr}` is {found}, expected at least {least}")]
    AttrTooSmall { attr: &'static str, found: i64, least: i64 },
    /// A number is too big.
    #[error("attribute `{attr}` is {found}, expected at most {most}")]
    AttrTooBig { attr: &'static str, found: i64, most: i64 },
    /// A word is not one of the closed set.
    #[error("attribute `{attr}` is `{found}`, expected one of {expected:?}")]
    Word { attr: &'static str, expected: &'static [&'static str], found: String },
    /// A dimension has not been bound.
    #[error("{found} has a dimension that is not bound to a number")]
    Symbolic { found: TensorType },
    /// The result could not be indexed.
    #[error("{found} has more than {limit} elements")]
    TooManyElements { found: TensorType, limit: usize },
    /// The operator does not take this element type.
    #[error("expected {expected}, found {found}")]
    DType { expected: &'static str, found: TensorType },
    /// Operands must have one element type.
    #[error("element types of {lhs} and {rhs} differ")]
    DTypesDiffer { lhs: TensorType, rhs: TensorType },
    /// Extents differ and neither is 1.
    #[error("cannot broadcast {lhs} with {rhs}")]
    Broadcast { lhs: TensorType, rhs: TensorType },
    /// No such axis.
    #[error("{found} has no axis {axis}")]
    Axis { axis: i64, found: TensorType },
    /// Axes are canonical: strictly ascending.
    #[error("axes {axes:?} are not strictly ascending")]
    AxesNotAscending { axes: Vec<i64> },
    /// There is nothing to choose from along the axis.
    #[error("axis {axis} of {found} has no elements")]
    EmptyAxis { axis: usize, found: TensorType },
    /// The rank is not one that the operator takes.
    #[error("expected rank {least} to {most}, found {found}")]
    Rank { least: usize, most: usize, found: TensorType },
    /// Not each axis exactly once.
    #[error("{perm:?} does not permute the axes of {found}")]
    Permutation { perm: Vec<i64>, found: TensorType },
    /// A reshape changes the number of elements.
    #[error("cannot reshape {found} to {shape:?}")]
    Reshape { shape: Vec<i64>, found: TensorType },
    /// An extent that is neither 1 nor that of the result.
    #[error("cannot expand {found} to {shape:?}")]
    Expand { shape: Vec<i64>, found: TensorType },
    /// A slice leaves its operand.
    #[error("slice from {start} by {step}, {extent} times, leaves axis {axis} of {found}")]
    Slice { axis: usize, start: i64, extent: i64, step: i64, found: TensorType },
    /// Concatenated operands differ elsewhere than along the axis.
    #[error("cannot concatenate {lhs} and {rhs} along axis {axis}")]
    Concat { axis: usize, lhs: TensorType, rhs: TensorType },
    /// A scale is not a positive finite number.
    #[error("scale {scale} of axis {axis} is not positive and finite")]
    Scale { axis: usize, scale: ScaleBits },
    /// The contracted extents differ, or an operand has too few axes.
    #[error("cannot contract {lhs} with {rhs}")]
    Contraction { lhs: TensorType, rhs: TensorType },
    /// Channels are not divisible into groups, or the filter is for another number of channels.
    #[error("{lhs} and {rhs} do not fit a convolution with {groups} groups")]
    Groups { groups: i64, lhs: TensorType, rhs: TensorType },
    /// A window is larger than the padded operand.
    #[error("window of {window} does not fit padded extent {padded} of axis {axis}")]
    Window { axis: usize, window: i64, padded: i64 },
    /// The operator cannot make this element type.
    #[error("expected numbers, found `{found}`")]
    ResultDType { found: DType },
}

/// The bits of an `f32` that print as the number, so that errors are `Eq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleBits(pub u32);

impl std::fmt::Display for ScaleBits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", f32::from_bits(self.0))
    }
}
