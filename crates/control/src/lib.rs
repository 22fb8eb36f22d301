//! The background: buckets, the standard store and its index, and all that streams have to do with them.
//!
//! [`Opened::open`] reads what the [`store`] holds, [`Opened::join`] takes it for this star ([`channel`]) and brings the [`index`]
//! up to date, and [`Background::start`] serves the shards: their bucket verbs, the entries they hand over, and the reads of
//! settled records ([`history`]).

mod background;
pub mod channel;
mod core;
mod counters;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod history;
pub mod index;
mod load;
mod losses;
mod outbox;
mod plane;
mod rarely;
mod rebuild;
mod room;
pub mod settle;
mod shell;
pub mod store;

pub use background::{Background, Opened, Options, Shards, StartError, Threads};
pub use load::LoadError;
pub use losses::{Losses, LossyStream};
pub use outbox::ShardSink;
pub use rebuild::{Missing, RebuildError, RebuildOptions, Rebuilt, Step, rebuild_index};
pub use shell::{Control, ControlSender, Inbox, inbox};
