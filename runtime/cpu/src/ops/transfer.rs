//! Atomic operations on global memory, and asynchronous copies from global to shared memory.

use std::sync::atomic::{AtomicU32, Ordering};

use super::memory::{lane_pointer, neighbours};
use super::shapes::Shape;
use super::space::{Global, Shared};
use crate::program::{Ctx, Flow, LANES, PendingCopy, Uop};
use crate::simd::Level;

/// `red.global.add.f32 [r[0] + imm], r[1]`: lanes in order. Blocks that run at the same time add in any
/// order, so the sum is reproducible only with one thread.
struct RedAddF32;
/// `atom.global.add.u32 r[1], [r[0] + imm], r[2]`
struct AtomAddU32;

impl Shape for RedAddF32 {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        // SAFETY: by contract; each access is checked, aligned to 4 bytes and atomic.
        unsafe {
            let (addr, values) = (*cx.reg::<u64>(uop.r[0]), *cx.reg::<f32>(uop.r[1]));
            for i in 0..LANES {
                if cx.mask >> i & 1 != 0 {
                    let p = match lane_pointer::<Global>(
                        cx,
                        addr[i].wrapping_add(uop.imm as u64),
                        4,
                        true,
                    ) {
                        Ok(p) => AtomicU32::from_ptr(p.cast()),
                        Err(kind) => return cx.fail(kind, i as u32),
                    };
                    let add = |old: u32| Some((f32::from_bits(old) + values[i]).to_bits());
                    let _ = p.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
                }
            }
        }
        Flow::Next
    }
}

impl Shape for AtomAddU32 {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        // SAFETY: by contract; each access is checked, aligned to 4 bytes and atomic.
        unsafe {
            let (addr, values) = (*cx.reg::<u64>(uop.r[0]), *cx.reg::<u32>(uop.r[2]));
            for i in 0..LANES {
                if cx.mask >> i & 1 != 0 {
                    let p = match lane_pointer::<Global>(
                        cx,
                        addr[i].wrapping_add(uop.imm as u64),
                        4,
                        true,
                    ) {
                        Ok(p) => AtomicU32::from_ptr(p.cast()),
                        Err(kind) => return cx.fail(kind, i as u32),
                    };
                    (*cx.reg::<u32>(uop.r[1]))[i] = p.fetch_add(values[i], Ordering::Relaxed);
                }
            }
        }
        Flow::Next
    }
}

/// `cp.async [r[0] + imm low], [r[1] + imm high], r[2]`: at once, or late if `cx.late` is set.
struct CpAsync;

impl Shape for CpAsync {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        let n_bytes = u64::from(uop.r[2]);
        cx.has_stored = true;
        let (to, from) = (uop.imm as i32 as u64, (uop.imm >> 32) as u64);
        // SAFETY: by contract; the accesses are checked.
        unsafe {
            let (shared, global) = (&*cx.reg::<u32>(uop.r[0]), &*cx.reg::<u64>(uop.r[1]));
            if cx.mask == !0
                && cx.late.is_none()
                && let Some(dst) = neighbours::<L, Shared>(cx, shared, to, n_bytes, true)
                && let Some(src) = neighbours::<L, Global>(cx, global, from, n_bytes, false)
            {
                std::ptr::copy_nonoverlapping(src, dst, LANES * n_bytes as usize);
                return Flow::Next;
            }
            for i in 0..LANES {
                if cx.mask >> i & 1 != 0 {
                    let (a, b) = (shared[i].wrapping_add(to as u32), global[i].wrapping_add(from));
                    let dst = match lane_pointer::<Shared>(cx, u64::from(a), n_bytes, true) {
                        Ok(p) => p,
                        Err(kind) => return cx.fail(kind, i as u32),
                    };
                    let src = match lane_pointer::<Global>(cx, b, n_bytes, false) {
                        Ok(p) => p,
                        Err(kind) => return cx.fail(kind, i as u32),
                    };
                    let line = cx.line;
                    match &mut cx.late {
                        None => std::ptr::copy_nonoverlapping(src, dst, n_bytes as usize),
                        Some(queue) => queue.open.push(PendingCopy {
                            shared: a,
                            global: b,
                            n_bytes: n_bytes as u32,
                            lane: i as u32,
                            line,
                        }),
                    }
                }
            }
        }
        Flow::Next
    }
}

struct CpAsyncCommitGroup;
struct CpAsyncWaitGroup;

impl Shape for CpAsyncCommitGroup {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, _: &Uop) -> Flow {
        if let Some(queue) = &mut cx.late {
            let group = std::mem::take(&mut queue.open);
            queue.groups.push(group);
        }
        Flow::Next
    }
}

impl Shape for CpAsyncWaitGroup {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        if cx.late.is_some() { complete_copies(cx, uop.imm as usize) } else { Flow::Next }
    }
}

/// Completes all groups of the running warp but the last `n_left`.
#[cold]
fn complete_copies(cx: &mut Ctx, n_left: usize) -> Flow {
    let Some(queue) = &mut cx.late else { return Flow::Next };
    let n_done = queue.groups.len().saturating_sub(n_left);
    let done: Vec<PendingCopy> = queue.groups.drain(..n_done).flatten().collect();
    for copy in done {
        let pointers =
            lane_pointer::<Shared>(cx, u64::from(copy.shared), u64::from(copy.n_bytes), true)
                .and_then(|dst| {
                    Ok((
                        dst,
                        lane_pointer::<Global>(cx, copy.global, u64::from(copy.n_bytes), false)?,
                    ))
                });
        match pointers {
            // SAFETY: both ranges were checked; shared and global memory do not overlap.
            Ok((dst, src)) => unsafe {
                std::ptr::copy_nonoverlapping(src, dst, copy.n_bytes as usize)
            },
            Err(kind) => return cx.fail(kind, copy.lane),
        }
        let warp = cx.warp;
        if let Some(checker) = &mut cx.checker {
            checker.copied(&copy, warp);
        }
    }
    Flow::Next
}

super::rows! {
    RedGlobalAddF32: RedAddF32;
    AtomGlobalAddU32: AtomAddU32;
    CpAsyncCa: CpAsync;
    CpAsyncCg: CpAsync;
    CpAsyncCommit: CpAsyncCommitGroup;
    CpAsyncWait: CpAsyncWaitGroup;
}
