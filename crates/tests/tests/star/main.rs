//! Does the real `novad` keep what it promises, asked by the Rust client and by the command line?

#![expect(clippy::excessive_nesting, reason = "a test stands in `within`, which takes a level of its own")]

mod bad_input;
mod bench_star;
mod caches;
mod corruption;
mod crowd;
mod fail_stop;
mod files;
mod full_disk;
mod golden;
mod hops;
mod host;
mod host_command;
mod host_files;
mod hostile;
mod hostile_latency;
mod kill9;
mod linear;
mod load;
mod network;
mod races;
mod restart;
mod retries;
mod s2;
mod secrets;
mod slow_disk;
mod store_away;
mod store_clock;
mod store_damage;
mod store_deposed;
mod store_kill;
mod store_moves;
mod store_network;
mod store_outage;
mod store_rebuild;
mod store_refused;
mod store_restart;
mod store_settle;
mod store_shrink;
mod store_tenures;
mod verbs;
mod wire_bounds;
