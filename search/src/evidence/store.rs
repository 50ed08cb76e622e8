//! Reading and writing single rows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::Type;
use rusqlite::{Connection, OpenFlags, params};

use super::error::{EvidenceError, classify};
use super::row::{Conditions, EngineRow, Key, Row, first_of};
use super::schema::{PATIENCE, prepare};

/// Columns of a measurement, in the order of [`row_at`].
pub(super) const COLUMNS: &str =
    "region, schedule, ptx, device, method, layout, toolchain, cache, verdict, seed,
    samples_ns, incumbent_ns, decision, median_ns, error_of_bound, agent, tiling_move, parent";

/// An open database.
#[derive(Debug)]
pub struct Evidence {
    path: PathBuf,
    connection: Connection,
}

impl Evidence {
    /// Opens `path`, creating it if there is none. A file of an older layout is migrated.
    ///
    /// # Errors
    ///
    /// [`EvidenceError`]: not ours, of a newer version, locked, or unreadable.
    pub fn open(path: &Path) -> Result<Self, EvidenceError> {
        Self::open_waiting(path, PATIENCE)
    }

    /// Opens a file that must exist.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`EvidenceError::Missing`].
    pub fn open_existing(path: &Path) -> Result<Self, EvidenceError> {
        if !path.exists() {
            return Err(EvidenceError::Missing { path: path.to_owned() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags);
        Self::with(path, connection.map_err(|err| classify(path, err))?, PATIENCE)
    }

    /// As [`open`](Self::open), waiting for so long if another process is writing.
    pub(super) fn open_waiting(path: &Path, patience: Duration) -> Result<Self, EvidenceError> {
        Self::with(path, Connection::open(path).map_err(|err| classify(path, err))?, patience)
    }

    /// A database that is gone with the process.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    pub fn in_memory() -> Result<Self, EvidenceError> {
        let path = Path::new(":memory:");
        let connection = Connection::open_in_memory().map_err(|err| classify(path, err))?;
        Self::with(path, connection, PATIENCE)
    }

    fn with(
        path: &Path,
        mut connection: Connection,
        patience: Duration,
    ) -> Result<Self, EvidenceError> {
        prepare(path, &mut connection, patience)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    pub(crate) fn fail(&self, err: rusqlite::Error) -> EvidenceError {
        classify(&self.path, err)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The row with these preconditions; of several, the one that [counts](Row::outranks).
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the row is damaged.
    pub fn lookup(&self, key: &Key) -> Result<Option<Row>, EvidenceError> {
        let rows = self.select("hash = ?1", [key.hash()])?;
        Ok(first_of(rows, Row::outranks))
    }

    /// Rows that meet a condition, in the order of their content.
    pub(super) fn select(
        &self,
        condition: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<Row>, EvidenceError> {
        (self.connection)
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM measurement WHERE {condition} ORDER BY hash, content"
            ))
            .and_then(|mut statement| statement.query_map(values, row_at)?.collect())
            .map_err(|err| self.fail(err))
    }

    /// Adds a row. A row with the same preconditions is kept: the first measurement counts.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn insert(&self, row: &Row) -> Result<(), EvidenceError> {
        // One statement, so that of two processes one is first.
        insert_where(
            &self.connection,
            row,
            "NOT EXISTS (SELECT 1 FROM measurement WHERE hash = ?1)",
        )
        .map_err(|err| self.fail(err))
    }

    /// Adds a row and returns the one that counts: another process may have measured the same thing in
    /// the meantime, and both must go on with the same numbers.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn keep(&self, row: Row) -> Result<Row, EvidenceError> {
        self.insert(&row)?;
        Ok(self.lookup(&row.key)?.unwrap_or(row))
    }

