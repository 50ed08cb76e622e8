//! Programs on the command line: a range of shapes in one file, a fault that is named, values that are no
//! tensors.

use std::path::Path;

use eggine::ir::onnx::proto::{ElementTypeProto, GraphProto, TypeProto, ValueInfoProto};
use eggine::runtime::case::write_npz;
use eggine::{DType, Tensor};

use super::build::{Build, int, model, named, node, subgraph, value_info};
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
    assert_eq!(
        report["n_engines"], 3,
        "one of just its shape, and one each up to opt and max: {report}"
    );
    assert_eq!(report["wide"].as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(report["n_host_steps"], 0, "{report}");

    for case in ["bert_encoder.case0.npz", "bert_encoder.case1.npz"] {
        let case = example(case);
        succeeds(&eggine(&["compare", path(&program), "--case", path(&case)]));
    }
    let case = example("bert_encoder.case1.npz");
    let args = ["compare", path(&program), "--against", "oracle", "--case", path(&case)];
    let text = succeeds(&eggine(&[args.as_slice(), &["--layers"]].concat()));
    assert!(text.contains("no launch is over budget"), "{text}");
    let output = folder.path().join("out.npz");
    let run = ["run", path(&program), "--inputs", path(&case), "--outputs", path(&output)];
    succeeds(&eggine(&run));
    assert!(output.exists());
    let bench = ["bench", path(&program), "--inputs", path(&case), "--repeats", "3"];
    assert!(succeeds(&eggine(&bench)).contains("over 3 runs"));
    fails(&eggine(&["bench", path(&program)]), &["--inputs"]);
    let shown = succeeds(&eggine(&["inspect", path(&program)]));
    for words in [
        "range    input_ids: 1..2 x 1..40",
        "engines  3",
        "serves   all shapes up to",
        "host     nothing",
    ] {
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

/// Doubles `x` until its largest element reaches `limit`, at most 6 times, never beyond `cap`; then keeps it
/// if its sum is above 20, else repeats it. `factor` scales what is repeated.
fn walked(cap: f32, factor: f32) -> Build {
    let body = GraphProto {
        node: vec![
            named("double", node("Add", &["state", "state"], &["twice"], vec![])),
            named("clamp", node("Min", &["twice", "cap"], &["next"], vec![])),
            node("ReduceMax", &["next"], &["most"], vec![int("keepdims", 0)]),
            node("Less", &["most", "limit"], &["go_on"], vec![]),
        ],
        input: vec![
            value_info("trip", DType::I64, ""),
            value_info("before", DType::Bool, ""),
            value_info("state", DType::F32, "3"),
        ],
        output: vec![value_info("go_on", DType::Bool, ""), value_info("next", DType::F32, "3")],
        ..Default::default()
    };
    let keep = GraphProto {
        node: vec![node("Neg", &["last"], &["kept"], vec![])],
        output: vec![value_info("kept", DType::F32, "")],
        ..Default::default()
    };
    let repeat = GraphProto {
        node: vec![
            named("scale", node("Mul", &["last", "factor"], &["scaled"], vec![])),
            node("Concat", &["scaled", "scaled"], &["twice_as_long"], vec![int("axis", 0)]),
        ],
        output: vec![value_info("twice_as_long", DType::F32, "")],
        ..Default::default()
    };
    let sides = vec![subgraph("then_branch", keep), subgraph("else_branch", repeat)];
    model(17)
        .input("x", DType::F32, "3")
        .input("limit", DType::F32, "")
        .constant("trips", &Tensor::i64(&[], &[6]))
        .floats("cap", &[], &[cap])
        .floats("factor", &[], &[factor])
        .floats("twenty", &[], &[20.0])
        .node(named(
            "grow",
            node("Loop", &["trips", "", "x"], &["last"], vec![subgraph("body", body)]),
        ))
        .op("ReduceSum", &["last"], &["sum"], vec![int("keepdims", 0)])
        .op("Greater", &["sum", "twenty"], &["is_large"], vec![])
        .node(named("which", node("If", &["is_large"], &["part"], sides)))
        .op("Exp", &["part"], &["y"], vec![])
        .output("last")
        .output("y")
}

#[test]
fn a_fault_is_named_with_its_loop_its_iteration_and_its_branch() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let case = file("case.npz");
    let arrays = [("x", Tensor::f32(&[3], &[1.0, 0.5, 0.25])), ("limit", Tensor::f32(&[], &[7.0]))];
    write_npz(&case, &arrays.map(|(name, tensor)| (name.to_owned(), tensor))).unwrap();
    let right = file("right.onnx");
    std::fs::write(&right, walked(100.0, 0.5).bytes()).unwrap();
    // Neither an engine nor a program was asked for: the model becomes one.
    let args = ["compare", path(&right), "--against", "oracle", "--case", path(&case), "--layers"];
    let text = succeeds(&eggine(&args));
    assert!(text.contains("y f32[6]: agrees") && text.contains("no launch is over"), "{text}");

    let compared = |name: &str, m: &Build| -> serde_json::Value {
        let (onnx, program) = (file(&format!("{name}.onnx")), file(&format!("{name}.program")));
        std::fs::write(&onnx, m.bytes()).unwrap();
        let args = ["compile", path(&onnx), "-o", path(&program), "--shapes-from", path(&case)];
        succeeds(&command().args(args).arg("--quiet").output().unwrap());
        let against = ["--against", "oracle", "--layers"];
        let args = ["compare", path(&program), "--case", path(&case)];
        let text = succeeds(&command().args(args).args(against).output().unwrap());
        assert!(text.contains("no launch is over"), "of its own model: {text}");
        let engines = ["--engine", path(&program), "--case", path(&case), "--json"];
        let args = ["compare", path(&right), "--against", "oracle"];
        let output = command().args(args).args(engines).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    // 1, 2, 4, and then 6 where 8 should be.
    let found = compared("low", &walked(6.0, 0.5));
    assert_eq!(found["launch"]["node"], "grow/body/clamp", "{found}");
    assert_eq!(found["launch"]["place"], "graph `grow/body`, iteration 2 of `grow`", "{found}");
    assert_eq!(found["arrived"]["place"], "graph `grow/body`, iteration 2 of `grow`", "{found}");
    assert!(found["n_compared"].as_u64().unwrap() > 2, "{found}");
    assert_eq!(found["outputs"][0]["agrees"], false);
    let found = compared("scaled", &walked(100.0, 0.75));
    assert_eq!(found["launch"]["place"], "graph `which/else`", "{found}");
    let sources = found["launch"]["sources"].as_array().unwrap();
    assert!(sources.iter().any(|it| it == "which/else/scale"), "{found}");
    assert_eq!(found["outputs"][0]["agrees"], true, "{found}");
    assert_eq!(found["outputs"][1]["agrees"], false, "{found}");
}

#[test]
fn sequences_are_arrays_by_number() {
    let element = value_info("", DType::F32, "n").r#type;
    let element = ElementTypeProto { elem_type: element.map(Box::new) };
    let sequence = |name: &str| {
        let ty = TypeProto { sequence_type: Some(Box::new(element.clone())), ..Default::default() };
        ValueInfoProto { name: Some(name.into()), r#type: Some(ty) }
    };
    let mut m = model(17)
        .input("at", DType::I64, "")
        .op("SequenceAt", &["all", "at"], &["one"], vec![])
        .op("Exp", &["one"], &["y"], vec![])
        .op("SequenceErase", &["all", "at"], &["rest"], vec![])
        .output("y");
    m.graph().input.push(sequence("all"));
    m.graph().output.push(sequence("rest"));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (onnx, program, out) = (file("m.onnx"), file("m.program"), file("out.npz"));
    std::fs::write(&onnx, m.bytes()).unwrap();
    let write = |name: &str, arrays: &[(&str, Tensor)]| {
        let own = arrays.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone()));
        write_npz(&file(name), &own.collect::<Vec<_>>()).unwrap();
        file(name)
    };
    let (first, second) = (Tensor::f32(&[2], &[0.0, 1.0]), Tensor::f32(&[1], &[2.0]));
    let at = || ("at", Tensor::i64(&[], &[0]));
    let two = write("two.npz", &[at(), ("all.0", first.clone()), ("all.1", second.clone())]);
    let args = ["compile", path(&onnx), "-o", path(&program), "--shapes-from", path(&two)];
    succeeds(&command().args(args).arg("--quiet").output().unwrap());
    let text = succeeds(&eggine(&[
        "compare",
        path(&program),
        "--against",
        "oracle",
        "--case",
        path(&two),
    ]));
    assert!(text.contains("rest.0 f32[1]: agrees"), "{text}");
    // The same by number, and a sequence that is empty afterwards.
    let one =
        write("one.npz", &[at(), ("in1.0", first.clone()), ("in1.length", Tensor::i64(&[], &[1]))]);
    let run = |inputs: &Path| {
        eggine(&["run", path(&program), "--inputs", path(inputs), "--outputs", path(&out)])
    };
    succeeds(&run(&one));
    let written = eggine::Case::read(&out).unwrap();
    assert_eq!(written.names().collect::<Vec<_>>(), ["rest.length", "y"]);
    succeeds(&run(&two));
    let written = eggine::Case::read(&out).unwrap();
    assert_eq!(written.array("rest.0").unwrap(), Some(&second));
    let expected = |rest: &Tensor| {
        let y = Tensor::f32(&[2], &[1.0, std::f32::consts::E]);
        let arrays = [
            ("all.0", first.clone()),
            ("all.1", second.clone()),
            ("y", y),
            ("rest.0", rest.clone()),
        ];
        let case = write("expected.npz", &[[at()].as_slice(), &arrays].concat());
        eggine(&["compare", path(&program), "--case", path(&case)])
    };
    assert!(succeeds(&expected(&second)).contains("rest.0 f32[1]: agrees"));
    assert_eq!(expected(&Tensor::f32(&[1], &[3.0])).status.code(), Some(1));
    fails(&run(&write("none.npz", &[at()])), &["`all.0`", "in1.0"]);
    let wrong =
        write("wrong.npz", &[at(), ("all.0", first), ("all.length", Tensor::i64(&[], &[3]))]);
    fails(&run(&wrong), &["`all.length`", "1 elements"]);
    fails(&eggine(&["compile", path(&onnx), "-o", path(&program), "--quiet"]), &["--shapes-from"]);
}

#[test]
fn an_engine_of_a_range_that_is_wrong_is_told_from_those_of_the_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let scaled = |factor: f32| {
        let m = model(17).input("x", DType::F32, "n,3").floats("factor", &[], &[factor]);
        m.op("Mul", &["x", "factor"], &["scaled"], vec![])
            .op("Softmax", &["scaled"], &["y"], vec![int("axis", -1)])
            .output("y")
    };
    let (right, wrong, program) = (file("right.onnx"), file("wrong.onnx"), file("wrong.program"));
    std::fs::write(&right, scaled(0.5).bytes()).unwrap();
    std::fs::write(&wrong, scaled(0.75).bytes()).unwrap();
    let range = ["--min-shapes", "x:1x3", "--opt-shapes", "x:4x3", "--max-shapes", "x:8x3"];
    let args = ["compile", path(&wrong), "-o", path(&program), "--quiet"];
    succeeds(&command().args(args).args(range).output().unwrap());
    let args = ["compare", path(&program), "--against", "oracle", "--shape", "x=3,3"];
    assert!(succeeds(&eggine(&args)).contains("y f32[3,3]: agrees"));
    let args = ["compare", path(&right), "--against", "oracle", "--engine", path(&program)];
    let compared = |shape: &str| {
        let output = command().args(args).args(["--shape", shape, "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let found = compared("x=3,3");
    assert_eq!((&found["only_wide"], &found["launch"]), (&true.into(), &().into()), "{found}");
    // The opt point has an engine of its own.
    let found = compared("x=4,3");
    assert_eq!(found["only_wide"], false, "{found}");
    assert_eq!(found["launch"]["place"], "the main graph", "{found}");
}
