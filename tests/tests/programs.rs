//! Programs: control flow and shapes that are only known at run time, strings at the edges, ranges of
//! shapes. Models are built message by message; what they should give is worked out by hand, or is the
//! oracle's at the shapes of the run.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "import/build.rs"]
#[allow(dead_code, reason = "shared with the tests of import")]
mod build;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use build::{
    Build, branch, float, in_domain, int, model, named, node, subgraph, tensor, value_info,
};
use eggine::runtime::program::{
    DimRange, HostValue, InputRange, NoSpecialise, Program, ProgramError, RunError, Session,
    Strings,
};
use eggine::search::{Budget, Job, Specialiser, compile_program};
use eggine_ir::graph::eval::{Rounding, eval};
use eggine_ir::onnx::proto::{AttributeProto, GraphProto};
use eggine_ir::onnx::{ImportOptions, import_bytes};
use eggine_ir::{DType, Tensor};
use eggine_runtime::Device;
use eggine_runtime::device::{CpuDevice, CpuOptions};

static NEVER: AtomicBool = AtomicBool::new(false);

fn device() -> Result<Box<dyn Device>, eggine_runtime::DeviceError> {
    Ok(Box::new(CpuDevice::new(CpuOptions::default())))
}

fn compile(
    build: &Build,
    points: &[Vec<HostValue>],
    ranges: Vec<InputRange>,
    folder: &Path,
) -> Program {
    let onnx = folder.join("model.onnx");
    std::fs::write(&onnx, build.bytes()).unwrap();
    let file = folder.join("model.program");
    compile_program(&Job::new(&onnx), points, ranges, &file, &NEVER).unwrap();
    Program::open(&file).unwrap()
}

/// A session that makes what is missing.
fn session(program: &Program) -> Session<'static> {
    Session::new(program.clone(), device, Specialiser::new(Job::new("part"), &NEVER))
}

fn floats(extents: &[usize], data: &[f32]) -> HostValue {
    Tensor::f32(extents, data).into()
}

fn strings(data: &[&str]) -> HostValue {
    let data: Vec<String> = data.iter().map(|&it| it.to_owned()).collect();
    HostValue::Strings(Strings { extents: vec![data.len()], data })
}

#[track_caller]
fn assert_floats(value: &HostValue, extents: &[usize], want: &[f64]) {
    let tensor = value.tensor().unwrap();
    assert_eq!(tensor.extents, extents);
    build::assert_near(&tensor.to_f64(), want);
}

/// `y` has 4 elements if the sum of `x` is positive, else 2.
fn branches() -> Build {
    let twice = GraphProto {
        node: vec![node("Concat", &["x", "x"], &["twice"], vec![int("axis", 0)])],
        output: vec![value_info("twice", DType::F32, "")],
        ..Default::default()
    };
    let attrs =
        vec![subgraph("then_branch", twice), subgraph("else_branch", branch("Neg", "less"))];
    model(17)
        .input("x", DType::F32, "2")
        .floats("zero", &[], &[0.0])
        .op("ReduceSum", &["x"], &["sum"], vec![int("keepdims", 0)])
        .op("Greater", &["sum", "zero"], &["condition"], vec![])
        .node(named("which", node("If", &["condition"], &["part"], attrs)))
        .op("Exp", &["part"], &["y"], vec![])
        .output("y")
}

#[test]
fn a_branch_decides_a_shape_at_run_time() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&branches(), &[vec![floats(&[2], &[1.0, 2.0])]], vec![], folder.path());
    assert_eq!(program.manifest.host_steps.len(), 1);
    assert!(program.manifest.host_steps[0].starts_with("which (If)"));
    let mut session = session(&program);
    let (one, two) = (1f64.exp(), 2f64.exp());
    let y = session.run(&[floats(&[2], &[1.0, 2.0])]).unwrap();
    assert_floats(&y[0], &[4], &[one, two, one, two]);
    assert!(session.made().is_empty(), "the file has the engines of the side that was taken");
    let y = session.run(&[floats(&[2], &[1.0, -2.0])]).unwrap();
    assert_floats(&y[0], &[2], &[(-1f64).exp(), 2f64.exp()]);
    let n_made = session.made().len();
    assert!(n_made > 0, "the other side was made when it was needed");
    session.run(&[floats(&[2], &[-3.0, -2.0])]).unwrap();
    assert_eq!(session.made().len(), n_made, "and is there the next time");
}

