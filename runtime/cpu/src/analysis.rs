//! Data flow over the linear program: which registers are live where, and which can share a slot.
//!
//! Sharing is right although lanes may be at different places of the program: a slot holds one value per
//! lane, and each lane by itself runs through the program in order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

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

/// Registers of a class with a smaller index have a place in a table; others, which no text of ours has,
/// are looked up.
const N_DENSE: u32 = 1 << 16;

/// A number for each of some registers.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegMap {
    dense: [Vec<u32>; 6],
    sparse: BTreeMap<Reg, u32>,
}

impl RegMap {
    /// No number is this one.
    const NONE: u32 = u32::MAX;

    pub(crate) fn get(&self, reg: Reg) -> Option<u32> {
        let known = match reg.idx < N_DENSE {
            true => self.dense[reg.class as usize].get(reg.idx as usize),
            false => self.sparse.get(&reg),
        };
        known.copied().filter(|&value| value != Self::NONE)
    }

    pub(crate) fn insert(&mut self, reg: Reg, value: u32) {
        if reg.idx >= N_DENSE {
            self.sparse.insert(reg, value);
            return;
        }
        let (row, at) = (&mut self.dense[reg.class as usize], reg.idx as usize);
        if at >= row.len() {
            row.resize((at + 1).next_power_of_two(), Self::NONE);
        }
        row[at] = value;
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
    /// Block that begins at an instruction; of others, nothing of meaning.
    at: Vec<usize>,
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
        let mut at = vec![0; n + 1];
        firsts.iter().enumerate().for_each(|(block, &first)| at[first] = block);
        Blocks { ranges: firsts.windows(2).map(|w| (w[0], w[1])).collect(), at }
    }

    /// What is live behind the block that ends at `end`, of what is live before each block.
    fn live_out(&self, program: &Linear<'_>, live_in: &[RegSet], end: usize) -> RegSet {
        let mut live = live_in[self.at[end]].clone();
        let Some(inst) = program.insts[end - 1] else { return live };
        let is_jump = matches!(inst.op, Op::Bra | Op::BraUni);
        let falls_through = inst.guard.is_some() || !(is_jump || inst.op == Op::Ret);
        if !falls_through {
            live.0.fill(0);
        }
        if let (true, Some(Operand::Label(label))) = (is_jump, inst.operands.first())
            && let Some(&Some(target)) = program.labels.get(label.0 as usize)
        {
            live.union(&live_in[self.at[target]]);
        }
        live
    }
}

/// Lists of registers, one an instruction, one behind the other.
struct Rows {
    ends: Vec<u32>,
    ids: Vec<u32>,
}

impl Rows {
    fn with_capacity(n: usize) -> Self {
        Rows { ends: Vec::with_capacity(n), ids: Vec::with_capacity(2 * n) }
    }
    fn close(&mut self) {
        self.ends.push(self.ids.len() as u32);
    }
    fn row(&self, at: usize) -> &[u32] {
        let first = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.ids[first..self.ends[at] as usize]
    }
}

/// Liveness of all registers.
pub(crate) struct Liveness {
    ids: RegMap,
    regs: Vec<Reg>,
    /// What each instruction writes for certain.
    kills: Rows,
    /// What each instruction reads.
    reads: Rows,
    blocks: Blocks,
    /// Before each block, and at the end.
    live_in: Vec<RegSet>,
}

impl Liveness {
    pub(crate) fn new(program: &Linear<'_>) -> Self {
        let mut ids = RegMap::default();
        let mut regs = Vec::new();
        let mut note = |reg: Reg| {
            ids.get(reg).unwrap_or_else(|| {
                let id = regs.len() as u32;
                ids.insert(reg, id);
                regs.push(reg);
                id
            })
        };
        let n = program.insts.len();
        let (mut kills, mut reads) = (Rows::with_capacity(n), Rows::with_capacity(n));
        let mut extra = program.extra_uses.clone();
        extra.sort_by_key(|it| it.0);
        let mut extra = extra.into_iter().peekable();
        for (at, inst) in program.insts.iter().enumerate() {
            while let Some((_, reg)) = extra.next_if(|it| it.0 == at) {
                reads.ids.push(note(reg));
            }
            if let Some(inst) = inst {
                for_each_def(inst, |reg| {
                    let id = note(reg);
                    if inst.guard.is_none() {
                        kills.ids.push(id);
                    }
                });
                for_each_use(inst, |reg| reads.ids.push(note(reg)));
            }
            kills.close();
            reads.close();
        }
        let blocks = Blocks::new(program);
        let live_in = vec![RegSet::new(regs.len()); blocks.ranges.len() + 1];
        let mut it = Liveness { ids, regs, kills, reads, blocks, live_in };
        loop {
            let mut is_changed = false;
            for block in (0..it.blocks.ranges.len()).rev() {
                let (first, end) = it.blocks.ranges[block];
                let mut live = it.blocks.live_out(program, &it.live_in, end);
                (first..end).rev().for_each(|at| it.step(&mut live, at));
                if live != it.live_in[block] {
                    it.live_in[block] = live;
                    is_changed = true;
                }
            }
            if !is_changed {
                return it;
            }
        }
    }

