//! What is asked of a compilation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use eggine_codegen_ptx::{Chip, Target};
use eggine_ir::Schedule;
use eggine_rewrite::rule_file::{CheckedRules, Fuel};
use eggine_runtime::DeviceSpec;

use crate::progress::ProgressMode;
use crate::swarm::Strategy;

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

/// What an engine should be good at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// One inference at a time, on all threads of the device.
    #[default]
    Latency,
    /// Inferences per second of one session per core, each on one thread of the device.
    Throughput,
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
    /// Targets that the engine has machine code for besides, where there is an assembler.
    pub code: Vec<Target>,
    /// Chip whose static model ranks schedules instead of measurements on the device, which then only
    /// verifies.
    pub chip: Option<Chip>,
    /// Whether rules that hold over the reals only may be used.
    pub fast_math: bool,
    /// The user's rules, which have passed the check. Those that hold over the reals only are used only
    /// with `fast_math`.
    pub rules: CheckedRules,
    /// Applications of the user's rules; `None`: wherever they match.
    pub rule_fuel: Option<Fuel>,
    /// What the engine should be good at.
    pub objective: Objective,
    /// Who chooses what is tried.
    pub strategy: Strategy,
    /// The agents of the search, by name; `None` for all.
    pub agents: Option<Vec<String>>,
    /// Commands of external agents, which take part in a search; see [`external`](crate::external).
    pub external: Vec<String>,
    /// How long an external agent may take to answer.
    pub external_timeout: Duration,
    /// Whether what earlier searches taught orders this one.
    pub lessons: bool,
    /// Another evidence file to learn from.
    pub lessons_from: Option<PathBuf>,
    /// Whether a search that was finished before is repeated, decision by decision, from its evidence,
    /// instead of making its engine at once. The result is the same.
    pub replay: bool,
    /// Time for each race of whole engines; `None` for an eighth of a time budget, at most 12 s, or for
    /// 3 s. Without any the first choice stays: nothing is shown to be faster.
    pub race: Option<Duration>,
    /// Device memory that an engine may need, beside its inputs and outputs.
    pub max_memory_bytes: Option<u64>,
    /// Largest error of a kernel as a fraction of its bound, up to 1.
    pub max_error: f64,
    /// Only go on with a search that was begun before: without one it is an error.
    pub resume: bool,
    /// Schedules that were good for [kinds](crate::kind_of) of regions at other extents: each that is legal
    /// is raced against the first choice, also without a search.
    pub hints: BTreeMap<String, Vec<Schedule>>,
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
            code: Vec::new(),
            chip: None,
            fast_math: false,
            rules: CheckedRules::default(),
            rule_fuel: None,
            objective: Objective::Latency,
            strategy: Strategy::Swarm,
            agents: None,
            external: Vec::new(),
            external_timeout: Duration::from_secs(10),
            lessons: true,
            lessons_from: None,
            replay: false,
            race: None,
            max_memory_bytes: None,
            max_error: 1.0,
            resume: false,
            hints: BTreeMap::new(),
            progress: ProgressMode::Silent,
        }
    }

    /// The options that decide what is searched and found, by name; those at their defaults are left out
    /// where older engines do not have them.
    pub(crate) fn options(&self) -> BTreeMap<String, String> {
        let mut options = BTreeMap::from([
            ("budget".to_owned(), self.budget.to_string()),
            ("seed".to_owned(), self.seed.to_string()),
            ("fast_math".to_owned(), self.fast_math.to_string()),
        ]);
        let mut set = |name: &str, value: String| drop(options.insert(name.to_owned(), value));
        if self.objective != Objective::Latency {
            set("objective", format!("{:?}", self.objective).to_lowercase());
        }
        if let Some(chip) = &self.chip {
            set("device", format!("model:{}", chip.name()));
        }
        if self.strategy != Strategy::Swarm {
            set("strategy", format!("{:?}", self.strategy).to_lowercase());
        }
        if let Some(agents) = &self.agents {
            set("agents", agents.join(","));
        }
        if !self.lessons {
            set("lessons", "false".to_owned());
        }
        if let Some(path) = &self.lessons_from {
            set("lessons_from", path.display().to_string());
        }
        if let Some(time) = self.race {
            set("race", format!("{}s", time.as_secs_f64()));
        }
        if let Some(bytes) = self.max_memory_bytes {
            set("max_memory_bytes", bytes.to_string());
        }
        if self.max_error != 1.0 {
            set("max_error", self.max_error.to_string());
        }
        if !self.external.is_empty() {
            set("external", self.external.join("\n"));
        }
        options.extend(crate::user_rules::options(self));
        options
    }
}
