//! Convolutions and pools: geometry is normalised here (`auto_pad`, `ceil_mode`, bias, divisors).

use crate::graph::{Attr, Op};
use crate::onnx::builder::{Builder, ints};
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::error::OpError;
use crate::shape::row_major_strides;
use crate::{Tensor, Value};

/// Where the windows of an operator lie, per spatial axis.
#[derive(Clone)]
pub(super) struct Geometry {
    pub(super) kernel: Vec<usize>,
    pub(super) strides: Vec<usize>,
    pub(super) before: Vec<usize>,
    pub(super) after: Vec<usize>,
    pub(super) dilations: Vec<usize>,
}

impl Geometry {
    fn attrs(&self) -> Vec<Attr> {
        [&self.kernel, &self.strides, &self.before, &self.after, &self.dilations]
            .map(|list| ints(list))
            .to_vec()
    }

    /// Extent of the window with its holes.
    fn window(&self, axis: usize) -> usize {
        (self.kernel[axis] - 1).saturating_mul(self.dilations[axis]).saturating_add(1)
    }
}

/// A list attribute with one number per axis, from `least`.
fn per_axis(
    c: &Call,
    name: &str,
    n: usize,
    default: i64,
    least: i64,
) -> Result<Vec<usize>, OpError> {
    let list = c.ints(name)?.filter(|list| !list.is_empty()).unwrap_or_else(|| vec![default; n]);
    let in_range = list.iter().all(|x| (least..1 << 31).contains(x));
    if list.len() != n || !in_range {
        let expected = format!("{n} numbers from {least}");
        return Err(OpError::Attribute {
            name: name.to_owned(),
            found: format!("{list:?}"),
            expected,
        });
    }
    Ok(list.into_iter().map(|x| x as usize).collect())
}

/// The extents of `[N, C, spatial...]` after the first two.
fn spatial(b: &Builder, x: Value) -> Result<Vec<usize>, OpError> {
    match &b.extents(x)[..] {
        [_, _, spatial @ ..] if (1..=3).contains(&spatial.len()) => Ok(spatial.to_vec()),
        _ => Err(OpError::Form {
            form: b.ty(x).to_string(),
            nearest: Some("1 to 3 spatial axes".into()),
        }),
    }
}

fn geometry(c: &Call, extents: &[usize], kernel: Vec<usize>) -> Result<Geometry, OpError> {
    let n = extents.len();
    let strides = per_axis(c, "strides", n, 1, 1)?;
    let dilations = per_axis(c, "dilations", n, 1, 1)?;
    let mut pads = per_axis(c, "pads", 2 * n, 0, 0)?;
    let mut g = Geometry { kernel, strides, before: vec![0; n], after: vec![0; n], dilations };
    let auto = c.word("auto_pad", "NOTSET")?;
    match auto.as_str() {
        "" | "NOTSET" => {
            g.after = pads.split_off(n);
            g.before = pads;
        }
        "VALID" => (),
        "SAME_UPPER" | "SAME_LOWER" => {
            for (axis, &extent) in extents.iter().enumerate() {
                let positions = extent.div_ceil(g.strides[axis]);
                let reach =
                    (positions.saturating_sub(1) * g.strides[axis]).saturating_add(g.window(axis));
                let total = reach.saturating_sub(extent);
                let (less, more) = (total / 2, total - total / 2);
                (g.before[axis], g.after[axis]) =
                    if auto == "SAME_UPPER" { (less, more) } else { (more, less) };
            }
        }
        other => {
            return c
                .form(format!("auto_pad `{other}`"), "NOTSET, VALID, SAME_UPPER and SAME_LOWER");
        }
    }
    Ok(g)
}

