//! How search loops were fooled, row by row of `MEASURING.md`: each cheat is rejected for its own reason,
//! and the honest kernel of the same region is not.
//!
//! | #  | cheat                                   | test                                                  | defence                                         |
//! |----|-----------------------------------------|-------------------------------------------------------|-------------------------------------------------|
//! | 1  | writes nothing                          | `cheat_01_writes_nothing`                             | outputs are poisoned before every run           |
//! | 2  | writes a part                           | `cheat_02_writes_a_part`                              | poison, and the unwritten elements are counted  |
//! | 3  | zeros within an absolute tolerance      | `cheat_03_zeros_within_an_absolute_tolerance`         | bounds scale with the values; extreme inputs    |
//! | 4  | result kept by pointer or input hash    | `cheat_04_result_kept_by_pointer_or_hash`             | fresh inputs each timed run, buffers move       |
//! | 5  | modifies its inputs                     | `cheat_05_modifies_its_inputs`                        | inputs are compared after every run             |
//! | 6  | outside its buffers                     | `cheat_06_outside_its_buffers`                        | guard bands; bounds on the cpu device           |
//! | 7  | lower precision                         | `cheat_07_lower_precision`                            | bound of a running error analysis               |
//! | 8  | right for ten calls                     | `cheat_08_right_for_ten_calls`                        | verified again after timing                     |
//! | 9  | work after the end event                | `cheat_09_work_after_the_end_event`                   | the host's clock as a witness                   |
//! | 10 | faster than the memory                  | `cheat_10_faster_than_possible`                       | roofline floor; one run with empty caches       |
//! | 11 | NaN in the expected value               | `cheat_11_nan_in_the_expected_value`                  | kinds are compared exactly                      |
//! | 12 | only at the tuned shape                 | `cheat_12_only_at_the_tuned_shape`                    | `search`: the schedule at ragged neighbours     |
//! | 13 | cache hit that ignores alignment        | `cheat_13_cache_hit_that_ignores_alignment`           | `search`: every precondition is in the key      |
//! | 14 | zero, negative or 1000-fold samples     | `cheat_14_impossible_samples`                         | rejected with a reason, and kept                |
//! | 15 | lucky winner under drift                | `cheat_15_lucky_winner_under_drift`                   | ABBA rounds, interval of the ratio              |
//! | 16 | verified graph, unverified kernel       | `cheat_16_verified_graph_unverified_kernel`           | `search`: the text is gated                     |
//! | 17 | swallowed errors                        | `cheat_17_unknown_verdicts_are_loud`                  | `search`: every verdict recorded, unknown fails |
//! | 18 | another configuration was timed         | `cheat_18_the_row_names_the_text_that_ran`            | `search`: hash of the loaded text               |
//! | 19 | measured at one shape, served another   | `cheat_19_measured_is_what_is_served`                 | `search`: engines race in sessions              |
//! | 20 | hangs, traps, exhausts                  | `cheat_20_hangs_traps_and_exhausts`                   | step limit, memory limit, quarantine            |
//!
//! Rows 12, 13 and 16 to 20 concern the search and are in `search/tests/cheats.rs` as well; what of them
//! the runtime does is tested here.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::BTreeMap;

use common::{region, relu_ptx};
use eggine_ir::Region;
use eggine_runtime::device::{
    Checking, CpuDevice, CpuOptions, Device, DeviceError, FakeDevice, FakeMemory, Peak,
};
use eggine_runtime::timing::{
    Contestant, Decision, Distrust, LeastWork, Measured, Rejection, TimingVerdict, measure, race,
    time_alone,
};
use eggine_runtime::verify::{Counterexample, Family, shrink, verify};
use eggine_runtime::{
    Candidate, CandidateBuffer, OracleCache, Timing, TimingPlan, Verdict, VerifyOptions,
};

type Kernel = Box<dyn FnMut(&mut FakeMemory, &[u64], u64) -> Result<(), DeviceError> + Send>;

const N: usize = 64;

/// `y = x·w` with `x: f32[8,64]` and `w: f32[64,16]`.
fn product() -> Region {
    region("graph @r(v0: f32[8,64], v1: f32[64,16]) {\n    v2 = matmul v0, v1\n    return v2\n}\n")
}

fn negation() -> Region {
    region(&format!("graph @r(v0: f32[{N}]) {{\n    v1 = neg v0\n    return v1\n}}\n"))
}

