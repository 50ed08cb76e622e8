//! What can be wrong with a model, each kind with what a caller or a user needs to act on it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::graph::TypeError;

/// Why a model was not imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file could not be opened or mapped.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The model file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is something else, and it is clear what.
    #[error("`{name}` is not an ONNX model: it is {found}")]
    Foreign {
        /// File name, or `<bytes>`.
        name: String,
        /// What it is.
        found: Foreign,
    },
    /// The bytes are not an ONNX message: damaged, truncated, or something else.
    #[error(
        "`{name}` is not a readable ONNX model ({n_bytes} bytes, damaged or truncated?): {source}"
    )]
    Decode {
        /// File name, or `<bytes>`.
        name: String,
        /// Its length.
        n_bytes: usize,
        /// Where parsing stopped.
        source: prost::DecodeError,
    },
    /// A message that parses and says nothing: any file may look like this by accident.
    #[error("`{name}` is not an ONNX model: it has no {missing}")]
    Hollow {
        /// File name, or `<bytes>`.
        name: String,
        /// The missing part.
        missing: &'static str,
    },
    /// The model is for a version of the standard that import does not know.
    #[error("the model uses opset {found} of `{domain}`, import knows {least} to {most}")]
    Opset {
        /// Operator domain.
        domain: String,
        /// What the model asks for.
        found: i64,
        /// Oldest known.
        least: i64,
        /// Newest known.
        most: i64,
    },
    /// A shape was given for something that is not an input.
    #[error("the model has no input `{given}`; its inputs are {inputs}")]
    NoSuchInput {
        /// The name given.
        given: String,
        /// The inputs with their types.
        inputs: String,
    },
    /// A given shape contradicts the model's.
    #[error("input `{input}` is {declared} in the model, the shape given is {given}")]
    InputShape {
        /// Input name.
        input: String,
        /// The model's type, symbols by name.
        declared: String,
        /// The shape given.
        given: String,
    },
    /// One symbol would have to be two numbers.
    #[error(
        "dimension `{symbol}` is {first} in input `{first_input}` and {second} in input `{second_input}`"
    )]
    Symbol {
        /// Name of the dimension.
        symbol: String,
        /// Extent bound first.
        first: usize,
        /// By this input.
        first_input: String,
        /// Extent bound second.
        second: usize,
        /// By this input.
        second_input: String,
    },
    /// Some inputs have dimensions without a number.
    #[error("the shapes of {n_inputs} inputs are not fixed; pass {hint}", n_inputs = unbound.len())]
    Unbound {
        /// Names of the inputs.
        unbound: Vec<String>,
        /// Options to pass, with `?` for each number to choose.
        hint: String,
    },
    /// An input or output is not a tensor of a known element type.
    #[error("{role} `{name}` is {found}; only tensors of numbers can be compiled")]
    Interface {
        /// `input` or `output`.
        role: &'static str,
        /// Its name.
        name: String,
        /// Its type in words.
        found: String,
    },
    /// A constant of the model is malformed.
    #[error("tensor `{tensor}`: {problem}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// What is wrong.
        problem: TensorProblem,
    },
    /// Operators, or forms of operators, that import cannot express. All of them.
    #[error("{}", list(.0))]
    Unsupported(Vec<Unsupported>),
    /// A node is malformed or contradicts its operands.
    #[error("node `{node}` ({op}): {problem}")]
    Node {
        /// Path of the node.
        node: String,
        /// Its operator, with domain unless it is the standard's.
        op: String,
        /// What is wrong.
        problem: Box<OpError>,
    },
    /// The graph's edges do not fit together.
    #[error("graph `{graph}`: {problem}")]
    Wiring {
        /// Path of the graph, or its name.
        graph: String,
        /// What is wrong.
        problem: Wiring,
    },
}

/// Files that are often mistaken for models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Foreign {
    #[error("an empty file")]
    Empty,
    #[error("an HTML page (a download that failed?)")]
    Html,
    #[error("a Git LFS pointer; run `git lfs pull` to get the file itself")]
    LfsPointer,
    #[error("a ZIP archive (a PyTorch checkpoint or an .npz file?)")]
    Zip,
    #[error("a directory")]
    Directory,
    #[error("text")]
    Text,
    #[error("an HDF5 file (a Keras model?)")]
    Hdf5,
}

