//! Sides of a rule: terms over the operator table, each with its place, checked before egg sees them.

use std::collections::{BTreeMap, BTreeSet};

use eggine_ir::graph::AttrKind;
use eggine_ir::{Attr, Attrs, Op};

use super::error::{RuleFileError, RuleFileErrorKind as Kind};
use super::row::{error, span_of};
use crate::lang::{has_attrs, parse_attrs};
use crate::literal::Literal;

/// What was found in the sides of a rule.
#[derive(Debug, Default)]
pub(super) struct Sides {
    /// Whether both could be read.
    pub(super) parsed: bool,
    /// Variables of the left side, and whether each stands for an operand list.
    pub(super) left: BTreeSet<(String, bool)>,
    /// Variables that stand for attributes.
    pub(super) attributes: BTreeSet<String>,
}

/// Deepest term: what a person writes is far below, and the parser recurses.
const MAX_DEPTH: usize = 64;

/// Elements that a constant or a shape in a rule may have: rules are executed to be believed.
const MAX_ELEMS: usize = 4096;

/// Whether a constant's type, which ends the word, has few elements.
fn is_small(word: &str) -> bool {
    let Some((_, shape)) = word.rsplit_once('[') else { return false };
    let extents = shape.trim_end_matches(']').split(',').filter(|extent| !extent.is_empty());
    let n_elems = extents
        .map(|extent| extent.parse::<usize>().ok())
        .try_fold(1usize, |n, extent| n.checked_mul(extent?));
    n_elems.is_some_and(|n| n <= MAX_ELEMS)
}

enum Term {
    Var { name: &'static str, text: &'static str, dots: bool },
    Leaf { text: &'static str },
    Apply { op: &'static str, text: &'static str, args: Vec<Term>, dots: bool },
}

impl Term {
    fn text(&self) -> &'static str {
        match self {
            Term::Var { text, .. } | Term::Leaf { text } | Term::Apply { text, .. } => text,
        }
    }

    fn dots(&self) -> bool {
        matches!(self, Term::Var { dots: true, .. } | Term::Apply { dots: true, .. })
    }
}

/// What a term denotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Tensor,
    Computation,
    /// Attributes of such an operator.
    Attributes(Op),
}

impl Sort {
    fn name(self) -> &'static str {
        match self {
            Sort::Tensor => "a tensor in memory",
            Sort::Computation => "a computation",
            Sort::Attributes(_) => "attributes",
        }
    }

    fn same(self, other: Sort) -> bool {
        match (self, other) {
            (Sort::Attributes(a), Sort::Attributes(b)) => kinds(a).eq(kinds(b)),
            (a, b) => a == b,
        }
    }
}

fn kinds(op: Op) -> impl Iterator<Item = AttrKind> {
    op.spec().attrs.iter().map(|&(_, kind)| kind)
}

/// Reads both sides; mistakes go to `errors`.
pub(super) fn sides(
    text: &'static str,
    lhs: &'static str,
    rhs: &'static str,
    errors: &mut Vec<RuleFileError>,
) -> Sides {
    let n_errors = errors.len();
    let mut reader = Reader { text, errors, vars: BTreeMap::new(), in_list: false };
    let (left, right) = (reader.side(lhs), reader.side(rhs));
    let mut sides = Sides::default();
    let (Some(left), Some(right)) = (left, right) else { return sides };
    if !matches!(left, Term::Apply { .. }) {
        reader.fail(left.text(), Kind::Lone);
        return sides;
    }
    let found = reader.sort(&left, None);
    sides.left = reader.vars.iter().map(|(name, var)| (name.clone(), var.list)).collect();
    // What a broken left side binds is not known.
    let Some(found) = found else { return sides };
    let before = reader.errors.len();
    let mut used = Vec::new();
    variables(&right, &mut used);
    for (name, part, dots) in used {
        match sides.left.contains(&(name.to_owned(), dots)) {
            true => {}
            false if sides.left.contains(&(name.to_owned(), !dots)) => {
                reader.fail(part, Kind::Dots);
            }
            false => reader.fail(part, Kind::Unbound { var: name.to_owned() }),
        }
    }
    if reader.errors.len() == before {
        reader.sort(&right, Some(found));
    }
    let words = |side: &str| side.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    if words(lhs) == words(rhs) {
        reader.fail(rhs, Kind::Same);
    }
    let attributes = reader.vars.iter().filter(|(_, var)| matches!(var.sort, Sort::Attributes(_)));
    sides.attributes = attributes.map(|(name, _)| name.clone()).collect();
    sides.parsed = reader.errors.len() == n_errors;
    sides
}

