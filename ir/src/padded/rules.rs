//! The walk, and how each operator is padded.

use super::align::{Pair, align};
use super::axis::{Axis, Factor};
use super::{At, Choices, NotPaddable, PerValue, pad, refused, same_tensor};
use crate::graph::{Attr, Attrs, NodeKind, Op, OpClass};
use crate::{DType, Graph, Tensor, Value};

mod moves;
mod sums;

type Result<T> = std::result::Result<T, NotPaddable>;

pub(super) struct Walked {
    pub(super) graph: Graph,
    pub(super) choices: Choices,
    pub(super) at: At,
}

/// A padded value.
#[derive(Clone, Debug)]
struct Done {
    value: Value,
    axes: Vec<Axis>,
}

/// A node with its counterpart and its padded operands.
struct Site<'a> {
    node: Value,
    op: Op,
    /// At the largest shapes.
    attrs: &'a Attrs,
    /// At this shape; `None` if the node changes nothing there.
    here: Option<&'a Attrs>,
    args: Vec<Done>,
    /// Extents of the result at this shape.
    n: Vec<usize>,
    /// Extents of the result at the largest.
    most: Vec<usize>,
}

struct Walk<'a> {
    most: &'a Graph,
    less: &'a Graph,
    out: Graph,
    /// The node that is being padded.
    node: Value,
    choices: Choices,
    follow: Option<&'a Choices>,
    /// Numbers that are inputs: what they are at this shape, and at the largest.
    numbers: Vec<([i64; 2], Value)>,
    at: At,
}

/// Writes the padded graph of `most` with the numbers of `less`; with `follow`, deciding as before.
pub(super) fn walk(most: &Graph, less: &Graph, follow: Option<&Choices>) -> Result<Walked> {
    let pairs = align(most, less)?;
    let mut walk = Walk {
        most,
        less,
        out: Graph::new(most.name.clone()),
        node: Value::from_u32(0),
        choices: Choices::default(),
        follow,
        numbers: Vec::new(),
        at: At { inputs: Vec::new(), extra: Vec::new(), outputs: Vec::new() },
    };
    let mut done: PerValue<Option<Done>> = PerValue::new();
    // The model's inputs first: what is added comes after them.
    let inputs: Vec<Value> = most.inputs().collect();
    for &input in &inputs {
        let pair = pairs[input].expect("inputs are aligned");
        walk.node = input;
        done[input] = Some(walk.input(input, pair)?);
    }
    for (value, node) in most.nodes.iter() {
        let Some(pair) = pairs[value] else { continue };
        walk.node = value;
        done[value] = match &node.kind {
            NodeKind::Input { .. } => continue,
            NodeKind::Const(_) => Some(walk.constant(value, pair)?),
            NodeKind::Apply(..) if matches!(pair, Pair::Known(_)) => {
                Some(walk.constant(value, pair)?)
            }
            NodeKind::Apply(op, attrs, args) => {
                let here = match (pair, &less.nodes[pair.value()].kind) {
                    (Pair::Same(_), NodeKind::Apply(_, attrs, _)) => Some(attrs),
                    _ => None,
                };
                let args = args.iter().map(|&arg| done[arg].clone().expect("defined before"));
                let site = Site {
                    node: value,
                    op: *op,
                    attrs,
                    here,
                    args: args.collect(),
                    n: less.ty(pair.value()).extents(),
                    most: node.ty.extents(),
                };
                Some(walk.checked(site)?)
            }
        };
    }
    for &output in &most.outputs {
        let done = done[output].as_ref().expect("outputs are aligned");
        walk.out.outputs.push(done.value);
        walk.at.outputs.push(done.axes.clone());
    }
    walk.out.output_names.clone_from(&most.output_names);
    Ok(Walked { graph: walk.out, choices: walk.choices, at: walk.at })
}

