//! Resampling: `Resize` and `Upsample`. Forms that the core operator lacks (antialiasing, crops, samples
//! outside left out) are products with a matrix of weights per axis.

use crate::graph::{Attr, Op};
use crate::onnx::builder::{Builder, axis, ints};
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::error::OpError;
use crate::{DType, Tensor, Value};

/// A matrix of weights has at most so many elements: 4096 places from 4096.
const MAX_WEIGHTS: usize = 1 << 24;

/// Places along an axis at most that are computed one by one.
const MAX_EXTENT: usize = 1 << 16;

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
        // Before opset 7 one of two numbers each, of images.
        None if c.opset < 7 => {
            vec![
                1.0,
                1.0,
                c.float("height_scale", 1.0)? as f32,
                c.float("width_scale", 1.0)? as f32,
            ]
        }
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
    let mode = c.word("mode", "nearest")?;
    let transform = c.word(
        "coordinate_transformation_mode",
        if c.opset < 11 { "asymmetric" } else { "half_pixel" },
    )?;
    let rounding =
        c.word("nearest_mode", if c.opset < 11 { "floor" } else { "round_prefer_floor" })?;
    if !["nearest", "linear", "cubic"].contains(&mode.as_str()) {
        return c.form(format!("mode `{mode}`"), "nearest, linear and cubic");
    }
    let cubic = c.float("cubic_coeff_a", -0.75)?;
    let antialias = c.int("antialias", 0)? != 0
        && mode != "nearest"
        && shape.iter().zip(&from).any(|(to, from)| to < from);
    let exclude = c.int("exclude_outside", 0)? != 0 && mode == "cubic";
    // Scales count as given: the positions of a result that was rounded down differ by the fraction.
    let fractional = transform == "align_corners"
        && !given_scales.is_empty()
        && (0..rank).any(|at| f64::from(scales[at]) * from[at] as f64 != shape[at] as f64);
    let plain = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
        .contains(&transform.as_str());
    if !plain || antialias || exclude || fractional {
        if !plain && !["half_pixel_symmetric", "tf_crop_and_resize"].contains(&transform.as_str()) {
            return c
                .form(format!("coordinate transformation `{transform}`"), "those of the standard");
        }
        let crop = match (transform.as_str(), c.opt(1)?) {
            ("tf_crop_and_resize", Some(roi)) => b.known_floats(roi, "`roi`")?,
            ("tf_crop_and_resize", None) => return Err(OpError::MissingInput { index: 1 }),
            _ => vec![],
        };
        if transform == "tf_crop_and_resize" && crop.len() != 2 * on.len() {
            return c.form(format!("a region of {} numbers", crop.len()), "two per axis");
        }
        let how = Axis {
            mode: &mode,
            transform: &transform,
            rounding: &rounding,
            cubic,
            antialias,
            exclude,
        };
        let mut y = x;
        let mut outside: Option<Value> = None;
        for (i, &at) in on.iter().enumerate() {
            let scale = match given_scales.is_empty() {
                true => shape[at] as f64 / from[at].max(1) as f64,
                false => f64::from(scales[at]),
            };
            let region = crop.get(i).copied().zip(crop.get(i + on.len()).copied());
            if region.is_none() && scale == 1.0 && shape[at] == from[at] {
                continue;
            }
            let (next, out) = how.apply(b, c, y, at, shape[at], scale, region)?;
            y = next;
            if let Some(out) = out {
                outside = Some(match outside {
                    Some(outside) => b.binary(Op::Or, outside, out)?,
                    None => out,
                });
            }
        }
        return match outside {
            None => one(y),
            Some(outside) => {
                let value = b.scalar_like(y, c.float("extrapolation_value", 0.0)?);
                one(b.select(outside, value, y)?)
            }
        };
    }
    resample(b, x, &shape, &scales, [&mode, &transform, &rounding], cubic)
}

/// How positions along an axis are computed and weighted.
struct Axis<'a> {
    mode: &'a str,
    transform: &'a str,
    rounding: &'a str,
    cubic: f64,
    antialias: bool,
    exclude: bool,
}

