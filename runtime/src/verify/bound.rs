//! The oracle's values with the error that a plain kernel of the same precision may make: a running
//! error analysis of the region.
//!
//! Every value `v` of the region is computed in `f64`, and beside it a bound `e` of how far a kernel
//! may be from it that evaluates the region operator by operator in the precision of its element
//! types, in any order of summation. `u` is the unit roundoff (2⁻²⁴ for `f32`).
//!
//! - An input or constant has `e = 0`.
//! - A map adds its rounding, `k·u·|v|`, to the error that its operands' errors cause: for monotone
//!   functions the change of the function over `[x−e, x+e]`, for `+ − × ÷` the usual first-order
//!   terms. `k` is in `rounding`: 2 for what IEEE 754 rounds once (so that `x/y` may be `x·(1/y)`),
//!   more for functions, by what a plain implementation of each loses.
//! - Decisions (comparisons, floor, argmax …) are exact where the operands' errors cannot change
//!   them; elsewhere either decision is right, and what depends on it is bounded accordingly.
//! - Movement moves errors with the elements.
//! - A sum of `K` terms `tᵢ` adds `c·u·√K·M` to the (linearly) summed errors of its terms. `M` bounds
//!   the partial sums: each of the `K` roundings is at most `u·|partial sum|`, they are independent
//!   with mean 0 (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019), so their sum has deviation at most
//!   `u/√3 · √(Σ partial²)` and exceeds ten deviations practically never: `c = 6 > 10/√3`.
//!   In general `M = Σ|tᵢ|`. On [`Family::Normal`] inputs the terms are in random order, and a partial
//!   sum of `k` of them is `k/K·v` give or take `√k · rms(t)`: `M = √(v² + Σtᵢ²)`. This is tighter by
//!   `√K`, and it is what a lower precision fails: with operands rounded to `r` bits the error is
//!   about `2⁻ʳ·√(Σtᵢ²)`, for tf32 (`r = 11`) 8192/√K of ours, more than 8 times `c` up to K = 20,000.
//!   For contractions, whose terms are products, `Σ|x·y|` is bounded by `√(Σx²·Σy²)`, and `Σ(x·y)²` of terms in
//!   random order estimated by `Σx²·Σy²/K`: so the bound costs next to nothing beside the oracle.
//! - A value beyond the largest finite number of its type may be anything, and so may all that
//!   depends on it; so may what is between underflow and zero, by the smallest normal number.
//!
//! The bound of an output is [`SLACK`]` · e`.

mod maps;
mod sums;

use std::borrow::Cow;

use cranelift_entity::SecondaryMap;
use eggine_ir::graph::eval::{Array, Data, Rounding, eval_op};
use eggine_ir::graph::{NodeKind, OpClass};
use eggine_ir::{Attr, Attrs, DType, Graph, Op, Tensor, TensorType, Value};

use super::inputs::Family;

/// Second-order terms of the analysis, which it leaves out, and implementations that round an
/// intermediate result twice.
pub const SLACK: f64 = 2.0;

/// What one output must be.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The oracle's elements.
    pub values: Vec<f64>,
    /// For integers and booleans: the elements, exactly.
    pub ints: Option<Vec<i64>>,
    /// The running error of each element; `None` if every element is exact.
    errors: Option<Vec<f64>>,
}

impl Reference {
    /// How far an element may be from the oracle's; 0 where it must be equal, infinite where it may be
    /// anything.
    pub fn bound(&self, index: usize) -> f64 {
        self.errors.as_ref().map_or(0.0, |errors| SLACK * errors[index])
    }

    /// Memory that it takes.
    pub fn n_bytes(&self) -> usize {
        8 * (self.values.len()
            + self.ints.as_ref().map_or(0, Vec::len)
            + self.errors.as_ref().map_or(0, Vec::len))
    }
}

/// A value of the region with its running error.
#[derive(Clone)]
struct Bounded {
    array: Array,
    /// Not negative, infinite where anything goes; `None` if exact.
    error: Option<Vec<f64>>,
}

