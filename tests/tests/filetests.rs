//! Runs every file under `filetests/` as one test, named by its path.
//!
//! The folder says what is done:
//!
//! - `parse` prints what it parsed (or the error), and checks that this parses to the same graph;
//! - `verify` matches `; error:` comments against the verifier, line by line.
//!
//! `cargo test --test filetests verify/arity` runs one file.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::{Path, PathBuf};

use eggine_codegen_ptx::kir;
use eggine_ir::graph::{parse, verify};
use libtest_mimic::{Arguments, Failed, Trial};

/// What is done with the files of each folder: `(folder, extension, function)`.
#[rustfmt::skip] // One folder per row.
const FOLDERS: &[(&str, &str, Run)] = &[
    ("parse",   "gir", run_parse),
    ("verify",  "gir", run_verify),
    ("kir/parse",  "kir", run_kir_parse),
    ("kir/verify", "kir", run_kir_verify),
    // ADD FOLDERS HERE: `("rewrite", "gir", run_rewrite)`, `("kir", "kir", run_kir)`, ….
];

/// Runs one file, given its name without extension and its contents.
type Run = fn(stem: &str, text: &str) -> Result<(), Failed>;

fn main() {
    let args = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let mut trials = Vec::new();
    for &(folder, extension, run) in FOLDERS {
        for path in files(&root.join(folder), extension) {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            trials.push(Trial::test(format!("{folder}/{stem}"), move || {
                run(&stem, &std::fs::read_to_string(&path)?)
            }));
        }
    }
    trials.push(Trial::test("the_harness_can_fail", harness_can_fail));
    libtest_mimic::run(&args, trials).exit();
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == extension));
    files.sort();
    assert!(!files.is_empty(), "no file in {}", folder.display());
    files
}

fn run_parse(stem: &str, text: &str) -> Result<(), Failed> {
    let output = match parse(text) {
        Ok(graph) => {
            let printed = graph.to_string();
            if parse(&printed) != Ok(graph) {
                return Err(format!("printing changed the graph:\n{printed}").into());
            }
            printed
        }
        Err(err) => {
            let handler = miette::NarratableReportHandler::new();
            let report = miette::Report::new(err).with_source_code(text.to_owned());
            let mut out = String::new();
            handler.render_report(&mut out, report.as_ref())?;
            out
        }
    };
    snapshot("parse", stem, &output);
    Ok(())
}

/// Errors stand behind the definition (or `return`) that they are about. One about an input of the
/// header says which: `; error at v0: …`.
fn run_verify(_: &str, text: &str) -> Result<(), Failed> {
    let graph = parse(text)?;
    let mut expected = Vec::new();
    for line in text.lines() {
        if let Some((code, error)) = line.split_once("; error: ") {
            let at = code.split_whitespace().next().ok_or("an error stands behind a definition")?;
            expected.push(format!("{at}: {error}"));
        } else if let Some((_, error)) = line.split_once("; error at ") {
            expected.push(error.to_owned());
        }
    }
    let mut found: Vec<String> =
        verify(&graph).err().unwrap_or_default().iter().map(ToString::to_string).collect();
    expected.sort();
    found.sort();
    match expected == found {
        true => Ok(()),
        false => Err(format!("expected {expected:#?}\nfound {found:#?}").into()),
    }
}

fn run_kir_parse(stem: &str, text: &str) -> Result<(), Failed> {
    let output = match kir::parse(text) {
        Ok(kernel) => {
            let printed = kernel.to_string();
            if kir::parse(&printed) != Ok(kernel) {
                return Err(format!("printing changed the kernel:\n{printed}").into());
            }
            printed
        }
        Err(err) => {
            let handler = miette::NarratableReportHandler::new();
            let report = miette::Report::new(err).with_source_code(text.to_owned());
            let mut out = String::new();
            handler.render_report(&mut out, report.as_ref())?;
            out
        }
    };
    snapshot("kir/parse", stem, &output);
    Ok(())
}

/// Errors stand behind the statement that they are about; one about the kernel says so.
fn run_kir_verify(_: &str, text: &str) -> Result<(), Failed> {
    let kernel = kir::parse(text)?;
    let mut expected = Vec::new();
    for line in text.lines() {
        let mut parts = line.split("; error");
        let code = parts.next().unwrap_or_default().trim();
        for part in parts {
            expected.push(match part.strip_prefix(": ") {
                Some(error) => format!("{code}: {}", error.trim()),
                None => part.trim_start_matches(" at ").trim().to_owned(),
            });
        }
    }
    let mut found: Vec<String> =
        kir::verify(&kernel).err().unwrap_or_default().iter().map(ToString::to_string).collect();
    expected.sort();
    found.sort();
    match expected == found {
        true => Ok(()),
        false => Err(format!("expected {expected:#?}\nfound {found:#?}").into()),
    }
}

/// Each kind of file must fail if it is wrong: a harness that passes everything tests nothing.
fn harness_can_fail() -> Result<(), Failed> {
    let wrong = [
        "graph @g(v0: f32[2]) {\n    v1 = relu v0 ; error: nothing of the kind\n    return v1\n}\n",
        "graph @g(v0: f32[2], v1: f32[3]) {\n    v2 = add v0, v1\n    return v2\n}\n",
        "graph @g(v0: f32[2], v1: f32[3]) {\n    v2 = add v0, v1 ; error: cannot broadcast\n    return v2\n}\n",
    ];
    for text in wrong {
        if run_verify("", text).is_ok() {
            return Err(format!("this passed:\n{text}").into());
        }
    }
    let wrong = [
        "kernel @k grid(1, 1, 1) block(32) {\n    v0 = thread.x ; error: nothing of the kind\n}\n",
        "kernel @k grid(1, 1, 1) block(0) {\n}\n",
    ];
    for text in wrong {
        if run_kir_verify("", text).is_ok() {
            return Err(format!("this passed:\n{text}").into());
        }
    }
    Ok(())
}

fn snapshot(folder: &str, stem: &str, output: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(format!("../filetests/{folder}"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(stem, output));
}
