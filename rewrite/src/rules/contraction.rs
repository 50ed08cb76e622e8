//! Matrix products and convolutions.

use super::derive::*;
use crate::rule::{Rule, Soundness::*, rule};

/// Rules of contractions. A scale of weights goes into a tensor of its own, `(load (store …))`: it
/// depends on nothing but constants, so it is computed once, at compile time.
#[rustfmt::skip] // One rule per row.
pub const CONTRACTION: &[Rule] = &[
    //   name                     variables                        left                                    right                                                sound
    rule("transpose-matmul",      "a:B*MK b:B*KN",                 "(transpose ?p (matmul ?a ?b))",        "(matmul (transpose ?p ?b) (transpose ?p ?a))",      Exact).with(swaps_last_two),
    rule("matmul-scale",          "a:B*MK b:C*KN c:=?",            "(matmul (mul ?a ?c) ?b)",              "(mul (matmul ?a ?b) ?c)",                           Real),
    rule("matmul-scale-right",    "a:B*MK b:C*KN c:=?",            "(matmul ?a (mul ?b ?c))",              "(mul (matmul ?a ?b) ?c)",                           Real),
    rule("scale-weight-matmul",   "a:B*MK b:KN! c:=?",             "(mul (matmul ?a ?b) ?c)",              "(matmul ?a (load (store (mul ?b ?c))))",            Real),
    rule("scale-weight-conv",     "x:NC+S w:MD+K! c:T*!",            "(mul (conv ?a ?x ?w) ?c)",             "(conv ?a ?x (load (store (mul ?w (reshape ?r ?c)))))", Real).with(channel_scale),
    rule("conv-pad",              "x:NC+S w:MD+K",                     "(conv ?a (pad ?p ?x) ?w)",             "(conv ?r ?x ?w)",                                   Real).with(padding_of_conv), // 0 · ∞ is NaN, and the padding of `conv` is not multiplied.
    rule("conv-1x1-matmul",       "x:NC+S w:MC+K",                   "(conv ?a ?x ?w)",                      "(reshape ?r (matmul (reshape ?q ?w) (reshape ?s ?x)))", Real).with(pointwise_conv),
    rule("matmul-add",            "a:B*MK b:B*MK w:KN",            "(add (matmul ?a ?w) (matmul ?b ?w))",  "(matmul (add ?a ?b) ?w)",                           Real),
];
