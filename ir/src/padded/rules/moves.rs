//! Operators that move elements: where each one is found.

use std::collections::VecDeque;

use super::{Axis, Done, Factor, Result, Site, Walk};
use crate::graph::eval::resize_taps;
use crate::graph::{Attr, Attrs, Op};
use crate::{DType, Value};

impl Walk<'_> {
    pub(super) fn movement(&mut self, site: &Site<'_>) -> Result<Done> {
        match site.op {
            Op::Reshape => self.reshape(site),
            Op::Transpose => {
                self.same_attrs(site, &[])?;
                let x = &site.args[0];
                let axes = site.attrs.usizes(0).into_iter().map(|axis| x.axes[axis].clone());
                let axes = axes.collect();
                Ok(Done { value: self.emit(site.op, site.attrs.clone(), &site.args)?, axes })
            }
            Op::Expand => {
                let mut axes = site.args[0].axes.clone();
                for (at, axis) in axes.iter_mut().enumerate() {
                    if axis.most() == 1 && site.most[at] != 1 {
                        *axis = self.axis(site.n[at], site.most[at])?;
                    }
                }
                Ok(Done { value: self.emit(site.op, site.attrs.clone(), &site.args)?, axes })
            }
            Op::Slice => self.slice(site),
            Op::Pad => self.pad(site),
            Op::Concat => self.concat(site),
            Op::Gather => self.gather(site),
            _ => self.resize(site),
        }
    }

    /// Deals the parts of the operand's axes to the axes of the result, in row-major order.
    fn reshape(&mut self, site: &Site<'_>) -> Result<Done> {
        let x = &site.args[0];
        let mut parts: VecDeque<Factor> =
            x.axes.iter().flat_map(|axis| axis.factors().iter().copied()).collect();
        let mut axes = Vec::with_capacity(site.most.len());
        for (&n, &most) in site.n.iter().zip(&site.most) {
            let (mut axis, mut left) = (Axis::default(), most);
            while left > 1 {
                let Some(part) = parts.pop_front() else {
                    return self.refuse("a reshape that does not keep the order of its axes");
                };
                if left.is_multiple_of(part.most) {
                    axis.push(part);
                    left /= part.most;
                    continue;
                }
                // A part is split if what stays behind is the same at every shape.
                let behind = part.most / left;
                if !part.most.is_multiple_of(left) || !part.n.is_multiple_of(behind) {
                    return self.refuse("a reshape that splits an axis that varies");
                }
                axis.push(Factor { n: part.n / behind, most: left, varies: part.varies });
                parts.push_front(Factor { n: behind, most: behind, varies: false });
                left = 1;
            }
            if axis.n() != n {
                return self.refuse("a reshape that splits an axis that varies");
            }
            axes.push(axis);
        }
        if parts.iter().any(|part| part.most > 1) {
            return self.refuse("a reshape that does not keep the order of its axes");
        }
        Ok(Done { value: self.emit(Op::Reshape, site.attrs.clone(), &site.args)?, axes })
    }

    /// `x` at positions along an axis that are computed: `[m]` of `i32`.
    fn take(&mut self, x: Value, axis: usize, index: Value) -> Result<Value> {
        self.op(Op::Gather, vec![Attr::Int(axis as i64)], &[x, index])
    }

    fn slice(&mut self, site: &Site<'_>) -> Result<Done> {
        let x = &site.args[0];
        let rank = x.axes.len();
        let (starts, steps) = (site.attrs.ints(0).to_vec(), site.attrs.ints(2).to_vec());
        let here = |attr: usize, none: i64| match site.here {
            Some(attrs) => attrs.ints(attr).to_vec(),
            None => vec![none; rank],
        };
        let (starts_here, steps_here) = (here(0, 0), here(2, 1));
        let (mut first, mut extents, mut strides) =
            (starts.clone(), site.most.clone(), steps.clone());
        let mut axes = Vec::with_capacity(rank);
        let mut moving = Vec::new();
        for at in 0..rank {
            let axis = &x.axes[at];
            // The step of one element is none.
            if steps_here[at] != steps[at] && site.n[at] != 1 {
                return self.refuse("its steps differ between shapes");
            }
            let whole = starts[at] == 0 && steps[at] == 1 && site.most[at] == axis.most();
            let moves = self.varies(starts_here[at] != starts[at])?;
            if whole && !moves && site.n[at] == axis.n() && (axis.is_fixed() || !axis.is_prefix()) {
                axes.push(axis.clone());
                continue;
            }
            if !axis.is_prefix() {
                return self.refuse("a part of two axes at once");
            }
            axes.push(self.axis(site.n[at], site.most[at])?);
            if moves {
                (first[at], extents[at], strides[at]) = (0, axis.most(), 1);
                moving.push(at);
            }
        }
        let nothing = extents.iter().zip(&x.axes).all(|(&n, axis)| n == axis.most())
            && first.iter().all(|&start| start == 0)
            && strides.iter().all(|&step| step == 1);
        let mut value = x.value;
        if !nothing {
            let extents = extents.iter().map(|&n| n as i64).collect();
            let attrs = vec![Attr::Ints(first), Attr::Ints(extents), Attr::Ints(strides)];
            value = self.op(Op::Slice, attrs, &[value])?;
        }
        for at in moving {
            let mut index = self.iota(site.most[at], 0, 1)?;
            if steps[at] != 1 {
                let step = self.small(DType::I32, steps[at]);
                index = self.op(Op::Mul, Attrs::none(), &[index, step])?;
            }
            let start = self.number(starts_here[at], starts[at])?;
            index = self.op(Op::Add, Attrs::none(), &[index, start])?;
            // A negative index would count from the end.
            let zero = self.small(DType::I32, 0);
            index = self.op(Op::Max, Attrs::none(), &[index, zero])?;
            value = self.take(value, at, index)?;
        }
        Ok(Done { value, axes })
    }

    fn pad(&mut self, site: &Site<'_>) -> Result<Done> {
        let x = &site.args[0];
        let rank = x.axes.len();
        let here = |attr: usize| match site.here {
            Some(attrs) => attrs.ints(attr).to_vec(),
            None => vec![0; rank],
        };
        let (before, after) = (site.attrs.ints(0).to_vec(), site.attrs.ints(1).to_vec());
        let (before_here, after_here) = (here(0), here(1));
        let constant = site.attrs.word(2) == "constant";
        let mut axes = Vec::with_capacity(rank);
        let mut ends = Vec::new();
        for at in 0..rank {
            let axis = &x.axes[at];
            if before[at] != before_here[at] || (after[at] == 0 && after_here[at] != 0) {
                return self.refuse("its padding differs between shapes");
            }
            if before[at] == 0 && after[at] == 0 {
                axes.push(axis.clone());
                continue;
            }
            if !axis.is_prefix() {
                return self.refuse("padding of two axes at once");
            }
            if !axis.is_fixed() {
                // The first elements are where they always are, the last are not.
                let mirrors = after[at] == 0
                    && matches!(site.attrs.word(2), "edge" | "reflect")
                    && (axis.n() as i64) > before[at];
                if !constant && !mirrors {
                    return self.refuse("padding that repeats the end of an axis that varies");
                }
                if after[at] != 0 {
                    ends.push((at, [axis.n(), axis.most()].map(|n| before[at] + n as i64)));
                }
            }
            axes.push(self.axis(site.n[at], site.most[at])?);
        }
        let mut value = self.emit(Op::Pad, site.attrs.clone(), &site.args)?;
        let dtype = self.out.ty(value).dtype;
        for (at, [end, last]) in ends {
            let (index, end) = (self.iota(site.most[at], at, rank)?, self.number(end, last)?);
            let inside = self.op(Op::Lt, Attrs::none(), &[index, end])?;
            let fill = crate::Tensor::from_f64(dtype, &[], &[site.attrs.float(3)]);
            let fill = self.out.constant(fill);
            value = self.op(Op::Select, Attrs::none(), &[inside, value, fill])?;
        }
        Ok(Done { value, axes })
    }

    fn concat(&mut self, site: &Site<'_>) -> Result<Done> {
        self.same_attrs(site, &[])?;
        let at = site.attrs.usize(0);
        let mut axes = site.args[0].axes.clone();
        for arg in &site.args {
            let others = |axes: &[Axis]| [&axes[..at], &axes[at + 1..]].concat();
            if others(&arg.axes) != others(&axes) {
                return self.refuse("its operands are padded in different ways");
            }
            if !arg.axes[at].is_prefix() {
                return self.refuse("it joins two axes at once");
            }
        }
        axes[at] = self.axis(site.n[at], site.most[at])?;
        let value = self.emit(Op::Concat, site.attrs.clone(), &site.args)?;
        let (_, first) = site.args.split_last().expect("there are operands");
        if first.iter().all(|arg| arg.axes[at].is_fixed()) {
            return Ok(Done { value, axes });
        }
        // Behind an operand that is shorter than it may be, elements are further back by the difference.
        let position = self.iota(site.most[at], 0, 1)?;
        let (mut index, mut end, mut last) = (position, 0, 0);
        for arg in first {
            let axis = &arg.axes[at];
            end += axis.n() as i64;
            last += axis.most() as i64;
            if axis.is_fixed() {
                continue;
            }
            let most = axis.most() as i64;
            let (end, n) = (self.number(end, last)?, self.number(axis.n() as i64, most)?);
            let most = self.small(DType::I32, most);
            let gap = self.op(Op::Sub, Attrs::none(), &[most, n])?;
            let behind = self.op(Op::Le, Attrs::none(), &[end, position])?;
            let behind = self.op(Op::Cast, vec![Attr::DType(DType::I32)], &[behind])?;
            let gap = self.op(Op::Mul, Attrs::none(), &[behind, gap])?;
            index = self.op(Op::Add, Attrs::none(), &[index, gap])?;
        }
        Ok(Done { value: self.take(value, at, index)?, axes })
    }

    fn gather(&mut self, site: &Site<'_>) -> Result<Done> {
        self.same_attrs(site, &[])?;
        let at = site.attrs.usize(0);
        let (data, indices) = (&site.args[0], &site.args[1]);
        let axis = &data.axes[at];
        let mut index = indices.value;
        if !axis.is_fixed() {
            index = self.resolved(index, axis)?;
        }
        let mut axes = data.axes[..at].to_vec();
        axes.extend(indices.axes.iter().cloned());
        axes.extend(data.axes[at + 1..].iter().cloned());
        Ok(Done { value: self.take(data.value, at, index)?, axes })
    }

    /// Positions of an axis as places of the padded one. As always, negative ones count from the end,
    /// and what is outside is the nearest.
    fn resolved(&mut self, index: Value, axis: &Axis) -> Result<Value> {
        let mut index = index;
        if self.out.ty(index).dtype != DType::I32 {
            if self.out.ty(index).dtype != DType::I64 {
                return self.refuse("indices of another type than i32 and i64");
            }
            index = self.op(Op::Cast, vec![Attr::DType(DType::I32)], &[index])?;
        }
        let (n, most) = (axis.n() as i64, axis.most() as i64);
        let zero = self.small(DType::I32, 0);
        let (extent, last) = (self.number(n, most)?, self.number(n - 1, most - 1)?);
        let negative = self.op(Op::Lt, Attrs::none(), &[index, zero])?;
        let from_end = self.op(Op::Add, Attrs::none(), &[index, extent])?;
        index = self.op(Op::Select, Attrs::none(), &[negative, from_end, index])?;
        index = self.op(Op::Min, Attrs::none(), &[index, last])?;
        index = self.op(Op::Max, Attrs::none(), &[index, zero])?;
        if axis.is_prefix() {
            return Ok(index);
        }
        // Digit by digit, the least significant first.
        let (mut rest, mut place, mut stride) = (index, None, 1i64);
        let factors = axis.factors().to_vec();
        for (nth, factor) in factors.iter().enumerate().rev() {
            let mut digit = rest;
            if nth > 0 {
                let n = self.number(factor.n as i64, factor.most as i64)?;
                let above = self.op(Op::Div, Attrs::none(), &[rest, n])?;
                let below = self.op(Op::Mul, Attrs::none(), &[above, n])?;
                digit = self.op(Op::Sub, Attrs::none(), &[rest, below])?;
                rest = above;
            }
            let stride_value = self.small(DType::I32, stride);
            let term = self.op(Op::Mul, Attrs::none(), &[digit, stride_value])?;
            place = Some(match place {
                None => term,
                Some(place) => self.op(Op::Add, Attrs::none(), &[place, term])?,
            });
            stride *= factor.most as i64;
        }
        Ok(place.expect("an axis that varies has parts"))
    }

    /// Interpolation: behind the end of an axis that varies its last element goes on, as interpolation has it
    /// at the end of an axis. The positions and weights have to be those of the larger one.
    fn resize(&mut self, site: &Site<'_>) -> Result<Done> {
        self.same_attrs(site, &[0])?;
        let x = &site.args[0];
        let (mut axes, mut value) = (Vec::with_capacity(x.axes.len()), x.value);
        for (at, axis) in x.axes.iter().enumerate() {
            if axis.is_fixed() {
                axes.push(self.axis(site.n[at], site.most[at])?);
                continue;
            }
            if !axis.is_prefix() {
                return self.refuse("it scales two axes at once");
            }
            let last = axis.n() - 1;
            let here = resize_taps(site.attrs, at, axis.n(), site.n[at]);
            let most = resize_taps(site.attrs, at, axis.most(), site.most[at]);
            let same = here.iter().zip(&most).all(|(here, most)| {
                let clamped = most.iter().map(|&(position, weight)| (position.min(last), weight));
                here.iter().copied().eq(clamped)
            });
            if !same || here.len() > most.len() {
                return self.refuse("an interpolation that depends on how long an axis is");
            }
            let position = self.iota(axis.most(), 0, 1)?;
            let end = self.number(last as i64, axis.most() as i64 - 1)?;
            let index = self.op(Op::Min, Attrs::none(), &[position, end])?;
            value = self.take(value, at, index)?;
            axes.push(self.axis(site.n[at], site.most[at])?);
        }
        Ok(Done { value: self.op(Op::Resize, site.attrs.clone(), &[value])?, axes })
    }
}
