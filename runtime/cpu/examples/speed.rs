//! Measures the executor: GFLOP/s of GEMM kernels, ns per element of others. Each number is the minimum of
//! several runs, in CPU time of the thread if there is one thread (the machine may be busy), in wall time
//! if there are several.

#![allow(clippy::print_stdout, reason = "a measurement is printed")]
#![allow(clippy::unwrap_used, reason = "a panic is how a measurement fails")]

mod kernels;

use std::time::Instant;

use eggine_cpu::{LaunchConfig, Memory, Module, Options, Param, Simd, launch};
use kernels::Gemm;

/// CPU time of this thread.
#[cfg(target_os = "linux")]
fn thread_seconds() -> f64 {
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    }
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = [0i64; 2];
    // SAFETY: `timespec` is two 64-bit integers on 64-bit Linux.
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time[0] as f64 + time[1] as f64 * 1e-9
}

#[cfg(not(target_os = "linux"))]
fn thread_seconds() -> f64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

fn best(threads: usize, mut f: impl FnMut()) -> f64 {
    (0..15)
        .map(|_| {
            let (start, start_cpu) = (Instant::now(), thread_seconds());
            f();
            if threads == 1 { thread_seconds() - start_cpu } else { start.elapsed().as_secs_f64() }
        })
        .fold(f64::INFINITY, f64::min)
}

fn floats(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| (((i * 7919 % 1000) as f32) / 500.0 - 1.0).to_le_bytes()).collect()
}

fn main() {
    // With an argument, only what contains it.
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let is_wanted = |name: &str| name.contains(&wanted);
    let size = 512;
    let gemms = [
        Gemm { bm: 64, bn: 64, bk: 16, tm: 8, tn: 4 },
        Gemm { bm: 128, bn: 64, bk: 16, tm: 8, tn: 8 },
        Gemm { bm: 64, bn: 64, bk: 32, tm: 8, tn: 8 },
        Gemm { bm: 64, bn: 64, bk: 16, tm: 4, tn: 4 },
    ];
    for t in gemms {
        let text = kernels::gemm(t, size, size);
        let start = thread_seconds();
        let module = Module::load(&text).unwrap();
        let blocks = module.fused_blocks("gemm");
        let load_ms = (thread_seconds() - start) * 1e3;
        let mut memory = Memory::new();
        let buffers: Vec<u64> = (0..3).map(|_| memory.alloc(4 * size * size).unwrap()).collect();
        memory.write(buffers[0], &floats(size * size)).unwrap();
        memory.write(buffers[1], &floats(size * size)).unwrap();
        let params: Vec<Param> = buffers.iter().map(|&b| Param::U64(b)).collect();
        let config = LaunchConfig {
            grid: [(size / t.bn) as u32, (size / t.bm) as u32, 1],
            block: [(t.bm / t.tm * t.bn / t.tn) as u32, 1, 1],
            params: &params,
        };
        for simd in Simd::ALL.into_iter().filter(|s| s.is_available() && *s != Simd::Portable) {
            for threads in [1, 2] {
                let name = format!(
                    "gemm-{}x{}x{}-{}x{}-{simd:?}-x{threads}",
                    t.bm, t.bn, t.bk, t.tm, t.tn
                );
                if !is_wanted(&name) {
                    continue;
                }
                let options = Options { threads, simd: Some(simd), ..Options::default() };
                let s = best(threads, || {
                    launch(&module, "gemm", &memory, &config, &options).unwrap();
                });
                let gflops = 2.0 * (size as f64).powi(3) / s / 1e9;
                println!(
                    "{name}: {gflops:.1} GFLOP/s (load {load_ms:.2} ms, {} fused)",
                    blocks.len()
                );
            }
        }
    }
    let n = 1 << 20;
    let mut memory = Memory::new();
    let (x, y) = (memory.alloc(4 * n).unwrap(), memory.alloc(4 * n).unwrap());
    memory.write(x, &floats(n)).unwrap();
    for (name, text, n_blocks, last) in [
        ("softmax", kernels::softmax(0.125), n / 1024, n / 1024),
        ("relu", kernels::relu(), n / 128, n),
    ] {
        let module = Module::load(&text).unwrap();
        let params = [Param::U64(x), Param::U64(y), Param::U32(last as u32)];
        let config =
            LaunchConfig { grid: [n_blocks as u32, 1, 1], block: [128, 1, 1], params: &params };
        if !is_wanted(name) {
            continue;
        }
        for threads in [1, 2] {
            let options = Options { threads, ..Options::default() };
            let s = best(threads, || {
                launch(&module, name, &memory, &config, &options).unwrap();
            });
            println!("{name} x{threads}: {:.2} ns/element", s * 1e9 / n as f64);
        }
    }
}
