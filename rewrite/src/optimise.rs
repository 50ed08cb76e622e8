//! The whole of level one: segments, saturation, extraction, and covers of the model.

mod assembly;

use std::collections::BTreeMap;
use std::sync::Arc;

use cranelift_entity::EntityRef;
use egg::Id;
use eggine_ir::{Graph, NodeKind, Op, Region, TensorType, Value};
use rayon::prelude::*;

use crate::agent::{Agent, Budget, Extraction};
use crate::agents;
use crate::cost::{CostMemo, RegionCost};
use crate::cover::Cover;
use crate::derivation::{Claim, SegmentProof};
use crate::extract::greedy::greedy_plan;
use crate::extract::plan::{Def, Pricer, build};
use crate::extract::random::{Rng, any_plan};
use crate::extract::search::{Found, best_plans};
use crate::extract::space::{Space, TensorClassId};
use crate::extract::used;
use crate::facts::Conflict;
use crate::lang::ENode;
use crate::lower::{Lowered, lower};
use crate::rule::{RuleError, Soundness};
use crate::rule_file::Fuel;
use crate::saturate::{Action, Limits, Saturation, Stop, saturate_with_fuel};
use crate::segment::{Segments, segments};

/// What to optimise for, and how far.
#[derive(Clone)]
pub struct Options {
    /// How many covers to return.
    pub k: usize,
    /// Which rules may be used.
    pub soundness: Soundness,
    /// Varies nothing but [`random_cover`].
    pub seed: u64,
    /// E-nodes per segment.
    pub node_limit: usize,
    /// Rounds of saturation per segment.
    pub iter_limit: usize,
    /// Who rewrites, in the order in which proposals are applied. `None`: the built-in agents.
    pub agents: Option<Vec<Arc<dyn Agent>>>,
    /// Applications of users' rules; `None`: as many as there are.
    pub rule_fuel: Option<Fuel>,
}

impl Default for Options {
    /// One cover, exact rules only, limits that no segment of the models in `shared/models` reaches.
    fn default() -> Self {
        Self {
            k: 1,
            soundness: Soundness::Exact,
            seed: 0,
            node_limit: 20_000,
            iter_limit: 12,
            agents: None,
            rule_fuel: None,
        }
    }
}

/// Why a model has no cover.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// A rule is malformed.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// A rule equated what cannot be equal; nothing that it touched can be trusted.
    #[error(transparent)]
    Unsound(#[from] Conflict),
    /// An operator by itself is not a kernel.
    #[error("no kernel family computes `{op}` with result {ty}")]
    NoKernel {
        /// The operator.
        op: String,
        /// Type of its result.
        ty: String,
    },
}

/// Finds covers of a model, best first, at most `options.k`, at least one.
///
/// # Errors
///
/// See [`RewriteError`].
pub fn optimise(
    graph: &Graph,
    costs: &dyn RegionCost,
    options: &Options,
) -> Result<Vec<Cover>, RewriteError> {
    Optimiser::new(graph, options)?.covers(costs, options.k)
}

/// A saturated model, from which covers are extracted as costs become known.
pub struct Optimiser<'a> {
    prepared: Prepared<'a>,
}

impl<'a> Optimiser<'a> {
    /// Cuts the model into segments and saturates them; `options.k` and `options.seed` have no effect.
    ///
    /// # Errors
    ///
    /// [`RewriteError::Rule`] and [`RewriteError::Unsound`].
    #[tracing::instrument(skip_all, fields(n_nodes = graph.nodes.len()))]
    pub fn new(graph: &'a Graph, options: &Options) -> Result<Self, RewriteError> {
        Ok(Self { prepared: Prepared::new(graph, options)? })
    }

