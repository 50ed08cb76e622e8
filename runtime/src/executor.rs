//! Runs an engine on a device.
//!
//! A session allocates everything when it is made: arena, inputs, outputs; the weights are adopted from
//! the engine's mapping. A run copies inputs in, launches, and copies outputs out.

use std::time::Instant;

use eggine_ir::Tensor;

use crate::device::{Device, DeviceError, DevicePtr, GraphId, Launch, ModuleId};
use crate::engine::{Engine, sm_of};
use crate::plan::{Arg, IoSpec, Plan};

/// An engine on a device, ready to run. It owns the device: dropping it drops both.
pub struct Session {
    device: Box<dyn Device>,
    modules: Vec<ModuleId>,
    /// Where the weights begin that have this offset.
    weights: Vec<(u64, DevicePtr)>,
    arena: DevicePtr,
    plan: Plan,
    launches: Vec<Launch>,
    /// The launches recorded, on a device that gains by it.
    graph: Option<GraphId>,
    inputs: Vec<DevicePtr>,
    outputs: Vec<DevicePtr>,
    /// Where the bytes of each output are after a run, and how many.
    results: Vec<(DevicePtr, usize)>,
    elapsed_ns: Vec<u64>,
}

/// A run that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Too few or too many.
    #[error("the model takes {wanted} inputs ({names}), {given} were given")]
    InputCount {
        /// What the model takes.
        wanted: usize,
        /// Their names.
        names: String,
        /// What was given.
        given: usize,
    },
    /// Another element type or other extents.
    #[error("input {index} (`{name}`) is {found}, the engine was compiled for {wanted}")]
    InputType {
        /// Position.
        index: usize,
        /// Name in the model.
        name: String,
        /// What was given.
        found: String,
        /// What the engine takes.
        wanted: String,
    },
    /// The device fails.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device fails in one step.
    #[error("step {step} of the engine: {source}")]
    Step {
        /// Index of the step.
        step: usize,
        /// In the device's words.
        source: DeviceError,
    },
}

/// Time of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTiming {
    /// Wall-clock time of all launches, without copying inputs and outputs.
    pub total_ns: u64,
    /// Device time of each step, in order.
    pub step_ns: Vec<u64>,
}

impl Session {
    /// Loads an engine onto a device.
    ///
    /// # Errors
    ///
    /// If the device has no memory left or does not take a kernel.
    pub fn new(mut device: Box<dyn Device>, engine: &Engine) -> Result<Self, DeviceError> {
        let plan = engine.plan.clone();
        let modules = load(device.as_mut(), engine)?;
        let weights = match engine.is_in_pieces() {
            true => {
                let adopt = |(offset, bytes)| Ok((offset, device.adopt(bytes)?));
                engine.pieces().into_iter().map(adopt).collect::<Result<_, DeviceError>>()?
            }
            false => vec![(0, device.adopt(engine.weights().clone())?)],
        };
        let arena = device.alloc(plan.arena_bytes as usize)?;
        let mut session = Self {
            device,
            modules,
            weights,
            arena,
            launches: Vec::with_capacity(plan.steps.len()),
            graph: None,
            inputs: Vec::with_capacity(plan.inputs.len()),
            outputs: Vec::with_capacity(plan.outputs.len()),
            results: Vec::with_capacity(plan.outputs.len()),
            elapsed_ns: Vec::with_capacity(plan.steps.len()),
            plan,
        };
        let device = &mut session.device;
        for spec in &session.plan.inputs {
            session.inputs.push(device.alloc(spec.n_bytes())?);
        }
        for spec in &session.plan.outputs {
            session.outputs.push(device.alloc(spec.n_bytes())?);
        }
        // The plan was verified when the engine was opened: everything is inside its place.
        let address = |arg: &Arg| match *arg {
            Arg::Input(index) => session.inputs[index],
            Arg::Output(index) => session.outputs[index],
            Arg::InputPart { index, offset_bytes, .. } => session.inputs[index].plus(offset_bytes),
            Arg::OutputPart { index, offset_bytes, .. } => {
                session.outputs[index].plus(offset_bytes)
            }
            Arg::Arena { offset_bytes, .. } => arena.plus(offset_bytes),
            Arg::Weight { offset_bytes, .. } => {
                let at = session.weights.partition_point(|(offset, _)| *offset <= offset_bytes);
                // What holds no bytes may be where nothing is.
                at.checked_sub(1).map_or(arena, |at| {
                    let (offset, ptr) = session.weights[at];
                    ptr.plus(offset_bytes - offset)
                })
            }
        };
        for step in &session.plan.steps {
            let kernel = &session.plan.kernels[step.kernel];
            session.launches.push(Launch {
                module: session.modules[step.kernel],
                entry: kernel.entry.clone(),
                grid: kernel.grid,
                block: kernel.block,
                params: step.args.iter().map(|arg| address(arg).0).collect(),
                attributes: kernel.attributes,
            });
        }
        for (index, spec) in session.plan.outputs.iter().enumerate() {
            let alias = session.plan.aliases.iter().find(|alias| alias.output == index);
            let source = alias.map_or(session.outputs[index], |alias| address(&alias.source));
            session.results.push((source, spec.n_bytes()));
        }
        let io = session.plan.inputs.iter().chain(&session.plan.outputs);
        // Pieces begin at aligned addresses.
        session.device.reserve_io(io.map(|spec| spec.n_bytes().next_multiple_of(64)).sum())?;
        session.graph = session.device.record(&session.launches)?;
        Ok(session)
    }

