//! What an engine is and how it was made: the part of the file that people read.
//!
//! Inputs and outputs are in the plan, once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an engine is and how it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the model.
    pub model: String,
    /// blake3 of the model file and of the bound shapes.
    pub model_hash: String,
    /// What the PTX was emitted for: `sm_90a`.
    pub target: String,
    /// Identity of the device that it was measured on; `None` if everything is predicted.
    pub device: Option<String>,
    /// Options of the compilation, as given or by default.
    pub options: BTreeMap<String, String>,
    /// Version of the crate that wrote the file.
    pub eggine_version: String,
    /// Number of nodes in the model, before folding.
    pub n_model_nodes: usize,
    /// Chip whose static model ranked the schedules, if none was measured: `h200`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_for: Option<String>,
    /// What made the machine code that the taken schedules were predicted from, if any:
    /// `nvPTXCompiler 13.0 in this process`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_with: Option<String>,
    /// Machine code besides the PTX, one record a target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<CodeRecord>,
    /// How the arena was planned.
    pub arena: ArenaRecord,
    /// One record a kernel, in the plan's order.
    pub kernels: Vec<KernelRecord>,
    /// What the agents of the graph did, in the order in which their proposals were applied.
    #[serde(default)]
    pub graph_agents: Vec<GraphAgentRecord>,
    /// What the agents of the search did; empty without a search.
    #[serde(default)]
    pub agents: Vec<AgentRecord>,
}

/// What an agent of the graph e-graph did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphAgentRecord {
    /// Its name.
    pub agent: String,
    /// Applications of rules that it proposed.
    pub n_proposed: u64,
    /// Of these, such that changed the e-graph.
    pub n_applied: u64,
}

/// What an agent of a search did, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Its name.
    pub agent: String,
    /// Different candidates that it proposed.
    pub n_proposed: u64,
    /// Of these, judged.
    pub n_judged: u64,
    /// Of these, rejected.
    pub n_rejected: u64,
    /// Of these, better than the best before.
    pub n_better: u64,
    /// Time that these save in one inference, in ns.
    pub saved_ns: u64,
}

/// Machine code of all kernels for one target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRecord {
    /// What it runs on: `sm_90a`.
    pub target: String,
    /// What made it: `nvPTXCompiler 13.0`.
    pub assembler: String,
    /// Sizes of the kernels' cubins, in the plan's order.
    pub cubin_bytes: Vec<u64>,
}

/// How well the arena was planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArenaRecord {
    /// Size.
    pub arena_bytes: u64,
    /// Most bytes that are live at one step: no plan needs less.
    pub live_peak_bytes: u64,
    /// What it would take without reuse.
    pub sum_bytes: u64,
}

/// Where a kernel comes from, and what is known about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelRecord {
    /// Name of the `.entry`.
    pub name: String,
    /// Kernel family: `contraction`.
    pub family: String,
    /// What it computes, as canonical graph text.
    pub region: String,
    /// Hash of the region.
    pub region_hash: String,
    /// The schedule, as text.
    pub schedule: String,
    /// [`hash_text`](super::hash_text) of its PTX.
    pub ptx_hash: String,
    /// Names of the model's nodes that its launches compute, sorted.
    pub sources: Vec<String>,
    /// Names of the rules from the source graph to the region, in order of application.
    pub rules: Vec<String>,
    /// Which agent proposed the schedule.
    pub agent: String,
    /// What the static model says about one launch.
    pub predicted_ns: Option<f64>,
    /// Median of the samples of one launch.
    pub measured_ns: Option<f64>,
    /// Verdict of the verification: `accepted`; `None` if it was not verified.
    pub verdict: Option<String>,
    /// Largest error over the error that a plain kernel may make: at most 1 if accepted.
    pub error_ratio: Option<f64>,
}
