//! Draws what a rule's variables stand for: tensors from their types, attributes from what the operator
//! that they belong to takes.

use std::collections::BTreeMap;

use egg::{ENodeOrVar, Language, PatternAst};
use eggine_ir::{Attr, Attrs, DType, Op, Tensor, TensorType};

use crate::lang::{ENode, has_attrs};
use crate::literal::Literal;
use crate::rule::{DTypeSpec, Rule, Scope, Soundness, VarSpec, VarType};

/// Values at which float identities break.
const SPECIAL: &[f32] = &[
    0.0,
    -0.0,
    1.0,
    -1.0,
    f32::MIN_POSITIVE / 2.0,
    -f32::MIN_POSITIVE,
    1.0e-45,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// Constants that stand for "any uniform one".
pub(super) const CONSTANTS: &[f64] = &[2.0, 0.5, 0.25, -4.0, 3.0, 0.1, 1.0, -0.3, 1.0e30, 1.0e-40];

/// How large the drawn values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Dimensions of a shape.
    pub(super) max_rank: usize,
    /// Elements of a dimension.
    pub(super) max_extent: usize,
    /// Operands of a variadic operator, at least 2.
    pub(super) max_operands: usize,
}

/// What rules are tested on.
pub(super) const FULL: Size = Size { max_rank: 3, max_extent: 3, max_operands: 4 };

pub(super) struct Rng {
    state: u64,
    size: Size,
    /// Only numbers of ordinary size: among infinities and powers of two, rounding hardly shows.
    ordinary: bool,
}

impl Rng {
    pub(super) fn new(seed: u64, size: Size) -> Self {
        Self { state: seed, size, ordinary: false }
    }

    pub(super) fn next(&mut self) -> u64 {
        // splitmix64 (Steele, Lea and Flood 2014).
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn extent(&mut self) -> usize {
        1 + self.below(self.size.max_extent)
    }

    fn extents(&mut self, max_rank: usize) -> Vec<usize> {
        let max_rank = max_rank.min(self.size.max_rank);
        (0..self.below(max_rank + 1)).map(|_| self.extent()).collect()
    }

    pub(super) fn n_operands(&mut self) -> usize {
        2 + self.below(self.size.max_operands - 1)
    }

    fn float(&mut self, soundness: Soundness) -> f64 {
        if soundness == Soundness::Real || self.ordinary {
            let size = 0.25 + 1.75 * (self.next() >> 11) as f64 / (1u64 << 53) as f64;
            return if self.one_in(3) { -size } else { size };
        }
        match self.below(4) {
            0 | 1 => f64::from(self.pick(SPECIAL)),
            2 => f64::from(f32::from_bits(self.next() as u32)),
            _ => self.below(65) as f64 / 8.0 - 4.0,
        }
    }

    fn integer(&mut self) -> i64 {
        if self.one_in(2) { self.below(7) as i64 - 3 } else { self.next() as i64 }
    }

    fn tensor(&mut self, dtype: DType, extents: &[usize], soundness: Soundness) -> Tensor {
        let n = extents.iter().product();
        if dtype.is_float() {
            let elements: Vec<f64> = (0..n).map(|_| self.float(soundness)).collect();
            return Tensor::from_f64(dtype, extents, &elements);
        }
        let mut element = || match dtype {
            DType::Bool => self.below(2) as i64,
            _ => self.integer(),
        };
        let elements: Vec<i64> = (0..n).map(|_| element()).collect();
        Tensor::from_i64(dtype, extents, &elements)
    }
}

/// A variable's value.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    Attrs(Attrs),
    Value { tensor: Tensor, ty: TensorType, literal: Option<Literal>, known: bool },
}

/// What variables stand for, by name without the `?`.
pub(super) type Env = BTreeMap<String, Bound>;

pub(super) struct EnvScope<'a>(pub(super) &'a Env);

