//! How functions are found by name and version, and how errors are described.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::call::{Export, put, text};
use crate::result::{Code, Done};
use crate::state::State;

/// `CU_GET_PROC_ADDRESS_SUCCESS`, `…_SYMBOL_NOT_FOUND`, `…_VERSION_NOT_SUFFICIENT`.
const FOUND: c_uint = 0;
const NOT_FOUND: c_uint = 1;
const TOO_OLD: c_uint = 2;

/// Every function.
pub(crate) fn all() -> impl Iterator<Item = &'static Export> {
    [
        TABLE,
        crate::attributes::TABLE,
        crate::device::TABLE,
        crate::event::TABLE,
        crate::function::TABLE,
        crate::graph::TABLE,
        crate::launch::TABLE,
        crate::memory::TABLE,
        crate::module::LOADS,
        crate::module::TABLE,
        crate::tensor_map::TABLE,
    ]
    .into_iter()
    .flatten()
}

/// The newest meaning of a name that headers of `version` know.
fn find(name: &str, version: c_int) -> Result<*const (), c_uint> {
    let named: Vec<&Export> = all().filter(|it| it.base == name || it.symbol == name).collect();
    let fitting = named.iter().filter(|it| it.since <= version).max_by_key(|it| it.since);
    match fitting {
        Some(export) => Ok(export.address),
        None if named.is_empty() => Err(NOT_FOUND),
        None => Err(TOO_OLD),
    }
}

fn lookup(name: &str, place: *mut *const c_void, version: c_int, status: *mut c_uint) -> Done {
    let found = find(name, version);
    put(place, found.map_or(std::ptr::null(), |address| address.cast()))?;
    if !status.is_null() {
        put(status, found.err().unwrap_or(FOUND))?;
    }
    found.map(drop).map_err(|_| Code::NOT_FOUND)
}

/// Text of an error; a fault of a kernel is told with kernel, line, block and thread.
fn describe(s: &State, code: u32, place: *mut *const c_char, name: bool) -> Done {
    let Some((short, long)) = Code(code).describe() else {
        put(place, std::ptr::null())?;
        return Err(Code::INVALID_VALUE);
    };
    let fault = s.fault.as_deref().filter(|fault| {
        !name && Code(code).is_sticky() && fault.to_bytes().starts_with(long.to_bytes())
    });
    put(place, if name { short } else { fault.unwrap_or(long) }.as_ptr())
}

export! { TABLE;
    Nothing "cuGetProcAddress" 11030 cuGetProcAddress(_s, name: *const c_char, place: *mut *const c_void, version: c_int, _flags: u64) {
        lookup(text(name)?, place, version, std::ptr::null_mut())?;
    }
    Nothing "cuGetProcAddress" 12000 cuGetProcAddress_v2(
        _s, name: *const c_char, place: *mut *const c_void, version: c_int, _flags: u64, status: *mut c_uint,
    ) {
        lookup(text(name)?, place, version, status)?;
    }
    Nothing "cuGetErrorName" 6000 cuGetErrorName(s, code: u32, place: *mut *const c_char) {
        describe(s, code, place, true)?;
    }
    Nothing "cuGetErrorString" 6000 cuGetErrorString(s, code: u32, place: *mut *const c_char) {
        describe(s, code, place, false)?;
    }
}
