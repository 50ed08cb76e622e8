//! `kill -9` at random moments of small searches: the evidence opens each time, no row is torn and none is
//! lost, and the engines are those of an undisturbed replay.
//!
//! `EGGINE_KILLS` is the number of kills; `cargo xtask kill9` makes it a thousand, on forty files of evidence.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use eggine::Engine;
use eggine::search::evidence::{Evidence, EvidenceError, Record};

use super::{command, example, path, succeeds};

/// Kills if nothing else is asked for: a few, so that all tests together stay short.
const N_KILLS: u32 = 12;

/// Kills of searches that use one file: the more it holds, the less is left for a search to measure.
const N_KILLS_OF_FILE: u32 = 25;

/// Small numbers that differ from seed to seed (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    /// Between 0 and 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64
    }
}

/// A search for a few measurements. Progress goes to standard error as JSON lines.
pub(super) fn search(evidence: &Path, engine: &Path, seed: u32, extra: &[&str]) -> Command {
    let (model, case) = (example("dit_transformer.onnx"), example("dit_transformer.case0.npz"));
    let mut command = search_of(&model, 6, evidence, engine, seed, extra);
    command.args(["--shapes-from", path(&case)]);
    command
}

/// A search that takes less than a second: one that is killed a thousand times.
fn short_search(evidence: &Path, engine: &Path, seed: u32, extra: &[&str]) -> Command {
    search_of(&example("adapter.onnx"), 24, evidence, engine, seed, extra)
}

fn search_of(
    model: &Path,
    budget: u32,
    evidence: &Path,
    engine: &Path,
    seed: u32,
    extra: &[&str],
) -> Command {
    let (budget, seed) = (budget.to_string(), seed.to_string());
    let mut command = command();
    command.args(["compile", path(model), "--json", "--budget", &budget, "--seed", &seed]);
    command.args(["--threads", "1", "--device-threads", "1"]);
    command.args(["-o", path(engine), "--evidence", path(evidence)]).args(extra);
    command
}

/// Addresses of all measurements of a file.
fn measurements(evidence: &Evidence) -> Result<BTreeSet<String>, EvidenceError> {
    let mut found = BTreeSet::new();
    evidence.for_each_record(|record| {
        if let Record::Measurement(row) = record {
            found.insert(row.content());
        }
        Ok::<_, EvidenceError>(())
    })?;
    Ok(found)
}

/// Opens a file after a kill: what is wrong with it, and the measurements that it holds now. `known` are
/// those that it held before, and `n_new` that many were reported since.
fn problems(
    path: &Path,
    known: &BTreeSet<String>,
    n_new: usize,
) -> (Vec<String>, BTreeSet<String>) {
    let look = || -> Result<(Vec<String>, BTreeSet<String>), EvidenceError> {
        let evidence = Evidence::open_existing(path)?;
        let mut problems = evidence.check()?.faults;
        let now = measurements(&evidence)?;
        problems.extend(known.difference(&now).map(|row| format!("row {row} is lost")));
        if now.len() < known.len() + n_new {
            let (n, before) = (now.len(), known.len());
            problems.push(format!("{n} rows after {n_new} more were reported than {before}"));
        }
        Ok((problems, now))
    };
    look().unwrap_or_else(|err| (vec![err.to_string()], BTreeSet::new()))
}

/// The largest number of measurements that a search's progress reports.
pub(super) fn n_reported(progress: &Path) -> usize {
    let text = std::fs::read_to_string(progress).unwrap();
    let numbers = text.lines().filter_map(|line| {
        // The last line may be cut off by the kill.
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(line["n_measured"].as_u64().unwrap() as usize)
    });
    numbers.max().unwrap_or(0)
}

struct Outcome {
    n_killed: u32,
    n_finished: u32,
    evidence: PathBuf,
}

