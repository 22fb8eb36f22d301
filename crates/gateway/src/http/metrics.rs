//! What do the gateway and its star count, as Prometheus reads it?

use std::fmt;
use std::time::Duration;

use client::{Counter as Counted, HeavyStream, StarAnswer, StarDetail, StoodStill, Timing};
use http::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::timeout;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::answer::fresh;
use super::bounds::PROBE_WAIT_MAX;
use super::failure::HttpRefusal;
use super::route::{Ask, Outcome};
use super::routes::ROUTES;

/// As Prometheus asks for it.
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Upper ends of the buckets of what requests take, in seconds.
const SECONDS: [f64; 14] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

type Labels = Vec<(&'static str, String)>;

/// What is counted of one route.
#[derive(Debug)]
struct OfRoute {
    seconds: Histogram,
    /// By the first digit of the status.
    answers: [Counter; 5],
}

/// What the gateway counts; the labels are routes and classes of status, so that there are few.
#[derive(Debug)]
pub(super) struct Counts {
    registry: Registry,
    routes: Vec<OfRoute>,
    pub(super) connections: Counter,
    feeds: Gauge,
    readers: Gauge,
}

impl Default for Counts {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("nova_http");
        let answers = Family::<Labels, Counter>::default();
        let seconds = Family::<Labels, Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        let routes = ROUTES.iter().map(|route| {
            let of_class = |class: usize| {
                answers.get_or_create(&vec![("route", route.id.to_owned()), ("status", format!("{class}xx"))]).clone()
            };
            OfRoute {
                seconds: seconds.get_or_create(&vec![("route", route.id.to_owned())]).clone(),
                answers: [of_class(1), of_class(2), of_class(3), of_class(4), of_class(5)],
            }
        });
        let routes = routes.collect();
        let (connections, feeds, readers) = (Counter::default(), Gauge::default(), Gauge::default());
        registry.register("answers", "Answers by route and class of status", answers);
        registry.register("seconds", "From the head of a request to the head of its answer", seconds);
        registry.register("connections", "Connections accepted", connections.clone());
        registry.register("followed_streams", "Streams that are followed for subscribers", feeds.clone());
        registry.register("subscribers", "Subscribers and reads that wait", readers.clone());
        Self { registry, routes, connections, feeds, readers }
    }
}

impl Counts {
    /// Notes an answer of the route at this place of the table.
    pub(super) fn answered(&self, route: usize, status: StatusCode, took: Duration) {
        let counts = &self.routes[route];
        counts.seconds.observe(took.as_secs_f64());
        counts.answers[usize::from(status.as_u16() / 100).clamp(1, 5) - 1].inc();
    }
}

