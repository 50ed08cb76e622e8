//! The compilation: import, first choices, the swarm, races of whole engines, the file.
//!
//! A job that was finished before is not searched again: the evidence holds its [recipe](crate::recipe),
//! which is followed if it still leads to the very kernels that were verified then.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use eggine_codegen_ptx::Target;
use eggine_codegen_ptx::assemble::Assembler;
use eggine_ir::Schedule;
use eggine_ir::onnx::{ImportError, ImportOptions, Imported, import};
use eggine_rewrite::{Optimiser, RewriteError, Soundness};
use eggine_runtime::device::{CpuOptions, open_with};
use eggine_runtime::engine::AgentRecord;
use eggine_runtime::{Device, DeviceError, Engine, EngineError, EngineParts, IoSpec};

use crate::agents;
use crate::assemble::{AssembleError, Facts};
use crate::calibrate::{calibrated, chip_of};
use crate::costs::Costs;
use crate::evidence::{Evidence, EvidenceError, JobRecord, Note};
use crate::floor::{Floor, Limits};
use crate::gate::{GateError, check_texts};
use crate::job::{Budget, Job, Objective};
use crate::lessons::Lessons;
use crate::phases::{Phase, Phases};
use crate::progress::{Progress, Snapshot};
use crate::race::{Racer, faster};
use crate::recipe::Recipe;
use crate::report::{PredictedReport, Report, SearchReport, Speedup};
use crate::select::Selection;
use crate::swarm::{self, Swarm};
use crate::targets::add_code;
use crate::user_rules;
use crate::workshop::{METHOD, Workshop, WorkshopError};

/// Covers compared in a search at one time.
const N_COVERS: usize = 8;

/// Why a model cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The model.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The evidence.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// There is nothing to resume.
    #[error(
        "--resume: no search of this model with these options was begun in `{}`{}; the budget, seed, shapes, target, device and version must be the same; without --resume one is begun", path.display(), others(begun)
    )]
    NothingToResume {
        /// The evidence.
        path: PathBuf,
        /// What was begun there, in words.
        begun: Vec<String>,
    },
    /// Rewriting.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// Making or judging candidates.
    #[error(transparent)]
    Workshop(#[from] WorkshopError),
    /// The device.
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
    /// Writing the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Assembly.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// Machine code.
    #[error("no machine code: {0}")]
    Code(#[from] eggine_codegen_ptx::assemble::AssembleError),
    /// The rewritten model is not the model, or a kernel is not the one that was verified.
    #[error(transparent)]
    Gate(#[from] Box<GateError>),
    /// The target.
    #[error(transparent)]
    Target(#[from] eggine_codegen_ptx::target::UnknownTarget),
    /// The folder of the output.
    #[error("cannot write `{}`: its folder does not exist", path.display())]
    NoFolder {
        /// The output.
        path: PathBuf,
    },
    /// The model cannot be hashed.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The model.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No engine is small enough.
    #[error(
        "the smallest engine found needs {needed_bytes} bytes of device memory ({arena_bytes} for tensors, {weights_bytes} for weights), the job allows {limit_bytes}; raise --max-memory or use a smaller batch"
    )]
    Memory {
        /// What it needs.
        needed_bytes: u64,
        /// Of these, between kernels.
        arena_bytes: u64,
        /// Of these, weights.
        weights_bytes: u64,
        /// What is allowed.
        limit_bytes: u64,
    },
    /// An agent that does not exist.
    #[error("there is no agent `{name}`; there are {}", crate::agents::ALL.iter().map(|row| row.name).collect::<Vec<_>>().join(", "))]
    UnknownAgent {
        /// Its name.
        name: String,
    },
    /// The compiler's threads.
    #[error("cannot start the compiler's threads: {reason}")]
    Threads {
        /// What the system said.
        reason: String,
    },
    /// No kernel of a region is right.
    #[error(
        "no verified kernel for a part of the model ({sources}); the last one {reason}; region:\n{region}"
    )]
    NoKernel {
        /// Source nodes.
        sources: String,
        /// Why the last kernel was rejected.
        reason: String,
        /// Text of the region.
        region: String,
    },
}

/// Compiles a model and writes the engine.
///
/// An interrupt ends the search, not the compilation: the best engine so far is written.
///
/// # Errors
///
/// See [`CompileError`]; nothing is written then. Evidence gathered until then is kept.
pub fn compile(job: &Job, output: &Path, interrupt: &AtomicBool) -> Result<Report, CompileError> {
    compile_source(job, None, output, interrupt)
}

