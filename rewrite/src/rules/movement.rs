//! Operators that only move elements: they compose, vanish, and pass through elementwise operators.

use super::derive::*;
use crate::rule::{Rule, Soundness::*, rule};

/// Exact rules of movement operators.
#[rustfmt::skip] // One rule per row.
pub const MOVEMENT: &[Rule] = &[
    //   name                    variables           left                                            right                                           sound
    rule("transpose-identity",   "x:S*/any",         "(transpose ?p ?x)",                            "?x",                                           Exact).with(identity_perm),
    rule("transpose-transpose",  "",                 "(transpose ?p (transpose ?q ?x))",             "(transpose ?r ?x)",                            Exact).with(composed_perm),
    rule("transpose-reshape",    "x:S*/any",         "(transpose ?p ?x)",                            "(reshape ?r ?x)",                              Exact).with(perm_of_ones),
    rule("reshape-identity",     "x:S*/any",         "(reshape ?s ?x)",                              "?x",                                           Exact).with(same_shape),
    rule("reshape-reshape",      "",                 "(reshape ?s (reshape ?r ?x))",                 "(reshape ?s ?x)",                              Exact),
    rule("expand-identity",      "x:S*/any",         "(expand ?s ?x)",                               "?x",                                           Exact).with(same_shape),
    rule("expand-expand",        "",                 "(expand ?s (expand ?r ?x))",                   "(expand ?s ?x)",                               Exact),
    rule("slice-identity",       "x:S*/any",         "(slice ?w ?x)",                                "?x",                                           Exact).with(whole_slice),
    rule("slice-slice",          "",                 "(slice ?w (slice ?v ?x))",                     "(slice ?r ?x)",                                Exact).with(composed_slice),
    rule("pad-identity",         "x:S*/any",         "(pad ?p ?x)",                                  "?x",                                           Exact).with(no_padding),
    rule("pad-pad",              "",                 "(pad ?p (pad ?q ?x))",                         "(pad ?r ?x)",                                  Exact).with(composed_padding),
    rule("reshape-relu",         "x:S*",             "(reshape ?s (relu ?x))",                       "(relu (reshape ?s ?x))",                       Exact),
    rule("transpose-relu",       "x:S*",             "(transpose ?p (relu ?x))",                     "(relu (transpose ?p ?x))",                     Exact),
    rule("slice-relu",           "x:S*",             "(slice ?w (relu ?x))",                         "(relu (slice ?w ?x))",                         Exact),
    rule("reshape-add",          "x:S* y:S*",        "(reshape ?s (add ?x ?y))",                     "(add (reshape ?s ?x) (reshape ?s ?y))",        Exact),
    rule("reshape-mul",          "x:S* y:S*",        "(reshape ?s (mul ?x ?y))",                     "(mul (reshape ?s ?x) (reshape ?s ?y))",        Exact),
    rule("transpose-add",        "x:S* y:S*",        "(transpose ?p (add ?x ?y))",                   "(add (transpose ?p ?x) (transpose ?p ?y))",    Exact),
    rule("transpose-mul",        "x:S* y:S*",        "(transpose ?p (mul ?x ?y))",                   "(mul (transpose ?p ?x) (transpose ?p ?y))",    Exact),
    rule("add-expand",           "x:S* y:~S",        "(add ?x (expand ?s ?y))",                      "(add ?x ?y)",                                  Exact).with(expands_to_x),
    rule("sub-expand",           "x:S* y:~S",        "(sub ?x (expand ?s ?y))",                      "(sub ?x ?y)",                                  Exact).with(expands_to_x),
    rule("mul-expand",           "x:S* y:~S",        "(mul ?x (expand ?s ?y))",                      "(mul ?x ?y)",                                  Exact).with(expands_to_x),
    rule("div-expand",           "x:S* y:~S",        "(div ?x (expand ?s ?y))",                      "(div ?x ?y)",                                  Exact).with(expands_to_x),
    rule("add-expand-left",      "x:S* y:~S",        "(add (expand ?s ?y) ?x)",                      "(add ?y ?x)",                                  Exact).with(expands_to_x),
    rule("mul-expand-left",      "x:S* y:~S",        "(mul (expand ?s ?y) ?x)",                      "(mul ?y ?x)",                                  Exact).with(expands_to_x),
    rule("slice-concat-left",    "x:S*/any y:T*/any","(slice ?w (concat ?a ?x ?y))",                 "?x",                                           Exact).with(slice_is_left),
    rule("slice-concat-right",   "x:S*/any y:T*/any","(slice ?w (concat ?a ?x ?y))",                 "?y",                                           Exact).with(slice_is_right),
];
