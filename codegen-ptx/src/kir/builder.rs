//! Builds kernels: typed constructors that fold constants, share equal expressions and hoist.
//!
//! Invariants: an expression is placed in the outermost scope that has all its operands, so what does
//! not depend on a loop is computed before it; equal expressions are one value wherever one dominates
//! the other; `i32` sums are kept in one canonical form (`linear`), with known bounds
//! ([`Builder::range`]). Variables, shuffles, stores and loads stay where they are written; a load from
//! a buffer that the kernel does not write is shared with an equal one that dominates it.
//!
//! Misuse (wrong types, a value of a closed scope) panics: it is a bug of the kernel family.

mod linear;
mod ops;

use crate::kir::fold::{self, FULL, Range};
use crate::kir::range;
use crate::kir::{
    Buffer, BufferDecl, Expr, Kernel, Operand, Scalar, Space, Special, Stmt, Val, Var,
};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use eggine_ir::DType;
use indexmap::IndexMap;
use linear::Linear;
use std::collections::BTreeMap;

impl From<i32> for Operand {
    fn from(value: i32) -> Self {
        Operand::Const(value)
    }
}

impl From<Val> for Operand {
    fn from(value: Val) -> Self {
        Operand::Val(value)
    }
}

/// What an open scope is the body of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ScopeKind {
    /// The kernel.
    Root,
    /// A loop of two or more (or unknown many) iterations.
    For {
        counter: Val,
        from: Operand,
        to: Operand,
        step: i32,
    },
    /// A branch, first or second.
    Then {
        cond: Val,
    },
    Else {
        cond: Val,
    },
    /// A loop of one iteration or a branch that is always taken: its statements join the parent's.
    Inline,
    /// Never executed.
    Dead,
}

type LoadKey = (Buffer, Val, i32, usize, Option<Val>);

#[derive(Debug)]
struct Scope {
    kind: ScopeKind,
    stmts: Vec<Stmt>,
    /// First branch of an `If` whose second is open.
    then: Vec<Stmt>,
    exprs: IndexMap<(Scalar, Expr), Val>,
    loads: BTreeMap<LoadKey, Vec<Val>>,
    sums: BTreeMap<Vec<(Val, i32)>, Val>,
}

impl Scope {
    fn new(kind: ScopeKind) -> Self {
        Scope {
            kind,
            stmts: Vec::new(),
            then: Vec::new(),
            exprs: IndexMap::new(),
            loads: BTreeMap::new(),
            sums: BTreeMap::new(),
        }
    }
}

/// What is known of a value.
#[derive(Clone, Debug, Default)]
struct Info {
    /// How it was computed; `None` for counters and loads.
    expr: Option<Expr>,
    /// Index in the stack of open scopes of the one that defines it.
    depth: usize,
    /// Bounds of an `i32`.
    range: Option<Range>,
    /// An `i32` as a sum.
    linear: Option<Linear>,
    /// If it is `x / c` or `x % c` with non-negative `x`, whatever instruction computes it.
    part: Option<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    of: Val,
    divisor: i32,
    remainder: bool,
}

/// Builds a [`Kernel`].
///
/// ```
/// use eggine_codegen_ptx::kir::{Builder, Scalar};
/// use eggine_ir::DType;
/// let mut b = Builder::new("double", [4, 1, 1], 256);
/// let (x, y) = (b.global(DType::F32, 1000, false), b.global(DType::F32, 1000, true));
/// let (block, thread) = (b.block_x(), b.thread());
/// let i = b.mad_const(block, 256, thread);
/// let n = b.i32(1000);
/// let inside = b.lt(i, n);
/// b.if_then(inside, |b| {
///     let v = b.load1(x, i, 0, None);
///     let twice = b.add(v, v);
///     b.store(y, i, 0, &[twice], None);
/// });
/// let kernel = b.finish();
/// assert_eq!(kernel.buffers.len(), 2);
/// ```
#[derive(Debug)]
pub struct Builder {
    kernel: Kernel,
    info: SecondaryMap<Val, Info>,
    scopes: Vec<Scope>,
}

impl Builder {
    /// A kernel without buffers and statements, of `grid` blocks of `n_threads` threads.
    pub fn new(name: impl Into<String>, grid: [u32; 3], n_threads: u32) -> Self {
        let kernel = Kernel {
            name: name.into(),
            grid,
            n_threads,
            min_blocks: None,
            buffers: PrimaryMap::new(),
            vals: PrimaryMap::new(),
            vars: PrimaryMap::new(),
            body: Vec::new(),
        };
        Builder { kernel, info: SecondaryMap::new(), scopes: vec![Scope::new(ScopeKind::Root)] }
    }

