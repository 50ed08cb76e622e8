//! One node with its operands and attributes resolved: what a handler of the operator table sees.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::error::OpError;
use super::proto::{AttributeProto, GraphProto, TensorProto};
use crate::Value;

/// What an edge of the model carries.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// A tensor.
    Tensor(Value),
    /// A sequence of tensors whose length is known.
    Sequence(Vec<Value>),
    /// Something that is not a tensor of numbers, in words.
    Foreign(String),
    /// The result of a node that is already reported.
    Poison,
}

impl From<Value> for Item {
    fn from(value: Value) -> Self {
        Item::Tensor(value)
    }
}

/// What a handler returns: its results, in order. Trailing ones may be left out.
pub(super) type Outcome = Result<Vec<Item>, OpError>;

/// One result.
pub(super) fn one(value: Value) -> Outcome {
    Ok(vec![Item::Tensor(value)])
}

/// A node with operands and attributes resolved.
pub(super) struct Call<'a> {
    /// Version of its domain.
    pub(super) opset: i64,
    /// Path of the node.
    pub(super) path: &'a str,
    /// Operands; an empty name is `None`.
    pub(super) inputs: Vec<Option<Item>>,
    /// Attributes by name, references to a function's attributes resolved.
    pub(super) attrs: BTreeMap<&'a str, &'a AttributeProto>,
    /// Attributes that the handler has looked at.
    pub(super) seen: RefCell<BTreeSet<String>>,
    /// Names of the results; an empty one is not wanted.
    pub(super) outputs: &'a [String],
}

// `AttributeProto.AttributeType`.
const FLOAT: i32 = 1;
const INT: i32 = 2;
const STRING: i32 = 3;
const TENSOR: i32 = 4;
const GRAPH: i32 = 5;
const FLOATS: i32 = 6;
const INTS: i32 = 7;
const STRINGS: i32 = 8;

impl<'a> Call<'a> {
    /// Operand `i`, a tensor.
    pub(super) fn x(&self, i: usize) -> Result<Value, OpError> {
        self.opt(i)?.ok_or(OpError::MissingInput { index: i })
    }

    /// Operand `i`, a tensor, if it is there.
    pub(super) fn opt(&self, i: usize) -> Result<Option<Value>, OpError> {
        let wrong = |found: String| OpError::Operand {
            index: i,
            found,
            expected: "a tensor of numbers".into(),
        };
        match self.inputs.get(i) {
            None | Some(None) => Ok(None),
            Some(Some(Item::Tensor(value))) => Ok(Some(*value)),
            Some(Some(Item::Sequence(_))) => Err(wrong("a sequence".into())),
            Some(Some(Item::Foreign(what))) => Err(OpError::Form {
                form: format!("operand {i}, {what},"),
                nearest: Some("tensors of numbers".into()),
            }),
            Some(Some(Item::Poison)) => Err(OpError::Poisoned),
        }
    }

    /// Operand `i`, a sequence.
    pub(super) fn sequence(&self, i: usize) -> Result<Vec<Value>, OpError> {
        match self.inputs.get(i) {
            Some(Some(Item::Sequence(values))) => Ok(values.clone()),
            Some(Some(Item::Poison)) => Err(OpError::Poisoned),
            None | Some(None) => Err(OpError::MissingInput { index: i }),
            Some(Some(Item::Foreign(what))) => Err(OpError::Form {
                form: format!("operand {i}, {what},"),
                nearest: Some("a sequence of known length".into()),
            }),
            _ => Err(OpError::Operand {
                index: i,
                found: "a tensor".into(),
                expected: "a sequence".into(),
            }),
        }
    }

    /// All operands, tensors.
    pub(super) fn all(&self) -> Result<Vec<Value>, OpError> {
        (0..self.inputs.len()).map(|i| self.x(i)).collect()
    }

    /// Whether result `i` is used.
    pub(super) fn wants(&self, i: usize) -> bool {
        self.outputs.get(i).is_some_and(|name| !name.is_empty())
    }

