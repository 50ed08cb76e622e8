//! The laboratory of a real search: the workshop, the budget and the interrupt behind [`Lab`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use eggine_codegen_ptx::neighbours;
use eggine_ir::Schedule;

use crate::costs::Costs;
use crate::progress::{Progress, Snapshot};
use crate::tune::{Candidate, Judgement, Lab};
use crate::workshop::{Origin, Prepared, Subject, Workshop, WorkshopError};

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// After so many candidates, counted from evidence or measured.
    pub(crate) n_steps: Option<u64>,
    /// At this moment.
    pub(crate) deadline: Option<Instant>,
}

/// See the [module](self).
pub(crate) struct RealLab<'a, 'b> {
    pub(crate) workshop: &'a mut Workshop<'b>,
    pub(crate) subjects: &'a [Subject],
    pub(crate) costs: &'a Costs,
    pub(crate) limits: Limits,
    pub(crate) interrupt: &'a AtomicBool,
    pub(crate) progress: &'a mut Progress,
    pub(crate) started: Instant,
    /// Kernels of the incumbents, by region.
    pub(crate) incumbents: BTreeMap<usize, Prepared>,
    /// Keys of the rows that the incumbents rest on.
    pub(crate) proofs: BTreeMap<usize, String>,
}

impl Lab for RealLab<'_, '_> {
    type Error = WorkshopError;

    fn moves(&self, region: usize, schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
        neighbours(&self.subjects[region].region, schedule)
    }

    fn predict_ns(&self, region: usize, schedule: &Schedule) -> f64 {
        self.costs.predict_schedule_ns(&self.subjects[region].region, schedule)
    }

    fn judge(&mut self, candidate: &Candidate, _: &Schedule) -> Result<Judgement, WorkshopError> {
        let subject = &self.subjects[candidate.region];
        let prepared = match self.workshop.prepare(subject, &candidate.schedule) {
            Ok(prepared) => prepared,
            Err(reason) => {
                // No kernel, no PTX, no row: the schedule is not legal for the region.
                tracing::debug!(schedule = %candidate.schedule, reason, "not lowered");
                return Ok(Judgement { median_ns: None, better: false });
            }
        };
        let parent = candidate.parent.to_string();
        let origin = Origin { agent: "tiler", tiling_move: candidate.tiling_move, parent: &parent };
        let incumbent = self.incumbents.get(&candidate.region);
        let row =
            self.workshop.judge(subject, &candidate.schedule, &prepared, incumbent, origin)?;
        let better = row.passed() && row.decision == "faster";
        if better {
            self.proofs.insert(candidate.region, row.key.hash());
            self.incumbents.insert(candidate.region, prepared);
        }
        let median_ns = (row.passed() && row.median_ns > 0.0).then_some(row.median_ns);
        Ok(Judgement { median_ns, better })
    }

    fn stop(&mut self, n_steps: u64, best_ns: f64) -> bool {
        let counts = self.workshop.counts;
        let elapsed_s = self.started.elapsed().as_secs_f64();
        let now = Instant::now();
        let left = self.limits.deadline.map(|deadline| deadline.saturating_duration_since(now));
        let per_second = n_steps as f64 / elapsed_s.max(1e-9);
        let eta_s = left.map(|left| left.as_secs_f64()).or_else(|| {
            let n_left = self.limits.n_steps?.saturating_sub(n_steps);
            (n_steps > 0).then(|| n_left as f64 / per_second)
        });
        self.progress.show(
            &Snapshot {
                phase: "search",
                n_candidates: counts.n_candidates,
                n_measured: counts.n_measured,
                n_rejected: counts.n_rejected,
                best_ns: Some(best_ns as u64),
                per_second,
                elapsed_s,
                eta_s,
            },
            false,
        );
        self.interrupt.load(Ordering::SeqCst)
            || self.limits.n_steps.is_some_and(|limit| n_steps >= limit)
            || left == Some(Duration::ZERO)
    }
}
