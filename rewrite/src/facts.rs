//! What is known of each e-class: its sort, its type, and whether its value is known.
//!
//! A merge of two different types, or an ill-typed term, means that a rule is wrong. It neither
//! kills the process nor goes unnoticed: it is recorded with the rule's name, and whoever runs the
//! rules reports it ([`Typing::conflicts`]).

use egg::{DidMerge, Id};
use eggine_ir::graph::{infer, widens_weights};
use eggine_ir::{Attrs, TensorType};

use crate::lang::{ENode, has_attrs};
use crate::literal::Literal;

/// The e-graph of this crate.
pub type EGraph = egg::EGraph<ENode, Typing>;

/// What kind of thing a term denotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Materialised in memory.
    Tensor,
    /// A pure function of an index.
    Computation,
}

/// What is known of a tensor or computation.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueFacts {
    /// Tensor or computation.
    pub sort: Sort,
    /// Element type and extents.
    pub ty: TensorType,
    /// The value, if it is a literal.
    pub literal: Option<Literal>,
    /// Whether it depends on constants and weights only, so that it can be computed beforehand; what
    /// widens weights of 8 or 4 bits is left to kernels.
    pub known: bool,
}

/// What is known of an e-class.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// The class of some attributes; it has one node.
    Attrs(Attrs),
    /// A tensor or computation.
    Value(ValueFacts),
    /// Ill-typed. [`Typing::conflicts`] says why.
    Broken,
}

impl Facts {
    /// The facts of a tensor or computation.
    pub fn value(&self) -> Option<&ValueFacts> {
        match self {
            Facts::Value(value) => Some(value),
            _ => None,
        }
    }

    /// The attributes, if this is their class.
    pub fn attrs(&self) -> Option<&Attrs> {
        match self {
            Facts::Attrs(attrs) => Some(attrs),
            _ => None,
        }
    }
}

/// An equality that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule `{rule}` made an ill-typed equality: {left} with {right}")]
pub struct Conflict {
    /// The rule that was being applied.
    pub rule: String,
    /// One side.
    pub left: String,
    /// The other side, or the complaint about the first.
    pub right: String,
}

/// The analysis: types of the inputs, and what went wrong.
#[derive(Clone, Debug, Default)]
pub struct Typing {
    /// Type of each input, and whether it is a weight.
    pub inputs: Vec<(TensorType, bool)>,
    /// Every violation so far, oldest first.
    pub conflicts: Vec<Conflict>,
    /// Name of the rule being applied.
    pub rule: &'static str,
}

impl Typing {
    fn conflict(&mut self, left: String, right: String) {
        self.conflicts.push(Conflict { rule: self.rule.to_owned(), left, right });
    }
}

fn describe(facts: &Facts) -> String {
    match facts {
        Facts::Attrs(attrs) => format!("attributes {}", crate::lang::print_attrs(attrs)),
        Facts::Value(value) => match value.sort {
            Sort::Tensor => format!("tensor {}", value.ty),
            Sort::Computation => format!("computation {}", value.ty),
        },
        Facts::Broken => "an ill-typed term".to_owned(),
    }
}

