//! Verification: honest kernels pass whatever their order of summation, and each way of being wrong
//! that a loop was once fooled by has its verdict.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::sync::Mutex;

use common::{region, relu_ptx};
use eggine_ir::graph::eval::{Rounding, eval};
use eggine_ir::{DType, Region, Tensor};
use eggine_runtime::device::{CpuDevice, CpuOptions, Device, DeviceError, FakeDevice, FakeMemory};
use eggine_runtime::verify::{Family, Reference, generate_inputs};
use eggine_runtime::{
    Candidate, CandidateBuffer, OracleCache, Verdict, Verification, VerifyOptions, verify,
};

const M: usize = 8;
const N: usize = 16;

fn matmul_region(k: usize) -> Region {
    region(&format!(
        "graph @r(v0: f32[{M},{k}], v1: f32[{k},{N}]) {{\n    v2 = matmul v0, v1\n    return v2\n}}\n"
    ))
}

fn candidate(n_inputs: usize) -> Candidate<'static> {
    let mut buffers: Vec<CandidateBuffer<'static>> =
        (0..n_inputs).map(|index| CandidateBuffer::Input { index, pack: None }).collect();
    buffers.push(CandidateBuffer::Output { index: 0 });
    Candidate { ptx: "// fake", entry: "k", grid: [1, 1, 1], block: [1, 1, 1], buffers }
}

type Kernel = Box<dyn FnMut(&mut FakeMemory, &[u64], u64) -> Result<(), DeviceError> + Send>;

fn check(region: &Region, n_inputs: usize, kernel: Kernel) -> Verification {
    let mut device = FakeDevice::new();
    device.kernel("k", kernel);
    let oracles = OracleCache::default();
    let key = region.hash_hex();
    let found = verify::verify(
        &mut device,
        region,
        &key,
        &candidate(n_inputs),
        &oracles,
        &VerifyOptions::default(),
    )
    .unwrap();
    assert_eq!((device.n_allocations(), device.n_modules()), (0, 0), "everything is given back");
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Verification>(&json).unwrap(), found, "{json}");
    found
}

/// A matmul whose dot product is `dot`.
fn matmul(k: usize, dot: impl Fn(&[f32], &[f32]) -> f32 + Send + 'static) -> Kernel {
    Box::new(move |memory, params, _| {
        let (a, b) = (memory.read_f32(params[0], M * k)?, memory.read_f32(params[1], k * N)?);
        let columns: Vec<Vec<f32>> =
            (0..N).map(|j| (0..k).map(|i| b[i * N + j]).collect()).collect();
        let mut c = Vec::new();
        for i in 0..M {
            c.extend(columns.iter().map(|column| dot(&a[i * k..][..k], column)));
        }
        memory.write_f32(params[2], &c)
    })
}

fn forward(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |acc, (x, y)| x.mul_add(*y, acc))
}

#[test]
fn honest_sums_pass_in_any_order() {
    for k in [1, 2, 3, 17, 256, 4608] {
        let region = matmul_region(k);
        let orders: Vec<(&str, Kernel)> = vec![
            ("forward, fused", matmul(k, forward)),
            (
                "backward, rounded twice",
                matmul(k, |a, b| a.iter().zip(b).rev().map(|(x, y)| x * y).fold(0.0, |s, t| s + t)),
            ),
            (
                "in 7 parts",
                matmul(k, |a, b| {
                    let part = a.len().div_ceil(7);
                    a.chunks(part).zip(b.chunks(part)).map(|(a, b)| forward(a, b)).sum()
                }),
            ),
            (
                "in strides",
                matmul(k, |a, b| {
                    (0..4)
                        .map(|lane| {
                            (lane..a.len()).step_by(4).fold(0f32, |s, i| a[i].mul_add(b[i], s))
                        })
                        .sum()
                }),
            ),
        ];
        for (name, kernel) in orders {
            let found = check(&region, 2, kernel);
            assert!(found.accepted(), "K = {k}, {name}: {}", found.verdict);
            assert!(
                found.families.iter().all(|family| family.n_free == 0 && family.n_elems == M * N)
            );
            assert!(
                found.error_ratio() < 0.5,
                "K = {k}, {name}: the bound has room, {}",
                found.error_ratio()
            );
        }
    }
}

/// What tf32 keeps: 10 bits after the point.
fn tf32(x: f32) -> f32 {
    f32::from_bits((x.to_bits() + 0x1000) & !0x1FFF)
}

