//! Shapes of instructions: which registers are read and written, and how inactive lanes keep their values.

use std::marker::PhantomData;

use crate::program::{Ctx, Flow, LANES, Lane, Uop};
use crate::simd::{Level, Simd};

/// Executes an instruction of a certain shape.
pub(crate) trait Shape {
    /// See [`LaneOp::run`](crate::simd::LaneOp::run).
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow;
}

/// `r[0] = f(r[1])`
pub(crate) struct Un<A, D, F>(F, PhantomData<(A, D)>);
/// `r[0] = f(r[1], r[2])`
pub(crate) struct Bin<A, B, D, F>(F, PhantomData<(A, B, D)>);
/// `r[0] = f(r[1], r[2], r[3])`
pub(crate) struct Tri<A, B, C, D, F>(F, PhantomData<(A, B, C, D)>);
/// predicate `r[0] = f(r[1], r[2])`
pub(crate) struct Cmp<A, F>(F, PhantomData<A>);
/// predicate `r[0] = f(predicate r[1], predicate r[2])`, lanes as bits
pub(crate) struct Bits<F>(F);
/// `r[0] = predicate r[3] ? r[1] : r[2]`
pub(crate) struct Sel<A>(PhantomData<A>);

pub(crate) fn un<A: Lane, D: Lane, F: Fn(A) -> D>(f: F) -> Un<A, D, F> {
    Un(f, PhantomData)
}
pub(crate) fn bin<A: Lane, B: Lane, D: Lane, F: Fn(A, B) -> D>(f: F) -> Bin<A, B, D, F> {
    Bin(f, PhantomData)
}
pub(crate) fn tri<A: Lane, B: Lane, C: Lane, D: Lane, F: Fn(A, B, C) -> D>(
    f: F,
) -> Tri<A, B, C, D, F> {
    Tri(f, PhantomData)
}
pub(crate) fn cmp<A: Lane, F: Fn(A, A) -> bool>(f: F) -> Cmp<A, F> {
    Cmp(f, PhantomData)
}
pub(crate) fn bits<F: Fn(u32, u32) -> u32>(f: F) -> Bits<F> {
    Bits(f)
}
pub(crate) fn sel<A: Lane>() -> Sel<A> {
    Sel(PhantomData)
}

impl<A: Lane, D: Lane, F: Fn(A) -> D> Shape for Un<A, D, F> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        let mut out = [D::default(); LANES];
        // SAFETY: by the contract of `run`.
        unsafe {
            let a = &*cx.reg::<A>(uop.r[1]);
            for i in 0..LANES {
                out[i] = self.0(a[i]);
            }
            store::<L, D>(cx, uop.r[0], &out);
        }
        Flow::Next
    }
}

impl<A: Lane, B: Lane, D: Lane, F: Fn(A, B) -> D> Shape for Bin<A, B, D, F> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        let mut out = [D::default(); LANES];
        // SAFETY: by the contract of `run`.
        unsafe {
            let (a, b) = (&*cx.reg::<A>(uop.r[1]), &*cx.reg::<B>(uop.r[2]));
            for i in 0..LANES {
                out[i] = self.0(a[i], b[i]);
            }
            store::<L, D>(cx, uop.r[0], &out);
        }
        Flow::Next
    }
}

impl<A: Lane, B: Lane, C: Lane, D: Lane, F: Fn(A, B, C) -> D> Shape for Tri<A, B, C, D, F> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        let mut out = [D::default(); LANES];
        // SAFETY: by the contract of `run`.
        unsafe {
            let (a, b, c) =
                (&*cx.reg::<A>(uop.r[1]), &*cx.reg::<B>(uop.r[2]), &*cx.reg::<C>(uop.r[3]));
            for i in 0..LANES {
                out[i] = self.0(a[i], b[i], c[i]);
            }
            store::<L, D>(cx, uop.r[0], &out);
        }
        Flow::Next
    }
}

impl<A: Lane, F: Fn(A, A) -> bool> Shape for Cmp<A, F> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        let mut out = [0u32; LANES];
        // SAFETY: by the contract of `run`.
        unsafe {
            let (a, b) = (&*cx.reg::<A>(uop.r[1]), &*cx.reg::<A>(uop.r[2]));
            for i in 0..LANES {
                out[i] = if self.0(a[i], b[i]) { !0 } else { 0 };
            }
            let bits = signs::<L>(&out);
            let p = cx.pred(uop.r[0]);
            *p = (*p & !cx.mask) | (bits & cx.mask);
        }
        Flow::Next
    }
}

