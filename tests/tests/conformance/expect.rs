//! What is expected to be refused, in a committed file: one line per half of a test, with the reason.

use std::collections::BTreeMap;

use crate::judge::{Judged, Outcome, Verdict};

/// Refusals by test and half (`oracle`, `engine` or `program`), with reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expectations(BTreeMap<(String, String), String>);

const HEADER: &str = "\
# Conformance tests that are refused: test, half (oracle: import and the reference; engine: compiled; program:
# compiled with those operands open that the engine had as constants), reason.
# A test that is refused and not listed fails, and so does one that is listed and passes.
# Written by `EGGINE_CONFORMANCE_BLESS=1 cargo xtask conformance`; a wrong answer is never listed.
";

fn halves(judged: &Judged) -> [(&'static str, &Outcome); 3] {
    [("oracle", &judged.oracle), ("engine", &judged.engine), ("program", &judged.program)]
}

impl Expectations {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parse = |line: &str| match line.split('\t').collect::<Vec<_>>()[..] {
            [id, half @ ("oracle" | "engine" | "program"), reason] => {
                Ok(((id.to_owned(), half.to_owned()), reason.to_owned()))
            }
            _ => Err(format!("not `test<tab>half<tab>reason`: `{line}`")),
        };
        lines.map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// The refusals among verdicts.
    pub(crate) fn of(judged: &[Judged]) -> Self {
        let counted = judged.iter().filter(|one| one.excluded.is_none());
        let refused = counted.flat_map(|one| {
            halves(one)
                .into_iter()
                .filter(|(_, outcome)| outcome.verdict == Verdict::Refused)
                .map(|(half, outcome)| ((one.id.clone(), half.to_owned()), outcome.reason.clone()))
        });
        Self(refused.collect())
    }

    pub(crate) fn print(&self) -> String {
        let lines = self.0.iter().map(|((id, half), reason)| format!("{id}\t{half}\t{reason}\n"));
        HEADER.to_owned() + &lines.collect::<String>()
    }

    /// What is not as expected. `complete`: every test and every half was due, so that a line without its
    /// test is a problem too.
    pub(crate) fn problems(&self, judged: &[Judged], complete: bool) -> Vec<String> {
        let mut problems = Vec::new();
        let mut met = BTreeMap::new();
        for one in judged {
            for (half, outcome) in halves(one) {
                let key = (one.id.clone(), half.to_owned());
                let expected = self.0.contains_key(&key);
                let problem = match outcome.verdict {
                    Verdict::Wrong | Verdict::Panic | Verdict::Timeout => {
                        Some(format!("{}: {}", outcome.verdict.name(), outcome.reason))
                    }
                    Verdict::Refused if !expected && one.excluded.is_none() => {
                        Some(format!("refused and not listed: {}", outcome.reason))
                    }
                    // The list of engines is only written anew where all of them are due.
                    Verdict::Pass | Verdict::Drawn
                        if expected && (complete || half == "oracle") =>
                    {
                        Some("listed as refused, and passes".into())
                    }
                    _ => None,
                };
                problems.extend(problem.map(|problem| format!("{} ({half}) {problem}", one.id)));
                met.insert(key, ());
            }
        }
        if complete {
            let gone = self.0.keys().filter(|key| !met.contains_key(key));
            problems.extend(gone.map(|(id, half)| format!("{id} ({half}) is listed, and no test")));
        }
        problems
    }
}

/// Counts by kind and verdict.
pub(crate) fn summary(judged: &[Judged]) -> String {
    let mut counts: BTreeMap<(String, &str, &str), usize> = BTreeMap::new();
    let (mut n_counted, mut n_passed, mut n_drawn, mut n_constant) = (0usize, 0, 0, 0);
    for one in judged {
        let kind = one.id.split('/').next().unwrap_or_default().to_owned();
        if one.excluded.is_some() {
            *counts.entry((kind, "excluded", "")).or_default() += 1;
            continue;
        }
        for (half, outcome) in halves(one) {
            *counts.entry((kind.clone(), half, outcome.verdict.name())).or_default() += 1;
        }
        n_counted += 1;
        n_passed += usize::from(one.oracle.verdict == Verdict::Pass);
        n_drawn += usize::from(one.oracle.verdict == Verdict::Drawn);
        n_constant += usize::from(!one.constants.is_empty());
    }
    let mut text = String::new();
    for ((kind, half, verdict), count) in counts {
        text.push_str(&format!("{count:>6} {kind} {half} {verdict}\n"));
    }
    let share = 100.0 * n_passed as f64 / n_counted.max(1) as f64;
    text.push_str(&format!(
        "{n_passed} of {n_counted} counted tests pass ({share:.2} %), {n_drawn} draw random numbers and are judged by type, shape and range, {n_constant} of all with an operand as a constant\n"
    ));
    text
}
