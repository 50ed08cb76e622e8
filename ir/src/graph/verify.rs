//! The verifier. It checks, and reports every violation of:
//!
//! - **defined-before-use**: an argument is a value with a smaller index;
//! - **operands**: the operator takes its arguments and attributes, as [`infer`] says:
//!   arity, attributes, element types, shapes;
//! - **fixed-shapes**: inputs have no symbolic extent and can be indexed;
//! - **recorded-type**: the type that a node records is the one inferred, or its constant's;
//! - **const-bytes**: a constant has the bytes that its type needs, and a boolean is 0 or 1;
//! - **input-names**: no two inputs share a name, unless it is empty;
//! - **sources-sorted**: a node's sources are sorted and distinct;
//! - **outputs-defined**: the returned values exist;
//! - **output-names**: there are none, or one for each output.

use std::collections::BTreeMap;
use std::fmt;

use cranelift_entity::{EntityRef, SecondaryMap};

use super::{Graph, Node, NodeKind, TypeError, Value, infer};
use crate::{DType, Tensor, TensorType};

/// A violated invariant and where it is violated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {kind}")]
pub struct VerifyError {
    /// The offending place.
    pub at: Place,
    /// What is wrong.
    pub kind: VerifyErrorKind,
}

/// A place in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A definition. Prints as `v3`.
    Value(Value),
    /// The list of outputs. Prints as `return`.
    Return,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Value(value) => write!(f, "{value}"),
            Place::Return => f.write_str("return"),
        }
    }
}

/// The violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyErrorKind {
    /// Invariants defined-before-use and outputs-defined.
    #[error("uses {0}, which is not defined before it")]
    Undefined(Value),
    /// Invariants operands and fixed-shapes.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// Invariant recorded-type.
    #[error("records type {recorded}, its type is {inferred}")]
    RecordedType {
        /// What the node says.
        recorded: TensorType,
        /// What follows from its definition.
        inferred: TensorType,
    },
    /// Invariant const-bytes.
    #[error("constant {ty} has {found} bytes, expected {expected}")]
    ConstBytes {
        /// The constant's type.
        ty: TensorType,
        /// Bytes of that type.
        expected: usize,
        /// Bytes that it has.
        found: usize,
    },
    /// Invariant const-bytes.
    #[error("boolean constant has a byte {found}, expected 0 or 1")]
    ConstBool {
        /// The byte.
        found: u8,
    },
    /// Invariant input-names.
    #[error("shares its name {name:?} with {first}")]
    InputName {
        /// The name.
        name: String,
        /// The first input of that name.
        first: Value,
    },
    /// Invariant sources-sorted.
    #[error("sources {sources:?} are not sorted and distinct")]
    Sources {
        /// The node's sources.
        sources: Vec<String>,
    },
    /// Invariant output-names.
    #[error("{expected} outputs have {found} names")]
    OutputNames {
        /// Number of outputs.
        expected: usize,
        /// Number of names.
        found: usize,
    },
}

/// Checks `graph`.
///
/// # Errors
///
/// All violations found, in order of place. A node whose arguments' types are already wrong is not
/// reported again.
pub fn verify(graph: &Graph) -> Result<(), Vec<VerifyError>> {
    let mut errors = Vec::new();
    // The type of each value as far as it is known to be right.
    let mut types: SecondaryMap<Value, Option<&TensorType>> = SecondaryMap::new();
    let mut names: BTreeMap<&str, Value> = BTreeMap::new();
    for (at, node) in graph.nodes.iter() {
        let mut report = |kind| errors.push(VerifyError { at: Place::Value(at), kind });
        match check_type(at, node, &types) {
            Ok(true) => types[at] = Some(&node.ty),
            Ok(false) => (),
            Err(kind) => report(kind),
        }
        if let NodeKind::Input { name, .. } = &node.kind
            && !name.is_empty()
        {
            match names.get(&name[..]) {
                Some(&first) => report(VerifyErrorKind::InputName { name: name.clone(), first }),
                None => _ = names.insert(name, at),
            }
        }
        if !node.sources.is_sorted_by(|x, y| x < y) {
            report(VerifyErrorKind::Sources { sources: node.sources.clone() });
        }
    }
    let mut report = |kind| errors.push(VerifyError { at: Place::Return, kind });
    for &output in &graph.outputs {
        if !graph.nodes.is_valid(output) {
            report(VerifyErrorKind::Undefined(output));
        }
    }
    let (expected, found) = (graph.outputs.len(), graph.output_names.len());
    if found != 0 && found != expected {
        report(VerifyErrorKind::OutputNames { expected, found });
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// In debug builds, checks what a pass made.
///
/// # Panics
///
/// If `graph` violates an invariant: that is a bug of `pass`.
pub fn debug_verify(graph: &Graph, pass: &str) {
    if cfg!(debug_assertions)
        && let Err(errors) = verify(graph)
    {
        let errors: Vec<String> = errors.iter().map(VerifyError::to_string).collect();
        panic!("{pass} made an ill-formed graph:\n{}", errors.join("\n"));
    }
}

/// Whether the node's type could be checked; not if it depends on a node that was reported.
fn check_type(
    at: Value,
    node: &Node,
    types: &SecondaryMap<Value, Option<&TensorType>>,
) -> Result<bool, VerifyErrorKind> {
    let inferred = match &node.kind {
        NodeKind::Input { .. } => {
            if node.ty.shape.extents().is_none() {
                return Err(TypeError::Symbolic { found: node.ty.clone() }.into());
            }
            infer::check_size(&node.ty)?;
            node.ty.clone()
        }
        NodeKind::Const(tensor) => {
            check_const(tensor)?;
            tensor.ty()
        }
        NodeKind::Apply(op, attrs, args) => {
            if let Some(&arg) = args.iter().find(|arg| arg.index() >= at.index()) {
                return Err(VerifyErrorKind::Undefined(arg));
            }
            match args.iter().map(|&arg| types[arg]).collect::<Option<Vec<_>>>() {
                Some(types) => infer::infer(*op, attrs, &types)?,
                None => return Ok(false),
            }
        }
    };
    match inferred == node.ty {
        true => Ok(true),
        false => Err(VerifyErrorKind::RecordedType { recorded: node.ty.clone(), inferred }),
    }
}

fn check_const(tensor: &Tensor) -> Result<(), VerifyErrorKind> {
    let ty = tensor.ty();
    infer::check_size(&ty)?;
    let (expected, found) = (ty.n_bytes(), tensor.bytes.len());
    if expected != found {
        return Err(VerifyErrorKind::ConstBytes { ty, expected, found });
    }
    if tensor.dtype == DType::Bool
        && let Some(&found) = tensor.bytes.iter().find(|&&byte| byte > 1)
    {
        return Err(VerifyErrorKind::ConstBool { found });
    }
    Ok(())
}
