//! Properties on random input: the text format loses nothing, regions have one canonical form, and
//! the evaluator's fast paths agree with naive ones.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use eggine_ir::graph::{Op, Rounding, eval, parse, verify};
use eggine_ir::{Attr, DType, Graph, Layout, NodeKind, Region, Tensor, TensorType, Value};
use proptest::prelude::*;

/// A small generator, so that a case is one number.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64, Steele et al. 2014.
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Any bits of any type; booleans are 0 or 1.
    fn tensor(&mut self, dtype: DType, extents: &[usize]) -> Tensor {
        let n_bytes = dtype.bytes_for(extents.iter().product());
        let one = self.next();
        let splat = self.below(4) == 0;
        let mut byte = |i: usize| {
            let random =
                if splat { one >> (8 * (i % (dtype.bits().div_ceil(8)))) } else { self.next() };
            if dtype == DType::Bool { random as u8 & 1 } else { random as u8 }
        };
        let mut bytes: Vec<u8> = (0..n_bytes).map(&mut byte).collect();
        // Bits behind the last element are 0.
        let n_used = extents.iter().product::<usize>() * dtype.bits() % 8;
        if n_used != 0 {
            *bytes.last_mut().unwrap() &= (1 << n_used) - 1;
        }
        Tensor::new(dtype, extents, bytes)
    }

    /// Small multiples of 1/4: sums and products of them are exact.
    fn small(&mut self, extents: &[usize]) -> Tensor {
        let n_elems = extents.iter().product();
        let data: Vec<f32> = (0..n_elems).map(|_| self.below(33) as f32 / 4.0 - 4.0).collect();
        Tensor::f32(extents, &data)
    }

    /// A well-formed graph of `f32[2,3]`s and some of their transposes and products.
    fn graph(&mut self, n_nodes: usize) -> Graph {
        let mut graph = Graph::new("random");
        for i in 0..1 + self.below(3) {
            graph.input(format!("input {i}"), TensorType::fixed(DType::F32, &[2, 3]));
            graph.weight(TensorType::fixed(DType::F32, &[2, 3]));
        }
        for i in 0..n_nodes {
            let any: Vec<Value> = graph.nodes.keys().collect();
            let fitting: Vec<Value> =
                any.into_iter().filter(|&v| graph.ty(v).extents() == [2, 3]).collect();
            let (x, y) = (self.pick(&fitting), self.pick(&fitting));
            let value = match self.below(8) {
                0 => graph.constant(self.tensor(DType::F32, &[2, 3])),
                1 => graph.input(format!("late {i}"), TensorType::fixed(DType::F32, &[2, 3])),
                2 => {
                    let turned =
                        graph.apply(Op::Transpose, vec![Attr::Ints(vec![1, 0])], &[x]).unwrap();
                    let square = graph.apply(Op::Matmul, vec![], &[x, turned]).unwrap();
                    graph.apply(Op::Matmul, vec![], &[square, y]).unwrap()
                }
                3 => {
                    let sum = graph.apply(Op::ReduceSum, vec![Attr::Ints(vec![1])], &[x]).unwrap();
                    graph.apply(Op::Sub, vec![], &[y, sum]).unwrap()
                }
                4 => {
                    let attrs = vec![
                        Attr::Ints(vec![0, 1]),
                        Attr::Ints(vec![0, 1]),
                        Attr::Word("edge".into()),
                        Attr::float(f64::NEG_INFINITY),
                    ];
                    graph.apply(Op::Pad, attrs, &[x]).unwrap()
                }
                _ => {
                    let op = self.pick(&[Op::Relu, Op::Neg, Op::Abs, Op::Tanh]);
                    match self.below(2) {
                        0 => graph.apply(op, vec![], &[x]).unwrap(),
                        _ => {
                            let op = self.pick(&[Op::Add, Op::Mul, Op::Max, Op::Min]);
                            graph.apply(op, vec![], &[x, y]).unwrap()
                        }
                    }
                }
            };
            if self.below(3) == 0 {
                graph.nodes[value].sources = vec!["\"a\" \\ é".into(), format!("node {i}")];
            }
        }
        let all: Vec<Value> = graph.nodes.keys().collect();
        for i in 0..1 + self.below(3) {
            graph.outputs.push(self.pick(&all));
            graph.output_names.push(format!("output {i}"));
        }
        if self.below(2) == 0 {
            graph.output_names.clear();
        }
        graph
    }
}

