//! The walk over the model: scopes, functions, subgraphs, and what is wrong with each node.
//!
//! Invariants: every node is visited, also behind one that is not supported, so that one run lists all
//! that is missing; a name means what the innermost scope says; sources are paths of nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::bind;
use super::builder::Builder;
use super::call::{Call, Item};
use super::error::{ImportError, OpError, Unsupported, Wiring};
use super::integers::integer_products;
use super::load::Tensors;
use super::ops::{self, Handler};
use super::order::{node_name, order};
use super::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
};
use super::{ImportOptions, Imported, ModelInfo};
use crate::graph::NodeKind;
use crate::{Graph, Value};

/// Versions of the standard's operators that the handlers know.
const OPSETS: std::ops::RangeInclusive<i64> = 1..=28;

/// How a tensor of strings is called, which only a host handles.
const STRINGS: &str = "a tensor of strings";

/// Nested functions and subgraphs beyond this are a cycle.
const MAX_DEPTH: usize = 64;

/// Nodes imported at most, unrolled loops included.
const MAX_NODES: usize = 1 << 20;

/// The names of one graph, and those around it.
pub(super) struct Scope<'p> {
    parent: Option<&'p Scope<'p>>,
    items: BTreeMap<String, Item>,
    /// Prefix of the paths of its nodes.
    path: String,
    opsets: &'p BTreeMap<String, i64>,
    /// Attributes of the function call that this is the body of.
    attrs: Option<&'p BTreeMap<&'p str, &'p AttributeProto>>,
}

impl<'p> Scope<'p> {
    /// A scope of a main graph; `path` is the prefix of its nodes' paths.
    pub(super) fn root(opsets: &'p BTreeMap<String, i64>, path: String) -> Self {
        Self { parent: None, items: BTreeMap::new(), path, opsets, attrs: None }
    }

    /// A scope with these names inside of another.
    pub(super) fn inside(
        parent: &'p Scope<'p>,
        items: BTreeMap<String, Item>,
        path: String,
    ) -> Self {
        Self { parent: Some(parent), items, path, opsets: parent.opsets, attrs: parent.attrs }
    }

    /// Marks the results of a node that is not imported.
    pub(super) fn poison(&mut self, names: &[String]) {
        for name in names.iter().filter(|name| !name.is_empty()) {
            self.items.insert(name.clone(), Item::Poison);
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&Item> {
        self.items.get(name).or_else(|| self.parent.and_then(|parent| parent.find(name)))
    }
}

/// The state of one import.
pub(super) struct Importer<'m> {
    pub(super) b: Builder,
    functions: Functions<'m>,
    unsupported: Vec<Unsupported>,
    /// The first error that is not an unsupported operator.
    failure: Option<ImportError>,
    /// How often each node path has been used.
    names: BTreeMap<String, usize>,
    depth: usize,
    n_nodes: usize,
}

/// Domain as the tables spell it.
pub(super) fn domain(name: Option<&str>) -> &str {
    match name {
        None | Some("") => "ai.onnx",
        Some(name) => name,
    }
}

pub(super) fn opsets(imports: &[OperatorSetIdProto]) -> Result<BTreeMap<String, i64>, ImportError> {
    let mut found = BTreeMap::new();
    for import in imports {
        let (domain, version) = (domain(import.domain.as_deref()), import.version.unwrap_or(0));
        if domain == "ai.onnx" && !OPSETS.contains(&version) {
            let (least, most) = (*OPSETS.start(), *OPSETS.end());
            return Err(ImportError::Opset { domain: domain.into(), found: version, least, most });
        }
        found.insert(domain.to_owned(), version);
    }
    Ok(found)
}

/// What can be said of a model without importing it.
pub(super) fn info(model: &ModelProto) -> ModelInfo {
    let standard = |import: &&OperatorSetIdProto| domain(import.domain.as_deref()) == "ai.onnx";
    let opset =
        model.opset_import.iter().find(standard).and_then(|import| import.version).unwrap_or(0);
    let (name, version) = (model.producer_name.as_deref(), model.producer_version.as_deref());
    let producer = [name, version]
        .into_iter()
        .flatten()
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    let n_nodes = model.graph.as_ref().map_or(0, |graph| graph.node.len());
    ModelInfo { opset, producer, n_nodes }
}

/// Functions of a model, by domain and name.
pub(super) type Functions<'m> = BTreeMap<(&'m str, &'m str), &'m FunctionProto>;

/// The functions that a model defines.
pub(super) fn functions(model: &ModelProto) -> Functions<'_> {
    let mut functions = BTreeMap::new();
    for function in &model.functions {
        let name = function.name.as_deref().unwrap_or_default();
        functions.insert((domain(function.domain.as_deref()), name), function);
    }
    functions
}

