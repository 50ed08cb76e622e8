//! What a file holds, for people: counts, and what a prefix of a hash stands for.

use serde::Serialize;

use super::error::EvidenceError;
use super::job::{JobRecord, record_at};
use super::row::{EngineRow, Row};
use super::schema::SCHEMA_VERSION;
use super::store::{Evidence, engine_row_at};

/// Counts of everything.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    /// Layout of the tables.
    pub version: i64,
    /// Measurements.
    pub n_measurements: u64,
    /// Races of whole engines.
    pub n_engines: u64,
    /// Preconditions with several measurements.
    pub n_conflicts: u64,
    /// Inputs that refuted a kernel.
    pub n_counterexamples: u64,
    /// Kernels that must not run again.
    pub n_quarantined: u64,
    /// Measurements by kind of verdict.
    pub verdicts: Vec<(String, u64)>,
    /// Where and how was measured.
    pub places: Vec<Place>,
    /// Regions, in the order of their hashes.
    pub regions: Vec<RegionInfo>,
    /// Searches, in the order of their hashes.
    pub jobs: Vec<JobInfo>,
}

/// Measurements of one device, method and set of conditions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// The device.
    pub device: String,
    /// The method.
    pub method: String,
    /// Alignment, toolchain and state of the caches.
    pub conditions: String,
    /// Measurements.
    pub n_measurements: u64,
    /// Of these, passed.
    pub n_passed: u64,
    /// Regions.
    pub n_regions: u64,
}

/// A region with what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionInfo {
    /// Its hash.
    pub hash: String,
    /// Measurements.
    pub n_measurements: u64,
    /// Of these, passed.
    pub n_passed: u64,
    /// The least median time of one launch, on any device; `None` if nothing was timed.
    pub best_ns: Option<f64>,
}

/// A search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobInfo {
    /// Hash of what was asked.
    pub hash: String,
    /// How far it had come.
    #[serde(flatten)]
    pub record: JobRecord,
    /// What was asked.
    pub description: String,
}

/// What a prefix of a hash stands for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "found", rename_all = "kebab-case")]
pub enum Found {
    /// A measurement, or several with the same preconditions: the first counts.
    Measurement {
        /// Its address.
        hash: String,
        /// The rows.
        rows: Vec<Row>,
    },
    /// A region with all of its measurements.
    Region {
        /// Its hash.
        hash: String,
        /// Its text, if it was written down.
        text: Option<String>,
        /// The measurements.
        rows: Vec<Row>,
    },
    /// A race of two engines.
    Engine {
        /// Its address.
        hash: String,
        /// The race, or several: the first counts.
        rows: Vec<EngineRow>,
    },
    /// A search.
    Job(JobInfo),
}

/// Why a prefix stands for nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The file.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// It is not one.
    #[error("`{prefix}` is not the beginning of a hash: hexadecimal digits are expected")]
    NoPrefix {
        /// What was given.
        prefix: String,
    },
    /// Nothing begins so.
    #[error(
        "no measurement, region, race or job begins with `{prefix}`; `eggine evidence list` shows what there is"
    )]
    Nothing {
        /// What was given.
        prefix: String,
    },
    /// Several things do.
    #[error("`{prefix}` is the beginning of {}; give more digits", names.join(", "))]
    Ambiguous {
        /// What was given.
        prefix: String,
        /// The first few, each with its kind.
        names: Vec<String>,
    },
}

