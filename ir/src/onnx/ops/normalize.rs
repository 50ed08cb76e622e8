//! Normalisations, decomposed: fusion finds them again.

use crate::graph::Op;
use crate::onnx::builder::{Builder, axes, axis, ints};
use crate::onnx::call::{Call, Item, Outcome, one};
use crate::onnx::error::OpError;
use crate::{DType, Tensor, Value};

/// `x * scale + shift` with both folded from the statistics, in f64 where they are known.
pub(super) fn batch(b: &mut Builder, c: &Call) -> Outcome {
    if c.int("training_mode", 0)? != 0 {
        return training(b, c);
    }
    if c.wants(1) {
        return c.form("running statistics as results", "`training_mode`");
    }
    if c.int("spatial", 1)? == 0 {
        return c.form("statistics per element (`spatial` 0)", "statistics per channel");
    }
    let x = c.x(0)?;
    let mut given = [c.x(1)?, c.x(2)?, c.x(3)?, c.x(4)?];
    if given.iter().all(|&value| b.known(value).is_some()) {
        for value in &mut given {
            *value = b.cast(*value, DType::F64)?;
        }
    }
    let [scale, shift, mean, variance] = given;
    let padded = b.with(Op::Add, variance, c.float("epsilon", 1e-5)?)?;
    let deviation = b.unary(Op::Sqrt, padded)?;
    let scale = b.div(scale, deviation)?;
    let moved = b.mul(mean, scale)?;
    let shift = b.sub(shift, moved)?;
    let (dtype, rank) = (b.dtype(x), b.rank(x));
    let (scale, shift) = (b.cast(scale, dtype)?, b.cast(shift, dtype)?);
    let (scale, shift) = (b.channels(scale, rank)?, b.channels(shift, rank)?);
    let scaled = b.mul(x, scale)?;
    one(b.add(scaled, shift)?)
}

/// Statistics of the operand itself, and the running ones moved towards them.
fn training(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let rank = b.rank(x);
    let on: Vec<usize> = (0..rank).filter(|&axis| axis != 1).collect();
    let mean = b.mean(x, &on, true)?;
    let centred = b.sub(x, mean)?;
    let square = b.mul(centred, centred)?;
    let variance = b.mean(square, &on, true)?;
    let padded = b.with(Op::Add, variance, c.float("epsilon", 1e-5)?)?;
    let deviation = b.unary(Op::Sqrt, padded)?;
    let y = b.div(centred, deviation)?;
    let (scale, shift) = (b.channels(c.x(1)?, rank)?, b.channels(c.x(2)?, rank)?);
    let y = b.mul(y, scale)?;
    let mut results = vec![b.add(y, shift)?.into()];
    let momentum = c.float("momentum", 0.9)?;
    for (i, now) in [(3, mean), (4, variance)] {
        let n = b.ty(now).n_elems();
        let now = b.reshape(now, &[n])?;
        let kept = b.with(Op::Mul, c.x(i)?, momentum)?;
        let moved = b.with(Op::Mul, now, 1.0 - momentum)?;
        results.push(b.add(kept, moved)?.into());
    }
    Ok(results)
}

/// `(x - mean) / sqrt(variance + epsilon)` over `on`, with the mean and the inverse deviation.
fn standard(
    b: &mut Builder,
    x: Value,
    on: &[usize],
    epsilon: f64,
) -> Result<(Value, Value, Value), OpError> {
    let mean = b.mean(x, on, true)?;
    let centred = b.sub(x, mean)?;
    let square = b.mul(centred, centred)?;
    let variance = b.mean(square, on, true)?;
    let padded = b.with(Op::Add, variance, epsilon)?;
    let inverse = b.unary(Op::Rsqrt, padded)?;
    Ok((b.mul(centred, inverse)?, mean, inverse))
}

pub(super) fn instance(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let rank = b.rank(x);
    if rank < 3 {
        return Err(OpError::Operand {
            index: 0,
            found: b.ty(x).to_string(),
            expected: "rank 3 or more".into(),
        });
    }
    let on: Vec<usize> = (2..rank).collect();
    let (y, _, _) = standard(b, x, &on, c.float("epsilon", 1e-5)?)?;
    let (scale, shift) = (b.channels(c.x(1)?, rank)?, b.channels(c.x(2)?, rank)?);
    let scaled = b.mul(y, scale)?;
    one(b.add(scaled, shift)?)
}

