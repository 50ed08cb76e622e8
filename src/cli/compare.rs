//! `eggine compare`.

mod model;
mod program;

use std::path::PathBuf;
use std::process::ExitCode;

use eggine::runtime::Comparison;
use eggine::runtime::program::Program;
use eggine::{Case, Engine};

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine or program; with --against, the ONNX file, or a program.
    #[arg(value_name = "ENGINE|MODEL")]
    engine: PathBuf,
    /// Inputs and expected outputs (out0… or spec0…, or named by output). With --against only the inputs
    /// are used; without a case they are drawn.
    #[arg(long, value_name = "CASE.npz", required_unless_present = "against")]
    case: Option<PathBuf>,
    /// Compile the model and compare with onnxruntime (through Python, its optimisations off) or with our
    /// own oracle; where they differ, name the first node over budget.
    #[arg(long, value_enum)]
    against: Option<Against>,
    /// Compare this engine or program of the model instead of compiling it.
    #[arg(long = "engine", value_name = "ENGINE", requires = "against")]
    with: Option<PathBuf>,
    /// Extents of an input, where the model leaves them open. May be repeated.
    #[arg(long = "shape", value_name = "NAME=EXTENTS", value_parser = super::parse_shape, requires = "against")]
    shapes: Vec<(String, Vec<usize>)>,
    /// Seed of the inputs that are drawn.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Compare what each launch wrote even if the outputs agree.
    #[arg(long, requires = "against")]
    layers: bool,
    /// Python that has onnxruntime.
    #[arg(long, default_value = "python3")]
    python: String,
    /// Largest difference allowed, relative to the largest expected magnitude of the output.
    #[arg(long, default_value_t = 1e-4)]
    rel_tol: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: super::DeviceArgs,
}

/// What a model is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Against {
    /// onnxruntime, through Python.
    Ort,
    /// The reference evaluator.
    Oracle,
}

impl Against {
    fn name(self) -> &'static str {
        match self {
            Against::Ort => "ort",
            Against::Oracle => "oracle",
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if !args.rel_tol.is_finite() || args.rel_tol < 0.0 {
        return Err(format!("--rel-tol {} is not a tolerance", args.rel_tol).into());
    }
    use eggine::runtime::program::is_program;
    if let Some(against) = args.against {
        // Whose engines: those of the program that is compared, or that stands in for it.
        let file = args.with.as_ref().unwrap_or(&args.engine);
        if is_program(file) {
            return program::run(args, against, Some(Program::open(file)?));
        }
        return match super::program::has_host_types(&args.engine)? {
            true => program::run(args, against, None),
            false => model::run(args, against),
        };
    }
    let case = args.case.as_ref().ok_or("--case is needed without --against")?;
    let show = |comparison: &Comparison| show(comparison, args.json);
    if is_program(&args.engine) {
        return super::program::compare(&args.engine, case, args.rel_tol, &args.device, &show);
    }
    let engine = Engine::open(&args.engine)?;
    let case = Case::read(case)?;
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
    print_outputs(comparison);
    Ok(())
}

fn print_outputs(comparison: &Comparison) {
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
}
