//! The conformance suite: the pinned wheel, the tests that it generates, and their run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools;

/// Makes `target/conformance` from the wheel, unless it is there; the folder of the wheel's packages.
pub(crate) fn prepare(workspace: &Path) -> Result<PathBuf, String> {
    let packages = tools::python(workspace, "onnx.txt", "onnx-1.23.2")?;
    let folder = workspace.join("target/conformance");
    let script = workspace.join("tests/conformance/generate.py");
    let text = fs::read_to_string(&script)
        .map_err(|err| format!("cannot read {}: {err}", script.display()))?;
    let stamp = folder.join("generate.py");
    if folder.join("index.tsv").exists() && fs::read_to_string(&stamp).is_ok_and(|it| it == text) {
        println!("the conformance tests are in {}", folder.display());
        return Ok(packages);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .map_err(|err| format!("cannot remove {}: {err}", folder.display()))?;
    }
    fs::create_dir_all(&folder)
        .map_err(|err| format!("cannot create {}: {err}", folder.display()))?;
    checked(Command::new("python3").arg(&script).arg(&folder).env("PYTHONPATH", &packages))?;
    fs::write(&stamp, text).map_err(|err| format!("cannot write {}: {err}", stamp.display()))?;
    Ok(packages)
}

/// Runs every test, in the oracle and as an engine.
pub(crate) fn run(workspace: &Path) -> Result<(), String> {
    prepare(workspace)?;
    test(workspace, "all")
}

/// Compares the three oracles: `tests/conformance/oracles.py` beside what ours computed.
pub(crate) fn oracles(workspace: &Path) -> Result<(), String> {
    let packages = prepare(workspace)?;
    let peer = tools::python(workspace, "onnxruntime.txt", "onnxruntime-1.32.0");
    test(workspace, "oracle")?;
    let mut path = packages.into_os_string();
    match peer {
        Ok(peer) => {
            path.push(":");
            path.push(peer);
        }
        Err(reason) => println!("skipped onnxruntime: {reason}; two oracles are compared"),
    }
    let script = workspace.join("tests/conformance/oracles.py");
    checked(Command::new("python3").arg(script).arg(workspace).env("PYTHONPATH", path))
}

fn test(workspace: &Path, extent: &str) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut test = Command::new(cargo);
    test.args(["test", "--locked", "--package", "eggine-tests", "--test", "conformance"]);
    test.args(["--", "--nocapture"]).env("EGGINE_CONFORMANCE", extent).current_dir(workspace);
    checked(&mut test)
}

fn checked(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_owned();
    let status =
        command.status().map_err(|err| format!("cannot run {}: {err}", program.display()))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{} failed: {status}", program.display())),
    }
}
