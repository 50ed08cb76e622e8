//! Bounds of the `i32` values of a finished kernel, by interval arithmetic.

use crate::kir::fold::{self, FULL, Range};
use crate::kir::{Kernel, Operand, Scalar, Stmt, Val};
use cranelift_entity::SecondaryMap;
use eggine_ir::DType;

/// Bounds of each `i32` value, both inclusive.
pub fn ranges(kernel: &Kernel) -> SecondaryMap<Val, Range> {
    let mut ranges = SecondaryMap::with_default(FULL);
    stmts(kernel, &kernel.body, &mut ranges);
    ranges
}

/// Bounds of what a load of an element gives.
pub fn dtype_range(dtype: DType) -> Range {
    match dtype {
        DType::I8 => (-128, 127),
        DType::U8 => (0, 255),
        DType::I16 => (-32768, 32767),
        DType::U16 => (0, 65535),
        DType::Bool => (0, 1),
        DType::I4 => (-8, 7),
        DType::U4 | DType::F4E2M1 => (0, 15),
        DType::I2 => (-2, 1),
        DType::U2 => (0, 3),
        DType::F8E4M3 | DType::F8E5M2 | DType::F8E4M3FNUZ | DType::F8E5M2FNUZ | DType::F8E8M0 => {
            (0, 255)
        }
        _ => FULL,
    }
}

/// Bounds of the counter of a loop, from those of its bounds.
pub fn counter_range(from: Range, to: Range, step: i32) -> Range {
    let mut last = (to.1 - 1).max(from.0);
    if from.0 == from.1 {
        last -= (last - from.0).rem_euclid(i64::from(step.max(1)));
    }
    (from.0, last)
}

fn stmts(kernel: &Kernel, list: &[Stmt], ranges: &mut SecondaryMap<Val, Range>) {
    for stmt in list {
        match stmt {
            Stmt::Let(val, expr) if kernel.vals[*val] == Scalar::I32 => {
                ranges[*val] = fold::expr_range(expr, kernel, |val| ranges[val]);
            }
            Stmt::Load { dsts, buffer, .. } => {
                let range = dtype_range(kernel.buffers[*buffer].dtype);
                for &dst in dsts {
                    ranges[dst] = range;
                }
            }
            Stmt::For { counter, from, to, step, body } => {
                let bound = |operand: &Operand| match *operand {
                    Operand::Const(value) => (i64::from(value), i64::from(value)),
                    Operand::Val(val) => ranges[val],
                };
                ranges[*counter] = counter_range(bound(from), bound(to), *step);
                stmts(kernel, body, ranges);
            }
            Stmt::If { then, otherwise, .. } => {
                stmts(kernel, then, ranges);
                stmts(kernel, otherwise, ranges);
            }
            _ => {}
        }
    }
}