/// The kernel's extents: those of the filter, which an attribute may repeat.
fn filter_kernel(b: &Builder, c: &Call, w: Value, n: usize) -> Result<Vec<usize>, OpError> {
    let extents = b.extents(w);
    let wrong =
        |expected: String| OpError::Operand { index: 1, found: b.ty(w).to_string(), expected };
    if extents.len() != n + 2 || extents[2..].contains(&0) {
        return Err(wrong(format!("a filter with {n} spatial axes")));
    }
    let kernel = extents[2..].to_vec();
    match c.ints("kernel_shape")? {
        Some(list) if list.iter().map(|&x| x as usize).ne(kernel.iter().copied()) => {
            Err(wrong(format!("`kernel_shape` {list:?}")))
        }
        _ => Ok(kernel),
    }
}

fn with_bias(b: &mut Builder, x: Value, bias: Option<Value>) -> Outcome {
    let Some(bias) = bias else { return one(x) };
    let bias = b.channels(bias, b.rank(x))?;
    one(b.add(x, bias)?)
}

pub(super) fn groups(c: &Call) -> Result<i64, OpError> {
    match c.int("group", 1)? {
        n @ 1..=0x7fff_ffff => Ok(n),
        n => Err(OpError::Attribute {
            name: "group".into(),
            found: n.to_string(),
            expected: "1 or more".into(),
        }),
    }
}

/// A convolution of `x` and `w` with the attributes of the call, without bias.
pub(super) fn convolve(b: &mut Builder, c: &Call, x: Value, w: Value) -> Result<Value, OpError> {
    let extents = spatial(b, x)?;
    let kernel = filter_kernel(b, c, w, extents.len())?;
    let g = geometry(c, &extents, kernel)?;
    let mut attrs = g.attrs().split_off(1);
    attrs.push(Attr::Int(groups(c)?));
    b.apply(Op::Conv, attrs, &[x, w])
}

pub(super) fn conv(b: &mut Builder, c: &Call) -> Outcome {
    let y = convolve(b, c, c.x(0)?, c.x(1)?)?;
    with_bias(b, y, c.opt(2)?)
}

pub(super) fn conv_transpose(b: &mut Builder, c: &Call) -> Outcome {
    let (x, w) = (c.x(0)?, c.x(1)?);
    let extents = spatial(b, x)?;
    let n = extents.len();
    let kernel = filter_kernel(b, c, w, n)?;
    let (strides, dilations) =
        (per_axis(c, "strides", n, 1, 1)?, per_axis(c, "dilations", n, 1, 1)?);
    let mut extra = per_axis(c, "output_padding", n, 0, 0)?;
    let mut pads = per_axis(c, "pads", 2 * n, 0, 0)?;
    let mut after = pads.split_off(n);
    let mut before = pads;
    let auto = c.word("auto_pad", "NOTSET")?;
    let same = matches!(auto.as_str(), "SAME_UPPER" | "SAME_LOWER");
    if !same && !matches!(auto.as_str(), "" | "NOTSET" | "VALID") {
        return c.form(format!("auto_pad `{auto}`"), "NOTSET, VALID, SAME_UPPER and SAME_LOWER");
    }
    let wanted = match c.ints("output_shape")?.filter(|list| !list.is_empty()) {
        // Some exporters give the whole shape.
        Some(list) if list.len() == n + 2 => Some(list[2..].to_vec()),
        Some(list) => Some(list),
        None if same => Some(
            (0..n)
                .map(|axis| extents[axis].saturating_mul(strides[axis]).min(1 << 40) as i64)
                .collect(),
        ),
        None => None,
    };
    if let Some(wanted) = wanted {
        let wanted: Option<Vec<usize>> = wanted.iter().map(|&x| usize::try_from(x).ok()).collect();
        let Some(wanted) = wanted.filter(|wanted| wanted.len() == n) else {
            return c.form("this output_shape", "one extent per spatial axis");
        };
        for axis in 0..n {
            let steps = strides[axis].saturating_mul(extents[axis].saturating_sub(1));
            let window = (kernel[axis] - 1).saturating_mul(dilations[axis]).saturating_add(1);
            let full = steps.saturating_add(window).saturating_add(extra[axis]);
            if full < wanted[axis] {
                extra[axis] += wanted[axis] - full;
            }
            let total = full.saturating_sub(wanted[axis]);
            let (less, more) = (total / 2, total - total / 2);
            (before[axis], after[axis]) =
                if auto == "SAME_UPPER" { (less, more) } else { (more, less) };
        }
    } else if auto == "VALID" {
        (before, after) = (vec![0; n], vec![0; n]);
    }
    let attrs = vec![
        ints(&strides),
        ints(&before),
        ints(&after),
        ints(&dilations),
        Attr::Int(groups(c)?),
        ints(&extra),
    ];
    let y = b.apply(Op::ConvTranspose, attrs, &[x, w])?;
    with_bias(b, y, c.opt(2)?)
}

