//! Removes instructions whose results nothing reads, and renumbers registers and labels in order of
//! appearance.

use eggine_ptx::ast::{Base, Entry, Inst, Label, Operand, Reg, RegClass, Stmt};
use eggine_ptx::table::Op;
use std::collections::{BTreeMap, BTreeSet};

/// Whether an instruction does more than write its destination.
pub(super) fn has_effect(op: Op) -> bool {
    let mnemonic = op.spec().mnemonic;
    let stem = mnemonic.split('.').next().unwrap_or(mnemonic);
    matches!(stem, "st" | "red" | "atom" | "cp" | "bra" | "bar" | "ret" | "membar")
}

/// Registers that an instruction writes: its first operand, unless it has none.
fn defs(inst: &Inst) -> &[Operand] {
    if has_effect(inst.op) && !inst.op.spec().mnemonic.starts_with("atom") {
        &[]
    } else {
        &inst.operands[..1]
    }
}

fn for_each_use(inst: &Inst, mut f: impl FnMut(Reg)) {
    if let Some(guard) = inst.guard {
        f(guard.pred);
    }
    for operand in &inst.operands[defs(inst).len()..] {
        for_each_reg(operand, &mut f);
    }
}

fn for_each_reg(operand: &Operand, f: &mut impl FnMut(Reg)) {
    match operand {
        Operand::Reg(reg) | Operand::Address { base: Base::Reg(reg), .. } => f(*reg),
        Operand::Regs(regs) => regs.iter().copied().for_each(f),
        _ => {}
    }
}

/// Removes instructions without effect whose destinations no remaining instruction reads.
pub(super) fn remove_unused(entry: &mut Entry) {
    let insts: Vec<&Inst> = entry.insts().collect();
    let mut writers: BTreeMap<Reg, Vec<usize>> = BTreeMap::new();
    for (at, inst) in insts.iter().enumerate() {
        for operand in defs(inst) {
            for_each_reg(operand, &mut |reg| writers.entry(reg).or_default().push(at));
        }
    }
    let mut live = vec![false; insts.len()];
    let mut work: Vec<usize> = (0..insts.len()).filter(|&at| has_effect(insts[at].op)).collect();
    for &at in &work {
        live[at] = true;
    }
    let mut read = BTreeSet::new();
    while let Some(at) = work.pop() {
        for_each_use(insts[at], |reg| {
            if read.insert(reg) {
                for &writer in writers.get(&reg).map_or(&[][..], |writers| writers) {
                    if !live[writer] {
                        live[writer] = true;
                        work.push(writer);
                    }
                }
            }
        });
    }
    let mut at = 0;
    entry.body.retain(|stmt| match stmt {
        Stmt::Label(_) => true,
        Stmt::Inst(_) => {
            at += 1;
            live[at - 1]
        }
    });
}

/// Registers and labels numbered in order of appearance, and declared.
pub(super) fn renumber(entry: &mut Entry) {
    let used_labels: BTreeSet<Label> = entry
        .insts()
        .flat_map(|inst| &inst.operands)
        .filter_map(|operand| match operand {
            Operand::Label(label) => Some(*label),
            _ => None,
        })
        .collect();
    entry.body.retain(|stmt| !matches!(stmt, Stmt::Label(label) if !used_labels.contains(label)));
    let mut labels: BTreeMap<Label, Label> = BTreeMap::new();
    for stmt in &entry.body {
        if let Stmt::Label(label) = stmt {
            let next = Label(labels.len() as u32);
            labels.insert(*label, next);
        }
    }
    let mut n_regs: BTreeMap<RegClass, u32> = BTreeMap::new();
    let mut regs: BTreeMap<Reg, Reg> = BTreeMap::new();
    let mut rename = |reg: &mut Reg| {
        let class = reg.class;
        *reg = *regs.entry(*reg).or_insert_with(|| {
            let n = n_regs.entry(class).or_insert(0);
            *n += 1;
            Reg { class, idx: *n - 1 }
        });
    };
    for stmt in &mut entry.body {
        match stmt {
            Stmt::Label(label) => *label = labels[label],
            Stmt::Inst(inst) => {
                if let Some(guard) = &mut inst.guard {
                    rename(&mut guard.pred);
                }
                for operand in &mut inst.operands {
                    match operand {
                        Operand::Reg(reg) | Operand::Address { base: Base::Reg(reg), .. } => {
                            rename(reg)
                        }
                        Operand::Regs(list) => list.iter_mut().for_each(&mut rename),
                        Operand::Label(label) => *label = labels[label],
                        _ => {}
                    }
                }
            }
        }
    }
    entry.n_labels = labels.len() as u32;
    entry.n_regs =
        RegClass::ALL.iter().filter_map(|&class| n_regs.get(&class).map(|&n| (class, n))).collect();
}
