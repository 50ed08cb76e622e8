//! Random numbers as a function of a key and a counter: Philox-4x32 with ten rounds (Salmon, Moraes, Dror and
//! Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//!
//! Element `i` of a draw is made of two words of the block whose counter is `i`: no state, no order, so that
//! the same seed gives the same elements whatever the shape.

use std::f64::consts::TAU;

use crate::DType;

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const N_ROUNDS: usize = 10;

/// Four random words of a counter and a key.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..N_ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let [a, b] = [0, 1].map(|i| u64::from(MULTIPLIERS[i]) * u64::from(counter[2 * i]));
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
    }
    counter
}

/// A sequence of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    key: u64,
    /// Streams of one key that differ in this are independent.
    lane: u64,
}

/// FNV-1a of 64 bits.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The iterations of loops in a node's path (`loop/body[3]/noise`): an iteration draws other numbers than the
/// one before. 0 outside of loops.
fn lane_of(path: &str) -> u64 {
    let trips: Vec<&str> =
        path.split("body[").skip(1).filter_map(|rest| rest.split(']').next()).collect();
    if trips.is_empty() { 0 } else { fnv(trips.join(",").bytes()) }
}

impl Stream {
    /// The numbers of a node with a seed.
    pub(super) fn seeded(seed: u64, path: &str) -> Self {
        Self { key: seed, lane: lane_of(path) }
    }

    /// The numbers of a node without a seed: its path decides, so that two nodes draw different numbers and
    /// the same model the same ones.
    pub(super) fn unseeded(path: &str) -> Self {
        Self { key: fnv(path.bytes()), lane: 1 }
    }

    fn words(self, i: u64) -> [u32; 4] {
        let [low, high] = [i as u32, (i >> 32) as u32];
        let lane = [self.lane as u32, (self.lane >> 32) as u32];
        philox([low, high, lane[0], lane[1]], [self.key as u32, (self.key >> 32) as u32])
    }

    /// 53 random bits of each half of a block.
    fn pair(self, i: u64) -> [u64; 2] {
        let words = self.words(i);
        [0, 2].map(|at| (u64::from(words[at]) << 32 | u64::from(words[at + 1])) >> 11)
    }

    /// Element `i`, uniform in `[0, 1)`, with as many bits as `dtype` has in its mantissa: rounding it to the
    /// type changes nothing, and never gives 1.
    pub(super) fn uniform(self, i: u64, dtype: DType) -> f64 {
        let n_bits = match dtype {
            DType::F64 => 53,
            DType::F16 => 11,
            DType::BF16 => 8,
            _ => 24,
        };
        (self.pair(i)[0] >> (53 - n_bits)) as f64 / (1u64 << n_bits) as f64
    }

    /// Element `i`, of the standard normal distribution (Box and Muller 1958).
    pub(super) fn normal(self, i: u64) -> f64 {
        let unit = (1u64 << 53) as f64;
        let [radius, angle] = self.pair(i).map(|bits| bits as f64 / unit);
        // 1 - u is never 0.
        (-2.0 * (1.0 - radius).ln()).sqrt() * (TAU * angle).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers to `philox4x32 10` of the authors' own test vectors (Random123, `kat_vectors`).
    #[test]
    fn known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn draws_are_uniform_and_normal() {
        const N: u64 = 1 << 16;
        let stream = Stream::seeded(7, "");
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let drawn: Vec<f64> = (0..N).map(|i| stream.uniform(i, dtype)).collect();
            assert!(drawn.iter().all(|x| (0.0..1.0).contains(x)));
            let mean = drawn.iter().sum::<f64>() / N as f64;
            // The mean of N draws has a standard deviation of 0.0011.
            assert!((mean - 0.5).abs() < 0.006, "{dtype}: {mean}");
            let mut tenths = [0u64; 10];
            drawn.iter().for_each(|x| tenths[(x * 10.0) as usize] += 1);
            let share = |n: u64| n as f64 / N as f64;
            assert!(tenths.iter().all(|&n| (share(n) - 0.1).abs() < 0.01), "{dtype}: {tenths:?}");
        }
        let drawn: Vec<f64> = (0..N).map(|i| stream.normal(i)).collect();
        let moment = |k: i32| drawn.iter().map(|x| x.powi(k)).sum::<f64>() / N as f64;
        assert!(moment(1).abs() < 0.02 && (moment(2) - 1.0).abs() < 0.03);
        assert!(moment(3).abs() < 0.05 && (moment(4) - 3.0).abs() < 0.2);
        let within = drawn.iter().filter(|x| x.abs() < 1.0).count() as f64 / N as f64;
        assert!((within - 0.6827).abs() < 0.01, "{within}");
    }

    #[test]
    fn seeds_paths_and_iterations_are_streams_of_their_own() {
        let first = |stream: Stream| stream.words(0);
        assert_eq!(first(Stream::seeded(1, "a")), first(Stream::seeded(1, "b")));
        assert_ne!(first(Stream::seeded(1, "a")), first(Stream::seeded(2, "a")));
        assert_ne!(
            first(Stream::seeded(1, "l/body[0]/a")),
            first(Stream::seeded(1, "l/body[1]/a"))
        );
        assert_eq!(first(Stream::unseeded("a")), first(Stream::unseeded("a")));
        assert_ne!(first(Stream::unseeded("a")), first(Stream::unseeded("b")));
    }
}
