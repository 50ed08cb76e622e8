//! The cover of a model from the covers of its segments: each instance of a segment gets its own tensors,
//! equal regions are one.

use std::collections::BTreeMap;
use std::sync::Arc;

use cranelift_entity::{EntityRef, PrimaryMap};
use eggine_ir::graph::eval::{self, Rounding};
use eggine_ir::{Graph, NodeKind, Region, Tensor, TensorType, Value};

use super::{Part, PartDef, Prepared, SegmentCover};
use crate::agent::AgentLog;
use crate::cover::{Cover, RegionId, TensorDef, TensorId};
use crate::derivation::Derivation;
use crate::segment::Instance;

/// A cover of the model under construction.
struct Assembly<'a> {
    graph: &'a Graph,
    cover: Cover,
    region_of: BTreeMap<String, RegionId>,
    tensor_of: BTreeMap<Value, TensorId>,
}

impl Assembly<'_> {
    fn push(&mut self, def: TensorDef, ty: TensorType) -> TensorId {
        self.cover.types.push(ty);
        self.cover.tensors.push(def)
    }

    /// The tensor of a value that no segment computes: an input, or known at compile time.
    fn given(&mut self, value: Value) -> TensorId {
        if let Some(&tensor) = self.tensor_of.get(&value) {
            return tensor;
        }
        let node = &self.graph.nodes[value];
        let def = match &node.kind {
            NodeKind::Input { .. } => {
                let index =
                    self.graph.inputs().position(|input| input == value).expect("it is an input");
                TensorDef::Input(index)
            }
            NodeKind::Const(tensor) => TensorDef::Const(tensor.clone()),
            NodeKind::Apply(op, attrs, args) => {
                let args: Vec<TensorId> = args.iter().map(|&arg| self.given(arg)).collect();
                let args: Vec<&Tensor> = (args.iter())
                    .map(|arg| match &self.cover.tensors[*arg] {
                        TensorDef::Const(tensor) => tensor,
                        _ => unreachable!("what is computed at run time belongs to a segment"),
                    })
                    .collect();
                TensorDef::Const(eval::fold(*op, attrs, &args).expect("the graph is well-typed"))
            }
        };
        let tensor = self.push(def, node.ty.clone());
        self.tensor_of.insert(value, tensor);
        tensor
    }

    /// What is made of weights alone: computed here, or, of weights that come with the inputs, by a
    /// kernel.
    fn known(&mut self, region: &Region, args: Vec<TensorId>) -> TensorDef {
        let constant = |arg: &TensorId| match &self.cover.tensors[*arg] {
            TensorDef::Const(tensor) => Some(tensor.clone()),
            _ => None,
        };
        if let Some(args) = args.iter().map(constant).collect::<Option<Vec<Tensor>>>() {
            let value = eval::eval(&region.graph, &args, Rounding::PerOp)[0].to_tensor();
            return TensorDef::Const(value);
        }
        let (region, order) = region.canonical();
        let regions = &mut self.cover.regions;
        let id = *self.region_of.entry(region.hash_hex()).or_insert_with(|| regions.push(region));
        let args = order.iter().map(|&i| args[i]).collect();
        TensorDef::Kernel { region: id, output: 0, args, sources: Vec::new() }
    }

    fn instantiate(&mut self, instance: &Instance, segment: &SegmentCover) {
        let mut placed: Vec<TensorId> = Vec::with_capacity(segment.parts.len());
        for Part { ty, def } in &segment.parts {
            let tensor = match def {
                PartDef::Given(value) => self.given(instance.values[value.index()]),
                PartDef::Known { region, args } => {
                    let args: Vec<TensorId> = args.iter().map(|&arg| placed[arg]).collect();
                    let def = self.known(region, args);
                    self.push(def, ty.clone())
                }
                PartDef::View(of) => self.push(TensorDef::View { of: placed[*of] }, ty.clone()),
                PartDef::Join(axis, parts) => {
                    let parts = parts.iter().map(|&part| placed[part]).collect();
                    self.push(TensorDef::Join { axis: *axis, parts }, ty.clone())
                }
                PartDef::Kernel { region, args, values, claim } => {
                    let regions = &mut self.cover.regions;
                    let id = *(self.region_of.entry(region.hash_hex()))
                        .or_insert_with(|| regions.push(region.clone()));
                    let names = values.iter().flat_map(|value| {
                        self.graph.nodes[instance.values[value.index()]].sources.iter().cloned()
                    });
                    let mut sources: Vec<String> = names.collect();
                    sources.sort_unstable();
                    sources.dedup();
                    let args = args.iter().map(|&arg| placed[arg]).collect();
                    let tensor = self.push(
                        TensorDef::Kernel { region: id, output: 0, args, sources },
                        ty.clone(),
                    );
                    self.cover
                        .derivation
                        .kernels
                        .insert(tensor.as_u32(), (instance.segment, *claim));
                    tensor
                }
            };
            placed.push(tensor);
        }
        self.cover.cost_ns += segment.cost_ns;
        for (&value, &part) in segment.proof.graph.outputs.iter().zip(&segment.outputs) {
            self.tensor_of.insert(instance.values[value.index()], placed[part]);
        }
    }
}

impl Prepared<'_> {
    pub(super) fn assemble(&self, covers: &[&SegmentCover]) -> Cover {
        let mut logs: Vec<AgentLog> = Vec::new();
        for log in self.segments.iter().flat_map(|segment| &segment.saturation.agents) {
            match logs.iter_mut().find(|known| known.agent == log.agent) {
                Some(known) => {
                    known.n_proposed += log.n_proposed;
                    known.n_applied += log.n_applied;
                }
                None => logs.push(log.clone()),
            }
        }
        for log in &mut logs {
            log.n_used = covers.iter().filter_map(|cover| cover.used.get(log.agent)).sum();
            if self.recomputes == Some(log.agent) {
                let n: usize = covers.iter().map(|cover| cover.n_recomputed).sum();
                (log.n_proposed, log.n_applied, log.n_used) =
                    (log.n_proposed + n, log.n_applied + n, log.n_used + n);
            }
        }
        let cover = Cover {
            tensors: PrimaryMap::new(),
            types: PrimaryMap::new(),
            regions: PrimaryMap::new(),
            outputs: Vec::new(),
            cost_ns: 0.0,
            derivation: Derivation {
                segments: covers.iter().map(|cover| Arc::clone(&cover.proof)).collect(),
                kernels: BTreeMap::new(),
                sources: Arc::clone(&self.sources),
            },
            agents: logs,
        };
        let mut assembly = Assembly {
            graph: self.graph,
            cover,
            region_of: BTreeMap::new(),
            tensor_of: BTreeMap::new(),
        };
        // Inputs that nothing reads are tensors, too.
        for input in self.graph.inputs() {
            assembly.given(input);
        }
        for instance in &self.cut.instances {
            assembly.instantiate(instance, covers[instance.segment]);
        }
        let outputs: Vec<TensorId> =
            self.graph.outputs.iter().map(|&output| assembly.given(output)).collect();
        assembly.cover.outputs = outputs;
        assembly.cover
    }
}
