//! Counterexamples: inputs on which a kernel was once wrong, kept so that every later kernel of such a
//! region meets them.

use eggine_ir::{Graph, Tensor, TensorType};
use serde::{Deserialize, Serialize};

use super::inputs::{Family, generate_inputs};
use super::{Verdict, Verification};

/// Inputs that are no larger than this in sum are kept as they are; others as the seed that makes them.
const KEPT_BYTES: usize = 64 << 10;

/// Inputs on which a kernel was once wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counterexample {
    /// The family that the inputs are of.
    pub family: Family,
    /// The seed that makes them, with the family and the region's input types; none if somebody brought
    /// them.
    pub seed: Option<u64>,
    /// Types of the region's inputs: `f32[8,16]`, in order.
    pub types: Vec<String>,
    /// The inputs' bytes, one text of hexadecimal digits each; empty if the seed makes them.
    pub inputs: Vec<String>,
}

impl Counterexample {
    /// What a verification that failed on some inputs leaves; `None` if it did not.
    pub fn of(graph: &Graph, verification: &Verification) -> Option<Self> {
        let family = match &verification.verdict {
            // A hang or a trap is no disagreement about numbers, and the device says where it was.
            Verdict::Faults { .. } => return None,
            other => other.family()?,
        };
        let inputs = generate_inputs(graph, family, verification.seed);
        let n_bytes: usize = inputs.iter().map(|tensor| tensor.bytes.len()).sum();
        let kept = if n_bytes <= KEPT_BYTES { inputs.iter().map(digits).collect() } else { vec![] };
        Some(Self { family, seed: Some(verification.seed), types: types(graph), inputs: kept })
    }

    /// Inputs that somebody brings, such as a shrunk counterexample.
    pub fn given(inputs: &[Tensor]) -> Self {
        Self {
            family: Family::Extreme,
            seed: None,
            types: inputs.iter().map(|tensor| tensor.ty().to_string()).collect(),
            inputs: inputs.iter().map(digits).collect(),
        }
    }

    /// Whether these are inputs for the graph: of its types, or (if a seed makes them) of its element
    /// types, whatever the extents.
    pub fn fits(&self, graph: &Graph) -> bool {
        let now = types(graph);
        let element = |ty: &String| ty.split('[').next().unwrap_or_default().to_owned();
        let alike = || self.types.iter().map(element).eq(now.iter().map(element));
        self.types == now || self.seed.is_some() && alike()
    }

    /// Whether the families with this seed are these inputs already.
    pub fn is_among(&self, graph: &Graph, families: &[Family], seed: u64) -> bool {
        self.seed == Some(seed) && families.contains(&self.family) && self.fits(graph)
    }

    /// The family whose bounds apply: sums of kept inputs are in no random order unless a seed made them.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The inputs, for a graph that they [fit](Self::fits). Bytes that are damaged are made anew from
    /// the seed.
    pub fn tensors(&self, graph: &Graph) -> Vec<Tensor> {
        let kept = graph.inputs().zip(&self.inputs).map(|(value, text)| {
            let ty = graph.ty(value);
            let bytes = parse_digits(text).filter(|bytes| bytes.len() == ty.n_bytes())?;
            Some(Tensor::new(ty.dtype, &ty.extents(), bytes))
        });
        let kept: Option<Vec<Tensor>> = kept.collect();
        match kept {
            Some(tensors) if tensors.len() == self.types.len() => tensors,
            _ => generate_inputs(graph, self.family, self.seed.unwrap_or_default()),
        }
    }

    /// A name of the inputs, for the cache of oracles.
    pub(super) fn id(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.unwrap_or_default().to_le_bytes());
        self.inputs.iter().for_each(|text| {
            hasher.update(text.as_bytes());
        });
        let hash = *hasher.finalize().as_bytes();
        u64::from_le_bytes(hash[..8].try_into().expect("eight bytes"))
    }
}

/// Makes inputs simpler while `fails` still holds: halves, then quarters and so on of each float input
/// become zero. At most `n_runs` calls.
pub fn shrink(
    inputs: &[Tensor],
    n_runs: usize,
    mut fails: impl FnMut(&[Tensor]) -> bool,
) -> Vec<Tensor> {
    let mut best = inputs.to_vec();
    let mut left = n_runs;
    for n_parts in [2usize, 4, 8, 16] {
        for nth in 0..best.len() {
            let (dtype, n_elems) = (best[nth].dtype, best[nth].n_elems());
            if !dtype.is_float() || n_elems == 0 {
                continue;
            }
            let part = n_elems.div_ceil(n_parts);
            for start in (0..n_elems).step_by(part) {
                let mut data = best[nth].to_f64();
                let end = (start + part).min(data.len());
                if left == 0 || data[start..end].iter().all(|&x| x == 0.0) {
                    continue;
                }
                left -= 1;
                data[start..end].fill(0.0);
                let mut simpler = best.clone();
                simpler[nth] = Tensor::from_f64(dtype, &best[nth].extents, &data);
                if fails(&simpler) {
                    best = simpler;
                }
            }
        }
    }
    best
}

fn types(graph: &Graph) -> Vec<String> {
    graph.inputs().map(|value| TensorType::to_string(graph.ty(value))).collect()
}

fn digits(tensor: &Tensor) -> String {
    use std::fmt::Write;
    tensor.bytes.iter().fold(String::with_capacity(2 * tensor.bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text grows");
        text
    })
}

fn parse_digits(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
