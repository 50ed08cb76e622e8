//! Greedy fusion, the baseline: producers go into their consumers one after the other, in topological
//! order, wherever the kernel exists and the modelled time falls. Nothing is taken back, and no term is
//! replaced by an equal one.

use super::choice::Choice;
use super::moves::removable;
use super::plan::{Change, Pricer, State};
use super::search::{Found, no_kernel};
use crate::RewriteError;

/// The plan of greedy fusion.
///
/// # Errors
///
/// [`RewriteError::NoKernel`] if an operator by itself is not a kernel.
pub(crate) fn greedy_plan(pricer: &mut Pricer<'_>) -> Result<Found, RewriteError> {
    let space = pricer.space;
    let mut state = State::unfused(space, Choice::cheapest(space));
    let Some(mut plan) = pricer.plan(&state) else { return Err(no_kernel(pricer, &state)) };
    let mut order: Vec<usize> = (0..space.tensors.len()).collect();
    order.sort_unstable_by_key(|&tensor| state.rank[space.tensors[tensor].comp]);
    for tensor in order {
        if !removable(space, &plan, tensor) {
            continue;
        }
        let step = Change { removed: vec![tensor], ..Change::default() };
        let inverse = state.inverse(&step);
        state.apply(&step);
        let delta = pricer.delta(&state, &plan, &step);
        match delta.cost_ns.is_some_and(|cost_ns| cost_ns < plan.cost_ns) {
            true => plan.apply(&delta),
            false => state.apply(&inverse),
        }
    }
    plan.sum();
    Ok(Found { state, plan })
}
