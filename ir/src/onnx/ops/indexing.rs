//! Operators whose positions come from an operand: all become `gather` at a computed index.

use std::collections::BTreeMap;

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

/// More updates of one position are not unrolled.
const MAX_ROUNDS: usize = 256;

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
        // One round for the first update of each position, one for the second, and so on.
        let mut rounds: Vec<Vec<usize>> = Vec::new();
        let mut n_seen = std::collections::BTreeMap::new();
        for (i, &target) in targets.iter().enumerate() {
            let round = n_seen.entry(target).or_insert(0usize);
            if rounds.len() == *round {
                rounds.push(Vec::new());
            }
            rounds[*round].push(i);
            *round += 1;
        }
        if rounds.len() > MAX_ROUNDS {
            return c.form(
                format!("a reduction of {} updates at one position", rounds.len()),
                "at most 256",
            );
        }
        let mut data = data;
        for round in rounds {
            let rows: Vec<i64> = round.iter().map(|&i| i as i64).collect();
            let rows = b.ints(&rows);
            let some = b.gather(updates, rows, 0)?;
            let targets: Vec<usize> = round.iter().map(|&i| targets[i]).collect();
            data = scatter(b, c, data, some, &targets)?;
        }
        return Ok(data);
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

/// Rows of a cache along its sequence, from each batch's own position on.
pub(super) fn tensor_scatter(b: &mut Builder, c: &Call) -> Outcome {
    let (cache, update) = (c.x(0)?, c.x(1)?);
    let (to, from) = (b.extents(cache), b.extents(update));
    let rank = to.len();
    let at = axis(c.int("axis", -2)?, rank)?;
    let fits = from.len() == rank && at > 0 && (0..rank).all(|i| i == at || from[i] == to[i]);
    if !fits || from[at] > to[at] || from[at] == 0 {
        let expected = format!("rows of {} along axis {at}", b.ty(cache));
        return Err(OpError::Operand { index: 1, found: b.ty(update).to_string(), expected });
    }
    let mut ones = vec![1; rank];
    ones[at] = to[at];
    let mut place = b.iota(&ones, at, DType::I64)?;
    if let Some(starts) = c.opt(2)? {
        let starts = b.cast(starts, DType::I64)?;
        let mut column = vec![1; rank];
        column[0] = to[0];
        let starts = b.reshape(starts, &column)?;
        place = b.sub(place, starts)?;
    }
    match c.word("mode", "linear")?.as_str() {
        "linear" => (),
        "circular" => place = b.with(Op::Mod, place, to[at] as f64)?,
        other => return c.form(format!("mode `{other}`"), "linear and circular"),
    }
    let limit = b.constant(Tensor::i64(&[], &[from[at] as i64]));
    let zero = b.constant(Tensor::i64(&[], &[0]));
    let (from_start, to_end) = (b.binary(Op::Le, zero, place)?, b.binary(Op::Lt, place, limit)?);
    let written = b.binary(Op::And, from_start, to_end)?;
    let row = b.select(written, place, zero)?;
    let index = linear(b, &to, &row_major_strides(&from), at, row)?;
    let flat = b.reshape(update, &[from.iter().product()])?;
    let value = b.gather(flat, index, 0)?;
    one(b.select(written, value, cache)?)
}