/// Geometry of a pool. With `ceil_mode` the padding behind grows until the last window fits; a window
/// that would start in that padding is left out.
fn pool(b: &Builder, c: &Call, x: Value) -> Result<(Geometry, Geometry), OpError> {
    let extents = spatial(b, x)?;
    let n = extents.len();
    if !c.has("kernel_shape") {
        return Err(OpError::MissingAttribute { name: "kernel_shape" });
    }
    let declared = geometry(c, &extents, per_axis(c, "kernel_shape", n, 1, 1)?)?;
    let mut g = declared.clone();
    if c.int("ceil_mode", 0)? != 0 {
        for (axis, &extent) in extents.iter().enumerate() {
            let padded = extent + g.before[axis] + g.after[axis];
            let Some(room) = padded.checked_sub(g.window(axis)) else { continue };
            let mut positions = room.div_ceil(g.strides[axis]) + 1;
            if (positions - 1) * g.strides[axis] >= extent + g.before[axis] {
                positions -= 1;
            }
            let reach =
                (positions.saturating_sub(1) * g.strides[axis]).saturating_add(g.window(axis));
            g.after[axis] = g.after[axis].max(reach.saturating_sub(extent + g.before[axis]));
        }
    }
    Ok((declared, g))
}

pub(super) fn max_pool(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let (_, g) = pool(b, c, x)?;
    let y = b.apply(Op::MaxPool, g.attrs(), &[x])?;
    if !c.wants(1) {
        return one(y);
    }
    let indices = pooled_indices(b, c, x, &g)?;
    Ok(vec![y.into(), indices.into()])
}

