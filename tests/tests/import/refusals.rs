//! What is said about bad input: one message that names the thing, never a panic.

use eggine_ir::graph::eval::{Rounding, eval};
use eggine_ir::onnx::proto::{
    FunctionProto, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};
use eggine_ir::onnx::{
    Foreign, ImportError, ImportOptions, TensorProblem, Wiring, import, import_bytes,
};
use eggine_ir::{DType, Tensor};
use prost::Message;

use crate::build::{
    Build, assert_near, branch, float, in_domain, int, ints, model, named, node, single, string,
    subgraph, value_info,
};

#[test]
fn all_unsupported_operators_are_listed_with_their_paths() {
    let inner = GraphProto {
        node: vec![named("Foo_2", in_domain("my.ops", node("Foo", &["x"], &["t"], vec![])))],
        output: vec![value_info("t", DType::F32, "")],
        ..Default::default()
    };
    let m = model(13).domain("my.ops", 3).domain("other", 1).input("x", DType::F32, "2,3");
    let m = m.node(named("Bar_0", node("Gelo", &["x"], &["a"], vec![]))).op(
        "Relu",
        &["a"],
        &["b"],
        vec![],
    );
    let m = m.node(named("Baz_1", in_domain("other", node("Qux", &["b"], &["c"], vec![])))).op(
        "Cast",
        &["c"],
        &["cond"],
        vec![int("to", 9)],
    );
    let attrs = vec![subgraph("then_branch", inner), subgraph("else_branch", branch("Neg", "e"))];
    let m = m.node(named("If_4", node("If", &["cond"], &["y"], attrs))).output("y");
    insta::assert_snapshot!(m.import().unwrap_err(), @r"
    3 operators are not supported
      Bar_0: ai.onnx.Gelo (opset 13) on f32[2,3]: this operator is not supported; supported: ai.onnx.Gelu (opset 20 or later)
      Baz_1: other.Qux (opset 1) on ?: this operator is not supported
      If_4/then/Foo_2: my.ops.Foo (opset 3) on f32[2,3]: this operator is not supported
    ");
    let m = model(13)
        .input("x", DType::F32, "4")
        .input("k", DType::I64, "1")
        .op("Tile", &["x", "k"], &["y"], vec![])
        .output("y");
    insta::assert_snapshot!(m.import().unwrap_err(), @r"
    one operator is not supported
      Tile_y: ai.onnx.Tile (opset 13) on f32[4], i64[1]: `repeats` is only known at run time; supported: a value that folds to a constant
    ");
    let m = single(13, "Gelu", "4", vec![]);
    insta::assert_snapshot!(m.import().unwrap_err(), @r"
    one operator is not supported
      Gelu_y: ai.onnx.Gelu (opset 13) on f32[4]: `Gelu` in opset 13 is not supported; supported: opset 20 or later
    ");
}

#[test]
fn an_attribute_that_no_handler_reads_is_not_ignored() {
    let m = single(13, "Relu", "4", vec![int("window", 3)]);
    insta::assert_snapshot!(m.import().unwrap_err(), @r"
    one operator is not supported
      Relu_y: ai.onnx.Relu (opset 13) on f32[4]: attribute `window` is not supported
    ");
}

#[test]
fn malformed_nodes_are_named() {
    let message = |m: Build| m.import().unwrap_err().to_string();
    let m = model(13).input("x", DType::F32, "2,3").floats("w", &[4, 2], &[0.0; 8]);
    let m = m.node(named("fc", node("MatMul", &["x", "w"], &["y"], vec![]))).output("y");
    insta::assert_snapshot!(message(m), @"node `fc` (MatMul): cannot contract f32[2,3] with f32[4,2]");
    insta::assert_snapshot!(message(single(13, "Transpose", "2,3", vec![ints("perm", &[0, 2])])), @"node `Transpose_y` (Transpose): axis 2 of a tensor of rank 2");
    insta::assert_snapshot!(message(single(13, "Concat", "2", vec![float("axis", 0.0)])), @"node `Concat_y` (Concat): attribute `axis` is a float, expected an integer");
    insta::assert_snapshot!(message(single(13, "Add", "2", vec![])), @"node `Add_y` (Add): input 1 is missing");
    insta::assert_snapshot!(message(model(13).op("Relu", &["x"], &["y"], vec![]).output("y")), @"graph `g`: node `Relu_y` reads `x`, which nothing produces");
    insta::assert_snapshot!(message(single(13, "Relu", "2", vec![]).output("z")), @"graph `g`: output `z` is produced by nothing");
    let m =
        model(13).op("Relu", &["b"], &["a"], vec![]).op("Neg", &["a"], &["b"], vec![]).output("b");
    insta::assert_snapshot!(message(m), @"graph `g`: nodes `Relu_a`, `Neg_b` depend on each other in a cycle");
    let m = single(13, "Relu", "2", vec![]).op("Neg", &["x"], &["y"], vec![]);
    insta::assert_snapshot!(message(m), @"graph `g`: `y` is produced twice, by `Relu_y` and by `Neg_y`");
    let m = model(13).input("x", DType::F32, "2,3").input("z", DType::F32, "2");
    let m = m.op("SequenceConstruct", &["x", "z"], &["s"], vec![]);
    let join = vec![int("axis", -1), int("new_axis", 1)];
    let m = m.op("ConcatFromSequence", &["s"], &["y"], join).output("y");
    insta::assert_snapshot!(message(m), @"node `ConcatFromSequence_y` (ConcatFromSequence): axis 2 of a tensor of rank 2");
    let m = single(13, "Relu", "2", vec![]).input("x", DType::F32, "2");
    insta::assert_snapshot!(message(m), @"graph `g`: input `x` is listed twice");
    insta::assert_snapshot!(message(single(29, "Relu", "2", vec![])), @"the model uses opset 29 of `ai.onnx`, import knows 1 to 28");
}

#[test]
fn a_function_that_calls_itself_is_refused() {
    let function = FunctionProto {
        name: Some("F".into()),
        domain: Some("local".into()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        node: vec![in_domain("local", node("F", &["a"], &["b"], vec![]))],
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(13) }],
        ..Default::default()
    };
    let mut m = model(13).domain("local", 1).input("x", DType::F32, "2");
    m.0.functions = vec![function];
    let err = m
        .node(in_domain("local", node("F", &["x"], &["y"], vec![])))
        .output("y")
        .import()
        .unwrap_err();
    assert!(matches!(&err, ImportError::Wiring { problem: Wiring::Recursion { .. }, .. }), "{err}");
}

#[test]
fn files_that_are_no_models_are_recognised() {
    let found = |bytes: &[u8]| match import_bytes(bytes.to_vec(), &ImportOptions::default()) {
        Err(ImportError::Foreign { found, .. }) => found,
        other => panic!("{other:?}"),
    };
    assert_eq!(found(b""), Foreign::Empty);
    assert_eq!(found(b"\n<!DOCTYPE html><html><body>404</body></html>"), Foreign::Html);
    assert_eq!(
        found(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        Foreign::LfsPointer
    );
    assert_eq!(found(b"PK\x03\x04rest"), Foreign::Zip);
    assert_eq!(found(b"just some text"), Foreign::Text);
    let err = import("/nowhere/m.onnx", &ImportOptions::default()).unwrap_err();
    assert!(err.to_string().starts_with("cannot read `/nowhere/m.onnx`: "), "{err}");
}

#[test]
fn damaged_and_hollow_models_are_refused() {
    let bytes = single(13, "Relu", "2", vec![]).bytes();
    // Every proper prefix: an error, never a model, never a panic.
    for n in 1..bytes.len() {
        assert!(
            import_bytes(bytes[..n].to_vec(), &ImportOptions::default()).is_err(),
            "prefix of {n}"
        );
    }
    // A field whose length is 2^63, as a varint.
    let huge = [&[0x3a][..], &[0x80; 9], &[0x01], &[0; 32]].concat();
    let err = import_bytes(huge, &ImportOptions::default()).unwrap_err();
    assert!(matches!(err, ImportError::Decode { .. }), "{err}");
    let hollow = ModelProto { ir_version: Some(8), ..Default::default() }.encode_to_vec();
    let err = import_bytes(hollow, &ImportOptions::default()).unwrap_err();
    assert_eq!(err.to_string(), "`<bytes>` is not an ONNX model: it has no graph");
    let mut no_opset = single(13, "Relu", "2", vec![]);
    no_opset.0.opset_import.clear();
    assert!(matches!(no_opset.import(), Err(ImportError::Hollow { .. })));
}

#[test]
fn tensors_are_as_long_as_they_say() {
    let with = |dims: &[i64], n_bytes: usize| {
        let mut m = single(13, "Relu", "2", vec![]);
        m.graph().initializer.push(TensorProto {
            name: Some("w".into()),
            dims: dims.to_vec(),
            data_type: Some(1),
            raw_data: Some(vec![0; n_bytes].into()),
            ..Default::default()
        });
        m.import().map(|_| ()).map_err(|err| err.to_string())
    };
    assert_eq!(with(&[2, 2], 16), Ok(()));
    insta::assert_snapshot!(with(&[2, 2], 12).unwrap_err(), @"tensor `w`: f32[2, 2] needs 16 bytes, the model has 12");
    for dims in [&[-1][..], &[i64::MAX, 2], &[1 << 32, 1 << 32], &[0, i64::MAX, i64::MAX]] {
        let message = with(dims, 4).unwrap_err();
        assert!(message.contains("are negative or too large"), "{message}");
    }
}

#[test]
fn external_data_stays_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("model");
    std::fs::create_dir(&inside).unwrap();
    let data: Vec<u8> = Tensor::f32(&[4], &[1.0, 2.0, 3.0, 4.0]).bytes.to_vec();
    std::fs::write(inside.join("w.bin"), &data).unwrap();
    std::fs::write(folder.path().join("secret"), &data).unwrap();
    let with = |location: &str, more: &[(&str, &str)]| {
        let entries = [&[("location", location)], more].concat();
        let external_data = entries.iter().map(|(key, value)| StringStringEntryProto {
            key: Some((*key).into()),
            value: Some((*value).into()),
        });
        let mut m = model(13)
            .input("x", DType::F32, "2")
            .op("Add", &["x", "w"], &["y"], vec![])
            .output("y");
        m.graph().initializer.push(TensorProto {
            name: Some("w".into()),
            dims: vec![2],
            data_type: Some(1),
            external_data: external_data.collect(),
            data_location: Some(1),
            ..Default::default()
        });
        m
    };
    let load = |m: &Build| {
        let path = inside.join("m.onnx");
        std::fs::write(&path, m.bytes()).unwrap();
        import(&path, &ImportOptions::default())
    };
    let good = load(&with("w.bin", &[("offset", "8"), ("length", "8")])).unwrap();
    let y = eval(&good.graph, &[Tensor::f32(&[2], &[0.0, 0.0])], Rounding::None);
    assert_near(&y[0].to_f64(), &[3.0, 4.0]);

    let refused = |m: &Build| load(m).unwrap_err().to_string();
    insta::assert_snapshot!(refused(&with("../secret", &[])), @"tensor `w`: location `../secret` leaves the model's folder or is not a plain file: it contains `..`");
    insta::assert_snapshot!(refused(&with("/etc/hostname", &[])), @"tensor `w`: location `/etc/hostname` leaves the model's folder or is not a plain file: it is absolute");
    insta::assert_snapshot!(refused(&with("w.bin", &[("offset", "12"), ("length", "8")])), @"tensor `w`: bytes 12 to 12+8 are beyond the 16 bytes of `w.bin`");
    insta::assert_snapshot!(refused(&with("w.bin", &[("offset", "18446744073709551615")])), @"tensor `w`: bytes 18446744073709551615 to 18446744073709551615+8 are beyond the 16 bytes of `w.bin`");
    insta::assert_snapshot!(refused(&with("w.bin", &[("length", "12")])), @"tensor `w`: f32[2] needs 8 bytes, the model has 12");
    insta::assert_snapshot!(refused(&with("w.bin", &[("offset", "-1")])), @"tensor `w`: `offset` is `-1`, not a number");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.path().join("secret"), inside.join("link")).unwrap();
        insta::assert_snapshot!(refused(&with("link", &[])), @"tensor `w`: location `link` leaves the model's folder or is not a plain file: it is or passes through a symbolic link");
        std::fs::hard_link(folder.path().join("secret"), inside.join("hard")).unwrap();
        insta::assert_snapshot!(refused(&with("hard", &[])), @"tensor `w`: location `hard` leaves the model's folder or is not a plain file: it is a hard link (the file has several names)");
    }
    let err = with("w.bin", &[]).import().unwrap_err();
    assert!(
        matches!(&err, ImportError::Tensor { tensor, problem: TensorProblem::NoFolder } if tensor == "w"),
        "{err}"
    );
}

/// Small pseudo-random numbers, the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let small = model(13)
        .input("x", DType::F32, "1,2,4,4")
        .floats("w", &[2, 2, 3, 3], &[0.5; 36])
        .longs("s", &[1, -1]);
    let small = small.op(
        "Conv",
        &["x", "w"],
        &["c"],
        vec![ints("pads", &[1, 1, 1, 1]), ints("strides", &[2, 2])],
    );
    let small = small.op(
        "AveragePool",
        &["c"],
        &["p"],
        vec![ints("kernel_shape", &[2, 2]), int("ceil_mode", 1)],
    );
    let small = small.op("Reshape", &["p", "s"], &["r"], vec![]).op(
        "Softmax",
        &["r"],
        &["t"],
        vec![int("axis", -1)],
    );
    let small = small
        .op("Slice", &["t", "s", "s"], &["u"], vec![])
        .op("Concat", &["t", "t"], &["y"], vec![int("axis", 1)])
        .output("y");
    let bytes = small.bytes();
    assert!(small.import().is_ok());
    let mut random = Random(7);
    let mut n_refused = 0;
    for _ in 0..4_000 {
        let mut damaged = bytes.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(damaged.len());
            damaged[at] = random.below(256) as u8;
        }
        n_refused += usize::from(import_bytes(damaged, &ImportOptions::default()).is_err());
    }
    assert!(n_refused > 1_000, "{n_refused}");
}

