//! How far searches had come.

use rusqlite::{OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::error::EvidenceError;
use super::store::{Evidence, numbers, text};

/// How far a search had come: with it a repeat knows where the first one stopped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobRecord {
    /// Candidates considered in each generation, from evidence or measured.
    pub generations: Vec<u64>,
    /// Whether the budget was used up, or nothing was left to try (as opposed to an interrupt).
    pub finished: bool,
}

impl JobRecord {
    /// Whether this one says more: a finished search more than one that is not, then more candidates in
    /// the first generation that differs.
    pub fn is_further_than(&self, other: &JobRecord) -> bool {
        (self.finished, &self.generations) > (other.finished, &other.generations)
    }

    pub(super) fn text(&self) -> String {
        let generations: Vec<i64> =
            self.generations.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX)).collect();
        text(&generations)
    }
}

impl Evidence {
    /// How far the job with this hash had come.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the record is damaged.
    pub fn job(&self, hash: &str) -> Result<Option<JobRecord>, EvidenceError> {
        (self.connection())
            .query_row("SELECT generations, finished FROM job WHERE hash = ?1", [hash], record_at)
            .optional()
            .map_err(|err| self.fail(err))
    }

    /// Notes that a job has begun, in words for people. A job that is known stays as it is.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn begin_job(&self, hash: &str, description: &str) -> Result<(), EvidenceError> {
        (self.connection())
            .execute(
                "INSERT INTO job VALUES (?1, '', 0, ?2)
                 ON CONFLICT (hash) DO UPDATE SET description = excluded.description WHERE description = ''",
                [hash, description],
            )
            .map_err(|err| self.fail(err))?;
        Ok(())
    }

    /// Records how far the job has come. A record never goes back: while a finished search is repeated,
    /// it stays finished.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn set_job(&self, hash: &str, record: &JobRecord) -> Result<(), EvidenceError> {
        // Another process may write the same record in between: then again.
        loop {
            let known = self.job(hash)?;
            let n_written = match &known {
                Some(known) if !record.is_further_than(known) => return Ok(()),
                Some(known) => self.connection().execute(
                    "UPDATE job SET generations = ?2, finished = ?3
                     WHERE hash = ?1 AND generations = ?4 AND finished = ?5",
                    params![hash, record.text(), record.finished, known.text(), known.finished],
                ),
                None => self.connection().execute(
                    "INSERT OR IGNORE INTO job VALUES (?1, ?2, ?3, '')",
                    params![hash, record.text(), record.finished],
                ),
            };
            if n_written.map_err(|err| self.fail(err))? == 1 {
                return Ok(());
            }
        }
    }
}

/// A row of `generations, finished`.
pub(super) fn record_at(row: &rusqlite::Row<'_>) -> rusqlite::Result<JobRecord> {
    let generations = numbers(row, 0)?.into_iter().map(i64::unsigned_abs).collect();
    Ok(JobRecord { generations, finished: row.get(1)? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn a_job_never_goes_back() {
        let evidence = Evidence::in_memory().unwrap();
        let record = |generations: &[u64], finished| JobRecord {
            generations: generations.to_vec(),
            finished,
        };
        evidence.begin_job("j", "resnet50, 12 measurements").unwrap();
        assert_eq!(evidence.job("j").unwrap(), Some(record(&[], false)));
        let steps = [
            (record(&[8], false), record(&[8], false)),
            (record(&[3], false), record(&[8], false)),
            (record(&[8, 2], false), record(&[8, 2], false)),
            (record(&[7, 4], true), record(&[7, 4], true)),
            (record(&[9], false), record(&[7, 4], true)),
        ];
        for (set, expected) in steps {
            evidence.set_job("j", &set).unwrap();
            assert_eq!(evidence.job("j").unwrap(), Some(expected), "after {set:?}");
        }
    }
}
