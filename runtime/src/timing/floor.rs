//! The roofline floor: how long a region must take at least, whatever the kernel. A time below it is not
//! a fast kernel but a wrong clock, a cached result, or work that is done elsewhere.
//!
//! It is a lower bound and therefore generous: outputs are written once, an input counts only if every
//! element of it is needed, and only contractions count as arithmetic, with what the fastest known
//! algorithms save taken off.

use eggine_ir::graph::OpClass;
use eggine_ir::{Attrs, Graph, NodeKind, Op, Region, Value};

use crate::device::Peak;

/// What Winograd's F(4×4, 3×3) saves, the largest factor of the algorithms in use (Lavin and Gray,
/// CVPR 2016): windows of a convolution count for so much less.
const FAST_CONVOLUTION: f64 = 4.0;

/// Least work of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeastWork {
    /// Floating-point operations of its contractions.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

impl LeastWork {
    /// Of a region.
    pub fn of(region: &Region) -> Self {
        let graph = &region.graph;
        let outputs: usize = graph.outputs.iter().map(|&output| graph.ty(output).n_bytes()).sum();
        // Needed as a whole: a value whose users need all of it. Users come after what they use.
        let mut needed = vec![false; graph.nodes.len()];
        graph.outputs.iter().for_each(|output| needed[output.as_u32() as usize] = true);
        let mut work = Self { flops: 0.0, bytes: outputs as f64 };
        for (value, node) in graph.nodes.iter().rev() {
            if !needed[value.as_u32() as usize] {
                continue;
            }
            match &node.kind {
                NodeKind::Apply(op, attrs, args) => {
                    work.flops += flops(graph, *op, attrs, args, node.ty.n_elems());
                    if reads_all(*op) {
                        args.iter().for_each(|arg| needed[arg.as_u32() as usize] = true);
                    }
                }
                NodeKind::Input { .. } => work.bytes += node.ty.n_bytes() as f64,
                NodeKind::Const(_) => (),
            }
        }
        work
    }

    /// The least time on a device, in nanoseconds; 0 if its rates are not known.
    pub fn floor_ns(&self, peak: &Peak) -> u64 {
        let at = |amount: f64, rate: f64| if rate > 0.0 { amount / rate } else { 0.0 };
        at(self.flops, peak.flops_per_ns).max(at(self.bytes, peak.bytes_per_ns)) as u64
    }
}

/// Whether every element of every operand is needed for the result.
fn reads_all(op: Op) -> bool {
    match op.spec().class {
        OpClass::Map => op != Op::Select,
        OpClass::Reduce => true,
        OpClass::Move => matches!(op, Op::Reshape | Op::Transpose | Op::Expand | Op::Concat),
        // Strides, and windows over padding, may leave out elements.
        OpClass::Contract => op == Op::Matmul,
        OpClass::Window | OpClass::Generate => false,
    }
}

fn flops(graph: &Graph, op: Op, attrs: &Attrs, args: &[Value], n_results: usize) -> f64 {
    let extents = |arg: usize| graph.ty(args[arg]).extents();
    if !args.iter().all(|&arg| graph.ty(arg).dtype.is_float()) {
        return 0.0;
    }
    match op {
        Op::Matmul => 2.0 * n_results as f64 * extents(0).last().copied().unwrap_or(1) as f64,
        Op::Conv => {
            let (x, w) = (extents(0), extents(1));
            // Products with the padding need not be made.
            let mut n_products = (x[0] * w[0] * w[1]) as f64;
            for axis in 0..w.len() - 2 {
                let (n_in, n_taps) = (x[axis + 2] as i64, w[axis + 2] as i64);
                let [stride, before, after, dilation] =
                    [0, 1, 2, 3].map(|attr| attrs.ints(attr)[axis]);
                let n_out = (n_in + before + after - dilation * (n_taps - 1) - 1) / stride + 1;
                let inside = |out: i64, tap: i64| {
                    (0..n_in).contains(&(out * stride + tap * dilation - before))
                };
                let n_inside: usize =
                    (0..n_taps).map(|tap| (0..n_out).filter(|&out| inside(out, tap)).count()).sum();
                n_products *= n_inside as f64;
            }
            let is_window = w[2..].iter().any(|&n| n > 1);
            2.0 * n_products / if is_window { FAST_CONVOLUTION } else { 1.0 }
        }
        _ => 0.0,
    }
}
