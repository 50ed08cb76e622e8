//! Every rule of padded graphs: the result is that of the exact graph, with NaN in all places that no
//! element is in.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use eggine_ir::graph::{Rounding, eval};
use eggine_ir::padded::{Axis, Factor, Padded, crop, poisoned};
use eggine_ir::{Attr, DType, Graph, Op, Tensor, TensorType, Value};

type Make = dyn Fn(&[usize]) -> Graph;

fn ints(xs: &[usize]) -> Attr {
    Attr::Ints(xs.iter().map(|&x| x as i64).collect())
}

/// Numbers that differ, some of them negative; indices for integers.
fn tensor(ty: &TensorType, seed: usize) -> Tensor {
    let n = ty.n_elems();
    let at = |i: usize| (i * 7919 + seed * 104_729) % 23;
    match ty.dtype {
        DType::Bool => {
            let data: Vec<i64> = (0..n).map(|i| (at(i) % 2) as i64).collect();
            Tensor::from_i64(ty.dtype, &ty.extents(), &data)
        }
        dtype if dtype.is_float() => {
            let data: Vec<f64> = (0..n).map(|i| at(i) as f64 / 4.0 - 2.0).collect();
            Tensor::from_f64(dtype, &ty.extents(), &data)
        }
        dtype => {
            let data: Vec<i64> = (0..n).map(|i| at(i) as i64 % 5 - 2).collect();
            Tensor::from_i64(dtype, &ty.extents(), &data)
        }
    }
}

/// Elements of the outputs: exact ones, and those of the padded graph.
fn both(padded: &Padded, less: &Graph) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let at = padded.at(less).unwrap();
    let inputs: Vec<Tensor> =
        less.input_types().into_iter().enumerate().map(|(i, ty)| tensor(ty, i)).collect();
    let exact = eval(less, &inputs, Rounding::None);
    let mut wide: Vec<Tensor> =
        inputs.iter().zip(&at.inputs).map(|(input, axes)| poisoned(input, axes)).collect();
    wide.extend(at.extra.iter().cloned());
    let found = eval(&padded.graph, &wide, Rounding::None);
    let cropped = found.iter().zip(&at.outputs).map(|(array, axes)| crop(&array.to_tensor(), axes));
    (
        exact.iter().map(|array| array.to_tensor().to_f64()).collect(),
        cropped.map(|tensor| tensor.to_f64()).collect(),
    )
}

/// At the largest extents, and at each of the others, of which the first is the probe.
fn agrees(make: &Make, most: &[usize], others: &[&[usize]]) -> Padded {
    let padded = Padded::of(&make(most), &make(others[0])).unwrap();
    eggine_ir::graph::verify(&padded.graph).unwrap();
    for dims in others.iter().copied().chain([most]) {
        let (exact, found) = both(&padded, &make(dims));
        let same = exact.iter().flatten().zip(found.iter().flatten()).all(|(a, b)| {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-12 * a.abs().max(1.0)
        });
        assert!(same, "{dims:?} of {most:?}: {exact:?} and {found:?}\n{}", padded.graph);
    }
    padded
}

fn refused(make: &Make, most: &[usize], less: &[usize]) -> String {
    Padded::of(&make(most), &make(less)).unwrap_err().to_string()
}

fn f32s(extents: &[usize]) -> TensorType {
    TensorType::fixed(DType::F32, extents)
}

fn one(graph: &mut Graph, op: Op, attrs: Vec<Attr>, args: &[Value]) -> Value {
    graph.apply(op, attrs, args).unwrap()
}

fn with_outputs(mut graph: Graph, outputs: &[Value]) -> Graph {
    graph.outputs = outputs.to_vec();
    graph.output_names = (0..outputs.len()).map(|i| format!("y{i}")).collect();
    graph
}

#[test]
fn sums_and_extremes_count_what_is_there() {
    let make = |dims: &[usize]| {
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[dims[0], 3, dims[1]]));
        let ops = [Op::ReduceSum, Op::ReduceProd, Op::ReduceMax, Op::ReduceMin];
        let mut outputs: Vec<Value> =
            ops.iter().map(|&op| one(&mut g, op, vec![ints(&[0, 2])], &[x])).collect();
        for op in [Op::ArgMax, Op::ArgMin] {
            outputs.push(one(&mut g, op, vec![Attr::Int(2), Attr::Int(0)], &[x]));
        }
        let whole = one(&mut g, Op::Cast, vec![Attr::DType(DType::I32)], &[x]);
        outputs.push(one(&mut g, Op::ReduceMax, vec![ints(&[2])], &[whole]));
        with_outputs(g, &outputs)
    };
    agrees(&make, &[4, 9], &[&[2, 5], &[1, 1], &[4, 3], &[3, 9]]);
}

