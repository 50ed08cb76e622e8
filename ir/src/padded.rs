//! One graph for a range of shapes: tensors as large as the largest, extents as inputs, masks.
//!
//! A model imported at two shapes gives two graphs that differ in extents, in attributes and constants that
//! were computed from extents, and in nothing else. [`Padded::of`] walks both and writes a third one: its
//! types are those of the larger graph, and wherever a result would depend on how much of a tensor is
//! there, it reads that from additional inputs. Such a graph is an ordinary graph: it is rewritten, lowered,
//! verified and searched like any other, and its engine serves every shape up to the largest.
//!
//! The invariant behind every rule: an element that the model has is in the padded tensor at the place that
//! the [`Axis`]es say, and what is elsewhere is arbitrary and is never read by it. So a sum along a padded
//! axis masks, an elementwise operator does not.
//!
//! At a shape of the range [`Padded::at`] makes the same walk with that shape's own import. It has to come
//! to the same graph, node by node; what it has noted on the way are the values of the additional inputs.
//! A model whose graph differs more than that from shape to shape (unrolled loops, say) is refused, and so
//! is an operator without a rule: nothing is assumed of a shape that was not looked at.

mod align;
mod axis;
mod rules;

use std::fmt;

use cranelift_entity::SecondaryMap;

pub use axis::{Axis, Factor};

use crate::graph::{NodeKind, Rounding, eval};
use crate::{DType, Graph, Tensor, Value};

/// A graph for all shapes up to the largest.
#[derive(Clone, Debug)]
pub struct Padded {
    /// The inputs of the larger graph at its types, then [`n_extra`](Self::n_extra) more.
    pub graph: Graph,
    most: Graph,
    choices: Choices,
    n_inputs: usize,
}

/// How a padded graph is used at one shape.
#[derive(Clone, Debug)]
pub struct At {
    /// Where the elements of each input are.
    pub inputs: Vec<Vec<Axis>>,
    /// What the additional inputs are.
    pub extra: Vec<Tensor>,
    /// Where the elements of each output are.
    pub outputs: Vec<Vec<Axis>>,
}

/// Why there is no padded graph, or why it does not serve a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node}: {reason}")]
pub struct NotPaddable {
    /// The node, by its sources or its operator.
    pub node: String,
    /// What is in the way.
    pub reason: String,
}

/// What was decided when the graph was made, in the order of the walk: a later walk has to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Choices {
    /// Whether something differs between the shapes.
    varies: Vec<bool>,
    /// Which additional input a number is.
    numbers: Vec<usize>,
}

impl Padded {
    /// The padded graph of a model that was imported at the largest shapes, `most`, and at others, `less`.
    /// Extents that are equal in both are taken to be the same at every shape.
    ///
    /// # Errors
    ///
    /// If the two differ in more than extents, or a rule is missing.
    pub fn of(most: &Graph, less: &Graph) -> Result<Self, NotPaddable> {
        let walked = rules::walk(most, less, None)?;
        let graph = walked.graph;
        let n_inputs = most.inputs().count();
        Ok(Self { graph, most: most.clone(), choices: walked.choices, n_inputs })
    }

    /// Number of additional inputs.
    pub fn n_extra(&self) -> usize {
        self.graph.inputs().count() - self.n_inputs
    }

    /// How the graph is used at the shapes that `less` was imported at.
    ///
    /// # Errors
    ///
    /// If it cannot be: something is larger there, or differs that was equal before.
    pub fn at(&self, less: &Graph) -> Result<At, NotPaddable> {
        let walked = rules::walk(&self.most, less, Some(&self.choices))?;
        let same = walked.graph.outputs == self.graph.outputs
            && walked.graph.nodes.len() == self.graph.nodes.len()
            && (walked.graph.nodes.values().zip(self.graph.nodes.values()))
                .all(|(a, b)| a.ty == b.ty && same_kind(&a.kind, &b.kind));
        if !same || walked.choices != self.choices {
            return Err(NotPaddable {
                node: "the graph".into(),
                reason: "at this shape another one is needed".into(),
            });
        }
        Ok(walked.at)
    }
}