    /// Asks that `n` blocks fit on one multiprocessor.
    pub fn min_blocks(&mut self, n: u32) {
        self.kernel.min_blocks = Some(n);
    }

    /// Threads per block.
    pub fn n_threads(&self) -> u32 {
        self.kernel.n_threads
    }

    /// Declares the next kernel parameter: a tensor of `n_elems` elements, aligned to 16 bytes.
    pub fn global(&mut self, dtype: DType, n_elems: usize, writable: bool) -> Buffer {
        self.kernel.buffers.push(BufferDecl {
            space: Space::Global { writable },
            dtype,
            n_elems,
            align_bytes: 16,
        })
    }

    /// Declares a shared array of `n_elems` elements, aligned to 16 bytes.
    pub fn shared(&mut self, dtype: DType, n_elems: usize) -> Buffer {
        self.kernel.buffers.push(BufferDecl {
            space: Space::Shared,
            dtype,
            n_elems,
            align_bytes: 16,
        })
    }

    /// Declares a buffer as described.
    pub fn buffer(&mut self, decl: BufferDecl) -> Buffer {
        self.kernel.buffers.push(decl)
    }

    /// Declaration of a buffer.
    pub fn decl(&self, buffer: Buffer) -> &BufferDecl {
        &self.kernel.buffers[buffer]
    }

    /// Type of a value.
    pub fn ty(&self, val: Val) -> Scalar {
        self.kernel.vals[val]
    }

    /// Bounds of an `i32` value, both inclusive; every `i32` if nothing is known.
    pub fn range(&self, val: Val) -> Range {
        self.info[val].range.unwrap_or(FULL)
    }

    /// Promises that an `i32` value lies within the bounds, wherever it is used.
    pub fn assume_range(&mut self, val: Val, min: i64, max: i64) {
        self.refine(val, (min, max));
    }

    /// The value of a constant, as [`Expr::Const`] has it.
    pub fn as_const(&self, val: Val) -> Option<u64> {
        match self.info[val].expr {
            Some(Expr::Const(bits)) => Some(bits),
            _ => None,
        }
    }

    /// The value of an `i32` constant.
    pub fn as_i32(&self, val: Val) -> Option<i32> {
        (self.ty(val) == Scalar::I32).then(|| self.as_const(val).map(fold::as_i32)).flatten()
    }

    /// The value of an `f32` constant.
    pub fn as_f32(&self, val: Val) -> Option<f32> {
        (self.ty(val) == Scalar::F32).then(|| self.as_const(val).map(fold::as_f32)).flatten()
    }

    // Leaves.

    /// A constant of any type, from its bits as [`Expr::Const`] has them.
    pub fn constant(&mut self, ty: Scalar, bits: u64) -> Val {
        self.define(ty, Expr::Const(bits))
    }

    /// An `i32` constant.
    pub fn i32(&mut self, value: i32) -> Val {
        self.constant(Scalar::I32, fold::i32_bits(value))
    }

    /// An `i64` constant.
    pub fn i64(&mut self, value: i64) -> Val {
        self.constant(Scalar::I64, value as u64)
    }

    /// An `f32` constant.
    pub fn f32(&mut self, value: f32) -> Val {
        self.constant(Scalar::F32, u64::from(value.to_bits()))
    }

    /// An `f64` constant.
    pub fn f64(&mut self, value: f64) -> Val {
        self.constant(Scalar::F64, value.to_bits())
    }

    /// A predicate constant.
    pub fn pred(&mut self, value: bool) -> Val {
        self.constant(Scalar::Pred, u64::from(value))
    }

    /// Index of the thread in its block.
    pub fn thread(&mut self) -> Val {
        self.special(Special::ThreadX)
    }

    /// Index of the block in x.
    pub fn block_x(&mut self) -> Val {
        self.special(Special::BlockX)
    }

    /// Index of the block in y.
    pub fn block_y(&mut self) -> Val {
        self.special(Special::BlockY)
    }

    /// Index of the block in z.
    pub fn block_z(&mut self) -> Val {
        self.special(Special::BlockZ)
    }

    /// A special register; constant 0 where the launch has extent 1.
    pub fn special(&mut self, special: Special) -> Val {
        if self.kernel.extent(special) == 1 {
            return self.i32(0);
        }
        self.define(Scalar::I32, Expr::Special(special))
    }

