//! Loads and stores. Every access is checked: bounds, alignment, and for stores that the allocation may be
//! written.
//!
//! A warp's addresses are first compared with the two usual patterns: neighbouring lanes at neighbouring
//! places, and all lanes at the same place; then one check of the range is enough. Otherwise the lanes are
//! checked together and accessed one by one; if that check fails, each is looked up by itself, which also
//! finds the faulting lane.

use std::marker::PhantomData;

use super::shapes::Shape;
use super::space::{Address, B16, B32, B64, Elem, Global, S8, Shared, U8, Window};
use crate::fault::{FaultKind, Nearest, Space};
use crate::memory::SLOT_SHIFT;
use crate::program::{Ctx, Flow, LANES, Uop};
use crate::simd::{Level, Simd};
use crate::vector;

/// `{r[1], r[2], ...} = [r[0] + imm]`
pub(crate) struct Load<W, E, const N: usize>(PhantomData<(W, E)>);
/// `[r[0] + imm] = {r[1], r[2], ...}`
pub(crate) struct Store<W, E, const N: usize>(PhantomData<(W, E)>);

pub(crate) fn ld<W: Window, E: Elem, const N: usize>() -> Load<W, E, N> {
    Load(PhantomData)
}
pub(crate) fn st<W: Window, E: Elem, const N: usize>() -> Store<W, E, N> {
    Store(PhantomData)
}

/// Whether every active lane `i` is at `origin + i * stride`.
///
/// # Safety
///
/// The machine has the features of `L`.
#[inline(always)]
unsafe fn is_affine<L: Level, A: Address>(
    addr: &[A; LANES],
    origin: A,
    stride: u64,
    mask: u32,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if L::KIND == Simd::Avx512 {
        use std::arch::x86_64::*;
        let p = addr.as_ptr().cast::<u8>();
        let mut differs = 0u32;
        // SAFETY: AVX-512 is there; the array has 32 lanes of 4 or 8 bytes.
        unsafe {
            if size_of::<A>() == 8 {
                let s = stride as i64;
                let steps = _mm512_setr_epi64(0, s, 2 * s, 3 * s, 4 * s, 5 * s, 6 * s, 7 * s);
                for q in 0..4 {
                    let first = origin.wide().wrapping_add(8 * q as u64 * stride) as i64;
                    let expected = _mm512_add_epi64(_mm512_set1_epi64(first), steps);
                    let found = _mm512_loadu_epi64(p.add(64 * q).cast());
                    differs |= u32::from(_mm512_cmpneq_epi64_mask(found, expected)) << (8 * q);
                }
            } else {
                let s = stride as i32;
                let low = _mm512_setr_epi32(
                    0,
                    s,
                    2 * s,
                    3 * s,
                    4 * s,
                    5 * s,
                    6 * s,
                    7 * s,
                    8 * s,
                    9 * s,
                    10 * s,
                    11 * s,
                    12 * s,
                    13 * s,
                    14 * s,
                    15 * s,
                );
                for h in 0..2 {
                    let first =
                        (origin.wide() as u32).wrapping_add(16 * h as u32 * stride as u32) as i32;
                    let expected = _mm512_add_epi32(_mm512_set1_epi32(first), low);
                    let found = _mm512_loadu_epi32(p.add(64 * h).cast());
                    differs |= u32::from(_mm512_cmpneq_epi32_mask(found, expected)) << (16 * h);
                }
            }
        }
        return differs & mask == 0;
    }
    let mut diff = A::default();
    let mut expected = [0u64; LANES];
    for (i, x) in expected.iter_mut().enumerate() {
        *x = origin.wide().wrapping_add(i as u64 * stride);
    }
    if mask == !0 {
        for i in 0..LANES {
            diff = diff.or(addr[i].differs(expected[i]));
        }
    } else {
        for i in 0..LANES {
            diff = diff.or(addr[i].differs(expected[i]).keep(mask >> i & 1));
        }
    }
    diff.wide() == 0
}