    /// From what is live behind an instruction to what is live before it.
    fn step(&self, live: &mut RegSet, at: usize) {
        self.kills.row(at).iter().for_each(|&id| live.set(id as usize, false));
        self.reads.row(at).iter().for_each(|&id| live.set(id as usize, true));
    }

    /// What is live before instruction `at`; to be asked with [`is_in`](Self::is_in).
    pub(crate) fn before(&self, program: &Linear<'_>, at: usize) -> RegSet {
        let block = self.blocks.ranges.partition_point(|range| range.1 <= at);
        let Some(&(_, end)) = self.blocks.ranges.get(block) else {
            return RegSet::new(self.regs.len());
        };
        let mut live = self.blocks.live_out(program, &self.live_in, end);
        (at..end).rev().for_each(|at| self.step(&mut live, at));
        live
    }

    /// Whether a register is in a set.
    pub(crate) fn is_in(&self, live: &RegSet, reg: Reg) -> bool {
        self.ids.get(reg).is_some_and(|id| live.get(id as usize))
    }

    /// Slots for registers that are not predicates, from 0: (register, first slot), and how many there are.
    /// 64-bit registers take two slots. Registers that are never live together may share.
    pub(crate) fn slots(&self, program: &Linear<'_>) -> (Vec<(Reg, u32)>, u32) {
        let mut first = vec![usize::MAX; self.regs.len()];
        let mut last = vec![0; self.regs.len()];
        let mut touch = |id: usize, at: usize| {
            first[id] = first[id].min(at);
            last[id] = last[id].max(at);
        };
        // Within a block a register is live from its beginning or a definition to a use or the end.
        for (block, &(start, end)) in self.blocks.ranges.iter().enumerate() {
            self.live_in[block].iter().for_each(|id| touch(id, start));
            let mut live = self.blocks.live_out(program, &self.live_in, end);
            self.step(&mut live, end - 1);
            live.iter().for_each(|id| touch(id, end - 1));
        }
        for (at, inst) in program.insts.iter().enumerate() {
            self.reads.row(at).iter().for_each(|&id| touch(id as usize, at));
            if let Some(inst) = inst {
                // A result is alive behind the instruction, even if nobody reads it. It may take the slot of
                // an operand that dies here: instructions read all lanes before they write.
                for_each_def(inst, |reg| {
                    let id = self.ids.get(reg).expect("every register has a number");
                    touch(id as usize, at + 1);
                });
            }
        }
        let mut order: Vec<usize> =
            (0..self.regs.len()).filter(|&id| first[id] != usize::MAX).collect();
        order.sort_by_key(|&id| (first[id], id));
        // Those that have a slot, the first to die on top.
        let mut active: BinaryHeap<Reverse<(usize, usize, u32)>> = BinaryHeap::new();
        let (mut free_narrow, mut free_wide) = (Vec::new(), Vec::new());
        let mut slots = Vec::with_capacity(order.len());
        let mut n_slots = 0;
        for id in order {
            while let Some(&Reverse((end, other, slot))) = active.peek()
                && end < first[id]
            {
                active.pop();
                let free =
                    if is_wide(self.regs[other]) { &mut free_wide } else { &mut free_narrow };
                free.push(slot);
            }
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
            slots.push((reg, slot));
            active.push(Reverse((last[id], id, slot)));
        }
        (slots, n_slots)
    }
}

/// Whether a register takes two slots.
pub(crate) fn is_wide(reg: Reg) -> bool {
    matches!(reg.class, RegClass::B64 | RegClass::F64)
}
