//! The agents of the kernel e-graphs: who proposes which schedules of a region to try.
//!
//! They are agents as those of the graph e-graph are ([`eggine_rewrite::agent::Agent`]): they see
//! classes of schedules and propose members; what is tried decides the [swarm](crate::swarm), which
//! pays them by what their proposals saved. A row of [`ALL`] is an agent.

mod chooser;
mod layouter;
mod tiler;
mod wanderer;

use std::sync::Arc;

use eggine_rewrite::KernelSpace;
use eggine_rewrite::agent::{Agent, Proposal};

pub use chooser::Chooser;
pub use layouter::PackLayouter;
pub use tiler::{ContractionTiler, PointwiseTiler, RowTiler};
pub use wanderer::Wanderer;

/// Who proposes other covers to measure: not an agent of one kernel, but of the graph.
pub const FUSER: &str = "fuser";

/// One agent.
#[derive(Clone, Copy)]
pub struct Row {
    /// Its name, in logs, evidence and options.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Makes it; `None` for the [fuser](FUSER), which is part of the swarm.
    pub make: Option<fn() -> Arc<dyn Agent>>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.summary)
    }
}

/// Every built-in agent. Each has a page in `docs/agents/`.
#[rustfmt::skip] // One agent per row.
pub const ALL: &[Row] = &[
    Row { name: "contraction-tiler", summary: "tiles, threads and stages of matrix products and convolutions", make: Some(|| Arc::new(ContractionTiler)) },
    Row { name: "row-tiler",         summary: "threads and rows of reductions along rows",                     make: Some(|| Arc::new(RowTiler)) },
    Row { name: "pointwise-tiler",   summary: "threads, elements and vectors of elementwise kernels",          make: Some(|| Arc::new(PointwiseTiler)) },
    Row { name: "pack-layouter",     summary: "operands rearranged at compile time, rows and columns swapped", make: Some(|| Arc::new(PackLayouter)) },
    Row { name: "chooser",           summary: "the other kernel families that can compute a region",           make: Some(|| Arc::new(Chooser)) },
    Row { name: "wanderer",          summary: "several moves at once, at random",                              make: Some(|| Arc::new(Wanderer)) },
    Row { name: FUSER,               summary: "other covers of the graph: what is fused with what",            make: None },
];

/// The row of an agent.
pub fn find(name: &str) -> Option<&'static Row> {
    ALL.iter().find(|row| row.name == name)
}

/// The name of a built-in agent, of the model's first choice, or of an agent from outside.
///
/// The last is leaked: a name is short, and there are as many as agents in a process.
pub(crate) fn intern(name: &str) -> &'static str {
    match find(name) {
        Some(row) => row.name,
        None if name == "model" => "model",
        None => Box::leak(name.to_owned().into_boxed_str()),
    }
}

/// Proposals for the open neighbours whose move has one of these prefixes.
fn open_by(space: &KernelSpace, kernel: usize, prefixes: &[&str], n: usize) -> Vec<Proposal> {
    let wanted = |step: &str| prefixes.iter().any(|prefix| step.starts_with(prefix));
    (space.open().iter())
        .filter(|open| wanted(open.step))
        .take(n)
        .map(|open| Proposal::Schedule {
            kernel,
            parent: open.parent,
            step: open.step,
            schedule: open.schedule,
        })
        .collect()
}

/// As [`open_by`], for all kernels of the view.
fn open_of_all(kernels: &[KernelSpace], prefixes: &[&str], n: usize) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    for (kernel, space) in kernels.iter().enumerate() {
        proposals.extend(open_by(space, kernel, prefixes, n - proposals.len()));
    }
    proposals
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn every_move_belongs_to_exactly_one_agent() {
        let prefixes: Vec<&str> =
            [tiler::CONTRACTION, tiler::ROW, tiler::POINTWISE, layouter::MOVES, chooser::MOVES]
                .concat();
        let names = eggine_rewrite::Moves::names(&crate::CodegenMoves);
        for name in names.iter().chain([&crate::OTHER_FAMILY]) {
            let n = prefixes.iter().filter(|prefix| name.starts_with(**prefix)).count();
            assert_eq!(n, 1, "move `{name}`");
        }
    }

    #[test]
    fn every_agent_has_a_page_and_its_own_name() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for row in ALL {
            let page = root.join(format!("docs/agents/{}.md", row.name));
            assert!(page.is_file(), "`{}` has no page {}", row.name, page.display());
            if let Some(make) = row.make {
                assert_eq!(make().name(), row.name);
            }
        }
    }
}