/// Counts of n-grams of integers: for each of the pool, at how many places it is.
pub(super) fn tf_idf(b: &mut Builder, c: &Call) -> Outcome {
    /// Comparisons of a position with an element of an n-gram.
    const MAX_TESTS: usize = 1 << 14;
    let x = c.x(0)?;
    let (rows, width) = match b.extents(x)[..] {
        [width] => (None, width),
        [rows, width] => (Some(rows), width),
        _ => {
            let expected = "rank 1 or 2".into();
            return Err(OpError::Operand { index: 0, found: b.ty(x).to_string(), expected });
        }
    };
    let Some(pool) = c.ints("pool_int64s")? else {
        return c.form("a pool of strings", "a pool of integers");
    };
    let list = |name: &'static str| c.ints(name)?.ok_or(OpError::MissingAttribute { name });
    let (starts, places) = (list("ngram_counts")?, list("ngram_indexes")?);
    let size = |name: &'static str| -> Result<usize, OpError> {
        let found = c.int_opt(name)?.ok_or(OpError::MissingAttribute { name })?;
        Ok(usize::try_from(found).unwrap_or(0).min(1 << 16))
    };
    let (least, most, skips) =
        (size("min_gram_length")?, size("max_gram_length")?, size("max_skip_count")?);
    let mode = c.word("mode", "TF")?;
    let weights = c.floats("weights")?;
    let wrong = || OpError::Attribute {
        name: "pool_int64s".into(),
        found: "a pool that does not fit".into(),
        expected: "one index and weight per n-gram".into(),
    };
    let flat = b.reshape(x, &[rows.unwrap_or(1), width])?;
    let n_out = places.iter().copied().max().unwrap_or(-1) + 1;
    let n_out = usize::try_from(n_out).ok().filter(|&n| n < 1 << 24).ok_or_else(wrong)?;
    let mut columns: BTreeMap<usize, Value> = BTreeMap::new();
    let (mut gram, mut n_tests) = (0, 0);
    for length in 1..=starts.len() {
        let bound =
            |i: usize| starts.get(i).map_or(pool.len(), |&at| usize::try_from(at).unwrap_or(0));
        let some = pool.get(bound(length - 1)..bound(length)).ok_or_else(wrong)?;
        for ids in some.chunks_exact(length) {
            let place =
                places.get(gram).and_then(|&at| usize::try_from(at).ok()).ok_or_else(wrong)?;
            let weight =
                weights.as_ref().map_or(Ok(1.0), |all| all.get(gram).copied().ok_or_else(wrong))?;
            gram += 1;
            if length < least || length > most {
                continue;
            }
            let mut count: Option<Value> = None;
            // A single element has no gaps.
            for gap in 1..=(if length == 1 { 1 } else { skips + 1 }) {
                let Some(n) = width.checked_sub((length - 1) * gap).filter(|&n| n > 0) else {
                    break;
                };
                n_tests += length;
                if n_tests > MAX_TESTS {
                    return c.form(format!("a pool of {} numbers", pool.len()), "a smaller one");
                }
                let mut all: Option<Value> = None;
                for (i, &id) in ids.iter().enumerate() {
                    let part = b.narrow(flat, 1, i * gap, n)?;
                    let id = b.constant(Tensor::from_i64(b.dtype(x), &[], &[id]));
                    let equal = b.binary(Op::Eq, part, id)?;
                    all = Some(match all {
                        Some(all) => b.binary(Op::And, all, equal)?,
                        None => equal,
                    });
                }
                let found = b.cast(all.expect("an n-gram has elements"), DType::F32)?;
                let found = b.reduce(Op::ReduceSum, found, &[1], true)?;
                count = Some(match count {
                    Some(count) => b.add(count, found)?,
                    None => found,
                });
            }
            let Some(mut count) = count else { continue };
            if mode == "IDF" {
                count = b.with(Op::Min, count, 1.0)?;
            }
            if mode != "TF" {
                count = b.with(Op::Mul, count, weight)?;
            }
            let sum = match columns.get(&place) {
                Some(&other) => b.add(other, count)?,
                None => count,
            };
            columns.insert(place, sum);
        }
    }
    if n_out == 0 {
        return Err(wrong());
    }
    // Columns that no n-gram counts into are zero, however many there are.
    let zero = b.scalar(DType::F32, 0.0);
    let (mut parts, mut next) = (Vec::new(), 0);
    for (place, column) in
        columns.into_iter().map(|(place, it)| (place, Some(it))).chain([(n_out, None)])
    {
        if place > next {
            parts.push(b.expand(zero, &[rows.unwrap_or(1), place - next])?);
        }
        parts.extend(column);
        next = place + 1;
    }
    let y = b.concat(&parts, 1)?;
    one(if rows.is_none() { b.reshape(y, &[n_out])? } else { y })
}
