//! Case files: NumPy `.npz` archives of inputs and expected outputs of a model.
//!
//! Arrays are named as the model's tensors, or `in0…`, `out0…` in the model's order; `spec0…` are
//! expected outputs too, as another implementation computes them. Where both spellings are there, the
//! tensor's name wins. The elements of a sequence are `name.0`, `name.1`, …; `name.length` tells how many
//! where there is none. An optional without a value has no array.

mod npy;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use eggine_ir::onnx::Port;
use eggine_ir::{DType, Tensor};
use indexmap::IndexMap;

use crate::engine::write_atomically;
use crate::plan::IoSpec;

use npy::Array;
pub use npy::Unsupported;

use crate::program::{HostValue, Strings};

/// The arrays of a case file.
#[derive(Clone, Debug)]
pub struct Case {
    path: PathBuf,
    arrays: IndexMap<String, Array>,
}

/// What a case says about one output.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The array named as the tensor, or `outN`.
    pub out: Option<Tensor>,
    /// The array `specN`.
    pub spec: Option<Tensor>,
}

/// A case file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The operating system refuses.
    #[error("cannot read case file `{file}`: {source}")]
    Read {
        /// Path.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The operating system refuses, or the disk is full.
    #[error("cannot write `{file}`: {source}; nothing was left behind")]
    Write {
        /// Path.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// No zip archive, or a damaged one.
    #[error("`{file}` is not a NumPy .npz file: {reason}")]
    NotAnArchive {
        /// Path.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A damaged array.
    #[error("`{file}`: array `{array}`: {reason}")]
    Array {
        /// Path.
        file: String,
        /// Name of the array.
        array: String,
        /// What is wrong.
        reason: String,
    },
    /// An array that is needed and not there.
    #[error("`{file}` has no array `{name}` (or `{numbered}`); it has {present}")]
    Missing {
        /// Path.
        file: String,
        /// Name of the tensor.
        name: String,
        /// The other spelling.
        numbered: String,
        /// Names of all arrays.
        present: String,
    },
    /// An array of another type than the model's.
    #[error("`{file}`: array `{array}` is {found}, the model's `{name}` is {wanted}")]
    Type {
        /// Path.
        file: String,
        /// Name of the array.
        array: String,
        /// Its type.
        found: String,
        /// Name of the tensor.
        name: String,
        /// Its type.
        wanted: String,
    },
    /// No array for any output.
    #[error(
        "`{file}` has no expected output: no array is named {wanted}, out0… or spec0…; it has {present}"
    )]
    NoOutputs {
        /// Path.
        file: String,
        /// Names of the outputs.
        wanted: String,
        /// Names of all arrays.
        present: String,
    },
}

