//! ONNX import: what operators mean in each opset, what folds, and what is said about bad input.
//!
//! Models are built message by message; expected values are worked out by hand. The last tests import
//! real models where `../shared/models` exists and compare with their reference outputs.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "import/build.rs"]
mod build;
#[path = "import/draws.rs"]
mod draws;
#[path = "import/folding.rs"]
mod folding;
#[path = "import/old.rs"]
mod old;
#[path = "import/real.rs"]
mod real;
#[path = "import/refusals.rs"]
mod refusals;
#[path = "import/survey.rs"]
mod survey;
#[path = "import/trees.rs"]
mod trees;

use build::Build;
use build::{assert_near, count, float, int, ints, model, ops_of, single, string};
use eggine_ir::onnx::ImportError;
use eggine_ir::onnx::proto::AttributeProto;
use eggine_ir::{DType, Op, Tensor};

#[test]
fn softmax_flattens_before_opset_13() {
    let x = count(24).iter().map(|x| x / 10.0).collect::<Vec<_>>();
    for (opset, attrs, per_row) in [
        (11, vec![], 12),
        (11, vec![int("axis", 1)], 12),
        (11, vec![int("axis", 2)], 4),
        (13, vec![], 4),
        (13, vec![int("axis", -1)], 4),
    ] {
        let (extents, y) = single(opset, "Softmax", "2,3,4", attrs).on(&[2, 3, 4], &x);
        assert_eq!(extents, [2, 3, 4]);
        for row in y.chunks(per_row) {
            assert_near(&[row.iter().sum()], &[1.0]);
        }
        assert!(y.chunks(per_row).all(|row| (row[1] / row[0] - 0.1f64.exp()).abs() < 1e-6));
    }
    // Along another axis than the last, opset 13 has one axis only.
    let (_, y) = single(13, "Softmax", "2,3,4", vec![int("axis", 1)]).on(&[2, 3, 4], &x);
    assert_near(&[y[0] + y[4] + y[8]], &[1.0]);
    let (_, y) = single(11, "LogSoftmax", "2,3,4", vec![]).on(&[2, 3, 4], &x);
    assert_near(&[y[..12].iter().map(|x| x.exp()).sum()], &[1.0]);
    let (_, y) = single(11, "Hardmax", "2,3,4", vec![]).on(&[2, 3, 4], &x);
    assert_near(&[y.iter().sum(), y[11], y[23]], &[2.0, 1.0, 1.0]);
}

#[test]
fn clip_has_two_forms() {
    let x = [-2.0, 0.5, 7.0, f32::NAN];
    let want = [-1.0, 0.5, 6.0, f64::NAN];
    let old = single(7, "Clip", "4", vec![float("min", -1.0), float("max", 6.0)]);
    assert_near(&old.on(&[4], &x).1, &want);
    let new =
        model(13).input("x", DType::F32, "4").floats("lo", &[], &[-1.0]).floats("hi", &[], &[6.0]);
    let both = new.clone().op("Clip", &["x", "lo", "hi"], &["y"], vec![]).output("y");
    assert_near(&both.on(&[4], &x).1, &want);
    let upper = new.op("Clip", &["x", "", "hi"], &["y"], vec![]).output("y");
    assert_near(&upper.on(&[4], &x).1, &[-2.0, 0.5, 6.0, f64::NAN]);
}

#[test]
fn slices_clamp_and_walk_backwards() {
    let x = count(10);
    let slice = |starts: i64, ends: i64, steps: i64| {
        let m = model(13).input("x", DType::F32, "10").longs("s", &[starts]).longs("e", &[ends]);
        let m = m.longs("a", &[0]).longs("t", &[steps]).op(
            "Slice",
            &["x", "s", "e", "a", "t"],
            &["y"],
            vec![],
        );
        m.output("y").on(&[10], &x).1
    };
    assert_near(&slice(2, 100, 3), &[2.0, 5.0, 8.0]);
    assert_near(&slice(-3, i64::MAX, 1), &[7.0, 8.0, 9.0]);
    assert_near(&slice(-1, i64::MIN, -4), &[9.0, 5.0, 1.0]);
    assert_near(&slice(100, 6, -2), &[9.0, 7.0]);
    assert_near(&slice(5, 5, 1), &[]);
    let old = single(9, "Slice", "10", vec![ints("starts", &[1]), ints("ends", &[-7])]);
    assert_near(&old.on(&[10], &x).1, &[1.0, 2.0]);
}

