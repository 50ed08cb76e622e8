//! Real models, end to end: compiled at budget 0 (every kernel verified), run on the cpu device, compared
//! with their references.
//!
//! The models that the repository ships always run. Those of `../shared/models` are extra: without that
//! folder each is listed as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a panic is how a test fails, a skip is said aloud"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use eggine::runtime::device::Checking;
use eggine::search::{Job, compile};
use eggine::{Case, CpuDevice, CpuOptions, Engine, Session, compare_outputs, input_extents};
use libtest_mimic::{Arguments, Failed, Trial};

/// Models of `../shared/models` that take little time to compile, their cases and tolerances
/// (`MANIFEST.tsv`). `cargo xtask models` does all of them.
#[rustfmt::skip] // One model per row.
const SHARED: &[(&str, usize, f64)] = &[
    ("mtcnn_pnet", 2, 1e-4), ("mtcnn_rnet", 1, 1e-4), ("mtcnn_onet", 1, 1e-4), ("ppocr_cls", 2, 1e-4),
    ("oww_embedding", 2, 1e-4), ("dnsmos_sig_bak_ovr", 1, 1e-4), ("resnet50.legacy", 2, 1e-4),
    ("bert_encoder.legacy", 2, 1e-4), ("whisper_encoder.legacy", 2, 1e-4),
    ("dit_transformer.legacy", 2, 1e-4), ("hifigan.legacy", 2, 1e-4),
    // A decoder with a cache, relative positions, an inverse Fourier transform, a branch, half floats.
    ("gpt2_decode_kv.dynamo", 2, 1e-4), ("t5_encoder.legacy", 2, 1e-4), ("vocos_istft.dynamo", 2, 1e-4),
    ("wav2vec2_ctc.legacy", 2, 1e-4), ("cond_branch.dynamo", 2, 1e-4), ("surfaces_gbr", 1, 1e-4),
    ("oobleck_decoder.dynamo", 1, 1e-4), ("hifigan_fp16.legacy", 1, 5e-3),
    // Quantised.
    ("bert_int8_dynamic", 2, 2e-2), ("resnet_int8_qdq", 1, 2e-2), ("llama_int4_matmulnbits", 2, 2e-2),
];

const TOLERANCE: f64 = 1e-4;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn main() {
    let args = Arguments::from_args();
    let mut trials = Vec::new();
    for model in ["resnet50", "bert_encoder", "dit_transformer"] {
        for case in 0..2 {
            let folder = root().join("examples/models");
            let (onnx, npz) = (
                folder.join(format!("{model}.onnx")),
                folder.join(format!("{model}.case{case}.npz")),
            );
            trials.push(Trial::test(format!("examples/{model}/case{case}"), move || {
                agrees(&onnx, &npz, TOLERANCE)
            }));
        }
    }
    let onnx = root().join("examples/models/resnet50.onnx");
    let npz = root().join("examples/models/resnet50.case0.npz");
    trials.push(Trial::test("the_harness_can_fail", move || match agrees(&onnx, &npz, 0.0) {
        Err(_) => Ok(()),
        Ok(()) => Err("no f32 engine agrees exactly".into()),
    }));
    let shared = root().join("../shared/models");
    if !shared.is_dir() {
        eprintln!("the tests under shared/ are skipped: there is no ../shared/models");
    }
    for &(model, n_cases, tolerance) in SHARED {
        for case in 0..n_cases {
            let onnx = shared.join(format!("models/{model}.onnx"));
            let npz = shared.join(format!("refs/{model}.case{case}.npz"));
            let missing = !onnx.exists();
            let test = Trial::test(format!("shared/{model}/case{case}"), move || {
                agrees(&onnx, &npz, tolerance)
            });
            trials.push(test.with_ignored_flag(missing));
        }
    }
    libtest_mimic::run(&args, trials).exit();
}

fn agrees(onnx: &Path, npz: &Path, tolerance: f64) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.engine");
    let case = Case::read(npz)?;
    let job = Job { shapes: input_extents(onnx, &case)?.into_iter().collect(), ..Job::new(onnx) };
    compile(&job, &path, &AtomicBool::new(false))?;
    let engine = Engine::open(&path)?;
    let (inputs, expected) = (case.inputs(engine.inputs())?, case.expected(engine.outputs())?);
    let small = inputs.iter().map(|input| input.n_elems()).sum::<usize>() < 100_000;
    // The same engine in checking mode: no kernel may be reported. Large inputs would take minutes.
    for checking in
        if small { &[Checking::Bounds, Checking::Everything][..] } else { &[Checking::Bounds] }
    {
        let device = CpuDevice::new(CpuOptions { checking: *checking, ..CpuOptions::default() });
        let outputs = Session::new(Box::new(device), &engine)?.run(&inputs)?;
        let comparison = compare_outputs(engine.outputs(), &outputs, &expected, tolerance);
        if !comparison.agrees {
            return Err(format!("{checking:?}: {comparison:#?}").into());
        }
    }
    Ok(())
}
