//! Launch attributes: cooperative grids and clusters.
//!
//! The blocks of a cooperative launch run at once, each on a thread of its own, so that they may wait for
//! each other; there are at most as many as the occupancy of the device allows. Blocks of a cluster run
//! as any others: what they could do together is in instructions that no module of this driver has.

use std::ffi::{c_int, c_uint, c_void};

use crate::call::{get, put};
use crate::graph::Kernel;
use crate::result::{Code, Done};
use crate::state::{Handle, State};

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`: a truth value.
const COOPERATIVE: c_uint = 2;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`: three numbers.
const CLUSTER_DIMENSION: c_uint = 4;

/// Blocks of a cluster, unless a kernel says that it takes more (ours cannot).
const MOST_CLUSTER_BLOCKS: u64 = 8;

/// What a launch asks for besides blocks and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) cooperative: bool,
    pub(crate) cluster: [u32; 3],
}

impl Default for Attributes {
    fn default() -> Self {
        Self { cooperative: false, cluster: [1; 3] }
    }
}

impl Attributes {
    /// Takes over one attribute by its number; those that change nothing here are ignored.
    pub(crate) fn set(&mut self, id: c_uint, value: *const u32) -> Done {
        match id {
            COOPERATIVE => self.cooperative = get(value)? != 0,
            CLUSTER_DIMENSION => self.cluster = get(value.cast())?,
            _ => {}
        }
        Ok(())
    }

    /// Tells one attribute.
    pub(crate) fn get(self, id: c_uint, value: *mut c_void) -> Done {
        match id {
            COOPERATIVE => put(value.cast(), c_int::from(self.cooperative)),
            CLUSTER_DIMENSION => put(value.cast(), self.cluster),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }
}

impl State {
    /// Refuses what a device of this compute capability and size refuses.
    pub(crate) fn check_attributes(&self, kernel: &Kernel) -> Done {
        let Attributes { cooperative, cluster } = kernel.attributes;
        if cluster != [1; 3] {
            let n_blocks = cluster.iter().map(|&n| u64::from(n)).product::<u64>();
            if self.config.sm < 90 {
                return Err(Code::NOT_SUPPORTED);
            }
            if n_blocks == 0 || n_blocks > MOST_CLUSTER_BLOCKS {
                return Err(Code::INVALID_CLUSTER);
            }
            if kernel.grid.iter().zip(cluster).any(|(&all, part)| !all.is_multiple_of(part)) {
                return Err(Code::INVALID_VALUE);
            }
        }
        if cooperative {
            let n_blocks = kernel.grid.iter().map(|&n| n as usize).product::<usize>();
            if self.config.checking && n_blocks > 1 {
                // Checking mode runs block after block.
                return Err(Code::NOT_SUPPORTED);
            }
            if n_blocks > self.resident_blocks(kernel)? {
                return Err(Code::COOPERATIVE_TOO_LARGE);
            }
        }
        Ok(())
    }

    /// Blocks of a kernel that the device holds at once.
    fn resident_blocks(&self, kernel: &Kernel) -> Done<usize> {
        let entry = kernel.function.module.entry(&kernel.function.entry);
        let arrays = &entry.ok_or(Code::INVALID_HANDLE)?.shared;
        let shared_bytes: usize = arrays.iter().map(|array| array.n_bytes as usize).sum();
        let n_threads = kernel.block.iter().product::<u32>() as usize;
        Ok(crate::function::blocks_per_sm(n_threads, shared_bytes) * self.config.n_threads)
    }
}

export! { TABLE;
    Context "cuOccupancyMaxActiveClusters" 11080 cuOccupancyMaxActiveClusters(
        s, n_clusters: *mut c_int, function: Handle, config: *const c_void,
    ) {
        let kernel = s.configured(function, config, None)?;
        s.check_attributes(&kernel)?;
        let cluster = kernel.attributes.cluster.iter().product::<u32>() as usize;
        put(n_clusters, (s.resident_blocks(&kernel)? / cluster) as c_int)?;
    }
}
