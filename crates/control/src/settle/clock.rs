//! What do the clocks say, and what is noted of them for later runs?
//!
//! `meta/clock`, replaced by compare-and-swap; integers little-endian:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | `NVck` |
//! | 4 | 2 | format, 1 |
//! | 6 | 2 | 1: retention by age was stopped, and nobody has confirmed the time |
//! | 8 | 4 | CRC-32C of the two bytes before, and of those that follow |
//! | 12 | 16 | id of the boot, as the kernel drew it |
//! | 28 | 8 | milliseconds since that boot, when the wall clock was believed last |
//! | 36 | 8 | the wall clock at that moment, milliseconds |

use bytes::Bytes;
use failpoints::{Point, hit};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;
use wire::crc::crc32c;

use super::{SettleError, Settler};
use crate::core::settle_clock::{ClockFault, ClockGuard, ClockLook, Noted};
use crate::shell::unix_ms;
use crate::store::{ObjectName, PutNonce, Span, Store, StoreError, Version};

const MAGIC: &[u8; 4] = b"NVck";
const FORMAT: u16 = 1;
const BYTES: usize = 44;
const FLAG_STOPPED: u16 = 1;

/// How the clocks are noted.
#[derive(Debug)]
pub(super) struct Kept {
    version: Option<Version>,
    noted: Option<(Noted, Instant)>,
}

/// The id of this boot; zero when the kernel does not say.
pub(super) fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    uuid::Uuid::parse_str(text.trim()).map_or([0; 16], uuid::Uuid::into_bytes)
}

/// What the clocks say now.
pub(super) fn look(boot_id: [u8; 16], store: &dyn Store) -> ClockLook {
    let since_boot = clock_gettime(ClockId::Boottime);
    let boot_ms = since_boot.tv_sec * 1000 + since_boot.tv_nsec / 1_000_000;
    ClockLook { boot_id, boot_ms, wall_ms: unix_ms(), store_skew_ms: store.clock_skew_ms() }
}

fn name() -> ObjectName {
    match ObjectName::parse("meta/clock") {
        Ok(name) => name,
        Err(error) => unreachable!("a plain name: {error}"),
    }
}

fn sum(bytes: &[u8]) -> u32 {
    crc32c(&[&bytes[6..8], &bytes[12..]].concat())
}

fn encode(noted: &Noted) -> Bytes {
    let flags = if noted.is_stopped { FLAG_STOPPED } else { 0 };
    let mut out = Vec::with_capacity(BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&noted.boot_id);
    out.extend_from_slice(&noted.boot_ms.to_le_bytes());
    out.extend_from_slice(&noted.wall_ms.to_le_bytes());
    let sum = sum(&out);
    out[8..12].copy_from_slice(&sum.to_le_bytes());
    out.into()
}

fn decode(bytes: &[u8]) -> Result<Noted, ClockFault> {
    let field = |at: usize| bytes.get(at..at + 8).and_then(|bytes| bytes.first_chunk::<8>()).copied();
    let is_sound = bytes.len() == BYTES
        && bytes.starts_with(MAGIC)
        && bytes[4..6] == FORMAT.to_le_bytes()
        && bytes[8..12] == sum(bytes).to_le_bytes();
    let boot_id = bytes.get(12..28).and_then(|bytes| bytes.first_chunk::<16>()).copied();
    match (is_sound, boot_id, field(28), field(36)) {
        (true, Some(boot_id), Some(boot_ms), Some(wall_ms)) => Ok(Noted {
            boot_id,
            boot_ms: i64::from_le_bytes(boot_ms),
            wall_ms: i64::from_le_bytes(wall_ms),
            is_stopped: bytes[6..8] == FLAG_STOPPED.to_le_bytes(),
        }),
        _ => Err(ClockFault::Unreadable),
    }
}

/// What must hold of a note, see [`crate::fuzzing`].
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check(bytes: &[u8]) {
    let Ok(noted) = decode(bytes) else { return };
    assert_eq!(decode(&encode(&noted)), Ok(noted));
}