    /// The best covers under these costs, best first, at most `k`, at least one.
    ///
    /// # Errors
    ///
    /// [`RewriteError::NoKernel`].
    #[tracing::instrument(skip_all)]
    pub fn covers(&self, costs: &dyn RegionCost, k: usize) -> Result<Vec<Cover>, RewriteError> {
        let prepared = &self.prepared;
        let memo = CostMemo::new(costs);
        let extracted: Vec<Vec<SegmentCover>> = (prepared.segments.par_iter())
            .map(|segment| {
                let mut pricer = Pricer::new(&segment.space, &memo, prepared.extraction);
                let found = best_plans(&mut pricer, k)?;
                Ok(found.iter().map(|found| SegmentCover::new(segment, found)).collect())
            })
            .collect::<Result<_, RewriteError>>()?;
        tracing::debug!(
            n_regions_priced = memo.len(),
            n_segments = prepared.segments.len(),
            "extracted"
        );
        // The best of every segment, then the alternatives that cost least, one segment at a time.
        let mut picks: Vec<(f64, Vec<usize>)> = vec![(0.0, vec![0; extracted.len()])];
        for (segment, covers) in extracted.iter().enumerate() {
            let n_places =
                prepared.cut.instances.iter().filter(|at| at.segment == segment).count() as f64;
            for (alternative, cover) in covers.iter().enumerate().skip(1) {
                let mut pick = vec![0; extracted.len()];
                pick[segment] = alternative;
                picks.push((n_places * (cover.cost_ns - covers[0].cost_ns), pick));
            }
        }
        picks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let assemble = |pick: &[usize]| {
            let covers: Vec<&SegmentCover> =
                pick.iter().zip(&extracted).map(|(&i, covers)| &covers[i]).collect();
            prepared.assemble(&covers)
        };
        Ok(picks.iter().take(k.max(1)).map(|(_, pick)| assemble(pick)).collect())
    }

    /// A cover drawn at random, whatever kernels exist: it must mean the same as the model. For tests.
    pub fn random(&self, seed: u64) -> Cover {
        let memo = CostMemo::new(&Free);
        let mut rng = Rng::new(seed);
        let segments = self.prepared.segments.iter();
        let covers: Vec<SegmentCover> = segments
            .map(|segment| {
                let extraction = Extraction { recompute: true };
                let mut pricer = Pricer::new(&segment.space, &memo, extraction);
                SegmentCover::new(segment, &any_plan(&mut pricer, &mut rng))
            })
            .collect();
        self.prepared.assemble(&covers.iter().collect::<Vec<_>>())
    }

    /// What saturation made of each of the model's different segments.
    pub fn segments(&self) -> Vec<SegmentStats> {
        let n_places = |index: usize| {
            self.prepared.cut.instances.iter().filter(|place| place.segment == index).count()
        };
        let segments = self.prepared.segments.iter().enumerate();
        segments
            .map(|(index, segment)| SegmentStats {
                n_operators: (segment.graph.nodes.values())
                    .filter(|node| matches!(node.kind, NodeKind::Apply(..)))
                    .count(),
                n_places: n_places(index),
                n_nodes: segment.lowered.egraph.total_size(),
                n_rounds: segment.saturation.n_iterations,
                stop: segment.saturation.stop,
            })
            .collect()
    }
}

/// A segment after saturation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStats {
    /// Operators that it came with.
    pub n_operators: usize,
    /// How often it occurs in the model.
    pub n_places: usize,
    /// E-nodes.
    pub n_nodes: usize,
    /// Rounds of saturation.
    pub n_rounds: usize,
    /// Why saturation ended.
    pub stop: Stop,
}

/// The cover of greedy fusion, the baseline: in topological order, every producer goes into its
/// consumers where that is one kernel and saves modelled time. No rule but the axioms of fusion and of
/// memory is used.
///
/// # Errors
///
/// See [`RewriteError`].
pub fn greedy_cover(graph: &Graph, costs: &dyn RegionCost) -> Result<Cover, RewriteError> {
    let soundness = Soundness::Exact;
    let agents: Vec<Arc<dyn Agent>> = vec![
        Arc::new(agents::Fuser::new(soundness)?),
        Arc::new(agents::Memory::new(soundness)?),
        Arc::new(agents::Recompute),
    ];
    let options = Options { agents: Some(agents), ..Options::default() };
    let prepared = Prepared::new(graph, &options)?;
    let memo = CostMemo::new(costs);
    let covers: Vec<SegmentCover> = (prepared.segments.par_iter())
        .map(|segment| {
            let mut pricer = Pricer::new(&segment.space, &memo, prepared.extraction);
            Ok(SegmentCover::new(segment, &greedy_plan(&mut pricer)?))
        })
        .collect::<Result<_, RewriteError>>()?;
    Ok(prepared.assemble(&covers.iter().collect::<Vec<_>>()))
}