    fn attr(&self, name: &str, kind: i32) -> Result<Option<&'a AttributeProto>, OpError> {
        self.seen.borrow_mut().insert(name.to_owned());
        let Some(&attr) = self.attrs.get(name) else { return Ok(None) };
        match attr.r#type.unwrap_or(0) {
            // Old files leave the type out.
            found if found == kind || found == 0 => Ok(Some(attr)),
            found => Err(OpError::Attribute {
                name: name.to_owned(),
                found: kind_name(found).into(),
                expected: kind_name(kind).into(),
            }),
        }
    }

    /// Attributes that may stay unread: they change nothing here (training, layouts of results that are
    /// refused, hints), or nothing for the operands at hand (an axis beside a scalar).
    const FREE: &'static [&'static str] = &[
        "hidden_size",
        "momentum",
        "storage_order",
        "saturate",
        "chunk_size",
        "seed",
        "ratio",
        "axis",
        "block_size",
        "output_dtype",
        "noop_with_empty_axes",
        "softmax_precision",
        "extrapolation_value",
        "cubic_coeff_a",
        "exclude_outside",
        "nearest_mode",
        "keep_aspect_ratio_policy",
        "precision",
        "round_mode",
        "value",
        "qk_matmul_output_mode",
        "sorted",
        "dtype",
        "detect_negative",
        "detect_positive",
        "activation_alpha",
        "activation_beta",
        "accuracy_level",
        "linear_before_reset",
        "num_heads",
        "q_num_heads",
        "kv_num_heads",
        "consumed_inputs",
        "auto_pad",
        "epsilon",
        "kernel_shape",
        "is_test",
        "stash_type",
        "training_mode",
    ];

    /// An attribute that the handler has not looked at and that may mean something.
    pub(super) fn unread(&self) -> Option<&'a str> {
        let seen = self.seen.borrow();
        let free =
            |name: &str| Self::FREE.contains(&name) || name.is_empty() || seen.contains(name);
        self.attrs.keys().copied().find(|name| !free(name))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.seen.borrow_mut().insert(name.to_owned());
        self.attrs.contains_key(name)
    }

    pub(super) fn int(&self, name: &str, default: i64) -> Result<i64, OpError> {
        Ok(self.attr(name, INT)?.map_or(default, |attr| attr.i.unwrap_or(0)))
    }

    pub(super) fn int_opt(&self, name: &str) -> Result<Option<i64>, OpError> {
        Ok(self.attr(name, INT)?.map(|attr| attr.i.unwrap_or(0)))
    }

    pub(super) fn float(&self, name: &str, default: f32) -> Result<f64, OpError> {
        Ok(f64::from(self.attr(name, FLOAT)?.map_or(default, |attr| attr.f.unwrap_or(0.0))))
    }

    pub(super) fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, OpError> {
        Ok(self.attr(name, INTS)?.map(|attr| attr.ints.clone()))
    }

    pub(super) fn floats(&self, name: &str) -> Result<Option<Vec<f64>>, OpError> {
        Ok(self.attr(name, FLOATS)?.map(|attr| attr.floats.iter().map(|&x| f64::from(x)).collect()))
    }

    /// A string attribute.
    pub(super) fn word(&self, name: &str, default: &str) -> Result<String, OpError> {
        let attr = self.attr(name, STRING)?;
        Ok(attr.map_or(default.to_owned(), |attr| text(attr.s.as_deref().unwrap_or_default())))
    }

    /// A list of strings.
    pub(super) fn words(&self, name: &str) -> Result<Option<Vec<String>>, OpError> {
        Ok(self.attr(name, STRINGS)?.map(|attr| attr.strings.iter().map(|s| text(s)).collect()))
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Option<&'a TensorProto>, OpError> {
        Ok(self.attr(name, TENSOR)?.and_then(|attr| attr.t.as_ref()))
    }

    pub(super) fn graph(&self, name: &'static str) -> Result<&'a GraphProto, OpError> {
        let graph = self.attr(name, GRAPH)?.and_then(|attr| attr.g.as_ref());
        graph.ok_or(OpError::MissingAttribute { name })
    }

    /// A form that is not supported, with what is.
    pub(super) fn form<T>(&self, form: impl Into<String>, nearest: &str) -> Result<T, OpError> {
        Err(OpError::Form { form: form.into(), nearest: Some(nearest.to_owned()) })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn kind_name(kind: i32) -> &'static str {
    match kind {
        FLOAT => "a float",
        INT => "an integer",
        STRING => "a string",
        TENSOR => "a tensor",
        GRAPH => "a graph",
        FLOATS => "a list of floats",
        INTS => "a list of integers",
        STRINGS => "a list of strings",
        _ => "of another kind",
    }
}
