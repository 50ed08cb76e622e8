//! Which of the models of `../shared/models` can have one engine for a range of shapes, and whether the padded
//! graph gives what the exact one gives, in `f64` with NaN where no element is: a line a model.
//!
//! `cargo run --release -p eggine-tests --example padded [-- MODEL ...]`. Needs `../shared`; no device.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use eggine_ir::onnx::{ImportOptions, Port, describe, import};
use eggine_ir::padded::Padded;
use eggine_ir::{Dim, Graph, Tensor};
use eggine_runtime::Case;

/// Sums in another order.
const TOLERANCE: f64 = 1e-9;

/// Models that evaluating in `f64` at larger shapes takes minutes for; only whether they can be padded is told.
const HEAVY: &[&str] = &["dnsmos_sig_bak_ovr", "ppocrv4_det", "tashkeel_rawi_v3_int8"];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/models");
    if !shared.is_dir() {
        return Err("there is no ../shared/models: nothing to look at".into());
    }
    let mut models: Vec<PathBuf> = std::fs::read_dir(shared.join("models"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    models.retain(|path| path.extension().is_some_and(|it| it == "onnx"));
    models.sort();
    let mut out = std::io::stdout();
    writeln!(out, "| model | nodes | padded | inputs added | difference, or why not |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    let (mut n_wide, mut n_refused, mut n_fixed, mut n_wrong) = (0, 0, 0, 0);
    for model in models {
        let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        match look(&model, &shared.join("refs"), HEAVY.contains(&name.as_str())) {
            Ok(None) => n_fixed += 1,
            Ok(Some(Look { nodes, padded, n_extra, difference })) => {
                n_wide += 1;
                let told = difference.map_or("not evaluated".into(), |it| format!("{it:.1e}"));
                let is_wrong = difference.is_some_and(|it| it > TOLERANCE);
                n_wrong += usize::from(is_wrong);
                let wrong = if is_wrong { " WRONG" } else { "" };
                writeln!(out, "| {name} | {nodes} | {padded} | {n_extra} | {told}{wrong} |")?;
            }
            Err(reason) => {
                n_refused += 1;
                let reason = reason.to_string();
                let line: String =
                    reason.lines().next().unwrap_or_default().chars().take(90).collect();
                writeln!(out, "| {name} | | | | {line} |")?;
            }
        }
    }
    writeln!(
        out,
        "\n{n_wide} models have one graph for a range, {n_refused} have none, {n_fixed} have fixed shapes; {n_wrong} are wrong"
    )?;
    Ok(if n_wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Look {
    nodes: usize,
    padded: usize,
    n_extra: usize,
    difference: Option<f64>,
}

type Shapes = BTreeMap<String, Vec<usize>>;

/// `None`: all shapes of the model are fixed.
fn look(model: &Path, refs: &Path, heavy: bool) -> Result<Option<Look>, Box<dyn Error>> {
    let ports = describe(model)?.inputs;
    let varies = |port: &Port| {
        port.shape
            .as_ref()
            .is_none_or(|shape| shape.0.iter().any(|dim| matches!(dim, Dim::Symbolic(_))))
    };
    if !ports.iter().any(varies) {
        return Ok(None);
    }
    let stem = model.file_stem().unwrap_or_default().to_string_lossy();
    let mut cases: Vec<Vec<Tensor>> = Vec::new();
    for n in 0..2 {
        let npz = refs.join(format!("{stem}.case{n}.npz"));
        if npz.exists() {
            let case = Case::read(&npz).map_err(|_| "a case that cannot be read")?;
            let inputs = ports.iter().enumerate().map(|(at, port)| case.input(at, &port.name));
            let inputs: Option<Vec<Tensor>> = inputs
                .collect::<Result<Option<Vec<&Tensor>>, _>>()
                .map_err(|_| "an input that is no tensor of numbers")?
                .map(|all| all.into_iter().cloned().collect());
            cases.push(inputs.ok_or("an input that is no tensor of numbers")?);
        }
    }
    let first = cases.first().ok_or("no case")?;
    let other =
        cases.get(1).filter(|other| other.iter().zip(first).any(|(a, b)| a.extents != b.extents));
    // Sums of two shapes: what is linear between extents of one shape is so there. Without a second shape a
    // larger batch.
    let most: Shapes = (ports.iter().enumerate())
        .map(|(at, port)| {
            let one = &first[at].extents;
            let sum = |(axis, &n): (usize, &usize)| match other.map(|other| other[at].extents[axis])
            {
                Some(m) if m != n => m + n,
                Some(_) => n,
                None => n + usize::from(axis == 0 && varies(port)),
            };
            (port.name.clone(), one.iter().enumerate().map(sum).collect())
        })
        .collect();
    let graph = |shapes: Shapes| -> Result<Graph, Box<dyn Error>> {
        Ok(import(model, &ImportOptions { shapes })?.graph)
    };
    let of = |inputs: &[Tensor]| -> Result<Graph, Box<dyn Error>> {
        graph(
            ports
                .iter()
                .zip(inputs)
                .map(|(port, x)| (port.name.clone(), x.extents.clone()))
                .collect(),
        )
    };
    let (most, less) = (graph(most)?, of(first)?);
    let padded = Padded::of(&most, &less)?;
    let mut difference = None;
    for inputs in cases.iter().filter(|_| !heavy) {
        let found = padded.difference(&of(inputs)?, inputs)?;
        difference = Some(difference.map_or(found, |known: f64| known.max(found)));
    }
    Ok(Some(Look {
        nodes: most.nodes.len(),
        padded: padded.graph.nodes.len(),
        n_extra: padded.n_extra(),
        difference,
    }))
}
