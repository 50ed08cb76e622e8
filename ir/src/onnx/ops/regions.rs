//! Operators that read images at computed positions: `GridSample`, `AffineGrid`, `RoiAlign`, `DeformConv`.
//!
//! A position along an axis becomes a few taps (an index, a weight, whether it is inside); a sample is the
//! sum over all combinations of taps, each one gather from the flat operand.

use crate::graph::Op;
use crate::onnx::builder::Builder;
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::error::OpError;
use crate::shape::row_major_strides;
use crate::{DType, Tensor, Value};

/// One element that a sample reads along an axis.
#[derive(Clone, Copy)]
struct Tap {
    /// Clamped to the axis, i64.
    index: Value,
    /// Whether it was inside; `None` if it always is.
    inside: Option<Value>,
    /// Its weight; `None` for 1.
    weight: Option<Value>,
}

/// A tap at a whole float position.
fn tap(
    b: &mut Builder,
    at: Value,
    extent: usize,
    weight: Option<Value>,
    zeros: bool,
) -> Result<Tap, OpError> {
    let low = b.with(Op::Max, at, 0.0)?;
    let clamped = b.with(Op::Min, low, extent as f64 - 1.0)?;
    let inside = if zeros { Some(b.binary(Op::Eq, clamped, at)?) } else { None };
    Ok(Tap { index: b.cast(clamped, DType::I64)?, inside, weight })
}

/// The two neighbours of a position, weighted by their distance.
fn linear_taps(
    b: &mut Builder,
    at: Value,
    extent: usize,
    zeros: bool,
) -> Result<Vec<Tap>, OpError> {
    let near = b.unary(Op::Floor, at)?;
    let far = b.with(Op::Add, near, 1.0)?;
    let to_far = b.sub(at, near)?;
    let unit = b.scalar_like(at, 1.0);
    let to_near = b.sub(unit, to_far)?;
    Ok(vec![tap(b, near, extent, Some(to_near), zeros)?, tap(b, far, extent, Some(to_far), zeros)?])
}

/// Samples of the flat operand: `base` plus each combination of taps, weighted; zero where one is outside.
/// `strides` are those of the sampled axes.
fn sample(
    b: &mut Builder,
    flat: Value,
    base: Value,
    taps: &[Vec<Tap>],
    strides: &[usize],
    combine: Op,
) -> Result<Value, OpError> {
    let n_axes = taps.len();
    let mut choice = vec![0; n_axes];
    let mut sum: Option<Value> = None;
    let zero = b.scalar_like(flat, 0.0);
    loop {
        let (mut place, mut weight, mut inside) = (base, None, None);
        for axis in 0..n_axes {
            let tap = taps[axis][choice[axis]];
            let term = b.with(Op::Mul, tap.index, strides[axis] as f64)?;
            place = b.add(place, term)?;
            weight = both(b, Op::Mul, weight, tap.weight)?;
            inside = both(b, Op::And, inside, tap.inside)?;
        }
        let mut value = b.gather(flat, place, 0)?;
        if let Some(weight) = weight {
            value = b.mul(value, weight)?;
        }
        if let Some(inside) = inside {
            value = b.select(inside, value, zero)?;
        }
        sum = Some(match sum {
            None => value,
            Some(sum) => b.binary(combine, sum, value)?,
        });
        let mut axis = n_axes;
        loop {
            if axis == 0 {
                return Ok(sum.expect("there is a combination"));
            }
            axis -= 1;
            choice[axis] += 1;
            if choice[axis] < taps[axis].len() {
                break;
            }
            choice[axis] = 0;
        }
    }
}

fn both(
    b: &mut Builder,
    op: Op,
    x: Option<Value>,
    y: Option<Value>,
) -> Result<Option<Value>, OpError> {
    match (x, y) {
        (Some(x), Some(y)) => Ok(Some(b.binary(op, x, y)?)),
        (x, y) => Ok(x.or(y)),
    }
}

