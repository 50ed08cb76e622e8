//! `eggine bench`.

use std::path::PathBuf;
use std::process::ExitCode;

use eggine::Engine;
use eggine::runtime::RunError;
use eggine::runtime::timing::{Contestant, TimingPlan, race};
use eggine::runtime::{DeviceError, Session};
use serde_json::json;

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine.
    engine: PathBuf,
    /// Another engine of the same model: both are run in turn, and the ratio is shown.
    #[arg(long, value_name = "ENGINE")]
    against: Option<PathBuf>,
    /// Arrays to run a program on, named as for `run`; an engine draws its own.
    #[arg(long, value_name = "IN.npz", conflicts_with = "against")]
    inputs: Option<PathBuf>,
    /// Timed runs.
    #[arg(long, default_value_t = 20)]
    repeats: usize,
    /// Runs before the first timed one.
    #[arg(long, default_value_t = 2)]
    warmups: usize,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: super::DeviceArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if args.repeats == 0 {
        return Err("--repeats 0: nothing to time".into());
    }
    if eggine::runtime::program::is_program(&args.engine) {
        let inputs = args.inputs.as_deref().ok_or(
            "a program is timed on the inputs of a run, whose shapes and contents decide its course: name them with --inputs",
        )?;
        return super::program::bench(
            &args.engine,
            inputs,
            (args.warmups, args.repeats),
            args.json,
            &args.device,
        );
    }
    if args.inputs.is_some() {
        return Err(
            "--inputs is for programs: the time of an engine does not depend on them".into()
        );
    }
    let engine = Engine::open(&args.engine)?;
    let n_launches = engine.plan.steps.len();
    let names: Vec<String> = engine
        .plan
        .steps
        .iter()
        .map(|step| engine.plan.kernels[step.kernel].entry.clone())
        .collect();
    let mut session = load(args, engine)?;
    let device = session.device().info().name;
    if let Some(against) = &args.against {
        return compare(args, &mut session, against);
    }
    session.time(args.warmups)?;
    let runs = session.time(args.repeats)?;
    let mut samples_ns: Vec<u64> = runs.iter().map(|run| run.total_ns).collect();
    let steps = session.time_steps(args.repeats.min(5))?;
    let step_ns: Vec<u64> = (0..n_launches)
        .map(|step| {
            let mut samples: Vec<u64> = steps.iter().map(|run| run.step_ns[step]).collect();
            samples.sort_unstable();
            samples[samples.len() / 2]
        })
        .collect();
    if args.json {
        super::print_json(&json!({
            "engine": args.engine,
            "device": device,
            "n_launches": n_launches,
            "samples_ns": samples_ns,
            "steps": names.iter().zip(&step_ns).map(|(kernel, ns)| json!({"kernel": kernel, "median_ns": ns})).collect::<Vec<_>>(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    samples_ns.sort_unstable();
    let ms = |ns: u64| ns as f64 / 1e6;
    println!(
        "{} on {device}: median {:.3} ms, min {:.3} ms, max {:.3} ms over {} runs of {n_launches} launches",
        args.engine.display(),
        ms(samples_ns[samples_ns.len() / 2]),
        ms(samples_ns[0]),
        ms(samples_ns[samples_ns.len() - 1]),
        samples_ns.len()
    );
    let total: u64 = step_ns.iter().sum();
    let mut order: Vec<usize> = (0..n_launches).collect();
    order.sort_by_key(|&step| std::cmp::Reverse(step_ns[step]));
    for step in order.into_iter().take(10) {
        let share = 100.0 * step_ns[step] as f64 / total.max(1) as f64;
        println!(
            "  step {step:<3} {:<36} {:>9.3} ms {share:>5.1} %",
            names[step],
            ms(step_ns[step])
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn load(args: &Args, engine: Engine) -> Result<Session, CliError> {
    let inputs: Vec<_> =
        engine.inputs().iter().map(|spec| eggine::search::random_input(spec, args.seed)).collect();
    let mut session = args.device.session(engine)?;
    session.write_inputs(&inputs)?;
    Ok(session)
}

fn compare(
    args: &Args,
    session: &mut Session,
    against: &std::path::Path,
) -> Result<ExitCode, CliError> {
    let mut other = load(args, Engine::open(against)?)?;
    let plan = TimingPlan {
        n_warmups: args.warmups,
        min_samples: args.repeats.next_multiple_of(2),
        max_samples: args.repeats.next_multiple_of(2),
        budget_ns: u64::MAX,
        half_width: 0.0,
        give_up_ratio: f64::INFINITY,
        seed: args.seed,
        ..TimingPlan::default()
    };
    let raced = race(&plan, |contestant| {
        let session = match contestant {
            Contestant::Challenger => &mut *session,
            Contestant::Incumbent => &mut other,
        };
        let runs = session.time(1).map_err(device_error)?;
        Ok(runs.first().map_or(0, |run| i64::try_from(run.total_ns).unwrap_or(i64::MAX)))
    })?;
    if args.json {
        super::print_json(&raced)?;
        return Ok(ExitCode::SUCCESS);
    }
    let ratio = raced.ratio.ok_or("no sample is believed")?;
    println!(
        "time of {} ÷ time of {}: {:.4} (95 % interval {:.4} to {:.4}, {} interleaved runs each)",
        args.engine.display(),
        against.display(),
        ratio.median,
        ratio.low,
        ratio.high,
        raced.challenger.samples_ns.len()
    );
    Ok(ExitCode::SUCCESS)
}

fn device_error(err: RunError) -> DeviceError {
    match err {
        RunError::Device(source) | RunError::Step { source, .. } => source,
        other => DeviceError::Load { reason: other.to_string() },
    }
}
