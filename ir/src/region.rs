//! A region: one kernel's worth of computation.
//!
//! It is a small graph whose inputs are the tensors that the kernel loads and whose outputs are
//! those that it stores, in canonical form: names and source nodes are gone, inputs are numbered by
//! first use, so that equal computations in different places of different models are one region.

use crate::Graph;
use crate::shape::row_major_strides;

/// How a tensor lies in memory: element strides per dimension. The offset is part of the pointer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Layout {
    /// Distance between neighbours along each dimension, in elements.
    pub strides: Vec<usize>,
}

impl Layout {
    /// Contiguous, last dimension fastest.
    pub fn row_major(extents: &[usize]) -> Self {
        Self { strides: row_major_strides(extents) }
    }
}

/// See the [module](self).
///
/// Layouts are part of the identity: a kernel for one is not a kernel for another.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// What is computed.
    pub graph: Graph,
    /// Layout of each input, in order.
    pub loads: Vec<Layout>,
    /// Layout of each output, in order.
    pub stores: Vec<Layout>,
}