#[test]
fn lower_precision_and_missing_terms_are_inaccurate() {
    for k in [2, 17, 256, 4608] {
        let region = matmul_region(k);
        let wrong: Vec<(&str, Kernel)> = vec![
            ("zeros", matmul(k, |_, _| 0.0)),
            ("without the last term", matmul(k, |a, b| forward(&a[..a.len() - 1], b))),
            ("without the first term", matmul(k, |a, b| forward(&a[1..], &b[1..]))),
            ("operands shifted by one", matmul(k, |a, b| forward(&a[1..], b))),
            (
                "tf32",
                matmul(k, |a, b| {
                    a.iter().zip(b).fold(0.0, |s, (x, y)| tf32(*x).mul_add(tf32(*y), s))
                }),
            ),
            (
                "bf16",
                matmul(k, |a, b| {
                    let narrow = |x: f32| half::bf16::from_f32(x).to_f32();
                    a.iter().zip(b).fold(0.0, |s, (x, y)| narrow(*x).mul_add(narrow(*y), s))
                }),
            ),
            (
                "f16 accumulator",
                matmul(k, |a, b| {
                    a.iter()
                        .zip(b)
                        .fold(0.0, |s: f32, (x, y)| half::f16::from_f32(x.mul_add(*y, s)).to_f32())
                }),
            ),
        ];
        for (name, kernel) in wrong {
            let found = check(&region, 2, kernel);
            assert!(
                matches!(found.verdict, Verdict::Inaccurate { .. } | Verdict::WrongKind { .. }),
                "K = {k}, {name}: {}",
                found.verdict
            );
        }
    }
}

#[test]
fn an_output_shifted_by_one_is_inaccurate() {
    let k = 64;
    let shifted: Kernel = Box::new(move |memory, params, nth| {
        matmul(k, forward)(memory, params, nth)?;
        let mut c = memory.read_f32(params[2], M * N)?;
        c.rotate_left(1);
        memory.write_f32(params[2], &c)
    });
    let found = check(&matmul_region(k), 2, shifted);
    let Verdict::Inaccurate { family: Family::Normal, output: 0, n_elems, worst } = &found.verdict
    else {
        panic!("{}", found.verdict)
    };
    assert!(*n_elems > M * N - 3 && worst.index < M * N, "{}", found.verdict);
}

fn after_matmul(
    spoil: impl Fn(&mut FakeMemory, &[u64]) -> Result<(), DeviceError> + Send + 'static,
) -> Kernel {
    let mut honest = matmul(32, forward);
    Box::new(move |memory, params, nth| {
        honest(memory, params, nth)?;
        spoil(memory, params)
    })
}

#[test]
fn nothing_or_half_written_is_unwritten() {
    let nothing: Kernel = Box::new(|_, _, _| Ok(()));
    let found = check(&matmul_region(32), 2, nothing);
    assert!(
        matches!(found.verdict, Verdict::Unwritten { n_elems: 128, first_index: 0, .. }),
        "{}",
        found.verdict
    );
    let poison = f32::from_bits(u32::MAX);
    let partial =
        after_matmul(move |memory, params| memory.write_f32(params[2] + 4 * 100, &[poison; 28]));
    let found = check(&matmul_region(32), 2, partial);
    assert!(
        matches!(found.verdict, Verdict::Unwritten { n_elems: 28, first_index: 100, .. }),
        "{}",
        found.verdict
    );
}

#[test]
fn the_right_answer_of_the_run_before_is_unwritten() {
    // Writes on its first run only: later families find their poison.
    let mut honest = matmul(32, forward);
    let lazy: Kernel = Box::new(
        move |memory, params, nth| if nth == 0 { honest(memory, params, nth) } else { Ok(()) },
    );
    let found = check(&matmul_region(32), 2, lazy);
    assert!(
        matches!(found.verdict, Verdict::Unwritten { family: Family::Extreme, .. }),
        "{}",
        found.verdict
    );
}

#[test]
fn a_result_that_is_kept_for_other_inputs_is_inaccurate() {
    let kept: Mutex<Option<Vec<f32>>> = Mutex::new(None);
    let mut honest = matmul(32, forward);
    let caching: Kernel = Box::new(move |memory, params, nth| {
        let mut kept = kept.lock().unwrap();
        match &*kept {
            Some(c) => memory.write_f32(params[2], c),
            None => {
                honest(memory, params, nth)?;
                *kept = Some(memory.read_f32(params[2], M * N)?);
                Ok(())
            }
        }
    });
    let found = check(&matmul_region(32), 2, caching);
    assert!(
        matches!(found.verdict, Verdict::Inaccurate { family: Family::Extreme, .. }),
        "{}",
        found.verdict
    );
}

