//! How common an operator is: the smallest share of 171 models in the wild (67 trained ones that ship in
//! packages, 92 exported architectures, 12 quantised variants) that cannot be covered without it.

use serde::Serialize;

/// How common an operator is. Tiers are cumulative: the operators up to a tier cover its share of 171 models
/// in the wild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Tier {
    /// Among the 61 operators that cover half of the models.
    #[serde(rename = "50%")]
    Half,
    /// Among the 86 that cover 80 %.
    #[serde(rename = "80%")]
    Eighty,
    /// Among the 110 that cover 95 %.
    #[serde(rename = "95%")]
    NinetyFive,
    /// Among the 125 that cover 99 %.
    #[serde(rename = "99%")]
    NinetyNine,
    /// Among the 130 that cover all.
    #[serde(rename = "100%")]
    All,
    /// In none of the models.
    #[serde(rename = "rare")]
    Rare,
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Tier::Half => "50%",
            Tier::Eighty => "80%",
            Tier::NinetyFive => "95%",
            Tier::NinetyNine => "99%",
            Tier::All => "100%",
            Tier::Rare => "rare",
        })
    }
}

#[rustfmt::skip] // One tier per entry.
const TIERS: &[(Tier, &[&str])] = &[
    (Tier::Half, &[
        "Constant", "Add", "Transpose", "Reshape", "Concat", "Mul", "Slice", "Unsqueeze", "MatMul", "Shape", "Gather", "Conv",
        "Cast", "Softmax", "Sigmoid", "Div", "Squeeze", "Expand", "LayerNormalization", "Pow", "ConstantOfShape", "Where",
        "Sub", "Sqrt", "Gemm", "Identity", "ReduceMean", "Relu", "Equal", "Range", "Tanh", "Sin", "Split", "Cos", "Neg",
        "MaxPool", "Gelu", "And", "Clip", "Pad", "Resize", "Erf", "LessOrEqual", "Reciprocal", "Flatten", "IsNaN", "Max",
        "ConvTranspose", "Exp", "ReduceMax", "GatherND", "InstanceNormalization", "LSTM", "GlobalAveragePool", "Einsum", "GRU",
        "LeakyRelu", "LogSoftmax", "Elu", "PRelu", "ml.TreeEnsembleClassifier", "RNN",
    ]),
    (Tier::Eighty, &[
        "Greater", "Less", "ReduceSum", "Log", "Not", "DynamicQuantizeLinear", "MatMulInteger", "DequantizeLinear",
        "ScatterND", "Tile", "CumSum", "Min", "If", "com.microsoft.DynamicQuantizeLSTM", "Softplus", "Abs", "ArgMax",
        "AveragePool", "ReduceL2", "QuantizeLinear", "GridSample", "Size", "Attention", "Trilu", "Mod",
    ]),
    (Tier::NinetyFive, &[
        "Ceil", "Loop", "BatchNormalization", "TopK", "GatherElements", "NonZero", "SequenceInsert", "SequenceEmpty",
        "HardSigmoid", "GreaterOrEqual", "Round", "ConvInteger", "ConcatFromSequence", "ScatterElements", "ml.LabelEncoder",
        "Floor", "ReduceMin", "Sign", "OneHot", "RandomNormalLike", "GlobalMaxPool", "ml.Scaler",
        "com.microsoft.MatMulNBits", "Scan",
    ]),
    (Tier::NinetyNine, &[
        "ReduceProd", "RMSNormalization", "RotaryEmbedding", "com.microsoft.QLinearAdd", "LpNormalization",
        "ReverseSequence", "CausalConvWithState", "QLinearConv", "LinearAttention",
        "com.microsoft.QLinearGlobalAveragePool", "com.microsoft.QGemm", "Dropout", "SequenceAt", "Softsign",
        "SplitToSequence",
    ]),
    (Tier::All, &[
        "com.microsoft.FusedMatMul", "com.microsoft.SkipLayerNormalization", "STFT", "com.microsoft.FastGelu", "Atan",
    ]),
];

/// The tier of an operator; `domain` is `ai.onnx` for the standard's.
pub fn tier_of(domain: &str, op: &str) -> Tier {
    let name = match domain {
        "ai.onnx" => op.to_owned(),
        "ai.onnx.ml" => format!("ml.{op}"),
        other => format!("{other}.{op}"),
    };
    let row = TIERS.iter().find(|(_, names)| names.contains(&name.as_str()));
    row.map_or(Tier::Rare, |(tier, _)| *tier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tiers_have_as_many_operators_as_they_say() {
        let n: Vec<usize> = TIERS.iter().map(|(_, names)| names.len()).collect();
        // `Constant` is not counted by the survey of models, and is in every one.
        assert_eq!(n, [62, 25, 24, 15, 5]);
        assert_eq!(tier_of("ai.onnx", "Relu"), Tier::Half);
        assert_eq!(tier_of("ai.onnx.ml", "Scaler"), Tier::NinetyFive);
        assert_eq!(tier_of("my.ops", "Relu"), Tier::Rare);
    }
}
