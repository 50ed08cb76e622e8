//! PTX of small kernels, as snapshots, and that their evaluation is right.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod kernels;

use eggine_codegen_ptx::kir::eval::eval;
use eggine_codegen_ptx::{Target, emit};

fn f32s(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn to_f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|&le| f32::from_le_bytes(le)).collect()
}

fn pseudo(i: usize) -> f32 {
    ((i * 37 + 11) % 101) as f32 / 16.0 - 3.0
}

#[test]
fn ptx_of_small_kernels() {
    for kernel in kernels::all() {
        insta::assert_snapshot!(kernel.name.clone(), emit(&kernel, Target::Sm80).unwrap());
    }
}

#[test]
fn emission_is_deterministic() {
    for (first, second) in kernels::all().iter().zip(kernels::all()) {
        assert_eq!(*first, second);
        assert_eq!(emit(first, Target::Sm90a).unwrap(), emit(&second, Target::Sm90a).unwrap());
    }
}

#[test]
fn axpy_evaluates() {
    let x: Vec<f32> = (0..1000).map(pseudo).collect();
    let y: Vec<f32> = (0..1000).map(|i| pseudo(i + 5)).collect();
    let mut buffers = [f32s(x.clone()), f32s(y.clone())];
    eval(&kernels::axpy(), &mut buffers).unwrap();
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x.mul_add(2.5, *y)).collect();
    assert_eq!(to_f32s(&buffers[1]), expected);
}

#[test]
fn matmul_evaluates() {
    let a: Vec<f32> = (0..32 * 24).map(pseudo).collect();
    let b: Vec<f32> = (0..24 * 32).map(|i| pseudo(i + 3)).collect();
    let mut buffers = [f32s(a.clone()), f32s(b.clone()), vec![0; 32 * 32 * 4]];
    eval(&kernels::matmul(), &mut buffers).unwrap();
    let c = to_f32s(&buffers[2]);
    for row in 0..32 {
        for col in 0..32 {
            let sum = (0..24).fold(0f32, |sum, k| a[row * 24 + k].mul_add(b[k * 32 + col], sum));
            assert_eq!(c[row * 32 + col], sum, "{row} {col}");
        }
    }
}

#[test]
fn stencil_evaluates() {
    let x: Vec<f32> = (0..63).map(pseudo).collect();
    let w: Vec<f32> = (0..9).map(|i| pseudo(i + 1)).collect();
    let mut buffers = [f32s(x.clone()), f32s(w.clone()), vec![0; 126]];
    eval(&kernels::stencil(), &mut buffers).unwrap();
    for row in 0..7i32 {
        for col in 0..9i32 {
            let mut sum = 0f32;
            for ky in 0..3i32 {
                for kx in 0..3i32 {
                    let (y, xx) = (row + ky - 1, col + kx - 1);
                    let inside = (0..7).contains(&y) && (0..9).contains(&xx);
                    let v = if inside { x[(y * 9 + xx) as usize] } else { 0.0 };
                    sum = v.mul_add(w[(ky * 3 + kx) as usize], sum);
                }
            }
            let at = (row * 9 + col) as usize * 2;
            let bits = u16::from_le_bytes([buffers[2][at], buffers[2][at + 1]]);
            assert_eq!(bits, half::f16::from_f32(sum.max(0.0)).to_bits(), "{row} {col}");
        }
    }
}
