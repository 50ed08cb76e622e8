//! A device whose kernels are closures and whose clock is a closure.
//!
//! It exists for tests of everything that judges kernels: a fake kernel can lie in every way that a
//! real one could, at will.

use std::collections::BTreeMap;

use super::{Device, DeviceError, DeviceInfo, DevicePtr, Launch, ModuleId, Peak};

/// What a fake kernel does: memory, parameters, and how many times this kernel ran before.
pub type FakeKernel =
    Box<dyn FnMut(&mut FakeMemory, &[u64], u64) -> Result<(), DeviceError> + Send>;

/// How long a launch seems to take: name of the kernel, and how many times it ran before.
pub type FakeClock = Box<dyn FnMut(&str, u64) -> u64 + Send>;

/// Work that a fake kernel left behind: it is done when everything is waited for.
pub type FakeLateWork = Box<dyn FnOnce(&mut FakeMemory) + Send>;

/// Memory of a [`FakeDevice`]: allocations far apart, so that nothing overflows into a neighbour.
#[derive(Default)]
pub struct FakeMemory {
    allocations: BTreeMap<u64, Vec<u8>>,
    next: u64,
    late: Vec<FakeLateWork>,
    capacity_bytes: Option<usize>,
}

/// Distance between the ends of neighbouring allocations.
const GAP_BYTES: u64 = 1 << 16;

impl FakeMemory {
    fn range(&mut self, address: u64, n_bytes: usize) -> Result<&mut [u8], DeviceError> {
        let bad = DeviceError::BadAddress { address, n_bytes };
        let Some((base, bytes)) = self.allocations.range_mut(..=address).next_back() else {
            return Err(bad);
        };
        let start = usize::try_from(address - base).map_err(|_| bad.clone())?;
        let end = start.checked_add(n_bytes).ok_or_else(|| bad.clone())?;
        bytes.get_mut(start..end).ok_or(bad)
    }

    /// Leaves work to a later moment, as a kernel does that launches onto another stream: it is not done
    /// when the launch's clock stops, but when everything is waited for.
    pub fn later(&mut self, work: impl FnOnce(&mut FakeMemory) + Send + 'static) {
        self.late.push(Box::new(work));
    }

    /// Reads elements.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadAddress`], as for a wild access of a real kernel.
    pub fn read_f32(&mut self, address: u64, n_elems: usize) -> Result<Vec<f32>, DeviceError> {
        let bytes = self.range(address, 4 * n_elems)?;
        Ok(bytes
            .chunks_exact(4)
            .map(|c| f32::from_le_bytes(c.try_into().expect("four bytes")))
            .collect())
    }

    /// Writes elements.
    ///
    /// # Errors
    ///
    /// As [`read_f32`](Self::read_f32).
    pub fn write_f32(&mut self, address: u64, data: &[f32]) -> Result<(), DeviceError> {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.write(address, &bytes)
    }

    /// Reads bytes.
    ///
    /// # Errors
    ///
    /// As [`read_f32`](Self::read_f32).
    pub fn read(&mut self, address: u64, n_bytes: usize) -> Result<Vec<u8>, DeviceError> {
        Ok(self.range(address, n_bytes)?.to_vec())
    }

    /// Writes bytes.
    ///
    /// # Errors
    ///
    /// As [`read_f32`](Self::read_f32).
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.range(address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }
}

/// A device whose kernels and clock are closures.
pub struct FakeDevice {
    memory: FakeMemory,
    kernels: BTreeMap<String, (FakeKernel, u64)>,
    clock: FakeClock,
    host_clock: Option<FakeClock>,
    host_ns: u64,
    peak: Peak,
    modules: BTreeMap<u32, String>,
    next_module: u32,
}

impl Default for FakeDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeDevice {
    /// A device without kernels, on which every launch takes 1 µs.
    pub fn new() -> Self {
        Self {
            memory: FakeMemory { next: 0x1000_0000, ..FakeMemory::default() },
            kernels: BTreeMap::new(),
            clock: Box::new(|_, _| 1000),
            host_clock: None,
            host_ns: 0,
            peak: Peak::default(),
            modules: BTreeMap::new(),
            next_module: 0,
        }
    }

    /// Adds a kernel; it is in every module.
    pub fn kernel(
        &mut self,
        entry: impl Into<String>,
        run: impl FnMut(&mut FakeMemory, &[u64], u64) -> Result<(), DeviceError> + Send + 'static,
    ) -> &mut Self {
        self.kernels.insert(entry.into(), (Box::new(run), 0));
        self
    }