impl Case {
    /// Reads all arrays of a file.
    ///
    /// An array of a kind that no tensor has (strings, records, objects) is an error only when it is
    /// asked for.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no archive, or an array is damaged.
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let file = path.display().to_string();
        let opened =
            File::open(path).map_err(|source| CaseError::Read { file: file.clone(), source })?;
        if opened.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            let source = io::Error::new(io::ErrorKind::IsADirectory, "it is a folder");
            return Err(CaseError::Read { file, source });
        }
        Self::from_archive(path, io::BufReader::new(opened))
    }

    /// As [`read`](Self::read), of a file's bytes; `path` is for messages.
    ///
    /// # Errors
    ///
    /// If it is no archive, or an array is damaged.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, CaseError> {
        Self::from_archive(path, io::Cursor::new(bytes))
    }

    fn from_archive(path: &Path, reader: impl io::Read + io::Seek) -> Result<Self, CaseError> {
        let file = path.display().to_string();
        let archive = npyz::npz::NpzArchive::new(reader);
        let mut archive = archive.map_err(|err| CaseError::NotAnArchive {
            file: file.clone(),
            reason: err.to_string(),
        })?;
        let mut names: Vec<String> = archive.array_names().map(str::to_owned).collect();
        names.sort();
        names.dedup();
        let mut arrays = IndexMap::new();
        for array in names {
            let damaged = |reason: String| CaseError::Array {
                file: file.clone(),
                array: array.clone(),
                reason,
            };
            let member = npyz::npz::file_name_from_array_name(&array);
            let npy =
                archive.zip_archive().by_name(&member).map_err(|err| damaged(err.to_string()))?;
            let tensor = npy::read(npy).map_err(damaged)?;
            arrays.insert(array, tensor);
        }
        Ok(Self { path: path.to_owned(), arrays })
    }

    /// A case of arrays in memory; `path` is for messages.
    pub fn from_arrays(
        path: impl Into<PathBuf>,
        arrays: impl IntoIterator<Item = (String, Tensor)>,
    ) -> Self {
        let arrays =
            arrays.into_iter().map(|(name, tensor)| (name, Array::Tensor(tensor))).collect();
        Self { path: path.into(), arrays }
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the arrays, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.arrays.keys().map(String::as_str)
    }

    /// The array with a name.
    ///
    /// # Errors
    ///
    /// If it is of a kind that no tensor has.
    pub fn array(&self, name: &str) -> Result<Option<&Tensor>, CaseError> {
        match self.arrays.get(name) {
            None => Ok(None),
            Some(Array::Tensor(tensor)) => Ok(Some(tensor)),
            Some(Array::Strings(_, unsupported) | Array::Unsupported(unsupported)) => {
                Err(self.damaged(name, unsupported.to_string()))
            }
        }
    }

    /// The strings with a name, by it or by the other spelling.
    fn strings(&self, name: &str, numbered: &str) -> Option<&Strings> {
        let array = self.arrays.get(name).or_else(|| self.arrays.get(numbered))?;
        match array {
            Array::Strings(strings, _) => Some(strings),
            Array::Tensor(_) | Array::Unsupported(_) => None,
        }
    }

    /// The value for input `index`, numbers or strings, by its name or as `inN`.
    ///
    /// # Errors
    ///
    /// If there is no such array, or it is of a kind that no value has.
    pub fn input_value(&self, index: usize, name: &str) -> Result<HostValue, CaseError> {
        let numbered = format!("in{index}");
        if let Some(strings) = self.strings(name, &numbered) {
            return Ok(HostValue::Strings(strings.clone()));
        }
        match self.input(index, name)? {
            Some(tensor) => Ok(tensor.clone().into()),
            None => Err(self.missing(name, numbered)),
        }
    }

    /// The value for input `index` of whatever kind the model declares. An optional of which the case has
    /// nothing is without a value.
    ///
    /// # Errors
    ///
    /// If there is no such array, it is of a kind that no value has, or a sequence has another length than
    /// the case tells.
    pub fn input_port(&self, index: usize, port: &Port) -> Result<HostValue, CaseError> {
        let (name, numbered) = (port.name.as_str(), format!("in{index}"));
        match port.found.as_str() {
            _ if port.dtype.is_some() => self.input_value(index, name),
            "a sequence" => {
                let found = self.sequence(name, &numbered)?;
                found.ok_or_else(|| self.missing(&format!("{name}.0"), format!("{numbered}.0")))
            }
            "an optional" if [name, &numbered].iter().any(|it| self.arrays.contains_key(*it)) => {
                self.input_value(index, name)
            }
            "an optional" => Ok(self.sequence(name, &numbered)?.unwrap_or(HostValue::Nothing)),
            _ => self.input_value(index, name),
        }
    }

    /// The sequence that output `index` should be, if the case says so.
    ///
    /// # Errors
    ///
    /// As [`input_port`](Self::input_port).
    pub fn expected_sequence(
        &self,
        index: usize,
        name: &str,
    ) -> Result<Option<HostValue>, CaseError> {
        self.sequence(name, &format!("out{index}"))
    }

    fn sequence(&self, name: &str, numbered: &str) -> Result<Option<HostValue>, CaseError> {
        for base in [name, numbered] {
            let mut all = Vec::new();
            loop {
                let element = format!("{base}.{}", all.len());
                match self.arrays.get(&element) {
                    Some(Array::Strings(strings, _)) => {
                        all.push(HostValue::Strings(strings.clone()));
                    }
                    Some(_) => all.extend(self.array(&element)?.cloned().map(HostValue::from)),
                    None => break,
                }
            }
            let told = format!("{base}.length");
            let length = match self.array(&told)? {
                Some(tensor) if !tensor.dtype.is_float() => tensor.to_i64().first().copied(),
                _ => None,
            };
            match length {
                None if all.is_empty() => (),
                Some(length) if usize::try_from(length).ok() != Some(all.len()) => {
                    let reason = format!("it is {length}, and there are {} elements", all.len());
                    return Err(self.damaged(&told, reason));
                }
                _ => return Ok(Some(HostValue::Sequence(all))),
            }
        }
        Ok(None)
    }

    /// The strings that output `index` should be, if the case says so.
    pub fn expected_strings(&self, index: usize, name: &str) -> Option<&Strings> {
        self.strings(name, &format!("out{index}"))
    }

    /// The array for an input, by its name or as `inN`; `None` if there is neither.
    ///
    /// # Errors
    ///
    /// If it is of a kind that no tensor has.
    pub fn input(&self, index: usize, name: &str) -> Result<Option<&Tensor>, CaseError> {
        Ok(self.either(name, &format!("in{index}"))?.map(|(_, tensor)| tensor))
    }

    /// Extents of an input, by its name or as `inN`: what `--shapes-from` binds.
    ///
    /// # Errors
    ///
    /// If there is no such array, or it is of a kind that no tensor has.
    pub fn input_extents(&self, index: usize, name: &str) -> Result<Vec<usize>, CaseError> {
        match self.input(index, name)? {
            Some(tensor) => Ok(tensor.extents.clone()),
            None => Err(self.missing(name, format!("in{index}"))),
        }
    }

    /// The inputs of a model, in its order.
    ///
    /// # Errors
    ///
    /// If one is missing or has another element type or other extents.
    pub fn inputs(&self, specs: &[IoSpec]) -> Result<Vec<Tensor>, CaseError> {
        let mut inputs = Vec::with_capacity(specs.len());
        for (index, spec) in specs.iter().enumerate() {
            let numbered = format!("in{index}");
            let Some((array, tensor)) = self.either(&spec.name, &numbered)? else {
                return Err(self.missing(&spec.name, numbered));
            };
            inputs.push(self.typed(&array, tensor, spec)?);
        }
        Ok(inputs)
    }

    /// What the case says about each output of a model, in its order.
    ///
    /// # Errors
    ///
    /// If it says nothing about any, or an array has another type or other extents than the output.
    pub fn expected(&self, specs: &[IoSpec]) -> Result<Vec<Expected>, CaseError> {
        let mut all = Vec::with_capacity(specs.len());
        for (index, spec) in specs.iter().enumerate() {
            all.push(self.expected_at(index, spec)?);
        }
        if all.iter().all(|expected| expected.out.is_none() && expected.spec.is_none()) {
            let wanted =
                specs.iter().map(|spec| format!("`{}`", spec.name)).collect::<Vec<_>>().join(", ");
            return Err(CaseError::NoOutputs {
                file: self.file(),
                wanted,
                present: self.present(),
            });
        }
        Ok(all)
    }

    /// What the case says about output `index`, which may be nothing.
    ///
    /// # Errors
    ///
    /// If an array has another type or other extents than the output.
    pub fn expected_at(&self, index: usize, spec: &IoSpec) -> Result<Expected, CaseError> {
        let out = match self.either(&spec.name, &format!("out{index}"))? {
            Some((array, tensor)) => Some(self.typed(&array, tensor, spec)?),
            None => None,
        };
        let array = format!("spec{index}");
        let spec = match self.array(&array)? {
            Some(tensor) => Some(self.typed(&array, tensor, spec)?),
            None => None,
        };
        Ok(Expected { out, spec })
    }

    /// The array with one of two names, and which one it has.
    fn either(&self, name: &str, numbered: &str) -> Result<Option<(String, &Tensor)>, CaseError> {
        if let Some(tensor) = self.array(name)? {
            return Ok(Some((name.to_owned(), tensor)));
        }
        Ok(self.array(numbered)?.map(|tensor| (numbered.to_owned(), tensor)))
    }

    fn typed(&self, array: &str, tensor: &Tensor, spec: &IoSpec) -> Result<Tensor, CaseError> {
        if tensor.extents == spec.extents && tensor.dtype == spec.dtype {
            return Ok(tensor.clone());
        }
        Err(CaseError::Type {
            file: self.file(),
            array: array.to_owned(),
            found: tensor.ty().to_string(),
            name: spec.name.clone(),
            wanted: spec.ty().to_string(),
        })
    }

    fn file(&self) -> String {
        self.path.display().to_string()
    }

    fn present(&self) -> String {
        if self.arrays.is_empty() {
            "no arrays".into()
        } else {
            self.names().collect::<Vec<_>>().join(", ")
        }
    }

    fn missing(&self, name: &str, numbered: String) -> CaseError {
        CaseError::Missing {
            file: self.file(),
            name: name.to_owned(),
            numbered,
            present: self.present(),
        }
    }

    fn damaged(&self, array: &str, reason: String) -> CaseError {
        CaseError::Array { file: self.file(), array: array.to_owned(), reason }
    }
}

