//! Planted faults are reported with kernel, line, block and thread; the kernels without them are not.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../examples/kernels/mod.rs"]
mod kernels;

use eggine_cpu::{
    Fault, FaultKind, LaunchConfig, LaunchError, LoadError, Memory, Module, Options, Param, Simd,
    Space, launch,
};
use kernels::Gemm;

const CHECKING: Options =
    Options { threads: 1, simd: None, checking: true, step_limit: Some(1_000_000), count: false };

/// Line of the n-th (from 0) line that contains `pattern`.
fn line(text: &str, pattern: &str, n: usize) -> u32 {
    let found = text.lines().enumerate().filter(|(_, l)| l.contains(pattern)).nth(n);
    found.unwrap_or_else(|| panic!("no `{pattern}`")).0 as u32 + 1
}

/// The text with the n-th line that contains `pattern` replaced.
fn replace(text: &str, pattern: &str, n: usize, by: &str) -> String {
    let at = line(text, pattern, n) as usize - 1;
    text.lines()
        .enumerate()
        .map(|(i, l)| if i == at { format!("    {by}\n") } else { format!("{l}\n") })
        .collect()
}

const T: Gemm = Gemm { bm: 64, bn: 64, bk: 16, tm: 8, tn: 4 };

/// 64x64x32 GEMM; the buffers can be made smaller by some bytes.
fn gemm(text: &str, short: [usize; 3], options: &Options) -> Result<(), LaunchError> {
    let module = Module::load(text).unwrap();
    let mut memory = Memory::new();
    let sizes = [64 * 32 * 4 - short[0], 32 * 64 * 4 - short[1], 64 * 64 * 4 - short[2]];
    let buffers = sizes.map(|n| memory.alloc(n).unwrap());
    memory.fill(buffers[0], 1, sizes[0]).unwrap();
    memory.fill(buffers[1], 2, sizes[1]).unwrap();
    let params = buffers.map(Param::U64);
    let config = LaunchConfig { grid: [1; 3], block: [128, 1, 1], params: &params };
    launch(&module, "gemm", &memory, &config, options).map(drop)
}

fn fault(result: Result<(), LaunchError>) -> Fault {
    match result {
        Err(LaunchError::Fault(fault)) => *fault,
        other => panic!("no fault: {other:?}"),
    }
}

/// All levels without checking, and checking.
fn all_options() -> Vec<Options> {
    let levels = Simd::ALL.into_iter().filter(|s| s.is_available());
    let fast = levels.map(|s| Options { simd: Some(s), checking: false, ..CHECKING });
    fast.chain([CHECKING]).collect()
}

#[test]
fn correct_kernels_are_not_reported() {
    for options in all_options() {
        gemm(&kernels::gemm(T, 64, 32), [0; 3], &options).unwrap();
    }
}

#[test]
fn off_by_one_bound() {
    // The edge predicate lets one thread too many pass.
    let text = kernels::relu().replace("setp.ge.s32", "setp.gt.s32");
    let module = Module::load(&text).unwrap();
    for options in all_options() {
        let mut memory = Memory::new();
        let (x, y) = (memory.alloc(4 * 200).unwrap(), memory.alloc(4 * 200).unwrap());
        memory.fill(x, 0, 800).unwrap();
        let params = [Param::U64(x), Param::U64(y), Param::U32(200)];
        let config = LaunchConfig { grid: [2, 1, 1], block: [128, 1, 1], params: &params };
        let fault = fault(launch(&module, "relu", &memory, &config, &options).map(drop));
        assert_eq!(fault.kernel, "relu");
        assert_eq!(fault.line, line(&text, "ld.global.f32", 0));
        assert_eq!((fault.block, fault.thread), ([1, 0, 0], [72, 0, 0]));
        let FaultKind::OutOfBounds {
            space: Space::Global,
            address,
            n_bytes: 4,
            nearest: Some(nearest),
        } = fault.kind
        else {
            panic!("{fault}")
        };
        assert_eq!(
            (address, nearest.base, nearest.n_bytes, nearest.distance),
            (x + 800, x, 800, 0)
        );
    }
}

