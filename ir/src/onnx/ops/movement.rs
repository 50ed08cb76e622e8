//! Operators that rearrange or repeat elements at positions known at import.

use crate::onnx::builder::{Builder, axes, axis};
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::error::OpError;
use crate::onnx::load::product;
use crate::{DType, Value};

/// A list that was an attribute in old opsets and is an operand in new ones.
pub(super) fn list(
    b: &Builder,
    c: &Call,
    name: &str,
    operand: usize,
) -> Result<Option<Vec<i64>>, OpError> {
    match c.opt(operand)? {
        Some(value) => Ok(Some(b.known_ints(value, &format!("`{name}`"))?)),
        None => c.ints(name),
    }
}

/// 0 keeps the operand's extent (unless `allowzero`), one -1 takes what is left.
pub(super) fn reshape(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let wanted = list(b, c, "shape", 1)?.ok_or(OpError::MissingInput { index: 1 })?;
    let (from, allow_zero) = (b.extents(x), c.int("allowzero", 0)? != 0);
    let wrong = || OpError::Reshape { from: b.ty(x).to_string(), to: wanted.clone() };
    let mut extents = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (i, &extent) in wanted.iter().enumerate() {
        extents.push(match extent {
            -1 if open.is_none() => {
                open = Some(i);
                1
            }
            0 if !allow_zero => *from.get(i).ok_or_else(wrong)?,
            _ => usize::try_from(extent).map_err(|_| wrong())?,
        });
    }
    let n_elems = b.ty(x).n_elems();
    let known = product(&extents).ok_or_else(wrong)?;
    if let Some(i) = open {
        if known == 0 || !n_elems.is_multiple_of(known) {
            return Err(wrong());
        }
        extents[i] = n_elems / known;
    } else if known != n_elems {
        return Err(wrong());
    }
    one(b.reshape(x, &extents)?)
}

pub(super) fn flatten(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let (extents, at) = (b.extents(x), c.int("axis", 1)?);
    // The axis may be the rank itself.
    let at = if at == extents.len() as i64 { extents.len() } else { axis(at, extents.len())? };
    let (outer, inner) = extents.split_at(at);
    one(b.reshape(x, &[outer.iter().product(), inner.iter().product()])?)
}

pub(super) fn squeeze(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let extents = b.extents(x);
    let gone = match list(b, c, "axes", 1)? {
        Some(gone) => axes(&gone, extents.len())?,
        None => (0..extents.len()).filter(|&axis| extents[axis] == 1).collect(),
    };
    if let Some(&wrong) = gone.iter().find(|&&axis| extents[axis] != 1) {
        let (found, expected) = (b.ty(x).to_string(), format!("extent 1 at axis {wrong}"));
        return Err(OpError::Operand { index: 0, found, expected });
    }
    one(b.drop_axes(x, &gone)?)
}

pub(super) fn unsqueeze(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let new = list(b, c, "axes", 1)?.ok_or(OpError::MissingAttribute { name: "axes" })?;
    let rank = b.rank(x) + new.len();
    let new = axes(&new, rank)?;
    if new.len() + b.rank(x) != rank {
        let (found, expected) = ("a list with duplicates".into(), "distinct axes".into());
        return Err(OpError::Attribute { name: "axes".into(), found, expected });
    }
    let mut old = b.extents(x).into_iter();
    let extents: Vec<usize> = (0..rank)
        .map(|axis| if new.contains(&axis) { 1 } else { old.next().expect("as many as old axes") })
        .collect();
    one(b.reshape(x, &extents)?)
}

