//! The background: buckets, the standard store and its index, and all that streams have to do with them.
//!
//! [`Opened::open`] reads what the [`store`] holds, [`Opened::join`] takes it for this star ([`channel`]) and brings the [`index`]
//! up to date, and [`Background::start`] serves the shards: their bucket verbs, the entries they hand over, and the reads of
//! settled records ([`history`]).

mod background;
pub mod channel;
mod core;
mod counters;
pub mod history;
pub mod index;
mod load;
mod outbox;
mod plane;
pub mod settle;
mod shell;
pub mod store;

pub use background::{Background, Opened, Options, Shards, StartError};
pub use load::LoadError;
pub use outbox::ShardSink;
pub use shell::{Control, ControlSender, Inbox, inbox};
