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
use super::super::stdout;

/// How long one answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Most that an answer may hold.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Goes to the upper left corner and clears what follows.
const HOME: &str = "\x1b[H\x1b[J";

/// A column: its head, the counter that it shows, and how.
const COLUMNS: [(&str, &str, Shown); 13] = [
    ("streams", "nova_streams", Shown::Now),
    ("conns", "nova_connections", Shown::Now),
    ("subs", "nova_subscriptions", Shown::Now),
    ("batches/s", "nova_batches_total", Shown::Rate),
    ("records/s", "nova_records_total", Shown::Rate),
    ("KiB/s", "nova_content_bytes_total", Shown::KibRate),
    ("commits/s", "nova_log_commits_total", Shown::Rate),
    ("wait µs", "nova_log_wait_us", Shown::Now),
    ("sync µs", "nova_log_flush_us", Shown::Now),
    ("waiting", "nova_pending_answers", Shown::Now),
    ("hops/s", "nova_hops_total", Shown::Rate),
    ("log MiB", "nova_log_used_bytes", Shown::Mib),
    ("stalls", "nova_stalls", Shown::Now),
];

#[derive(Debug, Clone, Copy)]
enum Shown {
    Now,
    Mib,
    Rate,
    KibRate,
}

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

/// Counters by name and shard, at one moment.
#[derive(Debug)]
struct Look {
    at: Instant,
    counters: BTreeMap<(String, u16), f64>,
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
        Ok(Look { at: Instant::now(), counters: parse(&text) })
    }

    /// The text of the metrics, by the plainest request there is.
    fn fetch(&self) -> io::Result<String> {
        let no_address = || io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        let addr = self.http.to_socket_addrs()?.next().ok_or_else(no_address)?;
        let mut stream = TcpStream::connect_timeout(&addr, ANSWER_WAIT)?;
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        // Version 1.0 is answered without chunks, and closed.
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http)?;
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

/// The counters of shards in a text as Prometheus reads it.
fn parse(text: &str) -> BTreeMap<(String, u16), f64> {
    let line = |line: &str| {
        let (name, rest) = line.split_once('{')?;
        let (labels, value) = rest.split_once('}')?;
        let shard = labels.split(',').find_map(|label| label.strip_prefix("shard=\""))?;
        let shard = shard.trim_end_matches('"').parse().ok()?;
        Some(((name.to_owned(), shard), value.split_whitespace().next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

impl Look {
    fn shards(&self) -> Vec<u16> {
        let mut shards: Vec<u16> = self.counters.keys().map(|(_, shard)| *shard).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// A cell; none when the star does not count that.
    fn cell(&self, before: &Self, shard: u16, (_, name, shown): (&str, &str, Shown)) -> Option<f64> {
        let key = (name.to_owned(), shard);
        let now = *self.counters.get(&key)?;
        let seconds = (self.at - before.at).as_secs_f64().max(0.001);
        // A star that was started anew counts from zero.
        let rate = || {
            let earlier = before.counters.get(&key).copied().unwrap_or(0.0);
            if now >= earlier { (now - earlier) / seconds } else { now / seconds }
        };
        Some(match shown {
            Shown::Now => now,
            Shown::Mib => now / f64::from(1 << 20),
            Shown::Rate => rate(),
            Shown::KibRate => rate() / 1_024.0,
        })
    }
}

fn table(out: &mut dyn Write, before: &Look, now: &Look) -> io::Result<()> {
    write!(out, "shard")?;
    for (head, _, _) in COLUMNS {
        write!(out, "  {head:>9}")?;
    }
    writeln!(out)?;
    for shard in now.shards() {
        write!(out, "{shard:5}")?;
        for column in COLUMNS {
            let cell = now.cell(before, shard, column).map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
            write!(out, "  {cell:>9}")?;
        }
        writeln!(out)?;
    }
    if now.shards().is_empty() {
        writeln!(out, "no shard is told of: the star does not answer its gateway")?;
    }
    Ok(())
}

fn json_rows(out: &mut dyn Write, before: &Look, now: &Look) -> io::Result<()> {
    for shard in now.shards() {
        let mut row = Map::new();
        row.insert("shard".to_owned(), shard.into());
        for column in COLUMNS {
            let name = column.1.trim_start_matches("nova_").trim_end_matches("_total");
            let name = if matches!(column.2, Shown::Rate | Shown::KibRate) {
                format!("{name}_per_s")
            } else {
                name.to_owned()
            };
            // Bytes stay bytes for programs.
            let shown = match column.2 {
                Shown::Mib => Shown::Now,
                Shown::KibRate => Shown::Rate,
                shown => shown,
            };
            row.insert(name, json!(now.cell(before, shard, (column.0, column.1, shown))));
        }
        writeln!(out, "{}", Value::Object(row))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Look, json_rows, parse, table};
    use std::time::{Duration, Instant};

    const TEXT: &str = "# HELP nova_batches Batches.\n# TYPE nova_batches counter\nnova_batches_total{shard=\"0\"} 100\n\
                        nova_batches_total{shard=\"1\"} 7 1700000000\nnova_log_used_bytes{shard=\"0\"} 2097152\n\
                        nova_bundles_total 5\nnova_x{route=\"/v1\",shard=\"x\"} 1\nnova_y{shard=\"0\"\n# EOF\n";

    fn look(text: &str, at: Instant) -> Look {
        Look { at, counters: parse(text) }
    }

    #[test]
    fn shards_are_shown_with_rates_and_what_is_not_counted_as_a_dash() {
        let began = Instant::now();
        let before = look(TEXT, began);
        let now = look(&TEXT.replace("} 100", "} 300").replace("} 7 ", "} 3 "), began + Duration::from_secs(2));
        assert_eq!(now.shards(), [0, 1]);
        let mut out = Vec::new();
        table(&mut out, &before, &now).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows[1].contains(&"100") && rows[1].contains(&"-"), "{text}");
        assert!(rows[1].contains(&"2"), "MiB of the log: {text}");
        let mut out = Vec::new();
        json_rows(&mut out, &before, &now).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("\"batches_per_s\":100.0") && text.contains("\"log_used_bytes\":2097152.0"), "{text}");
        assert!(text.contains("\"batches_per_s\":1.5"), "a star that was started anew counts from zero: {text}");
    }

    #[test]
    fn anything_else_is_no_counter() {
        for text in ["", "{", "}{", "a{shard=\"1\"}", "a{shard=\"99999\"} 1", "a{shard=\"1\"} x", "\u{0}"] {
            assert!(parse(text).is_empty(), "{text}");
        }
    }
}
