//! nvPTXCompiler in this process: NVIDIA's static library as a shared one, loaded at run time.
//!
//! The interface is that of `nvPTXCompiler.h` of CUDA 13: a handle for each text, created, compiled and
//! destroyed by one thread; different handles may be used by different threads at once.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use super::AssembleError;
use crate::Target;

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle, usize, *const c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Handle) -> c_int;
type Compile = unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int;
type GetSize = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type GetText = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;
type GetVersion = unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> c_int;

/// `NVPTXCOMPILE_ERROR_COMPILATION_FAILURE` and `NVPTXCOMPILE_ERROR_UNSUPPORTED_PTX_VERSION`: the text is at
/// fault, and the error log says how.
const REFUSALS: [c_int; 2] = [3, 7];

/// The loaded library.
#[derive(Debug)]
pub(super) struct Library {
    version: String,
    create: Create,
    destroy: Destroy,
    compile: Compile,
    code_bytes: GetSize,
    code: GetText,
    error_log_bytes: GetSize,
    error_log: GetText,
    info_log_bytes: GetSize,
    info_log: GetText,
    /// The functions are its.
    _library: libloading::Library,
}

/// A handle that is destroyed when it is no longer used.
struct Compilation<'l> {
    library: &'l Library,
    handle: Handle,
}

impl Drop for Compilation<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle was made by `create` and is not used after this. Its status says nothing that
        // could be acted on.
        unsafe { (self.library.destroy)(&mut self.handle) };
    }
}

fn checked(call: &'static str, status: c_int) -> Result<(), AssembleError> {
    if status == 0 { Ok(()) } else { Err(AssembleError::Internal { call, status }) }
}

impl Library {
    /// Loads the library at a path, or of a name that the system's loader knows.
    pub(super) fn open(path: &Path) -> Result<Self, AssembleError> {
        let fail = |reason: String| AssembleError::Library {
            path: path.to_owned(),
            library: "nvPTXCompiler",
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
        let get_version: GetVersion = function!(b"nvPTXCompilerGetVersion");
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to numbers that live through the call.
        let status = unsafe { get_version(&mut major, &mut minor) };
        if status != 0 {
            return Err(fail(format!("it does not tell its version: status {status}")));
        }
        Ok(Self {
            version: format!("{major}.{minor}"),
            create: function!(b"nvPTXCompilerCreate"),
            destroy: function!(b"nvPTXCompilerDestroy"),
            compile: function!(b"nvPTXCompilerCompile"),
            code_bytes: function!(b"nvPTXCompilerGetCompiledProgramSize"),
            code: function!(b"nvPTXCompilerGetCompiledProgram"),
            error_log_bytes: function!(b"nvPTXCompilerGetErrorLogSize"),
            error_log: function!(b"nvPTXCompilerGetErrorLog"),
            info_log_bytes: function!(b"nvPTXCompilerGetInfoLogSize"),
            info_log: function!(b"nvPTXCompilerGetInfoLog"),
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
        let text = CString::new(ptx).map_err(|_| refused("the text has a zero byte"))?;
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: the text lives until the handle is gone, and its length is without the final zero.
        let status = unsafe { (self.create)(&mut handle, ptx.len(), text.as_ptr()) };
        checked("nvPTXCompilerCreate", status)?;
        let it = Compilation { library: self, handle };
        let options = [format!("--gpu-name={}", target.name()), "--verbose".to_owned()];
        let options = options.map(|option| CString::new(option).expect("no zero in an option"));
        let pointers = [options[0].as_ptr(), options[1].as_ptr()];
        // SAFETY: two options, both zero-terminated, alive through the call.
        let status = unsafe { (self.compile)(it.handle, 2, pointers.as_ptr()) };
        if REFUSALS.contains(&status) {
            let log = it.bytes("nvPTXCompilerGetErrorLog", self.error_log_bytes, self.error_log)?;
            return Ok((text_of(log), None));
        }
        checked("nvPTXCompilerCompile", status)?;
        let code = it.bytes("nvPTXCompilerGetCompiledProgram", self.code_bytes, self.code)?;
        let log = it.bytes("nvPTXCompilerGetInfoLog", self.info_log_bytes, self.info_log)?;
        Ok((text_of(log), Some(code)))
    }
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

impl Compilation<'_> {
    /// What one pair of functions (how many bytes, and the bytes) gives.
    fn bytes(
        &self,
        call: &'static str,
        size: GetSize,
        get: GetText,
    ) -> Result<Vec<u8>, AssembleError> {
        let mut n_bytes = 0;
        // SAFETY: the handle is alive and was compiled.
        checked(call, unsafe { size(self.handle, &mut n_bytes) })?;
        if n_bytes == 0 {
            return Ok(Vec::new());
        }
        // One more: the logs' sizes are without the final zero, which is written.
        let mut bytes = vec![0u8; n_bytes + 1];
        // SAFETY: the buffer has the room that was asked for, and one byte more.
        checked(call, unsafe { get(self.handle, bytes.as_mut_ptr().cast()) })?;
        bytes.truncate(n_bytes);
        Ok(bytes)
    }
}
