//! Seconds of saturation and extraction for the suite of networks, and the modelled time of the cover
//! beside that of greedy fusion: `cargo run --release -p eggine-tests --example graphs [NAME…]`.
//!
//! Prints a table and writes nothing. Limits are those of the comparison: 50,000 e-nodes, 15 rounds.

use std::io::Write as _;
use std::time::Instant;

use eggine_codegen_ptx::CPU_DEVICE;
use eggine_rewrite::{Optimiser, Options, RewriteError, Stop, greedy_cover};
use eggine_search::Costs;
use eggine_tests::suite::NETWORKS;

fn main() -> Result<(), RewriteError> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut out = std::io::stdout();
    let mut line = |text: String| writeln!(out, "{text}").is_ok();
    line("| graph | operators | e-nodes | rounds | stop | saturate s | extract s | sum s | TENSAT s | launches | modelled ms | greedy launches | greedy ms |".into());
    line("|---|---|---|---|---|---|---|---|---|---|---|---|---|".into());
    for network in NETWORKS {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == network.name) {
            continue;
        }
        let graph = (network.build)();
        let options = Options { node_limit: 50_000, iter_limit: 15, ..Options::default() };
        let started = Instant::now();
        let optimiser = Optimiser::new(&graph, &options)?;
        let saturated = started.elapsed().as_secs_f64();
        let cover = optimiser.covers(&Costs::new(CPU_DEVICE), 1)?.remove(0);
        let total = started.elapsed().as_secs_f64();
        let greedy = greedy_cover(&graph, &Costs::new(CPU_DEVICE))?;
        let segments = optimiser.segments();
        let stop = match segments.iter().all(|segment| segment.stop == Stop::Saturated) {
            true => "saturated",
            false => "limit",
        };
        line(format!(
            "| {} | {} | {} | {} | {stop} | {saturated:.2} | {:.2} | {total:.2} | {} | {} | {:.3} | {} | {:.3} |",
            network.name,
            segments.iter().map(|it| it.n_operators * it.n_places).sum::<usize>(),
            segments.iter().map(|it| it.n_nodes).sum::<usize>(),
            segments.iter().map(|it| it.n_rounds).max().unwrap_or(0),
            total - saturated,
            network.tensat_s,
            cover.derivation.kernels.len(),
            cover.cost_ns / 1e6,
            greedy.derivation.kernels.len(),
            greedy.cost_ns / 1e6,
        ));
    }
    Ok(())
}