    // Variables.

    /// A variable with an initial value.
    pub fn var(&mut self, init: Val) -> Var {
        let var = self.kernel.vars.push(self.ty(init));
        self.set(var, init);
        var
    }

    /// Current value of a variable.
    pub fn get(&mut self, var: Var) -> Val {
        let ty = self.kernel.vars[var];
        let depth = self.scopes.len() - 1;
        self.fresh(ty, Expr::Get(var), depth)
    }

    /// Assigns a variable.
    pub fn set(&mut self, var: Var, val: Val) {
        assert_eq!(self.kernel.vars[var], self.ty(val), "{var} and {val} have the same type");
        self.push(Stmt::Set(var, val));
    }

    // Memory.

    /// Loads `n` (1, 2 or 4) neighbouring elements starting at `index + offset`; zeros where `mask` is
    /// false. With `n > 1` the family guarantees that the address is aligned to all of them.
    pub fn load(
        &mut self,
        buffer: Buffer,
        index: Val,
        offset: i32,
        n: usize,
        mask: Option<Val>,
    ) -> Vec<Val> {
        assert!(matches!(n, 1 | 2 | 4), "1, 2 or 4 elements are loaded at once, not {n}");
        let decl = &self.kernel.buffers[buffer];
        let dtype = decl.dtype;
        let ty = Scalar::of(dtype);
        let read_only = decl.space == Space::Global { writable: false };
        let mask = match mask.map(|mask| (mask, self.as_const(mask))) {
            None | Some((_, Some(1))) => None,
            Some((_, Some(_))) => return (0..n).map(|_| self.constant(ty, 0)).collect(),
            Some((mask, None)) => Some(mask),
        };
        let (index, offset) = self.split_offset(index, offset);
        let key = (buffer, index, offset, n, mask);
        if read_only
            && let Some(vals) = self.scopes.iter().rev().find_map(|scope| scope.loads.get(&key))
        {
            return vals.clone();
        }
        let depth = self.scopes.len() - 1;
        let range = (ty == Scalar::I32).then(|| range::dtype_range(dtype));
        let dsts: Vec<Val> = (0..n)
            .map(|_| {
                let val = self.kernel.vals.push(ty);
                self.info[val] = Info { depth, range, ..Info::default() };
                val
            })
            .collect();
        self.push(Stmt::Load { dsts: dsts.clone(), buffer, index, offset, mask });
        if read_only {
            self.scopes[depth].loads.insert(key, dsts.clone());
        }
        dsts
    }

    /// Loads one element.
    pub fn load1(&mut self, buffer: Buffer, index: Val, offset: i32, mask: Option<Val>) -> Val {
        self.load(buffer, index, offset, 1, mask)[0]
    }

    /// Stores 1, 2 or 4 neighbouring elements starting at `index + offset`, where `mask` holds.
    pub fn store(
        &mut self,
        buffer: Buffer,
        index: Val,
        offset: i32,
        srcs: &[Val],
        mask: Option<Val>,
    ) {
        let mask = match mask.map(|mask| (mask, self.as_const(mask))) {
            None | Some((_, Some(1))) => None,
            Some((_, Some(_))) => return,
            Some((mask, None)) => Some(mask),
        };
        let (index, offset) = self.split_offset(index, offset);
        self.push(Stmt::Store { buffer, index, offset, srcs: srcs.to_vec(), mask });
    }

    /// Copies `n_elems` elements (4, 8 or 16 bytes) from global to shared memory; see [`Stmt::CopyAsync`].
    pub fn copy_async(
        &mut self,
        (dst, dst_index, dst_offset): (Buffer, Val, i32),
        (src, src_index, src_offset): (Buffer, Val, i32),
        n_elems: u32,
        mask: Option<Val>,
    ) {
        let mask = mask.filter(|&mask| self.as_const(mask) != Some(1));
        let (dst_index, dst_offset) = self.split_offset(dst_index, dst_offset);
        let (src_index, src_offset) = self.split_offset(src_index, src_offset);
        self.push(Stmt::CopyAsync {
            dst,
            dst_index,
            dst_offset,
            src,
            src_index,
            src_offset,
            n_elems,
            mask,
        });
    }

    /// Ends a group of asynchronous copies.
    pub fn copy_commit(&mut self) {
        self.push(Stmt::CopyCommit);
    }

