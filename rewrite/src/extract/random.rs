//! Random covers: any choice of terms and any set of tensors must mean the same. Tests draw from here.

use super::choice::Choice;
use super::plan::{Pricer, State};
use super::search::Found;

/// A linear congruential generator (Knuth's MMIX): good enough to vary tests and tie-breaks.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// A plan that materialises each tensor with even chance, whatever kernels exist.
pub(crate) fn any_plan(pricer: &mut Pricer<'_>, rng: &mut Rng) -> Found {
    let space = pricer.space;
    let mut choice = Choice::cheapest(space);
    for comp in 0..space.comps.len() {
        if choice.ranked[comp].len() > 1 {
            let kept = choice.chosen[comp];
            choice.chosen[comp] = choice.ranked[comp][rng.below(choice.ranked[comp].len())];
            if choice.order(space).is_none() {
                choice.chosen[comp] = kept;
            }
        }
    }
    let mut state = State::unfused(space, choice);
    state.material.iter_mut().for_each(|exists| *exists = rng.below(2) == 0);
    pricer.ignore_legality = true;
    let plan = pricer.plan(&state).expect("nothing is illegal");
    Found { state, plan }
}
