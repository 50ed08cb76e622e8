//! The evidence database: what was measured, with everything that makes it true.
//!
//! One SQLite file in write-ahead mode, so that several processes can use it at once and an end at any
//! moment loses at most the row that was about to be written. A row is never changed. It has two
//! addresses: the hash of its preconditions ([`Key::hash`]), which is what a lookup asks for, and the
//! hash of everything in it ([`Row::content`]), by which files are merged: the union of two files is the
//! union of their rows. If that brings a second measurement of the same thing, both are kept and
//! [`Row::outranks`] says which counts. Losing the file loses time, not correctness.

mod check;
mod corpus;
mod error;
mod gc;
mod job;
mod lines;
mod merge;
mod migrate;
mod miss;
mod notes;
mod overview;
mod query;
mod row;
mod schema;
mod store;
mod teach;
#[cfg(test)]
mod testing;

pub use check::Checked;
pub use corpus::{CounterexampleRow, QuarantineRow};
pub use error::EvidenceError;
pub use gc::{Discard, Discarded, DiscardedGroup};
pub use job::JobRecord;
pub use lines::{ExportError, write as export};
pub use merge::{Merged, Record};
pub use miss::{Difference, Field, Miss, MissTally, MissedRegions, differences};
pub use notes::Note;
pub use overview::{FindError, Found, JobInfo, Overview, Place, RegionInfo};
pub use row::{Conditions, EngineRow, Key, Row};
pub use schema::SCHEMA_VERSION;
pub use store::Evidence;
