//! Live progress: one bar on a terminal, JSON lines otherwise, nothing when silenced.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use eggine_runtime::engine::AgentRecord;

/// Where progress goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressMode {
    /// A bar if standard error is a terminal, JSON lines on standard error if not.
    Auto,
    /// Nothing.
    Silent,
}

/// What is known at a moment of the search.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// `import`, `rewrite`, `verify`, `search`, `engines`, `assemble`.
    pub phase: &'static str,
    /// Candidates considered.
    pub n_candidates: u64,
    /// Of these, measured in this run (the rest came from evidence).
    pub n_measured: u64,
    /// Of these, rejected.
    pub n_rejected: u64,
    /// Sum of the kernels' best medians, the best so far.
    pub best_ns: Option<u64>,
    /// Candidates per second.
    pub per_second: f64,
    /// Seconds since the start.
    pub elapsed_s: f64,
    /// Seconds until the budget ends, if it is a time or can be estimated.
    pub eta_s: Option<f64>,
    /// What each agent did.
    pub agents: Vec<AgentRecord>,
}

/// A sink of snapshots.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    json: bool,
    last: Option<Instant>,
}

impl Progress {
    /// A sink for `mode`.
    pub fn new(mode: ProgressMode) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (mode == ProgressMode::Auto && terminal).then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(
                ProgressStyle::with_template("{spinner} {msg}").expect("a valid template"),
            );
            bar
        });
        Self { bar, json: mode == ProgressMode::Auto && !terminal, last: None }
    }

    /// Shows `snapshot`; JSON lines at most twice a second unless the phase changes or `force`.
    pub fn show(&mut self, snapshot: &Snapshot, force: bool) {
        let due = self.last.is_none_or(|last| last.elapsed() > Duration::from_millis(500));
        if !force && !due {
            return;
        }
        self.last = Some(Instant::now());
        if let Some(bar) = &self.bar {
            let best = snapshot
                .best_ns
                .map_or(String::new(), |ns| format!(" · best {:.3} ms", ns as f64 / 1e6));
            let eta = snapshot.eta_s.map_or(String::new(), |s| format!(" · {s:.0} s left"));
            let credit: String = (snapshot.agents.iter())
                .filter(|agent| agent.n_better > 0)
                .map(|agent| format!(" · {} −{:.0} µs", agent.agent, agent.saved_ns as f64 / 1e3))
                .collect();
            bar.set_message(format!(
                "{}{best} · {} candidates, {} measured, {} rejected · {:.1}/s{eta}{credit}",
                snapshot.phase,
                snapshot.n_candidates,
                snapshot.n_measured,
                snapshot.n_rejected,
                snapshot.per_second
            ));
            bar.tick();
        } else if self.json {
            let line = serde_json::to_string(snapshot).expect("plain data serialises");
            // Progress that cannot be written is not worth failing for.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