pub(super) async fn metrics(ask: Ask) -> Outcome {
    let gateway = &ask.gateway;
    let (feeds, readers) = gateway.feeds.counts();
    gateway.counts.feeds.set(i64::try_from(feeds).unwrap_or(i64::MAX));
    gateway.counts.readers.set(i64::try_from(readers).unwrap_or(i64::MAX));
    let mut out = String::new();
    let star = timeout(PROBE_WAIT_MAX, ask.client().star_in_detail()).await;
    let names_streams = ask.query.flag("streams");
    let written = encode(&mut out, &gateway.counts.registry).and_then(|()| {
        // What the gateway counts is told also while its star is away.
        match &star {
            Ok(Ok((star, detail))) => {
                let heaviest = if names_streams { &detail.heaviest[..] } else { &[] };
                encode_star(star, (detail, heaviest), &mut out)
            }
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    });
    written.map_err(|error| {
        HttpRefusal::from(Refusal::new(Reason::Internal, format!("the metrics can't be written: {error}")))
    })?;
    Ok(fresh(StatusCode::OK, KIND, out))
}

/// Adds what the star and its shards count, and these streams, to the text of the registry, before the line that ends it.
fn encode_star(star: &StarAnswer, (detail, heaviest): (&StarDetail, &[HeavyStream]), out: &mut String) -> fmt::Result {
    let mut registry = Registry::with_prefix("nova");
    let about = Family::<Labels, Gauge>::default();
    about.get_or_create(&vec![("star_id", star.star_id.to_string()), ("version", star.version.clone())]).set(1);
    registry.register("star", "The star that is asked", about);
    let mut counters = star.counters.iter().collect::<Vec<_>>();
    counters.sort_by(|a, b| (&a.name, a.shard).cmp(&(&b.name, b.shard)));
    for of_name in counters.chunk_by(|a, b| a.name == b.name) {
        register(&mut registry, of_name);
    }
    registry.register_collector(Box::new(Timings(detail.timings.clone())));
    register_stood_still(&mut registry, &detail.stood_still);
    register_heaviest(&mut registry, heaviest);
    let end = out.rfind("# EOF").unwrap_or(out.len());
    out.truncate(end);
    encode(out, &registry)
}

/// Registers what is counted under one name, by shard unless it is the star's: what only grows says so in its name.
fn register(registry: &mut Registry, counters: &[&Counted]) {
    let name: String = counters[0].name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let labels = |counter: &Counted| match counter.shard {
        Counted::OF_STAR => Vec::new(),
        shard => vec![("shard", shard.to_string())],
    };
    let mut help = name.replace('_', " ");
    if let Some(stem) = name.strip_suffix("_total") {
        let family = Family::<Labels, Counter>::default();
        for counter in counters {
            family.get_or_create(&labels(counter)).inc_by(counter.value);
        }
        if counters.iter().any(|counter| counter.shard != Counted::OF_STAR) {
            help += ", by shard";
        }
        registry.register(stem, help, family);
    } else {
        let family = Family::<Labels, Gauge>::default();
        for counter in counters {
            family.get_or_create(&labels(counter)).set(i64::try_from(counter.value).unwrap_or(i64::MAX));
        }
        registry.register(name, help, family);
    }
}

/// Where the time of operations goes.
#[derive(Debug)]
struct Timings(Vec<Timing>);

impl Collector for Timings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let help = "From the receipt of a request to its answer, by shard, verb and phase.";
        let mut family = encoder.encode_descriptor("operation_seconds", help, None, MetricType::Histogram)?;
        for Timing { shard, operation, phase, times } in &self.0 {
            let labels: Labels = vec![
                ("shard", shard.to_string()),
                ("verb", operation.word().to_owned()),
                ("phase", phase.word().to_owned()),
            ];
            let end = |end: Option<Duration>| end.map_or(f64::INFINITY, |end| end.as_secs_f64());
            let buckets: Vec<(f64, u64)> = times.buckets().map(|(upto, count)| (end(upto), count)).collect();
            let sum = times.sum_ns() as f64 / 1e9;
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, times.count(), &buckets, None)?;
        }
        Ok(())
    }
}

/// Registers in which task each shard stood still last, if any did.
fn register_stood_still(registry: &mut Registry, stood_still: &[StoodStill]) {
    if stood_still.is_empty() {
        return;
    }
    let family = Family::<Labels, Gauge>::default();
    for StoodStill { shard, task } in stood_still {
        family.get_or_create(&vec![("shard", shard.to_string()), ("task", task.clone())]).set(1);
    }
    registry.register("stall_last_task", "The task in which the shard stood still last", family);
}

/// Registers the streams that weigh most, if any are to be told.
fn register_heaviest(registry: &mut Registry, heaviest: &[HeavyStream]) {
    if heaviest.is_empty() {
        return;
    }
    let family = Family::<Labels, Gauge>::default();
    for HeavyStream { shard, bucket, key, bytes_per_s } in heaviest {
        let labels =
            vec![("shard", shard.to_string()), ("bucket", bucket.to_string()), ("key", key.as_str().to_owned())];
        family.get_or_create(&labels).set(i64::try_from(*bytes_per_s).unwrap_or(i64::MAX));
    }
    let help = "Content appended to the streams that take most of it, over the last seconds";
    registry.register("stream_bytes_per_second", help, family);
}

#[cfg(test)]
mod tests {
    use super::{Counts, encode, encode_star};
    use client::{
        BucketName, ClusterId, Counter, Epoch, HeavyStream, Histogram, Key, Operation, Phase, StarAnswer, StarDetail,
        StarId, StoodStill, Timing,
    };
    use http::StatusCode;
    use std::time::Duration;

    fn counter(shard: u16, name: &str, value: u64) -> Counter {
        Counter { shard, name: name.to_owned(), value }
    }

    fn star(counters: Vec<Counter>) -> StarAnswer {
        StarAnswer {
            cluster_id: ClusterId::from_bytes([1; 16]),
            star_id: StarId::from_bytes([2; 16]),
            version: "0.1.0".to_owned(),
            epoch: Epoch::new(3),
            counters,
        }
    }

