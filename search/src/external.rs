//! External agents: processes that speak JSON lines and propose schedules, rules and priorities.
//!
//! Nothing that they say is trusted. A schedule has to be legal for its region and is then judged like
//! any other; a rule has to pass the check by execution. Each line costs one unit of the agent's budget.
//! A crash, a hang, a flood or nonsense costs it its budget, and nothing else: the search goes on, and
//! the log says why. The schema is in `docs/external-agents.md`.

mod agent;
mod process;
pub mod protocol;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use eggine_codegen_ptx::check;
use eggine_ir::{NodeKind, Op, Region, Schedule};
use eggine_rewrite::rule_file::{self, CheckedRules};

pub(crate) use self::agent::ExternalAgent;
use self::process::{Process, Received};
use self::protocol::{Ask, Out, Reply, VERSION};
use crate::evidence::Row;

/// Schedules, longest list that one answer may hold.
const MAX_LINES: usize = 256;

/// How an external agent is run.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalOptions {
    /// Seed of the search, which the agent is told.
    pub seed: u64,
    /// Lines that the agent may say in the whole search; `done` and `hello` are free.
    pub budget: u64,
    /// How long it may take to start.
    pub start_timeout: Duration,
    /// How long it may take to answer.
    pub reply_timeout: Duration,
    /// Longest line, in bytes.
    pub max_line_bytes: usize,
    /// Most rules that it may propose: each is executed on thousands of inputs.
    pub max_rules: u64,
}

impl Default for ExternalOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            budget: 2000,
            start_timeout: Duration::from_secs(20),
            reply_timeout: Duration::from_secs(10),
            max_line_bytes: 1 << 16,
            max_rules: 32,
        }
    }
}

/// A region, as an agent sees it.
#[derive(Clone, Debug)]
pub struct RegionView<'a> {
    /// Number of the region, in what is returned.
    pub region: usize,
    /// Hash of its canonical text, in hexadecimal: its name in messages.
    pub hash: &'a str,
    /// The region.
    pub graph: &'a Region,
    /// Launches of it in one inference.
    pub n_launches: u64,
    /// Best schedule so far.
    pub best: Schedule,
    /// Its time, in ns, if it was measured.
    pub best_ns: Option<f64>,
    /// Legal schedules near the best, by name of the move.
    pub neighbours: Vec<(&'static str, Schedule)>,
}

/// A judgement, as an agent sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct EvidenceView {
    /// Hash of the region.
    pub region: String,
    /// The schedule's text.
    pub schedule: String,
    /// `accepted`, or why it was rejected.
    pub verdict: String,
    /// Median time of one launch, in ns, if it was measured.
    pub median_ns: Option<f64>,
    /// Who proposed it.
    pub agent: String,
}

impl From<&Row> for EvidenceView {
    fn from(row: &Row) -> Self {
        Self {
            region: row.key.region.clone(),
            schedule: row.key.schedule.clone(),
            verdict: if row.passed() { "accepted".to_owned() } else { row.verdict.clone() },
            median_ns: row.passed().then_some(row.median_ns),
            agent: row.agent.clone(),
        }
    }
}

/// What a source of schedules sees.
#[derive(Clone, Debug, Default)]
pub struct TuneView<'a> {
    /// The regions under search.
    pub regions: Vec<RegionView<'a>>,
    /// Judgements since the last call.
    pub evidence: Vec<EvidenceView>,
    /// Candidates that the search will still judge, if that is known.
    pub n_left: Option<u64>,
}

/// A schedule that a source wants judged. It is legal for its region; whether it is right is found out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposed {
    /// Number of the region.
    pub region: usize,
    /// The schedule.
    pub schedule: Schedule,
    /// Higher first.
    pub priority: f64,
}

/// Who proposes schedules from outside.
pub trait ScheduleSource: Send {
    /// Under which its doings are logged.
    fn name(&self) -> &str;

