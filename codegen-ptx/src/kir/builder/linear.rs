//! Canonical `i32` sums: `Σ cᵢ·xᵢ + c` modulo 2³², terms ordered by (scope, value).
//!
//! Equal index expressions so become one value, parts that a loop does not change come first and are
//! hoisted, constants come last and move into the offset of a load, and divisions by a constant split
//! exactly: `(c·q + r) / c = q` where `0 ≤ r < c`.

use super::{Builder, Part};
use crate::kir::fold::{self, FULL, Range};
use crate::kir::{BinaryOp, Expr, Scalar, UnaryOp, Val};

/// Sums of more terms than this are values of their own.
const MAX_TERMS: usize = 16;

/// A sum modulo 2³². Coefficients are not 0, each value occurs once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Linear {
    pub(super) terms: Vec<(Val, i32)>,
    pub(super) constant: i32,
}

/// How a sum came about: which partial sums exist already.
enum Origin<'a> {
    None,
    Sum(&'a Linear, &'a Linear),
    Difference(&'a Linear, &'a Linear),
    Scaled(&'a Linear, i32),
}

impl Builder {
    pub(super) fn linear(&self, val: Val) -> Linear {
        match &self.info[val].linear {
            Some(linear) => linear.clone(),
            None => match self.as_const(val) {
                Some(bits) => Linear { terms: Vec::new(), constant: fold::as_i32(bits) },
                None => Linear { terms: vec![(val, 1)], constant: 0 },
            },
        }
    }

    /// `a + factor·b`
    fn linear_sum(&self, a: &Linear, b: &Linear, factor: i32) -> Linear {
        let mut terms = a.terms.clone();
        for &(val, coefficient) in &b.terms {
            let coefficient = coefficient.wrapping_mul(factor);
            match terms.iter_mut().find(|term| term.0 == val) {
                Some(term) => term.1 = term.1.wrapping_add(coefficient),
                None => terms.push((val, coefficient)),
            }
        }
        terms.retain(|term| term.1 != 0);
        terms.sort_by_key(|&(val, _)| (self.info[val].depth, val));
        Linear { terms, constant: a.constant.wrapping_add(b.constant.wrapping_mul(factor)) }
    }

