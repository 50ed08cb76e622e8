//! The search over states: a descent by the best moves, from several first moves, and the best
//! neighbours of what it finds: K plans, best first.

use super::choice::Choice;
use super::moves::{self, Move};
use super::plan::{Change, Def, Plan, Pricer, State};
use super::space::{Space, TensorClassId};
use crate::RewriteError;

/// Gains below this part of the whole are not worth a different plan: rounding of sums.
const LEAST_GAIN: f64 = 1e-9;

/// A plan with the state that it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) state: State,
    pub(crate) plan: Plan,
}

/// The `k` best plans found, best first, all different.
///
/// # Errors
///
/// [`RewriteError::NoKernel`] if an operator by itself is not a kernel.
pub(crate) fn best_plans(pricer: &mut Pricer<'_>, k: usize) -> Result<Vec<Found>, RewriteError> {
    let space = pricer.space;
    let start = State::unfused(space, Choice::cheapest(space));
    let Some(plan) = pricer.plan(&start, None) else { return Err(no_kernel(pricer, &start)) };
    let start = Found { state: start, plan };
    let first = ranked(pricer, &start);
    let mut pool = vec![descend(pricer, start.clone())];
    // Another first step may end elsewhere; few do, so few are tried.
    for (_, step) in first.into_iter().skip(1).take(k.saturating_sub(1).min(3)) {
        if let Some(next) = try_move(pricer, &start, &step) {
            pool.push(descend(pricer, next));
        }
    }
    pool.sort_by(|a, b| a.plan.cost_ns.total_cmp(&b.plan.cost_ns));
    if k > 1 {
        let best = pool[0].clone();
        let around: Vec<Found> = (moves::all(space, &best.state, &best.plan).iter())
            .filter_map(|step| try_move(pricer, &best, step))
            .collect();
        pool.extend(around);
    }
    pool.sort_by(|a, b| a.plan.cost_ns.total_cmp(&b.plan.cost_ns));
    let mut distinct: Vec<(Vec<Vec<u32>>, Found)> = Vec::new();
    for found in pool {
        let identity = identity(&found);
        if distinct.len() < k.max(1) && distinct.iter().all(|(known, _)| *known != identity) {
            distinct.push((identity, found));
        }
    }
    Ok(distinct.into_iter().map(|(_, found)| found).collect())
}

/// What makes two plans the same: where each needed tensor comes from.
fn identity(found: &Found) -> Vec<Vec<u32>> {
    let defs = found.plan.defs.iter().enumerate();
    defs.filter_map(|(tensor, def)| {
        let mut key = vec![tensor as u32];
        match def.as_ref()? {
            Def::Given | Def::Known => (),
            Def::View(source) => key.push(*source as u32),
            Def::Join(_, parts) => key.extend(parts.iter().map(|&part| part as u32)),
            Def::Kernel(kernel) => {
                for &comp in &kernel.comps {
                    key.extend([comp as u32, found.state.choice.chosen[comp] as u32]);
                }
                key.extend(kernel.loads.iter().map(|&load| load as u32));
            }
        }
        Some(key)
    })
    .collect()
}

fn no_kernel(pricer: &mut Pricer<'_>, state: &State) -> RewriteError {
    let space = pricer.space;
    for tensor in 0..space.tensors.len() {
        let comp = space.tensors[tensor].comp;
        if space.is_leaf(tensor) {
            continue;
        }
        let kernel = pricer.kernel(state, tensor);
        if kernel.cost_ns.is_none() {
            let op = state.choice.term(space, comp).map_or_else(String::new, |term| term.op.to_string());
            return RewriteError::NoKernel { op, ty: space.comps[comp].ty.to_string() };
        }
    }
    RewriteError::NoKernel { op: String::new(), ty: String::new() }
}

fn try_move(pricer: &mut Pricer<'_>, from: &Found, step: &Move) -> Option<Found> {
    let state = from.state.changed(pricer.space, &step.change, &step.terms)?;
    let plan = pricer.plan(&state, Some((&from.plan, &step.change)))?;
    Some(Found { state, plan })
}

/// The moves that gain, best first.
fn ranked(pricer: &mut Pricer<'_>, from: &Found) -> Vec<(f64, Move)> {
    let mut gains: Vec<(f64, Move)> = (moves::all(pricer.space, &from.state, &from.plan).into_iter())
        .filter_map(|step| {
            let next = try_move(pricer, from, &step)?;
            Some((from.plan.cost_ns - next.plan.cost_ns, step))
        })
        .filter(|(gain, _)| *gain > LEAST_GAIN * from.plan.cost_ns)
        .collect();
    // Stable: equal gains stay in the order of the moves.
    gains.sort_by(|a, b| b.0.total_cmp(&a.0));
    gains
}

/// Applies gaining moves until there are none. In each round every move that still gains is taken, in
/// the order of the gains at its start, unless a move before it touched the same tensors.
fn descend(pricer: &mut Pricer<'_>, mut at: Found) -> Found {
    loop {
        let gains = ranked(pricer, &at);
        if gains.is_empty() {
            return at;
        }
        let mut touched: Vec<TensorClassId> = Vec::new();
        for (_, step) in gains {
            let tensors = around(pricer.space, &at.plan, &step.change);
            if tensors.iter().any(|tensor| touched.contains(tensor)) {
                continue;
            }
            let Some(next) = try_move(pricer, &at, &step) else { continue };
            if next.plan.cost_ns < at.plan.cost_ns * (1.0 - LEAST_GAIN) {
                touched.extend(tensors);
                at = next;
            }
        }
    }
}

/// The tensors whose kernels a change touches.
fn around(space: &Space, plan: &Plan, change: &Change) -> Vec<TensorClassId> {
    let touches = |tensor: TensorClassId, def: &Def| {
        change.removed.contains(&tensor)
            || def.sources().iter().any(|source| change.removed.contains(source))
            || matches!(def, Def::Kernel(kernel) if kernel.comps.iter().any(|comp| {
                change.flipped.contains(comp)
                    || space.comps[*comp].tensor.is_some_and(|tensor| change.added.contains(&tensor))
            }))
    };
    let defs = plan.defs.iter().enumerate();
    defs.filter_map(|(tensor, def)| def.as_ref().filter(|def| touches(tensor, def)).map(|_| tensor)).collect()
}
