//! Evaluates a side of a rule with the reference evaluator, and compares two results.

use egg::{ENodeOrVar, PatternAst};
use eggine_ir::graph::eval::{Data, eval_op};
use eggine_ir::graph::infer::infer;
use eggine_ir::graph::{Array, Rounding};
use eggine_ir::{Attrs, Op, Tensor, TensorType};

use super::draw::{Bound, Env, Rng, draw_attrs};
use crate::lang::{ENode, has_attrs};
use crate::rule::Soundness;

/// Allowed difference of the sides of a `Real` rule, relative to the largest intermediate value (at
/// least 1) or, where rounding errors are amplified, to the measured condition number. Sides have at
/// most 2⁶ roundings behind an element (sums of at most 3³ products, few operators), each of at most
/// 2⁻⁵³ of its value, and later factors of at most 2³ (numbers drawn have magnitudes in [¼, 2))
/// amplify an error by at most 2⁶.
pub(super) const REAL_BOUND: f64 = 4096.0 / (1u64 << 53) as f64;

/// Why a side has no value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NoValue {
    /// An operator does not take its operands.
    IllTyped(String),
    /// The attributes of an operator cannot be drawn.
    NoGenerator(Op),
}

/// A side's value, and the largest finite magnitude on the way.
pub(super) fn eval_side(
    pattern: &PatternAst<ENode>,
    env: &mut Env,
    rounding: Rounding,
    mut rng: Option<&mut Rng>,
) -> Result<(Array, f64), NoValue> {
    let nodes = pattern.as_ref();
    let name = |id: egg::Id| match &nodes[usize::from(id)] {
        ENodeOrVar::Var(var) => Some(var.to_string().trim_start_matches('?').to_owned()),
        ENodeOrVar::ENode(_) => None,
    };
    let ill = |message: String| NoValue::IllTyped(message);
    let missing = |what: &dyn std::fmt::Display| ill(format!("`{what}` has no value"));
    let mut values: Vec<Option<Array>> = Vec::new();
    let mut largest: f64 = 1.0;
    for (index, node) in nodes.iter().enumerate() {
        let value = match node {
            ENodeOrVar::Var(var) => {
                match name(egg::Id::from(index)).and_then(|name| env.get(&name)) {
                    Some(Bound::Value { tensor, .. }) => Some(Array::from_tensor(tensor)),
                    Some(Bound::Attrs(_)) => None,
                    // Attributes are drawn where they are used.
                    None if rng.is_some() => None,
                    None => return Err(missing(var)),
                }
            }
            ENodeOrVar::ENode(ENode::Attrs(_)) => None,
            ENodeOrVar::ENode(ENode::Const(literal)) => {
                Some(Array::from_tensor(&literal.to_tensor()))
            }
            ENodeOrVar::ENode(ENode::Load([of]) | ENode::Store([of])) => {
                values[usize::from(*of)].clone()
            }
            ENodeOrVar::ENode(node) => {
                let (op, children) = match node {
                    ENode::Apply(op, children) => (*op, children.as_slice()),
                    ENode::View(children) => (Op::Reshape, children.as_slice()),
                    ENode::Join(children) => (Op::Concat, children.as_slice()),
                    other => return Err(missing(other)),
                };
                let args: Vec<&Array> = (node.operands().iter())
                    .map(|&id| values[usize::from(id)].as_ref())
                    .collect::<Option<_>>()
                    .ok_or_else(|| missing(node))?;
                let types: Vec<TensorType> = args.iter().map(|array| array.ty()).collect();
                let attrs = if !has_attrs(op) {
                    Attrs::none()
                } else if let ENodeOrVar::ENode(ENode::Attrs(attrs)) =
                    &nodes[usize::from(children[0])]
                {
                    attrs.clone()
                } else {
                    let var = name(children[0]).ok_or_else(|| missing(node))?;
                    if let (None, Some(rng)) = (env.get(&var), rng.as_deref_mut()) {
                        let attrs = draw_attrs(op, &types, rng).ok_or(NoValue::NoGenerator(op))?;
                        env.insert(var.clone(), Bound::Attrs(attrs));
                    }
                    match env.get(&var) {
                        Some(Bound::Attrs(attrs)) => attrs.clone(),
                        _ => return Err(missing(&var)),
                    }
                };
                let ty = infer(op, &attrs, &types.iter().collect::<Vec<_>>())
                    .map_err(|err| ill(err.to_string()))?;
                let array = match node {
                    ENode::Join(_) => join(&args, &ty),
                    _ => eval_op(op, &attrs, &args, &ty, rounding),
                };
                Some(array)
            }
        };
        if let Some(array) = &value {
            largest = array
                .to_f64()
                .iter()
                .filter(|x| x.is_finite())
                .fold(largest, |max, x| max.max(x.abs()));
        }
        values.push(value);
    }
    match values.pop().flatten() {
        Some(array) => Ok((array, largest)),
        None => Err(ill("the side has no value".into())),
    }
}

/// What `join` means is not concatenation but memory: the parts' elements one after the other.
fn join(parts: &[&Array], ty: &TensorType) -> Array {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_tensor().bytes.to_vec()).collect();
    Array::from_tensor(&Tensor::new(ty.dtype, &ty.extents(), bytes))
}

/// The first element at which two arrays of one type differ; `slack(i)` is what the reals allow.
pub(super) fn first_difference(
    soundness: Soundness,
    left: &Array,
    right: &Array,
    slack: impl Fn(usize) -> f64,
) -> Option<usize> {
    match (&left.data, &right.data) {
        (Data::Float(left), Data::Float(right)) => (0..left.len()).find(|&at| {
            let (x, y) = (left[at], right[at]);
            let same = match soundness {
                Soundness::Exact => x.to_bits() == y.to_bits(),
                Soundness::Real => x == y || (x - y).abs() <= slack(at),
            };
            !(same || (x.is_nan() && y.is_nan()))
        }),
        (Data::Int(left), Data::Int(right)) => (0..left.len()).find(|&at| left[at] != right[at]),
        _ => Some(0),
    }
}
