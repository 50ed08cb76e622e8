//! Engine files: what is written is read, equal parts are equal bytes, and nothing that was damaged,
//! cut off, of another kind or of a later version is believed.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};

use eggine_ir::{DType, Tensor};
use eggine_runtime::engine::{
    ArenaRecord, CodeRecord, FORMAT_VERSION, KernelRecord, WeightsBuilder, hash_text,
    write_atomically,
};
use eggine_runtime::{
    Arg, Engine, EngineError, EngineParts, IoSpec, KernelPlan, LaunchAttributes, Manifest, Plan,
    Step,
};

fn kernel(name: &str, ptx: &str) -> (KernelPlan, KernelRecord) {
    let plan = KernelPlan {
        entry: name.into(),
        grid: [2, 1, 1],
        block: [128, 1, 1],
        n_params: 3,
        attributes: LaunchAttributes::default(),
    };
    let record = KernelRecord {
        name: name.into(),
        region: "graph @region(v0: f32[4]) {\n    v1 = relu v0\n    return v1\n}\n".into(),
        region_hash: "aa".into(),
        schedule: "pointwise(vector=4)".into(),
        ptx_hash: hash_text(ptx),
        sources: vec!["Relu_1".into()],
        rules: vec!["load-store".into()],
        predicted_ns: Some(1234.5),
        ..KernelRecord::default()
    };
    (plan, record)
}

