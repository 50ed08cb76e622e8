//! Reference evaluator: the meaning of the graph IR.
//!
//! It computes in `f64` and in exact integers that wrap to their type, reads operators from their
//! table rows, and shares no code with the kernels that it judges. Only matrix products and
//! convolutions are written for speed as well (as `f64` matrix products on all cores), because whole
//! models are evaluated.

mod contract;
mod conv;
mod elementwise;
mod movement;
mod parallel;
mod pool;
mod reduce;
mod resize;
mod special;
mod walk;

pub(super) use contract::matmul;
pub(super) use conv::{conv, conv_transpose};
pub(super) use elementwise::{
    cast, compare, float_mod, int_div, int_mod, int_rem, map, map_float, max_nan, min_nan, pow,
    select, sign, test, zip,
};
pub(super) use movement::{concat, expand, gather, iota, pad, reshape, slice, transpose};
pub(super) use pool::{max_pool, sum_pool};
pub(super) use reduce::{arg, reduce};
pub(super) use resize::resize;
pub use resize::resize_taps;
pub(super) use special::erf;

use cranelift_entity::SecondaryMap;
use half::{bf16, f16};

use super::{Attrs, Graph, NodeKind, Op, TypeError, Value, infer};
use crate::dtype::DTypeClass;
use crate::{DType, Tensor, TensorType};

/// A value of the evaluator: dense, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Element type; decides which [`Data`] it has.
    pub dtype: DType,
    /// Extents, outermost first.
    pub extents: Vec<usize>,
    /// The elements.
    pub data: Data,
}

/// Elements of an [`Array`].
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Of every float type.
    Float(Vec<f64>),
    /// Of integer types and `bool` (0 or 1). Elements are in the range of the type; `u64` is kept as
    /// the `i64` of the same bits.
    Int(Vec<i64>),
}

/// What happens to the `f64` result of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// It stays as it is (a `cast` still rounds to its type): the oracle of kernels and engines.
    None,
    /// It is rounded to the node's type, so that elementwise `f32` operators that IEEE 754 defines
    /// (`add`, `mul`, `div`, `sqrt`, …) agree with `f32` arithmetic bit for bit: the oracle of exact
    /// rewrite rules.
    PerOp,
}

impl Array {
    /// The elements of a tensor.
    pub fn from_tensor(tensor: &Tensor) -> Self {
        let data = match tensor.dtype.is_float() {
            true => Data::Float(tensor.to_f64()),
            false => Data::Int(tensor.to_i64()),
        };
        Self { dtype: tensor.dtype, extents: tensor.extents.clone(), data }
    }

    /// The tensor of these elements, rounded to nearest even.
    pub fn to_tensor(&self) -> Tensor {
        match &self.data {
            Data::Float(data) => Tensor::from_f64(self.dtype, &self.extents, data),
            Data::Int(data) => Tensor::from_i64(self.dtype, &self.extents, data),
        }
    }

    /// The elements as `f64`; integers beyond 2⁵³ are rounded.
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.data {
            Data::Float(data) => data.clone(),
            Data::Int(data) => data.iter().map(|&x| widen(self.dtype, x) as f64).collect(),
        }
    }

    /// Type of the array.
    pub fn ty(&self) -> TensorType {
        TensorType::fixed(self.dtype, &self.extents)
    }

    /// Number of elements.
    pub fn n_elems(&self) -> usize {
        self.extents.iter().product()
    }

    fn with(ty: &TensorType, data: Data) -> Self {
        let array = Self { dtype: ty.dtype, extents: ty.extents(), data };
        debug_assert_eq!(array.n_elems(), array.data.len(), "elements of {ty}");
        debug_assert_eq!(array.dtype.is_float(), matches!(array.data, Data::Float(_)));
        array
    }

    fn floats(&self) -> &[f64] {
        match &self.data {
            Data::Float(data) => data,
            Data::Int(_) => unreachable!("{} where the row asks for floats", self.ty()),
        }
    }

    fn ints(&self) -> &[i64] {
        match &self.data {
            Data::Int(data) => data,
            Data::Float(_) => unreachable!("{} where the row asks for integers", self.ty()),
        }
    }

    /// Rounds the elements to the array's type.
    fn round(&mut self) {
        if let Data::Float(data) = &mut self.data {
            round(self.dtype, data);
        }
    }
}

