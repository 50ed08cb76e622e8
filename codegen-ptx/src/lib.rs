//! Regions and schedules to kernels: kernel IR, kernel families, PTX emission, assembling.

pub mod kir;
pub mod target;

pub use target::Target;
