//! Which steps of saturation are in a plan: the terms that they added compute something there.

use std::collections::{BTreeMap, BTreeSet};

use egg::Id;

use super::plan::Def;
use super::search::Found;
use super::space::Space;
use crate::lang::{ENode, has_attrs};
use crate::lower::Lowered;
use crate::rule::root;
use crate::saturate::{Action, Step};

/// The terms of a plan: the e-nodes that kernels compute, and those that say whose memory a tensor has.
struct InUse {
    terms: BTreeSet<ENode>,
    /// Classes that a kernel computes on the way to its result.
    inner: BTreeSet<Id>,
}

impl InUse {
    fn of(lowered: &Lowered, space: &Space, found: &Found) -> Self {
        let egraph = &lowered.egraph;
        let mut all = Self { terms: BTreeSet::new(), inner: BTreeSet::new() };
        for (tensor, def) in found.plan.defs.iter().enumerate() {
            let Some(Def::Kernel(kernel)) = def else {
                all.memory(lowered, space, tensor, def.as_ref());
                continue;
            };
            for (index, &comp) in kernel.comps.iter().enumerate() {
                let class = &space.comps[comp];
                if index + 1 < kernel.comps.len() {
                    all.inner.insert(class.class);
                }
                let Some(term) = found.state.choice.term(space, comp) else { continue };
                let mut children = Vec::with_capacity(term.args.len() + 1);
                if has_attrs(term.op) {
                    children.extend(egraph.lookup(ENode::Attrs(term.attrs.clone())));
                }
                children.extend(term.args.iter().map(|&arg| space.comps[arg].class));
                all.terms.insert(ENode::Apply(term.op, children));
            }
        }
        all
    }

    /// A tensor without a kernel: the terms of its class that have the sources of its origin.
    fn memory(&mut self, lowered: &Lowered, space: &Space, tensor: usize, def: Option<&Def>) {
        let sources: Vec<Id> = match def {
            Some(def @ (Def::View(_) | Def::Join(..))) => {
                def.sources().iter().filter_map(|&source| space.tensors[source].class).collect()
            }
            _ => return,
        };
        let Some(class) = space.tensors[tensor].class else { return };
        for node in &lowered.egraph[class].nodes {
            if matches!(node, ENode::View(_) | ENode::Join(_)) && node.operands() == sources {
                self.terms.insert(node.clone());
            }
        }
    }
}

/// How many steps of each agent are in a plan; see [`AgentLog::n_used`](crate::agent::AgentLog).
pub(crate) fn by_agent(
    lowered: &Lowered,
    steps: &[Step],
    space: &Space,
    found: &Found,
) -> BTreeMap<&'static str, usize> {
    let egraph = &lowered.egraph;
    let in_use = InUse::of(lowered, space, found);
    let mut used: BTreeMap<&'static str, usize> = BTreeMap::new();
    for step in steps {
        let (class, term) = match &step.action {
            Action::Equate { rule, at } => (at.class, rule.right(egraph, at)),
            Action::Build { term, at } => {
                (step.right, root(egraph, term, |var| at.get(var).copied()))
            }
        };
        let is_used = match term {
            Some(ENode::Load(_) | ENode::Store(_) | ENode::Const(_)) | None => {
                in_use.inner.contains(&egraph.find(class))
            }
            Some(term) => in_use.terms.contains(&term),
        };
        if is_used {
            *used.entry(step.agent).or_default() += 1;
        }
    }
    used
}

/// Computations of a plan beyond the first one of the same value, moves of elements not counted.
pub(crate) fn n_recomputed(space: &Space, found: &Found) -> usize {
    let is_work = |comp: usize| {
        use eggine_ir::graph::OpClass;
        let class = &space.comps[comp];
        let term = found.state.choice.term(space, comp);
        !class.known
            && class.literal.is_none()
            && term.is_some_and(|term| {
                !matches!(term.op.spec().class, OpClass::Move | OpClass::Generate)
            })
    };
    (found.plan.computing.iter().enumerate())
        .filter(|&(comp, _)| is_work(comp))
        .map(|(_, kernels)| kernels.len().saturating_sub(1))
        .sum()
}
