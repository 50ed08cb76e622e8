//! Kernel IR to PTX text.
//!
//! One virtual register per value, one fixed register per variable: an assignment of a value that
//! nothing else uses is computed straight into the variable's register, a read that no assignment
//! follows is the register itself (`plan`), so `acc = fma(a, b, acc)` is one instruction. Addresses
//! are computed once per buffer and index, where the index is defined, and step through counted loops by
//! addition (`memory`). Statements keep their order. What nothing uses is removed at the end
//! (`cleanup`), so lowering may compute more than it needs. Equal kernels give equal text.

mod cleanup;
mod expr;
mod magic;
mod memory;
mod plan;

use crate::Target;
use crate::kir::{Buffer, Expr, Kernel, Operand, Scalar, Space, Stmt, UnaryOp, Val, Var};
use cranelift_entity::SecondaryMap;
use eggine_ir::DType;
use eggine_ptx::PtxError;
use eggine_ptx::ast::{self, Entry, Guard, Inst, Label, Module, Param, ParamType, Reg, RegClass};
use eggine_ptx::table::Op;
use plan::Plan;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Why a kernel has no PTX.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum EmitError {
    #[error("kernel `{kernel}`: {val} = {expr:?} has no instruction for {ty:?}")]
    NoInstruction { kernel: String, val: Val, expr: Expr, ty: Scalar },
    #[error(
        "kernel `{kernel}`: elements of {buffer} are {dtype}, several to a byte: the byte is stored, not they"
    )]
    StoredPart { kernel: String, buffer: Buffer, dtype: DType },
    #[error("kernel `{kernel}`: {n_bytes} bytes are copied at once; 4, 8 and 16 can be")]
    CopySize { kernel: String, n_bytes: usize },
    #[error("kernel `{kernel}`: {n_bytes} bytes of shared memory, the most is {max}")]
    SharedMemory { kernel: String, n_bytes: u64, max: u32 },
    #[error("kernel `{kernel}`: {val} is used but not defined")]
    Undefined { kernel: String, val: Val },
    #[error(transparent)]
    Ptx(#[from] PtxError),
}

/// The PTX of a kernel: a module of one `.visible .entry` with a `.u64` parameter per global buffer
/// (`p0`, `p1`, … in order of declaration).
///
/// # Errors
///
/// [`EmitError`]: an operation or a size that the target does not have. A kernel that does not verify
/// may give any error.
pub fn emit(kernel: &Kernel, target: Target) -> Result<String, EmitError> {
    Ok(module(kernel, target)?.to_string())
}

/// As [`emit`], as a syntax tree.
///
/// # Errors
///
/// As [`emit`].
pub fn module(kernel: &Kernel, target: Target) -> Result<Module, EmitError> {
    let mut emitter = Emitter::new(kernel, target)?;
    emitter.stmts(&kernel.body)?;
    let entry = emitter.finish()?;
    Ok(Module::new(target.name(), vec![entry])?)
}

/// Which memory a pointer register points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// A global buffer: 64 bits.
    Global(Buffer),
    /// The shared arrays with elements of this many bytes: 32 bits.
    Shared(u32),
}

/// A loop or branch whose code is being collected.
#[derive(Debug, Default)]
struct Scope {
    code: Vec<ast::Stmt>,
    /// If it is a loop: counter, first value, step.
    counter: Option<(Val, Operand, i32)>,
    /// Pointers that step with the loop, by how many bytes.
    increments: Vec<(Reg, i64)>,
    pointers: BTreeMap<(Place, Val), Reg>,
    /// Quotients of divisions by constants.
    quotients: BTreeMap<(Val, u32), Reg>,
}

struct Emitter<'k> {
    kernel: &'k Kernel,
    plan: Plan,
    n_regs: BTreeMap<RegClass, u32>,
    n_labels: u32,
    scopes: Vec<Scope>,
    regs: SecondaryMap<Val, Option<Reg>>,
    /// Index in `scopes` of the scope that defines a value.
    depths: SecondaryMap<Val, usize>,
    var_regs: SecondaryMap<Var, Option<Reg>>,
    is_var_reg: BTreeSet<Reg>,
    consts: BTreeMap<(RegClass, u64), Reg>,
    params: BTreeMap<Buffer, (u32, Reg)>,
    shared_offsets: BTreeMap<Buffer, u32>,
    shared_base: Option<Reg>,
    shared_bytes: u32,
    /// Condition of the branch that is being predicated.
    guard: Option<Guard>,
}

