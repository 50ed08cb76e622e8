//! Tensors as they lie in files and in device memory: row-major little-endian bytes with a type.

use bytes::Bytes;
use half::{bf16, f16};

use crate::{DType, TensorType};

/// A dense row-major tensor. Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub extents: Vec<usize>,
    /// `dtype.bytes_for(n_elems)` little-endian bytes; need not be aligned.
    pub bytes: Bytes,
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({} bytes)", self.ty(), self.bytes.len())
    }
}

impl Tensor {
    /// Wraps bytes.
    ///
    /// # Panics
    ///
    /// If the number of bytes is not what the type needs.
    pub fn new(dtype: DType, extents: &[usize], bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let n_elems: usize = extents.iter().product();
        assert_eq!(bytes.len(), dtype.bytes_for(n_elems), "bytes of {dtype}{extents:?}");
        Self { dtype, extents: extents.to_vec(), bytes }
    }

    /// The type.
    pub fn ty(&self) -> TensorType {
        TensorType::fixed(self.dtype, &self.extents)
    }

    /// Number of elements.
    pub fn n_elems(&self) -> usize {
        self.extents.iter().product()
    }

    /// An `f32` tensor.
    pub fn f32(extents: &[usize], data: &[f32]) -> Self {
        Self::new(
            DType::F32,
            extents,
            data.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>(),
        )
    }

    /// An `i64` tensor.
    pub fn i64(extents: &[usize], data: &[i64]) -> Self {
        Self::new(
            DType::I64,
            extents,
            data.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>(),
        )
    }

    /// The same bytes under other extents with the same number of elements.
    pub fn reshaped(&self, extents: &[usize]) -> Self {
        Self::new(self.dtype, extents, self.bytes.clone())
    }

    /// Elements as `f64`: exact for every float type and for integers up to 2⁵³.
    pub fn to_f64(&self) -> Vec<f64> {
        let b = &self.bytes;
        macro_rules! each {
            ($ty:ty, $n:literal, $convert:expr) => {
                b.chunks_exact($n)
                    .map(|c| $convert(<$ty>::from_le_bytes(c.try_into().expect("chunk length"))))
                    .collect()
            };
        }
        match self.dtype {
            DType::F64 => each!(f64, 8, |x| x),
            DType::F32 => each!(f32, 4, f64::from),
            DType::F16 => each!(u16, 2, |x| f16::from_bits(x).to_f64()),
            DType::BF16 => each!(u16, 2, |x| bf16::from_bits(x).to_f64()),
            DType::F8E4M3 => b.iter().map(|&x| f8e4m3_to_f64(x)).collect(),
            DType::F8E5M2 => {
                b.iter().map(|&x| f16::from_bits(u16::from(x) << 8).to_f64()).collect()
            }
            _ => self.to_i64().into_iter().map(|x| x as f64).collect(),
        }
    }

    /// Elements of an integer or boolean tensor; `u64` wraps. Floats are truncated, saturating.
    pub fn to_i64(&self) -> Vec<i64> {
        let b = &self.bytes;
        macro_rules! each {
            ($ty:ty, $n:literal) => {
                b.chunks_exact($n)
                    .map(|c| <$ty>::from_le_bytes(c.try_into().expect("chunk length")) as i64)
                    .collect()
            };
        }
        let nibble = |i: usize| (b[i / 2] >> (4 * (i % 2))) & 15;
        match self.dtype {
            DType::I64 => each!(i64, 8),
            DType::I32 => each!(i32, 4),
            DType::I16 => each!(i16, 2),
            DType::I8 => each!(i8, 1),
            DType::U64 => each!(u64, 8),
            DType::U32 => each!(u32, 4),
            DType::U16 => each!(u16, 2),
            DType::U8 | DType::Bool => each!(u8, 1),
            DType::U4 => (0..self.n_elems()).map(|i| i64::from(nibble(i))).collect(),
            DType::I4 => {
                (0..self.n_elems()).map(|i| i64::from((nibble(i) << 4) as i8 >> 4)).collect()
            }
            _ => self.to_f64().into_iter().map(|x| x as i64).collect(),
        }
    }

    /// Rounds `data` to a float type (nearest even), or truncates it to an integer type.
    pub fn from_f64(dtype: DType, extents: &[usize], data: &[f64]) -> Self {
        let bytes: Vec<u8> = match dtype {
            DType::F64 => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            DType::F32 => data.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect(),
            DType::F16 => data.iter().flat_map(|&x| f16::from_f64(x).to_le_bytes()).collect(),
            DType::BF16 => data.iter().flat_map(|&x| bf16::from_f64(x).to_le_bytes()).collect(),
            DType::F8E4M3 | DType::F8E5M2 => data.iter().map(|&x| nearest_f8(dtype, x)).collect(),
            _ => {
                let ints: Vec<i64> = data.iter().map(|&x| x as i64).collect();
                return Self::from_i64(dtype, extents, &ints);
            }
        };
        Self::new(dtype, extents, bytes)
    }

    /// Wraps `data` to an integer or boolean type (`bool`: non-zero is 1), or rounds it to a float.
    pub fn from_i64(dtype: DType, extents: &[usize], data: &[i64]) -> Self {
        let bytes: Vec<u8> = match dtype {
            DType::I64 | DType::U64 => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            DType::I32 | DType::U32 => {
                data.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect()
            }
            DType::I16 | DType::U16 => {
                data.iter().flat_map(|&x| (x as i16).to_le_bytes()).collect()
            }
            DType::I8 | DType::U8 => data.iter().map(|&x| x as u8).collect(),
            DType::Bool => data.iter().map(|&x| u8::from(x != 0)).collect(),
            DType::I4 | DType::U4 => data
                .chunks(2)
                .map(|pair| (pair[0] as u8 & 15) | (pair.get(1).map_or(0, |&x| x as u8 & 15) << 4))
                .collect(),
            _ => {
                let floats: Vec<f64> = data.iter().map(|&x| x as f64).collect();
                return Self::from_f64(dtype, extents, &floats);
            }
        };
        Self::new(dtype, extents, bytes)
    }
}

/// OCP FP8 E4M3: bias 7, no infinities, S.1111.111 is NaN.
fn f8e4m3_to_f64(bits: u8) -> f64 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => sign * mantissa * 2f64.powi(-9),
        _ => sign * (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    }
}

/// The nearest of all finite values, ties to the even code, saturating; NaN stays NaN.
fn nearest_f8(dtype: DType, x: f64) -> u8 {
    let decode = |bits: u8| match dtype {
        DType::F8E4M3 => f8e4m3_to_f64(bits),
        _ => f16::from_bits(u16::from(bits) << 8).to_f64(),
    };
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    if x.is_nan() {
        return sign | 0x7f;
    }
    let distance = |bits: u8| (decode(bits) - x.abs()).abs();
    let finite = (0u8..0x80).filter(|&bits| decode(bits).is_finite());
    sign | finite
        .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))))
        .expect("there are finite values")
}