    /// Remembers what a region's hash stands for.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn insert_region(&self, hash: &str, region: &str) -> Result<(), EvidenceError> {
        (self.connection)
            .prepare_cached("INSERT OR IGNORE INTO region VALUES (?1, ?2)")
            .and_then(|mut statement| statement.execute([hash, region]))
            .map_err(|err| self.fail(err))?;
        Ok(())
    }

    /// The text that a region's hash stands for.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn region(&self, hash: &str) -> Result<Option<String>, EvidenceError> {
        (self.connection)
            .query_row("SELECT min(text) FROM region WHERE hash = ?1", [hash], |row| row.get(0))
            .map_err(|err| self.fail(err))
    }

    /// What a race of two whole engines showed; of several, the one that
    /// [counts](EngineRow::outranks).
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the row is damaged.
    pub fn lookup_engine(&self, hash: &str) -> Result<Option<EngineRow>, EvidenceError> {
        let rows = (self.connection)
            .prepare_cached(
                "SELECT samples_ns, incumbent_ns, decision, ratio, low, high FROM engine
                 WHERE hash = ?1 ORDER BY content",
            )
            .and_then(|mut statement| {
                statement.query_map([hash], engine_row_at)?.collect::<Result<Vec<_>, _>>()
            });
        Ok(first_of(rows.map_err(|err| self.fail(err))?, EngineRow::outranks))
    }

    /// Adds such a race, if there is none.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn insert_engine(&self, hash: &str, row: &EngineRow) -> Result<(), EvidenceError> {
        insert_engine_where(
            &self.connection,
            hash,
            row,
            "NOT EXISTS (SELECT 1 FROM engine WHERE hash = ?1)",
        )
        .map_err(|err| self.fail(err))
    }

    /// Adds such a race and returns the one that counts, as [`keep`](Self::keep) does.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn keep_engine(&self, hash: &str, row: EngineRow) -> Result<EngineRow, EvidenceError> {
        self.insert_engine(hash, &row)?;
        Ok(self.lookup_engine(hash)?.unwrap_or(row))
    }
}

/// Adds a row, beside others with the same preconditions.
pub(super) fn insert_row(connection: &Connection, row: &Row) -> rusqlite::Result<()> {
    insert_where(connection, row, "1")
}

fn insert_where(connection: &Connection, row: &Row, condition: &str) -> rusqlite::Result<()> {
    let (key, conditions) = (&row.key, &row.key.conditions);
    let mut statement = connection.prepare_cached(&format!(
        "INSERT OR IGNORE INTO measurement SELECT ?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20
         WHERE {condition}"
    ))?;
    statement.execute(params![
        key.hash(),
        row.content(),
        key.region,
        key.schedule,
        key.ptx,
        key.device,
        key.method,
        conditions.layout,
        conditions.toolchain,
        conditions.cache,
        row.verdict,
        row.seed.map(u64::cast_signed),
        text(&row.samples_ns),
        text(&row.incumbent_ns),
        row.decision,
        row.median_ns,
        row.error_of_bound,
        row.agent,
        row.tiling_move,
        row.parent
    ])?;
    Ok(())
}

/// Adds a race, beside others of the same engines.
pub(super) fn insert_engine_row(
    connection: &Connection,
    hash: &str,
    row: &EngineRow,
) -> rusqlite::Result<()> {
    insert_engine_where(connection, hash, row, "1")
}

fn insert_engine_where(
    connection: &Connection,
    hash: &str,
    row: &EngineRow,
    condition: &str,
) -> rusqlite::Result<()> {
    let EngineRow { samples_ns, incumbent_ns, decision, ratio, low, high } = row;
    connection
        .prepare_cached(&format!(
            "INSERT OR IGNORE INTO engine SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE {condition}"
        ))?
        .execute(params![
            hash,
            row.content(),
            text(samples_ns),
            text(incumbent_ns),
            decision,
            ratio,
            low,
            high
        ])?;
    Ok(())
}

/// A row of [`COLUMNS`].
pub(super) fn row_at(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        key: Key {
            region: row.get(0)?,
            schedule: row.get(1)?,
            ptx: row.get(2)?,
            device: row.get(3)?,
            method: row.get(4)?,
            conditions: Conditions {
                layout: row.get(5)?,
                toolchain: row.get(6)?,
                cache: row.get(7)?,
            },
        },
        verdict: row.get(8)?,
        seed: row.get::<_, Option<i64>>(9)?.map(i64::cast_unsigned),
        samples_ns: numbers(row, 10)?,
        incumbent_ns: numbers(row, 11)?,
        decision: row.get(12)?,
        median_ns: float(row, 13)?,
        error_of_bound: float(row, 14)?,
        agent: row.get(15)?,
        tiling_move: row.get(16)?,
        parent: row.get(17)?,
    })
}

