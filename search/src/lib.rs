//! The search: from a job to an engine, with the evidence for every choice.

pub mod agents;
pub mod assemble;
mod compile;
mod costs;
pub mod evidence;
mod floor;
mod job;
pub mod lessons;
mod moves;
mod phases;
mod progress;
mod race;
mod random;
mod recipe;
mod report;
mod select;
pub mod swarm;
mod user_rules;
pub mod workshop;

pub use compile::{CompileError, compile};
pub use costs::{Costs, CostsRecord};
pub use job::{Budget, Job, Objective};
pub use moves::{CodegenMoves, OTHER_FAMILY, other_families};
pub use phases::{Phase, PhaseReport, Phases};
pub use progress::{Progress, ProgressMode, Snapshot};
pub use race::random_input;
pub use random::SplitMix;
pub use report::{Report, SearchReport, Speedup};
pub use swarm::Strategy;
