//! Comparison of a run with the outputs that a case expects.
//!
//! An output agrees if `max|got − want| ≤ tolerance · max|want|`, integers and booleans exactly. NaN
//! must be where NaN is expected, and infinities where those are. A case may expect two versions of
//! an output (`out`, `spec`); agreeing with either is agreeing.

use eggine_ir::{DType, Tensor};
use serde::Serialize;

use crate::case::Expected;
use crate::plan::IoSpec;

/// How one output compares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputComparison {
    /// Name in the model.
    pub name: String,
    /// `f32[1,1000]`
    pub ty: String,
    /// Whether it agrees; an output that the case says nothing about does.
    pub agrees: bool,
    /// Which array it was compared with: `out`, `spec`, or `None` if the case has neither.
    pub against: Option<&'static str>,
    /// `max|got − want| / max|want|` over elements that are finite in both.
    pub max_relative: f64,
    /// `‖got − want‖₂ / ‖want‖₂` over the same elements.
    pub relative_l2: f64,
    /// What `max_relative` may be: 0 for integers and booleans.
    pub tolerance: f64,
    /// Number of elements.
    pub n_elems: usize,
    /// Elements that differ in kind: NaN, an infinity, or (for integers) any other value.
    pub n_mismatches: usize,
    /// Row-major index of the worst element, if any differs.
    pub worst_index: Option<usize>,
    /// Its value, as text.
    pub worst_got: Option<String>,
    /// What was expected, as text.
    pub worst_want: Option<String>,
}

/// How a run compares with a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Whether every output agrees, and at least one was compared.
    pub agrees: bool,
    /// The outputs, in the model's order.
    pub outputs: Vec<OutputComparison>,
}

/// Compares the outputs of a run with what a case expects, in the model's order.
///
/// # Panics
///
/// If the lists differ in length, or a tensor's type is not that of its output: [`Case::expected`](crate::Case::expected) and
/// [`Session::run`](crate::Session::run) check types.
pub fn compare(
    specs: &[IoSpec],
    got: &[Tensor],
    expected: &[Expected],
    tolerance: f64,
) -> Comparison {
    assert!(
        specs.len() == got.len() && got.len() == expected.len(),
        "one tensor and one expectation per output"
    );
    let mut outputs = Vec::with_capacity(specs.len());
    for ((spec, got), expected) in specs.iter().zip(got).zip(expected) {
        let against = [("out", &expected.out), ("spec", &expected.spec)];
        let mut best: Option<OutputComparison> = None;
        for (which, want) in against {
            let Some(want) = want else { continue };
            let found = compare_output(spec, got, want, which, tolerance);
            if best.as_ref().is_none_or(|best| rank(&found) < rank(best)) {
                best = Some(found);
            }
        }
        outputs.push(best.unwrap_or_else(|| unknown(spec, tolerance)));
    }
    let agrees = outputs.iter().all(|output| output.agrees)
        && outputs.iter().any(|output| output.against.is_some());
    Comparison { agrees, outputs }
}

/// The better of two comparisons of one output has the smaller rank.
fn rank(found: &OutputComparison) -> (bool, usize, u64) {
    // Non-negative floats are ordered as their bits.
    (!found.agrees, found.n_mismatches, found.max_relative.to_bits())
}

fn unknown(spec: &IoSpec, tolerance: f64) -> OutputComparison {
    OutputComparison {
        name: spec.name.clone(),
        ty: spec.ty().to_string(),
        agrees: true,
        against: None,
        max_relative: 0.0,
        relative_l2: 0.0,
        tolerance,
        n_elems: spec.extents.iter().product(),
        n_mismatches: 0,
        worst_index: None,
        worst_got: None,
        worst_want: None,
    }
}

fn compare_output(
    spec: &IoSpec,
    got: &Tensor,
    want: &Tensor,
    which: &'static str,
    tolerance: f64,
) -> OutputComparison {
    assert!(got.dtype == want.dtype && got.extents == want.extents, "types were checked before");
    let mut found = unknown(spec, if spec.dtype.is_float() { tolerance } else { 0.0 });
    found.against = Some(which);
    if spec.dtype.is_float() {
        compare_floats(&mut found, &got.to_f64(), &want.to_f64());
    } else {
        compare_exactly(&mut found, got, want);
    }
    found
}

fn compare_floats(found: &mut OutputComparison, got: &[f64], want: &[f64]) {
    let (mut max_error, mut max_want) = (0f64, 0f64);
    let (mut sum_error, mut sum_want) = (0f64, 0f64);
    let mut worst: Option<usize> = None;
    let mut worst_kind: Option<usize> = None;
    for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
        if !(got.is_finite() && want.is_finite()) {
            if got != want && !(got.is_nan() && want.is_nan()) {
                found.n_mismatches += 1;
                worst_kind.get_or_insert(index);
            }
            continue;
        }
        let error = (got - want).abs();
        if error > max_error {
            (max_error, worst) = (error, Some(index));
        }
        max_want = max_want.max(want.abs());
        sum_error += error * error;
        sum_want += want * want;
    }
    found.max_relative = ratio(max_error, max_want);
    found.relative_l2 = ratio(sum_error.sqrt(), sum_want.sqrt());
    found.agrees = found.n_mismatches == 0 && max_error <= found.tolerance * max_want;
    found.worst_index = worst_kind.or(worst);
    found.worst_got = found.worst_index.map(|index| format!("{:e}", got[index]));
    found.worst_want = found.worst_index.map(|index| format!("{:e}", want[index]));
}

/// `error / scale`; an error without a scale is as large as a serialisable number can tell.
fn ratio(error: f64, scale: f64) -> f64 {
    if error == 0.0 { 0.0 } else { (error / scale).min(f64::MAX) }
}

fn compare_exactly(found: &mut OutputComparison, got: &Tensor, want: &Tensor) {
    let (got_ints, want_ints) = (got.to_i64(), want.to_i64());
    let as_f64 = |x: i64| if got.dtype == DType::U64 { x as u64 as f64 } else { x as f64 };
    let (mut max_error, mut max_want, mut sum_error, mut sum_want) = (0f64, 0f64, 0f64, 0f64);
    for (index, (&got, &want)) in got_ints.iter().zip(&want_ints).enumerate() {
        let error = (as_f64(got) - as_f64(want)).abs();
        max_want = max_want.max(as_f64(want).abs());
        sum_error += error * error;
        sum_want += as_f64(want).powi(2);
        if got == want {
            continue;
        }
        found.n_mismatches += 1;
        if error > max_error || found.worst_index.is_none() {
            max_error = error;
            found.worst_index = Some(index);
        }
    }
    found.max_relative = ratio(max_error, max_want);
    found.relative_l2 = ratio(sum_error.sqrt(), sum_want.sqrt());
    found.agrees = found.n_mismatches == 0;
    found.worst_got = found.worst_index.map(|index| got_ints[index].to_string());
    found.worst_want = found.worst_index.map(|index| want_ints[index].to_string());
}
