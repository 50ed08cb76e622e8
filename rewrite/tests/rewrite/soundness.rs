//! Every rule, on random tensors and attributes, against the reference evaluator: one test for all
//! rows, generated from the rows.
//!
//! Variables are drawn from their types, attributes from what the operator that they belong to takes.
//! `Exact` rules are evaluated with `f32` semantics on numbers of every kind and must agree bit for
//! bit. `Real` rules are evaluated in `f64` on numbers of ordinary size and must agree up to `f64`
//! rounding, which no identity that is false over the reals does: see [`REAL_BOUND`].

use std::collections::BTreeMap;

use egg::{ENodeOrVar, Language, PatternAst};
use eggine_ir::graph::{Array, Rounding, eval, infer};
use eggine_ir::{Attr, Attrs, DType, Op, Tensor, TensorType};
use eggine_rewrite::{
    Binding, DTypeSpec, Derived, ENode, Literal, Rule, Scope, Soundness, VarSpec, VarType,
    has_attrs, rules,
};

/// Draws after which a rule counts as never firing.
const MAX_DRAWS: usize = 60_000;
/// Draws on which a rule must hold.
const N_CASES: usize = 60;

/// Allowed difference of the sides of a `Real` rule, relative to the largest intermediate value (at
/// least 1). Sides have at most 2⁶ roundings behind an element (sums of at most 3³ products, few
/// operators), each of at most 2⁻⁵³ of its value, and later factors of at most 2³ (numbers drawn
/// have magnitudes in [¼, 2)) amplify an error by at most 2⁶.
const REAL_BOUND: f64 = 4096.0 / (1u64 << 53) as f64;

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

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        // splitmix64 (Steele, Lea and Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn extent(&mut self) -> usize {
        1 + self.below(3)
    }

    fn extents(&mut self, max_rank: usize) -> Vec<usize> {
        (0..self.below(max_rank + 1)).map(|_| self.extent()).collect()
    }

    fn float(&mut self, soundness: Soundness) -> f64 {
        match soundness {
            Soundness::Exact if self.one_in(2) => f64::from(self.pick(SPECIAL)),
            Soundness::Exact if self.one_in(2) => f64::from(f32::from_bits(self.next() as u32)),
            Soundness::Exact => self.below(65) as f64 / 8.0 - 4.0,
            Soundness::Real => {
                let size = 0.25 + 1.75 * (self.next() >> 11) as f64 / (1u64 << 53) as f64;
                if self.one_in(3) { -size } else { size }
            }
        }
    }

    fn tensor(&mut self, dtype: DType, extents: &[usize], soundness: Soundness) -> Tensor {
        let n = extents.iter().product();
        match dtype {
            DType::Bool => Tensor::from_i64(
                dtype,
                extents,
                &(0..n).map(|_| self.below(2) as i64).collect::<Vec<_>>(),
            ),
            dtype if dtype.is_float() => Tensor::from_f64(
                dtype,
                extents,
                &(0..n).map(|_| self.float(soundness)).collect::<Vec<_>>(),
            ),
            _ => Tensor::from_i64(
                dtype,
                extents,
                &(0..n).map(|_| self.next() as i64).collect::<Vec<_>>(),
            ),
        }
    }
}

/// A variable's value.
#[derive(Clone, Debug)]
enum Bound {
    Attrs(Attrs),
    Value { tensor: Tensor, ty: TensorType, literal: Option<Literal>, known: bool },
}

type Env = BTreeMap<String, Bound>;

struct EnvScope<'a>(&'a Env);

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

