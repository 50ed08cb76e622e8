//! Fits a model's few constants to measurements: the simplex method of Nelder and Mead, "A simplex method
//! for function minimization", The Computer Journal 7 (1965), on the constants' logarithms, so that they
//! stay positive and their units do not matter.

/// Constants near `start` that minimise `loss`, and the loss there. Deterministic; at most `n_steps` steps.
///
/// # Panics
///
/// If a constant to start from is not positive.
pub fn fit(start: &[f64], n_steps: usize, loss: impl Fn(&[f64]) -> f64) -> (Vec<f64>, f64) {
    assert!(start.iter().all(|&value| value > 0.0), "constants are positive");
    let at = |logs: &[f64]| {
        let value = loss(&logs.iter().map(|log| log.exp()).collect::<Vec<_>>());
        if value.is_nan() { f64::INFINITY } else { value }
    };
    let origin: Vec<f64> = start.iter().map(|value| value.ln()).collect();
    let n = origin.len();
    let mut simplex: Vec<(Vec<f64>, f64)> = vec![(origin.clone(), at(&origin))];
    for i in 0..n {
        let mut corner = origin.clone();
        corner[i] += 0.2;
        let value = at(&corner);
        simplex.push((corner, value));
    }
    for _ in 0..n_steps {
        simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, worst) = (simplex[0].1, simplex[n].1);
        let size = simplex.iter().flat_map(|it| it.0.iter().zip(&simplex[0].0));
        let size = size.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        if size < 1e-9 {
            break;
        }
        let centre: Vec<f64> =
            (0..n).map(|i| simplex[..n].iter().map(|it| it.0[i]).sum::<f64>() / n as f64).collect();
        let towards = |factor: f64| -> (Vec<f64>, f64) {
            let corner: Vec<f64> =
                centre.iter().zip(&simplex[n].0).map(|(c, w)| c + factor * (c - w)).collect();
            let value = at(&corner);
            (corner, value)
        };
        let reflected = towards(1.0);
        let second_worst = simplex[n - 1].1;
        let next = if reflected.1 < best {
            let expanded = towards(2.0);
            Some(if expanded.1 < reflected.1 { expanded } else { reflected })
        } else if reflected.1 < second_worst {
            Some(reflected)
        } else {
            let contracted = towards(if reflected.1 < worst { 0.5 } else { -0.5 });
            (contracted.1 < worst.min(reflected.1)).then_some(contracted)
        };
        match next {
            Some(corner) => simplex[n] = corner,
            None => {
                let best = simplex[0].0.clone();
                for corner in &mut simplex[1..] {
                    for (value, towards) in corner.0.iter_mut().zip(&best) {
                        *value = 0.5 * (*value + towards);
                    }
                    corner.1 = at(&corner.0);
                }
            }
        }
    }
    simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (logs, value) = simplex.swap_remove(0);
    (logs.iter().map(|log| log.exp()).collect(), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_of_a_line_are_found() {
        let points: Vec<(f64, f64)> =
            (1..20).map(|x| (f64::from(x), 700.0 + 0.25 * f64::from(x))).collect();
        let loss = |p: &[f64]| {
            points.iter().map(|(x, y)| ((p[0] + p[1] * x) / y).ln().powi(2)).sum::<f64>()
        };
        let (found, left) = fit(&[100.0, 10.0], 2000, loss);
        assert!(left < 1e-12, "{left}");
        assert!((found[0] - 700.0).abs() < 0.1 && (found[1] - 0.25).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn nothing_is_worse_than_the_start() {
        let loss = |p: &[f64]| if p[0] > 1.0 { f64::NAN } else { p[0] };
        assert!(fit(&[1.0], 10, loss).1 <= 1.0);
    }
}
