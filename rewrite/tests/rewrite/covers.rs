//! Covers: they mean what the model means, and they have as few kernels as they should.

use std::time::Instant;

use eggine_ir::Graph;
use eggine_ir::graph::{Rounding, eval};
use eggine_rewrite::{Cover, Options, optimise, random_cover};

use crate::models;
use crate::roofline::Roofline;

fn oracle(graph: &Graph, inputs: &[eggine_ir::Tensor]) -> Vec<eggine_ir::Tensor> {
    eval(graph, inputs, Rounding::PerOp).iter().map(|array| array.to_tensor()).collect()
}

fn best(graph: &Graph) -> Cover {
    let start = Instant::now();
    let costs = Roofline::default();
    let cover = optimise(graph, &costs, &Options::default()).unwrap().remove(0);
    eprintln!(
        "{}: {} nodes, {} kernels, {} regions, {:.1} us, {:?} {:?}, asked {}",
        graph.name, graph.nodes.len(), cover.n_kernels(), cover.regions.len(), cover.cost_ns / 1e3, start.elapsed(),
        cover.agents, costs.n_asked.load(std::sync::atomic::Ordering::Relaxed)
    );
    cover
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
        assert_eq!(cover.eval(&inputs, Rounding::PerOp), oracle(&graph, &inputs), "{}\n{cover}", graph.name);
    }
}

#[test]
fn any_cover_computes_the_model() {
    for graph in small() {
        let inputs = models::inputs(&graph, 7);
        let expected = oracle(&graph, &inputs);
        for seed in 0..32 {
            let cover = random_cover(&graph, &Options { seed, ..Options::default() }).unwrap();
            assert_eq!(cover.eval(&inputs, Rounding::PerOp), expected, "{} {seed}\n{cover}", graph.name);
        }
    }
}

#[test]
fn kernel_counts() {
    let cover = best(&models::bert(1, 128, 768, 12));
    eprintln!("{cover}");
    let cover = best(&models::bert(12, 128, 768, 12));
    assert!(cover.n_kernels() <= 12 * 11 + 2, "{}", cover.n_kernels());
    let cover = best(&models::resnet([3, 4, 6, 3], 224, 64));
    eprintln!("{cover}");
    assert!(cover.n_kernels() <= 55, "{}", cover.n_kernels());
    let cover = best(&models::squeezenet(224, 1000));
    eprintln!("{cover}");
    assert!(cover.n_kernels() <= 30, "{}", cover.n_kernels());
}
