//! Siblings: products of one operand with different weights, and what follows each of them alike.
//!
//! They are found by an index, not by matching pairs: every product is entered under its operand,
//! every elementwise consumer under the entry of what it consumes, and whoever shares an entry is a
//! sibling. The time is linear in the e-nodes. (A pattern with two products, as in TASO, is quadratic
//! and takes 95 % of the search where it is used.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egg::{ENodeOrVar, Id, PatternAst, RecExpr, Subst, Var};
use eggine_ir::{Attr, Attrs, DType, Op};

use crate::agent::Proposal;
use crate::facts::{EGraph, ValueFacts};
use crate::lang::ENode;
use crate::rule::{MAX_OPERANDS, lookup};

/// Elementwise operators between a product and the end of the common part: scale, bias, activation
/// and one more.
const MAX_CHAIN: usize = 4;

/// What siblings have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kin {
    /// Products of one operand: the operator, its attributes' class, the operand's class, and the
    /// weights' type without the axis of the results.
    Product(Op, Option<Id>, Id, DType, Vec<usize>),
    /// What an elementwise operator makes of kin, with the shape of the known operand but for the
    /// common axis.
    After(Op, usize, Vec<usize>),
}

/// Computations that can lie side by side.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The axis along which they do.
    axis: usize,
    /// Their classes, in the order in which they came up.
    pub(super) parts: Vec<Id>,
    /// The extents of each.
    extents: Vec<Vec<usize>>,
}

/// What uses a class elementwise: operator, result, and the other operand if it has one.
type Use = (Op, Id, Option<Id>);

/// The groups of siblings of an e-graph, in the order of their classes.
pub(super) fn groups(egraph: &EGraph) -> Vec<Group> {
    let mut kinds: BTreeMap<Kin, usize> = BTreeMap::new();
    // By kind: the axis from the left, and the members.
    let mut members: Vec<(usize, BTreeSet<Id>)> = Vec::new();
    let mut uses: BTreeMap<Id, Vec<Use>> = BTreeMap::new();
    let mut level: BTreeSet<(usize, Id)> = BTreeSet::new();
    let mut enter = |kin: Kin, axis: usize, class: Id, members: &mut Vec<(usize, BTreeSet<Id>)>| {
        let kind = *kinds.entry(kin).or_insert_with(|| {
            members.push((axis, BTreeSet::new()));
            members.len() - 1
        });
        members[kind].1.insert(class);
        kind
    };
    let mut products: Vec<(Kin, usize, Id)> = Vec::new();
    for class in egraph.classes() {
        let Some(facts) = class.data.value() else { continue };
        if facts.known {
            continue;
        }
        for node in &class.nodes {
            match node {
                ENode::Apply(Op::Matmul | Op::Conv, _) => {
                    products.extend(product(egraph, node).map(|(kin, axis)| (kin, axis, class.id)));
                }
                ENode::Apply(op @ (Op::Add | Op::Mul), args) => {
                    let other = Some(egraph.find(args[1]));
                    uses.entry(egraph.find(args[0])).or_default().push((*op, class.id, other));
                }
                ENode::Apply(Op::Relu, args) => {
                    uses.entry(egraph.find(args[0])).or_default().push((Op::Relu, class.id, None));
                }
                _ => (),
            }
        }
    }
    products.sort();
    for (kin, axis, class) in products {
        level.insert((enter(kin, axis, class, &mut members), class));
    }
    uses.values_mut().for_each(|uses| uses.sort_unstable());
    for _ in 0..MAX_CHAIN {
        let mut next: BTreeSet<(usize, Id)> = BTreeSet::new();
        for &(kind, class) in &level {
            let axis = members[kind].0;
            for &(op, result, other) in uses.get(&class).into_iter().flatten() {
                if let Some(rest) = follows(egraph, axis, class, result, other) {
                    let kin = Kin::After(op, kind, rest);
                    next.insert((enter(kin, axis, result, &mut members), result));
                }
            }
        }
        level = next;
    }
    let mut groups = Vec::new();
    for (axis, parts) in members {
        let parts: Vec<Id> = parts.into_iter().collect();
        for parts in parts.chunks(MAX_OPERANDS).filter(|parts| parts.len() > 1) {
            let extents = |part: &Id| value(egraph, *part).map(|facts| facts.ty.extents());
            let Some(extents) = parts.iter().map(extents).collect() else { continue };
            groups.push(Group { axis, parts: parts.to_vec(), extents });
        }
    }
    groups
}

fn value(egraph: &EGraph, class: Id) -> Option<&ValueFacts> {
    egraph[class].data.value()
}

fn without(extents: &[usize], axis: usize) -> Vec<usize> {
    extents.iter().enumerate().filter(|&(at, _)| at != axis).map(|(_, &n)| n).collect()
}