fn class(ty: Scalar) -> RegClass {
    match ty {
        Scalar::I32 => RegClass::B32,
        Scalar::I64 => RegClass::B64,
        Scalar::F32 => RegClass::F32,
        Scalar::F64 => RegClass::F64,
        Scalar::Pred => RegClass::Pred,
    }
}

fn reg(reg: Reg) -> ast::Operand {
    ast::Operand::Reg(reg)
}

fn int(value: impl Into<i64>) -> ast::Operand {
    ast::Operand::Int(value.into())
}

/// The register move of a class.
fn mov_op(class: RegClass) -> Op {
    match class {
        RegClass::Pred => Op::MovPred,
        RegClass::B16 => Op::MovB16,
        RegClass::B32 => Op::MovU32,
        RegClass::B64 => Op::MovU64,
        RegClass::F32 => Op::MovF32,
        RegClass::F64 => Op::MovF64,
    }
}

/// An immediate of a class.
fn immediate(class: RegClass, bits: u64) -> ast::Operand {
    match class {
        RegClass::F32 => ast::Operand::F32(bits as u32),
        RegClass::F64 => ast::Operand::F64(bits),
        RegClass::B32 => ast::Operand::Int(i64::from(bits as i32)),
        RegClass::Pred | RegClass::B16 | RegClass::B64 => ast::Operand::Int(bits as i64),
    }
}

impl<'k> Emitter<'k> {
    fn new(kernel: &'k Kernel, target: Target) -> Result<Self, EmitError> {
        let mut shared_offsets = BTreeMap::new();
        let mut shared_bytes = 0u64;
        let mut params = BTreeMap::new();
        let mut n_regs = BTreeMap::new();
        for (buffer, decl) in &kernel.buffers {
            match decl.space {
                Space::Shared => {
                    shared_bytes =
                        shared_bytes.next_multiple_of(u64::from(decl.align_bytes.max(16)));
                    shared_offsets.insert(buffer, shared_bytes as u32);
                    shared_bytes += decl.dtype.bytes_for(decl.n_elems) as u64;
                }
                Space::Global { .. } => {
                    let idx = params.len() as u32;
                    params.insert(buffer, (idx, Reg { class: RegClass::B64, idx }));
                }
            }
        }
        n_regs.insert(RegClass::B64, params.len() as u32);
        let max = Target::STATIC_SHARED_BYTES.min(target.spec().shared_per_block_bytes);
        if shared_bytes > u64::from(max) {
            return Err(EmitError::SharedMemory {
                kernel: kernel.name.clone(),
                n_bytes: shared_bytes,
                max,
            });
        }
        let mut emitter = Emitter {
            kernel,
            plan: Plan::new(kernel),
            n_regs,
            n_labels: 0,
            scopes: vec![Scope::default()],
            regs: SecondaryMap::new(),
            depths: SecondaryMap::new(),
            var_regs: SecondaryMap::new(),
            is_var_reg: BTreeSet::new(),
            consts: BTreeMap::new(),
            params,
            shared_offsets,
            shared_base: None,
            shared_bytes: shared_bytes as u32,
            guard: None,
        };
        let params: Vec<(u32, Reg)> = emitter.params.values().copied().collect();
        for (idx, dst) in params {
            let address = ast::Operand::Address { base: ast::Base::Param(idx), offset: 0 };
            emitter.inst(Op::LdParamU64, vec![reg(dst), address]);
        }
        if !emitter.shared_offsets.is_empty() {
            let base = emitter.fresh(RegClass::B32);
            emitter.inst(Op::MovU32, vec![reg(base), ast::Operand::Symbol(0)]);
            emitter.shared_base = Some(base);
        }
        Ok(emitter)
    }

