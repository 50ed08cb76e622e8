//! From layout version 1 to 2. The caller's transaction makes it all or nothing.

use rusqlite::{Connection, params};

use super::row::{Conditions, EngineRow, Key, Row};
use super::schema::TABLES;
use super::store::{float, insert_engine_row, insert_row, numbers};

/// Whether the tables are those that version 1 made.
pub(super) fn is_version_1(connection: &Connection) -> rusqlite::Result<bool> {
    let n: i64 = connection.query_row(
        "SELECT count(*) FROM pragma_table_info('measurement') WHERE name IN ('hash', 'samples_ns', 'tiling_move')",
        [],
        |row| row.get(0),
    )?;
    Ok(n == 3)
}

/// Rewrites the tables. Version 1 measured on the cpu device only, under [`Conditions::default`], and
/// did not say on which inputs.
pub(super) fn from_version_1(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "ALTER TABLE measurement RENAME TO old_measurement;
         ALTER TABLE region RENAME TO old_region;
         ALTER TABLE engine RENAME TO old_engine;
         ALTER TABLE job RENAME TO old_job;
         DROP INDEX IF EXISTS measurement_region;",
    )?;
    connection.execute_batch(TABLES)?;
    {
        let mut old = connection.prepare(
            "SELECT region, schedule, ptx, device, method, verdict, samples_ns, incumbent_ns, decision, median_ns,
                    error_of_bound, agent, tiling_move, parent FROM old_measurement",
        )?;
        let mut rows = old.query([])?;
        while let Some(row) = rows.next()? {
            let key = Key {
                region: row.get(0)?,
                schedule: row.get(1)?,
                ptx: row.get(2)?,
                device: row.get(3)?,
                method: row.get(4)?,
                conditions: Conditions::default(),
            };
            let row = Row {
                key,
                verdict: row.get(5)?,
                seed: None,
                samples_ns: numbers(row, 6)?,
                incumbent_ns: numbers(row, 7)?,
                decision: row.get(8)?,
                median_ns: float(row, 9)?,
                error_of_bound: float(row, 10)?,
                agent: row.get(11)?,
                tiling_move: row.get(12)?,
                parent: row.get(13)?,
            };
            insert_row(connection, &row)?;
        }
        let mut old = connection.prepare(
            "SELECT hash, samples_ns, incumbent_ns, decision, ratio, low, high FROM old_engine",
        )?;
        let mut rows = old.query([])?;
        while let Some(row) = rows.next()? {
            let hash: String = row.get(0)?;
            let engine = EngineRow {
                samples_ns: numbers(row, 1)?,
                incumbent_ns: numbers(row, 2)?,
                decision: row.get(3)?,
                ratio: float(row, 4)?,
                low: float(row, 5)?,
                high: float(row, 6)?,
            };
            insert_engine_row(connection, &hash, &engine)?;
        }
    }
    connection.execute("INSERT INTO region SELECT hash, text FROM old_region", params![])?;
    connection.execute_batch(
        "INSERT INTO job SELECT hash, generations, finished, '' FROM old_job;
         DROP TABLE old_measurement;
         DROP TABLE old_region;
         DROP TABLE old_engine;
         DROP TABLE old_job;",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use crate::evidence::{Evidence, EvidenceError, JobRecord};

    /// Word for word what version 1 executed when it made a file.
    const VERSION_1: &str = "PRAGMA journal_mode = WAL;
        PRAGMA synchronous = NORMAL;
        BEGIN IMMEDIATE;
        CREATE TABLE IF NOT EXISTS measurement (
            hash TEXT PRIMARY KEY, region TEXT NOT NULL, schedule TEXT NOT NULL, ptx TEXT NOT NULL,
            device TEXT NOT NULL, method TEXT NOT NULL, verdict TEXT NOT NULL, samples_ns TEXT NOT NULL,
            incumbent_ns TEXT NOT NULL, decision TEXT NOT NULL, median_ns REAL NOT NULL, error_of_bound REAL NOT NULL, agent TEXT NOT NULL,
            tiling_move TEXT NOT NULL, parent TEXT NOT NULL) WITHOUT ROWID;
        CREATE INDEX IF NOT EXISTS measurement_region ON measurement (region, device, method);
        CREATE TABLE IF NOT EXISTS region (hash TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS engine (
            hash TEXT PRIMARY KEY, samples_ns TEXT NOT NULL, incumbent_ns TEXT NOT NULL, decision TEXT NOT NULL,
            ratio REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS job (
            hash TEXT PRIMARY KEY, generations TEXT NOT NULL, finished INTEGER NOT NULL) WITHOUT ROWID;
        PRAGMA user_version = 1;
        COMMIT;
        INSERT INTO measurement VALUES ('h1', 'r1', 'row threads=32', 'p1', 'cpu/x/AVX2/1', 'verify-1 timing-2', 'pass',
            '5 4 6', '9 8', 'faster', 5.0, 0.25, 'tiler', 'threads', 'row threads=64');
        INSERT INTO measurement VALUES ('h2', 'r1', 'row threads=64', 'p2', 'cpu/x/AVX2/1', 'verify-1 timing-2',
            'inaccurate: 3 elements', '', '', 'alone', 0.0, 17.5, 'model', 'first', '');
        INSERT INTO region VALUES ('r1', 'graph @g');
        INSERT INTO engine VALUES ('e1', '1 2', '3 4', 'faster', 0.5, 0.4, 0.6);
        INSERT INTO job VALUES ('j1', '8 4', 1);";

    fn key(schedule: &str, ptx: &str) -> Key {
        Key {
            region: "r1".into(),
            schedule: schedule.into(),
            ptx: ptx.into(),
            device: "cpu/x/AVX2/1".into(),
            method: "verify-1 timing-2".into(),
            conditions: Conditions::default(),
        }
    }

    #[test]
    fn a_file_of_version_1_is_migrated_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.sqlite");
        Connection::open(&path).unwrap().execute_batch(VERSION_1).unwrap();
        for _ in 0..2 {
            let evidence = Evidence::open(&path).unwrap();
            let row = evidence.lookup(&key("row threads=32", "p1")).unwrap().unwrap();
            assert_eq!((row.samples_ns, row.incumbent_ns), (vec![5, 4, 6], vec![9, 8]));
            assert_eq!((row.seed, row.parent.as_str()), (None, "row threads=64"));
            let row = evidence.lookup(&key("row threads=64", "p2")).unwrap().unwrap();
            assert_eq!((row.verdict_kind(), row.error_of_bound), ("inaccurate", 17.5));
            assert_eq!(evidence.lookup_engine("e1").unwrap().unwrap().ratio, 0.5);
            let job = JobRecord { generations: vec![8, 4], finished: true };
            assert_eq!(evidence.job("j1").unwrap(), Some(job));
            assert_eq!(evidence.region("r1").unwrap().as_deref(), Some("graph @g"));
        }
    }

    /// A migration that cannot be finished changes nothing.
    #[test]
    fn a_damaged_row_stops_the_migration_and_the_file_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.sqlite");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(VERSION_1).unwrap();
        old.execute("UPDATE measurement SET samples_ns = '5 4x 6' WHERE hash = 'h1'", []).unwrap();
        let refused = Evidence::open(&path).unwrap_err();
        assert!(matches!(refused, EvidenceError::Damaged { .. }), "{refused}");
        assert!(refused.to_string().contains("4x"), "{refused}");
        let version: i64 = old.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        let n: i64 =
            old.query_row("SELECT count(*) FROM measurement", [], |row| row.get(0)).unwrap();
        assert_eq!((version, n), (1, 2));
    }
}
