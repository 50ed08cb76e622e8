//! What a model needs, without compiling it: operators with their tiers, what import refuses, dimensions
//! without a number, places that depend on data, and traps of the format.
//!
//! A dimension without a number is given one, so that import can be tried; what was assumed is said.
//! Nothing here depends on a clock: which extents are tried, and in which order, is fixed.

mod tiers;
mod traps;
mod walk;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::error::{ImportError, Unsupported};
use super::load::{self, Tensors};
use super::proto::ModelProto;
use super::{ImportOptions, ModelInfo, Port, bind, import};
use crate::{Dim, NodeKind};

pub use tiers::{Tier, tier_of};

/// An operator of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorCount {
    /// Domain; `ai.onnx` for the standard's.
    pub domain: String,
    /// Its name.
    pub op: String,
    /// Version of the domain that the model uses; 0 if it names none.
    pub opset: i64,
    /// Nodes, subgraphs and bodies of called functions included.
    pub n: usize,
    /// How common it is.
    pub tier: Tier,
    /// Whether import has a row for it. A form of it may still be refused.
    pub known: bool,
}

/// A dimension of an input without a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DynamicDim {
    /// The input.
    pub input: String,
    /// Which axis.
    pub axis: usize,
    /// Its name in the model, or `?`.
    pub symbol: String,
    /// The extent that import was tried with; `None` if the shape was given.
    pub assumed: Option<usize>,
}

/// What is decided while the model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Extents of a result depend on what is in a tensor.
    Extents,
    /// Which branch is taken.
    Branch,
    /// How often a body runs.
    Trips,
    /// What no device computes: strings.
    Strings,
}

/// A node where something is decided while the model runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Path of the node.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// What is decided.
    pub decision: Decision,
    /// In words.
    pub what: String,
}

/// Nodes where implementations are known to differ, or exporters to err.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrapFound {
    /// Name of the trap, kebab-case.
    pub trap: &'static str,
    /// What it is and what Eggine does.
    pub says: &'static str,
    /// Paths of the nodes, in the model's order.
    pub nodes: Vec<String>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Survey {
    /// Inputs that have to be given.
    pub inputs: Vec<Port>,
    /// Outputs.
    pub outputs: Vec<Port>,
    /// Facts about the file.
    pub model: ModelInfo,
    /// Versions of the operator domains, sorted by domain.
    pub opsets: Vec<(String, i64)>,
    /// All nodes, subgraphs and bodies of called functions included.
    pub n_nodes: usize,
    /// Operators, the most frequent first.
    pub operators: Vec<OperatorCount>,
    /// Dimensions without a number.
    pub dynamic: Vec<DynamicDim>,
    /// The extents that import was tried with, by input.
    pub tried: BTreeMap<String, Vec<usize>>,
    /// How many assignments of extents were tried.
    pub n_tried: usize,
    /// Places that are decided while the model runs.
    pub places: Vec<Place>,
    /// Traps.
    pub traps: Vec<TrapFound>,
    /// Operators, and forms of operators, that import cannot express. Those that are only known at run time
    /// are left to the host of a program; the others are not supported.
    pub unsupported: Vec<Unsupported>,
    /// Whether an input or an output is made of strings. Then operators are looked at, but import needs the
    /// inputs of a run and is not tried.
    pub takes_strings: bool,
    /// What else stops import.
    pub failure: Option<ImportError>,
    /// Core operators after import, folded and without what no output needs.
    pub n_core_ops: Option<usize>,
    /// Bytes of constants after import.
    pub constant_bytes: Option<u64>,
}

impl Survey {
    /// Whether the model is supported: as an engine or as a program.
    pub fn covered(&self) -> bool {
        self.failure.is_none() && self.unsupported.iter().all(|it| it.at_run_time)
    }

    /// Whether it is not one engine but a program of several, whose host decides what is only known at run
    /// time and moves strings.
    pub fn is_program(&self) -> bool {
        self.covered() && (self.takes_strings || !self.unsupported.is_empty())
    }
}

/// Looks at a model file. `options` may bind some or all shapes.
///
/// # Errors
///
/// Only if the file is no model, or a given shape contradicts it. What import refuses is in the survey.
pub fn survey(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Survey, ImportError> {
    let path = path.as_ref();
    let model = load::open(path)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => Path::new(".").to_owned(),
    };
    survey_model(&model, Some(&folder), options)
}

