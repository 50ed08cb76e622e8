//! Quantised models run in integers: from ONNX to an engine whose kernels sum in 32 bits, round to even
//! and saturate, and whose weights stay as narrow as the model has them.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "import/build.rs"]
mod build;

use std::sync::atomic::AtomicBool;

use build::{Build, in_domain, int, ints, model, node};
use eggine::search::{Job, compile};
use eggine::{CpuDevice, CpuOptions, Engine, Session};
use eggine_ir::{DType, NodeKind, Op, Tensor};

/// The engine of a model, compiled at budget 0: every kernel is verified.
fn compiled(model: &Build) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    let (onnx, path) = (folder.path().join("m.onnx"), folder.path().join("m.engine"));
    std::fs::write(&onnx, model.bytes()).unwrap();
    compile(&Job::new(&onnx), &path, &AtomicBool::new(false)).unwrap();
    Engine::open(&path).unwrap()
}

fn run(engine: &Engine, inputs: &[Tensor]) -> Vec<Tensor> {
    let device = CpuDevice::new(CpuOptions::default());
    Session::new(Box::new(device), engine).unwrap().run(inputs).unwrap()
}

/// Element types of the results of all contractions in the engine's kernels, and of the weights that
/// these kernels read.
fn contractions(engine: &Engine) -> (Vec<DType>, Vec<DType>) {
    let (mut sums, mut weights) = (Vec::new(), Vec::new());
    for kernel in &engine.manifest.kernels {
        let graph = eggine_ir::graph::parse(&kernel.region).map_err(|_| &kernel.region).unwrap();
        let is_sum = |kind: &NodeKind| matches!(kind, NodeKind::Apply(Op::Matmul | Op::Conv, ..));
        let found = graph.nodes.values().filter(|node| is_sum(&node.kind));
        sums.extend(found.map(|node| node.ty.dtype));
        let read = graph.nodes.values().filter(|node| node.ty.n_elems() >= 1024);
        let read = read.filter(|node| matches!(node.kind, NodeKind::Input { weight: true, .. }));
        weights.extend(read.map(|node| node.ty.dtype));
    }
    (sums, weights)
}

/// Numbers that go through a range, without a pattern that would hide a mix-up.
fn numbers(n: usize, low: i64, high: i64) -> Vec<i64> {
    (0..n as i64).map(|i| low + (i * 7919 + i * i * 31) % (high - low + 1)).collect()
}

const M: usize = 5;
const K: usize = 64;
const N: usize = 24;

/// `QuantizeLinear(DequantizeLinear(x) · DequantizeLinear(w))` with one scale per column of w. Scales are
/// powers of two, so that every step is exact and half of the ties are rounded down.
#[test]
fn dequantised_products_are_integer_products() {
    let scales: Vec<f32> = (0..N).map(|n| 2f32.powi(-((n % 4) as i32) - 4)).collect();
    let w = numbers(K * N, -128, 127);
    let qdq = model(17)
        .input("x", DType::U8, "5,64")
        .floats("sx", &[], &[0.5])
        .constant("zx", &Tensor::from_i64(DType::U8, &[], &[131]))
        .constant("w", &Tensor::from_i64(DType::I8, &[K, N], &w))
        .floats("sw", &[N], &scales)
        .constant("zw", &Tensor::from_i64(DType::I8, &[N], &[0; N]))
        .floats("sy", &[], &[4.0])
        .constant("zy", &Tensor::from_i64(DType::U8, &[], &[120]))
        .op("DequantizeLinear", &["x", "sx", "zx"], &["xf"], vec![])
        .op("DequantizeLinear", &["w", "sw", "zw"], &["wf"], vec![int("axis", 1)])
        .op("MatMul", &["xf", "wf"], &["yf"], vec![])
        .op("QuantizeLinear", &["yf", "sy", "zy"], &["y"], vec![])
        .output("y");
    let engine = compiled(&qdq);
    let x = numbers(M * K, 0, 255);
    let (mut n_ties, mut n_saturated) = (0, 0);
    let mut want = Vec::new();
    for m in 0..M {
        for n in 0..N {
            let sum: i64 = (0..K).map(|k| (x[m * K + k] - 131) * w[k * N + n]).sum();
            let scaled = sum as f64 * 0.5 * f64::from(scales[n]) / 4.0;
            let rounded = scaled.round_ties_even() + 120.0;
            n_ties += usize::from((scaled - scaled.floor()) == 0.5);
            n_saturated += usize::from(!(0.0..=255.0).contains(&rounded));
            want.push(rounded.clamp(0.0, 255.0) as i64);
        }
    }
    assert!(n_ties > 0 && n_saturated > 0, "{n_ties} ties, {n_saturated} saturate: choose others");
    let got = run(&engine, &[Tensor::from_i64(DType::U8, &[M, K], &x)]);
    assert_eq!((got[0].dtype, got[0].to_i64()), (DType::U8, want));
    assert_eq!(contractions(&engine), (vec![DType::I32], vec![DType::I8]));
    let weights_bytes = engine.plan.weights_bytes as usize;
    assert!(weights_bytes < 2 * K * N, "{weights_bytes} bytes for {} weights", K * N);
}