pub(super) fn transpose(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let rank = b.rank(x);
    let perm = match c.ints("perm")? {
        Some(perm) => perm.iter().map(|&p| axis(p, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).rev().collect(),
    };
    one(b.transpose(x, &perm)?)
}

/// Broadcasting both ways: an extent of 1 in `shape` keeps the operand's.
pub(super) fn expand(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let wanted = b.known_ints(c.x(1)?, "`shape`")?;
    let from = b.extents(x);
    let rank = from.len().max(wanted.len());
    let mismatch = || OpError::Broadcast { lhs: b.ty(x).to_string(), rhs: format!("{wanted:?}") };
    let mut extents = Vec::with_capacity(rank);
    for i in 0..rank {
        let old = (i + from.len()).checked_sub(rank).map_or(1, |i| from[i]);
        let new = (i + wanted.len()).checked_sub(rank).map_or(1, |i| wanted[i]);
        let new = usize::try_from(new).map_err(|_| mismatch())?;
        extents.push(match (old, new) {
            (old, 1) => old,
            (1, new) => new,
            (old, new) if old == new => old,
            _ => return Err(mismatch()),
        });
    }
    if product(&extents).is_none() {
        return Err(OpError::TooLarge { extents: wanted });
    }
    one(b.expand(x, &extents)?)
}

/// Each axis `d` becomes `[1, d]`, is expanded to `[n, d]` and merged again.
pub(super) fn repeat(b: &mut Builder, x: Value, repeats: &[usize]) -> Result<Value, OpError> {
    let from = b.extents(x);
    let (mut split, mut wide, mut merged) = (vec![], vec![], vec![]);
    for (&d, &n) in from.iter().zip(repeats) {
        if n == 1 || d == 1 {
            split.push(d);
            wide.push(d * n);
        } else {
            split.extend([1, d]);
            wide.extend([n, d]);
        }
        merged.push(d.saturating_mul(n));
    }
    if product(&merged).is_none() || product(&wide).is_none() {
        return Err(OpError::TooLarge { extents: merged.iter().map(|&x| x as i64).collect() });
    }
    let split = b.reshape(x, &split)?;
    let wide = b.expand(split, &wide)?;
    b.reshape(wide, &merged)
}

/// Before opset 6 a count and the axis that it is for.
fn old_tile(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let number = |i: usize, name: &str| -> Result<i64, OpError> {
        let list = b.known_floats(c.x(i)?, &format!("`{name}`"))?;
        list.first().map(|&n| n as i64).ok_or(OpError::MissingInput { index: i })
    };
    let (count, at) = (number(1, "tiles")?, axis(number(2, "axis")?, b.rank(x))?);
    let mut counts = vec![1; b.rank(x)];
    let wrong =
        || OpError::Operand { index: 1, found: count.to_string(), expected: "a count".into() };
    counts[at] = usize::try_from(count).ok().filter(|&n| n < 1 << 31).ok_or_else(wrong)?;
    one(repeat(b, x, &counts)?)
}

pub(super) fn tile(b: &mut Builder, c: &Call) -> Outcome {
    if c.opset < 6 {
        return old_tile(b, c);
    }
    let x = c.x(0)?;
    let repeats = b.known_ints(c.x(1)?, "`repeats`")?;
    let wrong = || OpError::Operand {
        index: 1,
        found: format!("{repeats:?}"),
        expected: format!("{} counts", b.rank(x)),
    };
    let counts: Option<Vec<usize>> =
        repeats.iter().map(|&n| usize::try_from(n).ok().filter(|&n| n < 1 << 31)).collect();
    let counts = counts.filter(|counts| counts.len() == b.rank(x)).ok_or_else(wrong)?;
    one(repeat(b, x, &counts)?)
}

pub(super) fn concat(b: &mut Builder, c: &Call) -> Outcome {
    let parts = c.all()?;
    let rank = b.rank(*parts.first().ok_or(OpError::MissingInput { index: 0 })?);
    // Before opset 4 there is a default.
    let default = (c.opset < 4).then_some(1);
    let at = c.int_opt("axis")?.or(default);
    let at = axis(at.ok_or(OpError::MissingAttribute { name: "axis" })?, rank)?;
    one(b.concat(&parts, at)?)
}

pub(super) fn split(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let extents = b.extents(x);
    if c.opset < 2 && !c.has("axis") {
        return c.form("a split in opset 1 that does not say its axis", "`axis`");
    }
    let at = axis(c.int("axis", 0)?, extents.len())?;
    let total = extents[at];
    let n_outputs = c.outputs.len().max(1);
    let parts = match list(b, c, "split", 1)? {
        Some(parts) => parts.iter().map(|&n| usize::try_from(n).unwrap_or(usize::MAX)).collect(),
        None => {
            // Equal chunks; since opset 18 the last may be smaller.
            let n = usize::try_from(c.int("num_outputs", n_outputs as i64)?)
                .unwrap_or(0)
                .clamp(1, n_outputs);
            let chunk = total.div_ceil(n);
            (0..n).map(|i| chunk.min(total.saturating_sub(i * chunk))).collect::<Vec<usize>>()
        }
    };
    if parts.iter().try_fold(0usize, |acc, &n| acc.checked_add(n)) != Some(total)
        || parts.len() != n_outputs
    {
        let expected = format!("{n_outputs} parts that add up to {total}");
        return Err(OpError::Attribute {
            name: "split".into(),
            found: format!("{parts:?}"),
            expected,
        });
    }
    let mut start = 0;
    let mut results = Vec::with_capacity(parts.len());
    for n in parts {
        results.push(b.narrow(x, at, start, n)?.into());
        start += n;
    }
    Ok(results)
}

/// `starts` and `ends` clamp as Python's slices do.
pub(super) fn slice(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let from = b.extents(x);
    let rank = from.len();
    let required = |list: Option<Vec<i64>>, name| list.ok_or(OpError::MissingAttribute { name });
    let starts = required(list(b, c, "starts", 1)?, "starts")?;
    let ends = required(list(b, c, "ends", 2)?, "ends")?;
    let on = match list(b, c, "axes", 3)? {
        Some(on) => on.iter().map(|&i| axis(i, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..starts.len()).map(|i| axis(i as i64, rank)).collect::<Result<Vec<_>, _>>()?,
    };
    let steps = list(b, c, "steps", 4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), on.len(), steps.len()].iter().any(|&n| n != starts.len()) {
        let found = format!(
            "{} starts, {} ends, {} axes, {} steps",
            starts.len(),
            ends.len(),
            on.len(),
            steps.len()
        );
        return Err(OpError::Operand { index: 1, found, expected: "as many of each".into() });
    }
    let (mut first, mut extents, mut stride) = (vec![0; rank], from.clone(), vec![1; rank]);
    for (i, &at) in on.iter().enumerate() {
        let (n, step) = (from[at] as i64, steps[i]);
        if step == 0 {
            return Err(OpError::Attribute {
                name: "steps".into(),
                found: "0".into(),
                expected: "not 0".into(),
            });
        }
        // A negative bound counts from the end; then it is clamped to where the walk can start or stop.
        let bound = |at: i64| if at < 0 { at.saturating_add(n) } else { at };
        let (start, end) = match step > 0 {
            true => (bound(starts[i]).clamp(0, n), bound(ends[i]).clamp(0, n)),
            false => (bound(starts[i]).clamp(-1, n - 1), bound(ends[i]).clamp(-1, n - 1)),
        };
        let distance = if step > 0 { end - start } else { start - end };
        let size = step.unsigned_abs().min(1 << 40) as i64;
        let count = if distance > 0 { (distance + size - 1) / size } else { 0 };
        (first[at], extents[at], stride[at]) = match count {
            0 => (0, 0, 1),
            1 => (start, 1, 1),
            _ => (start, count as usize, step),
        };
    }
    one(b.slice(x, &first, &extents, &stride)?)
}

/// A negative pad removes elements.
pub(super) fn pad(b: &mut Builder, c: &Call) -> Outcome {
    let mut x = c.x(0)?;
    let rank = b.rank(x);
    let name = if c.opset < 2 { "paddings" } else { "pads" };
    let pads = list(b, c, name, 1)?.ok_or(OpError::MissingInput { index: 1 })?;
    let value = match c.opt(2)? {
        Some(value) => *b.known_floats(value, "the pad value")?.first().unwrap_or(&0.0),
        None => c.float("value", 0.0)?,
    };
    let on = match c.opt(3)? {
        Some(on) => b
            .known_ints(on, "`axes`")?
            .iter()
            .map(|&i| axis(i, rank))
            .collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * on.len() {
        let expected = format!("{} numbers", 2 * on.len());
        return Err(OpError::Operand { index: 1, found: format!("{} pads", pads.len()), expected });
    }
    let (mut before, mut after) = (vec![0i64; rank], vec![0i64; rank]);
    for (i, &at) in on.iter().enumerate() {
        (before[at], after[at]) = (pads[i], pads[i + on.len()]);
    }
    let mode = c.word("mode", "constant")?;
    if !["constant", "reflect", "edge", "wrap"].contains(&mode.as_str()) {
        return c.form(format!("pad mode `{mode}`"), "constant, reflect, edge and wrap");
    }
    let mut extents = b.extents(x);
    let mut first = vec![0i64; rank];
    for at in 0..rank {
        let (cut_front, cut_back) =
            (before[at].min(0).unsigned_abs(), after[at].min(0).unsigned_abs());
        let left =
            (extents[at] as u64).checked_sub(cut_front).and_then(|n| n.checked_sub(cut_back));
        let left = left.ok_or_else(|| OpError::TooLarge { extents: pads.clone() })?;
        (first[at], extents[at]) = (cut_front as i64, left as usize);
    }
    x = b.slice(x, &first, &extents, &vec![1; rank])?;
    let grow = |pads: &[i64]| -> Vec<usize> {
        pads.iter().map(|&n| n.clamp(0, 1 << 40) as usize).collect()
    };
    let (before, after) = (grow(&before), grow(&after));
    // A reflection longer than the tensor itself has no agreed meaning.
    let bad = |at: usize| mode == "reflect" && before[at].max(after[at]) >= extents[at].max(1);
    if let Some(at) = (0..rank).find(|&at| bad(at)) {
        return c.form(
            format!(
                "reflecting {} and {} elements of an axis of {}",
                before[at], after[at], extents[at]
            ),
            "fewer than the axis has",
        );
    }
    if b.dtype(x) == DType::Bool {
        let number = b.cast(x, DType::U8)?;
        let padded = b.pad(number, &before, &after, &mode, value)?;
        return one(b.cast(padded, DType::Bool)?);
    }
    one(b.pad(x, &before, &after, &mode, value)?)
}

fn blocks(b: &Builder, c: &Call) -> Result<(Value, Vec<usize>, usize), OpError> {
    let x = c.x(0)?;
    let extents = b.extents(x);
    let size = c.int_opt("blocksize")?.ok_or(OpError::MissingAttribute { name: "blocksize" })?;
    match (usize::try_from(size), extents.len()) {
        (Ok(size @ 1..=65536), 4) => Ok((x, extents, size)),
        (_, 4) => Err(OpError::Attribute {
            name: "blocksize".into(),
            found: size.to_string(),
            expected: "1 to 65536".into(),
        }),
        _ => Err(OpError::Operand {
            index: 0,
            found: b.ty(x).to_string(),
            expected: "rank 4".into(),
        }),
    }
}

pub(super) fn depth_to_space(b: &mut Builder, c: &Call) -> Outcome {
    let (x, e, size) = blocks(b, c)?;
    let (split, perm) = match c.word("mode", "DCR")?.as_str() {
        "DCR" => ([e[0], size, size, e[1] / (size * size), e[2], e[3]], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([e[0], e[1] / (size * size), size, size, e[2], e[3]], [0, 1, 4, 2, 5, 3]),
        other => return c.form(format!("mode `{other}`"), "DCR and CRD"),
    };
    let split = b.reshape(x, &split)?;
    let moved = b.transpose(split, &perm)?;
    one(b.reshape(moved, &[e[0], e[1] / (size * size), e[2] * size, e[3] * size])?)
}

pub(super) fn space_to_depth(b: &mut Builder, c: &Call) -> Outcome {
    let (x, e, size) = blocks(b, c)?;
    let split = b.reshape(x, &[e[0], e[1], e[2] / size, size, e[3] / size, size])?;
    let perm = match c.word("mode", "DCR")?.as_str() {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        other => return c.form(format!("mode `{other}`"), "DCR and CRD"),
    };
    let moved = b.transpose(split, &perm)?;
    one(b.reshape(
        moved,
        &[e[0], e[1].saturating_mul(size * size).min(1 << 40), e[2] / size, e[3] / size],
    )?)
}

/// Known lengths: slices, of which the first part is reversed, side by side.
pub(super) fn reverse_sequence(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let rank = b.rank(x);
    let (batch, time) = (axis(c.int("batch_axis", 1)?, rank)?, axis(c.int("time_axis", 0)?, rank)?);
    let lengths = b.known_ints(c.x(1)?, "`sequence_lens`")?;
    let extents = b.extents(x);
    if lengths.len() != extents[batch] || batch == time {
        let expected = format!("{} lengths", extents[batch]);
        return Err(OpError::Operand { index: 1, found: format!("{lengths:?}"), expected });
    }
    let mut rows = Vec::new();
    for (i, &length) in lengths.iter().enumerate() {
        let row = b.narrow(x, batch, i, 1)?;
        let n = (length.max(0) as usize).min(extents[time]);
        let head = b.narrow(row, time, 0, n)?;
        let head = b.flip(head, time)?;
        let tail = b.narrow(row, time, n, extents[time] - n)?;
        rows.push(b.concat(&[head, tail], time)?);
    }
    one(if rows.is_empty() { x } else { b.concat(&rows, batch)? })
}

/// Exchanges two axes.
pub(super) fn swap(b: &mut Builder, x: Value, i: usize, j: usize) -> Result<Value, OpError> {
    let rank = b.rank(x);
    if let Some(&axis) = [i, j].iter().find(|&&axis| axis >= rank) {
        return Err(OpError::Axis { axis: axis as i64, rank });
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(i, j);
    b.transpose(x, &perm)
}

/// Cuts or pads around the centre; an odd element is cut in front and padded behind.
pub(super) fn center_crop_pad(b: &mut Builder, c: &Call) -> Outcome {
    let mut x = c.x(0)?;
    let wanted = b.known_ints(c.x(1)?, "`shape`")?;
    let rank = b.rank(x);
    let on = match c.ints("axes")? {
        Some(on) => on.iter().map(|&i| axis(i, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    if on.len() != wanted.len() {
        let (found, expected) = (format!("{wanted:?}"), format!("{} extents", on.len()));
        return Err(OpError::Operand { index: 1, found, expected });
    }
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (&at, &to) in on.iter().zip(&wanted) {
        let from = b.extents(x)[at];
        let to = usize::try_from(to).ok().filter(|&n| n < 1 << 31);
        let to = to.ok_or_else(|| OpError::TooLarge { extents: wanted.clone() })?;
        if to < from {
            x = b.narrow(x, at, (from - to) / 2, to)?;
        } else {
            before[at] = (to - from) / 2;
            after[at] = to - from - before[at];
        }
    }
    one(b.pad(x, &before, &after, "constant", 0.0)?)
}
