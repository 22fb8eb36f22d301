//! Why did a measurement not come about, or not hold?

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use wire::batch::BatchError;
use wire::config::Class;
use wire::entry::EntryError;
use wire::frame::{FrameError, Kind};
use wire::names::NameError;
use wire::reason::Reason;
use wire::refusal::Refusal;

use crate::report::LoadReport;
use crate::soak::SoakReport;
use crate::start_at::StartAt;
use crate::verify::VerifyReport;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// An option outside of its range.
    #[error("{option} is {value}: it must be {range}")]
    Option {
        /// Which.
        option: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        range: String,
    },
    /// A bucket or a key that is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A bucket whose streams are of another class.
    #[error("the streams of bucket {bucket} are {found}, not {class}: name another bucket, or say --class {found}")]
    BucketClass {
        /// Which bucket.
        bucket: String,
        /// What its streams start from.
        found: Class,
        /// What was wanted.
        class: Class,
    },
    /// An operation of the store that a floor is measured on.
    #[error("{action} in the store: {why}")]
    Store {
        /// What was being done.
        action: &'static str,
        /// What the store says.
        why: String,
        /// What its error comes down to.
        reason: Reason,
    },
    /// Records that fit in no batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The server can't be reached.
    #[error("{addr} can't be reached: {source}")]
    Connect {
        /// What was dialled.
        addr: String,
        /// What the system says.
        source: io::Error,
    },
    /// A connection broke.
    #[error("the connection to {addr} broke with {in_flight} requests unanswered: {source}")]
    Broken {
        /// Where to.
        addr: String,
        /// Requests that got no answer.
        in_flight: usize,
        /// What the system says.
        source: io::Error,
    },
    /// The server ended a connection.
    #[error("{addr} closed the connection with {in_flight} requests unanswered")]
    Closed {
        /// Where to.
        addr: String,
        /// Requests that got no answer.
        in_flight: usize,
    },
    /// The server asked for an end.
    #[error("the server asks its clients to go: {why}")]
    GoAway {
        /// Why, in its words.
        why: String,
    },
    /// Bytes that are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Bytes that are no entry of a stream.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// A request without which nothing can be measured was refused.
    #[error("{request} was refused: {refusal}")]
    Refused {
        /// Which.
        request: &'static str,
        /// Why.
        refusal: Refusal,
    },
    /// The server ended a session or a subscription.
    #[error("the server ended {what} {handle}: {refusal}")]
    Ended {
        /// A session or a subscription.
        what: &'static str,
        /// Its handle.
        handle: u32,
        /// Why.
        refusal: Refusal,
    },
    /// A frame that answers nothing.
    #[error("a frame of kind {found:?} while {awaited}")]
    Unexpected {
        /// What it carries.
        found: Kind,
        /// What was being waited for.
        awaited: &'static str,
    },
    /// Appends that got no answer.
    #[error("{appends} appends got no answer within {waited_s} s of the end")]
    Unanswered {
        /// How many.
        appends: u64,
        /// How long was waited, in seconds.
        waited_s: u64,
    },
    /// The server broke a promise; the report tells what was measured all the same.
    #[error("{violations} answers broke a promise, the first: {first}")]
    Violations {
        /// How many.
        violations: u64,
        /// The first one.
        first: String,
        /// What was measured.
        report: Box<LoadReport>,
    },
    /// Answers or records are not what they must be.
    #[error("{faults} faults, the first: {first}")]
    Faults {
        /// How many.
        faults: u64,
        /// The first one.
        first: String,
    },
    /// A soak does not pass; the report tells what was seen all the same.
    #[error("the soak does not pass: {why}")]
    Soak {
        /// What grew, or is not what was acked.
        why: String,
        /// What was seen.
        report: Box<SoakReport>,
    },
    /// A star did not keep what it acked; the report tells what was found.
    #[error("a promise is broken: {first}")]
    Unkept {
        /// The first fault and its stream.
        first: String,
        /// What was found.
        report: Box<VerifyReport>,
    },
    /// A check that came past no record, and so proves nothing; the report tells what was refused.
    #[error("nothing was checked: no stream of the journal has a record that is acked or was read")]
    Unchecked {
        /// What was seen.
        report: Box<VerifyReport>,
    },
    /// A start that lies behind.
    #[error("the start {at} was {:.3} s ago by the clock of this host, which says {now}: name one that is to come", ago.as_secs_f64())]
    StartPast {
        /// When the load was to start.
        at: StartAt,
        /// What the clock says.
        now: StartAt,
        /// How long ago that was.
        ago: Duration,
    },
    /// A start that came before the connections were open.
    #[error("the start {at} came {:.3} s before every connection and session was open: name a later one", late.as_secs_f64())]
    StartMissed {
        /// When the load was to start.
        at: StartAt,
        /// How much later it could have.
        late: Duration,
    },
    /// Another server says what is not understood.
    #[error("{what} is not understood: {text}")]
    Peer {
        /// What was waited for.
        what: &'static str,
        /// What came.
        text: String,
    },
    /// A star of this host can't be run.
    #[error("{} can't be run: {why}", program.display())]
    Star {
        /// What was started.
        program: PathBuf,
        /// Why.
        why: String,
    },
    /// A subscriber got records out of order, twice or not at all.
    #[error("the subscriber got record {found} where {expected} was due")]
    Seam {
        /// The sequence number that was due.
        expected: u64,
        /// The one that came.
        found: u64,
    },
    /// A thread can't be kept on its CPU.
    #[error("a thread can't be pinned to CPU {cpu}: {source}")]
    Pin {
        /// Which.
        cpu: usize,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused what every run needs.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The file of the disk floor can't be used.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was being done.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The echo of the network floor did not start.
    #[error("the echo server did not start on CPU {cpu}: {why}")]
    Echo {
        /// Where it should have run.
        cpu: usize,
        /// Why.
        why: String,
    },
}

impl BenchError {
    /// The reason that answers exit code and advice.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Option { .. } | Self::Name(_) | Self::StartPast { .. } => Reason::Invalid,
            Self::Batch(error) => error.reason(),
            Self::BucketClass { .. } => Reason::AlreadyExists,
            Self::Store { reason, .. } => *reason,
            Self::Refused { refusal, .. } | Self::Ended { refusal, .. } => refusal.reason,
            Self::Connect { .. }
            | Self::Broken { .. }
            | Self::Closed { .. }
            | Self::GoAway { .. }
            | Self::Unanswered { .. } => Reason::Unavailable,
            Self::Pin { .. }
            | Self::System { .. }
            | Self::File { .. }
            | Self::Echo { .. }
            | Self::Star { .. }
            | Self::StartMissed { .. }
            | Self::Unchecked { .. } => Reason::FailedPrecondition,
            Self::Frame(_)
            | Self::Entry(_)
            | Self::Unexpected { .. }
            | Self::Violations { .. }
            | Self::Faults { .. }
            | Self::Soak { .. }
            | Self::Unkept { .. }
            | Self::Peer { .. }
            | Self::Seam { .. } => Reason::Internal,
        }
    }

    /// An option that is out of its range.
    pub(crate) fn option(option: &'static str, value: impl ToString, range: impl Into<String>) -> Self {
        Self::Option { option, value: value.to_string(), range: range.into() }
    }
}
