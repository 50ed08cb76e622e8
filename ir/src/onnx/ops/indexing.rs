//! Operators whose positions come from an operand: all become `gather` at a computed index.

use crate::graph::Op;
use crate::onnx::builder::{Builder, axis};
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::error::OpError;
use crate::shape::row_major_strides;
use crate::{DType, Tensor, Value};

pub(super) fn gather(b: &mut Builder, c: &Call) -> Outcome {
    let (data, indices) = (c.x(0)?, c.x(1)?);
    let at = axis(c.int("axis", 0)?, b.rank(data))?;
    // One known index is a slice.
    let extent = b.extents(data)[at];
    let single = b.known(indices).filter(|it| it.n_elems() == 1).map(|it| it.to_i64()[0]);
    let index = single.map(|i| if i < 0 { i + extent as i64 } else { i });
    if let Some(index) = index.filter(|index| (0..extent as i64).contains(index)) {
        let row = b.narrow(data, at, index as usize, 1)?;
        let from = b.extents(data);
        let extents = [&from[..at], &b.extents(indices), &from[at + 1..]].concat();
        return one(b.reshape(row, &extents)?);
    }
    one(b.gather(data, indices, at)?)
}

/// `index < 0 ? index + extent : index`, as i64.
fn from_front(b: &mut Builder, index: Value, extent: usize) -> Result<Value, OpError> {
    let index = b.cast(index, DType::I64)?;
    let (negative, shifted) = (b.with(Op::Lt, index, 0.0)?, b.with(Op::Add, index, extent as f64)?);
    b.select(negative, shifted, index)
}

/// The sum of `coordinate * stride` over the axes of `extents`, where `special` replaces the coordinate
/// along its axis: a linear index for every element of a tensor of `extents`.
fn linear(
    b: &mut Builder,
    extents: &[usize],
    strides: &[usize],
    at: usize,
    special: Value,
) -> Result<Value, OpError> {
    let mut sum = b.with(Op::Mul, special, strides[at] as f64)?;
    for i in (0..extents.len()).filter(|&i| i != at && extents[i] > 1) {
        let mut ones = vec![1; extents.len()];
        ones[i] = extents[i];
        let index = b.iota(&ones, i, DType::I64)?;
        let term = b.with(Op::Mul, index, strides[i] as f64)?;
        sum = b.add(sum, term)?;
    }
    Ok(sum)
}

/// `out[i, j, k] = data[i, indices[i, j, k], k]` for axis 1: a gather from the flat operand.
pub(super) fn gather_elements(b: &mut Builder, c: &Call) -> Outcome {
    let (data, indices) = (c.x(0)?, c.x(1)?);
    let (from, to) = (b.extents(data), b.extents(indices));
    if from.len() != to.len() {
        return Err(OpError::Operand {
            index: 1,
            found: b.ty(indices).to_string(),
            expected: format!("rank {}", from.len()),
        });
    }
    let at = axis(c.int("axis", 0)?, from.len())?;
    let index = from_front(b, indices, from[at])?;
    let index = linear(b, &to, &row_major_strides(&from), at, index)?;
    let flat = b.reshape(data, &[from.iter().product()])?;
    one(b.gather(flat, index, 0)?)
}

/// The last axis of the indices holds coordinates of the leading axes of the data.
pub(super) fn gather_nd(b: &mut Builder, c: &Call) -> Outcome {
    let (data, indices) = (c.x(0)?, c.x(1)?);
    let (from, to) = (b.extents(data), b.extents(indices));
    let batch = usize::try_from(c.int("batch_dims", 0)?).unwrap_or(usize::MAX);
    let Some((&n_coords, lead)) = to.split_last() else {
        return Err(OpError::Operand {
            index: 1,
            found: b.ty(indices).to_string(),
            expected: "rank 1 or more".into(),
        });
    };
    if batch > lead.len() || batch + n_coords > from.len() || from[..batch] != to[..batch] {
        let expected = format!("coordinates into {} with {batch} batch axes", b.ty(data));
        return Err(OpError::Operand { index: 1, found: b.ty(indices).to_string(), expected });
    }
    let strides = row_major_strides(&from[..batch + n_coords]);
    // Batch coordinates are the index itself, the others come from the operand.
    let mut sum = b.constant(Tensor::i64(&[], &[0]));
    for i in (0..batch).filter(|&i| from[i] > 1) {
        let mut ones = vec![1; lead.len()];
        ones[i] = from[i];
        let index = b.iota(&ones, i, DType::I64)?;
        let term = b.with(Op::Mul, index, strides[i] as f64)?;
        sum = b.add(sum, term)?;
    }
    for i in 0..n_coords {
        let coordinate = b.narrow(indices, lead.len(), i, 1)?;
        let coordinate = b.reshape(coordinate, lead)?;
        let coordinate = from_front(b, coordinate, from[batch + i])?;
        let term = b.with(Op::Mul, coordinate, strides[batch + i] as f64)?;
        sum = b.add(sum, term)?;
    }
    let sum = b.expand(sum, lead)?;
    let rest = &from[batch + n_coords..];
    let flat = [&[from[..batch + n_coords].iter().product()][..], rest].concat();
    let rows = b.reshape(data, &flat)?;
    one(b.gather(rows, sum, 0)?)
}

