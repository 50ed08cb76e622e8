//! Rule files: rules as text, for people who do not build the compiler.
//!
//! One rule per line, in the columns of our own tables, separated by `|`; `;` starts a comment:
//!
//! ```text
//! ; name        | variables        | left                       | right                | soundness
//! mul-factor    | x:S* y:S* z:T*   | (add (mul ?x ?z) (mul ?y ?z)) | (mul (add ?x ?y) ?z) | Real
//! ```
//!
//! [`parse`] answers every mistake with its place; [`RuleFile::check`] executes each rule and refuses
//! what is false. Only [`CheckedRules`] can be used, and there is no other way to make them.

mod error;
mod pattern;
mod row;
mod user;

use std::fmt;

use miette::SourceSpan;
use rayon::prelude::*;

pub use self::error::{RuleFileError, RuleFileErrorKind, RuleFileErrors};
pub use self::user::{Firing, Fuel, USER_AGENT, UserAgent, firings};

use crate::rule::{Rule, Soundness};
use crate::soundness::{self, CheckError, Counterexample, N_CASES, Verdict};

/// No rule file is larger.
pub const MAX_BYTES: usize = 1 << 20;

/// A file of well-formed rules, not checked yet.
#[derive(Clone, Debug)]
pub struct RuleFile {
    /// What messages call it.
    pub name: String,
    /// The text, for messages.
    pub text: &'static str,
    /// The rows and where each begins.
    pub rows: Vec<(&'static Rule, SourceSpan)>,
}

/// Reads a rule file's text; `name` is what messages call it.
///
/// # Errors
///
/// Every mistake, each with its place.
pub fn parse(name: &str, text: &str) -> Result<RuleFile, RuleFileErrors> {
    // A rule is named by references for as long as the process lives: logs, derivations and agents hold
    // `&'static Rule`, as they do of our own tables. A process reads few files, each once.
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    let (rows, errors) = row::rows(text);
    if !errors.is_empty() {
        return Err(RuleFileErrors { name: name.to_owned(), text: text.to_owned(), errors });
    }
    let leak = |(rule, span)| -> (&'static Rule, SourceSpan) { (Box::leak(Box::new(rule)), span) };
    Ok(RuleFile { name: name.to_owned(), text, rows: rows.into_iter().map(leak).collect() })
}

/// What the check of a rule of a file found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The rule.
    pub rule: &'static Rule,
    /// Where it is in the file.
    pub span: SourceSpan,
    /// Why it is refused, if it is.
    pub refusal: Option<Refusal>,
}

/// Why a rule is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is false.
    #[error("{0}")]
    False(Box<Counterexample>),
    /// It was never seen to be true.
    #[error(
        "rule `{rule}` cannot be believed: it applied to {n_cases} of {n_draws} drawn inputs, and {N_CASES} are needed; give its variables types and shapes at which the left side is well typed and finite"
    )]
    Untested {
        /// The rule.
        rule: &'static str,
        /// Inputs to which it applied.
        n_cases: usize,
        /// Inputs drawn.
        n_draws: usize,
    },
    /// It cannot be tried.
    #[error("rule `{rule}` cannot be tried: {reason}")]
    Untestable {
        /// The rule.
        rule: &'static str,
        /// Why.
        #[source]
        reason: CheckError,
    },
}

impl RuleFile {
    /// Checks every rule by execution, in parallel. The order is that of the file.
    pub fn verdicts(&self) -> Vec<Checked> {
        (self.rows.par_iter())
            .map(|&(rule, span)| Checked { rule, span, refusal: refusal(rule) })
            .collect()
    }

    /// The rules, if all of them are true.
    ///
    /// # Errors
    ///
    /// The rules that are refused, each with its reason.
    pub fn check(&self) -> Result<CheckedRules, RefusedRules> {
        let verdicts = self.verdicts();
        let refused: Vec<Checked> =
            verdicts.iter().filter(|checked| checked.refusal.is_some()).cloned().collect();
        match refused.is_empty() {
            true => Ok(CheckedRules { rules: self.rows.iter().map(|(rule, _)| *rule).collect() }),
            false => Err(RefusedRules { name: self.name.clone(), refused }),
        }
    }
}

fn refusal(rule: &'static Rule) -> Option<Refusal> {
    let name = rule.name;
    match soundness::check(rule) {
        Ok(Verdict::Holds) => None,
        Ok(Verdict::False(example)) => Some(Refusal::False(example)),
        Ok(Verdict::Untested { n_cases, n_draws }) => {
            Some(Refusal::Untested { rule: name, n_cases, n_draws })
        }
        Err(reason) => Some(Refusal::Untestable { rule: name, reason }),
    }
}

/// Rules of a file that were found false, or could not be tested.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} of the rules in `{name}` are refused:\n{}", refused.len(), listing(refused))]
pub struct RefusedRules {
    /// The file.
    pub name: String,
    /// The rules, each with a refusal.
    pub refused: Vec<Checked>,
}

fn listing(refused: &[Checked]) -> String {
    let texts: Vec<String> =
        refused.iter().filter_map(|it| Some(it.refusal.as_ref()?.to_string())).collect();
    texts.join("\n")
}

/// Rules that passed the check.
#[derive(Clone, Debug, Default)]
pub struct CheckedRules {
    rules: Vec<&'static Rule>,
}

impl CheckedRules {
    /// The rules, in the order of their files.
    pub fn rules(&self) -> &[&'static Rule] {
        &self.rules
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Adds the rules of another file.
    ///
    /// # Errors
    ///
    /// The name of a rule that is in both.
    pub fn extend(&mut self, other: CheckedRules) -> Result<(), DuplicateRule> {
        for rule in other.rules {
            if self.rules.iter().any(|known| known.name == rule.name) {
                return Err(DuplicateRule { name: rule.name });
            }
            self.rules.push(rule);
        }
        Ok(())
    }

    /// Rules that `soundness` does not permit.
    pub fn not_permitted(&self, soundness: Soundness) -> Vec<&'static str> {
        self.rules.iter().filter(|rule| rule.soundness > soundness).map(|rule| rule.name).collect()
    }
}

/// Two files have a rule of one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule `{name}` is in two files: rename one of them")]
pub struct DuplicateRule {
    /// The name.
    pub name: &'static str,
}

impl fmt::Display for CheckedRules {
    /// One row per line, without comments and padding: what the rules are, whatever the files look like.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.iter().try_for_each(|rule| writeln!(f, "{}", row::print(rule)))
    }
}
