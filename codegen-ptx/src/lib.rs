//! Regions and schedules to kernels: kernel IR, kernel families, PTX emission, assembling.

pub mod assemble;
pub mod emit;
pub mod kir;
pub mod target;

pub use emit::{EmitError, emit};
pub use target::Target;
