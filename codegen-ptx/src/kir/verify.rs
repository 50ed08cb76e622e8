//! The verifier. It checks, and reports every violation of:
//!
//! - **launch**: every extent of the grid is at least 1, a block has 1 to 1024 threads;
//! - **definition**: a value is defined once, and used after that in the scope of its definition or
//!   inside; a variable is assigned before it is read, in program order;
//! - **type**: operands, variables, indices (`i32`), masks and conditions (`pred`) have the types that
//!   their operation needs; constants are as their type writes them;
//! - **element**: what a buffer's elements are fits in registers, and is what is stored;
//! - **access**: 1, 2 or 4 elements at once, to which an alignment that the buffer guarantees divides;
//!   4, 8 or 16 bytes in an asynchronous copy, from global to shared memory of the same element type;
//! - **bounds**: an unmasked access lies in the buffer, as far as the index's bounds tell;
//! - **read-only**: only writable buffers are stored to;
//! - **loop**: the step is positive;
//! - **barrier**: no condition around it depends on the thread;
//! - **shuffle**: no condition around it differs within a warp, and warps are full.

use crate::kir::fold::{self, Range};
use crate::kir::text::head;
use crate::kir::uniform::{Uniformity, uniformity};
use crate::kir::{
    BinaryOp, Buffer, Expr, Kernel, Operand, Scalar, Space, Stmt, UnaryOp, Val, Var, range,
};
use cranelift_entity::{EntitySet, SecondaryMap};
use eggine_ir::DType;
use std::fmt;
use thiserror::Error;

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{at}: {kind}")]
pub struct VerifyError {
    /// Where.
    pub at: Place,
    /// What.
    pub kind: VerifyErrorKind,
}

/// Where a violation is. Prints as the line of the text format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the statement in program order; `None` for the kernel itself.
    pub stmt: Option<usize>,
    /// Its line.
    pub line: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// Kinds of [`VerifyError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum VerifyErrorKind {
    #[error("{n_threads} threads per block; 1 to 1024 are possible")]
    NumberOfThreads { n_threads: u32 },
    #[error("grid({x}, {y}, {z}) is empty")]
    EmptyGrid { x: u32, y: u32, z: u32 },
    #[error("{val} is not defined here")]
    NotDefined { val: Val },
    #[error("{val} is defined twice")]
    DefinedTwice { val: Val },
    #[error("{var} is not assigned before")]
    NotAssigned { var: Var },
    #[error("{val} is {found}, {expected} is needed")]
    Type { val: Val, expected: Scalar, found: Scalar },
    #[error("{ty} does not have `{op}`")]
    NoOperation { op: &'static str, ty: Scalar },
    #[error("0x{bits:x} is no constant of type {ty}")]
    Constant { bits: u64, ty: Scalar },
    #[error("elements of {buffer} are {dtype}, several to a byte: the byte is stored, not they")]
    StoredPart { buffer: Buffer, dtype: DType },
    #[error("{n} elements cannot be accessed at once")]
    NumberOfElements { n: usize },
    #[error("{n} elements of {buffer} at once are not aligned to all of them")]
    Alignment { buffer: Buffer, n: usize },
    #[error("{n} elements at {index} of {buffer}, which has {n_elems}")]
    OutOfBounds { buffer: Buffer, index: i64, n: usize, n_elems: usize },
    #[error("{buffer} is read-only")]
    ReadOnly { buffer: Buffer },
    #[error("{n_bytes} bytes are copied at once; 4, 8 and 16 can be")]
    CopySize { n_bytes: usize },
    #[error(
        "a copy goes from global to shared memory of the same element type, not from {src} to {dst}"
    )]
    CopySpaces { src: Buffer, dst: Buffer },
    #[error("a step of {step} does not end the loop")]
    Step { step: i32 },
    #[error("a barrier under a condition that depends on the thread")]
    DivergentBarrier,
    #[error("a shuffle under a condition that differs within a warp")]
    DivergentShuffle,
    #[error("a shuffle needs full warps; the block has {n_threads} threads")]
    PartialWarp { n_threads: u32 },
}

