//! Floats of 8 and 4 bits and integers of 4 and 2: all codes, and every number at which rounding to one
//! changes, on the cpu device and in the kernel IR's evaluator, bit for bit what the reference says.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::device::Ready;
use common::run_kir;
use eggine_codegen_ptx::{CPU_DEVICE, first_choices, lower};
use eggine_cpu::Options;
use eggine_ir::graph::eval::{Array, Data};
use eggine_ir::{DType, Region, Tensor};

const FLOATS: [DType; 6] = [
    DType::F8E4M3,
    DType::F8E5M2,
    DType::F8E4M3FNUZ,
    DType::F8E5M2FNUZ,
    DType::F8E8M0,
    DType::F4E2M1,
];
const INTS: [DType; 4] = [DType::I4, DType::U4, DType::I2, DType::U2];

fn region(text: &str) -> Region {
    Region::contiguous(eggine_ir::graph::parse(text).unwrap())
}

/// The first element that is not what it should be; NaN is any NaN, and zeros have signs.
fn difference(want: &Array, got: &Tensor) -> Option<String> {
    assert_eq!(want.ty(), got.ty());
    if let Data::Int(want) = &want.data {
        let got = got.to_i64();
        let at = want.iter().zip(&got).position(|(x, y)| x != y)?;
        return Some(format!("element {at} is {}, not {}", got[at], want[at]));
    }
    let (want, got) = (want.to_f64(), got.to_f64());
    let same = |x: &f64, y: &f64| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
    let at = want.iter().zip(&got).position(|(x, y)| !same(x, y))?;
    Some(format!("element {at} is {:e}, not {:e}", got[at], want[at]))
}

/// Every family's first kernel against the reference.
fn check(region: &Region, inputs: &[Tensor]) {
    let want = region.oracle(inputs);
    let choices = first_choices(region, &CPU_DEVICE);
    assert!(!choices.is_empty(), "no family computes {:?}", region.graph);
    for (_, schedule, _) in choices {
        let lowered = lower(region, &schedule).unwrap();
        let in_kir = run_kir(&lowered, region, inputs).unwrap();
        let ready = Ready::new(lowered, region, inputs).unwrap();
        ready.launch(&Options { checking: true, ..Options::default() }).unwrap();
        for got in [in_kir, ready.outputs(region)] {
            for (want, got) in want.iter().zip(&got) {
                if let Some(difference) = difference(want, got) {
                    panic!("{schedule}, {}: {difference}\n{}", want.ty(), region.graph);
                }
                // Bits behind the last element of the last byte are 0.
                let used = got.n_elems() * got.dtype.bits();
                if used % 8 != 0 {
                    assert_eq!(got.bytes[used / 8] >> (used % 8), 0, "{}", got.ty());
                }
            }
        }
    }
}

fn check_cast(input: Tensor, to: DType) {
    let (from, n) = (input.dtype, input.n_elems());
    let text =
        format!("graph @g(v0: {from}[{n}]) {{\n    v1 = cast v0 {{to={to}}}\n    return v1\n}}\n");
    check(&region(&text), &[input]);
}

/// All codes of a type of at most 8 bits.
fn codes(dtype: DType) -> Tensor {
    let all: Vec<u8> = match dtype.bits() {
        8 => (0..=255).collect(),
        4 => (0..8).map(|i| (2 * i) | (2 * i + 1) << 4).collect(),
        _ => vec![0b1110_0100],
    };
    Tensor::new(dtype, &[1 << dtype.bits()], all)
}

/// Numbers of the type, the middles between neighbours, and what is beyond the ends.
fn boundaries(dtype: DType) -> Vec<f64> {
    let mut numbers: Vec<f64> =
        codes(dtype).to_f64().into_iter().filter(|x| x.is_finite()).collect();
    numbers.sort_by(f64::total_cmp);
    let middles: Vec<f64> = numbers.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
    let last = numbers[numbers.len() - 1];
    let step = last - numbers[numbers.len() - 2];
    let beyond = [last + step / 4.0, last + step / 2.0, last + step, 2.0 * last];
    let special = [0.0, f64::INFINITY, f64::NAN, f64::MIN_POSITIVE, 1e-45, 2f64.powi(-127), 1e300];
    let all = numbers.into_iter().chain(middles).chain(beyond).chain(special);
    all.flat_map(|x| [x, -x]).collect()
}

fn next(x: f64, dtype: DType, up: bool) -> f64 {
    match dtype {
        DType::F32 => f64::from(if up { (x as f32).next_up() } else { (x as f32).next_down() }),
        DType::F64 if up => x.next_up(),
        DType::F64 => x.next_down(),
        _ => x,
    }
}

#[test]
fn every_code_is_read_as_the_reference_reads_it() {
    for from in FLOATS.into_iter().chain(INTS) {
        for to in
            [DType::F32, DType::F16, DType::F64, DType::I8, DType::I64, DType::U64, DType::Bool]
        {
            check_cast(codes(from), to);
        }
        for to in FLOATS.into_iter().chain(INTS) {
            check_cast(codes(from), to);
        }
    }
}