/// Doubles `x` until an element reaches `limit`, at most `trips` times; collects what it was each time.
fn doubling() -> Build {
    let body = GraphProto {
        node: vec![
            node("Add", &["state", "state"], &["next"], vec![]),
            node("ReduceMax", &["next"], &["most"], vec![int("keepdims", 0)]),
            node("Less", &["most", "limit"], &["go_on"], vec![]),
            node("Cast", &["trip"], &["nth"], vec![int("to", 1)]),
            node("Add", &["next", "nth"], &["slice"], vec![]),
        ],
        input: vec![
            value_info("trip", DType::I64, ""),
            value_info("before", DType::Bool, ""),
            value_info("state", DType::F32, "3"),
        ],
        output: vec![
            value_info("go_on", DType::Bool, ""),
            value_info("next", DType::F32, "3"),
            value_info("slice", DType::F32, "3"),
        ],
        ..Default::default()
    };
    model(17)
        .input("x", DType::F32, "3")
        .input("limit", DType::F32, "")
        .input("trips", DType::I64, "")
        .op("Loop", &["trips", "", "x"], &["last", "all"], vec![subgraph("body", body)])
        .op("ReduceSum", &["all"], &["sum"], vec![int("keepdims", 0)])
        .output("last")
        .output("sum")
        .output("all")
}

#[test]
fn a_loop_ends_when_its_body_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let trips = |n: i64| HostValue::from(Tensor::i64(&[], &[n]));
    let inputs =
        |limit: f32, n| vec![floats(&[3], &[1.0, 0.5, 0.25]), floats(&[], &[limit]), trips(n)];
    let program = compile(&doubling(), &[inputs(7.0, 100)], vec![], folder.path());
    let mut session = session(&program);
    let outputs = session.run(&inputs(7.0, 100)).unwrap();
    assert_floats(&outputs[0], &[3], &[8.0, 4.0, 2.0]);
    // 2 + 1 + ½, 4 + 2 + 1 and 8 + 4 + 2, and three times the number of the trip.
    assert_floats(&outputs[1], &[], &[3.5 + 7.0 + 14.0 + 9.0]);
    assert_eq!(outputs[2].extents(), Some(&[3, 3][..]));
    let outputs = session.run(&inputs(7.0, 2)).unwrap();
    assert_floats(&outputs[0], &[3], &[4.0, 2.0, 1.0]);
    assert_eq!(outputs[2].extents(), Some(&[2, 3][..]));
    let outputs = session.run(&inputs(100.0, 5)).unwrap();
    assert_floats(&outputs[0], &[3], &[32.0, 16.0, 8.0]);
    assert_eq!(outputs[2].extents(), Some(&[5, 3][..]));
    let err = session.run(&inputs(7.0, 0)).unwrap_err().to_string();
    assert!(err.contains("Loop") && err.contains("0 times"), "{err}");
}

