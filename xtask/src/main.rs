//! Developer tasks: `cargo xtask TASK`.

fn main() {}
