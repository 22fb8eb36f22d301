//! What a client may ask, typed, and which shard answers it.

use wire::frame::{Frame, Kind};
use wire::handoff::BucketVerb;
use wire::message::{
    AppendOnce, BucketCreate, BucketDelete, BucketEnsure, BucketGet, BucketList, BucketUpdate, CheckTail, Close,
    Credit, Fence, GetToken, Message, Open, Read, StarGet, StreamCreate, StreamDelete, StreamGet, StreamList,
    StreamReconfigure, Subscribe, Trim, Unsubscribe,
};
use wire::names::Address;
use wire::refusal::Refusal;

use super::shares::Work;

/// A request that is not hot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Request {
    /// A bucket verb.
    Bucket(BucketVerb),
    /// See the message of the same name; so are those that follow.
    StreamCreate(StreamCreate),
    StreamGet(StreamGet),
    StreamReconfigure(StreamReconfigure),
    StreamDelete(StreamDelete),
    StreamList(StreamList),
    Open(Open),
    Close(Close),
    AppendOnce(AppendOnce),
    Read(Read),
    Subscribe(Subscribe),
    Credit(Credit),
    Unsubscribe(Unsubscribe),
    CheckTail(CheckTail),
    Trim(Trim),
    Fence(Fence),
    GetToken(GetToken),
    StarGet(StarGet),
}

/// Who answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// The star, on whichever shard.
    Here,
    /// The shard that owns the stream.
    Stream(&'a Address),
    /// The shard of a session's handle.
    Session(u32),
    /// The shard that serves a connection's subscription.
    Subscription(u32),
    /// Control.
    Control,
    /// Every shard a part.
    EveryShard,
}

impl Request {
    /// The request in a frame.
    ///
    /// # Errors
    /// A refusal that says what is wrong with it, also when its kind is none that a client sends.
    pub(crate) fn decode(frame: &Frame<'_>) -> Result<Self, Refusal> {
        let head = frame.head;
        Ok(match frame.kind {
            Kind::BucketCreate => Self::Bucket(BucketVerb::Create(BucketCreate::get(head)?.spec)),
            Kind::BucketEnsure => Self::Bucket(BucketVerb::Ensure(BucketEnsure::get(head)?.spec)),
            Kind::BucketUpdate => {
                let BucketUpdate { name, patch } = BucketUpdate::get(head)?;
                Self::Bucket(BucketVerb::Update(name, patch))
            }
            Kind::BucketGet => Self::Bucket(BucketVerb::Get(BucketGet::get(head)?.name)),
            Kind::BucketDelete => Self::Bucket(BucketVerb::Delete(BucketDelete::get(head)?.name)),
            Kind::BucketList => {
                let BucketList { after, limit } = BucketList::get(head)?;
                Self::Bucket(BucketVerb::List { after, limit })
            }
            Kind::StreamCreate => Self::StreamCreate(StreamCreate::get(head)?),
            Kind::StreamGet => Self::StreamGet(StreamGet::get(head)?),
            Kind::StreamReconfigure => Self::StreamReconfigure(StreamReconfigure::get(head)?),
            Kind::StreamDelete => Self::StreamDelete(StreamDelete::get(head)?),
            Kind::StreamList => Self::StreamList(StreamList::get(head)?),
            Kind::Open => Self::Open(Open::get(head)?),
            Kind::Close => Self::Close(Close::get(head)?),
            Kind::AppendOnce => Self::AppendOnce(AppendOnce::get(head)?),
            Kind::Read => Self::Read(Read::get(head)?),
            Kind::Subscribe => Self::Subscribe(Subscribe::get(head)?),
            Kind::Credit => Self::Credit(Credit::get(head)?),
            Kind::Unsubscribe => Self::Unsubscribe(Unsubscribe::get(head)?),
            Kind::CheckTail => Self::CheckTail(CheckTail::get(head)?),
            Kind::Trim => Self::Trim(Trim::get(head)?),
            Kind::Fence => Self::Fence(Fence::get(head)?),
            Kind::GetToken => Self::GetToken(GetToken::get(head)?),
            Kind::StarGet => Self::StarGet(StarGet::get(head)?),
            kind => return Err(Refusal::invalid(format!("a client doesn't send frames of kind {kind:?}"))),
        })
    }

    /// Which kind of work it is.
    pub(crate) fn work(&self) -> Work {
        match self {
            Self::Bucket(_) | Self::StreamList(_) | Self::StarGet(_) => Work::Admin,
            Self::Read(_) | Self::Subscribe(_) | Self::Credit(_) | Self::Unsubscribe(_) => Work::Read,
            Self::StreamCreate(_)
            | Self::StreamGet(_)
            | Self::StreamReconfigure(_)
            | Self::StreamDelete(_)
            | Self::Open(_)
            | Self::Close(_)
            | Self::AppendOnce(_)
            | Self::CheckTail(_)
            | Self::Trim(_)
            | Self::Fence(_)
            | Self::GetToken(_) => Work::Append,
        }
    }

    /// Who answers it.
    pub(crate) fn route(&self) -> Route<'_> {
        match self {
            Self::Bucket(_) => Route::Control,
            Self::StreamCreate(StreamCreate { address, .. })
            | Self::StreamGet(StreamGet { address })
            | Self::StreamReconfigure(StreamReconfigure { address, .. })
            | Self::StreamDelete(StreamDelete { address })
            | Self::Open(Open { address, .. })
            | Self::AppendOnce(AppendOnce { address, .. })
            | Self::Read(Read { address, .. })
            | Self::Subscribe(Subscribe { address, .. })
            | Self::CheckTail(CheckTail { address })
            | Self::Trim(Trim { address, .. })
            | Self::Fence(Fence { address, .. })
            | Self::GetToken(GetToken { address }) => Route::Stream(address),
            Self::StreamList(_) => Route::EveryShard,
            Self::Close(Close { session }) => Route::Session(*session),
            Self::Credit(Credit { subscription, .. }) | Self::Unsubscribe(Unsubscribe { subscription }) => {
                Route::Subscription(*subscription)
            }
            Self::StarGet(_) => Route::Here,
        }
    }
}
