//! Control flow whose course is known at import, and sequences whose length is: branches are taken,
//! loops unrolled. A branch on a run-time condition computes both sides and selects.

use crate::onnx::builder::{Builder, axis};
use crate::onnx::call::{Call, Item, Outcome, one};
use crate::onnx::error::OpError;
use crate::onnx::import::{Importer, Scope};
use crate::{DType, Tensor, Value};

/// More iterations are not unrolled.
const MAX_TRIPS: usize = 1024;

pub(super) fn branch(imp: &mut Importer<'_>, scope: &Scope<'_>, c: &Call) -> Outcome {
    let condition = c.x(0)?;
    let (yes, no) = (c.graph("then_branch")?, c.graph("else_branch")?);
    let (yes_path, no_path) = (format!("{}/then", c.path), format!("{}/else", c.path));
    match imp.b.known(condition).map(|known| known.to_i64()) {
        Some(known) if known.first() == Some(&0) => imp.subgraph(no, scope, &no_path, vec![]),
        Some(_) => imp.subgraph(yes, scope, &yes_path, vec![]),
        None => {
            let then = imp.attempt(yes, scope, &yes_path)?;
            let other = imp.attempt(no, scope, &no_path)?;
            let condition = imp.b.reshape(condition, &[])?;
            imp.b.source = c.path.to_owned();
            then.iter().zip(&other).map(|pair| both(&mut imp.b, condition, pair)).collect()
        }
    }
}

/// The result of one branch or the other.
fn both(b: &mut Builder, condition: Value, pair: (&Item, &Item)) -> Result<Item, OpError> {
    match pair {
        (Item::Poison, _) | (_, Item::Poison) => Ok(Item::Poison),
        (Item::Tensor(x), Item::Tensor(y)) if b.ty(*x) == b.ty(*y) => {
            Ok(b.select(condition, *x, *y)?.into())
        }
        (Item::Tensor(x), Item::Tensor(y)) => {
            let form = format!(
                "a branch between {} and {} on a condition known at run time",
                b.ty(*x),
                b.ty(*y)
            );
            Err(OpError::Form {
                form,
                nearest: Some("branches of one type, or a condition that folds".into()),
            })
        }
        _ => Err(OpError::Form {
            form: "a branch between sequences on a condition known at run time".into(),
            nearest: Some("branches that return tensors".into()),
        }),
    }
}

/// Stacks one slice per trip along a new axis.
fn stack(b: &mut Builder, slices: &[Value], at: usize, reverse: bool) -> Result<Value, OpError> {
    let mut parts =
        slices.iter().map(|&slice| b.unsqueeze(slice, at)).collect::<Result<Vec<_>, _>>()?;
    if reverse {
        parts.reverse();
    }
    b.concat(&parts, at)
}

/// A loop whose trip count and condition fold to constants.
pub(super) fn unroll_loop(imp: &mut Importer<'_>, scope: &Scope<'_>, c: &Call) -> Outcome {
    let body = c.graph("body")?;
    let trips = match c.opt(0)? {
        Some(count) => imp.b.known_ints(count, "the trip count")?.first().copied(),
        None => None,
    };
    let mut condition = c.opt(1)?;
    let mut state: Vec<Item> =
        c.inputs.iter().skip(2).map(|item| item.clone().unwrap_or(Item::Poison)).collect();
    if body.input.len() != state.len() + 2 || body.output.len() < state.len() + 1 {
        let found = format!(
            "{} inputs and {} outputs for {} states",
            body.input.len(),
            body.output.len(),
            state.len()
        );
        return Err(OpError::Attribute {
            name: "body".into(),
            found,
            expected: "two inputs and one output more".into(),
        });
    }
    let n_scans = body.output.len() - 1 - state.len();
    let mut scans: Vec<Vec<Value>> = vec![Vec::new(); n_scans];
    let mut trip = 0;
    loop {
        if trips.is_some_and(|trips| trip as i64 >= trips) {
            break;
        }
        if let Some(value) = condition {
            if imp.b.known_ints(value, "the loop's condition")?.first() == Some(&0) {
                break;
            }
        } else if trips.is_none() {
            return c.form("a loop without an end", "a trip count or a condition");
        }
        if trip >= MAX_TRIPS {
            return c
                .form(format!("a loop of more than {MAX_TRIPS} iterations"), "fewer iterations");
        }
        let count = imp.b.constant(Tensor::i64(&[], &[trip as i64]));
        let go_on = match condition {
            Some(value) => value,
            None => imp.b.constant(Tensor::from_i64(DType::Bool, &[], &[1])),
        };
        let mut inputs = vec![Item::Tensor(count), Item::Tensor(go_on)];
        inputs.append(&mut state);
        let results = imp.subgraph(body, scope, &format!("{}/body[{trip}]", c.path), inputs)?;
        let mut results = results.into_iter();
        match results.next() {
            Some(Item::Tensor(value)) => condition = Some(value),
            _ => return Err(OpError::Poisoned),
        }
        state = results.by_ref().take(c.inputs.len().saturating_sub(2)).collect();
        if state.iter().any(|item| matches!(item, Item::Poison)) {
            return Err(OpError::Poisoned);
        }
        for (scan, item) in scans.iter_mut().zip(results) {
            match item {
                Item::Tensor(value) => scan.push(value),
                _ => return Err(OpError::Poisoned),
            }
        }
        trip += 1;
    }
    imp.b.source = c.path.to_owned();
    if trip == 0 && n_scans > 0 {
        return c.form("a loop that runs 0 times and returns slices", "at least one iteration");
    }
    for scan in &scans {
        state.push(stack(&mut imp.b, scan, 0, false)?.into());
    }
    Ok(state)
}

