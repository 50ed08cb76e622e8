//! Evidence as text: one JSON object a line, in canonical order. The same evidence gives the same bytes.
//!
//! The first line names the format and its version, each other line is a [`Record`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::EvidenceError;
use super::merge::Record;
use super::schema::SCHEMA_VERSION;
use super::store::Evidence;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    #[serde(rename = "eggine-evidence")]
    version: i64,
}

/// Why an export cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// What is exported.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// Where to.
    #[error("cannot write the export: {0}")]
    Write(#[from] io::Error),
}

/// Writes all of the evidence.
///
/// # Errors
///
/// [`ExportError`].
pub fn write(evidence: &Evidence, to: &mut impl Write) -> Result<(), ExportError> {
    line(to, &Header { version: SCHEMA_VERSION })?;
    evidence.for_each_record(|record| Ok::<_, ExportError>(line(to, &record)?))
}

fn line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value).expect("plain data serialises");
    writeln!(to, "{text}")
}

fn unreadable(path: &Path, err: &io::Error) -> EvidenceError {
    match err.kind() {
        io::ErrorKind::NotFound => EvidenceError::Missing { path: path.to_owned() },
        _ => EvidenceError::NotEvidence { path: path.to_owned(), reason: err.to_string() },
    }
}

/// Whether the file begins as an export does, and not as a database.
pub(super) fn is_export(path: &Path) -> Result<bool, EvidenceError> {
    let mut start = [0; 16];
    let mut file = File::open(path).map_err(|err| unreadable(path, &err))?;
    let mut n_read = 0;
    while n_read < start.len() {
        match file.read(&mut start[n_read..]).map_err(|err| unreadable(path, &err))? {
            0 => break,
            n => n_read += n,
        }
    }
    if &start == b"SQLite format 3\0" {
        return Ok(false);
    }
    if start[0] == b'{' {
        return Ok(true);
    }
    let reason = if n_read == 0 {
        "it is empty".to_owned()
    } else {
        "it is neither a database nor an export of one".to_owned()
    };
    Err(EvidenceError::NotEvidence { path: path.to_owned(), reason })
}

/// Calls `take` with each record of an export.
pub(super) fn read(
    path: &Path,
    take: &mut dyn FnMut(Record) -> Result<(), EvidenceError>,
) -> Result<(), EvidenceError> {
    let file = File::open(path).map_err(|err| unreadable(path, &err))?;
    read_from(path, BufReader::new(file), take)
}

/// As [`read`]; `path` is for messages.
pub(super) fn read_from(
    path: &Path,
    lines: impl BufRead,
    take: &mut dyn FnMut(Record) -> Result<(), EvidenceError>,
) -> Result<(), EvidenceError> {
    for (idx, text) in lines.lines().enumerate() {
        let bad =
            |reason: String| EvidenceError::Line { path: path.to_owned(), n_line: idx + 1, reason };
        let text = text.map_err(|err| bad(err.to_string()))?;
        if idx == 0 {
            let header: Header = serde_json::from_str(&text).map_err(|err| bad(err.to_string()))?;
            if header.version != SCHEMA_VERSION {
                let found = header.version;
                return Err(EvidenceError::Version { path: path.to_owned(), found });
            }
            continue;
        }
        take(serde_json::from_str(&text).map_err(|err| bad(err.to_string()))?)?;
    }
    Ok(())
}