/// The facts of one e-node, given those of its children, or what is wrong with it.
fn infer_node(egraph: &EGraph, node: &ENode) -> Result<Facts, String> {
    let value = |id: Id, sort: Sort| -> Result<&ValueFacts, String> {
        match &egraph[id].data {
            Facts::Value(value) if value.sort == sort => Ok(value),
            other => Err(format!("`{node}` of {}", describe(other))),
        }
    };
    let attrs =
        |id: Id| egraph[id].data.attrs().ok_or_else(|| format!("`{node}` without attributes"));
    let found = match node {
        ENode::Attrs(attrs) => return Ok(Facts::Attrs(attrs.clone())),
        ENode::Const(literal) => ValueFacts {
            sort: Sort::Computation,
            ty: literal.ty().clone(),
            literal: Some(literal.clone()),
            known: true,
        },
        ENode::Input(index) => {
            let input = egraph.analysis.inputs.get(*index as usize);
            let (ty, weight) = input.ok_or_else(|| format!("there is no input v{index}"))?;
            ValueFacts { sort: Sort::Tensor, ty: ty.clone(), literal: None, known: *weight }
        }
        ENode::Load([tensor]) => {
            ValueFacts { sort: Sort::Computation, ..value(*tensor, Sort::Tensor)?.clone() }
        }
        ENode::Store([computation]) => {
            ValueFacts { sort: Sort::Tensor, ..value(*computation, Sort::Computation)?.clone() }
        }
        ENode::View([shape, tensor]) => {
            let source = value(*tensor, Sort::Tensor)?;
            let ty = infer::infer(eggine_ir::Op::Reshape, attrs(*shape)?, &[&source.ty]);
            ValueFacts {
                sort: Sort::Tensor,
                ty: ty.map_err(|err| err.to_string())?,
                literal: None,
                known: source.known,
            }
        }
        ENode::Join(args) => {
            let parts: Vec<&ValueFacts> = args[1..]
                .iter()
                .map(|&part| value(part, Sort::Tensor))
                .collect::<Result<_, _>>()?;
            let types: Vec<&TensorType> = parts.iter().map(|part| &part.ty).collect();
            let ty = infer::infer(eggine_ir::Op::Concat, attrs(args[0])?, &types);
            ValueFacts {
                sort: Sort::Tensor,
                ty: ty.map_err(|err| err.to_string())?,
                literal: None,
                known: parts.iter().all(|part| part.known),
            }
        }
        ENode::Apply(op, args) => {
            let none = Attrs::none();
            let (attrs, args) = match has_attrs(*op) {
                true => (attrs(args[0])?, &args[1..]),
                false => (&none, &args[..]),
            };
            let args: Vec<&ValueFacts> =
                args.iter().map(|&arg| value(arg, Sort::Computation)).collect::<Result<_, _>>()?;
            let types: Vec<&TensorType> = args.iter().map(|arg| &arg.ty).collect();
            let ty = infer::infer(*op, attrs, &types).map_err(|err| err.to_string())?;
            let widens = types.first().is_some_and(|from| widens_weights(*op, from, &ty));
            let known = args.iter().all(|arg| arg.known) && !widens;
            ValueFacts { sort: Sort::Computation, ty, literal: None, known }
        }
    };
    Ok(Facts::Value(found))
}

impl egg::Analysis<ENode> for Typing {
    type Data = Facts;

    fn make(egraph: &mut EGraph, node: &ENode, _: Id) -> Facts {
        infer_node(egraph, node).unwrap_or_else(|complaint| {
            egraph.analysis.conflict(format!("`{node}`"), complaint);
            Facts::Broken
        })
    }

    fn merge(&mut self, kept: &mut Facts, other: Facts) -> DidMerge {
        match (&mut *kept, &other) {
            (Facts::Value(a), Facts::Value(b)) if a.sort == b.sort && a.ty == b.ty => {
                let (from_b, from_a) = (
                    (b.known && !a.known) || (b.literal.is_some() && a.literal.is_none()),
                    (a.known && !b.known) || (a.literal.is_some() && b.literal.is_none()),
                );
                a.known |= b.known;
                if a.literal.is_none() {
                    a.literal.clone_from(&b.literal);
                }
                DidMerge(from_b, from_a)
            }
            (Facts::Attrs(a), Facts::Attrs(b)) if a == b => DidMerge(false, false),
            (Facts::Broken, Facts::Broken) => DidMerge(false, false),
            _ => {
                let (left, right) = (describe(kept), describe(&other));
                self.conflict(left, right);
                *kept = Facts::Broken;
                DidMerge(true, true)
            }
        }
    }
}
