//! Models in the words of exporters: softmax, normalisation and GELU in pieces.

use eggine_ir::{Attr, Attrs, DType, Graph, Op, Tensor, TensorType, Value};

/// Builds graphs; constants are drawn from a fixed sequence.
pub(crate) struct Model {
    pub(crate) graph: Graph,
    seed: u64,
    n_nodes: usize,
}

pub(crate) fn ints(xs: &[usize]) -> Attr {
    Attr::Ints(xs.iter().map(|&x| x as i64).collect())
}

/// Numbers in [-1, 1).
pub(crate) fn noise(seed: &mut u64, n: usize) -> Vec<f32> {
    let mut next = || {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

impl Model {
    pub(crate) fn new(name: &str) -> Self {
        Self { graph: Graph::new(name), seed: 1, n_nodes: 0 }
    }

    pub(crate) fn input(&mut self, extents: &[usize]) -> Value {
        self.graph.input("", TensorType::fixed(DType::F32, extents))
    }

    /// A constant of noise. Large ones are not filled: nothing but their type matters.
    pub(crate) fn weight(&mut self, extents: &[usize]) -> Value {
        let n: usize = extents.iter().product();
        let scale = 1.0 / (n as f32).sqrt();
        let data = if n > 10_000 {
            let mut data = vec![0.0; n];
            data[0] = 1.0;
            data
        } else {
            noise(&mut self.seed, n).iter().map(|x| x * scale).collect()
        };
        self.graph.constant(Tensor::f32(extents, &data))
    }

    pub(crate) fn scalar(&mut self, x: f32) -> Value {
        self.graph.constant(Tensor::f32(&[], &[x]))
    }

    pub(crate) fn op(&mut self, op: Op, attrs: Vec<Attr>, args: &[Value]) -> Value {
        let value = self.graph.apply(op, Attrs(attrs), args).unwrap();
        self.graph.nodes[value].sources = vec![format!("{op}_{}", self.n_nodes)];
        self.n_nodes += 1;
        value
    }

    pub(crate) fn extents(&self, value: Value) -> Vec<usize> {
        self.graph.ty(value).extents()
    }

    pub(crate) fn map(&mut self, op: Op, args: &[Value]) -> Value {
        self.op(op, vec![], args)
    }

    pub(crate) fn with(&mut self, op: Op, x: Value, constant: f32) -> Value {
        let constant = self.scalar(constant);
        self.map(op, &[x, constant])
    }

    pub(crate) fn linear(&mut self, x: Value, n: usize) -> Value {
        let k = *self.extents(x).last().unwrap();
        let (weight, bias) = (self.weight(&[k, n]), self.weight(&[n]));
        let product = self.map(Op::Matmul, &[x, weight]);
        self.map(Op::Add, &[product, bias])
    }

    pub(crate) fn mean(&mut self, x: Value, axes: &[usize]) -> Value {
        let extents = self.extents(x);
        let n: usize = axes.iter().map(|&axis| extents[axis]).product();
        let sum = self.op(Op::ReduceSum, vec![ints(axes)], &[x]);
        self.with(Op::Mul, sum, 1.0 / n as f32)
    }

    pub(crate) fn layer_norm(&mut self, x: Value) -> Value {
        let extents = self.extents(x);
        let (axis, n) = (extents.len() - 1, *extents.last().unwrap());
        let mean = self.mean(x, &[axis]);
        let centred = self.map(Op::Sub, &[x, mean]);
        let square = self.with(Op::Pow, centred, 2.0);
        let variance = self.mean(square, &[axis]);
        let shifted = self.with(Op::Add, variance, 1e-5);
        let root = self.map(Op::Sqrt, &[shifted]);
        let normal = self.map(Op::Div, &[centred, root]);
        let (gamma, beta) = (self.weight(&[n]), self.weight(&[n]));
        let scaled = self.map(Op::Mul, &[normal, gamma]);
        self.map(Op::Add, &[scaled, beta])
    }

    pub(crate) fn softmax(&mut self, x: Value, axis: usize) -> Value {
        let max = self.op(Op::ReduceMax, vec![ints(&[axis])], &[x]);
        let shifted = self.map(Op::Sub, &[x, max]);
        let exp = self.map(Op::Exp, &[shifted]);
        let sum = self.op(Op::ReduceSum, vec![ints(&[axis])], &[exp]);
        self.map(Op::Div, &[exp, sum])
    }

    pub(crate) fn gelu(&mut self, x: Value) -> Value {
        let scaled = self.with(Op::Div, x, std::f32::consts::SQRT_2);
        let erf = self.map(Op::Erf, &[scaled]);
        let shifted = self.with(Op::Add, erf, 1.0);
        let product = self.map(Op::Mul, &[x, shifted]);
        self.with(Op::Mul, product, 0.5)
    }

    pub(crate) fn reshape(&mut self, x: Value, extents: &[usize]) -> Value {
        self.op(Op::Reshape, vec![ints(extents)], &[x])
    }

    pub(crate) fn transpose(&mut self, x: Value, perm: &[usize]) -> Value {
        self.op(Op::Transpose, vec![ints(perm)], &[x])
    }

    pub(crate) fn attention(&mut self, x: Value, mask: Value, heads: usize) -> Value {
        let [batch, seq, width] = self.extents(x)[..] else { panic!("rank 3") };
        let split = |m: &mut Self, perm: &[usize]| {
            let projected = m.linear(x, width);
            let split = m.reshape(projected, &[batch, seq, heads, width / heads]);
            m.transpose(split, perm)
        };
        let (q, k, v) =
            (split(self, &[0, 2, 1, 3]), split(self, &[0, 2, 3, 1]), split(self, &[0, 2, 1, 3]));
        let scores = self.map(Op::Matmul, &[q, k]);
        let scaled = self.with(Op::Div, scores, ((width / heads) as f32).sqrt());
        let masked = self.map(Op::Add, &[scaled, mask]);
        let weights = self.softmax(masked, 3);
        let context = self.map(Op::Matmul, &[weights, v]);
        let together = self.transpose(context, &[0, 2, 1, 3]);
        let flat = self.reshape(together, &[batch, seq, width]);
        self.linear(flat, width)
    }

    /// One encoder layer of BERT, the normalisation after each half.
    pub(crate) fn bert_layer(&mut self, x: Value, mask: Value, heads: usize) -> Value {
        let width = *self.extents(x).last().unwrap();
        let attention = self.attention(x, mask, heads);
        let residual = self.map(Op::Add, &[attention, x]);
        let normal = self.layer_norm(residual);
        let up = self.linear(normal, 4 * width);
        let gelu = self.gelu(up);
        let down = self.linear(gelu, width);
        let residual = self.map(Op::Add, &[down, normal]);
        self.layer_norm(residual)
    }

    pub(crate) fn conv(
        &mut self,
        x: Value,
        channels: usize,
        kernel: usize,
        stride: usize,
    ) -> Value {
        let weight = {
            let c = self.extents(x)[1];
            self.weight(&[channels, c, kernel, kernel])
        };
        let pad = kernel / 2;
        let attrs = vec![
            ints(&[stride, stride]),
            ints(&[pad, pad]),
            ints(&[pad, pad]),
            ints(&[1, 1]),
            Attr::Int(1),
        ];
        self.op(Op::Conv, attrs, &[x, weight])
    }

    /// A convolution and its normalisation, folded to a scale and a shift per channel.
    pub(crate) fn conv_norm(
        &mut self,
        x: Value,
        channels: usize,
        kernel: usize,
        stride: usize,
    ) -> Value {
        let conv = self.conv(x, channels, kernel, stride);
        let (scale, shift) = (self.weight(&[channels, 1, 1]), self.weight(&[channels, 1, 1]));
        let scaled = self.map(Op::Mul, &[conv, scale]);
        self.map(Op::Add, &[scaled, shift])
    }

    pub(crate) fn relu(&mut self, x: Value) -> Value {
        self.map(Op::Relu, &[x])
    }

    /// A residual block of ResNet-50, with a convolution in the shortcut where the shape changes.
    pub(crate) fn bottleneck(&mut self, x: Value, width: usize, stride: usize) -> Value {
        let narrow = self.conv_norm(x, width, 1, 1);
        let narrow = self.relu(narrow);
        let middle = self.conv_norm(narrow, width, 3, stride);
        let middle = self.relu(middle);
        let wide = self.conv_norm(middle, 4 * width, 1, 1);
        let shortcut = match self.extents(x)[1] == 4 * width {
            true => x,
            false => self.conv_norm(x, 4 * width, 1, stride),
        };
        let sum = self.map(Op::Add, &[wide, shortcut]);
        self.relu(sum)
    }

    pub(crate) fn max_pool(&mut self, x: Value, kernel: usize, stride: usize, pad: usize) -> Value {
        let attrs = vec![
            ints(&[kernel, kernel]),
            ints(&[stride, stride]),
            ints(&[pad, pad]),
            ints(&[pad, pad]),
            ints(&[1, 1]),
        ];
        self.op(Op::MaxPool, attrs, &[x])
    }

    pub(crate) fn conv_bias_relu(
        &mut self,
        x: Value,
        channels: usize,
        kernel: usize,
        stride: usize,
    ) -> Value {
        let conv = self.conv(x, channels, kernel, stride);
        let bias = self.weight(&[channels, 1, 1]);
        let sum = self.map(Op::Add, &[conv, bias]);
        self.relu(sum)
    }

    /// A fire module of SqueezeNet.
    pub(crate) fn fire(&mut self, x: Value, squeeze: usize, expand: usize) -> Value {
        let squeezed = self.conv_bias_relu(x, squeeze, 1, 1);
        let left = self.conv_bias_relu(squeezed, expand, 1, 1);
        let right = self.conv_bias_relu(squeezed, expand, 3, 1);
        self.op(Op::Concat, vec![Attr::Int(1)], &[left, right])
    }

    pub(crate) fn global_average(&mut self, x: Value) -> Value {
        let [n, c] = self.extents(x)[..2] else { panic!("an image") };
        let mean = self.mean(x, &[2, 3]);
        self.reshape(mean, &[n, c])
    }

    pub(crate) fn finish(mut self, output: Value) -> Graph {
        self.graph.outputs = vec![output];
        self.graph
    }
}

pub(crate) fn mlp() -> Graph {
    let mut m = Model::new("mlp");
    let x = m.input(&[4, 8]);
    let hidden = m.linear(x, 16);
    let hidden = m.gelu(hidden);
    let out = m.linear(hidden, 5);
    let out = m.softmax(out, 1);
    m.finish(out)
}

pub(crate) fn bert(layers: usize, seq: usize, width: usize, heads: usize) -> Graph {
    let mut m = Model::new("bert");
    let x = m.input(&[1, seq, width]);
    let keep = m.input(&[1, 1, 1, seq]);
    let one = m.scalar(1.0);
    let hide = m.map(Op::Sub, &[one, keep]);
    let mask = m.with(Op::Mul, hide, -10_000.0);
    let mut at = m.layer_norm(x);
    for _ in 0..layers {
        at = m.bert_layer(at, mask, heads);
    }
    m.finish(at)
}

pub(crate) fn resnet(blocks: [usize; 4], size: usize, width: usize) -> Graph {
    let mut m = Model::new("resnet");
    let x = m.input(&[1, 3, size, size]);
    let stem = m.conv_norm(x, width, 7, 2);
    let stem = m.relu(stem);
    let mut at = m.max_pool(stem, 3, 2, 1);
    for (stage, n) in blocks.into_iter().enumerate() {
        for block in 0..n {
            at = m.bottleneck(at, width << stage, if block == 0 && stage > 0 { 2 } else { 1 });
        }
    }
    let pooled = m.global_average(at);
    let out = m.linear(pooled, 1000);
    let out = m.softmax(out, 1);
    m.finish(out)
}

pub(crate) fn squeezenet(size: usize, classes: usize) -> Graph {
    let mut m = Model::new("squeezenet");
    let x = m.input(&[1, 3, size, size]);
    let stem = m.conv_bias_relu(x, 64, 3, 2);
    let mut at = m.max_pool(stem, 3, 2, 0);
    for (squeeze, expand, pool) in [
        (16, 64, false),
        (16, 64, true),
        (32, 128, false),
        (32, 128, true),
        (48, 192, false),
        (48, 192, false),
        (64, 256, false),
        (64, 256, false),
    ] {
        at = m.fire(at, squeeze, expand);
        if pool {
            at = m.max_pool(at, 3, 2, 0);
        }
    }
    let last = m.conv_bias_relu(at, classes, 1, 1);
    let pooled = m.global_average(last);
    let out = m.softmax(pooled, 1);
    m.finish(out)
}

/// Random inputs for a graph.
pub(crate) fn inputs(graph: &Graph, seed: u64) -> Vec<Tensor> {
    let mut seed = seed;
    graph
        .inputs()
        .map(|input| {
            let extents = graph.ty(input).extents();
            Tensor::f32(&extents, &noise(&mut seed, extents.iter().product()))
        })
        .collect()
}
