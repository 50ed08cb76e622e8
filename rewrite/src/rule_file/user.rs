//! The agent that applies a user's rules, how far it may go, and the trace of what it did.

use std::fmt;

use egg::Id;

use super::CheckedRules;
use crate::agent::{Agent, Budget, Proposal, RuleSet, View};
use crate::derivation::Derivation;
use crate::lower::lower;
use crate::rule::{RuleError, Soundness};
use crate::saturate::{Action, Step};

/// Under which the doings of users' rules are logged.
pub const USER_AGENT: &str = "user";

/// Applies a user's rules wherever they match.
#[derive(Clone, Debug)]
pub struct UserAgent(RuleSet);

impl UserAgent {
    /// The agent, with those of the rules that `soundness` permits.
    ///
    /// # Errors
    ///
    /// If a row is malformed, which no checked one is.
    pub fn new(rules: &CheckedRules, soundness: Soundness) -> Result<Self, RuleError> {
        RuleSet::from_rows(rules.rules().iter().copied(), soundness).map(Self)
    }
}

impl Agent for UserAgent {
    fn name(&self) -> &'static str {
        USER_AGENT
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        self.0.propose(view.egraph, budget)
    }
}

/// How many applications of users' rules are left: with half of them, half the suspects are gone.
///
/// An application is one equality that a rule added to the e-graph of one of the model's distinct
/// segments. They are counted segment by segment, in the order of the model, so that the first N are the
/// same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fuel(pub u64);

/// Nodes that a printed [`Firing`] names: a segment may stand for many places.
const MAX_SHOWN: usize = 6;

/// One application of a user's rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    /// The rule.
    pub rule: &'static str,
    /// Which of the model's distinct segments, from 0.
    pub segment: usize,
    /// In which round of saturation.
    pub round: usize,
    /// The class that holds its left side.
    pub class: Id,
    /// Nodes of the model whose results are in the class; empty for a term that other rules made.
    pub sources: Vec<String>,
}

impl fmt::Display for Firing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, segment, round, class, sources } = self;
        write!(f, "rule {rule} at class {class} of segment {segment}, round {round}: ")?;
        match sources.as_slice() {
            [] => f.write_str("a term that rules made"),
            few if few.len() <= MAX_SHOWN => f.write_str(&few.join(", ")),
            many => {
                let (shown, rest) = many.split_at(MAX_SHOWN);
                write!(f, "{} and {} more", shown.join(", "), rest.len())
            }
        }
    }
}

/// Every application of users' rules behind a cover, in the order in which fuel is counted.
///
/// # Panics
///
/// If the derivation is not one of a cover that [`optimise`](crate::optimise) returned.
pub fn firings(derivation: &Derivation) -> Vec<Firing> {
    let mut found = Vec::new();
    for (segment, proof) in derivation.segments.iter().enumerate() {
        if !proof.steps.iter().any(|step| step.agent == USER_AGENT) {
            continue;
        }
        // The steps, repeated, give the same classes; the values of the model are found in them.
        let mut lowered = lower(&proof.graph);
        for round in proof.steps.chunk_by(|a, b| a.round == b.round) {
            lowered.egraph.rebuild();
            for step in round {
                Step::apply(&step.action, step.agent, &mut lowered.egraph);
            }
        }
        lowered.egraph.rebuild();
        let egraph = &lowered.egraph;
        for step in proof.steps.iter().filter(|step| step.agent == USER_AGENT) {
            let Action::Equate { at, .. } = &step.action else { continue };
            let class = egraph.find(at.class);
            let mut sources: Vec<String> = Vec::new();
            for (&value, names) in derivation.sources.get(segment).into_iter().flatten() {
                let ids = [lowered.computations[value], lowered.tensors[value]];
                if ids.into_iter().flatten().any(|id| egraph.find(id) == class) {
                    sources.extend(names.iter().cloned());
                }
            }
            sources.sort();
            sources.dedup();
            let (rule, round) = (step.name(), step.round);
            found.push(Firing { rule, segment, round, class: at.class, sources });
        }
    }
    found
}
