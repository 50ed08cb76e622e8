//! Covers: they mean what the model means, and they have as few kernels as they should.

use eggine_ir::graph::{Rounding, eval};
use eggine_ir::{Graph, NodeKind, Op};
use eggine_rewrite::{Cover, Options, RegionCost, RewriteError, TensorDef, optimise, random_cover};

use crate::models;
use crate::roofline::Roofline;

fn oracle(graph: &Graph, inputs: &[eggine_ir::Tensor]) -> Vec<eggine_ir::Tensor> {
    eval(graph, inputs, Rounding::PerOp).iter().map(|array| array.to_tensor()).collect()
}

fn best(graph: &Graph) -> Cover {
    optimise(graph, &Roofline::default(), &Options::default()).unwrap().remove(0)
}

fn small() -> Vec<Graph> {
    vec![
        models::mlp(),
        models::bert(1, 6, 8, 2),
        models::resnet([1, 1, 1, 1], 32, 4),
        models::squeezenet(64, 10),
    ]
}

#[test]
fn a_cover_computes_the_model() {
    for graph in small() {
        let inputs = models::inputs(&graph, 3);
        let cover = best(&graph);
        assert_eq!(
            cover.eval(&inputs, Rounding::PerOp),
            oracle(&graph, &inputs),
            "{}\n{cover}",
            graph.name
        );
        check_joins(&cover);
    }
}

#[test]
fn any_cover_computes_the_model() {
    for graph in small() {
        let inputs = models::inputs(&graph, 7);
        let expected = oracle(&graph, &inputs);
        for seed in 0..32 {
            let cover = random_cover(&graph, &Options { seed, ..Options::default() }).unwrap();
            assert_eq!(
                cover.eval(&inputs, Rounding::PerOp),
                expected,
                "{} {seed}\n{cover}",
                graph.name
            );
        }
    }
}

/// The numbers to beat: tinygrad takes 16 launches for a layer of BERT, 55 for ResNet-50 and 30 for
/// SqueezeNet.
#[test]
fn models_have_few_kernels() {
    // A layer takes 9, its Q, K and V being one product; the mask and the first normalisation take two.
    assert_eq!(best(&models::bert(1, 128, 768, 12)).n_kernels(), 9 + 1);
    assert_eq!(best(&models::bert(12, 128, 768, 12)).n_kernels(), 12 * 9 + 2);
    // 53 convolutions, four of them in the sum of a block; pools, the last product, softmax.
    assert_eq!(best(&models::resnet([3, 4, 6, 3], 224, 64)).n_kernels(), 49 + 4);
    // 26 convolutions, three pools; the average and softmax are one.
    assert_eq!(best(&models::squeezenet(224, 1000)).n_kernels(), 26 + 3 + 1);
}

/// Searching is incremental, and equal blocks are searched once: with the number of layers neither the
/// regions that are priced nor the e-nodes grow.
#[test]
fn twelve_layers_are_searched_as_two() {
    let n_asked = |layers: usize| {
        let costs = Roofline::default();
        optimise(&models::bert(layers, 128, 768, 12), &costs, &Options::default()).unwrap();
        costs.n_asked.load(std::sync::atomic::Ordering::Relaxed)
    };
    // Threads may ask for the same region at once.
    let (few, many) = (n_asked(3), n_asked(12));
    assert!(many <= few + few / 10, "{few} {many}");
    assert!(few < 1_000, "{few}");
}

#[test]
fn k_covers_are_different_and_best_first() {
    let graph = models::bert(2, 6, 8, 2);
    let inputs = models::inputs(&graph, 5);
    let covers =
        optimise(&graph, &Roofline::default(), &Options { k: 8, ..Options::default() }).unwrap();
    assert_eq!(covers.len(), 8);
    assert!(covers.is_sorted_by(|a, b| a.cost_ns <= b.cost_ns));
    let expected = oracle(&graph, &inputs);
    for (i, cover) in covers.iter().enumerate() {
        assert_eq!(cover.eval(&inputs, Rounding::PerOp), expected);
        let text =
            |cover: &Cover| format!("{cover}{:?}", cover.regions.values().collect::<Vec<_>>());
        assert!(covers[..i].iter().all(|other| text(other) != text(cover)));
    }
    // The sum that the search kept up to date is the sum of the kernels.
    let costs = Roofline::default();
    for cover in &covers {
        let sum: f64 =
            cover.kernels().map(|(_, region)| costs.cost_ns(&cover.regions[region]).unwrap()).sum();
        assert!((sum - cover.cost_ns).abs() <= 1e-9 * sum, "{sum} {}", cover.cost_ns);
    }
}

#[test]
fn equal_blocks_share_their_regions() {
    // Wide enough that no weight is a literal, which would tell one layer from the next.
    let one = best(&models::bert(3, 6, 32, 2));
    let many = best(&models::bert(6, 6, 32, 2));
    assert_eq!(one.regions.len(), many.regions.len());
    assert!(2 * many.n_kernels() > 3 * one.n_kernels());
    for (_, region) in many.regions.iter() {
        assert_eq!(region.canonical().0, *region);
    }
}

