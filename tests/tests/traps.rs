//! Traps of the format and of measuring: each row is a fault that users reported in another compiler, with
//! the right value worked out by hand. A model goes through import and the oracle, and where it is small
//! also through the compiled engine on the cpu device. [`ROWS`] says where each row is tested.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[allow(dead_code, reason = "shared with the tests of import")]
#[path = "import/build.rs"]
mod build;
#[allow(dead_code, reason = "shared with the benchmark")]
#[path = "../benches/import/models.rs"]
mod models;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use eggine::runtime::program::{self, HostValue, Program};
use eggine::search::{Job, Specialiser, compile, compile_program};
use eggine::{CpuDevice, CpuOptions, Engine, Session};
use eggine_ir::graph::eval::{Rounding, eval};
use eggine_ir::onnx::proto::{GraphProto, ValueInfoProto};
use eggine_ir::onnx::{ImportError, ImportOptions, import_bytes};
use eggine_ir::{DType, Op, Tensor};
use eggine_tests::alloc::{Counting, count as count_allocations};

use build::{
    Build, branch, count, float, in_domain, int, ints, model, named, node, ops_of, single,
    subgraph, value_info,
};

#[global_allocator]
static ALLOC: Counting = Counting;

/// Number of each trap and the test that has its value: here, or `file: test` elsewhere.
#[rustfmt::skip] // One trap per row.
const ROWS: &[(u32, &str)] = &[
    (1,  "trap_01_a_chain_is_linear"),
    (2,  "trap_02_two_builds_are_the_same_bytes"),
    (3,  "trap_03_shapes_are_part_of_the_key"),
    (4,  "search/tests/cheats.rs: cheat_13_cache_hit_that_ignores_alignment"),
    (5,  "trap_05_a_loop_fills_a_sequence"),
    (6,  "trap_06_all_unknown_operators_with_paths"),
    (7,  "trap_07_order_and_names"),
    (9,  "trap_09_branches_of_two_ranks"),
    (10, "trap_10_reshape_by_a_shape"),
    (11, "tests/tests/limits.rs: two_gigabytes_open_without_being_read"),
    (12, "tests/tests/import/refusals.rs: external_data_stays_in_the_folder"),
    (13, "trap_13_a_large_fill_stays_one_number"),
    (14, "trap_14_comparisons_of_shapes_fold"),
    (15, "trap_15_a_mean_without_keepdims"),
    (16, "trap_16_one_over_y_times_an_identity"),
    (18, "trap_18_a_folded_initialiser_stays_the_same"),
    (19, "trap_19_a_wrong_hint_does_not_drop_an_axis"),
    (21, "trap_21_softmax_of_opset_11"),
    (22, "trap_22_not_a_number"),
    (23, "trap_23_casts_and_division_at_the_edges"),
    (24, "trap_24_quantisation_rounds_to_even"),
    (26, "trap_26_layer_norm_in_half_precision"),
    (28, "trap_28_empty_operands"),
    (29, "runtime/tests/cheats.rs: cheat_03_zeros_within_an_absolute_tolerance"),
    (30, "runtime/tests/cheats.rs: cheat_08_right_for_ten_calls"),
    (31, "runtime/tests/cheats.rs: cheat_14_impossible_samples"),
    (32, "runtime/tests/cheats.rs: cheat_15_lucky_winner_under_drift"),
    (33, "runtime/tests/cheats.rs: cheat_04_result_kept_by_pointer_or_hash"),
    (34, "search/tests/cheats.rs: cheat_20_hangs_traps_and_exhausts"),
    (35, "tests/tests/import/refusals.rs: damaged_and_hollow_models_are_refused"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A row without a test, a test without a row, or a row that was forgotten, fails.
#[test]
fn every_trap_has_its_test() {
    let numbers: Vec<u32> = ROWS.iter().map(|(number, _)| *number).collect();
    // 8, 17, 20, 25 and 27 are not in the list of traps.
    let listed: Vec<u32> = (1..=35).filter(|it| ![8, 17, 20, 25, 27].contains(it)).collect();
    assert_eq!(numbers, listed);
    let here = include_str!("traps.rs");
    for (number, place) in ROWS {
        let (text, test) = match place.split_once(": ") {
            Some((file, test)) => (std::fs::read_to_string(root().join(file)).unwrap(), test),
            None => (here.to_owned(), *place),
        };
        assert!(text.contains(&format!("#[test]\nfn {test}()")), "trap {number}: no `{place}`");
    }
    let n_here = here.matches("\nfn trap_").count();
    assert_eq!(n_here, ROWS.iter().filter(|(_, place)| !place.contains(": ")).count());
}

/// Elements of each output.
type Results = Vec<(Vec<usize>, Vec<f64>)>;

fn oracle(m: &Build, inputs: &[Tensor]) -> Results {
    let imported = m.import().unwrap();
    eggine_ir::graph::verify(&imported.graph).unwrap();
    let results = eval(&imported.graph, inputs, Rounding::None);
    results.into_iter().map(|array| (array.extents.clone(), array.to_f64())).collect()
}

/// Compiles (every kernel is verified) and runs.
fn engine(m: &Build, inputs: &[Tensor]) -> Results {
    let folder = tempfile::tempdir().unwrap();
    let engine = compiled(m, folder.path(), BTreeMap::new());
    let device = CpuDevice::new(CpuOptions { n_threads: 1, ..CpuOptions::default() });
    let outputs = Session::new(Box::new(device), &engine).unwrap().run(inputs).unwrap();
    outputs.into_iter().map(|it| (it.extents.clone(), numbers(&it))).collect()
}

fn compiled(m: &Build, folder: &Path, shapes: BTreeMap<String, Vec<usize>>) -> Engine {
    let (onnx, path) = (folder.join("m.onnx"), folder.join("m.engine"));
    std::fs::write(&onnx, m.bytes()).unwrap();
    compile(&Job { shapes, ..Job::new(&onnx) }, &path, &AtomicBool::new(false)).unwrap();
    Engine::open(&path).unwrap()
}

/// The same as a program: what is only known at run time is decided on the way.
fn program(m: &Build, inputs: &[Tensor]) -> Results {
    static NEVER: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let (onnx, path) = (folder.path().join("m.onnx"), folder.path().join("m.program"));
    std::fs::write(&onnx, m.bytes()).unwrap();
    let point: Vec<HostValue> = inputs.iter().map(|it| it.clone().into()).collect();
    let job = || Job::new(&onnx);
    compile_program(&job(), std::slice::from_ref(&point), Vec::new(), &path, &NEVER).unwrap();
    let device = || -> Result<Box<dyn eggine_runtime::Device>, eggine_runtime::DeviceError> {
        Ok(Box::new(CpuDevice::new(CpuOptions { n_threads: 1, ..CpuOptions::default() })))
    };
    let specialiser = Specialiser::new(job(), &NEVER);
    let mut session = program::Session::new(Program::open(&path).unwrap(), device, specialiser);
    let outputs = session.run(&point).unwrap();
    outputs
        .iter()
        .map(|it| it.tensor().unwrap())
        .map(|it| (it.extents.clone(), numbers(it)))
        .collect()
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype.is_float() {
        true => tensor.to_f64(),
        false => tensor.to_i64().into_iter().map(|x| x as f64).collect(),
    }
}

#[track_caller]
fn near(got: &(Vec<usize>, Vec<f64>), extents: &[usize], want: &[f64], tolerance: f64) {
    assert_eq!(got.0, extents);
    assert_eq!(got.1.len(), want.len(), "{got:?}");
    for (i, (x, y)) in got.1.iter().zip(want).enumerate() {
        let same = x == y || (x.is_nan() && y.is_nan());
        assert!(
            same || (x - y).abs() <= tolerance * y.abs().max(1.0),
            "element {i}: {x}, expected {y}"
        );
    }
}

/// The oracle's value and the engine's are this one.
#[track_caller]
fn both(m: &Build, inputs: &[Tensor], extents: &[usize], want: &[f64]) {
    near(&oracle(m, inputs)[0], extents, want, 1e-6);
    near(&engine(m, inputs)[0], extents, want, 2e-6);
}

fn x(extents: &[usize], data: &[f32]) -> Vec<Tensor> {
    vec![Tensor::f32(extents, data)]
}

#[test]
fn trap_01_a_chain_is_linear() {
    let counted = |n: usize| {
        let bytes = models::chain(n).bytes();
        let (imported, counted) =
            count_allocations(|| import_bytes(bytes, &ImportOptions::default()).unwrap());
        assert_eq!(ops_of(&imported).len(), n);
        counted
    };
    let (small, middle, large) = (counted(3_000), counted(6_000), counted(12_000));
    for (half, whole) in [(small, middle), (middle, large)] {
        let ratio = whole.n_calls as f64 / half.n_calls as f64;
        assert!((1.9..2.1).contains(&ratio), "{half:?} and {whole:?}");
        // Tables double when they are full, so bytes are linear up to a factor of two.
        assert!(whole.peak_bytes < 5 * half.peak_bytes, "{half:?} and {whole:?}");
    }
    // 4 × 1.0 is added 6 times and clamped: every second step keeps what is negative at 0.
    let y = &oracle(&models::chain(12), &x(&[4], &[0.0; 4]))[0];
    near(y, &[4], &[6.0, 0.0, 3.0, 0.0], 0.0);
}

#[test]
fn trap_02_two_builds_are_the_same_bytes() {
    let attrs = vec![ints("kernel_shape", &[2, 2])];
    let m = model(13)
        .input("x", DType::F32, "N,1,H,W")
        .op("AveragePool", &["x"], &["y"], attrs)
        .output("y");
    let shapes = || BTreeMap::from([("x".to_owned(), vec![1, 1, 2, 3])]);
    let folder = tempfile::tempdir().unwrap();
    let first = compiled(&m, folder.path(), shapes());
    let bytes = std::fs::read(folder.path().join("m.engine")).unwrap();
    let device = CpuDevice::new(CpuOptions::default());
    let y = Session::new(Box::new(device), &first)
        .unwrap()
        .run(&x(&[1, 1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        .unwrap();
    assert_eq!((&y[0].extents[..], y[0].to_f64()), (&[1, 1, 1, 2][..], vec![3.0, 4.0]));
    drop(first);
    compiled(&m, folder.path(), shapes());
    assert!(bytes == std::fs::read(folder.path().join("m.engine")).unwrap(), "byte for byte");
}

#[test]
fn trap_03_shapes_are_part_of_the_key() {
    let of = |n: usize| {
        let folder = tempfile::tempdir().unwrap();
        compiled(&single(13, "Relu", &format!("1,{n}"), vec![]), folder.path(), BTreeMap::new())
    };
    let (short, long) = (of(8), of(16));
    assert_ne!(short.manifest.model_hash, long.manifest.model_hash);
    assert_ne!(short.manifest.kernels[0].region_hash, long.manifest.kernels[0].region_hash);
    let device = CpuDevice::new(CpuOptions::default());
    let mut session = Session::new(Box::new(device), &short).unwrap();
    let err = session.run(&x(&[1, 16], &count(16))).unwrap_err();
    assert_eq!(err.to_string(), "input 0 (`x`) is f32[1,16], the engine was compiled for f32[1,8]");
}

#[test]
fn trap_05_a_loop_fills_a_sequence() {
    // Three trips insert x, 2x and 3x; their concatenation has all.
    let info = |name: &str, dtype| value_info(name, dtype, "");
    let body = GraphProto {
        input: vec![info("i", DType::I64), info("c", DType::Bool), info("s", DType::F32)],
        output: vec![info("c2", DType::Bool), info("s2", DType::F32)],
        node: vec![
            node("Identity", &["c"], &["c2"], vec![]),
            node("Add", &["i", "unit"], &["n"], vec![]),
            node("Cast", &["n"], &["f"], vec![int("to", 1)]),
            node("Mul", &["x", "f"], &["t"], vec![]),
            node("SequenceInsert", &["s", "t"], &["s2"], vec![]),
        ],
        ..Default::default()
    };
    let m = model(13)
        .input("x", DType::F32, "2")
        .constant("n_trips", &Tensor::i64(&[], &[3]))
        .constant("unit", &Tensor::i64(&[], &[1]));
    let m = m.op("SequenceEmpty", &[], &["empty"], vec![]);
    let m = m.op("Loop", &["n_trips", "", "empty"], &["all"], vec![subgraph("body", body)]);
    let m = m.op("ConcatFromSequence", &["all"], &["y"], vec![int("axis", 0)]).output("y");
    both(&m, &x(&[2], &[1.0, -1.0]), &[6], &[1.0, -1.0, 2.0, -2.0, 3.0, -3.0]);
}

#[test]
fn trap_06_all_unknown_operators_with_paths() {
    let inner = GraphProto {
        node: vec![named("Foo_2", in_domain("my.ops", node("Foo", &["x"], &["t"], vec![])))],
        output: vec![value_info("t", DType::F32, "")],
        ..Default::default()
    };
    let m = model(13).domain("my.ops", 1).domain("other", 2).input("x", DType::F32, "2");
    let m = m.input("c", DType::Bool, "").node(named("A", node("Frob", &["x"], &["a"], vec![])));
    let m = m.node(named("B", in_domain("other", node("Qux", &["a"], &["b"], vec![]))));
    let attrs = vec![subgraph("then_branch", inner), subgraph("else_branch", branch("Neg", "e"))];
    let m = m.node(named("If_4", node("If", &["c"], &["y"], attrs))).output("y").output("b");
    let Err(ImportError::Unsupported(list)) = m.import() else { panic!("three are unknown") };
    let found: Vec<(&str, &str, i64)> =
        list.iter().map(|it| (it.node.as_str(), it.domain.as_str(), it.opset)).collect();
    assert_eq!(found, [("A", "ai.onnx", 13), ("B", "other", 2), ("If_4/then/Foo_2", "my.ops", 1)]);
}

#[test]
fn trap_07_order_and_names() {
    let m = model(13)
        .input("x", DType::F32, "3")
        .node(named("n", node("Relu", &["a"], &["y"], vec![])))
        .node(named("n", node("Neg", &["x"], &["a"], vec![])))
        .output("y");
    both(&m, &x(&[3], &[1.0, -2.0, 3.0]), &[3], &[0.0, 2.0, 0.0]);
    let imported = m.import().unwrap();
    let sources: Vec<String> =
        imported.graph.nodes.values().flat_map(|it| it.sources.clone()).collect();
    assert_eq!(sources, ["n", "n#2"], "the second of a name is told apart");
}

#[test]
fn trap_09_branches_of_two_ranks() {
    let with = |m: Build| {
        let squeeze = GraphProto {
            node: vec![node("Squeeze", &["x", "axis"], &["t"], vec![])],
            output: vec![value_info("t", DType::F32, "2,2")],
            ..Default::default()
        };
        let attrs = vec![
            subgraph("then_branch", squeeze),
            subgraph("else_branch", branch("Identity", "e")),
        ];
        let m = m.longs("axis", &[0]).node(named("If_0", node("If", &["c"], &["y"], attrs)));
        m.output("y")
    };
    let known = |c: i64| {
        let m = model(13).input("x", DType::F32, "1,2,2");
        with(m.constant("c", &Tensor::from_i64(DType::Bool, &[], &[c])))
    };
    both(&known(1), &x(&[1, 2, 2], &count(4)), &[2, 2], &[0.0, 1.0, 2.0, 3.0]);
    both(&known(0), &x(&[1, 2, 2], &count(4)), &[1, 2, 2], &[0.0, 1.0, 2.0, 3.0]);
    // Where the condition is only known at run time no engine has both ranks; a program has, and says so.
    let open = with(model(13).input("x", DType::F32, "1,2,2").input("c", DType::Bool, ""));
    let message = open.import().unwrap_err().to_string();
    for word in ["If_0", "f32[2,2]", "f32[1,2,2]"] {
        assert!(message.contains(word), "{message}");
    }
    for (c, extents) in [(1, &[2, 2][..]), (0, &[1, 2, 2])] {
        let condition = Tensor::from_i64(DType::Bool, &[], &[c]);
        let inputs = [Tensor::f32(&[1, 2, 2], &count(4)), condition];
        near(&program(&open, &inputs)[0], extents, &[0.0, 1.0, 2.0, 3.0], 0.0);
    }
}

#[test]
fn trap_10_reshape_by_a_shape() {
    // A shape that is an input is not known when the model is built: a program decides it on the way.
    let m = model(13).input("x", DType::F32, "2,3,4").input("s", DType::I64, "2");
    let m = m.op("Reshape", &["x", "s"], &["y"], vec![]).output("y");
    let message = m.import().unwrap_err().to_string();
    assert!(message.contains("Reshape_y") && message.contains("run time"), "{message}");
    let want: Vec<f64> = (0..24).map(f64::from).collect();
    let inputs = [Tensor::f32(&[2, 3, 4], &count(24)), Tensor::i64(&[2], &[6, 4])];
    near(&program(&m, &inputs)[0], &[6, 4], &want, 0.0);
    let m = model(13).input("x", DType::F32, "n,3,4").longs("zero", &[0]).longs("rest", &[-1]);
    let m = m.op("Shape", &["x"], &["shape"], vec![]);
    let m = m.op("Gather", &["shape", "zero"], &["first"], vec![]);
    let m = m.op("Concat", &["first", "rest"], &["new"], vec![int("axis", 0)]);
    let m = m.op("Reshape", &["x", "new"], &["y"], vec![]).output("y");
    for n in [2, 6] {
        let shapes = BTreeMap::from([("x".to_owned(), vec![n, 3, 4])]);
        let imported = import_bytes(m.bytes(), &ImportOptions { shapes }).unwrap();
        assert_eq!(ops_of(&imported), [Op::Reshape]);
        assert_eq!(imported.outputs[0].1.extents(), [n, 12]);
    }
}

#[test]
fn trap_13_a_large_fill_stays_one_number() {
    let m = model(13).input("x", DType::F32, "1").longs("n", &[200_000_000]);
    let m = m.op("ConstantOfShape", &["n"], &["zeros"], vec![]);
    let m = m.op("ReduceSum", &["zeros"], &["sum"], vec![int("keepdims", 0)]);
    let m = m.op("Add", &["x", "sum"], &["y"], vec![]).output("y");
    let (imported, counted) = count_allocations(|| m.import().unwrap());
    assert_eq!(imported.outputs[0].1.extents(), [1]);
    assert!(counted.peak_bytes < 1 << 20, "{counted:?}");
}

#[test]
fn trap_14_comparisons_of_shapes_fold() {
    let m = model(13).input("x", DType::F32, "2,3").longs("zero", &[0]).longs("two", &[2]);
    let m = m.longs("rest", &[-1]).op("Shape", &["x"], &["shape"], vec![]);
    let m = m.op("Gather", &["shape", "zero"], &["first"], vec![]);
    let m = m.op("GreaterOrEqual", &["first", "two"], &["yes"], vec![]);
    let m = m.op("Cast", &["yes"], &["one"], vec![int("to", 7)]);
    let m = m.op("Concat", &["one", "rest"], &["new"], vec![int("axis", 0)]);
    let m = m.op("Reshape", &["x", "new"], &["y"], vec![]).output("y");
    assert_eq!(ops_of(&m.import().unwrap()), [Op::Reshape]);
    both(&m, &x(&[2, 3], &count(6)), &[1, 6], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn trap_15_a_mean_without_keepdims() {
    // The means of the rows are subtracted from the columns: it looks like LayerNorm and is not.
    let data: Vec<f32> =
        (0..16).map(|i| [0.0, 1.0, 4.0, 2.0, 3.0][i % 5] + i as f32 / 4.0).collect();
    let m = model(13).input("x", DType::F32, "4,4").floats("eps", &[], &[0.5]).floats(
        "two",
        &[],
        &[2.0],
    );
    let axes = || ints("axes", &[-1]);
    let m = m.op("ReduceMean", &["x"], &["mean"], vec![axes(), int("keepdims", 0)]);
    let m = m.op("Sub", &["x", "mean"], &["d"], vec![]).op("Pow", &["d", "two"], &["sq"], vec![]);
    let m = m.op("ReduceMean", &["sq"], &["var"], vec![axes(), int("keepdims", 1)]);
    let m = m.op("Add", &["var", "eps"], &["pad"], vec![]).op("Sqrt", &["pad"], &["sd"], vec![]);
    let m = m.op("Div", &["d", "sd"], &["y"], vec![]).output("y");
    let at = |row: usize, column: usize| f64::from(data[row * 4 + column]);
    let mean = |row: usize| (0..4).map(|column| at(row, column)).sum::<f64>() / 4.0;
    let d = |row: usize, column: usize| at(row, column) - mean(column);
    let sd = |row: usize| ((0..4).map(|j| d(row, j) * d(row, j)).sum::<f64>() / 4.0 + 0.5).sqrt();
    let want: Vec<f64> = (0..16).map(|i| d(i / 4, i % 4) / sd(i / 4)).collect();
    both(&m, &x(&[4, 4], &data), &[4, 4], &want);
}

#[test]
fn trap_16_one_over_y_times_an_identity() {
    for (op, attrs) in [("Dropout", vec![]), ("Cast", vec![int("to", 1)])] {
        let m = model(13).input("x", DType::F32, "2").input("y", DType::F32, "2").floats(
            "one",
            &[],
            &[1.0],
        );
        let m = m.op("Div", &["one", "y"], &["r"], vec![]).op(op, &["x"], &["d"], attrs);
        let m = m.op("Mul", &["r", "d"], &["z"], vec![]).output("z");
        let inputs = [Tensor::f32(&[2], &[3.0, -1.0]), Tensor::f32(&[2], &[2.0, 4.0])];
        both(&m, &inputs, &[2], &[1.5, -0.25]);
    }
}

#[test]
fn trap_18_a_folded_initialiser_stays_the_same() {
    let forms = [("Reshape", vec![]), ("Squeeze", vec![]), ("Flatten", vec![int("axis", 1)])];
    for (op, attrs) in forms {
        let m = model(13).input("x", DType::F32, "2,3").floats("w", &[2, 1, 3], &count(6));
        let m = m.longs("s", &[2, 3]).longs("a", &[1]);
        let names: &[&str] = match op {
            "Reshape" => &["w", "s"],
            "Squeeze" => &["w", "a"],
            _ => &["w"],
        };
        let m = m.op(op, names, &["v"], attrs).op("Add", &["x", "v"], &["y"], vec![]).output("y");
        both(&m, &x(&[2, 3], &[0.5; 6]), &[2, 3], &[0.5, 1.5, 2.5, 3.5, 4.5, 5.5]);
        let first = m.import().unwrap();
        for _ in 0..100 {
            let again = m.import().unwrap();
            assert_eq!(again.graph, first.graph);
        }
    }
}

#[test]
fn trap_19_a_wrong_hint_does_not_drop_an_axis() {
    let hint = |name: &str| -> ValueInfoProto { value_info(name, DType::F32, "5,50,1") };
    let mut m = model(13).input("x", DType::F32, "1,5,25,1").longs("s", &[1, 5, 50, 1]);
    m.graph().value_info.push(hint("c"));
    let m = m.op("Concat", &["x", "x"], &["c"], vec![int("axis", 2)]);
    let mut m = m.op("Reshape", &["c", "s"], &["y"], vec![]);
    m.graph().output.push(hint("y"));
    let data = count(125);
    let want: Vec<f64> = (0..250).map(|i| f64::from(data[i / 50 * 25 + i % 25])).collect();
    both(&m, &x(&[1, 5, 25, 1], &data), &[1, 5, 50, 1], &want);
}

#[test]
fn trap_21_softmax_of_opset_11() {
    let data: Vec<f32> = (0..24).map(|i| (i % 12) as f32 / 8.0).collect();
    let sum: f64 = (0..12).map(|i| (f64::from(i) / 8.0).exp()).sum();
    let soft: Vec<f64> = (0..24).map(|i| (f64::from(i % 12) / 8.0).exp() / sum).collect();
    let log: Vec<f64> = soft.iter().map(|p| p.ln()).collect();
    let hard: Vec<f64> = (0..24).map(|i| f64::from(u8::from(i % 12 == 11))).collect();
    for (op, want) in [("Softmax", soft), ("LogSoftmax", log), ("Hardmax", hard)] {
        for attrs in [vec![], vec![int("axis", 1)]] {
            both(&single(11, op, "2,3,4", attrs), &x(&[2, 3, 4], &data), &[2, 3, 4], &want);
        }
    }
}

#[test]
fn trap_22_not_a_number() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let data = x(&[5], &[f32::NAN, -1.0, 2.0, f32::INFINITY, f32::NEG_INFINITY]);
    both(&single(13, "Relu", "5", vec![]), &data, &[5], &[nan, 0.0, 2.0, inf, 0.0]);
    both(&single(13, "Sign", "5", vec![]), &data, &[5], &[nan, -1.0, 1.0, 1.0, -1.0]);
    let with_one = |op: &str| {
        let m = model(13).input("x", DType::F32, "5").floats("one", &[], &[1.0]);
        m.op(op, &["x", "one"], &["y"], vec![]).output("y")
    };
    both(&with_one("Max"), &data, &[5], &[nan, 1.0, 2.0, inf, 1.0]);
    both(&with_one("Min"), &data, &[5], &[nan, -1.0, 1.0, 1.0, -inf]);
    let clip = single(7, "Clip", "5", vec![float("min", -2.0), float("max", 1.5)]);
    both(&clip, &data, &[5], &[nan, -1.0, 1.5, 1.5, -2.0]);
    // The rule for reductions: a maximum with NaN is NaN (as the reference says, not onnxruntime).
    let reduce = single(13, "ReduceMax", "5", vec![int("keepdims", 0)]);
    both(&reduce, &data, &[], &[nan]);
    let attrs = vec![int("axis", 0), int("keepdims", 0)];
    both(&single(13, "ArgMax", "5", attrs), &data, &[], &[0.0]);
    let m = model(13).input("x", DType::F32, "5").longs("k", &[2]);
    let m = m.op("TopK", &["x", "k"], &["y", "i"], vec![]).output("y").output("i");
    for results in [oracle(&m, &data), engine(&m, &data)] {
        near(&results[0], &[2], &[nan, inf], 0.0);
        near(&results[1], &[2], &[0.0, 3.0], 0.0);
    }
}

#[test]
fn trap_23_casts_and_division_at_the_edges() {
    let data = x(&[5], &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e9, -1.7]);
    let (low, high) = (f64::from(i32::MIN), f64::from(i32::MAX));
    for (code, want) in [(6, [0.0, high, low, high, -1.0]), (2, [0.0, 255.0, 0.0, 255.0, 0.0])] {
        both(&single(13, "Cast", "5", vec![int("to", code)]), &data, &[5], &want);
    }
    // No kernel computes u32 (FIXME(#4)); what it means is known.
    let wide = oracle(&single(13, "Cast", "5", vec![int("to", 12)]), &data);
    near(&wide[0], &[5], &[0.0, f64::from(u32::MAX), 0.0, 3e9, 0.0], 0.0);
    // By 0 the quotient and the remainder are 0; the lowest number by -1 wraps.
    let ints = |values: &[i64]| Tensor::from_i64(DType::I32, &[4], values);
    let lowest = i64::from(i32::MIN);
    let pair = [ints(&[7, -7, 0, lowest]), ints(&[0, 0, 0, -1])];
    for (op, want) in [("Div", [0.0, 0.0, 0.0, low]), ("Mod", [0.0; 4])] {
        let m = model(13).input("a", DType::I32, "4").input("b", DType::I32, "4");
        both(&m.op(op, &["a", "b"], &["y"], vec![]).output("y"), &pair, &[4], &want);
    }
}

#[test]
fn trap_24_quantisation_rounds_to_even() {
    let data = [0.5, 1.5, 2.5, -0.5, -1.5, 127.5, -128.5];
    let want = [0.0, 2.0, 2.0, 0.0, -2.0, 127.0, -128.0];
    for dtype in [DType::F32, DType::F16] {
        let m = model(19)
            .input("x", dtype, "7")
            .constant("s", &Tensor::from_f64(dtype, &[], &[1.0]))
            .constant("z", &Tensor::from_i64(DType::I8, &[], &[0]));
        let m = m.op("QuantizeLinear", &["x", "s", "z"], &["y"], vec![]).output("y");
        both(&m, &[Tensor::from_f64(dtype, &[7], &data)], &[7], &want);
    }
    let m = single(11, "DynamicQuantizeLinear", "3", vec![]);
    let mut m = m;
    m.graph().node[0].output = vec!["y".into(), "s".into(), "z".into()];
    both(&m, &x(&[3], &[-127.0, 128.0, 0.5]), &[3], &[0.0, 255.0, 127.0]);
}

#[test]
fn trap_26_layer_norm_in_half_precision() {
    let data = [Tensor::from_f64(DType::F16, &[1, 4], &[1000.0, -1000.0, 500.0, -500.0])];
    let want = [1.2649, -1.2649, 0.63246, -0.63246];
    let close = |results: Results| near(&results[0], &[1, 4], &want, 1e-3);
    let m = model(17).input("x", DType::F16, "1,4");
    let m = m.constant("s", &Tensor::from_f64(DType::F16, &[4], &[1.0; 4]));
    let m = m.op("LayerNormalization", &["x", "s"], &["y"], vec![]).output("y");
    close(oracle(&m, &data));
    close(engine(&m, &data));
    // In pieces: squares of 1000 are beyond float16, and are summed in float32.
    let m = model(13).input("x", DType::F16, "1,4");
    let m = m.constant("two", &Tensor::from_f64(DType::F16, &[], &[2.0]));
    let m = m.constant("eps", &Tensor::from_f64(DType::F16, &[], &[1e-5]));
    let axes = || vec![ints("axes", &[-1])];
    let m = m.op("ReduceMean", &["x"], &["mean"], axes()).op("Sub", &["x", "mean"], &["d"], vec![]);
    let m = m.op("Pow", &["d", "two"], &["sq"], vec![]).op("ReduceMean", &["sq"], &["var"], axes());
    let m = m.op("Add", &["var", "eps"], &["pad"], vec![]).op("Sqrt", &["pad"], &["sd"], vec![]);
    let m = m.op("Div", &["d", "sd"], &["y"], vec![]).output("y");
    close(oracle(&m, &data));
    close(engine(&m, &data));
}

#[test]
fn trap_28_empty_operands() {
    let gemm = model(13).input("x", DType::F32, "0,3").floats("w", &[3, 2], &count(6));
    let gemm = gemm.op("Gemm", &["x", "w"], &["y"], vec![]).output("y");
    both(&gemm, &x(&[0, 3], &[]), &[0, 2], &[]);
    let product = model(13).input("x", DType::F32, "2,0").floats("w", &[0, 3], &[]);
    let product = product.op("MatMul", &["x", "w"], &["y"], vec![]).output("y");
    both(&product, &x(&[2, 0], &[]), &[2, 3], &[0.0; 6]);
    let sum = model(13).input("x", DType::F32, "2,0").longs("axes", &[1]);
    let sum = sum.op("ReduceSum", &["x", "axes"], &["y"], vec![int("keepdims", 1)]).output("y");
    both(&sum, &x(&[2, 0], &[]), &[2, 1], &[0.0, 0.0]);
}