/// Writes at positions known at import: a gather from the data and the updates side by side. `targets`
/// holds, for each element (or row) of the updates, the element (or row) of the data that it replaces.
fn scatter(
    b: &mut Builder,
    c: &Call,
    data: Value,
    updates: Value,
    targets: &[usize],
) -> Result<Value, OpError> {
    let reduction = c.word("reduction", "none")?;
    let n = b.extents(data)[0];
    if n > 1 << 26 {
        return Err(OpError::TooLarge { extents: vec![n as i64] });
    }
    let mut sorted = targets.to_vec();
    sorted.sort_unstable();
    let distinct = sorted.windows(2).all(|pair| pair[0] != pair[1]);
    let op = match reduction.as_str() {
        "none" => None,
        "add" => Some(Op::Add),
        "mul" => Some(Op::Mul),
        "max" => Some(Op::Max),
        "min" => Some(Op::Min),
        other => return c.form(format!("reduction `{other}`"), "none, add, mul, max and min"),
    };
    if op.is_some() && !distinct {
        return c.form("a reduction at repeated positions", "distinct positions");
    }
    // Of several writes to one position the last stays.
    let mut from: Vec<i64> = (0..n as i64).collect();
    for (i, &target) in targets.iter().enumerate() {
        from[target] = (n + i) as i64;
    }
    let updates = match op {
        None => updates,
        Some(op) => {
            let at: Vec<i64> = targets.iter().map(|&target| target as i64).collect();
            let at = b.ints(&at);
            let old = b.gather(data, at, 0)?;
            b.binary(op, old, updates)?
        }
    };
    let both = b.concat(&[data, updates], 0)?;
    let from = b.ints(&from);
    b.gather(both, from, 0)
}

/// Whether every position of `indices` (which run over `extent`) is inside.
fn inside(index: i64, extent: usize) -> Result<usize, OpError> {
    let wrong = OpError::Operand {
        index: 1,
        found: format!("index {index}"),
        expected: format!("less than {extent}"),
    };
    let at = if index < 0 { index + extent as i64 } else { index };
    usize::try_from(at).ok().filter(|&at| at < extent).ok_or(wrong)
}

pub(super) fn scatter_elements(b: &mut Builder, c: &Call) -> Outcome {
    let (data, indices, updates) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let (from, to) = (b.extents(data), b.extents(indices));
    if from.len() != to.len() || b.extents(updates) != to || from.is_empty() {
        let expected = format!("the rank of {} and the shape of the updates", b.ty(data));
        return Err(OpError::Operand { index: 1, found: b.ty(indices).to_string(), expected });
    }
    let at = axis(c.int("axis", 0)?, from.len())?;
    let known = b.known_ints(indices, "positions to scatter to")?;
    let (strides, steps) = (row_major_strides(&from), row_major_strides(&to));
    let mut targets = Vec::with_capacity(known.len());
    for (i, &index) in known.iter().enumerate() {
        let mut target = 0;
        for axis in 0..to.len() {
            let coordinate = i / steps[axis] % to[axis];
            let coordinate = if axis == at {
                inside(index, from[at])?
            } else {
                inside(coordinate as i64, from[axis])?
            };
            target += coordinate * strides[axis];
        }
        targets.push(target);
    }
    let flat = b.reshape(data, &[from.iter().product()])?;
    let flat_updates = b.reshape(updates, &[known.len()])?;
    let written = scatter(b, c, flat, flat_updates, &targets)?;
    one(b.reshape(written, &from)?)
}

