//! Checking mode: what of memory has been written, and who accessed shared memory since the last barrier.
//! Counting uses the same hook, which sees every memory access before it happens.
//!
//! Shared memory has a [`Granule`] per word (per byte if the kernel has sub-word accesses). Between two
//! barriers a granule may be read by all warps, or read and written by one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::counters::{Class, Counters};
use crate::fault::{FaultKind, Space};
use crate::program::{Ctx, LANES, PendingCopy, Program, Uop, UopInfo};

const NOTHING: u8 = 0;
const EVERYTHING: u8 = 1;
const SOME: u8 = 2;

/// Which bytes of a global allocation have been written.
pub(crate) struct Initialised {
    state: AtomicU8,
    /// A bit per byte, if the state is `SOME`.
    bits: OnceLock<Vec<AtomicU8>>,
}

impl Initialised {
    pub(crate) const fn none() -> Self {
        Initialised { state: AtomicU8::new(NOTHING), bits: OnceLock::new() }
    }

    pub(crate) const fn all() -> Self {
        Initialised { state: AtomicU8::new(EVERYTHING), bits: OnceLock::new() }
    }

    /// Everything is written: an unchecked launch may have done so.
    pub(crate) fn mark_all(&self) {
        self.state.store(EVERYTHING, Ordering::Relaxed);
    }

    /// Bytes `offset..offset + n_bytes` of an allocation of `size` are written.
    pub(crate) fn mark(&self, offset: usize, n_bytes: usize, size: usize) {
        match self.state.load(Ordering::Relaxed) {
            EVERYTHING => return,
            _ if offset == 0 && n_bytes == size => return self.mark_all(),
            _ => self.state.store(SOME, Ordering::Relaxed),
        }
        let bits =
            self.bits.get_or_init(|| (0..size.div_ceil(8)).map(|_| AtomicU8::new(0)).collect());
        for byte in offset..offset + n_bytes {
            bits[byte / 8].fetch_or(1 << (byte % 8), Ordering::Relaxed);
        }
    }

    /// The first byte of the range that is not written.
    pub(crate) fn first_missing(&self, offset: usize, n_bytes: usize) -> Option<usize> {
        match (self.state.load(Ordering::Relaxed), self.bits.get()) {
            (EVERYTHING, _) => None,
            (SOME, Some(bits)) => (offset..offset + n_bytes)
                .find(|b| bits[b / 8].load(Ordering::Relaxed) & 1 << (b % 8) == 0),
            _ => (n_bytes > 0).then_some(offset),
        }
    }
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) space: Space,
    pub(crate) is_store: bool,
    /// A read-modify-write.
    pub(crate) is_atomic: bool,
    /// Of one lane.
    pub(crate) n_bytes: u32,
}

impl Access {
    /// Of an instruction, from its mnemonic. Asynchronous copies are not accesses; see [`Checker::before`].
    pub(crate) fn of(op: eggine_ptx::table::Op) -> Option<Access> {
        let mut parts = op.spec().mnemonic.split('.');
        let head = parts.next()?;
        let space = match parts.next()? {
            "global" => Space::Global,
            "shared" => Space::Shared,
            _ => return None,
        };
        let rest: Vec<&str> = parts.collect();
        let n = if rest.contains(&"v4") {
            4
        } else if rest.contains(&"v2") {
            2
        } else {
            1
        };
        let size = match *rest.last()? {
            "u8" | "s8" => 1,
            "b16" => 2,
            "u64" | "f64" => 8,
            _ => 4,
        };
        let (is_store, is_atomic) = match head {
            "ld" => (false, false),
            "st" => (true, false),
            "red" | "atom" => (true, true),
            _ => return None,
        };
        Some(Access { space, is_store, is_atomic, n_bytes: n * size })
    }
}

/// Shadow of a piece of shared memory. Epoch 0 is before the block began.
#[derive(Clone, Copy, Debug, Default)]
struct Granule {
    write_epoch: u32,
    write_warp: u32,
    write_line: u32,
    read_epoch: u32,
    /// [`SEVERAL`] if more than one warp read in this epoch.
    read_warp: u32,
    read_line: u32,
    /// Line of a `cp.async` that will write it.
    pending_line: u32,
    is_written: bool,
}

