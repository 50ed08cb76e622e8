//! Seconds of import: a chain of 3,000, 6,000 and 12,000 nodes, and models with 2.2 GB of weights.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints and may panic")]

#[allow(dead_code, reason = "shared with the tests of import")]
#[path = "../tests/import/build.rs"]
mod build;
#[path = "import/models.rs"]
mod models;

use std::time::Instant;

use eggine_ir::onnx::{ImportOptions, describe, import, import_bytes};

/// The least of five, in milliseconds.
fn least_ms(mut f: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..5).map(once).fold(f64::INFINITY, f64::min)
}

fn main() {
    for n in [3_000, 6_000, 12_000] {
        let bytes = models::chain(n).bytes();
        let ms = least_ms(|| {
            import_bytes(bytes.clone(), &ImportOptions::default()).unwrap();
        });
        println!("chain of {n} nodes: {ms:.1} ms");
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let inline = models::inline_weights(folder.path(), 2_200_000_000);
    let external = models::external_weights(folder.path(), 2_200_000_000);
    for (what, path) in [("inline", &inline), ("external", &external)] {
        let open = least_ms(|| {
            describe(path).unwrap();
        });
        let import = least_ms(|| {
            import(path, &ImportOptions::default()).unwrap();
        });
        println!("2.2 GB {what}: opened in {open:.3} ms, imported in {import:.3} ms");
    }
}
