//! Running errors of elementwise operators and of interpolation.

use std::borrow::Cow;

use eggine_ir::graph::eval::{Array, Data, Rounding, eval_op};
use eggine_ir::{Attrs, Op, TensorType};

use super::{Bounded, arithmetic_roundoff, float_array, stored};

/// A function that is monotone where it is continuous. `own(x, v)` is its error on an exact operand.
pub(super) fn monotone(
    op: Op,
    attrs: &Attrs,
    operand: &Bounded,
    array: &Array,
    ty: &TensorType,
    own: impl Fn(f64, f64) -> f64,
) -> Option<Vec<f64>> {
    let (xs, vs) = (operand.floats(), array.to_f64());
    let mut error: Vec<f64> = xs.iter().zip(&vs).map(|(&x, &v)| own(x, v)).collect();
    let Some(operand_error) = &operand.error else { return keep(error) };
    let at = |sign: f64| {
        let moved: Vec<f64> = xs.iter().zip(operand_error).map(|(x, e)| x + sign * e).collect();
        let moved = match operand.array.data {
            Data::Float(_) => float_array(&operand.array.extents, moved),
            // Truncation is right: the errors of integers are whole or infinite.
            Data::Int(_) => Array {
                data: Data::Int(moved.iter().map(|&x| x as i64).collect()),
                ..operand.array.clone()
            },
        };
        // A cast's own rounding is not the effect of the operand's error; but where it is as coarse as of
        // floats of 8 and fewer bits, either neighbour may be the nearest.
        let float = ty.dtype.is_float() && (op != Op::Cast || ty.dtype.bits() > 8);
        let ty = if float { &super::f64_of(ty) } else { ty };
        let attrs = if op == Op::Cast && float { &cast_to_f64() } else { attrs };
        eval_op(op, attrs, &[&moved], ty, Rounding::None).to_f64()
    };
    let (low, high) = (at(-1.0), at(1.0));
    for (i, e) in error.iter_mut().enumerate() {
        let pole = matches!(op, Op::Recip | Op::Rsqrt) && xs[i].abs() <= operand_error[i];
        *e += if operand_error[i] == 0.0 {
            0.0
        } else if pole || operand_error[i] == f64::INFINITY {
            f64::INFINITY
        } else if vs[i].is_nan() {
            if low[i].is_nan() && high[i].is_nan() { 0.0 } else { f64::INFINITY }
        } else {
            // An infinity that both ends share is certain.
            let change = |end: f64| if end == vs[i] { 0.0 } else { (end - vs[i]).abs() };
            // `max` would drop a NaN.
            let (down, up) = (change(low[i]), change(high[i]));
            if down.is_nan() || up.is_nan() { f64::INFINITY } else { down.max(up) }
        };
    }
    keep(error)
}

fn cast_to_f64() -> Attrs {
    Attrs(vec![eggine_ir::Attr::DType(eggine_ir::DType::F64)])
}

fn keep(error: Vec<f64>) -> Option<Vec<f64>> {
    Some(error)
}

/// A function whose slope is at most 1.
pub(super) fn lipschitz(
    operand: &Bounded,
    array: &Array,
    own: impl Fn(f64, f64) -> f64,
) -> Option<Vec<f64>> {
    let (xs, vs) = (operand.floats(), array.to_f64());
    let mut error: Vec<f64> = xs.iter().zip(&vs).map(|(&x, &v)| own(x, v)).collect();
    if let Some(operand_error) = &operand.error {
        error.iter_mut().zip(operand_error).for_each(|(e, operand)| *e += operand);
    }
    keep(error)
}

/// An operand's elements and errors at the extents of the result.
struct Wide<'a> {
    values: Cow<'a, [f64]>,
    errors: Option<Cow<'a, [f64]>>,
}

impl<'a> Wide<'a> {
    fn new(operand: &'a Bounded, extents: &[usize]) -> Self {
        let errors = operand
            .error
            .as_deref()
            .map(|error| broadcast(Cow::Borrowed(error), &operand.array.extents, extents));
        Self { values: broadcast(operand.floats(), &operand.array.extents, extents), errors }
    }

    fn error(&self, i: usize) -> f64 {
        self.errors.as_ref().map_or(0.0, |errors| errors[i])
    }
}