/// Where lane 0 would be if every active lane is `bytes` behind its left neighbour and all are accessible.
///
/// # Safety
///
/// `cx.mask` is not 0; the machine has the features of `L`.
#[inline(always)]
pub(super) unsafe fn neighbours<L: Level, W: Window>(
    cx: &Ctx,
    addr: &[W::Addr; LANES],
    imm: u64,
    bytes: u64,
    store: bool,
) -> Option<*mut u8> {
    let (first, last) = if cx.mask == !0 {
        (0, 31)
    } else {
        (cx.mask.trailing_zeros(), 31 - cx.mask.leading_zeros())
    };
    // SAFETY: a lane is active, so that both are at most 31.
    let (a, z) =
        unsafe { (*addr.get_unchecked(first as usize), *addr.get_unchecked(last as usize)) };
    let span = u64::from(last - first) * bytes;
    if z.minus(a).differs(span).wide() != 0 {
        return None;
    }
    let origin = a.minus(W::Addr::default().plus(u64::from(first) * bytes));
    // SAFETY: by contract.
    if !unsafe { is_affine::<L, W::Addr>(addr, origin, bytes, cx.mask) } {
        return None;
    }
    let p = W::range(cx, a.plus(imm).wide(), span + bytes, bytes, store)?;
    Some(p.wrapping_sub(first as usize * bytes as usize))
}

/// The common place of all active lanes, if there is one and it is accessible.
///
/// # Safety
///
/// The machine has the features of `L`.
#[inline(always)]
unsafe fn common<L: Level, W: Window>(
    cx: &Ctx,
    addr: &[W::Addr; LANES],
    imm: u64,
    bytes: u64,
) -> Option<*mut u8> {
    let a = addr[cx.mask.trailing_zeros() as usize & 31];
    // SAFETY: by contract.
    if !unsafe { is_affine::<L, W::Addr>(addr, a, 0, cx.mask) } {
        return None;
    }
    W::range(cx, a.plus(imm).wide(), bytes, bytes, false)
}

/// Fetches what the warp will load when it comes here again, if it moves on as it did since the last time.
///
/// # Safety
///
/// `uop.extra` is the instruction's index in `cx.last`.
#[inline(always)]
unsafe fn prefetch<const N_LINES: usize>(
    cx: &Ctx,
    uop: &Uop,
    first: u64,
    at: impl Fn(usize) -> *const u8,
) {
    // SAFETY: by contract; a prefetch of any address is harmless.
    unsafe {
        let last = cx.last.add(uop.extra as usize);
        let step = first.wrapping_sub(*last);
        *last = first;
        if step != 0 && step.wrapping_add(1 << 20) < 1 << 21 {
            #[cfg(target_arch = "x86_64")]
            for line in 0..N_LINES {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(at(line).wrapping_add(step as usize).cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = at;
        }
    }
}

/// A host pointer and offsets of the active lanes (0 for the others) from it, if all lie in one window of
/// less than 4 GiB.
#[inline(always)]
fn together<W: Window>(
    cx: &Ctx,
    addr: &[W::Addr; LANES],
    imm: u64,
    bytes: u64,
    store: bool,
) -> Option<(*mut u8, [u32; LANES])> {
    let first = cx.mask.trailing_zeros() as usize & 31;
    let (base, host, size) = W::around(cx, addr[first].plus(imm).wide(), store)?;
    let origin = W::Addr::default().plus(base.wrapping_sub(imm));
    let mut offsets = [0u32; LANES];
    let (mut most, mut bits) = (W::Addr::default(), W::Addr::default());
    for i in 0..LANES {
        let x = addr[i].minus(origin);
        let x = if cx.mask == !0 { x } else { x.keep(cx.mask >> i & 1) };
        offsets[i] = x.wide() as u32;
        most = most.larger(x);
        bits = bits.or(x);
    }
    let is_in_range =
        most.wide() + bytes <= size && size >> 32 == 0 && bits.wide() & (bytes - 1) == 0;
    is_in_range.then_some((host, offsets))
}

impl<W: Window, E: Elem, const N: usize> Shape for Load<W, E, N> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        let bytes = (E::BYTES * N) as u64;
        let imm = uop.imm as u64;
        // SAFETY: by the contract of `run`, and because the accesses were checked. The addresses are read
        // before a destination, which may share their slot, is written.
        unsafe {
            let addr = &*cx.reg::<W::Addr>(uop.r[0]);
            if let Some(p) = neighbours::<L, W>(cx, addr, imm, bytes, false) {
                if W::SPACE == Space::Global {
                    if N * E::BYTES >= 16 {
                        prefetch::<8>(cx, uop, addr[0].wide(), |line| p.wrapping_add(64 * line));
                    } else {
                        prefetch::<2>(cx, uop, addr[0].wide(), |line| p.wrapping_add(64 * line));
                    }
                }
                load_neighbours::<L, E, N>(cx, uop, p);
                return Flow::Next;
            }
            if addr[0] == addr[31]
                && let Some(p) = common::<L, W>(cx, addr, imm, bytes)
            {
                let mut values = [E::Reg::default(); N];
                for c in 0..N {
                    values[c] = E::get(p.add(c * E::BYTES));
                }
                for c in 0..N {
                    super::shapes::store::<L, E::Reg>(cx, uop.r[1 + c], &[values[c]; LANES]);
                }
                return Flow::Next;
            }
            if let Some((host, offsets)) = together::<W>(cx, addr, imm, bytes, false) {
                if W::SPACE == Space::Global && cx.mask == !0 {
                    prefetch::<8>(cx, uop, addr[0].wide(), |line| {
                        host.wrapping_add(offsets[4 * line] as usize)
                    });
                }
                load_scattered::<L, E, N>(cx, uop, host, &offsets);
                return Flow::Next;
            }
        }
        // SAFETY: by the contract of `run`.
        unsafe { load_slowly::<W, E, N>(cx, uop) }
    }
}

