//! A stand-in for code generation: which regions are one kernel, and a roofline for what they cost.
//!
//! Legal are: anything elementwise; reductions along one set of axes, and short ones below them; one
//! window; one contraction or the sum of two, whose operands are elementwise, and of which nothing
//! is reduced.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use eggine_ir::graph::OpClass;
use eggine_ir::{Graph, NodeKind, Op, Region, Value};
use eggine_rewrite::RegionCost;

/// Time of a launch.
const LAUNCH_NS: f64 = 2_500.0;
/// Bytes moved per nanosecond.
const BYTES_PER_NS: f64 = 4_000.0;
/// Operations per nanosecond.
const OPS_PER_NS: f64 = 40_000.0;

#[derive(Default)]
pub(crate) struct Roofline {
    pub(crate) n_asked: AtomicUsize,
}

/// What lies below a value.
#[derive(Clone, Default)]
struct Below {
    n_contractions: usize,
    n_windows: usize,
    reduced: bool,
}

fn below(graph: &Graph) -> Option<Vec<Below>> {
    let mut all: Vec<Below> = Vec::new();
    let mut row_axes: BTreeSet<Vec<usize>> = BTreeSet::new();
    let mut anything_reduced = false;
    for node in graph.nodes.values() {
        let NodeKind::Apply(op, attrs, args) = &node.kind else {
            all.push(Below::default());
            continue;
        };
        let args_below: Vec<&Below> = args.iter().map(|arg| &all[arg.as_u32() as usize]).collect();
        let mut here = Below {
            n_contractions: args_below.iter().map(|b| b.n_contractions).max().unwrap_or(0),
            n_windows: args_below.iter().map(|b| b.n_windows).sum(),
            reduced: args_below.iter().any(|b| b.reduced),
        };
        match op.spec().class {
            OpClass::Contract => {
                if here.n_contractions > 0 || here.n_windows > 0 || here.reduced {
                    return None;
                }
                here.n_contractions = 1;
            }
            OpClass::Window => {
                if here.n_contractions > 0 || here.n_windows > 0 || here.reduced {
                    return None;
                }
                here.n_windows = 1;
            }
            OpClass::Reduce => {
                if here.n_contractions > 0 || here.n_windows > 0 {
                    return None;
                }
                anything_reduced = true;
                here.reduced = true;
                let axes = match op {
                    Op::ArgMax | Op::ArgMin => vec![attrs.int(0) as usize],
                    _ => attrs.usizes(0),
                };
                let extents = graph.ty(args[0]).extents();
                let length: usize = axes.iter().map(|&axis| extents[axis]).product();
                let elems = graph.ty(args[0]).n_elems();
                // The axes from the right, so that leading dimensions do not matter.
                if length > 256 || elems == length || length * 64 > elems {
                    row_axes.insert(axes.iter().map(|&axis| extents.len() - axis).collect());
                }
            }
            OpClass::Map if *op == Op::Add => {
                let total: usize = args_below.iter().map(|b| b.n_contractions).sum();
                let shared = args.len() == 2 && args[0] == args[1];
                if total > 1
                    && !shared
                    && contractions(graph, &[args[0]]) != contractions(graph, &[args[1]])
                {
                    here.n_contractions = total;
                }
            }
            _ => {
                if contractions(graph, args).len() > here.n_contractions {
                    return None; // Two contractions that are not simply added.
                }
            }
        }
        if here.n_contractions > 2
            || row_axes.len() > 1
            || (here.n_contractions > 0 && anything_reduced)
        {
            return None;
        }
        all.push(here);
    }
    Some(all)
}

/// The contractions that values depend on.
fn contractions(graph: &Graph, from: &[Value]) -> BTreeSet<Value> {
    let mut found = BTreeSet::new();
    let mut todo = from.to_vec();
    let mut seen = BTreeSet::new();
    while let Some(value) = todo.pop() {
        if let (true, NodeKind::Apply(op, _, args)) = (seen.insert(value), &graph.nodes[value].kind)
        {
            if op.spec().class == OpClass::Contract {
                found.insert(value);
            }
            todo.extend(args);
        }
    }
    found
}

fn work(graph: &Graph, value: Value) -> f64 {
    let NodeKind::Apply(op, attrs, args) = &graph.nodes[value].kind else { return 0.0 };
    let elems = graph.ty(value).n_elems() as f64;
    let arg = |i: usize| graph.ty(args[i]).extents();
    match op {
        Op::Matmul => 2.0 * elems * *arg(0).last().unwrap() as f64,
        Op::Conv => 2.0 * elems * arg(1)[1..].iter().product::<usize>() as f64,
        Op::MaxPool | Op::SumPool => elems * attrs.usizes(0).iter().product::<usize>() as f64,
        Op::Exp | Op::Erf | Op::Tanh => 10.0 * elems,
        Op::Div | Op::Sqrt => 4.0 * elems,
        Op::Pow => 20.0 * elems,
        _ if op.spec().class == OpClass::Move => 0.0,
        _ if op.spec().class == OpClass::Reduce => graph.ty(args[0]).n_elems() as f64,
        _ => elems,
    }
}

impl RegionCost for Roofline {
    fn cost_ns(&self, region: &Region) -> Option<f64> {
        self.n_asked.fetch_add(1, Ordering::Relaxed);
        let graph = &region.graph;
        below(graph)?;
        let loaded: usize = graph.inputs().map(|input| graph.ty(input).n_bytes()).sum();
        let stored: usize = graph.outputs.iter().map(|&output| graph.ty(output).n_bytes()).sum();
        let work: f64 = graph.nodes.keys().map(|value| work(graph, value)).sum();
        Some(LAUNCH_NS + ((loaded + stored) as f64 / BYTES_PER_NS).max(work / OPS_PER_NS))
    }
}
