//! Lines of a rule file: columns, names, typed variables.

use std::collections::BTreeMap;

use eggine_ir::DType;
use miette::SourceSpan;

use super::error::{RuleFileError, RuleFileErrorKind as Kind};
use super::pattern::{self, Sides};
use crate::rule::{DTypeSpec, Rule, Soundness, VarSpec, VarType};
use crate::rules;

/// Dimensions that a variable's shape may name: a check draws tensors of up to three elements along each.
const MAX_DIMS: usize = 8;

type Errors = Vec<RuleFileError>;

/// The place of a part of the text.
pub(super) fn span_of(text: &str, part: &str) -> SourceSpan {
    let at = part.as_ptr() as usize - text.as_ptr() as usize;
    (at, part.len()).into()
}

pub(super) fn error(span: SourceSpan, kind: Kind) -> RuleFileError {
    RuleFileError { kind, span, help: None }
}

/// The rows of a file, and every mistake in it.
pub(super) fn rows(text: &'static str) -> (Vec<(Rule, SourceSpan)>, Errors) {
    let mut rows: Vec<(Rule, SourceSpan)> = Vec::new();
    let mut errors = Errors::new();
    if text.len() > super::MAX_BYTES {
        let kind = Kind::TooLarge { found: text.len(), limit: super::MAX_BYTES };
        return (rows, vec![error((0, 0).into(), kind)]);
    }
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for (nth, line) in text.lines().enumerate() {
        let line = line.split_once(';').map_or(line, |(line, _)| line).trim();
        if line.is_empty() {
            continue;
        }
        let before = errors.len();
        let rule = row(text, line, &mut errors);
        let name = line.split('|').next().unwrap_or_default().trim();
        if let Some(&first) = lines.get(name).filter(|_| !name.is_empty()) {
            let kind = Kind::Duplicate { name: name.to_owned(), line: first };
            errors.push(error(span_of(text, name), kind));
        }
        lines.entry(name).or_insert(nth + 1);
        if let Some(rule) = rule.filter(|_| errors.len() == before) {
            rows.push((rule, span_of(text, line)));
        }
    }
    (rows, errors)
}

/// A row as one line of a rule file.
pub(super) fn print(rule: &Rule) -> String {
    let Rule { name, vars, lhs, rhs, soundness, .. } = rule;
    format!("{name} | {vars} | {lhs} | {rhs} | {soundness:?}")
}

fn row(text: &'static str, line: &'static str, errors: &mut Errors) -> Option<Rule> {
    let columns: Vec<&'static str> = line.split('|').map(str::trim).collect();
    let &[name, vars, lhs, rhs, soundness] = columns.as_slice() else {
        let kind = Kind::Columns { found: columns.len() };
        errors.push(error(span_of(text, line), kind));
        return None;
    };
    let named = [("name", name), ("left side", lhs), ("right side", rhs), ("soundness", soundness)];
    let n_errors = errors.len();
    for (column, _) in named.iter().filter(|(_, found)| found.is_empty()) {
        errors.push(error(span_of(text, line), Kind::Missing { column }));
    }
    if errors.len() > n_errors {
        return None;
    }
    check_name(text, name, errors);
    let soundness_found = match soundness {
        "Exact" => Some(Soundness::Exact),
        "Real" => Some(Soundness::Real),
        word => {
            let found = error(span_of(text, word), Kind::Soundness { word: word.to_owned() });
            let help = "Exact: bit for bit, always used; Real: over the real numbers, used only with --fast-math";
            errors.push(RuleFileError { help: Some(help.into()), ..found });
            None
        }
    };
    let sides = pattern::sides(text, lhs, rhs, errors);
    variables(text, vars, &sides, errors);
    let soundness = soundness_found?;
    Some(Rule { name, vars, lhs, rhs, soundness, derive: None })
}

fn check_name(text: &str, name: &'static str, errors: &mut Errors) {
    let kebab = name.split('-').all(|word| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    });
    if !kebab || name.starts_with(|c: char| c.is_ascii_digit()) {
        errors.push(error(span_of(text, name), Kind::Name { name: name.to_owned() }));
    } else if let Some(rule) = rules::all().find(|rule| rule.name == name) {
        let found = error(span_of(text, name), Kind::BuiltIn { name: name.to_owned() });
        let help = Some(format!("it says {}; choose another name", print(rule)));
        errors.push(RuleFileError { help, ..found });
    }
}

const VARIABLE_HELP: &str = "a typed variable is name:shape[/dtype][=value][!], such as x:S* (any shape), a:B*MK (a matrix with any leading dimensions), c:~S=2.0 (a constant that broadcasts to S), w:KN! (known at compile time)";