/// A model, or a part of one, that was imported before; `hash` is what it and its shapes are known by.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What to compile.
    pub imported: &'a Imported,
    /// Names it, its contents and its shapes.
    pub hash: &'a str,
}

/// As [`compile`], of something that was imported before instead of the job's model.
///
/// # Errors
///
/// As [`compile`].
pub fn compile_imported(
    job: &Job,
    source: Source<'_>,
    output: &Path,
    interrupt: &AtomicBool,
) -> Result<Report, CompileError> {
    compile_source(job, Some(source), output, interrupt)
}

fn compile_source(
    job: &Job,
    source: Option<Source<'_>>,
    output: &Path,
    interrupt: &AtomicBool,
) -> Result<Report, CompileError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(job.threads.unwrap_or(0)).build();
    let pool = pool.map_err(|err| CompileError::Threads { reason: err.to_string() })?;
    pool.install(|| compile_here(job, source, output, interrupt))
}

/// As [`compile_source`], on the threads of the current pool.
fn compile_here(
    job: &Job,
    source: Option<Source<'_>>,
    output: &Path,
    interrupt: &AtomicBool,
) -> Result<Report, CompileError> {
    let started = Instant::now();
    let mut phases = Phases::default();
    let mut progress = Progress::new(job.progress);
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(CompileError::NoFolder { path: output.to_owned() });
    }
    let target: Target = job.target.parse()?;
    let mut kernel_agents = chosen_agents(job)?;
    let (external, job) = &user_rules::with_external(job);
    let as_agents =
        external.iter().map(|it| Arc::clone(it) as Arc<dyn eggine_rewrite::agent::Agent>);
    kernel_agents.0.extend(as_agents);
    let evidence = phases.time(Phase::Evidence, |_| match &job.evidence {
        Some(path) if job.resume => Evidence::open_existing(path),
        Some(path) => Evidence::open(path),
        None => Evidence::in_memory(),
    })?;
    progress.show(&Snapshot { phase: "import", ..Snapshot::default() }, true);
    let (imported, model_hash) = match source {
        Some(source) => (Cow::Borrowed(source.imported), source.hash.to_owned()),
        None => phases.time(Phase::Import, |_| {
            let imported = import(&job.model, &ImportOptions { shapes: job.shapes.clone() })?;
            Ok::<_, CompileError>((Cow::Owned(imported), model_hash(job)?))
        })?,
    };
    let soundness = if job.fast_math { Soundness::Real } else { Soundness::Exact };
    let options = eggine_rewrite::Options {
        soundness,
        agents: user_rules::agents(job, soundness).map_err(RewriteError::from)?,
        rule_fuel: job.rule_fuel,
        ..eggine_rewrite::Options::default()
    };
    let optimiser = phases.time(Phase::Rewrite, |_| Optimiser::new(&imported.graph, &options))?;
    let open_device = || open_device(job);
    let mut workshop = Workshop::new(open_device()?, &evidence, target, job.seed, phases);
    workshop.remember()?;
    let chip = match job.chip {
        Some(chip) => chip,
        None => {
            let here = chip_of(workshop.device.as_ref());
            calibrated(&evidence, workshop.device_identity(), here)?
        }
    };
    let costs = Costs::new(chip);
    let mut floor = Floor::new(workshop, costs, optimiser, interrupt, progress, started);
    floor.max_error = job.max_error;
    floor.external = external.clone();
    floor.hints.clone_from(&job.hints);
    let compilation = Compilation {
        job,
        imported: &imported,
        evidence: &evidence,
        open: &open_device,
        agents: kernel_agents,
        model_hash,
    };
    compilation.run(&mut floor, output)
}

/// The job's device.
///
/// # Errors
///
/// If it cannot be opened.
pub(crate) fn open_device(job: &Job) -> Result<Box<dyn Device>, DeviceError> {
    open_with(&job.device, cpu_options(device_threads(job)))
}

/// The agents that a job names, and whether the fuser is among them.
type Agents = (Vec<Arc<dyn eggine_rewrite::agent::Agent>>, bool);

