//! How good a ranking is: rank correlation, and what is lost by believing it.

/// Ranks of values from 1, equal values sharing the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let same = order[start..].iter().take_while(|&&at| values[at] == values[order[start]]);
        let end = start + same.count();
        let mean = (start + 1 + end) as f64 / 2.0;
        order[start..end].iter().for_each(|&at| ranks[at] = mean);
        start = end;
    }
    ranks
}

/// Spearman's rank correlation, in −1 … 1; NaN if one side is constant or empty.
///
/// # Panics
///
/// If the lengths differ.
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "pairs");
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        a.iter().zip(&b).map(|(x, y)| f(x - mean, y - mean)).sum()
    };
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

/// Kendall's rank correlation with ties (tau-b), in −1 … 1; NaN if one side is constant or empty.
///
/// # Panics
///
/// If the lengths differ.
pub fn kendall(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "pairs");
    let (mut agree, mut in_a, mut in_b) = (0.0, 0.0, 0.0);
    for i in 0..a.len() {
        for j in 0..i {
            let sign = |v: &[f64]| f64::from(v[i] > v[j]) - f64::from(v[i] < v[j]);
            let (x, y) = (sign(a), sign(b));
            agree += x * y;
            in_a += x * x;
            in_b += y * y;
        }
    }
    agree / (f64::sqrt(in_a) * f64::sqrt(in_b))
}

/// Best true time among the `n` best by prediction, over the best true time of all: 1 is no loss. NaN if
/// there is nothing to choose from.
///
/// # Panics
///
/// If the lengths differ.
pub fn regret(predicted: &[f64], measured: &[f64], n: usize) -> f64 {
    assert_eq!(predicted.len(), measured.len(), "pairs");
    let mut order: Vec<usize> = (0..predicted.len()).collect();
    order.sort_by(|&a, &b| predicted[a].total_cmp(&predicted[b]));
    let least = |of: &mut dyn Iterator<Item = f64>| of.fold(f64::NAN, f64::min);
    least(&mut order.iter().take(n).map(|&at| measured[at])) / least(&mut measured.iter().copied())
}

/// Geometric mean.
pub fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// The middle value (the upper of two); NaN if there is none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // By hand: ranks 1 2.5 2.5 4 against 1 2 3 4.
        let (a, b) = ([1.0, 2.0, 2.0, 5.0], [10.0, 20.0, 30.0, 40.0]);
        assert!((spearman(&a, &b) - 0.948_683_298).abs() < 1e-9);
        assert!((kendall(&a, &b) - 5.0 / 30.0_f64.sqrt()).abs() < 1e-12);
        assert!((spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert!((kendall(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert!(spearman(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
    }

    #[test]
    fn regret_is_of_the_best_of_the_first() {
        let (predicted, measured) = ([1.0, 2.0, 3.0], [12.0, 10.0, 11.0]);
        assert_eq!(regret(&predicted, &measured, 1), 1.2);
        assert_eq!(regret(&predicted, &measured, 2), 1.0);
        assert!(regret(&[], &[], 1).is_nan());
    }
}
