//! Mistakes in a rule file, each with its place and, where there is one, a way out.

use miette::{Diagnostic, SourceSpan};

/// A mistake in a rule file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Diagnostic)]
#[error("{kind}")]
#[diagnostic(code(rules::parse))]
pub struct RuleFileError {
    /// What is wrong.
    pub kind: RuleFileErrorKind,
    /// Where: bytes of the file.
    #[label("here")]
    pub span: SourceSpan,
    /// What to do.
    #[help]
    pub help: Option<String>,
}

/// What is wrong with a rule file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleFileErrorKind {
    /// The file is too large to be one.
    #[error("the file has {found} bytes; no rule file has more than {limit}")]
    TooLarge {
        /// Its size.
        found: usize,
        /// The largest size.
        limit: usize,
    },
    /// A line has too few or too many columns.
    #[error(
        "a rule has the columns name | variables | left | right | soundness; found {found} of 5"
    )]
    Columns {
        /// How many the line has.
        found: usize,
    },
    /// A column other than the variables is empty.
    #[error("the {column} is missing")]
    Missing {
        /// Which column.
        column: &'static str,
    },
    /// A name that is not kebab-case.
    #[error("`{name}` is not a rule's name: lower-case words and digits joined by `-`")]
    Name {
        /// What was read.
        name: String,
    },
    /// Two rules have one name.
    #[error("a second rule named `{name}`; the first is on line {line}")]
    Duplicate {
        /// The name.
        name: String,
        /// Line of the first.
        line: usize,
    },
    /// A rule of ours has the name.
    #[error("`{name}` is a built-in rule")]
    BuiltIn {
        /// The name.
        name: String,
    },
    /// Neither `Exact` nor `Real`.
    #[error("`{word}` is not a soundness: it is `Exact` or `Real`")]
    Soundness {
        /// What was read.
        word: String,
    },
    /// Not a typed variable.
    #[error("`{word}` is not a typed variable: {reason}")]
    Variable {
        /// What was read.
        word: String,
        /// Why not.
        reason: String,
    },
    /// A variable has two types.
    #[error("variable `{var}` has a type already")]
    VariableTwice {
        /// The variable.
        var: String,
    },
    /// A typed variable is not on the left side.
    #[error("variable `{var}` is not on the left side")]
    NotOnTheLeft {
        /// The variable.
        var: String,
    },
    /// The right side uses a variable that the left side does not bind.
    #[error("`?{var}` is on the right side only: nothing says what it stands for")]
    Unbound {
        /// The variable.
        var: String,
    },
    /// A parenthesis without its partner.
    #[error("`{found}` without its partner")]
    Parenthesis {
        /// Which.
        found: char,
    },
    /// More than one term on a side, or none where one is needed.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What should stand there.
        expected: &'static str,
        /// What does.
        found: String,
    },
    /// No such operator.
    #[error("unknown operator `{op}`")]
    Operator {
        /// What was read.
        op: String,
    },
    /// A wrong number of operands.
    #[error("`{op}` takes {expected}, found {found}")]
    Operands {
        /// The operator.
        op: String,
        /// What it takes.
        expected: String,
        /// How many there are.
        found: usize,
    },
    /// Attributes that the operator does not take.
    #[error("`{text}` are not attributes of `{op}`")]
    Attributes {
        /// The operator.
        op: String,
        /// What was read.
        text: String,
    },
    /// One variable for two kinds of thing.
    #[error("`?{var}` is {first} in one place and {second} in another")]
    Kinds {
        /// The variable.
        var: String,
        /// One kind.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A term of the wrong kind.
    #[error("expected {expected}, found {found}")]
    Kind {
        /// What is needed.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// The left side is a lone variable or constant.
    #[error("the left side needs an operator")]
    Lone,
    /// Both sides are the same term.
    #[error("both sides are the same")]
    Same,
    /// An operand list that cannot be written out.
    #[error("`...` stands behind a variable, or behind a term with one variable in it")]
    Dots,
}

/// All mistakes of a rule file.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} in `{name}`: {}", count(errors.len()), first(errors))]
pub struct RuleFileErrors {
    /// The file.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The mistakes, in the order of the text.
    pub errors: Vec<RuleFileError>,
}

fn count(n: usize) -> String {
    if n == 1 { "one mistake".into() } else { format!("{n} mistakes") }
}

fn first(errors: &[RuleFileError]) -> String {
    errors.first().map(RuleFileError::to_string).unwrap_or_default()
}
