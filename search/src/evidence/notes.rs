//! Notes in the evidence file that jobs leave for their own repetition: what was known when a search
//! began ([lessons](crate::lessons)), and the [recipe](crate::recipe) of what it found.
//!
//! A note is not evidence: it says nothing that the measurements do not, and is dropped without loss.

use rusqlite::OptionalExtension;

use super::error::EvidenceError;
use super::store::Evidence;

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// [`Lessons`](crate::lessons::Lessons), as JSON.
    Lessons,
    /// How the engine of a finished search is made, as JSON.
    Recipe,
    /// Measured constants of a device, as JSON; in the place of a job stands the device's identity.
    Calibration,
}

impl Note {
    fn name(self) -> &'static str {
        match self {
            Note::Lessons => "lessons",
            Note::Recipe => "recipe",
            Note::Calibration => "calibration",
        }
    }
}

impl Evidence {
    /// The note of this kind of the job with this hash.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn note(&self, note: Note, job: &str) -> Result<Option<String>, EvidenceError> {
        self.connection()
            .query_row(
                "SELECT text FROM note WHERE kind = ?1 AND job = ?2",
                [note.name(), job],
                |row| row.get(0),
            )
            .optional()
            .map_err(|err| self.fail(err))
    }

    /// Leaves a note, in the place of an earlier one.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn set_note(&self, note: Note, job: &str, text: &str) -> Result<(), EvidenceError> {
        self.connection()
            .execute("INSERT OR REPLACE INTO note VALUES (?1, ?2, ?3)", [note.name(), job, text])
            .map_err(|err| self.fail(err))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn a_note_comes_back_and_the_last_one_counts() {
        let evidence = Evidence::in_memory().unwrap();
        assert_eq!(evidence.note(Note::Recipe, "job").unwrap(), None);
        evidence.set_note(Note::Recipe, "job", "one").unwrap();
        evidence.set_note(Note::Recipe, "job", "two").unwrap();
        evidence.set_note(Note::Lessons, "job", "three").unwrap();
        assert_eq!(evidence.note(Note::Recipe, "job").unwrap().as_deref(), Some("two"));
        assert_eq!(evidence.note(Note::Lessons, "job").unwrap().as_deref(), Some("three"));
    }
}
