//! Timing of kernels and engines: every sample is kept, and no statistic is believed that the samples
//! do not carry.
//!
//! A challenger is raced against the incumbent in rounds of four runs, ABBA: a clock that drifts by a
//! constant per run costs both the same. Each round gives one ratio, `(A₁+A₂)/(B₁+B₂)`; the median of
//! the rounds' ratios is the result, and resampling the rounds gives its 95 % interval.

mod floor;
mod measure;
mod statistics;

pub use floor::LeastWork;
pub use measure::{Distrust, Measured, measure};
pub use statistics::{Interval, median};

use serde::{Deserialize, Serialize};

use crate::device::DeviceError;
use statistics::bootstrap_of_median;

/// How long to measure, and what to believe.
#[derive(Clone, Debug, PartialEq)]
pub struct TimingPlan {
    /// Runs before the first sample.
    pub n_warmups: usize,
    /// Samples (of each, when racing) before a decision; even.
    pub min_samples: usize,
    /// Samples after which it is decided with what there is.
    pub max_samples: usize,
    /// Stop sampling once so much time was measured, if there are `min_samples`.
    pub budget_ns: u64,
    /// No run can be faster: bytes over bandwidth or operations over peak. 0 if unknown.
    pub floor_ns: u64,
    /// Enough is known when the half-width of the interval is this part of the median, or, in a race, when
    /// the two differ by less than this.
    pub half_width: f64,
    /// What the host may wait for a launch beyond the device's time: the launch itself, and waiting for
    /// its end.
    pub host_slack_ns: u64,
    /// Whether a kernel that wins (or is the first) is also timed once with empty caches.
    pub cold: bool,
    /// A challenger whose mean is so many times the incumbent's is given up.
    pub give_up_ratio: f64,
    /// Of the resampling.
    pub seed: u64,
}

impl Default for TimingPlan {
    fn default() -> Self {
        Self {
            n_warmups: 1,
            min_samples: 8,
            max_samples: 64,
            budget_ns: 200_000_000,
            floor_ns: 0,
            half_width: 0.005,
            // Ten times what a launch and a synchronisation cost on a GPU.
            host_slack_ns: 50_000,
            cold: true,
            give_up_ratio: 2.0,
            seed: 0,
        }
    }
}

/// Why a sample is not believed. It is kept nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rejection {
    /// A clock that stood still or ran backwards.
    NotPositive,
    /// Faster than the device can be.
    FasterThanPossible,
    /// A hundred times the median, or more.
    Outlier,
}

/// A hundredfold is no variance of a kernel: the machine did something else.
const OUTLIER_FACTOR: f64 = 100.0;

/// A tenth between the first and the last third is more than noise, and more than two kernels that
/// are worth comparing differ.
const DRIFT_RATIO: f64 = 1.1;

/// Samples of one kernel or engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Every sample, in the order taken, believed or not.
    pub samples_ns: Vec<i64>,
    /// Which samples are not believed, and why: position and reason.
    pub rejected: Vec<(usize, Rejection)>,
}

impl Timing {
    /// Samples with the verdict on each.
    pub fn new(samples_ns: Vec<i64>, floor_ns: u64) -> Self {
        let positive: Vec<f64> =
            samples_ns.iter().filter(|&&ns| ns > 0).map(|&ns| ns as f64).collect();
        let limit = OUTLIER_FACTOR * median(&positive).unwrap_or(f64::INFINITY);
        let reject = |&ns: &i64| match ns {
            ..=0 => Some(Rejection::NotPositive),
            _ if (ns as u64) < floor_ns => Some(Rejection::FasterThanPossible),
            _ if ns as f64 >= limit => Some(Rejection::Outlier),
            _ => None,
        };
        let rejected =
            samples_ns.iter().enumerate().filter_map(|(i, ns)| Some((i, reject(ns)?))).collect();
        Self { samples_ns, rejected }
    }

    /// The samples that are believed, in order.
    pub fn believed_ns(&self) -> Vec<f64> {
        let believed = |i: &usize| !self.rejected.iter().any(|(rejected, _)| rejected == i);
        (0..self.samples_ns.len()).filter(believed).map(|i| self.samples_ns[i] as f64).collect()
    }

