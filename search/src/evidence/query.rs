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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use crate::evidence::testing::row;

    #[test]
    fn a_schedule_is_found_without_its_ptx_and_under_its_conditions_only() {
        let evidence = Evidence::in_memory().unwrap();
        let one = row("r", "a", 1);
        let mut cold = row("r", "a", 2);
        cold.key.conditions.cache = "cold".into();
        for row in [&one, &cold, &row("r", "b", 3), &row("other", "a", 4)] {
            evidence.insert(row).unwrap();
        }
        let (usual, key) = (Conditions::default(), &one.key);
        let found = evidence.rows_of_schedule("r", "a", &key.device, &key.method, &usual).unwrap();
        assert_eq!(found, std::slice::from_ref(&one));
        let all = evidence.rows("r", &key.device, &key.method, &usual).unwrap();
        assert_eq!(all.iter().map(|row| row.key.schedule.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let regions =
            evidence.rows_of_regions(["r", "none"], &key.device, &key.method, &usual).unwrap();
        assert_eq!(regions, BTreeMap::from([("r".to_owned(), all)]));
    }

    #[test]
    fn what_passed_comes_with_the_text_of_its_region() {
        let evidence = Evidence::in_memory().unwrap();
        evidence.insert_region("r", "graph @r").unwrap();
        let bad = row("r", "bad", 1);
        let bad = Row { verdict: "inaccurate: 3 elements".into(), ..bad };
        let good = row("r", "good", 1);
        for row in [&bad, &good, &row("nameless", "a", 1)] {
            evidence.insert(row).unwrap();
        }
        let passed = evidence.passed(&good.key.device, &good.key.method, 9).unwrap();
        assert_eq!(passed, [("graph @r".to_owned(), good)]);
        let kinds = evidence.verdicts().unwrap();
        assert_eq!(kinds, [("inaccurate".to_owned(), 1), ("pass".to_owned(), 2)]);
    }

    #[test]
    fn of_two_measurements_of_one_thing_the_rejection_counts_then_the_longer_one() {
        let evidence = Evidence::in_memory().unwrap();
        let short = row("r", "a", 1);
        let long = Row { samples_ns: vec![7; 9], ..short.clone() };
        let rejected = Row { verdict: "faults: hung".into(), ..short.clone() };
        let key = &short.key;
        let now = |expected: &Row| {
            let usual = Conditions::default();
            assert_eq!(evidence.lookup(key).unwrap().as_ref(), Some(expected));
            let rows = evidence.rows("r", &key.device, &key.method, &usual).unwrap();
            assert_eq!(rows, std::slice::from_ref(expected));
        };
        for (added, counts) in [(&short, &short), (&long, &long), (&rejected, &rejected)] {
            crate::evidence::store::insert_row(evidence.connection(), added).unwrap();
            now(counts);
        }
    }
}
