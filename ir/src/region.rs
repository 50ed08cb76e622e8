//! A region: one kernel's worth of computation.
//!
//! It is a small graph whose inputs are the tensors that the kernel loads and whose outputs are
//! those that it stores. In canonical form names and source nodes are gone, inputs are numbered by
//! first use and equal nodes are one, so that equal computations in different places of different
//! models are one region, with one text and one hash.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use cranelift_entity::SecondaryMap;

use crate::graph::text::Parser;
use crate::graph::{Array, Attrs, ParseError, Rounding, debug_verify, eval};
use crate::shape::row_major_strides;
use crate::{Graph, Node, NodeKind, Op, Tensor, Value};

/// How a tensor lies in memory: element strides per dimension. The offset is part of the pointer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Layout {
    /// Distance between neighbours along each dimension, in elements.
    pub strides: Vec<usize>,
}

impl Layout {
    /// Contiguous, last dimension fastest.
    pub fn row_major(extents: &[usize]) -> Self {
        Self { strides: row_major_strides(extents) }
    }
}

/// See the [module](self).
///
/// Layouts are part of the identity: a kernel for one is not a kernel for another.
///
/// Prints as its graph, followed by a line `load v0 [1,2]` or `store 0 [1,2]` for each input and
/// output (by position) whose strides are not row-major. Parses back to the same region.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// What is computed.
    pub graph: Graph,
    /// Layout of each input, in order.
    pub loads: Vec<Layout>,
    /// Layout of each output, in order.
    pub stores: Vec<Layout>,
}

impl Region {
    /// A region as it stands; see [`canonical`](Self::canonical).
    ///
    /// # Panics
    ///
    /// If there is not one layout for each input and output, of its rank, or (in debug builds) if
    /// the graph does not verify.
    pub fn new(graph: Graph, loads: Vec<Layout>, stores: Vec<Layout>) -> Self {
        debug_verify(&graph, "the caller of Region::new");
        let fits =
            |layout: &Layout, value: Value| layout.strides.len() == graph.ty(value).shape.rank();
        let (inputs, outputs): (Vec<Value>, _) = (graph.inputs().collect(), &graph.outputs);
        assert_eq!(loads.len(), inputs.len(), "one layout for each input");
        assert_eq!(stores.len(), outputs.len(), "one layout for each output");
        let (mut loaded, mut stored) = (loads.iter().zip(inputs), stores.iter().zip(outputs));
        assert!(loaded.all(|(layout, value)| fits(layout, value)), "strides of each input's rank");
        assert!(
            stored.all(|(layout, value)| fits(layout, *value)),
            "strides of each output's rank"
        );
        Self { graph, loads, stores }
    }

    /// A region whose tensors are all row-major.
    pub fn contiguous(graph: Graph) -> Self {
        let row_major = |value: Value| Layout::row_major(&graph.ty(value).extents());
        let loads = graph.inputs().map(row_major).collect();
        let stores = graph.outputs.iter().map(|&output| row_major(output)).collect();
        Self::new(graph, loads, stores)
    }

    /// The canonical form, and for each of its inputs the index of the input here. Inputs that no
    /// output depends on are gone.
    ///
    /// Nodes are in the order in which a depth-first walk from the outputs, operands in order, leaves
    /// them for the first time, inputs first; equal nodes are one. So the form depends neither on the
    /// order of definition nor on names. It is its own canonical form.
    pub fn canonical(&self) -> (Region, Vec<usize>) {
        let order = depth_first(&self.graph);
        let mut position: SecondaryMap<Value, usize> = SecondaryMap::new();
        self.graph.inputs().enumerate().for_each(|(i, input)| position[input] = i);

        let mut graph = Graph::new("region");
        let mut renamed: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
        let mut inputs = Vec::new();
        for &value in &order {
            if let NodeKind::Input { weight, .. } = self.graph.nodes[value].kind {
                let kind = NodeKind::Input { name: String::new(), weight };
                let ty = self.graph.ty(value).clone();
                renamed[value] = Some(graph.nodes.push(Node { kind, ty, sources: Vec::new() }));
                inputs.push(position[value]);
            }
        }
        let mut known: BTreeMap<Key, Value> = BTreeMap::new();
        for &value in &order {
            let node = &self.graph.nodes[value];
            let (kind, key) = match &node.kind {
                NodeKind::Input { .. } => continue,
                NodeKind::Const(tensor) => {
                    let key = (tensor.dtype, tensor.extents.clone(), tensor.bytes.clone());
                    (node.kind.clone(), Key::Const(key))
                }
                NodeKind::Apply(op, attrs, args) => {
                    let args: Vec<Value> = args
                        .iter()
                        .map(|&arg| renamed[arg].expect("left before its user"))
                        .collect();
                    let kind = NodeKind::Apply(*op, attrs.clone(), args.clone());
                    (kind, Key::Apply(*op, attrs.clone(), args))
                }
            };
            let new = known.entry(key).or_insert_with(|| {
                graph.nodes.push(Node { kind, ty: node.ty.clone(), sources: Vec::new() })
            });
            renamed[value] = Some(*new);
        }
        let output = |output: &Value| renamed[*output].expect("outputs are visited");
        graph.outputs = self.graph.outputs.iter().map(output).collect();
        let loads = inputs.iter().map(|&i| self.loads[i].clone()).collect();
        (Region::new(graph, loads, self.stores.clone()), inputs)
    }

