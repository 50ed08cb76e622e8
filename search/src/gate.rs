//! The gate: what must hold of a cover before an engine is made of it.
//!
//! Kernels are verified against their regions, and regions come from rewriting: a false rule gives a
//! false region, whose kernel is then right. So every segment of the model is computed twice with the
//! reference evaluator, as imported and as covered, on random inputs, and must give the same within the
//! error that kernels of both may make together. Both sides are graphs with the same inputs, so they are
//! made small first, all extents that can be replaced at once: rules do not depend on extents, and an
//! engine of a large model costs no more to check than one of a small model. See ADR 6.

use std::collections::BTreeSet;

use eggine_ir::{Graph, Region};
use eggine_rewrite::{Cover, SegmentProof};
use eggine_runtime::engine::hash_text;
use eggine_runtime::verify::bound::{self, Reference};
use eggine_runtime::verify::{Family, generate_inputs};
use eggine_runtime::{EngineParts, Verification};
use rayon::prelude::*;

use crate::extents::{shrunk, work};

/// Why a cover is not made into an engine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The cover does not compute what the model says.
    #[error(
        "the rewritten model differs from the model: element {index} of output {output} of a segment is {got:e} instead of {want:e} ± {bound:e} on {family} inputs; rules applied there: {rules}; segment:\n{segment}"
    )]
    Differs {
        /// Which output of the segment.
        output: usize,
        /// Which element.
        index: usize,
        /// By the cover.
        got: f64,
        /// By the model.
        want: f64,
        /// How far they may be apart.
        bound: f64,
        /// On which inputs.
        family: Family,
        /// Names of the rules that were applied in the segment.
        rules: String,
        /// The segment, small.
        segment: String,
    },
    /// The cover's outputs are not of the model's types.
    #[error(
        "the rewritten model has other types than the model; rules applied there: {rules}; segment:\n{segment}"
    )]
    Types {
        /// Names of the rules that were applied in the segment.
        rules: String,
        /// The segment.
        segment: String,
    },
    /// A proof does not hold.
    #[error("the derivation of the rewritten model cannot be repeated: {0}")]
    Replay(#[from] eggine_rewrite::ReplayError),
    /// A kernel's text is not the one that was verified.
    #[error("kernel `{entry}`: its text was not verified")]
    Unverified {
        /// Its name.
        entry: String,
    },
}

/// What the gate looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateReport {
    /// Segments that were computed both ways.
    pub n_segments: usize,
    /// Of these, segments whose inputs could not be made small and that are too large to be computed at
    /// their own extents: their derivation was repeated instead.
    pub n_replayed: usize,
}

/// Covers that have passed.
#[derive(Debug, Default)]
pub struct Gate {
    passed: BTreeSet<String>,
}

/// Operations up to which a segment is computed: about a second of the reference evaluator.
const MOST_WORK: f64 = 1e9;

impl Gate {
    /// Checks every segment of a cover that was not checked before.
    ///
    /// # Errors
    ///
    /// The first segment that differs.
    pub fn check(&mut self, cover: &Cover, seed: u64) -> Result<GateReport, GateError> {
        let mut fresh: Vec<(&SegmentProof, String)> = Vec::new();
        for proof in &cover.derivation.segments {
            // Hashes of the texts with constants: equal keys are equal computations.
            let key = |graph: &Graph| Region::contiguous(graph.clone()).hash_hex();
            let key = format!("{} {}", key(&proof.graph), key(&proof.cover));
            if !self.passed.contains(&key) && !fresh.iter().any(|(_, other)| *other == key) {
                fresh.push((proof, key));
            }
        }
        let checked: Vec<Result<bool, GateError>> =
            fresh.par_iter().map(|(proof, _)| check_segment(proof, seed)).collect();
        let mut report = GateReport { n_segments: fresh.len(), n_replayed: 0 };
        for checked in checked {
            report.n_replayed += usize::from(!checked?);
        }
        self.passed.extend(fresh.into_iter().map(|(_, key)| key));
        Ok(report)
    }
}

/// Computes a segment both ways; `false` if it is too large, and its derivation was repeated instead.
fn check_segment(proof: &SegmentProof, seed: u64) -> Result<bool, GateError> {
    let rules = || {
        let names: BTreeSet<&str> = proof.steps.iter().map(|step| step.name()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    let types = |graph: &Graph| -> Vec<String> {
        graph.outputs.iter().map(|&output| graph.ty(output).to_string()).collect()
    };
    if types(&proof.graph) != types(&proof.cover) {
        return Err(GateError::Types { rules: rules(), segment: proof.graph.to_string() });
    }
    let mut small = shrunk(&[&proof.graph, &proof.cover]);
    let (Some(cover), Some(model)) = (small.pop(), small.pop()) else {
        unreachable!("two graphs stay two")
    };
    if work(&model) + work(&cover) > MOST_WORK {
        proof.replay()?;
        return Ok(false);
    }
    for family in [Family::Normal, Family::Ramp] {
        let inputs = generate_inputs(&model, family, seed ^ 0x6a7e);
        let want = bound::evaluate(&model, &inputs, family);
        let got = bound::evaluate(&cover, &inputs, family);
        for (output, (got, want)) in got.iter().zip(&want).enumerate() {
            if let Some(index) = first_difference(got, want) {
                return Err(GateError::Differs {
                    output,
                    index,
                    got: got.values[index],
                    want: want.values[index],
                    bound: got.bound(index) + want.bound(index),
                    family,
                    rules: rules(),
                    segment: model.to_string(),
                });
            }
        }
    }
    Ok(true)
}

/// The first element in which two references contradict each other.
fn first_difference(got: &Reference, want: &Reference) -> Option<usize> {
    if got.ints.is_some() != want.ints.is_some() {
        return Some(0);
    }
    (0..want.values.len()).find(|&index| {
        let bound = got.bound(index) + want.bound(index);
        let (a, b) = (got.values[index], want.values[index]);
        let same_ints = match (&got.ints, &want.ints) {
            (Some(got), Some(want)) => got[index] == want[index],
            _ => a == b || a.is_nan() && b.is_nan(),
        };
        // A bound of infinity means that anything goes, a NaN that only a NaN does.
        let within = (a - b).abs() <= bound;
        !same_ints && bound != f64::INFINITY && !within
    })
}

/// Checks that what will be shipped is what was verified: the text of every kernel has the hash of a
/// text that `is_verified`, and the engine's own record of it says so.
///
/// # Errors
///
/// [`GateError::Unverified`], naming the first kernel.
pub fn check_texts(
    parts: &EngineParts,
    is_verified: &dyn Fn(&str) -> bool,
) -> Result<(), GateError> {
    for (index, text) in parts.ptx.iter().enumerate() {
        let hash = hash_text(text);
        let recorded = parts.manifest.kernels.get(index).is_some_and(|it| it.ptx_hash == hash);
        let accepted = parts.report.get(index).is_some_and(Verification::accepted);
        if !recorded || !accepted || !is_verified(&hash) {
            let entry = parts.plan.kernels.get(index).map_or("?", |kernel| &kernel.entry);
            return Err(GateError::Unverified { entry: entry.to_owned() });
        }
    }
    Ok(())
}
