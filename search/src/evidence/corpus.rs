//! What went wrong once, kept so that it does not go wrong twice: inputs that refuted a kernel, and
//! kernels that must not run again.
//!
//! Both hold what verification said as JSON that only verification reads: this module stores it.

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::error::EvidenceError;
use super::row::hash_of;
use super::store::Evidence;

/// Inputs on which a kernel was wrong. Later kernels of regions of the same kind are run on them too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CounterexampleRow {
    /// What kind of region it applies to.
    pub kind: String,
    /// Hash of the region in which it was found.
    pub region: String,
    /// The inputs or what generates them, as verification writes them.
    pub entry: String,
    /// What failed, in words.
    pub failure: String,
}

/// A kernel that hung, trapped or exhausted memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QuarantineRow {
    /// Hash of the region.
    pub region: String,
    /// The schedule's text.
    pub schedule: String,
    /// Hash of the PTX.
    pub ptx_hash: String,
    /// Identity of the device on which it happened.
    pub device: String,
    /// What verified it.
    pub method: String,
    /// What it did, in words.
    pub reason: String,
    /// What it did, as verification writes it.
    pub entry: String,
    /// The PTX.
    pub ptx: String,
}

impl CounterexampleRow {
    /// Content address, in hexadecimal. How it failed is no part of it: the same inputs are kept once.
    pub fn content(&self) -> String {
        hash_of(&(&self.kind, &self.entry))
    }
}

impl QuarantineRow {
    /// Content address, in hexadecimal.
    pub fn content(&self) -> String {
        hash_of(self)
    }
}

