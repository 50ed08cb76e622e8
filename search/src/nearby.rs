//! A schedule at ragged neighbours of its region, on a device that checks everything.
//!
//! A kernel is emitted for fixed extents, so it cannot be wrong at others; what emits it can. A family
//! that forgets a guard, a barrier or a mask under some schedule is right wherever the tiles happen to
//! divide the extents, and in whatever order the device happens to run its warps. So each schedule that is
//! to be used is also instantiated at small extents that no tile divides, and run where races,
//! uninitialised reads and accesses out of bounds are faults. Regions that differ in their extents only
//! share their neighbours: this is done once for each kind of region and schedule, not for each candidate.

use std::collections::{BTreeMap, BTreeSet};

use eggine_codegen_ptx::Target;
use eggine_codegen_ptx::kir::steps_bound;
use eggine_ir::{Region, Schedule};
use eggine_runtime::device::{Checking, CpuDevice, CpuOptions};
use eggine_runtime::verify::{Family, verify};
use eggine_runtime::{DeviceError, OracleCache, Verdict, VerifyOptions};

use rayon::prelude::*;

use crate::extents::ragged;
use crate::workshop::{Prepared, Subject};

/// Makes a kernel of a region under a schedule, or says why there is none.
pub type Make<'a> = &'a (dyn Fn(&Subject, &Schedule, Target) -> Result<Prepared, String> + Sync);

/// What was found at neighbouring extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearbyCounts {
    /// Kernels that ran.
    pub n_checked: u64,
    /// Checks whose result was known: from another region, or because it was prepared.
    pub n_known: u64,
    /// Schedules without a neighbour: no extent can be replaced, or the schedule is not legal there.
    pub n_without: u64,
    /// Of the kernels that ran, wrong ones.
    pub n_failed: u64,
}

/// See the [module](self).
pub struct Nearby {
    oracles: OracleCache,
    known: BTreeMap<(String, String), Verdict>,
    neighbours: BTreeMap<String, Vec<Subject>>,
    counts: NearbyCounts,
    options: VerifyOptions,
}

impl Nearby {
    /// Nothing is known yet.
    pub fn new(seed: u64) -> Self {
        Self {
            oracles: OracleCache::new(64 << 20),
            known: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            counts: NearbyCounts::default(),
            options: VerifyOptions {
                families: vec![Family::Normal, Family::Ramp],
                seed,
                ..VerifyOptions::default()
            },
        }
    }

    /// What was done.
    pub fn counts(&self) -> NearbyCounts {
        self.counts
    }

    /// Whether what `make` gives under the schedule is right at ragged neighbours of the region.
    ///
    /// # Errors
    ///
    /// If the checking device fails in what is not the kernel's doing.
    pub fn check(
        &mut self,
        subject: &Subject,
        schedule: &Schedule,
        target: Target,
        make: Make<'_>,
    ) -> Result<Verdict, DeviceError> {
        let mut found = Verdict::Accepted;
        let mut n_checked = 0;
        for neighbour in self.neighbours_of(subject) {
            let key = (neighbour.hash.clone(), schedule.to_string());
            if let Some(known) = self.known.get(&key) {
                self.counts.n_known += 1;
                n_checked += 1;
                found = known.clone();
            } else {
                let checked = self.run(&mut self.device(), &neighbour, schedule, target, make)?;
                let Some(verdict) = checked else { continue };
                self.note(key, &verdict);
                n_checked += 1;
                found = verdict;
            }
            if !found.accepted() {
                return Ok(found);
            }
        }
        self.counts.n_without += u64::from(n_checked == 0);
        Ok(found)
    }

    /// Does on all threads what [`check`](Self::check) would do for each of these, one after the other:
    /// afterwards it knows.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn prepare(
        &mut self,
        wanted: &[(&Subject, Schedule)],
        target: Target,
        make: Make<'_>,
    ) -> Result<(), DeviceError> {
        let mut seen = BTreeSet::new();
        let mut todo = Vec::new();
        for &(subject, schedule) in wanted {
            for neighbour in self.neighbours_of(subject) {
                let key = (neighbour.hash.clone(), schedule.to_string());
                if !self.known.contains_key(&key) && seen.insert(key.clone()) {
                    todo.push((key, neighbour, schedule));
                }
            }
        }
        // A device of one thread for each, so that they do not wait for each other's last block.
        let done: Vec<_> = todo
            .par_iter()
            .with_max_len(1)
            .map_init(
                || self.device(),
                |device, (_, neighbour, schedule)| {
                    self.run(device, neighbour, schedule, target, make)
                },
            )
            .collect();
        for ((key, ..), checked) in todo.into_iter().zip(done) {
            if let Some(verdict) = checked? {
                self.note(key, &verdict);
            }
        }
        Ok(())
    }

    fn device(&self) -> CpuDevice {
        let options =
            CpuOptions { n_threads: 1, checking: Checking::Everything, ..CpuOptions::default() };
        CpuDevice::new(options)
    }

    fn neighbours_of(&mut self, subject: &Subject) -> Vec<Subject> {
        let neighbours = self.neighbours.entry(subject.hash.clone()).or_insert_with(|| {
            let regions: Vec<Region> = ragged(&subject.region, 1);
            regions.into_iter().map(|region| Subject { hash: region.hash_hex(), region }).collect()
        });
        neighbours.clone()
    }

    fn note(&mut self, key: (String, String), verdict: &Verdict) {
        self.counts.n_checked += 1;
        self.counts.n_failed += u64::from(!verdict.accepted());
        self.known.insert(key, verdict.clone());
    }

    /// Runs a kernel at one neighbour. `None`: the schedule is not legal there, so not used there.
    fn run(
        &self,
        device: &mut CpuDevice,
        neighbour: &Subject,
        schedule: &Schedule,
        target: Target,
        make: Make<'_>,
    ) -> Result<Option<Verdict>, DeviceError> {
        let Ok(prepared) = make(neighbour, schedule, target) else { return Ok(None) };
        let step_limit = Some(steps_bound(&prepared.lowered.kernel));
        let options = VerifyOptions { step_limit, ..self.options.clone() };
        let (region, hash) = (&neighbour.region, neighbour.hash.as_str());
        let verification =
            verify(device, region, hash, &prepared.candidate(), &self.oracles, &options)?;
        Ok(Some(match verification.verdict {
            // An instruction that the cpu device lacks: judged on the device that has it only.
            Verdict::Accepted | Verdict::DoesNotLoad { .. } => Verdict::Accepted,
            other => {
                let types = region.graph.inputs().map(|input| region.graph.ty(input).to_string());
                let extents = types.collect::<Vec<_>>().join(", ");
                Verdict::FailsNearby { extents, found: Box::new(other) }
            }
        }))
    }
}
