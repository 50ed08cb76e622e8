//! Symbolic index arithmetic: affine forms over atoms, with division and remainder by constants.
//!
//! An [`Index`] is `base + Σ coefficient · atom`; an atom is a thread, block or loop index, or a floor
//! division, remainder, clamp or absolute value that does not simplify. Every form knows a range that
//! holds wherever it is used. Reshapes, head splits and implicit GEMMs are built from these maps, and
//! most divisions vanish here, before any code exists: `(64·h + d) / 64` is `h` if `0 ≤ d < 64`.

pub mod moves;

use std::collections::BTreeMap;

use crate::kir::Val;

/// An atom of a [`Space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Atom(u32);

/// `base + Σ coefficient · atom`, between `lo` and `hi` (both inclusive) wherever it is used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Index {
    /// The constant part.
    pub base: i64,
    /// Atoms in order, with non-zero coefficients.
    pub terms: Vec<(Atom, i64)>,
    /// Least value.
    pub lo: i64,
    /// Greatest value.
    pub hi: i64,
}

/// What an atom stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AtomKind {
    /// A thread, block or loop index (or, in an analysis, any unknown), told apart by a number.
    Leaf(u32),
    /// Floor division.
    Div(Index, i64),
    /// Remainder of the floor division.
    Rem(Index, i64),
    /// The nearest number of the range.
    Clamp(Index, i64, i64),
    /// Absolute value.
    Abs(Index),
}

#[derive(Clone, Debug)]
struct AtomData {
    kind: AtomKind,
    lo: i64,
    hi: i64,
    /// Number of loops around the innermost leaf; block indices 0, thread indices 1.
    depth: u32,
    val: Option<Val>,
    /// Leaves that the value may depend on.
    leaves: Vec<Atom>,
}

/// The atoms of one kernel or of one analysis.
#[derive(Clone, Debug, Default)]
pub struct Space {
    atoms: Vec<AtomData>,
    interned: BTreeMap<AtomKind, Atom>,
}

impl Index {
    /// A constant.
    pub fn constant(c: i64) -> Self {
        Self { base: c, terms: Vec::new(), lo: c, hi: c }
    }

    /// Its value, if it is the same everywhere.
    pub fn as_constant(&self) -> Option<i64> {
        if self.lo == self.hi { Some(self.lo) } else { None }
    }

    /// The same form, known to lie in `lo..=hi`.
    pub fn within(&self, lo: i64, hi: i64) -> Self {
        let (lo, hi) = (self.lo.max(lo), self.hi.min(hi));
        if lo == hi {
            return Self::constant(lo);
        }
        // An empty range means unreachable code; any range will do, as long as it is a range.
        if lo > hi { self.clone() } else { Self { lo, hi, ..self.clone() } }
    }

    /// Whether base and coefficients are multiples of `n`.
    pub fn is_multiple_of(&self, n: i64) -> bool {
        self.base % n == 0 && self.terms.iter().all(|(_, c)| c % n == 0)
    }
}

impl Space {
    /// A new leaf in `lo..=hi`. `depth` orders leaves from outer to inner; `val` is its run-time value.
    pub fn leaf(&mut self, val: Option<Val>, lo: i64, hi: i64, depth: u32) -> Index {
        self.leaf_depending(val, lo, hi, depth, &[])
    }

    /// A leaf whose value depends on those of other forms, such as an index that was loaded.
    pub fn leaf_depending(
        &mut self,
        val: Option<Val>,
        lo: i64,
        hi: i64,
        depth: u32,
        on: &[Index],
    ) -> Index {
        let atom = Atom(self.atoms.len() as u32);
        let mut leaves = vec![atom];
        for index in on {
            leaves.extend(self.leaves(index));
        }
        leaves.sort_unstable();
        leaves.dedup();
        let depth = leaves
            .iter()
            .filter(|&&a| a != atom)
            .map(|&a| self.data(a).depth)
            .fold(depth, u32::max);
        self.atoms.push(AtomData { kind: AtomKind::Leaf(atom.0), lo, hi, depth, val, leaves });
        if lo == hi {
            return Index::constant(lo);
        }
        Index { base: 0, terms: vec![(atom, 1)], lo, hi }
    }

