//! Runs a launch: blocks over workers; the warps of a block together, instruction by instruction, or, where
//! they go different ways, in turns from barrier to barrier.
//!
//! Divergence: a warp runs its lanes with the least program counter first; the others wait in a list and
//! merge where the counters meet. Lanes that spin on each other within a warp therefore never progress
//! (the step limit finds that); generated code does not do so.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::LaunchReport;
use crate::check::{Checker, Initialised};
use crate::counters::Counters;
use crate::fault::{Fault, FaultKind};
use crate::memory::{Memory, View};
use crate::outer::PanelKey;
use crate::program::{AsyncQueue, Ctx, Flow, LANES, NO_GUARD, Program, Uop};

/// Memory in units of cache lines, so that it is aligned to them.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "only its address is used")] [u8; 64]);

#[derive(Default)]
struct Buffer(Vec<Line>);

impl Buffer {
    fn at_least(&mut self, n_bytes: usize) -> *mut u8 {
        let n = n_bytes.div_ceil(64);
        if self.0.len() < n {
            self.0 = vec![Line([0; 64]); n];
        }
        self.0.as_mut_ptr().cast()
    }
}

/// Memory of a worker, kept from launch to launch.
#[derive(Default)]
pub(crate) struct Scratch {
    regs: Buffer,
    preds: Vec<u32>,
    last: Vec<u64>,
    shared: Buffer,
    panels: Buffer,
}

/// A warp: its context, and where it is.
struct Warp {
    cx: Ctx,
    pc: usize,
    /// Lanes that have not returned.
    alive: u32,
    /// Lanes at other places: (program counter, lanes).
    others: Vec<(usize, u32)>,
    /// The barrier at which it waits.
    waits: Option<u32>,
}

/// Why a warp stopped.
enum Stop {
    Barrier(u32),
    Done,
    Fault(usize),
}

/// What all workers share.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) program: &'a Program,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) params: Vec<u64>,
    pub(crate) step_limit: u64,
    pub(crate) is_checking: bool,
    pub(crate) is_counting: bool,
}

struct Shared<'a> {
    launch: &'a Launch<'a>,
    views: Vec<View>,
    initialised: Vec<*const Initialised>,
    next: AtomicUsize,
    stop: AtomicBool,
    result: Mutex<(Option<(usize, Fault)>, Counters)>,
}

// SAFETY: the pointers lead to memory that outlives the launch and is accessed as the kernel says.
unsafe impl Sync for Shared<'_> {}

/// Runs all blocks on up to `threads` threads.
pub(crate) fn launch(
    launch: &Launch<'_>,
    memory: &Memory,
    threads: usize,
) -> Result<LaunchReport, Box<Fault>> {
    let _busy = memory.busy.lock().unwrap_or_else(PoisonError::into_inner);
    let initialised = memory.initialised();
    if !launch.is_checking {
        initialised.iter().for_each(|i| i.mark_all());
    }
    let n_blocks = launch.grid.iter().map(|&n| n as usize).product::<usize>();
    // Checking is done block after block, so that the first fault is always the same.
    let n_workers = if launch.is_checking { 1 } else { threads.clamp(1, n_blocks.max(1)) };
    let shared = Shared {
        launch,
        views: memory.views(),
        initialised: initialised.into_iter().map(std::ptr::from_ref).collect(),
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        result: Mutex::new((None, Counters::default())),
    };
    let chunk = (n_blocks / (n_workers * 8)).max(1);
    let worker = || {
        let mut scratch =
            memory.scratch.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        work(&shared, n_blocks, chunk, &mut scratch);
        memory.scratch.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    };
    match pool(memory, n_workers) {
        Some(pool) => pool.scope(|scope| {
            for _ in 0..n_workers {
                scope.spawn(|_| worker());
            }
        }),
        None => worker(),
    }
    let (fault, counters) = shared.result.into_inner().unwrap_or_else(PoisonError::into_inner);
    match fault {
        Some((_, fault)) => Err(Box::new(fault)),
        None => Ok(LaunchReport { counters }),
    }
}