/// Scale and shift are per group in opset 18 and per channel since 21.
pub(super) fn group(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let extents = b.extents(x);
    let n = usize::try_from(
        c.int_opt("num_groups")?.ok_or(OpError::MissingAttribute { name: "num_groups" })?,
    );
    let (Ok(n), [batch, channels, ..]) = (n, &extents[..]) else {
        return Err(OpError::Operand {
            index: 0,
            found: b.ty(x).to_string(),
            expected: "rank 2 or more".into(),
        });
    };
    if n == 0 || channels % n != 0 {
        let (found, expected) = (n.to_string(), format!("a divisor of {channels} channels"));
        return Err(OpError::Attribute { name: "num_groups".into(), found, expected });
    }
    let size = extents[1..].iter().product::<usize>() / n;
    let grouped = b.reshape(x, &[*batch, n, size])?;
    let (y, _, _) = standard(b, grouped, &[2], c.float("epsilon", 1e-5)?)?;
    let (mut scale, mut shift) = (c.x(1)?, c.x(2)?);
    if b.ty(scale).n_elems() == n && n != *channels {
        // Per group: as if per channel, each repeated.
        let each = channels / n;
        for value in [&mut scale, &mut shift] {
            let column = b.reshape(*value, &[n, 1])?;
            let wide = b.expand(column, &[n, each])?;
            *value = b.reshape(wide, &[*channels])?;
        }
    }
    let y = b.reshape(y, &extents)?;
    let rank = extents.len();
    let (scale, shift) = (b.channels(scale, rank)?, b.channels(shift, rank)?);
    let scaled = b.mul(y, scale)?;
    one(b.add(scaled, shift)?)
}

/// The axes from `axis` on, and the operand in the type that statistics are computed in.
fn tail(b: &mut Builder, c: &Call, x: Value) -> Result<(Vec<usize>, Value), OpError> {
    let rank = b.rank(x);
    let first = axis(c.int("axis", -1)?, rank)?;
    // `stash_type` 1 is f32: half precision would overflow in the squares.
    let wide = match c.int("stash_type", 1)? {
        1 if matches!(b.dtype(x), DType::F16 | DType::BF16) => b.cast(x, DType::F32)?,
        _ => x,
    };
    Ok(((first..rank).collect(), wide))
}

fn layer_of(
    b: &mut Builder,
    c: &Call,
    x: Value,
    scale: Option<Value>,
    shift: Option<Value>,
) -> Result<[Value; 3], OpError> {
    let (on, wide) = tail(b, c, x)?;
    let (y, mean, inverse) = standard(b, wide, &on, c.float("epsilon", 1e-5)?)?;
    let dtype = b.dtype(x);
    let mut y = b.cast(y, dtype)?;
    if let Some(scale) = scale {
        y = b.mul(y, scale)?;
    }
    if let Some(shift) = shift {
        y = b.add(y, shift)?;
    }
    Ok([y, mean, inverse])
}

pub(super) fn layer(b: &mut Builder, c: &Call) -> Outcome {
    let results = layer_of(b, c, c.x(0)?, c.opt(1)?, c.opt(2)?)?;
    Ok(results.map(Item::Tensor).to_vec())
}

/// `x / sqrt(mean(x²) + epsilon) * scale`.
fn rms_of(b: &mut Builder, c: &Call, x: Value, scale: Option<Value>) -> Result<Value, OpError> {
    let (on, wide) = tail(b, c, x)?;
    let square = b.mul(wide, wide)?;
    let mean = b.mean(square, &on, true)?;
    let padded = b.with(Op::Add, mean, c.float("epsilon", 1e-5)?)?;
    let inverse = b.unary(Op::Rsqrt, padded)?;
    let y = b.mul(wide, inverse)?;
    let dtype = b.dtype(x);
    let y = b.cast(y, dtype)?;
    match scale {
        Some(scale) => b.mul(y, scale),
        None => Ok(y),
    }
}

pub(super) fn rms(b: &mut Builder, c: &Call) -> Outcome {
    one(rms_of(b, c, c.x(0)?, c.opt(1)?)?)
}

/// Results: normalised, two statistics that nothing asks for, and the sum.
fn skip_results(c: &Call, y: Value, sum: Value) -> Outcome {
    if c.wants(1) || c.wants(2) {
        return c.form("the statistics as results", "the first and the fourth result");
    }
    Ok(vec![y.into(), Item::Poison, Item::Poison, sum.into()])
}

