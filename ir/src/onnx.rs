//! ONNX import: a model file becomes a [`Graph`] of core operators with every shape fixed.
//!
//! Everything that is known at import is folded: shape arithmetic disappears, constants stay constants.
//! Operators decompose into the rows of the core table opset by opset; there is no softmax operator
//! behind import, fusion finds it again. Each node keeps the paths of the model's nodes it came from.
//! Nothing that a model contains makes import panic or allocate more than the model's own bytes justify.

mod bind;
mod builder;
mod call;
mod draw;
mod error;
mod function;
mod import;
mod integers;
mod load;
mod ops;
mod order;
pub mod part;
pub mod proto;
pub mod survey;

pub use bind::Port;
pub use error::{Foreign, ImportError, OpError, TensorProblem, Unsupported, Wiring};

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;

use crate::{Graph, TensorType};

/// What import has to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Extents of inputs by name. An input whose dimensions the model fixes, or names as another
    /// input's, may be left out.
    pub shapes: BTreeMap<String, Vec<usize>>,
}

/// An imported model.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// What it computes. Its inputs are `inputs`, its outputs `outputs`, in the model's order.
    pub graph: Graph,
    /// Names and types of the inputs.
    pub inputs: Vec<(String, TensorType)>,
    /// Names and types of the outputs.
    pub outputs: Vec<(String, TensorType)>,
    /// Facts about the file.
    pub model: ModelInfo,
}

/// Facts about a model file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Version of the standard's operators.
    pub opset: i64,
    /// Program that wrote it, with its version; may be empty.
    pub producer: String,
    /// Nodes of the main graph.
    pub n_nodes: usize,
}

/// Inputs and outputs as a model declares them, symbols unbound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Inputs that have to be given.
    pub inputs: Vec<Port>,
    /// Outputs.
    pub outputs: Vec<Port>,
    /// Facts about the file.
    pub model: ModelInfo,
}

/// Imports a model file. The file is mapped, not read: weights are copied by nobody.
///
/// # Errors
///
/// See [`ImportError`]. All unsupported operators are reported at once.
pub fn import(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Imported, ImportError> {
    let path = path.as_ref();
    let model = load::open(path)?;
    import::import(&model, load::Tensors::new(Some(folder_of(path))), options)
}

/// The folder of a model file, in which its external data is.
fn folder_of(path: &Path) -> std::path::PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => Path::new(".").to_owned(),
    }
}

/// Imports a model from memory. It may not refer to other files.
///
/// # Errors
///
/// See [`ImportError`].
pub fn import_bytes(
    bytes: impl Into<Bytes>,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let model = load::decode("<bytes>", bytes.into())?;
    import::import(&model, load::Tensors::new(None), options)
}

/// What a model takes and returns, without importing it.
///
/// # Errors
///
/// If the file is not a model.
pub fn describe(path: impl AsRef<Path>) -> Result<Description, ImportError> {
    Ok(part::Model::open(path.as_ref())?.description())
}
