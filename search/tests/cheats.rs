//! The rows of `MEASURING.md` that concern the search, with a real workshop, real evidence and PTX on the
//! cpu device. The table of all twenty is at the top of `runtime/tests/cheats.rs`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use eggine_codegen_ptx::{Target, first_schedule};
use eggine_ir::{Layout, Region, Schedule};
use eggine_runtime::device::{CpuDevice, CpuOptions};
use eggine_runtime::engine::hash_text;
use eggine_runtime::{Engine, EngineParts, Verdict};
use eggine_search::evidence::{Evidence, Key};
use eggine_search::gate::{GateError, check_texts};
use eggine_search::nearby::Nearby;
use eggine_search::workshop::{Origin, Prepared, Subject, Workshop, WorkshopError, prepare};
use eggine_search::{Budget, Job, Phases, Quarantined, compile, kind_of};

const ORIGIN: Origin<'static> = Origin { agent: "test", tiling_move: "none", parent: "" };

fn workshop(evidence: &Evidence) -> Workshop<'_> {
    let device = CpuDevice::new(CpuOptions { n_threads: 1, ..CpuOptions::default() });
    Workshop::new(Box::new(device), evidence, Target::Sm80, 0, Phases::default())
}

fn subject(text: &str) -> Subject {
    let region = Region::contiguous(eggine_ir::graph::parse(text).unwrap());
    Subject { hash: region.hash_hex(), region }
}

fn relu() -> Subject {
    subject("graph @r(v0: f32[1024]) {\n    v1 = relu v0\n    return v1\n}\n")
}

fn pointwise(threads: u32) -> Schedule {
    format!("pointwise(threads={threads},elems=1,vector=1)").parse().unwrap()
}

fn made(subject: &Subject, threads: u32) -> Prepared {
    prepare(subject, &pointwise(threads), Target::Sm80).unwrap()
}

/// A kernel with another text, which knows its own hash.
fn with_text(mut prepared: Prepared, change: impl Fn(&str) -> String) -> Prepared {
    let text = change(&prepared.ptx);
    assert_ne!(text, prepared.ptx, "nothing to change in\n{text}");
    prepared.ptx_hash = hash_text(&text);
    prepared.ptx = text;
    prepared
}

#[test]
fn the_honest_candidate_passes_and_is_known_afterwards() {
    let evidence = Evidence::in_memory().unwrap();
    let mut shop = workshop(&evidence);
    let relu = relu();
    let honest = made(&relu, 128);
    let row = shop.judge(&relu, &pointwise(128), &honest, None, ORIGIN).unwrap();
    assert!(row.passed() && row.median_ns > 0.0 && row.decision == "alone", "{row:?}");
    let again = shop.judge(&relu, &pointwise(128), &honest, None, ORIGIN).unwrap();
    assert_eq!((again.samples_ns, shop.counts.n_measured), (row.samples_ns, 1));
    assert!(shop.is_verified(&honest.ptx_hash));
    assert!(shop.nearby().n_checked > 0 && shop.nearby().n_failed == 0, "{:?}", shop.nearby());
}

#[test]
fn cheat_12_only_at_the_tuned_shape() {
    // A family that forgets its guard is right where the tiles divide the extents, and is found out at the
    // neighbours.
    let relu = relu();
    let careless = |subject: &Subject, schedule: &Schedule, target: Target| {
        let mut prepared = prepare(subject, schedule, target)?;
        let lines = prepared.ptx.lines().filter(|line| !line.contains("@!%p0 bra"));
        prepared.ptx = lines.map(|line| format!("{line}\n")).collect();
        Ok(prepared)
    };
    let evidence = Evidence::in_memory().unwrap();
    let at_home = careless(&relu, &pointwise(128), Target::Sm80).unwrap();
    // Not by its hash: the text alone decides.
    let at_home = with_text(at_home, |text| text.replace(".version 7.0", ".version 7.1"));
    assert!(workshop(&evidence).verify(&relu, &at_home).unwrap().accepted());
    let mut nearby = Nearby::new(0);
    let found = nearby.check(&relu, &pointwise(128), Target::Sm80, &careless).unwrap();
    let Verdict::FailsNearby { extents, found } = &found else { panic!("{found}") };
    assert!(extents.contains("f32[67]") && matches!(**found, Verdict::Faults { .. }), "{found}");
    // The honest family passes, and the next region of the kind costs nothing.
    let mut nearby = Nearby::new(0);
    for n in [1024, 4096] {
        let text = format!("graph @r(v0: f32[{n}]) {{\n    v1 = relu v0\n    return v1\n}}\n");
        let found = nearby.check(&subject(&text), &pointwise(128), Target::Sm80, &prepare).unwrap();
        assert_eq!(found, Verdict::Accepted);
    }
    assert_eq!((nearby.counts().n_checked, nearby.counts().n_known), (1, 1));
}

