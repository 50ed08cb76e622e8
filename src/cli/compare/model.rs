//! `eggine compare MODEL --against …`: a model, compiled as it is, beside a reference; and where they differ,
//! the first place. Nothing is compiled differently for it: what the launches of the very engine wrote is
//! compared with the oracle's values of the nodes that they compute.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;

use eggine::ir::graph::eval::{Rounding, eval};
use eggine::ir::onnx::part::{Model, name_of};
use eggine::ir::onnx::proto::{ModelProto, ValueInfoProto};
use eggine::ir::onnx::{ImportOptions, Imported, import};
use eggine::ir::{NodeKind, Region};
use eggine::runtime::case::{Expected, write_values};
use eggine::runtime::compare::{Comparison, OutputComparison};
use eggine::runtime::plan::Step;
use eggine::runtime::program::HostValue;
use eggine::runtime::{IoSpec, RunError, Session};
use eggine::search::{Job, compile, random_input};
use eggine::{Case, Engine, Tensor, compare_outputs};
use prost::Message as _;
use serde::Serialize;

use super::{Against, Args};
use crate::cli::CliError;

const SCRIPT: &str = include_str!("reference.py");

/// What is said of a comparison with a reference.
#[derive(Debug, Serialize)]
struct Found {
    against: &'static str,
    agrees: bool,
    outputs: Vec<OutputComparison>,
    /// Launches of the engine, and how many wrote something that can be held against a node's value.
    n_launches: usize,
    n_compared: usize,
    /// The first launch that wrote something over budget.
    launch: Option<LaunchFound>,
    /// The first node whose value is another one in the reference than in the oracle.
    reference: Option<NodeFound>,
}

