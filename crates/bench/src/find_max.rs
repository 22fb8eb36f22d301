//! What is the highest rate at which acks stay quick?

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::append::{self, AppendOptions};
use crate::error::BenchError;
use crate::progress::OnProgress;
use crate::report::{Count, LoadReport, Made, seconds};

/// Trials at most.
const TRIALS_MAX: usize = 24;
/// A rate is not raised past this.
const RATE_MAX: f64 = 1e8;
/// Appends of a trial without which no p99 is told.
const SAMPLES_MIN: f64 = 1_000.0;
/// What the search keeps above that, since arrivals that are drawn may be fewer than are due.
const SPARE: f64 = 1.25;
/// The search ends once it knows the rate within this share.
const NEAR: f64 = 0.05;

/// What counts as quick, and how the search goes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FindMaxOptions {
    /// The load; its rate is where the search begins. Warm-up and duration are those of one trial.
    pub load: AppendOptions,
    /// Longest p99 of acks from when they were due.
    #[serde(rename = "p99_max_seconds", serialize_with = "seconds")]
    pub p99_max: Duration,
}

/// One rate that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trial {
    /// Appends a second that were due.
    pub rate: f64,
    /// Acks a second that came.
    pub acks_per_s: f64,
    /// Median latency, in microseconds.
    pub p50_us: Option<f64>,
    /// 99 in 100.
    pub p99_us: Option<f64>,
    /// Why it does not pass; absent when it does.
    pub fails: Option<String>,
    /// Whether the generator was the limit.
    pub is_generators: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FindMaxReport {
    /// When and where.
    #[serde(flatten)]
    pub made: Made,
    /// What was run.
    pub settings: FindMaxOptions,
    /// Every rate that was tried, in order.
    pub trials: Vec<Trial>,
    /// The highest rate that passed; absent when none did.
    pub rate_max: Option<f64>,
    /// What a reader must know before believing the rate.
    pub warnings: Vec<String>,
}

impl fmt::Display for FindMaxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)?;
        let p99_ms = self.settings.p99_max.as_secs_f64() * 1e3;
        writeln!(f, "find-max   {}; p99 at most {p99_ms} ms", self.settings.load)?;
        writeln!(f, "\n      rate     acks/s    p50 µs    p99 µs")?;
        let mut trials: Vec<_> = self.trials.iter().collect();
        trials.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        for trial in trials {
            let us = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
            let (rate, acks) = (Count(trial.rate).to_string(), Count(trial.acks_per_s).to_string());
            let fails = trial.fails.as_deref().unwrap_or("passes");
            let knee = if self.rate_max == Some(trial.rate) { "  ← the knee" } else { "" };
            writeln!(f, "{rate:>10} {acks:>10} {:>9} {:>9}  {fails}{knee}", us(trial.p50_us), us(trial.p99_us))?;
        }
        match self.rate_max {
            Some(rate) => writeln!(f, "\nmax        {} appends/s", Count(rate))?,
            None => writeln!(f, "\nmax        no rate that was tried passes")?,
        }
        for warning in &self.warnings {
            writeln!(f, "warning    {warning}")?;
        }
        Ok(())
    }
}

/// Where a search stands: the highest rate that passed and the lowest that did not.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Search {
    passed: Option<f64>,
    failed: Option<f64>,
    next: f64,
    /// Lower rates have too few samples to be judged.
    least: f64,
}

impl Search {
    const fn from(rate: f64, least: f64) -> Self {
        Self { passed: None, failed: None, next: rate, least }
    }

    /// Notes how the next rate went and chooses the one after it; false when the search is over.
    fn note(&mut self, passes: bool) -> bool {
        let of = if passes { &mut self.passed } else { &mut self.failed };
        *of = Some(self.next);
        match (self.passed, self.failed) {
            (Some(passed), None) => {
                self.next = passed * 2.0;
                self.next <= RATE_MAX
            }
            (None, Some(failed)) => {
                self.next = (failed / 4.0).max(self.least);
                failed > self.least * (1.0 + NEAR)
            }
            (Some(passed), Some(failed)) => {
                // The middle by ratio, since the rates went up by ratios.
                self.next = (passed * failed).sqrt();
                failed / passed > 1.0 + NEAR
            }
            (None, None) => false,
        }
    }
}

