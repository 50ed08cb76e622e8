//! `eggine compare PROGRAM --against …`: a program beside a reference, and where they differ, the first place.
//!
//! The oracle's run walks the same graphs and computes every stage with the reference evaluator. Each stage of
//! the program is held against the oracle's values on the inputs that the stage itself got, launch by launch:
//! an error is named where it arises, not where it arrives. What arrives is told too: the first result of a
//! stage or a host step, and the first decision, that is another one than in the oracle's run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use eggine::ir::graph::eval::{Rounding, eval};
use eggine::ir::onnx::Port;
use eggine::ir::onnx::part::Model;
use eggine::runtime::RunError;
use eggine::runtime::compare::{Comparison, OutputComparison};
use eggine::runtime::program::{
    HostValue, Observer, Program, ProgramManifest, Session, StageRun, Step,
};
use eggine::search::{Budget, Job, Specialiser};
use eggine::{Case, Tensor};
use serde::Serialize;

use super::model::{
    LaunchFound, Layer, NodeFound, difference, layers, locate_launch, locate_node, onnxruntime,
    over, print_launch, print_node,
};
use super::{Against, Args};
use crate::cli::CliError;
use crate::cli::program::{compare_values, drawn};

static NEVER: AtomicBool = AtomicBool::new(false);

/// What is said of a comparison with a reference.
#[derive(Debug, Default, Serialize)]
struct Found {
    against: &'static str,
    agrees: bool,
    outputs: Vec<OutputComparison>,
    /// Why the program did not run to its end.
    error: Option<String>,
    /// Stages that were compared, with the launches of their engines, and how many of these wrote something
    /// that can be held against a node's value.
    n_stages: usize,
    n_launches: usize,
    n_compared: usize,
    /// The first launch that wrote something over budget, on the inputs that its stage got.
    launch: Option<LaunchFound>,
    /// The first result or decision that is not that of the oracle's run.
    arrived: Option<ArrivedFound>,
    /// Whether engines of just these shapes are right where those that serve a range are not.
    only_wide: bool,
    /// The first node whose value is another one in the reference than in the oracle.
    reference: Option<NodeFound>,
}

#[derive(Debug, Serialize)]
struct ArrivedFound {
    place: String,
    node: String,
    op: String,
    value: String,
    difference: OutputComparison,
}

/// A step of the oracle's run.
struct Recorded {
    place: String,
    node: String,
    op: String,
    values: Vec<(String, HostValue)>,
}

/// Computes stages with the reference evaluator, and writes down what happens.
struct Oracle {
    steps: Vec<Recorded>,
    /// Whether the values of all nodes of the main graph are wanted.
    wants_layers: bool,
    layers: Vec<Layer>,
    values: BTreeMap<String, HostValue>,
}

impl Observer for Oracle {
    fn wants_engines(&self) -> bool {
        false
    }

    fn stage(&mut self, run: StageRun<'_>) -> Result<Vec<Tensor>, RunError> {
        if self.wants_layers && run.visit.graph.is_empty() {
            self.layers.extend(layers(run.part, run.inputs));
        }
        let outputs = eval(&run.part.graph, run.inputs, Rounding::None);
        Ok(outputs.iter().map(|array| array.to_tensor()).collect())
    }

    fn step(&mut self, step: Step<'_>) {
        let own = |(name, value): &(&str, &HostValue)| ((*name).to_owned(), (*value).clone());
        let values: Vec<(String, HostValue)> = step.values.iter().map(own).collect();
        if self.wants_layers && step.visit.graph.is_empty() {
            self.values.extend(values.iter().cloned());
        }
        self.steps.push(Recorded {
            place: step.visit.to_string(),
            node: step.node,
            op: step.op.to_owned(),
            values,
        });
    }
}

/// Runs engines launch by launch and holds everything against the oracle.
struct Watcher<'a> {
    oracle: &'a [Recorded],
    tolerance: f64,
    next: usize,
    found: Found,
}

impl Observer for Watcher<'_> {
    fn stage(&mut self, run: StageRun<'_>) -> Result<Vec<Tensor>, RunError> {
        let (engine, session) = run.engine.expect("engines are wanted");
        if self.found.launch.is_some() {
            return session.run(run.inputs);
        }
        let layers = layers(run.part, run.inputs);
        let located = locate_launch(engine, session, run.inputs, &layers, self.tolerance)?;
        self.found.n_stages += 1;
        self.found.n_launches += engine.plan.steps.len();
        self.found.n_compared += located.n_compared;
        // Inside of a stage whose results are right a launch may write what no node has: a sum in another
        // form, a gate that is not yet complete.
        let want = eval(&run.part.graph, run.inputs, Rounding::None);
        let is_off = located
            .outputs
            .iter()
            .zip(&want)
            .any(|(got, want)| !difference("", got, &want.to_tensor(), self.tolerance).agrees);
        self.found.launch = located.first.filter(|_| is_off).map(|mut launch| {
            launch.place = Some(run.visit.to_string());
            launch
        });
        Ok(located.outputs)
    }

    fn step(&mut self, step: Step<'_>) {
        if self.found.arrived.is_some() {
            return;
        }
        let place = step.visit.to_string();
        let oracle = self.oracle.get(self.next);
        self.next += 1;
        let same = oracle.filter(|it| {
            it.place == place && it.node == step.node && it.values.len() == step.values.len()
        });
        // After a decision that differs the runs have nothing in common; it was found before.
        let Some(oracle) = same else { return };
        for ((name, got), (_, want)) in step.values.iter().zip(&oracle.values) {
            let all = compare_values(name, got, Some(want), self.tolerance);
            if let Some(difference) = all.into_iter().find(|it| !it.agrees) {
                self.found.arrived = Some(ArrivedFound {
                    place,
                    node: oracle.node.clone(),
                    op: oracle.op.clone(),
                    value: (*name).to_owned(),
                    difference,
                });
                return;
            }
        }
    }
}

