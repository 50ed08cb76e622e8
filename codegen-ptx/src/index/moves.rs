//! Index maps of operators: from the index of a result element to those of the operand elements it
//! is made of. One function per operator; code generation and every analysis share them.

use std::collections::{BTreeMap, BTreeSet};

use eggine_ir::graph::Attrs;
use eggine_ir::{Graph, Op, Value};

use super::{Atom, Index, Space};

/// `0 <= index < extent` for each: where a padded or windowed element exists.
pub type Inside = Vec<(Index, i64)>;

/// The extents of a value.
pub fn extents(graph: &Graph, value: Value) -> Vec<usize> {
    graph.ty(value).extents()
}

/// Index into an operand that is broadcast as NumPy does.
pub fn broadcast(index: &[Index], arg: &[usize]) -> Vec<Index> {
    let skip = index.len() - arg.len();
    let pairs = arg.iter().zip(&index[skip..]);
    pairs
        .map(|(&extent, index)| if extent == 1 { Index::constant(0) } else { index.clone() })
        .collect()
}

/// Index into the operand of a reshape from extents `arg` to extents `out`.
///
/// Groups of axes with equal products are treated apart, so that what is not reshaped needs no
/// arithmetic.
pub fn reshape(space: &mut Space, index: &[Index], out: &[usize], arg: &[usize]) -> Vec<Index> {
    let mut result = vec![Index::constant(0); arg.len()];
    if out.iter().product::<usize>() == 0 {
        return result;
    }
    let outs: Vec<usize> = (0..out.len()).filter(|&axis| out[axis] != 1).collect();
    let args: Vec<usize> = (0..arg.len()).filter(|&axis| arg[axis] != 1).collect();
    let (mut i, mut j) = (0, 0);
    while i < outs.len() && j < args.len() {
        let (first_out, first_arg) = (i, j);
        let (mut n_out, mut n_arg) = (out[outs[i]], arg[args[j]]);
        (i, j) = (i + 1, j + 1);
        while n_out != n_arg {
            if n_out < n_arg {
                n_out *= out[outs[i]];
                i += 1;
            } else {
                n_arg *= arg[args[j]];
                j += 1;
            }
        }
        let group: Vec<Index> =
            outs[first_out..i].iter().map(|&axis| index[axis].clone()).collect();
        let group_out: Vec<usize> = outs[first_out..i].iter().map(|&axis| out[axis]).collect();
        let group_arg: Vec<usize> = args[first_arg..j].iter().map(|&axis| arg[axis]).collect();
        let split = if group_out == group_arg {
            group
        } else {
            let position = space.linear(&group, &group_out);
            space.delinear(&position, &group_arg)
        };
        for (axis, index) in args[first_arg..j].iter().zip(split) {
            result[*axis] = index;
        }
    }
    result
}

/// Index into the operand of a transpose.
pub fn transpose(index: &[Index], perm: &[usize]) -> Vec<Index> {
    let mut result = vec![Index::constant(0); perm.len()];
    for (axis, &from) in perm.iter().enumerate() {
        result[from] = index[axis].clone();
    }
    result
}

/// Index into the operand of a slice.
pub fn slice(space: &mut Space, index: &[Index], attrs: &Attrs) -> Vec<Index> {
    let (starts, steps) = (attrs.ints(0), attrs.ints(2));
    let at = |(axis, i): (usize, &Index)| {
        let scaled = space.scale(i, steps[axis]);
        space.add_constant(&scaled, starts[axis])
    };
    index.iter().enumerate().map(at).collect()
}

