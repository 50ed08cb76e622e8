//! What import does with constants, names, scopes, control flow and shapes.

use std::collections::BTreeMap;

use eggine_ir::onnx::proto::{AttributeProto, FunctionProto, GraphProto, OperatorSetIdProto};
use eggine_ir::onnx::{ImportError, ImportOptions, Imported, describe, import_bytes};
use eggine_ir::{DType, NodeKind, Op, Tensor};

use crate::build::{
    Build, assert_near, attr, branch, float, in_domain, int, model, named, node, ops_of, single,
    subgraph, value_info,
};

#[test]
fn shape_arithmetic_folds_away() {
    let m = model(13).input("x", DType::F32, "2,3,4").longs("zero", &[0]).longs("rest", &[-1]);
    let m = m.op("Shape", &["x"], &["shape"], vec![]).op(
        "Gather",
        &["shape", "zero"],
        &["first"],
        vec![],
    );
    let m = m.op("Concat", &["first", "rest"], &["new"], vec![int("axis", 0)]).op(
        "Reshape",
        &["x", "new"],
        &["flat"],
        vec![],
    );
    // And a comparison of shapes, cast and used as an extent.
    let m = m.op("GreaterOrEqual", &["first", "zero"], &["yes"], vec![]).op(
        "Cast",
        &["yes"],
        &["one"],
        vec![int("to", 7)],
    );
    let m = m
        .op("Concat", &["one", "new"], &["last"], vec![int("axis", 0)])
        .op("Reshape", &["flat", "last"], &["y"], vec![])
        .output("y");
    let imported = m.import().unwrap();
    assert_eq!(ops_of(&imported), [Op::Reshape]);
    assert_eq!(imported.outputs[0].1.extents(), [1, 2, 12]);
    let sources = &imported.graph.nodes.values().last().unwrap().sources;
    assert_eq!(sources, &["Reshape_y"], "the node has no name of its own");
}

#[test]
fn a_large_constant_of_shape_is_not_written_out() {
    let m = model(13).input("x", DType::F32, "1").longs("n", &[200_000_000]);
    let m = m.op("ConstantOfShape", &["n"], &["zeros"], vec![]).op(
        "ReduceSum",
        &["zeros"],
        &["sum"],
        vec![int("keepdims", 0)],
    );
    let m = m.op("Add", &["x", "sum"], &["y"], vec![]).output("y");
    let imported = m.import().unwrap();
    let bytes: usize = imported
        .graph
        .nodes
        .values()
        .map(|node| match &node.kind {
            NodeKind::Const(tensor) => tensor.bytes.len(),
            _ => 0,
        })
        .sum();
    assert!(bytes < 64, "{bytes} bytes of constants");
    assert_eq!(ops_of(&imported), [Op::Expand, Op::ReduceSum, Op::Reshape, Op::Add]);
}

#[test]
fn order_and_names_are_forgiven() {
    let m = model(13).input("x", DType::F32, "2");
    let m = m
        .node(named("n", node("Relu", &["a"], &["y"], vec![])))
        .node(named("n", node("Neg", &["x"], &["a"], vec![])));
    let m = m.output("y");
    assert_near(&m.on(&[2], &[1.0, -2.0]).1, &[0.0, 2.0]);
    let imported = m.import().unwrap();
    let sources: Vec<_> =
        imported.graph.nodes.values().flat_map(|node| node.sources.clone()).collect();
    assert_eq!(sources, ["n", "n#2"]);
}

#[test]
fn initialisers_among_the_inputs_are_constants_and_dead_nodes_go() {
    let m = model(8).input("x", DType::F32, "2").input("w", DType::F32, "2").floats(
        "w",
        &[2],
        &[1.0, 2.0],
    );
    let m =
        m.op("Add", &["x", "w"], &["y"], vec![]).op("Exp", &["x"], &["unused"], vec![]).output("y");
    let imported = m.import().unwrap();
    assert_eq!(imported.inputs.len(), 1);
    assert_eq!(ops_of(&imported), [Op::Add]);
    assert_eq!(imported.model.n_nodes, 2);
}

#[test]
fn a_known_condition_takes_its_branch_and_an_unknown_one_selects() {
    let attrs = || {
        vec![
            subgraph("then_branch", branch("Exp", "t")),
            subgraph("else_branch", branch("Neg", "e")),
        ]
    };
    let known = model(13)
        .input("x", DType::F32, "2")
        .constant("c", &Tensor::from_i64(DType::Bool, &[], &[0]));
    let known = known.op("If", &["c"], &["y"], attrs()).output("y");
    assert_eq!(ops_of(&known.import().unwrap()), [Op::Neg]);
    let open = model(13)
        .input("x", DType::F32, "2")
        .input("c", DType::Bool, "")
        .op("If", &["c"], &["y"], attrs())
        .output("y");
    for (condition, want) in [(0, [-1.0, 2.0]), (1, [1f64.exp(), (-2f64).exp()])] {
        let inputs =
            [Tensor::f32(&[2], &[1.0, -2.0]), Tensor::from_i64(DType::Bool, &[], &[condition])];
        assert_near(&open.run(&inputs)[0].1, &want);
    }
    let imported = open.import().unwrap();
    assert_eq!(
        imported.graph.nodes.values().filter(|node| node.sources == ["If_y/then/Exp_t"]).count(),
        1
    );
}

