//! Algebra over the reals: rounding, infinities and NaN may differ.

use super::derive::*;
use crate::rule::{Rule, Soundness::*, rule};

/// Real identities of elementwise operators.
#[rustfmt::skip] // One rule per row.
pub const SCALARS: &[Rule] = &[
    //   name               variables                       left                                      right                             sound
    rule("mul-distribute",  "x:S* y:S* z:S*",               "(mul ?x (add ?y ?z))",                   "(add (mul ?x ?y) (mul ?x ?z))",  Real),
    rule("mul-factor",      "x:S* y:S* z:T*",               "(add (mul ?x ?z) (mul ?y ?z))",          "(mul (add ?x ?y) ?z)",           Real),
    rule("mul-mul-const",   "x:S* c:~S=? d:~S=?",           "(mul (mul ?x ?c) ?d)",                   "(mul ?x ?r)",                    Real).with(product_of_constants),
    rule("add-add-const",   "x:S* c:~S=? d:~S=?",           "(add (add ?x ?c) ?d)",                   "(add ?x ?r)",                    Real).with(sum_of_constants),
    rule("div-const",       "x:S* c:~S=?",                  "(div ?x ?c)",                            "(mul ?x ?r)",                    Real).with(reciprocal),
    rule("div-recip",       "x:S* y:T*",                    "(div ?x ?y)",                            "(mul ?x (recip ?y))",            Real), // One division per row instead of one per element.
    rule("max-zero-relu",   "x:S* c:~S=0.0",                "(max ?x ?c)",                            "(relu ?x)",                      Real), // relu(-0.0) is -0.0.
    rule("recip-sqrt",      "x:S*",                         "(recip (sqrt ?x))",                      "(rsqrt ?x)",                     Real),
    rule("pow-half",        "x:S* c:~S=0.5",                "(pow ?x ?c)",                            "(sqrt ?x)",                      Real),
    rule("pow-neg-one",     "x:S* c:~S=-1.0",               "(pow ?x ?c)",                            "(recip ?x)",                     Real),
    rule("log-exp",         "x:S*",                         "(log (exp ?x))",                         "?x",                             Real), // Not exp-log, which is NaN below 0.
    rule("exp-add",         "x:S* y:T*",                    "(mul (exp ?x) (exp ?y))",                "(exp (add ?x ?y))",              Real),
    rule("exp-neg",         "x:S*",                         "(recip (exp ?x))",                       "(exp (neg ?x))",                 Real),
    rule("sigmoid",         "x:S* c:~S=1.0",                "(recip (add (exp (neg ?x)) ?c))",        "(sigmoid ?x)",                   Real),
    rule("relu-scale",      "x:S* c:~S=?",                  "(relu (mul ?x ?c))",                     "(mul (relu ?x) ?c)",             Real).with(positive),
];
