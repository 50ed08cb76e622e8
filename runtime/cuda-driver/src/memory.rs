//! Device memory, pinned host memory, copies and fills. Device addresses are those of the executor's
//! memory, where every allocation lies alone: a range that leaves its allocation is an error.

use std::alloc::Layout;
use std::ffi::{c_int, c_uint, c_void};

use eggine_cpu::MemoryError;

use crate::call::{bytes, bytes_mut, put};
use crate::graph::Op;
use crate::result::{Code, Done};
use crate::state::{Handle, HostMemory, Owned, State};

/// An allocation's base is a multiple of this, which is also the most that one may have.
const SPACING_BYTES: u64 = 1 << 36;

fn code(err: MemoryError) -> Code {
    match err {
        MemoryError::OutOfMemory { .. } => Code::OUT_OF_MEMORY,
        _ => Code::INVALID_VALUE,
    }
}

impl State {
    fn alloc(&mut self, n_bytes: usize) -> Done<u64> {
        if n_bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let used: usize = self.allocations.values().map(|it| it.it).sum();
        if n_bytes > self.config.memory_bytes.saturating_sub(used) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let ctx = self.current()?;
        let base = self.memory.alloc(n_bytes).map_err(code)?;
        self.allocations.insert(base, Owned { ctx, it: n_bytes });
        self.stats.n_allocations += 1;
        Ok(base)
    }

    fn free(&mut self, base: u64) -> Done {
        if base == 0 {
            return Ok(());
        }
        self.allocations.remove(&base).ok_or(Code::INVALID_VALUE)?;
        self.memory.free(base).map_err(code)
    }

    /// Refuses what a capturing stream cannot hold.
    pub(crate) fn not_capturing(&self) -> Done {
        match self.streams.values().any(|stream| stream.it.capture.is_some()) {
            true => Err(Code::CAPTURE_UNSUPPORTED),
            false => Ok(()),
        }
    }

    /// Copies or fills now; kernels are in `launch.rs`.
    pub(crate) fn transfer(&mut self, op: &Op) -> Done {
        match *op {
            Op::ToDevice { to, from, n_bytes } => {
                self.stats.n_copies_to_device += 1;
                self.stats.bytes_to_device += n_bytes as u64;
                self.memory.write(to, bytes(from, n_bytes)?).map_err(code)
            }
            Op::ToHost { to, from, n_bytes } => {
                self.stats.n_copies_to_host += 1;
                self.stats.bytes_to_host += n_bytes as u64;
                self.memory.read(from, bytes_mut(to, n_bytes)?).map_err(code)
            }
            Op::OnDevice { to, from, n_bytes } => {
                let mut buffer = vec![0; n_bytes];
                self.memory.read(from, &mut buffer).map_err(code)?;
                self.memory.write(to, &buffer).map_err(code)
            }
            Op::Fill { at, value, width, count } => {
                let pattern = value.to_le_bytes();
                if width == 1 || pattern[..width].iter().all(|&byte| byte == pattern[0]) {
                    return self.memory.fill(at, pattern[0], width * count).map_err(code);
                }
                let fill: Vec<u8> =
                    pattern[..width].iter().copied().cycle().take(width * count).collect();
                self.memory.write(at, &fill).map_err(code)
            }
            Op::Kernel(_) => Err(Code::INVALID_VALUE),
        }
    }
}

