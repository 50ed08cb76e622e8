//! Measures a device with kernels of ours and refits the constants of its static model: `eggine calibrate`.
//!
//! Every probe is a region under a schedule, verified like any kernel and timed alone; what it tells of
//! the device (bytes or operations per ns) is shown, and the constants are fitted to all probes at once.
//! Latency and the rates of the second-level cache and of shared memory are measured alone
//! ([`isolated`]) and are not fitted. The constants are kept as evidence of the device, and compilations
//! with that evidence use them.

mod isolated;

use eggine_codegen_ptx::predict::chips::GPUS;
use eggine_codegen_ptx::predict::fit::fit;
use eggine_codegen_ptx::{CPU_DEVICE, Chip, H200, Target, first_choices, neighbours, predict};
use eggine_ir::schedule::PointwiseSchedule;
use eggine_ir::{Region, Schedule};
use eggine_runtime::{Device, DeviceError};
use serde::{Deserialize, Serialize};

use crate::evidence::{Evidence, EvidenceError, Note};
use crate::phases::Phases;
use crate::workshop::{Origin, Subject, Workshop, WorkshopError, prepare};

/// How much an unsure constant is drawn to its old value: the loss of a tenth of a doubling.
const PULL: f64 = 0.02;

pub use isolated::Isolated;

/// One thing measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// What it is about: `copy, cached`.
    pub name: String,
    /// How.
    pub schedule: String,
    /// Median time of a launch.
    pub measured_ns: f64,
    /// What the static model said before.
    pub before_ns: f64,
    /// What it says with the new constants.
    pub after_ns: f64,
    /// What follows of the device.
    pub value: f64,
    /// In this unit.
    pub unit: String,
}

/// A constant of the static model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    /// Its name in the chip's row.
    pub name: String,
    /// As it was.
    pub before: f64,
    /// As it is fitted.
    pub after: f64,
}

/// What a calibration found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Identity of the device.
    pub device: String,
    /// Row of the static model that was fitted.
    pub chip: String,
    /// What was measured.
    pub probes: Vec<Probe>,
    /// What was measured alone.
    #[serde(default)]
    pub isolated: Vec<Isolated>,
    /// The constants.
    pub constants: Vec<Constant>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    /// Geometric mean of how far predictions were from measurements, as a factor; before and after.
    pub error: (f64, f64),
}

/// Why a device cannot be calibrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The device.
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
    /// The evidence.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// Judging.
    #[error(transparent)]
    Workshop(#[from] WorkshopError),
    /// A probe is wrong on the device.
    #[error("probe `{probe}` ({schedule}) is wrong on the device: {verdict}")]
    Wrong {
        /// Its name.
        probe: String,
        /// Its schedule.
        schedule: String,
        /// In the words of verification.
        verdict: String,
    },
}

/// The row of the static model that fits a device best: by its name, else by its architecture.
pub fn chip_of(device: &dyn Device) -> Chip {
    let Some(sm) = device.architecture() else { return CPU_DEVICE };
    let name = device.info().name.to_lowercase().replace(' ', "");
    let by_name = GPUS.iter().find(|chip| name.contains(chip.name));
    let by_target = GPUS.iter().find(|chip| chip.target.spec().sm == sm);
    by_name.or(by_target).copied().map_or(H200, Chip::Gpu)
}

/// A chip with the constants that the evidence has of a device.
///
/// # Errors
///
/// If the evidence cannot be read. What is not of this chip, or unreadable, is as if it were not there.
pub fn calibrated(evidence: &Evidence, device: &str, chip: Chip) -> Result<Chip, EvidenceError> {
    let text = evidence.note(Note::Calibration, device)?;
    let known = text.and_then(|text| serde_json::from_str::<Calibration>(&text).ok());
    let known = known.filter(|it| it.chip == chip.name());
    Ok(known.map_or(chip, |it| {
        let constant = |name: &str| it.constants.iter().find(|c| c.name == name).map(|c| c.after);
        let values: Vec<f64> =
            chip.constants().iter().map(|(name, old)| constant(name).unwrap_or(*old)).collect();
        chip.with_constants(&values)
    }))
}