/// `n` numbers `0, step, 2 step, ...` along one axis of `rank`.
fn along(b: &mut Builder, n: usize, step: usize, at: usize, rank: usize) -> Value {
    let mut extents = vec![1; rank];
    extents[at] = n;
    let places: Vec<i64> = (0..n).map(|i| (i * step) as i64).collect();
    b.constant(Tensor::i64(&extents, &places))
}

/// A sampled coordinate in pixels, before it is rounded.
fn unnormalise(b: &mut Builder, g: Value, n: usize, align: bool) -> Result<Value, OpError> {
    let up = b.with(Op::Add, g, 1.0)?;
    if align {
        return b.with(Op::Mul, up, (n as f64 - 1.0) / 2.0);
    }
    let wide = b.with(Op::Mul, up, n as f64 / 2.0)?;
    b.with(Op::Sub, wide, 0.5)
}

/// Reflects a coordinate into `[low, high]`.
fn reflect(b: &mut Builder, x: Value, low: f64, high: f64) -> Result<Value, OpError> {
    let range = high - low;
    if range <= 0.0 {
        return b.with(Op::Mul, x, 0.0);
    }
    // A triangle wave: the distance from `low`, folded at every multiple of the range.
    let shifted = b.with(Op::Sub, x, low)?;
    let size = b.unary(Op::Abs, shifted)?;
    let period = b.with(Op::Mod, size, 2.0 * range)?;
    let mirrored = b.scalar_like(x, 2.0 * range);
    let mirrored = b.sub(mirrored, period)?;
    let folded = b.binary(Op::Min, period, mirrored)?;
    b.with(Op::Add, folded, low)
}

/// Keys' four weights for the fraction `t`, with the coefficient -0.75.
fn cubic_weights(b: &mut Builder, t: Value) -> Result<[Value; 4], OpError> {
    const A: f64 = -0.75;
    // ((c3 d + c2) d + c1) d + c0 at the distance d.
    let polynomial = |b: &mut Builder, d: Value, c: [f64; 4]| {
        let mut sum = b.with(Op::Mul, d, c[0])?;
        for &coefficient in &c[1..3] {
            sum = b.with(Op::Add, sum, coefficient)?;
            sum = b.mul(sum, d)?;
        }
        b.with(Op::Add, sum, c[3])
    };
    let near = [A + 2.0, -(A + 3.0), 0.0, 1.0];
    let far = [A, -5.0 * A, 8.0 * A, -4.0 * A];
    let (one, two) = (b.scalar_like(t, 1.0), b.scalar_like(t, 2.0));
    let (before, rest, behind) = (b.add(t, one)?, b.sub(one, t)?, b.sub(two, t)?);
    Ok([
        polynomial(b, before, far)?,
        polynomial(b, t, near)?,
        polynomial(b, rest, near)?,
        polynomial(b, behind, far)?,
    ])
}

