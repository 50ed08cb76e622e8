//! From the syntax tree to a [`Program`]: registers get offsets, immediates become registers, labels become
//! indices, and every instruction the function that executes it.

use std::collections::BTreeMap;

use eggine_ptx::ast::{Base, Entry, Inst, Operand, Reg, RegClass, Stmt};
use eggine_ptx::table::{Op, Slot};

use crate::analysis::{Linear, Liveness, RegMap};
use crate::fault::{LoadError, OperandProblem};
use crate::fuse::{self, Plan, Source};
use crate::ops;
use crate::outer::{CHUNK_VECTORS, Chunk, FmaBlock, Group, Outer, Regular, Side, StageLoad};
use crate::program::{Constant, Ctx, Flow, NO_GUARD, Program, SLOT_BYTES, Uop, UopInfo};
use crate::simd::{self, Simd};

/// Shared memory of a block on the largest device that we emit for: 227 KiB (compute capability 9.0,
/// CUDA C++ Programming Guide, table of technical specifications).
const MAX_SHARED_BYTES: u64 = 227 << 10;

/// Bytes between shared arrays in checking mode, which belong to none.
const RED_ZONE_BYTES: u32 = 256;

/// What a program is decoded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) simd: Simd,
    /// Red zones, no fusion.
    pub(crate) is_instrumented: bool,
}

impl Variant {
    /// A number less than 6.
    pub(crate) fn index(self) -> usize {
        self.simd as usize * 2 + usize::from(self.is_instrumented)
    }
}

/// Offsets of the registers of an entry.
#[derive(Debug, Default)]
pub(crate) struct RegisterFile {
    offsets: RegMap,
    constants: BTreeMap<(bool, u64), u32>,
    list: Vec<Constant>,
    n_bytes: u32,
    n_preds: u32,
}

