//! Is one run better or worse than another, and by too much?

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::error::BenchError;

/// What is compared: where it stands in a report, and whether more of it is better.
const MEASURES: [(&str, bool); 9] = [
    ("acks_per_s", true),
    ("records_per_s", true),
    ("bytes_per_s", true),
    ("latency_us.p50", false),
    ("latency_us.p90", false),
    ("latency_us.p99", false),
    ("latency_us.p99_9", false),
    ("latency_us.p99_99", false),
    ("latency_us.max", false),
];

/// How much worse the second run may be, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Thresholds {
    /// Rates: acks, records and bytes a second.
    pub rate_percent: f64,
    /// p50 and p90.
    pub p50_percent: f64,
    /// p99.
    pub p99_percent: f64,
    /// p99.9; what lies beyond is told and not judged.
    pub p99_9_percent: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { rate_percent: 5.0, p50_percent: 10.0, p99_percent: 20.0, p99_9_percent: 50.0 }
    }
}

impl Thresholds {
    fn of(&self, measure: &str) -> Option<f64> {
        match measure {
            "latency_us.p50" | "latency_us.p90" => Some(self.p50_percent),
            "latency_us.p99" => Some(self.p99_percent),
            "latency_us.p99_9" => Some(self.p99_9_percent),
            "latency_us.p99_99" | "latency_us.max" => None,
            _ => Some(self.rate_percent),
        }
    }
}

/// One measure of both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Which.
    pub measure: &'static str,
    /// Of the first run.
    pub before: f64,
    /// Of the second; absent where it withholds what the first one tells.
    pub after: Option<f64>,
    /// By how much the second is worse, in percent; below zero it is better. Absent where no share can be told.
    pub worse_percent: Option<f64>,
    /// How much worse it may be; absent is not judged.
    pub worse_percent_max: Option<f64>,
    /// Whether it is worse by more.
    pub is_too_bad: bool,
}

impl Row {
    /// A rate or a latency, if the first run has it.
    fn of(measure: &'static str, is_more_better: bool, runs: [&Value; 2], thresholds: &Thresholds) -> Option<Self> {
        let [before, after] = runs.map(|run| at(run, measure).and_then(Value::as_f64));
        let before = before.filter(|before| *before > 0.0)?;
        // Nothing at all is worse than any share.
        let is_nothing = is_more_better && after.is_some_and(|after| after <= 0.0);
        let worse = |after: f64| 100.0 * if is_more_better { before / after - 1.0 } else { after / before - 1.0 };
        let worse_percent = after.filter(|_| !is_nothing).map(worse);
        let worse_percent_max = thresholds.of(measure);
        let is_worse = |max: f64| is_nothing || worse_percent.is_some_and(|worse| worse > max);
        let is_too_bad = worse_percent_max.is_some_and(is_worse);
        Some(Self { measure, before, after, worse_percent, worse_percent_max, is_too_bad })
    }

    /// What there should be none of, if one of the runs has any; no more of it is taken.
    fn of_failures(measure: &'static str, count: fn(&Value) -> Option<f64>, runs: [&Value; 2]) -> Option<Self> {
        let [before, after] = runs.map(|run| count(run).unwrap_or(0.0));
        let row = Self {
            measure,
            before,
            after: Some(after),
            worse_percent: (before > 0.0).then(|| 100.0 * (after / before - 1.0)),
            worse_percent_max: Some(0.0),
            is_too_bad: after > before,
        };
        (before > 0.0 || after > 0.0).then_some(row)
    }
}

fn refused(report: &Value) -> Option<f64> {
    Some(report.get("refusals")?.as_object()?.values().filter_map(Value::as_f64).sum())
}

fn unsent(report: &Value) -> Option<f64> {
    at(report, "open_loop.unsent").and_then(Value::as_f64)
}

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What both measured.
    pub rows: Vec<Row>,
    /// Settings in which the runs differ: of the first and of the second.
    pub differs: BTreeMap<String, (Value, Value)>,
}

impl Comparison {
    /// The measures that are worse by more than they may be.
    #[must_use]
    pub fn too_bad(&self) -> Vec<&'static str> {
        self.rows.iter().filter(|row| row.is_too_bad).map(|row| row.measure).collect()
    }
}

/// Compares two reports of loads, as their JSON has them.
///
/// # Errors
/// [`BenchError::Option`] when they are of different measures, or have no number in common.
pub fn compare(before: &Value, after: &Value, thresholds: &Thresholds) -> Result<Comparison, BenchError> {
    let runs = [before, after];
    let [one, other] = runs.map(measured);
    if one != other {
        return Err(BenchError::option("measure", format!("{one} and {other}"), "the same in both reports"));
    }
    let rows =
        MEASURES.iter().filter_map(|(measure, is_more_better)| Row::of(measure, *is_more_better, runs, thresholds));
    let mut rows: Vec<_> = rows.collect();
    if rows.iter().all(|row| row.after.is_none()) {
        return Err(BenchError::option(
            "reports",
            "two files",
            "JSON reports of loads, with a rate or latencies in common",
        ));
    }
    rows.extend(Row::of_failures("refusals", refused, runs));
    rows.extend(Row::of_failures("open_loop.unsent", unsent, runs));
    Ok(Comparison { rows, differs: differs(before.get("settings"), after.get("settings")) })
}

/// What a report is of. Appends are one measure whoever takes them: a peer's are there to lie beside nova's.
fn measured(report: &Value) -> &str {
    match at(report, "settings.measure").and_then(Value::as_str) {
        Some("peer") => "append",
        Some(measure) => measure,
        None => "unnamed",
    }
}