/// As [`survey`], of a model in memory.
///
/// # Errors
///
/// As [`survey`].
pub fn survey_bytes(
    bytes: impl Into<bytes::Bytes>,
    options: &ImportOptions,
) -> Result<Survey, ImportError> {
    survey_model(&load::decode("<bytes>", bytes.into())?, None, options)
}

fn survey_model(
    model: &ModelProto,
    folder: Option<&Path>,
    options: &ImportOptions,
) -> Result<Survey, ImportError> {
    let graph = model.graph.as_ref().expect("a decoded model has a graph");
    let inputs = bind::inputs(graph);
    let walked = walk::walk(model);
    let tensors = || Tensors::new(folder.map(Path::to_owned));
    let mut found = Survey {
        outputs: bind::outputs(graph),
        model: import::info(model),
        opsets: walk::opsets(model).into_iter().collect(),
        n_nodes: walked.n_nodes,
        operators: walked.operators(),
        dynamic: Vec::new(),
        tried: BTreeMap::new(),
        n_tried: 0,
        places: walked.places,
        traps: traps::gather(walked.traps),
        unsupported: Vec::new(),
        takes_strings: false,
        failure: None,
        n_core_ops: None,
        constant_bytes: None,
        inputs,
    };
    for assumption in ASSUMPTIONS {
        let shapes = assume(&found.inputs, &options.shapes, *assumption);
        let unbound = shapes.iter().any(|(name, _)| !options.shapes.contains_key(name));
        let tried = ImportOptions {
            shapes: options.shapes.clone().into_iter().chain(shapes.clone()).collect(),
        };
        let first = found.n_tried == 0;
        found.n_tried += 1;
        let outcome = import::import(model, tensors(), &tried);
        let (unsupported, failure) = match outcome {
            Ok(imported) => {
                let nodes = || imported.graph.nodes.values();
                let is_op = |it: &&crate::Node| matches!(it.kind, NodeKind::Apply(..));
                found.n_core_ops = Some(nodes().filter(is_op).count());
                let n_bytes = |it: &crate::Node| match &it.kind {
                    NodeKind::Const(tensor) => tensor.bytes.len() as u64,
                    _ => 0,
                };
                found.constant_bytes = Some(nodes().map(n_bytes).sum());
                (Vec::new(), None)
            }
            Err(ImportError::Unsupported(list)) => (list, None),
            // What was given is wrong, not what was assumed.
            Err(err @ ImportError::NoSuchInput { .. }) => return Err(err),
            Err(ImportError::InputShape { input, declared, given })
                if options.shapes.contains_key(&input) =>
            {
                return Err(ImportError::InputShape { input, declared, given });
            }
            Err(err @ ImportError::Symbol { .. }) if !unbound => return Err(err),
            Err(err) => (Vec::new(), Some(err)),
        };
        let good = failure.is_none() && unsupported.is_empty();
        // A missing operator is missing at any extent.
        let settled = failure.is_none()
            && unsupported
                .iter()
                .any(|it| it.at_run_time || it.reason.starts_with("this operator"));
        let better = match (&found.failure, &failure) {
            (Some(_), None) => true,
            (None, None) => unsupported.len() < found.unsupported.len(),
            _ => false,
        };
        if first || good || better {
            (found.unsupported, found.failure, found.tried) = (unsupported, failure, shapes);
        }
        if good || settled || !unbound {
            break;
        }
    }
    let ports = found.inputs.iter().chain(&found.outputs);
    // What is imported computes numbers, whatever it says of its outputs.
    found.takes_strings = found.n_core_ops.is_none()
        && ports.into_iter().any(|port| port.found == "a tensor of strings");
    if found.takes_strings && matches!(found.failure, Some(ImportError::Interface { .. })) {
        (found.failure, found.unsupported) = (None, walked.unknown);
        found.tried.clear();
    } else if found.failure.is_some() && found.unsupported.is_empty() {
        // What stops import before the first node hides what the nodes need.
        found.unsupported = walked.unknown;
    }
    found.dynamic = dynamic(&found.inputs, &options.shapes, &found.tried);
    Ok(found)
}

/// Extents of the first axis and of the others, where the model leaves them open: small ones first, then
/// those that convolutions and windows need.
const ASSUMPTIONS: &[(usize, usize)] =
    &[(2, 2), (1, 1), (1, 4), (1, 16), (1, 64), (1, 224), (1, 576), (1, 4096)];

