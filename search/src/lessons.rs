//! Lessons: what measurements taught about the static model and about the agents.
//!
//! A small linear model of the logarithm of `measured / predicted`, relative to the first choice of the
//! same region, over the parameters of a schedule (`contraction.m=64`, …), learned one measurement at
//! a time; and what the measurements that an agent asked for saved, per kernel family. Both order
//! what is tried next, and nothing else: a lesson never decides what is right or faster.
//! What one search learned is the prior of the next.

use std::collections::BTreeMap;

use eggine_ir::{Region, Schedule};
use eggine_runtime::timing::median;
use serde::{Deserialize, Serialize};

use crate::costs::Costs;
use crate::evidence::{Evidence, EvidenceError};

/// Step of the correction: a measurement that the model missed by 10 % moves the next prediction of the
/// same schedule by 3 %. Noise of a measurement is about as large as what it teaches.
const RATE: f64 = 0.3;

/// A correction by more than this factor is a broken measurement, not a lesson.
const LIMIT: f64 = 2.0;

/// Measurements that an expectation without any evidence is worth.
const PRIOR_WEIGHT: f64 = 4.0;

/// What a measurement is expected to save of a region's time when nothing is known: first choices leave
/// about a tenth, found by the first few measurements (`bench/runs/2026-11-30-cpu-search`).
const PRIOR_GAIN: f64 = 0.03;

/// Rows of evidence that are learned from: more take longer and teach little.
const MAX_ROWS: usize = 4000;

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lessons {
    /// By parameter of a schedule.
    #[serde(with = "bits")]
    weights: BTreeMap<String, f64>,
    /// By `agent family`: part of the time saved, and how many measurements.
    gains: BTreeMap<String, Gain>,
}

/// What the measurements that an agent asked for brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Gain {
    n: u64,
    /// In millionths of the regions' times.
    saved_ppm: u64,
}

/// Numbers as bits: JSON that comes back exactly.
mod bits {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<String, f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let bits: BTreeMap<&String, u64> = map.iter().map(|(k, v)| (k, v.to_bits())).collect();
        bits.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, f64>, D::Error> {
        let bits = BTreeMap::<String, u64>::deserialize(deserializer)?;
        Ok(bits.into_iter().map(|(k, v)| (k, f64::from_bits(v))).collect())
    }
}

/// The parameters of a schedule, as the model sees them.
fn features(schedule: &Schedule) -> Vec<String> {
    let text = schedule.to_string();
    let family = schedule.family();
    let fields = text.trim_start_matches(family).trim_matches(['(', ')']);
    fields.split(',').map(|field| format!("{family}.{field}")).collect()
}

impl Lessons {
    /// What the evidence of a device teaches.
    ///
    /// # Errors
    ///
    /// If the evidence cannot be read.
    pub fn learn(
        evidence: &Evidence,
        device: &str,
        method: &str,
        costs: &Costs,
    ) -> Result<Self, EvidenceError> {
        let rows = evidence.passed(device, method, MAX_ROWS)?;
        let mut lessons = Self::default();
        // The measure of each region is its first choice.
        let mut firsts: BTreeMap<&str, (Region, f64, f64)> = BTreeMap::new();
        for (text, row) in rows.iter().filter(|(_, row)| row.tiling_move == "first") {
            let (Ok(region), Ok(schedule)) = (text.parse::<Region>(), row.key.schedule.parse())
            else {
                continue; // Of a version that wrote them otherwise.
            };
            let predicted_ns = costs.predict_schedule_ns(&region, &schedule);
            firsts.insert(&row.key.region, (region, row.median_ns, predicted_ns));
        }
        for (_, row) in rows.iter().filter(|(_, row)| row.tiling_move != "first") {
            let Some((region, first_ns, predicted_ns)) = firsts.get(row.key.region.as_str()) else {
                continue;
            };
            let Ok(schedule) = row.key.schedule.parse::<Schedule>() else { continue };
            let predicted = costs.predict_schedule_ns(region, &schedule) / predicted_ns;
            lessons.observe(&schedule, row.median_ns / first_ns, predicted);
            let incumbent: Vec<f64> = row.incumbent_ns.iter().map(|&ns| ns as f64).collect();
            let saved = match (row.decision.as_str(), median(&incumbent)) {
                ("faster", Some(before_ns)) => 1.0 - row.median_ns / before_ns,
                _ => 0.0,
            };
            lessons.credit(&row.agent, schedule.family(), saved);
        }
        Ok(lessons)
    }

