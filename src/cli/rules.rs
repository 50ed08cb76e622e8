//! `eggine rules`: what rules there are, what one says, and whether a file of them is true.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use eggine::rewrite::rule_file::{self, CheckedRules, RuleFile, RuleFileErrors};
use eggine::rewrite::{DTypeSpec, Rule, Soundness, VarSpec, VarType, rules};
use miette::{GraphicalReportHandler, GraphicalTheme, NamedSource, Report};
use serde::Serialize;

use super::CliError;

/// The graphs on which our own rules fire, by name of the rule: `tests/filetests/rewrite/`.
static EXAMPLES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/rule_examples.rs"));

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the built-in rules.
    List {
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Show a built-in rule: its row, its variables in words, and a graph on which it fires.
    Show {
        /// The rule.
        name: String,
    },
    /// Check a rule file by execution (exit 0: all rules are true; 1: one is refused; 2: it cannot be read).
    Check {
        /// The rule file.
        file: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    match &args.command {
        Command::List { json } => list(*json),
        Command::Show { name } => show(name),
        Command::Check { file } => check(file),
    }
}

/// A row of the listing.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    table: &'static str,
    variables: &'static str,
    left: &'static str,
    right: &'static str,
    soundness: String,
    /// Whether a further condition decides, or computes variables of the right side.
    conditional: bool,
}

fn listed() -> Vec<Listed> {
    let row = |table: &'static str, rule: &'static Rule| Listed {
        name: rule.name,
        table,
        variables: rule.vars,
        left: rule.lhs,
        right: rule.rhs,
        soundness: format!("{:?}", rule.soundness),
        conditional: rule.derive.is_some(),
    };
    let tables = rules::tables().into_iter();
    tables.flat_map(|(table, rows)| rows.iter().map(move |rule| row(table, rule))).collect()
}

