//! Matrix products: `MatMul`, `Gemm`, `Einsum`.

use crate::Value;
use crate::graph::Op;
use crate::onnx::builder::Builder;
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::error::OpError;

use super::movement::swap;

/// A vector on the left is a row, on the right a column; the axis that makes it one goes again.
pub(super) fn product(b: &mut Builder, x: Value, y: Value) -> Result<Value, OpError> {
    let (x_rank, y_rank) = (b.rank(x), b.rank(y));
    for (index, rank, value) in [(0, x_rank, x), (1, y_rank, y)] {
        if rank == 0 {
            let (found, expected) = (b.ty(value).to_string(), "rank 1 or more".into());
            return Err(OpError::Operand { index, found, expected });
        }
    }
    let lhs = if x_rank == 1 { b.unsqueeze(x, 0)? } else { x };
    let rhs = if y_rank == 1 { b.unsqueeze(y, 1)? } else { y };
    let mut z = b.matmul(lhs, rhs)?;
    if y_rank == 1 {
        let last = b.rank(z) - 1;
        z = b.squeeze(z, last)?;
    }
    if x_rank == 1 {
        let at = b.rank(z) - if y_rank == 1 { 1 } else { 2 };
        z = b.squeeze(z, at)?;
    }
    Ok(z)
}

pub(super) fn matmul(b: &mut Builder, c: &Call) -> Outcome {
    one(product(b, c.x(0)?, c.x(1)?)?)
}

/// `alpha A' B' + beta C`.
pub(super) fn gemm(b: &mut Builder, c: &Call) -> Outcome {
    let (mut x, mut y) = (c.x(0)?, c.x(1)?);
    for (index, value) in [(0, x), (1, y)] {
        if b.rank(value) != 2 {
            return Err(OpError::Operand {
                index,
                found: b.ty(value).to_string(),
                expected: "rank 2".into(),
            });
        }
    }
    // Before opset 7 the bias is broadcast on request; otherwise it has the result's shape.
    c.int("broadcast", 0)?;
    if c.int("transA", 0)? != 0 {
        x = swap(b, x, 0, 1)?;
    }
    if c.int("transB", 0)? != 0 {
        y = swap(b, y, 0, 1)?;
    }
    let mut z = b.matmul(x, y)?;
    let (alpha, beta) = (c.float("alpha", 1.0)?, c.float("beta", 1.0)?);
    if alpha != 1.0 {
        z = b.with(Op::Mul, z, alpha)?;
    }
    if let Some(mut bias) = c.opt(2)?.filter(|_| beta != 0.0) {
        if beta != 1.0 {
            bias = b.with(Op::Mul, bias, beta)?;
        }
        z = b.add(z, bias)?;
    }
    one(z)
}

pub(super) fn fused_matmul(b: &mut Builder, c: &Call) -> Outcome {
    if c.int("transBatchA", 0)? != 0 || c.int("transBatchB", 0)? != 0 {
        return c.form("a transposed batch", "transA and transB");
    }
    let (mut x, mut y) = (c.x(0)?, c.x(1)?);
    if c.int("transA", 0)? != 0 && b.rank(x) > 1 {
        let rank = b.rank(x);
        x = swap(b, x, rank - 2, rank - 1)?;
    }
    if c.int("transB", 0)? != 0 && b.rank(y) > 1 {
        let rank = b.rank(y);
        y = swap(b, y, rank - 2, rank - 1)?;
    }
    let z = product(b, x, y)?;
    let alpha = c.float("alpha", 1.0)?;
    one(if alpha == 1.0 { z } else { b.with(Op::Mul, z, alpha)? })
}

/// An operand of an einsum with one label per axis. Labels of an ellipsis are negative.
#[derive(Clone)]
struct Term {
    value: Value,
    labels: Vec<i32>,
}

/// Labels of one side of an equation; the ellipsis stands for `n_dots` axes, the last of them -1.
fn labels(text: &str, n_dots: usize) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            found.extend((1..=n_dots as i32).rev().map(|i| -i));
            rest = after;
        } else if first.is_ascii_alphabetic() {
            found.push(first as i32);
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(found)
}

