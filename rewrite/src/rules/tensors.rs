//! Tensors that cost nothing: other shapes of the same memory, and parts that lie side by side.

use super::derive::*;
use crate::rule::{Rule, Soundness::*, rule};

/// Rules between materialised tensors.
#[rustfmt::skip] // One rule per row.
pub const TENSORS: &[Rule] = &[
    //   name             variables         left                                right                               sound
    rule("reshape-view",  "",               "(store (reshape ?s (load ?t)))",   "(view ?s ?t)",                     Exact),
    rule("view-view",     "",               "(view ?s (view ?r ?t))",           "(view ?s ?t)",                     Exact),
    // Row-major parts lie side by side only if nothing of extent above 1 is outside the axis.
    rule("concat-join",   "",               "(store (concat ?a ?x...))",        "(join ?a (store ?x)...)",          Exact).with(outermost_axis),
];