#[test]
fn cheat_13_cache_hit_that_ignores_alignment() {
    let evidence = Evidence::in_memory().unwrap();
    let mut shop = workshop(&evidence);
    let relu = relu();
    let honest = made(&relu, 128);
    let row = shop.judge(&relu, &pointwise(128), &honest, None, ORIGIN).unwrap();
    assert_eq!(evidence.lookup(&row.key).unwrap().as_ref(), Some(&row));
    let other = || "other".to_owned();
    let changed: [fn(&mut Key, String); 8] = [
        |key, to| key.region = to,
        |key, to| key.schedule = to,
        |key, to| key.ptx = to,
        |key, to| key.device = to,
        |key, to| key.method = to,
        // What is promised about addresses is a precondition like any other.
        |key, to| key.conditions.layout = to,
        |key, to| key.conditions.toolchain = to,
        |key, to| key.conditions.cache = to,
    ];
    for change in changed {
        let mut key = row.key.clone();
        change(&mut key, other());
        assert_eq!(evidence.lookup(&key).unwrap(), None, "{key:?}");
    }
    assert!(row.key.conditions.layout.contains("align"), "{}", row.key.conditions.layout);
    // Another layout or type is another region.
    let graph = relu.region.graph.clone();
    let apart = Region::new(
        graph.clone(),
        vec![Layout { strides: vec![2] }],
        vec![Layout { strides: vec![1] }],
    );
    assert_ne!(apart.hash_hex(), relu.hash);
    let half = subject("graph @r(v0: f16[1024]) {\n    v1 = relu v0\n    return v1\n}\n");
    assert_ne!(half.hash, relu.hash);
}

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/models/dit_transformer.onnx")
}

/// A small search, with its evidence.
fn searched(folder: &Path) -> (Engine, Evidence) {
    let (output, database) = (folder.join("m.egg"), folder.join("e.db"));
    let job = Job {
        budget: Budget::Measurements(6),
        device_threads: Some(1),
        evidence: Some(database.clone()),
        shapes: [
            ("hidden_states", vec![1, 4, 8, 8]),
            ("timestep", vec![1]),
            ("class_labels", vec![1]),
        ]
        .map(|(name, extents)| (name.to_owned(), extents))
        .into(),
        ..Job::new(model())
    };
    compile(&job, &output, &AtomicBool::new(false)).unwrap();
    (Engine::open(&output).unwrap(), Evidence::open(&database).unwrap())
}

#[test]
fn cheat_16_verified_graph_unverified_kernel() {
    // The kernel IR is right, the text is not.
    let evidence = Evidence::in_memory().unwrap();
    let mut shop = workshop(&evidence);
    let relu = relu();
    let wrong = with_text(made(&relu, 128), |text| text.replace("0f00000000", "0f3F800000"));
    assert_eq!(wrong.lowered, made(&relu, 128).lowered);
    let found = shop.verify(&relu, &wrong).unwrap();
    assert!(matches!(found.verdict, Verdict::Inaccurate { .. }), "{}", found.verdict);
    assert!(!shop.is_verified(&wrong.ptx_hash));

    // And nothing is shipped but a text that was verified.
    let honest = made(&relu, 128);
    assert!(shop.verify(&relu, &honest).unwrap().accepted());
    let folder = tempfile::tempdir().unwrap();
    let (engine, _) = searched(folder.path());
    let mut parts = EngineParts {
        manifest: engine.manifest.clone(),
        plan: engine.plan.clone(),
        ptx: (0..engine.plan.kernels.len()).map(|kernel| engine.ptx(kernel).to_owned()).collect(),
        weights: engine.weights().clone(),
        code: Vec::new(),
        report: engine.report().unwrap(),
        evidence: Vec::new(),
    };
    let known: Vec<String> = parts.ptx.iter().map(|text| hash_text(text)).collect();
    let is_verified = |hash: &str| known.iter().any(|known| known == hash);
    assert_eq!(check_texts(&parts, &is_verified), Ok(()));
    assert!(check_texts(&parts, &|_| false).is_err());
    let last = parts.ptx.len() - 1;
    parts.ptx[last].push_str("// one more line\n");
    let entry = parts.plan.kernels[last].entry.clone();
    assert_eq!(check_texts(&parts, &is_verified), Err(GateError::Unverified { entry }));
}

