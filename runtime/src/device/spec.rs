//! Which device: the one place where the text of `--device` is read and a device is opened from it.

use std::fmt;
use std::str::FromStr;

use super::{CpuDevice, CpuOptions, CudaDevice, Device, DeviceError};

/// A device of this machine, before it is opened. Prints as it is written: `cpu`, `cuda:0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DeviceSpec {
    /// The [`CpuDevice`].
    #[default]
    Cpu,
    /// The [`CudaDevice`] of an ordinal.
    Cuda(u32),
}

/// What is written is no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no device is called `{text}`: expected cpu, or cuda:N with the number of a GPU")]
pub struct UnknownDevice {
    /// What was written.
    pub text: String,
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        let unknown = || UnknownDevice { text: text.to_owned() };
        match text {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let ordinal = text.strip_prefix("cuda:").ok_or_else(unknown)?;
                ordinal.parse().map(Self::Cuda).map_err(|_| unknown())
            }
        }
    }
}

/// Opens a device with default options.
///
/// # Errors
///
/// If the machine lacks it.
pub fn open(spec: &DeviceSpec) -> Result<Box<dyn Device>, DeviceError> {
    open_with(spec, CpuOptions::default())
}

/// Opens a device; the options are used if it is the cpu device.
///
/// # Errors
///
/// As [`open`].
pub fn open_with(spec: &DeviceSpec, cpu: CpuOptions) -> Result<Box<dyn Device>, DeviceError> {
    match spec {
        DeviceSpec::Cpu => Ok(Box::new(CpuDevice::new(cpu))),
        DeviceSpec::Cuda(ordinal) => Ok(Box::new(CudaDevice::open(*ordinal)?)),
    }
}
