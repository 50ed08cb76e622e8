//! What kernels are written into: the builder, which simplifies, and a plain list of statements.

use cranelift_entity::PrimaryMap;
use eggine_codegen_ptx::kir::{
    BinaryOp, Buffer, BufferDecl, Builder, CompareOp, Expr, Kernel, Operand, Scalar, Special, Stmt,
    UnaryOp, Val, Var,
};

use super::{BLOCKS, THREADS};

/// What makes kernels: the builder, or a writer that simplifies nothing.
pub(crate) trait Sink {
    fn constant(&mut self, ty: Scalar, bits: u64) -> Val;
    fn special(&mut self, special: Special) -> Val;
    fn unary(&mut self, op: UnaryOp, a: Val) -> Val;
    fn binary(&mut self, op: BinaryOp, a: Val, b: Val) -> Val;
    fn compare(&mut self, op: CompareOp, a: Val, b: Val) -> Val;
    fn fma(&mut self, a: Val, b: Val, c: Val) -> Val;
    fn select(&mut self, cond: Val, a: Val, b: Val) -> Val;
    fn convert(&mut self, a: Val, to: Scalar) -> Val;
    fn shuffle(&mut self, a: Val, mask: u32) -> Val;
    fn var(&mut self, init: Val) -> Var;
    fn get(&mut self, var: Var) -> Val;
    fn set(&mut self, var: Var, val: Val);
    fn load(
        &mut self,
        buffer: Buffer,
        index: Val,
        offset: i32,
        n: usize,
        mask: Option<Val>,
    ) -> Vec<Val>;
    fn store(&mut self, buffer: Buffer, index: Val, offset: i32, srcs: &[Val], mask: Option<Val>);
    fn begin_for(&mut self, from: Operand, to: Operand, step: i32) -> Val;
    fn begin_if(&mut self, cond: Val);
    fn begin_else(&mut self);
    fn end(&mut self);
    fn barrier(&mut self);
}

impl Sink for Builder {
    fn constant(&mut self, ty: Scalar, bits: u64) -> Val {
        self.constant(ty, bits)
    }
    fn special(&mut self, special: Special) -> Val {
        self.special(special)
    }
    fn unary(&mut self, op: UnaryOp, a: Val) -> Val {
        self.unary(op, a)
    }
    fn binary(&mut self, op: BinaryOp, a: Val, b: Val) -> Val {
        self.binary(op, a, b)
    }
    fn compare(&mut self, op: CompareOp, a: Val, b: Val) -> Val {
        self.compare(op, a, b)
    }
    fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        self.fma(a, b, c)
    }
    fn select(&mut self, cond: Val, a: Val, b: Val) -> Val {
        self.select(cond, a, b)
    }
    fn convert(&mut self, a: Val, to: Scalar) -> Val {
        self.convert(a, to)
    }
    fn shuffle(&mut self, a: Val, mask: u32) -> Val {
        self.shuffle_xor(a, mask)
    }
    fn var(&mut self, init: Val) -> Var {
        self.var(init)
    }
    fn get(&mut self, var: Var) -> Val {
        self.get(var)
    }
    fn set(&mut self, var: Var, val: Val) {
        self.set(var, val);
    }
    fn load(
        &mut self,
        buffer: Buffer,
        index: Val,
        offset: i32,
        n: usize,
        mask: Option<Val>,
    ) -> Vec<Val> {
        self.load(buffer, index, offset, n, mask)
    }
    fn store(&mut self, buffer: Buffer, index: Val, offset: i32, srcs: &[Val], mask: Option<Val>) {
        self.store(buffer, index, offset, srcs, mask);
    }
    fn begin_for(&mut self, from: Operand, to: Operand, step: i32) -> Val {
        self.begin_for(from, to, step)
    }
    fn begin_if(&mut self, cond: Val) {
        self.begin_if(cond);
    }
    fn begin_else(&mut self) {
        self.begin_else();
    }
    fn end(&mut self) {
        self.end();
    }
    fn barrier(&mut self) {
        self.barrier();
    }
}

/// Writes statements as they come.
pub(crate) struct Plain {
    kernel: Kernel,
    open: Vec<Stmt>,
    /// Statements of each open scope, and of the finished first branch.
    scopes: Vec<(Vec<Stmt>, Option<Vec<Stmt>>)>,
}

