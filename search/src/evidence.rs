//! The evidence database: what was measured, with everything that makes it true.
//!
//! One SQLite file in write-ahead mode, so that several processes can use it. A row is never changed
//! and is keyed by the hash of its preconditions: a lookup that differs in any of them misses. Losing
//! the file loses time, not correctness.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

/// Layout of the tables. A file of another layout is refused, not guessed at.
const SCHEMA_VERSION: i64 = 1;

/// Why the evidence cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// The file is not a database of ours.
    #[error("evidence file `{}` is not an Eggine evidence database or is damaged ({reason}); move it away or name another with --evidence", path.display())]
    NotEvidence {
        /// The file.
        path: PathBuf,
        /// What the database engine said.
        reason: String,
    },
    /// The file has a layout that this program does not know.
    #[error("evidence file `{}` has layout version {found}, this program reads version {SCHEMA_VERSION}; use the program that wrote it or name another file with --evidence", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// Another process holds it.
    #[error("evidence file `{}` is locked by another process; wait for it to end or name another file with --evidence", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read or written.
    #[error("evidence file `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the database engine said.
        #[source]
        source: rusqlite::Error,
    },
}

/// What must be equal for a measurement to hold again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Hash of the region's canonical text: operators, shapes, dtypes, layouts.
    pub region: String,
    /// The schedule's text.
    pub schedule: String,
    /// Hash of the PTX that ran.
    pub ptx: String,
    /// Device, its model and instruction set.
    pub device: String,
    /// What verified and timed it: changes when the method does.
    pub method: String,
}

impl Key {
    /// Content address of the row.
    pub fn hash(&self) -> String {
        let text = serde_json::to_string(self).expect("strings serialise");
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }
}

/// One measured candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Preconditions.
    pub key: Key,
    /// `pass`, or the reason why it was rejected.
    pub verdict: String,
    /// Every sample in the order taken; empty if it was not timed.
    pub samples_ns: Vec<i64>,
    /// The incumbent's samples taken in between; empty if there was none.
    pub incumbent_ns: Vec<i64>,
    /// `alone`, or what the race against the incumbent showed: `faster`, `slower`, `undecided`, …
    pub decision: String,
    /// Median time of one launch over the believed samples; 0 if it was not timed.
    pub median_ns: f64,
    /// Largest error against the f64 oracle as a fraction of its bound.
    pub error_of_bound: f64,
    /// Who proposed it.
    pub agent: String,
    /// The move that led to it.
    pub tiling_move: String,
    /// Schedule that it was derived from; empty for a first choice.
    pub parent: String,
}

impl Row {
    /// Whether the candidate may be used.
    pub fn passed(&self) -> bool {
        self.verdict == "pass"
    }
}

/// A race of two whole engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineRow {
    /// Samples of the challenger.
    pub samples_ns: Vec<i64>,
    /// Samples of the incumbent, taken in between.
    pub incumbent_ns: Vec<i64>,
    /// What it showed: `faster`, `slower`, `undecided`, …
    pub decision: String,
    /// Time of the challenger over time of the incumbent.
    pub ratio: f64,
    /// Lower end of the ratio's 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// How far a search had come: with it a repeat knows where the first one stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Candidates considered in each generation, from evidence or measured.
    pub generations: Vec<u64>,
    /// Whether the budget was used up, or nothing was left to try (as opposed to an interrupt).
    pub finished: bool,
}

/// An open database.
#[derive(Debug)]
pub struct Evidence {
    path: PathBuf,
    connection: Connection,
}

impl Evidence {
    /// Opens `path`, creating it if there is none.
    ///
    /// # Errors
    ///
    /// [`EvidenceError`]: not ours, of another version, locked, or unreadable.
    pub fn open(path: &Path) -> Result<Self, EvidenceError> {
        let connection = Connection::open(path).map_err(|err| classify(path, err))?;
        Self::prepare(path, connection)
    }

    /// A database that is gone with the process.
    pub fn in_memory() -> Result<Self, EvidenceError> {
        let path = Path::new(":memory:");
        let connection = Connection::open_in_memory().map_err(|err| classify(path, err))?;
        Self::prepare(path, connection)
    }

