//! From the syntax tree to a [`Program`]: registers get offsets, immediates become registers, labels become
//! indices, and every instruction the function that executes it.

use std::collections::BTreeMap;

use eggine_ptx::ast::{Base, Entry, Inst, Operand, Reg, RegClass, Stmt};
use eggine_ptx::table::{Op, Slot};

use crate::fault::{LoadError, OperandProblem};
use crate::ops;
use crate::program::{Constant, NO_GUARD, Program, SLOT_BYTES, Uop, UopInfo};
use crate::simd::Simd;

/// Bytes between shared arrays in checking mode, which belong to none.
const RED_ZONE_BYTES: u32 = 256;

/// What a program is decoded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) simd: Simd,
    /// Red zones, no fusion.
    pub(crate) is_instrumented: bool,
}

/// Offsets of the registers of an entry.
#[derive(Debug, Default)]
pub(crate) struct RegisterFile {
    offsets: BTreeMap<Reg, u32>,
    constants: BTreeMap<(bool, u64), u32>,
    list: Vec<Constant>,
    n_bytes: u32,
    n_preds: u32,
}

impl RegisterFile {
    fn new(entry: &Entry) -> Self {
        let mut file = RegisterFile::default();
        for &(class, n) in &entry.n_regs {
            for idx in 0..n {
                let offset = match class {
                    RegClass::Pred => {
                        file.n_preds += 1;
                        file.n_preds - 1
                    }
                    RegClass::B64 | RegClass::F64 => file.take(2),
                    RegClass::B16 | RegClass::B32 | RegClass::F32 => file.take(1),
                };
                file.offsets.insert(Reg { class, idx }, offset);
            }
        }
        file
    }

    fn take(&mut self, n_slots: u32) -> u32 {
        let offset = self.n_bytes;
        self.n_bytes += n_slots * SLOT_BYTES;
        offset
    }

    fn constant(&mut self, bits: u64, is_wide: bool) -> u32 {
        if let Some(&offset) = self.constants.get(&(is_wide, bits)) {
            return offset;
        }
        let offset = self.take(if is_wide { 2 } else { 1 });
        self.constants.insert((is_wide, bits), offset);
        self.list.push(Constant { offset, bits, is_wide });
        offset
    }
}

/// Decodes an entry. `lines` has the line of each statement.
pub(crate) fn decode(entry: &Entry, lines: &[u32], variant: Variant) -> Result<Program, LoadError> {
    let mut shared_arrays = Vec::new();
    let mut shared_bytes = 0u32;
    for (i, shared) in entry.shared.iter().enumerate() {
        if variant.is_instrumented && i > 0 {
            shared_bytes += RED_ZONE_BYTES;
        }
        let align = shared.align_bytes.max(16);
        shared_bytes = shared_bytes.next_multiple_of(align);
        shared_arrays.push((shared_bytes, shared.n_bytes));
        shared_bytes += shared.n_bytes;
    }
    let mut decoder = Decoder { entry, variant, file: RegisterFile::new(entry), shared_arrays };
    let mut uops: Vec<Uop> = Vec::new();
    let mut infos = Vec::new();
    let mut labels: Vec<Option<u32>> = vec![None; entry.n_labels as usize];
    let mut is_label = true;
    for (stmt, &line) in entry.body.iter().zip(lines) {
        match stmt {
            Stmt::Label(label) => {
                if let Some(place) = labels.get_mut(label.0 as usize) {
                    *place = Some(uops.len() as u32);
                }
                is_label = true;
            }
            Stmt::Inst(inst) => {
                let uop = decoder.inst(inst).map_err(|problem| LoadError::Operand {
                    kernel: entry.name.clone(),
                    line,
                    mnemonic: inst.op.spec().mnemonic,
                    problem,
                })?;
                uops.push(Uop { is_label, ..uop });
                infos.push(UopInfo { op: inst.op, line });
                is_label = matches!(inst.op, Op::Bra | Op::BraUni);
            }
        }
    }
    match entry.body.last() {
        Some(Stmt::Inst(Inst { op: Op::Ret | Op::Bra | Op::BraUni, guard: None, .. })) => {}
        _ => return Err(LoadError::End { kernel: entry.name.clone() }),
    }
    for (uop, info) in uops.iter_mut().zip(&infos) {
        if matches!(info.op, Op::Bra | Op::BraUni) {
            let label = uop.imm as u32;
            match labels.get(label as usize) {
                Some(&Some(place)) if (place as usize) < infos.len() => uop.imm = i64::from(place),
                _ => return Err(LoadError::Label { kernel: entry.name.clone(), label }),
            }
        }
    }
    Ok(Program {
        uops,
        infos,
        file_bytes: decoder.file.n_bytes.max(SLOT_BYTES),
        n_preds: decoder.file.n_preds,
        constants: decoder.file.list,
        shared_bytes,
        shared_arrays: decoder.shared_arrays,
        fma_blocks: Vec::new(),
        n_panel_floats: 0,
    })
}

