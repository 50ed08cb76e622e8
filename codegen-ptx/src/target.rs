//! GPU targets and what each offers a kernel. One row per target; cost models and schedules read it.
//!
//! Sources: `arch_traits.h` of the nvidia-cuda-cccl 13 wheel for sm_80, 89, 90, 100 and 120; CUDA C++
//! Programming Guide 13.0, table "Technical Specifications per Compute Capability", for sm_86.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// What a target offers. Bytes of shared memory are of the whole block or multiprocessor, registers are
/// of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// Name in `.target` and for the assembler.
    pub name: &'static str,
    /// Compute capability times ten, as instruction rows count it.
    pub sm: u32,
    /// Most shared memory that the blocks of a multiprocessor may have together.
    pub shared_per_sm_bytes: u32,
    /// Most shared memory of a block, if asked for at launch.
    pub shared_per_block_bytes: u32,
    /// Most threads that a multiprocessor holds.
    pub n_threads_per_sm: u32,
    /// Most blocks that a multiprocessor holds.
    pub n_blocks_per_sm: u32,
}

macro_rules! targets {
    ($($target:ident $name:literal $sm:literal $per_sm_kib:literal $per_block_kib:literal $threads:literal $blocks:literal;)+) => {
        /// A GPU architecture that kernels are made for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "described by the table row")]
        pub enum Target { $($target),+ }

        impl Target {
            /// All targets, oldest first.
            pub const ALL: &[Target] = &[$(Target::$target),+];

            /// The target's row.
            pub const fn spec(self) -> TargetSpec {
                match self {
                    $(Target::$target => TargetSpec {
                        name: $name,
                        sm: $sm,
                        shared_per_sm_bytes: $per_sm_kib * 1024,
                        shared_per_block_bytes: $per_block_kib * 1024,
                        n_threads_per_sm: $threads,
                        n_blocks_per_sm: $blocks,
                    }),+
                }
            }
        }
    };
}

#[rustfmt::skip] // One target per row.
targets! {
    // target  name        sm   shared KiB per SM, block   threads, blocks per SM
    Sm80      "sm_80"      80   164  163                   2048  32; // A100
    Sm86      "sm_86"      86   100   99                   1536  16; // RTX 30, A10
    Sm89      "sm_89"      89   100   99                   1536  24; // RTX 40, L4
    Sm90a     "sm_90a"     90   228  227                   2048  32; // H100, H200
    Sm100a    "sm_100a"   100   228  227                   2048  32; // B200
    Sm120     "sm_120"    120   100   99                   1536  24; // RTX 50
}

impl Target {
    /// The targets that every snapshot is assembled for: one per generation.
    pub const GENERATIONS: [Target; 4] =
        [Target::Sm80, Target::Sm90a, Target::Sm100a, Target::Sm120];

    /// Most threads of a block.
    pub const N_THREADS_PER_BLOCK: u32 = 1024;

    /// Most bytes of `.shared` arrays that every target accepts. (Later ones accept more from PTX 9.0 on.)
    pub const STATIC_SHARED_BYTES: u32 = 48 * 1024;

    /// Most registers of a thread.
    pub const N_REGS_PER_THREAD: u32 = 255;

    /// Registers of a multiprocessor, and most of a block.
    pub const N_REGS_PER_SM: u32 = 65536;

    /// Shared memory that each resident block takes besides its own.
    pub const RESERVED_SHARED_BYTES: u32 = 1024;

    /// Name in `.target` and for the assembler, such as `sm_90a`.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Blocks of a kernel that a multiprocessor holds at once; 0 if the kernel cannot run. Registers are
    /// given out per warp in units of 8 per lane.
    pub fn n_resident_blocks(self, n_threads: u32, n_regs: u32, shared_bytes: u32) -> u32 {
        let spec = self.spec();
        let n_warps = n_threads.div_ceil(32);
        let block_regs = n_warps * 32 * n_regs.max(1).next_multiple_of(8);
        if n_threads == 0
            || n_threads > Self::N_THREADS_PER_BLOCK
            || shared_bytes > spec.shared_per_block_bytes
        {
            return 0;
        }
        let by_regs = Self::N_REGS_PER_SM / block_regs;
        let by_shared = spec.shared_per_sm_bytes / (shared_bytes + Self::RESERVED_SHARED_BYTES);
        let by_threads = spec.n_threads_per_sm / (n_warps * 32);
        by_regs.min(by_shared).min(by_threads).min(spec.n_blocks_per_sm)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown target `{name}`; known are {}", known())]
pub struct UnknownTarget {
    /// What was asked for.
    pub name: String,
}

fn known() -> String {
    Target::ALL.iter().map(|target| target.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Target::ALL.iter().find(|target| target.name() == name);
        found.copied().ok_or_else(|| UnknownTarget { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_their_rows() {
        for &target in Target::ALL {
            assert_eq!(target.name().parse(), Ok(target));
        }
        let err = "sm_42".parse::<Target>().unwrap_err();
        insta::assert_snapshot!(err, @"unknown target `sm_42`; known are sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_120");
    }

    #[test]
    fn resident_blocks_are_bounded_by_each_resource() {
        assert_eq!(Target::Sm80.n_resident_blocks(256, 128, 0), 2); // 65536 / (256 · 128)
        assert_eq!(Target::Sm80.n_resident_blocks(256, 32, 81 * 1024), 2); // 164 / (81 + 1)
        assert_eq!(Target::Sm89.n_resident_blocks(512, 32, 0), 3); // 1536 / 512
        assert_eq!(Target::Sm120.n_resident_blocks(32, 16, 0), 24);
        assert_eq!(Target::Sm86.n_resident_blocks(128, 32, 100 * 1024), 0);
    }
}
