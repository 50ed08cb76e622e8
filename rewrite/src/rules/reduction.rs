//! Reductions.

use super::derive::*;
use crate::rule::{Rule, Soundness::*, rule};

/// Rules of reductions along whole axes.
#[rustfmt::skip] // One rule per row.
pub const REDUCTION: &[Rule] = &[
    //   name                 variables           left                                     right                                sound
    rule("sum-sum",           "x:S*",             "(reduce_sum ?a (reduce_sum ?b ?x))",    "(reduce_sum ?r ?x)",                Real).with(united_axes),
    rule("max-max",           "x:S*",             "(reduce_max ?a (reduce_max ?b ?x))",    "(reduce_max ?r ?x)",                Real).with(united_axes), // Which zero wins depends on the order.
    rule("sum-identity",      "x:S*",             "(reduce_sum ?a ?x)",                    "?x",                                Real).with(axes_of_ones), // The sum starts at 0.0, and -0.0 + 0.0 is 0.0.
    rule("max-identity",      "x:S*",             "(reduce_max ?a ?x)",                    "?x",                                Exact).with(axes_of_ones),
    rule("min-identity",      "x:S*",             "(reduce_min ?a ?x)",                    "?x",                                Exact).with(axes_of_ones),
    rule("sum-scale",         "x:S* c:~S=?",      "(reduce_sum ?a (mul ?x ?c))",           "(mul (reduce_sum ?a ?x) ?r)",       Real).with(scalar_of_c),
    rule("sum-add",           "x:S* y:S*",        "(reduce_sum ?a (add ?x ?y))",           "(add (reduce_sum ?a ?x) (reduce_sum ?a ?y))",  Real),
    rule("max-relu",          "x:S*",             "(reduce_max ?a (relu ?x))",             "(relu (reduce_max ?a ?x))",         Real), // Which zero wins depends on the order.
];
