//! Where candidates are made and judged: region and schedule to PTX, verified and timed on the device,
//! every result written down as evidence.

use std::collections::BTreeMap;

use eggine_codegen_ptx::{Binding, Lowered, Target, emit, lower};
use eggine_ir::{Region, Schedule, Tensor};
use eggine_runtime::timing::{Decision, Measured, measure};
use eggine_runtime::verify::verify;
use eggine_runtime::{
    Candidate, CandidateBuffer, Device, OracleCache, TimingPlan, Verdict, Verification,
    VerifyOptions,
};

use crate::evidence::{Conditions, Evidence, EvidenceError, Key, Row};
use crate::phases::{Phase, Phases};

/// Changes whenever verification or timing does: what was measured otherwise is not comparable.
pub const METHOD: &str = "verify-1 timing-2";

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
            phases,
            counts: Counts::default(),
            target,
            oracles: OracleCache::new(ORACLE_CACHE_BYTES),
            options: VerifyOptions { seed, ..VerifyOptions::default() },
            plan: TimingPlan {
                n_warmups: 1,
                min_samples: 8,
                max_samples: 32,
                budget_ns: 40_000_000,
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

    /// Judges a candidate: from evidence, else by verifying and timing it, against the incumbent if
    /// there is one.
    ///
    /// # Errors
    ///
    /// If evidence cannot be used, or the device fails in what is not the candidate's doing.
    pub fn judge(
        &mut self,
        subject: &Subject,
        schedule: &Schedule,
        prepared: &Prepared,
        incumbent: Option<&Prepared>,
        origin: Origin<'_>,
    ) -> Result<Row, WorkshopError> {
        self.counts.n_candidates += 1;
        let key = self.key(subject, schedule, prepared);
        let evidence = self.evidence;
        let known = self.phases.time(Phase::Evidence, |_| evidence.lookup(&key))?;
        let row = match known {
            Some(row) => row,
            None => {
                let row = self.measure(key, subject, prepared, incumbent, origin)?;
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
        incumbent: Option<&Prepared>,
        origin: Origin<'_>,
    ) -> Result<Row, WorkshopError> {
        let Self { device, oracles, options, plan, phases, .. } = self;
        phases.time(Phase::Oracle, |_| {
            warm_oracles(oracles, subject, options);
            let fresh = VerifyOptions { seed: options.seed.wrapping_add(1), ..options.clone() };
            warm_oracles(oracles, subject, &fresh);
        });
        let incumbent = incumbent.map(Prepared::candidate);
        let mut measured = phases.time(Phase::Measure, |_| {
            let (device, candidate) = (device.as_mut(), prepared.candidate());
            let mut run = |plan: &TimingPlan| {
                let (region, hash) = (&subject.region, subject.hash.as_str());
                measure(
                    device,
                    region,
                    hash,
                    &candidate,
                    incumbent.as_ref(),
                    oracles,
                    options,
                    plan,
                )
            };
            let first = run(plan)?;
            if incumbent.is_none() || !first.wins() {
                return Ok(first);
            }
            // Of many challengers some win by luck: a winner has to win again, over more rounds.
            let longer = TimingPlan {
                min_samples: 2 * plan.min_samples,
                seed: plan.seed.wrapping_add(1),
                ..plan.clone()
            };
            run(&longer)
        })?;
        // A win by less than this is not worth a change that was measured alone.
        const LEAST_GAIN: f64 = 0.01;
        if let Some(race) = &mut measured.race
            && race.decision == Decision::Faster
            && race.ratio.is_none_or(|ratio| ratio.median > 1.0 - LEAST_GAIN)
        {
            race.decision = Decision::Undecided;
        }
        if measured.accepted() {
            let known = (subject.hash.clone(), prepared.ptx_hash.clone());
            self.verified.insert(known, measured.before.clone());
        }
        Ok(row(key, options.seed, &measured, origin))
    }
}

/// Lowers and emits. Free of the workshop, so that many can be made in parallel.
pub fn prepare(subject: &Subject, schedule: &Schedule, target: Target) -> Result<Prepared, String> {
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
