//! The `eggine` command, end to end: the main job on a model that the repository ships, and one clear
//! message for each kind of bad input.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod agents;
#[allow(dead_code, reason = "shared with the tests of import")]
#[path = "../tests/import/build.rs"]
mod build;
mod check;
mod evidence;
mod hardware;
mod kill9;
mod predicted;
mod programs;
mod reference;
mod rules;
mod tutorial;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/models").join(name)
}

fn eggine(args: &[&str]) -> Output {
    command().args(args).output().unwrap()
}

/// The program, with a cache folder that no other program and no earlier version has used.
fn command() -> Command {
    static CACHE: LazyLock<tempfile::TempDir> =
        LazyLock::new(|| tempfile::tempdir().expect("a temporary folder can be made"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_eggine"));
    command.env("XDG_CACHE_HOME", CACHE.path());
    command
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Asserts that the command fails with one line that contains all of `words`, and does not panic.
#[track_caller]
fn fails(output: &Output, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = stderr.lines().filter(|line| !line.starts_with('{')).collect();
    assert_eq!(output.status.code(), Some(2), "exit status; {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert!(errors.first().is_some_and(|line| line.starts_with("error: ")), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "`{word}` is missing from: {stderr}");
    }
}

fn compile(model: &str, folder: &Path, extra: &[&str]) -> (PathBuf, Output) {
    let engine = folder.join("out.engine");
    let (onnx, case) = (example(&format!("{model}.onnx")), example(&format!("{model}.case0.npz")));
    let mut args =
        vec!["compile", path(&onnx), "-o", path(&engine), "--shapes-from", path(&case), "--quiet"];
    args.extend(extra);
    let output = eggine(&args);
    (engine, output)
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn compiles_compares_runs_and_shows_a_real_model() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, output) =
        compile("resnet50", folder.path(), &["--emit-ptx", path(&folder.path().join("ptx"))]);
    assert!(succeeds(&output).contains("launches"));
    let case = example("resnet50.case0.npz");
    assert!(
        succeeds(&eggine(&["compare", path(&engine), "--case", path(&case)])).contains("agrees")
    );
    let out = folder.path().join("out.npz");
    assert!(
        succeeds(&eggine(&[
            "run",
            path(&engine),
            "--inputs",
            path(&case),
            "--outputs",
            path(&out)
        ]))
        .contains("logits")
    );
    assert!(out.exists());
    assert!(succeeds(&eggine(&["inspect", path(&engine)])).contains("contraction"));
    assert!(succeeds(&eggine(&["explain", path(&engine)])).contains("rules"));
    let bench = succeeds(&eggine(&["bench", path(&engine), "--repeats", "2", "--json"]));
    let bench: serde_json::Value = serde_json::from_str(&bench).unwrap();
    assert_eq!(bench["samples_ns"].as_array().unwrap().len(), 2);
    let n_ptx = folder.path().join("ptx").read_dir().unwrap().count();
    assert!(n_ptx > 5, "{n_ptx} PTX files");
}

#[test]
fn a_case_that_differs_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, output) = compile("resnet50", folder.path(), &[]);
    succeeds(&output);
    let case = example("resnet50.case0.npz");
    let strict = eggine(&["compare", path(&engine), "--case", path(&case), "--rel-tol", "0"]);
    assert_eq!(strict.status.code(), Some(1), "no f32 engine is exact");
    assert!(String::from_utf8_lossy(&strict.stdout).contains("DIFFERS"));
    // The other case has another batch.
    let other = eggine(&["compare", path(&engine), "--case", path(&example("resnet50.case1.npz"))]);
    fails(&other, &["input"]);
}

#[test]
fn files_that_are_no_models_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let engine = folder.path().join("out.engine");
    let model = std::fs::read(example("resnet50.onnx")).unwrap();
    let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n".as_slice();
    let files: [(&str, &[u8]); 5] = [
        ("empty.onnx", b""),
        ("page.onnx", b"<!DOCTYPE html><html><body>404</body></html>"),
        ("lfs.onnx", lfs),
        ("cut.onnx", &model[..model.len() / 2]),
        ("huge.onnx", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00"),
    ];
    for (name, bytes) in files {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        fails(&eggine(&["compile", path(&file), "-o", path(&engine), "--quiet"]), &[name]);
        assert!(!engine.exists());
    }
    fails(&eggine(&["compile", "missing.onnx", "-o", path(&engine), "--quiet"]), &["missing.onnx"]);
}

