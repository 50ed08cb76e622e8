//! The launch plan: what an engine executes, in which order, on which bytes.
//!
//! Buffers that live only between kernels share one arena. [`plan_arena`] places them so that two
//! buffers that are needed at the same time never overlap; a buffer that is a part of another one
//! (the pieces of a concatenation, a view) lives inside it.

mod arena;

pub use arena::{ARENA_ALIGN_BYTES, ArenaError, ArenaPlan, BufferLife, Part, plan_arena};

use eggine_ir::DType;
use serde::{Deserialize, Serialize};

use crate::device::LaunchAttributes;

/// Name, element type and extents of a model input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoSpec {
    /// In the model's words.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub extents: Vec<usize>,
}

impl IoSpec {
    /// Bytes of a contiguous tensor.
    pub fn n_bytes(&self) -> usize {
        self.dtype.bytes_for(self.extents.iter().product())
    }

    /// As `f32[1,3,224,224]`.
    pub fn ty(&self) -> eggine_ir::TensorType {
        eggine_ir::TensorType::fixed(self.dtype, &self.extents)
    }
}

/// `x: f32[1,3,224,224]`
impl std::fmt::Display for IoSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.ty())
    }
}

/// The bytes that a kernel parameter points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arg {
    /// A model input, all of it.
    Input(usize),
    /// A model output, all of it.
    Output(usize),
    /// A part of a model input: a view.
    InputPart {
        /// Which input.
        index: usize,
        /// First byte.
        offset_bytes: u64,
        /// Length.
        n_bytes: u64,
    },
    /// A part of a model output: a piece of a concatenation.
    OutputPart {
        /// Which output.
        index: usize,
        /// First byte.
        offset_bytes: u64,
        /// Length.
        n_bytes: u64,
    },
    /// A buffer between kernels.
    Arena {
        /// First byte in the arena.
        offset_bytes: u64,
        /// Length.
        n_bytes: u64,
    },
    /// Bytes known at compile time.
    Weight {
        /// First byte in the weights section.
        offset_bytes: u64,
        /// Length.
        n_bytes: u64,
    },
}

/// A kernel of the plan; several steps may launch it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelPlan {
    /// Name of the `.entry` in the kernel's PTX.
    pub entry: String,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Number of parameters.
    pub n_params: usize,
    /// What its launches ask for besides.
    #[serde(default, skip_serializing_if = "LaunchAttributes::is_plain")]
    pub attributes: LaunchAttributes,
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Index of the kernel.
    pub kernel: usize,
    /// One per parameter, in order.
    pub args: Vec<Arg>,
    /// Names of the model's nodes that this launch computes, sorted.
    pub sources: Vec<String>,
}

/// An output that no kernel writes: it *is* an input, a weight or another output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputAlias {
    /// Which output.
    pub output: usize,
    /// Whose bytes it has after the last step.
    pub source: Arg,
}

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Inputs, in the model's order.
    pub inputs: Vec<IoSpec>,
    /// Outputs, in the model's order.
    pub outputs: Vec<IoSpec>,
    /// Kernels; the PTX of kernel `i` is the engine's `i`-th text.
    pub kernels: Vec<KernelPlan>,
    /// Launches, in order.
    pub steps: Vec<Step>,
    /// Outputs that are copies.
    pub aliases: Vec<OutputAlias>,
    /// Size of the arena.
    pub arena_bytes: u64,
    /// Size of the weights section.
    pub weights_bytes: u64,
}

/// A plan that cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Unknown kernel.
    #[error("step {step} launches kernel {kernel} of {n_kernels}")]
    NoSuchKernel {
        /// Index of the step.
        step: usize,
        /// What it names.
        kernel: usize,
        /// How many there are.
        n_kernels: usize,
    },
    /// Wrong number of arguments.
    #[error("step {step}: kernel `{entry}` takes {n_params} parameters, the step gives {n_args}")]
    Arity {
        /// Index of the step.
        step: usize,
        /// Name of the kernel.
        entry: String,
        /// What the kernel takes.
        n_params: usize,
        /// What the step gives.
        n_args: usize,
    },
    /// An argument outside the place that it names.
    #[error("{at}: {arg:?} is outside of its place, which has {available}")]
    Bounds {
        /// Step and argument.
        at: String,
        /// The argument.
        arg: Arg,
        /// `3 inputs`, `4096 bytes`, …
        available: String,
    },
    /// Nothing gives an output its contents.
    #[error("output {output} (`{name}`) is neither written nor a copy")]
    Unwritten {
        /// Index.
        output: usize,
        /// Name.
        name: String,
    },
    /// A launch that no device accepts.
    #[error("kernel `{entry}`: grid {grid:?}, block {block:?}")]
    Launch {
        /// Name of the kernel.
        entry: String,
        /// Blocks.
        grid: [u32; 3],
        /// Threads.
        block: [u32; 3],
    },
    /// Attributes of a launch that no device accepts.
    #[error("kernel `{entry}`: {reason}")]
    Attributes {
        /// Name of the kernel.
        entry: String,
        /// What is wrong with them.
        reason: String,
    },
}

