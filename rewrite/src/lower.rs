//! A graph as e-graph terms: every operator is a store of a computation over loads.

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::ReservedValue;
use egg::{Id, RecExpr};
use eggine_ir::{Graph, NodeKind, Value};

use crate::facts::{EGraph, Typing};
use crate::lang::{ENode, has_attrs};
use crate::literal::Literal;

/// A graph in an e-graph.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The terms, and whatever rules added to them.
    pub egraph: EGraph,
    /// The computation of each graph value.
    pub computations: SecondaryMap<Value, Option<Id>>,
    /// The tensor that holds each graph value.
    pub tensors: SecondaryMap<Value, Option<Id>>,
    /// The tensors that the graph returns, in order.
    pub outputs: Vec<Id>,
}

/// Lowers a graph. Inputs and weights become `(load v<value>)`, literals stay computations.
pub fn lower(graph: &Graph) -> Lowered {
    let mut inputs = Vec::with_capacity(graph.nodes.len());
    for node in graph.nodes.values() {
        // `v<index>` is the value of that number, so the table has a row for every value.
        let weight = match &node.kind {
            NodeKind::Input { weight, .. } => *weight,
            NodeKind::Const(_) => true,
            NodeKind::Apply(..) => false,
        };
        inputs.push((node.ty.clone(), weight));
    }
    let mut egraph = EGraph::new(Typing { inputs, ..Typing::default() });
    let mut computations: SecondaryMap<Value, Option<Id>> = SecondaryMap::new();
    let mut tensors: SecondaryMap<Value, Option<Id>> = SecondaryMap::new();
    for (value, node) in graph.nodes.iter() {
        let literal = match &node.kind {
            NodeKind::Const(tensor) => Literal::from_tensor(tensor),
            _ => None,
        };
        let (computation, tensor) = match (&node.kind, literal) {
            (_, Some(literal)) => {
                let computation = egraph.add(ENode::Const(literal));
                (computation, egraph.add(ENode::Store([computation])))
            }
            (NodeKind::Apply(op, attrs, args), None) => {
                let mut children = Vec::with_capacity(args.len() + 1);
                if has_attrs(*op) {
                    children.push(egraph.add(ENode::Attrs(attrs.clone())));
                }
                for &arg in args {
                    let tensor = tensors[arg].expect("arguments are defined before");
                    children.push(egraph.add(ENode::Load([tensor])));
                }
                let computation = egraph.add(ENode::Apply(*op, children));
                (computation, egraph.add(ENode::Store([computation])))
            }
            (NodeKind::Input { .. } | NodeKind::Const(_), None) => {
                let tensor = egraph.add(ENode::Input(value.as_u32()));
                (egraph.add(ENode::Load([tensor])), tensor)
            }
        };
        computations[value] = Some(computation);
        tensors[value] = Some(tensor);
    }
    egraph.rebuild();
    let outputs =
        graph.outputs.iter().map(|&value| tensors[value].expect("outputs are defined")).collect();
    Lowered { egraph, computations, tensors, outputs }
}

impl Lowered {
    /// The class of a ground term, in which `v3` is the graph value of that number: its tensor under
    /// `load`, `view` and `join`, elsewhere its computation. `None` if nobody has built the term.
    pub fn lookup(&self, term: &RecExpr<ENode>) -> Option<Id> {
        let nodes: &[ENode] = term.as_ref();
        let mut as_tensor = vec![false; nodes.len()];
        for node in nodes {
            if matches!(node, ENode::Load(_) | ENode::View(_) | ENode::Join(_)) {
                node.operands().iter().for_each(|&id| as_tensor[usize::from(id)] = true);
            }
        }
        let mut found: Vec<Id> = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let id = match node {
                ENode::Input(number) => {
                    let value = Value::from_u32(*number);
                    let table = if as_tensor[index] { &self.tensors } else { &self.computations };
                    (!value.is_reserved_value()).then(|| table[value])??
                }
                other => {
                    let mut other = other.clone();
                    egg::Language::children_mut(&mut other)
                        .iter_mut()
                        .for_each(|id| *id = found[usize::from(*id)]);
                    self.egraph.lookup(other)?
                }
            };
            found.push(self.egraph.find(id));
        }
        found.last().copied()
    }
}
