//! A candidate with its buffers on a device: guarded, poisoned and checked.

use eggine_ir::{DType, Region, Tensor};

use super::inputs::Family;
use super::{Candidate, CandidateBuffer, Verdict, VerifyOptions};
use crate::device::{Device, DeviceError, DevicePtr, Launch, LaunchAttributes};
use crate::plan::ARENA_ALIGN_BYTES;

/// NaN in every float type, so that an element that nobody wrote (or that came from outside a buffer)
/// shows in every number that it reaches.
const POISON: u8 = 0xFF;
/// For integers −1 may be the right answer: every other family has another poison.
const INT_POISON: [u8; 2] = [0xFF, 0xA5];

/// One buffer of a candidate.
struct Place<'a> {
    what: CandidateBuffer<'a>,
    base: DevicePtr,
    /// From the base of the allocation to the buffer.
    lead_bytes: usize,
    n_bytes: usize,
    /// What an input or a table holds.
    contents: Option<Tensor>,
}

/// An output as it lies on the device after a run.
pub(super) struct RawOutput {
    /// Which output of the region.
    pub(super) index: usize,
    /// The bits.
    pub(super) tensor: Tensor,
    /// What its bytes were before the run.
    pub(super) poison: u8,
}

/// A candidate with its buffers on a device. Must be given to [`free`](Self::free).
pub struct Resident<'a> {
    places: Vec<Place<'a>>,
    launch: Launch,
    ptx_hash: String,
    guard_bytes: usize,
    /// Between the base of an allocation and its buffer: the guard band, and after a move the least
    /// alignment that an engine promises, so that a kernel that needs more is found out.
    lead_bytes: usize,
    /// Most bytes that all allocations may take.
    memory_bytes: usize,
    output_types: Vec<(DType, Vec<usize>)>,
    poison: Vec<u8>,
}