/// Variables of a term: name, text and whether they stand for a list.
fn variables(term: &Term, found: &mut Vec<(&'static str, &'static str, bool)>) {
    match term {
        Term::Var { name, text, dots } => found.push((name, text, *dots)),
        Term::Leaf { .. } => {}
        Term::Apply { args, dots, .. } => {
            let first = found.len();
            args.iter().for_each(|arg| variables(arg, found));
            // `(f ?x)...` is a list of `?x`.
            found[first..].iter_mut().for_each(|var| var.2 |= dots);
        }
    }
}

struct Var {
    sort: Sort,
    list: bool,
}

struct Reader<'a> {
    text: &'static str,
    errors: &'a mut Vec<RuleFileError>,
    vars: BTreeMap<String, Var>,
    /// Inside of `( … )...`.
    in_list: bool,
}

impl Reader<'_> {
    fn fail(&mut self, part: &str, kind: Kind) {
        self.errors.push(error(span_of(self.text, part), kind));
    }

    fn fail_with(&mut self, part: &str, kind: Kind, help: String) {
        let found = error(span_of(self.text, part), kind);
        self.errors.push(RuleFileError { help: Some(help), ..found });
    }

    /// Reads one side: exactly one term.
    fn side(&mut self, side: &'static str) -> Option<Term> {
        let mut rest = side;
        let term = self.term(side, &mut rest, 0)?;
        let more = rest.trim();
        if more.starts_with(')') {
            self.fail(&more[..1], Kind::Parenthesis { found: ')' });
            return None;
        }
        if !more.is_empty() {
            let found = format!("`{more}` behind it");
            self.fail(more, Kind::Expected { expected: "one term", found });
            return None;
        }
        if term.dots() {
            self.fail(term.text(), Kind::Dots);
            return None;
        }
        Some(term)
    }

    /// Reads a term off the front of `rest`.
    fn term(&mut self, side: &'static str, rest: &mut &'static str, depth: usize) -> Option<Term> {
        *rest = rest.trim_start();
        let start = *rest;
        let expected =
            "an operator in parentheses, a variable such as ?x, or a constant such as 1.0:f32[]";
        if depth > MAX_DEPTH {
            let found = format!("a term deeper than {MAX_DEPTH}");
            self.fail(start, Kind::Expected { expected: "a shallow term", found });
            return None;
        }
        if start.is_empty() {
            self.fail(side, Kind::Expected { expected, found: "the end".into() });
            return None;
        }
        if start.starts_with(')') {
            self.fail(&start[..1], Kind::Parenthesis { found: ')' });
            return None;
        }
        let Some(inner) = start.strip_prefix('(') else {
            let end = start.find(|c: char| c.is_whitespace() || "()".contains(c));
            let (word, after) = start.split_at(end.unwrap_or(start.len()));
            *rest = after;
            return self.atom(word);
        };
        *rest = inner.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || "()".contains(c)).unwrap_or(rest.len());
        let (op, after) = rest.split_at(end);
        if op.is_empty() {
            let found = if after.is_empty() { "the end" } else { "`(` or `)`" };
            let expected = "an operator behind `(`";
            self.fail(&start[..1], Kind::Expected { expected, found: found.into() });
            return None;
        }
        *rest = after;
        let mut args = Vec::new();
        loop {
            *rest = rest.trim_start();
            if rest.is_empty() {
                self.fail(&start[..1], Kind::Parenthesis { found: '(' });
                return None;
            }
            if let Some(after) = rest.strip_prefix(')') {
                *rest = after;
                break;
            }
            args.push(self.term(side, rest, depth + 1)?);
        }
        let dots = rest.starts_with("...");
        if dots {
            *rest = &rest[3..];
        }
        let term = Term::Apply { op, text: &start[..start.len() - rest.len()], args, dots };
        if dots {
            let mut inside = Vec::new();
            variables(&term, &mut inside);
            if inside.len() != 1 {
                self.fail(term.text(), Kind::Dots);
                return None;
            }
        }
        Some(term)
    }

    fn atom(&mut self, word: &'static str) -> Option<Term> {
        let Some(name) = word.strip_prefix('?') else {
            let is_literal = is_small(word) && word.parse::<Literal>().is_ok();
            if is_literal || parse_attrs(word).is_some() {
                return Some(Term::Leaf { text: word });
            }
            let expected = "a variable such as ?x, or a constant such as 1.0:f32[]";
            let found = format!("`{word}`");
            let name = word.starts_with(|c: char| c.is_ascii_alphabetic())
                && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let help = match name {
                true => format!("a variable begins with `?`: write `?{word}`"),
                false => "constants are written with their type and without spaces".into(),
            };
            self.fail_with(word, Kind::Expected { expected, found }, help);
            return None;
        };
        let (name, dots) = name.strip_suffix("...").map_or((name, false), |name| (name, true));
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            let expected = "a variable of letters, digits and `_`";
            self.fail(word, Kind::Expected { expected, found: format!("`{word}`") });
            return None;
        }
        Some(Term::Var { name, text: word, dots })
    }

    /// Checks that a term is of the wanted sort (any but attributes, if there is none); returns its sort.
    fn sort(&mut self, term: &Term, wanted: Option<Sort>) -> Option<Sort> {
        let found = match term {
            Term::Var { name, text, dots } => return self.var(name, text, *dots, wanted),
            Term::Leaf { text } => match wanted {
                Some(Sort::Attributes(op)) => {
                    self.attributes(op, text);
                    return wanted;
                }
                _ if is_small(text) && text.parse::<Literal>().is_ok() => Sort::Computation,
                _ => {
                    let expected = "a tensor or a computation";
                    let help = "a constant has a type, such as 1.0:f32[]; or give a variable the value, as in c:~S=1.0";
                    let kind = Kind::Kind { expected, found: "attributes or a number" };
                    self.fail_with(text, kind, help.into());
                    return None;
                }
            },
            Term::Apply { op, text, args, dots } => {
                let outer = self.in_list;
                if *dots {
                    self.in_list = true;
                }
                let found = self.apply(op, text, args);
                self.in_list = outer;
                found?
            }
        };
        match wanted {
            Some(wanted) if !wanted.same(found) => {
                let (expected, found) = (wanted.name(), found.name());
                let help = "operators take computations; `load` makes one of a tensor, `store` a tensor of one";
                self.fail_with(term.text(), Kind::Kind { expected, found }, help.into());
                None
            }
            _ => Some(found),
        }
    }

    fn var(
        &mut self,
        name: &str,
        text: &'static str,
        dots: bool,
        wanted: Option<Sort>,
    ) -> Option<Sort> {
        let list = dots || self.in_list;
        let known = self.vars.get(name).map(|var| (var.sort, var.list));
        let Some((sort, was_list)) = known else {
            let sort = wanted.unwrap_or(Sort::Computation);
            self.vars.insert(name.to_owned(), Var { sort, list });
            return Some(sort);
        };
        if was_list != list {
            self.fail(text, Kind::Dots);
            return None;
        }
        if let Some(wanted) = wanted.filter(|wanted| !wanted.same(sort)) {
            let (first, second) = match (sort, wanted) {
                (Sort::Attributes(_), Sort::Attributes(_)) => {
                    ("attributes of one operator", "of another")
                }
                _ => (sort.name(), wanted.name()),
            };
            self.fail(text, Kind::Kinds { var: name.to_owned(), first, second });
            return None;
        }
        Some(sort)
    }

    fn apply(&mut self, op: &'static str, text: &'static str, args: &[Term]) -> Option<Sort> {
        // Operator whose attributes come first, sort and number of operands, sort of the result.
        let (attrs_of, operand, arity, result) = match op {
            "load" => (None, Sort::Tensor, Some(1), Sort::Computation),
            "store" => (None, Sort::Computation, Some(1), Sort::Tensor),
            "view" => (Some(Op::Reshape), Sort::Tensor, Some(1), Sort::Tensor),
            "join" => (Some(Op::Concat), Sort::Tensor, None, Sort::Tensor),
            name => match name.parse::<Op>() {
                Ok(op) => {
                    let attrs_of = has_attrs(op).then_some(op);
                    (attrs_of, Sort::Computation, op.spec().arity, Sort::Computation)
                }
                Err(_) => {
                    let kind = Kind::Operator { op: name.to_owned() };
                    let help = match nearest(name) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("operators are {}", all_operators().join(", ")),
                    };
                    self.fail_with(name, kind, help);
                    return None;
                }
            },
        };
        let n_attrs = usize::from(attrs_of.is_some());
        let n_operands = args.len().saturating_sub(n_attrs);
        let has_list = args.iter().any(Term::dots);
        let fits = match arity {
            Some(arity) => args.len() == n_attrs + arity && !has_list,
            None => n_operands >= 1 && args.len() > n_attrs,
        };
        if !fits {
            let operands = match arity {
                Some(1) => "1 operand".to_owned(),
                Some(n) => format!("{n} operands"),
                None => "operands".to_owned(),
            };
            let expected = match attrs_of {
                Some(_) => format!("attributes and {operands}"),
                None => operands,
            };
            let kind = Kind::Operands { op: op.to_owned(), expected, found: args.len() };
            match attrs_of {
                Some(with) => {
                    let names: Vec<&str> =
                        with.spec().attrs.iter().map(|&(name, _)| name).collect();
                    let help = format!(
                        "the attributes ({}) come first: a variable such as ?p, or written out",
                        names.join(", ")
                    );
                    self.fail_with(text, kind, help);
                }
                None => self.fail(text, kind),
            }
            return None;
        }
        let mut good = true;
        for (nth, arg) in args.iter().enumerate() {
            let wanted = match attrs_of {
                Some(with) if nth == 0 => Sort::Attributes(with),
                _ => operand,
            };
            good &= self.sort(arg, Some(wanted)).is_some();
        }
        good.then_some(result)
    }

    /// Whether written-out attributes are such as the operator takes.
    fn attributes(&mut self, op: Op, text: &'static str) {
        let small = |attr: &Attr| {
            let factors: &[i64] = match attr {
                Attr::Int(x) => &[*x],
                Attr::Ints(xs) => xs,
                _ => &[],
            };
            let product =
                factors.iter().try_fold(1u64, |n, x| n.checked_mul(x.unsigned_abs().max(1)));
            product.is_some_and(|n| n <= MAX_ELEMS as u64)
        };
        let fits = |attrs: &Attrs| {
            attrs.0.len() == op.spec().attrs.len()
                && attrs.0.iter().map(Attr::kind).eq(kinds(op))
                && attrs.0.iter().all(small)
        };
        if !parse_attrs(text).is_some_and(|attrs| fits(&attrs)) {
            let wanted: Vec<String> =
                (op.spec().attrs.iter()).map(|(name, kind)| format!("{name}: {kind:?}")).collect();
            let help = format!(
                "its attributes are {}; one list is written [1,0], several attributes <[0],[2],[1]>, without spaces, and none names more than {MAX_ELEMS} elements",
                wanted.join(", ")
            );
            let kind = Kind::Attributes { op: op.to_string(), text: text.to_owned() };
            self.fail_with(text, kind, help);
        }
    }
}

fn all_operators() -> Vec<&'static str> {
    let own = ["load", "store", "view", "join"];
    Op::ALL.iter().map(|op| op.spec().name).chain(own).collect()
}

/// The operator that a misspelt name is nearest to, if it is near.
fn nearest(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let (distance, op) =
        all_operators().into_iter().map(|op| (edit_distance(&lower, op), op)).min()?;
    (distance <= 1 + name.len() / 4).then_some(op)
}

/// Insertions, deletions and substitutions between two words (Wagner and Fischer 1974).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