fn variables(text: &'static str, vars: &'static str, sides: &Sides, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    let mut shapes: Vec<char> = Vec::new();
    for word in vars.split_whitespace() {
        let span = span_of(text, word);
        let spec = match variable(word, &shapes) {
            Ok(spec) => spec,
            Err(reason) => {
                let found = error(span, Kind::Variable { word: word.to_owned(), reason });
                errors.push(RuleFileError { help: Some(VARIABLE_HELP.into()), ..found });
                continue;
            }
        };
        if let VarType::Extents { lead, rest, .. } = &spec.ty {
            shapes.extend(lead.iter().chain(rest));
        }
        let var = spec.name.to_owned();
        if seen.contains(&spec.name) {
            errors.push(error(span, Kind::VariableTwice { var }));
        } else if sides.attributes.contains(spec.name) {
            let reason = "it stands for attributes, which have no type".to_owned();
            errors.push(error(span, Kind::Variable { word: word.to_owned(), reason }));
        } else if sides.parsed && !sides.left.contains(&(spec.name.to_owned(), spec.list)) {
            errors.push(error(span, Kind::NotOnTheLeft { var }));
        }
        seen.push(spec.name);
    }
}

/// Reads a typed variable, or says what is wrong with it. `shapes` are the letters bound to whole shapes
/// so far.
fn variable(word: &'static str, shapes: &[char]) -> Result<VarSpec, String> {
    let (name, rest) = word.split_once(':').ok_or("`:` and a shape are missing")?;
    let name = name.strip_suffix("...").unwrap_or(name);
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_word {
        return Err(format!("`{name}` is not a name of letters, digits and `_`"));
    }
    let rest = rest.strip_suffix('!').unwrap_or(rest);
    let (rest, value) = match rest.split_once('=') {
        Some((rest, value)) => (rest, Some(value)),
        None => (rest, None),
    };
    let (shape, dtype) = match rest.split_once('/') {
        Some((shape, dtype)) => (shape, Some(dtype)),
        None => (rest, None),
    };
    if let Some(value) = value.filter(|&value| value != "?")
        && value.parse::<f64>().is_err()
    {
        return Err(format!("`{value}` is not a number"));
    }
    if let Some(dtype) = dtype.filter(|&dtype| dtype != "any")
        && dtype.parse::<DType>().is_err()
    {
        return Err(format!("`{dtype}` is no element type"));
    }
    let letters: String = shape.chars().filter(|c| !"~*+".contains(*c)).collect();
    if let Some(odd) = letters.chars().find(|c| !c.is_ascii_alphabetic()) {
        return Err(format!("`{odd}` is no letter for a dimension"));
    }
    let well_formed = match shape.strip_prefix('~') {
        Some(letter) => letter.len() == 1 && letters.len() == 1,
        None => {
            let (lead, others) = shape.split_once('*').map_or((None, shape), |(a, b)| (Some(a), b));
            let (dims, rest) = others.split_once('+').map_or((others, None), |(a, b)| (a, Some(b)));
            lead.is_none_or(|lead| lead.len() == 1)
                && rest.is_none_or(|rest| rest.len() == 1)
                && !(lead.is_some() && rest.is_some())
                && !dims.contains(['*', '+', '~'])
                && rest.is_none_or(|rest| !rest.contains(['*', '+', '~']))
        }
    };
    if !well_formed {
        return Err(format!("`{shape}` is not a shape"));
    }
    let spec = VarSpec::parse(word).ok_or("it cannot be read")?;
    if let VarType::Extents { dims, .. } = &spec.ty
        && dims.len() > MAX_DIMS
    {
        return Err(format!("a rule is checked with at most {MAX_DIMS} dimensions by name"));
    }
    if let VarType::BroadcastsTo(letter) = spec.ty
        && !shapes.contains(&letter)
    {
        return Err(format!("no variable before it has the whole shape `{letter}*`"));
    }
    if let Some(Some(bits)) = spec.uniform {
        let value = f64::from_bits(bits);
        // Without an element type the rule is for all floats, and is tested in f32.
        let narrow = spec.dtype == DTypeSpec::Float || spec.dtype == DTypeSpec::Any;
        let nearest = f64::from(value as f32);
        if narrow && value.to_bits() != nearest.to_bits() && !value.is_nan() {
            return Err(format!(
                "`{value:?}` is no f32 number, so no f32 constant equals it; the nearest is {nearest:?}"
            ));
        }
    }
    Ok(spec)
}