    /// The inputs, in the model's order.
    pub fn inputs(&self) -> &[IoSpec] {
        &self.plan.inputs
    }

    /// The outputs, in the model's order.
    pub fn outputs(&self) -> &[IoSpec] {
        &self.plan.outputs
    }

    /// Kernels launched in a run.
    pub fn n_launches(&self) -> usize {
        self.launches.len()
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Runs the model.
    ///
    /// # Errors
    ///
    /// If the inputs are not what the engine takes, or a kernel faults.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, RunError> {
        self.write_inputs(inputs)?;
        self.enqueue()?;
        // Reading waits.
        self.read_outputs()
    }

    /// Checks the inputs and copies them to the device.
    ///
    /// # Errors
    ///
    /// If they are not what the engine takes.
    pub fn write_inputs(&mut self, inputs: &[Tensor]) -> Result<(), RunError> {
        if inputs.len() != self.plan.inputs.len() {
            let names: Vec<String> =
                self.plan.inputs.iter().map(|spec| format!("`{}`", spec.name)).collect();
            let (wanted, names) = (names.len(), names.join(", "));
            return Err(RunError::InputCount { wanted, names, given: inputs.len() });
        }
        for (index, (spec, tensor)) in self.plan.inputs.iter().zip(inputs).enumerate() {
            if tensor.dtype != spec.dtype || tensor.extents != spec.extents {
                let (name, found, wanted) =
                    (spec.name.clone(), tensor.ty().to_string(), spec.ty().to_string());
                return Err(RunError::InputType { index, name, found, wanted });
            }
        }
        for (&ptr, tensor) in self.inputs.iter().zip(inputs) {
            self.device.write(ptr, &tensor.bytes)?;
        }
        Ok(())
    }

    /// Launches every step, on the inputs that are on the device, and waits. Allocates nothing.
    ///
    /// # Errors
    ///
    /// If a kernel faults.
    pub fn launch(&mut self) -> Result<(), RunError> {
        self.enqueue()?;
        Ok(self.device.synchronize()?)
    }

    fn enqueue(&mut self) -> Result<(), RunError> {
        if let Some(graph) = self.graph {
            return Ok(self.device.replay(graph)?);
        }
        for (step, launch) in self.launches.iter().enumerate() {
            self.device.launch(launch).map_err(|source| RunError::Step { step, source })?;
        }
        Ok(())
    }

