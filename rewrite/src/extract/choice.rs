//! Which of several equal terms computes a class: a worklist, cheapest first, sharing counted once.
//!
//! The cost here is arithmetic work only. It orders alternatives; whether a kernel is fast is the
//! question of the search, which may overrule the choice ([`Choice::ranked`]).

use std::collections::{BTreeSet, VecDeque};

use eggine_ir::graph::OpClass;
use eggine_ir::{Op, TensorType};

use super::space::{CompId, Space, Term};

/// For each computation, its usable terms, cheapest first; empty where it is given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// Indices into [`Comp::terms`](super::space::Comp::terms).
    pub(crate) ranked: Vec<Vec<usize>>,
    /// The term in use, an index into [`Comp::terms`](super::space::Comp::terms).
    pub(crate) chosen: Vec<usize>,
}

/// Work of one element in fused multiply-adds: weights of a device that does transcendental
/// functions by polynomials (about ten) and divisions by refinement (about four).
fn work_per_elem(op: Op) -> f64 {
    match op {
        Op::Exp | Op::Log | Op::Erf | Op::Tanh | Op::Sigmoid | Op::Sin | Op::Cos => 10.0,
        Op::Pow => 20.0,
        Op::Div | Op::Mod | Op::Fmod | Op::Sqrt | Op::Rsqrt | Op::Recip => 4.0,
        _ => match op.spec().class {
            OpClass::Move | OpClass::Generate => 0.05,
            _ => 1.0,
        },
    }
}

/// Work of a term, in fused multiply-adds.
pub(crate) fn work(term: &Term, ty: &TensorType, arg_types: &[&TensorType]) -> f64 {
    let elems = ty.n_elems() as f64;
    let read = |i: usize| arg_types.get(i).map_or(1.0, |ty| ty.n_elems() as f64);
    match term.op {
        Op::Matmul => elems * arg_types[0].extents().last().copied().unwrap_or(1) as f64,
        Op::Conv => elems * read(1) / arg_types[1].extents()[0].max(1) as f64,
        Op::ConvTranspose => read(0) * read(1) / arg_types[1].extents()[0].max(1) as f64,
        Op::MaxPool | Op::SumPool => elems * term.attrs.usizes(0).iter().product::<usize>() as f64,
        _ => match term.op.spec().class {
            OpClass::Reduce => read(0),
            _ => elems * work_per_elem(term.op),
        },
    }
}

/// The weight of a term in a choice: its work, and a little for being there at all.
fn weight(space: &Space, comp: CompId, term: &Term) -> f64 {
    let types: Vec<&TensorType> = term.args.iter().map(|&arg| &space.comps[arg].ty).collect();
    work(term, &space.comps[comp].ty, &types) + 1.0
}

/// Classes that a term needs, with itself: a bit set.
type Needs = Vec<u64>;

fn has(set: &[u64], index: usize) -> bool {
    set[index / 64] >> (index % 64) & 1 == 1
}

/// Whether the computation is given and never computed.
pub(crate) fn is_given(space: &Space, comp: CompId) -> bool {
    let class = &space.comps[comp];
    class.literal.is_some()
        || class.tensor.is_some_and(|tensor| space.tensors[tensor].input.is_some())
}

impl Choice {
    /// The choice of least work.
    pub(crate) fn cheapest(space: &Space) -> Self {
        let n = space.comps.len();
        let n_words = n.div_ceil(64);
        let mut best: Vec<Option<(f64, usize, Needs)>> = vec![None; n];
        let mut users: Vec<Vec<CompId>> = vec![Vec::new(); n];
        let mut weights: Vec<Vec<f64>> = Vec::with_capacity(n);
        for (comp, class) in space.comps.iter().enumerate() {
            weights.push(class.terms.iter().map(|term| weight(space, comp, term)).collect());
            for &arg in class.terms.iter().flat_map(|term| &term.args) {
                if users[arg].last() != Some(&comp) {
                    users[arg].push(comp);
                }
            }
        }
        // What a set of classes costs with the choices made so far.
        let total = |set: &Needs, best: &[Option<(f64, usize, Needs)>]| -> f64 {
            let mut sum = 0.0;
            for (at, &word) in set.iter().enumerate() {
                let mut rest = word;
                while rest != 0 {
                    let i = 64 * at + rest.trailing_zeros() as usize;
                    sum += best[i].as_ref().and_then(|b| weights[i].get(b.1)).unwrap_or(&0.0);
                    rest &= rest - 1;
                }
            }
            sum
        };
        let union =
            |comp: CompId, term: &Term, best: &[Option<(f64, usize, Needs)>]| -> Option<Needs> {
                let mut set = vec![0u64; n_words];
                for &arg in &term.args {
                    let (_, _, needs) = best[arg].as_ref()?;
                    set.iter_mut().zip(needs).for_each(|(word, more)| *word |= more);
                }
                (!has(&set, comp)).then_some(set)
            };
        let mut queue: VecDeque<CompId> = (0..n).collect();
        let mut queued = vec![true; n];
        // Every update lowers a cost, so this ends; the bound guards against rounding.
        let mut fuel = 64 * n + 4096;
        while let Some(comp) = queue.pop_front() {
            queued[comp] = false;
            fuel -= 1;
            if fuel == 0 {
                break;
            }
            let candidate = if is_given(space, comp) || space.comps[comp].terms.is_empty() {
                Some((0.0, usize::MAX, vec![0u64; n_words]))
            } else {
                let mut found: Option<(f64, usize, Needs)> = None;
                for (index, term) in space.comps[comp].terms.iter().enumerate() {
                    let Some(mut set) = union(comp, term, &best) else { continue };
                    let cost = total(&set, &best) + weights[comp][index];
                    set[comp / 64] |= 1 << (comp % 64);
                    if found.as_ref().is_none_or(|f| cost < f.0) {
                        found = Some((cost, index, set));
                    }
                }
                found
            };
            let Some(candidate) = candidate else { continue };
            if best[comp].as_ref().is_none_or(|b| candidate.0 < b.0) {
                best[comp] = Some(candidate);
                for &user in &users[comp] {
                    if !queued[user] {
                        queued[user] = true;
                        queue.push_back(user);
                    }
                }
            }
        }
        let chosen: Vec<usize> =
            best.iter().map(|b| b.as_ref().map_or(usize::MAX, |b| b.1)).collect();
        let ranked = (0..n)
            .map(|comp| {
                if is_given(space, comp) {
                    return Vec::new();
                }
                let mut usable: Vec<(f64, usize)> = (space.comps[comp].terms.iter().enumerate())
                    .filter_map(|(index, term)| {
                        let set = union(comp, term, &best)?;
                        Some((total(&set, &best) + weights[comp][index], index))
                    })
                    .collect();
                usable.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                usable.into_iter().map(|(_, index)| index).collect()
            })
            .collect();
        let mut choice = Self { ranked, chosen };
        if choice.order(space).is_none() {
            choice.chosen = tree_choice(space, &weights);
        }
        choice
    }

