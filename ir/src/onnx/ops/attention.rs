//! Attention and rotary embeddings of opset 23, decomposed.

use crate::graph::Op;
use crate::onnx::builder::Builder;
use crate::onnx::call::{Call, Item, Outcome, one};
use crate::onnx::error::OpError;
use crate::onnx::import::{Importer, Scope};
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
    // The least finite number: that of f32 is -inf in narrower types.
    let least = match b.dtype(scores) {
        DType::F16 => f64::from(half::f16::MIN),
        DType::BF16 => f64::from(half::bf16::MIN),
        _ => f64::from(f32::MIN),
    };
    let max = b.with(Op::Max, max, least)?;
    let shifted = b.sub(scores, max)?;
    let exp = b.unary(Op::Exp, shifted)?;
    let sum = b.reduce(Op::ReduceSum, exp, &[3], true)?;
    let sum = b.with(Op::Max, sum, 1.0)?;
    b.div(exp, sum)
}

/// Which keys each query may see, beside the mask: `[rows, columns]`, or `[B, 1, rows, columns]` where the
/// number of valid keys is an operand. A query's own position is its row behind the keys that precede it.
fn visible(
    b: &mut Builder,
    c: &Call,
    [rows, columns]: [usize; 2],
    past: usize,
    valid: Option<Value>,
) -> Result<Option<Value>, OpError> {
    let causal = c.int("is_causal", 0)? != 0;
    let (left, right) = (c.int("left_window_size", -1)?, c.int("right_window_size", -1)?);
    let mut seen: Option<Value> = None;
    let column = b.iota(&[1, columns], 1, DType::I64)?;
    let valid = match valid {
        None => None,
        Some(valid) => {
            let n = b.ty(valid).n_elems();
            let valid = b.cast(valid, DType::I64)?;
            Some(b.reshape(valid, &[n, 1, 1, 1])?)
        }
    };
    let mut also = |b: &mut Builder, one: Value| -> Result<(), OpError> {
        seen = Some(match seen {
            Some(seen) => b.binary(Op::And, seen, one)?,
            None => one,
        });
        Ok(())
    };
    if causal || left >= 0 || right >= 0 {
        let row = b.iota(&[rows, 1], 0, DType::I64)?;
        let row = match valid {
            Some(valid) => {
                let first = b.with(Op::Sub, valid, rows as f64)?;
                b.add(row, first)?
            }
            None => b.with(Op::Add, row, past as f64)?,
        };
        if causal {
            let one = b.binary(Op::Le, column, row)?;
            also(b, one)?;
        }
        if left >= 0 {
            let first = b.with(Op::Sub, row, left as f64)?;
            let one = b.binary(Op::Le, first, column)?;
            also(b, one)?;
        }
        if right >= 0 {
            let last = b.with(Op::Add, row, right as f64)?;
            let one = b.binary(Op::Le, column, last)?;
            also(b, one)?;
        }
    }
    if let Some(valid) = valid {
        let one = b.binary(Op::Lt, column, valid)?;
        also(b, one)?;
    }
    Ok(seen)
}

/// A mask may be shorter than the keys: what it does not mention is not seen.
fn whole_mask(b: &mut Builder, mask: Value, columns: usize) -> Result<Value, OpError> {
    let rank = b.rank(mask);
    let short = rank.checked_sub(1).map_or(columns, |last| b.extents(mask)[last]);
    if short >= columns || short == 1 {
        return Ok(mask);
    }
    let (before, mut after) = (vec![0; rank], vec![0; rank]);
    after[rank - 1] = columns - short;
    if b.dtype(mask) != DType::Bool {
        return b.pad(mask, &before, &after, "constant", f64::NEG_INFINITY);
    }
    let bytes = b.cast(mask, DType::U8)?;
    let padded = b.pad(bytes, &before, &after, "constant", 0.0)?;
    b.cast(padded, DType::Bool)
}

/// The element type of a softmax, where it is given.
fn precision(c: &Call) -> Result<Option<DType>, OpError> {
    let Some(code) = c.int_opt("softmax_precision")? else { return Ok(None) };
    match i32::try_from(code).ok().and_then(DType::from_onnx).filter(|dtype| dtype.is_float()) {
        Some(dtype) => Ok(Some(dtype)),
        None => c.form(format!("softmax_precision {code}"), "floats"),
    }
}