/// The same graph with its nodes in another order of definition, and the old index of each input.
fn shuffled(graph: &Graph, random: &mut Random) -> (Graph, Vec<usize>) {
    let mut result = Graph::new("shuffled");
    let mut renamed: Vec<Option<Value>> = vec![None; graph.nodes.len()];
    let old_inputs: Vec<Value> = graph.inputs().collect();
    let mut inputs = Vec::new();
    let at = |value: Value| value.as_u32() as usize;
    while result.nodes.len() < graph.nodes.len() {
        let ready: Vec<Value> = (graph.nodes.iter())
            .filter(|(value, node)| {
                renamed[at(*value)].is_none()
                    && node.args().iter().all(|&arg| renamed[at(arg)].is_some())
            })
            .map(|(value, _)| value)
            .collect();
        let value = random.pick(&ready);
        let mut node = graph.nodes[value].clone();
        node.sources = Vec::new();
        match &mut node.kind {
            NodeKind::Apply(_, _, args) => {
                args.iter_mut().for_each(|arg| *arg = renamed[at(*arg)].unwrap());
            }
            NodeKind::Input { name, .. } => {
                name.clear();
                inputs.push(old_inputs.iter().position(|&input| input == value).unwrap());
            }
            NodeKind::Const(_) => (),
        }
        renamed[at(value)] = Some(result.nodes.push(node));
    }
    result.outputs = graph.outputs.iter().map(|&output| renamed[at(output)].unwrap()).collect();
    (result, inputs)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_loses_nothing(seed: u64) {
        let mut random = Random(seed);
        let n_nodes = random.below(12);
        let graph = random.graph(n_nodes);
        prop_assert_eq!(verify(&graph), Ok(()));
        let text = graph.to_string();
        let parsed = parse(&text);
        prop_assert_eq!(parsed.as_ref(), Ok(&graph), "{}", text);
        prop_assert_eq!(parsed.unwrap().to_string(), text);
    }

    #[test]
    fn constants_of_any_bits_survive(seed: u64) {
        let mut random = Random(seed);
        let dtype = random.pick(DType::ALL);
        let extents: Vec<usize> = (0..random.below(3)).map(|_| random.below(4)).collect();
        let mut graph = Graph::new("constant");
        let value = graph.constant(random.tensor(dtype, &extents));
        graph.outputs.push(value);
        let text = graph.to_string();
        prop_assert_eq!(parse(&text), Ok(graph), "{}", text);
    }

    #[test]
    fn random_text_is_an_error_not_a_panic(seed: u64, n_cut in 0usize..60) {
        let mut random = Random(seed);
        let mut text = random.graph(4).to_string().into_bytes();
        for _ in 0..n_cut.min(3) {
            let at = random.below(text.len());
            text[at] = random.pick(b"v0[]{}(),=;@\"\\ -9xe\n");
        }
        if let Ok(text) = String::from_utf8(text)
            && let Ok(graph) = parse(&text)
        {
            let _ = verify(&graph);
            prop_assert_eq!(parse(&graph.to_string()), Ok(graph));
        }
    }

    #[test]
    fn canonical_is_its_own_canonical_form(seed: u64) {
        let mut random = Random(seed);
        let graph = random.graph(10);
        let (canonical, inputs) = Region::contiguous(graph).canonical();
        let (again, same) = canonical.canonical();
        prop_assert_eq!(&again, &canonical);
        prop_assert_eq!(same, (0..inputs.len()).collect::<Vec<_>>());
        prop_assert_eq!(canonical.to_string().parse::<Region>().unwrap(), canonical);
    }

    #[test]
    fn order_of_definition_does_not_change_the_hash(seed: u64) {
        let mut random = Random(seed);
        let mut graph = random.graph(10);
        graph.output_names.clear();
        // Layouts must follow their inputs: make them all different.
        let (n_inputs, n_outputs) = (graph.inputs().count(), graph.outputs.len());
        let loads: Vec<Layout> = (0..n_inputs).map(|i| Layout { strides: vec![i + 3, 1] }).collect();
        let stores: Vec<Layout> =
            graph.outputs.iter().map(|&v| Layout::row_major(&graph.ty(v).extents())).collect();
        prop_assert_eq!(stores.len(), n_outputs);
        let (other, permuted) = shuffled(&graph, &mut random);
        let other_loads = permuted.iter().map(|&i| loads[i].clone()).collect();
        let (x, x_inputs) = Region::new(graph, loads, stores.clone()).canonical();
        let (y, y_inputs) = Region::new(other, other_loads, stores).canonical();
        prop_assert_eq!(x.to_string(), y.to_string());
        prop_assert_eq!(x.hash(), y.hash());
        let y_inputs: Vec<usize> = y_inputs.iter().map(|&i| permuted[i]).collect();
        prop_assert_eq!(x_inputs, y_inputs);
    }

    #[test]
    fn canonical_form_computes_the_same(seed: u64) {
        let mut random = Random(seed);
        let graph = random.graph(8);
        let tensors: Vec<Tensor> = graph.inputs().map(|_| random.small(&[2, 3])).collect();
        let region = Region::contiguous(graph);
        let (canonical, inputs) = region.canonical();
        let fewer: Vec<Tensor> = inputs.iter().map(|&i| tensors[i].clone()).collect();
        let bits = |arrays: Vec<eggine_ir::graph::Array>| -> Vec<Vec<u64>> {
            arrays.iter().map(|array| array.to_f64().iter().map(|x| x.to_bits()).collect()).collect()
        };
        prop_assert_eq!(bits(region.oracle(&tensors)), bits(canonical.oracle(&fewer)));
    }

    #[test]
    fn dead_nodes_go_and_the_rest_stays(seed: u64) {
        let mut random = Random(seed);
        let graph = random.graph(8);
        let tensors: Vec<Tensor> = graph.inputs().map(|_| random.small(&[2, 3])).collect();
        let mut less = graph.clone();
        less.eliminate_dead();
        prop_assert_eq!(verify(&less), Ok(()));
        let live = less.live();
        for (value, node) in less.nodes.iter() {
            let is_input = matches!(node.kind, NodeKind::Input { .. });
            prop_assert!(live[value] || is_input);
        }
        let text = |graph: &Graph| -> Vec<String> {
            eval(graph, &tensors, Rounding::None).iter().map(|array| array.to_tensor().to_string()).collect()
        };
        prop_assert_eq!(text(&less), text(&graph));
    }

    #[test]
    fn elementwise_is_f32_arithmetic(x: u32, y: u32) {
        let (x, y) = (f32::from_bits(x), f32::from_bits(y));
        let mut graph = Graph::new("f32");
        let (a, b) = (graph.constant(Tensor::f32(&[], &[x])), graph.constant(Tensor::f32(&[], &[y])));
        let ops = [Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Fmod];
        for op in ops {
            let value = graph.apply(op, vec![], &[a, b]).unwrap();
            graph.outputs.push(value);
        }
        let root = graph.apply(Op::Sqrt, vec![], &[a]).unwrap();
        graph.outputs.push(root);
        let expected = [x + y, x - y, x * y, x / y, x % y, x.sqrt()];
        for (array, expected) in eval(&graph, &[], Rounding::PerOp).iter().zip(expected) {
            let found = array.to_f64()[0] as f32;
            prop_assert!(found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()));
        }
    }

    #[test]
    fn broadcasting_agrees_with_naive(seed: u64) {
        let mut random = Random(seed);
        let rank = random.below(5);
        let extents: Vec<usize> = (0..rank).map(|_| random.below(4)).collect();
        let operand = |random: &mut Random| {
            let dropped = random.below(rank + 1);
            let extents: Vec<usize> =
                extents[dropped..].iter().map(|&n| if random.below(3) == 0 { 1 } else { n }).collect();
            random.small(&extents)
        };
        let (x, y) = (operand(&mut random), operand(&mut random));
        let mut graph = Graph::new("broadcast");
        let (a, b) = (graph.constant(x.clone()), graph.constant(y.clone()));
        let sum = graph.apply(Op::Sub, vec![], &[a, b]).unwrap();
        graph.outputs.push(sum);
        let result = &eval(&graph, &[], Rounding::None)[0];
        let at = |tensor: &Tensor, index: &[usize]| {
            let own = &index[index.len() - tensor.extents.len()..];
            let flat = own.iter().zip(&tensor.extents).fold(0, |flat, (&i, &n)| flat * n + if n == 1 { 0 } else { i });
            tensor.to_f64()[flat]
        };
        let found = result.to_f64();
        for (flat, found) in found.iter().enumerate() {
            let mut index = vec![0; result.extents.len()];
            let mut rest = flat;
            for axis in (0..index.len()).rev() {
                index[axis] = rest % result.extents[axis];
                rest /= result.extents[axis];
            }
            prop_assert_eq!(*found, at(&x, &index) - at(&y, &index));
        }
    }

    #[test]
    fn convolutions_agree_with_seven_loops(seed: u64, transposed: bool) {
        let mut random = Random(seed);
        let groups = 1 + random.below(3);
        let (n_in, n_out) = (1 + random.below(3), 1 + random.below(3));
        let images = 1 + random.below(2);
        let pairs = |random: &mut Random, least: usize, n: usize| [least + random.below(n), least + random.below(n)];
        let (extents, kernel) = (pairs(&mut random, 5, 6), pairs(&mut random, 1, 3));
        let (strides, dilations) = (pairs(&mut random, 1, 3), pairs(&mut random, 1, 2));
        let (before, after) = (pairs(&mut random, 0, 3), pairs(&mut random, 0, 3));
        let x = random.small(&[images, groups * n_in, extents[0], extents[1]]);
        let w = match transposed {
            true => random.small(&[groups * n_in, n_out, kernel[0], kernel[1]]),
            false => random.small(&[groups * n_out, n_in, kernel[0], kernel[1]]),
        };
        let ints = |xs: [usize; 2]| Attr::Ints(xs.iter().map(|&x| x as i64).collect());
        let mut attrs = vec![ints(strides), ints(before), ints(after), ints(dilations), Attr::Int(groups as i64)];
        if transposed {
            attrs.push(Attr::Ints(vec![1, 0]));
        }
        let mut graph = Graph::new("conv");
        let (a, b) = (graph.constant(x.clone()), graph.constant(w.clone()));
        let op = if transposed { Op::ConvTranspose } else { Op::Conv };
        let Ok(result) = graph.apply(op, attrs, &[a, b]) else { return Ok(()) };
        graph.outputs.push(result);
        let found = &eval(&graph, &[], Rounding::None)[0];
        let (x, w) = (x.to_f64(), w.to_f64());
        let [_, channels, height, width] = found.extents[..] else { unreachable!() };
        let mut expected = vec![0.0; found.n_elems()];
        // The image, of rows and columns `[h, w]`, that a convolution reads and its transpose writes.
        let (small, large) = if transposed { (extents, [height, width]) } else { ([height, width], extents) };
        for n in 0..images {
            for g in 0..groups {
                for m in 0..n_out {
                    for c in 0..n_in {
                        for i in 0..small[0] * small[1] {
                            for k in 0..kernel[0] * kernel[1] {
                                let (at, tap) = ([i / small[1], i % small[1]], [k / kernel[1], k % kernel[1]]);
                                let there = |axis: usize| {
                                    let shifted = at[axis] * strides[axis] + tap[axis] * dilations[axis];
                                    shifted.checked_sub(before[axis]).filter(|&i| i < large[axis])
                                };
                                let (Some(y), Some(z)) = (there(0), there(1)) else { continue };
                                let (at_large, n_taps) = (y * large[1] + z, kernel[0] * kernel[1]);
                                let (from, to) = if transposed { (i, at_large) } else { (at_large, i) };
                                let weight = match transposed {
                                    true => ((g * n_in + c) * n_out + m) * n_taps + k,
                                    false => ((g * n_out + m) * n_in + c) * n_taps + k,
                                };
                                let source = (n * groups * n_in + g * n_in + c) * extents[0] * extents[1] + from;
                                let target = (n * channels + g * n_out + m) * height * width + to;
                                expected[target] += x[source] * w[weight];
                            }
                        }
                    }
                }
            }
        }
        prop_assert_eq!(found.to_f64(), expected);
    }
}