    /// At most `n` legal schedules that it did not propose before, most wanted first. Never fails: a source
    /// that cannot answer proposes nothing.
    fn propose(&mut self, view: &TuneView<'_>, n: usize) -> Vec<Proposed>;
}

/// What an agent did wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The command does not run.
    #[error("cannot be started: {reason}")]
    CannotStart {
        /// What the system said.
        reason: String,
    },
    /// The process ended.
    #[error("ended ({status}){}", said(stderr))]
    Crashed {
        /// Its exit status.
        status: String,
        /// The end of what it wrote to standard error.
        stderr: String,
    },
    /// No answer in time.
    #[error("did not answer within {seconds} s{}", said(stderr))]
    Hung {
        /// How long was waited.
        seconds: u64,
        /// The end of what it wrote to standard error.
        stderr: String,
    },
    /// Too many lines, or one too long.
    #[error("flooded its output: {what}")]
    Flood {
        /// Which limit it passed.
        what: String,
    },
    /// It speaks another protocol.
    #[error("speaks protocol {found}, this program speaks {VERSION}")]
    Protocol {
        /// Its version.
        found: u64,
    },
    /// A line that is no message, or says what cannot be.
    #[error("said nonsense: {reason}: {line}")]
    Nonsense {
        /// What is wrong with it.
        reason: String,
        /// The line, shortened.
        line: String,
    },
    /// It has said all that it may.
    #[error("has spent its budget of {budget} lines")]
    Spent {
        /// The budget.
        budget: u64,
    },
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it wrote: {stderr}") }
}

impl Fault {
    /// Whether it ends the agent.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Fault::Nonsense { .. })
    }
}

/// A running agent, or what is left of one. See the [module](self).
pub struct External {
    name: String,
    options: ExternalOptions,
    process: Option<Process>,
    budget_left: u64,
    n_rules: u64,
    faults: Vec<Fault>,
    told: BTreeMap<String, Schedule>,
    proposed: BTreeSet<(String, Schedule)>,
    weights: BTreeMap<String, f64>,
    n_proposed: u64,
}

impl External {
    /// Starts a command: words separated by blanks, quotes around words with blanks; no shell. An agent
    /// that does not start, or does not greet, is one that proposes nothing; [`faults`](Self::faults)
    /// says why.
    pub fn start(command: &str, options: ExternalOptions) -> Self {
        let mut external = Self {
            name: format!("external/{}", short_name(command)),
            process: None,
            budget_left: options.budget,
            n_rules: 0,
            faults: Vec::new(),
            told: BTreeMap::new(),
            proposed: BTreeSet::new(),
            weights: BTreeMap::new(),
            n_proposed: 0,
            options,
        };
        match Process::start(&words(command), external.options.max_line_bytes, MAX_LINES) {
            Ok(process) => {
                external.process = Some(process);
                external.greet();
            }
            Err(reason) => external.fault(Fault::CannotStart { reason }),
        }
        external
    }

    /// What it did wrong, in order.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Lines that it may still say.
    pub fn budget_left(&self) -> u64 {
        self.budget_left
    }

    /// Schedules that it proposed and that were legal and new.
    pub fn n_proposed(&self) -> u64 {
        self.n_proposed
    }

    /// How much more than others it wants regions searched, by hash; 1 for those that are not here.
    pub fn weights(&self) -> &BTreeMap<String, f64> {
        &self.weights
    }

    /// Asks for rules, once, before a model is rewritten. Those that are well-formed and pass the check are
    /// returned; the others are faults, which it is told.
    pub fn rules(&mut self) -> CheckedRules {
        let mut rules = CheckedRules::default();
        let ask = Ask::Rules { n: self.options.max_rules, budget: self.budget_left };
        for (line, reply) in self.exchange(&[], ask) {
            match reply {
                Reply::Rule { row } => match self.rule(&row, &mut rules) {
                    Ok(()) => {}
                    Err(reason) => self.refuse(&line, reason),
                },
                _ => self.refuse(&line, "only rules were asked for".into()),
            }
        }
        rules
    }

    fn rule(&mut self, row: &str, rules: &mut CheckedRules) -> Result<(), String> {
        if self.n_rules == self.options.max_rules {
            return Err(format!("more than {} rules", self.options.max_rules));
        }
        self.n_rules += 1;
        if row.contains('\n') {
            return Err("a rule is one line".into());
        }
        let file = rule_file::parse(&self.name, row).map_err(|errors| errors.to_string())?;
        let checked = file.check().map_err(|refused| refused.to_string())?;
        rules.extend(checked).map_err(|err| err.to_string())
    }

    fn greet(&mut self) {
        let hello = Out::Hello {
            protocol: VERSION,
            eggine: env!("CARGO_PKG_VERSION"),
            seed: self.options.seed,
            budget: self.options.budget,
            max_lines: MAX_LINES,
            max_line_bytes: self.options.max_line_bytes,
            reply_ms: self.options.reply_timeout.as_millis() as u64,
        };
        self.send(&hello);
        let timeout = self.options.start_timeout;
        let Some((line, reply)) = self.receive(timeout) else { return };
        match reply {
            Ok(Reply::Hello { protocol, name }) => {
                if protocol != VERSION {
                    self.fault(Fault::Protocol { found: protocol });
                } else if let Some(name) = name.filter(|name| is_name(name)) {
                    self.name = format!("external/{name}");
                }
            }
            Ok(_) => self.end(Fault::Nonsense { reason: "not a hello".into(), line }),
            Err(reason) => self.end(Fault::Nonsense { reason, line }),
        }
    }