impl Scope for EnvScope<'_> {
    fn ty(&self, var: &str) -> Option<&TensorType> {
        match self.0.get(var)? {
            Bound::Value { ty, .. } => Some(ty),
            Bound::Attrs(_) => None,
        }
    }

    fn attrs(&self, var: &str) -> Option<&Attrs> {
        match self.0.get(var)? {
            Bound::Attrs(attrs) => Some(attrs),
            Bound::Value { .. } => None,
        }
    }

    fn literal(&self, var: &str) -> Option<&Literal> {
        match self.0.get(var)? {
            Bound::Value { literal, .. } => literal.as_ref(),
            Bound::Attrs(_) => None,
        }
    }

    fn known(&self, var: &str) -> bool {
        matches!(self.0.get(var), Some(Bound::Value { known: true, .. }))
    }
}

/// The names that a typed variable has once lists are written out.
pub(super) fn names_of(spec: &VarSpec, n_operands: usize) -> Vec<String> {
    match spec.list {
        true => (0..n_operands).map(|i| format!("{}{i}", spec.name)).collect(),
        false => vec![spec.name.to_owned()],
    }
}

/// The element type in which a rule's floats are drawn: that of the constants written in it, if any.
/// Otherwise `f32` where rounding matters, and `f64` where the reals do.
pub(super) fn float_type(soundness: Soundness, sides: [&PatternAst<ENode>; 2]) -> DType {
    let nodes = sides.into_iter().flat_map(|side| side.as_ref());
    let mut constants = nodes.filter_map(|node| match node {
        ENodeOrVar::ENode(ENode::Const(literal)) => Some(literal.ty().dtype),
        _ => None,
    });
    let default = match soundness {
        Soundness::Exact => DType::F32,
        Soundness::Real => DType::F64,
    };
    constants.find(|dtype| dtype.is_float()).unwrap_or(default)
}

/// Draws tensors for the typed variables and for those that only the pattern mentions.
pub(super) fn draw_values(
    rule: &Rule,
    specs: &[VarSpec],
    lhs: &PatternAst<ENode>,
    float: DType,
    n_operands: usize,
    rng: &mut Rng,
) -> Env {
    rng.ordinary = rng.one_in(3);
    // What takes any element type is true of integers, too, or it is not true.
    let any = match rng.one_in(4) {
        true => rng.pick(&[DType::I64, DType::I32, DType::U8, DType::Bool]),
        false => float,
    };
    let mut env = Env::new();
    let mut extents: BTreeMap<char, usize> = BTreeMap::new();
    let mut shapes: BTreeMap<char, Vec<usize>> = BTreeMap::new();
    // Operands of a list of any shapes differ along one axis at most, counted from the right, or they
    // would hardly ever go together.
    let anything = VarType::Extents { lead: Some('_'), dims: Vec::new(), rest: None };
    let (mut uneven, mut along) = (None, Vec::new());
    if specs.iter().any(|spec| spec.list && spec.ty.is_open()) {
        uneven = rng.one_in(2).then(|| rng.below(3));
        along = (0..n_operands).map(|_| rng.extent()).collect();
    }
    for spec in specs {
        let shape = match &spec.ty {
            any if *any == anything => rng.extents(3),
            VarType::BroadcastsTo(letter) => {
                let target = shapes.get(letter).cloned().unwrap_or_default();
                let skip = rng.below(target.len() + 1);
                target[skip..].iter().map(|&n| if rng.one_in(3) { 1 } else { n }).collect()
            }
            VarType::Extents { lead, dims, rest } => {
                let mut shape: Vec<usize> = match lead {
                    Some(letter) => {
                        let max_rank = if dims.is_empty() { 3 } else { 2 };
                        shapes.entry(*letter).or_insert_with(|| rng.extents(max_rank)).clone()
                    }
                    None => Vec::new(),
                };
                shape.extend(dims.iter().map(|&letter| match letter {
                    '_' => rng.extent(),
                    letter => *extents.entry(letter).or_insert_with(|| rng.extent()),
                }));
                if let Some(letter) = rest {
                    let further = rng.size.max_rank.clamp(1, 2);
                    let drawn = || (0..further).map(|_| rng.extent()).collect();
                    shape.extend(shapes.entry(*letter).or_insert_with(drawn).iter());
                }
                shape
            }
        };
        let dtype = match spec.dtype {
            DTypeSpec::Float => float,
            DTypeSpec::Is(dtype) => dtype,
            DTypeSpec::Any => any,
        };
        for (i, name) in names_of(spec, n_operands).into_iter().enumerate() {
            let mut shape = shape.clone();
            match &spec.ty {
                any if spec.list && *any == anything => {
                    if let Some(axis) = uneven.and_then(|axis| shape.len().checked_sub(axis + 1)) {
                        shape[axis] = along[i];
                    }
                }
                VarType::Extents { lead: None, dims, .. } if spec.list => {
                    for (n, _) in shape.iter_mut().zip(dims).filter(|(_, letter)| **letter == '_') {
                        *n = along[i];
                    }
                }
                _ => (),
            }
            let ty = TensorType::fixed(dtype, &shape);
            let literal = spec.uniform.map(|value| {
                Literal::splat(&ty, value.map_or_else(|| rng.pick(CONSTANTS), f64::from_bits))
            });
            let tensor = match &literal {
                Some(literal) => literal.to_tensor(),
                None => rng.tensor(dtype, &shape, rule.soundness),
            };
            let known = spec.known || literal.is_some();
            env.insert(name, Bound::Value { tensor, ty, literal, known });
        }
    }
    let attr_vars = attr_vars(lhs);
    for node in lhs.as_ref() {
        let ENodeOrVar::Var(var) = node else { continue };
        let name = var.to_string().trim_start_matches('?').to_owned();
        if !env.contains_key(&name) && !attr_vars.contains(&name) {
            // Operands of one list are alike, or they would hardly ever go together.
            let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
            let alike =
                env.iter().find(|(other, _)| name != stem(&name) && stem(other) == stem(&name));
            let shape = match alike {
                Some((_, Bound::Value { ty, .. })) => ty.extents(),
                _ => rng.extents(3),
            };
            let tensor = rng.tensor(any, &shape, rule.soundness);
            env.insert(name, Bound::Value { ty: tensor.ty(), tensor, literal: None, known: false });
        }
    }
    env
}

