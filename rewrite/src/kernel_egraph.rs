//! The second level: one e-graph class per kernel, whose e-nodes are its schedules.
//!
//! A schedule is an e-node `(scheduled <schedule> <region>)` exactly when somebody considered it. A
//! move to a neighbouring schedule is an egg rewrite: it matches a scheduled term and adds another
//! to its class. Which neighbours there are is not known here: code generation passes them in as
//! [`Moves`], because it knows which schedules are legal.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use cranelift_entity::{PrimaryMap, entity_impl};
use egg::{Applier, Id, Language, Rewrite, SearchMatches, Searcher, Subst, Symbol, Var};
use eggine_ir::{Region, Schedule};

/// A schedule of a [`KernelSpace`], in order of discovery. Prints as `s3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(u32);
entity_impl!(KernelId, "s");

/// Which schedules are one step away.
pub trait Moves: Send + Sync {
    /// The names of the moves; each is one rewrite.
    fn names(&self) -> &[&'static str];

    /// The legal schedules that move number `index` makes of `schedule`, nearest first.
    fn neighbours(&self, index: usize, region: &Region, schedule: &Schedule) -> Vec<Schedule>;

    /// The legal schedules of all moves, by name of the move, in the order of the moves.
    fn all(&self, region: &Region, schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
        let of_move = |(index, &name): (usize, &&'static str)| {
            let found = self.neighbours(index, region, schedule);
            found.into_iter().map(move |next| (name, next))
        };
        self.names().iter().enumerate().flat_map(of_move).collect()
    }
}

/// A schedule that nobody considered yet, one move away from one that somebody did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// From which schedule.
    pub parent: KernelId,
    /// By which move.
    pub step: &'static str,
    /// The schedule.
    pub schedule: Schedule,
}

/// A schedule that somebody considered.
#[derive(Clone, Debug)]
pub struct Considered {
    /// The schedule.
    pub schedule: Schedule,
    /// From which schedule it was reached, and by which move; `None` for the first.
    pub parent: Option<(KernelId, &'static str)>,
}

/// A term of the kernel e-graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelNode {
    /// The region itself.
    Region,
    /// The region under a schedule, which is equal to it.
    Scheduled(u32, [Id; 1]),
}

impl Language for KernelNode {
    type Discriminant = std::mem::Discriminant<KernelNode>;

    fn discriminant(&self) -> Self::Discriminant {
        std::mem::discriminant(self)
    }

    fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (KernelNode::Scheduled(a, _), KernelNode::Scheduled(b, _)) => a == b,
            (KernelNode::Region, KernelNode::Region) => true,
            _ => false,
        }
    }

    fn children(&self) -> &[Id] {
        match self {
            KernelNode::Region => &[],
            KernelNode::Scheduled(_, region) => region,
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            KernelNode::Region => &mut [],
            KernelNode::Scheduled(_, region) => region,
        }
    }
}

impl fmt::Display for KernelNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelNode::Region => f.write_str("region"),
            KernelNode::Scheduled(index, _) => write!(f, "scheduled s{index}"),
        }
    }
}

/// The analysis holds what e-nodes refer to.
#[derive(Clone)]
struct Catalogue {
    region: Arc<Region>,
    considered: PrimaryMap<KernelId, Considered>,
    /// The schedules of `considered` and of `open`.
    known: BTreeSet<Schedule>,
    /// See [`KernelSpace::open`].
    open: Vec<Open>,
    /// The next move to try at each schedule; past the last move it has been expanded.
    next_move: Vec<usize>,
}

impl egg::Analysis<KernelNode> for Catalogue {
    type Data = ();

    fn make(_: &mut egg::EGraph<KernelNode, Self>, _: &KernelNode, _: Id) {}

    fn merge(&mut self, (): &mut (), (): ()) -> egg::DidMerge {
        egg::DidMerge(false, false)
    }
}

type KernelEGraph = egg::EGraph<KernelNode, Catalogue>;

/// All considered schedules of one region.
#[derive(Clone)]
pub struct KernelSpace {
    egraph: KernelEGraph,
    root: Id,
    moves: Arc<dyn Moves>,
    rewrites: Vec<Rewrite<KernelNode, Catalogue>>,
}

