//! Installs the assembler, as a program, as NVIDIA's linker and, where there is gcc, as a library, the two
//! for use in process. All come from Python wheels, which pip checks against the hashes in `tools/`; their licence does not allow us
//! to commit them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Version of the assembler, which is that of the wheels.
const VERSION: &str = "13.0.88";

/// Installs `target/tools/ptxas-VERSION/ptxas` and `target/tools/nvptxcompiler-VERSION/libnvptxcompiler.so`,
/// unless they are there. The library is optional: what is missing for it is said.
pub(crate) fn install(workspace: &Path) -> Result<(), String> {
    let tools = workspace.join("target/tools");
    let installed = tools.join(format!("ptxas-{VERSION}/ptxas"));
    if runs(&installed) {
        println!("ptxas {VERSION} is installed");
    } else {
        staged(&tools, |staging| {
            let wheel = download(workspace, "requirements.txt", staging)?;
            let ptxas = wheel.join("nvidia/cu13/bin/ptxas");
            make_executable(&ptxas)?;
            if !runs(&ptxas) {
                return Err("the wheel's ptxas does not run on this machine".into());
            }
            publish(&ptxas, &installed)
        })?;
    }
    client(workspace, &tools);
    linker(workspace, &tools);
    let library = tools.join(format!("nvptxcompiler-{VERSION}/libnvptxcompiler.so"));
    if library.exists() {
        println!("nvPTXCompiler {VERSION} is installed");
        return Ok(());
    }
    if !output_ok(Command::new("gcc").arg("--version")).unwrap_or(false) {
        println!("skipped nvPTXCompiler: there is no gcc to link it with; ptxas is used instead");
        return Ok(());
    }
    let linked = staged(&tools, |staging| {
        let wheel = download(workspace, "nvptxcompiler.txt", staging)?;
        let shared = staging.join("libnvptxcompiler.so");
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-s", "-o"]).arg(&shared).arg("-Wl,--whole-archive");
        gcc.arg(wheel.join("nvidia/cu13/lib/libnvptxcompiler_static.a"));
        gcc.args(["-Wl,--no-whole-archive", "-lpthread", "-lm", "-ldl"]);
        if !output_ok(&mut gcc)? {
            return Err("gcc cannot link the wheel's library".into());
        }
        publish(&shared, &library)
    });
    if let Err(reason) = linked {
        println!("skipped nvPTXCompiler: {reason}; ptxas is used instead");
    }
    Ok(())
}

/// Installs the Python client of the driver API that tests run, for this machine's Python. It is optional.
fn client(workspace: &Path, tools: &Path) {
    let installed = tools.join("cuda-bindings-13.5.0");
    if installed.is_dir() {
        println!("cuda-bindings 13.5.0 is installed");
        return;
    }
    let made =
        staged(tools, |staging| publish(&download(workspace, "clients.txt", staging)?, &installed));
    if let Err(reason) = made {
        println!("skipped cuda-bindings: {reason}; its test is skipped too");
    }
}

/// Installs the Python packages of a requirements file below `target/tools`, for this machine's Python; the
/// folder that has to be in Python's path.
pub(crate) fn python(workspace: &Path, requirements: &str, name: &str) -> Result<PathBuf, String> {
    let tools = workspace.join("target/tools");
    let version = output(Command::new("python3").arg("--version"))?.stdout;
    let version = String::from_utf8_lossy(&version).trim().replace("Python ", "");
    let installed = tools.join(format!("{name}-python-{version}"));
    if !installed.is_dir() {
        staged(&tools, |staging| {
            publish(&download(workspace, requirements, staging)?, &installed)
        })?;
    }
    Ok(installed)
}

/// Installs nvJitLink, another way to assemble in process. It is optional.
fn linker(workspace: &Path, tools: &Path) {
    let installed = tools.join(format!("nvjitlink-{VERSION}/libnvJitLink.so.13"));
    if installed.exists() {
        println!("nvJitLink {VERSION} is installed");
        return;
    }
    let made = staged(tools, |staging| {
        let wheel = download(workspace, "nvjitlink.txt", staging)?;
        publish(&wheel.join("nvidia/cu13/lib/libnvJitLink.so.13"), &installed)
    });
    if let Err(reason) = made {
        println!("skipped nvJitLink: {reason}; its test is skipped too");
    }
}

/// Runs `make` with a directory of its own: what it makes becomes visible when it is complete.
fn staged(tools: &Path, make: impl FnOnce(&Path) -> Result<PathBuf, String>) -> Result<(), String> {
    let staging = tools.join(format!("staging-{}", std::process::id()));
    fs::create_dir_all(&staging)
        .map_err(|err| format!("cannot create {}: {err}", staging.display()))?;
    let result = make(&staging);
    // What cannot be removed is only space.
    let _ = fs::remove_dir_all(&staging);
    println!("installed {}", result?.display());
    Ok(())
}

fn runs(ptxas: &Path) -> bool {
    let output = Command::new(ptxas).arg("--version").output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).contains(&format!("V{VERSION}"))
    })
}

/// Downloads and unpacks the wheels of a requirements file; the folder of their contents.
fn download(workspace: &Path, requirements: &str, staging: &Path) -> Result<PathBuf, String> {
    let requirements = workspace.join("xtask/tools").join(requirements);
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
            return Err(format!("a wheel has another hash than {pinned}"));
        }
        let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
        let reason = last.unwrap_or("no message").trim();
        let wanted = requirements.file_stem().unwrap_or_default().display();
        return Err(format!("cannot download the wheels of `{wanted}` (offline?): {reason}"));
    }
    let entries =
        fs::read_dir(staging).map_err(|err| format!("cannot read {}: {err}", staging.display()))?;
    let unpacked = staging.join("wheel");
    let wheels = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"));
    for wheel in wheels {
        let mut unzip = Command::new("python3");
        unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked);
        if !output_ok(&mut unzip)? {
            return Err(format!("cannot unpack {}", wheel.display()));
        }
    }
    if unpacked.is_dir() { Ok(unpacked) } else { Err("pip left no wheel".into()) }
}

fn publish(made: &Path, installed: &Path) -> Result<PathBuf, String> {
    let dir = installed.parent().expect("the path has a directory");
    fs::create_dir_all(dir).map_err(|err| format!("cannot create {}: {err}", dir.display()))?;
    fs::rename(made, installed)
        .map_err(|err| format!("cannot create {}: {err}", installed.display()))?;
    Ok(installed.to_owned())
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
