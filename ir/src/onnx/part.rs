//! Parts of a model: as many nodes of one of its graphs as become a [`Graph`] with what is known at one
//! moment of a run.
//!
//! Import as a whole needs everything that shapes and control flow depend on before the model runs. Where
//! that is only known on the way (a branch on a computed condition, a range of a computed length) the model
//! is taken in parts: what can be imported is, a node that cannot is *stuck* and left to its host, and what
//! reads its results waits for the next part.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::builder::Builder;
use super::call::Item;
use super::error::{ImportError, Unsupported};
use super::function;
use super::import::{self, Importer, Scope};
use super::integers::integer_products;
use super::load::{self, Tensors};
use super::order::{node_name, order, reads};
use super::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use super::{Description, Imported, bind};
use crate::graph::NodeKind;
use crate::{Graph, Tensor, TensorType, Value};

/// Operators that a host applies to strings, since they only move elements.
pub const MOVES: &[&str] = &[
    "Concat",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Reshape",
    "Slice",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// How an optional without a value is called, where a name is [bound](Bound::Foreign) to it.
pub const NOTHING: &str = "an optional without a value";

/// A decoded model. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Model {
    proto: Arc<ModelProto>,
    folder: Option<PathBuf>,
}

impl Model {
    /// Maps and decodes a model file.
    ///
    /// # Errors
    ///
    /// If the file is not a model.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        let proto = Arc::new(load::open(path)?);
        Ok(Self { proto, folder: Some(super::folder_of(path)) })
    }

    /// Decodes a model from memory; `name` is for messages. It may not refer to other files.
    ///
    /// # Errors
    ///
    /// If the bytes are not a model.
    pub fn from_bytes(name: &str, bytes: Bytes) -> Result<Self, ImportError> {
        Ok(Self { proto: Arc::new(load::decode(name, bytes)?), folder: None })
    }

    /// The bytes of a model that refers to no other file.
    ///
    /// # Errors
    ///
    /// If a tensor of another file cannot be read.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ImportError> {
        let tensors = Tensors::new(self.folder.clone());
        let mut proto = (*self.proto).clone();
        let mut failure = None;
        let graph = proto.graph.as_mut().expect("a decoded model has a graph");
        each_tensor(graph, &mut |tensor| {
            if tensor.data_location != Some(1) || failure.is_some() {
                return;
            }
            match tensors.read(tensor) {
                Ok(read) => {
                    tensor.raw_data = Some(read.bytes);
                    tensor.external_data.clear();
                    tensor.data_location = None;
                }
                Err(err) => failure = Some(err),
            }
        });
        match failure {
            Some(err) => Err(err),
            None => Ok(proto.encode_to_vec()),
        }
    }

    /// The main graph.
    pub fn graph(&self) -> &GraphProto {
        self.proto.graph.as_ref().expect("a decoded model has a graph")
    }

    /// Whether the model defines operators itself.
    pub fn has_functions(&self) -> bool {
        !self.proto.functions.is_empty()
    }

    /// The body of the function of this model that a node calls, as a model whose graph takes the node's
    /// operands: attributes of the call are in place of what refers to them, and operands that the call
    /// leaves out are left out. `None` if the node is no such call.
    pub fn function(&self, node: &NodeProto) -> Option<Self> {
        let proto = Arc::new(function::body(&self.proto, node)?);
        Some(Self { proto, folder: self.folder.clone() })
    }

    /// What it takes and returns.
    pub fn description(&self) -> Description {
        let graph = self.graph();
        Description {
            inputs: bind::inputs(graph),
            outputs: bind::outputs(graph),
            model: import::info(&self.proto),
        }
    }

    /// Whether extents of inputs agree with what the model says of them, and with each other.
    ///
    /// # Errors
    ///
    /// If they do not. Inputs that are not named are not looked at.
    pub fn check_extents(&self, extents: &BTreeMap<String, Vec<usize>>) -> Result<(), ImportError> {
        let ports = bind::inputs(self.graph());
        let given: Vec<_> =
            ports.into_iter().filter(|port| extents.contains_key(&port.name)).collect();
        bind::bind(&given, extents).map(drop)
    }

    /// The contents of a tensor message of the model.
    ///
    /// # Errors
    ///
    /// If it is malformed, or holds strings.
    pub fn tensor(&self, proto: &TensorProto) -> Result<Tensor, ImportError> {
        Tensors::new(self.folder.clone()).read(proto)
    }
}

/// Calls `f` for every tensor message of a graph, in subgraphs and attributes too.
fn each_tensor(graph: &mut GraphProto, f: &mut dyn FnMut(&mut TensorProto)) {
    graph.initializer.iter_mut().for_each(&mut *f);
    for attr in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        attr.t.iter_mut().chain(&mut attr.tensors).for_each(&mut *f);
        attr.g.iter_mut().chain(&mut attr.graphs).for_each(|graph| each_tensor(graph, f));
    }
}

