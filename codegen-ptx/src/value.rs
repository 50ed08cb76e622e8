//! Pull-based code generation: the element of a value at a symbolic index, as code of one thread.
//!
//! [`Gen::value`] recurses through the region: maps compute, moves change the index, reductions and
//! contractions are loops in the thread. Values of the same node, index and mask are computed once per
//! scope. A value has one scalar per *lane*: a family that lets a thread handle neighbouring
//! elements declares a leaf of 1, 2 or 4 lanes, and what does not depend on it stays one scalar.

mod load;
mod loops;

use std::collections::BTreeMap;

use eggine_ir::graph::{Attrs, OpClass};
use eggine_ir::{DType, Graph, NodeKind, Op, Tensor, Value};

use crate::bindings::Binding;
use crate::index::moves::{self, Inside};
use crate::index::{Atom, AtomKind, Index, Space};
use crate::kir::{Buffer, Builder, Scalar, Val};
use crate::math;
pub(crate) use loops::{combine, identity};

/// One scalar per lane, or a single one if it is the same in all.
pub(crate) type Lanes = Vec<Val>;

type Memo = BTreeMap<(Value, Vec<Index>, Lanes), Lanes>;

/// State of the generation of one kernel.
pub(crate) struct Gen<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) b: Builder,
    pub(crate) space: Space,
    /// What each global buffer is, in the order of declaration.
    pub(crate) bindings: Vec<Binding>,
    /// Values that a family has already: accumulators and cooperative reductions.
    pub(crate) seeds: BTreeMap<Value, Lanes>,
    lane: Option<(Atom, usize)>,
    /// Predicates under which code is generated now, one more per nesting; empty: always.
    masks: Vec<Lanes>,
    memo: Vec<Memo>,
    buffers: BTreeMap<Value, Buffer>,
    tables: Vec<(Tensor, Buffer)>,
    depth: u32,
}

/// The region's inputs, numbered.
fn input_index(graph: &Graph, value: Value) -> usize {
    graph.inputs().position(|input| input == value).expect("an input of the graph")
}

impl<'g> Gen<'g> {
    pub(crate) fn new(graph: &'g Graph, builder: Builder) -> Self {
        Self {
            graph,
            b: builder,
            space: Space::default(),
            bindings: Vec::new(),
            seeds: BTreeMap::new(),
            lane: None,
            masks: Vec::new(),
            memo: vec![Memo::new()],
            buffers: BTreeMap::new(),
            tables: Vec::new(),
            depth: 1,
        }
    }

    // Leaves and scopes.

    /// A leaf for a run-time value; its range is that which the builder knows.
    pub(crate) fn leaf(&mut self, val: Val, depth: u32) -> Index {
        if let Some(c) = self.b.as_i32(val) {
            return Index::constant(i64::from(c));
        }
        let (lo, hi) = self.b.range(val);
        self.space.leaf(Some(val), lo, hi, depth)
    }

    /// Declares the lanes; the index of the lane is returned.
    pub(crate) fn set_lanes(&mut self, n: usize) -> Index {
        if n == 1 {
            self.lane = None;
            return Index::constant(0);
        }
        let (atom, index) = self.space.fresh(None, 0, n as i64 - 1, 1);
        self.lane = Some((atom, n));
        index
    }

    pub(crate) fn n_lanes(&self) -> usize {
        self.lane.map_or(1, |(_, n)| n)
    }

    /// Runs `f` with other lanes (or none), then returns to the present ones.
    pub(crate) fn with_lane<R>(
        &mut self,
        lane: Option<(Atom, usize)>,
        f: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let outer = std::mem::replace(&mut self.lane, lane);
        let result = f(self);
        self.lane = outer;
        result
    }

    /// Returns to lanes that were declared before.
    pub(crate) fn with_outer_lane(&mut self, lane: Option<(Atom, usize)>) {
        self.lane = lane;
    }

    pub(crate) fn lane(&self) -> Option<(Atom, usize)> {
        self.lane
    }

