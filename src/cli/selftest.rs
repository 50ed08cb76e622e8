//! `eggine selftest`.

use std::path::PathBuf;
use std::process::ExitCode;

use eggine::codegen::Target;
use eggine::runtime::DeviceSpec;
use eggine::search::{regions_of, selftest};

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Regions to compute, as graphs one after the other (codegen-ptx/tests/regions/all.gir).
    regions: PathBuf,
    /// Device to verify on: cpu or cuda:N.
    #[arg(long, default_value_t)]
    device: DeviceSpec,
    /// Schedules tried around the first one of each family.
    #[arg(long, default_value_t = 0)]
    neighbours: usize,
    /// Target of the PTX.
    #[arg(long, default_value = "sm_80")]
    target: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Exit status 1 if a kernel is wrong.
pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let file = args.regions.display();
    let text = std::fs::read_to_string(&args.regions)
        .map_err(|err| format!("cannot read `{file}`: {err}"))?;
    let regions = regions_of(&text).map_err(|err| format!("`{file}`: {err}"))?;
    if regions.is_empty() {
        return Err(format!("`{file}` has no graph").into());
    }
    let target: Target = args.target.parse()?;
    let device = eggine::runtime::device::open(&args.device)?;
    let done = selftest(device, &regions, args.neighbours, target)?;
    if args.json {
        super::print_json(&done)?;
    } else {
        let counts: Vec<String> =
            done.kernels.iter().map(|(family, n)| format!("{n} {family}")).collect();
        println!(
            "{}: {} regions, kernels {}; {} wrong",
            args.device,
            done.n_regions,
            counts.join(", "),
            done.wrong.len()
        );
        for (region, schedule, verdict) in &done.wrong {
            println!("  {region} {schedule}: {verdict}");
        }
    }
    Ok(if done.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
