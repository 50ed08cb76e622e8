//! Tensor maps: what the copy engine of sm_90 and later is told about a tensor. They hold an address, so
//! they are encoded when an engine is loaded.

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};
use eggine_ir::DType;

use super::CudaDevice;
use crate::device::{DeviceError, DevicePtr};

/// How the rows of a box lie in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swizzle {
    /// As they are.
    None,
    /// Chunks of 16 bytes are permuted within 32 bytes.
    Bytes32,
    /// … within 64 bytes.
    Bytes64,
    /// … within 128 bytes.
    Bytes128,
}

/// A tensor and the box of it that one copy moves. All lists are innermost dimension first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapSpec {
    /// Element type: a float or integer of 1 to 8 bytes.
    pub dtype: DType,
    /// First element; a multiple of 16.
    pub address: DevicePtr,
    /// Elements of each dimension; 1 to 5 dimensions.
    pub extents: Vec<u64>,
    /// Bytes from one index to the next of every dimension but the first, multiples of 16.
    pub strides_bytes: Vec<u64>,
    /// Elements of the box in each dimension, at most 256.
    pub box_extents: Vec<u32>,
    /// Layout of the box.
    pub swizzle: Swizzle,
}

/// An encoded map, to be passed to a kernel by value.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap(pub [u8; 128]);

impl CudaDevice {
    /// Encodes a tensor map.
    ///
    /// # Errors
    ///
    /// If the driver refuses the tensor: alignment, strides, or the size of the box.
    pub fn encode_tensor_map(&mut self, spec: &TensorMapSpec) -> Result<TensorMap, DeviceError> {
        let rank = spec.extents.len();
        let refuse = |reason: &str| DeviceError::Load {
            reason: format!("no tensor map of {:?}: {reason}", spec.extents),
        };
        if rank == 0 || spec.box_extents.len() != rank || spec.strides_bytes.len() + 1 != rank {
            return Err(refuse("extents, strides and box are of different ranks"));
        }
        use CUtensorMapDataType::*;
        let dtype = match spec.dtype {
            DType::F32 => CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            DType::F16 => CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            DType::BF16 => CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            DType::I8 | DType::U8 => CU_TENSOR_MAP_DATA_TYPE_UINT8,
            DType::I32 => CU_TENSOR_MAP_DATA_TYPE_INT32,
            DType::I64 => CU_TENSOR_MAP_DATA_TYPE_INT64,
            other => return Err(refuse(&format!("the copy engine has no {other}"))),
        };
        let swizzle = match spec.swizzle {
            Swizzle::None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            Swizzle::Bytes32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            Swizzle::Bytes64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            Swizzle::Bytes128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let element_strides = vec![1u32; rank];
        let live = self.live()?;
        let mut map = TensorMap([0; 128]);
        let place: *mut CUtensorMap = std::ptr::from_mut(&mut map).cast();
        driver!(
            cuTensorMapEncodeTiled(
                place,
                dtype,
                rank as u32,
                spec.address.0 as *mut c_void,
                spec.extents.as_ptr(),
                spec.strides_bytes.as_ptr(),
                spec.box_extents.as_ptr(),
                element_strides.as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            ),
            " of extents {:?}, strides {:?}, box {:?}",
            spec.extents,
            spec.strides_bytes,
            spec.box_extents
        )
        .map_err(|failure| live.report(failure))?;
        Ok(map)
    }
}