const SEVERAL: u32 = u32::MAX;

/// The shadow state of a worker.
pub(crate) struct Checker {
    is_checking: bool,
    pub(crate) counters: Counters,
    granules: Vec<Granule>,
    granule_bytes: u32,
    /// Barriers passed, plus one.
    epoch: u32,
    /// By slot; valid during the launch.
    global: Vec<*const Initialised>,
}

impl Checker {
    pub(crate) fn new(
        is_checking: bool,
        program: &Program,
        global: Vec<*const Initialised>,
    ) -> Self {
        let is_sub_word = |i: &UopInfo| {
            Access::of(i.op).is_some_and(|a| a.space == Space::Shared && a.n_bytes < 4)
        };
        let granule_bytes = if program.infos.iter().any(is_sub_word) { 1 } else { 4 };
        let n = if is_checking { program.shared_bytes.div_ceil(granule_bytes) as usize } else { 0 };
        Checker {
            is_checking,
            counters: Counters::default(),
            granules: vec![Granule::default(); n],
            granule_bytes,
            epoch: 1,
            global,
        }
    }

    pub(crate) fn start_block(&mut self) {
        self.granules.fill(Granule::default());
        self.epoch = 1;
    }

    pub(crate) fn barrier(&mut self) {
        self.epoch += 1;
    }

    /// An asynchronous copy is complete.
    pub(crate) fn copied(&mut self, copy: &PendingCopy, warp: u32) {
        if !self.is_checking {
            return;
        }
        for g in copy.shared / self.granule_bytes
            ..(copy.shared + copy.n_bytes).div_ceil(self.granule_bytes)
        {
            let granule = &mut self.granules[g as usize];
            *granule = Granule {
                pending_line: 0,
                is_written: true,
                write_epoch: self.epoch,
                write_warp: warp,
                write_line: copy.line,
                ..*granule
            };
        }
    }

    /// Sees an instruction before it is executed by the lanes of `mask`. Accesses out of bounds are left to
    /// the instruction itself.
    pub(crate) fn before(
        &mut self,
        cx: &Ctx,
        uop: &Uop,
        info: &UopInfo,
        mask: u32,
    ) -> Result<(), (FaultKind, u32)> {
        use eggine_ptx::table::Op;
        self.counters.warp_instructions[Class::of(info.op) as usize] += 1;
        if matches!(info.op, Op::CpAsyncCa | Op::CpAsyncCg) {
            // SAFETY: the decoder put the offsets of the address registers there.
            let (shared, global) = unsafe { (*cx.reg::<u32>(uop.r[0]), *cx.reg::<u64>(uop.r[1])) };
            let to = shared.map(|a| u64::from(a.wrapping_add(uop.imm as u32)));
            let from = global.map(|a| a.wrapping_add((uop.imm >> 32) as u64));
            let n_bytes = uop.r[2];
            let load = Access { space: Space::Global, is_store: false, is_atomic: false, n_bytes };
            self.access(cx, load, &from, mask, info.line)?;
            let store = Access { space: Space::Shared, is_store: true, is_atomic: false, n_bytes };
            self.access(cx, store, &to, mask, info.line)?;
            self.pend(&to, n_bytes, mask, info.line);
            return Ok(());
        }
        if self.is_checking
            && matches!(
                info.op,
                Op::DivS32
                    | Op::RemS32
                    | Op::DivU32
                    | Op::RemU32
                    | Op::DivS64
                    | Op::RemS64
                    | Op::DivU64
                    | Op::RemU64
            )
        {
            let is_wide = matches!(info.op, Op::DivS64 | Op::RemS64 | Op::DivU64 | Op::RemU64);
            for i in lanes(mask) {
                // SAFETY: the decoder put the offset of the divisor there.
                let divisor = unsafe {
                    if is_wide {
                        (*cx.reg::<u64>(uop.r[2]))[i]
                    } else {
                        u64::from((*cx.reg::<u32>(uop.r[2]))[i])
                    }
                };
                if divisor == 0 {
                    return Err((FaultKind::DivisionByZero, i as u32));
                }
            }
        }
        let Some(access) = Access::of(info.op) else { return Ok(()) };
        let mut addresses = [0u64; LANES];
        for (i, a) in addresses.iter_mut().enumerate() {
            // SAFETY: the decoder put the offset of the address register there.
            *a = unsafe {
                match access.space {
                    Space::Global => (*cx.reg::<u64>(uop.r[0]))[i].wrapping_add(uop.imm as u64),
                    Space::Shared => {
                        u64::from((*cx.reg::<u32>(uop.r[0]))[i].wrapping_add(uop.imm as u32))
                    }
                }
            };
        }
        self.access(cx, access, &addresses, mask, info.line)
    }

