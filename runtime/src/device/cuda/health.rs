//! Clocks, power and throttling, as NVML tells them: what says whether a measurement is to be believed.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};

use crate::device::DeviceError;

/// The state of a device at one moment. What NVML does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// Clock of the multiprocessors.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory.
    pub memory_clock_mhz: Option<u32>,
    /// Power drawn.
    pub power_mw: Option<u32>,
    /// Temperature of the chip.
    pub temperature_celsius: Option<u32>,
    /// Why clocks are held down, in NVML's words; empty if they are not.
    pub throttle_reasons: Vec<String>,
}

/// Asks NVML about the device of a UUID, as [`CudaDevice::uuid`](super::CudaDevice::uuid) gives it.
///
/// # Errors
///
/// [`DeviceError::Unavailable`] if NVML is not there or does not know the device.
pub fn health(uuid: &str) -> Result<Health, DeviceError> {
    let unavailable = |err: nvml_wrapper::error::NvmlError| DeviceError::Unavailable {
        reason: format!("NVML tells nothing about device {uuid}: {err}"),
    };
    let nvml = Nvml::init().map_err(unavailable)?;
    let device = nvml.device_by_uuid(uuid).map_err(unavailable)?;
    let reasons = device.current_throttle_reasons().ok();
    Ok(Health {
        sm_clock_mhz: device.clock_info(Clock::SM).ok(),
        memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
        power_mw: device.power_usage().ok(),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        throttle_reasons: reasons.map_or_else(Vec::new, |reasons| {
            reasons.iter_names().map(|(name, _)| name.to_lowercase()).collect()
        }),
    })
}
