//! The e-graph language: terms over [`eggine_ir::Op`], with `load` and `store` between two sorts.
//!
//! A *tensor* is materialised in memory, a *computation* is a pure function of an index, and
//! *attributes* are leaves of their own, the first child of every operator that has some, so that a
//! pattern can leave them open (`(transpose ?p ?x)`) and a rule can compute with them. The list of
//! operators is [`Op`]; it is not repeated here.

use std::fmt;
use std::mem::Discriminant;

use egg::{FromOp, FromOpError, Id, Language};
use eggine_ir::{Attr, Attrs, DType, Op};

use crate::literal::Literal;

/// An e-node. Constants are compared by their bits, so `0.0` and `-0.0` differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ENode {
    /// Attributes of an operator, by position. Prints as `[1,0]`, or as `<0,[1,2]>` if there are
    /// several.
    Attrs(Attrs),
    /// A small or uniform constant: a computation. Large ones are [`ENode::Input`]s.
    Const(Literal),
    /// A tensor that is given: the graph value `v<index>`, an input or a weight.
    Input(u32),
    /// `tensor -> computation`: reads element by element.
    Load([Id; 1]),
    /// `computation -> tensor`: materialises.
    Store([Id; 1]),
    /// `attributes, tensor -> tensor`: the same memory under another shape.
    View([Id; 2]),
    /// `attributes, tensor... -> tensor`: materialised side by side along an axis.
    Join(Vec<Id>),
    /// An operator: its attributes' class, if its row lists attributes, then its operands.
    Apply(Op, Vec<Id>),
}

impl ENode {
    /// The operands of an [`ENode::Apply`] behind its attributes, or of any other node.
    pub fn operands(&self) -> &[Id] {
        match self {
            ENode::Apply(op, args) if has_attrs(*op) => &args[1..],
            ENode::View(args) => &args[1..],
            ENode::Join(args) => &args[1..],
            other => other.children(),
        }
    }
}

/// Whether e-nodes of `op` have an attribute child.
pub fn has_attrs(op: Op) -> bool {
    !op.spec().attrs.is_empty()
}

impl Language for ENode {
    type Discriminant = (Discriminant<ENode>, Option<Op>);

    fn discriminant(&self) -> Self::Discriminant {
        let op = match self {
            ENode::Apply(op, _) => Some(*op),
            _ => None,
        };
        (std::mem::discriminant(self), op)
    }

    fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (ENode::Apply(a, x), ENode::Apply(b, y)) => a == b && x.len() == y.len(),
            (ENode::Join(x), ENode::Join(y)) => x.len() == y.len(),
            (ENode::Load(_), ENode::Load(_))
            | (ENode::Store(_), ENode::Store(_))
            | (ENode::View(_), ENode::View(_)) => true,
            _ => self == other,
        }
    }

    fn children(&self) -> &[Id] {
        match self {
            ENode::Apply(_, args) | ENode::Join(args) => args,
            ENode::Load(args) | ENode::Store(args) => args,
            ENode::View(args) => args,
            ENode::Attrs(_) | ENode::Const(_) | ENode::Input(_) => &[],
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            ENode::Apply(_, args) | ENode::Join(args) => args,
            ENode::Load(args) | ENode::Store(args) => args,
            ENode::View(args) => args,
            ENode::Attrs(_) | ENode::Const(_) | ENode::Input(_) => &mut [],
        }
    }
}

impl fmt::Display for ENode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ENode::Attrs(attrs) => f.write_str(&print_attrs(attrs)),
            ENode::Const(literal) => write!(f, "{literal}"),
            ENode::Input(index) => write!(f, "v{index}"),
            ENode::Load(_) => f.write_str("load"),
            ENode::Store(_) => f.write_str("store"),
            ENode::View(_) => f.write_str("view"),
            ENode::Join(_) => f.write_str("join"),
            ENode::Apply(op, _) => write!(f, "{op}"),
        }
    }
}

impl FromOp for ENode {
    type Error = FromOpError;

    fn from_op(text: &str, args: Vec<Id>) -> Result<Self, FromOpError> {
        let leaf = || {
            if let Some(attrs) = parse_attrs(text) {
                return Some(ENode::Attrs(attrs));
            }
            if let Some(index) = text.strip_prefix('v').and_then(|digits| digits.parse().ok()) {
                return Some(ENode::Input(index));
            }
            text.parse().ok().map(ENode::Const)
        };
        let found = match (text, args.as_slice()) {
            ("load", &[tensor]) => Some(ENode::Load([tensor])),
            ("store", &[computation]) => Some(ENode::Store([computation])),
            ("view", &[attrs, tensor]) => Some(ENode::View([attrs, tensor])),
            ("join", [_, _, ..]) => Some(ENode::Join(args.clone())),
            (_, []) => leaf(),
            _ => None,
        };
        if let Some(node) = found {
            return Ok(node);
        }
        match text.parse::<Op>() {
            Ok(op) if arity_fits(op, args.len()) => Ok(ENode::Apply(op, args)),
            _ => Err(FromOpError::new(text, args)),
        }
    }
}

fn arity_fits(op: Op, n_children: usize) -> bool {
    let n_attrs = usize::from(has_attrs(op));
    match op.spec().arity {
        Some(arity) => n_children == arity + n_attrs,
        None => n_children > n_attrs,
    }
}

/// The text of attributes in a term: a lone list as `[1,0]`, anything else as `<…,…>`.
pub fn print_attrs(attrs: &Attrs) -> String {
    match attrs.0.as_slice() {
        [list @ Attr::Ints(_)] => list.to_string(),
        all => format!("<{}>", all.iter().map(Attr::to_string).collect::<Vec<_>>().join(",")),
    }
}

/// Reads what [`print_attrs`] prints.
pub fn parse_attrs(text: &str) -> Option<Attrs> {
    if text.starts_with('[') {
        return Some(Attrs(vec![parse_attr(text)?]));
    }
    let inner = text.strip_prefix('<')?.strip_suffix('>')?;
    let mut parts = vec![String::new()];
    let mut depth = 0i32;
    for c in inner.chars() {
        depth += i32::from(c == '[') - i32::from(c == ']');
        match (c, depth) {
            (',', 0) => parts.push(String::new()),
            _ => parts.last_mut().expect("starts with one").push(c),
        }
    }
    parts.iter().map(|part| parse_attr(part)).collect::<Option<Vec<_>>>().map(Attrs)
}

fn parse_attr(text: &str) -> Option<Attr> {
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']')?;
        if inner.is_empty() {
            return Some(Attr::Ints(vec![]));
        }
        return inner
            .split(',')
            .map(|x| x.trim().parse().ok())
            .collect::<Option<_>>()
            .map(Attr::Ints);
    }
    if let Ok(x) = text.parse::<i64>() {
        return Some(Attr::Int(x));
    }
    if let Ok(x) = text.parse::<f64>() {
        return Some(Attr::float(x));
    }
    if let Ok(dtype) = text.parse::<DType>() {
        return Some(Attr::DType(dtype));
    }
    let is_word = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_word.then(|| Attr::Word(text.to_owned()))
}