#[test]
fn a_count_decides_a_shape() {
    let build = model(17)
        .input("x", DType::F32, "6")
        .floats("zero", &[], &[0.0])
        .op("Greater", &["x", "zero"], &["positive"], vec![])
        .op("NonZero", &["positive"], &["where"], vec![])
        .op("Transpose", &["where"], &["rows"], vec![])
        .op("GatherND", &["x", "rows"], &["kept"], vec![])
        .op("Sqrt", &["kept"], &["y"], vec![])
        .output("y");
    let folder = tempfile::tempdir().unwrap();
    let x = |data: &[f32]| vec![floats(&[6], data)];
    let program = compile(&build, &[x(&[4.0, -1.0, 9.0, 0.0, 1.0, -5.0])], vec![], folder.path());
    let mut session = session(&program);
    let y = session.run(&x(&[4.0, -1.0, 9.0, 0.0, 1.0, -5.0])).unwrap();
    assert_floats(&y[0], &[3], &[2.0, 3.0, 1.0]);
    let y = session.run(&x(&[1.0, 4.0, 9.0, 16.0, 25.0, -5.0])).unwrap();
    assert_floats(&y[0], &[5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    assert!(session.trace().iter().any(|event| format!("{event:?}").contains("NonZero")));
}

fn texts(name: &str, values: &[&str]) -> AttributeProto {
    let strings = values.iter().map(|it| it.as_bytes().to_vec().into()).collect();
    AttributeProto { strings, r#type: Some(8), ..build::attr(name) }
}

#[test]
fn strings_come_in_and_go_out() {
    let mut table = tensor("table", &Tensor::i64(&[3], &[0, 0, 0]));
    (table.data_type, table.raw_data) = (Some(8), None);
    table.string_data = ["zero", "one", "two"].map(|it| it.as_bytes().to_vec().into()).to_vec();
    let encode = node(
        "LabelEncoder",
        &["x"],
        &["ids"],
        vec![texts("classes_strings", &["a", "b", "c"]), int("default_int64", 0)],
    );
    let mut build = model(17)
        .domain("ai.onnx.ml", 1)
        .input("x", DType::F32, "?")
        .longs("two", &[2])
        .node(in_domain("ai.onnx.ml", encode))
        .op("Sub", &["two", "ids"], &["other"], vec![])
        .op("Gather", &["table", "other"], &["y"], vec![])
        .output("y");
    let ty = |info: &mut eggine_ir::onnx::proto::ValueInfoProto| {
        info.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().elem_type = Some(8);
    };
    build.graph().input.iter_mut().for_each(ty);
    build.graph().output.iter_mut().for_each(ty);
    build.graph().initializer.push(table);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&build, &[vec![strings(&["a", "c"])]], vec![], folder.path());
    let y = session(&program).run(&[strings(&["c", "b", "a", "?"])]).unwrap();
    assert_eq!(y, [strings(&["zero", "one", "two", "two"])]);
    let err = session(&program).run(&[floats(&[1], &[0.0])]).unwrap_err();
    assert!(matches!(err, RunError::InputType { .. }), "{err}");
}

/// Attention over a sequence of any length, of a batch of any size.
fn sequence() -> Build {
    model(17)
        .input("x", DType::F32, "batch,length,8")
        .floats("w", &[8, 8], &(0..64).map(|i| (i as f32 * 0.37).sin() / 3.0).collect::<Vec<_>>())
        .op("MatMul", &["x", "w"], &["q"], vec![])
        .op("Transpose", &["x"], &["k"], vec![build::ints("perm", &[0, 2, 1])])
        .op("MatMul", &["q", "k"], &["scores"], vec![])
        .op("Softmax", &["scores"], &["p"], vec![int("axis", -1)])
        .op("MatMul", &["p", "x"], &["mixed"], vec![])
        .op("LeakyRelu", &["mixed"], &["y"], vec![float("alpha", 0.1)])
        .output("y")
}

fn range(name: &str, dims: &[(usize, usize)]) -> Vec<InputRange> {
    let dims = dims.iter().map(|&(min, max)| DimRange { min, max }).collect();
    vec![InputRange { name: name.into(), dims: Some(dims) }]
}

fn wave(extents: &[usize], seed: usize) -> Tensor {
    let n: usize = extents.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i + 7 * seed) as f32 * 0.73).sin()).collect();
    Tensor::f32(extents, &data)
}

