//! Holds the outputs of one run against the oracle.

use super::bound::Reference;
use super::inputs::Family;
use super::oracle::Oracle;
use super::resident::RawOutput;
use super::{FamilyResult, Verdict, Worst};

/// What one run shows.
pub(super) struct Judgement {
    pub(super) result: FamilyResult,
    pub(super) verdict: Verdict,
}

/// Elements of one output that are wrong in one way.
#[derive(Default)]
struct Wrong {
    n_elems: usize,
    worst: Option<(usize, f64)>,
}

impl Wrong {
    fn add(&mut self, index: usize, by: f64) {
        self.n_elems += 1;
        if self.worst.is_none_or(|(_, most)| by > most) {
            self.worst = Some((index, by));
        }
    }
}

pub(super) fn judge(family: Family, oracle: &Oracle, outputs: &[RawOutput]) -> Judgement {
    let mut result = FamilyResult {
        family,
        error_ratio: 0.0,
        max_relative: 0.0,
        relative_l2: 0.0,
        n_elems: 0,
        n_free: 0,
    };
    let mut verdict = Verdict::Accepted;
    let mut seen = vec![false; oracle.outputs.len()];
    for output in outputs {
        seen[output.index] = true;
        let reference = &oracle.outputs[output.index];
        let found = judge_output(family, reference, output, oracle.moves_only, &mut result);
        if verdict.accepted() {
            verdict = found;
        }
    }
    // A kernel without a parameter for an output cannot have written it.
    if let (true, Some(output)) = (verdict.accepted(), seen.iter().position(|seen| !seen)) {
        let n_elems = oracle.outputs[output].values.len();
        verdict = Verdict::Unwritten { family, output, n_elems, first_index: 0 };
    }
    Judgement { result, verdict }
}

fn judge_output(
    family: Family,
    reference: &Reference,
    output: &RawOutput,
    moves_only: bool,
    result: &mut FamilyResult,
) -> Verdict {
    let RawOutput { index: output_index, tensor, poison } = output;
    let (got, want) = (tensor.to_f64(), &reference.values);
    let width = tensor.dtype.bits() / 8;
    let untouched = |index: usize| {
        width > 0 && tensor.bytes[index * width..][..width].iter().all(|byte| byte == poison)
    };
    let got_ints = reference.ints.as_ref().map(|_| tensor.to_i64());
    let equal = |index: usize| match (&got_ints, &reference.ints) {
        (Some(got), Some(want)) => got[index] == want[index],
        // Movement keeps the sign of a zero; arithmetic that is exact need not.
        _ if moves_only => got[index].to_bits() == want[index].to_bits(),
        _ => got[index] == want[index],
    };
    let (mut unwritten, mut kind, mut inaccurate) =
        (Wrong::default(), Wrong::default(), Wrong::default());
    let (mut max_error, mut max_want, mut sum_error, mut sum_want) = (0f64, 0f64, 0f64, 0f64);
    for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
        let bound = reference.bound(index);
        if bound == f64::INFINITY {
            result.n_free += 1;
            // Poison has the bits of no NaN that a device makes.
            if tensor.dtype.is_float() && untouched(index) {
                unwritten.add(index, 0.0);
            }
            continue;
        }
        let error = (got - want).abs();
        let wrong_kind = got.is_nan() != want.is_nan()
            || (got.is_infinite() || want.is_infinite()) && got != want;
        if want.is_nan() && got.is_nan() || equal(index) {
            max_want = max_want.max(if want.is_finite() { want.abs() } else { 0.0 });
            sum_want += if want.is_finite() { want * want } else { 0.0 };
            continue;
        }
        if untouched(index) && (wrong_kind || !tensor.dtype.is_float()) {
            unwritten.add(index, 0.0);
        } else if wrong_kind {
            // The first one: larger indices count less.
            kind.add(index, -(index as f64));
        } else {
            (max_error, max_want) = (max_error.max(error), max_want.max(want.abs()));
            sum_error += error * error;
            sum_want += want * want;
            let ratio = if bound > 0.0 { error / bound } else { f64::MAX };
            result.error_ratio = result.error_ratio.max(ratio);
            if ratio > 1.0 {
                inaccurate.add(index, ratio);
            }
        }
    }
    result.n_elems += got.len();
    let relative =
        |error: f64, scale: f64| if error == 0.0 { 0.0 } else { (error / scale).min(f64::MAX) };
    result.max_relative = result.max_relative.max(relative(max_error, max_want));
    result.relative_l2 = result.relative_l2.max(relative(sum_error.sqrt(), sum_want.sqrt()));

    let output = *output_index;
    let worst = |index: usize| Worst {
        index,
        got: format!("{:e}", got[index]),
        want: format!("{:e}", want[index]),
        bound: format!("{:e}", reference.bound(index)),
    };
    if let Some((first_index, _)) = unwritten.worst {
        Verdict::Unwritten { family, output, n_elems: unwritten.n_elems, first_index }
    } else if let Some((index, _)) = kind.worst {
        Verdict::WrongKind { family, output, n_elems: kind.n_elems, worst: worst(index) }
    } else if let Some((index, _)) = inaccurate.worst {
        Verdict::Inaccurate { family, output, n_elems: inaccurate.n_elems, worst: worst(index) }
    } else {
        Verdict::Accepted
    }
}
