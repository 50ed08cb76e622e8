//! Attention and rotary embeddings of opset 23, decomposed.

use crate::graph::Op;
use crate::onnx::builder::Builder;
use crate::onnx::call::{Call, Item, Outcome, one};
use crate::onnx::error::OpError;
use crate::{DType, Value};

use super::movement::swap;
use super::reduce::softmax_at;

fn count(c: &Call, name: &'static str) -> Result<usize, OpError> {
    let found = c.int_opt(name)?.ok_or(OpError::MissingAttribute { name })?;
    usize::try_from(found).ok().filter(|n| (1..1 << 20).contains(n)).ok_or(OpError::Attribute {
        name: name.to_owned(),
        found: found.to_string(),
        expected: "a positive number".into(),
    })
}

/// `[B, S, heads * D]` as `[B, heads, S, D]`; rank 4 already is.
fn heads(
    b: &mut Builder,
    c: &Call,
    index: usize,
    x: Value,
    name: &'static str,
) -> Result<Value, OpError> {
    match b.extents(x)[..] {
        [_, _, _, _] => Ok(x),
        [batch, steps, width] => {
            let n = count(c, name)?;
            let split = b.reshape(x, &[batch, steps, n, width / n])?;
            b.transpose(split, &[0, 2, 1, 3])
        }
        _ => Err(OpError::Operand {
            index,
            found: b.ty(x).to_string(),
            expected: "rank 3 or 4".into(),
        }),
    }
}

/// Repeats each head for the query heads that share it.
fn share(b: &mut Builder, x: Value, n: usize) -> Result<Value, OpError> {
    let [batch, heads, steps, width] = b.extents(x)[..] else { unreachable!("rank 4") };
    if heads == n {
        return Ok(x);
    }
    let each = b.reshape(x, &[batch, heads, 1, steps, width])?;
    let wide = b.expand(each, &[batch, heads, n / heads.max(1), steps, width])?;
    b.reshape(wide, &[batch, n, steps, width])
}

/// Softmax over the last axis where a row that sees nothing is 0: a sum is at least 1 unless it is 0.
fn masked_softmax(b: &mut Builder, scores: Value) -> Result<Value, OpError> {
    let max = b.reduce(Op::ReduceMax, scores, &[3], true)?;
    let least = if b.dtype(scores) == DType::F16 { -65504.0 } else { f64::from(f32::MIN) };
    let max = b.with(Op::Max, max, least)?;
    let shifted = b.sub(scores, max)?;
    let exp = b.unary(Op::Exp, shifted)?;
    let sum = b.reduce(Op::ReduceSum, exp, &[3], true)?;
    let sum = b.with(Op::Max, sum, 1.0)?;
    b.div(exp, sum)
}

/// `softmax(scale Q Kᵀ + mask) V`, grouped heads, caches joined in front, causal and softcap.
pub(super) fn attention(b: &mut Builder, c: &Call) -> Outcome {
    let flat = b.rank(c.x(0)?) == 3;
    let q = heads(b, c, 0, c.x(0)?, "q_num_heads")?;
    let mut k = heads(b, c, 1, c.x(1)?, "kv_num_heads")?;
    let mut v = heads(b, c, 2, c.x(2)?, "kv_num_heads")?;
    if c.opt(6)?.is_some() {
        return c.form("nonpad_kv_seqlen", "a mask");
    }
    let mut past = 0;
    if let (Some(past_k), Some(past_v)) = (c.opt(4)?, c.opt(5)?) {
        past = b.extents(past_k).get(2).copied().unwrap_or(0);
        k = b.concat(&[past_k, k], 2)?;
        v = b.concat(&[past_v, v], 2)?;
    }
    let (present_k, present_v) = (k, v);
    let [batch, n, rows, depth] = b.extents(q)[..] else { unreachable!("rank 4") };
    let columns = b.extents(k)[2];
    let k = share(b, k, n)?;
    let v = share(b, v, n)?;
    let scale = c.float("scale", 0.0)?;
    let scale = if scale == 0.0 { 1.0 / (depth as f64).sqrt() } else { scale };
    let turned = swap(b, k, 2, 3)?;
    let q = b.with(Op::Mul, q, scale)?;
    let mut scores = b.matmul(q, turned)?;
    let raw = scores;
    let cap = c.float("softcap", 0.0)?;
    if cap != 0.0 {
        let small = b.with(Op::Div, scores, cap)?;
        let tanh = b.unary(Op::Tanh, small)?;
        scores = b.with(Op::Mul, tanh, cap)?;
    }
    // Where nothing may be seen the score is -inf whatever it was: a NaN there must not spread.
    let low = b.scalar_like(q, f64::NEG_INFINITY);
    let causal = c.int("is_causal", 0)? != 0;
    if causal {
        let row = b.iota(&[rows, 1], 0, DType::I64)?;
        let row = b.with(Op::Add, row, past as f64)?;
        let column = b.iota(&[1, columns], 1, DType::I64)?;
        let seen = b.binary(Op::Le, column, row)?;
        scores = b.select(seen, scores, low)?;
    }
    let mask = c.opt(3)?;
    if let Some(mask) = mask {
        scores = match b.dtype(mask) {
            DType::Bool => b.select(mask, scores, low)?,
            _ => b.add(scores, mask)?,
        };
    }
    if c.wants(3) && c.int("qk_matmul_output_mode", 0)? != 0 {
        return c.form("this qk_matmul_output_mode", "mode 0");
    }
    let weights = if causal || mask.is_some() {
        masked_softmax(b, scores)?
    } else {
        softmax_at(b, scores, 3)?
    };
    let mut y = b.matmul(weights, v)?;
    if flat {
        let width = b.extents(y)[3];
        let moved = b.transpose(y, &[0, 2, 1, 3])?;
        y = b.reshape(moved, &[batch, rows, n * width])?;
    }
    Ok([y, present_k, present_v, raw].map(Item::Tensor).to_vec())
}

