//! The model of GPU loops held against public timings: main loops of CUTLASS matrix products on one
//! multiprocessor of a B200, from SemiAnalysis' `microbench-blackwell` (`cutlass_gemm_mainloop`, 2026).
//!
//! Their repository states no licence, so the file is not in ours: a program or a test takes its path.
//! Columns: `M,N,K,TILE_M,TILE_N,TILE_K,STAGES,dtype,time_ms,TFLOPS`; lines that begin with `#`, rows of 0
//! stages (chosen by the library, not told) and rows without a time are not points.

use std::collections::BTreeMap;

use super::GpuChip;
use super::chips::B200;
use super::fit::fit;
use super::pipeline::Loop;
use super::rank;

/// One timing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Rows of the tile, which are those of the product.
    pub tile_m: u32,
    /// Columns of the tile, which are those of the product.
    pub tile_n: u32,
    /// Summed elements per iteration.
    pub tile_k: u32,
    /// Iterations in flight.
    pub n_stages: u32,
    /// Bytes of an element: 2 (bf16) or 1 (fp8).
    pub elem_bytes: u32,
    /// Summed elements.
    pub k: u32,
    /// Measured.
    pub ns: f64,
}

/// A file that is not such timings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The first line names other columns.
    #[error("the first line is `{found}`, expected `{HEADER}`")]
    Header {
        /// It.
        found: String,
    },
    /// A row that is not one.
    #[error("line {line}: `{text}` is not a row of main-loop timings")]
    Row {
        /// Counted from 1.
        line: usize,
        /// It.
        text: String,
    },
    /// Nothing to judge by.
    #[error("{n_points} timings are too few: at least {needed}")]
    TooFew {
        /// How many there are.
        n_points: usize,
        /// How many it takes.
        needed: usize,
    },
}

const HEADER: &str = "M,N,K,TILE_M,TILE_N,TILE_K,STAGES,dtype,time_ms,TFLOPS";

/// Points that constants are fitted to; the rest judges them.
pub const N_FITTED: usize = 40;

/// The timings of a file.
///
/// # Errors
///
/// [`ReadError`].
pub fn read(text: &str) -> Result<Vec<Point>, ReadError> {
    let mut lines = (1..).zip(text.lines().map(str::trim));
    let (_, header) = lines.next().unwrap_or_default();
    if header != HEADER {
        return Err(ReadError::Header { found: header.to_owned() });
    }
    let mut points = Vec::new();
    for (line, text) in lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
        let row = || ReadError::Row { line, text: text.to_owned() };
        let fields: Vec<&str> = text.split(',').collect();
        let &[_, _, k, tile_m, tile_n, tile_k, stages, dtype, time_ms, _] = fields.as_slice()
        else {
            return Err(row());
        };
        let number = |field: &str| field.parse::<u32>().map_err(|_| row());
        let elem_bytes = match dtype {
            "BF16" => 2,
            "FP8_E4M3" => 1,
            _ => return Err(row()),
        };
        let n_stages = number(stages)?;
        if n_stages == 0 || time_ms.is_empty() {
            continue;
        }
        let ms: f64 = time_ms.parse().ok().filter(|&ms| ms > 0.0).ok_or_else(row)?;
        points.push(Point {
            tile_m: number(tile_m)?,
            tile_n: number(tile_n)?,
            tile_k: number(tile_k)?,
            n_stages,
            elem_bytes,
            k: number(k)?,
            ns: ms * 1e6,
        });
    }
    if points.len() < 2 * N_FITTED {
        return Err(ReadError::TooFew { n_points: points.len(), needed: 2 * N_FITTED });
    }
    Ok(points)
}

impl Point {
    /// What the block's loop asks of a multiprocessor, in the words of the search's model.
    pub fn main_loop(&self, chip: &GpuChip) -> Loop {
        let (m, n, k) = (f64::from(self.tile_m), f64::from(self.tile_n), f64::from(self.tile_k));
        let elem_bytes = f64::from(self.elem_bytes);
        let row_bytes = k * elem_bytes;
        let matrix_clk = (row_bytes / 32.0).max(1.0) * chip.matrix.interval_clk(m, n);
        Loop {
            n_iterations: f64::from(self.k) / k,
            matrix_clk,
            // The matrix unit reads both operands once per instruction: in its interval already.
            fill_bytes: (m + n) * row_bytes,
            run_bytes: row_bytes,
            n_stages: f64::from(self.n_stages),
            ..Loop::default()
        }
    }

    /// Predicted time: the loop's clocks, one block on its multiprocessor.
    pub fn predict_ns(&self, chip: &GpuChip) -> f64 {
        let body = self.main_loop(chip);
        body.n_iterations * body.clk(chip, 1.0) / chip.clk_per_ns
    }

    fn flops(&self) -> f64 {
        2.0 * f64::from(self.tile_m) * f64::from(self.tile_n) * f64::from(self.k)
    }
}

/// How well predictions agree with timings.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Timings compared.
    pub n_points: usize,
    /// Rank correlation of the flop rates, which is what is ranked.
    pub spearman: f64,
    /// The same, Kendall's.
    pub kendall: f64,
    /// Median of |predicted / measured − 1|.
    pub median_error: f64,
    /// Tiles with at least four choices of k and stages.
    pub n_groups: usize,
    /// Geometric mean over these of: time of the model's first choice ÷ best time.
    pub top1: f64,
    /// The worst of these.
    pub top1_worst: f64,
    /// As `top1`, for the best of the model's first three choices.
    pub top3: f64,
    /// The worst of these.
    pub top3_worst: f64,
}

