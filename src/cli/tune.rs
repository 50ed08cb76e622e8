//! `eggine tune`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use eggine::runtime::DeviceSpec;
use eggine::search::{Budget, TuneJob, TuneReport, complete};

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine, for example one that was only predicted.
    engine: PathBuf,
    /// The engine to write [default: in the place of the old one].
    #[arg(short, long, value_name = "ENGINE")]
    output: Option<PathBuf>,
    /// Device to verify and measure on: cpu or cuda:N.
    #[arg(long, default_value_t)]
    device: DeviceSpec,
    /// A time (60s, 2m), a number of candidates, or 0: the engine's own kernels are measured.
    #[arg(long, default_value = "0", value_parser = super::parse_budget)]
    budget: Budget,
    /// Seed of the test inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Evidence database: what is in it is not measured again [default: eggine/evidence.sqlite in the
    /// user's cache folder].
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// Threads of the cpu device [default: one per core].
    #[arg(long)]
    device_threads: Option<usize>,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Set by the first Ctrl-C; the second ends the process as usual.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if args.device_threads == Some(0) {
        return Err("0 threads: at least one is needed".into());
    }
    let handler = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("interrupted: writing the best engine so far (again to stop at once)");
    });
    handler.map_err(|err| format!("cannot catch interrupts: {err}"))?;
    let evidence = super::evidence_file(args.evidence.as_deref())?;
    let job = TuneJob {
        engine: args.engine.clone(),
        device: args.device,
        device_threads: args.device_threads,
        budget: args.budget,
        seed: args.seed,
        evidence: Some(evidence),
    };
    let output = args.output.as_ref().unwrap_or(&args.engine);
    let report = complete(&job, output, &INTERRUPTED)?;
    match args.json {
        true => super::print_json(&report)?,
        false => print(&report),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(report: &TuneReport) {
    println!("{}: {} kernels on {}", report.engine.display(), report.n_kernels, report.device);
    println!(
        "  {} candidates, {} measured now, {} rejected; {} left out: they want weights arranged otherwise",
        report.n_candidates, report.n_measured, report.n_rejected, report.n_other_weights
    );
    for kernel in &report.unknown {
        println!("  {kernel} stays as it is: this version makes it otherwise");
    }
    for (kernel, before, after) in &report.replaced {
        println!("  {kernel}: {before} → {after}");
    }
    match &report.comparison {
        Some(it) => println!(
            "  time before ÷ time after: {:.3} (95 % interval {:.3} to {:.3}){}",
            it.ratio,
            it.low,
            it.high,
            if report.replaced.is_empty() {
                "; not surely faster: kernels stay as they were"
            } else {
                ""
            }
        ),
        None => println!("  no kernel is better than the engine's own"),
    }
    if report.interrupted {
        println!("  interrupted: this is the best so far; run the same command again to go on");
    }
}