/// The kin of a product with weights, and the axis of its results that comes from the weights.
fn product(egraph: &EGraph, node: &ENode) -> Option<(Kin, usize)> {
    let ENode::Apply(op, children) = node else { return None };
    let [x, w] = *node.operands() else { return None };
    let (x, w) = (egraph.find(x), egraph.find(w));
    let (data, weight) = (value(egraph, x)?, value(egraph, w)?);
    // Weights that rules made are of products that stand for others: those others are entered.
    let is_made = |node: &ENode| matches!(node, ENode::Apply(Op::Concat | Op::Mul, _));
    if data.known || !weight.known || egraph[w].nodes.iter().any(is_made) {
        return None;
    }
    let extents = weight.ty.extents();
    let (attrs, axis, weight_axis) = match op {
        Op::Matmul if extents.len() == 2 && data.ty.shape.rank() >= 2 => {
            (None, data.ty.shape.rank() - 1, 1)
        }
        Op::Conv if egraph[children[0]].data.attrs()?.int(4) == 1 => {
            (Some(egraph.find(children[0])), 1, 0)
        }
        _ => return None,
    };
    Some((Kin::Product(*op, attrs, x, weight.ty.dtype, without(&extents, weight_axis)), axis))
}

/// Whether a result follows from a part such that the siblings' results do so side by side; the
/// extents of the other operand but for the common axis.
fn follows(
    egraph: &EGraph,
    axis: usize,
    part: Id,
    result: Id,
    other: Option<Id>,
) -> Option<Vec<usize>> {
    let (part, result) = (value(egraph, part)?, value(egraph, result)?);
    if part.ty != result.ty {
        return None;
    }
    let Some(other) = other else { return Some(Vec::new()) };
    let other = value(egraph, other)?;
    let (of_part, of_other) = (part.ty.extents(), other.ty.extents());
    let at = axis.checked_sub(of_part.len().checked_sub(of_other.len())?)?;
    (other.known && of_other.get(at) == Some(&of_part[axis])).then(|| without(&of_other, at))
}

fn var(index: usize) -> Var {
    Var::from_u32(index as u32)
}

fn ints(xs: impl Iterator<Item = usize>) -> Attr {
    Attr::Ints(xs.map(|x| x as i64).collect())
}

impl Group {
    /// What the variables of [`whole`](Self::whole) stand for.
    fn subst(&self) -> Subst {
        let mut subst = Subst::with_capacity(self.parts.len());
        for (i, &part) in self.parts.iter().enumerate() {
            subst.insert(var(i), part);
        }
        subst
    }

    /// `(concat <axis> ?0 ?1 …)`.
    fn whole(&self) -> RecExpr<ENodeOrVar<ENode>> {
        let mut term = RecExpr::default();
        let axis = Attrs(vec![Attr::Int(self.axis as i64)]);
        let mut children = vec![term.add(ENodeOrVar::ENode(ENode::Attrs(axis)))];
        for i in 0..self.parts.len() {
            children.push(term.add(ENodeOrVar::Var(var(i))));
        }
        term.add(ENodeOrVar::ENode(ENode::Apply(Op::Concat, children)));
        term
    }

    /// `(slice <…> (load (store (concat <axis> ?0 ?1 …))))`, for each part.
    fn slices(&self) -> Vec<PatternAst<ENode>> {
        let mut start = 0;
        let mut slices = Vec::with_capacity(self.parts.len());
        for extents in &self.extents {
            let mut term = self.whole();
            let mut add = |node: ENode| term.add(ENodeOrVar::ENode(node));
            let starts = ints((0..extents.len()).map(|at| if at == self.axis { start } else { 0 }));
            let steps = ints(extents.iter().map(|_| 1));
            let window = Attrs(vec![starts, ints(extents.iter().copied()), steps]);
            let whole = Id::from(self.parts.len() + 1);
            let stored = add(ENode::Store([whole]));
            let loaded = add(ENode::Load([stored]));
            let window = add(ENode::Attrs(window));
            add(ENode::Apply(Op::Slice, vec![window, loaded]));
            start += extents[self.axis];
            slices.push(term);
        }
        slices
    }

    fn find(&self, egraph: &EGraph, term: &PatternAst<ENode>) -> Option<Id> {
        let subst = self.subst();
        lookup(egraph, term, |var| subst.get(var).copied())
    }

    /// The terms that are not there yet.
    pub(super) fn terms(&self, egraph: &EGraph) -> Vec<Proposal> {
        let missing = |term: &PatternAst<ENode>| self.find(egraph, term).is_none();
        (self.slices().into_iter().filter(missing))
            .map(|term| Proposal::Build { term: Arc::new(term), at: self.subst() })
            .collect()
    }

    /// The classes of those that are there: of the whole, and of its slices.
    pub(super) fn built(&self, egraph: &EGraph) -> Vec<Id> {
        let mut classes: Vec<Id> = std::iter::once(self.whole())
            .chain(self.slices())
            .filter_map(|term| self.find(egraph, &term))
            .collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }
}
