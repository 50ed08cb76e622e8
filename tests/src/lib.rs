//! What tests and benchmarks share: graphs of published networks, built in code.

pub mod suite;
