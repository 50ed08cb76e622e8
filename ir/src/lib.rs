//! The intermediate representations and everything needed to read, print, check and evaluate them.
//!
//! This crate is pure apart from reading model files: it knows neither egg, PTX nor a device. It
//! uses `unsafe` only to map a model file and to multiply matrices.

pub mod dtype;
pub mod graph;
pub mod onnx;
pub mod padded;
pub mod region;
pub mod schedule;
pub mod shape;
pub mod tensor;

pub use dtype::DType;
pub use graph::{Attr, Attrs, Graph, Node, NodeKind, Op, Value};
pub use region::{Layout, Region};
pub use schedule::Schedule;
pub use shape::{Dim, Shape, TensorType};
pub use tensor::Tensor;
