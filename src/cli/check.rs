//! `eggine check`.

use std::path::PathBuf;
use std::process::ExitCode;

use eggine::Case;
use eggine::ir::onnx::ImportOptions;
use eggine::ir::onnx::Unsupported;
use eggine::ir::onnx::survey::{Survey, Tier, survey};
use serde_json::json;

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The ONNX file.
    model: PathBuf,
    /// Extents of an input, where the model leaves them open. May be repeated.
    #[arg(long = "shape", value_name = "NAME=EXTENTS", value_parser = super::parse_shape)]
    shapes: Vec<(String, Vec<usize>)>,
    /// Take the extents from the inputs of a case.
    #[arg(long, value_name = "CASE.npz")]
    shapes_from: Option<PathBuf>,
    /// Print all nodes of each trap, not the first few.
    #[arg(long)]
    all: bool,
    /// Print one JSON object; see docs/check.md.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let mut options = ImportOptions { shapes: args.shapes.iter().cloned().collect() };
    if let Some(path) = &args.shapes_from {
        for (name, extents) in eggine::input_extents(&args.model, &Case::read(path)?)? {
            options.shapes.entry(name).or_insert(extents);
        }
    }
    let found = survey(&args.model, &options)?;
    match args.json {
        true => super::print_json(&as_json(args, &found))?,
        false => print(args, &found),
    }
    Ok(if found.covered() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn as_json(args: &Args, found: &Survey) -> serde_json::Value {
    let ports = |ports: &[eggine::ir::onnx::Port]| -> Vec<_> {
        ports.iter().map(|it| json!({ "name": it.name, "type": it.type_text() })).collect()
    };
    json!({
        "model": args.model,
        "covered": found.covered(),
        "as": match (found.covered(), found.is_program()) {
            (false, _) => None,
            (_, true) => Some("program"),
            _ => Some("engine"),
        },
        "producer": found.model.producer,
        "opsets": found.opsets.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "n_nodes": found.n_nodes,
        "n_core_ops": found.n_core_ops,
        "constant_bytes": found.constant_bytes,
        "inputs": ports(&found.inputs),
        "outputs": ports(&found.outputs),
        "dynamic_dimensions": found.dynamic,
        "assumed_shapes": found.tried,
        "n_assumptions_tried": found.n_tried,
        "operators": found.operators,
        "unsupported": found.unsupported,
        "failure": found.failure.as_ref().map(ToString::to_string),
        "run_time_decisions": found.places,
        "host": host(found).collect::<Vec<_>>(),
        "traps": found.traps,
    })
}

/// Nodes that are left to the host of a program.
fn host(found: &Survey) -> impl Iterator<Item = &Unsupported> {
    found.unsupported.iter().filter(|it| it.at_run_time)
}

fn print(args: &Args, found: &Survey) {
    let opsets: Vec<String> =
        found.opsets.iter().map(|(domain, version)| format!("{domain} {version}")).collect();
    let producer = if found.model.producer.is_empty() { "unknown" } else { &found.model.producer };
    println!("{}", args.model.display());
    println!("  {} nodes, opset {}, made by {producer}", found.n_nodes, opsets.join(", "));
    let names = |ports: &[eggine::ir::onnx::Port]| {
        ports.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    println!("  inputs    {}", names(&found.inputs));
    println!("  outputs   {}", names(&found.outputs));
    if !found.tried.is_empty() {
        let shapes: Vec<String> = (found.tried.iter())
            .map(|(name, extents)| {
                let extents: Vec<String> = extents.iter().map(usize::to_string).collect();
                format!("{name}={}", extents.join(","))
            })
            .collect();
        println!(
            "  dynamic   {} dimensions without a number; import was tried with {} (pass --shape or \
             --shapes-from for others)",
            found.dynamic.len(),
            shapes.join(" ")
        );
    } else if !found.dynamic.is_empty() {
        println!("  dynamic   {} dimensions without a number in the model", found.dynamic.len());
    }
    println!("  operators, with the share of models that need no rarer ones:");
    for tier in
        [Tier::Half, Tier::Eighty, Tier::NinetyFive, Tier::NinetyNine, Tier::All, Tier::Rare]
    {
        let row: Vec<String> = (found.operators.iter())
            .filter(|it| it.tier == tier)
            .map(|it| {
                let domain = match it.domain.as_str() {
                    "ai.onnx" => String::new(),
                    other => format!("{other}."),
                };
                let mark = if it.known { "" } else { " (unknown)" };
                format!("{domain}{} ×{}{mark}", it.op, it.n)
            })
            .collect();
        if !row.is_empty() {
            println!("    {:<5} {}", tier.to_string(), row.join(", "));
        }
    }
    if !found.places.is_empty() {
        println!("  decided while the model runs:");
        for place in &found.places {
            println!("    {} ({}): {}", place.node, place.op, place.what);
        }
    }
    if !found.traps.is_empty() {
        println!("  traps, where runtimes differ:");
        for it in &found.traps {
            let n_shown = if args.all { it.nodes.len() } else { it.nodes.len().min(3) };
            let more = match it.nodes.len() - n_shown {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            println!("    {}: {}", it.trap, it.says);
            println!("      at {}{more}", it.nodes[..n_shown].join(", "));
        }
    }
    if found.is_program() {
        println!("  covered, as a program of several engines; left to the host:");
        host(found).for_each(|it| println!("    {it}"));
        println!(
            "    (of nodes that read their results only the operator is looked at, not its form)"
        );
        if found.takes_strings {
            println!(
                "    strings: import needs the inputs of a run (`eggine compile --shapes-from`)"
            );
        }
        return;
    }
    if let (Some(n_core), Some(n_bytes)) = (found.n_core_ops, found.constant_bytes) {
        println!("  covered: {n_core} core operators after folding, {n_bytes} bytes of constants");
        return;
    }
    println!("  NOT covered:");
    for it in found.unsupported.iter().filter(|it| !it.at_run_time) {
        println!("    {it}");
    }
    if let Some(failure) = &found.failure {
        println!("    {failure}");
        if found.n_tried > 1 {
            println!(
                "    with each of {} assumed shapes; the model may work with others: pass --shape",
                found.n_tried
            );
        }
    }
}
