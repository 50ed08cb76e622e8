//! PTX as data: syntax tree, instruction table, typed builder, printer and parser.
//!
//! Invariant: `parse(&module.to_string()) == Ok(module)`. The executor in `runtime/cpu` runs parsed
//! text only, so what is tested is what is printed.

pub mod ast;
pub mod builder;
pub mod parse;
mod print;
pub mod table;
mod target;

pub use parse::{ParseError, ParseErrorKind, Parsed, parse, parse_with_lines};
pub use target::{PtxError, lowest_version};