/// Where the maximum of each window is in the flat operand: each tap of the window against the best so far.
fn pooled_indices(b: &mut Builder, c: &Call, x: Value, g: &Geometry) -> Result<Value, OpError> {
    /// More taps are not unrolled.
    const MAX_TAPS: usize = 256;
    let from = b.extents(x);
    let n = g.kernel.len();
    let n_taps: usize = g.kernel.iter().product();
    if n_taps > MAX_TAPS {
        return c.form(format!("indices of windows of {n_taps}"), "at most 256 elements");
    }
    let (mut before, mut after) = (vec![0; 2], vec![0; 2]);
    before.extend(&g.before);
    after.extend(&g.after);
    let padded = b.pad(x, &before, &after, "constant", f64::NEG_INFINITY)?;
    let padded =
        if b.dtype(x).is_float() { padded } else { b.pad(x, &before, &after, "edge", 0.0)? };
    let wide = b.extents(padded);
    let to: Vec<usize> =
        (0..n).map(|axis| (wide[axis + 2] - g.window(axis)) / g.strides[axis] + 1).collect();
    // Strides of the index: column-major counts the first spatial axis fastest.
    let mut strides = row_major_strides(&from);
    if c.int("storage_order", 0)? != 0 {
        let mut stride = 1;
        for axis in 0..n {
            strides[axis + 2] = stride;
            stride *= from[axis + 2];
        }
    }
    let rank = n + 2;
    let mut best: Option<(Value, Value)> = None;
    for tap in 0..n_taps {
        let mut rest = tap;
        let mut at = vec![0; n];
        for axis in (0..n).rev() {
            at[axis] = rest % g.kernel[axis] * g.dilations[axis];
            rest /= g.kernel[axis];
        }
        let starts: Vec<i64> = [0, 0].into_iter().chain(at.iter().map(|&i| i as i64)).collect();
        let steps: Vec<i64> =
            [1, 1].into_iter().chain(g.strides.iter().map(|&step| step as i64)).collect();
        let value = b.slice(padded, &starts, &[&from[..2], &to].concat(), &steps)?;
        let mut index = b.constant(Tensor::i64(&vec![1; rank], &[0]));
        for axis in 0..rank {
            let count = if axis < 2 { from[axis] } else { to[axis - 2] };
            let mut shape = vec![1; rank];
            shape[axis] = count;
            let along = |i: usize| -> i64 {
                if axis < 2 {
                    return (i * strides[axis]) as i64;
                }
                let k = axis - 2;
                let place = (i * g.strides[k] + at[k]) as i64 - g.before[k] as i64;
                place.clamp(0, from[axis] as i64 - 1) * strides[axis] as i64
            };
            let list: Vec<i64> = (0..count).map(along).collect();
            let list = b.constant(Tensor::i64(&shape, &list));
            index = b.add(index, list)?;
        }
        best = Some(match best {
            None => (value, index),
            Some((best, best_index)) => {
                let better = b.binary(Op::Lt, best, value)?;
                (b.select(better, value, best)?, b.select(better, index, best_index)?)
            }
        });
    }
    let (_, index) = best.expect("a window has a tap");
    b.expand(index, &[&from[..2], &to].concat())
}

/// Puts elements back to where a pool found them: each place sums the elements whose index it is.
pub(super) fn max_unpool(b: &mut Builder, c: &Call) -> Outcome {
    /// Pairs of a place and an element.
    const MAX_PAIRS: usize = 1 << 24;
    let (x, indices) = (c.x(0)?, c.x(1)?);
    let extents = spatial(b, x)?;
    let n = extents.len();
    let kernel = per_axis(c, "kernel_shape", n, 1, 1)?;
    let strides = per_axis(c, "strides", n, 1, 1)?;
    let pads = per_axis(c, "pads", 2 * n, 0, 0)?;
    let from = b.extents(x);
    let mut natural = from[..2].to_vec();
    for axis in 0..n {
        let full = (extents[axis].saturating_sub(1) * strides[axis]) + kernel[axis];
        natural.push(full.saturating_sub(pads[axis] + pads[axis + n]));
    }
    let to: Vec<usize> = match c.opt(2)? {
        None => natural.clone(),
        Some(shape) => {
            let shape = b.known_ints(shape, "`output_shape`")?;
            shape.iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect()
        }
    };
    let (n_from, n_to): (usize, usize) = (from.iter().product(), to.iter().product());
    if to.len() != from.len() || n_from.saturating_mul(n_to) > MAX_PAIRS {
        return c.form(format!("{} unpooled to {to:?}", b.ty(x)), "fewer elements");
    }
    // Indices count in the shape without the explicit one.
    let indices = b.cast(indices, crate::DType::I64)?;
    let indices = if to == natural {
        indices
    } else {
        let (old, new) = (row_major_strides(&natural), row_major_strides(&to));
        let mut sum = b.constant(Tensor::i64(&[], &[0]));
        for axis in 0..to.len() {
            let coordinate = b.with(Op::Div, indices, old[axis] as f64)?;
            let coordinate = b.with(Op::Mod, coordinate, natural[axis] as f64)?;
            let term = b.with(Op::Mul, coordinate, new[axis] as f64)?;
            sum = b.add(sum, term)?;
        }
        sum
    };
    let indices = b.reshape(indices, &[1, n_from])?;
    let values = b.reshape(x, &[1, n_from])?;
    let place = b.iota(&[n_to, 1], 0, crate::DType::I64)?;
    let hit = b.binary(Op::Eq, place, indices)?;
    let zero = b.scalar_like(x, 0.0);
    let found = b.select(hit, values, zero)?;
    let sum = b.reduce(Op::ReduceSum, found, &[1], false)?;
    one(b.reshape(sum, &to)?)
}

