//! The tensor graph: pure single-result operators on typed tensors, in topological order.

mod attrs;
mod entities;
pub mod eval;
pub mod infer;
mod narrow;
mod ops;
mod passes;
pub mod text;
pub mod verify;

pub use attrs::{Attr, AttrKind, Attrs};
pub use entities::Value;
pub use eval::{Array, Rounding, eval, fold};
pub use infer::TypeError;
pub use narrow::widens_weights;
pub use ops::{Op, OpClass, OpSpec, UnknownOp};
pub use text::{ParseError, parse};
pub use verify::{VerifyError, debug_verify, verify};

use cranelift_entity::PrimaryMap;

use crate::{Tensor, TensorType};

/// A tensor graph.
///
/// Invariant: the arguments of a node are values defined before it, and `ty` is what the operator's
/// row infers. [`Graph::apply`] keeps it; `verify` checks it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Name without the leading `@`.
    pub name: String,
    /// Definition of each value, in order of definition.
    pub nodes: PrimaryMap<Value, Node>,
    /// The values that the graph returns, in order.
    pub outputs: Vec<Value>,
    /// Names of the outputs, in the model's words; empty or as long as `outputs`.
    pub output_names: Vec<String>,
}

/// One definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Type of its result.
    pub ty: TensorType,
    /// Names of the model's nodes that this one (with others) computes, sorted. Empty in a region.
    pub sources: Vec<String>,
}

/// How a [`Value`] is defined.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// The next graph input.
    Input {
        /// Name in the model; empty in a region.
        name: String,
        /// Whether its contents are known at compile time, so that they can be packed.
        weight: bool,
    },
    /// A constant.
    Const(Tensor),
    /// The result of an operator.
    Apply(Op, Attrs, Vec<Value>),
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds an input.
    pub fn input(&mut self, name: impl Into<String>, ty: TensorType) -> Value {
        let kind = NodeKind::Input { name: name.into(), weight: false };
        self.nodes.push(Node { kind, ty, sources: Vec::new() })
    }

    /// Adds an input whose contents are known at compile time.
    pub fn weight(&mut self, ty: TensorType) -> Value {
        let kind = NodeKind::Input { name: String::new(), weight: true };
        self.nodes.push(Node { kind, ty, sources: Vec::new() })
    }

    /// Adds a constant.
    pub fn constant(&mut self, tensor: Tensor) -> Value {
        let ty = tensor.ty();
        self.nodes.push(Node { kind: NodeKind::Const(tensor), ty, sources: Vec::new() })
    }

    /// Adds an operator.
    ///
    /// # Errors
    ///
    /// If the operands or attributes are not what the operator's row asks for.
    pub fn apply(
        &mut self,
        op: Op,
        attrs: impl Into<Attrs>,
        args: &[Value],
    ) -> Result<Value, TypeError> {
        let attrs = attrs.into();
        let types: Vec<&TensorType> = args.iter().map(|&arg| &self.nodes[arg].ty).collect();
        let ty = infer::infer(op, &attrs, &types)?;
        let kind = NodeKind::Apply(op, attrs, args.to_vec());
        Ok(self.nodes.push(Node { kind, ty, sources: Vec::new() }))
    }

    /// Type of a value.
    pub fn ty(&self, value: Value) -> &TensorType {
        &self.nodes[value].ty
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> impl Iterator<Item = Value> + '_ {
        self.nodes
            .iter()
            .filter(|(_, node)| matches!(node.kind, NodeKind::Input { .. }))
            .map(|(value, _)| value)
    }
}
