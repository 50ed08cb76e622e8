//! Weights of 8 and 4 bits: which conversions of them are left to kernels.

use super::ops::Op;
use crate::TensorType;
use crate::dtype::DTypeClass;

/// Smaller tensors are scales, zero points and indices, not weights.
const LEAST_ELEMS: usize = 1024;

/// Whether an operator turns integers of 8 or 4 bits, as many as weights have, into wider elements.
///
/// Computed ahead of time, the weights would take two to eight times their memory. So constant folding
/// and extraction leave it where it is, and it becomes part of the kernels that read the weights.
pub fn widens_weights(op: Op, from: &TensorType, to: &TensorType) -> bool {
    let integer = matches!(from.dtype.class(), DTypeClass::Signed | DTypeClass::Unsigned);
    op == Op::Cast
        && integer
        && matches!(from.dtype.bits(), 4 | 8)
        && to.dtype.bits() > from.dtype.bits()
        && from.n_elems() >= LEAST_ELEMS
}