impl Plain {
    pub(crate) fn new(decls: &[BufferDecl]) -> Self {
        let kernel = Kernel {
            name: "random".to_owned(),
            grid: [BLOCKS, 1, 1],
            n_threads: THREADS,
            min_blocks: None,
            buffers: decls.iter().cloned().collect(),
            vals: PrimaryMap::new(),
            vars: PrimaryMap::new(),
            body: Vec::new(),
        };
        Plain { kernel, open: Vec::new(), scopes: vec![(Vec::new(), None)] }
    }

    fn push(&mut self, stmt: Stmt) {
        self.scopes.last_mut().unwrap().0.push(stmt);
    }

    fn define(&mut self, ty: Scalar, expr: Expr) -> Val {
        let val = self.kernel.vals.push(ty);
        self.push(Stmt::Let(val, expr));
        val
    }

    pub(crate) fn finish(mut self) -> Kernel {
        self.kernel.body = self.scopes.pop().unwrap().0;
        self.kernel
    }
}

impl Sink for Plain {
    fn constant(&mut self, ty: Scalar, bits: u64) -> Val {
        self.define(ty, Expr::Const(bits))
    }
    fn special(&mut self, special: Special) -> Val {
        self.define(Scalar::I32, Expr::Special(special))
    }
    fn unary(&mut self, op: UnaryOp, a: Val) -> Val {
        self.define(self.kernel.vals[a], Expr::Unary(op, a))
    }
    fn binary(&mut self, op: BinaryOp, a: Val, b: Val) -> Val {
        self.define(self.kernel.vals[a], Expr::Binary(op, a, b))
    }
    fn compare(&mut self, op: CompareOp, a: Val, b: Val) -> Val {
        self.define(Scalar::Pred, Expr::Compare(op, a, b))
    }
    fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        self.define(self.kernel.vals[a], Expr::Fma(a, b, c))
    }
    fn select(&mut self, cond: Val, a: Val, b: Val) -> Val {
        self.define(self.kernel.vals[a], Expr::Select { cond, a, b })
    }
    fn convert(&mut self, a: Val, to: Scalar) -> Val {
        self.define(to, Expr::Convert(a))
    }
    fn shuffle(&mut self, a: Val, mask: u32) -> Val {
        self.define(self.kernel.vals[a], Expr::ShuffleXor(a, mask))
    }
    fn var(&mut self, init: Val) -> Var {
        let var = self.kernel.vars.push(self.kernel.vals[init]);
        self.push(Stmt::Set(var, init));
        var
    }
    fn get(&mut self, var: Var) -> Val {
        self.define(self.kernel.vars[var], Expr::Get(var))
    }
    fn set(&mut self, var: Var, val: Val) {
        self.push(Stmt::Set(var, val));
    }
    fn load(
        &mut self,
        buffer: Buffer,
        index: Val,
        offset: i32,
        n: usize,
        mask: Option<Val>,
    ) -> Vec<Val> {
        let ty = Scalar::of(self.kernel.buffers[buffer].dtype);
        let dsts: Vec<Val> = (0..n).map(|_| self.kernel.vals.push(ty)).collect();
        self.push(Stmt::Load { dsts: dsts.clone(), buffer, index, offset, mask });
        dsts
    }
    fn store(&mut self, buffer: Buffer, index: Val, offset: i32, srcs: &[Val], mask: Option<Val>) {
        self.push(Stmt::Store { buffer, index, offset, srcs: srcs.to_vec(), mask });
    }
    fn begin_for(&mut self, from: Operand, to: Operand, step: i32) -> Val {
        let counter = self.kernel.vals.push(Scalar::I32);
        self.open.push(Stmt::For { counter, from, to, step, body: Vec::new() });
        self.scopes.push((Vec::new(), None));
        counter
    }
    fn begin_if(&mut self, cond: Val) {
        self.open.push(Stmt::If { cond, then: Vec::new(), otherwise: Vec::new() });
        self.scopes.push((Vec::new(), None));
    }
    fn begin_else(&mut self) {
        let (then, _) = self.scopes.pop().unwrap();
        self.scopes.push((Vec::new(), Some(then)));
    }
    fn end(&mut self) {
        let (stmts, first) = self.scopes.pop().unwrap();
        let mut stmt = self.open.pop().unwrap();
        match &mut stmt {
            Stmt::For { body, .. } => *body = stmts,
            Stmt::If { then, otherwise, .. } => match first {
                Some(first) => (*then, *otherwise) = (first, stmts),
                None => *then = stmts,
            },
            _ => unreachable!(),
        }
        self.push(stmt);
    }
    fn barrier(&mut self) {
        self.push(Stmt::Barrier);
    }
}
