//! Searching without a device: schedules are ranked by the static model of a chip, and only those that are
//! taken are made and verified. Where there is an assembler the leading few of each region are predicted
//! again from their machine code.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use eggine_codegen_ptx::assemble::Assembler;
use eggine_codegen_ptx::predict::pipeline::assembled::predict_assembled;
use eggine_codegen_ptx::{Chip, first_choices, neighbours};
use eggine_ir::Schedule;
use rayon::prelude::*;

use crate::compile::CompileError;
use crate::floor::Floor;
use crate::select::{Pick, Selection};
use crate::workshop::prepare;

/// Best predictions of a region that are made and verified until one is right.
const N_TRIED: usize = 8;

/// Best predictions of a region that are assembled: by the model's own test the best of three is within
/// one percent (`codegen-ptx/src/predict/mainloops.rs`), and an assembly takes a tenth of a second.
const N_ASSEMBLED: usize = 3;

/// A region under ranking.
struct Arm {
    number: usize,
    n_launches: u64,
    best_ns: f64,
    seen: BTreeSet<Schedule>,
    /// Everything ranked, and what of it was not expanded yet.
    ranked: Vec<(f64, Schedule)>,
    frontier: Vec<(f64, Schedule)>,
    n_expanded: u64,
}

impl Arm {
    fn consider(&mut self, ns: f64, schedule: Schedule) {
        if ns.is_finite() {
            self.best_ns = self.best_ns.min(ns);
            self.ranked.push((ns, schedule));
            self.frontier.push((ns, schedule));
        }
    }

    /// The best that was not expanded yet.
    fn next(&mut self) -> Option<Schedule> {
        let order =
            |a: &(f64, Schedule), b: &(f64, Schedule)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let (at, _) = self.frontier.iter().enumerate().min_by(|a, b| order(a.1, b.1))?;
        Some(self.frontier.swap_remove(at).1)
    }
}

/// What ranking led to.
pub(crate) struct Ranked {
    pub(crate) selection: Selection,
    /// Schedules predicted.
    pub(crate) n_ranked: u64,
    /// Of these, predicted again from machine code.
    pub(crate) n_assembled: u64,
}

