//! Pinned host memory for copies that do not wait.
//!
//! Pieces are handed out one behind another and are all free again after the stream was waited for.

use super::context::twice;
use super::driver::Failure;

/// More than this is copied from and to pageable memory: pinned memory is taken from everybody.
const MOST_BYTES: usize = 256 << 20;
const ALIGN_BYTES: usize = 64;

/// See the [module](self).
pub(super) struct Staging {
    host: *mut u8,
    capacity_bytes: usize,
    used_bytes: usize,
}

impl Staging {
    /// Without memory.
    pub(super) fn new() -> Self {
        Self { host: std::ptr::null_mut(), capacity_bytes: 0, used_bytes: 0 }
    }

    /// Whether [`reserve`](Self::reserve) would do nothing.
    pub(super) fn holds(&self, n_bytes: usize) -> bool {
        n_bytes.min(MOST_BYTES) <= self.capacity_bytes
    }

    /// Grows to at least `n_bytes`, if that is reasonable. No copy may be in flight.
    pub(super) fn reserve(&mut self, n_bytes: usize) -> Result<(), Failure> {
        if self.holds(n_bytes) {
            return Ok(());
        }
        self.free();
        let n_bytes = n_bytes.min(MOST_BYTES).next_multiple_of(4096);
        let mut host = std::ptr::null_mut();
        driver!(cuMemHostAlloc(&mut host, n_bytes, 0), " of {n_bytes} bytes")?;
        (self.host, self.capacity_bytes) = (host.cast(), n_bytes);
        Ok(())
    }

    /// A piece of `n_bytes`, if one is left.
    pub(super) fn take(&mut self, n_bytes: usize) -> Option<*mut u8> {
        let end = self.used_bytes.checked_add(n_bytes)?;
        if end > self.capacity_bytes || n_bytes == 0 {
            return None;
        }
        let piece = self.host.wrapping_add(self.used_bytes);
        self.used_bytes = end.next_multiple_of(ALIGN_BYTES);
        Some(piece)
    }

    /// Everything was copied: all pieces are free.
    pub(super) fn clear(&mut self) {
        self.used_bytes = 0;
    }

    /// Gives the memory back; whether that worked.
    pub(super) fn free(&mut self) -> bool {
        let host = std::mem::replace(&mut self.host, std::ptr::null_mut());
        (self.capacity_bytes, self.used_bytes) = (0, 0);
        host.is_null() || twice(|| driver!(cuMemFreeHost(host.cast())))
    }
}
