//! Tree ensembles of `ai.onnx.ml`: all trees walk down together, a level at a time, by gathering from
//! tables of the nodes. A leaf is its own child, so that shallow trees wait for deep ones.

use std::collections::BTreeMap;

use crate::graph::Op;
use crate::onnx::builder::Builder;
use crate::onnx::call::{Call, Item, Outcome, one};
use crate::onnx::error::OpError;
use crate::{DType, Tensor, Value};

use super::reduce::softmax_at;

/// What a node compares its feature with its threshold for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    LessOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
    Equal,
    NotEqual,
}

const TESTS: [(Test, &str); 6] = [
    (Test::LessOrEqual, "BRANCH_LEQ"),
    (Test::Less, "BRANCH_LT"),
    (Test::GreaterOrEqual, "BRANCH_GTE"),
    (Test::Greater, "BRANCH_GT"),
    (Test::Equal, "BRANCH_EQ"),
    (Test::NotEqual, "BRANCH_NEQ"),
];

/// A node of any tree; a leaf has itself as children.
#[derive(Clone)]
struct Node {
    feature: i64,
    threshold: f64,
    test: Test,
    children: [usize; 2],
    /// Whether NaN takes the first child.
    nan_is_true: bool,
}

/// Trees with votes `(node, target, weight)`.
#[derive(Default)]
struct Forest {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    votes: Vec<(usize, usize, f64)>,
}

/// How the votes of a target are joined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    Average,
    Sum,
    Min,
    Max,
}

fn wrong(what: &str) -> OpError {
    OpError::Attribute {
        name: what.to_owned(),
        found: "a list that does not fit".into(),
        expected: "trees: lists of one length, ids that exist, no cycle".into(),
    }
}

impl Forest {
    fn leaf(&mut self) -> usize {
        let at = self.nodes.len();
        self.nodes.push(Node {
            feature: 0,
            threshold: 0.0,
            test: Test::LessOrEqual,
            children: [at, at],
            nan_is_true: false,
        });
        at
    }

    /// Levels below the roots; an error if a node is its own descendant.
    fn depth(&self) -> Result<usize, OpError> {
        let mut level: Vec<usize> = self.roots.clone();
        for depth in 0..=self.nodes.len() {
            level.sort_unstable();
            level.dedup();
            let inner = level.iter().filter(|&&at| self.nodes[at].children != [at, at]);
            let next: Vec<usize> = inner.flat_map(|&at| self.nodes[at].children).collect();
            if next.is_empty() {
                return Ok(depth);
            }
            level = next;
        }
        Err(wrong("nodes_truenodeids"))
    }

