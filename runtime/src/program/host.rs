//! Nodes that the host computes: what cannot be part of an engine of fixed shapes.
//!
//! Numbers are the reference evaluator's: the node is imported with its operands as constants. Strings are
//! moved as the evaluator moves their positions.

use std::collections::BTreeMap;

use eggine_ir::graph::eval::{Rounding, eval};
use eggine_ir::onnx::ImportError;
use eggine_ir::onnx::part::{
    Bound, Found, MOVES, Model, NOTHING, Request, attribute, import_part, name_of, uses,
};
use eggine_ir::onnx::proto::{GraphProto, NodeProto, TensorProto, ValueInfoProto};
use eggine_ir::{DType, Tensor};

use super::value::{HostValue, Strings};

/// Why the host cannot compute a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The node is not right, or not supported at all.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Strings where there is no operator for them.
    #[error("node `{node}`: {op} of strings is not supported on the host")]
    Strings {
        /// Name of the node.
        node: String,
        /// Its operator.
        op: String,
    },
    /// An optional whose value is asked for.
    #[error("node `{node}` (OptionalGetElement): its operand is an optional without a value")]
    Nothing {
        /// Name of the node.
        node: String,
    },
    /// A table that does not say what it maps.
    #[error("node `{node}` (LabelEncoder): {reason}")]
    Table {
        /// Name of the node.
        node: String,
        /// What is wrong.
        reason: String,
    },
}

fn bound(value: &HostValue) -> Bound {
    match value {
        HostValue::Tensor(tensor) => Bound::Constant(tensor.clone()),
        HostValue::Strings(_) => Bound::Foreign("a tensor of strings".into()),
        HostValue::Sequence(all) => Bound::Sequence(all.iter().map(bound).collect()),
        HostValue::Nothing => Bound::Foreign(NOTHING.into()),
    }
}

/// Computes one node of a graph; `operands` are the values of the names that it reads, constants of the
/// model left out. Results by name.
pub(super) fn run(
    model: &Model,
    graphs: &[&GraphProto],
    path: &str,
    node: usize,
    operands: &BTreeMap<String, HostValue>,
) -> Result<BTreeMap<String, HostValue>, HostError> {
    let graph = *graphs.last().expect("there is a main graph");
    let message = &graph.node[node];
    if let Some(result) = passed(message, operands)? {
        let name = message.output.first().cloned().unwrap_or_default();
        return Ok(BTreeMap::from([(name, result)]));
    }
    if operands.values().any(|value| matches!(value, HostValue::Strings(_)))
        || is_label_encoder(message)
    {
        return strings(model, graphs, path, node, operands);
    }
    numbers(model, graphs, path, node, operands)
}

/// Optionals, and what else passes a value on whatever it is.
fn passed(
    node: &NodeProto,
    operands: &BTreeMap<String, HostValue>,
) -> Result<Option<HostValue>, HostError> {
    if !node.domain.as_deref().is_none_or(|it| it.is_empty() || it == "ai.onnx") {
        return Ok(None);
    }
    let name = node.input.first().filter(|name| !name.is_empty());
    let operand = name.and_then(|name| operands.get(name));
    Ok(match (node.op_type.as_deref().unwrap_or_default(), operand) {
        ("Optional", None) if name.is_none() => Some(HostValue::Nothing),
        ("OptionalGetElement", Some(HostValue::Nothing)) => {
            return Err(HostError::Nothing { node: name_of(node) });
        }
        ("Optional" | "OptionalGetElement" | "Identity", Some(value)) => Some(value.clone()),
        _ => None,
    })
}

