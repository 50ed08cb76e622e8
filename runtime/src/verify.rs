//! Verification of a candidate kernel against the reference evaluator.
//!
//! A kernel is run on several families of inputs, with poisoned outputs and (where the device does
//! not check bounds itself) guard bands around every buffer, and each element of its outputs is held
//! against the `f64` oracle within a bound that is derived from the region, never chosen: see
//! [`bound`]. A kernel that fails is data of the search: verification returns a verdict, and an error
//! only when the device itself is broken.

pub mod bound;
mod corpus;
mod inputs;
mod judge;
mod oracle;
mod resident;

pub use bound::Reference;
pub use corpus::{Counterexample, shrink};
pub(crate) use inputs::Random;
pub use inputs::{Family, generate_inputs};
pub use oracle::{Oracle, OracleCache};
pub use resident::Resident;

use eggine_ir::{Region, Tensor};
use serde::{Deserialize, Serialize};

use crate::device::{Device, DeviceError};
use judge::{Judgement, judge};

/// Packs a weight as the kernel wants it.
pub type PackFn<'a> = &'a (dyn Fn(&Tensor) -> Tensor + Sync);

/// What one parameter of a kernel points to.
#[derive(Clone)]
pub enum CandidateBuffer<'a> {
    /// An input of the region.
    Input {
        /// Which one.
        index: usize,
        /// Rearrangement that happens at compile time; for weights only.
        pack: Option<PackFn<'a>>,
    },
    /// An output of the region.
    Output {
        /// Which one.
        index: usize,
    },
    /// Constant data of the kernel's own.
    Table(Tensor),
}

/// A kernel to be judged.
#[derive(Clone)]
pub struct Candidate<'a> {
    /// The text that will be shipped.
    pub ptx: &'a str,
    /// Name of the `.entry`.
    pub entry: &'a str,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// What each parameter points to, in order.
    pub buffers: Vec<CandidateBuffer<'a>>,
}

/// How a candidate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Which inputs, in order.
    pub families: Vec<Family>,
    /// Seed of the inputs; another seed gives fresh ones.
    pub seed: u64,
    /// Width of the poisoned band before and behind each buffer, a multiple of 256. Not used on a
    /// device that checks bounds: there a band would hide what the device sees.
    pub guard_bytes: usize,
    /// Inputs that once showed a kernel of such a region to be wrong; those whose types are the
    /// region's are run after the families.
    pub corpus: Vec<Counterexample>,
    /// Most instructions of a block (in the device's count), from what the kernel should need; `None`:
    /// the device's own limit.
    pub step_limit: Option<u64>,
    /// Most memory that the candidate's buffers may take together, guard bands included.
    pub memory_bytes: usize,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            families: Family::ALL.to_vec(),
            seed: 0,
            guard_bytes: 4096,
            corpus: Vec::new(),
            step_limit: None,
            // A sixteenth of the largest device's memory; no layer of a model that runs comes near.
            memory_bytes: 8 << 30,
        }
    }
}

/// What verification found. Everything but `Accepted` is a reason not to use the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// Every element of every output is within its bound, for every family.
    Accepted,
    /// The device does not take the PTX.
    DoesNotLoad {
        /// In the device's words.
        reason: String,
    },
    /// Its buffers do not fit into memory, or into what a candidate may take.
    DoesNotFit {
        /// What was asked for last.
        n_bytes: usize,
    },
    /// The kernel trapped, hung, or accessed what is not its own.
    Faults {
        /// On which inputs.
        family: Family,
        /// In the device's words.
        reason: String,
    },
    /// Elements still hold the poison that was there before the run.
    Unwritten {
        /// On which inputs.
        family: Family,
        /// Which output.
        output: usize,
        /// How many.
        n_elems: usize,
        /// Row-major index of the first.
        first_index: usize,
    },
    /// A guard band changed.
    WritesOutside {
        /// On which inputs.
        family: Family,
        /// Which parameter's buffer.
        buffer: usize,
        /// Distance of the first changed byte from the start of the buffer; negative before it.
        at_byte: i64,
    },
    /// An input or a table changed.
    ModifiesInput {
        /// On which inputs.
        family: Family,
        /// Which parameter's buffer.
        buffer: usize,
        /// First changed byte.
        at_byte: usize,
    },
    /// A number further from the oracle's than the bound allows; with bound 0, any other number.
    Inaccurate {
        /// On which inputs.
        family: Family,
        /// Which output.
        output: usize,
        /// How many elements.
        n_elems: usize,
        /// The element that exceeds its bound most.
        worst: Worst,
    },
    /// NaN or an infinity where the oracle has none, or the reverse.
    WrongKind {
        /// On which inputs.
        family: Family,
        /// Which output.
        output: usize,
        /// How many elements.
        n_elems: usize,
        /// The first of them.
        worst: Worst,
    },
    /// Right at the region's own extents, wrong at neighbouring ones, where tiles are ragged: what the
    /// family emits under this schedule cannot be trusted.
    FailsNearby {
        /// The neighbouring region's inputs, as types.
        extents: String,
        /// What was found there.
        found: Box<Verdict>,
    },
}

