//! Engines that serve a range: of a part of the model padded to the largest shapes (`eggine_ir::padded`).
//!
//! Such an engine takes the extents of a run as inputs, so a shape that was never seen needs an import and a
//! walk over two graphs (milliseconds), but no compilation. Where a part looks different at some shape, or
//! the file has no engine that is large enough, the session falls back to an engine of that very shape.

use std::collections::BTreeMap;
use std::time::Instant;

use eggine_ir::onnx::Imported;
use eggine_ir::onnx::part::{Bound, Model, Request, import_part};
use eggine_ir::padded::{At, Padded, crop, pad};
use eggine_ir::{Graph, Tensor, TensorType};
use serde::{Deserialize, Serialize};

use super::file::Program;
use crate::device::{Device, DeviceError};
use crate::executor;
use crate::plan::IoSpec;

/// Runs of each of several engines that could serve a shape, before one is chosen; the fastest counts.
const N_TRIES: usize = 3;

/// An engine that serves a range of shapes of one part of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WideRecord {
    /// What the part is known by, whatever the shapes.
    pub family: String,
    /// Key of its engine.
    pub engine: String,
    /// The largest types of what the part reads, by name.
    pub most: Vec<IoSpec>,
    /// The others that the padded graph was made with: what is equal in both does not vary.
    pub less: Vec<IoSpec>,
}

/// A part of the model as a run came to it.
#[derive(Clone, Debug)]
pub struct Situation {
    /// See [`WideRecord::family`].
    pub family: String,
    /// Types of what it reads, by name.
    pub types: Vec<IoSpec>,
    /// The part.
    pub part: Imported,
}

/// A padded part with its engine loaded.
struct Wide {
    padded: Padded,
    session: executor::Session,
}

/// The engines of a program that serve ranges, made ready when they are first needed.
#[derive(Default)]
pub(super) struct WideEngines {
    /// By key; `None`: not to be had.
    loaded: BTreeMap<String, Option<Wide>>,
}

/// How a stage runs on one of them.
pub(super) struct WideStage {
    engine: String,
    at: At,
}

impl WideEngines {
    /// The engine that serves a part at the shapes of `graph`; of several the fastest.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(super) fn find(
        &mut self,
        program: &Program,
        (model, request): (&Model, &Request<'_>),
        family: &str,
        graph: &Graph,
        open: &dyn Fn() -> Result<Box<dyn Device>, DeviceError>,
    ) -> Result<Option<WideStage>, DeviceError> {
        let mut fitting = Vec::new();
        for record in program.manifest.wide.iter().filter(|record| record.family == family) {
            if !fits(record, request.bound) {
                continue;
            }
            if !self.loaded.contains_key(&record.engine) {
                let wide = load(program, (model, request), record, open)?;
                self.loaded.insert(record.engine.clone(), wide);
            }
            let Some(wide) = &self.loaded[&record.engine] else { continue };
            match wide.padded.at(graph) {
                Ok(at) => fitting.push(WideStage { engine: record.engine.clone(), at }),
                Err(reason) => {
                    tracing::debug!(%reason, "an engine of a range does not serve this shape")
                }
            }
        }
        if fitting.len() < 2 {
            return Ok(fitting.pop());
        }
        let mut best = None;
        for stage in fitting {
            let ns = self.time(&stage, graph);
            if best.as_ref().is_none_or(|(least, _)| ns < *least) {
                best = Some((ns, stage));
            }
        }
        Ok(best.map(|(_, stage)| stage))
    }

    /// The least time of a few runs on zeros, in nanoseconds; an engine that fails takes forever.
    fn time(&mut self, stage: &WideStage, graph: &Graph) -> u128 {
        let zero = |ty: &TensorType| Tensor::new(ty.dtype, &ty.extents(), vec![0u8; ty.n_bytes()]);
        let inputs: Vec<Tensor> = graph.input_types().into_iter().map(zero).collect();
        let once = |it: &mut Self| {
            let started = Instant::now();
            it.run(stage, &inputs).map_or(u128::MAX, |_| started.elapsed().as_nanos())
        };
        (0..N_TRIES).map(|_| once(self)).min().unwrap_or(u128::MAX)
    }

    /// Runs a stage: inputs and outputs are those of its part at this shape.
    pub(super) fn run(
        &mut self,
        stage: &WideStage,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, executor::RunError> {
        let wide = self.loaded.get_mut(&stage.engine).and_then(Option::as_mut);
        let wide = wide.expect("a stage names an engine that was loaded");
        let mut all: Vec<Tensor> =
            inputs.iter().zip(&stage.at.inputs).map(|(input, axes)| pad(input, axes)).collect();
        all.extend(stage.at.extra.iter().cloned());
        let outputs = wide.session.run(&all)?;
        Ok(outputs.iter().zip(&stage.at.outputs).map(|(output, axes)| crop(output, axes)).collect())
    }

    pub(super) fn n_launches(&self, stage: &WideStage) -> usize {
        let wide = self.loaded.get(&stage.engine).and_then(Option::as_ref);
        wide.map_or(0, |wide| wide.session.n_launches())
    }
}

/// Whether nothing that a part reads is larger than an engine has room for.
fn fits(record: &WideRecord, bound: &BTreeMap<String, Bound>) -> bool {
    let tensors = bound.iter().filter_map(|(name, bound)| match bound {
        Bound::Tensor(ty) => Some((name, ty.extents())),
        _ => None,
    });
    let mut n_tensors = 0;
    let all = tensors.into_iter().all(|(name, extents)| {
        n_tensors += 1;
        record.most.iter().any(|most| {
            most.name == *name
                && most.extents.len() == extents.len()
                && most.extents.iter().zip(&extents).all(|(most, n)| n <= most)
        })
    });
    all && n_tensors == record.most.len()
}

/// What names are bound to, with tensors of other types.
fn with_types(bound: &BTreeMap<String, Bound>, types: &[IoSpec]) -> BTreeMap<String, Bound> {
    let mut bound = bound.clone();
    for spec in types {
        let ty = TensorType::fixed(spec.dtype, &spec.extents);
        bound.insert(spec.name.clone(), Bound::Tensor(ty));
    }
    bound
}

fn load(
    program: &Program,
    (model, request): (&Model, &Request<'_>),
    record: &WideRecord,
    open: &dyn Fn() -> Result<Box<dyn Device>, DeviceError>,
) -> Result<Option<Wide>, DeviceError> {
    let Some(engine) = program.engine(&record.engine) else { return Ok(None) };
    let import = |types: &[IoSpec]| {
        let bound = with_types(request.bound, types);
        import_part(model, &Request { bound: &bound, ..*request })
            .ok()
            .map(|part| part.imported.graph)
    };
    let Some(padded) = import(&record.most)
        .zip(import(&record.less))
        .and_then(|(most, less)| Padded::of(&most, &less).ok())
    else {
        return Ok(None);
    };
    // Of a file that was made by another version the inputs may be others.
    let wanted = padded.graph.input_types();
    let has = engine.plan.inputs.iter().map(|spec| TensorType::fixed(spec.dtype, &spec.extents));
    if !has.eq(wanted.into_iter().cloned()) {
        return Ok(None);
    }
    let session = executor::Session::new(open()?, &engine)?;
    Ok(Some(Wide { padded, session }))
}
