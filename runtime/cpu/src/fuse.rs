//! Finds blocks of multiply-adds that form outer products: straight-line code that loads fragments from
//! shared memory and accumulates `acc[i][j] += a[k][i] * b[k][j]` over several `k`, in whatever order and
//! with whatever registers. [`outer`](crate::outer) executes such a block at once, with the accumulators in
//! machine registers over all `k`.
//!
//! Every accumulator sees its multiply-adds in program order, so results are the same bit for bit.
//! Instructions between them that have nothing to do with them are moved before the block; loads whose
//! results are needed behind the block are repeated there.

use std::collections::{BTreeMap, BTreeSet};

use eggine_ptx::ast::{Base, Inst, Operand, Reg};
use eggine_ptx::table::Op;

use crate::analysis::{Linear, Liveness, RegMap, for_each_def, for_each_use};
use crate::outer::MAX_GROUPS;

/// Fewer multiply-adds are not worth a block.
const LEAST_FMAS: usize = 8;

/// Where a factor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Word of the result of a load of the block.
    Load(usize, usize),
    /// A register as it is before the block.
    Reg(Reg),
    /// Bits.
    Const(u32),
}

/// A load from shared memory.
#[derive(Clone, Debug)]
pub(crate) struct LoadPlan {
    pub(crate) base: Base,
    pub(crate) offset: i64,
    /// Words: 1, 2 or 4.
    pub(crate) width: usize,
}

/// A block that can be fused.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Instructions `first..end` are replaced by: `hoisted`, the block (or `body` one by one), `repeated`.
    pub(crate) first: usize,
    pub(crate) end: usize,
    pub(crate) hoisted: Vec<usize>,
    pub(crate) body: Vec<usize>,
    pub(crate) repeated: Vec<usize>,
    pub(crate) loads: Vec<LoadPlan>,
    pub(crate) n_rows: usize,
    pub(crate) n_cols: usize,
    pub(crate) n_steps: usize,
    /// Factor of row `i` in step `k` at `k * n_rows + i`.
    pub(crate) a: Vec<Source>,
    /// Factor of column `j` in step `k` at `k * n_cols + j`.
    pub(crate) b: Vec<Source>,
    /// Initial value of accumulator (i, j) at `i * n_cols + j`.
    pub(crate) roots: Vec<Source>,
    /// Where it ends up.
    pub(crate) results: Vec<Reg>,
}

/// Finds all blocks of a program.
pub(crate) fn plan(program: &Linear<'_>) -> Vec<Plan> {
    let targets: BTreeSet<usize> = program.labels.iter().flatten().copied().collect();
    let liveness = Liveness::new(program);
    let mut plans = Vec::new();
    let mut at = 0;
    while at < program.insts.len() {
        let is_start = program.insts[at].is_some_and(is_member);
        let segment = is_start.then(|| grow(program, &targets, at));
        match segment {
            Some(segment) => {
                at = segment.end;
                let n_fmas = segment.body.iter().filter(|&&i| is_fma(program.insts[i])).count();
                if n_fmas >= LEAST_FMAS {
                    plans.extend(build(program, &liveness, segment));
                }
            }
            None => at += 1,
        }
    }
    plans
}

fn is_fma(inst: Option<&Inst>) -> bool {
    inst.is_some_and(|i| i.op == Op::FmaRnF32)
}

fn is_member(inst: &Inst) -> bool {
    inst.guard.is_none()
        && match inst.op {
            Op::FmaRnF32 | Op::LdSharedF32 | Op::LdSharedV2F32 | Op::LdSharedV4F32 => true,
            Op::MovF32 => matches!(inst.operands.get(1), Some(Operand::Reg(_) | Operand::F32(_))),
            _ => false,
        }
}

/// Whether an instruction may be executed earlier than loads from shared memory and arithmetic.
fn is_movable(inst: &Inst) -> bool {
    let mnemonic = inst.op.spec().mnemonic;
    let is_pinned = [
        "st.",
        "red.",
        "atom.",
        "bar.",
        "bra",
        "ret",
        "cp.",
        "membar",
        "shfl",
        "vote",
        "activemask",
    ];
    !is_pinned.iter().any(|p| mnemonic.starts_with(p))
}

