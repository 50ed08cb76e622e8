//! Files as sets of records, and their union.
//!
//! Merging is associative, commutative and idempotent, since every record is added by a rule that is:
//!
//! - measurements, races of engines and kernels in quarantine are kept by their content address, so that
//!   two that differ are two records ([`Row::outranks`](super::Row::outranks) says which counts);
//! - of counterexamples with the same inputs, the one with the smaller region and failure is kept;
//! - of two records of a job, the [further](super::JobRecord::is_further_than) one;
//! - of two notes, the one with the smaller text. A note is no evidence, and made again if it is wrong.

use std::path::Path;

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::corpus::{CounterexampleRow, QuarantineRow};
use super::error::{EvidenceError, classify};
use super::job::{JobRecord, record_at};
use super::lines;
use super::row::{EngineRow, Row};
use super::store::{COLUMNS, Evidence, engine_row_at, insert_engine_row, insert_row, row_at};

/// Anything that a file holds: a line of an export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// What a hash of a region stands for.
    Region {
        /// The hash.
        hash: String,
        /// The region.
        text: String,
    },
    /// A measured candidate.
    Measurement(Row),
    /// A race of two engines.
    Engine {
        /// Hash of the two, the device and the method.
        hash: String,
        /// What it showed.
        #[serde(flatten)]
        row: EngineRow,
    },
    /// How far a search had come.
    Job {
        /// Hash of what was asked.
        hash: String,
        /// How far.
        #[serde(flatten)]
        progress: JobRecord,
        /// What was asked, in words.
        description: String,
    },
    /// What a job left for its repetition.
    Note {
        /// What it is about.
        kind: String,
        /// Hash of the job.
        job: String,
        /// The note.
        text: String,
    },
    /// Inputs that refuted a kernel.
    Counterexample(CounterexampleRow),
    /// A kernel that must not run again.
    Quarantined(QuarantineRow),
}

/// What a merge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Merged {
    /// Records read.
    pub n_read: u64,
    /// Records that were new or said more than what was known.
    pub n_changed: u64,
    /// Preconditions under which the result has several measurements.
    pub n_conflicts: u64,
}

impl Evidence {
    /// Calls `take` with every record, in canonical order: equal files in the sense of merging give equal
    /// sequences.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, a row is damaged, or `take` fails.
    pub fn for_each_record<E: From<EvidenceError>>(
        &self,
        mut take: impl FnMut(Record) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each(
            "SELECT hash, text FROM region ORDER BY hash, text",
            |row| Ok(Record::Region { hash: row.get(0)?, text: row.get(1)? }),
            &mut take,
        )?;
        self.each(
            &format!("SELECT {COLUMNS} FROM measurement ORDER BY hash, content"),
            |row| Ok(Record::Measurement(row_at(row)?)),
            &mut take,
        )?;
        self.each(
            "SELECT samples_ns, incumbent_ns, decision, ratio, low, high, hash FROM engine ORDER BY hash, content",
            |row| Ok(Record::Engine { hash: row.get(6)?, row: engine_row_at(row)? }),
            &mut take,
        )?;
        self.each(
            "SELECT generations, finished, hash, description FROM job ORDER BY hash",
            |row| {
                let progress = record_at(row)?;
                Ok(Record::Job { hash: row.get(2)?, progress, description: row.get(3)? })
            },
            &mut take,
        )?;
        self.each(
            "SELECT kind, job, text FROM note ORDER BY kind, job",
            |row| Ok(Record::Note { kind: row.get(0)?, job: row.get(1)?, text: row.get(2)? }),
            &mut take,
        )?;
        for row in self.all_counterexamples()? {
            take(Record::Counterexample(row))?;
        }
        for row in self.all_quarantined()? {
            take(Record::Quarantined(row))?;
        }
        Ok(())
    }

    fn each<E: From<EvidenceError>>(
        &self,
        sql: &str,
        read: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<Record>,
        take: &mut impl FnMut(Record) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut statement = self.connection().prepare(sql).map_err(|err| self.fail(err))?;
        let mut rows = statement.query([]).map_err(|err| self.fail(err))?;
        while let Some(row) = rows.next().map_err(|err| self.fail(err))? {
            take(read(row).map_err(|err| self.fail(err))?)?;
        }
        Ok(())
    }

