//! Judges one test: import, the oracle against the expected outputs, and an engine against them too.
//!
//! A few operators need an operand at compile time (the shape of a `Reshape`). Where the model of a test
//! leaves such an operand open, the test is judged again with the operand as a constant, as in every
//! exported model; the report says which operands that are.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use eggine_ir::Tensor;
use eggine_ir::graph::eval::{Rounding, eval};
use eggine_ir::onnx::proto::{ModelProto, TensorProto};
use eggine_ir::onnx::{ImportError, ImportOptions, Imported, describe, import};
use prost::Message;

use crate::case::{Case, Set};
use crate::compare::difference;
use crate::{drawn, engine};

/// What came of a half of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Pass,
    /// A random test: judged by type, shape and range, and equal in oracle and engine.
    Drawn,
    /// With a message; the reason is part of the expectations.
    Refused,
    Wrong,
    Panic,
    Timeout,
    /// Not due, or the half before did not pass.
    Skipped,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Drawn => "drawn",
            Verdict::Refused => "refused",
            Verdict::Wrong => "wrong",
            Verdict::Panic => "panic",
            Verdict::Timeout => "timeout",
            Verdict::Skipped => "skipped",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
}

impl Outcome {
    pub(crate) fn pass() -> Self {
        Self { verdict: Verdict::Pass, reason: String::new() }
    }

    pub(crate) fn skipped() -> Self {
        Self { verdict: Verdict::Skipped, reason: String::new() }
    }

    pub(crate) fn new(verdict: Verdict, reason: impl ToString) -> Self {
        Self { verdict, reason: reason.to_string().replace(['\n', '\t'], " ") }
    }
}

/// One line of the report.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) id: String,
    /// What keeps it out of the count.
    pub(crate) excluded: Option<String>,
    /// Operands that were given as constants.
    pub(crate) constants: String,
    /// Import and oracle.
    pub(crate) oracle: Outcome,
    /// Compiled at budget 0 and run on the cpu device.
    pub(crate) engine: Outcome,
    /// Where operands were given as constants: with those operands open, as a program.
    pub(crate) program: Outcome,
}

impl Judged {
    pub(crate) fn line(&self) -> String {
        let excluded =
            self.excluded.as_ref().map(|it| format!("excluded: {it}")).unwrap_or_default();
        let constants = match self.constants.as_str() {
            "" => String::new(),
            names => format!("constant: {names}"),
        };
        let halves = [&self.oracle, &self.engine, &self.program];
        let reasons = halves.map(|half| half.reason.clone());
        let notes: Vec<String> = [excluded, constants].into_iter().chain(reasons).collect();
        let notes: Vec<&str> =
            notes.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        let [oracle, engine, program] = halves.map(|half| half.verdict.name());
        format!("{}\t{oracle}\t{engine}\t{program}\t{}\n", self.id, notes.join("; "))
    }
}

/// Judges a test; `engine`: also its engine.
pub(crate) fn judge(case: &Case, engine: bool) -> Judged {
    let mut judged = Judged {
        id: case.id(),
        excluded: case.excluded.clone(),
        constants: String::new(),
        oracle: Outcome::pass(),
        engine: Outcome::skipped(),
        program: Outcome::skipped(),
    };
    if case.excluded.is_some() {
        // Not counted; but it must not panic.
        judged.oracle = match import(case.model(), &ImportOptions::default()) {
            Ok(_) => Outcome::skipped(),
            Err(err) => Outcome::new(Verdict::Refused, reason(&err)),
        };
        return judged;
    }
    let sets = match case.sets() {
        Ok(sets) => sets,
        Err(err) => {
            judged.oracle = Outcome::new(Verdict::Wrong, err);
            return judged;
        }
    };
    for (i, set) in sets.iter().enumerate() {
        let (oracle, constants, model) = judge_oracle(case, set);
        judged.constants = constants;
        judged.oracle = oracle;
        if !matches!(judged.oracle.verdict, Verdict::Pass | Verdict::Drawn) {
            return judged;
        }
        if engine
            && i == 0
            && let Some(model) = model
        {
            let of_oracle = model.drawn.as_ref().map(|drawn| set.with_outputs(drawn));
            let set = of_oracle.as_ref().unwrap_or(set);
            judged.engine = caught("engine", || engine::judge(case, set, &model));
            if judged.engine.verdict == Verdict::Pass {
                judged.engine.verdict = judged.oracle.verdict;
            }
            // Parts of a program need not draw what the whole does.
            if !judged.constants.is_empty() && model.drawn.is_none() {
                judged.program = caught("program", || engine::judge_open(case, set));
            }
        }
    }
    judged
}

