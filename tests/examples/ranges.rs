//! Programs compiled once for a range of shapes, on every case and on ten random shapes of the range:
//! `cargo run --release -p eggine-tests --example ranges [NAME…]`. Needs `../shared/models`.
//!
//! Cases are held against their references, random shapes against the f64 oracle, both within 1e-4 of the
//! largest magnitude. Prints a table; ends with 1 if anything differs.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use eggine::runtime::device::{CpuDevice, CpuOptions};
use eggine::runtime::program::{DimRange, HostValue, InputRange, Program, Session};
use eggine::runtime::{Device, IoSpec};
use eggine::search::{Job, Specialiser, SplitMix, compile_program, random_input};
use eggine::{Case, compare_outputs};
use eggine_ir::Tensor;
use eggine_ir::graph::eval::{Rounding, eval};
use eggine_ir::onnx::part::Model;
use eggine_ir::onnx::proto::{ModelProto, TensorProto};
use eggine_ir::onnx::{ImportOptions, import_bytes};
use prost::Message;

const TOLERANCE: f64 = 1e-4;
const N_SHAPES: usize = 10;

static NEVER: AtomicBool = AtomicBool::new(false);

/// A model with the ranges of its symbols, and its inputs' extents in terms of them: a number, a symbol,
/// or a sum of two. A choice `a/b` goes with the symbol `which`, which is 0 or 1.
struct Row {
    model: &'static str,
    symbols: &'static [(&'static str, usize, usize)],
    inputs: &'static [(&'static str, &'static str)],
    /// An input that is one number, by `which`.
    number: Option<(&'static str, [i64; 2])>,
}

const ROWS: &[Row] = &[
    Row {
        model: "bert_encoder.legacy",
        symbols: &[("b", 1, 3), ("n", 1, 40)],
        inputs: &[("input_ids", "b,n"), ("attention_mask", "b,n"), ("token_type_ids", "b,n")],
        number: None,
    },
    Row {
        model: "gpt2_decode_kv.dynamo",
        symbols: &[("b", 1, 3), ("n", 1, 4), ("p", 1, 30)],
        inputs: &[
            ("input_ids", "b,n"),
            ("attention_mask", "b,p+n"),
            ("position_ids", "b,n"),
            ("past.0.key", "b,4,p,24"),
            ("past.0.value", "b,4,p,24"),
            ("past.1.key", "b,4,p,24"),
            ("past.1.value", "b,4,p,24"),
        ],
        number: None,
    },
    Row {
        model: "llama_decode_kv.legacy",
        symbols: &[("b", 1, 3), ("n", 1, 4), ("p", 1, 30)],
        inputs: &[
            ("input_ids", "b,n"),
            ("attention_mask", "b,p+n"),
            ("position_ids", "b,n"),
            ("past.0.key", "b,2,p,16"),
            ("past.0.value", "b,2,p,16"),
            ("past.1.key", "b,2,p,16"),
            ("past.1.value", "b,2,p,16"),
        ],
        number: None,
    },
    Row {
        model: "whisper_decoder_kv.dynamo",
        symbols: &[("b", 1, 3), ("p", 1, 30)],
        inputs: &[
            ("input_ids", "b,1"),
            ("position_ids", "b,1"),
            ("past.0.self.key", "b,4,p,24"),
            ("past.0.self.value", "b,4,p,24"),
            ("past.0.cross.key", "b,4,50,24"),
            ("past.0.cross.value", "b,4,50,24"),
            ("past.1.self.key", "b,4,p,24"),
            ("past.1.self.value", "b,4,p,24"),
            ("past.1.cross.key", "b,4,50,24"),
            ("past.1.cross.value", "b,4,50,24"),
        ],
        number: None,
    },
    Row {
        model: "resnet50.legacy",
        symbols: &[("b", 1, 12)],
        inputs: &[("input", "b,3,64,64")],
        number: None,
    },
    Row {
        model: "silero_vad",
        symbols: &[("b", 1, 8), ("which", 0, 1)],
        inputs: &[("input", "b,576/288"), ("state", "2,b,128"), ("sr", "")],
        number: Some(("sr", [16_000, 8_000])),
    },
];

