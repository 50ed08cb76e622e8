//! A plan: where every needed tensor comes from, for one set of materialised tensors and one choice
//! of terms. Kernels are priced once per expansion; a change re-prices only what it touches.

use std::collections::BTreeMap;
use std::sync::Arc;

use eggine_ir::graph::OpClass;
use eggine_ir::{Attr, Graph, Op, TensorType, Value};

use super::choice::{Choice, is_given};
use super::space::{CompId, Space, TensorClassId};
use crate::cost::CostMemo;
use crate::literal::{Literal, MAX_ELEMS};

/// A larger region is never one kernel; it keeps the search from building monsters.
const MAX_REGION_NODES: usize = 160;

/// A point of the search space.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    /// Which tensors exist, by index. Outputs and given tensors exist whatever this says.
    pub(crate) material: Vec<bool>,
    /// Which term computes each class.
    pub(crate) choice: Choice,
    /// The place of each class in the order that the choice induces.
    pub(crate) rank: Vec<usize>,
}

/// One kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// The classes that it computes, operands first; the last is what it stores.
    pub(crate) comps: Vec<CompId>,
    /// The tensors that it loads, in order of first use.
    pub(crate) loads: Vec<TensorClassId>,
    /// `None`: not one kernel.
    pub(crate) cost_ns: Option<f64>,
    /// Whether it contracts or slides a window.
    pub(crate) heavy: bool,
    /// Whether it reduces along an axis.
    pub(crate) reduces: bool,
    /// Whether it only moves elements.
    pub(crate) moves: bool,
}

/// Where a tensor comes from.
#[derive(Clone, Debug)]
pub(crate) enum Def {
    /// It is an input or a weight.
    Given,
    /// It is computed at compile time.
    Known,
    /// It is another tensor's memory.
    View(TensorClassId),
    /// It is its parts' memory.
    Join(usize, Vec<TensorClassId>),
    /// A kernel computes it.
    Kernel(Arc<Kernel>),
}

impl Def {
    /// The tensors that it is made of.
    pub(crate) fn sources(&self) -> &[TensorClassId] {
        match self {
            Def::Given | Def::Known => &[],
            Def::View(source) => std::slice::from_ref(source),
            Def::Join(_, parts) => parts,
            Def::Kernel(kernel) => &kernel.loads,
        }
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// By tensor; `None` where it is not needed.
    pub(crate) defs: Vec<Option<Def>>,
    /// Sum over kernels.
    pub(crate) cost_ns: f64,
    /// Number of kernels.
    pub(crate) n_kernels: usize,
}

/// What a move changes, so that the rest of a plan can be kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) removed: Vec<TensorClassId>,
    pub(crate) added: Vec<TensorClassId>,
    pub(crate) flipped: Vec<CompId>,
}

/// Prices plans of one space.
pub(crate) struct Pricer<'a> {
    pub(crate) space: &'a Space,
    memo: &'a CostMemo<'a>,
    expanded: BTreeMap<Vec<u32>, Arc<Kernel>>,
    /// Whether regions that are not one kernel are taken all the same (for tests of meaning).
    pub(crate) ignore_legality: bool,
}

impl State {
    /// Everything is materialised: one kernel per operator, which is always legal.
    pub(crate) fn unfused(space: &Space, choice: Choice) -> Self {
        let rank = choice.order(space).expect("the choice has no cycle");
        Self { material: vec![true; space.tensors.len()], choice, rank }
    }

    fn exists(&self, space: &Space, tensor: TensorClassId) -> bool {
        self.material[tensor] || space.is_leaf(tensor) || space.outputs.contains(&tensor)
    }

    /// Applies a change; `None` if the choice of terms gets a cycle.
    pub(crate) fn changed(&self, space: &Space, change: &Change, terms: &[usize]) -> Option<State> {
        let mut next = self.clone();
        change.removed.iter().for_each(|&tensor| next.material[tensor] = false);
        change.added.iter().for_each(|&tensor| next.material[tensor] = true);
        for (&comp, &term) in change.flipped.iter().zip(terms) {
            next.choice.chosen[comp] = term;
        }
        if !change.flipped.is_empty() {
            next.rank = next.choice.order(space)?;
        }
        Some(next)
    }
}

