//! Grows the graph that import makes: typed helpers that fold constants as they go.
//!
//! Invariants: an operator whose operands are all constants becomes a constant, unless its result is
//! large and its operands are small (a large `Expand` of a scalar stays an `expand`) or it widens weights
//! of 8 or 4 bits, which stay as narrow as they are; so does one whose operands, or whose result, have no
//! elements; an operator that would change nothing is not added.

use super::error::{ImportError, OpError};
use super::load::{Tensors, product};
use super::proto::TensorProto;
use crate::graph::{Attr, Attrs, Graph, NodeKind, Op, OpClass, eval, infer, widens_weights};
use crate::{DType, Tensor, TensorType, Value};

/// A result of at most this size is folded whatever its operands are.
const FOLD_BYTES: usize = 1 << 20;

/// A contraction of constants with more multiplications than this is left to the engine.
const FOLD_MACS: usize = 1 << 26;

/// The graph under construction.
pub(super) struct Builder {
    pub(super) graph: Graph,
    /// Reads constants.
    pub(super) tensors: Tensors,
    /// Path of the node that is being imported: the source of what is added.
    pub(super) source: String,
}

impl Builder {
    pub(super) fn new(name: &str, tensors: Tensors) -> Self {
        Self { graph: Graph::new(name), tensors, source: String::new() }
    }

    // Facts about values.

    pub(super) fn ty(&self, x: Value) -> &TensorType {
        self.graph.ty(x)
    }

    pub(super) fn extents(&self, x: Value) -> Vec<usize> {
        self.ty(x).extents()
    }

    pub(super) fn dims(&self, x: Value) -> Vec<i64> {
        self.extents(x).into_iter().map(|extent| extent as i64).collect()
    }

    pub(super) fn rank(&self, x: Value) -> usize {
        self.ty(x).shape.rank()
    }

    pub(super) fn dtype(&self, x: Value) -> DType {
        self.ty(x).dtype
    }

