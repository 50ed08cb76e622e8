//! Saturation: agents propose, in parallel; proposals are applied, in order; the e-graph is rebuilt.
//!
//! Limits are numbers of e-nodes and rounds, never the clock.

use std::sync::Arc;

use egg::{Id, PatternAst, Subst};
use rayon::prelude::*;

use crate::RewriteError;
use crate::agent::{Agent, AgentLog, Budget, Proposal, View};
use crate::facts::EGraph;
use crate::lang::ENode;
use crate::rule::{CompiledRule, Match, build, lookup};
use crate::rule_file::{Fuel, USER_AGENT};

/// Where saturation stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// No rule is applied to an e-graph of this many e-nodes.
    pub n_nodes: usize,
    /// Rounds.
    pub n_iterations: usize,
    /// Of each agent in each round.
    pub budget: Budget,
}

/// Why saturation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nobody had anything new to say.
    Saturated,
    /// The e-graph is as large as it may be.
    Nodes,
    /// Enough rounds.
    Iterations,
}

/// What a step did.
#[derive(Clone, Debug)]
pub enum Action {
    /// It added an equality.
    Equate {
        /// The reason.
        rule: Arc<CompiledRule>,
        /// The left side.
        at: Match,
    },
    /// It added a term, which by itself claims nothing.
    Build {
        /// The term.
        term: Arc<PatternAst<ENode>>,
        /// What its variables stand for.
        at: Subst,
    },
}

/// A proposal that changed the e-graph.
#[derive(Clone, Debug)]
pub struct Step {
    /// Who proposed it.
    pub agent: &'static str,
    /// In which round: matches of a round were found in the e-graph that it began with.
    pub round: usize,
    /// An equality with its reason, or a term.
    pub action: Action,
    /// The class of the right side, or of the term, when it was added.
    pub right: Id,
}

impl Step {
    /// The name of the rule, or `build` for a term.
    pub fn name(&self) -> &'static str {
        match &self.action {
            Action::Equate { rule, .. } => rule.row.name,
            Action::Build { .. } => "build",
        }
    }

    /// Carries the step out. `None`: it changes nothing.
    pub(crate) fn apply(action: &Action, agent: &'static str, egraph: &mut EGraph) -> Option<Id> {
        match action {
            Action::Equate { rule, at } => rule.apply(egraph, at),
            Action::Build { term, at } => {
                if lookup(egraph, term, |var| at.get(var).copied()).is_some() {
                    return None;
                }
                egraph.analysis.rule = agent;
                build(egraph, term, at)
            }
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Saturation {
    /// Every equality and every term that rests on no rule, in the order in which they were added.
    pub steps: Vec<Step>,
    /// What became of each agent's proposals, in the order of agents.
    pub agents: Vec<AgentLog>,
    /// Why it ended.
    pub stop: Stop,
    /// Rounds.
    pub n_iterations: usize,
}

/// Lets the agents rewrite until they are silent or a limit is reached.
///
/// # Errors
///
/// [`RewriteError::Unsound`] if a rule equated two types.
pub fn saturate(
    egraph: &mut EGraph,
    agents: &[Arc<dyn Agent>],
    limits: Limits,
) -> Result<Saturation, RewriteError> {
    saturate_with_fuel(egraph, agents, limits, &mut None)
}

/// As [`saturate`], with at most `fuel` applications of users' rules; what is left of it stays there.
#[tracing::instrument(skip_all, fields(n_agents = agents.len()))]
pub(crate) fn saturate_with_fuel(
    egraph: &mut EGraph,
    agents: &[Arc<dyn Agent>],
    limits: Limits,
    fuel: &mut Option<Fuel>,
) -> Result<Saturation, RewriteError> {
    let mut logs: Vec<AgentLog> = (agents.iter())
        .map(|agent| AgentLog { agent: agent.name(), n_proposed: 0, n_applied: 0, n_used: 0 })
        .collect();
    let mut steps = Vec::new();
    let mut stop = Stop::Iterations;
    let mut n_iterations = 0;
    'rounds: while n_iterations < limits.n_iterations {
        let view = View { egraph, kernels: &[], iteration: n_iterations };
        let proposals: Vec<Vec<Proposal>> =
            agents.par_iter().map(|agent| agent.propose(&view, limits.budget)).collect();
        n_iterations += 1;
        let before = steps.len();
        for (log, proposals) in logs.iter_mut().zip(proposals) {
            for proposal in proposals.into_iter().take(limits.budget.n_proposals) {
                log.n_proposed += 1;
                let action = match proposal {
                    Proposal::Apply { rule, at } => Action::Equate { rule, at },
                    Proposal::Build { term, at } => Action::Build { term, at },
                    Proposal::Schedule { .. } => continue,
                };
                let fuel = fuel.as_mut().filter(|_| log.agent == USER_AGENT);
                if fuel.as_ref().is_some_and(|fuel| fuel.0 == 0) {
                    continue;
                }
                if egraph.total_size() >= limits.n_nodes {
                    stop = Stop::Nodes;
                    break 'rounds;
                }
                if let Some(right) = Step::apply(&action, log.agent, egraph) {
                    log.n_applied += 1;
                    if let Some(fuel) = fuel {
                        fuel.0 -= 1;
                    }
                    let step = Step { agent: log.agent, round: n_iterations, action, right };
                    tracing::trace!(agent = log.agent, step = step.name(), class = %right, "applied");
                    steps.push(step);
                }
            }
        }
        egraph.rebuild();
        if let Some(conflict) = egraph.analysis.conflicts.first() {
            return Err(RewriteError::Unsound(conflict.clone()));
        }
        if steps.len() == before {
            stop = Stop::Saturated;
            break;
        }
    }
    egraph.rebuild();
    match egraph.analysis.conflicts.first() {
        Some(conflict) => Err(RewriteError::Unsound(conflict.clone())),
        None => Ok(Saturation { steps, agents: logs, stop, n_iterations }),
    }
}
