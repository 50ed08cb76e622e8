//! Where the positions of an axis are in a padded one.

/// A part of an axis: `n` positions of which there may be `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    /// How many there are at this shape.
    pub n: usize,
    /// How many there are at the largest.
    pub most: usize,
    /// Whether it may differ from shape to shape.
    pub varies: bool,
}

/// An axis as a mixed radix, most significant part first; no parts: one position.
///
/// Position `(i₀·n₁ + i₁)·n₂ + …` is at place `(i₀·m₁ + i₁)·m₂ + …`. Only the first part may be fixed:
/// a fixed one behind another is merged with it, because their product keeps the order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axis(Vec<Factor>);

impl Axis {
    /// Positions `0..n`, of which there are as many at every shape.
    pub fn fixed(n: usize) -> Self {
        Self::of(Factor { n, most: n, varies: false })
    }

    /// An axis of one part.
    pub fn of(factor: Factor) -> Self {
        let mut axis = Self::default();
        axis.push(factor);
        axis
    }

    /// Adds a less significant part.
    pub fn push(&mut self, factor: Factor) {
        match self.0.last_mut() {
            _ if factor.most == 1 && !factor.varies => {}
            Some(last) if !factor.varies => {
                last.n *= factor.n;
                last.most *= factor.most;
            }
            _ => self.0.push(factor),
        }
    }

    /// The parts.
    pub fn factors(&self) -> &[Factor] {
        &self.0
    }

    /// Number of positions.
    pub fn n(&self) -> usize {
        self.0.iter().map(|factor| factor.n).product()
    }

    /// Number of places.
    pub fn most(&self) -> usize {
        self.0.iter().map(|factor| factor.most).product()
    }

    /// Whether there are as many positions at every shape.
    pub fn is_fixed(&self) -> bool {
        self.0.iter().all(|factor| !factor.varies)
    }

    /// Whether each position is at the place of the same number.
    pub fn is_prefix(&self) -> bool {
        self.0.len() <= 1
    }

    /// The place of a position.
    pub fn place(&self, position: usize) -> usize {
        let (mut rest, mut place, mut stride) = (position, 0, 1);
        for factor in self.0.iter().rev() {
            place += rest % factor.n * stride;
            rest /= factor.n;
            stride *= factor.most;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_two_parts_are_where_the_padded_radix_says() {
        let varies = |n, most| Factor { n, most, varies: true };
        let mut axis = Axis::of(varies(2, 4));
        axis.push(varies(3, 8));
        axis.push(Factor { n: 5, most: 5, varies: false });
        assert_eq!((axis.n(), axis.most()), (30, 160));
        assert!(!axis.is_prefix() && !axis.is_fixed());
        let expected = |at: usize| at / 15 * 40 + at % 15;
        assert!((0..30).all(|at| axis.place(at) == expected(at)));
        let one = Axis::of(varies(3, 9));
        assert!(one.is_prefix() && (0..3).all(|at| one.place(at) == at));
    }
}