export! { TABLE;
    Context "cuMemAlloc" 3020 cuMemAlloc_v2(s, ptr: *mut u64, n_bytes: usize) {
        s.not_capturing()?;
        let base = s.alloc(n_bytes)?;
        put(ptr, base)?;
    }
    Context "cuMemAllocAsync" 11020 cuMemAllocAsync(s, ptr: *mut u64, n_bytes: usize, stream: Handle) {
        s.stream(stream)?;
        s.not_capturing()?;
        let base = s.alloc(n_bytes)?;
        put(ptr, base)?;
    }
    Context "cuMemFree" 3020 cuMemFree_v2(s, ptr: u64) {
        s.free(ptr)?;
    }
    Context "cuMemFreeAsync" 11020 cuMemFreeAsync(s, ptr: u64, stream: Handle) {
        s.stream(stream)?;
        s.free(ptr)?;
    }
    Context "cuMemGetInfo" 3020 cuMemGetInfo_v2(s, free: *mut usize, total: *mut usize) {
        let used: usize = s.allocations.values().map(|it| it.it).sum();
        put(free, s.config.memory_bytes.saturating_sub(used))?;
        put(total, s.config.memory_bytes)?;
    }
    Context "cuMemGetAddressRange" 3020 cuMemGetAddressRange_v2(s, base: *mut u64, n_bytes: *mut usize, ptr: u64) {
        let found = ptr / SPACING_BYTES * SPACING_BYTES;
        let size = s.allocations.get(&found).ok_or(Code::INVALID_VALUE)?.it;
        if ptr - found >= size as u64 {
            return Err(Code::INVALID_VALUE);
        }
        if !base.is_null() {
            put(base, found)?;
        }
        if !n_bytes.is_null() {
            put(n_bytes, size)?;
        }
    }
    Context "cuMemHostAlloc" 2020 cuMemHostAlloc(s, ptr: *mut *mut c_void, n_bytes: usize, _flags: c_uint) {
        host_alloc(s, ptr, n_bytes)?;
    }
    Context "cuMemAllocHost" 3020 cuMemAllocHost_v2(s, ptr: *mut *mut c_void, n_bytes: usize) {
        host_alloc(s, ptr, n_bytes)?;
    }
    Context "cuMemFreeHost" 2000 cuMemFreeHost(s, ptr: *mut c_void) {
        match s.host.get(&(ptr as usize)) {
            Some(Owned { it: HostMemory::Allocated(_), .. }) => s.free_host(ptr as usize),
            _ => return Err(Code::INVALID_VALUE),
        }
    }
    Context "cuMemHostRegister" 6050 cuMemHostRegister_v2(s, ptr: *mut c_void, n_bytes: usize, _flags: c_uint) {
        if ptr.is_null() || n_bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if s.host.contains_key(&(ptr as usize)) {
            return Err(Code::ALREADY_REGISTERED);
        }
        let ctx = s.current()?;
        s.host.insert(ptr as usize, Owned { ctx, it: HostMemory::Registered });
    }
    Context "cuMemHostUnregister" 4000 cuMemHostUnregister(s, ptr: *mut c_void) {
        match s.host.get(&(ptr as usize)) {
            Some(Owned { it: HostMemory::Registered, .. }) => s.free_host(ptr as usize),
            _ => return Err(Code::NOT_REGISTERED),
        }
    }
    Context "cuMemcpyHtoD" 3020 cuMemcpyHtoD_v2(s, to: u64, from: *const u8, n_bytes: usize) {
        s.not_capturing()?;
        s.stats.n_synchronisations += 1;
        s.transfer(&Op::ToDevice { to, from, n_bytes })?;
    }
    Context "cuMemcpyDtoH" 3020 cuMemcpyDtoH_v2(s, to: *mut u8, from: u64, n_bytes: usize) {
        s.not_capturing()?;
        s.stats.n_synchronisations += 1;
        s.transfer(&Op::ToHost { to, from, n_bytes })?;
    }
    Context "cuMemcpyDtoD" 3020 cuMemcpyDtoD_v2(s, to: u64, from: u64, n_bytes: usize) {
        s.not_capturing()?;
        s.transfer(&Op::OnDevice { to, from, n_bytes })?;
    }
    Context "cuMemcpyHtoDAsync" 3020 cuMemcpyHtoDAsync_v2(s, to: u64, from: *const u8, n_bytes: usize, stream: Handle) {
        s.submit(stream, Op::ToDevice { to, from, n_bytes })?;
    }
    Context "cuMemcpyDtoHAsync" 3020 cuMemcpyDtoHAsync_v2(s, to: *mut u8, from: u64, n_bytes: usize, stream: Handle) {
        s.submit(stream, Op::ToHost { to, from, n_bytes })?;
    }
    Context "cuMemcpyDtoDAsync" 3020 cuMemcpyDtoDAsync_v2(s, to: u64, from: u64, n_bytes: usize, stream: Handle) {
        s.submit(stream, Op::OnDevice { to, from, n_bytes })?;
    }
    Context "cuMemsetD8" 3020 cuMemsetD8_v2(s, at: u64, value: u8, count: usize) {
        s.not_capturing()?;
        s.transfer(&Op::Fill { at, value: value.into(), width: 1, count })?;
    }
    Context "cuMemsetD16" 3020 cuMemsetD16_v2(s, at: u64, value: u16, count: usize) {
        s.not_capturing()?;
        s.transfer(&Op::Fill { at, value: value.into(), width: 2, count })?;
    }
    Context "cuMemsetD32" 3020 cuMemsetD32_v2(s, at: u64, value: u32, count: usize) {
        s.not_capturing()?;
        s.transfer(&Op::Fill { at, value, width: 4, count })?;
    }
    Context "cuMemsetD8Async" 3020 cuMemsetD8Async(s, at: u64, value: u8, count: usize, stream: Handle) {
        s.submit(stream, Op::Fill { at, value: value.into(), width: 1, count })?;
    }
    Context "cuMemsetD32Async" 3020 cuMemsetD32Async(s, at: u64, value: u32, count: usize, stream: Handle) {
        s.submit(stream, Op::Fill { at, value, width: 4, count })?;
    }
    Context "cuPointerGetAttribute" 4000 cuPointerGetAttribute(s, data: *mut c_void, attribute: c_int, ptr: u64) {
        let base = ptr / SPACING_BYTES * SPACING_BYTES;
        let owner = s.allocations.get(&base).ok_or(Code::INVALID_VALUE)?.ctx;
        match attribute {
            1 => put(data.cast(), crate::state::to_handle(owner))?,
            2 => put(data.cast::<c_uint>(), 2)?, // MEMORY_TYPE: device
            3 => put(data.cast::<u64>(), ptr)?,
            9 => put(data.cast::<c_int>(), s.contexts[&owner].device as c_int)?,
            _ => return Err(Code::NOT_SUPPORTED),
        }
    }
}

fn host_alloc(s: &mut State, ptr: *mut *mut c_void, n_bytes: usize) -> Done {
    let ctx = s.current()?;
    if n_bytes == 0 || ptr.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let layout = Layout::from_size_align(n_bytes, 4096).map_err(|_| Code::OUT_OF_MEMORY)?;
    // SAFETY: the size is not zero.
    let host = unsafe { std::alloc::alloc_zeroed(layout) };
    if host.is_null() {
        return Err(Code::OUT_OF_MEMORY);
    }
    s.host.insert(host as usize, Owned { ctx, it: HostMemory::Allocated(layout) });
    s.stats.n_host_allocations += 1;
    put(ptr, host.cast())
}
