//! Where candidates are made and judged: region and schedule to PTX, verified and timed on the device,
//! every result written down as evidence.

use std::collections::BTreeMap;

use eggine_codegen_ptx::kir::steps_bound;
use eggine_codegen_ptx::{Binding, Lowered, Target, emit, lower};
use eggine_ir::{Region, Schedule, Tensor};
use eggine_runtime::timing::{Decision, Measured, measure};
use eggine_runtime::verify::verify;
use eggine_runtime::{
    Candidate, CandidateBuffer, Device, OracleCache, TimingPlan, Verdict, Verification,
    VerifyOptions,
};

use crate::evidence::{Conditions, EngineRow, Evidence, EvidenceError, Key, MissTally, Row};
use crate::memory::{Memory, Quarantined};
use crate::nearby::{Nearby, NearbyCounts};
use crate::phases::{Phase, Phases};

/// Changes whenever verification or timing does: what was measured otherwise is not comparable.
pub const METHOD: &str = "verify-2 timing-5";

/// Kinds of verdicts in rows, beside those of [`Verdict`]: right, not run again, not made.
const ROW_KINDS: [&str; 3] = ["pass", "quarantined", "refused"];

/// Oracles of the regions under search are kept up to this size.
const ORACLE_CACHE_BYTES: usize = 1 << 30;

type Pack = Box<dyn Fn(&Tensor) -> Tensor + Send + Sync>;

/// A kernel ready to run.
pub struct Prepared {
    /// How the region is computed.
    pub schedule: Schedule,
    /// Kernel IR and what its parameters are.
    pub lowered: Lowered,
    /// The text that runs and ships.
    pub ptx: String,
    /// Hash of the text.
    pub ptx_hash: String,
    packs: Vec<Option<Pack>>,
}

impl Prepared {
    /// The kernel as verification wants it.
    pub fn candidate(&self) -> Candidate<'_> {
        let kernel = &self.lowered.kernel;
        let buffers =
            self.lowered.bindings.iter().zip(&self.packs).map(|(binding, pack)| match binding {
                Binding::Input { index, .. } => {
                    let pack =
                        pack.as_ref().map(|pack| &**pack as &(dyn Fn(&Tensor) -> Tensor + Sync));
                    CandidateBuffer::Input { index: *index, pack }
                }
                Binding::Output { index } => CandidateBuffer::Output { index: *index },
                Binding::Table(table) => CandidateBuffer::Table(table.clone()),
            });
        Candidate {
            ptx: &self.ptx,
            entry: &kernel.name,
            grid: kernel.grid,
            block: [kernel.n_threads, 1, 1],
            buffers: buffers.collect(),
        }
    }
}

/// What the evidence is about: everything but the schedule and the PTX.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The region.
    pub region: Region,
    /// Its hash, in hexadecimal.
    pub hash: String,
}

/// Who proposed a candidate, and from what.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The agent.
    pub agent: &'a str,
    /// The move.
    pub tiling_move: &'a str,
    /// The schedule that it started from, as text.
    pub parent: &'a str,
}

/// Candidates of this run, by where their judgement came from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Judged.
    pub n_candidates: u64,
    /// Of these, run on the device now.
    pub n_measured: u64,
    /// Of these, rejected.
    pub n_rejected: u64,
    /// Rejected before they ran: known to hang, trap or exhaust memory.
    pub n_quarantined: u64,
    /// Schedules for which no kernel could be made.
    pub n_refused: u64,
}

/// See the [module](self).
pub struct Workshop<'a> {
    /// Where candidates run.
    pub device: Box<dyn Device>,
    /// What is known.
    pub evidence: &'a Evidence,
    /// What had to be measured although others did, and why.
    pub misses: MissTally,
    /// Clocks.
    pub phases: Phases,
    /// What was done.
    pub counts: Counts,
    /// What kernels are emitted for.
    pub target: Target,
    device_identity: String,
    oracles: OracleCache,
    options: VerifyOptions,
    plan: TimingPlan,
    verified: BTreeMap<(String, String), Verification>,
    memory: Memory,
    nearby: Nearby,
}

/// Why a search cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkshopError {
    /// The evidence.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The device.
    #[error("the device failed: {0}")]
    Device(#[from] eggine_runtime::DeviceError),
    /// A row whose verdict this program does not know: it may mean anything.
    #[error(
        "evidence row {row} of schedule {schedule} has the verdict `{verdict}`, which this program does not know; use the program that wrote it or name another file with --evidence"
    )]
    UnknownVerdict {
        /// Content address of the row's preconditions.
        row: String,
        /// The schedule.
        schedule: String,
        /// What it says.
        verdict: String,
    },
    /// What ran is not what its row would name: a bug of ours, and no measurement.
    #[error("schedule {schedule}: the text that ran has hash {ran}, its row would name {named}")]
    OtherText {
        /// The schedule.
        schedule: String,
        /// Hash of the text that was loaded.
        ran: String,
        /// Hash in the key.
        named: String,
    },
}

