//! Which values are the same in all threads of a block, or of a warp.

use crate::kir::{BinaryOp, Expr, Kernel, Operand, Space, Special, Stmt, Val, Var, fold};
use cranelift_entity::SecondaryMap;

/// Over which threads a value is certainly the same, the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Uniformity {
    /// All threads of the block.
    #[default]
    Block,
    /// The threads of a warp.
    Warp,
    /// Nothing is known.
    Thread,
}

/// The uniformity of each value; pessimistic where it does not know.
pub fn uniformity(kernel: &Kernel) -> SecondaryMap<Val, Uniformity> {
    let mut analysis = Analysis {
        kernel,
        exprs: SecondaryMap::new(),
        vals: SecondaryMap::new(),
        vars: SecondaryMap::new(),
        changed: true,
    };
    // Variables carry values around loops: until nothing changes. Levels only rise.
    while analysis.changed {
        analysis.changed = false;
        analysis.stmts(&kernel.body, Uniformity::Block);
    }
    analysis.vals
}

struct Analysis<'k> {
    kernel: &'k Kernel,
    exprs: SecondaryMap<Val, Option<Expr>>,
    vals: SecondaryMap<Val, Uniformity>,
    vars: SecondaryMap<Var, Uniformity>,
    changed: bool,
}

impl Analysis<'_> {
    fn raise(&mut self, val: Val, level: Uniformity) {
        if level > self.vals[val] {
            self.vals[val] = level;
            self.changed = true;
        }
    }

    fn stmts(&mut self, stmts: &[Stmt], control: Uniformity) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(val, expr) => {
                    self.exprs[*val] = Some(*expr);
                    let level = self.expr(expr);
                    self.raise(*val, level);
                }
                Stmt::Set(var, val) => {
                    let level = self.vals[*val].max(control);
                    if level > self.vars[*var] {
                        self.vars[*var] = level;
                        self.changed = true;
                    }
                }
                Stmt::Load { dsts, buffer, index, mask, .. } => {
                    let read_only =
                        self.kernel.buffers[*buffer].space == Space::Global { writable: false };
                    let mask = mask.map_or(Uniformity::Block, |mask| self.vals[mask]);
                    let level =
                        if read_only { self.vals[*index].max(mask) } else { Uniformity::Thread };
                    dsts.iter().for_each(|&dst| self.raise(dst, level));
                }
                Stmt::For { counter, from, to, body, .. } => {
                    let level = |operand: &Operand| match operand {
                        Operand::Const(_) => Uniformity::Block,
                        Operand::Val(val) => self.vals[*val],
                    };
                    // A thread that has left the loop keeps what its variables had: control depends on both.
                    let (first, bounds) = (level(from), level(from).max(level(to)));
                    self.raise(*counter, first);
                    self.stmts(body, control.max(bounds));
                }
                Stmt::If { cond, then, otherwise } => {
                    let inner = control.max(self.vals[*cond]);
                    self.stmts(then, inner);
                    self.stmts(otherwise, inner);
                }
                Stmt::Store { .. }
                | Stmt::CopyAsync { .. }
                | Stmt::CopyCommit
                | Stmt::CopyWait(_)
                | Stmt::Barrier => {}
            }
        }
    }

    fn expr(&self, expr: &Expr) -> Uniformity {
        match *expr {
            Expr::Special(Special::ThreadX) => return Uniformity::Thread,
            Expr::Get(var) => return self.vars[var],
            Expr::ShuffleXor(a, _) => {
                return if self.vals[a] == Uniformity::Thread {
                    Uniformity::Thread
                } else {
                    self.vals[a]
                };
            }
            // The index of the warp, or of a group of warps.
            Expr::Binary(op @ (BinaryOp::Shr | BinaryOp::Div), a, b)
                if self.exprs[a] == Some(Expr::Special(Special::ThreadX)) =>
            {
                if let Some(Expr::Const(bits)) = self.exprs[b] {
                    let amount = fold::as_i32(bits);
                    let whole_warps = match op {
                        BinaryOp::Shr => amount >= 5,
                        _ => amount > 0 && amount % 32 == 0,
                    };
                    if whole_warps {
                        return Uniformity::Warp;
                    }
                }
            }
            _ => {}
        }
        let mut level = Uniformity::Block;
        expr.for_each_operand(|val| level = level.max(self.vals[val]));
        level
    }
}
