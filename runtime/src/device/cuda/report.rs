//! What `eggine doctor` says about the driver and its devices.

use cudarc::driver::sys::CUdevice;

use super::context::{find, require};
use super::driver::{NEEDED_VERSION, version_text};
use super::{describe, health};
use crate::device::DeviceError;

/// The driver and each device.
#[derive(Clone, Debug, PartialEq)]
pub struct CudaReport {
    /// Version of CUDA that the driver is of, such as `13.0`.
    pub driver_version: String,
    /// The oldest that works.
    pub needed_version: String,
    /// What each device is and how it does, by ordinal; or why it cannot be used.
    pub devices: Vec<Result<String, DeviceError>>,
}

/// Looks at the driver and every device, without a context.
///
/// # Errors
///
/// One sentence about what is missing.
pub fn cuda_report() -> Result<CudaReport, DeviceError> {
    let version = require()?;
    let mut n_devices = 0;
    driver!(cuDeviceGetCount(&mut n_devices))?;
    Ok(CudaReport {
        driver_version: version_text(version),
        needed_version: version_text(NEEDED_VERSION),
        devices: (0..n_devices.unsigned_abs()).map(one).collect(),
    })
}

fn one(ordinal: u32) -> Result<String, DeviceError> {
    let device: CUdevice = find(ordinal)?;
    let facts = describe(device)?;
    let mut n_bytes = 0;
    driver!(cuDeviceTotalMem_v2(&mut n_bytes, device), " of cuda:{ordinal}")?;
    let gib = n_bytes as f64 / f64::from(1 << 30);
    let mut text = format!(
        "cuda:{ordinal} {}, sm_{}, {} multiprocessors, {gib:.1} GiB",
        facts.name, facts.sm, facts.n_multiprocessors
    );
    match health(&facts.uuid) {
        Ok(health) => {
            let show = |value: Option<u32>, unit: &str| {
                value.map_or_else(String::new, |value| format!(", {value} {unit}"))
            };
            text.push_str(&show(health.sm_clock_mhz, "MHz"));
            text.push_str(&show(health.power_mw.map(|mw| mw / 1000), "W"));
            text.push_str(&show(health.temperature_celsius, "°C"));
            if !health.throttle_reasons.is_empty() {
                text.push_str(&format!(", held down by {}", health.throttle_reasons.join(", ")));
            }
        }
        Err(_) => text.push_str(", no NVML: clocks and throttling are not watched"),
    }
    Ok(text)
}