impl Evidence {
    /// Counts everything.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a record is damaged.
    pub fn overview(&self) -> Result<Overview, EvidenceError> {
        let n = |row: &rusqlite::Row<'_>, column: usize| -> rusqlite::Result<u64> {
            row.get::<_, i64>(column).map(i64::unsigned_abs)
        };
        let count = |table: &str| {
            let sql = format!("SELECT count(*) FROM {table}");
            self.connection().query_row(&sql, [], |row| n(row, 0)).map_err(|err| self.fail(err))
        };
        let places = self.list(
            "SELECT device, method, layout, toolchain, cache, count(*), sum(verdict = 'pass'), count(DISTINCT region)
             FROM measurement GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5",
            |row| {
                let (layout, toolchain): (String, String) = (row.get(2)?, row.get(3)?);
                let cache: String = row.get(4)?;
                Ok(Place {
                    device: row.get(0)?,
                    method: row.get(1)?,
                    conditions: format!("{layout}, toolchain {toolchain}, {cache} caches"),
                    n_measurements: n(row, 5)?,
                    n_passed: n(row, 6)?,
                    n_regions: n(row, 7)?,
                })
            },
        )?;
        let regions = self.list(
            "SELECT region, count(*), sum(verdict = 'pass'),
                    min(CASE WHEN verdict = 'pass' AND median_ns > 0 THEN median_ns END)
             FROM measurement GROUP BY region ORDER BY region",
            |row| {
                Ok(RegionInfo {
                    hash: row.get(0)?,
                    n_measurements: n(row, 1)?,
                    n_passed: n(row, 2)?,
                    best_ns: row.get(3)?,
                })
            },
        )?;
        Ok(Overview {
            version: SCHEMA_VERSION,
            n_measurements: count("measurement")?,
            n_engines: count("engine")?,
            n_conflicts: self.n_conflicts()?,
            n_counterexamples: count("counterexample")?,
            n_quarantined: count("quarantine")?,
            verdicts: self.verdicts()?,
            places,
            regions,
            jobs: self.jobs()?,
        })
    }

    /// All searches, in the order of their hashes.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a record is damaged.
    pub fn jobs(&self) -> Result<Vec<JobInfo>, EvidenceError> {
        self.list("SELECT generations, finished, hash, description FROM job ORDER BY hash", |row| {
            Ok(JobInfo { record: record_at(row)?, hash: row.get(2)?, description: row.get(3)? })
        })
    }

    fn list<T>(
        &self,
        sql: &str,
        read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, EvidenceError> {
        (self.connection())
            .prepare(sql)
            .and_then(|mut statement| statement.query_map([], read)?.collect())
            .map_err(|err| self.fail(err))
    }

    /// What begins with these hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`FindError`]: nothing, or several things.
    pub fn find(&self, prefix: &str) -> Result<Found, FindError> {
        if prefix.is_empty() || !prefix.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(FindError::NoPrefix { prefix: prefix.to_owned() });
        }
        let from = prefix.to_ascii_lowercase();
        let mut found: Vec<(&str, String)> = Vec::new();
        for (kind, sql) in [
            (
                "measurement",
                "SELECT DISTINCT hash FROM measurement WHERE hash >= ?1 AND hash < ?2 LIMIT 5",
            ),
            (
                "region",
                "SELECT DISTINCT region FROM measurement WHERE region >= ?1 AND region < ?2
                 UNION SELECT hash FROM region WHERE hash >= ?1 AND hash < ?2 LIMIT 5",
            ),
            ("race", "SELECT DISTINCT hash FROM engine WHERE hash >= ?1 AND hash < ?2 LIMIT 5"),
            ("job", "SELECT hash FROM job WHERE hash >= ?1 AND hash < ?2 LIMIT 5"),
        ] {
            let hashes: Result<Vec<String>, _> =
                self.connection().prepare(sql).and_then(|mut statement| {
                    // `g` follows every hexadecimal digit.
                    statement.query_map([&from, &format!("{from}g")], |row| row.get(0))?.collect()
                });
            let hashes = hashes.map_err(|err| self.fail(err))?;
            found.extend(hashes.into_iter().map(|hash| (kind, hash)));
        }
        if found.len() > 1 {
            let names = found
                .iter()
                .take(5)
                .map(|(kind, hash)| {
                    format!("{kind} {}", hash.get(..from.len() + 4).unwrap_or(hash))
                })
                .collect();
            return Err(FindError::Ambiguous { prefix: from, names });
        }
        let Some((kind, hash)) = found.pop() else {
            return Err(FindError::Nothing { prefix: from });
        };
        Ok(match kind {
            "measurement" => {
                let rows = ranked(self.select("hash = ?1", [&hash])?, Row::outranks);
                Found::Measurement { hash, rows }
            }
            "region" => {
                let text = self.region(&hash)?;
                let mut rows = self.select("region = ?1", [&hash])?;
                rows.sort_by(|a, b| {
                    let time = |row: &Row| (!row.passed(), row.median_ns <= 0.0, row.median_ns);
                    let (a_time, b_time) = (time(a), time(b));
                    (a_time.0, a_time.1)
                        .cmp(&(b_time.0, b_time.1))
                        .then(a_time.2.total_cmp(&b_time.2))
                        .then_with(|| a.key.cmp(&b.key))
                });
                Found::Region { hash, text, rows }
            }
            "race" => {
                let rows = (self.connection())
                    .prepare(
                        "SELECT samples_ns, incumbent_ns, decision, ratio, low, high FROM engine
                         WHERE hash = ?1 ORDER BY content",
                    )
                    .and_then(|mut statement| {
                        statement.query_map([&hash], engine_row_at)?.collect::<Result<Vec<_>, _>>()
                    })
                    .map_err(|err| self.fail(err))?;
                Found::Engine { hash, rows: ranked(rows, EngineRow::outranks) }
            }
            _ => {
                let jobs = self.jobs()?;
                let job = jobs.into_iter().find(|job| job.hash == hash);
                Found::Job(job.ok_or(FindError::Nothing { prefix: from })?)
            }
        })
    }
}

