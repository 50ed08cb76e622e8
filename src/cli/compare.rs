//! `eggine compare`.

use std::path::PathBuf;
use std::process::ExitCode;

use eggine::runtime::Comparison;
use eggine::{Case, Engine};

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine.
    engine: PathBuf,
    /// Inputs and expected outputs (out0… or spec0…, or named by output).
    #[arg(long, value_name = "CASE.npz")]
    case: PathBuf,
    /// Largest difference allowed, relative to the largest expected magnitude of the output.
    #[arg(long, default_value_t = 1e-4)]
    rel_tol: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: super::DeviceArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if !args.rel_tol.is_finite() || args.rel_tol < 0.0 {
        return Err(format!("--rel-tol {} is not a tolerance", args.rel_tol).into());
    }
    let show = |comparison: &Comparison| show(comparison, args.json);
    if eggine::runtime::program::is_program(&args.engine) {
        let (engine, case) = (&args.engine, &args.case);
        return super::program::compare(engine, case, args.rel_tol, &args.device, &show);
    }
    let engine = Engine::open(&args.engine)?;
    let case = Case::read(&args.case)?;
    let inputs = case.inputs(engine.inputs())?;
    let expected = case.expected(engine.outputs())?;
    let specs = engine.outputs().to_vec();
    let outputs = args.device.session(engine)?.run(&inputs)?;
    let comparison = eggine::compare_outputs(&specs, &outputs, &expected, args.rel_tol);
    show(&comparison)?;
    Ok(if comparison.agrees { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn show(comparison: &Comparison, json: bool) -> Result<(), CliError> {
    if json {
        return super::print_json(comparison);
    }
    for output in &comparison.outputs {
        let verdict = if output.agrees { "agrees" } else { "DIFFERS" };
        print!("{} {}: {verdict}, max {:.2e}", output.name, output.ty, output.max_relative);
        match (output.agrees, output.worst_index, &output.worst_got, &output.worst_want) {
            (false, Some(index), Some(got), Some(want)) => println!(
                " > {:.0e} in {} of {} elements; worst [{index}]: {got}, expected {want}",
                output.tolerance, output.n_mismatches, output.n_elems
            ),
            _ => println!(" (tolerance {:.0e})", output.tolerance),
        }
    }
    Ok(())
}
