//! The walk over a program's graphs.
//!
//! Invariants: a node is done once in each visit of its graph; a stage's engine depends on the shapes and
//! the known constants of the names that it reads, and on nothing else, so that the same situation finds the
//! same engine again.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::rc::Rc;

use eggine_ir::onnx::part::{
    Bound, Found, Model, NOTHING, Part, Request, import_part, name_of, uses,
};
use eggine_ir::onnx::proto::{GraphProto, NodeProto, TypeProto};
use eggine_ir::onnx::{ImportError, Imported};
use eggine_ir::{DType, Tensor};

use super::file::Program;
use super::host::{self, HostError, value_of};
use super::observe::{Iteration, Observer, StageRun, Step, Visit};
use super::range::OutOfRange;
use super::trace::{Event, Trace};
use super::value::{HostValue, fits};
use super::wide::{Situation, WideEngines, WideStage};
use crate::device::{Device, DeviceError};
use crate::engine::Engine;
use crate::plan::IoSpec;

/// Subgraphs in subgraphs beyond this are a cycle.
const MAX_DEPTH: usize = 64;

/// Engines kept ready; of more, the one that was not used for the longest time goes.
const MAX_SESSIONS: usize = 64;

/// Shapes that are kept in mind; of more, as above. Where one engine serves a range they are cheap to find
/// again, but a cache that grows goes through thousands.
const MAX_STAGES: usize = 512;

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

/// What computes a stage.
enum Runner {
    /// There is nothing to compute, or an observer does it.
    None,
    /// An engine of just these shapes.
    Own(Box<crate::executor::Session>),
    /// An engine that serves a range.
    Wide(WideStage),
}

/// A stage with its engine loaded.
struct Stage {
    part: PartOf,
    runner: Runner,
    used: u64,
    /// What an observer is shown.
    shown: Option<(Imported, Option<Engine>)>,
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
pub(super) struct Slot {
    pub(super) value: HostValue,
    /// The same in every run of this situation.
    pub(super) known: bool,
}

/// The names of one visit of a graph, and those around it.
pub(super) struct Frame<'f> {
    pub(super) parent: Option<&'f Frame<'f>>,
    pub(super) slots: BTreeMap<String, Slot>,
}

impl Frame<'_> {
    pub(super) fn find(&self, name: &str) -> Option<&Slot> {
        self.slots.get(name).or_else(|| self.parent.and_then(|parent| parent.find(name)))
    }
}

/// A graph, those around it, and its path.
#[derive(Clone, Copy)]
pub(super) struct Place<'m> {
    pub(super) graphs: &'m [&'m GraphProto],
    pub(super) path: &'m str,
}

