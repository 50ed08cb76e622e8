//! Families of inputs: what is random about each, and which fault it reveals.
//!
//! Inputs depend on the region's input types, the family and the seed only, and are made with exact
//! arithmetic, so that they are the same on every machine.

use std::collections::BTreeMap;
use std::fmt;

use eggine_ir::{DType, Graph, NodeKind, Op, Tensor, Value};
use serde::{Deserialize, Serialize};

/// A kind of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// About normal, mean 0, deviation 1. The terms of every sum are in random order, so that its
    /// bound is tight: reveals lower precision and missing terms.
    Normal,
    /// Signs and magnitudes from 10⁻³ to 10³ (where the type has them), zeros of both signs and
    /// subnormals among them: reveals absolute tolerances, unsafe algebra, and flushed or lost parts.
    Extreme,
    /// Positive ramps, every element different from its neighbours: reveals permuted, shifted and
    /// dropped elements, and is in the domain of every function.
    Ramp,
}

impl Family {
    /// All families, in the order in which they are run.
    pub const ALL: &[Family] = &[Family::Normal, Family::Extreme, Family::Ramp];
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Normal => "normal",
            Family::Extreme => "extreme",
            Family::Ramp => "ramp",
        })
    }
}

/// Splitmix64 (Steele, Lea and Flood, OOPSLA 2014): tiny, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0. The bias is 2⁻⁶⁴ n.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Sum of four uniform numbers, scaled to deviation 1: within ±3.5, and normal enough.
    fn normal(&mut self) -> f64 {
        let bits = self.next();
        let sum: i64 = (0..4).map(|i| ((bits >> (16 * i)) & 0xFFFF) as i64).sum();
        // Variance of a uniform number below 2¹⁶: 2³²/12; of four: 2³²/3. 1.732… = √3.
        (sum - 2 * 0xFFFF) as f64 * (1.732_050_807_568_877_2 / 65536.0)
    }
}

/// Inclusive range of an integer input, and whether it indexes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexRange {
    extent: i64,
}

/// One tensor per input of a graph, in order.
///
/// Integer inputs that reach the index operand of a gather are in the range of what is gathered from
/// (`Extreme`: negative ones too, which count from the end).
pub fn generate_inputs(graph: &Graph, family: Family, seed: u64) -> Vec<Tensor> {
    let ranges = index_ranges(graph);
    let mut tensors = Vec::new();
    for (position, value) in graph.inputs().enumerate() {
        let ty = graph.ty(value);
        // Any injective mixing of the three does: equal streams for two inputs would hide swapped operands.
        let mut random =
            Random::new(seed ^ (family as u64 + 1) << 56 ^ (position as u64 + 1) << 40);
        random.next();
        let (extents, n_elems) = (ty.extents(), ty.n_elems());
        tensors.push(if ty.dtype.is_float() {
            let data = floats(family, ty.dtype, n_elems, position, &mut random);
            Tensor::from_f64(ty.dtype, &extents, &data)
        } else {
            let data = ints(family, ty.dtype, n_elems, ranges.get(&value).copied(), &mut random);
            Tensor::from_i64(ty.dtype, &extents, &data)
        });
    }
    tensors
}

