//! Products of dequantised operands, as products of integers.
//!
//! ONNX writes a quantised product as `DequantizeLinear`, `MatMul` or `Conv`, `QuantizeLinear`: floats in
//! between are how the format says it, not how it is meant to be computed. With `x = (q − z)·s` and
//! `w = (p − y)·t`, and scales that do not vary along the sum, `Σ x·w = s·t·Σ (q − z)·(p − y)`: an integer
//! sum is exact, and is multiplied once. What the product is used for, and rounding and saturation after
//! it, stays as it is.
//!
//! Invariants: a sum is at most 2³¹ − 1 in magnitude whatever the elements are; types of values do not
//! change; a graph without dequantised products comes out as it was.

use cranelift_entity::SecondaryMap;

use crate::graph::eval::fold;
use crate::graph::{Attr, Attrs, NodeKind, Op};
use crate::{DType, Graph, Tensor, Value};

/// An operand as `moved((integers − zero)·scale)`.
struct Dequantised {
    /// Of at most 8 bits.
    integers: Value,
    /// Broadcasts with the integers.
    zero: Option<Value>,
    /// Broadcasts with the integers.
    scale: Value,
    /// Reshapes and transpositions, innermost first.
    moves: Vec<(Op, Attrs)>,
}

/// The graph with integer products in the place of dequantised ones.
pub(super) fn integer_products(graph: &Graph) -> Graph {
    let mut result = Graph::new(graph.name.clone());
    let mut new: SecondaryMap<Value, Value> = SecondaryMap::with_default(Value::from_u32(0));
    for (value, node) in graph.nodes.iter() {
        let as_integers = match &node.kind {
            NodeKind::Apply(op @ (Op::Matmul | Op::Conv), attrs, args) => {
                let mut into =
                    Into { graph, result: &mut result, new: &new, sources: &node.sources };
                into.product(*op, attrs, args, value)
            }
            _ => None,
        };
        new[value] = as_integers.unwrap_or_else(|| {
            let mut node = node.clone();
            if let NodeKind::Apply(_, _, args) = &mut node.kind {
                args.iter_mut().for_each(|arg| *arg = new[*arg]);
            }
            result.nodes.push(node)
        });
    }
    result.outputs = graph.outputs.iter().map(|&value| new[value]).collect();
    result.output_names = graph.output_names.clone();
    result
}

/// Copies one product into the new graph.
struct Into<'a> {
    graph: &'a Graph,
    result: &'a mut Graph,
    new: &'a SecondaryMap<Value, Value>,
    /// Names of the product's nodes.
    sources: &'a [String],
}

