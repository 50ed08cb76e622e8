//! Every operator on small numbers worked by hand, with the traps: NaN, signed zeros, division by
//! zero, saturation, negative steps, ties, asymmetric padding.
//!
//! A case is the body of a graph; the last value is compared as text, so zeros' signs count.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::sync::Mutex;

use eggine_ir::graph::{NodeKind, Op, Rounding, eval, parse, verify};

/// Evaluates `body` (lines that define `v0`, `v1`, …) and compares the last value.
#[track_caller]
fn check(body: &str, expected: &str) {
    assert_eq!(result_of(body), expected, "of\n{body}");
}

fn result_of(body: &str) -> String {
    let lines: Vec<&str> = body.split('|').map(str::trim).collect();
    let mut text = "graph @case() {\n".to_owned();
    for (i, line) in lines.iter().enumerate() {
        text += &format!("v{i} = {line}\n");
    }
    text += &format!("return v{}\n}}\n", lines.len() - 1);
    let graph = parse(&text).unwrap_or_else(|err| panic!("{err} in\n{text}"));
    verify(&graph).unwrap_or_else(|errors| panic!("{errors:?} in\n{text}"));
    for node in graph.nodes.values() {
        if let NodeKind::Apply(op, ..) = node.kind {
            SEEN.lock().unwrap().insert(op);
        }
    }
    eval(&graph, &[], Rounding::PerOp)[0].to_tensor().to_string()
}

static SEEN: Mutex<BTreeSet<Op>> = Mutex::new(BTreeSet::new());

