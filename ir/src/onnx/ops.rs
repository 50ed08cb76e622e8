//! Every ONNX operator that import knows, in one table.
//!
//! A row is a name, the first opset that has the operator (7 for older ones) and its handler, which
//! adds core operators to the graph. Differences between opsets are the handler's: it sees the opset.
//! Adding an operator is adding a row and a function in the file of its family.

mod attention;
mod constants;
mod control;
mod elementwise;
mod indexing;
mod linear;
mod loss;
mod movement;
mod normalize;
mod quant;
mod recurrent;
mod reduce;
mod regions;
mod resize;
mod selection;
mod signal;
mod trees;
mod window;

use super::builder::Builder;
use super::call::{Call, Outcome};
use super::import::{Importer, Scope};

/// How a row is imported.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// From operands and attributes alone.
    Plain(fn(&mut Builder, &Call) -> Outcome),
    /// With subgraphs.
    Control(fn(&mut Importer<'_>, &Scope<'_>, &Call) -> Outcome),
}

/// One operator.
pub(super) struct Row {
    /// `ai.onnx` or another domain.
    pub(super) domain: &'static str,
    pub(super) name: &'static str,
    /// First version of the domain that has it, as far as import cares.
    pub(super) since: i64,
    pub(super) handler: Handler,
}

const fn row(name: &'static str, since: i64, handler: fn(&mut Builder, &Call) -> Outcome) -> Row {
    Row { domain: "ai.onnx", name, since, handler: Handler::Plain(handler) }
}

const fn control(
    name: &'static str,
    since: i64,
    handler: fn(&mut Importer<'_>, &Scope<'_>, &Call) -> Outcome,
) -> Row {
    Row { domain: "ai.onnx", name, since, handler: Handler::Control(handler) }
}

const fn microsoft(name: &'static str, handler: fn(&mut Builder, &Call) -> Outcome) -> Row {
    Row { domain: "com.microsoft", name, since: 1, handler: Handler::Plain(handler) }
}

const fn ml(name: &'static str, handler: fn(&mut Builder, &Call) -> Outcome) -> Row {
    Row { domain: "ai.onnx.ml", name, since: 1, handler: Handler::Plain(handler) }
}

/// The row of an operator.
pub(super) fn find(domain: &str, name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name && row.domain == domain)
}

