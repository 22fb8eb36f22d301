//! Does a series stay where it is, or does it grow?

use serde::Serialize;

/// Windows that a verdict needs.
pub(crate) const SAMPLES_MIN: usize = 8;
/// A slope counts when it is this many times its own standard error.
const ERRORS_MIN: f64 = 3.0;

/// What a series of windows does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// It stays within its bound.
    Flat,
    /// It grows by more than its bound.
    Grows,
    /// There are too few windows to say.
    TooShort,
}

/// The verdict on one series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Which series.
    pub series: &'static str,
    /// What it does.
    pub trend: Trend,
    /// Its mean after the warm-up.
    pub mean: f64,
    /// By how much of its mean it grows from the first window after the warm-up to the last, by a least-squares line, in percent.
    pub drift_percent: f64,
    /// How much it may.
    pub drift_percent_max: f64,
}

/// Judges a series: a line is laid through it by least squares, and it grows when the line rises by more than so much of the mean and
/// the rise is no chance.
#[must_use]
pub fn judge(series: &'static str, values: &[f64], drift_percent_max: f64) -> Verdict {
    let count = crate::progress::as_f64(values.len() as u64);
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    if values.len() < SAMPLES_MIN {
        return Verdict { series, trend: Trend::TooShort, mean, drift_percent: 0.0, drift_percent_max };
    }
    let middle = (count - 1.0) / 2.0;
    let at = |index: usize| crate::progress::as_f64(index as u64) - middle;
    let spread: f64 = (0..values.len()).map(|index| at(index).powi(2)).sum();
    let slope = values.iter().enumerate().map(|(index, value)| at(index) * (value - mean)).sum::<f64>() / spread;
    let residual = |(index, value): (usize, &f64)| (value - mean - slope * at(index)).powi(2);
    let residuals: f64 = values.iter().enumerate().map(residual).sum();
    let error = (residuals / (count - 2.0) / spread).sqrt();
    let drift_percent = if mean > 0.0 { 100.0 * slope * (count - 1.0) / mean } else { 0.0 };
    let is_no_chance = slope > ERRORS_MIN * error;
    let trend = if drift_percent > drift_percent_max && is_no_chance { Trend::Grows } else { Trend::Flat };
    Verdict { series, trend, mean, drift_percent, drift_percent_max }
}

#[cfg(test)]
mod tests {
    use super::{Trend, judge};

    fn trend(values: impl IntoIterator<Item = f64>) -> Trend {
        judge("it", &values.into_iter().collect::<Vec<_>>(), 10.0).trend
    }

    #[test]
    fn what_rises_by_more_than_its_bound_grows_and_what_only_wavers_does_not() {
        let wave = |at: i32| 100.0 + f64::from(at * 7919 % 13);
        assert_eq!(trend((0..60).map(wave)), Trend::Flat);
        assert_eq!(trend((0..60).map(|at| wave(at) + f64::from(at))), Trend::Grows);
        assert_eq!(trend((0..60).map(|at| wave(at) + f64::from(at) / 20.0)), Trend::Flat);
        assert_eq!(trend((0..60).map(|at| wave(at) - f64::from(at))), Trend::Flat);
        assert_eq!(trend((0..60).map(|_| 0.0)), Trend::Flat);
        assert_eq!(trend((0..7).map(f64::from)), Trend::TooShort);
    }

    #[test]
    fn the_drift_is_told_in_percent_of_the_mean() {
        let verdict = judge("it", &(0..11).map(|at| 95.0 + f64::from(at)).collect::<Vec<_>>(), 5.0);
        assert!((verdict.drift_percent - 10.0).abs() < 1e-9 && (verdict.mean - 100.0).abs() < 1e-9, "{verdict:?}");
        assert_eq!(verdict.trend, Trend::Grows);
    }
}
