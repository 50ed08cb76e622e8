//! A walk over every node of a model, with what is known of each value before any shape is: whether its
//! contents or its extents depend on what the model is given, its rank and its element type.
//!
//! Shapes of inputs are known when a model is compiled, so what `Shape` returns does not depend on data.
//! Bodies of called functions are walked at each call, as import does, up to [`MAX_NODES`].

use std::collections::BTreeMap;

use super::traps;
use super::{Decision, OperatorCount, Place, tier_of};
use crate::DType;
use crate::onnx::error::Unsupported;
use crate::onnx::ops;
use crate::onnx::order::{node_name, order};
use crate::onnx::part;
use crate::onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, ValueInfoProto,
};

/// Nodes walked at most: functions that call each other twice would be walked for ever.
const MAX_NODES: usize = 1 << 20;

/// Nested functions and subgraphs beyond this are a cycle.
const MAX_DEPTH: usize = 64;

/// What is known of a value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fact<'m> {
    /// Its contents depend on what the model is given.
    pub(super) data: bool,
    /// So do its extents.
    pub(super) ragged: bool,
    pub(super) rank: Option<usize>,
    pub(super) dtype: Option<DType>,
    /// It is this constant.
    pub(super) constant: Option<&'m TensorProto>,
    /// It is made of strings.
    pub(super) strings: bool,
}

impl<'m> Fact<'m> {
    fn of_tensor(tensor: &'m TensorProto) -> Self {
        let code = tensor.data_type.unwrap_or(0);
        Fact {
            rank: Some(tensor.dims.len()),
            dtype: DType::from_onnx(code),
            constant: Some(tensor),
            strings: code == 8,
            ..Fact::default()
        }
    }

    fn of_port(info: &ValueInfoProto, data: bool) -> Self {
        let tensor = info.r#type.as_ref().and_then(|ty| ty.tensor_type.as_ref());
        let code = tensor.and_then(|it| it.elem_type).unwrap_or(0);
        let rank = tensor.and_then(|it| it.shape.as_ref()).map(|shape| shape.dim.len());
        Fact { data, rank, dtype: DType::from_onnx(code), strings: code == 8, ..Fact::default() }
    }

    fn join(self, other: Self) -> Self {
        let same = self.rank == other.rank;
        Fact {
            data: self.data || other.data,
            ragged: self.ragged || other.ragged,
            rank: if same { self.rank } else { None },
            dtype: if self.dtype == other.dtype { self.dtype } else { None },
            constant: None,
            strings: self.strings || other.strings,
        }
    }
}

/// One node with what is known of its operands.
pub(super) struct Spot<'a, 'm> {
    pub(super) node: &'m NodeProto,
    pub(super) opset: i64,
    pub(super) operands: &'a [Option<Fact<'m>>],
}

impl<'m> Spot<'_, 'm> {
    pub(super) fn attr(&self, name: &str) -> Option<&'m AttributeProto> {
        self.node.attribute.iter().find(|attr| attr.name.as_deref() == Some(name))
    }

    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.attr(name).and_then(|attr| attr.i).unwrap_or(default)
    }

    pub(super) fn word(&self, name: &str, default: &str) -> String {
        let bytes = self.attr(name).and_then(|attr| attr.s.as_ref());
        bytes.map_or_else(|| default.to_owned(), |s| String::from_utf8_lossy(s).into_owned())
    }

    pub(super) fn operand(&self, i: usize) -> Option<Fact<'m>> {
        self.operands.get(i).copied().flatten()
    }

    pub(super) fn dtype(&self, i: usize) -> Option<DType> {
        self.operand(i).and_then(|fact| fact.dtype)
    }

    /// Whether result `i` has a name.
    pub(super) fn wants(&self, i: usize) -> bool {
        self.node.output.get(i).is_some_and(|name| !name.is_empty())
    }
}

