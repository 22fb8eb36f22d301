//! The background: buckets, kept behind the store.
//!
//! [`Control::start`] reads what the [`store`] holds, tells every shard, and answers the bucket verbs that shards pass on.

pub mod channel;
mod core;
pub mod history;
pub mod index;
mod load;
mod outbox;
pub mod settle;
mod shell;
pub mod store;

pub use load::LoadError;
pub use outbox::ShardSink;
pub use shell::{Control, ControlSender, Inbox, Joints, StartError, inbox};