pub(super) fn skip_layer(b: &mut Builder, c: &Call) -> Outcome {
    let mut sum = b.add(c.x(0)?, c.x(1)?)?;
    if let Some(bias) = c.opt(4)? {
        sum = b.add(sum, bias)?;
    }
    let [y, _, _] = layer_of(b, c, sum, c.opt(2)?, c.opt(3)?)?;
    skip_results(c, y, sum)
}

pub(super) fn skip_rms(b: &mut Builder, c: &Call) -> Outcome {
    let mut sum = b.add(c.x(0)?, c.x(1)?)?;
    if let Some(bias) = c.opt(3)? {
        sum = b.add(sum, bias)?;
    }
    let y = rms_of(b, c, sum, c.opt(2)?)?;
    skip_results(c, y, sum)
}

/// `x / |x|` along an axis; a zero vector stays zero.
pub(super) fn lp(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let at = axis(c.int("axis", -1)?, b.rank(x))?;
    let norm = match c.int("p", 2)? {
        1 => {
            let size = b.unary(Op::Abs, x)?;
            b.reduce(Op::ReduceSum, size, &[at], true)?
        }
        2 => {
            let square = b.mul(x, x)?;
            let sum = b.reduce(Op::ReduceSum, square, &[at], true)?;
            b.unary(Op::Sqrt, sum)?
        }
        p => return c.form(format!("norm {p}"), "norms 1 and 2"),
    };
    let (none, unit) = (b.with(Op::Eq, norm, 0.0)?, b.scalar_like(x, 1.0));
    let norm = b.select(none, unit, norm)?;
    one(b.div(x, norm)?)
}

pub(super) fn mean_variance(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let on = axes(&c.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]), b.rank(x))?;
    let mean = b.mean(x, &on, true)?;
    let centred = b.sub(x, mean)?;
    let square = b.mul(centred, centred)?;
    let variance = b.mean(square, &on, true)?;
    let deviation = b.unary(Op::Sqrt, variance)?;
    // The standard's function body adds this to the deviation.
    let padded = b.with(Op::Add, deviation, 1e-9)?;
    one(b.div(centred, padded)?)
}

/// Squares are summed over a window of channels: `[N, C, ...]` seen as `[N, 1, C, ...]`.
pub(super) fn lrn(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let extents = b.extents(x);
    let size = c.int_opt("size")?.ok_or(OpError::MissingAttribute { name: "size" })?;
    let (Some(size), [n, channels, rest @ ..]) =
        (usize::try_from(size).ok().filter(|s| (1..1 << 20).contains(s)), &extents[..])
    else {
        return c.form(format!("size {size} on {}", b.ty(x)), "a positive size and rank 2 or more");
    };
    let square = b.mul(x, x)?;
    let flat = b.reshape(square, &[*n, 1, *channels, rest.iter().product()])?;
    let before = (size - 1) / 2;
    let attrs = vec![
        ints(&[size, 1]),
        ints(&[1, 1]),
        ints(&[before, 0]),
        ints(&[size - 1 - before, 0]),
        ints(&[1, 1]),
    ];
    let sum = b.apply(Op::SumPool, attrs, &[flat])?;
    let sum = b.reshape(sum, &extents)?;
    let scaled = b.with(Op::Mul, sum, c.float("alpha", 1e-4)? / size as f64)?;
    let base = b.with(Op::Add, scaled, c.float("bias", 1.0)?)?;
    let power = b.with(Op::Pow, base, c.float("beta", 0.75)?)?;
    one(b.div(x, power)?)
}

/// `(x - offset) * scale`, in f32.
pub(super) fn scaler(b: &mut Builder, c: &Call) -> Outcome {
    let x = b.cast(c.x(0)?, DType::F32)?;
    let list = |name: &str| -> Result<Tensor, OpError> {
        let list = c.floats(name)?.ok_or(OpError::MissingAttribute { name: "offset and scale" })?;
        let extents = if list.len() == 1 { vec![] } else { vec![list.len()] };
        Ok(Tensor::from_f64(DType::F32, &extents, &list))
    };
    let (offset, scale) = (list("offset")?, list("scale")?);
    let (offset, scale) = (b.constant(offset), b.constant(scale));
    let moved = b.sub(x, offset)?;
    one(b.mul(moved, scale)?)
}