/// Costs that permit everything.
struct Free;

impl RegionCost for Free {
    fn cost_ns(&self, _: &Region) -> Option<f64> {
        Some(0.0)
    }
}

/// A cover drawn at random, whatever kernels exist: it must mean the same as the model. For tests.
///
/// # Errors
///
/// See [`RewriteError`].
pub fn random_cover(graph: &Graph, options: &Options) -> Result<Cover, RewriteError> {
    Ok(Optimiser::new(graph, options)?.random(options.seed))
}

/// A saturated segment.
struct Segment {
    graph: Graph,
    lowered: Lowered,
    saturation: Saturation,
    space: Space,
}

struct Prepared<'a> {
    graph: &'a Graph,
    cut: Segments,
    segments: Vec<Segment>,
    /// See [`Derivation::sources`].
    sources: Arc<Vec<BTreeMap<Value, Vec<String>>>>,
    /// What the agents permit extraction together.
    extraction: Extraction,
    /// Who permits recomputation.
    recomputes: Option<&'static str>,
}

impl<'a> Prepared<'a> {
    fn new(graph: &'a Graph, options: &Options) -> Result<Self, RewriteError> {
        let agents = match &options.agents {
            Some(agents) => agents.clone(),
            None => agents::built_in(options.soundness)?,
        };
        let limits = Limits {
            n_nodes: options.node_limit,
            n_iterations: options.iter_limit,
            budget: Budget { n_proposals: options.node_limit },
        };
        let cut = segments(graph);
        let saturated = |graph: &Graph, fuel: &mut Option<Fuel>| -> Result<Segment, RewriteError> {
            let mut lowered = lower(graph);
            let saturation = saturate_with_fuel(&mut lowered.egraph, &agents, limits, fuel)?;
            let space = Space::new(&lowered);
            tracing::debug!(
                n_operators = graph.nodes.len(),
                n_nodes = lowered.egraph.total_size(),
                n_rounds = saturation.n_iterations,
                stop = ?saturation.stop,
                "saturated a segment"
            );
            Ok(Segment { graph: graph.clone(), lowered, saturation, space })
        };
        let segments = match options.rule_fuel {
            None => cut
                .graphs
                .par_iter()
                .map(|graph| saturated(graph, &mut None))
                .collect::<Result<_, _>>(),
            // What one segment burns the next one lacks: in their order, not in parallel.
            mut fuel => cut.graphs.iter().map(|graph| saturated(graph, &mut fuel)).collect(),
        }?;
        let sources = Arc::new(sources(graph, &cut));
        let mut extraction = Extraction::default();
        let mut recomputes = None;
        for agent in &agents {
            let Extraction { recompute } = agent.extraction();
            if recompute {
                extraction.recompute = true;
                recomputes = recomputes.or(Some(agent.name()));
            }
        }
        Ok(Self { graph, cut, segments, sources, extraction, recomputes })
    }
}

/// Names of the model's nodes behind the values of each segment.
fn sources(graph: &Graph, cut: &Segments) -> Vec<BTreeMap<Value, Vec<String>>> {
    let mut sources: Vec<BTreeMap<Value, Vec<String>>> = vec![BTreeMap::new(); cut.graphs.len()];
    for instance in &cut.instances {
        for (index, &value) in instance.values.iter().enumerate() {
            let names = graph.nodes[value].sources.iter().cloned();
            sources[instance.segment].entry(Value::new(index)).or_default().extend(names);
        }
    }
    sources
}

/// A tensor of a segment's cover.
struct Part {
    ty: TensorType,
    def: PartDef,
}

enum PartDef {
    Given(Value),
    /// Computed at compile time from weights.
    Known {
        region: Region,
        args: Vec<usize>,
    },
    View(usize),
    Join(usize, Vec<usize>),
    Kernel {
        region: Region,
        args: Vec<usize>,
        values: Vec<Value>,
        claim: usize,
    },
}

