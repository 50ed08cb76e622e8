//! An allocator that counts, so that tests can bound memory and work without a clock.
//!
//! Counts are of the current thread: tests that run beside do not disturb them. A test binary says
//! `#[global_allocator] static ALLOC: Counting = Counting;`.

#![allow(unsafe_code, reason = "an allocator is unsafe by nature")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What a piece of code allocated on its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// Calls that gave memory.
    pub n_calls: u64,
    /// Largest sum of live bytes above what was live at the start.
    pub peak_bytes: u64,
    /// The largest single piece.
    pub largest_bytes: u64,
}

thread_local! {
    static N_CALLS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
    static LARGEST: Cell<u64> = const { Cell::new(0) };
}

/// See the [module](self).
pub struct Counting;

fn note(given: usize, taken: usize) {
    // A thread that ends has no counters any more.
    let _ = N_CALLS.try_with(|n| n.set(n.get() + u64::from(given > 0)));
    let live = LIVE.try_with(|live| {
        live.set(live.get() + given as i64 - taken as i64);
        live.get()
    });
    if let Ok(live) = live {
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live)));
    }
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(given as u64)));
}

// SAFETY: every call is the system allocator's with the same arguments; counting allocates nothing, since
// the counters are const-initialised cells without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size, layout.size());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Runs `f` and counts what it allocates on this thread. Without [`Counting`] as the global allocator all
/// counts are 0.
pub fn count<T>(f: impl FnOnce() -> T) -> (T, Allocated) {
    let n_before = N_CALLS.get();
    let live_before = LIVE.get();
    PEAK.set(live_before);
    LARGEST.set(0);
    let result = f();
    let counted = Allocated {
        n_calls: N_CALLS.get() - n_before,
        peak_bytes: (PEAK.get() - live_before).max(0) as u64,
        largest_bytes: LARGEST.get(),
    };
    (result, counted)
}

/// Time that this thread spent on a processor, where the system tells: unlike a clock, it does not grow
/// while other processes run.
pub fn thread_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}
