//! PTX texts of typical kernels, written as our code generator would.

#![allow(dead_code, reason = "each user takes some")]

use std::fmt::Write as _;

const HEAD: &str = ".version 7.0\n.target sm_80\n.address_size 64\n\n";

/// Sizes of a GEMM kernel: block tile, tile of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gemm {
    pub(crate) bm: usize,
    pub(crate) bn: usize,
    pub(crate) bk: usize,
    pub(crate) tm: usize,
    pub(crate) tn: usize,
}

/// `C[m, n] = A[m, k] B[k, n]`, row-major, sizes multiples of the tile's. Entry `gemm(a, b, c)`, grid
/// `[n / bn, m / bm]`.
pub(crate) fn gemm(t: Gemm, n: usize, k: usize) -> String {
    let Gemm { bm, bn, bk, tm, tn } = t;
    let (nx, ny) = (bn / tn, bm / tm);
    let n_threads = nx * ny;
    assert!(
        bm * bk % (4 * n_threads) == 0 && bn * bk % (4 * n_threads) == 0,
        "every thread copies as much"
    );
    let mut s = String::from(HEAD);
    s += ".visible .entry gemm(\n    .param .u64 a,\n    .param .u64 b,\n    .param .u64 c\n)\n";
    writeln!(s, ".reqntid {n_threads}, 1, 1\n{{\n    .reg .pred %p<4>;\n    .reg .b32 %r<64>;\n    .reg .b64 %rd<64>;\n    .reg .f32 %f<512>;").unwrap();
    writeln!(
        s,
        "    .shared .align 16 .b8 sa[{}];\n    .shared .align 16 .b8 sb[{}];",
        bm * bk * 4,
        bn * bk * 4
    )
    .unwrap();
    let mut o = |line: String| writeln!(s, "    {line}").unwrap();
    o("ld.param.u64 %rd0, [a];".into());
    o("ld.param.u64 %rd1, [b];".into());
    o("ld.param.u64 %rd2, [c];".into());
    o("mov.u32 %r0, %tid.x;".into());
    o("mov.u32 %r1, %ctaid.x;".into());
    o("mov.u32 %r2, %ctaid.y;".into());
    o(format!("rem.u32 %r3, %r0, {nx};"));
    o(format!("div.u32 %r4, %r0, {nx};"));
    o(format!("mul.lo.s32 %r5, %r1, {bn};"));
    o(format!("mul.lo.s32 %r6, %r2, {bm};"));
    let (na, nb) = (bm * bk / 4 / n_threads, bn * bk / 4 / n_threads);
    for i in 0..na {
        o(format!("add.s32 %r7, %r0, {};", i * n_threads));
        o(format!("div.u32 %r8, %r7, {};", bk / 4));
        o(format!("rem.u32 %r9, %r7, {};", bk / 4));
        o("add.s32 %r10, %r6, %r8;".into());
        o("shl.b32 %r11, %r9, 2;".into());
        o(format!("mad.lo.s32 %r10, %r10, {k}, %r11;"));
        o(format!("mad.wide.s32 %rd{}, %r10, 4, %rd0;", 10 + i));
        o(format!("mul.lo.s32 %r11, %r9, {};", 16 * bm));
        o(format!("mad.lo.s32 %r{}, %r8, 4, %r11;", 20 + i));
    }
    for i in 0..nb {
        o(format!("add.s32 %r7, %r0, {};", i * n_threads));
        o(format!("div.u32 %r8, %r7, {};", bn / 4));
        o(format!("rem.u32 %r9, %r7, {};", bn / 4));
        o("mad.lo.s32 %r10, %r9, 4, %r5;".into());
        o(format!("mad.lo.s32 %r10, %r8, {n}, %r10;"));
        o(format!("mad.wide.s32 %rd{}, %r10, 4, %rd1;", 20 + i));
        o(format!("mul.lo.s32 %r11, %r8, {};", 4 * bn));
        o("mov.u32 %r12, sb;".into());
        o("add.s32 %r11, %r11, %r12;".into());
        o(format!("mad.lo.s32 %r{}, %r9, 16, %r11;", 30 + i));
    }
    // Fragments: rows ty * 4 + 0..4 of each group of ny * 4, columns likewise.
    o("mul.lo.s32 %r40, %r4, 16;".into());
    o("mov.u32 %r12, sb;".into());
    o("mad.lo.s32 %r41, %r3, 16, %r12;".into());
    let acc = |i: usize, j: usize| i * tn + j;
    let (fa, fb, st) = (tm * tn, tm * tn + tm, tm * tn + tm + tn);
    for i in 0..tm * tn {
        o(format!("mov.f32 %f{i}, 0f00000000;"));
    }
    o("mov.u32 %r42, 0;".into());
    s += "$L0:\n";
    let mut o = |line: String| writeln!(s, "    {line}").unwrap();
    let quad = |first: usize| {
        format!("{{%f{}, %f{}, %f{}, %f{}}}", first, first + 1, first + 2, first + 3)
    };
    for i in 0..na {
        o(format!("ld.global.v4.f32 {}, [%rd{}];", quad(st + 4 * i), 10 + i));
    }
    for i in 0..nb {
        o(format!("ld.global.v4.f32 {}, [%rd{}];", quad(st + 4 * (na + i)), 20 + i));
    }
    o("bar.sync 0;".into());
    for i in 0..na {
        for j in 0..4 {
            o(format!("st.shared.f32 [%r{}+{}], %f{};", 20 + i, 4 * bm * j, st + 4 * i + j));
        }
    }
    for i in 0..nb {
        o(format!("st.shared.v4.f32 [%r{}], {};", 30 + i, quad(st + 4 * (na + i))));
    }
    o("bar.sync 0;".into());
    for kk in 0..bk {
        for q in 0..tm / 4 {
            o(format!(
                "ld.shared.v4.f32 {}, [%r40+{}];",
                quad(fa + 4 * q),
                4 * bm * kk + 16 * ny * q
            ));
        }
        for q in 0..tn / 4 {
            o(format!(
                "ld.shared.v4.f32 {}, [%r41+{}];",
                quad(fb + 4 * q),
                4 * bn * kk + 16 * nx * q
            ));
        }
        for i in 0..tm {
            for j in 0..tn {
                o(format!("fma.rn.f32 %f{0}, %f{1}, %f{2}, %f{0};", acc(i, j), fa + i, fb + j));
            }
        }
    }
    for i in 0..na {
        o(format!("add.s64 %rd{0}, %rd{0}, {1};", 10 + i, 4 * bk));
    }
    for i in 0..nb {
        o(format!("add.s64 %rd{0}, %rd{0}, {1};", 20 + i, 4 * bk * n));
    }
    o(format!("add.s32 %r42, %r42, {bk};"));
    o(format!("setp.lt.s32 %p0, %r42, {k};"));
    o("@%p0 bra $L0;".into());
    o("mad.lo.s32 %r43, %r4, 4, %r6;".into());
    o(format!("mul.lo.s32 %r43, %r43, {n};"));
    o("add.s32 %r43, %r43, %r5;".into());
    o("mad.lo.s32 %r43, %r3, 4, %r43;".into());
    o("mad.wide.s32 %rd3, %r43, 4, %rd2;".into());
    for i in 0..tm {
        for q in 0..tn / 4 {
            let row = i % 4 + i / 4 * 4 * ny;
            o(format!(
                "st.global.v4.f32 [%rd3+{}], {};",
                4 * (row * n + 4 * nx * q),
                quad(acc(i, 4 * q))
            ));
        }
    }
    o("ret;".into());
    s += "}\n";
    s
}

