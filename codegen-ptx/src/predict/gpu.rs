//! Regions and schedules as grids of the GPU model ([`pipeline`](super::pipeline)).
//!
//! All families compute on the f32 lanes. Counts of instructions come from what the assembler made of the
//! kernel ([`Sass`]) where that is known, else from the schedule's parameters and the region's expressions.

use eggine_ir::schedule::{ContractionSchedule, PointwiseSchedule, RowSchedule, Schedule};
use eggine_ir::{Graph, Region};

use super::pipeline::{Grid, Loop};
use super::work::{Work, bytes_of, row_work, thread_work};
use super::{GpuChip, Prediction};
use crate::{contraction, row};

/// Warp instructions that a multiprocessor issues in a clock.
const N_SCHEDULERS: f64 = 4.0;

/// Bytes of L2 traffic for a load whose neighbours are elsewhere.
const SECTOR_BYTES: f64 = 32.0;

/// Clocks from an instruction to one that needs its result (4), over the two chains that the code of an
/// element has on average.
const DEPENDENT_CLK: f64 = 2.0;

/// A shuffle and the operation on its result, of a warp's tree.
const SHUFFLE_CLK: f64 = 30.0;

/// A barrier of a block and the reads of shared memory around it.
const BARRIER_CLK: f64 = 60.0;

/// Clocks of a scheduler for an integer instruction of a warp: 16 lanes.
const ALU_CLK: f64 = 2.0;

/// … for a function of the special unit, or a conversion: 4 lanes.
const SPECIAL_CLK: f64 = 8.0;

/// Instructions of one warp, by what they occupy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Instructions {
    /// On the f32 lanes.
    pub(super) f32: f64,
    /// On the integer lanes, where these are told apart from the others.
    pub(super) alu: f64,
    /// In the special unit, where these are told apart from the others.
    pub(super) special: f64,
    /// Everything else that is issued: integers, loads and stores, branches.
    pub(super) others: f64,
}

impl Instructions {
    /// All that are issued.
    fn n(self) -> f64 {
        self.f32 + self.alu + self.special + self.others
    }

    /// Clocks of one scheduler.
    fn clk(self, chip: &GpuChip) -> f64 {
        // A chip with half the lanes takes two clocks for an f32 instruction, and issues others meanwhile.
        let lanes_clk = self.f32 * 32.0 * N_SCHEDULERS / chip.fma_per_clk;
        lanes_clk.max(ALU_CLK * self.alu).max(SPECIAL_CLK * self.special).max(self.n())
    }

    fn times(self, factor: f64) -> Self {
        let Self { f32, alu, special, others } = self;
        Self {
            f32: f32 * factor,
            alu: alu * factor,
            special: special * factor,
            others: others * factor,
        }
    }

    fn plus(self, more: Self) -> Self {
        Self {
            f32: self.f32 + more.f32,
            alu: self.alu + more.alu,
            special: self.special + more.special,
            others: self.others + more.others,
        }
    }
}

/// What the assembler made of a kernel; instructions and clocks are of one thread, all that it executes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sass {
    /// Registers of a thread.
    pub(super) n_regs: f64,
    /// Instructions outside of loops.
    pub(super) outside: Instructions,
    /// Instructions in loops.
    pub(super) inside: Instructions,
    /// Clocks that a warp waits by itself before it issues those outside.
    pub(super) stall_outside_clk: f64,
    /// … and those in loops.
    pub(super) stall_inside_clk: f64,
    /// Accesses to local memory, of 4 bytes: spilled registers.
    pub(super) n_local: f64,
}

impl Sass {
    /// Bytes of the first-level cache that a block's spills take.
    fn local_bytes(&self, n_warps: f64) -> f64 {
        n_warps * 32.0 * 4.0 * self.n_local
    }

    /// All in one pass: what a thread executes, and the clocks that it takes a warp.
    fn all(&self) -> (Instructions, f64) {
        (self.outside.plus(self.inside), self.stall_outside_clk + self.stall_inside_clk)
    }
}

