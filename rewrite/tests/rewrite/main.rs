//! Tests of the rewriter: rules, agents, extraction, covers, kernel spaces.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod covers;
mod models;
mod roofline;