#[test]
fn a_dequantised_convolution_is_an_integer_convolution() {
    let w = numbers(16 * 8 * 9, -128, 127);
    let qdq = model(17)
        .input("x", DType::I8, "1,8,6,6")
        .floats("sx", &[], &[0.25])
        .constant("zx", &Tensor::from_i64(DType::I8, &[], &[-3]))
        .constant("w", &Tensor::from_i64(DType::I8, &[16, 8, 3, 3], &w))
        .floats("sw", &[], &[0.125])
        .op("DequantizeLinear", &["x", "sx", "zx"], &["xf"], vec![])
        .op("DequantizeLinear", &["w", "sw"], &["wf"], vec![])
        .op("Conv", &["xf", "wf"], &["y"], vec![ints("pads", &[1, 1, 1, 1])])
        .output("y");
    let engine = compiled(&qdq);
    let x = numbers(8 * 36, -128, 127);
    let mut want = Vec::new();
    for (m, row, column) in (0..16 * 36).map(|i| (i / 36, i / 6 % 6, i % 6)) {
        let mut sum = 0;
        for (c, i, j) in (0..8 * 9).map(|t| (t / 9, t / 3 % 3, t % 3)) {
            let (r, s) = (row + i, column + j);
            // Padding is 0 after dequantisation, not a byte of 0.
            if (1..=6).contains(&r) && (1..=6).contains(&s) {
                let x = x[c * 36 + (r - 1) * 6 + s - 1];
                sum += (x + 3) * w[(m * 8 + c) * 9 + i * 3 + j];
            }
        }
        want.push(sum as f64 * 0.25 * 0.125);
    }
    let got = run(&engine, &[Tensor::from_i64(DType::I8, &[1, 8, 6, 6], &x)]);
    assert_eq!(got[0].to_f64(), want);
    assert_eq!(contractions(&engine), (vec![DType::I32], vec![DType::I8]));
}

#[test]
fn matmul_integer_sums_bytes_with_zero_points_of_both_sides() {
    let w = numbers(K * N, 0, 255);
    let product = model(17)
        .input("x", DType::U8, "5,64")
        .constant("zx", &Tensor::from_i64(DType::U8, &[], &[117]))
        .constant("w", &Tensor::from_i64(DType::U8, &[K, N], &w))
        .constant("zw", &Tensor::from_i64(DType::U8, &[], &[128]))
        .op("MatMulInteger", &["x", "w", "zx", "zw"], &["y"], vec![])
        .output("y");
    let engine = compiled(&product);
    let x = numbers(M * K, 0, 255);
    let element = |m: usize, n: usize| -> i64 {
        (0..K).map(|k| (x[m * K + k] - 117) * (w[k * N + n] - 128)).sum()
    };
    let want: Vec<i64> = (0..M * N).map(|i| element(i / N, i % N)).collect();
    let got = run(&engine, &[Tensor::from_i64(DType::U8, &[M, K], &x)]);
    assert_eq!((got[0].dtype, got[0].to_i64()), (DType::I32, want));
    assert_eq!(contractions(&engine), (vec![DType::I32], vec![DType::U8]));
}

#[test]
fn weights_of_4_bits_stay_packed_and_are_unpacked_in_the_kernel() {
    const BLOCK: usize = 16;
    let packed: Vec<u8> = numbers(N * K / 2, 0, 255).into_iter().map(|x| x as u8).collect();
    let scales: Vec<f32> = (0..N * K / BLOCK).map(|i| 2f32.powi((i % 3) as i32 - 6)).collect();
    let attrs = vec![
        int("K", K as i64),
        int("N", N as i64),
        int("bits", 4),
        int("block_size", BLOCK as i64),
    ];
    let product = model(21)
        .domain("com.microsoft", 1)
        .input("x", DType::F32, "5,64")
        .constant("w", &Tensor::new(DType::U8, &[N, K / BLOCK, BLOCK / 2], packed.clone()))
        .floats("s", &[N * K / BLOCK], &scales)
        .node(in_domain("com.microsoft", node("MatMulNBits", &["x", "w", "s"], &["y"], attrs)))
        .output("y");
    let engine = compiled(&product);
    let x: Vec<f32> = numbers(M * K, -8, 8).into_iter().map(|x| x as f32).collect();
    let weight = |k: usize, n: usize| {
        let byte = packed[(n * K + k) / 2];
        let nibble = if k.is_multiple_of(2) { byte & 15 } else { byte >> 4 };
        (f64::from(nibble) - 8.0) * f64::from(scales[(n * K + k) / BLOCK])
    };
    let element = |m: usize, n: usize| -> f64 {
        (0..K).map(|k| f64::from(x[m * K + k]) * weight(k, n)).sum()
    };
    // Small numbers times powers of two: every sum is exact.
    let want: Vec<f64> = (0..M * N).map(|i| element(i / N, i % N)).collect();
    assert_eq!(run(&engine, &[Tensor::f32(&[M, K], &x)])[0].to_f64(), want);
    assert_eq!(contractions(&engine), (vec![DType::F32], vec![DType::U4]));
    let (packed_bytes, scale_bytes) = (K * N / 2, 4 * scales.len());
    let weights_bytes = engine.plan.weights_bytes as usize;
    assert!(
        weights_bytes <= packed_bytes + scale_bytes + 512,
        "{weights_bytes} bytes for {} weights of 4 bits",
        K * N
    );
}
