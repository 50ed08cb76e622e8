//! Rule files: every mistake has its place, false rules are refused, true ones are used, fuel counts.

use std::sync::Arc;

use eggine_ir::Region;
use eggine_ir::graph::parse as parse_graph;
use eggine_rewrite::agents::built_in;
use eggine_rewrite::rule_file::{
    Fuel, Refusal, RuleFile, RuleFileErrors, UserAgent, firings, parse,
};
use eggine_rewrite::{Options, RegionCost, Soundness, optimise};

fn rules(rows: &str) -> RuleFile {
    parse("mine.rules", rows).unwrap_or_else(|errors| panic!("{}", rendered(&errors)))
}

/// What a terminal shows, without colour and width.
fn rendered(errors: &RuleFileErrors) -> String {
    let handler = miette::NarratableReportHandler::new();
    let mut text = String::new();
    for error in &errors.errors {
        let source = miette::NamedSource::new(&errors.name, errors.text.clone());
        let report = miette::Report::new(error.clone()).with_source_code(source);
        handler.render_report(&mut text, report.as_ref()).unwrap();
    }
    text
}

const TRUE: &str = "
; name          | variables              | left                                     | right                                   | soundness
neg-mul         | x:S* y:T*              | (mul (neg ?x) ?y)                        | (neg (mul ?x ?y))                       | Exact ; signs
min-max         | x:S* y:S*              | (neg (min ?x ?y))                        | (max (neg ?x) (neg ?y))                 | Real
abs-mul         | x:S* y:S*              | (abs (mul ?x ?y))                        | (mul (abs ?x) (abs ?y))                 | Exact
add-same        | x:S*                   | (add ?x ?x)                              | (mul ?x 2.0:f32[])                      | Exact
merge-adapter   | x:B*MK w:KN! a:KR! b:RN! | (add (matmul ?x ?w) (matmul (matmul ?x ?a) ?b)) | (matmul ?x (load (store (add ?w (matmul ?a ?b))))) | Real
flip-flip       | x:MN                   | (transpose [1,0] (transpose [1,0] ?x))   | ?x                                      | Exact
concat-neg      |                        | (concat ?a (neg ?x)...)                  | (neg (concat ?a ?x...))                 | Exact
sum-neg         | x:S*                   | (reduce_sum ?a (neg ?x))                 | (neg (reduce_sum ?a ?x))                | Real
bits            | x:S*/bool y:S*/bool    | (and (not ?x) (not ?y))                  | (not (or ?x ?y))                        | Exact
relu-max        | x:S*                   | (relu ?x)                                | (max ?x 0.0:f32[])                      | Real
two-thirds      | x:S* c:~S=? d:~S=?     | (sub (mul ?x ?c) (mul ?x ?d))            | (mul ?x (sub ?c ?d))                    | Real
";

const FALSE: &str = "
add-zero        | x:S* c:~S=0.0          | (add ?x ?c)                              | ?x                                      | Exact
mul-zero        | x:S* c:~S=0.0          | (mul ?x ?c)                              | ?c                                      | Exact
wrong-sign      | x:S* y:S*              | (sub ?x ?y)                              | (sub ?y ?x)                             | Real
wrong-axis      | x:MN                   | (reduce_sum [0] ?x)                      | (reduce_sum [1] ?x)                     | Real
wrong-broadcast | x:MN y:N               | (add ?x ?y)                              | (add (transpose [1,0] ?x) ?y)           | Real
wrong-reduction | x:S*                   | (reduce_max ?a (neg ?x))                 | (neg (reduce_max ?a ?x))                | Real
wrong-identity  | x:S*                   | (reduce_prod ?a (relu ?x))               | (relu (reduce_sum ?a ?x))               | Real
cross-terms     | a:MK b:MK v:KN w:KN    | (add (matmul ?a ?v) (matmul ?b ?w))      | (matmul (add ?a ?b) (add ?v ?w))        | Real
exp-log         | x:S*                   | (exp (log ?x))                           | ?x                                      | Real
sqrt-square     | x:S*                   | (sqrt (mul ?x ?x))                       | ?x                                      | Real
distribute      | x:S* y:S* z:S*         | (mul ?x (add ?y ?z))                     | (add (mul ?x ?y) (mul ?x ?z))           | Exact
flip-reshape    |                        | (reshape ?s (transpose ?p ?x))           | (reshape ?s ?x)                         | Exact
select-nan      | x:S* y:S*              | (select (lt ?x ?y) ?x ?y)                | (min ?x ?y)                             | Exact
self-sub        | x:S*                   | (sub ?x ?x)                              | (mul ?x 0.0:f32[])                      | Exact
div-self        |                        | (mul (div ?x ?y) ?y)                     | ?x                                      | Exact
mask-forgotten  | c:S*/bool x:S* y:S*    | (select ?c ?x ?y)                        | (select (not ?c) ?x ?y)                 | Exact
lost-operand    |                        | (concat ?a (neg ?x)...)                  | (concat ?a ?x...)                       | Exact
";

