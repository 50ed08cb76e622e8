//! When two tensors are the same answer.

use eggine_ir::{DType, Tensor};

/// Tolerances of one comparison.
#[derive(Clone, Copy)]
pub(crate) struct Tolerance {
    /// Of each element, relative.
    pub(crate) relative: f64,
    /// Of each element, absolute.
    pub(crate) absolute: f64,
}

impl Tolerance {
    /// For one output: the suite's own (1e-3 relative by default), and what the type cannot show.
    ///
    /// The expected values are numpy's, computed in the output's type, so that
    ///
    /// - an element that is the small rest of large summands carries *their* error: 2e-6 of the largest
    ///   magnitude, 16 roundings of f32, is allowed everywhere;
    /// - in half precision one rounding is 2^-11 and in bf16 2^-8, and intermediate results are rounded
    ///   too, where the oracle rounds none: 4 roundings of the largest and of each element are allowed;
    /// - integers, booleans and floats of 8 and fewer bits are the result of one rounding: exact.
    pub(crate) fn of(dtype: DType, expected: &[f64], relative: f64, absolute: f64) -> Self {
        let rounding = match dtype {
            DType::F64 | DType::F32 => 2f64.powi(-19) / 4.0,
            DType::F16 => 2f64.powi(-11),
            DType::BF16 => 2f64.powi(-8),
            _ => return Self { relative: 0.0, absolute: 0.0 },
        };
        let largest =
            expected.iter().filter(|x| x.is_finite()).fold(0f64, |acc, x| acc.max(x.abs()));
        Self {
            relative: relative.max(4.0 * rounding),
            absolute: absolute.max(4.0 * rounding * largest),
        }
    }
}

/// The first difference in words.
pub(crate) fn difference(
    got: &Tensor,
    want: &Tensor,
    relative: f64,
    absolute: f64,
) -> Option<String> {
    if got.ty() != want.ty() {
        return Some(format!("is {}, expected {}", got.ty(), want.ty()));
    }
    if !want.dtype.is_float() {
        // As bits: u64 has more of them than f64.
        let (got, want) = (got.to_i64(), want.to_i64());
        let at = got.iter().zip(&want).position(|(x, y)| x != y)?;
        return Some(format!("is {} at {at}, expected {}", got[at], want[at]));
    }
    let (dtype, got, want) = (want.dtype, got.to_f64(), want.to_f64());
    let tolerance = Tolerance::of(dtype, &want, relative, absolute);
    let same = |x: f64, y: f64| {
        x == y
            || (x.is_nan() && y.is_nan())
            || (x - y).abs() <= tolerance.absolute + tolerance.relative * y.abs()
    };
    let at = got.iter().zip(&want).position(|(&x, &y)| !same(x, y))?;
    let n_wrong = got.iter().zip(&want).filter(|&(&x, &y)| !same(x, y)).count();
    Some(format!(
        "is {} at {at}, expected {} ({n_wrong} of {} differ)",
        got[at],
        want[at],
        got.len()
    ))
}
