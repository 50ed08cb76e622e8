//! Fusion of the models that the repository ships: how many kernels, and which nodes of the model each
//! computes. The choices are those of budget 0: the static model's, unmeasured.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use eggine::{Case, input_extents};
use eggine_codegen_ptx::{CPU_DEVICE, first_schedule};
use eggine_ir::onnx::{ImportOptions, import};
use eggine_ir::{Node, NodeKind, Op, Region};
use eggine_rewrite::{Cover, Options, TensorDef, optimise};
use eggine_search::Costs;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/models").join(name)
}

fn cover(model: &str, case: usize) -> Cover {
    let path = example(&format!("{model}.onnx"));
    let case = Case::read(&example(&format!("{model}.case{case}.npz"))).unwrap();
    let shapes = input_extents(&path, &case).unwrap().into_iter().collect();
    let imported = import(&path, &ImportOptions { shapes }).unwrap();
    optimise(&imported.graph, &Costs::new(CPU_DEVICE), &Options::default()).unwrap().remove(0)
}

fn kernels(cover: &Cover) -> Vec<(String, Vec<String>)> {
    let kernels = cover.kernels().map(|(tensor, region)| {
        let TensorDef::Kernel { sources, .. } = &cover.tensors[tensor] else {
            unreachable!("kernels() lists kernels")
        };
        let family = first_schedule(&cover.regions[region]).unwrap().family();
        (family.to_owned(), sources.clone())
    });
    kernels.collect()
}

fn listing(model: &str) -> String {
    let kernels = kernels(&cover(model, 0));
    let mut text = format!("{} kernels\n", kernels.len());
    for (family, sources) in kernels {
        writeln!(text, "{family:<12} {}", sources.join(" ")).unwrap();
    }
    text
}

#[test]
fn resnet50_has_one_kernel_per_convolution_with_what_follows_it() {
    let cover = cover("resnet50", 0);
    let is_conv = |node: &&Node| matches!(node.kind, NodeKind::Apply(Op::Conv, ..));
    let n_convs = |region: &Region| region.graph.nodes.values().filter(is_conv).count();
    let launches: Vec<usize> =
        cover.kernels().map(|(_, region)| n_convs(&cover.regions[region])).collect();
    assert_eq!(launches.iter().sum::<usize>(), 41, "every convolution is computed once");
    // Two only where both branches of a residual end in a convolution.
    assert!(launches.iter().all(|&n| n <= 2), "{launches:?}");
    // Beside them: the pooling, the mean, and the classifier.
    assert!(launches.iter().filter(|&&n| n == 0).count() <= 3, "{launches:?}");
    insta::assert_snapshot!(listing("resnet50"));
}

#[test]
fn bert_layers_take_at_most_9_launches() {
    for case in 0..2 {
        let kernels = kernels(&cover("bert_encoder", case));
        for layer in ["layer.0", "layer.1"] {
            let launches = kernels
                .iter()
                .filter(|(_, sources)| sources.iter().any(|name| name.contains(layer)));
            let n_launches = launches.count();
            assert!(
                (1..=9).contains(&n_launches),
                "{layer} of case {case} takes {n_launches} launches: {kernels:#?}"
            );
        }
    }
    insta::assert_snapshot!(listing("bert_encoder"));
}

/// What exporters decompose into several nodes is one kernel, or a part of one.
#[test]
fn softmax_layer_norm_and_gelu_are_whole() {
    let kernels = kernels(&cover("bert_encoder", 0));
    for part in [
        "layer.0/attention/self/Softmax",
        "layer.0/output/LayerNorm",
        "layer.0/intermediate/intermediate_act_fn",
    ] {
        let n_kernels = kernels
            .iter()
            .filter(|(_, sources)| sources.iter().any(|name| name.contains(part)))
            .count();
        assert_eq!(n_kernels, 1, "{part}");
    }
}

#[test]
fn dit_transformer_kernels() {
    insta::assert_snapshot!(listing("dit_transformer"));
}