#[test]
fn numbers_are_rounded_to_floats_of_8_and_4_bits_as_the_reference_rounds() {
    for to in FLOATS {
        for from in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let exact = boundaries(to);
            let around = |&x: &f64| [x, next(x, from, true), next(x, from, false)];
            let data: Vec<f64> = exact.iter().flat_map(around).collect();
            check_cast(Tensor::from_f64(from, &[data.len()], &data), to);
        }
        for from in
            [DType::I8, DType::U8, DType::I16, DType::I32, DType::I64, DType::U64, DType::Bool]
        {
            let data: Vec<i64> = (boundaries(to).iter())
                .flat_map(|&x| [x as i64, (x as i64).wrapping_sub(1), (x as i64).wrapping_add(1)])
                .chain([(3 << 24) - 1, (3 << 53) - 1])
                .collect();
            check_cast(Tensor::from_i64(from, &[data.len()], &data), to);
        }
    }
}

#[test]
fn whole_parts_wrap_to_integers_of_4_and_2_bits() {
    let mut data: Vec<f64> = (-40..40).map(|i| f64::from(i) / 2.0).collect();
    for power in [30, 31, 32, 33, 62, 63, 64, 126, 127] {
        let limit = 2f64.powi(power);
        data.extend([limit, -limit, limit + 1.0, 1.0 - limit]);
    }
    data.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MAX]);
    for to in INTS {
        for from in [DType::F32, DType::F64, DType::F16] {
            check_cast(Tensor::from_f64(from, &[data.len()], &data), to);
        }
        let ints: Vec<i64> = (-33..33).chain([i64::MIN, i64::MAX]).collect();
        for from in [DType::I8, DType::U8, DType::I32, DType::U32, DType::I64, DType::U64] {
            check_cast(Tensor::from_i64(from, &[ints.len()], &ints), to);
        }
    }
}

#[test]
fn elements_of_every_width_are_moved_and_chosen_bit_for_bit() {
    for dtype in FLOATS.into_iter().chain(INTS) {
        // Odd extents: rows do not begin at a byte, and the last byte is not full.
        let bytes = |n: usize, by: usize| -> Tensor {
            let data: Vec<u8> = (0..dtype.bytes_for(n)).map(|i| (i * by + 11 * by) as u8).collect();
            Tensor::new(dtype, &[n], data)
        };
        let (x, y) = (bytes(35, 37).reshaped(&[5, 7]), bytes(21, 91).reshaped(&[3, 7]));
        let text = format!(
            "graph @moves(v0: {dtype}[5,7], v1: {dtype}[3,7], v2: i64[4], v3: bool[7]) {{
    v4 = transpose v0 {{perm=[1,0]}}
    v5 = concat v0, v1 {{axis=0}}
    v6 = gather v5, v2 {{axis=0}}
    v7 = slice v0 {{starts=[4,1], extents=[3,3], steps=[-2,2]}}
    v8 = pad v1 {{before=[1,2], after=[0,3], mode=constant, value=1.0}}
    v9 = slice v0 {{starts=[1,0], extents=[3,7], steps=[1,1]}}
    v10 = select v3, v9, v1
    return v4, v5, v6, v7, v8, v10
}}
"
        );
        let indices = Tensor::i64(&[4], &[7, 0, -1, 3]);
        let conditions = Tensor::new(DType::Bool, &[7], vec![1, 0, 0, 1, 1, 0, 1]);
        check(&region(&text), &[x, y, indices, conditions]);
    }
}

#[test]
fn a_float_of_8_bits_is_compared_and_computed_with_as_its_number() {
    for dtype in FLOATS {
        let text = format!(
            "graph @maps(v0: {dtype}[{n}], v1: {dtype}[{n},1]) {{
    v2 = isnan v0
    v3 = lt v0, v1
    v4 = eq v0, v1
    v5 = abs v0
    return v2, v3, v4, v5
}}
",
            n = 1 << dtype.bits()
        );
        let all = codes(dtype);
        let other = all.reshaped(&[all.n_elems(), 1]);
        check(&region(&text), &[all, other]);
    }
}

#[test]
fn a_wrong_code_is_noticed() {
    let region = region("graph @g(v0: f32[2]) {\n    v1 = cast v0 {to=f8e4m3}\n    return v1\n}\n");
    let want = &region.oracle(&[Tensor::f32(&[2], &[1.0, 0.0])])[0];
    let one_off = Tensor::new(DType::F8E4M3, &[2], vec![0x39, 0]);
    assert!(difference(want, &one_off).unwrap().starts_with("element 0"));
    let sign = Tensor::new(DType::F8E4M3, &[2], vec![0x38, 0x80]);
    assert!(difference(want, &sign).unwrap().starts_with("element 1"));
    assert_eq!(difference(want, &Tensor::new(DType::F8E4M3, &[2], vec![0x38, 0])), None);
}
