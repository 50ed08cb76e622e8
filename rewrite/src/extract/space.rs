//! A saturated e-graph as arrays: classes in the order of a walk from the outputs, nodes in the order
//! of the e-graph, so that equal e-graphs give equal spaces.

use std::collections::BTreeMap;

use egg::Id;
use eggine_ir::{Attrs, Op, TensorType, Value};

use crate::facts::EGraph;
use crate::lang::{ENode, has_attrs};
use crate::literal::Literal;
use crate::lower::Lowered;

/// A computation, an index of [`Space::comps`].
pub(crate) type CompId = usize;
/// A tensor, an index of [`Space::tensors`].
pub(crate) type TensorClassId = usize;

/// One way to compute a class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    pub(crate) op: Op,
    pub(crate) attrs: Attrs,
    pub(crate) args: Vec<CompId>,
}

/// An e-class of computations.
#[derive(Clone, Debug)]
pub(crate) struct Comp {
    pub(crate) class: Id,
    pub(crate) ty: TensorType,
    pub(crate) literal: Option<Literal>,
    /// Known at compile time.
    pub(crate) known: bool,
    /// The tensor that holds it when it is materialised, if a term says that it may be.
    pub(crate) tensor: Option<TensorClassId>,
    pub(crate) terms: Vec<Term>,
    /// The graph's values that it is.
    pub(crate) values: Vec<Value>,
}

/// Where a tensor may come from without a kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct TensorClass {
    pub(crate) class: Option<Id>,
    /// The computation that it stores.
    pub(crate) comp: CompId,
    /// The graph's input or weight that it is, if any.
    pub(crate) input: Option<(Value, bool)>,
    /// Tensors of whose memory it is a view.
    pub(crate) views: Vec<TensorClassId>,
    /// Tensors that make it up when they lie side by side, with the axis.
    pub(crate) joins: Vec<(usize, Vec<TensorClassId>)>,
    /// Whether the graph returns it.
    pub(crate) is_output: bool,
    /// Whether its loads are no computation of their own, so that it has to exist: no rule said that a
    /// load of what was stored is what was stored.
    pub(crate) is_pinned: bool,
    /// Tensors that are views of this one, or have it as a part.
    pub(crate) seen_by: Vec<TensorClassId>,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub(crate) comps: Vec<Comp>,
    pub(crate) tensors: Vec<TensorClass>,
    pub(crate) outputs: Vec<TensorClassId>,
    /// Computations with several slices of theirs that are not known: the whole, and each slice as a
    /// computation and the term of it that is the slice.
    pub(crate) wholes: Vec<(CompId, Vec<(CompId, usize)>)>,
}

struct Builder<'a> {
    egraph: &'a EGraph,
    values: BTreeMap<Id, Vec<Value>>,
    /// The store or input class over each computation class.
    holder: BTreeMap<Id, Id>,
    comp_of: BTreeMap<Id, CompId>,
    tensor_of: BTreeMap<Id, TensorClassId>,
    space: Space,
    todo: Vec<Work>,
}

fn is_input(egraph: &EGraph, tensor: Id) -> bool {
    egraph[tensor].nodes.iter().any(|node| matches!(node, ENode::Input(_)))
}

/// The tensor of which a class is the load, if no rule said that this is what the tensor stores.
fn separate(egraph: &EGraph, class: Id) -> Option<Id> {
    let class = egraph.find(class);
    egraph[class].nodes.iter().find_map(|node| {
        let ENode::Load([tensor]) = node else { return None };
        let stores =
            |node: &ENode| matches!(node, ENode::Store([comp]) if egraph.find(*comp) == class);
        let stored_here = egraph[*tensor].nodes.iter().any(stores);
        (!stored_here && !is_input(egraph, *tensor)).then(|| egraph.find(*tensor))
    })
}

enum Work {
    Comp(CompId),
    Tensor(TensorClassId),
}

impl Space {
    /// The part of the e-graph that the outputs can be made of.
    pub(crate) fn new(lowered: &Lowered) -> Self {
        let egraph = &lowered.egraph;
        let mut values: BTreeMap<Id, Vec<Value>> = BTreeMap::new();
        for (value, class) in lowered.computations.iter() {
            if let Some(class) = class {
                values.entry(egraph.find(*class)).or_default().push(value);
            }
        }
        let mut holder = BTreeMap::new();
        for class in egraph.classes() {
            for node in &class.nodes {
                match node {
                    ENode::Store([comp]) => holder.insert(egraph.find(*comp), class.id),
                    // An input has no store; its load is the computation that it holds.
                    ENode::Load([tensor]) if is_input(egraph, *tensor) => {
                        holder.insert(class.id, egraph.find(*tensor))
                    }
                    _ => None,
                };
            }
        }
        let space = Space {
            comps: Vec::new(),
            tensors: Vec::new(),
            outputs: Vec::new(),
            wholes: Vec::new(),
        };
        let mut builder = Builder {
            egraph,
            values,
            holder,
            comp_of: BTreeMap::new(),
            tensor_of: BTreeMap::new(),
            space,
            todo: Vec::new(),
        };
        for &output in &lowered.outputs {
            let output = builder.tensor(output);
            builder.space.outputs.push(output);
            builder.space.tensors[output].is_output = true;
            builder.drain();
        }
        builder.space.find_wholes();
        builder.space.pin();
        builder.space
    }

