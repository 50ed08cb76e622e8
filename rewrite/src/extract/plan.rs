//! A plan: where every needed tensor comes from, for one set of materialised tensors and one choice
//! of terms. Kernels are priced once per expansion; a change re-prices only what it touches.

use std::collections::BTreeMap;
use std::sync::Arc;

use eggine_ir::graph::OpClass;
use eggine_ir::{Attr, Graph, Op, TensorType, Value};

use super::choice::{Choice, is_given};
use super::space::{CompId, Space, TensorClassId};
use crate::agent::Extraction;
use crate::cost::CostMemo;
use crate::literal::{Literal, MAX_ELEMS};

/// A larger region is never one kernel; it keeps the search from building monsters.
const MAX_REGION_NODES: usize = 160;

/// A point of the search space.
#[derive(Clone, Debug)]
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
    /// Needed tensors that are made of each tensor, sorted.
    pub(crate) users: Vec<Vec<TensorClassId>>,
    /// By computation, the tensors whose kernels compute it, sorted.
    pub(crate) computing: Vec<Vec<TensorClassId>>,
    /// Sum over kernels.
    pub(crate) cost_ns: f64,
}

/// How a plan changes.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    /// New origins; `None` where the tensor is no longer needed.
    pub(crate) defs: BTreeMap<TensorClassId, Option<Def>>,
    /// What the whole costs then; `None` if some region is not a kernel.
    pub(crate) cost_ns: Option<f64>,
    /// Every tensor whose origin or whose use was looked at: while none of them changes, neither does
    /// the difference of cost.
    pub(crate) touched: Vec<TensorClassId>,
}

/// A move of the search.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change {
    /// Tensors that stop to exist.
    pub(crate) removed: Vec<TensorClassId>,
    /// Tensors that start to exist.
    pub(crate) added: Vec<TensorClassId>,
    /// Classes that are computed by another term.
    pub(crate) flipped: Vec<(CompId, usize)>,
}

/// Prices plans of one space.
pub(crate) struct Pricer<'a> {
    pub(crate) space: &'a Space,
    memo: &'a CostMemo<'a>,
    expanded: BTreeMap<Vec<u32>, Arc<Kernel>>,
    /// Whether regions that are not one kernel are taken all the same (for tests of meaning).
    pub(crate) ignore_legality: bool,
    /// What agents permit.
    pub(crate) extraction: Extraction,
}

impl State {
    /// Everything is materialised: one kernel per operator, which is always legal.
    pub(crate) fn unfused(space: &Space, choice: Choice) -> Self {
        let rank = choice.order(space).expect("the choice has no cycle");
        Self { material: vec![true; space.tensors.len()], choice, rank }
    }

    fn exists(&self, space: &Space, tensor: TensorClassId) -> bool {
        let class = &space.tensors[tensor];
        self.material[tensor] || class.is_output || class.is_pinned || space.is_leaf(tensor)
    }

    /// Whether the order of classes stays one under a change.
    pub(crate) fn keeps_order(&self, space: &Space, change: &Change) -> bool {
        change.flipped.iter().all(|&(comp, term)| {
            space.comps[comp].terms[term].args.iter().all(|&arg| self.rank[arg] < self.rank[comp])
        })
    }

    /// Applies a change that keeps the order of classes.
    pub(crate) fn apply(&mut self, change: &Change) {
        change.flipped.iter().for_each(|&(comp, term)| self.choice.chosen[comp] = term);
        change.removed.iter().for_each(|&tensor| self.material[tensor] = false);
        change.added.iter().for_each(|&tensor| self.material[tensor] = true);
    }

    /// The state behind a change, in an order of its own; `None` if the choice of terms gets a cycle.
    pub(crate) fn reordered(&self, space: &Space, change: &Change) -> Option<State> {
        let mut next = self.clone();
        next.apply(change);
        next.rank = next.choice.order(space)?;
        Some(next)
    }

    /// The change that undoes a change.
    pub(crate) fn inverse(&self, change: &Change) -> Change {
        Change {
            removed: change
                .added
                .iter()
                .copied()
                .filter(|&tensor| !self.material[tensor])
                .collect(),
            added: change.removed.iter().copied().filter(|&tensor| self.material[tensor]).collect(),
            flipped: change
                .flipped
                .iter()
                .map(|&(comp, _)| (comp, self.choice.chosen[comp]))
                .collect(),
        }
    }
}

impl Plan {
    fn empty(space: &Space) -> Self {
        Self {
            defs: vec![None; space.tensors.len()],
            users: vec![Vec::new(); space.tensors.len()],
            computing: vec![Vec::new(); space.comps.len()],
            cost_ns: 0.0,
        }
    }