struct Decoder<'a> {
    entry: &'a Entry,
    variant: Variant,
    file: RegisterFile,
    shared_arrays: Vec<(u32, u32)>,
}

impl Decoder<'_> {
    fn inst(&mut self, inst: &Inst) -> Result<Uop, OperandProblem> {
        let simd = self.variant.simd;
        let mut r = [0u32; 5];
        let mut imm = 0i64;
        let mut run = ops::function(inst.op, simd);
        let (mut guard, mut guard_negated) = (NO_GUARD, false);
        if let Some(g) = inst.guard {
            guard = u16::try_from(self.reg(g.pred, 0)?).map_err(|_| OperandProblem::Range(0))?;
            guard_negated = g.negated;
        }
        match inst.op {
            Op::Bra | Op::BraUni => {
                let Operand::Label(label) = operand(inst, 0)? else { return Err(OperandProblem::Kind(0)) };
                imm = i64::from(label.0);
                // A guarded branch does not execute under its guard, it tests it.
                run = ops::function(if guard == NO_GUARD { Op::BraUni } else { Op::Bra }, simd);
                r[1] = u32::from(guard);
                r[2] = if guard_negated { !0 } else { 0 };
                guard = NO_GUARD;
                guard_negated = false;
            }
            Op::BarSync | Op::CpAsyncWait => imm = int(inst, 0)?,
            Op::Ret | Op::MembarGl | Op::CpAsyncCommit => {}
            Op::LdParamU64 | Op::LdParamU32 | Op::LdParamF32 => {
                r[0] = self.operand(inst, 0, false)?;
                match operand(inst, 1)? {
                    Operand::Address { base: Base::Param(index), offset: 0 } if (*index as usize) < self.entry.params.len() => {
                        imm = i64::from(*index);
                    }
                    _ => return Err(OperandProblem::Kind(1)),
                }
            }
            Op::CpAsyncCa | Op::CpAsyncCg => {
                let (to, from);
                (r[0], to) = self.address(inst, 0)?;
                (r[1], from) = self.address(inst, 1)?;
                let (to, from) = (
                    i32::try_from(to).map_err(|_| OperandProblem::Range(0))?,
                    i32::try_from(from).map_err(|_| OperandProblem::Range(1))?,
                );
                imm = i64::from(from) << 32 | i64::from(to as u32);
                r[2] = match int(inst, 2)? {
                    n @ (4 | 8 | 16) => n as u32,
                    _ => return Err(OperandProblem::Range(2)),
                };
            }
            Op::AtomGlobalAddU32 => {
                r[1] = self.operand(inst, 0, false)?;
                (r[0], imm) = self.address(inst, 1)?;
                r[2] = self.operand(inst, 2, false)?;
            }
            Op::ShflSyncBflyB32 | Op::ShflSyncDownB32 | Op::ShflSyncUpB32 | Op::ShflSyncIdxB32 => {
                for (i, slot) in r.iter_mut().enumerate().take(3) {
                    *slot = self.operand(inst, i, false)?;
                }
                imm = int(inst, 3)? & 0xffff_ffff | int(inst, 4)? << 32;
            }
            Op::VoteBallotB32 => {
                r[0] = self.operand(inst, 0, false)?;
                r[1] = self.operand(inst, 1, false)?;
                imm = int(inst, 2)?;
            }
            Op::MovU32 if matches!(operand(inst, 1)?, Operand::Special(_)) => {
                r[0] = self.operand(inst, 0, false)?;
                if let Operand::Special(special) = operand(inst, 1)? {
                    imm = ops::warp::special_index(*special);
                }
                run = Some(ops::warp::special(simd));
            }
            op => match crate::check::Access::of(op) {
                Some(access) => {
                    let (address, data) = if access.is_store { (0, 1) } else { (1, 0) };
                    (r[0], imm) = self.address(inst, address)?;
                    match operand(inst, data)? {
                        Operand::Regs(regs) if regs.len() <= 4 => {
                            for (slot, reg) in r[1..].iter_mut().zip(regs) {
                                *slot = self.reg(*reg, data)?;
                            }
                        }
                        _ => r[1] = self.operand(inst, data, false)?,
                    }
                }
                None => {
                    let signature = op.spec().signature;
                    if inst.operands.len() > 5 {
                        return Err(OperandProblem::Range(5));
                    }
                    for i in 0..inst.operands.len() {
                        let is_wide = matches!(
                            signature.get(i),
                            Some(Slot::Imm(RegClass::B64 | RegClass::F64) | Slot::Any(RegClass::B64 | RegClass::F64))
                        );
                        r[i] = self.operand(inst, i, is_wide)?;
                    }
                    if inst.operands.len() == 2 {
                        r[2] = r[1]; // One-operand predicate operations read it.
                    }
                }
            },
        }
        let run = run.expect("every instruction has a function: a test goes through the table");
        Ok(Uop { run, r, guard, guard_negated, is_label: false, imm })
    }

    fn reg(&self, reg: Reg, index: usize) -> Result<u32, OperandProblem> {
        self.file.offsets.get(&reg).copied().ok_or(OperandProblem::Undeclared(index))
    }

    /// The register that holds an operand.
    fn operand(&mut self, inst: &Inst, index: usize, is_wide: bool) -> Result<u32, OperandProblem> {
        Ok(match operand(inst, index)? {
            Operand::Reg(reg) => self.reg(*reg, index)?,
            Operand::Int(value) if is_wide => self.file.constant(*value as u64, true),
            Operand::Int(value) => self.file.constant(u64::from(*value as u32), false),
            Operand::F32(bits) => self.file.constant(u64::from(*bits), false),
            Operand::F64(bits) => self.file.constant(*bits, true),
            Operand::Symbol(array) => {
                let base = self.shared_arrays.get(*array as usize).ok_or(OperandProblem::Undeclared(index))?.0;
                self.file.constant(u64::from(base), false)
            }
            _ => return Err(OperandProblem::Kind(index)),
        })
    }

    /// The register and the offset of an address.
    fn address(&mut self, inst: &Inst, index: usize) -> Result<(u32, i64), OperandProblem> {
        let Operand::Address { base, offset } = operand(inst, index)? else { return Err(OperandProblem::Kind(index)) };
        let register = match base {
            Base::Reg(reg) => self.reg(*reg, index)?,
            Base::Shared(array) => {
                let base = self.shared_arrays.get(*array as usize).ok_or(OperandProblem::Undeclared(index))?.0;
                self.file.constant(u64::from(base), false)
            }
            Base::Param(_) => return Err(OperandProblem::Kind(index)),
        };
        Ok((register, *offset))
    }
}

fn operand(inst: &Inst, index: usize) -> Result<&Operand, OperandProblem> {
    inst.operands.get(index).ok_or(OperandProblem::Missing(index))
}

fn int(inst: &Inst, index: usize) -> Result<i64, OperandProblem> {
    match operand(inst, index)? {
        Operand::Int(value) => Ok(*value),
        _ => Err(OperandProblem::Kind(index)),
    }
}