    fn finish(mut self) -> Result<Entry, EmitError> {
        self.inst(Op::Ret, Vec::new());
        let params = self
            .params
            .values()
            .map(|&(idx, _)| Param { name: format!("p{idx}"), ty: ParamType::U64 });
        let align_bytes =
            self.kernel.buffers.values().map(|decl| decl.align_bytes).max().unwrap_or(16).max(16);
        let shared = (self.shared_bytes > 0).then(|| ast::Shared {
            name: "smem".to_owned(),
            align_bytes,
            n_bytes: self.shared_bytes,
        });
        let mut entry = Entry {
            name: self.kernel.name.clone(),
            params: params.collect(),
            reqntid: Some([self.kernel.n_threads, 1, 1]),
            minnctapersm: self.kernel.min_blocks,
            n_regs: Vec::new(),
            shared: shared.into_iter().collect(),
            n_labels: 0,
            body: self.scopes.pop().expect("the root scope is open").code,
        };
        cleanup::remove_unused(&mut entry);
        cleanup::renumber(&mut entry);
        Ok(entry)
    }

    // Registers.

    fn fresh(&mut self, class: RegClass) -> Reg {
        let n = self.n_regs.entry(class).or_insert(0);
        let idx = *n;
        *n += 1;
        Reg { class, idx }
    }

    fn label(&mut self) -> Label {
        self.n_labels += 1;
        Label(self.n_labels - 1)
    }

    fn var_reg(&mut self, var: Var) -> Reg {
        if let Some(reg) = self.var_regs[var] {
            return reg;
        }
        let reg = self.fresh(class(self.kernel.vars[var]));
        self.var_regs[var] = Some(reg);
        self.is_var_reg.insert(reg);
        reg
    }

    fn constant(&self, val: Val) -> Option<u64> {
        match self.plan.exprs[val] {
            Some(Expr::Const(bits)) => Some(bits),
            _ => None,
        }
    }

    /// The value in a register; a constant is moved to one, once for the kernel.
    fn reg(&mut self, val: Val) -> Result<Reg, EmitError> {
        let class = class(self.kernel.vals[val]);
        match self.constant(val) {
            Some(bits) => Ok(self.const_reg(class, bits)),
            None => self.regs[val]
                .ok_or_else(|| EmitError::Undefined { kernel: self.kernel.name.clone(), val }),
        }
    }

    fn const_reg(&mut self, class: RegClass, bits: u64) -> Reg {
        if let Some(&reg) = self.consts.get(&(class, bits)) {
            return reg;
        }
        let dst = self.fresh(class);
        if class == RegClass::Pred {
            let zero = self.const_reg(RegClass::B32, 0);
            let op = if bits == 1 { Op::SetpEqS32 } else { Op::SetpNeS32 };
            self.inst_at(0, op, vec![reg(dst), reg(zero), int(0)]);
        } else {
            self.inst_at(0, mov_op(class), vec![reg(dst), immediate(class, bits)]);
        }
        self.consts.insert((class, bits), dst);
        dst
    }

    /// The value as an operand that may be an immediate.
    fn operand(&mut self, val: Val) -> Result<ast::Operand, EmitError> {
        let ty = self.kernel.vals[val];
        match self.constant(val) {
            Some(bits) if ty != Scalar::Pred => Ok(immediate(class(ty), bits)),
            _ => Ok(reg(self.reg(val)?)),
        }
    }

    fn src(&mut self, val: Val) -> Result<ast::Operand, EmitError> {
        Ok(reg(self.reg(val)?))
    }

    /// A predicate as a guard, seeing through a negation.
    fn guard_of(&mut self, pred: Val) -> Result<Guard, EmitError> {
        let mut pred = pred;
        let mut negated = false;
        while let Some(Expr::Unary(UnaryOp::Not, inner)) = self.plan.exprs[pred]
            && !matches!(self.plan.exprs[inner], Some(Expr::Get(_)))
        {
            pred = inner;
            negated = !negated;
        }
        Ok(Guard { pred: self.reg(pred)?, negated })
    }

    // Instructions.

    fn depth(&self) -> usize {
        self.scopes.len() - 1
    }

    fn inst(&mut self, op: Op, operands: Vec<ast::Operand>) {
        self.guarded(None, op, operands);
    }

