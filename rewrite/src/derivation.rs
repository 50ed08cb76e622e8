//! Derivations: the named rules that lead from a model to its kernels, and their check by replay.
//!
//! egg's own explanations cost three to five times the run. Instead every equality is logged when it
//! is added, with the rule, the match and the result. A replay starts from the model's own terms,
//! accepts a step only if the left side is there and the rule's conditions hold, and finally asks
//! whether each kernel's computation is in the class of the value that it is said to compute.

use std::collections::BTreeMap;

use egg::Id;
use eggine_ir::{Graph, NodeKind, Op, Value};

use crate::facts::EGraph;
use crate::lang::{ENode, has_attrs};
use crate::literal::Literal;
use crate::lower::{Lowered, lower};
use crate::saturate::{Action, Step};

/// A region that is said to compute a class.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The class of the computation.
    pub class: Id,
    /// The values of the segment's graph that this class is.
    pub values: Vec<Value>,
    /// The region's graph.
    pub region: Graph,
    /// The class behind each input of the region.
    pub args: Vec<Id>,
    /// Rules that were applied to the classes that the kernel computes, each once, in the order of
    /// their first application.
    pub rules: Vec<&'static str>,
}

/// A segment with its proof.
#[derive(Clone, Debug)]
pub struct SegmentProof {
    /// The segment, a part of the model.
    pub graph: Graph,
    /// Every equality and every built term, in order.
    pub steps: Vec<Step>,
    /// What its kernels are said to compute.
    pub claims: Vec<Claim>,
    /// The kernels of its cover put together again, with the inputs and outputs of `graph`: the rules are
    /// true of this segment if both graphs compute the same, whatever the inputs.
    pub cover: Graph,
}

/// Why a cover computes its model.
#[derive(Clone, Debug, Default)]
pub struct Derivation {
    /// The different segments.
    pub segments: Vec<std::sync::Arc<SegmentProof>>,
    /// Of each kernel, by the number of its tensor: the segment, and the claim in it.
    pub kernels: BTreeMap<u32, (usize, usize)>,
    /// Of each segment: the model's nodes behind its values, at all places where it stands.
    pub sources: std::sync::Arc<Vec<BTreeMap<Value, Vec<String>>>>,
}

/// A proof that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A step's left side is not in its class, or its condition does not hold.
    #[error("step {step}: `{rule}` does not apply")]
    Step {
        /// Number of the step.
        step: usize,
        /// The rule.
        rule: &'static str,
    },
    /// A kernel's computation is not equal to the value, as far as the steps show.
    #[error("the region of class {class} does not follow from the steps")]
    Claim {
        /// The class.
        class: String,
    },
}

impl Derivation {
    /// The names of the rules behind a kernel.
    pub fn rules(&self, tensor: crate::cover::TensorId) -> &[&'static str] {
        let found = self.kernels.get(&tensor.as_u32());
        found.map_or(&[], |&(segment, claim)| &self.segments[segment].claims[claim].rules)
    }

    /// Checks every segment's proof.
    ///
    /// # Errors
    ///
    /// The first step or claim that does not hold.
    pub fn replay(&self) -> Result<(), ReplayError> {
        self.segments.iter().try_for_each(|proof| proof.replay())
    }
}

impl SegmentProof {
    /// Checks the proof.
    ///
    /// # Errors
    ///
    /// The first step or claim that does not hold.
    pub fn replay(&self) -> Result<(), ReplayError> {
        let mut lowered = lower(&self.graph);
        let mut number = 0;
        // A round's matches were found in one e-graph, and applied to it one after the other.
        for round in self.steps.chunk_by(|a, b| a.round == b.round) {
            lowered.egraph.rebuild();
            let error = |at: usize| ReplayError::Step { step: number + at, rule: round[at].name() };
            for (number, step) in round.iter().enumerate() {
                if let Action::Equate { rule, at } = &step.action
                    && !rule.holds(&lowered.egraph, at)
                {
                    return Err(error(number));
                }
            }
            for (number, step) in round.iter().enumerate() {
                Step::apply(&step.action, step.agent, &mut lowered.egraph)
                    .ok_or_else(|| error(number))?;
            }
            number += round.len();
        }
        lowered.egraph.rebuild();
        for claim in &self.claims {
            if !claim.holds(&lowered) {
                return Err(ReplayError::Claim { class: claim.class.to_string() });
            }
        }
        Ok(())
    }
}

impl Claim {
    fn holds(&self, lowered: &Lowered) -> bool {
        let egraph = &lowered.egraph;
        let class = egraph.find(self.class);
        let is_class =
            |&value: &Value| lowered.computations[value].is_some_and(|id| egraph.find(id) == class);
        self.values.iter().all(is_class) && self.region_class(egraph) == Some(class)
    }

    /// The class of the region's result, if all of its terms are in the e-graph.
    fn region_class(&self, egraph: &EGraph) -> Option<Id> {
        let mut classes: BTreeMap<Value, Id> = BTreeMap::new();
        // Loads of stored constants, where no rule said that they are the constants.
        let mut loads: BTreeMap<Value, Id> = BTreeMap::new();
        let load_of =
            |class: Id| egraph.lookup(ENode::Load([egraph.lookup(ENode::Store([class]))?]));
        let mut args = self.args.iter();
        for (value, node) in self.region.nodes.iter() {
            let class = match &node.kind {
                NodeKind::Input { .. } => *args.next()?,
                // The element of a large uniform constant is in the e-graph only with its shape.
                NodeKind::Const(tensor) => {
                    match egraph.lookup(ENode::Const(Literal::from_tensor(tensor)?)) {
                        Some(class) => {
                            loads.extend(load_of(class).map(|load| (value, load)));
                            class
                        }
                        None => continue,
                    }
                }
                NodeKind::Apply(Op::Expand, _, operands) if self.is_uniform(operands[0]) => {
                    let NodeKind::Const(one) = &self.region.nodes[operands[0]].kind else {
                        return None;
                    };
                    let literal = Literal::from_tensor(one)?.with_shape_of(&node.ty)?;
                    let class = egraph.lookup(ENode::Const(literal))?;
                    loads.extend(load_of(class).map(|load| (value, load)));
                    class
                }
                NodeKind::Apply(op, attrs, operands) => {
                    let mut children = Vec::new();
                    if has_attrs(*op) {
                        children.push(egraph.lookup(ENode::Attrs(attrs.clone()))?);
                    }
                    let n_attrs = children.len();
                    for operand in operands {
                        children.push(*classes.get(operand)?);
                    }
                    let mut loaded = children.clone();
                    for (child, operand) in loaded[n_attrs..].iter_mut().zip(operands) {
                        *child = loads.get(operand).copied().unwrap_or(*child);
                    }
                    let known = egraph.lookup(ENode::Apply(*op, children));
                    known.or_else(|| egraph.lookup(ENode::Apply(*op, loaded)))?
                }
            };
            classes.insert(value, egraph.find(class));
        }
        self.region.outputs.first().and_then(|output| classes.get(output)).copied()
    }

    /// Whether the value is a constant of one element.
    fn is_uniform(&self, value: Value) -> bool {
        matches!(&self.region.nodes[value].kind, NodeKind::Const(tensor) if tensor.n_elems() == 1)
    }
}
