//! How a tile of an operand comes into shared memory: which elements a thread loads, and how wide.

use eggine_ir::{DType, Graph, NodeKind, Value};

use super::problem::{Axis, Problem, Side, extents_of, n_of};
use crate::bindings::Packing;
use crate::index::moves::{self, Step};
use crate::index::{Atom, Index, Space};

/// Direction in which neighbouring threads (and the lanes of one) go through a tile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Along rows or columns; so many lanes.
    Along(usize),
    /// Along the summed dimension; so many lanes.
    Across(usize),
    /// The tile lies in memory as in shared memory; its elements are converted so after loading.
    Packed(Value, Packing, Vec<[DType; 2]>),
}

impl Mode {
    pub(crate) fn lanes(&self) -> usize {
        match self {
            Mode::Along(n) | Mode::Across(n) => *n,
            Mode::Packed(..) => 4,
        }
    }

    /// Elements added to the distance between steps of k in shared memory, so that the scalar stores
    /// of a transposing loader go to different banks.
    pub(crate) fn padding(&self) -> usize {
        match self {
            Mode::Across(_) => 4,
            _ => 0,
        }
    }
}

/// Addresses of all loads that an operand's element needs.
fn addresses(space: &mut Space, graph: &Graph, side: &Side) -> Vec<Index> {
    let mut inputs: Vec<(Value, Vec<Index>)> = Vec::new();
    moves::walk(space, graph, side.node, &side.index, &mut |_, value, index| {
        if let NodeKind::Input { .. } = graph.nodes[value].kind {
            inputs.push((value, index.to_vec()));
        }
        Step::Into
    });
    // The largest first: it decides.
    inputs.sort_by_key(|(value, _)| std::cmp::Reverse(graph.ty(*value).n_elems()));
    inputs
        .iter()
        .map(|(value, index)| space.linear(index, &moves::extents(graph, *value)))
        .collect()
}

/// Whether `lanes` neighbours along `axes` can be loaded together.
fn fits(space: &mut Space, addresses: &[Index], side: &Side, axes: &[Axis], lanes: usize) -> bool {
    let n = n_of(axes);
    if !n.is_multiple_of(lanes) {
        return false;
    }
    let (_, group) = space.fresh(None, 0, (n / lanes) as i64 - 1, 1);
    let (lane, lane_index) = space.fresh(None, 0, lanes as i64 - 1, 1);
    let scaled = space.scale(&group, lanes as i64);
    let position = space.add(&scaled, &lane_index);
    let parts = space.delinear(&position, &extents_of(axes));
    let with: Vec<(Atom, Index)> = axes.iter().map(|axis| axis.leaf).zip(parts).collect();
    let mut aligned = |index: &Index, extent: Option<i64>| {
        let index = space.substitute_all(index, &with);
        if !space.depends_on(&index, lane) {
            return (true, false);
        }
        let first = space.substitute(&index, lane, &Index::constant(0));
        let whole =
            space.coefficient(&index, lane) == Some(1) && first.is_multiple_of(lanes as i64);
        (whole && extent.is_none_or(|n| n % lanes as i64 == 0), true)
    };
    let conditions = side.inside.iter().all(|(index, extent)| aligned(index, Some(*extent)).0);
    let Some((first, rest)) = addresses.split_first() else { return false };
    conditions
        && aligned(first, None) == (true, true)
        && rest.iter().all(|index| aligned(index, None).0)
}

/// Smallest distance that a step along the innermost axis makes, as far as it is known.
fn step(space: &Space, address: &Index, axes: &[Axis]) -> Option<i64> {
    let inner = axes.iter().rev().find(|axis| axis.extent > 1)?;
    space.coefficient(address, inner.leaf).map(i64::abs)
}

/// The best way to load an operand.
pub(crate) fn mode(
    problem: &mut Problem,
    graph: &Graph,
    side: &Side,
    axes: &[Axis],
    k: &[Axis],
    vector: usize,
) -> Mode {
    let space = &mut problem.space;
    let addresses = addresses(space, graph, side);
    for lanes in [4, 2] {
        if lanes > vector {
            continue;
        }
        if fits(space, &addresses, side, axes, lanes) {
            return Mode::Along(lanes);
        }
        if fits(space, &addresses, side, k, lanes) {
            return Mode::Across(lanes);
        }
    }
    let Some(first) = addresses.first() else { return Mode::Along(1) };
    match (step(space, first, axes), step(space, first, k)) {
        (Some(0) | None, Some(1)) => Mode::Across(1),
        (Some(along), Some(across)) if across != 0 && across < along => Mode::Across(1),
        _ => Mode::Along(1),
    }
}