    /// The contents, if they are known.
    pub(super) fn known(&self, x: Value) -> Option<&Tensor> {
        match &self.graph.nodes[x].kind {
            NodeKind::Const(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The elements of an integer operand that has to be a constant.
    pub(super) fn known_ints(&self, x: Value, what: &str) -> Result<Vec<i64>, OpError> {
        let tensor = self.known(x).ok_or_else(|| OpError::Dynamic { what: what.to_owned() })?;
        if tensor.n_elems() > 1 << 28 {
            return Err(OpError::TooLarge { extents: self.dims(x) });
        }
        Ok(tensor.to_i64())
    }

    /// The elements of an operand that has to be a constant.
    pub(super) fn known_floats(&self, x: Value, what: &str) -> Result<Vec<f64>, OpError> {
        let tensor = self.known(x).ok_or_else(|| OpError::Dynamic { what: what.to_owned() })?;
        Ok(tensor.to_f64())
    }

    /// The element of a constant of one element.
    pub(super) fn known_scalar(&self, x: Value) -> Option<f64> {
        self.known(x).filter(|tensor| tensor.n_elems() == 1).map(|tensor| tensor.to_f64()[0])
    }

    // Constants.

    pub(super) fn constant(&mut self, tensor: Tensor) -> Value {
        self.graph.constant(tensor)
    }

    pub(super) fn load(&mut self, proto: &TensorProto) -> Result<Value, OpError> {
        let tensor = self.tensors.read(proto).map_err(|err| OpError::Elsewhere(Box::new(err)))?;
        Ok(self.constant(tensor))
    }

    pub(super) fn scalar(&mut self, dtype: DType, x: f64) -> Value {
        self.constant(Tensor::from_f64(dtype, &[], &[x]))
    }

    /// A scalar of the element type of `like`.
    pub(super) fn scalar_like(&mut self, like: Value, x: f64) -> Value {
        self.scalar(self.dtype(like), x)
    }

    pub(super) fn ints(&mut self, data: &[i64]) -> Value {
        self.constant(Tensor::i64(&[data.len()], data))
    }

    // Operators.

    /// Adds an operator, or the constant that it evaluates to.
    pub(super) fn apply(
        &mut self,
        op: Op,
        attrs: Vec<Attr>,
        args: &[Value],
    ) -> Result<Value, OpError> {
        let types: Vec<&TensorType> = args.iter().map(|&arg| self.graph.ty(arg)).collect();
        let attrs = Attrs(attrs);
        let ty = infer::infer(op, &attrs, &types)?;
        if product(&ty.extents()).is_none() {
            return Err(OpError::TooLarge {
                extents: ty.extents().iter().map(|&x| x as i64).collect(),
            });
        }
        let is_empty = |ty: &TensorType| ty.extents().contains(&0);
        if is_empty(&ty) {
            let empty = Tensor::new(ty.dtype, &ty.extents(), Vec::new());
            return Ok(self.graph.constant(empty));
        }
        if !args.is_empty() && args.iter().all(|&arg| is_empty(self.ty(arg))) {
            // A sum of nothing is known whatever the operand is.
            let empty = |&arg: &Value| Tensor::new(self.dtype(arg), &self.extents(arg), Vec::new());
            let known: Vec<Tensor> = args.iter().map(empty).collect();
            let tensor = eval::fold(op, &attrs, &known.iter().collect::<Vec<_>>())?;
            if tensor.bytes.len() <= FOLD_BYTES {
                return Ok(self.graph.constant(tensor));
            }
        }
        let known: Option<Vec<&Tensor>> = args.iter().map(|&arg| self.known(arg)).collect();
        let widens = args.first().is_some_and(|&from| widens_weights(op, self.ty(from), &ty));
        if let Some(known) = known.filter(|_| !widens) {
            let from: usize = known.iter().map(|tensor| tensor.bytes.len()).sum();
            let small = ty.n_bytes() <= FOLD_BYTES.max(from.saturating_mul(8)) && from < 1 << 31;
            if small && self.cheap(op, &attrs, args, &ty) {
                let tensor = match op {
                    Op::Reshape => known[0].reshaped(&ty.extents()),
                    _ => eval::fold(op, &attrs, &known)?,
                };
                return Ok(self.graph.constant(tensor));
            }
        }
        let value = self.graph.apply(op, attrs, args)?;
        self.graph.nodes[value].sources = vec![self.source.clone()];
        Ok(value)
    }

    /// Whether evaluating the operator takes little time beside its operands' sizes.
    fn cheap(&self, op: Op, attrs: &Attrs, args: &[Value], ty: &TensorType) -> bool {
        match op.spec().class {
            OpClass::Window => {
                let taps =
                    attrs.ints(0).iter().fold(1usize, |acc, &n| acc.saturating_mul(n as usize));
                ty.n_elems().saturating_mul(taps) <= FOLD_MACS
            }
            OpClass::Contract => {
                let largest = args.iter().map(|&arg| self.ty(arg).n_elems()).max().unwrap_or(0);
                ty.n_elems().saturating_mul(largest) <= FOLD_MACS
            }
            OpClass::Map | OpClass::Move | OpClass::Reduce | OpClass::Generate => true,
        }
    }

    pub(super) fn unary(&mut self, op: Op, x: Value) -> Result<Value, OpError> {
        self.apply(op, vec![], &[x])
    }

    pub(super) fn binary(&mut self, op: Op, x: Value, y: Value) -> Result<Value, OpError> {
        self.apply(op, vec![], &[x, y])
    }

    /// `x op constant`.
    pub(super) fn with(&mut self, op: Op, x: Value, constant: f64) -> Result<Value, OpError> {
        let constant = self.scalar_like(x, constant);
        self.binary(op, x, constant)
    }

    pub(super) fn add(&mut self, x: Value, y: Value) -> Result<Value, OpError> {
        self.binary(Op::Add, x, y)
    }

    pub(super) fn sub(&mut self, x: Value, y: Value) -> Result<Value, OpError> {
        self.binary(Op::Sub, x, y)
    }

    pub(super) fn mul(&mut self, x: Value, y: Value) -> Result<Value, OpError> {
        self.binary(Op::Mul, x, y)
    }

    pub(super) fn div(&mut self, x: Value, y: Value) -> Result<Value, OpError> {
        self.binary(Op::Div, x, y)
    }

    pub(super) fn select(&mut self, cond: Value, yes: Value, no: Value) -> Result<Value, OpError> {
        self.apply(Op::Select, vec![], &[cond, yes, no])
    }

    pub(super) fn cast(&mut self, x: Value, to: DType) -> Result<Value, OpError> {
        if self.dtype(x) == to {
            return Ok(x);
        }
        self.apply(Op::Cast, vec![Attr::DType(to)], &[x])
    }

    pub(super) fn reshape(&mut self, x: Value, extents: &[usize]) -> Result<Value, OpError> {
        if self.extents(x) == extents {
            return Ok(x);
        }
        // A reshape of a reshape is one reshape; the last node's name stays.
        let from = match &self.graph.nodes[x].kind {
            NodeKind::Apply(Op::Reshape, _, args) => args[0],
            _ => x,
        };
        if from != x && self.extents(from) == extents {
            return Ok(from);
        }
        self.apply(Op::Reshape, vec![ints(extents)], &[from])
    }

    pub(super) fn transpose(&mut self, x: Value, perm: &[usize]) -> Result<Value, OpError> {
        if perm.iter().copied().eq(0..self.rank(x)) {
            return Ok(x);
        }
        self.apply(Op::Transpose, vec![ints(perm)], &[x])
    }

    /// Repeats axes of extent 1; missing leading axes are added.
    pub(super) fn expand(&mut self, x: Value, extents: &[usize]) -> Result<Value, OpError> {
        let missing = extents.len().saturating_sub(self.rank(x));
        let aligned = [vec![1; missing], self.extents(x)].concat();
        let x = self.reshape(x, &aligned)?;
        if self.extents(x) == extents {
            return Ok(x);
        }
        self.apply(Op::Expand, vec![ints(extents)], &[x])
    }

    /// Inserts an axis of extent 1.
    pub(super) fn unsqueeze(&mut self, x: Value, axis: usize) -> Result<Value, OpError> {
        let mut extents = self.extents(x);
        if axis > extents.len() {
            return Err(OpError::Axis { axis: axis as i64, rank: extents.len() + 1 });
        }
        extents.insert(axis, 1);
        self.reshape(x, &extents)
    }

    /// Removes an axis of extent 1.
    pub(super) fn squeeze(&mut self, x: Value, axis: usize) -> Result<Value, OpError> {
        let mut extents = self.extents(x);
        if axis >= extents.len() {
            return Err(OpError::Axis { axis: axis as i64, rank: extents.len() });
        }
        extents.remove(axis);
        self.reshape(x, &extents)
    }

    /// All axes; a step may be negative.
    pub(super) fn slice(
        &mut self,
        x: Value,
        starts: &[i64],
        extents: &[usize],
        steps: &[i64],
    ) -> Result<Value, OpError> {
        if self.extents(x) == extents
            && starts.iter().all(|&s| s == 0)
            && steps.iter().all(|&s| s == 1)
        {
            return Ok(x);
        }
        let attrs = vec![Attr::Ints(starts.to_vec()), ints(extents), Attr::Ints(steps.to_vec())];
        self.apply(Op::Slice, attrs, &[x])
    }

    /// `n` elements of one axis, from `start`.
    pub(super) fn narrow(
        &mut self,
        x: Value,
        axis: usize,
        start: usize,
        n: usize,
    ) -> Result<Value, OpError> {
        let mut extents = self.extents(x);
        let mut starts = vec![0; extents.len()];
        if axis >= extents.len() {
            return Err(OpError::Axis { axis: axis as i64, rank: extents.len() });
        }
        starts[axis] = start as i64;
        extents[axis] = n;
        let steps = vec![1; extents.len()];
        self.slice(x, &starts, &extents, &steps)
    }

    /// Reverses one axis.
    pub(super) fn flip(&mut self, x: Value, axis: usize) -> Result<Value, OpError> {
        let extents = self.extents(x);
        let (mut starts, mut steps) = (vec![0; extents.len()], vec![1; extents.len()]);
        starts[axis] = extents[axis] as i64 - 1;
        steps[axis] = -1;
        if extents[axis] <= 1 {
            return Ok(x);
        }
        self.slice(x, &starts, &extents, &steps)
    }

    pub(super) fn pad(
        &mut self,
        x: Value,
        before: &[usize],
        after: &[usize],
        mode: &str,
        value: f64,
    ) -> Result<Value, OpError> {
        if before.iter().chain(after).all(|&n| n == 0) {
            return Ok(x);
        }
        let attrs =
            vec![ints(before), ints(after), Attr::Word(mode.to_owned()), Attr::float(value)];
        self.apply(Op::Pad, attrs, &[x])
    }

    pub(super) fn concat(&mut self, parts: &[Value], axis: usize) -> Result<Value, OpError> {
        // Parts without elements add nothing, once their types have been checked.
        let full = |part: &&Value| self.extents(**part).get(axis) != Some(&0);
        let some: Vec<Value> = parts.iter().filter(full).copied().collect();
        let attrs = vec![Attr::Int(axis as i64)];
        if !some.is_empty() && some.len() < parts.len() {
            let types: Vec<&TensorType> = parts.iter().map(|&part| self.ty(part)).collect();
            infer::infer(Op::Concat, &Attrs(attrs.clone()), &types)?;
            return self.concat(&some, axis);
        }
        match parts {
            [one] => Ok(*one),
            _ => self.apply(Op::Concat, attrs, parts),
        }
    }

    pub(super) fn gather(
        &mut self,
        data: Value,
        indices: Value,
        axis: usize,
    ) -> Result<Value, OpError> {
        self.apply(Op::Gather, vec![Attr::Int(axis as i64)], &[data, indices])
    }

    /// The index along `axis`.
    pub(super) fn iota(
        &mut self,
        extents: &[usize],
        axis: usize,
        dtype: DType,
    ) -> Result<Value, OpError> {
        self.apply(Op::Iota, vec![ints(extents), Attr::Int(axis as i64), Attr::DType(dtype)], &[])
    }

    /// Folds `axes` (ascending); they keep extent 1, or go.
    pub(super) fn reduce(
        &mut self,
        op: Op,
        x: Value,
        axes: &[usize],
        keep: bool,
    ) -> Result<Value, OpError> {
        let reduced = if axes.is_empty() { x } else { self.apply(op, vec![ints(axes)], &[x])? };
        if keep { Ok(reduced) } else { self.drop_axes(reduced, axes) }
    }

    /// Removes axes of extent 1.
    pub(super) fn drop_axes(&mut self, x: Value, axes: &[usize]) -> Result<Value, OpError> {
        let extents = self.extents(x);
        let kept: Vec<usize> = (0..extents.len())
            .filter(|axis| !axes.contains(axis))
            .map(|axis| extents[axis])
            .collect();
        self.reshape(x, &kept)
    }

    /// Mean over `axes`: the sum divided by a constant.
    pub(super) fn mean(&mut self, x: Value, axes: &[usize], keep: bool) -> Result<Value, OpError> {
        let extents = self.extents(x);
        let n: usize = axes.iter().map(|&axis| extents[axis]).product();
        let sum = self.reduce(Op::ReduceSum, x, axes, keep)?;
        self.with(Op::Div, sum, n as f64)
    }

    pub(super) fn matmul(&mut self, x: Value, y: Value) -> Result<Value, OpError> {
        self.binary(Op::Matmul, x, y)
    }

    /// Views a vector of channels as `[1, C, 1, ...]` of the given rank.
    pub(super) fn channels(&mut self, x: Value, rank: usize) -> Result<Value, OpError> {
        let n = self.ty(x).n_elems();
        let extents: Vec<usize> = (0..rank).map(|axis| if axis == 1 { n } else { 1 }).collect();
        self.reshape(x, &extents)
    }
}

/// A list attribute of extents or axes.
pub(super) fn ints(xs: &[usize]) -> Attr {
    Attr::Ints(xs.iter().map(|&x| x as i64).collect())
}

/// `axis` of a tensor of `rank`, counted from the end if negative.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, OpError> {
    let from_front = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    match usize::try_from(from_front) {
        Ok(at) if at < rank => Ok(at),
        _ => Err(OpError::Axis { axis, rank }),
    }
}

/// Distinct axes of a tensor of `rank`, ascending.
pub(super) fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, OpError> {
    let mut found = list.iter().map(|&one| axis(one, rank)).collect::<Result<Vec<_>, _>>()?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

impl From<ImportError> for OpError {
    fn from(err: ImportError) -> Self {
        OpError::Elsewhere(Box::new(err))
    }
}
