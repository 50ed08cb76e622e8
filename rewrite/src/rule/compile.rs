//! Rules as egg rewrites: the pattern searches, the row's types and condition decide, and the right
//! side is added and united.

use egg::{
    Applier, ENodeOrVar, Id, Language, Pattern, PatternAst, Rewrite, SearchMatches, Searcher,
    Subst, Symbol, Var,
};
use eggine_ir::{Attrs, TensorType};

use super::{Binding, Derive, Derived, Rule, RuleError, Scope, VarSpec};
use crate::facts::EGraph;
use crate::facts::Typing;
use crate::lang::ENode;
use crate::literal::Literal;

/// Longest operand list that a variadic rule is written out for.
pub(crate) const MAX_OPERANDS: usize = 12;

/// Matches of a rule that are looked at in a round: a pattern of twelve operands with a few forms each
/// has more than any memory holds.
const MAX_MATCHES: usize = 100_000;

/// The same in one class.
const MAX_MATCHES_IN: usize = 64;

/// A place where a rule applies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    /// The class that holds the left side.
    pub class: Id,
    /// What the variables stand for.
    pub subst: Subst,
}

/// A [`Rule`] that egg can run.
#[derive(Clone, Debug)]
pub struct CompiledRule {
    /// The row.
    pub row: &'static Rule,
    /// How many operands each `...` of the row stands for; 0 if it has none.
    pub n_operands: usize,
    /// The left side.
    pub lhs: Pattern<ENode>,
    applier: RowApplier,
}

#[derive(Clone, Debug)]
struct RowApplier {
    rule: &'static str,
    rhs: PatternAst<ENode>,
    vars: Vec<(Var, VarSpec)>,
    names: Vec<(String, Var)>,
    derive: Option<Derive>,
}

/// Compiles rows; a variadic one becomes one rule per number of operands.
///
/// # Errors
///
/// The first row that is not a rule.
pub fn compile_all(
    rows: impl IntoIterator<Item = &'static Rule>,
) -> Result<Vec<CompiledRule>, RuleError> {
    let mut rules = Vec::new();
    for row in rows {
        let arities = if row.is_variadic() { 2..=MAX_OPERANDS } else { 0..=0 };
        for n in arities {
            rules.push(CompiledRule::new(row, n)?);
        }
    }
    Ok(rules)
}

impl CompiledRule {
    /// Compiles a row, with `n_operands` operands in place of each `...`.
    ///
    /// # Errors
    ///
    /// If the row is malformed; see [`RuleError`].
    pub fn new(row: &'static Rule, n_operands: usize) -> Result<Self, RuleError> {
        let rule = row.name;
        let parse = |side: String| -> Result<Pattern<ENode>, RuleError> {
            side.parse().map_err(|err| RuleError::Pattern { rule, side, message: format!("{err}") })
        };
        let (lhs, rhs) = row.expanded(n_operands);
        let (lhs, rhs) = (parse(lhs)?, parse(rhs)?);
        if matches!(lhs.ast.last(), None | Some(ENodeOrVar::Var(_))) {
            return Err(RuleError::Lone { rule });
        }
        let bound = lhs.vars();
        let mut vars = Vec::new();
        for word in row.vars.split_whitespace() {
            let spec = VarSpec::parse(word)
                .ok_or_else(|| RuleError::Variable { rule, spec: word.to_owned() })?;
            let names: Vec<String> = match spec.list {
                true => (0..n_operands).map(|i| format!("?{}{i}", spec.name)).collect(),
                false => vec![format!("?{}", spec.name)],
            };
            for name in names {
                let var = name.parse().ok().filter(|var| bound.contains(var));
                let var = var.ok_or_else(|| RuleError::Unbound { rule, var: name.clone() })?;
                vars.push((var, spec.clone()));
            }
        }
        let names = bound
            .iter()
            .map(|var| (var.to_string().trim_start_matches('?').to_owned(), *var))
            .collect();
        let applier = RowApplier { rule, rhs: rhs.ast, vars, names, derive: row.derive };
        Ok(Self { row, n_operands, lhs, applier })
    }

    /// The rule as egg's own type, for egg's own runner.
    ///
    /// # Errors
    ///
    /// If egg rejects the pair of sides.
    pub fn rewrite(&self) -> Result<Rewrite<ENode, Typing>, RuleError> {
        Rewrite::new(self.row.name, self.lhs.clone(), self.applier.clone()).map_err(|message| {
            RuleError::Pattern { rule: self.row.name, side: self.row.lhs.to_owned(), message }
        })
    }

