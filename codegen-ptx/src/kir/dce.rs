//! Removes definitions that nothing uses, and renumbers values in order of definition.

use crate::kir::{Expr, Kernel, Operand, Scalar, Stmt, Val, Var};
use cranelift_entity::{EntitySet, PrimaryMap, SecondaryMap, packed_option::ReservedValue};

/// Removes unused values, empty loops and branches, and variables that are only assigned.
/// Values and variables are renumbered in order of first appearance.
pub fn remove_unused(kernel: &mut Kernel) {
    loop {
        let mut used = Used::default();
        used.stmts(&kernel.body);
        let (before, after) = (count(&kernel.body), {
            sweep(&mut kernel.body, &used);
            count(&kernel.body)
        });
        if before == after {
            break;
        }
    }
    renumber(kernel);
}

#[derive(Default)]
struct Used {
    vals: EntitySet<Val>,
    vars: EntitySet<Var>,
}

impl Used {
    /// Backwards, so that a chain of unused values goes in one pass where no loop is involved.
    fn stmts(&mut self, stmts: &[Stmt]) {
        for stmt in stmts.iter().rev() {
            match stmt {
                Stmt::Let(val, expr) => {
                    if !self.vals.contains(*val) {
                        continue;
                    }
                    if let Expr::Get(var) = expr {
                        self.vars.insert(*var);
                    }
                }
                Stmt::Load { dsts, .. } if !dsts.iter().any(|&val| self.vals.contains(val)) => {
                    continue;
                }
                Stmt::For { body, .. } => self.stmts(body),
                Stmt::If { then, otherwise, .. } => {
                    self.stmts(otherwise);
                    self.stmts(then);
                }
                _ => {}
            }
            stmt.for_each_operand(|val| {
                self.vals.insert(val);
            });
        }
    }
}

fn count(stmts: &[Stmt]) -> usize {
    let nested = stmts.iter().map(|stmt| match stmt {
        Stmt::For { body, .. } => count(body),
        Stmt::If { then, otherwise, .. } => count(then) + count(otherwise),
        _ => 0,
    });
    stmts.len() + nested.sum::<usize>()
}

fn sweep(stmts: &mut Vec<Stmt>, used: &Used) {
    stmts.retain_mut(|stmt| match stmt {
        Stmt::Let(val, _) => used.vals.contains(*val),
        Stmt::Set(var, _) => used.vars.contains(*var),
        Stmt::Load { dsts, .. } => dsts.iter().any(|&val| used.vals.contains(val)),
        Stmt::For { body, .. } => {
            sweep(body, used);
            !body.is_empty()
        }
        Stmt::If { then, otherwise, .. } => {
            sweep(then, used);
            sweep(otherwise, used);
            !then.is_empty() || !otherwise.is_empty()
        }
        _ => true,
    });
}

fn renumber(kernel: &mut Kernel) {
    let mut new = Renumber {
        old_vals: std::mem::take(&mut kernel.vals),
        old_vars: std::mem::take(&mut kernel.vars),
        vals: PrimaryMap::new(),
        vars: PrimaryMap::new(),
        val_map: SecondaryMap::with_default(Val::reserved_value()),
        var_map: SecondaryMap::with_default(Var::reserved_value()),
    };
    new.stmts(&mut kernel.body);
    kernel.vals = new.vals;
    kernel.vars = new.vars;
}

struct Renumber {
    old_vals: PrimaryMap<Val, Scalar>,
    old_vars: PrimaryMap<Var, Scalar>,
    vals: PrimaryMap<Val, Scalar>,
    vars: PrimaryMap<Var, Scalar>,
    val_map: SecondaryMap<Val, Val>,
    var_map: SecondaryMap<Var, Var>,
}

impl Renumber {
    fn def(&mut self, val: &mut Val) {
        let new = self.vals.push(self.old_vals[*val]);
        self.val_map[*val] = new;
        *val = new;
    }

    fn var(&mut self, var: &mut Var) {
        if self.var_map[*var].is_reserved_value() {
            self.var_map[*var] = self.vars.push(self.old_vars[*var]);
        }
        *var = self.var_map[*var];
    }

