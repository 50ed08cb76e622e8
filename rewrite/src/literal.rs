//! Constants that a term holds by value: uniform ones, and those of at most [`MAX_ELEMS`] elements.
//!
//! They are what rules can look at, and what a kernel holds as immediates. All other constants are
//! weights: inputs whose contents are known at compile time.

use std::fmt;
use std::str::FromStr;

use eggine_ir::{DType, Tensor, TensorType};

/// Non-uniform constants up to this size are literals: sixteen immediates fit any kernel.
pub const MAX_ELEMS: usize = 16;

/// A small or uniform constant. Prints as `0.5:f32[2,3]` or `{1,2}:i64[2]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Literal {
    ty: TensorType,
    /// One element if the constant is uniform, otherwise all of them.
    bytes: Vec<u8>,
}

impl Literal {
    /// The constant as a literal, or `None` if it is a weight.
    pub fn from_tensor(tensor: &Tensor) -> Option<Self> {
        let (n_elems, bits) = (tensor.n_elems(), tensor.dtype.bits());
        if n_elems == 0 {
            return None;
        }
        if bits.is_multiple_of(8) {
            let width = bits / 8;
            let first = &tensor.bytes[..width];
            if tensor.bytes.chunks_exact(width).all(|element| element == first) {
                return Some(Self { ty: tensor.ty(), bytes: first.to_vec() });
            }
        }
        (n_elems <= MAX_ELEMS).then(|| Self { ty: tensor.ty(), bytes: tensor.bytes.to_vec() })
    }

    /// The constant of type `ty` whose elements are all `value`, rounded to the element type.
    pub fn splat(ty: &TensorType, value: f64) -> Self {
        Self { ty: ty.clone(), bytes: Tensor::from_f64(ty.dtype, &[1], &[value]).bytes.to_vec() }
            .packed(value)
    }

    /// Its type.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The element, if all are the same.
    pub fn uniform(&self) -> Option<f64> {
        let one = self.ty.dtype.bytes_for(1);
        let uniform = self.bytes.len() == one
            && (self.ty.dtype.bits().is_multiple_of(8) || self.ty.n_elems() == 1);
        uniform.then(|| Tensor::new(self.ty.dtype, &[1], self.bytes.clone()).to_f64()[0])
    }

    /// The same uniform element in another shape.
    pub fn with_shape_of(&self, ty: &TensorType) -> Option<Self> {
        let value = self.uniform()?;
        let element = || Self { ty: ty.clone(), bytes: self.bytes.clone() }.packed(value);
        (ty.dtype == self.ty.dtype).then(element)
    }

    /// The constant of one byte, which stands for any number of elements; where a byte has several, with
    /// all of its bytes.
    fn packed(mut self, value: f64) -> Self {
        if self.ty.dtype.bits() < 8 && self.ty.n_elems() != 1 {
            let values = vec![value; self.ty.n_elems()];
            self.bytes =
                Tensor::from_f64(self.ty.dtype, &self.ty.extents(), &values).bytes.to_vec();
        }
        self
    }

    /// The constant as a tensor.
    pub fn to_tensor(&self) -> Tensor {
        let extents = self.ty.extents();
        let n_bytes = self.ty.dtype.bytes_for(self.ty.n_elems());
        let bytes = if self.bytes.len() == n_bytes {
            self.bytes.clone()
        } else {
            self.bytes.repeat(self.ty.n_elems())
        };
        Tensor::new(self.ty.dtype, &extents, bytes)
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = |i: usize, tensor: &Tensor| match self.ty.dtype.is_float() {
            true => format!("{:?}", tensor.to_f64()[i]),
            false => tensor.to_i64()[i].to_string(),
        };
        if self.uniform().is_some() {
            let one = Tensor::new(self.ty.dtype, &[1], self.bytes.clone());
            return write!(f, "{}:{}", element(0, &one), self.ty);
        }
        let tensor = self.to_tensor();
        let all: Vec<String> = (0..tensor.n_elems()).map(|i| element(i, &tensor)).collect();
        write!(f, "{{{}}}:{}", all.join(","), self.ty)
    }
}

/// Text that is not a literal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a constant, such as `0.5:f32[2,3]`")]
pub struct NotALiteral(pub String);

impl FromStr for Literal {
    type Err = NotALiteral;

    fn from_str(text: &str) -> Result<Self, NotALiteral> {
        let error = || NotALiteral(text.to_owned());
        let (value, ty) = text.rsplit_once(':').ok_or_else(error)?;
        let ty = parse_type(ty).ok_or_else(error)?;
        let (elements, uniform): (Vec<&str>, bool) = match value.strip_prefix('{') {
            Some(list) => (list.strip_suffix('}').ok_or_else(error)?.split(',').collect(), false),
            None => (vec![value], true),
        };
        let extents = if uniform { vec![1] } else { ty.extents() };
        if elements.len() != extents.iter().product::<usize>() {
            return Err(error());
        }
        let tensor = if ty.dtype.is_float() {
            let all: Option<Vec<f64>> = elements.iter().map(|x| x.parse().ok()).collect();
            Tensor::from_f64(ty.dtype, &extents, &all.ok_or_else(error)?)
        } else {
            let all: Option<Vec<i64>> = elements.iter().map(|x| x.parse().ok()).collect();
            Tensor::from_i64(ty.dtype, &extents, &all.ok_or_else(error)?)
        };
        match uniform {
            true => Ok(Self { ty, bytes: tensor.bytes.to_vec() }),
            false => Self::from_tensor(&tensor).ok_or_else(error),
        }
    }
}

fn parse_type(text: &str) -> Option<TensorType> {
    let (dtype, shape) = text.split_once('[')?;
    let dtype: DType = dtype.parse().ok()?;
    let inner = shape.strip_suffix(']')?;
    if inner.is_empty() {
        return Some(TensorType::fixed(dtype, &[]));
    }
    let extents: Option<Vec<usize>> = inner.split(',').map(|x| x.parse().ok()).collect();
    Some(TensorType::fixed(dtype, &extents?))
}