#[test]
fn a_sum_over_joined_axes_skips_what_is_between_them() {
    let make = |dims: &[usize]| {
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[dims[0], dims[1], 2]));
        let flat = one(&mut g, Op::Reshape, vec![ints(&[dims[0] * dims[1], 2])], &[x]);
        let sum = one(&mut g, Op::ReduceSum, vec![ints(&[0])], &[flat]);
        let line = one(&mut g, Op::Reshape, vec![ints(&[dims[0] * dims[1] * 2])], &[flat]);
        let heads = one(&mut g, Op::Reshape, vec![ints(&[dims[0], dims[1] * 2])], &[line]);
        with_outputs(g, &[sum, flat, line, heads])
    };
    agrees(&make, &[4, 5], &[&[2, 3], &[1, 5], &[4, 1], &[3, 4]]);
}

#[test]
fn products_mask_the_axis_that_is_summed() {
    let make = |dims: &[usize]| {
        let (b, k) = (dims[0], dims[1]);
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[b, 2, k, 3]));
        let y = g.input("y", f32s(&[b, 2, k, 4]));
        let turned = one(&mut g, Op::Transpose, vec![ints(&[0, 1, 3, 2])], &[x]);
        let scores = one(&mut g, Op::Matmul, vec![], &[turned, y]);
        let outer = g.constant(tensor(&f32s(&[4, 2]), 5));
        let last = one(&mut g, Op::Matmul, vec![], &[scores, outer]);
        with_outputs(g, &[scores, last])
    };
    agrees(&make, &[3, 8], &[&[2, 5], &[1, 1], &[3, 8]]);
}

#[test]
fn windows_see_padding_behind_the_end() {
    let make = |dims: &[usize]| {
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[dims[0], 2, dims[1]]));
        let w = g.constant(tensor(&f32s(&[3, 2, 3]), 1));
        let attrs = |stride: usize, groups: bool| {
            let mut attrs = vec![ints(&[stride]), ints(&[1]), ints(&[1]), ints(&[1])];
            attrs.extend(groups.then_some(Attr::Int(1)));
            attrs
        };
        let conv = one(&mut g, Op::Conv, attrs(2, true), &[x, w]);
        let pool =
            |g: &mut Graph, op| one(g, op, [vec![ints(&[3])], attrs(1, false)].concat(), &[x]);
        let (max, sum) = (pool(&mut g, Op::MaxPool), pool(&mut g, Op::SumPool));
        let wt = g.constant(tensor(&f32s(&[2, 3, 4]), 2));
        let up = [attrs(2, true), vec![ints(&[0])]].concat();
        let up = one(&mut g, Op::ConvTranspose, up, &[x, wt]);
        with_outputs(g, &[conv, max, sum, up])
    };
    agrees(&make, &[2, 12], &[&[1, 7], &[2, 5], &[1, 3], &[2, 12]]);
}

#[test]
fn joined_parts_follow_each_other_without_a_gap() {
    let make = |dims: &[usize]| {
        let (p, n) = (dims[0], dims[1]);
        let mut g = Graph::new("g");
        let past = g.input("past", f32s(&[2, p, 3]));
        let new = g.input("new", f32s(&[2, n, 3]));
        let first = g.constant(tensor(&f32s(&[2, 2, 3]), 9));
        let cache = one(&mut g, Op::Concat, vec![Attr::Int(1)], &[first, past, new, first]);
        let sum = one(&mut g, Op::ReduceSum, vec![ints(&[1])], &[cache]);
        let behind = one(&mut g, Op::Concat, vec![Attr::Int(1)], &[first, past]);
        with_outputs(g, &[cache, sum, behind])
    };
    agrees(&make, &[9, 4], &[&[4, 2], &[1, 1], &[9, 1], &[3, 4]]);
}

