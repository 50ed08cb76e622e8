//! Attributes and occupancy of functions.

use std::ffi::{c_int, c_uint};

use crate::call::put;
use crate::device::OPT_IN_SHARED_BYTES;
use crate::result::{Code, Done};
use crate::state::{Handle, State, to_id};

/// `CU_FUNC_ATTRIBUTE_…`.
const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
const PREFERRED_SHARED_MEMORY_CARVEOUT: c_int = 9;

impl State {
    fn static_shared_bytes(&self, function: Handle) -> Done<c_int> {
        let function = &self.functions.get(&to_id(function)).ok_or(Code::INVALID_HANDLE)?.it;
        let entry = function.module.entry(&function.entry).ok_or(Code::INVALID_HANDLE)?;
        Ok(entry.shared.iter().map(|array| array.n_bytes as c_int).sum())
    }

    /// Blocks of a multiprocessor, by shared memory and threads: registers are not allocated here.
    fn occupancy(&self, function: Handle, block: c_int, dynamic_bytes: usize) -> Done<c_int> {
        if !(1..=1024).contains(&block) {
            return Err(Code::INVALID_VALUE);
        }
        let shared_bytes = self.static_shared_bytes(function)? as usize + dynamic_bytes;
        Ok(blocks_per_sm(block as usize, shared_bytes) as c_int)
    }
}

/// Blocks of so many threads and so much shared memory that a multiprocessor holds at once.
pub(crate) fn blocks_per_sm(n_threads: usize, shared_bytes: usize) -> usize {
    (233_472 / (shared_bytes + 1024)).min(2048 / n_threads.next_multiple_of(32)).min(32)
}

export! { TABLE;
    Context "cuFuncGetAttribute" 2020 cuFuncGetAttribute(s, value: *mut c_int, attribute: c_int, function: Handle) {
        let shared_bytes = s.static_shared_bytes(function)?;
        let it = &s.functions[&to_id(function)].it;
        let module = s.modules.values().find(|module| std::sync::Arc::ptr_eq(&module.it.module, &it.module));
        put(value, match attribute {
            0 => 1024,
            1 => shared_bytes,
            2..=4 | 7 => 0,
            5 => module.map_or(0, |module| module.it.ptx_version),
            6 => s.config.sm as c_int,
            MAX_DYNAMIC_SHARED_SIZE_BYTES => it.dynamic_shared_bytes,
            PREFERRED_SHARED_MEMORY_CARVEOUT => it.carveout,
            10..=15 => 0,
            _ => return Err(Code::INVALID_VALUE),
        })?;
    }
    Context "cuFuncSetAttribute" 9000 cuFuncSetAttribute(s, function: Handle, attribute: c_int, value: c_int) {
        let shared_bytes = s.static_shared_bytes(function)?;
        let it = &mut s.functions.get_mut(&to_id(function)).ok_or(Code::INVALID_HANDLE)?.it;
        match attribute {
            MAX_DYNAMIC_SHARED_SIZE_BYTES if (0..=OPT_IN_SHARED_BYTES - shared_bytes).contains(&value) => {
                it.dynamic_shared_bytes = value;
            }
            PREFERRED_SHARED_MEMORY_CARVEOUT if (-1..=100).contains(&value) => it.carveout = value,
            _ => return Err(Code::INVALID_VALUE),
        }
    }
    Context "cuFuncSetCacheConfig" 3000 cuFuncSetCacheConfig(s, function: Handle, _config: c_uint) {
        s.static_shared_bytes(function)?;
    }
    Context "cuFuncLoad" 12040 cuFuncLoad(s, function: Handle) {
        s.static_shared_bytes(function)?;
    }
    Context "cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050 cuOccupancyMaxActiveBlocksPerMultiprocessor(
        s, n_blocks: *mut c_int, function: Handle, block: c_int, dynamic_bytes: usize,
    ) {
        put(n_blocks, s.occupancy(function, block, dynamic_bytes)?)?;
    }
    Context "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        s, n_blocks: *mut c_int, function: Handle, block: c_int, dynamic_bytes: usize, _flags: c_uint,
    ) {
        put(n_blocks, s.occupancy(function, block, dynamic_bytes)?)?;
    }
}
