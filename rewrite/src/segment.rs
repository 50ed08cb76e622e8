//! Segments: pieces of a model between values that are materialised in any case, equal ones once.
//!
//! A value is a *border* if it has several users, one of which contracts it: a kernel may compute a
//! cheap value twice, but not the value that a whole block starts from. Where only borders are alive,
//! the graph is cut. Twelve equal layers give one segment that is saturated and extracted once; its
//! cover is instantiated twelve times.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;
use eggine_ir::graph::{OpClass, widens_weights};
use eggine_ir::{Graph, NodeKind, Value};

use crate::cost::{Fingerprint, fingerprint};
use crate::literal::Literal;

/// From this many operators on, a segment ends at any value that a contraction reads and nothing else
/// crosses: chains of plain convolutions have no border at all, and the search is superlinear.
const LONG_SEGMENT: usize = 48;

/// A value that is alive this long is a border whoever uses it: recomputing it means to keep what it
/// was computed from alive instead.
const LONG_LIFE: usize = 64;

/// A place of the model that a segment describes.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// Index into [`Segments::graphs`].
    pub(crate) segment: usize,
    /// The model's value behind each value of the segment's graph.
    pub(crate) values: Vec<Value>,
}

/// A model in pieces.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    /// The different pieces, in canonical form.
    pub(crate) graphs: Vec<Graph>,
    /// Where they are, in an order in which they can be computed.
    pub(crate) instances: Vec<Instance>,
}

struct Uses {
    /// Users of each value, and the operand's position.
    users: SecondaryMap<Value, Vec<Value>>,
    /// Depends on constants and weights only, and is no wider than they are.
    known: SecondaryMap<Value, bool>,
    is_output: SecondaryMap<Value, bool>,
}

/// Cuts a graph.
pub(crate) fn segments(graph: &Graph) -> Segments {
    let uses = uses(graph);
    let order = order(graph, &uses);
    let segment_of = cut(graph, &uses, &order);
    let n_segments = segment_of.values().filter_map(|s| *s).max().map_or(0, |last| last + 1);
    let mut outputs: Vec<Vec<Value>> = vec![Vec::new(); n_segments];
    for &value in &order {
        let Some(segment) = segment_of[value] else { continue };
        let crosses = uses.users[value].iter().any(|&user| segment_of[user] != Some(segment));
        if crosses || uses.is_output[value] {
            outputs[segment].push(value);
        }
    }
    let mut found = Segments { graphs: Vec::new(), instances: Vec::new() };
    let mut known: BTreeMap<Fingerprint, usize> = BTreeMap::new();
    for (segment, outputs) in outputs.iter().enumerate().filter(|(_, outputs)| !outputs.is_empty())
    {
        let (piece, values) = canonical(graph, &segment_of, segment, outputs);
        let key = fingerprint(&piece);
        let index = *known.entry(key).or_insert_with(|| {
            found.graphs.push(piece);
            found.graphs.len() - 1
        });
        found.instances.push(Instance { segment: index, values });
    }
    found
}

fn uses(graph: &Graph) -> Uses {
    let mut users: SecondaryMap<Value, Vec<Value>> = SecondaryMap::new();
    let mut known: SecondaryMap<Value, bool> = SecondaryMap::new();
    let mut is_output: SecondaryMap<Value, bool> = SecondaryMap::new();
    for (value, node) in graph.nodes.iter() {
        known[value] = match &node.kind {
            NodeKind::Input { weight, .. } => *weight,
            NodeKind::Const(_) => true,
            NodeKind::Apply(op, _, args) => {
                for &arg in args {
                    if users[arg].last() != Some(&value) {
                        users[arg].push(value);
                    }
                }
                let widens =
                    args.first().is_some_and(|&arg| widens_weights(*op, graph.ty(arg), &node.ty));
                args.iter().all(|&arg| known[arg]) && !widens
            }
        };
    }
    graph.outputs.iter().for_each(|&output| is_output[output] = true);
    Uses { users, known, is_output }
}

/// Operators that are computed at run time, operands first, each branch in one piece.
fn order(graph: &Graph, uses: &Uses) -> Vec<Value> {
    let mut order = Vec::new();
    let mut seen: SecondaryMap<Value, bool> = SecondaryMap::new();
    for &output in &graph.outputs {
        let mut stack = vec![(output, 0)];
        while let Some((value, at)) = stack.pop() {
            if at == 0 && (seen[value] || uses.known[value]) {
                continue;
            }
            seen[value] = true;
            let NodeKind::Apply(_, _, args) = &graph.nodes[value].kind else { continue };
            match args.get(at) {
                Some(&arg) => {
                    stack.push((value, at + 1));
                    stack.push((arg, 0));
                }
                None => order.push(value),
            }
        }
    }
    order
}

