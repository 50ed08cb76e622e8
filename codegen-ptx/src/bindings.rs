//! What the parameters of a lowered kernel are: region inputs, outputs, and constant tables.

use bytes::Bytes;
use eggine_ir::{DType, Tensor};

/// One kernel parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Binding {
    /// An input of the region.
    Input {
        /// Which, counted from 0 in the region's order.
        index: usize,
        /// How it is rearranged at compile time; only for weights.
        packing: Option<Packing>,
    },
    /// An output of the region.
    Output {
        /// Which, counted from 0.
        index: usize,
    },
    /// Constant data that belongs to the kernel.
    Table(Tensor),
}

/// One part of a dimension that is split: its extent, and its stride in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Number of steps.
    pub extent: usize,
    /// Elements from one step to the next, in the source.
    pub stride: i64,
}

/// The rearrangement of a matrix operand into zero-padded tiles: `[batch][row tile][k tile][k][row]`.
///
/// Batch, row and k are each given by parts, outermost first, so that they can be any product of
/// the source's axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Packing {
    /// Position of element (0, 0, 0) in the source.
    pub offset: i64,
    /// Parts of the batch.
    pub batch: Vec<Part>,
    /// Parts of the row.
    pub row: Vec<Part>,
    /// Parts of the summed dimension.
    pub k: Vec<Part>,
    /// Rows per tile.
    pub tile_row: usize,
    /// Summed elements per tile.
    pub tile_k: usize,
}

impl Packing {
    fn extent(parts: &[Part]) -> usize {
        parts.iter().map(|part| part.extent).product()
    }

    /// Source position of each step of a split dimension, counted from 0.
    fn positions(parts: &[Part]) -> Vec<i64> {
        let mut positions = vec![0];
        for part in parts {
            let steps = |at: &i64| {
                (0..part.extent as i64).map(move |step| at + step * part.stride).collect::<Vec<_>>()
            };
            positions = positions.iter().flat_map(steps).collect();
        }
        positions
    }

    /// Number of tiles along rows and along k.
    pub fn n_tiles(&self) -> (usize, usize) {
        (
            Self::extent(&self.row).div_ceil(self.tile_row),
            Self::extent(&self.k).div_ceil(self.tile_k),
        )
    }

    /// Elements of the packed tensor.
    pub fn n_elems(&self) -> usize {
        let (rows, ks) = self.n_tiles();
        Self::extent(&self.batch) * rows * ks * self.tile_row * self.tile_k
    }

    /// The packed tensor, of one dimension.
    ///
    /// # Panics
    ///
    /// If the tensor is not the one that the packing was made for: it is too short, or of a type
    /// that packs several elements in a byte.
    pub fn apply(&self, source: &Tensor) -> Tensor {
        let width = source.dtype.bits() / 8;
        assert!(
            width > 0 && source.dtype.bits().is_multiple_of(8),
            "elements of {} are not bytes",
            source.dtype
        );
        let (batch, row, k) =
            (Self::positions(&self.batch), Self::positions(&self.row), Self::positions(&self.k));
        let (n_rows, n_ks) = self.n_tiles();
        let mut packed = vec![0u8; self.n_elems() * width];
        let mut to = 0;
        for &batch in &batch {
            for row_tile in 0..n_rows {
                for k_tile in 0..n_ks {
                    for in_k in 0..self.tile_k {
                        for in_row in 0..self.tile_row {
                            let at = (
                                row.get(row_tile * self.tile_row + in_row),
                                k.get(k_tile * self.tile_k + in_k),
                            );
                            if let (Some(row), Some(k)) = at {
                                let from = (self.offset + batch + row + k) as usize * width;
                                packed[to..to + width]
                                    .copy_from_slice(&source.bytes[from..from + width]);
                            }
                            to += width;
                        }
                    }
                }
            }
        }
        Tensor { dtype: source.dtype, extents: vec![self.n_elems()], bytes: Bytes::from(packed) }
    }

    /// Type of the packed elements, given that of the source.
    pub fn dtype(source: DType) -> DType {
        source
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn rows_and_k_are_padded_and_k_is_outermost_in_a_tile() {
        let source = Tensor::f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let packing = Packing {
            offset: 0,
            batch: vec![],
            row: vec![Part { extent: 3, stride: 2 }],
            k: vec![Part { extent: 2, stride: 1 }],
            tile_row: 2,
            tile_k: 2,
        };
        let packed = packing.apply(&source).to_f64();
        assert_eq!(packed, [1.0, 3.0, 2.0, 4.0, 5.0, 0.0, 6.0, 0.0]);
    }
}
