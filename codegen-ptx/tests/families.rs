//! The PTX of kernels of each family. What is recorded here is assembled for every target by
//! `assembler.rs`, so a snapshot says both that nothing changed and that it was ever right.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::regions;
use eggine_codegen_ptx::{Target, emit, lower};

fn ptx(region: &str, schedule: &str) -> String {
    let region = regions().into_iter().find(|r| r.graph.name == region).unwrap();
    let lowered = lower(&region, &schedule.parse().unwrap()).unwrap();
    emit(&lowered.kernel, Target::Sm80).unwrap()
}

macro_rules! snapshots {
    ($($test:ident: $schedule:literal [$($region:literal),+];)+) => {
        $(#[test]
        fn $test() {
            for region in [$($region),+] {
                insta::assert_snapshot!(format!("{}__{region}", stringify!($test)), ptx(region, $schedule));
            }
        })+
    };
}

snapshots! {
    pointwise: "pointwise(threads=128,elems=4,vector=4)"
        ["relu", "add_broadcast", "gelu", "transpose", "pad_of_map", "concat", "gather", "maxpool", "depthwise", "half_add"];
    pointwise_scalar: "pointwise(threads=128,elems=1,vector=1)"
        ["bool_output", "integers", "slice_steps", "resize_linear", "pad_reflect"];
    row_warp: "row(threads_per_row=32,rows_per_block=4,vector=4,keep=32)"
        ["softmax", "masked_softmax", "layernorm", "rms", "gemv"];
    row_part: "row(threads_per_row=8,rows_per_block=16,vector=1,keep=32)"
        ["instance_norm", "mean_then_softmax", "argmin_last", "reduce_first_axis"];
    row_block: "row(threads_per_row=128,rows_per_block=1,vector=4,keep=8)" ["softmax_long"];
    row_arg: "row(threads_per_row=64,rows_per_block=2,vector=1,keep=0)" ["argmax"];
    contraction: "contraction(m=32,n=32,k=8,tm=4,tn=4,stages=1,pack_lhs=1,pack_rhs=1,swap=0,vector=4)"
        ["matmul", "matmul_aligned", "conv3x3", "conv_groups", "conv_sum", "attention_scores", "conv_transpose1d"];
    contraction_staged: "contraction(m=32,n=32,k=8,tm=4,tn=4,stages=2,pack_lhs=1,pack_rhs=1,swap=0,vector=4)"
        ["matmul_aligned", "conv3x3"];
    contraction_swapped: "contraction(m=32,n=32,k=8,tm=4,tn=4,stages=1,pack_lhs=1,pack_rhs=1,swap=1,vector=4)"
        ["matmul_transposed_out", "attention_values"];
    contraction_large: "contraction(m=128,n=64,k=16,tm=8,tn=8,stages=2,pack_lhs=1,pack_rhs=1,swap=0,vector=4)" ["conv_residual"];
    contraction_half: "contraction(m=32,n=32,k=8,tm=4,tn=4,stages=1,pack_lhs=0,pack_rhs=0,swap=0,vector=4)" ["half"];
}