impl fmt::Debug for KernelSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.schedules().map(|(_, considered)| considered)).finish()
    }
}

/// Matches every scheduled term at which the move has not been tried.
struct Untried {
    index: usize,
}

fn schedule_var() -> Var {
    Var::from_u32(0)
}

impl Searcher<KernelNode, Catalogue> for Untried {
    fn search_eclass_with_limit(
        &self,
        egraph: &KernelEGraph,
        class: Id,
        limit: usize,
    ) -> Option<SearchMatches<'_, KernelNode>> {
        let mut found: Vec<u32> = (egraph[class].nodes.iter())
            .filter_map(|node| match node {
                KernelNode::Scheduled(index, _) => Some(*index),
                KernelNode::Region => None,
            })
            .filter(|&index| egraph.analysis.next_move[index as usize] == self.index)
            .collect();
        found.sort_unstable();
        let subst = |index: u32| {
            // The schedule's number travels in the substitution; it is not a class.
            let mut subst = Subst::with_capacity(1);
            subst.insert(schedule_var(), Id::from(index as usize));
            subst
        };
        let substs: Vec<Subst> = found.into_iter().take(limit).map(subst).collect();
        (!substs.is_empty()).then_some(SearchMatches { eclass: class, substs, ast: None })
    }

    fn vars(&self) -> Vec<Var> {
        vec![schedule_var()]
    }
}

/// Adds the neighbours of the matched schedule to its class.
struct AddNeighbours {
    index: usize,
    name: &'static str,
    moves: Arc<dyn Moves>,
}

impl Applier<KernelNode, Catalogue> for AddNeighbours {
    fn apply_one(
        &self,
        egraph: &mut KernelEGraph,
        class: Id,
        subst: &Subst,
        _: Option<&egg::PatternAst<KernelNode>>,
        _: Symbol,
    ) -> Vec<Id> {
        let number = usize::from(subst[schedule_var()]);
        let parent = KernelId::from_u32(number as u32);
        egraph.analysis.next_move[number] = self.index + 1;
        let region = Arc::clone(&egraph.analysis.region);
        let schedule = egraph.analysis.considered[parent].schedule;
        let neighbours = self.moves.neighbours(self.index, &region, &schedule);
        let mut changed = Vec::new();
        for schedule in neighbours {
            if add(egraph, class, schedule, Some((parent, self.name))).is_some() {
                changed.push(class);
            }
        }
        changed
    }
}

