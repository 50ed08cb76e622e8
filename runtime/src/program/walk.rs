//! The walk over a program's graphs.
//!
//! Invariants: a node is done once in each visit of its graph; a stage's engine depends on the shapes and
//! the known constants of the names that it reads, and on nothing else, so that the same situation finds the
//! same engine again.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::rc::Rc;

use eggine_ir::onnx::part::{
    Bound, Found, Model, Part, Request, attribute, import_part, name_of, uses,
};
use eggine_ir::onnx::proto::{GraphProto, NodeProto};
use eggine_ir::onnx::{ImportError, Imported};
use eggine_ir::{DType, Tensor};

use super::file::Program;
use super::host::{self, HostError, value_of};
use super::range::OutOfRange;
use super::value::HostValue;
use crate::device::{Device, DeviceError};
use crate::engine::Engine;

/// Loops of more iterations than this do not end, as far as a program is concerned.
const MAX_TRIPS: i64 = 1 << 20;

/// Subgraphs in subgraphs beyond this are a cycle.
const MAX_DEPTH: usize = 64;

/// Engines kept ready; of more, the one that was not used for the longest time goes.
const MAX_SESSIONS: usize = 64;

/// What an engine maker may fail with.
pub type SpecialiseError = Box<dyn Error + Send + Sync>;

/// Makes the engines that a program lacks.
pub trait Specialise {
    /// An engine of a part of the model. `key` is the same for the same part in the same situation.
    ///
    /// # Errors
    ///
    /// If there is none, in words for the user.
    fn engine(&mut self, part: &Imported, key: &str) -> Result<Engine, SpecialiseError>;
}

/// Makes nothing: only what the program holds can run.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSpecialise;

impl Specialise for NoSpecialise {
    fn engine(&mut self, part: &Imported, _: &str) -> Result<Engine, SpecialiseError> {
        let inputs = part.inputs.iter().map(|(name, ty)| format!("`{name}`: {ty}"));
        let inputs = inputs.collect::<Vec<_>>().join(", ");
        Err(format!("the file has no engine for {inputs}, and this process has no compiler").into())
    }
}

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The model.
    #[error(transparent)]
    Model(#[from] ImportError),
    /// Too few inputs, or too many.
    #[error("the model takes {wanted} inputs, {given} were given")]
    InputCount {
        /// What it takes.
        wanted: usize,
        /// What was given.
        given: usize,
    },
    /// An input of another type.
    #[error("input `{name}` is {found}, the model takes {wanted}")]
    InputType {
        /// Name of the input.
        name: String,
        /// What was given.
        found: String,
        /// What it takes.
        wanted: String,
    },
    /// A shape that the program was not made for.
    #[error(transparent)]
    OutOfRange(Box<OutOfRange>),
    /// An engine cannot be made.
    #[error("no engine for nodes {nodes}: {source}")]
    Specialise {
        /// Of which part.
        nodes: String,
        /// Why.
        source: SpecialiseError,
    },
    /// An engine does not run.
    #[error("nodes {nodes}: {source}")]
    Engine {
        /// Of which part.
        nodes: String,
        /// Why.
        source: Box<crate::executor::RunError>,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A node that the host computes.
    #[error(transparent)]
    Host(Box<HostError>),
    /// Control flow that is not right.
    #[error("node `{node}`: {reason}")]
    Control {
        /// Its path.
        node: String,
        /// What is wrong.
        reason: String,
    },
}

/// What happened in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nodes that ran as an engine.
    Stage {
        /// Path of the graph; empty for the main one.
        graph: String,
        /// How many nodes.
        n_nodes: usize,
        /// Launches of its engine.
        n_launches: usize,
    },
    /// A node that the host computed or decided.
    Host {
        /// Path of the node.
        node: String,
        /// Its operator.
        op: String,
        /// Why it is not part of an engine.
        reason: String,
    },
}

/// A stage with its engine loaded.
struct Stage {
    part: PartOf,
    session: Option<crate::executor::Session>,
    used: u64,
}