fn broadcast<'a>(data: Cow<'a, [f64]>, from: &[usize], to: &[usize]) -> Cow<'a, [f64]> {
    if from == to {
        return data;
    }
    let n_elems: usize = to.iter().product();
    if data.len() == 1 {
        return Cow::Owned(vec![data[0]; n_elems]);
    }
    // Strides of the operand along the result's axes: 0 where it is repeated.
    let mut strides = vec![0usize; to.len()];
    let mut stride = 1;
    for (axis, &extent) in from.iter().enumerate().rev() {
        let axis = axis + to.len() - from.len();
        strides[axis] = if extent == 1 { 0 } else { stride };
        stride *= extent;
    }
    let mut out = Vec::with_capacity(n_elems);
    let mut index = vec![0usize; to.len()];
    let mut at = 0;
    for _ in 0..n_elems {
        out.push(data[at]);
        for axis in (0..to.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < to[axis] {
                break;
            }
            at -= strides[axis] * to[axis];
            index[axis] = 0;
        }
    }
    Cow::Owned(out)
}

/// Binary arithmetic.
pub(super) fn arithmetic(op: Op, a: &Bounded, b: &Bounded, array: &Array) -> Option<Vec<f64>> {
    let float = array.dtype.is_float();
    let exact = a.error.is_none() && b.error.is_none();
    if exact && (!float || matches!(op, Op::Min | Op::Max)) {
        return None;
    }
    let (a, b) = (Wide::new(a, &array.extents), Wide::new(b, &array.extents));
    let vs = array.to_f64();
    let u = arithmetic_roundoff(array.dtype);
    let mut error = Vec::with_capacity(vs.len());
    for (i, &v) in vs.iter().enumerate() {
        let (x, y, ex, ey) = (a.values[i], b.values[i], a.error(i), b.error(i));
        if !float {
            error.push(if ex == 0.0 && ey == 0.0 { 0.0 } else { f64::INFINITY });
            continue;
        }
        let operands =
            if ex == 0.0 && ey == 0.0 { 0.0 } else { carried(op, [x, y], [ex, ey], v, u) };
        if !v.is_finite() {
            error.push(special(op, [x, y], [ex, ey], operands));
            continue;
        }
        let own = match op {
            Op::Min | Op::Max => 0.0,
            // exp2(y·log₂ x), or products for small whole exponents.
            Op::Pow => {
                (8.0 + 4.0 * (y * x.abs().max(f64::MIN_POSITIVE).ln()).abs()) * u * v.abs()
                    + stored(array.dtype, v)
            }
            // x − y·floor(x/y), with a rounded quotient.
            Op::Mod | Op::Fmod => {
                let quotient = x / y;
                let near = (quotient - quotient.round()).abs() <= 4.0 * u * quotient.abs();
                let wraps = if near && quotient.fract() != 0.0 { y.abs() } else { 0.0 };
                // The sum that gives the rest the divisor's sign is rounded once.
                4.0 * u * x.abs() + 2.0 * u * v.abs() + stored(array.dtype, v) + wraps
            }
            // Adding or multiplying zero or one is exact in every implementation.
            Op::Add | Op::Sub if x == 0.0 || y == 0.0 => 0.0,
            Op::Mul if x == 0.0 || y == 0.0 || x.abs() == 1.0 || y.abs() == 1.0 => 0.0,
            Op::Div if x == 0.0 || y.abs() == 1.0 => 0.0,
            _ => 2.0 * u * v.abs() + stored(array.dtype, v),
        };
        error.push(operands + own);
    }
    keep(error)
}

/// The error of a finite result that the operands' errors cause.
fn carried(op: Op, [x, y]: [f64; 2], [ex, ey]: [f64; 2], v: f64, u: f64) -> f64 {
    match op {
        Op::Add | Op::Sub => ex + ey,
        Op::Mul => {
            let term =
                |factor: f64, error: f64| if error == 0.0 { 0.0 } else { factor.abs() * error };
            term(x, ey) + term(y, ex) + term(ex, ey)
        }
        Op::Div if y.abs() <= ey => f64::INFINITY,
        Op::Div => (ex + v.abs() * ey) / (y.abs() - ey),
        Op::Min | Op::Max => ex.max(ey),
        Op::Pow if x <= ex => f64::INFINITY,
        // d(xʸ) = xʸ (y dx/x + ln x dy), at the worst end.
        Op::Pow => {
            let worst = v.abs()
                * ((y.abs() * ex / (x - ex)) + x.ln().abs().max((x - ex).ln().abs()) * ey).exp_m1();
            worst.abs()
        }
        Op::Mod | Op::Fmod => {
            if y.abs() <= ey {
                return f64::INFINITY;
            }
            let quotient = x / y;
            let by = (ex + quotient.abs() * ey) / (y.abs() - ey) + 4.0 * u * quotient.abs();
            let wraps = (quotient - quotient.round()).abs() <= by;
            ex + quotient.abs() * ey + if wraps { y.abs() + ey } else { 0.0 }
        }
        _ => unreachable!("`{op}` is no arithmetic"),
    }
}