/// Sampling of `[N, C, spatial...]` at `[N, positions..., axes]`, where the last axis comes first.
pub(super) fn grid_sample(b: &mut Builder, c: &Call) -> Outcome {
    let (x, grid) = (c.x(0)?, c.x(1)?);
    let (from, to) = (b.extents(x), b.extents(grid));
    let n_axes = from.len().saturating_sub(2);
    let fits = (1..=3).contains(&n_axes)
        && to.len() == from.len()
        && to.last() == Some(&n_axes)
        && to[0] == from[0]
        && !from[2..].contains(&0);
    if !fits {
        return c.form(
            format!("{} sampled at {}", b.ty(x), b.ty(grid)),
            "as many coordinates as spatial axes, at most 3",
        );
    }
    let (batch, channels) = (from[0], from[1]);
    let align = c.int("align_corners", 0)? != 0;
    let mode = c.word("mode", "linear")?;
    let padding = c.word("padding_mode", "zeros")?;
    let cubic = matches!(mode.as_str(), "cubic" | "bicubic");
    if !cubic && !["linear", "bilinear", "nearest"].contains(&mode.as_str()) {
        return c.form(format!("mode `{mode}`"), "linear, nearest and cubic");
    }
    if !["zeros", "border", "reflection"].contains(&padding.as_str()) {
        return c.form(format!("padding `{padding}`"), "zeros, border and reflection");
    }
    let zeros = padding == "zeros";
    let positions = &to[1..=n_axes];
    let n_points: usize = positions.iter().product();
    let mut taps = Vec::new();
    for axis in 0..n_axes {
        let extent = from[axis + 2];
        let last = extent as f64 - 1.0;
        let g = b.narrow(grid, n_axes + 1, n_axes - 1 - axis, 1)?;
        let g = b.reshape(g, &[batch, 1, n_points])?;
        let mut at = unnormalise(b, g, extent, align)?;
        let inward = |b: &mut Builder, at: Value| -> Result<Value, OpError> {
            let at = match padding.as_str() {
                "reflection" if align => reflect(b, at, 0.0, last)?,
                "reflection" => reflect(b, at, -0.5, last + 0.5)?,
                "border" => at,
                _ => return Ok(at),
            };
            let at = b.with(Op::Max, at, 0.0)?;
            b.with(Op::Min, at, last)
        };
        if cubic {
            // Each of the four is padded, not the position.
            let floor = b.unary(Op::Floor, at)?;
            let fraction = b.sub(at, floor)?;
            let mut these = Vec::new();
            for (i, weight) in cubic_weights(b, fraction)?.into_iter().enumerate() {
                let place = b.with(Op::Add, floor, i as f64 - 1.0)?;
                let place = inward(b, place)?;
                these.push(tap(b, place, extent, Some(weight), zeros)?);
            }
            taps.push(these);
        } else {
            at = inward(b, at)?;
            taps.push(match mode.as_str() {
                "nearest" => {
                    let near = b.unary(Op::Round, at)?;
                    vec![tap(b, near, extent, None, zeros)?]
                }
                _ => linear_taps(b, at, extent, zeros)?,
            });
        }
    }
    let strides = row_major_strides(&from);
    let flat = b.reshape(x, &[from.iter().product()])?;
    let (image, channel) =
        (along(b, batch, strides[0], 0, 3), along(b, channels, strides[1], 1, 3));
    let base = b.add(image, channel)?;
    let sampled = sample(b, flat, base, &taps, &strides[2..], Op::Add)?;
    one(b.reshape(sampled, &[&[batch, channels], positions].concat())?)
}

/// Positions of the elements of an image, each transformed by an affine matrix.
pub(super) fn affine_grid(b: &mut Builder, c: &Call) -> Outcome {
    let theta = c.x(0)?;
    let size = b.known_ints(c.x(1)?, "`size`")?;
    let size: Vec<usize> = size.iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
    let n_axes = size.len().saturating_sub(2);
    if !(2..=3).contains(&n_axes) || b.extents(theta) != [size[0], n_axes, n_axes + 1] {
        let expected = format!("one matrix per image of {size:?}");
        return Err(OpError::Operand { index: 0, found: b.ty(theta).to_string(), expected });
    }
    let align = c.int("align_corners", 0)? != 0;
    let spatial = &size[2..];
    let n_points: usize = spatial.iter().product();
    if n_points > 1 << 24 {
        return Err(OpError::TooLarge { extents: spatial.iter().map(|&n| n as i64).collect() });
    }
    let coordinate = |at: usize, n: usize| match (align, n) {
        (true, 1) => 0.0,
        (true, _) => 2.0 * at as f64 / (n as f64 - 1.0) - 1.0,
        (false, _) => (2.0 * at as f64 + 1.0) / n as f64 - 1.0,
    };
    let strides = row_major_strides(spatial);
    let mut points = Vec::with_capacity(n_points * (n_axes + 1));
    for i in 0..n_points {
        // (x, y, z, 1): the last axis first.
        for axis in (0..n_axes).rev() {
            points.push(coordinate(i / strides[axis] % spatial[axis], spatial[axis]));
        }
        points.push(1.0);
    }
    let points = b.constant(Tensor::from_f64(b.dtype(theta), &[1, n_points, n_axes + 1], &points));
    let turned = b.transpose(theta, &[0, 2, 1])?;
    let grid = b.matmul(points, turned)?;
    one(b.reshape(grid, &[&[size[0]], spatial, &[n_axes]].concat())?)
}

