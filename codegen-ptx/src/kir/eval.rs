//! The reference evaluator: every thread of a block in lockstep, one statement after the other.
//!
//! It is slow and obvious, and shares no code with emission. Approximate operations are the correctly
//! rounded ones. Fresh shared memory is NaN and asynchronous copies arrive as late as they may, so that
//! a missing barrier or wait is likely to show; races between threads of a statement do not show.

use crate::kir::{
    Buffer, Expr, Kernel, Operand, Scalar, Space, Special, Stmt, UnaryOp, Val, Var, fold,
};
use cranelift_entity::SecondaryMap;
use eggine_ir::DType;
use half::{bf16, f16};
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;

/// Where and why evaluation stopped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("kernel `{kernel}`, block {block:?}, thread {thread}: {kind}")]
pub struct EvalError {
    /// Name of the kernel.
    pub kernel: String,
    /// Block index in x, y and z.
    pub block: [u32; 3],
    /// Thread of the block.
    pub thread: u32,
    /// What happened.
    pub kind: EvalErrorKind,
}

/// What a kernel may do wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum EvalErrorKind {
    #[error("{n_buffers} buffers given, the kernel has {expected} parameters")]
    NumberOfBuffers { n_buffers: usize, expected: usize },
    #[error("{buffer} has {n_bytes} bytes, its declaration says {expected}")]
    BufferSize { buffer: Buffer, n_bytes: usize, expected: usize },
    #[error("{n} elements of {buffer} at {index}, which has {n_elems}")]
    OutOfBounds { buffer: Buffer, index: i64, n: usize, n_elems: usize },
    #[error("{n} elements of {buffer} at {index} are not aligned to all of them")]
    Misaligned { buffer: Buffer, index: i64, n: usize },
    #[error("a store to {buffer}, which is not writable")]
    ReadOnly { buffer: Buffer },
    #[error("elements of {buffer} are {dtype}, several to a byte: the byte is stored, not they")]
    StoredPart { buffer: Buffer, dtype: DType },
    #[error("{val} is used but not defined")]
    Undefined { val: Val },
    #[error("{var} is read but not assigned")]
    Unassigned { var: Var },
    #[error("{val} = {expr:?} has no value for {ty:?}")]
    NoValue { val: Val, expr: Expr, ty: Scalar },
    #[error("a barrier that not all threads of the block reach")]
    DivergentBarrier,
    #[error("{val}: a shuffle that not all lanes of the warp reach")]
    DivergentShuffle { val: Val },
}

/// Runs a kernel. `buffers` are the global ones, in order of declaration, little-endian.
///
/// # Errors
///
/// [`EvalError`]: the first wrong access, undefined value or divergence.
pub fn eval(kernel: &Kernel, buffers: &mut [Vec<u8>]) -> Result<(), EvalError> {
    let globals: Vec<Buffer> = kernel
        .buffers
        .iter()
        .filter(|(_, decl)| decl.space != Space::Shared)
        .map(|(buffer, _)| buffer)
        .collect();
    let fail = |kind| EvalError { kernel: kernel.name.clone(), block: [0; 3], thread: 0, kind };
    if globals.len() != buffers.len() {
        let (n_buffers, expected) = (buffers.len(), globals.len());
        return Err(fail(EvalErrorKind::NumberOfBuffers { n_buffers, expected }));
    }
    for (&buffer, bytes) in globals.iter().zip(buffers.iter()) {
        let decl = &kernel.buffers[buffer];
        let (n_bytes, expected) = (bytes.len(), decl.dtype.bytes_for(decl.n_elems));
        if n_bytes != expected {
            return Err(fail(EvalErrorKind::BufferSize { buffer, n_bytes, expected }));
        }
    }
    for z in 0..kernel.grid[2] {
        for y in 0..kernel.grid[1] {
            for x in 0..kernel.grid[0] {
                let mut memory: BTreeMap<Buffer, Vec<u8>> = BTreeMap::new();
                for (&buffer, bytes) in globals.iter().zip(buffers.iter_mut()) {
                    memory.insert(buffer, std::mem::take(bytes));
                }
                for (buffer, decl) in &kernel.buffers {
                    memory
                        .entry(buffer)
                        .or_insert_with(|| vec![0xff; decl.dtype.bytes_for(decl.n_elems)]);
                }
                let n_threads = kernel.n_threads as usize;
                let mut block = Block {
                    kernel,
                    block: [x, y, z],
                    memory,
                    vals: SecondaryMap::new(),
                    vars: SecondaryMap::new(),
                    copies: vec![Copies::default(); n_threads],
                };
                let result = block.stmts(&kernel.body, &vec![true; n_threads]);
                for (buffer, bytes) in globals.iter().zip(buffers.iter_mut()) {
                    *bytes = block.memory.remove(buffer).unwrap_or_default();
                }
                result?;
            }
        }
    }
    Ok(())
}

