//! How are records appended at a rate, a few of them in flight?

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wire::batch::BatchBuilder;
use wire::frame::{self, Frame, FrameError, Kind};
use wire::hot::{AppendHead, walk_acks};
use wire::ids::{BatchNo, ProducerId, SeqNum};
use wire::message::{AppendRefused, Open, Opened};
use wire::names::{Address, FencingToken};

use super::{Live, Stamp, SubscribeOptions};
use crate::dial::{ANSWER_MAX, Dialled, decoded};
use crate::error::BenchError;
use crate::latency::Latencies;
use crate::load::nanoseconds;
use crate::random::{Random, unique_number};

#[derive(Debug)]
pub(super) struct Producer {
    dialled: Dialled,
    opened: Opened,
    acked: u64,
}

impl Producer {
    pub(super) fn open(options: &SubscribeOptions, address: &Address) -> Result<Self, BenchError> {
        let mut dialled = Dialled::connect(&options.addr)?;
        let open = Open {
            address: address.clone(),
            producer: ProducerId::new(unique_number()?),
            fencing_token: FencingToken::default(),
            resume: None,
        };
        let opened = dialled.call("opening a session", &open)?;
        Ok(Self { dialled, opened, acked: 0 })
    }

    /// Where the first record goes.
    pub(super) fn tail(&self) -> SeqNum {
        self.opened.tail.seq_num
    }

    /// Sends each record when it is due, or later where the session's window is full; answers how long their acks took.
    pub(super) fn run(mut self, options: &SubscribeOptions, live: &Live) -> Result<Latencies, BenchError> {
        let mut latencies = Latencies::new();
        let mut body = vec![0; options.record_bytes];
        Random::new(1).fill_printable(&mut body);
        let interval_ns = nanoseconds(Duration::from_secs_f64(1.0 / options.rate));
        let due_ns = |no: u64| (no - 1) * interval_ns;
        let mut take = |producer: &mut Self, until: Instant| {
            let acked = producer.acked;
            producer.take_acks(until)?;
            let now_ns = live.clock.now_ns();
            (acked + 1..=producer.acked).for_each(|no| live.note(&mut latencies, due_ns(no), now_ns));
            live.acks.store(producer.acked, Ordering::Relaxed);
            Ok::<_, BenchError>(())
        };
        let mut sent = 0;
        for no in 1..=live.due {
            let due = live.clock.at(due_ns(no));
            while Instant::now() < due {
                take(&mut self, due)?;
            }
            while no - self.acked > u64::from(self.opened.window) {
                self.wait_for_more(&mut take)?;
            }
            if live.has_failed() {
                return Ok(latencies);
            }
            if live.clock.now_ns() >= live.end_ns {
                break;
            }
            sent = no;
            Stamp::put(due_ns(no), &mut body);
            self.append(no, &body)?;
        }
        live.records.store(sent, Ordering::Relaxed);
        while self.acked < sent && !live.has_failed() {
            self.wait_for_more(&mut take)?;
        }
        Ok(latencies)
    }

    /// Takes the acks that come, and fails when none does.
    fn wait_for_more(
        &mut self,
        take: &mut impl FnMut(&mut Self, Instant) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let acked = self.acked;
        take(self, Instant::now() + ANSWER_MAX)?;
        match self.acked > acked {
            true => Ok(()),
            false => Err(BenchError::Unanswered { appends: 1, waited_s: ANSWER_MAX.as_secs() }),
        }
    }

    fn append(&mut self, no: u64, body: &[u8]) -> Result<(), BenchError> {
        let (mut builder, mut batch) = (BatchBuilder::new(), Vec::new());
        builder.push::<&[u8], &[u8]>(None, &[], body)?;
        let head = AppendHead {
            session: self.opened.session,
            no: BatchNo::new(no),
            match_seq_num: None,
            resent: false,
            batch_crc: builder.finish(&mut batch)?,
        };
        self.dialled.send_with(|out| {
            let open = frame::begin(out);
            out.extend_from_slice(&head.encode());
            let open = open.head_ends(out);
            out.extend_from_slice(&batch);
            open.end(Kind::Append, no, out);
        })
    }

    /// Takes the next frame of acks, if one comes until then.
    fn take_acks(&mut self, until: Instant) -> Result<(), BenchError> {
        let acked = self.dialled.next_until(until, acked_by)?;
        self.acked = acked.map_or(self.acked, |acked| acked.max(self.acked));
        Ok(())
    }
}

/// The highest batch that a frame acks; they are acked in order.
fn acked_by(frame: &Frame<'_>) -> Result<u64, BenchError> {
    if frame.kind == Kind::AppendRefused {
        let AppendRefused { refusal, .. } = decoded(frame, "an append was in flight")?;
        return Err(BenchError::Refused { request: "an append", refusal });
    }
    if frame.kind != Kind::Acks {
        return Err(BenchError::Unexpected { found: frame.kind, awaited: "an append was in flight" });
    }
    let mut acked = 0;
    walk_acks(frame.head, |_, ack| acked = acked.max(ack.no.get()))
        .map_err(|_| BenchError::Frame(FrameError::Body { kind: frame.kind }))?;
    Ok(acked)
}
