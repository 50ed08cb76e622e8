//! What the commands do with programs: models whose shapes or course are only known when they run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use eggine::ir::Dim;
use eggine::ir::onnx::part::Model;
use eggine::ir::onnx::{ImportError, Port};
use eggine::runtime::IoSpec;
use eggine::runtime::case::{Expected, write_values};
use eggine::runtime::compare::{Comparison, OutputComparison};
use eggine::runtime::program::{DimRange, HostValue, InputRange, Program, Session, Strings};
use eggine::search::{
    Budget, CompileError, Job, Specialiser, compile_program, random_input, trace_launches,
    trace_lines,
};
use eggine::{Case, CaseError, compare_outputs};

use super::CliError;

type Shapes = BTreeMap<String, Vec<usize>>;

/// Nobody interrupts the compilation of a part of a run: the process just ends.
static NEVER: AtomicBool = AtomicBool::new(false);

/// What a model may take or return that no engine does.
const HOST_TYPES: [&str; 3] = ["a tensor of strings", "a sequence", "an optional"];

/// Whether a model takes or returns strings, sequences or optionals.
pub(crate) fn has_host_types(model: &Path) -> Result<bool, CliError> {
    let description = eggine::ir::onnx::describe(model)?;
    let ports = description.inputs.iter().chain(&description.outputs);
    Ok(ports.into_iter().any(|port| port.dtype.is_none() && HOST_TYPES.contains(&&*port.found)))
}

/// Whether a model that has no engine of its own has a program: all that is missing is known at run time.
pub(crate) fn is_for_programs(err: &CompileError) -> bool {
    match err {
        CompileError::Import(err) => is_for_programs_only(err),
        _ => false,
    }
}

/// The same of what import says.
pub(crate) fn is_for_programs_only(err: &ImportError) -> bool {
    matches!(err, ImportError::Unsupported(all) if all.iter().all(|it| it.at_run_time))
}

/// The inputs of the runs that a program is compiled for: the case's, else drawn for each point.
pub(crate) fn points(
    job: &Job,
    case: Option<&Case>,
    ranges: Option<(&Shapes, &Shapes)>,
    opt: &[Shapes],
) -> Result<Vec<Vec<HostValue>>, CliError> {
    let ports = Model::open(&job.model)?.description().inputs;
    let served = ranges_of(&ports, ranges)?;
    if let (Some(case), true) = (case, opt.is_empty()) {
        let values = ports.iter().enumerate().map(|(n, port)| case.input_port(n, port));
        return Ok(vec![values.collect::<Result<_, _>>()?]);
    }
    let shapes: Vec<&Shapes> = match (opt.is_empty(), ranges) {
        (false, _) => opt.iter().collect(),
        (true, Some((_, max))) => vec![max],
        (true, None) => vec![&job.shapes],
    };
    let mut points = Vec::new();
    for shapes in shapes {
        for (name, extents) in shapes {
            if !ports.iter().any(|port| port.name == *name) {
                return Err(format!("the model has no input `{name}`").into());
            }
            let range = served.iter().find(|range| range.name == *name);
            range.map_or(Ok(()), |range| range.check(extents))?;
        }
        let drawn = ports.iter().map(|port| drawn(port, shapes, job.seed));
        points.push(drawn.collect::<Result<_, _>>()?);
    }
    Ok(points)
}

pub(crate) fn drawn(port: &Port, shapes: &Shapes, seed: u64) -> Result<HostValue, CliError> {
    let dtype = port.dtype.ok_or_else(|| {
        format!("input {port} cannot be drawn: give the inputs of a run with --shapes-from (of `compare`: --case)")
    })?;
    let fixed = |dim: &Dim| match dim {
        Dim::Fixed(n) => Some(*n),
        Dim::Symbolic(_) => None,
    };
    let own = || port.shape.as_ref()?.0.iter().map(fixed).collect::<Option<Vec<usize>>>();
    let extents = shapes.get(&port.name).cloned().or_else(own).ok_or_else(|| {
        format!("input {port} has no shape to compile for: name it in --opt-shapes or --shape")
    })?;
    Ok(random_input(&IoSpec { name: port.name.clone(), dtype, extents }, seed).into())
}

