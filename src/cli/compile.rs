//! `eggine compile`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use eggine::codegen::Chip;
use eggine::rewrite::rule_file::Fuel;
use eggine::runtime::DeviceSpec;
use eggine::search::{Budget, Job, Objective, ProgressMode, Report, Strategy};
use eggine::{Case, Engine};

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The ONNX file.
    model: PathBuf,
    /// The engine to write.
    #[arg(short, long, value_name = "ENGINE")]
    output: PathBuf,
    /// Device to verify and measure on: cpu, or cuda:N for a GPU; or model:CHIP (such as model:h200), to rank schedules by the
    /// static model of a chip that is not here: the budget counts schedules ranked, kernels are verified
    /// on the cpu device, and every time is predicted.
    #[arg(long, default_value = "cpu")]
    device: Place,
    /// A time (60s, 2m), a number of measurements, or 0: the first choice, verified but unmeasured.
    #[arg(long, default_value = "0", value_parser = super::parse_budget)]
    budget: Budget,
    /// Seed of the search and of the test inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Extents of an input, where the model leaves them open. May be repeated.
    #[arg(long = "shape", value_name = "NAME=EXTENTS", value_parser = super::parse_shape)]
    shapes: Vec<(String, Vec<usize>)>,
    /// Take the extents from the inputs of a case.
    #[arg(long, value_name = "CASE.npz")]
    shapes_from: Option<PathBuf>,
    /// Smallest extents to serve, as x:1x3x224x224,y:1x8; with --max-shapes. The result is a program: one
    /// file for all shapes of the range.
    #[arg(long, value_name = "SHAPES", value_parser = parse_shapes, requires = "max_shapes")]
    min_shapes: Option<Shapes>,
    /// Extents to tune for, inside of the range [default: the largest]. May be repeated.
    #[arg(long, value_name = "SHAPES", value_parser = parse_shapes, requires = "max_shapes")]
    opt_shapes: Vec<Shapes>,
    /// Largest extents to serve.
    #[arg(long, value_name = "SHAPES", value_parser = parse_shapes, requires = "min_shapes")]
    max_shapes: Option<Shapes>,
    /// Evidence database [default: eggine/evidence.sqlite in the user's cache folder].
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// Write the PTX of every kernel into this folder.
    #[arg(long, value_name = "DIR")]
    emit_ptx: Option<PathBuf>,
    /// Targets, separated by commas: the PTX is of the oldest, and where there is an assembler the engine
    /// has machine code for each [default: PTX for sm_80 alone; with a model of a chip, its code too].
    #[arg(long, value_name = "TARGETS")]
    target: Option<String>,
    /// Threads of the compiler; does not change the result [default: one per core].
    #[arg(long)]
    threads: Option<usize>,
    /// Threads of the cpu device; measurements with another number are other measurements [default: one
    /// per core].
    #[arg(long)]
    device_threads: Option<usize>,
    /// Allow rules that hold over the reals only.
    #[arg(long)]
    fast_math: bool,
    /// The agents of the search, separated by commas [default: all; see docs/agents].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    agents: Option<Vec<String>>,
    /// What the engine should be good at: `latency`, or `throughput` of one session per core with one
    /// thread each.
    #[arg(long, default_value = "latency", value_parser = ["latency", "throughput"])]
    objective: String,
    /// Who chooses what is tried: `swarm`, or `random` to compare with.
    #[arg(long, default_value = "swarm", value_parser = ["swarm", "random"])]
    strategy: String,
    /// Do not order the search by what earlier ones taught.
    #[arg(long)]
    no_lessons: bool,
    /// Learn from another evidence file than the one that is searched with.
    #[arg(long, value_name = "FILE", conflicts_with = "no_lessons")]
    lessons_from: Option<PathBuf>,
    /// Repeat a finished search decision by decision from its evidence instead of making its engine at
    /// once; the result is the same, byte for byte.
    #[arg(long)]
    replay: bool,
    /// Time for each race of whole engines; with 0 nothing is compared and the first choice is written.
    #[arg(long, value_name = "TIME", value_parser = super::parse_time)]
    race: Option<std::time::Duration>,
    /// Device memory that the engine may need beside its inputs and outputs, such as 512M.
    #[arg(long, value_name = "BYTES", value_parser = super::parse_bytes)]
    max_memory: Option<u64>,
    /// Largest error of a kernel, as a fraction of its derived bound.
    #[arg(long, value_name = "FRACTION", default_value_t = 1.0, value_parser = parse_fraction)]
    max_error: f64,
    /// Use the rules of this file, which are checked first; an untrue one is refused (exit 1). May be
    /// repeated.
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Apply the user's rules at most N times: the first N applications are the same in every run.
    #[arg(long, value_name = "N", requires = "rules")]
    rule_fuel: Option<u64>,
    /// Print where the user's rules were applied.
    #[arg(long, requires = "rules")]
    trace_rules: bool,
    /// Go on with a search that was interrupted or killed, and fail if there is none. Without it one goes
    /// on too where it was begun, and otherwise begins.
    #[arg(long)]
    resume: bool,
    /// Let a process take part in the search, such as "python3 my_agent.py"; see docs/external-agents.md.
    /// May be repeated.
    #[arg(long, value_name = "COMMAND")]
    agent: Vec<String>,
    /// How long such a process may take to answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    agent_timeout: u64,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Extents of several inputs, by name.
