//! Whole engines against each other on the device: what is served is what is compared.

use std::time::{Duration, Instant};

use eggine_ir::{DType, Tensor};
use eggine_runtime::timing::{Contestant, Race, decide_race, race};
use eggine_runtime::{
    Device, DeviceError, Engine, EngineParts, IoSpec, RunError, Session, TimingPlan,
};

use crate::compile::CompileError;
use crate::evidence::{EngineRow, Evidence};
use crate::random::SplitMix;

/// Races engines, or finds the races in the evidence.
pub(crate) struct Racer<'a> {
    pub(crate) evidence: &'a Evidence,
    /// Identity of the device.
    pub(crate) device: String,
    /// A device for each contestant.
    pub(crate) open: &'a dyn Fn() -> Result<Box<dyn Device>, DeviceError>,
    pub(crate) seed: u64,
    /// Time for one race.
    pub(crate) budget: Duration,
    /// Sessions of each contestant that run at once.
    pub(crate) n_sessions: usize,
}

/// Whether a race shows that the challenger is to be preferred.
pub(crate) fn faster(row: &EngineRow) -> bool {
    row.decision == "faster"
}

impl Racer<'_> {
    /// Time of the challenger over time of the incumbent, interleaved. Each with what identifies it: what
    /// runs, in which order, on what.
    pub(crate) fn race(
        &self,
        (challenger_id, challenger): (&str, &EngineParts),
        (incumbent_id, incumbent): (&str, &EngineParts),
    ) -> Result<EngineRow, CompileError> {
        let text = [challenger_id, incumbent_id, self.device.as_str(), "engine-2"].join("\n");
        let text = format!("{text}\n{} sessions", self.n_sessions);
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        if let Some(row) = self.evidence.lookup_engine(&hash)? {
            return Ok(row);
        }
        let many = |parts| (0..self.n_sessions).map(|_| self.session(parts)).collect();
        let (challengers, incumbents): (Result<_, CompileError>, Result<_, CompileError>) =
            (many(challenger), many(incumbent));
        let mut sessions: [Vec<Session>; 2] = [challengers?, incumbents?];
        let raced = race(&self.plan(), |contestant| {
            run_at_once(&mut sessions[usize::from(contestant == Contestant::Incumbent)])
        })?;
        let row = engine_row(raced);
        Ok(self.evidence.keep_engine(&hash, row)?)
    }

    /// Time of each kernel of the challenger over that of the incumbent's kernel in its place, while the
    /// whole engines run in turns: caches are as they are when the engine is served, not as when a kernel
    /// runs alone. The engines have the same cover; one row a kernel, in the plan's order.
    pub(crate) fn in_place(
        &self,
        (challenger_id, challenger): (&str, &EngineParts),
        (incumbent_id, incumbent): (&str, &EngineParts),
    ) -> Result<Vec<EngineRow>, CompileError> {
        let n_kernels = challenger.plan.kernels.len();
        let hash = |kernel: usize| {
            let text = [challenger_id, incumbent_id, self.device.as_str(), "in-place-1"].join("\n");
            blake3::hash(format!("{text}\n{kernel}").as_bytes()).to_hex().to_string()
        };
        let known = (0..n_kernels).map(|kernel| self.evidence.lookup_engine(&hash(kernel)));
        let known: Vec<Option<EngineRow>> = known.collect::<Result<_, _>>()?;
        if let Some(rows) = known.into_iter().collect() {
            return Ok(rows);
        }
        let mut sessions = [self.session(challenger)?, self.session(incumbent)?];
        let plan = self.plan();
        let mut samples = [vec![Vec::new(); n_kernels], vec![Vec::new(); n_kernels]];
        let start = Instant::now();
        for round in 0..plan.max_samples / 2 {
            if round >= plan.min_samples / 2 && start.elapsed() > self.budget {
                break;
            }
            for contestant in [0, 1, 1, 0] {
                let runs = sessions[contestant].time_steps(1).map_err(device)?;
                let mut sums = vec![0; n_kernels];
                let steps = &[challenger, incumbent][contestant].plan.steps;
                for (step, ns) in steps.iter().zip(runs.iter().flat_map(|run| &run.step_ns)) {
                    sums[step.kernel] += i64::try_from(*ns).unwrap_or(i64::MAX);
                }
                // The first round warms up.
                if round > 0 {
                    samples[contestant].iter_mut().zip(sums).for_each(|(all, sum)| all.push(sum));
                }
            }
        }
        let mut rows = Vec::new();
        for kernel in 0..n_kernels {
            let [a, b] = &samples;
            let row = engine_row(decide_race(&plan, &a[kernel], &b[kernel]));
            rows.push(self.evidence.keep_engine(&hash(kernel), row)?);
        }
        Ok(rows)
    }

    fn session(&self, parts: &EngineParts) -> Result<Session, CompileError> {
        let engine = Engine::from_bytes(Engine::to_bytes(parts)?)?;
        let mut session = Session::new((self.open)()?, &engine)?;
        let inputs: Vec<Tensor> =
            engine.inputs().iter().map(|spec| random_input(spec, self.seed)).collect();
        session.write_inputs(&inputs).map_err(device)?;
        Ok(session)
    }

    fn plan(&self) -> TimingPlan {
        TimingPlan {
            n_warmups: 2,
            min_samples: 16,
            max_samples: 256,
            budget_ns: self.budget.as_nanos() as u64,
            half_width: 0.005,
            give_up_ratio: 3.0,
            seed: self.seed,
            ..TimingPlan::default()
        }
    }
}

