//! Resampling: `Resize`, `Upsample`, `GridSample`.

use crate::graph::{Attr, Op};
use crate::onnx::builder::{Builder, axis, ints};
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::error::OpError;
use crate::{DType, Value};

/// Adds a resize, or a reshape where nothing changes. `scales` has one number per axis.
fn resample(
    b: &mut Builder,
    x: Value,
    shape: &[usize],
    scales: &[f32],
    how: [&str; 3],
    cubic: f64,
) -> Outcome {
    let unchanged = b.extents(x) == shape && scales.iter().all(|&scale| scale == 1.0);
    if unchanged {
        return one(x);
    }
    let bits = scales.iter().map(|scale| i64::from(scale.to_bits())).collect();
    let mut attrs = vec![ints(shape)];
    attrs.extend(how.map(|word| Attr::Word(word.to_owned())));
    attrs.extend([Attr::float(cubic), Attr::Ints(bits)]);
    one(b.apply(Op::Resize, attrs, &[x])?)
}

/// `floor(extent * scale)` per axis.
fn scaled(c: &Call, from: &[usize], scales: &[f32]) -> Result<Vec<usize>, OpError> {
    if scales.len() != from.len() || scales.iter().any(|scale| !(scale.is_finite() && *scale > 0.0))
    {
        return c.form(format!("scales {scales:?}"), "one positive number per axis");
    }
    Ok(from
        .iter()
        .zip(scales)
        .map(|(&n, &scale)| (n as f64 * f64::from(scale)).floor() as usize)
        .collect())
}

pub(super) fn upsample(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let scales: Vec<f32> = match c.opt(1)? {
        Some(scales) => b.known_floats(scales, "`scales`")?.iter().map(|&x| x as f32).collect(),
        None => c.floats("scales")?.unwrap_or_default().iter().map(|&x| x as f32).collect(),
    };
    let shape = scaled(c, &b.extents(x), &scales)?;
    let mode = match c.word("mode", "nearest")?.as_str() {
        "nearest" => "nearest",
        "linear" | "bilinear" => "linear",
        other => return c.form(format!("mode `{other}`"), "nearest and linear"),
    };
    resample(b, x, &shape, &scales, [mode, "asymmetric", "floor"], -0.75)
}

