//! Traps that can be seen in a model: forms of operators where runtimes are known to differ from the
//! standard or from each other, or whose meaning changed between opsets. A trap is a row: it says what it
//! is and what Eggine does there. It is a note, not a refusal.

use std::collections::BTreeMap;

use super::TrapFound;
use super::walk::Spot;
use crate::DType;
use crate::onnx::order::node_name;
use crate::onnx::proto::{GraphProto, ModelProto};

/// A trap in a node.
struct Trap {
    name: &'static str,
    /// Operators of the standard's domain.
    ops: &'static [&'static str],
    says: &'static str,
    applies: fn(&Spot<'_, '_>) -> bool,
}

const fn trap(
    name: &'static str,
    ops: &'static [&'static str],
    applies: fn(&Spot<'_, '_>) -> bool,
    says: &'static str,
) -> Trap {
    Trap { name, ops, says, applies }
}

const POOLS: &[&str] = &["AveragePool", "MaxPool", "LpPool"];
const WINDOWS: &[&str] =
    &["Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool", "QLinearConv", "ConvInteger"];

#[rustfmt::skip] // One trap per entry.
const TRAPS: &[Trap] = &[
    trap("softmax-flattens", &["Softmax", "LogSoftmax", "Hardmax"],
        |s| s.opset < 13 && s.operand(0).is_none_or(|x| x.rank.is_none_or(|rank| rank > 2)),
        "before opset 13 the operand is a matrix cut at `axis` (default 1): all axes from there are normalised together; done as the standard says, onnx.reference differs"),
    trap("pad-lower", WINDOWS,
        |s| s.word("auto_pad", "NOTSET") == "SAME_LOWER",
        "auto_pad SAME_LOWER puts the odd pad in front; some runtimes put it behind, as SAME_UPPER does"),
    trap("pad-twice", WINDOWS,
        |s| !matches!(s.word("auto_pad", "NOTSET").as_str(), "NOTSET" | "") && s.attr("pads").is_some_and(|it| it.ints.iter().any(|&n| n != 0)),
        "auto_pad and pads are both given; auto_pad wins"),
    trap("average-hangs-over", &["AveragePool"],
        |s| s.int("ceil_mode", 0) == 1 && s.int("count_include_pad", 0) == 1,
        "ceil_mode with count_include_pad: padding counts, what hangs over it does not (opset 19 says so; older runtimes divide by the whole window)"),
    trap("window-in-the-padding", POOLS,
        |s| s.int("ceil_mode", 0) == 1 && s.attr("pads").is_some_and(|it| it.ints.iter().any(|&n| n != 0)),
        "ceil_mode with pads: a window that would start in the padding behind is left out (opset 19 says so; older shape inference counts it)"),
    trap("max-pool-indices", &["MaxPool"], |s| s.wants(1),
        "the indices of MaxPool count over the whole tensor, batch and channel included"),
    trap("deconv-output-shape", &["ConvTranspose"],
        |s| s.attr("output_shape").is_some(),
        "output_shape derives the pads; where they are odd, which side gets more depends on auto_pad, and opsets before 11 said it the other way round"),
    trap("resize-of-opset-10", &["Resize", "Upsample"], |s| s.opset <= 10,
        "before opset 11 resizing is asymmetric and rounds down"),
    trap("resize-nearest-half", &["Resize"],
        |s| s.opset >= 11 && s.word("mode", "nearest") == "nearest" && s.attr("nearest_mode").is_none() && s.word("coordinate_transformation_mode", "half_pixel") != "asymmetric",
        "nearest without nearest_mode rounds halves down (round_prefer_floor), not to even and not up"),
    trap("resize-crop", &["Resize"],
        |s| matches!(s.word("coordinate_transformation_mode", "").as_str(), "tf_crop_and_resize" | "tf_half_pixel_for_nn"),
        "coordinates of TensorFlow: tf_half_pixel_for_nn exists in opset 11 and 12 only; tf_crop_and_resize reads outside of its region of interest as extrapolation_value"),
    trap("resize-antialias", &["Resize"], |s| s.int("antialias", 0) == 1,
        "antialias widens the filter when shrinking; runtimes differ in how they cut it off"),
    trap("clip-nan", &["Clip"], |s| s.opset < 11 || s.operands.len() < 3,
        "an absent bound is the lowest or the largest number of the type; NaN stays NaN"),
    trap("quantise-half-to-even", &["QuantizeLinear", "DynamicQuantizeLinear"], |_| true,
        "halves round to even and results saturate: 0.5 is 0, 1.5 is 2"),
    trap("quantise-half-precision", &["QuantizeLinear", "DequantizeLinear"],
        |s| s.dtype(0) == Some(DType::F16) || s.dtype(1) == Some(DType::F16),
        "the division by a float16 scale is done in float16 by some runtimes"),
    trap("u8-times-i8", &["MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"], |_| true,
        "8-bit products are summed exactly in 32 bits; runtimes on CPUs without VNNI may saturate pairs in 16"),
    trap("batch-norm-trains", &["BatchNormalization"],
        |s| s.int("training_mode", 0) == 1 || (1..5).any(|i| s.wants(i)),
        "training outputs of BatchNormalization: only inference is compiled"),
    trap("batch-norm-spatial", &["BatchNormalization"], |s| s.int("spatial", 1) == 0,
        "spatial = 0 (opset 7 and 8) normalises each element with statistics of its own"),
    trap("dropout-trains", &["Dropout"], |s| s.operands.len() > 2 && s.operand(2).is_some(),
        "Dropout with a training flag: with one that is a constant and true, what is dropped is drawn once, when the model is compiled; otherwise it is the identity"),
    trap("cast-saturates", &["Cast"],
        |s| s.dtype(0).is_none_or(DType::is_float) && DType::from_onnx(s.int("to", 0) as i32).is_some_and(|to| !to.is_float() && to != DType::Bool),
        "float to integer truncates; out of range and NaN are undefined in the standard: Eggine saturates, NaN is 0, onnxruntime gives the lowest integer"),
    trap("integer-division", &["Div", "Mod"],
        |s| s.dtype(0).is_some_and(|it| !it.is_float()),
        "integers: Div truncates toward zero, Mod without fmod takes the sign of the divisor; division by zero is undefined in the standard and defined here"),
    trap("float-mod", &["Mod"], |s| s.int("fmod", 0) == 1,
        "fmod = 1 takes the sign of the dividend, as C's fmod"),
    trap("arg-of-ties", &["ArgMax", "ArgMin"], |s| s.int("select_last_index", 0) == 1,
        "select_last_index = 1: the last of equal elements, which some runtimes ignore"),
    trap("top-k-ties", &["TopK"], |s| s.int("sorted", 1) == 0,
        "sorted = 0 leaves the order open; equal elements come in the order of their indices here"),
    trap("nan-in-maximum", &["ReduceMax", "ReduceMin", "MaxPool"], |s| s.operands.is_empty() || s.dtype(0).is_none_or(DType::is_float) && s.opset >= 18,
        "NaN in a maximum: Eggine keeps NaN, onnxruntime's ReduceMax may drop it"),
    trap("empty-axes", &["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"],
        |s| s.int("noop_with_empty_axes", 0) == 1,
        "noop_with_empty_axes = 1: without axes nothing is reduced"),
    trap("half-statistics", &["LayerNormalization", "RMSNormalization", "ReduceMean", "InstanceNormalization", "GroupNormalization"],
        |s| s.dtype(0) == Some(DType::F16),
        "float16 statistics: squares of numbers above 255 overflow; Eggine sums in float32, onnx.reference gives 0"),
    trap("group-norm-scale", &["GroupNormalization"], |s| s.opset < 21,
        "before opset 21 scale and bias are per group, since then per channel"),
    trap("gather-negative", &["Gather", "GatherElements", "GatherND", "ScatterND", "ScatterElements"],
        |s| s.operand(1).is_some_and(|it| it.data),
        "indices known at run time: negative ones count from the end; those out of range are undefined in the standard"),
    trap("scatter-twice", &["ScatterND", "ScatterElements", "Scatter"],
        |s| s.word("reduction", "none") == "none" && s.operand(1).is_some_and(|it| it.data),
        "an index that occurs twice without a reduction: the standard leaves open which update wins; here the last"),
    trap("reshape-zero", &["Reshape"], |s| s.int("allowzero", 0) == 1,
        "allowzero = 1: a 0 in the shape is an extent of 0, not a copy of the operand's"),
    trap("grid-sample-names", &["GridSample"], |s| s.opset < 20,
        "opset 16 calls its modes bilinear and bicubic, opset 20 linear and cubic; align_corners is 0 by default"),
    trap("gru-reset", &["GRU"], |s| s.int("linear_before_reset", 0) == 0,
        "linear_before_reset = 0 is the default of the standard; PyTorch and cuDNN mean 1"),
    trap("recurrent-layout", &["LSTM", "GRU", "RNN"], |s| s.int("layout", 0) == 1,
        "layout = 1 puts the batch first; onnxruntime refuses it"),
    trap("gelu-approximation", &["Gelu"], |s| s.word("approximate", "none") == "tanh",
        "approximate = tanh differs from the exact one by up to 5e-4"),
    trap("random", &["RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"], |_| true,
        "random numbers: drawn once, when the model is compiled, and the same in every run; no two runtimes agree"),
    trap("loop-of-nothing", &["Loop"], |s| s.operand(0).is_none() && s.operand(1).is_none(),
        "a loop with neither trip count nor condition never ends"),
    trap("large-fill", &["ConstantOfShape", "Expand", "Tile"],
        |s| {
            let i = usize::from(s.node.op_type.as_deref() != Some("ConstantOfShape"));
            let shape = s.operand(i).and_then(|it| it.constant).map(|it| &it.int64_data[..]);
            s.node.op_type.as_deref() == Some("ConstantOfShape") && shape.is_some_and(|it| it.iter().product::<i64>() > 1 << 24)
        },
        "a constant of more than 16 million equal elements: kept as one number"),
];