fn pool(memory: &Memory, n_workers: usize) -> Option<Arc<rayon::ThreadPool>> {
    if n_workers == 1 {
        return None;
    }
    let mut kept = memory.pool.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = &*kept
        && pool.current_num_threads() >= n_workers
    {
        return Some(pool.clone());
    }
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(n_workers).build().ok()?);
    *kept = Some(pool.clone());
    Some(pool)
}

fn work(shared: &Shared<'_>, n_blocks: usize, chunk: usize, scratch: &mut Scratch) {
    let launch = shared.launch;
    let program = launch.program;
    let n_threads = launch.block.iter().product::<u32>();
    let n_warps = n_threads.div_ceil(LANES as u32) as usize;
    let regs = scratch.regs.at_least(n_warps * program.file_bytes as usize);
    scratch.preds.clear();
    scratch.preds.resize(n_warps * program.n_preds as usize + 1, 0);
    scratch.last.clear();
    scratch.last.resize(n_warps * program.n_loads as usize + 1, 0);
    let is_instrumented = launch.is_checking || launch.is_counting;
    let mut panel_keys = [PanelKey::EMPTY; 4];
    let mut warps = Vec::with_capacity(n_warps);
    for index in 0..n_warps {
        // SAFETY: the buffers hold the registers of all warps.
        let (regs, preds, last) = unsafe {
            (
                regs.add(index * program.file_bytes as usize),
                scratch.preds.as_mut_ptr().add(index * program.n_preds as usize),
                scratch.last.as_mut_ptr().add(index * program.n_loads as usize),
            )
        };
        for constant in &program.constants {
            // SAFETY: the register lies in the file of the warp.
            unsafe {
                let at = regs.add(constant.offset as usize);
                if constant.is_wide {
                    *at.cast::<[u64; LANES]>() = [constant.bits; LANES];
                } else {
                    *at.cast::<[u32; LANES]>() = [constant.bits as u32; LANES];
                }
            }
        }
        let cx = Ctx {
            regs,
            preds,
            last,
            mask: 0,
            warp: index as u32,
            shared: scratch.shared.at_least(program.shared_bytes as usize + 64),
            shared_bytes: program.shared_bytes,
            views: shared.views.as_ptr(),
            n_views: shared.views.len(),
            params: launch.params.as_ptr(),
            ntid: launch.block,
            ctaid: [0; 3],
            nctaid: launch.grid,
            program,
            panels: scratch.panels.at_least(4 * program.n_panel_floats + 64).cast(),
            panel_keys: &raw mut panel_keys,
            epoch: 0,
            has_stored: false,
            target: 0,
            taken: 0,
            fault: None,
            late: None,
            line: 0,
            checker: None,
        };
        warps.push(Warp { cx, pc: 0, alive: 0, others: Vec::new(), waits: None });
    }
    let mut worker = Worker {
        launch,
        warps,
        flows: vec![Flow::Next; n_warps],
        n_threads,
        steps: 0,
        epoch: 0,
        checker: is_instrumented.then(|| {
            Box::new(Checker::new(launch.is_checking, program, shared.initialised.clone()))
        }),
    };
    'chunks: loop {
        let first = shared.next.fetch_add(chunk, Ordering::Relaxed);
        if first >= n_blocks {
            break;
        }
        for block in first..(first + chunk).min(n_blocks) {
            if shared.stop.load(Ordering::Relaxed) {
                break 'chunks;
            }
            let [x, y, _] = launch.grid.map(|n| n as usize);
            let ctaid = [(block % x) as u32, (block / x % y) as u32, (block / (x * y)) as u32];
            if let Err(fault) = worker.block(ctaid) {
                shared.stop.store(true, Ordering::Relaxed);
                let mut result = shared.result.lock().unwrap_or_else(PoisonError::into_inner);
                if result.0.as_ref().is_none_or(|(other, _)| block < *other) {
                    result.0 = Some((block, fault));
                }
                break 'chunks;
            }
        }
    }
    if launch.is_counting
        && let Some(checker) = &worker.checker
    {
        shared.result.lock().unwrap_or_else(PoisonError::into_inner).1.add(&checker.counters);
    }
}

