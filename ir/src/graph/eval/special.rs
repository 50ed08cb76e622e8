//! Functions that the standard library lacks.

/// The error function, to about 1e-15.
///
/// Below 3 by the series `2/sqrt(pi) exp(-x²) sum 2^n x^(2n+1) / (2n+1)!!`, whose terms are all of one
/// sign, above by the continued fraction of its complement (Abramowitz and Stegun 7.1.6 and 7.1.14).
pub(in crate::graph) fn erf(x: f64) -> f64 {
    let magnitude = x.abs();
    if x.is_nan() {
        return x;
    }
    let result = if magnitude < 3.0 {
        let (mut term, mut sum, mut n) = (magnitude, 0.0, 0.0);
        while term > sum * f64::EPSILON / 4.0 {
            sum += term;
            n += 1.0;
            term *= 2.0 * magnitude * magnitude / (2.0 * n + 1.0);
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-magnitude * magnitude).exp() * sum
    } else if magnitude < 6.0 {
        // sqrt(pi) exp(x²) erfc(x) = 1/(x + (1/2)/(x + (2/2)/(x + (3/2)/(x + …)))).
        let fraction =
            (1..=60).rev().fold(magnitude, |tail, k| magnitude + f64::from(k) / 2.0 / tail);
        1.0 - (-magnitude * magnitude).exp() * std::f64::consts::FRAC_2_SQRT_PI / 2.0 / fraction
    } else {
        1.0 // erfc(6) is 2e-17.
    };
    result.copysign(x)
}