pub(super) fn resize(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let from = b.extents(x);
    let rank = from.len();
    // Opset 10 has (x, scales); since 11 it is (x, roi, scales, sizes).
    let (scales_at, sizes_at) = if c.opset < 11 { (1, usize::MAX) } else { (2, 3) };
    let on: Vec<usize> = match c.ints("axes")? {
        Some(on) => on.iter().map(|&i| axis(i, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    let given_scales = match c.opt(scales_at)? {
        Some(value) => b.known_floats(value, "`scales`")?,
        None => vec![],
    };
    let given_sizes = match c.opt(sizes_at)? {
        Some(value) => b.known_ints(value, "`sizes`")?,
        None => vec![],
    };
    let mut scales = vec![1.0f32; rank];
    let mut shape = from.clone();
    if !given_scales.is_empty() {
        if given_scales.len() != on.len() {
            return c.form(format!("scales {given_scales:?}"), "one per axis");
        }
        for (&at, &scale) in on.iter().zip(&given_scales) {
            scales[at] = scale as f32;
        }
        shape = scaled(c, &from, &scales)?;
    } else if given_sizes.len() == on.len() && !on.is_empty() {
        let policy = c.word("keep_aspect_ratio_policy", "stretch")?;
        let ratio = |i: usize| given_sizes[i] as f64 / from[on[i]].max(1) as f64;
        let ratios = (0..on.len()).map(ratio);
        let common = match policy.as_str() {
            "stretch" => None,
            "not_larger" => ratios.reduce(f64::min),
            "not_smaller" => ratios.reduce(f64::max),
            other => {
                return c.form(format!("policy `{other}`"), "stretch, not_larger and not_smaller");
            }
        };
        for (i, &at) in on.iter().enumerate() {
            let size = match common {
                None => given_sizes[i],
                Some(ratio) => (ratio * from[at] as f64 + 0.5).floor() as i64,
            };
            shape[at] = match usize::try_from(size) {
                Ok(size) if size < 1 << 31 => size,
                _ => return Err(OpError::TooLarge { extents: given_sizes.clone() }),
            };
            scales[at] = common.unwrap_or(shape[at] as f64 / from[at].max(1) as f64) as f32;
        }
    } else {
        return c.form("neither scales nor sizes", "one of both");
    }
    if c.int("antialias", 0)? != 0 && shape.iter().zip(&from).any(|(to, from)| to < from) {
        return c.form("antialiasing", "antialias 0");
    }
    if c.int("exclude_outside", 0)? != 0 && c.word("mode", "nearest")? == "cubic" {
        return c.form("exclude_outside", "exclude_outside 0");
    }
    let mode = c.word("mode", "nearest")?;
    let transform = c.word(
        "coordinate_transformation_mode",
        if c.opset < 11 { "asymmetric" } else { "half_pixel" },
    )?;
    let rounding =
        c.word("nearest_mode", if c.opset < 11 { "floor" } else { "round_prefer_floor" })?;
    if !["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
        .contains(&transform.as_str())
    {
        return c.form(
            format!("coordinate transformation `{transform}`"),
            "half_pixel, pytorch_half_pixel, align_corners and asymmetric",
        );
    }
    if !["nearest", "linear", "cubic"].contains(&mode.as_str()) {
        return c.form(format!("mode `{mode}`"), "nearest, linear and cubic");
    }
    let cubic = c.float("cubic_coeff_a", -0.75)?;
    resample(b, x, &shape, &scales, [&mode, &transform, &rounding], cubic)
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

/// Bilinear or nearest sampling of `[N, C, H, W]` at `[N, h, w, 2]`: gathers at computed positions, each
/// weighted, and zero where it is outside.
pub(super) fn grid_sample(b: &mut Builder, c: &Call) -> Outcome {
    let (x, grid) = (c.x(0)?, c.x(1)?);
    let ([n, channels, height, width], [grid_n, to_height, to_width, 2]) =
        (&b.extents(x)[..], &b.extents(grid)[..])
    else {
        return c.form(format!("{} sampled at {}", b.ty(x), b.ty(grid)), "two spatial axes");
    };
    let (n, channels, height, width, to) =
        (*n, *channels, *height, *width, [*to_height, *to_width]);
    if *grid_n != n || height * width == 0 {
        return c.form(format!("{} sampled at {}", b.ty(x), b.ty(grid)), "one batch extent");
    }
    let align = c.int("align_corners", 0)? != 0;
    let mode = c.word("mode", "linear")?;
    let padding = c.word("padding_mode", "zeros")?;
    let linear = match mode.as_str() {
        "linear" | "bilinear" => true,
        "nearest" => false,
        other => return c.form(format!("mode `{other}`"), "linear and nearest"),
    };
    if !["zeros", "border", "reflection"].contains(&padding.as_str()) {
        return c.form(format!("padding `{padding}`"), "zeros, border and reflection");
    }
    let points = to[0] * to[1];
    let mut corners = Vec::new();
    // The last axis of the grid is (x, y): columns first.
    for (i, extent) in [(1, height), (0, width)] {
        let g = b.narrow(grid, 3, i, 1)?;
        let g = b.reshape(g, &[n, points])?;
        let mut at = unnormalise(b, g, extent, align)?;
        let last = extent as f64 - 1.0;
        if padding == "reflection" {
            at = if align { reflect(b, at, 0.0, last)? } else { reflect(b, at, -0.5, last + 0.5)? };
        }
        if padding != "zeros" {
            at = b.with(Op::Max, at, 0.0)?;
            at = b.with(Op::Min, at, last)?;
        }
        let near = if linear { b.unary(Op::Floor, at)? } else { b.unary(Op::Round, at)? };
        let mut options = vec![];
        if linear {
            let far = b.with(Op::Add, near, 1.0)?;
            let to_far = b.sub(at, near)?;
            let unit = b.scalar_like(at, 1.0);
            let to_near = b.sub(unit, to_far)?;
            options.extend([(near, Some(to_near)), (far, Some(to_far))]);
        } else {
            options.push((near, None));
        }
        let mut done = vec![];
        for (place, weight) in options {
            let (low, high) = (b.with(Op::Max, place, 0.0)?, b.scalar_like(place, last));
            let clamped = b.binary(Op::Min, low, high)?;
            let inside = b.binary(Op::Eq, clamped, place)?;
            let index = b.cast(clamped, DType::I64)?;
            done.push((index, inside, weight));
        }
        corners.push(done);
    }
    // One gather per corner from [N * H * W, C].
    let moved = b.transpose(x, &[0, 2, 3, 1])?;
    let rows = b.reshape(moved, &[n * height * width, channels])?;
    let batch = b.iota(&[n, 1], 0, DType::I64)?;
    let batch = b.with(Op::Mul, batch, (height * width) as f64)?;
    let zero = b.scalar_like(x, 0.0);
    let mut sum: Option<Value> = None;
    for &(row, row_inside, row_weight) in &corners[0] {
        for &(column, column_inside, column_weight) in &corners[1] {
            let start = b.with(Op::Mul, row, width as f64)?;
            let place = b.add(start, column)?;
            let place = b.add(place, batch)?;
            let mut value = b.gather(rows, place, 0)?;
            if let (Some(row_weight), Some(column_weight)) = (row_weight, column_weight) {
                let weight = b.mul(row_weight, column_weight)?;
                let weight = b.unsqueeze(weight, 2)?;
                value = b.mul(value, weight)?;
            }
            if padding == "zeros" {
                let inside = b.binary(Op::And, row_inside, column_inside)?;
                let inside = b.unsqueeze(inside, 2)?;
                value = b.select(inside, value, zero)?;
            }
            sum = Some(match sum {
                Some(sum) => b.add(sum, value)?,
                None => value,
            });
        }
    }
    let sum = sum.expect("there is a corner");
    let sum = b.transpose(sum, &[0, 2, 1])?;
    one(b.reshape(sum, &[n, channels, to[0], to[1]])?)
}