/// What a walk finds.
#[derive(Default)]
pub(super) struct Walked {
    pub(super) n_nodes: usize,
    counts: BTreeMap<(String, String, i64), usize>,
    pub(super) places: Vec<Place>,
    /// Operators that import has no row for.
    pub(super) unknown: Vec<Unsupported>,
    /// Trap and node.
    pub(super) traps: Vec<(usize, String)>,
}

impl Walked {
    pub(super) fn operators(&self) -> Vec<OperatorCount> {
        let row = |((domain, op, opset), &n): (&(String, String, i64), &usize)| OperatorCount {
            domain: domain.clone(),
            op: op.clone(),
            opset: *opset,
            n,
            tier: tier_of(domain, op),
            known: ops::find(domain, op).is_some(),
        };
        let mut rows: Vec<OperatorCount> = self.counts.iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.n));
        rows
    }
}

pub(super) fn opsets(model: &ModelProto) -> BTreeMap<String, i64> {
    versions(&model.opset_import)
}

fn versions(imports: &[OperatorSetIdProto]) -> BTreeMap<String, i64> {
    let row = |it: &OperatorSetIdProto| {
        (domain(it.domain.as_deref()).to_owned(), it.version.unwrap_or(0))
    };
    imports.iter().map(row).collect()
}

fn domain(name: Option<&str>) -> &str {
    match name {
        None | Some("") => "ai.onnx",
        Some(name) => name,
    }
}

struct Scope<'s, 'm> {
    parent: Option<&'s Scope<'s, 'm>>,
    facts: BTreeMap<&'m str, Fact<'m>>,
    path: String,
    opsets: &'s BTreeMap<String, i64>,
}

impl<'m> Scope<'_, 'm> {
    fn find(&self, name: &str) -> Option<Fact<'m>> {
        self.facts.get(name).copied().or_else(|| self.parent.and_then(|it| it.find(name)))
    }
}

struct Walker<'m> {
    functions: BTreeMap<(&'m str, &'m str), &'m FunctionProto>,
    names: BTreeMap<String, usize>,
    found: Walked,
    depth: usize,
    /// Nodes left to walk.
    fuel: usize,
    /// Bodies of loops are walked twice, the first time for the facts alone.
    silent: bool,
}

/// Walks a model.
pub(super) fn walk(model: &ModelProto) -> Walked {
    let graph = model.graph.as_ref().expect("a decoded model has a graph");
    let mut functions = BTreeMap::new();
    for function in &model.functions {
        let name = function.name.as_deref().unwrap_or_default();
        functions.insert((domain(function.domain.as_deref()), name), function);
    }
    let opsets = opsets(model);
    let mut walker = Walker {
        functions,
        names: BTreeMap::new(),
        found: Walked::default(),
        depth: 0,
        fuel: MAX_NODES,
        silent: false,
    };
    let mut scope =
        Scope { parent: None, facts: BTreeMap::new(), path: String::new(), opsets: &opsets };
    for info in &graph.input {
        scope.facts.insert(info.name.as_deref().unwrap_or_default(), Fact::of_port(info, true));
    }
    for (trap, node) in traps::of_graph(model, graph) {
        walker.found.traps.push((trap, node));
    }
    walker.graph(graph, &mut scope);
    walker.found
}

impl<'m> Walker<'m> {
    /// Walks a graph whose inputs are in the scope.
    fn graph(&mut self, graph: &'m GraphProto, scope: &mut Scope<'_, 'm>) {
        for tensor in &graph.initializer {
            let name = tensor.name.as_deref().unwrap_or_default();
            scope.facts.insert(name, Fact::of_tensor(tensor));
        }
        for sparse in &graph.sparse_initializer {
            if let Some(name) = sparse.values.as_ref().and_then(|it| it.name.as_deref()) {
                let rank = Some(sparse.dims.len());
                scope.facts.insert(name, Fact { rank, ..Fact::default() });
            }
        }
        let hints: BTreeMap<&str, &ValueInfoProto> = (graph.value_info.iter())
            .chain(&graph.output)
            .filter_map(|info| Some((info.name.as_deref()?, info)))
            .collect();
        self.nodes(&graph.node, scope, &hints);
    }