    /// Sends news and a question; returns the lines up to `done`, each of which costs one unit.
    fn exchange(&mut self, news: &[Out<'_>], ask: Ask) -> Vec<(String, Reply)> {
        if self.process.is_none() {
            return Vec::new();
        }
        if self.budget_left == 0 {
            self.fault(Fault::Spent { budget: self.options.budget });
            return Vec::new();
        }
        news.iter().for_each(|message| self.send(message));
        self.send(&Out::Ask(ask));
        let mut replies = Vec::new();
        let started = std::time::Instant::now();
        loop {
            let left = self.options.reply_timeout.saturating_sub(started.elapsed());
            let Some((line, reply)) = self.receive(left) else { return replies };
            if matches!(reply, Ok(Reply::Done {})) {
                return replies;
            }
            if replies.len() == MAX_LINES {
                let what = format!("more than {MAX_LINES} lines in one answer");
                self.fault(Fault::Flood { what });
                return Vec::new();
            }
            if self.budget_left == 0 {
                self.fault(Fault::Spent { budget: self.options.budget });
                return replies;
            }
            self.budget_left -= 1;
            match reply {
                Ok(reply) => replies.push((line, reply)),
                Err(reason) => self.refuse(&line, reason),
            }
        }
    }

    fn send(&mut self, message: &Out<'_>) {
        if let Some(process) = &mut self.process {
            let line = serde_json::to_string(message).expect("messages are plain data");
            process.send(line);
        }
    }

    /// The next line and what it says; `None` after a fault that ended the agent.
    fn receive(&mut self, timeout: Duration) -> Option<(String, Result<Reply, String>)> {
        let process = self.process.as_mut()?;
        match process.receive(timeout) {
            Received::Line(line) => {
                let reply = serde_json::from_str(&line).map_err(|err| err.to_string());
                Some((line, reply))
            }
            Received::Ended => {
                let (status, stderr) = process.post_mortem();
                self.fault(Fault::Crashed { status, stderr });
                None
            }
            Received::Nothing => {
                let (_, stderr) = process.post_mortem();
                self.fault(Fault::Hung { seconds: self.options.reply_timeout.as_secs(), stderr });
                None
            }
            Received::LongLine => {
                let what = format!("a line of more than {} bytes", self.options.max_line_bytes);
                self.fault(Fault::Flood { what });
                None
            }
        }
    }

    /// A line that cannot be used: noted, told to the agent, and paid for already.
    fn refuse(&mut self, line: &str, reason: String) {
        self.send(&Out::Refused { line: &shortened(line), reason: &reason });
        self.fault(Fault::Nonsense { reason, line: shortened(line) });
    }

    fn end(&mut self, fault: Fault) {
        self.fault(fault);
        self.process = None;
        self.budget_left = 0;
    }

    fn fault(&mut self, fault: Fault) {
        tracing::warn!(agent = self.name, %fault, fatal = fault.is_fatal(), "external agent");
        if fault.is_fatal() {
            // Dropping the process kills it.
            self.process = None;
            self.budget_left = 0;
        }
        self.faults.push(fault);
    }

    /// A proposal that may be judged, or why it may not.
    fn proposal(
        &mut self,
        view: &TuneView<'_>,
        hash: &str,
        text: &str,
        priority: Option<f64>,
    ) -> Result<Proposed, String> {
        let region = view.regions.iter().find(|region| region.hash == hash);
        let region = region.ok_or_else(|| format!("there is no region `{}`", shortened(hash)))?;
        let schedule: Schedule = text.parse().map_err(|err| format!("{err}"))?;
        check(region.graph, &schedule).map_err(|err| err.to_string())?;
        if !self.proposed.insert((hash.to_owned(), schedule)) {
            return Err("it was proposed before".into());
        }
        let priority = priority.filter(|priority| priority.is_finite()).unwrap_or(0.0);
        Ok(Proposed { region: region.region, schedule, priority })
    }
}

impl ScheduleSource for External {
    fn name(&self) -> &str {
        &self.name
    }