/// A panic of the compiler is not one of import.
fn caught(half: &str, judge: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
        Outcome::new(Verdict::Panic, format!("{half}: {}", text.unwrap_or_default()))
    })
}

/// A model with some operands as constants.
pub(crate) struct Bound {
    pub(crate) file: tempfile::NamedTempFile,
    pub(crate) imported: Imported,
    /// What the oracle drew, in a random test: an engine draws the same.
    pub(crate) drawn: Option<Vec<Tensor>>,
}

/// Names of the open inputs.
fn open_inputs(model: &Path) -> Result<Vec<String>, ImportError> {
    Ok(describe(model)?.inputs.into_iter().map(|port| port.name).collect())
}

fn shapes_of(model: &Path, set: &Set) -> Result<ImportOptions, ImportError> {
    let open = open_inputs(model)?;
    let shapes =
        set.inputs.iter().filter(|(name, _)| open.contains(name)).filter_map(|(name, tensor)| {
            Some((name.clone(), tensor.as_ref().ok()?.extents.clone()))
        });
    Ok(ImportOptions { shapes: shapes.collect() })
}

fn with_constants(case: &Case, set: &Set, names: &[&str]) -> tempfile::NamedTempFile {
    let bytes = std::fs::read(case.model()).unwrap();
    let mut model = ModelProto::decode(bytes::Bytes::from(bytes)).unwrap();
    let graph = model.graph.as_mut().unwrap();
    for (name, tensor) in &set.inputs {
        if let (true, Ok(tensor)) = (names.contains(&name.as_str()), tensor) {
            graph.initializer.push(TensorProto {
                dims: tensor.extents.iter().map(|&n| n as i64).collect(),
                data_type: Some(tensor.dtype.onnx_code()),
                name: Some(name.clone()),
                raw_data: Some(tensor.bytes.clone()),
                ..TensorProto::default()
            });
        }
    }
    let file = tempfile::Builder::new().suffix(".onnx").tempfile().unwrap();
    std::fs::write(file.path(), model.encode_to_vec()).unwrap();
    file
}

/// Whether an operand is only known at run time.
fn is_dynamic(err: &ImportError) -> bool {
    err.to_string().contains("is only known at run time")
}

/// The smallest of a few sets of operands with which the model imports: none; integers behind the first
/// input; all behind the first; all.
pub(crate) fn bind(case: &Case, set: &Set) -> Result<(Bound, String), ImportError> {
    let is_int = |tensor: &Result<Tensor, String>| {
        tensor.as_ref().is_ok_and(|tensor| !tensor.dtype.is_float())
    };
    let behind = set.inputs.iter().skip(1);
    let choices: [Vec<&str>; 4] = [
        vec![],
        behind.clone().filter(|(_, it)| is_int(it)).map(|(name, _)| name.as_str()).collect(),
        behind.map(|(name, _)| name.as_str()).collect(),
        set.inputs.iter().map(|(name, _)| name.as_str()).collect(),
    ];
    let mut first = None;
    for names in choices {
        let file = with_constants(case, set, &names);
        let options = shapes_of(file.path(), set)?;
        match import(file.path(), &options) {
            Ok(imported) => return Ok((Bound { file, imported, drawn: None }, names.join(" "))),
            Err(err) if is_dynamic(&err) => first = first.or(Some(err)),
            // With the operand known the refusal is the operator's own.
            Err(err) => return Err(err),
        }
    }
    Err(first.expect("every choice was refused"))
}

