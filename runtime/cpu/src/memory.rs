//! Device memory: allocations at spaced virtual addresses, so that an overflow of one never lands in
//! another, and the allocation of an address is found by a shift.
//!
//! Invariant: an allocation's base is `(slot + 1) << 36`; host storage of owned allocations is aligned to
//! [`ALIGN_BYTES`], and so are the virtual addresses.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use rayon::ThreadPool;
use thiserror::Error;

use crate::check::Initialised;
use crate::exec::Scratch;

/// Alignment of an owned allocation, on the host and on the device.
pub const ALIGN_BYTES: usize = 64;
/// Bits of an address below the slot.
pub(crate) const SLOT_SHIFT: u32 = 36;
/// Bytes behind an owned allocation that may be read but belong to nobody: vector loads need no tail.
const TAIL_BYTES: usize = 64;

/// Why a memory operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The host has no memory left, or the size is beyond 64 GiB.
    #[error("cannot allocate {n_bytes} bytes")]
    OutOfMemory {
        /// What was asked for.
        n_bytes: usize,
    },
    /// The range does not lie in one allocation.
    #[error("{n_bytes} bytes at {address:#x} are not in an allocation")]
    Range {
        /// First address.
        address: u64,
        /// Size of the range.
        n_bytes: usize,
    },
    /// The allocation is a read-only mapping.
    #[error("the allocation at {address:#x} is read-only")]
    ReadOnly {
        /// First address.
        address: u64,
    },
}

/// Where an allocation's bytes are.
enum Storage {
    /// Ours.
    Owned(Layout),
    /// Somebody's read-only bytes, kept alive here.
    Mapped(
        #[allow(dead_code, reason = "keeps the mapping alive")] Arc<dyn AsRef<[u8]> + Send + Sync>,
    ),
}

struct Allocation {
    host: NonNull<u8>,
    n_bytes: usize,
    storage: Storage,
    initialised: Initialised,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Storage::Owned(layout) = self.storage {
            // SAFETY: `host` was allocated with this layout and is freed once.
            unsafe { dealloc(self.host.as_ptr(), layout) }
        }
    }
}

/// What a launch needs to know about an allocation. An empty slot has `n_bytes` 0.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) host: *mut u8,
    pub(crate) n_bytes: u64,
    pub(crate) writable: bool,
}

/// Device memory.
///
/// Launches and host accesses exclude each other by a lock. Within a launch the blocks access memory as
/// the kernel says, so a kernel whose blocks race has the unordered results that it would have on a GPU.
pub struct Memory {
    slots: Vec<Option<Allocation>>,
    /// Held during launches, host reads and writes.
    pub(crate) busy: Mutex<()>,
    /// Warp registers and the like, kept from launch to launch.
    pub(crate) scratch: Mutex<Vec<Scratch>>,
    /// The pool of the last launch with more than one thread.
    pub(crate) pool: Mutex<Option<Arc<ThreadPool>>>,
}