    /// BLAKE3 of the text. Equal computations in [canonical](Self::canonical) form have equal hashes.
    pub fn hash(&self) -> [u8; 32] {
        *blake3::hash(self.to_string().as_bytes()).as_bytes()
    }

    /// [`hash`](Self::hash) in hexadecimal.
    pub fn hash_hex(&self) -> String {
        blake3::hash(self.to_string().as_bytes()).to_hex().to_string()
    }

    /// What a kernel for this region must compute, in `f64`. Inputs are row-major, whatever the
    /// layouts.
    ///
    /// # Panics
    ///
    /// If the inputs are not of the types of the graph's inputs.
    pub fn oracle(&self, inputs: &[Tensor]) -> Vec<Array> {
        eval(&self.graph, inputs, Rounding::None)
    }
}

/// What makes two nodes equal.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Const((crate::DType, Vec<usize>, bytes::Bytes)),
    Apply(Op, Attrs, Vec<Value>),
}

/// The values that outputs depend on, in the order in which a depth-first walk leaves them.
fn depth_first(graph: &Graph) -> Vec<Value> {
    let mut order = Vec::new();
    let mut entered: SecondaryMap<Value, bool> = SecondaryMap::new();
    // Values with the number of operands already entered.
    let mut stack: Vec<(Value, usize)> = Vec::new();
    for &output in &graph.outputs {
        if !std::mem::replace(&mut entered[output], true) {
            stack.push((output, 0));
        }
        while let Some((value, n_entered)) = stack.last_mut() {
            let value = *value;
            match graph.nodes[value].args().get(*n_entered) {
                Some(&arg) => {
                    *n_entered += 1;
                    if !std::mem::replace(&mut entered[arg], true) {
                        stack.push((arg, 0));
                    }
                }
                None => {
                    order.push(value);
                    stack.pop();
                }
            }
        }
    }
    order
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.graph)?;
        for (layout, input) in self.loads.iter().zip(self.graph.inputs()) {
            if *layout != Layout::row_major(&self.graph.ty(input).extents()) {
                writeln!(f, "load {input} {}", StridesText(layout))?;
            }
        }
        for (i, (layout, &output)) in self.stores.iter().zip(&self.graph.outputs).enumerate() {
            if *layout != Layout::row_major(&self.graph.ty(output).extents()) {
                writeln!(f, "store {i} {}", StridesText(layout))?;
            }
        }
        Ok(())
    }
}

struct StridesText<'a>(&'a Layout);

impl fmt::Display for StridesText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strides: Vec<String> = self.0.strides.iter().map(usize::to_string).collect();
        write!(f, "[{}]", strides.join(","))
    }
}

/// Why a text is not a region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// A syntax error.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The graph is ill-formed.
    #[error("the graph does not verify: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Verify(Vec<crate::graph::VerifyError>),
}

impl FromStr for Region {
    type Err = RegionError;

    fn from_str(text: &str) -> Result<Self, RegionError> {
        let mut parser = Parser::new(text);
        let graph = parser.graph()?;
        crate::graph::verify(&graph).map_err(RegionError::Verify)?;
        let mut region = Region::contiguous(graph);
        let inputs: Vec<Value> = region.graph.inputs().collect();
        while parser.eat("load") {
            let unknown = parser.expected("an input of the graph");
            let value = parser.value()?;
            let i = inputs.iter().position(|&input| input == value).ok_or(unknown)?;
            region.loads[i] = strides(&mut parser, region.loads[i].strides.len())?;
        }
        while parser.eat("store") {
            let unknown = parser.expected("the number of an output");
            let i: usize = parser.number("the number of an output")?;
            let layout = region.stores.get_mut(i).ok_or(unknown)?;
            *layout = strides(&mut parser, layout.strides.len())?;
        }
        parser.end()?;
        Ok(region)
    }
}

fn strides(parser: &mut Parser<'_>, rank: usize) -> Result<Layout, ParseError> {
    let mismatch = parser.expected(&format!("{rank} strides"));
    let mut strides = Vec::new();
    parser.list(|parser| {
        strides.push(parser.number("a stride")?);
        Ok(())
    })?;
    if strides.len() == rank { Ok(Layout { strides }) } else { Err(mismatch) }
}