/// Something to tell bases of shared addresses apart.
fn base_key(base: Base) -> (u8, u32) {
    match base {
        Base::Reg(reg) => (reg.class as u8, reg.idx),
        Base::Shared(array) => (u8::MAX, array),
        Base::Param(index) => (u8::MAX - 1, index),
    }
}

impl Plan {
    /// Registers that the block reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Reg> + '_ {
        let factors = self.a.iter().chain(&self.b).chain(&self.roots).filter_map(|s| match s {
            Source::Reg(reg) => Some(*reg),
            _ => None,
        });
        let bases = self.loads.iter().filter_map(|l| match l.base {
            Base::Reg(reg) => Some(reg),
            _ => None,
        });
        factors.chain(bases)
    }
}

struct Segment {
    first: usize,
    end: usize,
    hoisted: Vec<usize>,
    body: Vec<usize>,
}

fn grow(program: &Linear<'_>, targets: &BTreeSet<usize>, first: usize) -> Segment {
    let (mut read, mut written) = (RegMap::default(), RegMap::default());
    let has = |set: &RegMap, reg: Reg| set.get(reg).is_some();
    let mut segment = Segment { first, end: first, hoisted: Vec::new(), body: Vec::new() };
    let mut n_trailing = 0;
    for (at, inst) in program.insts.iter().enumerate().skip(first) {
        let Some(inst) = inst else { break };
        if at > first && targets.contains(&at) {
            break;
        }
        if is_member(inst) {
            // An address computed in the block cannot be checked before it; only floats are, so there is none.
            for_each_use(inst, |reg| read.insert(reg, 0));
            for_each_def(inst, |reg| written.insert(reg, 0));
            segment.body.push(at);
            segment.end = at + 1;
            n_trailing = 0;
        } else if is_movable(inst) {
            let mut is_free = true;
            for_each_use(inst, |reg| is_free &= !has(&written, reg));
            for_each_def(inst, |reg| is_free &= !has(&written, reg) && !has(&read, reg));
            if !is_free {
                break;
            }
            segment.hoisted.push(at);
            n_trailing += 1;
        } else {
            break;
        }
    }
    // What follows the last member stays where it is.
    segment.hoisted.truncate(segment.hoisted.len() - n_trailing);
    segment
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Source(Source),
    Fma { a: usize, b: usize, c: usize },
}