    /// A leaf that is certainly an atom, even if its range is one number: for lanes and loop counters.
    pub fn fresh(&mut self, val: Option<Val>, lo: i64, hi: i64, depth: u32) -> (Atom, Index) {
        let atom = Atom(self.atoms.len() as u32);
        let index = self.leaf(val, lo, hi, depth);
        (atom, index)
    }

    fn data(&self, atom: Atom) -> &AtomData {
        &self.atoms[atom.0 as usize]
    }

    /// What an atom stands for.
    pub fn kind(&self, atom: Atom) -> &AtomKind {
        &self.data(atom).kind
    }

    /// The run-time value of a leaf.
    pub fn val(&self, atom: Atom) -> Option<Val> {
        self.data(atom).val
    }

    /// Depth of the innermost leaf of an atom.
    pub fn depth(&self, atom: Atom) -> u32 {
        self.data(atom).depth
    }

    /// The leaves that a form may depend on.
    pub fn leaves(&self, index: &Index) -> Vec<Atom> {
        let mut leaves: Vec<Atom> =
            index.terms.iter().flat_map(|(a, _)| self.data(*a).leaves.iter().copied()).collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// Number of iterations of an unknown leaf that stands for a loop (as [`moves::loop_leaves`] makes them).
    pub fn loop_extent(&self, leaf: Atom) -> Option<u64> {
        let data = self.data(leaf);
        (data.depth == moves::LOOP_DEPTH && data.val.is_none() && data.leaves.len() == 1)
            .then(|| (data.hi + 1) as u64)
    }

    /// Range of an atom, both ends inclusive.
    pub fn range_of(&self, atom: Atom) -> (i64, i64) {
        let data = self.data(atom);
        (data.lo, data.hi)
    }

    /// Whether the form's value may depend on a leaf.
    pub fn depends_on(&self, index: &Index, leaf: Atom) -> bool {
        index.terms.iter().any(|(a, _)| self.data(*a).leaves.binary_search(&leaf).is_ok())
    }

    /// The coefficient of a leaf, if the form is linear in it.
    pub fn coefficient(&self, index: &Index, leaf: Atom) -> Option<i64> {
        let mut coefficient = 0;
        for &(atom, c) in &index.terms {
            if atom == leaf {
                coefficient = c;
            } else if self.data(atom).leaves.binary_search(&leaf).is_ok() {
                return None;
            }
        }
        Some(coefficient)
    }

    fn make(&mut self, base: i64, mut terms: Vec<(Atom, i64)>, lo: i64, hi: i64) -> Index {
        terms.retain(|(_, c)| *c != 0);
        let (mut least, mut most) = (base, base);
        for &(atom, c) in &terms {
            let data = self.data(atom);
            let (x, y) = (c.saturating_mul(data.lo), c.saturating_mul(data.hi));
            least = least.saturating_add(x.min(y));
            most = most.saturating_add(x.max(y));
        }
        let index = Index { base, terms, lo: least, hi: most }.within(lo, hi);
        if let Some(c) = index.as_constant() {
            return Index::constant(c);
        }
        self.recombined(index)
    }

    /// Replaces `c·n·⌊x/n⌋ + c·(x mod n)` by `c·x`, as often as it occurs.
    fn recombined(&mut self, index: Index) -> Index {
        for at in 0..index.terms.len() {
            let (atom, c) = index.terms[at];
            let AtomKind::Rem(x, n) = self.data(atom).kind.clone() else { continue };
            let quotient = self.div(&x, n);
            let has = |(q, k): &(Atom, i64)| index.terms.contains(&(*q, c * n * k));
            if quotient.terms.is_empty() || !quotient.terms.iter().all(has) {
                continue;
            }
            let mut rest = index.terms.clone();
            rest.remove(at);
            rest.retain(|(q, _)| !quotient.terms.iter().any(|(p, _)| p == q));
            let base = index.base - c * n * quotient.base;
            let rest = self.make(base, rest, i64::MIN, i64::MAX);
            let x = self.scale(&x, c);
            let sum = self.add(&rest, &x);
            return sum.within(index.lo, index.hi);
        }
        index
    }

    /// The range that follows from the ranges of the atoms, whatever was promised of the form.
    pub fn interval(&self, index: &Index) -> (i64, i64) {
        let (mut least, mut most) = (index.base, index.base);
        for &(atom, c) in &index.terms {
            let data = self.data(atom);
            least += (c * data.lo).min(c * data.hi);
            most += (c * data.lo).max(c * data.hi);
        }
        (least, most)
    }

    /// Sum.
    pub fn add(&mut self, a: &Index, b: &Index) -> Index {
        if b.terms.is_empty() {
            let c = b.base;
            return Index {
                base: a.base + c,
                terms: a.terms.clone(),
                lo: a.lo.saturating_add(c),
                hi: a.hi.saturating_add(c),
            };
        }
        if a.terms.is_empty() {
            return self.add(b, a);
        }
        let mut terms = a.terms.clone();
        for &(atom, c) in &b.terms {
            match terms.binary_search_by_key(&atom, |t| t.0) {
                Ok(at) => terms[at].1 += c,
                Err(at) => terms.insert(at, (atom, c)),
            }
        }
        self.make(a.base + b.base, terms, a.lo.saturating_add(b.lo), a.hi.saturating_add(b.hi))
    }

    /// Sum with a constant.
    pub fn add_constant(&mut self, a: &Index, c: i64) -> Index {
        self.add(a, &Index::constant(c))
    }

    /// Product with a constant.
    pub fn scale(&mut self, a: &Index, k: i64) -> Index {
        if k == 0 {
            return Index::constant(0);
        }
        let (x, y) = (a.lo.saturating_mul(k), a.hi.saturating_mul(k));
        let terms = a.terms.iter().map(|(atom, c)| (*atom, c * k)).collect();
        Index { base: a.base * k, terms, lo: x.min(y), hi: x.max(y) }
    }

    /// `Σ indices · strides`.
    pub fn dot(&mut self, indices: &[Index], strides: &[usize]) -> Index {
        let mut sum = Index::constant(0);
        for (index, &stride) in indices.iter().zip(strides) {
            let term = self.scale(index, stride as i64);
            sum = self.add(&sum, &term);
        }
        sum
    }

    /// Row-major position of an index.
    pub fn linear(&mut self, indices: &[Index], extents: &[usize]) -> Index {
        self.dot(indices, &eggine_ir::shape::row_major_strides(extents))
    }

    /// The index at a row-major position.
    pub fn delinear(&mut self, position: &Index, extents: &[usize]) -> Vec<Index> {
        let mut rest = position.clone();
        let mut indices = vec![Index::constant(0); extents.len()];
        for axis in (0..extents.len()).rev() {
            let extent = extents[axis] as i64;
            if extents[..axis].iter().all(|&e| e == 1) {
                indices[axis] = rest.within(0, extent - 1);
                break;
            }
            indices[axis] = self.rem(&rest, extent);
            rest = self.div(&rest, extent);
        }
        indices
    }

    fn intern(&mut self, kind: AtomKind, inner: &Index, lo: i64, hi: i64) -> Index {
        if lo == hi {
            return Index::constant(lo);
        }
        let atom = match self.interned.get(&kind) {
            Some(&atom) => atom,
            None => {
                let depth = inner.terms.iter().map(|(a, _)| self.data(*a).depth).max().unwrap_or(0);
                let leaves = self.leaves(inner);
                let atom = Atom(self.atoms.len() as u32);
                self.atoms.push(AtomData { kind: kind.clone(), lo, hi, depth, val: None, leaves });
                self.interned.insert(kind, atom);
                atom
            }
        };
        Index { base: 0, terms: vec![(atom, 1)], lo, hi }
    }

    /// Splits `e` into `q` and `r` with `e = n·q + r`: the multiples of `n`, and the rest.
    fn split(&mut self, e: &Index, n: i64) -> (Index, Index) {
        let (multiples, rest): (Vec<_>, Vec<_>) = e.terms.iter().partition(|(_, c)| c % n == 0);
        let multiples = multiples.into_iter().map(|(a, c)| (a, c / n)).collect();
        let q = self.make(e.base.div_euclid(n), multiples, i64::MIN, i64::MAX);
        let mut r = self.make(e.base.rem_euclid(n), rest, i64::MIN, i64::MAX);
        if q.terms.is_empty() {
            r = r.within(e.lo - n * q.base, e.hi - n * q.base);
        }
        (q, r)
    }

    /// For `r = g·x + s` with `0 ≤ s < g`, where `g` divides `n`: `(g, x, s)`.
    fn factor(&mut self, r: &Index, n: i64) -> Option<(i64, Index, Index)> {
        let mut candidates: Vec<i64> =
            r.terms.iter().map(|(_, c)| gcd(c.abs(), n)).filter(|g| *g > 1).collect();
        candidates.sort_unstable();
        candidates.dedup();
        for &g in candidates.iter().rev() {
            let (x, s) = self.split(r, g);
            if s.lo >= 0 && s.hi < g {
                let x = if s.terms.is_empty() && s.base == 0 {
                    x.within(r.lo.div_euclid(g), r.hi.div_euclid(g))
                } else {
                    x
                };
                let x = x.within(r.lo.div_euclid(g), r.hi.div_euclid(g));
                return Some((g, x, s));
            }
        }
        None
    }

    /// `⌊e / n⌋` for a positive `n`.
    pub fn div(&mut self, e: &Index, n: i64) -> Index {
        assert!(n > 0, "divisor {n}");
        let (lo, hi) = (e.lo.div_euclid(n), e.hi.div_euclid(n));
        if n == 1 {
            return e.clone();
        }
        if lo == hi {
            return Index::constant(lo);
        }
        let (q, r) = self.split(e, n);
        if r.lo.div_euclid(n) == r.hi.div_euclid(n) {
            let c = r.lo.div_euclid(n);
            return self.add_constant(&q, c).within(lo, hi);
        }
        if !(q.terms.is_empty() && q.base == 0) {
            let r = self.div(&r, n);
            return self.add(&q, &r).within(lo, hi);
        }
        if let Some((g, x, _)) = self.factor(&r, n) {
            return self.div(&x, n / g).within(lo, hi);
        }
        if let ([(atom, 1)], 0) = (r.terms.as_slice(), r.base)
            && let AtomKind::Div(x, m) = self.data(*atom).kind.clone()
        {
            return self.div(&x, m * n).within(lo, hi);
        }
        self.intern(AtomKind::Div(r.clone(), n), &r, r.lo.div_euclid(n), r.hi.div_euclid(n))
            .within(lo, hi)
    }

    /// `e − n·⌊e / n⌋` for a positive `n`.
    pub fn rem(&mut self, e: &Index, n: i64) -> Index {
        assert!(n > 0, "divisor {n}");
        if n == 1 {
            return Index::constant(0);
        }
        if e.lo.div_euclid(n) == e.hi.div_euclid(n) {
            return self.add_constant(e, -n * e.lo.div_euclid(n));
        }
        let (_, r) = self.split(e, n);
        if r.lo.div_euclid(n) == r.hi.div_euclid(n) {
            return self.add_constant(&r, -n * r.lo.div_euclid(n));
        }
        if let Some((g, x, s)) = self.factor(&r, n) {
            let x = self.rem(&x, n / g);
            let x = self.scale(&x, g);
            return self.add(&x, &s).within(0, n - 1);
        }
        if let ([(atom, 1)], 0) = (r.terms.as_slice(), r.base)
            && let AtomKind::Rem(x, m) = self.data(*atom).kind.clone()
            && m % n == 0
        {
            return self.rem(&x, n);
        }
        self.intern(AtomKind::Rem(r.clone(), n), &r, 0, n - 1)
    }

    /// The nearest number in `lo..=hi`.
    pub fn clamp(&mut self, e: &Index, lo: i64, hi: i64) -> Index {
        if e.lo >= lo && e.hi <= hi {
            return e.clone();
        }
        if e.hi <= lo {
            return Index::constant(lo);
        }
        if e.lo >= hi {
            return Index::constant(hi);
        }
        self.intern(AtomKind::Clamp(e.clone(), lo, hi), e, e.lo.max(lo), e.hi.min(hi))
    }

    /// Absolute value.
    pub fn abs(&mut self, e: &Index) -> Index {
        if e.lo >= 0 {
            return e.clone();
        }
        if e.hi <= 0 {
            return self.scale(e, -1);
        }
        self.intern(AtomKind::Abs(e.clone()), e, 0, e.hi.max(-e.lo))
    }

    /// The form with a leaf replaced.
    pub fn substitute(&mut self, e: &Index, leaf: Atom, with: &Index) -> Index {
        self.substitute_all(e, &[(leaf, with.clone())])
    }

    /// The form with leaves replaced.
    pub fn substitute_all(&mut self, e: &Index, with: &[(Atom, Index)]) -> Index {
        let touched = |space: &Self, atom: Atom| {
            with.iter().any(|(leaf, _)| space.data(atom).leaves.binary_search(leaf).is_ok())
        };
        if !e.terms.iter().any(|(atom, _)| touched(self, *atom)) {
            return e.clone();
        }
        let mut sum = Index::constant(e.base);
        for &(atom, c) in &e.terms {
            let inner = if !touched(self, atom) {
                let data = self.data(atom);
                Index { base: 0, terms: vec![(atom, 1)], lo: data.lo, hi: data.hi }
            } else {
                match self.data(atom).kind.clone() {
                    AtomKind::Leaf(_) => match with.iter().find(|(leaf, _)| *leaf == atom) {
                        Some((_, index)) => index.clone(),
                        None => {
                            // A loaded index that depends on the leaf: it cannot be replaced symbolically.
                            let data = self.data(atom);
                            Index { base: 0, terms: vec![(atom, 1)], lo: data.lo, hi: data.hi }
                        }
                    },
                    AtomKind::Div(x, n) => {
                        let x = self.substitute_all(&x, with);
                        self.div(&x, n)
                    }
                    AtomKind::Rem(x, n) => {
                        let x = self.substitute_all(&x, with);
                        self.rem(&x, n)
                    }
                    AtomKind::Clamp(x, lo, hi) => {
                        let x = self.substitute_all(&x, with);
                        self.clamp(&x, lo, hi)
                    }
                    AtomKind::Abs(x) => {
                        let x = self.substitute_all(&x, with);
                        self.abs(&x)
                    }
                }
            };
            let term = self.scale(&inner, c);
            sum = self.add(&sum, &term);
        }
        sum.within(e.lo, e.hi)
    }
}

/// Greatest common divisor; of 0 and `b` it is `b`.
pub fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    fn eval(space: &Space, index: &Index, at: &dyn Fn(Atom) -> i64) -> i64 {
        let atom = |atom: Atom| match space.kind(atom) {
            AtomKind::Leaf(_) => at(atom),
            AtomKind::Div(x, n) => eval(space, x, at).div_euclid(*n),
            AtomKind::Rem(x, n) => eval(space, x, at).rem_euclid(*n),
            AtomKind::Clamp(x, lo, hi) => eval(space, x, at).clamp(*lo, *hi),
            AtomKind::Abs(x) => eval(space, x, at).abs(),
        };
        index.base + index.terms.iter().map(|(a, c)| c * atom(*a)).sum::<i64>()
    }

