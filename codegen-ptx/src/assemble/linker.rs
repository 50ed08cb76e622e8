//! nvJitLink in this process: NVIDIA's linker, which compiles PTX as `ptxas` does, loaded at run time.
//!
//! The interface is that of `nvJitLink.h` of CUDA 12 and 13: a handle for each text, created, given its
//! input, completed and destroyed by one thread; different handles may be used by different threads.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use super::AssembleError;
use crate::Target;

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle, u32, *const *const c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Handle) -> c_int;
type AddData = unsafe extern "C" fn(Handle, c_int, *const c_void, usize, *const c_char) -> c_int;
type Complete = unsafe extern "C" fn(Handle) -> c_int;
type GetSize = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type GetBytes = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;
type GetVersion = unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> c_int;

const LIBRARY: &str = "nvJitLink";

/// `NVJITLINK_INPUT_PTX`.
const INPUT_PTX: c_int = 2;

/// `NVJITLINK_ERROR_PTX_COMPILE` and `NVJITLINK_ERROR_FINALIZE`: the text is at fault, and the error log
/// says how.
const REFUSALS: [c_int; 2] = [4, 9];

/// The loaded library.
#[derive(Debug)]
pub(super) struct JitLink {
    version: String,
    create: Create,
    destroy: Destroy,
    add_data: AddData,
    complete: Complete,
    code_bytes: GetSize,
    code: GetBytes,
    error_log_bytes: GetSize,
    error_log: GetBytes,
    info_log_bytes: GetSize,
    info_log: GetBytes,
    /// The functions are its.
    _library: libloading::Library,
}

/// A handle that is destroyed when it is no longer used.
struct Link<'l> {
    library: &'l JitLink,
    handle: Handle,
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle was made by `create` and is not used after this. Its status says nothing that
        // could be acted on.
        unsafe { (self.library.destroy)(&mut self.handle) };
    }
}

fn checked(call: &'static str, status: c_int) -> Result<(), AssembleError> {
    if status == 0 { Ok(()) } else { Err(AssembleError::Internal { call, status }) }
}

impl JitLink {
    /// Loads the library at a path, or of a name that the system's loader knows.
    pub(super) fn open(path: &Path) -> Result<Self, AssembleError> {
        let fail = |reason: String| AssembleError::Library {
            path: path.to_owned(),
            library: LIBRARY,
            reason,
        };
        // SAFETY: loading runs the library's initialisers; this one registers nothing and starts no threads.
        let library =
            unsafe { libloading::Library::new(path) }.map_err(|err| fail(err.to_string()))?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is that of the header, and `library` outlives the function.
                *unsafe { library.get($name) }.map_err(|_| {
                    fail(format!("it has no function {}", String::from_utf8_lossy($name)))
                })?
            };
        }
        let get_version: GetVersion = function!(b"nvJitLinkVersion");
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to numbers that live through the call.
        let status = unsafe { get_version(&mut major, &mut minor) };
        if status != 0 {
            return Err(fail(format!("it does not tell its version: status {status}")));
        }
        Ok(Self {
            version: format!("{major}.{minor}"),
            create: function!(b"nvJitLinkCreate"),
            destroy: function!(b"nvJitLinkDestroy"),
            add_data: function!(b"nvJitLinkAddData"),
            complete: function!(b"nvJitLinkComplete"),
            code_bytes: function!(b"nvJitLinkGetLinkedCubinSize"),
            code: function!(b"nvJitLinkGetLinkedCubin"),
            error_log_bytes: function!(b"nvJitLinkGetErrorLogSize"),
            error_log: function!(b"nvJitLinkGetErrorLog"),
            info_log_bytes: function!(b"nvJitLinkGetInfoLogSize"),
            info_log: function!(b"nvJitLinkGetInfoLog"),
            _library: library,
        })
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Compiles a text: what the compiler says, and the machine code unless it refuses.
    pub(super) fn compile(
        &self,
        ptx: &str,
        target: Target,
    ) -> Result<(String, Option<Vec<u8>>), AssembleError> {
        let refused = |reason: &str| AssembleError::Rejected {
            target,
            diagnostics: vec![format!("ptxas fatal   : {reason}")],
        };
        // Text that does not end with a zero is taken for something else.
        let text = CString::new(ptx).map_err(|_| refused("the text has a zero byte"))?;
        let options = [format!("-arch={}", target.name()), "-Xptxas=-v".to_owned()];
        let options = options.map(|option| CString::new(option).expect("no zero in an option"));
        let pointers = [options[0].as_ptr(), options[1].as_ptr()];
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: two options, both zero-terminated, alive through the call.
        let status = unsafe { (self.create)(&mut handle, 2, pointers.as_ptr()) };
        checked("nvJitLinkCreate", status)?;
        let it = Link { library: self, handle };
        // SAFETY: the text lives through the call, which copies it; it and its name are zero-terminated.
        let status = unsafe {
            let (data, name) = (text.as_ptr().cast(), c"kernel".as_ptr());
            (self.add_data)(it.handle, INPUT_PTX, data, ptx.len(), name)
        };
        let (call, status) = match status {
            // SAFETY: the handle is alive and has its input.
            0 => ("nvJitLinkComplete", unsafe { (self.complete)(it.handle) }),
            other => ("nvJitLinkAddData", other),
        };
        if REFUSALS.contains(&status) {
            let log = it.bytes("nvJitLinkGetErrorLog", self.error_log_bytes, self.error_log)?;
            return Ok((text_of(log), None));
        }
        checked(call, status)?;
        let code = it.bytes("nvJitLinkGetLinkedCubin", self.code_bytes, self.code)?;
        let log = it.bytes("nvJitLinkGetInfoLog", self.info_log_bytes, self.info_log)?;
        Ok((text_of(log), Some(code)))
    }
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

impl Link<'_> {
    /// What one pair of functions (how many bytes, and the bytes) gives.
    fn bytes(
        &self,
        call: &'static str,
        size: GetSize,
        get: GetBytes,
    ) -> Result<Vec<u8>, AssembleError> {
        let mut n_bytes = 0;
        // SAFETY: the handle is alive and was given its input.
        checked(call, unsafe { size(self.handle, &mut n_bytes) })?;
        if n_bytes == 0 {
            return Ok(Vec::new());
        }
        // One more, should the final zero of a log not be counted.
        let mut bytes = vec![0u8; n_bytes + 1];
        // SAFETY: the buffer has the room that was asked for, and one byte more.
        checked(call, unsafe { get(self.handle, bytes.as_mut_ptr().cast()) })?;
        bytes.truncate(n_bytes);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_or_another_is_told() {
        let missing = JitLink::open(Path::new("/nowhere/libnvJitLink.so.13")).unwrap_err();
        let told = missing.to_string();
        assert!(told.starts_with("`/nowhere/libnvJitLink.so.13` is not nvJitLink: "), "{told}");
        // The C library is a library, and has none of the functions.
        #[cfg(target_os = "linux")]
        {
            let other = JitLink::open(Path::new("libc.so.6")).unwrap_err().to_string();
            assert!(other.contains("nvJitLinkVersion"), "{other}");
        }
    }
}
