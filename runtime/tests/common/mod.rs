//! What tests of several files need: regions from text, and PTX kernels for the cpu device.
#![allow(dead_code, reason = "each test file uses a part")]

use eggine_ir::{Graph, Region};

/// A region of row-major tensors, from the text of its graph.
pub(crate) fn region(text: &str) -> Region {
    Region::contiguous(text.parse::<Graph>().unwrap_or_else(|err| panic!("{err}\n{text}")))
}

/// PTX of `y[i] = max(x[i], 0)` for `i < bound`, in blocks of 128 threads. `body` is put before the load.
pub(crate) fn relu_ptx(entry: &str, bound: usize, body: &str) -> String {
    format!(
        ".version 7.0
.target sm_80
.address_size 64

.visible .entry {entry}(
    .param .u64 p0,
    .param .u64 p1
)
.reqntid 128, 1, 1
{{
    .reg .pred %p<1>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<2>;

    ld.param.u64 %rd0, [p0];
    ld.param.u64 %rd1, [p1];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %tid.x;
    mad.lo.s32 %r2, %r0, 128, %r1;
    setp.lt.s32 %p0, %r2, {bound};
    mad.wide.s32 %rd2, %r2, 4, %rd0;
    mad.wide.s32 %rd3, %r2, 4, %rd1;
    @!%p0 bra $L0;
{body}    ld.global.f32 %f0, [%rd2];
    max.f32 %f1, %f0, 0f00000000;
    st.global.f32 [%rd3], %f1;
$L0:
    ret;
}}
"
    )
}
