//! From kernels to engines: which kernel each region of a cover gets, and races of whole engines.
//!
//! Parts that are fast alone may be slow together, so what the search found is an engine only if it
//! beats the first choice as a whole, on the device.

use std::collections::BTreeMap;

use eggine_ir::Schedule;
use eggine_rewrite::RegionId;
use eggine_runtime::{EngineParts, Verification};

use crate::assemble::{Choice, Facts, assemble};
use crate::compile::CompileError;
use crate::floor::Floor;
use crate::phases::Phase;

/// The kernel chosen for a region.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pick {
    /// Number of the region.
    pub(crate) number: usize,
    pub(crate) schedule: Schedule,
    pub(crate) agent: &'static str,
    pub(crate) measured_ns: Option<f64>,
    /// The evidence that it rests on.
    pub(crate) proof: Option<String>,
}

/// A cover with a kernel for each of its regions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selection {
    /// Which cover.
    pub(crate) cover: usize,
    pub(crate) picks: BTreeMap<RegionId, Pick>,
}

impl Floor<'_> {
    /// The cover with the first kernels of its regions.
    pub(crate) fn untuned(&self, cover: usize) -> Selection {
        self.tuned(cover, &BTreeMap::new())
    }

    /// The cover with the best kernels of its regions; first ones where there is none.
    pub(crate) fn tuned(&self, cover: usize, bests: &BTreeMap<usize, Schedule>) -> Selection {
        let pick = |number: usize| {
            let first = &self.firsts[&number];
            let better = bests.get(&number).filter(|best| **best != first.schedule);
            match better.and_then(|best| Some((best, self.proofs.get(&(number, *best))?))) {
                Some((&schedule, proof)) => Pick {
                    number,
                    schedule,
                    agent: proof.agent,
                    measured_ns: Some(proof.median_ns),
                    proof: Some(proof.row.clone()),
                },
                None => Pick {
                    number,
                    schedule: first.schedule,
                    agent: "model",
                    measured_ns: first.measured_ns,
                    proof: first.proof.clone(),
                },
            }
        };
        let numbers = &self.covers[cover].numbers;
        Selection {
            cover,
            picks: numbers.iter().map(|(&id, &number)| (id, pick(number))).collect(),
        }
    }

    /// What makes two selections the same engine: what runs, in which order, on what.
    pub(crate) fn identity(&mut self, selection: &Selection) -> String {
        let mut text = self.covers[selection.cover].cover.to_string();
        for pick in selection.picks.values() {
            self.remake(pick.number, &pick.schedule);
            let kernel = self.kernel(pick.number, &pick.schedule);
            text.push_str(&format!("{} {}\n", pick.schedule, kernel.ptx_hash));
        }
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }

    /// How the kernel of a region was verified, after [`remake`](Self::remake).
    pub(crate) fn verification(
        &mut self,
        number: usize,
        schedule: &Schedule,
    ) -> Result<Verification, CompileError> {
        let first = &self.firsts[&number];
        if first.schedule == *schedule {
            return Ok(first.verification.clone());
        }
        let (known, prepared) = &self.incumbents[&number];
        debug_assert_eq!(known, schedule, "it was made before");
        Ok(self.workshop.verify(&self.subjects[number], prepared)?)
    }

    /// Puts the engine together.
    pub(crate) fn engine(
        &mut self,
        selection: &Selection,
        facts: &dyn Fn(Vec<String>) -> Facts,
    ) -> Result<EngineParts, CompileError> {
        let (gate, seed) = (&mut self.gate, self.workshop.seed());
        let cover = &self.covers[selection.cover].cover;
        let checked = self.workshop.phases.time(Phase::Gate, |_| gate.check(cover, seed));
        checked.map_err(Box::new)?;
        for pick in selection.picks.values() {
            self.remake(pick.number, &pick.schedule);
        }
        let mut verifications = Vec::new();
        for pick in selection.picks.values() {
            verifications.push(self.verification(pick.number, &pick.schedule)?);
        }
        // The clock is set aside while kernels are borrowed.
        let mut phases = std::mem::take(&mut self.workshop.phases);
        let mut choices = BTreeMap::new();
        let mut proofs = Vec::new();
        for ((&id, pick), verification) in selection.picks.iter().zip(verifications) {
            let subject = &self.subjects[pick.number];
            proofs.extend(pick.proof.clone());
            let plain = || self.costs.predict_schedule_ns(&subject.region, &pick.schedule);
            let refined = self.refined_ns.get(&(pick.number, pick.schedule)).copied();
            let choice = Choice {
                subject,
                schedule: pick.schedule,
                prepared: self.kernel(pick.number, &pick.schedule),
                agent: pick.agent.to_owned(),
                predicted_ns: refined.unwrap_or_else(plain),
                measured_ns: pick.measured_ns,
                verification,
            };
            choices.insert(id, choice);
        }
        proofs.sort();
        let cover = &self.covers[selection.cover].cover;
        let parts = phases.time(Phase::Assemble, |_| assemble(cover, &choices, facts(proofs)));
        drop(choices);
        self.workshop.phases = phases;
        Ok(parts?)
    }
}
