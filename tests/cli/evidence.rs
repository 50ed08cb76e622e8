//! `eggine evidence`, on files made here.

use std::path::{Path, PathBuf};

use eggine::search::evidence::{
    Conditions, CounterexampleRow, Evidence, JobRecord, Key, QuarantineRow, Row,
};
use eggine::search::workshop::METHOD;
use serde_json::Value;

use super::{eggine, fails, path, succeeds};

/// A measurement that passed; its samples begin with `3001 3002 3003`.
pub(super) fn row(region: &str, schedule: &str, n: i64) -> Row {
    Row {
        key: Key {
            region: region.into(),
            schedule: schedule.into(),
            ptx: format!("ptx of {schedule}"),
            device: "cpu/chip/AVX2/2".into(),
            method: METHOD.into(),
            conditions: Conditions::default(),
        },
        verdict: "pass".into(),
        seed: Some(7),
        samples_ns: vec![3001, 3002, 3003, n],
        incumbent_ns: vec![4000],
        decision: "faster".into(),
        median_ns: 3002.0,
        error_of_bound: 0.125,
        agent: "row-tiler".into(),
        tiling_move: "threads".into(),
        parent: "row threads=1".into(),
    }
}

fn region(digit: &str) -> String {
    digit.repeat(64)
}

fn file(folder: &Path, name: &str, rows: &[Row]) -> PathBuf {
    let file = folder.join(name);
    let evidence = Evidence::open(&file).unwrap();
    for row in rows {
        evidence.insert(row).unwrap();
    }
    file
}

fn quarantined() -> QuarantineRow {
    let ptx = ".version 9.0\n.target sm_80\n".to_owned();
    QuarantineRow {
        region: region("a"),
        schedule: "row threads=32".into(),
        ptx_hash: eggine::runtime::engine::hash_text(&ptx),
        device: "cpu/chip/AVX2/2".into(),
        method: METHOD.into(),
        reason: "faults on normal inputs: ran for\n10 s".into(),
        entry: "{}".into(),
        ptx,
    }
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&succeeds(&eggine(args))).unwrap()
}

#[test]
fn lists_and_shows_what_a_file_holds() {
    let folder = tempfile::tempdir().unwrap();
    let bad = row(&region("b"), "row threads=2", 1);
    let bad = Row { verdict: "inaccurate: 3 elements".into(), median_ns: 0.0, ..bad };
    let good = row(&region("a"), "row threads=1", 1);
    let file = file(folder.path(), "e.sqlite", &[good.clone(), bad]);
    let evidence = Evidence::open(&file).unwrap();
    evidence.insert_region(&region("a"), "graph @softmax").unwrap();
    evidence.set_job("77", &JobRecord { generations: vec![8, 4], finished: true }).unwrap();
    evidence.begin_job("77", "resnet50, budget 12").unwrap();
    evidence.insert_quarantined(&quarantined()).unwrap();
    let counterexample = CounterexampleRow {
        kind: "f32[4]".into(),
        region: region("a"),
        entry: "{}".into(),
        failure: "2 elements are inaccurate".into(),
    };
    evidence.insert_counterexample(&counterexample).unwrap();
    let of = ["--evidence", path(&file)];

    let list = succeeds(&eggine(&[&["evidence", "list"][..], &of].concat()));
    for words in [
        "2 measurements of 2 regions",
        "inaccurate 1, pass 1",
        "1 counterexample, 1 kernel in quarantine",
        "device cpu/chip/AVX2/2",
        "align 256, toolchain none, warm caches",
        "aaaaaaaaaaaa ",
        "3.00 µs",
        "finished, 12 candidates: resnet50, budget 12",
    ] {
        assert!(list.contains(words), "`{words}` is missing from: {list}");
    }
    let list = json(&[&["evidence", "list", "--json"][..], &of].concat());
    assert_eq!(list["places"][0]["n_regions"], 2);
    assert_eq!(list["verdicts"][1], serde_json::json!(["pass", 1]));

    let hash = good.key.hash();
    let show = succeeds(&eggine(&[&["evidence", "show", &hash[..16]][..], &of].concat()));
    for words in ["3001 3002 3003 1", "incumbent ns 4000", "row-tiler threads", "seed 7", "faster"]
    {
        assert!(show.contains(words), "`{words}` is missing from: {show}");
    }
    let show = json(&[&["evidence", "show", &hash, "--json"][..], &of].concat());
    assert_eq!(show["rows"][0]["samples_ns"][2], 3003);
    let show = succeeds(&eggine(&[&["evidence", "show", "aaaa"][..], &of].concat()));
    assert!(show.contains("graph @softmax") && show.contains("row threads=1"), "{show}");
    let show = succeeds(&eggine(&[&["evidence", "show"][..], &of].concat()));
    assert!(show.contains("ran for") && show.contains("2 elements are inaccurate"), "{show}");

    fails(&eggine(&[&["evidence", "show", "0123"][..], &of].concat()), &["`0123`", "list"]);
    fails(&eggine(&[&["evidence", "show", "what"][..], &of].concat()), &["`what`", "hexadecimal"]);
}

#[test]
fn a_miss_names_the_field_that_differs() {
    let folder = tempfile::tempdir().unwrap();
    let there = row(&region("a"), "row threads=1", 1);
    let mut old = row(&region("b"), "row threads=1", 1);
    old.key.method = "verify-0".into();
    let file = file(folder.path(), "e.sqlite", &[there.clone(), old]);
    let args = ["--evidence", path(&file), "--why-miss", "--device-threads", "1"];
    let hash = there.key.hash();
    let show = succeeds(&eggine(&[&["evidence", "show", &hash][..], &args].concat()));
    assert!(show.contains("measured with another device `cpu/chip/AVX2/2`; here `cpu/"), "{show}");
    let all = succeeds(&eggine(&[&["evidence", "show"][..], &args].concat()));
    assert!(all.contains("0 of 2 regions are known here"), "{all}");
    assert!(all.contains("2 regions measured with another device"), "{all}");
    let show = json(&[&["evidence", "show", "bbbb", "--json"][..], &args].concat());
    assert!(show["why_miss"][0].as_str().unwrap().contains("another device"), "{show}");
}

