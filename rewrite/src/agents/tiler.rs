//! The tiler: neighbouring schedules of the kernels that it is shown.
//!
//! It looks at kernels in turn and takes the oldest schedule whose neighbours nobody has proposed,
//! so that the classes grow breadth first from their first schedules.

use crate::agent::{Agent, Budget, Proposal, View};

/// Proposes neighbours of known schedules, oldest first, kernels in turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tiler;

impl Agent for Tiler {
    fn name(&self) -> &'static str {
        "tiler"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        let mut per_kernel: Vec<_> = (view.kernels.iter().enumerate())
            .map(|(kernel, space)| {
                space.frontier().map(move |(parent, step, schedule)| Proposal::Schedule {
                    kernel,
                    parent,
                    step,
                    schedule,
                })
            })
            .collect();
        let mut proposals = Vec::new();
        loop {
            let before = proposals.len();
            for frontier in &mut per_kernel {
                if proposals.len() == budget.n_proposals {
                    return proposals;
                }
                proposals.extend(frontier.next());
            }
            if proposals.len() == before {
                return proposals;
            }
        }
    }
}
