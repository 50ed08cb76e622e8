//! Initialisation, devices and contexts.

use std::ffi::{c_char, c_int, c_uint};

use crate::call::{bytes_mut, put};
use crate::result::{Code, Done};
use crate::state::{Context, Handle, State, to_handle, to_id};

/// Values of `CUdevice_attribute`; what is not here is 0. Sizes are those of the H200's architecture, so
/// that launches which a GPU refuses are refused.
#[rustfmt::skip] // One attribute per row.
const ATTRIBUTES: &[(c_int, c_int)] = &[
    (1, 1024),              // MAX_THREADS_PER_BLOCK
    (2, 1024), (3, 1024), (4, 64), // MAX_BLOCK_DIM
    (5, 0x7fff_ffff), (6, 65535), (7, 65535), // MAX_GRID_DIM
    (8, 49152),             // MAX_SHARED_MEMORY_PER_BLOCK
    (9, 65536),             // TOTAL_CONSTANT_MEMORY
    (10, 32),               // WARP_SIZE
    (11, 0x7fff_ffff),      // MAX_PITCH
    (12, 65536),            // MAX_REGISTERS_PER_BLOCK
    (13, 6_000_000),        // CLOCK_RATE, kHz: more than any processor has, so that bounds of time hold
    (14, 512),              // TEXTURE_ALIGNMENT
    (15, 1),                // GPU_OVERLAP
    (31, 1),                // CONCURRENT_KERNELS
    (36, 1_000_000),        // MEMORY_CLOCK_RATE
    (37, 64),               // GLOBAL_MEMORY_BUS_WIDTH
    (38, 50 << 20),         // L2_CACHE_SIZE
    (39, 2048),             // MAX_THREADS_PER_MULTIPROCESSOR
    (40, 1),                // ASYNC_ENGINE_COUNT
    (78, 1),                // STREAM_PRIORITIES_SUPPORTED
    (81, 233_472),          // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    (82, 65536),            // MAX_REGISTERS_PER_MULTIPROCESSOR
    (97, OPT_IN_SHARED_BYTES), // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    (95, 1),                // COOPERATIVE_LAUNCH
    (99, 1),                // HOST_REGISTER_SUPPORTED
    (106, 32),              // MAX_BLOCKS_PER_MULTIPROCESSOR
    (111, 1024),            // RESERVED_SHARED_MEMORY_PER_BLOCK
    (115, 1),               // MEMORY_POOLS_SUPPORTED
];

/// Shared memory of a block, when asked for: 227 KB.
pub(crate) const OPT_IN_SHARED_BYTES: c_int = 232_448;

/// Attributes end somewhere near here; beyond it is an error.
const N_ATTRIBUTES: c_int = 160;

impl State {
    /// A device by its handle, which is its ordinal.
    fn device(&self, device: c_int) -> Done<usize> {
        let index = usize::try_from(device).map_err(|_| Code::INVALID_DEVICE)?;
        if index < self.primaries.len() { Ok(index) } else { Err(Code::INVALID_DEVICE) }
    }

    fn context(&self, ctx: Handle) -> Done<u64> {
        let id = to_id(ctx);
        if self.contexts.contains_key(&id) { Ok(id) } else { Err(Code::INVALID_CONTEXT) }
    }

    fn name(&self) -> String {
        let simd = match eggine_cpu::Simd::detect() {
            eggine_cpu::Simd::Avx512 => "AVX-512",
            eggine_cpu::Simd::Avx2 => "AVX2",
            eggine_cpu::Simd::Portable => "portable",
        };
        format!("Eggine CPU driver ({simd}, {} threads)", self.config.n_threads)
    }
}