    fn pin(&mut self) {
        for comp in 0..self.comps.len() {
            if let Some(tensor) = self.loaded(comp) {
                self.tensors[tensor].is_pinned = true;
            }
        }
    }

    /// The tensor of which a computation is the load, if it is nothing else.
    pub(crate) fn loaded(&self, comp: CompId) -> Option<TensorClassId> {
        self.comps[comp].tensor.filter(|&tensor| self.tensors[tensor].comp != comp)
    }

    fn find_wholes(&mut self) {
        let mut slices: BTreeMap<CompId, Vec<(CompId, usize)>> = BTreeMap::new();
        for (comp, class) in self.comps.iter().enumerate().filter(|(_, class)| !class.known) {
            for (index, term) in class.terms.iter().enumerate() {
                if term.op == Op::Slice && term.args[0] != comp {
                    slices.entry(term.args[0]).or_default().push((comp, index));
                }
            }
        }
        self.wholes = slices.into_iter().filter(|(_, parts)| parts.len() > 1).collect();
    }

    /// Whether the tensor is given: an input, a weight, or computed at compile time.
    pub(crate) fn is_leaf(&self, tensor: TensorClassId) -> bool {
        let class = &self.tensors[tensor];
        class.input.is_some() || self.comps[class.comp].known
    }
}

impl Builder<'_> {
    fn comp(&mut self, id: Id) -> CompId {
        let class = self.egraph.find(id);
        if let Some(&comp) = self.comp_of.get(&class) {
            return comp;
        }
        let facts = self.egraph[class].data.value().expect("operands are values");
        let comp = self.space.comps.len();
        self.space.comps.push(Comp {
            class,
            ty: facts.ty.clone(),
            literal: facts.literal.clone(),
            known: facts.known,
            tensor: None,
            terms: Vec::new(),
            values: self.values.get(&class).cloned().unwrap_or_default(),
        });
        self.comp_of.insert(class, comp);
        self.todo.push(Work::Comp(comp));
        comp
    }

    fn tensor(&mut self, id: Id) -> TensorClassId {
        let class = self.egraph.find(id);
        if let Some(&tensor) = self.tensor_of.get(&class) {
            return tensor;
        }
        let tensor = self.space.tensors.len();
        self.space.tensors.push(TensorClass {
            class: Some(class),
            comp: usize::MAX,
            ..TensorClass::default()
        });
        self.tensor_of.insert(class, tensor);
        self.todo.push(Work::Tensor(tensor));
        tensor
    }

    fn drain(&mut self) {
        while let Some(work) = self.todo.pop() {
            match work {
                Work::Comp(comp) => self.visit_comp(comp),
                Work::Tensor(tensor) => self.visit_tensor(tensor),
            }
        }
    }

    fn visit_comp(&mut self, comp: CompId) {
        let class = self.space.comps[comp].class;
        if let Some(tensor) = separate(self.egraph, class) {
            let tensor = self.tensor(tensor);
            self.space.comps[comp].tensor = Some(tensor);
            return;
        }
        if let Some(&holder) = self.holder.get(&class) {
            let tensor = self.tensor(holder);
            self.space.comps[comp].tensor = Some(tensor);
        }
        let mut terms = Vec::new();
        for node in &self.egraph[class].nodes {
            let ENode::Apply(op, _) = node else { continue };
            let attrs = match has_attrs(*op) {
                true => self.egraph[egg::Language::children(node)[0]]
                    .data
                    .attrs()
                    .cloned()
                    .unwrap_or_default(),
                false => Attrs::none(),
            };
            let args = node.operands().iter().map(|&arg| self.comp(arg)).collect();
            terms.push(Term { op: *op, attrs, args });
        }
        self.space.comps[comp].terms = terms;
    }

    fn visit_tensor(&mut self, tensor: TensorClassId) {
        let class = self.space.tensors[tensor].class.expect("set on creation");
        for node in &self.egraph[class].nodes {
            match node {
                ENode::Store([comp]) => {
                    let loaded = separate(self.egraph, *comp);
                    let comp = self.comp(*comp);
                    self.space.tensors[tensor].comp = comp;
                    if let Some(source) = loaded {
                        let source = self.tensor(source);
                        self.space.tensors[tensor].views.push(source);
                        self.space.tensors[source].seen_by.push(tensor);
                    }
                }
                ENode::Input(index) => {
                    let weight = self.egraph.analysis.inputs[*index as usize].1;
                    self.space.tensors[tensor].input = Some((Value::from_u32(*index), weight));
                    let load = self
                        .egraph
                        .lookup(ENode::Load([class]))
                        .expect("lowering loads every input");
                    let comp = self.comp(load);
                    self.space.tensors[tensor].comp = comp;
                }
                ENode::View([_, source]) => {
                    let source = self.tensor(*source);
                    self.space.tensors[tensor].views.push(source);
                    self.space.tensors[source].seen_by.push(tensor);
                }
                ENode::Join(args) => {
                    let axis = self.egraph[args[0]].data.attrs().map_or(0, |attrs| attrs.int(0));
                    let parts: Vec<TensorClassId> =
                        args[1..].iter().map(|&part| self.tensor(part)).collect();
                    parts.iter().for_each(|&part| self.space.tensors[part].seen_by.push(tensor));
                    self.space.tensors[tensor].joins.push((axis as usize, parts));
                }
                _ => (),
            }
        }
    }
}