    /// Whether nothing was learned.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty() && self.gains.is_empty()
    }

    /// By what factor a prediction should be corrected, relative to the other schedules of its region.
    pub fn correction(&self, schedule: &Schedule) -> f64 {
        self.log_correction(&features(schedule)).exp()
    }

    fn log_correction(&self, features: &[String]) -> f64 {
        let sum: f64 = features.iter().filter_map(|feature| self.weights.get(feature)).sum();
        sum.clamp(-LIMIT.ln(), LIMIT.ln())
    }

    /// A schedule took `measured` times as long as its region's first one, where `predicted` was expected.
    pub fn observe(&mut self, schedule: &Schedule, measured: f64, predicted: f64) {
        let residual = (measured / predicted).ln();
        if !residual.is_finite() {
            return;
        }
        let features = features(schedule);
        let miss = residual.clamp(-LIMIT.ln(), LIMIT.ln()) - self.log_correction(&features);
        let step = RATE * miss / features.len() as f64;
        for feature in features {
            *self.weights.entry(feature).or_default() += step;
        }
    }

    /// A measurement for an agent saved this part of the region's time.
    pub fn credit(&mut self, agent: &str, family: &str, saved: f64) {
        let gain = self.gains.entry(format!("{agent} {family}")).or_default();
        gain.n += 1;
        gain.saved_ppm += (saved.clamp(0.0, 1.0) * 1e6) as u64;
    }

    /// The part of a region's time that a measurement for an agent is expected to save.
    pub fn expected_gain(&self, agent: &str, family: &str) -> f64 {
        let gain = self.gains.get(&format!("{agent} {family}")).copied().unwrap_or_default();
        (PRIOR_WEIGHT * PRIOR_GAIN + gain.saved_ppm as f64 * 1e-6) / (PRIOR_WEIGHT + gain.n as f64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    fn schedule(threads: u32, elems: u32) -> Schedule {
        format!("pointwise(threads={threads},elems={elems},vector=1)").parse().unwrap()
    }

    #[test]
    fn what_the_model_misses_again_and_again_is_learned() {
        let mut lessons = Lessons::default();
        for _ in 0..40 {
            // Whatever the elements, 64 threads take half again as long as predicted.
            lessons.observe(&schedule(64, 1), 1.5, 1.0);
            lessons.observe(&schedule(64, 2), 1.5, 1.0);
            lessons.observe(&schedule(256, 1), 1.0, 1.0);
            lessons.observe(&schedule(256, 2), 1.0, 1.0);
        }
        assert!(lessons.correction(&schedule(64, 4)) > 1.2, "a schedule that was never seen");
        assert!(lessons.correction(&schedule(64, 1)) > 1.3 * lessons.correction(&schedule(256, 1)));
    }

    #[test]
    fn broken_measurements_teach_little() {
        let mut lessons = Lessons::default();
        lessons.observe(&schedule(64, 1), 1e9, 1.0);
        lessons.observe(&schedule(64, 1), f64::NAN, 1.0);
        lessons.observe(&schedule(64, 1), 0.0, 1.0);
        assert!(lessons.correction(&schedule(64, 1)) <= LIMIT);
    }

    #[test]
    fn an_agent_that_paid_is_expected_to_pay() {
        let mut lessons = Lessons::default();
        let unknown = lessons.expected_gain("tiler", "row");
        for _ in 0..20 {
            lessons.credit("tiler", "row", 0.2);
            lessons.credit("wanderer", "row", 0.0);
        }
        assert!(lessons.expected_gain("tiler", "row") > unknown);
        assert!(lessons.expected_gain("wanderer", "row") < unknown);
    }

    #[test]
    fn lessons_survive_json_to_the_bit() {
        let mut lessons = Lessons::default();
        lessons.observe(&schedule(64, 1), 1.1, 1.0);
        lessons.credit("tiler", "row", 0.2);
        let text = serde_json::to_string(&lessons).unwrap();
        assert_eq!(serde_json::from_str::<Lessons>(&text).unwrap(), lessons);
    }
}