    /// Where the rule applies and would say something new, in the order of classes.
    pub fn matches(&self, egraph: &EGraph) -> Vec<Match> {
        let mut found: Vec<SearchMatches<'_, ENode>> =
            self.lhs.search_with_limit(egraph, MAX_MATCHES);
        found.sort_by_key(|found| found.eclass);
        found.into_iter().flat_map(|found| self.fresh(egraph, found)).collect()
    }

    /// As [`matches`](Self::matches), in one class.
    pub fn matches_in(&self, egraph: &EGraph, class: Id) -> Vec<Match> {
        let found = self.lhs.search_eclass_with_limit(egraph, class, MAX_MATCHES_IN);
        found.map_or_else(Vec::new, |found| self.fresh(egraph, found))
    }

    fn fresh(&self, egraph: &EGraph, found: SearchMatches<'_, ENode>) -> Vec<Match> {
        let SearchMatches { eclass: class, substs, .. } = found;
        (substs.into_iter())
            .filter(|subst| self.applier.is_new(egraph, class, subst))
            .map(|subst| Match { class, subst })
            .collect()
    }

    /// Applies the rule at a match, whether the match is still fresh or not. Returns the class of the
    /// right side if that was not known to be equal before.
    pub fn apply(&self, egraph: &mut EGraph, at: &Match) -> Option<Id> {
        let name = Symbol::from(self.row.name);
        self.applier.apply_one(egraph, at.class, &at.subst, None, name).first().copied()
    }

    /// What the variables of a match stand for.
    pub(crate) fn bound<'a>(&'a self, egraph: &'a EGraph, subst: &'a Subst) -> Bound<'a> {
        Bound { egraph, subst, names: &self.applier.names }
    }

    /// The right side's own term at a match that was applied, with its operands' classes as they are
    /// now; `None` if the right side is a variable, or nobody knows the term.
    pub(crate) fn right(&self, egraph: &EGraph, at: &Match) -> Option<ENode> {
        let extra = self.applier.conditions(egraph, &at.subst)?;
        root(egraph, &self.applier.rhs, |var| bound_to(egraph, &at.subst, &extra, var))
    }

    /// Whether the left side under this substitution is a term of the class.
    pub fn holds(&self, egraph: &EGraph, at: &Match) -> bool {
        lookup(egraph, &self.lhs.ast, |var| at.subst.get(var).copied())
            == Some(egraph.find(at.class))
            && self.applier.conditions(egraph, &at.subst).is_some()
    }
}

/// A substitution as a scope.
pub(crate) struct Bound<'a> {
    egraph: &'a EGraph,
    subst: &'a Subst,
    names: &'a [(String, Var)],
}

impl Bound<'_> {
    fn class(&self, var: &str) -> Option<Id> {
        let (_, var) = self.names.iter().find(|(name, _)| name == var)?;
        self.subst.get(*var).copied()
    }
}

impl Scope for Bound<'_> {
    fn ty(&self, var: &str) -> Option<&TensorType> {
        Some(&self.egraph[self.class(var)?].data.value()?.ty)
    }

    fn attrs(&self, var: &str) -> Option<&Attrs> {
        self.egraph[self.class(var)?].data.attrs()
    }

    fn literal(&self, var: &str) -> Option<&Literal> {
        self.egraph[self.class(var)?].data.value()?.literal.as_ref()
    }

    fn known(&self, var: &str) -> bool {
        let facts = self.class(var).and_then(|class| self.egraph[class].data.value());
        facts.is_some_and(|facts| facts.known)
    }
}

/// What a variable of the right side stands for that the pattern does not bind.
#[derive(Clone, Debug)]
enum Filled {
    Node(ENode),
    Class(Id),
}

type Extra = Vec<(Var, Filled)>;