/// Found by libFuzzer: a column was made for each of sixteen million places.
#[test]
fn columns_that_nothing_counts_into_take_no_work() {
    let attrs = vec![
        ints("pool_int64s", &[5]),
        ints("ngram_counts", &[0]),
        ints("ngram_indexes", &[(1 << 24) - 2]),
        int("min_gram_length", 1),
        int("max_gram_length", 1),
        int("max_skip_count", 0),
        string("mode", "TF"),
    ];
    let m = model(9).input("x", DType::I64, "3").op("TfIdfVectorizer", &["x"], &["y"], attrs);
    let imported = m.output("y").import().unwrap();
    assert_eq!(imported.outputs[0].1.extents(), [(1 << 24) - 1]);
    assert!(imported.graph.nodes.len() < 20, "{} nodes", imported.graph.nodes.len());
}

/// Found by libFuzzer: weights were computed for each of a million places, ten times.
#[test]
fn an_axis_of_very_many_places_has_no_weights() {
    let m = model(18).input("x", DType::F32, "1,2,3,4").floats("s", &[4], &[1e6, 1.0, 1.5, 2.0]);
    let how =
        vec![string("mode", "cubic"), string("coordinate_transformation_mode", "align_corners")];
    let err = m.op("Resize", &["x", "", "s"], &["y"], how).output("y").import().unwrap_err();
    assert!(err.to_string().contains("resampled to 1000000"), "{err}");
}