impl<F: Fn(u32, u32) -> u32> Shape for Bits<F> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        // SAFETY: by the contract of `run`.
        unsafe {
            let bits = self.0(*cx.pred(uop.r[1]), *cx.pred(uop.r[2]));
            let p = cx.pred(uop.r[0]);
            *p = (*p & !cx.mask) | (bits & cx.mask);
        }
        Flow::Next
    }
}

impl<A: Lane> Shape for Sel<A> {
    #[inline(always)]
    unsafe fn run<L: Level>(&self, cx: &mut Ctx, uop: &Uop) -> Flow {
        // SAFETY: by the contract of `run`.
        unsafe {
            let (a, b) = (*cx.reg::<A>(uop.r[1]), *cx.reg::<A>(uop.r[2]));
            let out = blend::<L, A>(*cx.pred(uop.r[3]), &a, &b);
            store::<L, A>(cx, uop.r[0], &out);
        }
        Flow::Next
    }
}

/// Writes the active lanes of a register.
///
/// # Safety
///
/// `offset` is that of a register of `D`'s width; the machine has the features of `L`.
#[inline(always)]
pub(crate) unsafe fn store<L: Level, D: Lane>(cx: &mut Ctx, offset: u32, out: &[D; LANES]) {
    // SAFETY: by contract.
    unsafe {
        let dst = cx.reg::<D>(offset);
        *dst = if cx.mask == !0 { *out } else { blend::<L, D>(cx.mask, out, &*dst) };
    }
}

/// Lane `i` is `a[i]` if bit `i` of `mask` is set, `b[i]` otherwise.
///
/// # Safety
///
/// The machine has the features of `L`.
#[inline(always)]
pub(crate) unsafe fn blend<L: Level, D: Lane>(
    mask: u32,
    a: &[D; LANES],
    b: &[D; LANES],
) -> [D; LANES] {
    let mut out = [D::default(); LANES];
    #[cfg(target_arch = "x86_64")]
    if L::KIND == Simd::Avx512 {
        use std::arch::x86_64::*;
        // SAFETY: AVX-512 is there; the arrays have 32 lanes of 4 or 8 bytes.
        unsafe {
            let (pa, pb, po) =
                (a.as_ptr().cast::<u8>(), b.as_ptr().cast::<u8>(), out.as_mut_ptr().cast::<u8>());
            if size_of::<D>() == 4 {
                for h in 0..2 {
                    let x = _mm512_loadu_si512(pa.add(64 * h).cast());
                    let y = _mm512_loadu_si512(pb.add(64 * h).cast());
                    _mm512_storeu_si512(
                        po.add(64 * h).cast(),
                        _mm512_mask_blend_epi32((mask >> (16 * h)) as u16, y, x),
                    );
                }
            } else {
                for h in 0..4 {
                    let x = _mm512_loadu_si512(pa.add(64 * h).cast());
                    let y = _mm512_loadu_si512(pb.add(64 * h).cast());
                    _mm512_storeu_si512(
                        po.add(64 * h).cast(),
                        _mm512_mask_blend_epi64((mask >> (8 * h)) as u8, y, x),
                    );
                }
            }
        }
        return out;
    }
    for i in 0..LANES {
        out[i] = if mask >> i & 1 != 0 { a[i] } else { b[i] };
    }
    out
}

/// The top bits of the lanes.
///
/// # Safety
///
/// The machine has the features of `L`.
#[inline(always)]
pub(crate) unsafe fn signs<L: Level>(lanes: &[u32; LANES]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: the features are there; the array has 32 lanes of 4 bytes.
        unsafe {
            let p = lanes.as_ptr();
            if L::KIND == Simd::Avx512 {
                let low = _mm512_movepi32_mask(_mm512_loadu_si512(p.cast()));
                let high = _mm512_movepi32_mask(_mm512_loadu_si512(p.add(16).cast()));
                return u32::from(low) | u32::from(high) << 16;
            }
            if L::KIND == Simd::Avx2 {
                let mut bits = 0;
                for q in 0..4 {
                    bits |= (_mm256_movemask_ps(_mm256_loadu_ps(p.add(8 * q).cast())) as u32)
                        << (8 * q);
                }
                return bits;
            }
        }
    }
    let mut bits = 0;
    for (i, lane) in lanes.iter().enumerate() {
        bits |= (lane >> 31) << i;
    }
    bits
}