impl Into<'_> {
    fn product(&mut self, op: Op, attrs: &Attrs, args: &[Value], value: Value) -> Option<Value> {
        let ty = self.graph.ty(value);
        if ty.dtype != DType::F32 {
            return None;
        }
        let (lhs, rhs) = (dequantised(self.graph, args[0])?, dequantised(self.graph, args[1])?);
        let summed = match op {
            Op::Matmul => self.graph.ty(args[0]).extents().last().copied()?,
            _ => self.graph.ty(args[1]).extents().iter().skip(1).product(),
        };
        // |q − z| is at most 255 on either side, of 8 bits and less.
        if summed > i32::MAX as usize / (255 * 255) || self.graph.ty(lhs.scale).n_elems() != 1 {
            return None;
        }
        let rank = ty.shape.rank();
        let per_column = self.column_scale(op, &rhs, args[1], rank)?;
        let (x, w) = (self.centred(&lhs)?, self.centred(&rhs)?);
        let sum = self.apply(op, attrs.clone(), &[x, w])?;
        let sum = self.apply(Op::Cast, Attrs(vec![Attr::DType(DType::F32)]), &[sum])?;
        let scale = self.scalar(self.new[lhs.scale])?;
        let both = self.apply(Op::Mul, Attrs::none(), &[scale, per_column])?;
        self.apply(Op::Mul, Attrs::none(), &[sum, both])
    }

    /// Adds an operator, or the constant that it evaluates to.
    fn apply(&mut self, op: Op, attrs: Attrs, args: &[Value]) -> Option<Value> {
        let known = args.iter().map(|&arg| constant(self.result, arg)).collect::<Option<Vec<_>>>();
        if let Some(known) = known
            && known.iter().all(|tensor| tensor.dtype.is_float())
        {
            let tensor = fold(op, &attrs, &known).ok()?;
            return Some(self.result.constant(tensor));
        }
        let value = self.result.apply(op, attrs, args).ok()?;
        self.result.nodes[value].sources = self.sources.to_vec();
        Some(value)
    }

    fn scalar(&mut self, value: Value) -> Option<Value> {
        match self.result.ty(value).shape.rank() {
            0 => Some(value),
            _ => self.apply(Op::Reshape, Attrs(vec![Attr::Ints(Vec::new())]), &[value]),
        }
    }

    /// `moved(integers − zero)` in 32 bits.
    fn centred(&mut self, operand: &Dequantised) -> Option<Value> {
        let wide = || Attrs(vec![Attr::DType(DType::I32)]);
        let mut value = self.apply(Op::Cast, wide(), &[self.new[operand.integers]])?;
        if let Some(zero) = operand.zero {
            let zero = match constant(self.graph, zero) {
                // Zero points that were folded are floats by now.
                Some(tensor) => {
                    let whole = Tensor::from_f64(DType::I32, &tensor.extents, &tensor.to_f64());
                    self.result.constant(whole)
                }
                None => {
                    let NodeKind::Apply(Op::Cast, _, args) = &self.graph.nodes[zero].kind else {
                        return None;
                    };
                    self.apply(Op::Cast, wide(), &[self.new[args[0]]])?
                }
            };
            value = self.apply(Op::Sub, Attrs::none(), &[value, zero])?;
        }
        for (op, attrs) in &operand.moves {
            value = self.apply(*op, attrs.clone(), &[value])?;
        }
        Some(value)
    }

    /// The scale of the right operand as it broadcasts with the product: one for all, or one per column
    /// or channel. `None` if it varies along the sum.
    fn column_scale(
        &mut self,
        op: Op,
        operand: &Dequantised,
        arg: Value,
        rank: usize,
    ) -> Option<Value> {
        if self.graph.ty(operand.scale).n_elems() == 1 {
            return self.scalar(self.new[operand.scale]);
        }
        let mut scale = constant(self.graph, operand.scale)?.clone();
        let extents = self.graph.ty(operand.integers).extents();
        let missing = extents.len().checked_sub(scale.extents.len())?;
        scale = scale.reshaped(&[vec![1; missing], scale.extents.clone()].concat());
        let full = Attrs(vec![Attr::Ints(extents.iter().map(|&n| n as i64).collect())]);
        scale = fold(Op::Expand, &full, &[&scale]).ok()?;
        for (op, attrs) in &operand.moves {
            scale = fold(*op, attrs, &[&scale]).ok()?;
        }
        let extents = self.graph.ty(arg).extents();
        let all = scale.to_f64();
        let (columns, shape): (Vec<f64>, Vec<usize>) = match op {
            Op::Matmul => {
                let n = *extents.last()?;
                let columns = all.get(..n)?.to_vec();
                let same = all.chunks(n).all(|row| row == columns);
                same.then_some((columns, vec![n]))?
            }
            _ => {
                let per_channel = all.len() / extents[0].max(1);
                let same = all.chunks(per_channel).all(|it| it.iter().all(|x| *x == it[0]));
                let channels = all.chunks(per_channel).map(|it| it[0]).collect();
                let shape = (0..rank).map(|axis| if axis == 1 { extents[0] } else { 1 });
                same.then(|| (channels, shape.collect()))?
            }
        };
        Some(self.result.constant(Tensor::from_f64(DType::F32, &shape, &columns)))
    }
}

fn constant(graph: &Graph, value: Value) -> Option<&Tensor> {
    match &graph.nodes[value].kind {
        NodeKind::Const(tensor) => Some(tensor),
        _ => None,
    }
}

