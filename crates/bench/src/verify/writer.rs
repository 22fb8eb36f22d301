//! How are streams written so that every answer proves something?

use std::thread;
use std::time::{Duration, Instant};

use wire::batch::BatchBuilder;
use wire::frame::{Frame, Kind};
use wire::ids::SeqNum;
use wire::message::{AppendOnce, Appended, Fence, Fenced, Message, Refused};
use wire::names::{Address, FencingToken};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::terms::Terms;

use super::judge::{Fault, Judge, Known};
use super::look::{Looked, judge_to_tail};
use super::{Shared, VerifyOptions};
use crate::chain::Link;
use crate::dial::{Dialled, decoded};
use crate::error::BenchError;
use crate::random::unique_number;

/// Every so many steps of a stream two appends race for one sequence number, and the token is changed.
const RACE_EVERY: u64 = 8;
const FENCE_EVERY: u64 = 16;
/// Between two attempts to reach a server that is away.
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// A stream with one writer.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) number: u32,
    pub(super) address: Address,
    /// What is acked.
    pub(super) link: Link,
    token: FencingToken,
    steps: u64,
}

impl Written {
    pub(super) fn new(number: u32, address: Address, link: Link) -> Self {
        Self { number, address, link, token: FencingToken::default(), steps: 0 }
    }
}

/// What came of an append.
enum Outcome {
    Acked(Appended),
    Refused(Refusal),
}

/// Writes streams in turn, over two connections, until the run is over.
pub(super) struct Writer<'a> {
    pub(super) options: &'a VerifyOptions,
    pub(super) shared: &'a Shared,
    pub(super) number: usize,
    pub(super) streams: Vec<Written>,
    pub(super) lines: Option<[Dialled; 2]>,
}

/// A fault ends a stream's part in the run; an error the run.
type Step = Result<Result<(), Fault>, BenchError>;