/// The ranges of all inputs that have one.
fn ranges_of(
    ports: &[Port],
    ranges: Option<(&Shapes, &Shapes)>,
) -> Result<Vec<InputRange>, CliError> {
    let Some((min, max)) = ranges else { return Ok(Vec::new()) };
    let is_unknown = |name: &&String| !ports.iter().any(|port| port.name == **name);
    if let Some(name) = min.keys().chain(max.keys()).find(is_unknown) {
        return Err(format!("the model has no input `{name}`").into());
    }
    let mut all = Vec::new();
    for port in ports {
        all.extend(range_of(port, (min, max))?);
    }
    Ok(all)
}

fn range_of(port: &Port, (min, max): (&Shapes, &Shapes)) -> Result<Option<InputRange>, CliError> {
    let (least, most) = match (min.get(&port.name), max.get(&port.name)) {
        (None, None) => return Ok(None),
        (Some(least), Some(most)) => (least, most),
        _ => {
            let name = &port.name;
            return Err(format!("input `{name}` needs both --min-shapes and --max-shapes").into());
        }
    };
    if least.len() != most.len() || least.iter().zip(most).any(|(least, most)| least > most) {
        let name = &port.name;
        return Err(format!("input `{name}`: {least:?} to {most:?} is no range of shapes").into());
    }
    let dims = least.iter().zip(most).map(|(&min, &max)| DimRange { min, max }).collect();
    Ok(Some(InputRange { name: port.name.clone(), dims: Some(dims) }))
}

/// Compiles a program and says what it consists of.
pub(crate) fn compile(
    job: &Job,
    points: &[Vec<HostValue>],
    ranges: Option<(&Shapes, &Shapes)>,
    output: &Path,
    json: bool,
    interrupt: &AtomicBool,
) -> Result<ExitCode, CliError> {
    let ports = Model::open(&job.model)?.description().inputs;
    let all = ranges_of(&ports, ranges)?;
    let report = compile_program(job, points, all, output, interrupt)?;
    if json {
        super::print_json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", report.program.display());
    println!("  a program of {} engines, compiled for", report.n_engines);
    report.points.iter().for_each(|point| println!("    {point}"));
    report.wide.iter().for_each(|line| println!("  {line}"));
    report.trace.iter().for_each(|line| println!("  {line}"));
    Ok(ExitCode::SUCCESS)
}

/// A program with the means to make the engines that it lacks.
pub(crate) fn open<'a>(
    path: &Path,
    device: &'a super::DeviceArgs,
) -> Result<Session<'a>, CliError> {
    let program = Program::open(path)?;
    let mut job = Job::new(path);
    job.target = program.manifest.target.clone();
    job.budget = Budget::First;
    job.device = device.device;
    job.fast_math = program.manifest.options.get("fast_math").is_some_and(|it| it == "true");
    let specialiser = Specialiser::for_program(job, &program, &NEVER);
    Ok(Session::new(program, || device.open(), specialiser))
}

fn inputs(session: &Session<'_>, case: &Case) -> Result<Vec<HostValue>, CaseError> {
    let ports = session.program().model().description().inputs;
    ports.iter().enumerate().map(|(n, port)| case.input_port(n, port)).collect()
}

fn output_names(session: &Session<'_>) -> Vec<String> {
    let outputs = session.program().model().description().outputs;
    outputs.into_iter().map(|port| port.name).collect()
}

