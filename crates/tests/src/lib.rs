//! How is the real process run, stopped, killed, talked to and judged by tests?
//!
//! [`Novad`] is one `novad` on a directory of its own, [`Nova`] one run of the command line, [`Speaker`] a client that
//! speaks frames by hand, and [`history`] compares what came back with what was acked. Everything here ends: a wait has a
//! bound, a process is killed when its handle is dropped, a directory is removed.

mod bounded;
mod built;
mod combination;
mod failing;
pub mod history;
mod http;
pub mod linear;
mod loop_disk;
mod nova;
mod novad;
mod proxy;
mod scratch;
mod soak;
mod speaker;
mod store;
mod stored;

pub use bounded::{eventually, within};
pub use combination::{class, class_name, is_about, is_on_a_directory, load_of, other_class_name, s3_server};
pub use failing::{Script, last_words};
pub use http::{Event, Events, Http, Reply, reply};
pub use loop_disk::{LoopDisk, Throttle, run_tool};
pub use nova::{Nova, Outcome, Running};
pub use novad::{Ended, Novad};
pub use proxy::{Counted, Dice, Proxy, Weather};
pub use scratch::{BUCKET, Scratch, at, bucket, text};
pub use soak::soaked;
pub use speaker::{Heard, Speaker};
pub use store::{Store, kept_bytes, objects};
pub use stored::Stored;