fn parts() -> EngineParts {
    let mut weights = WeightsBuilder::default();
    let first = weights.push(&Tensor::f32(&[5], &[1.0, 2.0, 3.0, 4.0, 5.0]));
    let second = weights.push(&Tensor::f32(&[2], &[7.0, 8.0]));
    assert_eq!(
        weights.push(&Tensor::f32(&[5], &[1.0, 2.0, 3.0, 4.0, 5.0])),
        first,
        "equal bytes are stored once"
    );
    let ptx = vec!["// first\n.entry k0".to_owned(), "// second\n.entry k1".to_owned()];
    let (kernels, records): (Vec<_>, Vec<_>) =
        ptx.iter().enumerate().map(|(i, ptx)| kernel(&format!("k{i}"), ptx)).unzip();
    let spec = |name: &str| IoSpec { name: name.into(), dtype: DType::F32, extents: vec![2, 2] };
    let between = Arg::Arena { offset_bytes: 0, n_bytes: 16 };
    let plan = Plan {
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        kernels,
        steps: vec![
            Step {
                kernel: 0,
                args: vec![Arg::Input(0), first, between],
                sources: vec!["Conv_0".into()],
            },
            Step {
                kernel: 1,
                args: vec![between, second, Arg::Output(0)],
                sources: vec!["Conv_0".into(), "Relu_1".into()],
            },
        ],
        aliases: vec![],
        arena_bytes: 256,
        weights_bytes: weights.n_bytes(),
    };
    let manifest = Manifest {
        model: "tiny".into(),
        target: "sm_90a".into(),
        options: BTreeMap::from([("budget".into(), "0".into())]),
        eggine_version: "0.1.0".into(),
        arena: ArenaRecord { arena_bytes: 256, live_peak_bytes: 256, sum_bytes: 256 },
        kernels: records,
        ..Manifest::default()
    };
    EngineParts {
        code: Vec::new(),
        manifest,
        plan,
        ptx,
        weights: weights.finish(),
        report: vec![],
        evidence: vec!["e1".into()],
    }
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.eggine");
    let parts = parts();
    Engine::write(&path, &parts).unwrap();
    let engine = Engine::open(&path).unwrap();
    assert_eq!(engine.manifest, parts.manifest);
    assert_eq!(engine.plan, parts.plan);
    assert_eq!((engine.ptx(0), engine.ptx(1)), (&*parts.ptx[0], &*parts.ptx[1]));
    assert_eq!(engine.weights(), &parts.weights);
    assert_eq!(engine.evidence().unwrap(), parts.evidence);
    assert_eq!(engine.report().unwrap(), parts.report);
    let steps = engine.steps_of_sources().unwrap();
    assert_eq!(
        steps,
        BTreeMap::from([("Conv_0".to_owned(), vec![0, 1]), ("Relu_1".to_owned(), vec![1])])
    );
    assert_eq!(
        engine.weights().as_ptr() as usize % 4096,
        0,
        "a mapped weights section starts a page"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn equal_parts_are_equal_bytes() {
    assert_eq!(Engine::to_bytes(&parts()).unwrap(), Engine::to_bytes(&parts()).unwrap());
    let mut other = parts();
    other.ptx[1].push('\n');
    other.manifest.kernels[1].ptx_hash = hash_text(&other.ptx[1]);
    let (one, other) = (Engine::to_bytes(&parts()).unwrap(), Engine::to_bytes(&other).unwrap());
    assert_ne!(Engine::from_bytes(one).unwrap().hash(), Engine::from_bytes(other).unwrap().hash());
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = Engine::to_bytes(&parts()).unwrap();
    // Every byte of header, directory and text sections; the padding before the weights and the weights
    // themselves in steps.
    let text_end = bytes.len() - 4096;
    let positions =
        (0..text_end).chain((text_end..bytes.len()).step_by(37)).chain([bytes.len() - 1]);
    for position in positions {
        for flip in [0x01, 0x80] {
            let mut damaged = bytes.clone();
            damaged[position] ^= flip;
            let err = Engine::from_bytes(damaged)
                .expect_err(&format!("byte {position} flipped by {flip:#x}"));
            let message = err.to_string();
            assert!(
                matches!(
                    err,
                    EngineError::Damaged { .. }
                        | EngineError::Foreign { .. }
                        | EngineError::Newer { .. }
                        | EngineError::Length { .. }
                ),
                "byte {position}: {message}"
            );
            assert!(!message.contains('\n') && message.len() < 300, "{message}");
        }
    }
}

#[test]
fn damage_names_the_section() {
    let parts = parts();
    let bytes = Engine::to_bytes(&parts).unwrap();
    let find =
        |needle: &[u8]| bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    let cases: [(&[u8], &str); 6] = [
        (b"\"model\":\"tiny\"", "section `manifest`"),
        (b"\"arena_bytes\":256,\"weights", "section `plan`"),
        (b"\"Conv_0\":[", "section `sources`"),
        (b"[\"e1\"]", "section `evidence`"),
        (b"// second", "section `ptx 1`"),
        (&7f32.to_le_bytes(), "section `weights`"),
    ];
    for (needle, section) in cases {
        let mut damaged = bytes.clone();
        damaged[find(needle) + 1] ^= 4;
        let engine = Engine::from_bytes(damaged);
        let message = match engine {
            Err(err) => err.to_string(),
            // Evidence and sources are read when they are asked for.
            Ok(engine) => engine
                .evidence()
                .map(drop)
                .and(engine.steps_of_sources().map(drop))
                .unwrap_err()
                .to_string(),
        };
        assert!(message.contains(section), "{section}: {message}");
    }
}

#[test]
fn truncation_is_noticed_everywhere() {
    let bytes = Engine::to_bytes(&parts()).unwrap();
    for end in (0..300).chain((300..bytes.len()).step_by(97)).chain([bytes.len() - 1]) {
        let err = Engine::from_bytes(bytes[..end].to_vec()).expect_err(&format!("{end} bytes"));
        assert!(
            matches!(err, EngineError::Foreign { .. } | EngineError::Length { .. }),
            "{end} bytes: {err}"
        );
    }
    let longer = [&bytes[..], b"x"].concat();
    assert!(matches!(Engine::from_bytes(longer), Err(EngineError::Length { .. })));
}

#[test]
fn foreign_files_are_refused_in_plain_words() {
    let cases: [(&[u8], &str); 7] = [
        (b"", "it is empty"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"PK\x03\x04rest", "zip"),
        (b"\x08\x07\x12\x07pytorch", "ONNX"),
        (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
        (b"\x8eEGG", "first bytes"),
        (b"\x7fELF", "does not start as one"),
    ];
    for (bytes, says) in cases {
        let message = Engine::from_bytes(bytes.to_vec()).unwrap_err().to_string();
        assert!(message.contains("is not an Eggine engine") && message.contains(says), "{message}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        Engine::open(folder.path()),
        Err(EngineError::Foreign { .. } | EngineError::Read { .. })
    ));
    assert!(matches!(Engine::open(&folder.path().join("none")), Err(EngineError::Read { .. })));
}

fn with_code() -> EngineParts {
    let mut parts = parts();
    for (target, cubins) in [("sm_90a", ["aa", "bbb"]), ("sm_80", ["c", ""])] {
        parts.code.push(cubins.map(|it| it.as_bytes().into()).to_vec());
        parts.manifest.code.push(CodeRecord {
            target: target.into(),
            assembler: "by hand".into(),
            cubin_bytes: cubins.map(|it| it.len() as u64).to_vec(),
        });
    }
    parts
}

#[test]
fn machine_code_is_read_and_an_engine_without_keeps_its_format() {
    let bytes = Engine::to_bytes(&with_code()).unwrap();
    assert_eq!(bytes[8..12], 2u32.to_le_bytes(), "format");
    let engine = Engine::from_bytes(bytes).unwrap();
    let found = (engine.code_for(90), engine.code_for(80), engine.code_for(100));
    assert_eq!(found, (Some(0), Some(1), None));
    assert_eq!(&engine.cubin(0, 1)[..], b"bbb");
    assert_eq!(&engine.cubin(1, 1)[..], b"");
    let without = Engine::to_bytes(&parts()).unwrap();
    assert_eq!(without[8..12], 1u32.to_le_bytes(), "what older programs read stays so");
    assert_eq!(Engine::from_bytes(without).unwrap().code_for(90), None);
}

#[test]
fn records_of_other_machine_code_are_refused() {
    let mut wrong = with_code();
    wrong.manifest.code[0].cubin_bytes = vec![3, 2];
    let err = Engine::to_bytes(&wrong).unwrap_err();
    assert!(err.to_string().contains("machine code"), "{err}");
    let mut few = with_code();
    few.code[1].pop();
    few.manifest.code[1].cubin_bytes.pop();
    assert!(Engine::to_bytes(&few).is_err());
}

#[test]
fn a_newer_format_is_refused_before_anything_else_is_read() {
    let mut bytes = Engine::to_bytes(&parts()).unwrap();
    bytes[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    // A later version may lay out everything behind the version in another way.
    bytes.truncate(12);
    let err = Engine::from_bytes(bytes).unwrap_err();
    assert!(matches!(err, EngineError::Newer { found: 4, supported: 3, .. }), "{err}");
}

#[test]
fn parts_that_do_not_belong_together_are_not_written() {
    let mut wrong = parts();
    wrong.ptx[0].push(' ');
    assert!(matches!(Engine::to_bytes(&wrong), Err(EngineError::Inconsistent { .. })));
    let mut wrong = parts();
    wrong.plan.steps[1].args[2] = Arg::Arena { offset_bytes: 250, n_bytes: 16 };
    assert!(matches!(Engine::to_bytes(&wrong), Err(EngineError::Plan(_))));
    let mut wrong = parts();
    wrong.plan.steps.pop();
    let err = Engine::to_bytes(&wrong).unwrap_err();
    assert_eq!(
        err.to_string(),
        "inconsistent engine: output 0 (`y`) is neither written nor a copy"
    );
}

#[test]
fn a_failed_write_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.eggine");
    fs::write(&path, "old").unwrap();
    let err = write_atomically(&path, |file| {
        file.write_all(&[0; 4096])?;
        Err(io::Error::from(io::ErrorKind::StorageFull))
    });
    assert_eq!(err.unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let message = Engine::write(&folder.path().join("no/such/folder.eggine"), &parts())
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("cannot write engine") && message.contains("nothing was left behind"),
        "{message}"
    );
}

#[test]
fn replacing_a_mapped_engine_does_not_change_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.eggine");
    Engine::write(&path, &parts()).unwrap();
    let engine = Engine::open(&path).unwrap();
    let mut other = parts();
    other.manifest.model = "other".into();
    Engine::write(&path, &other).unwrap();
    engine.check_weights().unwrap();
    assert_eq!(engine.evidence().unwrap(), ["e1"]);
    assert_eq!(Engine::open(&path).unwrap().manifest.model, "other");
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"x").unwrap();
    assert!(Engine::open(&path).is_err());
}

#[test]
fn launch_attributes_need_a_newer_format() {
    let plain = parts();
    let mut with = parts();
    let attributes =
        LaunchAttributes { cooperative: true, cluster: Some([2, 1, 1]), shared_bytes: 0 };
    with.plan.kernels[0].attributes = attributes;
    let version = |parts: &EngineParts| Engine::to_bytes(parts).unwrap()[8];
    assert_eq!((version(&plain), version(&with)), (1, 3));
    let read = Engine::from_bytes(Engine::to_bytes(&with).unwrap()).unwrap();
    assert_eq!(read.plan, with.plan);
    // What no device takes is refused before there is a file.
    with.plan.kernels[0].attributes.cluster = Some([16, 1, 1]);
    let err = Engine::to_bytes(&with).unwrap_err().to_string();
    assert!(err.contains("16") && err.contains("1 to 8"), "{err}");
    with.plan.kernels[0].attributes.cluster = Some([4, 1, 1]);
    let err = Engine::to_bytes(&with).unwrap_err().to_string();
    assert!(err.contains("do not divide the grid [2, 1, 1]"), "{err}");
}