fn numbers(
    model: &Model,
    graphs: &[&GraphProto],
    path: &str,
    node: usize,
    operands: &BTreeMap<String, HostValue>,
) -> Result<BTreeMap<String, HostValue>, HostError> {
    // What nobody reads would not be computed: here everything is read. Of the graph only what the node
    // reads is looked at.
    let graph = *graphs.last().expect("there is a main graph");
    let message = &graph.node[node];
    let mut alone = GraphProto {
        name: graph.name.clone(),
        node: vec![message.clone()],
        sparse_initializer: graph.sparse_initializer.clone(),
        ..GraphProto::default()
    };
    let reads = uses(&alone).remove(0);
    let is_read = |it: &&TensorProto| it.name.as_ref().is_some_and(|name| reads.contains(name));
    alone.initializer = graph.initializer.iter().filter(is_read).cloned().collect();
    let outputs = message.output.iter().filter(|name| !name.is_empty());
    alone.output =
        outputs.map(|name| ValueInfoProto { name: Some(name.clone()), r#type: None }).collect();
    let mut graphs = graphs.to_vec();
    *graphs.last_mut().expect("there is a main graph") = &alone;
    let bound: BTreeMap<String, Bound> =
        operands.iter().map(|(name, value)| (name.clone(), bound(value))).collect();
    let request = Request { graphs: &graphs, path, nodes: &[0], bound: &bound };
    let part = import_part(model, &request)?;
    if let Some(stuck) = part.stuck.into_iter().next() {
        return Err(ImportError::Unsupported(stuck.reasons).into());
    }
    let outputs = eval(&part.imported.graph, &[], Rounding::None);
    let outputs: Vec<Tensor> = outputs.iter().map(|array| array.to_tensor()).collect();
    let found = part.found.iter().map(|(name, found)| {
        (name.clone(), value_of(found, &outputs, &|name, _| operands[name].clone()))
    });
    Ok(found.collect())
}

/// The value that a part says a result has.
pub(super) fn value_of(
    found: &Found,
    outputs: &[Tensor],
    bound: &dyn Fn(&str, Option<usize>) -> HostValue,
) -> HostValue {
    match found {
        Found::Output(n) => outputs[*n].clone().into(),
        Found::Constant(tensor) => tensor.clone().into(),
        Found::Bound(name, at) => match (bound(name, *at), at) {
            (HostValue::Sequence(all), Some(at)) => all[*at].clone(),
            (value, _) => value,
        },
        Found::Sequence(all) => {
            HostValue::Sequence(all.iter().map(|it| value_of(it, outputs, bound)).collect())
        }
    }
}

fn is_label_encoder(node: &NodeProto) -> bool {
    node.op_type.as_deref() == Some("LabelEncoder")
}

/// The strings of an initialiser.
pub(super) fn strings_of(tensor: &TensorProto) -> Option<Strings> {
    if tensor.data_type != Some(8) {
        return None;
    }
    let extents: Vec<usize> =
        tensor.dims.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<_>>()?;
    let data: Vec<String> =
        tensor.string_data.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect();
    let n_elems = extents.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent))?;
    (n_elems == data.len()).then_some(Strings { extents, data })
}

fn strings(
    model: &Model,
    graphs: &[&GraphProto],
    path: &str,
    node: usize,
    operands: &BTreeMap<String, HostValue>,
) -> Result<BTreeMap<String, HostValue>, HostError> {
    let graph = *graphs.last().expect("there is a main graph");
    let message = &graph.node[node];
    let op = message.op_type.clone().unwrap_or_default();
    let refused = || HostError::Strings { node: name_of(message), op: op.clone() };
    if is_label_encoder(message) {
        let operand = message.input.first().and_then(|name| operands.get(name));
        let result = label_encoder(message, operand.ok_or_else(refused)?)?;
        let name = message.output.first().cloned().unwrap_or_default();
        return Ok(BTreeMap::from([(name, result)]));
    }
    if !MOVES.contains(&op.as_str()) {
        return Err(refused());
    }
    // Each string is known by its position while the evaluator moves it.
    let (mut table, mut moved) = (Vec::new(), BTreeMap::new());
    for (name, value) in operands {
        let value = match value {
            HostValue::Strings(strings) => {
                let from = table.len() as i64;
                table.extend(strings.data.iter().cloned());
                let positions: Vec<i64> = (from..table.len() as i64).collect();
                Tensor::i64(&strings.extents, &positions).into()
            }
            other => other.clone(),
        };
        moved.insert(name.clone(), value);
    }
    // A table of the model itself is an initialiser, which import does not read as numbers.
    let mut without = graphs.to_vec();
    let cleaned: Vec<GraphProto> = graphs
        .iter()
        .map(|&graph| {
            let mut graph = graph.clone();
            graph.initializer.retain(|it| it.data_type != Some(8));
            graph
        })
        .collect();
    without.iter_mut().zip(&cleaned).for_each(|(graph, cleaned)| *graph = cleaned);
    let found = numbers(model, &without, path, node, &moved)?;
    let back = |value: HostValue| match value {
        HostValue::Tensor(tensor) if tensor.dtype == DType::I64 => {
            let strings = tensor.to_i64().into_iter().map(|at| {
                let at = usize::try_from(at).ok();
                at.and_then(|at| table.get(at)).cloned().unwrap_or_default()
            });
            HostValue::Strings(Strings { extents: tensor.extents.clone(), data: strings.collect() })
        }
        other => other,
    };
    Ok(found.into_iter().map(|(name, value)| (name, back(value))).collect())
}

