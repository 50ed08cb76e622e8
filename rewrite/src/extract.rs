//! Extraction: which tensors are materialised, and which of several equal terms computes each.
//!
//! egg's own extractor is quadratic and knows nothing of materialisation; this one is a worklist for
//! the choice of terms ([`choice`]) and an incremental local search over sets of tensors
//! ([`search`]), in a compact copy of the saturated e-graph ([`space`]).

pub(crate) mod choice;
pub(crate) mod greedy;
pub(crate) mod moves;
pub(crate) mod plan;
pub(crate) mod random;
pub(crate) mod search;
pub(crate) mod space;
pub(crate) mod used;
