//! Moves of the search: tensors that stop or start to exist, one at a time and in the groups that
//! belong together.
//!
//! A softmax or a normalisation is several kernels of which no single removal may pay, or of which a
//! greedy one spoils the rest (a division that slips into the next matmul leaves the sum behind). So
//! for every kernel whole cones are tried: all tensors that nobody but the kernel needs, up to the
//! nearest contraction, through it, or with its operands' movement.

use std::collections::BTreeSet;

use eggine_ir::Op;
use eggine_ir::graph::OpClass;

use super::plan::{Change, Def, Plan, State};
use super::space::{Space, TensorClassId};

/// More tensors than this are never one kernel; a cone ends there.
const MAX_CONE: usize = 96;

/// What a cone may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Elementwise and movement kernels.
    Pointwise,
    /// These, and reductions.
    Rows,
    /// These, and contractions and windows, but nothing behind a contraction.
    Contractions,
    /// These, and what only moves elements into a contraction.
    Operands,
}

/// Whether the tensor could stop to exist.
pub(crate) fn removable(space: &Space, plan: &Plan, tensor: TensorClassId) -> bool {
    let has_def = matches!(plan.defs[tensor], Some(Def::Kernel(_) | Def::View(_) | Def::Join(..)));
    has_def && !space.tensors[tensor].is_output && !space.tensors[tensor].is_pinned
}

/// All tensors that nobody but `apex` needs, as far as `reach` goes.
fn cone(
    space: &Space,
    state: &State,
    plan: &Plan,
    apex: TensorClassId,
    reach: Reach,
) -> Vec<TensorClassId> {
    let mut inside: Vec<TensorClassId> = vec![apex];
    // Candidates with the fact whether a contraction lies between them and the apex.
    let mut behind: BTreeSet<TensorClassId> = BTreeSet::new();
    let heavy = |tensor: TensorClassId| matches!(&plan.defs[tensor], Some(Def::Kernel(kernel)) if kernel.heavy);
    if heavy(apex) {
        behind.insert(apex);
    }
    let mut open: Vec<TensorClassId> =
        plan.defs[apex].iter().flat_map(|def| def.sources()).copied().collect();
    // Users before what they use, so that each tensor is decided once.
    while let Some(at) = (0..open.len()).max_by_key(|&i| state.rank[space.tensors[open[i]].comp]) {
        let tensor = open.swap_remove(at);
        open.retain(|&other| other != tensor);
        if inside.contains(&tensor) || !removable(space, plan, tensor) || inside.len() > MAX_CONE {
            continue;
        }
        if !plan.users[tensor].iter().all(|user| inside.contains(user)) {
            continue;
        }
        let is_behind = plan.users[tensor].iter().any(|user| behind.contains(user));
        let allowed = match &plan.defs[tensor] {
            Some(Def::View(_)) => !is_behind || reach == Reach::Operands,
            Some(Def::Join(..)) => false,
            Some(Def::Kernel(kernel)) if is_behind => reach == Reach::Operands && kernel.moves,
            Some(Def::Kernel(kernel)) if kernel.heavy => {
                matches!(reach, Reach::Contractions | Reach::Operands)
            }
            Some(Def::Kernel(kernel)) if kernel.reduces => reach != Reach::Pointwise,
            Some(Def::Kernel(_)) => true,
            _ => false,
        };
        if allowed {
            if is_behind || heavy(tensor) {
                behind.insert(tensor);
            }
            inside.push(tensor);
            open.extend(plan.defs[tensor].iter().flat_map(|def| def.sources()));
        }
    }
    inside.remove(0);
    inside.sort_unstable();
    inside
}

