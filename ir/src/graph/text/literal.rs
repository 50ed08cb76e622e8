//! Elements of constants as text, and back.

use std::fmt;

use crate::graph::eval::{int_range, widen};
use crate::{DType, Tensor};

/// As in the text format: `f32[2] [1.0, -0.0]`, `f32[64] splat 0.5`, `f32[] 0.5`.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.ty())?;
        let elements = Elements::new(self);
        match self.n_elems() {
            1 if self.extents.is_empty() => elements.write(f, 0),
            n_elems if n_elems >= 2 && elements.are_equal() => {
                f.write_str("splat ")?;
                elements.write(f, 0)
            }
            n_elems => {
                f.write_str("[")?;
                for i in 0..n_elems {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    elements.write(f, i)?;
                }
                f.write_str("]")
            }
        }
    }
}

enum Elements<'a> {
    Float(&'a Tensor, Vec<f64>),
    Int(DType, Vec<i64>),
}

impl<'a> Elements<'a> {
    fn new(tensor: &'a Tensor) -> Self {
        match tensor.dtype.is_float() {
            true => Self::Float(tensor, tensor.to_f64()),
            false => Self::Int(tensor.dtype, tensor.to_i64()),
        }
    }

    /// Whether all have the same bits.
    fn are_equal(&self) -> bool {
        match self {
            Self::Float(tensor, data) if tensor.dtype.bits() < 8 => {
                data.iter().all(|x| x.to_bits() == data[0].to_bits())
            }
            Self::Float(tensor, _) => {
                let width = tensor.dtype.bits() / 8;
                tensor.bytes.chunks(width).all(|element| *element == tensor.bytes[..width])
            }
            Self::Int(_, data) => data.iter().all(|x| *x == data[0]),
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, i: usize) -> fmt::Result {
        match self {
            Self::Float(tensor, data) => {
                let x = data[i];
                if !x.is_finite() {
                    let width = tensor.dtype.bits() / 8;
                    let element = &tensor.bytes[i * width..][..width];
                    let named = if x.is_nan() { f64::NAN } else { x };
                    if Tensor::from_f64(tensor.dtype, &[1], &[named]).bytes[..] != *element {
                        f.write_str("0x")?;
                        return element.iter().rev().try_for_each(|byte| write!(f, "{byte:02x}"));
                    }
                    return f.write_str(match x {
                        _ if x.is_nan() => "nan",
                        _ if x > 0.0 => "inf",
                        _ => "-inf",
                    });
                }
                match tensor.dtype {
                    DType::F64 => write!(f, "{x:?}"),
                    _ => write!(f, "{:?}", x as f32), // Exact: no other type is wider.
                }
            }
            Self::Int(DType::Bool, data) if data[i] <= 1 => write!(f, "{}", data[i] == 1),
            Self::Int(dtype, data) => write!(f, "{}", widen(*dtype, data[i])),
        }
    }
}

/// One element, as the number that it rounds to or as its bits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Literal {
    Float(f64),
    Bits(u64),
    Int(i64),
}

/// Reads one element of type `dtype`, or says what was expected.
pub(super) fn parse_literal(dtype: DType, text: &str) -> Result<Literal, &'static str> {
    match dtype {
        DType::Bool => match text {
            "true" => Ok(Literal::Int(1)),
            "false" => Ok(Literal::Int(0)),
            _ => Err("`true` or `false`"),
        },
        _ if dtype.is_float() => parse_float(dtype, text).ok_or("a float"),
        _ => {
            let (least, greatest) = int_range(dtype);
            let x: Option<i128> = text.parse().ok();
            match x.filter(|x| (least..=greatest).contains(x)) {
                Some(x) => Ok(Literal::Int(x as i64)),
                None => Err("an integer in the range of the type"),
            }
        }
    }
}

fn parse_float(dtype: DType, text: &str) -> Option<Literal> {
    if let Some(hex) = text.strip_prefix("0x") {
        let bits = u64::from_str_radix(hex, 16).ok()?;
        // Types of less than a byte have no NaN whose bits would have to be told.
        return (dtype.bits() >= 8 && hex.len() == dtype.bits() / 4).then_some(Literal::Bits(bits));
    }
    match dtype {
        DType::F64 => text.parse().ok().map(Literal::Float),
        // Not by way of f64, which would round twice.
        _ => text.parse().ok().map(|x: f32| Literal::Float(f64::from(x))),
    }
}

/// The tensor of these elements in row-major order.
pub(super) fn tensor_of(dtype: DType, extents: &[usize], literals: &[Literal]) -> Tensor {
    if !dtype.is_float() {
        let int = |literal: &Literal| if let Literal::Int(x) = literal { *x } else { 0 };
        return Tensor::from_i64(dtype, extents, &literals.iter().map(int).collect::<Vec<_>>());
    }
    let float = |literal: &Literal| if let Literal::Float(x) = literal { *x } else { 0.0 };
    let tensor = Tensor::from_f64(dtype, extents, &literals.iter().map(float).collect::<Vec<_>>());
    if !literals.iter().any(|literal| matches!(literal, Literal::Bits(_))) {
        return tensor;
    }
    let (mut bytes, width) = (tensor.bytes.to_vec(), dtype.bits() / 8);
    for (literal, element) in literals.iter().zip(bytes.chunks_mut(width)) {
        if let Literal::Bits(bits) = literal {
            element.copy_from_slice(&bits.to_le_bytes()[..width]);
        }
    }
    Tensor::new(dtype, extents, bytes)
}

/// A tensor whose elements are all this one, `n_elems` in all.
pub(super) fn splat_of(
    dtype: DType,
    extents: &[usize],
    n_elems: usize,
    literal: Literal,
) -> Tensor {
    let few = |n: usize| tensor_of(dtype, &[n], &vec![literal; n]).bytes;
    let bytes = match dtype.bits() {
        // Several to a byte; behind the last there is nothing.
        bits @ ..8 => {
            let each = 8 / bits;
            [few(each).repeat(n_elems / each), few(n_elems % each).to_vec()].concat()
        }
        _ => few(1).repeat(n_elems),
    };
    Tensor::new(dtype, extents, bytes)
}
