//! Predictions for every chip of the table, on the regions of the other tests: what must hold of them
//! whatever the constants are, and that those of the cpu device stay as they are.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::regions;
use eggine_codegen_ptx::predict::chips::{GPUS, H200};
use eggine_codegen_ptx::{CPU_DEVICE, Chip, GpuChip, first_choices, neighbours, predict};

#[test]
fn cpu_predictions_stay() {
    let mut text = String::new();
    for region in regions() {
        for (_, schedule, prediction) in first_choices(&region, &CPU_DEVICE) {
            let name = &region.graph.name;
            text += &format!("{name:26} {:>14.1} ns {schedule}\n", prediction.ns);
        }
    }
    insta::assert_snapshot!(text);
}

/// No time below what memory and launch take; more of everything is never slower.
#[test]
fn gpu_predictions_are_bounded_and_monotone() {
    let mut n_checked = 0;
    for region in regions() {
        for &gpu in GPUS {
            let chip = Chip::Gpu(gpu);
            for (_, first, _) in first_choices(&region, &chip) {
                let moves = neighbours(&region, &first).into_iter().map(|it| it.1);
                for schedule in std::iter::once(first).chain(moves) {
                    let at =
                        |gpu: GpuChip| predict(&region, &schedule, &Chip::Gpu(gpu)).unwrap().ns;
                    let told = predict(&region, &schedule, &chip).unwrap();
                    let floor = gpu.launch_ns + told.bytes / gpu.dram_bytes_per_ns;
                    assert!(told.ns.is_finite() && told.ns >= floor, "{schedule}: {told:?}");
                    let faster = GpuChip { clk_per_ns: 2.0 * gpu.clk_per_ns, ..gpu };
                    let wider = GpuChip { fma_per_clk: 2.0 * gpu.fma_per_clk, ..gpu };
                    let nearer = GpuChip { load_clk: 0.5 * gpu.load_clk, ..gpu };
                    for better in [faster, wider, nearer] {
                        assert!(at(better) <= told.ns, "{}: {schedule} {better:?}", gpu.name);
                    }
                    n_checked += 1;
                }
            }
        }
    }
    assert!(n_checked > 1000, "{n_checked}");
}

/// A large product is bounded by the lanes, a copy by memory: within a factor of the chip's peaks.
#[test]
fn large_kernels_come_near_the_peaks() {
    let best = |text: &str, gpu: GpuChip| {
        let region = eggine_ir::Region::contiguous(eggine_ir::graph::parse(text).unwrap());
        let (_, first, _) = first_choices(&region, &Chip::Gpu(gpu))[0];
        let mut best = (f64::INFINITY, first);
        let mut frontier = vec![first];
        // Hill climbing over the moves, as the search does it.
        while let Some(schedule) = frontier.pop() {
            let told = predict(&region, &schedule, &Chip::Gpu(gpu)).unwrap();
            if told.ns < best.0 {
                best = (told.ns, schedule);
                frontier = neighbours(&region, &schedule).into_iter().map(|it| it.1).collect();
            }
        }
        let told = predict(&region, &best.1, &Chip::Gpu(gpu)).unwrap();
        (told.flops / told.ns, told.bytes / told.ns)
    };
    for &gpu in GPUS {
        let peak = 2.0 * gpu.fma_per_clk * gpu.n_sms * gpu.clk_per_ns;
        let product = "graph @g(v0: f32[4096,4096], v1: weight f32[4096,4096]) { v2 = matmul v0, v1\n return v2 }";
        let (flops_per_ns, _) = best(product, gpu);
        let share = flops_per_ns / peak;
        assert!((0.5..=1.0).contains(&share), "{}: {share} of the f32 peak", gpu.name);
        let copy = "graph @g(v0: f32[64,1048576]) { v1 = relu v0\n return v1 }";
        let share = best(copy, gpu).1 / gpu.dram_bytes_per_ns;
        assert!((0.7..=1.0).contains(&share), "{}: {share} of memory's rate", gpu.name);
    }
}

#[test]
fn unknown_chips_are_named() {
    assert_eq!(Chip::gpu("h200"), Ok(Chip::Gpu(H200)));
    let err = Chip::gpu("h300").unwrap_err();
    insta::assert_snapshot!(err, @"the static model knows no chip `h300`; it knows a100, h100, h200, b200, rtx4090, l4, rtx5090");
}