#[test]
fn one_program_serves_a_range_of_shapes() {
    let build = sequence();
    let folder = tempfile::tempdir().unwrap();
    let points = [vec![wave(&[2, 16, 8], 0).into()], vec![wave(&[1, 5, 8], 0).into()]];
    let ranges = range("x", &[(1, 4), (1, 33), (8, 8)]);
    let program = compile(&build, &points, ranges, folder.path());
    // One of just its shape and one up to it for each point, and one up to the end of the range.
    assert_eq!((program.engines().len(), program.manifest.wide.len()), (5, 3));
    let mut session = Session::new(program, device, NoSpecialise);
    for (nth, (batch, length)) in
        [(2, 16), (1, 5), (1, 1), (4, 33), (3, 7), (1, 32), (2, 31), (4, 1), (3, 17), (2, 2)]
            .into_iter()
            .enumerate()
    {
        let x = wave(&[batch, length, 8], nth);
        let y = session.run(&[x.clone().into()]).unwrap();
        let want = oracle(&build, &[("x", &x)]);
        assert_floats(&y[0], &want[0].extents, &want[0].to_f64());
    }
    for extents in [[5, 3, 8], [1, 34, 8]] {
        let err = session.run(&[wave(&extents, 0).into()]).unwrap_err().to_string();
        assert!(err.contains("`x`") && err.contains("[1, 1, 8] to [4, 33, 8]"), "{err}");
    }
}

/// What the reference gives at the shapes of the inputs.
fn oracle(build: &Build, inputs: &[(&str, &Tensor)]) -> Vec<Tensor> {
    let shapes = inputs.iter().map(|&(name, x)| (name.to_owned(), x.extents.clone())).collect();
    let imported = import_bytes(build.bytes(), &ImportOptions { shapes }).unwrap();
    let inputs: Vec<Tensor> = inputs.iter().map(|&(_, x)| x.clone()).collect();
    let outputs = eval(&imported.graph, &inputs, Rounding::None);
    outputs.iter().map(|array| array.to_tensor()).collect()
}

#[test]
fn a_cache_that_grows_needs_no_compiler() {
    let build = model(17)
        .input("past", DType::F32, "1,past,8")
        .input("x", DType::F32, "1,new,8")
        .op("Concat", &["past", "x"], &["cache"], vec![int("axis", 1)])
        .op("Transpose", &["cache"], &["k"], vec![build::ints("perm", &[0, 2, 1])])
        .op("MatMul", &["x", "k"], &["scores"], vec![])
        .op("Softmax", &["scores"], &["p"], vec![int("axis", -1)])
        .op("MatMul", &["p", "cache"], &["y"], vec![])
        .output("y")
        .output("cache");
    let folder = tempfile::tempdir().unwrap();
    let point = [vec![wave(&[1, 24, 8], 0).into(), wave(&[1, 3, 8], 0).into()]];
    let mut ranges = range("past", &[(1, 1), (1, 24), (8, 8)]);
    ranges.extend(range("x", &[(1, 1), (1, 3), (8, 8)]));
    let program = compile(&build, &point, ranges, folder.path());
    let mut session = Session::new(program, device, NoSpecialise);
    let mut cache = wave(&[1, 3, 8], 1);
    for step in 0..20 {
        let x = wave(&[1, 1, 8], step + 2);
        let found = session.run(&[cache.clone().into(), x.clone().into()]).unwrap();
        let want = oracle(&build, &[("past", &cache), ("x", &x)]);
        for (found, want) in found.iter().zip(&want) {
            assert_floats(found, &want.extents, &want.to_f64());
        }
        cache = found[1].tensor().unwrap().clone();
    }
    assert_eq!(cache.extents, [1, 23, 8]);
}