/// Clocks of a multiprocessor for a block of warps that all run these instructions.
fn issue_clk(chip: &GpuChip, n_warps: f64, each: Instructions) -> f64 {
    (n_warps / N_SCHEDULERS).ceil() * each.clk(chip)
}

fn n_resident(chip: &GpuChip, n_threads: u32, n_regs: f64, shared_bytes: f64) -> f64 {
    let n_regs = n_regs.min(255.0) as u32;
    f64::from(chip.target.n_resident_blocks(n_threads, n_regs, shared_bytes as u32))
}

/// See [`predict`](super::predict).
pub(super) fn predict(region: &Region, schedule: &Schedule, chip: &GpuChip) -> Option<Prediction> {
    predict_with(region, schedule, chip, None)
}

/// See [`predict_assembled`](super::pipeline::assembled::predict_assembled).
pub(super) fn predict_with(
    region: &Region,
    schedule: &Schedule,
    chip: &GpuChip,
    sass: Option<&Sass>,
) -> Option<Prediction> {
    let graph = &region.graph;
    let (grid, flops) = match schedule {
        Schedule::Pointwise(s) => pointwise(graph, s, chip, sass)?,
        Schedule::Row(s) => row(graph, s, chip, sass)?,
        Schedule::Contraction(s) => contraction(graph, s, chip, sass)?,
    };
    Some(Prediction { ns: grid.ns(chip), flops, bytes: bytes_of(graph) })
}

/// Bytes that the loads of a kernel ask L2 for: neighbours share sectors, the rest of the region's bytes
/// are asked for at least once.
fn l2_bytes(work: &Work, bytes: f64) -> f64 {
    bytes.max(4.0 * work.n_loads.min(bytes)) + SECTOR_BYTES * work.n_scattered
}

fn pointwise(
    graph: &Graph,
    s: &PointwiseSchedule,
    chip: &GpuChip,
    sass: Option<&Sass>,
) -> Option<(Grid, f64)> {
    let work = thread_work(graph)?;
    let bytes = bytes_of(graph);
    let n_out = graph.outputs.iter().map(|&output| graph.ty(output).n_elems()).max()?.max(1) as f64;
    let n_threads = (n_out / f64::from(s.elems)).ceil();
    let n_blocks = (n_threads / f64::from(s.threads)).ceil();
    let n_warps = f64::from(s.threads) / 32.0;
    let loads = work.n_loads / f64::from(s.vector) + work.n_scattered;
    // Indices, bounds and the store of a group of lanes.
    let groups = f64::from(s.elems / s.vector);
    let each = Instructions {
        f32: work.n_ops / n_threads,
        others: loads / n_threads + groups * 3.0 + 20.0,
        ..Instructions::default()
    };
    let (each, chain_clk) = sass.map_or((each, DEPENDENT_CLK * each.n()), Sass::all);
    let l2_bytes = l2_bytes(&work, bytes);
    let body = Loop {
        n_iterations: 1.0,
        issue_clk: issue_clk(chip, n_warps, each),
        chain_clk,
        shared_bytes: (4.0 * work.n_loads + SECTOR_BYTES * work.n_scattered) / n_blocks
            + sass.map_or(0.0, |sass| sass.local_bytes(n_warps)),
        fill_bytes: l2_bytes / n_blocks,
        run_bytes: 128.0,
        n_stages: 1.0,
        ..Loop::default()
    };
    let n_regs = sass.map_or(24.0 + 2.0 * f64::from(s.elems), |sass| sass.n_regs);
    let grid = Grid {
        n_blocks,
        n_resident: n_resident(chip, s.threads, n_regs, 0.0),
        loops: vec![body],
        epilogue_clk: 0.0,
        l2_bytes,
        dram_bytes: bytes,
    };
    Some((grid, work.n_ops))
}