#[test]
fn slices_start_where_they_start_at_each_shape() {
    let make = |dims: &[usize]| {
        let n = dims[0];
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[2, n]));
        let table = g.input("table", f32s(&[20]));
        let mut slice = |x, starts: &[i64], extents: &[usize], steps: &[i64]| {
            let attrs =
                vec![Attr::Ints(starts.to_vec()), ints(extents), Attr::Ints(steps.to_vec())];
            one(&mut g, Op::Slice, attrs, &[x])
        };
        let outputs = [
            slice(x, &[0, n as i64 - 1], &[2, 1], &[1, 1]),
            slice(x, &[0, 1], &[2, n - 1], &[1, 1]),
            slice(x, &[0, n as i64 - 1], &[2, n], &[1, -1]),
            slice(x, &[1, 0], &[1, n.div_ceil(2)], &[1, 2]),
            slice(table, &[n as i64], &[n], &[1]),
            slice(table, &[0], &[n], &[1]),
        ];
        with_outputs(g, &outputs)
    };
    agrees(&make, &[9], &[&[5], &[2], &[8], &[9]]);
}

#[test]
fn padding_starts_behind_the_last_element() {
    let make = |dims: &[usize]| {
        let n = dims[0];
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[2, n]));
        let mut pad = |before: usize, after: usize, mode: &str, value| {
            let attrs = vec![
                ints(&[0, before]),
                ints(&[1, after]),
                Attr::Word(mode.into()),
                Attr::float(value),
            ];
            one(&mut g, Op::Pad, attrs, &[x])
        };
        let outputs =
            [pad(2, 3, "constant", 1.5), pad(3, 0, "reflect", 0.0), pad(1, 0, "edge", 0.0)];
        with_outputs(g, &outputs)
    };
    agrees(&make, &[9], &[&[5], &[4], &[9]]);
}

#[test]
fn indices_count_from_the_end_of_what_is_there() {
    let make = |dims: &[usize]| {
        let (b, n) = (dims[0], dims[1]);
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[b, n, 2]));
        let at = g.input("at", TensorType::fixed(DType::I64, &[3]));
        let rows = one(&mut g, Op::Gather, vec![Attr::Int(1)], &[x, at]);
        let flat = one(&mut g, Op::Reshape, vec![ints(&[b * n, 2])], &[x]);
        let data: Vec<i64> = (0..b * n).map(|i| (b * n - 1 - i) as i64).collect();
        let order = g.constant(Tensor::i64(&[b, n], &data));
        let turned = one(&mut g, Op::Gather, vec![Attr::Int(0)], &[flat, order]);
        let few = one(&mut g, Op::Gather, vec![Attr::Int(0)], &[flat, at]);
        with_outputs(g, &[rows, turned, few])
    };
    agrees(&make, &[3, 7], &[&[2, 5], &[1, 3], &[3, 1], &[2, 7]]);
}

#[test]
fn counters_expansions_and_numbers_of_a_shape() {
    let make = |dims: &[usize]| {
        let n = dims[0];
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[1, n]));
        let wide = one(&mut g, Op::Expand, vec![ints(&[3, n])], &[x]);
        let index = vec![ints(&[n, n]), Attr::Int(0), Attr::DType(DType::F32)];
        let index = one(&mut g, Op::Iota, index, &[]);
        let sum = one(&mut g, Op::ReduceSum, vec![ints(&[1])], &[wide]);
        let count = g.constant(Tensor::f32(&[], &[n as f32]));
        let mean = one(&mut g, Op::Div, vec![], &[sum, count]);
        let both = one(&mut g, Op::Add, vec![], &[x, index]);
        let column = one(&mut g, Op::Reshape, vec![ints(&[n, 1])], &[x]);
        let repeated = one(&mut g, Op::Expand, vec![ints(&[n, 4])], &[column]);
        with_outputs(g, &[mean, both, repeated])
    };
    let padded = agrees(&make, &[8], &[&[5], &[1], &[7]]);
    assert_eq!(padded.n_extra(), 2, "how many there are, as an index and as a divisor");
}

