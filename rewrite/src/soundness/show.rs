//! Counterexamples as text.

use std::fmt;

use eggine_ir::graph::Array;
use eggine_ir::{DType, Tensor};

use super::draw::{Bound, Env};
use super::{Counterexample, Difference, Trial};
use crate::lang::print_attrs;
use crate::rule::Soundness;

/// Elements of a tensor that are shown.
const MAX_SHOWN: usize = 32;

pub(super) fn counterexample(
    trial: &Trial<'_>,
    env: &Env,
    difference: &Difference,
) -> Counterexample {
    let (lhs, rhs) = trial.rule.expanded(trial.n_operands);
    let inputs = env.iter().map(|(name, bound)| {
        let value = match bound {
            Bound::Attrs(attrs) => print_attrs(attrs),
            Bound::Value { tensor, literal: Some(_), .. } => {
                format!("{}:{} throughout", element(tensor, 0), tensor.ty())
            }
            Bound::Value { tensor, .. } => show(tensor),
        };
        (format!("?{name}"), value)
    });
    let left = difference.left.to_tensor();
    let right = difference.right.as_ref().map(Array::to_tensor);
    let place = match (difference.at, &right) {
        (Some(at), Ok(right)) if left.n_elems() > 1 => Some(format!(
            "element {:?}: {} and {}",
            index(&left.extents, at),
            element(&left, at),
            element(right, at)
        )),
        _ => None,
    };
    Counterexample {
        rule: trial.rule.name,
        soundness: trial.rule.soundness,
        lhs,
        rhs,
        inputs: inputs.collect(),
        left: show(&left),
        right: right.map(|right| show(&right)).map_err(Clone::clone),
        place,
        holds_over_the_reals: false,
    }
}

fn index(extents: &[usize], mut at: usize) -> Vec<usize> {
    let mut index = vec![0; extents.len()];
    for (axis, &n) in extents.iter().enumerate().rev() {
        index[axis] = at % n;
        at /= n;
    }
    index
}

fn element(tensor: &Tensor, at: usize) -> String {
    match tensor.dtype {
        // The shortest text that is this number of its own type.
        DType::F32 => format!("{:?}", tensor.to_f64()[at] as f32),
        dtype if dtype.is_float() => format!("{:?}", tensor.to_f64()[at]),
        DType::U64 => (tensor.to_i64()[at] as u64).to_string(),
        _ => tensor.to_i64()[at].to_string(),
    }
}

fn show(tensor: &Tensor) -> String {
    let n_elems = tensor.n_elems();
    if n_elems == 1 {
        return format!("{}:{}", element(tensor, 0), tensor.ty());
    }
    let mut all: Vec<String> = (0..n_elems.min(MAX_SHOWN)).map(|at| element(tensor, at)).collect();
    if n_elems > MAX_SHOWN {
        all.push("…".into());
    }
    format!("{{{}}}:{}", all.join(","), tensor.ty())
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sense = match self.soundness {
            Soundness::Exact => "bit for bit",
            Soundness::Real => "over the reals",
        };
        writeln!(f, "rule `{}` is false: its sides differ {sense}", self.rule)?;
        writeln!(f, "  left   {}", self.lhs)?;
        writeln!(f, "  right  {}", self.rhs)?;
        for (nth, (name, value)) in self.inputs.iter().enumerate() {
            let word = if nth == 0 { "for" } else { "" };
            writeln!(f, "  {word:<6} {name} = {value}")?;
        }
        writeln!(f, "  left   is {}", self.left)?;
        match &self.right {
            Ok(right) => writeln!(f, "  right  is {right}")?,
            Err(reason) => writeln!(f, "  right  has no value: {reason}")?,
        }
        if let Some(place) = &self.place {
            writeln!(f, "  first difference at {place}")?;
        }
        if self.holds_over_the_reals {
            writeln!(
                f,
                "  it holds over the reals: write Real for Exact, and compile with --fast-math"
            )?;
        }
        Ok(())
    }
}