/// A row of `samples_ns, incumbent_ns, decision, ratio, low, high`.
pub(super) fn engine_row_at(row: &rusqlite::Row<'_>) -> rusqlite::Result<EngineRow> {
    Ok(EngineRow {
        samples_ns: numbers(row, 0)?,
        incumbent_ns: numbers(row, 1)?,
        decision: row.get(2)?,
        ratio: float(row, 3)?,
        low: float(row, 4)?,
        high: float(row, 5)?,
    })
}

/// A float; the database has NULL for NaN.
pub(super) fn float(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<f64> {
    Ok(row.get::<_, Option<f64>>(column)?.unwrap_or(f64::NAN))
}

/// A list of numbers as the database has it.
pub(super) fn text(samples: &[i64]) -> String {
    let samples: Vec<String> = samples.iter().map(i64::to_string).collect();
    samples.join(" ")
}

/// The reverse; anything else is a damaged row, never a shorter list.
pub(super) fn numbers(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Vec<i64>> {
    let text: String = row.get(column)?;
    let parse = |word: &str| {
        word.parse().map_err(|_| {
            let why = format!("`{word}` in a list of samples is not a number");
            rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why.into())
        })
    };
    text.split(' ').filter(|_| !text.is_empty()).map(parse).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use crate::evidence::testing::row;

    #[test]
    fn a_row_comes_back_and_the_first_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.db");
        let first = row("r", "a", 1);
        Evidence::open(&path).unwrap().insert(&first).unwrap();
        let evidence = Evidence::open(&path).unwrap();
        let second = Row { samples_ns: vec![9; 10], ..first.clone() };
        assert_eq!(evidence.keep(second).unwrap(), first);
        assert_eq!(evidence.lookup(&first.key).unwrap(), Some(first));
    }

    #[test]
    fn every_precondition_is_part_of_the_key() {
        let evidence = Evidence::in_memory().unwrap();
        let base = row("r", "a", 1);
        evidence.insert(&base).unwrap();
        let other = || "other".to_owned();
        let under = |conditions| Key { conditions, ..base.key.clone() };
        let usual = Conditions::default;
        for key in [
            Key { region: other(), ..base.key.clone() },
            Key { schedule: other(), ..base.key.clone() },
            Key { ptx: other(), ..base.key.clone() },
            Key { device: other(), ..base.key.clone() },
            Key { method: other(), ..base.key.clone() },
            under(Conditions { layout: other(), ..usual() }),
            under(Conditions { toolchain: other(), ..usual() }),
            under(Conditions { cache: other(), ..usual() }),
        ] {
            assert_eq!(evidence.lookup(&key).unwrap(), None, "{key:?}");
        }
        assert_eq!(evidence.lookup(&base.key).unwrap(), Some(base.clone()));
    }

    #[test]
    fn what_is_no_number_is_damage_and_not_a_shorter_list() {
        let evidence = Evidence::in_memory().unwrap();
        let base = row("r", "a", 1);
        evidence.insert(&base).unwrap();
        for torn in ["3 1 ", "3 1 2x", "3,1,2"] {
            let torn_row = "UPDATE measurement SET samples_ns = ?1";
            evidence.connection().execute(torn_row, [torn]).unwrap();
            let found = evidence.lookup(&base.key);
            assert!(matches!(found, Err(EvidenceError::Damaged { .. })), "{torn}: {found:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_not_made_by_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none.sqlite");
        let missing = Evidence::open_existing(&path);
        assert!(matches!(missing, Err(EvidenceError::Missing { .. })), "{missing:?}");
        assert!(!path.exists());
    }

    #[test]
    fn numbers_that_are_no_numbers_come_back() {
        let evidence = Evidence::in_memory().unwrap();
        let odd = Row { median_ns: f64::INFINITY, error_of_bound: f64::NAN, ..row("r", "a", 1) };
        evidence.insert(&odd).unwrap();
        let found = evidence.lookup(&odd.key).unwrap().unwrap();
        assert_eq!(found.median_ns, f64::INFINITY);
        assert!(found.error_of_bound.is_nan());
        assert_eq!(found.content(), odd.content());
        let json: Row = serde_json::from_str(&serde_json::to_string(&odd).unwrap()).unwrap();
        assert_eq!(json.content(), odd.content());
    }
}
