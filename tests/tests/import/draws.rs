//! Random operators: what is drawn is a function of the model, and is what the attributes say.

use super::build::{
    Build, assert_near, float, int, ints, model, node, single, subgraph, value_info,
};
use eggine_ir::onnx::proto::{AttributeProto, GraphProto};
use eggine_ir::{DType, Tensor};

const N: i64 = 4096;

fn drawn(op: &str, mut attrs: Vec<AttributeProto>) -> Vec<f64> {
    attrs.push(ints("shape", &[N]));
    let m = model(13).input("x", DType::F32, "1").op(op, &[], &["y"], attrs).output("y");
    m.on(&[1], &[0.0]).1
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

#[test]
fn ranges_and_moments_are_those_asked_for() {
    let flat = drawn("RandomUniform", vec![float("low", -2.0), float("high", 6.0)]);
    assert!(flat.iter().all(|x| (-2.0..6.0).contains(x)));
    // 4096 numbers of deviation 2.3: their mean has one of 0.036.
    assert!((mean(&flat) - 2.0).abs() < 0.2, "{}", mean(&flat));
    let bell = drawn("RandomNormal", vec![float("mean", 3.0), float("scale", 0.5)]);
    let square: Vec<f64> = bell.iter().map(|x| (x - 3.0).powi(2)).collect();
    assert!((mean(&bell) - 3.0).abs() < 0.05 && (mean(&square) - 0.25).abs() < 0.04);
    let half = drawn("RandomUniform", vec![int("dtype", 10), float("seed", 4.0)]);
    assert!(half.iter().all(|x| (0.0..1.0).contains(x) && x * 2048.0 == (x * 2048.0).trunc()));
    let large = model(13).input("x", DType::F32, "1");
    let large = large.op("RandomNormal", &[], &["y"], vec![ints("shape", &[1 << 25])]);
    insta::assert_snapshot!(large.output("y").import().unwrap_err(), @r"
    one operator is not supported
      RandomNormal_y: ai.onnx.RandomNormal (opset 13): a draw of 33554432 numbers, which would be a constant of the engine, is not supported; supported: at most 2^24, or random numbers as an input
    ");
    let whole = vec![ints("shape", &[2]), int("dtype", 7)];
    let whole = model(13).input("x", DType::F32, "1").op("RandomUniform", &[], &["y"], whole);
    assert!(whole.output("y").import().is_err());
}

#[test]
fn seeds_and_places_decide_what_is_drawn() {
    let twice = |first: Vec<AttributeProto>, second: Vec<AttributeProto>| {
        let with = |mut attrs: Vec<AttributeProto>| {
            attrs.push(ints("shape", &[8]));
            attrs
        };
        let m = model(13).input("x", DType::F32, "1");
        let m = m.op("RandomNormal", &[], &["y"], with(first)).output("y");
        let m = m.op("RandomNormal", &[], &["z"], with(second)).output("z");
        let all = m.run(&[Tensor::f32(&[1], &[0.0])]);
        let again = m.run(&[Tensor::f32(&[1], &[0.0])]);
        assert_eq!(all, again, "the same model, the same numbers");
        (all[0].1.clone(), all[1].1.clone())
    };
    let seed = |x: f32| vec![float("seed", x)];
    let (first, second) = twice(seed(1.0), seed(1.0));
    assert_eq!(first, second);
    let (first, second) = twice(seed(1.0), seed(2.0));
    assert_ne!(first, second);
    let (first, second) = twice(vec![], vec![]);
    assert_ne!(first, second);
}

#[test]
fn iterations_of_a_loop_draw_other_numbers() {
    let scalar = |name: &str, dtype| value_info(name, dtype, "");
    let draw = vec![ints("shape", &[4]), float("seed", 1.0)];
    let body = GraphProto {
        node: vec![
            node("Identity", &["c"], &["d"], vec![]),
            node("RandomUniform", &[], &["u"], draw),
        ],
        input: vec![scalar("i", DType::I64), scalar("c", DType::Bool)],
        output: vec![scalar("d", DType::Bool), scalar("u", DType::F32)],
        ..Default::default()
    };
    let m = model(13).input("x", DType::F32, "1").constant("n", &Tensor::i64(&[], &[2]));
    let m = m.op("Loop", &["n", ""], &["y"], vec![subgraph("body", body)]).output("y");
    let (extents, y) = m.on(&[1], &[0.0]);
    assert_eq!(extents, [2, 4]);
    assert_ne!(y[..4], y[4..]);
}

#[test]
fn bernoulli_takes_probabilities_at_run_time() {
    let p: Vec<f32> = (0..N).map(|i| [0.0, 0.25, 1.0][i as usize % 3]).collect();
    let (_, y) = single(15, "Bernoulli", "4096", vec![]).on(&[N as usize], &p);
    let of = |at: usize| -> Vec<f64> { y.iter().skip(at).step_by(3).copied().collect() };
    assert!(of(0).iter().all(|&x| x == 0.0) && of(2).iter().all(|&x| x == 1.0));
    assert!(of(1).iter().all(|&x| x == 0.0 || x == 1.0));
    assert!((mean(&of(1)) - 0.25).abs() < 0.05, "{}", mean(&of(1)));
}

#[test]
fn multinomial_draws_classes_by_weight() {
    let attrs = vec![int("sample_size", N), int("dtype", 7)];
    let logs = [0.0f32, f32::NEG_INFINITY, 3f32.ln(), -50.0, 200.0, 200.0];
    let (extents, y) = single(13, "Multinomial", "2,3", attrs).on(&[2, 3], &logs);
    assert_eq!(extents, [2, 4096]);
    let share = |row: usize, class: f64| {
        let row = &y[row * 4096..][..4096];
        row.iter().filter(|&&x| x == class).count() as f64 / 4096.0
    };
    assert!((share(0, 0.0) - 0.25).abs() < 0.03 && share(0, 1.0) == 0.0);
    assert!((share(0, 2.0) - 0.75).abs() < 0.03);
    assert!(share(1, 0.0) == 0.0 && (share(1, 1.0) - 0.5).abs() < 0.04);
}

fn dropout(ratio: f32) -> Build {
    let m = model(13).input("x", DType::F32, "4096").constant("r", &Tensor::f32(&[], &[ratio]));
    let m = m.constant("t", &Tensor::from_i64(DType::Bool, &[], &[1]));
    m.op("Dropout", &["x", "r", "t"], &["y", "m"], vec![int("seed", 5)]).output("y").output("m")
}

#[test]
fn dropout_in_training_keeps_the_mean() {
    let x = Tensor::f32(&[N as usize], &vec![2.0; N as usize]);
    let results = dropout(0.75).run(std::slice::from_ref(&x));
    let (y, mask) = (&results[0].1, &results[1].1);
    assert!(y.iter().zip(mask).all(|(&y, &m)| y == 8.0 * m && (m == 0.0 || m == 1.0)));
    assert!((mean(mask) - 0.25).abs() < 0.03, "{}", mean(mask));
    assert_near(&dropout(0.0).run(std::slice::from_ref(&x))[0].1[..2], &[2.0, 2.0]);
    assert!(dropout(1.0).import().is_err());
}
