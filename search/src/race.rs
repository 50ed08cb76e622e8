//! Whole engines against each other on the device: what is served is what is compared.

use std::time::Duration;

use eggine_ir::{DType, Tensor};
use eggine_runtime::timing::{Contestant, race};
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
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        if let Some(row) = self.evidence.lookup_engine(&hash)? {
            return Ok(row);
        }
        let mut sessions = Vec::new();
        for parts in [challenger, incumbent] {
            let engine = Engine::from_bytes(Engine::to_bytes(parts)?)?;
            let mut session = Session::new((self.open)()?, &engine)?;
            let inputs: Vec<Tensor> =
                engine.inputs().iter().map(|spec| random_input(spec, self.seed)).collect();
            session.write_inputs(&inputs).map_err(device)?;
            sessions.push(session);
        }
        let plan = TimingPlan {
            n_warmups: 2,
            min_samples: 16,
            max_samples: 256,
            budget_ns: self.budget.as_nanos() as u64,
            half_width: 0.005,
            give_up_ratio: 3.0,
            seed: self.seed,
            ..TimingPlan::default()
        };
        let raced = race(&plan, |contestant| {
            let session = &mut sessions[usize::from(contestant == Contestant::Incumbent)];
            let runs = session.time(1).map_err(device)?;
            Ok(runs.first().map_or(0, |run| i64::try_from(run.total_ns).unwrap_or(i64::MAX)))
        })?;
        let (low, ratio, high) =
            raced.ratio.map_or((f64::MAX, f64::MAX, f64::MAX), |it| (it.low, it.median, it.high));
        let row = EngineRow {
            samples_ns: raced.challenger.samples_ns,
            incumbent_ns: raced.incumbent.samples_ns,
            decision: raced.decision.name().to_owned(),
            ratio,
            low,
            high,
        };
        self.evidence.insert_engine(&hash, &row)?;
        Ok(row)
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
