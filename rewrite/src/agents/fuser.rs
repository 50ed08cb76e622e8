//! The fuser: consumers compute what they would load, and siblings are computed together.
//!
//! Vertical fusion is one axiom ([`rules::FUSION`]), applied wherever it matches. Horizontal fusion
//! puts computations that read the same operand side by side ([`siblings`]); the rules of
//! [`rules::SIBLINGS`] say that this is one product, and extraction decides whether it pays.

mod siblings;

use std::sync::Arc;

use crate::agent::{Agent, Budget, Proposal, RuleSet, View};
use crate::rule::{CompiledRule, RuleError, Soundness};
use crate::rules;

/// Lets consumers compute what they would load, and computes siblings together.
#[derive(Clone, Debug)]
pub struct Fuser {
    vertical: RuleSet,
    /// Looked for only where siblings lie side by side.
    horizontal: RuleSet,
}

impl Fuser {
    /// The agent, with those of its rules that `soundness` permits.
    ///
    /// # Errors
    ///
    /// If a row of its tables is malformed.
    pub fn new(soundness: Soundness) -> Result<Self, RuleError> {
        Ok(Self {
            vertical: RuleSet::new(&[rules::FUSION], soundness)?,
            horizontal: RuleSet::new(&[rules::SIBLINGS], soundness)?,
        })
    }

    /// The rules about as many computations as `group` has, at its whole and at its parts.
    fn of_group(&self, view: &View<'_>, group: &siblings::Group) -> Vec<Proposal> {
        let is_of_size = |rule: &&Arc<CompiledRule>| rule.n_operands == group.parts.len();
        let rules: Vec<&Arc<CompiledRule>> = self.horizontal.rules().filter(is_of_size).collect();
        let classes = group.built(view.egraph);
        let at = |class: egg::Id| {
            rules.iter().flat_map(move |&rule| {
                let matches = rule.matches_in(view.egraph, class).into_iter();
                matches.map(move |at| Proposal::Apply { rule: Arc::clone(rule), at })
            })
        };
        classes.into_iter().flat_map(at).collect()
    }
}

impl Agent for Fuser {
    fn name(&self) -> &'static str {
        "fuser"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        let mut proposals = self.vertical.propose(view.egraph, budget);
        for group in siblings::groups(view.egraph) {
            proposals.extend(group.terms(view.egraph));
            proposals.extend(self.of_group(view, &group));
        }
        proposals.truncate(budget.n_proposals);
        proposals
    }
}