/// One element of an output that differs. Numbers are text, since some are NaN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// Row-major index.
    pub index: usize,
    /// What the kernel gives.
    pub got: String,
    /// What the oracle gives.
    pub want: String,
    /// How far they may be apart.
    pub bound: String,
}

impl Verdict {
    /// Whether the kernel may be used.
    pub fn accepted(&self) -> bool {
        *self == Verdict::Accepted
    }

    /// The verdict's kind, as in JSON: `accepted`, `inaccurate`, …
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Accepted => "accepted",
            Verdict::DoesNotLoad { .. } => "does-not-load",
            Verdict::DoesNotFit { .. } => "does-not-fit",
            Verdict::Faults { .. } => "faults",
            Verdict::Unwritten { .. } => "unwritten",
            Verdict::WritesOutside { .. } => "writes-outside",
            Verdict::ModifiesInput { .. } => "modifies-input",
            Verdict::Inaccurate { .. } => "inaccurate",
            Verdict::WrongKind { .. } => "wrong-kind",
            Verdict::FailsNearby { .. } => "fails-nearby",
        }
    }

    /// Every kind that [`name`](Self::name) gives: a verdict of any other kind was written by another
    /// program, and nobody may guess what it means.
    pub const NAMES: &'static [&'static str] = &[
        "accepted",
        "does-not-load",
        "does-not-fit",
        "faults",
        "unwritten",
        "writes-outside",
        "modifies-input",
        "inaccurate",
        "wrong-kind",
        "fails-nearby",
    ];

    /// Whether running the kernel again could harm the search: it hung, trapped, exhausted memory or
    /// wrote over what is not its own.
    pub fn is_dangerous(&self) -> bool {
        match self {
            Verdict::Faults { .. } | Verdict::DoesNotFit { .. } | Verdict::WritesOutside { .. } => {
                true
            }
            Verdict::FailsNearby { found, .. } => found.is_dangerous(),
            _ => false,
        }
    }

    /// The inputs that showed it, if inputs did.
    pub fn family(&self) -> Option<Family> {
        match self {
            Verdict::Faults { family, .. }
            | Verdict::Unwritten { family, .. }
            | Verdict::WritesOutside { family, .. }
            | Verdict::ModifiesInput { family, .. }
            | Verdict::Inaccurate { family, .. }
            | Verdict::WrongKind { family, .. } => Some(*family),
            _ => None,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Accepted => f.write_str("accepted"),
            Verdict::DoesNotLoad { reason } => write!(f, "does not load: {reason}"),
            Verdict::DoesNotFit { n_bytes } => {
                write!(f, "does not fit: no memory for a buffer of {n_bytes} bytes")
            }
            Verdict::FailsNearby { extents, found } => {
                write!(f, "fails at neighbouring extents ({extents}): {found}")
            }
            Verdict::Faults { family, reason } => write!(f, "faults on {family} inputs: {reason}"),
            Verdict::Unwritten { family, output, n_elems, first_index } => {
                write!(
                    f,
                    "leaves {n_elems} elements of output {output} unwritten on {family} inputs, first [{first_index}]"
                )
            }
            Verdict::WritesOutside { family, buffer, at_byte } => {
                write!(
                    f,
                    "writes outside of parameter {buffer} on {family} inputs, at byte {at_byte}"
                )
            }
            Verdict::ModifiesInput { family, buffer, at_byte } => {
                write!(
                    f,
                    "modifies the input at parameter {buffer} on {family} inputs, at byte {at_byte}"
                )
            }
            Verdict::Inaccurate { family, output, n_elems, worst } => {
                write!(
                    f,
                    "{n_elems} elements of output {output} are inaccurate on {family} inputs, worst {worst}"
                )
            }
            Verdict::WrongKind { family, output, n_elems, worst } => {
                write!(
                    f,
                    "{n_elems} elements of output {output} differ in kind on {family} inputs, first {worst}"
                )
            }
        }
    }
}

impl std::fmt::Display for Worst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { index, got, want, bound } = self;
        write!(f, "[{index}]: {got} instead of {want} ± {bound}")
    }
}

