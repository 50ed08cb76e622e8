//! The static model: what a kernel computes and moves, and how long a chip needs for it.
//!
//! A roofline with a term for everything that the families do besides: operations around the products,
//! loads by their width, steps of the pipeline, launches. It ranks schedules and families; it is not a
//! clock.

use std::collections::{BTreeMap, BTreeSet};

use eggine_ir::schedule::Schedule;
use eggine_ir::{Graph, NodeKind, Op, Region, Value};

use crate::index::moves::{self, Step};
use crate::index::{Index, Space};
use crate::{contraction, row};

/// What the model knows of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chip {
    /// Name, as in evidence.
    pub name: &'static str,
    /// Fused multiply-adds of the contraction family's inner loop, in flops per ns, at best.
    pub flops_per_ns: f64,
    /// Other scalar operations per ns.
    pub ops_per_ns: f64,
    /// Scalar loads from neighbouring addresses per ns.
    pub loads_per_ns: f64,
    /// How much dearer a load is whose neighbours in the warp are far apart.
    pub scattered: f64,
    /// Bytes per ns between memory and processors.
    pub bytes_per_ns: f64,
    /// One step of a tiled loop (barriers, addresses) of one warp, in ns of the whole chip.
    pub step_ns: f64,
    /// Blocks below which processors are idle.
    pub full_blocks: f64,
    /// One launch.
    pub launch_ns: f64,
}

/// The cpu device on one core with AVX-512, from `cargo run --example bench` on the regions of resnet50.
pub const CPU_DEVICE: Chip = Chip {
    name: "cpu-device",
    flops_per_ns: 75.0,
    ops_per_ns: 8.0,
    loads_per_ns: 5.0,
    scattered: 2.0,
    bytes_per_ns: 10.0,
    step_ns: 150.0,
    full_blocks: 2.0,
    // Waking the other threads for a grid of several blocks, from `eggine bench` on bert and dit: the
    // shortest such kernels take 20 µs, those of one block 3 µs.
    launch_ns: 18_000.0,
};

/// H200: 132 processors of 128 lanes at 1.7 GHz, 4.8 TB/s (`GPU_FACTS.md`); launch of a stream.
pub const H200: Chip = Chip {
    name: "h200",
    flops_per_ns: 46_000.0,
    ops_per_ns: 20_000.0,
    loads_per_ns: 5_000.0,
    scattered: 4.0,
    bytes_per_ns: 4_200.0,
    step_ns: 0.4,
    full_blocks: 264.0,
    launch_ns: 2500.0,
};

/// What the model says of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Time with launch.
    pub ns: f64,
    /// Flops of the contractions and operations of the rest that the region asks for, padding not counted.
    pub flops: f64,
    /// Bytes of inputs and outputs.
    pub bytes: f64,
}

/// Visited (value, index) pairs beyond which code is taken to be unbounded.
const MAX_VISITS: usize = 4000;

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

