//! The driver library: whether it is there, is new enough and has what we call; and its errors, as
//! messages that say what to do.
//!
//! Nothing is called before [`require`] has looked for every function of [`SYMBOLS`]. A result is a number:
//! one that no name is known for here is told as it is.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys;

use super::functions::*;
use crate::device::DeviceError;

/// The oldest version of CUDA that works, as `cuDriverGetVersion` says it: the first with
/// `cuEventElapsedTime_v2`. It is that of driver 570.
pub const NEEDED_VERSION: i32 = 12080;

/// A driver call that failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) call: &'static str,
    /// Of `CUresult`, or one that only the driver knows.
    pub(super) code: u32,
    /// What it was about, such as ` of 4096 bytes`, or nothing.
    pub(super) what: String,
}

/// Calls a driver function: `driver!(cuMemFree_v2(address), " of 16 bytes")?`.
macro_rules! driver {
    ($name:ident($($arg:expr),* $(,)?) $(, $($what:tt)+)?) => {
        $crate::device::cuda::driver::check(
            stringify!($name),
            // SAFETY: the arguments are handles that this module made and has not destroyed, and pointers
            // to live places; the library has the function, which `require` looked for.
            unsafe { $crate::device::cuda::functions::$name($($arg),*) },
            || { #[allow(unused_mut, unused_assignments, reason = "for calls that are about nothing")]
                 let mut what = String::new(); $(what = format!($($what)+);)? what },
        )
    };
}

pub(super) fn check(
    name: &'static str,
    code: u32,
    what: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if code == CUDA_SUCCESS {
        return Ok(());
    }
    let call = name.split_once("_v").map_or(name, |(base, _)| base);
    Err(Failure { call, code, what: what() })
}

impl Failure {
    /// Whether the context is of no more use.
    pub(super) fn loses_context(&self) -> bool {
        self.is_fault()
            || matches!(
                self.code,
                CUDA_ERROR_DEVICE_UNAVAILABLE
                    | CUDA_ERROR_ECC_UNCORRECTABLE
                    | CUDA_ERROR_NVLINK_UNCORRECTABLE
                    | CUDA_ERROR_CONTEXT_IS_DESTROYED
                    | CUDA_ERROR_CONTAINED
            )
    }

    /// Whether it is a kernel's doing.
    pub(super) fn is_fault(&self) -> bool {
        matches!(
            self.code,
            CUDA_ERROR_ILLEGAL_ADDRESS
                | CUDA_ERROR_LAUNCH_TIMEOUT
                | CUDA_ERROR_ASSERT
                | CUDA_ERROR_HARDWARE_STACK_ERROR
                | CUDA_ERROR_ILLEGAL_INSTRUCTION
                | CUDA_ERROR_MISALIGNED_ADDRESS
                | CUDA_ERROR_INVALID_ADDRESS_SPACE
                | CUDA_ERROR_INVALID_PC
                | CUDA_ERROR_LAUNCH_FAILED
        )
    }

    /// Name, number and description, in the driver's words.
    pub(super) fn text(&self) -> String {
        let (mut name, mut meaning): (*const c_char, *const c_char) =
            (std::ptr::null(), std::ptr::null());
        // What cannot be described has its number; there is nothing more to say.
        let _ = driver!(cuGetErrorName(self.code, &mut name));
        let _ = driver!(cuGetErrorString(self.code, &mut meaning));
        let read = |text: *const c_char| {
            // SAFETY: not null, so the driver gave a text that ends with a zero and lives as long as it.
            (!text.is_null())
                .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let number = self.code;
        match (read(name), read(meaning)) {
            (Some(name), Some(meaning)) => format!("{name} ({number}): {meaning}"),
            (Some(name), None) => format!("{name} ({number})"),
            _ => format!("error {number}"),
        }
    }

    /// What to do about it.
    fn advice(&self) -> &'static str {
        match self.code {
            CUDA_ERROR_OUT_OF_MEMORY => {
                "free memory of the device (`nvidia-smi` lists who holds it), or compile for smaller shapes"
            }
            CUDA_ERROR_NO_DEVICE => "no GPU is visible: see `nvidia-smi` and CUDA_VISIBLE_DEVICES",
            CUDA_ERROR_STUB_LIBRARY => {
                "the library found is the toolkit's stub: take its folder `stubs` out of LD_LIBRARY_PATH"
            }
            CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
                "the library and the kernel module are of different versions: restart the machine"
            }
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
                "update the driver, or compile the model for an older --target"
            }
            CUDA_ERROR_NO_BINARY_FOR_GPU | CUDA_ERROR_INVALID_IMAGE => {
                "compile the model with the --target of this device"
            }
            CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_UNKNOWN => "the device may need a reset: see `nvidia-smi -q` and `dmesg`",
            _ if self.is_fault() => {
                "`eggine compare --device cpu --check` finds the line of the kernel that does it"
            }
            _ => "`eggine doctor` checks the driver",
        }
    }
}

impl From<Failure> for DeviceError {
    fn from(failure: Failure) -> Self {
        DeviceError::Driver {
            call: failure.call.to_owned(),
            what: failure.what.clone(),
            code: failure.code,
            reason: failure.text(),
            advice: failure.advice(),
        }
    }
}

/// `13.0` for 13000.
pub(super) fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Makes sure that the driver is there and usable; returns its version.
///
/// # Errors
///
/// [`DeviceError::Unavailable`] in one sentence, or what the driver says.
pub(super) fn require() -> Result<i32, DeviceError> {
    let unavailable = |reason: String| DeviceError::Unavailable { reason };
    // SAFETY: loading a driver library runs its initialisers, which every CUDA program does.
    if !unsafe { sys::is_culib_present() } {
        return Err(unavailable(
            "no CUDA driver was found (libcuda.so.1 is not on the library path): install NVIDIA's driver 570 or later, or use `--device cpu`".into(),
        ));
    }
    // SAFETY: it is present, so this does not panic.
    let library = unsafe { sys::culib() };
    let has = |name: &str| {
        // SAFETY: the symbol is only looked for, not called.
        unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_ok()
    };
    let mut version: c_int = 0;
    if has("cuDriverGetVersion") {
        driver!(cuDriverGetVersion(&mut version))?;
    }
    if version < NEEDED_VERSION {
        return Err(unavailable(format!(
            "the CUDA driver is of version {}, Eggine needs {}: install NVIDIA's driver 570 or later, or use `--device cpu`",
            version_text(version),
            version_text(NEEDED_VERSION)
        )));
    }
    if let Some(missing) = SYMBOLS.iter().find(|name| !has(name)) {
        return Err(unavailable(format!(
            "the CUDA driver of version {} lacks the function `{missing}`: install NVIDIA's driver 570 or later, or use `--device cpu`",
            version_text(version)
        )));
    }
    driver!(cuInit(0))?;
    Ok(version)
}