/// A part without its graph, which is not needed once there is an engine.
struct PartOf {
    inputs: Vec<(String, Option<usize>)>,
    found: BTreeMap<String, Found>,
    done: Vec<usize>,
    stuck: Vec<(usize, String)>,
}

/// What a name stands for.
#[derive(Clone)]
struct Slot {
    value: HostValue,
    /// The same in every run of this situation.
    known: bool,
}

/// The names of one visit of a graph, and those around it.
struct Frame<'f> {
    parent: Option<&'f Frame<'f>>,
    slots: BTreeMap<String, Slot>,
}

impl Frame<'_> {
    fn find(&self, name: &str) -> Option<&Slot> {
        self.slots.get(name).or_else(|| self.parent.and_then(|parent| parent.find(name)))
    }
}

/// A graph, those around it, and its path.
#[derive(Clone, Copy)]
struct Place<'m> {
    graphs: &'m [&'m GraphProto],
    path: &'m str,
}

impl<'m> Place<'m> {
    fn graph(&self) -> &'m GraphProto {
        self.graphs.last().expect("there is a main graph")
    }

    fn path_of(&self, node: &NodeProto) -> String {
        match self.path.is_empty() {
            true => name_of(node),
            false => format!("{}/{}", self.path, name_of(node)),
        }
    }
}

type Open<'a> = Box<dyn Fn() -> Result<Box<dyn Device>, DeviceError> + 'a>;

/// A program, ready to run.
pub struct Session<'a> {
    program: Program,
    open: Open<'a>,
    specialise: Box<dyn Specialise + 'a>,
    stages: BTreeMap<String, Stage>,
    uses: BTreeMap<String, Rc<Vec<Vec<String>>>>,
    made: BTreeMap<String, Engine>,
    trace: Vec<Event>,
    clock: u64,
    depth: usize,
}

impl<'a> Session<'a> {
    /// A program whose engines run on devices that `open` opens; `specialise` makes the engines that it
    /// lacks.
    pub fn new(
        program: Program,
        open: impl Fn() -> Result<Box<dyn Device>, DeviceError> + 'a,
        specialise: impl Specialise + 'a,
    ) -> Self {
        Self {
            program,
            open: Box::new(open),
            specialise: Box::new(specialise),
            stages: BTreeMap::new(),
            uses: BTreeMap::new(),
            made: BTreeMap::new(),
            trace: Vec::new(),
            clock: 0,
            depth: 0,
        }
    }

    /// What the last run did, in order.
    pub fn trace(&self) -> &[Event] {
        &self.trace
    }

