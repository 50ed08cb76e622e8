//! Every region of `regions/all.gir`, lowered by each family that claims it under its first schedule
//! and all neighbours, computes what the oracle computes: the kernel is run by the kernel IR's evaluator.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::{compare, inputs_of, regions, run_kir};
use eggine_codegen_ptx::{Family, classify, lower, neighbours, schedule_of};

fn agrees(names: impl Fn(&str) -> bool, family: Family, with_neighbours: bool) -> usize {
    let mut n_checked = 0;
    let mut failures = Vec::new();
    for region in regions().into_iter().filter(|region| names(&region.graph.name)) {
        if !classify(&region).contains(&family) {
            continue;
        }
        let first = schedule_of(&region, family).unwrap();
        let mut schedules = vec![first];
        if with_neighbours {
            schedules.extend(neighbours(&region, &first).into_iter().map(|(_, schedule)| schedule));
        }
        let inputs = inputs_of(&region);
        let want = region.oracle(&inputs);
        for schedule in schedules {
            let name = &region.graph.name;
            let lowered = match lower(&region, &schedule) {
                Ok(lowered) => lowered,
                Err(err) => {
                    failures.push(format!("{name} {schedule}: {err}"));
                    continue;
                }
            };
            match run_kir(&lowered, &region, &inputs) {
                Err(err) => failures.push(format!("{name} {schedule}: {err}")),
                Ok(got) => {
                    if let Some(difference) = compare(&want, &got) {
                        failures.push(format!("{name} {schedule}: {difference}"));
                    }
                }
            }
            n_checked += 1;
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {n_checked} fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
    n_checked
}

#[test]
fn pointwise_computes_every_region() {
    assert!(agrees(|_| true, Family::Pointwise, false) >= regions().len() - 2);
}

#[test]
fn pointwise_moves_keep_the_result() {
    let some = [
        "relu",
        "gelu",
        "concat",
        "maxpool",
        "softmax",
        "pad_of_map",
        "two_outputs",
        "resize_linear",
    ];
    assert!(agrees(|name| some.contains(&name), Family::Pointwise, true) > some.len());
}

#[test]
fn rows_compute_every_region_they_claim() {
    assert!(agrees(|_| true, Family::Row, true) >= 30);
}

#[test]
fn contractions_compute_every_region_they_claim() {
    assert!(agrees(|_| true, Family::Contraction, false) >= 18);
}

#[test]
fn contraction_moves_keep_the_result() {
    let some = [
        "matmul",
        "conv3x3",
        "attention_scores",
        "conv_sum",
        "conv_transpose1d",
        "matmul_transposed_out",
        "conv_groups",
    ];
    assert!(agrees(|name| some.contains(&name), Family::Contraction, true) > 3 * some.len());
}

#[test]
fn a_wrong_kernel_is_told() {
    // The harness can fail: the kernel of one region is held against the oracle of another.
    let all = regions();
    let (relu, transpose) = (
        all.iter().find(|r| r.graph.name == "concat").unwrap(),
        all.iter().find(|r| r.graph.name == "concat_last").unwrap(),
    );
    let inputs = inputs_of(relu);
    let schedule = schedule_of(relu, Family::Pointwise).unwrap();
    let got = run_kir(&lower(relu, &schedule).unwrap(), relu, &inputs).unwrap();
    assert!(compare(&transpose.oracle(&inputs_of(transpose)), &got).is_some());
    let mut wrong = relu.oracle(&inputs);
    if let eggine_ir::graph::eval::Data::Float(data) = &mut wrong[0].data {
        data[3] += 0.01;
    }
    assert!(compare(&wrong, &got).is_some());
}

/// Threads past the end of a result compute elements that nobody stores; a constant of 16 elements was
/// read at its 17th there.
#[test]
fn constants_are_not_read_past_their_ends() {
    let text = "graph @g(v0: f32[16,32], v1: weight f32[32,12]) {
    v2 = matmul v0, v1
    v3 = const f32[12] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    v4 = add v2, v3
    return v4
}
";
    let region = eggine_ir::Region::contiguous(eggine_ir::graph::parse(text).unwrap());
    let inputs = inputs_of(&region);
    let want = region.oracle(&inputs);
    let mut n_checked = 0;
    for family in classify(&region) {
        let mut schedules = vec![schedule_of(&region, family).unwrap()];
        for _ in 0..3 {
            let next = schedules.iter().flat_map(|it| neighbours(&region, it));
            let next: Vec<_> = next.map(|(_, schedule)| schedule).collect();
            schedules.extend(next);
            schedules.sort_unstable();
            schedules.dedup();
            schedules.truncate(400);
        }
        for (nth, schedule) in schedules.iter().enumerate() {
            let lowered = lower(&region, schedule).unwrap();
            n_checked += 1;
            if nth % 16 == 0 {
                let got = run_kir(&lowered, &region, &inputs).unwrap();
                assert_eq!(compare(&want, &got), None, "{schedule}");
            }
        }
    }
    assert!(n_checked > 300, "{n_checked} schedules");
}