    fn nodes(
        &mut self,
        nodes: &'m [NodeProto],
        scope: &mut Scope<'_, 'm>,
        hints: &BTreeMap<&str, &'m ValueInfoProto>,
    ) {
        let order = order(nodes).unwrap_or_else(|_| (0..nodes.len()).collect());
        for i in order {
            if self.fuel == 0 {
                return;
            }
            self.fuel -= 1;
            self.node(&nodes[i], scope, hints);
        }
    }

    fn node(
        &mut self,
        node: &'m NodeProto,
        scope: &mut Scope<'_, 'm>,
        hints: &BTreeMap<&str, &'m ValueInfoProto>,
    ) {
        let mut path = format!("{}{}", scope.path, node_name(node));
        let (domain, op) =
            (domain(node.domain.as_deref()), node.op_type.as_deref().unwrap_or_default());
        let opset = scope.opsets.get(domain).copied().unwrap_or(0);
        let operands: Vec<Option<Fact<'m>>> = (node.input.iter())
            .map(|name| match name.as_str() {
                "" => None,
                name => Some(scope.find(name).unwrap_or(Fact { data: true, ..Fact::default() })),
            })
            .collect();
        if !self.silent {
            let n = self.names.entry(path.clone()).or_insert(0);
            *n += 1;
            if *n > 1 {
                path = format!("{path}#{n}");
            }
        }
        if let Some(&function) = self.functions.get(&(domain, op)) {
            let results = self.call(function, operands, &path);
            self.define(node, results, scope, hints);
            return;
        }
        if !self.silent {
            self.found.n_nodes += 1;
            *self.found.counts.entry((domain.to_owned(), op.to_owned(), opset)).or_insert(0) += 1;
            let strings = operands.iter().flatten().any(|fact| fact.strings);
            if ops::find(domain, op).is_none() || strings {
                self.found.unknown.push(unknown(&path, domain, op, opset, &operands));
            }
            let spot = Spot { node, opset, operands: &operands };
            for trap in traps::of_node(domain, op, &spot) {
                self.found.traps.push((trap, path.clone()));
            }
        }
        let standard = domain == "ai.onnx";
        let results = match op {
            "If" if standard => self.branch(node, &operands, scope, &path),
            "Loop" | "Scan" | "SequenceMap" if standard => {
                self.repeat(op, node, &operands, scope, &path)
            }
            _ => self.plain(op, opset, node, &operands, &path),
        };
        self.define(node, results, scope, hints);
    }

