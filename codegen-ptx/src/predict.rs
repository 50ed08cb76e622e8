//! The static model: what a kernel computes and moves, and how long a chip needs for it.

use std::collections::BTreeSet;

use eggine_ir::{Graph, NodeKind, Op};

use crate::index::moves::{self, Step};
use crate::index::Space;

/// Visited (value, index) pairs beyond which code is taken to be unbounded.
const MAX_VISITS: usize = 4000;

/// What a thread does for one element of every output, if all loops are its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadWork {
    /// Scalar operations executed.
    pub n_ops: u64,
    /// Elements loaded.
    pub n_loads: u64,
    /// Operations written out (loops of up to 16 iterations are unrolled).
    pub n_static: u64,
}

/// Operations that a map needs, roughly in instructions.
pub(crate) fn ops_of(op: Op) -> u64 {
    match op {
        Op::Exp => 8,
        Op::Sigmoid => 12,
        Op::Log => 20,
        Op::Erf => 32,
        Op::Tanh => 26,
        Op::Sin | Op::Cos => 24,
        Op::Pow => 50,
        Op::Div | Op::Recip | Op::Sqrt | Op::Mod | Op::Fmod => 8,
        Op::Rsqrt => 16,
        Op::Reshape | Op::Transpose | Op::Expand | Op::Slice => 0,
        _ => 1,
    }
}

/// See [`ThreadWork`]. `u64::MAX` operations stand for more than anyone would want.
pub fn thread_work(graph: &Graph) -> ThreadWork {
    let mut space = Space::default();
    let mut work = ThreadWork::default();
    let mut seen = BTreeSet::new();
    for &output in &graph.outputs {
        let extents = moves::extents(graph, output);
        // Leaves of the output are at depth 0; those of loops, at depth 9.
        let index: Vec<_> = extents.iter().map(|&n| space.leaf(None, 0, n.max(1) as i64 - 1, 0)).collect();
        moves::walk(&mut space, graph, output, &index, &mut |space, value, index| {
            if seen.len() > MAX_VISITS || !seen.insert((value, index.to_vec())) {
                return Step::Over;
            }
            let (mut trips, mut copies) = (1u64, 1u64);
            let mut leaves: Vec<_> = index.iter().flat_map(|i| space.leaves(i)).collect();
            leaves.sort_unstable();
            leaves.dedup();
            for leaf in leaves {
                if let Some(n) = space.loop_extent(leaf) {
                    trips = trips.saturating_mul(n);
                    copies = copies.saturating_mul(if n <= 16 { n } else { 8 }).min(1 << 40);
                }
            }
            let own = match &graph.nodes[value].kind {
                NodeKind::Input { .. } => {
                    work.n_loads = work.n_loads.saturating_add(trips);
                    1
                }
                NodeKind::Const(_) => 0,
                NodeKind::Apply(op, attrs, args) => {
                    let summed: usize = moves::summed(graph, *op, attrs, args).iter().product();
                    if summed > 1 { 2 * summed as u64 } else { ops_of(*op) }
                }
            };
            work.n_ops = work.n_ops.saturating_add(trips.saturating_mul(own));
            work.n_static = work.n_static.saturating_add(copies.saturating_mul(own.min(32)));
            Step::Into
        });
    }
    if seen.len() > MAX_VISITS {
        return ThreadWork { n_ops: u64::MAX, n_loads: u64::MAX, n_static: u64::MAX };
    }
    work
}
