//! The row family: a group of threads (a part of a warp, a warp, or a block) computes one row.
//!
//! The region's reductions that are the same for the whole row are *stages*: each is computed by
//! all threads of the group together, in topological order, and then known to all of them. What
//! follows pulls its elements as usual; those that a thread used in an earlier stage are still in its
//! registers, because the memo of [`Gen`] has them. Softmax, norms, means, arg-maxima and
//! matrix-vector products are this, with anything computed on the way in and out.

mod plan;

use eggine_ir::graph::Attrs;
use eggine_ir::schedule::RowSchedule;
use eggine_ir::{DType, Graph, NodeKind, Op, Value};

use crate::bindings::Binding;
use crate::index::moves::{self, Inside};
use crate::index::{Atom, Index};
use crate::kir::{Builder, CompareOp, Kernel, Scalar, Val};
use crate::lower::{Illegal, check_threads, parameter};
use crate::math;
use crate::value::{Gen, Lanes, combine, identity};
pub(crate) use plan::Plan;

/// Whether a schedule fits.
pub(crate) fn check(graph: &Graph, s: &RowSchedule) -> Result<(), Illegal> {
    check_with(graph, s, None)
}

/// As [`check`], with the plan if it is known: making one costs more than all else here.
fn check_with(graph: &Graph, s: &RowSchedule, plan: Option<&Plan>) -> Result<(), Illegal> {
    let t = s.threads_per_row;
    parameter(
        "threads_per_row",
        t,
        t.is_power_of_two() && (4..=1024).contains(&t),
        "a power of two from 4 to 1024",
    )?;
    parameter(
        "rows_per_block",
        s.rows_per_block,
        (1..=256).contains(&s.rows_per_block),
        "1 to 256",
    )?;
    check_threads(t * s.rows_per_block)?;
    parameter("vector", s.vector, matches!(s.vector, 1 | 2 | 4), "1, 2 or 4")?;
    parameter("keep", s.keep, s.keep <= 64, "at most 64")?;
    match plan {
        Some(plan) => check_lengths(graph, s, plan),
        None => match Plan::of(graph) {
            Some(plan) => check_lengths(graph, s, &plan),
            None => Err(Illegal::Family { family: "row" }),
        },
    }
}

fn check_lengths(graph: &Graph, s: &RowSchedule, plan: &Plan) -> Result<(), Illegal> {
    let whole = plan.lengths(graph).iter().all(|n| n % s.vector as usize == 0);
    parameter("vector", s.vector, s.vector == 1 || whole, "1, as the rows have no multiple of it")
}

/// Positions that a thread handles: how many rounds, and whether they are written out.
#[derive(Clone, Copy)]
struct Rounds {
    n: usize,
    unrolled: bool,
}

struct Rows<'g> {
    g: Gen<'g>,
    s: RowSchedule,
    /// Thread of the row, and row of the block.
    thread: Index,
    row_in_block: Index,
    /// Leaves of the plan's rows, and what they are for this thread.
    rows: Vec<(Atom, Index)>,
    lane: Index,
}

/// Code for a region under a schedule that [`check`] accepts.
pub(crate) fn lower(graph: &Graph, s: &RowSchedule, name: &str) -> Option<(Kernel, Vec<Binding>)> {
    let plan = Plan::of(graph)?;
    let n_rows: usize = plan.row_extents.iter().product();
    let n_blocks = n_rows.div_ceil(s.rows_per_block as usize);
    let builder = Builder::new(name, [n_blocks as u32, 1, 1], s.threads_per_row * s.rows_per_block);
    let mut g = Gen::new(graph, builder);
    g.space = plan.space.clone();
    for value in graph.inputs() {
        g.input_buffer(value);
    }
    let buffers: Vec<_> = (0..graph.outputs.len()).map(|index| g.output_buffer(index)).collect();
    let (block, thread) = (g.b.block_x(), g.b.thread());
    let (block, thread) = (g.leaf(block, 0), g.leaf(thread, 1));
    let row_in_block = g.space.div(&thread, i64::from(s.threads_per_row));
    let thread = g.space.rem(&thread, i64::from(s.threads_per_row));
    let base = g.space.scale(&block, i64::from(s.rows_per_block));
    let row = g.space.add(&base, &row_in_block);
    // Threads beyond the last row go through the motions, as all must take part in shuffles.
    let inside: Inside =
        if row.hi >= n_rows as i64 { vec![(row.clone(), n_rows as i64)] } else { Vec::new() };
    let exists = g.condition(&inside);
    let parts = g.space.delinear(&row.within(0, n_rows as i64 - 1), &plan.row_extents);
    let rows: Vec<(Atom, Index)> = plan.row_leaves.iter().copied().zip(parts).collect();
    let lane = g.set_lanes(s.vector as usize);
    let mut it = Rows { g, s: *s, thread, row_in_block, rows, lane };
    for stage in &plan.stages {
        let result = it.stage(stage.node, &stage.index, &exists);
        it.g.seeds.insert(stage.node, vec![result]);
    }
    for (number, columns) in plan.outputs.iter().enumerate() {
        it.write(number, columns, buffers[number], &exists);
    }
    Some((it.g.b.finish(), it.g.bindings))
}

