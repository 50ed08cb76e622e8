//! A deterministic mutator and its loop: the same seed makes the same inputs. It is what `cargo test` uses;
//! libFuzzer, which sees coverage, is in `fuzz/`.
//!
//! An input whose outcome is new (another error, but for names and numbers) joins the pool that later
//! inputs are made from.

use std::collections::BTreeSet;
use std::path::Path;

/// Pseudo-random numbers, the same on every machine (xorshift64*, Vigna 2016).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next_u64() >> 11) as usize % n }
    }
}

/// Numbers where limits are.
const EDGES: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "127",
    "128",
    "255",
    "256",
    "65535",
    "65536",
    "1048577",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "1e308",
    "-0.0",
    "nan",
    "inf",
    "1e999",
];

/// Up to four changes to an input, with parts of the others.
pub fn mutate(random: &mut Random, pool: &[Vec<u8>], max_bytes: usize) -> Vec<u8> {
    let mut bytes = pool[random.below(pool.len())].clone();
    for _ in 0..=random.below(4) {
        change(random, pool, &mut bytes);
    }
    bytes.truncate(max_bytes);
    bytes
}

fn change(random: &mut Random, pool: &[Vec<u8>], bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        bytes.push(random.next_u64() as u8);
        return;
    }
    let at = random.below(bytes.len());
    let n = 1 + random.below((bytes.len() - at).min(64));
    match random.below(10) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'0', b'-', b'{', b'}', b' '][random.below(10)],
        2 => bytes[at] = random.next_u64() as u8,
        3 => drop(bytes.drain(at..at + n)),
        4 => {
            let copy = bytes[at..at + n].to_vec();
            let to = random.below(bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
        5 | 6 => {
            // A part of another input, at any place.
            let other = &pool[random.below(pool.len())];
            if other.is_empty() {
                return;
            }
            let from = random.below(other.len());
            let part = other[from..from + 1 + random.below((other.len() - from).min(64))].to_vec();
            let end = if random.below(2) == 0 { at } else { at + n };
            bytes.splice(at..end, part);
        }
        7 | 8 => {
            // A number of the text becomes one at a limit.
            let digit = |i: &usize| bytes[*i].is_ascii_digit();
            let Some(start) = (at..bytes.len()).chain(0..at).find(digit) else { return };
            let len = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let edge = EDGES[random.below(EDGES.len())];
            bytes.splice(start..start + len, edge.bytes());
        }
        _ => {
            // A varint or a little-endian number of a limit.
            let value = [0, 1, u64::from(u32::MAX), 1 << 31, 1 << 62, u64::MAX][random.below(6)];
            let mut coded = Vec::new();
            match random.below(3) {
                0 => coded.extend(value.to_le_bytes()),
                1 => coded.extend((value as u32).to_le_bytes()),
                _ => {
                    let mut rest = value;
                    while rest >= 0x80 {
                        coded.push(rest as u8 | 0x80);
                        rest >>= 7;
                    }
                    coded.push(rest as u8);
                }
            }
            let end = (at + coded.len()).min(bytes.len());
            bytes.splice(at..end, coded);
        }
    }
}

/// The committed inputs of a target: `fuzz/corpus/TARGET`, if there is one, and the filetests that have its
/// extension.
///
/// # Errors
///
/// If a folder cannot be read.
pub fn seeds(root: &Path, target: &str) -> std::io::Result<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    let mut folders = vec![root.join("fuzz/corpus").join(target), root.join("tests/filetests")];
    folders.retain(|folder| folder.is_dir());
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir()? {
            let path = entry?.path();
            let is_seed = path.parent().is_some_and(|it| it.ends_with(target))
                || path.extension().is_some_and(|it| it == target);
            match path.is_dir() {
                true => folders.push(path),
                false if is_seed && path.extension().is_none_or(|it| it != "snap") => {
                    files.push(path);
                }
                false => (),
            }
        }
    }
    files.sort();
    files.into_iter().map(std::fs::read).collect()
}

/// The kind of an outcome: the text without what is quoted and without numbers.
pub fn kind_of(message: &str) -> String {
    let mut kind = String::new();
    let mut quoted = false;
    for c in message.chars().take(80) {
        match c {
            '`' => quoted = !quoted,
            _ if quoted || c.is_ascii_digit() => (),
            _ => kind.push(c),
        }
    }
    kind
}

/// Outcomes seen so far.
#[derive(Debug, Default)]
pub struct Outcomes(BTreeSet<String>);

impl Outcomes {
    /// Whether an outcome of this kind is new.
    pub fn is_new(&mut self, message: &str) -> bool {
        self.0.insert(kind_of(message))
    }

    /// Kinds seen.
    pub fn n_kinds(&self) -> usize {
        self.0.len()
    }
}