fn chosen_agents(job: &Job) -> Result<Agents, CompileError> {
    let mut rows: Vec<&agents::Row> = agents::ALL.iter().collect();
    if let Some(names) = &job.agents {
        for name in names {
            if agents::find(name).is_none() {
                return Err(CompileError::UnknownAgent { name: name.clone() });
            }
        }
        rows.retain(|row| names.iter().any(|name| name == row.name));
    }
    let makes = rows.iter().filter_map(|row| row.make);
    Ok((makes.map(|make| make()).collect(), rows.iter().any(|row| row.name == agents::FUSER)))
}

struct Compilation<'a> {
    job: &'a Job,
    imported: &'a Imported,
    evidence: &'a Evidence,
    open: &'a dyn Fn() -> Result<Box<dyn Device>, DeviceError>,
    agents: Agents,
    model_hash: String,
}

/// What a search led to.
struct Found {
    parts: EngineParts,
    comparison: Option<Speedup>,
    search: Option<SearchReport>,
    finished: bool,
}

impl Compilation<'_> {
    fn run(&self, floor: &mut Floor<'_>, output: &Path) -> Result<Report, CompileError> {
        let search_started = Instant::now();
        // A chip that is only predicted for is not searched with measurements.
        let searches = self.job.budget != Budget::First && self.job.chip.is_none();
        let mut predicted = None;
        let resumed = self.begin(floor, searches)?;
        let found = match self.follow_recipe(floor, searches)? {
            Some(found) => found,
            None if searches => self.search(floor)?,
            None if self.job.chip.is_some() => self.rank(floor, &mut predicted)?,
            None => {
                let cover = floor.first_cover()?;
                let selection = floor.untuned(cover);
                let parts = floor.engine(&selection, &|proofs| self.facts(None, proofs, &[]))?;
                Found { parts, comparison: None, search: None, finished: true }
            }
        };
        let Found { mut parts, comparison, search, finished } = found;
        self.check_memory(&parts)?;
        let machine_code = self.add_code(floor, &mut parts)?;
        let search_s = search_started.elapsed().as_secs_f64();
        floor.show("assemble");
        check_texts(&parts, &|ptx_hash| floor.is_verified(ptx_hash)).map_err(Box::new)?;
        floor.workshop.phases.time(Phase::Assemble, |_| Engine::write(output, &parts))?;
        floor.progress.finish();
        let counts = floor.workshop.counts;
        let engine_hash = floor.workshop.phases.time(Phase::Assemble, |_| {
            Engine::open_unchecked_weights(output).map(|engine| engine.hash())
        })?;
        let evidence = self.evidence;
        let verdicts = floor.workshop.phases.time(Phase::Evidence, |_| evidence.verdicts())?;
        Ok(Report {
            engine: output.to_owned(),
            engine_hash,
            n_model_nodes: self.imported.model.n_nodes,
            n_launches: parts.plan.steps.len(),
            n_kernels: parts.plan.kernels.len(),
            arena_bytes: parts.plan.arena_bytes,
            weights_bytes: parts.plan.weights_bytes,
            n_regions_priced: floor.costs.n_asked(),
            n_candidates: counts.n_candidates,
            n_measured: counts.n_measured,
            n_rejected: counts.n_rejected,
            external: floor.external.iter().flat_map(|it| it.report()).collect(),
            rule_firings: user_rules::firings(self.job, &floor.covers[0].cover),
            measured_per_second: counts.n_measured as f64 / search_s.max(1e-9),
            verdicts,
            comparison,
            predicted,
            machine_code,
            constraints: self.constraints(floor, &parts),
            search,
            resumed,
            missed: floor.workshop.misses.lines(),
            interrupted: !finished,
            phases: floor.workshop.phases.report(),
        })
    }

    /// Notes in the evidence that this job has begun. With `--resume`: how far it had come before.
    fn begin(&self, floor: &mut Floor<'_>, searches: bool) -> Result<Option<String>, CompileError> {
        let (evidence, resume) = (self.evidence, self.job.resume);
        if !searches && !resume {
            return Ok(None);
        }
        let hash = self.job_hash(floor);
        let known = floor.workshop.phases.time(Phase::Evidence, |_| evidence.job(&hash))?;
        if searches {
            let model = self.job.model.file_name().unwrap_or_default().to_string_lossy();
            let mut description = model.into_owned();
            for (name, value) in self.job.options() {
                description.push_str(&format!(", {name} {value}"));
            }
            let device = floor.workshop.device_identity();
            description.push_str(&format!(", for {} on {device}", self.job.target));
            if known.is_some() || !resume {
                floor
                    .workshop
                    .phases
                    .time(Phase::Evidence, |_| evidence.begin_job(&hash, &description))?;
            }
        }
        if !resume {
            return Ok(None);
        }
        let Some(known) = known else {
            let begun = evidence.jobs()?.into_iter().map(|job| job.description);
            let begun = begun.filter(|it| !it.is_empty()).collect();
            return Err(CompileError::NothingToResume { path: evidence.path().to_owned(), begun });
        };
        let n: u64 = known.generations.iter().sum();
        Ok(Some(match (known.finished, n) {
            (true, n) => format!("the search was finished after {n} candidates"),
            (false, 0) => "the search was cut off; what it measured is used".to_owned(),
            (false, n) => format!("the search was interrupted after {n} candidates"),
        }))
    }

    /// Ranks schedules by the static model of the job's chip.
    fn rank(
        &self,
        floor: &mut Floor<'_>,
        predicted: &mut Option<PredictedReport>,
    ) -> Result<Found, CompileError> {
        let cover = floor.first_cover()?;
        floor.limits = self.limits(None, floor.started);
        floor.show("rank");
        floor.workshop.phases.enter(Phase::Propose);
        let assembler = Assembler::find_or_driver(None, Path::new("."));
        let ranked = floor.rank(cover, &assembler)?;
        floor.workshop.phases.leave();
        let mut parts = floor.engine(&ranked.selection, &|proofs| self.facts(None, proofs, &[]))?;
        parts.manifest.predicted_with = (ranked.n_assembled > 0).then(|| assembler.to_string());
        let of_step =
            |step: &eggine_runtime::Step| parts.manifest.kernels[step.kernel].predicted_ns;
        *predicted = Some(PredictedReport {
            chip: floor.costs.chip().name().to_owned(),
            n_ranked: ranked.n_ranked,
            n_assembled: ranked.n_assembled,
            assembler: parts.manifest.predicted_with.clone(),
            predicted_ns: parts.plan.steps.iter().filter_map(of_step).sum(),
        });
        let finished = !floor.interrupt.load(Ordering::SeqCst);
        Ok(Found { parts, comparison: None, search: None, finished })
    }

    /// Assembles the engine for the job's targets; says what was done.
    fn add_code(
        &self,
        floor: &mut Floor<'_>,
        parts: &mut EngineParts,
    ) -> Result<Option<String>, CompileError> {
        if self.job.code.is_empty() {
            return Ok(None);
        }
        floor.show("machine code");
        let assembler = Assembler::find_or_driver(None, Path::new("."));
        let targets = &self.job.code;
        floor.workshop.phases.time(Phase::Assemble, |_| add_code(parts, targets, &assembler))?;
        let names: Vec<&str> = targets.iter().map(|target| target.name()).collect();
        Ok(Some(match assembler.makes_code() {
            true => format!("{} by {assembler}", names.join(", ")),
            false => format!("none: left to {assembler}"),
        }))
    }

    /// What the job's limits did.
    fn constraints(&self, floor: &Floor<'_>, parts: &EngineParts) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(limit) = self.job.max_memory_bytes {
            let needed = memory_bytes(parts);
            lines.push(format!("memory: {needed} of {limit} bytes"));
        }
        if floor.n_over_error > 0 {
            lines.push(format!(
                "error: {} right candidates were turned down for errors above {} of their bounds",
                floor.n_over_error, self.job.max_error
            ));
        }
        lines
    }

    fn check_memory(&self, parts: &EngineParts) -> Result<(), CompileError> {
        match self.job.max_memory_bytes {
            Some(limit_bytes) if memory_bytes(parts) > limit_bytes => Err(CompileError::Memory {
                needed_bytes: memory_bytes(parts),
                arena_bytes: parts.plan.arena_bytes,
                weights_bytes: parts.plan.weights_bytes,
                limit_bytes,
            }),
            _ => Ok(()),
        }
    }

    /// Follows the recipe of a job that was finished before, if there is one and it still holds.
    fn follow_recipe(
        &self,
        floor: &mut Floor<'_>,
        searches: bool,
    ) -> Result<Option<Found>, CompileError> {
        if !searches || self.job.replay {
            return Ok(None);
        }
        let (evidence, job) = (self.evidence, self.job_hash(floor));
        let text =
            floor.workshop.phases.time(Phase::Evidence, |_| evidence.note(Note::Recipe, &job))?;
        let recipe = text.and_then(|text| serde_json::from_str::<Recipe>(&text).ok());
        let Some(recipe) = recipe else { return Ok(None) };
        floor.show("recipe");
        let Some(selection) = recipe.follow(floor)? else {
            tracing::warn!(
                "the finished search of this job no longer leads to its kernels; searching again"
            );
            floor.forget();
            return Ok(None);
        };
        let device = floor.workshop.device_identity().to_owned();
        let agents = recipe.search.as_ref().map_or(&[][..], |search| &search.agents);
        let parts =
            floor.engine(&selection, &|proofs| self.facts(Some(device.clone()), proofs, agents))?;
        Ok(Some(Found {
            parts,
            comparison: recipe.comparison,
            search: recipe.search,
            finished: true,
        }))
    }

    /// Searches: the best engine, what it gains over the first one, and what the agents did.
    fn search(&self, floor: &mut Floor<'_>) -> Result<Found, CompileError> {
        floor.measures = true;
        floor.search_started = Some(Instant::now());
        let cover = floor.first_cover()?;
        floor.k = N_COVERS;
        let job_hash = self.job_hash(floor);
        let evidence = self.evidence;
        let known = floor.workshop.phases.time(Phase::Evidence, |_| evidence.job(&job_hash))?;
        let known = known.filter(|record| record.finished);
        floor.limits = self.limits(known.as_ref(), floor.started);
        let lessons = self.lessons(floor, &job_hash)?;
        let shape = floor.covers[cover].shape();
        let launches: BTreeMap<String, u64> =
            shape.iter().map(|(&number, &n)| (floor.subjects[number].hash.clone(), n)).collect();
        floor.external.iter().for_each(|it| it.set_launches(launches.clone()));
        let opened = shape.keys().map(|&number| (number, floor.opened(number))).collect();
        let options = swarm::Options {
            agents: self.agents.0.clone(),
            fuser: self.agents.1,
            strategy: self.job.strategy,
            seed: self.job.seed,
            lessons,
        };
        let mut swarm = Swarm::new(cover, &shape, opened, options);
        floor.workshop.phases.enter(Phase::Propose);
        swarm.run(floor)?;
        floor.workshop.phases.leave();
        let n_steps = swarm.n_steps();
        let mut record = JobRecord { generations: vec![n_steps], finished: false };
        floor.workshop.phases.time(Phase::Evidence, |_| evidence.set_job(&job_hash, &record))?;
        floor.show("engines");
        let (selection, parts, comparison) = self.race(floor, cover, &swarm)?;
        let finished = !floor.interrupt.load(Ordering::SeqCst);
        let search = SearchReport {
            strategy: format!("{:?}", self.job.strategy).to_lowercase(),
            n_steps,
            n_restarts: swarm.n_restarts(),
            agents: swarm.records().to_vec(),
            curve: swarm.curve().iter().map(|&(step, ns)| (step, ns as u64)).collect(),
        };
        record.finished = finished;
        floor.workshop.phases.time(Phase::Evidence, |_| evidence.set_job(&job_hash, &record))?;
        if finished {
            let recipe = Recipe::new(floor, &selection, comparison, search.clone())?;
            let text = serde_json::to_string(&recipe).expect("a recipe serialises");
            floor
                .workshop
                .phases
                .time(Phase::Evidence, |_| evidence.set_note(Note::Recipe, &job_hash, &text))?;
        }
        Ok(Found { parts, comparison, search: Some(search), finished })
    }

    /// What earlier searches taught. A job that was begun before goes on with what it began with: its
    /// decisions are then the same.
    fn lessons(&self, floor: &mut Floor<'_>, job_hash: &str) -> Result<Lessons, CompileError> {
        if !self.job.lessons {
            return Ok(Lessons::default());
        }
        let evidence = self.evidence;
        let identity = floor.workshop.device_identity().to_owned();
        let text = floor
            .workshop
            .phases
            .time(Phase::Evidence, |_| evidence.note(Note::Lessons, job_hash))?;
        if let Some(lessons) = text.and_then(|text| serde_json::from_str(&text).ok()) {
            return Ok(lessons);
        }
        let costs = &floor.costs;
        let from = self.job.lessons_from.as_deref();
        let lessons = floor.workshop.phases.time(Phase::Evidence, |_| {
            let lessons = match from {
                Some(path) => {
                    Lessons::learn(&Evidence::open_existing(path)?, &identity, METHOD, costs)?
                }
                None => Lessons::learn(evidence, &identity, METHOD, costs)?,
            };
            let text = serde_json::to_string(&lessons).expect("lessons serialise");
            evidence.set_note(Note::Lessons, job_hash, &text)?;
            Ok::<_, EvidenceError>(lessons)
        })?;
        Ok(lessons)
    }

    /// Races what was found as whole engines: the first choice stays unless another surely beats it.
    fn race(
        &self,
        floor: &mut Floor<'_>,
        first_cover: usize,
        swarm: &Swarm,
    ) -> Result<(Selection, EngineParts, Option<Speedup>), CompileError> {
        let device = floor.workshop.device_identity().to_owned();
        let facts = |proofs| self.facts(Some(device.clone()), proofs, swarm.records());
        let times = swarm.times_ns();
        let bests: BTreeMap<usize, Schedule> =
            times.keys().filter_map(|&number| Some((number, swarm.best(number)?.0))).collect();
        let first = floor.untuned(first_cover);
        // The first cover, tuned, stays in the race: what was learned may mislead extraction.
        let mut others: Vec<(String, Selection)> = Vec::new();
        let first_identity = floor.identity(&first);
        for cover in [first_cover, swarm.cover()] {
            for selection in [floor.tuned(cover, &bests), floor.untuned(cover)] {
                let identity = floor.identity(&selection);
                let known = identity == first_identity || others.iter().any(|it| it.0 == identity);
                if !known && selection.picks.values().all(|pick| pick.measured_ns.is_some()) {
                    others.push((identity, selection));
                }
            }
        }
        let budget = match (self.job.race, self.job.budget) {
            (Some(time), _) => time,
            (None, Budget::Time(time)) => race_time(time) / others.len().max(1) as u32,
            _ => Duration::from_secs(3),
        };
        if budget.is_zero() {
            others.clear();
        }
        let racer = Racer {
            evidence: self.evidence,
            device: device.clone(),
            open: self.open,
            seed: self.job.seed,
            budget,
            n_sessions: match self.job.objective {
                Objective::Latency => 1,
                Objective::Throughput => CpuOptions::default().n_threads,
            },
        };
        // Packing the weights of a large model takes longer than a race: each engine is made once.
        let mut made: BTreeMap<String, EngineParts> = BTreeMap::new();
        let mut engine = |floor: &mut Floor<'_>, identity: &str, selection: &Selection| {
            if let Some(parts) = made.get(identity) {
                return Ok(parts.clone());
            }
            let parts = floor.engine(selection, &facts)?;
            made.insert(identity.to_owned(), parts.clone());
            Ok::<_, CompileError>(parts)
        };
        let first_parts = engine(floor, &first_identity, &first)?;
        // A kernel that is faster alone may be slower in its place: where it is, its first choice runs.
        for cover in if others.is_empty() { vec![] } else { vec![first_cover, swarm.cover()] } {
            let (plain, tuned) = (floor.untuned(cover), floor.tuned(cover, &bests));
            if plain == tuned {
                continue;
            }
            let ids = [floor.identity(&tuned), floor.identity(&plain)];
            let parts = [engine(floor, &ids[0], &tuned)?, engine(floor, &ids[1], &plain)?];
            let rows = floor.workshop.phases.time(Phase::Engine, |_| {
                racer.in_place((&ids[0], &parts[0]), (&ids[1], &parts[1]))
            })?;
            let mut mixed = tuned;
            for ((id, pick), row) in mixed.picks.iter_mut().zip(rows) {
                if row.ratio >= 1.0 {
                    *pick = plain.picks[id].clone();
                }
            }
            let identity = floor.identity(&mixed);
            if identity != first_identity && others.iter().all(|it| it.0 != identity) {
                others.push((identity, mixed));
            }
        }
        let mut best = (first, first_parts.clone(), None::<Speedup>);
        for (identity, selection) in others {
            let parts = engine(floor, &identity, &selection)?;
            if self.check_memory(&parts).is_err() {
                tracing::info!(
                    "an engine is not compared: it needs more memory than the job allows"
                );
                continue;
            }
            // The first engine stays the measure of all: two that both beat it are compared by ratio.
            let row = floor.workshop.phases.time(Phase::Engine, |_| {
                racer.race((&identity, &parts), (&first_identity, &first_parts))
            })?;
            let won = Speedup { ratio: 1.0 / row.ratio, low: 1.0 / row.high, high: 1.0 / row.low };
            let fits = self.check_memory(&best.1).is_ok();
            if faster(&row) && best.2.is_none_or(|it| won.ratio > it.ratio) || !fits {
                best = (selection, parts, Some(won));
            }
        }
        Ok(best)
    }

    /// A finished search is repeated step by step; another has its budget, of which a part of a time
    /// stays for racing engines.
    fn limits(&self, known: Option<&JobRecord>, started: Instant) -> Limits {
        if let Some(known) = known {
            return Limits { n_steps: Some(known.generations.iter().sum()), deadline: None };
        }
        match self.job.budget {
            Budget::First => Limits { n_steps: Some(0), deadline: None },
            Budget::Measurements(n) => Limits { n_steps: Some(n), deadline: None },
            Budget::Time(time) => {
                let tuning = time.saturating_sub(race_time(time));
                Limits { n_steps: None, deadline: Some(started + tuning) }
            }
        }
    }

    fn facts(
        &self,
        device: Option<String>,
        evidence: Vec<String>,
        agents: &[AgentRecord],
    ) -> Facts {
        let specs = |named: &[(String, eggine_ir::TensorType)]| -> Vec<IoSpec> {
            let spec = |(name, ty): &(String, eggine_ir::TensorType)| IoSpec {
                name: name.clone(),
                dtype: ty.dtype,
                extents: ty.extents(),
            };
            named.iter().map(spec).collect()
        };
        let name = self.job.model.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        Facts {
            model: name.unwrap_or_default(),
            model_hash: self.model_hash.clone(),
            target: self.job.target.clone(),
            device,
            predicted_for: self.job.chip.map(|chip| chip.name().to_owned()),
            options: self.job.options(),
            n_model_nodes: self.imported.model.n_nodes,
            inputs: specs(&self.imported.inputs),
            outputs: specs(&self.imported.outputs),
            evidence,
            agents: agents.to_vec(),
        }
    }

    /// What a search is a function of, beside its measurements.
    fn job_hash(&self, floor: &Floor<'_>) -> String {
        let mut text = self.model_hash.clone();
        for (name, value) in self.job.options() {
            text.push_str(&format!("\n{name}={value}"));
        }
        for part in
            [&self.job.target, floor.workshop.device_identity(), METHOD, env!("CARGO_PKG_VERSION")]
        {
            text.push('\n');
            text.push_str(part);
        }
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }
}

