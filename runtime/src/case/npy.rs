//! One `.npy` array: its raw elements, whatever their order in the file.
//!
//! The header is parsed by npyz; the elements are moved as bytes, so that no float is ever rounded.

use std::io::Read;

use eggine_ir::{DType, Tensor};
use npyz::{Endianness, NpyFile, Order, TypeChar};

/// An array of a kind that no tensor has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its elements are {what} (NumPy type {descr}), which no tensor of a model that Eggine runs has")]
pub struct Unsupported {
    /// `strings`, `records`, …
    pub what: &'static str,
    /// In NumPy's spelling.
    pub descr: String,
}

/// NumPy's spelling of an element type.
///
/// `bf16` is what the `ml_dtypes` package writes: two raw bytes.
pub(super) fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F64 => "<f8",
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::I64 => "<i8",
        DType::I32 => "<i4",
        DType::I16 => "<i2",
        DType::I8 => "|i1",
        DType::U64 => "<u8",
        DType::U32 => "<u4",
        DType::U16 => "<u2",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
        DType::F8E4M3 | DType::F8E5M2 | DType::I4 | DType::U4 => return None,
    })
}

fn dtype_of(dtype: &npyz::DType) -> Result<(DType, Endianness), Unsupported> {
    let unsupported = |what| Unsupported { what, descr: dtype.descr() };
    let npyz::DType::Plain(ty) = dtype else { return Err(unsupported("records")) };
    let found = match (ty.type_char(), ty.size_field()) {
        (TypeChar::Float, 8) => DType::F64,
        (TypeChar::Float, 4) => DType::F32,
        (TypeChar::Float, 2) => DType::F16,
        (TypeChar::RawData, 2) => DType::BF16,
        (TypeChar::Int, 8) => DType::I64,
        (TypeChar::Int, 4) => DType::I32,
        (TypeChar::Int, 2) => DType::I16,
        (TypeChar::Int, 1) => DType::I8,
        (TypeChar::Uint, 8) => DType::U64,
        (TypeChar::Uint, 4) => DType::U32,
        (TypeChar::Uint, 2) => DType::U16,
        (TypeChar::Uint, 1) => DType::U8,
        (TypeChar::Bool, 1) => DType::Bool,
        (TypeChar::UnicodeStr | TypeChar::ByteStr, _) => return Err(unsupported("strings")),
        (TypeChar::Object, _) => return Err(unsupported("Python objects")),
        (TypeChar::Complex, _) => return Err(unsupported("complex numbers")),
        (TypeChar::TimeDelta | TypeChar::DateTime, _) => return Err(unsupported("times")),
        _ => return Err(unsupported("raw or very wide")),
    };
    Ok((found, ty.endianness()))
}

/// Reads an array. The outer error says what is damaged; the inner one that tensors are not like that.
pub(super) fn read<R: Read>(npy: NpyFile<R>) -> Result<Result<Tensor, Unsupported>, String> {
    let (dtype, endianness) = match dtype_of(&npy.dtype()) {
        Ok(found) => found,
        Err(unsupported) => return Ok(Err(unsupported)),
    };
    let mut extents = Vec::with_capacity(npy.shape().len());
    let mut n_bytes = dtype.bits() / 8;
    for &extent in npy.shape() {
        let extent = usize::try_from(extent).map_err(|_| format!("extent {extent} is too large"))?;
        n_bytes = n_bytes.checked_mul(extent).ok_or_else(|| format!("shape {:?} is too large", npy.shape()))?;
        extents.push(extent);
    }
    let order = npy.order();
    // Grows with what is there, not with what the header claims.
    let mut bytes = Vec::new();
    npy.into_inner().take(n_bytes as u64).read_to_end(&mut bytes).map_err(|err| err.to_string())?;
    if bytes.len() != n_bytes {
        let ty = eggine_ir::TensorType::fixed(dtype, &extents);
        return Err(format!("has {} bytes of data, {ty} needs {n_bytes}", bytes.len()));
    }
    let width = dtype.bits() / 8;
    if endianness == Endianness::Big {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    if order == Order::Fortran && extents.len() > 1 {
        bytes = to_row_major(&bytes, &extents, width);
    }
    if dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        return Err("a boolean is neither 0 nor 1".into());
    }
    Ok(Ok(Tensor::new(dtype, &extents, bytes)))
}

/// Reorders elements whose first index runs fastest.
fn to_row_major(bytes: &[u8], extents: &[usize], width: usize) -> Vec<u8> {
    let mut strides = vec![1; extents.len()];
    for axis in 1..extents.len() {
        strides[axis] = strides[axis - 1] * extents[axis - 1];
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0; extents.len()];
    for _ in 0..bytes.len() / width {
        let from: usize = index.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
        out.extend_from_slice(&bytes[from * width..][..width]);
        for axis in (0..extents.len()).rev() {
            index[axis] += 1;
            if index[axis] < extents[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    out
}

/// The bytes of a `.npy` file, format 1.0 (or 2.0 for a shape of very many dimensions).
pub(super) fn to_bytes(tensor: &Tensor) -> Result<Vec<u8>, String> {
    let descr = descr(tensor.dtype).ok_or_else(|| format!("NumPy has no {} elements", tensor.dtype))?;
    let mut shape: String = tensor.extents.iter().map(|extent| format!("{extent}, ")).collect();
    if tensor.extents.len() > 1 {
        shape.truncate(shape.trim_end_matches(", ").len());
    }
    let shape = shape.trim_end();
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let long = dict.len() + 1 + 10 + 64 > usize::from(u16::MAX);
    let prefix_bytes = if long { 12 } else { 10 };
    // The elements start at a multiple of 64 bytes.
    let total = (prefix_bytes + dict.len() + 1).next_multiple_of(64);
    let text = format!("{dict:<width$}\n", width = total - prefix_bytes - 1);
    let mut bytes = b"\x93NUMPY".to_vec();
    if long {
        bytes.extend([2, 0]);
        bytes.extend((text.len() as u32).to_le_bytes());
    } else {
        bytes.extend([1, 0]);
        bytes.extend((text.len() as u16).to_le_bytes());
    }
    bytes.extend(text.as_bytes());
    bytes.extend_from_slice(&tensor.bytes);
    Ok(bytes)
}
