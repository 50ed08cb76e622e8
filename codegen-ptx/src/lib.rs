//! Regions and schedules to kernels: kernel IR, kernel families, PTX emission, assembling.

pub mod assemble;
pub mod bindings;
mod contraction;
pub mod emit;
pub mod index;
pub mod kir;
pub mod lower;
mod math;
mod pointwise;
pub mod predict;
mod row;
pub mod target;
mod value;

pub use bindings::{Binding, Packing};
pub use emit::{EmitError, emit};
pub use lower::{
    Family, Illegal, LowerError, Lowered, check, classify, classify_on, first_choices,
    first_schedule, first_schedule_on, lower, neighbours, schedule_of,
};
pub use predict::{CPU_DEVICE, Chip, GpuChip, H200, Prediction, UnknownChip, predict};
pub use target::Target;