fn row(graph: &Graph, s: &RowSchedule, chip: &GpuChip, sass: Option<&Sass>) -> Option<(Grid, f64)> {
    let plan = row::Plan::of(graph)?;
    let bytes = bytes_of(graph);
    let longest = plan.stages.iter().map(|stage| stage.length).max().unwrap_or(0);
    let per_thread = longest.div_ceil((s.threads_per_row * s.vector) as usize) * s.vector as usize;
    let is_kept = per_thread <= s.keep as usize;
    let work = row_work(graph, &plan, is_kept)?;
    let n_rows: f64 = plan.row_extents.iter().map(|&n| n as f64).product();
    let n_blocks = (n_rows / f64::from(s.rows_per_block)).ceil();
    let n_threads = s.threads_per_row * s.rows_per_block;
    let n_warps = (f64::from(n_threads) / 32.0).ceil();
    // Threads without an element go along.
    let step = f64::from(s.threads_per_row * s.vector);
    let used: f64 = plan.stages.iter().map(|stage| stage.length as f64).sum();
    let taken: f64 =
        plan.stages.iter().map(|stage| (stage.length as f64 / step).ceil() * step).sum();
    let all_threads = n_blocks * f64::from(n_threads);
    let exchanges = f64::from(s.threads_per_row.min(32)).log2();
    let n_stages = plan.stages.len() as f64;
    let each = Instructions {
        f32: work.n_ops * taken / used / all_threads + n_stages * exchanges,
        others: (work.n_loads / f64::from(s.vector) + work.n_scattered) / all_threads
            + n_stages * exchanges
            + 40.0,
        ..Instructions::default()
    };
    let (each, chain_clk) = sass.map_or((each, DEPENDENT_CLK * each.n()), Sass::all);
    let across = if s.threads_per_row > 32 { 2.0 * BARRIER_CLK } else { 0.0 };
    // What does not stay in registers is loaded again for each stage.
    let reloads = if is_kept { 0.0 } else { n_stages * chip.load_clk * 0.5 };
    let l2_bytes = l2_bytes(&work, bytes);
    let body = Loop {
        n_iterations: 1.0,
        issue_clk: issue_clk(chip, n_warps, each),
        chain_clk: chain_clk + n_stages * (exchanges * SHUFFLE_CLK + across) + reloads,
        shared_bytes: (4.0 * work.n_loads + SECTOR_BYTES * work.n_scattered) / n_blocks
            + sass.map_or(0.0, |sass| sass.local_bytes(n_warps)),
        fill_bytes: l2_bytes / n_blocks,
        run_bytes: 128.0,
        n_stages: 1.0,
        ..Loop::default()
    };
    let n_regs = 32.0 + if is_kept { per_thread as f64 } else { 0.0 };
    let n_regs = sass.map_or(n_regs, |sass| sass.n_regs);
    let shared_bytes = if s.threads_per_row > 32 { 4.0 * n_warps } else { 0.0 };
    let grid = Grid {
        n_blocks,
        n_resident: n_resident(chip, n_threads, n_regs, shared_bytes),
        loops: vec![body],
        epilogue_clk: 0.0,
        l2_bytes,
        dram_bytes: bytes,
    };
    Some((grid, work.n_ops))
}