impl Data {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Data::Float(data) => data.len(),
            Data::Int(data) => data.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Evaluates a verified graph on `inputs`, given in the order of its input nodes. Returns the
/// outputs in order. A value is released after its last use.
///
/// # Panics
///
/// If the graph does not verify, or the inputs are not of its input types.
pub fn eval(graph: &Graph, inputs: &[Tensor], rounding: Rounding) -> Vec<Array> {
    let mut n_uses: SecondaryMap<Value, usize> = SecondaryMap::new();
    let args = graph.nodes.values().filter_map(|node| match &node.kind {
        NodeKind::Apply(_, _, args) => Some(args),
        _ => None,
    });
    for &value in args.flatten().chain(&graph.outputs) {
        n_uses[value] += 1;
    }

    let mut leaves: SecondaryMap<Value, Option<&Tensor>> = SecondaryMap::new();
    let mut values: SecondaryMap<Value, Option<Array>> = SecondaryMap::new();
    let mut inputs = inputs.iter();
    for (value, node) in graph.nodes.iter() {
        match &node.kind {
            // Leaves are converted when they are first used: weights need more than twice the bytes.
            NodeKind::Const(tensor) => leaves[value] = Some(tensor),
            NodeKind::Input { .. } => {
                let tensor = inputs.next().expect("one tensor per input");
                assert_eq!(tensor.ty(), node.ty, "type of input {value}");
                leaves[value] = Some(tensor);
            }
            NodeKind::Apply(..) if n_uses[value] == 0 => (),
            NodeKind::Apply(op, attrs, args) => {
                for &arg in args {
                    if let (None, Some(leaf)) = (&values[arg], leaves[arg]) {
                        values[arg] = Some(Array::from_tensor(leaf));
                    }
                }
                let arrays: Vec<&Array> =
                    args.iter().map(|&arg| values[arg].as_ref().expect("defined before")).collect();
                let result = eval_op(*op, attrs, &arrays, &node.ty, rounding);
                for &arg in args {
                    n_uses[arg] -= 1;
                    if n_uses[arg] == 0 {
                        values[arg] = None;
                    }
                }
                values[value] = Some(result);
            }
        }
    }
    assert!(inputs.next().is_none(), "more tensors than inputs");
    let mut take = |value: Value| match (n_uses[value], leaves[value]) {
        (_, Some(leaf)) => Array::from_tensor(leaf),
        (1, None) => values[value].take().expect("outputs are defined"),
        _ => {
            n_uses[value] -= 1;
            values[value].clone().expect("outputs are defined")
        }
    };
    graph.outputs.iter().map(|&value| take(value)).collect()
}

/// Evaluates one operator; `ty` is its inferred result type.
///
/// # Panics
///
/// If `ty` is not what [`infer`](infer::infer) says of the operands.
pub fn eval_op(
    op: Op,
    attrs: &Attrs,
    args: &[&Array],
    ty: &TensorType,
    rounding: Rounding,
) -> Array {
    let mut result = (op.spec().eval)(args, attrs, ty);
    if rounding == Rounding::PerOp {
        result.round();
    }
    result
}

/// Applies an operator to tensors, as constant folding does: the result is rounded to its type.
///
/// # Errors
///
/// If the operator does not take these operands or attributes.
pub fn fold(op: Op, attrs: &Attrs, args: &[&Tensor]) -> Result<Tensor, TypeError> {
    let types: Vec<TensorType> = args.iter().map(|tensor| tensor.ty()).collect();
    let ty = infer::infer(op, attrs, &types.iter().collect::<Vec<_>>())?;
    let arrays: Vec<Array> = args.iter().map(|tensor| Array::from_tensor(tensor)).collect();
    Ok(eval_op(op, attrs, &arrays.iter().collect::<Vec<_>>(), &ty, Rounding::PerOp).to_tensor())
}

/// Rounds to the nearest value of a float type, ties to even.
fn round(dtype: DType, data: &mut [f64]) {
    match dtype {
        DType::F64 => (),
        DType::F32 => data.iter_mut().for_each(|x| *x = f64::from(*x as f32)),
        DType::F16 => data.iter_mut().for_each(|x| *x = f16::from_f64(*x).to_f64()),
        DType::BF16 => data.iter_mut().for_each(|x| *x = bf16::from_f64(*x).to_f64()),
        _ => {
            let rounded = Tensor::from_f64(dtype, &[data.len()], data).to_f64();
            data.copy_from_slice(&rounded);
        }
    }
}

/// The number that an element of an integer type stands for.
pub(in crate::graph) fn widen(dtype: DType, x: i64) -> i128 {
    match dtype {
        DType::U64 => i128::from(x as u64),
        _ => i128::from(x),
    }
}

/// The element of an integer type that is congruent to `x`; `bool`: whether `x` is not 0.
fn wrap(dtype: DType, x: i128) -> i64 {
    let unused_bits = 128 - dtype.bits();
    match dtype.class() {
        DTypeClass::Signed => (x << unused_bits >> unused_bits) as i64,
        DTypeClass::Bool => i64::from(x != 0),
        _ => ((x as u128) << unused_bits >> unused_bits) as i64,
    }
}

/// The least and the greatest number of an integer type.
pub(in crate::graph) fn int_range(dtype: DType) -> (i128, i128) {
    match dtype.class() {
        DTypeClass::Signed => (-(1 << (dtype.bits() - 1)), (1 << (dtype.bits() - 1)) - 1),
        DTypeClass::Bool => (0, 1),
        _ => (0, (1 << dtype.bits()) - 1),
    }
}

/// The Rust type of elements: `f64` or `i64`.
trait Element: Copy + Send + Sync + 'static {
    const ZERO: Self;
    const ONE: Self;
    fn of(array: &Array) -> &[Self];
    fn data(elements: Vec<Self>, dtype: DType) -> Data;
    fn multiply_add(self, x: Self, acc: Self) -> Self;
    /// See [`resize::interpolate`].
    fn interpolate(
        data: &[Self],
        extents: &[usize],
        axis: usize,
        taps: &[Vec<(usize, f64)>],
    ) -> Vec<Self>;
    /// See [`contract::gemm`], which checks the bounds.
    fn gemm(
        size: [usize; 3],
        a: contract::Matrix<'_, Self>,
        b: contract::Matrix<'_, Self>,
        c: &mut [Self],
        c_row: usize,
    );
}