    fn define(
        &self,
        node: &'m NodeProto,
        results: Vec<Fact<'m>>,
        scope: &mut Scope<'_, 'm>,
        hints: &BTreeMap<&str, &'m ValueInfoProto>,
    ) {
        for (i, name) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let mut fact = results.get(i).or(results.last()).copied().unwrap_or_default();
            if let Some(info) = hints.get(name.as_str()) {
                let hint = Fact::of_port(info, false);
                (fact.rank, fact.dtype) = (hint.rank.or(fact.rank), hint.dtype.or(fact.dtype));
            }
            scope.facts.insert(name, fact);
        }
    }

    fn place(&mut self, path: &str, op: &str, decision: Decision, what: String) {
        if !self.silent {
            let (node, op) = (path.to_owned(), op.to_owned());
            self.found.places.push(Place { node, op, decision, what });
        }
    }

    /// A node without subgraphs.
    fn plain(
        &mut self,
        op: &str,
        opset: i64,
        node: &'m NodeProto,
        operands: &[Option<Fact<'m>>],
        path: &str,
    ) -> Vec<Fact<'m>> {
        let there = || operands.iter().flatten();
        let mut fact = Fact {
            data: there().any(|it| it.data),
            ragged: there().any(|it| it.ragged),
            ..Fact::default()
        };
        let spot = Spot { node, opset, operands };
        match op {
            "Constant" => {
                let value = spot.attr("value").and_then(|attr| attr.t.as_ref());
                return vec![value.map_or_else(Fact::default, Fact::of_tensor)];
            }
            "Shape" | "Size" => {
                fact.data = spot.operand(0).is_some_and(|it| it.ragged);
                (fact.ragged, fact.dtype) = (false, Some(DType::I64));
                fact.rank = Some(usize::from(op == "Shape"));
                return vec![fact];
            }
            _ if op.starts_with("Random") || matches!(op, "Multinomial" | "Bernoulli") => {
                fact.data = true;
            }
            _ => (),
        }
        let by_contents = match op {
            "NonZero" | "Unique" => spot.operand(0).is_some_and(|it| it.data),
            "Compress" => spot.operand(1).is_some_and(|it| it.data),
            "NonMaxSuppression" => there().take(2).any(|it| it.data),
            _ => false,
        };
        if by_contents {
            fact.ragged = true;
            self.place(path, op, Decision::Extents, format!("how many results `{op}` has"));
        }
        for &i in shape_operands(op) {
            if spot.operand(i).is_some_and(|it| it.data) {
                fact.ragged = true;
                let name = node.input.get(i).map_or("", String::as_str);
                let what = format!("extents by operand {i}, `{name}`, which depends on data");
                self.place(path, op, Decision::Extents, what);
                break;
            }
        }
        if there().any(|it| it.strings) {
            let what = "operands that are strings".to_owned();
            self.place(path, op, Decision::Strings, what);
        }
        let first = spot.operand(0).unwrap_or_default();
        if KEEPS_RANK.contains(&op) {
            fact.rank = first.rank;
        } else if BROADCASTS.contains(&op) {
            let ranks: Option<Vec<usize>> = there().map(|it| it.rank).collect();
            fact.rank = ranks.and_then(|ranks| ranks.into_iter().max());
        }
        fact.dtype = match op {
            "Cast" => DType::from_onnx(spot.int("to", 0) as i32),
            _ if KEEPS_RANK.contains(&op) || BROADCASTS.contains(&op) => first.dtype,
            _ => None,
        };
        vec![fact]
    }

    /// Walks the body of a function in place of its call.
    fn call(
        &mut self,
        function: &'m FunctionProto,
        operands: Vec<Option<Fact<'m>>>,
        path: &str,
    ) -> Vec<Fact<'m>> {
        if self.depth == MAX_DEPTH {
            return Vec::new();
        }
        self.depth += 1;
        let opsets = versions(&function.opset_import);
        let names = function.input.iter().map(String::as_str);
        let facts = names.zip(operands).filter_map(|(name, fact)| Some((name, fact?))).collect();
        let mut scope = Scope { parent: None, facts, path: format!("{path}/"), opsets: &opsets };
        self.nodes(&function.node, &mut scope, &BTreeMap::new());
        self.depth -= 1;
        function.output.iter().map(|name| scope.find(name).unwrap_or_default()).collect()
    }

    /// Walks a subgraph with its inputs bound; the facts of its outputs.
    fn subgraph(
        &mut self,
        graph: &'m GraphProto,
        inputs: &[Fact<'m>],
        parent: &Scope<'_, 'm>,
        path: String,
    ) -> Vec<Fact<'m>> {
        if self.depth == MAX_DEPTH {
            return Vec::new();
        }
        self.depth += 1;
        let names = graph.input.iter().map(|info| info.name.as_deref().unwrap_or_default());
        let facts = names.zip(inputs.iter().copied()).collect();
        let mut scope = Scope { parent: Some(parent), facts, path, opsets: parent.opsets };
        self.graph(graph, &mut scope);
        self.depth -= 1;
        let names = graph.output.iter().map(|info| info.name.as_deref().unwrap_or_default());
        names.map(|name| scope.find(name).unwrap_or_default()).collect()
    }

    fn branch(
        &mut self,
        node: &'m NodeProto,
        operands: &[Option<Fact<'m>>],
        scope: &Scope<'_, 'm>,
        path: &str,
    ) -> Vec<Fact<'m>> {
        let decided = operands.first().copied().flatten().is_some_and(|it| it.data);
        if decided {
            let name = node.input.first().map_or("", String::as_str);
            let what = format!("the branch taken, by `{name}`, which depends on data");
            self.place(path, "If", Decision::Branch, what);
        }
        let mut joined: Option<Vec<Fact<'m>>> = None;
        for attr in &node.attribute {
            let Some(graph) = &attr.g else { continue };
            let name = attr.name.as_deref().unwrap_or_default();
            let name = name.strip_suffix("_branch").unwrap_or(name);
            let facts = self.subgraph(graph, &[], scope, format!("{path}/{name}/"));
            joined = Some(match joined {
                None => facts,
                Some(first) => first.into_iter().zip(facts).map(|(x, y)| x.join(y)).collect(),
            });
        }
        let mut facts = joined.unwrap_or_default();
        facts.iter_mut().for_each(|fact| fact.data |= decided);
        facts
    }

    /// `Loop`, `Scan` and `SequenceMap`.
    fn repeat(
        &mut self,
        op: &str,
        node: &'m NodeProto,
        operands: &[Option<Fact<'m>>],
        scope: &Scope<'_, 'm>,
        path: &str,
    ) -> Vec<Fact<'m>> {
        let Some(body) = node.attribute.iter().find_map(|attr| attr.g.as_ref()) else {
            return Vec::new();
        };
        let plain: Vec<Fact<'m>> =
            operands.iter().map(|fact| fact.unwrap_or_default()).map(without_constant).collect();
        let is_loop = op == "Loop";
        let n_scanned =
            node.attribute.iter().find(|it| it.name.as_deref() == Some("num_scan_inputs"));
        let n_scanned = n_scanned.and_then(|it| it.i).unwrap_or(0).max(0) as usize;
        let n_state = match op {
            "Loop" => plain.len().saturating_sub(2),
            "Scan" => plain.len().saturating_sub(n_scanned),
            _ => 0,
        };
        // The state before an iteration: what it begins with, and what an iteration leaves.
        let mut inputs = plain.clone();
        if is_loop {
            let known = Fact { dtype: Some(DType::I64), rank: Some(0), ..Fact::default() };
            inputs.truncate(0);
            inputs.extend([known, Fact { dtype: Some(DType::Bool), ..known }]);
            inputs.extend(plain.iter().skip(2).copied());
        }
        let skip = if is_loop { 1 } else { 0 };
        let silent = std::mem::replace(&mut self.silent, true);
        // Bodies of bodies once, or nesting would cost a power of its depth.
        for _ in 0..if silent { 1 } else { 2 } {
            let results = self.subgraph(body, &inputs, scope, format!("{path}/body/"));
            let first = if is_loop { 2 } else { 0 };
            for i in 0..n_state {
                if let (Some(input), Some(result)) =
                    (inputs.get_mut(first + i), results.get(skip + i))
                {
                    *input = input.join(without_constant(*result));
                }
            }
        }
        self.silent = silent;
        let results = self.subgraph(body, &inputs, scope, format!("{path}/body/"));
        if is_loop {
            let given = |i: usize| operands.get(i).copied().flatten();
            let trips = given(0).is_some_and(|it| it.data);
            let goes_on = given(1).is_some_and(|it| it.data)
                || results.first().is_some_and(|it| it.data && it.constant.is_none());
            if trips || goes_on {
                let by = if trips { "its trip count" } else { "its condition" };
                let what = format!("how often the body runs, by {by}, which depends on data");
                self.place(path, op, Decision::Trips, what);
            }
            let ragged = trips || goes_on;
            let mut facts: Vec<Fact<'m>> = results.into_iter().skip(1).collect();
            for (i, fact) in facts.iter_mut().enumerate() {
                fact.constant = None;
                fact.data |= ragged;
                if i >= n_state {
                    fact.ragged |= ragged;
                    fact.rank = fact.rank.map(|rank| rank + 1);
                }
            }
            return facts;
        }
        let mut facts: Vec<Fact<'m>> = results.into_iter().map(without_constant).collect();
        for fact in facts.iter_mut().skip(n_state) {
            fact.rank = fact.rank.map(|rank| rank + 1);
        }
        facts
    }
}