/// The row that an unknown operator was perhaps meant to be: the same name in another domain or
/// another case, or the closest spelling.
pub(super) fn nearest(name: &str) -> Option<&'static Row> {
    let same = TABLE.iter().find(|row| row.name.eq_ignore_ascii_case(name));
    same.or_else(|| {
        let best =
            TABLE.iter().map(|row| (distance(row.name, name), row)).min_by_key(|(far, _)| *far)?;
        (best.0 * 3 <= name.len()).then_some(best.1)
    })
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), &b.as_bytes()[..b.len().min(64)]);
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[rustfmt::skip] // One operator per row.
pub(super) const TABLE: &[Row] = &[
    // Elementwise.
    row("Neg", 7, elementwise::neg),
    row("Abs", 7, elementwise::abs),
    row("Sign", 9, elementwise::sign),
    row("Relu", 7, elementwise::relu),
    row("Exp", 7, elementwise::exp),
    row("Log", 7, elementwise::log),
    row("Sqrt", 7, elementwise::sqrt),
    row("Reciprocal", 7, elementwise::reciprocal),
    row("Erf", 9, elementwise::erf),
    row("Tanh", 7, elementwise::tanh),
    row("Sigmoid", 7, elementwise::sigmoid),
    row("Sin", 7, elementwise::sin),
    row("Cos", 7, elementwise::cos),
    row("Tan", 7, elementwise::tan),
    row("Atan", 7, elementwise::atan),
    row("Asin", 7, elementwise::asin),
    row("Acos", 7, elementwise::acos),
    row("Sinh", 9, elementwise::sinh),
    row("Cosh", 9, elementwise::cosh),
    row("Asinh", 9, elementwise::asinh),
    row("Acosh", 9, elementwise::acosh),
    row("Atanh", 9, elementwise::atanh),
    row("Floor", 7, elementwise::floor),
    row("Ceil", 7, elementwise::ceil),
    row("Round", 11, elementwise::round),
    row("Not", 7, elementwise::not),
    row("IsNaN", 9, elementwise::is_nan),
    row("IsInf", 10, elementwise::is_inf),
    row("Add", 7, elementwise::add),
    row("Sub", 7, elementwise::sub),
    row("Mul", 7, elementwise::mul),
    row("Div", 7, elementwise::div),
    row("Pow", 7, elementwise::pow),
    row("Mod", 10, elementwise::modulo),
    row("Min", 7, elementwise::min),
    row("Max", 7, elementwise::max),
    row("Sum", 7, elementwise::sum),
    row("Mean", 7, elementwise::mean),
    row("And", 7, elementwise::and),
    row("Or", 7, elementwise::or),
    row("Xor", 7, elementwise::xor),
    row("BitwiseAnd", 18, elementwise::and),
    row("BitwiseOr", 18, elementwise::or),
    row("BitwiseXor", 18, elementwise::xor),
    row("BitwiseNot", 18, elementwise::bitwise_not),
    row("BitShift", 11, elementwise::bit_shift),
    row("BitCast", 26, elementwise::bit_cast),
    row("Equal", 7, elementwise::equal),
    row("Less", 7, elementwise::less),
    row("LessOrEqual", 12, elementwise::less_or_equal),
    row("Greater", 7, elementwise::greater),
    row("GreaterOrEqual", 12, elementwise::greater_or_equal),
    row("Where", 9, elementwise::select),
    row("Cast", 7, elementwise::cast),
    row("CastLike", 15, elementwise::cast_like),
    row("Identity", 7, elementwise::identity),
    row("Dropout", 7, elementwise::dropout),
    row("LeakyRelu", 7, elementwise::leaky_relu),
    row("PRelu", 7, elementwise::prelu),
    row("Elu", 7, elementwise::elu),
    row("Selu", 7, elementwise::selu),
    row("Celu", 12, elementwise::celu),
    row("ThresholdedRelu", 10, elementwise::thresholded_relu),
    row("HardSigmoid", 7, elementwise::hard_sigmoid),
    row("HardSwish", 14, elementwise::hard_swish),
    row("Softplus", 7, elementwise::softplus),
    row("Softsign", 7, elementwise::softsign),
    row("Mish", 18, elementwise::mish),
    row("Gelu", 20, elementwise::gelu),
    row("Swish", 24, elementwise::swish),
    row("SwiGLU", 28, elementwise::swi_glu),
    row("Shrink", 9, elementwise::shrink),
    row("Clip", 7, elementwise::clip),
    microsoft("Gelu", elementwise::gelu),
    microsoft("FastGelu", elementwise::fast_gelu),
    microsoft("BiasGelu", elementwise::bias_gelu),
    microsoft("QuickGelu", elementwise::quick_gelu),
    // Movement.
    row("Reshape", 7, movement::reshape),
    row("Flatten", 7, movement::flatten),
    row("Squeeze", 7, movement::squeeze),
    row("Unsqueeze", 7, movement::unsqueeze),
    row("Transpose", 7, movement::transpose),
    row("Expand", 8, movement::expand),
    row("Tile", 7, movement::tile),
    row("Concat", 7, movement::concat),
    row("Split", 7, movement::split),
    row("Slice", 7, movement::slice),
    row("Pad", 7, movement::pad),
    row("DepthToSpace", 7, movement::depth_to_space),
    row("SpaceToDepth", 7, movement::space_to_depth),
    row("CenterCropPad", 18, movement::center_crop_pad),
    row("ReverseSequence", 10, movement::reverse_sequence),
    // Indexing.
    row("Gather", 7, indexing::gather),
    row("GatherElements", 11, indexing::gather_elements),
    row("GatherND", 11, indexing::gather_nd),
    row("ScatterElements", 11, indexing::scatter_elements),
    row("Scatter", 9, indexing::scatter_elements),
    row("ScatterND", 11, indexing::scatter_nd),
    row("OneHot", 9, indexing::one_hot),
    row("Trilu", 14, indexing::trilu),
    row("Compress", 9, indexing::compress),
    row("GridSample", 16, regions::grid_sample),
    row("AffineGrid", 20, regions::affine_grid),
    row("RoiAlign", 10, regions::roi_align),
    row("DeformConv", 19, regions::deform_conv),
    row("TensorScatter", 24, indexing::tensor_scatter),
    row("TfIdfVectorizer", 9, indexing::tf_idf),
    row("Unique", 11, selection::unique),
    row("NonMaxSuppression", 10, selection::non_max_suppression),
    row("Resize", 10, resize::resize),
    row("Upsample", 7, resize::upsample),
    // Constants and shapes.
    row("Constant", 7, constants::constant),
    row("ConstantOfShape", 9, constants::constant_of_shape),
    row("Shape", 7, constants::shape),
    row("Size", 7, constants::size),
    row("Range", 11, constants::range),
    row("NonZero", 9, constants::non_zero),
    row("EyeLike", 9, constants::eye_like),
    row("HannWindow", 17, signal::hann_window),
    row("HammingWindow", 17, signal::hamming_window),
    row("BlackmanWindow", 17, signal::blackman_window),
    row("MelWeightMatrix", 17, signal::mel_weight_matrix),
    // Reductions.
    row("ReduceSum", 7, reduce::sum),
    row("ReduceMean", 7, reduce::mean),
    row("ReduceMax", 7, reduce::max),
    row("ReduceMin", 7, reduce::min),
    row("ReduceProd", 7, reduce::prod),
    row("ReduceL1", 7, reduce::l1),
    row("ReduceL2", 7, reduce::l2),
    row("ReduceSumSquare", 7, reduce::sum_square),
    row("ReduceLogSum", 7, reduce::log_sum),
    row("ReduceLogSumExp", 7, reduce::log_sum_exp),
    row("ArgMax", 7, reduce::arg_max),
    row("ArgMin", 7, reduce::arg_min),
    row("TopK", 10, reduce::top_k),
    row("Softmax", 7, reduce::softmax),
    row("LogSoftmax", 7, reduce::log_softmax),
    row("Hardmax", 7, reduce::hardmax),
    row("CumSum", 11, reduce::cum_sum),
    row("CumProd", 26, reduce::cum_prod),
    row("GlobalAveragePool", 7, reduce::global_average_pool),
    row("GlobalMaxPool", 7, reduce::global_max_pool),
    row("GlobalLpPool", 7, reduce::global_lp_pool),
    // Matrix products.
    row("MatMul", 7, linear::matmul),
    row("Gemm", 7, linear::gemm),
    row("Einsum", 12, linear::einsum),
    microsoft("FusedMatMul", linear::fused_matmul),
    row("Det", 11, signal::det),
    row("DFT", 17, signal::dft),
    row("STFT", 17, signal::stft),
    // Windows.
    row("Conv", 7, window::conv),
    row("ConvTranspose", 7, window::conv_transpose),
    row("MaxPool", 7, window::max_pool),
    row("AveragePool", 7, window::average_pool),
    row("LpPool", 7, window::lp_pool),
    row("MaxUnpool", 9, window::max_unpool),
    row("Col2Im", 18, window::col2im),
    row("CausalConvWithState", 27, window::causal_conv_with_state),
    // Normalisation.
    row("BatchNormalization", 7, normalize::batch),
    row("InstanceNormalization", 7, normalize::instance),
    row("GroupNormalization", 18, normalize::group),
    row("LayerNormalization", 17, normalize::layer),
    row("RMSNormalization", 23, normalize::rms),
    row("SimplifiedLayerNormalization", 7, normalize::rms),
    row("LpNormalization", 7, normalize::lp),
    row("MeanVarianceNormalization", 9, normalize::mean_variance),
    row("LRN", 7, normalize::lrn),
    microsoft("SkipLayerNormalization", normalize::skip_layer),
    microsoft("SimplifiedLayerNormalization", normalize::rms),
    microsoft("SkipSimplifiedLayerNormalization", normalize::skip_rms),
    ml("Scaler", normalize::scaler),
    ml("TreeEnsembleClassifier", trees::classifier),
    ml("TreeEnsembleRegressor", trees::regressor),
    ml("TreeEnsemble", trees::ensemble),
    ml("Binarizer", trees::binarizer),
    ml("ArrayFeatureExtractor", trees::feature_extractor),
    ml("LinearRegressor", trees::linear_regressor),
    ml("Normalizer", trees::normalizer),
    // Losses.
    row("NegativeLogLikelihoodLoss", 12, loss::negative_log_likelihood),
    row("SoftmaxCrossEntropyLoss", 12, loss::softmax_cross_entropy),
    // Attention.
    row("Attention", 23, attention::attention),
    row("RotaryEmbedding", 23, attention::rotary_embedding),
    row("LinearAttention", 27, attention::linear_attention),
    Row { domain: "ai.onnx.preview", ..control("FlexAttention", 1, attention::flex_attention) },
    // Recurrent, unrolled.
    row("LSTM", 7, recurrent::lstm),
    row("GRU", 7, recurrent::gru),
    row("RNN", 7, recurrent::rnn),
    // Quantisation.
    row("QuantizeLinear", 10, quant::quantize),
    row("DequantizeLinear", 10, quant::dequantize),
    row("DynamicQuantizeLinear", 11, quant::dynamic_quantize),
    row("MatMulInteger", 10, quant::matmul_integer),
    row("ConvInteger", 10, quant::conv_integer),
    row("QLinearMatMul", 10, quant::qlinear_matmul),
    row("QLinearConv", 10, quant::qlinear_conv),
    microsoft("MatMulNBits", quant::matmul_n_bits),
    microsoft("DynamicQuantizeLSTM", recurrent::dynamic_quantize_lstm),
    // Control flow and sequences.
    control("If", 7, control::branch),
    control("Loop", 7, control::unroll_loop),
    control("Scan", 9, control::unroll_scan),
    row("Optional", 15, constants::optional),
    row("OptionalHasElement", 15, constants::has_element),
    row("OptionalGetElement", 15, elementwise::identity),
    row("SequenceEmpty", 11, control::sequence_empty),
    row("SequenceConstruct", 11, control::sequence_construct),
    row("SequenceInsert", 11, control::sequence_insert),
    row("SequenceErase", 11, control::sequence_erase),
    row("SequenceAt", 11, control::sequence_at),
    row("SequenceLength", 11, control::sequence_length),
    row("SplitToSequence", 11, control::split_to_sequence),
    row("ConcatFromSequence", 11, control::concat_from_sequence),
];
