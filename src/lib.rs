//! Eggine: a compiler that turns ONNX models into tuned inference engines. This is the library facade.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! use eggine::search::{Budget, Job, compile};
//! use eggine::{CpuDevice, CpuOptions, Engine, Session};
//!
//! let job = Job { budget: Budget::Measurements(500), ..Job::new("model.onnx") };
//! compile(&job, "model.engine".as_ref(), &AtomicBool::new(false))?;
//! let engine = Engine::open("model.engine".as_ref())?;
//! let device = CpuDevice::new(CpuOptions::default());
//! let mut session = Session::new(Box::new(device), &engine)?;
//! # let inputs = Vec::new();
//! let outputs = session.run(&inputs)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use eggine_codegen_ptx as codegen;
pub use eggine_ir as ir;
pub use eggine_rewrite as rewrite;
pub use eggine_runtime as runtime;
pub use eggine_search as search;

pub use eggine_ir::{DType, Tensor, TensorType};
pub use eggine_runtime::case::{Case, CaseError, write_outputs};
pub use eggine_runtime::compare::compare as compare_outputs;
pub use eggine_runtime::device::{CpuDevice, CpuOptions};
pub use eggine_runtime::{Engine, EngineError, Session};

use std::path::Path;

use eggine_ir::onnx::{ImportError, describe};

/// Why the shapes of a case cannot be used for a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShapesError {
    /// The model.
    #[error(transparent)]
    Model(#[from] ImportError),
    /// The case.
    #[error(transparent)]
    Case(#[from] CaseError),
}

/// Extents of each input of a model, by name, as a case gives them.
///
/// # Errors
///
/// If the model cannot be read, or the case lacks an input.
pub fn input_extents(model: &Path, case: &Case) -> Result<Vec<(String, Vec<usize>)>, ShapesError> {
    let description = describe(model)?;
    let mut shapes = Vec::new();
    for (index, port) in description.inputs.iter().enumerate() {
        shapes.push((port.name.clone(), case.input_extents(index, &port.name)?));
    }
    Ok(shapes)
}