/// Whether a contraction reads the value, maybe after it was moved.
fn is_contracted(graph: &Graph, uses: &Uses, value: Value) -> bool {
    uses.users[value].iter().any(|&user| {
        let NodeKind::Apply(op, ..) = &graph.nodes[user].kind else { return false };
        match op.spec().class {
            OpClass::Contract => true,
            OpClass::Move => uses.users[user].len() == 1 && is_contracted(graph, uses, user),
            _ => false,
        }
    })
}

/// The segment of each operator that is computed at run time.
fn cut(graph: &Graph, uses: &Uses, order: &[Value]) -> SecondaryMap<Value, Option<usize>> {
    let mut position: SecondaryMap<Value, usize> = SecondaryMap::new();
    order.iter().enumerate().for_each(|(at, &value)| position[value] = at);
    let in_order: SecondaryMap<Value, bool> =
        order.iter().fold(SecondaryMap::new(), |mut all, &value| {
            all[value] = true;
            all
        });
    let last_use = |value: Value| -> usize {
        let positions =
            uses.users[value].iter().filter(|&&user| in_order[user]).map(|&user| position[user]);
        positions.max().unwrap_or(0)
    };
    let is_border = |value: Value| {
        uses.is_output[value]
            || (uses.users[value].len() > 1
                && (is_contracted(graph, uses, value)
                    || last_use(value) > position[value] + LONG_LIFE))
    };
    // Where products read a value.
    let products = |value: Value| {
        let users = uses.users[value].iter().filter(|&&user| in_order[user]);
        let products = users.filter(|&&user| match &graph.nodes[user].kind {
            NodeKind::Apply(op, ..) => op.spec().class == OpClass::Contract,
            _ => false,
        });
        products.map(|&user| position[user])
    };
    let mut segment_of: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
    let mut alive: Vec<(Value, usize, bool)> = Vec::new();
    let (mut segment, mut length) = (0, 0);
    for (at, &value) in order.iter().enumerate() {
        segment_of[value] = Some(segment);
        length += 1;
        alive.retain(|&(_, last, _)| last > at);
        let others_are_borders = alive.iter().all(|&(_, _, border)| border);
        let border = is_border(value);
        alive.push((value, last_use(value), border));
        let long = length >= LONG_SEGMENT && is_contracted(graph, uses, value);
        // Products of one operand stay together: they may become one.
        let splits_siblings = || {
            alive.iter().any(|&(value, _, _)| {
                products(value).any(|place| place <= at && place + length > at)
                    && products(value).any(|place| place > at)
            })
        };
        if others_are_borders && (border || (long && !splits_siblings())) {
            (segment, length) = (segment + 1, 0);
        }
    }
    segment_of
}

/// A segment as a graph of its own: inputs by first use, then operators, operands first; and the
/// model's value behind each of its values.
fn canonical(
    graph: &Graph,
    segment_of: &SecondaryMap<Value, Option<usize>>,
    segment: usize,
    outputs: &[Value],
) -> (Graph, Vec<Value>) {
    let mut visited: SecondaryMap<Value, bool> = SecondaryMap::new();
    let (mut leaves, mut inner) = (Vec::new(), Vec::new());
    for &output in outputs {
        let mut stack = vec![(output, 0)];
        while let Some((value, at)) = stack.pop() {
            if at == 0 {
                if visited[value] {
                    continue;
                }
                visited[value] = true;
            }
            match &graph.nodes[value].kind {
                // Operators on constants alone belong to no segment, and are copied to each.
                NodeKind::Apply(_, _, args) if segment_of[value].is_none_or(|s| s == segment) => {
                    match args.get(at) {
                        Some(&arg) => {
                            stack.push((value, at + 1));
                            stack.push((arg, 0));
                        }
                        None => inner.push(value),
                    }
                }
                NodeKind::Const(tensor) if Literal::from_tensor(tensor).is_some() => {
                    inner.push(value)
                }
                _ => leaves.push(value),
            }
        }
    }
    let mut piece = Graph::new("");
    let mut value_of: BTreeMap<Value, Value> = BTreeMap::new();
    let mut values = Vec::with_capacity(leaves.len() + inner.len());
    for &value in &leaves {
        let ty = graph.ty(value).clone();
        let weight = match &graph.nodes[value].kind {
            NodeKind::Input { weight, .. } => *weight,
            NodeKind::Const(_) => true,
            NodeKind::Apply(..) => false,
        };
        let new = if weight { piece.weight(ty) } else { piece.input("", ty) };
        value_of.insert(value, new);
        values.push(value);
    }
    for &value in &inner {
        let new = match &graph.nodes[value].kind {
            NodeKind::Apply(op, attrs, args) => {
                let args: Vec<Value> = args.iter().map(|arg| value_of[arg]).collect();
                piece.apply(*op, attrs.clone(), &args).expect("the graph is well-typed")
            }
            NodeKind::Const(tensor) => piece.constant(tensor.clone()),
            NodeKind::Input { .. } => unreachable!("inputs are leaves"),
        };
        value_of.insert(value, new);
        values.push(value);
    }
    piece.outputs = outputs.iter().map(|output| value_of[output]).collect();
    (piece, values)
}
