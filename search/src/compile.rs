//! The compilation: import, covers, first choices, search, whole engines, the file.
//!
//! A search has two generations. The first extracts with predicted costs and tunes the best cover's
//! regions; the second extracts again with what was measured and tunes what is new. Then the best few
//! engines are raced as wholes on the device, since parts that are fast alone may be slow together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use eggine_codegen_ptx::{CPU_DEVICE, Target, classify, first_schedule, schedule_of};
use eggine_ir::Schedule;
use eggine_ir::onnx::{ImportError, ImportOptions, Imported, import};
use eggine_rewrite::{Cover, KernelSpace, Options, RegionId, RewriteError, Soundness, optimise};
use eggine_runtime::device::{CpuOptions, open_with};
use eggine_runtime::{Device, DeviceError, Engine, EngineError, EngineParts, IoSpec, Verification};
use rayon::prelude::*;

use crate::assemble::{AssembleError, Choice, Facts, assemble};
use crate::costs::Costs;
use crate::evidence::{Evidence, EvidenceError, JobRecord};
use crate::job::{Budget, Job};
use crate::lab::{Limits, RealLab};
use crate::moves::CodegenMoves;
use crate::phases::{Phase, Phases};
use crate::progress::{Progress, Snapshot};
use crate::race::{Racer, faster};
use crate::report::{Report, Speedup};
use crate::tune::{Arm, tune};
use crate::workshop::{METHOD, Origin, Prepared, Subject, Workshop, WorkshopError, prepare};

/// Covers kept for the comparison of whole engines.
const N_COVERS: usize = 2;

/// How often extraction is repeated when a region that it chose turns out to have no right kernel.
const MAX_RETRIES: usize = 8;

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

/// A region with its first right kernel.
struct First {
    subject: Subject,
    schedule: Schedule,
    prepared: Prepared,
    verification: Verification,
    measured_ns: Option<f64>,
    proof: Option<String>,
}

/// The best kernel found for a region.
struct Best {
    schedule: Schedule,
    prepared: Prepared,
    measured_ns: f64,
    proof: Option<String>,
}

/// Compiles a model and writes the engine.
///
/// An interrupt ends the search, not the compilation: the best engine so far is written.
///
/// # Errors
///
/// See [`CompileError`]; nothing is written then. Evidence gathered until then is kept.
pub fn compile(job: &Job, output: &Path, interrupt: &AtomicBool) -> Result<Report, CompileError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(job.threads.unwrap_or(0)).build();
    let pool = pool.map_err(|err| CompileError::Threads { reason: err.to_string() })?;
    pool.install(|| compile_here(job, output, interrupt))
}

/// As [`compile`], on the threads of the current pool.
fn compile_here(job: &Job, output: &Path, interrupt: &AtomicBool) -> Result<Report, CompileError> {
    let started = Instant::now();
    let mut phases = Phases::default();
    let mut progress = Progress::new(job.progress);
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(CompileError::NoFolder { path: output.to_owned() });
    }
    let target: Target = job.target.parse()?;
    let evidence = phases.time(Phase::Evidence, |_| match &job.evidence {
        Some(path) => Evidence::open(path),
        None => Evidence::in_memory(),
    })?;
    progress.show(&Snapshot { phase: "import", ..Snapshot::default() }, true);
    let imported = phases.time(Phase::Import, |_| {
        import(&job.model, &ImportOptions { shapes: job.shapes.clone() })
            .map_err(CompileError::from)
    })?;
    let model_hash = phases.time(Phase::Import, |_| model_hash(job))?;
    let open_device = || -> Result<Box<dyn Device>, DeviceError> {
        open_with(&job.device, cpu_options(job.device_threads))
    };
    let workshop = Workshop::new(open_device()?, &evidence, target, job.seed, phases);
    let mut compilation = Compilation {
        job,
        imported,
        costs: Costs::new(CPU_DEVICE),
        workshop,
        firsts: BTreeMap::new(),
        bests: BTreeMap::new(),
        progress,
        interrupt,
        started,
        model_hash,
    };
    compilation.run(output, &evidence, &open_device)
}

struct Compilation<'a> {
    job: &'a Job,
    imported: Imported,
    costs: Costs,
    workshop: Workshop<'a>,
    firsts: BTreeMap<String, First>,
    bests: BTreeMap<String, Best>,
    progress: Progress,
    interrupt: &'a AtomicBool,
    started: Instant,
    model_hash: String,
}