/// Imports a decoded model.
pub(super) fn import(
    model: &ModelProto,
    tensors: Tensors,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let graph = model.graph.as_ref().expect("a decoded model has a graph");
    let opsets = opsets(&model.opset_import)?;
    let inputs = bind::bind(&bind::inputs(graph), &options.shapes)?;
    let b = Builder::new(graph.name.as_deref().unwrap_or_default(), tensors);
    let mut importer = Importer::new(b, functions(model));
    let mut scope = Scope::root(&opsets, String::new());
    for (name, ty) in &inputs {
        let value = importer.b.graph.input(name, ty.clone());
        if scope.items.insert(name.clone(), value.into()).is_some() {
            let problem = Wiring::InputTwice { value: name.clone() };
            importer.fail(ImportError::Wiring { graph: importer.b.graph.name.clone(), problem });
        }
    }
    importer.constants(graph, &mut scope)?;
    importer.nodes(&graph.node, &mut scope);

    let mut results = Vec::new();
    for port in bind::outputs(graph) {
        match scope.find(&port.name) {
            Some(Item::Tensor(value)) => results.push((port.name, *value)),
            Some(Item::Poison) => (),
            Some(Item::Sequence(_)) => {
                importer.fail(ImportError::Interface {
                    role: "output",
                    name: port.name,
                    found: "a sequence".into(),
                });
            }
            Some(Item::Foreign(found)) => {
                let found = found.clone();
                importer.fail(ImportError::Interface { role: "output", name: port.name, found });
            }
            None => {
                let graph = importer.b.graph.name.clone();
                importer.fail(ImportError::Wiring {
                    graph,
                    problem: Wiring::NoOutput { value: port.name },
                });
            }
        }
    }
    if !importer.unsupported.is_empty() {
        return Err(ImportError::Unsupported(importer.unsupported));
    }
    if let Some(failure) = importer.failure {
        return Err(failure);
    }
    let mut built = importer.b.graph;
    (built.output_names, built.outputs) = results.into_iter().unzip();
    let graph = without_dead_nodes(&integer_products(&built), true);
    let types = graph.outputs.iter().map(|&value| graph.ty(value).clone());
    let outputs = graph.output_names.iter().cloned().zip(types).collect();
    Ok(Imported { inputs, outputs, model: info(model), graph })
}

impl<'m> Importer<'m> {
    /// An import that has not met any node.
    pub(super) fn new(b: Builder, functions: Functions<'m>) -> Self {
        Self {
            b,
            functions,
            unsupported: Vec::new(),
            failure: None,
            names: BTreeMap::new(),
            depth: 0,
            n_nodes: 0,
        }
    }

    /// What was found to be unsupported since this was asked last.
    pub(super) fn take_unsupported(&mut self) -> Vec<Unsupported> {
        std::mem::take(&mut self.unsupported)
    }

    /// The first error that is not an unsupported operator.
    pub(super) fn take_failure(&mut self) -> Option<ImportError> {
        self.failure.take()
    }
}