    /// Scores `[rows, targets]` for features `[rows, n]`.
    fn walk(
        &self,
        b: &mut Builder,
        c: &Call,
        x: Value,
        n_targets: usize,
        join: Join,
    ) -> Result<Value, OpError> {
        let [n_rows, n_features] = b.extents(x)[..] else {
            let expected = "[rows, features]".into();
            return Err(OpError::Operand { index: 0, found: b.ty(x).to_string(), expected });
        };
        let depth = self.depth()?;
        let n_trees = self.roots.len();
        if depth > 256 || self.nodes.len().saturating_mul(n_targets) > 1 << 26 || n_trees == 0 {
            return c.form(
                format!("{n_trees} trees of {depth} levels and {} nodes", self.nodes.len()),
                "1 or more trees of at most 256 levels",
            );
        }
        if self.nodes.iter().any(|node| node.feature < 0 || node.feature >= n_features as i64) {
            return Err(wrong("nodes_featureids"));
        }
        let dtype = b.dtype(x);
        let n_nodes = self.nodes.len();
        let table = |b: &mut Builder, of: &dyn Fn(&Node) -> i64| {
            let list: Vec<i64> = self.nodes.iter().map(of).collect();
            b.constant(Tensor::i64(&[n_nodes], &list))
        };
        let features = table(b, &|node| node.feature);
        let yes = table(b, &|node| node.children[0] as i64);
        let no = table(b, &|node| node.children[1] as i64);
        let thresholds: Vec<f64> = self.nodes.iter().map(|node| node.threshold).collect();
        let thresholds = b.constant(Tensor::from_f64(dtype, &[n_nodes], &thresholds));
        let mut kinds: Vec<Test> = self.nodes.iter().map(|node| node.test).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let tests = table(b, &|node| node.test as i64);
        let tracks = self.nodes.iter().any(|node| node.nan_is_true);
        let nan_is_true = table(b, &|node| i64::from(node.nan_is_true));

        let flat = b.reshape(x, &[n_rows * n_features])?;
        let row = b.iota(&[n_rows, 1], 0, DType::I64)?;
        let row = b.with(Op::Mul, row, n_features as f64)?;
        let roots: Vec<i64> = self.roots.iter().map(|&root| root as i64).collect();
        let roots = b.constant(Tensor::i64(&[1, n_trees], &roots));
        let mut at = b.expand(roots, &[n_rows, n_trees])?;
        for _ in 0..depth {
            let feature = b.gather(features, at, 0)?;
            let place = b.add(row, feature)?;
            let value = b.gather(flat, place, 0)?;
            let limit = b.gather(thresholds, at, 0)?;
            let mut taken: Option<Value> = None;
            for &kind in &kinds {
                let passes = match kind {
                    Test::LessOrEqual => b.binary(Op::Le, value, limit)?,
                    Test::Less => b.binary(Op::Lt, value, limit)?,
                    Test::GreaterOrEqual => b.binary(Op::Le, limit, value)?,
                    Test::Greater => b.binary(Op::Lt, limit, value)?,
                    Test::Equal => b.binary(Op::Eq, value, limit)?,
                    Test::NotEqual => {
                        let equal = b.binary(Op::Eq, value, limit)?;
                        b.unary(Op::Not, equal)?
                    }
                };
                taken = Some(match taken {
                    None => passes,
                    Some(taken) => {
                        let test = b.gather(tests, at, 0)?;
                        let this = b.with(Op::Eq, test, kind as i64 as f64)?;
                        b.select(this, passes, taken)?
                    }
                });
            }
            let mut taken = taken.expect("there is a node");
            if tracks {
                let nan = b.unary(Op::IsNan, value)?;
                let follows = b.gather(nan_is_true, at, 0)?;
                let follows = b.with(Op::Eq, follows, 1.0)?;
                taken = b.select(nan, follows, taken)?;
            }
            let (yes, no) = (b.gather(yes, at, 0)?, b.gather(no, at, 0)?);
            at = b.select(taken, yes, no)?;
        }

        // What no vote is for stays out of a minimum or maximum.
        let none = match join {
            Join::Sum | Join::Average => 0.0,
            Join::Min => f64::INFINITY,
            Join::Max => f64::NEG_INFINITY,
        };
        let mut weights = vec![none; n_nodes * n_targets];
        for &(node, target, weight) in &self.votes {
            if target >= n_targets {
                return Err(wrong("target ids"));
            }
            let cell = &mut weights[node * n_targets + target];
            *cell = match join {
                Join::Sum | Join::Average => *cell + weight,
                Join::Min => cell.min(weight),
                Join::Max => cell.max(weight),
            };
        }
        let weights = b.constant(Tensor::from_f64(dtype, &[n_nodes, n_targets], &weights));
        let votes = b.gather(weights, at, 0)?;
        let op = match join {
            Join::Sum | Join::Average => Op::ReduceSum,
            Join::Min => Op::ReduceMin,
            Join::Max => Op::ReduceMax,
        };
        let joined = b.reduce(op, votes, &[1], false)?;
        match join {
            Join::Sum => Ok(joined),
            Join::Average => b.with(Op::Div, joined, n_trees as f64),
            Join::Min | Join::Max => {
                let size = b.unary(Op::Abs, joined)?;
                let (none, zero) = (b.with(Op::Eq, size, f64::INFINITY)?, b.scalar(dtype, 0.0));
                b.select(none, zero, joined)
            }
        }
    }
}

/// A list of floats, or a tensor of them under another name.
fn numbers(b: &Builder, c: &Call, name: &str) -> Result<(Option<Vec<f64>>, DType), OpError> {
    match c.tensor(&format!("{name}_as_tensor"))? {
        Some(proto) => {
            let tensor = b.tensors.read(proto)?;
            Ok((Some(tensor.to_f64()), tensor.dtype))
        }
        None => Ok((c.floats(name)?, DType::F32)),
    }
}