    fn propose(&mut self, view: &TuneView<'_>, n: usize) -> Vec<Proposed> {
        if self.process.is_none() || n == 0 {
            return Vec::new();
        }
        let mut news: Vec<Out<'_>> = Vec::new();
        for region in &view.regions {
            // A region is described when it is new and when its best changed.
            if self.told.get(region.hash) != Some(&region.best) {
                let is_new = self.told.insert(region.hash.to_owned(), region.best).is_none();
                news.push(describe(region, is_new));
            }
        }
        news.extend(view.evidence.iter().map(|row| Out::Evidence {
            region: &row.region,
            schedule: &row.schedule,
            verdict: &row.verdict,
            median_ns: row.median_ns,
            agent: &row.agent,
        }));
        let n_wanted = n.min(MAX_LINES);
        let ask = Ask::Schedules { n: n_wanted, budget: self.budget_left, n_left: view.n_left };
        let mut found: Vec<Proposed> = Vec::new();
        for (line, reply) in self.exchange(&news, ask) {
            let proposed = match reply {
                Reply::Schedule { region, schedule, priority } => {
                    self.proposal(view, &region, &schedule, priority)
                }
                Reply::Priority { region, weight } => {
                    match view.regions.iter().any(|it| it.hash == region)
                        && (0.0..=1000.0).contains(&weight)
                    {
                        true => {
                            self.weights.insert(region, weight);
                            continue;
                        }
                        false => Err("no such region, or a weight outside of 0 to 1000".into()),
                    }
                }
                Reply::Rule { .. } => Err("rules are asked for before the search".into()),
                Reply::Hello { .. } | Reply::Done {} => Err("not now".into()),
            };
            match proposed {
                Ok(proposed) => found.push(proposed),
                Err(reason) => self.refuse(&line, reason),
            }
        }
        found.sort_by(|a, b| b.priority.total_cmp(&a.priority));
        found.truncate(n);
        self.n_proposed += found.len() as u64;
        found
    }
}

fn describe<'a>(region: &'a RegionView<'_>, is_new: bool) -> Out<'a> {
    Out::Region {
        region: region.hash,
        // The text is long, and known after the first time.
        text: is_new.then(|| region.graph.to_string()),
        flops: flops(region.graph),
        bytes: bytes(region.graph),
        launches: region.n_launches,
        best: region.best.to_string(),
        best_ns: region.best_ns,
        near: region.neighbours.iter().map(|(_, schedule)| schedule.to_string()).collect(),
    }
}

/// Arithmetic operations of one launch: two per product of a contraction, one per element otherwise.
fn flops(region: &Region) -> u64 {
    let graph = &region.graph;
    let of_node = |kind: &NodeKind, n_elems: usize| match kind {
        NodeKind::Apply(Op::Matmul, _, args) => {
            let k = graph.nodes[args[0]].ty.extents().last().copied().unwrap_or(1);
            2 * n_elems as u64 * k as u64
        }
        NodeKind::Apply(Op::Conv, _, args) => {
            let filter: usize = graph.nodes[args[1]].ty.extents().iter().skip(1).product();
            2 * n_elems as u64 * filter as u64
        }
        NodeKind::Apply(_, _, args) => {
            let largest = args.iter().map(|&arg| graph.nodes[arg].ty.n_elems()).max();
            largest.unwrap_or(0).max(n_elems) as u64
        }
        _ => 0,
    };
    graph.nodes.values().map(|node| of_node(&node.kind, node.ty.n_elems())).sum()
}

/// Bytes of the inputs and outputs.
fn bytes(region: &Region) -> u64 {
    let graph = &region.graph;
    let tensors = graph.inputs().chain(graph.outputs.iter().copied());
    tensors
        .map(|value| {
            let ty = &graph.nodes[value].ty;
            ty.dtype.bytes_for(ty.n_elems()) as u64
        })
        .sum()
}

/// Words of a command line: blanks separate, quotes hold together.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (Some(mark), _) if c == mark => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The stem of the last word that is a file's name: `random_search` of `python3 a/random_search.py`.
fn short_name(command: &str) -> String {
    let words = words(command);
    let file = words.iter().rev().find(|word| !word.starts_with('-'));
    let stem = file.and_then(|word| Path::new(word).file_stem()).map(|it| it.to_string_lossy());
    let name: String = stem.unwrap_or_default().chars().take(32).collect();
    if is_name(&name) { name } else { "agent".to_owned() }
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= 32 && name.chars().all(plain)
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(160) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_without_a_shell() {
        assert_eq!(words("python3  a.py"), ["python3", "a.py"]);
        assert_eq!(words("'my agent' \"a b\"c ''"), ["my agent", "a bc", ""]);
        assert_eq!(words("$(rm) `x` ; y"), ["$(rm)", "`x`", ";", "y"]);
        assert_eq!(short_name("python3 -u agents/random_search.py"), "random_search");
        assert_eq!(short_name("sh -c 'a b'"), "agent");
    }
}