    fn stmts(&mut self, stmts: &mut [Stmt]) {
        for stmt in stmts {
            stmt.for_each_operand_mut(|val| *val = self.val_map[*val]);
            match stmt {
                Stmt::Let(val, expr) => {
                    if let Expr::Get(var) = expr {
                        self.var(var);
                    }
                    self.def(val);
                }
                Stmt::Set(var, _) => self.var(var),
                Stmt::Load { dsts, .. } => dsts.iter_mut().for_each(|val| self.def(val)),
                Stmt::For { counter, body, .. } => {
                    self.def(counter);
                    self.stmts(body);
                }
                Stmt::If { then, otherwise, .. } => {
                    self.stmts(then);
                    self.stmts(otherwise);
                }
                Stmt::Store { .. }
                | Stmt::CopyAsync { .. }
                | Stmt::CopyCommit
                | Stmt::CopyWait(_)
                | Stmt::Barrier => {}
            }
        }
    }
}

impl Expr {
    /// Calls `f` with each value it is computed from.
    pub fn for_each_operand(&self, mut f: impl FnMut(Val)) {
        let mut copy = *self;
        copy.for_each_operand_mut(|val| f(*val));
    }

    /// Calls `f` with each value it is computed from, which `f` may replace.
    pub fn for_each_operand_mut(&mut self, mut f: impl FnMut(&mut Val)) {
        match self {
            Expr::Const(_) | Expr::Special(_) | Expr::Get(_) => {}
            Expr::Unary(_, a) | Expr::Convert(a) | Expr::Bits(a) | Expr::ShuffleXor(a, _) => f(a),
            Expr::Binary(_, a, b) | Expr::Compare(_, a, b) => {
                f(a);
                f(b);
            }
            Expr::Fma(a, b, c) => {
                f(a);
                f(b);
                f(c);
            }
            Expr::Select { cond, a, b } => {
                f(cond);
                f(a);
                f(b);
            }
        }
    }
}

impl Stmt {
    /// Calls `f` with each value that the statement itself uses, not the statements inside it.
    pub fn for_each_operand(&self, mut f: impl FnMut(Val)) {
        let operand = |operand: &Operand, f: &mut dyn FnMut(Val)| {
            if let Operand::Val(val) = operand {
                f(*val);
            }
        };
        match self {
            Stmt::Let(_, expr) => expr.for_each_operand(f),
            Stmt::Set(_, val) => f(*val),
            Stmt::Load { index, mask, .. } => {
                f(*index);
                mask.iter().copied().for_each(f);
            }
            Stmt::Store { index, srcs, mask, .. } => {
                f(*index);
                srcs.iter().copied().for_each(&mut f);
                mask.iter().copied().for_each(f);
            }
            Stmt::CopyAsync { dst_index, src_index, mask, .. } => {
                f(*dst_index);
                f(*src_index);
                mask.iter().copied().for_each(f);
            }
            Stmt::For { from, to, .. } => {
                operand(from, &mut f);
                operand(to, &mut f);
            }
            Stmt::If { cond, .. } => f(*cond),
            Stmt::CopyCommit | Stmt::CopyWait(_) | Stmt::Barrier => {}
        }
    }

    /// Calls `f` with each value that the statement itself uses, which `f` may replace.
    pub fn for_each_operand_mut(&mut self, mut f: impl FnMut(&mut Val)) {
        match self {
            Stmt::Let(_, expr) => expr.for_each_operand_mut(f),
            Stmt::Set(_, val) => f(val),
            Stmt::Load { index, mask, .. } => {
                f(index);
                mask.iter_mut().for_each(f);
            }
            Stmt::Store { index, srcs, mask, .. } => {
                f(index);
                srcs.iter_mut().for_each(&mut f);
                mask.iter_mut().for_each(f);
            }
            Stmt::CopyAsync { dst_index, src_index, mask, .. } => {
                f(dst_index);
                f(src_index);
                mask.iter_mut().for_each(f);
            }
            Stmt::For { from, to, .. } => {
                for operand in [from, to] {
                    if let Operand::Val(val) = operand {
                        f(val);
                    }
                }
            }
            Stmt::If { cond, .. } => f(cond),
            Stmt::CopyCommit | Stmt::CopyWait(_) | Stmt::Barrier => {}
        }
    }
}

impl Kernel {
    /// Number of values that a special register takes.
    pub fn extent(&self, special: crate::kir::Special) -> u32 {
        match special {
            crate::kir::Special::ThreadX => self.n_threads,
            crate::kir::Special::BlockX => self.grid[0],
            crate::kir::Special::BlockY => self.grid[1],
            crate::kir::Special::BlockZ => self.grid[2],
        }
    }
}