impl Rows<'_> {
    fn rounds(&self, n: usize) -> Rounds {
        let per_round = (self.s.threads_per_row * self.s.vector) as usize;
        let n_rounds = n.div_ceil(per_round);
        Rounds {
            n: n_rounds,
            unrolled: n_rounds * self.s.vector as usize <= self.s.keep.max(self.s.vector) as usize,
        }
    }

    /// Position in the row of a round, and the condition that there is one.
    fn position(&mut self, round: &Index, n: usize) -> (Index, Inside) {
        let space = &mut self.g.space;
        let group = space.scale(round, i64::from(self.s.threads_per_row));
        let group = space.add(&group, &self.thread);
        let scaled = space.scale(&group, i64::from(self.s.vector));
        let position = space.add(&scaled, &self.lane);
        let inside =
            if position.hi >= n as i64 { vec![(position.clone(), n as i64)] } else { Vec::new() };
        (position.within(0, n as i64 - 1), inside)
    }

    fn at_row(&mut self, index: &[Index]) -> Vec<Index> {
        index.iter().map(|i| self.g.space.substitute_all(i, &self.rows)).collect()
    }

    /// One reduction, by all threads of the row.
    fn stage(&mut self, node: Value, index: &[Index], exists: &Lanes) -> Val {
        let graph = self.g.graph;
        let NodeKind::Apply(op, attrs, args) = &graph.nodes[node].kind else {
            unreachable!("stages are operators")
        };
        let op = *op;
        let index = self.at_row(index);
        let extents = moves::summed(graph, op, attrs, args);
        let n: usize = extents.iter().product();
        let rounds = self.rounds(n);
        let vector = self.s.vector as usize;
        let dtype = graph.ty(args[0]).dtype;
        let arg = matches!(op, Op::ArgMax | Op::ArgMin);
        let last = arg && attrs.int(1) == 1;
        let init =
            if arg { worst(&mut self.g.b, op, dtype) } else { identity(&mut self.g.b, op, dtype) };
        let mut state = vec![vec![init; vector]];
        if arg {
            let nowhere = self.g.b.i32(if last { -1 } else { i32::MAX });
            state.push(vec![nowhere; vector]);
        }
        if !rounds.unrolled {
            // Loops inside that are the same for the row are done before the rounds.
            self.g.hoist(node, &index);
        }
        let operands: &[Value] = args;
        let step = |it: &mut Self, round: &Index, state: Vec<Lanes>| -> Vec<Lanes> {
            let (position, inside) = it.position(round, n);
            let at = it.g.space.delinear(&position, &extents);
            let here = it.g.condition(&inside);
            let mask = it.g.and_lanes(exists, &here);
            it.g.masked(&mask, |g| {
                term(g, (op, attrs, operands), &index, &at, &position, &here, state, last)
            })
        };
        let state = if rounds.unrolled {
            (0..rounds.n)
                .fold(state, |state, round| step(self, &Index::constant(round as i64), state))
        } else {
            let vars: Vec<Vec<_>> = state
                .iter()
                .map(|lanes| lanes.iter().map(|&val| self.g.b.var(val)).collect())
                .collect();
            let counter = self.g.begin_loop(rounds.n);
            let state = vars
                .iter()
                .map(|vars| vars.iter().map(|&var| self.g.b.get(var)).collect())
                .collect();
            let state = step(self, &counter, state);
            for (vars, lanes) in vars.iter().zip(&state) {
                for (lane, &var) in vars.iter().enumerate() {
                    self.g.b.set(var, lanes[lane.min(lanes.len() - 1)]);
                }
            }
            self.g.end_loop();
            vars.iter().map(|vars| vars.iter().map(|&var| self.g.b.get(var)).collect()).collect()
        };
        // Lanes of the thread, lanes of the warp, warps of the row.
        let mut total: Vec<Val> = state.iter().map(|lanes| lanes[0]).collect();
        for lane in 1..vector {
            let other: Vec<Val> =
                state.iter().map(|lanes| lanes[lane.min(lanes.len() - 1)]).collect();
            total = join(&mut self.g.b, op, last, &total, &other);
        }
        let t = self.s.threads_per_row;
        let mut distance = t.min(32) / 2;
        while distance > 0 {
            let other: Vec<Val> =
                total.iter().map(|&val| self.g.b.shuffle_xor(val, distance)).collect();
            total = join(&mut self.g.b, op, last, &total, &other);
            distance /= 2;
        }
        if t > 32 {
            total = self.across_warps(op, last, &total);
        }
        if arg {
            return self.g.b.convert(total[1], Scalar::I64);
        }
        // A sum of narrow integers is as wide as they are.
        math::wrap(&mut self.g.b, total[0], graph.ty(node).dtype)
    }

    /// Combines the results of the row's warps through shared memory.
    fn across_warps(&mut self, op: Op, last: bool, total: &[Val]) -> Vec<Val> {
        let n_warps = (self.s.threads_per_row / 32) as usize;
        let mut arrays = Vec::new();
        for &val in total {
            let dtype = if self.g.b.ty(val) == Scalar::F32 { DType::F32 } else { DType::I32 };
            arrays.push(self.g.b.shared(dtype, n_warps * self.s.rows_per_block as usize));
        }
        let (warp, lane) = (self.g.space.div(&self.thread, 32), self.g.space.rem(&self.thread, 32));
        let row = self.g.space.scale(&self.row_in_block, n_warps as i64);
        let own = self.g.space.add(&row, &warp);
        let (own, row, lane) =
            (self.g.index_val(&own), self.g.index_val(&row), self.g.index_val(&lane));
        let zero = self.g.b.i32(0);
        let first = self.g.b.eq(lane, zero);
        for (&array, &val) in arrays.iter().zip(total) {
            self.g.b.store(array, own, 0, &[val], Some(first));
        }
        self.g.b.barrier();
        let mut result: Option<Vec<Val>> = None;
        let width = n_warps.min(4);
        for warp in (0..n_warps).step_by(width) {
            let loaded: Vec<Vec<Val>> = arrays
                .iter()
                .map(|&array| self.g.b.load(array, row, warp as i32, width, None))
                .collect();
            for i in 0..width {
                let other: Vec<Val> = loaded.iter().map(|vals| vals[i]).collect();
                result = Some(match result {
                    None => other,
                    Some(result) => join(&mut self.g.b, op, last, &result, &other),
                });
            }
        }
        result.expect("a row has warps")
    }

    /// Pulls and stores the row's elements of an output.
    fn write(
        &mut self,
        number: usize,
        columns: &plan::Columns,
        buffer: crate::kir::Buffer,
        exists: &Lanes,
    ) {
        let graph = self.g.graph;
        let output = graph.outputs[number];
        let ty = graph.ty(output).clone();
        let n: usize = columns.extents.iter().product();
        if n == 1 {
            // One element: the first thread of the row stores it.
            let index = self.at_row(&columns.index);
            let index: Vec<Index> =
                index.iter().map(|i| self.g.space.substitute_all(i, &columns.origin())).collect();
            let first: Inside = vec![(self.thread.clone(), 1)];
            let lanes = self.g.lane();
            self.g.with_outer_lane(None);
            let first = self.g.condition(&first);
            let mask = self.g.and_lanes(exists, &first);
            self.g.masked(&mask, |g| {
                let value = g.value(output, &index);
                let address = g.space.linear(&index, &ty.extents());
                g.store(buffer, ty.dtype, &address, &value);
            });
            self.g.with_outer_lane(lanes);
            return;
        }
        let rounds = self.rounds(n);
        let one = |it: &mut Self, round: &Index| {
            let (position, inside) = it.position(round, n);
            let parts = it.g.space.delinear(&position, &columns.extents);
            let mut with = it.rows.clone();
            with.extend(columns.leaves.iter().copied().zip(parts));
            let index: Vec<Index> =
                columns.index.iter().map(|i| it.g.space.substitute_all(i, &with)).collect();
            let here = it.g.condition(&inside);
            let mask = it.g.and_lanes(exists, &here);
            it.g.masked(&mask, |g| {
                let lanes = g.value(output, &index);
                let address = g.space.linear(&index, &ty.extents());
                g.store(buffer, ty.dtype, &address, &lanes);
            });
        };
        if rounds.unrolled {
            (0..rounds.n).for_each(|round| one(self, &Index::constant(round as i64)));
        } else {
            let counter = self.g.begin_loop(rounds.n);
            one(self, &counter);
            self.g.end_loop();
        }
    }
}

