//! Every graph operator, in one table.
//!
//! A row is the only place where an operator is described. The parser, the printer, the verifier,
//! the reference evaluator, the e-graph language and the docs all read it, so adding an operator is
//! adding a row (and, where lowering matches on [`Op`], following the compiler errors).
//!
//! Shapes here are already bound; negative axes, defaults and ONNX's opset differences are gone:
//! import normalises them. Elementwise operators broadcast as NumPy does.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::attrs::{AttrKind, Attrs};
use super::eval::{self, Array};
use super::infer::{self, TypeError};
use crate::TensorType;

/// How an operator maps index spaces: what fusion and lowering need to know about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Output element from the operands' elements at the (broadcast) same index.
    Map,
    /// Output element is one operand's element at a computed index (or a fill value).
    Move,
    /// Output element folds operand elements along whole axes.
    Reduce,
    /// Output element folds a window of the operand.
    Window,
    /// Output element is a sum of products.
    Contract,
    /// Output element is a function of its index only.
    Generate,
}

/// What a row of the table says about an operator.
pub struct OpSpec {
    /// Spelling in the text format and in rewrite rules.
    pub name: &'static str,
    /// Number of operands; `None` for one or more.
    pub arity: Option<usize>,
    /// Names and kinds of the attributes, in order.
    pub attrs: &'static [(&'static str, AttrKind)],
    /// See [`OpClass`].
    pub class: OpClass,
    /// Result type from operand types.
    pub infer: fn(&[&TensorType], &Attrs) -> Result<TensorType, TypeError>,
    /// Reference semantics: slow, obvious, and the oracle of every other implementation.
    pub eval: fn(&[&Array], &Attrs, &TensorType) -> Array,
}

macro_rules! ops {
    ($($op:ident $name:literal $arity:tt $class:ident [$($attr:ident : $kind:ident),*] $infer:expr, $eval:expr;)+) => {
        /// A graph operator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "described by the table row")]
        pub enum Op { $($op),+ }

        impl Op {
            /// All operators, in table order.
            pub const ALL: &[Op] = &[$(Op::$op),+];

            /// The operator's table row.
            pub fn spec(self) -> &'static OpSpec {
                match self {
                    $(Op::$op => &OpSpec {
                        name: $name,
                        arity: ops!(@arity $arity),
                        attrs: &[$((stringify!($attr), AttrKind::$kind)),*],
                        class: OpClass::$class,
                        infer: $infer,
                        eval: $eval,
                    }),+
                }
            }
        }
    };
    (@arity n) => { None };
    (@arity $arity:literal) => { Some($arity) };
}

