//! Why evidence cannot be used: each with the file and what to do.

use std::path::{Path, PathBuf};

use super::schema::SCHEMA_VERSION;

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
    #[error("evidence file `{}` has layout version {found}, this program reads versions 1 to {SCHEMA_VERSION}; use the newer eggine that wrote it or name another file with --evidence", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// A row is not what was written.
    #[error("evidence file `{}` is damaged: {what}; move it away or name another with --evidence", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which row, and what is wrong with it.
        what: String,
    },
    /// A line of an export is not one.
    #[error("`{}`, line {n_line}: {reason}; make the export again with `eggine evidence export`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        n_line: usize,
        /// What is wrong.
        reason: String,
    },
    /// There is no such file, and it was to be read.
    #[error("there is no evidence file `{}`; name one with --evidence, or make one with `eggine compile --budget`", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
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

/// What the database engine's error means for the user.
pub(super) fn classify(path: &Path, err: rusqlite::Error) -> EvidenceError {
    use rusqlite::{Error, ErrorCode};
    let path = path.to_owned();
    match (err.sqlite_error_code(), &err) {
        (Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt), _) => {
            EvidenceError::NotEvidence { path, reason: err.to_string() }
        }
        (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => {
            EvidenceError::Locked { path }
        }
        (_, Error::FromSqlConversionFailure(_, _, why)) => {
            EvidenceError::Damaged { path, what: why.to_string() }
        }
        (_, Error::InvalidColumnType(_, name, found)) => {
            EvidenceError::Damaged { path, what: format!("column `{name}` holds {found}") }
        }
        _ => EvidenceError::Io { path, source: err },
    }
}