impl RegisterFile {
    fn new(entry: &Entry, program: &Linear<'_>) -> Self {
        let (slots, n_slots) = Liveness::new(program).slots(program);
        let mut offsets = RegMap::default();
        slots.into_iter().for_each(|(reg, slot)| offsets.insert(reg, slot * SLOT_BYTES));
        let n_preds =
            entry.n_regs.iter().filter(|(class, _)| *class == RegClass::Pred).map(|(_, n)| n).sum();
        RegisterFile { offsets, n_bytes: n_slots * SLOT_BYTES, n_preds, ..RegisterFile::default() }
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
    let (source, source_lines) = linear(entry, lines);
    match source.insts.last() {
        Some(Some(Inst { op: Op::Ret | Op::Bra | Op::BraUni, guard: None, .. })) => {}
        _ => return Err(LoadError::End { kernel: entry.name.clone() }),
    }
    for inst in source.insts.iter().flatten() {
        if let (Op::Bra | Op::BraUni, Some(Operand::Label(label))) =
            (inst.op, inst.operands.first())
        {
            match source.labels.get(label.0 as usize) {
                Some(&Some(place)) if place < source.insts.len() => {}
                _ => return Err(LoadError::Label { kernel: entry.name.clone(), label: label.0 }),
            }
        }
    }
    let shared_bytes = entry.shared.iter().map(|array| u64::from(array.n_bytes)).sum::<u64>();
    if shared_bytes > MAX_SHARED_BYTES {
        return Err(LoadError::Shared { kernel: entry.name.clone(), n_bytes: shared_bytes });
    }
    let plans = if variant.is_instrumented { Vec::new() } else { fuse::plan(&source) };
    let layout = Layout::new(&source, &source_lines, &plans);
    let (shared_arrays, shared_bytes) = shared_layout(entry, variant);
    let file = RegisterFile::new(entry, &layout.program);
    let mut decoder =
        Decoder { entry, variant, file, shared_arrays, labels: &layout.program.labels };
    let mut uops: Vec<Uop> = Vec::new();
    let mut infos = Vec::new();
    for (inst, &line) in layout.program.insts.iter().zip(&layout.lines) {
        let uop = match inst {
            Some(inst) => decoder.inst(inst).map_err(|problem| LoadError::Operand {
                kernel: entry.name.clone(),
                line,
                mnemonic: inst.op.spec().mnemonic,
                problem,
            })?,
            None => Uop { run: simd::select::<Outer>(variant.simd), ..NOTHING },
        };
        infos.push(UopInfo { op: inst.map_or(Op::FmaRnF32, |i| i.op), line });
        uops.push(uop);
    }
    let mut n_loads = 0;
    for (uop, info) in uops.iter_mut().zip(&infos) {
        if info.op.spec().mnemonic.starts_with("ld.global") {
            uop.extra = n_loads;
            n_loads += 1;
        }
    }
    let mut fma_blocks = Vec::new();
    for (plan, &(at, after)) in plans.iter().zip(&layout.blocks) {
        uops[at].imm = fma_blocks.len() as i64;
        uops[at].r[0] = after as u32;
        let block = decoder.block(plan, infos[at].line).map_err(|problem| LoadError::Operand {
            kernel: entry.name.clone(),
            line: infos[at].line,
            mnemonic: Op::FmaRnF32.spec().mnemonic,
            problem,
        })?;
        fma_blocks.push(block);
    }
    for &target in layout.program.labels.iter().flatten() {
        uops[target].is_label = true;
    }
    for at in 1..uops.len() {
        uops[at].is_label |= matches!(infos[at - 1].op, Op::Bra | Op::BraUni);
    }
    let n_panel_floats = fma_blocks.iter().map(FmaBlock::n_panel_floats).max().unwrap_or(0);
    Ok(Program {
        uops,
        infos,
        file_bytes: decoder.file.n_bytes.max(SLOT_BYTES),
        n_preds: decoder.file.n_preds,
        constants: decoder.file.list,
        n_loads,
        shared_bytes,
        shared_arrays: decoder.shared_arrays,
        fma_blocks,
        n_panel_floats,
    })
}

/// Instructions, their lines, and where the labels are.
fn linear<'a>(entry: &'a Entry, lines: &[u32]) -> (Linear<'a>, Vec<u32>) {
    let mut program = Linear {
        insts: Vec::new(),
        labels: vec![None; entry.n_labels as usize],
        extra_uses: Vec::new(),
    };
    let mut inst_lines = Vec::new();
    for (stmt, &line) in entry.body.iter().zip(lines) {
        match stmt {
            Stmt::Label(label) => {
                if let Some(place) = program.labels.get_mut(label.0 as usize) {
                    *place = Some(program.insts.len());
                }
            }
            Stmt::Inst(inst) => {
                program.insts.push(Some(inst));
                inst_lines.push(line);
            }
        }
    }
    (program, inst_lines)
}

/// Base and size of the shared arrays, and the size of all.
fn shared_layout(entry: &Entry, variant: Variant) -> (Vec<(u32, u32)>, u32) {
    let mut arrays = Vec::new();
    let mut n_bytes = 0u32;
    for (i, shared) in entry.shared.iter().enumerate() {
        if variant.is_instrumented && i > 0 {
            n_bytes += RED_ZONE_BYTES;
        }
        n_bytes = n_bytes.next_multiple_of(shared.align_bytes.max(16));
        arrays.push((n_bytes, shared.n_bytes));
        n_bytes += shared.n_bytes;
    }
    (arrays, n_bytes)
}

/// The program with fused blocks: moved instructions, the block, the instructions that it stands for, and
/// repeated loads.
struct Layout<'a> {
    program: Linear<'a>,
    lines: Vec<u32>,
    /// Index of each block, and of what follows the instructions that it stands for.
    blocks: Vec<(usize, usize)>,
}

impl<'a> Layout<'a> {
    fn new(source: &Linear<'a>, lines: &[u32], plans: &[Plan]) -> Self {
        let mut layout = Layout {
            program: Linear { insts: Vec::new(), labels: Vec::new(), extra_uses: Vec::new() },
            lines: Vec::new(),
            blocks: Vec::new(),
        };
        let mut places = vec![0; source.insts.len()];
        let mut plans = plans.iter().peekable();
        let mut at = 0;
        while at < source.insts.len() {
            places[at] = layout.lines.len();
            let Some(plan) = plans.next_if(|p| p.first == at) else {
                layout.push(source.insts[at], lines[at]);
                at += 1;
                continue;
            };
            plan.hoisted.iter().for_each(|&i| layout.push(source.insts[i], lines[i]));
            let block = layout.lines.len();
            layout.push(None, lines[at]);
            plan.body.iter().for_each(|&i| layout.push(source.insts[i], lines[i]));
            let after = layout.lines.len();
            layout.blocks.push((block, after));
            // Nothing that the block reads may share a slot with what it writes.
            layout.program.extra_uses.extend(plan.reads().map(|reg| (after, reg)));
            plan.repeated.iter().for_each(|&i| layout.push(source.insts[i], lines[i]));
            at = plan.end;
        }
        layout.program.labels =
            source.labels.iter().map(|l| l.and_then(|at| places.get(at).copied())).collect();
        layout
    }

