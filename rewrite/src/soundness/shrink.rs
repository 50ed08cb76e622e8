//! Makes a counterexample small: first shapes, by drawing again at growing sizes, then values, by trying
//! simpler ones one element at a time. What comes out still differs.

use eggine_ir::{DType, Tensor};

use super::draw::{Bound, Env, Rng, Size, draw_values, names_of};
use super::{CheckError, Difference, Outcome, Trial};
use crate::literal::Literal;
use crate::rule::Soundness;

/// Sizes, smallest first.
#[rustfmt::skip] // One size per row.
const SIZES: &[Size] = &[
    Size { max_rank: 0, max_extent: 1, max_operands: 2 },
    Size { max_rank: 1, max_extent: 1, max_operands: 2 },
    Size { max_rank: 1, max_extent: 2, max_operands: 2 },
    Size { max_rank: 2, max_extent: 1, max_operands: 2 },
    Size { max_rank: 2, max_extent: 2, max_operands: 2 },
    Size { max_rank: 3, max_extent: 2, max_operands: 2 },
    Size { max_rank: 2, max_extent: 3, max_operands: 2 },
    Size { max_rank: 3, max_extent: 3, max_operands: 3 },
];

/// Draws per size. A rule that is false on one draw in fifty is found with 99.9 %.
const N_DRAWS: usize = 400;

/// Counterexamples of one size, of which the smallest is kept.
const N_FOUND: usize = 12;

/// Simple values, simplest first.
const EXACT: &[f64] = &[
    1.0,
    0.0,
    -0.0,
    2.0,
    -1.0,
    3.0,
    0.5,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f32::MAX as f64,
    f32::MIN_POSITIVE as f64,
];
/// Those among ordinary numbers.
const REAL: &[f64] = &[1.0, 1.5, -1.0, 0.5, -0.5, 1.25];
const INTEGERS: &[i64] = &[0, 1, 2, -1, 3];
/// Constants that stand for any uniform one, simplest first.
const UNIFORM: &[f64] = &[1.0, 2.0, 0.5, 3.0, -4.0];

/// The smallest counterexample found, at worst the one given.
pub(super) fn smallest<'a>(
    trial: Trial<'a>,
    env: Env,
) -> Result<(Trial<'a>, Env, Difference), CheckError> {
    let (trial, mut env) = smaller_shapes(trial, env)?;
    simpler_values(&trial, &mut env)?;
    match trial.judge(&mut env, None)? {
        Outcome::Differ(difference) => Ok((trial, env, difference)),
        _ => unreachable!("only what differs is kept"),
    }
}

/// Draws again, smallest size first; among those of one size, the least.
fn smaller_shapes<'a>(trial: Trial<'a>, env: Env) -> Result<(Trial<'a>, Env), CheckError> {
    let (rule, specs) = (trial.rule, trial.specs);
    let mut best = (weight(&env), trial, env);
    for (nth, &size) in SIZES.iter().enumerate() {
        let mut rng = Rng::new(1 + nth as u64, size);
        let mut n_found = 0;
        for _ in 0..N_DRAWS {
            let n_operands = rng.n_operands();
            let trial = Trial::new(rule, specs, n_operands)?;
            let mut env = draw_values(rule, specs, &trial.lhs, trial.float, n_operands, &mut rng);
            if matches!(trial.judge(&mut env, Some(&mut rng))?, Outcome::Differ(_)) {
                n_found += 1;
                let weight = weight(&env);
                if weight < best.0 {
                    best = (weight, trial, env);
                }
                if n_found == N_FOUND {
                    break;
                }
            }
        }
        if n_found > 0 {
            break;
        }
    }
    Ok((best.1, best.2))
}

/// Elements and dimensions of all tensors, then the size of what the attributes say.
fn weight(env: &Env) -> (usize, usize) {
    let mut tensors = 0;
    let mut attributes = 0;
    for bound in env.values() {
        match bound {
            Bound::Value { tensor, .. } => tensors += 2 * tensor.n_elems() + tensor.extents.len(),
            Bound::Attrs(attrs) => attributes += crate::lang::print_attrs(attrs).len(),
        }
    }
    (tensors, attributes)
}

/// Replaces elements and constants by simpler ones as long as the sides differ.
fn simpler_values(trial: &Trial<'_>, env: &mut Env) -> Result<(), CheckError> {
    let still_differs = |env: &mut Env, name: &str, value: Bound| -> Result<bool, CheckError> {
        let Some(old) = env.insert(name.to_owned(), value) else { return Ok(true) };
        let differs = match trial.judge(env, None) {
            Ok(outcome) => matches!(outcome, Outcome::Differ(_)),
            // A constant of the wrong type is no simpler one.
            Err(CheckError::Types { .. }) => false,
            Err(err) => return Err(err),
        };
        if !differs {
            env.insert(name.to_owned(), old);
        }
        Ok(differs)
    };
    for spec in trial.specs.iter().filter(|spec| spec.uniform == Some(None)) {
        for name in names_of(spec, trial.n_operands) {
            let Some(Bound::Value { ty, .. }) = env.get(&name) else { continue };
            let ty = ty.clone();
            for &value in UNIFORM {
                let literal = Literal::splat(&ty, value);
                let (tensor, literal) = (literal.to_tensor(), Some(literal));
                let value = Bound::Value { tensor, ty: ty.clone(), literal, known: true };
                if still_differs(env, &name, value)? {
                    break;
                }
            }
        }
    }
    // An element that could not be simpler may be once another is.
    for _ in 0..2 {
        for name in env.keys().cloned().collect::<Vec<_>>() {
            let n_elems = match &env[&name] {
                Bound::Value { tensor, literal: None, .. } => tensor.n_elems(),
                _ => continue,
            };
            for at in 0..n_elems {
                let Bound::Value { tensor, ty, known, .. } = env[&name].clone() else { continue };
                for simpler in simpler_tensors(&tensor, at, trial.rule.soundness) {
                    let value =
                        Bound::Value { tensor: simpler, ty: ty.clone(), literal: None, known };
                    if still_differs(env, &name, value)? {
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

/// The tensor with simpler elements at one place, simplest first.
fn simpler_tensors(tensor: &Tensor, at: usize, soundness: Soundness) -> Vec<Tensor> {
    let (dtype, extents) = (tensor.dtype, &tensor.extents);
    if dtype.is_float() {
        let elements = tensor.to_f64();
        let candidates = if soundness == Soundness::Exact { EXACT } else { REAL };
        let old = elements[at].to_bits();
        let simpler = candidates.iter().take_while(|x| x.to_bits() != old);
        return simpler
            .map(|&x| {
                let mut elements = elements.clone();
                elements[at] = x;
                Tensor::from_f64(dtype, extents, &elements)
            })
            .collect();
    }
    let elements = tensor.to_i64();
    let candidates = if dtype == DType::Bool { &INTEGERS[..2] } else { INTEGERS };
    let simpler = candidates.iter().take_while(|&&x| x != elements[at]);
    simpler
        .map(|&x| {
            let mut elements = elements.clone();
            elements[at] = x;
            Tensor::from_i64(dtype, extents, &elements)
        })
        .collect()
}
