//! The model of the cpu device: a roofline with a term for everything that the families do besides
//! (operations around the products, loads by their width, steps of the pipeline, launches).

use eggine_ir::Region;
use eggine_ir::schedule::Schedule;

use super::Prediction;
use super::work::{Work, bytes_of, row_work, thread_work};
use crate::{contraction, row};

/// What the model knows of the cpu device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuChip {
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
pub const CPU_CHIP: CpuChip = CpuChip {
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

/// What the model says of a region under a schedule on the cpu device; `None` if the family cannot do it.
pub(super) fn predict(region: &Region, schedule: &Schedule, chip: &CpuChip) -> Option<Prediction> {
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