impl<'a> Workshop<'a> {
    /// A workshop on a device.
    pub fn new(
        device: Box<dyn Device>,
        evidence: &'a Evidence,
        target: Target,
        seed: u64,
        phases: Phases,
    ) -> Self {
        Self {
            device_identity: device.info().identity,
            device,
            evidence,
            misses: MissTally::default(),
            phases,
            counts: Counts::default(),
            target,
            oracles: OracleCache::new(ORACLE_CACHE_BYTES),
            options: VerifyOptions { seed, ..VerifyOptions::default() },
            plan: TimingPlan {
                n_warmups: 1,
                min_samples: 8,
                max_samples: 32,
                // The duel of a winner has twice as long.
                budget_ns: 20_000_000,
                // Most challengers lose clearly: four runs each show it.
                give_up_ratio: 1.25,
                seed,
                ..TimingPlan::default()
            },
            verified: BTreeMap::new(),
            memory: Memory::default(),
            nearby: Nearby::new(seed),
        }
    }

    /// Seed of the inputs.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Takes over what evidence says of kernels that must not run again.
    ///
    /// # Errors
    ///
    /// If evidence cannot be read.
    pub fn remember(&mut self) -> Result<(), EvidenceError> {
        self.memory = Memory::open(self.evidence, &self.device_identity)?;
        Ok(())
    }

    /// Kernels that must not run again, in the order of their hashes.
    pub fn quarantined(&self) -> impl Iterator<Item = &Quarantined> {
        self.memory.quarantined()
    }

    /// What was done at neighbouring extents.
    pub fn nearby(&self) -> NearbyCounts {
        self.nearby.counts()
    }

    /// Whether a text of this hash was verified, for whatever region.
    pub fn is_verified(&self, ptx_hash: &str) -> bool {
        (self.verified.iter()).any(|((_, hash), found)| hash == ptx_hash && found.accepted())
    }

    /// How a kernel is verified: with a limit from its code, and all that refuted others of its kind.
    fn options_for(
        &mut self,
        subject: &Subject,
        prepared: &Prepared,
    ) -> Result<VerifyOptions, EvidenceError> {
        let Self { memory, evidence, options, phases, .. } = self;
        let corpus = phases.time(Phase::Evidence, |_| memory.corpus(evidence, &subject.region))?;
        let step_limit = Some(steps_bound(&prepared.lowered.kernel));
        Ok(VerifyOptions { step_limit, corpus, ..options.clone() })
    }

    fn learn(
        &mut self,
        subject: &Subject,
        prepared: &Prepared,
        verification: &Verification,
    ) -> Result<(), EvidenceError> {
        let Self { memory, evidence, device_identity, phases, .. } = self;
        phases.time(Phase::Evidence, |_| {
            memory.learn(evidence, device_identity, subject, prepared, verification)
        })
    }

    /// Identity of the device, as in evidence.
    pub fn device_identity(&self) -> &str {
        &self.device_identity
    }

    /// Makes the kernel of a region under a schedule, or says why there is none.
    ///
    /// # Errors
    ///
    /// The reason, in the words of lowering or emission.
    pub fn prepare(&mut self, subject: &Subject, schedule: &Schedule) -> Result<Prepared, String> {
        let target = self.target;
        self.phases.time(Phase::Emit, |_| prepare(subject, schedule, target))
    }

    /// Preconditions of a judgement.
    pub fn key(&self, subject: &Subject, schedule: &Schedule, prepared: &Prepared) -> Key {
        self.key_of(subject, schedule, &prepared.ptx_hash)
    }

    fn key_of(&self, subject: &Subject, schedule: &Schedule, ptx_hash: &str) -> Key {
        Key {
            region: subject.hash.clone(),
            schedule: schedule.to_string(),
            ptx: ptx_hash.to_owned(),
            device: self.device_identity.clone(),
            method: METHOD.to_owned(),
            conditions: Conditions::default(),
        }
    }

    /// Checks on all threads at neighbouring extents what is going to be verified.
    ///
    /// # Errors
    ///
    /// If the checking device fails in what is not a kernel's doing.
    pub fn check_nearby(&mut self, wanted: &[(&Subject, Schedule)]) -> Result<(), WorkshopError> {
        let Self { phases, nearby, target, .. } = self;
        Ok(phases.time(Phase::Verify, |_| nearby.prepare(wanted, *target, &prepare))?)
    }

