//! Result types of matrix products, convolutions and pools.

use super::{TypeError, at_least, broadcast_extents, list, numeric, same_dtype};
use crate::TensorType;
use crate::graph::Attrs;

/// `[..., M, K] x [..., K, N] -> [..., M, N]`; the leading axes broadcast.
pub(in crate::graph) fn matmul(types: &[&TensorType], _: &Attrs) -> Result<TensorType, TypeError> {
    numeric(types[0])?;
    same_dtype(types[0], types[1])?;
    let mismatch = || TypeError::Contraction { lhs: types[0].clone(), rhs: types[1].clone() };
    let (lhs, rhs) = (types[0].extents(), types[1].extents());
    let ([lhs_batch @ .., m, k], [rhs_batch @ .., l, n]) = (&lhs[..], &rhs[..]) else {
        return Err(mismatch());
    };
    if k != l {
        return Err(mismatch());
    }
    let mut extents = broadcast_extents(lhs_batch, rhs_batch).ok_or_else(mismatch)?;
    extents.extend([*m, *n]);
    Ok(TensorType::fixed(types[0].dtype, &extents))
}

/// `[N, C, spatial...]` of one to three spatial axes.
fn spatial(ty: &TensorType) -> Result<Vec<usize>, TypeError> {
    match ty.shape.rank() {
        3..=5 => Ok(ty.extents()),
        _ => Err(TypeError::Rank { least: 3, most: 5, found: ty.clone() }),
    }
}

/// Extents of the windows' positions, from attributes `strides, before, after, dilations` at `at`.
fn positions(
    extents: &[usize],
    kernel: &[i64],
    attrs: &Attrs,
    at: usize,
) -> Result<Vec<usize>, TypeError> {
    let rank = extents.len();
    let strides = list(attrs, at, "strides", rank, 1)?;
    let before = list(attrs, at + 1, "before", rank, 0)?;
    let after = list(attrs, at + 2, "after", rank, 0)?;
    let dilations = list(attrs, at + 3, "dilations", rank, 1)?;
    (0..rank)
        .map(|axis| {
            let padded = extents[axis] as i64 + before[axis] + after[axis];
            let window = (kernel[axis] - 1).saturating_mul(dilations[axis]).saturating_add(1);
            match kernel[axis] >= 1 && window <= padded {
                true => Ok(((padded - window) / strides[axis] + 1) as usize),
                false => Err(TypeError::Window { axis: axis + 2, window, padded }),
            }
        })
        .collect()
}

/// A pool: `[N, C, spatial...]`, one result per position of the window.
pub(in crate::graph) fn window(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<TensorType, TypeError> {
    numeric(types[0])?;
    let extents = spatial(types[0])?;
    let kernel = list(attrs, 0, "kernel", extents.len() - 2, 1)?;
    let mut result = extents[..2].to_vec();
    result.extend(positions(&extents[2..], kernel, attrs, 1)?);
    Ok(TensorType::fixed(types[0].dtype, &result))
}

/// Operand and filter extents, and whether they fit `groups`.
fn operands(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<(Vec<usize>, Vec<usize>, usize), TypeError> {
    numeric(types[0])?;
    same_dtype(types[0], types[1])?;
    let (data, filter) = (spatial(types[0])?, types[1].extents());
    if filter.len() != data.len() {
        return Err(TypeError::Contraction { lhs: types[0].clone(), rhs: types[1].clone() });
    }
    at_least("groups", attrs.int(4), 1)?;
    Ok((data, filter, attrs.int(4) as usize))
}

/// `x[N, C, spatial...]`, `w[M, C/groups, kernel...]` to `[N, M, positions...]`.
pub(in crate::graph) fn conv(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<TensorType, TypeError> {
    let (data, filter, groups) = operands(types, attrs)?;
    if data[1] % groups != 0 || filter[0] % groups != 0 || filter[1] != data[1] / groups {
        let (lhs, rhs) = (types[0].clone(), types[1].clone());
        return Err(TypeError::Groups { groups: attrs.int(4), lhs, rhs });
    }
    let kernel: Vec<i64> = filter[2..].iter().map(|&extent| extent as i64).collect();
    let mut result = vec![data[0], filter[0]];
    result.extend(positions(&data[2..], &kernel, attrs, 0)?);
    Ok(TensorType::fixed(types[0].dtype, &result))
}

/// `x[N, C, spatial...]`, `w[C, M/groups, kernel...]` to `[N, M, ...]`, where an extent is
/// `(in - 1) * stride + (kernel - 1) * dilation + 1 + output_padding - before - after`.
pub(in crate::graph) fn conv_transpose(
    types: &[&TensorType],
    attrs: &Attrs,
) -> Result<TensorType, TypeError> {
    let (data, filter, groups) = operands(types, attrs)?;
    if data[1] % groups != 0 || filter[0] != data[1] {
        let (lhs, rhs) = (types[0].clone(), types[1].clone());
        return Err(TypeError::Groups { groups: attrs.int(4), lhs, rhs });
    }
    let rank = data.len() - 2;
    let strides = list(attrs, 0, "strides", rank, 1)?;
    let before = list(attrs, 1, "before", rank, 0)?;
    let after = list(attrs, 2, "after", rank, 0)?;
    let dilations = list(attrs, 3, "dilations", rank, 1)?;
    let output_padding = list(attrs, 5, "output_padding", rank, 0)?;
    let mut result = vec![data[0], filter[1] * groups];
    for axis in 0..rank {
        let (extent, kernel) = (data[axis + 2] as i128, filter[axis + 2] as i128);
        let full = (extent - 1) * i128::from(strides[axis])
            + (kernel - 1) * i128::from(dilations[axis])
            + 1
            + i128::from(output_padding[axis]);
        let cropped = full - i128::from(before[axis]) - i128::from(after[axis]);
        match usize::try_from(cropped) {
            Ok(extent) if extent >= 1 && kernel >= 1 && data[axis + 2] >= 1 => result.push(extent),
            _ => {
                let clamp = |x: i128| x.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
                let (window, padded) = (clamp(full - cropped), clamp(full));
                return Err(TypeError::Window { axis: axis + 2, window, padded });
            }
        }
    }
    Ok(TensorType::fixed(types[0].dtype, &result))
}