/// Searches.
///
/// # Errors
/// [`BenchError`] of an option, or of a trial that could not be run.
pub fn run(options: &FindMaxOptions, on_progress: OnProgress<'_>) -> Result<FindMaxReport, BenchError> {
    let Some(rate) = options.load.rate else {
        return Err(BenchError::option("rate", "absent", "set: the search begins there"));
    };
    if let Some(at) = options.load.start_at {
        return Err(BenchError::option("start_at", at, "absent: a search has many trials, one after the other"));
    }
    if options.p99_max.is_zero() {
        return Err(BenchError::option("p99_max", 0, "longer than nothing"));
    }
    let seconds = options.load.duration.as_secs_f64();
    if rate * seconds < SAMPLES_MIN {
        let range =
            format!("so high that {seconds} s have {SAMPLES_MIN} appends, or a trial longer: a p99 takes as many");
        return Err(BenchError::option("rate", rate, range));
    }
    let made = Made::here(None);
    let least = (SPARE * SAMPLES_MIN / seconds).max(1.0);
    let (mut search, mut trials) = (Search::from(rate, least), Vec::new());
    loop {
        let load = AppendOptions { rate: Some(search.next), ..options.load.clone() };
        let report = append::run(&load, None, on_progress)?;
        let trial = judged(&report, search.next, options)?;
        let passes = trial.fails.is_none();
        trials.push(trial);
        if !search.note(passes) || trials.len() >= TRIALS_MAX {
            break;
        }
    }
    let mut warnings = Vec::new();
    if trials.iter().any(|trial| trial.fails.is_some() && trial.is_generators) {
        warnings
            .push("the generator was the limit of a rate that did not pass: give it more threads or CPUs".to_owned());
    }
    Ok(FindMaxReport { made, settings: options.clone(), trials, rate_max: search.passed, warnings })
}

/// How a trial went. One of too few samples is no verdict on the server, and ends the search.
fn judged(report: &LoadReport, rate: f64, options: &FindMaxOptions) -> Result<Trial, BenchError> {
    let p99_us = report.latency_us.p99;
    let p99_max_us = options.p99_max.as_secs_f64() * 1e6;
    let refused: u64 = report.refusals.values().sum();
    let unsent = report.open_loop.as_ref().map_or(0, |open_loop| open_loop.unsent);
    let fails = match p99_us {
        _ if refused > 0 => Some(format!("{refused} appends were refused")),
        _ if unsent > 0 => Some(format!("{unsent} appends were never sent")),
        None => {
            let (samples, seconds) = (report.latency_us.samples, options.load.duration.as_secs_f64());
            let range = format!("longer: a trial at {rate:.0} a second had {samples} samples, too few for a p99");
            return Err(BenchError::option("duration", format!("{seconds} s"), range));
        }
        Some(p99) if p99 > p99_max_us => Some("p99 is too long".to_owned()),
        Some(_) => None,
    };
    let is_generators = report.is_generator_the_limit();
    Ok(Trial { rate, acks_per_s: report.acks_per_s, p50_us: report.latency_us.p50, p99_us, fails, is_generators })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FindMaxOptions, Search, run};
    use crate::append::AppendOptions;
    use crate::tests::scripted::{Fault, Scripted};

    fn found(from: f64, limit: f64) -> (Option<f64>, usize) {
        let (mut search, mut trials) = (Search::from(from, 1.0), 1);
        while search.note(search.next <= limit) {
            trials += 1;
        }
        (search.passed, trials)
    }

    #[test]
    fn the_highest_rate_is_found_within_a_twentieth_from_below_and_from_above() {
        for from in [10.0, 1_000.0, 80_000.0] {
            let (rate, trials) = found(from, 12_345.0);
            let rate = rate.unwrap();
            assert!((12_345.0 / 1.06..=12_345.0).contains(&rate), "{rate} from {from}");
            assert!(trials < 24, "{trials} trials from {from}");
        }
    }

    #[test]
    fn a_server_that_passes_no_rate_and_one_that_passes_all_end_the_search() {
        assert_eq!(found(100.0, 0.0).0, None);
        assert!(found(100.0, f64::MAX).0.unwrap() > 4e7);
    }

    #[test]
    fn a_search_goes_no_lower_than_its_trials_can_be_judged() {
        let (mut search, mut rates) = (Search::from(10_000.0, 400.0), Vec::new());
        while search.note(false) {
            rates.push(search.next);
        }
        assert_eq!(rates, [2_500.0, 625.0, 400.0]);
    }

    #[test]
    fn a_trial_of_too_few_appends_is_refused_and_never_taken_for_a_slow_server() {
        let server = Scripted::start(Fault::None, 16);
        let find = |rate: f64| {
            let (warm_up, duration) = (Duration::ZERO, Duration::from_millis(250));
            let load = AppendOptions {
                addr: server.addr.clone(),
                rate: Some(rate),
                warm_up,
                duration,
                ..AppendOptions::default()
            };
            run(&FindMaxOptions { load, p99_max: Duration::from_nanos(1) }, &mut |_| ())
        };
        let error = find(3_900.0).unwrap_err().to_string();
        assert!(error.starts_with("rate is 3900: it must be so high that 0.25 s have 1000 appends"), "{error}");
        let report = find(5_000.0).unwrap();
        assert_eq!((report.trials.len(), report.rate_max), (1, None), "{report}");
        assert!(report.trials[0].fails.is_some(), "{report}");
    }
}