/// Large enough for threads, several blocks of columns, and a one-dimensional line in parts.
#[test]
fn large_convolutions_agree_with_direct_sums() {
    let mut random = Random(7);
    for (x, w, groups) in [
        (vec![1, 16, 40, 50], vec![24, 16, 3, 3], 1),
        (vec![4, 16, 20, 30], vec![32, 4, 3, 3], 4),
        (vec![1, 64, 30000], vec![2, 64, 5], 1),
        (vec![1, 64, 40, 40], vec![64, 1, 3, 3], 64),
        (vec![1, 64, 64, 65], vec![64, 64, 1, 1], 1),
    ] {
        let (x, w) = (random.small(&x), random.small(&w));
        let rank = x.extents.len() - 2;
        let all = |n: i64| Attr::Ints(vec![n; rank]);
        let pad = if w.extents[2] == 1 { 0 } else { 1 };
        let mut graph = Graph::new("conv");
        let (a, b) = (graph.constant(x.clone()), graph.constant(w.clone()));
        let attrs = vec![all(1), all(pad), all(pad), all(1), Attr::Int(groups)];
        let result = graph.apply(Op::Conv, attrs, &[a, b]).unwrap();
        graph.outputs.push(result);
        let found = &eval(&graph, &[], Rounding::None)[0];
        let (data, x, w_data) = (found.to_f64(), x, w);
        let (x_data, weights) = (x.to_f64(), w_data.to_f64());
        let strides = |extents: &[usize]| eggine_ir::shape::row_major_strides(extents);
        let (n_in, per_group) = (w_data.extents[1], w_data.extents[0] / groups as usize);
        for _ in 0..300 {
            let index: Vec<usize> = found.extents.iter().map(|&n| random.below(n)).collect();
            let flat = |index: &[usize], extents: &[usize]| -> usize {
                index.iter().zip(strides(extents)).map(|(i, stride)| i * stride).sum()
            };
            let mut sum = 0.0;
            for c in 0..n_in {
                for k in 0..w_data.extents[2..].iter().product() {
                    let mut rest = k;
                    let mut tap = vec![0; rank];
                    for axis in (0..rank).rev() {
                        tap[axis] = rest % w_data.extents[axis + 2];
                        rest /= w_data.extents[axis + 2];
                    }
                    let mut from = vec![index[0], index[1] / per_group * n_in + c];
                    from.extend(
                        (0..rank)
                            .map(|axis| (index[axis + 2] + tap[axis]).wrapping_sub(pad as usize)),
                    );
                    if (0..rank).all(|axis| from[axis + 2] < x.extents[axis + 2]) {
                        let weight = [&[index[1], c], &tap[..]].concat();
                        sum += x_data[flat(&from, &x.extents)]
                            * weights[flat(&weight, &w_data.extents)];
                    }
                }
            }
            assert_eq!(data[flat(&index, &found.extents)], sum, "at {index:?}");
        }
    }
}