fn build(program: &Linear<'_>, liveness: &Liveness, segment: Segment) -> Option<Plan> {
    let live_behind = liveness.before(program, segment.end);
    let is_needed = |reg: Reg| liveness.is_in(&live_behind, reg);
    let mut values: Vec<Value> = Vec::new();
    let mut sources: BTreeMap<Source, usize> = BTreeMap::new();
    let mut current: BTreeMap<Reg, usize> = BTreeMap::new();
    let mut loads = Vec::new();
    let mut load_insts = Vec::new();
    let source = |values: &mut Vec<Value>, sources: &mut BTreeMap<Source, usize>, s: Source| {
        *sources.entry(s).or_insert_with(|| {
            values.push(Value::Source(s));
            values.len() - 1
        })
    };
    for &at in &segment.body {
        let inst = program.insts[at]?;
        let mut value =
            |values: &mut Vec<Value>, current: &BTreeMap<Reg, usize>, index: usize| match inst
                .operands
                .get(index)?
            {
                Operand::Reg(reg) => match current.get(reg) {
                    Some(&v) => Some(v),
                    None => Some(source(values, &mut sources, Source::Reg(*reg))),
                },
                Operand::F32(bits) => Some(source(values, &mut sources, Source::Const(*bits))),
                _ => None,
            };
        match inst.op {
            Op::FmaRnF32 => {
                let (a, b, c) = (
                    value(&mut values, &current, 1)?,
                    value(&mut values, &current, 2)?,
                    value(&mut values, &current, 3)?,
                );
                values.push(Value::Fma { a, b, c });
                let Operand::Reg(dst) = inst.operands.first()? else { return None };
                current.insert(*dst, values.len() - 1);
            }
            Op::MovF32 => {
                let v = value(&mut values, &current, 1)?;
                let Operand::Reg(dst) = inst.operands.first()? else { return None };
                current.insert(*dst, v);
            }
            _ => {
                let Operand::Address { base, offset } = *inst.operands.get(1)? else { return None };
                let regs: Vec<Reg> = match inst.operands.first()? {
                    Operand::Reg(reg) => vec![*reg],
                    Operand::Regs(regs) => regs.clone(),
                    _ => return None,
                };
                for (word, reg) in regs.iter().enumerate() {
                    let v = source(&mut values, &mut sources, Source::Load(loads.len(), word));
                    current.insert(*reg, v);
                }
                loads.push(LoadPlan { base, offset, width: regs.len() });
                load_insts.push((at, regs));
            }
        }
    }

    // Chains of multiply-adds through the addend.
    let mut next: Vec<Option<usize>> = vec![None; values.len()];
    let mut heads = Vec::new();
    for (id, value) in values.iter().enumerate() {
        if let Value::Fma { a, b, c } = *value {
            let is_sum = |v: usize| matches!(values[v], Value::Fma { .. });
            if is_sum(a) || is_sum(b) {
                return None;
            }
            if is_sum(c) {
                if next[c].replace(id).is_some() {
                    return None;
                }
            } else {
                heads.push(id);
            }
        }
    }
    let chains: Vec<Vec<usize>> =
        heads.iter().map(|&h| std::iter::successors(Some(h), |&v| next[v]).collect()).collect();
    let n_steps = chains.first()?.len();
    if chains.iter().any(|c| c.len() != n_steps) {
        return None;
    }

    // Where the values are after the block.
    let mut results = vec![None; chains.len()];
    let mut repeated = BTreeSet::new();
    let tails: BTreeMap<usize, usize> =
        chains.iter().enumerate().map(|(i, c)| (c[n_steps - 1], i)).collect();
    for (&reg, &v) in &current {
        if !is_needed(reg) {
            continue;
        }
        match values[v] {
            Value::Fma { .. } => {
                if results[*tails.get(&v)?].replace(reg).is_some() {
                    return None;
                }
            }
            Value::Source(Source::Load(load, word)) => {
                let (_, regs) = &load_insts[load];
                if regs[word] != reg {
                    return None;
                }
                repeated.insert(load);
            }
            Value::Source(Source::Reg(same)) if same == reg => {}
            Value::Source(_) => return None,
        }
    }
    for &load in &repeated {
        for (word, reg) in load_insts[load].1.iter().enumerate() {
            let is_own = matches!(values[current[reg]], Value::Source(Source::Load(l, w)) if (l, w) == (load, word));
            if !is_own && is_needed(*reg) {
                return None;
            }
        }
    }
    let results: Vec<Reg> = results.into_iter().collect::<Option<_>>()?;

    if loads
        .iter()
        .any(|l| i32::try_from(l.offset).is_err() || l.offset % (4 * l.width as i64) != 0)
    {
        return None;
    }
    let bases: BTreeSet<_> = loads.iter().map(|l| base_key(l.base)).collect();
    if bases.len() > MAX_GROUPS {
        return None;
    }

    let grid = Grid::of(&values, &chains)?;
    let source_of = |v: usize| match values[v] {
        Value::Source(s) => Some(s),
        Value::Fma { .. } => None,
    };
    let sources_of =
        |ids: &[usize]| ids.iter().map(|&v| source_of(v)).collect::<Option<Vec<Source>>>();
    let root_of = |chain: usize| match values[chains[chain][0]] {
        Value::Fma { c, .. } => source_of(c).filter(|s| !matches!(s, Source::Load(..))),
        Value::Source(_) => None,
    };
    let results: Vec<Reg> = grid.chains.iter().map(|&c| results[c]).collect();
    let roots: Vec<Source> = grid.chains.iter().map(|&c| root_of(c)).collect::<Option<_>>()?;
    let (a, b) = (sources_of(&grid.a)?, sources_of(&grid.b)?);
    // A result must not be written while another accumulator or a factor is still to be read from there.
    for (result, own) in results.iter().zip(&roots) {
        let is_result = |s: &Source| *s == Source::Reg(*result);
        if a.iter().chain(&b).any(is_result) || roots.iter().any(|r| is_result(r) && r != own) {
            return None;
        }
    }
    Some(Plan {
        first: segment.first,
        end: segment.end,
        hoisted: segment.hoisted,
        body: segment.body,
        repeated: repeated.iter().map(|&l| load_insts[l].0).collect(),
        n_rows: grid.n_rows,
        n_cols: grid.n_cols,
        n_steps,
        a,
        b,
        roots,
        results,
        loads,
    })
}

