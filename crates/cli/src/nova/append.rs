//! How does standard input become durable records, in order, through one session?

use std::io::{self, Write};
use std::time::Instant;

use client::{AppendRecord, Appended, Producer};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use wire::ids::SeqNum;

use super::Star;
use super::args::{Append, Format, Output};
use super::failure::Failure;
use super::intake::{self, Intake, Reading};
use super::progress::Progress;
use super::record::{Coding, content_bytes};
use super::row::Row;

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
    let intake = intake::start(io::stdin(), reading)?;
    let mut sum = Sum::new(Progress::start(args.format, star.output));
    let outcome = match args.match_seq_num {
        None => pipelined(&producer, intake, &mut sum).await,
        Some(seq_num) => chained(&producer, intake, SeqNum::new(seq_num), &mut sum).await,
    };
    let closed = producer.close().await.map_err(Failure::from);
    sum.progress.end();
    outcome.and(closed).map_err(|failure| failure.after(sum.records))?;
    sum.tell(star)
}

/// Sends batches as fast as the session takes them. After a fault what was sent before it is still waited for.
async fn pipelined(producer: &Producer, mut intake: Intake, sum: &mut Sum) -> Result<(), Failure> {
    let mut acks = FuturesOrdered::new();
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let outcome = loop {
        tokio::select! {
            biased;
            Some((size, ack)) = acks.next(), if !acks.is_empty() => match ack {
                Ok(ack) => sum.add(size, &ack),
                Err(error) => break Err(error),
            },
            _ = &mut interrupted => break Err(interrupt()),
            next = intake.recv() => match next {
                None => break Ok(()),
                Some(Err(fault)) => break Err(fault),
                Some(Ok(records)) => {
                    let size = Size::of(&records);
                    match producer.submit(records).await {
                        Ok(ack) => acks.push_back(async move { (size, ack.await.map_err(Failure::from)) }),
                        Err(error) => break Err(Failure::from(error)),
                    }
                }
            },
        }
    };
    let mut outcome = outcome;
    while let Some((size, ack)) = acks.next().await {
        match ack {
            Ok(ack) => sum.add(size, &ack),
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome
}

/// Sends a batch once the one before is acked: a miss in the middle must not let a later batch in, which may fit by chance.
async fn chained(producer: &Producer, mut intake: Intake, mut seq_num: SeqNum, sum: &mut Sum) -> Result<(), Failure> {
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let next = tokio::select! {
            next = intake.recv() => next,
            _ = &mut interrupted => return Err(interrupt()),
        };
        let Some(records) = next.transpose()? else {
            return Ok(());
        };
        let size = Size::of(&records);
        let ack = producer.append_match(seq_num, records).await?;
        seq_num = ack.end.seq_num;
        sum.add(size, &ack);
    }
}

fn interrupt() -> Failure {
    Failure::Local("interrupted".to_owned())
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