struct Worker<'a> {
    launch: &'a Launch<'a>,
    warps: Vec<Warp>,
    /// What the warps said, when they run together.
    flows: Vec<Flow>,
    n_threads: u32,
    /// Warp instructions of the block so far; exact if instrumented, otherwise counted at backward branches.
    steps: u64,
    /// Changes whenever a block passes a barrier or begins.
    epoch: u64,
    checker: Option<Box<Checker>>,
}

impl Worker<'_> {
    fn block(&mut self, ctaid: [u32; 3]) -> Result<(), Fault> {
        self.steps = 0;
        if let Some(checker) = &mut self.checker {
            checker.start_block();
        }
        let n_threads = self.n_threads;
        for (i, warp) in self.warps.iter_mut().enumerate() {
            let n_lanes = (n_threads - (i * LANES) as u32).min(32);
            warp.pc = 0;
            warp.alive = if n_lanes == 32 { !0 } else { (1 << n_lanes) - 1 };
            warp.others.clear();
            warp.waits = None;
            warp.cx.mask = warp.alive;
            warp.cx.ctaid = ctaid;
            warp.cx.late = self.launch.is_checking.then(AsyncQueue::default);
        }
        loop {
            self.release();
            if self.checker.is_none() && self.can_run_together() {
                // SAFETY: the program was decoded for registers at these offsets and for this machine's level.
                unsafe { self.together()? }
            }
            for i in 0..self.warps.len() {
                if self.warps[i].alive == 0 || self.warps[i].waits.is_some() {
                    continue;
                }
                let stop = self.alone(i);
                self.stopped(i, stop)?;
            }
            let mut waiting = self.warps.iter().filter(|w| w.alive != 0).map(|w| w.waits);
            let Some(first) = waiting.next() else { return Ok(()) };
            if !waiting.all(|w| w == first) {
                return Err(self.deadlock());
            }
            if let Some(checker) = &mut self.checker {
                checker.barrier();
            }
        }
    }

    /// Opens the barrier, or begins the block.
    fn release(&mut self) {
        self.epoch += 1;
        for warp in &mut self.warps {
            warp.waits = None;
            warp.cx.epoch = self.epoch;
            warp.cx.has_stored = false;
        }
    }

    /// Takes note of how a warp stopped.
    fn stopped(&mut self, index: usize, stop: Stop) -> Result<(), Fault> {
        match stop {
            Stop::Barrier(barrier) => self.warps[index].waits = Some(barrier),
            Stop::Done => {}
            Stop::Fault(pc) => {
                let (kind, lane) = self.warps[index].cx.fault.take().expect("a fault has a kind");
                return Err(self.fault(index, pc, lane, kind));
            }
        }
        Ok(())
    }

    #[cold]
    fn fault(&self, index: usize, pc: usize, lane: u32, kind: FaultKind) -> Fault {
        let line = self.launch.program.infos[pc].line;
        let cx = &self.warps[index].cx;
        Fault {
            kernel: self.launch.kernel.to_owned(),
            line,
            block: cx.ctaid,
            thread: cx.tid(lane),
            kind,
        }
    }

    #[cold]
    fn deadlock(&self) -> Fault {
        let infos = &self.launch.program.infos;
        let waiting: Vec<(u32, u32, u32)> = (0u32..)
            .zip(&self.warps)
            .filter_map(|(i, w)| w.waits.map(|barrier| (i, infos[w.pc - 1].line, barrier)))
            .collect();
        let index = waiting[0].0 as usize;
        self.fault(index, self.warps[index].pc - 1, 0, FaultKind::Deadlock { waiting })
    }

    /// Runs a warp by itself.
    fn alone(&mut self, index: usize) -> Stop {
        let warp = &mut self.warps[index];
        let (program, limit) = (self.launch.program, self.launch.step_limit);
        warp.cx.checker = self.checker.take();
        // SAFETY: the program was decoded for registers at these offsets and for this machine's level.
        let stop = unsafe {
            if warp.cx.checker.is_some() {
                run::<true>(warp, program, &mut self.steps, limit)
            } else {
                run::<false>(warp, program, &mut self.steps, limit)
            }
        };
        self.checker = warp.cx.checker.take();
        stop
    }

    /// Whether all warps that are not done are at the same place, with all their lanes.
    fn can_run_together(&self) -> bool {
        let mut alive = self.warps.iter().filter(|w| w.alive != 0);
        let Some(first) = alive.next() else { return false };
        first.others.is_empty() && alive.all(|w| w.pc == first.pc && w.others.is_empty())
    }

    /// Runs all warps instruction by instruction, as long as they go the same way: a warp's instructions
    /// depend on each other, those of different warps do not, so that the processor can overlap them.
    /// Leaves each warp where it is when they part, or waiting, or done.
    ///
    /// # Safety
    ///
    /// As [`run`]; [`can_run_together`](Self::can_run_together) holds.
    unsafe fn together(&mut self) -> Result<(), Fault> {
        let program = self.launch.program;
        let code = program.uops.as_ptr();
        let indices: Vec<usize> =
            (0..self.warps.len()).filter(|&i| self.warps[i].alive != 0).collect();
        let warps: Vec<*mut Warp> =
            self.warps.iter_mut().filter(|w| w.alive != 0).map(std::ptr::from_mut).collect();
        // SAFETY: by contract; the pointers are to different warps, and nothing else accesses them while they
        // are used.
        let pc = unsafe {
            let mut pc = (*warps[0]).pc;
            loop {
                let uop = &*code.add(pc);
                let mut all = 0;
                for (&warp, said) in warps.iter().zip(&mut self.flows) {
                    let flow = step(&mut (*warp).cx, uop);
                    *said = flow;
                    all |= flow as u8;
                }
                if all == Flow::Next as u8 {
                    pc += 1;
                    continue;
                }
                let first = self.flows[0];
                let target = (*warps[0]).cx.target;
                let is_same = self.flows[..warps.len()].iter().all(|&f| f == first)
                    && warps.iter().all(|&w| (*w).cx.target == target);
                if is_same && first == Flow::Jump {
                    let target = target as usize;
                    if target <= pc {
                        self.steps += (pc - target + 1) as u64 * warps.len() as u64;
                        if self.steps > self.launch.step_limit {
                            let lane = (*warps[0]).cx.mask.trailing_zeros();
                            let kind = FaultKind::StepLimit { limit: self.launch.step_limit };
                            let index = (*warps[0]).cx.warp as usize;
                            return Err(self.fault(index, pc, lane, kind));
                        }
                    }
                    pc = target;
                    continue;
                }
                if is_same && first == Flow::Barrier && uop.guard == NO_GUARD {
                    self.epoch += 1;
                    for &warp in &warps {
                        (*warp).cx.epoch = self.epoch;
                        (*warp).cx.has_stored = false;
                    }
                    pc += 1;
                    continue;
                }
                break pc;
            }
        };
        let uop = &program.uops[pc];
        for (i, index) in indices.into_iter().enumerate() {
            let flow = self.flows[i];
            let warp = &mut self.warps[index];
            warp.pc = pc;
            if flow == Flow::Jump && warp.cx.target as usize <= pc {
                self.steps += (pc - warp.cx.target as usize + 1) as u64;
            }
            let stop = if self.steps > self.launch.step_limit {
                warp.cx.fail(
                    FaultKind::StepLimit { limit: self.launch.step_limit },
                    warp.cx.mask.trailing_zeros(),
                );
                Some(Stop::Fault(pc))
            } else {
                go_on(warp, uop, flow)
            };
            if let Some(stop) = stop {
                self.stopped(index, stop)?;
            }
        }
        Ok(())
    }
}