/// Blocks back into an image, summed where they overlap: a transposed convolution that puts each element
/// of a block at its place.
pub(super) fn col2im(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let sizes = |value: Value, what: &str| -> Result<Vec<usize>, OpError> {
        let list = b.known_ints(value, what)?;
        Ok(list.iter().map(|&n| usize::try_from(n).unwrap_or(0).min(1 << 31)).collect())
    };
    let (image, block) = (sizes(c.x(1)?, "`image_shape`")?, sizes(c.x(2)?, "`block_shape`")?);
    let n = image.len();
    let strides = per_axis(c, "strides", n, 1, 1)?;
    let dilations = per_axis(c, "dilations", n, 1, 1)?;
    let pads = per_axis(c, "pads", 2 * n, 0, 0)?;
    let n_taps: usize = block.iter().product();
    let wrong = || OpError::Operand {
        index: 0,
        found: b.ty(x).to_string(),
        expected: format!("[N, C * {n_taps}, blocks of {image:?}]"),
    };
    let [batch, rows, n_blocks] = b.extents(x)[..] else { return Err(wrong()) };
    if block.len() != n || n == 0 || n > 3 || n_taps == 0 || rows % n_taps != 0 {
        return Err(wrong());
    }
    let channels = rows / n_taps;
    let (mut grid, mut extra) = (Vec::new(), Vec::new());
    for axis in 0..n {
        let window = (block[axis] - 1) * dilations[axis] + 1;
        let padded = image[axis] + pads[axis] + pads[axis + n];
        let room = padded.checked_sub(window).ok_or_else(wrong)?;
        grid.push(room / strides[axis] + 1);
        extra.push(room % strides[axis]);
    }
    if grid.iter().product::<usize>() != n_blocks {
        return Err(wrong());
    }
    let places = b.reshape(x, &[&[batch, rows][..], &grid].concat())?;
    let mut weights = vec![0.0; channels * n_taps * n_taps];
    for channel in 0..channels {
        for tap in 0..n_taps {
            weights[(channel * n_taps + tap) * n_taps + tap] = 1.0;
        }
    }
    let shape = [&[channels * n_taps, 1][..], &block].concat();
    let weights = b.constant(Tensor::from_f64(b.dtype(x), &shape, &weights));
    let attrs = vec![
        ints(&strides),
        ints(&pads[..n]),
        ints(&pads[n..]),
        ints(&dilations),
        Attr::Int(channels as i64),
        ints(&extra),
    ];
    one(b.apply(Op::ConvTranspose, attrs, &[places, weights])?)
}

/// More divisors that differ are not written out.
const MAX_COUNTS: usize = 1 << 24;