#[test]
fn shapes_follow_reshape_rules() {
    let reshape = |shape: &[i64]| {
        let m = model(14).input("x", DType::F32, "2,3,4").longs("s", shape).op(
            "Reshape",
            &["x", "s"],
            &["y"],
            vec![],
        );
        m.output("y").import().map(|m| m.outputs[0].1.extents())
    };
    assert_eq!(reshape(&[0, -1]).unwrap(), [2, 12]);
    assert_eq!(reshape(&[-1]).unwrap(), [24]);
    assert_eq!(reshape(&[4, 0, 2]).unwrap(), [4, 3, 2]);
    for wrong in [&[5, -1][..], &[-1, -1], &[-2, 12], &[1 << 62, 1 << 62], &[2, 3, 5]] {
        assert!(matches!(reshape(wrong), Err(ImportError::Node { .. })), "{wrong:?}");
    }
    let m = single(13, "Flatten", "2,3,4", vec![int("axis", 3)]);
    assert_eq!(m.on(&[2, 3, 4], &count(24)).0, [24, 1]);
    let m = single(11, "Squeeze", "1,3,1", vec![ints("axes", &[-1])]);
    assert_eq!(m.on(&[1, 3, 1], &count(3)).0, [1, 3]);
    let m = single(11, "Unsqueeze", "3", vec![ints("axes", &[0, -1])]);
    assert_eq!(m.on(&[3], &count(3)).0, [1, 3, 1]);
}

#[test]
fn pools_count_what_is_there() {
    let attrs = |more: Vec<AttributeProto>| [vec![ints("kernel_shape", &[2])], more].concat();
    let x = [1.0, 2.0, 3.0, 4.0, 5.0];
    // The last window hangs over; what is not there does not count.
    let m =
        single(10, "AveragePool", "1,1,5", attrs(vec![ints("strides", &[2]), int("ceil_mode", 1)]));
    assert_near(&m.on(&[1, 1, 5], &x).1, &[1.5, 3.5, 5.0]);
    let m = single(10, "MaxPool", "1,1,5", attrs(vec![ints("strides", &[2]), int("ceil_mode", 1)]));
    assert_near(&m.on(&[1, 1, 5], &x).1, &[2.0, 4.0, 5.0]);
    let pads = || vec![ints("strides", &[2]), ints("pads", &[1, 0])];
    let m = single(10, "AveragePool", "1,1,5", attrs(pads()));
    assert_near(&m.on(&[1, 1, 5], &x).1, &[1.0, 2.5, 4.5]);
    let m = single(
        10,
        "AveragePool",
        "1,1,5",
        attrs([pads(), vec![int("count_include_pad", 1)]].concat()),
    );
    assert_near(&m.on(&[1, 1, 5], &x).1, &[0.5, 2.5, 4.5]);
    // A window that would start in the padding behind is left out.
    let m = single(
        10,
        "MaxPool",
        "1,1,3",
        attrs(vec![ints("strides", &[3]), ints("pads", &[0, 1]), int("ceil_mode", 1)]),
    );
    assert_near(&m.on(&[1, 1, 3], &x[..3]).1, &[2.0]);
    let m = single(13, "GlobalAveragePool", "1,2,2", vec![]);
    assert_near(&m.on(&[1, 2, 2], &x[..4]).1, &[1.5, 3.5]);
}