/// One round of a reduction: the state with the element of this position joined to it.
#[allow(clippy::too_many_arguments, reason = "the coordinates of one element")]
fn term(
    g: &mut Gen<'_>,
    (op, attrs, args): (Op, &Attrs, &[Value]),
    index: &[Index],
    at: &[Index],
    position: &Index,
    here: &Lanes,
    state: Vec<Lanes>,
    last: bool,
) -> Vec<Lanes> {
    if op == Op::Matmul {
        let (a, w) = g.product(op, attrs, args, index, at);
        let sum = g.map_lanes(&[a, w, state[0].clone()], |b, v| b.fma(v[0], v[1], v[2]));
        return vec![g.select_lanes(here, &sum, &state[0])];
    }
    let x = g.value(args[0], &moves::reduce(index, &moves::reduced_axes(op, attrs), at));
    if !matches!(op, Op::ArgMax | Op::ArgMin) {
        let init = identity(&mut g.b, op, g.graph.ty(args[0]).dtype);
        let x = g.select_lanes(here, &x, &vec![init]);
        return vec![g.map_lanes(&[state[0].clone(), x], |b, v| combine(b, op, v[0], v[1]))];
    }
    let positions = g.each_lane(std::slice::from_ref(position), |g, at| vec![g.index_val(&at[0])]);
    let (best, best_at) = (state[0].clone(), state[1].clone());
    let better = g
        .map_lanes(&[x.clone(), positions.clone(), best.clone(), best_at.clone()], |b, v| {
            is_better(b, op, last, (v[0], v[1]), (v[2], v[3]))
        });
    let better = g.and_lanes(&better, here);
    vec![g.select_lanes(&better, &x, &best), g.select_lanes(&better, &positions, &best_at)]
}

