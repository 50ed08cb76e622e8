//! Convolutions, as matrix products of the filter with gathered columns of the operand.

use std::ops::Range;

use super::contract::{Matrix, gemm, rows_per_task};
use super::parallel::{for_each, n_threads};
use super::{Array, Element, by_element};
use crate::TensorType;
use crate::graph::Attrs;

/// Elements of one gathered block: 32 MiB.
const MAX_COLUMN_ELEMS: usize = 1 << 22;

/// The spatial axes, with leading axes of extent 1 so that there are always three.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub(super) data: [usize; 3],
    pub(super) kernel: [usize; 3],
    pub(super) result: [usize; 3],
    pub(super) strides: [usize; 3],
    pub(super) before: [usize; 3],
    pub(super) dilations: [usize; 3],
}

impl Space {
    pub(super) fn new(
        data: &[usize],
        kernel: &[usize],
        result: &[usize],
        strides: &[usize],
        before: &[usize],
        dilations: &[usize],
    ) -> Self {
        let three = |xs: &[usize], fill: usize| {
            std::array::from_fn(|i| (i + xs.len()).checked_sub(3).map_or(fill, |i| xs[i]))
        };
        Self {
            data: three(data, 1),
            kernel: three(kernel, 1),
            result: three(result, 1),
            strides: three(strides, 1),
            before: three(before, 0),
            dilations: three(dilations, 1),
        }
    }

    pub(super) fn n_data(&self) -> usize {
        self.data.iter().product()
    }

    pub(super) fn n_kernel(&self) -> usize {
        self.kernel.iter().product()
    }

    pub(super) fn n_result(&self) -> usize {
        self.result.iter().product()
    }

    /// Where tap `tap` of the window at `at` reads, along `axis`; none in the padding.
    pub(super) fn source(&self, axis: usize, at: usize, tap: usize) -> Option<usize> {
        let source = at * self.strides[axis] + tap * self.dilations[axis];
        source.checked_sub(self.before[axis]).filter(|&source| source < self.data[axis])
    }

    /// The three taps of a flat kernel index.
    pub(super) fn taps(&self, flat: usize) -> [usize; 3] {
        let [_, height, width] = self.kernel;
        [flat / (height * width), flat / width % height, flat % width]
    }

    /// Positions along the innermost axis at which `tap` reads inside the operand.
    fn inside(&self, tap: usize) -> Range<usize> {
        let (stride, shift) = (self.strides[2], tap * self.dilations[2]);
        let first = self.before[2].saturating_sub(shift).div_ceil(stride);
        let end = (self.data[2] + self.before[2]).saturating_sub(shift).div_ceil(stride);
        first.min(self.result[2])..end.min(self.result[2])
    }
}

pub(in crate::graph) fn conv(args: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    by_element!(args[0], conv_typed(args[0], args[1], attrs, ty))
}

fn conv_typed<T: Element>(data: &Array, filter: &Array, attrs: &Attrs, ty: &TensorType) -> Array {
    let extents = ty.extents();
    let space = Space::new(
        &data.extents[2..],
        &filter.extents[2..],
        &extents[2..],
        &attrs.usizes(0),
        &attrs.usizes(1),
        &attrs.usizes(3),
    );
    let groups = attrs.usize(4);
    let (x, w) = (T::of(data), T::of(filter));
    let (n_in, n_out) = (filter.extents[1], filter.extents[0] / groups);
    let (n_result, depth) = (space.n_result(), n_in * space.n_kernel());
    let mut elements = vec![T::ZERO; ty.n_elems()];
    let work = elements.len() * depth;
    // Operand and filter of group `i`, counted over all images.
    let operands = |i: usize| {
        let x = &x[i * n_in * space.n_data()..][..n_in * space.n_data()];
        let w = &w[i % groups * n_out * depth..][..n_out * depth];
        (x, w)
    };
    if elements.is_empty() {
    } else if n_in == 1 {
        for_each(elements.chunks_mut(n_result).enumerate(), work, |(i, plane)| {
            let (x, w) = operands(i / n_out);
            depthwise(x, &w[i % n_out * depth..][..depth], &space, plane);
        });
    } else if data.extents[0] * groups >= 2 * n_threads() {
        for_each(elements.chunks_mut(n_out * n_result).enumerate(), work, |(i, result)| {
            let (x, w) = operands(i);
            group(x, w, n_in, &space, result, false);
        });
    } else {
        for (i, result) in elements.chunks_mut(n_out * n_result).enumerate() {
            let (x, w) = operands(i);
            group(x, w, n_in, &space, result, true);
        }
    }
    Array::with(ty, T::data(elements, ty.dtype))
}

