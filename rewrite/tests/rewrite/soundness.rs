//! Every rule of our tables is true, as far as execution shows; false rules are refused with a small
//! counterexample.

use eggine_rewrite::soundness::{Counterexample, Verdict, check};
use eggine_rewrite::{Rule, Soundness, rules};

#[test]
fn every_rule_is_sound() {
    let mut failures = Vec::new();
    for rule in rules::all() {
        match check(rule) {
            Ok(Verdict::Holds) => (),
            Ok(Verdict::False(example)) => failures.push(example.to_string()),
            other => failures.push(format!("`{}`: {other:?}", rule.name)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The harness itself must be able to say no.
#[test]
fn false_rules_are_rejected() {
    use Soundness::{Exact, Real};
    let row = |name: &str| *rules::all().find(|rule| rule.name == name).unwrap();
    let new =
        |vars, lhs, rhs, soundness| Rule { name: "false", vars, lhs, rhs, soundness, derive: None };
    let falsehoods = [
        new("x:S* c:~S=0.0", "(add ?x ?c)", "?x", Exact),
        new("x:S* c:~S=0.0", "(mul ?x ?c)", "?c", Exact),
        new("x:S* c:~S=0.0", "(sub ?c ?x)", "(neg ?x)", Exact),
        new("x:S*", "(exp (log ?x))", "?x", Real),
        new("x:S* y:S*", "(sub ?x ?y)", "(sub ?y ?x)", Real),
        new("x:S*", "(sqrt (mul ?x ?x))", "?x", Real),
        new("x:S* y:S* z:S*", "(mul ?x (add ?y ?z))", "(add (mul ?x ?y) ?z)", Real),
        new("x:S*", "(reduce_max ?a (neg ?x))", "(neg (reduce_max ?a ?x))", Exact),
        new("a:MK b:KN", "(matmul ?a ?b)", "(matmul ?b ?a)", Real),
        new("", "(transpose ?p (transpose ?q ?x))", "(transpose ?q (transpose ?p ?x))", Exact),
        new("", "(reshape ?s (transpose ?p ?x))", "(reshape ?s ?x)", Exact),
        Rule { soundness: Exact, ..row("mul-distribute") },
        Rule { soundness: Exact, ..row("div-const") },
        Rule { soundness: Exact, ..row("max-zero-relu") },
        Rule { soundness: Exact, ..row("sum-identity") },
        Rule { soundness: Exact, ..row("conv-pad") },
        Rule { derive: None, ..row("concat-join") },
        Rule { derive: None, ..row("slice-concat-left") },
        Rule { rhs: "?x1", derive: None, ..row("slice-concat-part") },
        Rule { rhs: "(concat ?a ?x...)", ..row("concat-relu") },
        Rule {
            rhs: "(mul (concat ?a ?x...) (load (store (concat ?r ?b...))))",
            ..row("concat-add")
        },
        Rule { derive: None, ..row("transpose-matmul") },
        Rule { derive: None, ..row("transpose-identity") },
    ];
    for rule in falsehoods {
        let found = check(&rule);
        assert!(matches!(found, Ok(Verdict::False(_))), "{rule:?}: {found:?}");
    }
}

fn refuted(
    vars: &'static str,
    lhs: &'static str,
    rhs: &'static str,
    s: Soundness,
) -> Counterexample {
    let rule = Rule { name: "false", vars, lhs, rhs, soundness: s, derive: None };
    match check(&rule) {
        Ok(Verdict::False(example)) => *example,
        other => panic!("{rule:?}: {other:?}"),
    }
}

#[test]
fn counterexamples_are_shrunk() {
    let zero = refuted("x:S* c:~S=0.0", "(add ?x ?c)", "?x", Soundness::Exact);
    insta::assert_snapshot!(zero);
    let axis = refuted(
        "",
        "(transpose ?p (transpose ?q ?x))",
        "(transpose ?q (transpose ?p ?x))",
        Soundness::Exact,
    );
    insta::assert_snapshot!(axis);
    let sign = refuted("x:S* y:S*", "(sub ?x ?y)", "(sub ?y ?x)", Soundness::Real);
    insta::assert_snapshot!(sign);
    let typed = refuted("a:MK b:KN", "(matmul ?a ?b)", "(matmul ?b ?a)", Soundness::Real);
    insta::assert_snapshot!(typed);
    let order =
        refuted("x:S* y:S* z:S*", "(add (add ?x ?y) ?z)", "(add ?x (add ?y ?z))", Soundness::Exact);
    assert!(order.holds_over_the_reals);
    insta::assert_snapshot!(order);
}

/// A true identity is not refused for what rounding does behind a cancellation or a steep function.
#[test]
fn ill_conditioned_true_rules_hold() {
    let real = |vars, lhs, rhs| Rule {
        name: "true",
        vars,
        lhs,
        rhs,
        soundness: Soundness::Real,
        derive: None,
    };
    for rule in [
        real("x:S* y:S*", "(recip (sub ?x ?y))", "(neg (recip (sub ?y ?x)))"),
        real(
            "x:S* y:S*",
            "(recip (sub (mul ?x ?x) (mul ?y ?y)))",
            "(recip (mul (sub ?x ?y) (add ?x ?y)))",
        ),
        real("x:S*", "(exp (mul (exp (mul ?x ?x)) ?x))", "(exp (mul ?x (exp (mul ?x ?x))))"),
        real("x:S*", "(sqrt (exp ?x))", "(recip (sqrt (exp (neg ?x))))"),
    ] {
        assert_eq!(check(&rule), Ok(Verdict::Holds), "{rule:?}");
    }
}

#[test]
fn what_cannot_be_tested_is_not_believed() {
    let row = |vars, lhs, rhs| Rule {
        name: "odd",
        vars,
        lhs,
        rhs,
        soundness: Soundness::Exact,
        derive: None,
    };
    // A matrix product of a vector is never well typed.
    let never = check(&row("x:N y:N", "(matmul ?x ?y)", "(matmul ?y ?x)"));
    assert!(matches!(never, Ok(Verdict::Untested { n_cases: 0, .. })), "{never:?}");
    let resize = check(&row("x:NC+S", "(resize ?a ?x)", "?x"));
    assert!(resize.is_err_and(|err| err.to_string().contains("`resize`")));
    // What takes any element type is tried on integers, too.
    let integers = check(&row("x:S*/any", "(neg (neg ?x))", "?x"));
    assert_eq!(integers, Ok(Verdict::Holds));
    let halves = check(&row("", "(mul ?x (div ?y ?y))", "(div (mul ?x ?y) ?y)"));
    assert!(matches!(halves, Ok(Verdict::False(_))), "{halves:?}");
}

/// Rounding shows only among ordinary numbers: infinities and powers of two hide it.
#[test]
fn reassociation_is_not_exact() {
    let row = |lhs, rhs| Rule {
        name: "false",
        vars: "x:S* y:S* z:S*",
        lhs,
        rhs,
        soundness: Soundness::Exact,
        derive: None,
    };
    for (lhs, rhs) in [
        ("(add (add ?x ?y) ?z)", "(add ?x (add ?y ?z))"),
        ("(mul (mul ?x ?y) ?z)", "(mul ?x (mul ?y ?z))"),
        ("(div (div ?x ?y) ?z)", "(div ?x (mul ?y ?z))"),
    ] {
        let rule = row(lhs, rhs);
        assert!(matches!(check(&rule), Ok(Verdict::False(_))), "{rule:?}");
    }
}
