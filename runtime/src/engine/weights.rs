//! Collects the weights section: tensors that are known at compile time, each once.

use std::collections::BTreeMap;

use bytes::Bytes;
use eggine_ir::Tensor;

use crate::plan::{ARENA_ALIGN_BYTES, Arg};

/// Appends tensors, 256-byte aligned; equal bytes are stored once.
#[derive(Debug, Default)]
pub struct WeightsBuilder {
    bytes: Vec<u8>,
    seen: BTreeMap<[u8; 32], u64>,
}

impl WeightsBuilder {
    /// Stores a tensor and tells where.
    pub fn push(&mut self, tensor: &Tensor) -> Arg {
        let n_bytes = tensor.bytes.len() as u64;
        let hash = *blake3::hash(&tensor.bytes).as_bytes();
        let offset_bytes = *self.seen.entry(hash).or_insert_with(|| {
            let offset = (self.bytes.len() as u64).next_multiple_of(ARENA_ALIGN_BYTES);
            self.bytes.resize(offset as usize, 0);
            self.bytes.extend_from_slice(&tensor.bytes);
            offset
        });
        Arg::Weight { offset_bytes, n_bytes }
    }

    /// Bytes so far.
    pub fn n_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The section.
    pub fn finish(self) -> Bytes {
        self.bytes.into()
    }
}
