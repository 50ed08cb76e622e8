//! The tilers, one a kernel family: how a region is divided into blocks, threads and tiles.
//!
//! Each proposes the open neighbours of what was tried and found near the best, so that its class
//! grows around good schedules.

use eggine_rewrite::agent::{Agent, Budget, Proposal, View};

use super::open_of_all;

/// Moves of the contraction tiler, by prefix.
pub(super) const CONTRACTION: &[&str] = &["tile-", "thread-", "stages", "vector-"];
/// Moves of the row tiler.
pub(super) const ROW: &[&str] = &["row-"];
/// Moves of the pointwise tiler.
pub(super) const POINTWISE: &[&str] = &["pointwise-"];

macro_rules! tiler {
    ($(#[$doc:meta])* $tiler:ident $name:literal $moves:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $tiler;

        impl Agent for $tiler {
            fn name(&self) -> &'static str {
                $name
            }

            fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
                open_of_all(view.kernels, $moves, budget.n_proposals)
            }
        }
    };
}

tiler! {
    /// Tiles of blocks and threads, steps along the summed dimension, stages, width of accesses.
    ContractionTiler "contraction-tiler" CONTRACTION
}
tiler! {
    /// Threads that share a row, rows of a block, what stays in registers.
    RowTiler "row-tiler" ROW
}
tiler! {
    /// Threads of a block, elements of a thread, width of accesses.
    PointwiseTiler "pointwise-tiler" POINTWISE
}