    /// An instruction in the current scope. In a predicated branch, what has an effect is guarded.
    fn guarded(&mut self, guard: Option<Guard>, op: Op, operands: Vec<ast::Operand>) {
        let effect = cleanup::has_effect(op)
            || matches!(operands.first(), Some(ast::Operand::Reg(dst)) if self.is_var_reg.contains(dst));
        let guard = match (guard, self.guard) {
            (None, Some(branch)) if effect => Some(branch),
            (Some(mask), Some(branch)) if effect => Some(self.both(mask, branch)),
            (guard, _) => guard,
        };
        let depth = self.depth();
        self.scopes[depth].code.push(ast::Stmt::Inst(Inst { guard, op, operands }));
    }

    /// An unguarded instruction at the end of what an open scope has so far.
    fn inst_at(&mut self, depth: usize, op: Op, operands: Vec<ast::Operand>) {
        self.scopes[depth].code.push(ast::Stmt::Inst(Inst { guard: None, op, operands }));
    }

    fn both(&mut self, a: Guard, b: Guard) -> Guard {
        let mut plain = |guard: Guard| {
            if !guard.negated {
                return guard.pred;
            }
            let dst = self.fresh(RegClass::Pred);
            let depth = self.depth();
            self.inst_at(depth, Op::NotPred, vec![reg(dst), reg(guard.pred)]);
            dst
        };
        let (a, b) = (plain(a), plain(b));
        let dst = self.fresh(RegClass::Pred);
        let depth = self.depth();
        self.inst_at(depth, Op::AndPred, vec![reg(dst), reg(a), reg(b)]);
        Guard { pred: dst, negated: false }
    }

    fn bind(&mut self, label: Label) {
        let depth = self.depth();
        self.scopes[depth].code.push(ast::Stmt::Label(label));
    }

    fn branch(&mut self, guard: Option<Guard>, label: Label) {
        let depth = self.depth();
        let operands = vec![ast::Operand::Label(label)];
        self.scopes[depth].code.push(ast::Stmt::Inst(Inst { guard, op: Op::Bra, operands }));
    }

    // Statements.

