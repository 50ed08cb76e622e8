//! Every region of the table on the cpu device, in its checking mode: the printed PTX of each family's
//! first schedule computes what the oracle computes, and touches nothing that it should not.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::device::Ready;
use common::{compare, inputs_of, regions};
use eggine_codegen_ptx::{CPU_DEVICE, first_choices, lower};
use eggine_cpu::Options;

#[test]
fn every_region_runs_on_the_cpu_device_without_a_report() {
    let mut failures = Vec::new();
    let mut n_checked = 0;
    for region in regions() {
        let inputs = inputs_of(&region);
        let want = region.oracle(&inputs);
        for (_, schedule, _) in first_choices(&region, &CPU_DEVICE) {
            let name = format!("{} {schedule}", region.graph.name);
            n_checked += 1;
            let lowered = lower(&region, &schedule).unwrap();
            let ready = match Ready::new(lowered, &region, &inputs) {
                Ok(ready) => ready,
                Err(err) => {
                    failures.push(format!("{name}: {err}"));
                    continue;
                }
            };
            for checking in [true, false] {
                let options =
                    Options { checking, step_limit: Some(100_000_000), ..Options::default() };
                match ready.launch(&options) {
                    Err(err) => failures.push(format!("{name}, checking {checking}: {err}")),
                    Ok(()) => {
                        if let Some(difference) = compare(&want, &ready.outputs(&region)) {
                            failures.push(format!("{name}, checking {checking}: {difference}"));
                        }
                    }
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {n_checked} fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(n_checked > 100, "{n_checked} kernels");
}
