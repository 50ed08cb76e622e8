//! What the rest of the compiler calls: which families can compute a region, how, and the kernel.

use eggine_ir::schedule::{PointwiseSchedule, Schedule};
use eggine_ir::{Graph, Layout, Region, Value};

use crate::bindings::Binding;
use crate::kir::Kernel;
use crate::predict::{self, CPU_DEVICE, Chip, Prediction};
use crate::{contraction, math, pointwise, row};

/// A kernel family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// See `pointwise.rs`.
    Pointwise,
    /// See `row.rs`.
    Row,
    /// See `contraction.rs`.
    Contraction,
}

/// A region as code.
#[derive(Clone, Debug, PartialEq)]
pub struct Lowered {
    /// The kernel.
    pub kernel: Kernel,
    /// What its parameters are, in order.
    pub bindings: Vec<Binding>,
}

/// Why a schedule does not fit a region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Illegal {
    /// The family cannot compute the region in one kernel.
    #[error("the {family} family cannot compute this region in one kernel")]
    Family {
        /// Name of the family.
        family: &'static str,
    },
    /// A parameter is outside what the family implements.
    #[error("`{parameter}` is {value}; it has to be {allowed}")]
    Parameter {
        /// Name in the schedule's text.
        parameter: &'static str,
        /// Its value.
        value: u32,
        /// What would be legal.
        allowed: &'static str,
    },
    /// A block would need more than it can have.
    #[error("a block needs {needed} {resource}, but can have {available}")]
    Resource {
        /// Of what.
        resource: &'static str,
        /// How much.
        needed: usize,
        /// The limit.
        available: usize,
    },
    /// No kernel can hold a value of the region.
    #[error("{node}: {reason}")]
    Unsupported {
        /// The node, as printed.
        node: String,
        /// Why.
        reason: &'static str,
    },
}

/// Why a region was not lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// The schedule does not fit.
    #[error("schedule {schedule} does not fit: {illegal}")]
    Illegal {
        /// The schedule.
        schedule: Schedule,
        /// Why.
        illegal: Illegal,
    },
}

/// Operations that a thread may do for one output element in the pointwise family.
const MAX_WORK_PER_ELEM: f64 = 4e6;

/// Operations that the pointwise family may write out.
const MAX_STATIC_OPS: f64 = 20_000.0;

fn is_bounded(graph: &Graph) -> bool {
    let n_elems =
        graph.outputs.iter().map(|&output| graph.ty(output).n_elems()).max().unwrap_or(1).max(1);
    let fits = |work: predict::Work| {
        work.n_ops <= MAX_WORK_PER_ELEM * n_elems as f64 && work.n_static <= MAX_STATIC_OPS
    };
    predict::thread_work(graph).is_some_and(fits)
}

/// The first thing in a region that no family can do, with the reason.
fn unsupported(region: &Region) -> Option<(String, &'static str)> {
    let row_major = |layout: &Layout, value: Value| {
        *layout == Layout::row_major(&region.graph.ty(value).extents())
    };
    let loads = region.loads.iter().zip(region.graph.inputs());
    let mut stores = region.stores.iter().zip(region.graph.outputs.iter().copied());
    if let Some((_, value)) =
        loads.chain(stores.by_ref()).find(|(layout, value)| !row_major(layout, *value))
    {
        return Some((
            format!("{value}: {}", region.graph.ty(value)),
            "its layout is not row-major",
        ));
    }
    math::unsupported(&region.graph)
}

/// The families that can compute a region in one kernel, best first by the model of the cpu device.
pub fn classify(region: &Region) -> Vec<Family> {
    classify_on(region, &CPU_DEVICE)
}

/// The families that can compute a region in one kernel, best first by the model of the chip.
pub fn classify_on(region: &Region, chip: &Chip) -> Vec<Family> {
    first_choices(region, chip).into_iter().map(|(family, ..)| family).collect()
}

/// Each family that can compute a region in one kernel, with its first schedule and what the model
/// says of it, best first.
pub fn first_choices(region: &Region, chip: &Chip) -> Vec<(Family, Schedule, Prediction)> {
    if region.graph.outputs.is_empty() || unsupported(region).is_some() {
        return Vec::new();
    }
    let mut choices: Vec<(Family, Schedule, Prediction)> = Vec::new();
    for family in [Family::Contraction, Family::Row, Family::Pointwise] {
        if let Some(schedule) = schedule_of(region, family)
            && let Some(prediction) = predict::predict(region, &schedule, chip)
        {
            choices.push((family, schedule, prediction));
        }
    }
    choices.sort_by(|a, b| a.2.ns.total_cmp(&b.2.ns));
    choices
}

