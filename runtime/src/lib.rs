//! Devices, engine files, execution, and the verification and timing of candidate kernels.
//!
//! A process that runs an engine needs this crate and no compiler: everything here works on PTX
//! text, bytes and the reference evaluator.

pub mod case;
pub mod compare;
pub mod device;
pub mod engine;
pub mod executor;
pub mod plan;
pub mod program;
pub mod timing;
pub mod verify;

pub use case::Case;
pub use compare::{Comparison, compare};
pub use device::{
    CpuDevice, CudaDevice, Device, DeviceError, DevicePtr, DeviceSpec, FakeDevice, Launch,
    LaunchAttributes, ModuleId,
};
pub use engine::{Engine, EngineError, EngineParts, Manifest};
pub use executor::{RunError, Session};
pub use plan::{Arg, IoSpec, KernelPlan, Plan, Step};
pub use timing::{Timing, TimingPlan};
pub use verify::{Candidate, CandidateBuffer, OracleCache, Verdict, Verification, VerifyOptions};