/// The row that counts comes first.
fn ranked<T>(mut rows: Vec<T>, outranks: impl Fn(&T, &T) -> bool) -> Vec<T> {
    rows.sort_by(|a, b| outranks(b, a).cmp(&outranks(a, b)));
    rows
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use crate::evidence::testing::row;

    #[test]
    fn a_prefix_finds_a_row_or_a_region_and_says_when_it_cannot() {
        let evidence = Evidence::in_memory().unwrap();
        let region = "abc0".repeat(16);
        let (one, two) = (row(&region, "a", 5), row(&region, "b", 2));
        evidence.insert(&one).unwrap();
        evidence.insert(&two).unwrap();
        let again = Row { samples_ns: vec![1; 30], ..one.clone() };
        crate::evidence::store::insert_row(evidence.connection(), &again).unwrap();
        evidence.insert_region(&region, "graph @r").unwrap();

        let hash = one.key.hash();
        let found = evidence.find(&hash[..20]).unwrap();
        assert_eq!(found, Found::Measurement { hash, rows: vec![again.clone(), one.clone()] });
        let Found::Region { text, rows, .. } = evidence.find("ABC0ABC0").unwrap() else {
            panic!("a region");
        };
        assert_eq!((text.as_deref(), rows[0].clone(), rows.len()), (Some("graph @r"), two, 3));
        for (prefix, words) in [("xyz", "hexadecimal"), ("", "hexadecimal"), ("0000000", "no meas")]
        {
            let refused = evidence.find(prefix).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        let twin = format!("abc1{}", "0".repeat(60));
        evidence.insert_region(&twin, "graph @twin").unwrap();
        let refused = evidence.find("abc").unwrap_err().to_string();
        assert!(
            refused.contains("region abc0abc") && refused.contains("region abc1000"),
            "{refused}"
        );
    }

    #[test]
    fn an_overview_counts_by_place_and_region() {
        let evidence = Evidence::in_memory().unwrap();
        evidence.insert(&row("r", "a", 5)).unwrap();
        evidence.insert(&row("r", "b", 2)).unwrap();
        let bad = row("s", "c", 1);
        evidence.insert(&Row { verdict: "faults: hung".into(), ..bad }).unwrap();
        evidence.begin_job("j", "words").unwrap();
        let overview = evidence.overview().unwrap();
        assert_eq!((overview.n_measurements, overview.n_conflicts), (3, 0));
        let place = &overview.places[0];
        assert_eq!((place.n_measurements, place.n_passed, place.n_regions), (3, 2, 2));
        let best: Vec<Option<f64>> = overview.regions.iter().map(|it| it.best_ns).collect();
        assert_eq!(best, [Some(4.0), None]);
        assert_eq!(overview.jobs[0].description, "words");
    }
}
