//! What the edges of a program carry.

use std::fmt;

use eggine_ir::onnx::proto::TypeProto;
use eggine_ir::{DType, Tensor};

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
    /// An optional without a value. One with a value is the value.
    Nothing,
}

impl HostValue {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            HostValue::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Extents of a tensor of whatever; `None` for what is none.
    pub fn extents(&self) -> Option<&[usize]> {
        match self {
            HostValue::Tensor(tensor) => Some(&tensor.extents),
            HostValue::Strings(strings) => Some(&strings.extents),
            HostValue::Sequence(_) | HostValue::Nothing => None,
        }
    }
}

impl From<Tensor> for HostValue {
    fn from(tensor: Tensor) -> Self {
        HostValue::Tensor(tensor)
    }
}

/// The type in words: `f32[1,3]`, `string[2]`, `a sequence of 3`, `nothing`.
impl fmt::Display for HostValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostValue::Tensor(tensor) => write!(f, "{}", tensor.ty()),
            HostValue::Strings(strings) => {
                let extents: Vec<String> = strings.extents.iter().map(usize::to_string).collect();
                write!(f, "string[{}]", extents.join(","))
            }
            HostValue::Sequence(all) => write!(f, "a sequence of {}", all.len()),
            HostValue::Nothing => f.write_str("nothing"),
        }
    }
}

/// Whether a value is of a type that a model declares; extents are not looked at.
pub(super) fn fits(ty: &TypeProto, value: &HostValue) -> bool {
    if let Some(optional) = &ty.optional_type {
        let element = optional.elem_type.as_ref();
        return *value == HostValue::Nothing || element.is_none_or(|ty| fits(ty, value));
    }
    if let Some(sequence) = &ty.sequence_type {
        let HostValue::Sequence(all) = value else { return false };
        let element = sequence.elem_type.as_ref();
        return element.is_none_or(|ty| all.iter().all(|value| fits(ty, value)));
    }
    let code = ty.tensor_type.as_ref().map_or(0, |tensor| tensor.elem_type.unwrap_or(0));
    match value {
        HostValue::Tensor(tensor) => DType::from_onnx(code) == Some(tensor.dtype),
        HostValue::Strings(_) => code == 8,
        HostValue::Sequence(_) | HostValue::Nothing => false,
    }
}