/// The error of a result that is NaN or infinite: 0 if it is so whatever the operands' errors are.
fn special(op: Op, operands: [f64; 2], errors: [f64; 2], carried: f64) -> f64 {
    if errors == [0.0, 0.0] {
        return 0.0;
    }
    let certain = |i: usize| errors[i] == 0.0;
    // NaN stays NaN; an infinity stays one when something finite is added, or compared with it.
    let nan = (0..2).any(|i| operands[i].is_nan() && certain(i));
    let infinite = |i: usize| operands[i].is_infinite() && certain(i);
    let finite = |i: usize| operands[i].is_finite() && errors[i].is_finite();
    let sum = matches!(op, Op::Add | Op::Sub | Op::Min | Op::Max)
        && (infinite(0) && (finite(1) || infinite(1)) || infinite(1) && finite(0));
    let signed = |i: usize| finite(i) && operands[i].abs() > errors[i];
    let product = op == Op::Mul && (infinite(0) && signed(1) || infinite(1) && signed(0));
    if nan || sum || product || carried == 0.0 { 0.0 } else { f64::INFINITY }
}

/// Bits of integers and booleans.
pub(super) fn bitwise(a: &Bounded, b: &Bounded, array: &Array) -> Option<Vec<f64>> {
    if a.error.is_none() && b.error.is_none() {
        return None;
    }
    let (a, b) = (Wide::new(a, &array.extents), Wide::new(b, &array.extents));
    let n_elems = array.n_elems();
    keep(
        (0..n_elems)
            .map(|i| if a.error(i) == 0.0 && b.error(i) == 0.0 { 0.0 } else { f64::INFINITY })
            .collect(),
    )
}

/// Comparisons: either answer is right where the operands may be in either order.
pub(super) fn comparison(a: &Bounded, b: &Bounded, array: &Array) -> Option<Vec<f64>> {
    if a.error.is_none() && b.error.is_none() {
        return None;
    }
    let (a, b) = (Wide::new(a, &array.extents), Wide::new(b, &array.extents));
    let open = |i: usize| {
        let by = a.error(i) + b.error(i);
        let apart = (a.values[i] - b.values[i]).abs();
        // Infinite or NaN operands without an error compare as they are.
        by > 0.0 && (apart <= by || !by.is_finite())
    };
    keep((0..array.n_elems()).map(|i| if open(i) { f64::INFINITY } else { 0.0 }).collect())
}

/// `select`: both branches where the condition is open.
pub(super) fn select(
    condition: &Bounded,
    a: &Bounded,
    b: &Bounded,
    array: &Array,
) -> Option<Vec<f64>> {
    if condition.error.is_none() && a.error.is_none() && b.error.is_none() {
        return None;
    }
    let extents = &array.extents;
    let (c, a, b) = (Wide::new(condition, extents), Wide::new(a, extents), Wide::new(b, extents));
    let error = (0..array.n_elems()).map(|i| {
        if c.error(i) > 0.0 {
            let apart =
                if a.values[i] == b.values[i] { 0.0 } else { (a.values[i] - b.values[i]).abs() };
            apart + a.error(i).max(b.error(i))
        } else if c.values[i] != 0.0 {
            a.error(i)
        } else {
            b.error(i)
        }
    });
    keep(error.collect())
}

/// Interpolation: exact for `nearest`; otherwise weights and coordinates are rounded too, which
/// counts by the largest element.
pub(super) fn resize(attrs: &Attrs, operand: &Bounded, array: &Array) -> Option<Vec<f64>> {
    let nearest = attrs.word(1) == "nearest";
    if nearest && operand.error.is_none() {
        return None;
    }
    let most = |data: &[f64]| {
        data.iter()
            .fold(0f64, |most, x| if x.is_finite() { most.max(x.abs()) } else { f64::INFINITY })
    };
    let carried = operand.error.as_deref().map_or(0.0, most);
    if nearest {
        return keep(vec![carried; array.n_elems()]);
    }
    // A coordinate below 2ⁿ has an error of a few u·2ⁿ, which moves weights by as much; the absolute
    // weights of a cubic sum to at most 2 per axis.
    let coordinate = operand.array.extents.iter().copied().max().unwrap_or(1) as f64;
    let u = arithmetic_roundoff(array.dtype);
    let weights = if attrs.word(1) == "cubic" { 4.0 } else { 1.0 };
    let own = 8.0 * u * (coordinate + 4.0) * most(&operand.floats());
    let vs = array.to_f64();
    keep(vs.iter().map(|&v| weights * (carried + own) + stored(array.dtype, v)).collect())
}
