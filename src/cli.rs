//! Commands and their arguments, one row each.

#![allow(clippy::print_stderr, reason = "this is where results are printed")]

/// Prints to standard output. Where nobody reads it any more (`eggine inspect … | head`), the process ends
/// quietly, as other tools do; std's macro panics.
macro_rules! print {
    ($($arg:tt)*) => { $crate::cli::write_out(format_args!($($arg)*)) };
}

/// As [`print`], with a line's end.
macro_rules! println {
    () => { $crate::cli::write_out(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::cli::write_out(format_args!("{}\n", format_args!($($arg)*))) };
}

mod bench;
mod calibrate;
mod check;
mod compare;
mod compile;
mod doctor;
mod evidence;
mod explain;
mod inspect;
mod program;
mod reduce;
mod rules;
mod run;
mod selftest;
mod tune;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use eggine::runtime::device::{Checking, DeviceSpec, open_with};
use eggine::search::Budget;
use eggine::{CpuOptions, Engine, Session};

/// What every command may fail with.
pub(crate) type CliError = Box<dyn Error + Send + Sync>;

/// Turns ONNX models into tuned inference engines, and runs them.
#[derive(Debug, Parser)]
#[command(name = "eggine", version, about, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Report what a model needs and whether all of it is supported; needs no device (exit 1: not all is).
    Check(check::Args),
    /// Compile a model into an engine: verified always, measured as far as the budget goes.
    Compile(Box<compile::Args>),
    /// Run an engine on the arrays of an npz file.
    Run(run::Args),
    /// Run an engine on a case and compare with its expected outputs (exit 0 agrees, 1 differs).
    Compare(compare::Args),
    /// Shrink a failing model to a small one that a command still finds failing.
    Reduce(reduce::Args),
    /// Time an engine.
    Bench(bench::Args),
    /// Show an engine's kernels, schedules, source nodes, memory and evidence.
    Inspect(inspect::Args),
    /// Show the named rules that lead from the source graph to each kernel.
    Explain(explain::Args),
    /// List, show and check rewrite rules.
    Rules(rules::Args),
    /// List, show, merge, export, check and clean up what was measured.
    Evidence(evidence::Args),
    /// Complete the search of an engine on a device, measuring only what is not in the evidence.
    Tune(tune::Args),
    /// Measure a device and refit the constants that predictions for it are made with.
    Calibrate(calibrate::Args),
    /// Verify every kernel family on a device against the reference (exit 1: a kernel is wrong).
    Selftest(selftest::Args),
    /// Check devices, assembler, SIMD level and evidence file: what works, and what to do.
    Doctor(doctor::Args),
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Check(args) => check::run(&args),
        Command::Compile(args) => compile::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Reduce(args) => reduce::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Rules(args) => rules::run(&args),
        Command::Evidence(args) => evidence::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Selftest(args) => selftest::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    }
}

/// One message: what failed, and the chain of why, each part once.
pub(crate) fn print_error(error: &dyn Error) {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        source = cause.source();
    }
    eprintln!("error: {message}");
}

/// `60s`, `2m`, `500` measurements, or `0`.
pub(crate) fn parse_budget(text: &str) -> Result<Budget, String> {
    if let Ok(n) = text.parse::<u64>() {
        return Ok(if n == 0 { Budget::First } else { Budget::Measurements(n) });
    }
    match parse_time(text) {
        Ok(time) if !time.is_zero() => Ok(Budget::Time(time)),
        Ok(_) => Ok(Budget::First),
        Err(_) => Err(format!(
            "expected a time such as 60s or 2m, a number of measurements, or 0, found `{text}`"
        )),
    }
}

/// `60s`, `2m`, `0.5h` or `0`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a time such as 60s or 2m, or 0, found `{text}`");
    let (number, unit_s) =
        match (text.strip_suffix('s'), text.strip_suffix('m'), text.strip_suffix('h')) {
            (Some(number), ..) => (number, 1.0),
            (_, Some(number), _) => (number, 60.0),
            (.., Some(number)) => (number, 3600.0),
            _ if text == "0" => ("0", 1.0),
            _ => return Err(expected()),
        };
    let seconds: f64 = number.trim().parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(seconds * unit_s).map_err(|_| expected())
}

/// `x=1,3,224,224`; a scalar is `x=`.
pub(crate) fn parse_shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let expected =
        || format!("expected NAME=EXTENT,EXTENT,… such as x=1,3,224,224, found `{text}`");
    let (name, extents) = text.rsplit_once('=').ok_or_else(expected)?;
    let extents =
        extents.split(',').filter(|it| !it.is_empty()).map(str::parse).collect::<Result<_, _>>();
    Ok((name.to_owned(), extents.map_err(|_| expected())?))
}

/// `1048576`, `512K`, `512M`, `2G`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    let unit = units.iter().find(|(letter, _)| text.ends_with(*letter));
    let number = text.trim_end_matches(['K', 'M', 'G']);
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|it| it.checked_mul(unit.map_or(1, |unit| unit.1)))
        .ok_or_else(|| format!("expected a number of bytes such as 512M, found `{text}`"))
}

/// Where evidence is kept unless `--evidence` says otherwise.
pub(crate) fn default_evidence() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|it| it.is_absolute());
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("eggine").join("evidence.sqlite"))
}

/// The evidence file to use; its folder exists.
pub(crate) fn evidence_file(named: Option<&std::path::Path>) -> Result<PathBuf, CliError> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let path =
        default_evidence().ok_or("no home folder for the evidence: name a file with --evidence")?;
    if let Some(folder) = path.parent() {
        let file = folder.display();
        std::fs::create_dir_all(folder).map_err(|err| {
            format!("cannot create `{file}` for the evidence: {err}; name a file with --evidence")
        })?;
    }
    Ok(path)
}

/// Exit status of a process whose reader went away: 128 and the number of SIGPIPE, as shells say it. The
/// signal itself stays ignored: a search must survive an external agent that dies.
const READER_GONE: i32 = 141;

fn write_out(text: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    match std::io::stdout().write_fmt(text) {
        Ok(()) => (),
        Err(err) if err.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(READER_GONE),
        Err(err) => {
            eprintln!("error: cannot write to standard output: {err}");
            std::process::exit(2)
        }
    }
}

/// Prints one JSON object.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Where an engine runs.
#[derive(Debug, clap::Args)]
pub(crate) struct DeviceArgs {
    /// Device to run on: cpu, or cuda:N for a GPU.
    #[arg(long, default_value_t)]
    device: DeviceSpec,
    /// Threads of the device [default: one per core].
    #[arg(long)]
    threads: Option<usize>,
    /// Check every access: races, uninitialised reads, stray and misaligned accesses, deadlocks. Slow.
    #[arg(long)]
    check: bool,
}

impl DeviceArgs {
    /// A device of its own.
    pub(crate) fn open(
        &self,
    ) -> Result<Box<dyn eggine::runtime::Device>, eggine::runtime::DeviceError> {
        let default = CpuOptions::default();
        let n_threads = self.threads.unwrap_or(default.n_threads);
        let checking = if self.check { Checking::Everything } else { Checking::Bounds };
        open_with(&self.device, CpuOptions { n_threads, checking, ..default })
    }

    /// An engine loaded on the device.
    pub(crate) fn session(&self, engine: Engine) -> Result<Session, CliError> {
        if self.threads == Some(0) {
            return Err("--threads 0: the device needs a thread".into());
        }
        Ok(Session::new(self.open()?, &engine)?)
    }
}