/// A shape for every input without one. A dimension that is the first of an input of two axes or more, or
/// that is the only open one of three, is taken for a batch.
fn assume(
    inputs: &[Port],
    given: &BTreeMap<String, Vec<usize>>,
    (batch, other): (usize, usize),
) -> BTreeMap<String, Vec<usize>> {
    let mut symbols: BTreeMap<&str, usize> = BTreeMap::new();
    for port in inputs {
        let (Some(shape), Some(extents)) = (&port.shape, given.get(&port.name)) else { continue };
        for (dim, &extent) in shape.0.iter().zip(extents) {
            if let Dim::Symbolic(symbol) = dim {
                symbols.insert(symbol, extent);
            }
        }
    }
    let batches = inputs.iter().filter_map(|port| port.shape.as_ref()).filter_map(|shape| {
        match shape.0.first() {
            Some(Dim::Symbolic(symbol)) if shape.rank() > 1 => Some(symbol.as_str()),
            _ => None,
        }
    });
    let batches: std::collections::BTreeSet<&str> = batches.filter(|it| *it != "?").collect();
    let mut shapes = BTreeMap::new();
    for port in inputs.iter().filter(|port| !given.contains_key(&port.name)) {
        let Some(shape) = &port.shape else { continue };
        let n_open = shape.0.iter().filter(|dim| matches!(dim, Dim::Symbolic(_))).count();
        if n_open == 0 {
            continue;
        }
        let extent = |(axis, dim): (usize, &Dim)| match dim {
            Dim::Fixed(n) => *n,
            Dim::Symbolic(symbol) if symbol == "?" => {
                let is_batch = (axis == 0 && shape.rank() > 1) || (n_open == 1 && shape.rank() > 2);
                if is_batch { batch } else { other }
            }
            Dim::Symbolic(symbol) => {
                let plain = |name: &str| {
                    let value = if batches.contains(name) { batch } else { other };
                    symbols.get(name).copied().unwrap_or(value)
                };
                plain(symbol)
            }
        };
        shapes.insert(port.name.clone(), shape.0.iter().enumerate().map(extent).collect());
    }
    // Sums of other symbols, now that those have numbers.
    let mut bound: BTreeMap<String, usize> =
        symbols.iter().map(|(name, &n)| ((*name).to_owned(), n)).collect();
    for port in inputs {
        let (Some(shape), Some(extents)) = (&port.shape, shapes.get(&port.name)) else { continue };
        for (dim, &extent) in shape.0.iter().zip(extents) {
            if let Dim::Symbolic(symbol) = dim {
                bound.entry(symbol.clone()).or_insert(extent);
            }
        }
    }
    for port in inputs {
        let extents: Option<&mut Vec<usize>> = shapes.get_mut(&port.name);
        let (Some(shape), Some(extents)) = (&port.shape, extents) else { continue };
        for (dim, extent) in shape.0.iter().zip(extents) {
            if let Dim::Symbolic(symbol) = dim
                && symbol.contains('+')
                && let Some(n) = sum(symbol, &|name| bound.get(name).copied())
            {
                *extent = n;
            }
        }
    }
    shapes
}

/// The value of a sum such as `past + 1`.
fn sum(text: &str, symbol: &dyn Fn(&str) -> Option<usize>) -> Option<usize> {
    let terms = text.trim_matches(['(', ')', ' ']).split('+').map(str::trim);
    terms.map(|term| term.parse().ok().or_else(|| symbol(term))).sum()
}

fn dynamic(
    inputs: &[Port],
    given: &BTreeMap<String, Vec<usize>>,
    tried: &BTreeMap<String, Vec<usize>>,
) -> Vec<DynamicDim> {
    let mut dims = Vec::new();
    for port in inputs {
        for (axis, dim) in port.shape.iter().flat_map(|shape| shape.0.iter().enumerate()) {
            let Dim::Symbolic(symbol) = dim else { continue };
            let assumed = match given.contains_key(&port.name) {
                true => None,
                false => tried.get(&port.name).and_then(|extents| extents.get(axis).copied()),
            };
            dims.push(DynamicDim {
                input: port.name.clone(),
                axis,
                symbol: symbol.clone(),
                assumed,
            });
        }
    }
    dims
}
