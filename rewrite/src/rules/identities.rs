//! Operators that do nothing, or that another one does better, without any change of a bit.

use super::derive::*;
use crate::rule::{Rule, Soundness::*, rule};

/// Exact identities of elementwise operators.
#[rustfmt::skip] // One rule per row.
pub const IDENTITIES: &[Rule] = &[
    //   name                  variables                         left                          right                  sound
    rule("mul-one",            "x:S* c:~S=1.0",                  "(mul ?x ?c)",                "?x",                  Exact),
    rule("div-one",            "x:S* c:~S=1.0",                  "(div ?x ?c)",                "?x",                  Exact),
    rule("add-neg-zero",       "x:S* c:~S=-0.0",                 "(add ?x ?c)",                "?x",                  Exact), // Not 0.0: -0.0 + 0.0 is 0.0.
    rule("sub-zero",           "x:S* c:~S=0.0",                  "(sub ?x ?c)",                "?x",                  Exact),
    rule("mul-neg-one",        "x:S* c:~S=-1.0",                 "(mul ?x ?c)",                "(neg ?x)",            Exact),
    rule("neg-neg",            "x:S*",                           "(neg (neg ?x))",             "?x",                  Exact),
    rule("abs-abs",            "x:S*",                           "(abs (abs ?x))",             "(abs ?x)",            Exact),
    rule("abs-neg",            "x:S*",                           "(abs (neg ?x))",             "(abs ?x)",            Exact),
    rule("relu-relu",          "x:S*",                           "(relu (relu ?x))",           "(relu ?x)",           Exact),
    rule("relu-abs",           "x:S*",                           "(relu (abs ?x))",            "(abs ?x)",            Exact),
    rule("not-not",            "x:S*/bool",                      "(not (not ?x))",             "?x",                  Exact),
    rule("add-neg",            "x:S* y:T*",                      "(add ?x (neg ?y))",          "(sub ?x ?y)",         Exact),
    rule("sub-neg",            "x:S* y:T*",                      "(sub ?x (neg ?y))",          "(add ?x ?y)",         Exact),
    rule("neg-sub",            "x:S* c:~S=-0.0",                 "(sub ?c ?x)",                "(neg ?x)",            Exact), // Not 0.0: 0.0 - 0.0 is 0.0, its negation is not.
    rule("one-div",            "x:S* c:~S=1.0",                  "(div ?c ?x)",                "(recip ?x)",          Exact),
    rule("div-power-of-two",   "x:S* c:~S=?",                    "(div ?x ?c)",                "(mul ?x ?r)",         Exact).with(reciprocal_of_power_of_two),
    rule("pow-one",            "x:S* c:~S=1.0",                  "(pow ?x ?c)",                "?x",                  Exact),
    rule("pow-two",            "x:S* c:~S=2.0",                  "(pow ?x ?c)",                "(mul ?x ?x)",         Exact),
    rule("select-same",        "x:S* c:~S/bool",                 "(select ?c ?x ?x)",          "?x",                  Exact).with(select_keeps_shape),
    rule("select-not",         "c:S*/bool x:T* y:U*",            "(select (not ?c) ?x ?y)",    "(select ?c ?y ?x)",   Exact),
    rule("select-lt-relu",     "x:S* c:~S=0.0",                  "(select (lt ?x ?c) ?c ?x)",  "(relu ?x)",           Exact),
    // The canonical form: what is known goes to the right, so the rules above need one row each.
    rule("add-known-right",    "c:S*! x:T*",                     "(add ?c ?x)",                "(add ?x ?c)",         Exact).with(x_unknown),
    rule("mul-known-right",    "c:S*! x:T*",                     "(mul ?c ?x)",                "(mul ?x ?c)",         Exact).with(x_unknown),
];