#[test]
fn convolutions_pad_as_auto_pad_says() {
    let x = [1.0, 2.0, 3.0, 4.0];
    let conv = |pad: &str| {
        let m = model(11)
            .input("x", DType::F32, "1,1,4")
            .floats("w", &[1, 1, 2], &[1.0, 10.0])
            .floats("b", &[1], &[0.5]);
        let m = m.op("Conv", &["x", "w", "b"], &["y"], vec![string("auto_pad", pad)]);
        m.output("y").on(&[1, 1, 4], &x).1
    };
    assert_near(&conv("VALID"), &[21.5, 32.5, 43.5]);
    assert_near(&conv("SAME_UPPER"), &[21.5, 32.5, 43.5, 4.5]);
    assert_near(&conv("SAME_LOWER"), &[10.5, 21.5, 32.5, 43.5]);
    let up = |attrs| {
        let m = model(11).input("x", DType::F32, "1,1,2").floats("w", &[1, 1, 3], &[1.0, 2.0, 3.0]);
        m.op("ConvTranspose", &["x", "w"], &["y"], attrs).output("y").on(&[1, 1, 2], &x[..2]).1
    };
    assert_near(&up(vec![ints("strides", &[2])]), &[1.0, 2.0, 5.0, 4.0, 6.0]);
    assert_near(&up(vec![ints("strides", &[2]), ints("pads", &[1, 1])]), &[2.0, 5.0, 4.0]);
    assert_near(
        &up(vec![ints("strides", &[2]), ints("output_shape", &[4])]),
        &[2.0, 5.0, 4.0, 6.0],
    );
}

#[test]
fn matrix_products_take_vectors_and_transposes() {
    let m = model(13).input("x", DType::F32, "2").floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let left =
        m.clone().op("MatMul", &["x", "w"], &["y"], vec![]).output("y").on(&[2], &[1.0, 10.0]);
    assert_eq!(left, (vec![2], vec![31.0, 42.0]));
    let right =
        m.clone().op("MatMul", &["w", "x"], &["y"], vec![]).output("y").on(&[2], &[1.0, 10.0]);
    assert_eq!(right, (vec![2], vec![21.0, 43.0]));
    let dot = m.op("MatMul", &["x", "x"], &["y"], vec![]).output("y").on(&[2], &[1.0, 10.0]);
    assert_eq!(dot, (vec![], vec![101.0]));
    let m = model(13)
        .input("x", DType::F32, "1,2")
        .floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0])
        .floats("c", &[2], &[1.0, 1.0]);
    let attrs = vec![int("transB", 1), float("alpha", 2.0), float("beta", 0.5)];
    let m = m.op("Gemm", &["x", "w", "c"], &["y"], attrs).output("y");
    assert_near(&m.on(&[1, 2], &[1.0, 10.0]).1, &[42.5, 86.5]);
}

