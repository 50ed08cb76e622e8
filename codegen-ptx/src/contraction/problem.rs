//! Which regions are contractions: every output element is a function of products summed over k at one
//! point (batch, m, n), reached through invertible moves, and of loads.
//!
//! Everything here is symbolic: the axes of the iteration space are leaves, and operands, results
//! and conditions are index maps of them.

use eggine_ir::graph::OpClass;
use eggine_ir::{Attrs, DType, Graph, NodeKind, Op, Value};

use crate::bindings::{Packing, Part};
use crate::index::moves::{self, Inside, Step};
use crate::index::{Atom, Index, Space};
use crate::kir::Scalar;

/// An axis of the iteration space.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) leaf: Atom,
    pub(crate) index: Index,
    pub(crate) extent: usize,
}

/// An operand: which element a product takes, and where there is one.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) node: Value,
    pub(crate) index: Vec<Index>,
    pub(crate) inside: Inside,
}

/// One sum of products.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    pub(crate) node: Value,
    /// Summed axes, outermost first.
    pub(crate) k: Vec<Axis>,
    /// Operand that depends on batch, m and k.
    pub(crate) m_side: Side,
    /// Operand that depends on batch, n and k.
    pub(crate) n_side: Side,
}

impl Product {
    pub(crate) fn k_extents(&self) -> Vec<usize> {
        self.k.iter().map(|axis| axis.extent).collect()
    }

    pub(crate) fn n_k(&self) -> usize {
        self.k_extents().iter().product()
    }
}

/// Where an output element is stored.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) index: Vec<Index>,
    pub(crate) inside: Inside,
}

/// A region as a contraction.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) space: Space,
    pub(crate) batch: Vec<Axis>,
    pub(crate) m: Vec<Axis>,
    pub(crate) n: Vec<Axis>,
    pub(crate) products: Vec<Product>,
    pub(crate) targets: Vec<Target>,
}

pub(crate) fn extents_of(axes: &[Axis]) -> Vec<usize> {
    axes.iter().map(|axis| axis.extent).collect()
}

pub(crate) fn n_of(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.extent).product()
}

fn axis(space: &mut Space, extent: usize) -> Axis {
    let (leaf, index) = space.fresh(None, 0, extent.max(1) as i64 - 1, 1);
    Axis { leaf, index, extent }
}

fn axes(space: &mut Space, extents: &[usize]) -> Vec<Axis> {
    extents.iter().map(|&extent| axis(space, extent)).collect()
}

/// The iteration space of a contraction node, with its own output index and condition.
struct Root {
    batch: Vec<Axis>,
    m: Vec<Axis>,
    n: Vec<Axis>,
    index: Vec<Index>,
    inside: Inside,
}

fn root(
    space: &mut Space,
    graph: &Graph,
    node: Value,
    op: Op,
    attrs: &Attrs,
    args: &[Value],
) -> Root {
    let out = moves::extents(graph, node);
    let rank = out.len();
    match op {
        Op::Matmul => {
            let all = axes(space, &out);
            let index = all.iter().map(|axis| axis.index.clone()).collect();
            let n_batch = |arg: Value| {
                let extents = moves::extents(graph, arg);
                extents[..extents.len() - 2].iter().product::<usize>()
            };
            let (batch, last) = all.split_at(rank - 2);
            let (m, n) = (vec![last[0].clone()], vec![last[1].clone()]);
            let joined = |tail: &[Axis]| batch.iter().chain(tail).cloned().collect::<Vec<_>>();
            // A matrix that all of the batch shares: the batch is more rows, or more columns.
            let (batch, m, n) = match (n_batch(args[0]), n_batch(args[1])) {
                (_, 1) => (Vec::new(), joined(&m), n),
                (1, _) => (Vec::new(), m, joined(&n)),
                _ => (batch.to_vec(), m, n),
            };
            Root { batch, m, n, index, inside: Vec::new() }
        }
        _ => {
            let groups = attrs.int(4) as usize;
            let image = axis(space, out[0]);
            let group = axis(space, groups);
            let channel = axis(space, out[1] / groups);
            let scaled = space.scale(&group.index, (out[1] / groups) as i64);
            let mut index = vec![image.index.clone(), space.add(&scaled, &channel.index)];
            let (mut batch, mut n, mut inside) = (vec![group], vec![image], Vec::new());
            let phases = op == Op::ConvTranspose && splits_phases(attrs);
            for (at, &extent) in out.iter().enumerate().skip(2) {
                if !phases {
                    let position = axis(space, extent);
                    index.push(position.index.clone());
                    n.push(position);
                    continue;
                }
                // Positions of one remainder modulo the stride use the same taps of the kernel:
                // each remainder is a contraction of its own, that is a step of the batch.
                let (stride, before) = (attrs.ints(0)[at - 2], attrs.ints(1)[at - 2]);
                let phase = axis(space, stride as usize);
                let step = axis(space, (extent + before as usize).div_ceil(stride as usize));
                let scaled = space.scale(&step.index, stride);
                let sum = space.add(&scaled, &phase.index);
                let position = space.add_constant(&sum, -before);
                if position.lo < 0 || position.hi >= extent as i64 {
                    inside.push((position.clone(), extent as i64));
                }
                index.push(position.within(0, extent as i64 - 1));
                batch.push(phase);
                n.push(step);
            }
            Root { batch, m: vec![channel], n, index, inside }
        }
    }
}