/// Walks from outputs at given indices. `trips` says how often something with these indices is computed.
fn work(
    space: &mut Space,
    graph: &Graph,
    outputs: &[Vec<Index>],
    trips: &dyn Fn(&Space, &[Index]) -> f64,
    fastest: &dyn Fn(&mut Space, &Index) -> Option<i64>,
    kept: bool,
) -> Option<Work> {
    let mut work = Work::default();
    let mut seen = BTreeSet::new();
    // What a value costs wherever it is used; a kept one is computed once, for its widest use.
    let mut costs: BTreeMap<Value, Work> = BTreeMap::new();
    for (&output, index) in graph.outputs.iter().zip(outputs) {
        moves::walk(space, graph, output, index, &mut |space, value, index| {
            if seen.len() > MAX_VISITS || !seen.insert((value, index.to_vec())) {
                return Step::Over;
            }
            let n = trips(space, index);
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
    let trips = |space: &Space, index: &[Index]| {
        let leaves: BTreeSet<_> = index.iter().flat_map(|i| space.leaves(i)).collect();
        leaves
            .into_iter()
            .filter_map(|leaf| space.loop_extent(leaf))
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
fn row_work(graph: &Graph, plan: &row::Plan, kept: bool) -> Option<Work> {
    let mut space = plan.space.clone();
    let outputs: Vec<Vec<Index>> =
        plan.outputs.iter().map(|columns| columns.index.clone()).collect();
    let extents = |space: &Space, leaf| space.range_of(leaf).1 as f64 + 1.0;
    let n_rows: f64 = plan.row_extents.iter().map(|&n| n as f64).product();
    let trips = |space: &Space, index: &[Index]| {
        let leaves: BTreeSet<_> = index.iter().flat_map(|i| space.leaves(i)).collect();
        let others = leaves.into_iter().filter(|leaf| !plan.row_leaves.contains(leaf));
        n_rows * others.map(|leaf| extents(space, leaf)).product::<f64>()
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

fn bytes_of(graph: &Graph) -> f64 {
    let inputs: usize = graph.inputs().map(|value| graph.ty(value).n_bytes()).sum();
    let outputs: usize = graph.outputs.iter().map(|&value| graph.ty(value).n_bytes()).sum();
    (inputs + outputs) as f64
}

/// What the model says of a region under a schedule; `None` if the family cannot do it.
pub fn predict(region: &Region, schedule: &Schedule, chip: &Chip) -> Option<Prediction> {
    let graph = &region.graph;
    let bytes = bytes_of(graph);
    let n_out = graph.outputs.iter().map(|&output| graph.ty(output).n_elems()).max()?.max(1) as f64;
    let scalar_ns = |work: &Work, vector: f64| {
        let loads = work.n_loads / vector.sqrt() + work.n_scattered * chip.scattered;
        work.n_ops / chip.ops_per_ns + loads / chip.loads_per_ns
    };
    let fill = |n_blocks: f64| (n_blocks / chip.full_blocks).min(1.0);
    let prediction = |compute_ns: f64, flops: f64| Prediction {
        ns: compute_ns.max(bytes / chip.bytes_per_ns) + chip.launch_ns,
        flops,
        bytes,
    };
    match schedule {
        Schedule::Pointwise(s) => {
            let work = thread_work(graph)?;
            let n_threads = n_out / f64::from(s.elems);
            // Indices, bounds and the store of a group of lanes.
            let overhead = n_threads * 24.0 / chip.ops_per_ns;
            let n_blocks = (n_threads / f64::from(s.threads)).ceil();
            Some(prediction(
                (scalar_ns(&work, f64::from(s.vector)) + overhead) / fill(n_blocks),
                work.n_ops,
            ))
        }
        Schedule::Row(s) => {
            let plan = row::Plan::of(graph)?;
            let longest = plan.stages.iter().map(|stage| stage.length).max().unwrap_or(0);
            let rounds =
                longest.div_ceil((s.threads_per_row * s.vector) as usize) * s.vector as usize;
            let mut work = row_work(graph, &plan, rounds <= s.keep as usize)?;
            let flops = work.n_ops;
            let n_rows: f64 = plan.row_extents.iter().map(|&n| n as f64).product();
            // Threads without an element go along.
            let step = f64::from(s.threads_per_row * s.vector);
            let used: f64 = plan.stages.iter().map(|stage| stage.length as f64).sum();
            let taken: f64 =
                plan.stages.iter().map(|stage| (stage.length as f64 / step).ceil() * step).sum();
            work.n_ops *= taken / used;
            let warps = n_rows * f64::from(s.threads_per_row) / 32.0;
            let exchange = warps
                * plan.stages.len() as f64
                * f64::from(s.threads_per_row.min(32)).log2()
                * 64.0
                / chip.ops_per_ns;
            let overhead = n_rows * f64::from(s.threads_per_row) * 40.0 / chip.ops_per_ns;
            let n_blocks = (n_rows / f64::from(s.rows_per_block)).ceil();
            Some(prediction(
                (scalar_ns(&work, f64::from(s.vector)) + exchange + overhead) / fill(n_blocks),
                flops,
            ))
        }
        Schedule::Contraction(s) => {
            let shape = contraction::shape(graph, s)?;
            let mut ns = 0.0;
            let mut flops = 0.0;
            let n_blocks = shape.n_blocks as f64;
            // Fragments that are loaded for each product: the wider the thread's tile, the fewer.
            let (tm, tn) = (f64::from(s.thread_m), f64::from(s.thread_n));
            let efficiency = 1.0 / (1.0 + 1.3 * (tm + tn) / (tm * tn));
            for product in &shape.products {
                let steps = product.n_k.div_ceil(s.tile_k as usize) as f64;
                let padded =
                    n_blocks * steps * f64::from(s.tile_k) * f64::from(s.tile_m * s.tile_n);
                ns += 2.0 * padded / (chip.flops_per_ns * efficiency);
                flops += 2.0 * product.n_k as f64 * shape.n_results as f64;
                let sides = [
                    (s.tile_m, product.lanes_m, product.is_tapped_m, product.per_elem_m),
                    (s.tile_n, product.lanes_n, product.is_tapped_n, product.per_elem_n),
                ];
                for (tile, lanes, taps, per_elem) in sides {
                    // Every block computes its operands for itself.
                    let n = n_blocks * steps * f64::from(tile * s.tile_k);
                    let dear = if taps { 1.6 } else { 1.0 };
                    ns += n * per_elem.n_loads * dear / (chip.loads_per_ns * (lanes as f64).sqrt());
                    ns += n * per_elem.n_ops / chip.ops_per_ns;
                }
                let warps = f64::from(s.tile_m * s.tile_n) / (tm * tn) / 32.0;
                ns += n_blocks * steps * warps * chip.step_ns;
            }
            let stores = n_blocks * f64::from(s.tile_m * s.tile_n);
            ns += stores * (shape.epilogue.n_ops + 2.0) / chip.ops_per_ns;
            ns += stores * (shape.epilogue.n_loads + 1.0) / chip.loads_per_ns;
            Some(prediction(ns / fill(n_blocks), flops))
        }
    }
}