    /// Median of the believed samples; `None` without any.
    pub fn median_ns(&self) -> Option<f64> {
        median(&self.believed_ns())
    }

    /// Fastest of the believed samples; `None` without any.
    pub fn min_ns(&self) -> Option<f64> {
        self.believed_ns().into_iter().reduce(f64::min)
    }

    /// 95 % interval of the median; `None` without samples.
    pub fn interval_ns(&self, seed: u64) -> Option<Interval> {
        bootstrap_of_median(&self.believed_ns(), seed)
    }

    /// Whether samples grew (or shrank) by a tenth between the first and the last third.
    pub fn drifts(&self) -> bool {
        let samples = self.believed_ns();
        let third = samples.len() / 3;
        // Of fewer, one odd sample decides.
        if third < 3 {
            return false;
        }
        let (first, last) = (median(&samples[..third]), median(&samples[samples.len() - third..]));
        first.zip(last).is_some_and(|(first, last)| first.max(last) > DRIFT_RATIO * first.min(last))
    }

    /// Why most samples are not believed; `None` if at least half are.
    pub fn rejection(&self) -> Option<Rejection> {
        use Rejection::{FasterThanPossible, NotPositive, Outlier};
        if self.samples_ns.is_empty() || self.verdict() != TimingVerdict::MostlyRejected {
            return None;
        }
        let count = |wanted| self.rejected.iter().filter(|(_, reason)| *reason == wanted).count();
        [NotPositive, FasterThanPossible, Outlier].into_iter().rev().max_by_key(|&it| count(it))
    }

    /// Whether the median can be believed.
    pub fn verdict(&self) -> TimingVerdict {
        let n_believed = self.samples_ns.len() - self.rejected.len();
        if n_believed * 2 <= self.samples_ns.len() {
            TimingVerdict::MostlyRejected
        } else if self.drifts() {
            TimingVerdict::Drifting
        } else {
            TimingVerdict::Believed
        }
    }
}

/// What samples of one kernel are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimingVerdict {
    /// The median counts.
    Believed,
    /// Half of the samples or more are not believed, or there are none.
    MostlyRejected,
    /// Samples change with time: a median of them says nothing. A race may still decide.
    Drifting,
}

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// The new one, A.
    Challenger,
    /// The best so far, B.
    Incumbent,
}

/// What a race shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// The challenger is faster: the interval of the ratio is below 1.
    Faster,
    /// The challenger is slower: the interval of the ratio is above 1.
    Slower,
    /// The interval holds 1.
    Undecided,
    /// The challenger is so much slower that it was not measured to the end.
    GivenUp,
    /// The samples of either are not believed.
    Rejected,
}

impl Decision {
    /// As in evidence and JSON: `faster`, `given-up`, …
    pub fn name(self) -> &'static str {
        match self {
            Decision::Faster => "faster",
            Decision::Slower => "slower",
            Decision::Undecided => "undecided",
            Decision::GivenUp => "given-up",
            Decision::Rejected => "rejected",
        }
    }
}

/// Samples of a race and what they show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Race {
    /// The new one.
    pub challenger: Timing,
    /// The best so far.
    pub incumbent: Timing,
    /// Time of the challenger over time of the incumbent; `None` if no round is believed.
    pub ratio: Option<Interval>,
    /// What follows.
    pub decision: Decision,
}

/// Times one contestant. `sample` runs it once and returns the time in nanoseconds.
///
/// Stops when the interval of the median is narrow, the budget is used up, or there are
/// `max_samples`.
///
/// # Errors
///
/// What `sample` reports.
pub fn time_alone(
    plan: &TimingPlan,
    mut sample: impl FnMut() -> Result<i64, DeviceError>,
) -> Result<Timing, DeviceError> {
    for _ in 0..plan.n_warmups {
        sample()?;
    }
    let mut samples_ns = Vec::with_capacity(plan.max_samples);
    let mut spent_ns = 0;
    loop {
        let ns = sample()?;
        samples_ns.push(ns);
        spent_ns += ns.max(0) as u64;
        let n_samples = samples_ns.len();
        // Doubling steps: the interval costs more than a fast kernel.
        let look = n_samples >= plan.min_samples
            && (n_samples.is_power_of_two() || n_samples >= plan.max_samples);
        let spent = n_samples >= plan.min_samples && spent_ns >= plan.budget_ns;
        if !look && !spent && n_samples < plan.max_samples {
            continue;
        }
        let timing = Timing::new(samples_ns, plan.floor_ns);
        let narrow = timing
            .interval_ns(plan.seed)
            .is_some_and(|interval| interval.half_width() < plan.half_width);
        if spent || narrow || n_samples >= plan.max_samples {
            return Ok(timing);
        }
        samples_ns = timing.samples_ns;
    }
}

