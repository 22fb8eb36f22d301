//! What does each shard do, second by second?

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Map, Value, json};
use tuning::units::Millis;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::super::args::Output;
use super::super::failure::Failure;
use super::super::row::one_line;
use super::super::stdout;

/// How long one answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Most that an answer may hold.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Goes to the upper left corner and clears what follows.
const HOME: &str = "\x1b[H\x1b[J";

/// Streams that are shown.
const STREAMS_MAX: usize = 10;

/// What a column shows, and how.
#[derive(Debug, Clone, Copy)]
enum Shown {
    /// A number as it is.
    Now,
    /// Bytes, in MiB for people.
    Mib,
    /// What is added a second.
    Rate,
    /// Bytes that are added a second, in KiB for people.
    KibRate,
    /// Microseconds that are added, as a part of the time; in percent for people.
    Share,
    /// The mean time that appends spent in a phase, in microseconds.
    Mean,
}

/// A column: its head, the counter or the phase that it shows, and how.
type Column = (&'static str, &'static str, Shown);

/// What a shard has to do.
const LOAD: [Column; 10] = [
    ("busy %", "nova_cpu_busy_us_total", Shown::Share),
    ("ready %", "nova_cpu_waited_us_total", Shown::Share),
    ("steal %", "nova_cpu_steal_us_total", Shown::Share),
    ("streams", "nova_streams", Shown::Now),
    ("conns", "nova_connections", Shown::Now),
    ("subs", "nova_subscriptions", Shown::Now),
    ("batches/s", "nova_batches_total", Shown::Rate),
    ("records/s", "nova_records_total", Shown::Rate),
    ("KiB/s", "nova_content_bytes_total", Shown::KibRate),
    ("hops/s", "nova_hops_total", Shown::Rate),
];

/// What takes how long, and what waits.
const TIMES: [Column; 10] = [
    ("commits/s", "nova_log_commits_total", Shown::Rate),
    ("wait µs", "queue", Shown::Mean),
    ("write µs", "write", Shown::Mean),
    ("sync µs", "sync", Shown::Mean),
    ("put µs", "put", Shown::Mean),
    ("reply µs", "reply", Shown::Mean),
    ("queue", "nova_pending_answers", Shown::Now),
    ("backlog", "nova_log_unsettled_entries", Shown::Now),
    ("log MiB", "nova_log_used_bytes", Shown::Mib),
    ("stalls", "nova_stalls", Shown::Now),
];

#[derive(Debug, Args)]
pub(in crate::nova) struct TopArgs {
    /// Where novad, or a gateway, serves HTTP
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    http: String,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Millis,
    /// Show one interval, and end
    #[arg(long)]
    once: bool,
}

/// What was told at one moment.
#[derive(Debug)]
struct Look {
    at: Instant,
    told: Told,
}

/// What a text as Prometheus reads it tells of shards.
#[derive(Debug, Default)]
struct Told {
    /// By name and shard; the times of appends by [`seconds_of`] and [`count_of`].
    counters: BTreeMap<(String, u16), f64>,
    /// The task in which a shard stood still last.
    stood_still: BTreeMap<u16, String>,
    /// Streams that weigh most: their bytes a second, their shard and their name.
    heaviest: Vec<(f64, u16, String)>,
}

impl TopArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        if self.interval < Millis::new(100) {
            return Err(Failure::invalid(format!("--interval {} is too short: give 100ms or more", self.interval)));
        }
        let clears = output == Output::Text && !self.once && io::stdout().is_terminal();
        let mut before = self.look()?;
        loop {
            std::thread::sleep(self.interval.duration());
            let now = self.look()?;
            let mut out = stdout();
            if clears {
                write!(out, "{HOME}")?;
            }
            match output {
                Output::Json => json_rows(&mut out, &before, &now)?,
                Output::Text => table(&mut out, &before, &now)?,
            }
            out.flush()?;
            if self.once {
                return Ok(());
            }
            before = now;
        }
    }

    fn look(&self) -> Result<Look, Failure> {
        let text = self.fetch().map_err(|error| {
            let message =
                format!("the metrics of http://{} can't be read: {error}; is --http where novad serves it?", self.http);
            Failure::from(Refusal::new(Reason::Unavailable, message))
        })?;
        Ok(Look { at: Instant::now(), told: Told::of(&text) })
    }

    /// The text of the metrics, by the plainest request there is.
    fn fetch(&self) -> io::Result<String> {
        let no_address = || io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        let addr = self.http.to_socket_addrs()?.next().ok_or_else(no_address)?;
        let mut stream = TcpStream::connect_timeout(&addr, ANSWER_WAIT)?;
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        // Version 1.0 is answered without chunks, and closed.
        write!(stream, "GET /metrics?streams=true HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer.as_str(), ""));
        let status = head.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) != Some("200") {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it answers `{status}`")));
        }
        Ok(body.to_owned())
    }
}

