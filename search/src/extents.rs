//! The same computation at other extents: a graph whose inputs have other shapes, with every attribute
//! that speaks of shapes adapted.
//!
//! The result is a well-typed graph with a meaning of its own, so nothing that is checked with it can be
//! wrongly accepted because of how it was made. Where it is not clear what an operator would be at the
//! other extents there is no result.

use std::collections::BTreeMap;

use eggine_ir::{Attr, Attrs, Graph, NodeKind, Op, Region, Tensor, TensorType, Value};

/// Extents to be replaced, and by what.
pub type Substitution = BTreeMap<usize, usize>;

/// Extents up to this are kernel sizes, heads, gates and the like, and left alone.
const SMALL: usize = 8;

fn substituted(substitution: &Substitution, extents: &[usize]) -> Vec<usize> {
    extents.iter().map(|n| *substitution.get(n).unwrap_or(n)).collect()
}

/// The graph with every extent of its inputs substituted; `None` if that has no clear meaning.
pub fn resized(graph: &Graph, substitution: &Substitution) -> Option<Graph> {
    let mut result = Graph::new(graph.name.clone());
    let mut new: BTreeMap<Value, Value> = BTreeMap::new();
    for (value, node) in graph.nodes.iter() {
        let copy = match &node.kind {
            NodeKind::Input { name, weight } => {
                let extents = substituted(substitution, &node.ty.extents());
                let ty = TensorType::fixed(node.ty.dtype, &extents);
                match weight {
                    true => result.weight(ty),
                    false => result.input(name.clone(), ty),
                }
            }
            NodeKind::Const(tensor) => result.constant(constant(tensor, substitution)?),
            NodeKind::Apply(op, attrs, args) => {
                let old: Vec<Vec<usize>> = args.iter().map(|&it| graph.ty(it).extents()).collect();
                let args: Vec<Value> = args.iter().map(|arg| new[arg]).collect();
                let now: Vec<Vec<usize>> = args.iter().map(|&it| result.ty(it).extents()).collect();
                let out = node.ty.extents();
                let attrs = attributes(*op, attrs, &old, &now, &out, substitution)?;
                result.apply(*op, attrs, &args).ok()?
            }
        };
        new.insert(value, copy);
    }
    result.outputs = graph.outputs.iter().map(|output| new[output]).collect();
    Some(result)
}

/// A constant at other extents: only a uniform one is known there.
fn constant(tensor: &Tensor, substitution: &Substitution) -> Option<Tensor> {
    let extents = substituted(substitution, &tensor.extents);
    if extents == tensor.extents {
        return Some(tensor.clone());
    }
    let width = tensor.dtype.bits() / 8;
    let one = tensor.bytes.get(..width).filter(|_| width > 0)?;
    let uniform = tensor.bytes.chunks(width).all(|chunk| chunk == one);
    let n_elems: usize = extents.iter().product();
    uniform.then(|| Tensor::new(tensor.dtype, &extents, one.repeat(n_elems)))
}

fn ints(extents: &[usize]) -> Attr {
    Attr::Ints(extents.iter().map(|&n| n as i64).collect())
}

fn attributes(
    op: Op,
    attrs: &Attrs,
    old: &[Vec<usize>],
    now: &[Vec<usize>],
    out: &[usize],
    substitution: &Substitution,
) -> Option<Attrs> {
    let with = |at: usize, attr: Attr| {
        let mut attrs = attrs.clone();
        attrs.0[at] = attr;
        Some(attrs)
    };
    match op {
        Op::Reshape => with(0, ints(&reshaped(&old[0], &now[0], out)?)),
        Op::Expand => {
            let axes = old[0].iter().zip(&now[0]).zip(out);
            let extent = |((&old, &now), &out): ((&usize, &usize), &usize)| match old == out {
                true => now,
                false => *substitution.get(&out).unwrap_or(&out),
            };
            with(0, ints(&axes.map(extent).collect::<Vec<_>>()))
        }
        Op::Iota => with(0, ints(&substituted(substitution, out))),
        Op::Slice => sliced(attrs, &old[0], &now[0]),
        Op::Conv | Op::ConvTranspose => {
            let (groups, channels) = (attrs.int(4), old[0][1] as i64);
            match (groups == channels, old[0][1] == now[0][1]) {
                (_, true) => Some(attrs.clone()),
                // Depthwise stays depthwise.
                (true, false) => with(4, Attr::Int(now[0][1] as i64)),
                (false, false) => (groups == 1).then(|| attrs.clone()),
            }
        }
        // The scales are those of the old extents.
        Op::Resize => (old == now).then(|| attrs.clone()),
        _ => Some(attrs.clone()),
    }
}

/// A whole axis stays whole; a part stays the same part of the axis, if it can.
fn sliced(attrs: &Attrs, old: &[usize], now: &[usize]) -> Option<Attrs> {
    let (mut starts, mut extents) = (attrs.ints(0).to_vec(), attrs.ints(1).to_vec());
    for axis in 0..old.len() {
        let (was, is) = (old[axis] as i64, now[axis] as i64);
        if was == is {
            continue;
        }
        let scale = |n: i64| ((n * is) % was == 0).then(|| n * is / was);
        if attrs.ints(2)[axis] != 1 {
            return None;
        }
        (starts[axis], extents[axis]) = (scale(starts[axis])?, scale(extents[axis])?);
    }
    Some(Attrs(vec![Attr::Ints(starts), Attr::Ints(extents), attrs.0[2].clone()]))
}

