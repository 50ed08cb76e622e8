//! Runs a launch: blocks over workers, warps of a block in turns from barrier to barrier, and a warp's
//! instructions one after the other.
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
use crate::program::{AsyncQueue, Ctx, Flow, LANES, NO_GUARD, Program};

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

/// Where a warp is.
#[derive(Clone, Debug, Default)]
struct Warp {
    pc: usize,
    mask: u32,
    /// Lanes that have not returned.
    alive: u32,
    /// Lanes at other places: (program counter, lanes).
    others: Vec<(usize, u32)>,
    /// The barrier at which it waits.
    waits: Option<u32>,
    late: Option<AsyncQueue>,
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
pub(crate) fn launch(launch: &Launch<'_>, memory: &Memory, threads: usize) -> Result<LaunchReport, Box<Fault>> {
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
        let mut scratch = memory.scratch.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
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
    for warp in 0..n_warps {
        for constant in &program.constants {
            // SAFETY: the register lies in the file of the warp, which lies in the buffer.
            unsafe {
                let at = regs.add(warp * program.file_bytes as usize + constant.offset as usize);
                if constant.is_wide {
                    *at.cast::<[u64; LANES]>() = [constant.bits; LANES];
                } else {
                    *at.cast::<[u32; LANES]>() = [constant.bits as u32; LANES];
                }
            }
        }
    }
    let is_instrumented = launch.is_checking || launch.is_counting;
    let mut cx = Ctx {
        regs,
        preds: scratch.preds.as_mut_ptr(),
        last: scratch.last.as_mut_ptr(),
        mask: 0,
        warp: 0,
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
        panel_keys: [PanelKey::EMPTY; 4],
        epoch: 0,
        has_stored: false,
        target: 0,
        taken: 0,
        fault: None,
        late: None,
        line: 0,
        checker: is_instrumented
            .then(|| Box::new(Checker::new(launch.is_checking, program, shared.initialised.clone()))),
    };
    let mut worker = Worker {
        launch,
        regs,
        preds: cx.preds,
        last: cx.last,
        warps: vec![Warp::default(); n_warps],
        n_threads,
        steps: 0,
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
            cx.ctaid = [(block % x) as u32, (block / x % y) as u32, (block / (x * y)) as u32];
            if let Err(fault) = worker.block(&mut cx) {
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
        && let Some(checker) = &cx.checker
    {
        shared.result.lock().unwrap_or_else(PoisonError::into_inner).1.add(&checker.counters);
    }
}

struct Worker<'a> {
    launch: &'a Launch<'a>,
    regs: *mut u8,
    preds: *mut u32,
    last: *mut u64,
    warps: Vec<Warp>,
    n_threads: u32,
    /// Warp instructions of the block so far; exact if instrumented, otherwise counted at backward branches.
    steps: u64,
}

impl Worker<'_> {
    fn block(&mut self, cx: &mut Ctx) -> Result<(), Fault> {
        self.steps = 0;
        if let Some(checker) = &mut cx.checker {
            checker.start_block();
        }
        let n_threads = self.n_threads;
        for (i, warp) in self.warps.iter_mut().enumerate() {
            let n_lanes = (n_threads - (i * LANES) as u32).min(32);
            warp.pc = 0;
            warp.mask = if n_lanes == 32 { !0 } else { (1 << n_lanes) - 1 };
            warp.alive = warp.mask;
            warp.others.clear();
            warp.waits = None;
            warp.late = self.launch.is_checking.then(AsyncQueue::default);
        }
        loop {
            cx.epoch += 1;
            for i in 0..self.warps.len() {
                if self.warps[i].alive == 0 {
                    continue;
                }
                match self.warp(cx, i) {
                    Stop::Barrier(barrier) => self.warps[i].waits = Some(barrier),
                    Stop::Done => {}
                    Stop::Fault(pc) => {
                        let (kind, lane) = cx.fault.take().expect("a fault has a kind");
                        return Err(self.fault(cx, pc, lane, kind));
                    }
                }
            }
            let mut waiting = self.warps.iter().filter(|w| w.alive != 0).map(|w| w.waits);
            let Some(first) = waiting.next() else { return Ok(()) };
            if !waiting.all(|w| w == first) {
                return Err(self.deadlock(cx));
            }
            for warp in &mut self.warps {
                warp.waits = None;
            }
            if let Some(checker) = &mut cx.checker {
                checker.barrier();
            }
        }
    }

    #[cold]
    fn fault(&self, cx: &Ctx, pc: usize, lane: u32, kind: FaultKind) -> Fault {
        let line = self.launch.program.infos[pc].line;
        Fault { kernel: self.launch.kernel.to_owned(), line, block: cx.ctaid, thread: cx.tid(lane), kind }
    }

    #[cold]
    fn deadlock(&self, cx: &mut Ctx) -> Fault {
        let infos = &self.launch.program.infos;
        let waiting: Vec<(u32, u32, u32)> = (0u32..)
            .zip(&self.warps)
            .filter_map(|(i, w)| w.waits.map(|barrier| (i, infos[w.pc - 1].line, barrier)))
            .collect();
        let (warp, _, _) = waiting[0];
        cx.warp = warp;
        self.fault(cx, self.warps[warp as usize].pc - 1, 0, FaultKind::Deadlock { waiting })
    }

    fn warp(&mut self, cx: &mut Ctx, index: usize) -> Stop {
        let program = self.launch.program;
        cx.warp = index as u32;
        cx.has_stored = false;
        let warp = &mut self.warps[index];
        // SAFETY: the buffers hold the registers of all warps.
        unsafe {
            cx.regs = self.regs.add(index * program.file_bytes as usize);
            cx.preds = self.preds.add(index * program.n_preds as usize);
            cx.last = self.last.add(index * program.n_loads as usize);
        }
        cx.mask = warp.mask;
        std::mem::swap(&mut cx.late, &mut warp.late);
        let limit = self.launch.step_limit;
        // SAFETY: the program was decoded for registers at these offsets and for this machine's level.
        let stop = unsafe {
            if cx.checker.is_some() {
                run::<true>(cx, program, warp, &mut self.steps, limit)
            } else {
                run::<false>(cx, program, warp, &mut self.steps, limit)
            }
        };
        std::mem::swap(&mut cx.late, &mut warp.late);
        warp.mask = cx.mask;
        stop
    }
}

/// Runs a warp until it waits, is done, or faults.
///
/// # Safety
///
/// The program is for this machine, and `cx` has register files for it.
unsafe fn run<const INSTRUMENTED: bool>(
    cx: &mut Ctx,
    program: &Program,
    warp: &mut Warp,
    steps: &mut u64,
    limit: u64,
) -> Stop {
    let code = program.uops.as_ptr();
    let mut pc = warp.pc;
    let mut is_diverged = !warp.others.is_empty();
    loop {
        // SAFETY: the decoder checked that control does not leave the program.
        let uop = unsafe { &*code.add(pc) };
        if is_diverged && uop.is_label {
            warp.others.push((pc, cx.mask));
            (pc, cx.mask) = next_lanes(&mut warp.others);
            is_diverged = !warp.others.is_empty();
            // SAFETY: as above.
            let uop = unsafe { &*code.add(pc) };
            if is_diverged && !uop.is_label {
                unreachable!("lanes wait at labels only");
            }
        }
        // SAFETY: as above; guards are predicates of the program.
        let flow = unsafe {
            let uop = &*code.add(pc);
            let all = cx.mask;
            let mut active = all;
            if uop.guard != NO_GUARD {
                let bits = *cx.pred(u32::from(uop.guard));
                active &= if uop.guard_negated { !bits } else { bits };
            }
            if INSTRUMENTED {
                *steps += 1;
                if *steps > limit {
                    cx.fail(FaultKind::StepLimit { limit }, all.trailing_zeros());
                    return Stop::Fault(pc);
                }
                let info = &program.infos[pc];
                cx.line = info.line;
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
            if uop.guard == NO_GUARD {
                (uop.run)(cx, uop)
            } else if active == 0 {
                Flow::Next
            } else {
                cx.mask = active;
                let flow = (uop.run)(cx, uop);
                cx.taken = active;
                cx.mask = all;
                flow
            }
        };
        if flow == Flow::Next {
            pc += 1;
            continue;
        }
        match flow {
            Flow::Next => {}
            Flow::Jump => {
                let target = cx.target as usize;
                if !INSTRUMENTED && target <= pc {
                    *steps += (pc - target + 1) as u64;
                    if *steps > limit {
                        cx.fail(FaultKind::StepLimit { limit }, cx.mask.trailing_zeros());
                        return Stop::Fault(pc);
                    }
                }
                pc = target;
            }
            Flow::Branch => {
                warp.others.push((cx.target as usize, cx.taken));
                cx.mask &= !cx.taken;
                is_diverged = true;
                pc += 1;
            }
            Flow::Ret => {
                // SAFETY: as above.
                let is_guarded = unsafe { (*code.add(pc)).guard } != NO_GUARD;
                let gone = if is_guarded { cx.taken } else { cx.mask };
                warp.alive &= !gone;
                cx.mask &= !gone;
                pc += 1;
                if cx.mask == 0 {
                    if warp.others.is_empty() {
                        return Stop::Done;
                    }
                    (pc, cx.mask) = next_lanes(&mut warp.others);
                    is_diverged = !warp.others.is_empty();
                }
            }
            Flow::Barrier => {
                // SAFETY: as above.
                let is_guarded = unsafe { (*code.add(pc)).guard } != NO_GUARD;
                let active = if is_guarded { cx.taken } else { cx.mask };
                if active != warp.alive {
                    let kind = FaultKind::DivergentBarrier { active, alive: warp.alive };
                    cx.fail(kind, active.trailing_zeros());
                    return Stop::Fault(pc);
                }
                warp.pc = pc + 1;
                return Stop::Barrier(cx.target);
            }
            Flow::Fault => return Stop::Fault(pc),
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
