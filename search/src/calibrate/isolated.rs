//! Probes of one property each: kernels that do nothing but wait for loads, read the second-level cache,
//! or read shared memory. What they tell needs no model, so these constants are taken as they are.
//!
//! Every probe computes something that is known, and is compared with it.

use eggine_codegen_ptx::kir::{Builder, Kernel};
use eggine_codegen_ptx::{Chip, Target, emit};
use eggine_ir::DType;
use eggine_runtime::{Device, DeviceError, DevicePtr, Launch, LaunchAttributes};
use serde::{Deserialize, Serialize};

use super::CalibrateError;

/// Times that each probe is launched; the least counts, since nothing makes hardware faster than it is.
const N_SAMPLES: usize = 7;

/// Threads of a block of the probes of rates.
const N_THREADS: u32 = 256;

/// Elements that a block of these reads at once: four a thread.
const ROUND_ELEMS: usize = 4 * N_THREADS as usize;

/// Chained loads.
const N_CHAINED: usize = 4096;

/// Distance of chained loads, in elements: odd, so that a ring of a power of two is visited as a whole, and
/// more than a line of any cache.
const STRIDE_ELEMS: usize = 1039;

/// One property, measured alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Isolated {
    /// What it is: `latency of the second-level cache`.
    pub name: String,
    /// Least time of a launch.
    pub measured_ns: f64,
    /// What follows of the device.
    pub value: f64,
    /// In this unit.
    pub unit: String,
    /// The constant of the static model that it is, and that one's value.
    pub constant: Option<(String, f64)>,
}

/// A kernel with its first buffer's contents, and what it has to leave in its second.
struct Probe {
    name: &'static str,
    kernel: Kernel,
    input: Vec<u8>,
    expected: Vec<u8>,
    /// What a launch does, in `unit` without its `ns`.
    amount: f64,
    unit: &'static str,
}

/// Sizes that fit a device.
struct Sizes {
    /// Multiprocessors, or threads of the cpu device.
    n_sms: usize,
    l2_bytes: usize,
}

fn chase(name: &'static str, n_elems: usize) -> Probe {
    const UNROLLED: usize = 8;
    let mut b = Builder::new("chase", [1, 1, 1], 32);
    let ring = b.global(DType::I32, n_elems, false);
    let out = b.global(DType::I32, 32, true);
    let zero = b.i32(0);
    let at = b.var(zero);
    b.for_loop(0, (N_CHAINED / UNROLLED) as i32, 1, |b, _| {
        for _ in 0..UNROLLED {
            let here = b.get(at);
            let next = b.load1(ring, here, 0, None);
            b.set(at, next);
        }
    });
    let (last, thread) = (b.get(at), b.thread());
    b.store(out, thread, 0, &[last], None);
    let to_bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let next: Vec<i32> = (0..n_elems).map(|at| ((at + STRIDE_ELEMS) % n_elems) as i32).collect();
    let end = (N_CHAINED * STRIDE_ELEMS % n_elems) as i32;
    Probe {
        name,
        kernel: b.finish(),
        input: to_bytes(&next),
        expected: to_bytes(&[end; 32]),
        amount: N_CHAINED as f64,
        unit: "loads",
    }
}

fn ones(n: usize) -> Vec<u8> {
    std::iter::repeat_n(1f32.to_le_bytes(), n).flatten().collect()
}

/// Every block reads another part of a buffer in each pass, so that no first-level cache has it.
fn second_level(sizes: &Sizes) -> Probe {
    const N_PASSES: usize = 16;
    // Odd: all parts are visited.
    const SHIFT: i32 = 37;
    let n_blocks = (4 * sizes.n_sms).next_power_of_two();
    let n_rounds = (sizes.l2_bytes / 4 / (4 * ROUND_ELEMS * n_blocks)).clamp(1, 16);
    let part_elems = n_rounds * ROUND_ELEMS;
    let mut b = Builder::new("second_level", [n_blocks as u32, 1, 1], N_THREADS);
    let from = b.global(DType::F32, n_blocks * part_elems, false);
    let out = b.global(DType::F32, n_blocks * N_THREADS as usize, true);
    let (block, thread, zero) = (b.block_x(), b.thread(), b.f32(0.0));
    let sums: Vec<_> = (0..4).map(|_| b.var(zero)).collect();
    let lane = b.mul_const(thread, 4);
    b.for_loop(0, N_PASSES as i32, 1, |b, pass| {
        let shifted = b.mad_const(pass, SHIFT, block);
        let mask = b.i32(n_blocks as i32 - 1);
        let part = b.and(shifted, mask);
        let first = b.mad_const(part, part_elems as i32, lane);
        for round in 0..n_rounds {
            let values = b.load(from, first, (round * ROUND_ELEMS) as i32, 4, None);
            for (&sum, value) in sums.iter().zip(values) {
                let old = b.get(sum);
                let new = b.add(old, value);
                b.set(sum, new);
            }
        }
    });
    let place = b.mad_const(block, N_THREADS as i32, thread);
    add_up(&mut b, &sums, out, place);
    let n_read = (N_PASSES * n_rounds * 4) as f32;
    Probe {
        name: "reads of the second-level cache",
        kernel: b.finish(),
        input: ones(n_blocks * part_elems),
        expected: n_read.to_le_bytes().repeat(n_blocks * N_THREADS as usize),
        amount: (N_PASSES * n_blocks * part_elems * 4) as f64,
        unit: "bytes",
    }
}

