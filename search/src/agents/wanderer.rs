//! The wanderer: several moves at once, to leave a valley that single moves do not leave.
//!
//! It starts at a schedule that was considered and makes two or three moves, each drawn from all legal
//! ones. What it draws is a function of the view: of the round and of the number of known schedules.

use eggine_rewrite::agent::{Agent, Budget, Proposal, View};
use eggine_rewrite::{KernelId, KernelSpace};

use crate::random::SplitMix;

/// Walks tried for one proposal; most end at what is known where there is little room.
const N_WALKS: u64 = 3;

/// Proposes schedules two or three moves away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanderer;

fn walk(space: &KernelSpace, kernel: usize, random: &mut SplitMix) -> Option<Proposal> {
    let n = space.schedules().len() as u64;
    let parent = KernelId::from_u32(random.below(n) as u32);
    let mut schedule = space.get(parent).schedule;
    for _ in 0..2 + random.below(2) {
        let next = space.neighbours(&schedule);
        if next.is_empty() {
            return None;
        }
        schedule = next[random.below(next.len() as u64) as usize].1;
    }
    let fresh = space.schedules().all(|(_, known)| known.schedule != schedule);
    fresh.then_some(Proposal::Schedule { kernel, parent, step: "wander", schedule })
}

impl Agent for Wanderer {
    fn name(&self) -> &'static str {
        "wanderer"
    }

    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        let mut proposals: Vec<Proposal> = Vec::new();
        for (kernel, space) in view.kernels.iter().enumerate() {
            let seed = (view.iteration as u64) << 32 | space.schedules().len() as u64;
            let mut random = SplitMix(seed);
            for _ in 0..N_WALKS {
                if proposals.len() == budget.n_proposals {
                    return proposals;
                }
                proposals.extend(walk(space, kernel, &mut random));
            }
        }
        proposals
    }
}