impl Element for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;

    fn of(array: &Array) -> &[f64] {
        array.floats()
    }

    fn data(elements: Vec<f64>, _: DType) -> Data {
        Data::Float(elements)
    }

    fn multiply_add(self, x: f64, acc: f64) -> f64 {
        self * x + acc
    }

    fn interpolate(
        data: &[f64],
        extents: &[usize],
        axis: usize,
        taps: &[Vec<(usize, f64)>],
    ) -> Vec<f64> {
        resize::interpolate(data, extents, axis, taps)
    }

    fn gemm(
        size: [usize; 3],
        a: contract::Matrix<'_, f64>,
        b: contract::Matrix<'_, f64>,
        c: &mut [f64],
        c_row: usize,
    ) {
        contract::gemm_f64(size, a, b, c, c_row);
    }
}

impl Element for i64 {
    const ZERO: i64 = 0;
    const ONE: i64 = 1;

    fn of(array: &Array) -> &[i64] {
        array.ints()
    }

    fn data(mut elements: Vec<i64>, dtype: DType) -> Data {
        if dtype.bits() < 64 {
            elements.iter_mut().for_each(|x| *x = wrap(dtype, i128::from(*x)));
        }
        Data::Int(elements)
    }

    fn multiply_add(self, x: i64, acc: i64) -> i64 {
        self.wrapping_mul(x).wrapping_add(acc)
    }

    fn interpolate(_: &[i64], _: &[usize], _: usize, _: &[Vec<(usize, f64)>]) -> Vec<i64> {
        unreachable!("only floats are interpolated")
    }

    fn gemm(
        size: [usize; 3],
        a: contract::Matrix<'_, i64>,
        b: contract::Matrix<'_, i64>,
        c: &mut [i64],
        c_row: usize,
    ) {
        contract::gemm_i64(size, a, b, c, c_row);
    }
}

/// Calls a function that is generic over [`Element`] with the element type of an array.
macro_rules! by_element {
    ($array:expr, $function:ident($($arg:expr),* $(,)?)) => {
        match $array.dtype.is_float() {
            true => $function::<f64>($($arg),*),
            false => $function::<i64>($($arg),*),
        }
    };
}
use by_element;