/// `ai.onnx.ml.LabelEncoder` from or to strings: version 1 by position among its classes, versions 2 to 4
/// by keys and values.
fn label_encoder(node: &NodeProto, operand: &HostValue) -> Result<HostValue, HostError> {
    let wrong = |reason: &str| HostError::Table { node: name_of(node), reason: reason.to_owned() };
    let texts = |name: &str| -> Option<Vec<String>> {
        attribute(node, name).filter(|attr| !attr.strings.is_empty()).map(|attr| {
            attr.strings.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect()
        })
    };
    let ints = |name: &str| {
        attribute(node, name).filter(|attr| !attr.ints.is_empty()).map(|attr| attr.ints.clone())
    };
    let floats = |name: &str| {
        attribute(node, name).filter(|attr| !attr.floats.is_empty()).map(|attr| attr.floats.clone())
    };
    if let Some(classes) = texts("classes_strings") {
        return Ok(by_position(node, &classes, operand));
    }
    let keys: Vec<String> = match (texts("keys_strings"), ints("keys_int64s")) {
        (Some(keys), _) => keys,
        (None, Some(keys)) => keys.iter().map(i64::to_string).collect(),
        (None, None) => return Err(wrong("it has neither keys_strings nor keys_int64s")),
    };
    let (extents, asked): (Vec<usize>, Vec<String>) = match operand {
        HostValue::Strings(strings) => (strings.extents.clone(), strings.data.clone()),
        HostValue::Tensor(tensor) if !tensor.dtype.is_float() => {
            (tensor.extents.clone(), tensor.to_i64().iter().map(i64::to_string).collect())
        }
        other => return Err(wrong(&format!("its operand is {other}"))),
    };
    // Of equal keys the last one counts, as in the standard's reference.
    let table: BTreeMap<&str, usize> =
        keys.iter().enumerate().map(|(at, key)| (key.as_str(), at)).collect();
    let places: Vec<Option<usize>> =
        asked.iter().map(|key| table.get(key.as_str()).copied()).collect();
    let default = |name: &str| attribute(node, name);
    let short = || wrong("it has fewer values than keys");
    if let Some(values) = ints("values_int64s") {
        let otherwise = default("default_int64").and_then(|attr| attr.i).unwrap_or(-1);
        let of = |place: &Option<usize>| match place {
            Some(at) => values.get(*at).copied().ok_or_else(short),
            None => Ok(otherwise),
        };
        let data = places.iter().map(of).collect::<Result<Vec<i64>, _>>()?;
        return Ok(Tensor::i64(&extents, &data).into());
    }
    if let Some(values) = floats("values_floats") {
        let otherwise = default("default_float").and_then(|attr| attr.f).unwrap_or(-0.0);
        let of = |place: &Option<usize>| match place {
            Some(at) => values.get(*at).copied().ok_or_else(short),
            None => Ok(otherwise),
        };
        let data = places.iter().map(of).collect::<Result<Vec<f32>, _>>()?;
        return Ok(Tensor::f32(&extents, &data).into());
    }
    let values: Vec<String> = texts("values_strings").ok_or_else(|| wrong("it has no values"))?;
    let otherwise = default("default_string").and_then(|attr| attr.s.as_ref());
    let otherwise = otherwise
        .map_or_else(|| "_Unused".to_owned(), |it| String::from_utf8_lossy(it).into_owned());
    let of = |place: &Option<usize>| match place {
        Some(at) => values.get(*at).cloned().ok_or_else(short),
        None => Ok(otherwise.clone()),
    };
    let data = places.iter().map(of).collect::<Result<Vec<String>, _>>()?;
    Ok(HostValue::Strings(Strings { extents, data }))
}

/// Version 1: a class to its position, or a position to its class.
fn by_position(node: &NodeProto, classes: &[String], operand: &HostValue) -> HostValue {
    match operand {
        HostValue::Strings(strings) => {
            let otherwise = attribute(node, "default_int64").and_then(|attr| attr.i).unwrap_or(-1);
            let positions: BTreeMap<&str, i64> =
                classes.iter().enumerate().map(|(at, it)| (it.as_str(), at as i64)).collect();
            let of = |text: &String| positions.get(text.as_str()).copied().unwrap_or(otherwise);
            let data: Vec<i64> = strings.data.iter().map(of).collect();
            Tensor::i64(&strings.extents, &data).into()
        }
        HostValue::Tensor(tensor) => {
            let otherwise = attribute(node, "default_string").and_then(|attr| attr.s.as_ref());
            let otherwise = otherwise.map_or_else(
                || "_Unused".to_owned(),
                |it| String::from_utf8_lossy(it).into_owned(),
            );
            let of = |at: i64| usize::try_from(at).ok().and_then(|at| classes.get(at)).cloned();
            let data = tensor.to_i64().into_iter();
            let data = data.map(|at| of(at).unwrap_or_else(|| otherwise.clone())).collect();
            HostValue::Strings(Strings { extents: tensor.extents.clone(), data })
        }
        HostValue::Sequence(_) | HostValue::Nothing => operand.clone(),
    }
}