    fn push(&mut self, inst: Option<&'a Inst>, line: u32) {
        self.program.insts.push(inst);
        self.lines.push(line);
    }
}

/// A micro-operation to fill in.
const NOTHING: Uop = Uop {
    run: nothing,
    r: [0; 5],
    guard: NO_GUARD,
    guard_negated: false,
    is_label: false,
    extra: 0,
    imm: 0,
};

unsafe fn nothing(_: &mut Ctx, _: &Uop) -> Flow {
    Flow::Next
}

struct Decoder<'a> {
    entry: &'a Entry,
    variant: Variant,
    file: RegisterFile,
    shared_arrays: Vec<(u32, u32)>,
    labels: &'a [Option<usize>],
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
                let Operand::Label(label) = operand(inst, 0)? else {
                    return Err(OperandProblem::Kind(0));
                };
                let target = self.labels.get(label.0 as usize).copied().flatten();
                imm = target.ok_or(OperandProblem::Undeclared(0))? as i64;
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
                    Operand::Address { base: Base::Param(index), offset: 0 }
                        if (*index as usize) < self.entry.params.len() =>
                    {
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
                            Some(
                                Slot::Imm(RegClass::B64 | RegClass::F64)
                                    | Slot::Any(RegClass::B64 | RegClass::F64)
                            )
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
        Ok(Uop { run, r, guard, guard_negated, is_label: false, extra: 0, imm })
    }

    fn reg(&self, reg: Reg, index: usize) -> Result<u32, OperandProblem> {
        if reg.class == RegClass::Pred {
            return if reg.idx < self.file.n_preds {
                Ok(reg.idx)
            } else {
                Err(OperandProblem::Undeclared(index))
            };
        }
        self.file.offsets.get(reg).ok_or(OperandProblem::Undeclared(index))
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
                let base = self
                    .shared_arrays
                    .get(*array as usize)
                    .ok_or(OperandProblem::Undeclared(index))?
                    .0;
                self.file.constant(u64::from(base), false)
            }
            _ => return Err(OperandProblem::Kind(index)),
        })
    }

    /// The register and the offset of an address.
    fn address(&mut self, inst: &Inst, index: usize) -> Result<(u32, i64), OperandProblem> {
        let Operand::Address { base, offset } = operand(inst, index)? else {
            return Err(OperandProblem::Kind(index));
        };
        Ok((self.base(*base, index)?, *offset))
    }

    fn base(&mut self, base: Base, index: usize) -> Result<u32, OperandProblem> {
        match base {
            Base::Reg(reg) => self.reg(reg, index),
            Base::Shared(array) => {
                let base = self
                    .shared_arrays
                    .get(array as usize)
                    .ok_or(OperandProblem::Undeclared(index))?
                    .0;
                Ok(self.file.constant(u64::from(base), false))
            }
            Base::Param(_) => Err(OperandProblem::Kind(index)),
        }
    }

    fn block(&mut self, plan: &Plan, line: u32) -> Result<FmaBlock, OperandProblem> {
        let mut groups: Vec<Group> = Vec::new();
        let mut load_groups = Vec::new();
        for load in &plan.loads {
            let reg = self.base(load.base, 1)?;
            let n_bytes = 4 * load.width as u32;
            let index = groups.iter().position(|g| g.reg == reg).unwrap_or_else(|| {
                groups.push(Group { reg, least: i64::MAX, end: i64::MIN, align: 4 });
                groups.len() - 1
            });
            let group = &mut groups[index];
            group.least = group.least.min(load.offset);
            group.end = group.end.max(load.offset + i64::from(n_bytes));
            group.align = group.align.max(n_bytes);
            load_groups.push(index as u32);
        }
        let results =
            plan.results.iter().map(|&reg| self.reg(reg, 0)).collect::<Result<Vec<u32>, _>>()?;
        let mut from =
            plan.roots.iter().map(|&s| self.source(s)).collect::<Result<Vec<u32>, _>>()?;
        let most = (CHUNK_VECTORS / (plan.n_rows + plan.n_cols)).max(1);
        let mut chunks = Vec::new();
        for first in (0..plan.n_steps).step_by(most) {
            let end = (first + most).min(plan.n_steps);
            let a = self.side(
                plan,
                &load_groups,
                &plan.a[first * plan.n_rows..end * plan.n_rows],
                plan.n_rows,
            )?;
            let b = self.side(
                plan,
                &load_groups,
                &plan.b[first * plan.n_cols..end * plan.n_cols],
                plan.n_cols,
            )?;
            chunks.push(Chunk { n_steps: end - first, a, b, from, to: results.clone() });
            from = results.clone();
        }
        Ok(FmaBlock { line, groups, chunks })
    }

    fn source(&mut self, source: Source) -> Result<u32, OperandProblem> {
        match source {
            Source::Reg(reg) => self.reg(reg, 0),
            Source::Const(bits) => Ok(self.file.constant(u64::from(bits), false)),
            Source::Load(..) => Err(OperandProblem::Kind(0)),
        }
    }

    fn side(
        &mut self,
        plan: &Plan,
        load_groups: &[u32],
        sources: &[Source],
        n: usize,
    ) -> Result<Side, OperandProblem> {
        let unused = sources.len() as u32;
        let mut side = Side { n, ..Side::default() };
        let mut loads: BTreeMap<usize, StageLoad> = BTreeMap::new();
        for (place, &source) in (0u32..).zip(sources) {
            match source {
                Source::Load(load, word) => {
                    let stage = loads.entry(load).or_insert_with(|| StageLoad {
                        group: load_groups[load],
                        width: plan.loads[load].width as u32,
                        offset: plan.loads[load].offset as i32 as u32,
                        to: [unused; 4],
                    });
                    if stage.to[word] == unused {
                        stage.to[word] = place;
                    } else {
                        side.copies.push((stage.to[word], place));
                    }
                }
                _ => side.regs.push((self.source(source)?, place)),
            }
        }
        side.loads = loads.into_values().collect();
        side.groups = side.loads.iter().map(|l| l.group).collect();
        side.groups.sort_unstable();
        side.groups.dedup();
        side.regular = regular(plan, load_groups, sources, n);
        Ok(side)
    }
}

