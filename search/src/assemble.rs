//! A cover and a kernel for each of its regions become an engine.
//!
//! Views share the memory of what they view, the parts of a join lie in the join, model outputs are
//! written where the caller reads them; everything else shares one arena.

use std::collections::{BTreeMap, BTreeSet};

use eggine_codegen_ptx::Binding;
use eggine_ir::{Schedule, Tensor};
use eggine_rewrite::agent::AgentLog;
use eggine_rewrite::{Cover, RegionId, TensorDef, TensorId};
use eggine_runtime::engine::{
    AgentRecord, ArenaRecord, GraphAgentRecord, KernelRecord, Manifest, WeightsBuilder,
};
use eggine_runtime::plan::{BufferLife, OutputAlias, Part, plan_arena};
use eggine_runtime::{
    Arg, EngineParts, IoSpec, KernelPlan, LaunchAttributes, Plan, Step, Verification,
};

use crate::workshop::{Prepared, Subject};

/// The kernel chosen for a region, with what is known about it.
pub struct Choice<'a> {
    /// The region.
    pub subject: &'a Subject,
    /// How it is computed.
    pub schedule: Schedule,
    /// The kernel.
    pub prepared: &'a Prepared,
    /// Who proposed the schedule.
    pub agent: String,
    /// Predicted time of a launch.
    pub predicted_ns: f64,
    /// Measured time of a launch.
    pub measured_ns: Option<f64>,
    /// How it was verified.
    pub verification: Verification,
}

/// What the manifest says beside the kernels.
pub struct Facts {
    /// Name of the model.
    pub model: String,
    /// Hash of the model and its shapes.
    pub model_hash: String,
    /// PTX target.
    pub target: String,
    /// Device that it was measured on.
    pub device: Option<String>,
    /// Chip that was predicted for instead.
    pub predicted_for: Option<String>,
    /// Options, by name.
    pub options: BTreeMap<String, String>,
    /// Nodes of the model.
    pub n_model_nodes: usize,
    /// Inputs, in order.
    pub inputs: Vec<IoSpec>,
    /// Outputs, in order.
    pub outputs: Vec<IoSpec>,
    /// Hashes of the rows that the choices rest on.
    pub evidence: Vec<String>,
    /// What the agents of the search did.
    pub agents: Vec<AgentRecord>,
}

/// Why a cover cannot be assembled: a bug of ours, reported instead of a panic.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A kernel has a parameter that the region cannot give.
    #[error("kernel `{kernel}`: {what}")]
    Binding {
        /// Its name.
        kernel: String,
        /// What does not fit.
        what: &'static str,
    },
    /// Memory cannot be planned.
    #[error("memory plan: {0}")]
    Arena(#[from] eggine_runtime::plan::ArenaError),
}

/// Puts an engine together.
///
/// # Errors
///
/// See [`AssembleError`].
pub fn assemble(
    cover: &Cover,
    choices: &BTreeMap<RegionId, Choice<'_>>,
    facts: Facts,
) -> Result<EngineParts, AssembleError> {
    let memory = Memory::plan(cover)?;
    let mut weights = WeightsBuilder::default();
    let mut packed: BTreeMap<(TensorId, String), Arg> = BTreeMap::new();
    let order: Vec<RegionId> = choices.keys().copied().collect();
    let mut steps = Vec::new();
    for (tensor, region) in cover.kernels() {
        let TensorDef::Kernel { args, sources, .. } = &cover.tensors[tensor] else {
            unreachable!("kernels() lists kernels");
        };
        let choice = &choices[&region];
        let name = &choice.prepared.lowered.kernel.name;
        let misfit = |what| AssembleError::Binding { kernel: name.clone(), what };
        let mut step_args = Vec::new();
        for binding in &choice.prepared.lowered.bindings {
            step_args.push(match binding {
                Binding::Output { index: 0 } => memory.arg(cover, tensor, &mut weights),
                Binding::Output { .. } => return Err(misfit("stores more than one output")),
                Binding::Table(table) => weights.push(table),
                Binding::Input { index, packing: None } => {
                    let arg = args
                        .get(*index)
                        .ok_or_else(|| misfit("loads an input that the region lacks"))?;
                    memory.arg(cover, *arg, &mut weights)
                }
                Binding::Input { index, packing: Some(packing) } => {
                    let arg = args
                        .get(*index)
                        .ok_or_else(|| misfit("loads an input that the region lacks"))?;
                    let source = constant(cover, *arg)
                        .ok_or_else(|| misfit("packs what is not a weight"))?;
                    let key = (*arg, format!("{packing:?}"));
                    *packed.entry(key).or_insert_with(|| weights.push(&packing.apply(&source)))
                }
            });
        }
        let kernel = order.iter().position(|it| *it == region).expect("every region has a choice");
        steps.push(Step { kernel, args: step_args, sources: sources.clone() });
    }
    let aliases = memory.aliases.iter().map(|&(output, tensor)| OutputAlias {
        output,
        source: memory.arg(cover, tensor, &mut weights),
    });
    let aliases = aliases.collect();
    let kernels = order.iter().map(|region| kernel_plan(choices[region].prepared)).collect();
    let records = order.iter().map(|region| record(cover, *region, &choices[region])).collect();
    let plan = Plan {
        inputs: facts.inputs,
        outputs: facts.outputs,
        kernels,
        steps,
        aliases,
        arena_bytes: memory.arena.arena_bytes,
        weights_bytes: weights.n_bytes(),
    };
    let manifest = Manifest {
        model: facts.model,
        model_hash: facts.model_hash,
        target: facts.target,
        device: facts.device,
        predicted_for: facts.predicted_for,
        predicted_with: None,
        code: Vec::new(),
        options: facts.options,
        eggine_version: env!("CARGO_PKG_VERSION").to_owned(),
        n_model_nodes: facts.n_model_nodes,
        arena: memory.arena,
        kernels: records,
        graph_agents: cover.agents.iter().map(graph_agent).collect(),
        agents: facts.agents,
    };
    Ok(EngineParts {
        manifest,
        plan,
        ptx: order.iter().map(|region| choices[region].prepared.ptx.clone()).collect(),
        weights: weights.finish(),
        report: order.iter().map(|region| choices[region].verification.clone()).collect(),
        evidence: facts.evidence,
        code: Vec::new(),
    })
}