fn floats(
    family: Family,
    dtype: DType,
    n_elems: usize,
    position: usize,
    random: &mut Random,
) -> Vec<f64> {
    match family {
        Family::Normal => (0..n_elems).map(|_| random.normal()).collect(),
        Family::Extreme => {
            // Types with few exponents would only see infinities and zeros at ±10³.
            let (max_exponent, subnormal) = match dtype {
                DType::F64 => (10, 2f64.powi(-1030)),
                DType::F32 => (10, 2f64.powi(-130)),
                DType::BF16 => (10, 2f64.powi(-127)),
                DType::F16 => (6, 2f64.powi(-20)),
                _ => (3, 0.0),
            };
            let mut extreme = || {
                let bits = random.next();
                let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
                match (bits >> 1) & 63 {
                    0 => 0.0 * sign,
                    1 => sign * subnormal * (1.0 + ((bits >> 8) & 7) as f64),
                    // 1 + fraction, times a power of two: exact.
                    _ => {
                        let exponent =
                            ((bits >> 8) % (2 * max_exponent as u64 + 1)) as i32 - max_exponent;
                        sign * (1.0 + ((bits >> 16) & 0xFFFF) as f64 / 65536.0)
                            * 2f64.powi(exponent)
                    }
                }
            };
            (0..n_elems).map(|_| extreme()).collect()
        }
        Family::Ramp => {
            // Another prime period for each input, so that shifts of one are not shifts of another; all
            // elements in [0.25, 1.25), where sums neither cancel nor overflow.
            const PERIODS: [u64; 6] = [4093, 2039, 1021, 509, 3067, 8191];
            let period = PERIODS[position % PERIODS.len()];
            let start = random.below(period);
            (0..n_elems as u64)
                .map(|i| 0.25 + ((i + start) % period) as f64 / period as f64)
                .collect()
        }
    }
}

fn ints(
    family: Family,
    dtype: DType,
    n_elems: usize,
    range: Option<IndexRange>,
    random: &mut Random,
) -> Vec<i64> {
    let unsigned = matches!(dtype.class(), eggine_ir::dtype::DTypeClass::Unsigned);
    let (low, high) = match (range, family) {
        _ if dtype == DType::Bool => (0, 1),
        (Some(IndexRange { extent }), Family::Extreme) if !unsigned => (-extent, extent - 1),
        (Some(IndexRange { extent }), _) => (0, extent - 1),
        (None, Family::Extreme) if unsigned => (0, if dtype.bits() == 4 { 15 } else { 100 }),
        (None, Family::Extreme) => {
            if dtype.bits() == 4 {
                (-8, 7)
            } else {
                (-100, 100)
            }
        }
        (None, _) if unsigned => (0, 7),
        (None, _) => (-7, 7),
    };
    let span = (high - low + 1).max(1) as u64;
    match family {
        Family::Ramp => {
            let start = random.below(span);
            (0..n_elems as u64).map(|i| low + ((i + start) % span) as i64).collect()
        }
        _ => (0..n_elems).map(|_| low + random.below(span) as i64).collect(),
    }
}

/// The extent that each value may index, by following the index operands of gathers backwards.
fn index_ranges(graph: &Graph) -> BTreeMap<Value, IndexRange> {
    let mut ranges: BTreeMap<Value, IndexRange> = BTreeMap::new();
    for (value, node) in graph.nodes.iter().rev() {
        let NodeKind::Apply(op, attrs, args) = &node.kind else { continue };
        let mut narrow = |arg: Value, extent: i64| {
            if !graph.ty(arg).dtype.is_float() {
                let range = ranges.entry(arg).or_insert(IndexRange { extent });
                range.extent = range.extent.min(extent);
            }
        };
        if *op == Op::Gather {
            let extents = graph.ty(args[0]).extents();
            narrow(args[1], extents[attrs.int(0) as usize] as i64);
        }
        let Some(extent) = ranges.get(&value).map(|range| range.extent) else { continue };
        let mut narrow = |arg: Value| {
            if !graph.ty(arg).dtype.is_float() {
                let range = ranges.entry(arg).or_insert(IndexRange { extent });
                range.extent = range.extent.min(extent);
            }
        };
        match op {
            Op::Reshape
            | Op::Transpose
            | Op::Expand
            | Op::Slice
            | Op::Pad
            | Op::Concat
            | Op::Cast => {
                args.iter().for_each(|&arg| narrow(arg));
            }
            Op::Gather => narrow(args[0]),
            Op::Select => args[1..].iter().for_each(|&arg| narrow(arg)),
            Op::Min | Op::Max => args.iter().for_each(|&arg| narrow(arg)),
            _ => {}
        }
    }
    ranges
}