/// Races a challenger against the incumbent in ABBA rounds. `sample` runs the one that it is given
/// once and returns the time in nanoseconds.
///
/// # Errors
///
/// What `sample` reports.
pub fn race(
    plan: &TimingPlan,
    mut sample: impl FnMut(Contestant) -> Result<i64, DeviceError>,
) -> Result<Race, DeviceError> {
    use Contestant::{Challenger, Incumbent};
    for _ in 0..plan.n_warmups {
        sample(Challenger)?;
        sample(Incumbent)?;
    }
    let (mut a, mut b): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    let mut spent_ns = 0;
    loop {
        for contestant in [Challenger, Incumbent, Incumbent, Challenger] {
            let ns = sample(contestant)?;
            spent_ns += ns.max(0) as u64;
            if contestant == Challenger { a.push(ns) } else { b.push(ns) }
        }
        // A mean, of all samples: cutting a race short can only hurt the challenger.
        let mean = |samples: &[i64]| {
            samples.iter().map(|&ns| ns.max(0) as f64).sum::<f64>() / samples.len() as f64
        };
        let given_up = mean(&a) > plan.give_up_ratio * mean(&b) && mean(&b) > 0.0;
        let n_samples = a.len();
        let look = n_samples >= plan.min_samples && (n_samples / 2).is_power_of_two();
        let last = n_samples >= plan.max_samples
            || n_samples >= plan.min_samples && spent_ns >= plan.budget_ns;
        if !given_up && !look && !last {
            continue;
        }
        let race = decide(plan, &a, &b, given_up);
        let certain = match race.decision {
            Decision::Faster | Decision::Slower | Decision::GivenUp => true,
            // As good as equal.
            Decision::Undecided => race.ratio.is_some_and(|ratio| {
                ratio.low > 1.0 - plan.half_width && ratio.high < 1.0 + plan.half_width
            }),
            Decision::Rejected => false,
        };
        if certain || last {
            return Ok(race);
        }
    }
}

/// What samples that were taken in ABBA order show: `a` of the challenger, `b` of the incumbent, two of
/// each in every round.
pub fn decide_race(plan: &TimingPlan, a: &[i64], b: &[i64]) -> Race {
    decide(plan, a, b, false)
}

fn decide(plan: &TimingPlan, a: &[i64], b: &[i64], given_up: bool) -> Race {
    let challenger = Timing::new(a.to_vec(), plan.floor_ns);
    let incumbent = Timing::new(b.to_vec(), plan.floor_ns);
    let believed =
        |timing: &Timing, i: usize| !timing.rejected.iter().any(|&(rejected, _)| rejected == i);
    // Samples 2r and 2r+1 of each are of round r. A round with a sample that is not believed does not count.
    let ratios: Vec<f64> = (0..a.len() / 2)
        .filter(|&round| {
            [2 * round, 2 * round + 1]
                .iter()
                .all(|&i| believed(&challenger, i) && believed(&incumbent, i))
        })
        .map(|round| {
            (a[2 * round] + a[2 * round + 1]) as f64 / (b[2 * round] + b[2 * round + 1]) as f64
        })
        .collect();
    let ratio = bootstrap_of_median(&ratios, plan.seed);
    let rejected = ratios.len() * 2 <= a.len() / 2;
    let decision = match ratio {
        _ if given_up => Decision::GivenUp,
        _ if rejected => Decision::Rejected,
        Some(ratio) if ratio.high < 1.0 => Decision::Faster,
        Some(ratio) if ratio.low > 1.0 => Decision::Slower,
        _ => Decision::Undecided,
    };
    Race { challenger, incumbent, ratio, decision }
}