/// One line of the text: a name, labels and a value.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl<'a> Sample<'a> {
    /// A line that bears labels.
    fn of(line: &'a str) -> Option<Self> {
        let (name, mut rest) = line.split_once('{').filter(|_| !line.starts_with('#'))?;
        let mut labels = Vec::new();
        loop {
            let (label, quoted) = rest.split_once("=\"")?;
            let (value, after) = unquoted(quoted)?;
            labels.push((label, value));
            match after.split_at_checked(1)? {
                (",", after) => rest = after,
                ("}", after) => {
                    let value = after.split_whitespace().next()?.parse().ok()?;
                    return Some(Self { name, labels, value });
                }
                _ => return None,
            }
        }
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| *label == name).map(|(_, value)| value.as_str())
    }
}

/// What stands before the closing quote, and what stands behind it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                escaped => escaped,
            }),
            plain => value.push(plain),
        }
    }
    None
}

/// Under which name the seconds are kept that appends spent in a phase.
fn seconds_of(phase: &str) -> String {
    format!("append_{phase}_seconds")
}

/// Under which name it is kept how many appends there were.
fn count_of(phase: &str) -> String {
    format!("append_{phase}_count")
}

impl Told {
    fn of(text: &str) -> Self {
        let mut told = Self::default();
        for sample in text.lines().filter_map(Sample::of) {
            let Some(shard) = sample.label("shard").and_then(|shard| shard.parse().ok()) else { continue };
            told.take(shard, &sample);
        }
        told.heaviest.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
        told
    }

    fn take(&mut self, shard: u16, sample: &Sample<'_>) {
        let of_appends = || sample.label("phase").filter(|_| sample.label("verb") == Some("append"));
        let name = match sample.name {
            "nova_operation_seconds_sum" => of_appends().map(seconds_of),
            "nova_operation_seconds_count" => of_appends().map(count_of),
            "nova_operation_seconds_bucket" => None,
            "nova_stall_last_task" => {
                let task = sample.label("task").unwrap_or_default();
                self.stood_still.insert(shard, one_line(task));
                None
            }
            "nova_stream_bytes_per_second" => {
                let part = |label| sample.label(label).unwrap_or_default();
                self.heaviest.push((sample.value, shard, one_line(&format!("{}/{}", part("bucket"), part("key")))));
                None
            }
            name => Some(name.to_owned()),
        };
        if let Some(name) = name {
            self.counters.insert((name, shard), sample.value);
        }
    }
}