impl<'a> Pricer<'a> {
    pub(crate) fn new(space: &'a Space, memo: &'a CostMemo<'a>) -> Self {
        Self { space, memo, expanded: BTreeMap::new(), ignore_legality: false }
    }

    /// The plan of a state, or `None` if one of its regions is not a kernel. What `change` does not
    /// touch is taken from `old`.
    pub(crate) fn plan(&mut self, state: &State, old: Option<(&Plan, &Change)>) -> Option<Plan> {
        let space = self.space;
        let mut plan = Plan { defs: vec![None; space.tensors.len()], cost_ns: 0.0, n_kernels: 0 };
        let mut claimed: Vec<bool> = vec![false; space.tensors.len()];
        let mut todo: Vec<TensorClassId> = space.outputs.iter().rev().copied().collect();
        while let Some(tensor) = todo.pop() {
            if plan.defs[tensor].is_some() {
                continue;
            }
            let def = self.def(state, tensor, old, &mut claimed);
            if let Def::Kernel(kernel) = &def {
                plan.n_kernels += 1;
                match kernel.cost_ns {
                    Some(cost) => plan.cost_ns += cost,
                    None if self.ignore_legality => (),
                    None => return None,
                }
            }
            todo.extend(def.sources().iter().rev());
            plan.defs[tensor] = Some(def);
        }
        Some(plan)
    }

    fn def(
        &mut self,
        state: &State,
        tensor: TensorClassId,
        old: Option<(&Plan, &Change)>,
        claimed: &mut [bool],
    ) -> Def {
        let space = self.space;
        let class = &space.tensors[tensor];
        if class.input.is_some() {
            return Def::Given;
        }
        if space.comps[class.comp].known {
            return Def::Known;
        }
        if let Some(source) = self.view_source(state, tensor) {
            return Def::View(source);
        }
        for (axis, parts) in &class.joins {
            let free = |part: TensorClassId| {
                state.exists(space, part)
                    && !space.is_leaf(part)
                    && !claimed[part]
                    && state.rank[space.tensors[part].comp] < state.rank[class.comp]
                    && self.view_source(state, part).is_none()
                    && space.tensors[part].joins.is_empty()
            };
            let distinct = parts.iter().enumerate().all(|(i, part)| !parts[..i].contains(part));
            if distinct && parts.iter().all(|&part| free(part)) {
                parts.iter().for_each(|&part| claimed[part] = true);
                return Def::Join(*axis, parts.clone());
            }
        }
        if let Some((plan, change)) = old
            && let Some(Def::Kernel(kernel)) = &plan.defs[tensor]
            && !kernel.loads.iter().any(|load| change.removed.contains(load))
            && !(kernel.comps.iter()).any(|&comp| {
                change.flipped.contains(&comp)
                    || space.comps[comp].tensor.is_some_and(|tensor| change.added.contains(&tensor))
            })
        {
            return Def::Kernel(Arc::clone(kernel));
        }
        Def::Kernel(self.kernel(state, tensor))
    }

    /// A tensor that exists and of whose memory this one is a view.
    fn view_source(&self, state: &State, tensor: TensorClassId) -> Option<TensorClassId> {
        let space = self.space;
        let class = &space.tensors[tensor];
        let usable = |&&source: &&TensorClassId| {
            state.exists(space, source)
                && (space.is_leaf(source) || state.rank[space.tensors[source].comp] < state.rank[class.comp])
        };
        class.views.iter().find(usable).copied()
    }

