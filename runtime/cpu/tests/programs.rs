//! Whole kernels against reference values, at every SIMD level, number of threads and mode.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../examples/kernels/mod.rs"]
mod kernels;

use eggine_cpu::{Class, LaunchConfig, LaunchReport, Memory, Module, Options, Param, Simd, launch};
use kernels::Gemm;

fn floats(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 % 1009) as f32) / 500.0 - 1.0).collect()
}

fn upload(memory: &mut Memory, values: &[f32]) -> u64 {
    let at = memory.alloc(4 * values.len()).unwrap();
    memory.write(at, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    at
}

fn download(memory: &Memory, at: u64, n: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * n];
    memory.read(at, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn all_options() -> Vec<Options> {
    let mut all = Vec::new();
    for simd in Simd::ALL.into_iter().filter(|s| s.is_available()) {
        for (threads, checking) in [(1, false), (3, false), (1, true)] {
            all.push(Options {
                threads,
                simd: Some(simd),
                checking,
                count: checking,
                step_limit: Some(1 << 30),
            });
        }
    }
    all
}

fn run_gemm(
    text: &str,
    t: Gemm,
    [m, n, k]: [usize; 3],
    options: &Options,
) -> (Vec<f32>, LaunchReport) {
    let module = Module::load(text).unwrap();
    let mut memory = Memory::new();
    let (a, b) = (upload(&mut memory, &floats(m * k)), upload(&mut memory, &floats(k * n)));
    let c = memory.alloc(4 * m * n).unwrap();
    let params = [Param::U64(a), Param::U64(b), Param::U64(c)];
    let config = LaunchConfig {
        grid: [(n / t.bn) as u32, (m / t.bm) as u32, 1],
        block: [(t.bm / t.tm * t.bn / t.tn) as u32, 1, 1],
        params: &params,
    };
    let report = launch(&module, "gemm", &memory, &config, options).unwrap();
    (download(&memory, c, m * n), report)
}

#[test]
fn gemm_is_exact_at_every_level() {
    for t in [
        Gemm { bm: 64, bn: 64, bk: 16, tm: 8, tn: 4 },
        Gemm { bm: 128, bn: 64, bk: 16, tm: 8, tn: 8 },
        Gemm { bm: 64, bn: 32, bk: 16, tm: 4, tn: 4 },
        Gemm { bm: 32, bn: 128, bk: 16, tm: 4, tn: 8 },
        Gemm { bm: 64, bn: 32, bk: 16, tm: 16, tn: 4 },
    ] {
        let [m, n, k] = [128, 128, 96];
        let text = kernels::gemm(t, n, k);
        let blocks = Module::load(&text).unwrap().fused_blocks("gemm");
        assert_eq!(blocks.len(), 1, "{t:?} is not fused");
        assert_eq!([blocks[0].n_rows, blocks[0].n_cols, blocks[0].n_steps], [t.tm, t.tn, t.bk]);
        let (a, b) = (floats(m * k), floats(k * n));
        let mut expected = vec![0.0f32; m * n];
        for i in 0..m {
            for j in 0..n {
                expected[i * n + j] =
                    (0..k).fold(0.0, |sum, l| a[i * k + l].mul_add(b[l * n + j], sum));
            }
        }
        for options in all_options() {
            let (found, _) = run_gemm(&text, t, [m, n, k], &options);
            assert!(found == expected, "{t:?} {options:?}");
        }
    }
}

#[test]
fn fusion_does_not_depend_on_order_or_orientation() {
    // Swap factors, reverse the order within a step, and put an unrelated instruction in the middle.
    let t = Gemm { bm: 64, bn: 64, bk: 16, tm: 4, tn: 4 };
    let text = kernels::gemm(t, 64, 64);
    let plain = run_gemm(&text, t, [64, 64, 64], &Options::default()).0;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let is_fma = |l: &String| l.trim_start().starts_with("fma");
    let mut at = 0;
    while at < lines.len() {
        let n = lines[at..].iter().take_while(|l| is_fma(l)).count();
        lines[at..at + n].reverse();
        for line in lines[at..at + n].iter_mut().step_by(2) {
            let operands: Vec<String> = line
                .trim()
                .trim_start_matches("fma.rn.f32 ")
                .trim_end_matches(';')
                .split(", ")
                .map(str::to_owned)
                .collect();
            *line = format!(
                "    fma.rn.f32 {}, {}, {}, {};",
                operands[0], operands[2], operands[1], operands[3]
            );
        }
        at += n.max(1);
    }
    let middle = lines.iter().rposition(is_fma).unwrap() - 20;
    lines.insert(middle, "    add.s32 %r50, %r42, 1;".into());
    let changed = lines.join("\n") + "\n";
    assert_eq!(Module::load(&changed).unwrap().fused_blocks("gemm").len(), 1);
    for options in all_options() {
        assert!(run_gemm(&changed, t, [64, 64, 64], &options).0 == plain, "{options:?}");
    }
}

#[test]
fn softmax_is_right_at_every_level() {
    let module = Module::load(&kernels::softmax(0.5)).unwrap();
    let n_rows = 5;
    let x = floats(1024 * n_rows);
    for options in all_options() {
        let mut memory = Memory::new();
        let (at_x, at_y) = (upload(&mut memory, &x), memory.alloc(4096 * n_rows).unwrap());
        let params = [Param::U64(at_x), Param::U64(at_y), Param::U32(n_rows as u32)];
        let config = LaunchConfig { grid: [8, 1, 1], block: [128, 1, 1], params: &params };
        launch(&module, "softmax", &memory, &config, &options).unwrap();
        let y = download(&memory, at_y, 1024 * n_rows);
        for (x, y) in x.chunks(1024).zip(y.chunks(1024)) {
            let most = x.iter().fold(f64::NEG_INFINITY, |m, v| m.max(f64::from(*v) * 0.5));
            let sum: f64 = x.iter().map(|v| (f64::from(*v) * 0.5 - most).exp()).sum();
            for (x, y) in x.iter().zip(y) {
                let expected = (f64::from(*x) * 0.5 - most).exp() / sum;
                assert!(
                    (f64::from(*y) - expected).abs() < 1e-6 * expected + 1e-9,
                    "{options:?}: {y} {expected}"
                );
            }
        }
    }
}

#[test]
fn ragged_edge_writes_what_it_should() {
    let module = Module::load(&kernels::relu()).unwrap();
    for n in [1, 31, 32, 33, 127, 128, 1000] {
        for options in all_options() {
            let mut memory = Memory::new();
            let x = floats(n);
            let (at_x, at_y) = (upload(&mut memory, &x), memory.alloc(4 * n).unwrap());
            let params = [Param::U64(at_x), Param::U64(at_y), Param::U32(n as u32)];
            let config = LaunchConfig {
                grid: [n.div_ceil(128) as u32, 1, 1],
                block: [128, 1, 1],
                params: &params,
            };
            launch(&module, "relu", &memory, &config, &options).unwrap();
            let expected: Vec<f32> = x.iter().map(|x| x.mul_add(2.0, 1.0).max(0.0)).collect();
            assert_eq!(download(&memory, at_y, n), expected);
        }
    }
}

/// Runs `body` in a kernel of 64 threads with `%rd0` the input, `%rd1` the output, `%r0` the thread.
fn run_body(body: &str, input: &[u32], n_out: usize, options: &Options) -> Vec<u32> {
    let text = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n\n.visible .entry k(\n    .param .u64 x,\n    .param .u64 y\n)\n{{
    .reg .pred %p<8>;\n    .reg .b16 %h<8>;\n    .reg .b32 %r<32>;\n    .reg .b64 %rd<32>;\n    .reg .f32 %f<32>;\n    .reg .f64 %fd<8>;\n    .shared .align 16 .b8 s[1024];
    ld.param.u64 %rd0, [x];\n    ld.param.u64 %rd1, [y];\n    mov.u32 %r0, %tid.x;\n    mul.wide.u32 %rd2, %r0, 4;\n    add.s64 %rd3, %rd0, %rd2;\n    add.s64 %rd4, %rd1, %rd2;
{body}    ret;\n}}\n"
    );
    let module = Module::load(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut memory = Memory::new();
    let (x, y) = (memory.alloc(4 * input.len()).unwrap(), memory.alloc(4 * n_out).unwrap());
    memory.write(x, &input.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    memory.fill(y, 0xaa, 4 * n_out).unwrap();
    let params = [Param::U64(x), Param::U64(y)];
    let config = LaunchConfig { grid: [1; 3], block: [64, 1, 1], params: &params };
    launch(&module, "k", &memory, &config, options).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut bytes = vec![0; 4 * n_out];
    memory.read(y, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}

const NOT_WRITTEN: u32 = 0xaaaa_aaaa;

fn for_all_options(body: &str, input: &[u32], expected: &[u32]) {
    for options in all_options() {
        assert_eq!(
            run_body(body, input, expected.len(), &options),
            expected,
            "{options:?}\n{body}"
        );
    }
}

#[test]
fn loops_with_different_counts_reconverge() {
    // Thread i adds 1 + ... + i; then everybody stores.
    let body = "    mov.u32 %r1, 0;\n    mov.u32 %r2, 0;\n$L0:\n    add.s32 %r1, %r1, %r2;\n    add.s32 %r2, %r2, 1;\n    setp.le.s32 %p0, %r2, %r0;\n    @%p0 bra $L0;\n    activemask.b32 %r3;\n    st.global.u32 [%rd4], %r1;\n    st.global.u32 [%rd4+256], %r3;\n";
    let expected: Vec<u32> = (0..64).map(|i| i * (i + 1) / 2).chain([!0; 64]).collect();
    for_all_options(body, &[0], &expected);
}

#[test]
fn both_sides_of_a_branch_and_early_return() {
    let body = "    and.b32 %r1, %r0, 1;\n    setp.eq.s32 %p0, %r1, 0;\n    setp.gt.s32 %p1, %r0, 40;\n    @%p1 ret;\n    @%p0 bra $L0;\n    mov.u32 %r2, 7;\n    bra.uni $L1;\n$L0:\n    mov.u32 %r2, 9;\n$L1:\n    bar.sync 0;\n    st.global.u32 [%rd4], %r2;\n";
    let expected: Vec<u32> = (0..64)
        .map(|i| {
            if i > 40 {
                NOT_WRITTEN
            } else if i % 2 == 0 {
                9
            } else {
                7
            }
        })
        .collect();
    for_all_options(body, &[0], &expected);
}

#[test]
fn shuffles_and_votes() {
    let body = "    ld.global.u32 %r1, [%rd3];\n    shfl.sync.bfly.b32 %r2, %r1, 5, 31, -1;\n    shfl.sync.down.b32 %r3, %r1, 3, 31, -1;\n    shfl.sync.up.b32 %r4, %r1, 3, 0, -1;\n    shfl.sync.idx.b32 %r5, %r1, 9, 31, -1;\n    shfl.sync.idx.b32 %r6, %r1, 2, 6175, -1;\n    setp.lt.u32 %p0, %r1, 110;\n    vote.sync.ballot.b32 %r7, %p0, -1;\n    st.global.u32 [%rd4], %r2;\n    st.global.u32 [%rd4+256], %r3;\n    st.global.u32 [%rd4+512], %r4;\n    st.global.u32 [%rd4+768], %r5;\n    st.global.u32 [%rd4+1024], %r6;\n    st.global.u32 [%rd4+1280], %r7;\n";
    let input: Vec<u32> = (100..164).collect();
    let at = |i: u32| 100 + i;
    let mut expected = Vec::new();
    expected.extend((0..64).map(|i| at(i ^ 5)));
    expected.extend((0..64).map(|i| if i % 32 + 3 <= 31 { at(i + 3) } else { at(i) }));
    expected.extend((0..64).map(|i| if i % 32 >= 3 { at(i - 3) } else { at(i) }));
    expected.extend((0..64).map(|i| at(i / 32 * 32 + 9)));
    // 6175 = 0x181f: segments of 8 lanes.
    expected.extend((0..64).map(|i| at(i / 8 * 8 + 2)));
    expected.extend((0..64).map(|i| if i < 32 { 0x3ff } else { 0 }));
    for_all_options(body, &input, &expected);
}

#[test]
fn memory_instructions_of_every_size() {
    // Through shared memory at odd places, by bytes, halves, words and vectors.
    let body = "    ld.global.u8 %r1, [%rd3+1];\n    ld.global.s8 %r2, [%rd3+3];\n    ld.global.b16 %h1, [%rd3+2];\n    cvt.u32.u16 %r3, %h1;\n    shl.b32 %r4, %r0, 2;\n    st.shared.u8 [%r4], %r1;\n    st.shared.b16 [%r4+2], %h1;\n    st.shared.u8 [%r4+1], %r2;\n    bar.sync 0;\n    xor.b32 %r5, %r4, 4;\n    ld.shared.u32 %r6, [%r5];\n    ld.shared.s8 %r7, [%r5+1];\n    ld.shared.u8 %r8, [%r4+1];\n    ld.shared.b16 %h2, [%r5+2];\n    st.global.b16 [%rd4], %h2;\n    st.global.u8 [%rd4+2], %r7;\n    st.global.u8 [%rd4+3], %r8;\n    st.global.u32 [%rd4+256], %r6;\n    st.global.u32 [%rd4+512], %r7;\n";
    let input: Vec<u32> = (0..64u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let byte = |i: usize, k: usize| input[i].to_le_bytes()[k];
    let word = |i: usize| u32::from_le_bytes([byte(i, 1), byte(i, 3), byte(i, 2), byte(i, 3)]);
    let mut expected = Vec::new();
    expected.extend(
        (0..64).map(|i| {
            u32::from_le_bytes([byte(i ^ 1, 2), byte(i ^ 1, 3), byte(i ^ 1, 3), byte(i, 3)])
        }),
    );
    expected.extend((0..64).map(|i| word(i ^ 1)));
    expected.extend((0..64).map(|i| i32::from(byte(i ^ 1, 3) as i8) as u32));
    for_all_options(body, &input, &expected);
}

#[test]
fn vectors_in_every_pattern() {
    // Loads: neighbouring, the same, reversed; with all threads and without every third.
    for width in [2usize, 4] {
        let regs = |first: usize| {
            format!(
                "{{{}}}",
                (first..first + width).map(|i| format!("%r{i}")).collect::<Vec<_>>().join(", ")
            )
        };
        for (address, source) in [("%r0", 0), ("0", 1), ("%r20", 2), ("%r21", 3)] {
            for guard in ["", "@%p1 "] {
                let n = 4 * width;
                let body = format!(
                    "    mov.u32 %r19, 63;\n    sub.s32 %r20, %r19, %r0;\n    xor.b32 %r21, %r0, 5;\n    rem.u32 %r18, %r0, 3;\n    setp.ne.s32 %p1, %r18, 0;\n    mov.u32 %r17, {address};\n    mul.wide.u32 %rd5, %r17, {n};\n    add.s64 %rd6, %rd0, %rd5;\n    mul.wide.u32 %rd7, %r0, {n};\n    add.s64 %rd8, %rd1, %rd7;\n    {guard}ld.global.v{width}.u32 {}, [%rd6];\n    mul.lo.s32 %r10, %r0, {n};\n    {guard}st.shared.v{width}.u32 [%r10], {};\n    bar.sync 0;\n    mul.lo.s32 %r11, %r17, {n};\n    and.b32 %r12, %r11, 1023;\n    {guard}ld.shared.v{width}.u32 {}, [%r10];\n    {guard}st.global.v{width}.u32 [%rd8], {};\n",
                    regs(1),
                    regs(1),
                    regs(13),
                    regs(13)
                );
                let input: Vec<u32> = (0..64 * width as u32).map(|i| i * 3 + 1).collect();
                let expected: Vec<u32> = (0..64 * width)
                    .map(|e| {
                        let (i, c) = (e / width, e % width);
                        let from = [i, 0, 63 - i, i ^ 5][source];
                        if guard.is_empty() || i % 3 != 0 {
                            input[from * width + c]
                        } else {
                            NOT_WRITTEN
                        }
                    })
                    .collect();
                for_all_options(&body, &input, &expected);
            }
        }
    }
}

#[test]
fn wide_vectors() {
    let body = "    mul.wide.u32 %rd5, %r0, 16;\n    add.s64 %rd6, %rd0, %rd5;\n    add.s64 %rd7, %rd1, %rd5;\n    ld.global.v2.u64 {%rd8, %rd9}, [%rd6];\n    st.global.v2.u64 [%rd7], {%rd9, %rd8};\n";
    let input: Vec<u32> = (0..256).collect();
    let expected: Vec<u32> = (0..256).map(|e| e / 4 * 4 + (e + 2) % 4).collect();
    for_all_options(body, &input, &expected);
    let body = "    mul.wide.u32 %rd5, %r0, 8;\n    add.s64 %rd6, %rd0, %rd5;\n    add.s64 %rd7, %rd1, %rd5;\n    ld.global.v4.b16 {%h0, %h1, %h2, %h3}, [%rd6];\n    st.global.v4.b16 [%rd7], {%h3, %h2, %h1, %h0};\n";
    let input: Vec<u32> = (0..128).map(|i| i | (i + 1000) << 16).collect();
    let expected: Vec<u32> = (0..128usize).map(|e| input[e ^ 1].rotate_left(16)).collect();
    for_all_options(body, &input, &expected);
}

#[test]
fn atomics_add_every_lane() {
    let body = "    ld.global.u32 %r1, [%rd3];\n    atom.global.add.u32 %r2, [%rd1], %r1;\n    mov.b32 %f1, %r1;\n    red.global.add.f32 [%rd1+4], %f1;\n";
    for options in all_options() {
        // The output begins as 0xaaaaaaaa, a tiny negative float.
        let found = run_body(body, &[1.5f32.to_bits(); 64], 2, &options);
        assert_eq!(found[0], NOT_WRITTEN.wrapping_add(1.5f32.to_bits().wrapping_mul(64)));
        assert_eq!(f32::from_bits(found[1]), 96.0);
    }
}

#[test]
fn asynchronous_copies_arrive() {
    let body = "    shl.b32 %r4, %r0, 2;\n    cp.async.ca.shared.global [%r4], [%rd3], 4;\n    cp.async.commit_group;\n    cp.async.ca.shared.global [%r4+256], [%rd3+256], 4;\n    cp.async.commit_group;\n    cp.async.wait_group 0;\n    bar.sync 0;\n    xor.b32 %r5, %r4, 128;\n    ld.shared.u32 %r6, [%r5+256];\n    ld.shared.u32 %r7, [%r5];\n    add.s32 %r6, %r6, %r7;\n    st.global.u32 [%rd4], %r6;\n";
    let input: Vec<u32> = (0..128).collect();
    let expected: Vec<u32> = (0..64).map(|i| 2 * (i ^ 32) + 64).collect();
    for_all_options(body, &input, &expected);
}

#[test]
fn counters_count() {
    let t = Gemm { bm: 64, bn: 64, bk: 16, tm: 8, tn: 4 };
    let options = Options { count: true, ..Options::default() };
    let (_, report) = run_gemm(&kernels::gemm(t, 64, 32), t, [64, 64, 32], &options);
    let c = report.counters;
    assert_eq!(c.of(Class::Fma), (64 * 64 * 32) / 32);
    assert_eq!(c.global_load_bytes, 2 * 4 * 64 * 32);
    assert_eq!(c.global_store_bytes, 4 * 64 * 64);
    assert_eq!(c.of(Class::Barrier), 4 * 4);
    assert_eq!(c.global_sectors, (2 * 64 * 32 + 64 * 64) * 4 / 32);
    assert_eq!(c.shared_store_bytes, 2 * 4 * 64 * 32);
    assert!(c.bank_conflicts > 0, "the transposing stores conflict");
    let off = run_gemm(&kernels::gemm(t, 64, 32), t, [64, 64, 32], &Options::default()).1;
    assert_eq!(off, LaunchReport::default());
}

#[test]
fn mapped_memory_is_read_in_place() {
    use std::sync::Arc;
    let values: Vec<f32> = floats(128);
    let bytes: Arc<Vec<u8>> = Arc::new(values.iter().flat_map(|v| v.to_le_bytes()).collect());
    let module = Module::load(&kernels::relu()).unwrap();
    let mut memory = Memory::new();
    let x = memory.map(bytes.clone());
    let y = memory.alloc(512).unwrap();
    let run = |from, to, memory: &Memory| {
        let params = [Param::U64(from), Param::U64(to), Param::U32(128)];
        let config = LaunchConfig { grid: [1; 3], block: [128, 1, 1], params: &params };
        launch(&module, "relu", memory, &config, &Options::default())
    };
    run(x, y, &memory).unwrap();
    let expected: Vec<f32> = values.iter().map(|x| x.mul_add(2.0, 1.0).max(0.0)).collect();
    assert_eq!(download(&memory, y, 128), expected);
    let error = run(y, x, &memory);
    assert!(error.unwrap_err().to_string().contains("read-only"));
    assert!(memory.write(x, &[0]).is_err());
    memory.free(x).unwrap();
    assert_eq!(Arc::strong_count(&bytes), 1);
}
