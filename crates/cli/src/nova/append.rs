//! How does standard input become durable records, in order, through one session?

use std::io::{self, Write};
use std::time::{Duration, Instant};

use client::json::{Coding, content_bytes};
use client::{AppendRecord, Appended, Producer};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use wire::ids::SeqNum;

use super::Star;
use super::args::{Append, Format, Output};
use super::failure::Failure;
use super::intake::{self, Intake, Reading};
use super::progress::Progress;
use super::row::Row;

/// How long an ack that is on its way is waited for once a SIGINT has come.
const INTERRUPTED_WAIT_MAX: Duration = Duration::from_secs(1);

pub(super) async fn run(args: Append, star: &Star) -> Result<(), Failure> {
    if args.base64 && args.format != Format::Json {
        return Err(Failure::invalid("--base64 goes with --format json: a line is bytes already"));
    }
    let coding = if args.base64 { Coding::Base64 } else { Coding::Utf8 };
    let reading = Reading { format: args.format, coding };
    let options = client::ProducerOptions {
        linger: args.linger,
        fencing_token: args.fencing_token.clone().unwrap_or_default(),
        ..client::ProducerOptions::default()
    };
    let producer = star.client.open(&args.stream.address, options).await?;
    let intake = intake::start(io::stdin(), reading)
        .map_err(|error| Failure::Local(format!("standard input can't be read: {error}")))?;
    let mut sum = Sum::new(Progress::start(args.format, star.output));
    let outcome = match args.match_seq_num {
        None => pipelined(&producer, intake, &mut sum).await,
        Some(seq_num) => chained(&producer, intake, SeqNum::new(seq_num), &mut sum).await,
    };
    let closed = match outcome {
        Err(Failure::Interrupted) => soon(producer.close()).await,
        _ => unless_interrupted(producer.close()).await,
    };
    let closed = closed.and_then(|closed| closed.map_err(Failure::from));
    sum.progress.end();
    outcome.and(closed).map_err(|failure| failure.after(sum.records))?;
    sum.tell(star)
}

/// Sends batches as fast as the session takes them. After a fault what was sent before it is still waited for.
async fn pipelined(producer: &Producer, mut intake: Intake, sum: &mut Sum) -> Result<(), Failure> {
    let mut acks = FuturesOrdered::new();
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let mut outcome = loop {
        tokio::select! {
            biased;
            Some((size, ack)) = acks.next(), if !acks.is_empty() => match ack {
                Ok(ack) => sum.add(size, &ack),
                Err(error) => break Err(error),
            },
            _ = &mut interrupted => break Err(Failure::Interrupted),
            next = intake.recv() => match next {
                None => break Ok(()),
                Some(Err(fault)) => break Err(fault),
                Some(Ok(records)) => {
                    let size = Size::of(&records);
                    match unless_interrupted(producer.submit(records)).await {
                        Ok(Ok(ack)) => acks.push_back(async move { (size, ack.await.map_err(Failure::from)) }),
                        Ok(Err(error)) => break Err(Failure::from(error)),
                        Err(interrupted) => break Err(interrupted),
                    }
                }
            },
        }
    };
    loop {
        let next = match outcome {
            Err(Failure::Interrupted) => soon(acks.next()).await,
            _ => unless_interrupted(acks.next()).await,
        };
        match next {
            Ok(Some((size, Ok(ack)))) => sum.add(size, &ack),
            Ok(Some((_, Err(error)))) => outcome = outcome.and(Err(error)),
            Ok(None) => return outcome,
            Err(failure) => return Err(failure),
        }
    }
}

/// Sends a batch once the one before is acked: a miss in the middle must not let a later batch in, which may fit by chance.
async fn chained(producer: &Producer, mut intake: Intake, mut seq_num: SeqNum, sum: &mut Sum) -> Result<(), Failure> {
    while let Some(records) = unless_interrupted(intake.recv()).await?.transpose()? {
        let size = Size::of(&records);
        let ack = unless_interrupted(producer.append_match(seq_num, records)).await??;
        seq_num = ack.end.seq_num;
        sum.add(size, &ack);
    }
    Ok(())
}

/// What `work` answers, unless a SIGINT comes first.
async fn unless_interrupted<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        done = work => Ok(done),
        _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted),
    }
}

/// What `work` answers, if it does so soon after a SIGINT.
async fn soon<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(INTERRUPTED_WAIT_MAX, work).await.map_err(|_| Failure::Interrupted)
}

/// How much a batch holds.
#[derive(Debug, Clone, Copy)]
struct Size {
    records: u64,
    bytes: u64,
}

impl Size {
    fn of(records: &[AppendRecord]) -> Self {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let bytes = records.iter().map(|record| count(content_bytes(record)) + 1).sum();
        Self { records: count(records.len()), bytes }
    }
}

/// What is durable so far.
struct Sum {
    records: u64,
    /// From the first record's position to the last ack's end and tail.
    span: Option<Appended>,
    started: Instant,
    progress: Progress,
}

impl Sum {
    fn new(progress: Progress) -> Self {
        Self { records: 0, span: None, started: Instant::now(), progress }
    }

    fn add(&mut self, size: Size, ack: &Appended) {
        self.records += size.records;
        self.span = Some(Appended { start: self.span.as_ref().map_or(ack.start, |span| span.start), ..ack.clone() });
        self.progress.add(size.records, size.bytes);
    }

    fn tell(&self, star: &Star) -> Result<(), Failure> {
        let Some(span) = &self.span else {
            if star.output == Output::Text {
                writeln!(io::stderr(), "nothing to append: the input is empty")?;
            }
            return Ok(());
        };
        match star.output {
            Output::Json => star.show(&row(span, self.records)),
            Output::Text => Ok(writeln!(io::stderr(), "{}", self.sentence(span))?),
        }
    }

    fn sentence(&self, span: &Appended) -> String {
        let (start, end) = (span.start.seq_num, span.end.seq_num);
        let records = self.records;
        let noun = if records == 1 { "record" } else { "records" };
        let place = if end.since(start) == records { "at" } else { "among those at" };
        let seconds = self.started.elapsed().as_secs_f64();
        format!("{records} {noun} {place} {start}..{end} durable ({}) in {seconds:.2} s", span.class)
    }
}

fn row(span: &Appended, records: u64) -> Row {
    Row::new()
        .with("start", span.start)
        .with("end", span.end)
        .with("tail", span.tail)
        .with("class", span.class.word())
        .with("records", records)
}
