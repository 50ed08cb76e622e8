//! `eggine explain`.

use std::path::PathBuf;
use std::process::ExitCode;

use eggine::Engine;

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine.
    engine: PathBuf,
    /// Only this kernel.
    kernel: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let engine = Engine::open(&args.engine)?;
    let kernels = &engine.manifest.kernels;
    let wanted = |name: &str| args.kernel.as_deref().is_none_or(|kernel| kernel == name);
    if let Some(kernel) =
        args.kernel.as_deref().filter(|kernel| !kernels.iter().any(|it| it.name == *kernel))
    {
        let names: Vec<&str> = kernels.iter().map(|it| it.name.as_str()).collect();
        return Err(
            format!("the engine has no kernel `{kernel}`; it has {}", names.join(", ")).into()
        );
    }
    if args.kernel.is_none() {
        agents(&engine);
    }
    for (idx, record) in kernels.iter().enumerate().filter(|(_, record)| wanted(&record.name)) {
        println!("kernel {}", record.name);
        for step in engine.plan.steps.iter().filter(|step| step.kernel == idx) {
            println!("  computes {}", step.sources.join(", "));
        }
        println!("  rules, in order of application:");
        for (nth, rule) in record.rules.iter().enumerate() {
            println!("    {:>3}. {rule}", nth + 1);
        }
        println!("  region {}:", &record.region_hash[..16.min(record.region_hash.len())]);
        for line in record.region.lines() {
            println!("    {line}");
        }
        println!("  schedule {} (proposed by {})", record.schedule, record.agent);
        match (record.measured_ns, record.predicted_ns, &engine.manifest.predicted_for) {
            (Some(ns), ..) => println!("  {:.3} ms measured", ns / 1e6),
            (None, Some(ns), Some(chip)) => {
                println!("  {:.6} ms predicted for {chip}, not measured", ns / 1e6)
            }
            (None, Some(ns), None) => println!("  {:.3} ms predicted, not measured", ns / 1e6),
            (None, None, _) => {}
        }
        let verdict = record.verdict.as_deref().unwrap_or("not verified");
        match record.error_ratio {
            Some(ratio) => println!("  {verdict}: largest error {ratio:.3} of the bound\n"),
            None => println!("  {verdict}\n"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the agents did for the whole engine.
fn agents(engine: &Engine) {
    let manifest = &engine.manifest;
    for agent in &manifest.graph_agents {
        println!(
            "graph agent {:<12} {:>6} rule applications proposed, {:>6} applied",
            agent.agent, agent.n_proposed, agent.n_applied
        );
    }
    for agent in &manifest.agents {
        println!(
            "agent {:<18} {:>5} proposed, {:>4} tried, {:>3} rejected, {:>3} better, {:.1} µs saved",
            agent.agent,
            agent.n_proposed,
            agent.n_judged,
            agent.n_rejected,
            agent.n_better,
            agent.saved_ns as f64 / 1e3
        );
    }
    println!();
}