/// Judges a prediction. Only ranks of times matter, except for `median_error`.
pub fn judge(points: &[Point], predict_ns: impl Fn(&Point) -> f64) -> Judgement {
    let predicted: Vec<f64> = points.iter().map(&predict_ns).collect();
    let rate = |ns: &dyn Fn(usize) -> f64| -> Vec<f64> {
        points.iter().enumerate().map(|(at, point)| point.flops() / ns(at)).collect()
    };
    let (measured_rate, predicted_rate) = (rate(&|at| points[at].ns), rate(&|at| predicted[at]));
    let errors: Vec<f64> =
        points.iter().zip(&predicted).map(|(point, ns)| (ns / point.ns - 1.0).abs()).collect();
    let mut groups: BTreeMap<(u32, u32, u32), Vec<usize>> = BTreeMap::new();
    for (at, point) in points.iter().enumerate() {
        groups.entry((point.tile_m, point.tile_n, point.elem_bytes)).or_default().push(at);
    }
    groups.retain(|_, members| members.len() >= 4);
    let regrets = |n: usize| -> Vec<f64> {
        let one = |members: &Vec<usize>| {
            let of = |values: &dyn Fn(usize) -> f64| -> Vec<f64> {
                members.iter().map(|&at| values(at)).collect()
            };
            rank::regret(&of(&|at| predicted[at]), &of(&|at| points[at].ns), n)
        };
        groups.values().map(one).collect()
    };
    let worst = |regrets: &[f64]| regrets.iter().copied().fold(f64::NAN, f64::max);
    let (first, third) = (regrets(1), regrets(3));
    Judgement {
        n_points: points.len(),
        spearman: rank::spearman(&measured_rate, &predicted_rate),
        kendall: rank::kendall(&measured_rate, &predicted_rate),
        median_error: rank::median(&errors),
        n_groups: groups.len(),
        top1: rank::geometric_mean(&first),
        top1_worst: worst(&first),
        top3: rank::geometric_mean(&third),
        top3_worst: worst(&third),
    }
}

/// [`N_FITTED`] of the points, spread over the file by a fixed shuffle, and the others.
pub fn split(points: &[Point]) -> (Vec<Point>, Vec<Point>) {
    let mut order: Vec<usize> = (0..points.len()).collect();
    // A fixed linear congruential generator (Knuth's MMIX constants): the same split everywhere.
    let mut state = 0u64;
    for end in (1..order.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(end, (state >> 33) as usize % (end + 1));
    }
    let (fitted, rest) = order.split_at(N_FITTED.min(points.len()));
    let pick = |of: &[usize]| of.iter().map(|&at| points[at]).collect();
    (pick(fitted), pick(rest))
}

/// The B200's row with load latency, fill rate and step cost fitted to timings, at the clock of 1.9 GHz
/// that the timings' fastest rows imply.
pub fn fitted(points: &[Point]) -> GpuChip {
    let with = |p: &[f64]| GpuChip {
        load_clk: p[0],
        fill_bytes_per_clk: p[1],
        step_clk: p[2],
        clk_per_ns: 1.9,
        ..B200
    };
    let loss = |p: &[f64]| {
        let chip = with(p);
        points.iter().map(|it| (it.predict_ns(&chip) / it.ns).ln().powi(2)).sum::<f64>()
            / points.len() as f64
    };
    let starts = [700.0, 1500.0].into_iter().flat_map(|load| {
        [40.0, 90.0].into_iter().flat_map(move |fill| [5.0, 50.0].map(|step| [load, fill, step]))
    });
    let best = starts
        .map(|start| fit(&start, 4000, loss))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .expect("there are starts");
    with(&best.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn rows_are_read_and_others_are_named() {
        let row = "64,16,131072,64,16,16,2,BF16,1.93669,0.138606\n";
        let good = format!(
            "{HEADER}\n# BUILD_FAILED: 64\n64,16,131072,64,16,16,0,BF16,1.0,0.1\n{}",
            row.repeat(80)
        );
        let points = read(&good).unwrap();
        assert_eq!((points.len(), points[0].ns), (80, 1_936_690.0));
        insta::assert_snapshot!(read("a,b\n").unwrap_err(), @"the first line is `a,b`, expected `M,N,K,TILE_M,TILE_N,TILE_K,STAGES,dtype,time_ms,TFLOPS`");
        insta::assert_snapshot!(read(&good.replacen("1.93669", "-1", 1)).unwrap_err(), @"line 4: `64,16,131072,64,16,16,2,BF16,-1,0.138606` is not a row of main-loop timings");
        insta::assert_snapshot!(read(&format!("{HEADER}\n{row}")).unwrap_err(), @"1 timings are too few: at least 80");
    }

    #[test]
    fn a_model_without_a_clue_is_judged_so() {
        let points: Vec<Point> = (1..100)
            .map(|at| Point {
                tile_m: 64,
                tile_n: 64,
                tile_k: 16 << (at % 3),
                n_stages: 2 + at % 4,
                elem_bytes: 2,
                k: 4096,
                ns: f64::from(1 + at * 7919 % 997),
            })
            .collect();
        let perfect = judge(&points, |point| point.ns);
        assert!(perfect.spearman > 0.999 && perfect.top1 == 1.0 && perfect.median_error == 0.0);
        let reversed = judge(&points, |point| 1.0 / point.ns);
        assert!(reversed.spearman < -0.999 && reversed.top3 > 2.0, "{reversed:?}");
    }
}