fn graph_agent(log: &AgentLog) -> GraphAgentRecord {
    GraphAgentRecord {
        agent: log.agent.to_owned(),
        n_proposed: log.n_proposed as u64,
        n_applied: log.n_applied as u64,
    }
}

fn kernel_plan(prepared: &Prepared) -> KernelPlan {
    let kernel = &prepared.lowered.kernel;
    KernelPlan {
        entry: kernel.name.clone(),
        grid: kernel.grid,
        block: [kernel.n_threads, 1, 1],
        n_params: prepared.lowered.bindings.len(),
        attributes: LaunchAttributes::default(),
    }
}

fn record(cover: &Cover, region: RegionId, choice: &Choice<'_>) -> KernelRecord {
    let launches: Vec<TensorId> =
        cover.kernels().filter(|it| it.1 == region).map(|it| it.0).collect();
    let mut sources = BTreeSet::new();
    for &launch in &launches {
        if let TensorDef::Kernel { sources: names, .. } = &cover.tensors[launch] {
            sources.extend(names.iter().cloned());
        }
    }
    let rules = launches.first().map_or(&[][..], |&launch| cover.derivation.rules(launch));
    KernelRecord {
        name: choice.prepared.lowered.kernel.name.clone(),
        family: choice.schedule.family().to_owned(),
        region: choice.subject.region.to_string(),
        region_hash: choice.subject.hash.clone(),
        schedule: choice.schedule.to_string(),
        ptx_hash: choice.prepared.ptx_hash.clone(),
        sources: sources.into_iter().collect(),
        rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
        agent: choice.agent.clone(),
        predicted_ns: Some(choice.predicted_ns),
        measured_ns: choice.measured_ns,
        verdict: Some(choice.verification.verdict.name().to_owned()),
        error_ratio: Some(choice.verification.error_ratio()),
    }
}

/// The constant behind a tensor, seen through views.
fn constant(cover: &Cover, tensor: TensorId) -> Option<Tensor> {
    match &cover.tensors[tensor] {
        TensorDef::Const(it) => Some(it.clone()),
        TensorDef::View { of } => {
            Some(constant(cover, *of)?.reshaped(&cover.types[tensor].extents()))
        }
        _ => None,
    }
}

/// Where every tensor lies.
struct Memory {
    arena: ArenaRecord,
    places: BTreeMap<TensorId, Place>,
    /// Outputs that are copies of a tensor.
    aliases: Vec<(usize, TensorId)>,
}

#[derive(Clone, Copy)]
enum Place {
    Arena { offset_bytes: u64, n_bytes: u64 },
    Output { index: usize, offset_bytes: u64, n_bytes: u64, whole: bool },
}

/// Follows views to what they view.
fn base(cover: &Cover, mut tensor: TensorId) -> TensorId {
    while let TensorDef::View { of } = &cover.tensors[tensor] {
        tensor = *of;
    }
    tensor
}