/// Traps of a whole graph.
const OF_GRAPH: &[(&str, &str)] = &[
    (
        "names-twice",
        "several nodes have this name: later ones are called `name#2`; onnxruntime refuses the model",
    ),
    (
        "order",
        "the node stands before one that it reads: nodes are sorted here; the checker of the onnx package refuses the model",
    ),
    (
        "initialiser-as-input",
        "an initialiser is listed among the inputs (IR version 3 wanted that): it is taken as a constant",
    ),
    (
        "old-opset",
        "an opset before 9: attributes and broadcasting changed since; converting the model may be safer",
    ),
];

/// Traps of the main graph and the node or value that each is at.
pub(super) fn of_graph(model: &ModelProto, graph: &GraphProto) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let at = |i: usize| TRAPS.len() + i;
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &graph.node {
        let name = node.name.as_deref().unwrap_or_default();
        let n = names.entry(name).or_insert(0);
        *n += 1;
        if *n == 2 && !name.is_empty() {
            found.push((at(0), name.to_owned()));
        }
    }
    let mut producers: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, node) in graph.node.iter().enumerate() {
        node.output.iter().for_each(|name| {
            producers.insert(name, i);
        });
    }
    for (i, node) in graph.node.iter().enumerate() {
        let late =
            |name: &String| producers.get(name.as_str()).is_some_and(|&producer| producer > i);
        if node.input.iter().any(late) {
            found.push((at(1), node_name(node)));
        }
    }
    let constants: std::collections::BTreeSet<&str> =
        graph.initializer.iter().filter_map(|it| it.name.as_deref()).collect();
    let listed = graph.input.iter().filter_map(|it| it.name.as_deref());
    found.extend(listed.filter(|it| constants.contains(it)).map(|it| (at(2), it.to_owned())));
    let standard = |domain: Option<&str>| matches!(domain, None | Some("" | "ai.onnx"));
    let old = model
        .opset_import
        .iter()
        .any(|it| standard(it.domain.as_deref()) && it.version.is_some_and(|version| version < 9));
    if old {
        found.push((at(3), "(model)".into()));
    }
    found
}

/// Traps that a node is in.
pub(super) fn of_node(domain: &str, op: &str, spot: &Spot<'_, '_>) -> Vec<usize> {
    if domain != "ai.onnx" {
        return Vec::new();
    }
    let here = |row: &&Trap| row.ops.contains(&op) && (row.applies)(spot);
    let index = |(i, row): (usize, &'static Trap)| here(&row).then_some(i);
    TRAPS.iter().enumerate().filter_map(index).collect()
}

/// By trap, in the order of the tables.
pub(super) fn gather(mut found: Vec<(usize, String)>) -> Vec<TrapFound> {
    found.sort_by_key(|(trap, _)| *trap);
    let mut all: Vec<TrapFound> = Vec::new();
    for (index, node) in found {
        let (trap, says) = match TRAPS.get(index) {
            Some(row) => (row.name, row.says),
            None => OF_GRAPH[index - TRAPS.len()],
        };
        match all.last_mut() {
            Some(last) if last.trap == trap => last.nodes.push(node),
            _ => all.push(TrapFound { trap, says, nodes: vec![node] }),
        }
    }
    all
}