    /// Replaces `c·m·(x / c) + m·(x % c)` by `m·x`.
    fn recombine(&self, mut sum: Linear) -> Linear {
        'again: loop {
            for &(rem_val, factor) in &sum.terms {
                let Some(rem @ Part { remainder: true, .. }) = self.info[rem_val].part else {
                    continue;
                };
                for &(div_val, coefficient) in &sum.terms {
                    let Some(div @ Part { remainder: false, .. }) = self.info[div_val].part else {
                        continue;
                    };
                    if div.of == rem.of
                        && div.divisor == rem.divisor
                        && coefficient == factor.wrapping_mul(rem.divisor)
                    {
                        let mut rest = sum.clone();
                        rest.terms.retain(|term| term.0 != rem_val && term.0 != div_val);
                        sum = self.linear_sum(&rest, &self.linear(rem.of), factor);
                        continue 'again;
                    }
                }
            }
            return sum;
        }
    }

    /// Bounds of the sum over the integers (not modulo 2³²).
    fn integer_range(&self, sum: &Linear) -> (i128, i128) {
        let constant = i128::from(sum.constant);
        sum.terms.iter().fold((constant, constant), |(lo, hi), &(val, coefficient)| {
            let (a, b) = self.range(val);
            let (a, b) =
                (i128::from(a) * i128::from(coefficient), i128::from(b) * i128::from(coefficient));
            (lo + a.min(b), hi + a.max(b))
        })
    }

    /// Bounds of the sum, if it cannot wrap.
    fn exact_range(&self, sum: &Linear) -> Option<Range> {
        let (lo, hi) = self.integer_range(sum);
        (lo >= i128::from(FULL.0) && hi <= i128::from(FULL.1)).then_some((lo as i64, hi as i64))
    }

    /// The value of a sum.
    fn sum(&mut self, sum: &Linear, origin: &Origin<'_>) -> Val {
        let mut total: Option<Val> = None;
        let mut start = 0;
        while start < sum.terms.len() {
            let depth = self.info[sum.terms[start].0].depth;
            let n = sum.terms[start..]
                .iter()
                .take_while(|term| self.info[term.0].depth == depth)
                .count();
            let group = self.group(depth, &sum.terms[start..start + n], origin);
            start += n;
            total = Some(match total {
                None => group,
                Some(total) => {
                    let form = Linear { terms: sum.terms[..start].to_vec(), constant: 0 };
                    self.define_sum(Expr::Binary(BinaryOp::Add, total, group), form)
                }
            });
        }
        match total {
            None => self.i32(sum.constant),
            Some(total) if sum.constant == 0 => total,
            Some(total) => {
                let constant = self.i32(sum.constant);
                self.define_sum(Expr::Binary(BinaryOp::Add, total, constant), sum.clone())
            }
        }
    }

    /// The sum of terms of one scope.
    fn group(&mut self, depth: usize, terms: &[(Val, i32)], origin: &Origin<'_>) -> Val {
        if let [(val, 1)] = *terms {
            return val;
        }
        if let Some(&val) = self.scopes[depth].sums.get(terms) {
            return val;
        }
        let form = Linear { terms: terms.to_vec(), constant: 0 };
        let at_depth = |this: &Self, linear: &Linear| -> Vec<(Val, i32)> {
            linear.terms.iter().copied().filter(|term| this.info[term.0].depth == depth).collect()
        };
        let scaled = |terms: &[(Val, i32)], factor: i32| -> Vec<(Val, i32)> {
            terms
                .iter()
                .map(|&(val, coefficient)| (val, coefficient.wrapping_mul(factor)))
                .collect()
        };
        let is_union = |a: &[(Val, i32)], b: &[(Val, i32)]| {
            !a.is_empty()
                && !b.is_empty()
                && a.len() + b.len() == terms.len()
                && terms.iter().all(|term| a.contains(term) || b.contains(term))
        };
        let mut built = None;
        match *origin {
            Origin::Sum(a, b) => {
                let (a, b) = (at_depth(self, a), at_depth(self, b));
                if is_union(&a, &b) {
                    let (a, b) = (
                        self.group(depth, &a, &Origin::None),
                        self.group(depth, &b, &Origin::None),
                    );
                    built = Some(Expr::Binary(BinaryOp::Add, a.min(b), a.max(b)));
                }
            }
            Origin::Difference(a, b) => {
                let (a, b) = (at_depth(self, a), at_depth(self, b));
                if is_union(&a, &scaled(&b, -1)) {
                    let (a, b) = (
                        self.group(depth, &a, &Origin::None),
                        self.group(depth, &b, &Origin::None),
                    );
                    built = Some(Expr::Binary(BinaryOp::Sub, a, b));
                }
            }
            Origin::Scaled(a, factor) => {
                let a = at_depth(self, a);
                if a.len() > 1 && factor != 0 && scaled(&a, factor) == terms {
                    let a = self.group(depth, &a, &Origin::None);
                    built = Some(self.product_expr(a, factor));
                }
            }
            Origin::None => {}
        }
        let val = match built {
            Some(expr) => self.define_sum(expr, form),
            None => self.chain(terms),
        };
        self.scopes[depth].sums.insert(terms.to_vec(), val);
        val
    }

    /// Terms summed in order, starting with one that is not negated if there is one.
    fn chain(&mut self, terms: &[(Val, i32)]) -> Val {
        let first = terms.iter().position(|term| term.1 > 0).unwrap_or(0);
        let order = std::iter::once(first).chain((0..terms.len()).filter(|&i| i != first));
        let mut total: Option<Val> = None;
        let mut form = Linear::default();
        for i in order {
            let (val, coefficient) = terms[i];
            let single = Linear { terms: vec![(val, coefficient)], constant: 0 };
            form = self.linear_sum(&form, &single, 1);
            total = Some(match total {
                None => self.product(val, coefficient),
                Some(total) if coefficient < 0 && coefficient != i32::MIN => {
                    let product = self.product(val, -coefficient);
                    self.define_sum(Expr::Binary(BinaryOp::Sub, total, product), form.clone())
                }
                Some(total) => {
                    let product = self.product(val, coefficient);
                    self.define_sum(Expr::Binary(BinaryOp::Add, total, product), form.clone())
                }
            });
        }
        total.expect("a group has a term")
    }

    fn product_expr(&mut self, val: Val, factor: i32) -> Expr {
        if factor == -1 {
            return Expr::Unary(UnaryOp::Neg, val);
        }
        let factor = self.i32(factor);
        Expr::Binary(BinaryOp::Mul, val, factor)
    }

    fn product(&mut self, val: Val, factor: i32) -> Val {
        if factor == 1 {
            return val;
        }
        let form = Linear { terms: vec![(val, factor)], constant: 0 };
        let expr = self.product_expr(val, factor);
        self.define_sum(expr, form)
    }

    fn define_sum(&mut self, expr: Expr, form: Linear) -> Val {
        let val = self.define(Scalar::I32, expr);
        if let Some(range) = self.exact_range(&form) {
            self.refine(val, range);
        }
        self.info[val].linear = Some(form);
        val
    }

    /// `a + b` or `a - b`
    pub(super) fn i32_sum(&mut self, a: Val, b: Val, subtract: bool) -> Val {
        let op = if subtract { BinaryOp::Sub } else { BinaryOp::Add };
        let range = fold::binary_range(op, self.range(a), self.range(b));
        let (fa, fb) = (self.linear(a), self.linear(b));
        let form = self.recombine(self.linear_sum(&fa, &fb, if subtract { -1 } else { 1 }));
        let val = if form.terms.len() > MAX_TERMS {
            self.define(Scalar::I32, Expr::Binary(op, a, b))
        } else {
            let origin =
                if subtract { Origin::Difference(&fa, &fb) } else { Origin::Sum(&fa, &fb) };
            self.sum(&form, &origin)
        };
        self.refine(val, range);
        val
    }

    /// `a * factor`
    pub(super) fn i32_scale(&mut self, a: Val, factor: i32) -> Val {
        let range = fold::binary_range(
            BinaryOp::Mul,
            self.range(a),
            (i64::from(factor), i64::from(factor)),
        );
        let fa = self.linear(a);
        let form = self.recombine(self.linear_sum(&Linear::default(), &fa, factor));
        let val = self.sum(&form, &Origin::Scaled(&fa, factor));
        self.refine(val, range);
        val
    }

    /// Whether `a op b` is decided by the bounds of `a - b`, in which common terms cancel.
    pub(super) fn difference_range(&self, a: Val, b: Val) -> Option<(i128, i128)> {
        let (fa, fb) = (self.linear(a), self.linear(b));
        self.exact_range(&fa)?;
        self.exact_range(&fb)?;
        let form = self.recombine(self.linear_sum(&fa, &fb, -1));
        // Coefficients of the difference must not have wrapped either.
        let small = |form: &Linear| form.terms.iter().all(|term| term.1.unsigned_abs() < 1 << 30);
        let constants = i64::from(fa.constant) - i64::from(fb.constant);
        (small(&fa) && small(&fb) && constants.unsigned_abs() < 1 << 31)
            .then(|| self.integer_range(&form))
    }

    /// Index and offset of an access to `index + offset`, the index's constant moved to the offset.
    pub(super) fn split_offset(&mut self, index: Val, offset: i32) -> (Val, i32) {
        assert_eq!(self.ty(index), Scalar::I32, "an index is an i32");
        let form = self.linear(index);
        if form.constant == 0 {
            return (index, offset);
        }
        let rest = Linear { terms: form.terms.clone(), constant: 0 };
        let Some(moved) = offset.checked_add(form.constant) else { return (index, offset) };
        if self.exact_range(&form).is_none() || self.exact_range(&rest).is_none() {
            return (index, offset);
        }
        (self.sum(&rest, &Origin::None), moved)
    }

    /// `a / divisor` or `a % divisor` for `a ≥ 0` and `divisor > 0`.
    pub(super) fn i32_divide(&mut self, a: Val, divisor: i32, remainder: bool) -> Val {
        let range = self.range(a);
        let wide = i64::from(divisor);
        if divisor == 1 {
            return if remainder { self.i32(0) } else { a };
        }
        if range.0 / wide == range.1 / wide {
            let quotient = (range.0 / wide) as i32;
            if !remainder {
                return self.i32(quotient);
            }
            let multiple = self.i32(quotient * divisor);
            return self.i32_sum(a, multiple, true);
        }
        let form = self.linear(a);
        if self.exact_range(&form).is_some() {
            if let Some(val) = self.split_multiple(&form, divisor, remainder) {
                return val;
            }
            if let Some(val) = self.divide_common_factor(&form, divisor, remainder) {
                return val;
            }
        }
        match self.info[a].part {
            // (x / c) / d = x / (c·d)
            Some(Part { of, divisor: inner, remainder: false }) if !remainder => {
                if let Some(both) = inner.checked_mul(divisor) {
                    return self.i32_divide(of, both, false);
                }
            }
            // (x % (c·d)) % d = x % d
            Some(Part { of, divisor: inner, remainder: true })
                if remainder && inner % divisor == 0 =>
            {
                return self.i32_divide(of, divisor, true);
            }
            _ => {}
        }
        let operand = if divisor.count_ones() == 1 {
            if remainder { divisor - 1 } else { divisor.trailing_zeros() as i32 }
        } else {
            divisor
        };
        let op = match (divisor.count_ones() == 1, remainder) {
            (true, true) => BinaryOp::And,
            (true, false) => BinaryOp::Shr,
            (false, true) => BinaryOp::Rem,
            (false, false) => BinaryOp::Div,
        };
        let operand = self.i32(operand);
        let val = self.define(Scalar::I32, Expr::Binary(op, a, operand));
        self.info[val].part = Some(Part { of: a, divisor, remainder });
        val
    }

    /// `divisor·q + r` with `r ≥ 0`: the quotient is `q + r / divisor`, the remainder `r % divisor`.
    fn split_multiple(&mut self, form: &Linear, divisor: i32, remainder: bool) -> Option<Val> {
        let (multiples, rest): (Vec<_>, Vec<_>) =
            form.terms.iter().partition(|term| term.1 % divisor == 0);
        let quotient = Linear {
            terms: multiples
                .iter()
                .map(|&(val, coefficient)| (val, coefficient / divisor))
                .collect(),
            constant: form.constant.div_euclid(divisor),
        };
        let rest = Linear { terms: rest, constant: form.constant.rem_euclid(divisor) };
        if quotient.terms.is_empty() && quotient.constant == 0 {
            return None;
        }
        self.exact_range(&quotient)?;
        if self.exact_range(&rest)?.0 < 0 {
            return None;
        }
        let rest = self.sum(&rest, &Origin::None);
        let divided = self.i32_divide(rest, divisor, remainder);
        if remainder {
            return Some(divided);
        }
        let quotient = self.sum(&quotient, &Origin::None);
        Some(self.i32_sum(quotient, divided, false))
    }

    /// `g·f + r` with `0 ≤ r < g`, `divisor = g·d`: quotient `f / d`, remainder `g·(f % d) + r`.
    fn divide_common_factor(
        &mut self,
        form: &Linear,
        divisor: i32,
        remainder: bool,
    ) -> Option<Val> {
        for &(_, coefficient) in &form.terms {
            let factor = gcd(coefficient.unsigned_abs(), divisor.unsigned_abs()) as i32;
            if factor <= 1 {
                continue;
            }
            let (multiples, rest): (Vec<_>, Vec<_>) =
                form.terms.iter().partition(|term| term.1 % factor == 0);
            let multiple = Linear {
                terms: multiples
                    .iter()
                    .map(|&(val, coefficient)| (val, coefficient / factor))
                    .collect(),
                constant: form.constant.div_euclid(factor),
            };
            let rest = Linear { terms: rest, constant: form.constant.rem_euclid(factor) };
            let Some((lo, hi)) = self.exact_range(&rest) else { continue };
            let fits = self.exact_range(&multiple).is_some_and(|range| range.0 >= 0);
            if lo < 0 || hi >= i64::from(factor) || !fits {
                continue;
            }
            let multiple = self.sum(&multiple, &Origin::None);
            let divided = self.i32_divide(multiple, divisor / factor, remainder);
            if !remainder {
                return Some(divided);
            }
            let scaled = self.i32_scale(divided, factor);
            let rest = self.sum(&rest, &Origin::None);
            return Some(self.i32_sum(scaled, rest, false));
        }
        None
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