/// `eggine run` of a program.
pub(crate) fn run(
    path: &Path,
    case: &Path,
    outputs: &Path,
    device: &super::DeviceArgs,
) -> Result<ExitCode, CliError> {
    let mut session = open(path, device)?;
    let inputs = inputs(&session, &Case::read(case)?)?;
    let values = session.run(&inputs)?;
    let named: Vec<(String, HostValue)> = output_names(&session).into_iter().zip(values).collect();
    write_values(outputs, &named)?;
    named.iter().for_each(|(name, value)| println!("{name}: {value}"));
    if !session.made().is_empty() {
        eprintln!(
            "note: {} engines were made for these shapes; compile with --opt-shapes to have them in the file",
            session.made().len()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// `eggine compare` of a program.
pub(crate) fn compare(
    path: &Path,
    case: &Path,
    rel_tol: f64,
    device: &super::DeviceArgs,
    show: &dyn Fn(&eggine::runtime::Comparison) -> Result<(), CliError>,
) -> Result<ExitCode, CliError> {
    let mut session = open(path, device)?;
    let case = Case::read(case)?;
    let inputs = inputs(&session, &case)?;
    let values = session.run(&inputs)?;
    let mut outputs = Vec::new();
    for (n, (name, value)) in output_names(&session).into_iter().zip(&values).enumerate() {
        match value {
            HostValue::Tensor(tensor) => {
                let spec = IoSpec { name, dtype: tensor.dtype, extents: tensor.extents.clone() };
                let expected = [case.expected_at(n, &spec)?];
                let got = std::slice::from_ref(tensor);
                outputs.extend(compare_outputs(&[spec], got, &expected, rel_tol).outputs);
            }
            HostValue::Strings(strings) => {
                let want = case.expected_strings(n, &name).cloned().map(HostValue::Strings);
                let got = HostValue::Strings(strings.clone());
                outputs.push(compare_values(&name, &got, want.as_ref(), rel_tol).remove(0));
            }
            HostValue::Sequence(_) => {
                let want = case.expected_sequence(n, &name)?;
                outputs.extend(compare_values(&name, value, want.as_ref(), rel_tol));
            }
            HostValue::Nothing => {
                let want = case.expected_sequence(n, &name)?;
                let single = match case.array(&name)? {
                    Some(tensor) => Some(tensor),
                    None => case.array(&format!("out{n}"))?,
                };
                let want = want.or(single.cloned().map(HostValue::Tensor));
                outputs.extend(compare_values(&name, value, want.as_ref(), rel_tol));
            }
        }
    }
    if outputs.iter().all(|output| output.against.is_none()) {
        let file = case.path().display();
        return Err(format!("`{file}` has no expected output of this model").into());
    }
    let comparison = Comparison { agrees: outputs.iter().all(|output| output.agrees), outputs };
    show(&comparison)?;
    Ok(if comparison.agrees { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// How a value of any kind compares: a sequence gives a comparison for each of its elements.
pub(crate) fn compare_values(
    name: &str,
    got: &HostValue,
    want: Option<&HostValue>,
    rel_tol: f64,
) -> Vec<OutputComparison> {
    let unlike = |agrees: bool| OutputComparison {
        name: name.to_owned(),
        ty: got.to_string(),
        agrees,
        against: want.map(|_| "out"),
        max_relative: 0.0,
        relative_l2: 0.0,
        tolerance: 0.0,
        n_elems: 1,
        n_mismatches: usize::from(!agrees),
        worst_index: (!agrees).then_some(0),
        worst_got: Some(got.to_string()),
        worst_want: want.map(HostValue::to_string),
    };
    match (got, want) {
        (HostValue::Tensor(tensor), Some(HostValue::Tensor(expected)))
            if tensor.ty() == expected.ty() =>
        {
            let (dtype, extents) = (tensor.dtype, tensor.extents.clone());
            let spec = IoSpec { name: name.to_owned(), dtype, extents };
            let expected = [Expected { out: Some(expected.clone()), spec: None }];
            let got = std::slice::from_ref(tensor);
            compare_outputs(&[spec], got, &expected, rel_tol).outputs
        }
        (HostValue::Strings(strings), None) => {
            vec![compare_strings(name.to_owned(), strings, None)]
        }
        (HostValue::Strings(strings), Some(HostValue::Strings(expected))) => {
            vec![compare_strings(name.to_owned(), strings, Some(expected))]
        }
        (HostValue::Sequence(all), Some(HostValue::Sequence(expected)))
            if all.len() == expected.len() && !all.is_empty() =>
        {
            let pairs = all.iter().zip(expected).enumerate();
            let of = |(at, (got, want))| {
                compare_values(&format!("{name}.{at}"), got, Some(want), rel_tol)
            };
            pairs.flat_map(of).collect()
        }
        (got, Some(want)) => vec![unlike(got == want)],
        (_, None) => vec![unlike(true)],
    }
}

/// Strings are equal or not.
fn compare_strings(name: String, got: &Strings, want: Option<&Strings>) -> OutputComparison {
    let differs = |want: &Strings| match want.extents == got.extents {
        true => (0..got.data.len()).filter(|&i| got.data[i] != want.data[i]).collect(),
        false => (0..got.data.len()).collect::<Vec<_>>(),
    };
    let wrong = want.map_or_else(Vec::new, differs);
    let agrees = want.is_none_or(|want| want == got);
    let worst_index = wrong.first().copied();
    OutputComparison {
        ty: HostValue::Strings(got.clone()).to_string(),
        name,
        agrees,
        against: want.map(|_| "out"),
        max_relative: 0.0,
        relative_l2: 0.0,
        tolerance: 0.0,
        n_elems: got.data.len(),
        n_mismatches: wrong.len(),
        worst_index,
        worst_got: worst_index.map(|i| got.data[i].clone()),
        worst_want: worst_index.and_then(|i| want?.data.get(i).cloned()),
    }
}

/// `eggine bench` of a program: whole runs, with what the host does in between.
pub(crate) fn bench(
    path: &Path,
    case: &Path,
    (warmups, repeats): (usize, usize),
    json: bool,
    device: &super::DeviceArgs,
) -> Result<ExitCode, CliError> {
    let mut session = open(path, device)?;
    let inputs = inputs(&session, &Case::read(case)?)?;
    // The first run makes what is missing.
    for _ in 0..warmups.max(1) {
        session.run(&inputs)?;
    }
    let mut samples_ns = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        let started = Instant::now();
        session.run(&inputs)?;
        samples_ns.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let n_launches = trace_launches(session.trace());
    if json {
        super::print_json(&serde_json::json!({
            "engine": path,
            "n_launches": n_launches,
            "samples_ns": samples_ns,
            "trace": trace_lines(session.trace()),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    samples_ns.sort_unstable();
    let ms = |ns: u64| ns as f64 / 1e6;
    println!(
        "{}: median {:.3} ms, min {:.3} ms, max {:.3} ms over {} runs of {n_launches} launches, host steps and copies included",
        path.display(),
        ms(samples_ns[samples_ns.len() / 2]),
        ms(samples_ns[0]),
        ms(samples_ns[samples_ns.len() - 1]),
        samples_ns.len()
    );
    trace_lines(session.trace()).iter().for_each(|line| println!("  {line}"));
    Ok(ExitCode::SUCCESS)
}

/// `eggine inspect` of a program.
pub(crate) fn inspect(path: &Path, json: bool) -> Result<ExitCode, CliError> {
    let program = Program::open(path)?;
    let manifest = &program.manifest;
    if json {
        super::print_json(manifest)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("program  {}, made by eggine {}", manifest.model, manifest.eggine_version);
    println!("target   {}", manifest.target);
    for (kind, ports) in [
        ("input", program.model().description().inputs),
        ("output", program.model().description().outputs),
    ] {
        ports.iter().for_each(|port| println!("{kind:<8} {port}"));
    }
    for range in &manifest.ranges {
        let dims = range.dims.iter().flatten();
        let dims: Vec<String> = dims
            .map(|dim| match dim.min == dim.max {
                true => dim.min.to_string(),
                false => format!("{}..{}", dim.min, dim.max),
            })
            .collect();
        println!("range    {}: {}", range.name, dims.join(" x "));
    }
    manifest.points.iter().for_each(|point| println!("for      {point}"));
    println!("engines  {}", program.engines().len());
    for record in &manifest.wide {
        let up_to: Vec<String> = record.most.iter().map(ToString::to_string).collect();
        println!("serves   all shapes up to {}", up_to.join(", "));
    }
    manifest.trace.iter().for_each(|line| println!("step     {line}"));
    manifest.host_steps.iter().for_each(|line| println!("host     {line}"));
    if manifest.host_steps.is_empty() {
        println!("host     nothing");
    }
    Ok(ExitCode::SUCCESS)
}
