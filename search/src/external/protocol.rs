//! The messages between a search and an external agent, one JSON object a line. This file and
//! `docs/external-agents.md` say the same; a test compares them.

use serde::{Deserialize, Serialize};

/// Changes when an agent that was written for the last version would misunderstand.
pub const VERSION: u64 = 1;

/// What the search says.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Out<'a> {
    /// The first line.
    Hello {
        /// [`VERSION`].
        protocol: u64,
        /// Version of this program.
        eggine: &'a str,
        /// Seed of the search; an agent that draws from it can be repeated.
        seed: u64,
        /// Lines that the agent may say in all.
        budget: u64,
        /// Lines of one answer.
        max_lines: usize,
        /// Bytes of one line.
        max_line_bytes: usize,
        /// How long an answer may take, in milliseconds.
        reply_ms: u64,
    },
    /// A region: when it is new, and when its best schedule changed.
    Region {
        /// Hash of the canonical text: the region's name.
        region: &'a str,
        /// Canonical text; only when the region is new.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Arithmetic operations of one launch.
        flops: u64,
        /// Bytes of inputs and outputs.
        bytes: u64,
        /// Launches in one inference.
        launches: u64,
        /// Best schedule so far.
        best: String,
        /// Its time in ns, if it was measured.
        best_ns: Option<f64>,
        /// Legal schedules one move from the best.
        near: Vec<String>,
    },
    /// A judgement.
    Evidence {
        /// The region.
        region: &'a str,
        /// The schedule.
        schedule: &'a str,
        /// `accepted`, or why it was rejected.
        verdict: &'a str,
        /// Median time of a launch, in ns.
        median_ns: Option<f64>,
        /// Who proposed it.
        agent: &'a str,
    },
    /// A question. The agent answers with any number of lines, then `done`.
    Ask(Ask),
    /// A line of the agent's that was not used.
    Refused {
        /// The line, shortened.
        line: &'a str,
        /// Why.
        reason: &'a str,
    },
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "want", rename_all = "snake_case")]
pub enum Ask {
    /// Rules, before the model is rewritten.
    Rules {
        /// At most so many.
        n: u64,
        /// Lines left.
        budget: u64,
    },
    /// Schedules of the regions described so far.
    Schedules {
        /// More than these are not looked at.
        n: usize,
        /// Lines left.
        budget: u64,
        /// Candidates that the search will still judge, if known.
        n_left: Option<u64>,
    },
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// Its first line.
    Hello {
        /// The version that it speaks.
        protocol: u64,
        /// Under which it is logged: letters, digits, `-`, `_`, `.`; at most 32.
        name: Option<String>,
    },
    /// A schedule to judge.
    Schedule {
        /// The region's hash.
        region: String,
        /// The schedule's text, as in `best` and `near`.
        schedule: String,
        /// Higher first; 0 if it is not said.
        priority: Option<f64>,
    },
    /// A rule, as a row of a rule file.
    Rule {
        /// `name | variables | left | right | soundness`.
        row: String,
    },
    /// How much more a region should be searched than others.
    Priority {
        /// The region's hash.
        region: String,
        /// 0 to 1000; 1 is as usual. The effect is limited to a factor of 4 either way.
        weight: f64,
    },
    /// The end of an answer.
    Done {},
}
