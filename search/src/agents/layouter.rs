//! The layouter of kernels: operands that are rearranged at compile time, and whether the product or its
//! transpose is computed.

use eggine_rewrite::agent::{Agent, Budget, Proposal, View};

use super::open_of_all;

/// Its moves, by prefix.
pub(super) const MOVES: &[&str] = &["pack-", "swap"];

/// Proposes packed operands and swapped roles.
#[derive(Clone, Copy, Debug, Default)]
pub struct PackLayouter;

impl Agent for PackLayouter {
    fn name(&self) -> &'static str {
        "pack-layouter"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        open_of_all(view.kernels, MOVES, budget.n_proposals)
    }
}
