//! What a shard decides, told as sentences over a world whose log is a vector and whose disk obeys the test.

mod store;
mod world;

mod appends;
mod crashes;
mod history;
mod lanes;
mod loads;
mod moves;
mod readers;
mod reads;
mod retention;
mod sessions;
mod shares;
mod simulation;
mod timings;
mod verbs;
