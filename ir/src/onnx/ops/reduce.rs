//! Operators that fold whole axes, and what is built from them: softmax, pools over everything, scans.

use crate::graph::{Attr, Op};
use crate::onnx::builder::{Builder, axes, axis, ints};
use crate::onnx::call::{Call, Item, Outcome, one};
use crate::onnx::error::OpError;
use crate::{DType, Value};

use super::movement::list;

/// The axes of a reduction (an attribute in old opsets, an operand in new ones) and whether they stay.
fn what(b: &Builder, c: &Call) -> Result<(Value, Vec<usize>, bool), OpError> {
    let x = c.x(0)?;
    let rank = b.rank(x);
    let on = match list(b, c, "axes", 1)? {
        Some(on) if !on.is_empty() => axes(&on, rank)?,
        _ if c.int("noop_with_empty_axes", 0)? != 0 => vec![],
        _ => (0..rank).collect(),
    };
    Ok((x, on, c.int("keepdims", 1)? != 0))
}

pub(super) fn sum(b: &mut Builder, c: &Call) -> Outcome {
    let (x, on, keep) = what(b, c)?;
    one(b.reduce(Op::ReduceSum, x, &on, keep)?)
}

pub(super) fn mean(b: &mut Builder, c: &Call) -> Outcome {
    let (x, on, keep) = what(b, c)?;
    one(b.mean(x, &on, keep)?)
}

/// Booleans (opset 20) are reduced as bytes.
fn extreme(b: &mut Builder, c: &Call, op: Op) -> Outcome {
    let (mut x, on, keep) = what(b, c)?;
    let dtype = b.dtype(x);
    if dtype == DType::Bool {
        x = b.cast(x, DType::U8)?;
    }
    let reduced = b.reduce(op, x, &on, keep)?;
    one(b.cast(reduced, dtype)?)
}

pub(super) fn max(b: &mut Builder, c: &Call) -> Outcome {
    extreme(b, c, Op::ReduceMax)
}

pub(super) fn min(b: &mut Builder, c: &Call) -> Outcome {
    extreme(b, c, Op::ReduceMin)
}

pub(super) fn prod(b: &mut Builder, c: &Call) -> Outcome {
    let (x, on, keep) = what(b, c)?;
    one(b.reduce(Op::ReduceProd, x, &on, keep)?)
}

pub(super) fn l1(b: &mut Builder, c: &Call) -> Outcome {
    let (x, on, keep) = what(b, c)?;
    let size = b.unary(Op::Abs, x)?;
    one(b.reduce(Op::ReduceSum, size, &on, keep)?)
}

fn squares(b: &mut Builder, c: &Call) -> Result<Value, OpError> {
    let (x, on, keep) = what(b, c)?;
    let square = b.mul(x, x)?;
    b.reduce(Op::ReduceSum, square, &on, keep)
}

pub(super) fn sum_square(b: &mut Builder, c: &Call) -> Outcome {
    one(squares(b, c)?)
}

pub(super) fn l2(b: &mut Builder, c: &Call) -> Outcome {
    let sum = squares(b, c)?;
    one(b.unary(Op::Sqrt, sum)?)
}

pub(super) fn log_sum(b: &mut Builder, c: &Call) -> Outcome {
    let (x, on, keep) = what(b, c)?;
    let sum = b.reduce(Op::ReduceSum, x, &on, keep)?;
    one(b.unary(Op::Log, sum)?)
}

/// `log Σ exp(x - m) + m` with `m` the maximum, or 0 where that is infinite: -∞ - -∞ is no number.
pub(super) fn log_sum_exp(b: &mut Builder, c: &Call) -> Outcome {
    let (x, on, keep) = what(b, c)?;
    let max = b.reduce(Op::ReduceMax, x, &on, true)?;
    let size = b.unary(Op::Abs, max)?;
    let (infinite, zero) = (b.with(Op::Eq, size, f64::INFINITY)?, b.scalar_like(x, 0.0));
    let max = b.select(infinite, zero, max)?;
    let shifted = b.sub(x, max)?;
    let exp = b.unary(Op::Exp, shifted)?;
    let sum = b.reduce(Op::ReduceSum, exp, &on, true)?;
    let log = b.unary(Op::Log, sum)?;
    let result = b.add(log, max)?;
    one(if keep { result } else { b.drop_axes(result, &on)? })
}

