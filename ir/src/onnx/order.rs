//! The order in which the nodes of a graph can be imported: each after what it reads.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::error::Wiring;
use super::proto::{GraphProto, NodeProto};

/// How a node without a name is called.
pub(super) fn node_name(node: &NodeProto) -> String {
    match node.name.as_deref() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => {
            let output =
                node.output.iter().find(|name| !name.is_empty()).map_or("", String::as_str);
            format!("{}_{output}", node.op_type.as_deref().unwrap_or_default())
        }
    }
}

/// Names that a graph reads from outside of itself, subgraphs included.
fn captures(graph: &GraphProto, found: &mut BTreeSet<String>) {
    let mut read = BTreeSet::new();
    for node in &graph.node {
        reads(node, &mut read);
    }
    read.extend(graph.output.iter().filter_map(|info| info.name.clone()));
    for own in graph.input.iter().filter_map(|info| info.name.as_ref()) {
        read.remove(own);
    }
    for own in graph.initializer.iter().filter_map(|tensor| tensor.name.as_ref()) {
        read.remove(own);
    }
    for own in graph.node.iter().flat_map(|node| &node.output) {
        read.remove(own);
    }
    found.extend(read);
}

/// Names that a node reads, subgraphs included.
pub(super) fn reads(node: &NodeProto, found: &mut BTreeSet<String>) {
    found.extend(node.input.iter().filter(|name| !name.is_empty()).cloned());
    for attr in &node.attribute {
        for graph in attr.g.iter().chain(&attr.graphs) {
            captures(graph, found);
        }
    }
}

/// Indices of `nodes`, each after the nodes that it reads from, otherwise in the order given.
///
/// # Errors
///
/// If a name is produced twice, or nodes depend on each other.
pub(super) fn order(nodes: &[NodeProto]) -> Result<Vec<usize>, Wiring> {
    let mut producers: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            if let Some(first) = producers.insert(name, i) {
                return Err(Wiring::Twice {
                    value: name.clone(),
                    first: node_name(&nodes[first]),
                    second: node_name(node),
                });
            }
        }
    }
    let mut missing = vec![0usize; nodes.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let mut names = BTreeSet::new();
        reads(node, &mut names);
        let before: BTreeSet<usize> =
            names.iter().filter_map(|name| producers.get(name.as_str()).copied()).collect();
        missing[i] = before.len();
        for producer in before {
            users[producer].push(i);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..nodes.len()).filter(|&i| missing[i] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(i)) = ready.pop() {
        order.push(i);
        for &user in &users[i] {
            missing[user] -= 1;
            if missing[user] == 0 {
                ready.push(Reverse(user));
            }
        }
    }
    if order.len() < nodes.len() {
        let stuck = (0..nodes.len()).filter(|&i| missing[i] > 0).take(8);
        let names: Vec<String> = stuck.map(|i| format!("`{}`", node_name(&nodes[i]))).collect();
        return Err(Wiring::Cycle { nodes: names.join(", ") });
    }
    Ok(order)
}
