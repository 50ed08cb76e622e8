//! What emission decides before it starts: which values live in a variable's register.
//!
//! - A value is computed *into* a variable if its only use is the assignment, and between the two
//!   nothing touches the variable.
//! - A read is an *alias* of the variable if every use of it comes before the next write.

use crate::kir::fold::Range;
use crate::kir::{Expr, Kernel, Operand, Stmt, Val, Var, range};
use cranelift_entity::SecondaryMap;

/// Statements between a value and its assignment that are looked through, at most.
const MAX_WINDOW: usize = 1024;

pub(super) struct Plan {
    pub(super) exprs: SecondaryMap<Val, Option<Expr>>,
    pub(super) ranges: SecondaryMap<Val, Range>,
    pub(super) n_uses: SecondaryMap<Val, u32>,
    /// The variable in whose register a value is computed.
    pub(super) into_var: SecondaryMap<Val, Option<Var>>,
    /// The variable whose register a read is.
    pub(super) alias: SecondaryMap<Val, Option<Var>>,
}

impl Plan {
    pub(super) fn new(kernel: &Kernel) -> Self {
        let mut plan = Plan {
            exprs: SecondaryMap::new(),
            ranges: range::ranges(kernel),
            n_uses: SecondaryMap::new(),
            into_var: SecondaryMap::new(),
            alias: SecondaryMap::new(),
        };
        plan.count(&kernel.body);
        plan.find_into(&kernel.body);
        plan.find_aliases(&kernel.body);
        plan
    }

    pub(super) fn operand_range(&self, operand: Operand) -> Range {
        match operand {
            Operand::Const(value) => (i64::from(value), i64::from(value)),
            Operand::Val(val) => self.ranges[val],
        }
    }

    /// Whether a value is the current content of a variable rather than a register of its own.
    pub(super) fn is_get(&self, val: Val) -> bool {
        matches!(self.exprs[val], Some(Expr::Get(_)))
    }

    fn count(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            stmt.for_each_operand(|val| self.n_uses[val] += 1);
            match stmt {
                Stmt::Let(val, expr) => self.exprs[*val] = Some(*expr),
                Stmt::For { body, .. } => self.count(body),
                Stmt::If { then, otherwise, .. } => {
                    self.count(then);
                    self.count(otherwise);
                }
                _ => {}
            }
        }
    }

    fn find_into(&mut self, stmts: &[Stmt]) {
        for (at, stmt) in stmts.iter().enumerate() {
            match stmt {
                Stmt::Set(var, val) if self.n_uses[*val] == 1 => {
                    let window = &stmts[at.saturating_sub(MAX_WINDOW)..at];
                    for earlier in window.iter().rev() {
                        if let Stmt::Let(defined, expr) = earlier
                            && defined == val
                        {
                            if !matches!(expr, Expr::Const(_) | Expr::Get(_)) {
                                self.into_var[*val] = Some(*var);
                            }
                            break;
                        }
                        if self.touches(earlier, *var) {
                            break;
                        }
                    }
                }
                Stmt::For { body, .. } => self.find_into(body),
                Stmt::If { then, otherwise, .. } => {
                    self.find_into(then);
                    self.find_into(otherwise);
                }
                _ => {}
            }
        }
    }

    /// Whether a statement may read or write a variable, or use what was read from it.
    fn touches(&self, stmt: &Stmt, var: Var) -> bool {
        let mut touches = match stmt {
            Stmt::Set(other, _) => *other == var,
            Stmt::Let(_, Expr::Get(other)) => *other == var,
            Stmt::For { .. } | Stmt::If { .. } => true,
            _ => false,
        };
        stmt.for_each_operand(|val| touches |= self.exprs[val] == Some(Expr::Get(var)));
        touches
    }

    fn find_aliases(&mut self, stmts: &[Stmt]) {
        for (at, stmt) in stmts.iter().enumerate() {
            match stmt {
                Stmt::Let(val, Expr::Get(var)) if self.is_alias(&stmts[at + 1..], *val, *var) => {
                    self.alias[*val] = Some(*var);
                }
                Stmt::For { body, .. } => self.find_aliases(body),
                Stmt::If { then, otherwise, .. } => {
                    self.find_aliases(then);
                    self.find_aliases(otherwise);
                }
                _ => {}
            }
        }
    }

    fn is_alias(&self, rest: &[Stmt], val: Val, var: Var) -> bool {
        let n_uses = self.n_uses[val];
        let mut n_seen = 0;
        for stmt in rest {
            if n_seen == n_uses {
                break;
            }
            if matches!(stmt, Stmt::For { .. } | Stmt::If { .. }) && self.writes(stmt, var) {
                break;
            }
            n_seen += count_uses(stmt, val);
            if self.writes(stmt, var) {
                break;
            }
        }
        n_seen == n_uses
    }

    fn writes(&self, stmt: &Stmt, var: Var) -> bool {
        let any = |stmts: &[Stmt]| stmts.iter().any(|stmt| self.writes(stmt, var));
        match stmt {
            Stmt::Let(val, _) => self.into_var[*val] == Some(var),
            Stmt::Set(other, _) => *other == var,
            Stmt::For { body, .. } => any(body),
            Stmt::If { then, otherwise, .. } => any(then) || any(otherwise),
            _ => false,
        }
    }
}

fn count_uses(stmt: &Stmt, val: Val) -> u32 {
    let mut n = 0;
    stmt.for_each_operand(|operand| n += u32::from(operand == val));
    let nested = |stmts: &[Stmt]| stmts.iter().map(|stmt| count_uses(stmt, val)).sum::<u32>();
    n + match stmt {
        Stmt::For { body, .. } => nested(body),
        Stmt::If { then, otherwise, .. } => nested(then) + nested(otherwise),
        _ => 0,
    }
}
