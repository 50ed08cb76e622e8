//! The agents that come with Eggine, and a registry from which they are chosen by name.
//!
//! To add one: write it in a file of its own, describe it in `docs/agents/<name>.md`, and add a row
//! here. Users add theirs with [`Registry::add`], or pass any list of agents in
//! [`Options::agents`](crate::Options::agents).

mod algebraist;
mod fuser;
mod layouter;
mod memory;
mod recompute;
mod splitter;
mod tiler;

pub use algebraist::Algebraist;
pub use fuser::Fuser;
pub use layouter::Layouter;
pub use memory::Memory;
pub use recompute::Recompute;
pub use splitter::Splitter;
pub use tiler::Tiler;

use std::sync::Arc;

use crate::agent::Agent;
use crate::rule::{RuleError, Soundness};

/// What an agent works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The graph e-graph: which equal forms a model has.
    Graph,
    /// The kernel e-graphs: which schedules a region has.
    Kernel,
}

/// An agent by name.
#[derive(Clone, Copy, Debug)]
pub struct AgentRow {
    /// Unique, kebab-case; what the agent is logged under.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its page, from the root of the repository.
    pub page: &'static str,
    /// What it works on.
    pub level: Level,
    /// Makes it, with those of its rules that the soundness permits.
    pub make: fn(Soundness) -> Result<Arc<dyn Agent>, RuleError>,
}

/// The built-in agents of graphs, in the order in which their proposals are applied. (Those of kernels
/// know code generation's schedules, and are in `eggine-search`.)
#[rustfmt::skip] // One agent per row.
pub const BUILT_IN: &[AgentRow] = &[
    AgentRow { name: "fuser",             level: Level::Graph,  page: "docs/agents/fuser.md",       make: |s| Ok(Arc::new(Fuser::new(s)?)),      summary: "consumers compute what they would load; siblings are computed together" },
    AgentRow { name: "memory",            level: Level::Graph,  page: "docs/agents/memory.md",      make: |s| Ok(Arc::new(Memory::new(s)?)),     summary: "tensors that are other shapes, or the parts, of the same memory" },
    AgentRow { name: "layouter",          level: Level::Graph,  page: "docs/agents/layouter.md",    make: |s| Ok(Arc::new(Layouter::new(s)?)),   summary: "movement of elements composes, vanishes, and passes through operators" },
    AgentRow { name: "algebraist",        level: Level::Graph,  page: "docs/agents/algebraist.md",  make: |s| Ok(Arc::new(Algebraist::new(s)?)), summary: "identities, constants, the algebra of reductions and contractions" },
    AgentRow { name: "splitter",          level: Level::Graph,  page: "docs/agents/splitter.md",    make: |s| Ok(Arc::new(Splitter::new(s)?)),   summary: "long sums with few results are cut into parts that run side by side" },
    AgentRow { name: "recompute",         level: Level::Graph,  page: "docs/agents/recompute.md",   make: |_| Ok(Arc::new(Recompute)),           summary: "a value is computed in each kernel that needs it instead of being stored" },
];

/// A choice of agents that does not work out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Nobody has that name.
    #[error("there is no agent `{name}`; there are {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// All names.
        known: Vec<&'static str>,
    },
    /// Somebody has that name already.
    #[error("there is an agent `{name}` already")]
    Taken {
        /// The name.
        name: &'static str,
    },
    /// A rule of an agent is malformed.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

/// Agents by name: the built-in ones and a user's.
#[derive(Clone, Debug)]
pub struct Registry {
    rows: Vec<AgentRow>,
}

impl Default for Registry {
    fn default() -> Self {
        Self { rows: BUILT_IN.to_vec() }
    }
}

impl Registry {
    /// All agents, in the order in which their proposals are applied.
    pub fn rows(&self) -> &[AgentRow] {
        &self.rows
    }

    /// Adds an agent behind the others.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Taken`].
    pub fn add(&mut self, row: AgentRow) -> Result<(), RegistryError> {
        if self.rows.iter().any(|known| known.name == row.name) {
            return Err(RegistryError::Taken { name: row.name });
        }
        self.rows.push(row);
        Ok(())
    }

    fn check(&self, names: &[&str]) -> Result<(), RegistryError> {
        let unknown = names.iter().find(|name| self.rows.iter().all(|row| row.name != **name));
        unknown.map_or(Ok(()), |name| {
            let known = self.rows.iter().map(|row| row.name).collect();
            Err(RegistryError::Unknown { name: (*name).to_owned(), known })
        })
    }

    fn make(
        &self,
        soundness: Soundness,
        wanted: impl Fn(&AgentRow) -> bool,
    ) -> Result<Vec<Arc<dyn Agent>>, RegistryError> {
        let rows = self.rows.iter().filter(|row| wanted(row));
        rows.map(|row| (row.make)(soundness).map_err(RegistryError::from)).collect()
    }

    /// The agents of these names, in the order of the registry.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Unknown`]; [`RegistryError::Rule`].
    pub fn select(
        &self,
        names: &[&str],
        soundness: Soundness,
    ) -> Result<Vec<Arc<dyn Agent>>, RegistryError> {
        self.check(names)?;
        self.make(soundness, |row| names.contains(&row.name))
    }

    /// The agents of a level but for those of these names.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Unknown`]; [`RegistryError::Rule`].
    pub fn without(
        &self,
        level: Level,
        names: &[&str],
        soundness: Soundness,
    ) -> Result<Vec<Arc<dyn Agent>>, RegistryError> {
        self.check(names)?;
        self.make(soundness, |row| row.level == level && !names.contains(&row.name))
    }
}

/// All agents that rewrite graphs, in the order in which their proposals are applied.
///
/// # Errors
///
/// If a row of a rule table is malformed.
pub fn built_in(soundness: Soundness) -> Result<Vec<Arc<dyn Agent>>, RuleError> {
    let rows = BUILT_IN.iter().filter(|row| row.level == Level::Graph);
    rows.map(|row| (row.make)(soundness)).collect()
}
