//! Every ONNX operator that import knows, in one table.
//!
//! A row is a name, the first opset that has the operator and its handler, which
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
mod random;
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
    row("Neg", 1, elementwise::neg),
    row("Abs", 1, elementwise::abs),
    row("Sign", 9, elementwise::sign),
    row("Relu", 1, elementwise::relu),
    row("Exp", 1, elementwise::exp),
    row("Log", 1, elementwise::log),
    row("Sqrt", 1, elementwise::sqrt),
    row("Reciprocal", 1, elementwise::reciprocal),
    row("Erf", 9, elementwise::erf),
    row("Tanh", 1, elementwise::tanh),
    row("Sigmoid", 1, elementwise::sigmoid),
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
    row("Floor", 1, elementwise::floor),
    row("Ceil", 1, elementwise::ceil),
    row("Round", 11, elementwise::round),
    row("Not", 1, elementwise::not),
    row("IsNaN", 9, elementwise::is_nan),
    row("IsInf", 10, elementwise::is_inf),
    row("Add", 1, elementwise::add),
    row("Sub", 1, elementwise::sub),
    row("Mul", 1, elementwise::mul),
    row("Div", 1, elementwise::div),
    row("Pow", 1, elementwise::pow),
    row("Mod", 10, elementwise::modulo),
    row("Min", 1, elementwise::min),
    row("Max", 1, elementwise::max),
    row("Sum", 1, elementwise::sum),
    row("Mean", 1, elementwise::mean),
    row("And", 1, elementwise::and),
    row("Or", 1, elementwise::or),
    row("Xor", 1, elementwise::xor),
    row("BitwiseAnd", 18, elementwise::and),
    row("BitwiseOr", 18, elementwise::or),
    row("BitwiseXor", 18, elementwise::xor),
    row("BitwiseNot", 18, elementwise::bitwise_not),
    row("BitShift", 11, elementwise::bit_shift),
    row("BitCast", 26, elementwise::bit_cast),
    row("Equal", 1, elementwise::equal),
    row("Less", 1, elementwise::less),
    row("LessOrEqual", 12, elementwise::less_or_equal),
    row("Greater", 1, elementwise::greater),
    row("GreaterOrEqual", 12, elementwise::greater_or_equal),
    row("Where", 9, elementwise::select),
    row("Cast", 1, elementwise::cast),
    row("CastLike", 15, elementwise::cast_like),
    row("Identity", 1, elementwise::identity),
    row("Dropout", 1, elementwise::dropout),
    row("LeakyRelu", 1, elementwise::leaky_relu),
    row("PRelu", 1, elementwise::prelu),
    row("Elu", 1, elementwise::elu),
    row("Selu", 1, elementwise::selu),
    row("Celu", 12, elementwise::celu),
    row("ThresholdedRelu", 10, elementwise::thresholded_relu),
    row("HardSigmoid", 1, elementwise::hard_sigmoid),
    row("HardSwish", 14, elementwise::hard_swish),
    row("Softplus", 1, elementwise::softplus),
    row("Softsign", 1, elementwise::softsign),
    row("Mish", 18, elementwise::mish),
    row("Gelu", 20, elementwise::gelu),
    row("Swish", 24, elementwise::swish),
    row("SwiGLU", 28, elementwise::swi_glu),
    row("Shrink", 9, elementwise::shrink),
    row("Clip", 1, elementwise::clip),
    microsoft("Gelu", elementwise::gelu),
    microsoft("FastGelu", elementwise::fast_gelu),
    microsoft("BiasGelu", elementwise::bias_gelu),
    microsoft("QuickGelu", elementwise::quick_gelu),
    // Movement.
    row("Reshape", 1, movement::reshape),
    row("Flatten", 1, movement::flatten),
    row("Squeeze", 1, movement::squeeze),
    row("Unsqueeze", 1, movement::unsqueeze),
    row("Transpose", 1, movement::transpose),
    row("Expand", 8, movement::expand),
    row("Tile", 1, movement::tile),
    row("Concat", 1, movement::concat),
    row("Split", 1, movement::split),
    row("Slice", 1, movement::slice),
    row("Pad", 1, movement::pad),
    row("DepthToSpace", 1, movement::depth_to_space),
    row("SpaceToDepth", 1, movement::space_to_depth),
    row("CenterCropPad", 18, movement::center_crop_pad),
    row("ReverseSequence", 10, movement::reverse_sequence),
    // Indexing.
    row("Gather", 1, indexing::gather),
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
    row("MaxRoiPool", 1, regions::max_roi_pool),
    row("DeformConv", 19, regions::deform_conv),
    row("TensorScatter", 24, indexing::tensor_scatter),
    row("TfIdfVectorizer", 9, indexing::tf_idf),
    row("Unique", 11, selection::unique),
    row("NonMaxSuppression", 10, selection::non_max_suppression),
    row("Resize", 10, resize::resize),
    row("Upsample", 1, resize::upsample),
    // Constants and shapes.
    row("Constant", 1, constants::constant),
    row("ConstantOfShape", 9, constants::constant_of_shape),
    row("Shape", 1, constants::shape),
    row("Size", 1, constants::size),
    row("Range", 11, constants::range),
    row("NonZero", 9, constants::non_zero),
    row("EyeLike", 9, constants::eye_like),
    row("HannWindow", 17, signal::hann_window),
    row("HammingWindow", 17, signal::hamming_window),
    row("BlackmanWindow", 17, signal::blackman_window),
    row("MelWeightMatrix", 17, signal::mel_weight_matrix),
    // Reductions.
    row("ReduceSum", 1, reduce::sum),
    row("ReduceMean", 1, reduce::mean),
    row("ReduceMax", 1, reduce::max),
    row("ReduceMin", 1, reduce::min),
    row("ReduceProd", 1, reduce::prod),
    row("ReduceL1", 1, reduce::l1),
    row("ReduceL2", 1, reduce::l2),
    row("ReduceSumSquare", 1, reduce::sum_square),
    row("ReduceLogSum", 1, reduce::log_sum),
    row("ReduceLogSumExp", 1, reduce::log_sum_exp),
    row("ArgMax", 1, reduce::arg_max),
    row("ArgMin", 1, reduce::arg_min),
    row("TopK", 1, reduce::top_k),
    row("Softmax", 1, reduce::softmax),
    row("LogSoftmax", 1, reduce::log_softmax),
    row("Hardmax", 1, reduce::hardmax),
    row("CumSum", 11, reduce::cum_sum),
    row("CumProd", 26, reduce::cum_prod),
    row("GlobalAveragePool", 1, reduce::global_average_pool),
    row("GlobalMaxPool", 1, reduce::global_max_pool),
    row("GlobalLpPool", 1, reduce::global_lp_pool),
    // Matrix products.
    row("MatMul", 1, linear::matmul),
    row("Gemm", 1, linear::gemm),
    row("Einsum", 12, linear::einsum),
    microsoft("FusedMatMul", linear::fused_matmul),
    row("Det", 11, signal::det),
    row("DFT", 17, signal::dft),
    row("STFT", 17, signal::stft),
    // Windows.
    row("Conv", 1, window::conv),
    row("ConvTranspose", 1, window::conv_transpose),
    row("MaxPool", 1, window::max_pool),
    row("AveragePool", 1, window::average_pool),
    row("LpPool", 1, window::lp_pool),
    row("MaxUnpool", 9, window::max_unpool),
    row("Col2Im", 18, window::col2im),
    row("CausalConvWithState", 27, window::causal_conv_with_state),
    // Normalisation.
    row("BatchNormalization", 1, normalize::batch),
    row("InstanceNormalization", 1, normalize::instance),
    row("GroupNormalization", 18, normalize::group),
    row("LayerNormalization", 17, normalize::layer),
    row("RMSNormalization", 23, normalize::rms),
    row("SimplifiedLayerNormalization", 7, normalize::rms),
    row("LpNormalization", 1, normalize::lp),
    row("MeanVarianceNormalization", 9, normalize::mean_variance),
    row("LRN", 1, normalize::lrn),
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
    // Random.
    row("RandomUniform", 1, random::uniform),
    row("RandomUniformLike", 1, random::uniform_like),
    row("RandomNormal", 1, random::normal),
    row("RandomNormalLike", 1, random::normal_like),
    row("Bernoulli", 15, random::bernoulli),
    row("Multinomial", 7, random::multinomial),
    // Losses.
    row("NegativeLogLikelihoodLoss", 12, loss::negative_log_likelihood),
    row("SoftmaxCrossEntropyLoss", 12, loss::softmax_cross_entropy),
    // Attention.
    row("Attention", 23, attention::attention),
    row("RotaryEmbedding", 23, attention::rotary_embedding),
    row("LinearAttention", 27, attention::linear_attention),
    Row { domain: "ai.onnx.preview", ..control("FlexAttention", 1, attention::flex_attention) },
    // Recurrent, unrolled.
    row("LSTM", 1, recurrent::lstm),
    row("GRU", 1, recurrent::gru),
    row("RNN", 1, recurrent::rnn),
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
    control("If", 1, control::branch),
    control("Loop", 1, control::unroll_loop),
    control("Scan", 8, control::unroll_scan),
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