/// Index into the operand of a pad, and where it exists (for mode `constant`).
pub fn pad(
    space: &mut Space,
    index: &[Index],
    attrs: &Attrs,
    arg: &[usize],
) -> (Vec<Index>, Inside) {
    let (before, mode) = (attrs.ints(0), attrs.word(2));
    let mut inside = Vec::new();
    let mut result = Vec::new();
    for (axis, i) in index.iter().enumerate() {
        let n = arg[axis] as i64;
        let shifted = space.add_constant(i, -before[axis]);
        if shifted.lo >= 0 && shifted.hi < n {
            result.push(shifted);
            continue;
        }
        result.push(match mode {
            "edge" => space.clamp(&shifted, 0, n - 1),
            "wrap" => space.rem(&shifted, n),
            "reflect" if n == 1 => Index::constant(0),
            "reflect" => {
                let period = 2 * (n - 1);
                // Below one period the distance from the first element is enough.
                let folded = if shifted.lo > -period && shifted.hi < period {
                    space.abs(&shifted)
                } else {
                    space.rem(&shifted, period)
                };
                let mirrored = space.scale(&folded, -1);
                let mirrored = space.add_constant(&mirrored, n - 1);
                let distance = space.abs(&mirrored);
                let distance = space.scale(&distance, -1);
                space.add_constant(&distance, n - 1).within(0, n - 1)
            }
            _ => {
                inside.push((shifted.clone(), n));
                shifted.within(0, n - 1)
            }
        });
    }
    (result, inside)
}

/// Index into each operand of a concatenation, with the position along the axis not yet restricted.
pub fn concat(
    space: &mut Space,
    index: &[Index],
    axis: usize,
    lengths: &[usize],
) -> Vec<Vec<Index>> {
    let mut start = 0;
    let mut parts = Vec::new();
    for &length in lengths {
        let mut part = index.to_vec();
        part[axis] = space.add_constant(&index[axis], -start);
        parts.push(part);
        start += length as i64;
    }
    parts
}

/// Position along a spatial axis that a window reads: `position · stride + tap · dilation − before`.
fn tap(
    space: &mut Space,
    position: &Index,
    tap: &Index,
    (stride, dilation, before): (i64, i64, i64),
) -> Index {
    let start = space.scale(position, stride);
    let step = space.scale(tap, dilation);
    let sum = space.add(&start, &step);
    space.add_constant(&sum, -before)
}

/// Index into the operand of a pool, and where it exists; `taps` has one index per kernel axis.
pub fn window(
    space: &mut Space,
    index: &[Index],
    taps: &[Index],
    attrs: &Attrs,
    arg: &[usize],
) -> (Vec<Index>, Inside) {
    let (strides, before, dilations) = (attrs.ints(1), attrs.ints(2), attrs.ints(4));
    let mut result = index[..2].to_vec();
    let mut inside = Vec::new();
    for axis in 0..taps.len() {
        let at = tap(
            space,
            &index[axis + 2],
            &taps[axis],
            (strides[axis], dilations[axis], before[axis]),
        );
        let n = arg[axis + 2] as i64;
        result.push(at.within(0, n - 1));
        if at.lo < 0 || at.hi >= n {
            inside.push((at, n));
        }
    }
    (result, inside)
}

/// Extents that a reduction, pool or contraction sums over, outermost first. For convolutions:
/// input channels of the group, then the kernel.
pub fn summed(graph: &Graph, op: Op, attrs: &Attrs, args: &[Value]) -> Vec<usize> {
    let Some(&first) = args.first() else { return Vec::new() };
    let first = extents(graph, first);
    match op {
        Op::ReduceSum | Op::ReduceProd | Op::ReduceMax | Op::ReduceMin => {
            attrs.usizes(0).iter().map(|&axis| first[axis]).collect()
        }
        Op::ArgMax | Op::ArgMin => vec![first[attrs.int(0) as usize]],
        Op::MaxPool | Op::SumPool => attrs.usizes(0),
        Op::Matmul => vec![*first.last().expect("rank 2")],
        Op::Conv => extents(graph, args[1])[1..].to_vec(),
        Op::ConvTranspose => {
            let filter = extents(graph, args[1]);
            let mut summed = vec![first[1] / attrs.int(4) as usize];
            summed.extend(&filter[2..]);
            summed
        }
        _ => Vec::new(),
    }
}

/// Axes of the operand that a reduction goes over.
pub fn reduced_axes(op: Op, attrs: &Attrs) -> Vec<usize> {
    match op {
        Op::ArgMax | Op::ArgMin => vec![attrs.int(0) as usize],
        _ => attrs.usizes(0),
    }
}

/// Index into the operand of a reduction.
pub fn reduce(index: &[Index], axes: &[usize], at: &[Index]) -> Vec<Index> {
    let mut result = index.to_vec();
    for (axis, at) in axes.iter().zip(at) {
        result[*axis] = at.clone();
    }
    result
}

