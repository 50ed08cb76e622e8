//! Tests of the rewriter: rules, agents, extraction, covers, kernel spaces.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod agents;
mod covers;
mod derivations;
mod files;
mod fuzz;
mod kernels;
mod models;
mod roofline;
mod rule_files;
mod soundness;
