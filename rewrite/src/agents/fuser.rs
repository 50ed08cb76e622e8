//! The fuser: consumers may compute what they would load.

use crate::agent::{Agent, Budget, Proposal, RuleSet, View};
use crate::rule::{RuleError, Soundness};
use crate::rules;

/// Lets consumers compute what they would load.
#[derive(Clone, Debug)]
pub struct Fuser(RuleSet);

impl Fuser {
    /// The agent, with those of its rules that `soundness` permits.
    ///
    /// # Errors
    ///
    /// If a row of its tables is malformed.
    pub fn new(soundness: Soundness) -> Result<Self, RuleError> {
        RuleSet::new(&[rules::FUSION], soundness).map(Self)
    }
}

impl Agent for Fuser {
    fn name(&self) -> &'static str {
        "fuser"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        self.0.propose(view.egraph, budget)
    }
}