#[test]
fn writes_outside_and_to_inputs_are_seen() {
    let cases: [(usize, i64); 4] = [(2, -4), (2, 512), (0, -8), (1, 32 * 16 * 4)];
    for (buffer, at_byte) in cases {
        let outside = after_matmul(move |memory, params| {
            memory.write(params[buffer].wrapping_add_signed(at_byte), &[0])
        });
        let found = check(&matmul_region(32), 2, outside);
        assert_eq!(
            found.verdict,
            Verdict::WritesOutside { family: Family::Normal, buffer, at_byte }
        );
    }
    let modifying = after_matmul(|memory, params| {
        let x = memory.read_f32(params[1] + 40, 1)?;
        memory.write_f32(params[1] + 40, &[-x[0]])
    });
    let found = check(&matmul_region(32), 2, modifying);
    assert!(
        matches!(found.verdict, Verdict::ModifiesInput { buffer: 1, at_byte: 40..44, .. }),
        "{}",
        found.verdict
    );
}

#[test]
fn a_read_outside_shows_as_nan() {
    let reading = after_matmul(|memory, params| {
        let beyond = memory.read_f32(params[0] + (M * 32 * 4) as u64, 1)?;
        let c = memory.read_f32(params[2] + 12, 1)?;
        memory.write_f32(params[2] + 12, &[c[0] + 0.0 * beyond[0]])
    });
    let found = check(&matmul_region(32), 2, reading);
    assert!(!found.accepted(), "{}", found.verdict);
}

#[test]
fn faults_and_text_that_does_not_load_are_verdicts() {
    let wild: Kernel = Box::new(|memory, _, _| memory.write(0x10, &[0]));
    let found = check(&matmul_region(32), 2, wild);
    assert!(
        matches!(&found.verdict, Verdict::Faults { reason, .. } if reason.contains("0x10")),
        "{}",
        found.verdict
    );
    let mut device = FakeDevice::new();
    let broken = Candidate { ptx: "error: line 3: unknown instruction", ..candidate(2) };
    let region = matmul_region(32);
    let found = verify::verify(
        &mut device,
        &region,
        "k",
        &broken,
        &OracleCache::default(),
        &VerifyOptions::default(),
    )
    .unwrap();
    assert_eq!(found.verdict.to_string(), "does not load: line 3: unknown instruction");
    assert_eq!(device.n_allocations(), 0);
}

#[test]
fn a_kernel_that_forgets_an_output_is_seen() {
    let region = matmul_region(32);
    let mut device = FakeDevice::new();
    device.kernel("k", |_, _, _| Ok(()));
    let mut blind = candidate(2);
    blind.buffers.pop();
    let found = verify::verify(
        &mut device,
        &region,
        "k",
        &blind,
        &OracleCache::default(),
        &VerifyOptions::default(),
    )
    .unwrap();
    assert!(matches!(found.verdict, Verdict::Unwritten { n_elems: 128, .. }), "{}", found.verdict);
}

