//! The memory agent: tensors that need no kernel, because their bytes lie somewhere already.

use crate::agent::{Agent, Budget, Proposal, RuleSet, View};
use crate::rule::{RuleError, Soundness};
use crate::rules;

/// Finds tensors that are other shapes of the same memory, and tensors whose parts can be computed
/// right where they belong.
#[derive(Clone, Debug)]
pub struct Memory(RuleSet);

impl Memory {
    /// The agent, with those of its rules that `soundness` permits.
    ///
    /// # Errors
    ///
    /// If a row of its tables is malformed.
    pub fn new(soundness: Soundness) -> Result<Self, RuleError> {
        RuleSet::new(&[rules::TENSORS], soundness).map(Self)
    }
}

impl Agent for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        self.0.propose(view.egraph, budget)
    }
}