/// The variables that stand where operators have their attributes.
fn attr_vars(pattern: &PatternAst<ENode>) -> Vec<String> {
    let nodes = pattern.as_ref();
    let takes_attrs = |node: &ENode| match node {
        ENode::Apply(op, _) => has_attrs(*op),
        ENode::View(_) | ENode::Join(_) => true,
        _ => false,
    };
    nodes
        .iter()
        .filter_map(|node| match node {
            ENodeOrVar::ENode(node) if takes_attrs(node) => match &nodes
                [usize::from(node.children()[0])]
            {
                ENodeOrVar::Var(var) => Some(var.to_string().trim_start_matches('?').to_owned()),
                ENodeOrVar::ENode(_) => None,
            },
            _ => None,
        })
        .collect()
}

/// Attributes that `op` may take on such operands; those that do nothing more often than by chance.
/// `None`: nothing can be drawn for this operator.
pub(super) fn draw_attrs(op: Op, types: &[TensorType], rng: &mut Rng) -> Option<Attrs> {
    let extents = types.first()?.extents();
    let rank = extents.len();
    let ints = |xs: Vec<usize>| Attr::Ints(xs.iter().map(|&x| x as i64).collect());
    let nothing = rng.one_in(3);
    Some(Attrs(match op {
        Op::Transpose => {
            let mut perm: Vec<usize> = (0..rank).collect();
            if !nothing {
                (1..rank).for_each(|i| perm.swap(i, rng.below(i + 1)));
            }
            // Often the last two, which products look at.
            if rank >= 2 && rng.one_in(3) {
                perm = (0..rank).collect();
                perm.swap(rank - 1, rank - 2);
            }
            vec![ints(perm)]
        }
        Op::Reshape if nothing => vec![ints(extents)],
        Op::Reshape => {
            let mut factors: Vec<usize> = extents
                .into_iter()
                .flat_map(|n| if n == 4 { vec![2, 2] } else { vec![n] })
                .collect();
            (1..factors.len()).for_each(|i| factors.swap(i, rng.below(i + 1)));
            let mut shape: Vec<usize> = Vec::new();
            for factor in factors {
                match shape.last_mut() {
                    Some(last) if rng.one_in(2) => *last *= factor,
                    _ => shape.push(factor),
                }
            }
            vec![ints(shape)]
        }
        Op::Expand => vec![ints(
            extents.iter().map(|&n| if n == 1 && !nothing { rng.extent() } else { n }).collect(),
        )],
        Op::Slice => {
            let (mut starts, mut sizes, mut steps) = (vec![], vec![], vec![]);
            for &n in &extents {
                let step = if nothing { 1 } else { rng.pick(&[1, 1, 2, -1, -2]) };
                let start = if nothing || rng.one_in(2) { 0 } else { rng.below(n) } as i64;
                let start = if step < 0 { n as i64 - 1 - start } else { start };
                let room = if step > 0 { (n as i64 - 1 - start) / step } else { start / -step }
                    as usize
                    + 1;
                starts.push(start);
                sizes
                    .push(if nothing || rng.one_in(2) { room } else { 1 + rng.below(room) } as i64);
                steps.push(step);
            }
            vec![Attr::Ints(starts), Attr::Ints(sizes), Attr::Ints(steps)]
        }
        Op::Pad => {
            let mut sides = || -> Attr {
                // Padding in front of the spatial axes is rare in models, and barred by some rules.
                let quiet = rng.one_in(2);
                let side = |axis: usize, rng: &mut Rng| {
                    if nothing || (quiet && axis < 2) { 0 } else { rng.below(3) }
                };
                ints((0..rank).map(|axis| side(axis, rng)).collect())
            };
            let (before, after) = (sides(), sides());
            let mode = if rng.one_in(4) { "edge" } else { "constant" };
            vec![
                before,
                after,
                Attr::Word(mode.into()),
                Attr::float(rng.pick(&[0.0, 0.0, 1.5, -0.0])),
            ]
        }
        Op::Concat | Op::Gather => vec![Attr::Int(rng.below(rank.max(1)) as i64)],
        Op::ReduceSum | Op::ReduceMax | Op::ReduceMin | Op::ReduceProd => {
            let wanted = |axis: &usize, rng: &mut Rng| {
                if nothing { extents[*axis] == 1 } else { rng.one_in(2) }
            };
            vec![ints((0..rank).filter(|axis| wanted(axis, rng)).collect())]
        }
        Op::ArgMax | Op::ArgMin => {
            vec![Attr::Int(rng.below(rank.max(1)) as i64), Attr::Int(rng.below(2) as i64)]
        }
        Op::Cast => vec![Attr::DType(rng.pick(&[DType::F32, DType::F16, DType::I64, DType::Bool]))],
        Op::Conv => {
            let n = rank.saturating_sub(2);
            let plain = rng.one_in(2);
            let mut list = |from: usize, choices: usize| {
                ints((0..n).map(|_| if plain { from } else { from + rng.below(choices) }).collect())
            };
            let (strides, before, after, dilations) =
                (list(1, 2), list(0, 2), list(0, 2), list(1, 2));
            let c = extents.get(1).copied().unwrap_or(1);
            let d = types.get(1)?.extents().get(1).copied().unwrap_or(1);
            let groups = if c % d == 0 { c / d } else { 1 };
            vec![strides, before, after, dilations, Attr::Int(groups as i64)]
        }
        Op::MaxPool | Op::SumPool => {
            let n = rank.saturating_sub(2);
            let mut list = |from: usize, choices: usize| {
                ints((0..n).map(|_| from + rng.below(choices)).collect())
            };
            vec![list(1, 2), list(1, 2), list(0, 2), list(0, 2), list(1, 2)]
        }
        _ => return None,
    }))
}