/// Mean or maximum of bilinear samples in each bin of each region.
pub(super) fn roi_align(b: &mut Builder, c: &Call) -> Outcome {
    let (x, rois, images) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let ([_, _, _, _], [n_rois, 4]) = (&b.extents(x)[..], &b.extents(rois)[..]) else {
        return c.form(format!("{} in {}", b.ty(rois), b.ty(x)), "[regions, 4] in [N, C, H, W]");
    };
    let n_rois = *n_rois;
    let size = |name: &str, default: i64| -> Result<usize, OpError> {
        let found = c.int(name, default)?;
        usize::try_from(found).ok().filter(|&n| n < 1 << 16).ok_or(OpError::Attribute {
            name: name.to_owned(),
            found: found.to_string(),
            expected: "a small number".into(),
        })
    };
    let bins = [size("output_height", 1)?, size("output_width", 1)?];
    let ratio = size("sampling_ratio", 0)?;
    // Before opset 16 there is no shift by half a pixel.
    let default = if c.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let half = c.word("coordinate_transformation_mode", default)? == "half_pixel";
    let mean = match c.word("mode", "avg")?.as_str() {
        "avg" => true,
        "max" => false,
        other => return c.form(format!("mode `{other}`"), "avg and max"),
    };
    let scale = c.float("spatial_scale", 1.0)?;
    let scaled = b.with(Op::Mul, rois, scale)?;
    let placed = b.with(Op::Sub, scaled, if half { 0.5 } else { 0.0 })?;
    let align = Align { bins, half, mean };
    if ratio > 0 {
        return one(align.pool(b, x, placed, images, [ratio, ratio])?);
    }
    // The number of samples follows from each region's size.
    let known = b.known_floats(placed, "the regions")?;
    let mut pooled = Vec::new();
    for roi in 0..n_rois {
        let (one, image) = (b.narrow(placed, 0, roi, 1)?, b.narrow(images, 0, roi, 1)?);
        let n_samples = [1, 0].map(|axis| {
            let size = known[roi * 4 + axis + 2] - known[roi * 4 + axis];
            let size = if half { size } else { size.max(1.0) };
            (size / bins[1 - axis] as f64).ceil().clamp(1.0, 1024.0) as usize
        });
        pooled.push(align.pool(b, x, one, image, n_samples)?);
    }
    one(b.concat(&pooled, 0)?)
}

/// Which of `n` places each bin of each region covers, `[R, bins, n]`, and which bins cover none,
/// `[R, bins]`. A region starts and ends at whole places and covers one at least; bins are rounded outwards.
fn bins_of(
    b: &mut Builder,
    ends: [Value; 2],
    n_bins: usize,
    n: usize,
) -> Result<(Value, Value), OpError> {
    let dtype = b.dtype(ends[0]);
    let [start, end] = ends;
    let size = b.sub(end, start)?;
    let size = b.with(Op::Add, size, 1.0)?;
    let size = b.with(Op::Max, size, 1.0)?;
    let bin = b.with(Op::Div, size, n_bins as f64)?;
    let mut edges = Vec::with_capacity(2);
    for (first, round) in [(0, Op::Floor), (1, Op::Ceil)] {
        let steps: Vec<f64> = (0..n_bins).map(|at| (at + first) as f64).collect();
        let steps = b.constant(Tensor::from_f64(dtype, &[1, n_bins], &steps));
        let offset = b.mul(bin, steps)?;
        let offset = b.unary(round, offset)?;
        let edge = b.add(offset, start)?;
        let edge = b.with(Op::Max, edge, 0.0)?;
        edges.push(b.with(Op::Min, edge, n as f64)?);
    }
    let none = b.binary(Op::Le, edges[1], edges[0])?;
    let (from, to) = (b.unsqueeze(edges[0], 2)?, b.unsqueeze(edges[1], 2)?);
    let places: Vec<f64> = (0..n).map(|at| at as f64).collect();
    let places = b.constant(Tensor::from_f64(dtype, &[1, 1, n], &places));
    let (behind, before) = (b.binary(Op::Le, from, places)?, b.binary(Op::Lt, places, to)?);
    Ok((b.binary(Op::And, behind, before)?, none))
}