#[test]
fn true_rules_are_accepted() {
    let file = rules(TRUE);
    assert_eq!(file.rows.len(), 11);
    let checked = file.check().unwrap_or_else(|refused| panic!("{refused}"));
    assert_eq!(checked.rules().len(), 11);
    assert_eq!(
        checked.not_permitted(Soundness::Exact),
        ["min-max", "merge-adapter", "sum-neg", "relu-max", "two-thirds"]
    );
    // Printed rows are a rule file of the same rules.
    let printed = checked.to_string();
    assert_eq!(rules(&printed).check().unwrap().to_string(), printed);
}

#[test]
fn false_rules_are_refused_with_a_counterexample() {
    let file = rules(FALSE);
    let verdicts = file.verdicts();
    assert_eq!(verdicts.len(), 17);
    let mut listing = String::new();
    for checked in &verdicts {
        match &checked.refusal {
            Some(Refusal::False(example)) => listing.push_str(&example.to_string()),
            other => panic!("{:?}: {other:?}", checked.rule),
        }
    }
    insta::assert_snapshot!(listing);
    let refused = file.check().unwrap_err();
    assert_eq!(refused.refused.len(), 17, "one false rule and none of the file is used");
}

#[test]
fn every_mistake_is_shown_in_its_place() {
    let mistakes = "
few-columns     | x:S*    | (neg ?x)
Bad Name        | x:S*    | (neg (neg ?x))       | ?x                  | Exact
neg-neg         | x:S*    | (neg (neg ?x))       | ?x                  | Exact
no-left         | x:S*    |                      | ?x                  | Exact
maybe           | x:S*    | (neg (neg ?x))       | ?x                  | Perhaps
no-operator     | x:S*    | (negate ?x)          | ?x                  | Exact
misspelt        | x:S*    | (matmull ?x ?x)      | ?x                  | Exact
operands        | x:S*    | (add ?x)             | ?x                  | Exact
attributes      | x:S*    | (transpose ?x)       | ?x                  | Exact
bad-attributes  | x:S*    | (transpose 1 ?x)     | ?x                  | Exact
huge            | x:S*    | (reshape [99999] ?x) | ?x                  | Exact
unbound         | x:S*    | (neg ?x)             | (sub ?y ?x)         | Exact
not-left        | x:S* y:S* | (neg (neg ?x))     | ?x                  | Exact
open            | x:S*    | (neg (neg ?x)        | ?x                  | Exact
close           | x:S*    | (neg (neg ?x)))      | ?x                  | Exact
two-terms       | x:S*    | (neg ?x) ?x          | ?x                  | Exact
lone            | x:S*    | ?x                   | (neg (neg ?x))      | Exact
same            | x:S*    | (abs ?x)             | (abs  ?x)           | Exact
number          | x:S*    | (mul ?x 1.0)         | ?x                  | Exact
no-mark         | x:S*    | (neg x)              | ?x                  | Exact
no-shape        | x       | (abs (abs ?x))       | (abs ?x)            | Exact
bad-shape       | x:S*T*  | (abs (abs ?x))       | (abs ?x)            | Exact
bad-dtype       | x:S*/f31 | (abs (abs ?x))      | (abs ?x)            | Exact
bad-value       | x:S* c:~S=one | (mul ?x ?c)    | ?x                  | Exact
no-f32          | x:S* c:~S=0.1 | (mul ?x ?c)    | (mul ?c ?x)         | Exact
bad-broadcast   | c:~S x:S* | (mul ?x ?c)        | (mul ?c ?x)         | Exact
twice           | x:S* x:S* | (abs (abs ?x))     | (abs ?x)            | Exact
twice           | x:S*    | (abs (abs ?x))       | (abs ?x)            | Exact
sorts           |         | (store (add ?x ?y))  | (add ?x ?y)         | Exact
kinds           |         | (transpose ?p ?p)    | ?p                  | Exact
typed-attrs     | p:S*    | (transpose ?p (neg ?x)) | (neg (transpose ?p ?x)) | Exact
dots            |         | (add ?x...)          | ?x                  | Exact
dots-right      |         | (concat ?a ?x...)    | (concat ?a ?x)      | Exact
";
    let errors = parse("mine.rules", mistakes).unwrap_err();
    let lines = mistakes.lines().filter(|line| line.contains('|')).count();
    assert!(errors.errors.len() >= lines, "{} mistakes on {lines} lines", errors.errors.len());
    for (nth, line) in mistakes.lines().enumerate().skip(1) {
        let start = line.as_ptr() as usize - mistakes.as_ptr() as usize;
        let within = start..=start + line.len();
        assert!(
            errors.errors.iter().any(|error| within.contains(&error.span.offset())),
            "no mistake found on line {}: {line}",
            nth + 1
        );
    }
    insta::assert_snapshot!(rendered(&errors));
}

