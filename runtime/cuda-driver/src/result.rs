//! Result codes of the driver API, with the names and descriptions that `cuGetErrorName` and
//! `cuGetErrorString` give.

/// A result that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

/// What a driver function's body returns.
pub(crate) type Done<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($short:ident $number:literal $name:literal $text:literal;)*) => {
        #[allow(dead_code, reason = "the table is of all codes that may be injected")]
        impl Code {
            $(pub(crate) const $short: Code = Code($number);)*
        }
        const TABLE: &[(u32, &std::ffi::CStr, &std::ffi::CStr)] = &[
            $((
                $number,
                match std::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a literal"),
                },
                match std::ffi::CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                    Ok(text) => text,
                    Err(_) => panic!("a literal"),
                },
            ),)*
        ];
    };
}

#[rustfmt::skip] // One code per row.
codes! {
    SUCCESS              0 "CUDA_SUCCESS"                          "no error";
    INVALID_VALUE        1 "CUDA_ERROR_INVALID_VALUE"              "invalid argument";
    OUT_OF_MEMORY        2 "CUDA_ERROR_OUT_OF_MEMORY"              "out of memory";
    NOT_INITIALIZED      3 "CUDA_ERROR_NOT_INITIALIZED"            "initialization error";
    DEINITIALIZED        4 "CUDA_ERROR_DEINITIALIZED"              "driver shutting down";
    DEVICE_UNAVAILABLE  46 "CUDA_ERROR_DEVICE_UNAVAILABLE"         "device is busy, unavailable or lost";
    NO_DEVICE          100 "CUDA_ERROR_NO_DEVICE"                  "no CUDA-capable device is detected";
    INVALID_DEVICE     101 "CUDA_ERROR_INVALID_DEVICE"             "invalid device ordinal";
    INVALID_IMAGE      200 "CUDA_ERROR_INVALID_IMAGE"              "device kernel image is invalid";
    INVALID_CONTEXT    201 "CUDA_ERROR_INVALID_CONTEXT"            "invalid device context";
    NO_BINARY_FOR_GPU  209 "CUDA_ERROR_NO_BINARY_FOR_GPU"          "no kernel image is available for execution on the device";
    ECC_UNCORRECTABLE  214 "CUDA_ERROR_ECC_UNCORRECTABLE"          "uncorrectable ECC error encountered";
    INVALID_PTX        218 "CUDA_ERROR_INVALID_PTX"                "a PTX JIT compilation failed";
    UNSUPPORTED_PTX    222 "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"    "the provided PTX was compiled with an unsupported toolchain";
    INVALID_SOURCE     300 "CUDA_ERROR_INVALID_SOURCE"             "device kernel source is invalid";
    FILE_NOT_FOUND     301 "CUDA_ERROR_FILE_NOT_FOUND"             "file not found";
    INVALID_HANDLE     400 "CUDA_ERROR_INVALID_HANDLE"             "invalid resource handle";
    ILLEGAL_STATE      401 "CUDA_ERROR_ILLEGAL_STATE"              "the operation cannot be performed in the present state";
    NOT_FOUND          500 "CUDA_ERROR_NOT_FOUND"                  "named symbol not found";
    NOT_READY          600 "CUDA_ERROR_NOT_READY"                  "device not ready";
    ILLEGAL_ADDRESS    700 "CUDA_ERROR_ILLEGAL_ADDRESS"            "an illegal memory access was encountered";
    OUT_OF_RESOURCES   701 "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"    "too many resources requested for launch";
    LAUNCH_TIMEOUT     702 "CUDA_ERROR_LAUNCH_TIMEOUT"             "the launch timed out and was terminated";
    CONTEXT_DESTROYED  709 "CUDA_ERROR_CONTEXT_IS_DESTROYED"       "context is destroyed";
    ALREADY_REGISTERED 712 "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" "part or all of the requested memory range is already mapped";
    NOT_REGISTERED     713 "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" "pointer does not correspond to a registered memory region";
    MISALIGNED_ADDRESS 716 "CUDA_ERROR_MISALIGNED_ADDRESS"         "misaligned address";
    LAUNCH_FAILED      719 "CUDA_ERROR_LAUNCH_FAILED"              "unspecified launch failure";
    COOPERATIVE_TOO_LARGE 720 "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" "too many blocks in cooperative launch";
    NOT_PERMITTED      800 "CUDA_ERROR_NOT_PERMITTED"              "operation not permitted";
    NOT_SUPPORTED      801 "CUDA_ERROR_NOT_SUPPORTED"              "operation not supported";
    CAPTURE_UNSUPPORTED 900 "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" "operation not permitted when stream is capturing";
    CAPTURE_INVALIDATED 901 "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" "operation failed due to a previous error during capture";
    UPDATE_FAILURE     910 "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"  "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    INVALID_CLUSTER    912 "CUDA_ERROR_INVALID_CLUSTER_SIZE"       "invalid cluster size";
    UNKNOWN            999 "CUDA_ERROR_UNKNOWN"                    "unknown error";
}

impl Code {
    /// Name and description, if the code is in the table.
    pub(crate) fn describe(self) -> Option<(&'static std::ffi::CStr, &'static std::ffi::CStr)> {
        TABLE.iter().find(|row| row.0 == self.0).map(|row| (row.1, row.2))
    }

    /// Whether a context in which it happened is lost until it is reset.
    pub(crate) fn is_sticky(self) -> bool {
        [
            Code::DEVICE_UNAVAILABLE,
            Code::ECC_UNCORRECTABLE,
            Code::ILLEGAL_ADDRESS,
            Code::LAUNCH_TIMEOUT,
            Code::MISALIGNED_ADDRESS,
            Code::LAUNCH_FAILED,
        ]
        .contains(&self)
    }
}