impl Padded {
    /// The largest difference, relative to the largest element of its output, between what `less` gives on
    /// `inputs` and what the padded graph gives with NaN (-1, true) in all places that no element is in. Both
    /// are evaluated in `f64`; infinite if one has a NaN where the other has none.
    ///
    /// # Errors
    ///
    /// If the graph does not serve these shapes.
    pub fn difference(&self, less: &Graph, inputs: &[Tensor]) -> Result<f64, NotPaddable> {
        let at = self.at(less)?;
        let mut wide: Vec<Tensor> =
            inputs.iter().zip(&at.inputs).map(|(input, axes)| poisoned(input, axes)).collect();
        wide.extend(at.extra.iter().cloned());
        let expected = eval(less, inputs, Rounding::None);
        let found = eval(&self.graph, &wide, Rounding::None);
        let mut worst = 0f64;
        for ((expected, found), axes) in expected.iter().zip(&found).zip(&at.outputs) {
            let expected = expected.to_tensor().to_f64();
            let found = crop(&found.to_tensor(), axes).to_f64();
            let finite = expected.iter().filter(|x| x.is_finite());
            let largest = finite.fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
            for (a, b) in expected.iter().zip(&found) {
                let same = a == b || (a.is_nan() && b.is_nan());
                let difference = if same { 0.0 } else { (a - b).abs() / largest };
                worst = if difference.is_nan() { f64::INFINITY } else { worst.max(difference) };
            }
        }
        Ok(worst)
    }
}

/// Equality that does not compare the contents of constants that are one and the same.
fn same_kind(a: &NodeKind, b: &NodeKind) -> bool {
    match (a, b) {
        (NodeKind::Const(a), NodeKind::Const(b)) => same_tensor(a, b),
        _ => a == b,
    }
}

fn same_tensor(a: &Tensor, b: &Tensor) -> bool {
    let one = a.bytes.as_ptr() == b.bytes.as_ptr() && a.bytes.len() == b.bytes.len();
    a.dtype == b.dtype && a.extents == b.extents && (one || a.bytes == b.bytes)
}

/// The tensor in a padded one; what is around it is zero.
///
/// # Panics
///
/// If the axes are not those of the tensor, or its elements are narrower than a byte.
pub fn pad(tensor: &Tensor, axes: &[Axis]) -> Tensor {
    copy(tensor, axes, Some(0))
}

/// As [`pad`], with what must never be read around it: NaN, -1, or true.
///
/// # Panics
///
/// As [`pad`].
pub fn poisoned(tensor: &Tensor, axes: &[Axis]) -> Tensor {
    copy(tensor, axes, Some(if tensor.dtype == DType::Bool { 1 } else { 0xff }))
}

/// The tensor out of a padded one.
///
/// # Panics
///
/// As [`pad`].
pub fn crop(tensor: &Tensor, axes: &[Axis]) -> Tensor {
    copy(tensor, axes, None)
}

/// Into a padded tensor of `fill`, or out of one.
fn copy(tensor: &Tensor, axes: &[Axis], fill: Option<u8>) -> Tensor {
    let into = fill.is_some();
    let here: Vec<usize> = axes.iter().map(Axis::n).collect();
    let padded: Vec<usize> = axes.iter().map(Axis::most).collect();
    assert_eq!(tensor.extents, if into { here.clone() } else { padded.clone() });
    if here == padded {
        return tensor.clone();
    }
    let bits = tensor.dtype.bits();
    assert!(bits.is_multiple_of(8), "elements of whole bytes");
    let width = bits / 8;
    let n: usize = here.iter().product();
    let to = if into { &padded } else { &here };
    let mut bytes = vec![fill.unwrap_or(0); width * to.iter().product::<usize>()];
    let strides = crate::shape::row_major_strides(&padded);
    // Where each position of an axis is in the padded tensor, in elements.
    let places: Vec<Vec<usize>> = (axes.iter().zip(&strides))
        .map(|(axis, stride)| (0..axis.n()).map(|at| axis.place(at) * stride).collect())
        .collect();
    // Runs along the innermost axis are moved at once where they stay together.
    let inner = here.last().copied().unwrap_or(1);
    let together = places.last().is_none_or(|last| last.windows(2).all(|w| w[1] == w[0] + 1));
    let run = if together { inner.max(1) } else { 1 };
    let mut at = vec![0usize; here.len()];
    for first in (0..n).step_by(run) {
        let mut rest = first;
        for axis in (0..here.len()).rev() {
            at[axis] = rest % here[axis];
            rest /= here[axis];
        }
        let place: usize = at.iter().zip(&places).map(|(&at, places)| places[at]).sum();
        let (from, to) = if into { (first, place) } else { (place, first) };
        bytes[to * width..(to + run) * width]
            .copy_from_slice(&tensor.bytes[from * width..(from + run) * width]);
    }
    Tensor::new(tensor.dtype, to, bytes)
}

fn refused(graph: &Graph, value: Value, reason: impl fmt::Display) -> NotPaddable {
    let node = &graph.nodes[value];
    let node = match (&node.kind, node.sources.as_slice()) {
        (NodeKind::Apply(op, ..), []) => format!("`{op}` {value}"),
        (NodeKind::Apply(op, ..), sources) => format!("`{op}` of {}", sources.join(", ")),
        (NodeKind::Input { name, .. }, _) => format!("input `{name}`"),
        (NodeKind::Const(_), _) => format!("constant {value}"),
    };
    NotPaddable { node, reason: reason.to_string() }
}

type PerValue<T> = SecondaryMap<Value, T>;
