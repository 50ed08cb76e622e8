//! GPUs, one row each: what data sheets, public measurements and arithmetic say of them.
//!
//! Nothing here was measured by us on hardware of ours unless it says so. Sources, by column:
//!
//! - limits of a multiprocessor: [`Target`], from `arch_traits.h` of nvidia-cuda-cccl 13;
//! - multiprocessors, clocks, L2 and nominal DRAM bandwidth: NVIDIA's data sheets and architecture white
//!   papers of A100, H100, H200, Ada, L4, Blackwell; B200 from SemiAnalysis' microbenchmarks
//!   (`microbench-blackwell`, 2026-05) and chipsandcheese. The clock is the one that the chip's
//!   published tensor peak implies;
//! - DRAM bandwidth achieved: H200 4300 GB/s of a copy (one measurement, 2026-10), B200 7200 GB/s of
//!   reads (SemiAnalysis); the others are published figures of bandwidth benchmarks, not measured again;
//! - L2 bandwidth: A100 and H200 from `gpu-benches` (te42kyfo, 2024-06; the H200's figure contains hits of
//!   the first level, so less is taken), B200 and RTX 4090 published; L4 and RTX 5090 scaled from the
//!   4090 by multiprocessors and clock;
//! - load latency: pointer chases of `gpu-benches` (A100 570, H100 655, L40 631 clocks), B200 the loaded
//!   `cp.async` median of SemiAnalysis; RTX 5090 as the L40;
//! - fill rate (L2 to shared memory, one multiprocessor): B200 fitted to public main-loop timings, H100 and
//!   H200 published, the others as the A100;
//! - step of a loop: fits to the B200 timings give 0 to 10 clocks; 10 everywhere;
//! - launch: `gpu-benches` (A100, H200, L40); B200 as the H200, the GeForce cards as the L40;
//! - matrix units: intervals that ptxas schedules with (`mma.sync`), half of N (`wgmma`, from 4096
//!   flop/clock), SemiAnalysis (`tcgen05`); GeForce halves the rate with f32 sums, which ptxas does not
//!   model;
//! - sustained share of the clock under matrix load: one measurement on an H200 (769 to 798 of 989 Tflop/s
//!   on random data); taken for H100 and B200 too, 1 elsewhere for want of a measurement.

use crate::Target;

/// How matrix products are issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MatrixUnit {
    /// `mma.sync`: clocks between two m16n8k16 (bf16) of one scheduler.
    MmaSync {
        /// Of m16n8k16 with f32 sums.
        interval_clk: f64,
    },
    /// `wgmma`: N/2 clocks for m64nNk16.
    Wgmma,
    /// `tcgen05` of one block, both operands in shared memory.
    Tcgen05,
}

/// Clocks of a multiprocessor for a tile's product of one k step of 32 bytes (16 bf16, 32 fp8).
impl MatrixUnit {
    /// For a tile of `m` × `n`.
    pub fn interval_clk(self, m: f64, n: f64) -> f64 {
        match self {
            // Four schedulers share the tile's m16n8 pieces.
            MatrixUnit::MmaSync { interval_clk } => {
                (m / 16.0).ceil() * (n / 8.0).ceil() * interval_clk / 4.0
            }
            MatrixUnit::Wgmma => (m / 64.0).ceil() * n / 2.0,
            // Below N = 128 reading A from shared memory bounds M = 128; 32 clocks is the least.
            MatrixUnit::Tcgen05 => {
                let operand = if m >= 128.0 { 32.0 + n / 4.0 } else { 32.0 };
                (n / 2.0).max(operand)
            }
        }
    }
}

/// What the model knows of a GPU. Rates of a multiprocessor are per clock, those of the chip per ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuChip {
    /// As on the command line: `h200`.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// What kernels for it are made for; limits of a multiprocessor are this row's.
    pub target: Target,
    /// Multiprocessors.
    pub n_sms: f64,
    /// Clocks per ns.
    pub clk_per_ns: f64,
    /// Fused multiply-adds of f32 that a multiprocessor begins in a clock.
    pub fma_per_clk: f64,
    /// Matrix products.
    pub matrix: MatrixUnit,
    /// Share of the clock that stays under matrix load.
    pub matrix_sustained: f64,
    /// Bytes of shared memory (or of the first-level cache) per clock.
    pub shared_bytes_per_clk: f64,
    /// Bytes per clock from L2 to one multiprocessor, in rows of 128 bytes.
    pub fill_bytes_per_clk: f64,
    /// From the request to the data, for tiles.
    pub load_clk: f64,
    /// What one iteration of a tiled loop costs beside its work.
    pub step_clk: f64,
    /// Bytes of L2.
    pub l2_bytes: f64,
    /// Bytes per ns that L2 gives all multiprocessors.
    pub l2_bytes_per_ns: f64,
    /// Bytes per ns that memory gives, at best.
    pub dram_bytes_per_ns: f64,
    /// One launch in a stream.
    pub launch_ns: f64,
    /// One launch in a graph.
    pub graph_launch_ns: f64,
}

