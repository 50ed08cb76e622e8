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
mod tensors;

pub use contraction::CONTRACTION;
pub use fusion::FUSION;
pub use identities::IDENTITIES;
pub use movement::MOVEMENT;
pub use reduction::REDUCTION;
pub use scalars::SCALARS;
pub use tensors::TENSORS;

use crate::rule::Rule;

/// All rules, in file order.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    let tables = [FUSION, TENSORS, IDENTITIES, SCALARS, MOVEMENT, REDUCTION, CONTRACTION];
    tables.into_iter().flatten()
}
