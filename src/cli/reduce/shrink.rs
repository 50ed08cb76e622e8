//! Smaller models that still fail: fewer outputs, then the shortest end and beginning that fails, then fewer
//! nodes and simpler constants, until nothing changes. Which candidates are tried, and in which order, depends
//! on the model alone.

use std::collections::{BTreeMap, BTreeSet};

use eggine::ir::onnx::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use prost::Message as _;

use crate::cli::CliError;

/// Whether a candidate still fails; the text says how it was made.
pub(super) type Fails<'a> = dyn FnMut(&ModelProto, &str) -> Result<bool, CliError> + 'a;

type Types = BTreeMap<String, ValueInfoProto>;

/// Nodes of the main graph, and bytes of the file.
pub(super) fn size(model: &ModelProto) -> (usize, usize) {
    (graph(model).node.len(), model.encoded_len())
}

fn graph(model: &ModelProto) -> &GraphProto {
    model.graph.as_ref().expect("a decoded model has a graph")
}

fn graph_mut(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().expect("a decoded model has a graph")
}

/// The smallest model found that still fails. `types` are of values inside, which may become inputs and
/// outputs.
pub(super) fn shrink(
    model: &ModelProto,
    types: &Types,
    fails: &mut Fails<'_>,
) -> Result<ModelProto, CliError> {
    let mut best = model.clone();
    take(&mut best, pruned(model.clone()), "what no output needs is gone", fails)?;
    loop {
        let before = best.clone();
        one_output(&mut best, fails)?;
        shortest_end(&mut best, types, fails)?;
        latest_start(&mut best, types, fails)?;
        without_nodes(&mut best, types, fails)?;
        simple_constants(&mut best, fails)?;
        if best == before {
            return Ok(best);
        }
    }
}

/// Takes a candidate if it differs and still fails.
fn take(
    best: &mut ModelProto,
    candidate: ModelProto,
    what: &str,
    fails: &mut Fails<'_>,
) -> Result<bool, CliError> {
    let taken = candidate != *best && fails(&candidate, what)?;
    if taken {
        *best = candidate;
    }
    Ok(taken)
}

/// Names that a node reads, also inside of its subgraphs (with names of their own, which does no harm).
fn reads(node: &NodeProto, found: &mut BTreeSet<String>) {
    found.extend(node.input.iter().filter(|name| !name.is_empty()).cloned());
    for attr in &node.attribute {
        for inner in attr.g.iter().chain(&attr.graphs) {
            inner.node.iter().for_each(|node| reads(node, found));
            found.extend(inner.output.iter().filter_map(|info| info.name.clone()));
        }
    }
}

/// Without nodes, constants, inputs and functions that no output needs.
fn pruned(mut model: ModelProto) -> ModelProto {
    let graph = graph_mut(&mut model);
    let mut needed: BTreeSet<String> =
        graph.output.iter().filter_map(|info| info.name.clone()).collect();
    // Nodes may stand in any order: until nothing is added.
    let mut keep = vec![false; graph.node.len()];
    loop {
        let mut grew = false;
        for (i, node) in graph.node.iter().enumerate().rev() {
            if !keep[i] && node.output.iter().any(|name| needed.contains(name)) {
                keep[i] = true;
                grew = true;
                reads(node, &mut needed);
            }
        }
        if !grew {
            break;
        }
    }
    let mut kept = keep.into_iter();
    graph.node.retain(|_| kept.next().unwrap_or(true));
    let is_needed = |name: Option<&String>| name.is_some_and(|name| needed.contains(name));
    graph.initializer.retain(|tensor| is_needed(tensor.name.as_ref()));
    graph
        .sparse_initializer
        .retain(|sparse| is_needed(sparse.values.as_ref().and_then(|values| values.name.as_ref())));
    graph.input.retain(|info| is_needed(info.name.as_ref()));
    graph.value_info.retain(|info| is_needed(info.name.as_ref()));
    let mut called = BTreeSet::new();
    operators(&graph.node, &mut called);
    model.functions.iter().for_each(|function| operators(&function.node, &mut called));
    model.functions.retain(|function| called.contains(function.name.as_deref().unwrap_or("")));
    model
}