/// One step per slice of the scanned operands. Opset 8 does it for every element of a batch.
pub(super) fn unroll_scan(imp: &mut Importer<'_>, scope: &Scope<'_>, c: &Call) -> Outcome {
    let body = c.graph("body")?;
    let n_scanned = c.int_opt("num_scan_inputs")?.and_then(|n| usize::try_from(n).ok());
    let n_scanned = n_scanned.ok_or(OpError::MissingAttribute { name: "num_scan_inputs" })?;
    let first = usize::from(c.opset == 8);
    let operands = c.inputs.get(first..).unwrap_or_default();
    let n_states = operands.len().saturating_sub(n_scanned);
    if body.input.len() != operands.len()
        || body.output.len() < n_states
        || n_scanned > operands.len()
    {
        let found = format!("{} inputs for {} operands", body.input.len(), operands.len());
        return Err(OpError::Attribute { name: "body".into(), found, expected: "as many".into() });
    }
    let n_scans = body.output.len() - n_states;
    let directions = |name: &str, n: usize| -> Result<Vec<i64>, OpError> {
        let list = c.ints(name)?.unwrap_or_else(|| vec![0; n]);
        if list.len() == n {
            Ok(list)
        } else {
            c.form(format!("`{name}` {list:?}"), "one number per scan")
        }
    };
    let name = if c.opset == 8 { "directions" } else { "scan_input_directions" };
    let backwards = directions(name, n_scanned)?;
    if c.opset == 8 {
        let states = (0..n_states).map(|i| c.x(i + 1)).collect::<Result<Vec<_>, _>>()?;
        let scanned = (0..n_scanned).map(|i| Ok((c.x(i + 1 + n_states)?, backwards[i] != 0)));
        let scanned = scanned.collect::<Result<Vec<_>, OpError>>()?;
        return scan_batch(imp, scope, c, &states, &scanned, n_scans);
    }
    let in_axes = directions("scan_input_axes", n_scanned)?;
    let out_backwards = directions("scan_output_directions", n_scans)?;
    let out_axes = directions("scan_output_axes", n_scans)?;
    let mut scanned = Vec::new();
    for i in 0..n_scanned {
        let x = c.x(n_states + i)?;
        scanned.push((x, axis(in_axes[i], imp.b.rank(x))?, backwards[i] != 0));
    }
    let extents = scanned.iter().map(|&(x, at, _)| imp.b.extents(x)[at]).collect();
    let trips = common_extent(c, extents)?;
    let state = operands[..n_states].iter().map(|item| item.clone().unwrap_or(Item::Poison));
    let (mut state, scans) = scan_steps(imp, scope, c, "", state.collect(), &scanned, trips)?;
    for (i, scan) in scans.iter().enumerate() {
        let rank = imp.b.rank(scan[0]) + 1;
        let at = axis(out_axes[i], rank)?;
        state.push(stack(&mut imp.b, scan, at, out_backwards[i] != 0)?.into());
    }
    Ok(state)
}

/// The extent that all scanned operands have, which is the number of steps.
fn common_extent(c: &Call, extents: Vec<usize>) -> Result<usize, OpError> {
    let trips = extents.first().copied().unwrap_or(0);
    if extents.iter().any(|&n| n != trips) {
        return c.form("operands scanned over different extents", "one extent");
    }
    if trips == 0 || trips > MAX_TRIPS {
        return c.form(format!("a scan of {trips} steps"), "1 to 1024 steps");
    }
    Ok(trips)
}