fn list(json: bool) -> Result<ExitCode, CliError> {
    let rows = listed();
    if json {
        super::print_json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = |of: fn(&Listed) -> &str| rows.iter().map(|row| of(row).len()).max().unwrap_or(0);
    let (names, tables) = (width(|row| row.name), width(|row| row.table));
    for row in &rows {
        println!(
            "{:<names$} | {:<tables$} | {:<5} | {} = {}",
            row.name, row.table, row.soundness, row.left, row.right
        );
    }
    println!("{} rules; `eggine rules show NAME` explains one", rows.len());
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str) -> Result<ExitCode, CliError> {
    let found = rules::tables()
        .into_iter()
        .find_map(|(table, rows)| Some((table, rows.iter().find(|rule| rule.name == name)?)));
    let Some((table, rule)) = found else {
        return Err(
            format!("there is no built-in rule `{name}`; `eggine rules list` lists them").into()
        );
    };
    println!("{name} (table {table})");
    println!("  left   {}", rule.lhs);
    println!("  right  {}", rule.rhs);
    println!(
        "  {}",
        match rule.soundness {
            Soundness::Exact => "Exact: bit for bit, always used",
            Soundness::Real => "Real: over the real numbers; used with --fast-math",
        }
    );
    println!("  variables:");
    for word in rule.vars.split_whitespace() {
        if let Some(spec) = VarSpec::parse(word) {
            println!("    {word:<12} {}", explain(&spec));
        }
    }
    let typed: Vec<&str> =
        rule.vars.split_whitespace().filter_map(|word| word.split(':').next()).collect();
    let typed: Vec<&str> = typed.iter().map(|name| name.trim_end_matches('.')).collect();
    let (left, right) = (variables(rule.lhs), variables(rule.rhs));
    for var in left.iter().filter(|var| !typed.contains(var)) {
        println!("    {var:<12} anything that fits in its place");
    }
    for var in right.iter().filter(|var| !left.contains(var)) {
        println!("    {var:<12} computed from the others by the rule's condition");
    }
    if rule.derive.is_some() {
        println!(
            "  applies only under a further condition (`{}` in rewrite/src/rules/)",
            rule.name
        );
    }
    if let Some((_, text)) = EXAMPLES.iter().find(|(rule, _)| *rule == name) {
        println!("  fires on this graph (`expect` is a term that is then equal to its result):");
        text.lines().for_each(|line| println!("    {line}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Names behind `?`, each once, in order.
fn variables(side: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for part in side.split('?').skip(1) {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
        if !names.contains(&&part[..end]) {
            names.push(&part[..end]);
        }
    }
    names
}

/// A typed variable in words.
fn explain(spec: &VarSpec) -> String {
    let mut words = match &spec.ty {
        VarType::BroadcastsTo(letter) => format!("a tensor that broadcasts to the shape {letter}"),
        VarType::Extents { lead, dims, rest } => {
            let dims: Vec<String> = dims.iter().map(char::to_string).collect();
            match (lead, rest, dims.is_empty()) {
                (Some(lead), _, true) => format!("a tensor of any shape, called {lead}"),
                (Some(lead), _, false) => format!(
                    "a tensor whose last extents are {}, behind any leading ones, called {lead}",
                    dims.join(", ")
                ),
                (None, Some(rest), _) => format!(
                    "a tensor whose first extents are {}, before any further ones, called {rest}",
                    dims.join(", ")
                ),
                (None, None, true) => "a scalar".to_owned(),
                (None, None, false) => format!("a tensor of extents {}", dims.join(", ")),
            }
        }
    };
    words.push_str(&match spec.dtype {
        DTypeSpec::Float => " of floats".to_owned(),
        DTypeSpec::Is(dtype) => format!(" of {dtype}"),
        DTypeSpec::Any => " of any element type".to_owned(),
    });
    match spec.uniform {
        Some(Some(bits)) => {
            words.push_str(&format!(", the constant {:?} throughout", f64::from_bits(bits)));
        }
        Some(None) => words.push_str(", a constant of one value throughout"),
        None if spec.known => words.push_str(", known at compile time"),
        None => {}
    }
    if spec.list {
        words.push_str("; an operand list, each of this type");
    }
    words
}

fn check(file: &Path) -> Result<ExitCode, CliError> {
    let file = read(file)?;
    let mut n_refused = 0;
    for checked in file.verdicts() {
        match checked.refusal {
            None => println!(
                "ok {} ({:?}, agrees on {} inputs)",
                checked.rule.name,
                checked.rule.soundness,
                eggine::rewrite::soundness::N_CASES
            ),
            Some(refusal) => {
                n_refused += 1;
                println!("{}", refusal.to_string().trim_end());
            }
        }
    }
    println!("{} rules, {n_refused} refused", file.rows.len());
    Ok(if n_refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The rules of these files, checked; `None` if one is untrue, which has been said then.
pub(super) fn load(files: &[PathBuf], fast_math: bool) -> Result<Option<CheckedRules>, CliError> {
    let mut rules = CheckedRules::default();
    for path in files {
        match read(path)?.check() {
            Ok(checked) => rules.extend(checked)?,
            Err(refused) => {
                eprintln!("error: {}", refused.to_string().trim_end());
                return Ok(None);
            }
        }
    }
    if !fast_math {
        let unused = rules.not_permitted(Soundness::Exact);
        if !unused.is_empty() {
            eprintln!(
                "note: not used without --fast-math, because they hold over the reals only: {}",
                unused.join(", ")
            );
        }
    }
    Ok(Some(rules))
}

/// Reads a rule file; mistakes are shown in their places.
fn read(path: &Path) -> Result<RuleFile, CliError> {
    let explain = |err: std::io::Error| format!("cannot read `{}`: {err}", path.display());
    let size = std::fs::metadata(path).map_err(explain)?.len();
    if size > rule_file::MAX_BYTES as u64 {
        return Err(format!("`{}` has {size} bytes: it is no rule file", path.display()).into());
    }
    let text = std::fs::read_to_string(path).map_err(explain)?;
    rule_file::parse(&path.display().to_string(), &text).map_err(|errors| {
        show_errors(&errors);
        let n = errors.errors.len();
        format!("`{}` has {n} mistake{}", path.display(), if n == 1 { "" } else { "s" }).into()
    })
}

fn show_errors(errors: &RuleFileErrors) {
    let theme = match std::io::stderr().is_terminal() {
        true => GraphicalTheme::unicode(),
        false => GraphicalTheme::unicode_nocolor(),
    };
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false);
    for error in &errors.errors {
        let source = NamedSource::new(&errors.name, errors.text.clone());
        let report = Report::new(error.clone()).with_source_code(source);
        let mut text = String::new();
        match handler.render_report(&mut text, report.as_ref()) {
            Ok(()) => eprint!("{text}"),
            Err(_) => eprintln!("{error}"),
        }
    }
}
