//! Is a rule true? Both sides are evaluated on drawn inputs with the reference evaluator and compared.
//!
//! Variables are drawn from their types, attributes from what the operator that they belong to takes.
//! [`Exact`](Soundness::Exact) rules are evaluated with `f32` semantics on numbers of every kind (±0,
//! NaN, infinities, subnormals, extremes, random bits) and must agree bit for bit.
//! [`Real`](Soundness::Real) rules are evaluated in `f64` on numbers of ordinary size and must agree up
//! to `f64` rounding, which no identity that is false over the reals does. A rule that is false is
//! answered with a counterexample, as small as it could be made.
//!
//! Our own tables and the rule files of users pass through the same check. Everything is a function of
//! the row: the same rule gets the same verdict and the same counterexample.

mod draw;
mod show;
mod shrink;
mod sides;

use egg::PatternAst;
use eggine_ir::graph::{Array, Rounding};
use eggine_ir::{DType, Op};

use self::draw::{Bound, Env, EnvScope, FULL, Rng, draw_values, float_type, names_of};
use self::sides::{NoValue, REAL_BOUND, eval_side, first_difference};
use crate::lang::ENode;
use crate::rule::{Binding, Derived, Rule, Soundness, VarSpec};

/// Draws after which a rule counts as never applying.
const MAX_DRAWS: usize = 60_000;
/// Draws on which a rule must hold.
pub const N_CASES: usize = 60;

/// What the check of a rule found.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The sides agreed on [`N_CASES`] draws to which the rule applies.
    Holds,
    /// They differ.
    False(Box<Counterexample>),
    /// The rule applied to too few of the inputs drawn to be believed.
    Untested {
        /// How often it applied.
        n_cases: usize,
        /// How often inputs were drawn.
        n_draws: usize,
    },
}

/// Inputs on which the two sides of a rule differ. Values are text: `-0.0:f32[]`, or
/// `{1.0,2.0}:f32[2]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The rule.
    pub rule: &'static str,
    /// The sense in which it was said to be true.
    pub soundness: Soundness,
    /// Its left side, operand lists written out.
    pub lhs: String,
    /// Its right side.
    pub rhs: String,
    /// What the variables stand for, each with its `?`.
    pub inputs: Vec<(String, String)>,
    /// Value of the left side.
    pub left: String,
    /// Value of the right side, or why it has none.
    pub right: Result<String, String>,
    /// The first element that differs, if the sides have one type and several elements.
    pub place: Option<String>,
    /// The rule is not `Exact`, but passes as `Real`.
    pub holds_over_the_reals: bool,
}

/// Why a rule cannot be checked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The row is not a rule.
    #[error(transparent)]
    Rule(#[from] crate::rule::RuleError),
    /// There is nothing to draw attributes of an operator from.
    #[error("the attributes of `{op}` cannot be drawn: write them out in the rule")]
    NoGenerator {
        /// The operator.
        op: Op,
    },
    /// A variable's constant is not a number of the type that it has.
    #[error(
        "values drawn for `{vars}` do not have these types: is each constant a number of its element type?"
    )]
    Types {
        /// The typed variables.
        vars: &'static str,
    },
}

/// A rule at some number of operands, ready to be tried.
struct Trial<'a> {
    rule: &'a Rule,
    specs: &'a [VarSpec],
    n_operands: usize,
    lhs: PatternAst<ENode>,
    rhs: PatternAst<ENode>,
    float: DType,
}

/// What a trial showed.
enum Outcome {
    /// The left side is ill-typed, or the rule's condition does not hold.
    NotACase,
    /// The sides agree; whether there was a finite number in them.
    Agree {
        finite: bool,
    },
    Differ(Difference),
}

struct Difference {
    left: Array,
    right: Result<Array, String>,
    /// The first element that differs, if the types are the same.
    at: Option<usize>,
}

/// Checks a rule.
///
/// # Errors
///
/// If the row is malformed, or cannot be tried at all.
pub fn check(rule: &Rule) -> Result<Verdict, CheckError> {
    let specs = specs_of(rule)?;
    let mut rng = Rng::new(1, FULL);
    let mut n_cases = 0;
    for n_draws in 0..MAX_DRAWS {
        let n_operands = rng.n_operands();
        let trial = Trial::new(rule, &specs, n_operands)?;
        let mut env = draw_values(rule, &specs, &trial.lhs, trial.float, n_operands, &mut rng);
        match trial.judge(&mut env, Some(&mut rng))? {
            Outcome::NotACase => {}
            // Where both sides are always NaN or infinite, nothing was compared.
            Outcome::Agree { finite } => n_cases += usize::from(finite),
            Outcome::Differ(_) => {
                let (trial, env, difference) = shrink::smallest(trial, env)?;
                let mut example = show::counterexample(&trial, &env, &difference);
                if rule.soundness == Soundness::Exact {
                    let real = Rule { soundness: Soundness::Real, ..*rule };
                    example.holds_over_the_reals = check(&real) == Ok(Verdict::Holds);
                }
                return Ok(Verdict::False(Box::new(example)));
            }
        }
        if n_cases == N_CASES {
            return Ok(Verdict::Holds);
        }
        // A rule that never applies is not worth the whole number of draws.
        if n_cases == 0 && n_draws > MAX_DRAWS / 4 {
            return Ok(Verdict::Untested { n_cases, n_draws });
        }
    }
    Ok(Verdict::Untested { n_cases, n_draws: MAX_DRAWS })
}

