//! The engine half of a test: compiled at budget 0, run on the cpu device. And the program half of one
//! that leaves operands open which decide shapes: those, too, are inputs of the run.

use std::sync::atomic::AtomicBool;

use eggine::runtime::program::{self, HostValue, NoSpecialise, Program};
use eggine::search::{CompileError, Job, compile, compile_program};
use eggine::{CpuDevice, CpuOptions, Engine, Session};
use eggine_ir::Tensor;
use eggine_ir::onnx::describe;
use eggine_runtime::Device;

use crate::case::{Case, Set};
use crate::judge::{Bound, Outcome, Verdict, inputs_of, judge_outputs};

static NEVER: AtomicBool = AtomicBool::new(false);

pub(crate) fn judge(case: &Case, set: &Set, bound: &Bound) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.engine");
    let shapes = bound.imported.inputs.iter().map(|(name, ty)| (name.clone(), ty.extents()));
    let job = Job {
        shapes: shapes.collect(),
        threads: Some(1),
        device_threads: Some(1),
        ..Job::new(bound.file.path())
    };
    if let Err(err) = compile(&job, &path, &NEVER) {
        return Outcome::new(Verdict::Refused, reason(&err));
    }
    let run = || -> Result<Vec<Tensor>, Box<dyn std::error::Error>> {
        let engine = Engine::open(&path)?;
        let options = CpuOptions { n_threads: 1, ..CpuOptions::default() };
        let device = CpuDevice::new(options);
        let inputs = inputs_of(&bound.imported.inputs, set)?;
        Ok(Session::new(Box::new(device), &engine)?.run(&inputs)?)
    };
    match run() {
        Err(err) => Outcome::new(Verdict::Wrong, format!("the engine does not run: {err}")),
        Ok(found) => match judge_outputs(case, set, &found) {
            None => Outcome::pass(),
            Some(difference) => Outcome::new(Verdict::Wrong, format!("engine: {difference}")),
        },
    }
}

fn device() -> Result<Box<dyn Device>, eggine_runtime::DeviceError> {
    Ok(Box::new(CpuDevice::new(CpuOptions { n_threads: 1, ..CpuOptions::default() })))
}

/// Judges the model as it is: a program for these inputs, which is written, opened and run.
pub(crate) fn judge_open(case: &Case, set: &Set) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.program");
    let model = case.model();
    let inputs = || -> Result<Vec<HostValue>, String> {
        let ports = describe(&model).map_err(|err| err.to_string())?.inputs;
        let given = |name: &String| match set.inputs.iter().find(|(given, _)| given == name) {
            Some((_, Ok(tensor))) => Ok(tensor.clone().into()),
            _ => Err(format!("input {name} is not given")),
        };
        ports.iter().map(|port| given(&port.name)).collect()
    };
    let inputs = match inputs() {
        Ok(inputs) => inputs,
        Err(reason) => return Outcome::new(Verdict::Refused, format!("program: {reason}")),
    };
    let job = Job { threads: Some(1), device_threads: Some(1), ..Job::new(&model) };
    let compiled = compile_program(&job, std::slice::from_ref(&inputs), Vec::new(), &path, &NEVER);
    if let Err(err) = compiled {
        return Outcome::new(Verdict::Refused, format!("program: {}", cause(&err)));
    }
    let run = || -> Result<Vec<HostValue>, Box<dyn std::error::Error>> {
        // No engine may be missing: the program was compiled for these very inputs.
        let program = Program::open(&path)?;
        Ok(program::Session::new(program, device, NoSpecialise).run(&inputs)?)
    };
    let found = match run() {
        Ok(found) => found,
        Err(err) => {
            return Outcome::new(Verdict::Wrong, format!("the program does not run: {err}"));
        }
    };
    let found: Option<Vec<Tensor>> = found.iter().map(|it| it.tensor().cloned()).collect();
    let difference = match found {
        Some(found) => judge_outputs(case, set, &found),
        None => Some("an output is no tensor".to_owned()),
    };
    match difference {
        None => Outcome::pass(),
        Some(difference) => Outcome::new(Verdict::Wrong, format!("program: {difference}")),
    }
}

/// The first words of what is at the bottom of an error.
fn cause(err: &dyn std::error::Error) -> String {
    let mut at = err;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string().lines().next().unwrap_or_default().chars().take(160).collect()
}

/// The first words of an error of compilation: regions and sources differ with every change of rules.
fn reason(err: &CompileError) -> String {
    let reason = match err {
        CompileError::NoKernel { reason, .. } => format!("no verified kernel: {reason}"),
        other => other.to_string(),
    };
    let line = reason.lines().next().unwrap_or_default();
    format!("engine: {}", line.chars().take(160).collect::<String>())
}
