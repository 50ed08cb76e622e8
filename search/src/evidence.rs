//! The evidence database: what was measured, with everything that makes it true.
//!
//! One SQLite file in write-ahead mode, so that several processes can use it at once and an end at any
//! moment loses at most the row that was about to be written. A row is never changed. It has two
//! addresses: the hash of its preconditions ([`Key::hash`]), which is what a lookup asks for, and the
//! hash of everything in it ([`Row::content`]), by which files are merged: the union of two files is the
//! union of their rows. If that brings a second measurement of the same thing, both are kept and
//! [`Row::outranks`] says which counts. Losing the file loses time, not correctness.

mod error;
mod job;
mod migrate;
mod notes;
mod query;
mod row;
mod schema;
mod store;
mod teach;

pub use error::EvidenceError;
pub use job::JobRecord;
pub use notes::Note;
pub use row::{Conditions, EngineRow, Key, Row};
pub use schema::SCHEMA_VERSION;
pub use store::Evidence;
