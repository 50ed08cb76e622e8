//! The conformance suite of ONNX: import, the oracle and engines against the standard's own tests.
//!
//! `cargo xtask conformance` (and `cargo xtask test`) makes the tests from the pinned wheel into
//! `target/conformance`; without them this is skipped, and says so. Each test has one line in
//! `target/conformance/report.tsv`. What is refused is listed, with the reason, in
//! `tests/conformance/expectations.tsv`; a wrong answer or a panic is never expected.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a panic is how a test fails, a skip is said aloud"
)]

#[path = "conformance/case.rs"]
mod case;
#[path = "conformance/compare.rs"]
mod compare;
#[path = "conformance/drawn.rs"]
mod drawn;
#[path = "conformance/engine.rs"]
mod engine;
#[path = "conformance/expect.rs"]
mod expect;
#[path = "conformance/judge.rs"]
mod judge;
#[path = "conformance/pool.rs"]
mod pool;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use case::Case;
use expect::Expectations;
use judge::{Judged, Verdict};

/// The largest model takes a tenth of this on an idle machine; it is what a hang costs.
const LIMIT: Duration = Duration::from_secs(900);

/// In `cargo xtask test` one test in so many is also compiled and run: the whole takes minutes.
const ENGINE_FRACTION: u64 = 16;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Whether a test's engine half is due; `extent` is `all` or `oracle`.
fn with_engine(case: &Case, extent: Option<&str>) -> bool {
    let hash = case.name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    match extent {
        Some("all") => true,
        Some("oracle") => false,
        // The large models are the slowest of all, and the models of other tests are like them.
        _ => case.kind != "light" && hash.is_multiple_of(ENGINE_FRACTION),
    }
}

#[test]
fn the_suite_agrees_with_its_expectations() {
    let folder = std::env::var_os("EGGINE_CONFORMANCE_DATA")
        .map_or_else(|| root().join("target/conformance"), PathBuf::from);
    let Ok(cases) = Case::all(&folder) else {
        eprintln!(
            "skipped the conformance suite: there is no {}; `cargo xtask conformance` makes it",
            folder.join("index.tsv").display()
        );
        return;
    };
    // `all` is what `cargo xtask conformance` asks for, `oracle` leaves the engines out.
    let extent = std::env::var("EGGINE_CONFORMANCE").ok();
    let all = extent.as_deref() == Some("all");
    let only = std::env::var("EGGINE_CONFORMANCE_ONLY").ok();
    let cases: Vec<Case> = cases
        .into_iter()
        .filter(|case| only.as_ref().is_none_or(|only| case.id().contains(only.as_str())))
        .collect();
    let start = Instant::now();
    let judged = pool::judge_all(&cases, LIMIT, move |case| {
        judge::judge(case, with_engine(case, extent.as_deref()))
    });
    let report: String = judged.iter().map(Judged::line).collect();
    std::fs::write(folder.join("report.tsv"), &report).unwrap();
    if all || only.is_some() {
        eprint!("{report}");
    }
    eprint!("{}", expect::summary(&judged));
    eprintln!("{} tests in {:.1} s", judged.len(), start.elapsed().as_secs_f64());

    let path = root().join("tests/conformance/expectations.tsv");
    // Only of everything: a part of the list would be lost.
    if all && only.is_none() && std::env::var_os("EGGINE_CONFORMANCE_BLESS").is_some() {
        std::fs::write(&path, Expectations::of(&judged).print()).unwrap();
    }
    let expected = Expectations::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let problems = expected.problems(&judged, only.is_none() && all);
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// A test of one `Relu`, on disk as the generator writes it.
fn written(folder: &Path, expected: f32) -> Case {
    use eggine_ir::onnx::proto::{
        GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorTypeProto, TypeProto,
        ValueInfoProto,
    };
    use prost::Message;
    let value = |name: &str| ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto { elem_type: Some(1), ..TensorTypeProto::default() }),
            ..TypeProto::default()
        }),
    };
    let node = NodeProto {
        op_type: Some("Relu".into()),
        input: vec!["x".into()],
        output: vec!["y".into()],
        ..NodeProto::default()
    };
    let graph = GraphProto {
        node: vec![node],
        input: vec![value("x")],
        output: vec![value("y")],
        ..GraphProto::default()
    };
    let model = ModelProto {
        ir_version: Some(8),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(14) }],
        ..ModelProto::default()
    };
    let at = folder.join("node/test_relu");
    std::fs::create_dir_all(&at).unwrap();
    std::fs::write(at.join("model.onnx"), model.encode_to_vec()).unwrap();
    let bytes: Vec<u8> =
        [-1.0f32, 2.0, 0.0, expected].iter().flat_map(|x| x.to_le_bytes()).collect();
    std::fs::write(at.join("set0.bin"), bytes).unwrap();
    std::fs::write(at.join("set0.tsv"), "in\tx\tf32\t2\t0\t8\nout\ty\tf32\t2\t8\t8\n").unwrap();
    std::fs::write(folder.join("index.tsv"), "node\ttest_relu\t-\t0.001\t1e-07\n").unwrap();
    Case::all(folder).unwrap().remove(0)
}