fn splits_phases(attrs: &Attrs) -> bool {
    attrs.ints(3).iter().all(|&dilation| dilation == 1)
}

/// The operands of a contraction whose own output index is `index`.
fn product(
    space: &mut Space,
    graph: &Graph,
    root: &Root,
    node: Value,
    index: &[Index],
) -> Option<Product> {
    let NodeKind::Apply(op, attrs, args) = &graph.nodes[node].kind else { return None };
    let summed = moves::summed(graph, *op, attrs, args);
    let (k, lhs, rhs) = if *op == Op::ConvTranspose && splits_phases(attrs) {
        let filter = moves::extents(graph, args[1]);
        let from = moves::extents(graph, args[0]);
        let mut k = Vec::new();
        let (mut x_at, mut w_at, mut x_inside, mut w_inside) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for at in 0..filter.len() - 2 {
            let (stride, before) = (attrs.ints(0)[at], attrs.ints(1)[at]);
            let tap = axis(space, filter[at + 2].div_ceil(stride as usize));
            let shifted = space.add_constant(&index[at + 2], before);
            let (step, phase) = (space.div(&shifted, stride), space.rem(&shifted, stride));
            let back = space.scale(&tap.index, -1);
            let x = space.add(&step, &back);
            x_at.push(x.within(0, from[at + 2] as i64 - 1));
            if x.lo < 0 || x.hi >= from[at + 2] as i64 {
                x_inside.push((x, from[at + 2] as i64));
            }
            let scaled = space.scale(&tap.index, stride);
            let w = space.add(&scaled, &phase);
            w_at.push(w.within(0, filter[at + 2] as i64 - 1));
            if w.hi >= filter[at + 2] as i64 {
                w_inside.push((w, filter[at + 2] as i64));
            }
            k.push(tap);
        }
        let channel = axis(space, summed[0]);
        let group = space.div(&index[1], filter[1] as i64);
        let scaled = space.scale(&group, summed[0] as i64);
        let input = space.add(&scaled, &channel.index);
        k.push(channel);
        let mut x = vec![index[0].clone(), input.clone()];
        x.extend(x_at);
        let mut w = vec![input, space.rem(&index[1], filter[1] as i64)];
        w.extend(w_at);
        (
            k,
            Side { node: args[0], index: x, inside: x_inside },
            Side { node: args[1], index: w, inside: w_inside },
        )
    } else {
        // The kernel's taps outside, channels inside: then neighbouring products differ by a constant
        // distance in both operands, and whether a pixel exists depends on the outer axes only.
        let mut k = axes(space, &summed[1..]);
        k.push(axis(space, summed[0]));
        let mut at = vec![k[k.len() - 1].index.clone()];
        at.extend(k[..k.len() - 1].iter().map(|axis| axis.index.clone()));
        let ([a, b], inside) = moves::contract(space, graph, (*op, attrs, args), index, &at);
        (
            k,
            Side { node: args[0], index: a, inside },
            Side { node: args[1], index: b, inside: Vec::new() },
        )
    };
    let only = |space: &Space, side: &Side, axes: &[Axis]| {
        let allowed = |leaf: &Atom| {
            [&root.batch[..], axes, &k[..]]
                .iter()
                .any(|axes| axes.iter().any(|axis| axis.leaf == *leaf))
        };
        let indices = side.index.iter().chain(side.inside.iter().map(|(index, _)| index));
        indices.into_iter().all(|index| space.leaves(index).iter().all(allowed))
    };
    if only(space, &lhs, &root.m) && only(space, &rhs, &root.n) {
        return Some(Product { node, k, m_side: lhs, n_side: rhs });
    }
    if only(space, &lhs, &root.n) && only(space, &rhs, &root.m) {
        return Some(Product { node, k, m_side: rhs, n_side: lhs });
    }
    None
}