/// Moves that compute siblings as slices of one whole, all at once: one sibling alone never gains.
///
/// Behind the whole's elementwise end its product stops to exist as a tensor, so that they are one
/// kernel. The slices stay tensors, or are computed where they are used, or so are also the tensors
/// that only move their elements.
fn together(space: &Space, state: &State, plan: &Plan) -> Vec<Change> {
    let mut moves = Vec::new();
    for (whole, slices) in &space.wholes {
        let in_use = |comp: usize| !plan.computing[comp].is_empty();
        let mut flipped: Vec<(usize, usize)> = (slices.iter().copied())
            .filter(|&(comp, term)| in_use(comp) && state.choice.chosen[comp] != term)
            .collect();
        if flipped.len() < 2 {
            continue;
        }
        let parts: Vec<usize> = flipped.iter().map(|&(comp, _)| comp).collect();
        let Some(inner) = inside(space, state, *whole, &mut flipped) else { continue };
        let vanish = |comps: &mut dyn Iterator<Item = usize>| -> Vec<TensorClassId> {
            comps
                .filter_map(|comp| space.comps[comp].tensor)
                .filter(|&tensor| !space.tensors[tensor].is_output && state.material[tensor])
                .collect()
        };
        let mut removed = vanish(&mut inner.into_iter());
        let mut push = |removed: &[TensorClassId]| {
            let mut removed = removed.to_vec();
            removed.sort_unstable();
            removed.dedup();
            moves.push(Change { removed, flipped: flipped.clone(), ..Change::default() });
        };
        push(&removed);
        removed.extend(vanish(&mut parts.iter().copied()));
        push(&removed);
        // Upwards as long as elements are only moved.
        let mut moved: BTreeSet<usize> = parts.into_iter().collect();
        let mut movers: Vec<usize> = Vec::new();
        let mut by_rank: Vec<usize> = (0..space.comps.len()).collect();
        by_rank.sort_unstable_by_key(|&comp| state.rank[comp]);
        for comp in by_rank {
            let Some(term) = state.choice.term(space, comp) else { continue };
            if term.op.spec().class == OpClass::Move
                && term.args.iter().all(|arg| moved.contains(arg))
                && moved.insert(comp)
            {
                movers.push(comp);
            }
        }
        let movers = vanish(&mut movers.into_iter());
        if !movers.is_empty() {
            removed.extend(movers);
            push(&removed);
        }
    }
    moves
}

/// The classes between a whole and the contraction that it comes from, that one included; terms that
/// only put the parts side by side are replaced. `None` if there is no contraction in reach.
fn inside(
    space: &Space,
    state: &State,
    whole: usize,
    flipped: &mut Vec<(usize, usize)>,
) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    let mut at = whole;
    // Wholes are the elementwise ends of products: a scale, a bias, an activation.
    for _ in 0..6 {
        let class = &space.comps[at];
        let usable = |&&term: &&usize| class.terms[term].op != Op::Concat;
        let term = match state.choice.term(space, at) {
            Some(term) if term.op != Op::Concat => term,
            _ => {
                let &index = state.choice.ranked[at].iter().find(usable)?;
                flipped.push((at, index));
                &class.terms[index]
            }
        };
        if term.op.spec().class == OpClass::Contract {
            return Some(found);
        }
        let mut unknown = term.args.iter().filter(|&&arg| !space.comps[arg].known);
        let (next, None) = (*unknown.next()?, unknown.next()) else { return None };
        found.push(next);
        at = next;
    }
    None
}

/// Every move from a state, without duplicates, in a fixed order.
pub(crate) fn all(space: &Space, state: &State, plan: &Plan) -> Vec<Change> {
    let mut groups: Vec<Vec<TensorClassId>> = Vec::new();
    for (apex, def) in plan.defs.iter().enumerate() {
        let Some(def) = def else { continue };
        if removable(space, plan, apex) {
            groups.push(vec![apex]);
        }
        if matches!(def, Def::Kernel(_) | Def::View(_)) {
            for reach in [Reach::Pointwise, Reach::Rows, Reach::Contractions, Reach::Operands] {
                let group = cone(space, state, plan, apex, reach);
                // With the apex too: what the next kernel then absorbs is the whole chain.
                if removable(space, plan, apex) && !group.is_empty() {
                    let mut whole = group.clone();
                    whole.push(apex);
                    whole.sort_unstable();
                    groups.push(whole);
                }
                groups.push(group);
            }
        }
        if let Def::Kernel(kernel) = def {
            // A multi-use operand of movement kind and everything around it: each load by itself is a
            // single removal above; here all cheap loads at once.
            let mut cheap: Vec<TensorClassId> = (kernel.loads.iter().copied())
                .filter(|&load| removable(space, plan, load))
                .filter(|&load| matches!(&plan.defs[load], Some(Def::Kernel(k)) if !k.heavy && !k.reduces))
                .collect();
            cheap.sort_unstable();
            groups.push(cheap);
        }
    }
    groups.sort();
    groups.dedup();
    let together = together(space, state, plan);
    let mut moves: Vec<Change> = (groups.into_iter())
        .filter(|group| !group.is_empty())
        .map(|removed| Change { removed, ..Change::default() })
        .collect();
    moves.extend(together);
    let mut interior: Vec<usize> = Vec::new();
    for def in plan.defs.iter().flatten() {
        let Def::Kernel(kernel) = def else { continue };
        interior.extend(&kernel.comps);
    }
    interior.sort_unstable();
    interior.dedup();
    for comp in interior {
        let class = &space.comps[comp];
        if let Some(tensor) = class.tensor
            && !state.material[tensor]
        {
            moves.push(Change { added: vec![tensor], ..Change::default() });
        }
        for &term in &state.choice.ranked[comp] {
            if term != state.choice.chosen[comp] {
                moves.push(Change { flipped: vec![(comp, term)], ..Change::default() });
            }
        }
    }
    moves
}
