//! The `eggine` command line.

fn main() {}
