//! Data flow over the linear program: which registers are live where, and which can share a slot.
//!
//! Sharing is right although lanes may be at different places of the program: a slot holds one value per
//! lane, and each lane by itself runs through the program in order.

use std::collections::BTreeMap;

use eggine_ptx::ast::{Base, Inst, Operand, Reg, RegClass};
use eggine_ptx::table::{Op, Slot};

/// Calls `f` with each register that an instruction writes.
pub(crate) fn for_each_def(inst: &Inst, mut f: impl FnMut(Reg)) {
    for (slot, operand) in inst.op.spec().signature.iter().zip(&inst.operands) {
        if matches!(slot, Slot::Dst(_)) {
            for_each_reg(operand, &mut f);
        }
    }
}

/// Calls `f` with each register that an instruction reads, the guard's predicate included.
pub(crate) fn for_each_use(inst: &Inst, mut f: impl FnMut(Reg)) {
    if let Some(guard) = inst.guard {
        f(guard.pred);
    }
    for (slot, operand) in inst.op.spec().signature.iter().zip(&inst.operands) {
        if !matches!(slot, Slot::Dst(_)) {
            for_each_reg(operand, &mut f);
        }
    }
}

fn for_each_reg(operand: &Operand, f: &mut impl FnMut(Reg)) {
    match operand {
        Operand::Reg(reg) | Operand::Address { base: Base::Reg(reg), .. } => f(*reg),
        Operand::Regs(regs) => regs.iter().copied().for_each(f),
        _ => {}
    }
}

/// A set of registers, as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegSet(Vec<u64>);

impl RegSet {
    fn new(n: usize) -> Self {
        RegSet(vec![0; n.div_ceil(64)])
    }
    fn set(&mut self, i: usize, value: bool) {
        let bit = 1 << (i % 64);
        if value { self.0[i / 64] |= bit } else { self.0[i / 64] &= !bit }
    }
    fn get(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 != 0
    }
    fn union(&mut self, other: &RegSet) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(w, &word)| {
            let mut word = word;
            std::iter::from_fn(move || {
                (word != 0).then(|| {
                    let bit = word.trailing_zeros() as usize;
                    word &= word - 1;
                    64 * w + bit
                })
            })
        })
    }
}

/// A program in the order in which it is laid out: instructions (`None`: something that neither reads nor
/// writes registers by itself) and, by label, the index of the instruction behind it.
pub(crate) struct Linear<'a> {
    pub(crate) insts: Vec<Option<&'a Inst>>,
    pub(crate) labels: Vec<Option<usize>>,
    /// Registers that count as read by an instruction.
    pub(crate) extra_uses: Vec<(usize, Reg)>,
}

/// Straight-line parts of a program.
struct Blocks {
    /// First instruction and end of each, in order.
    ranges: Vec<(usize, usize)>,
}

impl Blocks {
    fn new(program: &Linear<'_>) -> Self {
        let n = program.insts.len();
        let mut is_first = vec![false; n + 1];
        is_first[0] = true;
        for &target in program.labels.iter().flatten() {
            is_first[target] = true;
        }
        for (at, inst) in program.insts.iter().enumerate() {
            if inst.is_some_and(|i| matches!(i.op, Op::Bra | Op::BraUni | Op::Ret)) {
                is_first[at + 1] = true;
            }
        }
        is_first[n] = true;
        let firsts: Vec<usize> = (0..=n).filter(|&at| is_first[at]).collect();
        Blocks { ranges: firsts.windows(2).map(|w| (w[0], w[1])).collect() }
    }

    /// What is live behind the block that ends at `end`.
    fn live_out(&self, program: &Linear<'_>, live_in: &[RegSet], end: usize) -> RegSet {
        let Some(inst) = program.insts[end - 1] else { return live_in[end].clone() };
        let is_jump = matches!(inst.op, Op::Bra | Op::BraUni);
        let falls_through = inst.guard.is_some() || !(is_jump || inst.op == Op::Ret);
        let mut live = live_in[end].clone();
        if !falls_through {
            live.0.fill(0);
        }
        if let (true, Some(Operand::Label(label))) = (is_jump, inst.operands.first())
            && let Some(&Some(target)) = program.labels.get(label.0 as usize)
        {
            live.union(&live_in[target]);
        }
        live
    }
}

/// Liveness of all registers.
pub(crate) struct Liveness {
    ids: BTreeMap<Reg, usize>,
    regs: Vec<Reg>,
    /// Before each instruction, and at the end.
    live_in: Vec<RegSet>,
}