    /// Engines that were made by this session, by key.
    pub fn made(&self) -> &BTreeMap<String, Engine> {
        &self.made
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs the model on inputs in its order.
    ///
    /// # Errors
    ///
    /// If the inputs are not what the program takes, or a part of it does not run.
    pub fn run(&mut self, inputs: &[HostValue]) -> Result<Vec<HostValue>, RunError> {
        self.trace.clear();
        let model = self.program.model().clone();
        let ports = model.description().inputs;
        if ports.len() != inputs.len() {
            return Err(RunError::InputCount { wanted: ports.len(), given: inputs.len() });
        }
        let mut slots = BTreeMap::new();
        for (port, value) in ports.iter().zip(inputs) {
            let fits = match value {
                HostValue::Tensor(tensor) => port.dtype == Some(tensor.dtype),
                HostValue::Strings(_) => port.found == "a tensor of strings",
                HostValue::Sequence(_) => port.found == "a sequence",
            };
            let rank = port.shape.as_ref().zip(value.extents());
            if !fits || rank.is_some_and(|(shape, extents)| shape.rank() != extents.len()) {
                return Err(RunError::InputType {
                    name: port.name.clone(),
                    found: value.to_string(),
                    wanted: port.type_text(),
                });
            }
            let ranges = &self.program.manifest.ranges;
            if let (Some(range), Some(extents)) =
                (ranges.iter().find(|range| range.name == port.name), value.extents())
            {
                range.check(extents).map_err(|err| RunError::OutOfRange(Box::new(err)))?;
            }
            slots.insert(port.name.clone(), Slot { value: value.clone(), known: false });
        }
        // Extents that contradict the model or each other are its to name.
        let bound = ports.iter().zip(inputs).filter_map(|(port, value)| {
            Some((port.name.clone(), value.extents().filter(|_| port.dtype.is_some())?.to_vec()))
        });
        model.check_extents(&bound.collect())?;
        let place = Place { graphs: &[model.graph()], path: "" };
        self.walk(&model, place, Frame { parent: None, slots })
    }

    /// Visits a graph with its inputs in the frame; its outputs in order.
    fn walk(
        &mut self,
        model: &Model,
        place: Place<'_>,
        mut frame: Frame<'_>,
    ) -> Result<Vec<HostValue>, RunError> {
        if self.depth == MAX_DEPTH {
            let reason = format!("more than {MAX_DEPTH} graphs inside of each other");
            return Err(RunError::Control { node: place.path.to_owned(), reason });
        }
        self.depth += 1;
        let result = self.walk_inside(model, place, &mut frame);
        self.depth -= 1;
        result
    }

    fn walk_inside(
        &mut self,
        model: &Model,
        place: Place<'_>,
        frame: &mut Frame<'_>,
    ) -> Result<Vec<HostValue>, RunError> {
        let graph = place.graph();
        let uses = Rc::clone(
            self.uses.entry(place.path.to_owned()).or_insert_with(|| Rc::new(uses(graph))),
        );
        let mut left: Vec<usize> = (0..graph.node.len()).collect();
        while !left.is_empty() {
            let key = self.stage(model, place, frame, &uses, &left)?;
            let stuck = self.run_stage(&key, place, frame)?;
            let mut gone: BTreeSet<usize> = self.stages[&key].part.done.iter().copied().collect();
            for (node, reason) in stuck {
                self.host(model, place, frame, node, &uses[node], reason)?;
                gone.insert(node);
            }
            if gone.is_empty() {
                let names: Vec<String> =
                    left.iter().take(4).map(|&node| name_of(&graph.node[node])).collect();
                let reason = format!("nodes {} cannot be computed", names.join(", "));
                return Err(RunError::Control { node: place.path.to_owned(), reason });
            }
            left.retain(|node| !gone.contains(node));
        }
        let names = graph.output.iter().map(|info| info.name.as_deref().unwrap_or_default());
        names.map(|name| self.result(model, place, frame, name)).collect()
    }

    /// The value of an output of a graph: of a node, of a graph around it, or a constant.
    fn result(
        &self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        name: &str,
    ) -> Result<HostValue, RunError> {
        if let Some(slot) = frame.find(name) {
            return Ok(slot.value.clone());
        }
        let mut constants = place.graphs.iter().rev().flat_map(|graph| &graph.initializer);
        let Some(tensor) = constants.find(|tensor| tensor.name.as_deref() == Some(name)) else {
            let reason = format!("`{name}` is produced by nothing");
            return Err(RunError::Control { node: place.path.to_owned(), reason });
        };
        Ok(match host::strings_of(tensor) {
            Some(strings) => HostValue::Strings(strings),
            None => model.tensor(tensor)?.into(),
        })
    }

    /// Finds or makes the stage that comes next; its key.
    fn stage(
        &mut self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        uses: &[Vec<String>],
        left: &[usize],
    ) -> Result<String, RunError> {
        let outputs = place.graph().output.iter().filter_map(|info| info.name.as_deref());
        let read: BTreeSet<&str> =
            left.iter().flat_map(|&node| &uses[node]).map(String::as_str).chain(outputs).collect();
        let mut bound = BTreeMap::new();
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{}\n{left:?}", place.path).as_bytes());
        for name in read {
            let Some(slot) = frame.find(name) else { continue };
            let is = match (&slot.value, slot.known) {
                (HostValue::Tensor(tensor), true) => Bound::Constant(tensor.clone()),
                (HostValue::Tensor(tensor), false) => Bound::Tensor(tensor.ty()),
                (HostValue::Strings(_), _) => Bound::Foreign("a tensor of strings".into()),
                // Its length differs from visit to visit: what works with it is the host's.
                (HostValue::Sequence(_), _) => Bound::Foreign("a sequence".into()),
            };
            match &is {
                Bound::Foreign(what) => hasher.update(format!("\n{name}={what}").as_bytes()),
                _ => hasher.update(format!("\n{name}={}", slot.value).as_bytes()),
            };
            if let Bound::Constant(tensor) = &is {
                hasher.update(b" = ").update(&tensor.bytes);
            }
            bound.insert(name.to_owned(), is);
        }
        let key = hasher.finalize().to_hex()[..32].to_owned();
        self.clock += 1;
        if let Some(stage) = self.stages.get_mut(&key) {
            stage.used = self.clock;
            return Ok(key);
        }
        let request =
            Request { graphs: place.graphs, path: place.path, nodes: left, bound: &bound };
        let Part { imported, inputs, found, done, stuck } = import_part(model, &request)?;
        let session = match imported.outputs.is_empty() {
            true => None,
            false => Some(self.load(place, &imported, &done, &key)?),
        };
        let stuck = stuck.into_iter().map(|it| {
            let reasons: Vec<String> = it.reasons.iter().map(|it| it.reason.clone()).collect();
            (it.node, reasons.join("; "))
        });
        let part = PartOf { inputs, found, done, stuck: stuck.collect() };
        if self.stages.values().filter(|stage| stage.session.is_some()).count() >= MAX_SESSIONS {
            let loaded = self.stages.iter().filter(|(_, stage)| stage.session.is_some());
            let oldest = loaded.min_by_key(|(_, stage)| stage.used);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|key| self.stages.remove(&key));
        }
        self.stages.insert(key.clone(), Stage { part, session, used: self.clock });
        Ok(key)
    }