/// In several tasks, with batches broadcast.
#[test]
fn large_products_agree_with_direct_sums() {
    let mut random = Random(8);
    for (x, y) in [
        (vec![300, 200], vec![200, 100]),
        (vec![3, 1, 50, 60], vec![5, 60, 70]),
        (vec![1, 2000], vec![2000, 900]),
    ] {
        let (x, y) = (random.small(&x), random.small(&y));
        let mut graph = Graph::new("product");
        let (a, b) = (graph.constant(x.clone()), graph.constant(y.clone()));
        let result = graph.apply(Op::Matmul, vec![], &[a, b]).unwrap();
        graph.outputs.push(result);
        let found = &eval(&graph, &[], Rounding::None)[0];
        let (data, x_data, y_data) = (found.to_f64(), x.to_f64(), y.to_f64());
        let rank = found.extents.len();
        let (m, n, k) =
            (found.extents[rank - 2], found.extents[rank - 1], y.extents[y.extents.len() - 2]);
        for _ in 0..300 {
            let flat = random.below(data.len());
            let (batch, i, j) = (flat / (m * n), flat / n % m, flat % n);
            // Either no batch, or 3 of `x` by 5 of `y`.
            let (p, q) = (batch / 5, batch % 5);
            let dot: f64 =
                (0..k).map(|l| x_data[(p * m + i) * k + l] * y_data[(q * k + l) * n + j]).sum();
            assert_eq!(data[flat], dot);
        }
    }
}

