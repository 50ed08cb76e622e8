//! What the database holds, as plain data: keys, rows and their two addresses.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

/// What a measurement depends on beside the kernel, the device and the method.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Conditions {
    /// Alignment of every buffer's first byte. Strides are in the region's text.
    pub layout: String,
    /// Driver and assembler with their versions; `none` where PTX is executed as text.
    pub toolchain: String,
    /// `warm`: what was used by the run before is still in the caches. `cold`: it is not.
    pub cache: String,
}

impl Default for Conditions {
    /// The cpu device: buffers aligned as an engine's are
    /// ([`ARENA_ALIGN_BYTES`](eggine_runtime::plan::ARENA_ALIGN_BYTES)), no assembler, warm caches. It is
    /// also what every row of layout version 1 was emitted for and measured under.
    fn default() -> Self {
        let align_bytes = eggine_runtime::plan::ARENA_ALIGN_BYTES;
        Self {
            layout: format!("align {align_bytes}"),
            toolchain: "none".into(),
            cache: "warm".into(),
        }
    }
}

/// What must be equal for a measurement to hold again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Hash of the region's canonical text: operators, shapes, dtypes, layouts.
    pub region: String,
    /// The schedule's text.
    pub schedule: String,
    /// Hash of the PTX that ran.
    pub ptx: String,
    /// Device: its chip, instruction set and number of threads.
    pub device: String,
    /// What verified and timed it: changes when the method does.
    pub method: String,
    /// The rest.
    #[serde(flatten)]
    pub conditions: Conditions,
}

impl Key {
    /// Content address of the preconditions, in hexadecimal.
    pub fn hash(&self) -> String {
        hash_of(self)
    }
}

/// One measured candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Preconditions.
    #[serde(flatten)]
    pub key: Key,
    /// `pass`, or the reason why it was rejected.
    pub verdict: String,
    /// Seed of the inputs that it was verified on; `None` if it was not written down (layout version 1).
    pub seed: Option<u64>,
    /// Every sample in the order taken; empty if it was not timed.
    pub samples_ns: Vec<i64>,
    /// The incumbent's samples taken in between; empty if there was none.
    pub incumbent_ns: Vec<i64>,
    /// `alone`, or what the race against the incumbent showed: `faster`, `slower`, `undecided`, …
    pub decision: String,
    /// Median time of one launch over the believed samples; 0 if it was not timed.
    #[serde(with = "any_float")]
    pub median_ns: f64,
    /// Largest error against the f64 oracle as a fraction of its bound.
    #[serde(with = "any_float")]
    pub error_of_bound: f64,
    /// Who proposed it.
    pub agent: String,
    /// The move that led to it.
    pub tiling_move: String,
    /// Schedule that it was derived from; empty for a first choice.
    pub parent: String,
}

impl Row {
    /// Whether the candidate may be used.
    pub fn passed(&self) -> bool {
        self.verdict == "pass"
    }

    /// `pass`, or the word before the first colon of the verdict.
    pub fn verdict_kind(&self) -> &str {
        self.verdict.split_once(':').map_or(self.verdict.as_str(), |(kind, _)| kind)
    }

    /// Content address of the row, in hexadecimal: equal exactly if everything in it is.
    pub fn content(&self) -> String {
        hash_of(self)
    }

    /// Which of two measurements with the same preconditions counts. A rejection outranks a pass: what
    /// failed once is not used. Then more samples outrank fewer, and then the smaller
    /// [content address](Self::content) wins, so that the answer does not depend on which came first.
    pub fn outranks(&self, other: &Row) -> bool {
        let rank = |row: &Row| (row.passed(), Reverse(row.samples_ns.len()));
        rank(self).cmp(&rank(other)).then_with(|| self.content().cmp(&other.content())).is_lt()
    }
}

/// A race of two whole engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineRow {
    /// Samples of the challenger.
    pub samples_ns: Vec<i64>,
    /// Samples of the incumbent, taken in between.
    pub incumbent_ns: Vec<i64>,
    /// What it showed: `faster`, `slower`, `undecided`, …
    pub decision: String,
    /// Time of the challenger over time of the incumbent.
    #[serde(with = "any_float")]
    pub ratio: f64,
    /// Lower end of the ratio's 95 % interval.
    #[serde(with = "any_float")]
    pub low: f64,
    /// Upper end.
    #[serde(with = "any_float")]
    pub high: f64,
}

impl EngineRow {
    /// Content address, in hexadecimal.
    pub fn content(&self) -> String {
        hash_of(self)
    }

    /// Which of two races of the same engines counts: more samples, then the smaller content address.
    pub fn outranks(&self, other: &EngineRow) -> bool {
        let rank = |row: &EngineRow| Reverse(row.samples_ns.len());
        rank(self).cmp(&rank(other)).then_with(|| self.content().cmp(&other.content())).is_lt()
    }
}

/// The row that counts, of those with the same preconditions.
pub(super) fn first_of<T>(rows: Vec<T>, outranks: impl Fn(&T, &T) -> bool) -> Option<T> {
    rows.into_iter().reduce(|best, row| if outranks(&row, &best) { row } else { best })
}

/// BLAKE3 of the canonical JSON, in hexadecimal.
pub(super) fn hash_of(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("plain data serialises");
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Floats are text in JSON: shortest decimal that comes back bit for bit, `inf` and `NaN` among them. JSON
/// has no such numbers, and not every reader of JSON reads 17 digits exactly. `-0` is written as 0, as the
/// database does.
mod any_float {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(x: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&(x + 0.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
