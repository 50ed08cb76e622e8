//! Large models, made in code: a long chain, and weights of gigabytes as holes in sparse files.

#![allow(clippy::unwrap_used, reason = "a panic is how a benchmark fails")]

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use eggine_ir::DType;
use eggine_ir::onnx::proto::{StringStringEntryProto, TensorProto};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::build::{Build, int, model};

/// Alternating `Add` and `Relu` on four numbers.
pub(crate) fn chain(n: usize) -> Build {
    let mut m = model(13).input("v0", DType::F32, "4").floats("one", &[4], &[1.0, -1.0, 0.5, -0.5]);
    for i in 0..n {
        let (from, to) = (format!("v{i}"), format!("v{}", i + 1));
        m = match i % 2 {
            0 => m.op("Add", &[&from, "one"], &[&to], vec![]),
            _ => m.op("Relu", &[&from], &[&to], vec![]),
        };
    }
    m.output(&format!("v{n}"))
}

/// Three rows of a table.
fn lookup() -> Build {
    let m = model(13).input("i", DType::I64, "3");
    m.op("Gather", &["w", "i"], &["y"], vec![int("axis", 0)]).output("y")
}

fn table(n_bytes: u64) -> TensorProto {
    let rows = n_bytes as i64 / 400;
    TensorProto {
        name: Some("w".into()),
        dims: vec![rows, 100],
        data_type: Some(DType::F32.onnx_code()),
        ..Default::default()
    }
}

/// A length-delimited field, without what is in it.
fn field(tag: u32, n_bytes: u64) -> Vec<u8> {
    let mut head = Vec::new();
    encode_key(tag, WireType::LengthDelimited, &mut head);
    encode_varint(n_bytes, &mut head);
    head
}

/// A model whose only weight is in it, in a hole at the end of the file. Protobuf libraries that count in
/// 32 bits refuse it.
pub(crate) fn inline_weights(folder: &Path, n_bytes: u64) -> PathBuf {
    let path = folder.join("inline.onnx");
    // Messages may be given in parts: the graph without the weight first, then the weight.
    let mut bytes = lookup().bytes();
    let mut tensor = table(n_bytes).encode_to_vec();
    tensor.extend(field(9, n_bytes));
    let initialiser = field(5, tensor.len() as u64 + n_bytes);
    bytes.extend(field(7, (initialiser.len() + tensor.len()) as u64 + n_bytes));
    bytes.extend(initialiser);
    bytes.extend(tensor);
    let mut file = File::create(&path).unwrap();
    file.write_all(&bytes).unwrap();
    file.set_len(bytes.len() as u64 + n_bytes).unwrap();
    path
}

/// The same with the weight in another file.
pub(crate) fn external_weights(folder: &Path, n_bytes: u64) -> PathBuf {
    let path = folder.join("external.onnx");
    let mut m = lookup();
    let entry = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value.into()),
    };
    m.graph().initializer.push(TensorProto {
        data_location: Some(1),
        external_data: vec![entry("location", "w.bin"), entry("length", &n_bytes.to_string())],
        ..table(n_bytes)
    });
    std::fs::write(&path, m.bytes()).unwrap();
    File::create(folder.join("w.bin")).unwrap().set_len(n_bytes).unwrap();
    path
}