/// A cost that refuses everything with more than one operator.
struct OneOperator;

impl RegionCost for OneOperator {
    fn cost_ns(&self, region: &eggine_ir::Region) -> Option<f64> {
        let n = region
            .graph
            .nodes
            .values()
            .filter(|node| matches!(node.kind, NodeKind::Apply(..)))
            .count();
        (n <= 1).then_some(1.0)
    }
}

/// A cost that knows no kernel for one operator.
struct NoErf;

impl RegionCost for NoErf {
    fn cost_ns(&self, region: &eggine_ir::Region) -> Option<f64> {
        let is_erf = |node: &eggine_ir::Node| matches!(node.kind, NodeKind::Apply(Op::Erf, ..));
        (!region.graph.nodes.values().any(is_erf)).then_some(1.0)
    }
}

#[test]
fn legality_comes_from_outside() {
    let graph = models::mlp();
    let inputs = models::inputs(&graph, 2);
    let cover = optimise(&graph, &OneOperator, &Options::default()).unwrap().remove(0);
    assert!(cover.n_kernels() > 10, "{cover}");
    assert_eq!(cover.eval(&inputs, Rounding::PerOp), oracle(&graph, &inputs));
    let refused = optimise(&graph, &NoErf, &Options::default()).map(|covers| covers.len());
    assert!(
        matches!(refused, Err(RewriteError::NoKernel { ref op, .. }) if op == "erf"),
        "{refused:?}"
    );
}

/// Outputs may be inputs, constants, each other, or used further; a graph may have no operator.
#[test]
fn odd_graphs_have_covers() {
    let texts = [
        "graph @g(v0: f32[2,3]) {\n return v0\n}",
        "graph @g(v0: f32[2,3]) {\n v1 = const f32[] 2.0\n return v1, v0\n}",
        "graph @g(v0: f32[2,3]) {\n v1 = relu v0\n v2 = neg v1\n return v1, v2, v1\n}",
        "graph @g(v0: f32[2,3]) {\n v1 = reshape v0 {shape=[6]}\n v2 = reshape v1 {shape=[3,2]}\n return v1, v2\n}",
        "graph @g(v0: f32[1,3], v1: f32[1,3]) {\n v2 = concat v0, v1, v0 {axis=1}\n return v2\n}",
        "graph @g(v0: f32[1,3]) {\n v1 = relu v0\n v2 = neg v0\n v3 = concat v1, v2 {axis=1}\n \
         v4 = concat v2, v1 {axis=1}\n v5 = concat v3, v4 {axis=1}\n return v3, v4, v5\n}",
        "graph @g(v0: f32[1,3], v1: f32[4]) {\n v2 = relu v0\n return v2\n}",
        "graph @g(v0: f32[3]) {\n v1 = const f32[2] [1.0, 2.0]\n v2 = neg v1\n v3 = reshape v2 {shape=[2,1]}\n \
         v4 = add v0, v3\n return v4, v2\n}",
        "graph @g(v0: f32[64]) {\n v1 = const f32[64] splat 2.0\n v2 = mul v0, v1\n v3 = concat v2, v1 {axis=0}\n \
         return v3\n}",
        "graph @g(v0: f32[2,3]) {\n v1 = transpose v0 {perm=[1,0]}\n v2 = transpose v1 {perm=[1,0]}\n \
         v3 = add v0, v2\n return v3, v1\n}",
    ];
    for text in texts {
        let graph = eggine_ir::graph::parse(text).unwrap();
        let inputs = models::inputs(&graph, 9);
        let expected = oracle(&graph, &inputs);
        for cover in
            optimise(&graph, &Roofline::default(), &Options { k: 3, ..Options::default() }).unwrap()
        {
            assert_eq!(cover.eval(&inputs, Rounding::PerOp), expected, "{text}\n{cover}");
            assert_eq!(cover.derivation.replay(), Ok(()), "{text}");
            check_joins(&cover);
        }
        for seed in 0..16 {
            let cover = random_cover(&graph, &Options { seed, ..Options::default() }).unwrap();
            assert_eq!(cover.eval(&inputs, Rounding::PerOp), expected, "{text}\n{cover}");
            check_joins(&cover);
        }
    }
}

/// A part of a join is a kernel's result and part of nothing else.
fn check_joins(cover: &Cover) {
    let mut seen = std::collections::BTreeSet::new();
    for def in cover.tensors.values() {
        let TensorDef::Join { axis, parts } = def else { continue };
        for part in parts {
            assert!(seen.insert(*part), "{part} is in two joins\n{cover}");
            assert!(matches!(cover.tensors[*part], TensorDef::Kernel { .. }), "{cover}");
            assert!(cover.types[*part].extents()[..*axis].iter().all(|&n| n == 1), "{cover}");
        }
    }
}