/// The maximum of each bin of regions `[R, 5]` (image, x and y of two corners) of `[N, C, H, W]`; 0 for a bin
/// outside of the image. Girshick, "Fast R-CNN", arXiv 1504.08083.
pub(super) fn max_roi_pool(b: &mut Builder, c: &Call) -> Outcome {
    let (x, rois) = (c.x(0)?, c.x(1)?);
    let ([_, _, height, width], [n_rois, 5]) = (&b.extents(x)[..], &b.extents(rois)[..]) else {
        return c.form(format!("{} in {}", b.ty(rois), b.ty(x)), "[regions, 5] in [N, C, H, W]");
    };
    let (extents, n_rois) = ([*height, *width], *n_rois);
    let shape =
        c.ints("pooled_shape")?.ok_or(OpError::MissingAttribute { name: "pooled_shape" })?;
    let &[rows, columns] = &shape[..] else { return c.form("this `pooled_shape`", "two extents") };
    let small = |n: i64| usize::try_from(n).ok().filter(|n| (1..1 << 16).contains(n));
    let Some((rows, columns)) = small(rows).zip(small(columns)) else {
        return c.form(format!("`pooled_shape` {shape:?}"), "two extents from 1");
    };
    let scale = c.float("spatial_scale", 1.0)?;
    let scaled = b.with(Op::Mul, rois, scale)?;
    // Halves are rounded away from zero.
    let (sign, size) = (b.unary(Op::Sign, scaled)?, b.unary(Op::Abs, scaled)?);
    let size = b.with(Op::Add, size, 0.5)?;
    let size = b.unary(Op::Floor, size)?;
    let places = b.mul(sign, size)?;
    let mut covered = Vec::with_capacity(2);
    for (axis, n_bins) in [rows, columns].into_iter().enumerate() {
        let ends = [b.narrow(places, 1, 2 - axis, 1)?, b.narrow(places, 1, 4 - axis, 1)?];
        covered.push(bins_of(b, ends, n_bins, extents[axis])?);
    }
    let image = b.narrow(rois, 1, 0, 1)?;
    let image = b.reshape(image, &[n_rois])?;
    let image = b.cast(image, DType::I64)?;
    // Along the width first: `[R, C, H, columns, W]`, then `[R, C, columns, rows, H]`.
    let images = b.gather(x, image, 0)?;
    let least = b.scalar_like(x, f64::NEG_INFINITY);
    let mut y = b.unsqueeze(images, 3)?;
    for (axis, n_bins) in [(1, columns), (0, rows)] {
        let mask = b.reshape(covered[axis].0, &[n_rois, 1, 1, n_bins, extents[axis]])?;
        let inside = b.select(mask, y, least)?;
        y = b.reduce(Op::ReduceMax, inside, &[4], false)?;
        if axis == 1 {
            y = b.transpose(y, &[0, 1, 3, 2])?;
            y = b.unsqueeze(y, 3)?;
        }
    }
    let y = b.transpose(y, &[0, 1, 3, 2])?;
    let rows_none = b.reshape(covered[0].1, &[n_rois, 1, rows, 1])?;
    let columns_none = b.reshape(covered[1].1, &[n_rois, 1, 1, columns])?;
    let none = b.binary(Op::Or, rows_none, columns_none)?;
    let zero = b.scalar_like(x, 0.0);
    one(b.select(none, zero, y)?)
}