fn judge_oracle(case: &Case, set: &Set) -> (Outcome, String, Option<Bound>) {
    let unnamed = set.inputs.iter().chain(&set.outputs).find_map(|(_, it)| it.as_ref().err());
    if let Some(dtype) = unnamed {
        let reason = format!("element type {dtype}");
        return (Outcome::new(Verdict::Refused, reason), String::new(), None);
    }
    let (mut bound, constants) = match bind(case, set) {
        Ok(found) => found,
        Err(err) => return (Outcome::new(Verdict::Refused, reason(&err)), String::new(), None),
    };
    if let Err(errors) = eggine_ir::graph::verify(&bound.imported.graph) {
        let reason = format!("the graph does not verify: {}", errors[0]);
        return (Outcome::new(Verdict::Wrong, reason), constants, None);
    }
    let inputs = match inputs_of(&bound.imported.inputs, set) {
        Ok(inputs) => inputs,
        Err(reason) => return (Outcome::new(Verdict::Wrong, reason), constants, None),
    };
    // The expected values were computed in the model's types. Where a step rounds to integers, that can
    // be a tie that real numbers do not have: then the oracle may round each step too.
    let mut difference = None;
    for rounding in [Rounding::None, Rounding::PerOp] {
        let found = eval(&bound.imported.graph, &inputs, rounding);
        let found: Vec<Tensor> = found.iter().map(eggine_ir::graph::Array::to_tensor).collect();
        if let Some(draw) = drawn::of(case, set) {
            if let Some(problem) = drawn::problem(draw, set, &found) {
                return (Outcome::new(Verdict::Wrong, problem), constants, None);
            }
            bound.drawn = Some(found);
            return (Outcome::new(Verdict::Drawn, ""), constants, Some(bound));
        }
        match judge_outputs(case, set, &found) {
            None => return (Outcome::pass(), constants, Some(bound)),
            Some(found) => difference = difference.or(Some(found)),
        }
    }
    let difference = difference.expect("both roundings differ");
    (Outcome::new(Verdict::Wrong, difference), constants, None)
}

/// The tensors of a data set for these inputs.
pub(crate) fn inputs_of(
    ports: &[(String, eggine_ir::TensorType)],
    set: &Set,
) -> Result<Vec<Tensor>, String> {
    ports
        .iter()
        .map(|(name, ty)| {
            let found = set.inputs.iter().find(|(given, _)| given == name);
            match found {
                Some((_, Ok(tensor))) if tensor.ty() == *ty => Ok(tensor.clone()),
                Some((_, Ok(tensor))) => {
                    Err(format!("input {name} is {ty}, given {}", tensor.ty()))
                }
                _ => Err(format!("input {name} is not given")),
            }
        })
        .collect()
}

/// The first difference from the expected outputs.
pub(crate) fn judge_outputs(case: &Case, set: &Set, found: &[Tensor]) -> Option<String> {
    if found.len() != set.outputs.len() {
        return Some(format!("{} outputs, expected {}", found.len(), set.outputs.len()));
    }
    found.iter().zip(&set.outputs).find_map(|(found, (name, expected))| {
        let expected = expected.as_ref().expect("checked before");
        let difference = difference(found, expected, case.rtol, case.atol)?;
        Some(format!("output {name} {difference}"))
    })
}

/// Why a model is refused, without what differs from node to node.
fn reason(err: &ImportError) -> String {
    match err {
        ImportError::Unsupported(all) => {
            let mut parts: Vec<String> =
                all.iter().map(|one| format!("{}: {}", one.op, one.reason)).collect();
            parts.dedup();
            parts.truncate(3);
            parts.join("; ")
        }
        other => other.to_string(),
    }
}
