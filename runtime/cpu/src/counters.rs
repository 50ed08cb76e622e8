//! Counts of a launch: what a cost model or a user wants to know about a kernel's execution.

use eggine_ptx::table::Op;

/// Classes of warp instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "named as the classes")]
pub enum Class {
    Move,
    Integer,
    Float,
    Fma,
    Special,
    Compare,
    Convert,
    GlobalLoad,
    GlobalStore,
    SharedLoad,
    SharedStore,
    Async,
    Control,
    Barrier,
    Shuffle,
}

impl Class {
    /// All classes, in order.
    pub const ALL: [Class; 15] = [
        Class::Move,
        Class::Integer,
        Class::Float,
        Class::Fma,
        Class::Special,
        Class::Compare,
        Class::Convert,
        Class::GlobalLoad,
        Class::GlobalStore,
        Class::SharedLoad,
        Class::SharedStore,
        Class::Async,
        Class::Control,
        Class::Barrier,
        Class::Shuffle,
    ];

    /// The class of an instruction, from its mnemonic.
    pub fn of(op: Op) -> Class {
        let mnemonic = op.spec().mnemonic;
        let mut parts = mnemonic.split('.');
        let head = parts.next().unwrap_or_default();
        let space = parts.next().unwrap_or_default();
        let is_float = mnemonic.ends_with("f32") || mnemonic.ends_with("f64");
        match head {
            "mov" => Class::Move,
            "ld" if space == "param" => Class::Move,
            "ld" if space == "shared" => Class::SharedLoad,
            "ld" => Class::GlobalLoad,
            "st" if space == "shared" => Class::SharedStore,
            "st" | "red" | "atom" => Class::GlobalStore,
            "cp" => Class::Async,
            "fma" => Class::Fma,
            "ex2" | "lg2" | "rcp" | "rsqrt" | "sqrt" | "sin" | "cos" | "tanh" => Class::Special,
            "div" if is_float => Class::Special,
            "setp" | "selp" => Class::Compare,
            "cvt" => Class::Convert,
            "bra" | "ret" => Class::Control,
            "bar" | "membar" => Class::Barrier,
            "shfl" | "vote" | "activemask" => Class::Shuffle,
            _ if is_float => Class::Float,
            _ => Class::Integer,
        }
    }
}

/// Counts over all blocks of a launch. Empty unless `Options::count` was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Warp instructions by [`Class`], in the order of [`Class::ALL`].
    pub warp_instructions: [u64; 15],
    /// Bytes that the lanes loaded from global memory.
    pub global_load_bytes: u64,
    /// Bytes that the lanes stored to global memory.
    pub global_store_bytes: u64,
    /// Bytes that the lanes loaded from shared memory.
    pub shared_load_bytes: u64,
    /// Bytes that the lanes stored to shared memory.
    pub shared_store_bytes: u64,
    /// 32-byte sectors that warp accesses to global memory touched.
    pub global_sectors: u64,
    /// Warp accesses to global memory.
    pub global_requests: u64,
    /// Shared-memory wavefronts beyond the least that the access needs (bank conflicts).
    pub bank_conflicts: u64,
    /// Warp accesses to shared memory.
    pub shared_requests: u64,
}

impl Counters {
    /// Warp instructions of a class.
    pub fn of(&self, class: Class) -> u64 {
        self.warp_instructions[class as usize]
    }

    /// All warp instructions.
    pub fn total(&self) -> u64 {
        self.warp_instructions.iter().sum()
    }

    pub(crate) fn add(&mut self, other: &Counters) {
        for (a, b) in self.warp_instructions.iter_mut().zip(other.warp_instructions) {
            *a += b;
        }
        self.global_load_bytes += other.global_load_bytes;
        self.global_store_bytes += other.global_store_bytes;
        self.shared_load_bytes += other.shared_load_bytes;
        self.shared_store_bytes += other.shared_store_bytes;
        self.global_sectors += other.global_sectors;
        self.global_requests += other.global_requests;
        self.bank_conflicts += other.bank_conflicts;
        self.shared_requests += other.shared_requests;
    }
}
