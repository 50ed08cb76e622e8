//! Many rows at once.

use std::collections::BTreeMap;

use super::error::EvidenceError;
use super::row::{Conditions, Row};
use super::store::Evidence;

impl Evidence {
    /// Everything known about a region on a device: one row for each key, by schedule and PTX.
    ///
    /// A caller need not make the PTX to ask. It must to believe the answer: the row names the hash of
    /// what ran.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a row is damaged.
    pub fn rows(
        &self,
        region: &str,
        device: &str,
        method: &str,
        conditions: &Conditions,
    ) -> Result<Vec<Row>, EvidenceError> {
        let Conditions { layout, toolchain, cache } = conditions;
        let rows = self.select(
            "region = ?1 AND device = ?2 AND method = ?3 AND layout = ?4 AND toolchain = ?5 AND cache = ?6",
            [region, device, method, layout, toolchain, cache],
        )?;
        Ok(that_count(rows))
    }

    /// Everything known about several regions, by region. Regions without rows are left out.
    ///
    /// # Errors
    ///
    /// As [`rows`](Self::rows).
    pub fn rows_of_regions<'a>(
        &self,
        regions: impl IntoIterator<Item = &'a str>,
        device: &str,
        method: &str,
        conditions: &Conditions,
    ) -> Result<BTreeMap<String, Vec<Row>>, EvidenceError> {
        let mut found = BTreeMap::new();
        for region in regions {
            let rows = self.rows(region, device, method, conditions)?;
            if !rows.is_empty() {
                found.insert(region.to_owned(), rows);
            }
        }
        Ok(found)
    }

    /// What is known about a schedule of a region, whatever the PTX: normally one row, more if the code
    /// generator changed in between.
    ///
    /// # Errors
    ///
    /// As [`rows`](Self::rows).
    pub fn rows_of_schedule(
        &self,
        region: &str,
        schedule: &str,
        device: &str,
        method: &str,
        conditions: &Conditions,
    ) -> Result<Vec<Row>, EvidenceError> {
        let Conditions { layout, toolchain, cache } = conditions;
        let rows = self.select(
            "region = ?1 AND device = ?2 AND method = ?3 AND schedule = ?4 AND layout = ?5 AND toolchain = ?6 AND cache = ?7",
            [region, device, method, schedule, layout, toolchain, cache],
        )?;
        Ok(that_count(rows))
    }

    /// Number of rows by verdict kind (`pass` or the word before the first colon), sorted.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn verdicts(&self) -> Result<Vec<(String, u64)>, EvidenceError> {
        let mut statement = (self.connection())
            .prepare_cached(
                "SELECT CASE instr(verdict, ':') WHEN 0 THEN verdict ELSE substr(verdict, 1, instr(verdict, ':') - 1) END AS kind,
                        count(*) FROM measurement GROUP BY kind ORDER BY kind",
            )
            .map_err(|err| self.fail(err))?;
        let rows = statement
            .query_map([], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.unsigned_abs()))
            })
            .and_then(Iterator::collect);
        rows.map_err(|err| self.fail(err))
    }
}

/// One row for each key, sorted by it.
fn that_count(rows: Vec<Row>) -> Vec<Row> {
    let mut by_key: BTreeMap<_, Row> = BTreeMap::new();
    for row in rows {
        match by_key.entry(row.key.clone()) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(row);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                if row.outranks(entry.get()) {
                    entry.insert(row);
                }
            }
        }
    }
    by_key.into_values().collect()
}
