//! What is fuzzed: everything that reads bytes that are not ours. An entry takes any bytes and must return:
//! a panic, a hang, or memory beyond [`bound_bytes`] is a bug. What parses must print and parse again to
//! the same value.

use std::path::Path;

use eggine_codegen_ptx::kir;
use eggine_ir::graph;
use eggine_ir::onnx::survey::survey_bytes;
use eggine_ir::onnx::{ImportOptions, import_bytes};
use eggine_rewrite::rule_file;
use eggine_runtime::device::{CpuDevice, CpuOptions};
use eggine_runtime::program::Program;
use eggine_runtime::{Case, Engine, Session};
use eggine_search::evidence::{Evidence, export};

/// A target: returns what became of the input, in words.
pub type Entry = fn(&[u8]) -> String;

/// Name and function of each target.
pub const ENTRIES: &[(&str, Entry)] = &[
    ("import", import),
    ("gir", gir),
    ("kir", kir),
    ("ptx", ptx),
    ("engine", engine),
    ("program", program),
    ("case", case),
    ("rules", rules),
    ("evidence", evidence),
];

/// Memory that a target may take at most at one time for an input of so many bytes. A short text can say a
/// constant of 2²⁴ equal elements, which takes 128 MiB of `f64`, is printed through a copy of as much and
/// parsed again; a model can fold as many, and an engine may ask for the arena that [`engine`] allows.
pub fn bound_bytes(n_bytes: usize) -> u64 {
    (640 << 20) + 1024 * n_bytes as u64
}

/// ONNX: import, what it makes verifies, and the survey of `eggine check`.
pub fn import(data: &[u8]) -> String {
    let options = ImportOptions::default();
    let imported = import_bytes(data.to_vec(), &options);
    if let Ok(imported) = &imported {
        graph::verify(&imported.graph).expect("an imported graph verifies");
    }
    if let Ok(survey) = survey_bytes(data.to_vec(), &options) {
        let whole = survey.covered() && !survey.is_program();
        assert!(whole == survey.n_core_ops.is_some(), "an engine is what is imported");
    }
    imported.map_or_else(|err| err.to_string(), |_| "imported".into())
}

/// Text of graphs.
pub fn gir(data: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(data) else { return "not text".into() };
    let parsed = match graph::parse(text) {
        Ok(parsed) => parsed,
        Err(err) => return err.to_string(),
    };
    let printed = parsed.to_string();
    assert!(graph::parse(&printed).as_ref() == Ok(&parsed), "{printed}");
    match graph::verify(&parsed) {
        Ok(()) => "a graph".into(),
        Err(errors) => errors.first().map_or_else(String::new, ToString::to_string),
    }
}

/// Text of kernels.
pub fn kir(data: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(data) else { return "not text".into() };
    let parsed = match kir::parse(text) {
        Ok(parsed) => parsed,
        Err(err) => return err.to_string(),
    };
    let printed = parsed.to_string();
    assert!(kir::parse(&printed).as_ref() == Ok(&parsed), "{printed}");
    match kir::verify(&parsed) {
        Ok(()) => format!("a kernel {:?}", kir::steps_bound(&parsed)),
        Err(errors) => errors.first().map_or_else(String::new, ToString::to_string),
    }
}

/// Text of PTX modules, and loading them onto the cpu device.
pub fn ptx(data: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(data) else { return "not text".into() };
    let loaded = eggine_cpu::Module::load(text);
    let parsed = match eggine_ptx::parse(text) {
        Ok(parsed) => parsed,
        Err(err) => return err.kind.to_string(),
    };
    let printed = parsed.to_string();
    assert!(eggine_ptx::parse(&printed).as_ref() == Ok(&parsed), "{printed}");
    loaded.map_or_else(|err| err.to_string(), |_| "a module".into())
}

