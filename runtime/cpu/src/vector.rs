//! Rearrangements between memory order (the words of a lane are neighbours) and register order (a word of
//! all lanes is a register), 32 lanes at a time.

use crate::program::LANES;
use crate::simd::{Level, Simd};

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// `dst[c][i] = src[4 i + c]`
///
/// # Safety
///
/// `src` has 128 readable words, each `dst` 32 writable ones; the machine has the features of `L`.
#[inline(always)]
pub(crate) unsafe fn split4<L: Level>(src: *const u32, dst: [*mut u32; 4]) {
    #[cfg(target_arch = "x86_64")]
    if L::KIND == Simd::Avx512 {
        // SAFETY: by contract.
        unsafe {
            for half in 0..2 {
                let p = src.add(64 * half);
                let v = load_split4_512([p, p.add(16), p.add(32), p.add(48)]);
                for c in 0..4 {
                    _mm512_storeu_si512(dst[c].add(16 * half).cast(), v[c]);
                }
            }
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if L::KIND == Simd::Avx2 {
        // SAFETY: by contract.
        unsafe {
            for q in 0..8 {
                let p = src.add(16 * q).cast::<f32>();
                let (mut a, mut b, mut c, mut d) = (
                    _mm_loadu_ps(p),
                    _mm_loadu_ps(p.add(4)),
                    _mm_loadu_ps(p.add(8)),
                    _mm_loadu_ps(p.add(12)),
                );
                _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
                _mm_storeu_ps(dst[0].add(4 * q).cast(), a);
                _mm_storeu_ps(dst[1].add(4 * q).cast(), b);
                _mm_storeu_ps(dst[2].add(4 * q).cast(), c);
                _mm_storeu_ps(dst[3].add(4 * q).cast(), d);
            }
        }
        return;
    }
    for i in 0..LANES {
        for (c, to) in dst.into_iter().enumerate() {
            // SAFETY: by contract.
            unsafe { *to.add(i) = src.add(4 * i + c).read_unaligned() }
        }
    }
}

/// `dst[4 i + c] = src[c][i]`
///
/// # Safety
///
/// Each `src` has 32 readable words, `dst` 128 writable ones; the machine has the features of `L`.
#[inline(always)]
pub(crate) unsafe fn join4<L: Level>(src: [*const u32; 4], dst: *mut u32) {
    #[cfg(target_arch = "x86_64")]
    if L::KIND == Simd::Avx512 {
        // SAFETY: by contract.
        unsafe {
            for half in 0..2 {
                let mut v = [_mm512_setzero_ps(); 4];
                for c in 0..4 {
                    v[c] = _mm512_loadu_ps(src[c].add(16 * half).cast());
                }
                let v = join4_512(v);
                for q in 0..4 {
                    _mm512_storeu_ps(dst.add(64 * half + 16 * q).cast(), v[q]);
                }
            }
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if L::KIND == Simd::Avx2 {
        // SAFETY: by contract.
        unsafe {
            for q in 0..8 {
                let (mut a, mut b) = (
                    _mm_loadu_ps(src[0].add(4 * q).cast()),
                    _mm_loadu_ps(src[1].add(4 * q).cast()),
                );
                let (mut c, mut d) = (
                    _mm_loadu_ps(src[2].add(4 * q).cast()),
                    _mm_loadu_ps(src[3].add(4 * q).cast()),
                );
                _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
                let to = dst.add(16 * q).cast::<f32>();
                _mm_storeu_ps(to, a);
                _mm_storeu_ps(to.add(4), b);
                _mm_storeu_ps(to.add(8), c);
                _mm_storeu_ps(to.add(12), d);
            }
        }
        return;
    }
    for i in 0..LANES {
        for (c, from) in src.into_iter().enumerate() {
            // SAFETY: by contract.
            unsafe { dst.add(4 * i + c).write_unaligned(*from.add(i)) }
        }
    }
}

/// `dst[c][i] = word c at base + offsets[i]`, for 16 lanes.
///
/// # Safety
///
/// There are 16 offsets, at each of which 16 bytes are readable; each `dst` has 16 writable words; the
/// machine has the features of `L`.
#[inline(always)]
pub(crate) unsafe fn gather4<L: Level>(base: *const u8, offsets: &[u32; 16], dst: [*mut u32; 4]) {
    #[cfg(target_arch = "x86_64")]
    if L::KIND == Simd::Avx512 {
        // SAFETY: by contract.
        unsafe {
            let v = load_gather4_512(base, offsets);
            for c in 0..4 {
                _mm512_storeu_ps(dst[c].cast(), v[c]);
            }
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if L::KIND == Simd::Avx2 {
        // SAFETY: by contract.
        unsafe {
            for q in 0..4 {
                let mut a = _mm_loadu_ps(base.wrapping_add(offsets[4 * q] as usize).cast());
                let mut b = _mm_loadu_ps(base.wrapping_add(offsets[4 * q + 1] as usize).cast());
                let mut c = _mm_loadu_ps(base.wrapping_add(offsets[4 * q + 2] as usize).cast());
                let mut d = _mm_loadu_ps(base.wrapping_add(offsets[4 * q + 3] as usize).cast());
                _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
                _mm_storeu_ps(dst[0].add(4 * q).cast(), a);
                _mm_storeu_ps(dst[1].add(4 * q).cast(), b);
                _mm_storeu_ps(dst[2].add(4 * q).cast(), c);
                _mm_storeu_ps(dst[3].add(4 * q).cast(), d);
            }
        }
        return;
    }
    for (i, &offset) in offsets.iter().enumerate() {
        for (c, to) in dst.into_iter().enumerate() {
            // SAFETY: by contract.
            unsafe {
                *to.add(i) =
                    base.wrapping_add(offset as usize).cast::<u32>().add(c).read_unaligned()
            }
        }
    }
}

/// `word c at base + offsets[i] = src[c][i]`, for 16 lanes in order.
///
/// # Safety
///
/// At each of the 16 offsets 16 bytes are writable; each `src` has 16 readable words; the machine has the
/// features of `L`.
#[inline(always)]
pub(crate) unsafe fn scatter4<L: Level>(src: [*const u32; 4], base: *mut u8, offsets: &[u32; 16]) {
    #[cfg(target_arch = "x86_64")]
    if L::KIND == Simd::Avx512 {
        // SAFETY: by contract.
        unsafe {
            let mut v = [_mm512_setzero_ps(); 4];
            for c in 0..4 {
                v[c] = _mm512_loadu_ps(src[c].cast());
            }
            // Part g of row r is lane 4 g + r.
            let rows = transpose4_512(v);
            for r in 0..4 {
                _mm_storeu_ps(
                    base.wrapping_add(offsets[r] as usize).cast(),
                    _mm512_castps512_ps128(rows[r]),
                );
            }
            for r in 0..4 {
                _mm_storeu_ps(
                    base.wrapping_add(offsets[4 + r] as usize).cast(),
                    _mm512_extractf32x4_ps::<1>(rows[r]),
                );
            }
            for r in 0..4 {
                _mm_storeu_ps(
                    base.wrapping_add(offsets[8 + r] as usize).cast(),
                    _mm512_extractf32x4_ps::<2>(rows[r]),
                );
            }
            for r in 0..4 {
                _mm_storeu_ps(
                    base.wrapping_add(offsets[12 + r] as usize).cast(),
                    _mm512_extractf32x4_ps::<3>(rows[r]),
                );
            }
        }
        return;
    }
    for (i, &offset) in offsets.iter().enumerate() {
        for (c, from) in src.into_iter().enumerate() {
            // SAFETY: by contract.
            unsafe {
                base.wrapping_add(offset as usize)
                    .cast::<u32>()
                    .add(c)
                    .write_unaligned(*from.add(i))
            }
        }
    }
}

/// Word `c` of 16 lanes, four neighbouring lanes at each address.
///
/// # Safety
///
/// 16 readable words at each address; AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn load_split4_512(at: [*const u32; 4]) -> [__m512i; 4] {
    // SAFETY: by contract.
    unsafe {
        let (v0, v1) = (_mm512_loadu_si512(at[0].cast()), _mm512_loadu_si512(at[1].cast()));
        let (v2, v3) = (_mm512_loadu_si512(at[2].cast()), _mm512_loadu_si512(at[3].cast()));
        let words01 = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
        let words23 = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
        let a = _mm512_permutex2var_epi32(v0, words01, v1);
        let b = _mm512_permutex2var_epi32(v2, words01, v3);
        let c = _mm512_permutex2var_epi32(v0, words23, v1);
        let d = _mm512_permutex2var_epi32(v2, words23, v3);
        [
            _mm512_shuffle_i32x4::<0x44>(a, b),
            _mm512_shuffle_i32x4::<0xee>(a, b),
            _mm512_shuffle_i32x4::<0x44>(c, d),
            _mm512_shuffle_i32x4::<0xee>(c, d),
        ]
    }
}

/// Transposes the 4×4 words in each 128-bit part.
///
/// # Safety
///
/// AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn transpose4_512(v: [__m512; 4]) -> [__m512; 4] {
    // SAFETY: by contract.
    unsafe {
        let a = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1]));
        let b = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
        let c = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3]));
        let d = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
        [
            _mm512_castpd_ps(_mm512_unpacklo_pd(a, c)),
            _mm512_castpd_ps(_mm512_unpackhi_pd(a, c)),
            _mm512_castpd_ps(_mm512_unpacklo_pd(b, d)),
            _mm512_castpd_ps(_mm512_unpackhi_pd(b, d)),
        ]
    }
}