    /// Verifies a kernel; the result is remembered for the engine's report.
    ///
    /// # Errors
    ///
    /// If the device fails in what is not the kernel's doing.
    pub fn verify(
        &mut self,
        subject: &Subject,
        prepared: &Prepared,
    ) -> Result<Verification, WorkshopError> {
        let known = (subject.hash.clone(), prepared.ptx_hash.clone());
        if let Some(verification) = self.verified.get(&known) {
            return Ok(verification.clone());
        }
        if let Some(verdict) = self.memory.forbids(&prepared.ptx_hash).cloned() {
            self.counts.n_quarantined += 1;
            let seed = self.options.seed;
            return Ok(Verification { verdict, seed, families: Vec::new() });
        }
        let options = self.options_for(subject, prepared)?;
        let Self { device, oracles, phases, nearby, target, .. } = self;
        phases.time(Phase::Oracle, |_| warm_oracles(oracles, subject, &options));
        let verification = phases.time(Phase::Verify, |_| {
            let mut found = verify(
                device.as_mut(),
                &subject.region,
                &subject.hash,
                &prepared.candidate(),
                oracles,
                &options,
            )?;
            if found.accepted() {
                found.verdict = nearby.check(subject, &prepared.schedule, *target, &prepare)?;
            }
            Ok::<_, WorkshopError>(found)
        })?;
        self.learn(subject, prepared, &verification)?;
        self.verified.insert(known, verification.clone());
        Ok(verification)
    }

    /// Writes down that no kernel could be made, so that nobody has to wonder.
    ///
    /// # Errors
    ///
    /// If evidence cannot be written.
    pub fn refuse(
        &mut self,
        subject: &Subject,
        schedule: &Schedule,
        reason: &str,
        origin: Origin<'_>,
    ) -> Result<(), WorkshopError> {
        self.counts.n_refused += 1;
        let key = self.key_of(subject, schedule, "");
        let row = rejected_row(key, self.options.seed, format!("refused: {reason}"), origin);
        let evidence = self.evidence;
        Ok(self.phases.time(Phase::Evidence, |_| evidence.insert(&row))?)
    }

    /// Judges a candidate: from evidence, else by verifying and timing it, in turns with `reference` if
    /// there is one.
    ///
    /// The reference of a region is always its first choice, whatever the best is at the moment: so a row
    /// says the same to every search that finds it.
    ///
    /// # Errors
    ///
    /// If evidence cannot be used, or the device fails in what is not the candidate's doing.
    pub fn judge(
        &mut self,
        subject: &Subject,
        schedule: &Schedule,
        prepared: &Prepared,
        reference: Option<&Prepared>,
        origin: Origin<'_>,
    ) -> Result<Row, WorkshopError> {
        self.counts.n_candidates += 1;
        let key = self.key(subject, schedule, prepared);
        let evidence = self.evidence;
        let known = self.phases.time(Phase::Evidence, |_| evidence.lookup(&key))?;
        let row = match known {
            Some(row) => {
                check_kind(&row)?;
                row
            }
            None if self.memory.forbids(&prepared.ptx_hash).is_some() => {
                self.counts.n_quarantined += 1;
                let what = self.memory.forbids(&prepared.ptx_hash).map(Verdict::to_string);
                let verdict = format!("quarantined: {}", what.unwrap_or_default());
                let row = rejected_row(key, self.options.seed, verdict, origin);
                self.phases.time(Phase::Evidence, |_| evidence.keep(row))?
            }
            None => {
                let misses = &mut self.misses;
                self.phases.time(Phase::Evidence, |_| misses.note(evidence, &key))?;
                let row = self.measure(key, subject, prepared, reference, origin)?;
                self.counts.n_measured += 1;
                self.phases.time(Phase::Evidence, |_| evidence.keep(row))?
            }
        };
        self.counts.n_rejected += u64::from(!row.passed());
        Ok(row)
    }