    /// A scope of the memo: what is computed inside is forgotten behind it.
    pub(crate) fn scoped<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        self.memo.push(Memo::new());
        let result = f(self);
        self.memo.pop();
        result
    }

    /// Opens `for counter in 0..n` and a scope; [`Gen::end_loop`] closes both. Returns the counter.
    pub(crate) fn begin_loop(&mut self, n: usize) -> Index {
        let counter = self.b.begin_for(0, n as i32, 1);
        self.depth += 1;
        self.memo.push(Memo::new());
        self.leaf(counter, self.depth)
    }

    pub(crate) fn end_loop(&mut self) {
        self.memo.pop();
        self.depth -= 1;
        self.b.end();
    }

    /// `for counter in 0..n` around `f`, which gets the counter.
    pub(crate) fn for_loop(&mut self, n: usize, f: impl FnOnce(&mut Self, &Index)) {
        let counter = self.begin_loop(n);
        f(self, &counter);
        self.end_loop();
    }

    /// Opens `if condition` and a scope; [`Gen::end_if`] closes both.
    pub(crate) fn begin_if(&mut self, condition: Val) {
        self.b.begin_if(condition);
        self.memo.push(Memo::new());
    }

    pub(crate) fn end_if(&mut self) {
        self.memo.pop();
        self.b.end();
    }

    /// `if condition` around `f`.
    pub(crate) fn if_then(&mut self, condition: Val, f: impl FnOnce(&mut Self)) {
        self.begin_if(condition);
        f(self);
        self.end_if();
    }

    // Buffers.

    /// The parameter that holds an input.
    pub(crate) fn input_buffer(&mut self, value: Value) -> Buffer {
        if let Some(&buffer) = self.buffers.get(&value) {
            return buffer;
        }
        let ty = self.graph.ty(value).clone();
        let buffer = self.b.global(ty.dtype, ty.n_elems(), false);
        self.bindings.push(Binding::Input { index: input_index(self.graph, value), packing: None });
        self.buffers.insert(value, buffer);
        buffer
    }

    /// A parameter for the rearranged form of an input.
    pub(crate) fn packed_buffer(
        &mut self,
        value: Value,
        packing: crate::bindings::Packing,
    ) -> Buffer {
        let buffer = self.b.global(self.graph.ty(value).dtype, packing.n_elems(), false);
        self.bindings
            .push(Binding::Input { index: input_index(self.graph, value), packing: Some(packing) });
        buffer
    }

    /// The parameter for an output. One of elements of 4 or 2 bits is stored by its bytes.
    pub(crate) fn output_buffer(&mut self, index: usize) -> Buffer {
        let ty = self.graph.ty(self.graph.outputs[index]).clone();
        let (dtype, n_elems) = match ty.dtype.bits() < 8 {
            true => (DType::U8, ty.n_bytes()),
            false => (ty.dtype, ty.n_elems()),
        };
        let buffer = self.b.global(dtype, n_elems, true);
        self.bindings.push(Binding::Output { index });
        buffer
    }

    /// The parameter for constant data.
    pub(crate) fn table(&mut self, tensor: Tensor) -> Buffer {
        if let Some((_, buffer)) = self.tables.iter().find(|(known, _)| *known == tensor) {
            return *buffer;
        }
        let buffer = self.b.global(tensor.dtype, tensor.n_elems(), false);
        self.bindings.push(Binding::Table(tensor.clone()));
        self.tables.push((tensor, buffer));
        buffer
    }

    // Indices to values.

    /// Code for an index.
    pub(crate) fn index_val(&mut self, index: &Index) -> Val {
        if let Some(c) = index.as_constant() {
            return self.b.i32(c as i32);
        }
        let mut terms = index.terms.clone();
        terms.sort_by_key(|&(atom, _)| (self.space.depth(atom), atom));
        let mut sum: Option<Val> = None;
        for (atom, c) in terms {
            let val = self.atom_val(atom);
            sum = Some(match sum {
                None => self.b.mul_const(val, c as i32),
                Some(sum) => self.b.mad_const(val, c as i32, sum),
            });
        }
        let sum = match sum {
            None => return self.b.i32(index.base as i32),
            Some(sum) => sum,
        };
        self.b.add_const(sum, index.base as i32)
    }

    fn atom_val(&mut self, atom: Atom) -> Val {
        match self.space.kind(atom).clone() {
            AtomKind::Leaf(_) => {
                self.space.val(atom).expect("a leaf of generated code has a value")
            }
            AtomKind::Div(x, n) => {
                // Rounds down also where the dividend is negative: shifted by a multiple of n.
                let up = if x.lo < 0 { -x.lo.div_euclid(n) } else { 0 };
                let shifted = self.space.add_constant(&x, up * n);
                let val = self.assumed(&shifted);
                let quotient = self.b.div_const(val, n as i32);
                self.b.add_const(quotient, -up as i32)
            }
            AtomKind::Rem(x, n) => {
                let up = if x.lo < 0 { -x.lo.div_euclid(n) } else { 0 };
                let shifted = self.space.add_constant(&x, up * n);
                let val = self.assumed(&shifted);
                self.b.rem_const(val, n as i32)
            }
            AtomKind::Clamp(x, lo, hi) => {
                let val = self.index_val(&x);
                let (lo, hi) = (self.b.i32(lo as i32), self.b.i32(hi as i32));
                let val = self.b.max(val, lo);
                self.b.min(val, hi)
            }
            AtomKind::Abs(x) => {
                let val = self.index_val(&x);
                self.b.unary(crate::kir::UnaryOp::Abs, val)
            }
        }
    }

    /// Code for an index that is not negative where it matters.
    fn assumed(&mut self, index: &Index) -> Val {
        self.index_val(index)
    }

    // Masks.

    pub(crate) fn mask(&self) -> Lanes {
        self.masks.last().cloned().unwrap_or_default()
    }

    /// `0 <= index < extent` in each lane, or none if it holds everywhere.
    fn inside_one(&mut self, index: &Index, extent: i64) -> Lanes {
        if index.lo >= 0 && index.hi < extent {
            return Vec::new();
        }
        if let Some((atom, n)) = self.lane
            && self.space.depends_on(index, atom)
        {
            // All lanes of an aligned group are on the same side of an aligned bound.
            let n = n as i64;
            let first = self.space.substitute(index, atom, &Index::constant(0));
            let aligned = first.is_multiple_of(n) && extent % n == 0;
            if self.space.coefficient(index, atom) == Some(1) && aligned {
                return vec![self.compare_range(&first, extent)];
            }
            let lanes: Vec<Index> = (0..n)
                .map(|lane| self.space.substitute(index, atom, &Index::constant(lane)))
                .collect();
            return lanes.iter().map(|index| self.compare_range(index, extent)).collect();
        }
        vec![self.compare_range(index, extent)]
    }

    fn compare_range(&mut self, index: &Index, extent: i64) -> Val {
        if index.hi < 0 || index.lo >= extent {
            return self.b.pred(false);
        }
        let val = self.index_val(index);
        let mut condition = None;
        if index.lo < 0 {
            let zero = self.b.i32(0);
            condition = Some(self.b.ge(val, zero));
        }
        if index.hi >= extent {
            let extent = self.b.i32(extent as i32);
            let below = self.b.lt(val, extent);
            condition = Some(condition.map_or(below, |c| self.b.and(c, below)));
        }
        condition.unwrap_or_else(|| self.b.pred(true))
    }

    /// Conjunction of lane conditions; empty is true.
    pub(crate) fn and_lanes(&mut self, a: &Lanes, b: &Lanes) -> Lanes {
        match (a.len(), b.len()) {
            (0, _) => b.clone(),
            (_, 0) => a.clone(),
            (x, y) => (0..x.max(y)).map(|i| self.b.and(a[i.min(x - 1)], b[i.min(y - 1)])).collect(),
        }
    }

    /// The condition that all of `inside` hold; empty is true.
    pub(crate) fn condition(&mut self, inside: &Inside) -> Lanes {
        let mut condition = Vec::new();
        for (index, extent) in inside {
            let one = self.inside_one(index, *extent);
            condition = self.and_lanes(&condition, &one);
        }
        condition
    }

    /// Runs `f` where `condition` holds besides the present mask.
    pub(crate) fn masked<R>(&mut self, condition: &Lanes, f: impl FnOnce(&mut Self) -> R) -> R {
        let outer = self.mask();
        let mask = self.and_lanes(&outer, condition);
        self.masks.push(mask);
        let result = f(self);
        self.masks.pop();
        result
    }

    pub(crate) fn select_lanes(&mut self, condition: &Lanes, a: &Lanes, b: &Lanes) -> Lanes {
        if condition.is_empty() {
            return a.clone();
        }
        let n = condition.len().max(a.len()).max(b.len());
        (0..n)
            .map(|i| {
                self.b.select(
                    condition[i.min(condition.len() - 1)],
                    a[i.min(a.len() - 1)],
                    b[i.min(b.len() - 1)],
                )
            })
            .collect()
    }

    // Values.

    fn remembered(&self, key: &(Value, Vec<Index>, Lanes)) -> Option<Lanes> {
        self.memo.iter().rev().find_map(|memo| memo.get(key)).cloned()
    }

    /// The element at an index, under the present mask. Elements of inputs where the mask does not
    /// hold are zero; what is computed from them there is arbitrary.
    pub(crate) fn value(&mut self, value: Value, index: &[Index]) -> Lanes {
        if let Some(seed) = self.seeds.get(&value) {
            return seed.clone();
        }
        let key = (value, index.to_vec(), self.mask());
        if let Some(lanes) = self.remembered(&key) {
            return lanes;
        }
        // A loop that was hoisted was computed under a weaker mask, which is as good.
        if self.is_loop(value) {
            for mask in self.masks.clone().iter().rev().chain([&Vec::new()]) {
                if let Some(lanes) = self.remembered(&(value, index.to_vec(), mask.clone())) {
                    return lanes;
                }
            }
        }
        let lanes = self.compute(value, index);
        self.memo.last_mut().expect("a scope is open").insert(key, lanes.clone());
        lanes
    }

    pub(crate) fn is_loop(&self, value: Value) -> bool {
        match &self.graph.nodes[value].kind {
            NodeKind::Apply(op, ..) => {
                matches!(op.spec().class, OpClass::Reduce | OpClass::Window | OpClass::Contract)
            }
            _ => false,
        }
    }

    fn compute(&mut self, value: Value, index: &[Index]) -> Lanes {
        let graph = self.graph;
        let node = &graph.nodes[value];
        match &node.kind {
            NodeKind::Input { .. } => {
                let buffer = self.input_buffer(value);
                let address = self.space.linear(index, &node.ty.extents());
                self.load(buffer, node.ty.dtype, &address)
            }
            NodeKind::Const(tensor) => self.constant(tensor, index),
            NodeKind::Apply(op, attrs, args) => match op.spec().class {
                OpClass::Map => self.map(*op, value, args, index),
                OpClass::Move | OpClass::Generate => self.movement(*op, attrs, value, args, index),
                OpClass::Reduce | OpClass::Window | OpClass::Contract => {
                    self.fold(*op, attrs, value, args, index)
                }
            },
        }
    }

    fn constant(&mut self, tensor: &Tensor, index: &[Index]) -> Lanes {
        let n = tensor.n_elems();
        let position = self.space.linear(index, &tensor.extents);
        let width = tensor.dtype.bits() / 8;
        let splat = width > 0
            && tensor.bytes.chunks(width).all(|element| element == &tensor.bytes[..width]);
        let at = if n == 1 || splat { Some(0) } else { position.as_constant() };
        match at {
            // Elements past the end are computed by threads that store nothing.
            Some(at) => {
                let at = usize::try_from(at).unwrap_or(0).min(n.saturating_sub(1));
                vec![math::constant(&mut self.b, tensor, at)]
            }
            None => {
                let buffer = self.table(tensor.clone());
                self.load(buffer, tensor.dtype, &position)
            }
        }
    }

    fn map(&mut self, op: Op, value: Value, args: &[Value], index: &[Index]) -> Lanes {
        let operands: Vec<Lanes> = args
            .iter()
            .map(|&arg| {
                let index = moves::broadcast(index, &moves::extents(self.graph, arg));
                self.value(arg, &index)
            })
            .collect();
        let types = math::Types {
            args: args.iter().map(|&arg| self.graph.ty(arg).dtype).collect(),
            out: self.graph.ty(value).dtype,
        };
        self.map_lanes(&operands, |b, lane| math::map(b, op, &types, lane))
    }

    /// Applies `f` in each lane.
    pub(crate) fn map_lanes(
        &mut self,
        operands: &[Lanes],
        f: impl Fn(&mut Builder, &[Val]) -> Val,
    ) -> Lanes {
        let n = operands.iter().map(Vec::len).max().unwrap_or(1);
        let lane = |lanes: &Lanes, i: usize| lanes[i.min(lanes.len() - 1)];
        (0..n)
            .map(|i| {
                let operands: Vec<Val> = operands.iter().map(|lanes| lane(lanes, i)).collect();
                f(&mut self.b, &operands)
            })
            .collect()
    }

    /// Whether what `value` gives is zero where the mask does not hold.
    pub(crate) fn is_zero_outside(&self, value: Value) -> bool {
        // The code 0 is the number 2⁻¹²⁷.
        if self.graph.ty(value).dtype == DType::F8E8M0 {
            return false;
        }
        match &self.graph.nodes[value].kind {
            NodeKind::Input { .. } => !self.seeds.contains_key(&value),
            NodeKind::Apply(
                Op::Reshape | Op::Transpose | Op::Expand | Op::Slice | Op::Cast,
                _,
                args,
            ) => self.is_zero_outside(args[0]),
            _ => false,
        }
    }

    /// The element where `inside` holds, and `fill` elsewhere.
    pub(crate) fn value_or(
        &mut self,
        value: Value,
        index: &[Index],
        inside: &Inside,
        fill: f64,
    ) -> Lanes {
        let condition = self.condition(inside);
        let lanes = self.masked(&condition, |g| g.value(value, index));
        if condition.is_empty()
            || (fill == 0.0 && fill.is_sign_positive() && self.is_zero_outside(value))
        {
            return lanes;
        }
        let fill = math::number(&mut self.b, self.graph.ty(value).dtype, fill);
        self.select_lanes(&condition, &lanes, &vec![fill])
    }

    fn movement(
        &mut self,
        op: Op,
        attrs: &Attrs,
        value: Value,
        args: &[Value],
        index: &[Index],
    ) -> Lanes {
        let out = moves::extents(self.graph, value);
        let arg = |g: &Self, i: usize| moves::extents(g.graph, args[i]);
        match op {
            Op::Reshape => {
                let from = arg(self, 0);
                let index = moves::reshape(&mut self.space, index, &out, &from);
                self.value(args[0], &index)
            }
            Op::Transpose => self.value(args[0], &moves::transpose(index, &attrs.usizes(0))),
            Op::Expand => {
                let index = moves::broadcast(index, &arg(self, 0));
                self.value(args[0], &index)
            }
            Op::Slice => {
                let index = moves::slice(&mut self.space, index, attrs);
                self.value(args[0], &index)
            }
            Op::Pad => {
                let from = arg(self, 0);
                let (index, inside) = moves::pad(&mut self.space, index, attrs, &from);
                self.value_or(args[0], &index, &inside, attrs.float(3))
            }
            Op::Concat => self.concat(attrs.int(0) as usize, args, index),
            Op::Gather => self.gather(attrs.int(0) as usize, args, index),
            Op::Resize => self.resize(attrs, value, args[0], index),
            Op::Iota => {
                let at = index[attrs.int(1) as usize].clone();
                let dtype = attrs.dtype(2);
                self.each_lane(&[at], |g, at| {
                    let val = g.index_val(&at[0]);
                    vec![math::cast(&mut g.b, val, DType::I32, dtype)]
                })
            }
            _ => unreachable!("{op} is not a movement"),
        }
    }

    /// Runs `f` for each lane with the lane replaced, if the indices depend on it; else once.
    pub(crate) fn each_lane(
        &mut self,
        index: &[Index],
        mut f: impl FnMut(&mut Self, &[Index]) -> Lanes,
    ) -> Lanes {
        let Some((atom, n)) = self.lane else { return f(self, index) };
        let varies = index.iter().any(|i| self.space.depends_on(i, atom));
        let mask = self.mask();
        if !varies && mask.len() <= 1 {
            return f(self, index);
        }
        let mut result = Vec::new();
        for lane in 0..n {
            let index: Vec<Index> = index
                .iter()
                .map(|i| self.space.substitute(i, atom, &Index::constant(lane as i64)))
                .collect();
            let masks = std::mem::take(&mut self.masks);
            self.masks =
                masks.iter().map(|m| if m.len() > 1 { vec![m[lane]] } else { m.clone() }).collect();
            let lanes = self.with_lane(None, |g| f(g, &index));
            self.masks = masks;
            result.push(lanes[0]);
        }
        result
    }

    fn concat(&mut self, axis: usize, args: &[Value], index: &[Index]) -> Lanes {
        let lengths: Vec<usize> =
            args.iter().map(|&arg| moves::extents(self.graph, arg)[axis]).collect();
        let parts = moves::concat(&mut self.space, index, axis, &lengths);
        let mut chosen: Vec<(Lanes, Lanes)> = Vec::new();
        for ((mut part, &length), &arg) in parts.into_iter().zip(&lengths).zip(args) {
            let (at, length) = (part[axis].clone(), length as i64);
            if at.hi < 0 || at.lo >= length {
                continue;
            }
            part[axis] = at.within(0, length - 1);
            let condition = self.condition(&vec![(at.clone(), length)]);
            let lanes = self.masked(&condition, |g| g.value(arg, &part));
            // Elements of earlier operands have been chosen already: only the end matters.
            let end = Index { lo: at.lo.max(0), ..at };
            let before_end = self.condition(&vec![(end, length)]);
            chosen.push((before_end, lanes));
        }
        let Some((_, mut result)) = chosen.pop() else {
            // A lane behind the end: it is masked, but what it reads has to exist.
            let some = lengths.iter().position(|&length| length > 0).unwrap_or(0);
            let mut part = index.to_vec();
            part[axis] = Index::constant(0);
            return self.value(args[some], &part);
        };
        for (condition, lanes) in chosen.into_iter().rev() {
            result = self.select_lanes(&condition, &lanes, &result);
        }
        result
    }

    fn gather(&mut self, axis: usize, args: &[Value], index: &[Index]) -> Lanes {
        let rank = moves::extents(self.graph, args[1]).len();
        let at = index[axis..axis + rank].to_vec();
        let n = moves::extents(self.graph, args[0])[axis] as i64;
        let varies = |g: &Self, i: &[Index]| {
            g.lane.is_some_and(|(atom, _)| i.iter().any(|i| g.space.depends_on(i, atom)))
        };
        if varies(self, &at) {
            return self.each_lane(index, |g, index| g.gather(axis, args, index));
        }
        let indices = self.value(args[1], &at);
        if indices.len() > 1 {
            return self.each_lane(index, |g, index| g.gather(axis, args, index));
        }
        let position =
            math::cast(&mut self.b, indices[0], self.graph.ty(args[1]).dtype, DType::I64);
        let (zero, extent, last) = (self.b.i64(0), self.b.i64(n), self.b.i64(n - 1));
        let from_end = self.b.add(position, extent);
        let negative = self.b.lt(position, zero);
        let position = self.b.select(negative, from_end, position);
        let position = self.b.max(position, zero);
        let position = self.b.min(position, last);
        let position = self.b.convert(position, Scalar::I32);
        self.b.assume_range(position, 0, n - 1);
        let depth = self.depth;
        let loaded = self.space.leaf_depending(Some(position), 0, n - 1, depth, &at);
        let mut data = index[..axis].to_vec();
        data.push(loaded);
        data.extend_from_slice(&index[axis + rank..]);
        self.value(args[0], &data)
    }
}