type OpenDevice<'a> = &'a dyn Fn() -> Result<Box<dyn Device>, DeviceError>;

impl Compilation<'_> {
    fn run(
        &mut self,
        output: &Path,
        evidence: &Evidence,
        open: OpenDevice<'_>,
    ) -> Result<Report, CompileError> {
        let search = self.job.budget != Budget::First;
        let covers = self.covers(search)?;
        let mut comparison = None;
        let mut finished = true;
        let search_started = Instant::now();
        let first_engine = self.engine(&covers[0], false)?;
        let parts = if search {
            let (parts, speedup, done) = self.search(covers, first_engine, evidence, open)?;
            (comparison, finished) = (speedup, done);
            parts
        } else {
            first_engine
        };
        let search_s = search_started.elapsed().as_secs_f64();
        self.show("assemble");
        self.workshop.phases.time(Phase::Assemble, |_| Engine::write(output, &parts))?;
        self.progress.finish();
        let counts = self.workshop.counts;
        let engine_hash = self.workshop.phases.time(Phase::Assemble, |_| {
            Engine::open_unchecked_weights(output).map(|engine| engine.hash())
        })?;
        let verdicts = self.workshop.phases.time(Phase::Evidence, |_| evidence.verdicts())?;
        Ok(Report {
            engine: output.to_owned(),
            engine_hash,
            n_model_nodes: self.imported.model.n_nodes,
            n_launches: parts.plan.steps.len(),
            n_kernels: parts.plan.kernels.len(),
            arena_bytes: parts.plan.arena_bytes,
            weights_bytes: parts.plan.weights_bytes,
            n_regions_priced: self.costs.n_asked(),
            n_candidates: counts.n_candidates,
            n_measured: counts.n_measured,
            n_rejected: counts.n_rejected,
            measured_per_second: counts.n_measured as f64 / search_s.max(1e-9),
            verdicts,
            comparison,
            interrupted: !finished,
            phases: self.workshop.phases.report(),
        })
    }

    fn show(&mut self, phase: &'static str) {
        let counts = self.workshop.counts;
        let snapshot = Snapshot {
            phase,
            n_candidates: counts.n_candidates,
            n_measured: counts.n_measured,
            n_rejected: counts.n_rejected,
            elapsed_s: self.started.elapsed().as_secs_f64(),
            ..Snapshot::default()
        };
        self.progress.show(&snapshot, true);
    }

    /// The best covers, every region of the first (and of all, if asked for) with a right kernel.
    fn covers(&mut self, all: bool) -> Result<Vec<Cover>, CompileError> {
        let soundness = if self.job.fast_math { Soundness::Real } else { Soundness::Exact };
        let options = Options {
            k: if all { N_COVERS } else { 1 },
            soundness,
            seed: self.job.seed,
            ..Options::default()
        };
        for attempt in 0.. {
            self.show("rewrite");
            let (graph, costs) = (&self.imported.graph, &self.costs);
            let mut covers =
                self.workshop.phases.time(Phase::Rewrite, |_| optimise(graph, costs, &options))?;
            self.show("verify");
            let failure = self.make_firsts(&covers[0])?;
            match failure {
                None => {
                    // An alternative whose regions have no right kernel is no alternative.
                    let mut kept = vec![covers.remove(0)];
                    for cover in covers {
                        if self.make_firsts(&cover)?.is_none() {
                            kept.push(cover);
                        }
                    }
                    return Ok(kept);
                }
                Some((region, failure)) if attempt < MAX_RETRIES => {
                    tracing::warn!(region, reason = %failure, "region has no right kernel; extracting again");
                    self.costs.forbid(&region);
                }
                Some((_, failure)) => return Err(failure),
            }
        }
        unreachable!("the loop returns")
    }

    /// Makes sure that each region of the cover has a verified kernel. `Some`: one has none.
    fn make_firsts(
        &mut self,
        cover: &Cover,
    ) -> Result<Option<(String, CompileError)>, CompileError> {
        let target = self.workshop.target;
        let mut todo: Vec<(RegionId, Subject)> = Vec::new();
        for (id, region) in cover.regions.iter() {
            let hash = region.hash_hex();
            if !self.firsts.contains_key(&hash) && !todo.iter().any(|it| it.1.hash == hash) {
                todo.push((id, Subject { region: region.clone(), hash }));
            }
        }
        let made: Vec<_> = self.workshop.phases.time(Phase::Emit, |_| {
            todo.into_par_iter()
                .map(|(id, subject)| {
                    let schedule = first_schedule(&subject.region);
                    let prepared = schedule.map(|it| prepare(&subject, &it, target));
                    (id, subject, schedule, prepared)
                })
                .collect()
        });
        for (id, subject, schedule, prepared) in made {
            let mut reason = "does not exist: no kernel family takes it".to_owned();
            let mut found = None;
            if let (Some(schedule), Some(prepared)) = (schedule, prepared) {
                found = self.try_first(&subject, schedule, prepared, &mut reason)?;
            }
            // The other families, in order of preference; the universal one is last.
            for family in classify(&subject.region).into_iter().skip(1) {
                if found.is_some() {
                    break;
                }
                if let Some(schedule) = schedule_of(&subject.region, family) {
                    let prepared = self.workshop.prepare(&subject, &schedule);
                    found = self.try_first(&subject, schedule, prepared, &mut reason)?;
                }
            }
            match found {
                Some((schedule, prepared, verification, row)) => {
                    let (measured_ns, proof) = row.unzip();
                    let hash = subject.hash.clone();
                    let first =
                        First { subject, schedule, prepared, verification, measured_ns, proof };
                    self.firsts.insert(hash, first);
                }
                None => {
                    let sources = sources_of(cover, id).join(", ");
                    let region = subject.region.to_string();
                    return Ok(Some((
                        subject.hash,
                        CompileError::NoKernel { sources, reason, region },
                    )));
                }
            }
        }
        Ok(None)
    }

    /// A first choice: verified, and measured if this is a search.
    #[allow(clippy::type_complexity, reason = "taken apart at once by the only caller")]
    fn try_first(
        &mut self,
        subject: &Subject,
        schedule: Schedule,
        prepared: Result<Prepared, String>,
        reason: &mut String,
    ) -> Result<Option<(Schedule, Prepared, Verification, Option<(f64, String)>)>, CompileError>
    {
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(err) => {
                *reason = format!("cannot be made: {err}");
                return Ok(None);
            }
        };
        let mut measured = None;
        if self.job.budget != Budget::First {
            let evidence = self.workshop.evidence;
            let text = subject.region.to_string();
            self.workshop
                .phases
                .time(Phase::Evidence, |_| evidence.insert_region(&subject.hash, &text))?;
            let origin = Origin { agent: "model", tiling_move: "first", parent: "" };
            let row = self.workshop.judge(subject, &schedule, &prepared, None, origin)?;
            if !row.passed() {
                *reason = row.verdict;
                return Ok(None);
            }
            measured = Some((row.median_ns, row.key.hash()));
        }
        let verification = self.workshop.verify(subject, &prepared)?;
        if !verification.accepted() {
            *reason = verification.verdict.to_string();
            tracing::warn!(%schedule, %reason, "first choice rejected");
            return Ok(None);
        }
        Ok(Some((schedule, prepared, verification, measured)))
    }

    /// Searches; returns the best engine, its speed-up over the first one, and whether it was done.
    fn search(
        &mut self,
        mut covers: Vec<Cover>,
        first_engine: EngineParts,
        evidence: &Evidence,
        open: OpenDevice<'_>,
    ) -> Result<(EngineParts, Option<Speedup>, bool), CompileError> {
        let job_hash = self.job_hash();
        let known = evidence.job(&job_hash)?.filter(|record| record.finished);
        // The first cover, tuned, stays in the race: what was learned may mislead extraction.
        let first_cover = covers[0].clone();
        let mut record = JobRecord { generations: Vec::new(), finished: false };
        for generation in 0..2 {
            if generation > 0 {
                self.learn();
                covers = self.covers(true)?;
            }
            let limits = self.limits(generation, known.as_ref(), &record);
            let n_steps = self.tune(&covers[0], limits)?;
            record.generations.push(n_steps);
            self.workshop.phases.time(Phase::Evidence, |_| evidence.set_job(&job_hash, &record))?;
        }
        self.show("engines");
        let mut engines = Vec::new();
        for cover in std::iter::once(&first_cover).chain(&covers) {
            let engine = self.engine(cover, true)?;
            let new = engine.plan != first_engine.plan || engine.ptx != first_engine.ptx;
            if new && !engines.contains(&engine) {
                engines.push(engine);
            }
        }
        let identity = self.workshop.device_identity().to_owned();
        let budget = match self.job.budget {
            Budget::Time(time) => race_time(time) / engines.len().max(1) as u32,
            _ => Duration::from_secs(2),
        };
        let racer = Racer { evidence, device: identity, open, seed: self.job.seed, budget };
        let mut best = &first_engine;
        let mut speedup = None;
        for engine in &engines {
            // The first engine stays the measure of all: two that both beat it are compared by ratio.
            let row =
                self.workshop.phases.time(Phase::Engine, |_| racer.race(engine, &first_engine))?;
            let won = Speedup { ratio: 1.0 / row.ratio, low: 1.0 / row.high, high: 1.0 / row.low };
            if faster(&row) && speedup.is_none_or(|it: Speedup| won.ratio > it.ratio) {
                (best, speedup) = (engine, Some(won));
            }
        }
        let finished = !self.interrupt.load(Ordering::SeqCst);
        record.finished = finished;
        self.workshop.phases.time(Phase::Evidence, |_| evidence.set_job(&job_hash, &record))?;
        Ok((best.clone(), speedup, finished))
    }

    /// A finished search is repeated step by step; another has its budget, of which the first
    /// generation gets two thirds and a part of a time stays for racing engines.
    fn limits(&self, generation: usize, known: Option<&JobRecord>, record: &JobRecord) -> Limits {
        if let Some(known) = known {
            let n_steps = known.generations.get(generation).copied().unwrap_or(0);
            return Limits { n_steps: Some(n_steps), deadline: None };
        }
        match self.job.budget {
            Budget::First => Limits { n_steps: Some(0), deadline: None },
            Budget::Measurements(n) => {
                let spent: u64 = record.generations.iter().sum();
                let n_steps =
                    if generation == 0 { n.div_ceil(3) * 2 } else { n }.saturating_sub(spent);
                Limits { n_steps: Some(n_steps), deadline: None }
            }
            Budget::Time(time) => {
                let tuning = time.saturating_sub(race_time(time));
                let part = if generation == 0 { tuning * 2 / 3 } else { tuning };
                Limits { n_steps: None, deadline: Some(self.started + part) }
            }
        }
    }

    /// Tunes the regions of a cover; returns the number of candidates.
    fn tune(&mut self, cover: &Cover, limits: Limits) -> Result<u64, CompileError> {
        let hashes: Vec<(String, u64)> = (cover.regions.iter())
            .map(|(id, region)| {
                (region.hash_hex(), cover.kernels().filter(|it| it.1 == id).count() as u64)
            })
            .collect();
        let subjects: Vec<Subject> =
            hashes.iter().map(|(hash, _)| self.firsts[hash].subject.clone()).collect();
        let mut arms = Vec::new();
        let mut incumbents = BTreeMap::new();
        let mut proofs = BTreeMap::new();
        for (idx, (hash, n_launches)) in hashes.iter().enumerate() {
            let first = &self.firsts[hash];
            let (schedule, ns, proof) = match self.bests.get(hash) {
                Some(best) => (best.schedule, best.measured_ns, best.proof.clone()),
                None => (first.schedule, first.measured_ns.unwrap_or(0.0), first.proof.clone()),
            };
            let prepared = prepare(&subjects[idx], &schedule, self.workshop.target);
            let prepared = prepared.expect("a kernel that was made before is made again");
            let space =
                KernelSpace::new(subjects[idx].region.clone(), schedule, Arc::new(CodegenMoves));
            arms.push(Arm::new(*n_launches, space, ns));
            incumbents.insert(idx, prepared);
            proofs.extend(proof.map(|proof| (idx, proof)));
        }
        let mut lab = RealLab {
            workshop: &mut self.workshop,
            subjects: &subjects,
            costs: &self.costs,
            limits,
            interrupt: self.interrupt,
            progress: &mut self.progress,
            started: self.started,
            incumbents,
            proofs,
        };
        let outcome = tune(&mut arms, &mut lab, self.job.seed)?;
        let (mut incumbents, mut proofs) = (lab.incumbents, lab.proofs);
        for (idx, (hash, _)) in hashes.into_iter().enumerate() {
            let prepared = incumbents.remove(&idx).expect("every region has an incumbent");
            let (schedule, measured_ns) = (arms[idx].best, arms[idx].best_ns);
            self.bests
                .insert(hash, Best { schedule, prepared, measured_ns, proof: proofs.remove(&idx) });
        }
        Ok(outcome.n_steps)
    }

    /// Extraction counts with what was measured from now on.
    fn learn(&mut self) {
        let firsts = self.firsts.iter().filter(|(hash, _)| !self.bests.contains_key(*hash));
        let firsts = firsts.filter_map(|(hash, first)| {
            Some((&first.subject.region, hash.as_str(), &first.schedule, first.measured_ns?))
        });
        let bests = self.bests.iter().map(|(hash, best)| {
            (&self.firsts[hash].subject.region, hash.as_str(), &best.schedule, best.measured_ns)
        });
        self.costs.learn(firsts.chain(bests));
    }

    /// The engine of a cover, from the best kernels or the first ones.
    fn engine(&mut self, cover: &Cover, tuned: bool) -> Result<EngineParts, CompileError> {
        let mut choices: BTreeMap<RegionId, Choice<'_>> = BTreeMap::new();
        let mut proofs = Vec::new();
        for (id, region) in cover.regions.iter() {
            let hash = region.hash_hex();
            let first = &self.firsts[&hash];
            let best =
                self.bests.get(&hash).filter(|best| tuned && best.schedule != first.schedule);
            let choice = match best {
                Some(best) => {
                    let verification = self.workshop.verify(&first.subject, &best.prepared)?;
                    proofs.extend(best.proof.clone());
                    Choice {
                        subject: &first.subject,
                        schedule: best.schedule,
                        prepared: &best.prepared,
                        agent: "tiler".to_owned(),
                        predicted_ns: self.costs.predict_schedule_ns(region, &best.schedule),
                        measured_ns: Some(best.measured_ns),
                        verification,
                    }
                }
                None => {
                    proofs.extend(first.proof.clone());
                    Choice {
                        subject: &first.subject,
                        schedule: first.schedule,
                        prepared: &first.prepared,
                        agent: "model".to_owned(),
                        predicted_ns: self.costs.predict_schedule_ns(region, &first.schedule),
                        measured_ns: first.measured_ns,
                        verification: first.verification.clone(),
                    }
                }
            };
            choices.insert(id, choice);
        }
        proofs.sort();
        let facts = self.facts(proofs);
        Ok(self.workshop.phases.time(Phase::Assemble, |_| assemble(cover, &choices, facts))?)
    }

    fn facts(&self, evidence: Vec<String>) -> Facts {
        let specs = |named: &[(String, eggine_ir::TensorType)]| -> Vec<IoSpec> {
            let spec = |(name, ty): &(String, eggine_ir::TensorType)| IoSpec {
                name: name.clone(),
                dtype: ty.dtype,
                extents: ty.extents(),
            };
            named.iter().map(spec).collect()
        };
        let searched = self.job.budget != Budget::First;
        let name = self.job.model.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let options = BTreeMap::from([
            ("budget".to_owned(), self.job.budget.to_string()),
            ("seed".to_owned(), self.job.seed.to_string()),
            ("fast_math".to_owned(), self.job.fast_math.to_string()),
        ]);
        Facts {
            model: name.unwrap_or_default(),
            model_hash: self.model_hash.clone(),
            target: self.job.target.clone(),
            device: searched.then(|| self.workshop.device_identity().to_owned()),
            options,
            n_model_nodes: self.imported.model.n_nodes,
            inputs: specs(&self.imported.inputs),
            outputs: specs(&self.imported.outputs),
            evidence,
        }
    }

    /// What a search is a function of, beside its measurements.
    fn job_hash(&self) -> String {
        let parts = [
            self.model_hash.as_str(),
            &self.job.budget.to_string(),
            &self.job.seed.to_string(),
            &self.job.target,
            &self.job.fast_math.to_string(),
            self.workshop.device_identity(),
            METHOD,
            env!("CARGO_PKG_VERSION"),
        ];
        blake3::hash(parts.join("\n").as_bytes()).to_hex().to_string()
    }
}

/// The part of a time budget that goes to racing whole engines.
fn race_time(time: Duration) -> Duration {
    (time / 8).min(Duration::from_secs(12))
}

fn cpu_options(threads: Option<usize>) -> CpuOptions {
    let default = CpuOptions::default();
    CpuOptions { n_threads: threads.unwrap_or(default.n_threads), ..default }
}

fn sources_of(cover: &Cover, region: RegionId) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (tensor, _) in cover.kernels().filter(|it| it.1 == region) {
        if let eggine_rewrite::TensorDef::Kernel { sources, .. } = &cover.tensors[tensor] {
            names.extend(sources.iter().cloned());
        }
    }
    names.sort();
    names.dedup();
    names
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