#[test]
fn loops_with_known_trips_are_unrolled() {
    let body = GraphProto {
        input: ["i", "c", "s"].map(|name| value_info(name, DType::F32, "")).to_vec(),
        output: ["c2", "s2", "scan"].map(|name| value_info(name, DType::F32, "")).to_vec(),
        node: vec![
            node("Identity", &["c"], &["c2"], vec![]),
            node("Cast", &["i"], &["f"], vec![int("to", 1)]),
            node("Add", &["s", "f"], &["s2"], vec![]),
            node("Mul", &["s2", "s2"], &["scan"], vec![]),
        ],
        ..Default::default()
    };
    let m = model(13).input("x", DType::F32, "1").constant("n", &Tensor::i64(&[], &[3]));
    let m = m.constant("c", &Tensor::from_i64(DType::Bool, &[], &[1]));
    let m = m
        .op("Loop", &["n", "c", "x"], &["last", "all"], vec![subgraph("body", body)])
        .output("last")
        .output("all");
    let results = m.run(&[Tensor::f32(&[1], &[10.0])]);
    assert_eq!(results[0], (vec![1], vec![13.0]));
    assert_eq!(results[1], (vec![3, 1], vec![100.0, 121.0, 169.0]));
}

#[test]
fn functions_are_inlined_with_their_attributes() {
    let mut leaky = node("LeakyRelu", &["a"], &["b"], vec![]);
    leaky.attribute = vec![AttributeProto {
        ref_attr_name: Some("slope".into()),
        r#type: Some(1),
        ..attr("alpha")
    }];
    let function = FunctionProto {
        name: Some("Twice".into()),
        domain: Some("local".into()),
        input: vec!["a".into()],
        output: vec!["c".into()],
        node: vec![leaky, node("Add", &["b", "b"], &["c"], vec![])],
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(13) }],
        attribute_proto: vec![float("slope", 0.25)],
        ..Default::default()
    };
    let call = |attrs| {
        let mut m = model(13).domain("local", 1).input("x", DType::F32, "2");
        m.0.functions = vec![function.clone()];
        m.node(named("call", in_domain("local", node("Twice", &["x"], &["y"], attrs)))).output("y")
    };
    assert_near(&call(vec![]).on(&[2], &[-4.0, 1.0]).1, &[-2.0, 2.0]);
    assert_near(&call(vec![float("slope", 0.5)]).on(&[2], &[-4.0, 1.0]).1, &[-4.0, 2.0]);
    let imported = call(vec![]).import().unwrap();
    assert!(imported.graph.nodes.values().any(|node| node.sources == ["call/Add_c"]));
}

#[test]
fn a_long_chain_takes_linear_time() {
    let chain = |n: usize| {
        let mut m = model(13).input("v0", DType::F32, "4").floats("w", &[4], &[1.0; 4]);
        for i in 0..n {
            let (from, to) = (format!("v{i}"), format!("v{}", i + 1));
            m = if i % 2 == 0 {
                m.op("Add", &[&from, "w"], &[&to], vec![])
            } else {
                m.op("Relu", &[&from], &[&to], vec![])
            };
        }
        let m = m.output(&format!("v{n}"));
        let bytes = m.bytes();
        // The best of several: other programs share the machine.
        let run = |_| {
            let start = std::time::Instant::now();
            import_bytes(bytes.clone(), &ImportOptions::default()).unwrap();
            start.elapsed()
        };
        (0..5).map(run).min().unwrap()
    };
    let (short, long) = (chain(3_000), chain(12_000));
    assert!(long.as_secs_f64() < 1.0, "{long:?}");
    // Four times the nodes: 16 times the time would be quadratic.
    assert!(long < short * 10 + std::time::Duration::from_millis(20), "{short:?} and {long:?}");
}

// Shapes of inputs.

fn with_shapes(m: &Build, shapes: &[(&str, &[usize])]) -> Result<Imported, ImportError> {
    let shapes: BTreeMap<String, Vec<usize>> =
        shapes.iter().map(|(name, extents)| ((*name).into(), extents.to_vec())).collect();
    import_bytes(m.bytes(), &ImportOptions { shapes })
}

#[test]
fn symbols_are_bound_once() {
    let m = model(13)
        .input("a", DType::F32, "n,3,?")
        .input("b", DType::F32, "n,1")
        .op("Relu", &["a"], &["y"], vec![])
        .output("y");
    let good = with_shapes(&m, &[("a", &[5, 3, 2])]).unwrap();
    assert_eq!(good.inputs[1].1.extents(), [5, 1], "`b` follows from `a`");
    let message = |shapes: &[(&str, &[usize])]| with_shapes(&m, shapes).unwrap_err().to_string();
    insta::assert_snapshot!(message(&[]), @"the shapes of 2 inputs are not fixed; pass `--shape a=?,3,?` (f32[n,3,?]) and `--shape b=?,1` (f32[n,1])");
    insta::assert_snapshot!(message(&[("b", &[5, 1])]), @"the shapes of 1 inputs are not fixed; pass `--shape a=5,3,?` (f32[n,3,?])");
    insta::assert_snapshot!(message(&[("a", &[5, 4, 2])]), @"input `a` is f32[n,3,?] in the model, the shape given is [5,4,2]");
    insta::assert_snapshot!(message(&[("a", &[5, 3])]), @"input `a` is f32[n,3,?] in the model, the shape given is [5,3]");
    insta::assert_snapshot!(message(&[("a", &[5, 3, 1]), ("b", &[6, 1])]), @"dimension `n` is 5 in input `a` and 6 in input `b`");
    insta::assert_snapshot!(message(&[("z", &[1])]), @"the model has no input `z`; its inputs are a: f32[n,3,?]; b: f32[n,1]");
}

#[test]
fn a_description_needs_no_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    std::fs::write(&path, single(13, "Relu", "batch,3,?", vec![]).bytes()).unwrap();
    let found = describe(&path).unwrap();
    assert_eq!(found.inputs[0].to_string(), "x: f32[batch,3,?]");
    assert_eq!((found.model.opset, found.model.n_nodes), (13, 1));
}