#[test]
fn a_region_of_layouts_prints_them() {
    let graph = parse("graph @g(v0: f32[2,3] \"x\", v1: f32[3] \"y\") {\n v2 = add v0, v1 from \"n\"\n return v2\n}").unwrap();
    let (mut region, _) = Region::contiguous(graph).canonical();
    let contiguous = region.hash_hex();
    region.loads[0].strides = vec![1, 2];
    region.stores[0].strides = vec![8, 1];
    insta::assert_snapshot!(region, @r"
    graph @region(v0: f32[2,3], v1: f32[3]) {
        v2 = add v0, v1
        return v2
    }
    load v0 [1,2]
    store 0 [8,1]
    ");
    assert_ne!(region.hash_hex(), contiguous);
    assert_eq!(region.to_string().parse::<Region>().unwrap(), region);
}

#[test]
fn a_value_is_released_and_an_output_may_repeat() {
    let graph = parse(
        "graph @g(v0: f32[2]) {\n v1 = relu v0\n v2 = add v1, v1\n v3 = mul v0, v2\n return v1, v3, v1, v0\n}",
    )
    .unwrap();
    let outputs = eval(&graph, &[Tensor::f32(&[2], &[-1.0, 2.0])], Rounding::None);
    let data: Vec<Vec<f64>> = outputs.iter().map(|array| array.to_f64()).collect();
    assert_eq!(data, [vec![0.0, 2.0], vec![-0.0, 8.0], vec![0.0, 2.0], vec![-1.0, 2.0]]);
}