/// A segment's cover, in the segment's own terms.
struct SegmentCover {
    /// In an order in which they can be computed.
    parts: Vec<Part>,
    /// The part that is each output of the segment.
    outputs: Vec<usize>,
    cost_ns: f64,
    proof: Arc<SegmentProof>,
    /// Steps that are in it, by agent.
    used: BTreeMap<&'static str, usize>,
    /// Computations beyond the first one of the same value.
    n_recomputed: usize,
}

impl SegmentCover {
    fn new(segment: &Segment, found: &Found) -> Self {
        let space = &segment.space;
        let mut cover = Self {
            parts: Vec::new(),
            outputs: Vec::new(),
            cost_ns: found.plan.cost_ns,
            used: used::by_agent(&segment.lowered, &segment.saturation.steps, space, found),
            n_recomputed: used::n_recomputed(space, found),
            proof: Arc::new(SegmentProof {
                graph: segment.graph.clone(),
                steps: segment.saturation.steps.clone(),
                claims: Vec::new(),
                cover: Graph::default(),
            }),
        };
        let mut claims = Vec::new();
        let mut part_of: BTreeMap<TensorClassId, usize> = BTreeMap::new();
        for &output in &space.outputs {
            cover.add(segment, found, output, &mut part_of, &mut claims);
        }
        cover.outputs = space.outputs.iter().map(|output| part_of[output]).collect();
        cover.attribute(segment, found, &part_of);
        let inlined = cover.inlined(&segment.graph);
        if let Some(proof) = Arc::get_mut(&mut cover.proof) {
            proof.claims = claims;
            proof.cover = inlined;
        }
        cover
    }

    /// The cover as one graph, with the inputs of the segment in order.
    fn inlined(&self, segment: &Graph) -> Graph {
        let mut graph = Graph::new("");
        let mut given: BTreeMap<Value, Value> = BTreeMap::new();
        for input in segment.inputs() {
            let ty = segment.ty(input).clone();
            let new = match &segment.nodes[input].kind {
                NodeKind::Input { weight: true, .. } => graph.weight(ty),
                _ => graph.input("", ty),
            };
            given.insert(input, new);
        }
        let mut values: Vec<Value> = Vec::with_capacity(self.parts.len());
        for Part { ty, def } in &self.parts {
            let value = match def {
                PartDef::Given(value) => match (given.get(value), &segment.nodes[*value].kind) {
                    (None, NodeKind::Const(tensor)) => graph.constant(tensor.clone()),
                    (input, _) => *input.expect("a given tensor is an input or a constant"),
                },
                PartDef::Known { region, args } | PartDef::Kernel { region, args, .. } => {
                    let args: Vec<Value> = args.iter().map(|&arg| values[arg]).collect();
                    inline(&mut graph, &region.graph, &args)[0]
                }
                PartDef::View(of) => {
                    let shape = ty.extents().iter().map(|&n| n as i64).collect();
                    let attrs = eggine_ir::Attrs(vec![eggine_ir::Attr::Ints(shape)]);
                    let viewed = graph.apply(eggine_ir::Op::Reshape, attrs, &[values[*of]]);
                    viewed.expect("a view has the elements of what it views")
                }
                PartDef::Join(axis, parts) => {
                    let parts: Vec<Value> = parts.iter().map(|&part| values[part]).collect();
                    let attrs = eggine_ir::Attrs(vec![eggine_ir::Attr::Int(*axis as i64)]);
                    let joined = graph.apply(eggine_ir::Op::Concat, attrs, &parts);
                    joined.expect("parts of a join fit together")
                }
            };
            values.push(value);
        }
        graph.outputs = self.outputs.iter().map(|&output| values[output]).collect();
        graph
    }

