//! What the workshop remembers of kernels that went wrong, in this run and from evidence: those that must
//! never run again, and the inputs that showed the others to be wrong.

use std::collections::BTreeMap;

use eggine_ir::{NodeKind, Region};
use eggine_runtime::Verdict;
use eggine_runtime::verify::{Counterexample, Verification};

use crate::evidence::{CounterexampleRow, Evidence, EvidenceError, QuarantineRow};
use crate::workshop::{METHOD, Prepared, Subject};

/// Counterexamples that later kernels of a kind of region meet; more would cost more than they find.
const MOST_KEPT: usize = 4;

/// A kernel that must never run again, with what reproduces it.
#[derive(Clone, Debug, PartialEq)]
pub struct Quarantined {
    /// Hash of the region.
    pub region: String,
    /// The schedule's text.
    pub schedule: String,
    /// Hash of the PTX.
    pub ptx_hash: String,
    /// The PTX.
    pub ptx: String,
    /// Identity of the device.
    pub device: String,
    /// What it did.
    pub verdict: Verdict,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// By hash of the PTX.
    quarantine: BTreeMap<String, Quarantined>,
    /// By kind of region.
    corpus: BTreeMap<String, Vec<Counterexample>>,
}

/// The kind of a region: its operators in order, whatever the extents.
pub fn kind_of(region: &Region) -> String {
    let ops = region.graph.nodes.values().filter_map(|node| match &node.kind {
        NodeKind::Apply(op, ..) => Some(op.to_string()),
        _ => None,
    });
    ops.collect::<Vec<_>>().join(" ")
}

impl Memory {
    /// What evidence says of a device. A record that this program cannot read is kept from running all the
    /// same: its text is known.
    pub(crate) fn open(evidence: &Evidence, device: &str) -> Result<Self, EvidenceError> {
        let mut quarantine = BTreeMap::new();
        for row in evidence.quarantined(device)? {
            let verdict = serde_json::from_str(&row.entry)
                .unwrap_or(Verdict::DoesNotLoad { reason: row.reason.clone() });
            let QuarantineRow { region, schedule, ptx_hash, device, ptx, .. } = row;
            let known = Quarantined { region, schedule, ptx_hash, ptx, device, verdict };
            quarantine.insert(known.ptx_hash.clone(), known);
        }
        Ok(Self { quarantine, corpus: BTreeMap::new() })
    }

    pub(crate) fn quarantined(&self) -> impl Iterator<Item = &Quarantined> {
        self.quarantine.values()
    }

    /// Why a text must not run.
    pub(crate) fn forbids(&self, ptx_hash: &str) -> Option<&Verdict> {
        self.quarantine.get(ptx_hash).map(|known| &known.verdict)
    }

    /// Inputs that kernels of the region have to meet.
    pub(crate) fn corpus(
        &mut self,
        evidence: &Evidence,
        region: &Region,
    ) -> Result<Vec<Counterexample>, EvidenceError> {
        let kind = kind_of(region);
        if let Some(known) = self.corpus.get(&kind) {
            return Ok(known.clone());
        }
        let rows = evidence.counterexamples(&kind)?;
        let read = rows.iter().filter_map(|row| serde_json::from_str(&row.entry).ok());
        let known: Vec<Counterexample> = read.take(MOST_KEPT).collect();
        self.corpus.insert(kind, known.clone());
        Ok(known)
    }

    /// Remembers what a verification found, if it is worth it.
    pub(crate) fn learn(
        &mut self,
        evidence: &Evidence,
        device: &str,
        subject: &Subject,
        prepared: &Prepared,
        verification: &Verification,
    ) -> Result<(), EvidenceError> {
        let verdict = &verification.verdict;
        if verdict.is_dangerous() && self.forbids(&prepared.ptx_hash).is_none() {
            let kernel = Quarantined {
                region: subject.hash.clone(),
                schedule: prepared.schedule.to_string(),
                ptx_hash: prepared.ptx_hash.clone(),
                ptx: prepared.ptx.clone(),
                device: device.to_owned(),
                verdict: verdict.clone(),
            };
            tracing::warn!(schedule = kernel.schedule, %verdict, "quarantined");
            evidence.insert_quarantined(&QuarantineRow {
                region: kernel.region.clone(),
                schedule: kernel.schedule.clone(),
                ptx_hash: kernel.ptx_hash.clone(),
                device: kernel.device.clone(),
                method: METHOD.to_owned(),
                reason: verdict.to_string(),
                entry: serde_json::to_string(verdict).expect("a verdict serialises"),
                ptx: kernel.ptx.clone(),
            })?;
            self.quarantine.insert(kernel.ptx_hash.clone(), kernel);
        }
        if let Some(found) = Counterexample::of(&subject.region.graph, verification) {
            let kind = kind_of(&subject.region);
            let row = CounterexampleRow {
                kind: kind.clone(),
                region: subject.hash.clone(),
                entry: serde_json::to_string(&found).expect("text serialises"),
                failure: verdict.to_string(),
            };
            if evidence.insert_counterexample(&row)? {
                let known = self.corpus.entry(kind).or_default();
                if known.len() < MOST_KEPT {
                    known.push(found);
                }
            }
        }
        Ok(())
    }
}