/// The schedule that is tried first on the cpu device.
pub fn first_schedule(region: &Region) -> Option<Schedule> {
    first_schedule_on(region, &CPU_DEVICE)
}

/// The schedule that is tried first: a good one of the family that is best by the model of the chip.
pub fn first_schedule_on(region: &Region, chip: &Chip) -> Option<Schedule> {
    first_choices(region, chip).first().map(|(_, schedule, _)| *schedule)
}

/// The first schedule within a family, if it can compute the region in one kernel.
pub fn schedule_of(region: &Region, family: Family) -> Option<Schedule> {
    if family != Family::Pointwise && pointwise::has_packed_output(&region.graph) {
        return None;
    }
    match family {
        Family::Pointwise if !is_bounded(&region.graph) => None,
        Family::Pointwise => Some(Schedule::Pointwise(pointwise::first_schedule(&region.graph))),
        Family::Row => row::first_schedule(&region.graph).map(Schedule::Row),
        Family::Contraction => {
            contraction::first_schedule(&region.graph).map(Schedule::Contraction)
        }
    }
}

/// Legal schedules one move away, each with the move's name.
pub fn neighbours(region: &Region, schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let moves: Vec<(&'static str, Schedule)> = match schedule {
        Schedule::Pointwise(s) => {
            let moves = pointwise::neighbours(&region.graph, s);
            moves.into_iter().map(|(name, s)| (name, Schedule::Pointwise(s))).collect()
        }
        Schedule::Row(s) => {
            row::neighbours(s).into_iter().map(|(name, s)| (name, Schedule::Row(s))).collect()
        }
        Schedule::Contraction(s) => contraction::neighbours(s)
            .into_iter()
            .map(|(name, s)| (name, Schedule::Contraction(s)))
            .collect(),
    };
    moves.into_iter().filter(|(_, schedule)| check(region, schedule).is_ok()).collect()
}

/// Whether a schedule fits a region.
///
/// # Errors
///
/// The first reason why it does not.
pub fn check(region: &Region, schedule: &Schedule) -> Result<(), Illegal> {
    if let Some((node, reason)) = unsupported(region) {
        return Err(Illegal::Unsupported { node, reason });
    }
    let packed = pointwise::has_packed_output(&region.graph);
    match schedule {
        Schedule::Row(_) if packed => Err(Illegal::Family { family: "row" }),
        Schedule::Contraction(_) if packed => Err(Illegal::Family { family: "contraction" }),
        Schedule::Pointwise(_) if !is_bounded(&region.graph) => {
            Err(Illegal::Family { family: "pointwise" })
        }
        Schedule::Pointwise(s) => check_pointwise(s),
        Schedule::Row(s) => row::check(&region.graph, s),
        Schedule::Contraction(s) => contraction::check(&region.graph, s),
    }
}

pub(crate) fn parameter(
    parameter: &'static str,
    value: u32,
    ok: bool,
    allowed: &'static str,
) -> Result<(), Illegal> {
    if ok { Ok(()) } else { Err(Illegal::Parameter { parameter, value, allowed }) }
}

pub(crate) fn check_threads(threads: u32) -> Result<(), Illegal> {
    parameter(
        "threads",
        threads,
        (32..=1024).contains(&threads) && threads.is_multiple_of(32),
        "a multiple of 32 up to 1024",
    )
}

fn check_pointwise(s: &PointwiseSchedule) -> Result<(), Illegal> {
    check_threads(s.threads)?;
    parameter("vector", s.vector, matches!(s.vector, 1 | 2 | 4), "1, 2 or 4")?;
    parameter(
        "elems",
        s.elems,
        (1..=16).contains(&s.elems) && s.elems.is_multiple_of(s.vector),
        "a multiple of `vector` up to 16",
    )
}

/// The kernel of a region under a schedule.
///
/// # Errors
///
/// If the schedule does not fit the region: what [`check`] says.
pub fn lower(region: &Region, schedule: &Schedule) -> Result<Lowered, LowerError> {
    check(region, schedule)
        .map_err(|illegal| LowerError::Illegal { schedule: *schedule, illegal })?;
    let name = format!("{}_kernel", schedule.family());
    let lowered = match schedule {
        Schedule::Pointwise(s) => Some(pointwise::lower(&region.graph, s, &name)),
        Schedule::Row(s) => row::lower(&region.graph, s, &name),
        Schedule::Contraction(s) => contraction::lower(&region.graph, s, &name),
    };
    let (kernel, bindings) = lowered.expect("`check` found the family's plan");
    Ok(Lowered { kernel, bindings })
}