/// The shape that a reshape gives at other extents: dimensions are merged and split as before.
fn reshaped(old: &[usize], now: &[usize], out: &[usize]) -> Option<Vec<usize>> {
    let mut shape = out.to_vec();
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < out.len() {
        // The shortest runs of both sides with the same number of elements.
        let (first_i, first_j) = (i, j);
        let (mut a, mut b) = (1usize, 1usize);
        loop {
            if a <= b && i < old.len() {
                a *= old[i];
                i += 1;
            } else if j < out.len() {
                b *= out[j];
                j += 1;
            } else if i < old.len() {
                a *= old[i];
                i += 1;
            }
            let ended = i == old.len() && j == out.len();
            if a == b && (i > first_i && j > first_j) || ended {
                break;
            }
        }
        if a != b {
            return None;
        }
        let changed = (first_i..i).any(|axis| old[axis] != now[axis]);
        if !changed {
            continue;
        }
        let sources: Vec<usize> = (first_i..i).filter(|&axis| old[axis] != 1).collect();
        let targets: Vec<usize> = (first_j..j).filter(|&axis| out[axis] != 1).collect();
        match targets.as_slice() {
            [target] => shape[*target] = sources.iter().map(|&axis| now[axis]).product(),
            targets if targets.len() == sources.len() => {
                for (&source, &target) in sources.iter().zip(targets) {
                    if old[source] != out[target] {
                        return None;
                    }
                    shape[target] = now[source];
                }
            }
            _ => return None,
        }
    }
    Some(shape)
}

/// Operations of the contractions of a graph, and elements of the rest.
pub fn work(graph: &Graph) -> f64 {
    let of = |node: &eggine_ir::Node| match &node.kind {
        NodeKind::Apply(Op::Matmul, _, args) => {
            2.0 * *graph.ty(args[0]).extents().last().unwrap_or(&1) as f64
        }
        NodeKind::Apply(Op::Conv | Op::ConvTranspose, _, args) => {
            2.0 * graph.ty(args[1]).extents()[1..].iter().product::<usize>() as f64
        }
        _ => 1.0,
    };
    graph.nodes.values().map(|node| node.ty.n_elems() as f64 * of(node)).sum()
}

/// The distinct extents of a graph's inputs that may be replaced, largest first.
fn extents_of(graph: &Graph) -> Vec<usize> {
    let mut all: Vec<usize> = graph.inputs().flat_map(|input| graph.ty(input).extents()).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
    all.retain(|&n| n > SMALL);
    all
}

/// Makes several graphs with the same inputs smaller together: each extent of the first one's inputs that
/// can be replaced by a small one of its own, is.
pub fn shrunk(graphs: &[&Graph]) -> Vec<Graph> {
    const SIZES: [usize; 12] = [5, 7, 6, 9, 11, 10, 13, 14, 15, 17, 19, 21];
    let mut substitution = Substitution::new();
    let mut best: Vec<Graph> = graphs.iter().map(|&graph| graph.clone()).collect();
    for extent in extents_of(graphs[0]) {
        let kept: Vec<usize> = extents_of(&best[0]);
        let unused = |size: &&usize| {
            !kept.contains(size) && !substitution.values().any(|used| used == *size)
        };
        let sizes: Vec<usize> = SIZES.iter().filter(unused).copied().collect();
        for size in sizes.into_iter().filter(|&size| size < extent) {
            let mut tried = substitution.clone();
            tried.insert(extent, size);
            let graphs: Option<Vec<Graph>> =
                graphs.iter().map(|graph| resized(graph, &tried)).collect();
            if let Some(graphs) =
                graphs.filter(|graphs| graphs.iter().all(|it| agree(it, &graphs[0])))
            {
                (best, substitution) = (graphs, tried);
                break;
            }
        }
    }
    best
}

/// Whether two graphs have outputs of the same types.
fn agree(a: &Graph, b: &Graph) -> bool {
    let types = |graph: &Graph| -> Vec<TensorType> {
        graph.outputs.iter().map(|&output| graph.ty(output).clone()).collect()
    };
    types(a) == types(b)
}

/// Neighbours of a region at which tiles are ragged: small, with extents that no tile divides, all of them
/// replaced at once where that works, else one at a time. At most `n`; none if the region has no extent
/// that can be replaced.
pub fn ragged(region: &Region, n: usize) -> Vec<Region> {
    // Primes just above a power of two: one tile and a bit of the next.
    const SIZES: [usize; 8] = [67, 37, 71, 41, 73, 43, 79, 47];
    let graph = &region.graph;
    let all = extents_of(graph);
    let pairs: Vec<(usize, usize)> = all.iter().copied().zip(SIZES).collect();
    let smaller = |&(extent, size): &(usize, usize)| match extent > size {
        true => (extent, size),
        false => (extent, extent + 1),
    };
    let pairs: Vec<(usize, usize)> = pairs.iter().map(smaller).collect();
    let mut found: Vec<Region> = Vec::new();
    let together: Substitution = pairs.iter().copied().collect();
    let singles = pairs.iter().map(|&pair| Substitution::from([pair]));
    for substitution in std::iter::once(together).chain(singles) {
        if substitution.is_empty() || found.len() == n {
            break;
        }
        if let Some(graph) = resized(graph, &substitution) {
            let neighbour = Region::contiguous(graph);
            // One at a time is large still, if the others are: what is slow to check is left out.
            const MOST_WORK: f64 = 2e8;
            if neighbour.graph != region.graph
                && work(&neighbour.graph) < MOST_WORK
                && !found.contains(&neighbour)
            {
                found.push(neighbour);
                if found.len() == 1 && pairs.len() == 1 {
                    break;
                }
            }
        }
    }
    found
}
