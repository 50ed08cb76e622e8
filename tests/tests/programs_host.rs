//! What the host of a program does besides branches and loops: scans, functions of the model, sequences,
//! optionals. Values are worked out by hand.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "import/build.rs"]
#[allow(dead_code, reason = "shared with the tests of import")]
mod build;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use build::{Build, float, in_domain, int, ints, model, named, node, subgraph, value_info};
use eggine::runtime::program::{Event, HostValue, Program, RunError, Session};
use eggine::search::{Job, Specialiser, compile_program};
use eggine_ir::graph::eval::{Rounding, eval};
use eggine_ir::onnx::proto::{
    AttributeProto, ElementTypeProto, FunctionProto, GraphProto, OperatorSetIdProto, TypeProto,
    ValueInfoProto,
};
use eggine_ir::onnx::{ImportOptions, import_bytes};
use eggine_ir::{DType, Tensor};
use eggine_runtime::Device;
use eggine_runtime::device::{CpuDevice, CpuOptions};

static NEVER: AtomicBool = AtomicBool::new(false);

fn device() -> Result<Box<dyn Device>, eggine_runtime::DeviceError> {
    Ok(Box::new(CpuDevice::new(CpuOptions::default())))
}

fn compile(build: &Build, point: &[HostValue], folder: &Path) -> Program {
    let onnx = folder.join("model.onnx");
    std::fs::write(&onnx, build.bytes()).unwrap();
    let file = folder.join("model.program");
    compile_program(&Job::new(&onnx), &[point.to_vec()], vec![], &file, &NEVER).unwrap();
    Program::open(&file).unwrap()
}

fn session(program: &Program) -> Session<'static> {
    Session::new(program.clone(), device, Specialiser::new(Job::new("part"), &NEVER))
}

fn floats(extents: &[usize], data: &[f32]) -> HostValue {
    Tensor::f32(extents, data).into()
}

#[track_caller]
fn assert_floats(value: &HostValue, extents: &[usize], want: &[f64]) {
    let tensor = value.tensor().unwrap();
    assert_eq!(tensor.extents, extents);
    build::assert_near(&tensor.to_f64(), want);
}

/// How often each host step came, as `node operator times`.
fn host_steps(session: &Session<'_>) -> Vec<String> {
    let of = |it: &eggine::runtime::program::Repeated| match &it.event {
        Event::Host { node, op, .. } => Some(format!("{node} {op} {}", it.n_times)),
        Event::Stage { .. } => None,
    };
    session.trace().iter().filter_map(of).collect()
}

/// Runs over rows of `x` from the last to the first, and adds the positive elements of each to a sum.
fn positive_sums() -> Build {
    let body = GraphProto {
        node: vec![
            node("Greater", &["row", "zero"], &["is_positive"], vec![]),
            named("kept", node("Compress", &["row", "is_positive"], &["kept"], vec![])),
            node("ReduceSum", &["kept"], &["more"], vec![int("keepdims", 0)]),
            node("Add", &["sum", "more"], &["next"], vec![]),
            node("Add", &["next", "row"], &["slice"], vec![]),
        ],
        input: vec![value_info("sum", DType::F32, ""), value_info("row", DType::F32, "3")],
        output: vec![value_info("next", DType::F32, ""), value_info("slice", DType::F32, "3")],
        ..Default::default()
    };
    let attrs = vec![
        subgraph("body", body),
        int("num_scan_inputs", 1),
        ints("scan_input_axes", &[1]),
        ints("scan_input_directions", &[1]),
        ints("scan_output_axes", &[-1]),
        ints("scan_output_directions", &[1]),
    ];
    model(17)
        .input("start", DType::F32, "")
        .input("x", DType::F32, "3,n")
        .floats("zero", &[], &[0.0])
        .node(named("scan", node("Scan", &["start", "x"], &["last", "all"], attrs)))
        .op("Neg", &["all"], &["y"], vec![])
        .output("last")
        .output("y")
}