/// An operator that import has no row for. Shapes are not known before import.
fn unknown(
    path: &str,
    domain: &str,
    op: &str,
    opset: i64,
    operands: &[Option<Fact<'_>>],
) -> Unsupported {
    let text = |fact: &Option<Fact<'_>>| match fact {
        None => "-".to_owned(),
        Some(fact) if fact.strings => "a tensor of strings".to_owned(),
        Some(fact) => match (fact.dtype, fact.rank) {
            (Some(dtype), Some(rank)) => format!("{dtype} of rank {rank}"),
            (Some(dtype), None) => dtype.to_string(),
            _ => "?".to_owned(),
        },
    };
    let strings = operands.iter().flatten().any(|fact| fact.strings)
        && (part::MOVES.contains(&op) || op == "LabelEncoder");
    let nearest = ops::nearest(op)
        .map(|row| format!("{}.{} (opset {} or later)", row.domain, row.name, row.since));
    Unsupported {
        node: path.to_owned(),
        domain: domain.to_owned(),
        op: op.to_owned(),
        opset,
        operands: operands.iter().map(text).collect(),
        reason: match strings {
            true => "strings are moved by the host".to_owned(),
            false => "this operator is not supported".to_owned(),
        },
        nearest: if strings { None } else { nearest },
        at_run_time: strings,
    }
}

