//! Case files: every NumPy type comes back bit for bit, by name or by number, and what is wrong with a
//! file is said with file and array.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use eggine_ir::{DType, Tensor};
use eggine_runtime::case::{Case, CaseError, is_numpy_dtype, write_npz};
use eggine_runtime::{IoSpec, compare};

fn npz(folder: &Path, arrays: &[(&str, &[u8])]) -> PathBuf {
    let path = folder.join("case.npz");
    let mut zip = npyz::zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in arrays {
        // NumPy's `savez_compressed` deflates.
        let options = npyz::zip::write::FileOptions::default()
            .compression_method(npyz::zip::CompressionMethod::Deflated);
        zip.start_file(format!("{name}.npy"), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    fs::write(&path, zip.finish().unwrap().into_inner()).unwrap();
    path
}

fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    let mut dict =
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    while (dict.len() + 11) % 64 != 0 {
        dict.push(' ');
    }
    dict.push('\n');
    [b"\x93NUMPY\x01\x00", &(dict.len() as u16).to_le_bytes()[..], dict.as_bytes(), data].concat()
}

fn spec(name: &str, dtype: DType, extents: &[usize]) -> IoSpec {
    IoSpec { name: name.into(), dtype, extents: extents.to_vec() }
}

#[test]
fn every_type_comes_back_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.npz");
    let mut arrays = Vec::new();
    for &dtype in DType::ALL {
        if !is_numpy_dtype(dtype) {
            let tensor = Tensor::from_i64(dtype, &[2], &[1, 0]);
            let message = write_npz(&path, &[("a".into(), tensor)]).unwrap_err().to_string();
            assert!(message.contains("array `a`: NumPy has no"), "{message}");
            continue;
        }
        for extents in [vec![], vec![3], vec![2, 0, 3], vec![2, 3, 5]] {
            let n_bytes = dtype.bytes_for(extents.iter().product());
            let byte =
                |i: usize| if dtype == DType::Bool { i as u8 & 1 } else { (i * 37 + 11) as u8 };
            let tensor = Tensor::new(dtype, &extents, (0..n_bytes).map(byte).collect::<Vec<_>>());
            arrays.push((format!("{dtype}/{extents:?}"), tensor));
        }
    }
    write_npz(&path, &arrays).unwrap();
    let case = Case::read(&path).unwrap();
    for (name, tensor) in &arrays {
        assert_eq!(case.array(name).unwrap(), Some(tensor), "{name}");
    }
    let once = fs::read(&path).unwrap();
    write_npz(&path, &arrays).unwrap();
    assert_eq!(fs::read(&path).unwrap(), once, "equal arrays are equal files");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn byte_and_index_order_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let big: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_be_bytes()).collect();
    // A 2x3 array in Fortran order: columns first.
    let columns: Vec<u8> = [1i64, 4, 2, 5, 3, 6].iter().flat_map(|x| x.to_le_bytes()).collect();
    let path = npz(
        folder.path(),
        &[
            ("big", &npy(">f4", false, "(2,)", &big)),
            ("columns", &npy("<i8", true, "(2, 3)", &columns)),
        ],
    );
    let case = Case::read(&path).unwrap();
    assert_eq!(case.array("big").unwrap(), Some(&Tensor::f32(&[2], &[1.5, -2.0])));
    assert_eq!(case.array("columns").unwrap(), Some(&Tensor::i64(&[2, 3], &[1, 2, 3, 4, 5, 6])));
}

#[test]
fn names_win_over_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("case.npz");
    let tensor = |x: f32| Tensor::f32(&[1], &[x]);
    let arrays = [("in0", 1.0), ("in1", 2.0), ("x", 3.0), ("out0", 4.0), ("spec0", 5.0)];
    write_npz(&path, &arrays.map(|(name, x)| (name.to_owned(), tensor(x)))).unwrap();
    let case = Case::read(&path).unwrap();
    let specs = [spec("x", DType::F32, &[1]), spec("y", DType::F32, &[1])];
    assert_eq!(case.inputs(&specs).unwrap(), [tensor(3.0), tensor(2.0)]);
    assert_eq!(case.input_extents(0, "x").unwrap(), [1]);
    let expected = case.expected(&[spec("z", DType::F32, &[1])]).unwrap();
    assert_eq!((&expected[0].out, &expected[0].spec), (&Some(tensor(4.0)), &Some(tensor(5.0))));
}

