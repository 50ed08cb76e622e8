//! Which kernel a region gets first: the family and its schedule, by the static model.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::regions;
use eggine_codegen_ptx::{CPU_DEVICE, H200, first_choices, predict};
use eggine_ir::Region;

#[test]
fn first_choices_of_the_table() {
    let line = |region: &Region| {
        format!("{:26} {}\n", region.graph.name, first_choices(region, &CPU_DEVICE)[0].1)
    };
    insta::assert_snapshot!(regions().iter().map(line).collect::<String>());
}

fn region(text: &str) -> Region {
    Region::contiguous(eggine_ir::graph::parse(text).unwrap())
}

fn cost_ns(text: &str) -> f64 {
    first_choices(&region(text), &CPU_DEVICE)[0].2.ns
}

#[test]
fn a_dear_prologue_is_not_worth_a_launch() {
    // An erf per operand element and column of tiles costs more than one pass and a launch.
    let gelu = "
        v2 = erf v0
        v3 = mul v0, v2";
    let alone =
        cost_ns(&format!("graph @g(v0: f32[128,3072], v1: f32[1]) {{{gelu}\n return v3 }}"));
    let matmul = cost_ns(
        "graph @g(v0: f32[128,3072], v1: weight f32[3072,768]) { v2 = matmul v0, v1\n return v2 }",
    );
    let both = cost_ns(&format!(
        "graph @g(v0: f32[128,3072], v1: weight f32[3072,768]) {{{gelu}\n v4 = matmul v3, v1\n return v4 }}"
    ));
    assert!(both > alone + matmul, "{both} > {alone} + {matmul}");
}

#[test]
fn a_cheap_epilogue_is_worth_fusing() {
    let matmul = cost_ns(
        "graph @g(v0: f32[128,768], v1: weight f32[768,768]) { v2 = matmul v0, v1\n return v2 }",
    );
    let relu = cost_ns("graph @g(v0: f32[128,768]) { v1 = relu v0\n return v1 }");
    let both = cost_ns(
        "graph @g(v0: f32[128,768], v1: weight f32[768,768]) { v2 = matmul v0, v1\n v3 = relu v2\n return v3 }",
    );
    assert!(both < matmul + relu, "{both} < {matmul} + {relu}");
}

#[test]
fn more_work_takes_longer_on_every_chip() {
    let conv = |c: usize| {
        region(&format!(
            "graph @g(v0: f32[1,{c},28,28], v1: weight f32[{c},{c},3,3]) {{
                v2 = conv v0, v1 {{strides=[1,1], before=[1,1], after=[1,1], dilations=[1,1], groups=1}}
                return v2
            }}"
        ))
    };
    let (small, large) = (conv(64), conv(256));
    for chip in [CPU_DEVICE, H200] {
        let ns = |region: &Region| {
            let (_, schedule, _) = first_choices(region, &chip)[0];
            predict(region, &schedule, &chip).unwrap().ns
        };
        assert!(
            ns(&large) > 2.0 * ns(&small) || chip.name() == "h200" && ns(&large) > ns(&small),
            "{}",
            chip.name()
        );
    }
}

#[test]
fn a_sum_inside_of_a_sum_is_paid_for_in_every_iteration() {
    // A row of a perceptron with three layers in one kernel: each of the 96 columns sums over 384 hidden
    // elements, each of which sums over 96, each of which sums over 96.
    let whole = cost_ns(
        "graph @g(v0: f32[3,96], v1: weight f32[96,96], v2: weight f32[96,384], v3: weight f32[384,96]) {
            v4 = matmul v0, v1
            v5 = matmul v4, v2
            v6 = tanh v5
            v7 = matmul v6, v3
            v8 = reduce_sum v7 {axes=[1]}
            v9 = sub v7, v8
            return v9
        }",
    );
    let n_products = 3.0 * 96.0 * 384.0 * 96.0 * 96.0;
    // Nothing computes a hundred scalar products in a nanosecond here.
    assert!(whole > n_products / 100.0, "{whole} ns for {n_products} products");
}
