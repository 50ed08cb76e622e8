//! `eggine compare MODEL --against …` and `eggine reduce`: what is wrong is named, and made small.

use std::path::{Path, PathBuf};

use eggine::DType;

use super::build::{Build, int, model, named, node};
use super::{eggine, fails, path, succeeds};

/// Two products with a clamp between; the second one's weight is `w`.
fn products(w: f32) -> Build {
    let m = model(17)
        .input("x", DType::F32, "2,3")
        .floats("a", &[3, 4], &[0.25, -0.5, 1.0, 0.75].repeat(3))
        .floats("b", &[4, 5], &[w; 20]);
    let m = m.node(named("first", node("MatMul", &["x", "a"], &["p"], vec![])));
    let m = m.node(named("clamp", node("Relu", &["p"], &["q"], vec![])));
    let m = m.node(named("second", node("MatMul", &["q", "b"], &["r"], vec![])));
    m.node(named("soft", node("Softmax", &["r"], &["y"], vec![int("axis", 0)]))).output("y")
}

fn write(folder: &Path, name: &str, m: &Build) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, m.bytes()).unwrap();
    path
}

#[test]
fn a_model_agrees_with_the_oracle_and_a_wrong_engine_is_located() {
    let folder = tempfile::tempdir().unwrap();
    let right = write(folder.path(), "right.onnx", &products(0.5));
    let text = succeeds(&eggine(&["compare", path(&right), "--against", "oracle", "--layers"]));
    assert!(text.contains("y f32[2,5]: agrees") && text.contains("no launch is over"), "{text}");

    let wrong = write(folder.path(), "wrong.onnx", &products(0.75));
    let engine = folder.path().join("wrong.engine");
    succeeds(&eggine(&["compile", path(&wrong), "-o", path(&engine), "--quiet"]));
    let args =
        ["compare", path(&right), "--against", "oracle", "--engine", path(&engine), "--json"];
    let output = eggine(&args);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["agrees"], false);
    let sources = found["launch"]["sources"].as_array().unwrap();
    assert!(sources.iter().any(|it| it == "second"), "{found}");
    assert!(found["n_compared"].as_u64().unwrap() > 0, "{found}");
}

#[test]
fn a_missing_python_or_package_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let m = write(folder.path(), "m.onnx", &products(0.5));
    let with =
        |python: &str| eggine(&["compare", path(&m), "--against", "ort", "--python", python]);
    fails(&with("/nowhere/python"), &["--against ort needs Python", "/nowhere/python", "--python"]);
    let fake = folder.path().join("python");
    std::fs::write(&fake, "#!/bin/sh\necho onnxruntime >&2\nexit 3\n").unwrap();
    let mut mode = std::fs::metadata(&fake).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(&fake, mode).unwrap();
    fails(&with(path(&fake)), &["package `onnxruntime`", "-m pip install onnxruntime"]);
    fails(&eggine(&["compare", path(&m)]), &[]);
}

#[test]
fn a_failing_model_becomes_small_and_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut m = model(17).input("x", DType::F32, "2,3").floats("w", &[3], &[0.1, 0.2, 0.3]);
    let mut last = "x".to_owned();
    for i in 0..12 {
        let op = if i == 7 { "Erf" } else { ["Neg", "Exp", "Abs"][i % 3] };
        let next = format!("v{i}");
        m = m.op(op, &[&last], &[&next], vec![]);
        last = next;
    }
    let m = m.op("Add", &[&last, "w"], &["y"], vec![]).op("Relu", &["y"], &["z"], vec![]);
    let onnx = write(folder.path(), "m.onnx", &m.output("z").output("v3"));
    let reduced = |name: &str| {
        let out = folder.path().join(name);
        // It fails as long as it has an `Erf`.
        let check = "! grep -q Erf {} && test -n \"$EGGINE_MODEL\"";
        let args = ["reduce", path(&onnx), "--check", check, "-o", path(&out), "--json"];
        let report: serde_json::Value = serde_json::from_str(&succeeds(&eggine(&args))).unwrap();
        (report, std::fs::read(out).unwrap())
    };
    let (report, bytes) = reduced("first.onnx");
    assert_eq!(report["before"]["nodes"], 14);
    assert_eq!(report["after"]["nodes"], 1, "{report}");
    assert!(report["n_checks"].as_u64().unwrap() < 60, "{report}");
    assert!(bytes == reduced("second.onnx").1, "the same model each time");
    let out = folder.path().join("first.onnx");
    let text = succeeds(&eggine(&["check", path(&out)]));
    assert!(text.contains("1 nodes") && text.contains("Erf"), "{text}");
    let none = eggine(&["reduce", path(&onnx), "--check", "true", "-o", path(&out)]);
    fails(&none, &["the check does not fail", "m.onnx"]);
}
