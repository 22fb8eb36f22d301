//! Which subscriptions does a connection have on other shards?

use std::collections::HashMap;

use wire::frame::{self, Kind, Next};
use wire::ids::ShardId;
use wire::message::{Message, SubscriptionEnded};
use wire::reason::Reason;
use wire::refusal::Refusal;

use crate::dispatch::too_many;

/// Subscriptions of one connection on other shards; one more is refused.
const REMOTE_SUBSCRIPTIONS_MAX: usize = 4_096;

/// The subscriptions of one connection on other shards, by the client's handle.
#[derive(Debug, Default)]
pub(crate) struct RemoteSubscriptions(HashMap<u32, Place>);

/// Where one is, and under which number it was asked for.
#[derive(Debug, Clone, Copy)]
struct Place {
    shard: ShardId,
    correlation: u64,
}

impl RemoteSubscriptions {
    /// Notes one that is asked for.
    ///
    /// # Errors
    /// `invalid` for a handle in use, `resource_exhausted` at the bound.
    pub(crate) fn note(&mut self, handle: u32, shard: ShardId, correlation: u64) -> Result<(), Refusal> {
        if self.0.contains_key(&handle) {
            let message = format!("this connection has a subscription {handle} already");
            return Err(Refusal::new(Reason::Invalid, message));
        }
        if self.0.len() >= REMOTE_SUBSCRIPTIONS_MAX {
            return Err(too_many("subscriptions of other shards' streams"));
        }
        self.0.insert(handle, Place { shard, correlation });
        Ok(())
    }

    /// The shard that serves one.
    pub(crate) fn shard(&self, handle: u32) -> Option<ShardId> {
        self.0.get(&handle).map(|place| place.shard)
    }

    /// Forgets one that its client ends.
    pub(crate) fn forget(&mut self, handle: u32) {
        self.0.remove(&handle);
    }

    /// Forgets those that these whole frames of another shard refuse or end.
    pub(crate) fn forget_ended(&mut self, mut frames: &[u8]) {
        while !self.0.is_empty()
            && let Ok(Next::Frame(frame)) = frame::next(frames, frames.len())
        {
            if frame.kind == Kind::Refused {
                self.0.retain(|_, place| place.correlation != frame.correlation);
            } else if let Ok(ended) = SubscriptionEnded::of(&frame) {
                self.forget(ended.subscription);
            }
            frames = &frames[frame.frame_bytes..];
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::message::{Done, Subscribed};

    use super::*;

    fn shard() -> ShardId {
        ShardId::new(1)
    }

    #[test]
    fn what_another_shard_refuses_or_ends_gives_its_place_back() {
        let mut remote = RemoteSubscriptions::default();
        for handle in 1..=4 {
            remote.note(handle, shard(), 10 + u64::from(handle)).unwrap();
        }
        let mut frames = Vec::new();
        let refusal = Refusal::invalid("no");
        Done {}.frame(11, &mut frames);
        wire::message::refuse(12, refusal.clone(), &mut frames);
        SubscriptionEnded { subscription: 3, refusal }.frame(0, &mut frames);
        let start = wire::ids::SeqNum::ZERO;
        Subscribed { subscription: 4, stream_id: wire::ids::StreamId::default(), start }.frame(14, &mut frames);
        remote.forget_ended(&frames);
        let left: Vec<bool> = (1..=4).map(|handle| remote.shard(handle).is_some()).collect();
        assert_eq!(left, [true, false, false, true]);
    }

    #[test]
    fn a_handle_in_use_and_one_over_the_bound_are_refused() {
        let mut remote = RemoteSubscriptions::default();
        remote.note(0, shard(), 0).unwrap();
        assert_eq!(remote.note(0, shard(), 1).unwrap_err().reason, Reason::Invalid);
        for handle in 1..4_096 {
            remote.note(handle, shard(), 0).unwrap();
        }
        assert_eq!(remote.note(5_000, shard(), 1).unwrap_err().reason, Reason::ResourceExhausted);
        remote.forget(7);
        remote.note(5_000, shard(), 1).unwrap();
    }
}
