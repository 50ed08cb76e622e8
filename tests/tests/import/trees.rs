//! Tree ensembles, and what import says of trees that are none; sums over nothing; long rankings.

use super::build::{
    Build, assert_near, attr, count, in_domain, int, ints, model, node, single, string,
};
use eggine_ir::onnx::proto::AttributeProto;
use eggine_ir::{DType, Tensor};

fn floats(name: &str, values: &[f32]) -> AttributeProto {
    AttributeProto { floats: values.to_vec(), r#type: Some(6), ..attr(name) }
}

fn strings(name: &str, values: &[&str]) -> AttributeProto {
    let strings = values.iter().map(|&s| s.to_owned().into()).collect();
    AttributeProto { strings, r#type: Some(8), ..attr(name) }
}

/// `x[0] <= 1 ? leaf 1 : (x[1] < 5 ? leaf 3 : leaf 4)`, NaN at the root goes to leaf 1; and a tree of one
/// leaf. Votes: `(tree, node, id, weight)`.
fn forest(kind: &str, votes: &[(i64, i64, i64, f32)]) -> Vec<AttributeProto> {
    let modes = ["BRANCH_LEQ", "LEAF", "BRANCH_LT", "LEAF", "LEAF", "LEAF"];
    vec![
        ints("nodes_treeids", &[0, 0, 0, 0, 0, 7]),
        ints("nodes_nodeids", &[0, 1, 2, 3, 4, 0]),
        ints("nodes_featureids", &[0, 0, 1, 0, 0, 0]),
        floats("nodes_values", &[1.0, 0.0, 5.0, 0.0, 0.0, 0.0]),
        strings("nodes_modes", &modes),
        ints("nodes_truenodeids", &[1, 0, 3, 0, 0, 0]),
        ints("nodes_falsenodeids", &[2, 0, 4, 0, 0, 0]),
        ints("nodes_missing_value_tracks_true", &[1, 0, 0, 0, 0, 0]),
        ints(&format!("{kind}_treeids"), &votes.iter().map(|it| it.0).collect::<Vec<_>>()),
        ints(&format!("{kind}_nodeids"), &votes.iter().map(|it| it.1).collect::<Vec<_>>()),
        ints(&format!("{kind}_ids"), &votes.iter().map(|it| it.2).collect::<Vec<_>>()),
        floats(&format!("{kind}_weights"), &votes.iter().map(|it| it.3).collect::<Vec<_>>()),
    ]
}

fn ml(op: &str, outputs: &[&str], attrs: Vec<AttributeProto>) -> Build {
    let built = model(13).domain("ai.onnx.ml", 3).input("x", DType::F32, "4,2");
    let built = built.node(in_domain("ai.onnx.ml", node(op, &["x"], outputs, attrs)));
    outputs.iter().fold(built, |built, name| built.output(name))
}

/// Rows that end in leaves 1, 3, 4 and (NaN) 1.
const ROWS: [f32; 8] = [1.0, 9.0, 2.0, 4.0, 2.0, 5.0, f32::NAN, 0.0];

const VOTES: [(i64, i64, i64, f32); 4] =
    [(0, 1, 0, 10.0), (0, 3, 0, 20.0), (0, 4, 0, 30.0), (7, 0, 0, 0.5)];

#[test]
fn a_row_walks_to_one_leaf_of_each_tree() {
    let rows = [Tensor::f32(&[4, 2], &ROWS)];
    for (join, want) in [
        ("SUM", [10.5, 20.5, 30.5, 10.5]),
        ("AVERAGE", [5.25, 10.25, 15.25, 5.25]),
        ("MIN", [0.5, 0.5, 0.5, 0.5]),
        ("MAX", [10.0, 20.0, 30.0, 10.0]),
    ] {
        let mut attrs = forest("target", &VOTES);
        attrs.extend([int("n_targets", 1), string("aggregate_function", join)]);
        let y = ml("TreeEnsembleRegressor", &["y"], attrs).run(&rows).remove(0);
        assert_eq!(y.0, [4, 1], "{join}");
        assert_near(&y.1, &want);
    }
    // Base values, two targets, and a function of the sum.
    let mut attrs = forest("target", &[(0, 1, 1, 2.0), (0, 4, 0, -1.0)]);
    attrs.extend([int("n_targets", 2), floats("base_values", &[0.0, 1.0])]);
    attrs.push(string("post_transform", "LOGISTIC"));
    let y = ml("TreeEnsembleRegressor", &["y"], attrs).run(&rows).remove(0);
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let want = [0.0, 3.0, 0.0, 1.0, -1.0, 1.0, 0.0, 3.0].map(logistic);
    assert_near(&y.1, &want);
}

#[test]
fn classes_have_labels_and_two_of_them_one_vote() {
    let rows = [Tensor::f32(&[4, 2], &ROWS)];
    let mut attrs = forest("class", &[(0, 1, 0, 0.25), (0, 3, 0, 0.75), (0, 4, 0, 0.5)]);
    attrs.push(ints("classlabels_int64s", &[40, 50]));
    let results = ml("TreeEnsembleClassifier", &["label", "p"], attrs).run(&rows);
    assert_eq!(results[0].0, [4]);
    assert_near(&results[0].1, &[40.0, 50.0, 40.0, 40.0]);
    assert_near(&results[1].1, &[0.75, 0.25, 0.25, 0.75, 0.5, 0.5, 0.75, 0.25]);

    let mut attrs = forest("class", &[(0, 1, 2, 1.0), (0, 3, 0, 1.0), (0, 4, 1, 1.0)]);
    attrs.push(ints("classlabels_int64s", &[5, 6, 7]));
    let results = ml("TreeEnsembleClassifier", &["label", "p"], attrs).run(&rows);
    assert_near(&results[0].1, &[7.0, 5.0, 6.0, 7.0]);
    assert_near(&results[1].1[..6], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn lists_that_are_no_trees_are_refused() {
    let broken = |change: fn(&mut Vec<AttributeProto>)| {
        let mut attrs = forest("target", &VOTES);
        change(&mut attrs);
        ml("TreeEnsembleRegressor", &["y"], attrs).import().unwrap_err().to_string()
    };
    // A cycle, a feature that is not there, a child that is not there, lists of two lengths.
    for message in [
        broken(|attrs| attrs[5] = ints("nodes_truenodeids", &[2, 0, 0, 0, 0, 0])),
        broken(|attrs| attrs[2] = ints("nodes_featureids", &[2, 0, 1, 0, 0, 0])),
        broken(|attrs| attrs[6] = ints("nodes_falsenodeids", &[9, 0, 4, 0, 0, 0])),
        broken(|attrs| attrs[3] = floats("nodes_values", &[1.0])),
    ] {
        assert!(message.contains("no cycle"), "{message}");
    }
}

#[test]
fn operators_on_nothing_are_known() {
    let sum = model(13).input("x", DType::F32, "2,0").longs("axes", &[1]);
    let sum = sum.op("ReduceSum", &["x", "axes"], &["y"], vec![]).output("y");
    assert_eq!(sum.on(&[2, 0], &[]), (vec![2, 1], vec![0.0, 0.0]));
    let join = model(13).input("x", DType::F32, "2,0").input("z", DType::F32, "2,1");
    let join = join.op("Concat", &["x", "z"], &["y"], vec![int("axis", 1)]).output("y");
    let inputs = [Tensor::f32(&[2, 0], &[]), Tensor::f32(&[2, 1], &[3.0, 4.0])];
    assert_eq!(join.run(&inputs).remove(0), (vec![2, 1], vec![3.0, 4.0]));
    let product = model(13).input("x", DType::F32, "2,0").input("z", DType::F32, "0,3");
    let product = product.op("MatMul", &["x", "z"], &["y"], vec![]).output("y");
    let inputs = [Tensor::f32(&[2, 0], &[]), Tensor::f32(&[0, 3], &[])];
    assert_eq!(product.run(&inputs).remove(0), (vec![2, 3], vec![0.0; 6]));
}

#[test]
fn rankings_are_stable_and_may_be_long() {
    let ranked = |k: i64, largest: i64, data: &[f32]| {
        let built = model(13).input("x", DType::F32, &data.len().to_string()).longs("k", &[k]);
        let attrs = vec![int("largest", largest)];
        let built = built.op("TopK", &["x", "k"], &["v", "i"], attrs).output("v").output("i");
        built.run(&[Tensor::f32(&[data.len()], data)])
    };
    let falling: Vec<f32> = count(40).iter().map(|x| 39.0 - x).collect();
    let rising: Vec<f64> = (0..40).map(f64::from).collect();
    let results = ranked(40, 0, &falling);
    assert_near(&results[0].1, &rising);
    assert_near(&results[1].1, &rising.iter().map(|x| 39.0 - x).collect::<Vec<_>>());
    let equals: Vec<f32> = (0..36).map(|i| (i % 2) as f32).collect();
    let results = ranked(36, 1, &equals);
    assert_near(&results[1].1[..3], &[1.0, 3.0, 5.0]);
    assert_near(&results[1].1[18..20], &[0.0, 2.0]);
    assert_eq!(ranked(0, 1, &equals)[0].0, [0]);
}

#[test]
fn angles_are_exact_at_the_ends() {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};
    let x = [-1.0, 0.0, 1.0];
    assert_near(&single(7, "Atan", "3", vec![]).on(&[3], &x).1, &[-FRAC_PI_4, 0.0, FRAC_PI_4]);
    assert_near(&single(7, "Asin", "3", vec![]).on(&[3], &x).1, &[-FRAC_PI_2, 0.0, FRAC_PI_2]);
    assert_near(&single(7, "Acos", "3", vec![]).on(&[3], &x).1, &[PI, FRAC_PI_2, 0.0]);
    let far = [f32::INFINITY, f32::NEG_INFINITY, 1e30];
    let want = [FRAC_PI_2, -FRAC_PI_2, FRAC_PI_2];
    assert_near(&single(7, "Atan", "3", vec![]).on(&[3], &far).1, &want);
}
