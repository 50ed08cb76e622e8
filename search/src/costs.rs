//! What a region costs, for extraction: the best measured time, else the static model's prediction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use eggine_codegen_ptx::{Chip, first_choices, predict};
use eggine_ir::{Region, Schedule};
use eggine_rewrite::RegionCost;
use serde::{Deserialize, Serialize};

/// Everything that costs depend on beside the model of the chip: with it an extraction is repeated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostsRecord {
    forbidden: BTreeSet<String>,
    /// Bits of numbers, which come back exactly.
    measured_ns: BTreeMap<String, u64>,
    scale: BTreeMap<String, u64>,
}

/// Costs of regions: what was measured, else what the static model predicts, corrected by what it was off.
pub struct Costs {
    chip: Chip,
    /// Regions for which no kernel could be made, or none was right.
    forbidden: BTreeSet<String>,
    /// Best measured time of a launch, by region hash.
    measured_ns: BTreeMap<String, f64>,
    /// Measured over predicted time, by kernel family: what the static model is off by here.
    scale: BTreeMap<String, f64>,
    n_asked: Mutex<u64>,
}

impl Costs {
    /// The static model of a chip.
    pub fn new(chip: Chip) -> Self {
        Self {
            chip,
            forbidden: BTreeSet::new(),
            measured_ns: BTreeMap::new(),
            scale: BTreeMap::new(),
            n_asked: Mutex::new(0),
        }
    }

    /// Never again.
    pub fn forbid(&mut self, region_hash: &str) {
        self.forbidden.insert(region_hash.to_owned());
    }

    /// From now on the regions cost what was measured, and others of their families in proportion.
    /// Of each region: itself, its hash, its first schedule, that one's time, and the best time.
    pub fn learn<'a>(
        &mut self,
        measured: impl Iterator<Item = (&'a Region, &'a str, &'a Schedule, f64, f64)>,
    ) {
        let mut sums: BTreeMap<&'static str, (f64, f64)> = BTreeMap::new();
        for (region, hash, schedule, first_ns, best_ns) in measured {
            self.measured_ns.insert(hash.to_owned(), best_ns);
            let sum = sums.entry(schedule.family()).or_default();
            *sum = (sum.0 + first_ns, sum.1 + self.predict_schedule_ns(region, schedule));
        }
        for (family, (measured, predicted)) in sums {
            if predicted > 0.0 {
                self.scale.insert(family.to_owned(), measured / predicted);
            }
        }
    }

    /// What was learned.
    pub fn record(&self) -> CostsRecord {
        let bits = |map: &BTreeMap<String, f64>| {
            map.iter().map(|(key, number)| (key.clone(), number.to_bits())).collect()
        };
        CostsRecord {
            forbidden: self.forbidden.clone(),
            measured_ns: bits(&self.measured_ns),
            scale: bits(&self.scale),
        }
    }

    /// Knows what was known then.
    pub fn restore(&mut self, record: &CostsRecord) {
        let numbers = |map: &BTreeMap<String, u64>| {
            map.iter().map(|(key, &bits)| (key.clone(), f64::from_bits(bits))).collect()
        };
        self.forbidden = record.forbidden.clone();
        self.measured_ns = numbers(&record.measured_ns);
        self.scale = numbers(&record.scale);
    }

    /// How many regions extraction asked about.
    pub fn n_asked(&self) -> u64 {
        *self.n_asked.lock().expect("nobody panics with the lock")
    }

    /// Predicted time of a region under its first schedule.
    pub fn predict_ns(&self, region: &Region) -> Option<f64> {
        let choices = first_choices(region, &self.chip);
        let (_, schedule, prediction) = choices.first()?;
        let scale = self.scale.get(schedule.family()).copied().unwrap_or(1.0);
        Some(scale * prediction.ns)
    }

    /// Predicted time of a region under a schedule; infinite if the family cannot do it.
    pub fn predict_schedule_ns(&self, region: &Region, schedule: &Schedule) -> f64 {
        predict(region, schedule, &self.chip).map_or(f64::INFINITY, |it| it.ns)
    }

    /// The chip.
    pub fn chip(&self) -> &Chip {
        &self.chip
    }
}

impl RegionCost for Costs {
    fn cost_ns(&self, region: &Region) -> Option<f64> {
        *self.n_asked.lock().expect("nobody panics with the lock") += 1;
        if !self.forbidden.is_empty() || !self.measured_ns.is_empty() {
            let hash = region.hash_hex();
            if self.forbidden.contains(&hash) {
                return None;
            }
            if let Some(ns) = self.measured_ns.get(&hash) {
                return Some(*ns);
            }
        }
        self.predict_ns(region)
    }
}