/// The trees of the older operators, whose votes are in lists named `kind_*`; the type of thresholds.
fn old_forest(b: &Builder, c: &Call, kind: &str) -> Result<(Forest, DType), OpError> {
    let ints = |name: String| c.ints(&name)?.ok_or_else(|| wrong(&name));
    let (tree_ids, node_ids) = (ints("nodes_treeids".into())?, ints("nodes_nodeids".into())?);
    let modes = c.words("nodes_modes")?.ok_or_else(|| wrong("nodes_modes"))?;
    let features = ints("nodes_featureids".into())?;
    let (yes, no) = (ints("nodes_truenodeids".into())?, ints("nodes_falsenodeids".into())?);
    let (thresholds, dtype) = numbers(b, c, "nodes_values")?;
    let thresholds = thresholds.ok_or_else(|| wrong("nodes_values"))?;
    let tracks = c.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    for name in ["nodes_hitrates", "nodes_hitrates_as_tensor"] {
        c.has(name);
    }
    let n = tree_ids.len();
    let lengths =
        [node_ids.len(), modes.len(), features.len(), yes.len(), no.len(), thresholds.len()];
    if lengths.iter().any(|&length| length != n) {
        return Err(wrong("nodes_*"));
    }
    let mut index: BTreeMap<(i64, i64), usize> = BTreeMap::new();
    for i in 0..n {
        index.insert((tree_ids[i], node_ids[i]), i);
    }
    let find = |tree: i64, node: i64, name: &str| {
        index.get(&(tree, node)).copied().ok_or_else(|| wrong(name))
    };
    let mut forest = Forest::default();
    for i in 0..n {
        if modes[i] == "LEAF" {
            forest.leaf();
            continue;
        }
        let Some((test, _)) = TESTS.iter().find(|(_, name)| *name == modes[i]) else {
            return c.form(format!("node mode `{}`", modes[i]), "comparisons and leaves");
        };
        forest.nodes.push(Node {
            feature: features[i],
            threshold: thresholds[i],
            test: *test,
            children: [
                find(tree_ids[i], yes[i], "nodes_truenodeids")?,
                find(tree_ids[i], no[i], "nodes_falsenodeids")?,
            ],
            nan_is_true: tracks.get(i).is_some_and(|&it| it != 0),
        });
    }
    // The root of a tree is its first node.
    let mut seen = std::collections::BTreeSet::new();
    forest.roots = (0..n).filter(|&i| seen.insert(tree_ids[i])).collect();
    let (trees, nodes) = (ints(format!("{kind}_treeids"))?, ints(format!("{kind}_nodeids"))?);
    let targets = ints(format!("{kind}_ids"))?;
    let weights = numbers(b, c, &format!("{kind}_weights"))?.0.ok_or_else(|| wrong("weights"))?;
    if [nodes.len(), targets.len(), weights.len()].iter().any(|&length| length != trees.len()) {
        return Err(wrong("votes"));
    }
    for i in 0..trees.len() {
        let target = usize::try_from(targets[i]).map_err(|_| wrong("ids of votes"))?;
        forest.votes.push((find(trees[i], nodes[i], "nodes of votes")?, target, weights[i]));
    }
    Ok((forest, dtype))
}

/// A function of all scores of a row.
fn post_transform(b: &mut Builder, c: &Call, name: &str, x: Value) -> Result<Value, OpError> {
    match name {
        "NONE" => Ok(x),
        "LOGISTIC" => b.unary(Op::Sigmoid, x),
        "SOFTMAX" => softmax_at(b, x, 1),
        "SOFTMAX_ZERO" => {
            // Scores of 0 stay 0.
            let (zero, low) = (b.with(Op::Eq, x, 0.0)?, b.scalar_like(x, f64::NEG_INFINITY));
            let shown = b.select(zero, low, x)?;
            let soft = softmax_at(b, shown, 1)?;
            let none = b.scalar_like(x, 0.0);
            b.select(zero, none, soft)
        }
        other => {
            c.form(format!("post transform `{other}`"), "NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO")
        }
    }
}

