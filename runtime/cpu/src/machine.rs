//! Machine vectors of floats, as the tiles of fused blocks use them.

/// A machine vector of floats.
pub(crate) trait Vector: Copy {
    /// Floats.
    const N: usize;
    /// # Safety
    ///
    /// The features are there.
    unsafe fn zero() -> Self;
    /// # Safety
    ///
    /// `N` readable floats, aligned; the features are there.
    unsafe fn load(at: *const f32) -> Self;
    /// # Safety
    ///
    /// The features are there.
    unsafe fn splat(value: f32) -> Self;
    /// `low` in lanes 0 to 7, `high` in the others, if there are 16.
    ///
    /// # Safety
    ///
    /// The features are there.
    #[inline(always)]
    unsafe fn splat2(low: f32, high: f32) -> Self {
        let _ = high;
        // SAFETY: by contract.
        unsafe { Self::splat(low) }
    }
    /// # Safety
    ///
    /// The features are there.
    unsafe fn fma(a: Self, b: Self, c: Self) -> Self;
    /// # Safety
    ///
    /// `N` writable floats, aligned; the features are there.
    unsafe fn store(self, at: *mut f32);
}

impl Vector for [f32; 4] {
    const N: usize = 4;
    #[inline(always)]
    unsafe fn zero() -> Self {
        [0.0; 4]
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: by contract.
        unsafe { *at.cast() }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        [value; 4]
    }
    #[inline(always)]
    unsafe fn fma(a: Self, b: Self, c: Self) -> Self {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: by contract.
        unsafe { *at.cast() = self }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    impl Vector for __m512 {
        const N: usize = 16;
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: by contract.
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn load(at: *const f32) -> Self {
            // SAFETY: by contract.
            unsafe { _mm512_load_ps(at) }
        }
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: by contract.
            unsafe { _mm512_set1_ps(value) }
        }
        #[inline(always)]
        unsafe fn splat2(low: f32, high: f32) -> Self {
            // SAFETY: by contract.
            unsafe { _mm512_mask_broadcastss_ps(_mm512_set1_ps(low), 0xff00, _mm_set_ss(high)) }
        }
        #[inline(always)]
        unsafe fn fma(a: Self, b: Self, c: Self) -> Self {
            // SAFETY: by contract.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn store(self, at: *mut f32) {
            // SAFETY: by contract.
            unsafe { _mm512_store_ps(at, self) }
        }
    }

    impl Vector for __m256 {
        const N: usize = 8;
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: by contract.
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn load(at: *const f32) -> Self {
            // SAFETY: by contract.
            unsafe { _mm256_load_ps(at) }
        }
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: by contract.
            unsafe { _mm256_set1_ps(value) }
        }
        #[inline(always)]
        unsafe fn fma(a: Self, b: Self, c: Self) -> Self {
            // SAFETY: by contract.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn store(self, at: *mut f32) {
            // SAFETY: by contract.
            unsafe { _mm256_store_ps(at, self) }
        }
    }
}
