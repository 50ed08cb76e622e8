//! Operator attributes: typed values in the order of the operator's table row.

use std::fmt;

use crate::DType;

/// One attribute. Floats are kept as bits so that attributes are `Eq` and `Hash`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attr {
    /// A number.
    Int(i64),
    /// A list of numbers, one per dimension or per end of a dimension.
    Ints(Vec<i64>),
    /// The bits of an `f64`.
    Float(u64),
    /// An element type.
    DType(DType),
    /// A word of a closed set, such as the mode of a resize.
    Word(String),
}

/// What kind of [`Attr`] a table row asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named as the variants of Attr")]
pub enum AttrKind {
    Int,
    Ints,
    Float,
    DType,
    Word,
}

impl Attr {
    /// A float attribute.
    pub fn float(x: f64) -> Self {
        Attr::Float(x.to_bits())
    }

    /// Which kind this is.
    pub fn kind(&self) -> AttrKind {
        match self {
            Attr::Int(_) => AttrKind::Int,
            Attr::Ints(_) => AttrKind::Ints,
            Attr::Float(_) => AttrKind::Float,
            Attr::DType(_) => AttrKind::DType,
            Attr::Word(_) => AttrKind::Word,
        }
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Int(x) => write!(f, "{x}"),
            Attr::Ints(xs) => {
                let xs: Vec<String> = xs.iter().map(i64::to_string).collect();
                write!(f, "[{}]", xs.join(","))
            }
            Attr::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            Attr::DType(dtype) => write!(f, "{dtype}"),
            Attr::Word(word) => f.write_str(word),
        }
    }
}

/// The attributes of one node, positionally as its operator's row lists them. Most nodes have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attrs(pub Vec<Attr>);

impl Attrs {
    /// No attributes.
    pub fn none() -> Self {
        Self::default()
    }

    /// The `i`-th attribute, a number.
    ///
    /// # Panics
    ///
    /// If the node has no such attribute: [`Graph::apply`](super::Graph::apply) checks kinds, so
    /// behind it this is a bug. The same holds for the other accessors.
    pub fn int(&self, i: usize) -> i64 {
        match &self.0[i] {
            Attr::Int(x) => *x,
            other => unreachable!("attribute {i} is {other}, not a number"),
        }
    }

    /// The `i`-th attribute, an axis or a count, which is not negative.
    pub fn usize(&self, i: usize) -> usize {
        usize::try_from(self.int(i)).expect("not negative")
    }

    /// The `i`-th attribute, a list.
    pub fn ints(&self, i: usize) -> &[i64] {
        match &self.0[i] {
            Attr::Ints(xs) => xs,
            other => unreachable!("attribute {i} is {other}, not a list"),
        }
    }

    /// The `i`-th attribute, a list of extents or positions, none of them negative.
    pub fn usizes(&self, i: usize) -> Vec<usize> {
        self.ints(i).iter().map(|&x| usize::try_from(x).expect("not negative")).collect()
    }

    /// The `i`-th attribute, a float.
    pub fn float(&self, i: usize) -> f64 {
        match &self.0[i] {
            Attr::Float(bits) => f64::from_bits(*bits),
            other => unreachable!("attribute {i} is {other}, not a float"),
        }
    }

    /// The `i`-th attribute, an element type.
    pub fn dtype(&self, i: usize) -> DType {
        match &self.0[i] {
            Attr::DType(dtype) => *dtype,
            other => unreachable!("attribute {i} is {other}, not an element type"),
        }
    }

    /// The `i`-th attribute, a word.
    pub fn word(&self, i: usize) -> &str {
        match &self.0[i] {
            Attr::Word(word) => word,
            other => unreachable!("attribute {i} is {other}, not a word"),
        }
    }
}

impl From<Vec<Attr>> for Attrs {
    fn from(attrs: Vec<Attr>) -> Self {
        Self(attrs)
    }
}