impl Bounded {
    fn exact(array: Array) -> Self {
        Self { array, error: None }
    }

    fn floats(&self) -> Cow<'_, [f64]> {
        match &self.array.data {
            Data::Float(data) => Cow::Borrowed(data),
            Data::Int(_) => Cow::Owned(self.array.to_f64()),
        }
    }

    fn error_array(&self) -> Option<Array> {
        let error = self.error.clone()?;
        Some(float_array(&self.array.extents, error))
    }
}

/// An `f64` array, as errors and magnitudes are, whatever the type of what they belong to.
fn float_array(extents: &[usize], data: Vec<f64>) -> Array {
    Array { dtype: DType::F64, extents: extents.to_vec(), data: Data::Float(data) }
}

fn take_floats(array: Array) -> Vec<f64> {
    match array.data {
        Data::Float(data) => data,
        Data::Int(_) => array.to_f64(),
    }
}

fn f64_of(ty: &TensorType) -> TensorType {
    TensorType { dtype: DType::F64, shape: ty.shape.clone() }
}

/// Unit roundoff of storing in a type. The oracle itself computes in `f64`: kernels of that type
/// are held to 8 roundings of it.
fn unit_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 2f64.powi(-50),
        DType::F32 => 2f64.powi(-24),
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F8E4M3 => 2f64.powi(-4),
        DType::F8E5M2 => 2f64.powi(-3),
        _ => 0.0,
    }
}

/// Unit roundoff of arithmetic on a type: narrow types are computed in `f32`.
fn arithmetic_roundoff(dtype: DType) -> f64 {
    if dtype == DType::F64 { unit_roundoff(DType::F64) } else { unit_roundoff(DType::F32) }
}

/// What may be lost to underflow: the smallest normal number (a device may flush what is smaller).
fn underflow(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F32 | DType::BF16 => 2f64.powi(-126),
        DType::F16 => 2f64.powi(-14),
        DType::F8E4M3 => 2f64.powi(-6),
        DType::F8E5M2 => 2f64.powi(-14),
        _ => 0.0,
    }
}

fn max_finite(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F32 => f64::from(f32::MAX),
        DType::F16 => 65504.0,
        DType::BF16 => 3.389_531_389_251_535_5e38,
        DType::F8E4M3 => 448.0,
        DType::F8E5M2 => 57344.0,
        _ => f64::INFINITY,
    }
}

/// Whether a graph only moves elements: then not even the sign of a zero may change.
pub fn moves_only(graph: &Graph) -> bool {
    graph.nodes.values().all(|node| match &node.kind {
        NodeKind::Apply(op, _, _) => op.spec().class == OpClass::Move && *op != Op::Resize,
        _ => true,
    })
}

/// Evaluates a graph with bounds. `family` is the kind of the inputs: see the [module](self).
///
/// # Panics
///
/// If the graph does not verify, or the inputs are not of its input types.
pub fn evaluate(graph: &Graph, inputs: &[Tensor], family: Family) -> Vec<Reference> {
    let mut n_uses: SecondaryMap<Value, usize> = SecondaryMap::new();
    for node in graph.nodes.values() {
        if let NodeKind::Apply(_, _, args) = &node.kind {
            args.iter().for_each(|&arg| n_uses[arg] += 1);
        }
    }
    graph.outputs.iter().for_each(|&value| n_uses[value] += 1);
    let mut values: SecondaryMap<Value, Option<Bounded>> = SecondaryMap::new();
    let mut inputs = inputs.iter();
    for (value, node) in graph.nodes.iter() {
        values[value] = match &node.kind {
            NodeKind::Const(tensor) => Some(Bounded::exact(Array::from_tensor(tensor))),
            NodeKind::Input { .. } => {
                let tensor = inputs.next().expect("one tensor per input");
                Some(Bounded::exact(Array::from_tensor(tensor)))
            }
            NodeKind::Apply(..) if n_uses[value] == 0 => None,
            NodeKind::Apply(op, attrs, args) => {
                let operands: Vec<&Bounded> =
                    args.iter().map(|&arg| values[arg].as_ref().expect("defined before")).collect();
                let result = apply(*op, attrs, &operands, &node.ty, family);
                for &arg in args {
                    n_uses[arg] -= 1;
                    if n_uses[arg] == 0 {
                        values[arg] = None;
                    }
                }
                Some(result)
            }
        };
    }
    let reference = |&value: &Value| {
        let Bounded { array, error } = values[value].as_ref().expect("outputs are defined");
        let ints = if let Data::Int(ints) = &array.data { Some(ints.clone()) } else { None };
        Reference { values: array.to_f64(), ints, errors: error.clone() }
    };
    graph.outputs.iter().map(reference).collect()
}