#[test]
fn what_is_wrong_is_said_with_file_and_array() {
    let folder = tempfile::tempdir().unwrap();
    let text: Vec<u8> = "abc".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    let path = npz(
        folder.path(),
        &[
            ("in0", &npy("<U3", false, "(1,)", &text)),
            ("in1", &npy("<f4", false, "(2, 2)", &[0; 16])),
        ],
    );
    let case = Case::read(&path).unwrap();
    let message = |result: Result<Vec<Tensor>, CaseError>| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("case.npz"), "{message}");
        message.replace(&path.display().to_string(), "case.npz")
    };
    insta::assert_snapshot!(message(case.inputs(&[spec("a", DType::F32, &[1])])), @"`case.npz`: array `in0`: its elements are strings (NumPy type `<U3`), which no tensor of a model that Eggine runs has");
    let x = spec("x", DType::F32, &[2, 3]);
    insta::assert_snapshot!(message(Case::from_arrays(&path, [("in0".into(), Tensor::f32(&[2, 2], &[0.0; 4]))]).inputs(std::slice::from_ref(&x))), @"`case.npz`: array `in0` is f32[2,2], the model's `x` is f32[2,3]");
    insta::assert_snapshot!(message(Case::from_arrays(&path, [("y".into(), Tensor::f32(&[1], &[0.0]))]).inputs(std::slice::from_ref(&x))), @"`case.npz` has no array `x` (or `in0`); it has y");
    insta::assert_snapshot!(message(case.expected(&[x]).map(|_| vec![])), @"`case.npz` has no expected output: no array is named `x`, out0… or spec0…; it has in0, in1");

    let damaged: [(&str, Vec<u8>, &str); 7] = [
        ("short", npy("<f4", false, "(2, 2)", &[0; 15]), "has 15 bytes of data, f32[2,2] needs 16"),
        ("huge", npy("<f8", false, "(9223372036854775807, 9)", &[]), "too large"),
        ("minus", npy("<f8", false, "(-1,)", &[]), "its shape is `-1,`"),
        ("object", npy("|O9x", false, "(1", &[]), "its header has no shape"),
        ("lie", npy("<f4", false, "(99999999999,)", &[0; 8]), "has 8 bytes of data"),
        ("bool", npy("|b1", false, "(1,)", &[2]), "neither 0 nor 1"),
        ("header", b"\x93NUMPY\x01\x00\xff\xffjunk".to_vec(), "its header is cut off"),
    ];
    for (name, bytes, says) in damaged {
        let message = Case::read(&npz(folder.path(), &[(name, &bytes)])).unwrap_err().to_string();
        assert!(message.contains(says) && message.contains("case.npz"), "{name}: {message}");
    }
}

#[test]
fn files_that_are_no_archives_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.npz");
    let good = npz(folder.path(), &[("in0", &npy("<f4", false, "(64,)", &[7; 256]))]);
    let good = fs::read(good).unwrap();
    for bytes in [
        b"".to_vec(),
        b"<html>".to_vec(),
        good[..good.len() / 2].to_vec(),
        npy("<f4", false, "(1,)", &[0; 4]),
    ] {
        fs::write(&path, bytes).unwrap();
        let err = Case::read(&path).unwrap_err();
        assert!(matches!(err, CaseError::NotAnArchive { .. } | CaseError::Array { .. }), "{err}");
    }
    assert!(matches!(Case::read(folder.path()), Err(CaseError::Read { .. })));
    assert!(matches!(Case::read(&folder.path().join("none.npz")), Err(CaseError::Read { .. })));
    // Bit flips in the stored data are found by the archive's checksum, or change only names.
    for position in (0..good.len()).step_by(3) {
        let mut bytes = good.clone();
        bytes[position] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        drop(Case::read(&path));
    }
}

#[test]
fn comparison_follows_the_manifest() {
    let f32s = |xs: &[f32]| Tensor::f32(&[xs.len()], xs);
    let one = |dtype, got: Tensor, out: Option<Tensor>, other: Option<Tensor>| {
        let specs = [spec("y", dtype, &got.extents)];
        let expected = [eggine_runtime::case::Expected { out, spec: other }];
        compare(&specs, &[got], &expected, 1e-4)
    };
    let want = || Some(f32s(&[1000.0, 0.0, -1.0]));
    let good = one(DType::F32, f32s(&[1000.0, 0.09, -1.0]), want(), None);
    assert!(good.agrees && good.outputs[0].max_relative < 1e-4, "{good:?}");
    let bad = one(DType::F32, f32s(&[1000.0, 0.2, -1.0]), want(), None);
    assert!(!bad.agrees && bad.outputs[0].worst_index == Some(1), "{bad:?}");
    let spec_saves =
        one(DType::F32, f32s(&[1000.0, 0.2, -1.0]), want(), Some(f32s(&[1000.0, 0.2, -1.0])));
    assert!(spec_saves.agrees && spec_saves.outputs[0].against == Some("spec"));
    let zeros = one(DType::F32, f32s(&[0.0, 0.0, 0.0]), Some(f32s(&[1e-9, 0.0, 0.0])), None);
    assert!(!zeros.agrees, "an absolute tolerance would accept zeros");
    for (got, want) in
        [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::INFINITY, 1.0), (f32::NEG_INFINITY, f32::INFINITY)]
    {
        let found = one(DType::F32, f32s(&[got, 5.0]), Some(f32s(&[want, 5.0])), None);
        assert!(!found.agrees && found.outputs[0].n_mismatches == 1, "{got} for {want}");
        assert!(serde_json::to_string(&found).is_ok());
    }
    let same = one(
        DType::F32,
        f32s(&[f32::NAN, f32::INFINITY]),
        Some(f32s(&[f32::NAN, f32::INFINITY])),
        None,
    );
    assert!(same.agrees);
    let ints = |xs: &[i64]| Tensor::i64(&[xs.len()], xs);
    assert!(one(DType::I64, ints(&[1 << 60]), Some(ints(&[1 << 60])), None).agrees);
    let off = one(DType::I64, ints(&[(1 << 60) + 1]), Some(ints(&[1 << 60])), None);
    assert!(
        !off.agrees && off.outputs[0].n_mismatches == 1,
        "integers are compared exactly, beyond 2^53 too"
    );
    assert!(!one(DType::F32, f32s(&[1.0]), None, None).agrees, "comparing nothing is not agreeing");
}