    /// Waits until at most `n_in_flight` of the thread's groups are in flight.
    pub fn copy_wait(&mut self, n_in_flight: u32) {
        self.push(Stmt::CopyWait(n_in_flight));
    }

    /// All threads of the block wait for each other.
    pub fn barrier(&mut self) {
        self.push(Stmt::Barrier);
    }

    // Control.

    /// A counted loop. A loop of no iterations leaves nothing, one of a single iteration only its body.
    pub fn for_loop(
        &mut self,
        from: impl Into<Operand>,
        to: impl Into<Operand>,
        step: i32,
        body: impl FnOnce(&mut Builder, Val),
    ) {
        let counter = self.begin_for(from, to, step);
        body(self, counter);
        self.end();
    }

    /// `if cond { then }`
    pub fn if_then(&mut self, cond: Val, then: impl FnOnce(&mut Builder)) {
        self.begin_if(cond);
        then(self);
        self.end();
    }

    /// `if cond { then } else { otherwise }`
    pub fn if_else(
        &mut self,
        cond: Val,
        then: impl FnOnce(&mut Builder),
        otherwise: impl FnOnce(&mut Builder),
    ) {
        self.begin_if(cond);
        then(self);
        self.begin_else();
        otherwise(self);
        self.end();
    }

    /// Opens a loop's body; [`Builder::end`] closes it. Returns the counter.
    pub fn begin_for(
        &mut self,
        from: impl Into<Operand>,
        to: impl Into<Operand>,
        step: i32,
    ) -> Val {
        assert!(step > 0, "the step of a loop is positive");
        let from = self.constant_bound(from.into());
        let to = self.constant_bound(to.into());
        let (low, high) = (self.operand_range(from), self.operand_range(to));
        if low.0 >= high.1 {
            self.scopes.push(Scope::new(ScopeKind::Dead));
            return self.operand_val(from);
        }
        // It is entered for certain, and left after the first iteration.
        if low.1 < high.0 && low.0 + i64::from(step) >= high.1 {
            self.scopes.push(Scope::new(ScopeKind::Inline));
            return self.operand_val(from);
        }
        let counter = self.kernel.vals.push(Scalar::I32);
        let range = range::counter_range(low, high, step);
        self.info[counter] =
            Info { depth: self.scopes.len(), range: Some(range), ..Info::default() };
        self.scopes.push(Scope::new(ScopeKind::For { counter, from, to, step }));
        counter
    }

    /// Opens a branch; [`Builder::begin_else`] opens the other one, [`Builder::end`] closes it.
    pub fn begin_if(&mut self, cond: Val) {
        assert_eq!(self.ty(cond), Scalar::Pred, "a condition is a predicate");
        let kind = match self.as_const(cond) {
            Some(1) => ScopeKind::Inline,
            Some(_) => ScopeKind::Dead,
            None => ScopeKind::Then { cond },
        };
        self.scopes.push(Scope::new(kind));
    }

    /// Closes the first branch and opens the second.
    pub fn begin_else(&mut self) {
        let scope = self.close();
        let mut other = Scope::new(match scope.kind {
            ScopeKind::Then { cond } => ScopeKind::Else { cond },
            ScopeKind::Inline => ScopeKind::Dead,
            ScopeKind::Dead => ScopeKind::Inline,
            kind => panic!("no branch is open, but {kind:?}"),
        });
        match scope.kind {
            ScopeKind::Inline => self.append(scope.stmts),
            ScopeKind::Dead => {}
            _ => other.then = scope.stmts,
        }
        self.scopes.push(other);
    }

    /// Closes the innermost loop or branch.
    pub fn end(&mut self) {
        let scope = self.close();
        match scope.kind {
            ScopeKind::Root => panic!("no loop or branch is open"),
            ScopeKind::For { counter, from, to, step } => {
                if !scope.stmts.is_empty() {
                    self.push(Stmt::For { counter, from, to, step, body: scope.stmts });
                }
            }
            ScopeKind::Then { cond } => {
                if !scope.stmts.is_empty() {
                    self.push(Stmt::If { cond, then: scope.stmts, otherwise: Vec::new() });
                }
            }
            ScopeKind::Else { cond } => {
                if !scope.then.is_empty() {
                    self.push(Stmt::If { cond, then: scope.then, otherwise: scope.stmts });
                } else if !scope.stmts.is_empty() {
                    let not = self.not(cond);
                    self.push(Stmt::If { cond: not, then: scope.stmts, otherwise: Vec::new() });
                }
            }
            ScopeKind::Inline => self.append(scope.stmts),
            ScopeKind::Dead => {}
        }
    }