/// Pairs of elements turn by the angles of their position.
pub(super) fn rotary_embedding(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let flat = b.rank(x) == 3;
    let x4 = heads(b, c, 0, x, "num_heads")?;
    let [batch, n, steps, width] = b.extents(x4)[..] else { unreachable!("rank 4") };
    let (mut cos, mut sin) = (c.x(1)?, c.x(2)?);
    if let Some(positions) = c.opt(3)? {
        (cos, sin) = (b.gather(cos, positions, 0)?, b.gather(sin, positions, 0)?);
    }
    let rotated = match c.int("rotary_embedding_dim", 0)? {
        0 => width,
        n => usize::try_from(n).ok().filter(|&n| n <= width).unwrap_or(width),
    };
    let half = rotated / 2;
    // [B, S, half] to [B, 1, S, half].
    for table in [&mut cos, &mut sin] {
        let cut = b.rank(*table).saturating_sub(1);
        *table = b.narrow(*table, cut, 0, half)?;
        *table = b.reshape(*table, &[batch, 1, steps, half])?;
    }
    let turning = b.narrow(x4, 3, 0, rotated)?;
    let rest = b.narrow(x4, 3, rotated, width - rotated)?;
    let interleaved = c.int("interleaved", 0)? != 0;
    let (left, right) = if interleaved {
        let pairs = b.reshape(turning, &[batch, n, steps, half, 2])?;
        let (left, right) = (b.narrow(pairs, 4, 0, 1)?, b.narrow(pairs, 4, 1, 1)?);
        (b.squeeze(left, 4)?, b.squeeze(right, 4)?)
    } else {
        (b.narrow(turning, 3, 0, half)?, b.narrow(turning, 3, half, half)?)
    };
    let (lc, rs, ls, rc) =
        (b.mul(left, cos)?, b.mul(right, sin)?, b.mul(left, sin)?, b.mul(right, cos)?);
    let (real, imaginary) = (b.sub(lc, rs)?, b.add(ls, rc)?);
    let turned = if interleaved {
        let (real, imaginary) = (b.unsqueeze(real, 4)?, b.unsqueeze(imaginary, 4)?);
        let pairs = b.concat(&[real, imaginary], 4)?;
        b.reshape(pairs, &[batch, n, steps, rotated])?
    } else {
        b.concat(&[real, imaginary], 3)?
    };
    let mut y = if rotated == width { turned } else { b.concat(&[turned, rest], 3)? };
    if flat {
        let moved = b.transpose(y, &[0, 2, 1, 3])?;
        y = b.reshape(moved, &[batch, steps, n * width])?;
    }
    one(y)
}