/// # Safety
///
/// The active lanes at `p + bytes * lane` are readable; otherwise as [`Shape::run`].
#[inline(always)]
unsafe fn load_neighbours<L: Level, E: Elem, const N: usize>(cx: &mut Ctx, uop: &Uop, p: *mut u8) {
    // SAFETY: by contract.
    unsafe {
        if cx.mask == !0 {
            if E::BYTES == 4 && N == 4 {
                vector::split4::<L>(p.cast(), word_registers(cx, uop));
                return;
            }
            if E::BYTES == size_of::<E::Reg>() && N == 1 {
                *cx.reg::<E::Reg>(uop.r[1]) = p.cast::<[E::Reg; LANES]>().read_unaligned();
                return;
            }
            for c in 0..N {
                let dst = &mut *cx.reg::<E::Reg>(uop.r[1 + c]);
                for (i, to) in dst.iter_mut().enumerate() {
                    *to = E::get(p.add((i * N + c) * E::BYTES));
                }
            }
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if L::KIND == Simd::Avx512 && E::BYTES == 4 && N == 1 {
            use std::arch::x86_64::*;
            let dst = cx.reg::<u32>(uop.r[1]).cast::<i32>();
            for h in 0..2 {
                let mask = (cx.mask >> (16 * h)) as u16;
                let v = _mm512_maskz_loadu_epi32(mask, p.wrapping_add(64 * h).cast());
                _mm512_mask_storeu_epi32(dst.add(16 * h), mask, v);
            }
            return;
        }
        for c in 0..N {
            let dst = &mut *cx.reg::<E::Reg>(uop.r[1 + c]);
            for (i, to) in dst.iter_mut().enumerate() {
                if cx.mask >> i & 1 != 0 {
                    *to = E::get(p.wrapping_add((i * N + c) * E::BYTES));
                }
            }
        }
    }
}

/// # Safety
///
/// The active lanes at `host + offset` are readable, and so is `host` itself; otherwise as [`Shape::run`].
#[inline(always)]
unsafe fn load_scattered<L: Level, E: Elem, const N: usize>(
    cx: &mut Ctx,
    uop: &Uop,
    host: *mut u8,
    offsets: &[u32; LANES],
) {
    // SAFETY: by contract.
    unsafe {
        if cx.mask == !0 {
            if E::BYTES == 4 && N == 4 {
                let halves = &*std::ptr::from_ref(offsets).cast::<[[u32; 16]; 2]>();
                let [a, b, c, d] = word_registers(cx, uop);
                vector::gather4::<L>(host, &halves[0], [a, b, c, d]);
                vector::gather4::<L>(
                    host,
                    &halves[1],
                    [a.add(16), b.add(16), c.add(16), d.add(16)],
                );
                return;
            }
            if E::BYTES == 4 && N == 1 {
                let dst = cx.reg::<u32>(uop.r[1]).cast::<u32>();
                for q in (0..LANES).step_by(8) {
                    if is_run(offsets, q) {
                        let from = host.add(offsets[q] as usize).cast::<[u32; 8]>();
                        *dst.add(q).cast::<[u32; 8]>() = from.read_unaligned();
                    } else {
                        for i in q..q + 8 {
                            *dst.add(i) =
                                host.add(offsets[i] as usize).cast::<u32>().read_unaligned();
                        }
                    }
                }
                return;
            }
            for c in 0..N {
                let dst = cx.reg::<E::Reg>(uop.r[1 + c]).cast::<E::Reg>();
                for i in 0..LANES {
                    *dst.add(i) = E::get(host.add(offsets[i] as usize + c * E::BYTES));
                }
            }
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if L::KIND == Simd::Avx512 && E::BYTES == 4 && N == 1 {
            use std::arch::x86_64::*;
            let dst = cx.reg::<u32>(uop.r[1]).cast::<i32>();
            let steps = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
            for q in (0..LANES).step_by(8) {
                let mask = (cx.mask >> q) as u8;
                if mask == 0 {
                    continue;
                }
                let first = mask.trailing_zeros();
                let origin = offsets[q + first as usize].wrapping_sub(4 * first);
                let expected = _mm256_add_epi32(_mm256_set1_epi32(origin as i32), steps);
                let found = _mm256_loadu_epi32(offsets.as_ptr().add(q).cast());
                if _mm256_mask_cmpneq_epi32_mask(mask, found, expected) == 0 {
                    // Lane q would be before the window if lanes before the first active one were.
                    let at = i64::from(offsets[q + first as usize]) - i64::from(4 * first);
                    let from = host.wrapping_offset(at as isize).cast_const().cast();
                    _mm256_mask_storeu_epi32(
                        dst.add(q),
                        mask,
                        _mm256_maskz_loadu_epi32(mask, from),
                    );
                } else {
                    for i in q..q + 8 {
                        if cx.mask >> i & 1 != 0 {
                            *dst.add(i) =
                                host.add(offsets[i] as usize).cast::<i32>().read_unaligned();
                        }
                    }
                }
            }
            return;
        }
        for c in 0..N {
            let dst = &mut *cx.reg::<E::Reg>(uop.r[1 + c]);
            for (i, to) in dst.iter_mut().enumerate() {
                if cx.mask >> i & 1 != 0 {
                    *to = E::get(host.add(offsets[i] as usize + c * E::BYTES));
                }
            }
        }
    }
}

/// Whether lanes `q..q + 8` are at neighbouring words.
#[inline(always)]
fn is_run(offsets: &[u32; LANES], q: usize) -> bool {
    let mut diff = 0;
    for i in 0..8 {
        diff |= offsets[q + i].wrapping_sub(offsets[q]) ^ (4 * i as u32);
    }
    diff == 0
}

/// Lane 0 of registers `r[1..5]`.
///
/// # Safety
///
/// They are 32-bit registers.
#[inline(always)]
unsafe fn word_registers(cx: &Ctx, uop: &Uop) -> [*mut u32; 4] {
    // SAFETY: by contract.
    unsafe {
        [
            cx.reg::<u32>(uop.r[1]).cast(),
            cx.reg::<u32>(uop.r[2]).cast(),
            cx.reg::<u32>(uop.r[3]).cast(),
            cx.reg::<u32>(uop.r[4]).cast(),
        ]
    }
}

/// Lane by lane, each with its own look-up.
///
/// # Safety
///
/// As [`Shape::run`].
#[cold]
unsafe fn load_slowly<W: Window, E: Elem, const N: usize>(cx: &mut Ctx, uop: &Uop) -> Flow {
    // SAFETY: by contract; each access is checked.
    unsafe {
        let addr = *cx.reg::<W::Addr>(uop.r[0]);
        for (i, a) in addr.into_iter().enumerate() {
            if cx.mask >> i & 1 != 0 {
                let p = match lane_pointer::<W>(
                    cx,
                    a.plus(uop.imm as u64).wide(),
                    (E::BYTES * N) as u64,
                    false,
                ) {
                    Ok(p) => p,
                    Err(kind) => return cx.fail(kind, i as u32),
                };
                for c in 0..N {
                    (*cx.reg::<E::Reg>(uop.r[1 + c]))[i] = E::get(p.add(c * E::BYTES));
                }
            }
        }
    }
    Flow::Next
}

/// The host pointer of one access, or what is wrong with it.
#[cold]
pub(super) fn lane_pointer<W: Window>(
    cx: &Ctx,
    address: u64,
    n_bytes: u64,
    store: bool,
) -> Result<*mut u8, FaultKind> {
    if let Some(p) = W::range(cx, address, n_bytes, n_bytes, store) {
        return Ok(p);
    }
    if W::range(cx, address, n_bytes, 1, store).is_some() {
        return Err(FaultKind::Misaligned { space: W::SPACE, address, n_bytes: n_bytes as u32 });
    }
    if store && W::range(cx, address, n_bytes, 1, false).is_some() {
        return Err(FaultKind::ReadOnly { address });
    }
    let nearest =
        match W::SPACE {
            Space::Shared => {
                let size = u64::from(cx.shared_bytes);
                let distance = address as u32 as i32;
                let distance =
                    if distance < 0 { i64::from(distance) } else { address as i64 - size as i64 };
                Some(Nearest { base: 0, n_bytes: size, distance })
            }
            // An address just below an allocation has the slot before it.
            Space::Global => {
                let slot = address >> SLOT_SHIFT;
                [slot, slot + 1].into_iter().filter(|s| *s < cx.n_views as u64).find_map(|s| {
                    // SAFETY: the slot is one of the views.
                    let size = unsafe { (*cx.views.add(s as usize)).n_bytes };
                    let base = s << SLOT_SHIFT;
                    let distance = if address >= base {
                        (address - base) as i64 - size as i64
                    } else {
                        -((base - address) as i64)
                    };
                    (size > 0 && distance.unsigned_abs() < 1 << (SLOT_SHIFT - 1))
                        .then_some(Nearest { base, n_bytes: size, distance })
                })
            }
        };
    Err(FaultKind::OutOfBounds { space: W::SPACE, address, n_bytes: n_bytes as u32, nearest })
}

impl<W: Window, E: Elem, const N: usize> Shape for Store<W, E, N> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        let bytes = (E::BYTES * N) as u64;
        let imm = uop.imm as u64;
        if W::SPACE == Space::Shared {
            cx.has_stored = true;
        }
        // SAFETY: by the contract of `run`, and because the accesses were checked.
        unsafe {
            let addr = &*cx.reg::<W::Addr>(uop.r[0]);
            if let Some(p) = neighbours::<L, W>(cx, addr, imm, bytes, true) {
                store_neighbours::<L, E, N>(cx, uop, p);
                return Flow::Next;
            }
            if let Some((host, offsets)) = together::<W>(cx, addr, imm, bytes, true) {
                store_scattered::<L, E, N>(cx, uop, host, &offsets);
                return Flow::Next;
            }
            store_slowly::<W, E, N>(cx, uop)
        }
    }
}