    /// Expands a tensor's computation down to tensors that exist.
    pub(crate) fn kernel(&mut self, state: &State, tensor: TensorClassId) -> Arc<Kernel> {
        let space = self.space;
        let root = space.tensors[tensor].comp;
        let mut expansion = Expansion {
            space,
            state,
            root,
            comps: Vec::new(),
            loads: Vec::new(),
            signature: Vec::new(),
            seen: BTreeMap::new(),
        };
        expansion.visit(root);
        let Expansion { comps, loads, signature, .. } = expansion;
        if let Some(kernel) = self.expanded.get(&signature) {
            return Arc::clone(kernel);
        }
        let class = |comp: &CompId| state.choice.term(space, *comp).map(|term| term.op.spec().class);
        let classes: Vec<OpClass> = comps.iter().filter_map(class).collect();
        let cost_ns = match comps.len() <= MAX_REGION_NODES && !self.ignore_legality {
            true => self.memo.cost_ns(build(space, &state.choice, &comps, &loads)),
            false => None,
        };
        let kernel = Arc::new(Kernel {
            heavy: classes.iter().any(|class| matches!(class, OpClass::Contract | OpClass::Window)),
            reduces: classes.contains(&OpClass::Reduce),
            moves: classes.iter().all(|class| *class == OpClass::Move),
            comps,
            loads,
            cost_ns,
        });
        self.expanded.insert(signature, Arc::clone(&kernel));
        kernel
    }
}

struct Expansion<'a> {
    space: &'a Space,
    state: &'a State,
    root: CompId,
    comps: Vec<CompId>,
    loads: Vec<TensorClassId>,
    /// What was visited, in order, with the term that was taken: the identity of the expansion.
    signature: Vec<u32>,
    seen: BTreeMap<CompId, ()>,
}

/// The tensor to load for a class inside a region, if it is not computed there.
fn load_of(space: &Space, state: &State, comp: CompId) -> Option<TensorClassId> {
    let tensor = space.comps[comp].tensor?;
    state.exists(space, tensor).then_some(tensor)
}

impl Expansion<'_> {
    fn visit(&mut self, comp: CompId) {
        if self.seen.insert(comp, ()).is_some() {
            return;
        }
        let class = &self.space.comps[comp];
        if class.literal.is_none()
            && comp != self.root
            && let Some(tensor) = load_of(self.space, self.state, comp)
        {
            self.loads.push(tensor);
            self.signature.extend([comp as u32, u32::MAX]);
            return;
        }
        if class.literal.is_none()
            && let Some(term) = self.state.choice.term(self.space, comp)
        {
            term.args.iter().for_each(|&arg| self.visit(arg));
        }
        self.signature.extend([comp as u32, self.state.choice.chosen[comp] as u32]);
        self.comps.push(comp);
    }
}

/// The region's graph, in canonical form: inputs by first use, then terms, operands first.
pub(crate) fn build(space: &Space, choice: &Choice, comps: &[CompId], loads: &[TensorClassId]) -> Graph {
    let mut graph = Graph::new("region");
    let mut value_of: BTreeMap<CompId, Value> = BTreeMap::new();
    for &load in loads {
        let comp = space.tensors[load].comp;
        let ty = space.comps[comp].ty.clone();
        let value = match space.comps[comp].known {
            true => graph.weight(ty),
            false => graph.input("", ty),
        };
        value_of.insert(comp, value);
    }
    for &comp in comps {
        let class = &space.comps[comp];
        let value = match (&class.literal, choice.term(space, comp)) {
            (Some(literal), _) => constant(&mut graph, literal),
            (None, Some(term)) => {
                let args: Vec<Value> = term.args.iter().map(|arg| value_of[arg]).collect();
                graph.apply(term.op, term.attrs.clone(), &args).expect("the e-graph is well-typed")
            }
            (None, None) => {
                debug_assert!(is_given(space, comp), "class {comp} has no term");
                graph.input("", class.ty.clone())
            }
        };
        value_of.insert(comp, value);
    }
    graph.outputs = comps.last().map(|comp| value_of[comp]).into_iter().collect();
    graph
}

/// A literal in a region. A large uniform one is one element, expanded, so that its text and its cost
/// do not grow with its shape.
fn constant(graph: &mut Graph, literal: &Literal) -> Value {
    let extents = literal.ty().extents();
    let one = TensorType::fixed(literal.ty().dtype, &vec![1; extents.len()]);
    if literal.ty().n_elems() <= MAX_ELEMS {
        return graph.constant(literal.to_tensor());
    }
    let one = literal.with_shape_of(&one).expect("large literals are uniform");
    let one = graph.constant(one.to_tensor());
    let shape = Attr::Ints(extents.iter().map(|&n| n as i64).collect());
    graph.apply(Op::Expand, vec![shape], &[one]).expect("ones expand to anything")
}
