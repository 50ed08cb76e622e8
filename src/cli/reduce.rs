//! `eggine reduce`.

mod shrink;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use eggine::ir::NodeKind;
use eggine::ir::onnx::part::{Model, name_of};
use eggine::ir::onnx::proto::{
    DimensionProto, ModelProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use eggine::ir::onnx::survey::survey_bytes;
use eggine::ir::onnx::{ImportOptions, import_bytes};
use prost::Message as _;
use serde_json::json;

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The ONNX file that fails.
    model: PathBuf,
    /// Command that says whether a model still fails: it is run by the shell with `{}` replaced by the
    /// model's path, which is in $EGGINE_MODEL too. Exit status 0: it works; any other: it still fails.
    #[arg(long, value_name = "CMD")]
    check: String,
    /// Only this exit status means that the model still fails; a candidate with another is not taken. May
    /// be repeated.
    #[arg(long, value_name = "STATUS")]
    fail_code: Vec<i32>,
    /// The smallest failing model found, written whenever one is found [default: MODEL.reduced.onnx].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Runs of the command at most.
    #[arg(long, default_value_t = 1000)]
    max_checks: usize,
    /// Do not say what is tried.
    #[arg(long, short)]
    quiet: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let bytes = Model::open(&args.model)?.to_bytes()?;
    let model = ModelProto::decode(bytes.as_slice())?;
    let output = args.output.clone().unwrap_or_else(|| args.model.with_extension("reduced.onnx"));
    let folder = tempfile::tempdir()?;
    let mut checks = Checks {
        args,
        candidate: folder.path().join("candidate.onnx"),
        known: BTreeMap::new(),
        n_run: 0,
        last: None,
    };
    if !checks.fails(&model)? {
        return Err(format!(
            "the check does not fail on `{}` itself (its exit status is {}; {}): there is nothing to reduce",
            args.model.display(),
            checks.last.map_or_else(|| "none".to_owned(), |code| code.to_string()),
            checks.convention()
        )
        .into());
    }
    let types = types_of(&model, &bytes);
    let before = shrink::size(&model);
    let mut best = model.clone();
    write(&output, &best)?;
    let reduced = shrink::shrink(&model, &types, &mut |candidate, what| {
        if checks.n_run >= args.max_checks || !checks.fails(candidate)? {
            return Ok(false);
        }
        if !args.quiet {
            let (n_nodes, n_bytes) = shrink::size(candidate);
            eprintln!("{n_nodes} nodes, {n_bytes} bytes: {what}");
        }
        best = candidate.clone();
        write(&output, &best)?;
        Ok(true)
    })?;
    let after = shrink::size(&reduced);
    if args.json {
        super::print_json(&json!({
            "model": args.model, "reduced": output, "n_checks": checks.n_run,
            "before": { "nodes": before.0, "bytes": before.1 },
            "after": { "nodes": after.0, "bytes": after.1 },
        }))?;
    } else {
        println!("{}", output.display());
        println!(
            "  {} nodes of {}, {} bytes of {}, {} runs of the check",
            after.0, before.0, after.1, before.1, checks.n_run
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, model: &ModelProto) -> Result<(), CliError> {
    let failed = |err| format!("cannot write `{}`: {err}", path.display());
    Ok(std::fs::write(path, model.encode_to_vec()).map_err(failed)?)
}

/// The user's command, and what it said of each candidate.
struct Checks<'a> {
    args: &'a Args,
    candidate: PathBuf,
    known: BTreeMap<Vec<u8>, bool>,
    n_run: usize,
    /// Exit status of the last run.
    last: Option<i32>,
}

impl Checks<'_> {
    fn convention(&self) -> String {
        match self.args.fail_code.as_slice() {
            [] => "exit status 0 means that a model works".into(),
            codes => format!("only exit status {codes:?} means that it still fails"),
        }
    }

    fn fails(&mut self, model: &ModelProto) -> Result<bool, CliError> {
        let bytes = model.encode_to_vec();
        if let Some(&known) = self.known.get(&bytes) {
            return Ok(known);
        }
        let failed = |err| format!("cannot write `{}`: {err}", self.candidate.display());
        std::fs::write(&self.candidate, &bytes).map_err(failed)?;
        let path = self.candidate.display().to_string();
        let command = self.args.check.replace("{}", &path);
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).env("EGGINE_MODEL", &path);
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = shell.status().map_err(|err| format!("cannot run `{command}`: {err}"))?;
        self.n_run += 1;
        self.last = status.code();
        // A process that a signal ended has no status: it crashed.
        let fails = match (status.code(), self.args.fail_code.as_slice()) {
            (code, []) => code != Some(0),
            (Some(code), codes) => codes.contains(&code),
            (None, _) => true,
        };
        // Candidates are small when there are many; large ones are not worth keeping.
        if bytes.len() < 1 << 20 {
            self.known.insert(bytes, fails);
        }
        Ok(fails)
    }
}

/// Types of the values of the main graph: what the model says, and what import infers where it can.
fn types_of(model: &ModelProto, bytes: &[u8]) -> BTreeMap<String, ValueInfoProto> {
    let mut types = BTreeMap::new();
    let Some(graph) = &model.graph else { return types };
    let Ok(found) = survey_bytes(bytes.to_vec(), &ImportOptions::default()) else { return types };
    let options = ImportOptions { shapes: found.tried };
    if let Ok(imported) = import_bytes(bytes.to_vec(), &options) {
        let mut of_node: BTreeMap<&str, &eggine::TensorType> = BTreeMap::new();
        for node in imported.graph.nodes.values() {
            if matches!(node.kind, NodeKind::Apply(..)) {
                of_node.extend(node.sources.iter().map(|source| (source.as_str(), &node.ty)));
            }
        }
        for node in &graph.node {
            // A node with several results says nothing about which is which.
            let ([name], Some(ty)) = (&node.output[..], of_node.get(name_of(node).as_str())) else {
                continue;
            };
            types.insert(name.clone(), value_info(name, ty));
        }
    }
    for info in graph.value_info.iter().chain(&graph.output) {
        let (Some(name), Some(ty)) = (&info.name, &info.r#type) else { continue };
        if ty.tensor_type.as_ref().is_some_and(|it| it.shape.is_some()) {
            types.entry(name.clone()).or_insert_with(|| info.clone());
        }
    }
    types
}

fn value_info(name: &str, ty: &eggine::TensorType) -> ValueInfoProto {
    let dim = |&n: &usize| DimensionProto { dim_value: Some(n as i64), dim_param: None };
    let dims = ty.extents().iter().map(dim).collect();
    let tensor_type = Some(TensorTypeProto {
        elem_type: Some(ty.dtype.onnx_code()),
        shape: Some(TensorShapeProto { dim: dims }),
    });
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }),
    }
}
