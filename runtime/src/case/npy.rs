//! One `.npy` array: its raw elements, whatever their order in the file.
//!
//! Header and elements are read here: npyz (0.9) multiplies extents unchecked, and elements that are
//! moved as bytes are never rounded.

use std::io::Read;

use eggine_ir::{DType, Tensor};

use crate::program::Strings;

/// What an array holds.
#[derive(Clone, Debug)]
pub(super) enum Array {
    Tensor(Tensor),
    /// Strings, and why they are no tensor.
    Strings(Strings, Unsupported),
    Unsupported(Unsupported),
}

/// An array of a kind that no tensor has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its elements are {what} (NumPy type `{descr}`), which no tensor of a model that Eggine runs has"
)]
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
        DType::F8E4M3
        | DType::F8E5M2
        | DType::F8E4M3FNUZ
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1
        | DType::I4
        | DType::U4
        | DType::I2
        | DType::U2 => return None,
    })
}

/// The element type, and whether its bytes are in big-endian order.
fn dtype_of(descr: &str) -> Result<(DType, bool), Unsupported> {
    let unsupported = |what| Unsupported { what, descr: descr.to_owned() };
    if descr.starts_with('[') {
        return Err(unsupported("records"));
    }
    let kind = descr.trim_start_matches(['<', '>', '|', '=']);
    let known = DType::ALL
        .iter()
        .find(|&&dtype| self::descr(dtype).is_some_and(|descr| &descr[1..] == kind));
    match (known, kind.chars().next()) {
        (Some(&dtype), _) => Ok((dtype, descr.starts_with('>'))),
        (None, Some('U' | 'S' | 'a')) => Err(unsupported("strings")),
        (None, Some('O')) => Err(unsupported("Python objects")),
        (None, Some('c')) => Err(unsupported("complex numbers")),
        (None, Some('m' | 'M')) => Err(unsupported("times")),
        _ => Err(unsupported("of an unusual kind")),
    }
}

/// What the header of a `.npy` file says (NumPy's NEP 1). It is a Python literal with three keys, which
/// NumPy and its imitators write in different orders and spacings.
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<u64>,
}

impl Header {
    fn read(npy: &mut impl Read) -> Result<Self, String> {
        let mut prefix = [0; 8];
        let cut_off = |_| "its header is cut off".to_owned();
        npy.read_exact(&mut prefix).map_err(cut_off)?;
        if &prefix[..6] != b"\x93NUMPY" {
            return Err("it does not start as a NumPy array".into());
        }
        let n_bytes = match prefix[6] {
            1 => {
                let mut length = [0; 2];
                npy.read_exact(&mut length).map_err(cut_off)?;
                u64::from(u16::from_le_bytes(length))
            }
            2 | 3 => {
                let mut length = [0; 4];
                npy.read_exact(&mut length).map_err(cut_off)?;
                u64::from(u32::from_le_bytes(length))
            }
            version => return Err(format!("it has NumPy format version {version}")),
        };
        let mut text = Vec::new();
        npy.by_ref().take(n_bytes).read_to_end(&mut text).map_err(|err| err.to_string())?;
        if (text.len() as u64) < n_bytes {
            return Err("its header is cut off".into());
        }
        Self::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let value = |key: &str| -> Result<&str, String> {
            let after = ["'", "\""]
                .iter()
                .find_map(|quote| text.split_once(&format!("{quote}{key}{quote}")));
            let value = after
                .and_then(|(_, rest)| rest.trim_start().strip_prefix(':'))
                .map(str::trim_start);
            value.ok_or_else(|| format!("its header has no {key}"))
        };
        let descr = value("descr")?;
        let descr = match descr.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                let end = descr[1..].find(quote).ok_or("its header has no descr")?;
                descr[1..=end].to_owned()
            }
            _ => {
                format!("[{}", descr.trim_start_matches('[').split(']').next().unwrap_or_default())
            }
        };
        let order = value("fortran_order")?;
        let fortran_order = match () {
            () if order.starts_with("True") => true,
            () if order.starts_with("False") => false,
            () => return Err("its header has no fortran_order".into()),
        };
        let shape = value("shape")?.strip_prefix('(').and_then(|shape| shape.split_once(')'));
        let (shape, _) = shape.ok_or("its header has no shape")?;
        let extents = shape.split(',').map(str::trim).filter(|extent| !extent.is_empty());
        let parsed = extents.map(str::parse).collect::<Result<Vec<u64>, _>>();
        let shape = parsed.map_err(|_| format!("its shape is `{shape}`"))?;
        Ok(Self { descr, fortran_order, shape })
    }
}

