//! The tests as `tests/conformance/generate.py` writes them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eggine_ir::{DType, Tensor};

/// One test of the suite.
#[derive(Clone)]
pub(crate) struct Case {
    /// `node`, `simple`, `light`, `pytorch-operator` or `pytorch-converted`.
    pub(crate) kind: String,
    pub(crate) name: String,
    /// What keeps it out of the count: strings, sequences, optionals, maps, training.
    pub(crate) excluded: Option<String>,
    /// Tolerances of the suite itself.
    pub(crate) rtol: f64,
    pub(crate) atol: f64,
    folder: Arc<PathBuf>,
}

/// A named tensor, or the element type that we have no name for.
pub(crate) type Named = (String, Result<Tensor, String>);

/// One data set of a test.
pub(crate) struct Set {
    pub(crate) inputs: Vec<Named>,
    pub(crate) outputs: Vec<Named>,
}

impl Set {
    /// The same inputs with other outputs expected.
    pub(crate) fn with_outputs(&self, outputs: &[Tensor]) -> Self {
        let names = self.outputs.iter().map(|(name, _)| name.clone());
        let outputs = names.zip(outputs.iter().map(|tensor| Ok(tensor.clone()))).collect();
        Self { inputs: self.inputs.clone(), outputs }
    }
}

fn bad(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unreadable line `{line}`"))
}

impl Case {
    /// The tests below a folder, in the order of its index.
    pub(crate) fn all(folder: &Path) -> io::Result<Vec<Self>> {
        let index = std::fs::read_to_string(folder.join("index.tsv"))?;
        let folder = Arc::new(folder.to_owned());
        index
            .lines()
            .map(|line| {
                let [kind, name, excluded, rtol, atol] = line.split('\t').collect::<Vec<_>>()[..]
                else {
                    return Err(bad(line));
                };
                Ok(Self {
                    kind: kind.into(),
                    name: name.into(),
                    excluded: (excluded != "-").then(|| excluded.into()),
                    rtol: rtol.parse().map_err(|_| bad(line))?,
                    atol: atol.parse().map_err(|_| bad(line))?,
                    folder: Arc::clone(&folder),
                })
            })
            .collect()
    }

    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    pub(crate) fn model(&self) -> PathBuf {
        self.at().join("model.onnx")
    }

    fn at(&self) -> PathBuf {
        self.folder.join(&self.kind).join(&self.name)
    }

    /// The data sets.
    pub(crate) fn sets(&self) -> io::Result<Vec<Set>> {
        let mut sets = Vec::new();
        loop {
            let path = self.at().join(format!("set{}.tsv", sets.len()));
            let Ok(text) = std::fs::read_to_string(&path) else { return Ok(sets) };
            let bytes = bytes::Bytes::from(std::fs::read(path.with_extension("bin"))?);
            let mut set = Set { inputs: Vec::new(), outputs: Vec::new() };
            for line in text.lines() {
                let [role, name, dtype, dims, offset, length] =
                    line.split('\t').collect::<Vec<_>>()[..]
                else {
                    return Err(bad(line));
                };
                let number = |text: &str| text.parse::<usize>().map_err(|_| bad(line));
                let extents = dims
                    .split(',')
                    .filter(|dim| !dim.is_empty())
                    .map(number)
                    .collect::<io::Result<Vec<_>>>()?;
                let (offset, length) = (number(offset)?, number(length)?);
                let data = bytes.slice(offset..offset + length);
                let tensor = match dtype.parse::<DType>() {
                    Ok(dtype) => Ok(Tensor::new(dtype, &extents, data)),
                    Err(_) => Err(dtype.to_owned()),
                };
                let list = if role == "in" { &mut set.inputs } else { &mut set.outputs };
                list.push((name.to_owned(), tensor));
            }
            sets.push(set);
        }
    }
}
