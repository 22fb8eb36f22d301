//! The frames that are not hot: typed values whose heads are archives.
//!
//! Each message is a struct of typed fields; its archive holds integers, fixed arrays and byte vectors only, as [`field`]
//! says a type at a time. Decoding checks the archive, then every field, so that what comes out needs no further check.

mod field;

pub use field::{Counter, Start, StreamInfo, TrimTo};

use field::Field;

use crate::archive;
use crate::bucket::{Bucket, BucketPatch, BucketSpec};
use crate::config::{Class, ConfigPatch};
use crate::frame::{self, Frame, Kind};
use crate::ids::{BatchNo, ClusterId, Epoch, Position, ProducerId, SeqNum, StarId, StreamId};
use crate::names::{Address, BucketName, FencingToken};
use crate::refusal::Refusal;
use crate::terms::Terms;

/// A frame body with typed fields.
pub trait Message: Sized {
    /// What its frames carry.
    const KIND: Kind;

    /// Appends the archive of its fields.
    fn put(&self, out: &mut Vec<u8>);

    /// The message in the head of a frame.
    ///
    /// # Errors
    /// A refusal that names the field and what is wrong with it.
    fn get(head: &[u8]) -> Result<Self, Refusal>;

    /// Appends the message as a whole frame.
    fn frame(&self, correlation: u64, out: &mut Vec<u8>) {
        let open = frame::begin(out);
        self.put(out);
        open.end(Self::KIND, correlation, out);
    }

    /// Appends the message as a whole frame with a payload.
    fn frame_with(&self, correlation: u64, payload: &[u8], out: &mut Vec<u8>) {
        let open = frame::begin(out);
        self.put(out);
        let open = open.head_ends(out);
        out.extend_from_slice(payload);
        open.end(Self::KIND, correlation, out);
    }

    /// The message of a frame of its kind.
    ///
    /// # Errors
    /// As [`Message::get`]; also when the frame is of another kind.
    fn of(frame: &Frame<'_>) -> Result<Self, Refusal> {
        if frame.kind != Self::KIND {
            return Err(Refusal::invalid(format!("a frame of kind {:?} where {:?} was due", frame.kind, Self::KIND)));
        }
        Self::get(frame.head)
    }
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq)]
            pub struct $name {
                $($(#[$fdoc])* pub $field: $type,)*
            }

            impl Message for $name {
                const KIND: Kind = Kind::$name;

                fn put(&self, out: &mut Vec<u8>) {
                    archive::put(&rows::$name { $($field: self.$field.to_raw(),)* }, out);
                }

                fn get(head: &[u8]) -> Result<Self, Refusal> {
                    let rows::$name { $($field,)* } = archive::get(head)
                        .map_err(|_| Refusal::invalid(concat!("the body of a ", stringify!($name), " frame doesn't validate")))?;
                    Ok(Self { $($field: Field::from_raw($field)?,)* })
                }
            }
        )*

        /// What must hold of the head of a frame of this kind, see [`crate::fuzzing`]; of a hot one nothing.
        #[cfg(any(test, feature = "fuzzing"))]
        pub(crate) fn check_head(kind: Kind, head: &[u8]) {
            match kind {
                $(Kind::$name => crate::fuzzing::check_message::<$name>(head),)*
                Kind::Append | Kind::Acks | Kind::Page | Kind::Records => {}
            }
        }

        mod rows {
            use super::*;

            $(
                #[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
                pub(super) struct $name {
                    $(pub(super) $field: <$type as Field>::Raw,)*
                }
            )*
        }
    };
}