/// Word `c` of 16 lanes at arbitrary offsets.
///
/// # Safety
///
/// As [`gather4`]; AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn load_gather4_512(base: *const u8, offsets: &[u32; 16]) -> [__m512; 4] {
    // SAFETY: by contract.
    unsafe {
        let mut rows = [_mm512_setzero_ps(); 4];
        for r in 0..4 {
            let v =
                _mm512_castps128_ps512(_mm_loadu_ps(base.wrapping_add(offsets[r] as usize).cast()));
            let v = _mm512_insertf32x4::<1>(
                v,
                _mm_loadu_ps(base.wrapping_add(offsets[4 + r] as usize).cast()),
            );
            let v = _mm512_insertf32x4::<2>(
                v,
                _mm_loadu_ps(base.wrapping_add(offsets[8 + r] as usize).cast()),
            );
            rows[r] = _mm512_insertf32x4::<3>(
                v,
                _mm_loadu_ps(base.wrapping_add(offsets[12 + r] as usize).cast()),
            );
        }
        transpose4_512(rows)
    }
}

/// From four words of 16 lanes to the words of four lanes each.
///
/// # Safety
///
/// AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn join4_512(v: [__m512; 4]) -> [__m512; 4] {
    // SAFETY: by contract.
    unsafe {
        let z = transpose4_512(v);
        let a = _mm512_shuffle_f32x4::<0x44>(z[0], z[1]);
        let b = _mm512_shuffle_f32x4::<0x44>(z[2], z[3]);
        let c = _mm512_shuffle_f32x4::<0xee>(z[0], z[1]);
        let d = _mm512_shuffle_f32x4::<0xee>(z[2], z[3]);
        [
            _mm512_shuffle_f32x4::<0x88>(a, b),
            _mm512_shuffle_f32x4::<0xdd>(a, b),
            _mm512_shuffle_f32x4::<0x88>(c, d),
            _mm512_shuffle_f32x4::<0xdd>(c, d),
        ]
    }
}