/// Stores the sum of some variables.
fn add_up(
    b: &mut Builder,
    sums: &[eggine_codegen_ptx::kir::Var],
    out: eggine_codegen_ptx::kir::Buffer,
    place: eggine_codegen_ptx::kir::Val,
) {
    let mut total = b.f32(0.0);
    for &sum in sums {
        let part = b.get(sum);
        total = b.add(total, part);
    }
    b.store(out, place, 0, &[total], None);
}

/// Every warp reads 512 neighbouring bytes of shared memory at once, without conflicts.
fn shared(sizes: &Sizes) -> Probe {
    const N_PASSES: usize = 128;
    const N_ROUNDS: usize = 4;
    let n_blocks = 2 * sizes.n_sms;
    let mut b = Builder::new("shared_reads", [n_blocks as u32, 1, 1], N_THREADS);
    let from = b.global(DType::F32, 4, false);
    let out = b.global(DType::F32, n_blocks * N_THREADS as usize, true);
    let array = b.shared(DType::F32, N_ROUNDS * ROUND_ELEMS);
    let (block, thread, zero) = (b.block_x(), b.thread(), b.f32(0.0));
    let lane = b.mul_const(thread, 4);
    let nothing = b.i32(0);
    let values = b.load(from, nothing, 0, 4, None);
    for round in 0..N_ROUNDS {
        b.store(array, lane, (round * ROUND_ELEMS) as i32, &values, None);
    }
    b.barrier();
    let sums: Vec<_> = (0..4).map(|_| b.var(zero)).collect();
    b.for_loop(0, N_PASSES as i32, 1, |b, pass| {
        // Another place each time, so that nothing is read before the loop.
        let shifted = b.add(thread, pass);
        let mask = b.i32(N_THREADS as i32 - 1);
        let thread = b.and(shifted, mask);
        let at = b.mul_const(thread, 4);
        for round in 0..N_ROUNDS {
            let values = b.load(array, at, (round * ROUND_ELEMS) as i32, 4, None);
            for (&sum, value) in sums.iter().zip(values) {
                let old = b.get(sum);
                let new = b.add(old, value);
                b.set(sum, new);
            }
        }
    });
    let place = b.mad_const(block, N_THREADS as i32, thread);
    add_up(&mut b, &sums, out, place);
    let n_read = (N_PASSES * N_ROUNDS * 4) as f32;
    Probe {
        name: "reads of shared memory",
        kernel: b.finish(),
        input: ones(4),
        expected: n_read.to_le_bytes().repeat(n_blocks * N_THREADS as usize),
        amount: (N_PASSES * N_ROUNDS * n_blocks * ROUND_ELEMS * 4) as f64,
        unit: "bytes",
    }
}

/// Measures the probes on a device, as one of a chip.
///
/// # Errors
///
/// If the device fails, or a probe computes something else.
pub(super) fn measure(
    device: &mut dyn Device,
    target: Target,
    chip: &Chip,
) -> Result<Vec<Isolated>, CalibrateError> {
    let n_sms = device.info().n_threads.max(1);
    let l2_bytes = match chip {
        Chip::Cpu(_) => 4 << 20,
        Chip::Gpu(chip) => chip.l2_bytes as usize,
    };
    let sizes = Sizes { n_sms, l2_bytes };
    let mut found = Vec::new();
    // 16 KiB are in a first-level cache after one round; 1 MiB is more than any has.
    let near = chase("latency of the first-level cache", 1 << 12);
    let far = chase("latency of the second-level cache", 1 << 18);
    for probe in [near, far, second_level(&sizes), shared(&sizes)] {
        let ns = run(device, target, &probe)?;
        let rate = probe.amount / ns;
        let clk_per_ns = match chip {
            Chip::Cpu(_) => None,
            Chip::Gpu(chip) => Some(chip.clk_per_ns),
        };
        let constant = clk_per_ns.and_then(|clk_per_ns| match probe.kernel.name.as_str() {
            "chase" if probe.input.len() > 1 << 14 => Some(("load_clk", clk_per_ns / rate)),
            "second_level" => Some(("l2_bytes_per_ns", rate)),
            "shared_reads" => Some(("shared_bytes_per_clk", rate / (n_sms as f64 * clk_per_ns))),
            _ => None,
        });
        let (value, unit) = match probe.unit {
            "loads" => (ns / probe.amount, "ns".to_owned()),
            unit => (rate, format!("{unit}/ns")),
        };
        let constant = constant.map(|(name, value)| (name.to_owned(), value));
        let name = probe.name.to_owned();
        found.push(Isolated { name, measured_ns: ns, value, unit, constant });
    }
    Ok(found)
}

