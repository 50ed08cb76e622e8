//! Verify, time, verify again: what a search does with each candidate.

use eggine_ir::Region;

use super::{Contestant, Decision, Race, Timing, TimingPlan, race, time_alone};
use crate::device::{Device, DeviceError};
use crate::verify::{
    Candidate, Family, OracleCache, Resident, Verdict, Verification, VerifyOptions, verify_resident,
};

/// What is known about a candidate after it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Before timing; if it is not accepted, the rest is empty.
    pub before: Verification,
    /// Alone, or its side of the race; `None` if it was not timed.
    pub timing: Option<Timing>,
    /// Against the incumbent, if there is one.
    pub race: Option<Race>,
    /// After timing, on fresh inputs; `None` if it was not timed.
    pub after: Option<Verification>,
}

impl Measured {
    /// The verdict that counts: the first that is not `accepted`.
    pub fn verdict(&self) -> &Verdict {
        match &self.after {
            Some(after) if self.before.accepted() => &after.verdict,
            _ => &self.before.verdict,
        }
    }

    /// Whether it was accepted before and after timing.
    pub fn accepted(&self) -> bool {
        self.before.accepted() && self.after.as_ref().is_none_or(Verification::accepted)
    }

    /// Whether it replaces the incumbent (or is the first that is accepted).
    pub fn wins(&self) -> bool {
        self.accepted() && self.race.as_ref().is_none_or(|race| race.decision == Decision::Faster)
    }
}

/// Verifies a candidate, times it (against the incumbent if there is one, which must have been
/// accepted before), and verifies it again on fresh inputs. A candidate that fails is not timed.
///
/// # Errors
///
/// Only if the device fails in what is not the candidate's doing, or the incumbent fails.
///
/// # Panics
///
/// If a candidate names inputs or outputs that the region lacks.
#[allow(
    clippy::too_many_arguments,
    reason = "each is a different thing, and a struct of them would be no clearer"
)]
pub fn measure(
    device: &mut dyn Device,
    region: &Region,
    key: &str,
    challenger: &Candidate<'_>,
    incumbent: Option<&Candidate<'_>>,
    oracles: &OracleCache,
    options: &VerifyOptions,
    plan: &TimingPlan,
) -> Result<Measured, DeviceError> {
    let mut a = match Resident::new(device, region, challenger, options.guard_bytes) {
        Ok(resident) => resident,
        Err(DeviceError::Load { reason }) => {
            let verdict = Verdict::DoesNotLoad { reason };
            let before = Verification { verdict, seed: options.seed, families: Vec::new() };
            return Ok(Measured { before, timing: None, race: None, after: None });
        }
        Err(err) => return Err(err),
    };
    let result = measure_resident(device, region, key, &mut a, incumbent, oracles, options, plan);
    a.free(device)?;
    result
}

#[allow(clippy::too_many_arguments, reason = "as `measure`")]
fn measure_resident(
    device: &mut dyn Device,
    region: &Region,
    key: &str,
    a: &mut Resident<'_>,
    incumbent: Option<&Candidate<'_>>,
    oracles: &OracleCache,
    options: &VerifyOptions,
    plan: &TimingPlan,
) -> Result<Measured, DeviceError> {
    let before = verify_resident(device, region, key, a, oracles, options)?;
    if !before.accepted() {
        return Ok(Measured { before, timing: None, race: None, after: None });
    }
    // Values matter little for time, but they must not be the subnormals of the extreme family.
    let inputs = oracles.get(region, key, Family::Normal, options.seed);
    a.write_inputs(device, &inputs.inputs)?;
    let mut b = match incumbent {
        Some(incumbent) => Some(Resident::new(device, region, incumbent, options.guard_bytes)?),
        None => None,
    };
    let timed = (|| {
        if let Some(b) = &mut b {
            b.write_inputs(device, &inputs.inputs)?;
        }
        let mut elapsed_ns = Vec::with_capacity(1);
        let mut sample = |resident: &Resident<'_>| {
            elapsed_ns.clear();
            device.time(std::slice::from_ref(resident.launch()), &mut elapsed_ns)?;
            Ok(elapsed_ns.first().map_or(0, |&ns| i64::try_from(ns).unwrap_or(i64::MAX)))
        };
        match &b {
            None => time_alone(plan, || sample(a)).map(|timing| (timing, None)),
            Some(b) => {
                let race = race(plan, |contestant| match contestant {
                    Contestant::Challenger => sample(a),
                    Contestant::Incumbent => sample(b),
                })?;
                Ok((race.challenger.clone(), Some(race)))
            }
        }
    })();
    if let Some(b) = b {
        b.free(device)?;
    }
    let (timing, race) = match timed {
        Ok(timed) => timed,
        // A kernel that was right at first and faults later is a verdict too.
        Err(DeviceError::Fault { entry, reason }) if entry == a.launch().entry => {
            let verdict = Verdict::Faults { family: Family::Normal, reason };
            let after = Some(Verification { verdict, seed: options.seed, families: Vec::new() });
            return Ok(Measured { before, timing: None, race: None, after });
        }
        Err(err) => return Err(err),
    };
    // Another stream of inputs: nothing that the kernel may have kept is right for them.
    let fresh = VerifyOptions { seed: options.seed.wrapping_add(1), ..options.clone() };
    let after = verify_resident(device, region, key, a, oracles, &fresh)?;
    Ok(Measured { before, timing: Some(timing), race, after: Some(after) })
}