impl<'m> Place<'m> {
    fn graph(&self) -> &'m GraphProto {
        self.graphs.last().expect("there is a main graph")
    }

    pub(super) fn path_of(&self, node: &NodeProto) -> String {
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
    trace: Trace,
    wide: WideEngines,
    situations: Option<Vec<Situation>>,
    observer: Option<&'a mut dyn Observer>,
    pub(super) iterations: Vec<Iteration>,
    pub(super) functions: BTreeMap<String, Rc<Model>>,
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
            trace: Trace::default(),
            wide: WideEngines::default(),
            situations: None,
            observer: None,
            iterations: Vec::new(),
            functions: BTreeMap::new(),
            clock: 0,
            depth: 0,
        }
    }

    /// As [`new`](Self::new), with someone who looks at each run and computes its stages.
    pub fn observed(mut self, observer: &'a mut dyn Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// As [`new`](Self::new), and notes the parts of the model that its runs come to.
    pub fn noting(mut self) -> Self {
        self.situations = Some(Vec::new());
        self
    }

    /// The parts that runs came to, each at the shapes of its first visit, if they were to be noted.
    pub fn situations(&self) -> &[Situation] {
        self.situations.as_deref().unwrap_or_default()
    }

    /// What the last run did.
    pub fn trace(&self) -> &Trace {
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
        let types: BTreeMap<&str, &TypeProto> = (model.graph().input.iter())
            .filter_map(|info| Some((info.name.as_deref()?, info.r#type.as_ref()?)))
            .collect();
        let mut slots = BTreeMap::new();
        for (port, value) in ports.iter().zip(inputs) {
            let fits = types.get(port.name.as_str()).is_some_and(|ty| fits(ty, value));
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
    pub(super) fn walk(
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
    pub(super) fn result(
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
        // The same without extents.
        let mut family = hasher.clone();
        for name in read {
            let Some(slot) = frame.find(name) else { continue };
            let is = match (&slot.value, slot.known) {
                (HostValue::Tensor(tensor), true) => Bound::Constant(tensor.clone()),
                (HostValue::Tensor(tensor), false) => Bound::Tensor(tensor.ty()),
                (HostValue::Strings(_), _) => Bound::Foreign("a tensor of strings".into()),
                // Its length differs from visit to visit: what works with it is the host's.
                (HostValue::Sequence(_), _) => Bound::Foreign("a sequence".into()),
                (HostValue::Nothing, _) => Bound::Foreign(NOTHING.into()),
            };
            match &is {
                Bound::Foreign(what) => hasher.update(format!("\n{name}={what}").as_bytes()),
                _ => hasher.update(format!("\n{name}={}", slot.value).as_bytes()),
            };
            let whatever = match &is {
                Bound::Foreign(what) => what.clone(),
                Bound::Tensor(ty) => format!("{} of rank {}", ty.dtype, ty.shape.rank()),
                _ => slot.value.to_string(),
            };
            family.update(format!("\n{name}={whatever}").as_bytes());
            if let Bound::Constant(tensor) = &is {
                hasher.update(b" = ").update(&tensor.bytes);
                family.update(b" = ").update(&tensor.bytes);
            }
            bound.insert(name.to_owned(), is);
        }
        let key = hasher.finalize().to_hex()[..32].to_owned();
        let family = family.finalize().to_hex()[..32].to_owned();
        self.clock += 1;
        if let Some(stage) = self.stages.get_mut(&key) {
            stage.used = self.clock;
            return Ok(key);
        }
        let request =
            Request { graphs: place.graphs, path: place.path, nodes: left, bound: &bound };
        let Part { imported, inputs, found, done, stuck } = import_part(model, &request)?;
        let is_wanted = self.observer.as_ref().is_none_or(|it| it.wants_engines());
        if !imported.outputs.is_empty() {
            self.note(&family, &bound, &imported);
        }
        let runner = match imported.outputs.is_empty() || !is_wanted {
            true => Runner::None,
            false => self.runner(model, place, &request, (&imported, &done), (&key, &family))?,
        };
        let shown = (self.observer.is_some() && !imported.outputs.is_empty()).then(|| {
            let engine = self.program.engine(&key).or_else(|| self.made.get(&key).cloned());
            (imported, engine)
        });
        let stuck = stuck.into_iter().map(|it| {
            let reasons: Vec<String> = it.reasons.iter().map(|it| it.reason.clone()).collect();
            // Without a reason it would be imported, but to nothing that an engine has.
            match reasons.is_empty() {
                true => (it.node, "it passes on what is no tensor of numbers".to_owned()),
                false => (it.node, reasons.join("; ")),
            }
        });
        let part = PartOf { inputs, found, done, stuck: stuck.collect() };
        let is_loaded = |stage: &Stage| matches!(stage.runner, Runner::Own(_));
        if self.stages.values().filter(|stage| is_loaded(stage)).count() >= MAX_SESSIONS {
            self.forget(is_loaded);
        }
        if self.stages.len() >= MAX_STAGES {
            self.forget(|_| true);
        }
        self.stages.insert(key.clone(), Stage { part, runner, used: self.clock, shown });
        Ok(key)
    }

    /// Lets go of the stage, of those that `may` go, that was not used for the longest time.
    fn forget(&mut self, may: impl Fn(&Stage) -> bool) {
        let old = self.stages.iter().filter(|(_, stage)| may(stage));
        let oldest = old.min_by_key(|(_, stage)| stage.used).map(|(key, _)| key.clone());
        oldest.and_then(|key| self.stages.remove(&key));
    }

    fn note(&mut self, family: &str, bound: &BTreeMap<String, Bound>, imported: &Imported) {
        let Some(situations) = &mut self.situations else { return };
        if situations.iter().any(|known| known.family == family) {
            return;
        }
        let types = bound.iter().filter_map(|(name, bound)| match bound {
            Bound::Tensor(ty) => {
                Some(IoSpec { name: name.clone(), dtype: ty.dtype, extents: ty.extents() })
            }
            _ => None,
        });
        let (family, types) = (family.to_owned(), types.collect());
        situations.push(Situation { family, types, part: imported.clone() });
    }

    /// What computes a part: its own engine if there is one, else one that serves these shapes, too, else
    /// one that is made now.
    fn runner(
        &mut self,
        model: &Model,
        place: Place<'_>,
        request: &Request<'_>,
        (imported, done): (&Imported, &[usize]),
        (key, family): (&str, &str),
    ) -> Result<Runner, RunError> {
        let has_own = self.program.engine(key).is_some() || self.made.contains_key(key);
        // An observer looks into engines, which are then of the very shapes.
        if !has_own && self.observer.is_none() {
            let (part, open) = ((model, request), &self.open);
            let found = self.wide.find(&self.program, part, family, &imported.graph, open)?;
            if let Some(stage) = found {
                return Ok(Runner::Wide(stage));
            }
        }
        Ok(Runner::Own(Box::new(self.load(place, imported, done, key)?)))
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
        if !matches!(stage.runner, Runner::None) || stage.shown.is_some() {
            let mut inputs = Vec::with_capacity(part.inputs.len());
            for (name, at) in &part.inputs {
                match (bound(name, *at), at) {
                    (HostValue::Tensor(tensor), None) => inputs.push(tensor),
                    _ => unreachable!("only tensors are bound as inputs of a stage"),
                }
            }
            n_launches = match &stage.runner {
                Runner::None => 0,
                Runner::Own(session) => session.n_launches(),
                Runner::Wide(wide) => self.wide.n_launches(wide),
            };
            let ran = match (&mut self.observer, &stage.shown, &mut stage.runner) {
                (Some(observer), Some((imported, engine)), runner) => {
                    let visit = Visit { graph: place.path, iterations: &self.iterations };
                    let session = match runner {
                        Runner::Own(session) => Some(&mut **session),
                        Runner::None | Runner::Wide(_) => None,
                    };
                    let engine = engine.as_ref().zip(session);
                    observer.stage(StageRun { visit, part: imported, inputs: &inputs, engine })
                }
                (_, _, Runner::Own(session)) => session.run(&inputs),
                (_, _, Runner::Wide(wide)) => self.wide.run(wide, &inputs),
                (_, _, Runner::None) => unreachable!("a stage without an engine is shown"),
            };
            outputs = ran.map_err(|source| RunError::Engine {
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
        if let (Some(observer), true) = (&mut self.observer, stage.shown.is_some()) {
            let visit = Visit { graph: place.path, iterations: &self.iterations };
            let values = results.iter().map(|(name, slot)| (name.as_str(), &slot.value)).collect();
            observer.step(Step { visit, node: names(place, &part.done), op: "", values });
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
        let results: Vec<(String, HostValue)> =
            match (self.function(model, place, message), op.as_str()) {
                (Some(function), _) => {
                    named(message, self.call(&function, model, place, frame, message)?)
                }
                (None, "If") if is_standard => {
                    named(message, self.branch(model, place, frame, message)?)
                }
                (None, "Loop") if is_standard => {
                    named(message, self.repeat(model, place, frame, message)?)
                }
                (None, "Scan") if is_standard => {
                    named(message, self.scan(model, place, frame, message)?)
                }
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
                    host::run(model, place.graphs, place.path, node, &operands)
                        .map_err(|err| RunError::Host(Box::new(err)))?
                        .into_iter()
                        .collect()
                }
            };
        if let Some(observer) = &mut self.observer {
            let visit = Visit { graph: place.path, iterations: &self.iterations };
            let values = results.iter().map(|(name, value)| (name.as_str(), value)).collect();
            observer.step(Step { visit, node: place.path_of(message), op: &op, values });
        }
        let slots = results.into_iter();
        frame.slots.extend(slots.map(|(name, value)| (name, Slot { value, known: false })));
        Ok(())
    }

    /// Shows what a branch or a loop decided.
    pub(super) fn decided(&mut self, place: Place<'_>, node: &NodeProto, condition: bool) {
        let Some(observer) = &mut self.observer else { return };
        let value = Tensor::from_i64(DType::Bool, &[], &[i64::from(condition)]).into();
        let visit = Visit { graph: place.path, iterations: &self.iterations };
        let op = node.op_type.as_deref().unwrap_or_default();
        let values = vec![("condition", &value)];
        observer.step(Step { visit, node: place.path_of(node), op, values });
    }
}

/// Results of a node with their names; those without one are not wanted.
fn named(node: &NodeProto, values: Vec<HostValue>) -> Vec<(String, HostValue)> {
    let all = node.output.iter().cloned().zip(values);
    all.filter(|(name, _)| !name.is_empty()).collect()
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