/// Adds one base value per target, or the same to all.
fn with_base(b: &mut Builder, c: &Call, scores: Value) -> Result<Value, OpError> {
    let Some(base) = numbers(b, c, "base_values")?.0.filter(|base| !base.is_empty()) else {
        return Ok(scores);
    };
    let n = b.extents(scores)[1];
    if base.len() != n && base.len() != 1 {
        return Err(wrong("base_values"));
    }
    let base = b.constant(Tensor::from_f64(b.dtype(scores), &[base.len()], &base));
    b.add(scores, base)
}

pub(super) fn regressor(b: &mut Builder, c: &Call) -> Outcome {
    let (forest, dtype) = old_forest(b, c, "target")?;
    let n_targets = usize::try_from(c.int("n_targets", 1)?).unwrap_or(0).clamp(1, 1 << 20);
    let join = match c.word("aggregate_function", "SUM")?.as_str() {
        "SUM" => Join::Sum,
        "AVERAGE" => Join::Average,
        "MIN" => Join::Min,
        "MAX" => Join::Max,
        other => return c.form(format!("aggregate_function `{other}`"), "SUM, AVERAGE, MIN, MAX"),
    };
    let x = b.cast(c.x(0)?, dtype)?;
    let scores = forest.walk(b, c, x, n_targets, join)?;
    let scores = with_base(b, c, scores)?;
    let name = c.word("post_transform", "NONE")?;
    let scores = post_transform(b, c, &name, scores)?;
    one(b.cast(scores, DType::F32)?)
}

/// The label of the largest score, and all scores. With two labels and votes for one class only, the votes
/// are the score of the second label: its probability if no weight is negative, else its margin.
pub(super) fn classifier(b: &mut Builder, c: &Call) -> Outcome {
    let (mut forest, dtype) = old_forest(b, c, "class")?;
    let strings = c.words("classlabels_strings")?.unwrap_or_default();
    let labels = c.ints("classlabels_int64s")?.unwrap_or_default();
    let n_classes = labels.len().max(strings.len());
    if n_classes == 0 {
        return Err(OpError::MissingAttribute { name: "classlabels_int64s" });
    }
    let x = b.cast(c.x(0)?, dtype)?;
    let first = forest.votes.first().map_or(0, |vote| vote.1);
    let binary = n_classes == 2 && forest.votes.iter().all(|vote| vote.1 == first);
    let name = c.word("post_transform", "NONE")?;
    let (scores, best) = if binary {
        let positive = forest.votes.iter().all(|vote| vote.2 >= 0.0);
        forest.votes.iter_mut().for_each(|vote| vote.1 = 0);
        let score = forest.walk(b, c, x, 1, Join::Sum)?;
        let base = numbers(b, c, "base_values")?.0.unwrap_or_default();
        let base = base.get(1).or(base.first()).copied().unwrap_or(0.0);
        let score = if base == 0.0 { score } else { b.with(Op::Add, score, base)? };
        let (other, limit) = if positive && name == "NONE" {
            let unit = b.scalar_like(score, 1.0);
            (b.sub(unit, score)?, 0.5)
        } else {
            (b.unary(Op::Neg, score)?, if positive { 0.5 } else { 0.0 })
        };
        let limit = b.scalar_like(score, limit);
        let second = b.binary(Op::Lt, limit, score)?;
        let best = b.cast(second, DType::I64)?;
        (b.concat(&[other, score], 1)?, best)
    } else {
        let scores = forest.walk(b, c, x, n_classes, Join::Sum)?;
        let scores = with_base(b, c, scores)?;
        let attrs = vec![crate::graph::Attr::Int(1), crate::graph::Attr::Int(0)];
        (scores, b.apply(Op::ArgMax, attrs, &[scores])?)
    };
    let scores = post_transform(b, c, &name, scores)?;
    let scores = b.cast(scores, DType::F32)?;
    let best = b.squeeze(best, 1)?;
    let label = if strings.is_empty() {
        let labels = b.ints(&labels);
        b.gather(labels, best, 0)?.into()
    } else {
        Item::Foreign("a tensor of strings".into())
    };
    Ok(vec![label, scores.into()])
}