    fn check(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn what_takes_time_is_a_histogram_a_shard_a_verb_and_a_phase() {
        let mut times = Histogram::default();
        times.note(3_000, 2);
        times.note(60_000_000_000, 1);
        let timing = Timing { shard: 1, operation: Operation::CheckTail, phase: Phase::Queue, times };
        let empty = Timing { operation: Operation::Append, times: Histogram::default(), ..timing };
        let detail = StarDetail { timings: vec![empty, timing], ..StarDetail::default() };
        let mut out = String::new();
        encode_star(&star(Vec::new()), (&detail, &[]), &mut out).unwrap();
        check(
            &out,
            &[
                "# TYPE nova_operation_seconds histogram",
                "nova_operation_seconds_bucket{le=\"0.000002\",shard=\"1\",verb=\"check_tail\",phase=\"queue\"} 0",
                "nova_operation_seconds_bucket{le=\"0.000004\",shard=\"1\",verb=\"check_tail\",phase=\"queue\"} 2",
                "nova_operation_seconds_bucket{le=\"16.777216\",shard=\"1\",verb=\"check_tail\",phase=\"queue\"} 2",
                "nova_operation_seconds_bucket{le=\"+Inf\",shard=\"1\",verb=\"check_tail\",phase=\"queue\"} 3",
                "nova_operation_seconds_count{shard=\"1\",verb=\"check_tail\",phase=\"queue\"} 3",
                "nova_operation_seconds_sum{shard=\"1\",verb=\"check_tail\",phase=\"queue\"} 60.000006",
                "nova_operation_seconds_bucket{le=\"+Inf\",shard=\"1\",verb=\"append\",phase=\"queue\"} 0",
            ],
        );
        assert_eq!(out.matches("# TYPE nova_operation_seconds ").count(), 1);
        let mut out = String::new();
        encode_star(&star(Vec::new()), (&StarDetail::default(), &[]), &mut out).unwrap();
        assert!(!out.contains("operation_seconds"), "a star that is too old to tell");
    }

    #[test]
    fn streams_are_named_only_when_that_is_asked_for() {
        let heavy = HeavyStream {
            shard: 0,
            bucket: BucketName::new("shop").unwrap(),
            key: Key::new("a \"b\"\n\\").unwrap(),
            bytes_per_s: 7,
        };
        let stood_still = vec![StoodStill { shard: 1, task: "mail".to_owned() }];
        let detail = StarDetail { heaviest: vec![heavy], stood_still, ..StarDetail::default() };
        let mut out = String::new();
        encode_star(&star(Vec::new()), (&detail, &detail.heaviest), &mut out).unwrap();
        let named = r#"nova_stream_bytes_per_second{shard="0",bucket="shop",key="a \"b\"\n\\"} 7"#;
        check(&out, &[named, "nova_stall_last_task{shard=\"1\",task=\"mail\"} 1"]);
        let mut out = String::new();
        encode_star(&star(Vec::new()), (&detail, &[]), &mut out).unwrap();
        assert!(!out.contains("shop"), "{out}");
    }

    #[test]
    fn what_is_counted_is_one_text_that_ends_once() {
        let counts = Counts::default();
        counts.answered(0, StatusCode::OK, Duration::from_millis(2));
        counts.answered(0, StatusCode::NOT_FOUND, Duration::from_millis(2));
        let star = star(vec![
            counter(1, "hops_total", 7),
            counter(0, "hops_total", 5),
            counter(0, "held_bytes", 9),
            counter(Counter::OF_STAR, "bundles_total", 3),
            counter(Counter::OF_STAR, "store_kept_bytes", 4),
        ]);
        let mut out = String::new();
        encode(&mut out, &counts.registry).unwrap();
        encode_star(&star, (&StarDetail::default(), &[]), &mut out).unwrap();
        check(
            &out,
            &[
                "nova_hops_total{shard=\"0\"} 5",
                "nova_hops_total{shard=\"1\"} 7",
                "nova_held_bytes{shard=\"0\"} 9",
                "nova_bundles_total 3",
                "nova_store_kept_bytes 4",
                "nova_http_answers_total{route=\"listBuckets\",status=\"2xx\"} 1",
                "nova_http_seconds_count{route=\"listBuckets\"} 2",
            ],
        );
        assert_eq!(out.matches("# EOF").count(), 1);
        assert!(out.ends_with("# EOF\n"));
    }
}