#[test]
fn shapes_that_do_not_fit_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let engine = folder.path().join("out.engine");
    let model = example("resnet50.onnx");
    let open = eggine(&["compile", path(&model), "-o", path(&engine), "--quiet"]);
    fails(&open, &["input", "--shape"]);
    let wrong = eggine(&[
        "compile",
        path(&model),
        "-o",
        path(&engine),
        "--shape",
        "input=1,4,64,64",
        "--quiet",
    ]);
    fails(&wrong, &["input", "4"]);
    let unknown =
        eggine(&["compile", path(&model), "-o", path(&engine), "--shape", "nothing=1", "--quiet"]);
    fails(&unknown, &["nothing"]);
}

#[test]
fn damaged_and_foreign_engines_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, output) = compile("resnet50", folder.path(), &[]);
    succeeds(&output);
    let good = std::fs::read(&engine).unwrap();
    let case = example("resnet50.case0.npz");
    let broken = folder.path().join("broken.engine");
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for bytes in [&flipped[..], &good[..good.len() - 100], b"", b"PK\x03\x04 not an engine"] {
        std::fs::write(&broken, bytes).unwrap();
        fails(&eggine(&["compare", path(&broken), "--case", path(&case)]), &["broken.engine"]);
    }
}

#[test]
fn evidence_that_cannot_be_used_is_named_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.sqlite");
    std::fs::write(&garbage, "not a database. ".repeat(500)).unwrap();
    let (_, output) = compile("resnet50", folder.path(), &["--evidence", path(&garbage)]);
    fails(&output, &["garbage.sqlite", "--evidence"]);
    assert!(
        std::fs::read_to_string(&garbage).unwrap().starts_with("not a database"),
        "nothing is lost"
    );
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let engine = folder.path().join("out.engine");
    let (model, case) = (example("resnet50.onnx"), example("resnet50.case0.npz"));
    // A limit on the size of files stands for the full disk.
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} compile {} -o {} --shapes-from {} --quiet",
        env!("CARGO_BIN_EXE_eggine"),
        path(&model),
        path(&engine),
        path(&case)
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    fails(&output, &["out.engine"]);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_search_is_repeated_from_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let evidence = folder.path().join("evidence.sqlite");
    let extra = |n| vec!["--budget", "12", "--json", "--evidence", path(&evidence), "--threads", n];
    let replay = |n| [extra(n), vec!["--replay"]].concat();
    let (engine, output) = compile("resnet50", folder.path(), &extra("2"));
    let first: serde_json::Value = serde_json::from_str(&succeeds(&output)).unwrap();
    let bytes = std::fs::read(&engine).unwrap();
    assert!(first["n_measured"].as_u64().unwrap() > 0, "{first}");
    let (engine, output) = compile("resnet50", folder.path(), &extra("1"));
    let again: serde_json::Value = serde_json::from_str(&succeeds(&output)).unwrap();
    assert_eq!(again["n_measured"], 0, "{again}");
    assert_eq!(again["search"], first["search"], "its recipe says what was found, and how");
    assert!(bytes == std::fs::read(&engine).unwrap(), "the engines are the same, byte for byte");
    for n in ["1", "2"] {
        let (engine, output) = compile("resnet50", folder.path(), &replay(n));
        let again: serde_json::Value = serde_json::from_str(&succeeds(&output)).unwrap();
        assert_eq!(again["n_measured"], 0, "{again}");
        assert_eq!(again["n_candidates"], first["n_candidates"]);
        assert!(bytes == std::fs::read(&engine).unwrap(), "decided anew, byte for byte the same");
    }
}