impl Look {
    fn shards(&self) -> Vec<u16> {
        let mut shards: Vec<u16> = self.told.counters.keys().map(|(_, shard)| *shard).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// What was added to a counter; a star that was started anew counts from zero.
    fn added(&self, before: &Self, name: &str, shard: u16) -> Option<f64> {
        let key = (name.to_owned(), shard);
        let now = *self.told.counters.get(&key)?;
        let earlier = before.told.counters.get(&key).copied().unwrap_or(0.0);
        Some(if now >= earlier { now - earlier } else { now })
    }

    /// A cell in its plainest unit; none when the star does not count that, or when there was nothing to take time.
    fn cell(&self, before: &Self, shard: u16, (_, name, shown): Column) -> Option<f64> {
        let seconds = (self.at - before.at).as_secs_f64().max(0.001);
        match shown {
            Shown::Now | Shown::Mib => self.told.counters.get(&(name.to_owned(), shard)).copied(),
            Shown::Rate | Shown::KibRate => Some(self.added(before, name, shard)? / seconds),
            Shown::Share => Some(self.added(before, name, shard)? / (seconds * 1e6)),
            Shown::Mean => {
                let (count, spent) = (count_of(name), seconds_of(name));
                let count = self.added(before, &count, shard).filter(|count| *count > 0.0)?;
                Some(self.added(before, &spent, shard)? * 1e6 / count)
            }
        }
    }
}

/// A cell as people read it.
fn shown(cell: Option<f64>, shown: Shown) -> String {
    let Some(value) = cell else { return "-".to_owned() };
    let value = match shown {
        Shown::Now | Shown::Rate | Shown::Mean => value,
        Shown::Mib => value / f64::from(1 << 20),
        Shown::KibRate => value / 1_024.0,
        Shown::Share => value * 100.0,
    };
    format!("{value:.0}")
}

fn table(out: &mut dyn Write, before: &Look, now: &Look) -> io::Result<()> {
    let shards = now.shards();
    if shards.is_empty() {
        return writeln!(out, "no shard is told of: the star does not answer its gateway");
    }
    rows(out, (before, now), &LOAD, None)?;
    writeln!(out)?;
    rows(out, (before, now), &TIMES, Some(("last stall", &now.told.stood_still)))?;
    if !now.told.heaviest.is_empty() {
        writeln!(out, "\nshard  {:>9}  stream", "KiB/s")?;
    }
    for (bytes_per_s, shard, stream) in now.told.heaviest.iter().take(STREAMS_MAX) {
        writeln!(out, "{shard:5}  {:>9}  {stream}", shown(Some(*bytes_per_s), Shown::KibRate))?;
    }
    Ok(())
}

/// A row a shard, with these columns and one of words.
fn rows(
    out: &mut dyn Write,
    (before, now): (&Look, &Look),
    columns: &[Column],
    words: Option<(&str, &BTreeMap<u16, String>)>,
) -> io::Result<()> {
    write!(out, "shard")?;
    for (head, ..) in columns {
        write!(out, "  {head:>9}")?;
    }
    writeln!(out, "{}", words.map_or_else(String::new, |(head, _)| format!("  {head}")))?;
    for shard in now.shards() {
        write!(out, "{shard:5}")?;
        for column in columns {
            write!(out, "  {:>9}", shown(now.cell(before, shard, *column), column.2))?;
        }
        let word = words.map(|(_, words)| words.get(&shard).map_or("-", String::as_str));
        writeln!(out, "{}", word.map_or_else(String::new, |word| format!("  {word}")))?;
    }
    Ok(())
}

/// What a program knows a column by.
fn json_name((_, name, shown): Column) -> String {
    let name = name.trim_start_matches("nova_");
    match shown {
        Shown::Now | Shown::Mib => name.to_owned(),
        Shown::Rate | Shown::KibRate => format!("{}_per_s", name.trim_end_matches("_total")),
        Shown::Share => name.trim_end_matches("_us_total").to_owned(),
        Shown::Mean => format!("append_{name}_us"),
    }
}

fn json_rows(out: &mut dyn Write, before: &Look, now: &Look) -> io::Result<()> {
    for shard in now.shards() {
        let mut row = Map::new();
        row.insert("shard".to_owned(), shard.into());
        for column in LOAD.into_iter().chain(TIMES) {
            row.insert(json_name(column), json!(now.cell(before, shard, column)));
        }
        row.insert("stall_last_task".to_owned(), json!(now.told.stood_still.get(&shard)));
        let heaviest = now.told.heaviest.iter().filter(|(_, of, _)| *of == shard);
        let heaviest = heaviest.map(|(bytes_per_s, _, stream)| json!({"stream": stream, "bytes_per_s": bytes_per_s}));
        row.insert("heaviest".to_owned(), heaviest.collect());
        writeln!(out, "{}", Value::Object(row))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Look, Told, json_rows, table};
    use std::time::{Duration, Instant};

    const TEXT: &str = "# HELP nova_batches Batches{}.\n# TYPE nova_batches counter\nnova_batches_total{shard=\"0\"} 100\n\
                        nova_batches_total{shard=\"1\"} 7 1700000000\nnova_log_used_bytes{shard=\"0\"} 2097152\n\
                        nova_bundles_total 5\nnova_x{route=\"/v1\",shard=\"x\"} 1\nnova_y{shard=\"0\"\n\
                        nova_cpu_busy_us_total{shard=\"0\"} 3000000\n\
                        nova_operation_seconds_sum{shard=\"0\",verb=\"append\",phase=\"sync\"} 2.5\n\
                        nova_operation_seconds_count{shard=\"0\",verb=\"append\",phase=\"sync\"} 500\n\
                        nova_operation_seconds_bucket{le=\"+Inf\",shard=\"0\",verb=\"append\",phase=\"sync\"} 500\n\
                        nova_operation_seconds_sum{shard=\"0\",verb=\"read\",phase=\"reply\"} 9\n\
                        nova_stream_bytes_per_second{shard=\"1\",bucket=\"demo\",key=\"a \\\"b\\\",c=}\\n\"} 2048\n\
                        nova_stream_bytes_per_second{shard=\"0\",bucket=\"demo\",key=\"big\"} 10240\n\
                        nova_stall_last_task{shard=\"0\",task=\"mail\"} 1\n# EOF\n";

    fn look(text: &str, at: Instant) -> Look {
        Look { at, told: Told::of(text) }
    }

    /// Two looks with two seconds between.
    fn looks() -> (Look, Look) {
        let began = Instant::now();
        let changed = [
            ("} 100\n", "} 300\n"),
            ("} 7 ", "} 3 "),
            ("} 3000000", "} 4500000"),
            ("\"sync\"} 2.5", "\"sync\"} 2.75"),
            ("phase=\"sync\"} 500", "phase=\"sync\"} 600"),
        ];
        let later = changed.iter().fold(TEXT.to_owned(), |text, (from, to)| text.replace(from, to));
        (look(TEXT, began), look(&later, began + Duration::from_secs(2)))
    }

    #[test]
    fn shards_are_shown_with_what_they_do_and_what_takes_how_long() {
        let (before, now) = looks();
        assert_eq!(now.shards(), [0, 1]);
        let mut out = Vec::new();
        table(&mut out, &before, &now).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["0", "75", "-", "-", "-", "-", "-", "100", "-", "-", "-"], "{text}");
        assert_eq!(rows[2][7], "2", "a star that was started anew counts from zero: {text}");
        assert_eq!(rows[5], ["0", "-", "-", "-", "2500", "-", "-", "-", "-", "2", "-", "mail"], "{text}");
        assert_eq!(rows[6].last(), Some(&"-"), "{text}");
        assert_eq!(rows[9], ["0", "10", "demo/big"], "the heaviest first: {text}");
        assert!(text.lines().nth(10).is_some_and(|line| line.ends_with("2  demo/a \"b\",c=}\\n")), "{text}");
    }