/// The attributes of a `RoiAlign`.
struct Align {
    bins: [usize; 2],
    half: bool,
    mean: bool,
}

impl Align {
    /// Pools the regions `[R, 4]` of images `[R]` with `n` samples per bin along each axis.
    fn pool(
        &self,
        b: &mut Builder,
        x: Value,
        rois: Value,
        images: Value,
        n: [usize; 2],
    ) -> Result<Value, OpError> {
        let extents = b.extents(x);
        let n_rois = b.extents(rois)[0];
        let dtype = b.dtype(rois);
        let strides = row_major_strides(&extents);
        // Axes: regions, channels, then bin and sample of each spatial axis.
        let mut taps = Vec::new();
        let mut outside: Option<Value> = None;
        for axis in 0..2 {
            let extent = extents[axis + 2];
            let column = |b: &mut Builder, i: usize| {
                let value = b.narrow(rois, 1, i, 1)?;
                b.reshape(value, &[n_rois, 1, 1, 1, 1, 1])
            };
            let (start, end) = (column(b, 1 - axis)?, column(b, 3 - axis)?);
            let mut size = b.sub(end, start)?;
            if !self.half {
                size = b.with(Op::Max, size, 1.0)?;
            }
            let bin = b.with(Op::Div, size, self.bins[axis] as f64)?;
            let steps: Vec<f64> = (0..self.bins[axis])
                .flat_map(|at| {
                    (0..n[axis]).map(move |i| at as f64 + (i as f64 + 0.5) / n[axis] as f64)
                })
                .collect();
            let mut shape = vec![1; 6];
            (shape[2 + 2 * axis], shape[3 + 2 * axis]) = (self.bins[axis], n[axis]);
            let steps = b.constant(Tensor::from_f64(dtype, &shape, &steps));
            let offset = b.mul(bin, steps)?;
            let at = b.add(start, offset)?;
            // A sample that is more than a pixel outside is 0; others are moved inside.
            let below = b.with(Op::Lt, at, -1.0)?;
            let limit = b.scalar(dtype, extent as f64);
            let above = b.binary(Op::Lt, limit, at)?;
            let out = b.binary(Op::Or, below, above)?;
            outside = both(b, Op::Or, outside, Some(out))?;
            let at = b.with(Op::Max, at, 0.0)?;
            let at = b.with(Op::Min, at, extent as f64 - 1.0)?;
            taps.push(linear_taps(b, at, extent, false)?);
        }
        let n_elems: usize = extents.iter().product();
        let flat = b.reshape(x, &[n_elems])?;
        let image = b.cast(images, DType::I64)?;
        let image = b.with(Op::Mul, image, strides[0] as f64)?;
        let image = b.reshape(image, &[n_rois, 1, 1, 1, 1, 1])?;
        let channel = along(b, extents[1], strides[1], 1, 6);
        let base = b.add(image, channel)?;
        let combine = if self.mean { Op::Add } else { Op::Max };
        let sampled = sample(b, flat, base, &taps, &strides[2..], combine)?;
        let zero = b.scalar_like(sampled, 0.0);
        let outside = outside.expect("there are two axes");
        let sampled = b.select(outside, zero, sampled)?;
        let on = [3, 5];
        if self.mean {
            b.mean(sampled, &on, false)
        } else {
            b.reduce(Op::ReduceMax, sampled, &on, false)
        }
    }
}