/// What is wrong with the edges of a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Wiring {
    #[error("node `{node}` reads `{value}`, which nothing produces")]
    Undefined { node: String, value: String },
    #[error("input `{value}` is listed twice")]
    InputTwice { value: String },
    #[error("output `{value}` is produced by nothing")]
    NoOutput { value: String },
    #[error("`{value}` is produced twice, by `{first}` and by `{second}`")]
    Twice { value: String, first: String, second: String },
    #[error("nodes {nodes} depend on each other in a cycle")]
    Cycle { nodes: String },
    #[error("function `{function}` calls itself, through {depth} levels")]
    Recursion { function: String, depth: usize },
    #[error("`{function}` is called with {found} inputs, it takes {takes}")]
    Call { function: String, found: usize, takes: usize },
}

/// What is wrong with a constant tensor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum TensorProblem {
    #[error("element type {code} is not supported")]
    DType { code: i32 },
    #[error("extents {dims:?} are negative or too large")]
    Extents { dims: Vec<i64> },
    #[error("{dtype}{dims:?} needs {needs} {unit}, the model has {found}")]
    Length { dtype: &'static str, dims: Vec<i64>, needs: usize, unit: &'static str, found: usize },
    #[error("its data is in another file, and the model was not read from a folder")]
    NoFolder,
    #[error("its data is in another file, and no `location` is given")]
    NoLocation,
    #[error("`{key}` is `{value}`, not a number")]
    Number { key: String, value: String },
    #[error("location `{location}` leaves the model's folder or is not a plain file: {reason}")]
    Location { location: String, reason: &'static str },
    #[error("cannot read `{location}`: {source}")]
    Read { location: String, source: io::Error },
    #[error("bytes {offset} to {offset}+{length} are beyond the {available} bytes of `{location}`")]
    Range { location: String, offset: u64, length: u64, available: u64 },
    #[error("index {index} of the sparse tensor is outside {dims:?}")]
    SparseIndex { index: i64, dims: Vec<i64> },
}

/// An operator, or a form of one, that import cannot express.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Unsupported {
    /// Path of the node, such as `If_4/then/Foo_2`.
    pub node: String,
    /// Domain; `ai.onnx` for the standard's.
    pub domain: String,
    /// Operator name.
    pub op: String,
    /// Version of the domain that the model uses.
    pub opset: i64,
    /// Operand types, where known.
    pub operands: Vec<String>,
    /// Why.
    pub reason: String,
    /// What would be supported instead.
    pub nearest: Option<String>,
    /// Whether what is missing is there when the model runs: a program of several engines can have it.
    pub at_run_time: bool,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}.{} (opset {})", self.node, self.domain, self.op, self.opset)?;
        if !self.operands.is_empty() {
            write!(f, " on {}", self.operands.join(", "))?;
        }
        write!(f, ": {}", self.reason)?;
        if let Some(nearest) = &self.nearest {
            write!(f, "; supported: {nearest}")?;
        }
        Ok(())
    }
}

fn list(all: &[Unsupported]) -> String {
    let mut text = match all.len() {
        1 => String::from("one operator is not supported"),
        n => format!("{n} operators are not supported"),
    };
    for one in all {
        text.push_str(&format!("\n  {one}"));
    }
    text
}

/// What is wrong with one node. The node itself is named by [`ImportError::Node`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum OpError {
    /// A form that import cannot express: becomes an [`Unsupported`] of the list.
    #[error("{form} is not supported")]
    Form { form: String, nearest: Option<String> },
    /// The form depends on the contents of an operand that is only known at run time.
    #[error("{what} is only known at run time")]
    Dynamic { what: String },
    #[error("input {index} is missing")]
    MissingInput { index: usize },
    #[error("attribute `{name}` is missing")]
    MissingAttribute { name: &'static str },
    #[error("attribute `{name}` is {found}, expected {expected}")]
    Attribute { name: String, found: String, expected: String },
    #[error("input {index} is {found}, expected {expected}")]
    Operand { index: usize, found: String, expected: String },
    #[error("axis {axis} of a tensor of rank {rank}")]
    Axis { axis: i64, rank: usize },
    #[error("cannot reshape {from} to {to:?}")]
    Reshape { from: String, to: Vec<i64> },
    #[error("cannot broadcast {lhs} with {rhs}")]
    Broadcast { lhs: String, rhs: String },
    #[error("equation `{equation}`: {problem}")]
    Equation { equation: String, problem: String },
    #[error("a result of {extents:?} elements is too large")]
    TooLarge { extents: Vec<i64> },
    #[error(transparent)]
    Type(#[from] TypeError),
    /// The error of another place, which names itself: a constant, or a node of a subgraph.
    #[error(transparent)]
    Elsewhere(Box<ImportError>),
    /// An operand comes from an unsupported node, which is already in the list.
    #[error("an operand is the result of an unsupported node")]
    Poisoned,
}