/// Operands are contracted from the left, two at a time; a label is summed as soon as nothing else
/// needs it.
pub(super) fn einsum(b: &mut Builder, c: &Call) -> Outcome {
    let equation = c.word("equation", "")?;
    let wrong = |problem: &str| OpError::Equation {
        equation: equation.clone(),
        problem: problem.to_owned(),
    };
    let plain: String = equation.chars().filter(|ch| !ch.is_whitespace()).collect();
    let (left, right) = match plain.split_once("->") {
        Some((left, right)) => (left.to_owned(), Some(right.to_owned())),
        None => (plain.clone(), None),
    };
    let parts: Vec<&str> = left.split(',').collect();
    let operands = c.all()?;
    if parts.len() != operands.len() || operands.is_empty() {
        return Err(wrong(&format!("{} terms for {} operands", parts.len(), operands.len())));
    }
    let mut most_dots = 0;
    let mut terms = Vec::new();
    for (part, &value) in parts.iter().zip(&operands) {
        let n_named = part.chars().filter(|ch| ch.is_ascii_alphabetic()).count();
        let n_dots = if part.contains("...") { b.rank(value).saturating_sub(n_named) } else { 0 };
        most_dots = most_dots.max(n_dots);
        let labels = labels(part, n_dots).filter(|_| part.matches("...").count() <= 1);
        let labels = labels.ok_or_else(|| wrong("only letters and one ellipsis per term"))?;
        if labels.len() != b.rank(value) {
            return Err(wrong(&format!("`{part}` for {}", b.ty(value))));
        }
        terms.push(Term { value, labels });
    }
    let output = match right {
        Some(right) => labels(&right, most_dots)
            .ok_or_else(|| wrong("only letters and one ellipsis per term"))?,
        None => {
            // Without an output: the ellipsis, then the letters that occur once, in order.
            let all: Vec<i32> = terms.iter().flat_map(|term| term.labels.iter().copied()).collect();
            let mut once: Vec<i32> = all
                .iter()
                .copied()
                .filter(|l| *l > 0 && all.iter().filter(|m| *m == l).count() == 1)
                .collect();
            once.sort_unstable();
            (1..=most_dots as i32).rev().map(|i| -i).chain(once).collect()
        }
    };
    for (i, label) in output.iter().enumerate() {
        if output[..i].contains(label) || !terms.iter().any(|term| term.labels.contains(label)) {
            return Err(wrong("each output label occurs once there and in a term"));
        }
    }
    for term in &mut terms {
        diagonal(b, term).map_err(|_| wrong("a label repeats with different extents"))?;
    }
    stretch(b, &mut terms).map_err(|_| wrong("a label has different extents"))?;

    let mut rest = terms.into_iter();
    let mut acc = rest.next().expect("there is an operand");
    let mut rest: Vec<Term> = rest.collect();
    rest.reverse();
    while let Some(next) = rest.pop() {
        let needed = |label: i32| {
            output.contains(&label) || rest.iter().any(|term| term.labels.contains(&label))
        };
        acc = pair(b, acc, next, &needed)?;
    }
    acc = sum_out(b, acc, &|label| output.contains(&label))?;
    let perm: Vec<usize> = output
        .iter()
        .map(|label| acc.labels.iter().position(|l| l == label).expect("checked above"))
        .collect();
    one(b.transpose(acc.value, &perm)?)
}

/// A label that occurs twice in a term selects its diagonal: elsewhere 0, then summed.
fn diagonal(b: &mut Builder, term: &mut Term) -> Result<(), OpError> {
    let mut i = 0;
    while i < term.labels.len() {
        let Some(j) = (i + 1..term.labels.len()).find(|&j| term.labels[j] == term.labels[i]) else {
            i += 1;
            continue;
        };
        let extents = b.extents(term.value);
        if extents[i] != extents[j] {
            return Err(OpError::Axis { axis: j as i64, rank: extents.len() });
        }
        let index = |at: usize| -> Vec<usize> {
            (0..extents.len()).map(|k| if k == at { extents[k] } else { 1 }).collect()
        };
        let (row, column) =
            (b.iota(&index(i), i, crate::DType::I64)?, b.iota(&index(j), j, crate::DType::I64)?);
        let on = b.binary(Op::Eq, row, column)?;
        let zero = b.scalar_like(term.value, 0.0);
        let masked = b.select(on, term.value, zero)?;
        term.value = b.reduce(Op::ReduceSum, masked, &[j], false)?;
        term.labels.remove(j);
    }
    Ok(())
}

