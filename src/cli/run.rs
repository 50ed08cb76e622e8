//! `eggine run`.

use std::path::PathBuf;
use std::process::ExitCode;

use eggine::{Case, Engine, write_outputs};

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine.
    engine: PathBuf,
    /// Arrays named by input, or in0, in1, … in the model's order.
    #[arg(long, value_name = "IN.npz")]
    inputs: PathBuf,
    /// Written: one array per output, named as in the model.
    #[arg(long, value_name = "OUT.npz")]
    outputs: PathBuf,
    #[command(flatten)]
    device: super::DeviceArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if eggine::runtime::program::is_program(&args.engine) {
        return super::program::run(&args.engine, &args.inputs, &args.outputs, &args.device);
    }
    let engine = Engine::open(&args.engine)?;
    let case = Case::read(&args.inputs)?;
    let inputs = case.inputs(engine.inputs())?;
    let specs = engine.outputs().to_vec();
    let outputs = args.device.session(engine)?.run(&inputs)?;
    write_outputs(&args.outputs, &specs, &outputs)?;
    for spec in &specs {
        println!("{spec}");
    }
    Ok(ExitCode::SUCCESS)
}
