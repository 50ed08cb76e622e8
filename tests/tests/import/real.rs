//! Real models: import with the shapes of each case, and the oracle against the reference outputs.

use std::collections::BTreeMap;
use std::path::Path;

use eggine_ir::graph::eval::{Rounding, eval};
use eggine_ir::onnx::{ImportOptions, describe, import};
use eggine_ir::{DType, NodeKind, Tensor};

/// The models of issue 2.
const MODELS: [&str; 11] = [
    "mtcnn_pnet",
    "mtcnn_rnet",
    "mtcnn_onet",
    "ppocr_cls",
    "oww_embedding",
    "dnsmos_sig_bak_ovr",
    "resnet50.legacy",
    "bert_encoder.legacy",
    "whisper_encoder.legacy",
    "dit_transformer.legacy",
    "hifigan.legacy",
];

/// The arrays of an `.npz` file.
fn read_npz(path: &Path) -> BTreeMap<String, Tensor> {
    use std::io::Read;
    let mut archive = npyz::npz::NpzArchive::open(path).unwrap();
    let names: Vec<String> = archive.array_names().map(str::to_owned).collect();
    let mut arrays = BTreeMap::new();
    for name in names {
        let header = archive.by_name(&name).unwrap().unwrap();
        let extents: Vec<usize> = header.shape().iter().map(|&n| n as usize).collect();
        assert_eq!(header.order(), npyz::Order::C, "{name}");
        let dtype = match header.dtype().descr().trim_matches('\'') {
            "<f4" => DType::F32,
            "<i8" => DType::I64,
            "<i4" => DType::I32,
            other => panic!("{}: {name} is {other}", path.display()),
        };
        drop(header);
        let mut bytes = Vec::new();
        archive
            .zip_archive()
            .by_name(&format!("{name}.npy"))
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        let data = bytes.split_off(bytes.len() - dtype.bytes_for(extents.iter().product()));
        arrays.insert(name, Tensor::new(dtype, &extents, data));
    }
    arrays
}

/// Whether the largest difference is within `tolerance` of the largest magnitude.
fn agrees(got: &[f64], want: &[f64], tolerance: f64) -> Result<(), String> {
    let largest = want.iter().fold(0f64, |acc, x| acc.max(x.abs()));
    let within = |(x, y): (&f64, &f64)| (x - y).abs() <= tolerance * largest;
    match got.iter().zip(want).position(|pair| !within(pair)) {
        None if got.len() == want.len() => Ok(()),
        None => Err(format!("has {} elements, expected {}", got.len(), want.len())),
        Some(at) => {
            Err(format!("is {} at {at}, expected {}, largest {largest}", got[at], want[at]))
        }
    }
}

#[test]
fn a_difference_beyond_the_tolerance_is_seen() {
    let want = [1.0, -100.0, 0.0];
    assert_eq!(agrees(&[1.009, -100.0, 0.0], &want, 1e-4), Ok(()));
    for wrong in [&[1.02, -100.0, 0.0][..], &[f64::NAN, -100.0, 0.0], &[1.0, -100.0]] {
        assert!(agrees(wrong, &want, 1e-4).is_err(), "{wrong:?}");
    }
}

/// Imports each case of a model with its shapes and compares the oracle with the reference outputs.
fn check_model(folder: &Path, id: &str, tolerance: f64) -> usize {
    let path = folder.join(format!("models/{id}.onnx"));
    let found = describe(&path).unwrap();
    let mut n_cases = 0;
    for case in 0.. {
        let case = folder.join(format!("refs/{id}.case{case}.npz"));
        if !case.exists() {
            break;
        }
        n_cases += 1;
        let arrays = read_npz(&case);
        let names = found.inputs.iter().enumerate();
        let inputs: Vec<Tensor> =
            names.clone().map(|(i, _)| arrays[&format!("in{i}")].clone()).collect();
        let shapes =
            names.map(|(i, port)| (port.name.clone(), inputs[i].extents.clone())).collect();
        let imported =
            import(&path, &ImportOptions { shapes }).unwrap_or_else(|err| panic!("{id}: {err}"));
        eggine_ir::graph::verify(&imported.graph).unwrap();
        for node in
            imported.graph.nodes.values().filter(|node| matches!(node.kind, NodeKind::Apply(..)))
        {
            assert!(!node.sources.is_empty(), "{id}: every node has a source");
        }
        for (i, got) in eval(&imported.graph, &inputs, Rounding::None).iter().enumerate() {
            let want = &arrays[&format!("out{i}")];
            assert_eq!(got.extents, want.extents, "{id}: output {i}");
            if let Err(difference) = agrees(&got.to_f64(), &want.to_f64(), tolerance) {
                panic!("{id}: output {i} {difference}");
            }
        }
    }
    n_cases
}

#[test]
#[allow(clippy::print_stderr, reason = "what is skipped is said")]
fn real_models_agree_with_their_references() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = root.join("../shared/models");
    if !folder.exists() {
        eprintln!("skipped {}: no ../shared/models: {}", MODELS.len(), MODELS.join(" "));
        return;
    }
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.tsv")).unwrap();
    let mut lines = manifest.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|h| *h == name).unwrap();
    let (file, tolerance) = (column("file"), column("suggested_rel_tol"));
    let rows: BTreeMap<String, f64> =
        lines.map(|row| (row[file].to_owned(), row[tolerance].parse().unwrap())).collect();
    for id in MODELS {
        let n_cases = check_model(&folder, id, rows[&format!("models/{id}.onnx")]);
        assert!(n_cases > 0, "{id} has no case");
    }
}
