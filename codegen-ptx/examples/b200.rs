//! Holds the static model of GPUs against public main-loop timings of a B200: `b200 b200_gemm.csv`.
//!
//! Prints rank correlations and what is lost by believing the model, for the chip table's constants and for
//! constants fitted to 40 of the points. Exits with 1 if the fitted model misses what the search needs
//! (Spearman 0.98, regret of the first three 1 %).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for developers")]

use std::process::ExitCode;

use eggine_codegen_ptx::predict::chips::B200;
use eggine_codegen_ptx::predict::mainloops::{self, Judgement};

fn show(what: &str, judgement: &Judgement) {
    println!(
        "{what}: {} points, Spearman {:.4}, Kendall {:.4}, median error {:.1} %",
        judgement.n_points,
        judgement.spearman,
        judgement.kendall,
        100.0 * judgement.median_error
    );
    let loss = |ratio: f64| 100.0 * (ratio - 1.0);
    println!(
        "    {} tiles: top-1 regret {:.2} % (worst {:.1} %), top-3 {:.2} % (worst {:.1} %)",
        judgement.n_groups,
        loss(judgement.top1),
        loss(judgement.top1_worst),
        loss(judgement.top3),
        loss(judgement.top3_worst)
    );
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!(
            "usage: b200 TIMINGS.csv (SemiAnalysis microbench-blackwell, cutlass_gemm_mainloop)"
        );
        return ExitCode::from(2);
    };
    let points = match std::fs::read_to_string(&path) {
        Ok(text) => mainloops::read(&text).map_err(|err| err.to_string()),
        Err(err) => Err(err.to_string()),
    };
    let points = match points {
        Ok(points) => points,
        Err(err) => {
            eprintln!("{path}: {err}");
            return ExitCode::from(2);
        }
    };
    show("chip table, nothing fitted", &mainloops::judge(&points, |it| it.predict_ns(&B200)));
    let (fitted_to, rest) = mainloops::split(&points);
    let chip = mainloops::fitted(&fitted_to);
    println!(
        "fitted to {} points: load {:.0} clk, fill {:.1} B/clk, step {:.1} clk",
        fitted_to.len(),
        chip.load_clk,
        chip.fill_bytes_per_clk,
        chip.step_clk
    );
    let judgement = mainloops::judge(&rest, |it| it.predict_ns(&chip));
    show("fitted, on the others", &judgement);
    let intensity = |it: &mainloops::Point| {
        let (m, n) = (f64::from(it.tile_m), f64::from(it.tile_n));
        f64::from(it.k) * (m + n)
    };
    show("for comparison, arithmetic intensity alone", &mainloops::judge(&points, intensity));
    let good = judgement.spearman >= 0.98 && judgement.top3 <= 1.01;
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
