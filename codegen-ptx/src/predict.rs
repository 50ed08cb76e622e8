//! The static model: what a kernel computes and moves, and how long a chip needs for it.
//!
//! It ranks schedules and families; it is not a clock. The cpu device has a roofline ([`cpu`]); GPUs have
//! a model of blocks, waves and loops ([`pipeline`]) over one row of facts a chip ([`chips`]). How far
//! to believe the latter is in [`mainloops`]: judged against public timings of a B200.

pub mod chips;
pub mod cpu;
pub mod fit;
mod gpu;
pub mod mainloops;
pub mod pipeline;
pub mod rank;
mod work;

use eggine_ir::Region;
use eggine_ir::schedule::Schedule;

pub use chips::GpuChip;
pub use cpu::CpuChip;
pub(crate) use work::{MAX_VISITS, ops_of};
pub use work::{Work, thread_work};

/// What the model knows of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Chip {
    /// The cpu device.
    Cpu(CpuChip),
    /// A GPU.
    Gpu(GpuChip),
}

/// The cpu device on one core with AVX-512.
pub const CPU_DEVICE: Chip = Chip::Cpu(cpu::CPU_CHIP);

/// The H200's row of [`chips`].
pub const H200: Chip = Chip::Gpu(chips::H200);

impl Chip {
    /// Name, as in evidence and on the command line: `h200`.
    pub fn name(&self) -> &'static str {
        match self {
            Chip::Cpu(chip) => chip.name,
            Chip::Gpu(chip) => chip.name,
        }
    }

    /// What kernels for a GPU are made for.
    pub fn target(&self) -> Option<crate::Target> {
        match self {
            Chip::Cpu(_) => None,
            Chip::Gpu(chip) => Some(chip.target),
        }
    }

    /// The constants that a calibration refits, by name.
    pub fn constants(&self) -> Vec<(&'static str, f64)> {
        match self {
            Chip::Cpu(it) => vec![
                ("flops_per_ns", it.flops_per_ns),
                ("ops_per_ns", it.ops_per_ns),
                ("loads_per_ns", it.loads_per_ns),
                ("bytes_per_ns", it.bytes_per_ns),
                ("step_ns", it.step_ns),
                ("launch_ns", it.launch_ns),
            ],
            Chip::Gpu(it) => vec![
                ("fma_per_clk", it.fma_per_clk),
                ("shared_bytes_per_clk", it.shared_bytes_per_clk),
                ("fill_bytes_per_clk", it.fill_bytes_per_clk),
                ("load_clk", it.load_clk),
                ("step_clk", it.step_clk),
                ("l2_bytes_per_ns", it.l2_bytes_per_ns),
                ("dram_bytes_per_ns", it.dram_bytes_per_ns),
                ("launch_ns", it.launch_ns),
            ],
        }
    }

    /// The chip with other [`constants`](Self::constants), in their order.
    ///
    /// # Panics
    ///
    /// If there are not as many values as constants.
    pub fn with_constants(&self, values: &[f64]) -> Chip {
        match (*self, values) {
            (
                Chip::Cpu(it),
                &[flops_per_ns, ops_per_ns, loads_per_ns, bytes_per_ns, step_ns, launch_ns],
            ) => Chip::Cpu(CpuChip {
                flops_per_ns,
                ops_per_ns,
                loads_per_ns,
                bytes_per_ns,
                step_ns,
                launch_ns,
                ..it
            }),
            (Chip::Gpu(it), &[fma, shared, fill, load_clk, step_clk, l2, dram, launch_ns]) => {
                Chip::Gpu(GpuChip {
                    fma_per_clk: fma,
                    shared_bytes_per_clk: shared,
                    fill_bytes_per_clk: fill,
                    load_clk,
                    step_clk,
                    l2_bytes_per_ns: l2,
                    dram_bytes_per_ns: dram,
                    launch_ns,
                    ..it
                })
            }
            _ => panic!("one value for each constant"),
        }
    }

    /// The GPU of that name.
    ///
    /// # Errors
    ///
    /// [`UnknownChip`], which lists those that there are.
    pub fn gpu(name: &str) -> Result<Chip, UnknownChip> {
        let found = chips::GPUS.iter().find(|chip| chip.name == name);
        found.copied().map(Chip::Gpu).ok_or_else(|| UnknownChip { name: name.to_owned() })
    }
}

/// A name that is no row of the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the static model knows no chip `{name}`; it knows {}", known())]
pub struct UnknownChip {
    /// What was asked for.
    pub name: String,
}

fn known() -> String {
    chips::GPUS.iter().map(|chip| chip.name).collect::<Vec<_>>().join(", ")
}

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

/// What the model says of a region under a schedule; `None` if the family cannot do it.
pub fn predict(region: &Region, schedule: &Schedule, chip: &Chip) -> Option<Prediction> {
    match chip {
        Chip::Cpu(chip) => cpu::predict(region, schedule, chip),
        Chip::Gpu(chip) => gpu::predict(region, schedule, chip),
    }
}