/// `softmax(scale Q Kᵀ + mask) V`, grouped heads, caches joined in front, causal, windows and softcap.
pub(super) fn attention(b: &mut Builder, c: &Call) -> Outcome {
    let flat = b.rank(c.x(0)?) == 3;
    let q = heads(b, c, 0, c.x(0)?, "q_num_heads")?;
    let mut k = heads(b, c, 1, c.x(1)?, "kv_num_heads")?;
    let mut v = heads(b, c, 2, c.x(2)?, "kv_num_heads")?;
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
    let capped = scores;
    // Where nothing may be seen the score is -inf whatever it was: a NaN there must not spread.
    let low = b.scalar_like(q, f64::NEG_INFINITY);
    let seen = visible(b, c, [rows, columns], past, c.opt(6)?)?;
    if let Some(seen) = seen {
        scores = b.select(seen, scores, low)?;
    }
    let mask = c.opt(3)?;
    if let Some(mask) = mask {
        let mask = whole_mask(b, mask, columns)?;
        scores = match b.dtype(mask) {
            DType::Bool => b.select(mask, scores, low)?,
            _ => b.add(scores, mask)?,
        };
    }
    let masked = scores;
    let dtype = b.dtype(scores);
    if let Some(precision) = precision(c)? {
        scores = b.cast(scores, precision)?;
    }
    let weights = if seen.is_some() || mask.is_some() {
        masked_softmax(b, scores)?
    } else {
        softmax_at(b, scores, 3)?
    };
    let weights = b.cast(weights, dtype)?;
    let shown = match c.int("qk_matmul_output_mode", 0)? {
        0 => raw,
        1 => capped,
        2 => masked,
        3 => weights,
        other => return c.form(format!("qk_matmul_output_mode {other}"), "modes 0 to 3"),
    };
    let mut y = b.matmul(weights, v)?;
    if flat {
        let width = b.extents(y)[3];
        let moved = b.transpose(y, &[0, 2, 1, 3])?;
        y = b.reshape(moved, &[batch, rows, n * width])?;
    }
    Ok([y, present_k, present_v, shown].map(Item::Tensor).to_vec())
}

/// Attention whose scores and probabilities pass through subgraphs.
pub(super) fn flex_attention(imp: &mut Importer<'_>, scope: &Scope<'_>, c: &Call) -> Outcome {
    let (q, k, v) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let [_, n, _, depth] = imp.b.extents(q)[..] else {
        let found = imp.b.ty(q).to_string();
        return Err(OpError::Operand { index: 0, found, expected: "rank 4".into() });
    };
    if imp.b.rank(k) != 4 || imp.b.rank(v) != 4 {
        let found = imp.b.ty(k).to_string();
        return Err(OpError::Operand { index: 1, found, expected: "rank 4".into() });
    }
    let b = &mut imp.b;
    let (k, v) = (share(b, k, n)?, share(b, v, n)?);
    let given = c.float("scale", 0.0)?;
    let scale = if given == 0.0 { 1.0 / (depth as f64).sqrt() } else { given };
    let dtype = b.dtype(q);
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let wide = precision(c)?.unwrap_or(wide);
    let turned = swap(b, k, 2, 3)?;
    let scaled = b.with(Op::Mul, q, scale)?;
    let scores = b.matmul(scaled, turned)?;
    let mut scores = b.cast(scores, wide)?;
    let modify = |imp: &mut Importer<'_>, name: &'static str, x: Value| -> Result<Value, OpError> {
        if !c.has(name) {
            return Ok(x);
        }
        let path = format!("{}/{name}", c.path);
        let results = imp.subgraph(c.graph(name)?, scope, &path, vec![x.into()])?;
        imp.b.source = c.path.to_owned();
        match results.first() {
            Some(Item::Tensor(y)) if imp.b.ty(*y) == imp.b.ty(x) => Ok(*y),
            Some(Item::Tensor(y)) => Err(OpError::Attribute {
                name: name.to_owned(),
                found: format!("a graph that returns {}", imp.b.ty(*y)),
                expected: imp.b.ty(x).to_string(),
            }),
            _ => Err(OpError::Poisoned),
        }
    };
    scores = modify(imp, "score_mod", scores)?;
    let weights = masked_softmax(&mut imp.b, scores)?;
    let weights = modify(imp, "prob_mod", weights)?;
    let weights = imp.b.cast(weights, dtype)?;
    one(imp.b.matmul(weights, v)?)
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