    /// Adds a record by the rule of its kind: see [`merge`](Self::merge).
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn add(&self, record: &Record) -> Result<(), EvidenceError> {
        let connection = self.connection();
        let added = match record {
            Record::Region { hash, text } => return self.insert_region(hash, text),
            Record::Measurement(row) => insert_row(connection, row),
            Record::Engine { hash, row } => insert_engine_row(connection, hash, row),
            Record::Job { hash, progress, description } => {
                self.set_job(hash, progress)?;
                connection
                    .execute(
                        "UPDATE job SET description = max(description, ?2) WHERE hash = ?1",
                        [hash, description],
                    )
                    .map(drop)
            }
            Record::Note { kind, job, text } => connection
                .execute(
                    "INSERT INTO note VALUES (?1, ?2, ?3)
                     ON CONFLICT (kind, job) DO UPDATE SET text = min(text, excluded.text)",
                    params![kind, job, text],
                )
                .map(drop),
            Record::Counterexample(row) => return self.insert_counterexample(row).map(drop),
            Record::Quarantined(row) => return self.insert_quarantined(row),
        };
        added.map_err(|err| self.fail(err))
    }

    /// Adds everything that another file holds, or nothing if there is an error. Rows are kept by their
    /// content addresses, so that two that differ are two; of two records of a job the further one stays,
    /// of two notes the smaller text.
    ///
    /// # Errors
    ///
    /// If one of the files cannot be used.
    pub fn merge(&self, from: &Evidence) -> Result<Merged, EvidenceError> {
        self.merge_records(|take| from.for_each_record(take))
    }

    /// Adds everything that a file holds: a database, or the lines of an export.
    ///
    /// # Errors
    ///
    /// If one of the files cannot be used.
    pub fn merge_file(&self, from: &Path) -> Result<Merged, EvidenceError> {
        if lines::is_export(from)? {
            return self.merge_records(|take| lines::read(from, take));
        }
        self.merge(&Evidence::open_existing(from)?)
    }

    /// Adds the lines of an export; `name` is for messages.
    ///
    /// # Errors
    ///
    /// If a line is not one of an export, or this file cannot be written.
    pub fn merge_lines(&self, name: &Path, lines: &[u8]) -> Result<Merged, EvidenceError> {
        self.merge_records(|take| lines::read_from(name, lines, take))
    }

    fn merge_records(
        &self,
        feed: impl FnOnce(
            &mut dyn FnMut(Record) -> Result<(), EvidenceError>,
        ) -> Result<(), EvidenceError>,
    ) -> Result<Merged, EvidenceError> {
        let fail = |err| classify(self.path(), err);
        let connection = self.connection();
        // An error drops the transaction, which takes everything back.
        let change = connection.unchecked_transaction().map_err(fail)?;
        let changes = || connection.query_row("SELECT total_changes()", [], |row| row.get(0));
        let mut merged = Merged::default();
        feed(&mut |record| {
            let before: i64 = changes().map_err(fail)?;
            let known = self.holds(&record)?;
            self.add(&record)?;
            merged.n_read += 1;
            let after: i64 = changes().map_err(fail)?;
            merged.n_changed += u64::from(!known && after != before);
            Ok(())
        })?;
        change.commit().map_err(fail)?;
        merged.n_conflicts = self.n_conflicts()?;
        Ok(merged)
    }

    /// Whether a job's record is known in full. Adding one writes in any case; the other kinds do not.
    fn holds(&self, record: &Record) -> Result<bool, EvidenceError> {
        let (hash, further) = match record {
            Record::Job { hash, progress, .. } => (hash, progress),
            Record::Note { kind, job, text } => {
                return (self.connection())
                    .query_row(
                        "SELECT count(*) FROM note WHERE kind = ?1 AND job = ?2 AND text <= ?3",
                        [kind, job, text],
                        |row| row.get::<_, i64>(0).map(|n| n > 0),
                    )
                    .map_err(|err| self.fail(err));
            }
            _ => return Ok(false),
        };
        Ok(self.job(hash)?.is_some_and(|known| !further.is_further_than(&known)))
    }