impl Importer<'_> {
    fn fail(&mut self, err: ImportError) {
        self.failure.get_or_insert(err);
    }

    /// Binds the initialisers of a graph.
    pub(super) fn constants(
        &mut self,
        graph: &GraphProto,
        scope: &mut Scope,
    ) -> Result<(), ImportError> {
        for proto in &graph.initializer {
            let name = proto.name.clone().unwrap_or_default();
            let item = match proto.data_type {
                Some(8) => Item::Foreign(STRINGS.into()),
                _ => {
                    let tensor = self.b.tensors.read(proto)?;
                    self.b.constant(tensor).into()
                }
            };
            scope.items.insert(name, item);
        }
        for proto in &graph.sparse_initializer {
            let (name, tensor) = self.b.tensors.read_sparse(proto)?;
            scope.items.insert(name, self.b.constant(tensor).into());
        }
        Ok(())
    }

    /// Imports nodes, each after what it reads.
    fn nodes(&mut self, nodes: &[NodeProto], scope: &mut Scope) {
        let order = match order(nodes) {
            Ok(order) => order,
            Err(problem) => {
                let graph = self.graph_name(scope);
                // The operators are still listed: with unknown operands, in the order given.
                self.fail(ImportError::Wiring { graph, problem });
                (0..nodes.len()).collect()
            }
        };
        for i in order {
            self.node(&nodes[i], scope);
        }
    }

    fn graph_name(&self, scope: &Scope) -> String {
        if scope.path.is_empty() {
            self.b.graph.name.clone()
        } else {
            scope.path.trim_end_matches('/').to_owned()
        }
    }

    fn unique(&mut self, path: String) -> String {
        let n = self.names.entry(path.clone()).or_insert(0);
        *n += 1;
        if *n == 1 { path } else { format!("{path}#{n}") }
    }

    pub(super) fn node(&mut self, node: &NodeProto, scope: &mut Scope) {
        let path = self.unique(format!("{}{}", scope.path, node_name(node)));
        let (domain, op) =
            (domain(node.domain.as_deref()), node.op_type.as_deref().unwrap_or_default());
        let outcome = self.try_node(node, scope, &path, domain, op);
        let mut items = match outcome {
            Ok(items) => items,
            Err(err) => {
                self.report(err, node, scope, &path, domain, op);
                Vec::new()
            }
        }
        .into_iter();
        for name in &node.output {
            let item = items.next().unwrap_or(Item::Poison);
            if !name.is_empty() {
                scope.items.insert(name.clone(), item);
            }
        }
    }

    /// Files an error where it belongs.
    fn report(
        &mut self,
        err: OpError,
        node: &NodeProto,
        scope: &Scope,
        path: &str,
        domain: &str,
        op: &str,
    ) {
        let is_control = matches!(op, "If" | "Loop" | "Scan") && domain == "ai.onnx";
        let foreign = |name: &String| matches!(scope.find(name), Some(Item::Foreign(what)) if what == STRINGS);
        let moves = super::part::MOVES.contains(&op) || op == "LabelEncoder";
        let at_run_time = is_control
            || matches!(err, OpError::Dynamic { .. })
            || moves && node.input.iter().any(foreign);
        let (reason, nearest) = match err {
            OpError::Poisoned => return,
            OpError::Form { form, nearest } => (format!("{form} is not supported"), nearest),
            OpError::Dynamic { what } => (
                format!("{what} is only known at run time"),
                Some("a value that folds to a constant".into()),
            ),
            OpError::Elsewhere(err) => return self.fail(*err),
            problem => {
                let op = if domain == "ai.onnx" { op.to_owned() } else { format!("{domain}.{op}") };
                let problem = Box::new(problem);
                return self.fail(ImportError::Node { node: path.to_owned(), op, problem });
            }
        };
        let operands = node.input.iter().map(|name| match scope.find(name) {
            Some(Item::Tensor(value)) => self.b.ty(*value).to_string(),
            Some(Item::Sequence(values)) => format!("a sequence of {}", values.len()),
            Some(Item::Foreign(what)) => what.clone(),
            Some(Item::Poison) | None => if name.is_empty() { "-" } else { "?" }.to_owned(),
        });
        let known = Unsupported {
            node: path.to_owned(),
            domain: domain.to_owned(),
            op: op.to_owned(),
            opset: scope.opsets.get(domain).copied().unwrap_or(0),
            operands: operands.collect(),
            reason,
            nearest,
            at_run_time,
        };
        self.unsupported.push(known);
    }

    fn try_node(
        &mut self,
        node: &NodeProto,
        scope: &Scope,
        path: &str,
        domain: &str,
        op: &str,
    ) -> Result<Vec<Item>, OpError> {
        self.n_nodes += 1;
        if self.n_nodes > MAX_NODES + 1 {
            return Err(OpError::Poisoned);
        }
        if self.n_nodes > MAX_NODES {
            return Err(OpError::Form {
                form: format!("a model of more than {MAX_NODES} nodes"),
                nearest: None,
            });
        }
        let mut inputs = Vec::with_capacity(node.input.len());
        for name in &node.input {
            inputs.push(match name.as_str() {
                "" => None,
                name => match scope.find(name) {
                    Some(item) => Some(item.clone()),
                    None => {
                        let problem =
                            Wiring::Undefined { node: path.to_owned(), value: name.to_owned() };
                        self.fail(ImportError::Wiring { graph: self.graph_name(scope), problem });
                        Some(Item::Poison)
                    }
                },
            });
        }
        let mut attrs: BTreeMap<&str, &AttributeProto> = BTreeMap::new();
        for attr in &node.attribute {
            let name = attr.name.as_deref().unwrap_or_default();
            match attr.ref_attr_name.as_deref() {
                Some(reference) if !reference.is_empty() => {
                    // An attribute that the call leaves out is left out here too.
                    if let Some(given) = scope.attrs.and_then(|given| given.get(reference)) {
                        attrs.insert(name, given);
                    }
                }
                _ => {
                    attrs.insert(name, attr);
                }
            }
        }
        let poisoned = inputs.iter().any(|item| matches!(item, Some(Item::Poison)));
        if let Some(&function) = self.functions.get(&(domain, op)) {
            return self.call(function, inputs, &attrs, path);
        }
        let Some(row) = ops::find(domain, op) else {
            self.walk_subgraphs(&attrs, scope, path);
            let nearest = ops::nearest(op)
                .map(|row| format!("{}.{} (opset {} or later)", row.domain, row.name, row.since));
            return Err(OpError::Form { form: "this operator".into(), nearest });
        };
        let opset =
            scope.opsets.get(domain).copied().unwrap_or(if domain == "ai.onnx" { 0 } else { 1 });
        if opset < row.since {
            let nearest = Some(format!("opset {} or later", row.since));
            return Err(OpError::Form { form: format!("`{op}` in opset {opset}"), nearest });
        }
        if poisoned {
            self.walk_subgraphs(&attrs, scope, path);
            return Err(OpError::Poisoned);
        }
        let seen = std::cell::RefCell::default();
        let call = Call { opset, path, inputs, attrs, seen, outputs: &node.output };
        self.b.source = path.to_owned();
        match row.handler {
            Handler::Plain(f) => {
                let results = f(&mut self.b, &call)?;
                match call.unread() {
                    None => Ok(results),
                    // A form of the operator that is newer than its handler: nothing is ignored silently.
                    Some(name) => {
                        Err(OpError::Form { form: format!("attribute `{name}`"), nearest: None })
                    }
                }
            }
            Handler::Control(f) => f(self, scope, &call),
        }
    }

    /// Visits the subgraphs of a node that cannot be imported, to list what they need.
    fn walk_subgraphs(
        &mut self,
        attrs: &BTreeMap<&str, &AttributeProto>,
        scope: &Scope,
        path: &str,
    ) {
        for (name, attr) in attrs {
            for graph in attr.g.iter().chain(&attr.graphs) {
                let inputs = graph.input.iter().map(|_| Item::Poison).collect();
                // What it reports is filed; its results are not needed.
                let _ =
                    self.subgraph(graph, scope, &format!("{path}/{}", branch_name(name)), inputs);
            }
        }
    }

    /// Imports a subgraph with its inputs bound, and returns its outputs.
    pub(super) fn subgraph(
        &mut self,
        graph: &GraphProto,
        parent: &Scope,
        path: &str,
        inputs: Vec<Item>,
    ) -> Result<Vec<Item>, OpError> {
        self.enter(path)?;
        let names = graph.input.iter().map(|info| info.name.clone().unwrap_or_default());
        let items = names.zip(inputs).collect();
        let (opsets, attrs) = (parent.opsets, parent.attrs);
        let mut scope =
            Scope { parent: Some(parent), items, path: format!("{path}/"), opsets, attrs };
        let source = std::mem::take(&mut self.b.source);
        let constants = self.constants(graph, &mut scope);
        self.nodes(&graph.node, &mut scope);
        self.b.source = source;
        self.depth -= 1;
        constants?;
        let names = graph.output.iter().map(|info| info.name.as_deref().unwrap_or_default());
        names.map(|name| self.output(name, &scope)).collect()
    }

    /// A branch that may never run: that it does not fit the shapes is not the model's fault, but a
    /// branch that cannot be computed cannot be selected either.
    pub(super) fn attempt(
        &mut self,
        graph: &GraphProto,
        parent: &Scope,
        path: &str,
    ) -> Result<Vec<Item>, OpError> {
        let before = self.failure.take();
        let result = self.subgraph(graph, parent, path, vec![]);
        let inside = std::mem::replace(&mut self.failure, before);
        match inside {
            None => result,
            Some(err) => Err(OpError::Form {
                form: format!(
                    "a condition known at run time, when one branch does not fit these shapes ({err}),"
                ),
                nearest: Some("a condition that folds to a constant".into()),
            }),
        }
    }

    /// Imports the body of a function in place of its call.
    fn call(
        &mut self,
        function: &FunctionProto,
        inputs: Vec<Option<Item>>,
        given: &BTreeMap<&str, &AttributeProto>,
        path: &str,
    ) -> Result<Vec<Item>, OpError> {
        let opsets = opsets(&function.opset_import)?;
        self.enter(path)?;
        if inputs.len() > function.input.len() {
            self.depth -= 1;
            let function_name = function.name.clone().unwrap_or_default();
            let problem = Wiring::Call {
                function: function_name,
                found: inputs.len(),
                takes: function.input.len(),
            };
            return Err(ImportError::Wiring { graph: path.to_owned(), problem }.into());
        }
        let mut attrs: BTreeMap<&str, &AttributeProto> = BTreeMap::new();
        for attr in &function.attribute_proto {
            attrs.insert(attr.name.as_deref().unwrap_or_default(), attr);
        }
        attrs.extend(given.iter().map(|(name, attr)| (*name, *attr)));
        let items = function
            .input
            .iter()
            .zip(inputs)
            .filter_map(|(name, item)| Some((name.clone(), item?)))
            .collect();
        let mut scope = Scope {
            parent: None,
            items,
            path: format!("{path}/"),
            opsets: &opsets,
            attrs: Some(&attrs),
        };
        // An operand that the call leaves out is an empty name inside.
        let given: BTreeSet<&String> = scope.items.keys().collect();
        let absent: BTreeSet<&str> = function
            .input
            .iter()
            .filter(|name| !given.contains(name))
            .map(String::as_str)
            .collect();
        match absent.is_empty() {
            true => self.nodes(&function.node, &mut scope),
            false => {
                let mut nodes = function.node.clone();
                let names = nodes.iter_mut().flat_map(|node| &mut node.input);
                names.filter(|name| absent.contains(name.as_str())).for_each(String::clear);
                self.nodes(&nodes, &mut scope);
            }
        }
        self.depth -= 1;
        function.output.iter().map(|name| self.output(name, &scope)).collect()
    }

    fn enter(&mut self, path: &str) -> Result<(), OpError> {
        if self.depth == MAX_DEPTH {
            let problem = Wiring::Recursion { function: path.to_owned(), depth: MAX_DEPTH };
            return Err(ImportError::Wiring { graph: self.b.graph.name.clone(), problem }.into());
        }
        self.depth += 1;
        Ok(())
    }

    fn output(&self, name: &str, scope: &Scope) -> Result<Item, OpError> {
        scope.find(name).cloned().ok_or_else(|| {
            let problem = Wiring::NoOutput { value: name.to_owned() };
            ImportError::Wiring { graph: self.graph_name(scope), problem }.into()
        })
    }
}