impl<'a> Resident<'a> {
    /// As [`new`](Self::new) with what the options say; a candidate that the device does not take, or
    /// that does not fit, gets its verdict.
    ///
    /// # Errors
    ///
    /// The device's own, but for what is the candidate's doing.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub fn load(
        device: &mut dyn Device,
        region: &Region,
        candidate: &Candidate<'a>,
        options: &VerifyOptions,
    ) -> Result<Result<Self, Verdict>, DeviceError> {
        match Self::within(device, region, candidate, options.guard_bytes, options.memory_bytes) {
            Ok(resident) => Ok(Ok(resident)),
            Err(DeviceError::Load { reason }) => Ok(Err(Verdict::DoesNotLoad { reason })),
            Err(DeviceError::OutOfMemory { n_bytes }) => Ok(Err(Verdict::DoesNotFit { n_bytes })),
            Err(err) => Err(err),
        }
    }

    /// Loads the kernel and allocates its buffers.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Load`] if the device does not take the PTX; other errors are the device's own.
    ///
    /// # Panics
    ///
    /// If the candidate names inputs or outputs that the region lacks.
    pub fn new(
        device: &mut dyn Device,
        region: &Region,
        candidate: &Candidate<'a>,
        guard_bytes: usize,
    ) -> Result<Self, DeviceError> {
        Self::within(device, region, candidate, guard_bytes, usize::MAX)
    }

    fn within(
        device: &mut dyn Device,
        region: &Region,
        candidate: &Candidate<'a>,
        guard_bytes: usize,
        memory_bytes: usize,
    ) -> Result<Self, DeviceError> {
        let graph = &region.graph;
        let typed = |value| (graph.ty(value).dtype, graph.ty(value).extents());
        let output_types: Vec<(DType, Vec<usize>)> =
            graph.outputs.iter().map(|&value| typed(value)).collect();
        let guard_bytes =
            if device.info().checks_bounds { 0 } else { guard_bytes.next_multiple_of(256) };
        let module = device.load(candidate.ptx)?;
        let (entry, grid, block) = (candidate.entry.to_owned(), candidate.grid, candidate.block);
        let launch = Launch {
            module,
            entry,
            grid,
            block,
            params: Vec::new(),
            attributes: LaunchAttributes::default(),
        };
        let poison = vec![POISON; output_types.len()];
        let mut resident = Self {
            places: Vec::new(),
            launch,
            ptx_hash: crate::engine::hash_text(candidate.ptx),
            guard_bytes,
            lead_bytes: guard_bytes,
            memory_bytes,
            output_types,
            poison,
        };
        for what in &candidate.buffers {
            // The size of a packed input is known when it is packed: see `write_inputs`.
            let n_bytes = match what {
                CandidateBuffer::Input { index, .. } => {
                    let value = graph.inputs().nth(*index).expect("the region has this input");
                    graph.ty(value).n_bytes()
                }
                CandidateBuffer::Output { index } => {
                    let (dtype, extents) = &resident.output_types[*index];
                    dtype.bytes_for(extents.iter().product())
                }
                CandidateBuffer::Table(table) => table.bytes.len(),
            };
            let placed = resident.place(device, what.clone(), n_bytes);
            if let Err(err) = placed {
                // The first error is the one that matters.
                drop(resident.free(device));
                return Err(err);
            }
        }
        Ok(resident)
    }

    fn place(
        &mut self,
        device: &mut dyn Device,
        what: CandidateBuffer<'a>,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        let lead_bytes = self.lead_bytes;
        let base = self.alloc(device, n_bytes, lead_bytes)?;
        let contents =
            if let CandidateBuffer::Table(table) = &what { Some(table.clone()) } else { None };
        let start = base.plus(self.lead_bytes as u64);
        self.launch.params.push(start.0);
        self.places.push(Place { what, base, lead_bytes, n_bytes, contents });
        match &self.places[self.places.len() - 1].contents {
            Some(table) => device.write(start, &table.bytes),
            None => Ok(()),
        }
    }

    fn alloc(
        &self,
        device: &mut dyn Device,
        n_bytes: usize,
        lead_bytes: usize,
    ) -> Result<DevicePtr, DeviceError> {
        let all_bytes = n_bytes + lead_bytes + self.guard_bytes;
        let others: usize = self.places.iter().map(|place| place.n_bytes).sum();
        if others.saturating_add(all_bytes) > self.memory_bytes {
            return Err(DeviceError::OutOfMemory { n_bytes: all_bytes });
        }
        let base = device.alloc(all_bytes)?;
        if self.guard_bytes > 0 {
            device.fill(base, all_bytes, POISON)?;
        }
        Ok(base)
    }

    /// Hash of the text that was loaded: what a row of evidence must name.
    pub fn ptx_hash(&self) -> &str {
        &self.ptx_hash
    }

    /// Gives every buffer another address, with no more alignment than an engine promises: what a kernel
    /// kept about the old addresses, or assumed about them, is worth nothing afterwards. The contents of
    /// inputs and outputs are undefined then, tables move along.
    ///
    /// # Errors
    ///
    /// The device's own.
    pub fn move_buffers(&mut self, device: &mut dyn Device) -> Result<(), DeviceError> {
        if self.guard_bytes > 0 && self.lead_bytes == self.guard_bytes {
            // The device's own alignment is larger, so this one is exact.
            self.lead_bytes += ARENA_ALIGN_BYTES as usize;
        }
        let mut old = Vec::with_capacity(self.places.len());
        for nth in 0..self.places.len() {
            // The old one is kept until the end, so that the new one is elsewhere.
            let lead_bytes = self.lead_bytes;
            let base = match self.alloc(device, self.places[nth].n_bytes, lead_bytes) {
                // Without memory for both it stays where it is.
                Err(DeviceError::OutOfMemory { .. }) => continue,
                other => other?,
            };
            self.places[nth].lead_bytes = lead_bytes;
            old.push(std::mem::replace(&mut self.places[nth].base, base));
            let start = self.start(&self.places[nth]);
            self.launch.params[nth] = start.0;
            if let CandidateBuffer::Table(table) = &self.places[nth].what {
                device.write(start, &table.bytes)?;
            }
        }
        old.into_iter().try_for_each(|base| device.free(base))
    }

    /// Changes one element of every input to another of its elements, so that no two runs that are timed
    /// see the same inputs: a result that is kept by the inputs' hash is then never found. `nth` decides
    /// which element.
    ///
    /// # Errors
    ///
    /// The device's own.
    pub fn freshen(&mut self, device: &mut dyn Device, nth: u64) -> Result<(), DeviceError> {
        for position in 0..self.places.len() {
            let CandidateBuffer::Input { .. } = self.places[position].what else { continue };
            let start = self.start(&self.places[position]);
            let Some(tensor) = &self.places[position].contents else { continue };
            let (width, n_elems) = (tensor.dtype.bits() / 8, tensor.n_elems() as u64);
            if width == 0 || n_elems < 2 {
                continue;
            }
            // Neighbouring elements differ in every family; 7919 is prime, so that all take turns.
            let to = nth.wrapping_mul(7919) % n_elems;
            let from = ((to + 1 + nth % (n_elems - 1)) % n_elems) as usize * width;
            device.write(start.plus(to * width as u64), &tensor.bytes[from..from + width])?;
        }
        Ok(())
    }

    /// The launch with all parameters bound.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Copies the region's inputs to where the kernel reads them, packed as it wants them.
    ///
    /// # Errors
    ///
    /// The device's own.
    pub fn write_inputs(
        &mut self,
        device: &mut dyn Device,
        inputs: &[Tensor],
    ) -> Result<(), DeviceError> {
        for nth in 0..self.places.len() {
            let CandidateBuffer::Input { index, pack } = self.places[nth].what else { continue };
            let tensor = pack.map_or_else(|| inputs[index].clone(), |pack| pack(&inputs[index]));
            if tensor.bytes.len() != self.places[nth].n_bytes {
                let lead_bytes = self.places[nth].lead_bytes;
                let base = self.alloc(device, tensor.bytes.len(), lead_bytes)?;
                device.free(std::mem::replace(&mut self.places[nth].base, base))?;
                self.places[nth].n_bytes = tensor.bytes.len();
                self.launch.params[nth] = self.start(&self.places[nth]).0;
            }
            device.write(self.start(&self.places[nth]), &tensor.bytes)?;
            self.places[nth].contents = Some(tensor);
        }
        Ok(())
    }

    /// Poisons the outputs.
    ///
    /// # Errors
    ///
    /// The device's own.
    pub fn poison_outputs(
        &mut self,
        device: &mut dyn Device,
        family: Family,
    ) -> Result<(), DeviceError> {
        for place in &self.places {
            let CandidateBuffer::Output { index } = place.what else { continue };
            let float = self.output_types[index].0.is_float();
            let poison = if float { POISON } else { INT_POISON[family as usize % 2] };
            device.fill(self.start(place), place.n_bytes, poison)?;
            if self.guard_bytes == 0 {
                // Poison is no value that a kernel may read.
                device.forget(place.base)?;
            }
            self.poison[index] = poison;
        }
        Ok(())
    }

    fn start(&self, place: &Place<'_>) -> DevicePtr {
        place.base.plus(place.lead_bytes as u64)
    }

    /// The first changed byte of a guard band: parameter, and distance from the start of its buffer.
    pub(super) fn broken_guard(
        &self,
        device: &mut dyn Device,
    ) -> Result<Option<(usize, i64)>, DeviceError> {
        let (mut lead, mut band) = (Vec::new(), vec![0; self.guard_bytes]);
        for (nth, place) in self.places.iter().enumerate() {
            lead.resize(place.lead_bytes, 0);
            device.read(place.base, &mut lead)?;
            // The byte nearest to the buffer says most.
            if let Some(at) = lead.iter().rposition(|&byte| byte != POISON) {
                return Ok(Some((nth, at as i64 - place.lead_bytes as i64)));
            }
            device.read(self.start(place).plus(place.n_bytes as u64), &mut band)?;
            if let Some(at) = band.iter().position(|&byte| byte != POISON) {
                return Ok(Some((nth, (place.n_bytes + at) as i64)));
            }
        }
        Ok(None)
    }

    /// The first changed byte of an input or a table: parameter and offset.
    pub(super) fn modified_input(
        &self,
        device: &mut dyn Device,
    ) -> Result<Option<(usize, usize)>, DeviceError> {
        let mut found = Vec::new();
        for (nth, place) in self.places.iter().enumerate() {
            let Some(contents) = &place.contents else { continue };
            found.resize(place.n_bytes, 0);
            device.read(self.start(place), &mut found)?;
            if found[..] != contents.bytes[..] {
                let at = found.iter().zip(contents.bytes.iter()).position(|(a, b)| a != b);
                return Ok(Some((nth, at.expect("they differ"))));
            }
        }
        Ok(None)
    }

    /// The outputs, in order of the parameters.
    pub(super) fn read_outputs(
        &self,
        device: &mut dyn Device,
    ) -> Result<Vec<RawOutput>, DeviceError> {
        let mut outputs = Vec::new();
        for place in &self.places {
            let CandidateBuffer::Output { index } = place.what else { continue };
            let mut bytes = vec![0; place.n_bytes];
            device.read(self.start(place), &mut bytes)?;
            let (dtype, extents) = &self.output_types[index];
            let tensor = Tensor::new(*dtype, extents, bytes);
            outputs.push(RawOutput { index, tensor, poison: self.poison[index] });
        }
        Ok(outputs)
    }

    /// Gives buffers and module back.
    ///
    /// # Errors
    ///
    /// The device's own.
    pub fn free(self, device: &mut dyn Device) -> Result<(), DeviceError> {
        device.unload(self.launch.module);
        self.places.iter().try_for_each(|place| device.free(place.base))
    }
}