    #[test]
    fn programs_get_a_row_a_shard_in_plain_units() {
        let (before, now) = looks();
        let mut out = Vec::new();
        json_rows(&mut out, &before, &now).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), 2);
        let cell = |name: &str| rows[0][name].as_f64().unwrap_or_else(|| panic!("no {name} in {text}"));
        assert!((cell("batches_per_s") - 100.0).abs() < 1e-9 && (cell("log_used_bytes") - 2_097_152.0).abs() < 1e-9);
        assert!((cell("cpu_busy") - 0.75).abs() < 1e-9 && (cell("append_sync_us") - 2_500.0).abs() < 1e-6, "{text}");
        assert!(rows[0]["append_put_us"].is_null() && rows[1]["stall_last_task"].is_null(), "{text}");
        assert_eq!(rows[0]["stall_last_task"], "mail");
        assert_eq!(rows[0]["heaviest"], serde_json::json!([{"stream": "demo/big", "bytes_per_s": 10_240.0}]));
        assert!((rows[1]["batches_per_s"].as_f64().unwrap() - 1.5).abs() < 1e-9, "{text}");
    }

    #[test]
    fn anything_else_is_no_counter() {
        for text in [
            "",
            "{",
            "}{",
            "a{shard=\"1\"}",
            "a{shard=\"99999\"} 1",
            "a{shard=\"1\"} x",
            "\u{0}",
            "a{shard=\"1",
            "a{shard=\"1\\",
        ] {
            assert!(Told::of(text).counters.is_empty(), "{text}");
        }
    }
}
