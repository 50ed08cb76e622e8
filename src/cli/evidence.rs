//! `eggine evidence`: what was measured, where, and how it was judged.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use eggine::CpuOptions;
use eggine::runtime::device::{DeviceSpec, open_with};
use eggine::search::evidence::{
    Conditions, Discard, Evidence, ExportError, Found, JobInfo, Key, QuarantineRow, Row,
    differences, export,
};
use eggine::search::workshop::METHOD;
use serde_json::json;

use super::CliError;

/// Regions and jobs that are listed unless all are asked for.
const N_LISTED: usize = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Args)]
struct FileArgs {
    /// Evidence database [default: eggine/evidence.sqlite in the user's cache folder].
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The device of which `here` is said.
#[derive(Debug, clap::Args)]
struct HereArgs {
    /// Device that counts as here: cpu.
    #[arg(long, default_value_t)]
    device: DeviceSpec,
    /// Threads of the cpu device [default: one per core].
    #[arg(long)]
    device_threads: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List devices, verdicts, regions and searches with their numbers of measurements.
    List {
        #[command(flatten)]
        file: FileArgs,
        /// All regions and searches, not only the first 20.
        #[arg(long)]
        all: bool,
    },
    /// Show a measurement with every sample, a region with its measurements, a race of engines or a search;
    /// without a hash, the kernels in quarantine and the counterexamples.
    Show {
        /// The beginning of its hash.
        #[arg(value_name = "HASH")]
        prefix: Option<String>,
        /// Say whether it is used here and now, and if not, in which field it differs.
        #[arg(long)]
        why_miss: bool,
        #[command(flatten)]
        here: HereArgs,
        #[command(flatten)]
        file: FileArgs,
    },
    /// Add everything that other files hold, databases or exports; the order does not matter and nothing
    /// is lost.
    Merge {
        /// The database that grows; made if there is none.
        into: PathBuf,
        /// What is added.
        #[arg(required = true)]
        from: Vec<PathBuf>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Write everything as JSON lines in canonical order; `merge` reads them back.
    Export {
        /// Evidence database [default: eggine/evidence.sqlite in the user's cache folder].
        #[arg(long, value_name = "FILE")]
        evidence: Option<PathBuf>,
        /// Where to [default: standard output].
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Read every row and compare it with its addresses (exit 0 whole, 1 damaged).
    Check {
        #[command(flatten)]
        file: FileArgs,
    },
    /// Say which rows would go, and with --apply drop them.
    Gc {
        /// Measurements by other methods than this program's.
        #[arg(long)]
        other_methods: bool,
        /// Measurements on other devices.
        #[arg(long)]
        other_devices: bool,
        /// Kernels in quarantine: they may run again then.
        #[arg(long)]
        quarantine: bool,
        /// Drop them. Otherwise it is only said what would go.
        #[arg(long)]
        apply: bool,
        #[command(flatten)]
        here: HereArgs,
        #[command(flatten)]
        file: FileArgs,
    },
    /// List the kernels that hung, trapped or exhausted memory, or write their PTX.
    Quarantine {
        /// Write the PTX of each into this folder.
        #[arg(long, value_name = "DIR")]
        export: Option<PathBuf>,
        #[command(flatten)]
        file: FileArgs,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    match &args.command {
        Command::List { file, all } => list(file, *all),
        Command::Show { prefix: Some(prefix), why_miss, here, file } => {
            show(file, prefix, why_miss.then_some(here))
        }
        Command::Show { prefix: None, why_miss: true, here, file } => why_regions_miss(file, here),
        Command::Show { prefix: None, file, .. } => show_corpus(file),
        Command::Merge { into, from, json } => merge(into, from, *json),
        Command::Export { evidence, output } => write_export(evidence.as_ref(), output.as_deref()),
        Command::Check { file } => check(file),
        Command::Gc { other_methods, other_devices, quarantine, apply, here, file } => {
            let discard = Discard {
                methods_except: other_methods.then(|| METHOD.to_owned()),
                devices_except: other_devices.then(|| here.identity()).transpose()?,
                quarantine: *quarantine,
            };
            gc(file, &discard, *apply)
        }
        Command::Quarantine { export: None, file } => list_quarantine(file),
        Command::Quarantine { export: Some(folder), file } => export_quarantine(file, folder),
    }
}

impl FileArgs {
    fn open(&self) -> Result<Evidence, CliError> {
        open(self.evidence.as_ref())
    }
}

fn open(path: Option<&PathBuf>) -> Result<Evidence, CliError> {
    let path = path.cloned().or_else(super::default_evidence);
    let path = path.ok_or("no home folder for the evidence: name a file with --evidence")?;
    Ok(Evidence::open_existing(&path)?)
}

impl HereArgs {
    fn identity(&self) -> Result<String, CliError> {
        if self.device_threads == Some(0) {
            return Err("--device-threads 0: the device needs a thread".into());
        }
        let default = CpuOptions::default();
        let n_threads = self.device_threads.unwrap_or(default.n_threads);
        let device = open_with(&self.device, CpuOptions { n_threads, ..default })?;
        Ok(device.info().identity)
    }
}

fn list(args: &FileArgs, all: bool) -> Result<ExitCode, CliError> {
    let evidence = args.open()?;
    let overview = evidence.overview()?;
    if args.json {
        super::print_json(&overview)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{}: layout version {}, {} of {} regions, {}",
        evidence.path().display(),
        overview.version,
        counted(overview.n_measurements, "measurement"),
        overview.regions.len(),
        counted(overview.n_engines, "engine race")
    );
    let verdicts: Vec<String> =
        overview.verdicts.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    if !verdicts.is_empty() {
        println!("verdicts: {}", verdicts.join(", "));
    }
    println!(
        "{}, {} in quarantine, {} measured more than once",
        counted(overview.n_counterexamples, "counterexample"),
        counted(overview.n_quarantined, "kernel"),
        counted(overview.n_conflicts, "candidate")
    );
    for place in &overview.places {
        println!(
            "\ndevice {}\n  method {}; {}\n  {} of {}, {} passed",
            place.device,
            place.method,
            place.conditions,
            counted(place.n_measurements, "measurement"),
            counted(place.n_regions, "region"),
            place.n_passed
        );
    }
    let n_listed = if all { usize::MAX } else { N_LISTED };
    if !overview.regions.is_empty() {
        println!("\n{:<14} {:>8} {:>8}  least median", "region", "rows", "passed");
    }
    for region in overview.regions.iter().take(n_listed) {
        let best = region.best_ns.map_or_else(|| "-".to_owned(), time);
        println!(
            "{:<14} {:>8} {:>8}  {best}",
            short(&region.hash),
            region.n_measurements,
            region.n_passed
        );
    }
    more(overview.regions.len(), n_listed);
    if !overview.jobs.is_empty() {
        println!("\nsearches");
    }
    for job in overview.jobs.iter().take(n_listed) {
        println!("{}  {}", short(&job.hash), job_line(job));
    }
    more(overview.jobs.len(), n_listed);
    Ok(ExitCode::SUCCESS)
}

fn more(n: usize, n_listed: usize) {
    if n > n_listed {
        println!("… and {} more: --all", n - n_listed);
    }
}

fn show(args: &FileArgs, prefix: &str, here: Option<&HereArgs>) -> Result<ExitCode, CliError> {
    let evidence = args.open()?;
    let found = evidence.find(prefix)?;
    let why = here.map(|here| why_miss(&evidence, &found, here)).transpose()?;
    if args.json {
        let mut value = serde_json::to_value(&found)?;
        if let (Some(why), Some(object)) = (why, value.as_object_mut()) {
            object.insert("why_miss".to_owned(), json!(why));
        }
        super::print_json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &found {
        Found::Measurement { hash, rows } => {
            if rows.len() > 1 {
                println!("measured {} times; the first counts\n", rows.len());
            }
            for row in rows {
                print_row(hash, row);
            }
        }
        Found::Region { hash, text, rows } => {
            println!("region   {hash}");
            println!("{}", text.as_deref().unwrap_or("its text was not written down").trim_end());
            for row in rows {
                println!(
                    "{}  {:>12}  {:<10} {}",
                    short(&row.key.hash()),
                    if row.median_ns > 0.0 { time(row.median_ns) } else { "-".to_owned() },
                    row.verdict_kind(),
                    row.key.schedule
                );
            }
        }
        Found::Engine { hash, rows } => {
            for row in rows {
                println!(
                    "race     {hash}\ndecision {}\nratio    {:.4} (95 % interval {:.4} to {:.4})",
                    row.decision, row.ratio, row.low, row.high
                );
                println!("challenger ns {}", list_of(&row.samples_ns));
                println!("incumbent ns  {}", list_of(&row.incumbent_ns));
            }
        }
        Found::Job(job) => println!("search   {}\n{}", job.hash, job_line(job)),
    }
    for line in why.into_iter().flatten() {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

fn print_row(hash: &str, row: &Row) {
    let Row { key, samples_ns, incumbent_ns, .. } = row;
    let Conditions { layout, toolchain, cache } = &key.conditions;
    println!("row      {hash}");
    println!("region   {}", key.region);
    println!("schedule {}", key.schedule);
    println!("ptx      {}", key.ptx);
    println!("device   {}", key.device);
    println!("method   {}; {layout}, toolchain {toolchain}, {cache} caches", key.method);
    println!("verdict  {}", row.verdict);
    let seed = row.seed.map_or_else(|| "not written down".to_owned(), |seed| seed.to_string());
    println!("error    {:.3e} of its bound, inputs of seed {seed}", row.error_of_bound);
    if row.median_ns > 0.0 {
        println!("time     {} (median), {}", time(row.median_ns), row.decision);
    }
    println!("from     {} {}", row.agent, row.tiling_move);
    if !row.parent.is_empty() {
        println!("parent   {}", row.parent);
    }
    println!("candidate ns {}", list_of(samples_ns));
    if !incumbent_ns.is_empty() {
        println!("incumbent ns {}", list_of(incumbent_ns));
    }
}

/// Whether what was found is used here and now: a line for each measurement or region.
fn why_miss(evidence: &Evidence, found: &Found, here: &HereArgs) -> Result<Vec<String>, CliError> {
    let device = here.identity()?;
    let usual = Conditions::default();
    match found {
        Found::Measurement { rows, .. } => {
            let there = &rows.first().ok_or("the measurement is gone")?.key;
            let (method, conditions) = (METHOD.to_owned(), usual);
            let here = Key { device, method, conditions, ..there.clone() };
            let why = differences(there, &here);
            if why.is_empty() {
                return Ok(vec!["used here: every precondition is equal".to_owned()]);
            }
            let mut lines: Vec<String> = why.iter().map(ToString::to_string).collect();
            if evidence.lookup(&here)?.is_some() {
                lines.push(format!("here, row {} is used", short(&here.hash())));
            }
            Ok(lines)
        }
        Found::Region { hash, rows, .. } => {
            let known = evidence.rows(hash, &device, METHOD, &usual)?.len() as u64;
            let missed =
                evidence.explain_missed_regions([hash.as_str()], &device, METHOD, &usual)?;
            let mut lines: Vec<String> = missed.iter().map(ToString::to_string).collect();
            if lines.is_empty() && rows.is_empty() {
                lines.push("nobody measured it".to_owned());
            } else if lines.is_empty() {
                lines.push(format!("used here: {}", counted(known, "row")));
            }
            Ok(lines)
        }
        Found::Engine { .. } | Found::Job(_) => {
            Err("--why-miss says something of measurements and regions only".into())
        }
    }
}

fn why_regions_miss(args: &FileArgs, here: &HereArgs) -> Result<ExitCode, CliError> {
    let evidence = args.open()?;
    let device = here.identity()?;
    let regions = evidence.overview()?.regions;
    let hashes = regions.iter().map(|region| region.hash.as_str());
    let missed =
        evidence.explain_missed_regions(hashes, &device, METHOD, &Conditions::default())?;
    if args.json {
        super::print_json(&missed)?;
        return Ok(ExitCode::SUCCESS);
    }
    let n_missed: usize = missed.iter().map(|it| it.n_regions).sum();
    println!("{} of {} regions are known here", regions.len() - n_missed, regions.len());
    for missed in missed {
        println!("{missed}");
    }
    Ok(ExitCode::SUCCESS)
}

fn show_corpus(args: &FileArgs) -> Result<ExitCode, CliError> {
    let evidence = args.open()?;
    let (quarantined, counterexamples) =
        (evidence.all_quarantined()?, evidence.all_counterexamples()?);
    if args.json {
        super::print_json(
            &json!({ "quarantined": quarantined, "counterexamples": counterexamples }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} in quarantine", counted(quarantined.len() as u64, "kernel"));
    for row in &quarantined {
        println!("{}", quarantine_line(row));
    }
    println!("{}", counted(counterexamples.len() as u64, "counterexample"));
    for row in &counterexamples {
        println!("{}  {}: {}", short(&row.region), row.kind, row.failure);
    }
    Ok(ExitCode::SUCCESS)
}

fn merge(into: &Path, from: &[PathBuf], json: bool) -> Result<ExitCode, CliError> {
    // All of the sources are looked at before the target is made.
    for path in from {
        if !path.is_file() {
            return Err(format!("there is no evidence file `{}`", path.display()).into());
        }
    }
    let evidence = Evidence::open(into)?;
    let mut done = Vec::new();
    for path in from {
        let merged = evidence.merge_file(path)?;
        if !json {
            println!(
                "{}: {} read, {} new",
                path.display(),
                counted(merged.n_read, "record"),
                merged.n_changed
            );
        }
        done.push(json!({ "from": path, "merged": merged }));
    }
    if json {
        super::print_json(&json!({ "into": into, "files": done }))?;
    } else {
        let n_conflicts = evidence.n_conflicts()?;
        if n_conflicts > 0 {
            println!(
                "{} measured more than once: all are kept; rejections count first, then more samples",
                counted(n_conflicts, "candidate")
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write_export(evidence: Option<&PathBuf>, output: Option<&Path>) -> Result<ExitCode, CliError> {
    let evidence = open(evidence)?;
    let Some(output) = output else {
        let mut to = BufWriter::new(io::stdout().lock());
        let written = export(&evidence, &mut to).and_then(|()| Ok(to.flush()?));
        return match written {
            // Who reads the first lines only has what they want.
            Err(ExportError::Write(err)) if err.kind() == io::ErrorKind::BrokenPipe => {
                Ok(ExitCode::SUCCESS)
            }
            written => Ok(written.map(|()| ExitCode::SUCCESS)?),
        };
    };
    let explain = |err: &dyn std::fmt::Display| format!("`{}`: {err}", output.display());
    let mut partial = output.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let write = || -> Result<(), CliError> {
        let mut to = BufWriter::new(File::create(&partial).map_err(|err| explain(&err))?);
        export(&evidence, &mut to).map_err(|err| explain(&err))?;
        to.flush().map_err(|err| explain(&err))?;
        std::fs::rename(&partial, output).map_err(|err| explain(&err))?;
        Ok(())
    };
    if let Err(err) = write() {
        // Whatever is left of it is of no use; that it cannot be removed either says nothing new.
        drop(std::fs::remove_file(&partial));
        return Err(err);
    }
    Ok(ExitCode::SUCCESS)
}

fn check(args: &FileArgs) -> Result<ExitCode, CliError> {
    let checked = args.open()?.check()?;
    if args.json {
        super::print_json(&checked)?;
    } else {
        for fault in &checked.faults {
            println!("{fault}");
        }
        let (rows, faults) = (counted(checked.n_rows, "row"), checked.faults.len() as u64);
        println!("{rows} read, {}", counted(faults, "fault"));
    }
    Ok(if checked.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn gc(args: &FileArgs, discard: &Discard, apply: bool) -> Result<ExitCode, CliError> {
    if *discard == Discard::default() {
        return Err(
            "nothing to drop: name it with --other-methods, --other-devices or --quarantine".into(),
        );
    }
    let evidence = args.open()?;
    let gone = evidence.gc(discard, apply)?;
    if args.json {
        super::print_json(&json!({ "applied": apply, "discarded": gone }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for group in &gone.groups {
        println!(
            "{} of device {}, method {}",
            counted(group.n_measurements, "measurement"),
            group.device,
            group.method
        );
    }
    println!(
        "{}: {}, {}, {} in quarantine; {} stay",
        if apply { "dropped" } else { "would go" },
        counted(gone.n_measurements, "measurement"),
        counted(gone.n_regions, "region text"),
        counted(gone.n_quarantined, "kernel"),
        counted(gone.n_kept, "measurement")
    );
    if !apply {
        println!("nothing was changed: --apply drops them");
    }
    Ok(ExitCode::SUCCESS)
}

fn list_quarantine(args: &FileArgs) -> Result<ExitCode, CliError> {
    let rows = args.open()?.all_quarantined()?;
    if args.json {
        super::print_json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} in quarantine", counted(rows.len() as u64, "kernel"));
    for row in &rows {
        println!("{}", quarantine_line(row));
    }
    Ok(ExitCode::SUCCESS)
}

fn export_quarantine(args: &FileArgs, folder: &Path) -> Result<ExitCode, CliError> {
    let rows = args.open()?.all_quarantined()?;
    let explain = |err: io::Error| format!("cannot write into `{}`: {err}", folder.display());
    std::fs::create_dir_all(folder).map_err(explain)?;
    for row in &rows {
        let path = folder.join(format!("{}.ptx", short(&row.content())));
        let reason = row.reason.replace(['\n', '\r'], " ");
        let head = format!(
            "// {reason}\n// schedule {} of region {}\n// on {}\n",
            row.schedule, row.region, row.device
        );
        std::fs::write(&path, head + &row.ptx).map_err(explain)?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn quarantine_line(row: &QuarantineRow) -> String {
    format!(
        "{}  {} of region {}, on {}: {}",
        short(&row.content()),
        row.schedule,
        short(&row.region),
        row.device,
        row.reason
    )
}

fn job_line(job: &JobInfo) -> String {
    let JobInfo { record, description, .. } = job;
    let n: u64 = record.generations.iter().sum();
    let state = if record.finished { "finished" } else { "not finished" };
    let what = if description.is_empty() { "" } else { ": " };
    format!("{state}, {}{what}{description}", counted(n, "candidate"))
}

/// The beginning of a hash.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

fn list_of(samples_ns: &[i64]) -> String {
    let samples: Vec<String> = samples_ns.iter().map(i64::to_string).collect();
    samples.join(" ")
}

/// `1 row`, `2 rows`.
fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        ns => format!("{:.3} ms", ns / 1e6),
    }
}