/// Checks a kernel.
///
/// # Errors
///
/// Every violation, in program order.
pub fn verify(kernel: &Kernel) -> Result<(), Vec<VerifyError>> {
    let mut verifier = Verifier {
        kernel,
        ranges: range::ranges(kernel),
        consts: SecondaryMap::new(),
        uniformity: uniformity(kernel),
        defined: EntitySet::new(),
        ever_defined: EntitySet::new(),
        assigned: EntitySet::new(),
        n_stmts: 0,
        errors: Vec::new(),
    };
    verifier.launch();
    verifier.stmts(&kernel.body, Uniformity::Block);
    if verifier.errors.is_empty() { Ok(()) } else { Err(verifier.errors) }
}

struct Verifier<'k> {
    kernel: &'k Kernel,
    ranges: SecondaryMap<Val, Range>,
    consts: SecondaryMap<Val, Option<u64>>,
    uniformity: SecondaryMap<Val, Uniformity>,
    /// Values that may be used at this place.
    defined: EntitySet<Val>,
    ever_defined: EntitySet<Val>,
    assigned: EntitySet<Var>,
    n_stmts: usize,
    errors: Vec<VerifyError>,
}

/// Errors of one statement.
struct At<'s> {
    number: usize,
    stmt: &'s Stmt,
}