/// The recurrence of linear attention, unrolled over the steps:
/// `S ← exp(g) S + β k (v - exp(g) Sᵀ k)ᵀ`, `o = scale Sᵀ q`, with the gate or the delta left out by rule.
pub(super) fn linear_attention(b: &mut Builder, c: &Call) -> Outcome {
    let rule = c.word("update_rule", "gated_delta")?;
    let (gated, delta) = match rule.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => {
            return c
                .form(format!("update rule `{other}`"), "linear, gated, delta and gated_delta");
        }
    };
    let (n_q, n_kv) = (count(c, "q_num_heads")?, count(c, "kv_num_heads")?);
    let (q, k, v) = (c.x(0)?, c.x(1)?, c.x(2)?);
    for index in [1, 2, 4, 5] {
        if let Some(value) = c.opt(index)?.filter(|&value| b.rank(value) != 3) {
            return Err(OpError::Operand {
                index,
                found: b.ty(value).to_string(),
                expected: "rank 3".into(),
            });
        }
    }
    let ([batch, steps, q_width], [_, _, v_width]) = (&b.extents(q)[..], &b.extents(v)[..]) else {
        return Err(OpError::Operand {
            index: 0,
            found: b.ty(q).to_string(),
            expected: "rank 3".into(),
        });
    };
    let (batch, steps, d_k, d_v) = (*batch, *steps, q_width / n_q, v_width / n_kv);
    if steps == 0 || steps > 4096 || n_q % n_kv != 0 {
        return c.form(
            format!("{steps} steps of {n_q} and {n_kv} heads"),
            "1 to 4096 steps and grouped heads",
        );
    }
    let scale = c.float("scale", 0.0)?;
    let scale = if scale == 0.0 { 1.0 / (d_k as f64).sqrt() } else { scale };
    // [B, T, heads * D] to [B, heads, T, D].
    let split = |b: &mut Builder, x: Value, n: usize| {
        let width = b.extents(x)[2] / n;
        let apart = b.reshape(x, &[batch, steps, n, width])?;
        b.transpose(apart, &[0, 2, 1, 3])
    };
    let (q, k, v) = (split(b, q, n_q)?, split(b, k, n_kv)?, split(b, v, n_kv)?);
    let q = b.with(Op::Mul, q, scale)?;
    let gate = match (gated, c.opt(4)?) {
        (false, _) => None,
        (true, Some(g)) => {
            let g = split(b, g, n_kv)?;
            Some(b.unary(Op::Exp, g)?)
        }
        (true, None) => return Err(OpError::MissingInput { index: 4 }),
    };
    let beta = match (delta, c.opt(5)?) {
        (false, _) => None,
        (true, Some(beta)) => {
            let n = b.extents(beta)[2].clamp(1, n_kv);
            Some(split(b, beta, n)?)
        }
        (true, None) => return Err(OpError::MissingInput { index: 5 }),
    };
    let mut state = match c.opt(3)? {
        Some(state) => state,
        None => {
            let zero = b.scalar_like(q, 0.0);
            b.expand(zero, &[batch, n_kv, d_k, d_v])?
        }
    };
    let mut outputs = Vec::with_capacity(steps);
    for t in 0..steps {
        // A row as a column of the state: [B, heads, D, 1].
        let column = |b: &mut Builder, x: Value| {
            let row = b.narrow(x, 2, t, 1)?;
            swap(b, row, 2, 3)
        };
        if let Some(gate) = gate {
            let gate = column(b, gate)?;
            state = b.mul(state, gate)?;
        }
        let key = column(b, k)?;
        let mut value = b.narrow(v, 2, t, 1)?;
        if let Some(beta) = beta {
            let known = b.mul(state, key)?;
            let known = b.reduce(Op::ReduceSum, known, &[2], true)?;
            value = b.sub(value, known)?;
            let beta = b.narrow(beta, 2, t, 1)?;
            value = b.mul(value, beta)?;
        }
        let outer = b.mul(key, value)?;
        state = b.add(state, outer)?;
        // Query heads that share a state: [B, kv, group, d_k] x [B, kv, d_k, d_v].
        let row = b.narrow(q, 2, t, 1)?;
        let row = b.reshape(row, &[batch, n_kv, n_q / n_kv, d_k])?;
        let out = b.matmul(row, state)?;
        outputs.push(b.reshape(out, &[batch, 1, n_q * d_v])?);
    }
    Ok(vec![b.concat(&outputs, 1)?.into(), state.into()])
}