    /// Replaces the clock.
    pub fn clock(&mut self, clock: impl FnMut(&str, u64) -> u64 + Send + 'static) -> &mut Self {
        self.clock = Box::new(clock);
        self
    }

    /// Replaces the host's clock, which otherwise agrees with the device's: how long the host waits for a
    /// launch, from before it until everything is done.
    pub fn host_clock(
        &mut self,
        clock: impl FnMut(&str, u64) -> u64 + Send + 'static,
    ) -> &mut Self {
        self.host_clock = Some(Box::new(clock));
        self
    }

    /// Replaces what no kernel can exceed.
    pub fn set_peak(&mut self, peak: Peak) -> &mut Self {
        self.peak = peak;
        self
    }

    /// Gives the device so many bytes of memory.
    pub fn set_capacity(&mut self, n_bytes: usize) -> &mut Self {
        self.memory.capacity_bytes = Some(n_bytes);
        self
    }

    /// Number of allocations that have not been freed.
    pub fn n_allocations(&self) -> usize {
        self.memory.allocations.len()
    }

    /// Number of modules that have not been unloaded.
    pub fn n_modules(&self) -> usize {
        self.modules.len()
    }
}

impl Device for FakeDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "fake".into(),
            identity: "fake".into(),
            n_threads: 1,
            checks_bounds: false,
        }
    }

    fn alloc(&mut self, n_bytes: usize) -> Result<DevicePtr, DeviceError> {
        let used: usize = self.memory.allocations.values().map(Vec::len).sum();
        if self.memory.capacity_bytes.is_some_and(|capacity| used + n_bytes > capacity) {
            return Err(DeviceError::OutOfMemory { n_bytes });
        }
        let base = self.memory.next;
        self.memory.next = (base + n_bytes as u64 + GAP_BYTES).next_multiple_of(256);
        self.memory.allocations.insert(base, vec![0xCD; n_bytes]);
        Ok(DevicePtr(base))
    }

    fn free(&mut self, ptr: DevicePtr) -> Result<(), DeviceError> {
        let gone = self.memory.allocations.remove(&ptr.0);
        gone.map(drop).ok_or(DeviceError::BadAddress { address: ptr.0, n_bytes: 0 })
    }

    fn write(&mut self, ptr: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(ptr.0, bytes)
    }

    fn read(&mut self, ptr: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        bytes.copy_from_slice(self.memory.range(ptr.0, bytes.len())?);
        Ok(())
    }

    fn fill(&mut self, ptr: DevicePtr, n_bytes: usize, byte: u8) -> Result<(), DeviceError> {
        self.memory.range(ptr.0, n_bytes)?.fill(byte);
        Ok(())
    }

    /// A text that starts with `error:` does not load, for the reason that follows.
    fn load(&mut self, ptx: &str) -> Result<ModuleId, DeviceError> {
        if let Some(reason) = ptx.strip_prefix("error:") {
            return Err(DeviceError::Load { reason: reason.trim().to_owned() });
        }
        let id = self.next_module;
        self.next_module += 1;
        self.modules.insert(id, ptx.to_owned());
        Ok(ModuleId(id))
    }

    fn unload(&mut self, module: ModuleId) {
        self.modules.remove(&module.0);
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        self.time(std::slice::from_ref(launch), &mut Vec::new())
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        for work in std::mem::take(&mut self.memory.late) {
            work(&mut self.memory);
        }
        Ok(())
    }

    fn time(&mut self, launches: &[Launch], elapsed_ns: &mut Vec<u64>) -> Result<(), DeviceError> {
        for launch in launches {
            let entry = &launch.entry;
            let missing = || DeviceError::NoSuchKernel { entry: entry.clone() };
            if !self.modules.contains_key(&launch.module.0) {
                return Err(missing());
            }
            let (run, n_runs) = self.kernels.get_mut(entry).ok_or_else(missing)?;
            let nth = *n_runs;
            *n_runs += 1;
            run(&mut self.memory, &launch.params, nth).map_err(|err| match err {
                DeviceError::Fault { .. } => err,
                other => DeviceError::Fault { entry: entry.clone(), reason: other.to_string() },
            })?;
            let device_ns = (self.clock)(entry, nth);
            elapsed_ns.push(device_ns);
            self.host_ns += self.host_clock.as_mut().map_or(device_ns, |clock| clock(entry, nth));
        }
        Ok(())
    }

    fn host_ns(&mut self) -> u64 {
        self.host_ns
    }

    fn peak(&self) -> Peak {
        self.peak
    }

    fn evict_caches(&mut self) -> bool {
        true
    }
}
