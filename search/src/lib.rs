//! The search: from a job to an engine, with the evidence for every choice.

pub mod agents;
pub mod assemble;
mod calibrate;
mod compile;
mod complete;
mod costs;
pub mod evidence;
pub mod extents;
pub mod external;
mod floor;
pub mod gate;
mod job;
pub mod lessons;
mod memory;
mod moves;
pub mod nearby;
mod phases;
pub mod program;
mod progress;
mod race;
mod random;
mod rank;
mod recipe;
mod report;
mod select;
mod selftest;
pub mod swarm;
mod targets;
mod user_rules;
mod wide;
pub mod workshop;

pub use calibrate::{
    CalibrateError, Calibration, Constant, Isolated, Probe, calibrate, calibrated, chip_of,
    keep as keep_calibration,
};
pub use compile::{CompileError, Source, compile, compile_imported};
pub use complete::{TuneError, TuneJob, TuneReport, complete};
pub use costs::{Costs, CostsRecord};
pub use job::{Budget, Job, Objective};
pub use memory::{Quarantined, kind_of};
pub use moves::{CodegenMoves, OTHER_FAMILY, other_families};
pub use phases::{Phase, PhaseReport, Phases};
pub use program::{
    ProgramCompileError, ProgramReport, Specialiser, compile_program, launches as trace_launches,
    lines as trace_lines,
};
pub use progress::{Progress, ProgressMode, Snapshot};
pub use race::random_input;
pub use random::SplitMix;
pub use report::{PredictedReport, Report, SearchReport, Speedup};
pub use selftest::{SelfTest, regions_of, selftest};
pub use swarm::Strategy;
pub use targets::{add_code, oldest, parse_targets};
