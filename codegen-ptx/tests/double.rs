//! Functions of f64, powers of integers and remainders of floats, on the cpu device beside the reference,
//! over all magnitudes: how many ulp they may be off is stated.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::device::Ready;
use eggine_codegen_ptx::{CPU_DEVICE, first_choices, lower};
use eggine_cpu::Options;
use eggine_ir::{DType, Region, Tensor};

/// What the first kernel of a region gives, and what it should.
fn run(text: &str, inputs: &[Tensor]) -> (Tensor, Tensor) {
    let region = Region::contiguous(eggine_ir::graph::parse(text).unwrap());
    let (_, schedule, _) = first_choices(&region, &CPU_DEVICE)[0];
    let ready = Ready::new(lower(&region, &schedule).unwrap(), &region, inputs).unwrap();
    ready.launch(&Options { checking: true, ..Options::default() }).unwrap();
    (ready.outputs(&region).remove(0), region.oracle(inputs)[0].to_tensor())
}

fn map(op: &str, data: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let n = data.len();
    let text = format!("graph @g(v0: f64[{n}]) {{\n    v1 = {op} v0\n    return v1\n}}\n");
    let (got, want) = run(&text, &[Tensor::from_f64(DType::F64, &[n], data)]);
    (got.to_f64(), want.to_f64())
}

fn zip(op: &str, types: [DType; 2], x: &[f64], y: &[f64]) -> (Tensor, Tensor) {
    let (n, [a, b]) = (x.len(), types);
    let text = format!(
        "graph @g(v0: {a}[{n}], v1: {b}[{n}]) {{\n    v2 = {op} v0, v1\n    return v2\n}}\n"
    );
    let tensor = |dtype, data| Tensor::from_f64(dtype, &[n], data);
    run(&text, &[tensor(a, x), tensor(b, y)])
}

/// How far apart in units of the wanted number's last place; infinite if not both are NaN or infinite.
fn ulps(got: f64, want: f64) -> f64 {
    if got == want || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    if !got.is_finite() || !want.is_finite() {
        return f64::INFINITY;
    }
    let ulp = (want.abs().next_up() - want.abs()).min(f64::MAX);
    (got - want).abs() / ulp
}

/// The greatest error, and where it is.
fn worst(got: &[f64], want: &[f64]) -> (f64, usize) {
    let error = |(i, (got, want)): (usize, (&f64, &f64))| (ulps(*got, *want), i);
    got.iter().zip(want).enumerate().map(error).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
}

/// Numbers of every magnitude and sign, and the special ones.
fn everywhere() -> Vec<f64> {
    let mut data = vec![0.0, f64::INFINITY, f64::NAN, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1.0];
    data.extend([1.0f64.next_up(), 1.0f64.next_down(), 709.78, 709.79, 745.1, 745.2, 0.5, 2.0]);
    for exponent in (-1074..1024).step_by(7) {
        data.push(2f64.powi(exponent) * 1.37);
    }
    for i in 0..900 {
        data.push(f64::from(i) * 0.0173);
        data.push(f64::from(i) * 0.83);
    }
    data.iter().flat_map(|&x| [x, -x]).collect()
}

fn check_map(op: &str, data: &[f64], allowed: f64) {
    let (got, want) = map(op, data);
    let (ulps, at) = worst(&got, &want);
    assert!(ulps <= allowed, "{op}({:e}) is {:e}, not {:e}", data[at], got[at], want[at]);
}

#[test]
fn functions_of_f64_are_a_few_ulp_off_everywhere() {
    let data = everywhere();
    check_map("exp", &data, 2.0);
    check_map("log", &data, 1.0);
    check_map("tanh", &data, 5.0);
    // The reference's series is 7 ulp off itself: see below.
    check_map("erf", &data, 12.0);
    // The exponential's error, the sum's and the reciprocal's; rounded again where it is subnormal.
    check_map("sigmoid", &data, 4.0);
}

#[test]
fn erf_is_right_to_the_last_place_or_two() {
    // From 30 digits.
    let known = [
        (1.9722, 0.994_714_721_421_647_4),
        (0.5, 0.520_499_877_813_046_5),
        (1.0, 0.842_700_792_949_714_9),
        (3.0, 0.999_977_909_503_001_4),
        (5.5, 0.999_999_999_999_992_6),
        (1e-300, 1.128_379_167_095_512_6e-300),
    ];
    let (x, want): (Vec<f64>, Vec<f64>) = known.into_iter().unzip();
    let (ulps, at) = worst(&map("erf", &x).0, &want);
    assert!(ulps <= 2.0, "erf({}) is {ulps} ulp off", x[at]);
}