    /// An engine of a part on a device of its own.
    fn load(
        &mut self,
        place: Place<'_>,
        imported: &Imported,
        done: &[usize],
        key: &str,
    ) -> Result<crate::executor::Session, RunError> {
        let engine = match (self.program.engine(key), self.made.get(key)) {
            (Some(engine), _) => engine,
            (None, Some(engine)) => engine.clone(),
            (None, None) => {
                let made = self.specialise.engine(imported, key);
                let engine = made
                    .map_err(|source| RunError::Specialise { nodes: names(place, done), source })?;
                self.made.insert(key.to_owned(), engine.clone());
                engine
            }
        };
        Ok(crate::executor::Session::new((self.open)()?, &engine)?)
    }

    /// Runs a stage: its results are in the frame afterwards. Which nodes are the host's, and why.
    fn run_stage(
        &mut self,
        key: &str,
        place: Place<'_>,
        frame: &mut Frame<'_>,
    ) -> Result<Vec<(usize, String)>, RunError> {
        let stage = self.stages.get_mut(key).expect("it was just found or made");
        let part = &stage.part;
        let bound = |name: &str, _: Option<usize>| {
            frame.find(name).expect("bound names are in the frame").value.clone()
        };
        let mut outputs = Vec::new();
        let mut n_launches = 0;
        if let Some(session) = &mut stage.session {
            let mut inputs = Vec::with_capacity(part.inputs.len());
            for (name, at) in &part.inputs {
                match (bound(name, *at), at) {
                    (HostValue::Tensor(tensor), None) => inputs.push(tensor),
                    _ => unreachable!("only tensors are bound as inputs of a stage"),
                }
            }
            n_launches = session.n_launches();
            outputs = session.run(&inputs).map_err(|source| RunError::Engine {
                nodes: names(place, &part.done),
                source: Box::new(source),
            })?;
        }
        let mut results = Vec::with_capacity(part.found.len());
        for (name, found) in &part.found {
            let known = found.is_constant();
            let value = value_of(found, &outputs, &bound);
            // What is passed on is known if it was.
            let known = match found {
                Found::Bound(from, _) => frame.find(from).is_some_and(|slot| slot.known),
                _ => known,
            };
            results.push((name.clone(), Slot { value, known }));
        }
        if n_launches > 0 {
            let (graph, n_nodes) = (place.path.to_owned(), part.done.len());
            self.trace.push(Event::Stage { graph, n_nodes, n_launches });
        }
        frame.slots.extend(results);
        Ok(part.stuck.clone())
    }