fn without_constant(fact: Fact<'_>) -> Fact<'_> {
    Fact { constant: None, ..fact }
}

/// Operands that say what extents a result has.
fn shape_operands(op: &str) -> &'static [usize] {
    match op {
        "Reshape" | "Expand" | "Tile" | "OneHot" | "TopK" | "Pad" | "Upsample" | "Split"
        | "Squeeze" | "Unsqueeze" | "ReduceSum" | "CenterCropPad" | "AffineGrid" | "DFT"
        | "SplitToSequence" => &[1],
        "Slice" => &[1, 2, 3, 4],
        "Range" => &[0, 1, 2],
        "ConstantOfShape" | "HannWindow" | "HammingWindow" | "BlackmanWindow" => &[0],
        "Resize" => &[2, 3],
        "MaxUnpool" => &[2],
        "STFT" => &[1, 3],
        _ if op.starts_with("Reduce") => &[1],
        _ => &[],
    }
}

/// Operators whose result has the rank and, but for `Cast`, the type of their first operand.
#[rustfmt::skip]
const KEEPS_RANK: &[&str] = &[
    "Relu", "Neg", "Abs", "Exp", "Log", "Sqrt", "Erf", "Tanh", "Sigmoid", "Identity", "Cast", "Dropout", "LeakyRelu", "Elu",
    "Selu", "Clip", "Softmax", "LogSoftmax", "Hardmax", "Conv", "MaxPool", "AveragePool", "ConvTranspose", "BatchNormalization",
    "InstanceNormalization", "LayerNormalization", "GlobalAveragePool", "GlobalMaxPool", "Transpose", "Concat", "Slice", "Pad",
    "Resize", "CumSum", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Gelu", "Reciprocal", "Floor", "Ceil", "Round", "Sign",
];

/// Operators whose result has the largest rank of their operands.
const BROADCASTS: &[&str] =
    &["Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Mean", "Where", "Mod", "PRelu"];