/// Reads an array, or says what is damaged.
pub(super) fn read(mut npy: impl Read) -> Result<Array, String> {
    let header = Header::read(&mut npy)?;
    let (dtype, big_endian) = match dtype_of(&header.descr) {
        Ok(found) => found,
        Err(unsupported) => {
            return Ok(match code_points(&header.descr) {
                Some(n_chars) => Array::Strings(strings(npy, &header, n_chars)?, unsupported),
                None => Array::Unsupported(unsupported),
            });
        }
    };
    let width = dtype.bits() / 8;
    let (extents, bytes) = elements(npy, &header, width)?;
    let needs = || eggine_ir::TensorType::fixed(dtype, &extents);
    let mut bytes = bytes.map_err(|(has, n_bytes)| {
        format!("has {has} bytes of data, {} needs {n_bytes}", needs())
    })?;
    if big_endian {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    if header.fortran_order && extents.len() > 1 {
        bytes = to_row_major(&bytes, &extents, width);
    }
    if dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        return Err("a boolean is neither 0 nor 1".into());
    }
    Ok(Array::Tensor(Tensor::new(dtype, &extents, bytes)))
}

/// Code points of each string of a little-endian `U` type.
fn code_points(descr: &str) -> Option<usize> {
    descr.strip_prefix("<U").or_else(|| descr.strip_prefix("=U"))?.parse().ok()
}

/// Strings of a fixed number of code points in UTF-32, padded with zeros.
fn strings(npy: impl Read, header: &Header, n_chars: usize) -> Result<Strings, String> {
    let width = n_chars.checked_mul(4).ok_or("its strings are too long")?;
    let (extents, bytes) = elements(npy, header, width)?;
    let bytes = bytes
        .map_err(|(has, needs)| format!("has {has} bytes of data, its strings need {needs}"))?;
    let bytes = match header.fortran_order && extents.len() > 1 && width > 0 {
        true => to_row_major(&bytes, &extents, width),
        false => bytes,
    };
    let mut data = Vec::new();
    for n in 0..extents.iter().product::<usize>() {
        let points = bytes[n * width..][..width].chunks_exact(4);
        let points = points.map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
        let text: Option<String> = points.take_while(|&it| it != 0).map(char::from_u32).collect();
        data.push(text.ok_or("a string has a number that is no character")?);
    }
    Ok(Strings { extents, data })
}

/// Extents and bytes; or how many bytes there are, and how many there should be.
type Elements = (Vec<usize>, Result<Vec<u8>, (usize, usize)>);

fn elements(npy: impl Read, header: &Header, width: usize) -> Result<Elements, String> {
    let mut extents = Vec::with_capacity(header.shape.len());
    let mut n_bytes = width;
    for &extent in &header.shape {
        let too_large = || format!("its shape {:?} is too large", header.shape);
        let extent = usize::try_from(extent).map_err(|_| too_large())?;
        n_bytes = n_bytes.checked_mul(extent).ok_or_else(too_large)?;
        extents.push(extent);
    }
    // Grows with what is there, not with what the header claims.
    let mut bytes = Vec::new();
    npy.take(n_bytes as u64).read_to_end(&mut bytes).map_err(|err| err.to_string())?;
    if bytes.len() != n_bytes {
        return Ok((extents, Err((bytes.len(), n_bytes))));
    }
    Ok((extents, Ok(bytes)))
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
    let descr =
        descr(tensor.dtype).ok_or_else(|| format!("NumPy has no {} elements", tensor.dtype))?;
    Ok(with_header(descr, &tensor.extents, &tensor.bytes))
}

/// The bytes of a `.npy` file of strings.
pub(super) fn strings_to_bytes(strings: &Strings) -> Vec<u8> {
    let longest = strings.data.iter().map(|it| it.chars().count()).max().unwrap_or(0).max(1);
    let mut bytes = Vec::with_capacity(strings.data.len() * longest * 4);
    for text in &strings.data {
        let padding = std::iter::repeat_n('\0', longest - text.chars().count());
        bytes.extend(text.chars().chain(padding).flat_map(|it| u32::from(it).to_le_bytes()));
    }
    with_header(&format!("<U{longest}"), &strings.extents, &bytes)
}

fn with_header(descr: &str, extents: &[usize], elements: &[u8]) -> Vec<u8> {
    let mut shape: String = extents.iter().map(|extent| format!("{extent}, ")).collect();
    if extents.len() > 1 {
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
    bytes.extend_from_slice(elements);
    bytes
}
