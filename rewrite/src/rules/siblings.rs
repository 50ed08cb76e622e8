//! Siblings: what several products of one operand have in common is computed at once.
//!
//! The fuser puts siblings side by side ([`crate::agents::Fuser`]); these rules say that each is its
//! part of the whole, and that the whole is one product with the weights side by side. The weights'
//! concat is a tensor of its own, `(load (store …))`, which is computed at compile time.

use super::derive::*;
use crate::rule::{Rule, Soundness::*, rule};

/// Rules of computations that lie side by side.
#[rustfmt::skip] // One rule per row.
pub const SIBLINGS: &[Rule] = &[
    //   name                 variables                     left                                    right                                                   sound
    rule("slice-concat-part", "x...:_*/any",                "(slice ?w (concat ?a ?x...))",         "?r",                                                   Exact).with(slice_is_part),
    rule("concat-matmul",     "x:B*MK w...:K_!",            "(concat ?a (matmul ?x ?w*)...)",       "(matmul ?x (load (store (concat ?r ?w...))))",         Exact).with(joined_columns),
    rule("concat-conv",       "x:NC+S w...:_C+K!",          "(concat ?a (conv ?c ?x ?w*)...)",      "(conv ?c ?x (load (store (concat ?r ?w...))))",        Exact).with(joined_channels),
    rule("concat-add",        "x...:_*/any b...:_*/any!",   "(concat ?a (add ?x* ?b*)...)",         "(add (concat ?a ?x...) (load (store (concat ?r ?b...))))", Exact).with(joined_operands),
    rule("concat-mul",        "x...:_*/any b...:_*/any!",   "(concat ?a (mul ?x* ?b*)...)",         "(mul (concat ?a ?x...) (load (store (concat ?r ?b...))))", Exact).with(joined_operands),
    rule("concat-relu",       "x...:_*/any",                "(concat ?a (relu ?x)...)",             "(relu (concat ?a ?x...))",                             Exact),
];
