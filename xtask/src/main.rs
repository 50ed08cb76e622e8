//! Developer tasks: `cargo xtask TASK`. A task is a row of [`TASKS`].
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool prints")]

mod ci;
mod conformance;
mod cuda;
mod models;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Task = fn(&Path) -> Result<(), String>;

#[rustfmt::skip] // One task per row.
const TASKS: &[(&str, Task, &str)] = &[
    ("tools",     tools::install, "installs ptxas 13.0.88 and, with gcc, nvPTXCompiler, and a Python client of the driver API into target/tools (70 MB, checked against their hashes)"),
    ("driver",    cuda::driver,   "builds the CUDA driver that runs on the CPU into target/driver, as libcuda.so.1"),
    ("cuda-models", cuda::models, "compiles, runs and compares the models with --device cuda:0 on that driver"),
    ("models",    models::models, "compiles, runs and compares every model of ../shared/models: a table, a line a case; --limit SECONDS, --threads N, --out FILE.tsv, names"),
    ("conformance", conformance::run, "runs the conformance suite of ONNX: every test in the oracle and as an engine (makes target/conformance, about 60 MB)"),
    ("oracles",   conformance::oracles, "compares the oracle, onnx.reference and onnxruntime on every conformance test"),
    ("fmt-check", ci::fmt_check,  "fails if a file is not formatted"),
    ("test",      ci::all,        "what a change must pass: tools, formatting, lints, tests, documentation"),
    ("kill9",     ci::kill9,      "kills a thousand searches and compares with undisturbed ones (about five minutes on two cores)"),
    ("ci",        ci::all,        "the same"),
];

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some((_, task, _)) = TASKS.iter().find(|(task_name, _, _)| *task_name == name) else {
        eprintln!("usage: cargo xtask TASK");
        for (task_name, _, help) in TASKS {
            eprintln!("    {task_name:<12} {help}");
        }
        return ExitCode::from(2);
    };
    match task(&workspace()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {name}: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The directory of the workspace, which cargo tells us: it runs us.
fn workspace() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().expect("xtask is a directory of the workspace").to_owned()
}