/// One channel with its own filter.
fn depthwise<T: Element>(x: &[T], w: &[T], space: &Space, result: &mut [T]) {
    for (flat, &weight) in w.iter().enumerate() {
        let tap = space.taps(flat);
        let inside = space.inside(tap[2]);
        for (row, result) in result.chunks_mut(space.result[2]).enumerate() {
            let at = [row / space.result[1], row % space.result[1]];
            let (Some(z), Some(y)) =
                (space.source(0, at[0], tap[0]), space.source(1, at[1], tap[1]))
            else {
                continue;
            };
            let line = &x[(z * space.data[1] + y) * space.data[2]..][..space.data[2]];
            if inside.is_empty() {
                continue;
            }
            let source =
                inside.start * space.strides[2] + tap[2] * space.dilations[2] - space.before[2];
            let line = line[source..].iter().step_by(space.strides[2]);
            for (sum, x) in result[inside.clone()].iter_mut().zip(line) {
                *sum = x.multiply_add(weight, *sum);
            }
        }
    }
}

/// One group of one image: `result[n_out, positions] = w[n_out, depth] * columns[depth, positions]`,
/// some positions at a time.
fn group<T: Element>(
    x: &[T],
    w: &[T],
    n_in: usize,
    space: &Space,
    result: &mut [T],
    in_parallel: bool,
) {
    let (n_result, depth) = (space.n_result(), n_in * space.n_kernel());
    let n_out = result.len() / n_result;
    let is_pointwise =
        space.kernel == [1; 3] && space.strides == [1; 3] && space.data == space.result;
    let n_positions = if is_pointwise { n_result } else { (MAX_COLUMN_ELEMS / depth).max(1) };
    let mut columns = Vec::new();
    let mut from = 0;
    while from < n_result {
        let positions = from..n_result.min(from + n_positions);
        let work =
            |per_position: usize| if in_parallel { per_position * positions.len() } else { 0 };
        let columns = if is_pointwise {
            Matrix { data: x, row: n_result, column: 1 }
        } else {
            columns.clear();
            columns.resize(depth * positions.len(), T::ZERO);
            let rows = columns.chunks_mut(positions.len()).enumerate();
            for_each(rows, work(depth), |(row, column)| {
                let channel = &x[row / space.n_kernel() * space.n_data()..][..space.n_data()];
                gather_row(channel, space, row % space.n_kernel(), positions.clone(), column);
            });
            Matrix { data: &columns[..], row: positions.len(), column: 1 }
        };
        let n_rows = if in_parallel { rows_per_task(n_out) } else { n_out };
        let tasks = result.chunks_mut(n_rows * n_result).enumerate();
        for_each(tasks, work(depth * n_out), |(i, rows)| {
            let size = [rows.len() / n_result, depth, positions.len()];
            let w = Matrix { data: &w[i * n_rows * depth..], row: depth, column: 1 };
            gemm(size, w, columns, &mut rows[from..], n_result);
        });
        from = positions.end;
    }
}

