//! Signal processing: discrete Fourier transforms as products with a constant matrix, windows, mel weights.

use std::f64::consts::TAU;

use crate::graph::Op;
use crate::onnx::builder::{Builder, axis};
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::error::OpError;
use crate::{DType, Tensor, Value};

/// No matrix of a transform has more elements (64 MB of f32).
const MAX_MATRIX: usize = 1 << 24;

/// What is transformed into what.
#[derive(Clone, Copy)]
struct Transform {
    /// Rows: samples that are not zero.
    n_in: usize,
    /// 1 for real, 2 for complex samples.
    parts_in: usize,
    /// Length of the transform.
    length: usize,
    inverse: bool,
    onesided: bool,
}

impl Transform {
    /// Columns, and whether they are real or complex.
    fn result(&self) -> (usize, usize) {
        match (self.inverse, self.onesided) {
            (true, true) => (self.length, 1),
            (false, true) => (self.length / 2 + 1, 2),
            (_, false) => (self.length, 2),
        }
    }

    /// `[n_in * parts_in, n_out * parts_out]`: each sample's part in each result.
    fn matrix(&self, c: &Call, dtype: DType) -> Result<Tensor, OpError> {
        let (n_out, parts_out) = self.result();
        let (rows, columns) = (self.n_in * self.parts_in, n_out * parts_out);
        if self.length == 0 || rows.saturating_mul(columns) > MAX_MATRIX {
            return c.form(format!("a transform of {} samples", self.length), "fewer samples");
        }
        let scale = if self.inverse { 1.0 / self.length as f64 } else { 1.0 };
        let sign = if self.inverse { 1.0 } else { -1.0 };
        let mut elements = vec![0.0; rows * columns];
        for t in 0..self.n_in {
            // The bins that a one-sided spectrum leaves out are conjugates of those that it has.
            let twice = self.inverse
                && self.onesided
                && t != 0
                && !(self.length.is_multiple_of(2) && t == self.length / 2);
            let scale = if twice { 2.0 * scale } else { scale };
            for k in 0..n_out {
                let turn = (t * k) % self.length;
                let angle = TAU * turn as f64 / self.length as f64;
                let (cos, sin) = (scale * angle.cos(), scale * sign * angle.sin());
                // (re + i im)(cos + i sin) = (re cos - im sin) + i (re sin + im cos).
                let parts = [[cos, sin], [-sin, cos]];
                for (part_in, parts) in parts.iter().take(self.parts_in).enumerate() {
                    for (part_out, part) in parts.iter().take(parts_out).enumerate() {
                        let row = t * self.parts_in + part_in;
                        elements[row * columns + k * parts_out + part_out] = *part;
                    }
                }
            }
        }
        Ok(Tensor::from_f64(dtype, &[rows, columns], &elements))
    }
}

/// Transforms the last axis but one of `[..., n, parts]`.
fn transform(b: &mut Builder, c: &Call, x: Value, what: Transform) -> Result<Value, OpError> {
    let extents = b.extents(x);
    let lead = &extents[..extents.len() - 2];
    let cut = b.narrow(x, extents.len() - 2, 0, what.n_in)?;
    let n_rows: usize = lead.iter().product();
    let rows = b.reshape(cut, &[n_rows, what.n_in * what.parts_in])?;
    let dtype = b.dtype(x);
    let matrix = b.constant(what.matrix(c, dtype)?);
    let product = b.matmul(rows, matrix)?;
    let (n_out, parts_out) = what.result();
    b.reshape(product, &[lead, &[n_out, parts_out]].concat())
}

/// A scalar operand that has to be known.
fn count(b: &Builder, value: Value, what: &str) -> Result<usize, OpError> {
    let found = b.known_ints(value, what)?.first().copied().unwrap_or(0);
    usize::try_from(found).ok().filter(|n| (1..1 << 31).contains(n)).ok_or(OpError::Attribute {
        name: what.trim_matches('`').to_owned(),
        found: found.to_string(),
        expected: "a positive number".into(),
    })
}