    /// Does a node on the host.
    fn host(
        &mut self,
        model: &Model,
        place: Place<'_>,
        frame: &mut Frame<'_>,
        node: usize,
        reads: &[String],
        reason: String,
    ) -> Result<(), RunError> {
        let message = &place.graph().node[node];
        let op = message.op_type.clone().unwrap_or_default();
        self.trace.push(Event::Host { node: place.path_of(message), op: op.clone(), reason });
        let is_standard = message.domain.as_deref().unwrap_or_default().is_empty()
            || message.domain.as_deref() == Some("ai.onnx");
        let results: Vec<HostValue> = match op.as_str() {
            "If" if is_standard => self.branch(model, place, frame, message)?,
            "Loop" if is_standard => self.repeat(model, place, frame, message)?,
            _ => {
                let mut operands = BTreeMap::new();
                for name in reads {
                    if let Some(slot) = frame.find(name) {
                        operands.insert(name.clone(), slot.value.clone());
                    } else if let Ok(HostValue::Strings(strings)) =
                        self.result(model, place, frame, name)
                    {
                        operands.insert(name.clone(), HostValue::Strings(strings));
                    }
                }
                let results = host::run(model, place.graphs, place.path, node, &operands)
                    .map_err(|err| RunError::Host(Box::new(err)))?;
                let slots = results.into_iter();
                frame.slots.extend(slots.map(|(name, value)| (name, Slot { value, known: false })));
                return Ok(());
            }
        };
        for (name, value) in message.output.iter().zip(results) {
            if !name.is_empty() {
                frame.slots.insert(name.clone(), Slot { value, known: false });
            }
        }
        Ok(())
    }

    fn operand(
        &self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        node: &NodeProto,
        index: usize,
    ) -> Result<Option<HostValue>, RunError> {
        match node.input.get(index).filter(|name| !name.is_empty()) {
            Some(name) => self.result(model, place, frame, name).map(Some),
            None => Ok(None),
        }
    }

    /// A number that decides.
    fn scalar(
        &self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        node: &NodeProto,
        index: usize,
    ) -> Result<Option<i64>, RunError> {
        let Some(value) = self.operand(model, place, frame, node, index)? else { return Ok(None) };
        let number =
            value.tensor().filter(|tensor| tensor.n_elems() == 1 && !tensor.dtype.is_float());
        match number {
            Some(tensor) => Ok(tensor.to_i64().first().copied()),
            None => Err(RunError::Control {
                node: place.path_of(node),
                reason: format!("operand {index} is {value}, expected one number or boolean"),
            }),
        }
    }

    fn branch(
        &mut self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        node: &NodeProto,
    ) -> Result<Vec<HostValue>, RunError> {
        let condition = self.scalar(model, place, frame, node, 0)?.unwrap_or(0) != 0;
        let which = if condition { "then" } else { "else" };
        let graph = subgraph(place, node, &format!("{which}_branch"))?;
        let path = format!("{}/{which}", place.path_of(node));
        let graphs: Vec<&GraphProto> = place.graphs.iter().copied().chain([graph]).collect();
        let inside = Frame { parent: Some(frame), slots: BTreeMap::new() };
        self.walk(model, Place { graphs: &graphs, path: &path }, inside)
    }