impl Verifier<'_> {
    fn launch(&mut self) {
        let line = format!("kernel @{}", self.kernel.name);
        let mut fail = |kind| {
            self.errors.push(VerifyError { at: Place { stmt: None, line: line.clone() }, kind });
        };
        let n_threads = self.kernel.n_threads;
        if !(1..=1024).contains(&n_threads) {
            fail(VerifyErrorKind::NumberOfThreads { n_threads });
        }
        let [x, y, z] = self.kernel.grid;
        if x == 0 || y == 0 || z == 0 {
            fail(VerifyErrorKind::EmptyGrid { x, y, z });
        }
    }

    fn fail(&mut self, at: &At<'_>, kind: VerifyErrorKind) {
        let line = head(self.kernel, at.stmt);
        self.errors.push(VerifyError { at: Place { stmt: Some(at.number), line }, kind });
    }

    fn stmts(&mut self, stmts: &[Stmt], control: Uniformity) {
        let outer = self.defined.clone();
        for stmt in stmts {
            let at = At { number: self.n_stmts, stmt };
            self.n_stmts += 1;
            stmt.for_each_operand(|val| {
                if !self.defined.contains(val) {
                    let line = head(self.kernel, stmt);
                    let at = Place { stmt: Some(at.number), line };
                    self.errors.push(VerifyError { at, kind: VerifyErrorKind::NotDefined { val } });
                }
            });
            self.stmt(&at, control);
        }
        self.defined = outer;
    }

    fn define(&mut self, at: &At<'_>, val: Val) {
        if !self.ever_defined.insert(val) {
            self.fail(at, VerifyErrorKind::DefinedTwice { val });
        }
        self.defined.insert(val);
    }

    fn expect(&mut self, at: &At<'_>, val: Val, expected: Scalar) {
        let found = self.kernel.vals[val];
        if found != expected {
            self.fail(at, VerifyErrorKind::Type { val, expected, found });
        }
    }

    fn mask(&mut self, at: &At<'_>, mask: Option<Val>) {
        if let Some(mask) = mask {
            self.expect(at, mask, Scalar::Pred);
        }
    }

    fn stmt(&mut self, at: &At<'_>, control: Uniformity) {
        match at.stmt {
            Stmt::Let(val, expr) => {
                self.expr(at, *val, expr, control);
                if let Expr::Const(bits) = expr {
                    self.consts[*val] = Some(*bits);
                }
                self.define(at, *val);
            }
            Stmt::Set(var, val) => {
                self.expect(at, *val, self.kernel.vars[*var]);
                self.assigned.insert(*var);
            }
            Stmt::Load { dsts, buffer, index, offset, mask } => {
                self.mask(at, *mask);
                self.access(at, *buffer, *index, *offset, dsts.len(), mask.is_some());
                let ty = Scalar::of(self.kernel.buffers[*buffer].dtype);
                dsts.iter().for_each(|&dst| self.expect(at, dst, ty));
                dsts.iter().for_each(|&dst| self.define(at, dst));
            }
            Stmt::Store { buffer, index, offset, srcs, mask } => {
                self.mask(at, *mask);
                self.access(at, *buffer, *index, *offset, srcs.len(), mask.is_some());
                let dtype = self.kernel.buffers[*buffer].dtype;
                if dtype.bits() < 8 {
                    self.fail(at, VerifyErrorKind::StoredPart { buffer: *buffer, dtype });
                }
                srcs.iter().for_each(|&src| self.expect(at, src, Scalar::of(dtype)));
                if self.kernel.buffers[*buffer].space == (Space::Global { writable: false }) {
                    self.fail(at, VerifyErrorKind::ReadOnly { buffer: *buffer });
                }
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
                self.mask(at, *mask);
                let (to, from) = (&self.kernel.buffers[*dst], &self.kernel.buffers[*src]);
                let n = *n_elems as usize;
                let n_bytes = to.dtype.bytes_for(n);
                if to.space != Space::Shared
                    || from.space == Space::Shared
                    || to.dtype != from.dtype
                {
                    self.fail(at, VerifyErrorKind::CopySpaces { src: *src, dst: *dst });
                }
                if !matches!(n_bytes, 4 | 8 | 16) {
                    self.fail(at, VerifyErrorKind::CopySize { n_bytes });
                }
                self.aligned_access(at, *dst, *dst_index, *dst_offset, n, false);
                self.aligned_access(at, *src, *src_index, *src_offset, n, mask.is_some());
            }
            Stmt::CopyCommit | Stmt::CopyWait(_) => {}
            Stmt::For { counter, from, to, step, body } => {
                let mut inner = control;
                for operand in [from, to] {
                    if let Operand::Val(val) = operand {
                        self.expect(at, *val, Scalar::I32);
                        inner = inner.max(self.uniformity[*val]);
                    }
                }
                if *step <= 0 {
                    self.fail(at, VerifyErrorKind::Step { step: *step });
                }
                self.expect(at, *counter, Scalar::I32);
                let outer = self.defined.clone();
                self.define(at, *counter);
                self.stmts(body, inner);
                self.defined = outer;
            }
            Stmt::If { cond, then, otherwise } => {
                self.expect(at, *cond, Scalar::Pred);
                let inner = control.max(self.uniformity[*cond]);
                self.stmts(then, inner);
                self.stmts(otherwise, inner);
            }
            Stmt::Barrier => {
                if control > Uniformity::Block {
                    self.fail(at, VerifyErrorKind::DivergentBarrier);
                }
            }
        }
    }

    fn access(
        &mut self,
        at: &At<'_>,
        buffer: Buffer,
        index: Val,
        offset: i32,
        n: usize,
        masked: bool,
    ) {
        if !matches!(n, 1 | 2 | 4) {
            self.fail(at, VerifyErrorKind::NumberOfElements { n });
        }
        self.aligned_access(at, buffer, index, offset, n, masked);
    }

    fn aligned_access(
        &mut self,
        at: &At<'_>,
        buffer: Buffer,
        index: Val,
        offset: i32,
        n: usize,
        masked: bool,
    ) {
        self.expect(at, index, Scalar::I32);
        let decl = &self.kernel.buffers[buffer];
        let (n_bytes, n_elems) = (decl.dtype.bytes_for(n), decl.n_elems);
        let constant =
            self.consts[index].map(|bits| i64::from(fold::as_i32(bits)) + i64::from(offset));
        let misplaced = constant.is_some_and(|index| index.rem_euclid(n.max(1) as i64) != 0);
        if n > 1 && (!(decl.align_bytes as usize).is_multiple_of(n_bytes) || misplaced) {
            self.fail(at, VerifyErrorKind::Alignment { buffer, n });
        }
        let (lo, hi) = self.ranges[index];
        let (lo, hi) = (lo + i64::from(offset), hi + i64::from(offset));
        // No index of the range is right: an index that is right for some threads is for the evaluator.
        let index = if hi < 0 { hi } else { lo };
        if !masked && (hi < 0 || lo + n as i64 > n_elems as i64) {
            self.fail(at, VerifyErrorKind::OutOfBounds { buffer, index, n, n_elems });
        }
    }

    fn expr(&mut self, at: &At<'_>, val: Val, expr: &Expr, control: Uniformity) {
        let ty = self.kernel.vals[val];
        match *expr {
            Expr::Const(bits) => {
                let canonical = match ty {
                    Scalar::I32 => fold::i32_bits(fold::as_i32(bits)) == bits,
                    Scalar::F32 => bits >> 32 == 0,
                    Scalar::Pred => bits <= 1,
                    Scalar::I64 | Scalar::F64 => true,
                };
                if !canonical {
                    self.fail(at, VerifyErrorKind::Constant { bits, ty });
                }
            }
            Expr::Special(_) => self.expect(at, val, Scalar::I32),
            Expr::Get(var) => {
                self.expect(at, val, self.kernel.vars[var]);
                if !self.assigned.contains(var) {
                    self.fail(at, VerifyErrorKind::NotAssigned { var });
                }
            }
            Expr::Unary(op, a) => {
                self.expect(at, a, ty);
                let has = match ty {
                    Scalar::Pred => op == UnaryOp::Not,
                    Scalar::I32 | Scalar::I64 => matches!(op, UnaryOp::Neg | UnaryOp::Abs),
                    Scalar::F32 => op != UnaryOp::Not,
                    Scalar::F64 => fold::unary(ty, op, 0).is_some(),
                };
                if !has {
                    self.fail(at, VerifyErrorKind::NoOperation { op: op.name(), ty });
                }
            }
            Expr::Binary(op, a, b) => {
                self.expect(at, a, ty);
                let shift = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
                self.expect(at, b, if shift { Scalar::I32 } else { ty });
                if fold::binary(ty, op, 1, 1).is_none() {
                    self.fail(at, VerifyErrorKind::NoOperation { op: op.name(), ty });
                }
            }
            Expr::Compare(op, a, b) => {
                self.expect(at, val, Scalar::Pred);
                let operands = self.kernel.vals[a];
                self.expect(at, b, operands);
                if operands == Scalar::Pred {
                    self.fail(at, VerifyErrorKind::NoOperation { op: op.name(), ty: operands });
                }
            }
            Expr::Fma(a, b, c) => {
                for operand in [a, b, c] {
                    self.expect(at, operand, ty);
                }
                if ty == Scalar::Pred {
                    self.fail(at, VerifyErrorKind::NoOperation { op: "fma", ty });
                }
            }
            Expr::Select { cond, a, b } => {
                self.expect(at, cond, Scalar::Pred);
                self.expect(at, a, ty);
                self.expect(at, b, ty);
                if ty == Scalar::Pred {
                    self.fail(at, VerifyErrorKind::NoOperation { op: "select", ty });
                }
            }
            Expr::Convert(a) => {
                let from = self.kernel.vals[a];
                if ty == Scalar::Pred && from != Scalar::Pred {
                    self.fail(at, VerifyErrorKind::NoOperation { op: "convert", ty });
                }
            }
            Expr::Bits(a) => {
                let from = self.kernel.vals[a];
                if fold::bits(from, ty, 0).is_none() {
                    self.fail(at, VerifyErrorKind::NoOperation { op: "bits", ty });
                }
            }
            Expr::ShuffleXor(a, _) => {
                self.expect(at, a, ty);
                if !matches!(ty, Scalar::I32 | Scalar::F32) {
                    self.fail(at, VerifyErrorKind::NoOperation { op: "shuffle.xor", ty });
                }
                if control > Uniformity::Warp {
                    self.fail(at, VerifyErrorKind::DivergentShuffle);
                }
                let n_threads = self.kernel.n_threads;
                if !n_threads.is_multiple_of(32) {
                    self.fail(at, VerifyErrorKind::PartialWarp { n_threads });
                }
            }
        }
    }
}