/// Softmax of `scale * x` over rows of 1024, a block of 128 threads per row. Entry `softmax(x, y, n_rows)`.
pub(crate) fn softmax(scale: f32) -> String {
    let mut s = String::from(HEAD);
    s += ".visible .entry softmax(\n    .param .u64 x,\n    .param .u64 y,\n    .param .u32 n\n)\n.reqntid 128, 1, 1\n{\n    .reg .pred %p<4>;\n    .reg .b32 %r<16>;\n    .reg .b64 %rd<8>;\n    .reg .f32 %f<32>;\n    .shared .align 16 .b8 s[32];\n";
    let mut o = |line: String| writeln!(s, "    {line}").unwrap();
    for line in [
        "ld.param.u64 %rd0, [x];",
        "ld.param.u64 %rd1, [y];",
        "ld.param.u32 %r9, [n];",
        "mov.u32 %r0, %tid.x;",
        "mov.u32 %r1, %ctaid.x;",
        "setp.ge.s32 %p0, %r1, %r9;",
        "@%p0 bra $L2;",
        "shl.b32 %r2, %r1, 10;",
        "shl.b32 %r3, %r0, 2;",
        "add.s32 %r2, %r2, %r3;",
        "mad.wide.s32 %rd2, %r2, 4, %rd0;",
        "mad.wide.s32 %rd3, %r2, 4, %rd1;",
        "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd2];",
        "ld.global.v4.f32 {%f4, %f5, %f6, %f7}, [%rd2+2048];",
        "shr.u32 %r4, %r0, 5;",
        "shl.b32 %r4, %r4, 2;",
        "and.b32 %r5, %r0, 31;",
        "setp.ne.s32 %p1, %r5, 0;",
    ] {
        o(line.into());
    }
    let factor = (scale * std::f32::consts::LOG2_E).to_bits();
    for i in 0..8 {
        o(format!("mul.rn.f32 %f{i}, %f{i}, 0f{factor:08X};"));
    }
    let reduce = |o: &mut dyn FnMut(String), op: &str, label: usize, at: usize| {
        o(format!("{op} %f8, %f0, %f1;"));
        for i in 2..8 {
            o(format!("{op} %f8, %f8, %f{i};"));
        }
        for mask in [16, 8, 4, 2, 1] {
            o(format!("shfl.sync.bfly.b32 %f9, %f8, {mask}, 31, -1;"));
            o(format!("{op} %f8, %f8, %f9;"));
        }
        o(format!("@%p1 bra $L{label};"));
        o(format!("st.shared.f32 [%r4+{at}], %f8;"));
        o(format!("\n$L{label}:\n    bar.sync 0;"));
        o(format!("ld.shared.v4.f32 {{%f10, %f11, %f12, %f13}}, [s+{at}];"));
        o(format!("{op} %f8, %f10, %f11;\n    {op} %f8, %f8, %f12;\n    {op} %f8, %f8, %f13;"));
    };
    reduce(&mut o, "max.f32", 0, 0);
    for i in 0..8 {
        o(format!("sub.rn.f32 %f{i}, %f{i}, %f8;\n    ex2.approx.f32 %f{i}, %f{i};"));
    }
    reduce(&mut o, "add.rn.f32", 1, 16);
    o("rcp.approx.f32 %f8, %f8;".into());
    for i in 0..8 {
        o(format!("mul.rn.f32 %f{i}, %f{i}, %f8;"));
    }
    o("st.global.v4.f32 [%rd3], {%f0, %f1, %f2, %f3};".into());
    o("st.global.v4.f32 [%rd3+2048], {%f4, %f5, %f6, %f7};".into());
    s += "$L2:\n    ret;\n}\n";
    s
}

/// `y[i] = max(x[i] * 2 + 1, 0)` for `i < n`, a thread per element, blocks of 128. Entry `relu(x, y, n)`.
pub(crate) fn relu() -> String {
    format!(
        "{HEAD}.visible .entry relu(\n    .param .u64 x,\n    .param .u64 y,\n    .param .u32 n\n)\n.reqntid 128, 1, 1\n{{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<8>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    ld.param.u32 %r3, [n];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mad.lo.s32 %r2, %r1, 128, %r0;
    setp.ge.s32 %p0, %r2, %r3;
    @%p0 bra $L0;
    mad.wide.s32 %rd2, %r2, 4, %rd0;
    mad.wide.s32 %rd3, %r2, 4, %rd1;
    ld.global.f32 %f0, [%rd2];
    fma.rn.f32 %f1, %f0, 0f40000000, 0f3F800000;
    max.f32 %f2, %f1, 0f00000000;
    st.global.f32 [%rd3], %f2;
$L0:
    ret;
}}
"
    )
}