#[test]
fn einsum_is_general() {
    let eval = |equation: &str, dims: &str, extents: &[usize], w: Option<(&[usize], Vec<f32>)>| {
        let mut m = model(13).input("x", DType::F32, dims);
        let mut names = vec!["x"];
        if let Some((extents, data)) = &w {
            m = m.floats("w", extents, data);
            names.push("w");
        }
        let m = m.op("Einsum", &names, &["y"], vec![string("equation", equation)]).output("y");
        m.on(extents, &count(extents.iter().product()))
    };
    let w = || count(6);
    // x = [[0,1,2],[3,4,5]]
    assert_eq!(
        eval("ij->ji", "2,3", &[2, 3], None),
        (vec![3, 2], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    );
    assert_eq!(eval("ij->", "2,3", &[2, 3], None), (vec![], vec![15.0]));
    assert_eq!(eval("ij->i", "2,3", &[2, 3], None), (vec![2], vec![3.0, 12.0]));
    assert_eq!(eval("ii->i", "2,2", &[2, 2], None), (vec![2], vec![0.0, 3.0]));
    assert_eq!(eval("ii", "2,2", &[2, 2], None), (vec![], vec![3.0]));
    let product = vec![10.0, 13.0, 28.0, 40.0];
    assert_eq!(
        eval("ij,jk->ik", "2,3", &[2, 3], Some((&[3, 2], w()))),
        (vec![2, 2], product.clone())
    );
    assert_eq!(eval("ij,jk", "2,3", &[2, 3], Some((&[3, 2], w()))), (vec![2, 2], product));
    assert_eq!(
        eval("...j,...j->...", "2,3", &[2, 3], Some((&[3], count(3)))),
        (vec![2], vec![5.0, 14.0])
    );
    assert_eq!(
        eval("i,j->ij", "2", &[2], Some((&[2], vec![3.0, 5.0]))),
        (vec![2, 2], vec![0.0, 0.0, 3.0, 5.0])
    );
    assert_eq!(eval("bij,bjk->bik", "1,2,3", &[1, 2, 3], Some((&[1, 3, 2], w()))).0, [1, 2, 2]);
}

#[test]
fn normalisations_are_what_they_are_called() {
    let x = [1.0, 2.0, 3.0, 4.0];
    let statistics = |m: Build| {
        let m = m.floats("s", &[2], &[2.0, 1.0]).floats("b", &[2], &[0.0, 1.0]);
        m.floats("m", &[2], &[1.0, 3.0]).floats("v", &[2], &[4.0, 1.0])
    };
    let m = statistics(model(9).input("x", DType::F32, "1,2,2"));
    let m = m
        .op("BatchNormalization", &["x", "s", "b", "m", "v"], &["y"], vec![float("epsilon", 0.0)])
        .output("y");
    assert_near(&m.on(&[1, 2, 2], &x).1, &[0.0, 1.0, 1.0, 2.0]);
    let imported = m.import().unwrap();
    assert_eq!(ops_of(&imported), [Op::Mul, Op::Add], "scale and shift are folded");

    let m = model(17).input("x", DType::F32, "2,2").floats("s", &[2], &[1.0, 2.0]);
    let m =
        m.op("LayerNormalization", &["x", "s"], &["y"], vec![float("epsilon", 0.0)]).output("y");
    assert_near(&m.on(&[2, 2], &x).1, &[-1.0, 2.0, -1.0, 2.0]);
    let m = statistics(model(13).input("x", DType::F32, "1,2,2"));
    let m = m
        .op("InstanceNormalization", &["x", "s", "b"], &["y"], vec![float("epsilon", 0.0)])
        .output("y");
    assert_near(&m.on(&[1, 2, 2], &x).1, &[-2.0, 2.0, 0.0, 2.0]);
    // Opset 18 scales groups, 21 channels.
    let group = |opset, n: usize| {
        let m = model(opset).input("x", DType::F32, "1,4").floats("s", &[n], &vec![3.0; n]).floats(
            "b",
            &[n],
            &vec![1.0; n],
        );
        let attrs = vec![int("num_groups", 2), float("epsilon", 0.0)];
        m.op("GroupNormalization", &["x", "s", "b"], &["y"], attrs).output("y").on(&[1, 4], &x).1
    };
    assert_near(&group(18, 2), &[-2.0, 4.0, -2.0, 4.0]);
    assert_near(&group(21, 4), &[-2.0, 4.0, -2.0, 4.0]);
}

#[test]
fn layer_norm_in_pieces_equals_the_operator() {
    // ORT 1.32.0 fuses this wrongly: keepdims is 0 in the second mean.
    let x: Vec<f32> = (0..16).map(|i| ((i * 7 % 16) as f32).sin()).collect();
    let m = model(13)
        .input("x", DType::F32, "4,4")
        .floats("eps", &[], &[1e-5])
        .floats("two", &[], &[2.0])
        .longs("col", &[4, 1]);
    let m = m.op("ReduceMean", &["x"], &["mean"], vec![ints("axes", &[-1])]).op(
        "Sub",
        &["x", "mean"],
        &["d"],
        vec![],
    );
    let m = m.op("Pow", &["d", "two"], &["sq"], vec![]).op(
        "ReduceMean",
        &["sq"],
        &["flat"],
        vec![ints("axes", &[-1]), int("keepdims", 0)],
    );
    let m = m.op("Reshape", &["flat", "col"], &["var"], vec![]).op(
        "Add",
        &["var", "eps"],
        &["pad"],
        vec![],
    );
    let m =
        m.op("Sqrt", &["pad"], &["sd"], vec![]).op("Div", &["d", "sd"], &["y"], vec![]).output("y");
    let whole = model(17).input("x", DType::F32, "4,4").floats("s", &[4], &[1.0; 4]);
    let whole = whole.op("LayerNormalization", &["x", "s"], &["y"], vec![]).output("y");
    assert_near(&m.on(&[4, 4], &x).1, &whole.on(&[4, 4], &x).1);
}

#[test]
fn numbers_that_are_not_stay_so() {
    let x = [f32::NAN, -1.0, 2.0, f32::INFINITY, f32::NEG_INFINITY];
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let unary = |op: &str, attrs| single(13, op, "5", attrs).on(&[5], &x).1;
    assert_near(&unary("Relu", vec![]), &[nan, 0.0, 2.0, inf, 0.0]);
    assert_near(&unary("LeakyRelu", vec![float("alpha", 0.5)]), &[nan, -0.5, 2.0, inf, -inf]);
    assert_near(&unary("Elu", vec![]), &[nan, (-1f64).exp() - 1.0, 2.0, inf, -1.0]);
    assert_near(
        &unary("Softplus", vec![]),
        &[nan, (-1f64).exp().ln_1p(), 2.0 + (-2f64).exp().ln_1p(), inf, 0.0],
    );
    assert_near(&unary("IsInf", vec![int("detect_negative", 0)]), &[0.0, 0.0, 0.0, 1.0, 0.0]);
    let with = |op: &str| {
        let m = model(13).input("x", DType::F32, "5").floats("w", &[], &[1.0]);
        m.op(op, &["x", "w"], &["y"], vec![]).output("y").on(&[5], &x).1
    };
    assert_near(&with("Max"), &[nan, 1.0, 2.0, inf, 1.0]);
    assert_near(&with("Min"), &[nan, -1.0, 1.0, 1.0, -inf]);
    assert_near(&with("Greater"), &[0.0, 0.0, 1.0, 1.0, 0.0]);
}

#[test]
fn quantisation_rounds_to_even_and_saturates() {
    let x = [0.5, 1.5, 2.5, -0.5, -1.5, 127.5, -128.5];
    let m = model(13)
        .input("x", DType::F32, "7")
        .floats("s", &[], &[1.0])
        .constant("z", &Tensor::from_i64(DType::I8, &[], &[0]));
    let m = m.op("QuantizeLinear", &["x", "s", "z"], &["y"], vec![]).output("y");
    assert_near(&m.on(&[7], &x).1, &[0.0, 2.0, 2.0, 0.0, -2.0, 127.0, -128.0]);
    let m = model(11)
        .input("x", DType::F32, "3")
        .op("DynamicQuantizeLinear", &["x"], &["y", "s", "z"], vec![])
        .output("y");
    assert_near(&m.on(&[3], &[-127.0, 128.0, 0.5]).1, &[0.0, 255.0, 127.0]);
    let m = model(10)
        .input("x", DType::U8, "1,2")
        .constant("w", &Tensor::from_i64(DType::U8, &[2, 1], &[3, 200]));
    let m = m
        .constant("xz", &Tensor::from_i64(DType::U8, &[], &[1]))
        .constant("wz", &Tensor::from_i64(DType::U8, &[], &[5]));
    let m = m.op("MatMulInteger", &["x", "w", "xz", "wz"], &["y"], vec![]).output("y");
    let y = m.run(&[Tensor::from_i64(DType::U8, &[1, 2], &[4, 0])]).remove(0);
    assert_eq!(y, (vec![1, 1], vec![f64::from(3 * -2 - 195)]));
}

#[test]
fn gathers_and_scatters_find_their_elements() {
    let m = |op: &str, indices: &Tensor, attrs| {
        let m = model(13).input("x", DType::F32, "2,3").constant("i", indices);
        m.op(op, &["x", "i"], &["y"], attrs).output("y").on(&[2, 3], &count(6))
    };
    let one = Tensor::i64(&[], &[-1]);
    assert_eq!(m("Gather", &one, vec![int("axis", 1)]), (vec![2], vec![2.0, 5.0]));
    let list = Tensor::i64(&[1, 2], &[1, 0]);
    assert_eq!(m("Gather", &list, vec![]), (vec![1, 2, 3], vec![3.0, 4.0, 5.0, 0.0, 1.0, 2.0]));
    let elements = Tensor::i64(&[2, 2], &[2, 0, -1, 1]);
    assert_eq!(
        m("GatherElements", &elements, vec![int("axis", 1)]),
        (vec![2, 2], vec![2.0, 0.0, 5.0, 4.0])
    );
    let points = Tensor::i64(&[2, 2], &[0, 1, 1, -1]);
    assert_eq!(m("GatherND", &points, vec![]), (vec![2], vec![1.0, 5.0]));
    assert_eq!(
        m("GatherND", &Tensor::i64(&[2, 1], &[2, 0]), vec![int("batch_dims", 1)]),
        (vec![2], vec![2.0, 3.0])
    );
    let scatter = model(13)
        .input("x", DType::F32, "2,3")
        .constant("i", &Tensor::i64(&[1, 1], &[1]))
        .floats("u", &[1, 3], &[7.0, 8.0, 9.0]);
    let scatter = scatter.op("ScatterND", &["x", "i", "u"], &["y"], vec![]).output("y");
    assert_near(&scatter.on(&[2, 3], &count(6)).1, &[0.0, 1.0, 2.0, 7.0, 8.0, 9.0]);
}

#[test]
fn sums_run_and_triangles_cut() {
    let cum = |attrs| {
        let m = model(14).input("x", DType::F32, "2,3").constant("a", &Tensor::i64(&[], &[1]));
        m.op("CumSum", &["x", "a"], &["y"], attrs)
            .output("y")
            .on(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, f32::NAN])
            .1
    };
    assert_near(&cum(vec![]), &[1.0, 3.0, 6.0, 4.0, 9.0, f64::NAN]);
    assert_near(&cum(vec![int("exclusive", 1)]), &[0.0, 1.0, 3.0, 0.0, 4.0, 9.0]);
    assert_near(&cum(vec![int("reverse", 1)])[..3], &[6.0, 5.0, 3.0]);
    let m = single(14, "Trilu", "2,2", vec![int("upper", 0)]);
    assert_near(&m.on(&[2, 2], &[1.0, 2.0, 3.0, 4.0]).1, &[1.0, 0.0, 3.0, 4.0]);
}

