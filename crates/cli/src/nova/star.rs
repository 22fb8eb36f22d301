//! What is a star, and what do it and its shards count?

use std::collections::BTreeMap;
use std::io::Write;

use wire::message::{Counter, StarAnswer};
use wire::star_detail::{HeavyStream, StarDetail, Timing};

use super::args::Output;
use super::failure::Failure;
use super::row::{Cell, Row};
use super::{Star, row, stdout};

/// Groups of what is counted of the star, by how names begin, and what they are in a line.
const GROUPS: [(&str, &str); 7] = [
    ("tenure_", "tenure: how long the star has served since its start, and what the head logs took to recover"),
    (
        "cost_",
        "cost: dollars a month at the list prices of S3, if it goes on as in the last cost_window_s; 0 for a directory",
    ),
    ("disk_", "disk: what is free where the data and the store lie; while one is low, appends are resource_exhausted"),
    ("memory_", "memory: bytes that the background takes, of memory.control_bytes_max"),
    ("history_", "history: reads of settled records, from memory, the local block cache (nvme) or the store (gets)"),
    ("store_", "store: calls by operation and purpose, those that failed, their bytes, and how long they took"),
    ("", "settling: what is put together, rewritten and deleted behind the channel, and what still waits"),
];

/// Shows the star, what is counted of it, and of each of its shards; in JSON one object with the same names.
pub(super) async fn show(star: &Star) -> Result<(), Failure> {
    let (mut answer, detail) = star.client.star_in_detail().await?;
    answer.counters.extend(percentiles(&detail));
    match star.output {
        Output::Json => {
            let counters = answer.counters.iter().map(shown).chain(stood_still(&detail));
            let row = counters.fold(about(&answer), |shown, (name, value)| shown.with(name, value));
            star.show(&row.with("heaviest_bytes_per_s", heaviest(&detail)))
        }
        Output::Text => {
            let mut out = stdout();
            about(&answer).write_text(&mut out)?;
            let of_streams = (HEAVIEST.to_owned(), heaviest(&detail));
            let of_stalls = (STOOD_STILL.to_owned(), row_of(stood_still(&detail)));
            for (heading, row) in sections(&answer.counters).into_iter().chain([of_streams, of_stalls]) {
                if row.is_empty() {
                    continue;
                }
                writeln!(out, "\n{heading}")?;
                row.write_text(&mut out)?;
            }
            Ok(out.flush()?)
        }
    }
}

/// Above the streams that weigh most.
const HEAVIEST: &str = "streams: bytes a second that those take which take most";
/// Above the tasks of shards that stood still.
const STOOD_STILL: &str = "stalls: the task in which a shard stood still last";
/// Which percentiles of times are shown.
const PERCENTILES: [u64; 2] = [50, 99];

/// Where the time goes of what each shard is asked, in microseconds: the ends of the buckets that they lie in.
fn percentiles(detail: &StarDetail) -> impl Iterator<Item = Counter> {
    let of_timing = |timing: &Timing, percent: u64| {
        let value = u64::try_from(timing.times.percentile(percent)?.as_micros()).unwrap_or(u64::MAX);
        let name = format!("{}_{}_p{percent}_us", timing.operation.word(), timing.phase.word());
        Some(Counter { shard: timing.shard, name, value })
    };
    let each = detail.timings.iter().flat_map(|timing| PERCENTILES.map(|percent| (timing, percent)));
    each.filter_map(move |(timing, percent)| of_timing(timing, percent))
}

/// The streams that weigh most on any shard, the heaviest first.
fn heaviest(detail: &StarDetail) -> Row {
    let mut streams: Vec<_> = detail.heaviest.iter().collect();
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.bytes_per_s));
    let name = |stream: &HeavyStream| row::one_line(&format!("{}/{}", stream.bucket, stream.key));
    row_of(streams.into_iter().map(|stream| (name(stream), Cell::Count(stream.bytes_per_s))))
}

fn stood_still(detail: &StarDetail) -> impl Iterator<Item = (String, Cell)> {
    let shown = |shard: u16, task: &str| (format!("shard_{shard}_stall_last_task"), Cell::Text(row::one_line(task)));
    detail.stood_still.iter().map(move |stood| shown(stood.shard, &stood.task))
}

fn row_of(cells: impl Iterator<Item = (String, Cell)>) -> Row {
    cells.fold(Row::new(), |row, (name, cell)| row.with(name, cell))
}

fn about(answer: &StarAnswer) -> Row {
    Row::new()
        .with("cluster_id", answer.cluster_id.to_string())
        .with("star_id", answer.star_id.to_string())
        .with("version", row::one_line(&answer.version))
        .with("epoch", answer.epoch.get())
}