    fn add(
        &mut self,
        segment: &Segment,
        found: &Found,
        tensor: TensorClassId,
        part_of: &mut BTreeMap<TensorClassId, usize>,
        claims: &mut Vec<Claim>,
    ) -> usize {
        if let Some(&part) = part_of.get(&tensor) {
            return part;
        }
        let space = &segment.space;
        let class = &space.tensors[tensor];
        let comp = &space.comps[class.comp];
        let def = match found.plan.defs[tensor].clone().unwrap_or(Def::Known) {
            Def::Given => PartDef::Given(class.input.expect("given tensors are inputs").0),
            Def::Known => match class.input {
                Some((value, _)) => PartDef::Given(value),
                None => {
                    let (graph, args) = known_graph(space, found, class.comp);
                    let args = args
                        .iter()
                        .map(|&arg| self.add(segment, found, arg, part_of, claims))
                        .collect();
                    PartDef::Known { region: Region::contiguous(graph), args }
                }
            },
            Def::View(source) => PartDef::View(self.add(segment, found, source, part_of, claims)),
            Def::Join(axis, parts) => {
                let parts = parts
                    .iter()
                    .map(|&part| self.add(segment, found, part, part_of, claims))
                    .collect();
                PartDef::Join(axis, parts)
            }
            Def::Kernel(kernel) => {
                let graph = build(space, &found.state.choice, &kernel.comps, &kernel.loads);
                let args: Vec<usize> = kernel
                    .loads
                    .iter()
                    .map(|&load| self.add(segment, found, load, part_of, claims))
                    .collect();
                let (region, order) = Region::contiguous(graph).canonical();
                let args = order.iter().map(|&i| args[i]).collect();
                let class_of = |&i: &usize| {
                    let tensor = &space.tensors[kernel.loads[i]];
                    let load = tensor.class.map(|class| ENode::Load([class]));
                    let load = load.and_then(|load| segment.lowered.egraph.lookup(load));
                    load.unwrap_or(space.comps[tensor.comp].class)
                };
                claims.push(Claim {
                    class: comp.class,
                    values: comp.values.clone(),
                    region: region.graph.clone(),
                    args: order.iter().map(class_of).collect(),
                    rules: rules(segment, kernel.comps.iter().map(|&comp| space.comps[comp].class)),
                });
                let values = values_of(space, found, &kernel.comps);
                PartDef::Kernel { region, args, values, claim: claims.len() - 1 }
            }
        };
        self.parts.push(Part { ty: comp.ty.clone(), def });
        part_of.insert(tensor, self.parts.len() - 1);
        self.parts.len() - 1
    }

    /// Gives each of the segment's operators that no kernel computes as such to a kernel all the same:
    /// the makers of the memory that it is another view of, or else its users.
    fn attribute(
        &mut self,
        segment: &Segment,
        found: &Found,
        part_of: &BTreeMap<TensorClassId, usize>,
    ) {
        let space = &segment.space;
        let graph = &segment.graph;
        let mut kernels_of: BTreeMap<Value, Vec<usize>> = BTreeMap::new();
        for (part, Part { def, .. }) in self.parts.iter().enumerate() {
            let PartDef::Kernel { values, .. } = def else { continue };
            values.iter().for_each(|&value| kernels_of.entry(value).or_default().push(part));
        }
        for (&tensor, &part) in part_of {
            if matches!(found.plan.defs[tensor], Some(Def::View(_) | Def::Join(..))) {
                let makers = self.makers(part);
                for &value in &space.comps[space.tensors[tensor].comp].values {
                    kernels_of.entry(value).or_insert_with(|| makers.clone());
                }
            }
        }
        for (value, node) in graph.nodes.iter().rev() {
            let users = kernels_of.get(&value).cloned().unwrap_or_default();
            let NodeKind::Apply(_, _, args) = &node.kind else { continue };
            for &arg in args {
                if matches!(graph.nodes[arg].kind, NodeKind::Apply(..))
                    && !kernels_of.contains_key(&arg)
                {
                    kernels_of.insert(arg, users.clone());
                }
            }
        }
        for (value, kernels) in kernels_of {
            for part in kernels {
                if let PartDef::Kernel { values, .. } = &mut self.parts[part].def
                    && !values.contains(&value)
                {
                    values.push(value);
                }
            }
        }
    }