impl Axis<'_> {
    /// Resamples axis `at` to `to`; where results are outside of a region, as a mask that broadcasts.
    #[allow(clippy::too_many_arguments, reason = "one number each")]
    fn apply(
        &self,
        b: &mut Builder,
        c: &Call,
        x: Value,
        at: usize,
        to: usize,
        scale: f64,
        region: Option<(f64, f64)>,
    ) -> Result<(Value, Option<Value>), OpError> {
        let mut extents = b.extents(x);
        let n = extents[at];
        if n == 0 || to > MAX_EXTENT || n.saturating_mul(to) > MAX_WEIGHTS {
            return c.form(format!("an axis of {n} resampled to {to}"), "fewer elements");
        }
        let places: Vec<f64> =
            (0..to).map(|i| self.source(i as f64, n as f64, to as f64, scale, region)).collect();
        let last = n as f64 - 1.0;
        let mask = region.is_some().then(|| {
            let out: Vec<i64> =
                places.iter().map(|&place| i64::from(place < 0.0 || place > last)).collect();
            let mut shape = vec![1; extents.len()];
            shape[at] = to;
            b.constant(Tensor::from_i64(DType::Bool, &shape, &out))
        });
        if self.mode == "nearest" {
            let index = |&place: &f64| {
                let rounded = match self.rounding {
                    "floor" => place.floor(),
                    "ceil" => place.ceil(),
                    "round_prefer_ceil" => (place + 0.5).floor(),
                    _ => (place - 0.5).ceil(),
                };
                rounded.clamp(0.0, last) as i64
            };
            let indices: Vec<i64> = places.iter().map(index).collect();
            let indices = b.ints(&indices);
            return Ok((b.gather(x, indices, at)?, mask));
        }
        if !b.dtype(x).is_float() {
            return c.form(format!("{} resampled with weights", b.ty(x)), "floats");
        }
        let mut weights = vec![0.0; n * to];
        for (i, &place) in places.iter().enumerate() {
            for (from, weight) in self.taps(place, n, scale) {
                weights[from * to + i] += weight;
            }
        }
        let weights = b.constant(Tensor::from_f64(b.dtype(x), &[n, to], &weights));
        let (outer, inner): (usize, usize) =
            (extents[..at].iter().product(), extents[at + 1..].iter().product());
        let flat = b.reshape(x, &[outer, n, inner])?;
        let turned = b.transpose(flat, &[0, 2, 1])?;
        let product = b.matmul(turned, weights)?;
        let back = b.transpose(product, &[0, 2, 1])?;
        extents[at] = to;
        Ok((b.reshape(back, &extents)?, mask))
    }

    /// The position in an operand of extent `n` of position `at` of `to`.
    fn source(&self, at: f64, n: f64, to: f64, scale: f64, region: Option<(f64, f64)>) -> f64 {
        let wide = scale * n;
        match (self.transform, region) {
            ("align_corners", _) if wide == 1.0 => 0.0,
            ("align_corners", _) => at * (n - 1.0) / (wide - 1.0),
            ("asymmetric", _) => at / scale,
            ("pytorch_half_pixel", _) if wide == 1.0 => -0.5,
            ("tf_crop_and_resize", Some((start, end))) if to <= 1.0 => {
                (start + end) * (n - 1.0) / 2.0
            }
            ("tf_crop_and_resize", Some((start, end))) => {
                start * (n - 1.0) + at * (end - start) * (n - 1.0) / (wide - 1.0)
            }
            ("half_pixel_symmetric", _) => n / 2.0 * (1.0 - to / wide) + (at + 0.5) / scale - 0.5,
            _ => (at + 0.5) / scale - 0.5,
        }
    }

    /// Elements and weights of a position: the kernel, widened to the distance of results if it is to
    /// take part in all of them, normalised where that is needed.
    fn taps(&self, place: f64, n: usize, scale: f64) -> Vec<(usize, f64)> {
        let narrow = if self.antialias { scale.min(1.0) } else { 1.0 };
        let (radius, a) = (if self.mode == "cubic" { 2.0 } else { 1.0 }, self.cubic);
        let kernel = |d: f64| match (self.mode, d.abs()) {
            ("cubic", d) if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
            ("cubic", d) if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
            ("cubic", _) => 0.0,
            (_, d) => (1.0 - d).max(0.0),
        };
        let reach = radius / narrow;
        let (first, last) = ((place - reach).floor() as i64, (place + reach).ceil() as i64);
        let inside = |at: i64| (0..n as i64).contains(&at);
        let mut taps: Vec<(usize, f64)> = (first..=last)
            .filter(|&at| inside(at) || !self.exclude)
            .map(|at| (at.clamp(0, n as i64 - 1) as usize, kernel((at as f64 - place) * narrow)))
            .filter(|&(_, weight)| weight != 0.0)
            .collect();
        if narrow < 1.0 || self.exclude {
            let sum: f64 = taps.iter().map(|&(_, weight)| weight).sum();
            taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
        }
        taps
    }
}
