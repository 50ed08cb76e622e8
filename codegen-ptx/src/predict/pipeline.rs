//! Time of a grid of blocks on a GPU: loops that a multiprocessor's parts share, waves of blocks, and the
//! two memories behind them.
//!
//! An iteration of a block's loop takes as long as its busiest part (matrix unit, schedulers, shared
//! memory, fill from L2), or as a load takes to arrive if too few are in flight:
//!
//! ```text
//! t_iter = max(r · max(t_mma, t_issue, t_shared, t_fill), (L + t_fill + max(t_mma, t_issue)) / stages) + step
//! t_wave = start + Σ n_iter · t_iter + r · epilogue          r blocks resident on a multiprocessor
//! T      = max(waves · t_wave / clock, L2 bytes / its rate, DRAM bytes / its rate) + launch
//! ```

pub mod assembled;

use super::GpuChip;

/// One iteration of a loop of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loop {
    /// Iterations.
    pub n_iterations: f64,
    /// Clocks of the matrix unit.
    pub matrix_clk: f64,
    /// Clocks that the block's warps need of the schedulers, or of the lanes behind them.
    pub issue_clk: f64,
    /// Clocks that no other warp can hide: a warp's own dependent instructions.
    pub chain_clk: f64,
    /// Bytes read from and written to shared memory or the first-level cache, conflicts counted.
    pub shared_bytes: f64,
    /// Bytes that come from L2.
    pub fill_bytes: f64,
    /// Neighbouring bytes of a copy; below 128 it is less efficient.
    pub run_bytes: f64,
    /// Iterations in flight.
    pub n_stages: f64,
}

impl Loop {
    /// Clocks of one iteration of each of `n_resident` blocks that share a multiprocessor.
    pub fn clk(&self, chip: &GpuChip, n_resident: f64) -> f64 {
        let run = (self.run_bytes / 128.0).clamp(1.0 / 32.0, 1.0);
        let fill_clk = self.fill_bytes / (chip.fill_bytes_per_clk * run);
        let compute_clk = self.matrix_clk.max(self.issue_clk);
        let shared_clk = self.shared_bytes / chip.shared_bytes_per_clk;
        let busiest = compute_clk.max(shared_clk).max(fill_clk);
        let loads = if self.fill_bytes > 0.0 { chip.load_clk + fill_clk } else { 0.0 };
        let latency_clk = (loads + compute_clk.max(self.chain_clk)) / self.n_stages.max(1.0);
        (n_resident * busiest).max(latency_clk) + chip.step_clk
    }
}

/// A launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// Blocks.
    pub n_blocks: f64,
    /// Blocks that a multiprocessor holds at once.
    pub n_resident: f64,
    /// The block's loops, one after the other.
    pub loops: Vec<Loop>,
    /// Clocks of the schedulers for what follows the loops.
    pub epilogue_clk: f64,
    /// Bytes that cross L2.
    pub l2_bytes: f64,
    /// Bytes that cross memory.
    pub dram_bytes: f64,
}

impl Grid {
    /// Clocks of `n_resident` blocks that share a multiprocessor, all begun at once.
    fn wave_clk(&self, chip: &GpuChip, n_resident: f64) -> f64 {
        let loops: f64 =
            self.loops.iter().map(|it| it.n_iterations * it.clk(chip, n_resident)).sum();
        loops + n_resident * self.epilogue_clk
    }

    /// Clocks until the last block has ended.
    pub fn compute_clk(&self, chip: &GpuChip) -> f64 {
        let n_resident = self.n_resident.max(1.0);
        let slots = chip.n_sms * n_resident;
        let n_full = (self.n_blocks / slots).floor();
        let rest = self.n_blocks - n_full * slots;
        // A pipelined loop starts with a load that nothing hides, unless another block's work does.
        let start =
            if self.loops.iter().any(|it| it.n_stages > 1.0) { 1.5 * chip.load_clk } else { 0.0 };
        let n_starts = if n_resident > 1.0 { 1.0 } else { n_full + f64::from(rest > 0.0) };
        let mut clk = n_full * self.wave_clk(chip, n_resident) + n_starts * start;
        if rest > 0.0 {
            clk += self.wave_clk(chip, (rest / chip.n_sms).ceil().min(n_resident));
        }
        clk
    }

    /// Time of the launch, with what the launch itself costs.
    pub fn ns(&self, chip: &GpuChip) -> f64 {
        let is_matrix = self.loops.iter().any(|it| it.matrix_clk > 0.0);
        let sustained = if is_matrix { chip.matrix_sustained } else { 1.0 };
        let compute_ns = self.compute_clk(chip) / (chip.clk_per_ns * sustained);
        let l2_ns = self.l2_bytes / chip.l2_bytes_per_ns;
        let dram_ns = self.dram_bytes / chip.dram_bytes_per_ns;
        compute_ns.max(l2_ns).max(dram_ns) + chip.launch_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::chips::{GPUS, H200};

    fn grid(n_blocks: f64) -> Grid {
        let body = Loop {
            n_iterations: 64.0,
            issue_clk: 300.0,
            shared_bytes: 16_000.0,
            fill_bytes: 8_000.0,
            run_bytes: 128.0,
            n_stages: 2.0,
            ..Loop::default()
        };
        Grid {
            n_blocks,
            n_resident: 2.0,
            loops: vec![body],
            epilogue_clk: 100.0,
            ..Grid::default()
        }
    }

    #[test]
    fn a_wave_is_paid_for_as_a_whole() {
        for chip in GPUS {
            let full = grid(chip.n_sms * 2.0).compute_clk(chip);
            assert_eq!(grid(chip.n_sms * 2.0 - 1.0).compute_clk(chip), full, "{}", chip.name);
            assert!(grid(chip.n_sms * 2.0 + 1.0).compute_clk(chip) > full, "{}", chip.name);
        }
    }

    #[test]
    fn more_stages_hide_more_of_a_load_and_no_more_than_it() {
        let at = |n_stages| Loop { n_stages, ..grid(1.0).loops[0] }.clk(&H200, 1.0);
        assert!(at(1.0) > at(2.0) && at(2.0) > at(4.0));
        assert_eq!(at(16.0), at(32.0));
    }

    #[test]
    fn each_part_can_be_the_busiest() {
        let base = Loop { n_stages: 64.0, run_bytes: 128.0, ..Loop::default() };
        let clk = |it: Loop| it.clk(&H200, 1.0) - H200.step_clk;
        assert_eq!(clk(Loop { matrix_clk: 500.0, ..base }), 500.0);
        assert_eq!(clk(Loop { issue_clk: 400.0, matrix_clk: 10.0, ..base }), 400.0);
        assert_eq!(clk(Loop { shared_bytes: 128.0 * 300.0, ..base }), 300.0);
        assert_eq!(clk(Loop { fill_bytes: 64.0 * 200.0, ..base }), 200.0);
        // Half rows are filled at half the rate.
        assert_eq!(clk(Loop { fill_bytes: 64.0 * 200.0, run_bytes: 64.0, ..base }), 400.0);
    }
}