/// What else was begun, for the message that something was not.
fn others(begun: &[String]) -> String {
    let listed: Vec<String> = begun.iter().take(3).map(|it| format!("`{it}`")).collect();
    match begun.len() {
        0 => String::new(),
        n if n > 3 => format!(" (but {} and {} more)", listed.join(", "), n - 3),
        _ => format!(" (but {})", listed.join(", ")),
    }
}

/// Device memory of an engine beside its inputs and outputs.
fn memory_bytes(parts: &EngineParts) -> u64 {
    parts.plan.arena_bytes + parts.plan.weights_bytes
}

/// The part of a time budget that goes to racing whole engines.
fn race_time(time: Duration) -> Duration {
    (time / 8).min(Duration::from_secs(12))
}

/// Threads of the device: one for throughput, where every core has a session of its own.
fn device_threads(job: &Job) -> Option<usize> {
    match job.objective {
        Objective::Latency => job.device_threads,
        Objective::Throughput => job.device_threads.or(Some(1)),
    }
}

fn cpu_options(threads: Option<usize>) -> CpuOptions {
    let default = CpuOptions::default();
    CpuOptions { n_threads: threads.unwrap_or(default.n_threads), ..default }
}

/// Hash of the model file and of the shapes that its inputs were bound to.
fn model_hash(job: &Job) -> Result<String, CompileError> {
    let mut hasher = blake3::Hasher::new();
    let hashed = hasher.update_mmap_rayon(&job.model).map(drop);
    hashed.map_err(|source| CompileError::Read { path: job.model.clone(), source })?;
    for (name, extents) in &job.shapes {
        hasher.update(format!("\n{name}={extents:?}").as_bytes());
    }
    Ok(hasher.finalize().to_hex().to_string())
}