#[test]
fn files_merge_in_any_order_and_an_export_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let row = |schedule: &str, n| row(&region("a"), schedule, n);
    let a = file(folder.path(), "a.sqlite", &[row("row threads=1", 1), row("row threads=2", 2)]);
    let b = file(folder.path(), "b.sqlite", &[row("row threads=2", 3), row("row threads=4", 4)]);
    let c = file(folder.path(), "c.sqlite", &[row("row threads=8", 5)]);
    let (left, right) = (at("left.sqlite"), at("right.sqlite"));
    let merged = json(&["evidence", "merge", path(&left), path(&a), path(&b), path(&c), "--json"]);
    assert_eq!(merged["files"][1]["merged"]["n_conflicts"], 1);
    let export = |file: &Path| succeeds(&eggine(&["evidence", "export", "--evidence", path(file)]));
    let lines = at("b.jsonl");
    let written = eggine(&["evidence", "export", "--evidence", path(&b), "-o", path(&lines)]);
    succeeds(&written);
    assert_eq!(std::fs::read_to_string(&lines).unwrap(), export(&b));
    succeeds(&eggine(&["evidence", "merge", path(&right), path(&c), path(&lines)]));
    let again = succeeds(&eggine(&["evidence", "merge", path(&right), path(&a), path(&right)]));
    assert!(again.contains("1 candidate measured more than once"), "{again}");
    assert_eq!(export(&left), export(&right));
    assert_eq!(export(&left).lines().count(), 6, "a line says what it is, five are measurements");

    for (name, bytes) in [("page.html", "<html>"), ("empty", ""), ("odd.jsonl", "{\"a\": 1}\n")] {
        std::fs::write(at(name), bytes).unwrap();
        fails(&eggine(&["evidence", "merge", path(&left), path(&at(name))]), &[name]);
    }
    let none = at("none.sqlite");
    fails(&eggine(&["evidence", "merge", path(&at("new")), path(&none)]), &["none.sqlite"]);
    assert!(!at("new").exists() && !none.exists(), "an error leaves no file behind");
    fails(
        &eggine(&["evidence", "list", "--evidence", path(&none)]),
        &["none.sqlite", "--evidence"],
    );
    let nowhere = folder.path().join("no/where.jsonl");
    let refused = eggine(&["evidence", "export", "--evidence", path(&a), "-o", path(&nowhere)]);
    fails(&refused, &["where.jsonl"]);
}

#[test]
fn garbage_is_named_before_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = row(&region("b"), "row threads=1", 1);
    old.key.method = "verify-0".into();
    let file = file(folder.path(), "e.sqlite", &[row(&region("a"), "row threads=1", 1), old]);
    let gc = |extra: &[&str]| {
        eggine(&[&["evidence", "gc", "--evidence", path(&file)][..], extra].concat())
    };
    fails(&gc(&[]), &["--other-methods", "--other-devices"]);
    let plan = succeeds(&gc(&["--other-methods"]));
    assert!(plan.contains("verify-0") && plan.contains("would go: 1 measurement"), "{plan}");
    let n = || json(&["evidence", "list", "--json", "--evidence", path(&file)]);
    assert_eq!(n()["n_measurements"], 2, "a dry run changes nothing");
    succeeds(&gc(&["--other-methods", "--apply"]));
    assert_eq!(n()["n_measurements"], 1);
    assert_eq!(n()["places"][0]["method"], METHOD);
    let gone = succeeds(&gc(&["--other-devices", "--apply"]));
    assert!(gone.contains("0 measurements stay"), "{gone}");
}

#[test]
fn what_must_not_run_again_is_kept_with_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), "e.sqlite", &[]);
    Evidence::open(&file).unwrap().insert_quarantined(&quarantined()).unwrap();
    let list = succeeds(&eggine(&["evidence", "quarantine", "--evidence", path(&file)]));
    assert!(list.contains("1 kernel in quarantine") && list.contains("row threads=32"), "{list}");
    let out = folder.path().join("out");
    let args = ["evidence", "quarantine", "--evidence", path(&file), "--export", path(&out)];
    let written = succeeds(&eggine(&args));
    let text = std::fs::read_to_string(written.trim()).unwrap();
    assert!(text.starts_with("// faults on normal inputs: ran for 10 s\n"), "{text}");
    assert!(text.ends_with(&quarantined().ptx), "{text}");
    let args = ["evidence", "gc", "--quarantine", "--apply", "--evidence", path(&file)];
    assert!(succeeds(&eggine(&args)).contains("1 kernel in quarantine"));
    assert_eq!(Evidence::open(&file).unwrap().all_quarantined().unwrap(), []);
}

#[test]
fn damage_is_found_and_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), "e.sqlite", &[row(&region("a"), "row threads=1", 1)]);
    let check = || eggine(&["evidence", "check", "--evidence", path(&file)]);
    assert!(succeeds(&check()).contains("1 row read, 0 faults"));
    let mut bytes = std::fs::read(&file).unwrap();
    let samples = b"3001 3002 3003";
    let at = bytes.windows(samples.len()).position(|it| it == samples).unwrap();
    bytes[at + 3] = b'9';
    std::fs::write(&file, bytes).unwrap();
    let damaged = check();
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
    assert!(String::from_utf8(damaged.stdout).unwrap().contains("1 fault"));
}
