//! E-graph fuzzing: whatever terms and tensors a cover is made of, it means what the model means. For
//! every set of rules and agents, 32 random covers of each graph are evaluated against the oracle.

use eggine_ir::graph::{Rounding, eval, parse};
use eggine_ir::{Graph, Tensor};
use eggine_rewrite::agents::{BUILT_IN, Level, Registry};
use eggine_rewrite::{Optimiser, Options, Soundness};

use crate::models;

/// Random covers per graph and set of agents.
const N_COVERS: u64 = 32;

/// Allowed difference under `Real` rules, relative to the largest output (at least 1): every operator
/// rounds to `f32`, and some hundred roundings of 2⁻²⁴ are behind an output.
const REAL_BOUND: f64 = 300.0 / (1u64 << 24) as f64;

fn graphs() -> Vec<Graph> {
    let odd = "graph @odd(v0: f32[2,6], v1: weight f32[6,4], v2: weight f32[6,2], v3: weight f32[4], v4: weight f32[2]) {\n \
        v5 = matmul v0, v1\n v6 = add v5, v3\n v7 = relu v6\n v8 = matmul v0, v2\n v9 = add v8, v4\n v10 = relu v9\n \
        v11 = concat v7, v10 {axis=1}\n v12 = neg v7\n return v11, v10, v12\n}";
    vec![
        models::mlp(),
        models::bert(1, 4, 8, 2),
        models::resnet([1, 1, 0, 0], 16, 2),
        models::squeezenet(32, 4),
        parse(odd).unwrap(),
    ]
}

/// All graph agents, each alone, and each left out.
fn selections() -> Vec<Vec<&'static str>> {
    let all: Vec<&'static str> =
        BUILT_IN.iter().filter(|row| row.level == Level::Graph).map(|row| row.name).collect();
    let alone = all.iter().map(|&name| vec![name]);
    let without = all.iter().map(|&name| all.iter().copied().filter(|&it| it != name).collect());
    std::iter::once(all.clone()).chain(alone).chain(without).collect()
}

/// The worst difference of two results, relative to the largest number.
fn difference(left: &[Tensor], right: &[Tensor]) -> f64 {
    let mut worst: f64 = 0.0;
    for (left, right) in left.iter().zip(right) {
        assert_eq!(left.ty(), right.ty());
        let (left, right) = (left.to_f64(), right.to_f64());
        let largest = right.iter().fold(1.0f64, |max, x| max.max(x.abs()));
        for (x, y) in left.iter().zip(&right) {
            let difference = if x == y || (x.is_nan() && y.is_nan()) { 0.0 } else { (x - y).abs() };
            worst =
                worst.max(if difference.is_nan() { f64::INFINITY } else { difference / largest });
        }
    }
    worst
}

fn fuzz(soundness: Soundness, bound: f64) {
    let registry = Registry::default();
    for graph in graphs() {
        let inputs = models::inputs(&graph, 11);
        let oracle: Vec<Tensor> =
            eval(&graph, &inputs, Rounding::PerOp).iter().map(|array| array.to_tensor()).collect();
        for names in selections() {
            let agents = registry.select(&names, soundness).unwrap();
            let options = Options { agents: Some(agents), soundness, ..Options::default() };
            let optimiser = Optimiser::new(&graph, &options).unwrap();
            for seed in 0..N_COVERS {
                let cover = optimiser.random(seed);
                let found = cover.eval(&inputs, Rounding::PerOp);
                let worst = difference(&found, &oracle);
                assert!(worst <= bound, "{} {names:?} {seed}: {worst}\n{cover}", graph.name);
            }
        }
    }
}

#[test]
fn exact_covers_agree_bit_for_bit() {
    fuzz(Soundness::Exact, 0.0);
}

#[test]
fn real_covers_agree_up_to_rounding() {
    fuzz(Soundness::Real, REAL_BOUND);
}

/// The harness itself must be able to say no.
#[test]
fn a_difference_is_seen() {
    let (one, other) = (Tensor::f32(&[2], &[1.0, 2.0]), Tensor::f32(&[2], &[1.0, 2.5]));
    assert_eq!(difference(std::slice::from_ref(&one), std::slice::from_ref(&one)), 0.0);
    assert!(difference(std::slice::from_ref(&one), std::slice::from_ref(&other)) > 0.1);
    let nan = Tensor::f32(&[2], &[1.0, f32::NAN]);
    assert_eq!(difference(&[nan], &[one]), f64::INFINITY);
}