    fn access(
        &mut self,
        cx: &Ctx,
        access: Access,
        addresses: &[u64; LANES],
        mask: u32,
        line: u32,
    ) -> Result<(), (FaultKind, u32)> {
        self.count(access, addresses, mask);
        if !self.is_checking {
            return Ok(());
        }
        match access.space {
            Space::Shared => self.shared(cx, access, addresses, mask, line),
            Space::Global => self.check_global(cx, access, addresses, mask),
        }
    }

    fn shared(
        &mut self,
        cx: &Ctx,
        access: Access,
        addresses: &[u64; LANES],
        mask: u32,
        line: u32,
    ) -> Result<(), (FaultKind, u32)> {
        for i in lanes(mask) {
            let address = addresses[i];
            let end = address + u64::from(access.n_bytes);
            if end > u64::from(cx.shared_bytes)
                || !address.is_multiple_of(u64::from(access.n_bytes))
            {
                return Ok(()); // The instruction reports it.
            }
            // SAFETY: the program outlives the launch.
            let arrays = unsafe { &(*cx.program).shared_arrays };
            if !arrays.iter().any(|&(base, n)| {
                address >= u64::from(base) && end <= u64::from(base) + u64::from(n)
            }) {
                let nearest = arrays
                    .iter()
                    .map(|&(base, n)| {
                        let (base, n) = (i64::from(base), i64::from(n));
                        let at = address as i64;
                        (if at < base { at - base } else { at - base - n }, base, n)
                    })
                    .min_by_key(|(distance, ..)| distance.unsigned_abs())
                    .map(|(distance, base, n)| crate::fault::Nearest {
                        base: base as u64,
                        n_bytes: n as u64,
                        distance,
                    });
                let kind = FaultKind::OutOfBounds {
                    space: Space::Shared,
                    address,
                    n_bytes: access.n_bytes,
                    nearest,
                };
                return Err((kind, i as u32));
            }
            let size = u64::from(self.granule_bytes);
            for g in address / size..end.div_ceil(size) {
                let (epoch, warp) = (self.epoch, cx.warp);
                let granule = &mut self.granules[g as usize];
                let at = g * size;
                if granule.pending_line != 0 {
                    let kind =
                        FaultKind::AsyncInFlight { address: at, other_line: granule.pending_line };
                    return Err((kind, i as u32));
                }
                let race = |other_line, other_warp| {
                    Err((FaultKind::Race { address: at, other_line, other_warp }, i as u32))
                };
                if granule.write_epoch == epoch && granule.write_warp != warp {
                    return race(granule.write_line, granule.write_warp);
                }
                if access.is_store {
                    if granule.read_epoch == epoch && granule.read_warp != warp {
                        let other = if granule.read_warp == SEVERAL {
                            u32::from(warp == 0)
                        } else {
                            granule.read_warp
                        };
                        return race(granule.read_line, other);
                    }
                    granule.write_epoch = epoch;
                    granule.write_warp = warp;
                    granule.write_line = line;
                    granule.is_written = true;
                } else {
                    if !granule.is_written {
                        return Err((
                            FaultKind::Uninitialised { space: Space::Shared, address: at },
                            i as u32,
                        ));
                    }
                    granule.read_warp = if granule.read_epoch == epoch && granule.read_warp != warp
                    {
                        SEVERAL
                    } else {
                        warp
                    };
                    granule.read_epoch = epoch;
                    granule.read_line = line;
                }
            }
        }
        Ok(())
    }

