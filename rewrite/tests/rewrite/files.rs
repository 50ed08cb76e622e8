//! Every rule has a file that shows it, and every such file has a rule.
//!
//! A file is a graph; each `; expect:` line is a ground term (`v3` is a value of the graph) that must
//! be equal to the result once the rule has been applied, and that must not be before. Rules after
//! `; with:` are applied in both cases, where the rule needs others to have something to say.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use egg::RecExpr;
use eggine_ir::graph::{parse, verify};
use eggine_rewrite::{CompiledRule, ENode, Lowered, Rule, compile_all, lower, rules};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/filetests/rewrite")
}

/// Applies rules until nothing is new.
fn apply(lowered: &mut Lowered, rules: &[CompiledRule]) {
    loop {
        let mut changed = false;
        for rule in rules {
            for at in rule.matches(&lowered.egraph) {
                changed |= rule.apply(&mut lowered.egraph, &at).is_some();
            }
            lowered.egraph.rebuild();
        }
        if !changed {
            return;
        }
    }
}

/// Whether the term is equal to the graph's first output, as a tensor or as a computation.
fn is_result(lowered: &Lowered, result: eggine_ir::Value, term: &RecExpr<ENode>) -> bool {
    let class = lowered.lookup(term);
    let same = |id: Option<egg::Id>| id.is_some_and(|id| class == Some(lowered.egraph.find(id)));
    same(lowered.computations[result]) || same(lowered.tensors[result])
}

/// What is wrong with the file of a rule.
fn check(rule: &'static Rule, text: &str) -> Result<(), String> {
    let graph = parse(text).map_err(|err| format!("{err}"))?;
    verify(&graph).map_err(|errors| format!("{errors:?}"))?;
    let goals: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("; expect: ")).collect();
    if goals.is_empty() {
        return Err("there is no `; expect:` line".into());
    }
    // Operators are separated by loads and stores; the axioms put them together.
    let others: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("; with: ")).collect();
    let others: Vec<&str> = others.iter().flat_map(|line| line.split(' ')).collect();
    let others = rules::all().filter(|other| others.contains(&other.name));
    let axioms = compile_all(rules::FUSION.iter().chain(others)).unwrap();
    let axioms: Vec<CompiledRule> =
        axioms.into_iter().filter(|axiom| axiom.row.name != rule.name).collect();
    let all: Vec<CompiledRule> =
        axioms.iter().cloned().chain(compile_all([rule]).unwrap()).collect();
    let (mut before, mut after) = (lower(&graph), lower(&graph));
    apply(&mut before, &axioms);
    apply(&mut after, &all);
    if let Some(conflict) = after.egraph.analysis.conflicts.first() {
        return Err(conflict.to_string());
    }
    for goal in goals {
        let term: RecExpr<ENode> = goal.parse().map_err(|err| format!("{goal}: {err:?}"))?;
        if is_result(&before, graph.outputs[0], &term) {
            return Err(format!("equal without the rule: {goal}"));
        }
        if !is_result(&after, graph.outputs[0], &term) {
            return Err(format!("not equal: {goal}"));
        }
    }
    Ok(())
}

#[test]
fn rules_and_files_are_the_same_set() {
    let files: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let names: BTreeSet<String> = rules::all().map(|rule| rule.name.to_owned()).collect();
    assert_eq!(
        files.difference(&names).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "files without a rule"
    );
    assert_eq!(
        names.difference(&files).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "rules without a file"
    );
    assert_eq!(names.len(), rules::all().count(), "two rules have one name");
}

#[test]
fn every_file_shows_its_rule() {
    let mut failures = Vec::new();
    for rule in rules::all() {
        let Ok(text) = std::fs::read_to_string(folder().join(format!("{}.gir", rule.name))) else {
            continue;
        };
        if let Err(message) = check(rule, &text) {
            failures.push(format!("{}: {message}", rule.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The harness itself must be able to say no.
#[test]
fn a_wrong_goal_is_found_out() {
    let rule = rules::all().find(|rule| rule.name == "neg-neg").unwrap();
    let text = std::fs::read_to_string(folder().join("neg-neg.gir")).unwrap();
    let wrong = text.replace("; expect: v0", "; expect: (abs v0)");
    assert_eq!(check(rule, &wrong), Err("not equal: (abs v0)".into()));
    let trivial = text.replace("; expect: v0", "; expect: (neg (neg v0))");
    assert_eq!(check(rule, &trivial), Err("equal without the rule: (neg (neg v0))".into()));
    assert_eq!(
        check(rule, &text.replace("expect", "hope")),
        Err("there is no `; expect:` line".into())
    );
    let other = rules::all().find(|rule| rule.name == "abs-abs").unwrap();
    assert_eq!(check(other, &text), Err("not equal: v0".into()));
}
