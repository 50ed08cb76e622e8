//! From a file to messages and tensors: what every byte from outside passes through.
//!
//! Invariant: nothing is allocated on the word of a length field. A tensor's declared size must match
//! the bytes that are there before anything of that size exists, and data in other files is read only
//! from plain files inside the model's folder.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use prost::Message;

use super::error::{Foreign, ImportError, TensorProblem};
use super::proto::{ModelProto, SparseTensorProto, StringStringEntryProto, TensorProto};
use crate::{DType, Tensor};

/// No tensor has more elements than this: a larger product of extents is a mistake or an attack.
pub(super) const MAX_ELEMS: usize = 1 << 40;

/// Maps a file.
pub(super) fn map(path: &Path) -> std::io::Result<Bytes> {
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is only read. That nobody truncates the file meanwhile cannot be enforced; it is
    // the same for every program that maps its input.
    #[allow(unsafe_code, reason = "mapping a model file is the only way to open gigabytes at once")]
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}

/// Opens a model file.
pub(super) fn open(path: &Path) -> Result<ModelProto, ImportError> {
    let name = path.display().to_string();
    if path.is_dir() {
        return Err(ImportError::Foreign { name, found: Foreign::Directory });
    }
    let bytes = map(path).map_err(|source| ImportError::Read { path: path.to_owned(), source })?;
    decode(&name, bytes)
}

/// Decodes a model, or says what the bytes are instead.
pub(super) fn decode(name: &str, bytes: Bytes) -> Result<ModelProto, ImportError> {
    let foreign = |found| ImportError::Foreign { name: name.to_owned(), found };
    let n_bytes = bytes.len();
    if let Some(found) = sniff(&bytes) {
        return Err(foreign(found));
    }
    let model = ModelProto::decode(bytes).map_err(|source| ImportError::Decode {
        name: name.to_owned(),
        n_bytes,
        source,
    })?;
    let hollow = |missing| ImportError::Hollow { name: name.to_owned(), missing };
    let graph = model.graph.as_ref().ok_or_else(|| hollow("graph"))?;
    if graph.output.is_empty() {
        return Err(hollow("graph output"));
    }
    if model.opset_import.is_empty() {
        return Err(hollow("operator set (`opset_import`)"));
    }
    Ok(model)
}

/// Recognises files that are often mistaken for models. A model starts with a protobuf tag, which is a
/// control character.
fn sniff(bytes: &[u8]) -> Option<Foreign> {
    let head = &bytes[..bytes.len().min(512)];
    let text = head
        .iter()
        .all(|&b| (32..127).contains(&b) || matches!(b, b'\n' | b'\r' | b'\t') || b >= 128);
    let starts = |prefix: &[u8]| {
        let trimmed = head.trim_ascii_start();
        trimmed.len() >= prefix.len() && trimmed[..prefix.len()].eq_ignore_ascii_case(prefix)
    };
    match () {
        () if bytes.is_empty() => Some(Foreign::Empty),
        () if starts(b"version https://git-lfs") => Some(Foreign::LfsPointer),
        () if starts(b"<!doctype html") || starts(b"<html") => Some(Foreign::Html),
        () if head.starts_with(b"PK\x03\x04") => Some(Foreign::Zip),
        () if head.starts_with(b"\x89HDF") => Some(Foreign::Hdf5),
        () if text => Some(Foreign::Text),
        () => None,
    }
}

/// Turns tensor messages into tensors, with the data of other files.
pub(super) struct Tensors {
    folder: Option<PathBuf>,
    files: RefCell<BTreeMap<String, Bytes>>,
}

