//! Operators that fold elements: what is not there must not count.

use super::{Axis, Done, Result, Site, Walk};
use crate::graph::{Attrs, Op};
use crate::{DType, Tensor};

/// The element that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    Number(i64),
    Least,
    Greatest,
}

impl Walk<'_> {
    fn fill(&self, dtype: DType, fill: Fill) -> Result<Tensor> {
        let bits = dtype.bits() as u32;
        let unsigned = matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
        let x = match fill {
            Fill::Number(x) => return Ok(Tensor::from_f64(dtype, &[], &[x as f64])),
            Fill::Least if dtype.is_float() => {
                return Ok(Tensor::from_f64(dtype, &[], &[f64::NEG_INFINITY]));
            }
            Fill::Greatest if dtype.is_float() => {
                return Ok(Tensor::from_f64(dtype, &[], &[f64::INFINITY]));
            }
            _ if dtype == DType::U64 || bits < 8 => {
                return self.refuse(format!("elements of {dtype} cannot be masked"));
            }
            Fill::Least if unsigned => 0,
            Fill::Greatest if unsigned => (1 << bits) - 1,
            Fill::Least => i64::MIN >> (64 - bits),
            Fill::Greatest => i64::MAX >> (64 - bits),
        };
        Ok(Tensor::from_i64(dtype, &[], &[x]))
    }

    pub(super) fn reduce(&mut self, site: &Site<'_>) -> Result<Done> {
        self.same_attrs(site, &[])?;
        let x = &site.args[0];
        let axes: Vec<usize> = match site.op {
            Op::ArgMax | Op::ArgMin => vec![site.attrs.usize(0)],
            _ => site.attrs.usizes(0),
        };
        let fill = match site.op {
            Op::ReduceSum => Fill::Number(0),
            Op::ReduceProd => Fill::Number(1),
            Op::ReduceMax | Op::ArgMax => Fill::Least,
            _ => Fill::Greatest,
        };
        if matches!(site.op, Op::ArgMax | Op::ArgMin) && !x.axes[axes[0]].is_fixed() {
            if !x.axes[axes[0]].is_prefix() {
                return self.refuse("a position along two axes at once");
            }
            // Of equals the first is one that is there, the last might not be.
            if site.attrs.int(1) == 1 {
                return self.refuse("the last of equal elements, along an axis that varies");
            }
        }
        let fill = match axes.iter().all(|&axis| x.axes[axis].is_fixed()) {
            true => Tensor::from_f64(DType::F32, &[], &[0.0]),
            false => self.fill(self.out.ty(x.value).dtype, fill)?,
        };
        let masked = self.masked(x, &axes, fill)?;
        let value = self.op(site.op, site.attrs.clone(), &[masked])?;
        let mut result = x.axes.clone();
        axes.iter().for_each(|&axis| result[axis] = Axis::default());
        Ok(Done { value, axes: result })
    }

    /// Products of matrices, convolutions and pools.
    pub(super) fn contract(&mut self, site: &Site<'_>) -> Result<Done> {
        if site.op == Op::Matmul { self.matmul(site) } else { self.window(site) }
    }

    fn matmul(&mut self, site: &Site<'_>) -> Result<Done> {
        let (a, b) = (&site.args[0], &site.args[1]);
        let (m, k) = (a.axes.len() - 2, a.axes.len() - 1);
        let (inner, n) = (b.axes.len() - 2, b.axes.len() - 1);
        if a.axes[k] != b.axes[inner] {
            return self.refuse("its operands are padded in different ways");
        }
        let batch = |x: &Done| Done { value: x.value, axes: x.axes[..x.axes.len() - 2].to_vec() };
        let mut axes = self.broadcast(&[&batch(a), &batch(b)])?;
        axes.extend([a.axes[m].clone(), b.axes[n].clone()]);
        // Both: a zero does not silence a NaN.
        let (mut x, mut y) = (a.value, b.value);
        if !a.axes[k].is_fixed() {
            let zero =
                |walk: &Self, x: &Done| walk.fill(walk.out.ty(x.value).dtype, Fill::Number(0));
            let (zero_a, zero_b) = (zero(self, a)?, zero(self, b)?);
            x = self.masked(a, &[k], zero_a)?;
            y = self.masked(b, &[inner], zero_b)?;
        }
        Ok(Done { value: self.op(Op::Matmul, Attrs::none(), &[x, y])?, axes })
    }

    fn window(&mut self, site: &Site<'_>) -> Result<Done> {
        // Where padding ends decides only how many results there are.
        let (before, ends): (usize, &[usize]) = match site.op {
            Op::MaxPool | Op::SumPool => (2, &[3]),
            Op::Conv => (1, &[2]),
            _ => (1, &[2, 5]),
        };
        debug_assert_eq!(site.op.spec().attrs[before].0, "before");
        self.same_attrs(site, ends)?;
        let x = &site.args[0];
        let spatial: Vec<usize> = (2..x.axes.len()).collect();
        if !x.axes[1].is_fixed() {
            return self.refuse("the number of its channels varies");
        }
        if site.args.iter().skip(1).any(|w| w.axes.iter().any(|axis| !axis.is_fixed())) {
            return self.refuse("its weights vary");
        }
        if spatial.iter().any(|&axis| !x.axes[axis].is_prefix()) {
            return self.refuse("a window over two axes at once");
        }
        let fill = if site.op == Op::MaxPool { Fill::Least } else { Fill::Number(0) };
        let value = match spatial.iter().all(|&axis| x.axes[axis].is_fixed()) {
            true => x.value,
            false => {
                let fill = self.fill(self.out.ty(x.value).dtype, fill)?;
                self.masked(x, &spatial, fill)?
            }
        };
        let mut args = vec![value];
        args.extend(site.args.iter().skip(1).map(|arg| arg.value));
        let value = self.op(site.op, site.attrs.clone(), &args)?;
        let mut axes = vec![x.axes[0].clone(), Axis::fixed(site.most[1])];
        axes.extend(self.axes(&site.n[2..], &site.most[2..])?);
        Ok(Done { value, axes })
    }
}