#[test]
fn cheat_17_unknown_verdicts_are_loud() {
    let evidence = Evidence::in_memory().unwrap();
    let mut shop = workshop(&evidence);
    let relu = relu();
    let honest = made(&relu, 128);
    let known = shop.judge(&relu, &pointwise(128), &honest, None, ORIGIN).unwrap();
    // A row of another program, for another schedule.
    let (schedule, next) = (pointwise(64), made(&relu, 64));
    let mut foreign = known.clone();
    foreign.key = shop.key(&relu, &schedule, &next);
    foreign.verdict = "good-enough: within 3 %".to_owned();
    evidence.insert(&foreign).unwrap();
    let judged = shop.judge(&relu, &schedule, &next, None, ORIGIN);
    let Err(WorkshopError::UnknownVerdict { verdict, .. }) = &judged else { panic!("{judged:?}") };
    assert_eq!(verdict, "good-enough: within 3 %");

    // Nothing is swallowed: what does not load and what cannot be made have rows, too.
    let broken = with_text(made(&relu, 256), |text| text.replace("max", "maximum"));
    let row = shop.judge(&relu, &pointwise(256), &broken, None, ORIGIN).unwrap();
    assert!(row.verdict.starts_with("does-not-load: ") && !row.passed(), "{}", row.verdict);
    let impossible: Schedule = "pointwise(threads=31,elems=1,vector=1)".parse().unwrap();
    let reason = shop.prepare(&relu, &impossible).err().unwrap();
    shop.refuse(&relu, &impossible, &reason, ORIGIN).unwrap();
    let kinds: Vec<String> =
        evidence.verdicts().unwrap().into_iter().map(|(kind, _)| kind).collect();
    for kind in ["pass", "does-not-load", "refused"] {
        assert!(kinds.iter().any(|known| known == kind), "{kind} in {kinds:?}");
    }
}

#[test]
fn what_refuted_a_kernel_is_kept_for_the_next() {
    let evidence = Evidence::in_memory().unwrap();
    let relu = relu();
    let wrong = with_text(made(&relu, 128), |text| text.replace("0f00000000", "0f3F800000"));
    assert!(!workshop(&evidence).verify(&relu, &wrong).unwrap().accepted());
    let kept = evidence.counterexamples(&kind_of(&relu.region)).unwrap();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].region == relu.hash && kept[0].failure.contains("inaccurate"), "{kept:?}");
    // Another seed has other inputs: its kernels meet the kept ones, too.
    let device = CpuDevice::new(CpuOptions { n_threads: 1, ..CpuOptions::default() });
    let mut shop = Workshop::new(Box::new(device), &evidence, Target::Sm80, 7, Phases::default());
    let found = shop.verify(&relu, &made(&relu, 128)).unwrap();
    assert!(found.accepted(), "{}", found.verdict);
    assert_eq!(found.families.len(), 4, "three families and the counterexample");
}

#[test]
fn cheat_18_the_row_names_the_text_that_ran() {
    let evidence = Evidence::in_memory().unwrap();
    let mut shop = workshop(&evidence);
    let relu = relu();
    let honest = made(&relu, 128);
    let row = shop.judge(&relu, &pointwise(128), &honest, None, ORIGIN).unwrap();
    assert_eq!(row.key.ptx, hash_text(&honest.ptx));
    // Nine configurations are compiled and one of them is timed under the names of all.
    let mut disguised = made(&relu, 64);
    disguised.ptx = honest.ptx.clone();
    disguised.lowered = honest.lowered.clone();
    let judged = shop.judge(&relu, &pointwise(64), &disguised, None, ORIGIN);
    let Err(WorkshopError::OtherText { ran, named, .. }) = &judged else { panic!("{judged:?}") };
    assert_eq!((ran, named), (&honest.ptx_hash, &disguised.ptx_hash));
}