pub(super) fn dft(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let rank = b.rank(x);
    let (inverse, onesided) = (c.int("inverse", 0)? != 0, c.int("onesided", 0)? != 0);
    // The axis is an attribute before opset 20 and an operand since.
    let at = match c.opt(2)? {
        Some(at) => {
            *b.known_ints(at, "`axis`")?.first().ok_or(OpError::MissingInput { index: 2 })?
        }
        None => c.int("axis", if c.opset < 20 { 1 } else { -2 })?,
    };
    let at = axis(at, rank)?;
    let parts = b.extents(x)[rank - 1];
    if rank < 2 || at + 1 == rank || !(1..=2).contains(&parts) {
        let expected = "real or complex numbers in the last axis".into();
        return Err(OpError::Operand { index: 0, found: b.ty(x).to_string(), expected });
    }
    if onesided && !inverse && parts == 2 {
        return c.form("a one-sided transform of complex numbers", "real numbers");
    }
    let extent = b.extents(x)[at];
    let length = match c.opt(1)? {
        Some(length) => count(b, length, "`dft_length`")?,
        None if inverse && onesided => 2 * extent.saturating_sub(1),
        None => extent,
    };
    let bins = if inverse && onesided { length / 2 + 1 } else { length };
    let mut perm: Vec<usize> = (0..rank).filter(|&i| i != at).collect();
    perm.insert(rank - 2, at);
    let moved = b.transpose(x, &perm)?;
    let what = Transform { n_in: extent.min(bins), parts_in: parts, length, inverse, onesided };
    let y = transform(b, c, moved, what)?;
    let mut back: Vec<usize> = (0..rank - 2).collect();
    back.insert(at, rank - 2);
    back.push(rank - 1);
    one(b.transpose(y, &back)?)
}

/// Overlapping frames, weighted by a window, each transformed.
pub(super) fn stft(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let [batch, n_samples, parts @ 1..=2] = b.extents(x)[..] else {
        let expected = "[batch, samples, 1 or 2]".into();
        return Err(OpError::Operand { index: 0, found: b.ty(x).to_string(), expected });
    };
    let step = count(b, c.x(1)?, "`frame_step`")?;
    let window = c.opt(2)?;
    let length = match (c.opt(3)?, window) {
        (Some(length), _) => count(b, length, "`frame_length`")?,
        (None, Some(window)) => b.ty(window).n_elems(),
        (None, None) => n_samples,
    };
    if length > n_samples || length == 0 {
        return c.form(format!("frames of {length} of {n_samples} samples"), "shorter frames");
    }
    let onesided = c.int("onesided", i64::from(parts == 1))? != 0;
    if onesided && parts == 2 {
        return c.form("a one-sided transform of complex numbers", "real numbers");
    }
    let n_frames = (n_samples - length) / step + 1;
    let places: Vec<i64> =
        (0..n_frames).flat_map(|f| (0..length).map(move |i| (f * step + i) as i64)).collect();
    let places = b.constant(Tensor::i64(&[n_frames * length], &places));
    let frames = b.gather(x, places, 1)?;
    let mut frames = b.reshape(frames, &[batch, n_frames, length, parts])?;
    if let Some(window) = window {
        let window = b.reshape(window, &[length, 1])?;
        frames = b.mul(frames, window)?;
    }
    let what = Transform { n_in: length, parts_in: parts, length, inverse: false, onesided };
    one(transform(b, c, frames, what)?)
}

/// A sum of cosines, `Σ a[i] cos(i 2π n / N)`.
fn window(b: &mut Builder, c: &Call, terms: &[f64]) -> Outcome {
    let size = count(b, c.x(0)?, "`size`")?;
    let periodic = c.int("periodic", 1)? != 0;
    let code = c.int("output_datatype", 1)?;
    let Some(dtype) = i32::try_from(code).ok().and_then(DType::from_onnx) else {
        return c.form(format!("element type {code}"), "floats");
    };
    if size > 1 << 26 {
        return Err(OpError::TooLarge { extents: vec![size as i64] });
    }
    let period = if periodic { size } else { size.saturating_sub(1).max(1) } as f64;
    let element = |n: usize| {
        let angle = TAU * n as f64 / period;
        terms.iter().enumerate().map(|(i, a)| a * (i as f64 * angle).cos()).sum()
    };
    let elements: Vec<f64> = (0..size).map(element).collect();
    one(b.constant(Tensor::from_f64(dtype, &[size], &elements)))
}

pub(super) fn hann_window(b: &mut Builder, c: &Call) -> Outcome {
    window(b, c, &[0.5, -0.5])
}

pub(super) fn hamming_window(b: &mut Builder, c: &Call) -> Outcome {
    // ONNX's coefficients: 25/46 and the rest.
    window(b, c, &[25.0 / 46.0, -21.0 / 46.0])
}