/// The outer-product structure of chains.
struct Grid {
    n_rows: usize,
    n_cols: usize,
    /// Chain at (i, j).
    chains: Vec<usize>,
    a: Vec<usize>,
    b: Vec<usize>,
}

impl Grid {
    fn of(values: &[Value], chains: &[Vec<usize>]) -> Option<Grid> {
        let n_steps = chains.first()?.len();
        let pair = |chain: usize, step: usize| match values[chains[chain][step]] {
            Value::Fma { a, b, .. } => (a, b),
            Value::Source(_) => unreachable!("chains are of multiply-adds"),
        };
        // Rows and columns are the two sides of the graph whose edges are the products of step 0.
        let sides = two_sides((0..chains.len()).map(|c| pair(c, 0)))?;
        let orient = |(a, b): (usize, usize)| if sides[&a] { (b, a) } else { (a, b) };
        let (mut rows, mut cols) = (Vec::new(), Vec::new());
        for chain in 0..chains.len() {
            let (a, b) = orient(pair(chain, 0));
            if !rows.contains(&a) {
                rows.push(a);
            }
            if !cols.contains(&b) {
                cols.push(b);
            }
        }
        let (n_rows, n_cols) = (rows.len(), cols.len());
        if n_rows * n_cols != chains.len() {
            return None;
        }
        let mut places = vec![None; chains.len()];
        for chain in 0..chains.len() {
            let (a, b) = orient(pair(chain, 0));
            let at =
                rows.iter().position(|&r| r == a)? * n_cols + cols.iter().position(|&c| c == b)?;
            if places[at].replace(chain).is_some() {
                return None;
            }
        }
        let places: Vec<usize> = places.into_iter().collect::<Option<_>>()?;
        let (mut all_a, mut all_b) = (Vec::new(), Vec::new());
        for step in 0..n_steps {
            // The row's factor is what the products of a row have in common, the column's likewise.
            let is_row = |v: usize, (x, y): (usize, usize)| v == x || v == y;
            let (x, y) = pair(places[0], step);
            let first_is_row = if n_cols > 1 {
                is_row(x, pair(places[1], step))
            } else if n_rows > 1 {
                is_row(y, pair(places[n_cols], step))
            } else {
                true
            };
            let (a0, b0) = if first_is_row { (x, y) } else { (y, x) };
            let other = |(x, y): (usize, usize), v: usize| {
                if x == v {
                    Some(y)
                } else if y == v {
                    Some(x)
                } else {
                    None
                }
            };
            let b: Vec<usize> =
                (0..n_cols).map(|j| other(pair(places[j], step), a0)).collect::<Option<_>>()?;
            let a: Vec<usize> = (0..n_rows)
                .map(|i| other(pair(places[i * n_cols], step), b0))
                .collect::<Option<_>>()?;
            for i in 0..n_rows {
                for j in 0..n_cols {
                    let p = pair(places[i * n_cols + j], step);
                    if p != (a[i], b[j]) && p != (b[j], a[i]) {
                        return None;
                    }
                }
            }
            all_a.extend(a);
            all_b.extend(b);
        }
        Some(Grid { n_rows, n_cols, chains: places, a: all_a, b: all_b })
    }
}

/// For each node of a connected bipartite graph, whether it is on the side of the first edge's end.
fn two_sides(edges: impl Iterator<Item = (usize, usize)>) -> Option<BTreeMap<usize, bool>> {
    let mut neighbours: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut start = None;
    for (a, b) in edges {
        start = start.or(Some(a));
        neighbours.entry(a).or_default().push(b);
        neighbours.entry(b).or_default().push(a);
    }
    let start = start?;
    let mut sides = BTreeMap::from([(start, false)]);
    let mut todo = vec![start];
    while let Some(node) = todo.pop() {
        let side = sides[&node];
        for &other in &neighbours[&node] {
            match sides.get(&other) {
                Some(&s) if s == side => return None,
                Some(_) => {}
                None => {
                    sides.insert(other, !side);
                    todo.push(other);
                }
            }
        }
    }
    (sides.len() == neighbours.len()).then_some(sides)
}