/// `then_branch` is `then` in a path.
pub(super) fn branch_name(attr: &str) -> &str {
    attr.strip_suffix("_branch").unwrap_or(attr)
}

/// The graph without what no output needs. Inputs stay, needed or not, if they are to be kept.
pub(super) fn without_dead_nodes(graph: &Graph, keep_inputs: bool) -> Graph {
    let mut needed: BTreeSet<Value> = graph.outputs.iter().copied().collect();
    for (value, node) in graph.nodes.iter().rev() {
        match &node.kind {
            NodeKind::Input { .. } if keep_inputs => {
                needed.insert(value);
            }
            NodeKind::Apply(_, _, args) if needed.contains(&value) => {
                needed.extend(args.iter().copied())
            }
            _ => (),
        }
    }
    let mut live = Graph::new(graph.name.clone());
    let mut new: BTreeMap<Value, Value> = BTreeMap::new();
    for (value, node) in graph.nodes.iter().filter(|(value, _)| needed.contains(value)) {
        let mut node = node.clone();
        if let NodeKind::Apply(_, _, args) = &mut node.kind {
            args.iter_mut().for_each(|arg| *arg = new[arg]);
        }
        new.insert(value, live.nodes.push(node));
    }
    live.outputs = graph.outputs.iter().map(|value| new[value]).collect();
    live.output_names = graph.output_names.clone();
    live
}