impl Plan {
    /// Checks that every step can be executed: kernels and places exist, ranges lie inside them.
    ///
    /// # Errors
    ///
    /// The first violation.
    pub fn verify(&self) -> Result<(), PlanError> {
        for kernel in &self.kernels {
            let n_threads = kernel.block.iter().map(|&n| u64::from(n)).product::<u64>();
            if kernel.grid.contains(&0) || n_threads == 0 || n_threads > 1024 {
                let KernelPlan { entry, grid, block, .. } = kernel.clone();
                return Err(PlanError::Launch { entry, grid, block });
            }
            if let Some(reason) = kernel.attributes.problem(kernel.grid) {
                return Err(PlanError::Attributes { entry: kernel.entry.clone(), reason });
            }
        }
        let mut given = vec![false; self.outputs.len()];
        for (index, step) in self.steps.iter().enumerate() {
            let Some(kernel) = self.kernels.get(step.kernel) else {
                let n_kernels = self.kernels.len();
                return Err(PlanError::NoSuchKernel {
                    step: index,
                    kernel: step.kernel,
                    n_kernels,
                });
            };
            if kernel.n_params != step.args.len() {
                let (entry, n_params) = (kernel.entry.clone(), kernel.n_params);
                return Err(PlanError::Arity {
                    step: index,
                    entry,
                    n_params,
                    n_args: step.args.len(),
                });
            }
            for (nth, &arg) in step.args.iter().enumerate() {
                self.check_bounds(arg, || format!("step {index}, argument {nth}"))?;
                if let Arg::Output(output) | Arg::OutputPart { index: output, .. } = arg {
                    given[output] = true;
                }
            }
        }
        for alias in &self.aliases {
            self.check_bounds(Arg::Output(alias.output), || "copy".into())?;
            self.check_bounds(alias.source, || format!("copy to output {}", alias.output))?;
            given[alias.output] = true;
        }
        match given.iter().zip(&self.outputs).position(|(given, spec)| !given && spec.n_bytes() > 0)
        {
            Some(output) => {
                Err(PlanError::Unwritten { output, name: self.outputs[output].name.clone() })
            }
            None => Ok(()),
        }
    }

    fn check_bounds(&self, arg: Arg, at: impl Fn() -> String) -> Result<(), PlanError> {
        let outside = |available: String| Err(PlanError::Bounds { at: at(), arg, available });
        let within = |offset: u64, n_bytes: u64, end: u64| match offset.checked_add(n_bytes) {
            Some(last) if last <= end => Ok(()),
            _ => outside(format!("{end} bytes")),
        };
        match arg {
            Arg::Input(i) if i >= self.inputs.len() => {
                outside(format!("{} inputs", self.inputs.len()))
            }
            Arg::Output(i) if i >= self.outputs.len() => {
                outside(format!("{} outputs", self.outputs.len()))
            }
            Arg::Input(_) | Arg::Output(_) => Ok(()),
            Arg::InputPart { index, offset_bytes, n_bytes } => match self.inputs.get(index) {
                None => outside(format!("{} inputs", self.inputs.len())),
                Some(spec) => within(offset_bytes, n_bytes, spec.n_bytes() as u64),
            },
            Arg::OutputPart { index, offset_bytes, n_bytes } => match self.outputs.get(index) {
                None => outside(format!("{} outputs", self.outputs.len())),
                Some(spec) => within(offset_bytes, n_bytes, spec.n_bytes() as u64),
            },
            Arg::Arena { offset_bytes, n_bytes } => within(offset_bytes, n_bytes, self.arena_bytes),
            Arg::Weight { offset_bytes, n_bytes } => {
                within(offset_bytes, n_bytes, self.weights_bytes)
            }
        }
    }
}