/// Executes an instruction in the lanes where its guard holds.
///
/// # Safety
///
/// As [`run`].
#[inline(always)]
unsafe fn step(cx: &mut Ctx, uop: &Uop) -> Flow {
    // SAFETY: by contract; guards are predicates of the program.
    unsafe {
        if uop.guard == NO_GUARD {
            return (uop.run)(cx, uop);
        }
        let all = cx.mask;
        let bits = *cx.pred(u32::from(uop.guard));
        let active = all & if uop.guard_negated { !bits } else { bits };
        if active == 0 {
            return Flow::Next;
        }
        cx.mask = active;
        let flow = (uop.run)(cx, uop);
        cx.taken = active;
        cx.mask = all;
        flow
    }
}

/// Moves a warp on from the instruction at its program counter, or stops it there.
fn go_on(warp: &mut Warp, uop: &Uop, flow: Flow) -> Option<Stop> {
    let cx = &mut warp.cx;
    let active = if uop.guard == NO_GUARD { cx.mask } else { cx.taken };
    match flow {
        Flow::Next => warp.pc += 1,
        Flow::Jump => warp.pc = cx.target as usize,
        Flow::Branch => {
            warp.others.push((cx.target as usize, cx.taken));
            cx.mask &= !cx.taken;
            warp.pc += 1;
        }
        Flow::Ret => {
            warp.alive &= !active;
            cx.mask &= !active;
            warp.pc += 1;
            if cx.mask == 0 {
                if warp.others.is_empty() {
                    return Some(Stop::Done);
                }
                (warp.pc, cx.mask) = next_lanes(&mut warp.others);
            }
        }
        Flow::Barrier => {
            if active != warp.alive {
                let kind = FaultKind::DivergentBarrier { active, alive: warp.alive };
                cx.fail(kind, active.trailing_zeros());
                return Some(Stop::Fault(warp.pc));
            }
            warp.pc += 1;
            return Some(Stop::Barrier(cx.target));
        }
        Flow::Fault => return Some(Stop::Fault(warp.pc)),
    }
    None
}

