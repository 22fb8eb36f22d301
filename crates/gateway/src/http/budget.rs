//! How many bytes are held for requests and answers at once, and who must come back later?

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use wire::reason::Reason;
use wire::refusal::Refusal;

/// Bytes are counted in units of this many.
const UNIT_BYTES: usize = 1 << 10;
const RETRY_AFTER_MS: u64 = 1_000;

/// Bytes that may be held at once.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    units: Arc<Semaphore>,
    uncounted_bytes: usize,
}

/// What one request holds of a budget; given back when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Hold {
    permit: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(super) fn new(bytes_max: usize, uncounted_bytes: usize) -> Self {
        Self { units: Arc::new(Semaphore::new(bytes_max / UNIT_BYTES)), uncounted_bytes }
    }

    /// Makes `hold` cover `bytes`, which may be more or fewer than it covers.
    ///
    /// # Errors
    /// `resource_exhausted` when so many are not free; `hold` is as it was then.
    pub(super) fn cover(&self, hold: &mut Hold, bytes: usize) -> Result<(), Refusal> {
        let wanted = if bytes <= self.uncounted_bytes { 0 } else { bytes.div_ceil(UNIT_BYTES) };
        let held = hold.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if wanted <= held {
            // What is split off goes back when it is dropped.
            drop(hold.permit.as_mut().and_then(|permit| permit.split(held - wanted)));
            return Ok(());
        }
        let more = u32::try_from(wanted - held).unwrap_or(u32::MAX);
        let taken = Arc::clone(&self.units).try_acquire_many_owned(more);
        hold.add(taken.map_err(|_| full(bytes))?);
        Ok(())
    }

    /// A hold of `bytes`, waiting at most `wait` for them.
    ///
    /// # Errors
    /// `resource_exhausted` when they are not free by then.
    pub(super) async fn hold(&self, bytes: usize, wait: Duration) -> Result<Hold, Refusal> {
        let mut hold = Hold::default();
        if bytes > self.uncounted_bytes {
            let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
            let taken = timeout(wait, Arc::clone(&self.units).acquire_many_owned(units)).await;
            hold.add(taken.ok().and_then(Result::ok).ok_or_else(|| full(bytes))?);
        }
        Ok(hold)
    }
}

impl Hold {
    fn add(&mut self, taken: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(permit) => permit.merge(taken),
            none => *none = Some(taken),
        }
    }
}

fn full(bytes: usize) -> Refusal {
    let message =
        format!("{bytes} bytes are more than the gateway can hold besides what it holds now: come back in a while");
    Refusal::new(Reason::ResourceExhausted, message).with_retry_after_ms(RETRY_AFTER_MS)
}

/// Bytes that keep their hold for as long as any part of them is there.
pub(super) fn held(bytes: Vec<u8>, hold: Hold) -> Bytes {
    struct Held(Vec<u8>, #[expect(dead_code, reason = "dropped with the bytes")] Hold);

    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    if hold.permit.is_none() { Bytes::from(bytes) } else { Bytes::from_owner(Held(bytes, hold)) }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Hold, held};
    use wire::reason::Reason;

    #[test]
    fn what_is_held_is_bounded_and_given_back() {
        let budget = Budget::new(8 << 10, 1 << 10);
        let (mut first, mut second) = (Hold::default(), Hold::default());
        budget.cover(&mut first, 5 << 10).unwrap();
        let refusal = budget.cover(&mut second, 4 << 10).unwrap_err();
        assert_eq!(refusal.reason, Reason::ResourceExhausted);
        assert!(refusal.details.unwrap().retry_after_ms.is_some());
        budget.cover(&mut first, 4 << 10).unwrap();
        budget.cover(&mut second, 4 << 10).unwrap();
        budget.cover(&mut Hold::default(), 1 << 10).unwrap();
        drop(second);
        budget.cover(&mut first, 8 << 10).unwrap();
        budget.cover(&mut first, 0).unwrap();
        budget.cover(&mut Hold::default(), 8 << 10).unwrap();
    }

    #[test]
    fn bytes_on_their_way_out_keep_their_hold() {
        let budget = Budget::new(4 << 10, 0);
        let mut hold = Hold::default();
        budget.cover(&mut hold, 4 << 10).unwrap();
        let bytes = held(vec![7; 4 << 10], hold);
        let part = bytes.slice(9..10);
        drop(bytes);
        assert!(budget.cover(&mut Hold::default(), 1).is_err());
        drop(part);
        assert!(budget.cover(&mut Hold::default(), 1).is_ok());
    }
}
