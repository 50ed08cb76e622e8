//! Engines that serve a range of shapes, beside those of the points that a program is compiled for.
//!
//! A part of the model is imported at the largest shapes and at others of the range, and padded
//! (`eggine_ir::padded`). Before it is compiled, the padded graph is evaluated in `f64` with NaN in all places
//! that no element is in: it has to give what the part itself gives. Its kernels are verified like any
//! others, for arbitrary extents.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use eggine_ir::graph::{Rounding, eval};
use eggine_ir::onnx::Imported;
use eggine_ir::padded::Padded;
use eggine_ir::{Graph, NodeKind, Tensor};
use eggine_runtime::program::{
    DimRange, HostValue, InputRange, NoSpecialise, Observer, Program, Session, Situation,
    Specialise, StageRun, WideRecord,
};
use eggine_runtime::{DeviceError, IoSpec, RunError};

use crate::job::{Budget, Job};
use crate::program::Specialiser;
use crate::progress::ProgressMode;
use crate::race::random_input;

/// Differences between two evaluations in `f64` that sum in another order, relative to the largest element.
const TOLERANCE: f64 = 1e-9;

/// Kinds of extents that are looked at one by one.
const MAX_KINDS: usize = 6;

/// Adds engines for all shapes up to each of the points and up to the largest; says what came of it. Where the
/// host decides by what is computed, parts are evaluated to see how it goes on; else shapes are enough.
pub(crate) fn widen(
    job: &Job,
    program: &mut Program,
    points: &[Vec<HostValue>],
    evaluates: bool,
    interrupt: &AtomicBool,
) -> Vec<String> {
    let ranges = program.manifest.ranges.clone();
    let varies = |range: &InputRange| range.dims.iter().flatten().any(|dim| dim.min < dim.max);
    if !ranges.iter().any(varies) {
        return Vec::new();
    }
    let ends = points.iter().map(|point| resized(program, point, &ranges, |dim, _| dim.max));
    let largest: Vec<Vec<HostValue>> = points.iter().cloned().chain(ends).collect();
    let mut lines: BTreeMap<(String, String), String> = BTreeMap::new();
    for most in largest {
        let (probes, n_whole) = probes(program, &most, &ranges);
        let probes: Vec<Vec<Situation>> =
            probes.iter().map(|values| situations(program, values, evaluates)).collect();
        for part in situations(program, &most, evaluates) {
            let text = types(&part);
            let known =
                |record: &WideRecord| record.family == part.family && record.most == part.types;
            let known_as = (text.clone(), part.family.clone());
            if lines.contains_key(&known_as) || program.manifest.wide.iter().any(known) {
                continue;
            }
            let others =
                probes.iter().filter_map(|all| all.iter().find(|it| it.family == part.family));
            let others: Vec<&Situation> = others.collect();
            let is_whole = |less: &Situation| {
                probes[..n_whole].iter().flatten().any(|whole| std::ptr::eq(whole, less))
            };
            let made = padded(&part, &others, &is_whole).and_then(|(padded, less, left)| {
                add(job, program, (&part, less), &padded, interrupt).map(|()| left)
            });
            let line = match made {
                Ok(None) => format!("one engine for all shapes up to {text}"),
                Ok(Some(reason)) => format!(
                    "one engine for shapes up to {text}; for some one is made when they come: {reason}"
                ),
                Err(reason) => {
                    format!("an engine for each shape up to {text}, made when it comes: {reason}")
                }
            };
            lines.insert(known_as, line);
        }
    }
    let mut lines: Vec<String> = lines.into_values().collect();
    lines.dedup();
    lines
}

