//! What the instructions do. Files by group; each lists its rows as `instruction: shape closure;`, where
//! the shape reads and writes registers and the closure computes one lane.

pub(crate) mod approx;
pub(crate) mod arith;
pub(crate) mod convert;
pub(crate) mod memory;
pub(crate) mod select;
pub(crate) mod shapes;
pub(crate) mod space;
pub(crate) mod transfer;
pub(crate) mod warp;

use eggine_ptx::table::Op;

use crate::program::OpFn;
use crate::simd::Simd;

/// The function of an instruction at a level; `None` if the decoder has to choose (moves of special
/// registers are chosen by operand).
pub(crate) fn function(op: Op, simd: Simd) -> Option<OpFn> {
    arith::function(op, simd)
        .or_else(|| convert::function(op, simd))
        .or_else(|| select::function(op, simd))
        .or_else(|| memory::function(op, simd))
        .or_else(|| transfer::function(op, simd))
        .or_else(|| warp::function(op, simd))
}

/// Declares instructions of a group, and `function`, which finds them.
macro_rules! rows {
    ($($op:ident: $shape:expr;)+) => {
        #[allow(non_camel_case_types, reason = "named as the table's rows")]
        mod row {
            $(pub(super) struct $op;)+
        }
        $(impl crate::simd::LaneOp for row::$op {
            #[inline(always)]
            unsafe fn run<L: crate::simd::Level>(cx: &mut crate::program::Ctx, uop: &crate::program::Uop) -> crate::program::Flow {
                // SAFETY: the shape's contract is that of `LaneOp::run`.
                unsafe { $crate::ops::shapes::Shape::run::<L>(&$shape, cx, uop) }
            }
        })+
        /// The function of an instruction of this group at a level.
        pub(crate) fn function(op: eggine_ptx::table::Op, simd: crate::simd::Simd) -> Option<crate::program::OpFn> {
            Some(match op {
                $(eggine_ptx::table::Op::$op => crate::simd::select::<row::$op>(simd),)+
                _ => return None,
            })
        }
    };
}
pub(crate) use rows;
