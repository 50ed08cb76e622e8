//! Invariants of the source tree. What can be checked here is not left to review.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which workspace crate may use which: an edge that is not here does not land.
#[rustfmt::skip] // One crate per row.
const LAYERS: &[(&str, &[&str])] = &[
    ("eggine-ir", &[]),
    ("eggine-ptx", &[]),
    ("eggine-cpu", &["eggine-ptx"]),
    ("eggine-cuda-driver", &["eggine-cpu", "eggine-ptx"]),
    ("eggine-rewrite", &["eggine-ir"]),
    ("eggine-codegen-ptx", &["eggine-ir", "eggine-ptx"]),
    ("eggine-runtime", &["eggine-ir", "eggine-ptx", "eggine-cpu"]),
    ("eggine-search", &["eggine-ir", "eggine-rewrite", "eggine-codegen-ptx", "eggine-runtime"]),
    ("eggine", &["eggine-ir", "eggine-rewrite", "eggine-codegen-ptx", "eggine-runtime", "eggine-search"]),
    ("xtask", &[]),
];

/// Files over 800 lines that are tables, or one idea that does not split.
const LONG_FILES: &[&str] = &["tests/tests/kir_vs_ptx.rs"]; // A generator of random kernels.

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[test]
fn crates_depend_downwards() {
    let cargo = std::env::var("CARGO").unwrap();
    let out = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let mut seen = 0;
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if name == "eggine-tests" {
            continue; // Tests may look at everything.
        }
        let (_, allowed) =
            LAYERS.iter().find(|(layer, _)| *layer == name).expect("a layer for each crate");
        seen += 1;
        let ours = |dep: &&serde_json::Value| !dep["path"].is_null() && dep["kind"] != "dev";
        for dep in package["dependencies"].as_array().unwrap().iter().filter(ours) {
            let dep = dep["name"].as_str().unwrap();
            assert!(allowed.contains(&dep), "`{name}` must not depend on `{dep}`: see LAYERS");
        }
    }
    assert_eq!(seen, LAYERS.len(), "a crate for each layer");
}

/// Rust sources that git tracks.
fn sources() -> Vec<PathBuf> {
    let out = Command::new("git").args(["ls-files", "*.rs"]).current_dir(root()).output().unwrap();
    let lines = String::from_utf8(out.stdout).unwrap();
    let files: Vec<PathBuf> =
        lines.lines().map(|line| root().join(line)).filter(|path| path.exists()).collect();
    assert!(files.len() > 30, "git lists the sources");
    files
}

#[test]
fn every_file_says_what_it_is() {
    for path in sources() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("//! "),
            "{} must start with `//! ` and what it is",
            path.display()
        );
    }
}

#[test]
fn files_hold_one_idea_each() {
    for path in sources() {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let n_lines = std::fs::read_to_string(&path).unwrap().lines().count();
        let long = n_lines > 800 && !LONG_FILES.contains(&name.as_str());
        assert!(!long, "{name} has {n_lines} lines: split it");
        // Cargo would take another name for what tests share as a test of its own.
        let mod_rs =
            name.ends_with("/mod.rs") && !name.contains("/tests/") && !name.contains("/examples/");
        assert!(!mod_rs && !name.ends_with("utils.rs"), "{name}: name files after their idea");
    }
}

#[test]
fn no_test_is_ignored_and_nothing_is_left_to_do() {
    let words = ["#[ignore", "todo!(", "unimplemented!(", "TODO", "XXX"];
    for path in sources().into_iter().filter(|path| !path.ends_with("tidy.rs")) {
        let text = std::fs::read_to_string(&path).unwrap();
        for word in words {
            assert!(!text.contains(word), "{} contains `{word}`", path.display());
        }
    }
}

/// Each rule has an example of its name, and each example a rule.
#[test]
fn every_rule_has_its_file() {
    let folder = root().join("tests/filetests/rewrite");
    let files: BTreeSet<String> = (folder.read_dir().unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "gir"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let rules: BTreeSet<String> =
        eggine_rewrite::rules::all().map(|rule| rule.name.to_owned()).collect();
    assert_eq!(rules, files, "rules (left) and files in {} (right)", folder.display());
}

/// A misspelt name must not mean a test that silently does not run.
#[test]
fn filetests_hold_nothing_else() {
    let mut folders = vec![root().join("tests/filetests")];
    let mut n_files = 0;
    while let Some(folder) = folders.pop() {
        for path in folder.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            n_files += 1;
            let expected = match path.extension().and_then(|it| it.to_str()) {
                Some("gir" | "kir") => true,
                Some("snap") => {
                    path.with_extension("gir").exists() || path.with_extension("kir").exists()
                }
                _ => false,
            };
            assert!(expected, "{} belongs to no test", path.display());
        }
    }
    assert!(n_files > 50, "{n_files} files");
}