#[test]
fn a_scan_whose_body_depends_on_contents_is_walked() {
    let folder = tempfile::tempdir().unwrap();
    // Rows of the transposed: (1, -2, 3), (4, 5, -6).
    let inputs = [floats(&[], &[10.0]), floats(&[3, 2], &[1.0, 4.0, -2.0, 5.0, 3.0, -6.0])];
    let program = compile(&positive_sums(), &inputs, folder.path());
    let mut session = session(&program);
    let outputs = session.run(&inputs).unwrap();
    assert!(session.made().is_empty());
    // Backwards: 10 + 4 + 5 = 19, then 19 + 1 + 3 = 23; the results are put together backwards too.
    assert_floats(&outputs[0], &[], &[23.0]);
    assert_floats(&outputs[1], &[3, 2], &[-24.0, -23.0, -21.0, -24.0, -26.0, -13.0]);
    assert_eq!(host_steps(&session), ["scan Scan 1", "scan/body/kept Compress 2"]);
    let one = [floats(&[], &[0.0]), floats(&[3, 1], &[1.0, -1.0, 1.0])];
    let outputs = session.run(&one).unwrap();
    assert_floats(&outputs[0], &[], &[2.0]);
    let err = session.run(&[floats(&[], &[0.0]), floats(&[3, 0], &[])]).unwrap_err();
    assert!(err.to_string().contains("`scan`"), "{err}");
}

/// A running sum of any number of rows of two.
fn running_sum() -> Build {
    let body = GraphProto {
        node: vec![node("Add", &["sum", "row"], &["next"], vec![])],
        input: vec![value_info("sum", DType::F32, "2"), value_info("row", DType::F32, "2")],
        output: vec![value_info("next", DType::F32, "2"), value_info("next", DType::F32, "2")],
        ..Default::default()
    };
    let attrs = vec![subgraph("body", body), int("num_scan_inputs", 1)];
    model(17)
        .input("start", DType::F32, "2")
        .input("x", DType::F32, "n,2")
        .node(named("scan", node("Scan", &["start", "x"], &["last", "all"], attrs)))
        .output("last")
        .output("all")
}

#[test]
fn a_scan_too_long_to_unroll_is_walked_and_its_trace_is_short() {
    let n = 1500;
    let folder = tempfile::tempdir().unwrap();
    let x: Vec<f32> = (0..n).flat_map(|i| [1.0, (i % 3) as f32 - 1.0]).collect();
    let inputs = [floats(&[2], &[0.5, 0.0]), floats(&[n, 2], &x)];
    let program = compile(&running_sum(), &inputs, folder.path());
    let mut session = session(&program);
    let outputs = session.run(&inputs).unwrap();
    assert_floats(&outputs[0], &[2], &[n as f64 + 0.5, 0.0]);
    let all = outputs[1].tensor().unwrap();
    assert_eq!(all.extents, [n, 2]);
    let at = |i: usize| all.to_f64()[2 * i..2 * i + 2].to_vec();
    assert_eq!((at(0), at(1), at(1000)), (vec![1.5, -1.0], vec![2.5, -1.0], vec![1001.5, -1.0]));
    assert_eq!(session.trace().n_events(), 2, "{:?}", session.trace());
    assert_eq!(session.trace().n_launches(), n as u64);
    assert_eq!(program.manifest.trace.len(), 2);
    assert!(program.manifest.trace.iter().any(|line| line.ends_with("1500 times")));
    let before = session.trace().clone();
    session.run(&inputs).unwrap();
    assert_eq!(*session.trace(), before, "the same steps, the same trace");
}