fn operators(nodes: &[NodeProto], found: &mut BTreeSet<String>) {
    for node in nodes {
        found.extend(node.op_type.clone());
        for inner in node.attribute.iter().flat_map(|attr| attr.g.iter().chain(&attr.graphs)) {
            operators(&inner.node, found);
        }
    }
}

/// One output alone, or as few as possible.
fn one_output(best: &mut ModelProto, fails: &mut Fails<'_>) -> Result<(), CliError> {
    let outputs = graph(best).output.clone();
    if outputs.len() < 2 {
        return Ok(());
    }
    for info in &outputs {
        let what = format!("output `{}` alone", info.name.as_deref().unwrap_or(""));
        if take(best, with_outputs(best, vec![info.clone()]), &what, fails)? {
            return Ok(());
        }
    }
    for info in &outputs {
        let mut rest = graph(best).output.clone();
        rest.retain(|it| it != info);
        let what = format!("without output `{}`", info.name.as_deref().unwrap_or(""));
        if !rest.is_empty() {
            take(best, with_outputs(best, rest), &what, fails)?;
        }
    }
    Ok(())
}

fn with_outputs(model: &ModelProto, outputs: Vec<ValueInfoProto>) -> ModelProto {
    let mut candidate = model.clone();
    graph_mut(&mut candidate).output = outputs;
    pruned(candidate)
}

