//! What tests and benchmarks share: graphs of published networks, built in code, an allocator that counts, and
//! a mutator of inputs.

pub mod alloc;
pub mod fuzz;
pub mod suite;