type Shapes = BTreeMap<String, Vec<usize>>;

/// `x:1x3x224x224,y:1x8`; a scalar is `x:`.
fn parse_shapes(text: &str) -> Result<Shapes, String> {
    let expected =
        || format!("expected NAME:EXTENTxEXTENTx…,… such as x:1x3x224x224, found `{text}`");
    let one = |part: &str| {
        let (name, extents) = part.rsplit_once(':').ok_or_else(expected)?;
        let extents = extents.split('x').filter(|it| !it.is_empty()).map(str::parse);
        let extents = extents.collect::<Result<_, _>>().map_err(|_| expected())?;
        Ok((name.to_owned(), extents))
    };
    text.split(',').map(one).collect()
}

/// Set by the first Ctrl-C; the second ends the process as usual.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if args.resume && args.budget == Budget::First {
        return Err(
            "--resume: a budget of 0 searches nothing; give the --budget of the search".into()
        );
    }
    if args.threads == Some(0) || args.device_threads == Some(0) {
        return Err("0 threads: at least one is needed".into());
    }
    let mut job = Job::new(&args.model);
    job.shapes = args.shapes.iter().cloned().collect();
    let case = args.shapes_from.as_deref().map(Case::read).transpose()?;
    let on_host = super::program::has_host_types(&args.model)?;
    if let Some(case) = case.as_ref().filter(|_| !on_host) {
        for (name, extents) in eggine::input_extents(&args.model, case)? {
            job.shapes.entry(name).or_insert(extents);
        }
    }
    (job.budget, job.seed) = (args.budget, args.seed);
    (job.threads, job.device_threads) = (args.threads, args.device_threads);
    match &args.device {
        Place::Device(device) => job.device = *device,
        Place::Model(chip) => {
            job.chip = Some(*chip);
            job.code.extend(chip.target());
        }
    }
    if let Some(text) = &args.target {
        job.code = eggine::search::parse_targets(text)?;
        let oldest = eggine::search::oldest(&job.code).ok_or("--target names no target")?;
        job.target = oldest.name().to_owned();
    }
    job.fast_math = args.fast_math;
    (job.agents, job.lessons) = (args.agents.clone(), !args.no_lessons);
    job.race = args.race;
    job.resume = args.resume;
    (job.replay, job.lessons_from) = (args.replay, args.lessons_from.clone());
    (job.max_memory_bytes, job.max_error) = (args.max_memory, args.max_error);
    if args.objective == "throughput" {
        job.objective = Objective::Throughput;
    }
    job.strategy = if args.strategy == "random" { Strategy::Random } else { Strategy::Swarm };
    job.evidence = evidence_path(args)?;
    match super::rules::load(&args.rules, job.fast_math)? {
        Some(rules) => job.rules = rules,
        None => return Ok(ExitCode::FAILURE),
    }
    if !args.agent.is_empty() && args.budget == Budget::First {
        return Err("--agent takes part in a search: give it a --budget".into());
    }
    job.external = args.agent.clone();
    job.external_timeout = std::time::Duration::from_secs(args.agent_timeout);
    job.rule_fuel = args.rule_fuel.map(Fuel);
    job.progress = if args.quiet { ProgressMode::Silent } else { ProgressMode::Auto };
    let handler = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("interrupted: writing the best engine so far (again to stop at once)");
    });
    handler.map_err(|err| format!("cannot catch interrupts: {err}"))?;
    let ranges = args.min_shapes.as_ref().zip(args.max_shapes.as_ref());
    let compiled = match ranges.is_some() || on_host {
        true => None,
        false => match eggine::search::compile(&job, &args.output, &INTERRUPTED) {
            Err(err) if super::program::is_for_programs(&err) => None,
            other => Some(other?),
        },
    };
    let Some(report) = compiled else {
        let points = super::program::points(&job, case.as_ref(), ranges, &args.opt_shapes)?;
        return super::program::compile(
            &job,
            &points,
            ranges,
            &args.output,
            args.json,
            &INTERRUPTED,
        );
    };
    if let Some(folder) = &args.emit_ptx {
        emit_ptx(&args.output, folder)?;
    }
    if args.trace_rules {
        report.rule_firings.iter().for_each(|firing| eprintln!("trace: {firing}"));
        eprintln!("trace: {} applications of the user's rules", report.rule_firings.len());
    }
    match args.json {
        true => super::print_json(&report)?,
        false => print(&report),
    }
    Ok(ExitCode::SUCCESS)
}

