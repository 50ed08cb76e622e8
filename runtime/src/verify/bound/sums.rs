//! Running errors of sums, products over axes, contractions and of the positions of extremes.

use eggine_ir::graph::eval::{Array, Rounding, eval_op};
use eggine_ir::{Attrs, Op, TensorType};

use super::{Bounded, Family, arithmetic_roundoff, f64_of, float_array, stored, take_floats};

/// Deviations of a sum of roundings that are allowed, over √3; see the parent module.
const C: f64 = 6.0;

/// `reduce_sum` and `sum_pool`.
pub(super) fn sum(
    op: Op,
    attrs: &Attrs,
    operand: &Bounded,
    array: &Array,
    ty: &TensorType,
    family: Family,
) -> Option<Vec<f64>> {
    if !array.dtype.is_float() {
        return integer(operand.error.is_none(), array);
    }
    let extents = &operand.array.extents;
    let n_terms: usize = match op {
        Op::SumPool => attrs.usizes(0).iter().product(),
        _ => attrs.usizes(0).iter().map(|&axis| extents[axis]).product(),
    };
    let sum = |terms: Vec<f64>| {
        let terms = float_array(extents, terms);
        take_floats(eval_op(op, attrs, &[&terms], &f64_of(ty), Rounding::None))
    };
    let terms = operand.floats();
    let magnitude = match family {
        Family::Normal => sum(terms.iter().map(|x| x * x).collect()),
        _ => sum(terms.iter().map(|x| x.abs()).collect()),
    };
    let carried = operand.error.clone().map(sum);
    Some(total(array, magnitude, carried, n_terms, family))
}

/// `matmul`, `conv` and `conv_transpose`.
pub(super) fn contraction(
    op: Op,
    attrs: &Attrs,
    a: &Bounded,
    b: &Bounded,
    array: &Array,
    ty: &TensorType,
    family: Family,
) -> Option<Vec<f64>> {
    if !array.dtype.is_float() {
        return integer(a.error.is_none() && b.error.is_none(), array);
    }
    let n_terms: usize = match op {
        Op::Matmul => a.array.extents.last().copied().unwrap_or(1),
        // w[M, C/groups, kernel…]
        Op::Conv => b.array.extents[1..].iter().product(),
        // w[C, M/groups, kernel…]: at most C/groups channels and each tap of the kernel meet.
        _ => {
            let taps: usize = b.array.extents[2..].iter().product();
            let groups = usize::try_from(attrs.int(4)).expect("not negative");
            taps * b.array.extents[0] / groups.max(1)
        }
    };
    let contract = |x: Vec<f64>, y: Vec<f64>| {
        let (x, y) = (float_array(&a.array.extents, x), float_array(&b.array.extents, y));
        take_floats(eval_op(op, attrs, &[&x, &y], &f64_of(ty), Rounding::None))
    };
    let each = |operand: &Bounded, f: fn(&f64) -> f64| -> Vec<f64> { operand.floats().iter().map(f).collect() };
    let magnitude = match family {
        Family::Normal => contract(each(a, |x| x * x), each(b, |y| y * y)),
        _ => contract(each(a, |x| x.abs()), each(b, |y| y.abs())),
    };
    let by_a = a.error.clone().map(|error| contract(error, each(b, |y| y.abs())));
    let by_b = b.error.clone().map(|error| contract(each(a, |x| x.abs()), error));
    let carried = match (by_a, by_b) {
        (Some(mut by_a), Some(by_b)) => {
            by_a.iter_mut().zip(&by_b).for_each(|(e, other)| *e += other);
            Some(by_a)
        }
        (by_a, by_b) => by_a.or(by_b),
    };
    Some(total(array, magnitude, carried, n_terms, family))
}

