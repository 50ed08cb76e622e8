//! SIMD levels. An operation is written once, as an `#[inline(always)]` generic function over [`Level`];
//! [`select`] wraps it in a function with the level's target features, which is where the compiler
//! vectorises it.

use crate::program::{Ctx, Flow, OpFn, Uop};

/// Instruction set that a launch uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Simd {
    /// What the target architecture guarantees.
    Portable,
    /// AVX2, FMA, BMI and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Simd {
    /// All levels, the slowest first.
    pub const ALL: [Simd; 3] = [Simd::Portable, Simd::Avx2, Simd::Avx512];

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            match self {
                Simd::Portable => true,
                Simd::Avx2 => {
                    is_x86_feature_detected!("avx2")
                        && is_x86_feature_detected!("fma")
                        && is_x86_feature_detected!("bmi1")
                        && is_x86_feature_detected!("bmi2")
                        && is_x86_feature_detected!("lzcnt")
                        && is_x86_feature_detected!("popcnt")
                }
                Simd::Avx512 => {
                    Simd::Avx2.is_available()
                        && is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512dq")
                        && is_x86_feature_detected!("avx512vl")
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Simd::Portable
        }
    }

    /// The fastest level of this machine.
    pub fn detect() -> Simd {
        Simd::ALL.into_iter().rev().find(|s| s.is_available()).unwrap_or(Simd::Portable)
    }
}

/// A level, as a type.
pub(crate) trait Level: 'static {
    /// Which.
    const KIND: Simd;
}

/// [`Simd::Portable`].
pub(crate) struct Portable;
/// [`Simd::Avx2`].
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "x86 only"))]
pub(crate) struct Avx2;
/// [`Simd::Avx512`].
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "x86 only"))]
pub(crate) struct Avx512;

impl Level for Portable {
    const KIND: Simd = Simd::Portable;
}
impl Level for Avx2 {
    const KIND: Simd = Simd::Avx2;
}
impl Level for Avx512 {
    const KIND: Simd = Simd::Avx512;
}

/// An operation on a warp.
pub(crate) trait LaneOp {
    /// Executes it.
    ///
    /// # Safety
    ///
    /// The machine has the features of `L`; the offsets in `uop` are those of registers in the file that
    /// `cx` points to.
    unsafe fn run<L: Level>(cx: &mut Ctx, uop: &Uop) -> Flow;
}

/// The function that executes `K` at a level.
pub(crate) fn select<K: LaneOp>(simd: Simd) -> OpFn {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => run_avx512::<K>,
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => run_avx2::<K>,
        _ => run_portable::<K>,
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,avx2,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn run_avx512<K: LaneOp>(cx: &mut Ctx, uop: &Uop) -> Flow {
    // SAFETY: the caller's contract is that of `LaneOp::run`.
    unsafe { K::run::<Avx512>(cx, uop) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma,avx2,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn run_avx2<K: LaneOp>(cx: &mut Ctx, uop: &Uop) -> Flow {
    // SAFETY: the caller's contract is that of `LaneOp::run`.
    unsafe { K::run::<Avx2>(cx, uop) }
}

unsafe fn run_portable<K: LaneOp>(cx: &mut Ctx, uop: &Uop) -> Flow {
    // SAFETY: the caller's contract is that of `LaneOp::run`.
    unsafe { K::run::<Portable>(cx, uop) }
}