pub(super) fn scatter_nd(b: &mut Builder, c: &Call) -> Outcome {
    let (data, indices, updates) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let (from, to) = (b.extents(data), b.extents(indices));
    let wrong = || OpError::Operand {
        index: 1,
        found: b.ty(indices).to_string(),
        expected: format!("coordinates into {} for {}", b.ty(data), b.ty(updates)),
    };
    let (&n_coords, lead) = to.split_last().ok_or_else(wrong)?;
    if n_coords > from.len() || b.extents(updates) != [lead, &from[n_coords..]].concat() {
        return Err(wrong());
    }
    let known = b.known_ints(indices, "positions to scatter to")?;
    let strides = row_major_strides(&from[..n_coords]);
    let n_rows: usize = lead.iter().product();
    let mut targets = Vec::with_capacity(n_rows);
    for row in 0..n_rows {
        let mut target = 0;
        for i in 0..n_coords {
            target += inside(known[row * n_coords + i], from[i])? * strides[i];
        }
        targets.push(target);
    }
    let rest = &from[n_coords..];
    let rows = b.reshape(data, &[&[from[..n_coords].iter().product()], rest].concat())?;
    let new_rows = b.reshape(updates, &[&[n_rows], rest].concat())?;
    let written = scatter(b, c, rows, new_rows, &targets)?;
    one(b.reshape(written, &from)?)
}

/// `index == position ? on : off`; a negative index counts from the end.
pub(super) fn one_hot(b: &mut Builder, c: &Call) -> Outcome {
    let (indices, values) = (c.x(0)?, c.x(2)?);
    let depth =
        *b.known_ints(c.x(1)?, "`depth`")?.first().ok_or(OpError::MissingInput { index: 1 })?;
    let rank = b.rank(indices) + 1;
    let at = axis(c.int("axis", -1)?, rank)?;
    let Some(depth) = usize::try_from(depth).ok().filter(|&n| n < 1 << 31) else {
        return Err(OpError::TooLarge { extents: vec![depth] });
    };
    if b.extents(values) != [2] {
        return Err(OpError::Operand {
            index: 2,
            found: b.ty(values).to_string(),
            expected: "two values".into(),
        });
    }
    let index = from_front(b, indices, depth)?;
    let index = b.unsqueeze(index, at)?;
    let mut ones = vec![1; rank];
    ones[at] = depth;
    let position = b.iota(&ones, at, DType::I64)?;
    let hit = b.binary(Op::Eq, index, position)?;
    let (off, on) = (b.narrow(values, 0, 0, 1)?, b.narrow(values, 0, 1, 1)?);
    let (off, on) = (b.reshape(off, &[])?, b.reshape(on, &[])?);
    one(b.select(hit, on, off)?)
}

/// Keeps the upper (or lower) triangle: `row + k <= column` (or `>=`).
pub(super) fn trilu(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let rank = b.rank(x);
    if rank < 2 {
        return Err(OpError::Operand {
            index: 0,
            found: b.ty(x).to_string(),
            expected: "rank 2 or more".into(),
        });
    }
    let extents = b.extents(x);
    let mut row = b.iota(&[extents[rank - 2], 1], 0, DType::I64)?;
    let column = b.iota(&[1, extents[rank - 1]], 1, DType::I64)?;
    if let Some(k) = c.opt(1)? {
        let k = b.reshape(k, &[])?;
        row = b.add(row, k)?;
    }
    let keep = match c.int("upper", 1)? != 0 {
        true => b.binary(Op::Le, row, column)?,
        false => b.binary(Op::Le, column, row)?,
    };
    let zero = b.scalar_like(x, 0.0);
    one(b.select(keep, x, zero)?)
}

/// With a known condition: a gather of the places that are true.
pub(super) fn compress(b: &mut Builder, c: &Call) -> Outcome {
    let (mut x, condition) = (c.x(0)?, c.x(1)?);
    let condition = b.known_ints(condition, "which elements to keep")?;
    let at = match c.int_opt("axis")? {
        Some(at) => axis(at, b.rank(x))?,
        None => {
            let n = b.ty(x).n_elems();
            x = b.reshape(x, &[n])?;
            0
        }
    };
    let extent = b.extents(x)[at];
    let kept: Vec<i64> =
        (0..extent.min(condition.len())).filter(|&i| condition[i] != 0).map(|i| i as i64).collect();
    let kept = b.ints(&kept);
    one(b.gather(x, kept, at)?)
}
