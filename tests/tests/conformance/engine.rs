//! The engine half of a test: compiled at budget 0, run on the cpu device.

use std::sync::atomic::AtomicBool;

use eggine::search::{CompileError, Job, compile};
use eggine::{CpuDevice, CpuOptions, Engine, Session};
use eggine_ir::Tensor;

use crate::case::{Case, Set};
use crate::judge::{Bound, Outcome, Verdict, inputs_of, judge_outputs};

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
    if let Err(err) = compile(&job, &path, &AtomicBool::new(false)) {
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

/// The first words of an error of compilation: regions and sources differ with every change of rules.
fn reason(err: &CompileError) -> String {
    let reason = match err {
        CompileError::NoKernel { reason, .. } => format!("no verified kernel: {reason}"),
        other => other.to_string(),
    };
    let line = reason.lines().next().unwrap_or_default();
    format!("engine: {}", line.chars().take(160).collect::<String>())
}
