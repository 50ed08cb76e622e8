//! Looking at a run, and computing its stages in another way: what comparing a program layer by layer needs.

use std::fmt;

use eggine_ir::Tensor;
use eggine_ir::onnx::Imported;

use super::value::HostValue;
use crate::engine::Engine;
use crate::executor;

/// One iteration of a loop that the host goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// Path of the loop's node.
    pub node: String,
    /// From 0.
    pub nth: u64,
}

/// Where a run is.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// Path of the graph; empty for the main one.
    pub graph: &'a str,
    /// The loops around, outermost first.
    pub iterations: &'a [Iteration],
}

/// `the main graph`, or ``graph `decode/body`, iteration 3 of `decode` ``; iterations count from 0.
impl fmt::Display for Visit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.graph {
            "" => f.write_str("the main graph")?,
            graph => write!(f, "graph `{graph}`")?,
        }
        for Iteration { node, nth } in self.iterations.iter().rev() {
            write!(f, ", iteration {nth} of `{node}`")?;
        }
        Ok(())
    }
}

/// A stage that is about to run.
pub struct StageRun<'a> {
    /// Where.
    pub visit: Visit<'a>,
    /// What it computes.
    pub part: &'a Imported,
    /// Its inputs, in the part's order.
    pub inputs: &'a [Tensor],
    /// Its engine, and that loaded; `None` if the observer wants none.
    pub engine: Option<(&'a Engine, &'a mut executor::Session)>,
}

/// What a run has just found out.
#[derive(Debug)]
pub struct Step<'a> {
    /// Where.
    pub visit: Visit<'a>,
    /// The node of a host step; the first nodes of a stage.
    pub node: String,
    /// Operator of a host step; empty for a stage.
    pub op: &'a str,
    /// Results by name. What a branch or a loop decides is called `condition`.
    pub values: Vec<(&'a str, &'a HostValue)>,
}

/// Looks at a run.
pub trait Observer {
    /// Whether engines are made and loaded.
    fn wants_engines(&self) -> bool {
        true
    }

    /// Computes a stage: its outputs, in the part's order.
    ///
    /// # Errors
    ///
    /// If its engine does not run.
    fn stage(&mut self, run: StageRun<'_>) -> Result<Vec<Tensor>, executor::RunError>;

    /// A stage or a host step was done, or a branch or a loop has decided. What is inside of a branch or a
    /// loop comes before its results.
    fn step(&mut self, step: Step<'_>) {
        let _ = step;
    }
}
