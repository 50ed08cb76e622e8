//! Dropping rows that nobody will look up: only what is asked for, and only after showing it.

use rusqlite::params;
use serde::Serialize;

use super::error::EvidenceError;
use super::store::Evidence;

/// What is to go. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discard {
    /// Rows that anything but this method verified and timed.
    pub methods_except: Option<String>,
    /// Rows of any device but this one.
    pub devices_except: Option<String>,
    /// Kernels in quarantine, which may then run again.
    pub quarantine: bool,
}

/// What goes or went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Discarded {
    /// Measurements, by device and method.
    pub groups: Vec<DiscardedGroup>,
    /// Measurements in all.
    pub n_measurements: u64,
    /// Texts of regions that no measurement is left for.
    pub n_regions: u64,
    /// Kernels in quarantine.
    pub n_quarantined: u64,
    /// Measurements that stay.
    pub n_kept: u64,
}

/// See [`Discarded::groups`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscardedGroup {
    /// The device.
    pub device: String,
    /// The method.
    pub method: String,
    /// Measurements.
    pub n_measurements: u64,
}

const GOES: &str = "((?1 IS NOT NULL AND method <> ?1) OR (?2 IS NOT NULL AND device <> ?2))";

impl Evidence {
    /// Says what would go, and drops it if `apply`.
    ///
    /// Races of engines, records of jobs, notes and counterexamples stay: they name no device or method, or
    /// hold for all.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written; nothing is dropped then.
    pub fn gc(&self, discard: &Discard, apply: bool) -> Result<Discarded, EvidenceError> {
        let Discard { methods_except, devices_except, quarantine } = discard;
        let fail = |err| self.fail(err);
        let connection = self.connection();
        let change = connection.unchecked_transaction().map_err(fail)?;
        let count = |sql: &str| {
            connection
                .query_row(sql, [], |row| row.get::<_, i64>(0).map(i64::unsigned_abs))
                .map_err(fail)
        };
        let groups: Result<Vec<DiscardedGroup>, _> = connection
            .prepare(&format!(
                "SELECT device, method, count(*) FROM measurement WHERE {GOES}
                 GROUP BY device, method ORDER BY device, method"
            ))
            .and_then(|mut statement| {
                let rows = statement.query_map(params![methods_except, devices_except], |row| {
                    Ok(DiscardedGroup {
                        device: row.get(0)?,
                        method: row.get(1)?,
                        n_measurements: row.get::<_, i64>(2)?.unsigned_abs(),
                    })
                })?;
                rows.collect()
            });
        let groups = groups.map_err(fail)?;
        let orphans = "FROM region WHERE hash NOT IN (SELECT region FROM measurement)";
        let n_measurements = groups.iter().map(|group| group.n_measurements).sum();
        // Dropped in any case, and taken back unless asked to apply: what is said is what happens.
        connection
            .execute(
                &format!("DELETE FROM measurement WHERE {GOES}"),
                params![methods_except, devices_except],
            )
            .map_err(fail)?;
        // A region whose first measurement is still under way has no row yet either.
        let n_regions =
            if n_measurements > 0 { count(&format!("SELECT count(*) {orphans}"))? } else { 0 };
        let n_quarantined = if *quarantine { count("SELECT count(*) FROM quarantine")? } else { 0 };
        let n_kept = count("SELECT count(*) FROM measurement")?;
        if apply {
            if n_regions > 0 {
                connection.execute(&format!("DELETE {orphans}"), []).map_err(fail)?;
            }
            if *quarantine {
                connection.execute("DELETE FROM quarantine", []).map_err(fail)?;
            }
            change.commit().map_err(fail)?;
            connection.execute_batch("VACUUM").map_err(fail)?;
        } else {
            change.rollback().map_err(fail)?;
        }
        Ok(Discarded { groups, n_measurements, n_regions, n_quarantined, n_kept })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use crate::evidence::testing::row;

    #[test]
    fn only_what_is_asked_for_goes_and_only_when_it_is_applied() {
        let evidence = Evidence::in_memory().unwrap();
        for (region, device, method) in
            [("a", "cpu", "2"), ("a", "cpu", "1"), ("b", "gpu", "2"), ("c", "gpu", "1")]
        {
            let mut row = row(region, "s", 1);
            (row.key.device, row.key.method) = (device.into(), method.into());
            evidence.insert(&row).unwrap();
            evidence.insert_region(region, "graph").unwrap();
        }
        let nothing = evidence.gc(&Discard::default(), true).unwrap();
        assert_eq!(nothing, Discarded { n_kept: 4, ..Discarded::default() });
        let methods = Discard { methods_except: Some("2".into()), ..Discard::default() };
        let plan = evidence.gc(&methods, false).unwrap();
        assert_eq!((plan.n_measurements, plan.n_regions, plan.n_kept), (2, 1, 2));
        assert_eq!(evidence.gc(&methods, false).unwrap(), plan, "a dry run changes nothing");
        assert_eq!(evidence.gc(&methods, true).unwrap(), plan);
        assert_eq!(evidence.region("c").unwrap(), None);
        assert!(evidence.region("a").unwrap().is_some());
        let devices = Discard { devices_except: Some("cpu".into()), ..Discard::default() };
        let gone = evidence.gc(&devices, true).unwrap();
        assert_eq!((gone.n_measurements, gone.n_kept), (1, 1));
        assert_eq!(gone.groups[0].device, "gpu");
        assert!(evidence.check().unwrap().faults.is_empty());
    }
}