fn at<'a>(report: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(report, |value, key| value.get(key))
}

fn differs(before: Option<&Value>, after: Option<&Value>) -> BTreeMap<String, (Value, Value)> {
    let (Some(Value::Object(before)), Some(Value::Object(after))) = (before, after) else {
        return BTreeMap::new();
    };
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let of = |map: &serde_json::Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or(Value::Null);
    let pairs = keys.into_iter().map(|key| (key.clone(), (of(before, key), of(after, key))));
    pairs.filter(|(_, (before, after))| before != after).collect()
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:20} {:>14} {:>14} {:>9} {:>9}", "", "before", "after", "worse by", "may be")?;
        for row in &self.rows {
            let Row { measure, before, .. } = row;
            let after = row.after.map_or_else(|| "withheld".to_owned(), |after| format!("{after:.1}"));
            let worse = row.worse_percent.map_or_else(|| "-".to_owned(), |worse| format!("{worse:+.1} %"));
            let max = row.worse_percent_max.map_or_else(|| "-".to_owned(), |max| format!("{max:.0} %"));
            let verdict = if row.is_too_bad { "  TOO BAD" } else { "" };
            writeln!(f, "{measure:20} {before:14.1} {after:>14} {worse:>9} {max:>9}{verdict}")?;
        }
        for (setting, (before, after)) in &self.differs {
            writeln!(f, "differs    {setting}: {before} and {after}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Thresholds, compare};

    fn report(acks_per_s: f64, p99: Value) -> Value {
        json!({"acks_per_s": acks_per_s, "latency_us": {"p50": 100.0, "p99": p99}, "settings": {"window": acks_per_s, "a": 1}})
    }

    fn too_bad(before: Value, after: Value) -> Vec<&'static str> {
        compare(&before, &after, &Thresholds::default()).unwrap().too_bad()
    }

    #[test]
    fn a_run_that_is_worse_by_more_than_it_may_be_is_told_by_measure() {
        assert!(too_bad(report(1_000.0, json!(500.0)), report(960.0, json!(590.0))).is_empty());
        assert_eq!(
            too_bad(report(1_000.0, json!(500.0)), report(900.0, json!(610.0))),
            ["acks_per_s", "latency_us.p99"]
        );
        assert!(too_bad(report(1_000.0, json!(500.0)), report(5_000.0, json!(5.0))).is_empty());
        assert!(
            too_bad(report(1_000.0, Value::Null), report(1_000.0, json!(5.0))).is_empty(),
            "withheld is not judged"
        );
    }

    #[test]
    fn settings_that_differ_are_named_and_what_is_no_report_is_refused() {
        let comparison = compare(&report(1.0, json!(1)), &report(2.0, json!(1)), &Thresholds::default()).unwrap();
        assert_eq!(comparison.differs.keys().collect::<Vec<_>>(), ["window"]);
        assert!(comparison.to_string().contains("differs    window: 1.0 and 2.0"), "{comparison}");
        assert!(compare(&json!({}), &json!(3), &Thresholds::default()).is_err());
    }

    fn of(measure: &str, refusals: Value, unsent: u64) -> Value {
        json!({"acks_per_s": 10.0, "refusals": refusals, "open_loop": {"unsent": unsent}, "settings": {"measure": measure}})
    }

    #[test]
    fn runs_of_different_measures_are_refused_and_a_peer_lies_beside_nova() {
        let try_both = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|measure| of(measure, json!({}), 0));
            compare(&one, &other, &Thresholds::default()).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(try_both("append", "append"), Ok(()));
        assert_eq!(try_both("peer", "append"), Ok(()));
        let error = try_both("net", "append").unwrap_err();
        assert_eq!(error, "measure is net and append: it must be the same in both reports");
        let of_reads = json!({"acks_per_s": 1.0, "settings": {"readers": 1}});
        assert!(compare(&of("append", json!({}), 0), &of_reads, &Thresholds::default()).is_err());
    }

    #[test]
    fn more_refusals_more_unsent_appends_and_no_acks_at_all_are_too_bad() {
        let refused = |count: u64| json!({"internal": count, "unavailable": 2});
        let bad = |before: (Value, u64), after: (Value, u64)| {
            too_bad(of("append", before.0, before.1), of("append", after.0, after.1))
        };
        assert!(bad((refused(3), 4), (refused(3), 4)).is_empty());
        assert!(bad((refused(3), 4), (json!({}), 0)).is_empty());
        assert_eq!(bad((refused(3), 4), (refused(4), 4)), ["refusals"]);
        assert_eq!(bad((json!({}), 0), (json!({}), 1)), ["open_loop.unsent"]);
        assert_eq!(too_bad(json!({"acks_per_s": 9.0}), json!({"acks_per_s": 0.0})), ["acks_per_s"]);
    }

    #[test]
    fn what_the_second_run_withholds_is_shown_as_withheld() {
        let (before, after) = (report(10.0, json!(500.0)), report(10.0, Value::Null));
        let comparison = compare(&before, &after, &Thresholds::default()).unwrap();
        let row = comparison.rows.iter().find(|row| row.measure == "latency_us.p99").unwrap();
        assert_eq!((row.after, row.worse_percent, row.is_too_bad), (None, None, false));
        let text = comparison.to_string();
        assert!(text.lines().any(|line| line.starts_with("latency_us.p99 ") && line.contains("withheld")), "{text}");
    }
}
