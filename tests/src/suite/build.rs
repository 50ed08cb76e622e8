//! A builder of networks: layers as exporters write them.

use eggine_ir::{Attr, Attrs, DType, Graph, Op, Tensor, TensorType, Value};

/// A network under construction.
pub(super) struct Net {
    graph: Graph,
}

fn ints(xs: &[usize]) -> Attr {
    Attr::Ints(xs.iter().map(|&x| x as i64).collect())
}

impl Net {
    pub(super) fn new(name: &str) -> Self {
        Self { graph: Graph::new(name) }
    }

    pub(super) fn input(&mut self, extents: &[usize]) -> Value {
        self.graph.input("", TensorType::fixed(DType::F32, extents))
    }

    fn weight(&mut self, extents: &[usize]) -> Value {
        self.graph.weight(TensorType::fixed(DType::F32, extents))
    }

    pub(super) fn op(&mut self, op: Op, attrs: Vec<Attr>, args: &[Value]) -> Value {
        self.graph.apply(op, Attrs(attrs), args).expect("the network is well-typed")
    }

    pub(super) fn map(&mut self, op: Op, args: &[Value]) -> Value {
        self.op(op, Vec::new(), args)
    }

    fn with(&mut self, op: Op, x: Value, constant: f32) -> Value {
        let constant = self.graph.constant(Tensor::f32(&[], &[constant]));
        self.map(op, &[x, constant])
    }

    pub(super) fn extents(&self, value: Value) -> Vec<usize> {
        self.graph.ty(value).extents()
    }

    pub(super) fn channels(&self, value: Value) -> usize {
        self.extents(value)[1]
    }

    pub(super) fn finish(mut self, outputs: &[Value]) -> Graph {
        self.graph.outputs = outputs.to_vec();
        self.graph
    }

    // Elementwise.

    pub(super) fn relu(&mut self, x: Value) -> Value {
        self.map(Op::Relu, &[x])
    }

    pub(super) fn tanh(&mut self, x: Value) -> Value {
        self.map(Op::Tanh, &[x])
    }

    pub(super) fn add(&mut self, x: Value, y: Value) -> Value {
        self.map(Op::Add, &[x, y])
    }

    // Movement.

    fn reshape(&mut self, x: Value, extents: &[usize]) -> Value {
        self.op(Op::Reshape, vec![ints(extents)], &[x])
    }

    pub(super) fn flatten(&mut self, x: Value) -> Value {
        let extents = self.extents(x);
        self.reshape(x, &[extents[0], extents[1..].iter().product()])
    }

    /// Along the channels.
    pub(super) fn concat(&mut self, parts: &[Value]) -> Value {
        self.op(Op::Concat, vec![Attr::Int(1)], parts)
    }

    /// `[1, seq, width]` to `[1, width]`.
    pub(super) fn first_token(&mut self, x: Value) -> Value {
        let width = self.extents(x)[2];
        let window = vec![ints(&[0, 0, 0]), ints(&[1, 1, width]), ints(&[1, 1, 1])];
        let first = self.op(Op::Slice, window, &[x]);
        self.reshape(first, &[1, width])
    }

    // Products and rows.

    pub(super) fn linear(&mut self, x: Value, n: usize) -> Value {
        let k = *self.extents(x).last().expect("a matrix at least");
        let (weight, bias) = (self.weight(&[k, n]), self.weight(&[n]));
        let product = self.map(Op::Matmul, &[x, weight]);
        self.add(product, bias)
    }

    fn mean(&mut self, x: Value, axes: &[usize]) -> Value {
        let extents = self.extents(x);
        let n: usize = axes.iter().map(|&axis| extents[axis]).product();
        let sum = self.op(Op::ReduceSum, vec![ints(axes)], &[x]);
        self.with(Op::Mul, sum, 1.0 / n as f32)
    }

    pub(super) fn layer_norm(&mut self, x: Value) -> Value {
        let extents = self.extents(x);
        let (axis, n) = (extents.len() - 1, extents[extents.len() - 1]);
        let mean = self.mean(x, &[axis]);
        let centred = self.map(Op::Sub, &[x, mean]);
        let square = self.with(Op::Pow, centred, 2.0);
        let variance = self.mean(square, &[axis]);
        let shifted = self.with(Op::Add, variance, 1e-12);
        let root = self.map(Op::Sqrt, &[shifted]);
        let normal = self.map(Op::Div, &[centred, root]);
        let (gamma, beta) = (self.weight(&[n]), self.weight(&[n]));
        let scaled = self.map(Op::Mul, &[normal, gamma]);
        self.add(scaled, beta)
    }

    /// Over the last axis.
    pub(super) fn softmax(&mut self, x: Value) -> Value {
        let axis = self.extents(x).len() - 1;
        let max = self.op(Op::ReduceMax, vec![ints(&[axis])], &[x]);
        let shifted = self.map(Op::Sub, &[x, max]);
        let exp = self.map(Op::Exp, &[shifted]);
        let sum = self.op(Op::ReduceSum, vec![ints(&[axis])], &[exp]);
        self.map(Op::Div, &[exp, sum])
    }

    fn gelu(&mut self, x: Value) -> Value {
        let scaled = self.with(Op::Div, x, std::f32::consts::SQRT_2);
        let erf = self.map(Op::Erf, &[scaled]);
        let shifted = self.with(Op::Add, erf, 1.0);
        let product = self.map(Op::Mul, &[x, shifted]);
        self.with(Op::Mul, product, 0.5)
    }