fn specs_of(rule: &Rule) -> Result<Vec<VarSpec>, CheckError> {
    let spec = |word: &'static str| {
        VarSpec::parse(word).ok_or_else(|| {
            let spec = word.to_owned();
            CheckError::from(crate::rule::RuleError::Variable { rule: rule.name, spec })
        })
    };
    rule.vars.split_whitespace().map(spec).collect()
}

impl<'a> Trial<'a> {
    fn new(rule: &'a Rule, specs: &'a [VarSpec], n_operands: usize) -> Result<Self, CheckError> {
        let (lhs, rhs) = rule.expanded(n_operands);
        let parse = |side: String| -> Result<PatternAst<ENode>, CheckError> {
            side.parse().map_err(|err: egg::RecExprParseError<_>| {
                let (rule, message) = (rule.name, format!("{err}"));
                crate::rule::RuleError::Pattern { rule, side, message }.into()
            })
        };
        let (lhs, rhs) = (parse(lhs)?, parse(rhs)?);
        let float = float_type(rule.soundness, [&lhs, &rhs]);
        Ok(Self { rule, specs, n_operands, lhs, rhs, float })
    }

    fn rounding(&self) -> Rounding {
        match self.rule.soundness {
            Soundness::Exact => Rounding::PerOp,
            Soundness::Real => Rounding::None,
        }
    }

    /// Evaluates and compares. Attributes that `env` lacks are drawn and put there.
    fn judge(&self, env: &mut Env, rng: Option<&mut Rng>) -> Result<Outcome, CheckError> {
        let (left, largest) = match eval_side(&self.lhs, env, self.rounding(), rng) {
            Ok(value) => value,
            Err(NoValue::IllTyped(_)) => return Ok(Outcome::NotACase),
            Err(NoValue::NoGenerator(op)) => return Err(CheckError::NoGenerator { op }),
        };
        if !self.fits(env) {
            return Err(CheckError::Types { vars: self.rule.vars });
        }
        let Some(mut env) = self.with_derived(env) else { return Ok(Outcome::NotACase) };
        let (right, right_largest) = match eval_side(&self.rhs, &mut env, self.rounding(), None) {
            Ok(value) => value,
            Err(NoValue::IllTyped(message)) => {
                return Ok(Outcome::Differ(Difference { left, right: Err(message), at: None }));
            }
            Err(NoValue::NoGenerator(op)) => return Err(CheckError::NoGenerator { op }),
        };
        if left.ty() != right.ty() {
            return Ok(Outcome::Differ(Difference { left, right: Ok(right), at: None }));
        }
        let largest = largest.max(right_largest);
        let plain = |_: usize| REAL_BOUND * largest;
        let soundness = self.rule.soundness;
        let mut at = first_difference(soundness, &left, &right, plain);
        if at.is_some() && soundness == Soundness::Real {
            let condition = self.condition(&env, &left);
            let slack = |at: usize| REAL_BOUND * largest.max(condition[at]);
            at = first_difference(soundness, &left, &right, slack);
        }
        match at {
            Some(_) => Ok(Outcome::Differ(Difference { left, right: Ok(right), at })),
            None => {
                let finite = left.n_elems() > 0 && left.to_f64().iter().any(|x| x.is_finite());
                Ok(Outcome::Agree { finite })
            }
        }
    }

    /// How much each element of the left side changes per relative change of the inputs: what rounding
    /// on the way may be amplified by.
    fn condition(&self, env: &Env, left: &Array) -> Vec<f64> {
        const STEP: f64 = 1.0 / (1u64 << 30) as f64;
        let mut found = vec![0.0f64; left.n_elems()];
        for seed in 0..3 {
            let mut rng = Rng::new(seed, FULL);
            let mut near = env.clone();
            for bound in near.values_mut() {
                let Bound::Value { tensor, literal: None, .. } = bound else { continue };
                if tensor.dtype.is_float() {
                    let elements: Vec<f64> = (tensor.to_f64().iter())
                        .map(|x| if rng.one_in(2) { x * (1.0 + STEP) } else { x * (1.0 - STEP) })
                        .collect();
                    *tensor = eggine_ir::Tensor::from_f64(tensor.dtype, &tensor.extents, &elements);
                }
            }
            let Ok((other, _)) = eval_side(&self.lhs, &mut near, self.rounding(), None) else {
                continue;
            };
            for (at, (x, y)) in left.to_f64().into_iter().zip(other.to_f64()).enumerate() {
                let change = (x - y).abs() / STEP;
                if change.is_finite() {
                    found[at] = found[at].max(change);
                }
            }
        }
        found
    }

    /// Whether typed variables have their types.
    fn fits(&self, env: &Env) -> bool {
        let mut binding = Binding::default();
        self.specs.iter().all(|spec| {
            names_of(spec, self.n_operands).iter().all(|name| match env.get(name) {
                Some(Bound::Value { ty, literal, known, .. }) => {
                    binding.unify(spec, ty, literal.as_ref(), *known)
                }
                _ => false,
            })
        })
    }

    /// The environment with what the rule's condition computes; `None` if it does not hold.
    fn with_derived(&self, env: &Env) -> Option<Env> {
        let mut env = env.clone();
        let Some(derive) = self.rule.derive else { return Some(env) };
        for (name, derived) in derive(&EnvScope(&env))? {
            let bound = match derived {
                Derived::Attrs(attrs) => Bound::Attrs(attrs),
                Derived::Same(var) => env.get(&var)?.clone(),
                Derived::Literal(literal) => Bound::Value {
                    tensor: literal.to_tensor(),
                    ty: literal.ty().clone(),
                    literal: Some(literal),
                    known: true,
                },
            };
            env.insert(name.to_owned(), bound);
        }
        Some(env)
    }
}
