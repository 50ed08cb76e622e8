//! The search: from a job to an engine, with the evidence for every choice.

pub mod assemble;
mod compile;
mod costs;
pub mod evidence;
mod job;
mod lab;
mod moves;
mod phases;
mod progress;
mod race;
mod report;
pub mod tune;
pub mod workshop;

pub use compile::{CompileError, compile};
pub use costs::Costs;
pub use job::{Budget, Job};
pub use moves::CodegenMoves;
pub use phases::{Phase, PhaseReport, Phases};
pub use progress::{Progress, ProgressMode, Snapshot};
pub use race::random_input;
pub use report::{Report, Speedup};