impl Liveness {
    pub(crate) fn new(program: &Linear<'_>) -> Self {
        let mut ids = BTreeMap::new();
        let mut regs = Vec::new();
        let mut note = |ids: &mut BTreeMap<Reg, usize>, reg: Reg| {
            ids.entry(reg).or_insert_with(|| {
                regs.push(reg);
                regs.len() - 1
            });
        };
        for inst in program.insts.iter().flatten() {
            for_each_def(inst, |reg| note(&mut ids, reg));
            for_each_use(inst, |reg| note(&mut ids, reg));
        }
        let n = program.insts.len();
        // What each instruction writes for certain, and what it reads.
        let mut kills: Vec<Vec<u32>> = vec![Vec::new(); n];
        let mut reads: Vec<Vec<u32>> = vec![Vec::new(); n + 1];
        for (at, reg) in &program.extra_uses {
            note(&mut ids, *reg);
            reads[*at].push(ids[reg] as u32);
        }
        for (at, inst) in program.insts.iter().enumerate() {
            let Some(inst) = inst else { continue };
            if inst.guard.is_none() {
                for_each_def(inst, |reg| kills[at].push(ids[&reg] as u32));
            }
            for_each_use(inst, |reg| reads[at].push(ids[&reg] as u32));
        }
        let step = |live: &mut RegSet, at: usize| {
            kills[at].iter().for_each(|&id| live.set(id as usize, false));
            reads[at].iter().for_each(|&id| live.set(id as usize, true));
        };
        let blocks = Blocks::new(program);
        let mut live_in = vec![RegSet::new(regs.len()); n + 1];
        loop {
            let mut is_changed = false;
            for &(first, end) in blocks.ranges.iter().rev() {
                let mut live = blocks.live_out(program, &live_in, end);
                (first..end).rev().for_each(|at| step(&mut live, at));
                if live != live_in[first] {
                    live_in[first] = live;
                    is_changed = true;
                }
            }
            if !is_changed {
                break;
            }
        }
        for &(first, end) in &blocks.ranges {
            let mut live = blocks.live_out(program, &live_in, end);
            for at in (first + 1..end).rev() {
                step(&mut live, at);
                live_in[at].clone_from(&live);
            }
        }
        Liveness { ids, regs, live_in }
    }

    /// Whether a register is live before instruction `at`.
    pub(crate) fn is_live(&self, reg: Reg, at: usize) -> bool {
        self.ids.get(&reg).is_some_and(|&id| self.live_in[at].get(id))
    }

    /// Slots for registers that are not predicates, from 0: (register, first slot), and how many there are.
    /// 64-bit registers take two slots. Registers that are never live together may share.
    pub(crate) fn slots(&self, program: &Linear<'_>) -> (BTreeMap<Reg, u32>, u32) {
        let mut first = vec![usize::MAX; self.regs.len()];
        let mut last = vec![0; self.regs.len()];
        let mut touch = |id: usize, at: usize| {
            first[id] = first[id].min(at);
            last[id] = last[id].max(at);
        };
        for (at, live) in self.live_in.iter().enumerate() {
            live.iter().for_each(|id| touch(id, at));
            if let Some(Some(inst)) = program.insts.get(at) {
                // A result is alive behind the instruction, even if nobody reads it. It may take the slot of
                // an operand that dies here: instructions read all lanes before they write.
                for_each_def(inst, |reg| touch(self.ids[&reg], at + 1));
            }
        }
        let mut order: Vec<usize> =
            (0..self.regs.len()).filter(|&id| first[id] != usize::MAX).collect();
        order.sort_by_key(|&id| (first[id], id));
        let mut active: Vec<usize> = Vec::new();
        let (mut free_narrow, mut free_wide) = (Vec::new(), Vec::new());
        let mut slots = BTreeMap::new();
        let mut n_slots = 0;
        for id in order {
            active.retain(|&other| {
                if last[other] >= first[id] {
                    return true;
                }
                let slot = slots[&self.regs[other]];
                if is_wide(self.regs[other]) {
                    free_wide.push(slot)
                } else {
                    free_narrow.push(slot)
                }
                false
            });
            let reg = self.regs[id];
            if reg.class == RegClass::Pred {
                continue;
            }
            let free = if is_wide(reg) { &mut free_wide } else { &mut free_narrow };
            let slot = free.pop().unwrap_or_else(|| {
                let slot = n_slots;
                n_slots += if is_wide(reg) { 2 } else { 1 };
                slot
            });
            slots.insert(reg, slot);
            active.push(id);
        }
        (slots, n_slots)
    }
}

/// Whether a register takes two slots.
pub(crate) fn is_wide(reg: Reg) -> bool {
    matches!(reg.class, RegClass::B64 | RegClass::F64)
}