#[derive(Debug, Serialize)]
pub(super) struct LaunchFound {
    /// The visit of a graph of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<String>,
    step: usize,
    kernel: String,
    /// The node whose value it is, as the nearest of those it computes.
    node: String,
    /// All nodes that the launch computes.
    sources: Vec<String>,
    difference: OutputComparison,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeFound {
    node: String,
    op: String,
    value: String,
    difference: OutputComparison,
}

/// A value of the imported graph.
pub(super) struct Layer {
    sources: Vec<String>,
    tensor: Tensor,
}

pub(super) fn run(args: &Args, against: Against) -> Result<ExitCode, CliError> {
    let folder = tempfile::tempdir()?;
    let case = args.case.as_deref().map(Case::read).transpose()?;
    let mut job = Job::new(&args.engine);
    job.shapes = args.shapes.iter().cloned().collect();
    if let Some(case) = &case {
        for (name, extents) in eggine::input_extents(&args.engine, case)? {
            job.shapes.entry(name).or_insert(extents);
        }
    }
    let imported = import(&args.engine, &ImportOptions { shapes: job.shapes.clone() });
    let imported = match imported {
        Err(err) if crate::cli::program::is_for_programs_only(&err) => {
            return super::program::run(args, against, None);
        }
        other => other?,
    };
    let engine = match &args.with {
        Some(path) => Engine::open(path)?,
        None => {
            let path = folder.path().join("model.engine");
            job.seed = args.seed;
            compile(&job, &path, &AtomicBool::new(false))?;
            Engine::open(&path)?
        }
    };
    let inputs = match &case {
        Some(case) => case.inputs(engine.inputs())?,
        None => engine.inputs().iter().map(|spec| random_input(spec, args.seed)).collect(),
    };
    let specs = engine.outputs().to_vec();
    let mut session = args.device.session(engine.clone())?;
    let outputs = session.run(&inputs)?;
    let oracle = || -> Vec<Tensor> {
        let results = eval(&imported.graph, &inputs, Rounding::None);
        results.iter().map(|array| array.to_tensor()).collect()
    };
    let expected = match against {
        Against::Oracle => oracle(),
        Against::Ort => {
            let tensor = |value: Option<HostValue>| match value {
                Some(HostValue::Tensor(tensor)) => Ok(tensor),
                _ => Err("onnxruntime returned something that is no tensor"),
            };
            onnxruntime(args, &args.engine, &on_host(&inputs), specs.len(), folder.path())?
                .into_iter()
                .map(tensor)
                .collect::<Result<_, _>>()?
        }
    };
    let comparison = compared(&specs, &outputs, &expected, args.rel_tol)?;
    let mut found = Found {
        against: against.name(),
        agrees: comparison.agrees,
        outputs: comparison.outputs,
        n_launches: engine.plan.steps.len(),
        n_compared: 0,
        launch: None,
        reference: None,
    };
    if !found.agrees || args.layers {
        let layers = layers(&imported, &inputs);
        let mut session = args.device.session(engine.clone())?;
        let located = locate_launch(&engine, &mut session, &inputs, &layers, args.rel_tol)?;
        (found.n_compared, found.launch) = (located.n_compared, located.first);
        if against == Against::Ort {
            let (model, values) = (Model::open(&args.engine)?, BTreeMap::new());
            found.reference =
                locate_node(args, &model, &on_host(&inputs), folder.path(), (&layers, &values))?;
        }
    }
    match args.json {
        true => super::super::print_json(&found)?,
        false => print(args, &found),
    }
    Ok(if found.agrees { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn compared(
    specs: &[IoSpec],
    got: &[Tensor],
    want: &[Tensor],
    tolerance: f64,
) -> Result<Comparison, CliError> {
    if specs.len() != want.len() {
        return Err(format!("{} outputs, the reference has {}", specs.len(), want.len()).into());
    }
    for (spec, want) in specs.iter().zip(want) {
        if want.dtype != spec.dtype || want.extents != spec.extents {
            let (name, ours, theirs) = (&spec.name, spec.ty(), want.ty());
            return Err(format!("output `{name}` is {ours}, the reference says {theirs}").into());
        }
    }
    let expected: Vec<Expected> =
        want.iter().map(|it| Expected { out: Some(it.clone()), spec: None }).collect();
    Ok(compare_outputs(specs, got, &expected, tolerance))
}

/// How two tensors of one type and as many elements compare, whatever their shapes.
pub(super) fn difference(
    name: &str,
    got: &Tensor,
    want: &Tensor,
    tolerance: f64,
) -> OutputComparison {
    let flat = |tensor: &Tensor| tensor.reshaped(&[tensor.n_elems()]);
    let spec = IoSpec { name: name.to_owned(), dtype: want.dtype, extents: vec![want.n_elems()] };
    let expected = [Expected { out: Some(flat(want)), spec: None }];
    let comparison = compare_outputs(&[spec], &[flat(got)], &expected, tolerance);
    comparison.outputs.into_iter().next().expect("one output was compared")
}

/// The elements in ascending order, so that a tensor can be recognised that lies in another order.
fn sorted(tensor: &Tensor) -> Tensor {
    let extents = [tensor.n_elems()];
    if tensor.dtype.is_float() {
        let mut data = tensor.to_f64();
        data.sort_by(f64::total_cmp);
        return Tensor::from_f64(tensor.dtype, &extents, &data);
    }
    let mut data = tensor.to_i64();
    data.sort_unstable();
    Tensor::from_i64(tensor.dtype, &extents, &data)
}

/// The oracle's value of every node of the imported graph, in order.
pub(super) fn layers(imported: &Imported, inputs: &[Tensor]) -> Vec<Layer> {
    let mut all = imported.graph.clone();
    let computed = |(value, node): (_, &eggine::ir::Node)| {
        matches!(node.kind, NodeKind::Apply(..)).then_some(value)
    };
    all.outputs = imported.graph.nodes.iter().filter_map(computed).collect();
    all.output_names = Vec::new();
    let values = eval(&all, inputs, Rounding::None);
    let sources = all.outputs.iter().map(|&value| all.nodes[value].sources.clone());
    let layer = |(sources, array): (_, &eggine::ir::graph::Array)| Layer {
        sources,
        tensor: array.to_tensor(),
    };
    sources.zip(&values).map(layer).collect()
}

/// What comparing the launches of an engine with the oracle's values of its nodes found.
pub(super) struct Located {
    /// The engine's outputs.
    pub(super) outputs: Vec<Tensor>,
    /// Launches that wrote something that can be held against a node's value.
    pub(super) n_compared: usize,
    /// The first launch that wrote something that no node it computes has as its value.
    pub(super) first: Option<LaunchFound>,
}

/// Runs an engine launch by launch, and holds what each wrote against the oracle's values.
pub(super) fn locate_launch(
    engine: &Engine,
    session: &mut Session,
    inputs: &[Tensor],
    layers: &[Layer],
    tolerance: f64,
) -> Result<Located, RunError> {
    let steps = &engine.plan.steps;
    let mut first = None;
    let mut n_compared = 0;
    let outputs = session.run_observed(inputs, &mut |step, _, bytes| {
        let Some(got) = written(engine, &steps[step], bytes) else { return };
        let computes = |layer: &&Layer| {
            layer.sources.iter().any(|source| steps[step].sources.contains(source))
                && layer.tensor.dtype == got.dtype
                && layer.tensor.n_elems() == got.n_elems()
        };
        let mut nearest: Option<(f64, &Layer, OutputComparison)> = None;
        let in_order = sorted(&got);
        for layer in layers.iter().filter(computes) {
            let node = layer.sources.last().map_or("", String::as_str);
            let direct = difference(node, &got, &layer.tensor, tolerance);
            // The launch may store its result with its axes in another order.
            let agrees = direct.agrees
                || difference(node, &in_order, &sorted(&layer.tensor), tolerance).agrees;
            let error = if agrees { -1.0 } else { direct.max_relative };
            if nearest.as_ref().is_none_or(|(least, ..)| error <= *least) {
                nearest = Some((error, layer, direct));
            }
        }
        let Some((error, layer, difference)) = nearest else { return };
        n_compared += 1;
        if error >= 0.0 && first.is_none() {
            first = Some(LaunchFound {
                place: None,
                step,
                kernel: engine.manifest.kernels[steps[step].kernel].name.clone(),
                node: layer.sources.last().cloned().unwrap_or_default(),
                sources: steps[step].sources.clone(),
                difference,
            });
        }
    })?;
    Ok(Located { outputs, n_compared, first })
}

/// What a launch wrote, as the tensor that its region stores; `None` for anything else.
fn written(engine: &Engine, step: &Step, bytes: &[u8]) -> Option<Tensor> {
    let region: Region = engine.manifest.kernels[step.kernel].region.parse().ok()?;
    let ty = region.graph.ty(*region.graph.outputs.first()?);
    let fits = ty.dtype.bytes_for(ty.extents().iter().product()) == bytes.len();
    fits.then(|| Tensor::new(ty.dtype, &ty.extents(), bytes.to_vec()))
}

/// The first node of the main graph whose value in onnxruntime is not the oracle's: that of a layer of the
/// node, or the value of a name that the host computed.
pub(super) fn locate_node(
    args: &Args,
    model: &Model,
    inputs: &[HostValue],
    folder: &Path,
    (layers, values): (&[Layer], &BTreeMap<String, HostValue>),
) -> Result<Option<NodeFound>, CliError> {
    let mut model = ModelProto::decode(model.to_bytes()?.as_slice())?;
    let graph = model.graph.as_mut().ok_or("the model has no graph")?;
    let mut results: Vec<(String, String, String)> = Vec::new();
    for node in &graph.node {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            let op = node.op_type.clone().unwrap_or_default();
            results.push((name_of(node), op, name.clone()));
        }
    }
    let output = |(_, _, name): &(String, String, String)| ValueInfoProto {
        name: Some(name.clone()),
        r#type: None,
    };
    graph.output = results.iter().map(output).collect();
    let all = folder.join("all.onnx");
    std::fs::write(&all, model.encode_to_vec())?;
    let theirs = onnxruntime(args, &all, inputs, results.len(), folder)?;
    for ((node, op, value), theirs) in results.into_iter().zip(theirs) {
        let Some(theirs) = theirs else { continue };
        let differences: Vec<OutputComparison> = match (values.get(&value), &theirs) {
            (Some(ours), theirs) => {
                let all =
                    crate::cli::program::compare_values(&value, ours, Some(theirs), args.rel_tol);
                match all.into_iter().find(|it| !it.agrees) {
                    Some(difference) => vec![difference],
                    None => continue,
                }
            }
            (None, HostValue::Tensor(theirs)) => {
                let is_its = |layer: &&Layer| {
                    layer.sources.contains(&node)
                        && layer.tensor.dtype == theirs.dtype
                        && layer.tensor.extents == theirs.extents
                };
                (layers.iter().filter(is_its))
                    .map(|layer| difference(&value, &layer.tensor, theirs, args.rel_tol))
                    .collect()
            }
            (None, _) => continue,
        };
        if !differences.is_empty() && !differences.iter().any(|it| it.agrees) {
            let difference = differences.into_iter().next_back().expect("it is not empty");
            return Ok(Some(NodeFound { node, op, value, difference }));
        }
    }
    Ok(None)
}

/// Tensors as values of the host.
fn on_host(tensors: &[Tensor]) -> Vec<HostValue> {
    tensors.iter().cloned().map(HostValue::from).collect()
}

/// Outputs of a model in onnxruntime; `None` for what NumPy or Eggine has no value for.
pub(super) fn onnxruntime(
    args: &Args,
    model: &Path,
    inputs: &[HostValue],
    n_outputs: usize,
    folder: &Path,
) -> Result<Vec<Option<HostValue>>, CliError> {
    let (script, given, results): (PathBuf, PathBuf, PathBuf) =
        (folder.join("reference.py"), folder.join("in.npz"), folder.join("out.npz"));
    std::fs::write(&script, SCRIPT)?;
    let arrays: Vec<(String, HostValue)> =
        inputs.iter().enumerate().map(|(i, it)| (format!("in{i}"), it.clone())).collect();
    write_values(&given, &arrays)?;
    let python = &args.python;
    let output =
        Command::new(python).arg(&script).args([model, &given, &results]).output().map_err(
            |err| {
                format!(
                    "--against ort needs Python, and `{python}` does not run ({err}): name one with --python"
                )
            },
        )?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => (),
        Some(3) => {
            return Err(format!(
                "--against ort needs the Python package `{said}`, which `{python}` lacks: install it with \
                 `{python} -m pip install {said}`, or name another Python with --python"
            )
            .into());
        }
        _ => return Err(format!("onnxruntime does not run the model: {said}").into()),
    }
    let case = Case::read(&results)?;
    let value = |at: usize| {
        // No output is named so: only the numbered spelling counts.
        let strings = case.expected_strings(at, "").cloned().map(HostValue::Strings);
        let tensor = || Some(case.array(&format!("out{at}")).ok()??.clone().into());
        strings.or_else(tensor).or_else(|| case.expected_sequence(at, "").ok()?)
    };
    Ok((0..n_outputs).map(value).collect())
}

fn print(args: &Args, found: &Found) {
    let comparison = Comparison { agrees: found.agrees, outputs: found.outputs.clone() };
    super::print_outputs(&comparison);
    if found.n_compared > 0 {
        println!(
            "{} of {} launches wrote what can be held against a node's value",
            found.n_compared, found.n_launches
        );
    }
    match &found.launch {
        Some(it) => print_launch(it),
        None if !found.agrees => {
            println!("no launch is over budget against the oracle: the reference is another one");
        }
        None if args.layers => println!("no launch is over budget"),
        None => (),
    }
    if let Some(it) = &found.reference {
        print_node(it);
    }
}

/// How far a value is off.
pub(super) fn over(it: &OutputComparison) -> String {
    match it.worst_index {
        Some(index) => format!(
            "max {:.2e} > {:.0e}, worst [{index}]: {}, expected {}",
            it.max_relative,
            it.tolerance,
            it.worst_got.as_deref().unwrap_or("?"),
            it.worst_want.as_deref().unwrap_or("?")
        ),
        None => format!("max {:.2e}", it.max_relative),
    }
}

pub(super) fn print_launch(it: &LaunchFound) {
    println!("first over budget: node `{}`, {}", it.node, over(&it.difference));
    if let Some(place) = &it.place {
        println!("  in {place}");
    }
    println!("  by launch {} ({}), which computes {}", it.step, it.kernel, it.sources.join(", "));
}

pub(super) fn print_node(it: &NodeFound) {
    println!(
        "first that onnxruntime computes otherwise than the oracle: node `{}` ({}), value `{}`, {}",
        it.node,
        it.op,
        it.value,
        over(&it.difference)
    );
}
