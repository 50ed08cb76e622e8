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
                let v = load_split4_512([0usize, 1, 2, 3].map(|q| src.add(64 * half + 16 * q)));
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
                let (mut a, mut b, mut c, mut d) =
                    (_mm_loadu_ps(p), _mm_loadu_ps(p.add(4)), _mm_loadu_ps(p.add(8)), _mm_loadu_ps(p.add(12)));
                _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
                for (to, v) in dst.into_iter().zip([a, b, c, d]) {
                    _mm_storeu_ps(to.add(4 * q).cast(), v);
                }
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
                let v = src.map(|p| _mm512_loadu_ps(p.add(16 * half).cast()));
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
                let [mut a, mut b, mut c, mut d] = src.map(|p| _mm_loadu_ps(p.add(4 * q).cast()));
                _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
                for (k, v) in [a, b, c, d].into_iter().enumerate() {
                    _mm_storeu_ps(dst.add(16 * q + 4 * k).cast(), v);
                }
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
                let at = |r: usize| _mm_loadu_ps(base.wrapping_add(offsets[4 * q + r] as usize).cast());
                let (mut a, mut b, mut c, mut d) = (at(0), at(1), at(2), at(3));
                _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
                for (to, v) in dst.into_iter().zip([a, b, c, d]) {
                    _mm_storeu_ps(to.add(4 * q).cast(), v);
                }
            }
        }
        return;
    }
    for (i, &offset) in offsets.iter().enumerate() {
        for (c, to) in dst.into_iter().enumerate() {
            // SAFETY: by contract.
            unsafe { *to.add(i) = base.wrapping_add(offset as usize).cast::<u32>().add(c).read_unaligned() }
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
        let v = at.map(|p| _mm512_loadu_si512(p.cast()));
        let words01 = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
        let words23 = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
        let a = _mm512_permutex2var_epi32(v[0], words01, v[1]);
        let b = _mm512_permutex2var_epi32(v[2], words01, v[3]);
        let c = _mm512_permutex2var_epi32(v[0], words23, v[1]);
        let d = _mm512_permutex2var_epi32(v[2], words23, v[3]);
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
        let at = |i: usize| _mm_loadu_ps(base.wrapping_add(offsets[i] as usize).cast());
        let row = |r: usize| {
            let v = _mm512_castps128_ps512(at(r));
            let v = _mm512_insertf32x4::<1>(v, at(4 + r));
            let v = _mm512_insertf32x4::<2>(v, at(8 + r));
            _mm512_insertf32x4::<3>(v, at(12 + r))
        };
        transpose4_512([row(0), row(1), row(2), row(3)])
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
