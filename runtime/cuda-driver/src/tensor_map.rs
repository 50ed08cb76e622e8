//! `cuTensorMapEncodeTiled`: checks what the manual asks for, and writes a map of our own. No executor
//! here reads it yet; the checks are what a client's code is tested against.

use std::ffi::{c_uint, c_void};

use crate::call::{bytes_mut, get};
use crate::result::{Code, Done};

/// Bytes of an element, by `CUtensorMapDataType`.
const ELEMENT_BYTES: [u64; 13] = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4];

/// Bytes that a row of a box may have, by `CUtensorMapSwizzle`; 0 for any.
const SWIZZLE_BYTES: [u64; 4] = [0, 32, 64, 128];

/// Marks a map of ours.
const MAGIC: [u8; 8] = *b"EGGTMAP1";

fn check(condition: bool) -> Done {
    if condition { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

export! { TABLE;
    Context "cuTensorMapEncodeTiled" 12000 cuTensorMapEncodeTiled(
        _s, map: *mut c_void, dtype: c_uint, rank: c_uint, address: *mut c_void,
        extents: *const u64, strides: *const u64, box_extents: *const c_uint,
        element_strides: *const c_uint, interleave: c_uint, swizzle: c_uint, l2: c_uint, oob: c_uint,
    ) {
        check(map.cast::<u8>().align_offset(64) == 0)?;
        let element = *ELEMENT_BYTES.get(dtype as usize).ok_or(Code::INVALID_VALUE)?;
        let row_bytes = *SWIZZLE_BYTES.get(swizzle as usize).ok_or(Code::INVALID_VALUE)?;
        check((1..=5).contains(&rank) && interleave <= 2 && l2 <= 3 && oob <= 1)?;
        check((address as u64).is_multiple_of(16) && !address.is_null())?;
        let mut encoded = Vec::from(MAGIC);
        encoded.extend([dtype as u8, rank as u8, swizzle as u8, oob as u8, 0, 0, 0, 0]);
        encoded.extend((address as u64).to_le_bytes());
        for dim in 0..rank as usize {
            let extent = get(extents.wrapping_add(dim))?;
            check((1..=1 << 32).contains(&extent))?;
            let box_extent = get(box_extents.wrapping_add(dim))?;
            check((1..=256).contains(&box_extent))?;
            check((1..=8).contains(&get(element_strides.wrapping_add(dim))?))?;
            let box_bytes = u64::from(box_extent) * element;
            check(dim > 0 || box_bytes.is_multiple_of(16) && (row_bytes == 0 || box_bytes <= row_bytes))?;
            let stride = if dim == 0 { element } else { get(strides.wrapping_add(dim - 1))? };
            check(dim == 0 || stride.is_multiple_of(16) && stride < 1 << 40)?;
            encoded.extend(((extent - 1) as u32).to_le_bytes());
            encoded.extend((stride as u32).to_le_bytes());
            encoded.extend(((box_extent - 1) as u8).to_le_bytes());
            encoded.extend(((stride >> 32) as u8).to_le_bytes());
        }
        encoded.resize(128, 0);
        bytes_mut(map.cast(), 128)?.copy_from_slice(&encoded);
    }
}