/// Indices into both operands of a contraction for one product, and where it exists.
pub fn contract(
    space: &mut Space,
    graph: &Graph,
    (op, attrs, args): (Op, &Attrs, &[Value]),
    index: &[Index],
    k: &[Index],
) -> ([Vec<Index>; 2], Inside) {
    let (lhs, rhs) = (extents(graph, args[0]), extents(graph, args[1]));
    let mut inside = Vec::new();
    match op {
        Op::Matmul => {
            let rank = index.len();
            let (batch, m, n) = (&index[..rank - 2], &index[rank - 2], &index[rank - 1]);
            let mut a = broadcast(batch, &lhs[..lhs.len() - 2]);
            a.extend([m.clone(), k[0].clone()]);
            let mut b = broadcast(batch, &rhs[..rhs.len() - 2]);
            b.extend([k[0].clone(), n.clone()]);
            ([a, b], inside)
        }
        Op::Conv => {
            let groups = attrs.int(4);
            let (per_group, n_out) = (rhs[1] as i64, rhs[0] as i64);
            let group = space.div(&index[1], n_out / groups);
            let channel = space.scale(&group, per_group);
            let channel = space.add(&channel, &k[0]);
            let mut x = vec![index[0].clone(), channel];
            let (strides, before, dilations) = (attrs.ints(0), attrs.ints(1), attrs.ints(3));
            for axis in 0..k.len() - 1 {
                let at = tap(
                    space,
                    &index[axis + 2],
                    &k[axis + 1],
                    (strides[axis], dilations[axis], before[axis]),
                );
                let n = lhs[axis + 2] as i64;
                x.push(at.within(0, n - 1));
                if at.lo < 0 || at.hi >= n {
                    inside.push((at, n));
                }
            }
            let mut w = vec![index[1].clone()];
            w.extend(k.iter().cloned());
            ([x, w], inside)
        }
        Op::ConvTranspose => {
            let groups = attrs.int(4);
            let per_group = lhs[1] as i64 / groups;
            let n_out = rhs[1] as i64;
            let group = space.div(&index[1], n_out);
            let channel = space.scale(&group, per_group);
            let channel = space.add(&channel, &k[0]);
            let mut x = vec![index[0].clone(), channel.clone()];
            let (strides, before, dilations) = (attrs.ints(0), attrs.ints(1), attrs.ints(3));
            for axis in 0..k.len() - 1 {
                let back = space.scale(&k[axis + 1], -dilations[axis]);
                let at = space.add(&index[axis + 2], &back);
                let at = space.add_constant(&at, before[axis]);
                let phase = space.rem(&at, strides[axis]);
                if phase.as_constant() != Some(0) {
                    inside.push((phase, 1));
                }
                let at = space.div(&at, strides[axis]);
                let n = lhs[axis + 2] as i64;
                x.push(at.within(0, n - 1));
                if at.lo < 0 || at.hi >= n {
                    inside.push((at, n));
                }
            }
            let mut w = vec![channel, space.rem(&index[1], n_out)];
            w.extend(k[1..].iter().cloned());
            ([x, w], inside)
        }
        _ => unreachable!("{op} is not a contraction"),
    }
}

/// What a walk does behind a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Goes on to the operands.
    Into,
    /// Goes no further.
    Over,
}