    /// Runs the model launch by launch and shows what each wrote: `observe(step, parameter, bytes)` for every
    /// parameter in the arena or in an output whose bytes the launch changed. Slow: all of them are read
    /// before and after.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_observed(
        &mut self,
        inputs: &[Tensor],
        observe: &mut dyn FnMut(usize, usize, &[u8]),
    ) -> Result<Vec<Tensor>, RunError> {
        self.write_inputs(inputs)?;
        for step in 0..self.launches.len() {
            let places: Vec<(usize, DevicePtr, usize)> = (self.plan.steps[step].args.iter())
                .enumerate()
                .filter_map(|(parameter, arg)| {
                    let n_bytes = match *arg {
                        Arg::Arena { n_bytes, .. } | Arg::OutputPart { n_bytes, .. } => {
                            n_bytes as usize
                        }
                        Arg::Output(index) => self.plan.outputs[index].n_bytes(),
                        _ => return None,
                    };
                    Some((parameter, DevicePtr(self.launches[step].params[parameter]), n_bytes))
                })
                .collect();
            let before = self.read_places(&places)?;
            let launch = &self.launches[step];
            self.device.launch(launch).map_err(|source| RunError::Step { step, source })?;
            self.device.synchronize()?;
            let after = self.read_places(&places)?;
            for (&(parameter, ..), (before, after)) in places.iter().zip(before.iter().zip(&after))
            {
                if before != after {
                    observe(step, parameter, after);
                }
            }
        }
        self.read_outputs()
    }

    fn read_places(
        &mut self,
        places: &[(usize, DevicePtr, usize)],
    ) -> Result<Vec<Vec<u8>>, RunError> {
        let mut all = Vec::with_capacity(places.len());
        for &(_, ptr, n_bytes) in places {
            let mut bytes = vec![0; n_bytes];
            self.device.read(ptr, &mut bytes)?;
            all.push(bytes);
        }
        Ok(all)
    }

    /// Makes kernels read input `index` from `source`, memory of the device that holds as many bytes, in
    /// place of the session's own, which [`write_inputs`](Self::write_inputs) still writes. An output that
    /// is a copy of the input stays one of the session's own.
    ///
    /// # Errors
    ///
    /// The device's own.
    ///
    /// # Panics
    ///
    /// If there is no such input.
    pub fn bind_input(&mut self, index: usize, source: DevicePtr) -> Result<(), DeviceError> {
        assert!(index < self.inputs.len(), "input {index} of {}", self.inputs.len());
        for (nth, step) in self.plan.steps.iter().enumerate() {
            let mut changed = false;
            for (arg, param) in step.args.iter().zip(&mut self.launches[nth].params) {
                let offset_bytes = match *arg {
                    Arg::Input(input) if input == index => 0,
                    Arg::InputPart { index: input, offset_bytes, .. } if input == index => {
                        offset_bytes
                    }
                    _ => continue,
                };
                *param = source.plus(offset_bytes).0;
                changed = true;
            }
            if let (true, Some(graph)) = (changed, self.graph) {
                self.device.rebind(graph, nth, &self.launches[nth])?;
            }
        }
        Ok(())
    }

    /// Copies the outputs from the device.
    ///
    /// # Errors
    ///
    /// The device's own.
    pub fn read_outputs(&mut self) -> Result<Vec<Tensor>, RunError> {
        let mut bytes: Vec<Vec<u8>> =
            self.results.iter().map(|&(_, n_bytes)| vec![0; n_bytes]).collect();
        let mut parts: Vec<(DevicePtr, &mut [u8])> = (self.results.iter().zip(&mut bytes))
            .map(|(&(ptr, _), bytes)| (ptr, bytes.as_mut_slice()))
            .collect();
        self.device.read_all(&mut parts)?;
        let outputs = bytes.into_iter().zip(&self.plan.outputs);
        Ok(outputs.map(|(bytes, spec)| Tensor::new(spec.dtype, &spec.extents, bytes)).collect())
    }

    /// Runs the launches `n_runs` times on the inputs that are on the device and times each run. Every
    /// sample is kept; warm up with [`launch`](Self::launch) before.
    ///
    /// # Errors
    ///
    /// If a kernel faults.
    pub fn time(&mut self, n_runs: usize) -> Result<Vec<RunTiming>, RunError> {
        let mut samples = Vec::with_capacity(n_runs);
        for _ in 0..n_runs {
            let start = Instant::now();
            self.launch()?;
            let total_ns = elapsed_ns(start);
            samples.push(RunTiming { total_ns, step_ns: Vec::new() });
        }
        Ok(samples)
    }

    /// As [`time`](Self::time), with the device time of every step: on a device that must wait after each
    /// to time it, the total is larger.
    ///
    /// # Errors
    ///
    /// If a kernel faults.
    pub fn time_steps(&mut self, n_runs: usize) -> Result<Vec<RunTiming>, RunError> {
        let mut samples = Vec::with_capacity(n_runs);
        for _ in 0..n_runs {
            self.elapsed_ns.clear();
            let start = Instant::now();
            self.device.time(&self.launches, &mut self.elapsed_ns)?;
            let total_ns = elapsed_ns(start);
            samples.push(RunTiming { total_ns, step_ns: self.elapsed_ns.clone() });
        }
        Ok(samples)
    }

    /// Gives the device back, with everything that the session put on it freed.
    ///
    /// # Errors
    ///
    /// The device's own.
    pub fn into_device(mut self) -> Result<Box<dyn Device>, DeviceError> {
        if let Some(graph) = self.graph {
            self.device.forget_graph(graph);
        }
        let buffers = self
            .inputs
            .iter()
            .chain(&self.outputs)
            .chain(self.weights.iter().map(|(_, ptr)| ptr))
            .chain([&self.arena]);
        buffers.copied().try_for_each(|ptr| self.device.free(ptr))?;
        self.modules.iter().for_each(|&module| self.device.unload(module));
        Ok(self.device)
    }
}

