//! Where the seconds of a compilation go: named phases, and what no phase claims.
//!
//! Phases nest by exclusion: entering an inner phase stops the outer one's clock, so that the sum of
//! all phases and the rest is the total.

use std::time::{Duration, Instant};

use serde::Serialize;

/// What the compiler was doing. One row a phase, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reading the model, binding shapes, folding constants.
    Import,
    /// E-graphs: agents, saturation, extraction.
    Rewrite,
    /// Agents of kernels: proposing, predicting, choosing.
    Propose,
    /// Regions and schedules to PTX text.
    Emit,
    /// Loading PTX into the device.
    Load,
    /// Reference results in f64.
    Oracle,
    /// Running candidates on test inputs and comparing.
    Verify,
    /// Comparing the rewritten model with the model.
    Gate,
    /// Timing candidates.
    Measure,
    /// Reading and writing evidence.
    Evidence,
    /// Timing whole engines.
    Engine,
    /// Packing weights, planning memory, writing the file.
    Assemble,
}

impl Phase {
    /// All phases.
    pub const ALL: &[Phase] = &[
        Phase::Import,
        Phase::Rewrite,
        Phase::Propose,
        Phase::Emit,
        Phase::Load,
        Phase::Oracle,
        Phase::Verify,
        Phase::Gate,
        Phase::Measure,
        Phase::Evidence,
        Phase::Engine,
        Phase::Assemble,
    ];
}

/// A stopwatch with one hand per phase.
#[derive(Debug)]
pub struct Phases {
    start: Instant,
    spent: Vec<Duration>,
    open: Vec<(Phase, Instant)>,
}

impl Default for Phases {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            spent: vec![Duration::ZERO; Phase::ALL.len()],
            open: Vec::new(),
        }
    }
}

impl Phases {
    /// Starts the clock of `phase` and stops that of the phase around it.
    pub fn enter(&mut self, phase: Phase) {
        let now = Instant::now();
        if let Some((outer, since)) = self.open.last().copied() {
            self.spent[outer as usize] += now - since;
        }
        self.open.push((phase, now));
    }

    /// Stops the clock of the phase entered last and starts that of the phase around it again.
    ///
    /// # Panics
    ///
    /// If none was entered.
    pub fn leave(&mut self) {
        let now = Instant::now();
        let (phase, since) = self.open.pop().expect("a phase was entered");
        self.spent[phase as usize] += now - since;
        if let Some(outer) = self.open.last_mut() {
            outer.1 = now;
        }
    }

    /// Runs `work` on the clock of `phase`.
    pub fn time<T>(&mut self, phase: Phase, work: impl FnOnce(&mut Self) -> T) -> T {
        self.enter(phase);
        let res = work(self);
        self.leave();
        res
    }

    /// Seconds since the start.
    pub fn total_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// The account so far.
    pub fn report(&self) -> PhaseReport {
        let total_s = self.total_s();
        let phases: Vec<(Phase, f64)> = Phase::ALL
            .iter()
            .map(|&phase| (phase, self.spent[phase as usize].as_secs_f64()))
            .collect();
        let claimed: f64 = phases.iter().map(|it| it.1).sum();
        PhaseReport { total_s, unattributed_s: (total_s - claimed).max(0.0), phases }
    }
}

/// Seconds by phase.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseReport {
    /// Wall-clock seconds.
    pub total_s: f64,
    /// Seconds that no phase claims.
    pub unattributed_s: f64,
    /// Seconds of each phase.
    pub phases: Vec<(Phase, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_time_is_not_counted_twice() {
        let mut phases = Phases::default();
        let nap = || std::thread::sleep(Duration::from_millis(20));
        phases.time(Phase::Verify, |phases| {
            nap();
            phases.time(Phase::Oracle, |_| nap());
        });
        let report = phases.report();
        let sum: f64 = report.phases.iter().map(|it| it.1).sum();
        assert!(sum <= report.total_s && sum >= 0.04, "{report:?}");
        assert!(report.unattributed_s < 0.02, "{report:?}");
    }
}
