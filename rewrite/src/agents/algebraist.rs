//! The algebraist: identities, constants, and the algebra of reductions and contractions.

use crate::agent::{Agent, Budget, Proposal, RuleSet, View};
use crate::rule::{RuleError, Soundness};
use crate::rules;

/// Identities, constants, and the algebra of reductions and contractions.
#[derive(Clone, Debug)]
pub struct Algebraist(RuleSet);

impl Algebraist {
    /// The agent, with those of its rules that `soundness` permits.
    ///
    /// # Errors
    ///
    /// If a row of its tables is malformed.
    pub fn new(soundness: Soundness) -> Result<Self, RuleError> {
        RuleSet::new(
            &[rules::IDENTITIES, rules::SCALARS, rules::REDUCTION, rules::CONTRACTION],
            soundness,
        )
        .map(Self)
    }
}

impl Agent for Algebraist {
    fn name(&self) -> &'static str {
        "algebraist"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        self.0.propose(view.egraph, budget)
    }
}
