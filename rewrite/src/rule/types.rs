//! Types of a rule's variables: its side condition, and the generator of its test.

use std::collections::BTreeMap;

use eggine_ir::{DType, TensorType};

use crate::literal::Literal;

/// The shape that a variable must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VarType {
    /// `S*`, `MK`, `B*MK` or `NC+S`: a letter for any number of leading dimensions, then one per
    /// dimension, then a letter for all further ones. `_` stands for anything, each time anew.
    Extents {
        /// Stands for the leading dimensions, if any number may lead.
        lead: Option<char>,
        /// Stand for one extent each.
        dims: Vec<char>,
        /// Stands for the further dimensions, if any number may follow. Not together with `lead`.
        rest: Option<char>,
    },
    /// `~S`: any shape that broadcasts to the whole shape `S` without enlarging it.
    BroadcastsTo(char),
}

impl VarType {
    /// Whether a part of the shape may be anything.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            VarType::Extents { lead, dims, rest } => {
                *lead == Some('_') || *rest == Some('_') || dims.contains(&'_')
            }
            VarType::BroadcastsTo(_) => false,
        }
    }
}

/// The element type that a variable must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypeSpec {
    /// Any float type, the same for all such variables of the rule. Tests draw `f32`.
    Float,
    /// This one.
    Is(DType),
    /// Any.
    Any,
}

/// One word of [`Rule::vars`](super::Rule::vars): `name:shape[/dtype][=value][!]`.
///
/// `dtype` is an element type, or `any`; without it a float type. `=value` asks for a literal of that
/// element throughout (`=?` for any uniform one), `!` for a value known at compile time.
#[derive(Clone, Debug, PartialEq)]
pub struct VarSpec {
    /// Without the `?`.
    pub name: &'static str,
    /// Its shape.
    pub ty: VarType,
    /// Its element type.
    pub dtype: DTypeSpec,
    /// Whether it must be a uniform literal, and of which value.
    pub uniform: Option<Option<u64>>,
    /// Whether it must be known at compile time.
    pub known: bool,
    /// Whether it stands for a list of operands (`x...`), each of this type.
    pub list: bool,
}

impl VarSpec {
    /// Reads one word.
    pub fn parse(word: &'static str) -> Option<Self> {
        let (name, spec) = word.split_once(':')?;
        let (name, list) = name.strip_suffix("...").map_or((name, false), |name| (name, true));
        let (spec, known) = spec.strip_suffix('!').map_or((spec, false), |spec| (spec, true));
        let (spec, uniform) = match spec.split_once('=') {
            Some((spec, "?")) => (spec, Some(None)),
            Some((spec, value)) => (spec, Some(Some(value.parse::<f64>().ok()?.to_bits()))),
            None => (spec, None),
        };
        let (shape, dtype) = match spec.split_once('/') {
            Some((shape, "any")) => (shape, DTypeSpec::Any),
            Some((shape, dtype)) => (shape, DTypeSpec::Is(dtype.parse().ok()?)),
            None => (spec, DTypeSpec::Float),
        };
        let ty = match shape.strip_prefix('~') {
            Some(letter) => VarType::BroadcastsTo(letter.chars().next()?),
            None => {
                let (lead, dims) = match shape.split_once('*') {
                    Some((lead, dims)) => (Some(lead.chars().next()?), dims),
                    None => (None, shape),
                };
                let (dims, rest) = match dims.split_once('+') {
                    Some((dims, rest)) => (dims, Some(rest.chars().next()?)),
                    None => (dims, None),
                };
                VarType::Extents { lead, dims: dims.chars().collect(), rest }
            }
        };
        Some(Self { name, ty, dtype, uniform, known, list })
    }
}

/// What the letters of a rule's types stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Extent of a dimension, by letter.
    pub extents: BTreeMap<char, usize>,
    /// Leading dimensions, or a whole shape, by letter.
    pub shapes: BTreeMap<char, Vec<usize>>,
    /// The rule's float type.
    pub float: Option<DType>,
}

impl Binding {
    /// Binds the letters of `spec` to the type, or returns `false` if they stand for something else.
    /// A variable that broadcasts must come after the one whose shape it broadcasts to.
    pub fn unify(
        &mut self,
        spec: &VarSpec,
        ty: &TensorType,
        literal: Option<&Literal>,
        known: bool,
    ) -> bool {
        let dtype_fits = match spec.dtype {
            DTypeSpec::Any => true,
            DTypeSpec::Is(dtype) => ty.dtype == dtype,
            DTypeSpec::Float => {
                ty.dtype.is_float() && *self.float.get_or_insert(ty.dtype) == ty.dtype
            }
        };
        let literal_fits = match spec.uniform {
            None => true,
            Some(wanted) => {
                let found = literal.and_then(Literal::uniform);
                found.is_some_and(|x| wanted.is_none_or(|wanted| x.to_bits() == wanted))
            }
        };
        dtype_fits
            && literal_fits
            && (known || !spec.known)
            && self.unify_shape(&spec.ty, &ty.extents())
    }

    fn unify_shape(&mut self, ty: &VarType, extents: &[usize]) -> bool {
        match ty {
            VarType::BroadcastsTo(letter) => {
                self.shapes.get(letter).is_some_and(|target| broadcasts_to(extents, target))
            }
            VarType::Extents { lead, dims, rest } => {
                let Some(n_open) = extents.len().checked_sub(dims.len()) else { return false };
                let n_lead = if lead.is_some() { n_open } else { 0 };
                let (leading, others) = extents.split_at(n_lead);
                let (fixed, further) = others.split_at(dims.len());
                let mut open_fits = |letter: Option<char>, extents: &[usize]| match letter {
                    Some('_') => true,
                    Some(letter) => {
                        self.shapes.entry(letter).or_insert_with(|| extents.to_vec()) == extents
                    }
                    None => extents.is_empty(),
                };
                let open_fits = open_fits(*lead, leading) && open_fits(*rest, further);
                let mut pairs = dims.iter().zip(fixed);
                open_fits
                    && pairs.all(|(&letter, &n)| {
                        letter == '_' || *self.extents.entry(letter).or_insert(n) == n
                    })
            }
        }
    }
}

/// Whether a tensor of these extents, used where `target` is expected, leaves `target` as it is.
pub(crate) fn broadcasts_to(extents: &[usize], target: &[usize]) -> bool {
    let Some(skipped) = target.len().checked_sub(extents.len()) else { return false };
    extents.iter().zip(&target[skipped..]).all(|(&n, &wanted)| n == 1 || n == wanted)
}