type Symbols = BTreeMap<&'static str, usize>;

fn extents(text: &str, symbols: &Symbols) -> Vec<usize> {
    let term = |text: &str| text.parse().unwrap_or_else(|_| symbols[text]);
    let one = |text: &str| match text.split_once('/') {
        Some((a, b)) => term(if symbols["which"] == 0 { a } else { b }),
        None => text.split('+').map(term).sum(),
    };
    text.split(',').filter(|it| !it.is_empty()).map(one).collect()
}

fn device() -> Result<Box<dyn Device>, eggine_runtime::DeviceError> {
    Ok(Box::new(CpuDevice::new(CpuOptions::default())))
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/models");
    if !shared.is_dir() {
        return Err("there is no ../shared/models: nothing to run".into());
    }
    let mut out = std::io::stdout();
    let mut log = std::io::stderr();
    writeln!(out, "| model | inputs | against | error | engines made | first s | again ms |")?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    let (mut n_runs, mut n_wrong) = (0, 0);
    for row in ROWS {
        if wanted.is_empty() || wanted.iter().any(|name| name == row.model) {
            let (runs, wrong) = check(row, &shared, &mut out, &mut log)?;
            (n_runs, n_wrong) = (n_runs + runs, n_wrong + wrong);
        }
    }
    writeln!(out, "\n{n_runs} runs, {n_wrong} differ")?;
    Ok(if n_wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(
    row: &Row,
    shared: &Path,
    out: &mut std::io::Stdout,
    log: &mut std::io::Stderr,
) -> Result<(usize, usize), Box<dyn Error>> {
    let onnx = shared.join(format!("models/{}.onnx", row.model));
    let model = Model::open(&onnx)?;
    let ports = model.description().inputs;
    let at = |which: fn(&(&'static str, usize, usize)) -> usize| -> Symbols {
        row.symbols.iter().map(|symbol| (symbol.0, which(symbol))).collect()
    };
    let (least, most) = (at(|it| it.1), at(|it| it.2));
    let mut ranges = Vec::new();
    for (name, text) in row.inputs {
        let ends = extents(text, &least).into_iter().zip(extents(text, &most));
        let dims = ends.map(|(a, b)| DimRange { min: a.min(b), max: a.max(b) }).collect();
        ranges.push(InputRange { name: (*name).to_owned(), dims: Some(dims) });
    }
    let draw = |symbols: &Symbols, seed: u64| -> Vec<Tensor> {
        let one = |port: &eggine_ir::onnx::Port| {
            let text = row.inputs.iter().find(|it| it.0 == port.name).map_or("", |it| it.1);
            let extents = extents(text, symbols);
            match row.number.filter(|number| number.0 == port.name) {
                Some((_, numbers)) => Tensor::i64(&extents, &[numbers[symbols["which"]]]),
                None => {
                    let dtype = port.dtype.unwrap_or(eggine_ir::DType::F32);
                    random_input(&IoSpec { name: port.name.clone(), dtype, extents }, seed)
                }
            }
        };
        ports.iter().map(one).collect()
    };
    let values = |tensors: &[Tensor]| -> Vec<HostValue> {
        tensors.iter().cloned().map(HostValue::from).collect()
    };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("model.program");
    // A number that decides the course: a point for each.
    let mut points = vec![values(&draw(&most, 0))];
    if row.number.is_some() {
        let mut other = most.clone();
        other.insert("which", 0);
        points.push(values(&draw(&other, 0)));
    }
    let report = compile_program(&Job::new(&onnx), &points, ranges, &file, &NEVER)?;
    report.wide.iter().try_for_each(|line| writeln!(log, "{}: {line}", row.model))?;
    let program = Program::open(&file)?;
    let names: Vec<String> =
        model.description().outputs.into_iter().map(|port| port.name).collect();
    let mut session = Session::new(program, device, Specialiser::new(Job::new(row.model), &NEVER));
    let (mut n_runs, mut n_wrong) = (0, 0);
    let mut judge = |inputs: Vec<Tensor>,
                     case: Case,
                     against: &str|
     -> Result<(), Box<dyn Error>> {
        let before = session.made().len();
        let started = Instant::now();
        let outputs = session.run(&values(&inputs))?;
        let first_s = started.elapsed().as_secs_f64();
        let started = Instant::now();
        session.run(&values(&inputs))?;
        let again_ms = started.elapsed().as_secs_f64() * 1e3;
        let outputs: Vec<Tensor> = outputs.iter().filter_map(|it| it.tensor().cloned()).collect();
        let spec = |(name, tensor): (&String, &Tensor)| IoSpec {
            name: name.clone(),
            dtype: tensor.dtype,
            extents: tensor.extents.clone(),
        };
        let specs: Vec<IoSpec> = names.iter().zip(&outputs).map(spec).collect();
        let found = compare_outputs(&specs, &outputs, &case.expected(&specs)?, TOLERANCE);
        let worst = found.outputs.iter().map(|it| it.max_relative).fold(0.0, f64::max);
        let types: Vec<String> = inputs.iter().take(3).map(|it| it.ty().to_string()).collect();
        n_runs += 1;
        n_wrong += usize::from(!found.agrees);
        let verdict = if found.agrees { "" } else { " DIFFERS" };
        writeln!(
            out,
            "| {} | {} | {against} | {worst:.1e}{verdict} | {} | {first_s:.2} | {again_ms:.1} |",
            row.model,
            types.join(" "),
            session.made().len() - before,
        )?;
        Ok(())
    };
    for n in 0.. {
        let npz = shared.join(format!("refs/{}.case{n}.npz", row.model));
        if !npz.exists() {
            break;
        }
        let case = Case::read(&npz)?;
        let mut inputs = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let array = case.input(index, &port.name)?;
            inputs.push(array.ok_or_else(|| format!("no input {}", port.name))?.clone());
        }
        judge(inputs, case, &format!("case {n}"))?;
    }
    let mut random = SplitMix(20_261_130);
    for nth in 0..N_SHAPES {
        let number = |&(name, least, most): &(&'static str, usize, usize)| {
            (name, least + (random.next_u64() % (most - least + 1) as u64) as usize)
        };
        let symbols: Symbols = row.symbols.iter().map(number).collect();
        let inputs = draw(&symbols, nth as u64 + 1);
        let expected = oracle(row, &onnx, &inputs)?;
        let named = names.iter().cloned().zip(expected);
        judge(inputs, Case::from_arrays("oracle", named), "oracle")?;
    }
    Ok((n_runs, n_wrong))
}

/// What the reference evaluator gives. An input that decides the course is made a constant first.
fn oracle(row: &Row, onnx: &Path, inputs: &[Tensor]) -> Result<Vec<Tensor>, Box<dyn Error>> {
    let mut model = ModelProto::decode(Model::open(onnx)?.to_bytes()?.as_slice())?;
    let graph = model.graph.as_mut().ok_or("a model has a graph")?;
    let mut shapes = BTreeMap::new();
    let mut left = Vec::new();
    for (info, tensor) in graph.input.clone().into_iter().zip(inputs) {
        let name = info.name.clone().unwrap_or_default();
        if row.number.is_some_and(|number| number.0 == name) {
            graph.input.retain(|it| it.name != info.name);
            graph.initializer.push(TensorProto {
                name: Some(name),
                dims: tensor.extents.iter().map(|&n| n as i64).collect(),
                data_type: Some(tensor.dtype.onnx_code()),
                raw_data: Some(tensor.bytes.clone()),
                ..TensorProto::default()
            });
        } else {
            shapes.insert(name, tensor.extents.clone());
            left.push(tensor.clone());
        }
    }
    let imported = import_bytes(model.encode_to_vec(), &ImportOptions { shapes })?;
    let outputs = eval(&imported.graph, &left, Rounding::None);
    Ok(outputs.iter().map(|array| array.to_tensor()).collect())
}