/// Writes arrays to an `.npz` file, uncompressed; equal arrays give equal bytes.
///
/// # Errors
///
/// [`CaseError::Write`] if the file cannot be written, and [`CaseError::Array`] for an element type
/// that NumPy lacks; then nothing is left behind.
pub fn write_npz(path: &Path, arrays: &[(String, Tensor)]) -> Result<(), CaseError> {
    let values: Vec<(String, HostValue)> =
        arrays.iter().map(|(name, tensor)| (name.clone(), tensor.clone().into())).collect();
    write_values(path, &values)
}

/// As [`write_npz`], of numbers and strings; a sequence is an array for each of its elements, `name.0`,
/// `name.1`, …, and one without elements is its `name.length`. Nothing is written for an optional without a
/// value.
///
/// # Errors
///
/// As [`write_npz`].
pub fn write_values(path: &Path, values: &[(String, HostValue)]) -> Result<(), CaseError> {
    let none = HostValue::Tensor(Tensor::i64(&[], &[0]));
    let mut arrays: Vec<(String, &HostValue)> = Vec::new();
    for (name, value) in values {
        match value {
            HostValue::Nothing => (),
            HostValue::Sequence(all) if all.is_empty() => {
                arrays.push((format!("{name}.length"), &none));
            }
            HostValue::Sequence(all) => {
                let named = all.iter().enumerate().map(|(at, it)| (format!("{name}.{at}"), it));
                arrays.extend(named);
            }
            single => arrays.push((name.clone(), single)),
        }
    }
    let file = path.display().to_string();
    let mut bytes = io::Cursor::new(Vec::new());
    {
        let mut archive = npyz::npz::NpzWriter::new(&mut bytes);
        for (name, value) in &arrays {
            let unsupported = |reason: String| CaseError::Array {
                file: file.clone(),
                array: name.clone(),
                reason,
            };
            let npy = match value {
                HostValue::Tensor(tensor) => npy::to_bytes(tensor).map_err(unsupported)?,
                HostValue::Strings(strings) => npy::strings_to_bytes(strings),
                HostValue::Sequence(_) | HostValue::Nothing => {
                    return Err(unsupported(format!("{value} in a sequence has no array")));
                }
            };
            // The stored time would otherwise make equal arrays different files.
            let options = npyz::zip::write::FileOptions::default()
                .compression_method(npyz::zip::CompressionMethod::Stored)
                .last_modified_time(npyz::zip::DateTime::default())
                .large_file(npy.len() > u32::MAX as usize);
            let write = |err: io::Error| CaseError::Write { file: file.clone(), source: err };
            let zip = archive.zip_writer();
            zip.start_file(npyz::npz::file_name_from_array_name(name), options)
                .map_err(|err| write(err.into()))?;
            io::Write::write_all(zip, &npy).map_err(write)?;
        }
        let end = archive.zip_writer().finish();
        end.map_err(|err| CaseError::Write { file: file.clone(), source: err.into() })?;
    }
    write_atomically(path, |out| out.write_all(bytes.get_ref()))
        .map_err(|source| CaseError::Write { file: file.clone(), source })
}

/// Writes the outputs of a run under their names in the model.
///
/// # Errors
///
/// As [`write_npz`].
pub fn write_outputs(path: &Path, specs: &[IoSpec], outputs: &[Tensor]) -> Result<(), CaseError> {
    let arrays: Vec<(String, Tensor)> = specs
        .iter()
        .zip(outputs)
        .map(|(spec, tensor)| (spec.name.clone(), tensor.clone()))
        .collect();
    write_npz(path, &arrays)
}

/// Whether NumPy has this element type, so that it can be in a case file.
pub fn is_numpy_dtype(dtype: DType) -> bool {
    npy::descr(dtype).is_some()
}
