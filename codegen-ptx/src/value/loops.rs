//! Reductions, pools and contractions inside one thread: loops, the innermost unrolled.

use eggine_ir::graph::Attrs;
use eggine_ir::{Op, Value};

use super::{Gen, Lanes};
use crate::index::moves::{self, Step};
use crate::index::{Atom, Index};
use crate::kir::{BinaryOp, CompareOp, Scalar, Val};
use crate::math;

/// Innermost iterations that are written out. More do not fit the instruction cache of a loop that
/// contains another sixteen of them, and fewer expose the latency of the loads.
const MAX_UNROLLED: usize = 16;

/// What is done at an index of a loop nest: the next state from the present one.
pub(crate) type NestStep<'s, 'g> = dyn FnMut(&mut Gen<'g>, &[Index], Vec<Lanes>) -> Vec<Lanes> + 's;

impl<'g> Gen<'g> {
    /// Loops over `extents`, passing a state through; `step` gets the index and gives the next state.
    pub(crate) fn nest(
        &mut self,
        extents: &[usize],
        at: &mut Vec<Index>,
        state: Vec<Lanes>,
        step: &mut NestStep<'_, 'g>,
    ) -> Vec<Lanes> {
        let Some((&first, rest)) = extents.split_first() else { return step(self, at, state) };
        let n_rest: usize = rest.iter().product();
        if first * n_rest == 0 {
            return state;
        }
        if first == 1 || first * n_rest <= MAX_UNROLLED {
            let mut state = state;
            for i in 0..first {
                at.push(Index::constant(i as i64));
                state = self.nest(rest, at, state, step);
                at.pop();
            }
            return state;
        }
        let fits = |u: &usize| first % u == 0 && u * n_rest <= MAX_UNROLLED && first > *u;
        let unroll = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        let vars: Vec<Vec<_>> =
            state.iter().map(|lanes| lanes.iter().map(|&val| self.b.var(val)).collect()).collect();
        self.for_loop(first / unroll, |g, counter| {
            let mut state: Vec<Lanes> =
                vars.iter().map(|vars| vars.iter().map(|&var| g.b.get(var)).collect()).collect();
            let scaled = g.space.scale(counter, unroll as i64);
            for i in 0..unroll {
                let index = g.space.add_constant(&scaled, i as i64);
                at.push(index);
                state = g.nest(rest, at, state, step);
                at.pop();
            }
            for (vars, lanes) in vars.iter().zip(&state) {
                for (i, &var) in vars.iter().enumerate() {
                    g.b.set(var, lanes[i.min(lanes.len() - 1)]);
                }
            }
        });
        vars.iter().map(|vars| vars.iter().map(|&var| self.b.get(var)).collect()).collect()
    }

    /// Computes the loops inside `value` that do not depend on its own, before them.
    pub(crate) fn hoist(&mut self, value: Value, index: &[Index]) {
        let graph = self.graph;
        let mut space = std::mem::take(&mut self.space);
        let lane = self.lane().map(|(atom, _)| atom);
        let mut found: Vec<(Value, Vec<Index>)> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let seeds = &self.seeds;
        moves::walk(&mut space, graph, value, index, &mut |space, at, index| {
            if at != value && (seeds.contains_key(&at) || !seen.insert((at, index.to_vec()))) {
                return Step::Over;
            }
            let is_loop = |v: Value| match &graph.nodes[v].kind {
                eggine_ir::NodeKind::Apply(op, ..) => {
                    use eggine_ir::graph::OpClass::{Contract, Reduce, Window};
                    matches!(op.spec().class, Reduce | Window | Contract)
                }
                _ => false,
            };
            if at == value || !is_loop(at) {
                return Step::Into;
            }
            let known = |leaf: &Atom| Some(*leaf) == lane || space.val(*leaf).is_some();
            let invariant = index.iter().all(|i| space.leaves(i).iter().all(known));
            let extents = moves::extents(graph, at);
            let in_range = index.iter().zip(&extents).all(|(i, &n)| {
                let (lo, hi) = space.interval(i);
                lo >= 0 && hi < n as i64
            });
            if invariant && in_range {
                found.push((at, index.to_vec()));
                return Step::Over;
            }
            Step::Into
        });
        self.space = space;
        for (value, index) in found {
            self.value(value, &index);
        }
    }

    /// Whether an element at these indices differs between lanes; if not, it has one scalar.
    fn varies(&self, index: &[Index]) -> bool {
        let depends = |(atom, _)| index.iter().any(|i| self.space.depends_on(i, atom));
        self.mask().len() > 1 || self.lane().is_some_and(depends)
    }

    pub(super) fn fold(
        &mut self,
        op: Op,
        attrs: &Attrs,
        value: Value,
        args: &[Value],
        index: &[Index],
    ) -> Lanes {
        self.hoist(value, index);
        let extents = moves::summed(self.graph, op, attrs, args);
        let n_lanes = if self.varies(index) { self.n_lanes() } else { 1 };
        let dtype = self.graph.ty(args[0]).dtype;
        let mut at = Vec::new();
        if matches!(op, Op::ArgMax | Op::ArgMin) {
            let axes = moves::reduced_axes(op, attrs);
            let first = self.value(args[0], &moves::reduce(index, &axes, &[Index::constant(0)]));
            let first: Lanes = (0..n_lanes).map(|lane| first[lane.min(first.len() - 1)]).collect();
            let zero = self.b.i32(0);
            let state = vec![first, vec![zero; n_lanes]];
            let last = attrs.int(1) == 1;
            let state = self.nest(&extents, &mut at, state, &mut |g, at, state| {
                let x = g.value(args[0], &moves::reduce(index, &axes, at));
                let position = g.index_val(&at[0]);
                let (best, best_at) = (state[0].clone(), state[1].clone());
                let better = g.map_lanes(&[x.clone(), best.clone()], |b, v| {
                    is_better(b, op, last, v[0], v[1])
                });
                vec![
                    g.select_lanes(&better, &x, &best),
                    g.select_lanes(&better, &vec![position], &best_at),
                ]
            });
            return state[1].iter().map(|&val| self.b.convert(val, Scalar::I64)).collect();
        }
        let init = identity(&mut self.b, op, dtype);
        let state = vec![vec![init; n_lanes]];
        let mut state = self.nest(&extents, &mut at, state, &mut |g, at, state| {
            let acc = &state[0];
            vec![match op {
                Op::MaxPool | Op::SumPool => {
                    let from = moves::extents(g.graph, args[0]);
                    let (index, inside) = moves::window(&mut g.space, index, at, attrs, &from);
                    let fill = if op == Op::MaxPool { f64::NEG_INFINITY } else { 0.0 };
                    let x = g.value_or(args[0], &index, &inside, fill);
                    g.map_lanes(&[acc.clone(), x], |b, v| combine(b, op, v[0], v[1]))
                }
                Op::Matmul | Op::Conv | Op::ConvTranspose => {
                    let (a, w) = g.product(op, attrs, args, index, at);
                    g.map_lanes(&[a, w, acc.clone()], |b, v| b.fma(v[0], v[1], v[2]))
                }
                _ => {
                    let x = g
                        .value(args[0], &moves::reduce(index, &moves::reduced_axes(op, attrs), at));
                    g.map_lanes(&[acc.clone(), x], |b, v| combine(b, op, v[0], v[1]))
                }
            }]
        });
        // A sum of narrow integers is as wide as they are.
        let sums = state.remove(0);
        let out = self.graph.ty(value).dtype;
        sums.into_iter().map(|sum| math::wrap(&mut self.b, sum, out)).collect()
    }

    /// Both factors of one product of a contraction; the first is zero where the product does not exist.
    pub(crate) fn product(
        &mut self,
        op: Op,
        attrs: &Attrs,
        args: &[Value],
        index: &[Index],
        k: &[Index],
    ) -> (Lanes, Lanes) {
        let graph = self.graph;
        let ([a, w], inside) = moves::contract(&mut self.space, graph, (op, attrs, args), index, k);
        let a = self.value_or(args[0], &a, &inside, 0.0);
        let w = self.value(args[1], &w);
        (a, w)
    }
}

/// Whether `x` replaces the best so far, which came earlier.
pub(crate) fn is_better(b: &mut crate::kir::Builder, op: Op, last: bool, x: Val, best: Val) -> Val {
    let (lesser, greater) = if op == Op::ArgMax { (best, x) } else { (x, best) };
    b.compare(if last { CompareOp::Le } else { CompareOp::Lt }, lesser, greater)
}

/// What a fold starts from.
pub(crate) fn identity(b: &mut crate::kir::Builder, op: Op, dtype: eggine_ir::DType) -> Val {
    math::number(
        b,
        dtype,
        match op {
            Op::ReduceProd => 1.0,
            Op::ReduceMax | Op::MaxPool => f64::NEG_INFINITY,
            Op::ReduceMin => f64::INFINITY,
            _ => 0.0,
        },
    )
}

/// One step of a fold.
pub(crate) fn combine(b: &mut crate::kir::Builder, op: Op, x: Val, y: Val) -> Val {
    let op = match op {
        Op::ReduceProd => BinaryOp::Mul,
        Op::ReduceMax | Op::MaxPool => BinaryOp::Max,
        Op::ReduceMin => BinaryOp::Min,
        _ => BinaryOp::Add,
    };
    b.binary(op, x, y)
}