impl Floor<'_> {
    /// Ranks schedules of a cover's regions until the floor's limits, and takes the best right ones.
    pub(crate) fn rank(
        &mut self,
        cover: usize,
        assembler: &Assembler,
    ) -> Result<Ranked, CompileError> {
        let chip = *self.costs.chip();
        let mut n_ranked = 0u64;
        let mut arms = Vec::new();
        for (number, n_launches) in self.covers[cover].shape() {
            let region = &self.subjects[number].region;
            let mut arm = Arm {
                number,
                n_launches,
                best_ns: f64::INFINITY,
                seen: BTreeSet::new(),
                ranked: Vec::new(),
                frontier: Vec::new(),
                n_expanded: 0,
            };
            let first = self.firsts[&number].schedule;
            let firsts = first_choices(region, &chip).into_iter().map(|choice| choice.1);
            for schedule in firsts.chain([first]) {
                if arm.seen.insert(schedule) {
                    arm.consider(self.costs.predict_schedule_ns(region, &schedule), schedule);
                }
            }
            arms.push(arm);
        }
        let is_over = |n_ranked: u64, floor: &Self| {
            floor.interrupt.load(Ordering::SeqCst)
                || floor.limits.n_steps.is_some_and(|limit| n_ranked >= limit)
                || floor.limits.deadline.is_some_and(|deadline| Instant::now() >= deadline)
        };
        while !is_over(n_ranked, self) {
            // Where most time is predicted, and least was tried.
            let value =
                |arm: &Arm| arm.best_ns * arm.n_launches as f64 / (1 + arm.n_expanded) as f64;
            let open = arms.iter_mut().filter(|arm| !arm.frontier.is_empty());
            let Some(arm) =
                open.max_by(|a, b| value(a).total_cmp(&value(b)).then(b.number.cmp(&a.number)))
            else {
                break;
            };
            arm.n_expanded += 1;
            let region = &self.subjects[arm.number].region;
            let Some(parent) = arm.next() else { break };
            for (_, schedule) in neighbours(region, &parent) {
                if is_over(n_ranked, self) {
                    break;
                }
                if arm.seen.insert(schedule) {
                    n_ranked += 1;
                    arm.consider(self.costs.predict_schedule_ns(region, &schedule), schedule);
                }
            }
        }
        let mut chosen = std::collections::BTreeMap::new();
        for arm in &mut arms {
            arm.ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        }
        let n_assembled = self.refine(&mut arms, assembler);
        for arm in &mut arms {
            chosen.insert(arm.number, self.best_right(arm)?);
        }
        let pick = |number: usize| Pick {
            number,
            schedule: chosen[&number],
            agent: "model",
            measured_ns: None,
            proof: None,
        };
        let numbers = &self.covers[cover].numbers;
        let picks = numbers.iter().map(|(&id, &number)| (id, pick(number))).collect();
        Ok(Ranked { selection: Selection { cover, picks }, n_ranked, n_assembled })
    }

    /// Predicts the leading schedules of each region from their machine code, and puts these in the order
    /// of that. What the assembler refuses is not taken; what cannot be counted stays where it is. How many
    /// were predicted so.
    fn refine(&mut self, arms: &mut [Arm], assembler: &Assembler) -> u64 {
        let Chip::Gpu(gpu) = *self.costs.chip() else { return 0 };
        if !assembler.makes_code() {
            return 0;
        }
        let leading = |arm: &Arm| arm.ranked.len().min(N_ASSEMBLED);
        let todo: Vec<(usize, Schedule, f64)> = arms
            .iter()
            .flat_map(|arm| arm.ranked[..leading(arm)].iter().map(|it| (arm.number, it.1, it.0)))
            .collect();
        let (subjects, target) = (&self.subjects, self.workshop.target);
        let predict = |&(number, schedule, plain_ns): &(usize, Schedule, f64)| {
            let subject = &subjects[number];
            let Ok(prepared) = prepare(subject, &schedule, target) else {
                return (plain_ns, false);
            };
            match assembler.assemble_for(&prepared.ptx, gpu.target) {
                Ok(assembled) => {
                    let kernel = &prepared.lowered.kernel;
                    let told =
                        predict_assembled(&subject.region, &schedule, kernel, &assembled, &gpu);
                    told.map_or((plain_ns, false), |told| (told.ns, true))
                }
                Err(reason) => {
                    tracing::info!(%schedule, %reason, "the assembler does not take a ranked schedule");
                    (f64::INFINITY, false)
                }
            }
        };
        let found: Vec<(f64, bool)> = todo.par_iter().map(predict).collect();
        let mut n_assembled = 0;
        let mut told = todo.iter().zip(found);
        for arm in arms {
            let n = leading(arm);
            for place in &mut arm.ranked[..n] {
                let Some((&(number, schedule, _), (ns, is_refined))) = told.next() else { break };
                place.0 = ns;
                if is_refined {
                    n_assembled += 1;
                    self.refined_ns.insert((number, schedule), ns);
                }
            }
            arm.ranked[..n].sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            arm.ranked.retain(|it| it.0.is_finite());
        }
        n_assembled
    }

    /// The best of a region's ranking whose kernel is right; the first choice, which is, if none is.
    fn best_right(&mut self, arm: &Arm) -> Result<Schedule, CompileError> {
        let subject = self.subjects[arm.number].clone();
        let first = self.firsts[&arm.number].schedule;
        for &(_, schedule) in arm.ranked.iter().take(N_TRIED) {
            if schedule == first {
                return Ok(first);
            }
            let Ok(prepared) = self.workshop.prepare(&subject, &schedule) else { continue };
            let verification = self.workshop.verify(&subject, &prepared)?;
            if verification.accepted() && verification.error_ratio() <= self.max_error {
                self.incumbents.insert(arm.number, (schedule, prepared));
                return Ok(schedule);
            }
            tracing::warn!(%schedule, verdict = %verification.verdict, "a ranked schedule is not right");
        }
        Ok(first)
    }
}
