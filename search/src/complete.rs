//! Completes the search of an engine on a device, from the engine alone: `eggine tune`.
//!
//! An engine holds the text of every region and its schedule, so its kernels are made again and their
//! neighbours judged. It does not hold unpacked weights: a schedule that wants a weight arranged
//! otherwise than the engine has it is counted and left out (compiling the model with the same evidence
//! tries those). What is in the evidence is not measured again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use eggine_codegen_ptx::assemble::{AssembleError, Assembler};
use eggine_codegen_ptx::{Binding, Chip, Target, first_choices, neighbours, predict};
use eggine_ir::{Region, Schedule};
use eggine_runtime::device::{CpuOptions, open_with};
use eggine_runtime::timing::median;
use eggine_runtime::{
    Device, DeviceError, DeviceSpec, Engine, EngineError, EngineParts, KernelPlan,
    LaunchAttributes, Verification,
};
use serde::Serialize;

use crate::calibrate::chip_of;
use crate::compile::CompileError;
use crate::evidence::{Evidence, EvidenceError};
use crate::job::Budget;
use crate::phases::Phases;
use crate::race::{Racer, faster};
use crate::report::Speedup;
use crate::targets::add_code;
use crate::workshop::{Origin, Prepared, Subject, Workshop, WorkshopError, prepare};

/// What is asked of [`complete`].
#[derive(Clone, Debug)]
pub struct TuneJob {
    /// The engine.
    pub engine: PathBuf,
    /// Where its kernels are measured.
    pub device: DeviceSpec,
    /// Threads of the cpu device; `None` for one per core.
    pub device_threads: Option<usize>,
    /// Candidates, or a time.
    pub budget: Budget,
    /// Seed of the test inputs.
    pub seed: u64,
    /// Evidence database; `None` keeps evidence in memory only.
    pub evidence: Option<PathBuf>,
}

/// What became of it.
#[derive(Clone, Debug, Serialize)]
pub struct TuneReport {
    /// The file written.
    pub engine: PathBuf,
    /// The device.
    pub device: String,
    /// Kernels of the engine.
    pub n_kernels: usize,
    /// Candidates judged, the engine's own kernels among them.
    pub n_candidates: u64,
    /// Of these, measured now; the others were in the evidence.
    pub n_measured: u64,
    /// Of these, rejected.
    pub n_rejected: u64,
    /// Schedules left out because they want weights arranged otherwise.
    pub n_other_weights: u64,
    /// Kernels that this version makes otherwise than the engine has them: they stay as they are.
    pub unknown: Vec<String>,
    /// Kernels that were replaced: name, schedule before, schedule now.
    pub replaced: Vec<(String, String, String)>,
    /// Time of the engine as it was over time of the new one, if kernels were better alone.
    pub comparison: Option<Speedup>,
    /// Whether an interrupt ended it.
    pub interrupted: bool,
}