    fn set(&mut self, tensor: TensorClassId, def: Option<Def>) {
        fn edit(list: &mut Vec<TensorClassId>, tensor: TensorClassId, add: bool) {
            match (list.binary_search(&tensor), add) {
                (Err(at), true) => list.insert(at, tensor),
                (Ok(at), false) => {
                    list.remove(at);
                }
                _ => (),
            }
        }
        let old = std::mem::replace(&mut self.defs[tensor], def);
        let new = self.defs[tensor].clone();
        for (def, add) in [(old, false), (new, true)] {
            let Some(def) = def else { continue };
            def.sources().iter().for_each(|&source| edit(&mut self.users[source], tensor, add));
            if let Def::Kernel(kernel) = &def {
                kernel.comps.iter().for_each(|&comp| edit(&mut self.computing[comp], tensor, add));
            }
        }
    }

    /// The tensors whose origin a change may change first, sorted.
    pub(crate) fn around(&self, space: &Space, change: &Change) -> Vec<TensorClassId> {
        let mut found: Vec<TensorClassId> = Vec::new();
        for &tensor in &change.removed {
            found.extend(&self.users[tensor]);
        }
        for &tensor in &change.added {
            found.extend(&self.computing[space.tensors[tensor].comp]);
            found.extend(&space.tensors[tensor].seen_by);
        }
        for &(comp, _) in &change.flipped {
            found.extend(&self.computing[comp]);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Carries out a change that was priced.
    pub(crate) fn apply(&mut self, delta: &Delta) {
        for (&tensor, def) in &delta.defs {
            self.set(tensor, def.clone());
        }
        self.cost_ns = delta.cost_ns.unwrap_or(self.cost_ns);
    }

    /// The sum over kernels anew: many small differences add up their rounding.
    pub(crate) fn sum(&mut self) {
        self.cost_ns = self.defs.iter().flatten().filter_map(Def::cost_ns).flatten().sum();
    }
}

impl Def {
    /// Of a kernel, what it costs; the inner `None`: it is not one kernel.
    fn cost_ns(&self) -> Option<Option<f64>> {
        match self {
            Def::Kernel(kernel) => Some(kernel.cost_ns),
            _ => None,
        }
    }
}

/// A plan with changes that are being tried.
struct Draft<'a> {
    plan: &'a Plan,
    defs: BTreeMap<TensorClassId, Option<Def>>,
    /// Change of each tensor's number of users.
    n_users: BTreeMap<TensorClassId, isize>,
    todo: Vec<TensorClassId>,
}

impl Draft<'_> {
    fn def(&self, tensor: TensorClassId) -> Option<&Def> {
        match self.defs.get(&tensor) {
            Some(def) => def.as_ref(),
            None => self.plan.defs[tensor].as_ref(),
        }
    }

    fn set(&mut self, tensor: TensorClassId, def: Option<Def>) {
        let old: Vec<TensorClassId> =
            self.def(tensor).map_or(Vec::new(), |def| def.sources().to_vec());
        let new: Vec<TensorClassId> = def.as_ref().map_or(Vec::new(), |def| def.sources().to_vec());
        for (sources, step) in [(old, -1), (new, 1)] {
            for source in sources {
                *self.n_users.entry(source).or_default() += step;
                self.todo.push(source);
            }
        }
        self.defs.insert(tensor, def);
    }

    /// Whether the part lies in a join other than `joined`.
    fn is_claimed(&self, part: TensorClassId, joined: TensorClassId) -> bool {
        let joins = |tensor: TensorClassId| {
            tensor != joined
                && matches!(self.def(tensor), Some(Def::Join(_, parts)) if parts.contains(&part))
        };
        self.plan.users[part].iter().any(|&user| joins(user))
            || self.defs.keys().any(|&tensor| joins(tensor))
    }
}

impl<'a> Pricer<'a> {
    pub(crate) fn new(space: &'a Space, memo: &'a CostMemo<'a>, extraction: Extraction) -> Self {
        Self { space, memo, expanded: BTreeMap::new(), ignore_legality: false, extraction }
    }

    /// Whether the computation does more than move elements, at run time.
    pub(crate) fn is_work(&self, state: &State, comp: CompId) -> bool {
        let class = &self.space.comps[comp];
        let moves = |term: &super::space::Term| {
            matches!(term.op.spec().class, OpClass::Move | OpClass::Generate)
        };
        !class.known
            && class.literal.is_none()
            && state.choice.term(self.space, comp).is_some_and(|term| !moves(term))
    }

