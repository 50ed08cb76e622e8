//! Times of kernels on the cpu device: `bench [SCHEDULE…] < REGIONS`.
//!
//! Reads regions (`.gir`) from standard input; for each family's first schedule, or the schedules
//! given, prints the time of a launch and what the static model said.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::Read;
use std::time::Instant;

use common::device::Ready;
use eggine_codegen_ptx::{Target, classify, emit, first_choices, lower, predict};
use eggine_cpu::Options;
use eggine_ir::Region;
use eggine_ir::schedule::Schedule;

/// Processor time of this thread: other processes do not count.
fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let given: Vec<Schedule> = std::env::args().skip(1).map(|arg| arg.parse().unwrap()).collect();
    for graph in text.split("\n}").map(str::trim).filter(|graph| graph.contains("graph @")) {
        let region =
            Region::contiguous(eggine_ir::graph::parse(&format!("{graph}\n}}\n")).unwrap());
        let start = Instant::now();
        classify(&region);
        let classified = start.elapsed();
        let mut schedules = given.clone();
        if schedules.is_empty() {
            let choices = first_choices(&region, &predict::CPU_DEVICE);
            // The hopeless ones take minutes.
            let limit = choices[0].2.ns * 8.0;
            schedules = choices
                .iter()
                .filter(|choice| choice.2.ns < limit)
                .map(|choice| choice.1)
                .collect();
        }
        let inputs = common::inputs_of(&region);
        for schedule in schedules {
            let start = Instant::now();
            let lowered = match lower(&region, &schedule) {
                Ok(lowered) => lowered,
                Err(err) => {
                    println!("{} {schedule}: {err}", region.graph.name);
                    continue;
                }
            };
            let lower_ms = start.elapsed().as_secs_f64() * 1e3;
            let start = Instant::now();
            let ready = match Ready::new(lowered, &region, &inputs) {
                Ok(ready) => ready,
                Err(err) => {
                    println!("{} {schedule}: {err}", region.graph.name);
                    continue;
                }
            };
            let load_ms = start.elapsed().as_secs_f64() * 1e3;
            let options = Options::default();
            // Processor time comes in ticks of 4 ms: the mean of many launches.
            let (begin, start) = (Instant::now(), cpu_ns());
            let mut n_launches = 0;
            while begin.elapsed().as_secs_f64() < 0.25 {
                ready.launch(&options).unwrap();
                n_launches += 1;
            }
            let best = (cpu_ns() - start) / 1e6 / f64::from(n_launches);
            if std::env::var_os("PTX").is_some() {
                println!(
                    "{}",
                    emit(&lower(&region, &schedule).unwrap().kernel, Target::Sm80).unwrap()
                );
            }
            let model =
                predict::predict(&region, &schedule, &predict::CPU_DEVICE).unwrap_or_default();
            println!(
                "{:22} {:9.3} ms  predicted {:9.3} ms  {:6.1} GFLOP/s  classify {:.1} lower {lower_ms:.1} load {load_ms:.1} ms  {schedule}",
                region.graph.name,
                best,
                model.ns / 1e6,
                model.flops / best / 1e6,
                classified.as_secs_f64() * 1e3,
            );
        }
    }
}