/// `c·u·√K·M` and what the terms carry. `magnitude` is `Σt²` for [`Family::Normal`], else `Σ|t|`.
fn total(array: &Array, magnitude: Vec<f64>, carried: Option<Vec<f64>>, n_terms: usize, family: Family) -> Vec<f64> {
    let factor = C * arithmetic_roundoff(array.dtype) * (n_terms as f64).sqrt();
    let vs = array.to_f64();
    let mut error = magnitude;
    for (i, e) in error.iter_mut().enumerate() {
        let partial_sums = if family == Family::Normal { (vs[i] * vs[i] + *e).sqrt() } else { *e };
        let carried = carried.as_ref().map_or(0.0, |carried| carried[i]);
        *e = match vs[i].is_finite() {
            // A sum of zeros has no rounding.
            true if partial_sums == 0.0 => carried,
            true => factor * partial_sums + carried + stored(array.dtype, vs[i]),
            // Infinite or NaN terms without an error decide it, in whatever order.
            false if carried == 0.0 => 0.0,
            false => f64::INFINITY,
        };
    }
    error
}

fn integer(exact: bool, array: &Array) -> Option<Vec<f64>> {
    if exact { None } else { Some(vec![f64::INFINITY; array.n_elems()]) }
}

/// `reduce_prod`: relative errors add up.
pub(super) fn product(attrs: &Attrs, operand: &Bounded, array: &Array, ty: &TensorType) -> Option<Vec<f64>> {
    if !array.dtype.is_float() {
        return integer(operand.error.is_none(), array);
    }
    let extents = &operand.array.extents;
    let n_terms: usize = attrs.usizes(0).iter().map(|&axis| extents[axis]).product();
    let u = arithmetic_roundoff(array.dtype);
    let vs = array.to_f64();
    let carried = operand.error.as_ref().map(|error| {
        let xs = operand.floats();
        let relative = xs.iter().zip(error).map(|(x, e)| match () {
            () if *e == 0.0 => 0.0,
            () if x.abs() <= *e => f64::INFINITY,
            () => e / (x.abs() - e),
        });
        let relative = float_array(extents, relative.collect());
        take_floats(eval_op(Op::ReduceSum, attrs, &[&relative], &f64_of(ty), Rounding::None))
    });
    let error = vs.iter().enumerate().map(|(i, v)| {
        let carried = carried.as_ref().map_or(0.0, |carried| carried[i]);
        if !v.is_finite() || carried == f64::INFINITY {
            return if carried == 0.0 { 0.0 } else { f64::INFINITY };
        }
        v.abs() * (2.0 * u * n_terms as f64 + carried.exp_m1()) + stored(array.dtype, *v)
    });
    Some(error.collect())
}

/// `argmax` and `argmin`: open where another element may be as extreme.
pub(super) fn arg(op: Op, attrs: &Attrs, operand: &Bounded, ty: &TensorType) -> Option<Vec<f64>> {
    let error = operand.error.as_ref()?;
    let sign = if op == Op::ArgMax { 1.0 } else { -1.0 };
    let extents = &operand.array.extents;
    let axis = usize::try_from(attrs.int(0)).expect("not negative");
    let (n_outer, n_axis): (usize, usize) = (extents[..axis].iter().product(), extents[axis]);
    let n_inner: usize = extents[axis + 1..].iter().product();
    let xs = operand.floats();
    let mut open = vec![0.0; ty.n_elems()];
    for outer in 0..n_outer {
        for inner in 0..n_inner {
            let at = |i: usize| (outer * n_axis + i) * n_inner + inner;
            // At least one element is not below this.
            let least = (0..n_axis).map(|i| sign * xs[at(i)] - error[at(i)]).fold(f64::NEG_INFINITY, f64::max);
            let may_be_first = |i: usize| {
                let (x, e) = (sign * xs[at(i)], error[at(i)]);
                x.is_nan() || x + e >= least || !e.is_finite()
            };
            let mut rivals = (0..n_axis).filter(|&i| may_be_first(i));
            let (first, second) = (rivals.next(), rivals.next());
            // Equal elements without errors are decided by position.
            let decided = second.is_none() || (0..n_axis).filter(|&i| may_be_first(i)).all(|i| error[at(i)] == 0.0);
            if first.is_some() && !decided {
                open[outer * n_inner + inner] = f64::INFINITY;
            }
        }
    }
    Some(open)
}
