//! Small kernels, made by the builder, that tests print, emit and run.
#![allow(dead_code, reason = "each test crate uses some")]

use eggine_codegen_ptx::kir::{BinaryOp, Builder, Kernel, Scalar, UnaryOp};
use eggine_ir::DType;

/// `y = a·x + y` on 1000 elements, four at a time where they are.
pub(crate) fn axpy() -> Kernel {
    let mut b = Builder::new("axpy", [4, 1, 1], 64);
    let x = b.global(DType::F32, 1000, false);
    let y = b.global(DType::F32, 1000, true);
    let (block, thread) = (b.block_x(), b.thread());
    let i = b.mad_const(block, 64, thread);
    let first = b.mul_const(i, 4);
    let n = b.i32(1000);
    let inside = b.lt(first, n);
    b.if_then(inside, |b| {
        let a = b.f32(2.5);
        let xs = b.load(x, first, 0, 4, None);
        let ys = b.load(y, first, 0, 4, None);
        let sums: Vec<_> = xs.iter().zip(&ys).map(|(&x, &y)| b.fma(x, a, y)).collect();
        b.store(y, first, 0, &sums, None);
    });
    b.finish()
}

/// Sum of each of 5 rows of 100 elements, one warp per row, then the exponential of the mean.
pub(crate) fn row_sum() -> Kernel {
    let mut b = Builder::new("row_sum", [5, 1, 1], 32);
    let x = b.global(DType::F32, 500, false);
    let y = b.global(DType::F32, 5, true);
    let (row, lane) = (b.block_x(), b.thread());
    let zero = b.f32(0.0);
    let sum = b.var(zero);
    let n = b.i32(100);
    b.for_loop(lane, 100, 32, |b, k| {
        let i = b.mad_const(row, 100, k);
        let inside = b.lt(k, n);
        let v = b.load1(x, i, 0, Some(inside));
        let old = b.get(sum);
        let new = b.add(old, v);
        b.set(sum, new);
    });
    let mut total = b.get(sum);
    for mask in [16, 8, 4, 2, 1] {
        let other = b.shuffle_xor(total, mask);
        total = b.add(total, other);
    }
    let count = b.f32(100.0);
    let mean = b.div(total, count);
    let result = b.unary(UnaryOp::Exp2Approx, mean);
    let first = b.i32(0);
    let is_first = b.eq(lane, first);
    b.if_then(is_first, |b| b.store(y, row, 0, &[result], None));
    b.finish()
}

/// `c[32,32] = a[32,24]·b[24,32]` in shared tiles of depth 8, a 2×4 micro tile per thread.
pub(crate) fn matmul() -> Kernel {
    let mut b = Builder::new("matmul", [1, 1, 1], 128);
    let (m, n, k, depth) = (32, 32, 24, 8);
    let a = b.global(DType::F32, m * k, false);
    let bb = b.global(DType::F32, k * n, false);
    let c = b.global(DType::F32, m * n, true);
    let sa = b.shared(DType::F32, depth * m);
    let sb = b.shared(DType::F32, depth * n);
    let thread = b.thread();
    let (tx, ty) = (b.rem_const(thread, 8), b.div_const(thread, 8));
    let zero = b.f32(0.0);
    let acc: Vec<_> = (0..8).map(|_| b.var(zero)).collect();
    let (row0, col0) = (b.mul_const(ty, 2), b.mul_const(tx, 4));
    b.for_loop(0, k as i32, depth as i32, |b, k0| {
        // 256 elements of each by 128 threads: rows of A transposed, rows of B as they are.
        for part in 0..2 {
            let i = b.add_const(thread, part * 128);
            let (kk, mm) = (b.rem_const(i, depth as i32), b.div_const(i, depth as i32));
            let row = b.mad_const(mm, k as i32, kk);
            let from = b.add(row, k0);
            let v = b.load1(a, from, 0, None);
            let to = b.mad_const(kk, m as i32, mm);
            b.store(sa, to, 0, &[v], None);
            let (kk, nn) = (b.div_const(i, n as i32), b.rem_const(i, n as i32));
            let row = b.add(kk, k0);
            let from = b.mad_const(row, n as i32, nn);
            let v = b.load1(bb, from, 0, None);
            b.store(sb, i, 0, &[v], None);
        }
        b.barrier();
        for kk in 0..depth as i32 {
            let av = b.load(sa, row0, kk * m as i32, 2, None);
            let bv = b.load(sb, col0, kk * n as i32, 4, None);
            for (i, &x) in av.iter().enumerate() {
                for (j, &y) in bv.iter().enumerate() {
                    let old = b.get(acc[i * 4 + j]);
                    let new = b.fma(x, y, old);
                    b.set(acc[i * 4 + j], new);
                }
            }
        }
        b.barrier();
    });
    let at = b.mad_const(row0, n as i32, col0);
    for i in 0..2 {
        let values: Vec<_> = (0..4).map(|j| b.get(acc[i * 4 + j])).collect();
        b.store(c, at, (i * n) as i32, &values, None);
    }
    b.finish()
}