    fn measure(
        &mut self,
        key: Key,
        subject: &Subject,
        prepared: &Prepared,
        reference: Option<&Prepared>,
        origin: Origin<'_>,
    ) -> Result<Row, WorkshopError> {
        let options = &self.options_for(subject, prepared)?;
        let is_first = reference.is_none();
        let Self { device, oracles, plan, phases, nearby, target, .. } = self;
        // Of those that have to win a duel, that is soon enough for empty caches.
        let plan = &TimingPlan { cold: is_first, ..plan.clone() };
        phases.time(Phase::Oracle, |_| {
            warm_oracles(oracles, subject, options);
            let fresh = VerifyOptions { seed: options.seed.wrapping_add(1), ..options.clone() };
            warm_oracles(oracles, subject, &fresh);
        });
        let reference = reference.map(Prepared::candidate);
        let mut measured = phases.time(Phase::Measure, |_| {
            let (region, hash) = (&subject.region, subject.hash.as_str());
            let candidate = prepared.candidate();
            let device = device.as_mut();
            measure(device, region, hash, &candidate, reference.as_ref(), oracles, options, plan)
        })?;
        same_text(&key.schedule, &measured, prepared)?;
        // Only what may be used at once is worth a second look; others come to a duel first.
        if is_first && measured.accepted() {
            let found = phases.time(Phase::Verify, |_| {
                nearby.check(subject, &prepared.schedule, *target, &prepare)
            })?;
            if !found.accepted() {
                measured.before.verdict = found;
            }
        }
        let seed = options.seed;
        self.learn(subject, prepared, measured.judgement())?;
        if measured.accepted() {
            let known = (subject.hash.clone(), prepared.ptx_hash.clone());
            self.verified.insert(known, measured.before.clone());
        }
        Ok(row(key, seed, &measured, origin))
    }

    /// Races a candidate that passed directly against the best so far, over more rounds than a judgement
    /// has: of many candidates some look better by luck, so a winner has to win again. From evidence, if
    /// the two met before.
    ///
    /// # Errors
    ///
    /// As [`judge`](Self::judge).
    pub fn duel(
        &mut self,
        subject: &Subject,
        challenger: &Prepared,
        best: &Prepared,
    ) -> Result<EngineRow, WorkshopError> {
        let parts = [
            "duel",
            &subject.hash,
            &challenger.ptx_hash,
            &best.ptx_hash,
            &self.device_identity,
            METHOD,
        ];
        let hash = blake3::hash(parts.join("\n").as_bytes()).to_hex().to_string();
        let evidence = self.evidence;
        let known = self.phases.time(Phase::Evidence, |_| evidence.lookup_engine(&hash))?;
        if let Some(row) = known {
            return Ok(row);
        }
        let options = self.options_for(subject, challenger)?;
        let Self { device, oracles, plan, phases, nearby, target, .. } = self;
        let plan = TimingPlan {
            min_samples: 2 * plan.min_samples,
            max_samples: 2 * plan.max_samples,
            budget_ns: 2 * plan.budget_ns,
            seed: plan.seed.wrapping_add(1),
            ..plan.clone()
        };
        // Fresh inputs: what was right on those of the judgement is verified on others.
        let options = VerifyOptions { seed: options.seed.wrapping_add(1), ..options };
        phases.time(Phase::Oracle, |_| warm_oracles(oracles, subject, &options));
        let mut measured = phases.time(Phase::Measure, |_| {
            let (region, hash) = (&subject.region, subject.hash.as_str());
            let (a, b) = (challenger.candidate(), best.candidate());
            measure(device.as_mut(), region, hash, &a, Some(&b), oracles, &options, &plan)
        })?;
        same_text(&challenger.schedule.to_string(), &measured, challenger)?;
        if measured.wins() {
            let found = phases.time(Phase::Verify, |_| {
                nearby.check(subject, &challenger.schedule, *target, &prepare)
            })?;
            if !found.accepted() {
                measured.before.verdict = found;
                let known = (subject.hash.clone(), challenger.ptx_hash.clone());
                self.verified.insert(known, measured.before.clone());
            }
        }
        self.learn(subject, challenger, measured.judgement())?;
        let row = match (&measured.race, measured.accepted()) {
            (Some(race), true) => EngineRow {
                samples_ns: race.challenger.samples_ns.clone(),
                incumbent_ns: race.incumbent.samples_ns.clone(),
                decision: decision(&measured, race.decision.name()),
                ratio: race.ratio.map_or(f64::MAX, |it| it.median),
                low: race.ratio.map_or(f64::MAX, |it| it.low),
                high: race.ratio.map_or(f64::MAX, |it| it.high),
            },
            // Right once and wrong on other inputs.
            _ => EngineRow {
                samples_ns: Vec::new(),
                incumbent_ns: Vec::new(),
                decision: measured.verdict().name().to_owned(),
                ratio: f64::MAX,
                low: f64::MAX,
                high: f64::MAX,
            },
        };
        Ok(self.phases.time(Phase::Evidence, |_| evidence.keep_engine(&hash, row))?)
    }
}