    /// The kernel, without values that nothing uses.
    ///
    /// # Panics
    ///
    /// If a loop or branch is open.
    pub fn finish(mut self) -> Kernel {
        assert_eq!(self.scopes.len(), 1, "every loop and branch is closed");
        self.kernel.body = self.close().stmts;
        crate::kir::dce::remove_unused(&mut self.kernel);
        self.kernel
    }

    // Scopes.

    fn push(&mut self, stmt: Stmt) {
        self.scopes.last_mut().expect("the root is open").stmts.push(stmt);
    }

    fn append(&mut self, stmts: Vec<Stmt>) {
        self.scopes.last_mut().expect("the root is open").stmts.extend(stmts);
    }

    fn close(&mut self) -> Scope {
        self.scopes.pop().expect("a scope is open")
    }

    fn constant_bound(&self, operand: Operand) -> Operand {
        match operand {
            Operand::Val(val) => self.as_i32(val).map_or(operand, Operand::Const),
            Operand::Const(_) => operand,
        }
    }

    fn operand_range(&self, operand: Operand) -> Range {
        match operand {
            Operand::Const(value) => (i64::from(value), i64::from(value)),
            Operand::Val(val) => self.range(val),
        }
    }

    fn operand_val(&mut self, operand: Operand) -> Val {
        match operand {
            Operand::Const(value) => self.i32(value),
            Operand::Val(val) => val,
        }
    }

    // Definitions.

    /// Whether evaluating it where it was not asked for may fail or costs much.
    fn stays_in_branch(&self, expr: &Expr) -> bool {
        use crate::kir::{BinaryOp, UnaryOp};
        match *expr {
            Expr::Binary(BinaryOp::Div | BinaryOp::Rem, _, b) => {
                self.as_const(b).is_none_or(|bits| bits == 0)
            }
            Expr::Unary(op, _) => !matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not),
            _ => false,
        }
    }

    /// The value of a pure expression, in the outermost scope that has its operands.
    fn define(&mut self, ty: Scalar, expr: Expr) -> Val {
        let here = self.scopes.len() - 1;
        let mut depth = 0;
        expr.for_each_operand(|val| depth = depth.max(self.info[val].depth));
        assert!(depth <= here, "an operand of {expr:?} belongs to a scope that is closed");
        let key = (ty, expr);
        if let Some(&val) = self.scopes[depth..].iter().find_map(|scope| scope.exprs.get(&key)) {
            return val;
        }
        if self.stays_in_branch(&expr)
            && let Some(branch) = self.scopes.iter().rposition(|scope| {
                matches!(
                    scope.kind,
                    ScopeKind::Then { .. } | ScopeKind::Else { .. } | ScopeKind::For { .. }
                ) && self.is_conditional(&scope.kind)
            })
        {
            depth = depth.max(branch);
        }
        let val = self.fresh(ty, expr, depth);
        self.scopes[depth].exprs.insert(key, val);
        val
    }

    /// Whether a scope may be executed not at all.
    fn is_conditional(&self, kind: &ScopeKind) -> bool {
        match *kind {
            ScopeKind::For { from, to, .. } => {
                self.operand_range(from).1 >= self.operand_range(to).0
            }
            ScopeKind::Then { .. } | ScopeKind::Else { .. } => true,
            ScopeKind::Root | ScopeKind::Inline | ScopeKind::Dead => false,
        }
    }

    /// A new value, defined at the end of the scope at `depth`.
    fn fresh(&mut self, ty: Scalar, expr: Expr, depth: usize) -> Val {
        let val = self.kernel.vals.push(ty);
        let range = (ty == Scalar::I32).then(|| self.expr_range(&expr));
        self.info[val] = Info { expr: Some(expr), depth, range, ..Info::default() };
        self.scopes[depth].stmts.push(Stmt::Let(val, expr));
        val
    }

    fn refine(&mut self, val: Val, range: Range) {
        let (lo, hi) = self.range(val);
        let (lo, hi) = (lo.max(range.0), hi.min(range.1));
        // Contradictory bounds are those of code that never runs.
        if lo <= hi {
            self.info[val].range = Some((lo, hi));
        }
    }

    fn expr_range(&self, expr: &Expr) -> Range {
        fold::expr_range(expr, &self.kernel, |val| self.range(val))
    }
}
