//! The rules, one per row.
//!
//! To add one: add a row to the table of its kind, and `tests/filetests/rewrite/<name>.gir`. Its
//! soundness test is generated from the row. There are no rules of commutativity or associativity:
//! graphs explode under them; operands that are known go to the right instead.

mod contraction;
mod derive;
mod fusion;
mod identities;
mod movement;
mod reduction;
mod scalars;
mod siblings;
mod splitting;
mod tensors;

pub use contraction::CONTRACTION;
pub use fusion::FUSION;
pub use identities::IDENTITIES;
pub use movement::MOVEMENT;
pub use reduction::REDUCTION;
pub use scalars::SCALARS;
pub use siblings::SIBLINGS;
pub use splitting::SPLITTING;
pub use tensors::TENSORS;

use crate::rule::Rule;

/// The tables, each with its name.
#[rustfmt::skip] // One table per row.
pub fn tables() -> Vec<(&'static str, &'static [Rule])> {
    vec![
        ("fusion", FUSION),
        ("tensors", TENSORS),
        ("identities", IDENTITIES),
        ("scalars", SCALARS),
        ("movement", MOVEMENT),
        ("reduction", REDUCTION),
        ("contraction", CONTRACTION),
        ("siblings", SIBLINGS),
        ("splitting", SPLITTING),
    ]
}

/// All rules, in file order.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    tables().into_iter().flat_map(|(_, rows)| rows)
}