    fn pend(&mut self, addresses: &[u64; LANES], n_bytes: u32, mask: u32, line: u32) {
        if !self.is_checking {
            return;
        }
        let size = u64::from(self.granule_bytes);
        for i in lanes(mask) {
            for g in addresses[i] / size..(addresses[i] + u64::from(n_bytes)).div_ceil(size) {
                if let Some(granule) = self.granules.get_mut(g as usize) {
                    granule.pending_line = line;
                }
            }
        }
    }

    fn check_global(
        &mut self,
        cx: &Ctx,
        access: Access,
        addresses: &[u64; LANES],
        mask: u32,
    ) -> Result<(), (FaultKind, u32)> {
        use crate::memory::SLOT_SHIFT;
        for i in lanes(mask) {
            let slot = (addresses[i] >> SLOT_SHIFT) as usize;
            let offset = (addresses[i] & ((1 << SLOT_SHIFT) - 1)) as usize;
            let n = access.n_bytes as usize;
            if slot >= cx.n_views {
                return Ok(());
            }
            // SAFETY: the slot is one of the views, of which `global` has as many; both are valid in a launch.
            let (view, initialised) = unsafe { (*cx.views.add(slot), &*self.global[slot]) };
            if offset + n > view.n_bytes as usize || !offset.is_multiple_of(n) {
                return Ok(()); // The instruction reports it.
            }
            if (!access.is_store || access.is_atomic)
                && let Some(missing) = initialised.first_missing(offset, n)
            {
                let address = addresses[i] + (missing - offset) as u64;
                return Err((FaultKind::Uninitialised { space: Space::Global, address }, i as u32));
            }
            if access.is_store && view.writable {
                initialised.mark(offset, n, view.n_bytes as usize);
            }
        }
        Ok(())
    }

    fn count(&mut self, access: Access, addresses: &[u64; LANES], mask: u32) {
        let n_bytes = u64::from(access.n_bytes);
        let bytes = n_bytes * u64::from(mask.count_ones());
        let c = &mut self.counters;
        match access.space {
            Space::Global => {
                *(if access.is_store {
                    &mut c.global_store_bytes
                } else {
                    &mut c.global_load_bytes
                }) += bytes;
                c.global_requests += 1;
                let mut sectors: Vec<u64> = lanes(mask)
                    .flat_map(|i| addresses[i] / 32..=(addresses[i] + n_bytes - 1) / 32)
                    .collect();
                sectors.sort_unstable();
                sectors.dedup();
                c.global_sectors += sectors.len() as u64;
            }
            Space::Shared => {
                *(if access.is_store {
                    &mut c.shared_store_bytes
                } else {
                    &mut c.shared_load_bytes
                }) += bytes;
                c.shared_requests += 1;
                // A wavefront serves 32 words: a full warp of words, half of double words, a quarter of quadruples.
                let n_lanes = (128 / access.n_bytes.max(4)) as usize;
                for first in (0..LANES).step_by(n_lanes) {
                    let mut words: Vec<u64> = lanes(mask)
                        .filter(|i| (first..first + n_lanes).contains(i))
                        .flat_map(|i| addresses[i] / 4..(addresses[i] + n_bytes).div_ceil(4))
                        .collect();
                    words.sort_unstable();
                    words.dedup();
                    let mut banks = [0u64; 32];
                    for word in words {
                        banks[(word % 32) as usize] += 1;
                    }
                    c.bank_conflicts += banks.into_iter().max().unwrap_or(0).saturating_sub(1);
                }
            }
        }
    }
}

/// Indices of the set bits.
fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |i| mask >> i & 1 != 0)
}
