//! The splitter: long sums with few results are cut into parts that run side by side.

use crate::agent::{Agent, Budget, Proposal, RuleSet, View};
use crate::rule::{Match, RuleError, Scope, Soundness};
use crate::rules;

/// Products with sums shorter than this are left alone: their blocks finish soon enough.
const LEAST_SUM: usize = 512;

/// Products with more results than this fill a device with blocks anyway: 64 tiles of 16 × 16.
const MOST_RESULTS: usize = 16_384;

/// Proposes split-K for products of two matrices.
#[derive(Clone, Debug)]
pub struct Splitter(RuleSet);

impl Splitter {
    /// The agent; without [`Soundness::Real`] it has no rule, as parts round differently.
    ///
    /// # Errors
    ///
    /// If a row of its tables is malformed.
    pub fn new(soundness: Soundness) -> Result<Self, RuleError> {
        RuleSet::new(&[rules::SPLITTING], soundness).map(Self)
    }
}

/// Whether the product is worth a split.
fn pays(view: &View<'_>, rule: &crate::rule::CompiledRule, at: &Match) -> bool {
    let bound = rule.bound(view.egraph, &at.subst);
    let (Some(a), Some(b)) = (bound.ty("a"), bound.ty("b")) else { return false };
    let (a, b) = (a.extents(), b.extents());
    a[1] >= LEAST_SUM && a[0] * b[1] <= MOST_RESULTS
}

impl Agent for Splitter {
    fn name(&self) -> &'static str {
        "splitter"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        let mut proposals = self.0.propose(view.egraph, budget);
        proposals.retain(|proposal| match proposal {
            Proposal::Apply { rule, at } => pays(view, rule, at),
            _ => false,
        });
        proposals
    }
}