/// Regions of many kinds, with the sizes of small layers.
const REGIONS: &[&str] = &[
    "graph @softmax(v0: f32[4,33]) {
    v1 = reduce_max v0 {axes=[1]}
    v2 = sub v0, v1
    v3 = exp v2
    v4 = reduce_sum v3 {axes=[1]}
    v5 = div v3, v4
    return v5
}",
    "graph @layernorm(v0: f32[6,64], v1: f32[64], v2: f32[64]) {
    v3 = reduce_sum v0 {axes=[1]}
    v4 = const f32[] 0.015625
    v5 = mul v3, v4
    v6 = sub v0, v5
    v7 = mul v6, v6
    v8 = reduce_sum v7 {axes=[1]}
    v9 = mul v8, v4
    v10 = const f32[] 1e-5
    v11 = add v9, v10
    v12 = rsqrt v11
    v13 = mul v6, v12
    v14 = mul v13, v1
    v15 = add v14, v2
    return v15
}",
    "graph @gelu(v0: f32[5,40]) {
    v1 = const f32[] 0.70710677
    v2 = mul v0, v1
    v3 = erf v2
    v4 = const f32[] 1.0
    v5 = add v3, v4
    v6 = mul v0, v5
    v7 = const f32[] 0.5
    v8 = mul v6, v7
    return v8
}",
    "graph @conv(v0: f32[1,8,9,9], v1: f32[6,8,3,3], v2: f32[6,1,1], v3: f32[1,6,9,9]) {
    v4 = conv v0, v1 {strides=[1,1], before=[1,1], after=[1,1], dilations=[1,1], groups=1}
    v5 = add v4, v2
    v6 = add v5, v3
    v7 = relu v6
    return v7
}",
    "graph @attention(v0: f32[2,16,8], v1: f32[2,8,16], v2: f32[2,16,8]) {
    v3 = matmul v0, v1
    v4 = reduce_max v3 {axes=[2]}
    v5 = sub v3, v4
    v6 = exp v5
    v7 = reduce_sum v6 {axes=[2]}
    v8 = div v6, v7
    v9 = matmul v8, v2
    return v9
}",
    "graph @silu(v0: f32[100]) {
    v1 = sigmoid v0
    v2 = mul v0, v1
    v3 = tanh v2
    return v3
}",
    "graph @embed(v0: f32[20,8], v1: i64[3,5]) {
    v2 = gather v0, v1 {axis=0}
    return v2
}",
    "graph @pool(v0: f32[1,4,8,8]) {
    v1 = max_pool v0 {kernel=[2,2], strides=[2,2], before=[0,0], after=[0,0], dilations=[1,1]}
    return v1
}",
    "graph @half(v0: f16[8,32], v1: f16[32,8]) {
    v2 = matmul v0, v1
    v3 = relu v2
    return v3
}",
    "graph @masked(v0: f32[4,16], v1: bool[4,16]) {
    v2 = const f32[] -inf
    v3 = select v1, v0, v2
    v4 = exp v3
    return v4
}",
    "graph @argmax(v0: f32[7,31]) {
    v1 = argmax v0 {axis=1, last=0}
    return v1
}",
];

/// The plain kernel of a region: operator by operator, each result rounded to its type.
fn plain(region: &Region, spoil: impl Fn(&Tensor) -> Tensor + Send + 'static) -> Kernel {
    let region = region.clone();
    Box::new(move |memory, params, _| {
        let mut inputs = Vec::new();
        for (nth, value) in region.graph.inputs().enumerate() {
            let ty = region.graph.ty(value);
            inputs.push(Tensor::new(
                ty.dtype,
                &ty.extents(),
                memory.read(params[nth], ty.n_bytes())?,
            ));
        }
        let outputs = eval(&region.graph, &inputs, Rounding::PerOp);
        memory.write(params[inputs.len()], &spoil(&outputs[0].to_tensor()).bytes)
    })
}

#[test]
fn plain_kernels_of_many_regions_pass() {
    for text in REGIONS {
        let region = region(text);
        let n_inputs = region.graph.inputs().count();
        let found = check(&region, n_inputs, plain(&region, Tensor::clone));
        assert!(found.accepted(), "{}\n{text}", found.verdict);
        // On ordinary inputs every element is checked.
        assert_eq!(found.families[0].n_free, 0, "{text}");
        let free: usize = found.families.iter().map(|family| family.n_free).sum();
        let all: usize = found.families.iter().map(|family| family.n_elems).sum();
        assert!(free * 3 <= all, "{free} of {all} elements may be anything:\n{text}");
    }
}

#[test]
fn one_slightly_wrong_element_is_enough() {
    for text in REGIONS {
        let region = region(text);
        let n_inputs = region.graph.inputs().count();
        let spoiled = plain(&region, |tensor| {
            let mut data = tensor.to_f64();
            // Not near zero: the relative error of what cancelled may be large.
            let most = data
                .iter()
                .copied()
                .enumerate()
                .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
                .unwrap()
                .0;
            data[most] = data[most] * 1.01 + f64::from(u8::from(!tensor.dtype.is_float()));
            Tensor::from_f64(tensor.dtype, &tensor.extents, &data)
        });
        let found = check(&region, n_inputs, spoiled);
        assert!(!found.accepted(), "{text}");
    }
}

