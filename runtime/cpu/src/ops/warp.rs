//! Special registers, parameters, control flow and exchange between lanes.

use super::shapes::{Shape, store};
use crate::fault::FaultKind;
use crate::program::{Ctx, Flow, LANES, Lane, OpFn, Uop};
use crate::simd::{Level, Simd, select as at_level};

/// `r[0] = special register imm`, see [`special`].
struct MovSpecial;
/// `r[0] = parameter imm`
struct LdParam<T>(std::marker::PhantomData<T>);
/// Lanes where the guard in `r[1]` and `r[2]` holds go to `imm`.
struct Branch;
/// All go to `imm`.
struct Goto;
/// Barrier `imm`.
struct Barrier;
struct Return;
/// Nothing: one thread's memory operations are in order here.
struct Fence;
/// `r[0] = r[1]` of another lane, chosen by `r[2]`; `imm` is clamp and mask | member mask << 32.
struct Shuffle<const MODE: u8>;
/// `r[0] = predicate r[1]` of all lanes in `imm`.
struct Ballot;
struct ActiveMask;

const BFLY: u8 = 0;
const DOWN: u8 = 1;
const UP: u8 = 2;
const IDX: u8 = 3;

impl Shape for MovSpecial {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        let first = cx.warp * LANES as u32;
        let axis = (uop.imm % 3) as usize % 3;
        let mut out = [0u32; LANES];
        let (base, step) = match uop.imm {
            0 if cx.ntid[1] == 1 && cx.ntid[2] == 1 => (first, 1),
            0..3 => {
                for (i, x) in out.iter_mut().enumerate() {
                    *x = cx.tid(i as u32)[axis];
                }
                // SAFETY: by the contract of `run`.
                unsafe { store::<L, u32>(cx, uop.r[0], &out) }
                return Flow::Next;
            }
            3..6 => (cx.ntid[axis], 0),
            6..9 => (cx.ctaid[axis], 0),
            9..12 => (cx.nctaid[axis], 0),
            12 => (0, 1),
            _ => (cx.warp, 0),
        };
        for (i, x) in out.iter_mut().enumerate() {
            *x = base + step * i as u32;
        }
        // SAFETY: by the contract of `run`.
        unsafe { store::<L, u32>(cx, uop.r[0], &out) }
        Flow::Next
    }
}

impl Shape for LdParam<u32> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        // SAFETY: by the contract of `run`; the decoder checked the index.
        unsafe {
            let value = *cx.params.add(uop.imm as usize) as u32;
            store::<L, u32>(cx, uop.r[0], &[value; LANES]);
        }
        Flow::Next
    }
}

impl Shape for LdParam<u64> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        // SAFETY: by the contract of `run`; the decoder checked the index.
        unsafe {
            let value = *cx.params.add(uop.imm as usize);
            store::<L, u64>(cx, uop.r[0], &[value; LANES]);
        }
        Flow::Next
    }
}

fn ld_param<T: Lane>() -> LdParam<T> {
    LdParam(std::marker::PhantomData)
}

impl Shape for Branch {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        // SAFETY: by the contract of `run`.
        let bits = unsafe { *cx.pred(uop.r[1]) } ^ uop.r[2];
        let taken = bits & cx.mask;
        if taken == 0 {
            return Flow::Next;
        }
        cx.target = uop.imm as u32;
        cx.taken = taken;
        if taken == cx.mask { Flow::Jump } else { Flow::Branch }
    }
}

impl Shape for Goto {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        cx.target = uop.imm as u32;
        Flow::Jump
    }
}

impl Shape for Barrier {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        cx.target = uop.imm as u32;
        Flow::Barrier
    }
}

impl Shape for Return {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, _: &mut Ctx, _: &Uop) -> Flow {
        Flow::Ret
    }
}

impl Shape for Fence {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, _: &mut Ctx, _: &Uop) -> Flow {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Flow::Next
    }
}