/// A value as an output. What its type is, is a hint that may be missing.
fn port(types: &Types, name: &str) -> ValueInfoProto {
    let unknown = || ValueInfoProto { name: Some(name.to_owned()), r#type: None };
    types.get(name).cloned().unwrap_or_else(unknown)
}

/// The model up to a node, whose results become the outputs: the first for which it fails, as far as
/// bisection finds it.
fn shortest_end(
    best: &mut ModelProto,
    types: &Types,
    fails: &mut Fails<'_>,
) -> Result<(), CliError> {
    let whole = best.clone();
    let nodes = &graph(&whole).node;
    let (mut low, mut high) = (0, nodes.len());
    while low < high {
        let middle = (low + high) / 2;
        let node = &nodes[middle];
        let names = node.output.iter().filter(|name| !name.is_empty());
        let outputs: Vec<ValueInfoProto> = names.map(|name| port(types, name)).collect();
        let what = format!("up to `{}`", eggine::ir::onnx::part::name_of(node));
        let candidate = with_outputs(&whole, outputs);
        // Where the end is there already, it is known to fail.
        if candidate == *best || take(best, candidate, &what, fails)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(())
}

/// The model from a node on, with what it reads from before as inputs: the last for which it fails, as far
/// as bisection finds it. Values of unknown type cannot become inputs.
fn latest_start(
    best: &mut ModelProto,
    types: &Types,
    fails: &mut Fails<'_>,
) -> Result<(), CliError> {
    let whole = best.clone();
    let n_nodes = graph(&whole).node.len();
    let (mut low, mut high) = (0, n_nodes.saturating_sub(1));
    while low < high {
        let middle = (low + high).div_ceil(2);
        let cut: BTreeSet<&String> =
            graph(&whole).node[..middle].iter().flat_map(|node| &node.output).collect();
        let what = format!("from node {middle} of {n_nodes}");
        let candidate = as_inputs(&whole, &cut, types);
        if candidate == *best || take(best, candidate, &what, fails)? {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Ok(())
}

/// With values as inputs instead of results, where their types are known and outputs remain.
fn as_inputs(model: &ModelProto, values: &BTreeSet<&String>, types: &Types) -> ModelProto {
    let mut candidate = model.clone();
    let graph = graph_mut(&mut candidate);
    let outputs: BTreeSet<&String> =
        graph.output.iter().filter_map(|info| info.name.as_ref()).collect();
    let replaced = |name: &String| {
        values.contains(name) && types.contains_key(name) && !outputs.contains(name)
    };
    let mut inputs = Vec::new();
    for node in &mut graph.node {
        for name in node.output.iter_mut().filter(|name| replaced(name)) {
            inputs.push(types[name.as_str()].clone());
            name.clear();
        }
    }
    graph.node.retain(|node| node.output.iter().any(|name| !name.is_empty()));
    graph.input.extend(inputs);
    pruned(candidate)
}

/// Without single nodes, the last first: what reads a result reads the first operand instead, or an input.
fn without_nodes(
    best: &mut ModelProto,
    types: &Types,
    fails: &mut Fails<'_>,
) -> Result<(), CliError> {
    let mut i = graph(best).node.len();
    while i > 0 {
        i -= 1;
        let Some(node) = graph(best).node.get(i).cloned() else { continue };
        let name = eggine::ir::onnx::part::name_of(&node);
        let bypassed = bypassed(best, i);
        if let Some(candidate) = bypassed
            && take(best, candidate, &format!("without `{name}`"), fails)?
        {
            continue;
        }
        let results: BTreeSet<&String> = node.output.iter().collect();
        let candidate = as_inputs(best, &results, types);
        take(best, candidate, &format!("`{name}` as an input"), fails)?;
    }
    Ok(())
}

/// The model with every use of a node's first result replaced by its first operand.
fn bypassed(model: &ModelProto, i: usize) -> Option<ModelProto> {
    let node = &graph(model).node[i];
    let (from, to) = (node.output.first()?.clone(), node.input.first()?.clone());
    if from.is_empty() || to.is_empty() {
        return None;
    }
    let mut candidate = model.clone();
    let graph = graph_mut(&mut candidate);
    let is_output = graph.output.iter().any(|info| info.name.as_ref() == Some(&from));
    let is_port = |ports: &[ValueInfoProto]| ports.iter().any(|it| it.name.as_ref() == Some(&to));
    let constant = graph.initializer.iter().any(|it| it.name.as_ref() == Some(&to));
    // An output must stay the result of a node.
    if is_output && (is_port(&graph.input) || is_port(&graph.output) || constant) {
        return None;
    }
    graph.node.remove(i);
    graph.node.iter_mut().for_each(|node| rename(node, &from, &to));
    for info in graph.output.iter_mut().filter(|info| info.name.as_ref() == Some(&from)) {
        *info = ValueInfoProto { name: Some(to.clone()), r#type: info.r#type.clone() };
    }
    Some(pruned(candidate))
}

fn rename(node: &mut NodeProto, from: &str, to: &str) {
    node.input.iter_mut().filter(|name| *name == from).for_each(|name| to.clone_into(name));
    for attr in &mut node.attribute {
        for inner in attr.g.iter_mut().chain(&mut attr.graphs) {
            inner.node.iter_mut().for_each(|node| rename(node, from, to));
            for info in inner.output.iter_mut().filter(|it| it.name.as_deref() == Some(from)) {
                info.name = Some(to.to_owned());
            }
        }
    }
}

/// Constants of floats without data of their own: all elements are the first one's bits, and then zero.
fn simple_constants(best: &mut ModelProto, fails: &mut Fails<'_>) -> Result<(), CliError> {
    for i in 0..graph(best).initializer.len() {
        let tensor = graph(best).initializer[i].clone();
        let name = tensor.name.clone().unwrap_or_default();
        let is_float = matches!(tensor.data_type, Some(1 | 10 | 11 | 16));
        let bytes = tensor.raw_data.as_ref().filter(|_| is_float).map_or(0, |raw| raw.len());
        let simple = |raw: Vec<u8>| TensorProto { raw_data: Some(raw.into()), ..tensor.clone() };
        let width = match tensor.data_type {
            Some(1) => 4,
            Some(11) => 8,
            _ => 2,
        };
        if bytes < 2 * width {
            continue;
        }
        let first = tensor.raw_data.as_ref().map_or(&[][..], |raw| &raw[..width]);
        let forms = [("zeros", vec![0; bytes]), ("all equal", first.repeat(bytes / width))];
        for (what, raw) in forms {
            let mut candidate = best.clone();
            graph_mut(&mut candidate).initializer[i] = simple(raw);
            if take(best, candidate, &format!("`{name}` is {what}"), fails)? {
                break;
            }
        }
    }
    Ok(())
}
