//! Splits: one long sum as several shorter ones.

use super::derive::*;
use crate::rule::{Rule, Soundness::*, rule};

/// Rules of split sums. The parts are stored, so that they are a kernel of their own.
#[rustfmt::skip] // One rule per row.
pub const SPLITTING: &[Rule] = &[
    //   name            variables      left              right                                                                                                                  sound
    rule("split-matmul", "a:MK b:KN",   "(matmul ?a ?b)", "(reshape ?r (reduce_sum ?z (load (store (matmul (transpose ?p (reshape ?q ?a)) (reshape ?t ?b))))))", Real).with(split_sum),
];