/// Why an engine cannot be tuned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The evidence.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The device.
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
    /// Judging candidates.
    #[error(transparent)]
    Workshop(#[from] WorkshopError),
    /// Comparing engines.
    #[error(transparent)]
    Race(Box<CompileError>),
    /// Machine code for what the engine had machine code for.
    #[error("no machine code: {0}")]
    Code(#[from] AssembleError),
    /// A record that this version cannot read.
    #[error("kernel `{kernel}` of the engine: {reason}; compile the model again")]
    Record {
        /// Its name.
        kernel: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A kernel of the engine is wrong on this device.
    #[error("kernel `{kernel}` of the engine is wrong on {device}: {verdict}")]
    Wrong {
        /// Its name.
        kernel: String,
        /// The device.
        device: String,
        /// In the words of verification.
        verdict: String,
    },
}

/// A win by less is not worth a change.
const LEAST_GAIN: f64 = 0.01;

/// A kernel of the engine under tuning.
struct Arm {
    kernel: usize,
    subject: Subject,
    n_launches: u64,
    first: Schedule,
    /// The engine's own kernel: what candidates are judged against.
    reference: Prepared,
    best: Schedule,
    /// The best one's, if it is another.
    better: Option<Prepared>,
    /// Time of the best over time of the reference.
    best_ratio: f64,
    best_ns: f64,
    proof: String,
    /// Time and evidence of the engine's own kernel.
    first_ns: f64,
    first_proof: String,
    seen: BTreeSet<Schedule>,
    frontier: Vec<(f64, Schedule, &'static str, Schedule)>,
    n_tried: u64,
}

impl Arm {
    fn best_kernel(&self) -> &Prepared {
        self.better.as_ref().unwrap_or(&self.reference)
    }

    fn grow(&mut self, parent: Schedule, chip: &Chip) {
        for (tiling_move, next) in neighbours(&self.subject.region, &parent) {
            self.consider(next, tiling_move, parent, chip);
        }
    }

    fn consider(&mut self, schedule: Schedule, how: &'static str, parent: Schedule, chip: &Chip) {
        if self.seen.insert(schedule)
            && let Some(told) = predict(&self.subject.region, &schedule, chip)
        {
            self.frontier.push((told.ns, schedule, how, parent));
        }
    }

    /// The best by prediction that was not tried yet.
    fn next(&mut self) -> Option<(f64, Schedule, &'static str, Schedule)> {
        let order = |a: &(f64, Schedule, _, _), b: &(f64, Schedule, _, _)| {
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        };
        let (at, _) = self.frontier.iter().enumerate().min_by(|a, b| order(a.1, b.1))?;
        Some(self.frontier.swap_remove(at))
    }
}

/// For each parameter of the new kernel the parameter of the old one that has the same bytes; `None` if one
/// has no such.
fn same_bytes(new: &[Binding], old: &[Binding]) -> Option<Vec<usize>> {
    new.iter().map(|binding| old.iter().position(|it| it == binding)).collect()
}

/// Tunes an engine's kernels and writes the engine: with better kernels if it is faster as a whole with
/// them, else as it was, but with measured times.
///
/// # Errors
///
/// See [`TuneError`]; nothing is written then. Evidence gathered until then is kept.
pub fn complete(
    job: &TuneJob,
    output: &Path,
    interrupt: &AtomicBool,
) -> Result<TuneReport, TuneError> {
    let started = Instant::now();
    let engine = Engine::open(&job.engine)?;
    let record_error =
        |kernel: &str, reason: String| TuneError::Record { kernel: kernel.to_owned(), reason };
    let target: Target = (engine.manifest.target.parse()).map_err(
        |err: eggine_codegen_ptx::target::UnknownTarget| record_error("all", err.to_string()),
    )?;
    let evidence = match &job.evidence {
        Some(path) => Evidence::open(path)?,
        None => Evidence::in_memory()?,
    };
    let open = || -> Result<Box<dyn Device>, DeviceError> {
        let default = CpuOptions::default();
        let n_threads = job.device_threads.unwrap_or(default.n_threads);
        open_with(&job.device, CpuOptions { n_threads, ..default })
    };
    let device = open()?;
    let (device_name, chip) = (device.info().name, chip_of(device.as_ref()));
    let mut workshop = Workshop::new(device, &evidence, target, job.seed, Phases::default());
    let chip = crate::calibrate::calibrated(&evidence, workshop.device_identity(), chip)?;
    let mut report = TuneReport {
        engine: output.to_owned(),
        device: device_name.clone(),
        n_kernels: engine.plan.kernels.len(),
        n_candidates: 0,
        n_measured: 0,
        n_rejected: 0,
        n_other_weights: 0,
        unknown: Vec::new(),
        replaced: Vec::new(),
        comparison: None,
        interrupted: false,
    };
    let mut arms = Vec::new();
    for (kernel, record) in engine.manifest.kernels.iter().enumerate() {
        let unreadable = |err: String| record_error(&record.name, err);
        let region: Region = record
            .region
            .parse()
            .map_err(|_| unreadable("its region is not text that this version reads".to_owned()))?;
        let schedule: Schedule =
            record.schedule.parse().map_err(|err| unreadable(format!("schedule: {err}")))?;
        let subject = Subject { hash: region.hash_hex(), region };
        let prepared = match prepare(&subject, &schedule, target) {
            Ok(prepared) if prepared.ptx_hash == record.ptx_hash => prepared,
            _ => {
                report.unknown.push(record.name.clone());
                continue;
            }
        };
        evidence.insert_region(&subject.hash, &record.region)?;
        let origin = Origin { agent: "engine", tiling_move: "first", parent: "" };
        let row = workshop.judge(&subject, &schedule, &prepared, None, origin)?;
        if !row.passed() {
            let (kernel, device) = (record.name.clone(), device_name);
            return Err(TuneError::Wrong { kernel, device, verdict: row.verdict });
        }
        let launches = engine.plan.steps.iter().filter(|step| step.kernel == kernel);
        let mut arm = Arm {
            kernel,
            n_launches: launches.count() as u64,
            first: schedule,
            best: schedule,
            reference: prepared,
            better: None,
            best_ratio: 1.0,
            best_ns: row.median_ns,
            proof: row.key.hash(),
            first_ns: row.median_ns,
            first_proof: row.key.hash(),
            seen: BTreeSet::from([schedule]),
            frontier: Vec::new(),
            n_tried: 0,
            subject,
        };
        for (_, other, _) in first_choices(&arm.subject.region, &chip) {
            arm.consider(other, "family", schedule, &chip);
        }
        arm.grow(schedule, &chip);
        arms.push(arm);
    }
    let deadline = match job.budget {
        Budget::Time(time) => Some(started + time.saturating_sub(race_time(time))),
        _ => None,
    };
    let mut n_steps = 0u64;
    loop {
        report.interrupted = interrupt.load(Ordering::SeqCst);
        let is_over = match job.budget {
            Budget::First => true,
            Budget::Measurements(n) => n_steps >= n,
            Budget::Time(_) => deadline.is_some_and(|deadline| Instant::now() >= deadline),
        };
        if is_over || report.interrupted {
            break;
        }
        // Where most time goes, and least was tried.
        let value = |arm: &Arm| arm.best_ns * arm.n_launches as f64 / (1 + arm.n_tried) as f64;
        let open_arms = arms.iter_mut().filter(|arm| !arm.frontier.is_empty());
        let arm =
            open_arms.max_by(|a, b| value(a).total_cmp(&value(b)).then(b.kernel.cmp(&a.kernel)));
        let Some(arm) = arm else { break };
        let Some((_, schedule, tiling_move, parent)) = arm.next() else { break };
        let Ok(prepared) = prepare(&arm.subject, &schedule, target) else { continue };
        if same_bytes(&prepared.lowered.bindings, &arm.reference.lowered.bindings).is_none() {
            report.n_other_weights += 1;
            continue;
        }
        n_steps += 1;
        arm.n_tried += 1;
        let parent = parent.to_string();
        let origin = Origin { agent: "tuner", tiling_move, parent: &parent };
        let row =
            workshop.judge(&arm.subject, &schedule, &prepared, Some(&arm.reference), origin)?;
        let before: Vec<f64> = row.incumbent_ns.iter().map(|&ns| ns as f64).collect();
        let ratio = median(&before).map(|before_ns| row.median_ns / before_ns);
        let usable = |ratio: &f64| row.passed() && ratio.is_finite() && *ratio > 0.0;
        let Some(ratio) = ratio.filter(usable) else { continue };
        if ratio < (1.0 - LEAST_GAIN) * arm.best_ratio {
            // Of many candidates some look better by luck: a winner has to win again, directly.
            let duel = workshop.duel(&arm.subject, &prepared, arm.best_kernel())?;
            if duel.decision == "faster" && duel.ratio < 1.0 - LEAST_GAIN {
                (arm.best, arm.better, arm.best_ns) = (schedule, Some(prepared), row.median_ns);
                (arm.best_ratio, arm.proof) = (duel.ratio * arm.best_ratio, row.key.hash());
            }
        }
        if ratio < 1.15 * arm.best_ratio || arm.best == schedule {
            arm.grow(schedule, &chip);
        }
    }
    let identity = workshop.device_identity().to_owned();
    let before = measured(&engine, &arms, &mut workshop, &identity, job, false)?;
    let after = measured(&engine, &arms, &mut workshop, &identity, job, true)?;
    let counts = workshop.counts;
    (report.n_candidates, report.n_measured) = (counts.n_candidates, counts.n_measured);
    report.n_rejected = counts.n_rejected;
    let mut parts = before;
    if after.ptx != parts.ptx {
        let budget = match job.budget {
            Budget::Time(time) => race_time(time),
            _ => Duration::from_secs(3),
        };
        let racer = Racer {
            evidence: &evidence,
            device: identity,
            open: &open,
            seed: job.seed,
            budget,
            n_sessions: 1,
        };
        let (new, old) = (fingerprint(&after), fingerprint(&parts));
        let row = racer
            .race((&new, &after), (&old, &parts))
            .map_err(|err| TuneError::Race(Box::new(err)))?;
        report.comparison =
            Some(Speedup { ratio: 1.0 / row.ratio, low: 1.0 / row.high, high: 1.0 / row.low });
        if faster(&row) {
            let changed = arms.iter().filter(|arm| arm.best != arm.first);
            report.replaced = changed
                .map(|arm| {
                    let name = engine.manifest.kernels[arm.kernel].name.clone();
                    (name, arm.first.to_string(), arm.best.to_string())
                })
                .collect();
            parts = after;
        }
    }
    // Machine code is of kernels: what the engine had, it has again.
    let targets: Vec<Target> =
        engine.manifest.code.iter().filter_map(|record| record.target.parse().ok()).collect();
    add_code(&mut parts, &targets, &Assembler::find_or_driver(None, Path::new(".")))?;
    Engine::write(output, &parts)?;
    Ok(report)
}

/// The part of a time budget that goes to comparing whole engines.
fn race_time(time: Duration) -> Duration {
    (time / 8).min(Duration::from_secs(12))
}

/// What runs: the plan and the texts.
fn fingerprint(parts: &EngineParts) -> String {
    let plan = serde_json::to_string(&parts.plan).expect("a plan serialises");
    let mut hasher = blake3::Hasher::new();
    hasher.update(plan.as_bytes());
    for text in &parts.ptx {
        hasher.update(text.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// The engine with the times that were measured, and with the best kernels if `tuned`.
fn measured(
    engine: &Engine,
    arms: &[Arm],
    workshop: &mut Workshop<'_>,
    device: &str,
    job: &TuneJob,
    tuned: bool,
) -> Result<EngineParts, TuneError> {
    let n_kernels = engine.plan.kernels.len();
    let mut parts = EngineParts {
        manifest: engine.manifest.clone(),
        plan: engine.plan.clone(),
        ptx: (0..n_kernels).map(|kernel| engine.ptx(kernel).to_owned()).collect(),
        weights: engine.weights().clone(),
        report: engine.report()?,
        evidence: engine.evidence()?,
        code: Vec::new(),
    };
    parts.manifest.code.clear();
    parts.manifest.device = Some(device.to_owned());
    parts.manifest.predicted_for = None;
    parts.manifest.predicted_with = None;
    parts.manifest.options.insert("tuned".into(), format!("{} on {}", job.budget, job.device));
    let mut proofs: BTreeSet<String> = parts.evidence.drain(..).collect();
    let mut reports: BTreeMap<usize, Verification> = BTreeMap::new();
    for arm in arms {
        let subject = &arm.subject;
        let (schedule, prepared) =
            if tuned { (arm.best, arm.best_kernel()) } else { (arm.first, &arm.reference) };
        let verification = workshop.verify(subject, prepared)?;
        let record = &mut parts.manifest.kernels[arm.kernel];
        record.verdict = Some(verification.verdict.name().to_owned());
        record.error_ratio = Some(verification.error_ratio());
        reports.insert(arm.kernel, verification);
        let ns = if tuned { arm.best_ns } else { arm.first_ns };
        record.measured_ns = Some(ns);
        proofs.insert(if tuned { arm.proof.clone() } else { arm.first_proof.clone() });
        if arm.best == arm.first || !tuned {
            continue;
        }
        let map = same_bytes(&prepared.lowered.bindings, &arm.reference.lowered.bindings)
            .expect("only such candidates were tried");
        let kernel = &prepared.lowered.kernel;
        record.name.clone_from(&kernel.name);
        record.family = schedule.family().to_owned();
        record.schedule = schedule.to_string();
        record.ptx_hash.clone_from(&prepared.ptx_hash);
        record.agent = "tuner".into();
        record.predicted_ns = None;
        parts.ptx[arm.kernel].clone_from(&prepared.ptx);
        parts.plan.kernels[arm.kernel] = KernelPlan {
            entry: kernel.name.clone(),
            grid: kernel.grid,
            block: [kernel.n_threads, 1, 1],
            n_params: map.len(),
            attributes: LaunchAttributes::default(),
        };
        for step in parts.plan.steps.iter_mut().filter(|step| step.kernel == arm.kernel) {
            step.args = map.iter().map(|&at| step.args[at]).collect();
        }
    }
    if parts.report.len() == n_kernels {
        for (kernel, verification) in reports {
            parts.report[kernel] = verification;
        }
    }
    parts.evidence = proofs.into_iter().collect();
    Ok(parts)
}
