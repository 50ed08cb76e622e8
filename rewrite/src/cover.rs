//! A cover: which tensors of a model are materialised, and what computes each.

use std::collections::BTreeMap;

use cranelift_entity::{PrimaryMap, entity_impl};
use eggine_ir::graph::eval::{self, Rounding};
use eggine_ir::{Region, Tensor, TensorType};

use crate::agent::AgentLog;
use crate::derivation::Derivation;

/// A tensor of a [`Cover`]. Prints as `t3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(u32);
entity_impl!(TensorId, "t");

/// A region of a [`Cover`]. Prints as `r3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(u32);
entity_impl!(RegionId, "r");

/// Where a tensor comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorDef {
    /// The model's input of this number.
    Input(usize),
    /// Known at compile time.
    Const(Tensor),
    /// A kernel's result.
    Kernel {
        /// What it computes.
        region: RegionId,
        /// Which of the region's outputs this is.
        output: usize,
        /// The region's inputs, in order.
        args: Vec<TensorId>,
        /// Names of the model's nodes that it computes, sorted.
        sources: Vec<String>,
    },
    /// The same memory under another shape.
    View {
        /// Whose memory.
        of: TensorId,
    },
    /// The memory of its parts, which lie side by side in it: no dimension outside the axis has an
    /// extent above 1, every part is a kernel's result, and is part of nothing else.
    Join {
        /// The axis along which they are joined.
        axis: usize,
        /// The parts, in order.
        parts: Vec<TensorId>,
    },
}

/// A way to compute a model.
#[derive(Clone, Debug)]
pub struct Cover {
    /// The tensors, in an order in which they can be computed.
    pub tensors: PrimaryMap<TensorId, TensorDef>,
    /// Type of each tensor.
    pub types: PrimaryMap<TensorId, TensorType>,
    /// The different regions.
    pub regions: PrimaryMap<RegionId, Region>,
    /// The model's outputs, in order.
    pub outputs: Vec<TensorId>,
    /// Sum of the kernels' expected times, in nanoseconds.
    pub cost_ns: f64,
    /// Why each region computes what it should.
    pub derivation: Derivation,
    /// What became of the agents' proposals, over all segments.
    pub agents: Vec<AgentLog>,
}

impl Cover {
    /// Number of kernel launches.
    pub fn n_kernels(&self) -> usize {
        self.kernels().count()
    }

    /// The tensors that kernels compute, with their regions, in order.
    pub fn kernels(&self) -> impl Iterator<Item = (TensorId, RegionId)> + '_ {
        self.tensors.iter().filter_map(|(tensor, def)| match def {
            TensorDef::Kernel { region, .. } => Some((tensor, *region)),
            _ => None,
        })
    }

    /// Evaluates the cover region by region with the reference evaluator: its meaning.
    ///
    /// # Panics
    ///
    /// If the inputs are not of the model's types.
    pub fn eval(&self, inputs: &[Tensor], rounding: Rounding) -> Vec<Tensor> {
        let mut values: BTreeMap<TensorId, Tensor> = BTreeMap::new();
        for (id, def) in self.tensors.iter() {
            let extents = self.types[id].extents();
            let value = match def {
                TensorDef::Input(index) => inputs[*index].clone(),
                TensorDef::Const(tensor) => tensor.clone(),
                TensorDef::View { of } => values[of].reshaped(&extents),
                TensorDef::Join { parts, .. } => {
                    let bytes: Vec<u8> =
                        parts.iter().flat_map(|part| values[part].bytes.to_vec()).collect();
                    Tensor::new(self.types[id].dtype, &extents, bytes)
                }
                TensorDef::Kernel { region, output, args, .. } => {
                    let args: Vec<Tensor> = args.iter().map(|arg| values[arg].clone()).collect();
                    eval::eval(&self.regions[*region].graph, &args, rounding)[*output].to_tensor()
                }
            };
            assert_eq!(value.ty(), self.types[id], "type of {id}");
            values.insert(id, value);
        }
        self.outputs.iter().map(|output| values[output].clone()).collect()
    }
}

impl std::fmt::Display for Cover {
    /// One line per tensor that is computed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list =
            |ids: &[TensorId]| ids.iter().map(TensorId::to_string).collect::<Vec<_>>().join(", ");
        for (id, def) in self.tensors.iter() {
            let ty = &self.types[id];
            match def {
                TensorDef::Input(index) => writeln!(f, "{id}: {ty} = input {index}")?,
                TensorDef::Const(_) => (),
                TensorDef::View { of } => writeln!(f, "{id}: {ty} = view {of}")?,
                TensorDef::Join { axis, parts } => {
                    writeln!(f, "{id}: {ty} = join[{axis}] {}", list(parts))?
                }
                TensorDef::Kernel { region, args, sources, .. } => {
                    writeln!(f, "{id}: {ty} = {region}({}) ; {}", list(args), sources.join(" "))?;
                }
            }
        }
        Ok(())
    }
}