fn types(part: &Situation) -> String {
    part.types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The inputs with other extents where they have a range: random values.
fn resized(
    program: &Program,
    values: &[HostValue],
    ranges: &[InputRange],
    extent: impl Fn(&DimRange, usize) -> usize,
) -> Vec<HostValue> {
    let ports = program.model().description().inputs;
    let one = |(port, value): (&eggine_ir::onnx::Port, &HostValue)| {
        let range = ranges.iter().find(|range| range.name == port.name);
        let (Some(dims), Some(tensor)) = (range.and_then(|it| it.dims.as_ref()), value.tensor())
        else {
            return value.clone();
        };
        let extents: Vec<usize> =
            dims.iter().zip(&tensor.extents).map(|(dim, &n)| extent(dim, n)).collect();
        if extents == tensor.extents {
            return value.clone();
        }
        random_input(&IoSpec { name: port.name.clone(), dtype: tensor.dtype, extents }, 0).into()
    };
    ports.iter().zip(values).map(one).collect()
}

/// Other inputs of the range to look at, and how many of them, the first, differ in all that varies.
fn probes(
    program: &Program,
    most: &[HostValue],
    ranges: &[InputRange],
) -> (Vec<Vec<HostValue>>, usize) {
    // The extents that vary; what varies alike is likely one and the same.
    let mut kinds: Vec<(usize, usize)> = Vec::new();
    for (port, value) in program.model().description().inputs.iter().zip(most) {
        let range = ranges.iter().find(|range| range.name == port.name);
        let dims = range.and_then(|range| range.dims.as_ref()).into_iter().flatten();
        let varying = dims.zip(value.extents().unwrap_or_default());
        kinds.extend(varying.filter(|(dim, n)| **n > dim.min).map(|(dim, &n)| (n, dim.min)));
    }
    kinds.sort_unstable();
    kinds.dedup();
    let mut all = Vec::new();
    // One step towards the smallest, in as many steps as keep all extents whole: what holds between
    // extents at both ends holds there, too.
    let n_steps = kinds.iter().map(|&(n, min)| n - min).fold(0, gcd);
    if n_steps > 1 {
        all.push(resized(program, most, ranges, |dim, n| n - n.saturating_sub(dim.min) / n_steps));
    }
    all.push(resized(program, most, ranges, |dim, n| dim.min.min(n)));
    let n_whole = all.len();
    // Where not all go together, one by one.
    if kinds.len() > 1 {
        for &kind in kinds.iter().take(MAX_KINDS) {
            let one = |dim: &DimRange, n| if (n, dim.min) == kind { dim.min } else { n };
            all.push(resized(program, most, ranges, one));
        }
    }
    (all, n_whole)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The parts that a run on these inputs comes to. Nothing is compiled; a run that fails came to fewer.
fn situations(program: &Program, values: &[HostValue], evaluates: bool) -> Vec<Situation> {
    let mut observer = Evaluates(evaluates);
    let none = || Err(DeviceError::Unavailable { reason: "nothing is launched".into() });
    let mut session =
        Session::new(program.clone(), none, NoSpecialise).noting().observed(&mut observer);
    if let Err(reason) = session.run(values) {
        tracing::debug!(%reason, "a range is not looked at as a whole");
    }
    session.situations().to_vec()
}

/// Computes stages by the reference, or returns zeros of the right types.
struct Evaluates(bool);

impl Observer for Evaluates {
    fn wants_engines(&self) -> bool {
        false
    }

    fn stage(&mut self, run: StageRun<'_>) -> Result<Vec<Tensor>, RunError> {
        let graph = &run.part.graph;
        if self.0 {
            let outputs = eval(graph, run.inputs, Rounding::None);
            return Ok(outputs.iter().map(|array| array.to_tensor()).collect());
        }
        let zero = |ty: &eggine_ir::TensorType| {
            Tensor::new(ty.dtype, &ty.extents(), vec![0u8; ty.n_bytes()])
        };
        Ok(graph.output_types().into_iter().map(zero).collect())
    }
}

/// The padded part that serves most of the other shapes, which of them it was made with, and why it does not
/// serve all.
fn padded<'a>(
    part: &Situation,
    others: &[&'a Situation],
    is_whole: &dyn Fn(&Situation) -> bool,
) -> Result<(Padded, &'a Situation, Option<String>), String> {
    let mut reason = "it is another part at other shapes".to_owned();
    let mut best: Option<(usize, Padded, &'a Situation, Option<String>)> = None;
    for &less in others {
        let made = Padded::of(&part.part.graph, &less.part.graph);
        let made = made.and_then(|padded| padded.at(&part.part.graph).map(|_| padded));
        let padded = match made {
            Ok(padded) => padded,
            Err(err) => {
                reason = err.to_string();
                continue;
            }
        };
        // Of extents that only go together, one by one proves nothing.
        let refused: Vec<String> = (others.iter().filter(|other| is_whole(other)))
            .filter_map(|other| padded.at(&other.part.graph).err())
            .map(|err| err.to_string())
            .collect();
        if best.as_ref().is_none_or(|(n_refused, ..)| refused.len() < *n_refused) {
            best = Some((refused.len(), padded, less, refused.into_iter().next()));
        }
    }
    best.map(|(_, padded, less, left)| (padded, less, left)).ok_or(reason)
}

/// Whether the padded graph gives what the part gives, whatever is where no element is.
fn check(padded: &Padded, less: &Graph) -> Result<(), String> {
    let inputs: Vec<Tensor> = (less.inputs().enumerate())
        .map(|(seed, input)| {
            let NodeKind::Input { name, .. } = &less.nodes[input].kind else { unreachable!() };
            let (dtype, extents) = (less.ty(input).dtype, less.ty(input).extents());
            random_input(&IoSpec { name: name.clone(), dtype, extents }, seed as u64)
        })
        .collect();
    match padded.difference(less, &inputs).map_err(|err| err.to_string())? {
        difference if difference <= TOLERANCE => Ok(()),
        difference => Err(format!(
            "the padded part is wrong at a smaller shape (a relative difference of {difference:.1e})"
        )),
    }
}

/// Checks and compiles a padded part, and adds its engine.
fn add(
    job: &Job,
    program: &mut Program,
    (part, less): (&Situation, &Situation),
    padded: &Padded,
    interrupt: &AtomicBool,
) -> Result<(), String> {
    check(padded, &less.part.graph)?;
    let named = |value| match &padded.graph.nodes[value].kind {
        NodeKind::Input { name, .. } => (name.clone(), padded.graph.ty(value).clone()),
        _ => unreachable!("inputs are inputs"),
    };
    let wide = Imported {
        inputs: padded.graph.inputs().map(named).collect(),
        outputs: part.part.outputs.clone(),
        model: part.part.model.clone(),
        graph: padded.graph.clone(),
    };
    let text = format!("{} {:?} {:?}", part.family, part.types, less.types);
    let key = blake3::hash(text.as_bytes()).to_hex()[..32].to_owned();
    let mut quick = job.clone();
    quick.budget = Budget::First;
    quick.progress = ProgressMode::Silent;
    quick.resume = false;
    let engine = Specialiser::for_program(quick, program, interrupt)
        .engine(&wide, &key)
        .map_err(|err| err.to_string())?;
    program.extend(BTreeMap::from([(key.clone(), engine)]));
    program.manifest.wide.push(WideRecord {
        family: part.family.clone(),
        engine: key,
        most: part.types.clone(),
        less: less.types.clone(),
    });
    Ok(())
}
