//! Which node of one import is which of the other.

use super::{NotPaddable, PerValue, refused};
use crate::graph::{NodeKind, OpClass};
use crate::{Graph, Value};

/// The counterpart of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    /// The same node.
    Same(Value),
    /// Import left it out, since it would have changed nothing: this is its operand.
    Absent(Value),
    /// Import computed it.
    Known(Value),
}

impl Pair {
    /// The value in the other graph.
    pub(super) fn value(self) -> Value {
        match self {
            Pair::Same(value) | Pair::Absent(value) | Pair::Known(value) => value,
        }
    }
}

/// For each node of `most` that its outputs depend on, the one of `less`.
///
/// # Errors
///
/// If one has a node that the other has not.
pub(super) fn align(most: &Graph, less: &Graph) -> Result<PerValue<Option<Pair>>, NotPaddable> {
    let mut pairs: PerValue<Option<Pair>> = PerValue::new();
    let whole = |reason: &str| NotPaddable { node: "the graph".into(), reason: reason.to_owned() };
    let (mine, theirs): (Vec<_>, Vec<_>) = (most.inputs().collect(), less.inputs().collect());
    if mine.len() != theirs.len() || most.outputs.len() != less.outputs.len() {
        return Err(whole("it has another number of inputs or outputs"));
    }
    let mut todo: Vec<(Value, Value)> = mine.into_iter().zip(theirs).collect();
    todo.extend(most.outputs.iter().copied().zip(less.outputs.iter().copied()));
    while let Some((a, b)) = todo.pop() {
        let pair = match (&most.nodes[a].kind, &less.nodes[b].kind) {
            (NodeKind::Input { name: x, .. }, NodeKind::Input { name: y, .. }) if x == y => {
                Pair::Same(b)
            }
            (NodeKind::Const(_), NodeKind::Const(_)) => Pair::Same(b),
            (NodeKind::Apply(op, _, args), NodeKind::Apply(other, _, others))
                if op == other && args.len() == others.len() =>
            {
                Pair::Same(b)
            }
            (NodeKind::Apply(..), NodeKind::Const(_)) => Pair::Known(b),
            (NodeKind::Apply(op, _, args), _)
                if op.spec().class == OpClass::Move
                    && args.len() == 1
                    && most.ty(a).shape.rank() == less.ty(b).shape.rank() =>
            {
                Pair::Absent(b)
            }
            _ => return Err(refused(most, a, "it is another operator at another shape")),
        };
        if most.ty(a).dtype != less.ty(b).dtype
            || most.ty(a).shape.rank() != less.ty(b).shape.rank()
        {
            return Err(refused(most, a, "its type is another one"));
        }
        match pairs[a] {
            Some(known) if known == pair => continue,
            Some(_) => return Err(refused(most, a, "it is two nodes at another shape")),
            None => pairs[a] = Some(pair),
        }
        let NodeKind::Apply(_, _, args) = &most.nodes[a].kind else { continue };
        match (pair, &less.nodes[b].kind) {
            (Pair::Absent(_), _) => todo.push((args[0], b)),
            (Pair::Same(_), NodeKind::Apply(_, _, others)) => {
                todo.extend(args.iter().copied().zip(others.iter().copied()));
            }
            _ => {}
        }
    }
    Ok(pairs)
}
