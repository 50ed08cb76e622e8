//! Conditions of rules, and the attributes and constants that their right sides need.
//!
//! Each answers `None` where it does not know.

use eggine_ir::graph::Op;
use eggine_ir::graph::eval::fold;
use eggine_ir::{Attr, Attrs};

use crate::literal::Literal;
use crate::rule::{Derived, Scope};

pub(super) type Bindings = Option<Vec<(&'static str, Derived)>>;

/// The condition holds and derives nothing.
fn holds(condition: bool) -> Bindings {
    condition.then(Vec::new)
}

fn one(name: &'static str, attrs: Vec<Attr>) -> Bindings {
    Some(vec![(name, Derived::Attrs(Attrs(attrs)))])
}

fn extents(scope: &dyn Scope, var: &str) -> Option<Vec<usize>> {
    scope.ty(var).map(eggine_ir::TensorType::extents)
}

fn to_ints(extents: impl IntoIterator<Item = usize>) -> Vec<i64> {
    extents.into_iter().map(|n| n as i64).collect()
}

fn uniform(scope: &dyn Scope, var: &str) -> Option<f64> {
    scope.literal(var)?.uniform()
}

// Constants.

/// `r = 1/c` if that is exact: then dividing and multiplying round the same real number.
pub(super) fn reciprocal_of_power_of_two(scope: &dyn Scope) -> Bindings {
    let literal = scope.literal("c")?;
    let c = literal.uniform()?;
    let r = Literal::splat(literal.ty(), 1.0 / c);
    let mantissa_is_one = c.to_bits() << 12 == 0 && c.is_normal();
    // Not in the subnormals of the element type either, where a device may flush.
    let range = match literal.ty().dtype {
        eggine_ir::DType::F64 => 1022,
        eggine_ir::DType::F32 | eggine_ir::DType::BF16 => 126,
        eggine_ir::DType::F16 => 14,
        _ => return None,
    };
    let exact = mantissa_is_one && c.abs().log2().abs() <= f64::from(range);
    exact.then(|| vec![("r", Derived::Literal(r))])
}

/// `r = 1/c`, rounded.
pub(super) fn reciprocal(scope: &dyn Scope) -> Bindings {
    let literal = scope.literal("c")?;
    let r = 1.0 / literal.uniform()?;
    r.is_normal().then(|| vec![("r", Derived::Literal(Literal::splat(literal.ty(), r)))])
}

fn folded(scope: &dyn Scope, op: Op) -> Bindings {
    let (c, d) = (scope.literal("c")?, scope.literal("d")?);
    let r = fold(op, &Attrs::none(), &[&c.to_tensor(), &d.to_tensor()]).ok()?;
    let r = Literal::from_tensor(&r)?;
    r.uniform()?.is_finite().then(|| vec![("r", Derived::Literal(r))])
}

/// `r = c * d`.
pub(super) fn product_of_constants(scope: &dyn Scope) -> Bindings {
    folded(scope, Op::Mul)
}

/// `r = c + d`.
pub(super) fn sum_of_constants(scope: &dyn Scope) -> Bindings {
    folded(scope, Op::Add)
}

/// `c` is positive.
pub(super) fn positive(scope: &dyn Scope) -> Bindings {
    holds(uniform(scope, "c")? > 0.0)
}

/// `x` is not known at compile time.
pub(super) fn x_unknown(scope: &dyn Scope) -> Bindings {
    holds(!scope.known("x"))
}

/// `r` is `c` as a scalar.
pub(super) fn scalar_of_c(scope: &dyn Scope) -> Bindings {
    let c = scope.literal("c")?;
    let scalar = eggine_ir::TensorType::fixed(c.ty().dtype, &[]);
    Some(vec![("r", Derived::Literal(c.with_shape_of(&scalar)?))])
}

/// The condition of a select does not enlarge its result.
pub(super) fn select_keeps_shape(scope: &dyn Scope) -> Bindings {
    holds(crate::rule::broadcasts_to(&extents(scope, "c")?, &extents(scope, "x")?))
}

// Movement.

fn perm(scope: &dyn Scope, var: &str) -> Option<Vec<usize>> {
    scope.attrs(var).map(|attrs| attrs.usizes(0))
}

/// `p` moves nothing.
pub(super) fn identity_perm(scope: &dyn Scope) -> Bindings {
    holds(perm(scope, "p")?.iter().enumerate().all(|(i, &axis)| i == axis))
}

/// `r` is `p` after `q`.
pub(super) fn composed_perm(scope: &dyn Scope) -> Bindings {
    let (p, q) = (perm(scope, "p")?, perm(scope, "q")?);
    one("r", vec![Attr::Ints(to_ints(p.iter().map(|&axis| q[axis])))])
}

/// `p` keeps the order of the axes that have more than one element; `r` is the shape that results.
pub(super) fn perm_of_ones(scope: &dyn Scope) -> Bindings {
    let (p, extents) = (perm(scope, "p")?, extents(scope, "x")?);
    let moved: Vec<usize> = p.iter().copied().filter(|&axis| extents[axis] != 1).collect();
    if !moved.is_sorted() {
        return None;
    }
    one("r", vec![Attr::Ints(to_ints(p.iter().map(|&axis| extents[axis])))])
}

/// `s` is the shape that `x` has.
pub(super) fn same_shape(scope: &dyn Scope) -> Bindings {
    holds(scope.attrs("s")?.usizes(0) == extents(scope, "x")?)
}

/// `expand` of `y` gives the shape of `x`, and so does broadcasting.
pub(super) fn expands_to_x(scope: &dyn Scope) -> Bindings {
    holds(scope.attrs("s")?.usizes(0) == extents(scope, "x")?)
}

/// `w` takes all of `x`.
pub(super) fn whole_slice(scope: &dyn Scope) -> Bindings {
    let (w, extents) = (scope.attrs("w")?, extents(scope, "x")?);
    let whole = w.usizes(1) == extents && w.ints(0).iter().all(|&start| start == 0);
    // A step matters only between two elements.
    holds(whole && w.ints(2).iter().zip(&extents).all(|(&step, &n)| step == 1 || n <= 1))
}

/// `r` is `w` of `v`.
pub(super) fn composed_slice(scope: &dyn Scope) -> Bindings {
    let (w, v) = (scope.attrs("w")?, scope.attrs("v")?);
    let axes = 0..w.ints(0).len();
    let starts = axes.clone().map(|i| v.ints(0)[i] + w.ints(0)[i] * v.ints(2)[i]).collect();
    let steps = axes.map(|i| v.ints(2)[i] * w.ints(2)[i]).collect();
    one("r", vec![Attr::Ints(starts), Attr::Ints(w.ints(1).to_vec()), Attr::Ints(steps)])
}

/// `p` adds nothing.
pub(super) fn no_padding(scope: &dyn Scope) -> Bindings {
    let p = scope.attrs("p")?;
    holds(p.ints(0).iter().chain(p.ints(1)).all(|&n| n == 0))
}

/// Both pad with the same constant; `r` pads by the sum.
pub(super) fn composed_padding(scope: &dyn Scope) -> Bindings {
    let (p, q) = (scope.attrs("p")?, scope.attrs("q")?);
    if p.word(2) != "constant"
        || q.word(2) != "constant"
        || p.float(3).to_bits() != q.float(3).to_bits()
    {
        return None;
    }
    let sum = |i: usize| Attr::Ints(p.ints(i).iter().zip(q.ints(i)).map(|(a, b)| a + b).collect());
    one("r", vec![sum(0), sum(1), p.0[2].clone(), p.0[3].clone()])
}

/// Nothing of extent above 1 is outside the axis `a`.
pub(super) fn outermost_axis(scope: &dyn Scope) -> Bindings {
    let axis = usize::try_from(scope.attrs("a")?.int(0)).ok()?;
    // Parts of elements of 4 and 2 bits may share a byte.
    let whole_bytes = scope.ty("x0")?.dtype.bits() >= 8;
    holds(whole_bytes && extents(scope, "x0")?[..axis].iter().all(|&n| n == 1))
}

/// Where along the axis of a two-part concat the slice starts, if it takes `extent` elements of it
/// and all of the rest in order.
fn part_start(scope: &dyn Scope, part: &str) -> Option<(i64, usize)> {
    let (w, extents) = (scope.attrs("w")?, extents(scope, part)?);
    let axis = usize::try_from(scope.attrs("a")?.int(0)).ok()?;
    let others = (0..extents.len()).all(|i| i == axis || w.ints(0)[i] == 0);
    let whole = w.usizes(1) == extents && w.ints(2).iter().all(|&step| step == 1);
    (others && whole).then(|| (w.ints(0)[axis], axis))
}

/// `w` takes exactly the left part.
pub(super) fn slice_is_left(scope: &dyn Scope) -> Bindings {
    holds(part_start(scope, "x")?.0 == 0)
}

/// `w` takes exactly the right part.
pub(super) fn slice_is_right(scope: &dyn Scope) -> Bindings {
    let (start, axis) = part_start(scope, "y")?;
    holds(start == extents(scope, "x")?[axis] as i64)
}

// Reductions.

/// `r` has the axes of `a` and of `b`.
pub(super) fn united_axes(scope: &dyn Scope) -> Bindings {
    let mut axes: Vec<i64> = [scope.attrs("a")?.ints(0), scope.attrs("b")?.ints(0)].concat();
    axes.sort_unstable();
    axes.dedup();
    one("r", vec![Attr::Ints(axes)])
}

/// Every axis of `a` has one element.
pub(super) fn axes_of_ones(scope: &dyn Scope) -> Bindings {
    let (axes, extents) = (scope.attrs("a")?.usizes(0), extents(scope, "x")?);
    holds(axes.iter().all(|&axis| extents[axis] == 1))
}

// Contractions.

/// `p` swaps the last two axes and nothing else.
pub(super) fn swaps_last_two(scope: &dyn Scope) -> Bindings {
    let p = perm(scope, "p")?;
    let n = p.len();
    let mut swapped: Vec<usize> = (0..n).collect();
    swapped.swap(n - 1, n - 2);
    holds(p == swapped)
}

/// `c` has at most one extent above 1, that of the channels of a convolution's result; `r` is the
/// shape in which it scales the weight's rows.
pub(super) fn channel_scale(scope: &dyn Scope) -> Bindings {
    let (w, c) = (extents(scope, "w")?, extents(scope, "c")?);
    let behind = w.len() - 2;
    let channels_at = c.len().checked_sub(behind + 1);
    let n_channels = channels_at.map_or(1, |at| c[at]);
    if c.len() > w.len()
        || c.iter().product::<usize>() != n_channels
        || !(n_channels == 1 || n_channels == w[0])
    {
        return None;
    }
    let mut shape = vec![1; w.len()];
    shape[0] = n_channels;
    one("r", vec![Attr::Ints(to_ints(shape))])
}

/// `p` pads spatial axes with zeros; `r` is `a` with that padding.
pub(super) fn padding_of_conv(scope: &dyn Scope) -> Bindings {
    let (a, p) = (scope.attrs("a")?, scope.attrs("p")?);
    let (before, after) = (p.ints(0), p.ints(1));
    let outside = before[..2].iter().chain(&after[..2]).any(|&n| n != 0);
    if outside || p.word(2) != "constant" || p.float(3) != 0.0 {
        return None;
    }
    let mut attrs = a.0.clone();
    let sum = |i: usize, more: &[i64]| {
        Attr::Ints(a.ints(i).iter().zip(&more[2..]).map(|(x, y)| x + y).collect())
    };
    attrs[1] = sum(1, before);
    attrs[2] = sum(2, after);
    one("r", attrs)
}

/// A convolution without extent, stride, padding or groups; `q`, `s` and `r` are the shapes of the
/// weight and the input as matrices, and of the result.
pub(super) fn pointwise_conv(scope: &dyn Scope) -> Bindings {
    let (a, x, w) = (scope.attrs("a")?, extents(scope, "x")?, extents(scope, "w")?);
    let plain = a.ints(0).iter().all(|&stride| stride == 1)
        && a.ints(1).iter().chain(a.ints(2)).all(|&pad| pad == 0)
        && a.int(4) == 1
        && w[2..].iter().all(|&n| n == 1);
    if !plain {
        return None;
    }
    let area: usize = x[2..].iter().product();
    let mut result = x.clone();
    result[1] = w[0];
    let shape = |extents: Vec<usize>| Derived::Attrs(Attrs(vec![Attr::Ints(to_ints(extents))]));
    Some(vec![
        ("q", shape(vec![w[0], w[1]])),
        ("s", shape(vec![x[0], x[1], area])),
        ("r", shape(result)),
    ])
}

// Siblings.

/// Extents of the operands of a list.
fn list(scope: &dyn Scope, name: &str) -> Vec<Vec<usize>> {
    (0..).map_while(|i| extents(scope, &format!("{name}{i}"))).collect()
}

fn axis(axis: usize) -> Bindings {
    one("r", vec![Attr::Int(axis as i64)])
}

/// `r` is that part of the concat which the slice takes exactly.
pub(super) fn slice_is_part(scope: &dyn Scope) -> Bindings {
    let (w, parts) = (scope.attrs("w")?, list(scope, "x"));
    let along = usize::try_from(scope.attrs("a")?.int(0)).ok()?;
    let mut start = 0;
    for (i, part) in parts.iter().enumerate() {
        let at = |axis: usize| if axis == along { start as i64 } else { 0 };
        let starts = w.ints(0).iter().enumerate().all(|(axis, &found)| found == at(axis));
        if starts && w.usizes(1) == *part && w.ints(2).iter().all(|&step| step == 1) {
            return Some(vec![("r", Derived::Same(format!("x{i}")))]);
        }
        start += part.get(along)?;
    }
    None
}

/// The concat is along the columns of the products; `r` is the axis of the columns of the weights.
pub(super) fn joined_columns(scope: &dyn Scope) -> Bindings {
    let along = usize::try_from(scope.attrs("a")?.int(0)).ok()?;
    if along + 1 != extents(scope, "x")?.len() {
        return None;
    }
    axis(1)
}

/// The concat is along the channels of convolutions without groups; `r` is the axis of the weights'
/// output channels.
pub(super) fn joined_channels(scope: &dyn Scope) -> Bindings {
    if scope.attrs("a")?.int(0) != 1 || scope.attrs("c")?.int(4) != 1 {
        return None;
    }
    axis(0)
}

/// Each `b` has the extent of its `x` along the axis `a`, and all broadcast alike; `r` is that axis
/// of theirs.
pub(super) fn joined_operands(scope: &dyn Scope) -> Bindings {
    let (xs, bs) = (list(scope, "x"), list(scope, "b"));
    let along = usize::try_from(scope.attrs("a")?.int(0)).ok()?;
    let at = along.checked_sub(xs.first()?.len().checked_sub(bs.first()?.len())?)?;
    let rest = |extents: &[usize]| -> Vec<usize> {
        extents.iter().enumerate().filter(|&(axis, _)| axis != at).map(|(_, &n)| n).collect()
    };
    let alike = xs.iter().zip(&bs).all(|(x, b)| {
        b.len() == bs[0].len()
            && b.get(at) == x.get(along)
            && rest(b) == rest(&bs[0])
            && crate::rule::broadcasts_to(b, x)
    });
    if alike { axis(at) } else { None }
}

/// Into how many parts a sum is cut at most.
const MOST_PARTS: usize = 16;

/// The sum of the product has a divisor: the largest one up to [`MOST_PARTS`] is the number of parts.
/// `q` and `p` are the shape and the order of axes that cut `a`, `t` is the shape that cuts `b`; `z`
/// is the axis of the parts, and `r` the shape of the product.
pub(super) fn split_sum(scope: &dyn Scope) -> Bindings {
    let (a, b) = (extents(scope, "a")?, extents(scope, "b")?);
    let (m, k, n) = (a[0], a[1], b[1]);
    let parts = (2..=MOST_PARTS).rev().find(|parts| k >= *parts && k.is_multiple_of(*parts))?;
    let ints = |xs: &[usize]| Derived::Attrs(Attrs(vec![Attr::Ints(to_ints(xs.iter().copied()))]));
    Some(vec![
        ("q", ints(&[m, parts, k / parts])),
        ("p", ints(&[1, 0, 2])),
        ("t", ints(&[parts, k / parts, n])),
        ("z", ints(&[0])),
        ("r", ints(&[m, n])),
    ])
}