fn arg(b: &mut Builder, c: &Call, op: Op) -> Outcome {
    let x = c.x(0)?;
    let at = axis(c.int("axis", 0)?, b.rank(x))?;
    let last = i64::from(c.int("select_last_index", 0)? != 0);
    let found = b.apply(op, vec![Attr::Int(at as i64), Attr::Int(last)], &[x])?;
    one(if c.int("keepdims", 1)? != 0 { found } else { b.squeeze(found, at)? })
}

pub(super) fn arg_max(b: &mut Builder, c: &Call) -> Outcome {
    arg(b, c, Op::ArgMax)
}

pub(super) fn arg_min(b: &mut Builder, c: &Call) -> Outcome {
    arg(b, c, Op::ArgMin)
}

/// No longer axis is sorted by comparing all pairs.
const MAX_RANKED: usize = 1024;

/// The first `k` of a short axis: the place of each element is the number of those before it.
fn ranked(b: &mut Builder, c: &Call, x: Value, at: usize, k: usize) -> Outcome {
    let largest = c.int("largest", 1)? != 0;
    let (extents, dtype) = (b.extents(x), b.dtype(x));
    let n = extents[at];
    let rank = extents.len();
    if k == 0 {
        let none = b.narrow(x, at, 0, 0)?;
        let indices = b.cast(none, DType::I64)?;
        return Ok(vec![none.into(), indices.into()]);
    }
    // The axis twice: as it is, and as a new last one for the other of a pair.
    let here = b.unsqueeze(x, rank)?;
    let mut perm: Vec<usize> = (0..=rank).collect();
    perm.swap(at, rank);
    let there = b.transpose(here, &perm)?;
    let (ahead, mut equal) = match largest {
        true => (b.binary(Op::Lt, here, there)?, b.binary(Op::Eq, here, there)?),
        false => (b.binary(Op::Lt, there, here)?, b.binary(Op::Eq, here, there)?),
    };
    let mut ones = vec![1; rank + 1];
    ones[at] = n;
    let i = b.iota(&ones, at, DType::I64)?;
    ones.swap(at, rank);
    let j = b.iota(&ones, rank, DType::I64)?;
    let earlier = b.binary(Op::Lt, j, i)?;
    equal = b.binary(Op::And, equal, earlier)?;
    let before = b.binary(Op::Or, ahead, equal)?;
    let before = b.cast(before, DType::I64)?;
    let place = b.reduce(Op::ReduceSum, before, &[rank], false)?;
    // The element whose place is `r`, for each `r`.
    let place = b.unsqueeze(place, rank)?;
    let mut last = vec![1; rank + 1];
    last[rank] = k;
    let wanted = b.iota(&last, rank, DType::I64)?;
    let hit = b.binary(Op::Eq, place, wanted)?;
    let zero = b.scalar(DType::I64, 0.0);
    let found = b.select(hit, i, zero)?;
    let indices = b.reduce(Op::ReduceSum, found, &[at], true)?;
    let zero = b.scalar(dtype, 0.0);
    let chosen = b.select(hit, here, zero)?;
    let values = b.reduce(Op::ReduceSum, chosen, &[at], true)?;
    let mut back = vec![Item::Poison; 0];
    for found in [values, indices] {
        let moved = b.transpose(found, &perm)?;
        back.push(b.squeeze(moved, rank)?.into());
    }
    Ok(back)
}

