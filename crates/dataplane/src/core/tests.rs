//! What a shard decides, told as sentences over a world whose log is a vector and whose disk obeys the test.

mod world;

mod appends;
mod reads;
mod sessions;
mod verbs;