impl Tensors {
    /// `folder` is the model's; without one, a tensor with data elsewhere is refused.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, files: RefCell::default() }
    }

    /// The tensor of a message. Raw data is shared, not copied.
    pub(super) fn read(&self, proto: &TensorProto) -> Result<Tensor, ImportError> {
        self.try_read(proto).map_err(|problem| {
            let tensor = proto
                .name
                .clone()
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| "(unnamed)".into());
            ImportError::Tensor { tensor, problem }
        })
    }

    fn try_read(&self, proto: &TensorProto) -> Result<Tensor, TensorProblem> {
        let code = proto.data_type.unwrap_or(0);
        let dtype = DType::from_onnx(code).ok_or(TensorProblem::DType { code })?;
        let (extents, n_elems) = extents(&proto.dims)?;
        let needs = dtype.bytes_for(n_elems);
        let check = |found: usize, needs: usize, unit| {
            let dims = proto.dims.clone();
            if found == needs {
                Ok(())
            } else {
                Err(TensorProblem::Length { dtype: dtype.name(), dims, needs, unit, found })
            }
        };
        if proto.data_location == Some(1) {
            let bytes = self.external(&proto.external_data, needs)?;
            check(bytes.len(), needs, "bytes")?;
            return Ok(Tensor::new(dtype, &extents, normal(dtype, bytes)));
        }
        if let Some(raw) = proto.raw_data.as_ref().filter(|raw| !raw.is_empty()) {
            check(raw.len(), needs, "bytes")?;
            return Ok(Tensor::new(dtype, &extents, normal(dtype, raw.clone())));
        }
        match dtype {
            DType::F32 => {
                check(proto.float_data.len(), n_elems, "values")?;
                Ok(Tensor::f32(&extents, &proto.float_data))
            }
            DType::F64 => {
                check(proto.double_data.len(), n_elems, "values")?;
                Ok(Tensor::from_f64(dtype, &extents, &proto.double_data))
            }
            DType::I64 => {
                check(proto.int64_data.len(), n_elems, "values")?;
                Ok(Tensor::i64(&extents, &proto.int64_data))
            }
            DType::U64 | DType::U32 => {
                check(proto.uint64_data.len(), n_elems, "values")?;
                let wide: Vec<i64> = proto.uint64_data.iter().map(|&x| x as i64).collect();
                Ok(Tensor::from_i64(dtype, &extents, &wide))
            }
            // Half precision is stored as its bits; types of 4 and 2 bits are packed, a byte to an entry, as in raw data.
            DType::F16 | DType::BF16 => {
                check(proto.int32_data.len(), n_elems, "values")?;
                let bytes: Vec<u8> =
                    proto.int32_data.iter().flat_map(|&x| (x as u16).to_le_bytes()).collect();
                Ok(Tensor::new(dtype, &extents, bytes))
            }
            DType::F8E4M3
            | DType::F8E5M2
            | DType::F8E4M3FNUZ
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1
            | DType::I4
            | DType::U4
            | DType::I2
            | DType::U2 => {
                check(proto.int32_data.len(), needs, "values")?;
                let bytes: Vec<u8> = proto.int32_data.iter().map(|&x| x as u8).collect();
                Ok(Tensor::new(dtype, &extents, bytes))
            }
            DType::I32 | DType::I16 | DType::I8 | DType::U16 | DType::U8 | DType::Bool => {
                check(proto.int32_data.len(), n_elems, "values")?;
                let wide: Vec<i64> = proto.int32_data.iter().map(|&x| i64::from(x)).collect();
                Ok(Tensor::from_i64(dtype, &extents, &wide))
            }
        }
    }

    /// The bytes of a tensor whose data lies in another file.
    fn external(
        &self,
        entries: &[StringStringEntryProto],
        needs: usize,
    ) -> Result<Bytes, TensorProblem> {
        let entry = |key: &str| {
            let found = entries.iter().find(|entry| entry.key.as_deref() == Some(key));
            found.and_then(|entry| entry.value.clone())
        };
        let number = |key: &str, default: u64| match entry(key) {
            None => Ok(default),
            Some(value) => value
                .trim()
                .parse()
                .map_err(|_| TensorProblem::Number { key: key.to_owned(), value }),
        };
        let location =
            entry("location").filter(|it| !it.is_empty()).ok_or(TensorProblem::NoLocation)?;
        let (offset, length) = (number("offset", 0)?, number("length", needs as u64)?);
        let file = self.file(&location)?;
        let available = file.len() as u64;
        match offset.checked_add(length) {
            Some(end) if end <= available => Ok(file.slice(offset as usize..end as usize)),
            _ => Err(TensorProblem::Range { location, offset, length, available }),
        }
    }

    /// Maps a file of the model's folder, once.
    fn file(&self, location: &str) -> Result<Bytes, TensorProblem> {
        if let Some(bytes) = self.files.borrow().get(location) {
            return Ok(bytes.clone());
        }
        let folder = self.folder.as_ref().ok_or(TensorProblem::NoFolder)?;
        let refuse = |reason| TensorProblem::Location { location: location.to_owned(), reason };
        let read = |source| TensorProblem::Read { location: location.to_owned(), source };
        if location.contains('\\') || location.contains('\0') {
            return Err(refuse("it contains a backslash or a zero byte"));
        }
        let mut path = folder.clone();
        for component in Path::new(location).components() {
            match component {
                Component::CurDir => continue,
                Component::Normal(part) => path.push(part),
                Component::ParentDir => return Err(refuse("it contains `..`")),
                Component::RootDir | Component::Prefix(_) => return Err(refuse("it is absolute")),
            }
            let meta = path.symlink_metadata().map_err(read)?;
            if meta.is_symlink() {
                return Err(refuse("it is or passes through a symbolic link"));
            }
        }
        let meta = path.symlink_metadata().map_err(read)?;
        if !meta.is_file() {
            return Err(refuse("it is not a plain file"));
        }
        #[cfg(unix)]
        if std::os::unix::fs::MetadataExt::nlink(&meta) > 1 {
            return Err(refuse("it is a hard link (the file has several names)"));
        }
        let bytes = map(&path).map_err(read)?;
        self.files.borrow_mut().insert(location.to_owned(), bytes.clone());
        Ok(bytes)
    }

    /// The dense form of a sparse constant.
    pub(super) fn read_sparse(
        &self,
        proto: &SparseTensorProto,
    ) -> Result<(String, Tensor), ImportError> {
        let values = proto.values.clone().unwrap_or_default();
        let name = values.name.clone().unwrap_or_default();
        let fail = |problem| ImportError::Tensor { tensor: name.clone(), problem };
        let stored = self.read(&values)?;
        let indices = self.read(&proto.indices.clone().unwrap_or_default())?;
        let (extents, n_elems) = extents(&proto.dims).map_err(fail)?;
        // A dense tensor is allocated on the word of `dims`: cap it.
        if n_elems > 1 << 22 {
            return Err(fail(TensorProblem::Extents { dims: proto.dims.clone() }));
        }
        let (index, rank) = (indices.to_i64(), extents.len());
        let mut dense = vec![0.0; n_elems];
        let mut dense_ints = vec![0; if stored.dtype.is_float() { 0 } else { n_elems }];
        let (floats, ints) =
            (stored.to_f64(), if stored.dtype.is_float() { Vec::new() } else { stored.to_i64() });
        let wrong_index =
            |index| fail(TensorProblem::SparseIndex { index, dims: proto.dims.clone() });
        for (k, &value) in floats.iter().enumerate() {
            // Indices are linear ([nnz]) or one coordinate per dimension ([nnz, rank]).
            let mut at: i64 = 0;
            if indices.extents.len() == 2 {
                for (axis, &extent) in extents.iter().enumerate() {
                    let i = *index.get(k * rank + axis).ok_or_else(|| wrong_index(-1))?;
                    if i < 0 || i as usize >= extent {
                        return Err(wrong_index(i));
                    }
                    at = at * extent as i64 + i;
                }
            } else {
                at = *index.get(k).ok_or_else(|| wrong_index(-1))?;
            }
            let at = usize::try_from(at)
                .ok()
                .filter(|&at| at < n_elems)
                .ok_or_else(|| wrong_index(at))?;
            match ints.get(k) {
                Some(&x) => dense_ints[at] = x,
                None => dense[at] = value,
            }
        }
        let tensor = match stored.dtype.is_float() {
            true => Tensor::from_f64(stored.dtype, &extents, &dense),
            false => Tensor::from_i64(stored.dtype, &extents, &dense_ints),
        };
        Ok((name, tensor))
    }
}

/// Booleans are one byte, 0 or 1; files hold any byte.
fn normal(dtype: DType, bytes: Bytes) -> Bytes {
    if dtype == DType::Bool && bytes.iter().any(|&b| b > 1) {
        return bytes.iter().map(|&b| u8::from(b != 0)).collect::<Vec<_>>().into();
    }
    bytes
}

/// Extents and their product, if they can be those of a tensor.
pub(super) fn extents(dims: &[i64]) -> Result<(Vec<usize>, usize), TensorProblem> {
    let wrong = || TensorProblem::Extents { dims: dims.to_vec() };
    let extents: Option<Vec<usize>> = dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let extents = extents.ok_or_else(wrong)?;
    let n_elems = product(&extents).ok_or_else(wrong)?;
    Ok((extents, n_elems))
}

/// The product, unless it is beyond [`MAX_ELEMS`]. A zero does not hide an absurd extent beside it.
pub(super) fn product(extents: &[usize]) -> Option<usize> {
    let mut bound = 1usize;
    for &extent in extents {
        bound = bound.checked_mul(extent.max(1)).filter(|&n| n <= MAX_ELEMS)?;
    }
    Some(extents.iter().product())
}