/// A region, the schedules to measure it under, and what its time tells.
struct Plan {
    name: &'static str,
    text: String,
    schedules: Schedules,
    /// Numerator of the value, per launch, and its unit; `None`: the time itself.
    amount: Option<(f64, &'static str)>,
}

enum Schedules {
    /// The best by the model.
    First,
    /// That, and the neighbours that the model finds best and worst.
    Around,
    /// This one.
    Only(Schedule),
}

fn plans(chip: &Chip) -> Vec<Plan> {
    // More than any cache: twice the last level, in and out together.
    let large = match chip {
        Chip::Cpu(_) => 1 << 22,
        Chip::Gpu(chip) => ((chip.l2_bytes / 4.0) as usize).next_power_of_two(),
    };
    let (cached, maps) = (1 << 18, 1 << 16);
    let copy = |n: usize| format!("graph @g(v0: f32[{n}]) {{\n v1 = relu v0\n return v1\n}}\n");
    let mut chain = format!("graph @g(v0: f32[{maps}], v1: f32[1]) {{\n");
    for at in 0..16 {
        let (x, product, sum) = (if at == 0 { 0 } else { 2 * at + 1 }, 2 * at + 2, 2 * at + 3);
        chain += &format!(" v{product} = mul v{x}, v1\n v{sum} = add v{product}, v1\n");
    }
    chain += " return v33\n}\n";
    let product = |n: usize| {
        format!(
            "graph @g(v0: f32[{n},{n}], v1: weight f32[{n},{n}]) {{\n v2 = matmul v0, v1\n return v2\n}}\n"
        )
    };
    let flops = |n: usize| 2.0 * (n as f64).powi(3);
    let one_warp = PointwiseSchedule { threads: 32, elems: 1, vector: 1 };
    vec![
        Plan {
            name: "launch of several blocks",
            text: copy(4096),
            schedules: Schedules::First,
            amount: None,
        },
        Plan {
            name: "copy, from memory",
            text: copy(large),
            schedules: Schedules::First,
            amount: Some((8.0 * large as f64, "bytes/ns")),
        },
        Plan {
            name: "copy, cached",
            text: copy(cached),
            schedules: Schedules::Around,
            amount: Some((8.0 * cached as f64, "bytes/ns")),
        },
        Plan {
            name: "transpose, cached",
            text: "graph @g(v0: f32[512,512]) {\n v1 = transpose v0 {perm=[1,0]}\n return v1\n}\n".into(),
            schedules: Schedules::First,
            amount: Some((8.0 * 512.0 * 512.0, "bytes/ns")),
        },
        Plan {
            name: "multiplications and additions",
            text: chain,
            schedules: Schedules::First,
            amount: Some((32.0 * maps as f64, "operations/ns")),
        },
        Plan {
            name: "exponentials and row sums",
            text: "graph @g(v0: f32[256,1024]) {\n v1 = reduce_max v0 {axes=[1]}\n v2 = sub v0, v1\n v3 = exp v2\n v4 = reduce_sum v3 {axes=[1]}\n v5 = div v3, v4\n return v5\n}\n".into(),
            schedules: Schedules::Around,
            amount: Some((256.0 * 1024.0, "elements/ns")),
        },
        Plan {
            name: "fused multiply-adds, large tiles",
            text: product(512),
            schedules: Schedules::Around,
            amount: Some((flops(512), "flop/ns")),
        },
        Plan {
            name: "fused multiply-adds, small product",
            text: product(128),
            schedules: Schedules::Around,
            amount: Some((flops(128), "flop/ns")),
        },
        Plan {
            name: "dependent loads and additions of one warp",
            text: "graph @g(v0: f32[32,2048]) {\n v1 = reduce_sum v0 {axes=[1]}\n return v1\n}\n".into(),
            schedules: Schedules::Only(Schedule::Pointwise(one_warp)),
            amount: Some((2048.0, "steps/ns")),
        },
    ]
}

fn schedules(plan: &Plan, region: &Region, chip: &Chip) -> Vec<Schedule> {
    let Some(&(_, first, _)) = first_choices(region, chip).first() else { return Vec::new() };
    match plan.schedules {
        Schedules::Only(schedule) => vec![schedule],
        Schedules::First => vec![first],
        Schedules::Around => {
            let mut ranked: Vec<(f64, Schedule)> = neighbours(region, &first)
                .into_iter()
                .filter_map(|(_, it)| Some((predict(region, &it, chip)?.ns, it)))
                .collect();
            ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let ends = ranked.first().into_iter().chain(ranked.last()).map(|it| it.1);
            std::iter::once(first).chain(ends).collect()
        }
    }
}

/// Measures a device and fits the constants of its static model.
///
/// # Errors
///
/// See [`CalibrateError`].
pub fn calibrate(
    device: Box<dyn Device>,
    target: Target,
    seed: u64,
) -> Result<Calibration, CalibrateError> {
    let chip = chip_of(device.as_ref());
    let identity = device.info().identity;
    // What was measured before does not count: clocks change.
    let fresh = Evidence::in_memory()?;
    let mut workshop = Workshop::new(device, &fresh, target, seed, Phases::default());
    let isolated = isolated::measure(workshop.device.as_mut(), target, &chip)?;
    let mut probes = Vec::new();
    let mut points: Vec<(Region, Schedule, f64)> = Vec::new();
    for plan in plans(&chip) {
        let graph = eggine_ir::graph::parse(&plan.text).expect("the probes' texts are ours");
        let region = Region::contiguous(graph);
        let subject = Subject { hash: region.hash_hex(), region };
        for schedule in schedules(&plan, &subject.region, &chip) {
            let wrong = |verdict: String| CalibrateError::Wrong {
                probe: plan.name.to_owned(),
                schedule: schedule.to_string(),
                verdict,
            };
            let prepared = prepare(&subject, &schedule, target).map_err(wrong)?;
            let origin = Origin { agent: "calibrate", tiling_move: "probe", parent: "" };
            let row = workshop.judge(&subject, &schedule, &prepared, None, origin)?;
            if !row.passed() {
                return Err(wrong(row.verdict));
            }
            let before = predict(&subject.region, &schedule, &chip).map_or(0.0, |told| told.ns);
            let (value, unit) = match plan.amount {
                Some((amount, unit)) => (amount / row.median_ns, unit),
                None => (row.median_ns, "ns"),
            };
            probes.push(Probe {
                name: plan.name.to_owned(),
                schedule: schedule.to_string(),
                measured_ns: row.median_ns,
                before_ns: before,
                after_ns: 0.0,
                value,
                unit: unit.to_owned(),
            });
            points.push((subject.region.clone(), schedule, row.median_ns));
        }
    }
    let old: Vec<(&'static str, f64)> = chip.constants();
    let start: Vec<f64> = old.iter().map(|it| it.1).collect();
    let known: Vec<(String, f64)> = isolated.iter().filter_map(|it| it.constant.clone()).collect();
    let new = refit(&chip, &points, &known);
    let fitted = chip.with_constants(&new);
    for (probe, (region, schedule, _)) in probes.iter_mut().zip(&points) {
        probe.after_ns = predict(region, schedule, &fitted).map_or(0.0, |told| told.ns);
    }
    let constants = old.iter().zip(start.iter().zip(&new));
    let constants = constants.map(|((name, _), (&before, &after))| Constant {
        name: (*name).to_owned(),
        before,
        after,
    });
    Ok(Calibration {
        device: identity,
        chip: chip.name().to_owned(),
        constants: constants.collect(),
        probes,
        isolated,
        skipped: vec!["matrix rates: no kernel family uses matrix units".to_owned()],
        error: (factor(&chip, &points), factor(&fitted, &points)),
    })
}

/// Keeps a calibration as evidence of its device, in the place of an earlier one.
///
/// # Errors
///
/// If the file cannot be written.
pub fn keep(evidence: &Evidence, calibration: &Calibration) -> Result<(), EvidenceError> {
    let text = serde_json::to_string(calibration).expect("numbers and names serialise");
    evidence.set_note(Note::Calibration, &calibration.device, &text)
}

fn squares(chip: &Chip, points: &[(Region, Schedule, f64)]) -> f64 {
    let one = |(region, schedule, ns): &(Region, Schedule, f64)| {
        predict(region, schedule, chip).map_or(0.0, |told| (told.ns / ns).ln().powi(2))
    };
    points.iter().map(one).sum::<f64>() / points.len().max(1) as f64
}

/// Root mean square of the logarithm of predicted over measured, as a factor.
fn factor(chip: &Chip, points: &[(Region, Schedule, f64)]) -> f64 {
    squares(chip, points).sqrt().exp()
}

/// Constants that predict the points best, some of them known; those that the points tell nothing of stay.
fn refit(chip: &Chip, points: &[(Region, Schedule, f64)], known: &[(String, f64)]) -> Vec<f64> {
    let is_known = |name: &str| known.iter().find(|it| it.0 == name).map(|it| it.1);
    let all = chip.constants();
    let free: Vec<f64> =
        all.iter().filter(|(name, _)| is_known(name).is_none()).map(|it| it.1).collect();
    let with = |values: &[f64]| -> Vec<f64> {
        let mut values = values.iter();
        let value = |(name, old): &(&str, f64)| {
            is_known(name).unwrap_or_else(|| values.next().copied().unwrap_or(*old))
        };
        all.iter().map(value).collect()
    };
    let loss = |values: &[f64]| {
        let moved: f64 = values.iter().zip(&free).map(|(a, b)| (a / b).ln().powi(2)).sum();
        squares(&chip.with_constants(&with(values)), points) + PULL * moved / free.len() as f64
    };
    with(&fit(&free, 600, loss).0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    /// Points that another chip would give lead to that chip's constants, as far as they tell of them.
    #[test]
    fn constants_are_found_from_times_that_they_made() {
        let truth: Vec<f64> = CPU_DEVICE
            .constants()
            .iter()
            .zip([2.0, 0.5, 1.0, 3.0, 1.0, 0.3])
            .map(|(it, f)| it.1 * f)
            .collect();
        let chip = CPU_DEVICE.with_constants(&truth);
        let mut points = Vec::new();
        for plan in plans(&CPU_DEVICE) {
            let region = Region::contiguous(eggine_ir::graph::parse(&plan.text).unwrap());
            for schedule in schedules(&plan, &region, &CPU_DEVICE) {
                let ns = predict(&region, &schedule, &chip).unwrap().ns;
                points.push((region.clone(), schedule, ns));
            }
        }
        assert!(factor(&CPU_DEVICE, &points) > 1.3, "there is something to find");
        let found = CPU_DEVICE.with_constants(&refit(&CPU_DEVICE, &points, &[]));
        assert!(factor(&found, &points) < 1.1, "{}", factor(&found, &points));
        // What is known is not fitted.
        let known = [(CPU_DEVICE.constants()[2].0.to_owned(), 123.0)];
        let found = refit(&CPU_DEVICE, &points, &known);
        assert_eq!(found[2], 123.0);
        assert!(found.iter().zip(&truth).any(|(a, b)| (a / b - 1.0).abs() < 0.3), "{found:?}");
    }

    #[test]
    fn a_calibration_is_used_for_its_device_and_chip_alone() {
        let evidence = Evidence::in_memory().unwrap();
        let constants = CPU_DEVICE.constants();
        let calibration = Calibration {
            device: "here".into(),
            chip: CPU_DEVICE.name().into(),
            probes: Vec::new(),
            isolated: Vec::new(),
            constants: vec![Constant { name: constants[0].0.into(), before: 1.0, after: 7.0 }],
            skipped: Vec::new(),
            error: (1.0, 1.0),
        };
        keep(&evidence, &calibration).unwrap();
        let here = calibrated(&evidence, "here", CPU_DEVICE).unwrap();
        assert_eq!(here.constants()[0].1, 7.0);
        assert_eq!(here.constants()[1..], constants[1..]);
        assert_eq!(calibrated(&evidence, "there", CPU_DEVICE).unwrap(), CPU_DEVICE);
        assert_eq!(calibrated(&evidence, "here", H200).unwrap(), H200);
    }
}
