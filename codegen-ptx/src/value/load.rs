//! Loads and stores of lanes: one vector access where the lanes are neighbours and aligned.

use eggine_ir::graph::Attrs;
use eggine_ir::{DType, Tensor, Value};

use super::{Gen, Lanes};
use crate::index::{Atom, Index};
use crate::kir::{Buffer, Scalar, Val};
use crate::math;

/// Lanes that one access may move: at most 16 bytes, and no vectors of bytes.
fn widest(dtype: DType, n_lanes: usize) -> usize {
    match dtype.bits() {
        16 | 32 => n_lanes.min(4),
        64 => n_lanes.min(2),
        _ => 1,
    }
}

impl Gen<'_> {
    /// How many neighbouring lanes one access at this address can move.
    pub(crate) fn vector_at(
        &mut self,
        dtype: DType,
        address: &Index,
        (atom, n): (Atom, usize),
    ) -> usize {
        if self.space.coefficient(address, atom) != Some(1) {
            return 1;
        }
        let first = self.space.substitute(address, atom, &Index::constant(0));
        let mut width = widest(dtype, n);
        while width > 1 && !first.is_multiple_of(width as i64) {
            width /= 2;
        }
        width
    }

    /// Index of the access without its constant part, and that part.
    fn split(&mut self, address: &Index) -> (Val, i32) {
        let rest = self.space.add_constant(address, -address.base);
        (self.index_val(&rest), address.base as i32)
    }

    /// The elements at an address, under the present mask; zero where it does not hold.
    pub(crate) fn load(&mut self, buffer: Buffer, dtype: DType, address: &Index) -> Lanes {
        let mask = self.mask();
        let lanes = match self.lane {
            Some((atom, n)) if mask.len() > 1 || self.space.depends_on(address, atom) => {
                let width =
                    if mask.len() > 1 { 1 } else { self.vector_at(dtype, address, (atom, n)) };
                let mut lanes = Vec::new();
                for lane in (0..n).step_by(width) {
                    let at = self.space.substitute(address, atom, &Index::constant(lane as i64));
                    let (index, offset) = self.split(&at);
                    let mask = mask.get(lane.min(mask.len().saturating_sub(1))).copied();
                    lanes.extend(self.b.load(buffer, index, offset, width, mask));
                }
                lanes
            }
            _ => {
                let (index, offset) = self.split(address);
                vec![self.b.load1(buffer, index, offset, mask.first().copied())]
            }
        };
        lanes.into_iter().map(|val| self.as_register(dtype, val)).collect()
    }

    /// Booleans are bytes in memory and predicates in registers.
    pub(crate) fn as_register(&mut self, dtype: DType, val: Val) -> Val {
        if dtype != DType::Bool {
            return val;
        }
        let zero = self.b.i32(0);
        self.b.ne(val, zero)
    }

    fn as_stored(&mut self, val: Val) -> Val {
        if self.b.ty(val) == Scalar::Pred { self.b.convert(val, Scalar::I32) } else { val }
    }

    /// Stores lanes at an address under the present mask.
    pub(crate) fn store(&mut self, buffer: Buffer, dtype: DType, address: &Index, lanes: &Lanes) {
        let mask = self.mask();
        let lanes: Lanes = lanes.iter().map(|&val| self.as_stored(val)).collect();
        let Some((atom, n)) = self.lane else {
            let (index, offset) = self.split(address);
            self.b.store(buffer, index, offset, &[lanes[0]], mask.first().copied());
            return;
        };
        let width = if mask.len() > 1 { 1 } else { self.vector_at(dtype, address, (atom, n)) };
        for lane in (0..n).step_by(width) {
            let at = self.space.substitute(address, atom, &Index::constant(lane as i64));
            let (index, offset) = self.split(&at);
            let mask = mask.get(lane.min(mask.len().saturating_sub(1))).copied();
            let srcs: Vec<Val> =
                (lane..lane + width).map(|lane| lanes[lane.min(lanes.len() - 1)]).collect();
            self.b.store(buffer, index, offset, &srcs, mask);
        }
    }

    /// A resize: one axis after the other, a weighted sum of the elements that the reference says.
    pub(super) fn resize(
        &mut self,
        attrs: &Attrs,
        value: Value,
        arg: Value,
        index: &[Index],
    ) -> Lanes {
        let (from, to) = (
            crate::index::moves::extents(self.graph, arg),
            crate::index::moves::extents(self.graph, value),
        );
        let dtype = self.graph.ty(value).dtype;
        let taps: Vec<Vec<Vec<(usize, f64)>>> = (0..from.len())
            .map(|axis| eggine_ir::graph::eval::resize_taps(attrs, axis, from[axis], to[axis]))
            .collect();
        self.resize_axis(arg, dtype, index, &from, &taps, Vec::new())
    }

    fn resize_axis(
        &mut self,
        arg: Value,
        dtype: DType,
        index: &[Index],
        from: &[usize],
        taps: &[Vec<Vec<(usize, f64)>>],
        done: Vec<Index>,
    ) -> Lanes {
        let axis = done.len();
        if axis == from.len() {
            return self.value(arg, &done);
        }
        let next = |g: &mut Self, at: Index| {
            let mut done = done.clone();
            done.push(at);
            g.resize_axis(arg, dtype, index, from, taps, done)
        };
        let (n, to, taps_here) = (from[axis], taps[axis].len(), &taps[axis]);
        let single: Option<Vec<usize>> = taps_here
            .iter()
            .map(|taps| if let [(at, 1.0)] = taps[..] { Some(at) } else { None })
            .collect();
        if let Some(at) = single {
            if at.iter().enumerate().all(|(i, &at)| i == at) {
                return next(self, index[axis].clone());
            }
            if to % n == 0 && at.iter().enumerate().all(|(i, &at)| at == i / (to / n)) {
                let at = self.space.div(&index[axis], (to / n) as i64);
                return next(self, at);
            }
            if to > 1
                && at.iter().enumerate().all(|(i, &x)| {
                    x as i64 == at[0] as i64 + i as i64 * (at[1] as i64 - at[0] as i64)
                })
            {
                let scaled = self.space.scale(&index[axis], at[1] as i64 - at[0] as i64);
                let at = self.space.add_constant(&scaled, at[0] as i64);
                return next(self, at);
            }
        }
        // The lanes need different elements at different distances: each for itself.
        if self.lane.is_some_and(|(atom, _)| self.space.depends_on(&index[axis], atom)) {
            let outer: Vec<Index> = done.iter().chain(index).cloned().collect();
            let n_done = done.len();
            return self.each_lane(&outer, |g, both| {
                g.resize_axis(arg, dtype, &both[n_done..], from, taps, both[..n_done].to_vec())
            });
        }
        let n_taps = taps_here.iter().map(Vec::len).max().unwrap_or(1).max(1);
        let tap = |i: usize, t: usize| {
            taps_here[i]
                .get(t)
                .copied()
                .unwrap_or((taps_here[i].first().map_or(0, |tap| tap.0), 0.0))
        };
        let mut sum: Option<Lanes> = None;
        for t in 0..n_taps {
            let positions: Vec<i64> = (0..to).map(|i| tap(i, t).0 as i64).collect();
            let positions = Tensor::from_i64(DType::I32, &[to], &positions);
            let buffer = self.table(positions);
            let at = self.load(buffer, DType::I32, &index[axis])[0];
            self.b.assume_range(at, 0, n as i64 - 1);
            let depth = self.depth;
            let at =
                self.space.leaf_depending(Some(at), 0, n as i64 - 1, depth, &[index[axis].clone()]);
            let element = next(self, at);
            if n_taps == 1 && taps_here.iter().all(|taps| taps.len() == 1 && taps[0].1 == 1.0) {
                return element;
            }
            let weights: Vec<f64> = (0..to).map(|i| tap(i, t).1).collect();
            let weights = Tensor::from_f64(DType::F32, &[to], &weights);
            let buffer = self.table(weights);
            let weight = self.load(buffer, DType::F32, &index[axis]);
            sum = Some(match sum {
                None => self.map_lanes(&[element, weight], |b, x| {
                    let weight =
                        if b.ty(x[0]) == Scalar::F64 { b.convert(x[1], Scalar::F64) } else { x[1] };
                    b.mul(x[0], weight)
                }),
                Some(sum) => self.map_lanes(&[element, weight, sum], |b, x| {
                    let weight =
                        if b.ty(x[0]) == Scalar::F64 { b.convert(x[1], Scalar::F64) } else { x[1] };
                    b.fma(x[0], weight, x[2])
                }),
            });
        }
        let _ = dtype;
        sum.unwrap_or_else(|| vec![math::number(&mut self.b, dtype, 0.0)])
    }
}