/// Starts searches and kills them, each after a random part of the time that the last whole one took. A search
/// that was killed goes on in the next round; after one that ends first comes one of another seed.
fn kill_searches(folder: &Path, n_kills: u32, seed_of_kills: u64) -> Outcome {
    let evidence = folder.join("evidence.sqlite");
    let progress = folder.join("progress.jsonl");
    let start = Instant::now();
    let scratch = folder.join("scratch.sqlite");
    succeeds(&short_search(&scratch, &folder.join("scratch.engine"), 0, &[]).output().unwrap());
    let first = start.elapsed();
    let mut whole = first;
    let (mut random, mut known) = (Random(seed_of_kills), BTreeSet::new());
    let (mut n_killed, mut n_finished) = (0, 0);
    while n_killed < n_kills {
        let seed = n_finished;
        let engine = folder.join(format!("{seed}.engine"));
        let begun = evidence.exists();
        let mut child = short_search(&evidence, &engine, seed, &[])
            .stdout(Stdio::null())
            .stderr(File::create(&progress).unwrap())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let deadline = whole.mul_f64(random.unit());
        while start.elapsed() < deadline && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let took = start.elapsed();
        // Without effect on a process that has ended.
        child.kill().unwrap();
        let status = child.wait().unwrap();
        let text = std::fs::read_to_string(&progress).unwrap();
        assert!(status.success() || status.code().is_none(), "killed, or done: {text}");
        if !begun && !evidence.exists() {
            n_killed += 1; // Before the search came to evidence.
            continue;
        }
        let (problems, now) = problems(&evidence, &known, n_reported(&progress));
        assert!(problems.is_empty(), "kill {n_killed}, seed {seed}: {problems:#?}");
        known = now;
        // An engine that is there is whole: it is written beside its place and moved.
        if engine.exists() {
            Engine::open(&engine).unwrap();
        }
        if status.success() {
            n_finished += 1;
            // The next one finds more of what it needs in the evidence.
            whole = took.max(first / 2);
        } else {
            n_killed += 1;
        }
    }
    Outcome { n_killed, n_finished, evidence }
}

#[test]
#[allow(clippy::print_stdout, reason = "a harness says how much it did")]
fn killed_searches_lose_nothing_and_end_as_undisturbed_ones() {
    let n_kills: u32 = std::env::var("EGGINE_KILLS").map_or(N_KILLS, |text| text.parse().unwrap());
    let (mut n_killed, mut n_finished, mut n_compared) = (0, 0, 0);
    while n_killed < n_kills {
        let folder = tempfile::tempdir().unwrap();
        let of_file = N_KILLS_OF_FILE.min(n_kills - n_killed);
        let outcome = kill_searches(folder.path(), of_file, 20_261_130 + u64::from(n_killed));
        n_compared += compare_with_undisturbed(folder.path(), &outcome);
        n_killed += outcome.n_killed;
        n_finished += outcome.n_finished;
        println!(
            "{n_killed} kills, {n_finished} searches that ended in between, no row torn or lost; \
             {n_compared} engines equal to those of undisturbed replays"
        );
    }
}

/// The search that was under way ends undisturbed now; its engine, and those of up to two that ended on
/// the way, are held against replays that nothing disturbs. How many engines that were.
fn compare_with_undisturbed(folder: &Path, outcome: &Outcome) -> usize {
    let Outcome { n_finished: last, evidence, .. } = outcome;
    let engine_of = |seed: u32| folder.join(format!("{seed}.engine"));
    let output = short_search(evidence, &engine_of(*last), *last, &["--quiet"]).output().unwrap();
    succeeds(&output);
    let copy = folder.join("copy.sqlite");
    std::fs::copy(evidence, &copy).unwrap();
    let seeds: Vec<u32> = (0..=*last).rev().take(3).collect();
    for &seed in &seeds {
        let disturbed = std::fs::read(engine_of(seed)).unwrap();
        for extra in [&["--quiet", "--replay"][..], &["--quiet"]] {
            let engine = folder.join("undisturbed.engine");
            let output = short_search(&copy, &engine, seed, extra).output().unwrap();
            let report: serde_json::Value = serde_json::from_str(&succeeds(&output)).unwrap();
            assert_eq!(report["n_measured"], 0, "seed {seed}, {extra:?}: {report}");
            let undisturbed = std::fs::read(&engine).unwrap();
            assert!(disturbed == undisturbed, "seed {seed}, {extra:?}: another engine");
        }
    }
    seeds.len()
}