    fn repeat(
        &mut self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        node: &NodeProto,
    ) -> Result<Vec<HostValue>, RunError> {
        let wrong = |reason: String| RunError::Control { node: place.path_of(node), reason };
        let trips = self.scalar(model, place, frame, node, 0)?;
        let mut go_on = self.scalar(model, place, frame, node, 1)?.unwrap_or(1) != 0;
        let body = subgraph(place, node, "body")?;
        let mut state = Vec::new();
        for index in 2..node.input.len() {
            let value = self.operand(model, place, frame, node, index)?;
            state.push(value.ok_or_else(|| wrong(format!("operand {index} is missing")))?);
        }
        let n_states = state.len();
        if body.input.len() != n_states + 2 || body.output.len() < n_states + 1 {
            let (inputs, outputs) = (body.input.len(), body.output.len());
            return Err(wrong(format!(
                "its body has {inputs} inputs and {outputs} outputs for {n_states} states"
            )));
        }
        let mut scans: Vec<Vec<Tensor>> = vec![Vec::new(); body.output.len() - n_states - 1];
        let path = format!("{}/body", place.path_of(node));
        let graphs: Vec<&GraphProto> = place.graphs.iter().copied().chain([body]).collect();
        let mut trip = 0;
        while trips.is_none_or(|trips| trip < trips) && go_on {
            if trip == MAX_TRIPS {
                return Err(wrong(format!("its loop did not end after {MAX_TRIPS} iterations")));
            }
            let condition = Tensor::from_i64(DType::Bool, &[], &[1]);
            let mut values = vec![Tensor::i64(&[], &[trip]).into(), condition.into()];
            values.append(&mut state);
            let names = body.input.iter().map(|info| info.name.clone().unwrap_or_default());
            let slots = names.zip(values).map(|(name, value)| (name, Slot { value, known: false }));
            let inside = Frame { parent: Some(frame), slots: slots.collect() };
            let results = self.walk(model, Place { graphs: &graphs, path: &path }, inside)?;
            let mut results = results.into_iter();
            let condition = results.next();
            let condition = condition.as_ref().and_then(HostValue::tensor);
            let condition = condition.filter(|it| it.n_elems() == 1 && !it.dtype.is_float());
            let condition = condition.ok_or_else(|| wrong("its condition is no boolean".into()))?;
            go_on = condition.to_i64().first() != Some(&0);
            state = results.by_ref().take(n_states).collect();
            for (scan, value) in scans.iter_mut().zip(results) {
                match value {
                    HostValue::Tensor(tensor) => scan.push(tensor),
                    other => return Err(wrong(format!("it collects {other}"))),
                }
            }
            trip += 1;
        }
        for scan in scans {
            state.push(stack(&scan).map_err(wrong)?.into());
        }
        Ok(state)
    }
}

fn subgraph<'m>(
    place: Place<'_>,
    node: &'m NodeProto,
    name: &str,
) -> Result<&'m GraphProto, RunError> {
    attribute(node, name).and_then(|attr| attr.g.as_ref()).ok_or_else(|| RunError::Control {
        node: place.path_of(node),
        reason: format!("it has no graph `{name}`"),
    })
}

/// Slices of a loop along a new first axis.
fn stack(slices: &[Tensor]) -> Result<Tensor, String> {
    let Some(first) = slices.first() else {
        return Err("it ran 0 times and collects slices, whose shape nobody knows".into());
    };
    if let Some(other) = slices.iter().find(|slice| slice.ty() != first.ty()) {
        return Err(format!("it collects {} and {}", first.ty(), other.ty()));
    }
    let extents: Vec<usize> =
        [slices.len()].into_iter().chain(first.extents.iter().copied()).collect();
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.bytes.iter().copied()).collect();
    Ok(Tensor::new(first.dtype, &extents, bytes))
}

/// Nodes in words.
fn names(place: Place<'_>, nodes: &[usize]) -> String {
    let name = |&node: &usize| format!("`{}`", place.path_of(&place.graph().node[node]));
    let some: Vec<String> = nodes.iter().take(3).map(name).collect();
    match nodes.len() {
        0..=3 => some.join(", "),
        n => format!("{} and {} more", some.join(", "), n - 3),
    }
}
