//! How long does a star take to come back after a kill?

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use wire::names::Address;

use crate::append::{self, AppendOptions};
use crate::dial::Dialled;
use crate::error::BenchError;
use crate::progress::{OnProgress, as_f64};
use crate::report::{Count, Made, Size, seconds};
use crate::soak::append_once;
use crate::star::{Star, files_below};

/// A star that listens acks within this.
const ACK_MAX: Duration = Duration::from_secs(120);
const ROUNDS_MAX: u32 = 1_000;

/// What to append before each kill, and how often to kill.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecoverOptions {
    /// The load before each kill; its address is the star's.
    pub load: AppendOptions,
    /// How often.
    pub rounds: u32,
    /// The star's data directory, for its size.
    pub data: PathBuf,
    /// Where the star logs.
    pub log: Option<PathBuf>,
}

/// One kill and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Round {
    /// Content that the load before the kill had acked while it was measured, in bytes; that of its warm-up is not counted.
    pub acked_bytes: f64,
    /// Bytes of the data directory at the kill.
    pub data_bytes: u64,
    /// From the start of the process until it listened.
    #[serde(rename = "listens_seconds", serialize_with = "seconds")]
    pub listens: Duration,
    /// From the start of the process to its first ack.
    #[serde(rename = "first_ack_seconds", serialize_with = "seconds")]
    pub first_ack: Duration,
}

/// How long recoveries took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecoverReport {
    /// When and where.
    #[serde(flatten)]
    pub made: Made,
    /// What was run.
    pub settings: RecoverOptions,
    /// Every kill, in order.
    pub rounds: Vec<Round>,
}

impl fmt::Display for RecoverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)?;
        writeln!(f, "recover    {}", self.settings.load)?;
        writeln!(f, "\nkill       acked    in data   listens  first ack")?;
        for (number, round) in self.rounds.iter().enumerate() {
            let (acked, data) = (Size(round.acked_bytes).to_string(), Size(as_f64(round.data_bytes)).to_string());
            let (listens, first_ack) = (round.listens.as_secs_f64(), round.first_ack.as_secs_f64());
            writeln!(
                f,
                "{:4} {acked:>11} {data:>10} {listens:8.2}s {first_ack:9.2}s",
                Count(as_f64(number as u64 + 1))
            )?;
        }
        Ok(())
    }
}

/// Loads the star, kills it and starts it again, as often as the options say.
///
/// # Errors
/// [`BenchError`] of an option, of a load, or of a star that does not come back.
pub fn run(
    options: &RecoverOptions,
    star: &mut Star,
    on_progress: OnProgress<'_>,
) -> Result<RecoverReport, BenchError> {
    if !(1..=ROUNDS_MAX).contains(&options.rounds) {
        return Err(BenchError::option("rounds", options.rounds, format!("1 to {ROUNDS_MAX}")));
    }
    let load = AppendOptions { addr: star.addr().to_owned(), ..options.load.clone() };
    let (bucket, _) = load.buckets()[0].clone();
    let address = Address::new(&bucket, "first-after-a-kill")?;
    let (made, mut rounds) = (Made::here(Some(&options.data)), Vec::new());
    for _ in 0..options.rounds {
        let report = append::run(&load, None, on_progress)?;
        star.kill()?;
        let (_, data_bytes) = files_below(&options.data, None);
        let began = Instant::now();
        let listens = star.restart(options.log.as_deref())?;
        first_ack(star.addr(), &address)?;
        let acked_bytes = report.bytes_per_s * report.seconds;
        rounds.push(Round { acked_bytes, data_bytes, listens, first_ack: began.elapsed() });
    }
    Ok(RecoverReport { made, settings: RecoverOptions { load, ..options.clone() }, rounds })
}

/// Appends until it is acked.
fn first_ack(addr: &str, address: &Address) -> Result<(), BenchError> {
    let until = Instant::now() + ACK_MAX;
    loop {
        let appended = Dialled::connect(addr).and_then(|mut line| append_once(&mut line, address, b"back"));
        match appended {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= until || !crate::verify::is_away(&error) => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