/// The index of each node that is the root's element moved or mapped, going forward.
fn forward(space: &mut Space, graph: &Graph, node: Value, root: &Root) -> Option<Vec<Target>> {
    let mut known: std::collections::BTreeMap<Value, Target> = std::collections::BTreeMap::new();
    known.insert(node, Target { index: root.index.clone(), inside: root.inside.clone() });
    for (value, definition) in graph.nodes.iter() {
        let NodeKind::Apply(op, attrs, args) = &definition.kind else { continue };
        let Some(&arg) = args.iter().find(|arg| known.contains_key(arg)) else { continue };
        if value == node {
            continue;
        }
        let from = known[&arg].clone();
        let (arg_extents, out) = (moves::extents(graph, arg), moves::extents(graph, value));
        let target = match op {
            Op::Reshape => {
                let index = moves::reshape(space, &from.index, &arg_extents, &out);
                Target { index, ..from }
            }
            Op::Transpose => {
                let perm = attrs.usizes(0);
                Target {
                    index: perm.iter().map(|&axis| from.index[axis].clone()).collect(),
                    ..from
                }
            }
            Op::Slice if attrs.ints(2).iter().all(|&step| step == 1) => {
                let mut inside = from.inside.clone();
                let mut index = Vec::new();
                for (axis, at) in from.index.iter().enumerate() {
                    let at = space.add_constant(at, -attrs.ints(0)[axis]);
                    let extent = out[axis] as i64;
                    if at.lo < 0 || at.hi >= extent {
                        inside.push((at.clone(), extent));
                    }
                    index.push(at.within(0, extent - 1));
                }
                Target { index, inside }
            }
            _ if op.spec().class == OpClass::Map || *op == Op::Expand => {
                if arg_extents != out {
                    // Leading axes of extent 1 may be missing.
                    let n: usize = arg_extents.iter().product();
                    if n != out.iter().product::<usize>() || out.len() < arg_extents.len() {
                        return None;
                    }
                    let index = moves::reshape(space, &from.index, &arg_extents, &out);
                    Target { index, ..from }
                } else {
                    from
                }
            }
            _ => return None,
        };
        known.insert(value, target);
    }
    graph.outputs.iter().map(|output| known.get(output).cloned()).collect()
}

fn same(a: &[Index], b: &[Index]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.base == y.base && x.terms == y.terms)
}

/// Largest window that a loader folds for each element of a tile: a pooling of 3 × 3, with some room.
const MAX_WINDOW: usize = 16;

/// Whether an operand can be loaded: maps, moves and small windows of inputs.
fn is_loadable(space: &mut Space, graph: &Graph, side: &Side) -> bool {
    let mut ok = true;
    let mut n_visits = 0;
    moves::walk(space, graph, side.node, &side.index, &mut |_, value, _| {
        n_visits += 1;
        if let NodeKind::Apply(op, attrs, args) = &graph.nodes[value].kind {
            ok &= match op.spec().class {
                OpClass::Map | OpClass::Move | OpClass::Generate => true,
                OpClass::Window => {
                    moves::summed(graph, *op, attrs, args).iter().product::<usize>() <= MAX_WINDOW
                }
                OpClass::Reduce | OpClass::Contract => false,
            };
        }
        if ok && n_visits < 200 { Step::Into } else { Step::Over }
    });
    ok && n_visits < 200
}

impl Problem {
    /// The region as a contraction, if it is one.
    pub(crate) fn of(graph: &Graph) -> Option<Problem> {
        for (node, definition) in graph.nodes.iter() {
            if let NodeKind::Apply(op, ..) = &definition.kind
                && op.spec().class == OpClass::Contract
                && let Some(problem) = Self::rooted(graph, node)
            {
                return Some(problem);
            }
        }
        None
    }