// SAFETY: the raw pointers are to memory that `Memory` owns or keeps alive; accesses through a shared
// reference (reads and launches) are serialised by `busy`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// No allocations.
    pub fn new() -> Self {
        Memory {
            slots: Vec::new(),
            busy: Mutex::new(()),
            scratch: Mutex::new(Vec::new()),
            pool: Mutex::new(None),
        }
    }

    /// Allocates `n_bytes`, at least one, and returns the device address, aligned to 64 bytes. The bytes
    /// are zero, but a kernel that reads them before they are written faults in checking mode.
    ///
    /// # Errors
    ///
    /// [`MemoryError::OutOfMemory`].
    pub fn alloc(&mut self, n_bytes: usize) -> Result<u64, MemoryError> {
        let error = MemoryError::OutOfMemory { n_bytes };
        if n_bytes >= 1 << SLOT_SHIFT {
            return Err(error);
        }
        let layout =
            Layout::from_size_align(n_bytes + TAIL_BYTES, ALIGN_BYTES).map_err(|_| error)?;
        // SAFETY: the size is not zero.
        let host = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(error)?;
        Ok(self.insert(Allocation {
            host,
            n_bytes,
            storage: Storage::Owned(layout),
            initialised: Initialised::none(),
        }))
    }

    /// Makes host bytes visible to kernels, read-only and without a copy. They stay alive until
    /// [`free`](Self::free). Vector accesses need the bytes to be aligned as the access is.
    pub fn map(&mut self, bytes: Arc<dyn AsRef<[u8]> + Send + Sync>) -> u64 {
        let slice: &[u8] = (*bytes).as_ref();
        let host = NonNull::from(slice).cast::<u8>();
        let n_bytes = slice.len();
        self.insert(Allocation {
            host,
            n_bytes,
            storage: Storage::Mapped(bytes),
            initialised: Initialised::all(),
        })
    }

    fn insert(&mut self, allocation: Allocation) -> u64 {
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.slots[slot] = Some(allocation);
        (slot as u64 + 1) << SLOT_SHIFT
    }

    /// Frees the allocation that begins at `address`.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Range`] if none begins there.
    pub fn free(&mut self, address: u64) -> Result<(), MemoryError> {
        let (slot, offset) = self.locate(address, 0)?;
        if offset != 0 {
            return Err(MemoryError::Range { address, n_bytes: 0 });
        }
        self.slots[slot] = None;
        Ok(())
    }

    /// Size of the allocation that begins at `address`.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Range`] if none begins there.
    pub fn size_bytes(&self, address: u64) -> Result<usize, MemoryError> {
        let (slot, offset) = self.locate(address, 0)?;
        match &self.slots[slot] {
            Some(allocation) if offset == 0 => Ok(allocation.n_bytes),
            _ => Err(MemoryError::Range { address, n_bytes: 0 }),
        }
    }

    /// Copies bytes to the device.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Range`], [`MemoryError::ReadOnly`].
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let (allocation, offset) = self.writable(address, bytes.len())?;
        // SAFETY: the range was checked, `&mut self` excludes every other access.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                allocation.host.as_ptr().add(offset),
                bytes.len(),
            )
        }
        let n_bytes = allocation.n_bytes;
        allocation.initialised.mark(offset, bytes.len(), n_bytes);
        Ok(())
    }

    /// Sets `n_bytes` bytes to `value`.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Range`], [`MemoryError::ReadOnly`].
    pub fn fill(&mut self, address: u64, value: u8, n_bytes: usize) -> Result<(), MemoryError> {
        let (allocation, offset) = self.writable(address, n_bytes)?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::write_bytes(allocation.host.as_ptr().add(offset), value, n_bytes) }
        let size = allocation.n_bytes;
        allocation.initialised.mark(offset, n_bytes, size);
        Ok(())
    }

    /// Makes checking mode regard the allocation that begins at `address` as never written.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Range`], [`MemoryError::ReadOnly`].
    pub fn forget(&mut self, address: u64) -> Result<(), MemoryError> {
        let (allocation, _) = self.writable(address, 0)?;
        allocation.initialised = Initialised::none();
        Ok(())
    }

    /// Copies bytes from the device.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Range`].
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let (slot, offset) = self.locate(address, bytes.len())?;
        let _busy = self.busy.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(allocation) = &self.slots[slot] {
            // SAFETY: the range was checked, and no launch runs while the lock is held.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    allocation.host.as_ptr().add(offset),
                    bytes.as_mut_ptr(),
                    bytes.len(),
                );
            }
        }
        Ok(())
    }

    fn writable(
        &mut self,
        address: u64,
        n_bytes: usize,
    ) -> Result<(&mut Allocation, usize), MemoryError> {
        let (slot, offset) = self.locate(address, n_bytes)?;
        match &mut self.slots[slot] {
            Some(allocation) if matches!(allocation.storage, Storage::Owned(_)) => {
                Ok((allocation, offset))
            }
            _ => Err(MemoryError::ReadOnly { address }),
        }
    }

    fn locate(&self, address: u64, n_bytes: usize) -> Result<(usize, usize), MemoryError> {
        let error = MemoryError::Range { address, n_bytes };
        let slot = ((address >> SLOT_SHIFT) as usize).checked_sub(1).ok_or(error)?;
        let offset = (address & ((1 << SLOT_SHIFT) - 1)) as usize;
        match self.slots.get(slot) {
            Some(Some(allocation)) if offset + n_bytes <= allocation.n_bytes => Ok((slot, offset)),
            _ => Err(error),
        }
    }

    /// One view per slot, and an empty one for slot index 0, so that `address >> 36` is the index.
    pub(crate) fn views(&self) -> Vec<View> {
        let empty = View { host: std::ptr::null_mut(), n_bytes: 0, writable: false };
        let slots = self.slots.iter().map(|slot| match slot {
            None => empty,
            Some(a) => View {
                host: a.host.as_ptr(),
                n_bytes: a.n_bytes as u64,
                writable: matches!(a.storage, Storage::Owned(_)),
            },
        });
        std::iter::once(empty).chain(slots).collect()
    }

    /// What of each slot is written, indexed as [`views`](Self::views).
    pub(crate) fn initialised(&self) -> Vec<&Initialised> {
        static NONE: Initialised = Initialised::none();
        std::iter::once(&NONE)
            .chain(self.slots.iter().map(|s| s.as_ref().map_or(&NONE, |a| &a.initialised)))
            .collect()
    }
}
