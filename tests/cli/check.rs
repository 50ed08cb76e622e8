//! `eggine check`: covered models exit with 0, others with 1 and everything that is missing; and no command
//! panics when nobody reads what it prints.

use super::{command, eggine, example, fails, path, succeeds};

#[test]
fn a_covered_model_is_described_without_a_device() {
    let text = succeeds(&eggine(&["check", path(&example("bert_encoder.onnx"))]));
    for word in ["opset", "LayerNormalization", "50%", "dynamic", "covered: "] {
        assert!(text.contains(word), "`{word}` is missing from: {text}");
    }
    let case = example("bert_encoder.case0.npz");
    let model = example("bert_encoder.onnx");
    let args = ["check", path(&model), "--shapes-from", path(&case), "--json"];
    let json: serde_json::Value = serde_json::from_str(&succeeds(&eggine(&args))).unwrap();
    assert_eq!(json["covered"], true);
    assert_eq!(json["assumed_shapes"], serde_json::json!({}), "all shapes were given");
    assert!(json["operators"].as_array().unwrap().iter().all(|it| it["known"] == true));
}

#[test]
fn bad_files_and_shapes_are_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("m.onnx");
    std::fs::write(&html, "<html>404</html>").unwrap();
    fails(&eggine(&["check", path(&html)]), &["m.onnx", "HTML"]);
    let model = example("resnet50.onnx");
    fails(&eggine(&["check", path(&model), "--shape", "nope=1"]), &["`nope`"]);
}

/// As `eggine inspect … | head`, with a reader that is gone before the first byte.
#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let model = example("resnet50.onnx");
    for args in [&["rules", "list"][..], &["doctor"], &["check", path(&model), "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command();
        command.args(args).stdout(writer).stderr(std::process::Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
        assert_eq!(output.status.code(), Some(141), "{args:?}");
    }
}