impl Evidence {
    /// Adds a counterexample; whether it was new. Of two that differ in region or failure only, the
    /// smaller is kept, so that files merge to the same whatever the order.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn insert_counterexample(&self, row: &CounterexampleRow) -> Result<bool, EvidenceError> {
        let CounterexampleRow { kind, region, entry, failure } = row;
        let n = (self.connection())
            .prepare_cached("SELECT count(*) FROM counterexample WHERE content = ?1")
            .and_then(|mut it| it.query_row([row.content()], |row| row.get::<_, i64>(0)))
            .map_err(|err| self.fail(err))?;
        (self.connection())
            .prepare_cached(
                "INSERT INTO counterexample VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (content) DO UPDATE SET region = excluded.region, failure = excluded.failure
                 WHERE (excluded.region, excluded.failure) < (region, failure)",
            )
            .and_then(|mut it| it.execute(params![row.content(), kind, region, entry, failure]))
            .map_err(|err| self.fail(err))?;
        Ok(n == 0)
    }

    /// Counterexamples for a kind of region, in the order of their content.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn counterexamples(&self, kind: &str) -> Result<Vec<CounterexampleRow>, EvidenceError> {
        self.select_counterexamples("kind = ?1", [kind])
    }

    /// All counterexamples.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn all_counterexamples(&self) -> Result<Vec<CounterexampleRow>, EvidenceError> {
        self.select_counterexamples("1", [])
    }

    fn select_counterexamples(
        &self,
        condition: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<CounterexampleRow>, EvidenceError> {
        (self.connection())
            .prepare_cached(&format!(
                "SELECT kind, region, entry, failure FROM counterexample WHERE {condition} ORDER BY content"
            ))
            .and_then(|mut statement| {
                let rows = statement.query_map(values, |row| {
                    Ok(CounterexampleRow {
                        kind: row.get(0)?,
                        region: row.get(1)?,
                        entry: row.get(2)?,
                        failure: row.get(3)?,
                    })
                })?;
                rows.collect()
            })
            .map_err(|err| self.fail(err))
    }

    /// Keeps a kernel that must not run again on its device.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn insert_quarantined(&self, row: &QuarantineRow) -> Result<(), EvidenceError> {
        let QuarantineRow { region, schedule, ptx_hash, device, method, reason, entry, ptx } = row;
        (self.connection())
            .prepare_cached(
                "INSERT OR IGNORE INTO quarantine VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )
            .and_then(|mut it| {
                it.execute(params![
                    row.content(),
                    region,
                    schedule,
                    ptx_hash,
                    device,
                    method,
                    reason,
                    entry,
                    ptx
                ])
            })
            .map_err(|err| self.fail(err))?;
        Ok(())
    }

    /// Kernels that must not run on a device, whatever verified them, in the order of their content.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn quarantined(&self, device: &str) -> Result<Vec<QuarantineRow>, EvidenceError> {
        self.select_quarantined("device = ?1", [device])
    }

    /// Whether a text must not run on a device: the first row that says so.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn quarantined_kernel(
        &self,
        device: &str,
        ptx_hash: &str,
    ) -> Result<Option<QuarantineRow>, EvidenceError> {
        let rows = self.select_quarantined("device = ?1 AND ptx = ?2", [device, ptx_hash])?;
        Ok(rows.into_iter().next())
    }

    /// All kernels in quarantine.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn all_quarantined(&self) -> Result<Vec<QuarantineRow>, EvidenceError> {
        self.select_quarantined("1", [])
    }

    fn select_quarantined(
        &self,
        condition: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<QuarantineRow>, EvidenceError> {
        (self.connection())
            .prepare_cached(&format!(
                "SELECT region, schedule, ptx, device, method, reason, entry, text FROM quarantine
                 WHERE {condition} ORDER BY content"
            ))
            .and_then(|mut statement| {
                let rows = statement.query_map(values, |row| {
                    Ok(QuarantineRow {
                        region: row.get(0)?,
                        schedule: row.get(1)?,
                        ptx_hash: row.get(2)?,
                        device: row.get(3)?,
                        method: row.get(4)?,
                        reason: row.get(5)?,
                        entry: row.get(6)?,
                        ptx: row.get(7)?,
                    })
                })?;
                rows.collect()
            })
            .map_err(|err| self.fail(err))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn counterexamples_are_found_by_kind_and_kept_once() {
        let evidence = Evidence::in_memory().unwrap();
        let row = |kind: &str, region: &str, entry: &str| CounterexampleRow {
            kind: kind.into(),
            region: region.into(),
            entry: entry.into(),
            failure: "inaccurate".into(),
        };
        assert!(evidence.insert_counterexample(&row("row", "r2", "{1}")).unwrap());
        assert!(!evidence.insert_counterexample(&row("row", "r1", "{1}")).unwrap());
        assert!(!evidence.insert_counterexample(&row("row", "r3", "{1}")).unwrap());
        assert!(evidence.insert_counterexample(&row("row", "r1", "{2}")).unwrap());
        assert!(evidence.insert_counterexample(&row("scan", "r1", "{1}")).unwrap());
        let mut found = evidence.counterexamples("row").unwrap();
        found.sort();
        assert_eq!(found, [row("row", "r1", "{1}"), row("row", "r1", "{2}")]);
        assert_eq!(evidence.counterexamples("none").unwrap(), []);
        assert_eq!(evidence.all_counterexamples().unwrap().len(), 3);
    }

    #[test]
    fn a_kernel_in_quarantine_is_found_on_its_device_only() {
        let evidence = Evidence::in_memory().unwrap();
        let row = QuarantineRow {
            region: "r".into(),
            schedule: "row threads=32".into(),
            ptx_hash: "p".into(),
            device: "cpu".into(),
            method: "1".into(),
            reason: "hangs".into(),
            entry: "{}".into(),
            ptx: ".version 9.0".into(),
        };
        evidence.insert_quarantined(&row).unwrap();
        evidence.insert_quarantined(&row).unwrap();
        assert_eq!(evidence.quarantined_kernel("cpu", "p").unwrap().as_ref(), Some(&row));
        assert_eq!(evidence.quarantined_kernel("cpu", "q").unwrap(), None);
        assert_eq!(evidence.quarantined("cpu").unwrap(), [row]);
        assert_eq!(evidence.quarantined("other").unwrap(), []);
        assert_eq!(evidence.all_quarantined().unwrap().len(), 1);
    }
}