#[test]
fn missing_predicate_on_a_ragged_edge() {
    let text = kernels::relu().replace("    @%p0 bra $L0;\n", "");
    let module = Module::load(&text).unwrap();
    for options in all_options() {
        let mut memory = Memory::new();
        let (x, y) = (memory.alloc(4 * 100).unwrap(), memory.alloc(4 * 100).unwrap());
        memory.fill(x, 0, 400).unwrap();
        let params = [Param::U64(x), Param::U64(y), Param::U32(100)];
        let config = LaunchConfig { grid: [1; 3], block: [128, 1, 1], params: &params };
        let fault = fault(launch(&module, "relu", &memory, &config, &options).map(drop));
        assert_eq!((fault.line, fault.thread), (line(&text, "ld.global.f32", 0), [100, 0, 0]));
        assert!(fault.to_string().contains("kernel `relu`, line "), "{fault}");
    }
}

#[test]
fn dropped_barrier() {
    // Without the barrier between stores and loads, a warp reads what another stores.
    let text = replace(&kernels::gemm(T, 64, 32), "bar.sync 0;", 1, "membar.gl;");
    let fault = fault(gemm(&text, [0; 3], &CHECKING));
    match fault.kind {
        FaultKind::Uninitialised { space: Space::Shared, .. } | FaultKind::Race { .. } => {}
        _ => panic!("{fault}"),
    }
    assert!(
        (line(&text, "ld.shared", 0)..=line(&text, "ld.shared", 47)).contains(&fault.line),
        "{fault}"
    );
    // Without the one between loads and the next stores, a warp overwrites what another reads.
    let text = replace(&kernels::gemm(T, 64, 32), "bar.sync 0;", 0, "membar.gl;");
    let fault = self::fault(gemm(&text, [0; 3], &CHECKING));
    // Which of the two comes first depends on the order of the warps.
    let stores = line(&text, "st.shared", 0)..=line(&text, "st.shared", 9);
    let loads = line(&text, "ld.shared", 0)..=line(&text, "ld.shared", 47);
    let FaultKind::Race { other_line, other_warp, .. } = fault.kind else { panic!("{fault}") };
    assert!(stores.contains(&other_line) && loads.contains(&fault.line), "{fault}");
    assert_ne!(other_warp, fault.thread[0] / 32);
}

#[test]
fn wrong_index_stride() {
    // Rows of the result are taken to be wider than they are.
    let text = replace(
        &kernels::gemm(T, 64, 32),
        "mul.lo.s32 %r43, %r43, 64;",
        0,
        "mul.lo.s32 %r43, %r43, 68;",
    );
    for options in all_options() {
        let fault = fault(gemm(&text, [0; 3], &options));
        assert!(
            (line(&text, "st.global", 0)..=line(&text, "st.global", 7)).contains(&fault.line),
            "{fault}"
        );
        assert!(
            matches!(fault.kind, FaultKind::OutOfBounds { space: Space::Global, n_bytes: 16, .. }),
            "{fault}"
        );
    }
}

#[test]
fn uninitialised_shared_read() {
    // One of the stores of the tile is missing.
    let good = kernels::gemm(T, 64, 32);
    let text = replace(&good, "st.shared.f32", 2, "membar.gl;");
    let fault = fault(gemm(&text, [0; 3], &CHECKING));
    assert!(matches!(fault.kind, FaultKind::Uninitialised { space: Space::Shared, .. }), "{fault}");
    assert!(
        (line(&text, "ld.shared", 0)..=line(&text, "ld.shared", 47)).contains(&fault.line),
        "{fault}"
    );
}

#[test]
fn unaligned_vector_access() {
    let good = kernels::gemm(T, 64, 32);
    let text = good.replace("[%r41+256]", "[%r41+260]");
    for options in all_options() {
        let fault = fault(gemm(&text, [0; 3], &options));
        assert_eq!(fault.line, line(&text, "[%r41+260]", 0), "{fault}");
        assert!(
            matches!(fault.kind, FaultKind::Misaligned { space: Space::Shared, n_bytes: 16, .. }),
            "{fault}"
        );
    }
}