/// A 3×3 convolution of one 7×9 image with padding 1 and clipping at 0, one thread per pixel, to `f16`.
pub(crate) fn stencil() -> Kernel {
    let (height, width) = (7, 9);
    let mut b = Builder::new("stencil", [1, 1, 1], 64);
    let x = b.global(DType::F32, 63, false);
    let w = b.global(DType::F32, 9, false);
    let y = b.global(DType::F16, 63, true);
    let i = b.thread();
    let inside = b.in_bounds(i, 0, 63);
    b.if_then(inside, |b| {
        let (row, col) = (b.div_const(i, width), b.rem_const(i, width));
        let zero = b.f32(0.0);
        let sum = b.var(zero);
        b.for_loop(0, 3, 1, |b, ky| {
            b.for_loop(0, 3, 1, |b, kx| {
                let (iy, ix) = (b.add(row, ky), b.add(col, kx));
                let (iy, ix) = (b.add_const(iy, -1), b.add_const(ix, -1));
                let (in_y, in_x) = (b.in_bounds(iy, 0, height), b.in_bounds(ix, 0, width));
                let mask = b.and(in_y, in_x);
                let at = b.mad_const(iy, width, ix);
                let v = b.load1(x, at, 0, Some(mask));
                let tap = b.mad_const(ky, 3, kx);
                let weight = b.load1(w, tap, 0, None);
                let old = b.get(sum);
                let new = b.fma(v, weight, old);
                b.set(sum, new);
            });
        });
        let total = b.get(sum);
        let clipped = b.binary(BinaryOp::Max, total, zero);
        b.store(y, i, 0, &[clipped], None);
    });
    b.finish()
}

/// `y = x[clamp(index)]` of `bool` flags, with `i64` indices, counted in `u8`.
pub(crate) fn gather() -> Kernel {
    let mut b = Builder::new("gather", [2, 1, 1], 32);
    let flags = b.global(DType::Bool, 40, false);
    let indices = b.global(DType::I64, 50, false);
    let y = b.global(DType::U8, 50, true);
    let (block, thread) = (b.block_x(), b.thread());
    let i = b.mad_const(block, 32, thread);
    let n = b.i32(50);
    let inside = b.lt(i, n);
    let wide = b.load1(indices, i, 0, Some(inside));
    let narrow = b.convert(wide, Scalar::I32);
    let zero = b.i32(0);
    let negative = b.lt(narrow, zero);
    let wrapped = b.add_const(narrow, 40);
    let index = b.select(negative, wrapped, narrow);
    let last = b.i32(39);
    let (low, high) = (b.max(index, zero), 0);
    let index = b.min(low, last);
    let flag = b.load1(flags, index, high, Some(inside));
    let counted = b.add_const(flag, 7);
    b.store(y, i, 0, &[counted], Some(inside));
    b.finish()
}

/// All of them.
pub(crate) fn all() -> Vec<Kernel> {
    vec![axpy(), row_sum(), matmul(), stencil(), gather()]
}
