//! What this driver offers beside the driver API: counts, and calls that fail on demand. Found with
//! `dlsym`; documented in `docs/driver.md`.

use crate::result::Code;
use crate::state::STATE;

/// Counts since the library was loaded (or since `eggineDriverReset`), and what is alive now.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of driver functions.
    pub n_calls: u64,
    /// Calls that failed because they were told to.
    pub n_injected: u64,
    /// Allocations of device memory, ever.
    pub n_allocations: u64,
    /// Allocations of pinned host memory, ever.
    pub n_host_allocations: u64,
    /// Copies from host to device.
    pub n_copies_to_device: u64,
    /// Their bytes.
    pub bytes_to_device: u64,
    /// Copies from device to host.
    pub n_copies_to_host: u64,
    /// Their bytes.
    pub bytes_to_host: u64,
    /// Kernels run, those of graphs too.
    pub n_launches: u64,
    /// Graphs launched.
    pub n_graph_launches: u64,
    /// Calls that wait for the device.
    pub n_synchronisations: u64,
    /// Allocations of device memory that are alive.
    pub n_live_allocations: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Contexts, modules, streams, events, graphs and pinned allocations that are alive.
    pub n_live_objects: u64,
}

/// Writes the counts.
#[allow(non_snake_case, reason = "named as the driver's functions are")]
#[unsafe(no_mangle)]
extern "C" fn eggineDriverStats(stats: *mut Stats) {
    let state = STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _ = crate::call::put(stats, state.stats());
}

/// Sets the counts that grow to zero. What is alive stays.
#[allow(non_snake_case, reason = "named as the driver's functions are")]
#[unsafe(no_mangle)]
extern "C" fn eggineDriverReset() {
    let mut state = STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    state.stats = Stats::default();
}

/// Makes the `n`-th call from now fail with `code`; 0 takes it back.
#[allow(non_snake_case, reason = "named as the driver's functions are")]
#[unsafe(no_mangle)]
extern "C" fn eggineDriverFail(n: u64, code: u32) {
    let mut state = STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    state.fail = (n > 0).then_some((n, Code(code)));
}
