//! What a compilation did, for people and for `--json`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::phases::PhaseReport;
use eggine_runtime::engine::AgentRecord;

/// The report of one compilation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The file written.
    pub engine: PathBuf,
    /// Its hash.
    pub engine_hash: String,
    /// Nodes of the model, before folding.
    pub n_model_nodes: usize,
    /// Launches of one inference.
    pub n_launches: usize,
    /// Different kernels.
    pub n_kernels: usize,
    /// Memory between kernels.
    pub arena_bytes: u64,
    /// Weights, packed.
    pub weights_bytes: u64,
    /// Regions that extraction asked the cost of.
    pub n_regions_priced: u64,
    /// Candidates judged in the search, from evidence or on the device.
    pub n_candidates: u64,
    /// Of these, verified and measured on the device in this run.
    pub n_measured: u64,
    /// Of these, rejected.
    pub n_rejected: u64,
    /// Measured candidates per second of search.
    pub measured_per_second: f64,
    /// Where the user's rules were applied, in the order in which fuel is counted.
    pub rule_firings: Vec<String>,
    /// What became of external agents, a line each, and what they did wrong.
    pub external: Vec<String>,
    /// Verdicts in the evidence, by kind.
    pub verdicts: Vec<(String, u64)>,
    /// The first choice against this engine, if both were measured.
    pub comparison: Option<Speedup>,
    /// What the static model was asked and says, if it ranked schedules instead of the device.
    pub predicted: Option<PredictedReport>,
    /// Targets of the machine code and what made it, or why there is none; nothing if none was asked for.
    pub machine_code: Option<String>,
    /// What the job's limits did, a line each.
    pub constraints: Vec<String>,
    /// What the agents did, if there was a search.
    pub search: Option<SearchReport>,
    /// With [`Job::resume`](crate::Job::resume): how far the search had come before.
    pub resumed: Option<String>,
    /// Regions that had to be measured although they are known under other conditions, and which differ.
    pub missed: Vec<String>,
    /// Whether an interrupt ended the search.
    pub interrupted: bool,
    /// Where the time went.
    pub phases: PhaseReport,
}

/// What a ranking by the static model led to. No number of it was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictedReport {
    /// The chip: `h200`.
    pub chip: String,
    /// Schedules ranked.
    pub n_ranked: u64,
    /// Of these, the leading few that were predicted again from their machine code.
    pub n_assembled: u64,
    /// What made that machine code.
    pub assembler: Option<String>,
    /// Predicted time of all launches of one inference, in ns.
    pub predicted_ns: f64,
}

/// Time of the budget-0 engine over time of the engine that was written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speedup {
    /// Median over interleaved rounds.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What the agents did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchReport {
    /// Who chose: `swarm` or `random`.
    pub strategy: String,
    /// Candidates judged, from evidence or measured.
    pub n_steps: u64,
    /// How often the mix of agents was changed because nothing was gained.
    pub n_restarts: u64,
    /// By agent.
    pub agents: Vec<AgentRecord>,
    /// Sum of the best launches of one inference, in ns, after so many candidates, whenever it changed.
    pub curve: Vec<(u64, u64)>,
}
