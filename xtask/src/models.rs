//! Every model of `../shared/models`: compiled without a search, run on the cpu device, and compared
//! with each of its cases. A table, a line a case; a case that fails does not end the run.
//!
//! ```text
//! cargo xtask models [--limit SECONDS] [--threads N] [--eggine PROGRAM] [--out FILE.tsv] [NAME…]
//! ```
//!
//! A `NAME` selects the cases whose name contains it. Smaller models come first. Every case of the
//! manifest is in the table or counted as skipped, with the reason. Seconds are of processor time, where
//! `/proc` tells it: the machine may be busy with other things.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What the command line says.
struct Options {
    limit: Duration,
    threads: String,
    eggine: Option<PathBuf>,
    out: Option<PathBuf>,
    names: Vec<String>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            limit: Duration::from_secs(300),
            threads: "1".into(),
            eggine: None,
            out: None,
            names: Vec::new(),
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--limit" => {
                    let text = value()?;
                    let seconds: Option<u64> = text.parse().ok().filter(|n| *n > 0);
                    let seconds = seconds.ok_or(format!("--limit {text}: expected seconds"))?;
                    options.limit = Duration::from_secs(seconds);
                }
                "--threads" => options.threads = value()?,
                "--eggine" => options.eggine = Some(value()?.into()),
                "--out" => options.out = Some(value()?.into()),
                _ if arg.starts_with('-') => {
                    return Err(format!(
                        "{arg}: there are --limit, --threads, --eggine and --out, and names"
                    ));
                }
                _ => options.names.push(arg),
            }
        }
        Ok(options)
    }
}

/// One case of one model, as the manifest has it.
struct Case {
    /// `mtcnn_pnet.case0`
    name: String,
    onnx: PathBuf,
    npz: PathBuf,
    tolerance: String,
    model_bytes: u64,
}

/// What a case led to, a column each.
#[derive(Default)]
struct Row {
    n_nodes: Option<u64>,
    n_kernels: Option<u64>,
    n_launches: Option<u64>,
    /// Engines, if the case needs a program of several.
    n_engines: Option<u64>,
    n_host_steps: Option<u64>,
    /// Largest error of an output, as a fraction of what it may be.
    error_of_tolerance: Option<f64>,
    weights_bytes: Option<u64>,
    compile_s: Option<f64>,
    run_s: Option<f64>,
    verdict: String,
}

/// Columns of the table and of the file.
const COLUMNS: [&str; 9] =
    ["operators", "kernels", "launches", "host", "err/tol", "weights", "compile", "run", "result"];

impl Row {
    fn cells(&self) -> [String; 9] {
        let count = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        let seconds = |s: Option<f64>| s.map_or("-".to_owned(), |s| format!("{s:.2}"));
        [
            count(self.n_nodes),
            match self.n_engines {
                Some(n) => format!("{n} eng."),
                None => count(self.n_kernels),
            },
            count(self.n_launches),
            count(self.n_host_steps),
            self.error_of_tolerance.map_or("-".to_owned(), |error| format!("{error:.1e}")),
            count(self.weights_bytes),
            seconds(self.compile_s),
            seconds(self.run_s),
            self.verdict.clone(),
        ]
    }
}