#[test]
fn interpolation_goes_on_with_the_last_element() {
    let make = |dims: &[usize]| {
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[dims[0], 2, dims[1]]));
        let scale = |x: f32| i64::from(x.to_bits());
        let word = |text: &str| Attr::Word(text.into());
        let modes = [
            ("nearest", "asymmetric", "floor"),
            ("nearest", "half_pixel", "ceil"),
            ("linear", "half_pixel", "floor"),
            ("cubic", "half_pixel", "floor"),
        ];
        let outputs = modes.map(|(mode, transform, rounding)| {
            let attrs = vec![
                ints(&[dims[0], 4, 3 * dims[1]]),
                word(mode),
                word(transform),
                word(rounding),
                Attr::float(-0.75),
                Attr::Ints(vec![scale(1.0), scale(2.0), scale(3.0)]),
            ];
            one(&mut g, Op::Resize, attrs, &[x])
        });
        with_outputs(g, &outputs)
    };
    agrees(&make, &[4, 7], &[&[3, 5], &[1, 1], &[4, 2]]);
    let corners = move |dims: &[usize]| {
        let mut graph = make(dims);
        for node in graph.nodes.values_mut() {
            if let eggine_ir::NodeKind::Apply(Op::Resize, attrs, _) = &mut node.kind {
                attrs.0[2] = Attr::Word("align_corners".into());
            }
        }
        graph
    };
    assert!(refused(&corners, &[4, 7], &[3, 5]).contains("how long an axis is"));
}

#[test]
fn what_import_leaves_out_at_one_shape_is_still_there() {
    // At one row there is nothing to repeat, nothing to cut off and nothing to turn around.
    let make = |dims: &[usize]| {
        let n = dims[0];
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[1, 4]));
        let y = g.input("y", f32s(&[n, 4]));
        let wide = match n {
            1 => x,
            _ => one(&mut g, Op::Expand, vec![ints(&[n, 4])], &[x]),
        };
        let back = vec![Attr::Ints(vec![n as i64 - 1, 0]), ints(&[n, 4]), Attr::Ints(vec![-1, 1])];
        let turned = match n {
            1 => y,
            _ => one(&mut g, Op::Slice, back, &[y]),
        };
        let sum = one(&mut g, Op::Add, vec![], &[wide, turned]);
        with_outputs(g, &[sum])
    };
    agrees(&make, &[5], &[&[3], &[1], &[5]]);
}

#[test]
fn what_cannot_be_padded_is_refused_by_name() {
    let split = |dims: &[usize]| {
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[dims[0] * 2]));
        let halves = one(&mut g, Op::Reshape, vec![ints(&[2, dims[0]])], &[x]);
        with_outputs(g, &[halves])
    };
    assert!(refused(&split, &[8], &[4]).contains("splits an axis that varies"));
    let last = |dims: &[usize]| {
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[dims[0]]));
        let at = one(&mut g, Op::ArgMax, vec![Attr::Int(0), Attr::Int(1)], &[x]);
        with_outputs(g, &[at])
    };
    assert!(refused(&last, &[8], &[4]).contains("last of equal"));
    let other = |dims: &[usize]| {
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[dims[0]]));
        let y = one(&mut g, if dims[0] > 4 { Op::Neg } else { Op::Abs }, vec![], &[x]);
        with_outputs(g, &[y])
    };
    assert!(refused(&other, &[8], &[4]).contains("another operator"));
}

#[test]
fn a_shape_that_needs_another_graph_is_refused() {
    let make = |dims: &[usize]| {
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[dims[0], dims[1]]));
        let sum = one(&mut g, Op::ReduceSum, vec![ints(&[0, 1])], &[x]);
        with_outputs(g, &[sum])
    };
    let padded = Padded::of(&make(&[8, 4]), &make(&[3, 4])).unwrap();
    assert!(padded.at(&make(&[8, 4])).is_ok());
    assert!(padded.at(&make(&[9, 4])).unwrap_err().to_string().contains("extent 9"));
    // The second axis was the same at both shapes: another extent was not foreseen.
    assert!(padded.at(&make(&[3, 2])).unwrap_err().to_string().contains("equal at other shapes"));
}

#[test]
fn the_check_sees_a_mask_that_is_missing() {
    let make = |dims: &[usize]| {
        let mut g = Graph::new("g");
        let x = g.input("x", f32s(&[dims[0]]));
        let sum = one(&mut g, Op::ReduceSum, vec![ints(&[0])], &[x]);
        with_outputs(g, &[sum])
    };
    let padded = Padded::of(&make(&[8]), &make(&[5])).unwrap();
    // The sum of everything instead of what is there.
    let input = Tensor::f32(&[5], &[1.0; 5]);
    let mut axis = Axis::default();
    axis.push(Factor { n: 5, most: 8, varies: true });
    let wide = poisoned(&input, &[axis]);
    let unmasked = eval(&make(&[8]), &[wide], Rounding::None);
    assert!(unmasked[0].to_tensor().to_f64()[0].is_nan());
    let (exact, found) = both(&padded, &make(&[5]));
    assert_eq!(exact, found);
}