/// Asynchronous copies of a thread that have not arrived: those of the open group, and older groups.
#[derive(Clone, Debug, Default)]
struct Copies {
    open: Vec<Arrival>,
    groups: VecDeque<Vec<Arrival>>,
}

#[derive(Clone, Debug)]
struct Arrival {
    dst: Buffer,
    at: usize,
    bytes: Vec<u8>,
}

struct Block<'k> {
    kernel: &'k Kernel,
    block: [u32; 3],
    memory: BTreeMap<Buffer, Vec<u8>>,
    /// Bits of each value in each thread; `None` where it is not defined.
    vals: SecondaryMap<Val, Vec<Option<u64>>>,
    vars: SecondaryMap<Var, Vec<Option<u64>>>,
    copies: Vec<Copies>,
}

impl Block<'_> {
    fn fail(&self, thread: usize, kind: EvalErrorKind) -> EvalError {
        EvalError {
            kernel: self.kernel.name.clone(),
            block: self.block,
            thread: thread as u32,
            kind,
        }
    }

    fn val(&self, val: Val, thread: usize) -> Result<u64, EvalError> {
        self.vals[val]
            .get(thread)
            .copied()
            .flatten()
            .ok_or_else(|| self.fail(thread, EvalErrorKind::Undefined { val }))
    }

    fn define(&mut self, val: Val, thread: usize, bits: u64) {
        let n_threads = self.kernel.n_threads as usize;
        self.vals[val].resize(n_threads, None);
        self.vals[val][thread] = Some(bits);
    }

    fn holds(&self, mask: Option<Val>, thread: usize) -> Result<bool, EvalError> {
        mask.map_or(Ok(true), |mask| Ok(self.val(mask, thread)? == 1))
    }

    fn bound(&self, operand: Operand, thread: usize) -> Result<i64, EvalError> {
        match operand {
            Operand::Const(value) => Ok(i64::from(value)),
            Operand::Val(val) => Ok(i64::from(fold::as_i32(self.val(val, thread)?))),
        }
    }

    fn stmts(&mut self, stmts: &[Stmt], active: &[bool]) -> Result<(), EvalError> {
        for stmt in stmts {
            self.stmt(stmt, active)?;
        }
        Ok(())
    }

    fn stmt(&mut self, stmt: &Stmt, active: &[bool]) -> Result<(), EvalError> {
        let threads: Vec<usize> = (0..active.len()).filter(|&thread| active[thread]).collect();
        match stmt {
            Stmt::Let(val, Expr::ShuffleXor(a, mask)) => {
                // All lanes read before any is defined, in case a value is redefined in a loop.
                let mut results = Vec::new();
                for &thread in &threads {
                    let warp = thread / 32 * 32;
                    let all =
                        (warp..warp + 32).all(|lane| active.get(lane).copied().unwrap_or(false));
                    if !all {
                        return Err(
                            self.fail(thread, EvalErrorKind::DivergentShuffle { val: *val })
                        );
                    }
                    let lane = (thread % 32) ^ (*mask as usize % 32);
                    results.push(self.val(*a, warp + lane)?);
                }
                for (&thread, bits) in threads.iter().zip(results) {
                    self.define(*val, thread, bits);
                }
            }
            Stmt::Let(val, expr) => {
                for &thread in &threads {
                    let bits = self.expr(*val, expr, thread)?;
                    self.define(*val, thread, bits);
                }
            }
            Stmt::Set(var, val) => {
                for &thread in &threads {
                    let bits = self.val(*val, thread)?;
                    self.vars[*var].resize(active.len(), None);
                    self.vars[*var][thread] = Some(bits);
                }
            }
            Stmt::Load { dsts, buffer, index, offset, mask } => {
                for &thread in &threads {
                    if !self.holds(*mask, thread)? {
                        dsts.iter().for_each(|&dst| self.define(dst, thread, 0));
                        continue;
                    }
                    let at = self.access(*buffer, *index, *offset, dsts.len(), thread)?;
                    for (i, &dst) in dsts.iter().enumerate() {
                        let bits = self.load(*buffer, at + i);
                        self.define(dst, thread, bits);
                    }
                }
            }
            Stmt::Store { buffer, index, offset, srcs, mask } => {
                for &thread in &threads {
                    if !self.holds(*mask, thread)? {
                        continue;
                    }
                    if self.kernel.buffers[*buffer].space == (Space::Global { writable: false }) {
                        return Err(self.fail(thread, EvalErrorKind::ReadOnly { buffer: *buffer }));
                    }
                    let at = self.access(*buffer, *index, *offset, srcs.len(), thread)?;
                    for (i, &src) in srcs.iter().enumerate() {
                        let bits = self.val(src, thread)?;
                        self.store(*buffer, at + i, bits, thread)?;
                    }
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
                let n = *n_elems as usize;
                for &thread in &threads {
                    let to = self.access(*dst, *dst_index, *dst_offset, n, thread)?;
                    let size = self.kernel.buffers[*dst].dtype.bytes_for(1);
                    if self.holds(*mask, thread)? {
                        let from = self.access(*src, *src_index, *src_offset, n, thread)?;
                        let bytes = self.memory[src][from * size..(from + n) * size].to_vec();
                        self.copies[thread].open.push(Arrival { dst: *dst, at: to * size, bytes });
                    } else {
                        self.arrive(&Arrival {
                            dst: *dst,
                            at: to * size,
                            bytes: vec![0; n * size],
                        });
                    }
                }
            }
            Stmt::CopyCommit => {
                for &thread in &threads {
                    let group = std::mem::take(&mut self.copies[thread].open);
                    self.copies[thread].groups.push_back(group);
                }
            }
            Stmt::CopyWait(n_in_flight) => {
                for &thread in &threads {
                    while self.copies[thread].groups.len() > *n_in_flight as usize {
                        let group = self.copies[thread].groups.pop_front().unwrap_or_default();
                        group.iter().for_each(|arrival| self.arrive(arrival));
                    }
                }
            }
            Stmt::For { counter, from, to, step, body } => {
                let mut counts = vec![0i64; active.len()];
                let mut running = active.to_vec();
                for &thread in &threads {
                    counts[thread] = self.bound(*from, thread)?;
                }
                loop {
                    for &thread in &threads {
                        running[thread] =
                            running[thread] && counts[thread] < self.bound(*to, thread)?;
                        if running[thread] {
                            self.define(*counter, thread, fold::i32_bits(counts[thread] as i32));
                        }
                    }
                    if !running.contains(&true) {
                        break;
                    }
                    self.stmts(body, &running)?;
                    for &thread in &threads {
                        counts[thread] += i64::from(*step);
                    }
                }
            }
            Stmt::If { cond, then, otherwise } => {
                let (mut taken, mut not_taken) =
                    (vec![false; active.len()], vec![false; active.len()]);
                for &thread in &threads {
                    let holds = self.val(*cond, thread)? == 1;
                    taken[thread] = holds;
                    not_taken[thread] = !holds;
                }
                if taken.contains(&true) {
                    self.stmts(then, &taken)?;
                }
                if not_taken.contains(&true) {
                    self.stmts(otherwise, &not_taken)?;
                }
            }
            Stmt::Barrier => {
                if let Some(thread) = active.iter().position(|&active| !active) {
                    return Err(self.fail(thread, EvalErrorKind::DivergentBarrier));
                }
            }
        }
        Ok(())
    }

    fn arrive(&mut self, arrival: &Arrival) {
        if let Some(memory) = self.memory.get_mut(&arrival.dst) {
            memory[arrival.at..arrival.at + arrival.bytes.len()].copy_from_slice(&arrival.bytes);
        }
    }

    /// Index of the first element of an access, checked.
    fn access(
        &self,
        buffer: Buffer,
        index: Val,
        offset: i32,
        n: usize,
        thread: usize,
    ) -> Result<usize, EvalError> {
        let decl = &self.kernel.buffers[buffer];
        let index = i64::from(fold::as_i32(self.val(index, thread)?)) + i64::from(offset);
        let n_elems = decl.n_elems;
        if index < 0 || index + n as i64 > n_elems as i64 {
            return Err(self.fail(thread, EvalErrorKind::OutOfBounds { buffer, index, n, n_elems }));
        }
        let n_bytes = decl.dtype.bytes_for(n);
        let at_bytes = index as usize * decl.dtype.bytes_for(1);
        if !at_bytes.is_multiple_of(n_bytes)
            || (n > 1 && !(decl.align_bytes as usize).is_multiple_of(n_bytes))
        {
            return Err(self.fail(thread, EvalErrorKind::Misaligned { buffer, index, n }));
        }
        Ok(index as usize)
    }

    fn load(&self, buffer: Buffer, at: usize) -> u64 {
        let dtype = self.kernel.buffers[buffer].dtype;
        let bits = dtype.bits();
        if bits < 8 {
            let per_byte = 8 / bits;
            let unused = 32 - bits;
            let high = i32::from(self.memory[&buffer][at / per_byte] >> (bits * (at % per_byte)))
                << unused;
            let signed = matches!(dtype, DType::I4 | DType::I2);
            let value = if signed { high >> unused } else { (high as u32 >> unused) as i32 };
            return fold::i32_bits(value);
        }
        let size = dtype.bytes_for(1);
        let mut le = [0; 8];
        le[..size].copy_from_slice(&self.memory[&buffer][at * size..(at + 1) * size]);
        let raw = u64::from_le_bytes(le);
        match dtype {
            DType::F64 | DType::I64 | DType::U64 | DType::U32 | DType::F32 => raw,
            DType::F16 => u64::from(f16::from_bits(raw as u16).to_f32().to_bits()),
            DType::BF16 => u64::from(bf16::from_bits(raw as u16).to_f32().to_bits()),
            DType::I32 => fold::i32_bits(raw as i32),
            DType::I16 => fold::i32_bits(i32::from(raw as i16)),
            DType::I8 => fold::i32_bits(i32::from(raw as i8)),
            // Codes of narrow floats, too.
            _ => raw,
        }
    }

    fn store(
        &mut self,
        buffer: Buffer,
        at: usize,
        bits: u64,
        thread: usize,
    ) -> Result<(), EvalError> {
        let dtype = self.kernel.buffers[buffer].dtype;
        let size = dtype.bytes_for(1);
        let raw = match dtype {
            DType::F16 => u64::from(f16::from_f32(fold::as_f32(bits)).to_bits()),
            DType::BF16 => u64::from(bf16::from_f32(fold::as_f32(bits)).to_bits()),
            _ if dtype.bits() >= 8 => bits,
            _ => return Err(self.fail(thread, EvalErrorKind::StoredPart { buffer, dtype })),
        };
        if let Some(memory) = self.memory.get_mut(&buffer) {
            memory[at * size..(at + 1) * size].copy_from_slice(&raw.to_le_bytes()[..size]);
        }
        Ok(())
    }

    fn expr(&self, val: Val, expr: &Expr, thread: usize) -> Result<u64, EvalError> {
        let ty = self.kernel.vals[val];
        let none = || self.fail(thread, EvalErrorKind::NoValue { val, expr: *expr, ty });
        let get = |val| self.val(val, thread);
        Ok(match *expr {
            Expr::Const(bits) => bits,
            Expr::Special(special) => u64::from(match special {
                Special::ThreadX => thread as u32,
                Special::BlockX => self.block[0],
                Special::BlockY => self.block[1],
                Special::BlockZ => self.block[2],
            }),
            Expr::Get(var) => self.vars[var]
                .get(thread)
                .copied()
                .flatten()
                .ok_or_else(|| self.fail(thread, EvalErrorKind::Unassigned { var }))?,
            Expr::Unary(op, a) => {
                let a = get(a)?;
                match fold::unary(ty, op, a) {
                    Some(bits) => bits,
                    None if ty == Scalar::F32 => {
                        u64::from(approximated(op, fold::as_f32(a)).ok_or_else(none)?.to_bits())
                    }
                    None => return Err(none()),
                }
            }
            Expr::Binary(op, a, b) => fold::binary(ty, op, get(a)?, get(b)?).ok_or_else(none)?,
            Expr::Compare(op, a, b) => {
                u64::from(fold::compare(self.kernel.vals[a], op, get(a)?, get(b)?))
            }
            Expr::Fma(a, b, c) => fold::fma(ty, get(a)?, get(b)?, get(c)?).ok_or_else(none)?,
            Expr::Select { cond, a, b } => {
                if get(cond)? == 1 {
                    get(a)?
                } else {
                    get(b)?
                }
            }
            Expr::Convert(a) => fold::convert(self.kernel.vals[a], ty, get(a)?).ok_or_else(none)?,
            Expr::Bits(a) => fold::bits(self.kernel.vals[a], ty, get(a)?).ok_or_else(none)?,
            Expr::ShuffleXor(..) => return Err(none()),
        })
    }
}

/// What an approximate instruction approximates, rounded once.
fn approximated(op: UnaryOp, a: f32) -> Option<f32> {
    let a = f64::from(a);
    Some(match op {
        UnaryOp::RsqrtApprox => 1.0 / a.sqrt(),
        UnaryOp::Exp2Approx => a.exp2(),
        UnaryOp::Log2Approx => a.log2(),
        UnaryOp::SinApprox => a.sin(),
        UnaryOp::CosApprox => a.cos(),
        _ => return None,
    } as f32)
}