/// A draw is judged: what no draw can be is wrong.
#[test]
fn what_no_draw_can_be_is_seen() {
    use drawn::{Draw, problem};
    use eggine_ir::{DType, Tensor};
    let floats = |data: &[f64]| Tensor::from_f64(DType::F32, &[data.len()], data);
    let mask = |data: &[f64]| Tensor::from_f64(DType::Bool, &[data.len()], data);
    let named = |tensors: Vec<Tensor>| {
        tensors.into_iter().map(|tensor| ("x".to_owned(), Ok(tensor))).collect::<Vec<_>>()
    };
    let x = || named(vec![floats(&[1.0, 2.0])]);
    let bits = case::Set { inputs: x(), outputs: x() };
    assert_eq!(problem(Draw::Bits, &bits, &[floats(&[0.0, 1.0])]), None);
    assert!(problem(Draw::Bits, &bits, &[floats(&[0.0, 0.5])]).is_some());
    assert!(problem(Draw::Bits, &bits, &[floats(&[0.0])]).is_some(), "another shape");
    assert!(problem(Draw::Bits, &bits, &[mask(&[0.0, 1.0])]).is_some(), "another type");
    let half = Draw::Dropout(0.5);
    let both = named(vec![floats(&[0.0, 0.0]), mask(&[0.0, 0.0])]);
    let dropout = case::Set { inputs: x(), outputs: both };
    assert_eq!(problem(half, &dropout, &[floats(&[0.0, 4.0]), mask(&[0.0, 1.0])]), None);
    assert!(problem(half, &dropout, &[floats(&[0.0, 2.0]), mask(&[0.0, 1.0])]).is_some());
    assert!(problem(half, &dropout, &[floats(&[0.0, 4.0]), mask(&[1.0, 1.0])]).is_some());
}

#[test]
fn a_right_answer_passes_and_a_wrong_one_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    for (expected, oracle, engine) in [
        (2.0, Verdict::Pass, Verdict::Pass),
        (2.01, Verdict::Wrong, Verdict::Skipped),
        (f32::NAN, Verdict::Wrong, Verdict::Skipped),
    ] {
        let case = written(folder.path(), expected);
        let judged = judge::judge(&case, true);
        assert_eq!((judged.oracle.verdict, judged.engine.verdict), (oracle, engine), "{expected}");
        // The engine half sees it by itself too.
        let set = &case.sets().unwrap()[0];
        let (bound, _) = judge::bind(&case, set).unwrap();
        assert_eq!(engine::judge(&case, set, &bound).verdict, oracle, "{expected}");
        let problems = Expectations::default().problems(&[judged], true);
        assert_eq!(problems.is_empty(), oracle == Verdict::Pass, "{problems:?}");
    }
}

#[test]
fn a_panic_and_a_hang_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [written(folder.path(), 2.0)];
    let judged = pool::judge_all(&cases, LIMIT, |_| panic!("on purpose"));
    assert_eq!(judged[0].oracle.verdict, Verdict::Panic);
    assert!(judged[0].oracle.reason.contains("on purpose"), "{}", judged[0].oracle.reason);
    let judged = pool::judge_all(&cases, Duration::from_millis(20), |case| {
        std::thread::sleep(Duration::from_secs(2));
        judge::judge(case, false)
    });
    assert_eq!(judged[0].oracle.verdict, Verdict::Timeout);
    // Neither can be expected.
    assert_eq!(Expectations::of(&judged), Expectations::default());
}

#[test]
fn an_expectation_that_is_not_true_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let passes = judge::judge(&written(folder.path(), 2.0), true);
    let listed = Expectations::parse("node/test_relu\toracle\tnot yet\n").unwrap();
    assert_eq!(listed.problems(std::slice::from_ref(&passes), true).len(), 1);
    let gone = Expectations::parse("node/test_gone\toracle\tnot yet\n").unwrap();
    assert_eq!(gone.problems(std::slice::from_ref(&passes), true).len(), 1);
    assert_eq!(gone.problems(&[passes], false).len(), 0);
}
