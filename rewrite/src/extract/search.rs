//! The search over states: a descent by the best moves, from several first moves, and the best
//! neighbours of what it finds: K plans, best first.

use std::collections::{BTreeMap, BTreeSet};

use super::choice::Choice;
use super::moves;
use super::plan::{Change, Def, Delta, Plan, Pricer, State};
use super::space::TensorClassId;
use crate::RewriteError;

/// Segments with more tensors are descended once.
const MAX_RETRIED: usize = 600;

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
    let Some(plan) = pricer.plan(&start) else { return Err(no_kernel(pricer, &start)) };
    let start = Found { state: start, plan };
    let mut descent = Descent::new(start.clone());
    let first = descent.ranked(pricer, true);
    let mut pool = Vec::new();
    if space.tensors.len() <= MAX_RETRIED {
        for pace in [Pace::Cautious, Pace::Hasty] {
            pool.push(Descent::new(start.clone()).run(pricer, pace));
        }
    }
    pool.push(descent.run(pricer, Pace::Steady));
    // Another first step may end elsewhere; few do, so few are tried.
    for (_, step) in first.into_iter().skip(1).take(k.saturating_sub(1).min(3)) {
        let mut next = Descent::new(start.clone());
        if next.step(pricer, &step) {
            pool.push(next.run(pricer, Pace::Steady));
        }
    }
    pool.sort_by(|a, b| a.plan.cost_ns.total_cmp(&b.plan.cost_ns));
    if k > 1 {
        let mut best = Descent::new(pool[0].clone());
        for (_, step) in best.neighbours(pricer, true).into_iter().take(4 * k) {
            let mut next = Descent::new(best.at.clone());
            if next.step(pricer, &step) {
                pool.push(next.at);
            }
        }
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

pub(crate) fn no_kernel(pricer: &mut Pricer<'_>, state: &State) -> RewriteError {
    let space = pricer.space;
    for tensor in 0..space.tensors.len() {
        let comp = space.tensors[tensor].comp;
        if space.is_leaf(tensor) {
            continue;
        }
        let kernel = pricer.kernel(state, tensor);
        if kernel.cost_ns.is_none() {
            let op =
                state.choice.term(space, comp).map_or_else(String::new, |term| term.op.to_string());
            return RewriteError::NoKernel { op, ty: space.comps[comp].ty.to_string() };
        }
    }
    RewriteError::NoKernel { op: String::new(), ty: String::new() }
}

/// Which moves of a round wait for the next one, where better moves may have come up by then. No pace
/// is always best, so all are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Those whose difference of cost depends on anything that changed.
    Cautious,
    /// Those that touch a kernel that changed.
    Steady,
    /// None.
    Hasty,
}

/// A walk downhill. Differences of cost are remembered until something that they depend on changes.
struct Descent {
    at: Found,
    /// The difference of cost that a move makes, `None` if it is illegal; since when; and on what it
    /// depends.
    known: BTreeMap<Change, (Option<f64>, u32, Vec<TensorClassId>)>,
    /// When each tensor's origin or use, and each computation's place, changed last.
    tensor_changed: Vec<u32>,
    comp_changed: Vec<u32>,
    now: u32,
}

impl Descent {
    fn new(at: Found) -> Self {
        let (n_tensors, n_comps) = (at.plan.defs.len(), at.plan.computing.len());
        Self {
            at,
            known: BTreeMap::new(),
            tensor_changed: vec![0; n_tensors],
            comp_changed: vec![0; n_comps],
            now: 0,
        }
    }

    /// What a move that keeps the order of classes would do.
    fn price(&mut self, pricer: &mut Pricer<'_>, step: &Change) -> Delta {
        let Found { state, plan } = &mut self.at;
        let inverse = state.inverse(step);
        state.apply(step);
        let delta = pricer.delta(state, plan, step);
        state.apply(&inverse);
        delta
    }

    /// Where a move leads that needs another order of classes: other tensors may become views of each
    /// other, so all is planned anew.
    fn replanned(&self, pricer: &mut Pricer<'_>, step: &Change) -> Option<Found> {
        let state = self.at.state.reordered(pricer.space, step)?;
        let plan = pricer.plan(&state)?;
        let more = |comp: usize| {
            plan.computing[comp].len() > 1
                && self.at.plan.computing[comp].len() <= 1
                && pricer.is_work(&state, comp)
        };
        if !pricer.extraction.recompute && (0..plan.computing.len()).any(more) {
            return None;
        }
        Some(Found { state, plan })
    }