/// All groups in one test, so that it can be seen that no operator is missing.
#[test]
fn every_operator_has_known_values() {
    elementwise();
    integers();
    comparisons();
    casts();
    broadcasting();
    movement();
    reductions();
    windows();
    products();
    convolutions();
    transposed_convolutions();
    resizes();
    let all: BTreeSet<Op> = Op::ALL.iter().copied().collect();
    assert_eq!(*SEEN.lock().unwrap(), all);
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn a_wrong_value_fails() {
    check("const f32[2] [1.0, -2.0] | relu v0", "f32[2] [1.0, -0.0]");
}

fn elementwise() {
    let x = "const f32[6] [1.5, -2.5, 0.0, -0.0, inf, nan]";
    check(&format!("{x} | neg v0"), "f32[6] [-1.5, 2.5, -0.0, 0.0, -inf, 0xffc00000]");
    check(&format!("{x} | abs v0"), "f32[6] [1.5, 2.5, 0.0, 0.0, inf, nan]");
    check(&format!("{x} | sign v0"), "f32[6] [1.0, -1.0, 0.0, -0.0, 1.0, nan]");
    check(&format!("{x} | relu v0"), "f32[6] [1.5, 0.0, 0.0, -0.0, inf, nan]");
    check(&format!("{x} | floor v0"), "f32[6] [1.0, -3.0, 0.0, -0.0, inf, nan]");
    check(&format!("{x} | ceil v0"), "f32[6] [2.0, -2.0, 0.0, -0.0, inf, nan]");
    check(&format!("{x} | isnan v0"), "bool[6] [false, false, false, false, false, true]");
    check("const f32[4] [0.5, 1.5, 2.5, -0.5] | round v0", "f32[4] [0.0, 2.0, 2.0, -0.0]");
    check("const f32[4] [0.0, 1.0, -inf, 1000.0] | exp v0", "f32[4] [1.0, 2.7182817, 0.0, inf]");
    check("const f32[3] [1.0, 0.0, inf] | log v0", "f32[3] [0.0, -inf, inf]");
    check("const f32[1] [-1.0] | log v0 | isnan v1", "bool[1] [true]");
    check("const f32[4] [4.0, 2.0, 0.0, -0.0] | sqrt v0", "f32[4] [2.0, 1.4142135, 0.0, -0.0]");
    check("const f32[3] [4.0, 0.0, inf] | rsqrt v0", "f32[3] [0.5, inf, 0.0]");
    check("const f32[4] [4.0, 0.0, -0.0, 3.0] | recip v0", "f32[4] [0.25, inf, -inf, 0.33333334]");
    // Abramowitz and Stegun, table 7.1, and erf(3.5) = 0.999999256901628.
    check(
        "const f64[5] [0.5, 1.0, -2.0, 3.5, inf] | erf v0 | const f64[] 1e12 | mul v1, v2 | round v3",
        "f64[5] [520499877813.0, 842700792950.0, -995322265019.0, 999999256902.0, 1000000000000.0]",
    );
    check("const f64[2] [-0.0, 1e-30] | erf v0", "f64[2] [-0.0, 1.1283791670955127e-30]");
    check("const f32[4] [0.0, 1.0, -inf, 20.0] | tanh v0", "f32[4] [0.0, 0.7615942, -1.0, 1.0]");
    check(
        "const f32[4] [0.0, 1.0, -inf, -200.0] | sigmoid v0",
        "f32[4] [0.5, 0.7310586, 0.0, 0.0]",
    );
    check("const f32[2] [0.0, 0.5] | sin v0", "f32[2] [0.0, 0.47942555]");
    check("const f32[2] [0.0, 0.5] | cos v0", "f32[2] [1.0, 0.87758255]");

    let xy = "const f32[4] [7.5, -7.5, inf, 0.0] | const f32[4] [2.0, 2.0, inf, 0.0]";
    check(&format!("{xy} | add v0, v1"), "f32[4] [9.5, -5.5, inf, 0.0]");
    check(&format!("{xy} | sub v0, v1 | isnan v2"), "bool[4] [false, false, true, false]");
    check(&format!("{xy} | mul v0, v1"), "f32[4] [15.0, -15.0, inf, 0.0]");
    check(&format!("{xy} | div v0, v1 | isnan v2"), "bool[4] [false, false, true, true]");
    check("const f32[2] [1.0, -1.0] | const f32[] 0.0 | div v0, v1", "f32[2] [inf, -inf]");
    // 0.1 + 0.2 and 1 / 3 round as f32 arithmetic does.
    check("const f32[] 0.1 | const f32[] 0.2 | add v0, v1", "f32[] 0.3");
    check("const f32[] 16777216.0 | const f32[] 1.0 | add v0, v1", "f32[] 16777216.0");
    check("const f16[] 65504.0 | const f16[] 32.0 | add v0, v1", "f16[] inf");

    let signs = "const f32[4] [5.5, -5.5, 5.5, -5.5] | const f32[4] [2.0, 2.0, -2.0, -2.0]";
    check(&format!("{signs} | mod v0, v1"), "f32[4] [1.5, 0.5, -0.5, -1.5]");
    check(&format!("{signs} | fmod v0, v1"), "f32[4] [1.5, -1.5, 1.5, -1.5]");
    check(
        "const f32[4] [2.0, 2.0, -2.0, 0.0] | const f32[4] [3.0, -1.0, 3.0, 0.0] | pow v0, v1",
        "f32[4] [8.0, 0.5, -8.0, 1.0]",
    );
    check("const f32[2] [2.0, 3.0] | const i64[] 2 | pow v0, v1", "f32[2] [4.0, 9.0]");

    let nans = "const f32[5] [1.0, nan, 1.0, -0.0, 0.0] | const f32[5] [2.0, 1.0, nan, 0.0, -0.0]";
    check(&format!("{nans} | min v0, v1"), "f32[5] [1.0, nan, nan, -0.0, -0.0]");
    check(&format!("{nans} | max v0, v1"), "f32[5] [2.0, nan, nan, 0.0, 0.0]");
}

fn integers() {
    let xy = "const i32[6] [7, -7, 7, -7, 5, -2147483648] | const i32[6] [2, 2, -2, -2, 0, -1]";
    check(&format!("{xy} | div v0, v1"), "i32[6] [3, -3, -3, 3, 0, -2147483648]");
    check(&format!("{xy} | mod v0, v1"), "i32[6] [1, 1, -1, -1, 0, 0]");
    check(&format!("{xy} | fmod v0, v1"), "i32[6] [1, -1, 1, -1, 0, 0]");
    check(&format!("{xy} | min v0, v1"), "i32[6] [2, -7, -2, -7, 0, -2147483648]");
    check(&format!("{xy} | max v0, v1"), "i32[6] [7, 2, 7, -2, 5, -1]");
    check("const i8[3] [127, -128, 5] | const i8[] 1 | add v0, v1", "i8[3] [-128, -127, 6]");
    check("const u8[2] [0, 5] | const u8[] 1 | sub v0, v1", "u8[2] [255, 4]");
    check("const i8[2] [100, -128] | const i8[2] [2, -1] | mul v0, v1", "i8[2] [-56, -128]");
    check("const i8[3] [-128, 3, 0] | neg v0", "i8[3] [-128, -3, 0]");
    check("const i8[3] [-128, -3, 0] | abs v0", "i8[3] [-128, 3, 0]");
    check("const i8[3] [-128, 3, 0] | sign v0", "i8[3] [-1, 1, 0]");
    check("const i8[3] [-128, 3, 0] | relu v0", "i8[3] [0, 3, 0]");
    check(
        "const i64[6] [2, -2, 1, -1, 0, 2] | const i64[6] [10, 3, -5, -3, -1, -1] | pow v0, v1",
        "i64[6] [1024, -8, 1, -1, 0, 0]",
    );
    check("const i64[2] [2, 3] | const f32[2] [0.5, 2.0] | pow v0, v1", "i64[2] [1, 9]");
    check("const u8[2] [12, 10] | const u8[2] [10, 6] | and v0, v1", "u8[2] [8, 2]");
    check("const u8[2] [12, 10] | const u8[2] [10, 6] | or v0, v1", "u8[2] splat 14");
    check("const u8[2] [12, 10] | const u8[2] [10, 6] | xor v0, v1", "u8[2] [6, 12]");
    let bools =
        "const bool[4] [true, true, false, false] | const bool[4] [true, false, true, false]";
    check(&format!("{bools} | and v0, v1"), "bool[4] [true, false, false, false]");
    check(&format!("{bools} | or v0, v1"), "bool[4] [true, true, true, false]");
    check(&format!("{bools} | xor v0, v1"), "bool[4] [false, true, true, false]");
    check("const bool[2] [true, false] | not v0", "bool[2] [false, true]");
    // Above 2⁶³ only unsigned arithmetic is right.
    let large = "const u64[2] [18446744073709551615, 3] | const u64[] 2";
    check(&format!("{large} | div v0, v1"), "u64[2] [9223372036854775807, 1]");
    check(&format!("{large} | max v0, v1"), "u64[2] [18446744073709551615, 3]");
    check(&format!("{large} | lt v0, v1"), "bool[2] splat false");
    check(&format!("{large} | add v0, v1"), "u64[2] [1, 5]");
    check(
        "const u64[2] [18446744073709551615, 3] | reduce_max v0 {axes=[0]}",
        "u64[1] [18446744073709551615]",
    );
    check("const u64[2] [3, 18446744073709551615] | argmax v0 {axis=0, last=0}", "i64[1] [1]");
}

fn comparisons() {
    let xy = "const f32[4] [1.0, nan, 0.0, 2.0] | const f32[4] [2.0, nan, -0.0, 1.0]";
    check(&format!("{xy} | eq v0, v1"), "bool[4] [false, false, true, false]");
    check(&format!("{xy} | lt v0, v1"), "bool[4] [true, false, false, false]");
    check(&format!("{xy} | le v0, v1"), "bool[4] [true, false, true, false]");
    check("const bool[2] [true, false] | const bool[] true | eq v0, v1", "bool[2] [true, false]");
    check(
        "const bool[2,1] [true, false] | const f32[3] [1.0, nan, 3.0] | const f32[] -1.0 | select v0, v1, v2",
        "f32[2,3] [1.0, nan, 3.0, -1.0, -1.0, -1.0]",
    );
    check(
        "const bool[2] [true, false] | const i8[] 1 | const i8[] 2 | select v0, v1, v2",
        "i8[2] [1, 2]",
    );
}

fn casts() {
    let x = "const f32[7] [2.9, -2.9, 300.0, -300.0, nan, inf, -inf]";
    check(&format!("{x} | cast v0 {{to=i8}}"), "i8[7] [2, -2, 127, -128, 0, 127, -128]");
    check(&format!("{x} | cast v0 {{to=u8}}"), "u8[7] [2, 0, 255, 0, 0, 255, 0]");
    check(
        &format!("{x} | cast v0 {{to=i64}}"),
        "i64[7] [2, -2, 300, -300, 0, 9223372036854775807, -9223372036854775808]",
    );
    check(
        "const f32[4] [0.0, -0.0, 0.1, nan] | cast v0 {to=bool}",
        "bool[4] [false, false, true, true]",
    );
    check("const i32[3] [300, -1, 256] | cast v0 {to=u8}", "u8[3] [44, 255, 0]");
    check("const i32[3] [300, -1, 7] | cast v0 {to=i4}", "i4[3] [-4, -1, 7]");
    check("const i32[3] [2, -1, 0] | cast v0 {to=bool}", "bool[3] [true, true, false]");
    check("const bool[2] [true, false] | cast v0 {to=f32}", "f32[2] [1.0, 0.0]");
    check(
        "const f32[2] [0.1, 65520.0] | cast v0 {to=f16} | cast v1 {to=f32}",
        "f32[2] [0.099975586, inf]",
    );
    check("const i64[1] [16777217] | cast v0 {to=f32}", "f32[1] [16777216.0]");
    check("const u64[1] [18446744073709551615] | cast v0 {to=f32}", "f32[1] [1.8446744e19]");
    check("const f32[2] [1.0, 449.0] | cast v0 {to=f8e4m3}", "f8e4m3[2] [1.0, 448.0]");
    // A cast rounds even where nothing else does.
    let graph = parse("graph @g() {\n v0 = const f32[] 0.1\n v1 = cast v0 {to=f16}\n return v1\n}")
        .unwrap();
    assert_eq!(eval(&graph, &[], Rounding::None)[0].to_f64(), [0.0999755859375]);
}

fn broadcasting() {
    check(
        "const f32[2,1] [10.0, 20.0] | const f32[3] [1.0, 2.0, 3.0] | add v0, v1",
        "f32[2,3] [11.0, 12.0, 13.0, 21.0, 22.0, 23.0]",
    );
    check(
        "const f32[2,1,2] [1.0, 2.0, 3.0, 4.0] | const f32[2,1] [10.0, 20.0] | sub v0, v1",
        "f32[2,2,2] [-9.0, -8.0, -19.0, -18.0, -7.0, -6.0, -17.0, -16.0]",
    );
    check("const f32[0] [] | const f32[1] [1.0] | add v0, v1", "f32[0] []");
    check("const f32[1,1] [2.0] | const f32[] 3.0 | mul v0, v1", "f32[1,1] [6.0]");
}

fn movement() {
    let x = "iota {shape=[6], axis=0, dtype=i32} | reshape v0 {shape=[2,3]}";
    check(x, "i32[2,3] [0, 1, 2, 3, 4, 5]");
    check("iota {shape=[2,3], axis=0, dtype=f32}", "f32[2,3] [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]");
    check("iota {shape=[2,3], axis=1, dtype=u4}", "u4[2,3] [0, 1, 2, 0, 1, 2]");
    check(&format!("{x} | transpose v1 {{perm=[1,0]}}"), "i32[3,2] [0, 3, 1, 4, 2, 5]");
    check(
        "iota {shape=[24], axis=0, dtype=i8} | reshape v0 {shape=[2,3,4]} | transpose v1 {perm=[2,0,1]} \
         | slice v2 {starts=[1,0,0], extents=[2,2,3], steps=[1,1,1]}",
        "i8[2,2,3] [1, 5, 9, 13, 17, 21, 2, 6, 10, 14, 18, 22]",
    );
    check("const i8[2,1] [1, 2] | expand v0 {shape=[2,3]}", "i8[2,3] [1, 1, 1, 2, 2, 2]");
    check("const i8[1,2] [1, 2] | expand v0 {shape=[2,2]}", "i8[2,2] [1, 2, 1, 2]");
    check(
        &format!("{x} | slice v1 {{starts=[1,2], extents=[2,2], steps=[-1,-2]}}"),
        "i32[2,2] [5, 3, 2, 0]",
    );
    check(&format!("{x} | slice v1 {{starts=[0,3], extents=[2,0], steps=[1,1]}}"), "i32[2,0] []");
    check("const i8[] 7 | slice v0 {starts=[], extents=[], steps=[]}", "i8[] 7");

    let line = "const i8[3] [1, 2, 3]";
    let pad = |mode| format!("{line} | pad v0 {{before=[2], after=[2], mode={mode}, value=9.0}}");
    check(&pad("constant"), "i8[7] [9, 9, 1, 2, 3, 9, 9]");
    check(&pad("edge"), "i8[7] [1, 1, 1, 2, 3, 3, 3]");
    check(&pad("reflect"), "i8[7] [3, 2, 1, 2, 3, 2, 1]");
    check(&pad("wrap"), "i8[7] [2, 3, 1, 2, 3, 1, 2]");
    check(
        "const i8[2] [1, 2] | pad v0 {before=[3], after=[0], mode=reflect, value=0.0}",
        "i8[5] [2, 1, 2, 1, 2]",
    );
    check(
        "const f32[2,1] [1.0, 2.0] | pad v0 {before=[0,1], after=[1,0], mode=constant, value=-inf}",
        "f32[3,2] [-inf, 1.0, -inf, 2.0, -inf, -inf]",
    );
    check(
        "const i8[2,1] [1, 2] | const i8[2,2] [3, 4, 5, 6] | concat v0, v1, v0 {axis=1}",
        "i8[2,4] [1, 3, 4, 1, 2, 5, 6, 2]",
    );
    check("const i8[1] [1] | concat v0 {axis=0}", "i8[1] [1]");
    check(
        &format!("{x} | const i64[2,2] [0, -1, 7, -9] | gather v1, v2 {{axis=1}}"),
        "i32[2,2,2] [0, 2, 2, 0, 3, 5, 5, 3]",
    );
    check(&format!("{x} | const i8[] -1 | gather v1, v2 {{axis=0}}"), "i32[3] [3, 4, 5]");
}

fn reductions() {
    let x = "const f32[2,3] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]";
    check(&format!("{x} | reduce_sum v0 {{axes=[1]}}"), "f32[2,1] [6.0, 15.0]");
    check(&format!("{x} | reduce_sum v0 {{axes=[0]}}"), "f32[1,3] [5.0, 7.0, 9.0]");
    check(&format!("{x} | reduce_sum v0 {{axes=[0,1]}}"), "f32[1,1] [21.0]");
    check(
        &format!("{x} | reduce_sum v0 {{axes=[]}} | reduce_prod v1 {{axes=[1]}}"),
        "f32[2,1] [6.0, 120.0]",
    );
    check("const f32[3] [1.0, nan, 3.0] | reduce_max v0 {axes=[0]}", "f32[1] [nan]");
    check("const f32[3] [1.0, -2.0, 3.0] | reduce_max v0 {axes=[0]}", "f32[1] [3.0]");
    check("const f32[3] [1.0, -2.0, 3.0] | reduce_min v0 {axes=[0]}", "f32[1] [-2.0]");
    check("const f32[2,0] [] | reduce_sum v0 {axes=[1]}", "f32[2,1] splat 0.0");
    check("const f32[0] [] | reduce_max v0 {axes=[0]}", "f32[1] [-inf]");
    check("const i8[0] [] | reduce_max v0 {axes=[0]}", "i8[1] [-128]");
    check("const u8[0] [] | reduce_min v0 {axes=[0]}", "u8[1] [255]");
    check("const i8[3] [100, 100, 100] | reduce_sum v0 {axes=[0]}", "i8[1] [44]");
    check(
        "iota {shape=[24], axis=0, dtype=i32} | reshape v0 {shape=[2,3,4]} | reduce_sum v1 {axes=[0,2]}",
        "i32[1,3,1] [60, 92, 124]",
    );
    let ties = "const f32[2,4] [1.0, 3.0, 3.0, 1.0, nan, 9.0, 2.0, nan]";
    check(&format!("{ties} | argmax v0 {{axis=1, last=0}}"), "i64[2,1] [1, 0]");
    check(&format!("{ties} | argmax v0 {{axis=1, last=1}}"), "i64[2,1] [2, 0]");
    check(&format!("{ties} | argmin v0 {{axis=1, last=0}}"), "i64[2,1] splat 0");
    check(&format!("{ties} | argmin v0 {{axis=1, last=1}}"), "i64[2,1] [3, 0]");
    check("const i8[2,2] [1, 5, 2, 4] | argmax v0 {axis=0, last=0}", "i64[1,2] [1, 0]");
}

fn windows() {
    let x = "const f32[1,1,4] [1.0, -2.0, 3.0, -4.0]";
    let pool = |op, attrs| format!("{x} | {op} v0 {{{attrs}}}");
    let dense = "kernel=[2], strides=[1], before=[1], after=[0], dilations=[1]";
    check(&pool("max_pool", dense), "f32[1,1,4] [1.0, 1.0, 3.0, 3.0]");
    check(&pool("sum_pool", dense), "f32[1,1,4] [1.0, -1.0, 1.0, -1.0]");
    let sparse = "kernel=[2], strides=[2], before=[0], after=[1], dilations=[2]";
    check(&pool("max_pool", sparse), "f32[1,1,2] splat 3.0");
    let outside = "kernel=[1], strides=[5], before=[1], after=[0], dilations=[1]";
    check(&pool("max_pool", outside), "f32[1,1,1] [-inf]");
    check(&pool("sum_pool", outside), "f32[1,1,1] [0.0]");
    check(
        "const i8[1,1,2] [-5, -6] | max_pool v0 {kernel=[2], strides=[1], before=[1], after=[0], dilations=[1]}",
        "i8[1,1,2] splat -5",
    );
    check(
        "iota {shape=[16], axis=0, dtype=f32} | reshape v0 {shape=[1,1,4,4]} \
         | sum_pool v1 {kernel=[3,2], strides=[2,2], before=[1,0], after=[0,0], dilations=[1,1]}",
        "f32[1,1,2,2] [10.0, 18.0, 51.0, 63.0]",
    );
    check(
        "const f32[1,1,3] [1.0, nan, 2.0] | max_pool v0 {kernel=[2], strides=[1], before=[0], after=[0], dilations=[1]}",
        "f32[1,1,2] splat nan",
    );
}

fn products() {
    check(
        "const f32[2,2] [1.0, 2.0, 3.0, 4.0] | const f32[2,2] [5.0, 6.0, 7.0, 8.0] | matmul v0, v1",
        "f32[2,2] [19.0, 22.0, 43.0, 50.0]",
    );
    check(
        "const i32[2,1,2] [1, 2, 3, 4] | const i32[2,1] [10, 1] | matmul v0, v1",
        "i32[2,1,1] [12, 34]",
    );
    check(
        "const f32[2,1,1,2] [1.0, 2.0, 3.0, 4.0] | const f32[3,2,1] [1.0, 0.0, 0.0, 1.0, 1.0, 1.0] | matmul v0, v1",
        "f32[2,3,1,1] [1.0, 2.0, 3.0, 3.0, 4.0, 7.0]",
    );
    check("const f32[2,0] [] | const f32[0,2] [] | matmul v0, v1", "f32[2,2] splat 0.0");
    check("const i8[1,2] [100, 100] | const i8[2,1] [1, 1] | matmul v0, v1", "i8[1,1] [-56]");
}

fn convolutions() {
    let line = "const f32[1,1,4] [1.0, 2.0, 3.0, 4.0] | const f32[1,1,3] [1.0, 10.0, 100.0]";
    let conv = |attrs| format!("{line} | conv v0, v1 {{{attrs}, groups=1}}");
    check(&conv("strides=[1], before=[0], after=[0], dilations=[1]"), "f32[1,1,2] [321.0, 432.0]");
    check(
        &conv("strides=[1], before=[2], after=[0], dilations=[1]"),
        "f32[1,1,4] [100.0, 210.0, 321.0, 432.0]",
    );
    check(&conv("strides=[2], before=[0], after=[1], dilations=[1]"), "f32[1,1,2] [321.0, 43.0]");
    check(&conv("strides=[1], before=[0], after=[1], dilations=[2]"), "f32[1,1,1] [31.0]");
    // Two groups: channels 0, 1 with filters 0, 1 and channels 2, 3 with filters 2, 3.
    check(
        "const f32[1,4,1] [1.0, 2.0, 3.0, 4.0] | const f32[4,2,1] [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, -1.0] \
         | conv v0, v1 {strides=[1], before=[0], after=[0], dilations=[1], groups=2}",
        "f32[1,4,1] [1.0, 2.0, 7.0, -1.0]",
    );
    // Depthwise with two filters per channel.
    check(
        "const i32[1,2,2] [1, 2, 3, 4] | const i32[4,1,2] [1, 1, 1, -1, 2, 2, 0, 1] \
         | conv v0, v1 {strides=[1], before=[0], after=[0], dilations=[1], groups=2}",
        "i32[1,4,1] [3, -1, 14, 4]",
    );
    check(
        "iota {shape=[9], axis=0, dtype=f32} | reshape v0 {shape=[1,1,3,3]} | const f32[1,1,2,2] [1.0, 2.0, 3.0, 4.0] \
         | conv v1, v2 {strides=[2,1], before=[1,0], after=[0,1], dilations=[1,1], groups=1}",
        "f32[1,1,2,3] [4.0, 11.0, 6.0, 57.0, 67.0, 29.0]",
    );
}

fn transposed_convolutions() {
    let line = "const f32[1,1,2] [1.0, 2.0] | const f32[1,1,3] [1.0, 10.0, 100.0]";
    let conv = |attrs| format!("{line} | conv_transpose v0, v1 {{{attrs}}}");
    check(
        &conv("strides=[1], before=[0], after=[0], dilations=[1], groups=1, output_padding=[0]"),
        "f32[1,1,4] [1.0, 12.0, 120.0, 200.0]",
    );
    check(
        &conv("strides=[2], before=[0], after=[0], dilations=[1], groups=1, output_padding=[1]"),
        "f32[1,1,6] [1.0, 10.0, 102.0, 20.0, 200.0, 0.0]",
    );
    check(
        &conv("strides=[2], before=[1], after=[2], dilations=[1], groups=1, output_padding=[0]"),
        "f32[1,1,2] [10.0, 102.0]",
    );
    check(
        &conv("strides=[1], before=[0], after=[0], dilations=[2], groups=1, output_padding=[0]"),
        "f32[1,1,6] [1.0, 2.0, 10.0, 20.0, 100.0, 200.0]",
    );
    // w[C, M/groups, kernel]: channel 0 makes outputs 0 and 1, channel 1 makes 2 and 3.
    check(
        "const i32[1,2,1] [2, 3] | const i32[2,2,1] [1, 10, 100, 1000] \
         | conv_transpose v0, v1 {strides=[1], before=[0], after=[0], dilations=[1], groups=2, output_padding=[0]}",
        "i32[1,4,1] [2, 20, 300, 3000]",
    );
    check(
        "const i32[1,2,1] [2, 3] | const i32[2,2,1] [1, 10, 100, 1000] \
         | conv_transpose v0, v1 {strides=[1], before=[0], after=[0], dilations=[1], groups=1, output_padding=[0]}",
        "i32[1,2,1] [302, 3020]",
    );
}

/// A line of `from` elements resized to `to`, with scale `to / from`.
fn resize(
    data: &str,
    from: usize,
    to: usize,
    mode: &str,
    transform: &str,
    rounding: &str,
) -> String {
    let scale = (to as f32 / from as f32).to_bits();
    result_of(&format!(
        "const f64[{from}] {data} | resize v0 {{shape=[{to}], mode={mode}, transform={transform}, \
         rounding={rounding}, cubic=-0.75, scales=[{scale}]}}"
    ))
}

fn resizes() {
    let x = "[1.0, 2.0, 3.0, 4.0]";
    let nearest = |to, transform, rounding| resize(x, 4, to, "nearest", transform, rounding);
    // Asymmetric positions for 8: 0, 0.5, 1, 1.5, …
    assert_eq!(
        nearest(8, "asymmetric", "floor"),
        "f64[8] [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]"
    );
    assert_eq!(nearest(8, "asymmetric", "ceil"), "f64[8] [1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0]");
    assert_eq!(
        nearest(8, "asymmetric", "round_prefer_floor"),
        "f64[8] [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]"
    );
    assert_eq!(
        nearest(8, "asymmetric", "round_prefer_ceil"),
        "f64[8] [1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0]"
    );
    // Half-pixel positions for 2: 0.5, 2.5; for 1: 1.5, but 0 in PyTorch.
    assert_eq!(nearest(2, "half_pixel", "round_prefer_floor"), "f64[2] [1.0, 3.0]");
    assert_eq!(nearest(2, "half_pixel", "round_prefer_ceil"), "f64[2] [2.0, 4.0]");
    assert_eq!(nearest(1, "half_pixel", "round_prefer_ceil"), "f64[1] [3.0]");
    assert_eq!(nearest(1, "pytorch_half_pixel", "round_prefer_ceil"), "f64[1] [1.0]");

    let linear = |to, transform| resize(x, 4, to, "linear", transform, "floor");
    assert_eq!(linear(8, "half_pixel"), "f64[8] [1.0, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.0]");
    assert_eq!(linear(8, "asymmetric"), "f64[8] [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.0]");
    assert_eq!(linear(7, "align_corners"), "f64[7] [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]");
    assert_eq!(linear(1, "align_corners"), "f64[1] [1.0]");
    assert_eq!(linear(2, "half_pixel"), "f64[2] [1.5, 3.5]");
    assert_eq!(linear(1, "pytorch_half_pixel"), "f64[1] [1.0]");

    // At 0.5 between samples Keys' weights for a = -0.75 are -3/32, 19/32, 19/32, -3/32.
    let cubic =
        |to, transform| resize("[0.0, 32.0, 64.0, 128.0]", 4, to, "cubic", transform, "floor");
    assert_eq!(cubic(7, "align_corners"), "f64[7] [0.0, 13.0, 32.0, 45.0, 64.0, 99.0, 128.0]");
    // At 0.25: -27/256, 225/256, 67/256, -9/256, with the edges repeated.
    assert_eq!(
        resize("[0.0, 256.0]", 2, 4, "cubic", "half_pixel", "floor"),
        "f64[4] [-27.0, 58.0, 198.0, 283.0]"
    );
    // Two axes, the first as it was.
    check(
        "const f64[2,2] [1.0, 3.0, 5.0, 7.0] | resize v0 {shape=[2,3], mode=linear, transform=align_corners, \
         rounding=floor, cubic=-0.75, scales=[1065353216,1069547520]}",
        "f64[2,3] [1.0, 2.0, 3.0, 5.0, 6.0, 7.0]",
    );
    check(
        "const i8[1,1,2,1] [1, 2] | resize v0 {shape=[1,1,4,2], mode=nearest, transform=asymmetric, \
         rounding=floor, cubic=-0.75, scales=[1065353216,1065353216,1073741824,1073741824]}",
        "i8[1,1,4,2] [1, 1, 1, 1, 2, 2, 2, 2]",
    );
}