#[test]
fn agents_and_limits_are_checked_and_keep_their_word() {
    let folder = tempfile::tempdir().unwrap();
    let (_, output) = compile("resnet50", folder.path(), &["--budget", "4", "--agents", "tyler"]);
    fails(&output, &["`tyler`", "contraction-tiler", "fuser"]);
    let (_, output) = compile("resnet50", folder.path(), &["--max-memory", "100K"]);
    fails(&output, &["allows 102400", "--max-memory"]);
    let (_, output) = compile("resnet50", folder.path(), &["--max-memory", "many"]);
    fails(&output, &["many"]);
    let evidence = folder.path().join("evidence.sqlite");
    let args = ["--budget", "8", "--json", "--evidence", path(&evidence), "--agents", "wanderer"];
    let (_, output) =
        compile("resnet50", folder.path(), &[&args[..], &["--max-memory", "64M"]].concat());
    let report: serde_json::Value = serde_json::from_str(&succeeds(&output)).unwrap();
    let agents: Vec<_> = (report["search"]["agents"].as_array().unwrap().iter())
        .filter(|agent| agent["n_judged"].as_u64().unwrap() > 0)
        .map(|agent| agent["agent"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(agents, ["wanderer"], "the others were not asked");
    let args = ["--budget", "4", "--objective", "throughput", "--evidence", path(&evidence)];
    let (engine, output) = compile("resnet50", folder.path(), &args);
    succeeds(&output);
    let engine: serde_json::Value =
        serde_json::from_str(&succeeds(&eggine(&["inspect", path(&engine), "--json"]))).unwrap();
    assert_eq!(engine["manifest"]["options"]["objective"], "throughput");
    let device = engine["manifest"]["device"].as_str().unwrap();
    assert!(device.ends_with("/1"), "each session has one thread: {device}");
    assert!(report["constraints"][0].as_str().unwrap().contains("67108864 bytes"), "{report}");
}

#[test]
fn an_interrupt_writes_the_best_engine_so_far_and_the_search_goes_on_later() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, evidence) =
        (folder.path().join("out.engine"), folder.path().join("evidence.sqlite"));
    let (model, case) = (example("resnet50.onnx"), example("resnet50.case0.npz"));
    let args = [
        "compile",
        path(&model),
        "-o",
        path(&engine),
        "--shapes-from",
        path(&case),
        "--quiet",
        "--json",
    ];
    let mut command = command();
    command.args(args).args(["--budget", "300s", "--evidence", path(&evidence)]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(8));
    let interrupted =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success(), "the search was still going on");
    let output = child.wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&succeeds(&output)).unwrap();
    assert_eq!(report["interrupted"], true);
    let n_measured = report["n_measured"].as_u64().unwrap();
    assert!(n_measured > 0);
    succeeds(&eggine(&["compare", path(&engine), "--case", path(&case)]));
    // What was measured is not measured again.
    let budget = n_measured.to_string();
    let again =
        eggine(&[&args[..], &["--budget", &budget, "--evidence", path(&evidence)]].concat());
    let again: serde_json::Value = serde_json::from_str(&succeeds(&again)).unwrap();
    assert!(again["n_measured"].as_u64().unwrap() < n_measured, "{again}");
}

/// An interrupted search is resumed, ends, and then has nothing left to do. Without one there is nothing to
/// resume, and nothing is made.
#[test]
fn an_interrupted_search_is_resumed_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (evidence, engine) = (at("evidence.sqlite"), at("out.engine"));
    let search = |extra: &[&str]| kill9::search(&evidence, &engine, 3, extra);
    fails(&search(&["--resume", "--quiet"]).output().unwrap(), &["evidence.sqlite"]);
    assert!(!evidence.exists() && !engine.exists(), "nothing is begun");
    // Interrupted as soon as there is something to lose.
    let log = at("progress.jsonl");
    let mut command = search(&[]);
    command.stdout(std::process::Stdio::piped()).stderr(std::fs::File::create(&log).unwrap());
    let child = command.spawn().unwrap();
    while kill9::n_reported(&log) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let interrupted: serde_json::Value =
        serde_json::from_str(&succeeds(&child.wait_with_output().unwrap())).unwrap();
    let n_before = interrupted["n_measured"].as_u64().unwrap();
    assert!(n_before > 0 && engine.exists());
    assert_eq!(interrupted["interrupted"], true, "{interrupted}");
    let resumed = search(&["--resume", "--quiet"]).output().unwrap();
    let resumed: serde_json::Value = serde_json::from_str(&succeeds(&resumed)).unwrap();
    let n_in_all = resumed["n_candidates"].as_u64().unwrap();
    assert!(n_in_all >= resumed["n_measured"].as_u64().unwrap() + n_before, "{resumed}");
    assert_eq!(resumed["interrupted"], false);
    let again = search(&["--resume", "--quiet"]).output().unwrap();
    let again: serde_json::Value = serde_json::from_str(&succeeds(&again)).unwrap();
    assert_eq!(again["n_measured"], 0);
    assert!(again["resumed"].as_str().unwrap().contains("finished after 6 candidates"), "{again}");
    let none = kill9::search(&evidence, &engine, 4, &["--resume", "--quiet"]).output().unwrap();
    fails(&none, &["--resume", "dit_transformer.onnx", "seed 3"]);
}