#[test]
fn a_lstm_step_is_the_textbooks() {
    let ones = |n: usize| vec![1.0; n];
    let m = model(14).input("x", DType::F32, "2,1,1").floats("w", &[1, 4, 1], &ones(4)).floats(
        "r",
        &[1, 4, 1],
        &ones(4),
    );
    let m = m
        .op("LSTM", &["x", "w", "r"], &["y", "h", "c"], vec![int("hidden_size", 1)])
        .output("y")
        .output("h")
        .output("c");
    let results = m.run(&[Tensor::f32(&[2, 1, 1], &[0.5, -1.0])]);
    let (mut h, mut c, mut all) = (0f64, 0f64, vec![]);
    for x in [0.5, -1.0] {
        let (s, g) = (1.0 / (1.0 + (-(x + h)).exp()), (x + h).tanh());
        c = s * c + s * g;
        h = s * c.tanh();
        all.push(h);
    }
    assert_eq!(results[0].0, [2, 1, 1, 1]);
    assert_near(&results[0].1, &all);
    assert_near(&[results[1].1[0], results[2].1[0]], &[h, c]);
}

#[test]
fn attention_that_sees_nothing_is_zero() {
    let m =
        model(23).input("q", DType::F32, "1,1,2,1").floats("k", &[1, 1, 2, 1], &[0.0, f32::NAN]);
    let m = m.floats("v", &[1, 1, 2, 1], &[5.0, 7.0]);
    let m = m.constant("m", &Tensor::from_i64(DType::Bool, &[2, 2], &[1, 0, 0, 0]));
    let m = m.op("Attention", &["q", "k", "v", "m"], &["y"], vec![]).output("y");
    assert_near(&m.on(&[1, 1, 2, 1], &[1.0, 1.0]).1, &[5.0, 0.0]);
}
