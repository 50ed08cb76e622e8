//! Rows for tests.

use super::row::{Conditions, Key, Row};

/// A row that passed; `n` makes its samples different from others'.
pub(super) fn row(region: &str, schedule: &str, n: i64) -> Row {
    Row {
        key: Key {
            region: region.into(),
            schedule: schedule.into(),
            ptx: format!("ptx of {schedule}"),
            device: "cpu/chip/AVX2/2".into(),
            method: "verify-1".into(),
            conditions: Conditions::default(),
        },
        verdict: "pass".into(),
        seed: Some(u64::MAX),
        samples_ns: vec![3 * n, n, 2 * n],
        incumbent_ns: vec![],
        decision: "alone".into(),
        median_ns: 2.0 * n as f64,
        error_of_bound: 0.25,
        agent: "tiler".into(),
        tiling_move: "threads".into(),
        parent: String::new(),
    }
}
