//! Derivations: every kernel's rules are named, and the proof is checked by replay.

use std::sync::Arc;

use eggine_rewrite::{Action, Options, ReplayError, Soundness, TensorDef, optimise};

use crate::models;
use crate::roofline::Roofline;

#[test]
fn covers_replay() {
    for graph in [
        models::mlp(),
        models::bert(2, 6, 8, 2),
        models::resnet([1, 1, 1, 1], 32, 4),
        models::squeezenet(64, 10),
    ] {
        for soundness in [Soundness::Exact, Soundness::Real] {
            let options = Options { k: 4, soundness, ..Options::default() };
            for cover in optimise(&graph, &Roofline::default(), &options).unwrap() {
                assert_eq!(cover.derivation.replay(), Ok(()), "{}", graph.name);
            }
        }
    }
}

#[test]
fn rules_of_a_kernel_are_named() {
    let cover =
        optimise(&models::mlp(), &Roofline::default(), &Options::default()).unwrap().remove(0);
    let (tensor, _) = cover.kernels().next().unwrap();
    assert!(
        cover.derivation.rules(tensor).contains(&"load-store"),
        "{:?}",
        cover.derivation.rules(tensor)
    );
}

/// The check itself must be able to say no.
#[test]
fn a_forged_proof_is_rejected() {
    let cover =
        optimise(&models::mlp(), &Roofline::default(), &Options::default()).unwrap().remove(0);
    let proof = Arc::clone(&cover.derivation.segments[0]);
    assert_eq!(proof.replay(), Ok(()));

    // Without its steps the kernels do not follow.
    let mut without = (*proof).clone();
    without.steps.clear();
    assert!(matches!(without.replay(), Err(ReplayError::Claim { .. })), "{:?}", without.replay());

    // A step at another class does not apply.
    let mut moved = (*proof).clone();
    let class = |step: &eggine_rewrite::Step| match &step.action {
        Action::Equate { at, .. } => at.class,
        Action::Build { .. } => panic!("the first steps are equalities"),
    };
    let other = class(&moved.steps[1]);
    if let Action::Equate { at, .. } = &mut moved.steps[0].action {
        at.class = other;
    }
    assert!(
        matches!(moved.replay(), Err(ReplayError::Step { step: 0, .. })),
        "{:?}",
        moved.replay()
    );

    // A claim of something else is not believed.
    let mut swapped = (*proof).clone();
    let other = swapped.claims[1].region.clone();
    swapped.claims[0].region = other;
    assert!(swapped.replay().is_err());
}

#[test]
fn every_operator_has_a_kernel() {
    for graph in [models::bert(1, 6, 8, 2), models::squeezenet(64, 10)] {
        let cover = optimise(&graph, &Roofline::default(), &Options::default()).unwrap().remove(0);
        let all: Vec<&String> = (cover.tensors.values())
            .flat_map(|def| match def {
                TensorDef::Kernel { sources, .. } => sources.as_slice(),
                _ => &[],
            })
            .collect();
        for source in graph.nodes.values().flat_map(|node| &node.sources) {
            assert!(all.contains(&source), "{source} in no kernel of {}\n{cover}", graph.name);
        }
        for (_, def) in cover.tensors.iter() {
            if let TensorDef::Kernel { sources, .. } = def {
                assert!(!sources.is_empty() && sources.is_sorted());
            }
        }
    }
}
