//! The agents that come with Eggine.

mod algebraist;
mod fuser;
mod layouter;
mod tiler;

pub use algebraist::Algebraist;
pub use fuser::Fuser;
pub use layouter::Layouter;
pub use tiler::Tiler;

use std::sync::Arc;

use crate::agent::Agent;
use crate::rule::{RuleError, Soundness};

/// All agents that rewrite graphs, in the order in which their proposals are applied.
///
/// # Errors
///
/// If a row of a rule table is malformed.
pub fn built_in(soundness: Soundness) -> Result<Vec<Arc<dyn Agent>>, RuleError> {
    Ok(vec![
        Arc::new(Fuser::new(soundness)?),
        Arc::new(Layouter::new(soundness)?),
        Arc::new(Algebraist::new(soundness)?),
    ])
}