/// The lane from which lane `i` reads, by the manual's pseudocode.
#[inline(always)]
fn source_lane<const MODE: u8>(i: u32, b: u32, c: u32) -> u32 {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let most = (i & segment) | (clamp & !segment);
    let least = i & segment;
    match MODE {
        UP => {
            let j = i.wrapping_sub(b);
            if (j as i32) >= most as i32 { j } else { i }
        }
        DOWN => {
            let j = i + b;
            if j <= most { j } else { i }
        }
        BFLY => {
            let j = i ^ b;
            if j <= most { j } else { i }
        }
        _ => {
            let j = least | (b & !segment & 31);
            if j <= most { j } else { i }
        }
    }
}

impl<const MODE: u8> Shape for Shuffle<MODE> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        // SAFETY: by the contract of `run`.
        unsafe {
            let (a, b) = (*cx.reg::<u32>(uop.r[1]), &*cx.reg::<u32>(uop.r[2]));
            let c = uop.imm as u32;
            let mut from = [0u32; LANES];
            for i in 0..LANES {
                from[i] = source_lane::<MODE>(i as u32, b[i], c);
            }
            if cx.checker.is_some() {
                for (i, j) in from.into_iter().enumerate() {
                    if cx.mask >> i & 1 != 0 && cx.mask >> j & 1 == 0 {
                        return cx.fail(FaultKind::ShuffleInactive { lane: j }, i as u32);
                    }
                }
            }
            let mut out = [0u32; LANES];
            #[cfg(target_arch = "x86_64")]
            if L::KIND == Simd::Avx512 {
                use std::arch::x86_64::*;
                let (low, high) = (
                    _mm512_loadu_epi32(a.as_ptr().cast()),
                    _mm512_loadu_epi32(a.as_ptr().add(16).cast()),
                );
                for h in 0..2 {
                    let idx = _mm512_loadu_epi32(from.as_ptr().add(16 * h).cast());
                    _mm512_storeu_epi32(
                        out.as_mut_ptr().add(16 * h).cast(),
                        _mm512_permutex2var_epi32(low, idx, high),
                    );
                }
                store::<L, u32>(cx, uop.r[0], &out);
                return Flow::Next;
            }
            for i in 0..LANES {
                out[i] = a[from[i] as usize & 31];
            }
            store::<L, u32>(cx, uop.r[0], &out);
        }
        Flow::Next
    }
}

impl Shape for Ballot {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        // SAFETY: by the contract of `run`.
        unsafe {
            let bits = *cx.pred(uop.r[1]) & cx.mask & uop.imm as u32;
            store::<L, u32>(cx, uop.r[0], &[bits; LANES]);
        }
        Flow::Next
    }
}

impl Shape for ActiveMask {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        let mask = cx.mask;
        // SAFETY: by the contract of `run`.
        unsafe { store::<L, u32>(cx, uop.r[0], &[mask; LANES]) }
        Flow::Next
    }
}

super::rows! {
    LdParamU64: ld_param::<u64>();
    LdParamU32: ld_param::<u32>();
    LdParamF32: ld_param::<u32>();
    Bra: Branch;
    BraUni: Goto;
    BarSync: Barrier;
    Ret: Return;
    MembarGl: Fence;
    ShflSyncBflyB32: Shuffle::<BFLY>;
    ShflSyncDownB32: Shuffle::<DOWN>;
    ShflSyncUpB32: Shuffle::<UP>;
    ShflSyncIdxB32: Shuffle::<IDX>;
    VoteBallotB32: Ballot;
    ActivemaskB32: ActiveMask;
}

struct SpecialRow;
impl crate::simd::LaneOp for SpecialRow {
    #[inline(always)]
    unsafe fn run<L: Level>(cx: &mut Ctx, uop: &Uop) -> Flow {
        // SAFETY: by contract.
        unsafe { MovSpecial.run::<L>(cx, uop) }
    }
}

/// The function of `mov.u32 %r, <special>`.
pub(crate) fn special(simd: Simd) -> OpFn {
    at_level::<SpecialRow>(simd)
}

/// The number of a special register in `imm` of that function.
pub(crate) fn special_index(special: eggine_ptx::ast::Special) -> i64 {
    special as i64
}
