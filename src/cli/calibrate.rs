//! `eggine calibrate`.

use std::path::PathBuf;
use std::process::ExitCode;

use eggine::CpuOptions;
use eggine::codegen::Target;
use eggine::runtime::DeviceSpec;
use eggine::runtime::device::open_with;
use eggine::search::evidence::Evidence;
use eggine::search::{Calibration, calibrate, keep_calibration};

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Device to measure: cpu or cuda:N.
    #[arg(long, default_value_t)]
    device: DeviceSpec,
    /// Evidence database that keeps the constants; compilations that use it use them [default:
    /// eggine/evidence.sqlite in the user's cache folder].
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// Seed of the test inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads of the cpu device; with another number it is another device [default: one per core].
    #[arg(long)]
    device_threads: Option<usize>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if args.device_threads == Some(0) {
        return Err("0 threads: at least one is needed".into());
    }
    let path = super::evidence_file(args.evidence.as_deref())?;
    let evidence = Evidence::open(&path)?;
    let default = CpuOptions::default();
    let n_threads = args.device_threads.unwrap_or(default.n_threads);
    let device = open_with(&args.device, CpuOptions { n_threads, ..default })?;
    let calibration = calibrate(device, Target::Sm80, args.seed)?;
    keep_calibration(&evidence, &calibration)?;
    if args.json {
        super::print_json(&calibration)?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&calibration);
    println!("kept in {}", path.display());
    Ok(ExitCode::SUCCESS)
}

fn print(calibration: &Calibration) {
    println!("{} as {}", calibration.device, calibration.chip);
    for probe in &calibration.probes {
        println!(
            "  {:<42} {:>12.3} {:<14} {:>11.1} µs measured, {:>11.1} predicted, now {:>11.1}   {}",
            probe.name,
            probe.value,
            probe.unit,
            probe.measured_ns / 1e3,
            probe.before_ns / 1e3,
            probe.after_ns / 1e3,
            probe.schedule
        );
    }
    for alone in &calibration.isolated {
        println!(
            "  {:<42} {:>12.3} {:<14} {:>11.1} µs measured alone{}",
            alone.name,
            alone.value,
            alone.unit,
            alone.measured_ns / 1e3,
            alone
                .constant
                .as_ref()
                .map_or_else(String::new, |(name, value)| { format!(": {name} is {value:.2}") })
        );
    }
    for skipped in &calibration.skipped {
        println!("  skipped {skipped}");
    }
    for constant in &calibration.constants {
        println!("  {:<22} {:>14.4} → {:>14.4}", constant.name, constant.before, constant.after);
    }
    let (before, after) = calibration.error;
    println!("  predictions are off by a factor of {after:.2} (they were by {before:.2})");
}