#[test]
fn any_text_is_a_file_or_a_mistake() {
    let mut state = 1u64;
    let mut next = |n: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let words = [
        "x",
        "|",
        "|",
        "|",
        "|",
        "(",
        ")",
        "(neg",
        "(add",
        "?x",
        "?x...",
        "...",
        "x:S*",
        "c:~S=?",
        "\n",
        ";",
        "[1,0]",
        "<0,[1]>",
        "1.0:f32[]",
        "{1,2}:i64[2]",
        "Exact",
        "Real",
        "é",
        "a-b",
        "~",
        "*",
        "!",
        "(concat",
        "?a",
        "(load",
        "(store",
        "1:f32[99999999999,9999999999]",
    ];
    for _ in 0..3000 {
        let text: Vec<&str> = (0..next(40)).map(|_| words[next(words.len())]).collect();
        let _ = parse("any", &text.join(if next(2) == 0 { " " } else { "" }));
    }
    let deep = format!("deep | | {}?x{} | ?x | Exact", "(neg ".repeat(500), ")".repeat(500));
    assert!(parse("deep", &deep).is_err(), "too deep a term is a mistake, not a crash");
    assert!(parse("large", &"; \n".repeat(400_000)).is_err());
}

/// Every kernel costs what it reads and computes.
struct Flops;

impl RegionCost for Flops {
    fn cost_ns(&self, region: &Region) -> Option<f64> {
        Some(100.0 + region.graph.nodes.values().map(|node| node.ty.n_elems() as f64).sum::<f64>())
    }
}

#[test]
fn fuel_counts_applications_and_traces_say_where() {
    let graph = parse_graph(
        "graph @g(v0: f32[4,3], v1: f32[4,3]) {
    v2 = neg v0
    v3 = mul v2, v1
    v4 = exp v3
    v5 = neg v1
    v6 = mul v5, v4
    return v6
}
",
    )
    .unwrap();
    let checked = rules("neg-mul | x:S* y:T* | (mul (neg ?x) ?y) | (neg (mul ?x ?y)) | Exact")
        .check()
        .unwrap();
    let run = |fuel: Option<u64>| {
        let mut agents = built_in(Soundness::Exact).unwrap();
        agents.insert(0, Arc::new(UserAgent::new(&checked, Soundness::Exact).unwrap()));
        let options =
            Options { agents: Some(agents), rule_fuel: fuel.map(Fuel), ..Options::default() };
        let cover = optimise(&graph, &Flops, &options).unwrap().remove(0);
        cover.derivation.replay().unwrap();
        firings(&cover.derivation)
    };
    let all = run(None);
    assert!(all.len() >= 2, "{all:?}");
    assert!(all.iter().all(|firing| firing.rule == "neg-mul"));
    assert_eq!(run(Some(0)), []);
    let one = run(Some(1));
    assert_eq!(one.len(), 1);
    assert_eq!(
        (one[0].rule, one[0].round, one[0].class),
        (all[0].rule, all[0].round, all[0].class)
    );
    assert_eq!(run(Some(1000)), all, "more fuel than there is to do changes nothing");
}

/// Found by libFuzzer: each dimension makes the tensors of the check three times as large.
#[test]
fn a_shape_of_very_many_dimensions_is_refused() {
    let rule = |letters: &str| format!("twice | x:{letters}S | (neg (neg ?x)) | ?x | Exact\n");
    assert!(rules(&rule("ABCDEFG")).check().is_ok());
    let errors = parse("mine.rules", &rule(&"k".repeat(100))).unwrap_err();
    assert!(rendered(&errors).contains("at most 8 dimensions"), "{}", rendered(&errors));
}