/// An extent of 1 stretches to that of the same label elsewhere.
fn stretch(b: &mut Builder, terms: &mut [Term]) -> Result<(), OpError> {
    let mut widest: std::collections::BTreeMap<i32, usize> = std::collections::BTreeMap::new();
    for term in terms.iter() {
        for (&label, extent) in term.labels.iter().zip(b.extents(term.value)) {
            let wide = widest.entry(label).or_insert(extent);
            if *wide == 1 {
                *wide = extent;
            } else if extent != 1 && extent != *wide {
                return Err(OpError::TooLarge { extents: vec![extent as i64] });
            }
        }
    }
    for term in terms {
        let extents: Vec<usize> = term.labels.iter().map(|label| widest[label]).collect();
        term.value = b.expand(term.value, &extents)?;
    }
    Ok(())
}

/// Sums the axes that nothing needs.
fn sum_out(b: &mut Builder, term: Term, needed: &dyn Fn(i32) -> bool) -> Result<Term, OpError> {
    let gone: Vec<usize> = (0..term.labels.len()).filter(|&i| !needed(term.labels[i])).collect();
    let value = b.reduce(Op::ReduceSum, term.value, &gone, false)?;
    Ok(Term { value, labels: term.labels.into_iter().filter(|&label| needed(label)).collect() })
}

/// Two terms become one, `[shared..., left..., right...]`.
fn pair(b: &mut Builder, x: Term, y: Term, needed: &dyn Fn(i32) -> bool) -> Result<Term, OpError> {
    let (in_x, in_y) = (x.labels.clone(), y.labels.clone());
    let x = sum_out(b, x, &|label| needed(label) || in_y.contains(&label))?;
    let y = sum_out(b, y, &|label| needed(label) || in_x.contains(&label))?;
    let both = |label: &i32| x.labels.contains(label) && y.labels.contains(label);
    let of = |labels: &[i32], keep: &dyn Fn(&i32) -> bool| -> Vec<i32> {
        labels.iter().copied().filter(|l| keep(l)).collect()
    };
    let batch = of(&x.labels, &|l| both(l) && needed(*l));
    let contracted = of(&x.labels, &|l| both(l) && !needed(*l));
    let left = of(&x.labels, &|l| !both(l));
    let right = of(&y.labels, &|l| !both(l));
    let (x_extents, y_extents) = (b.extents(x.value), b.extents(y.value));
    let extent = |label: &i32| match x.labels.iter().position(|l| l == label) {
        Some(i) => x_extents[i],
        None => y_extents[y.labels.iter().position(|l| l == label).expect("a label of either")],
    };
    let sizes = |labels: &[i32]| -> Vec<usize> { labels.iter().map(extent).collect() };
    let arrange = |b: &mut Builder, term: &Term, order: &[i32], shape: &[usize]| {
        let perm: Vec<usize> = order
            .iter()
            .map(|l| term.labels.iter().position(|m| m == l).expect("a label of the term"))
            .collect();
        let moved = b.transpose(term.value, &perm)?;
        b.reshape(moved, shape)
    };
    let labels = [&batch[..], &left, &right].concat();
    let value = if contracted.is_empty() {
        let lhs_shape = [sizes(&batch), sizes(&left), vec![1; right.len()]].concat();
        let rhs_shape = [sizes(&batch), vec![1; left.len()], sizes(&right)].concat();
        let lhs = arrange(b, &x, &[&batch[..], &left].concat(), &lhs_shape)?;
        let rhs = arrange(b, &y, &[&batch[..], &right].concat(), &rhs_shape)?;
        b.mul(lhs, rhs)?
    } else {
        let (m, n): (usize, usize) =
            (sizes(&left).iter().product(), sizes(&right).iter().product());
        let k: usize = sizes(&contracted).iter().product();
        let lhs = arrange(
            b,
            &x,
            &[&batch[..], &left, &contracted].concat(),
            &[sizes(&batch), vec![m, k]].concat(),
        )?;
        let rhs = arrange(
            b,
            &y,
            &[&batch[..], &contracted, &right].concat(),
            &[sizes(&batch), vec![k, n]].concat(),
        )?;
        let z = b.matmul(lhs, rhs)?;
        b.reshape(z, &sizes(&labels))?
    };
    Ok(Term { value, labels })
}