messages! {
    /// A client says who it is; the first frame of a connection.
    Hello {
        /// The client's name and version, for logs.
        client: String,
    }
    /// The star's answer to a hello.
    Welcome {
        /// The cluster.
        cluster_id: ClusterId,
        /// The star.
        star_id: StarId,
        /// The star's version, for logs.
        version: String,
        /// The shard that serves this connection now.
        shard: u16,
        /// How many shards the star has.
        shards: u16,
        /// Batches a session may have in flight.
        append_window: u32,
        /// A side that has heard nothing for this long sends a ping, in milliseconds. A client that hears nothing for as long
        /// again gives the connection up, and so does the star once three pings are unanswered.
        keepalive_ms: u32,
        /// Longest body of a frame, in bytes.
        frame_body_bytes_max: u32,
    }
    /// Keep-alive, either way.
    Ping {
        /// Comes back in the pong.
        echo: u64,
    }
    /// The answer to a ping.
    Pong {
        /// What the ping carried.
        echo: u64,
    }
    /// The star asks the client to finish and reconnect.
    GoAway {
        /// Why, for logs.
        why: String,
    }
    /// The answer of no to any request.
    Refused {
        /// Why.
        refusal: Refusal,
    }
    /// The answer of yes where there is nothing more to say.
    Done {}
    /// Create a bucket; answered by a [`BucketAnswer`].
    BucketCreate {
        /// What it should be.
        spec: BucketSpec,
    }
    /// Create a bucket or join it; answered by a [`BucketAnswer`].
    BucketEnsure {
        /// What it should be if it is not there.
        spec: BucketSpec,
    }
    /// Change a bucket; answered by a [`BucketAnswer`].
    BucketUpdate {
        /// Which.
        name: BucketName,
        /// What to set.
        patch: BucketPatch,
    }
    /// Look at a bucket; answered by a [`BucketAnswer`].
    BucketGet {
        /// Which.
        name: BucketName,
    }
    /// Delete an empty bucket; answered by a [`Done`].
    BucketDelete {
        /// Which.
        name: BucketName,
    }
    /// List buckets by name; answered by a [`BucketPage`].
    BucketList {
        /// Starts after this name; empty from the first.
        after: String,
        /// Most rows; 0 is the default, more than the bound is clamped.
        limit: u32,
    }
    /// A bucket.
    BucketAnswer {
        /// The bucket.
        bucket: Bucket,
    }
    /// A page of buckets.
    BucketPage {
        /// In the order of their names.
        buckets: Vec<Bucket>,
        /// Where the next page starts after; empty at the end.
        next: String,
    }
    /// Create a stream; answered by a [`StreamAnswer`].
    StreamCreate {
        /// Where.
        address: Address,
        /// Over the bucket's defaults.
        config: ConfigPatch,
    }
    /// Look at a stream; answered by a [`StreamAnswer`].
    StreamGet {
        /// Which.
        address: Address,
    }
    /// Change a stream; answered by a [`StreamAnswer`].
    StreamReconfigure {
        /// Which.
        address: Address,
        /// What to set.
        config: ConfigPatch,
    }
    /// Delete a stream; answered by a [`Done`], also when there was none.
    StreamDelete {
        /// Which.
        address: Address,
    }
    /// List a bucket's streams by key; answered by a [`StreamPage`].
    StreamList {
        /// Which bucket.
        bucket: BucketName,
        /// The cursor of the page before; empty from the first.
        after: Vec<u8>,
        /// Most rows; 0 is the default, more than the bound is clamped.
        limit: u32,
    }
    /// A stream.
    StreamAnswer {
        /// The stream.
        stream: StreamInfo,
    }
    /// A page of streams.
    StreamPage {
        /// In the order of their keys.
        streams: Vec<StreamInfo>,
        /// The cursor of the next page; empty at the end.
        next: Vec<u8>,
    }
    /// Open a writer session; answered by an [`Opened`].
    Open {
        /// Of which stream.
        address: Address,
        /// The session's own random number, never 0; a reconnect resumes under it.
        producer: ProducerId,
        /// The token presented; empty is not presenting.
        fencing_token: FencingToken,
        /// On a reconnect, the stream that the session was opened on.
        resume: Option<StreamId>,
    }
    /// A session is open.
    Opened {
        /// Its handle on this connection.
        session: u32,
        /// The stream.
        stream_id: StreamId,
        /// The leader's tenure.
        slot_epoch: Epoch,
        /// The committed tail.
        tail: Position,
        /// Batches that may be in flight.
        window: u32,
    }
    /// One batch of a session is refused; the session lives on.
    AppendRefused {
        /// The session's handle.
        session: u32,
        /// The producer's number for the batch.
        no: BatchNo,
        /// Why.
        refusal: Refusal,
    }
    /// Close a session once what it sent is answered; answered by a [`Done`].
    ///
    /// A client that asks with nothing left unanswered says that it will send none of it again: its numbers are forgotten.
    Close {
        /// The session's handle.
        session: u32,
    }
    /// A session ended by the star's doing; what it has in flight and is not yet acked was not appended.
    SessionEnded {
        /// The session's handle.
        session: u32,
        /// Why.
        refusal: Refusal,
    }
    /// A batch outside of any session, in the payload; answered by an [`Appended`].
    AppendOnce {
        /// To which stream.
        address: Address,
        /// The token presented; empty is not presenting.
        fencing_token: FencingToken,
        /// The sequence number its first record must get.
        match_seq_num: Option<SeqNum>,
        /// A random key under which the batch is stored once; 0 and 0 for none.
        idempotency: (u64, u64),
        /// On which terms.
        terms: Terms,
        /// The CRC-32C of the batch.
        batch_crc: u32,
    }
    /// A one-shot batch is durable.
    Appended {
        /// Its first record.
        start: Position,
        /// One past its last, with the last one's stamp.
        end: Position,
        /// The committed tail.
        tail: Position,
        /// What made it durable.
        class: Class,
    }
    /// Read a page; answered by a `Page` frame, see [`crate::hot::RecordsHead`].
    Read {
        /// Of which stream.
        address: Address,
        /// From where.
        start: Start,
        /// Pulls a start outside of what there is into range instead of refusing it.
        clamp: bool,
        /// Most records; 0 is the bound, more is clamped to it.
        limit: u32,
        /// Most content, in bytes; 0 is the bound, more is clamped to it.
        max_bytes: u32,
        /// Cuts at the first record stamped at or after it.
        until_ms: Option<i64>,
    }
    /// Follow a stream; answered by a [`Subscribed`], then `Records` frames within the credit.
    Subscribe {
        /// Which stream.
        address: Address,
        /// From where.
        start: Start,
        /// Pulls a start outside of what there is into range instead of refusing it.
        clamp: bool,
        /// The handle the client gives it on this connection.
        subscription: u32,
        /// Payload that may be sent before more credit comes, in bytes.
        credit_bytes: u32,
        /// On a reconnect, the stream that was subscribed to.
        resume: Option<StreamId>,
    }
    /// A subscription is open.
    Subscribed {
        /// Its handle.
        subscription: u32,
        /// The stream.
        stream_id: StreamId,
        /// Where it starts.
        start: SeqNum,
    }
    /// More payload that a subscription may send.
    Credit {
        /// Its handle.
        subscription: u32,
        /// In bytes.
        bytes: u32,
    }
    /// End a subscription; answered by a [`Done`].
    Unsubscribe {
        /// Its handle.
        subscription: u32,
    }
    /// A subscription ended by the star's doing.
    SubscriptionEnded {
        /// Its handle.
        subscription: u32,
        /// Why.
        refusal: Refusal,
    }
    /// Ask for the tail; answered by a [`Tail`].
    CheckTail {
        /// Of which stream.
        address: Address,
    }
    /// The committed tail.
    Tail {
        /// The next sequence number, and the last record's stamp.
        tail: Position,
    }
    /// Move the trim point; answered by a [`Trimmed`].
    Trim {
        /// Of which stream.
        address: Address,
        /// To where.
        to: TrimTo,
    }
    /// Where the trim point stands, durably.
    Trimmed {
        /// Records below it are gone.
        trim_point: SeqNum,
    }
    /// Install, rotate or (empty) clear the fencing token; answered by a [`Fenced`].
    Fence {
        /// Of which stream.
        address: Address,
        /// The token.
        fencing_token: FencingToken,
    }
    /// The fence holds.
    Fenced {
        /// All below its sequence number came in under the token before.
        tail: Position,
    }
    /// Ask for the installed token; answered by a [`Token`].
    GetToken {
        /// Of which stream.
        address: Address,
    }
    /// The installed token.
    Token {
        /// Empty when none is installed.
        fencing_token: FencingToken,
    }
    /// Ask what the star is and how it does; answered by a [`StarAnswer`].
    StarGet {}
    /// The star.
    StarAnswer {
        /// The cluster.
        cluster_id: ClusterId,
        /// The star.
        star_id: StarId,
        /// Its version.
        version: String,
        /// Its tenure.
        epoch: Epoch,
        /// What it counts.
        counters: Vec<Counter>,
    }
}

/// A refusal as a whole frame.
pub fn refuse(correlation: u64, refusal: Refusal, out: &mut Vec<u8>) {
    Refused { refusal }.frame(correlation, out);
}

#[cfg(test)]
pub(crate) mod tests;