/// One inference of every session, all at once; how long until the last is done.
fn run_at_once(sessions: &mut [Session]) -> Result<i64, DeviceError> {
    if let [session] = sessions {
        let runs = session.time(1).map_err(device)?;
        return Ok(runs.first().map_or(0, |run| i64::try_from(run.total_ns).unwrap_or(i64::MAX)));
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        let runs: Vec<_> =
            sessions.iter_mut().map(|session| scope.spawn(|| session.time(1))).collect();
        runs.into_iter().try_for_each(|run| {
            run.join().expect("a session does not panic").map(drop).map_err(device)
        })
    })?;
    Ok(i64::try_from(start.elapsed().as_nanos()).unwrap_or(i64::MAX))
}

fn engine_row(raced: Race) -> EngineRow {
    let (low, ratio, high) =
        raced.ratio.map_or((f64::MAX, f64::MAX, f64::MAX), |it| (it.low, it.median, it.high));
    EngineRow {
        samples_ns: raced.challenger.samples_ns,
        incumbent_ns: raced.incumbent.samples_ns,
        decision: raced.decision.name().to_owned(),
        ratio,
        low,
        high,
    }
}

fn device(err: RunError) -> DeviceError {
    match err {
        RunError::Device(source) | RunError::Step { source, .. } => source,
        other => DeviceError::Load { reason: other.to_string() },
    }
}

/// Small numbers: normal floats around zero, integers that are valid indices of most tables.
pub fn random_input(spec: &IoSpec, seed: u64) -> Tensor {
    let mut random = SplitMix(seed ^ 0x5eed);
    let n_elems: usize = spec.extents.iter().product();
    let mut uniform = || random.next_u64() as f64 / u64::MAX as f64;
    match spec.dtype {
        dtype if dtype.is_float() => {
            // The sum of three uniform numbers is normal enough for timing.
            let data: Vec<f64> =
                (0..n_elems).map(|_| 2.0 * (uniform() + uniform() + uniform()) - 3.0).collect();
            Tensor::from_f64(dtype, &spec.extents, &data)
        }
        DType::Bool => {
            let data: Vec<i64> = (0..n_elems).map(|_| i64::from(uniform() < 0.5)).collect();
            Tensor::from_i64(DType::Bool, &spec.extents, &data)
        }
        dtype => {
            let data: Vec<i64> = (0..n_elems).map(|_| i64::from(uniform() < 0.5)).collect();
            Tensor::from_i64(dtype, &spec.extents, &data)
        }
    }
}