    /// The kernels whose results lie in a part's memory.
    fn makers(&self, part: usize) -> Vec<usize> {
        match &self.parts[part].def {
            PartDef::Kernel { .. } => vec![part],
            PartDef::View(of) => self.makers(*of),
            PartDef::Join(_, parts) => parts.iter().flat_map(|&part| self.makers(part)).collect(),
            PartDef::Given(_) | PartDef::Known { .. } => Vec::new(),
        }
    }
}

/// The segment's values that a kernel of these classes computes. What is cut out of a whole that is no
/// value of the model belongs to the kernel of the whole.
fn values_of(space: &Space, found: &Found, comps: &[usize]) -> Vec<Value> {
    let whole_of = |comp: usize| {
        let term = found.state.choice.term(space, comp)?;
        let &[whole] = term.args.as_slice() else { return None };
        (term.op == Op::Slice && space.comps[whole].values.is_empty()).then_some(whole)
    };
    let own = comps.iter().copied().filter(|&comp| whole_of(comp).is_none());
    let parts = (space.wholes.iter())
        .filter(|(whole, _)| comps.contains(whole) && space.comps[*whole].values.is_empty())
        .flat_map(|(_, parts)| parts.iter().map(|&(part, _)| part))
        .filter(|&part| whole_of(part).is_some() || found.plan.computing[part].is_empty());
    let mut values: Vec<Value> =
        own.chain(parts).flat_map(|comp| space.comps[comp].values.iter().copied()).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Copies the operators of `piece` into `graph`, on the given arguments; returns its outputs.
fn inline(graph: &mut Graph, piece: &Graph, args: &[Value]) -> Vec<Value> {
    let mut args = args.iter();
    let mut new: BTreeMap<Value, Value> = BTreeMap::new();
    for (value, node) in piece.nodes.iter() {
        let copy = match &node.kind {
            NodeKind::Input { .. } => *args.next().expect("one argument for each input"),
            NodeKind::Const(tensor) => graph.constant(tensor.clone()),
            NodeKind::Apply(op, attrs, operands) => {
                let operands: Vec<Value> = operands.iter().map(|operand| new[operand]).collect();
                graph.apply(*op, attrs.clone(), &operands).expect("the piece is well-typed")
            }
        };
        new.insert(value, copy);
    }
    piece.outputs.iter().map(|output| new[output]).collect()
}

/// The computation of a tensor that is known at compile time, down to the weights that it is made of.
fn known_graph(space: &Space, found: &Found, root: usize) -> (Graph, Vec<TensorClassId>) {
    fn visit(
        space: &Space,
        found: &Found,
        comp: usize,
        seen: &mut Vec<usize>,
        comps: &mut Vec<usize>,
        loads: &mut Vec<TensorClassId>,
    ) {
        if seen.contains(&comp) {
            return;
        }
        seen.push(comp);
        let class = &space.comps[comp];
        let given = class.tensor.filter(|&tensor| {
            space.tensors[tensor].input.is_some() || space.loaded(comp).is_some()
        });
        match (&class.literal, given, found.state.choice.term(space, comp)) {
            (None, Some(tensor), _) => loads.push(tensor),
            (None, None, Some(term)) => {
                term.args.iter().for_each(|&arg| visit(space, found, arg, seen, comps, loads));
                comps.push(comp);
            }
            _ => comps.push(comp),
        }
    }
    let (mut comps, mut loads) = (Vec::new(), Vec::new());
    visit(space, found, root, &mut Vec::new(), &mut comps, &mut loads);
    (build(space, &found.state.choice, &comps, &loads), loads)
}

/// Names of the rules that were applied to these classes.
fn rules(segment: &Segment, classes: impl Iterator<Item = Id>) -> Vec<&'static str> {
    let egraph = &segment.lowered.egraph;
    let mut classes: Vec<Id> = classes.collect();
    classes.sort_unstable();
    let mut names: Vec<&'static str> = Vec::new();
    for step in &segment.saturation.steps {
        let (class, name) = match &step.action {
            Action::Equate { at, .. } => (at.class, step.name()),
            Action::Build { .. } => continue,
        };
        if classes.binary_search(&egraph.find(class)).is_ok() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