/// Draws tensors for the typed variables and for those that only the pattern mentions.
fn draw_values(rule: &Rule, lhs: &PatternAst<ENode>, n_operands: usize, rng: &mut Rng) -> Env {
    let float = match rule.soundness {
        Soundness::Exact => DType::F32,
        Soundness::Real => DType::F64,
    };
    let mut env = Env::new();
    let mut extents: BTreeMap<char, usize> = BTreeMap::new();
    let mut shapes: BTreeMap<char, Vec<usize>> = BTreeMap::new();
    for word in rule.vars.split_whitespace() {
        let spec = VarSpec::parse(word).unwrap();
        let shape = match &spec.ty {
            VarType::BroadcastsTo(letter) => {
                let target = shapes[letter].clone();
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
                shape.extend(
                    dims.iter()
                        .map(|&letter| *extents.entry(letter).or_insert_with(|| rng.extent())),
                );
                if let Some(letter) = rest {
                    shape.extend(
                        shapes
                            .entry(*letter)
                            .or_insert_with(|| vec![rng.extent(), rng.extent()])
                            .iter(),
                    );
                }
                shape
            }
        };
        let dtype = match spec.dtype {
            DTypeSpec::Float => float,
            DTypeSpec::Is(dtype) => dtype,
            DTypeSpec::Any => float,
        };
        let names: Vec<String> = match spec.list {
            true => (0..n_operands).map(|i| format!("{}{i}", spec.name)).collect(),
            false => vec![spec.name.to_owned()],
        };
        for name in names {
            let ty = TensorType::fixed(dtype, &shape);
            let literal = spec.uniform.map(|value| {
                let any = || [2.0, 0.5, 0.25, -4.0, 3.0, 0.1, 1.0, -0.3, 1.0e30, 1.0e-40];
                Literal::splat(&ty, value.map_or_else(|| rng.pick(&any()[..]), f64::from_bits))
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
            let tensor = rng.tensor(float, &shape, rule.soundness);
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
fn draw_attrs(op: Op, types: &[TensorType], rng: &mut Rng) -> Attrs {
    let extents = types[0].extents();
    let rank = extents.len();
    let ints = |xs: Vec<usize>| Attr::Ints(xs.iter().map(|&x| x as i64).collect());
    let nothing = rng.one_in(3);
    Attrs(match op {
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
        Op::Concat => vec![Attr::Int(rng.below(rank.max(1)) as i64)],
        Op::ReduceSum | Op::ReduceMax | Op::ReduceMin | Op::ReduceProd => {
            let wanted = |axis: &usize, rng: &mut Rng| {
                if nothing { extents[*axis] == 1 } else { rng.one_in(2) }
            };
            vec![ints((0..rank).filter(|axis| wanted(axis, rng)).collect())]
        }
        Op::Conv => {
            let n = rank.saturating_sub(2);
            let plain = rng.one_in(2);
            let mut list = |from: usize, choices: usize| {
                ints((0..n).map(|_| if plain { from } else { from + rng.below(choices) }).collect())
            };
            let (strides, before, after, dilations) =
                (list(1, 2), list(0, 2), list(0, 2), list(1, 2));
            let (c, d) =
                (extents[1.min(rank - 1)], types[1].extents().get(1).copied().unwrap_or(1));
            let groups = if c % d == 0 { c / d } else { 1 };
            vec![strides, before, after, dilations, Attr::Int(groups as i64)]
        }
        other => panic!("no generator for the attributes of `{other}`"),
    })
}

/// A side's value, and the largest magnitude on the way; `None` if the draw is ill-typed.
fn eval_side(
    pattern: &PatternAst<ENode>,
    env: &mut Env,
    rounding: Rounding,
    mut rng: Option<&mut Rng>,
) -> Option<(Array, f64)> {
    let nodes = pattern.as_ref();
    let name = |id: egg::Id| match &nodes[usize::from(id)] {
        ENodeOrVar::Var(var) => Some(var.to_string().trim_start_matches('?').to_owned()),
        ENodeOrVar::ENode(_) => None,
    };
    let mut values: Vec<Option<Array>> = Vec::new();
    let mut largest: f64 = 1.0;
    for (index, node) in nodes.iter().enumerate() {
        let value = match node {
            ENodeOrVar::Var(_) => match env.get(&name(egg::Id::from(index))?) {
                Some(Bound::Value { tensor, .. }) => Some(Array::from_tensor(tensor)),
                _ => None,
            },
            ENodeOrVar::ENode(ENode::Attrs(_)) => None,
            ENodeOrVar::ENode(ENode::Const(literal)) => {
                Some(Array::from_tensor(&literal.to_tensor()))
            }
            ENodeOrVar::ENode(ENode::Load([of]) | ENode::Store([of])) => {
                values[usize::from(*of)].clone()
            }
            ENodeOrVar::ENode(node) => {
                let (op, children) = match node {
                    ENode::Apply(op, children) => (*op, children.as_slice()),
                    ENode::View(children) => (Op::Reshape, children.as_slice()),
                    ENode::Join(children) => (Op::Concat, children.as_slice()),
                    _ => panic!("`{node}` in a pattern"),
                };
                let args: Vec<&Array> = node
                    .operands()
                    .iter()
                    .map(|&id| values[usize::from(id)].as_ref())
                    .collect::<Option<_>>()?;
                let types: Vec<TensorType> = args.iter().map(|array| array.ty()).collect();
                let attrs = if !has_attrs(op) {
                    Attrs::none()
                } else if let ENodeOrVar::ENode(ENode::Attrs(attrs)) =
                    &nodes[usize::from(children[0])]
                {
                    attrs.clone()
                } else {
                    let var = name(children[0])?;
                    if let (None, Some(rng)) = (env.get(&var), rng.as_deref_mut()) {
                        env.insert(var.clone(), Bound::Attrs(draw_attrs(op, &types, rng)));
                    }
                    match env.get(&var) {
                        Some(Bound::Attrs(attrs)) => attrs.clone(),
                        _ => return None,
                    }
                };
                let ty = infer::infer(op, &attrs, &types.iter().collect::<Vec<_>>()).ok()?;
                let array = if matches!(node, ENode::Join(_)) {
                    join(&args, &ty)
                } else {
                    eval::eval_op(op, &attrs, &args, &ty, rounding)
                };
                Some(array)
            }
        };
        if let Some(array) = &value {
            largest = array
                .to_f64()
                .iter()
                .filter(|x| x.is_finite())
                .fold(largest, |max, x| max.max(x.abs()));
        }
        values.push(value);
    }
    Some((values.pop()??, largest))
}

/// What `join` means is not concatenation but memory: the parts' elements one after the other.
fn join(parts: &[&Array], ty: &TensorType) -> Array {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_tensor().bytes.to_vec()).collect();
    Array::from_tensor(&Tensor::new(ty.dtype, &ty.extents(), bytes))
}

fn agree(soundness: Soundness, lhs: &Array, rhs: &Array, largest: f64) -> bool {
    let close = |x: f64, y: f64| match soundness {
        Soundness::Exact => x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()),
        Soundness::Real => {
            x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= REAL_BOUND * largest
        }
    };
    lhs.ty() == rhs.ty() && lhs.to_f64().iter().zip(rhs.to_f64()).all(|(&x, y)| close(x, y))
}

/// The first draw found on which the rule's sides differ; or, if the rule does not apply often
/// enough, that.
fn counterexample(rule: &Rule) -> Result<Option<Env>, String> {
    let rounding = match rule.soundness {
        Soundness::Exact => Rounding::PerOp,
        Soundness::Real => Rounding::None,
    };
    let mut rng = Rng(1);
    let mut n_cases = 0;
    for _ in 0..MAX_DRAWS {
        let n_operands = 2 + rng.below(3);
        let (lhs, rhs) = rule.expanded(n_operands);
        let lhs: PatternAst<ENode> = lhs.parse().map_err(|err| format!("{err:?}"))?;
        let rhs: PatternAst<ENode> = rhs.parse().map_err(|err| format!("{err:?}"))?;
        let mut env = draw_values(rule, &lhs, n_operands, &mut rng);
        let Some((left, left_largest)) = eval_side(&lhs, &mut env, rounding, Some(&mut rng)) else {
            continue;
        };
        let mut binding = Binding::default();
        let fits = rule.vars.split_whitespace().all(|word| {
            let spec = VarSpec::parse(word).unwrap();
            let name = if spec.list { format!("{}0", spec.name) } else { spec.name.to_owned() };
            match &env[&name] {
                Bound::Value { ty, literal, known, .. } => {
                    binding.unify(&spec, ty, literal.as_ref(), *known)
                }
                Bound::Attrs(_) => false,
            }
        });
        if !fits {
            return Err(format!("drawn values do not have their types: {env:?}"));
        }
        let derived = match rule.derive {
            Some(derive) => match derive(&EnvScope(&env)) {
                Some(derived) => derived,
                None => continue,
            },
            None => Vec::new(),
        };
        for (name, derived) in derived {
            let bound = match derived {
                Derived::Attrs(attrs) => Bound::Attrs(attrs),
                Derived::Literal(literal) => Bound::Value {
                    tensor: literal.to_tensor(),
                    ty: literal.ty().clone(),
                    literal: Some(literal),
                    known: true,
                },
            };
            env.insert(name.to_owned(), bound);
        }
        let Some((right, right_largest)) = eval_side(&rhs, &mut env, rounding, None) else {
            return Ok(Some(env)); // The right side is ill-typed.
        };
        if !agree(rule.soundness, &left, &right, left_largest.max(right_largest)) {
            return Ok(Some(env));
        }
        n_cases += 1;
        if n_cases == N_CASES {
            return Ok(None);
        }
    }
    Err(format!("applied to only {n_cases} of {MAX_DRAWS} draws"))
}

#[test]
fn every_rule_is_sound() {
    let mut failures = Vec::new();
    for rule in rules::all() {
        match counterexample(rule) {
            Ok(None) => (),
            Ok(Some(env)) => {
                failures.push(format!("`{}` is not {:?}: {env:?}", rule.name, rule.soundness))
            }
            Err(message) => failures.push(format!("`{}`: {message}", rule.name)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The harness itself must be able to say no.
#[test]
fn false_rules_are_rejected() {
    use Soundness::{Exact, Real};
    let row = |name: &str| *rules::all().find(|rule| rule.name == name).unwrap();
    let new =
        |vars, lhs, rhs, soundness| Rule { name: "false", vars, lhs, rhs, soundness, derive: None };
    let falsehoods = [
        new("x:S* c:~S=0.0", "(add ?x ?c)", "?x", Exact),
        new("x:S* c:~S=0.0", "(mul ?x ?c)", "?c", Exact),
        new("x:S* c:~S=0.0", "(sub ?c ?x)", "(neg ?x)", Exact),
        new("x:S*", "(exp (log ?x))", "?x", Real),
        new("x:S* y:S*", "(sub ?x ?y)", "(sub ?y ?x)", Real),
        new("x:S*", "(sqrt (mul ?x ?x))", "?x", Real),
        new("x:S* y:S* z:S*", "(mul ?x (add ?y ?z))", "(add (mul ?x ?y) ?z)", Real),
        new("x:S*", "(reduce_max ?a (neg ?x))", "(neg (reduce_max ?a ?x))", Exact),
        new("a:MK b:KN", "(matmul ?a ?b)", "(matmul ?b ?a)", Real),
        new("", "(transpose ?p (transpose ?q ?x))", "(transpose ?q (transpose ?p ?x))", Exact),
        new("", "(reshape ?s (transpose ?p ?x))", "(reshape ?s ?x)", Exact),
        Rule { soundness: Exact, ..row("mul-distribute") },
        Rule { soundness: Exact, ..row("div-const") },
        Rule { soundness: Exact, ..row("max-zero-relu") },
        Rule { soundness: Exact, ..row("sum-identity") },
        Rule { soundness: Exact, ..row("conv-pad") },
        Rule { derive: None, ..row("concat-join") },
        Rule { derive: None, ..row("slice-concat-left") },
        Rule { derive: None, ..row("transpose-matmul") },
        Rule { derive: None, ..row("transpose-identity") },
    ];
    for rule in falsehoods {
        let found = counterexample(&rule);
        assert!(matches!(found, Ok(Some(_))), "{rule:?}: {found:?}");
    }
}
