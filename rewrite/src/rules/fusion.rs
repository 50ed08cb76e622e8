//! Fusion: one axiom and its mirror image.
//!
//! A value that was stored is what was stored, so a consumer may compute it itself. Together with an
//! extraction that decides which tensors exist, this is every fusion of every operator.

use crate::rule::{Rule, Soundness::*, rule};

/// The axioms of `load` and `store`.
#[rustfmt::skip] // One rule per row.
pub const FUSION: &[Rule] = &[
    //   name          variables    left                  right   sound
    rule("load-store", "",          "(load (store ?e))",  "?e",   Exact),
    rule("store-load", "",          "(store (load ?t))",  "?t",   Exact),
];
