//! Inputs and outputs as the model declares them, and their symbols bound to numbers.

use std::collections::BTreeMap;
use std::fmt;

use super::error::ImportError;
use super::load::product;
use super::proto::{GraphProto, TypeProto, ValueInfoProto};
use crate::{DType, Dim, Shape, TensorType};

/// What stands for a dimension about which the model says nothing.
const UNKNOWN: &str = "?";

/// An input or output as the model declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name in the model.
    pub name: String,
    /// Element type; `None` if it is not a tensor of a known type.
    pub dtype: Option<DType>,
    /// Extents; a dimension without a number or a name is `?`. `None` if not even the rank is known.
    pub shape: Option<Shape>,
    /// The type in words, where `dtype` is `None`.
    pub found: String,
}

impl Port {
    pub(super) fn new(info: &ValueInfoProto) -> Self {
        let name = info.name.clone().unwrap_or_default();
        let none = TypeProto::default();
        let ty = info.r#type.as_ref().unwrap_or(&none);
        let other = |found: &str| Self {
            name: name.clone(),
            dtype: None,
            shape: None,
            found: found.to_owned(),
        };
        let Some(tensor) = &ty.tensor_type else {
            return other(match () {
                () if ty.sequence_type.is_some() => "a sequence",
                () if ty.optional_type.is_some() => "an optional",
                () if ty.map_type.is_some() => "a map",
                () if ty.sparse_tensor_type.is_some() => "a sparse tensor",
                () => "of no type",
            });
        };
        let code = tensor.elem_type.unwrap_or(0);
        let dtype = DType::from_onnx(code);
        let found = match code {
            8 => "a tensor of strings".to_owned(),
            code => format!("a tensor of element type {code}"),
        };
        let shape = tensor.shape.as_ref().map(|shape| {
            let dims =
                shape.dim.iter().map(|dim| match (dim.dim_value, dim.dim_param.as_deref()) {
                    (Some(n), _) if n >= 0 => Dim::Fixed(n as usize),
                    (_, Some(symbol)) if !symbol.is_empty() => Dim::Symbolic(symbol.to_owned()),
                    _ => Dim::Symbolic(UNKNOWN.to_owned()),
                });
            Shape(dims.collect())
        });
        Self { name, dtype, shape, found }
    }

    /// The type as text: `f32[batch,3,?,?]`.
    pub fn type_text(&self) -> String {
        match (self.dtype, &self.shape) {
            (Some(dtype), Some(shape)) => format!("{dtype}{shape}"),
            (Some(dtype), None) => format!("{dtype} of any rank"),
            (None, _) => self.found.clone(),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.type_text())
    }
}

/// The inputs that have to be given: those without an initialiser.
pub(super) fn inputs(graph: &GraphProto) -> Vec<Port> {
    let names = graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref());
    let sparse =
        graph.sparse_initializer.iter().filter_map(|it| it.values.as_ref()?.name.as_deref());
    let constants: std::collections::BTreeSet<&str> = names.chain(sparse).collect();
    let is_free =
        |info: &&ValueInfoProto| !constants.contains(info.name.as_deref().unwrap_or_default());
    graph.input.iter().filter(is_free).map(Port::new).collect()
}

/// The outputs.
pub(super) fn outputs(graph: &GraphProto) -> Vec<Port> {
    graph.output.iter().map(Port::new).collect()
}

/// A number for every dimension of every input.
pub(super) fn bind(
    ports: &[Port],
    shapes: &BTreeMap<String, Vec<usize>>,
) -> Result<Vec<(String, TensorType)>, ImportError> {
    if let Some(given) = shapes.keys().find(|name| !ports.iter().any(|port| port.name == **name)) {
        let inputs: Vec<String> = ports.iter().map(Port::to_string).collect();
        return Err(ImportError::NoSuchInput { given: given.clone(), inputs: inputs.join("; ") });
    }
    let mut symbols: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for port in ports {
        let Some(extents) = shapes.get(&port.name) else { continue };
        let mismatch = || ImportError::InputShape {
            input: port.name.clone(),
            declared: port.type_text(),
            given: Shape::fixed(extents).to_string(),
        };
        product(extents).ok_or_else(mismatch)?;
        let Some(shape) = &port.shape else { continue };
        if shape.rank() != extents.len() {
            return Err(mismatch());
        }
        for (dim, &extent) in shape.0.iter().zip(extents) {
            match dim {
                Dim::Fixed(n) if *n != extent => return Err(mismatch()),
                Dim::Symbolic(symbol) if symbol != UNKNOWN => {
                    let &mut (first, first_input) =
                        symbols.entry(symbol).or_insert((extent, &port.name));
                    if first != extent {
                        return Err(ImportError::Symbol {
                            symbol: symbol.clone(),
                            first,
                            first_input: first_input.to_owned(),
                            second: extent,
                            second_input: port.name.clone(),
                        });
                    }
                }
                _ => (),
            }
        }
    }

    let (mut bound, mut unbound, mut hints) = (Vec::new(), Vec::new(), Vec::new());
    for port in ports {
        let Some(dtype) = port.dtype else {
            return Err(ImportError::Interface {
                role: "input",
                name: port.name.clone(),
                found: port.found.clone(),
            });
        };
        let number = |dim: &Dim| match dim {
            Dim::Fixed(n) => Some(*n),
            Dim::Symbolic(symbol) => symbols.get(symbol.as_str()).map(|(extent, _)| *extent),
        };
        let extents = match (shapes.get(&port.name), &port.shape) {
            (Some(extents), _) => Some(extents.clone()),
            (None, Some(shape)) => shape.0.iter().map(number).collect(),
            (None, None) => None,
        };
        match extents {
            Some(extents) => bound.push((port.name.clone(), TensorType::fixed(dtype, &extents))),
            None => {
                let dims = port.shape.as_ref().map_or_else(
                    || "?,...".to_owned(),
                    |shape| {
                        let dims = shape
                            .0
                            .iter()
                            .map(|dim| number(dim).map_or(UNKNOWN.into(), |n| n.to_string()));
                        dims.collect::<Vec<_>>().join(",")
                    },
                );
                hints.push(format!("`--shape {}={dims}` ({})", port.name, port.type_text()));
                unbound.push(port.name.clone());
            }
        }
    }
    match unbound.is_empty() {
        true => Ok(bound),
        false => Err(ImportError::Unbound { unbound, hint: hints.join(" and ") }),
    }
}
