//! Moves and conversions. Float to integer saturates; NaN gives 0 between types of at most 32 bits and the
//! least integer (`1 << (bits - 1)`) elsewhere, as the manual says for `cvt`.

use super::approx;
use super::shapes::{bits, un};

super::rows! {
    MovU32: un(|a: u32| a);
    MovF32: un(|a: u32| a);
    MovB16: un(|a: u32| a);
    MovB32: un(|a: u32| a);
    MovU64: un(|a: u64| a);
    MovF64: un(|a: u64| a);
    MovB64: un(|a: u64| a);
    MovPred: bits(|a, _| a);
    CvtU32U64: un(|a: u64| a as u32);
    CvtS32S64: un(|a: u64| a as u32);
    CvtU64U32: un(|a: u32| u64::from(a));
    CvtS64S32: un(|a: i32| i64::from(a));
    CvtS64U32: un(|a: u32| u64::from(a));
    CvtRnF32S32: un(|a: i32| a as f32);
    CvtRnF32U32: un(|a: u32| a as f32);
    CvtRnF32S64: un(|a: i64| a as f32);
    CvtRnF32U64: un(|a: u64| a as f32);
    CvtRnF64S32: un(|a: i32| a as f64);
    CvtRnF64U32: un(|a: u32| a as f64);
    CvtRnF64S64: un(|a: i64| a as f64);
    CvtF64F32: un(|a: f32| f64::from(a));
    CvtRnF32F64: un(|a: f64| a as f32);
    CvtRziS32F32: un(|a: f32| a as i32);
    CvtRziU32F32: un(|a: f32| a as u32);
    CvtRziS64F32: un(|a: f32| if a.is_nan() { i64::MIN } else { a as i64 });
    CvtRziU64F32: un(|a: f32| if a.is_nan() { 1 << 63 } else { a as u64 });
    CvtRziS32F64: un(|a: f64| if a.is_nan() { i32::MIN } else { a as i32 });
    CvtRziS64F64: un(|a: f64| if a.is_nan() { i64::MIN } else { a as i64 });
    CvtRniS32F32: un(|a: f32| a.round_ties_even() as i32);
    CvtRmiS32F32: un(|a: f32| a.floor() as i32);
    CvtF32F16: un(approx::f32_of_f16);
    CvtRnF16F32: un(approx::f16_of_f32);
    CvtF32Bf16: un(|a: u32| f32::from_bits(a << 16));
    CvtRnBf16F32: un(approx::bf16_of_f32);
    CvtRniF32F32: un(|a: f32| a.round_ties_even());
    CvtRmiF32F32: un(|a: f32| a.floor());
    CvtRpiF32F32: un(|a: f32| a.ceil());
    CvtRziF32F32: un(|a: f32| a.trunc());
    CvtRniF64F64: un(|a: f64| a.round_ties_even());
    CvtRmiF64F64: un(|a: f64| a.floor());
    CvtRpiF64F64: un(|a: f64| a.ceil());
    CvtRziF64F64: un(|a: f64| a.trunc());
    CvtU32U16: un(|a: u32| a & 0xffff);
    CvtS32S16: un(|a: u32| i32::from(a as i16));
    CvtU32U8: un(|a: u32| a & 0xff);
    CvtS32S8: un(|a: u32| i32::from(a as i8));
    CvtU16U32: un(|a: u32| a & 0xffff);
    CvtU8U32: un(|a: u32| a & 0xff);
    CvtS8S32: un(|a: u32| i32::from(a as i8));
}
