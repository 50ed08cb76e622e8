//! A second of fuzzing of everything that reads what is not ours: the entry functions of `fuzz/`, on the
//! committed corpus and on inputs made from it. The same seed, the same inputs: what fails, fails again.
//! `cargo run -p eggine-tests --example fuzz -- TARGET SECONDS SEED` goes on for longer.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[allow(unreachable_pub, dead_code, reason = "public in the crate that it is of")]
#[path = "../../fuzz/src/entries.rs"]
mod entries;

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use eggine_tests::alloc::{Counting, count};
use eggine_tests::fuzz::{Outcomes, Random, kind_of, mutate, seeds};

#[global_allocator]
static ALLOC: Counting = Counting;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs an entry on one input, with its memory bounded and a limit that only a hang reaches.
fn bounded(name: &str, entry: entries::Entry, input: &[u8]) -> String {
    let (sender, receiver) = mpsc::channel();
    let owned = input.to_vec();
    let thread = std::thread::spawn(move || {
        let counted = count(|| entry(&owned));
        let _ = sender.send(());
        counted
    });
    // A panic closes the channel at once.
    if let Err(mpsc::RecvTimeoutError::Timeout) = receiver.recv_timeout(Duration::from_secs(60)) {
        panic!("`{name}` hangs on {:?}", String::from_utf8_lossy(input));
    }
    let Ok((outcome, counted)) = thread.join() else {
        panic!("`{name}` panics on {:?}", String::from_utf8_lossy(input));
    };
    let bound = entries::bound_bytes(input.len());
    assert!(counted.peak_bytes <= bound, "`{name}`: {counted:?} for {} bytes", input.len());
    outcome
}

/// All of the corpus, and then inputs made from it.
fn smoke(name: &str, n_inputs: usize) {
    let (_, entry) = entries::ENTRIES.iter().find(|(it, _)| *it == name).unwrap();
    let mut pool = seeds(&root(), name).unwrap();
    assert!(pool.len() >= 3, "{} inputs for `{name}`", pool.len());
    let (mut random, mut outcomes) = (Random::new(7), Outcomes::default());
    for input in &pool {
        outcomes.is_new(&bounded(name, *entry, input));
    }
    for _ in 0..n_inputs {
        let input = mutate(&mut random, &pool, 1 << 16);
        if outcomes.is_new(&bounded(name, *entry, &input)) {
            pool.push(input);
        }
    }
    assert!(outcomes.n_kinds() > 5, "{} kinds of outcomes: it gets nowhere", outcomes.n_kinds());
}

#[test]
fn onnx_import() {
    smoke("import", 1_500);
}

#[test]
fn graph_text() {
    smoke("gir", 6_000);
}

#[test]
fn kernel_text() {
    smoke("kir", 6_000);
}

#[test]
fn ptx_text() {
    smoke("ptx", 2_000);
}

#[test]
fn engine_files() {
    smoke("engine", 1_500);
}

#[test]
fn program_files() {
    smoke("program", 300);
}

#[test]
fn case_files() {
    smoke("case", 3_000);
}

#[test]
fn rule_files() {
    smoke("rules", 300);
}

#[test]
fn exports_of_evidence() {
    smoke("evidence", 300);
}

/// What the corpus has of valid inputs is valid: a format that changes must not leave a corpus behind that
/// is refused at the first byte.
#[test]
fn the_corpus_reaches_what_is_behind_the_first_check() {
    let valid = [
        ("import", "imported"),
        ("gir", "a graph"),
        ("kir", "a kernel"),
        ("ptx", "a module"),
        ("engine", "an engine"),
        ("program", "a program"),
        ("case", "a case"),
        ("rules", "rules"),
        ("evidence", "evidence"),
    ];
    for (name, entry) in entries::ENTRIES {
        let (_, outcome) = valid.iter().find(|(it, _)| it == name).expect("each target is here");
        let pool = seeds(&root(), name).unwrap();
        let valid = pool.iter().filter(|input| entry(input).starts_with(outcome)).count();
        assert!(valid >= 2, "{valid} of {} inputs of `{name}` are valid", pool.len());
    }
}

#[test]
fn the_harness_can_fail() {
    let panics: entries::Entry = |data| panic!("{}", data.len());
    assert!(std::panic::catch_unwind(|| bounded("panics", panics, b"x")).is_err());
    let greedy: entries::Entry = |_| {
        let large = vec![1u8; (640 << 20) + 4096];
        format!("{}", large[large.len() / 2])
    };
    assert!(std::panic::catch_unwind(|| bounded("greedy", greedy, b"x")).is_err());
    let pool = vec![b"relu v0 {axes=[1]}".to_vec()];
    let made = |seed| -> Vec<Vec<u8>> {
        let mut random = Random::new(seed);
        (0..50).map(|_| mutate(&mut random, &pool, 99)).collect()
    };
    assert_eq!(made(1), made(1), "the same seed, the same inputs");
    assert_ne!(made(1), made(2));
    assert_eq!(kind_of("node `a` has 12 inputs"), kind_of("node `b` has 7 inputs"));
}
