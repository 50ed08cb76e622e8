//! The tables, and how a file is opened: made if it is new, migrated if it is old, refused if it is not
//! ours or newer than this program.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::error::{EvidenceError, classify};
use super::migrate;

/// Layout of the tables. An older file is migrated when it is opened; a newer one is refused.
pub const SCHEMA_VERSION: i64 = 2;

/// Marks a file as ours (`Eggn`). Layout version 1 had no mark.
const APPLICATION_ID: i64 = 0x4567_676e;

/// How long to wait for another process's write.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The tables of layout version 2.
///
/// Floats that are NaN are NULL. Lists of numbers are text with a space between: readable with any
/// SQLite shell.
pub(super) const TABLES: &str = "
    CREATE TABLE measurement (
        hash TEXT NOT NULL, content TEXT NOT NULL, region TEXT NOT NULL, schedule TEXT NOT NULL,
        ptx TEXT NOT NULL, device TEXT NOT NULL, method TEXT NOT NULL, layout TEXT NOT NULL,
        toolchain TEXT NOT NULL, cache TEXT NOT NULL, verdict TEXT NOT NULL, seed INTEGER,
        samples_ns TEXT NOT NULL, incumbent_ns TEXT NOT NULL, decision TEXT NOT NULL, median_ns REAL,
        error_of_bound REAL, agent TEXT NOT NULL, tiling_move TEXT NOT NULL, parent TEXT NOT NULL,
        PRIMARY KEY (hash, content)) WITHOUT ROWID;
    CREATE INDEX measurement_region ON measurement (region, device, method, schedule);
    CREATE TABLE region (hash TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (hash, text)) WITHOUT ROWID;
    CREATE TABLE engine (
        hash TEXT NOT NULL, content TEXT NOT NULL, samples_ns TEXT NOT NULL, incumbent_ns TEXT NOT NULL,
        decision TEXT NOT NULL, ratio REAL, low REAL, high REAL,
        PRIMARY KEY (hash, content)) WITHOUT ROWID;
    CREATE TABLE job (
        hash TEXT PRIMARY KEY, generations TEXT NOT NULL, finished INTEGER NOT NULL,
        description TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE note (
        kind TEXT NOT NULL, job TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (kind, job)) WITHOUT ROWID;
    CREATE TABLE counterexample (
        content TEXT PRIMARY KEY, kind TEXT NOT NULL, region TEXT NOT NULL, entry TEXT NOT NULL,
        failure TEXT NOT NULL) WITHOUT ROWID;
    CREATE INDEX counterexample_kind ON counterexample (kind);
    CREATE TABLE quarantine (
        content TEXT PRIMARY KEY, region TEXT NOT NULL, schedule TEXT NOT NULL, ptx TEXT NOT NULL,
        device TEXT NOT NULL, method TEXT NOT NULL, reason TEXT NOT NULL, entry TEXT NOT NULL,
        text TEXT NOT NULL) WITHOUT ROWID;
    CREATE INDEX quarantine_device ON quarantine (device, ptx);";

/// What a file is, by what it says of itself.
enum Layout {
    Empty,
    Old,
    Current,
}

fn layout(path: &Path, connection: &Connection) -> Result<Layout, EvidenceError> {
    let number = |sql: &str| -> Result<i64, EvidenceError> {
        connection.query_row(sql, [], |row| row.get(0)).map_err(|err| classify(path, err))
    };
    let version = number("PRAGMA user_version")?;
    let ours = number("PRAGMA application_id")? == APPLICATION_ID;
    let n_tables = number("SELECT count(*) FROM sqlite_master")?;
    match version {
        0 if n_tables == 0 => Ok(Layout::Empty),
        SCHEMA_VERSION if ours => Ok(Layout::Current),
        1 if migrate::is_version_1(connection).map_err(|err| classify(path, err))? => {
            Ok(Layout::Old)
        }
        found if ours => Err(EvidenceError::Version { path: path.to_owned(), found }),
        _ => {
            let reason = "it holds tables of another program".to_owned();
            Err(EvidenceError::NotEvidence { path: path.to_owned(), reason })
        }
    }
}

/// Makes a new connection usable: the tables are there, in this program's layout.
pub(super) fn prepare(
    path: &Path,
    connection: &mut Connection,
    patience: Duration,
) -> Result<(), EvidenceError> {
    let fail = |err| classify(path, err);
    connection.busy_timeout(patience).map_err(fail)?;
    connection.set_prepared_statement_cache_capacity(64);
    // In a transaction: another process may be making the tables between two of its questions.
    let found = {
        let look = connection.transaction().map_err(fail)?;
        layout(path, &look)?
    };
    write_ahead(path, connection, patience)?;
    connection.execute_batch("PRAGMA synchronous = NORMAL").map_err(fail)?;
    if matches!(found, Layout::Current) {
        return Ok(());
    }
    let change = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(fail)?;
    // Another process may have been first.
    match layout(path, &change)? {
        Layout::Current => return Ok(()),
        Layout::Empty => change.execute_batch(TABLES).map_err(fail)?,
        Layout::Old => migrate::from_version_1(&change).map_err(fail)?,
    }
    change
        .execute_batch(&format!(
            "PRAGMA user_version = {SCHEMA_VERSION}; PRAGMA application_id = {APPLICATION_ID};"
        ))
        .map_err(fail)?;
    change.commit().map_err(fail)
}

/// Switches to write-ahead mode. The switch itself does not wait for other processes, so we do.
fn write_ahead(
    path: &Path,
    connection: &Connection,
    patience: Duration,
) -> Result<(), EvidenceError> {
    let start = Instant::now();
    loop {
        match connection.execute_batch("PRAGMA journal_mode = WAL") {
            Ok(()) => return Ok(()),
            Err(err) => match classify(path, err) {
                EvidenceError::Locked { .. } if start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                err => return Err(err),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use crate::evidence::Evidence;

    #[test]
    fn a_damaged_foreign_or_newer_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let garbage = folder.path().join("garbage.db");
        std::fs::write(&garbage, "<html>".repeat(1000)).unwrap();
        assert!(matches!(Evidence::open(&garbage), Err(EvidenceError::NotEvidence { .. })));

        for foreign in [
            "CREATE TABLE t (x)",
            "CREATE TABLE t (x); PRAGMA user_version = 1",
            "CREATE TABLE t (x); PRAGMA user_version = 2",
        ] {
            let path = folder.path().join("foreign.db");
            Connection::open(&path).unwrap().execute_batch(foreign).unwrap();
            assert!(matches!(Evidence::open(&path), Err(EvidenceError::NotEvidence { .. })));
            std::fs::remove_file(&path).unwrap();
        }

        let newer = folder.path().join("newer.db");
        drop(Evidence::open(&newer).unwrap());
        Connection::open(&newer).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
        let refused = Evidence::open(&newer).unwrap_err();
        assert!(matches!(refused, EvidenceError::Version { found: 99, .. }));
        assert!(refused.to_string().contains("newer eggine"), "{refused}");
    }

    #[test]
    fn a_locked_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.db");
        drop(Evidence::open(&path).unwrap());
        let holder = Connection::open(&path).unwrap();
        holder.execute_batch("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE").unwrap();
        let second = Evidence::open_waiting(&path, Duration::from_millis(200));
        assert!(matches!(second, Err(EvidenceError::Locked { .. })), "{second:?}");
    }

    #[test]
    fn many_threads_may_make_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.db");
        std::thread::scope(|scope| {
            let opened: Vec<_> = (0..8).map(|_| scope.spawn(|| Evidence::open(&path))).collect();
            for thread in opened {
                thread.join().unwrap().unwrap();
            }
        });
    }
}