#[test]
fn cheat_19_measured_is_what_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, evidence) = searched(folder.path());
    let shop = workshop(&evidence);
    let mut n_measured = 0;
    for (index, kernel) in engine.manifest.kernels.iter().enumerate() {
        assert_eq!(kernel.ptx_hash, hash_text(engine.ptx(index)), "{}", kernel.name);
        let Some(measured_ns) = kernel.measured_ns else { continue };
        let region: Region = kernel.region.parse().unwrap();
        let subject = Subject { hash: kernel.region_hash.clone(), region };
        assert_eq!(subject.region.hash_hex(), subject.hash);
        let schedule: Schedule = kernel.schedule.parse().unwrap();
        let prepared = prepare(&subject, &schedule, Target::Sm80).unwrap();
        assert_eq!(
            prepared.ptx,
            engine.ptx(index),
            "the text that is served is the one that is made"
        );
        // At these extents, on this device, with weights packed as they are in the engine.
        let row = evidence.lookup(&shop.key(&subject, &schedule, &prepared)).unwrap();
        let row = row.unwrap_or_else(|| panic!("no row for {}", kernel.name));
        assert!(row.passed() && row.median_ns == measured_ns, "{row:?}");
        n_measured += 1;
    }
    assert!(n_measured > 0, "the engine rests on measurements");
}

#[test]
fn cheat_20_hangs_traps_and_exhausts() {
    let evidence = Evidence::in_memory().unwrap();
    let mut shop = workshop(&evidence);
    let relu = relu();
    let hanging = with_text(made(&relu, 128), |text| {
        text.replace("    ret;\n", "$L90:\n    bra $L90;\n    ret;\n")
    });
    let trapping = with_text(made(&relu, 64), |text| {
        let far = |line: &str| match line.contains("ld.global") {
            true => line.replace(']', "+1048576]"),
            false => line.to_owned(),
        };
        text.lines().map(|line| far(line) + "\n").collect()
    });
    let greedy = with_text(made(&relu, 256), |text| {
        text.replacen(
            "    .reg .b32",
            "    .shared .align 16 .b8 huge[4000000000];\n    .reg .b32",
            1,
        )
    });
    let cases =
        [(&hanging, 128, "faults"), (&trapping, 64, "faults"), (&greedy, 256, "does-not-load")];
    for (candidate, threads, kind) in cases {
        let start = Instant::now();
        let row = shop.judge(&relu, &pointwise(threads), candidate, None, ORIGIN).unwrap();
        assert!(row.verdict.starts_with(kind), "{}", row.verdict);
        assert!(start.elapsed().as_secs_f64() < 2.0, "{kind} took {:?}", start.elapsed());
    }
    let quarantined: Vec<Quarantined> = shop.quarantined().cloned().collect();
    assert_eq!(quarantined.len(), 2, "the hang and the trap");
    let hang = quarantined.iter().find(|it| it.ptx_hash == hanging.ptx_hash).unwrap();
    assert!(hang.ptx.contains("bra $L90") && hang.region == relu.hash, "{hang:?}");

    // The same text under another name does not run again.
    let n_measured = shop.counts.n_measured;
    let row = shop.judge(&relu, &pointwise(512), &hanging, None, ORIGIN).unwrap();
    assert!(row.verdict.starts_with("quarantined: faults"), "{}", row.verdict);
    assert!(!shop.verify(&relu, &hanging).unwrap().accepted());
    assert_eq!((shop.counts.n_quarantined, shop.counts.n_measured), (2, n_measured));

    // Nor in the next run: the quarantine is evidence.
    let mut next = workshop(&evidence);
    next.remember().unwrap();
    assert_eq!(next.quarantined().cloned().collect::<Vec<_>>(), quarantined);
    assert!(!next.verify(&relu, &trapping).unwrap().accepted());
    assert_eq!(next.counts.n_quarantined, 1);

    // And the search goes on.
    let honest = made(&relu, 128);
    assert!(shop.judge(&relu, &pointwise(128), &honest, None, ORIGIN).unwrap().passed());
    let large = subject(
        "graph @r(v0: f32[96,130], v1: weight f32[130,70]) {\n    v2 = matmul v0, v1\n    v3 = relu v2\n    return v3\n}\n",
    );
    let schedule = first_schedule(&large.region).unwrap();
    let honest = prepare(&large, &schedule, Target::Sm80).unwrap();
    assert!(shop.verify(&large, &honest).unwrap().accepted(), "its limit leaves it room");
}