/// A counter as it is shown: money in dollars, what is a shard's with its number.
fn shown(counter: &Counter) -> (String, Cell) {
    let name = match counter.shard {
        Counter::OF_STAR => counter.name.clone(),
        shard => format!("shard_{shard}_{}", counter.name),
    };
    if name.contains("micro_dollars") {
        return (name.replace("micro_dollars", "dollars"), Cell::Millionths(counter.value));
    }
    (name, Cell::Count(counter.value))
}

/// Headings, and what stands below each: the groups of the star, then a shard each.
fn sections(counters: &[Counter]) -> Vec<(String, Row)> {
    let mut groups: Vec<(String, Row)> = GROUPS.iter().map(|(_, about)| ((*about).to_owned(), Row::new())).collect();
    let mut shards: BTreeMap<u16, Row> = BTreeMap::new();
    for counter in counters {
        let (name, value) = shown(counter);
        let row = match counter.shard {
            Counter::OF_STAR => {
                let group = GROUPS.iter().position(|(start, _)| name.starts_with(start)).unwrap_or(GROUPS.len() - 1);
                &mut groups[group].1
            }
            shard => shards.entry(shard).or_default(),
        };
        *row = std::mem::take(row).with(name, value);
    }
    let shards = shards.into_iter().map(|(shard, row)| (format!("shard {shard}: counted since its start"), row));
    groups.into_iter().filter(|(_, row)| !row.is_empty()).chain(shards).collect()
}

#[cfg(test)]
mod tests {
    use wire::message::Counter;
    use wire::names::{BucketName, Key};
    use wire::star_detail::{Histogram, Operation, Phase, StoodStill};

    use super::{Cell, HeavyStream, StarDetail, Timing, heaviest, percentiles, sections, shown, stood_still};

    fn counter(shard: u16, name: &str, value: u64) -> Counter {
        Counter { shard, name: name.to_owned(), value }
    }

    #[test]
    fn what_is_the_star_s_bears_no_shard_and_money_is_in_dollars() {
        let star = Counter::OF_STAR;
        assert_eq!(shown(&counter(2, "acks_total", 7)), ("shard_2_acks_total".to_owned(), Cell::Count(7)));
        assert_eq!(shown(&counter(star, "bundles_total", 7)), ("bundles_total".to_owned(), Cell::Count(7)));
        let (name, value) = shown(&counter(star, "cost_micro_dollars_a_month", 1_234_500));
        assert_eq!((name.as_str(), value), ("cost_dollars_a_month", Cell::Millionths(1_234_500)));
    }

    #[test]
    fn times_streams_and_stalls_are_shown_by_name() {
        let mut times = Histogram::default();
        times.note(100_000, 98);
        times.note(10_000_000, 2);
        let timing = |phase, times| Timing { shard: 1, operation: Operation::CheckTail, phase, times };
        let heavy = |key: &str, bytes_per_s| HeavyStream {
            shard: 0,
            bucket: BucketName::new("demo").unwrap(),
            key: Key::new(key).unwrap(),
            bytes_per_s,
        };
        let detail = StarDetail {
            timings: vec![timing(Phase::Queue, times), timing(Phase::Reply, Histogram::default())],
            heaviest: vec![heavy("a\n", 5), heavy("b", 7)],
            stood_still: vec![StoodStill { shard: 1, task: "mail".to_owned() }],
        };
        let told: Vec<Counter> = percentiles(&detail).collect();
        assert_eq!(told, [counter(1, "check_tail_queue_p50_us", 128), counter(1, "check_tail_queue_p99_us", 16_384)]);
        let mut out = Vec::new();
        heaviest(&detail).write_text(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "demo/b    7\ndemo/a\\n  5\n");
        let told: Vec<_> = stood_still(&detail).collect();
        assert_eq!(told, [("shard_1_stall_last_task".to_owned(), Cell::Text("mail".to_owned()))]);
    }

    #[test]
    fn each_counter_stands_once_below_the_heading_of_its_group_or_shard() {
        let star = Counter::OF_STAR;
        let counters = [
            counter(star, "store_get_chunks_total", 1),
            counter(star, "cost_micro_dollars_a_month", 2_500),
            counter(star, "bundles_total", 3),
            counter(1, "acks_total", 4),
            counter(0, "acks_total", 5),
        ];
        let mut text = String::new();
        for (heading, row) in sections(&counters) {
            let mut out = Vec::new();
            row.write_text(&mut out).unwrap();
            let word = heading.split(':').next().unwrap_or_default().to_owned();
            text += &format!("{word}\n{}", String::from_utf8(out).unwrap());
        }
        let expected = "cost\ncost_dollars_a_month  0.0025\nstore\nstore_get_chunks_total  1\nsettling\nbundles_total  3\n\
                        shard 0\nshard_0_acks_total  5\nshard 1\nshard_1_acks_total  4\n";
        assert_eq!(text, expected);
    }
}