/// Walks through everything that the element of `value` at `index` is computed from, with symbolic
/// indices: loops are unknown leaves in their range. `visit` sees every (value, index).
pub fn walk(
    space: &mut Space,
    graph: &Graph,
    value: Value,
    index: &[Index],
    visit: &mut dyn FnMut(&mut Space, Value, &[Index]) -> Step,
) {
    if visit(space, value, index) == Step::Over {
        return;
    }
    let eggine_ir::NodeKind::Apply(op, attrs, args) = &graph.nodes[value].kind else { return };
    let op = *op;
    let out = extents(graph, value);
    let arg = |i: usize| extents(graph, args[i]);
    match op {
        Op::Reshape => {
            let index = reshape(space, index, &out, &arg(0));
            walk(space, graph, args[0], &index, visit);
        }
        Op::Transpose => walk(space, graph, args[0], &transpose(index, &attrs.usizes(0)), visit),
        Op::Expand => walk(space, graph, args[0], &broadcast(index, &arg(0)), visit),
        Op::Slice => {
            let index = slice(space, index, attrs);
            walk(space, graph, args[0], &index, visit);
        }
        Op::Pad => {
            let (index, _) = pad(space, index, attrs, &arg(0));
            walk(space, graph, args[0], &index, visit);
        }
        Op::Concat => {
            let axis = attrs.int(0) as usize;
            let lengths: Vec<usize> = args.iter().map(|&a| extents(graph, a)[axis]).collect();
            for (i, mut part) in concat(space, index, axis, &lengths).into_iter().enumerate() {
                if part[axis].hi >= 0 && part[axis].lo < lengths[i] as i64 {
                    part[axis] = part[axis].within(0, lengths[i] as i64 - 1);
                    walk(space, graph, args[i], &part, visit);
                }
            }
        }
        Op::Gather => {
            let axis = attrs.int(0) as usize;
            let rank = arg(1).len();
            let at = &index[axis..axis + rank];
            walk(space, graph, args[1], at, visit);
            let loaded = space.leaf_depending(None, 0, arg(0)[axis] as i64 - 1, 0, at);
            let mut data = index[..axis].to_vec();
            data.push(loaded);
            data.extend_from_slice(&index[axis + rank..]);
            walk(space, graph, args[0], &data, visit);
        }
        Op::Resize => {
            let from = arg(0);
            let mut data = Vec::new();
            for (axis, i) in index.iter().enumerate() {
                let same = from[axis] == out[axis];
                data.push(if same {
                    i.clone()
                } else {
                    space.leaf_depending(None, 0, from[axis] as i64 - 1, 0, std::slice::from_ref(i))
                });
            }
            walk(space, graph, args[0], &data, visit);
        }
        Op::Iota => {}
        Op::ReduceSum
        | Op::ReduceProd
        | Op::ReduceMax
        | Op::ReduceMin
        | Op::ArgMax
        | Op::ArgMin => {
            let at = loop_leaves(space, &summed(graph, op, attrs, args));
            walk(space, graph, args[0], &reduce(index, &reduced_axes(op, attrs), &at), visit);
        }
        Op::MaxPool | Op::SumPool => {
            let taps = loop_leaves(space, &summed(graph, op, attrs, args));
            let (index, _) = window(space, index, &taps, attrs, &arg(0));
            walk(space, graph, args[0], &index, visit);
        }
        Op::Matmul | Op::Conv | Op::ConvTranspose => {
            let k = loop_leaves(space, &summed(graph, op, attrs, args));
            let ([a, b], _) = contract(space, graph, (op, attrs, args), index, &k);
            walk(space, graph, args[0], &a, visit);
            walk(space, graph, args[1], &b, visit);
        }
        _ => {
            for (i, &value) in args.iter().enumerate() {
                walk(space, graph, value, &broadcast(index, &arg(i)), visit);
            }
        }
    }
}

/// Which loops are around which, while a region is [walked](walk).
///
/// Code at an index stands in the loops of its leaves and in all that are around those: only what depends on
/// none of the inner loops is moved out of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nesting {
    /// Leaves around each leaf.
    around: BTreeMap<Atom, BTreeSet<Atom>>,
    last: BTreeSet<Atom>,
}

impl Nesting {
    /// Visits an index, every one of the walk in its order: the leaves of all loops that its code is in.
    pub(crate) fn visit(&mut self, space: &Space, index: &[Index]) -> BTreeSet<Atom> {
        let leaves: BTreeSet<Atom> = index.iter().flat_map(|i| space.leaves(i)).collect();
        let mut all = leaves.clone();
        for leaf in leaves {
            // A leaf is new where the loop was opened: by what was visited just before.
            let around = self.around.entry(leaf).or_insert_with(|| self.last.clone());
            all.extend(around.iter().copied());
        }
        self.last.clone_from(&all);
        all
    }
}

/// Depth of leaves that stand for loops in an analysis.
pub const LOOP_DEPTH: u32 = 1000;

/// Unknowns in the ranges of loops.
pub fn loop_leaves(space: &mut Space, extents: &[usize]) -> Vec<Index> {
    extents
        .iter()
        .map(|&extent| space.leaf(None, 0, extent.max(1) as i64 - 1, LOOP_DEPTH))
        .collect()
}
