//! Regions and schedules to kernels: kernel IR, kernel families, PTX emission, assembling.

pub mod assemble;
pub mod kir;
pub mod target;

pub use target::Target;
