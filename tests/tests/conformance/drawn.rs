//! Tests of random operators: the numbers that they draw are no one else's, so they are judged by type, shape
//! and by what a draw may be, and counted apart. An engine must give what the oracle drew.

use bytes::Bytes;
use eggine_ir::Tensor;
use eggine_ir::onnx::proto::{ModelProto, NodeProto};
use prost::Message;

use crate::case::{Case, Set};

/// What a test draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Draw {
    /// Zeros and ones.
    Bits,
    /// The first operand with elements dropped with this probability, and the mask of what stays.
    Dropout(f64),
}

/// The first element of an operand, if the data set has it.
fn first(set: &Set, node: &NodeProto, i: usize) -> Option<f64> {
    let (_, tensor) = set.inputs.iter().find(|(name, _)| node.input.get(i) == Some(name))?;
    tensor.as_ref().ok()?.to_f64().first().copied()
}

/// What the model of a test draws, if it does.
pub(crate) fn of(case: &Case, set: &Set) -> Option<Draw> {
    let model = ModelProto::decode(Bytes::from(std::fs::read(case.model()).ok()?)).ok()?;
    model.graph?.node.iter().find_map(|node| match node.op_type.as_deref()? {
        "Bernoulli" | "RandomUniform" | "RandomUniformLike" | "RandomNormal"
        | "RandomNormalLike" | "Multinomial" => Some(Draw::Bits),
        "Dropout" => {
            let ratio = first(set, node, 1).unwrap_or(0.5);
            let training = first(set, node, 2).is_some_and(|it| it != 0.0);
            (training && ratio != 0.0).then_some(Draw::Dropout(ratio))
        }
        _ => None,
    })
}

/// Why outputs are no such draw.
pub(crate) fn problem(draw: Draw, set: &Set, found: &[Tensor]) -> Option<String> {
    if found.len() != set.outputs.len() {
        return Some(format!("{} outputs, expected {}", found.len(), set.outputs.len()));
    }
    for (found, (name, expected)) in found.iter().zip(&set.outputs) {
        let expected = expected.as_ref().expect("checked before");
        if found.ty() != expected.ty() {
            return Some(format!("output {name} is {}, expected {}", found.ty(), expected.ty()));
        }
    }
    let bits = |tensor: &Tensor| tensor.to_f64().iter().all(|&x| x == 0.0 || x == 1.0);
    match draw {
        Draw::Bits => found.iter().any(|it| !bits(it)).then(|| "draws more than bits".into()),
        Draw::Dropout(ratio) => {
            let x = set.inputs[0].1.as_ref().expect("checked before").to_f64();
            let y = found[0].to_f64();
            let mask: Vec<f64> = match found.get(1) {
                Some(mask) if !bits(mask) => return Some("the mask is not of bits".into()),
                Some(mask) => mask.to_f64(),
                None => y.iter().map(|&y| f64::from(u8::from(y != 0.0))).collect(),
            };
            let at = (0..y.len()).find(|&i| {
                let want = mask[i] * x[i] / (1.0 - ratio);
                (y[i] - want).abs() > 1e-6 * want.abs()
            })?;
            Some(format!("is {} at {at}, from {} dropped at {ratio}", y[at], x[at]))
        }
    }
}