/// In order of lanes, so that the last of several lanes at a place wins.
///
/// # Safety
///
/// The active lanes at `host + offset` are writable; otherwise as [`Shape::run`].
#[inline(always)]
unsafe fn store_scattered<L: Level, E: Elem, const N: usize>(
    cx: &mut Ctx,
    uop: &Uop,
    host: *mut u8,
    offsets: &[u32; LANES],
) {
    // SAFETY: by contract.
    unsafe {
        if cx.mask == !0 && E::BYTES == 4 && N == 4 {
            let halves = &*std::ptr::from_ref(offsets).cast::<[[u32; 16]; 2]>();
            let [a, b, c, d] = word_registers(cx, uop);
            vector::scatter4::<L>([a, b, c, d], host, &halves[0]);
            vector::scatter4::<L>([a.add(16), b.add(16), c.add(16), d.add(16)], host, &halves[1]);
            return;
        }
        if cx.mask == !0 && E::BYTES == 4 && N == 1 {
            let src = cx.reg::<u32>(uop.r[1]).cast::<u32>();
            for q in (0..LANES).step_by(8) {
                if is_run(offsets, q) {
                    let to = host.add(offsets[q] as usize).cast::<[u32; 8]>();
                    to.write_unaligned(*src.add(q).cast::<[u32; 8]>());
                } else {
                    for i in q..q + 8 {
                        host.add(offsets[i] as usize).cast::<u32>().write_unaligned(*src.add(i));
                    }
                }
            }
            return;
        }
        for i in 0..LANES {
            if cx.mask >> i & 1 != 0 {
                for c in 0..N {
                    let value = (*cx.reg::<E::Reg>(uop.r[1 + c]))[i];
                    E::put(host.add(offsets[i] as usize + c * E::BYTES), value);
                }
            }
        }
    }
}

