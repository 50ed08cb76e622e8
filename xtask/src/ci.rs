//! The checks that a change must pass. A step is a row; all steps run, so that one run shows all that
//! is wrong.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A command of `cargo xtask test`: name, arguments of cargo, environment.
struct Step {
    name: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

const FMT: Step = Step { name: "fmt", args: &["fmt", "--all", "--check"], env: &[] };

const STEPS: &[Step] = &[
    FMT,
    Step {
        name: "clippy",
        args: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
        env: &[],
    },
    Step {
        name: "test",
        args: &["test", "--workspace", "--locked", "--no-fail-fast"],
        env: &[("INSTA_UPDATE", "no")],
    },
    Step {
        name: "doc",
        args: &["doc", "--workspace", "--no-deps", "--locked"],
        env: &[("RUSTDOCFLAGS", "-D warnings")],
    },
];

/// Fails if a file is not formatted.
pub(crate) fn fmt_check(workspace: &Path) -> Result<(), String> {
    run(&FMT, workspace)
}

/// Installs the tools and runs every step.
pub(crate) fn all(workspace: &Path) -> Result<(), String> {
    let mut failed = Vec::new();
    if let Err(message) = crate::tools::install(workspace) {
        eprintln!("ci: {message}");
        failed.push("tools");
    }
    match crate::conformance::prepare(workspace) {
        Ok(_) => (),
        Err(reason) => println!("skipped the conformance suite: {reason}"),
    }
    for step in STEPS {
        if let Err(message) = run(step, workspace) {
            eprintln!("ci: {message}");
            failed.push(step.name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// The test that a few searches survive `kill -9`, with a thousand of them.
pub(crate) fn kill9(workspace: &Path) -> Result<(), String> {
    let step = Step {
        name: "kill9",
        args: &[
            "test",
            "--locked",
            "--package",
            "eggine",
            "--test",
            "cli",
            "killed_searches",
            "--",
            "--nocapture",
        ],
        env: &[("EGGINE_KILLS", "1000")],
    };
    run(&step, workspace)
}

fn run(step: &Step, workspace: &Path) -> Result<(), String> {
    let start = Instant::now();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(step.args)
        .envs(step.env.iter().copied())
        .current_dir(workspace)
        .status()
        .map_err(|err| format!("cannot run cargo {}: {err}", step.args[0]))?;
    println!(
        "{}: {} in {:.1} s",
        step.name,
        if status.success() { "passed" } else { "FAILED" },
        start.elapsed().as_secs_f64()
    );
    if status.success() {
        Ok(())
    } else {
        Err(format!("{} failed: cargo {}", step.name, step.args.join(" ")))
    }
}