    /// Keys with several measurements.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn n_conflicts(&self) -> Result<u64, EvidenceError> {
        (self.connection())
            .query_row(
                "SELECT count(*) FROM (SELECT 1 FROM measurement GROUP BY hash HAVING count(*) > 1)",
                [],
                |row| row.get::<_, i64>(0).map(i64::unsigned_abs),
            )
            .map_err(|err| self.fail(err))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use proptest::prelude::*;

    use super::*;
    use crate::evidence::testing::row;

    fn file(records: &[Record]) -> Evidence {
        let evidence = Evidence::in_memory().unwrap();
        for record in records {
            evidence.add(record).unwrap();
        }
        evidence
    }

    fn exported(evidence: &Evidence) -> String {
        let mut bytes = Vec::new();
        lines::write(evidence, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn merged(files: &[&Evidence]) -> Evidence {
        let into = Evidence::in_memory().unwrap();
        for file in files {
            into.merge(file).unwrap();
        }
        into
    }

    /// Few different values, so that records of different files collide in every way.
    fn record() -> impl Strategy<Value = Record> {
        let name = || prop::sample::select(vec!["a", "b"]);
        let verdict = prop::sample::select(vec!["pass", "inaccurate: far", "faults: hung"]);
        let float = || prop::sample::select(vec![0.5, 0.1 + 0.2, f64::MAX, f64::NAN, -0.0]);
        let measurement = (name(), name(), verdict, 0..3i64, float(), any::<Option<bool>>());
        let measurement = measurement.prop_map(|(region, schedule, verdict, n, error, seed)| {
            let verdict = verdict.to_owned();
            let seed = seed.map(|high| if high { u64::MAX } else { 7 });
            let row = row(region, schedule, n);
            Record::Measurement(Row { verdict, seed, error_of_bound: error, ..row })
        });
        let region = (name(), name())
            .prop_map(|(hash, text)| Record::Region { hash: hash.into(), text: text.into() });
        let engine = (name(), prop::collection::vec(0..3i64, 0..3), float()).prop_map(
            |(hash, samples_ns, ratio)| Record::Engine {
                hash: hash.into(),
                row: EngineRow {
                    samples_ns,
                    incumbent_ns: vec![],
                    decision: "faster".into(),
                    ratio,
                    low: 0.1,
                    high: 0.9,
                },
            },
        );
        let job = (name(), prop::collection::vec(0..3u64, 0..3), any::<bool>(), name());
        let job = job.prop_map(|(hash, generations, finished, description)| Record::Job {
            hash: hash.into(),
            progress: JobRecord { generations, finished },
            description: description.into(),
        });
        let note = (name(), name(), name()).prop_map(|(kind, job, text)| Record::Note {
            kind: kind.into(),
            job: job.into(),
            text: text.into(),
        });
        let counterexample = (name(), name(), name(), name());
        let counterexample = counterexample.prop_map(|(kind, region, entry, failure)| {
            Record::Counterexample(CounterexampleRow {
                kind: kind.into(),
                region: region.into(),
                entry: entry.into(),
                failure: failure.into(),
            })
        });
        let quarantined = (name(), name(), name()).prop_map(|(region, reason, ptx)| {
            Record::Quarantined(QuarantineRow {
                region: region.into(),
                schedule: "s".into(),
                ptx_hash: eggine_runtime::engine::hash_text(ptx),
                device: "cpu".into(),
                method: "1".into(),
                reason: reason.into(),
                entry: "{}".into(),
                ptx: ptx.into(),
            })
        });
        prop_oneof![
            4 => measurement,
            1 => region,
            2 => engine,
            2 => job,
            1 => note,
            1 => counterexample,
            1 => quarantined,
        ]
    }

    fn records() -> impl Strategy<Value = Vec<Record>> {
        prop::collection::vec(record(), 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_order_of_merging_does_not_matter(a in records(), b in records(), c in records()) {
            let (a, b, c) = (file(&a), file(&b), file(&c));
            let left = exported(&merged(&[&merged(&[&a, &b]), &c]));
            prop_assert_eq!(&left, &exported(&merged(&[&a, &merged(&[&b, &c])])));
            prop_assert_eq!(&left, &exported(&merged(&[&c, &a, &b])));
            prop_assert_eq!(&left, &exported(&merged(&[&b, &c, &a, &b, &a])));
        }

        #[test]
        fn nothing_is_lost_and_nothing_changes_what_is_merged_twice(a in records(), b in records()) {
            let (a, b) = (file(&a), file(&b));
            let both = merged(&[&a, &b]);
            let text = exported(&both);
            for file in [&a, &b] {
                file.for_each_record(|record| -> Result<(), EvidenceError> {
                    let line = serde_json::to_string(&record).unwrap();
                    match &record {
                        // Of these the one that says more is kept.
                        Record::Job { .. } | Record::Note { .. } | Record::Counterexample(_) => {}
                        _ => assert!(text.contains(&line), "{line} is lost in {text}"),
                    }
                    Ok(())
                })
                .unwrap();
            }
            for file in [&a, &b, &merged(&[&both])] {
                prop_assert_eq!(both.merge(file).unwrap().n_changed, 0);
            }
            prop_assert_eq!(text, exported(&both));
        }

        #[test]
        fn an_export_read_back_is_the_same_file(a in records()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.jsonl");
            let a = file(&a);
            std::fs::write(&path, exported(&a)).unwrap();
            let back = Evidence::in_memory().unwrap();
            back.merge_file(&path).unwrap();
            prop_assert_eq!(exported(&back), exported(&a));
            prop_assert!(back.check().unwrap().faults.is_empty());
        }

        /// Rows compare the same whichever is asked.
        #[test]
        fn of_two_rows_exactly_one_counts(a in record(), b in record()) {
            if let (Record::Measurement(a), Record::Measurement(b)) = (&a, &b) {
                prop_assert_eq!(a.outranks(b), a.content() != b.content() && !b.outranks(a));
            }
        }
    }

    #[test]
    fn a_conflict_is_kept_and_counted() {
        let short = row("r", "a", 1);
        let long = Row { samples_ns: vec![1; 20], ..short.clone() };
        let (a, b) = (
            file(&[Record::Measurement(short.clone())]),
            file(&[Record::Measurement(long.clone())]),
        );
        let both = merged(&[&a]);
        let report = both.merge(&b).unwrap();
        assert_eq!(report, Merged { n_read: 1, n_changed: 1, n_conflicts: 1 });
        assert_eq!(both.lookup(&short.key).unwrap(), Some(long));
        let text = exported(&both);
        assert_eq!(text.lines().filter(|line| line.contains("measurement")).count(), 2, "{text}");
    }

    #[test]
    fn a_merge_that_fails_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.jsonl");
        let good = exported(&file(&[Record::Measurement(row("r", "a", 1))]));
        std::fs::write(&path, format!("{good}{{\"record\":\"measurement\"}}\n")).unwrap();
        let into = file(&[Record::Measurement(row("r", "b", 1))]);
        let before = exported(&into);
        let refused = into.merge_file(&path).unwrap_err();
        assert!(matches!(refused, EvidenceError::Line { n_line: 3, .. }), "{refused}");
        assert_eq!(exported(&into), before);
    }

    #[test]
    fn what_is_neither_a_database_nor_an_export_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let into = Evidence::in_memory().unwrap();
        let files: [(&str, &[u8]); 6] = [
            ("empty", b""),
            ("page.html", b"<html>"),
            ("text.json", b"{\"a\": 1}\n"),
            ("newer.jsonl", b"{\"eggine-evidence\":3}\n"),
            ("binary.jsonl", b"{\"eggine-evidence\":2}\n\xff\xfe\n"),
            ("cut.jsonl", b"{\"eggine-evidence\":2}\n{\"record\":\"region\",\"hash\":\"r"),
        ];
        for (name, bytes) in files {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let refused = into.merge_file(&path).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
        let missing = into.merge_file(&folder.path().join("none")).unwrap_err();
        assert!(matches!(missing, EvidenceError::Missing { .. }), "{missing}");
    }
}
