//! Agents: rewrite strategies that read the e-graph and propose; nobody but [`saturate`] writes.
//!
//! They run in parallel on the same e-graph, and their proposals are applied in a fixed order, so
//! the result depends neither on threads nor on the clock. The e-graph is their blackboard: what one
//! finds is everybody's after the next rebuild, and equal findings are one e-node.
//!
//! [`saturate`]: crate::saturate::saturate

use std::sync::Arc;

use egg::{PatternAst, Subst};
use eggine_ir::Schedule;

use crate::facts::EGraph;
use crate::kernel_egraph::{KernelId, KernelSpace};
use crate::lang::ENode;
use crate::rule::{CompiledRule, Match, Rule, RuleError, Soundness, compile_all};

/// What an agent sees.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The graph e-graph, rebuilt.
    pub egraph: &'a EGraph,
    /// The kernel e-graphs; empty while the graph e-graph is saturated.
    pub kernels: &'a [KernelSpace],
    /// How many rounds have been applied.
    pub iteration: usize,
}

/// How much an agent may propose at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Proposals beyond this number are not looked at.
    pub n_proposals: usize,
}

/// What an agent wants done.
#[derive(Clone, Debug)]
pub enum Proposal {
    /// Apply a rule at a match.
    Apply {
        /// The rule.
        rule: Arc<CompiledRule>,
        /// The match; if it no longer is one, nothing happens.
        at: Match,
    },
    /// Add a term to the e-graph, equal to nothing but itself: rules then say what it is equal to.
    Build {
        /// The term.
        term: Arc<PatternAst<ENode>>,
        /// What its variables stand for.
        at: Subst,
    },
    /// Add a schedule to a kernel's class.
    Schedule {
        /// Index of the kernel in [`View::kernels`].
        kernel: usize,
        /// The schedule from which a move leads to the new one.
        parent: KernelId,
        /// The name of the move.
        step: &'static str,
        /// The new schedule.
        schedule: Schedule,
    },
}

/// What an agent lets extraction do beside choosing among the terms that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extraction {
    /// Computing a value in several kernels. Otherwise whatever does more than move elements is in
    /// one kernel.
    pub recompute: bool,
}

/// A rewrite strategy.
pub trait Agent: Send + Sync {
    /// Under which its doings are logged.
    fn name(&self) -> &'static str;

    /// Proposals, most wanted first. Must depend on nothing but the arguments.
    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal>;

    /// What it lets extraction do.
    fn extraction(&self) -> Extraction {
        Extraction::default()
    }
}

/// What became of an agent's proposals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLog {
    /// The agent.
    pub agent: &'static str,
    /// How many proposals it made within its budget.
    pub n_proposed: usize,
    /// How many of them changed something.
    pub n_applied: usize,
    /// How many of those are in the cover: the term that a step added computes a value in one of its
    /// kernels, or is where a tensor's memory comes from; or, of a step that equates two classes, one
    /// of its kernels computes that class on the way. 0 before extraction.
    ///
    /// An agent that only permits extraction something has as many proposals as the cover makes use of
    /// it.
    pub n_used: usize,
}

/// The rules of an agent.
#[derive(Clone, Debug)]
pub struct RuleSet(Vec<Arc<CompiledRule>>);

impl RuleSet {
    /// Compiles those rows of the tables that `soundness` permits.
    ///
    /// # Errors
    ///
    /// The first row that is not a rule.
    pub fn new(tables: &[&'static [Rule]], soundness: Soundness) -> Result<Self, RuleError> {
        Self::from_rows(tables.iter().flat_map(|table| table.iter()), soundness)
    }

    /// Compiles those rows that `soundness` permits.
    ///
    /// # Errors
    ///
    /// The first row that is not a rule.
    pub fn from_rows(
        rows: impl IntoIterator<Item = &'static Rule>,
        soundness: Soundness,
    ) -> Result<Self, RuleError> {
        let rows = rows.into_iter().filter(|row| row.soundness <= soundness);
        Ok(Self(compile_all(rows)?.into_iter().map(Arc::new).collect()))
    }

    /// The rules, in the order of their rows.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<CompiledRule>> {
        self.0.iter()
    }

    /// New matches of all rules, rule by rule, up to the budget.
    pub fn propose(&self, egraph: &EGraph, budget: Budget) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        for rule in &self.0 {
            for at in rule.matches(egraph) {
                if proposals.len() == budget.n_proposals {
                    return proposals;
                }
                proposals.push(Proposal::Apply { rule: Arc::clone(rule), at });
            }
        }
        proposals
    }
}
