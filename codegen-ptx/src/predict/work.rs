//! What a region computes and loads under a given sharing of loops, counted on its index expressions.

use std::collections::{BTreeMap, BTreeSet};

use eggine_ir::{Graph, NodeKind, Op, Value};

use crate::index::moves::{self, Nesting, Step};
use crate::index::{Atom, Index, Space};
use crate::row;

/// Visited (value, index) pairs beyond which code is taken to be unbounded.
pub(crate) const MAX_VISITS: usize = 800;

/// What is done for all elements of a region, under a given sharing of loops.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Scalar operations executed.
    pub n_ops: f64,
    /// Elements loaded where neighbours in the warp load neighbours.
    pub n_loads: f64,
    /// Elements loaded from elsewhere.
    pub n_scattered: f64,
    /// Operations written out (loops of up to 16 iterations are unrolled).
    pub n_static: f64,
}

/// Operations that a map needs, roughly in instructions.
pub(crate) fn ops_of(op: Op) -> f64 {
    match op {
        Op::Exp => 8.0,
        Op::Sigmoid => 12.0,
        Op::Log => 20.0,
        Op::Erf => 32.0,
        Op::Tanh => 26.0,
        Op::Sin | Op::Cos => 24.0,
        Op::Pow => 50.0,
        Op::Div | Op::Recip | Op::Sqrt | Op::Mod | Op::Fmod => 8.0,
        Op::Rsqrt => 16.0,
        Op::Reshape | Op::Transpose | Op::Expand | Op::Slice => 0.0,
        Op::Concat | Op::Pad | Op::Gather => 4.0,
        _ => 1.0,
    }
}

/// Walks from outputs at given indices. `trips` says how often something in these loops is computed.
fn work(
    space: &mut Space,
    graph: &Graph,
    outputs: &[Vec<Index>],
    trips: &dyn Fn(&Space, &BTreeSet<Atom>) -> f64,
    fastest: &dyn Fn(&mut Space, &Index) -> Option<i64>,
    kept: bool,
) -> Option<Work> {
    let mut work = Work::default();
    let mut seen = BTreeSet::new();
    let mut nesting = Nesting::default();
    // What a value costs wherever it is used; a kept one is computed once, for its widest use.
    let mut costs: BTreeMap<Value, Work> = BTreeMap::new();
    for (&output, index) in graph.outputs.iter().zip(outputs) {
        moves::walk(space, graph, output, index, &mut |space, value, index| {
            if seen.len() > MAX_VISITS || !seen.insert((value, index.to_vec())) {
                return Step::Over;
            }
            let n = trips(space, &nesting.visit(space, index));
            let mut copies = 1.0;
            for leaf in index.iter().flat_map(|i| space.leaves(i)).collect::<BTreeSet<_>>() {
                if let Some(n) = space.loop_extent(leaf) {
                    copies *= if n <= 16 { n as f64 } else { 8.0 };
                }
            }
            let mut here = Work::default();
            let own = match &graph.nodes[value].kind {
                NodeKind::Input { .. } => {
                    let address = space.linear(index, &moves::extents(graph, value));
                    match fastest(space, &address) {
                        Some(-1..=1) => here.n_loads = n,
                        _ => here.n_scattered = n,
                    }
                    1.0
                }
                NodeKind::Const(_) => 0.0,
                NodeKind::Apply(op, attrs, args) => {
                    let summed: usize = moves::summed(graph, *op, attrs, args).iter().product();
                    if summed > 1 { 2.0 * summed as f64 } else { ops_of(*op) }
                }
            };
            here.n_ops = n * own;
            let known = costs.entry(value).or_default();
            let join = |a: f64, b: f64| if kept { a.max(b) } else { a + b };
            known.n_ops = join(known.n_ops, here.n_ops);
            known.n_loads = join(known.n_loads, here.n_loads);
            known.n_scattered = join(known.n_scattered, here.n_scattered);
            work.n_static += copies * f64::min(own, 32.0);
            Step::Into
        });
    }
    for cost in costs.values() {
        work.n_ops += cost.n_ops;
        work.n_loads += cost.n_loads;
        work.n_scattered += cost.n_scattered;
    }
    (seen.len() <= MAX_VISITS).then_some(work)
}

/// The work of the pointwise family; `None` if its code would be unbounded.
pub fn thread_work(graph: &Graph) -> Option<Work> {
    let mut space = Space::default();
    let n = graph.outputs.iter().map(|&output| graph.ty(output).n_elems()).max()?.max(1);
    let mut positions = Vec::new();
    let mut outputs = Vec::new();
    for &output in &graph.outputs {
        let ty = graph.ty(output);
        let (leaf, position) = space.fresh(None, 0, ty.n_elems().max(1) as i64 - 1, 0);
        positions.push(leaf);
        outputs.push(space.delinear(&position, &ty.extents()));
    }
    let trips = |space: &Space, leaves: &BTreeSet<Atom>| {
        leaves
            .iter()
            .filter_map(|&leaf| space.loop_extent(leaf))
            .fold(n as f64, |trips, n| trips * n as f64)
    };
    // Distance between the loads of neighbouring elements: of the first two positions, in the affine part.
    let fastest = |space: &mut Space, address: &Index| {
        positions
            .iter()
            .find_map(|&leaf| {
                if !space.depends_on(address, leaf) {
                    return None;
                }
                let at = |space: &mut Space, x: i64| {
                    space.substitute(address, leaf, &Index::constant(x))
                };
                let (first, second) = (at(space, 0), at(space, 1));
                Some(if first.terms == second.terms { second.base - first.base } else { 2 })
            })
            .or(Some(0))
    };
    work(&mut space, graph, &outputs, &trips, &fastest, false)
}

/// The work of the row family.
pub(super) fn row_work(graph: &Graph, plan: &row::Plan, kept: bool) -> Option<Work> {
    let mut space = plan.space.clone();
    let outputs: Vec<Vec<Index>> =
        plan.outputs.iter().map(|columns| columns.index.clone()).collect();
    let extents = |space: &Space, leaf| space.range_of(leaf).1 as f64 + 1.0;
    let n_rows: f64 = plan.row_extents.iter().map(|&n| n as f64).product();
    let trips = |space: &Space, leaves: &BTreeSet<Atom>| {
        let others = leaves.iter().filter(|leaf| !plan.row_leaves.contains(leaf));
        n_rows * others.map(|&leaf| extents(space, leaf)).product::<f64>()
    };
    // The innermost leaf of the address that is not a row's: columns or a reduction.
    let fastest = |space: &mut Space, address: &Index| {
        let mut leaves =
            space.leaves(address).into_iter().filter(|leaf| !plan.row_leaves.contains(leaf));
        let last = leaves.rfind(|&leaf| space.range_of(leaf).1 > 0);
        last.map_or(Some(0), |leaf| space.coefficient(address, leaf))
    };
    work(&mut space, graph, &outputs, &trips, &fastest, kept)
}

/// Bytes of a region's inputs and outputs, each once.
pub(super) fn bytes_of(graph: &Graph) -> f64 {
    let inputs: usize = graph.inputs().map(|value| graph.ty(value).n_bytes()).sum();
    let outputs: usize = graph.outputs.iter().map(|&value| graph.ty(value).n_bytes()).sum();
    (inputs + outputs) as f64
}