#[test]
fn what_cannot_be_padded_is_compiled_when_it_comes() {
    // Halves of a length that varies.
    let build = model(17)
        .input("x", DType::F32, "length")
        .longs("halves", &[2, -1])
        .op("Reshape", &["x", "halves"], &["two"], vec![])
        .op("Exp", &["two"], &["y"], vec![])
        .output("y");
    let folder = tempfile::tempdir().unwrap();
    let onnx = folder.path().join("model.onnx");
    std::fs::write(&onnx, build.bytes()).unwrap();
    let file = folder.path().join("model.program");
    let point = [vec![wave(&[8], 0).into()]];
    let ranges = range("x", &[(2, 8)]);
    let report = compile_program(&Job::new(&onnx), &point, ranges, &file, &NEVER).unwrap();
    assert!(report.wide[0].contains("splits an axis that varies"), "{:?}", report.wide);
    let program = Program::open(&file).unwrap();
    assert_eq!((program.engines().len(), program.manifest.wide.len()), (1, 0));
    let mut session = session(&program);
    let x = wave(&[6], 1);
    let y = session.run(&[x.clone().into()]).unwrap();
    assert_floats(&y[0], &[2, 3], &x.to_f64().iter().map(|x| x.exp()).collect::<Vec<_>>());
    assert_eq!(session.made().len(), 1);
}

#[test]
fn a_file_is_checked_and_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&sequence(), &[vec![wave(&[1, 4, 8], 0).into()]], vec![], folder.path());
    let mut closed = Session::new(program, device, NoSpecialise);
    closed.run(&[wave(&[1, 4, 8], 1).into()]).unwrap();
    let err = closed.run(&[wave(&[1, 5, 8], 1).into()]).unwrap_err().to_string();
    assert!(err.contains("`x`: f32[1,5,8]") && err.contains("no compiler"), "{err}");

    let file = folder.path().join("model.program");
    let whole = std::fs::read(&file).unwrap();
    compile(&sequence(), &[vec![wave(&[1, 4, 8], 0).into()]], vec![], folder.path());
    assert!(std::fs::read(&file).unwrap() == whole, "same model, same bytes");
    let open = |bytes: &[u8]| {
        let path = folder.path().join("other.program");
        std::fs::write(&path, bytes).unwrap();
        Program::open(&path)
    };
    for n in [0, 4, 20, 60, whole.len() / 2, whole.len() - 1] {
        assert!(open(&whole[..n]).is_err(), "{n} bytes");
    }
    let step = whole.len() / 61;
    let mut n_found = 0;
    for at in (0..whole.len()).step_by(step) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        // Padding between sections may change.
        n_found += usize::from(open(&bytes).is_err() || whole[at] == 0);
    }
    assert_eq!(n_found, (0..whole.len()).step_by(step).len());
    let mut newer = whole.clone();
    newer[8] = 9;
    assert!(matches!(open(&newer), Err(ProgramError::Newer { found: 9, .. })));
}

#[test]
fn what_was_tuned_at_one_shape_is_tried_at_others() {
    let folder = tempfile::tempdir().unwrap();
    let onnx = folder.path().join("model.onnx");
    std::fs::write(&onnx, sequence().bytes()).unwrap();
    let file = folder.path().join("model.program");
    let job = Job {
        budget: Budget::Measurements(24),
        race: Some(std::time::Duration::from_millis(50)),
        ..Job::new(&onnx)
    };
    let point = vec![wave(&[2, 48, 8], 0).into()];
    compile_program(&job, &[point], vec![], &file, &NEVER).unwrap();
    let program = Program::open(&file).unwrap();
    let specialiser = Specialiser::for_program(Job::new("part"), &program, &NEVER);
    assert!(specialiser.n_hints() > 0, "the tuned engine has schedules");
    let mut session = Session::new(program.clone(), device, specialiser);
    let x = wave(&[3, 37, 8], 5);
    let tuned = session.run(&[x.clone().into()]).unwrap();
    let plain = self::session(&program).run(&[x.into()]).unwrap();
    let (tuned, plain) = (tuned[0].tensor().unwrap(), plain[0].tensor().unwrap());
    build::assert_near(&tuned.to_f64(), &plain.to_f64());
    let engine = session.made().values().next().unwrap();
    assert!(engine.manifest.kernels.iter().all(|it| it.verdict.as_deref() == Some("accepted")));
}