/// What a name stands for when a part is imported.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// A tensor that the part takes as an input.
    Tensor(TensorType),
    /// A tensor whose contents may decide shapes and control flow.
    Constant(Tensor),
    /// A sequence whose length may decide the same.
    Sequence(Vec<Bound>),
    /// What only a host handles, in words: nodes that read it are stuck.
    Foreign(String),
}

/// Which part is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The graphs from the main one to that whose nodes are imported.
    pub graphs: &'a [&'a GraphProto],
    /// Path of that graph, for sources; empty for the main graph.
    pub path: &'a str,
    /// Indices of its nodes that were not done before, in any order.
    pub nodes: &'a [usize],
    /// What the names that earlier parts and graphs around this one define stand for.
    pub bound: &'a BTreeMap<String, Bound>,
}

/// Where a result of a part is.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// An output of the part's graph.
    Output(usize),
    /// What a name was bound to, unchanged; the position in it, if that is a sequence.
    Bound(String, Option<usize>),
    /// Known without running anything.
    Constant(Tensor),
    /// A sequence of these.
    Sequence(Vec<Found>),
}

impl Found {
    /// Whether it is known without running anything.
    pub fn is_constant(&self) -> bool {
        match self {
            Found::Constant(_) => true,
            Found::Sequence(all) => all.iter().all(Found::is_constant),
            Found::Output(_) | Found::Bound(..) => false,
        }
    }
}

/// A node that could not be imported, and what is wrong with it or inside of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// Its index.
    pub node: usize,
    /// Why.
    pub reasons: Vec<Unsupported>,
}

/// A part of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it computes; inputs are named `name`, or `name[i]` for an element of a sequence.
    pub imported: Imported,
    /// For each of its inputs the name bound, and the position in a sequence.
    pub inputs: Vec<(String, Option<usize>)>,
    /// Results that what is left of the model needs, by name.
    pub found: BTreeMap<String, Found>,
    /// Indices of the nodes that it covers, sorted.
    pub done: Vec<usize>,
    /// Nodes whose operands are all there now.
    pub stuck: Vec<Stuck>,
}

/// Names that each node of a graph reads, subgraphs included, sorted.
pub fn uses(graph: &GraphProto) -> Vec<Vec<String>> {
    let of = |node: &NodeProto| {
        let mut found = BTreeSet::new();
        reads(node, &mut found);
        found.into_iter().collect()
    };
    graph.node.iter().map(of).collect()
}

/// The name of a node, or what stands for it.
pub fn name_of(node: &NodeProto) -> String {
    node_name(node)
}