/// Engine files, as they are and with their hashes made right, which gets behind the first check.
pub fn engine(data: &[u8]) -> String {
    let open = |bytes| match Engine::from_bytes(bytes) {
        Ok(engine) => load(&engine),
        Err(err) => err.to_string(),
    };
    let whole = open(data.to_vec());
    repaired(data).map_or(whole, open)
}

/// Loads an engine onto the cpu device.
fn load(engine: &Engine) -> String {
    let _ = (engine.report(), engine.evidence(), engine.steps_of_sources(), engine.section_bytes());
    let n_io = engine.inputs().iter().chain(engine.outputs());
    // A larger one is a question for the machine's memory, not for a parser.
    let n_elems = |extents: &[usize]| extents.iter().try_fold(1usize, |n, &it| n.checked_mul(it));
    let small = engine.plan.arena_bytes < 1 << 24
        && n_io.map(|io| n_elems(&io.extents)).all(|n| n.is_some_and(|n| n < 1 << 20));
    if !small {
        return "a large engine".into();
    }
    let options = CpuOptions { n_threads: 1, ..CpuOptions::default() };
    match Session::new(Box::new(CpuDevice::new(options)), engine) {
        Ok(_) => "an engine".into(),
        Err(err) => err.to_string(),
    }
}

/// The file with the length in its header, the hashes of its sections and that of its directory made right;
/// the layout is that of `runtime/src/engine/format.rs`. `None` if there is no header.
pub fn repaired(data: &[u8]) -> Option<Vec<u8>> {
    const HEADER_BYTES: usize = 56;
    const ENTRY_BYTES: usize = 56;
    let mut bytes = data.to_vec();
    let n_sections = u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?) as usize;
    let end = HEADER_BYTES.checked_add(n_sections.checked_mul(ENTRY_BYTES)?)?;
    if n_sections > 4096 || end > bytes.len() {
        return None;
    }
    let n_bytes = bytes.len() as u64;
    bytes[16..24].copy_from_slice(&n_bytes.to_le_bytes());
    for section in 0..n_sections {
        let at = HEADER_BYTES + section * ENTRY_BYTES;
        let number = |at: usize| {
            let number = bytes[at..at + 8].try_into().expect("eight bytes");
            usize::try_from(u64::from_le_bytes(number)).ok()
        };
        let Some((start, n)) = number(at + 8).zip(number(at + 16)) else { continue };
        let range = start..start.saturating_add(n);
        if let Some(hash) = bytes.get(range).map(blake3::hash) {
            bytes[at + 24..at + 56].copy_from_slice(hash.as_bytes());
        }
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..24]).update(&bytes[HEADER_BYTES..end]);
    let hash = hasher.finalize();
    bytes[24..56].copy_from_slice(hash.as_bytes());
    Some(bytes)
}

/// Files of programs, as they are and with their hashes made right.
pub fn program(data: &[u8]) -> String {
    let open = |bytes: Vec<u8>| match Program::from_bytes("x.program", bytes.into()) {
        Ok(program) => {
            let described = program.model().description();
            for range in &program.manifest.ranges {
                let _ = range.check(&[1, 2]);
            }
            let mut outcome = format!("a program of {} inputs", described.inputs.len());
            for engine in program.engines().values() {
                outcome = format!("{outcome}, {}", load(engine));
            }
            outcome
        }
        Err(err) => err.to_string(),
    };
    let whole = open(data.to_vec());
    repaired_program(data).map_or(whole, open)
}

