//! Which regions are rows: the split of the outputs' axes into rows and columns that makes reductions
//! the same for a whole row, and costs the least.

use std::collections::BTreeSet;

use eggine_ir::graph::OpClass;
use eggine_ir::{Graph, NodeKind, Op, Value};

use crate::index::moves::{self, Nesting, Step};
use crate::index::{Atom, Index, Space};
use crate::kir::Scalar;
use crate::predict::MAX_VISITS;

/// A reduction that is computed once for the row.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) node: Value,
    /// Its index, in the leaves of the rows.
    pub(crate) index: Vec<Index>,
    /// Elements that it goes over.
    pub(crate) length: usize,
}

/// The columns of an output.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) leaves: Vec<Atom>,
    pub(crate) extents: Vec<usize>,
    /// Index of the output, in the leaves of rows and columns.
    pub(crate) index: Vec<Index>,
}

impl Columns {
    /// Every column leaf at 0.
    pub(crate) fn origin(&self) -> Vec<(Atom, Index)> {
        self.leaves.iter().map(|&leaf| (leaf, Index::constant(0))).collect()
    }
}

/// A region as rows.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) space: Space,
    pub(crate) row_leaves: Vec<Atom>,
    pub(crate) row_extents: Vec<usize>,
    /// In topological order.
    pub(crate) stages: Vec<Stage>,
    /// One for each output.
    pub(crate) outputs: Vec<Columns>,
    /// Elements that all rows go through together.
    pub(crate) work: u64,
}

fn is_stage(op: Op) -> bool {
    op.spec().class == OpClass::Reduce || op == Op::Matmul
}

/// Reductions shorter than this are not worth more than one thread.
const MIN_LENGTH: usize = 8;

impl Plan {
    /// The best plan, if there is one.
    pub(crate) fn of(graph: &Graph) -> Option<Plan> {
        let first = *graph.outputs.first()?;
        let extents = moves::extents(graph, first);
        let rank = extents.len();
        let mut candidates: BTreeSet<Vec<usize>> =
            (0..=rank).map(|k| (rank - k..rank).collect()).collect();
        candidates.extend((0..rank).map(|axis| vec![axis]));
        for node in graph.nodes.values() {
            if let NodeKind::Apply(op, attrs, args) = &node.kind
                && op.spec().class == OpClass::Reduce
                && moves::extents(graph, args[0]).len() == rank
            {
                candidates.insert(moves::reduced_axes(*op, attrs));
            }
        }
        // Groups that are no axes of the output, as a group norm has them: a row is a run of elements.
        let mut runs: BTreeSet<usize> = BTreeSet::new();
        for node in graph.nodes.values() {
            if let NodeKind::Apply(op, attrs, args) = &node.kind
                && op.spec().class == OpClass::Reduce
            {
                let length: usize = moves::summed(graph, *op, attrs, args).iter().product();
                let fits = |&output: &Value| {
                    let n = graph.ty(output).n_elems();
                    n == graph.ty(first).n_elems()
                        && length > 1
                        && n > length
                        && n.is_multiple_of(length)
                };
                if graph.outputs.iter().all(fits) {
                    runs.insert(length);
                }
            }
        }
        let mut best: Option<Plan> = None;
        // A plan that is no better than the best is given up as soon as that is clear.
        for columns in &candidates {
            let most = best.as_ref().map_or(u64::MAX, |plan| plan.work.saturating_sub(1));
            best = Self::with_columns(graph, columns, most).or(best);
        }
        for &length in &runs {
            let most = best.as_ref().map_or(u64::MAX, |plan| plan.work.saturating_sub(1));
            best = Self::with_runs(graph, length, most).or(best);
        }
        best
    }

    /// Rows are runs of so many neighbouring elements of every output.
    fn with_runs(graph: &Graph, length: usize, most: u64) -> Option<Plan> {
        let mut space = Space::default();
        let n_rows = graph.ty(graph.outputs[0]).n_elems() / length;
        let (row_leaf, row) = space.fresh(None, 0, n_rows as i64 - 1, 0);
        let mut outputs = Vec::new();
        for &output in &graph.outputs {
            let (leaf, column) = space.fresh(None, 0, length as i64 - 1, 1);
            let start = space.scale(&row, length as i64);
            let position = space.add(&start, &column);
            let index = space.delinear(&position, &moves::extents(graph, output));
            outputs.push(Columns { leaves: vec![leaf], extents: vec![length], index });
        }
        Self::with_split(graph, space, (vec![row_leaf], vec![n_rows]), outputs, most)
    }

    /// Columns are these axes of every output.
    fn with_columns(graph: &Graph, columns: &[usize], most: u64) -> Option<Plan> {
        let first = moves::extents(graph, graph.outputs[0]);
        let rank = first.len();
        let mut space = Space::default();
        let is_column = |axis: usize| columns.contains(&axis);
        let mut row_leaves = Vec::new();
        let mut row_index = Vec::new();
        let mut row_extents = Vec::new();
        for axis in (0..rank).filter(|&axis| !is_column(axis)) {
            let (leaf, index) = space.fresh(None, 0, first[axis].max(1) as i64 - 1, 0);
            row_leaves.push(leaf);
            row_index.push(index);
            row_extents.push(first[axis]);
        }
        let mut outputs = Vec::new();
        for &output in &graph.outputs {
            let extents = moves::extents(graph, output);
            let rows_match = extents.len() == rank
                && (0..rank)
                    .filter(|&axis| !is_column(axis))
                    .zip(&row_extents)
                    .all(|(axis, &n)| extents[axis] == n);
            if !rows_match {
                return None;
            }
            let mut of_output =
                Columns { leaves: Vec::new(), extents: Vec::new(), index: Vec::new() };
            let mut rows = row_index.iter();
            for (axis, &extent) in extents.iter().enumerate() {
                if is_column(axis) {
                    let (leaf, index) = space.fresh(None, 0, extent.max(1) as i64 - 1, 1);
                    of_output.leaves.push(leaf);
                    of_output.extents.push(extent);
                    of_output.index.push(index);
                } else {
                    of_output.index.push(rows.next().expect("one per row axis").clone());
                }
            }
            outputs.push(of_output);
        }
        Self::with_split(graph, space, (row_leaves, row_extents), outputs, most)
    }