#[test]
fn write_past_the_output() {
    let text = kernels::gemm(T, 64, 32);
    for options in all_options() {
        let fault = fault(gemm(&text, [0, 0, 16], &options));
        assert_eq!(fault.line, line(&text, "st.global", 7), "{fault}");
        assert_eq!(fault.thread, [127, 0, 0], "{fault}");
        let FaultKind::OutOfBounds { nearest: Some(nearest), .. } = fault.kind else {
            panic!("{fault}")
        };
        assert_eq!((nearest.n_bytes, nearest.distance), (64 * 64 * 4 - 16, 0));
    }
}

#[test]
fn infinite_loop() {
    let good = kernels::gemm(T, 64, 32);
    let text = replace(&good, "add.s32 %r42, %r42, 16;", 0, "add.s32 %r42, %r42, 0;")
        .replace("add.s64 %rd10, %rd10, 64", "add.s64 %rd10, %rd10, 0");
    let text = text.replace("add.s64 %rd11, %rd11, 64", "add.s64 %rd11, %rd11, 0");
    let text = text
        .replace("add.s64 %rd20, %rd20, 4096", "add.s64 %rd20, %rd20, 0")
        .replace("add.s64 %rd21, %rd21, 4096", "add.s64 %rd21, %rd21, 0");
    for options in all_options() {
        let fault = fault(gemm(&text, [0; 3], &Options { step_limit: Some(100_000), ..options }));
        assert_eq!(fault.kind, FaultKind::StepLimit { limit: 100_000 });
        let loop_lines = line(&text, "$L0:", 0)..=line(&text, "bra $L0;", 0);
        assert!(loop_lines.contains(&fault.line), "{fault}");
    }
}

/// A kernel of 64 threads with an output of 64 words at `%rd1 + 4 tid = %rd3`, and shared `s` and `t`.
fn run(body: &str, options: &Options) -> Result<(), LaunchError> {
    let text = text(body);
    let module = Module::load(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut memory = Memory::new();
    let y = memory.alloc(256).unwrap();
    let params = [Param::U64(y)];
    let config = LaunchConfig { grid: [1; 3], block: [64, 1, 1], params: &params };
    launch(&module, "k", &memory, &config, options).map(drop)
}

fn text(body: &str) -> String {
    format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n\n.visible .entry k(\n    .param .u64 y\n)\n{{
    .reg .pred %p<8>;\n    .reg .b32 %r<16>;\n    .reg .b64 %rd<8>;\n    .shared .align 16 .b8 s[256];\n    .shared .align 16 .b8 t[256];
    ld.param.u64 %rd1, [y];\n    mov.u32 %r0, %tid.x;\n    mul.wide.u32 %rd2, %r0, 4;\n    add.s64 %rd3, %rd1, %rd2;\n    shl.b32 %r1, %r0, 2;\n{body}    ret;\n}}\n"
    )
}

#[test]
fn divergent_barrier() {
    let body = "    setp.lt.u32 %p0, %r0, 16;\n    @%p0 bra $L0;\n    bar.sync 0;\n$L0:\n";
    for options in all_options() {
        let fault = fault(run(body, &options));
        assert_eq!(fault.line, line(&text(body), "bar.sync", 0));
        assert_eq!(fault.kind, FaultKind::DivergentBarrier { active: 0xffff_0000, alive: !0 });
    }
}

#[test]
fn warps_at_different_barriers_are_a_deadlock() {
    let body = "    setp.lt.u32 %p0, %r0, 32;\n    @%p0 bra $L0;\n    bar.sync 1;\n$L0:\n    bar.sync 0;\n    bar.sync 1;\n";
    for options in all_options() {
        let fault = fault(run(body, &options));
        let lines = [line(&text(body), "bar.sync 0", 0), line(&text(body), "bar.sync 1", 0)];
        assert_eq!(
            fault.kind,
            FaultKind::Deadlock { waiting: vec![(0, lines[0], 0), (1, lines[1], 1)] }
        );
    }
}

