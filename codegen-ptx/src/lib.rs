//! Regions and schedules to kernels: kernel IR, kernel families, PTX emission, assembling.

pub mod kir;
