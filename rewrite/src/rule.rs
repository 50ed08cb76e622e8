//! What a rewrite rule is: a row with a name, typed variables, two sides, and the sense in which it
//! is true.

mod compile;
mod types;

pub use compile::{CompiledRule, Match, compile_all};
pub(crate) use compile::{MAX_OPERANDS, build, lookup, root};
pub(crate) use types::broadcasts_to;
pub use types::{Binding, DTypeSpec, VarSpec, VarType};

use eggine_ir::{Attrs, TensorType};

use crate::literal::Literal;

/// In which sense the two sides of a [`Rule`] are equal.
///
/// This picks the test that the rule must pass, and the modes in which search may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Soundness {
    /// Bit for bit, for every input, including ±0, infinities and subnormals. Any NaN equals any
    /// other NaN.
    Exact,
    /// Equal over the reals: rounding differs, and infinities, NaN and overflow may appear or
    /// vanish. Only where the job's precision policy allows it.
    Real,
}

/// A value that a rule computes for a variable of its right side.
#[derive(Clone, Debug, PartialEq)]
pub enum Derived {
    /// Attributes of an operator.
    Attrs(Attrs),
    /// A literal.
    Literal(Literal),
    /// What another variable of the left side stands for.
    Same(String),
}

/// What a rule may ask about the variables of its left side.
pub trait Scope {
    /// Type of a tensor or computation.
    fn ty(&self, var: &str) -> Option<&TensorType>;
    /// The attributes that a variable in the place of attributes stands for.
    fn attrs(&self, var: &str) -> Option<&Attrs>;
    /// The value, if it is a literal.
    fn literal(&self, var: &str) -> Option<&Literal>;
    /// Whether the value is known at compile time.
    fn known(&self, var: &str) -> bool;
}

/// The further condition of a rule, which also computes the variables that only its right side has.
/// `None`: the rule does not apply, or it is not known whether it does.
pub type Derive = fn(&dyn Scope) -> Option<Vec<(&'static str, Derived)>>;

/// A rewrite rule, as data.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Unique, kebab-case; also the stem of its file in `tests/filetests/rewrite/`.
    pub name: &'static str,
    /// Types of the variables; see [`VarSpec`]. Equal letters are equal. The rule applies only to
    /// such values, and its test draws such values.
    pub vars: &'static str,
    /// Left-hand side, an egg pattern. `?x...` stands for two or more operands, and `(f ?x)...` for
    /// `f` of each; in `(f ?x ?y*)...` the list is `y`, and `x` is one and the same operand.
    pub lhs: &'static str,
    /// Right-hand side, an egg pattern over the same and the derived variables.
    pub rhs: &'static str,
    /// See [`Soundness`].
    pub soundness: Soundness,
    /// See [`Derive`].
    pub derive: Option<Derive>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} = {} ({:?})", self.name, self.lhs, self.rhs, self.soundness)
    }
}

/// Shorthand for one row of a rule table.
pub(crate) const fn rule(
    name: &'static str,
    vars: &'static str,
    lhs: &'static str,
    rhs: &'static str,
    soundness: Soundness,
) -> Rule {
    Rule { name, vars, lhs, rhs, soundness, derive: None }
}

impl Rule {
    /// The same row with a further condition.
    pub(crate) const fn with(self, derive: Derive) -> Rule {
        Rule { derive: Some(derive), ..self }
    }

    /// The sides with every `...` written out for `n` operands.
    pub fn expanded(&self, n: usize) -> (String, String) {
        (expand(self.lhs, n), expand(self.rhs, n))
    }

    /// Whether the rule has an operand list of any length.
    pub fn is_variadic(&self) -> bool {
        self.lhs.contains("...")
    }
}

/// Replaces `?x...` by `?x0 ?x1 …`, `(f ?x)...` by `(f ?x0) (f ?x1) …`, and `(f ?x ?y*)...` by
/// `(f ?x ?y0) (f ?x ?y1) …`.
fn expand(side: &str, n: usize) -> String {
    let mut text = side.to_owned();
    while let Some(dots) = text.find("...") {
        let head = &text[..dots];
        let start = if head.ends_with(')') {
            let mut depth = 0;
            let opening = head.char_indices().rev().find(|&(_, c)| {
                depth += i32::from(c == ')') - i32::from(c == '(');
                depth == 0
            });
            opening.map_or(0, |(at, _)| at)
        } else {
            head.rfind('?').unwrap_or(0)
        };
        let mut item = head[start..].to_owned();
        if !item.contains('*') {
            let name_at = item.find('?').map_or(0, |at| at + 1);
            let name_len = item[name_at..].find([' ', ')']).unwrap_or(item.len() - name_at);
            item.insert(name_at + name_len, '*');
        }
        let items: Vec<String> = (0..n).map(|i| item.replace('*', &i.to_string())).collect();
        text = format!("{}{}{}", &head[..start], items.join(" "), &text[dots + 3..]);
    }
    text
}

/// A row that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A side does not parse.
    #[error("rule `{rule}`: `{side}` is not a pattern: {message}")]
    Pattern {
        /// The rule's name.
        rule: &'static str,
        /// The side.
        side: String,
        /// The parser's complaint.
        message: String,
    },
    /// The list of variables does not parse.
    #[error("rule `{rule}`: `{spec}` is not a typed variable")]
    Variable {
        /// The rule's name.
        rule: &'static str,
        /// The word.
        spec: String,
    },
    /// A typed variable does not occur on the left side.
    #[error("rule `{rule}`: variable `{var}` is not on the left side")]
    Unbound {
        /// The rule's name.
        rule: &'static str,
        /// The variable.
        var: String,
    },
    /// The left side is a lone variable.
    #[error("rule `{rule}`: a left side needs an operator")]
    Lone {
        /// The rule's name.
        rule: &'static str,
    },
}
