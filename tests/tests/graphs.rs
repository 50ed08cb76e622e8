//! The suite of networks: they verify, and siblings are found where they have them.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use eggine_codegen_ptx::{CPU_DEVICE, H200};
use eggine_ir::graph::{parse, verify};
use eggine_rewrite::agents::{Level, Registry};
use eggine_rewrite::{Options, RewriteError, Soundness, greedy_cover, optimise};
use eggine_search::Costs;
use eggine_tests::suite::{NETWORKS, bert_base};

#[test]
fn networks_are_well_formed() {
    for network in NETWORKS {
        assert_eq!(verify(&(network.build)()), Ok(()), "{}", network.name);
    }
}

#[test]
fn covers_are_never_worse_than_greedy_fusion() {
    for network in NETWORKS {
        let graph = (network.build)();
        let options = Options { node_limit: 50_000, iter_limit: 15, ..Options::default() };
        let cover = optimise(&graph, &Costs::new(CPU_DEVICE), &options).unwrap().remove(0);
        let greedy = greedy_cover(&graph, &Costs::new(CPU_DEVICE)).unwrap();
        let (ours, theirs) = (cover.cost_ns, greedy.cost_ns);
        assert!(ours <= theirs, "{}: {ours} and {theirs} ns", network.name);
    }
}

#[test]
fn bert_base_takes_nine_launches_a_layer() -> Result<(), RewriteError> {
    let cover = optimise(&bert_base(), &Costs::new(CPU_DEVICE), &Options::default())?.remove(0);
    // Beside the layers: the mask, the first normalisation, and the pooler, whose first token is read.
    let n_kernels = cover.derivation.kernels.len();
    assert!(n_kernels <= 12 * 9 + 4, "{n_kernels}");
    Ok(())
}

/// A long sum with few results leaves a device with hundreds of processors idle, unless it is split.
#[test]
fn the_splitter_pays_where_blocks_are_few() {
    let text =
        "graph @g(v0: f32[16,8192], v1: weight f32[8192,64]) {\n v2 = matmul v0, v1\n return v2\n}";
    let graph = parse(text).unwrap();
    let registry = Registry::default();
    let cost = |without: &[&str], soundness| {
        let agents = registry.without(Level::Graph, without, soundness).unwrap();
        let options = Options { agents: Some(agents), soundness, ..Options::default() };
        optimise(&graph, &Costs::new(H200), &options).unwrap().remove(0).cost_ns
    };
    let (with, without) = (cost(&[], Soundness::Real), cost(&["splitter"], Soundness::Real));
    assert!(with < without, "{with} {without}");
    // Parts round differently, so it is not for exact jobs.
    assert_eq!(cost(&[], Soundness::Exact), cost(&["splitter"], Soundness::Exact));
}
