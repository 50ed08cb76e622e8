//! Comparison and selection.

#![allow(
    clippy::neg_cmp_op_on_partial_ord,
    reason = "the unordered comparisons are negations of ordered ones"
)]

use super::shapes::{cmp, sel};

super::rows! {
    SetpEqS32: cmp(|a: i32, b: i32| a == b);
    SetpNeS32: cmp(|a: i32, b: i32| a != b);
    SetpLtS32: cmp(|a: i32, b: i32| a < b);
    SetpLeS32: cmp(|a: i32, b: i32| a <= b);
    SetpGtS32: cmp(|a: i32, b: i32| a > b);
    SetpGeS32: cmp(|a: i32, b: i32| a >= b);
    SetpEqU32: cmp(|a: u32, b: u32| a == b);
    SetpNeU32: cmp(|a: u32, b: u32| a != b);
    SetpLtU32: cmp(|a: u32, b: u32| a < b);
    SetpLeU32: cmp(|a: u32, b: u32| a <= b);
    SetpGtU32: cmp(|a: u32, b: u32| a > b);
    SetpGeU32: cmp(|a: u32, b: u32| a >= b);
    SetpEqS64: cmp(|a: i64, b: i64| a == b);
    SetpNeS64: cmp(|a: i64, b: i64| a != b);
    SetpLtS64: cmp(|a: i64, b: i64| a < b);
    SetpLeS64: cmp(|a: i64, b: i64| a <= b);
    SetpGtS64: cmp(|a: i64, b: i64| a > b);
    SetpGeS64: cmp(|a: i64, b: i64| a >= b);
    SetpEqU64: cmp(|a: u64, b: u64| a == b);
    SetpNeU64: cmp(|a: u64, b: u64| a != b);
    SetpLtU64: cmp(|a: u64, b: u64| a < b);
    SetpLeU64: cmp(|a: u64, b: u64| a <= b);
    SetpGtU64: cmp(|a: u64, b: u64| a > b);
    SetpGeU64: cmp(|a: u64, b: u64| a >= b);
    SetpEqF32: cmp(|a: f32, b: f32| a == b);
    SetpNeF32: cmp(|a: f32, b: f32| (a < b) | (a > b));
    SetpLtF32: cmp(|a: f32, b: f32| a < b);
    SetpLeF32: cmp(|a: f32, b: f32| a <= b);
    SetpGtF32: cmp(|a: f32, b: f32| a > b);
    SetpGeF32: cmp(|a: f32, b: f32| a >= b);
    SetpNeuF32: cmp(|a: f32, b: f32| a != b);
    SetpLtuF32: cmp(|a: f32, b: f32| !(a >= b));
    SetpLeuF32: cmp(|a: f32, b: f32| !(a > b));
    SetpGtuF32: cmp(|a: f32, b: f32| !(a <= b));
    SetpGeuF32: cmp(|a: f32, b: f32| !(a < b));
    SetpNumF32: cmp(|a: f32, b: f32| !a.is_nan() & !b.is_nan());
    SetpNanF32: cmp(|a: f32, b: f32| a.is_nan() | b.is_nan());
    SetpEqF64: cmp(|a: f64, b: f64| a == b);
    SetpNeF64: cmp(|a: f64, b: f64| (a < b) | (a > b));
    SetpLtF64: cmp(|a: f64, b: f64| a < b);
    SetpLeF64: cmp(|a: f64, b: f64| a <= b);
    SetpGtF64: cmp(|a: f64, b: f64| a > b);
    SetpGeF64: cmp(|a: f64, b: f64| a >= b);
    SetpNeuF64: cmp(|a: f64, b: f64| a != b);
    SetpLtuF64: cmp(|a: f64, b: f64| !(a >= b));
    SetpLeuF64: cmp(|a: f64, b: f64| !(a > b));
    SetpGtuF64: cmp(|a: f64, b: f64| !(a <= b));
    SetpGeuF64: cmp(|a: f64, b: f64| !(a < b));
    SetpNumF64: cmp(|a: f64, b: f64| !a.is_nan() & !b.is_nan());
    SetpNanF64: cmp(|a: f64, b: f64| a.is_nan() | b.is_nan());
    SetpEqB32: cmp(|a: u32, b: u32| a == b);
    SetpNeB32: cmp(|a: u32, b: u32| a != b);
    SelpB32: sel::<u32>();
    SelpB64: sel::<u64>();
    SelpF32: sel::<u32>();
    SelpF64: sel::<u64>();
    SelpB16: sel::<u32>();
}