/// The ensemble of version 5: nodes and leaves apart, and tests of membership, which become chains of
/// equalities.
pub(super) fn ensemble(b: &mut Builder, c: &Call) -> Outcome {
    let ints = |name: &str| c.ints(name)?.ok_or_else(|| wrong(name));
    let tensor = |name: &str| -> Result<Tensor, OpError> {
        Ok(b.tensors.read(c.tensor(name)?.ok_or_else(|| wrong(name))?)?)
    };
    let (roots, features) = (ints("tree_roots")?, ints("nodes_featureids")?);
    let modes = tensor("nodes_modes")?.to_i64();
    let splits = tensor("nodes_splits")?;
    let (dtype, splits) = (splits.dtype, splits.to_f64());
    let (yes, no) = (ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?);
    let (yes_leaf, no_leaf) = (ints("nodes_trueleafs")?, ints("nodes_falseleafs")?);
    let tracks = c.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    c.has("nodes_hitrates");
    let (weights, targets) = (tensor("leaf_weights")?.to_f64(), ints("leaf_targetids")?);
    let members = match c.tensor("membership_values")? {
        Some(proto) => b.tensors.read(proto)?.to_f64(),
        None => vec![],
    };
    let n = features.len();
    let lengths = [modes.len(), splits.len(), yes.len(), no.len(), yes_leaf.len(), no_leaf.len()];
    if lengths.iter().any(|&length| length != n) || weights.len() != targets.len() {
        return Err(wrong("nodes_*"));
    }
    let mut sets = members.split(|x| x.is_nan());
    let mut forest = Forest::default();
    // Inner nodes first, at their own index; then the leaves; then the links of chains.
    for i in 0..n {
        forest.nodes.push(Node {
            feature: features[i],
            threshold: splits[i],
            test: Test::Equal,
            children: [0, 0],
            nan_is_true: tracks.get(i).is_some_and(|&it| it != 0),
        });
    }
    for (&weight, &target) in weights.iter().zip(&targets) {
        let at = forest.leaf();
        let target = usize::try_from(target).map_err(|_| wrong("leaf_targetids"))?;
        forest.votes.push((at, target, weight));
    }
    let child = |id: i64, leaf: i64| -> Result<usize, OpError> {
        let limit = if leaf != 0 { weights.len() } else { n };
        let at = usize::try_from(id).ok().filter(|&at| at < limit);
        let at = at.ok_or_else(|| wrong("nodes_truenodeids and nodes_falsenodeids"))?;
        Ok(if leaf != 0 { n + at } else { at })
    };
    for i in 0..n {
        let children = [child(yes[i], yes_leaf[i])?, child(no[i], no_leaf[i])?];
        if modes[i] == 6 {
            let set = sets.next().ok_or_else(|| wrong("membership_values"))?;
            let mut at = i;
            for (k, &member) in set.iter().enumerate() {
                let last = k + 1 == set.len();
                let next = if last { children[1] } else { forest.nodes.len() };
                forest.nodes[at].threshold = member;
                forest.nodes[at].children = [children[0], next];
                if !last {
                    let link = forest.nodes[at].clone();
                    forest.nodes.push(link);
                    at = next;
                }
            }
            if set.is_empty() {
                forest.nodes[i].children = [children[1]; 2];
            }
            continue;
        }
        let Some((test, _)) = usize::try_from(modes[i]).ok().and_then(|mode| TESTS.get(mode))
        else {
            return c.form(format!("node mode {}", modes[i]), "modes 0 to 6");
        };
        forest.nodes[i].test = *test;
        forest.nodes[i].children = children;
    }
    for root in roots {
        let at = usize::try_from(root).ok().filter(|&at| at < n);
        forest.roots.push(at.ok_or_else(|| wrong("tree_roots"))?);
    }
    let join = match c.int("aggregate_function", 1)? {
        0 => Join::Average,
        1 => Join::Sum,
        2 => Join::Min,
        3 => Join::Max,
        other => return c.form(format!("aggregate_function {other}"), "0 to 3"),
    };
    let n_targets = usize::try_from(c.int("n_targets", 1)?).unwrap_or(0).clamp(1, 1 << 20);
    let name = match c.int("post_transform", 0)? {
        0 => "NONE",
        1 => "SOFTMAX",
        2 => "LOGISTIC",
        3 => "SOFTMAX_ZERO",
        _ => "PROBIT",
    };
    let given = b.dtype(c.x(0)?);
    let x = b.cast(c.x(0)?, dtype)?;
    let scores = forest.walk(b, c, x, n_targets, join)?;
    let scores = post_transform(b, c, name, scores)?;
    one(b.cast(scores, given)?)
}