#[rustfmt::skip] // One operator per row.
ops! {
    // Op         name           arity class    attributes                     result type        reference semantics
    Neg           "neg"          1     Map      []                             infer::same,       |a, _, t| eval::map(a, t, |x| -x, |x| -x);
    Abs           "abs"          1     Map      []                             infer::same,       |a, _, t| eval::map(a, t, f64::abs, i128::abs);
    Sign          "sign"         1     Map      []                             infer::same,       |a, _, t| eval::map(a, t, eval::sign, i128::signum);
    Relu          "relu"         1     Map      []                             infer::same,       |a, _, t| eval::map(a, t, |x| if x < 0.0 { 0.0 } else { x }, |x| x.max(0)); // NaN stays NaN.
    Exp           "exp"          1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, f64::exp);
    Log           "log"          1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, f64::ln);
    Sqrt          "sqrt"         1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, f64::sqrt);
    Rsqrt         "rsqrt"        1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, |x| 1.0 / x.sqrt());
    Recip         "recip"        1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, |x| 1.0 / x);
    Erf           "erf"          1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, eval::erf);
    Tanh          "tanh"         1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, f64::tanh);
    Sigmoid       "sigmoid"      1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, |x| 1.0 / (1.0 + (-x).exp()));
    Sin           "sin"          1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, f64::sin);
    Cos           "cos"          1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, f64::cos);
    Floor         "floor"        1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, f64::floor);
    Ceil          "ceil"         1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, f64::ceil);
    Round         "round"        1     Map      []                             infer::float,      |a, _, t| eval::map_float(a, t, f64::round_ties_even);
    Not           "not"          1     Map      []                             infer::boolean,    |a, _, t| eval::map(a, t, |x| x, |x| i128::from(x == 0));
    IsNan         "isnan"        1     Map      []                             infer::predicate,  |a, _, t| eval::test(a, t, f64::is_nan);
    Cast          "cast"         1     Map      [to: DType]                    infer::cast,       eval::cast; // Float to integer truncates and saturates (4 and 2 bits: wraps), NaN gives 0.
    Add           "add"          2     Map      []                             infer::broadcast,  |a, _, t| eval::zip(a, t, |x, y| x + y, i128::wrapping_add);
    Sub           "sub"          2     Map      []                             infer::broadcast,  |a, _, t| eval::zip(a, t, |x, y| x - y, i128::wrapping_sub);
    Mul           "mul"          2     Map      []                             infer::broadcast,  |a, _, t| eval::zip(a, t, |x, y| x * y, i128::wrapping_mul);
    Div           "div"          2     Map      []                             infer::broadcast,  |a, _, t| eval::zip(a, t, |x, y| x / y, eval::int_div); // Integers truncate; x / 0 is 0.
    Mod           "mod"          2     Map      []                             infer::broadcast,  |a, _, t| eval::zip(a, t, eval::float_mod, eval::int_mod); // Sign of the divisor; x mod 0 is 0.
    Fmod          "fmod"         2     Map      []                             infer::broadcast,  |a, _, t| eval::zip(a, t, |x, y| x % y, eval::int_rem); // Sign of the dividend; x mod 0 is 0.
    Pow           "pow"          2     Map      []                             infer::power,      eval::pow;
    Min           "min"          2     Map      []                             infer::broadcast,  |a, _, t| eval::zip(a, t, eval::min_nan, i128::min); // NaN if either is.
    Max           "max"          2     Map      []                             infer::broadcast,  |a, _, t| eval::zip(a, t, eval::max_nan, i128::max); // NaN if either is.
    And           "and"          2     Map      []                             infer::bitwise,    |a, _, t| eval::zip(a, t, |x, _| x, |x, y| x & y); // Booleans and integers.
    Or            "or"           2     Map      []                             infer::bitwise,    |a, _, t| eval::zip(a, t, |x, _| x, |x, y| x | y);
    Xor           "xor"          2     Map      []                             infer::bitwise,    |a, _, t| eval::zip(a, t, |x, _| x, |x, y| x ^ y);
    Eq            "eq"           2     Map      []                             infer::compare,    |a, _, t| eval::compare(a, t, |x, y| x == y, |x, y| x == y);
    Lt            "lt"           2     Map      []                             infer::compare,    |a, _, t| eval::compare(a, t, |x, y| x < y, |x, y| x < y);
    Le            "le"           2     Map      []                             infer::compare,    |a, _, t| eval::compare(a, t, |x, y| x <= y, |x, y| x <= y);
    Select        "select"       3     Map      []                             infer::select,     eval::select; // (condition, if true, if false)
    Reshape       "reshape"      1     Move     [shape: Ints]                  infer::reshape,    eval::reshape;
    Transpose     "transpose"    1     Move     [perm: Ints]                   infer::transpose,  eval::transpose; // Output axis i is operand axis perm[i].
    Expand        "expand"       1     Move     [shape: Ints]                  infer::expand,     eval::expand; // Operand has the same rank; its extents are 1 or equal.
    Slice         "slice"        1     Move     [starts: Ints, extents: Ints, steps: Ints]  infer::slice,   eval::slice; // All axes; a step may be negative.
    Pad           "pad"          1     Move     [before: Ints, after: Ints, mode: Word, value: Float]  infer::pad,  eval::pad; // All axes, none negative; mode constant, edge, reflect or wrap.
    Concat        "concat"       n     Move     [axis: Int]                    infer::concat,     eval::concat;
    Gather        "gather"       2     Move     [axis: Int]                    infer::gather,     eval::gather; // (data, indices): a negative index counts from the end, out of range clamps.
    Resize        "resize"       1     Move     [shape: Ints, mode: Word, transform: Word, rounding: Word, cubic: Float, scales: Ints]  infer::resize,  eval::resize; // scales: bits of the f32 per axis; mode nearest, linear or cubic.
    Iota          "iota"         0     Generate [shape: Ints, axis: Int, dtype: DType]  infer::iota,      eval::iota; // The index along `axis`.
    ReduceSum     "reduce_sum"   1     Reduce   [axes: Ints]                   infer::reduce,     |a, at, t| eval::reduce(a, at, t, 0.0, |x, y| x + y, 0, i128::wrapping_add); // Keeps the axes with extent 1.
    ReduceProd    "reduce_prod"  1     Reduce   [axes: Ints]                   infer::reduce,     |a, at, t| eval::reduce(a, at, t, 1.0, |x, y| x * y, 1, i128::wrapping_mul);
    ReduceMax     "reduce_max"   1     Reduce   [axes: Ints]                   infer::reduce,     |a, at, t| eval::reduce(a, at, t, f64::NEG_INFINITY, eval::max_nan, i128::MIN, i128::max);
    ReduceMin     "reduce_min"   1     Reduce   [axes: Ints]                   infer::reduce,     |a, at, t| eval::reduce(a, at, t, f64::INFINITY, eval::min_nan, i128::MAX, i128::min);
    ArgMax        "argmax"       1     Reduce   [axis: Int, last: Int]         infer::arg,        |a, at, t| eval::arg(a, at, t, Ordering::Greater); // i64, keeps the axis; last=1: the last of equals.
    ArgMin        "argmin"       1     Reduce   [axis: Int, last: Int]         infer::arg,        |a, at, t| eval::arg(a, at, t, Ordering::Less);
    MaxPool       "max_pool"     1     Window   [kernel: Ints, strides: Ints, before: Ints, after: Ints, dilations: Ints]  infer::window,  eval::max_pool; // [N,C,spatial...]; padding is -inf.
    SumPool       "sum_pool"     1     Window   [kernel: Ints, strides: Ints, before: Ints, after: Ints, dilations: Ints]  infer::window,  eval::sum_pool; // Padding is 0.
    Matmul        "matmul"       2     Contract []                             infer::matmul,     eval::matmul; // [...,M,K] x [...,K,N], batch axes broadcast; both ranks at least 2.
    Conv          "conv"         2     Contract [strides: Ints, before: Ints, after: Ints, dilations: Ints, groups: Int]  infer::conv,  eval::conv; // x[N,C,spatial...], w[M,C/groups,kernel...]; no bias.
    ConvTranspose "conv_transpose" 2   Contract [strides: Ints, before: Ints, after: Ints, dilations: Ints, groups: Int, output_padding: Ints]  infer::conv_transpose,  eval::conv_transpose; // x[N,C,spatial...], w[C,M/groups,kernel...]; no bias.
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec().name)
    }
}

impl FromStr for Op {
    type Err = UnknownOp;

    fn from_str(name: &str) -> Result<Self, UnknownOp> {
        let found = Op::ALL.iter().find(|op| op.spec().name == name);
        found.copied().ok_or_else(|| UnknownOp(name.to_owned()))
    }
}

/// No row of the table has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown operator `{0}`")]
pub struct UnknownOp(pub String);
