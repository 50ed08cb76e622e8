//! Opsets 1 to 5: the operators that were written another way then, and Scan of opset 8.

use super::build::{
    Build, assert_near, count, float, int, ints, model, node, single, string, subgraph, value_info,
};
use eggine_ir::onnx::proto::{AttributeProto, GraphProto};
use eggine_ir::{DType, Tensor};

#[test]
fn operands_were_attributes() {
    let x = count(6);
    let consumed = || ints("consumed_inputs", &[0]);
    let (_, y) = single(1, "Neg", "2,3", vec![consumed()]).on(&[2, 3], &x);
    assert_near(&y[..3], &[0.0, -1.0, -2.0]);
    let reshape = single(1, "Reshape", "2,3", vec![ints("shape", &[3, -1]), consumed()]);
    assert_eq!(reshape.on(&[2, 3], &x).0, [3, 2]);
    let pad = vec![ints("paddings", &[0, 1, 1, 0]), float("value", 9.0)];
    let (extents, y) = single(1, "Pad", "2,3", pad).on(&[2, 3], &x);
    assert_eq!(extents, [3, 4]);
    assert_near(&y, &[9.0, 0.0, 1.0, 2.0, 9.0, 3.0, 4.0, 5.0, 9.0, 9.0, 9.0, 9.0]);
    let slice = vec![ints("starts", &[1]), ints("ends", &[3]), ints("axes", &[1])];
    assert_near(&single(1, "Slice", "2,3", slice).on(&[2, 3], &x).1, &[1.0, 2.0, 4.0, 5.0]);
    let top = model(1).input("x", DType::F32, "2,3");
    let top = top.op("TopK", &["x"], &["y", "i"], vec![int("k", 2)]).output("y").output("i");
    let results = top.run(&[Tensor::f32(&[2, 3], &x)]);
    assert_near(&results[0].1, &[2.0, 1.0, 5.0, 4.0]);
    assert_near(&results[1].1, &[2.0, 1.0, 2.0, 1.0]);
    let scales = vec![float("height_scale", 1.0), float("width_scale", 2.0)];
    let (extents, y) = single(1, "Upsample", "1,1,1,3", scales).on(&[1, 1, 1, 3], &x[..3]);
    assert_eq!(extents, [1, 1, 1, 6]);
    assert_near(&y, &[0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    let norm = single(1, "GlobalLpPool", "1,1,1,2", vec![float("p", 2.0)]);
    assert_near(&norm.on(&[1, 1, 1, 2], &[3.0, 4.0]).1, &[5.0]);
    assert!(single(1, "GlobalLpPool", "1,1,1,2", vec![float("p", 2.5)]).import().is_err());
}

#[test]
fn types_were_words() {
    let cast = |to: &str| single(5, "Cast", "2", vec![string("to", to)]);
    let half = cast("INT32").import().unwrap();
    assert_eq!(half.outputs[0].1.dtype, DType::I32);
    assert_near(&cast("BOOL").on(&[2], &[0.0, 3.0]).1, &[0.0, 1.0]);
    insta::assert_snapshot!(cast("COMPLEX64").import().unwrap_err(), @r"
    one operator is not supported
      Cast_y: ai.onnx.Cast (opset 5) on f32[2]: a cast to element type `COMPLEX64` is not supported; supported: casts between numbers and booleans
    ");
    // A number is what opset 6 has.
    assert!(single(5, "Cast", "2", vec![int("to", 6)]).import().is_err());
    assert_near(&single(6, "Cast", "2", vec![int("to", 6)]).on(&[2], &[1.5, -1.5]).1, &[1.0, -1.0]);
}

#[test]
fn operands_were_broadcast_on_request() {
    let sum = |attrs: Vec<AttributeProto>| {
        let m = model(1).input("x", DType::F32, "2,3").floats("w", &[2], &[10.0, 20.0]);
        m.op("Add", &["x", "w"], &["y"], attrs).output("y")
    };
    let (_, y) = sum(vec![int("broadcast", 1), int("axis", 0)]).on(&[2, 3], &count(6));
    assert_near(&y, &[10.0, 11.0, 12.0, 23.0, 24.0, 25.0]);
    assert!(sum(vec![]).import().is_err());
    let flags = |opset| {
        let m = model(opset).input("x", DType::Bool, "2,1").input("w", DType::Bool, "2,1");
        m.op("And", &["x", "w"], &["y"], vec![]).output("y").import()
    };
    assert!(flags(1).is_ok());
}

#[test]
fn tiles_splits_and_joins_had_other_axes() {
    let scalar = |x: f32| Tensor::f32(&[], &[x]);
    let tile = model(1).input("x", DType::F32, "2,2").constant("n", &scalar(2.0));
    let tile = tile.constant("a", &scalar(1.0)).op("Tile", &["x", "n", "a"], &["y"], vec![]);
    let (extents, y) = tile.output("y").on(&[2, 2], &count(4));
    assert_eq!(extents, [2, 4]);
    assert_near(&y, &[0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 2.0, 3.0]);
    let join = |opset, attrs| {
        let m = model(opset).input("x", DType::F32, "2,2");
        m.op("Concat", &["x", "x"], &["y"], attrs).output("y")
    };
    assert_eq!(join(3, vec![]).on(&[2, 2], &count(4)).0, [2, 4]);
    assert_eq!(join(3, vec![int("axis", 0)]).on(&[2, 2], &count(4)).0, [4, 2]);
    assert!(join(4, vec![]).import().is_err(), "since opset 4 the axis is required");
    let split = |attrs| {
        let m = model(1).input("x", DType::F32, "2,2");
        m.op("Split", &["x"], &["y", "z"], attrs).output("y").output("z")
    };
    assert_eq!(split(vec![int("axis", 1)]).on(&[2, 2], &count(4)).0, [2, 1]);
    insta::assert_snapshot!(split(vec![]).import().unwrap_err(), @r"
    one operator is not supported
      Split_y: ai.onnx.Split (opset 1) on f32[2,2]: a split in opset 1 that does not say its axis is not supported; supported: `axis`
    ");
}

#[test]
fn an_operator_that_is_newer_than_its_opset_is_refused() {
    insta::assert_snapshot!(single(5, "Sin", "2", vec![]).import().unwrap_err(), @r"
    one operator is not supported
      Sin_y: ai.onnx.Sin (opset 5) on f32[2]: `Sin` in opset 5 is not supported; supported: opset 7 or later
    ");
    let err = single(0, "Relu", "2", vec![]).import().unwrap_err();
    insta::assert_snapshot!(err, @"the model uses opset 0 of `ai.onnx`, import knows 1 to 28");
}

/// Sums of a batch of sequences: `scan` of opset 8 with one state.
fn sums(lengths: Option<&[i64]>, backwards: bool) -> Build {
    let body = GraphProto {
        node: vec![
            node("Add", &["s", "e"], &["t"], vec![]),
            node("Identity", &["t"], &["o"], vec![]),
        ],
        input: vec![value_info("s", DType::F32, "1"), value_info("e", DType::F32, "1")],
        output: vec![value_info("t", DType::F32, "1"), value_info("o", DType::F32, "1")],
        ..Default::default()
    };
    let attrs = vec![
        int("num_scan_inputs", 1),
        ints("directions", &[i64::from(backwards)]),
        subgraph("body", body),
    ];
    let mut m = model(8).input("x", DType::F32, "2,3,1").floats("s", &[2, 1], &[0.0, 100.0]);
    if let Some(lengths) = lengths {
        m = m.longs("n", lengths);
    }
    let first = if lengths.is_some() { "n" } else { "" };
    m.op("Scan", &[first, "s", "x"], &["y", "z"], attrs).output("y").output("z")
}

#[test]
fn scan_of_opset_8_has_a_batch() {
    let x = Tensor::f32(&[2, 3, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let results = sums(None, false).run(std::slice::from_ref(&x));
    assert_eq!((&results[0].0[..], &results[1].0[..]), (&[2, 1][..], &[2, 3, 1][..]));
    assert_near(&results[0].1, &[6.0, 115.0]);
    assert_near(&results[1].1, &[1.0, 3.0, 6.0, 104.0, 109.0, 115.0]);
    let results = sums(None, true).run(std::slice::from_ref(&x));
    assert_near(&results[1].1, &[3.0, 5.0, 6.0, 106.0, 111.0, 115.0]);
    // The first sequence is two long; what is behind is zero.
    let results = sums(Some(&[2, 3]), false).run(std::slice::from_ref(&x));
    assert_near(&results[0].1, &[3.0, 115.0]);
    assert_near(&results[1].1, &[1.0, 3.0, 0.0, 104.0, 109.0, 115.0]);
    assert!(sums(Some(&[2, 4]), false).import().is_err());
    assert!(sums(Some(&[2]), false).import().is_err());
}

/// The maxima of regions, by the definition, element by element.
fn pooled(
    x: &[f32],
    (h, w): (usize, usize),
    roi: &[f32],
    (rows, columns): (usize, usize),
) -> Vec<f64> {
    let round = |x: f32| x.round() as i64;
    let [x1, y1, x2, y2] = [1, 2, 3, 4].map(|i| round(roi[i]));
    let image = roi[0] as usize * h * w;
    let bounds = |start: i64, end: i64, bins: usize, at: usize, n: usize| {
        let bin = (end - start + 1).max(1) as f32 / bins as f32;
        let (low, high) = ((at as f32 * bin).floor() as i64, ((at + 1) as f32 * bin).ceil() as i64);
        ((low + start).clamp(0, n as i64) as usize, (high + start).clamp(0, n as i64) as usize)
    };
    let mut all = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let (top, bottom) = bounds(y1, y2, rows, row, h);
            let (left, right) = bounds(x1, x2, columns, column, w);
            let mut best = f64::NEG_INFINITY;
            for i in top..bottom {
                for j in left..right {
                    best = best.max(f64::from(x[image + i * w + j]));
                }
            }
            all.push(if best.is_finite() { best } else { 0.0 });
        }
    }
    all
}

#[test]
fn regions_are_pooled() {
    let x: Vec<f32> = (0..2 * 5 * 6).map(|i| ((i * 37) % 61) as f32 - 30.0).collect();
    let rois = [
        [0.0, 0.0, 0.0, 5.0, 4.0],
        [1.0, 1.0, 1.0, 3.0, 3.0],
        [0.0, 2.5, 0.5, 4.4, 3.6],
        [1.0, 4.0, 3.0, 9.0, 8.0],
        [0.0, -3.0, -2.0, 1.0, 0.0],
        [1.0, 9.0, 9.0, 11.0, 12.0],
        [0.0, 3.0, 2.0, 3.0, 2.0],
    ];
    let m = model(13).input("x", DType::F32, "2,1,5,6").input("r", DType::F32, "7,5");
    let m = m.op("MaxRoiPool", &["x", "r"], &["y"], vec![ints("pooled_shape", &[2, 3])]);
    let m = m.output("y");
    let found = m.run(&[Tensor::f32(&[2, 1, 5, 6], &x), Tensor::f32(&[7, 5], &rois.concat())]);
    assert_eq!(found[0].0, [7, 1, 2, 3]);
    let want: Vec<f64> = rois.iter().flat_map(|roi| pooled(&x, (5, 6), roi, (2, 3))).collect();
    assert_near(&found[0].1, &want);
    let shape = |shape: &[i64]| {
        let m = model(13).input("x", DType::F32, "2,1,5,6").input("r", DType::F32, "7,5");
        m.op("MaxRoiPool", &["x", "r"], &["y"], vec![ints("pooled_shape", shape)]).output("y")
    };
    assert!(shape(&[0, 2]).import().is_err());
    assert!(shape(&[2]).import().is_err());
}