impl Writer<'_> {
    pub(super) fn run(mut self) -> Result<(), BenchError> {
        let mut streams = std::mem::take(&mut self.streams);
        // What an earlier run, or a crash, left without an ack is found first.
        let mut is_known = false;
        while !self.shared.is_over() && !streams.is_empty() {
            let mut left = Vec::new();
            for mut stream in streams {
                let step = self.first_or_next(&mut stream, is_known);
                match self.lived(step, &mut stream)? {
                    Ok(()) => left.push(stream),
                    Err(fault) => self.shared.fault(&stream.address, fault),
                }
            }
            streams = left;
            is_known = true;
        }
        Ok(())
    }

    fn first_or_next(&mut self, stream: &mut Written, is_known: bool) -> Step {
        if is_known { self.step(stream) } else { self.resync(stream) }
    }

    /// A step that failed because the server was away is over once it is back and known to hold what it must.
    fn lived(&mut self, mut step: Step, stream: &mut Written) -> Step {
        let until = Instant::now() + self.options.outage_max;
        loop {
            match step {
                Err(error) if is_away(&error) && Instant::now() < until && !self.shared.is_over() => {
                    self.lines = None;
                    self.shared.count_outage();
                    thread::sleep(RETRY_EVERY);
                    step = self.resync(stream);
                }
                Err(error) if is_away(&error) && self.shared.is_over() => return Ok(Ok(())),
                step => return step,
            }
        }
    }

    fn lines(&mut self) -> Result<&mut [Dialled; 2], BenchError> {
        let lines = match self.lines.take() {
            Some(lines) => lines,
            None => [Dialled::connect(&self.options.addr)?, Dialled::connect(&self.options.addr)?],
        };
        Ok(self.lines.insert(lines))
    }

    fn step(&mut self, stream: &mut Written) -> Step {
        stream.steps += 1;
        match stream.steps {
            steps if steps.is_multiple_of(FENCE_EVERY) => self.fence(stream),
            steps if steps.is_multiple_of(RACE_EVERY) => self.race(stream),
            _ => self.append(stream),
        }
    }

    fn append(&mut self, stream: &mut Written) -> Step {
        let (append, batch, link) = self.next(stream, stream.token.clone())?;
        let [line, _] = self.lines()?;
        line.send_with(|out| append.frame_with(0, &batch, out))?;
        match line.next(outcome)? {
            Outcome::Acked(appended) => self.acked(stream, &appended, link),
            Outcome::Refused(refusal) => self.refused(stream, refusal),
        }
    }

    /// Two appends expect the same sequence number: one of them gets it.
    fn race(&mut self, stream: &mut Written) -> Step {
        let (one, other) = (self.next(stream, stream.token.clone())?, self.next(stream, stream.token.clone())?);
        let seq_num = stream.link.place;
        let [left, right] = self.lines()?;
        left.send_with(|out| one.0.frame_with(0, &one.1, out))?;
        right.send_with(|out| other.0.frame_with(0, &other.1, out))?;
        match (left.next(outcome)?, right.next(outcome)?) {
            (Outcome::Acked(_), Outcome::Acked(_)) => Ok(Err(Fault::TwoWinners { seq_num })),
            (Outcome::Acked(appended), Outcome::Refused(_)) => self.acked(stream, &appended, one.2),
            (Outcome::Refused(_), Outcome::Acked(appended)) => self.acked(stream, &appended, other.2),
            (Outcome::Refused(refusal), Outcome::Refused(_)) => self.refused(stream, refusal),
        }
    }

    /// The token changes, and an append under the one before is refused.
    fn fence(&mut self, stream: &mut Written) -> Step {
        let token = FencingToken::new(&format!("verify-{:x}", unique_number()?))?;
        let fence = Fence { address: stream.address.clone(), fencing_token: token.clone() };
        let before = std::mem::replace(&mut stream.token, token);
        let [line, _] = self.lines()?;
        let fenced: Fenced = match line.call("fencing", &fence) {
            // Whether it holds is not known: the next fence makes it so.
            Err(BenchError::Refused { refusal, .. }) if is_passing(&refusal) => {
                stream.token = before;
                return Ok(Ok(()));
            }
            answer => answer?,
        };
        let at = fenced.tail.seq_num.get();
        if before.is_empty() {
            // An append that presents no token is not held up by one.
            return Ok(Ok(()));
        }
        let (append, batch, _) = self.next(stream, before)?;
        let [line, _] = self.lines()?;
        line.send_with(|out| append.frame_with(0, &batch, out))?;
        match line.next(outcome)? {
            Outcome::Acked(appended) => Ok(Err(Fault::LateAppend { fence: at, seq_num: appended.start.seq_num.get() })),
            Outcome::Refused(_) if at < stream.link.place => {
                Ok(Err(Fault::Tail { told: at, found: stream.link.place }))
            }
            Outcome::Refused(_) => Ok(Ok(())),
        }
    }

    /// The next records of a stream, under a token; no two attempts are alike.
    fn next(&self, stream: &Written, fencing_token: FencingToken) -> Result<(AppendOnce, Vec<u8>, Link), BenchError> {
        let (mut link, branch) = (stream.link, unique_number()?);
        let (mut builder, mut batch) = (BatchBuilder::new(), Vec::new());
        let mut body = vec![0; self.options.record_bytes];
        for _ in 0..self.options.records_per_batch {
            link.write(branch, &mut body);
            builder.push::<&[u8], &[u8]>(None, &[], &body)?;
        }
        let append = AppendOnce {
            address: stream.address.clone(),
            fencing_token,
            match_seq_num: Some(SeqNum::new(stream.link.place)),
            idempotency: (0, 0),
            terms: Terms::default(),
            batch_crc: builder.finish(&mut batch)?,
        };
        Ok((append, batch, link))
    }

    /// An ack counts once the journal has it on the disk.
    fn acked(&self, stream: &mut Written, appended: &Appended, link: Link) -> Step {
        let (due, found) = (stream.link.place, appended.start.seq_num.get());
        if found != due {
            return Ok(Err(Fault::Gap { from: due.min(found), to: found.max(due) }));
        }
        let (end, tail) = (appended.end.seq_num.get(), appended.tail.seq_num.get());
        if end != link.place || tail < end {
            return Ok(Err(Fault::Tail { told: tail.min(end), found: link.place }));
        }
        self.shared.note_ack(self.number, stream.number, link)?;
        stream.link = link;
        Ok(Ok(()))
    }

    fn refused(&mut self, stream: &mut Written, refusal: Refusal) -> Step {
        self.shared.count_refusal(refusal.reason);
        match refusal.reason {
            // Somebody else's record, or one of ours that got no answer, or one that is gone.
            Reason::SequenceMismatch | Reason::FencedOut => self.resync(stream),
            _ if is_passing(&refusal) => {
                thread::sleep(RETRY_EVERY);
                Ok(Ok(()))
            }
            _ => Err(BenchError::Refused { request: "an append", refusal }),
        }
    }

    /// Reads on from what is acked: what got no answer may have landed, and nothing else may be there. Then a token of its own
    /// keeps what is still under way from landing later.
    fn resync(&mut self, stream: &mut Written) -> Step {
        let token = FencingToken::new(&format!("verify-{:x}", unique_number()?))?;
        let (address, acked) = (stream.address.clone(), stream.link);
        let (shared, number) = (self.shared, self.number);
        let marks = [(Known::Read, shared.read_mark(stream.number))];
        let [line, _] = self.lines()?;
        if let Err(error) =
            line.call::<Fenced>("fencing", &Fence { address: address.clone(), fencing_token: token.clone() })
        {
            return match error {
                // A stream is made by its first append, and has no token before.
                BenchError::Refused { refusal, .. } if refusal.reason == Reason::NotFound => {
                    let found = shared.read_mark(stream.number).place.min(acked.place);
                    let loss = Fault::Loss { acked: acked.place, found };
                    Ok((acked.place == 0).then_some(()).ok_or(loss))
                }
                BenchError::Refused { refusal, .. } if is_passing(&refusal) => Ok(Ok(())),
                error => Err(error),
            };
        }
        stream.token = token;
        match judge_to_tail(line, &address, Judge::from(acked).with_marks(marks))? {
            Looked::Whole(judge) => {
                if judge.link != acked {
                    shared.note_ack(number, stream.number, judge.link)?;
                    stream.link = judge.link;
                }
                Ok(Ok(()))
            }
            Looked::Fault(fault) => Ok(Err(fault)),
        }
    }
}

/// Whether the server is away and may come back.
pub(crate) fn is_away(error: &BenchError) -> bool {
    match error {
        BenchError::Connect { .. }
        | BenchError::Broken { .. }
        | BenchError::Closed { .. }
        | BenchError::GoAway { .. } => true,
        BenchError::Refused { refusal, .. } => is_passing(refusal),
        _ => false,
    }
}

/// Whether a refusal says nothing about the stream and may pass.
fn is_passing(refusal: &Refusal) -> bool {
    refusal.reason.retryable()
}

fn outcome(frame: &Frame<'_>) -> Result<Outcome, BenchError> {
    if frame.kind == Kind::Refused {
        let Refused { refusal } = decoded(frame, "an append")?;
        return Ok(Outcome::Refused(refusal));
    }
    decoded(frame, "an append").map(Outcome::Acked)
}