    /// The term that computes a class, or `None` if the class is given.
    pub(crate) fn term<'a>(&self, space: &'a Space, comp: CompId) -> Option<&'a Term> {
        space.comps[comp].terms.get(self.chosen[comp])
    }

    /// The place of each class in an order in which operands come first; `None` if there is a cycle.
    ///
    /// Operands of terms that are not in use come first, too, where that is possible: then another
    /// term can be taken without another order.
    pub(crate) fn order(&self, space: &Space) -> Option<Vec<usize>> {
        let n = space.comps.len();
        let (mut users, mut waits) = (vec![Vec::new(); n], vec![(0usize, 0usize); n]);
        for (comp, waits) in waits.iter_mut().enumerate() {
            if is_given(space, comp) {
                continue;
            }
            let chosen = self.term(space, comp).map_or(&[][..], |term| &term.args);
            let all =
                self.ranked[comp].iter().flat_map(|&term| &space.comps[comp].terms[term].args);
            let stored = space.loaded(comp).map(|tensor| space.tensors[tensor].comp);
            let mut args: Vec<(CompId, bool)> = (chosen.iter().copied().chain(stored))
                .map(|arg| (arg, true))
                .chain(all.map(|&arg| (arg, false)))
                .collect();
            // An operand that is in use waits once, as such.
            args.sort_unstable_by_key(|&(arg, in_use)| (arg, !in_use));
            args.dedup_by_key(|&mut (arg, _)| arg);
            for (arg, in_use) in args {
                users[arg].push((comp, in_use));
                match in_use {
                    true => waits.0 += 1,
                    false => waits.1 += 1,
                }
            }
        }
        // Classes whose operands in use are all placed: first those that wait for nothing else.
        let mut ready: BTreeSet<(bool, CompId)> = (0..n)
            .filter(|&comp| waits[comp].0 == 0)
            .map(|comp| (waits[comp].1 > 0, comp))
            .collect();
        let mut rank = vec![usize::MAX; n];
        let mut next = 0;
        while let Some((_, comp)) = ready.pop_first() {
            rank[comp] = next;
            next += 1;
            for &(user, in_use) in &users[comp] {
                if rank[user] != usize::MAX {
                    continue;
                }
                let was_ready = waits[user].0 == 0;
                if was_ready {
                    ready.remove(&(waits[user].1 > 0, user));
                }
                match in_use {
                    true => waits[user].0 -= 1,
                    false => waits[user].1 -= 1,
                }
                if waits[user].0 == 0 {
                    ready.insert((waits[user].1 > 0, user));
                }
            }
        }
        (next == n).then_some(rank)
    }
}

/// The choice of least tree cost, which never has a cycle.
fn tree_choice(space: &Space, weights: &[Vec<f64>]) -> Vec<usize> {
    let n = space.comps.len();
    let (mut cost, mut chosen) = (vec![f64::INFINITY; n], vec![usize::MAX; n]);
    loop {
        let mut changed = false;
        for comp in 0..n {
            if is_given(space, comp) || space.comps[comp].terms.is_empty() {
                changed |= cost[comp] != 0.0;
                cost[comp] = 0.0;
                continue;
            }
            for (index, term) in space.comps[comp].terms.iter().enumerate() {
                let below: f64 = term.args.iter().map(|&arg| cost[arg]).sum();
                if below + weights[comp][index] < cost[comp] {
                    (cost[comp], chosen[comp]) = (below + weights[comp][index], index);
                    changed = true;
                }
            }
        }
        if !changed {
            return chosen;
        }
    }
}