/// # Safety
///
/// The active lanes at `p + bytes * lane` are writable; otherwise as [`Shape::run`].
#[inline(always)]
unsafe fn store_neighbours<L: Level, E: Elem, const N: usize>(cx: &mut Ctx, uop: &Uop, p: *mut u8) {
    // SAFETY: by contract.
    unsafe {
        if cx.mask == !0 {
            if E::BYTES == 4 && N == 4 {
                let [a, b, c, d] = word_registers(cx, uop);
                vector::join4::<L>([a, b, c, d], p.cast());
                return;
            }
            if E::BYTES == size_of::<E::Reg>() && N == 1 {
                p.cast::<[E::Reg; LANES]>().write_unaligned(*cx.reg::<E::Reg>(uop.r[1]));
                return;
            }
            for c in 0..N {
                let src = &*cx.reg::<E::Reg>(uop.r[1 + c]);
                for (i, value) in src.iter().enumerate() {
                    E::put(p.add((i * N + c) * E::BYTES), *value);
                }
            }
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if L::KIND == Simd::Avx512 && E::BYTES == 4 && N == 1 {
            use std::arch::x86_64::*;
            let src = cx.reg::<u32>(uop.r[1]).cast::<i32>();
            for h in 0..2 {
                let v = _mm512_loadu_epi32(src.add(16 * h));
                _mm512_mask_storeu_epi32(
                    p.wrapping_add(64 * h).cast(),
                    (cx.mask >> (16 * h)) as u16,
                    v,
                );
            }
            return;
        }
        for c in 0..N {
            let src = &*cx.reg::<E::Reg>(uop.r[1 + c]);
            for (i, value) in src.iter().enumerate() {
                if cx.mask >> i & 1 != 0 {
                    E::put(p.wrapping_add((i * N + c) * E::BYTES), *value);
                }
            }
        }
    }
}

/// Lane by lane, each with its own look-up. Nothing is stored if a lane faults.
///
/// # Safety
///
/// As [`Shape::run`].
#[cold]
unsafe fn store_slowly<W: Window, E: Elem, const N: usize>(cx: &mut Ctx, uop: &Uop) -> Flow {
    // SAFETY: by contract; each access is checked.
    unsafe {
        let addr = *cx.reg::<W::Addr>(uop.r[0]);
        let mut pointers = [std::ptr::null_mut(); LANES];
        for (i, a) in addr.into_iter().enumerate() {
            if cx.mask >> i & 1 != 0 {
                pointers[i] = match lane_pointer::<W>(
                    cx,
                    a.plus(uop.imm as u64).wide(),
                    (E::BYTES * N) as u64,
                    true,
                ) {
                    Ok(p) => p,
                    Err(kind) => return cx.fail(kind, i as u32),
                };
            }
        }
        for (i, p) in pointers.into_iter().enumerate() {
            if cx.mask >> i & 1 != 0 {
                for c in 0..N {
                    E::put(p.add(c * E::BYTES), (*cx.reg::<E::Reg>(uop.r[1 + c]))[i]);
                }
            }
        }
    }
    Flow::Next
}

super::rows! {
    LdGlobalF32: ld::<Global, B32, 1>();
    LdGlobalU32: ld::<Global, B32, 1>();
    LdGlobalNcF32: ld::<Global, B32, 1>();
    LdGlobalNcU32: ld::<Global, B32, 1>();
    LdGlobalU64: ld::<Global, B64, 1>();
    LdGlobalF64: ld::<Global, B64, 1>();
    LdGlobalB16: ld::<Global, B16, 1>();
    LdGlobalU8: ld::<Global, U8, 1>();
    LdGlobalS8: ld::<Global, S8, 1>();
    LdGlobalV2F32: ld::<Global, B32, 2>();
    LdGlobalV2U32: ld::<Global, B32, 2>();
    LdGlobalNcV2F32: ld::<Global, B32, 2>();
    LdGlobalV4F32: ld::<Global, B32, 4>();
    LdGlobalV4U32: ld::<Global, B32, 4>();
    LdGlobalNcV4F32: ld::<Global, B32, 4>();
    LdGlobalV2F64: ld::<Global, B64, 2>();
    LdGlobalV2U64: ld::<Global, B64, 2>();
    LdGlobalV2B16: ld::<Global, B16, 2>();
    LdGlobalV4B16: ld::<Global, B16, 4>();
    StGlobalF32: st::<Global, B32, 1>();
    StGlobalU32: st::<Global, B32, 1>();
    StGlobalU64: st::<Global, B64, 1>();
    StGlobalF64: st::<Global, B64, 1>();
    StGlobalB16: st::<Global, B16, 1>();
    StGlobalU8: st::<Global, U8, 1>();
    StGlobalV2F32: st::<Global, B32, 2>();
    StGlobalV2U32: st::<Global, B32, 2>();
    StGlobalV4F32: st::<Global, B32, 4>();
    StGlobalV4U32: st::<Global, B32, 4>();
    StGlobalV2F64: st::<Global, B64, 2>();
    StGlobalV2U64: st::<Global, B64, 2>();
    StGlobalV2B16: st::<Global, B16, 2>();
    StGlobalV4B16: st::<Global, B16, 4>();
    LdSharedF32: ld::<Shared, B32, 1>();
    LdSharedU32: ld::<Shared, B32, 1>();
    LdSharedU64: ld::<Shared, B64, 1>();
    LdSharedF64: ld::<Shared, B64, 1>();
    LdSharedB16: ld::<Shared, B16, 1>();
    LdSharedU8: ld::<Shared, U8, 1>();
    LdSharedS8: ld::<Shared, S8, 1>();
    LdSharedV2F32: ld::<Shared, B32, 2>();
    LdSharedV2U32: ld::<Shared, B32, 2>();
    LdSharedV4F32: ld::<Shared, B32, 4>();
    LdSharedV4U32: ld::<Shared, B32, 4>();
    StSharedF32: st::<Shared, B32, 1>();
    StSharedU32: st::<Shared, B32, 1>();
    StSharedU64: st::<Shared, B64, 1>();
    StSharedF64: st::<Shared, B64, 1>();
    StSharedB16: st::<Shared, B16, 1>();
    StSharedU8: st::<Shared, U8, 1>();
    StSharedV2F32: st::<Shared, B32, 2>();
    StSharedV2U32: st::<Shared, B32, 2>();
    StSharedV4F32: st::<Shared, B32, 4>();
    StSharedV4U32: st::<Shared, B32, 4>();
}
