//! How is answered what every shard has a part of, and what control answers?

use std::time::Duration;

use wire::bucket::Bucket;
use wire::handoff::{BucketAnswer, ReplyTo};
use wire::ids::ShardId;
use wire::limits::{LIST_PAGE_DEFAULT, LIST_PAGE_MAX};
use wire::message::{self, BucketPage, Counter, Done, StarAnswer};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::star_detail::{StarDetail, StoodStill};
use wire::stream_row::StreamRow;

use crate::core::{ConnId, Request, World};
use crate::cpu::busy_us;
use crate::dispatch::{Served, refuse, too_many};
use crate::hop::{Ask, Part};
use crate::listing::Listing;
use crate::shell::{Shell, State};

/// Answers of one shard that wait for parts; one more request is refused.
const GATHERINGS_MAX: usize = 1_024;

/// An answer that waits for the parts of other shards.
#[derive(Debug)]
pub(crate) struct Gathering {
    call: (ConnId, u64),
    parts_due: u16,
    gathered: Gathered,
}

#[derive(Debug)]
enum Gathered {
    Streams(Listing),
    Counters(Vec<Counter>, StarDetail),
}

impl Shell {
    /// Answers what the star is and how it does.
    pub(crate) fn answer_star(&self, state: &mut State, id: ConnId, correlation: u64) -> Served {
        self.gather(state, (id, correlation), Gathered::Counters(Vec::new(), StarDetail::default()), &Ask::Counters)
    }

    /// Lists a bucket's streams.
    pub(crate) fn list_streams(&self, state: &mut State, call: (ConnId, u64), request: &Request) -> Served {
        let Request::StreamList(list) = request else { return Served::Done };
        let bucket = match state.core.bucket_of(&list.bucket) {
            Ok(bucket) => bucket,
            Err(refusal) => return refuse(state, call.0, call.1, refusal),
        };
        let Ok(after) = std::str::from_utf8(&list.after) else {
            return refuse(state, call.0, call.1, Refusal::invalid("the cursor is none that a list has given out"));
        };
        let limit = match list.limit {
            0 => LIST_PAGE_DEFAULT,
            limit => limit.min(LIST_PAGE_MAX),
        } as usize;
        // One more than is answered tells whether there is a next page.
        let ask = Ask::Streams { bucket: bucket.id, after: after.to_owned(), limit: limit + 1 };
        let listing = Listing::new(bucket.id, bucket.name.clone(), after.to_owned(), limit);
        self.gather(state, call, Gathered::Streams(listing), &ask)
    }

    fn gather(&self, state: &mut State, call: (ConnId, u64), gathered: Gathered, ask: &Ask) -> Served {
        if state.gatherings.len() >= GATHERINGS_MAX {
            return refuse(state, call.0, call.1, too_many("lists"));
        }
        if let Some(conn) = state.world.conns.get_mut(call.0) {
            conn.is_fresh = false;
        }
        let ticket = state.next_ticket();
        state.gatherings.insert(ticket, Gathering { call, parts_due: self.star.shards, gathered });
        self.ask_all(state, ticket, ask);
        let own = self.part(state, ask);
        self.on_part(state, ticket, own);
        Served::Done
    }

    /// This shard's part of an answer.
    pub(crate) fn part(&self, state: &State, ask: &Ask) -> Part {
        match ask {
            Ask::Streams { bucket, after, limit } => {
                let deleted = state.core.deleted(*bucket, after).map(|(_, stream_id)| stream_id).collect();
                Part::Streams { streams: state.core.list(*bucket, after, *limit), deleted }
            }
            Ask::Counters => Part::Counters(self.counters(state), self.detail(state)),
        }
    }

    /// A part has come.
    pub(crate) fn on_part(&self, state: &mut State, ticket: u64, part: Part) {
        let Some(gathering) = state.gatherings.get_mut(&ticket) else { return };
        match (part, &mut gathering.gathered) {
            (Part::Streams { streams, deleted }, Gathered::Streams(listing)) => listing.add(streams, deleted),
            (Part::Counters(part, part_detail), Gathered::Counters(counters, detail)) => {
                counters.extend(part);
                detail.add(part_detail);
            }
            (Part::Streams { .. }, Gathered::Counters(..)) | (Part::Counters(..), Gathered::Streams(_)) => {}
        }
        gathering.parts_due -= 1;
        if gathering.parts_due > 0 {
            return;
        }
        if let Gathered::Streams(listing) = &gathering.gathered {
            // What shards have in memory is known first: what the index says after that is never newer.
            let ask = listing.ask(ReplyTo { shard: self.me, ticket });
            if state.world.to_control(ask).is_err() {
                let refusal = Refusal::new(Reason::Unavailable, "too much is asked of the index: try again");
                self.on_listed(state, ticket, Err(refusal));
            }
            return;
        }
        let Some(Gathering { call: (id, correlation), gathered: Gathered::Counters(mut counters, detail), .. }) =
            state.gatherings.remove(&ticket)
        else {
            return;
        };
        let Some(out) = state.world.out(id) else { return };
        counters.sort_by_key(|counter| counter.shard);
        let (cluster_id, star_id) = (self.star.cluster_id, self.star.star_id);
        let (version, epoch) = (self.star.version.to_owned(), self.epoch);
        let answer = StarAnswer { cluster_id, star_id, version, epoch, counters };
        out.message_with(&answer, correlation, &detail.to_bytes());
    }

