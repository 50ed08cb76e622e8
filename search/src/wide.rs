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
use eggine_ir::padded::{NotPaddable, Padded, crop, poisoned};
use eggine_ir::{Graph, NodeKind, Tensor};
use eggine_runtime::program::{
    HostValue, InputRange, NoSpecialise, Observer, Program, Session, Situation, Specialise,
    StageRun, WideRecord,
};
use eggine_runtime::{DeviceError, IoSpec, RunError};

use crate::job::{Budget, Job};
use crate::program::Specialiser;
use crate::progress::ProgressMode;
use crate::race::random_input;

/// Differences between two evaluations in `f64` that sum in another order, relative to the largest element.
const TOLERANCE: f64 = 1e-9;

/// Adds engines for all shapes up to each of the points and up to the largest; says what came of it.
pub(crate) fn widen(
    job: &Job,
    program: &mut Program,
    points: &[Vec<HostValue>],
    interrupt: &AtomicBool,
) -> Vec<String> {
    let ranges = program.manifest.ranges.clone();
    let varies = |range: &InputRange| range.dims.iter().flatten().any(|dim| dim.min < dim.max);
    if !ranges.iter().any(varies) {
        return Vec::new();
    }
    // What the host decides by depends on values, and without it on shapes alone.
    let evaluates = !program.manifest.host_steps.is_empty();
    let ends = points.iter().map(|point| resized(program, point, &ranges, |dim, _| dim.max));
    let largest: Vec<Vec<HostValue>> = points.iter().cloned().chain(ends).collect();
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    for most in largest {
        let least = resized(program, &most, &ranges, |dim, _| dim.min);
        let near = nearby(program, &most, &least, &ranges);
        let near = near.map(|values| situations(program, &values, evaluates)).unwrap_or_default();
        let at_least = situations(program, &least, evaluates);
        for part in situations(program, &most, evaluates) {
            let text = types(&part);
            let known =
                |record: &WideRecord| record.family == part.family && record.most == part.types;
            if lines.contains_key(&text) || program.manifest.wide.iter().any(known) {
                continue;
            }
            let find = |all: &[Situation]| all.iter().find(|it| it.family == part.family).cloned();
            let others: Vec<Situation> =
                [find(&near), find(&at_least)].into_iter().flatten().collect();
            let made = padded(&part, &others)
                .and_then(|(padded, less)| add(job, program, (&part, less), &padded, interrupt));
            let line = match made {
                Ok(()) => format!("one engine for all shapes up to {text}"),
                Err(reason) => {
                    format!("an engine for each shape up to {text}, made when it comes: {reason}")
                }
            };
            lines.insert(text, line);
        }
    }
    lines.into_values().collect()
}

fn types(part: &Situation) -> String {
    let types = part.types.iter().map(|spec| {
        let extents: Vec<String> = spec.extents.iter().map(usize::to_string).collect();
        format!("{}: {}[{}]", spec.name, spec.dtype, extents.join(","))
    });
    types.collect::<Vec<_>>().join(", ")
}

/// The inputs with other extents where they have a range: random values.
fn resized(
    program: &Program,
    values: &[HostValue],
    ranges: &[InputRange],
    extent: impl Fn(&eggine_runtime::program::DimRange, usize) -> usize,
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

/// The inputs one step towards the smallest shapes, in as many steps as keep all extents whole: what holds
/// between extents at both ends holds there, too. `None` if that is the smallest itself.
fn nearby(
    program: &Program,
    most: &[HostValue],
    least: &[HostValue],
    ranges: &[InputRange],
) -> Option<Vec<HostValue>> {
    let extents = |values: &[HostValue]| -> Vec<usize> {
        values.iter().filter_map(HostValue::extents).flatten().copied().collect()
    };
    let differences = extents(most).into_iter().zip(extents(least)).map(|(a, b)| a - b.min(a));
    let n_steps = differences.fold(0, gcd);
    if n_steps < 2 {
        return None;
    }
    Some(resized(program, most, ranges, |dim, n| n - n.saturating_sub(dim.min) / n_steps))
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

/// The padded part, and at which of the other shapes it was made.
fn padded<'a>(
    part: &Situation,
    others: &'a [Situation],
) -> Result<(Padded, &'a Situation), String> {
    let mut reason = "it is another part at other shapes".to_owned();
    for less in others {
        let made = Padded::of(&part.part.graph, &less.part.graph);
        // What was made of two shapes has to serve the third.
        let serves = |padded: Padded| -> Result<Padded, NotPaddable> {
            for other in others {
                padded.at(&other.part.graph)?;
            }
            Ok(padded)
        };
        match made.and_then(serves) {
            Ok(padded) => return Ok((padded, less)),
            Err(err) => reason = err.to_string(),
        }
    }
    Err(reason)
}

/// Whether the padded graph gives what the part gives, whatever is where no element is.
fn check(padded: &Padded, less: &Graph) -> Result<(), String> {
    let at = padded.at(less).map_err(|err| err.to_string())?;
    let inputs: Vec<Tensor> = (less.inputs().enumerate())
        .map(|(seed, input)| {
            let NodeKind::Input { name, .. } = &less.nodes[input].kind else { unreachable!() };
            let (dtype, extents) = (less.ty(input).dtype, less.ty(input).extents());
            random_input(&IoSpec { name: name.clone(), dtype, extents }, seed as u64)
        })
        .collect();
    let expected = eval(less, &inputs, Rounding::None);
    let mut wide: Vec<Tensor> =
        inputs.iter().zip(&at.inputs).map(|(input, axes)| poisoned(input, axes)).collect();
    wide.extend(at.extra.iter().cloned());
    let found = eval(&padded.graph, &wide, Rounding::None);
    for (nth, ((expected, found), axes)) in expected.iter().zip(&found).zip(&at.outputs).enumerate()
    {
        let expected = expected.to_tensor().to_f64();
        let found = crop(&found.to_tensor(), axes).to_f64();
        let largest =
            expected.iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs()));
        let same = |(a, b): (&f64, &f64)| {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= TOLERANCE * largest
        };
        if !expected.iter().zip(&found).all(same) {
            return Err(format!("output {nth} of the padded part is wrong at a smaller shape"));
        }
    }
    Ok(())
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
