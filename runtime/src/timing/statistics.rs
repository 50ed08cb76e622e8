//! Medians, and how far to trust them. Resampling is deterministic for a seed.

use serde::{Deserialize, Serialize};

use crate::verify::Random;

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// 2.5 % of the resampled medians are below.
    pub low: f64,
    /// The median of the samples.
    pub median: f64,
    /// 2.5 % of the resampled medians are above.
    pub high: f64,
}

impl Interval {
    /// Half of the interval's width, as a part of the median.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.median
    }
}

/// Resamplings: the ends of a 95 % interval are then the 25th from either end.
const N_RESAMPLES: usize = 1000;

/// The median: for an even number the mean of the middle two; `None` of nothing.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut samples = samples.to_vec();
    median_in_place(&mut samples)
}

fn median_in_place(samples: &mut [f64]) -> Option<f64> {
    if samples.is_empty() {
        return None;
    }
    let middle = samples.len() / 2;
    let odd = samples.len() % 2 == 1;
    let (below, &mut upper, _) = samples.select_nth_unstable_by(middle, f64::total_cmp);
    if odd {
        return Some(upper);
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(0.5 * (lower + upper))
}

/// The median with the percentile bootstrap's interval (Efron, 1979); `None` of nothing.
pub(super) fn bootstrap_of_median(samples: &[f64], seed: u64) -> Option<Interval> {
    let center = median(samples)?;
    let mut random = Random::new(seed);
    let mut resample = vec![0.0; samples.len()];
    let mut medians: Vec<f64> = (0..N_RESAMPLES)
        .filter_map(|_| {
            resample
                .iter_mut()
                .for_each(|slot| *slot = samples[random.below(samples.len() as u64) as usize]);
            median_in_place(&mut resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Some(Interval {
        low: medians[N_RESAMPLES / 40],
        median: center,
        high: medians[N_RESAMPLES - 1 - N_RESAMPLES / 40],
    })
}