/// How a kernel did on one family of inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyResult {
    /// Which inputs.
    pub family: Family,
    /// Largest `|got − want| / bound`: at most 1 if accepted.
    pub error_ratio: f64,
    /// Largest `|got − want|` over the largest `|want|` of the same output.
    pub max_relative: f64,
    /// `‖got − want‖₂ / ‖want‖₂`, the worst of the outputs.
    pub relative_l2: f64,
    /// Elements of all outputs.
    pub n_elems: usize,
    /// Elements of them that may be anything: a same-precision kernel may overflow there, or decide a
    /// comparison either way.
    pub n_free: usize,
}

/// The verdict with the numbers behind it. Families after the first failure are not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// What was found.
    pub verdict: Verdict,
    /// Seed of the inputs.
    pub seed: u64,
    /// The families that were run to the end.
    pub families: Vec<FamilyResult>,
}

impl Verification {
    /// Whether the kernel may be used.
    pub fn accepted(&self) -> bool {
        self.verdict.accepted()
    }

    /// Largest error over its bound, of all families.
    pub fn error_ratio(&self) -> f64 {
        self.families.iter().map(|family| family.error_ratio).fold(0.0, f64::max)
    }
}

/// Verifies a candidate for a region. `key` is the region's hash: oracles are shared by it.
///
/// # Errors
///
/// Only if the device fails in what is not the kernel's doing: allocation, copies.
///
/// # Panics
///
/// If the candidate names inputs or outputs that the region lacks.
pub fn verify(
    device: &mut dyn Device,
    region: &Region,
    key: &str,
    candidate: &Candidate<'_>,
    oracles: &OracleCache,
    options: &VerifyOptions,
) -> Result<Verification, DeviceError> {
    let mut resident = match Resident::load(device, region, candidate, options)? {
        Ok(resident) => resident,
        Err(verdict) => {
            return Ok(Verification { verdict, seed: options.seed, families: Vec::new() });
        }
    };
    let result = verify_resident(device, region, key, &mut resident, oracles, options);
    resident.free(device)?;
    result
}

/// As [`verify()`], for a candidate whose buffers are on the device already.
///
/// # Errors
///
/// As [`verify()`].
pub fn verify_resident(
    device: &mut dyn Device,
    region: &Region,
    key: &str,
    resident: &mut Resident<'_>,
    oracles: &OracleCache,
    options: &VerifyOptions,
) -> Result<Verification, DeviceError> {
    let mut verification =
        Verification { verdict: Verdict::Accepted, seed: options.seed, families: Vec::new() };
    let generated = options.families.iter().map(|&family| (family, None));
    let (graph, families) = (&region.graph, &options.families);
    let kept = (options.corpus.iter())
        .filter(|kept| kept.fits(graph) && !kept.is_among(graph, families, options.seed));
    let kept = kept.map(|kept| (kept.family(), Some(kept)));
    device.limit_steps(options.step_limit);
    for (family, kept) in generated.chain(kept) {
        let oracle = match kept {
            None => oracles.get(region, key, family, options.seed),
            Some(kept) => oracles.get_kept(region, key, kept),
        };
        let found = run_once(device, resident, family, &oracle);
        let (result, verdict) = match found {
            Ok(found) => found,
            Err(err) => {
                device.limit_steps(None);
                return Err(err);
            }
        };
        verification.families.extend(result);
        if !verdict.accepted() {
            verification.verdict = verdict;
            break;
        }
    }
    device.limit_steps(None);
    Ok(verification)
}

/// One run on poisoned outputs, and everything that is looked at after it.
fn run_once(
    device: &mut dyn Device,
    resident: &mut Resident<'_>,
    family: Family,
    oracle: &Oracle,
) -> Result<(Option<FamilyResult>, Verdict), DeviceError> {
    match resident.write_inputs(device, &oracle.inputs) {
        Err(DeviceError::OutOfMemory { n_bytes }) => {
            return Ok((None, Verdict::DoesNotFit { n_bytes }));
        }
        other => other?,
    }
    resident.poison_outputs(device, family)?;
    let ran = device.launch(resident.launch()).and_then(|()| device.synchronize());
    if let Err(err) = ran {
        return Ok((None, Verdict::Faults { family, reason: err.to_string() }));
    }
    if let Some((buffer, at_byte)) = resident.broken_guard(device)? {
        return Ok((None, Verdict::WritesOutside { family, buffer, at_byte }));
    }
    if let Some((buffer, at_byte)) = resident.modified_input(device)? {
        return Ok((None, Verdict::ModifiesInput { family, buffer, at_byte }));
    }
    let outputs = resident.read_outputs(device)?;
    let Judgement { result, verdict } = judge(family, oracle, &outputs);
    Ok((Some(result), verdict))
}