/// Results of the steps: the last state, and the slices of each scan.
type Steps = (Vec<Item>, Vec<Vec<Value>>);

/// Runs the body so many times; an operand is scanned along its axis, forwards or backwards.
fn scan_steps(
    imp: &mut Importer<'_>,
    scope: &Scope<'_>,
    c: &Call,
    place: &str,
    mut state: Vec<Item>,
    scanned: &[(Value, usize, bool)],
    trips: usize,
) -> Result<Steps, OpError> {
    let body = c.graph("body")?;
    let n_states = state.len();
    let mut scans: Vec<Vec<Value>> = vec![Vec::new(); body.output.len() - n_states];
    for trip in 0..trips {
        let mut inputs = std::mem::take(&mut state);
        imp.b.source = c.path.to_owned();
        for &(x, at, backwards) in scanned {
            let index = if backwards { trips - 1 - trip } else { trip };
            let slice = imp.b.narrow(x, at, index, 1)?;
            inputs.push(imp.b.squeeze(slice, at)?.into());
        }
        let path = format!("{}{place}/body[{trip}]", c.path);
        let mut results = imp.subgraph(body, scope, &path, inputs)?.into_iter();
        state = results.by_ref().take(n_states).collect();
        if state.iter().any(|item| matches!(item, Item::Poison)) {
            return Err(OpError::Poisoned);
        }
        for (scan, item) in scans.iter_mut().zip(results) {
            match item {
                Item::Tensor(value) => scan.push(value),
                _ => return Err(OpError::Poisoned),
            }
        }
    }
    imp.b.source = c.path.to_owned();
    Ok((state, scans))
}

/// `Scan` of opset 8: axis 0 of every operand and result is the batch, axis 1 of what is scanned the
/// sequence. A sequence that is shorter than the longest runs fewer steps (backwards from its own end), and
/// its slices end in zeros.
fn scan_batch(
    imp: &mut Importer<'_>,
    scope: &Scope<'_>,
    c: &Call,
    states: &[Value],
    scanned: &[(Value, bool)],
    n_scans: usize,
) -> Outcome {
    let ranks = states.iter().map(|&x| (x, 1)).chain(scanned.iter().map(|&(x, _)| (x, 2)));
    for (x, least) in ranks {
        if imp.b.rank(x) < least {
            return c.form(format!("{} without its axes", imp.b.ty(x)), "batch, then sequence");
        }
    }
    let extents = scanned.iter().map(|&(x, _)| imp.b.extents(x)[1]).collect();
    let longest = common_extent(c, extents)?;
    let all = || states.iter().chain(scanned.iter().map(|(x, _)| x));
    let batch = all().next().map_or(0, |&x| imp.b.extents(x)[0]);
    if all().any(|&x| imp.b.extents(x)[0] != batch) {
        return c.form("operands of different batches", "one batch");
    }
    if batch == 0 || batch.saturating_mul(longest) > MAX_TRIPS {
        return c.form(format!("a scan of {batch} times {longest} steps"), "1 to 1024 steps");
    }
    let lengths = match c.opt(0)? {
        None => vec![longest; batch],
        Some(lengths) => {
            let known = imp.b.known_ints(lengths, "`sequence_lens`")?;
            let known: Option<Vec<usize>> = known
                .iter()
                .map(|&n| usize::try_from(n).ok().filter(|n| (1..=longest).contains(n)))
                .collect();
            match known.filter(|known| known.len() == batch) {
                Some(known) => known,
                None => return c.form("these `sequence_lens`", "one from 1 for each of the batch"),
            }
        }
    };
    // Results by element of the batch.
    let mut rows: Vec<Vec<Value>> = vec![Vec::new(); states.len() + n_scans];
    for (element, &trips) in lengths.iter().enumerate() {
        imp.b.source = c.path.to_owned();
        let mut state = Vec::with_capacity(states.len());
        for &x in states {
            let row = imp.b.narrow(x, 0, element, 1)?;
            state.push(imp.b.squeeze(row, 0)?.into());
        }
        let mut own = Vec::with_capacity(scanned.len());
        for &(x, backwards) in scanned {
            let row = imp.b.narrow(x, 0, element, 1)?;
            own.push((imp.b.squeeze(row, 0)?, 0, backwards));
        }
        let place = format!("/batch[{element}]");
        let (state, scans) = scan_steps(imp, scope, c, &place, state, &own, trips)?;
        let mut results = Vec::with_capacity(rows.len());
        for item in state {
            match item {
                Item::Tensor(value) => results.push(value),
                _ => return Err(OpError::Poisoned),
            }
        }
        for scan in &scans {
            let whole = stack(&mut imp.b, scan, 0, false)?;
            let mut behind = vec![0; imp.b.rank(whole)];
            let before = behind.clone();
            behind[0] = longest - trips;
            results.push(imp.b.pad(whole, &before, &behind, "constant", 0.0)?);
        }
        rows.iter_mut().zip(results).for_each(|(row, result)| row.push(result));
    }
    let stacked = rows.iter().map(|row| Ok(stack(&mut imp.b, row, 0, false)?.into()));
    stacked.collect()
}

