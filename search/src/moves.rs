//! Tiling moves of code generation, as the kernel e-graph wants them: one rewrite per name.

use eggine_codegen_ptx::{classify, neighbours, schedule_of};
use eggine_ir::{Region, Schedule};
use eggine_rewrite::Moves;

/// Names of the moves of every kernel family; a move that is not here is not a rewrite.
#[rustfmt::skip] // One family per row.
const NAMES: &[&str] = &[
    "pointwise-more-threads", "pointwise-fewer-threads", "pointwise-more-elems", "pointwise-fewer-elems", "pointwise-wider", "pointwise-narrower",
    "row-more-threads", "row-fewer-threads", "row-more-rows", "row-fewer-rows", "row-wider", "row-narrower", "row-keep",
    "tile-m-double", "tile-m-halve", "tile-n-double", "tile-n-halve", "tile-k-double", "tile-k-halve", "thread-m-double", "thread-m-halve",
    "thread-n-double", "thread-n-halve", "stages", "pack-lhs", "pack-rhs", "swap", "vector-scalar",
];

/// Every move of every kernel family.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodegenMoves;

impl Moves for CodegenMoves {
    fn names(&self) -> &[&'static str] {
        NAMES
    }

    fn neighbours(&self, index: usize, region: &Region, schedule: &Schedule) -> Vec<Schedule> {
        let of_move =
            |(name, next): (&'static str, Schedule)| (name == NAMES[index]).then_some(next);
        self.all(region, schedule).into_iter().filter_map(of_move).collect()
    }

    fn all(&self, region: &Region, schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
        neighbours(region, schedule)
    }
}

/// The move to another kernel family, which is offered once for each region: it does not depend on
/// the schedule.
pub const OTHER_FAMILY: &str = "family-other";

/// The first schedules of the families that can compute a region, but for one.
pub fn other_families(region: &Region, but: &Schedule) -> Vec<Schedule> {
    let firsts = classify(region).into_iter().filter_map(|family| schedule_of(region, family));
    firsts.filter(|first| first.family() != but.family()).collect()
}