/// The least time of a launch, its results compared.
fn run(device: &mut dyn Device, target: Target, probe: &Probe) -> Result<f64, CalibrateError> {
    let wrong = |verdict: String| CalibrateError::Wrong {
        probe: probe.name.to_owned(),
        schedule: "alone".to_owned(),
        verdict,
    };
    let ptx = emit(&probe.kernel, target).map_err(|err| wrong(err.to_string()))?;
    let module = device.load(&ptx)?;
    let from = device.alloc(probe.input.len())?;
    let out = device.alloc(probe.expected.len())?;
    let result = time(device, module, probe, from, out);
    device.free(from)?;
    device.free(out)?;
    device.unload(module);
    let (ns, found) = result?;
    match found == probe.expected {
        true => Ok(ns),
        false => Err(wrong("it computes something else".to_owned())),
    }
}

fn time(
    device: &mut dyn Device,
    module: eggine_runtime::ModuleId,
    probe: &Probe,
    from: DevicePtr,
    out: DevicePtr,
) -> Result<(f64, Vec<u8>), DeviceError> {
    device.write(from, &probe.input)?;
    device.fill(out, probe.expected.len(), 0xFF)?;
    let launch = Launch {
        module,
        entry: probe.kernel.name.clone(),
        grid: probe.kernel.grid,
        block: [probe.kernel.n_threads, 1, 1],
        params: vec![from.0, out.0],
        attributes: LaunchAttributes::default(),
    };
    device.launch(&launch)?;
    device.synchronize()?;
    let mut samples = Vec::with_capacity(N_SAMPLES);
    for _ in 0..N_SAMPLES {
        device.time(std::slice::from_ref(&launch), &mut samples)?;
    }
    let mut found = vec![0; probe.expected.len()];
    device.read(out, &mut found)?;
    let least = samples.into_iter().min().unwrap_or(0).max(1);
    Ok((least as f64, found))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use eggine_codegen_ptx::{CPU_DEVICE, H200};
    use eggine_runtime::CpuDevice;

    #[test]
    fn probes_compute_what_they_say_and_give_the_constants_of_a_gpu() {
        let mut device = CpuDevice::default();
        let found = measure(&mut device, Target::Sm80, &H200).unwrap();
        assert!(found.iter().all(|it| it.measured_ns > 0.0 && it.value > 0.0), "{found:?}");
        let constants: Vec<&str> =
            found.iter().filter_map(|it| Some(it.constant.as_ref()?.0.as_str())).collect();
        assert_eq!(constants, ["load_clk", "l2_bytes_per_ns", "shared_bytes_per_clk"]);
        let known: Vec<&str> = H200.constants().iter().map(|it| it.0).collect();
        assert!(constants.iter().all(|name| known.contains(name)));
        let found = measure(&mut device, Target::Sm80, &CPU_DEVICE).unwrap();
        assert!(found.len() == 4 && found.iter().all(|it| it.constant.is_none()), "{found:?}");
    }

    #[test]
    fn a_probe_that_computes_something_else_is_an_error() {
        let mut probe = chase("wrong", 1 << 12);
        probe.expected[0] ^= 1;
        let err = run(&mut CpuDevice::default(), Target::Sm80, &probe).unwrap_err().to_string();
        assert!(err.contains("probe `wrong`") && err.contains("something else"), "{err}");
    }

    /// The kernels are for hardware too: every load stays inside its buffer on the largest chip.
    #[test]
    fn probes_of_large_chips_fit_their_buffers() {
        for chip in eggine_codegen_ptx::predict::chips::GPUS {
            let sizes = Sizes { n_sms: chip.n_sms as usize, l2_bytes: chip.l2_bytes as usize };
            let probe = second_level(&sizes);
            assert!(probe.input.len() * 2 < sizes.l2_bytes, "{}: it stays in the cache", chip.name);
            assert!(probe.kernel.grid[0] as usize >= 4 * sizes.n_sms);
            emit(&probe.kernel, Target::Sm80).unwrap();
            emit(&shared(&sizes).kernel, Target::Sm80).unwrap();
        }
    }
}