export! { TABLE;
    Nothing "cuInit" 2000 cuInit(s, flags: c_uint) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if s.primaries.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        s.is_initialised = true;
    }
    Nothing "cuDriverGetVersion" 2020 cuDriverGetVersion(s, version: *mut c_int) {
        put(version, s.config.version)?;
    }
    Init "cuDeviceGet" 2000 cuDeviceGet(s, device: *mut c_int, ordinal: c_int) {
        s.device(ordinal)?;
        put(device, ordinal)?;
    }
    Init "cuDeviceGetCount" 2000 cuDeviceGetCount(s, count: *mut c_int) {
        put(count, s.primaries.len() as c_int)?;
    }
    Init "cuDeviceGetName" 2000 cuDeviceGetName(s, name: *mut c_char, len: c_int, device: c_int) {
        s.device(device)?;
        let len = usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?;
        let place = bytes_mut(name.cast(), len)?;
        let text = s.name();
        let n_bytes = text.len().min(len.saturating_sub(1));
        place[..n_bytes].copy_from_slice(&text.as_bytes()[..n_bytes]);
        place[n_bytes..].fill(0);
    }
    Init "cuDeviceGetUuid" 9020 cuDeviceGetUuid(s, uuid: *mut [u8; 16], device: c_int) {
        let index = s.device(device)?;
        put(uuid, b"eggine-cpu-driv\0".map(|it| it ^ index as u8))?;
    }
    Init "cuDeviceGetUuid" 11040 cuDeviceGetUuid_v2(s, uuid: *mut [u8; 16], device: c_int) {
        let index = s.device(device)?;
        put(uuid, b"eggine-cpu-driv\0".map(|it| it ^ index as u8))?;
    }
    Init "cuDeviceTotalMem" 3020 cuDeviceTotalMem_v2(s, n_bytes: *mut usize, device: c_int) {
        s.device(device)?;
        put(n_bytes, s.config.memory_bytes)?;
    }
    Init "cuDeviceGetAttribute" 2000 cuDeviceGetAttribute(s, value: *mut c_int, attribute: c_int, device: c_int) {
        let index = s.device(device)?;
        if !(1..=N_ATTRIBUTES).contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        put(value, match attribute {
            16 => s.config.n_threads as c_int,
            33 => index as c_int + 1, // PCI_BUS_ID
            120 => c_int::from(s.config.sm >= 90), // CLUSTER_LAUNCH
            75 => (s.config.sm / 10) as c_int,
            76 => (s.config.sm % 10) as c_int,
            _ => ATTRIBUTES.iter().find(|row| row.0 == attribute).map_or(0, |row| row.1),
        })?;
    }
    Init "cuDevicePrimaryCtxRetain" 7000 cuDevicePrimaryCtxRetain(s, ctx: *mut Handle, device: c_int) {
        let index = s.device(device)?;
        let id = s.primaries[index].id;
        put(ctx, to_handle(id))?;
        s.primaries[index].n_retained += 1;
        s.contexts.entry(id).or_insert(Context { device: index, is_primary: true, lost: None });
    }
    Init "cuDevicePrimaryCtxRelease" 11000 cuDevicePrimaryCtxRelease_v2(s, device: c_int) {
        let index = s.device(device)?;
        let primary = &mut s.primaries[index];
        if primary.n_stale > 0 {
            primary.n_stale -= 1;
            return Ok(());
        }
        primary.n_retained = primary.n_retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        if primary.n_retained == 0 {
            let id = primary.id;
            s.end_context(id);
        }
    }
    Init "cuDevicePrimaryCtxReset" 11000 cuDevicePrimaryCtxReset_v2(s, device: c_int) {
        let index = s.device(device)?;
        let primary = &mut s.primaries[index];
        primary.n_stale += primary.n_retained;
        primary.n_retained = 0;
        let id = primary.id;
        s.end_context(id);
    }
    Init "cuDevicePrimaryCtxGetState" 7000 cuDevicePrimaryCtxGetState(s, device: c_int, flags: *mut c_uint, active: *mut c_int) {
        let primary = s.primaries[s.device(device)?];
        put(flags, primary.flags)?;
        put(active, c_int::from(primary.n_retained > 0))?;
    }
    Init "cuDevicePrimaryCtxSetFlags" 11000 cuDevicePrimaryCtxSetFlags_v2(s, device: c_int, flags: c_uint) {
        let index = s.device(device)?;
        s.primaries[index].flags = flags;
    }
    Init "cuCtxCreate" 3020 cuCtxCreate_v2(s, ctx: *mut Handle, flags: c_uint, device: c_int) {
        create(s, ctx, flags, device)?;
    }
    Init "cuCtxCreate" 12050 cuCtxCreate_v4(s, ctx: *mut Handle, _params: Handle, flags: c_uint, device: c_int) {
        create(s, ctx, flags, device)?;
    }
    Init "cuCtxDestroy" 4000 cuCtxDestroy_v2(s, ctx: Handle) {
        let id = s.context(ctx)?;
        if s.contexts[&id].is_primary {
            return Err(Code::INVALID_CONTEXT);
        }
        if s.current() == Ok(id) {
            s.set_current(None);
        }
        s.end_context(id);
    }
    Init "cuCtxSetCurrent" 4000 cuCtxSetCurrent(s, ctx: Handle) {
        let id = if ctx.is_null() { None } else { Some(s.context(ctx)?) };
        s.set_current(id);
    }
    Init "cuCtxGetCurrent" 4000 cuCtxGetCurrent(s, ctx: *mut Handle) {
        put(ctx, s.current().map_or(std::ptr::null_mut(), to_handle))?;
    }
    Init "cuCtxPushCurrent" 4000 cuCtxPushCurrent_v2(s, ctx: Handle) {
        let id = s.context(ctx)?;
        s.push_current(id);
    }
    Init "cuCtxPopCurrent" 4000 cuCtxPopCurrent_v2(s, ctx: *mut Handle) {
        let id = s.pop_current()?;
        if !ctx.is_null() {
            put(ctx, to_handle(id))?;
        }
    }
    Context "cuCtxGetDevice" 2000 cuCtxGetDevice(s, device: *mut c_int) {
        let id = s.current()?;
        put(device, s.contexts[&id].device as c_int)?;
    }
    Context "cuCtxGetFlags" 7000 cuCtxGetFlags(_s, flags: *mut c_uint) {
        put(flags, 0)?;
    }
    Context "cuCtxGetApiVersion" 3020 cuCtxGetApiVersion(s, _ctx: Handle, version: *mut c_uint) {
        put(version, s.config.version as c_uint)?;
    }
    Context "cuCtxGetStreamPriorityRange" 5050 cuCtxGetStreamPriorityRange(_s, least: *mut c_int, greatest: *mut c_int) {
        if !least.is_null() {
            put(least, 0)?;
        }
        if !greatest.is_null() {
            put(greatest, 0)?;
        }
    }
    Context "cuCtxSynchronize" 2000 cuCtxSynchronize(s) {
        s.stats.n_synchronisations += 1;
        if s.streams.values().any(|stream| stream.it.capture.is_some()) {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
    }
}

fn create(s: &mut State, ctx: *mut Handle, _flags: c_uint, device: c_int) -> Done {
    let device = s.device(device)?;
    let id = s.new_id();
    put(ctx, to_handle(id))?;
    s.contexts.insert(id, Context { device, is_primary: false, lost: None });
    s.push_current(id);
    Ok(())
}