/// The first few of an axis: each is found, then taken out of the next search.
pub(super) fn top_k(b: &mut Builder, c: &Call) -> Outcome {
    /// More rounds than this are better sorted, and there is no sort.
    const MAX_ROUNDS: i64 = 32;
    let x = c.x(0)?;
    let at = axis(c.int("axis", -1)?, b.rank(x))?;
    // Before opset 10 an attribute.
    let k = match c.int_opt("k")?.filter(|_| c.opset < 10) {
        Some(k) => k,
        None => *b.known_ints(c.x(1)?, "`K`")?.first().ok_or(OpError::MissingInput { index: 1 })?,
    };
    let extents = b.extents(x);
    let few = (1..=MAX_ROUNDS).contains(&k) && b.dtype(x).is_float();
    if !few && (0..=extents[at] as i64).contains(&k) && extents[at] <= MAX_RANKED {
        return ranked(b, c, x, at, k as usize);
    }
    if !(1..=MAX_ROUNDS).contains(&k) || k as usize > extents[at] || !b.dtype(x).is_float() {
        return c.form(
            format!("the first {k} of {}", b.ty(x)),
            "the first 1 to 32 of an axis of floats",
        );
    }
    let (op, arg, gone) = match c.int("largest", 1)? != 0 {
        true => (Op::ReduceMax, Op::ArgMax, f64::NEG_INFINITY),
        false => (Op::ReduceMin, Op::ArgMin, f64::INFINITY),
    };
    let gone = b.scalar_like(x, gone);
    let mut position = vec![1; extents.len()];
    position[at] = extents[at];
    let position = b.iota(&position, at, DType::I64)?;
    let (mut rest, mut values, mut indices) = (x, vec![], vec![]);
    for round in 0..k {
        values.push(b.reduce(op, rest, &[at], true)?);
        let index = b.apply(arg, vec![Attr::Int(at as i64), Attr::Int(0)], &[rest])?;
        indices.push(index);
        if round + 1 < k {
            let hit = b.binary(Op::Eq, position, index)?;
            rest = b.select(hit, gone, rest)?;
        }
    }
    Ok(vec![b.concat(&values, at)?.into(), b.concat(&indices, at)?.into()])
}

/// `(x - max, its exp, the sum of that)` over one axis.
fn shifted(b: &mut Builder, x: Value, at: usize) -> Result<(Value, Value, Value), OpError> {
    let max = b.reduce(Op::ReduceMax, x, &[at], true)?;
    let shifted = b.sub(x, max)?;
    let exp = b.unary(Op::Exp, shifted)?;
    let sum = b.reduce(Op::ReduceSum, exp, &[at], true)?;
    Ok((shifted, exp, sum))
}

/// Softmax over one axis.
pub(super) fn softmax_at(b: &mut Builder, x: Value, at: usize) -> Result<Value, OpError> {
    let (_, exp, sum) = shifted(b, x, at)?;
    b.div(exp, sum)
}

/// Before opset 13 the axes from `axis` (1 by default) on are one; since then `axis` (-1 by default)
/// is the only one.
fn along(
    b: &mut Builder,
    c: &Call,
    f: fn(&mut Builder, Value, usize) -> Result<Value, OpError>,
) -> Outcome {
    let x = c.x(0)?;
    let extents = b.extents(x);
    let rank = extents.len();
    if c.opset >= 13 {
        let at = axis(c.int("axis", -1)?, rank)?;
        return one(f(b, x, at)?);
    }
    let at = match c.int("axis", 1)? {
        at if at == rank as i64 => rank,
        at => axis(at, rank)?,
    };
    if at + 1 == rank {
        return one(f(b, x, at)?);
    }
    let (outer, inner) = extents.split_at(at);
    let flat = b.reshape(x, &[outer.iter().product(), inner.iter().product()])?;
    let result = f(b, flat, 1)?;
    one(b.reshape(result, &extents)?)
}

pub(super) fn softmax(b: &mut Builder, c: &Call) -> Outcome {
    along(b, c, softmax_at)
}

pub(super) fn log_softmax(b: &mut Builder, c: &Call) -> Outcome {
    along(b, c, log_softmax_at)
}

/// The logarithm of a softmax over one axis.
pub(super) fn log_softmax_at(b: &mut Builder, x: Value, at: usize) -> Result<Value, OpError> {
    let rank = b.rank(x);
    if at >= rank {
        return Err(OpError::Axis { axis: at as i64, rank });
    }
    let (shifted, _, sum) = shifted(b, x, at)?;
    let log = b.unary(Op::Log, sum)?;
    b.sub(shifted, log)
}

/// 1 at the first maximum, 0 elsewhere.
pub(super) fn hardmax(b: &mut Builder, c: &Call) -> Outcome {
    along(b, c, |b, x, at| {
        let best = b.apply(Op::ArgMax, vec![Attr::Int(at as i64), Attr::Int(0)], &[x])?;
        let mut extents = vec![1; b.rank(x)];
        extents[at] = b.extents(x)[at];
        let position = b.iota(&extents, at, DType::I64)?;
        let hit = b.binary(Op::Eq, position, best)?;
        let dtype = b.dtype(x);
        b.cast(hit, dtype)
    })
}