/// Where schedules are judged.
#[derive(Clone, Debug)]
enum Place {
    /// On a device of this machine.
    Device(DeviceSpec),
    /// By the static model of a chip.
    Model(Chip),
}

impl std::str::FromStr for Place {
    type Err = CliError;

    fn from_str(text: &str) -> Result<Self, CliError> {
        Ok(match text.strip_prefix("model:") {
            Some(chip) => Place::Model(Chip::gpu(chip)?),
            None => Place::Device(text.parse()?),
        })
    }
}

/// A number above 0, up to 1.
fn parse_fraction(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|it| *it > 0.0 && *it <= 1.0);
    number.ok_or_else(|| format!("expected a number above 0 and up to 1, found `{text}`"))
}

/// A search needs evidence; a first choice uses it only if asked to.
fn evidence_path(args: &Args) -> Result<Option<PathBuf>, CliError> {
    if args.evidence.is_some() || args.budget == Budget::First {
        return Ok(args.evidence.clone());
    }
    let path = super::default_evidence()
        .ok_or("no home folder for the evidence: name a file with --evidence")?;
    if let Some(folder) = path.parent() {
        let explain = |err| {
            format!(
                "cannot create `{}` for the evidence: {err}; name a file with --evidence",
                folder.display()
            )
        };
        std::fs::create_dir_all(folder).map_err(explain)?;
    }
    Ok(Some(path))
}

fn emit_ptx(engine: &std::path::Path, folder: &std::path::Path) -> Result<(), CliError> {
    let engine = Engine::open(engine)?;
    let explain =
        |err: std::io::Error| format!("cannot write PTX into `{}`: {err}", folder.display());
    std::fs::create_dir_all(folder).map_err(explain)?;
    for (idx, kernel) in engine.manifest.kernels.iter().enumerate() {
        std::fs::write(folder.join(format!("{}.ptx", kernel.name)), engine.ptx(idx))
            .map_err(explain)?;
    }
    Ok(())
}

fn print(report: &Report) {
    println!("{}", report.engine.display());
    println!(
        "  {} launches of {} kernels, {} nodes of the model",
        report.n_launches, report.n_kernels, report.n_model_nodes
    );
    println!("  arena {} bytes, weights {} bytes", report.arena_bytes, report.weights_bytes);
    if report.n_candidates > 0 {
        println!(
            "  {} candidates, {} measured now, {} rejected; {:.1} measured per second",
            report.n_candidates, report.n_measured, report.n_rejected, report.measured_per_second
        );
    }
    if let Some(resumed) = &report.resumed {
        println!("  resumed: {resumed}");
    }
    if !report.missed.is_empty() {
        println!("  measured anew: {}", report.missed.join("; "));
    }
    if let Some(predicted) = &report.predicted {
        println!(
            "  {} schedules ranked by the static model of {}: {:.3} ms predicted, nothing measured",
            predicted.n_ranked,
            predicted.chip,
            predicted.predicted_ns / 1e6
        );
        match &predicted.assembler {
            Some(assembler) => println!(
                "  the leading {} were predicted from machine code by {assembler}",
                predicted.n_assembled
            ),
            None => println!("  none was predicted from machine code: no assembler was found"),
        }
    }
    if let Some(code) = &report.machine_code {
        println!("  machine code: {code}");
    }
    if let Some(comparison) = &report.comparison {
        println!(
            "  time of the first choice ÷ time of this engine: {:.3} (95 % interval {:.3} to {:.3})",
            comparison.ratio, comparison.low, comparison.high
        );
    }
    for line in &report.constraints {
        println!("  {line}");
    }
    for agent in report.search.iter().flat_map(|search| &search.agents) {
        println!(
            "  {:<18} {:>5} proposed, {:>4} tried, {:>3} rejected, {:>3} better, {:.1} µs saved",
            agent.agent,
            agent.n_proposed,
            agent.n_judged,
            agent.n_rejected,
            agent.n_better,
            agent.saved_ns as f64 / 1e3
        );
    }
    report.external.iter().for_each(|line| println!("  {line}"));
    let spent: Vec<String> = (report.phases.phases.iter())
        .filter(|(_, seconds)| *seconds >= 0.005)
        .map(|(phase, seconds)| format!("{phase:?} {seconds:.2}").to_lowercase())
        .collect();
    println!(
        "  {:.2} s: {}, unattributed {:.2}",
        report.phases.total_s,
        spent.join(", "),
        report.phases.unattributed_s
    );
    if report.interrupted {
        println!("  interrupted: this is the best so far; the same command with --resume goes on");
    }
}
