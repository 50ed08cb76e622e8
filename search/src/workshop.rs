//! Where candidates are made and judged: region and schedule to PTX, verified and timed on the device,
//! every result written down as evidence.

use std::collections::BTreeMap;

use eggine_codegen_ptx::{Binding, Lowered, Target, emit, lower};
use eggine_ir::{Region, Schedule, Tensor};
use eggine_runtime::timing::{Measured, measure};
use eggine_runtime::verify::verify;
use eggine_runtime::{
    Candidate, CandidateBuffer, Device, OracleCache, TimingPlan, Verdict, Verification,
    VerifyOptions,
};

use crate::evidence::{Conditions, EngineRow, Evidence, EvidenceError, Key, MissTally, Row};
use crate::phases::{Phase, Phases};

/// Changes whenever verification or timing does: what was measured otherwise is not comparable.
pub const METHOD: &str = "verify-1 timing-4";

/// Oracles of the regions under search are kept up to this size.
const ORACLE_CACHE_BYTES: usize = 1 << 30;

type Pack = Box<dyn Fn(&Tensor) -> Tensor + Send + Sync>;

/// A kernel ready to run.
pub struct Prepared {
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
        }
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
        Key {
            region: subject.hash.clone(),
            schedule: schedule.to_string(),
            ptx: prepared.ptx_hash.clone(),
            device: self.device_identity.clone(),
            method: METHOD.to_owned(),
            conditions: Conditions::default(),
        }
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
        let Self { device, oracles, options, phases, .. } = self;
        phases.time(Phase::Oracle, |_| warm_oracles(oracles, subject, options));
        let verification = phases.time(Phase::Verify, |_| {
            verify(
                device.as_mut(),
                &subject.region,
                &subject.hash,
                &prepared.candidate(),
                oracles,
                options,
            )
        })?;
        self.verified.insert(known, verification.clone());
        Ok(verification)
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
            Some(row) => row,
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
        let Self { device, oracles, options, plan, phases, .. } = self;
        phases.time(Phase::Oracle, |_| {
            warm_oracles(oracles, subject, options);
            let fresh = VerifyOptions { seed: options.seed.wrapping_add(1), ..options.clone() };
            warm_oracles(oracles, subject, &fresh);
        });
        let reference = reference.map(Prepared::candidate);
        let measured = phases.time(Phase::Measure, |_| {
            let (region, hash) = (&subject.region, subject.hash.as_str());
            let candidate = prepared.candidate();
            let device = device.as_mut();
            measure(device, region, hash, &candidate, reference.as_ref(), oracles, options, plan)
        })?;
        if measured.accepted() {
            let known = (subject.hash.clone(), prepared.ptx_hash.clone());
            self.verified.insert(known, measured.before.clone());
        }
        Ok(row(key, options.seed, &measured, origin))
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
        let Self { device, oracles, options, plan, phases, .. } = self;
        let plan = TimingPlan {
            min_samples: 2 * plan.min_samples,
            max_samples: 2 * plan.max_samples,
            budget_ns: 2 * plan.budget_ns,
            seed: plan.seed.wrapping_add(1),
            ..plan.clone()
        };
        // Fresh inputs: what was right on those of the judgement is verified on others.
        let options = VerifyOptions { seed: options.seed.wrapping_add(1), ..options.clone() };
        phases.time(Phase::Oracle, |_| warm_oracles(oracles, subject, &options));
        let measured = phases.time(Phase::Measure, |_| {
            let (region, hash) = (&subject.region, subject.hash.as_str());
            let (a, b) = (challenger.candidate(), best.candidate());
            measure(device.as_mut(), region, hash, &a, Some(&b), oracles, &options, &plan)
        })?;
        let row = match (&measured.race, measured.accepted()) {
            (Some(race), true) => EngineRow {
                samples_ns: race.challenger.samples_ns.clone(),
                incumbent_ns: race.incumbent.samples_ns.clone(),
                decision: race.decision.name().to_owned(),
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

fn row(key: Key, seed: u64, measured: &Measured, origin: Origin<'_>) -> Row {
    let verdict = match measured.verdict() {
        Verdict::Accepted => "pass".to_owned(),
        other => format!("{}: {other}", other.name()),
    };
    let decision = measured.race.as_ref().map_or("alone", |race| race.decision.name());
    let timing = measured.timing.as_ref();
    Row {
        key,
        verdict,
        seed: Some(seed),
        samples_ns: timing.map_or_else(Vec::new, |timing| timing.samples_ns.clone()),
        incumbent_ns: measured
            .race
            .as_ref()
            .map_or_else(Vec::new, |race| race.incumbent.samples_ns.clone()),
        decision: decision.to_owned(),
        median_ns: timing.and_then(|timing| timing.median_ns()).unwrap_or(0.0),
        error_of_bound: measured.before.error_ratio(),
        agent: origin.agent.to_owned(),
        tiling_move: origin.tiling_move.to_owned(),
        parent: origin.parent.to_owned(),
    }
}