/// What every element beats.
fn worst(b: &mut Builder, op: Op, dtype: DType) -> Val {
    math::number(b, dtype, if op == Op::ArgMax { f64::NEG_INFINITY } else { f64::INFINITY })
}

/// Whether the element `x` (with its position) is the one to choose, not `best`.
fn is_better(b: &mut Builder, op: Op, last: bool, x: (Val, Val), best: (Val, Val)) -> Val {
    let (lesser, greater) = if op == Op::ArgMax { (best.0, x.0) } else { (x.0, best.0) };
    let strictly = b.compare(CompareOp::Lt, lesser, greater);
    let equal = b.eq(x.0, best.0);
    let earlier = if last { b.lt(best.1, x.1) } else { b.lt(x.1, best.1) };
    let tie = b.and(equal, earlier);
    b.or(strictly, tie)
}

/// Joins two partial results.
fn join(b: &mut Builder, op: Op, last: bool, x: &[Val], y: &[Val]) -> Vec<Val> {
    if let ([x, x_at], [y, y_at]) = (x, y) {
        let better = is_better(b, op, last, (*y, *y_at), (*x, *x_at));
        return vec![b.select(better, *y, *x), b.select(better, *y_at, *x_at)];
    }
    vec![combine(b, op, x[0], y[0])]
}

/// The schedule that is tried first.
pub(crate) fn first_schedule(graph: &Graph) -> Option<RowSchedule> {
    let mut plan = Plan::of(graph)?;
    let lengths = plan.lengths(graph);
    let longest = plan.stages.iter().map(|stage| stage.length).max()?;
    let vector: u32 =
        if plan.is_contiguous(graph) && lengths.iter().all(|n| n % 4 == 0) && longest >= 128 {
            4
        } else {
            1
        };
    let keep = 32;
    // Eight vectors a thread at most, as far as a block can have the threads.
    let groups = longest.div_ceil(vector as usize);
    let threads_per_row = (groups.div_ceil(8).next_power_of_two() as u32)
        .clamp(if groups >= 32 { 32 } else { 8 }, 256);
    let n_rows: usize = plan.row_extents.iter().product();
    let mut rows_per_block = (128 / threads_per_row).max(1);
    while rows_per_block > 1
        && rows_per_block * threads_per_row > 32
        && n_rows.div_ceil(rows_per_block as usize) < 16
    {
        rows_per_block /= 2;
    }
    let schedule = RowSchedule { threads_per_row, rows_per_block, vector, keep };
    check_with(graph, &schedule, Some(&plan)).is_ok().then_some(schedule)
}

/// Schedules one move away.
pub(crate) fn neighbours(s: &RowSchedule) -> Vec<(&'static str, RowSchedule)> {
    let s = *s;
    vec![
        (
            "row-more-threads",
            RowSchedule {
                threads_per_row: s.threads_per_row * 2,
                rows_per_block: (s.rows_per_block / 2).max(1),
                ..s
            },
        ),
        (
            "row-fewer-threads",
            RowSchedule {
                threads_per_row: s.threads_per_row / 2,
                rows_per_block: s.rows_per_block * 2,
                ..s
            },
        ),
        ("row-more-rows", RowSchedule { rows_per_block: s.rows_per_block * 2, ..s }),
        ("row-fewer-rows", RowSchedule { rows_per_block: s.rows_per_block / 2, ..s }),
        ("row-wider", RowSchedule { vector: s.vector * 2, ..s }),
        ("row-narrower", RowSchedule { vector: s.vector / 2, ..s }),
        ("row-keep", RowSchedule { keep: if s.keep == 0 { 32 } else { 0 }, ..s }),
    ]
}
