//! Installs the assembler. It comes from a Python wheel, which pip checks against the hash in
//! `tools/requirements.txt`; its licence does not allow us to commit it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Version of the assembler, which is that of the wheel.
const VERSION: &str = "13.0.88";

/// Where the wheel has it.
const IN_WHEEL: &str = "nvidia/cu13/bin/ptxas";

/// Installs `target/tools/ptxas-VERSION/ptxas`, unless it is there.
pub(crate) fn install(workspace: &Path) -> Result<(), String> {
    let tools = workspace.join("target/tools");
    let installed = tools.join(format!("ptxas-{VERSION}/ptxas"));
    if runs(&installed) {
        println!("ptxas {VERSION} is installed");
        return Ok(());
    }
    // Everything happens in a directory of our own, which becomes visible when it is complete.
    let staging = tools.join(format!("staging-{}", std::process::id()));
    let result = download(workspace, &staging).and_then(|ptxas| publish(&ptxas, &installed));
    // What cannot be removed is only space.
    let _ = fs::remove_dir_all(&staging);
    result?;
    println!("installed {}", installed.display());
    Ok(())
}

fn runs(ptxas: &Path) -> bool {
    let output = Command::new(ptxas).arg("--version").output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).contains(&format!("V{VERSION}"))
    })
}

fn download(workspace: &Path, staging: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(staging)
        .map_err(|err| format!("cannot create {}: {err}", staging.display()))?;
    let requirements = workspace.join("xtask/tools/requirements.txt");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary=:all:", "--require-hashes", "-r"])
        .arg(&requirements)
        .arg("-d")
        .arg(staging);
    let output = output(&mut pip)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        if stderr.contains("DO NOT MATCH THE HASHES") {
            let pinned = requirements.display();
            return Err(format!("the wheel of ptxas {VERSION} has another hash than {pinned}"));
        }
        let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
        let reason = last.unwrap_or("no message").trim();
        return Err(format!("cannot download ptxas {VERSION} (offline?): {reason}"));
    }
    let entries =
        fs::read_dir(staging).map_err(|err| format!("cannot read {}: {err}", staging.display()))?;
    let wheel = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or("pip left no wheel")?;
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(staging.join("wheel"));
    if !output_ok(&mut unzip)? {
        return Err(format!("cannot unpack {}", wheel.display()));
    }
    let ptxas = staging.join("wheel").join(IN_WHEEL);
    make_executable(&ptxas)?;
    if runs(&ptxas) {
        Ok(ptxas)
    } else {
        Err(format!("the wheel's {IN_WHEEL} does not run on this machine"))
    }
}

fn publish(ptxas: &Path, installed: &Path) -> Result<(), String> {
    let dir = installed.parent().expect("the path has a directory");
    fs::create_dir_all(dir).map_err(|err| format!("cannot create {}: {err}", dir.display()))?;
    fs::rename(ptxas, installed)
        .map_err(|err| format!("cannot create {}: {err}", installed.display()))
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|err| format!("cannot make {} executable: {err}", path.display()))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<(), String> {
    Ok(())
}

fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|err| format!("cannot run {}: {err}", command.get_program().display()))
}

fn output_ok(command: &mut Command) -> Result<bool, String> {
    Ok(output(command)?.status.success())
}