/// Loads every kernel: machine code for exactly this device if the engine has some, else the text.
fn load(device: &mut dyn Device, engine: &Engine) -> Result<Vec<ModuleId>, DeviceError> {
    let n_kernels = engine.plan.kernels.len();
    let texts: Vec<&str> = (0..n_kernels).map(|kernel| engine.ptx(kernel)).collect();
    let Some(sm) = device.architecture() else { return device.load_all(&texts) };
    if let Some(code) = engine.code_for(sm) {
        let mut modules = Vec::with_capacity(n_kernels);
        for kernel in 0..n_kernels {
            match device.load_cubin(engine.cubin(code, kernel)) {
                Ok(module) => modules.push(module),
                // A driver that refuses machine code, such as ours, gets the text.
                Err(DeviceError::Load { reason }) => {
                    tracing::warn!(reason, "machine code is refused; loading PTX");
                    modules.into_iter().for_each(|module| device.unload(module));
                    return device.load_all(&texts);
                }
                Err(other) => return Err(other),
            }
        }
        return Ok(modules);
    }
    let target = &engine.manifest.target;
    // Text for an architecture runs on it and on later ones; text for `sm_90a` on that one alone.
    let runs = sm_of(target)
        .is_none_or(|of_text| if target.ends_with('a') { of_text == sm } else { of_text <= sm });
    if !runs {
        let code: Vec<&str> =
            engine.manifest.code.iter().map(|record| record.target.as_str()).collect();
        let code = if code.is_empty() { "none".to_owned() } else { code.join(", ") };
        let reason = format!(
            "the engine has PTX for {target} (machine code: {code}), the device is sm_{sm}: compile the \
             model with --target sm_{sm}"
        );
        return Err(DeviceError::Load { reason });
    }
    device.load_all(&texts)
}

fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).expect("a run takes less than 500 years")
}