/// A convolution whose taps are moved by offsets, sampled bilinearly and weighted by a mask.
pub(super) fn deform_conv(b: &mut Builder, c: &Call) -> Outcome {
    let (x, w, offset) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let ([batch, channels, height, width], [n_out, per_group, kh, kw], [_, _, oh, ow]) =
        (&b.extents(x)[..], &b.extents(w)[..], &b.extents(offset)[..])
    else {
        return c.form(format!("{} and {}", b.ty(x), b.ty(w)), "two spatial axes");
    };
    let (batch, channels, spatial) = (*batch, *channels, [*height, *width]);
    let (n_out, per_group, kernel, to) = (*n_out, *per_group, [*kh, *kw], [*oh, *ow]);
    let positive = |name: &str| -> Result<usize, OpError> {
        let found = c.int(name, 1)?;
        usize::try_from(found).ok().filter(|&n| n > 0).ok_or(OpError::Attribute {
            name: name.to_owned(),
            found: found.to_string(),
            expected: "1 or more".into(),
        })
    };
    let (groups, offset_groups) = (positive("group")?, positive("offset_group")?);
    let list = |name: &str, default: Vec<i64>| -> Result<Vec<i64>, OpError> {
        Ok(c.ints(name)?.filter(|list| list.len() == default.len()).unwrap_or(default))
    };
    let (strides, dilations) = (list("strides", vec![1, 1])?, list("dilations", vec![1, 1])?);
    let pads = list("pads", vec![0; 4])?;
    let n_taps = kernel[0] * kernel[1];
    let fits = b.extents(offset) == [batch, offset_groups * n_taps * 2, to[0], to[1]]
        && per_group * groups == channels
        && channels.is_multiple_of(offset_groups)
        && n_out.is_multiple_of(groups);
    if !fits {
        let expected = format!("offsets for {} and {}", b.ty(x), b.ty(w));
        return Err(OpError::Operand { index: 2, found: b.ty(offset).to_string(), expected });
    }
    // Axes: image, group of offsets, channel of it, tap, then positions.
    let dtype = b.dtype(x);
    let moved = b.reshape(offset, &[batch, offset_groups, 1, n_taps, 2, to[0], to[1]])?;
    let mut taps = Vec::new();
    for axis in 0..2 {
        let by = b.narrow(moved, 4, axis, 1)?;
        let by = b.squeeze(by, 4)?;
        let mut places = Vec::new();
        for tap in 0..n_taps {
            let along_kernel = if axis == 0 { tap / kernel[1] } else { tap % kernel[1] };
            for position in 0..to[axis] {
                let at = position as i64 * strides[axis] + along_kernel as i64 * dilations[axis]
                    - pads[axis];
                places.push(at as f64);
            }
        }
        let mut shape = [1, 1, 1, n_taps, 1, 1];
        shape[4 + axis] = to[axis];
        let places = b.constant(Tensor::from_f64(dtype, &shape, &places));
        let at = b.add(by, places)?;
        taps.push(linear_taps(b, at, spatial[axis], true)?);
    }
    let n_pixels = spatial[0] * spatial[1];
    let each = channels / offset_groups;
    let image = along(b, batch, channels * n_pixels, 0, 6);
    let group = along(b, offset_groups, each * n_pixels, 1, 6);
    let channel = along(b, each, n_pixels, 2, 6);
    let base = b.add(image, group)?;
    let base = b.add(base, channel)?;
    let flat = b.reshape(x, &[batch * channels * n_pixels])?;
    let mut sampled = sample(b, flat, base, &taps, &[spatial[1], 1], Op::Add)?;
    if let Some(mask) = c.opt(4)? {
        let mask = b.reshape(mask, &[batch, offset_groups, 1, n_taps, to[0], to[1]])?;
        sampled = b.mul(sampled, mask)?;
    }
    let columns = b.reshape(sampled, &[batch, groups, per_group * n_taps, to[0] * to[1]])?;
    let weights = b.reshape(w, &[1, groups, n_out / groups, per_group * n_taps])?;
    let y = b.matmul(weights, columns)?;
    let y = b.reshape(y, &[batch, n_out, to[0], to[1]])?;
    match c.opt(3)? {
        None => one(y),
        Some(bias) => {
            let bias = b.channels(bias, 4)?;
            one(b.add(y, bias)?)
        }
    }
}