fn sequence(values: Vec<Value>) -> Outcome {
    Ok(vec![Item::Sequence(values)])
}

pub(super) fn sequence_empty(_: &mut Builder, _: &Call) -> Outcome {
    sequence(Vec::new())
}

pub(super) fn sequence_construct(_: &mut Builder, c: &Call) -> Outcome {
    sequence(c.all()?)
}

/// A known position in a sequence of `n`, which may be its end if `end` is set.
fn position(b: &Builder, value: Value, n: usize, end: bool) -> Result<usize, OpError> {
    let at =
        *b.known_ints(value, "the position")?.first().ok_or(OpError::MissingInput { index: 1 })?;
    let from_front = if at < 0 { at.saturating_add(n as i64) } else { at };
    let limit = n + usize::from(end);
    let found = || OpError::Operand {
        index: 1,
        found: at.to_string(),
        expected: format!("a position of {n}"),
    };
    usize::try_from(from_front).ok().filter(|&at| at < limit).ok_or_else(found)
}

pub(super) fn sequence_insert(b: &mut Builder, c: &Call) -> Outcome {
    let mut values = c.sequence(0)?;
    let at = match c.opt(2)? {
        Some(at) => position(b, at, values.len(), true)?,
        None => values.len(),
    };
    values.insert(at, c.x(1)?);
    sequence(values)
}

pub(super) fn sequence_erase(b: &mut Builder, c: &Call) -> Outcome {
    let mut values = c.sequence(0)?;
    let at = match c.opt(1)? {
        Some(at) => position(b, at, values.len(), false)?,
        None if values.is_empty() => {
            return c.form("erasing from an empty sequence", "one with elements");
        }
        None => values.len() - 1,
    };
    values.remove(at);
    sequence(values)
}

pub(super) fn sequence_at(b: &mut Builder, c: &Call) -> Outcome {
    let values = c.sequence(0)?;
    let at = position(b, c.x(1)?, values.len(), false)?;
    one(values[at])
}

pub(super) fn sequence_length(b: &mut Builder, c: &Call) -> Outcome {
    let n = c.sequence(0)?.len() as i64;
    one(b.constant(Tensor::i64(&[], &[n])))
}

/// Chunks of a known size (1 by default), or of known sizes.
pub(super) fn split_to_sequence(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let at = axis(c.int("axis", 0)?, b.rank(x))?;
    let n = b.extents(x)[at];
    if n > 1 << 16 {
        return c.form(format!("a sequence of up to {n} parts"), "at most 65536");
    }
    let keep = c.opt(1)?.is_some() || c.int("keepdims", 1)? != 0;
    let sizes: Vec<usize> = match c.opt(1)? {
        None => vec![1; n],
        Some(split) => {
            let known = b.known_ints(split, "`split`")?;
            let known: Vec<usize> =
                known.iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
            match (b.rank(split), &known[..]) {
                (0, [size]) if *size > 0 => {
                    (0..n.div_ceil(*size)).map(|i| (*size).min(n - i * size)).collect()
                }
                _ => known,
            }
        }
    };
    if sizes.iter().try_fold(0usize, |acc, &n| acc.checked_add(n)) != Some(n) {
        return Err(OpError::Operand {
            index: 1,
            found: format!("{sizes:?}"),
            expected: format!("sizes that add up to {n}"),
        });
    }
    let (mut start, mut parts) = (0, Vec::new());
    for size in sizes {
        let part = b.narrow(x, at, start, size)?;
        parts.push(if keep { part } else { b.squeeze(part, at)? });
        start += size;
    }
    sequence(parts)
}

pub(super) fn concat_from_sequence(b: &mut Builder, c: &Call) -> Outcome {
    let values = c.sequence(0)?;
    let Some(&first) = values.first() else {
        return c.form("joining an empty sequence", "one with elements");
    };
    let new = c.int("new_axis", 0)? != 0;
    let rank = b.rank(first) + usize::from(new);
    let at = axis(c.int_opt("axis")?.ok_or(OpError::MissingAttribute { name: "axis" })?, rank)?;
    one(if new { stack(b, &values, at, false)? } else { b.concat(&values, at)? })
}