/// A value in the form that `DequantizeLinear` was imported as, maybe moved.
fn dequantised(graph: &Graph, value: Value) -> Option<Dequantised> {
    let (mut value, mut moves) = (value, Vec::new());
    let (product, scale) = loop {
        let NodeKind::Apply(op, attrs, args) = &graph.nodes[value].kind else { return None };
        match op {
            Op::Reshape | Op::Transpose => {
                moves.push((*op, attrs.clone()));
                value = args[0];
            }
            Op::Mul => break (args[0], args[1]),
            _ => return None,
        }
    };
    moves.reverse();
    let (wide, zero) = match &graph.nodes[product].kind {
        NodeKind::Apply(Op::Sub, _, args) => (args[0], Some(args[1])),
        _ => (product, None),
    };
    let NodeKind::Apply(Op::Cast, _, args) = &graph.nodes[wide].kind else { return None };
    let integers = args[0];
    let narrow = |value: Value| {
        let dtype = graph.ty(value).dtype;
        !dtype.is_float() && dtype != DType::Bool && dtype.bits() <= 8
    };
    // The zero point must be of the same kind, or a constant that is whole and in the integers' range: the
    // bound of the sum rests on it.
    let dtype = graph.ty(integers).dtype;
    let span = 2f64.powi(dtype.bits().min(8) as i32);
    let least = if matches!(dtype, DType::I8 | DType::I4) { -span / 2.0 } else { 0.0 };
    let whole = |x: f64| x == x.trunc() && (least..least + span).contains(&x);
    let zero_fits = match zero {
        None => true,
        Some(zero) => match (&graph.nodes[zero].kind, constant(graph, zero)) {
            (_, Some(tensor)) => tensor.to_f64().into_iter().all(whole),
            (NodeKind::Apply(Op::Cast, _, args), _) => narrow(args[0]),
            _ => false,
        },
    };
    // The integers have the shape of the result: neither zero point nor scale broadcasts them.
    let same = graph.ty(integers).extents() == graph.ty(value).extents();
    (narrow(integers) && zero_fits && same).then_some(Dequantised { integers, zero, scale, moves })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;
    use crate::graph::eval::{Rounding, eval};
    use crate::graph::parse;

    fn run(graph: &Graph, inputs: &[Tensor]) -> Vec<f64> {
        eval(graph, inputs, Rounding::None)[0].to_f64()
    }

    const PRODUCT: &str = "graph @g(v0: u8[2,3], v1: i8[4,3], v2: f32[4,1]) {
    v3 = cast v0 {to=f32}
    v4 = const f32[] 3.0
    v5 = sub v3, v4
    v6 = const f32[] 0.5
    v7 = mul v5, v6
    v8 = cast v1 {to=f32}
    v9 = const f32[4,1] [0.25, 1.0, 2.0, 4.0]
    v10 = mul v8, v9
    v11 = transpose v10 {perm=[1,0]}
    v12 = matmul v7, v11
    return v12
}
";

    fn graph(text: &str) -> Graph {
        match parse(text) {
            Ok(graph) => graph,
            Err(err) => panic!("{err:?}"),
        }
    }

    fn products(graph: &Graph) -> Vec<DType> {
        let nodes = graph.nodes.values();
        let products = nodes.filter(|node| matches!(node.kind, NodeKind::Apply(Op::Matmul, ..)));
        products.map(|node| node.ty.dtype).collect()
    }

    #[test]
    fn a_dequantised_product_is_an_integer_product_with_one_scale() {
        let before = graph(PRODUCT);
        let after = integer_products(&before);
        let inputs = [
            Tensor::from_i64(DType::U8, &[2, 3], &[0, 255, 3, 7, 128, 1]),
            Tensor::from_i64(DType::I8, &[4, 3], &[-128, 127, 1, 2, 3, -4, 5, 6, 7, 0, -1, 9]),
            Tensor::f32(&[4, 1], &[1.0; 4]),
        ];
        assert_eq!(run(&before, &inputs), run(&after, &inputs));
        assert_eq!((products(&before), products(&after)), (vec![DType::F32], vec![DType::I32]));
    }

    #[test]
    fn a_zero_point_outside_of_the_type_is_no_quantisation() {
        // The difference would have more than 8 bits, and the sum no bound.
        for zero in ["-3.0", "256.0", "2.5"] {
            let text = PRODUCT.replace("f32[] 3.0", &format!("f32[] {zero}"));
            assert_eq!(products(&integer_products(&graph(&text))), [DType::F32], "{zero}");
        }
    }

    #[test]
    fn a_scale_that_varies_along_the_sum_is_left_alone() {
        // One scale per row of the transposed weight is one per step of the sum.
        let along = PRODUCT
            .replace("v1: i8[4,3]", "v1: i8[3,4]")
            .replace("f32[4,1] [0.25, 1.0, 2.0, 4.0]", "f32[3,1] [0.25, 1.0, 2.0]")
            .replace("perm=[1,0]", "perm=[0,1]");
        // A scale that comes with the inputs may vary.
        let unknown = PRODUCT.replace("mul v8, v9", "mul v8, v2");
        for text in [&along, &unknown] {
            assert_eq!(products(&integer_products(&graph(text))), [DType::F32], "{text}");
        }
    }
}
