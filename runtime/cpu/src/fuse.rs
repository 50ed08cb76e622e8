//! Fused blocks of multiply-adds.

/// A fused block.
pub(crate) struct FmaBlock {}