pub(super) fn blackman_window(b: &mut Builder, c: &Call) -> Outcome {
    window(b, c, &[0.42, -0.5, 0.08])
}

/// Triangles on the mel scale, `[bins of the spectrum, bands]`.
pub(super) fn mel_weight_matrix(b: &mut Builder, c: &Call) -> Outcome {
    let n_bands = count(b, c.x(0)?, "`num_mel_bins`")?;
    let length = count(b, c.x(1)?, "`dft_length`")?;
    let rate = count(b, c.x(2)?, "`sample_rate`")? as f64;
    let edge = |i: usize, what: &str| -> Result<f64, OpError> {
        Ok(b.known_floats(c.x(i)?, what)?.first().copied().unwrap_or(0.0))
    };
    let (low, high) = (edge(3, "`lower_edge_hertz`")?, edge(4, "`upper_edge_hertz`")?);
    let n_bins = length / 2 + 1;
    if n_bins.saturating_mul(n_bands) > MAX_MATRIX {
        return Err(OpError::TooLarge { extents: vec![n_bins as i64, n_bands as i64] });
    }
    let mel = |hertz: f64| 2595.0 * (hertz / 700.0).ln_1p() / std::f64::consts::LN_10;
    let hertz = |mel: f64| 700.0 * (mel / 2595.0 * std::f64::consts::LN_10).exp_m1();
    let step = (mel(high) - mel(low)) / (n_bands + 2) as f64;
    let bin =
        |i: usize| ((length + 1) as f64 * hertz(i as f64 * step + mel(low)) / rate).floor() as i64;
    let mut weights = vec![0.0; n_bins * n_bands];
    for band in 0..n_bands {
        let (left, centre, right) = (bin(band), bin(band + 1), bin(band + 2));
        let mut set = |at: i64, weight: f64| {
            if let Some(row) = usize::try_from(at).ok().filter(|&row| row < n_bins) {
                weights[row * n_bands + band] = weight;
            }
        };
        if left == centre {
            set(centre, 1.0);
        }
        for at in left..=centre.min(n_bins as i64) {
            if left != centre {
                set(at, (at - left) as f64 / (centre - left) as f64);
            }
        }
        for at in centre..right.min(n_bins as i64) {
            set(at, (right - at) as f64 / (right - centre) as f64);
        }
    }
    let code = c.int("output_datatype", 1)?;
    let Some(dtype) = i32::try_from(code).ok().and_then(DType::from_onnx) else {
        return c.form(format!("element type {code}"), "floats");
    };
    one(b.constant(Tensor::from_f64(dtype, &[n_bins, n_bands], &weights)))
}

/// The determinant by expansion along the rows: for each set of columns, that of the first rows.
pub(super) fn det(b: &mut Builder, c: &Call) -> Outcome {
    /// `2^n n` products.
    const MAX_ORDER: usize = 6;
    let x = c.x(0)?;
    let extents = b.extents(x);
    let n = match extents[..] {
        [.., rows, columns] if rows == columns && rows <= MAX_ORDER => rows,
        _ => return c.form(format!("the determinant of {}", b.ty(x)), "matrices up to 6 by 6"),
    };
    let lead = extents[..extents.len() - 2].to_vec();
    let rank = lead.len();
    let unit = b.scalar_like(x, 1.0);
    let mut minors: Vec<Option<Value>> = vec![None; 1 << n];
    minors[0] = Some(b.expand(unit, &lead)?);
    for columns in 1usize..1 << n {
        let row = columns.count_ones() as usize - 1;
        let mut sum: Option<Value> = None;
        for column in (0..n).filter(|column| columns >> column & 1 == 1) {
            let rest = minors[columns & !(1 << column)].expect("smaller sets come first");
            let entry = b.narrow(x, rank, row, 1)?;
            let entry = b.narrow(entry, rank + 1, column, 1)?;
            let entry = b.reshape(entry, &lead)?;
            let term = b.mul(entry, rest)?;
            // The sign is that of the number of chosen columns behind this one.
            let odd = (columns >> (column + 1)).count_ones() % 2 == 1;
            sum = Some(match (sum, odd) {
                (None, false) => term,
                (None, true) => b.unary(Op::Neg, term)?,
                (Some(sum), false) => b.add(sum, term)?,
                (Some(sum), true) => b.sub(sum, term)?,
            });
        }
        minors[columns] = sum;
    }
    one(minors[(1 << n) - 1].expect("the whole set is last"))
}