#[test]
fn movement_is_compared_bit_for_bit() {
    let moving =
        region("graph @t(v0: f32[3,50]) {\n    v1 = transpose v0 {perm=[1,0]}\n    return v1\n}");
    assert!(check(&moving, 1, plain(&moving, Tensor::clone)).accepted());
    // The extreme family has zeros of both signs.
    let unsigned_zeros = plain(&moving, |tensor| {
        let data: Vec<f64> =
            tensor.to_f64().iter().map(|&x| if x == 0.0 { 0.0 } else { x }).collect();
        Tensor::from_f64(tensor.dtype, &tensor.extents, &data)
    });
    let found = check(&moving, 1, unsigned_zeros);
    assert!(
        matches!(found.verdict, Verdict::Inaccurate { family: Family::Extreme, .. }),
        "{}",
        found.verdict
    );
    let flushed = plain(&moving, |tensor| {
        let data: Vec<f64> = tensor
            .to_f64()
            .iter()
            .map(|&x| if x.abs() < 2f64.powi(-126) { 0.0 * x } else { x })
            .collect();
        Tensor::from_f64(tensor.dtype, &tensor.extents, &data)
    });
    assert!(!check(&moving, 1, flushed).accepted());
}

#[test]
fn nan_must_be_where_the_oracle_has_it() {
    let text = "graph @sqrt(v0: f32[64]) {\n    v1 = sqrt v0\n    return v1\n}";
    let roots = region(text);
    assert!(check(&roots, 1, plain(&roots, Tensor::clone)).accepted());
    let zeros_for_nan = plain(&roots, |tensor| {
        let data: Vec<f64> =
            tensor.to_f64().iter().map(|x| if x.is_nan() { 0.0 } else { *x }).collect();
        Tensor::from_f64(tensor.dtype, &tensor.extents, &data)
    });
    let found = check(&roots, 1, zeros_for_nan);
    assert!(matches!(found.verdict, Verdict::WrongKind { .. }), "{}", found.verdict);
    let all_nan = plain(&roots, |tensor| {
        Tensor::from_f64(tensor.dtype, &tensor.extents, &vec![f64::NAN; tensor.n_elems()])
    });
    assert!(matches!(check(&roots, 1, all_nan).verdict, Verdict::WrongKind { .. }));
}

#[test]
fn inputs_depend_on_seed_family_and_position_and_indices_are_in_range() {
    let embed = region(REGIONS[6]);
    for &family in Family::ALL {
        let inputs = generate_inputs(&embed.graph, family, 1);
        assert_eq!(inputs, generate_inputs(&embed.graph, family, 1));
        assert_ne!(inputs, generate_inputs(&embed.graph, family, 2));
        let indices = inputs[1].to_i64();
        let low = if family == Family::Extreme { -20 } else { 0 };
        assert!(indices.iter().all(|i| (low..20).contains(i)), "{family}: {indices:?}");
        let two = generate_inputs(
            &region("graph @g(v0: f32[99], v1: f32[99]) {\n    v2 = add v0, v1\n    return v2\n}")
                .graph,
            family,
            1,
        );
        assert_ne!(two[0], two[1], "{family}");
    }
    let normal = generate_inputs(&matmul_region(4000).graph, Family::Normal, 3)[0].to_f64();
    let (mean, square) = normal.iter().fold((0.0, 0.0), |(m, s), x| (m + x, s + x * x));
    let n = normal.len() as f64;
    assert!(
        (mean / n).abs() < 0.05 && (square / n - 1.0).abs() < 0.05,
        "mean {} variance {}",
        mean / n,
        square / n
    );
}

#[test]
fn packed_weights_are_given_as_the_kernel_wants_them() {
    // The weight arrives transposed, and padded by one row.
    let pack = |tensor: &Tensor| {
        let (k, n) = (tensor.extents[0], tensor.extents[1]);
        let data = tensor.to_f64();
        let packed: Vec<f64> =
            (0..n * k).map(|i| data[(i % k) * n + i / k]).chain(vec![0.0; k]).collect();
        Tensor::from_f64(DType::F32, &[n + 1, k], &packed)
    };
    let region = matmul_region(24);
    let mut device = FakeDevice::new();
    device.kernel("k", |memory, params, _| {
        let (a, b) =
            (memory.read_f32(params[0], M * 24)?, memory.read_f32(params[1], 24 * (N + 1))?);
        let c: Vec<f32> =
            (0..M * N).map(|i| forward(&a[i / N * 24..][..24], &b[i % N * 24..][..24])).collect();
        memory.write_f32(params[2], &c)
    });
    let mut packed = candidate(2);
    packed.buffers[1] = CandidateBuffer::Input { index: 1, pack: Some(&pack) };
    let found = verify::verify(
        &mut device,
        &region,
        "k",
        &packed,
        &OracleCache::default(),
        &VerifyOptions::default(),
    )
    .unwrap();
    assert!(found.accepted(), "{}", found.verdict);
    assert_eq!(device.n_allocations(), 0);
}