#[test]
fn sines_are_right_up_to_large_arguments() {
    let data: Vec<f64> =
        everywhere().into_iter().filter(|x| x.is_nan() || x.abs() <= 1e8).collect();
    for op in ["sin", "cos"] {
        let (got, want) = map(op, &data);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let same = (got - want).abs() <= 3e-16 || got.is_nan() && want.is_nan();
            assert!(same, "{op}({:e}) is {got:e}, not {want:e}", data[i]);
        }
    }
}

#[test]
fn powers_of_f64_are_a_few_ulp_off_and_special_as_the_standard_says() {
    let special = [0.0, 1.0, 0.5, 2.0, 3.0, 1e300, 1e-300, 5e-324, f64::INFINITY, f64::NAN];
    let special: Vec<f64> = special.iter().flat_map(|&x| [x, -x]).collect();
    let mut pairs: Vec<(f64, f64)> =
        special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))).collect();
    for i in 1..60 {
        for j in -60..60 {
            pairs.push((1.9f64.powi(i - 30), f64::from(j) * 0.731));
            pairs.push((1.0 + f64::from(i) * 1e-3, f64::from(j) * 97.3));
            pairs.push((f64::from(i - 30), f64::from(j)));
        }
    }
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let (got, want) = zip("pow", [DType::F64, DType::F64], &x, &y);
    let (got, want) = (got.to_f64(), want.to_f64());
    let (ulps, at) = worst(&got, &want);
    assert!(ulps <= 4.0, "{:e} to {:e} is {:e}, not {:e}", x[at], y[at], got[at], want[at]);
}

#[test]
fn powers_of_integers_are_exact() {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for base in [-7, -3, -2, -1, 0, 1, 2, 3, 5, 10, 11, 100] {
        for exponent in [-3, -2, -1, 0, 1, 2, 3, 4, 7, 9, 12, 31, 40, 64, 65] {
            x.push(f64::from(base));
            y.push(f64::from(exponent));
        }
    }
    for base in [DType::I8, DType::U8, DType::I32, DType::U32, DType::I64, DType::U64] {
        for exponent in [DType::I8, DType::I32, DType::I64, DType::U8, DType::U64] {
            let (got, want) = zip("pow", [base, exponent], &x, &y);
            assert_eq!(got.to_i64(), want.to_i64(), "{base} to {exponent}");
        }
    }
    // Whole parts of powers that are floats: saturated, and exact below 2⁴⁸.
    for base in [DType::I8, DType::U8, DType::I32, DType::U32] {
        for exponent in [DType::F32, DType::F64] {
            let halves: Vec<f64> = y.iter().map(|y| y / 2.0).collect();
            for exponents in [&y, &halves] {
                let (got, want) = zip("pow", [base, exponent], &x, exponents);
                assert_eq!(got.to_i64(), want.to_i64(), "{base} to {exponent}");
            }
        }
    }
}

#[test]
fn remainders_of_floats_are_exact() {
    let numbers = [0.0, 1.0, 3.0, 7.5, 0.1, 1e10, 1e30, 3.4e38, 1e-30, 1.2e-38, 1e-45, 5.3];
    let more = [f64::INFINITY, f64::NAN, 1e300, 1e-300, 5e-324, f64::MAX, 0.3];
    for (dtype, with) in [(DType::F32, &more[..2]), (DType::F64, &more[..])] {
        let all: Vec<f64> = numbers.iter().chain(with).flat_map(|&x| [x, -x]).collect();
        let pairs = all.iter().flat_map(|&x| all.iter().map(move |&y| (x, y)));
        let (x, y): (Vec<f64>, Vec<f64>) = pairs.unzip();
        for op in ["fmod", "mod"] {
            let (got, want) = zip(op, [dtype, dtype], &x, &y);
            for (i, (got, want)) in got.to_f64().into_iter().zip(want.to_f64()).enumerate() {
                let same = got == want || got.is_nan() && want.is_nan();
                assert!(same, "{op} {dtype} {:e}, {:e} is {got:e}, not {want:e}", x[i], y[i]);
            }
        }
    }
}

#[test]
fn an_error_is_seen() {
    assert_eq!(ulps(1.0, 1.0), 0.0);
    assert_eq!(ulps(1.0f64.next_up(), 1.0), 1.0);
    assert_eq!(ulps(f64::NAN, 1.0), f64::INFINITY);
    assert!(worst(&[1.0, 2.0, 3.5], &[1.0, 2.0, 3.0]).1 == 2);
}
