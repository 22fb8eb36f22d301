//! The Rust SDK of nova: durable streams over nova's wire.
//!
//! A [`Client`] is made once a process and cloned at will. It makes buckets and streams, appends, reads and follows; each
//! verb takes an [`Address`], a bucket and a key.
//!
//! ```no_run
//! use client::{BucketName, BucketSpec, Class, Client, ConfigPatch, Options, ProducerOptions, ReadOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> client::Result<()> {
//! let client = Client::new(Options::new(["127.0.0.1:7781"]))?;
//! client
//!     .ensure_bucket(BucketSpec {
//!         create_stream_on_append: true,
//!         defaults: ConfigPatch { class: Some(Class::Express), ..ConfigPatch::default() },
//!         ..BucketSpec::named(BucketName::new("demo")?)
//!     })
//!     .await?;
//!
//! let address = "nova://demo/orders".parse()?;
//! let producer = client.open(&address, ProducerOptions::default()).await?;
//! let appended = producer.append(["{\"id\":1}", "{\"id\":2}"]).await?;
//! producer.close().await?;
//!
//! let page = client.read(&address, ReadOptions::from(appended.start.seq_num.get())).await?;
//! assert_eq!(page.records[0].body.as_ref(), b"{\"id\":1}");
//! # Ok(())
//! # }
//! ```
//!
//! # Which way to append
//! - [`Producer`]: a writer session. Batches by itself, keeps many in flight, comes back from broken connections and sends
//!   again what is not acked. For all that writes more than now and then.
//! - [`Client::append`]: one call, one durable batch, sent at most once.
//! - [`Producer::append_match`] and [`Client::append_match`]: stored only at the sequence number that the caller expects, so
//!   writers that collide find out, one append at a time.
//! - A fencing token ([`Client::fence`], [`ProducerOptions::fencing_token`], [`Client::presenting`]) says who may write at all.
//!
//! # Which way to read
//! [`Client::read`] answers a page, [`Client::subscribe`] follows: history first, then live, with no seam. Records are
//! [`bytes::Bytes`] slices of the frame they came in; nothing is copied. Every batch is checked against its producer's
//! checksum before its records are handed out.
//!
//! # When something fails
//! Every [`Error`] has a [`Reason`] to branch on and two answers to rely on: [`Error::retryable`], and
//! [`Error::no_side_effect`]. Details (the tail, the trim point, the installed token) are there where the reason calls for
//! them. Calls that only ask are asked again by themselves within [`Options::request_timeout`]; a call that changes
//! something is sent at most once, unless sending it twice is the same as once. Pointers to a stream's leader are followed.
//!
//! # Over HTTP
//! A client whose addresses are `http://…` or `https://…` makes the same calls of a gateway's HTTP surface, with the same
//! types and errors. What needs the wire (producers, [`Client::star`]) is refused at once with `wire_only`.
//!
//! # Runtimes
//! Any tokio runtime with I/O and time enabled, of any flavour. Connections run as tasks on the runtime of the call that
//! made them.

mod admin;
mod calls;
mod client;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod http;
pub mod json;
mod link;
mod options;
mod page;
mod producer;
mod read;
mod record;
mod search;
mod subscribe;
mod verbs;

pub use bytes::Bytes;
pub use wire::bucket::{Bucket, BucketPatch, BucketSpec, BucketState};
pub use wire::config::{
    BatchPolicy, Class, ConfigError, ConfigPatch, ProducerPolicy, Retention, StreamConfig, Timestamping,
    TimestampingMode,
};
pub use wire::entry::Effect;
pub use wire::ids::{BucketId, ClusterId, Epoch, ParseIdError, Position, SeqNum, StarId, StreamId};
pub use wire::message::{Appended, BucketPage, Counter, StarAnswer, Start, StreamInfo, StreamPage};
pub use wire::names::{Address, BucketName, FencingToken, Key, NameError};
pub use wire::reason::Reason;
pub use wire::star_detail::{HeavyStream, Histogram, Operation, Phase, StarDetail, StoodStill, Timing};
pub use wire::terms::Terms;

pub use client::Client;
pub use error::{Error, Result};
pub use options::{DEFAULT_PORT, Options};
pub use page::Page;
pub use producer::{Producer, ProducerOptions, Ticket};
pub use read::ReadOptions;
pub use record::{AppendRecord, Header, Record};
pub use subscribe::{SubscribeOptions, Subscription};
pub use verbs::{OneShot, Presenting};

#[cfg(test)]
mod peer;
