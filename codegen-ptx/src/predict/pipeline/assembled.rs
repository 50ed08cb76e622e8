//! What the assembler made of a kernel, as the static model takes it: registers and spills instead of
//! estimates, and the instructions that a thread executes, by what they occupy.
//!
//! Code tells how often an instruction stands, not how often it is executed. The kernel IR knows how many
//! loads (or multiply-adds) a thread executes; what stands outside of loops is executed once, so the rest
//! of these is in the loops, and everything there is repeated as often as they are.

use eggine_ir::Region;
use eggine_ir::schedule::Schedule;

use crate::assemble::{Assembled, InstructionMix};
use crate::kir::{Expr, Kernel, Operand, Stmt};
use crate::predict::gpu::{self, Instructions, Sass};
use crate::predict::{GpuChip, Prediction};

#[rustfmt::skip] // By what they occupy.
const F32: &[&str] = &["FFMA", "FMUL", "FADD", "IMAD", "UIMAD"];
/// Half as many lanes (NVIDIA's tuning guides: 64 a multiprocessor).
#[rustfmt::skip]
const ALU: &[&str] = &[
    "FMNMX", "FSEL", "FSETP", "IABS", "IADD", "IADD3", "IMNMX", "ISETP", "LEA", "LOP3", "PLOP3", "PRMT", "SEL", "SHF", "VIADD",
    "VIADDMNMX", "VIMNMX",
];
/// 16 lanes a multiprocessor (CUDA C++ Programming Guide, throughput of arithmetic instructions), and f64,
/// which is no faster anywhere that matters here.
#[rustfmt::skip]
const SPECIAL: &[&str] = &[
    "MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "FCHK", "DADD", "DMUL", "DFMA", "DSETP",
];
/// Accesses that the kernel IR has as such: to global and shared memory.
const LOADS: &[&str] = &["LDG", "LDS", "LDGSTS"];
/// Accesses to local memory: spilled registers.
const LOCAL: &[&str] = &["LDL", "STL"];

fn count(mix: &InstructionMix, names: &[&str]) -> f64 {
    f64::from(names.iter().map(|name| mix.count(name)).sum::<u32>())
}

fn instructions(mix: &InstructionMix, times: f64) -> Instructions {
    let [f32, alu, special] = [F32, ALU, SPECIAL].map(|names| times * count(mix, names));
    let all = times * f64::from(mix.n_instructions);
    Instructions { f32, alu, special, others: all - f32 - alu - special }
}

/// What one thread executes, as far as that is known before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Executed {
    n_loads: f64,
    n_fmas: f64,
}

impl Executed {
    /// Of a body; `None` if a loop's bounds are computed. Both sides of a branch count.
    fn of(body: &[Stmt]) -> Option<Self> {
        let mut sum = Self::default();
        for stmt in body {
            let more = match stmt {
                Stmt::Load { .. } | Stmt::CopyAsync { .. } => Self { n_loads: 1.0, n_fmas: 0.0 },
                Stmt::Let(_, Expr::Fma(..)) => Self { n_loads: 0.0, n_fmas: 1.0 },
                Stmt::For {
                    from: Operand::Const(from),
                    to: Operand::Const(to),
                    step,
                    body,
                    ..
                } => {
                    let span = (i64::from(*to) - i64::from(*from)).max(0) as f64;
                    let trips = (span / f64::from((*step).max(1))).ceil();
                    let each = Self::of(body)?;
                    Self { n_loads: trips * each.n_loads, n_fmas: trips * each.n_fmas }
                }
                Stmt::For { .. } => return None,
                Stmt::If { then, otherwise, .. } => {
                    let (a, b) = (Self::of(then)?, Self::of(otherwise)?);
                    Self { n_loads: a.n_loads + b.n_loads, n_fmas: a.n_fmas + b.n_fmas }
                }
                _ => Self::default(),
            };
            sum.n_loads += more.n_loads;
            sum.n_fmas += more.n_fmas;
        }
        Some(sum)
    }
}

/// What the assembler made of a kernel; `None` if it made no such kernel, or its code cannot be read or
/// counted.
fn sass_of(kernel: &Kernel, assembled: &Assembled) -> Option<Sass> {
    let usage = assembled.usage.iter().find(|usage| usage.kernel == kernel.name)?;
    let codes = assembled.kernel_codes().ok()?;
    let (_, code) = codes.into_iter().find(|(name, _)| *name == kernel.name)?;
    let (outside, inside) = (&code.outside, &code.inside);
    let times = if code.n_loops == 0 {
        0.0
    } else {
        let executed = Executed::of(&kernel.body)?;
        let of = |names: &[&str], all: f64| {
            let there = count(&inside.mix, names);
            (there > 0.0).then(|| ((all - count(&outside.mix, names)) / there).max(1.0))
        };
        of(&["FFMA"], executed.n_fmas)
            .filter(|_| executed.n_fmas > executed.n_loads)
            .or_else(|| of(LOADS, executed.n_loads))
            .or_else(|| of(&["FFMA"], executed.n_fmas))?
    };
    Some(Sass {
        n_regs: f64::from(usage.n_regs),
        outside: instructions(&outside.mix, 1.0),
        inside: instructions(&inside.mix, times),
        stall_outside_clk: f64::from(outside.stall_clk),
        stall_inside_clk: times * f64::from(inside.stall_clk),
        n_local: count(&outside.mix, LOCAL) + times * count(&inside.mix, LOCAL),
    })
}

/// As [`predict`](crate::predict::predict), with what the assembler made of the kernel in the place of what is
/// estimated from its schedule: registers, spills, blocks that fit, instructions by what they occupy, and
/// the clocks that a warp needs by itself.
///
/// `None` if the family cannot do it, the kernel is not in `assembled`, or its instructions cannot be
/// counted: a loop's bounds are computed.
pub fn predict_assembled(
    region: &Region,
    schedule: &Schedule,
    kernel: &Kernel,
    assembled: &Assembled,
    chip: &GpuChip,
) -> Option<Prediction> {
    gpu::predict_with(region, schedule, chip, Some(&sass_of(kernel, assembled)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kir;

    #[test]
    fn statements_in_loops_are_counted_as_often_as_they_are_executed() {
        use cranelift_entity::EntityRef;
        let val = kir::Val::new(0);
        let fma = Stmt::Let(val, Expr::Fma(val, val, val));
        let load = Stmt::Load {
            dsts: vec![val],
            buffer: kir::Buffer::new(0),
            index: val,
            offset: 0,
            mask: None,
        };
        let inner = |to| Stmt::For {
            counter: val,
            from: Operand::Const(1),
            to,
            step: 2,
            body: vec![fma.clone(), fma.clone(), load.clone()],
        };
        let body = [load.clone(), inner(Operand::Const(8)), fma.clone()];
        assert_eq!(Executed::of(&body), Some(Executed { n_loads: 5.0, n_fmas: 9.0 }));
        assert_eq!(Executed::of(&[inner(Operand::Val(val))]), None);
    }
}