#[test]
fn uninitialised_global_read() {
    let body = "    ld.global.u32 %r2, [%rd3];\n    st.global.u32 [%rd3], %r2;\n";
    assert!(run(body, &Options::default()).is_ok());
    let fault = fault(run(body, &CHECKING));
    assert_eq!(fault.line, line(&text(body), "ld.global", 0));
    assert!(matches!(fault.kind, FaultKind::Uninitialised { space: Space::Global, .. }), "{fault}");
    // What the kernel wrote itself it may read.
    run("    st.global.u32 [%rd3], %r0;\n    ld.global.u32 %r2, [%rd3];\n", &CHECKING).unwrap();
}

#[test]
fn copy_that_nobody_waits_for() {
    let fill = "    st.global.u32 [%rd3], %r0;\n    cp.async.ca.shared.global [%r1], [%rd3], 4;\n    cp.async.commit_group;\n";
    let read = "    ld.shared.u32 %r2, [%r1];\n";
    run(&format!("{fill}    cp.async.wait_group 0;\n{read}"), &CHECKING).unwrap();
    for wait in ["", "    cp.async.wait_group 1;\n"] {
        let body = format!("{fill}{wait}{read}");
        let fault = fault(run(&body, &CHECKING));
        assert_eq!(fault.line, line(&text(&body), "ld.shared", 0));
        let FaultKind::AsyncInFlight { other_line, .. } = fault.kind else { panic!("{fault}") };
        assert_eq!(other_line, line(&text(&body), "cp.async.ca", 0));
    }
}

#[test]
fn overflow_from_one_shared_array_into_another() {
    let body = "    st.shared.u32 [t], %r0;\n    st.shared.u32 [s+256], %r0;\n";
    // Lanes of different warps store to the same word, which would be a race; one warp only.
    let body = format!("    setp.ge.u32 %p0, %r0, 32;\n    @%p0 ret;\n{body}");
    let fault = fault(run(&body, &CHECKING));
    assert_eq!(fault.line, line(&text(&body), "[s+256]", 0));
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { space: Space::Shared, .. }), "{fault}");
}

#[test]
fn division_by_zero_and_inactive_shuffle() {
    let body = "    and.b32 %r2, %r0, 3;\n    div.s32 %r3, %r0, %r2;\n";
    let fault = fault(run(body, &CHECKING));
    assert_eq!((fault.kind, fault.line), (FaultKind::DivisionByZero, line(&text(body), "div", 0)));
    let body = "    setp.lt.u32 %p0, %r0, 8;\n    @%p0 ret;\n    shfl.sync.bfly.b32 %r2, %r0, 8, 31, -1;\n";
    let fault = self::fault(run(body, &CHECKING));
    assert_eq!((fault.kind, fault.thread), (FaultKind::ShuffleInactive { lane: 0 }, [8, 0, 0]));
}

#[test]
fn what_cannot_be_loaded_or_launched() {
    let good = kernels::relu();
    assert!(matches!(Module::load("nonsense"), Err(LoadError::Parse(_))));
    let no_end = good.replace("    ret;\n", "");
    assert!(Module::load(&no_end).is_err());
    let module = Module::load(&good).unwrap();
    let memory = Memory::new();
    let run = |entry, grid, block, params: &[Param]| {
        launch(&module, entry, &memory, &LaunchConfig { grid, block, params }, &Options::default())
    };
    let params = [Param::U64(0), Param::U64(0), Param::U32(0)];
    assert!(matches!(run("other", [1; 3], [128, 1, 1], &params), Err(LaunchError::NoEntry { .. })));
    assert!(matches!(run("relu", [1; 3], [64, 1, 1], &params), Err(LaunchError::Block { .. })));
    assert!(matches!(run("relu", [1, 0, 1], [128, 1, 1], &params), Err(LaunchError::Grid { .. })));
    assert!(matches!(
        run("relu", [1; 3], [128, 1, 1], &params[..2]),
        Err(LaunchError::ParamCount { .. })
    ));
    let wrong = [params[0], params[2], params[2]];
    assert!(matches!(
        run("relu", [1; 3], [128, 1, 1], &wrong),
        Err(LaunchError::ParamType { index: 1, .. })
    ));
    assert!(run("relu", [1; 3], [128, 1, 1], &params).is_ok());
}