#[test]
fn oracles_are_shared_and_forgotten() {
    let cache = OracleCache::default();
    let region = matmul_region(32);
    let one = cache.get(&region, "a", Family::Normal, 0);
    assert!(std::sync::Arc::ptr_eq(&one, &cache.get(&region, "a", Family::Normal, 0)));
    assert!(!std::sync::Arc::ptr_eq(&one, &cache.get(&region, "a", Family::Normal, 1)));
    assert_eq!(cache.len(), 2);
    let bytes = (M * 32 + 32 * N) * 4 + M * N * 16;
    let small = OracleCache::new(2 * bytes);
    for seed in 0..5 {
        small.get(&region, "a", Family::Normal, seed);
    }
    assert_eq!(small.len(), 2);
    let recent = small.get(&region, "a", Family::Normal, 3);
    small.get(&region, "a", Family::Normal, 9);
    assert!(
        std::sync::Arc::ptr_eq(&recent, &small.get(&region, "a", Family::Normal, 3)),
        "the oldest goes first"
    );
}

#[test]
fn bounds_are_tight_where_they_can_be() {
    let region = matmul_region(1024);
    let bound = |family| {
        let oracle = verify::Oracle::new(&region, family, 0);
        let relative = |reference: &Reference| {
            let scale = reference.values.iter().fold(0f64, |m, v| m.max(v.abs()));
            (0..M * N).map(|i| reference.bound(i)).fold(0.0, f64::max) / scale
        };
        relative(&oracle.outputs[0])
    };
    assert!(bound(Family::Normal) < 1e-4, "{}", bound(Family::Normal));
    assert!(bound(Family::Ramp) < 1e-4, "{}", bound(Family::Ramp));
}

fn on_cpu(options: CpuOptions, ptx: &str, grid: u32) -> Verdict {
    let region = region("graph @r(v0: f32[1000]) {\n    v1 = relu v0\n    return v1\n}");
    let mut device = CpuDevice::new(options);
    let relu =
        Candidate { ptx, entry: "relu", grid: [grid, 1, 1], block: [128, 1, 1], ..candidate(1) };
    let options = VerifyOptions::default();
    verify::verify(&mut device, &region, "relu", &relu, &OracleCache::default(), &options)
        .unwrap()
        .verdict
}

#[test]
fn ptx_is_verified_on_the_cpu_device() {
    let options = CpuOptions { n_threads: 2, ..CpuOptions::default() };
    let everything =
        CpuOptions { checking: eggine_runtime::device::Checking::Everything, ..options };
    for options in [options, everything] {
        assert_eq!(on_cpu(options, &relu_ptx("relu", 1000, ""), 8), Verdict::Accepted);
        let verdict = on_cpu(options, &relu_ptx("relu", 1001, ""), 8);
        assert!(
            matches!(&verdict, Verdict::Faults { reason, .. } if reason.contains("out of bounds")),
            "{verdict}"
        );
        let verdict = on_cpu(options, &relu_ptx("relu", 999, ""), 8);
        assert!(
            matches!(verdict, Verdict::Unwritten { n_elems: 1, first_index: 999, .. }),
            "{verdict}"
        );
        let verdict = on_cpu(options, &relu_ptx("relu", 1000, ""), 7);
        assert!(matches!(verdict, Verdict::Unwritten { n_elems: 104, .. }), "{verdict}");
        let verdict = on_cpu(options, &relu_ptx("relu", 1000, "    frobnicate %f0;\n"), 8);
        assert!(matches!(verdict, Verdict::DoesNotLoad { .. }), "{verdict}");
        let limited = CpuOptions { step_limit: 10_000, ..options };
        let verdict = on_cpu(limited, &relu_ptx("relu", 1000, "$L1:\n    bra $L1;\n"), 8);
        assert!(
            matches!(&verdict, Verdict::Faults { reason, .. } if reason.contains("step limit")),
            "{verdict}"
        );
    }
    let mut device = CpuDevice::new(options);
    assert!(device.info().checks_bounds && device.alloc(0).is_ok());
}
