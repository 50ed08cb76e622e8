//! The recompute agent: a value may be computed in several kernels instead of being stored for them.
//!
//! It adds no terms: that a consumer may compute what it would load is the fuser's axiom. It permits
//! extraction to use this for values with several users; without it, every computation that does more
//! than move elements is in one kernel.

use crate::agent::{Agent, Budget, Extraction, Proposal, View};

/// Permits computing a value in each kernel that needs it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recompute;

impl Agent for Recompute {
    fn name(&self) -> &'static str {
        "recompute"
    }

    fn propose(&self, _: &View<'_>, _: Budget) -> Vec<Proposal> {
        Vec::new()
    }

    fn extraction(&self) -> Extraction {
        Extraction { recompute: true }
    }
}