/// The file with the hashes of its sections, and of the engines in them, and that of its manifest made
/// right; the layout is that of `runtime/src/program/file.rs`. `None` if it has no manifest.
fn repaired_program(data: &[u8]) -> Option<Vec<u8>> {
    const HEADER_BYTES: usize = 56;
    const ALIGN_BYTES: usize = 4096;
    let length = u64::from_le_bytes(data.get(16..24)?.try_into().ok()?);
    let end = HEADER_BYTES.checked_add(usize::try_from(length).ok()?)?;
    let mut manifest: serde_json::Value =
        serde_json::from_slice(data.get(HEADER_BYTES..end)?).ok()?;
    let mut sections = data.get(end.next_multiple_of(ALIGN_BYTES)..).unwrap_or_default().to_vec();
    let mut records: Vec<&mut serde_json::Value> = Vec::new();
    for (_, value) in manifest.as_object_mut()?.iter_mut() {
        // Sections, and weights that several of them have.
        let lists = value.as_array_mut().into_iter().flatten();
        records.extend(lists.filter(|it| it.get("blake3").is_some()));
    }
    for record in records {
        let number = |key: &str| usize::try_from(record.get(key)?.as_u64()?).ok();
        let Some((from, n)) = number("offset").zip(number("n_bytes")) else { continue };
        let Some(section) = sections.get_mut(from..from.saturating_add(n)) else { continue };
        if let Some(engine) = repaired(section) {
            section.copy_from_slice(&engine);
        }
        let hash = blake3::hash(section).to_hex().to_string();
        record.as_object_mut()?.insert("blake3".into(), hash.into());
    }
    let json = serde_json::to_vec(&manifest).ok()?;
    let mut bytes = data[..16].to_vec();
    bytes.extend((json.len() as u64).to_le_bytes());
    bytes.extend(blake3::hash(&json).as_bytes());
    bytes.extend(&json);
    bytes.resize(bytes.len().next_multiple_of(ALIGN_BYTES), 0);
    bytes.extend(&sections);
    Some(bytes)
}

/// Case files: archives of arrays.
pub fn case(data: &[u8]) -> String {
    let read = match Case::from_bytes(Path::new("x.npz"), data) {
        Ok(read) => read,
        Err(err) => return err.to_string(),
    };
    let names: Vec<String> = read.names().map(str::to_owned).collect();
    for (nth, name) in names.iter().enumerate() {
        let _ = read.input_value(nth, name);
        match read.array(name) {
            Ok(Some(tensor)) => {
                let n_elems = tensor.extents.iter().product::<usize>();
                assert_eq!(tensor.bytes.len(), tensor.dtype.bytes_for(n_elems), "`{name}`");
            }
            Ok(None) => panic!("`{name}` is listed and not there"),
            Err(err) => return err.to_string(),
        }
    }
    format!("a case of {} arrays", names.len())
}

/// Rule files: what holds by execution must print and parse again to the same rules.
pub fn rules(data: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(data) else { return "not text".into() };
    let file = match rule_file::parse("x.rules", text) {
        Ok(file) => file,
        Err(errors) => return errors.to_string(),
    };
    // Each is executed on hundreds of inputs.
    if file.rows.len() > 2 {
        return "many rules".into();
    }
    match file.check() {
        Ok(checked) => {
            let printed = checked.to_string();
            let again = rule_file::parse("x.rules", &printed).map_err(|errors| errors.to_string());
            let again: Vec<_> = again.expect("it parses").rows.iter().map(|row| row.0).collect();
            assert!(format!("{again:?}") == format!("{:?}", checked.rules()), "{printed}");
            "rules".into()
        }
        Err(refused) => refused.to_string(),
    }
}

/// Exports of evidence: what is taken must be written again to lines that say the same.
pub fn evidence(data: &[u8]) -> String {
    let name = Path::new("x.jsonl");
    let taken = Evidence::in_memory().expect("memory");
    let merged = match taken.merge_lines(name, data) {
        Ok(merged) => merged,
        Err(err) => return err.to_string(),
    };
    let lines = |evidence: &Evidence| {
        let mut bytes = Vec::new();
        export(evidence, &mut bytes).expect("what was taken is written");
        bytes
    };
    let again = Evidence::in_memory().expect("memory");
    let written = lines(&taken);
    again.merge_lines(name, &written).expect("what was written is read");
    assert!(lines(&again) == written, "{}", String::from_utf8_lossy(&written));
    format!("evidence, {} records", merged.n_read)
}