/// Whether factor `i` of step `k` is at `first[i] + k * step_bytes` behind one address.
fn regular(plan: &Plan, load_groups: &[u32], sources: &[Source], n: usize) -> Option<Regular> {
    let mut group = None;
    let mut offsets = Vec::with_capacity(sources.len());
    let mut width = 4;
    for (place, source) in sources.iter().enumerate() {
        let Source::Load(load, word) = *source else { return None };
        if *group.get_or_insert(load_groups[load]) != load_groups[load] {
            return None;
        }
        offsets.push(plan.loads[load].offset + 4 * word as i64);
        // Neighbours that come from one load in order are loaded together.
        width = width.min(plan.loads[load].width);
        if word != (place % n) % plan.loads[load].width {
            width = 1;
        }
    }
    if !n.is_multiple_of(width)
        || offsets.chunks(width).any(|c| c.iter().zip(0..).any(|(&o, i)| o != c[0] + 4 * i))
    {
        width = 1;
    }
    if offsets.iter().step_by(width).any(|o| o % (4 * width as i64) != 0) {
        width = 1;
    }
    let step = if offsets.len() > n { offsets[n] - offsets[0] } else { 0 };
    let is_even =
        offsets.iter().enumerate().all(|(at, &o)| o == offsets[at % n] + (at / n) as i64 * step);
    let first = offsets[..n].iter().map(|&o| o as i32 as u32).collect();
    is_even.then_some(Regular {
        group: group?,
        first,
        step_bytes: i32::try_from(step).ok()? as u32,
        width,
    })
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