/// The harness can fail: what a kill must not do is found when it is done on purpose.
#[test]
fn torn_and_lost_rows_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.sqlite");
    let evidence = Evidence::open(&file).unwrap();
    for n in 0..40 {
        evidence.insert(&super::evidence::row("region", &format!("row threads={n}"), n)).unwrap();
    }
    let known = measurements(&evidence).unwrap();
    drop(evidence);
    assert_eq!(problems(&file, &known, 0), (vec![], known.clone()));
    assert!(!problems(&file, &known, 1).0.is_empty(), "a row that was reported is not there");
    let mut more = known.clone();
    more.insert("another".into());
    assert!(problems(&file, &more, 0).0[0].contains("another is lost"));

    let whole = std::fs::read(&file).unwrap();
    let torn = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        problems(&path, &known, 0).0
    };
    // In every copy that pages hold, also in those that are no longer used.
    let samples = b"3001 3002 3003";
    let damaged = |byte: u8| {
        let mut bytes = whole.clone();
        for at in 0..bytes.len() - samples.len() {
            if &whole[at..at + samples.len()] == samples {
                bytes[at] = byte;
            }
        }
        bytes
    };
    assert!(torn("x", &damaged(b'x'))[0].contains("x001"), "a sample that is no number");
    assert!(torn("4", &damaged(b'4'))[0].contains("contents"), "a sample that is another number");
    assert!(!torn("half", &whole[..whole.len() / 2]).is_empty(), "half a file");
    let mut bytes = whole.clone();
    bytes[4096..8192].fill(0);
    assert!(!torn("page", &bytes).is_empty(), "a page that was not written");
}

/// Two searches on one file at once: both end well, no row is lost, and both can be replayed.
#[test]
fn two_processes_use_one_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let evidence = folder.path().join("evidence.sqlite");
    // Of the first two the searches are the same, so that both measure the same things.
    let seeds = [5, 5, 6];
    let engine = |nth: usize| folder.path().join(format!("{nth}.engine"));
    let children: Vec<_> = (seeds.iter().enumerate())
        .map(|(nth, &seed)| {
            search(&evidence, &engine(nth), seed, &["--quiet"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        succeeds(&child.wait_with_output().unwrap());
    }
    let (problems, rows) = problems(&evidence, &BTreeSet::new(), 1);
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(rows.len() > 12, "{} rows", rows.len());
    let opened = Evidence::open_existing(&evidence).unwrap();
    assert_eq!(opened.n_conflicts().unwrap(), 0, "who comes second takes what is there");
    let mut found = BTreeSet::new();
    opened
        .for_each_record(|record| {
            if let Record::Measurement(row) = record {
                found.insert(row.key.hash());
            }
            Ok::<_, EvidenceError>(())
        })
        .unwrap();
    for nth in 0..seeds.len() {
        let proofs = Engine::open(&engine(nth)).unwrap().evidence().unwrap();
        assert!(!proofs.is_empty());
        assert!(proofs.iter().all(|proof| found.contains(proof)), "rows of engine {nth} are lost");
    }
    let again = folder.path().join("again.engine");
    let output = search(&evidence, &again, 6, &["--quiet"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&succeeds(&output)).unwrap();
    assert_eq!(report["n_measured"], 0, "{report}");
    assert!(std::fs::read(&again).unwrap() == std::fs::read(engine(2)).unwrap());
}
