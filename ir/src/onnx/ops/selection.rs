//! Operators whose results have as many elements as their operands' contents say: evaluated here, where the
//! contents are known. Whoever computes them at run time needs a count first.

use std::cmp::Ordering;

use crate::onnx::builder::{Builder, axis};
use crate::onnx::call::{Call, Outcome, one};
use crate::onnx::error::OpError;
use crate::{Tensor, Value};

/// One element or slice, as numbers that sort as it does.
#[derive(Clone, PartialEq)]
enum Key {
    Floats(Vec<f64>),
    Ints(Vec<i128>),
}

impl Key {
    fn order(&self, other: &Key) -> Ordering {
        fn lexical<T>(x: &[T], y: &[T], order: impl Fn(&T, &T) -> Ordering) -> Ordering {
            let different = x.iter().zip(y).map(|(x, y)| order(x, y)).find(|it| it.is_ne());
            different.unwrap_or(Ordering::Equal)
        }
        match (self, other) {
            (Key::Ints(x), Key::Ints(y)) => lexical(x, y, Ord::cmp),
            // -0 and 0 are one value, and NaN is behind all others.
            (Key::Floats(x), Key::Floats(y)) => lexical(x, y, |x, y| {
                x.partial_cmp(y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
            }),
            _ => Ordering::Equal,
        }
    }
}

/// The distinct elements (or slices along an axis), where each is first, which one each element is, and how
/// many there are of each.
pub(super) fn unique(b: &mut Builder, c: &Call) -> Outcome {
    let mut x = c.x(0)?;
    let what = "which elements are distinct";
    let at = match c.int_opt("axis")? {
        Some(at) => axis(at, b.rank(x))?,
        None => {
            let n = b.ty(x).n_elems();
            x = b.reshape(x, &[n])?;
            0
        }
    };
    let extents = b.extents(x);
    let n = extents[at];
    // Slices become rows.
    let mut perm: Vec<usize> = (0..extents.len()).filter(|&i| i != at).collect();
    perm.insert(0, at);
    let rows = b.transpose(x, &perm)?;
    let tensor = b.known(rows).ok_or_else(|| OpError::Dynamic { what: what.into() })?;
    let width = tensor.n_elems().checked_div(n).unwrap_or(0);
    let keys: Vec<Key> = if tensor.dtype.is_float() {
        let all = tensor.to_f64();
        (0..n).map(|i| Key::Floats(all[i * width..(i + 1) * width].to_vec())).collect()
    } else {
        let wide = |x: i64| match tensor.dtype {
            crate::DType::U64 => i128::from(x as u64),
            _ => i128::from(x),
        };
        let all: Vec<i128> = tensor.to_i64().into_iter().map(wide).collect();
        (0..n).map(|i| Key::Ints(all[i * width..(i + 1) * width].to_vec())).collect()
    };
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| keys[i].order(&keys[j]));
    // Groups of equals, each from its first occurrence on: the sort is stable.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for i in order {
        match groups.last_mut() {
            Some(group) if keys[group[0]].order(&keys[i]).is_eq() => group.push(i),
            _ => groups.push(vec![i]),
        }
    }
    if c.int("sorted", 1)? == 0 {
        groups.sort_by_key(|group| group[0]);
    }
    let firsts: Vec<i64> = groups.iter().map(|group| group[0] as i64).collect();
    let counts: Vec<i64> = groups.iter().map(|group| group.len() as i64).collect();
    let mut inverse = vec![0i64; n];
    for (at, group) in groups.iter().enumerate() {
        group.iter().for_each(|&i| inverse[i] = at as i64);
    }
    let firsts = b.ints(&firsts);
    let y = b.gather(x, firsts, at)?;
    Ok(vec![y.into(), firsts.into(), b.ints(&inverse).into(), b.ints(&counts).into()])
}

/// Corners `[low, high]` of a box along both axes, from either encoding.
fn corners(given: &[f64], centred: bool) -> [[f64; 2]; 2] {
    [0, 1].map(|axis| {
        let (first, second) = (given[axis], given[axis + 2]);
        match centred {
            true => [first - second / 2.0, first + second / 2.0],
            false => [first.min(second), first.max(second)],
        }
    })
}

/// Intersection over union.
fn overlap(x: &[[f64; 2]; 2], y: &[[f64; 2]; 2]) -> f64 {
    let area = |of: &[[f64; 2]; 2]| (of[0][1] - of[0][0]) * (of[1][1] - of[1][0]);
    let shared = [0, 1].map(|i| (x[i][1].min(y[i][1]) - x[i][0].max(y[i][0])).max(0.0));
    let shared = shared[0] * shared[1];
    let union = area(x) + area(y) - shared;
    if union > 0.0 { shared / union } else { 0.0 }
}

/// Boxes by falling score, without those that overlap a chosen one too much: `[chosen, 3]`.
pub(super) fn non_max_suppression(b: &mut Builder, c: &Call) -> Outcome {
    let (boxes, scores) = (c.x(0)?, c.x(1)?);
    let ([batch, n, 4], [_, n_classes, n_scores]) = (&b.extents(boxes)[..], &b.extents(scores)[..])
    else {
        return c.form(format!("{} and {}", b.ty(boxes), b.ty(scores)), "[N, boxes, 4]");
    };
    let (batch, n, n_classes) = (*batch, *n, *n_classes);
    if *n_scores != n || b.extents(scores)[0] != batch {
        let expected = format!("a score for each of {}", b.ty(boxes));
        return Err(OpError::Operand { index: 1, found: b.ty(scores).to_string(), expected });
    }
    let what = "which boxes are chosen";
    let scalar = |value: Option<Value>| -> Result<Option<f64>, OpError> {
        value.map_or(Ok(None), |value| Ok(b.known_floats(value, what)?.first().copied()))
    };
    let most = scalar(c.opt(2)?)?.unwrap_or(0.0).max(0.0) as usize;
    let threshold = scalar(c.opt(3)?)?.unwrap_or(0.0);
    let least = scalar(c.opt(4)?)?;
    let centred = c.int("center_point_box", 0)? != 0;
    let (boxes, scores) = (b.known_floats(boxes, what)?, b.known_floats(scores, what)?);
    let boxes: Vec<[[f64; 2]; 2]> =
        boxes.chunks_exact(4).map(|one| corners(one, centred)).collect();
    let mut chosen_all: Vec<i64> = Vec::new();
    for image in 0..batch {
        for class in 0..n_classes {
            let scores = &scores[(image * n_classes + class) * n..][..n];
            let boxes = &boxes[image * n..][..n];
            let mut order: Vec<usize> =
                (0..n).filter(|&i| least.is_none_or(|least| scores[i] > least)).collect();
            order.sort_by(|&i, &j| scores[j].total_cmp(&scores[i]));
            let mut chosen: Vec<usize> = Vec::new();
            for i in order {
                if chosen.len() >= most {
                    break;
                }
                if chosen.iter().all(|&j| overlap(&boxes[i], &boxes[j]) <= threshold) {
                    chosen.push(i);
                }
            }
            chosen_all.extend(chosen.iter().flat_map(|&i| [image as i64, class as i64, i as i64]));
        }
    }
    one(b.constant(Tensor::i64(&[chosen_all.len() / 3, 3], &chosen_all)))
}