    /// 0 where a token is kept, and a large negative number where not.
    pub(super) fn mask(&mut self, keep: Value) -> Value {
        let one = self.graph.constant(Tensor::f32(&[], &[1.0]));
        let hide = self.map(Op::Sub, &[one, keep]);
        self.with(Op::Mul, hide, -10_000.0)
    }

    /// One encoder layer, normalised after each half.
    pub(super) fn encoder_layer(&mut self, x: Value, mask: Value, heads: usize) -> Value {
        let [batch, seq, width] = self.extents(x)[..] else { unreachable!("rank 3") };
        let head = |net: &mut Self, perm: &[usize]| {
            let projected = net.linear(x, width);
            let split = net.reshape(projected, &[batch, seq, heads, width / heads]);
            net.op(Op::Transpose, vec![ints(perm)], &[split])
        };
        let query = head(self, &[0, 2, 1, 3]);
        let key = head(self, &[0, 2, 3, 1]);
        let value = head(self, &[0, 2, 1, 3]);
        let scores = self.map(Op::Matmul, &[query, key]);
        let scaled = self.with(Op::Div, scores, ((width / heads) as f32).sqrt());
        let masked = self.add(scaled, mask);
        let weights = self.softmax(masked);
        let context = self.map(Op::Matmul, &[weights, value]);
        let together = self.op(Op::Transpose, vec![ints(&[0, 2, 1, 3])], &[context]);
        let flat = self.reshape(together, &[batch, seq, width]);
        let attended = self.linear(flat, width);
        let residual = self.add(attended, x);
        let normal = self.layer_norm(residual);
        let up = self.linear(normal, 4 * width);
        let gelu = self.gelu(up);
        let down = self.linear(gelu, width);
        let residual = self.add(down, normal);
        self.layer_norm(residual)
    }

    // Images.

    fn conv_padded(
        &mut self,
        x: Value,
        channels: usize,
        kernel: [usize; 2],
        stride: usize,
        pad: [usize; 2],
        groups: usize,
    ) -> Value {
        let per_group = self.channels(x) / groups;
        let weight = self.weight(&[channels, per_group, kernel[0], kernel[1]]);
        let attrs = vec![
            ints(&[stride, stride]),
            ints(&pad),
            ints(&pad),
            ints(&[1, 1]),
            Attr::Int(groups as i64),
        ];
        self.op(Op::Conv, attrs, &[x, weight])
    }

    pub(super) fn depthwise(
        &mut self,
        x: Value,
        channels: usize,
        kernel: usize,
        stride: usize,
    ) -> Value {
        self.conv_padded(x, channels, [kernel; 2], stride, [kernel / 2; 2], channels)
    }

    fn norm(&mut self, x: Value) -> Value {
        let channels = self.channels(x);
        let (scale, shift) = (self.weight(&[channels, 1, 1]), self.weight(&[channels, 1, 1]));
        let scaled = self.map(Op::Mul, &[x, scale]);
        self.add(scaled, shift)
    }

    /// Padded so that only the stride changes the size.
    pub(super) fn conv_norm(
        &mut self,
        x: Value,
        channels: usize,
        kernel: [usize; 2],
        stride: usize,
        groups: usize,
    ) -> Value {
        let pad = [kernel[0] / 2, kernel[1] / 2];
        let conv = self.conv_padded(x, channels, kernel, stride, pad, groups);
        self.norm(conv)
    }

    pub(super) fn conv_norm_relu(
        &mut self,
        x: Value,
        channels: usize,
        kernel: [usize; 2],
        stride: usize,
        groups: usize,
    ) -> Value {
        let conv = self.conv_norm(x, channels, kernel, stride, groups);
        self.relu(conv)
    }

    /// Not padded.
    pub(super) fn conv_valid(
        &mut self,
        x: Value,
        channels: usize,
        kernel: usize,
        stride: usize,
    ) -> Value {
        let conv = self.conv_padded(x, channels, [kernel; 2], stride, [0; 2], 1);
        let normal = self.norm(conv);
        self.relu(normal)
    }

    pub(super) fn conv_bias_relu(
        &mut self,
        x: Value,
        channels: usize,
        kernel: usize,
        stride: usize,
        pad: usize,
    ) -> Value {
        let conv = self.conv_padded(x, channels, [kernel; 2], stride, [pad; 2], 1);
        let bias = self.weight(&[channels, 1, 1]);
        let sum = self.add(conv, bias);
        self.relu(sum)
    }

    fn pool(&mut self, op: Op, x: Value, kernel: usize, stride: usize, pad: usize) -> Value {
        let attrs = vec![
            ints(&[kernel; 2]),
            ints(&[stride; 2]),
            ints(&[pad; 2]),
            ints(&[pad; 2]),
            ints(&[1, 1]),
        ];
        self.op(op, attrs, &[x])
    }

    pub(super) fn max_pool(&mut self, x: Value, kernel: usize, stride: usize, pad: usize) -> Value {
        self.pool(Op::MaxPool, x, kernel, stride, pad)
    }

    /// 3×3, padding counted.
    pub(super) fn average_pool(&mut self, x: Value, stride: usize) -> Value {
        let sum = self.pool(Op::SumPool, x, 3, stride, 1);
        self.with(Op::Mul, sum, 1.0 / 9.0)
    }

    pub(super) fn global_average(&mut self, x: Value) -> Value {
        let mean = self.mean(x, &[2, 3]);
        self.flatten(mean)
    }

    pub(super) fn classify(&mut self, x: Value, classes: usize) -> Value {
        let pooled = self.global_average(x);
        let out = self.linear(pooled, classes);
        self.softmax(out)
    }
}