    /// The index has answered what it lists.
    pub(crate) fn on_listed(&self, state: &mut State, ticket: u64, result: Result<Vec<StreamRow>, Refusal>) {
        let Some(gathering) = state.gatherings.remove(&ticket) else { return };
        let (Gathered::Streams(listing), (id, correlation)) = (gathering.gathered, gathering.call) else { return };
        let Some(out) = state.world.out(id) else { return };
        match result {
            Ok(rows) => out.message(&listing.page(rows), correlation),
            Err(refusal) => out.refuse(correlation, refusal),
        }
    }

    /// Control has answered a bucket verb.
    pub(crate) fn answer_bucket(state: &mut State, ticket: u64, result: Result<BucketAnswer, Refusal>) {
        let Some((id, correlation)) = state.tickets.remove(&ticket) else { return };
        let Some(out) = state.world.out(id) else { return };
        match result {
            Ok(BucketAnswer::Bucket(bucket)) => {
                out.message(&message::BucketAnswer { bucket: Bucket::clone(&bucket) }, correlation);
            }
            Ok(BucketAnswer::Deleted) => out.message(&Done {}, correlation),
            Ok(BucketAnswer::Page(buckets, next)) => {
                let buckets = buckets.iter().map(|bucket| Bucket::clone(bucket)).collect();
                out.message(&BucketPage { buckets, next }, correlation);
            }
            Err(refusal) => out.refuse(correlation, refusal),
        }
    }

    /// What this shard tells of itself besides what it counts.
    fn detail(&self, state: &State) -> StarDetail {
        let task = self.own_mailbox().pulse.stood_still_in();
        let stood_still = task.map(|task| StoodStill { shard: self.me.get(), task: task.to_owned() });
        StarDetail { stood_still: stood_still.into_iter().collect(), ..state.core.detail() }
    }

    /// Entries of the shard's head log that the store doesn't have yet.
    fn unsettled_entries(&self, state: &State) -> u64 {
        let settled = state.world.feeds.logs.first().map(|own| own.feed.settled());
        settled.map_or(0, |settled| self.log.assigned_lsn().get().saturating_sub(settled.get()))
    }

    /// What this shard counts.
    fn counters(&self, state: &State) -> Vec<Counter> {
        let mut counters = Vec::new();
        state.core.counters(&mut counters);
        let counts = &state.world.counts;
        let log = self.log.metrics();
        counters.extend([
            ("connections", state.world.conns.len() as u64),
            ("connections_accepted_total", counts.accepted),
            ("connections_turned_away_total", counts.turned_away),
            ("frames_total", counts.frames),
            ("hops_total", counts.hops),
            ("hand_overs_total", counts.hand_overs),
            ("spills_total", counts.spills),
            ("fetches_waiting", state.world.fetches.len() as u64),
            ("log_commits_total", log.commits),
            ("log_entries_total", log.entries),
            ("log_frame_bytes_total", log.frame_bytes),
            ("log_padding_bytes_total", log.padding_bytes),
            ("log_used_bytes", log.used_bytes),
            ("log_flush_us", log.flush_ewma_us),
            ("log_wait_us", log.wait_ewma_us),
            ("log_unsettled_entries", self.unsettled_entries(state)),
            ("cpu_busy_us_total", busy_us()),
            ("turns_long_total", counts.turns_long),
            ("turn_longest_us", u64::try_from(counts.turn_longest.as_micros()).unwrap_or(u64::MAX)),
        ]);
        counters.extend(state.world.shares.counters());
        counters.extend(self.own_mailbox().pulse.counters());
        let counter = |(name, value): (&str, u64)| Counter { shard: self.me.get(), name: name.to_owned(), value };
        let counters = counters.into_iter().map(counter);
        match self.me {
            // What is the star's is told by its first shard.
            ShardId::ZERO => counters.chain(self.counters_of_star(state)).collect(),
            _ => counters.collect(),
        }
    }

    /// What is counted of the star as a whole.
    fn counters_of_star(&self, state: &State) -> Vec<Counter> {
        let (took, entries) = self.star.recovery;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let own = [
            ("tenure_ms", millis(self.mono())),
            ("tenure_recovery_ms", millis(took)),
            ("tenure_recovery_entries", entries),
        ];
        let of_control = state.control_counters.iter().map(|(name, value)| (name.as_str(), *value));
        let all = own.into_iter().chain(of_control);
        all.map(|(name, value)| Counter { shard: Counter::OF_STAR, name: name.to_owned(), value }).collect()
    }
}
