//! Verify, time, verify again: what a search does with each candidate.
//!
//! While a candidate is timed, no two runs see the same inputs, and the host's clock is the witness of
//! the device's: what the device says a launch took, and what the host waited until everything was
//! done, may differ by a launch's overhead only. Before it is verified again its buffers move.

use eggine_ir::Region;

use super::{Contestant, Decision, LeastWork, Race, Rejection, Timing, TimingPlan, median};
use super::{race, time_alone};
use crate::device::{Device, DeviceError};
use crate::verify::{
    Candidate, Family, OracleCache, Resident, Verdict, Verification, VerifyOptions, verify_resident,
};

/// What is known about a candidate after it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Hash of the text that was loaded, verified and timed.
    pub ptx_hash: String,
    /// Before timing; if it is not accepted, the rest is empty.
    pub before: Verification,
    /// Alone, or its side of the race; `None` if it was not timed.
    pub timing: Option<Timing>,
    /// Against the incumbent, if there is one.
    pub race: Option<Race>,
    /// What the host waited for each sample, beyond what the device said: the median, in nanoseconds.
    pub host_gap_ns: Option<f64>,
    /// Why the times are not to be believed.
    pub distrust: Option<Distrust>,
    /// One run with empty caches, in nanoseconds; only of a kernel that wins, where the device can empty
    /// its caches. All other samples are of warm caches.
    pub cold_ns: Option<i64>,
    /// After timing, on fresh inputs in other places; `None` if it was not timed.
    pub after: Option<Verification>,
}

/// Why the times of a kernel that is right are not to be believed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distrust {
    /// Most samples, for this reason.
    Samples(Rejection),
    /// The host waited much longer than the device says that the launch took (work that goes on after
    /// the clock has stopped), or not even as long.
    HostClock {
        /// The device's median, in nanoseconds.
        device_ns: f64,
        /// The host's, of the same runs.
        host_ns: f64,
    },
}

impl Distrust {
    /// As in evidence: `faster-than-possible`, `host-clock`, …
    pub fn name(&self) -> &'static str {
        match self {
            Distrust::Samples(Rejection::NotPositive) => "not-positive",
            Distrust::Samples(Rejection::FasterThanPossible) => "faster-than-possible",
            Distrust::Samples(Rejection::Outlier) => "outliers",
            Distrust::HostClock { .. } => "host-clock",
        }
    }
}

impl Measured {
    fn rejected(ptx_hash: &str, before: Verification) -> Self {
        let ptx_hash = ptx_hash.to_owned();
        Self {
            ptx_hash,
            before,
            timing: None,
            race: None,
            host_gap_ns: None,
            distrust: None,
            cold_ns: None,
            after: None,
        }
    }

    /// The verification that counts: the first that did not accept, or the last.
    pub fn judgement(&self) -> &Verification {
        match &self.after {
            Some(after) if self.before.accepted() => after,
            _ => &self.before,
        }
    }

    /// The verdict that counts: the first that is not `accepted`.
    pub fn verdict(&self) -> &Verdict {
        &self.judgement().verdict
    }

    /// Whether it was accepted before and after timing.
    pub fn accepted(&self) -> bool {
        self.before.accepted() && self.after.as_ref().is_none_or(Verification::accepted)
    }

    /// Whether it replaces the incumbent (or is the first that is accepted).
    pub fn wins(&self) -> bool {
        self.accepted()
            && self.distrust.is_none()
            && self.race.as_ref().is_none_or(|race| race.decision == Decision::Faster)
    }
}

/// Verifies a candidate, times it (against the incumbent if there is one, which must have been
/// accepted before), and verifies it again on fresh inputs. A candidate that fails is not timed.
///
/// The plan's floor is raised to what the region needs at least on this device: see [`LeastWork`].
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
    let mut a = match Resident::load(device, region, challenger, options)? {
        Ok(resident) => resident,
        Err(verdict) => {
            let before = Verification { verdict, seed: options.seed, families: Vec::new() };
            return Ok(Measured::rejected(&crate::engine::hash_text(challenger.ptx), before));
        }
    };
    let floor_ns = LeastWork::of(region).floor_ns(&device.peak()).max(plan.floor_ns);
    let plan = TimingPlan { floor_ns, ..plan.clone() };
    let result = measure_resident(device, region, key, &mut a, incumbent, oracles, options, &plan);
    device.limit_steps(None);
    a.free(device)?;
    result
}

/// Device and host time of each run of the challenger.
#[derive(Default)]
struct Clocks {
    n_runs: u64,
    device_ns: Vec<f64>,
    host_ns: Vec<f64>,
}