    fn stmts(&mut self, stmts: &[Stmt]) -> Result<(), EmitError> {
        stmts.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<(), EmitError> {
        match stmt {
            Stmt::Let(val, expr) => self.define(*val, expr)?,
            Stmt::Set(var, val) => {
                let aliased = self.plan.alias[*val] == Some(*var);
                if self.plan.into_var[*val] != Some(*var) && !aliased {
                    let (dst, src) = (self.var_reg(*var), self.operand(*val)?);
                    self.inst(mov_op(dst.class), vec![reg(dst), src]);
                }
            }
            Stmt::Load { dsts, buffer, index, offset, mask } => {
                self.load(dsts, *buffer, *index, *offset, *mask)?;
            }
            Stmt::Store { buffer, index, offset, srcs, mask } => {
                self.store(*buffer, *index, *offset, srcs, *mask)?;
            }
            Stmt::CopyAsync {
                dst,
                dst_index,
                dst_offset,
                src,
                src_index,
                src_offset,
                n_elems,
                mask,
            } => {
                let (dst, src) = ((*dst, *dst_index, *dst_offset), (*src, *src_index, *src_offset));
                self.copy_async(dst, src, *n_elems, *mask)?;
            }
            Stmt::CopyCommit => self.inst(Op::CpAsyncCommit, Vec::new()),
            Stmt::CopyWait(n) => self.inst(Op::CpAsyncWait, vec![int(*n)]),
            Stmt::Barrier => self.inst(Op::BarSync, vec![int(0)]),
            Stmt::For { counter, from, to, step, body } => {
                self.for_loop(*counter, *from, *to, *step, body)?
            }
            Stmt::If { cond, then, otherwise } => self.branches(*cond, then, otherwise)?,
        }
        Ok(())
    }

    fn bound(&mut self, operand: Operand) -> Result<ast::Operand, EmitError> {
        match operand {
            Operand::Const(value) => Ok(int(value)),
            Operand::Val(val) => self.operand(val),
        }
    }

    fn for_loop(
        &mut self,
        counter: Val,
        from: Operand,
        to: Operand,
        step: i32,
        body: &[Stmt],
    ) -> Result<(), EmitError> {
        let guard = self.guard.take();
        let count = self.fresh(RegClass::B32);
        self.regs[counter] = Some(count);
        self.depths[counter] = self.scopes.len();
        let (first, end) = (self.bound(from)?, self.bound(to)?);
        self.scopes.push(Scope { counter: Some((counter, from, step)), ..Scope::default() });
        self.stmts(body)?;
        let scope = self.scopes.pop().expect("the loop's scope is open");
        // What was hoisted to the parent scope is in its code by now.
        self.inst(Op::MovU32, vec![reg(count), first]);
        let may_be_empty = self.plan.operand_range(from).1 >= self.plan.operand_range(to).0;
        let exit = may_be_empty.then(|| self.label());
        if let Some(exit) = exit {
            let pred = self.fresh(RegClass::Pred);
            self.inst(Op::SetpGeS32, vec![reg(pred), reg(count), end.clone()]);
            self.branch(Some(Guard { pred, negated: false }), exit);
        }
        let top = self.label();
        self.bind(top);
        let depth = self.depth();
        self.scopes[depth].code.extend(scope.code);
        for (pointer, n_bytes) in scope.increments {
            let op = if pointer.class == RegClass::B64 { Op::AddS64 } else { Op::AddS32 };
            self.inst(op, vec![reg(pointer), reg(pointer), int(n_bytes)]);
        }
        self.inst(Op::AddS32, vec![reg(count), reg(count), int(step)]);
        let pred = self.fresh(RegClass::Pred);
        self.inst(Op::SetpLtS32, vec![reg(pred), reg(count), end]);
        self.branch(Some(Guard { pred, negated: false }), top);
        if let Some(exit) = exit {
            self.bind(exit);
        }
        self.guard = guard;
        Ok(())
    }

    /// Whether a branch is so short that guarding its instructions beats jumping.
    fn is_short(&self, stmts: &[Stmt]) -> bool {
        const MAX_STMTS: usize = 4;
        stmts.len() <= MAX_STMTS
            && stmts.iter().all(|stmt| match stmt {
                Stmt::Set(..) | Stmt::Store { .. } => true,
                Stmt::Let(_, Expr::Binary(op, ..)) => {
                    !matches!(op, crate::kir::BinaryOp::Div | crate::kir::BinaryOp::Rem)
                }
                Stmt::Let(_, Expr::Unary(op, _)) => {
                    matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not)
                }
                Stmt::Let(_, Expr::ShuffleXor(..)) => false,
                Stmt::Let(..) => true,
                _ => false,
            })
    }

    fn branches(&mut self, cond: Val, then: &[Stmt], otherwise: &[Stmt]) -> Result<(), EmitError> {
        let guard = self.guard_of(cond)?;
        if otherwise.is_empty()
            && self.guard.is_none()
            && self.is_short(then)
            && !self.is_assigned(guard.pred)
        {
            self.guard = Some(guard);
            self.stmts(then)?;
            self.guard = None;
            return Ok(());
        }
        let outer = self.guard.take();
        // The bodies first: what they hoist to this scope comes before the jump.
        let then_code = self.branch_body(then)?;
        let else_code = self.branch_body(otherwise)?;
        let end = self.label();
        let skip = Guard { pred: guard.pred, negated: !guard.negated };
        let depth = self.depth();
        if else_code.is_empty() {
            self.branch(Some(skip), end);
            self.scopes[depth].code.extend(then_code);
        } else {
            let middle = self.label();
            self.branch(Some(skip), middle);
            self.scopes[depth].code.extend(then_code);
            self.branch(None, end);
            self.bind(middle);
            self.scopes[depth].code.extend(else_code);
        }
        self.bind(end);
        self.guard = outer;
        Ok(())
    }

    /// Whether the branch's condition is a variable, which its own statements may assign.
    fn is_assigned(&self, pred: Reg) -> bool {
        self.is_var_reg.contains(&pred)
    }

    fn branch_body(&mut self, stmts: &[Stmt]) -> Result<Vec<ast::Stmt>, EmitError> {
        self.scopes.push(Scope::default());
        self.stmts(stmts)?;
        Ok(self.scopes.pop().expect("the branch's scope is open").code)
    }
}
