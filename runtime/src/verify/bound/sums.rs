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
    let squares = |data: &[f64]| -> Vec<f64> { data.iter().map(|x| x * x).collect() };
    let a_squares = row_sums(op, attrs, &a.array, &b.array, array, squares(&a.floats()));
    let b_squares = column_sums(op, attrs, &b.array, squares(&b.floats()));
    // By Cauchy and Schwarz, Σ|x·y| ≤ √(Σx² · Σy²), each side of which is summed once per row and column.
    let bound = |rows: &Array, columns: &Array| -> Vec<f64> {
        let mut products = outer(op, attrs, rows, columns, array);
        products.iter_mut().for_each(|product| *product = product.sqrt());
        products
    };
    let magnitude = match family {
        // Terms in random order: Σ(x·y)² is near the product of the mean squares.
        Family::Normal => {
            let products = outer(op, attrs, &a_squares, &b_squares, array);
            products.into_iter().map(|product| product / n_terms.max(1) as f64).collect()
        }
        _ => bound(&a_squares, &b_squares),
    };
    let by_a = a.error.as_deref().map(|error| {
        bound(&row_sums(op, attrs, &a.array, &b.array, array, squares(error)), &b_squares)
    });
    let by_b = b
        .error
        .as_deref()
        .map(|error| bound(&a_squares, &column_sums(op, attrs, &b.array, squares(error))));
    let carried = match (by_a, by_b) {
        (Some(mut by_a), Some(by_b)) => {
            by_a.iter_mut().zip(&by_b).for_each(|(e, other)| *e += other);
            Some(by_a)
        }
        (by_a, by_b) => by_a.or(by_b),
    };
    Some(total(array, magnitude, carried, n_terms, family))
}

/// Sums of `data`, which belongs to the left operand, over the terms of each row of the result: `[…,M,1]` of a
/// matmul, `[N,groups,spatial…]` of a convolution.
fn row_sums(op: Op, attrs: &Attrs, a: &Array, b: &Array, result: &Array, data: Vec<f64>) -> Array {
    let data = float_array(&a.extents, data);
    let ones = |extents: &[usize]| float_array(extents, vec![1.0; extents.iter().product()]);
    let (filter, extents) = match op {
        Op::Matmul => {
            let (k, outer) = a.extents.split_last().expect("of rank 2 at least");
            (ones(&[*k, 1]), [outer, &[1]].concat())
        }
        _ => {
            let n_groups = usize::try_from(attrs.int(4)).expect("not negative");
            let channels =
                if op == Op::Conv { [n_groups, b.extents[1]] } else { [b.extents[0], 1] };
            let filter = ones(&[&channels, &b.extents[2..]].concat());
            (filter, [&[result.extents[0], n_groups], &result.extents[2..]].concat())
        }
    };
    let ty = TensorType::fixed(eggine_ir::DType::F64, &extents);
    eval_op(op, attrs, &[&data, &filter], &ty, Rounding::None)
}

/// Sums of `data`, which belongs to the right operand, over the terms of each column of the result: `[…,1,N]` of
/// a matmul, `[M]` of a convolution (all taps, though some may fall on padding).
fn column_sums(op: Op, attrs: &Attrs, b: &Array, data: Vec<f64>) -> Array {
    match op {
        Op::Matmul => {
            let [outer @ .., k, n] = &b.extents[..] else { unreachable!("of rank 2 at least") };
            let ones = float_array(&[1, *k], vec![1.0; *k]);
            let ty = TensorType::fixed(eggine_ir::DType::F64, &[outer, &[1, *n]].concat());
            eval_op(op, attrs, &[&ones, &float_array(&b.extents, data)], &ty, Rounding::None)
        }
        Op::Conv => {
            let n_taps: usize = b.extents[1..].iter().product();
            float_array(
                &[b.extents[0]],
                data.chunks(n_taps.max(1)).map(|taps| taps.iter().sum()).collect(),
            )
        }
        // w[C, M/groups, kernel…]: channel `m` of a group sums over that group's C/groups input channels.
        _ => {
            let n_groups = usize::try_from(attrs.int(4)).expect("not negative");
            let (n_channels, n_outputs) = (b.extents[0], b.extents[1]);
            let n_taps: usize = b.extents[2..].iter().product();
            let mut sums = vec![0.0; n_groups * n_outputs];
            for (i, taps) in data.chunks(n_taps.max(1)).enumerate() {
                let (channel, output) = (i / n_outputs, i % n_outputs);
                sums[channel * n_groups / n_channels * n_outputs + output] +=
                    taps.iter().sum::<f64>();
            }
            float_array(&[n_groups * n_outputs], sums)
        }
    }
}

/// The product of what belongs to the row and to the column of each element of the result.
fn outer(op: Op, attrs: &Attrs, rows: &Array, columns: &Array, result: &Array) -> Vec<f64> {
    let ty = TensorType::fixed(eggine_ir::DType::F64, &result.extents);
    if op == Op::Matmul {
        return take_floats(eval_op(
            Op::Mul,
            &Attrs::none(),
            &[rows, columns],
            &ty,
            Rounding::None,
        ));
    }
    let n_groups = usize::try_from(attrs.int(4)).expect("not negative");
    let n_outputs = result.extents[1];
    let n_spatial: usize = result.extents[2..].iter().product();
    let (rows, columns) = (rows.to_f64(), columns.to_f64());
    let mut products = Vec::with_capacity(result.n_elems());
    for n in 0..result.extents[0] {
        for (m, column) in columns.iter().enumerate() {
            let group = n * n_groups + m * n_groups / n_outputs;
            products.extend(rows[group * n_spatial..][..n_spatial].iter().map(|row| row * column));
        }
    }
    products
}

/// `c·u·√K·M` and what the terms carry. `magnitude` is `Σt²` for [`Family::Normal`], else `Σ|t|` (or more).
fn total(
    array: &Array,
    magnitude: Vec<f64>,
    carried: Option<Vec<f64>>,
    n_terms: usize,
    family: Family,
) -> Vec<f64> {
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
pub(super) fn product(
    attrs: &Attrs,
    operand: &Bounded,
    array: &Array,
    ty: &TensorType,
) -> Option<Vec<f64>> {
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
            let least = (0..n_axis)
                .map(|i| sign * xs[at(i)] - error[at(i)])
                .fold(f64::NEG_INFINITY, f64::max);
            let may_be_first = |i: usize| {
                let (x, e) = (sign * xs[at(i)], error[at(i)]);
                x.is_nan() || x + e >= least || !e.is_finite()
            };
            let mut rivals = (0..n_axis).filter(|&i| may_be_first(i));
            let (first, second) = (rivals.next(), rivals.next());
            // Equal elements without errors are decided by position.
            let decided = second.is_none()
                || (0..n_axis).filter(|&i| may_be_first(i)).all(|i| error[at(i)] == 0.0);
            if first.is_some() && !decided {
                open[outer * n_inner + inner] = f64::INFINITY;
            }
        }
    }
    Some(open)
}
