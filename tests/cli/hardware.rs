//! What a device is asked once it is there, on the cpu device: tuning an engine, calibrating, verifying every
//! family, and the GPU bench kit's dry run.

use std::path::Path;
use std::process::Command;

use super::{compile, eggine, example, fails, path, succeeds};

#[test]
fn a_predicted_engine_is_tuned_on_a_device_and_nothing_is_measured_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, output) =
        compile("dit_transformer", folder.path(), &["--device", "model:a100", "--budget", "20"]);
    succeeds(&output);
    let (evidence, tuned) =
        (folder.path().join("evidence.sqlite"), folder.path().join("tuned.engine"));
    let run = |out: &Path| {
        let report = succeeds(&eggine(&[
            "tune",
            path(&engine),
            "-o",
            path(out),
            "--evidence",
            path(&evidence),
            "--budget",
            "6",
            "--device-threads",
            "1",
            "--json",
        ]));
        serde_json::from_str::<serde_json::Value>(&report).unwrap()
    };
    let first = run(&tuned);
    assert!(first["n_measured"].as_u64().unwrap() > 6, "its own kernels and 6 more: {first}");
    assert_eq!(first["unknown"], serde_json::json!([]), "{first}");
    let shown = succeeds(&eggine(&["inspect", path(&tuned)]));
    assert!(shown.contains("measured on cpu/"), "{shown}");
    let times: Vec<&str> = shown.lines().filter(|line| line.contains(" ms ")).collect();
    assert!(!times.is_empty() && times.iter().all(|line| line.contains("ms measured")), "{shown}");
    let case = example("dit_transformer.case0.npz");
    succeeds(&eggine(&["compare", path(&tuned), "--case", path(&case)]));
    // The same again: everything is in the evidence, and the engine is the same.
    let again = folder.path().join("again.engine");
    let second = run(&again);
    assert_eq!(second["n_measured"], 0, "{second}");
    assert_eq!(second["n_candidates"], first["n_candidates"]);
    assert!(std::fs::read(&tuned).unwrap() == std::fs::read(&again).unwrap(), "the same bytes");
}

#[test]
fn what_is_no_engine_is_not_tuned() {
    let evidence = tempfile::tempdir().unwrap();
    let file = evidence.path().join("e.sqlite");
    let model = example("resnet50.onnx");
    let output = eggine(&["tune", path(&model), "--evidence", path(&file)]);
    fails(&output, &["resnet50.onnx", "not an Eggine engine"]);
}

#[test]
fn a_calibration_is_kept_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let evidence = folder.path().join("evidence.sqlite");
    let report = succeeds(&eggine(&[
        "calibrate",
        "--evidence",
        path(&evidence),
        "--device-threads",
        "1",
        "--json",
    ]));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let probes = report["probes"].as_array().unwrap();
    assert!(probes.len() >= 9, "{report}");
    assert!(probes.iter().all(|probe| probe["measured_ns"].as_f64().unwrap() > 0.0), "{report}");
    let alone = report["isolated"].as_array().unwrap();
    assert!(
        alone.len() == 4 && alone.iter().all(|it| it["value"].as_f64().unwrap() > 0.0),
        "{report}"
    );
    let (before, after) = (report["error"][0].as_f64(), report["error"][1].as_f64());
    assert!(after.unwrap() < before.unwrap(), "a fit predicts its points better: {report}");
    assert_eq!(report["skipped"].as_array().unwrap().len(), 1, "{report}");
    // A compilation on this device with this evidence predicts with the new constants.
    let predicted = |extra: &[&str]| {
        let mut arguments = vec!["--device-threads", "1"];
        arguments.extend(extra);
        let (engine, output) = compile("dit_transformer", folder.path(), &arguments);
        succeeds(&output);
        let shown = succeeds(&eggine(&["inspect", path(&engine), "--json"]));
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let kernels = shown["manifest"]["kernels"].as_array().unwrap().clone();
        kernels.iter().map(|it| it["predicted_ns"].as_f64().unwrap()).sum::<f64>()
    };
    assert_ne!(predicted(&["--evidence", path(&evidence)]), predicted(&[]));
}

#[test]
fn every_family_is_verified_and_a_bad_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("regions.gir");
    let text = "graph @a(v0: f32[8,40]) {\n v1 = reduce_sum v0 {axes=[1]}\n return v1\n}\ngraph @b(v0: f32[16,16], v1: weight f32[16,16]) {\n v2 = matmul v0, v1\n return v2\n}\n";
    std::fs::write(&file, text).unwrap();
    let report = succeeds(&eggine(&["selftest", path(&file), "--neighbours", "1"]));
    for word in ["2 regions", "contraction", "row", "pointwise", "0 wrong"] {
        assert!(report.contains(word), "{report}");
    }
    std::fs::write(&file, "graph @a(v0: f32[8]) {\n v1 = nothing v0\n return v1\n}\n").unwrap();
    fails(&eggine(&["selftest", path(&file)]), &["regions.gir"]);
}

/// The kit's whole path with small models: compiled, verified, compared, timed; what is missing is named.
#[test]
fn the_gpu_bench_kit_runs_dry() {
    let kit = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/gpu/run.sh");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&kit);
        command.args(arguments).env("EGGINE", env!("CARGO_BIN_EXE_eggine"));
        command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap()
    };
    let output = run(&["--dry", "--device", "cpu"]);
    let text = succeeds(&output);
    for word in [
        "skipped wgmma descriptor forms",
        "0 wrong",
        "resnet50: compiled",
        "bert_encoder: compiled",
        "resnet50 eggine: ",
        "3 models timed",
        "torch.compile(max-autotune) on resnet50",
        "these times are of no GPU, nothing is kept",
    ] {
        assert!(text.contains(word), "`{word}` is missing from: {text}");
    }
    // The half that needs torch runs with stand-ins, and a name that torch has not is found.
    let test = |arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.arg(kit.with_file_name("test_kit.py")).args(arguments);
        command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap()
    };
    assert!(succeeds(&test(&[])).contains("the kit runs: 8 models, 4 contestants each"));
    let output = test(&["--without", "compile"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("no attribute 'compile'"), "{stderr}");
    // A device that is not there ends it with the command's own message.
    let output = run(&["--dry", "--device", "nowhere"]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("nowhere"), "{stderr}");
}