    /// The plan for outputs whose indices are given in leaves of rows and columns; `None` if its work
    /// is more than `most`.
    fn with_split(
        graph: &Graph,
        mut space: Space,
        (row_leaves, row_extents): (Vec<Atom>, Vec<usize>),
        outputs: Vec<Columns>,
        most: u64,
    ) -> Option<Plan> {
        let n_rows: usize = row_extents.iter().product();
        let most = most / n_rows.max(1) as u64;
        let mut stages: Vec<Stage> = Vec::new();
        let mut in_thread: BTreeSet<Value> = BTreeSet::new();
        let mut work = 0u64;
        let mut legal = n_rows > 0;
        for (&output, of_output) in graph.outputs.iter().zip(&outputs) {
            let n_columns: usize = of_output.extents.iter().product();
            work += n_columns as u64;
            legal &= work <= most;
            let mut seen = BTreeSet::new();
            let mut nesting = Nesting::default();
            let index = of_output.index.clone();
            moves::walk(&mut space, graph, output, &index, &mut |space, value, index| {
                if !legal || seen.len() > MAX_VISITS || !seen.insert((value, index.to_vec())) {
                    return Step::Over;
                }
                let loops = nesting.visit(space, index);
                let NodeKind::Apply(op, attrs, args) = &graph.nodes[value].kind else {
                    return Step::Over;
                };
                let class = op.spec().class;
                if !matches!(class, OpClass::Reduce | OpClass::Window | OpClass::Contract) {
                    return Step::Into;
                }
                let length: usize = moves::summed(graph, *op, attrs, args).iter().product();
                let row_only = index
                    .iter()
                    .all(|i| space.leaves(i).iter().all(|leaf| row_leaves.contains(leaf)));
                let held = Scalar::of(graph.ty(args[0]).dtype);
                if is_stage(*op)
                    && row_only
                    && length >= MIN_LENGTH
                    && matches!(held, Scalar::F32 | Scalar::I32)
                {
                    match stages.iter().find(|stage| stage.node == value) {
                        Some(stage) => legal &= same(&stage.index, index),
                        None => {
                            legal &= !in_thread.contains(&value);
                            work += length as u64;
                            legal &= work <= most;
                            stages.push(Stage { node: value, index: index.to_vec(), length });
                        }
                    }
                    return Step::Into;
                }
                // A loop in each thread, as often as the loops around it ask for.
                in_thread.insert(value);
                if stages.iter().any(|stage| stage.node == value) {
                    legal = false;
                }
                let trips: u64 = loops
                    .into_iter()
                    .filter(|leaf| !row_leaves.contains(leaf))
                    .map(|leaf| space.loop_extent(leaf).unwrap_or(n_columns as u64))
                    .fold(1, u64::saturating_mul);
                work = work.saturating_add(trips.saturating_mul(length as u64));
                legal &= work <= most;
                Step::Into
            });
            legal &= seen.len() <= MAX_VISITS;
        }
        if !legal || stages.is_empty() {
            return None;
        }
        stages.sort_by_key(|stage| stage.node);
        let work = work.saturating_mul(n_rows as u64);
        Some(Plan { space, row_leaves, row_extents, stages, outputs, work })
    }

    /// Lengths of all that the threads of a row share: stages and columns of outputs.
    pub(crate) fn lengths(&self, _graph: &Graph) -> Vec<usize> {
        let columns = self.outputs.iter().map(|columns| columns.extents.iter().product());
        columns
            .filter(|&n: &usize| n > 1)
            .chain(self.stages.iter().map(|stage| stage.length))
            .collect()
    }

    /// Whether the first stage's elements are neighbours in memory.
    pub(crate) fn is_contiguous(&mut self, graph: &Graph) -> bool {
        let Some(stage) = self.stages.first().cloned() else { return false };
        let NodeKind::Apply(op, attrs, args) = &graph.nodes[stage.node].kind else { return false };
        let extents = moves::summed(graph, *op, attrs, args);
        let space = &mut self.space;
        let (position_leaf, position) = space.fresh(None, 0, stage.length as i64 - 1, 1);
        let at = space.delinear(&position, &extents);
        let index = match op {
            Op::Matmul => {
                let ([_, w], _) =
                    moves::contract(space, graph, (*op, attrs, args), &stage.index, &at);
                return self.is_unit(graph, args[1], &w, position_leaf);
            }
            _ => moves::reduce(&stage.index, &moves::reduced_axes(*op, attrs), &at),
        };
        self.is_unit(graph, args[0], &index, position_leaf)
    }

    fn is_unit(&mut self, graph: &Graph, value: Value, index: &[Index], leaf: Atom) -> bool {
        let mut unit = true;
        let mut found = false;
        moves::walk(&mut self.space, graph, value, index, &mut |space, value, index| {
            if let NodeKind::Input { .. } = graph.nodes[value].kind {
                let address = space.linear(index, &moves::extents(graph, value));
                match space.coefficient(&address, leaf) {
                    Some(0) => {}
                    Some(1) => found = true,
                    _ => unit = false,
                }
            }
            Step::Into
        });
        unit && found
    }
}

fn same(a: &[Index], b: &[Index]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.base == y.base && x.terms == y.terms)
}