fn reference(name: &str, to: &str, kind: i32) -> AttributeProto {
    AttributeProto { ref_attr_name: Some(to.into()), r#type: Some(kind), ..build::attr(name) }
}

/// `local.Kept` keeps the elements of its operand that are above `least` and scales the others' sum away:
/// what it gives has as many elements as are kept. `local.Twice` calls it.
fn with_functions() -> Build {
    let opset = |domain: &str, version| OperatorSetIdProto {
        domain: (!domain.is_empty()).then(|| domain.to_owned()),
        version: Some(version),
    };
    let strings = |all: &[&str]| all.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
    let kept = FunctionProto {
        name: Some("Kept".into()),
        domain: Some("local".into()),
        input: strings(&["x", "least", "unused"]),
        output: strings(&["y"]),
        attribute: strings(&["alpha"]),
        node: vec![
            node("Greater", &["x", "least"], &["is_kept"], vec![]),
            named("where", node("NonZero", &["is_kept"], &["where"], vec![])),
            node("Transpose", &["where"], &["rows"], vec![]),
            node("GatherND", &["x", "rows"], &["some"], vec![]),
            node("LeakyRelu", &["some"], &["y"], vec![reference("alpha", "alpha", 1)]),
        ],
        opset_import: vec![opset("", 17)],
        ..Default::default()
    };
    let call = |inputs: &[&str], output: &str, attrs: Vec<AttributeProto>| {
        in_domain("local", node("Kept", inputs, &[output], attrs))
    };
    let twice = FunctionProto {
        name: Some("Twice".into()),
        domain: Some("local".into()),
        input: strings(&["x", "least"]),
        output: strings(&["y"]),
        attribute: strings(&["slope"]),
        node: vec![
            named("inner", call(&["x", "least"], "once", vec![reference("alpha", "slope", 1)])),
            node("Add", &["once", "once"], &["y"], vec![]),
        ],
        opset_import: vec![opset("", 17), opset("local", 1)],
        ..Default::default()
    };
    let outer =
        in_domain("local", node("Twice", &["x", "least"], &["z"], vec![float("slope", 0.5)]));
    let mut build = model(17)
        .domain("local", 1)
        .input("x", DType::F32, "4")
        .floats("least", &[], &[-3.0])
        .node(named("one", call(&["x", "least"], "y", vec![float("alpha", 0.25)])))
        .node(named("two", outer))
        .op("Neg", &["z"], &["w"], vec![])
        .output("y")
        .output("w");
    build.0.functions = vec![kept, twice];
    build
}

#[test]
fn a_function_with_a_node_that_is_stuck_is_entered() {
    let folder = tempfile::tempdir().unwrap();
    let x = [floats(&[4], &[-2.0, 4.0, -5.0, 6.0])];
    let program = compile(&with_functions(), &x, folder.path());
    let mut session = session(&program);
    let outputs = session.run(&x).unwrap();
    assert!(session.made().is_empty());
    assert_floats(&outputs[0], &[3], &[-0.5, 4.0, 6.0]);
    assert_floats(&outputs[1], &[3], &[2.0, -8.0, -12.0]);
    assert_eq!(
        host_steps(&session),
        [
            "one Kept 1",
            "one/where NonZero 1",
            "two Twice 1",
            "two/inner Kept 1",
            "two/inner/where NonZero 1"
        ]
    );
    let outputs = session.run(&[floats(&[4], &[1.0, 2.0, 3.0, -1.0])]).unwrap();
    assert_floats(&outputs[0], &[4], &[1.0, 2.0, 3.0, -0.25]);
}

fn of(ty: TypeProto) -> Option<Box<ElementTypeProto>> {
    Some(Box::new(ElementTypeProto { elem_type: Some(Box::new(ty)) }))
}

fn ty(dims: &str) -> TypeProto {
    value_info("", DType::F32, dims).r#type.unwrap()
}

fn port(name: &str, ty: TypeProto) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), r#type: Some(ty) }
}

/// Doubles an element of a sequence and appends it; adds an optional to it if there is one.
fn edges() -> Build {
    let sequence = || TypeProto { sequence_type: of(ty("n")), ..Default::default() };
    let optional = || TypeProto { optional_type: of(ty("2")), ..Default::default() };
    let there = GraphProto {
        node: vec![
            node("OptionalGetElement", &["maybe"], &["it"], vec![]),
            node("Add", &["double", "it"], &["sum"], vec![]),
        ],
        output: vec![value_info("sum", DType::F32, "")],
        ..Default::default()
    };
    let missing = GraphProto {
        node: vec![node("Neg", &["double"], &["negative"], vec![])],
        output: vec![value_info("negative", DType::F32, "")],
        ..Default::default()
    };
    let attrs = vec![subgraph("then_branch", there), subgraph("else_branch", missing)];
    let mut build = model(17)
        .input("at", DType::I64, "")
        .op("SequenceAt", &["all", "at"], &["one"], vec![])
        .op("Add", &["one", "one"], &["double"], vec![])
        .op("SequenceInsert", &["all", "double"], &["more"], vec![])
        .op("OptionalHasElement", &["maybe"], &["is_there"], vec![])
        .op("If", &["is_there"], &["y"], attrs)
        .op("Identity", &["maybe"], &["same"], vec![])
        .output("y");
    build.graph().input.extend([port("all", sequence()), port("maybe", optional())]);
    build.graph().output.extend([port("more", sequence()), port("same", optional())]);
    build
}

