//! What the edges of a program carry.

use std::fmt;

use eggine_ir::Tensor;

/// Strings in the shape of a tensor, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strings {
    /// Extents, outermost first.
    pub extents: Vec<usize>,
    /// The elements.
    pub data: Vec<String>,
}

/// A value on the host.
#[derive(Clone, Debug, PartialEq)]
pub enum HostValue {
    /// Numbers or booleans.
    Tensor(Tensor),
    /// Strings.
    Strings(Strings),
    /// A sequence.
    Sequence(Vec<HostValue>),
}

impl HostValue {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            HostValue::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Extents of a tensor of whatever; `None` for a sequence.
    pub fn extents(&self) -> Option<&[usize]> {
        match self {
            HostValue::Tensor(tensor) => Some(&tensor.extents),
            HostValue::Strings(strings) => Some(&strings.extents),
            HostValue::Sequence(_) => None,
        }
    }
}

impl From<Tensor> for HostValue {
    fn from(tensor: Tensor) -> Self {
        HostValue::Tensor(tensor)
    }
}

/// The type in words: `f32[1,3]`, `string[2]`, `a sequence of 3`.
impl fmt::Display for HostValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostValue::Tensor(tensor) => write!(f, "{}", tensor.ty()),
            HostValue::Strings(strings) => {
                let extents: Vec<String> = strings.extents.iter().map(usize::to_string).collect();
                write!(f, "string[{}]", extents.join(","))
            }
            HostValue::Sequence(all) => write!(f, "a sequence of {}", all.len()),
        }
    }
}
