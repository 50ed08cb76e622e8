//! The chooser: other kernel families that can compute a region.

use eggine_rewrite::agent::{Agent, Budget, Proposal, View};

use super::open_of_all;

/// Its moves, by prefix.
pub(super) const MOVES: &[&str] = &["family-"];

/// Proposes the first schedules of the other families.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chooser;

impl Agent for Chooser {
    fn name(&self) -> &'static str {
        "chooser"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        open_of_all(view.kernels, MOVES, budget.n_proposals)
    }
}
