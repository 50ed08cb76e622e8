//! Agents: what they propose is applied in order and logged; what is wrong is found out.

use std::sync::Arc;

use eggine_ir::graph::parse;
use eggine_rewrite::agent::{Agent, Budget, Proposal, RuleSet, View};
use eggine_rewrite::agents::{self, Algebraist, Fuser};
use eggine_rewrite::{
    Limits, Options, RewriteError, Rule, Soundness, Stop, lower, optimise, saturate,
};

use crate::models;
use crate::roofline::Roofline;

const LIMITS: Limits =
    Limits { n_nodes: 10_000, n_iterations: 10, budget: Budget { n_proposals: 10_000 } };

fn chain() -> eggine_ir::Graph {
    let text = "graph @g(v0: f32[2,3]) {\n v1 = neg v0\n v2 = neg v1\n v3 = relu v2\n v4 = relu v3\n return v4\n}";
    parse(text).unwrap()
}

#[test]
fn every_proposal_is_logged() {
    let mut lowered = lower(&chain());
    let agents = agents::built_in(Soundness::Exact).unwrap();
    let done = saturate(&mut lowered.egraph, &agents, LIMITS).unwrap();
    assert_eq!(done.stop, Stop::Saturated);
    let names: Vec<&str> = done.agents.iter().map(|log| log.agent).collect();
    assert_eq!(names, ["fuser", "layouter", "algebraist"]);
    let n_applied: usize = done.agents.iter().map(|log| log.n_applied).sum();
    assert_eq!(n_applied, done.steps.len());
    assert!(
        done.steps.iter().any(|step| step.rule.row.name == "neg-neg" && step.agent == "algebraist")
    );
    assert!(
        done.steps.iter().any(|step| step.rule.row.name == "load-store" && step.agent == "fuser")
    );
}

#[test]
fn threads_do_not_change_the_result() {
    let graph = models::bert(1, 6, 8, 2);
    let run = |n_threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| {
            let covers =
                optimise(&graph, &Roofline::default(), &Options { k: 6, ..Options::default() })
                    .unwrap();
            covers.iter().map(|cover| format!("{cover}{}", cover.cost_ns)).collect::<Vec<_>>()
        })
    };
    let one = run(1);
    assert_eq!(one, run(4));
    assert_eq!(one, run(1));
}

#[test]
fn limits_hold() {
    let graph = models::bert(1, 6, 8, 2);
    let mut lowered = lower(&graph);
    let n_lowered = lowered.egraph.total_size();
    let agents = agents::built_in(Soundness::Real).unwrap();
    let limits = Limits { n_nodes: n_lowered + 20, ..LIMITS };
    let done = saturate(&mut lowered.egraph, &agents, limits).unwrap();
    assert_eq!(done.stop, Stop::Nodes);
    // The last rule may add a few nodes at once.
    assert!(lowered.egraph.total_number_of_nodes() < limits.n_nodes + 10);

    let mut lowered = lower(&graph);
    let limits = Limits { n_iterations: 1, ..LIMITS };
    assert_eq!(saturate(&mut lowered.egraph, &agents, limits).unwrap().stop, Stop::Iterations);

    let mut lowered = lower(&graph);
    let limits = Limits { n_iterations: 1, budget: Budget { n_proposals: 3 }, ..LIMITS };
    let done = saturate(&mut lowered.egraph, &agents, limits).unwrap();
    assert!(done.agents.iter().all(|log| log.n_proposed <= 3));
}

#[test]
fn real_rules_are_used_only_where_they_may() {
    let text = "graph @g(v0: f32[2,3]) {\n v1 = exp v0\n v2 = log v1\n return v2\n}";
    let graph = parse(text).unwrap();
    let kernels = |soundness| {
        let options = Options { soundness, ..Options::default() };
        optimise(&graph, &Roofline::default(), &options).unwrap()[0].n_kernels()
    };
    assert_eq!(kernels(Soundness::Exact), 1);
    assert_eq!(kernels(Soundness::Real), 0); // The output is the input.
}

/// An agent whose only rule is false: it changes the type.
struct Liar;

static LIE: Rule = Rule {
    name: "a-lie",
    vars: "",
    lhs: "(relu ?x)",
    rhs: "(reshape [6] ?x)",
    soundness: Soundness::Exact,
    derive: None,
};

impl Agent for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        RuleSet::new(&[std::slice::from_ref(&LIE)], Soundness::Exact)
            .unwrap()
            .propose(view.egraph, budget)
    }
}

#[test]
fn a_rule_that_equates_two_types_poisons_the_run() {
    let agents: Vec<Arc<dyn Agent>> = vec![
        Arc::new(Fuser::new(Soundness::Exact).unwrap()),
        Arc::new(Algebraist::new(Soundness::Exact).unwrap()),
        Arc::new(Liar),
    ];
    let options = Options { agents: Some(agents), ..Options::default() };
    let found = optimise(&chain(), &Roofline::default(), &options);
    match found {
        Err(RewriteError::Unsound(conflict)) => {
            assert_eq!(conflict.rule, "a-lie");
            let message = conflict.to_string();
            assert!(message.contains("f32[2,3]") && message.contains("f32[6]"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}
