//! Shapes and tensor types. A dimension is a number or a symbol; passes behind import see numbers.

use std::fmt;

use crate::DType;

/// One extent of a [`Shape`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A known extent.
    Fixed(usize),
    /// An extent that is bound to a number before anything is lowered.
    Symbolic(String),
}

/// Extents of a tensor, outermost dimension first. Rank 0 is a scalar.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    /// A shape of known extents.
    pub fn fixed(extents: &[usize]) -> Self {
        Self(extents.iter().map(|&extent| Dim::Fixed(extent)).collect())
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The extents, or `None` if one of them is symbolic.
    pub fn extents(&self) -> Option<Vec<usize>> {
        self.0.iter().map(|dim| if let Dim::Fixed(n) = dim { Some(*n) } else { None }).collect()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, dim) in self.0.iter().enumerate() {
            let comma = if axis == 0 { "" } else { "," };
            match dim {
                Dim::Fixed(n) => write!(f, "{comma}{n}")?,
                Dim::Symbolic(name) => write!(f, "{comma}{name}")?,
            }
        }
        f.write_str("]")
    }
}

/// Element type and shape. Prints as `f32[2,3]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
}

impl TensorType {
    /// A type of known extents.
    pub fn fixed(dtype: DType, extents: &[usize]) -> Self {
        Self { dtype, shape: Shape::fixed(extents) }
    }

    /// The extents of a type whose symbols have been bound.
    ///
    /// # Panics
    ///
    /// If a dimension is symbolic. Import binds every symbol, so behind it this is a bug.
    pub fn extents(&self) -> Vec<usize> {
        self.shape.extents().expect("symbols are bound at import")
    }

    /// Number of elements (not bytes). Panics as [`extents`](Self::extents) does.
    pub fn n_elems(&self) -> usize {
        self.extents().iter().product()
    }

    /// Bytes of a contiguous tensor of this type. Panics as [`extents`](Self::extents) does.
    pub fn n_bytes(&self) -> usize {
        self.dtype.bytes_for(self.n_elems())
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// Row-major strides, in elements.
pub fn row_major_strides(extents: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; extents.len()];
    for axis in (0..extents.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * extents[axis + 1];
    }
    strides
}