    #[test]
    fn a_head_split_has_no_division() {
        let mut space = Space::default();
        let (_, h) = space.fresh(None, 0, 11, 0);
        let (_, d) = space.fresh(None, 0, 63, 0);
        let scaled = space.scale(&h, 64);
        let e = space.add(&scaled, &d);
        assert_eq!(space.div(&e, 64), h);
        assert_eq!(space.rem(&e, 64), d);
    }

    #[test]
    fn splitting_and_joining_gives_the_position_back() {
        let mut space = Space::default();
        let (_, position) = space.fresh(None, 0, 2 * 64 * 112 * 112 - 1, 0);
        for extents in [vec![2, 64, 112, 112], vec![1, 128, 12544], vec![7, 2, 8, 8, 2, 7, 256]] {
            let split = space.delinear(&position, &extents);
            assert_eq!(space.linear(&split, &extents), position, "{extents:?}");
        }
    }

    #[test]
    fn lanes_survive_division_by_multiples_of_their_number() {
        let mut space = Space::default();
        let (_, group) = space.fresh(None, 0, 999, 0);
        let (lane, l) = space.fresh(None, 0, 3, 0);
        let scaled = space.scale(&group, 4);
        let e = space.add(&scaled, &l);
        let column = space.rem(&e, 112);
        assert_eq!(space.coefficient(&column, lane), Some(1));
        let row = space.div(&e, 112);
        assert!(!space.depends_on(&row, lane));
    }