/// 1 above the threshold, else 0.
pub(super) fn binarizer(b: &mut Builder, c: &Call) -> Outcome {
    let x = c.x(0)?;
    let limit = b.scalar_like(x, c.float("threshold", 0.0)?);
    let above = b.binary(Op::Lt, limit, x)?;
    let dtype = b.dtype(x);
    one(b.cast(above, dtype)?)
}

/// Columns of the last axis.
pub(super) fn feature_extractor(b: &mut Builder, c: &Call) -> Outcome {
    let (x, columns) = (c.x(0)?, c.x(1)?);
    let n = b.ty(columns).n_elems();
    let columns = b.reshape(columns, &[n])?;
    let rank = b.rank(x);
    let Some(last) = rank.checked_sub(1) else {
        return Err(OpError::Axis { axis: -1, rank });
    };
    let picked = b.gather(x, columns, last)?;
    // A vector becomes a row.
    one(if rank == 1 { b.unsqueeze(picked, 0)? } else { picked })
}

/// `x W' + b` per row, and a function of it.
pub(super) fn linear_regressor(b: &mut Builder, c: &Call) -> Outcome {
    let x = b.cast(c.x(0)?, DType::F32)?;
    let n_targets = usize::try_from(c.int("targets", 1)?).unwrap_or(0).clamp(1, 1 << 20);
    let weights =
        c.floats("coefficients")?.ok_or(OpError::MissingAttribute { name: "coefficients" })?;
    let [_, n] = b.extents(x)[..] else {
        let expected = "[rows, features]".into();
        return Err(OpError::Operand { index: 0, found: b.ty(x).to_string(), expected });
    };
    if weights.len() != n * n_targets {
        return Err(wrong("coefficients"));
    }
    let weights = b.constant(Tensor::from_f64(DType::F32, &[n_targets, n], &weights));
    let weights = b.transpose(weights, &[1, 0])?;
    let mut y = b.matmul(x, weights)?;
    if let Some(bias) = c.floats("intercepts")?.filter(|bias| !bias.is_empty()) {
        if bias.len() != n_targets {
            return Err(wrong("intercepts"));
        }
        let bias = b.constant(Tensor::from_f64(DType::F32, &[n_targets], &bias));
        y = b.add(y, bias)?;
    }
    let name = c.word("post_transform", "NONE")?;
    one(post_transform(b, c, &name, y)?)
}

/// Rows divided by their norm.
pub(super) fn normalizer(b: &mut Builder, c: &Call) -> Outcome {
    let x = b.cast(c.x(0)?, DType::F32)?;
    let last = match b.rank(x) {
        0 => return Err(OpError::Axis { axis: -1, rank: 0 }),
        rank => rank - 1,
    };
    let norm = match c.word("norm", "MAX")?.as_str() {
        "MAX" => b.reduce(Op::ReduceMax, x, &[last], true)?,
        "L1" => {
            let size = b.unary(Op::Abs, x)?;
            b.reduce(Op::ReduceSum, size, &[last], true)?
        }
        "L2" => {
            let square = b.mul(x, x)?;
            let sum = b.reduce(Op::ReduceSum, square, &[last], true)?;
            b.unary(Op::Sqrt, sum)?
        }
        other => return c.form(format!("norm `{other}`"), "MAX, L1 and L2"),
    };
    let (none, unit) = (b.with(Op::Eq, norm, 0.0)?, b.scalar_like(x, 1.0));
    let norm = b.select(none, unit, norm)?;
    one(b.div(x, norm)?)
}