const MIB: f64 = 1024.0 * 1024.0;

macro_rules! gpus {
    ($($chip:ident $name:literal $title:literal $target:ident $sms:literal $mhz:literal $fma:literal $matrix:expr, $sustained:literal
       $fill:literal $load:literal $step:literal $l2_mib:literal $l2_gbs:literal $dram_gbs:literal $launch:literal $graph:literal;)+) => {
        $(
            #[doc = concat!("The ", $title, ".")]
            pub const $chip: GpuChip = GpuChip {
                name: $name,
                title: $title,
                target: Target::$target,
                n_sms: $sms,
                clk_per_ns: $mhz / 1000.0,
                fma_per_clk: $fma,
                matrix: $matrix,
                matrix_sustained: $sustained,
                shared_bytes_per_clk: 128.0,
                fill_bytes_per_clk: $fill,
                load_clk: $load,
                step_clk: $step,
                l2_bytes: $l2_mib * MIB,
                l2_bytes_per_ns: $l2_gbs,
                dram_bytes_per_ns: $dram_gbs,
                launch_ns: $launch,
                graph_launch_ns: $graph,
            };
        )+

        /// All of them.
        pub const GPUS: &[GpuChip] = &[$($chip),+];
    };
}

use MatrixUnit::{MmaSync, Tcgen05, Wgmma};

#[rustfmt::skip] // One chip per row.
gpus! {
    // chip   name       title              target SMs    MHz     FMA    matrix unit                        sust. fill  load    step  L2 MiB L2 GB/s   DRAM    launch  graph, ns
    A100     "a100"     "A100 SXM 80 GB"    Sm80   108.0  1410.0  64.0   MmaSync { interval_clk: 8.0 },     1.0   48.0  570.0   10.0   40.0  5400.0   1750.0  2620.0  1350.0;
    H100     "h100"     "H100 SXM"          Sm90a  132.0  1830.0 128.0   Wgmma,                             0.8   64.0  655.0   10.0   50.0  5500.0   3000.0  2480.0  1270.0;
    H200     "h200"     "H200"              Sm90a  132.0  1830.0 128.0   Wgmma,                             0.8   64.0  655.0   10.0   50.0  6000.0   4300.0  2480.0  1270.0;
    B200     "b200"     "B200"              Sm100a 148.0  1856.0 128.0   Tcgen05,                           0.8   81.0 1100.0   10.0  126.5 12000.0   7200.0  2480.0  1270.0;
    RTX4090  "rtx4090"  "GeForce RTX 4090"  Sm89   128.0  2520.0 128.0   MmaSync { interval_clk: 32.0 },    1.0   48.0  631.0   10.0   72.0  5000.0    920.0  1590.0   960.0;
    L4       "l4"       "L4"                Sm89    58.0  2040.0 128.0   MmaSync { interval_clk: 16.0 },    1.0   48.0  631.0   10.0   48.0  1800.0    260.0  1590.0   960.0;
    RTX5090  "rtx5090"  "GeForce RTX 5090"  Sm120  170.0  2407.0 128.0   MmaSync { interval_clk: 32.0 },    1.0   48.0  631.0   10.0   96.0  6300.0   1650.0  1590.0   960.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_follow_from_the_rows() {
        // TFLOP/s of f32 and of bf16 products, against the data sheets, within 3 %.
        let published = [
            ("a100", 19.5, 312.0),
            ("h100", 61.8, 989.0), // 66.9 at 1980 MHz; this row has the clock of the tensor peak.
            ("h200", 61.8, 989.0),
            ("b200", 70.3, 2250.0), // 75 at boost.
            ("rtx4090", 82.6, 165.2),
            ("l4", 30.3, 121.0),
            ("rtx5090", 104.8, 209.5),
        ];
        for (chip, (name, f32_tflops, bf16_tflops)) in GPUS.iter().zip(published) {
            assert_eq!(chip.name, name);
            let per_clk = chip.n_sms * chip.clk_per_ns / 1000.0;
            let f32 = 2.0 * chip.fma_per_clk * per_clk;
            let (m, n) = (128.0, 256.0);
            let bf16 = 2.0 * m * n * 16.0 / chip.matrix.interval_clk(m, n) * per_clk;
            assert!((f32 / f32_tflops - 1.0).abs() < 0.03, "{name}: f32 {f32}");
            assert!((bf16 / bf16_tflops - 1.0).abs() < 0.03, "{name}: bf16 {bf16}");
        }
    }

    #[test]
    fn the_b200_intervals_are_those_measured() {
        // SemiAnalysis, umma_throughput: M128N256 128.6, M128N128 64.6, M128N64 48.6 clocks.
        for (n, measured) in [(256.0, 128.6), (128.0, 64.6), (64.0, 48.6)] {
            let clk = B200.matrix.interval_clk(128.0, n);
            assert!((clk / measured - 1.0).abs() < 0.02, "{n}: {clk}");
        }
    }
}