/// What tap `flat` of the kernel reads at each of `positions`; `column` is zero where it is padding.
fn gather_row<T: Element>(
    channel: &[T],
    space: &Space,
    flat: usize,
    positions: Range<usize>,
    column: &mut [T],
) {
    let tap = space.taps(flat);
    let inside = space.inside(tap[2]);
    let width = space.result[2];
    for row in positions.start / width..positions.end.div_ceil(width) {
        let at = [row / space.result[1], row % space.result[1]];
        let (Some(z), Some(y)) = (space.source(0, at[0], tap[0]), space.source(1, at[1], tap[1]))
        else {
            continue;
        };
        let line = &channel[(z * space.data[1] + y) * space.data[2]..][..space.data[2]];
        let first = inside.start.max(positions.start.saturating_sub(row * width));
        let end = inside.end.min(positions.end - row * width);
        if first >= end {
            continue;
        }
        let source = first * space.strides[2] + tap[2] * space.dilations[2] - space.before[2];
        let column = &mut column[row * width + first - positions.start..][..end - first];
        match space.strides[2] {
            1 => column.copy_from_slice(&line[source..][..end - first]),
            stride => {
                let line = line[source..].iter().step_by(stride);
                column.iter_mut().zip(line).for_each(|(to, &x)| *to = x);
            }
        }
    }
}

pub(in crate::graph) fn conv_transpose(args: &[&Array], attrs: &Attrs, ty: &TensorType) -> Array {
    by_element!(args[0], conv_transpose_typed(args[0], args[1], attrs, ty))
}

/// Each operand element adds its multiple of the filter to the result, where it is not cropped.
fn conv_transpose_typed<T: Element>(
    data: &Array,
    filter: &Array,
    attrs: &Attrs,
    ty: &TensorType,
) -> Array {
    let extents = ty.extents();
    // The convolution of which this is the transpose has the roles of data and result swapped.
    let space = Space::new(
        &extents[2..],
        &filter.extents[2..],
        &data.extents[2..],
        &attrs.usizes(0),
        &attrs.usizes(1),
        &attrs.usizes(3),
    );
    let groups = attrs.usize(4);
    let (x, w) = (T::of(data), T::of(filter));
    let (n_in, n_out) = (data.extents[1] / groups, filter.extents[1]);
    let (n_kernel, n_positions, n_plane) = (space.n_kernel(), space.n_result(), space.n_data());
    let mut elements = vec![T::ZERO; ty.n_elems()];
    let work = extents[0] * extents[1] * n_in * n_kernel * n_positions;
    for_each(elements.chunks_mut(n_plane.max(1)).enumerate(), work, |(i, plane)| {
        let (image, channel) = (i / extents[1], i % extents[1]);
        let (group, m) = (channel / n_out, channel % n_out);
        let first = group * n_in;
        // products[k, position] = sum over c of w[c, m, k] * x[c, position].
        let mut products = vec![T::ZERO; n_kernel * n_positions];
        if n_in > 0 {
            let w = Matrix {
                data: &w[(first * n_out + m) * n_kernel..],
                row: 1,
                column: n_out * n_kernel,
            };
            let x = &x[(image * data.extents[1] + first) * n_positions..];
            let x = Matrix { data: x, row: n_positions, column: 1 };
            gemm([n_kernel, n_in, n_positions], w, x, &mut products, n_positions);
        }
        for (flat, products) in products.chunks(n_positions).enumerate() {
            let tap = space.taps(flat);
            let inside = space.inside(tap[2]);
            for (row, products) in products.chunks(space.result[2]).enumerate() {
                let at = [row / space.result[1], row % space.result[1]];
                let (Some(z), Some(y)) =
                    (space.source(0, at[0], tap[0]), space.source(1, at[1], tap[1]))
                else {
                    continue;
                };
                let line = &mut plane[(z * space.data[1] + y) * space.data[2]..][..space.data[2]];
                for i in inside.clone() {
                    let target =
                        i * space.strides[2] + tap[2] * space.dilations[2] - space.before[2];
                    line[target] = T::ONE.multiply_add(products[i], line[target]);
                }
            }
        }
    });
    Array::with(ty, T::data(elements, ty.dtype))
}
