//! The driver of ours as a library to put on a path, and the models of the acceptance test on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Models of `../shared/models` with the number of their cases, and those of the repository.
#[rustfmt::skip]
const SHARED: &[(&str, usize)] = &[
    ("mtcnn_pnet", 2), ("mtcnn_rnet", 1), ("mtcnn_onet", 1), ("ppocr_cls", 2), ("oww_embedding", 2), ("dnsmos_sig_bak_ovr", 1),
    ("resnet50.legacy", 2), ("bert_encoder.legacy", 2), ("whisper_encoder.legacy", 2), ("dit_transformer.legacy", 2), ("hifigan.legacy", 2),
];
const OURS: &[(&str, usize)] = &[("resnet50", 2), ("bert_encoder", 2), ("dit_transformer", 2)];

/// Builds the driver and puts it into `target/driver` under the names that clients look for.
pub(crate) fn driver(workspace: &Path) -> Result<(), String> {
    let folder = build(workspace)?.0;
    println!("LD_LIBRARY_PATH={}", folder.display());
    Ok(())
}

/// Builds the driver and `eggine`; the folder of the one and the path of the other.
fn build(workspace: &Path) -> Result<(PathBuf, PathBuf), String> {
    let cargo = || Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let args = ["build", "--locked", "-p", "eggine-cuda-driver", "-p", "eggine"];
    let status = cargo().args(args).current_dir(workspace).status();
    if !status.is_ok_and(|status| status.success()) {
        return Err("the driver does not build".into());
    }
    let metadata = cargo()
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(workspace)
        .output()
        .map_err(|err| format!("cannot run cargo metadata: {err}"))?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout)
        .map_err(|err| format!("cannot read cargo's metadata: {err}"))?;
    let target = metadata["target_directory"].as_str().ok_or("cargo tells no target folder")?;
    let built = Path::new(target).join("debug");
    let folder = workspace.join("target/driver");
    let explain = |err: std::io::Error| format!("cannot write {}: {err}", folder.display());
    fs::create_dir_all(&folder).map_err(explain)?;
    for name in ["libcuda.so.1", "libcuda.so"] {
        let place = folder.join(name);
        // A program that has the old file open keeps it.
        let _ = fs::remove_file(&place);
        fs::copy(built.join("libeggine_cuda_driver.so"), place).map_err(explain)?;
    }
    Ok((folder, built.join("eggine")))
}

/// Compiles, runs and compares every model with `--device cuda:0`, and compares bytes with the cpu device.
pub(crate) fn models(workspace: &Path) -> Result<(), String> {
    let (driver, eggine) = build(workspace)?;
    let scratch = workspace.join("target/cuda-models");
    fs::create_dir_all(&scratch)
        .map_err(|err| format!("cannot make {}: {err}", scratch.display()))?;
    let shared = workspace.join("../shared/models");
    let mut todo: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut add = |onnx: PathBuf, cases: &Path, name: &str, n_cases: usize| {
        todo.extend(
            (0..n_cases).map(|n| (onnx.clone(), cases.join(format!("{name}.case{n}.npz")))),
        );
    };
    let ours = workspace.join("examples/models");
    for &(name, n_cases) in OURS {
        add(ours.join(format!("{name}.onnx")), &ours, name, n_cases);
    }
    if shared.is_dir() {
        for &(name, n_cases) in SHARED {
            add(shared.join(format!("models/{name}.onnx")), &shared.join("refs"), name, n_cases);
        }
    } else {
        println!("skipped {} models: there is no ../shared/models", SHARED.len());
    }
    let run = |args: &[&str]| -> Result<String, String> {
        let mut command = Command::new(&eggine);
        command.args(args).env("LD_LIBRARY_PATH", &driver);
        let output = command.output().map_err(|err| format!("cannot run eggine: {err}"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(stderr.lines().last().unwrap_or("differs").to_owned()),
        }
    };
    let mut n_failed = 0;
    println!("{:<34} {:>9} {:>9}  result", "case", "compile", "run");
    for (onnx, case) in &todo {
        let text = |path: &Path| path.display().to_string();
        let engine = text(&scratch.join("model.engine"));
        let outputs = ["cuda:0", "cpu"].map(|device| scratch.join(format!("{}.npz", &device[..3])));
        let (onnx, case_text) = (text(onnx), text(case));
        let started = Instant::now();
        let mut run_s = 0.0;
        let result = (|| {
            let compile = ["compile", &onnx, "-o", &engine, "--shapes-from", &case_text];
            run(&[&compile[..], &["--device", "cuda:0", "--quiet"]].concat())?;
            let compile_s = started.elapsed().as_secs_f64();
            for (device, out) in ["cuda:0", "cpu"].iter().zip(&outputs) {
                let out = text(out);
                let args = ["run", &engine, "--inputs", &case_text, "--outputs", &out];
                run(&[&args[..], &["--device", device]].concat())?;
            }
            run_s = started.elapsed().as_secs_f64() - compile_s;
            run(&["compare", &engine, "--case", &case_text, "--device", "cuda:0"])?;
            let [a, b] = outputs.each_ref().map(fs::read);
            match (a, b) {
                (Ok(a), Ok(b)) if a == b => Ok(compile_s),
                (Ok(_), Ok(_)) => Err("not bit-identical to --device cpu".to_owned()),
                (Err(err), _) | (_, Err(err)) => Err(err.to_string()),
            }
        })();
        let name =
            case.file_stem().map_or_else(String::new, |it| it.to_string_lossy().into_owned());
        match result {
            Ok(compile_s) => {
                println!("{name:<34} {compile_s:>7.2} s {run_s:>7.2} s  agrees, bit-identical");
            }
            Err(reason) => {
                n_failed += 1;
                println!("{name:<34} FAILED: {reason}");
            }
        }
    }
    let n_cases = todo.len();
    if n_failed == 0 { Ok(()) } else { Err(format!("{n_failed} of {n_cases} cases failed")) }
}
