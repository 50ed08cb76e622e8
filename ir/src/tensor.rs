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
            dtype if dtype.is_float() => {
                (0..self.n_elems()).map(|i| small_float(dtype, self.code(i))).collect()
            }
            _ => self.to_i64().into_iter().map(|x| x as f64).collect(),
        }
    }

    /// The bits of element `i` of a type of at most 8.
    fn code(&self, i: usize) -> u8 {
        let bits = self.dtype.bits();
        let per_byte = 8 / bits;
        (self.bytes[i / per_byte] >> (bits * (i % per_byte))) & (0xff >> (8 - bits))
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
        match self.dtype {
            DType::I64 => each!(i64, 8),
            DType::I32 => each!(i32, 4),
            DType::I16 => each!(i16, 2),
            DType::I8 => each!(i8, 1),
            DType::U64 => each!(u64, 8),
            DType::U32 => each!(u32, 4),
            DType::U16 => each!(u16, 2),
            DType::U8 | DType::Bool => each!(u8, 1),
            DType::U4 | DType::U2 => (0..self.n_elems()).map(|i| i64::from(self.code(i))).collect(),
            DType::I4 | DType::I2 => {
                let unused = 8 - self.dtype.bits();
                let signed = |code: u8| i64::from((code << unused) as i8 >> unused);
                (0..self.n_elems()).map(|i| signed(self.code(i))).collect()
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
            dtype if dtype.is_float() => {
                let codes: Vec<u8> = data.iter().map(|&x| nearest_small(dtype, x)).collect();
                pack(dtype.bits(), &codes)
            }
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
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => {
                pack(dtype.bits(), &data.iter().map(|&x| x as u8).collect::<Vec<_>>())
            }
            _ => {
                let floats: Vec<f64> = data.iter().map(|&x| x as f64).collect();
                return Self::from_f64(dtype, extents, &floats);
            }
        };
        Self::new(dtype, extents, bytes)
    }
}

/// Elements of a few bits, the first in the lowest.
fn pack(bits: usize, codes: &[u8]) -> Vec<u8> {
    let mask = 0xff >> (8 - bits);
    codes
        .chunks(8 / bits)
        .map(|chunk| {
            chunk
                .iter()
                .rev()
                .fold(0u8, |byte, code| byte.wrapping_shl(bits as u32) | (code & mask))
        })
        .collect()
}

/// The number that a code of a float type of at most 8 bits stands for.
///
/// OCP MX 1.0: E4M3 has no infinities, E5M2 is the upper half of f16, E2M1 has neither infinities nor NaN,
/// E8M0 is a power of two without sign or zero. The FNUZ variants have one NaN, in the place of -0.
fn small_float(dtype: DType, code: u8) -> f64 {
    let (exponent_bits, mantissa_bits, bias) = match dtype {
        DType::F8E4M3 => (4, 3, 7),
        DType::F8E5M2 => (5, 2, 15),
        DType::F8E4M3FNUZ => (4, 3, 8),
        DType::F8E5M2FNUZ => (5, 2, 16),
        DType::F4E2M1 => (2, 1, 1),
        _ => return if code == 0xff { f64::NAN } else { 2f64.powi(i32::from(code) - 127) },
    };
    let sign_bit = 1u8 << (exponent_bits + mantissa_bits);
    let magnitude = code & (sign_bit - 1);
    let (exponent, mantissa) =
        (i32::from(magnitude >> mantissa_bits), f64::from(magnitude & ((1 << mantissa_bits) - 1)));
    let fraction = mantissa / f64::from(1u32 << mantissa_bits);
    let size = match (dtype, magnitude) {
        (DType::F8E4M3, 0x7f) => f64::NAN,
        (DType::F8E5M2, 0x7c) => f64::INFINITY,
        (DType::F8E5M2, 0x7d..) => f64::NAN,
        (DType::F8E4M3FNUZ | DType::F8E5M2FNUZ, 0) if code == sign_bit => f64::NAN,
        _ if exponent == 0 => fraction * 2f64.powi(1 - bias),
        _ => (1.0 + fraction) * 2f64.powi(exponent - bias),
    };
    if code & sign_bit == 0 { size } else { -size }
}

/// The nearest of all finite values, ties to the even code (of E8M0: upwards), saturating; NaN and infinity
/// stay where the type has them, and NaN is 0 in E2M1.
fn nearest_small(dtype: DType, x: f64) -> u8 {
    if dtype == DType::F8E8M0 {
        let nearest = |x: f64| {
            let below = (0..0xfe).rev().find(|&code| small_float(dtype, code) <= x).unwrap_or(0);
            let (low, high) = (small_float(dtype, below), small_float(dtype, below + 1));
            if x >= (low + high) / 2.0 { below + 1 } else { below }
        };
        return if x.is_nan() { 0xff } else { nearest(x) };
    }
    let (n_codes, fnuz) = match dtype {
        DType::F4E2M1 => (8u8, false),
        other => (0x80, matches!(other, DType::F8E4M3FNUZ | DType::F8E5M2FNUZ)),
    };
    let sign = if x.is_sign_negative() { n_codes } else { 0 };
    if x.is_nan() {
        return match dtype {
            DType::F4E2M1 => 0,
            _ if fnuz => 0x80,
            _ => sign | 0x7f,
        };
    }
    if x.is_infinite() && dtype == DType::F8E5M2 {
        return sign | 0x7c;
    }
    let distance = |code: u8| (small_float(dtype, code) - x.abs()).abs();
    let largest = (0..n_codes)
        .rev()
        .find(|&code| small_float(dtype, code).is_finite())
        .expect("there are finite values");
    // Beyond, distances would not tell the values apart.
    let nearest = match x.abs() >= small_float(dtype, largest) {
        true => Some(largest),
        false => (0..=largest)
            .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1)))),
    };
    match nearest.expect("there are finite values") {
        // There is no -0 in these types.
        0 if fnuz => 0,
        code => sign | code,
    }
}
