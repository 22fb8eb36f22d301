//! One shard's decisions, without clock, I/O or locks: what comes in are calls, what goes out goes through [`World`].
//!
//! A stream's committed state is its [`row::Row`], the fold of its entries. While something is in flight, or someone is
//! connected, a [`live::Live`] stands beside it with the assignment cursor. Everything that is answered waits in
//! [`commit`]'s queue until the state it was judged on is durable.

mod append;
mod commit;
mod feed;
mod heaviest;
mod held;
mod idle;
mod judge;
mod lane;
mod left;
mod live;
mod names;
mod outage;
mod outbox;
mod pieces;
mod placement;
mod read;
mod reconfigure;
mod request;
mod retention;
mod ring;
mod row;
mod session;
mod settled;
mod shard;
mod shares;
mod span;
mod streams;
mod subscribe;
mod timings;
mod tombstones;
mod verbs;
mod world;

pub(crate) use feed::{Feed, PARCEL_BYTES, Piece};
pub(crate) use outbox::OutBuffer;
pub(crate) use placement::Placement;
pub(crate) use request::{Request, Route};
pub(crate) use settled::{LogPlace, SettledTo};
pub(crate) use shard::{Shard, ShardConfig};
pub(crate) use shares::{Shares, Work};
pub(crate) use streams::Streams;
pub(crate) use subscribe::BACKLOG_BYTES_MAX;
pub(crate) use world::{ConnId, Fetch, FetchError, Flow, Now, World};

#[cfg(test)]
mod tests;