#[test]
fn sequences_and_optionals_are_inputs_and_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let sequence = |n: usize| {
        let of = |i: usize| floats(&[2], &[i as f32, 0.5]);
        HostValue::Sequence((0..n).map(of).collect())
    };
    let at = |n: i64| HostValue::from(Tensor::i64(&[], &[n]));
    let program =
        compile(&edges(), &[at(1), sequence(3), floats(&[2], &[10.0, 20.0])], folder.path());
    let mut session = session(&program);
    let there = floats(&[2], &[10.0, 20.0]);
    let outputs = session.run(&[at(1), sequence(3), there.clone()]).unwrap();
    assert_floats(&outputs[0], &[2], &[12.0, 21.0]);
    let HostValue::Sequence(more) = &outputs[1] else { panic!("{}", outputs[1]) };
    assert_eq!(more.len(), 4);
    assert_floats(&more[3], &[2], &[2.0, 1.0]);
    assert_eq!(outputs[2], there);
    let outputs = session.run(&[at(-1), sequence(2), HostValue::Nothing]).unwrap();
    assert_floats(&outputs[0], &[2], &[-2.0, -1.0]);
    assert_eq!(outputs[2], HostValue::Nothing);
    for wrong in [
        [at(0), floats(&[2], &[0.0; 2]), HostValue::Nothing],
        [at(0), HostValue::Sequence(vec![at(0)]), HostValue::Nothing],
        [at(0), sequence(1), sequence(1)],
        [HostValue::Nothing, sequence(1), HostValue::Nothing],
    ] {
        let err = session.run(&wrong).unwrap_err();
        assert!(matches!(err, RunError::InputType { .. }), "{err}");
    }
}

#[test]
fn engines_of_a_program_share_their_weights() {
    let folder = tempfile::tempdir().unwrap();
    let w: Vec<f32> = (0..128 * 128).map(|i| (i as f32 * 0.37).sin()).collect();
    let build = model(17)
        .input("x", DType::F32, "n,128")
        .floats("w", &[128, 128], &w)
        .op("MatMul", &["x", "w"], &["p"], vec![])
        .op("Softmax", &["p"], &["y"], vec![int("axis", -1)])
        .output("y");
    let (onnx, file) = (folder.path().join("model.onnx"), folder.path().join("model.program"));
    std::fs::write(&onnx, build.bytes()).unwrap();
    let x = |n: usize| vec![floats(&[n, 128], &w[..n * 128])];
    let points = [x(2), x(16), x(31)];
    compile_program(&Job::new(&onnx), &points, vec![], &file, &NEVER).unwrap();
    let program = Program::open(&file).unwrap();
    assert_eq!(program.engines().len(), 3);
    let largest = |engine: &eggine::Engine| {
        let pieces = engine.pieces().into_iter();
        let (_, bytes) = pieces.max_by_key(|(_, bytes)| bytes.len()).unwrap();
        (bytes.as_ptr(), bytes.len())
    };
    let places: std::collections::BTreeSet<_> = program.engines().values().map(largest).collect();
    assert_eq!(places.len(), 1, "one copy of the weights: {places:?}");
    assert!(places.first().unwrap().1 >= 4 * w.len());
    for engine in program.engines().values() {
        assert_eq!(engine.weights().len() as u64, engine.plan.weights_bytes);
    }
    let n_bytes = |path: &Path| std::fs::metadata(path).unwrap().len() as usize;
    let rest: usize = program.engines().values().map(|it| it.without_weights().len()).sum();
    let most = build.bytes().len() + rest + 4 * w.len() + 32 * 1024;
    assert!(n_bytes(&file) < most, "{} of {most} bytes", n_bytes(&file));
    let mut closed = Session::new(program.clone(), device, eggine::runtime::program::NoSpecialise);
    for n in [2, 16, 31] {
        let y = closed.run(&x(n)).unwrap();
        let shapes = [("x".to_owned(), vec![n, 128])].into();
        let oracle = import_bytes(build.bytes(), &ImportOptions { shapes }).unwrap();
        let given = Tensor::f32(&[n, 128], &w[..n * 128]);
        let want = eval(&oracle.graph, &[given], Rounding::None).remove(0);
        assert_floats(&y[0], &[n, 128], &want.to_f64());
    }
    // Written again from what was read it is the same file, and one changed weight is found.
    let again = folder.path().join("again.program");
    program.write(&again).unwrap();
    let mut whole = std::fs::read(&file).unwrap();
    assert!(std::fs::read(&again).unwrap() == whole);
    let weights = whole.windows(64).position(|it| it == &program_bytes(&program)[..64]).unwrap();
    whole[weights + 5] ^= 1;
    std::fs::write(&again, &whole).unwrap();
    let err = Program::open(&again).unwrap_err().to_string();
    assert!(err.contains("weight") && err.contains("was changed"), "{err}");
}

/// The largest piece of the weights of the first engine.
fn program_bytes(program: &Program) -> bytes::Bytes {
    let pieces = program.engines().values().next().unwrap().pieces().into_iter();
    pieces.max_by_key(|(_, bytes)| bytes.len()).unwrap().1
}