/// A session that makes the engines that the program lacks.
fn session<'a>(program: &Program, args: &'a Args) -> Session<'a> {
    let mut job = Job::new(Path::new("part"));
    if !program.manifest.target.is_empty() {
        job.target = program.manifest.target.clone();
    }
    job.budget = Budget::First;
    job.seed = args.seed;
    job.device = args.device.device;
    job.fast_math = program.manifest.options.get("fast_math").is_some_and(|it| it == "true");
    let specialiser = Specialiser::for_program(job, program, &NEVER);
    Session::new(program.clone(), || args.device.open(), specialiser)
}

fn inputs(args: &Args, model: &Model) -> Result<Vec<HostValue>, CliError> {
    let ports = model.description().inputs;
    if let Some(file) = &args.case {
        let case = Case::read(file)?;
        let values = ports.iter().enumerate().map(|(n, port)| case.input_port(n, port));
        return Ok(values.collect::<Result<_, _>>()?);
    }
    let shapes = args.shapes.iter().cloned().collect();
    ports.iter().map(|port| drawn(port, &shapes, args.seed)).collect()
}

/// Compares a program, or without one the model as a program. `program` is what is compared; its engines run
/// the model that the command names.
pub(super) fn run(
    args: &Args,
    against: Against,
    program: Option<Program>,
) -> Result<ExitCode, CliError> {
    let folder = tempfile::tempdir()?;
    let mut program = match program {
        Some(program) if args.with.is_none() => program,
        other => {
            let mut named = Program::new(Model::open(&args.engine)?, ProgramManifest::default());
            if let Some(other) = other {
                named.manifest = other.manifest.clone();
                named.extend(other.engines().clone());
            }
            named
        }
    };
    let model = program.model().clone();
    let inputs = inputs(args, &model)?;
    let mut first = session(&program, args);
    let ran = first.run(&inputs);
    program.extend(first.made().clone());
    drop(first);

    let wants_layers = against == Against::Ort;
    let (steps, values) = (Vec::new(), BTreeMap::new());
    let mut oracle = Oracle { steps, wants_layers, layers: Vec::new(), values };
    let expected = session(&program, args).observed(&mut oracle).run(&inputs)?;
    let file = folder.path().join("model.onnx");
    let expected: Vec<Option<HostValue>> = match against {
        Against::Oracle => expected.into_iter().map(Some).collect(),
        Against::Ort => {
            std::fs::write(&file, model.to_bytes()?)?;
            onnxruntime(args, &file, &inputs, model.description().outputs.len(), folder.path())?
        }
    };
    let mut found = Found { against: against.name(), ..Found::default() };
    let ports = model.description().outputs;
    let compared = |values: &[HostValue]| -> Vec<OutputComparison> {
        let all = ports.iter().zip(values).zip(&expected);
        let of = |((port, got), want): ((&Port, &HostValue), &Option<HostValue>)| {
            let want = want.as_ref().unwrap_or(&HostValue::Nothing);
            compare_values(&port.name, got, Some(want), args.rel_tol)
        };
        all.flat_map(of).collect()
    };
    match &ran {
        Ok(values) => found.outputs = compared(values),
        Err(err) => found.error = Some(err.to_string()),
    }
    found.agrees = found.error.is_none() && found.outputs.iter().all(|it| it.agrees);
    if !found.agrees || args.layers {
        let tolerance = args.rel_tol;
        let mut watcher = Watcher { oracle: &oracle.steps, tolerance, next: 0, found };
        // A run that fails was seen to fail above; what was found until then counts.
        let observed = session(&program, args).observed(&mut watcher).run(&inputs);
        found = watcher.found;
        let is_right = |values: &Vec<HostValue>| compared(values).iter().all(|it| it.agrees);
        found.only_wide = !found.agrees && observed.as_ref().is_ok_and(is_right);
        if against == Against::Ort {
            let known = (oracle.layers.as_slice(), &oracle.values);
            found.reference = locate_node(args, &model, &inputs, folder.path(), known)?;
        }
    }
    match args.json {
        true => crate::cli::print_json(&found)?,
        false => print(args, &found),
    }
    Ok(if found.agrees { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print(args: &Args, found: &Found) {
    super::print_outputs(&Comparison { agrees: found.agrees, outputs: found.outputs.clone() });
    if let Some(err) = &found.error {
        println!("the program does not run to its end: {err}");
    }
    if found.n_stages > 0 {
        println!(
            "{} of {} launches in {} stages wrote what can be held against a node's value",
            found.n_compared, found.n_launches, found.n_stages
        );
    }
    match &found.launch {
        Some(it) => print_launch(it),
        None if found.only_wide => {
            println!("engines of just these shapes are right: those that serve the range are not");
        }
        None if !found.agrees => {
            println!("no launch is over budget on the inputs that its stage got");
        }
        None if args.layers => println!("no launch is over budget"),
        None => (),
    }
    if let Some(it) = &found.arrived {
        let what = match it.op.as_str() {
            "" => format!("an engine of nodes {}", it.node),
            op => format!("node `{}` ({op})", it.node),
        };
        println!(
            "first that is not as in the oracle's run: `{}` of {what} in {}, {}",
            it.value,
            it.place,
            over(&it.difference)
        );
    }
    if let Some(it) = &found.reference {
        print_node(it);
    }
}
