//! Programs: engines for the parts of a model whose shapes or course are only known when it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use eggine_ir::onnx::part::Model;
use eggine_ir::onnx::{ImportError, Imported};
use eggine_ir::{Region, Schedule};
use eggine_runtime::Engine;
use eggine_runtime::program::{
    Event, HostValue, InputRange, Program, ProgramError, ProgramManifest, Repeated, RunError,
    Session, Specialise, SpecialiseError, Trace,
};

use crate::compile::{CompileError, Source, compile_imported};
use crate::job::Job;
use crate::memory::kind_of;
use crate::progress::ProgressMode;
use crate::wide::widen;

/// Makes engines of parts as a job says.
pub struct Specialiser<'a> {
    job: Job,
    interrupt: &'a AtomicBool,
}

impl<'a> Specialiser<'a> {
    /// `job` says how: budget, device, evidence, target; its model is only a name here.
    pub fn new(job: Job, interrupt: &'a AtomicBool) -> Self {
        Self { job, interrupt }
    }

    /// As [`new`](Self::new), with the schedules that the program's engines were tuned to as candidates
    /// for the same kinds of kernels at other shapes: each is raced there against the first choice.
    pub fn for_program(mut job: Job, program: &Program, interrupt: &'a AtomicBool) -> Self {
        let tuned = program.engines().values().filter(|engine| engine.manifest.device.is_some());
        for kernel in tuned.flat_map(|engine| &engine.manifest.kernels) {
            // What another version wrote and this one does not read is no candidate.
            if let (Ok(region), Ok(schedule)) =
                (kernel.region.parse::<Region>(), kernel.schedule.parse::<Schedule>())
            {
                let known = job.hints.entry(kind_of(&region)).or_default();
                if !known.contains(&schedule) {
                    known.push(schedule);
                }
            }
        }
        Self { job, interrupt }
    }

    /// Schedules that are tried, over all kinds of kernels.
    pub fn n_hints(&self) -> usize {
        self.job.hints.values().map(Vec::len).sum()
    }
}

impl Specialise for Specialiser<'_> {
    fn engine(&mut self, part: &Imported, key: &str) -> Result<Engine, SpecialiseError> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("part.engine");
        let source = Source { imported: part, hash: key };
        compile_imported(&self.job, source, &file, self.interrupt)?;
        // Mapped: it stays although its name goes.
        Ok(Engine::open(&file)?)
    }
}

/// Why no program was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramCompileError {
    /// The model.
    #[error(transparent)]
    Model(#[from] ImportError),
    /// It does not run on the inputs that it was to be compiled for.
    #[error("the model does not run on {point}: {source}")]
    Run {
        /// Shapes of the inputs.
        point: String,
        /// Why.
        source: Box<RunError>,
    },
    /// The file.
    #[error(transparent)]
    File(#[from] ProgramError),
    /// An engine.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// What a program consists of.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ProgramReport {
    /// The file.
    pub program: std::path::PathBuf,
    /// Nodes of the model's main graph.
    pub n_model_nodes: usize,
    /// Engines in it.
    pub n_engines: usize,
    /// Distinct kernels of its engines.
    pub n_kernels: usize,
    /// Launches of a run on the first point.
    pub n_launches: usize,
    /// Nodes that the host computes or decides in it.
    pub n_host_steps: usize,
    /// Packed weights of its engines.
    pub weights_bytes: u64,
    /// Shapes that it was made for.
    pub points: Vec<String>,
    /// What a run on the first point does.
    pub trace: Vec<String>,
    /// Nodes that the host computes or decides in it.
    pub host_steps: Vec<String>,
    /// What serves the other shapes of its ranges, a line a part of the model.
    pub wide: Vec<String>,
}

/// Compiles a model for several points, each the inputs of one run, and writes the program: the model with
/// the engines that those runs need, and for each point (and the largest shapes) engines that serve all shapes
/// up to it, where the model allows that. What a run on other inputs needs is made when it runs.
///
/// # Errors
///
/// See [`ProgramCompileError`]; nothing is written then.
pub fn compile_program(
    job: &Job,
    points: &[Vec<HostValue>],
    ranges: Vec<InputRange>,
    output: &Path,
    interrupt: &AtomicBool,
) -> Result<ProgramReport, ProgramCompileError> {
    let model = Model::open(&job.model)?;
    let name = job.model.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut manifest = ProgramManifest::default();
    manifest.model = name.unwrap_or_default();
    manifest.eggine_version = env!("CARGO_PKG_VERSION").to_owned();
    manifest.target = job.target.clone();
    manifest.options = job.options();
    manifest.ranges = ranges;
    let mut program = Program::new(model.clone(), manifest);
    let mut part = job.clone();
    part.progress = ProgressMode::Silent;
    let open = || crate::compile::open_device(job);
    let mut session = Session::new(program.clone(), open, Specialiser::new(part, interrupt));
    let (mut n_launches, mut decides) = (0, false);
    for (nth, point) in points.iter().enumerate() {
        let text: Vec<String> = (model.description().inputs.iter().zip(point))
            .map(|(port, value)| format!("{}: {value}", port.name))
            .collect();
        let text = text.join(", ");
        let ran = session.run(point);
        ran.map_err(|err| ProgramCompileError::Run { point: text.clone(), source: Box::new(err) })?;
        program.manifest.points.push(text);
        decides |= !host_steps(session.trace()).is_empty();
        if nth == 0 {
            n_launches = launches(session.trace());
            program.manifest.trace = lines(session.trace());
            program.manifest.host_steps = host_steps(session.trace());
        }
    }
    program.extend(session.made().clone());
    let wide = widen(job, &mut program, points, decides, interrupt);
    program.write(output)?;
    let engines = program.engines();
    let kernels: BTreeSet<&str> = (engines.values())
        .flat_map(|engine| engine.manifest.kernels.iter().map(|kernel| kernel.ptx_hash.as_str()))
        .collect();
    Ok(ProgramReport {
        program: output.to_owned(),
        n_model_nodes: model.graph().node.len(),
        n_engines: engines.len(),
        n_kernels: kernels.len(),
        n_launches,
        n_host_steps: program.manifest.host_steps.len(),
        weights_bytes: engines.values().map(|engine| engine.plan.weights_bytes).sum(),
        points: program.manifest.points,
        trace: program.manifest.trace,
        host_steps: program.manifest.host_steps,
        wide,
    })
}

/// Launches of all engines of a run.
pub fn launches(trace: &Trace) -> usize {
    usize::try_from(trace.n_launches()).unwrap_or(usize::MAX)
}

/// A line an event, with how often it came.
pub fn lines(trace: &Trace) -> Vec<String> {
    let line = |it: &Repeated| {
        let line = match &it.event {
            Event::Stage { graph, n_nodes, n_launches } => {
                let graph = if graph.is_empty() { "the main graph" } else { graph };
                format!("engine: {n_nodes} nodes of {graph}, {n_launches} launches")
            }
            Event::Host { node, op, .. } => format!("host: {node} ({op})"),
        };
        match it.n_times {
            1 => line,
            n => format!("{line}, {n} times"),
        }
    };
    trace.iter().map(line).collect()
}

/// Each node that the host computed or decided, once, with the reason.
fn host_steps(trace: &Trace) -> Vec<String> {
    let mut found = BTreeMap::new();
    for it in trace.iter() {
        if let Event::Host { node, op, reason } = &it.event {
            found.entry(node.clone()).or_insert_with(|| format!("{node} ({op}): {reason}"));
        }
    }
    found.into_values().collect()
}
