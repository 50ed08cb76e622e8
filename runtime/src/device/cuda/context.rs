//! The primary context of a device, which everybody in the process shares.
//!
//! A kernel that faults loses the context for all; whoever notices resets it, and the others find that
//! theirs is of an earlier generation.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::driver::{self, Failure};
use crate::device::DeviceError;

/// How often the primary context of each device was reset by us.
static GENERATIONS: Mutex<BTreeMap<CUdevice, u64>> = Mutex::new(BTreeMap::new());

fn generation_of(device: CUdevice) -> u64 {
    let generations = GENERATIONS.lock().unwrap_or_else(PoisonError::into_inner);
    generations.get(&device).copied().unwrap_or(0)
}

/// A retained primary context.
pub(super) struct Context {
    pub(super) device: CUdevice,
    handle: CUcontext,
    generation: u64,
}

// SAFETY: a context may be used by any thread, one after another.
unsafe impl Send for Context {}
// SAFETY: several threads may have the same context, and make it current at the same time.
unsafe impl Sync for Context {}

/// The handle of a device.
///
/// # Errors
///
/// [`DeviceError::Unavailable`] if there is no such device.
pub(super) fn find(ordinal: u32) -> Result<CUdevice, DeviceError> {
    let mut n_devices = 0;
    driver!(cuDeviceGetCount(&mut n_devices))?;
    let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
    if ordinal >= n_devices {
        let there = match n_devices {
            0 => "no CUDA device".to_owned(),
            1 => "one CUDA device, cuda:0".to_owned(),
            n => format!("{n} CUDA devices, cuda:0 to cuda:{}", n - 1),
        };
        return Err(DeviceError::Unavailable {
            reason: format!("there is no device cuda:{ordinal}: this machine has {there}"),
        });
    }
    let mut device = 0;
    driver!(cuDeviceGet(&mut device, ordinal), " cuda:{ordinal}")?;
    Ok(device)
}

impl Context {
    /// Retains the primary context of a device; the driver was [required](driver::require) before.
    pub(super) fn retain(device: CUdevice) -> Result<Self, DeviceError> {
        let generation = generation_of(device);
        let mut handle = std::ptr::null_mut();
        driver!(cuDevicePrimaryCtxRetain(&mut handle, device), " of cuda:{device}")?;
        Ok(Self { device, handle, generation })
    }

    /// Whether it is the one that there is now.
    pub(super) fn is_current_generation(&self) -> bool {
        generation_of(self.device) == self.generation
    }

    /// Makes it current for this thread.
    pub(super) fn enter(&self) -> Result<(), Failure> {
        driver!(cuCtxSetCurrent(self.handle))
    }

    /// Destroys all that is in it, for everybody.
    pub(super) fn reset(&self) {
        let mut generations = GENERATIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = generations.entry(self.device).or_insert(0);
        if *generation == self.generation {
            *generation += 1;
            twice(|| driver!(cuDevicePrimaryCtxReset_v2(self.device)));
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        twice(|| driver!(cuDevicePrimaryCtxRelease_v2(self.device)));
    }
}

/// Calls what gives something back; if it fails, once more. Whether it worked.
pub(super) fn twice(mut call: impl FnMut() -> Result<(), Failure>) -> bool {
    match call() {
        Ok(()) => true,
        Err(first) => {
            tracing::warn!(call = first.call, code = first.code, "giving back failed");
            call().is_ok()
        }
    }
}

pub(super) use driver::require;
