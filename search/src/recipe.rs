//! Recipes: how the engine of a finished search is made again without searching.
//!
//! A recipe says what was known of costs when the winning cover was extracted, which cover it was, and
//! the schedule of each of its regions with the hash of the PTX that was verified and measured. It is
//! followed only as far as it leads to exactly these kernels; otherwise the job is searched again.

use std::collections::BTreeMap;

use eggine_ir::Schedule;
use eggine_runtime::Verification;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::agents;
use crate::compile::CompileError;
use crate::costs::CostsRecord;
use crate::floor::{First, Floor};
use crate::phases::Phase;
use crate::report::{SearchReport, Speedup};
use crate::select::{Pick, Selection};
use crate::workshop::prepare;

/// See the [module](self).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Recipe {
    costs: CostsRecord,
    /// How many covers were extracted at once, and which of them this is.
    k: usize,
    nth: usize,
    /// By hash of the region.
    kernels: BTreeMap<String, Kernel>,
    pub(crate) comparison: Option<Speedup>,
    pub(crate) search: Option<SearchReport>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kernel {
    schedule: Schedule,
    ptx_hash: String,
    agent: String,
    /// Bits of the time.
    measured_ns: Option<u64>,
    proof: Option<String>,
    verification: Verification,
}

impl Recipe {
    /// How `selection` is made.
    pub(crate) fn new(
        floor: &mut Floor<'_>,
        selection: &Selection,
        comparison: Option<Speedup>,
        search: SearchReport,
    ) -> Result<Self, CompileError> {
        let mut kernels = BTreeMap::new();
        for pick in selection.picks.values() {
            floor.remake(pick.number, &pick.schedule);
            let verification = floor.verification(pick.number, &pick.schedule)?;
            let kernel = Kernel {
                schedule: pick.schedule,
                ptx_hash: floor.kernel(pick.number, &pick.schedule).ptx_hash.clone(),
                agent: pick.agent.to_owned(),
                measured_ns: pick.measured_ns.map(f64::to_bits),
                proof: pick.proof.clone(),
                verification,
            };
            kernels.insert(floor.subjects[pick.number].hash.clone(), kernel);
        }
        let cover = &floor.covers[selection.cover];
        let costs = (*cover.costs).clone();
        let (k, nth) = (cover.k, cover.nth);
        Ok(Self { costs, k, nth, kernels, comparison, search: Some(search) })
    }

    /// The selection, if the recipe still leads to the kernels that it names.
    pub(crate) fn follow(&self, floor: &mut Floor<'_>) -> Result<Option<Selection>, CompileError> {
        floor.costs.restore(&self.costs);
        floor.k = self.k;
        let Some(&cover) = floor.extract()?.get(self.nth) else { return Ok(None) };
        let numbers = floor.covers[cover].numbers.clone();
        let target = floor.workshop.target;
        let subjects = &floor.subjects;
        let made: Vec<_> = floor.workshop.phases.time(Phase::Emit, |_| {
            numbers
                .par_iter()
                .map(|(&id, &number)| {
                    let kernel = self.kernels.get(&subjects[number].hash)?;
                    let prepared = prepare(&subjects[number], &kernel.schedule, target).ok()?;
                    (prepared.ptx_hash == kernel.ptx_hash).then_some((id, number, kernel, prepared))
                })
                .collect()
        });
        let mut picks = BTreeMap::new();
        for made in made {
            let Some((id, number, kernel, prepared)) = made else { return Ok(None) };
            // Agents from outside have names that only this recipe knows.
            let agent = agents::intern(&kernel.agent);
            let measured_ns = kernel.measured_ns.map(f64::from_bits);
            let first = First {
                schedule: kernel.schedule,
                prepared,
                verification: kernel.verification.clone(),
                measured_ns,
                proof: kernel.proof.clone(),
            };
            floor.firsts.insert(number, first);
            let proof = kernel.proof.clone();
            let pick = Pick { number, schedule: kernel.schedule, agent, measured_ns, proof };
            picks.insert(id, pick);
        }
        Ok(Some(Selection { cover, picks }))
    }
}