fn candidate(entry: &'static str, n_inputs: usize) -> Candidate<'static> {
    let mut buffers: Vec<CandidateBuffer<'static>> =
        (0..n_inputs).map(|index| CandidateBuffer::Input { index, pack: None }).collect();
    buffers.push(CandidateBuffer::Output { index: 0 });
    Candidate { ptx: "// fake", entry, grid: [1, 1, 1], block: [1, 1, 1], buffers }
}

fn dot(a: &[f32], b: impl Iterator<Item = f32>) -> f32 {
    a.iter().zip(b).fold(0.0, |sum, (x, y)| x.mul_add(y, sum))
}

fn multiply(memory: &mut FakeMemory, params: &[u64]) -> Result<Vec<f32>, DeviceError> {
    let (a, b) = (memory.read_f32(params[0], 8 * 64)?, memory.read_f32(params[1], 64 * 16)?);
    let element = |i: usize, j: usize| dot(&a[i * 64..][..64], (0..64).map(|k| b[k * 16 + j]));
    Ok((0..8 * 16).map(|at| element(at / 16, at % 16)).collect())
}

fn honest_product() -> Kernel {
    Box::new(|memory, params, _| {
        let c = multiply(memory, params)?;
        memory.write_f32(params[2], &c)
    })
}

fn negate(memory: &mut FakeMemory, params: &[u64]) -> Result<(), DeviceError> {
    let xs = memory.read_f32(params[0], N)?;
    memory.write_f32(params[1], &xs.iter().map(|x| -x).collect::<Vec<_>>())
}

/// Verifies a fake kernel.
fn judged(region: &Region, n_inputs: usize, kernel: Kernel) -> Verdict {
    let mut device = FakeDevice::new();
    device.kernel("k", kernel);
    let (oracles, options) = (OracleCache::default(), VerifyOptions::default());
    let candidate = candidate("k", n_inputs);
    let found = verify(&mut device, region, "r", &candidate, &oracles, &options).unwrap();
    assert_eq!((device.n_allocations(), device.n_modules()), (0, 0), "everything is given back");
    found.verdict
}

/// Measures kernel `k` of a device that has it, against `honest` if that is there.
fn measured(device: &mut FakeDevice, region: &Region, n_inputs: usize, raced: bool) -> Measured {
    let (oracles, options) = (OracleCache::default(), VerifyOptions::default());
    let (challenger, honest) = (candidate("k", n_inputs), candidate("honest", n_inputs));
    let incumbent = raced.then_some(&honest);
    let plan = TimingPlan::default();
    let found =
        measure(device, region, "r", &challenger, incumbent, &oracles, &options, &plan).unwrap();
    assert_eq!((device.n_allocations(), device.n_modules()), (0, 0), "everything is given back");
    found
}

/// PTX on the cpu device, with everything checked.
fn on_cpu(region: &Region, ptx: &str, entry: &str, grid: u32, options: &VerifyOptions) -> Verdict {
    let mut device = CpuDevice::new(CpuOptions { n_threads: 1, ..CpuOptions::default() });
    let buffers =
        vec![CandidateBuffer::Input { index: 0, pack: None }, CandidateBuffer::Output { index: 0 }];
    let candidate = Candidate { ptx, entry, grid: [grid, 1, 1], block: [128, 1, 1], buffers };
    verify(&mut device, region, "r", &candidate, &OracleCache::default(), options).unwrap().verdict
}

fn relu(n: usize) -> Region {
    region(&format!("graph @r(v0: f32[{n}]) {{\n    v1 = relu v0\n    return v1\n}}"))
}

fn relu_on_cpu(ptx: &str, grid: u32) -> Verdict {
    on_cpu(&relu(1000), ptx, "relu", grid, &VerifyOptions::default())
}

#[test]
fn the_honest_kernels_pass() {
    assert_eq!(judged(&product(), 2, honest_product()), Verdict::Accepted);
    assert_eq!(relu_on_cpu(&relu_ptx("relu", 1000, ""), 8), Verdict::Accepted);
    let mut device = FakeDevice::new();
    device.kernel("k", |memory, params, _| negate(memory, params));
    device.kernel("honest", |memory, params, _| negate(memory, params));
    device.clock(|entry, nth| if entry == "k" { 900 + nth % 5 } else { 1000 + nth % 5 });
    let alone = measured(&mut device, &negation(), 1, false);
    assert!(alone.wins() && alone.distrust.is_none(), "{alone:?}");
    let raced = measured(&mut device, &negation(), 1, true);
    assert!(raced.wins() && raced.host_gap_ns == Some(0.0), "{raced:?}");
}

#[test]
fn cheat_01_writes_nothing() {
    let nothing = judged(&product(), 2, Box::new(|_, _, _| Ok(())));
    assert!(
        matches!(nothing, Verdict::Unwritten { n_elems: 128, first_index: 0, .. }),
        "{nothing}"
    );
    // Nor does it help that the right answer lies there from a run before.
    let mut honest = honest_product();
    let once = judged(
        &product(),
        2,
        Box::new(
            move |memory, params, nth| {
                if nth == 0 { honest(memory, params, nth) } else { Ok(()) }
            },
        ),
    );
    assert!(matches!(once, Verdict::Unwritten { family: Family::Extreme, .. }), "{once}");
    let ptx = relu_ptx("relu", 1000, "").replace("    st.global.f32 [%rd3], %f1;\n", "");
    let nothing = relu_on_cpu(&ptx, 8);
    assert!(matches!(nothing, Verdict::Unwritten { n_elems: 1000, .. }), "{nothing}");
}

#[test]
fn cheat_02_writes_a_part() {
    let part: Kernel = Box::new(|memory, params, _| {
        let c = multiply(memory, params)?;
        memory.write_f32(params[2], &c[..112])
    });
    let found = judged(&product(), 2, part);
    assert!(matches!(found, Verdict::Unwritten { n_elems: 16, first_index: 112, .. }), "{found}");
    let found = relu_on_cpu(&relu_ptx("relu", 1000, ""), 7);
    assert!(matches!(found, Verdict::Unwritten { n_elems: 104, first_index: 896, .. }), "{found}");
}

#[test]
fn cheat_03_zeros_within_an_absolute_tolerance() {
    let zeros: Kernel = Box::new(|memory, params, _| memory.write_f32(params[2], &[0.0; 128]));
    let found = judged(&product(), 2, zeros);
    assert!(matches!(found, Verdict::Inaccurate { n_elems: 128, .. }), "{found}");
    // A region whose results are all tiny: zeros are within any absolute tolerance.
    let tiny = region(&format!(
        "graph @r(v0: f32[{N}]) {{\n    v1 = const f32[] 1e-12\n    v2 = mul v0, v1\n    return v2\n}}"
    ));
    let zeros: Kernel = Box::new(|memory, params, _| memory.write_f32(params[1], &[0.0; N]));
    assert!(matches!(judged(&tiny, 1, zeros), Verdict::Inaccurate { .. }));
    let scaled: Kernel = Box::new(|memory, params, _| {
        let xs = memory.read_f32(params[0], N)?;
        memory.write_f32(params[1], &xs.iter().map(|x| x * 1e-12).collect::<Vec<_>>())
    });
    assert_eq!(judged(&tiny, 1, scaled), Verdict::Accepted);
}

/// A kernel that keeps results under what `key` says of its inputs; `hits` counts.
fn keeping(
    key: fn(&[u64], &[u8]) -> Vec<u8>,
) -> (Kernel, std::sync::Arc<std::sync::atomic::AtomicU64>) {
    let hits = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = hits.clone();
    let mut kept: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let kernel: Kernel = Box::new(move |memory, params, _| {
        let key = key(params, &memory.read(params[0], 4 * N)?);
        if let Some(result) = kept.get(&key) {
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            return memory.write(params[1], result);
        }
        negate(memory, params)?;
        kept.insert(key, memory.read(params[1], 4 * N)?);
        Ok(())
    });
    (kernel, hits)
}

#[test]
fn cheat_04_result_kept_by_pointer_or_hash() {
    // By pointer: the next inputs at the same place get the old result.
    let (by_pointer, _) = keeping(|params, _| params[0].to_le_bytes().to_vec());
    let found = judged(&negation(), 1, by_pointer);
    assert!(matches!(found, Verdict::Inaccurate { family: Family::Extreme, .. }), "{found}");

    // By the inputs: always right, so that it may only not be timed with a hit. It never has one.
    let (by_inputs, hits) = keeping(|_, inputs| inputs.to_vec());
    let mut device = FakeDevice::new();
    device.kernel("k", by_inputs);
    device.kernel("honest", |memory, params, _| negate(memory, params));
    let counted = hits.clone();
    let mut before = 0;
    device.clock(move |entry, _| {
        let now = counted.load(std::sync::atomic::Ordering::SeqCst);
        let hit = entry == "k" && now > std::mem::replace(&mut before, now);
        if hit { 10 } else { 1000 }
    });
    let found = measured(&mut device, &negation(), 1, true);
    assert!(found.accepted() && !found.wins(), "{found:?}");
    let samples = &found.timing.as_ref().unwrap().samples_ns;
    assert!(samples.iter().all(|&ns| ns == 1000), "a timed run hit: {samples:?}");

    // By the addresses of its buffers, even if it copies the inputs' addresses once and never looks at
    // them again: they move before the last verification.
    let mut first: Option<Vec<u64>> = None;
    let mut device = FakeDevice::new();
    device.kernel("k", move |memory, params, _| {
        let known = first.get_or_insert_with(|| params.to_vec()).clone();
        negate(memory, &known)
    });
    let found = measured(&mut device, &negation(), 1, false);
    assert!(found.before.accepted(), "{}", found.before.verdict);
    // The old buffers are gone.
    assert!(matches!(found.verdict(), Verdict::Faults { .. }), "{}", found.verdict());
}

#[test]
fn cheat_05_modifies_its_inputs() {
    let modifying: Kernel = Box::new(|memory, params, _| {
        let c = multiply(memory, params)?;
        memory.write_f32(params[2], &c)?;
        let x = memory.read_f32(params[1] + 40, 1)?;
        memory.write_f32(params[1] + 40, &[-x[0]])
    });
    let found = judged(&product(), 2, modifying);
    assert!(matches!(found, Verdict::ModifiesInput { buffer: 1, at_byte: 40..44, .. }), "{found}");
    let in_place = relu_ptx("relu", 1000, "").replace(
        "    st.global.f32 [%rd3], %f1;\n",
        "    st.global.f32 [%rd3], %f1;\n    st.global.f32 [%rd2], %f1;\n",
    );
    let found = relu_on_cpu(&in_place, 8);
    assert!(matches!(found, Verdict::ModifiesInput { buffer: 0, .. }), "{found}");
}

#[test]
fn cheat_06_outside_its_buffers() {
    for (buffer, at_byte) in [(2, -4), (2, 512), (0, -8), (1, 64 * 16 * 4)] {
        let outside: Kernel = Box::new(move |memory, params, _| {
            let c = multiply(memory, params)?;
            memory.write_f32(params[2], &c)?;
            memory.write(params[buffer].wrapping_add_signed(at_byte), &[0])
        });
        let found = judged(&product(), 2, outside);
        assert_eq!(found, Verdict::WritesOutside { family: Family::Normal, buffer, at_byte });
    }
    for bound in [1001, 1024] {
        let found = relu_on_cpu(&relu_ptx("relu", bound, ""), 8);
        let at_bounds = |reason: &str| reason.contains("out of bounds");
        assert!(matches!(&found, Verdict::Faults { reason, .. } if at_bounds(reason)), "{found}");
    }
}

#[test]
fn cheat_07_lower_precision() {
    let half: Kernel = Box::new(|memory, params, _| {
        let (a, b) = (memory.read_f32(params[0], 8 * 64)?, memory.read_f32(params[1], 64 * 16)?);
        let narrow = |x: f32| half::f16::from_f32(x).to_f32();
        let element = |i: usize, j: usize| {
            (0..64).fold(0.0, |sum, k| narrow(a[i * 64 + k]).mul_add(narrow(b[k * 16 + j]), sum))
        };
        let c: Vec<f32> = (0..8 * 16).map(|at| element(at / 16, at % 16)).collect();
        memory.write_f32(params[2], &c)
    });
    let found = judged(&product(), 2, half);
    assert!(matches!(found, Verdict::Inaccurate { family: Family::Normal, .. }), "{found}");
    // The same in PTX: a value goes through f16 on its way.
    let ptx = relu_ptx("relu", 1000, "")
        .replace("    .reg .f32 %f<2>;\n", "    .reg .f32 %f<3>;\n    .reg .b16 %h<1>;\n")
        .replace(
            "    max.f32 %f1, %f0, 0f00000000;\n",
            "    cvt.rn.f16.f32 %h0, %f0;\n    cvt.f32.f16 %f2, %h0;\n    max.f32 %f1, %f2, 0f00000000;\n",
        );
    let found = relu_on_cpu(&ptx, 8);
    assert!(matches!(found, Verdict::Inaccurate { .. }), "{found}");
}

#[test]
fn cheat_08_right_for_ten_calls() {
    let mut device = FakeDevice::new();
    device.kernel("k", |memory, params, nth| {
        negate(memory, params)?;
        if nth >= 10 { memory.write_f32(params[1] + 12, &[0.5]) } else { Ok(()) }
    });
    let found = measured(&mut device, &negation(), 1, false);
    assert!(found.before.accepted() && !found.wins());
    assert!(
        matches!(found.verdict(), Verdict::Inaccurate { n_elems: 1, .. }),
        "{}",
        found.verdict()
    );
    assert_eq!(found.after.unwrap().seed, 1, "on other inputs than before");
}

#[test]
fn cheat_09_work_after_the_end_event() {
    // Right, once everything is waited for; its own clock says 10 ns, the host waits for a millisecond.
    let late = |memory: &mut FakeMemory, params: &[u64], _: u64| {
        let params = params.to_vec();
        memory.later(move |memory| drop(negate(memory, &params)));
        Ok(())
    };
    let device = |host_ns: u64| {
        let mut device = FakeDevice::new();
        device.kernel("k", late).kernel("honest", |memory, params, _| negate(memory, params));
        device.clock(|entry, nth| if entry == "k" { 1_000 } else { 100_000 + nth % 7 });
        device.host_clock(move |entry, nth| if entry == "k" { host_ns } else { 110_000 + nth % 7 });
        device
    };
    for raced in [false, true] {
        let found = measured(&mut device(1_000_000), &negation(), 1, raced);
        assert!(found.accepted(), "it computes the right thing: {}", found.verdict());
        let Some(Distrust::HostClock { device_ns, host_ns }) = found.distrust else {
            panic!("{:?}", found.distrust)
        };
        assert_eq!((device_ns, host_ns), (1_000.0, 1_000_000.0));
        assert!(!found.wins());
    }
    // A launch's overhead is no reason, a clock that is slower than the host's is.
    assert_eq!(measured(&mut device(12_000), &negation(), 1, true).distrust, None);
    let backwards = measured(&mut device(0), &negation(), 1, false).distrust;
    assert_eq!(backwards, None, "within an event's resolution");
    let mut fast_host = device(1);
    fast_host.clock(|_, _| 50_000);
    let found = measured(&mut fast_host, &negation(), 1, false);
    assert!(matches!(found.distrust, Some(Distrust::HostClock { .. })), "{:?}", found.distrust);
    // What is not waited for is not there.
    let never: Kernel = Box::new(|_, _, _| Ok(()));
    assert!(matches!(judged(&negation(), 1, never), Verdict::Unwritten { .. }));
}

#[test]
fn cheat_10_faster_than_possible() {
    // 256 bytes in and out at 1 byte per ns: no kernel takes less than 512 ns.
    let device = |ns: u64| {
        let mut device = FakeDevice::new();
        device.kernel("k", |memory, params, _| negate(memory, params));
        device.kernel("honest", |memory, params, _| negate(memory, params));
        device.clock(move |entry, _| if entry == "k" { ns } else { 1000 });
        device.set_peak(Peak { flops_per_ns: 1.0, bytes_per_ns: 1.0 });
        device
    };
    for raced in [false, true] {
        let found = measured(&mut device(500), &negation(), 1, raced);
        let impossible = Distrust::Samples(Rejection::FasterThanPossible);
        assert_eq!(found.distrust, Some(impossible));
        assert!(found.accepted() && !found.wins());
        assert_eq!(found.timing.as_ref().unwrap().median_ns(), None, "nothing is believed");
    }
    let raced = measured(&mut device(500), &negation(), 1, true).race.unwrap();
    assert_eq!(raced.decision, Decision::Rejected);
    // Warm samples, and one with empty caches, of the winner.
    let honest = measured(&mut device(600), &negation(), 1, true);
    assert!(honest.wins() && honest.cold_ns == Some(600), "{honest:?}");

    let least = |text: &str| LeastWork::of(&region(text));
    let work = LeastWork::of(&product());
    assert_eq!((work.flops, work.bytes), (2.0 * 8.0 * 64.0 * 16.0, 4.0 * (512.0 + 1024.0 + 128.0)));
    let row = least(
        "graph @r(v0: f32[1000,8], v1: i64[3]) {\n    v2 = gather v0, v1 {axis=0}\n    return v2\n}",
    );
    assert_eq!(row.bytes, 96.0, "a gather need not read its table");
    let conv = least(
        "graph @r(v0: f32[1,2,1,1], v1: f32[4,2,3,3]) {\n    v2 = conv v0, v1 {strides=[1,1], before=[1,1], after=[1,1], dilations=[1,1], groups=1}\n    return v2\n}",
    );
    assert_eq!(conv.flops, 2.0 * 2.0 * 4.0 / 4.0, "products with the padding need not be made");
    assert!(CpuDevice::default().peak().flops_per_ns > 100.0);
    assert_eq!(work.floor_ns(&Peak::default()), 0, "nothing is known, nothing is bounded");
}

#[test]
fn cheat_11_nan_in_the_expected_value() {
    let roots = region(&format!("graph @r(v0: f32[{N}]) {{\n    v1 = sqrt v0\n    return v1\n}}"));
    let kernel = |of: fn(f32) -> f32| -> Kernel {
        Box::new(move |memory, params, _| {
            let xs = memory.read_f32(params[0], N)?;
            memory.write_f32(params[1], &xs.iter().map(|&x| of(x)).collect::<Vec<_>>())
        })
    };
    assert_eq!(judged(&roots, 1, kernel(f32::sqrt)), Verdict::Accepted);
    let anything = |x: f32| if x < 0.0 { 7.0 } else { x.sqrt() };
    let found = judged(&roots, 1, kernel(anything));
    assert!(matches!(found, Verdict::WrongKind { .. }), "{found}");
    let found = judged(&roots, 1, kernel(|_| f32::NAN));
    assert!(matches!(found, Verdict::WrongKind { .. }), "{found}");
}

#[test]
fn cheat_12_only_at_the_tuned_shape() {
    // Without its guard the kernel is right where 128 threads divide the elements, and nowhere else.
    let unguarded = relu_ptx("relu", 1024, "").replace("    @!%p0 bra $L0;\n", "");
    let options = VerifyOptions::default();
    assert_eq!(on_cpu(&relu(1024), &unguarded, "relu", 8, &options), Verdict::Accepted);
    for n in [1023, 1000, 897] {
        let found = on_cpu(&relu(n), &unguarded, "relu", 8, &options);
        assert!(matches!(found, Verdict::Faults { .. }), "{n}: {found}");
        let guarded = relu_ptx("relu", n, "");
        assert_eq!(on_cpu(&relu(n), &guarded, "relu", 8, &options), Verdict::Accepted);
    }
}

#[test]
fn cheat_14_impossible_samples() {
    let samples = vec![100, 0, 101, -5, 99, 100_000, 3, 100];
    let timing = Timing::new(samples.clone(), 10);
    use Rejection::{FasterThanPossible, NotPositive, Outlier};
    let reasons = [(1, NotPositive), (3, NotPositive), (5, Outlier), (6, FasterThanPossible)];
    assert_eq!(timing.rejected, reasons);
    assert_eq!(timing.samples_ns, samples, "every sample is kept");
    assert_eq!(timing.median_ns(), Some(100.0));
    assert_eq!(timing.rejection(), Some(NotPositive));
    let stopped = |ns: i64| race(&TimingPlan::default(), |_| Ok(ns)).unwrap().decision;
    assert_eq!((stopped(0), stopped(-7)), (Decision::Rejected, Decision::Rejected));
    let mut device = FakeDevice::new();
    device.kernel("k", |memory, params, _| negate(memory, params));
    device.clock(|_, _| 0);
    let found = measured(&mut device, &negation(), 1, false);
    assert_eq!(found.distrust, Some(Distrust::Samples(NotPositive)));
    assert!(!found.wins());
    // One sample of a thousand times the others does not hide that the kernel is slower.
    let mut nth = 0;
    let spiky = race(&TimingPlan::default(), |who| {
        nth += 1;
        let base = if who == Contestant::Challenger { 1_200 } else { 1_000 + nth % 3 };
        Ok(if nth == 9 { 1_000 * base } else { base })
    });
    assert_ne!(spiky.unwrap().decision, Decision::Faster);
    assert_eq!(Timing::new(vec![100, 101, 99, 100], 10).verdict(), TimingVerdict::Believed);
}

#[test]
fn cheat_15_lucky_winner_under_drift() {
    // The machine slows down by 0.4 % a run: whoever runs first looks faster.
    let drifting = |challenger_ns: f64| {
        let mut n_runs = 0.0;
        let plan = TimingPlan::default();
        let race = race(&plan, |who| {
            n_runs += 1.0;
            let base = if who == Contestant::Challenger { challenger_ns } else { 100_000.0 };
            Ok((base * (1.0 + 0.004 * n_runs)) as i64)
        });
        race.unwrap().decision
    };
    assert_ne!(drifting(100_000.0), Decision::Faster, "equals");
    assert_eq!(drifting(102_000.0), Decision::Slower);
    assert_eq!(drifting(97_000.0), Decision::Faster, "the honest winner wins all the same");
    // Timed alone, one after the other, the slower one would have won.
    let mut ns = 100_000.0;
    let mut alone = |factor: f64| {
        let plan = TimingPlan { half_width: 0.0, ..TimingPlan::default() };
        let timing = time_alone(&plan, || {
            ns *= 1.004;
            Ok((factor * ns) as i64)
        });
        timing.unwrap()
    };
    let (challenger, incumbent) = (alone(1.02), alone(1.0));
    assert!(challenger.median_ns() < incumbent.median_ns());
    assert_eq!(challenger.verdict(), TimingVerdict::Drifting, "which is why this is not believed");
}

#[test]
fn cheat_18_the_row_names_the_text_that_ran() {
    let mut device = FakeDevice::new();
    device.kernel("k", |memory, params, _| negate(memory, params));
    let found = measured(&mut device, &negation(), 1, false);
    assert_eq!(found.ptx_hash, eggine_runtime::engine::hash_text("// fake"));
}

#[test]
fn cheat_20_hangs_traps_and_exhausts() {
    let honest = relu_ptx("relu", 1000, "");
    let limited = VerifyOptions { step_limit: Some(1 << 16), ..VerifyOptions::default() };
    assert_eq!(on_cpu(&relu(1000), &honest, "relu", 8, &limited), Verdict::Accepted);
    let endless = relu_ptx("relu", 1000, "$L1:\n    bra $L1;\n");
    let start = std::time::Instant::now();
    let found = on_cpu(&relu(1000), &endless, "relu", 8, &limited);
    assert!(
        matches!(&found, Verdict::Faults { reason, .. } if reason.contains("step limit")),
        "{found}"
    );
    assert!(found.is_dangerous());
    assert!(start.elapsed().as_secs_f64() < 1.0, "{:?}", start.elapsed());

    let trap: Kernel = Box::new(|memory, _, _| memory.write(0x10, &[0]));
    let found = judged(&product(), 2, trap);
    assert!(matches!(&found, Verdict::Faults { .. }) && found.is_dangerous(), "{found}");

    // Memory: of a block, and of the device.
    let greedy = honest.replace(
        "    .reg .pred %p<1>;\n",
        "    .reg .pred %p<1>;\n    .shared .align 16 .b8 s[4000000000];\n    .shared .align 16 .b8 t[4000000000];\n",
    );
    let found = relu_on_cpu(&greedy, 8);
    assert!(
        matches!(&found, Verdict::DoesNotLoad { reason } if reason.contains("shared")),
        "{found}"
    );
    let mut device = FakeDevice::new();
    device.set_capacity(1 << 20);
    device.kernel("k", |memory, params, _| negate(memory, params));
    let table = eggine_ir::Tensor::f32(&[1 << 19], &vec![0.0; 1 << 19]);
    let mut large = candidate("k", 1);
    large.buffers.push(CandidateBuffer::Table(table));
    let (oracles, options) = (OracleCache::default(), VerifyOptions::default());
    let found = verify(&mut device, &negation(), "r", &large, &oracles, &options).unwrap();
    assert!(matches!(found.verdict, Verdict::DoesNotFit { .. }), "{}", found.verdict);
    assert_eq!(device.n_allocations(), 0, "what was allocated before is given back");
    let small = VerifyOptions { memory_bytes: 1 << 12, ..options };
    let mut cpu = CpuDevice::default();
    let found = verify(&mut cpu, &relu(1 << 16), "r", &candidate("relu", 1), &oracles, &small);
    // Its text is no PTX, but a text that is would not fit either.
    assert!(matches!(found.unwrap().verdict, Verdict::DoesNotLoad { .. }));
    let at_limit = on_cpu(&relu(1000), &honest, "relu", 8, &small);
    assert!(matches!(at_limit, Verdict::DoesNotFit { .. }), "{at_limit}");

    // A later candidate of the same device is not affected.
    assert_eq!(relu_on_cpu(&honest, 8), Verdict::Accepted);
}

#[test]
fn a_counterexample_is_kept_and_replayed() {
    // Wrong for one input in a thousand: the families may miss it, its counterexample does not.
    let rare: fn() -> Kernel = || {
        Box::new(|memory, params, _| {
            let xs = memory.read_f32(params[0], N)?;
            let of = |&x: &f32| if (1.40..1.41).contains(&x) { x } else { -x };
            memory.write_f32(params[1], &xs.iter().map(of).collect::<Vec<_>>())
        })
    };
    let region = negation();
    let run = |options: &VerifyOptions| {
        let mut device = FakeDevice::new();
        device.kernel("k", rare());
        let oracles = OracleCache::default();
        verify(&mut device, &region, "r", &candidate("k", 1), &oracles, options).unwrap()
    };
    let failing = (0..200).map(|seed| run(&VerifyOptions { seed, ..VerifyOptions::default() }));
    let found = failing.into_iter().find(|found| !found.accepted()).expect("some seed shows it");
    let kept = Counterexample::of(&region.graph, &found).unwrap();
    let longer = common::region("graph @r(v0: f32[99]) {\n    v1 = neg v0\n    return v1\n}\n");
    assert!(kept.fits(&longer.graph), "a seed makes inputs of any extents");
    assert!(!Counterexample::given(&kept.tensors(&region.graph)).fits(&longer.graph));
    assert!(kept.fits(&region.graph) && !kept.fits(&product().graph));
    let json = serde_json::to_string(&kept).unwrap();
    assert_eq!(serde_json::from_str::<Counterexample>(&json).unwrap(), kept);

    let passing =
        (0..200).find(|&seed| run(&VerifyOptions { seed, ..Default::default() }).accepted());
    let options =
        VerifyOptions { seed: passing.unwrap(), corpus: vec![kept.clone()], ..Default::default() };
    let again = run(&options);
    assert!(matches!(again.verdict, Verdict::Inaccurate { .. }), "{}", again.verdict);
    assert_eq!(
        again.families.len(),
        Family::ALL.len() + 1,
        "the families passed, the corpus did not"
    );
    assert!(run(&VerifyOptions { corpus: Vec::new(), ..options.clone() }).accepted());

    // Shrunk to the element that matters.
    let inputs = kept.tensors(&region.graph);
    let simple = shrink(&inputs, 200, |inputs| {
        let kept = Counterexample::given(inputs);
        !run(&VerifyOptions { corpus: vec![kept], ..options.clone() }).accepted()
    });
    let n_left = simple[0].to_f64().iter().filter(|&&x| x != 0.0).count();
    assert!((1..=4).contains(&n_left), "{n_left} of {N} elements are left");
}

#[test]
fn barriers_and_races_need_the_checking_mode() {
    // In lockstep the race is not seen; the checking mode of the search's second look sees it.
    let racy = relu_ptx("relu", 1024, "")
        .replace("    .reg .pred %p<1>;\n", "    .reg .pred %p<1>;\n    .shared .align 16 .b8 s[512];\n")
        .replace("    .reg .b32 %r<3>;\n", "    .reg .b32 %r<6>;\n")
        .replace("    .reg .f32 %f<2>;\n", "    .reg .f32 %f<4>;\n")
        .replace(
            "    st.global.f32 [%rd3], %f1;\n",
            "    shl.b32 %r3, %r1, 2;\n    st.shared.f32 [%r3], %f1;\n    xor.b32 %r4, %r3, 256;\n    ld.shared.f32 %f2, [%r4];\n    st.global.f32 [%rd3], %f1;\n",
        );
    let run = |checking| {
        let mut device =
            CpuDevice::new(CpuOptions { n_threads: 1, checking, ..CpuOptions::default() });
        let buffers = vec![
            CandidateBuffer::Input { index: 0, pack: None },
            CandidateBuffer::Output { index: 0 },
        ];
        let candidate =
            Candidate { ptx: &racy, entry: "relu", grid: [8, 1, 1], block: [128, 1, 1], buffers };
        let (oracles, options) = (OracleCache::default(), VerifyOptions::default());
        verify(&mut device, &relu(1024), "r", &candidate, &oracles, &options).unwrap().verdict
    };
    assert_eq!(run(Checking::Bounds), Verdict::Accepted);
    let found = run(Checking::Everything);
    assert!(matches!(&found, Verdict::Faults { .. }), "{found}");
}

/// Every row of the table has its test, here or in the search.
#[test]
fn every_row_has_a_test() {
    let here = include_str!("cheats.rs");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../search/tests/cheats.rs");
    let there = std::fs::read_to_string(root).unwrap();
    for row in 1..=20 {
        let name = format!("fn cheat_{row:02}_");
        let tests = [here, &there].map(|text| text.matches(&name).count());
        assert!(tests[0] + tests[1] > 0, "row {row} has no test");
        // The table names it.
        let listed = here.lines().find(|line| line.starts_with(&format!("//! | {row:<2} |")));
        let listed = listed.unwrap_or_else(|| panic!("row {row} is not in the table"));
        let test = listed.split('`').nth(1).unwrap();
        assert!(
            here.contains(&format!("fn {test}()")) || there.contains(&format!("fn {test}()")),
            "there is no test `{test}`"
        );
    }
}
