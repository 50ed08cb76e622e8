//! The pointwise family: a thread computes output elements whole, with every reduction in the thread.
//!
//! It can do any region, so it is the plain kernel of everything; it is the *good* kernel where little
//! is computed per element: maps, moves, pools, depthwise convolutions.

use eggine_ir::schedule::PointwiseSchedule;
use eggine_ir::{DType, Graph, Value};

use crate::bindings::Binding;
use crate::kir::{Buffer, Builder, Kernel, Val};
use crate::value::Gen;

/// Whether an output has several elements in a byte. Only this family stores those: a thread computes
/// all elements of a byte. Inside an engine such tensors are packed as they are everywhere else.
pub(crate) fn has_packed_output(graph: &Graph) -> bool {
    graph.outputs.iter().any(|&output| graph.ty(output).dtype.bits() < 8)
}

/// Whether lanes of this number stay together: they are in one row of every output.
fn vector_of(graph: &Graph, schedule: &PointwiseSchedule) -> usize {
    let vector = schedule.vector as usize;
    if has_packed_output(graph) {
        return 1;
    }
    let fits = |&output: &eggine_ir::Value| graph.ty(output).n_elems().is_multiple_of(vector);
    if graph.outputs.iter().all(fits) { vector } else { 1 }
}

/// Code for a region under a schedule.
pub(crate) fn lower(
    graph: &Graph,
    schedule: &PointwiseSchedule,
    name: &str,
) -> (Kernel, Vec<Binding>) {
    let sizes: Vec<usize> =
        graph.outputs.iter().map(|&output| graph.ty(output).n_elems()).collect();
    let n_elems = sizes.iter().copied().max().unwrap_or(0).max(1);
    let vector = vector_of(graph, schedule);
    let n_groups = (schedule.elems as usize / vector).max(1);
    let per_block = schedule.threads as usize * vector * n_groups;
    let n_blocks = n_elems.div_ceil(per_block);
    let builder = Builder::new(name, [n_blocks as u32, 1, 1], schedule.threads);
    let mut g = Gen::new(graph, builder);
    for value in graph.inputs() {
        g.input_buffer(value);
    }
    let outputs: Vec<_> = (0..graph.outputs.len()).map(|index| g.output_buffer(index)).collect();
    let (block, thread) = (g.b.block_x(), g.b.thread());
    for group in 0..n_groups {
        // Groups of a thread are a block apart, so that neighbouring threads touch neighbours.
        let start = g.b.mul_const(block, (schedule.threads as usize * n_groups) as i32);
        let position = g.b.add(start, thread);
        let position = g.b.add_const(position, (group * schedule.threads as usize) as i32);
        let lane = g.set_lanes(vector);
        for (at, &output) in graph.outputs.iter().enumerate() {
            if graph.ty(output).dtype.bits() < 8 {
                store_bytes(&mut g, outputs[at], output, position);
                continue;
            }
            let n_here = sizes[at] / vector;
            let limit = g.b.i32(n_here as i32);
            let inside = g.b.lt(position, limit);
            let body = |g: &mut Gen<'_>| {
                let group = g.space.leaf(Some(position), 0, n_here as i64 - 1, 1);
                let scaled = g.space.scale(&group, vector as i64);
                let element = g.space.add(&scaled, &lane);
                let ty = graph.ty(output);
                let index = g.space.delinear(&element, &ty.extents());
                let lanes = g.value(output, &index);
                g.store(outputs[at], ty.dtype, &element, &lanes);
            };
            g.if_then(inside, body);
        }
    }
    (g.b.finish(), g.bindings)
}

/// Stores the byte at `position` of an output of elements of 4 or 2 bits, the first in the lowest bits;
/// bits behind the last element are 0.
fn store_bytes(g: &mut Gen<'_>, buffer: Buffer, output: Value, position: Val) {
    let ty = g.graph.ty(output).clone();
    let (n_bits, n_elems, n_bytes) = (ty.dtype.bits(), ty.n_elems() as i64, ty.n_bytes());
    let limit = g.b.i32(n_bytes as i32);
    let inside = g.b.lt(position, limit);
    g.if_then(inside, |g| {
        let group = g.space.leaf(Some(position), 0, n_bytes as i64 - 1, 1);
        let first = g.space.scale(&group, 8 / n_bits as i64);
        let mut byte = g.b.i32(0);
        for part in 0..8 / n_bits {
            let element = g.space.add_constant(&first, part as i64);
            let exists = g.condition(&vec![(element.clone(), n_elems)]);
            let element = element.within(0, n_elems - 1);
            let index = g.space.delinear(&element, &ty.extents());
            let lanes = g.masked(&exists, |g| g.value(output, &index));
            let (mask, zero) = (g.b.i32((1 << n_bits) - 1), g.b.i32(0));
            let mut bits = g.b.and(lanes[0], mask);
            if let Some(&exists) = exists.first() {
                bits = g.b.select(exists, bits, zero);
            }
            let shift = g.b.i32((part * n_bits) as i32);
            let bits = g.b.shl(bits, shift);
            byte = g.b.or(byte, bits);
        }
        g.store(buffer, DType::U8, &group, &vec![byte]);
    });
}

/// The schedule that is tried first.
pub(crate) fn first_schedule(graph: &Graph) -> PointwiseSchedule {
    let n_elems = graph.outputs.iter().map(|&output| graph.ty(output).n_elems()).max().unwrap_or(1);
    let wide = n_elems % 4 == 0 && n_elems >= 4096 && !has_packed_output(graph);
    let vector = if wide { 4 } else { 1 };
    PointwiseSchedule { threads: 128, elems: vector, vector }
}

/// Schedules one move away.
pub(crate) fn neighbours(
    graph: &Graph,
    schedule: &PointwiseSchedule,
) -> Vec<(&'static str, PointwiseSchedule)> {
    let s = *schedule;
    let mut moves = vec![
        ("pointwise-more-threads", PointwiseSchedule { threads: s.threads * 2, ..s }),
        ("pointwise-fewer-threads", PointwiseSchedule { threads: s.threads / 2, ..s }),
        ("pointwise-more-elems", PointwiseSchedule { elems: s.elems * 2, ..s }),
        (
            "pointwise-wider",
            PointwiseSchedule { vector: s.vector * 2, elems: s.elems.max(s.vector * 2), ..s },
        ),
        ("pointwise-narrower", PointwiseSchedule { vector: s.vector / 2, ..s }),
    ];
    if s.elems / 2 >= s.vector {
        moves.push(("pointwise-fewer-elems", PointwiseSchedule { elems: s.elems / 2, ..s }));
    }
    moves.retain(|(_, s)| {
        (32..=1024).contains(&s.threads)
            && matches!(s.vector, 1 | 2 | 4)
            && s.elems <= 16
            && s.elems % s.vector == 0
            && vector_of(graph, s) == s.vector as usize
    });
    moves
}