/// A note to begin with.
#[cfg(test)]
pub(crate) fn sample() -> Bytes {
    encode(&Noted { boot_id: [7; 16], boot_ms: 12_345, wall_ms: -6, is_stopped: true })
}

impl Settler {
    /// Takes a look at the clocks; whether the wall clock is believed.
    pub(super) async fn watch_clock(&self, look: ClockLook) -> Result<bool, SettleError> {
        let mut kept = self.clock.lock().await;
        let fault = match &mut *kept {
            Some(_) => self.guard().as_mut().and_then(|guard| guard.on_look(look)),
            None => {
                let (version, noted) = self.read_clock().await?;
                *kept = Some(Kept { version, noted: None });
                let mut guard = ClockGuard::new(look, noted, self.newest_ms);
                if self.confirms_clock {
                    guard.on_confirm();
                }
                let fault = guard.fault();
                *self.guard() = Some(guard);
                fault
            }
        };
        if let Some(fault) = fault {
            tracing::error!(%fault, "records are not dropped by their age any more until an operator confirms the time with --confirm-clock");
        }
        if let Some(kept) = &mut *kept {
            self.note_clock(kept).await?;
        }
        Ok(self.clock_fault().is_none())
    }

    /// The time that queues go by; `None` when there is none that can be believed.
    pub(super) fn believed_ms(&self, now_ms: i64) -> Option<i64> {
        let guard = self.guard();
        let guard = guard.as_ref()?;
        if guard.fault().is_none() { Some(now_ms) } else { guard.steady_ms() }
    }

    async fn read_clock(&self) -> Result<(Option<Version>, Result<Option<Noted>, ClockFault>), StoreError> {
        match self.store.get(&name(), Span::Whole).await {
            Ok(object) => Ok((Some(object.meta.version), decode(&object.body).map(Some))),
            Err(StoreError::NotFound { .. }) => Ok((None, Ok(None))),
            Err(error) => Err(error),
        }
    }

    /// Notes the clocks every minute or so, and at once when they come to be believed or not to be.
    async fn note_clock(&self, kept: &mut Kept) -> Result<(), SettleError> {
        let Some(noted) = self.guard().as_ref().and_then(ClockGuard::noted) else { return Ok(()) };
        if let Some((before, at)) = &kept.noted {
            let is_recent = at.elapsed() < self.options.clock_every || *before == noted;
            if before.is_stopped == noted.is_stopped && is_recent {
                return Ok(());
            }
        }
        let (name, body, nonce) = (name(), encode(&noted), PutNonce::fresh());
        hit(Point::ClockNote);
        let put = match &kept.version {
            Some(version) => self.store.put_if_match(&name, version, body, nonce).await,
            None => self.store.put_if_absent(&name, body, nonce).await,
        };
        match put {
            Ok(version) => *kept = Kept { version: Some(version), noted: Some((noted, Instant::now())) },
            // An attempt of before whose answer was lost, or another star: the next look puts it over that.
            Err(StoreError::VersionMismatch { .. } | StoreError::AlreadyExists { .. }) => {
                kept.version = Some(self.store.head(&name).await?.version);
            }
            Err(StoreError::NotFound { .. }) => kept.version = None,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_a_changed_bit_is_found() {
        let noted = Noted { boot_id: [7; 16], boot_ms: 12_345, wall_ms: -6, is_stopped: true };
        let bytes = encode(&noted);
        assert_eq!((bytes.len(), decode(&bytes)), (BYTES, Ok(noted)));
        for bit in 0..BYTES * 8 {
            let mut wrong = bytes.to_vec();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&wrong), Err(ClockFault::Unreadable), "bit {bit}");
        }
        assert!(decode(&bytes[..BYTES - 1]).is_err() && decode(&[]).is_err());
    }

    #[test]
    fn the_clock_since_boot_goes_on() {
        let store = crate::store::MemoryStore::new();
        let (one, two) = (look(boot_id(), &store), look(boot_id(), &store));
        assert!(one.boot_id == two.boot_id && one.boot_id != [0; 16]);
        assert!(one.boot_ms > 0 && one.boot_ms <= two.boot_ms && one.wall_ms > 1_600_000_000_000);
    }
}