    fn rooted(graph: &Graph, node: Value) -> Option<Problem> {
        let NodeKind::Apply(op, attrs, args) = &graph.nodes[node].kind else { return None };
        let held = Scalar::of(graph.ty(node).dtype);
        if !matches!(graph.ty(node).dtype, DType::F32 | DType::F16 | DType::BF16 | DType::I32)
            || graph.ty(node).n_elems() == 0
        {
            return None;
        }
        let mut space = Space::default();
        let root = root(&mut space, graph, node, *op, attrs, args);
        let targets = forward(&mut space, graph, node, &root)?;
        let mut reached: Vec<(Value, Vec<Index>)> = Vec::new();
        let mut legal = true;
        for (&output, target) in graph.outputs.iter().zip(&targets) {
            let mut seen = std::collections::BTreeSet::new();
            moves::walk(&mut space, graph, output, &target.index, &mut |_, value, index| {
                if !legal || !seen.insert((value, index.to_vec())) || seen.len() > 500 {
                    return Step::Over;
                }
                let NodeKind::Apply(op, ..) = &graph.nodes[value].kind else { return Step::Into };
                match op.spec().class {
                    OpClass::Contract => {
                        match reached.iter().find(|(other, _)| *other == value) {
                            Some((_, known)) => legal &= same(known, index),
                            None => reached.push((value, index.to_vec())),
                        }
                        Step::Over
                    }
                    OpClass::Reduce | OpClass::Window => {
                        legal = false;
                        Step::Over
                    }
                    _ => Step::Into,
                }
            });
            legal &= seen.len() <= 500;
        }
        let at_root =
            reached.iter().any(|(value, index)| *value == node && same(index, &root.index));
        if !legal || !at_root || reached.len() > 2 {
            return None;
        }
        let mut products = Vec::new();
        for (value, index) in &reached {
            let product = product(&mut space, graph, &root, *value, index)?;
            // Tiles of both products lie in the same shared memory.
            if product.n_k() == 0
                || Scalar::of(graph.ty(*value).dtype) != held
                || !is_loadable(&mut space, graph, &product.m_side)
                || !is_loadable(&mut space, graph, &product.n_side)
            {
                return None;
            }
            products.push(product);
        }
        Some(Problem { space, batch: root.batch, m: root.m, n: root.n, products, targets })
    }

    /// The transposed problem: rows and columns change roles.
    pub(crate) fn swapped(mut self) -> Problem {
        std::mem::swap(&mut self.m, &mut self.n);
        for product in &mut self.products {
            std::mem::swap(&mut product.m_side, &mut product.n_side);
        }
        self
    }

    /// Distance in memory between neighbouring columns of the first output; `None` if it varies.
    pub(crate) fn column_stride(&mut self, graph: &Graph, axes: &[Axis]) -> Option<i64> {
        let extents = moves::extents(graph, graph.outputs[0]);
        let address = self.space.linear(&self.targets[0].index.clone(), &extents);
        let inner = axes.iter().rev().find(|axis| axis.extent > 1)?;
        self.space.coefficient(&address, inner.leaf)
    }

    /// How an operand that is a weight can be packed into tiles, and what its elements are converted
    /// from and to after loading.
    pub(crate) fn packing(
        &mut self,
        graph: &Graph,
        side: &Side,
        axes: &[Axis],
        k: &[Axis],
        tile: (usize, usize),
    ) -> Option<(Value, Packing, Vec<[DType; 2]>)> {
        if !side.inside.is_empty() {
            return None;
        }
        let (mut node, mut index) = (side.node, side.index.clone());
        let mut casts = Vec::new();
        loop {
            match &graph.nodes[node].kind {
                NodeKind::Input { weight: true, .. } => break,
                NodeKind::Apply(op, attrs, args) => {
                    let (out, arg) = (
                        moves::extents(graph, node),
                        moves::extents(graph, args.first().copied()?),
                    );
                    index = match op {
                        Op::Reshape => moves::reshape(&mut self.space, &index, &out, &arg),
                        Op::Transpose => moves::transpose(&index, &attrs.usizes(0)),
                        Op::Expand => moves::broadcast(&index, &arg),
                        Op::Slice => moves::slice(&mut self.space, &index, attrs),
                        // Narrow weights are packed as they are. What pads a tile is 0 in any type.
                        Op::Cast => {
                            casts.push([graph.ty(args[0]).dtype, graph.ty(node).dtype]);
                            index
                        }
                        _ => return None,
                    };
                    node = args[0];
                }
                _ => return None,
            }
        }
        // Elements of 4 bits share their bytes: they stay where they are. What pads a tile is no zero in E8M0.
        if graph.ty(node).dtype.bits() < 8 || graph.ty(node).dtype == DType::F8E8M0 {
            return None;
        }
        casts.reverse();
        let address = self.space.linear(&index, &moves::extents(graph, node));
        let all = [&self.batch[..], axes, k].concat();
        if !address.terms.iter().all(|(atom, _)| all.iter().any(|axis| axis.leaf == *atom)) {
            return None;
        }
        let parts = |axes: &[Axis]| -> Vec<Part> {
            let stride = |axis: &Axis| {
                address.terms.iter().find(|(atom, _)| *atom == axis.leaf).map_or(0, |(_, c)| *c)
            };
            axes.iter().map(|axis| Part { extent: axis.extent, stride: stride(axis) }).collect()
        };
        let packing = Packing {
            offset: address.base,
            batch: parts(&self.batch),
            row: parts(axes),
            k: parts(k),
            tile_row: tile.0,
            tile_k: tile.1,
        };
        Some((node, packing, casts))
    }
}
