//! What the static model needs to know of a contraction under a schedule: how much of everything a block
//! does and holds.

use std::collections::BTreeSet;

use eggine_ir::graph::OpClass;
use eggine_ir::schedule::ContractionSchedule;
use eggine_ir::{Graph, NodeKind, Value};

use super::loader::Mode;
use super::problem::{Side, n_of};
use super::{modes, n_regs, n_threads, problem_of, shared_bytes};
use crate::index::moves;

/// What the static model needs to know of one product.
pub(crate) struct ProductShape {
    pub(crate) n_k: usize,
    /// Lanes that the loaders of both operands move at once.
    pub(crate) lanes_m: usize,
    pub(crate) lanes_n: usize,
    /// Neighbouring bytes of a tile in global memory.
    pub(crate) run_bytes_m: usize,
    pub(crate) run_bytes_n: usize,
    /// Whether the loader computes conditions.
    pub(crate) is_tapped_m: bool,
    pub(crate) is_tapped_n: bool,
    /// What the loader computes for one element.
    pub(crate) per_elem_m: PerElem,
    pub(crate) per_elem_n: PerElem,
}

/// Operations and loads for one element.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PerElem {
    pub(crate) n_ops: f64,
    pub(crate) n_loads: f64,
}

impl PerElem {
    /// Of everything that `values` are computed from, up to and without the nodes in `seen`, which grows.
    fn of(graph: &Graph, values: &[Value], seen: &mut BTreeSet<Value>) -> Self {
        let mut total = PerElem::default();
        let mut open: Vec<Value> = values.to_vec();
        while let Some(value) = open.pop() {
            if !seen.insert(value) {
                continue;
            }
            match &graph.nodes[value].kind {
                NodeKind::Input { .. } => total.n_loads += 1.0,
                NodeKind::Const(_) => {}
                NodeKind::Apply(op, attrs, args) => {
                    // Each tap of a window is a load and a step of the fold.
                    let taps: usize = match op.spec().class {
                        OpClass::Window => moves::summed(graph, *op, attrs, args).iter().product(),
                        _ => 1,
                    };
                    total.n_loads += (taps - 1) as f64;
                    total.n_ops += crate::predict::ops_of(*op) + (taps - 1) as f64;
                    open.extend(args);
                }
            }
        }
        total
    }
}

/// What the static model needs to know of a contraction under a schedule.
pub(crate) struct Shape {
    pub(crate) n_blocks: usize,
    pub(crate) n_threads: u32,
    /// Shared memory of a block.
    pub(crate) shared_bytes: usize,
    /// Registers of a thread, as `check` estimates them.
    pub(crate) n_regs: usize,
    /// Elements of the result.
    pub(crate) n_results: usize,
    pub(crate) products: Vec<ProductShape>,
    /// What the epilogue computes for one element.
    pub(crate) epilogue: PerElem,
}

/// See [`Shape`].
pub(crate) fn shape(graph: &Graph, s: &ContractionSchedule) -> Option<Shape> {
    let mut problem = problem_of(graph, s)?;
    let modes = modes(&mut problem, graph, s);
    let blocks =
        n_of(&problem.m).div_ceil(s.tile_m as usize) * n_of(&problem.n).div_ceil(s.tile_n as usize);
    let mut behind: BTreeSet<Value> = problem.products.iter().map(|product| product.node).collect();
    let epilogue = PerElem::of(graph, &graph.outputs, &mut behind);
    let of_side = |side: &Side| PerElem::of(graph, &[side.node], &mut BTreeSet::new());
    let products = problem.products.iter().zip(&modes).map(|(product, [m, n])| ProductShape {
        n_k: product.n_k(),
        per_elem_m: of_side(&product.m_side),
        per_elem_n: of_side(&product.n_side),
        lanes_m: m.lanes(),
        lanes_n: n.lanes(),
        run_bytes_m: run_bytes(m, s.tile_m, s.tile_k),
        run_bytes_n: run_bytes(n, s.tile_n, s.tile_k),
        is_tapped_m: !product.m_side.inside.is_empty(),
        is_tapped_n: !product.n_side.inside.is_empty(),
    });
    Some(Shape {
        n_blocks: blocks * n_of(&problem.batch),
        n_threads: n_threads(s),
        shared_bytes: shared_bytes(&modes, s),
        n_regs: n_regs(problem.products.len(), s),
        n_results: n_of(&problem.m) * n_of(&problem.n) * n_of(&problem.batch),
        products: products.collect(),
        epilogue,
    })
}

/// Bytes of a tile that are neighbours in memory; a loader of single elements has them apart.
fn run_bytes(mode: &Mode, tile: u32, tile_k: u32) -> usize {
    4 * match mode {
        Mode::Along(1) | Mode::Across(1) => 1,
        Mode::Along(_) => tile as usize,
        Mode::Across(_) => tile_k as usize,
        Mode::Packed(..) => (tile * tile_k) as usize,
    }
}
