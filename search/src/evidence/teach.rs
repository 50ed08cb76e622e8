//! Rows that [lessons](crate::lessons) are learned from.

use rusqlite::params;

use super::error::EvidenceError;
use super::row::Row;
use super::store::{COLUMNS, Evidence, row_at};

impl Evidence {
    /// Rows that passed on a device, with the texts of their regions, in the order of their hashes, at
    /// most `limit`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a row is damaged.
    pub fn passed(
        &self,
        device: &str,
        method: &str,
        limit: usize,
    ) -> Result<Vec<(String, Row)>, EvidenceError> {
        let columns: Vec<String> =
            COLUMNS.split(',').map(|column| format!("m.{}", column.trim())).collect();
        let sql = format!(
            "SELECT {}, r.text FROM measurement m JOIN region r ON r.hash = m.region
             WHERE m.device = ?1 AND m.method = ?2 AND m.verdict = 'pass'
             ORDER BY m.hash, m.content, r.text LIMIT ?3",
            columns.join(", ")
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        (self.connection())
            .prepare_cached(&sql)
            .and_then(|mut statement| {
                let rows = statement.query_map(params![device, method, limit], |row| {
                    Ok((row.get::<_, String>(columns.len())?, row_at(row)?))
                })?;
                rows.collect()
            })
            .map_err(|err| self.fail(err))
    }
}
