//! Division of non-negative integers by constants as a multiplication.
//!
//! For `0 ≤ x ≤ max < 2³¹` and a divisor `d`, `⌊x / d⌋ = ⌊x·m / 2ᵏ⌋` with `m = ⌈2ᵏ / d⌉` whenever
//! `(m·d − 2ᵏ)·max < 2ᵏ`: then `x·m / 2ᵏ` exceeds `x / d` by less than `1 / d`. (Granlund and
//! Montgomery, Division by Invariant Integers using Multiplication, PLDI 1994, theorem 4.2.)

/// `⌊x / d⌋ = (x·multiplier >> 32) >> shift`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Magic {
    pub(super) multiplier: u32,
    pub(super) shift: u32,
}

/// The multiplication for a divisor of at least 2 and dividends up to `max < 2³¹`.
pub(super) fn magic(divisor: u32, max: u32) -> Magic {
    let (divisor, max) = (u128::from(divisor), u128::from(max));
    for shift in 0..32 {
        let power = 1u128 << (32 + shift);
        let multiplier = power.div_ceil(divisor);
        let excess = multiplier * divisor - power;
        if let Ok(multiplier) = u32::try_from(multiplier)
            && excess * max < power
        {
            return Magic { multiplier, shift };
        }
    }
    unreachable!("shift = ⌊log2 divisor⌋ suffices for 31-bit dividends")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divide(x: u32, magic: Magic) -> u32 {
        ((u64::from(x) * u64::from(magic.multiplier)) >> 32) as u32 >> magic.shift
    }

    #[test]
    fn every_small_dividend_and_divisor_is_right() {
        for divisor in 2..300 {
            for max in [divisor, 1000, 70_000] {
                let magic = magic(divisor, max);
                assert!((0..=max).all(|x| divide(x, magic) == x / divisor), "{divisor} {max}");
            }
        }
    }

    #[test]
    fn multiples_and_their_neighbours_are_right_up_to_the_largest() {
        let max = i32::MAX as u32;
        let divisors = (2..5000).chain((0..5000).map(|i| 2 + i * 429_496 + i % 7)).chain([
            max,
            max - 1,
            1 << 30,
        ]);
        for divisor in divisors {
            let magic = magic(divisor, max);
            let largest = max / divisor;
            // The quotient steps at multiples: it is right everywhere if it is at each step's both sides.
            let quotients =
                (0..50).map(|i| i * (largest / 50)).chain(largest.saturating_sub(50)..=largest);
            for multiple in quotients.map(|q| q * divisor) {
                for x in [multiple.saturating_sub(1), multiple, multiple.saturating_add(1).min(max)]
                {
                    assert_eq!(divide(x, magic), x / divisor, "{x} / {divisor}");
                }
            }
            assert_eq!(divide(max, magic), max / divisor);
        }
    }

    #[test]
    fn a_wrong_multiplier_is_found() {
        let right = magic(7, i32::MAX as u32);
        let wrong = Magic { multiplier: right.multiplier - 1, ..right };
        assert!((0..1000).any(|x| divide(x, wrong) != x / 7));
    }
}