    #[test]
    fn a_tile_inside_a_channel_count_splits() {
        let mut space = Space::default();
        let (_, tile) = space.fresh(None, 0, 35, 0);
        let (_, k) = space.fresh(None, 0, 15, 0);
        let scaled = space.scale(&tile, 16);
        let e = space.add(&scaled, &k);
        let tap = space.div(&e, 64);
        assert_eq!(tap, space.div(&tile, 4));
    }

    proptest::proptest! {
        /// Every simplification keeps the value, and the range that is claimed holds.
        #[test]
        fn simplification_keeps_values(
            n1 in 1i64..12, n2 in 1i64..12, n3 in 1i64..40, a in -6i64..40, b in -5i64..40, c in -20i64..20,
            x in 0i64..30, y in 0i64..4, z in 0i64..17,
        ) {
            let mut space = Space::default();
            let (ax, ix) = space.fresh(None, 0, 29, 0);
            let (ay, iy) = space.fresh(None, 0, 3, 0);
            let (az, iz) = space.fresh(None, 0, 16, 0);
            let at = move |atom: Atom| if atom == ax { x } else if atom == ay { y } else { assert_eq!(atom, az); z };
            let t = space.scale(&ix, a);
            let u = space.scale(&iy, b);
            let e = space.add(&t, &u);
            let e = space.add(&e, &iz);
            let e = space.add_constant(&e, c);
            let want_e = a * x + b * y + z + c;
            let check = |space: &Space, index: &Index, want: i64| {
                assert_eq!(eval(space, index, &at), want, "{index:?}");
                assert!(index.lo <= want && want <= index.hi, "{want} not in {index:?}");
            };
            let d = space.div(&e, n1);
            check(&space, &d, want_e.div_euclid(n1));
            let m = space.rem(&e, n1 * n2);
            check(&space, &m, want_e.rem_euclid(n1 * n2));
            let dm = space.div(&m, n2);
            check(&space, &dm, want_e.rem_euclid(n1 * n2).div_euclid(n2));
            let dd = space.div(&d, n3);
            check(&space, &dd, want_e.div_euclid(n1).div_euclid(n3));
            let back = space.scale(&d, n1);
            let r = space.rem(&e, n1);
            let back = space.add(&back, &r);
            check(&space, &back, want_e);
            let clamped = space.clamp(&e, 3, 50);
            check(&space, &clamped, want_e.clamp(3, 50));
            let absolute = space.abs(&e);
            check(&space, &absolute, want_e.abs());
            let replaced = space.substitute(&m, ax, &Index::constant(x));
            check(&space, &replaced, want_e.rem_euclid(n1 * n2));
        }
    }
}
