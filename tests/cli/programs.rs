//! Programs on the command line: a range of shapes in one file.

use super::{command, eggine, example, fails, path, succeeds};

#[test]
fn one_file_serves_a_range_of_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("bert.program");
    let model = example("bert_encoder.onnx");
    let shapes = |batch: usize, length: usize| {
        ["input_ids", "attention_mask", "token_type_ids"]
            .map(|name| format!("{name}:{batch}x{length}"))
            .join(",")
    };
    let (min, opt, max) = (shapes(1, 1), shapes(2, 16), shapes(2, 40));
    let args = ["compile", path(&model), "-o", path(&program), "--quiet", "--json"];
    let range = ["--min-shapes", &min, "--opt-shapes", &opt, "--max-shapes", &max];
    let report = succeeds(&command().args(args).args(range).output().unwrap());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["n_engines"], 1, "{report}");
    assert_eq!(report["n_host_steps"], 0, "{report}");

    for case in ["bert_encoder.case0.npz", "bert_encoder.case1.npz"] {
        let case = example(case);
        succeeds(&eggine(&["compare", path(&program), "--case", path(&case)]));
    }
    let case = example("bert_encoder.case1.npz");
    let output = folder.path().join("out.npz");
    let run = ["run", path(&program), "--inputs", path(&case), "--outputs", path(&output)];
    succeeds(&eggine(&run));
    assert!(output.exists());
    let bench = ["bench", path(&program), "--inputs", path(&case), "--repeats", "3"];
    assert!(succeeds(&eggine(&bench)).contains("over 3 runs"));
    fails(&eggine(&["bench", path(&program)]), &["--inputs"]);
    let shown = succeeds(&eggine(&["inspect", path(&program)]));
    for words in ["range    input_ids: 1..2 x 1..40", "engines  1", "host     nothing"] {
        assert!(shown.contains(words), "`{words}` is missing from: {shown}");
    }

    // Outside of the range, and where an engine is wanted.
    let narrow = folder.path().join("narrow.program");
    let max = shapes(2, 16);
    let args = ["compile", path(&model), "-o", path(&narrow), "--quiet"];
    let range = ["--min-shapes", &min, "--max-shapes", &max];
    succeeds(&command().args(args).args(range).output().unwrap());
    let run = ["run", path(&narrow), "--inputs", path(&case), "--outputs", path(&output)];
    fails(&eggine(&run), &["`input_ids`", "[1, 1] to [2, 16]", "--max-shapes"]);
    fails(&eggine(&["explain", path(&narrow)]), &["program", "`run`"]);
}

#[test]
fn ranges_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.program");
    let model = example("bert_encoder.onnx");
    let compile = |min: &str, max: &str| {
        let args = ["compile", path(&model), "-o", path(&file), "--quiet"];
        let range = ["--min-shapes", min, "--max-shapes", max];
        command().args(args).args(range).output().unwrap()
    };
    let rest = "attention_mask:1x8,token_type_ids:1x8";
    let with = |ids: &str| format!("input_ids:{ids},{rest}");
    fails(&compile(&with("2x8"), &with("1x8")), &["`input_ids`", "no range"]);
    fails(&compile(&with("1x8"), rest), &["`input_ids`", "--max-shapes"]);
    fails(&compile("nobody:1", "nobody:1"), &["nobody"]);
    assert!(!file.exists());
    let output = compile("input_ids", "input_ids:1x8");
    assert_eq!(output.status.code(), Some(2));
}