/// Runs a warp until it waits, is done, or faults.
///
/// # Safety
///
/// The program is for this machine, and the warp has register files for it.
unsafe fn run<const INSTRUMENTED: bool>(
    warp: &mut Warp,
    program: &Program,
    steps: &mut u64,
    limit: u64,
) -> Stop {
    let code = program.uops.as_ptr();
    loop {
        // SAFETY: the decoder checked that control does not leave the program.
        let mut uop = unsafe { &*code.add(warp.pc) };
        if uop.is_label && !warp.others.is_empty() {
            warp.others.push((warp.pc, warp.cx.mask));
            (warp.pc, warp.cx.mask) = next_lanes(&mut warp.others);
            // SAFETY: as above.
            uop = unsafe { &*code.add(warp.pc) };
        }
        let pc = warp.pc;
        let cx = &mut warp.cx;
        if INSTRUMENTED {
            *steps += 1;
            if *steps > limit {
                cx.fail(FaultKind::StepLimit { limit }, cx.mask.trailing_zeros());
                return Stop::Fault(pc);
            }
            let info = &program.infos[pc];
            cx.line = info.line;
            let mut active = cx.mask;
            if uop.guard != NO_GUARD {
                // SAFETY: guards are predicates of the program.
                let bits = unsafe { *cx.pred(u32::from(uop.guard)) };
                active &= if uop.guard_negated { !bits } else { bits };
            }
            if active != 0
                && let Some(mut checker) = cx.checker.take()
            {
                let verdict = checker.before(cx, uop, info, active);
                cx.checker = Some(checker);
                if let Err((kind, lane)) = verdict {
                    cx.fail(kind, lane);
                    return Stop::Fault(pc);
                }
            }
        }
        // SAFETY: by contract.
        let flow = unsafe { step(cx, uop) };
        if flow == Flow::Next {
            warp.pc += 1;
            continue;
        }
        if !INSTRUMENTED && flow == Flow::Jump && cx.target as usize <= pc {
            *steps += (pc - cx.target as usize + 1) as u64;
            if *steps > limit {
                cx.fail(FaultKind::StepLimit { limit }, cx.mask.trailing_zeros());
                return Stop::Fault(pc);
            }
        }
        if let Some(stop) = go_on(warp, uop, flow) {
            return stop;
        }
    }
}

/// Takes the lanes with the least program counter from the list.
fn next_lanes(others: &mut Vec<(usize, u32)>) -> (usize, u32) {
    let least = others.iter().map(|&(pc, _)| pc).min().expect("lanes wait");
    let mut mask = 0;
    others.retain(|&(pc, lanes)| {
        if pc == least {
            mask |= lanes;
        }
        pc != least
    });
    (least, mask)
}
