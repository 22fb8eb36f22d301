//! Does a star serve what the alerts and the dashboard of `tuning` look at?

mod promql;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::star::Star;
use promql::{Named, named};

/// Metrics and labels that Prometheus adds by itself.
const OF_PROMETHEUS: &[&str] = &["up"];
const LABELS_OF_PROMETHEUS: &[&str] = &["instance", "job"];
/// What an operator must be able to see.
const IMPORTANT: &[&str] = &[
    "nova_log_unsettled_entries",
    "nova_stalls",
    "nova_store_put_if_absent_chunks_failures_total",
    "nova_disk_data_free_bytes",
    "nova_tenure_recovery_ms",
    "nova_operation_seconds_bucket",
    "nova_batches_refused_total",
];

/// What is served: of each name the labels with their values.
type Served = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Adds the samples of a text to what is served.
fn add(served: &mut Served, text: &str) {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).expect("a sample has a value");
        let of_name = served.entry(line[..end].to_owned()).or_default();
        let Some(labels) = line[end..].strip_prefix('{').and_then(|rest| rest.rsplit_once('}')) else { continue };
        // No value that is served here has a comma or a quote.
        for (label, value) in labels.0.split(',').filter_map(|pair| pair.split_once('=')) {
            of_name.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
        }
    }
}

/// What a star serves that has been appended to and read from, and has settled some of it.
fn served() -> Served {
    let star = Star::start();
    star.append("a", &["x"]);
    star.got("/v1/buckets/demo/streams/a/records?from=0");
    let until = Instant::now() + Duration::from_secs(30);
    let mut served = Served::new();
    // The background tells what it counts once a second, and what it puts once it has put it.
    while !served.contains_key("nova_store_put_if_absent_chunks_total") {
        assert!(Instant::now() < until, "the store was never told of: {:?}", served.keys());
        std::thread::sleep(Duration::from_millis(50));
        add(&mut served, &star.http.get("/metrics").text());
    }
    served
}

fn file(path: &str) -> String {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs this test");
    let path = std::path::Path::new(&root).join("../../tuning").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The expressions of the alerts, each with the alert's name.
fn alerts() -> Vec<(String, String)> {
    let (mut found, mut name) = (Vec::new(), String::new());
    for line in file("prometheus/nova.rules.yml").lines() {
        if let Some(of) = line.trim_start().strip_prefix("- alert: ") {
            name = of.to_owned();
        } else if let Some(expr) = line.trim_start().strip_prefix("expr: ") {
            found.push((std::mem::take(&mut name), expr.to_owned()));
        }
    }
    assert!(found.len() > 10 && found.iter().all(|(name, _)| !name.is_empty()), "{found:?}");
    found
}

/// The expressions of the panels, each with the panel's title.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&file("grafana/nova.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let of_panel = |panel: &Value| -> Vec<(String, String)> {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.iter().map(|target| (text(&panel["title"]), text(&target["expr"]))).collect()
    };
    let found: Vec<_> = panels.iter().flat_map(of_panel).collect();
    assert!(found.len() > 30, "{found:?}");
    found
}

/// What of an expression no star serves.
fn faults(served: &Served, Named { selectors, grouped_by }: &Named) -> Vec<String> {
    let mut faults = Vec::new();
    let mut labels_seen: BTreeSet<&str> = LABELS_OF_PROMETHEUS.iter().copied().collect();
    for selector in selectors {
        let metric = selector.metric.as_str();
        if OF_PROMETHEUS.contains(&metric) {
            continue;
        }
        let Some(labels) = served.get(metric) else {
            faults.push(format!("nobody serves {metric}"));
            continue;
        };
        labels_seen.extend(labels.keys().map(String::as_str));
        for (label, operator, value) in &selector.labels {
            let values = labels.get(label);
            let is_of_prometheus = LABELS_OF_PROMETHEUS.contains(&label.as_str());
            if values.is_none() && !is_of_prometheus {
                faults.push(format!("{metric} has no label {label}"));
            }
            let wanted: Vec<&str> = match operator.as_str() {
                "=" => vec![value],
                // Alternatives of plain words, as they stand here.
                "=~" => value.split('|').collect(),
                _ => Vec::new(),
            };
            let missing = wanted.into_iter().filter(|wanted| values.is_some_and(|values| !values.contains(*wanted)));
            faults.extend(missing.map(|missing| format!("{metric} has no {label} of {missing}")));
        }
    }
    let unknown = grouped_by.iter().filter(|label| !labels_seen.contains(label.as_str()));
    faults.extend(unknown.map(|label| format!("nothing that is grouped has a label {label}")));
    faults
}

#[test]
fn alerts_and_panels_name_what_a_star_serves() {
    let served = served();
    let (alerts, panels) = (alerts(), panels());
    for (name, expr) in alerts.iter().chain(&panels) {
        let found = named(expr).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!found.selectors.is_empty(), "{name} looks at nothing");
        let faults = faults(&served, &found);
        assert!(faults.is_empty(), "{name}: {faults:?}\n{expr}");
    }
    let metrics = |of: &[(String, String)]| -> BTreeSet<String> {
        let selectors = of.iter().flat_map(|(_, expr)| named(expr).expect("it was made out").selectors);
        selectors.map(|selector| selector.metric).collect()
    };
    let (watched, shown) = (metrics(&alerts), metrics(&panels));
    let unseen: Vec<_> =
        watched.iter().filter(|name| !shown.contains(*name) && !OF_PROMETHEUS.contains(&name.as_str())).collect();
    assert!(unseen.is_empty(), "alerts go by what no panel shows: {unseen:?}");
    let missing: Vec<_> = IMPORTANT.iter().filter(|name| !shown.contains(**name)).collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
}

#[test]
fn what_nobody_serves_is_a_fault() {
    let mut served = Served::new();
    add(&mut served, "# HELP a b\na{shard=\"0\",verb=\"append\"} 1\nb 2\n# EOF\n");
    let check = |expr: &str, wanted: usize| {
        let found = faults(&served, &named(expr).expect("an expression"));
        assert_eq!(found.len(), wanted, "{expr}: {found:?}");
    };
    check("rate(a{verb=\"append\",instance=~\"x\"}[5m]) > 1 and b", 0);
    check("sum by (shard, instance) (a)", 0);
    check("c", 1);
    check("a{verb=\"read\"}", 1);
    check("a{route=\"x\"}", 1);
    check("a{verb=~\"append|read\"}", 1);
    check("sum by (route) (a)", 1);
    assert_eq!(json!(served.keys().collect::<Vec<_>>()), json!(["a", "b"]));
}