/// The sum of the window divided by the number of elements that count: known at import.
pub(super) fn average_pool(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let (declared, g) = pool(b, c, x)?;
    let sum = b.apply(Op::SumPool, g.attrs(), &[x])?;
    let include = c.int("count_include_pad", 0)? != 0;
    let (from, to) = (b.extents(x), b.extents(sum));
    if to[2..].iter().product::<usize>() > MAX_COUNTS {
        return c.form(
            format!("a pool of {} positions", to[2..].iter().product::<usize>()),
            "fewer positions",
        );
    }
    let mut counts = vec![1.0];
    for axis in 0..g.kernel.len() {
        let (low, high) = match include {
            true => (0, declared.before[axis] + from[axis + 2] + declared.after[axis]),
            false => (declared.before[axis], declared.before[axis] + from[axis + 2]),
        };
        // Taps at or behind `low`, less those at or behind `high`.
        let before = |start: usize, end: usize| {
            end.saturating_sub(start).div_ceil(g.dilations[axis]).min(g.kernel[axis])
        };
        let inside = |position: usize| {
            let start = position * g.strides[axis];
            (before(start, high) - before(start, low)) as f64
        };
        let along: Vec<f64> = (0..to[axis + 2]).map(inside).collect();
        counts = counts
            .iter()
            .flat_map(|&outer| along.iter().map(move |&inner| outer * inner))
            .collect();
    }
    if counts.windows(2).all(|pair| pair[0] == pair[1]) {
        let count = counts.first().copied().unwrap_or(1.0);
        return one(b.with(Op::Div, sum, count)?);
    }
    let extents = [&[1, 1], &to[2..]].concat();
    let counts = b.constant(Tensor::from_f64(b.dtype(x), &extents, &counts));
    one(b.div(sum, counts)?)
}

/// `p`; before opset 2 a float.
pub(super) fn norm(c: &Call) -> Result<i64, OpError> {
    if c.opset >= 2 {
        return c.int("p", 2);
    }
    match c.float("p", 2.0)? {
        p if p.fract() == 0.0 => Ok(p as i64),
        p => c.form(format!("norm {p}"), "whole norms"),
    }
}

pub(super) fn lp_pool(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let (_, g) = pool(b, c, x)?;
    match norm(c)? {
        1 => {
            let size = b.unary(Op::Abs, x)?;
            one(b.apply(Op::SumPool, g.attrs(), &[size])?)
        }
        2 => {
            let square = b.mul(x, x)?;
            let sum = b.apply(Op::SumPool, g.attrs(), &[square])?;
            one(b.unary(Op::Sqrt, sum)?)
        }
        p if p > 0 => {
            let size = b.unary(Op::Abs, x)?;
            let power = b.with(Op::Pow, size, p as f64)?;
            let sum = b.apply(Op::SumPool, g.attrs(), &[power])?;
            one(b.with(Op::Pow, sum, 1.0 / p as f64)?)
        }
        p => c.form(format!("norm {p}"), "positive norms"),
    }
}

/// A depthwise convolution over the past: the carried state in front, the last positions carried on.
pub(super) fn causal_conv_with_state(b: &mut Builder, c: &Call) -> Outcome {
    let (x, w) = (c.x(0)?, c.x(1)?);
    let ([batch, channels, steps], [_, 1, taps]) = (&b.extents(x)[..], &b.extents(w)[..]) else {
        return Err(OpError::Operand {
            index: 1,
            found: b.ty(w).to_string(),
            expected: "[channels, 1, k]".into(),
        });
    };
    let (batch, channels, steps, taps) = (*batch, *channels, *steps, *taps);
    let past = match c.opt(3)? {
        Some(past) => past,
        None => {
            let zero = b.scalar_like(x, 0.0);
            b.expand(zero, &[batch, channels, taps.saturating_sub(1)])?
        }
    };
    let all = b.concat(&[past, x], 2)?;
    let attrs = vec![ints(&[1]), ints(&[0]), ints(&[0]), ints(&[1]), Attr::Int(channels as i64)];
    let mut y = b.apply(Op::Conv, attrs, &[all, w])?;
    if let Some(bias) = c.opt(2)? {
        let bias = b.channels(bias, 3)?;
        y = b.add(y, bias)?;
    }
    y = match c.word("activation", "none")?.as_str() {
        "none" => y,
        "silu" | "swish" => super::elementwise::silu(b, y, 1.0)?,
        other => return c.form(format!("activation `{other}`"), "none, silu and swish"),
    };
    Ok(vec![y.into(), b.narrow(all, 2, steps, taps.saturating_sub(1))?.into()])
}