/// Lowers and emits. Free of the workshop, so that many can be made in parallel.
///
/// # Errors
///
/// Why there is no kernel. A panic of code generation is a bug of ours, but one candidate's: it is
/// reported with what reproduces it, and the search goes on.
pub fn prepare(subject: &Subject, schedule: &Schedule, target: Target) -> Result<Prepared, String> {
    let made = std::panic::catch_unwind(|| prepare_here(subject, schedule, target));
    made.unwrap_or_else(|_| {
        tracing::error!(%schedule, region = %subject.region, "code generation panicked: please report this");
        Err("code generation panicked".to_owned())
    })
}

fn prepare_here(
    subject: &Subject,
    schedule: &Schedule,
    target: Target,
) -> Result<Prepared, String> {
    let mut lowered = lower(&subject.region, schedule).map_err(|err| err.to_string())?;
    lowered.kernel.name = format!("{}_{}", schedule.family(), &subject.hash[..12]);
    let ptx = emit(&lowered.kernel, target).map_err(|err| err.to_string())?;
    let packs = lowered.bindings.iter().map(|binding| match binding {
        Binding::Input { packing: Some(packing), .. } => {
            let packing = packing.clone();
            Some(Box::new(move |tensor: &Tensor| packing.apply(tensor)) as Pack)
        }
        _ => None,
    });
    Ok(Prepared {
        schedule: *schedule,
        packs: packs.collect(),
        ptx_hash: eggine_runtime::engine::hash_text(&ptx),
        ptx,
        lowered,
    })
}

/// Reference results cost more than most kernels, so they have a clock of their own.
fn warm_oracles(oracles: &OracleCache, subject: &Subject, options: &VerifyOptions) {
    for &family in &options.families {
        oracles.get(&subject.region, &subject.hash, family, options.seed);
    }
}

/// What a row names has to be what ran.
fn same_text(
    schedule: &str,
    measured: &Measured,
    prepared: &Prepared,
) -> Result<(), WorkshopError> {
    if measured.ptx_hash == prepared.ptx_hash {
        return Ok(());
    }
    let (ran, named) = (measured.ptx_hash.clone(), prepared.ptx_hash.clone());
    Err(WorkshopError::OtherText { schedule: schedule.to_owned(), ran, named })
}

/// A verdict of a kind that nobody knows is not a rejection: it may mean anything.
fn check_kind(row: &Row) -> Result<(), WorkshopError> {
    let kind = row.verdict_kind();
    if ROW_KINDS.contains(&kind) || Verdict::NAMES.contains(&kind) && kind != "accepted" {
        return Ok(());
    }
    Err(WorkshopError::UnknownVerdict {
        row: row.key.hash(),
        schedule: row.key.schedule.clone(),
        verdict: row.verdict.clone(),
    })
}

/// Times that are not believed decide nothing.
fn decision(measured: &Measured, otherwise: &str) -> String {
    match &measured.distrust {
        Some(distrust) => format!("{}: {}", Decision::Rejected.name(), distrust.name()),
        None => otherwise.to_owned(),
    }
}

/// A row of a candidate that did not run.
fn rejected_row(key: Key, seed: u64, verdict: String, origin: Origin<'_>) -> Row {
    Row {
        key,
        verdict,
        seed: Some(seed),
        samples_ns: Vec::new(),
        incumbent_ns: Vec::new(),
        decision: "alone".to_owned(),
        median_ns: 0.0,
        error_of_bound: 0.0,
        agent: origin.agent.to_owned(),
        tiling_move: origin.tiling_move.to_owned(),
        parent: origin.parent.to_owned(),
    }
}

fn row(key: Key, seed: u64, measured: &Measured, origin: Origin<'_>) -> Row {
    let verdict = match measured.verdict() {
        Verdict::Accepted => "pass".to_owned(),
        other => format!("{}: {other}", other.name()),
    };
    let raced = measured.race.as_ref().map_or("alone", |race| race.decision.name());
    // Times that are not believed are kept, and count for nothing.
    let timing = measured.timing.as_ref();
    let believed = timing.filter(|_| measured.distrust.is_none());
    let samples = |timing: &eggine_runtime::Timing| timing.samples_ns.clone();
    Row {
        samples_ns: timing.map_or_else(Vec::new, samples),
        incumbent_ns: measured.race.as_ref().map_or_else(Vec::new, |race| samples(&race.incumbent)),
        decision: decision(measured, raced),
        median_ns: believed.and_then(|timing| timing.median_ns()).unwrap_or(0.0),
        error_of_bound: measured.before.error_ratio(),
        ..rejected_row(key, seed, verdict, origin)
    }
}