/// Sums over a growing window: a sum pool whose window reaches back to the start. Padding is 0, so no
/// element that is not in the sum touches it (a product with a triangular matrix would spread NaN).
pub(super) fn cum_sum(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let at = *b.known_ints(c.x(1)?, "`axis`")?.first().ok_or(OpError::MissingInput { index: 1 })?;
    let at = axis(at, b.rank(x))?;
    one(running_sum(b, x, at, c.int("exclusive", 0)? != 0, c.int("reverse", 0)? != 0)?)
}

/// See [`cum_sum`].
pub(super) fn running_sum(
    b: &mut Builder,
    x: Value,
    at: usize,
    exclusive: bool,
    reverse: bool,
) -> Result<Value, OpError> {
    let extents = b.extents(x);
    let n = extents[at];
    if b.ty(x).n_elems() == 0 {
        return Ok(x);
    }
    let mut y = if reverse { b.flip(x, at)? } else { x };
    if exclusive {
        // What precedes: shifted by one, with a 0 in front.
        y = b.narrow(y, at, 0, n - 1)?;
        let mut before = vec![0; extents.len()];
        before[at] = 1;
        y = b.pad(y, &before, &vec![0; extents.len()], "constant", 0.0)?;
    }
    let (outer, inner) = (extents[..at].iter().product(), extents[at + 1..].iter().product());
    y = b.reshape(y, &[outer, 1, n, inner])?;
    let attrs = vec![ints(&[n, 1]), ints(&[1, 1]), ints(&[n - 1, 0]), ints(&[0, 0]), ints(&[1, 1])];
    y = b.apply(Op::SumPool, attrs, &[y])?;
    y = b.reshape(y, &extents)?;
    if reverse { b.flip(y, at) } else { Ok(y) }
}

/// Products of what precedes, by doubling: after step `k` each element covers `2^k` of them.
pub(super) fn cum_prod(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let at = *b.known_ints(c.x(1)?, "`axis`")?.first().ok_or(OpError::MissingInput { index: 1 })?;
    let at = axis(at, b.rank(x))?;
    let (exclusive, reverse) = (c.int("exclusive", 0)? != 0, c.int("reverse", 0)? != 0);
    let extents = b.extents(x);
    let n = extents[at];
    let mut y = if reverse { b.flip(x, at)? } else { x };
    // Shifted by some places, with ones in front.
    let later = |b: &mut Builder, y: Value, by: usize| {
        let kept = b.narrow(y, at, 0, n.saturating_sub(by))?;
        let mut before = vec![0; extents.len()];
        before[at] = by.min(n);
        b.pad(kept, &before, &vec![0; extents.len()], "constant", 1.0)
    };
    if exclusive {
        y = later(b, y, 1)?;
    }
    let mut by = 1;
    while by < n {
        let shifted = later(b, y, by)?;
        y = b.mul(y, shifted)?;
        by *= 2;
    }
    one(if reverse { b.flip(y, at)? } else { y })
}

fn spatial(b: &Builder, x: Value) -> Result<Vec<usize>, OpError> {
    match b.rank(x) {
        0..=2 => Err(OpError::Operand {
            index: 0,
            found: b.ty(x).to_string(),
            expected: "rank 3 or more".into(),
        }),
        rank => Ok((2..rank).collect()),
    }
}

pub(super) fn global_average_pool(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let on = spatial(b, x)?;
    one(b.mean(x, &on, true)?)
}

pub(super) fn global_max_pool(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let on = spatial(b, x)?;
    one(b.reduce(Op::ReduceMax, x, &on, true)?)
}

pub(super) fn global_lp_pool(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let on = spatial(b, x)?;
    match super::window::norm(c)? {
        1 => {
            let size = b.unary(Op::Abs, x)?;
            one(b.reduce(Op::ReduceSum, size, &on, true)?)
        }
        2 => {
            let square = b.mul(x, x)?;
            let sum = b.reduce(Op::ReduceSum, square, &on, true)?;
            one(b.unary(Op::Sqrt, sum)?)
        }
        p if p > 0 => {
            let size = b.unary(Op::Abs, x)?;
            let power = b.with(Op::Pow, size, p as f64)?;
            let sum = b.reduce(Op::ReduceSum, power, &on, true)?;
            one(b.with(Op::Pow, sum, 1.0 / p as f64)?)
        }
        p => c.form(format!("norm {p}"), "positive norms"),
    }
}
