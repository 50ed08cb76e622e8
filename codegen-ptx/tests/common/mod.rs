//! Regions of the table, seeded inputs, and the comparison with the oracle.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod device;

use eggine_codegen_ptx::{Binding, Lowered, kir};
use eggine_ir::graph::eval::{Array, Data};
use eggine_ir::{DType, Region, Tensor};

/// All regions of the table.
pub(crate) fn regions() -> Vec<Region> {
    let text = include_str!("../regions/all.gir");
    let graphs = text.split("\n}").map(str::trim).filter(|graph| graph.contains("graph @"));
    graphs
        .map(|graph| {
            Region::contiguous(eggine_ir::graph::parse(&format!("{graph}\n}}\n")).unwrap())
        })
        .collect()
}

/// Numbers in [−1, 1), the same on every machine.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f64) / f64::from(1 << 23) - 1.0
    }
}

/// Inputs of a region.
pub(crate) fn inputs_of(region: &Region) -> Vec<Tensor> {
    let mut noise = Noise(7);
    let types = region.graph.inputs().map(|value| region.graph.ty(value).clone());
    types
        .map(|ty| {
            let n = ty.n_elems();
            match ty.dtype {
                dtype if dtype.is_float() => {
                    let data: Vec<f64> = (0..n).map(|_| noise.next() * 2.0).collect();
                    Tensor::from_f64(dtype, &ty.extents(), &data)
                }
                dtype => {
                    let data: Vec<i64> = (0..n).map(|_| (noise.next() * 9.0) as i64).collect();
                    Tensor::from_i64(dtype, &ty.extents(), &data)
                }
            }
        })
        .collect()
}

/// The tensors of a kernel's parameters; outputs are poisoned.
pub(crate) fn parameters(lowered: &Lowered, region: &Region, inputs: &[Tensor]) -> Vec<Tensor> {
    let parameter = |binding: &Binding| match binding {
        Binding::Input { index, packing: None } => inputs[*index].clone(),
        Binding::Input { index, packing: Some(packing) } => packing.apply(&inputs[*index]),
        Binding::Output { index } => {
            let ty = region.graph.ty(region.graph.outputs[*index]);
            Tensor::new(ty.dtype, &ty.extents(), vec![0xff; ty.n_bytes()])
        }
        Binding::Table(tensor) => tensor.clone(),
    };
    lowered.bindings.iter().map(parameter).collect()
}

/// Outputs, from the parameters after a run.
pub(crate) fn outputs(lowered: &Lowered, region: &Region, parameters: &[Tensor]) -> Vec<Tensor> {
    let output = |i: usize| {
        lowered.bindings.iter().position(|b| *b == Binding::Output { index: i }).unwrap()
    };
    (0..region.graph.outputs.len()).map(|i| parameters[output(i)].clone()).collect()
}

/// Runs a kernel with the kernel IR's evaluator.
pub(crate) fn run_kir(
    lowered: &Lowered,
    region: &Region,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, String> {
    let mut tensors = parameters(lowered, region, inputs);
    let mut buffers: Vec<Vec<u8>> = tensors.iter().map(|tensor| tensor.bytes.to_vec()).collect();
    kir::eval::eval(&lowered.kernel, &mut buffers).map_err(|err| err.to_string())?;
    for (tensor, bytes) in tensors.iter_mut().zip(buffers) {
        *tensor = Tensor::new(tensor.dtype, &tensor.extents.clone(), bytes);
    }
    Ok(outputs(lowered, region, &tensors))
}

/// The first difference that is too large: 3e-6 of the largest magnitude for `f32`, 3e-3 for 16 bits.
pub(crate) fn compare(want: &[Array], got: &[Tensor]) -> Option<String> {
    for (i, (want, got)) in want.iter().zip(got).enumerate() {
        if want.dtype != got.dtype || want.n_elems() != got.n_elems() {
            return Some(format!("output {i}: {} wanted, {} found", want.ty(), got.ty()));
        }
        let exact = matches!(want.data, Data::Int(_));
        let (want, found) = (want.to_f64(), got.to_f64());
        let largest = want
            .iter()
            .fold(0.0f64, |most, x| if x.is_finite() { most.max(x.abs()) } else { most });
        let tolerance = match got.dtype {
            _ if exact => 0.0,
            DType::F16 | DType::BF16 => 3e-3 * largest,
            _ => 3e-6 * largest,
        };
        for (at, (x, y)) in want.iter().zip(&found).enumerate() {
            let same = x == y || (x - y).abs() <= tolerance || (x.is_nan() && y.is_nan());
            if !same {
                let n_wrong =
                    want.iter().zip(&found).filter(|(x, y)| (*x - *y).abs() > tolerance).count();
                return Some(format!(
                    "output {i}, element {at}: {x} wanted, {y} found ({n_wrong} of {} differ)",
                    want.len()
                ));
            }
        }
    }
    None
}