/// Adds a schedule to the class, unless it is there.
fn add(
    egraph: &mut KernelEGraph,
    class: Id,
    schedule: Schedule,
    parent: Option<(KernelId, &'static str)>,
) -> Option<KernelId> {
    if !egraph.analysis.known.insert(schedule) {
        let before = egraph.analysis.open.len();
        egraph.analysis.open.retain(|open| open.schedule != schedule);
        if egraph.analysis.open.len() == before {
            return None;
        }
    }
    let id = egraph.analysis.considered.push(Considered { schedule, parent });
    egraph.analysis.next_move.push(0);
    let region = egraph.lookup(KernelNode::Region).expect("the region is the first term");
    let term = egraph.add(KernelNode::Scheduled(id.as_u32(), [region]));
    egraph.union(class, term);
    Some(id)
}

impl KernelSpace {
    /// The class of a region with its first schedule.
    pub fn new(region: Region, first: Schedule, moves: Arc<dyn Moves>) -> Self {
        let catalogue = Catalogue {
            region: Arc::new(region),
            considered: PrimaryMap::new(),
            known: BTreeSet::new(),
            open: Vec::new(),
            next_move: Vec::new(),
        };
        let mut egraph = KernelEGraph::new(catalogue);
        let root = egraph.add(KernelNode::Region);
        add(&mut egraph, root, first, None);
        egraph.rebuild();
        let rewrites = (moves.names().iter().enumerate())
            .map(|(index, &name)| {
                let applier = AddNeighbours { index, name, moves: Arc::clone(&moves) };
                Rewrite::new(name, Untried { index }, applier)
                    .expect("no pattern variables to check")
            })
            .collect();
        Self { egraph, root, moves, rewrites }
    }

    /// The region.
    pub fn region(&self) -> &Region {
        &self.egraph.analysis.region
    }

    /// Every considered schedule, in order of discovery.
    pub fn schedules(&self) -> impl ExactSizeIterator<Item = (KernelId, &Considered)> {
        self.egraph.analysis.considered.iter()
    }

    /// One of them.
    pub fn get(&self, id: KernelId) -> &Considered {
        &self.egraph.analysis.considered[id]
    }

    /// Applies moves, oldest schedules first, until `n` more schedules are known or no move is left.
    /// Returns the new ones.
    pub fn grow(&mut self, n: usize) -> Vec<KernelId> {
        let before = self.schedules().len();
        while self.schedules().len() < before + n {
            let class = self.egraph.find(self.root);
            let matches = self.rewrites.iter().filter_map(|rewrite| {
                let found = rewrite.searcher.search_eclass_with_limit(&self.egraph, class, 1)?;
                Some((found.substs.into_iter().next()?, rewrite))
            });
            // The oldest schedule; of it one move is due.
            let Some((subst, rewrite)) = matches.min_by_key(|(subst, _)| subst[schedule_var()])
            else {
                break;
            };
            let rewrite = rewrite.clone();
            rewrite.applier.apply_one(&mut self.egraph, class, &subst, None, rewrite.name);
            self.egraph.rebuild();
        }
        (before..self.schedules().len()).map(|i| KernelId::from_u32(i as u32)).collect()
    }

    /// Adds a schedule that an agent proposes, reached from `parent` by `step`. `None` if it is known.
    pub fn consider(
        &mut self,
        parent: KernelId,
        step: &'static str,
        schedule: Schedule,
    ) -> Option<KernelId> {
        let class = self.egraph.find(self.root);
        let added = add(&mut self.egraph, class, schedule, Some((parent, step)));
        self.egraph.rebuild();
        added
    }

    /// Unknown neighbours of known schedules, oldest parent first, without adding any.
    pub fn frontier(&self) -> impl Iterator<Item = (KernelId, &'static str, Schedule)> + '_ {
        self.schedules().flat_map(move |(parent, considered)| {
            (self.moves.names().iter().enumerate()).flat_map(move |(index, &name)| {
                let neighbours = self.moves.neighbours(index, self.region(), &considered.schedule);
                let unknown = move |schedule: &Schedule| {
                    self.schedules().all(|(_, known)| known.schedule != *schedule)
                };
                neighbours.into_iter().filter(unknown).map(move |schedule| (parent, name, schedule))
            })
        })
    }

    /// Makes the neighbours of a schedule [`open`](Self::open), as far as they are unknown.
    pub fn expand(&mut self, id: KernelId) {
        let schedule = self.get(id).schedule;
        let neighbours = self.moves.all(self.region(), &schedule);
        let catalogue = &mut self.egraph.analysis;
        for (step, schedule) in neighbours {
            if catalogue.known.insert(schedule) {
                catalogue.open.push(Open { parent: id, step, schedule });
            }
        }
    }

    /// Makes a schedule [`open`](Self::open) that no neighbour leads to, as if `step` led to it.
    pub fn offer(&mut self, parent: KernelId, step: &'static str, schedule: Schedule) {
        let catalogue = &mut self.egraph.analysis;
        if catalogue.known.insert(schedule) {
            catalogue.open.push(Open { parent, step, schedule });
        }
    }

    /// Neighbours of [expanded](Self::expand) schedules that nobody considered yet, in order of
    /// discovery.
    pub fn open(&self) -> &[Open] {
        &self.egraph.analysis.open
    }

    /// Whether a schedule was considered or is open.
    pub fn is_known(&self, schedule: &Schedule) -> bool {
        self.egraph.analysis.known.contains(schedule)
    }

    /// Legal schedules one move away from any schedule of the region, known or not.
    pub fn neighbours(&self, schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
        self.moves.all(self.region(), schedule)
    }

    /// How many e-nodes the class of the kernel has: its schedules and the region.
    pub fn n_nodes(&self) -> usize {
        self.egraph[self.egraph.find(self.root)].nodes.len()
    }
}