fn apply(op: Op, attrs: &Attrs, operands: &[&Bounded], ty: &TensorType, family: Family) -> Bounded {
    let arrays: Vec<&Array> = operands.iter().map(|operand| &operand.array).collect();
    let array = eval_op(op, attrs, &arrays, ty, Rounding::None);
    let exact = operands.iter().all(|operand| operand.error.is_none());
    let error = match op {
        Op::Neg | Op::Abs | Op::Relu => operands[0].error.clone(),
        Op::Sign | Op::Floor | Op::Ceil | Op::Round | Op::Not | Op::IsNan => {
            maps::monotone(op, attrs, operands[0], &array, ty, |_, _| 0.0)
        }
        Op::Exp
        | Op::Log
        | Op::Sqrt
        | Op::Rsqrt
        | Op::Recip
        | Op::Erf
        | Op::Tanh
        | Op::Sigmoid
        | Op::Cast => {
            let (from, to) = (operands[0].array.dtype, ty.dtype);
            maps::monotone(op, attrs, operands[0], &array, ty, |x, v| rounding(op, from, to, x, v))
        }
        Op::Sin | Op::Cos => {
            maps::lipschitz(operands[0], &array, |x, v| rounding(op, ty.dtype, ty.dtype, x, v))
        }
        Op::Add
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Mod
        | Op::Fmod
        | Op::Pow
        | Op::Min
        | Op::Max => maps::arithmetic(op, operands[0], operands[1], &array),
        Op::And | Op::Or | Op::Xor => maps::bitwise(operands[0], operands[1], &array),
        Op::Eq | Op::Lt | Op::Le => maps::comparison(operands[0], operands[1], &array),
        Op::Select => maps::select(operands[0], operands[1], operands[2], &array),
        Op::Iota => None,
        Op::Gather => match &operands[1].error {
            // An index that may be either of two reads anything.
            Some(error) if error.iter().any(|&e| e > 0.0) => {
                Some(vec![f64::INFINITY; array.n_elems()])
            }
            _ => operands[0].error_array().map(|error| {
                let moved = eval_op(op, attrs, &[&error, arrays[1]], &f64_of(ty), Rounding::None);
                take_floats(moved)
            }),
        },
        Op::Reshape | Op::Transpose | Op::Expand | Op::Slice | Op::Concat if exact => None,
        Op::Pad if exact => None,
        Op::Reshape | Op::Transpose | Op::Expand | Op::Slice | Op::Concat | Op::Pad => {
            let mut attrs = attrs.clone();
            if op == Op::Pad {
                attrs.0[3] = Attr::float(0.0);
            }
            let errors: Vec<Array> = operands
                .iter()
                .map(|operand| {
                    let zeros =
                        || float_array(&operand.array.extents, vec![0.0; operand.array.n_elems()]);
                    operand.error_array().unwrap_or_else(zeros)
                })
                .collect();
            let errors: Vec<&Array> = errors.iter().collect();
            Some(take_floats(eval_op(op, &attrs, &errors, &f64_of(ty), Rounding::None)))
        }
        Op::Resize => maps::resize(attrs, operands[0], &array),
        Op::ReduceMax | Op::ReduceMin | Op::MaxPool => operands[0].error_array().map(|error| {
            let op = if op == Op::MaxPool { Op::MaxPool } else { Op::ReduceMax };
            let most = take_floats(eval_op(op, attrs, &[&error], &f64_of(ty), Rounding::None));
            // The maximum over an empty window or axis is −∞.
            most.into_iter().map(|e| if e >= 0.0 { e } else { 0.0 }).collect()
        }),
        Op::ArgMax | Op::ArgMin => sums::arg(op, attrs, operands[0], ty),
        Op::ReduceSum | Op::SumPool => sums::sum(op, attrs, operands[0], &array, ty, family),
        Op::ReduceProd => sums::product(attrs, operands[0], &array, ty),
        Op::Matmul | Op::Conv | Op::ConvTranspose => {
            sums::contraction(op, attrs, operands[0], operands[1], &array, family)
        }
    };
    let error = error.map(|mut error| {
        settle(&mut error, &array);
        error
    });
    // Exactness is worth keeping: it is what makes later decisions exact.
    let error = error.filter(|error| error.iter().any(|&e| e != 0.0));
    Bounded { array, error }
}

