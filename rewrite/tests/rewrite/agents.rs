//! Agents: what they propose is applied in order and logged; what is wrong is found out.

use std::sync::Arc;

use eggine_ir::graph::parse;
use eggine_rewrite::agent::{Agent, Budget, Proposal, RuleSet, View};
use eggine_rewrite::agents::{
    self, AgentRow, Algebraist, BUILT_IN, Fuser, Level, Registry, RegistryError,
};
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
    assert_eq!(names, ["fuser", "memory", "layouter", "algebraist", "splitter", "recompute"]);
    let n_applied: usize = done.agents.iter().map(|log| log.n_applied).sum();
    assert_eq!(n_applied, done.steps.len());
    assert!(done.steps.iter().any(|step| step.name() == "neg-neg" && step.agent == "algebraist"));
    assert!(done.steps.iter().any(|step| step.name() == "load-store" && step.agent == "fuser"));
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

/// The modelled cost with all agents, and without one.
fn costs(text: &str, without: &str, soundness: Soundness) -> (f64, f64) {
    let graph = parse(text).unwrap();
    let cost = |without: &[&str]| {
        let agents = Registry::default().without(Level::Graph, without, soundness).unwrap();
        let options = Options { agents: Some(agents), soundness, ..Options::default() };
        optimise(&graph, &Roofline::default(), &options).unwrap().remove(0).cost_ns
    };
    (cost(&[]), cost(&[without]))
}

/// For each agent a graph that is slower without it. (The splitter's is in `tests/tests/graphs.rs`: the
/// roofline knows nothing of idle processors.)
#[test]
fn every_agent_pays_somewhere() {
    let exact = Soundness::Exact;
    #[rustfmt::skip] // One agent per row.
    let cases = [
        ("fuser", exact, "graph @g(v0: f32[64,64]) {\n v1 = exp v0\n v2 = neg v1\n return v2\n}"),
        ("memory", exact, "graph @g(v0: f32[64,64]) {\n v1 = exp v0\n v2 = reshape v1 {shape=[4096]}\n return v1, v2\n}"),
        ("layouter", exact, "graph @g(v0: f32[64,32]) {\n v1 = transpose v0 {perm=[1,0]}\n v2 = transpose v1 {perm=[1,0]}\n return v2\n}"),
        ("algebraist", exact, "graph @g(v0: f32[64,64]) {\n v1 = neg v0\n v2 = neg v1\n return v2\n}"),
        ("recompute", exact, "graph @g(v0: f32[64,64]) {\n v1 = neg v0\n v2 = exp v1\n v3 = tanh v1\n return v2, v3\n}"),
    ];
    for (agent, soundness, text) in cases {
        let (with, without) = costs(text, agent, soundness);
        assert!(with < without, "{agent}: {with} {without}");
    }
}

/// Whatever agents take part, even none, the model has a cover with a proof.
#[test]
fn any_agents_will_do() {
    let names: Vec<&str> =
        BUILT_IN.iter().filter(|row| row.level == Level::Graph).map(|row| row.name).collect();
    let graph = models::bert(1, 4, 8, 2);
    for chosen in 0..1usize << names.len() {
        let chosen: Vec<&str> = (names.iter().enumerate())
            .filter(|(i, _)| chosen >> i & 1 == 1)
            .map(|(_, name)| *name)
            .collect();
        let agents = Registry::default().select(&chosen, Soundness::Exact).unwrap();
        let options = Options { agents: Some(agents), ..Options::default() };
        let cover = optimise(&graph, &Roofline::default(), &options).unwrap().remove(0);
        assert_eq!(cover.derivation.replay(), Ok(()), "{chosen:?}");
        let logged: Vec<&str> = cover.agents.iter().map(|log| log.agent).collect();
        assert_eq!(logged, chosen);
    }
}

#[test]
fn the_log_says_what_was_used() {
    let graph = models::bert(2, 6, 32, 2);
    let cover = optimise(&graph, &Roofline::default(), &Options::default()).unwrap().remove(0);
    let log = |name: &str| cover.agents.iter().find(|log| log.agent == name).unwrap();
    for log in &cover.agents {
        assert!(log.n_used <= log.n_applied && log.n_applied <= log.n_proposed, "{log:?}");
    }
    for name in ["fuser", "algebraist", "recompute"] {
        assert!(log(name).n_used > 0, "{name} {:?}", cover.agents);
    }
    let text = "graph @g(v0: f32[64,64]) {\n v1 = exp v0\n v2 = reshape v1 {shape=[4096]}\n return v1, v2\n}";
    let cover = optimise(&parse(text).unwrap(), &Roofline::default(), &Options::default())
        .unwrap()
        .remove(0);
    let views = cover.agents.iter().find(|log| log.agent == "memory").unwrap();
    assert_eq!(views.n_used, 1, "{views:?}");
    // Nobody applies a rule of the splitter in an exact job.
    assert_eq!(log("splitter").n_used, 0);
}

#[test]
fn agents_are_chosen_by_name() {
    let mut registry = Registry::default();
    let unknown = registry.select(&["fuser", "fusser"], Soundness::Exact).map(|_| ()).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "there is no agent `fusser`; there are fuser, memory, layouter, algebraist, splitter, recompute"
    );
    let mine = AgentRow {
        name: "liar",
        summary: "says what is false",
        page: "docs/agents/liar.md",
        level: Level::Graph,
        make: |_| Ok(Arc::new(Liar)),
    };
    registry.add(mine).unwrap();
    assert_eq!(registry.add(mine), Err(RegistryError::Taken { name: "liar" }));
    let chosen = registry.select(&["liar", "fuser"], Soundness::Exact).unwrap();
    let names: Vec<&str> = chosen.iter().map(|agent| agent.name()).collect();
    assert_eq!(names, ["fuser", "liar"], "in the order of the registry");
}

/// Each agent has its page, and the page says how to leave it out.
#[test]
fn agents_are_documented() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for row in BUILT_IN {
        let made = (row.make)(Soundness::Real).unwrap();
        assert_eq!(made.name(), row.name);
        let text = std::fs::read_to_string(root.join(row.page)).unwrap();
        assert!(text.contains(&format!("`{}`", row.name)), "{} does not name it", row.page);
        assert!(text.contains("## Without it"), "{}", row.page);
    }
}