/// Compiles, runs and compares all cases that the command line selects.
///
/// # Errors
///
/// If one fails, or there is nothing to run.
pub(crate) fn models(workspace: &Path) -> Result<(), String> {
    let options = Options::parse(std::env::args().skip(2))?;
    let shared = workspace.join("../shared/models");
    let manifest = shared.join("MANIFEST.tsv");
    if !manifest.is_file() {
        println!("0 cases agree, 0 fail, all skipped: there is no {}", manifest.display());
        return Ok(());
    }
    let text = fs::read_to_string(&manifest)
        .map_err(|err| format!("cannot read {}: {err}", manifest.display()))?;
    let mut cases = parse_manifest(&text, &shared)?;
    let n_all = cases.len();
    let selected = |case: &Case| {
        options.names.is_empty() || options.names.iter().any(|name| case.name.contains(name))
    };
    cases.retain(selected);
    if cases.is_empty() {
        return Err(format!("no case of {n_all} has {} in its name", options.names.join(" or ")));
    }
    cases.sort_by(|a, b| (a.model_bytes, &a.name).cmp(&(b.model_bytes, &b.name)));
    let eggine = match &options.eggine {
        Some(program) => program.clone(),
        None => build(workspace)?,
    };
    let scratch = workspace.join("target/models");
    fs::create_dir_all(&scratch)
        .map_err(|err| format!("cannot make {}: {err}", scratch.display()))?;
    let mut table = format!("case\t{}\n", COLUMNS.join("\t"));
    print_line("case", &COLUMNS.map(str::to_owned));
    let (mut failed, mut skipped) = (Vec::new(), Vec::new());
    for case in &cases {
        if let Some(missing) = [&case.onnx, &case.npz].into_iter().find(|path| !path.is_file()) {
            skipped.push(format!("{} (there is no {})", case.name, missing.display()));
            continue;
        }
        let mut row = Row::default();
        row.verdict = match try_case(&eggine, case, &options, &scratch, &mut row) {
            Ok(()) => "agrees".into(),
            Err(reason) => {
                failed.push(case.name.clone());
                reason
            }
        };
        print_line(&case.name, &row.cells());
        let _ = writeln!(table, "{}\t{}", case.name, row.cells().join("\t"));
        // After each case: a run that is cut off has written what it knows.
        if let Some(out) = &options.out {
            fs::write(out, &table)
                .map_err(|err| format!("cannot write {}: {err}", out.display()))?;
        }
    }
    let n_agree = cases.len() - failed.len() - skipped.len();
    println!(
        "{n_agree} of {n_all} cases agree, {} fail, {} skipped, {} not selected",
        failed.len(),
        skipped.len(),
        n_all - cases.len()
    );
    skipped.iter().for_each(|name| println!("skipped: {name}"));
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed: {}", failed.join(", "))),
    }
}

/// The cases that a manifest lists.
fn parse_manifest(text: &str, folder: &Path) -> Result<Vec<Case>, String> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    let column = |name: &str| {
        let found = header.iter().position(|it| *it == name);
        found.ok_or_else(|| format!("the manifest has no column `{name}`"))
    };
    let (file, npz) = (column("file")?, column("expected_output_npz")?);
    let (tolerance, bytes) = (column("suggested_rel_tol")?, column("bytes")?);
    let mut cases = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split('\t').collect();
        let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
        for reference in cell(npz).split('|') {
            // `refs/x.case0.npz in=…`
            let reference = reference.split_whitespace().next().unwrap_or_default();
            let name = Path::new(reference).file_stem().unwrap_or_default();
            if name.is_empty() {
                return Err(format!("the manifest has no case for `{}`", cell(file)));
            }
            cases.push(Case {
                name: name.to_string_lossy().into_owned(),
                onnx: folder.join(cell(file)),
                npz: folder.join(reference),
                tolerance: cell(tolerance).to_owned(),
                model_bytes: cell(bytes).parse().unwrap_or(u64::MAX),
            });
        }
    }
    Ok(cases)
}

/// Builds the program; its path.
fn build(workspace: &Path) -> Result<PathBuf, String> {
    let cargo = || Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status =
        cargo().args(["build", "--locked", "-p", "eggine"]).current_dir(workspace).status();
    if !status.is_ok_and(|status| status.success()) {
        return Err("eggine does not build".into());
    }
    let metadata = cargo()
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(workspace)
        .output()
        .map_err(|err| format!("cannot run cargo metadata: {err}"))?;
    let metadata: Value = serde_json::from_slice(&metadata.stdout)
        .map_err(|err| format!("cannot read cargo's metadata: {err}"))?;
    let target = metadata["target_directory"].as_str().ok_or("cargo tells no target folder")?;
    Ok(Path::new(target).join("debug/eggine"))
}