/// Imports what can be imported of the nodes requested.
///
/// # Errors
///
/// See [`ImportError`]: what is wrong with the model whatever is known. Nodes that are not supported are
/// no error of this.
///
/// # Panics
///
/// If a node's index is out of range.
pub fn import_part(model: &Model, request: &Request<'_>) -> Result<Part, ImportError> {
    let graph = *request.graphs.last().expect("there is a main graph");
    let opsets = import::opsets(&model.proto.opset_import)?;
    let tensors = Tensors::new(model.folder.clone());
    let name = graph.name.as_deref().unwrap_or_default();
    let functions = import::functions(&model.proto);
    let mut importer = Importer::new(Builder::new(name, tensors), functions);

    let uses = uses(graph);
    let wanted: BTreeSet<usize> = request.nodes.iter().copied().collect();
    let read: BTreeSet<&str> = wanted
        .iter()
        .flat_map(|&node| &uses[node])
        .map(String::as_str)
        .chain(graph.output.iter().filter_map(|info| info.name.as_deref()))
        .collect();
    let mut items = BTreeMap::new();
    let mut places = BTreeMap::new();
    for (name, bound) in request.bound.iter().filter(|(name, _)| read.contains(name.as_str())) {
        items.insert(name.clone(), bind_name(&mut importer.b, name, bound, &mut places));
    }
    let path = if request.path.is_empty() { String::new() } else { format!("{}/", request.path) };
    let mut around = Scope::root(&opsets, String::new());
    for outer in request.graphs {
        importer.constants(outer, &mut around)?;
    }
    let mut scope = Scope::inside(&around, items, path);

    let all = order(&graph.node).map_err(|problem| ImportError::Wiring {
        graph: if request.path.is_empty() { name.to_owned() } else { request.path.to_owned() },
        problem,
    })?;
    let (mut done, mut stuck) = (Vec::new(), Vec::new());
    for node in all.into_iter().filter(|node| wanted.contains(node)) {
        let message = &graph.node[node];
        let waits = uses[node].iter().any(|name| matches!(scope.find(name), Some(Item::Poison)));
        if waits {
            scope.poison(&message.output);
            continue;
        }
        importer.node(message, &mut scope);
        let reasons = importer.take_unsupported();
        if let Some(failure) = importer.take_failure() {
            return Err(failure);
        }
        // What a host handles stays with it: a part has no place for it.
        let is_foreign =
            |name: &String| matches!(scope.find(name), Some(Item::Foreign(_))) && !name.is_empty();
        if reasons.is_empty() && !message.output.iter().any(is_foreign) {
            done.push(node);
        } else {
            scope.poison(&message.output);
            stuck.push(Stuck { node, reasons });
        }
    }
    done.sort_unstable();

    let covered: BTreeSet<usize> = done.iter().copied().collect();
    let later: BTreeSet<&str> = wanted
        .iter()
        .filter(|node| !covered.contains(node))
        .flat_map(|&node| &uses[node])
        .map(String::as_str)
        .chain(graph.output.iter().filter_map(|info| info.name.as_deref()))
        .collect();
    let mut outputs: Vec<Value> = Vec::new();
    let mut found = BTreeMap::new();
    for name in done.iter().flat_map(|&node| &graph.node[node].output) {
        if !name.is_empty()
            && later.contains(name.as_str())
            && let Some(item) = scope.find(name)
            && let Some(place) = place(&importer.b.graph, item, &places, &mut outputs)
        {
            found.insert(name.clone(), place);
        }
    }
    let mut whole = importer.b.graph;
    whole.output_names = (0..outputs.len()).map(|n| format!("out{n}")).collect();
    whole.outputs = outputs;
    let built = import::without_dead_nodes(&integer_products(&whole), false);
    let named = |value: Value| match &built.nodes[value].kind {
        NodeKind::Input { name, .. } => (name.clone(), built.ty(value).clone()),
        _ => unreachable!("inputs are inputs"),
    };
    let inputs: Vec<(String, TensorType)> = built.inputs().map(named).collect();
    let types = built.outputs.iter().map(|&value| built.ty(value).clone());
    let outputs = built.output_names.iter().cloned().zip(types).collect();
    let of_input = inputs.iter().map(|(name, _)| places[name].clone()).collect();
    let imported = Imported { inputs, outputs, model: import::info(&model.proto), graph: built };
    Ok(Part { imported, inputs: of_input, found, done, stuck })
}

/// Where a value of a part comes from: a bound name, and the position in a sequence.
type Origin = (String, Option<usize>);

/// The item of a bound name; notes the origin of each input that it adds.
fn bind_name(
    b: &mut Builder,
    name: &str,
    bound: &Bound,
    origins: &mut BTreeMap<String, Origin>,
) -> Item {
    let mut input = |b: &mut Builder, ty: &TensorType, at: Option<usize>| {
        let input = at.map_or_else(|| name.to_owned(), |at| format!("{name}[{at}]"));
        origins.insert(input.clone(), (name.to_owned(), at));
        b.graph.input(&input, ty.clone())
    };
    match bound {
        Bound::Tensor(ty) => input(b, ty, None).into(),
        Bound::Constant(tensor) => b.constant(tensor.clone()).into(),
        Bound::Foreign(what) => Item::Foreign(what.clone()),
        Bound::Sequence(all) => {
            let mut values = Vec::with_capacity(all.len());
            for (at, element) in all.iter().enumerate() {
                values.push(match element {
                    Bound::Tensor(ty) => input(b, ty, Some(at)),
                    Bound::Constant(tensor) => b.constant(tensor.clone()),
                    Bound::Sequence(_) | Bound::Foreign(_) => {
                        return Item::Foreign("a sequence of what is no tensor".into());
                    }
                });
            }
            Item::Sequence(values)
        }
    }
}

/// Where an item will be; adds to the outputs. `None` for what a stuck node left unsaid.
fn place(
    graph: &Graph,
    item: &Item,
    origins: &BTreeMap<String, Origin>,
    outputs: &mut Vec<Value>,
) -> Option<Found> {
    let mut of = |value: Value| match &graph.nodes[value].kind {
        NodeKind::Const(tensor) => Found::Constant(tensor.clone()),
        NodeKind::Input { name, .. } => {
            let (name, at) = &origins[name];
            Found::Bound(name.clone(), *at)
        }
        NodeKind::Apply(..) => {
            let known = outputs.iter().position(|&output| output == value);
            Found::Output(known.unwrap_or_else(|| {
                outputs.push(value);
                outputs.len() - 1
            }))
        }
    };
    match item {
        Item::Tensor(value) => Some(of(*value)),
        Item::Sequence(values) => Some(Found::Sequence(values.iter().map(|&it| of(it)).collect())),
        Item::Foreign(_) | Item::Poison => None,
    }
}

/// The attribute of a node with a name.
pub fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attr| attr.name.as_deref() == Some(name))
}
