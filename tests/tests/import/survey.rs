//! What `eggine check` rests on: everything that a model needs is found, also where import stops early.

use eggine_ir::DType;
use eggine_ir::onnx::ImportOptions;
use eggine_ir::onnx::proto::GraphProto;
use eggine_ir::onnx::survey::{Decision, Survey, Tier, survey_bytes};

use crate::build::{
    Build, branch, in_domain, int, ints, model, named, node, single, string, subgraph, value_info,
};

fn look(m: &Build) -> Survey {
    survey_bytes(m.bytes(), &ImportOptions::default()).unwrap()
}

fn traps(m: &Build) -> Vec<&'static str> {
    look(m).traps.iter().map(|it| it.trap).collect()
}

#[test]
fn operators_are_counted_in_subgraphs_too() {
    let m = model(13).domain("my.ops", 3).input("x", DType::F32, "2,3").input("c", DType::Bool, "");
    let inner = GraphProto {
        node: vec![named("Foo_2", in_domain("my.ops", node("Foo", &["x"], &["t"], vec![])))],
        output: vec![value_info("t", DType::F32, "")],
        ..Default::default()
    };
    let attrs = vec![subgraph("then_branch", inner), subgraph("else_branch", branch("Relu", "e"))];
    let m = m.node(named("If_4", node("If", &["c"], &["y"], attrs)));
    let m = m.op("Relu", &["x"], &["z"], vec![]).output("y").output("z");
    let found = look(&m);
    let count = |op: &str| found.operators.iter().find(|it| it.op == op).map(|it| it.n);
    assert_eq!(
        (count("Relu"), count("Foo"), count("If"), found.n_nodes),
        (Some(2), Some(1), Some(1), 4)
    );
    assert_eq!(found.operators[0].tier, Tier::Half);
    assert!(!found.covered());
    let missing: Vec<String> = found.unsupported.iter().map(ToString::to_string).collect();
    assert_eq!(
        missing,
        ["If_4/then/Foo_2: my.ops.Foo (opset 3) on f32[2,3]: this operator is not supported"]
    );
    let place = &found.places[0];
    assert_eq!((place.node.as_str(), place.decision), ("If_4", Decision::Branch));
}

#[test]
fn what_stops_import_at_once_does_not_hide_the_nodes() {
    let mut m =
        single(13, "Frobnicate", "2", vec![]).op("Relu", &["x"], &["z"], vec![]).output("z");
    let mut strings = value_info("names", DType::F32, "3");
    strings.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().elem_type = Some(8);
    m.graph().input.push(strings);
    let found = look(&m);
    assert!(found.takes_strings && !found.covered());
    assert_eq!(found.unsupported.len(), 1);
    assert_eq!(found.unsupported[0].node, "Frobnicate_y");
}

#[test]
fn what_is_known_at_run_time_only_makes_a_program() {
    let m = model(13).input("x", DType::F32, "2,3").input("s", DType::I64, "2");
    let found = look(&m.op("Reshape", &["x", "s"], &["y"], vec![]).output("y"));
    assert!(found.covered() && found.is_program());
    assert_eq!(found.unsupported[0].node, "Reshape_y");
    assert_eq!(found.n_tried, 1, "no other extent would help");
    assert!(!look(&single(13, "Relu", "2", vec![])).is_program());
}

#[test]
fn open_dimensions_get_numbers_and_it_is_said() {
    // 2 is too small for the window, so another extent is found.
    let m = model(13).input("x", DType::F32, "n,3,?,?").op(
        "MaxPool",
        &["x"],
        &["y"],
        vec![ints("kernel_shape", &[7, 7])],
    );
    let found = look(&m.output("y"));
    assert!(found.covered(), "{:?}", found.failure);
    assert_eq!(found.tried["x"], [1, 3, 16, 16]);
    let symbols: Vec<(usize, &str)> =
        found.dynamic.iter().map(|it| (it.axis, it.symbol.as_str())).collect();
    assert_eq!(symbols, [(0, "n"), (2, "?"), (3, "?")]);
    assert_eq!(found.n_tried, 4);
    let sum = model(13).input("x", DType::F32, "1,past").input("m", DType::F32, "1,past + 1");
    let found = look(&sum.op("Relu", &["x"], &["y"], vec![]).output("y"));
    assert_eq!((found.tried["x"][1], found.tried["m"][1]), (2, 3));
}

#[test]
fn shapes_are_not_data() {
    // Reshape by the shape of another input is static, by the contents of one is not.
    let m = model(13).input("x", DType::F32, "2,3").input("like", DType::F32, "3,2");
    let m = m.op("Shape", &["like"], &["s"], vec![]).op("Reshape", &["x", "s"], &["y"], vec![]);
    assert!(look(&m.output("y")).places.is_empty());
    let m = model(13).input("x", DType::F32, "2,3").input("s", DType::I64, "2");
    let m = m.op("Reshape", &["x", "s"], &["y"], vec![]).output("y");
    assert_eq!(look(&m).places[0].decision, Decision::Extents);
    let m = single(13, "NonZero", "4", vec![]);
    assert_eq!(look(&m).places[0].op, "NonZero");
}

/// Found by libFuzzer: the survey called it a program, import an engine.
#[test]
fn numbers_that_are_declared_as_strings_are_numbers() {
    let mut m = single(13, "Relu", "2", vec![]);
    let output = m.graph().output[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
    output.elem_type = Some(8);
    let found = look(&m);
    assert!(found.covered() && !found.is_program() && found.n_core_ops == Some(1));
    assert_eq!(m.import().unwrap().outputs[0].1.dtype, DType::F32);
}

#[test]
fn traps_are_seen_in_the_forms_that_have_them() {
    assert_eq!(traps(&single(11, "Softmax", "2,3,4", vec![])), ["softmax-flattens"]);
    assert!(traps(&single(11, "Softmax", "2,3", vec![])).is_empty(), "a matrix has no such axes");
    assert!(traps(&single(13, "Softmax", "2,3,4", vec![])).is_empty());
    let pool = |more| {
        let attrs = [vec![ints("kernel_shape", &[2])], more].concat();
        traps(&single(13, "AveragePool", "1,1,5", attrs))
    };
    assert!(pool(vec![]).is_empty());
    assert_eq!(pool(vec![string("auto_pad", "SAME_LOWER")]), ["pad-lower"]);
    let hangs = pool(vec![int("ceil_mode", 1), int("count_include_pad", 1), ints("pads", &[1, 1])]);
    assert_eq!(hangs, ["average-hangs-over", "window-in-the-padding"]);
    let m = single(13, "Cast", "2", vec![int("to", 6)]);
    assert_eq!(traps(&m), ["cast-saturates"]);
    assert!(traps(&single(13, "Cast", "2", vec![int("to", 11)])).is_empty());
    let m = model(13).input("x", DType::F32, "2");
    let m = m.op("Relu", &["a"], &["y"], vec![]).op("Neg", &["x"], &["a"], vec![]).output("y");
    assert_eq!(traps(&m), ["order"]);
}