impl Clocks {
    /// Runs a kernel once, on inputs that no run before has seen.
    fn sample(
        &mut self,
        device: &mut dyn Device,
        resident: &mut Resident<'_>,
        counts: bool,
    ) -> Result<i64, DeviceError> {
        resident.freshen(device, self.n_runs)?;
        self.n_runs += 1;
        let mut elapsed_ns = Vec::with_capacity(1);
        let start_ns = device.host_ns();
        device.time(std::slice::from_ref(resident.launch()), &mut elapsed_ns)?;
        // Everything, on whatever stream.
        device.synchronize()?;
        let host_ns = device.host_ns().saturating_sub(start_ns);
        let device_ns = elapsed_ns.first().map_or(0, |&ns| i64::try_from(ns).unwrap_or(i64::MAX));
        if counts {
            self.device_ns.push(device_ns as f64);
            self.host_ns.push(host_ns as f64);
        }
        Ok(device_ns)
    }

    fn gap_ns(&self) -> Option<f64> {
        let gaps = self.host_ns.iter().zip(&self.device_ns).map(|(host, device)| host - device);
        median(&gaps.collect::<Vec<_>>())
    }

    /// Whether the two clocks tell of the same runs. Medians: a host that is interrupted now and then
    /// proves nothing.
    fn disagree(&self, slack_ns: u64) -> Option<Distrust> {
        let (device_ns, host_ns) = (median(&self.device_ns)?, median(&self.host_ns)?);
        let gap_ns = self.gap_ns()?;
        // Half of the kernel's own time covers clocks that differ in rate and what is between the launches.
        let late = gap_ns > slack_ns as f64 + 0.5 * device_ns;
        // An event's resolution is half a microsecond.
        let early = gap_ns < -(1000.0 + 0.1 * device_ns);
        (late || early).then_some(Distrust::HostClock { device_ns, host_ns })
    }
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
    let mut measured = Measured::rejected(a.ptx_hash(), before);
    if !measured.before.accepted() {
        return Ok(measured);
    }
    // Values matter little for time, but they must not be the subnormals of the extreme family.
    let inputs = oracles.get(region, key, Family::Normal, options.seed);
    a.write_inputs(device, &inputs.inputs)?;
    let mut b = match incumbent {
        Some(incumbent) => Some(Resident::new(device, region, incumbent, options.guard_bytes)?),
        None => None,
    };
    let mut clocks = Clocks::default();
    let timed = (|| {
        // What was right at first may hang later. The incumbent needs no limit.
        let mut challenge = |device: &mut dyn Device, clocks: &mut Clocks| {
            device.limit_steps(options.step_limit);
            let ns = clocks.sample(device, a, true);
            device.limit_steps(None);
            ns
        };
        let (timing, race) = match &mut b {
            None => (time_alone(plan, || challenge(device, &mut clocks))?, None),
            Some(b) => {
                b.write_inputs(device, &inputs.inputs)?;
                let race = race(plan, |contestant| match contestant {
                    Contestant::Challenger => challenge(device, &mut clocks),
                    Contestant::Incumbent => clocks.sample(device, b, false),
                })?;
                (race.challenger.clone(), Some(race))
            }
        };
        let faster = race.as_ref().is_none_or(|race| race.decision == Decision::Faster);
        let cold_ns = match plan.cold && faster && device.evict_caches() {
            true => Some(challenge(device, &mut Clocks::default())?),
            false => None,
        };
        Ok((timing, race, cold_ns))
    })();
    if let Some(b) = b {
        b.free(device)?;
    }
    let (timing, race, cold_ns) = match timed {
        Ok(timed) => timed,
        // A kernel that was right at first and faults later is a verdict too.
        Err(DeviceError::Fault { entry, reason }) if entry == a.launch().entry => {
            let verdict = Verdict::Faults { family: Family::Normal, reason };
            let after = Verification { verdict, seed: options.seed, families: Vec::new() };
            measured.after = Some(after);
            return Ok(measured);
        }
        Err(err) => return Err(err),
    };
    let of_samples = timing.rejection().map(Distrust::Samples);
    measured.distrust = of_samples.or_else(|| clocks.disagree(plan.host_slack_ns));
    measured.host_gap_ns = clocks.gap_ns();
    measured.cold_ns = cold_ns;
    (measured.timing, measured.race) = (Some(timing), race);
    // Another stream of inputs in other places: nothing that the kernel may have kept is right for them.
    a.move_buffers(device)?;
    let seed = options.seed.wrapping_add(1);
    let fresh = VerifyOptions { seed, corpus: Vec::new(), ..options.clone() };
    measured.after = Some(verify_resident(device, region, key, a, oracles, &fresh)?);
    Ok(measured)
}
