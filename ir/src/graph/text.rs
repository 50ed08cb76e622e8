//! The text format `.gir`, both ways: `parse(&graph.to_string()) == Ok(graph)`.
//!
//! ```text
//! graph @net(v0: f32[1,3,8,8] "image", v1: weight f32[4,3,3,3] "conv.weight") {
//!     v2 = conv v0, v1 {strides=[1,1], before=[1,1], after=[1,1], dilations=[1,1], groups=1} from "conv"
//!     v3 = const f32[1,4,1,1] splat 0.5
//!     v4 = add v2, v3 from "bias" "conv"
//!     v5 = relu v4
//!     return v5 "features"
//! }
//! ```
//!
//! - Values are numbered in order of definition, so text and memory agree. Text from `;` to the end
//!   of a line is a comment.
//! - Types are those of inputs and constants; others are inferred. A node whose operands the
//!   operator does not take parses with a placeholder type: well-formedness is the
//!   [verifier's](mod@super::verify).
//! - The inputs before all other nodes are in the header. An input after another node is a line
//!   `v7 = input f32[2] "name"`. `weight` says that its contents are known at compile time; an empty
//!   name is not written.
//! - Attributes are written in the order of the operator's row: a number, a list, a float, an
//!   element type or a word.
//! - A constant is `const TYPE ELEMENTS`: a single element for rank 0, `splat x` for two or more
//!   equal elements, else a list in row-major order. Floats are the shortest decimal that reads back
//!   as the same element, `inf`, `-inf`, `nan`, or the bits in hexadecimal where none of these is the
//!   same element (a NaN with another payload). Booleans are `true` and `false`.
//! - `from "a" "b"` are the [sources](super::Node::sources).
//! - `return` lists the outputs, each with its name if outputs are named at all.
//! - Names are strings with Rust's escapes; the graph's own name is bare where it is a word of
//!   letters, digits and `_.+-`.

mod lexer;
mod literal;
mod parser;

use std::fmt;

pub(crate) use parser::Parser;
pub use parser::{ParseError, ParseErrorKind, parse};

use super::{Graph, Node, NodeKind, Op, Value};
use cranelift_entity::EntityRef;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_header = self.n_leading_inputs();
        f.write_str("graph @")?;
        match lexer::is_word(&self.name) {
            true => f.write_str(&self.name)?,
            false => write!(f, "{:?}", self.name)?,
        }
        f.write_str("(")?;
        for (value, node) in self.nodes.iter().take(n_header) {
            let comma = if value.index() == 0 { "" } else { ", " };
            write!(f, "{comma}{value}: {}", InputText(node))?;
        }
        f.write_str(") {\n")?;
        for (value, node) in self.nodes.iter().skip(n_header) {
            write!(f, "    {value} = ")?;
            match &node.kind {
                NodeKind::Input { .. } => write!(f, "input {}", InputText(node))?,
                NodeKind::Const(tensor) => write!(f, "const {tensor}{}", Sources(node))?,
                NodeKind::Apply(op, attrs, args) => {
                    write!(f, "{op}")?;
                    for (i, arg) in args.iter().enumerate() {
                        write!(f, "{} {arg}", if i == 0 { "" } else { "," })?;
                    }
                    write!(f, "{}{}", AttrsText(*op, &attrs.0), Sources(node))?;
                }
            }
            f.write_str("\n")?;
        }
        f.write_str("    return")?;
        for (i, value) in self.outputs.iter().enumerate() {
            write!(f, "{} {value}", if i == 0 { "" } else { "," })?;
            if let Some(name) = self.output_names.get(i) {
                write!(f, " {name:?}")?;
            }
        }
        f.write_str("\n}\n")
    }
}

impl Graph {
    fn n_leading_inputs(&self) -> usize {
        let is_input = |node: &&Node| matches!(node.kind, NodeKind::Input { .. });
        self.nodes.values().take_while(is_input).count()
    }

    /// The line of one definition, as in the text format but with the result type written too, for
    /// messages about a node.
    pub fn describe(&self, value: Value) -> String {
        let node = &self.nodes[value];
        match &node.kind {
            NodeKind::Input { .. } => format!("{value} = input {}", InputText(node)),
            NodeKind::Const(tensor) => format!("{value} = const {}", tensor.ty()),
            NodeKind::Apply(op, attrs, args) => {
                let typed = |&arg: &Value| match self.nodes.get(arg) {
                    Some(node) => format!("{arg}: {}", node.ty),
                    None => format!("{arg}: undefined"),
                };
                let args: Vec<String> = args.iter().map(typed).collect();
                let attrs = AttrsText(*op, &attrs.0);
                format!("{value} = {op}({}){attrs}: {}", args.join(", "), node.ty)
            }
        }
    }
}

/// `weight f32[2] "name" from "source"`.
struct InputText<'a>(&'a Node);

impl fmt::Display for InputText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeKind::Input { name, weight } = &self.0.kind else {
            unreachable!("only inputs are printed as such")
        };
        write!(f, "{}{}", if *weight { "weight " } else { "" }, self.0.ty)?;
        if !name.is_empty() {
            write!(f, " {name:?}")?;
        }
        write!(f, "{}", Sources(self.0))
    }
}

/// ` from "a" "b"`, or nothing.
struct Sources<'a>(&'a Node);

impl fmt::Display for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, source) in self.0.sources.iter().enumerate() {
            write!(f, "{} {source:?}", if i == 0 { " from" } else { "" })?;
        }
        Ok(())
    }
}

/// ` {name=value, name=value}`, or nothing.
struct AttrsText<'a>(Op, &'a [super::Attr]);

impl fmt::Display for AttrsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(op, attrs) = self;
        for (i, attr) in attrs.iter().enumerate() {
            let name = op.spec().attrs.get(i).map_or("?", |(name, _)| name);
            write!(f, "{}{name}={attr}", if i == 0 { " {" } else { ", " })?;
        }
        f.write_str(if attrs.is_empty() { "" } else { "}" })
    }
}
