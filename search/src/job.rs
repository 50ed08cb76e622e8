//! What is asked of a compilation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use eggine_runtime::DeviceSpec;

use crate::progress::ProgressMode;

/// How long to search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// The first choice of the model of costs: verified, unmeasured.
    #[default]
    First,
    /// This many candidates, from evidence or measured.
    Measurements(u64),
    /// This long.
    Time(Duration),
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Budget::First => f.write_str("0"),
            Budget::Measurements(n) => write!(f, "{n}"),
            Budget::Time(time) => write!(f, "{}s", time.as_secs_f64()),
        }
    }
}

/// A compilation. [`Job::new`] gives the defaults of the command line.
#[derive(Clone, Debug)]
pub struct Job {
    /// The ONNX file.
    pub model: PathBuf,
    /// Extents of the model's inputs, where the model leaves them open.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// How long to search.
    pub budget: Budget,
    /// Seed of everything random: the search and the test inputs.
    pub seed: u64,
    /// Where candidates are verified and measured.
    pub device: DeviceSpec,
    /// Threads of the compiler: agents, extraction, lowering. `None` for one per core. Does not change
    /// the result.
    pub threads: Option<usize>,
    /// Threads of the cpu device; `None` for one per core. What is measured with another number is
    /// another measurement.
    pub device_threads: Option<usize>,
    /// Evidence database; `None` keeps evidence in memory only.
    pub evidence: Option<PathBuf>,
    /// PTX target, such as `sm_80`.
    pub target: String,
    /// Whether rules that hold over the reals only may be used.
    pub fast_math: bool,
    /// Where progress goes.
    pub progress: ProgressMode,
}

impl Job {
    /// A job with default options: budget 0, seed 0, all cores, no evidence file, `sm_80`.
    pub fn new(model: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            shapes: BTreeMap::new(),
            budget: Budget::First,
            seed: 0,
            device: DeviceSpec::Cpu,
            threads: None,
            device_threads: None,
            evidence: None,
            target: "sm_80".into(),
            fast_math: false,
            progress: ProgressMode::Silent,
        }
    }
}