    /// Makes a move, if it is legal.
    fn step(&mut self, pricer: &mut Pricer<'_>, step: &Change) -> bool {
        if !self.at.state.keeps_order(pricer.space, step) {
            let Some(next) = self.replanned(pricer, step) else { return false };
            self.now += 1;
            self.tensor_changed.fill(self.now);
            self.comp_changed.fill(self.now);
            self.at = next;
            return true;
        }
        let delta = self.price(pricer, step);
        if delta.cost_ns.is_none() {
            return false;
        }
        self.now += 1;
        for (&tensor, def) in &delta.defs {
            self.tensor_changed[tensor] = self.now;
            let old = self.at.plan.defs[tensor].iter();
            for def in old.chain(def) {
                def.sources().iter().for_each(|&source| self.tensor_changed[source] = self.now);
                if let Def::Kernel(kernel) = def {
                    kernel.comps.iter().for_each(|&comp| self.comp_changed[comp] = self.now);
                }
            }
        }
        self.at.plan.apply(&delta);
        self.at.state.apply(step);
        true
    }

    /// The difference of cost that a move makes; negative is better.
    fn difference(&mut self, pricer: &mut Pricer<'_>, step: &Change) -> Option<f64> {
        let space = pricer.space;
        let comps = (step.added.iter().map(|&tensor| space.tensors[tensor].comp))
            .chain(step.flipped.iter().map(|&(comp, _)| comp));
        let changed = comps.map(|comp| self.comp_changed[comp]).max().unwrap_or(0);
        if let Some((difference, since, touched)) = self.known.get(step)
            && changed <= *since
            && touched.iter().all(|&tensor| self.tensor_changed[tensor] <= *since)
        {
            return *difference;
        }
        let cost_ns = self.at.plan.cost_ns;
        if !self.at.state.keeps_order(space, step) {
            return Some(self.replanned(pricer, step)?.plan.cost_ns - cost_ns);
        }
        let delta = self.price(pricer, step);
        let difference = delta.cost_ns.map(|cost| cost - cost_ns);
        self.known.insert(step.clone(), (difference, self.now, delta.touched));
        difference
    }

    /// All legal moves, best first; equal ones in the order of the moves. Moves that need another order
    /// of classes are priced by planning the whole segment anew: only if this is to be `thorough`.
    fn neighbours(&mut self, pricer: &mut Pricer<'_>, thorough: bool) -> Vec<(f64, Change)> {
        let moves = moves::all(pricer.space, &self.at.state, &self.at.plan);
        let mut legal: Vec<(f64, Change)> = (moves.into_iter())
            .filter(|step| thorough || self.at.state.keeps_order(pricer.space, step))
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(|step| Some((self.difference(pricer, &step)?, step)))
            .collect();
        legal.sort_by(|a, b| a.0.total_cmp(&b.0));
        legal
    }

    /// The moves that gain, best first.
    fn ranked(&mut self, pricer: &mut Pricer<'_>, thorough: bool) -> Vec<(f64, Change)> {
        let least = -LEAST_GAIN * self.at.plan.cost_ns;
        let mut moves = self.neighbours(pricer, thorough);
        moves.retain(|(difference, _)| *difference < least);
        moves
    }

    /// Makes gaining moves until there are none. In each round every move that still gains is made, in
    /// the order of the gains at its start, as far as the pace allows. The first round is thorough, and
    /// every one after which there was nothing to gain without.
    fn run(mut self, pricer: &mut Pricer<'_>, pace: Pace) -> Found {
        let mut thorough = true;
        loop {
            let start = self.now;
            let mut moved: BTreeSet<TensorClassId> = BTreeSet::new();
            for (_, step) in self.ranked(pricer, thorough) {
                let mut around = self.at.plan.around(pricer.space, &step);
                around.extend(&step.removed);
                let changed = |tensor: &TensorClassId| self.tensor_changed[*tensor] > start;
                let waits = match pace {
                    Pace::Hasty => false,
                    Pace::Steady => around.iter().any(|tensor| moved.contains(tensor)),
                    Pace::Cautious => {
                        let known = self.known.get(&step);
                        known.is_none_or(|(_, _, touched)| touched.iter().any(changed))
                    }
                };
                if waits && self.now > start {
                    continue;
                }
                let least = -LEAST_GAIN * self.at.plan.cost_ns;
                let gains =
                    self.difference(pricer, &step).is_some_and(|difference| difference < least);
                if gains && self.step(pricer, &step) {
                    moved.extend(around);
                }
            }
            if self.now == start && thorough {
                self.at.plan.sum();
                return self.at;
            }
            thorough = self.now == start;
        }
    }
}
