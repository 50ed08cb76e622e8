//! Limits of import, without a clock: work is linear in the nodes, and a model of more than 2 GB is opened
//! without being read. `cargo bench -p eggine-tests --bench import` has the seconds.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a panic is how a test fails, a skip is said aloud"
)]

#[allow(dead_code, reason = "shared with the tests of import")]
#[path = "import/build.rs"]
mod build;
#[allow(dead_code, reason = "shared with the benchmark")]
#[path = "../benches/import/models.rs"]
mod models;

use std::path::Path;

use eggine_ir::onnx::survey::survey;
use eggine_ir::onnx::{ImportOptions, describe, import, import_bytes};
use eggine_tests::alloc::{Counting, count, thread_cpu_ns};

#[global_allocator]
static ALLOC: Counting = Counting;

/// Processor time of an import, the least of seven.
fn import_ns(bytes: &[u8]) -> Option<u64> {
    let once = || {
        let start = thread_cpu_ns()?;
        import_bytes(bytes.to_vec(), &ImportOptions::default()).unwrap();
        Some(thread_cpu_ns()? - start)
    };
    (0..7).map(|_| once()).min()?
}

#[test]
fn import_of_a_chain_is_linear() {
    let chains = [3_000, 12_000].map(models::chain);
    let [small, large] = chains.map(|m| m.bytes());
    let calls = |bytes: &[u8]| count(|| import_bytes(bytes.to_vec(), &ImportOptions::default())).1;
    let (few, many) = (calls(&small), calls(&large));
    let ratio = many.n_calls as f64 / few.n_calls as f64;
    assert!((3.8..4.2).contains(&ratio), "{few:?} and {many:?}");
    match (import_ns(&small), import_ns(&large)) {
        // Linear is 4, and up to 9 where the chain leaves the cache; quadratic is 16.
        (Some(small), Some(large)) => assert!(large < 12 * small, "{small} ns and {large} ns"),
        _ => eprintln!("skipped: the system does not tell a thread's processor time"),
    }
}

/// Bytes of this process in memory.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[test]
fn two_gigabytes_open_without_being_read() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let inline = models::inline_weights(folder.path(), 2_200_000_000);
    let external = models::external_weights(folder.path(), 2_200_000_000);
    for path in [&inline, &external] {
        let open = |path: &Path| {
            assert_eq!(describe(path).unwrap().model.n_nodes, 1);
            let imported = import(path, &ImportOptions::default()).unwrap();
            assert_eq!(imported.outputs[0].1.extents(), [3, 100]);
            assert!(survey(path, &ImportOptions::default()).unwrap().covered());
        };
        let before = resident_bytes();
        let ((), counted) = count(|| open(path));
        assert!(counted.peak_bytes < 1 << 20, "{}: {counted:?}", path.display());
        match (before, resident_bytes()) {
            (Some(before), Some(after)) => {
                assert!(after < before + (50 << 20), "{before} and {after} bytes resident")
            }
            _ => eprintln!("skipped: the system does not tell what is resident"),
        }
    }
}
