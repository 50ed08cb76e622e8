//! Oracles, computed once for all candidates of a region.

use std::sync::{Arc, Mutex, OnceLock};

use eggine_ir::{Region, Tensor};
use indexmap::IndexMap;

use super::bound::{self, Reference};
use super::corpus::Counterexample;
use super::inputs::{Family, generate_inputs};

/// Inputs and what must come out.
#[derive(Debug)]
pub struct Oracle {
    /// One tensor per input of the region, in order.
    pub inputs: Vec<Tensor>,
    /// What each output must be, in order.
    pub outputs: Vec<Reference>,
    /// Whether the region only moves elements, so that bits are compared.
    pub moves_only: bool,
}

impl Oracle {
    /// Evaluates a region on inputs of a family.
    pub fn new(region: &Region, family: Family, seed: u64) -> Self {
        Self::on(region, family, generate_inputs(&region.graph, family, seed))
    }

    /// Evaluates a region on given inputs, with the bounds of a family.
    pub fn on(region: &Region, family: Family, inputs: Vec<Tensor>) -> Self {
        let outputs = bound::evaluate(&region.graph, &inputs, family);
        Self { inputs, outputs, moves_only: bound::moves_only(&region.graph) }
    }

    fn n_bytes(&self) -> usize {
        let inputs: usize = self.inputs.iter().map(|tensor| tensor.bytes.len()).sum();
        let outputs: usize = self.outputs.iter().map(Reference::n_bytes).sum();
        inputs + outputs
    }
}

type Key = (String, Family, u64);
type Slot = Arc<OnceLock<Arc<Oracle>>>;

/// Oracles by region hash, family and seed; the least recently used ones are dropped when they take
/// more than a limit. Threads share it; two that ask for the same oracle wait for one computation.
#[derive(Debug)]
pub struct OracleCache {
    limit_bytes: usize,
    slots: Mutex<IndexMap<Key, Slot>>,
}

impl Default for OracleCache {
    /// At most 512 MiB: some thirty regions of the size of a ResNet layer.
    fn default() -> Self {
        Self::new(512 << 20)
    }
}

impl OracleCache {
    /// A cache of at most so many bytes, or of one oracle if that is larger.
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, slots: Mutex::default() }
    }

    /// The oracle of a region. `key` is the region's hash.
    pub fn get(&self, region: &Region, key: &str, family: Family, seed: u64) -> Arc<Oracle> {
        let key = (key.to_owned(), family, seed);
        self.find(key, || Oracle::new(region, family, seed))
    }

    /// The oracle of a region on a counterexample, which fits it.
    pub fn get_kept(&self, region: &Region, key: &str, kept: &Counterexample) -> Arc<Oracle> {
        let family = kept.family();
        let key = (format!("{key} kept"), family, kept.id());
        self.find(key, || Oracle::on(region, family, kept.tensors(&region.graph)))
    }

    fn find(&self, key: Key, make: impl FnOnce() -> Oracle) -> Arc<Oracle> {
        let slot = {
            let mut slots = self.lock();
            // The most recently used is at the end.
            let slot = slots.shift_remove(&key).unwrap_or_default();
            slots.insert(key, Arc::clone(&slot));
            slot
        };
        let oracle = Arc::clone(slot.get_or_init(|| Arc::new(make())));
        self.trim();
        oracle
    }

    /// Number of oracles.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, IndexMap<Key, Slot>> {
        // Nothing panics while the lock is held.
        self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn trim(&self) {
        let mut slots = self.lock();
        let mut n_bytes: usize =
            slots.values().filter_map(|slot| slot.get()).map(|oracle| oracle.n_bytes()).sum();
        while n_bytes > self.limit_bytes && slots.len() > 1 {
            // The one at the end was just asked for.
            let Some(position) = slots.values().position(|slot| slot.get().is_some()) else {
                return;
            };
            if position + 1 == slots.len() {
                return;
            }
            if let Some((_, slot)) = slots.shift_remove_index(position) {
                n_bytes -= slot.get().map_or(0, |oracle| oracle.n_bytes());
            }
        }
    }
}
