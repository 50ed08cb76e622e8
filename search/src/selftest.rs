//! Every kernel family on a device, held against the oracle: what is to be known before anything is timed.

use std::collections::BTreeMap;

use eggine_codegen_ptx::{CPU_DEVICE, Target, first_choices, neighbours};
use eggine_ir::Region;
use eggine_ir::graph::ParseError;
use eggine_runtime::Device;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::phases::Phases;
use crate::workshop::{Subject, Workshop, WorkshopError};

/// What came of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SelfTest {
    /// Regions.
    pub n_regions: usize,
    /// Kernels verified, by family.
    pub kernels: BTreeMap<String, u64>,
    /// Kernels that are wrong: region, schedule, verdict.
    pub wrong: Vec<(String, String, String)>,
}

/// Regions of a text: graphs one after the other, as in `codegen-ptx/tests/regions/all.gir`.
///
/// # Errors
///
/// The first graph that does not parse.
pub fn regions_of(text: &str) -> Result<Vec<Region>, ParseError> {
    let graphs = text.split("\n}").map(str::trim).filter(|graph| graph.contains("graph @"));
    graphs
        .map(|graph| Ok(Region::contiguous(eggine_ir::graph::parse(&format!("{graph}\n}}\n"))?)))
        .collect()
}

/// Verifies the first kernel of every family for every region, and so many neighbours of each.
///
/// # Errors
///
/// If the device fails in what is not a kernel's doing.
pub fn selftest(
    device: Box<dyn Device>,
    regions: &[Region],
    n_neighbours: usize,
    target: Target,
) -> Result<SelfTest, WorkshopError> {
    let evidence = Evidence::in_memory()?;
    let mut workshop = Workshop::new(device, &evidence, target, 0, Phases::default());
    let mut done = SelfTest { n_regions: regions.len(), ..SelfTest::default() };
    for region in regions {
        let subject = Subject { hash: region.hash_hex(), region: region.clone() };
        for (_, first, _) in first_choices(region, &CPU_DEVICE) {
            let around = neighbours(region, &first).into_iter().map(|it| it.1).take(n_neighbours);
            for schedule in std::iter::once(first).chain(around) {
                let mut wrong = |verdict: String| {
                    done.wrong.push((region.graph.name.clone(), schedule.to_string(), verdict));
                };
                match workshop.prepare(&subject, &schedule) {
                    Err(reason) => wrong(reason),
                    Ok(prepared) => {
                        let verification = workshop.verify(&subject, &prepared)?;
                        if !verification.accepted() {
                            wrong(verification.verdict.to_string());
                        }
                    }
                }
                *done.kernels.entry(schedule.family().to_owned()).or_default() += 1;
            }
        }
    }
    Ok(done)
}