/// Compiles and compares one case, and fills in what becomes known.
fn try_case(
    eggine: &Path,
    case: &Case,
    options: &Options,
    scratch: &Path,
    row: &mut Row,
) -> Result<(), String> {
    let engine = scratch.join("model.engine");
    // An engine of the case before must not be taken for this one's.
    let _ = fs::remove_file(&engine);
    let path = |path: &Path| path.display().to_string();
    let (engine, onnx, npz) = (path(&engine), path(&case.onnx), path(&case.npz));
    let threads = ["--threads", &options.threads];
    let run = |what: &str, args: &[&str]| -> Result<(Value, f64, bool), String> {
        let mut command = Command::new(eggine);
        command.args(args).args(threads).arg("--json").env("XDG_CACHE_HOME", scratch);
        let output = within(command, options.limit, scratch)
            .map_err(|reason| format!("{what}: {reason}"))?;
        match serde_json::from_str(&output.stdout) {
            Ok(json) => Ok((json, output.seconds, output.success)),
            // Strings are compared in words: the exit status says it all.
            Err(_) if what == "compare" && output.stdout.contains(": agrees") => {
                Ok((Value::Null, output.seconds, output.success))
            }
            Err(_) => Err(format!("{what}: {}", first_words(&output.stderr))),
        }
    };
    let device_threads = ["--device-threads", &options.threads];
    let compile = ["compile", &onnx, "-o", &engine, "--shapes-from", &npz, "--quiet"];
    let (report, seconds, _) = run("compile", &[&compile[..], &device_threads].concat())?;
    row.compile_s = Some(seconds);
    row.n_nodes = report["n_model_nodes"].as_u64();
    row.n_kernels = report["n_kernels"].as_u64();
    row.n_launches = report["n_launches"].as_u64();
    row.n_engines = report["n_engines"].as_u64();
    // All that an engine does are launches; a program lists what the host does between its engines.
    row.n_host_steps = match report["host_steps"].as_array() {
        Some(steps) => Some(steps.len() as u64),
        None => row.n_launches.map(|_| 0),
    };
    row.weights_bytes = report["weights_bytes"].as_u64();
    let compare = ["compare", &engine, "--case", &npz, "--rel-tol", &case.tolerance];
    let (comparison, seconds, success) = run("compare", &compare)?;
    row.run_s = Some(seconds);
    let outputs = comparison["outputs"].as_array().cloned().unwrap_or_default();
    let (error, differs) = judge(&outputs);
    row.error_of_tolerance = error;
    match (success, differs) {
        (true, None) => Ok(()),
        (_, Some(what)) => Err(format!("differs: {what}")),
        _ => Err("differs".into()),
    }
}

/// The largest error of the outputs as a fraction of what it may be, and the first that differs.
fn judge(outputs: &[Value]) -> (Option<f64>, Option<String>) {
    let mut worst: Option<f64> = None;
    let mut differs = None;
    for output in outputs {
        let number = |name: &str| output[name].as_f64();
        if let (Some(error), Some(tolerance)) = (number("max_relative"), number("tolerance")) {
            // Integers have to be equal: any error is infinitely more than allowed.
            let ratio = if error == 0.0 { 0.0 } else { error / tolerance };
            worst = Some(worst.map_or(ratio, |worst| worst.max(ratio)));
        }
        if output["agrees"] != Value::Bool(true) && differs.is_none() {
            differs = Some(format!(
                "{} {}: {:.2e}, {} elements of another kind",
                output["name"].as_str().unwrap_or("?"),
                output["ty"].as_str().unwrap_or("?"),
                number("max_relative").unwrap_or(f64::NAN),
                output["n_mismatches"]
            ));
        }
    }
    (worst, differs)
}

struct Finished {
    stdout: String,
    stderr: String,
    success: bool,
    /// Of processor time, as of the last look, a tenth of a second before the end at most.
    seconds: f64,
}

/// Processor time of a process that runs, in seconds: fields 14 and 15 of its `stat`, in hundredths
/// (proc(5); the unit is the same on every Linux that runs Eggine).
fn processor_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets, which may contain spaces.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