impl Memory {
    fn plan(cover: &Cover) -> Result<Self, AssembleError> {
        let n_bytes = |tensor: TensorId| cover.types[tensor].n_bytes() as u64;
        // Parts of joins, and where they begin.
        let mut part_of: BTreeMap<TensorId, (TensorId, u64)> = BTreeMap::new();
        for (join, def) in cover.tensors.iter() {
            if let TensorDef::Join { parts, .. } = def {
                let mut offset = 0;
                for &part in parts {
                    part_of.insert(base(cover, part), (join, offset));
                    offset += n_bytes(part);
                }
            }
        }
        let root = |tensor: TensorId| {
            let (mut at, mut offset) = (base(cover, tensor), 0);
            while let Some(&(join, start)) = part_of.get(&at) {
                (at, offset) = (base(cover, join), offset + start);
            }
            (at, offset)
        };
        let computed = |tensor: TensorId| {
            matches!(cover.tensors[tensor], TensorDef::Kernel { .. } | TensorDef::Join { .. })
        };
        let mut output_of: BTreeMap<TensorId, usize> = BTreeMap::new();
        let mut aliases = Vec::new();
        for (index, &output) in cover.outputs.iter().enumerate() {
            let tensor = base(cover, output);
            if computed(tensor)
                && !part_of.contains_key(&tensor)
                && !output_of.contains_key(&tensor)
            {
                output_of.insert(tensor, index);
            } else {
                aliases.push((index, output));
            }
        }
        // Steps at which each root is written first and used last.
        let mut lives: BTreeMap<TensorId, (usize, usize)> = BTreeMap::new();
        let mut touch = |tensor: TensorId, step: usize| {
            let life = lives.entry(root(tensor).0).or_insert((step, step));
            (life.0, life.1) = (life.0.min(step), life.1.max(step));
        };
        for (step, (tensor, _)) in cover.kernels().enumerate() {
            touch(tensor, step);
            if let TensorDef::Kernel { args, .. } = &cover.tensors[tensor] {
                args.iter()
                    .filter(|&&arg| computed(base(cover, arg)))
                    .for_each(|&arg| touch(arg, step));
            }
        }
        let n_steps = cover.n_kernels();
        for &(_, tensor) in aliases.iter().filter(|(_, tensor)| computed(base(cover, *tensor))) {
            touch(tensor, n_steps);
        }
        let in_arena: Vec<TensorId> =
            lives.keys().copied().filter(|it| !output_of.contains_key(it)).collect();
        let buffers: Vec<BufferLife> = (in_arena.iter())
            .map(|&tensor| {
                let (first, last) = lives[&tensor];
                BufferLife { n_bytes: n_bytes(tensor), first, last, part_of: None::<Part> }
            })
            .collect();
        let plan = plan_arena(&buffers)?;
        let offsets: BTreeMap<TensorId, u64> =
            in_arena.into_iter().zip(plan.offsets_bytes.iter().copied()).collect();
        let mut places = BTreeMap::new();
        for tensor in cover.tensors.keys().filter(|&tensor| computed(tensor)) {
            let (owner, offset) = root(tensor);
            let n_bytes = n_bytes(tensor);
            let place = match (output_of.get(&owner), offsets.get(&owner)) {
                (Some(&index), _) => {
                    Place::Output { index, offset_bytes: offset, n_bytes, whole: owner == tensor }
                }
                (None, Some(start)) => Place::Arena { offset_bytes: start + offset, n_bytes },
                (None, None) => continue, // Nobody computes it.
            };
            places.insert(tensor, place);
        }
        let arena = ArenaRecord {
            arena_bytes: plan.arena_bytes,
            live_peak_bytes: plan.live_peak_bytes,
            sum_bytes: plan.sum_bytes,
        };
        Ok(Self { arena, places, aliases })
    }

    /// The bytes of a tensor.
    fn arg(&self, cover: &Cover, tensor: TensorId, weights: &mut WeightsBuilder) -> Arg {
        let tensor = base(cover, tensor);
        match &cover.tensors[tensor] {
            TensorDef::Input(index) => Arg::Input(*index),
            TensorDef::Const(it) => weights.push(it),
            _ => match self.places[&tensor] {
                Place::Arena { offset_bytes, n_bytes } => Arg::Arena { offset_bytes, n_bytes },
                Place::Output { index, whole: true, .. } => Arg::Output(index),
                Place::Output { index, offset_bytes, n_bytes, .. } => {
                    Arg::OutputPart { index, offset_bytes, n_bytes }
                }
            },
        }
    }
}
