//! The static model of GPUs against public timings of a B200: the ranks and regrets that the search relies
//! on.
//!
//! The timings (SemiAnalysis, `microbench-blackwell`) have no licence that lets us commit them: the test is
//! extra, needs `../shared/ptx-examples/b200_gemm.csv`, and is reported as ignored without it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stderr, reason = "the harness says why it ignores")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use eggine_codegen_ptx::predict::chips::B200;
use eggine_codegen_ptx::predict::mainloops::{self, Judgement, Point};
use libtest_mimic::{Arguments, Failed, Trial};

type Test = fn(&[Point]) -> Result<(), Failed>;

#[rustfmt::skip] // One test per row.
const TESTS: &[(&str, Test)] = &[
    ("the_table_alone_ranks_main_loops",       the_table_alone),
    ("fitted_to_40_points_it_ranks_the_others", fitted),
    ("a_model_that_ignores_latency_is_worse",  without_latency),
];

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/ptx-examples/b200_gemm.csv")
}

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let text = std::fs::read_to_string(path());
    if let Err(err) = &text {
        eprintln!("every test is ignored: {}: {err}", path().display());
    }
    let is_ignored = text.is_err();
    let text: std::sync::Arc<str> = text.unwrap_or_default().into();
    let trials = TESTS.iter().map(|&(name, test)| {
        let text = text.clone();
        Trial::test(name, move || test(&mainloops::read(&text)?)).with_ignored_flag(is_ignored)
    });
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

fn require(judgement: &Judgement) -> Result<(), Failed> {
    if judgement.n_points >= 500
        && judgement.n_groups >= 20
        && judgement.spearman >= 0.98
        && judgement.kendall >= 0.90
        && judgement.top3 <= 1.01
    {
        return Ok(());
    }
    Err(format!("{judgement:?}").into())
}

fn the_table_alone(points: &[Point]) -> Result<(), Failed> {
    require(&mainloops::judge(points, |it| it.predict_ns(&B200)))
}

fn fitted(points: &[Point]) -> Result<(), Failed> {
    let (fitted_to, rest) = mainloops::split(points);
    let chip = mainloops::fitted(&fitted_to);
    require(&mainloops::judge(&rest, |it| it.predict_ns(&chip)))
}

/// The thresholds can be missed: a model without the term of latency does.
fn without_latency(points: &[Point]) -> Result<(), Failed> {
    let chip = eggine_codegen_ptx::GpuChip { load_clk: 0.0, ..B200 };
    let judgement = mainloops::judge(points, |it| it.predict_ns(&chip));
    match require(&judgement) {
        Ok(()) => Err("a model without latency passes".into()),
        Err(_) => Ok(()),
    }
}