/// Runs a program, and kills it when it has used so much processor time, or has taken ten times as long.
/// Its output goes through files: a pipe that nobody reads fills up.
fn within(mut command: Command, limit: Duration, scratch: &Path) -> Result<Finished, String> {
    let files = ["stdout", "stderr"].map(|name| scratch.join(name));
    let create = |path: &PathBuf| {
        fs::File::create(path).map_err(|err| format!("cannot write {}: {err}", path.display()))
    };
    command.stdout(create(&files[0])?).stderr(create(&files[1])?).stdin(Stdio::null());
    let mut child = command.spawn().map_err(|err| format!("cannot run eggine: {err}"))?;
    let started = Instant::now();
    let mut pause = Duration::from_millis(5);
    let mut seconds = 0.0;
    let status = loop {
        let elapsed = started.elapsed();
        match processor_seconds(child.id()) {
            // A process that has ended and was not waited for has no time any more on some kernels.
            Some(now) => seconds = now.max(seconds),
            None => seconds = elapsed.as_secs_f64().max(seconds),
        }
        match child.try_wait().map_err(|err| err.to_string())? {
            Some(status) => break status,
            None if seconds > limit.as_secs_f64() || elapsed > 10 * limit => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "stopped after {seconds:.0} s of processor time, {} s in all",
                    elapsed.as_secs()
                ));
            }
            None => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(100));
    };
    let read = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let [stdout, mut stderr] = files.each_ref().map(read);
    if status.code().is_none() {
        let _ = writeln!(stderr, "error: eggine was ended by a signal ({status})");
    }
    Ok(Finished { stdout, stderr, success: status.success(), seconds })
}

/// The beginning of an error message, on one line.
fn first_words(stderr: &str) -> String {
    const MOST: usize = 300;
    let start = stderr.find("error").or(stderr.find("panicked")).unwrap_or(0);
    let line: Vec<&str> = stderr[start..].split_whitespace().collect();
    let line = line.join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.is_empty() => "no output and no message".into(),
        None => line,
    }
}

fn print_line(name: &str, cells: &[String; 9]) {
    let [nodes, kernels, launches, host, error, weights, compile, run, verdict] = cells;
    println!(
        "{name:<34} {nodes:>9} {kernels:>7} {launches:>8} {host:>5} {error:>8} {weights:>9} {compile:>8} {run:>7}  {verdict}"
    );
    // A run of an hour is looked at while it goes.
    let _ = std::io::stdout().flush();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn a_manifest_row_is_one_case_per_reference() {
        let text = "file\tbytes\texpected_output_npz\tsuggested_rel_tol\n\
            models/a.onnx\t12\trefs/a.case0.npz in=x[1] | refs/a.case1.npz in=x[2]\t1e-3\n\
            models/b.onnx\t5\trefs/b.case0.npz in=y[]\t1e-4\n";
        let cases = parse_manifest(text, Path::new("m")).unwrap();
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["a.case0", "a.case1", "b.case0"]);
        assert_eq!(cases[1].npz, Path::new("m/refs/a.case1.npz"));
        assert_eq!(cases[1].tolerance, "1e-3");
        assert!(parse_manifest("file\tbytes\n", Path::new("m")).is_err());
    }

    #[test]
    fn an_output_over_its_tolerance_is_named() {
        let output = |name: &str, agrees: bool, error: f64| {
            serde_json::json!({
                "name": name, "ty": "f32[2]", "agrees": agrees, "max_relative": error,
                "tolerance": 1e-2, "n_mismatches": 0,
            })
        };
        let (error, differs) = judge(&[output("a", true, 1e-3), output("b", false, 1.0)]);
        assert_eq!(error, Some(100.0));
        assert!(differs.unwrap().starts_with("b f32[2]"));
        let (error, differs) = judge(&[output("a", true, 1e-3)]);
        assert_eq!((error, differs), (Some(0.1), None));
    }

    #[test]
    fn a_program_that_does_not_end_is_stopped() {
        let folder = std::env::temp_dir().join(format!("eggine-models-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut sleeps = Command::new("sleep");
        sleeps.arg("60");
        let stopped = within(sleeps, Duration::from_millis(20), &folder).err().unwrap();
        let mut says = Command::new("sh");
        says.args(["-c", "echo yes; echo error: no >&2; exit 3"]);
        let finished = within(says, Duration::from_secs(20), &folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(stopped, "stopped after 0 s of processor time, 0 s in all");
        assert_eq!((finished.stdout.as_str(), finished.success), ("yes\n", false));
        assert_eq!(first_words(&finished.stderr), "error: no");
    }

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let parse = |args: &[&str]| Options::parse(args.iter().map(|it| (*it).to_owned()));
        let options = parse(&["--limit", "7", "bert", "gpt2"]).unwrap();
        assert_eq!(options.limit, Duration::from_secs(7));
        assert_eq!(options.names, ["bert", "gpt2"]);
        assert!(parse(&["--limit", "soon"]).is_err());
        assert!(parse(&["--fast"]).is_err());
    }
}
