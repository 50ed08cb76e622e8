//! The layouter: how elements are moved.

use crate::agent::{Agent, Budget, Proposal, RuleSet, View};
use crate::rule::{RuleError, Soundness};
use crate::rules;

/// Composes movement, lets it vanish, and takes it through elementwise operators and products.
#[derive(Clone, Debug)]
pub struct Layouter(RuleSet);

impl Layouter {
    /// The agent, with those of its rules that `soundness` permits.
    ///
    /// # Errors
    ///
    /// If a row of its tables is malformed.
    pub fn new(soundness: Soundness) -> Result<Self, RuleError> {
        RuleSet::new(&[rules::MOVEMENT], soundness).map(Self)
    }
}

impl Agent for Layouter {
    fn name(&self) -> &'static str {
        "layouter"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        self.0.propose(view.egraph, budget)
    }
}
