//! Entry functions of the fuzz targets, and their bound on memory. The workspace's own smoke test and mutation
//! loop include the same files.

#[allow(dead_code, reason = "tests also count calls")]
#[path = "../../tests/src/alloc.rs"]
mod alloc;
pub mod entries;

#[global_allocator]
static ALLOC: alloc::Counting = alloc::Counting;

/// Runs an entry.
///
/// # Panics
///
/// If it does, or takes more memory at one time than [`entries::bound_bytes`]: libFuzzer's own limits are on
/// the whole process, and on single pieces only with a sanitizer.
pub fn bounded(entry: entries::Entry, data: &[u8]) {
    let (_, counted) = alloc::count(|| entry(data));
    assert!(counted.peak_bytes <= entries::bound_bytes(data.len()), "{counted:?}");
}
