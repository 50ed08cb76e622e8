//! `eggine inspect`.

use std::path::PathBuf;
use std::process::ExitCode;

use eggine::Engine;
use serde_json::json;

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine.
    engine: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if eggine::runtime::program::is_program(&args.engine) {
        return super::program::inspect(&args.engine, args.json);
    }
    let engine = Engine::open(&args.engine)?;
    let manifest = &engine.manifest;
    if args.json {
        super::print_json(&json!({
            "file": args.engine,
            "hash": engine.hash(),
            "file_bytes": engine.file_bytes(),
            "sections": engine.section_bytes(),
            "inputs": engine.inputs(),
            "outputs": engine.outputs(),
            "manifest": manifest,
            "steps": engine.plan.steps,
            "report": engine.report()?,
            "evidence": engine.evidence()?,
            "steps_of_sources": engine.steps_of_sources()?,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "model    {} ({} nodes), made by eggine {}",
        manifest.model, manifest.n_model_nodes, manifest.eggine_version
    );
    let measured = match (&manifest.device, &manifest.predicted_for) {
        (Some(device), _) => format!("measured on {device}"),
        (None, Some(chip)) => format!("predicted for {chip}: nothing was measured"),
        (None, None) => "measured on none: times are predicted".into(),
    };
    println!("target   {}, {measured}", manifest.target);
    if let Some(assembler) = &manifest.predicted_with {
        println!("         predicted from machine code by {assembler}");
    }
    for code in &manifest.code {
        let n_bytes: u64 = code.cubin_bytes.iter().sum();
        println!("code     {}, {n_bytes} bytes by {}", code.target, code.assembler);
    }
    for (kind, specs) in [("input", engine.inputs()), ("output", engine.outputs())] {
        for spec in specs {
            println!("{kind:<8} {spec}");
        }
    }
    let arena = manifest.arena;
    println!(
        "memory   arena {} bytes (live peak {}, without reuse {}), weights {} bytes",
        arena.arena_bytes, arena.live_peak_bytes, arena.sum_bytes, engine.plan.weights_bytes
    );
    println!(
        "steps    {} launches of {} kernels",
        engine.plan.steps.len(),
        engine.plan.kernels.len()
    );
    for (kernel, record) in manifest.kernels.iter().enumerate() {
        let n_launches = engine.plan.steps.iter().filter(|step| step.kernel == kernel).count();
        let time = match (record.measured_ns, record.predicted_ns) {
            (Some(ns), _) => format!("{:.3} ms measured", ns / 1e6),
            (None, Some(ns)) => match &manifest.predicted_for {
                Some(chip) => format!("{:.6} ms predicted for {chip}", ns / 1e6),
                None => format!("{:.3} ms predicted", ns / 1e6),
            },
            (None, None) => "no time known".into(),
        };
        let verdict = record.verdict.as_deref().unwrap_or("not verified");
        println!("\n{} × {n_launches}: {}, {time}, {verdict}", record.name, record.schedule);
    }
    println!();
    for (idx, step) in engine.plan.steps.iter().enumerate() {
        println!(
            "step {idx:<3} {:<14} {}",
            engine.plan.kernels[step.kernel].entry,
            step.sources.join(" ")
        );
    }
    Ok(ExitCode::SUCCESS)
}