    fn prepare(path: &Path, connection: Connection) -> Result<Self, EvidenceError> {
        let fail = |err| classify(path, err);
        connection.busy_timeout(Duration::from_secs(5)).map_err(fail)?;
        let version: i64 =
            connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fail)?;
        let n_tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
            .map_err(fail)?;
        if n_tables > 0 && version == 0 {
            let reason = "it holds tables of another program".to_owned();
            return Err(EvidenceError::NotEvidence { path: path.to_owned(), reason });
        }
        if version != 0 && version != SCHEMA_VERSION {
            return Err(EvidenceError::Version { path: path.to_owned(), found: version });
        }
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = WAL;
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
                 PRAGMA user_version = {SCHEMA_VERSION};
                 COMMIT;"
            ))
            .map_err(fail)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    fn fail(&self, err: rusqlite::Error) -> EvidenceError {
        classify(&self.path, err)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The row with these preconditions.
    pub fn lookup(&self, key: &Key) -> Result<Option<Row>, EvidenceError> {
        let mut statement = (self.connection)
            .prepare_cached(
                "SELECT verdict, samples_ns, incumbent_ns, decision, median_ns, error_of_bound, agent, tiling_move, parent
                 FROM measurement WHERE hash = ?1",
            )
            .map_err(|err| self.fail(err))?;
        let found = statement.query_row([key.hash()], |row| {
            Ok(Row {
                key: key.clone(),
                verdict: row.get(0)?,
                samples_ns: numbers(&row.get::<_, String>(1)?),
                incumbent_ns: numbers(&row.get::<_, String>(2)?),
                decision: row.get(3)?,
                median_ns: row.get(4)?,
                error_of_bound: row.get(5)?,
                agent: row.get(6)?,
                tiling_move: row.get(7)?,
                parent: row.get(8)?,
            })
        });
        found.optional().map_err(|err| self.fail(err))
    }

    /// Adds a row. A row with the same preconditions is kept: the first measurement counts.
    pub fn insert(&self, row: &Row) -> Result<(), EvidenceError> {
        let key = &row.key;
        (self.connection)
            .prepare_cached("INSERT OR IGNORE INTO measurement VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15)")
            .and_then(|mut statement| {
                statement.execute(params![
                    key.hash(),
                    key.region,
                    key.schedule,
                    key.ptx,
                    key.device,
                    key.method,
                    row.verdict,
                    text(&row.samples_ns),
                    text(&row.incumbent_ns),
                    row.decision,
                    row.median_ns,
                    row.error_of_bound,
                    row.agent,
                    row.tiling_move,
                    row.parent
                ])
            })
            .map_err(|err| self.fail(err))?;
        Ok(())
    }

    /// Remembers what a region's hash stands for.
    pub fn insert_region(&self, hash: &str, region: &str) -> Result<(), EvidenceError> {
        (self.connection)
            .execute("INSERT OR IGNORE INTO region VALUES (?1, ?2)", [hash, region])
            .map_err(|err| self.fail(err))?;
        Ok(())
    }

    /// What a race of two whole engines showed.
    pub fn lookup_engine(&self, hash: &str) -> Result<Option<EngineRow>, EvidenceError> {
        (self.connection)
            .query_row(
                "SELECT samples_ns, incumbent_ns, decision, ratio, low, high FROM engine WHERE hash = ?1",
                [hash],
                |row| {
                    Ok(EngineRow {
                        samples_ns: numbers(&row.get::<_, String>(0)?),
                        incumbent_ns: numbers(&row.get::<_, String>(1)?),
                        decision: row.get(2)?,
                        ratio: row.get(3)?,
                        low: row.get(4)?,
                        high: row.get(5)?,
                    })
                },
            )
            .optional()
            .map_err(|err| self.fail(err))
    }

    /// Adds such a race.
    pub fn insert_engine(&self, hash: &str, row: &EngineRow) -> Result<(), EvidenceError> {
        let EngineRow { samples_ns, incumbent_ns, decision, ratio, low, high } = row;
        (self.connection)
            .execute(
                "INSERT OR IGNORE INTO engine VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![hash, text(samples_ns), text(incumbent_ns), decision, ratio, low, high],
            )
            .map_err(|err| self.fail(err))?;
        Ok(())
    }

    /// How far the job with this hash had come.
    pub fn job(&self, hash: &str) -> Result<Option<JobRecord>, EvidenceError> {
        (self.connection)
            .query_row("SELECT generations, finished FROM job WHERE hash = ?1", [hash], |row| {
                let generations =
                    numbers(&row.get::<_, String>(0)?).into_iter().map(i64::unsigned_abs).collect();
                Ok(JobRecord { generations, finished: row.get(1)? })
            })
            .optional()
            .map_err(|err| self.fail(err))
    }

    /// Records how far the job has come.
    pub fn set_job(&self, hash: &str, record: &JobRecord) -> Result<(), EvidenceError> {
        let generations: Vec<String> = record.generations.iter().map(u64::to_string).collect();
        (self.connection)
            .execute(
                "INSERT OR REPLACE INTO job VALUES (?1, ?2, ?3)",
                params![hash, generations.join(" "), record.finished],
            )
            .map_err(|err| self.fail(err))?;
        Ok(())
    }

    /// Number of rows by verdict kind (`pass` or the word before the first colon), sorted.
    pub fn verdicts(&self) -> Result<Vec<(String, u64)>, EvidenceError> {
        let mut statement = (self.connection)
            .prepare(
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

fn classify(path: &Path, err: rusqlite::Error) -> EvidenceError {
    use rusqlite::ErrorCode;
    let path = path.to_owned();
    match err.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            EvidenceError::NotEvidence { path, reason: err.to_string() }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => EvidenceError::Locked { path },
        _ => EvidenceError::Io { path, source: err },
    }
}

fn text(samples: &[i64]) -> String {
    let samples: Vec<String> = samples.iter().map(i64::to_string).collect();
    samples.join(" ")
}

fn numbers(text: &str) -> Vec<i64> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(schedule: &str) -> Row {
        let key = Key {
            region: "r".into(),
            schedule: schedule.into(),
            ptx: "p".into(),
            device: "cpu".into(),
            method: "1".into(),
        };
        Row {
            key,
            verdict: "pass".into(),
            samples_ns: vec![3, 1, 2],
            incumbent_ns: vec![],
            decision: "alone".into(),
            median_ns: 2.0,
            error_of_bound: 0.25,
            agent: "tiler".into(),
            tiling_move: String::new(),
            parent: String::new(),
        }
    }

    #[test]
    fn a_row_comes_back_and_the_first_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.db");
        let first = row("a");
        Evidence::open(&path).unwrap().insert(&first).unwrap();
        let evidence = Evidence::open(&path).unwrap();
        evidence.insert(&Row { samples_ns: vec![9], ..first.clone() }).unwrap();
        assert_eq!(evidence.lookup(&first.key).unwrap(), Some(first.clone()));
    }

    #[test]
    fn every_precondition_is_part_of_the_key() {
        let evidence = Evidence::in_memory().unwrap();
        let base = row("a");
        evidence.insert(&base).unwrap();
        let other = || "other".to_owned();
        for key in [
            Key { region: other(), ..base.key.clone() },
            Key { schedule: other(), ..base.key.clone() },
            Key { ptx: other(), ..base.key.clone() },
            Key { device: other(), ..base.key.clone() },
            Key { method: other(), ..base.key.clone() },
        ] {
            assert_eq!(evidence.lookup(&key).unwrap(), None, "{key:?}");
        }
    }

    #[test]
    fn a_damaged_foreign_or_newer_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let garbage = folder.path().join("garbage.db");
        std::fs::write(&garbage, "<html>".repeat(1000)).unwrap();
        assert!(matches!(Evidence::open(&garbage), Err(EvidenceError::NotEvidence { .. })));

        let foreign = folder.path().join("foreign.db");
        Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(matches!(Evidence::open(&foreign), Err(EvidenceError::NotEvidence { .. })));

        let newer = folder.path().join("newer.db");
        Evidence::open(&newer)
            .unwrap()
            .connection
            .execute_batch("PRAGMA user_version = 99")
            .unwrap();
        assert!(matches!(Evidence::open(&newer), Err(EvidenceError::Version { found: 99, .. })));
    }

    #[test]
    fn a_locked_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.db");
        let holder = Evidence::open(&path).unwrap();
        holder.connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let second = Evidence::open(&path);
        assert!(matches!(second, Err(EvidenceError::Locked { .. })), "{second:?}");
    }
}
