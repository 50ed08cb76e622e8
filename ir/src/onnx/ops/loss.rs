//! Losses: the score of the target class, picked by comparing each class with it.

use crate::graph::Op;
use crate::onnx::builder::Builder;
use crate::onnx::call::{Call, Item, Outcome, one};
use crate::onnx::error::OpError;
use crate::{DType, Value};

use super::reduce::log_softmax_at;

/// `-weight[target] * x[target]` per position of `[N, d1, ...]`, reduced. `x` is `[N, C, d1, ...]`.
fn loss(b: &mut Builder, c: &Call, x: Value) -> Result<Value, OpError> {
    let target = c.x(1)?;
    let extents = b.extents(x);
    let (rank, target_extents) = (extents.len(), b.extents(target));
    let fits = rank >= 2
        && target_extents.first() == extents.first()
        && target_extents[1..] == extents[2..]
        && target_extents.len() + 1 == rank;
    if !fits {
        let expected = format!("the shape of {} without its classes", b.ty(x));
        return Err(OpError::Operand { index: 1, found: b.ty(target).to_string(), expected });
    }
    let target = b.cast(target, DType::I64)?;
    let wide = b.unsqueeze(target, 1)?;
    let mut shape = vec![1; rank];
    shape[1] = extents[1];
    let class = b.iota(&shape, 1, DType::I64)?;
    let mut hit = b.binary(Op::Eq, class, wide)?;
    let ignored = match c.int_opt("ignore_index")? {
        None => None,
        Some(index) => {
            let index = b.constant(crate::Tensor::i64(&[], &[index]));
            let ignored = b.binary(Op::Eq, wide, index)?;
            let kept = b.unary(Op::Not, ignored)?;
            hit = b.binary(Op::And, hit, kept)?;
            Some(kept)
        }
    };
    let zero = b.scalar_like(x, 0.0);
    let picked = b.select(hit, x, zero)?;
    let picked = b.reduce(Op::ReduceSum, picked, &[1], false)?;
    let mut loss = b.unary(Op::Neg, picked)?;
    let dtype = b.dtype(x);
    let weights = match (c.opt(2)?, ignored) {
        (Some(weights), _) => {
            let weights = b.channels(weights, rank)?;
            let weights = b.select(hit, weights, zero)?;
            let weights = b.reduce(Op::ReduceSum, weights, &[1], false)?;
            loss = b.mul(loss, weights)?;
            Some(weights)
        }
        (None, Some(kept)) => {
            let kept = b.squeeze(kept, 1)?;
            Some(b.cast(kept, dtype)?)
        }
        (None, None) => None,
    };
    let all: Vec<usize> = (0..rank - 1).collect();
    match c.word("reduction", "mean")?.as_str() {
        "none" => Ok(loss),
        "sum" => b.reduce(Op::ReduceSum, loss, &all, false),
        "mean" => match weights {
            None => b.mean(loss, &all, false),
            Some(weights) => {
                let loss = b.reduce(Op::ReduceSum, loss, &all, false)?;
                let total = b.reduce(Op::ReduceSum, weights, &all, false)?;
                b.div(loss, total)
            }
        },
        other => c.form(format!("reduction `{other}`"), "none, sum and mean"),
    }
}

pub(super) fn negative_log_likelihood(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    one(loss(b, c, x)?)
}

/// The same of a log-softmax over the classes, which is the second result.
pub(super) fn softmax_cross_entropy(b: &mut Builder, c: &Call) -> Outcome {
    let log = log_softmax_at(b, c.x(0)?, 1)?;
    Ok([loss(b, c, log)?, log].map(Item::Tensor).to_vec())
}
