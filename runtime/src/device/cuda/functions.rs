//! The driver functions that are called, one row each, with results that are numbers.
//!
//! cudarc declares results as an enum, so a code that a newer driver has and that enum has not would be
//! undefined behaviour; of cudarc only the library, the handles, the structures and names of numbers
//! are used. A function is found when it is first called; [`require`](super::driver::require) has looked
//! for all of [`SYMBOLS`] before.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent,
    CUfunction, CUfunction_attribute, CUgraph, CUgraphExec, CUgraphNode, CUjit_option,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUmodule, CUstream, CUtensorMap,
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle, CUuuid, culib,
};

macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)+) => {
        /// Every driver function that is called.
        pub(super) const SYMBOLS: &[&str] = &[$(stringify!($name)),+];
        $(
            /// The driver's function of this name.
            ///
            /// # Safety
            ///
            /// As the driver's manual says; the library is there and has the function.
            #[allow(non_snake_case, reason = "the driver's names")]
            #[allow(clippy::too_many_arguments, reason = "the driver's arguments")]
            pub(super) unsafe fn $name($($arg: $ty),*) -> u32 {
                type Function = unsafe extern "C" fn($($ty),*) -> u32;
                static FUNCTION: OnceLock<Function> = OnceLock::new();
                let function = FUNCTION.get_or_init(|| {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the symbol is the driver's function, which has these arguments.
                    let found = unsafe { culib().get::<Function>(name.as_bytes()) };
                    *found.expect("`require` has looked for every function")
                });
                // SAFETY: the caller's.
                unsafe { function($($arg),*) }
            }
        )+
    };
}

#[rustfmt::skip] // One function per row.
functions! {
    cuCtxSetCurrent(ctx: CUcontext);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxReset_v2(device: CUdevice);
    cuDevicePrimaryCtxRetain(ctx: *mut CUcontext, device: CUdevice);
    cuDeviceTotalMem_v2(n_bytes: *mut usize, device: CUdevice);
    cuDriverGetVersion(version: *mut c_int);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventElapsedTime_v2(ms: *mut f32, start: CUevent, end: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
    cuGetErrorName(code: u32, name: *mut *const c_char);
    cuGetErrorString(code: u32, text: *mut *const c_char);
    cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, n_before: usize, params: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    cuGraphDestroy(graph: CUgraph);
    cuGraphExecDestroy(exec: CUgraphExec);
    cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    cuGraphKernelNodeSetAttribute(node: CUgraphNode, attribute: CUlaunchAttributeID, value: *const CUlaunchAttributeValue);
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    cuInit(flags: c_uint);
    cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void);
    cuMemAlloc_v2(ptr: *mut CUdeviceptr, n_bytes: usize);
    cuMemFreeHost(ptr: *mut c_void);
    cuMemFree_v2(ptr: CUdeviceptr);
    cuMemHostAlloc(ptr: *mut *mut c_void, n_bytes: usize, flags: c_uint);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, n_bytes: usize, stream: CUstream);
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, n_bytes: usize, stream: CUstream);
    cuMemsetD8Async(at: CUdeviceptr, value: c_uchar, n_bytes: usize, stream: CUstream);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, n_options: c_uint, options: *mut CUjit_option, values: *mut *mut c_void);
    cuModuleUnload(module: CUmodule);
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuTensorMapEncodeTiled(map: *mut CUtensorMap, dtype: CUtensorMapDataType, rank: u32, address: *mut c_void, extents: *const u64, strides: *const u64, box_extents: *const u32, element_strides: *const u32, interleave: CUtensorMapInterleave, swizzle: CUtensorMapSwizzle, l2: CUtensorMapL2promotion, oob: CUtensorMapFloatOOBfill);
}

/// Numbers of the results that are told apart here, by the driver's names.
macro_rules! codes {
    ($($name:ident)+) => {
        $(
            #[allow(missing_docs, reason = "the driver's names")]
            pub(super) const $name: u32 = cudarc::driver::sys::CUresult::$name as u32;
        )+
    };
}

codes! {
    CUDA_SUCCESS CUDA_ERROR_INVALID_VALUE CUDA_ERROR_OUT_OF_MEMORY CUDA_ERROR_STUB_LIBRARY CUDA_ERROR_DEVICE_UNAVAILABLE
    CUDA_ERROR_NO_DEVICE CUDA_ERROR_INVALID_IMAGE CUDA_ERROR_NO_BINARY_FOR_GPU CUDA_ERROR_ECC_UNCORRECTABLE
    CUDA_ERROR_INVALID_PTX CUDA_ERROR_NVLINK_UNCORRECTABLE CUDA_ERROR_UNSUPPORTED_PTX_VERSION CUDA_ERROR_CONTAINED
    CUDA_ERROR_INVALID_SOURCE CUDA_ERROR_NOT_FOUND CUDA_ERROR_ILLEGAL_ADDRESS CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    CUDA_ERROR_LAUNCH_TIMEOUT CUDA_ERROR_CONTEXT_IS_DESTROYED CUDA_ERROR_ASSERT CUDA_ERROR_HARDWARE_STACK_ERROR
    CUDA_ERROR_ILLEGAL_INSTRUCTION CUDA_ERROR_MISALIGNED_ADDRESS CUDA_ERROR_INVALID_ADDRESS_SPACE CUDA_ERROR_INVALID_PC
    CUDA_ERROR_LAUNCH_FAILED CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE CUDA_ERROR_NOT_SUPPORTED
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH CUDA_ERROR_INVALID_CLUSTER_SIZE CUDA_ERROR_UNKNOWN
}