    /// Whether changed origins compute something twice that was computed once.
    fn duplicates(
        &self,
        state: &State,
        plan: &Plan,
        defs: &BTreeMap<TensorClassId, Option<Def>>,
    ) -> bool {
        let mut n_new: BTreeMap<CompId, usize> = BTreeMap::new();
        for def in defs.values().flatten() {
            let Def::Kernel(kernel) = def else { continue };
            kernel.comps.iter().for_each(|&comp| *n_new.entry(comp).or_default() += 1);
        }
        n_new.into_iter().any(|(comp, n)| {
            let before = &plan.computing[comp];
            let n_kept = before.iter().filter(|tensor| !defs.contains_key(tensor)).count();
            n + n_kept > 1 && before.len() <= 1 && self.is_work(state, comp)
        })
    }

    /// The plan of a state, or `None` if one of its regions is not a kernel.
    pub(crate) fn plan(&mut self, state: &State) -> Option<Plan> {
        let mut plan = Plan::empty(self.space);
        let outputs: Vec<TensorClassId> = self.space.outputs.clone();
        let delta = self.draft(state, &plan, outputs);
        plan.apply(&delta);
        (delta.cost_ns.is_some() || self.ignore_legality).then_some(plan)
    }

    /// What a change of the state, which has been applied to it, does to its plan.
    pub(crate) fn delta(&mut self, state: &State, plan: &Plan, change: &Change) -> Delta {
        let space = self.space;
        let mut affected = plan.around(space, change);
        affected.retain(|&tensor| plan.defs[tensor].is_some() && state.exists(space, tensor));
        let mut delta = self.draft(state, plan, affected);
        if !self.extraction.recompute && self.duplicates(state, plan, &delta.defs) {
            delta.cost_ns = None;
        }
        delta.touched.extend(change.removed.iter().chain(&change.added));
        delta
    }

    /// Recomputes the origin of some tensors, and of all that this makes necessary or needless.
    fn draft(&mut self, state: &State, plan: &Plan, affected: Vec<TensorClassId>) -> Delta {
        let mut draft =
            Draft { plan, defs: BTreeMap::new(), n_users: BTreeMap::new(), todo: Vec::new() };
        for &tensor in &affected {
            let def = self.def(state, tensor, &draft);
            draft.set(tensor, Some(def));
        }
        while let Some(tensor) = draft.todo.pop() {
            let n_users = plan.users[tensor].len() as isize
                + draft.n_users.get(&tensor).copied().unwrap_or(0);
            let needed = n_users > 0 || self.space.tensors[tensor].is_output;
            match (needed, draft.def(tensor).is_some()) {
                (true, false) => {
                    let def = self.def(state, tensor, &draft);
                    draft.set(tensor, Some(def));
                }
                (false, true) => draft.set(tensor, None),
                _ => (),
            }
        }
        let mut cost_ns = Some(plan.cost_ns);
        for (&tensor, def) in &draft.defs {
            let old = plan.defs[tensor].as_ref().and_then(Def::cost_ns).flatten().unwrap_or(0.0);
            let new = def.as_ref().and_then(Def::cost_ns).unwrap_or(Some(0.0));
            cost_ns = cost_ns.zip(new).map(|(sum, new)| sum - old + new);
        }
        let touched = affected
            .into_iter()
            .chain(draft.defs.keys().copied())
            .chain(draft.n_users.keys().copied());
        let touched = touched.collect();
        Delta { defs: draft.defs, cost_ns, touched }
    }

    fn def(&mut self, state: &State, tensor: TensorClassId, draft: &Draft<'_>) -> Def {
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
                    && !draft.is_claimed(part, tensor)
                    && state.rank[space.tensors[part].comp] < state.rank[class.comp]
                    && self.view_source(state, part).is_none()
                    && space.tensors[part].joins.is_empty()
            };
            let distinct = parts.iter().enumerate().all(|(i, part)| !parts[..i].contains(part));
            if distinct && parts.iter().all(|&part| free(part)) {
                return Def::Join(*axis, parts.clone());
            }
        }
        Def::Kernel(self.kernel(state, tensor))
    }

    /// A tensor that exists and of whose memory this one is a view.
    fn view_source(&self, state: &State, tensor: TensorClassId) -> Option<TensorClassId> {
        let space = self.space;
        let class = &space.tensors[tensor];
        let usable = |&&source: &&TensorClassId| {
            state.exists(space, source)
                && (space.is_leaf(source)
                    || state.rank[space.tensors[source].comp] < state.rank[class.comp])
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
        let class =
            |comp: &CompId| state.choice.term(space, *comp).map(|term| term.op.spec().class);
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
pub(crate) fn build(
    space: &Space,
    choice: &Choice,
    comps: &[CompId],
    loads: &[TensorClassId],
) -> Graph {
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
                let computed = |&arg: &CompId| match (value_of.get(&arg), space.loaded(arg)) {
                    (None, Some(tensor)) => value_of[&space.tensors[tensor].comp],
                    _ => value_of[&arg],
                };
                let args: Vec<Value> = term.args.iter().map(computed).collect();
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