/// Gives errors that are no number, or whose value may be beyond its type, their meaning.
fn settle(error: &mut [f64], array: &Array) {
    let Data::Float(values) = &array.data else {
        error.iter_mut().filter(|e| e.is_nan()).for_each(|e| *e = f64::INFINITY);
        return;
    };
    let largest = max_finite(array.dtype);
    for (e, v) in error.iter_mut().zip(values) {
        if e.is_nan() || v.is_finite() && v.abs() + *e > largest {
            *e = f64::INFINITY;
        }
    }
}

/// The error of the operation itself on exact operands: `x` in, `v` out.
///
/// For functions this is what a plain implementation in the precision of the type loses; see
/// CUDA's table of single-precision functions for comparison (exp 2 ulp, erf 2, tanh 2, sin 2).
fn rounding(op: Op, from: DType, to: DType, x: f64, v: f64) -> f64 {
    let u = arithmetic_roundoff(to);
    let relative = match op {
        Op::Cast => {
            // Exact unless bits are lost; integers lose them beyond the mantissa. Floats of 8 and fewer bits
            // are rounded by the same rule in every kernel.
            let exact = !to.is_float()
                || to.bits() <= 8
                || (from.is_float() && unit_roundoff(from) >= unit_roundoff(to))
                || (!from.is_float() && v.abs() <= 1.0 / unit_roundoff(to));
            return if exact { 0.0 } else { unit_roundoff(to) * v.abs() + underflow(to) };
        }
        // 2^(x·log₂e): the rounding of the product is an absolute error of the exponent.
        Op::Exp => 8.0 + 2.0 * x.abs(),
        // e·ln 2 + log of the mantissa: a few ulp of 1 where they cancel.
        Op::Log => 8.0 + 4.0 / v.abs(),
        Op::Sqrt | Op::Recip => 2.0,
        Op::Rsqrt => 4.0,
        // A polynomial, or 1 minus one: a few ulp of 1 for large arguments.
        Op::Erf => 16.0,
        Op::Tanh => 16.0,
        // 1/(1 + exp(−x)): the exponential's error counts as far as it is not drowned by 1.
        Op::Sigmoid => 12.0 + 2.0 * x.abs() * (1.0 - v),
        // Range reduction in three parts, then a polynomial: ulp of 1.
        Op::Sin | Op::Cos => (8.0 + x.abs() / 128.0) / v.abs(),
        _ => 2.0,
    };
    let lost = match v {
        // The errors above that are absolute, at their limit.
        0.0 if op == Op::Log => 4.0 * u,
        0.0 if matches!(op, Op::Sin | Op::Cos) => (8.0 + x.abs() / 128.0) * u,
        0.0 => 0.0,
        _ if !v.is_finite() => 0.0,
        _ => relative * u * v.abs(),
    };
    lost + if v.is_finite() { stored(to, v) } else { 0.0 }
}

/// The error of storing a result in a narrow type, and of underflow.
fn stored(dtype: DType, v: f64) -> f64 {
    let narrow = unit_roundoff(dtype) > arithmetic_roundoff(dtype);
    underflow(dtype) + if narrow { unit_roundoff(dtype) * v.abs() } else { 0.0 }
}