fn contraction(
    graph: &Graph,
    s: &ContractionSchedule,
    chip: &GpuChip,
    sass: Option<&Sass>,
) -> Option<(Grid, f64)> {
    let shape = contraction::shape(graph, s)?;
    let n_blocks = shape.n_blocks as f64;
    let n_threads = f64::from(shape.n_threads);
    let n_warps = (n_threads / 32.0).ceil();
    let (tm, tn, tile_k) = (f64::from(s.thread_m), f64::from(s.thread_n), f64::from(s.tile_k));
    // Fragments are read in fours. The threads of a warp are side by side along columns first; those of
    // a row read the same element of the left operand, which is one access.
    let reads = tile_k * ((tm / 4.0).ceil() + (tn / 4.0).ceil());
    let columns = (f64::from(s.tile_n) / tn).min(32.0);
    let read_bytes = n_warps * tile_k * 4.0 * (tm * 32.0 / columns + tn * columns);
    let mut grid = Grid {
        n_blocks,
        n_resident: n_resident(
            chip,
            shape.n_threads,
            sass.map_or(shape.n_regs as f64, |sass| sass.n_regs),
            shape.shared_bytes as f64,
        ),
        ..Grid::default()
    };
    let mut flops = 0.0;
    // Of each product what a thread does in an iteration, by the schedule.
    let mut each_of = Vec::with_capacity(shape.products.len());
    for product in &shape.products {
        let n_iterations = product.n_k.div_ceil(s.tile_k as usize) as f64;
        let sides = [
            (
                s.tile_m,
                product.lanes_m,
                product.run_bytes_m,
                product.is_tapped_m,
                product.per_elem_m,
            ),
            (
                s.tile_n,
                product.lanes_n,
                product.run_bytes_n,
                product.is_tapped_n,
                product.per_elem_n,
            ),
        ];
        let mut each =
            Instructions { f32: tile_k * tm * tn, others: reads + 16.0, ..Instructions::default() };
        let (mut fill_bytes, mut weighted_runs, mut written_bytes) = (0.0, 0.0, 0.0);
        for (tile, lanes, run_bytes, is_tapped, per_elem) in sides {
            let n = f64::from(tile) * tile_k;
            let per_thread = n / n_threads;
            let taps = if is_tapped { 4.0 } else { 1.0 };
            each.f32 += per_thread * per_elem.n_ops;
            each.others += per_thread * (per_elem.n_loads * taps + 1.0) / lanes as f64;
            fill_bytes += 4.0 * n * per_elem.n_loads;
            weighted_runs += 4.0 * n * per_elem.n_loads * run_bytes as f64;
            written_bytes += 4.0 * n;
        }
        grid.l2_bytes += n_blocks * n_iterations * fill_bytes;
        grid.loops.push(Loop {
            n_iterations,
            issue_clk: issue_clk(chip, n_warps, each),
            // Its own products are independent of each other.
            chain_clk: each.n(),
            shared_bytes: read_bytes + written_bytes,
            fill_bytes,
            run_bytes: if fill_bytes > 0.0 { weighted_runs / fill_bytes } else { 128.0 },
            n_stages: f64::from(s.stages),
            ..Loop::default()
        });
        each_of.push(each);
        flops += 2.0 * product.n_k as f64 * shape.n_results as f64;
    }
    let mut stores = Instructions {
        f32: tm * tn * shape.epilogue.n_ops,
        others: tm * tn * (shape.epilogue.n_loads + 1.0) / f64::from(s.vector) + 40.0,
        ..Instructions::default()
    };
    if let Some(sass) = sass {
        // Loops that were written out stand outside, with what precedes and follows them.
        let is_written_out = sass.inside == Instructions::default();
        let before = grid.loops.iter().zip(&each_of).map(|(it, each)| it.n_iterations * each.n());
        let in_loops: f64 = before.sum();
        let (code, stall_clk) = if is_written_out {
            let share = in_loops / (in_loops + stores.n());
            stores = sass.outside.times(1.0 - share);
            (sass.outside.times(share), share * sass.stall_outside_clk)
        } else {
            stores = sass.outside;
            (sass.inside, sass.stall_inside_clk)
        };
        for (it, each) in grid.loops.iter_mut().zip(&each_of) {
            // The products share the instructions as the schedule says.
            let share = each.n() / in_loops;
            it.issue_clk = issue_clk(chip, n_warps, code.times(share));
            it.chain_clk = share * stall_clk;
            it.shared_bytes += share * sass.local_bytes(n_warps);
        }
    }
    grid.epilogue_clk = issue_clk(chip, n_warps, stores);
    grid.dram_bytes = bytes_of(graph);
    grid.l2_bytes = grid.l2_bytes.max(grid.dram_bytes);
    Some((grid, flops))
}