impl RowApplier {
    /// The derived leaves if the types and the condition hold.
    fn conditions(&self, egraph: &EGraph, subst: &Subst) -> Option<Extra> {
        let mut binding = Binding::default();
        for (var, spec) in &self.vars {
            let facts = egraph[*subst.get(*var)?].data.value()?;
            if !binding.unify(spec, &facts.ty, facts.literal.as_ref(), facts.known) {
                return None;
            }
        }
        let Some(derive) = self.derive else { return Some(Extra::new()) };
        let bound = Bound { egraph, subst, names: &self.names };
        let derived = derive(&bound)?;
        let filled = |derived| {
            Some(match derived {
                Derived::Attrs(attrs) => Filled::Node(ENode::Attrs(attrs)),
                Derived::Literal(literal) => Filled::Node(ENode::Const(literal)),
                Derived::Same(var) => Filled::Class(bound.class(&var)?),
            })
        };
        derived
            .into_iter()
            .map(|(name, derived)| Some((format!("?{name}").parse().ok()?, filled(derived)?)))
            .collect()
    }

    fn is_new(&self, egraph: &EGraph, class: Id, subst: &Subst) -> bool {
        let Some(extra) = self.conditions(egraph, subst) else { return false };
        let bound = |var: Var| bound_to(egraph, subst, &extra, var);
        lookup(egraph, &self.rhs, bound) != Some(egraph.find(class))
    }
}

/// What a variable of a right side stands for.
fn bound_to(egraph: &EGraph, subst: &Subst, extra: &Extra, var: Var) -> Option<Id> {
    match subst.get(var) {
        Some(&id) => Some(id),
        None => match extra.iter().find(|(name, _)| *name == var)? {
            (_, Filled::Node(node)) => egraph.lookup(node.clone()),
            (_, Filled::Class(id)) => Some(*id),
        },
    }
}

/// The outermost term of an instantiated pattern, with the classes of its operands.
pub(crate) fn root(
    egraph: &EGraph,
    pattern: &PatternAst<ENode>,
    class: impl Fn(Var) -> Option<Id>,
) -> Option<ENode> {
    let mut ids: Vec<Id> = Vec::new();
    let mut found = None;
    for node in pattern.as_ref() {
        let (id, node) = match node {
            ENodeOrVar::Var(var) => (egraph.find(class(*var)?), None),
            ENodeOrVar::ENode(node) => {
                let node = node.clone().map_children(|id| ids[usize::from(id)]);
                (egraph.find(egraph.lookup(node.clone())?), Some(node))
            }
        };
        ids.push(id);
        found = node;
    }
    found
}

/// The class of an instantiated pattern, if all of its terms exist.
pub(crate) fn lookup(
    egraph: &EGraph,
    pattern: &PatternAst<ENode>,
    class: impl Fn(Var) -> Option<Id>,
) -> Option<Id> {
    let mut ids: Vec<Id> = Vec::new();
    for node in pattern.as_ref() {
        ids.push(match node {
            ENodeOrVar::Var(var) => egraph.find(class(*var)?),
            ENodeOrVar::ENode(node) => {
                egraph.lookup(node.clone().map_children(|id| ids[usize::from(id)]))?
            }
        });
    }
    ids.last().copied()
}

/// Adds an instantiated pattern; `None` if a variable stands for nothing.
pub(crate) fn build(egraph: &mut EGraph, term: &PatternAst<ENode>, subst: &Subst) -> Option<Id> {
    let mut ids: Vec<Id> = Vec::new();
    for node in term.as_ref() {
        ids.push(match node {
            ENodeOrVar::Var(var) => *subst.get(*var)?,
            ENodeOrVar::ENode(node) => {
                egraph.add(node.clone().map_children(|id| ids[usize::from(id)]))
            }
        });
    }
    ids.last().copied()
}

impl Applier<ENode, Typing> for RowApplier {
    fn apply_one(
        &self,
        egraph: &mut EGraph,
        class: Id,
        subst: &Subst,
        _: Option<&PatternAst<ENode>>,
        rule: Symbol,
    ) -> Vec<Id> {
        let Some(extra) = self.conditions(egraph, subst) else { return Vec::new() };
        egraph.analysis.rule = self.rule;
        let mut subst = subst.clone();
        for (var, filled) in extra {
            let id = match filled {
                Filled::Node(node) => egraph.add(node),
                Filled::Class(id) => id,
            };
            subst.insert(var, id);
        }
        let Some(right) = build(egraph, &self.rhs, &subst) else { return Vec::new() };
        match egraph.union_trusted(class, right, rule) {
            true => vec![right],
            false => Vec::new(),
        }
    }
}