impl Walk<'_> {
    fn refuse<T>(&self, reason: impl std::fmt::Display) -> Result<T> {
        Err(refused(self.most, self.node, reason))
    }

    /// Whether something may differ between shapes: decided by the first two, and then the same.
    fn varies(&mut self, differs: bool) -> Result<bool> {
        let varies = match self.follow {
            None => differs,
            Some(before) => match before.varies.get(self.choices.varies.len()) {
                Some(&varies) => varies,
                None => return self.refuse("it needs more than at other shapes"),
            },
        };
        if differs && !varies {
            return self.refuse("something differs here that was equal at other shapes");
        }
        self.choices.varies.push(varies);
        Ok(varies)
    }

    /// A part of an axis.
    fn factor(&mut self, n: usize, most: usize) -> Result<Factor> {
        if n > most || n == 0 {
            return self.refuse(format!("it has extent {n}; 1 to {most} are there"));
        }
        Ok(Factor { n, most, varies: self.varies(n != most)? })
    }

    fn axis(&mut self, n: usize, most: usize) -> Result<Axis> {
        Ok(Axis::of(self.factor(n, most)?))
    }

    fn axes(&mut self, n: &[usize], most: &[usize]) -> Result<Vec<Axis>> {
        n.iter().zip(most).map(|(&n, &most)| self.axis(n, most)).collect()
    }

    /// A number of this shape, as an `i32` scalar; what it is at the largest tells it from others.
    fn number(&mut self, number: i64, most: i64) -> Result<Value> {
        let both = [number, most];
        let id = match self.follow {
            None => {
                let known = self.numbers.iter().position(|&(known, _)| known == both);
                known.unwrap_or(self.numbers.len())
            }
            Some(before) => match before.numbers.get(self.choices.numbers.len()) {
                Some(&id) => id,
                None => return self.refuse("it needs more than at other shapes"),
            },
        };
        if id >= self.numbers.len() {
            let Ok(small) = i32::try_from(number) else {
                return self.refuse(format!("{number} is no index"));
            };
            let value =
                self.extra("extent", Tensor::new(DType::I32, &[], small.to_le_bytes().to_vec()));
            self.numbers.push((both, value));
        } else if self.numbers[id].0 != both {
            return self.refuse("two extents differ here that were equal at other shapes");
        }
        self.choices.numbers.push(id);
        Ok(self.numbers[id].1)
    }

    /// An additional input.
    fn extra(&mut self, what: &str, tensor: Tensor) -> Value {
        let name = format!("{what}#{}", self.at.extra.len());
        let value = self.out.input(name, tensor.ty());
        self.at.extra.push(tensor);
        value
    }

    fn input(&mut self, value: Value, pair: Pair) -> Result<Done> {
        let node = &self.most.nodes[value];
        let (n, most) = (self.less.ty(pair.value()).extents(), node.ty.extents());
        let axes = self.axes(&n, &most)?;
        self.whole_bytes(node.ty.dtype, &axes)?;
        self.at.inputs.push(axes.clone());
        let NodeKind::Input { name, .. } = &node.kind else { unreachable!("it is an input") };
        Ok(Done { value: self.out.input(name.clone(), node.ty.clone()), axes })
    }

    /// A constant, or a table that is another one at another shape.
    fn constant(&mut self, value: Value, pair: Pair) -> Result<Done> {
        let NodeKind::Const(here) = &self.less.nodes[pair.value()].kind else {
            return self.refuse("it is a constant only at some shapes");
        };
        let node = &self.most.nodes[value];
        let most = node.ty.extents();
        let same = match &node.kind {
            NodeKind::Const(tensor) if same_tensor(tensor, here) => Some(tensor),
            _ => None,
        };
        if self.varies(same.is_none())? {
            let axes = self.axes(&here.extents, &most)?;
            self.whole_bytes(node.ty.dtype, &axes)?;
            let value = self.extra("table", pad(here, &axes));
            return Ok(Done { value, axes });
        }
        let tensor = same.expect("it does not vary");
        let axes = most.iter().map(|&n| Axis::fixed(n)).collect();
        Ok(Done { value: self.out.constant(tensor.clone()), axes })
    }

    fn whole_bytes(&self, dtype: DType, axes: &[Axis]) -> Result<()> {
        match dtype.bits().is_multiple_of(8) || axes.iter().all(Axis::is_fixed) {
            true => Ok(()),
            false => self.refuse(format!("its extents vary, and elements of {dtype} share bytes")),
        }
    }

    /// The padded node; its axes have to be what types say.
    fn checked(&mut self, site: Site<'_>) -> Result<Done> {
        let node = site.node;
        let (n, most) = (site.n.clone(), site.most.clone());
        let done = self.apply(site)?;
        let found: Vec<usize> = done.axes.iter().map(Axis::n).collect();
        let places: Vec<usize> = done.axes.iter().map(Axis::most).collect();
        if found != n || places != most || self.out.ty(done.value) != self.most.ty(node) {
            return self.refuse(format!(
                "{n:?} of {most:?} is not what its operands give ({found:?} of {places:?})"
            ));
        }
        Ok(done)
    }

    fn apply(&mut self, site: Site<'_>) -> Result<Done> {
        if site.args.iter().any(|arg| arg.axes.iter().any(|axis| axis.n() == 0)) {
            return self.refuse("an operand has no elements");
        }
        match site.op.spec().class {
            OpClass::Map => {
                self.same_attrs(&site, &[])?;
                let axes = self.broadcast(&site.args.iter().collect::<Vec<_>>())?;
                let value = self.emit(site.op, site.attrs.clone(), &site.args)?;
                Ok(Done { value, axes })
            }
            OpClass::Generate => {
                // What an index is does not depend on how many there are.
                self.same_attrs(&site, &[0])?;
                let axes = self.axes(&site.n, &site.most)?;
                let value = self.emit(site.op, site.attrs.clone(), &[])?;
                Ok(Done { value, axes })
            }
            OpClass::Move => self.movement(&site),
            OpClass::Reduce => self.reduce(&site),
            OpClass::Window | OpClass::Contract => self.contract(&site),
        }
    }

    /// Whether the attributes are the same at this shape, apart from those of the positions named.
    fn same_attrs(&self, site: &Site<'_>, but: &[usize]) -> Result<()> {
        let Some(here) = site.here else {
            return self.refuse("import leaves it out at some shapes");
        };
        let same = site.attrs.0.iter().zip(&here.0).enumerate();
        match same.clone().all(|(at, (a, b))| a == b || but.contains(&at)) {
            true => Ok(()),
            false => self.refuse("its attributes differ between shapes"),
        }
    }

    /// The axes of a result whose operands are broadcast.
    fn broadcast(&self, args: &[&Done]) -> Result<Vec<Axis>> {
        let rank = args.iter().map(|arg| arg.axes.len()).max().unwrap_or(0);
        let mut axes = vec![Axis::default(); rank];
        for arg in args {
            let behind = &mut axes[rank - arg.axes.len()..];
            for (axis, own) in behind.iter_mut().zip(&arg.axes) {
                if axis.most() == 1 {
                    axis.clone_from(own);
                } else if own.most() != 1 && axis != own {
                    return self.refuse("its operands are padded in different ways");
                }
            }
        }
        Ok(axes)
    }

    // What rules write.

    fn emit(&mut self, op: Op, attrs: impl Into<Attrs>, args: &[Done]) -> Result<Value> {
        let args: Vec<Value> = args.iter().map(|arg| arg.value).collect();
        self.op(op, attrs, &args)
    }

    fn op(&mut self, op: Op, attrs: impl Into<Attrs>, args: &[Value]) -> Result<Value> {
        match self.out.apply(op, attrs, args) {
            Ok(value) => {
                self.out.nodes[value].sources.clone_from(&self.most.nodes[self.node].sources);
                Ok(value)
            }
            Err(err) => self.refuse(err),
        }
    }

    fn small(&mut self, dtype: DType, x: i64) -> Value {
        self.out.constant(Tensor::from_i64(dtype, &[], &[x]))
    }

    /// The index along one axis of a tensor of the given rank: `[1, …, n, …, 1]`.
    fn iota(&mut self, n: usize, at: usize, rank: usize) -> Result<Value> {
        let mut shape = vec![1; rank];
        shape[at] = n as i64;
        self.op(
            Op::Iota,
            vec![Attr::Ints(shape), Attr::Int(at as i64), Attr::DType(DType::I32)],
            &[],
        )
    }

    /// Where an axis has elements: a predicate of `[1, …, places, …, 1]`; `None`: everywhere.
    fn mask(&mut self, axis: &Axis, at: usize, rank: usize) -> Result<Option<Value>> {
        if axis.is_fixed() {
            return Ok(None);
        }
        let factors = axis.factors().to_vec();
        let single = factors.len() == 1;
        let mut all: Option<Value> = None;
        for (nth, factor) in factors.iter().enumerate().filter(|(_, factor)| factor.varies) {
            let (at, rank) = if single { (at, rank) } else { (nth, factors.len()) };
            let (index, end) = (
                self.iota(factor.most, at, rank)?,
                self.number(factor.n as i64, factor.most as i64)?,
            );
            let inside = self.op(Op::Lt, Attrs::none(), &[index, end])?;
            all = Some(match all {
                None => inside,
                Some(all) => self.op(Op::And, Attrs::none(), &[all, inside])?,
            });
        }
        let all = all.expect("an axis that varies has a part that does");
        if single {
            return Ok(Some(all));
        }
        let places: Vec<i64> = factors.iter().map(|factor| factor.most as i64).collect();
        let mut shape = vec![1; rank];
        shape[at] = axis.most() as i64;
        let all = match self.out.ty(all).extents().iter().all(|&n| n == 1) {
            true => all,
            false => self.op(Op::Expand, vec![Attr::Ints(places)], &[all])?,
        };
        self.op(Op::Reshape, vec![Attr::Ints(shape)], &[all]).map(Some)
    }

    /// The value with `fill` where an axis of those named has no elements.
    fn masked(&mut self, x: &Done, axes: &[usize], fill: Tensor) -> Result<Value> {
        let mut all: Option<Value> = None;
        for &at in axes {
            if let Some(inside) = self.mask(&x.axes[at], at, x.axes.len())? {
                all = Some(match all {
                    None => inside,
                    Some(all) => self.op(Op::And, Attrs::none(), &[all, inside])?,
                });
            }
        }
        let Some(all) = all else { return Ok(x.value) };
        let fill = self.out.constant(fill);
        self.op(Op::Select, Attrs::none(), &[all, x.value, fill])
    }
}
