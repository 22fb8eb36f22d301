//! What do all requests of S2's clients share: the client, what is bounded, and what is remembered for a while?

use std::sync::Arc;

use client::{Address, BucketName, Client, Error, Reason};
use http::{HeaderMap, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::{Code, Failure, Result};
use super::names;
use super::pending::Pending;
use super::places::{Place, Places};
use crate::surface::Draining;

/// Sessions of each kind that are open at once.
const SESSIONS_MAX: usize = 1_024;
/// Bytes of requests that are held at once, beside those of append sessions.
const BODIES_BYTES_MAX: usize = 128 << 20;
/// Bytes of batches of append sessions that are not acked yet; the next batch waits.
const SESSION_BYTES_MAX: usize = 256 << 20;
/// Bytes of records that a read has under way to it, so that the star reads on while the client takes them; less once so many
/// read sessions are open, so that all of them together stay within 1.2 GiB.
const CREDIT_BYTES: u32 = 4 << 20;
const CREDIT_BYTES_OF_MANY: u32 = 1 << 20;
const MANY_READS: usize = 64;

/// Serves S2's clients over a client of nova.
#[derive(Debug)]
pub(super) struct Facade {
    pub(super) client: Client,
    pub(super) pending: Pending,
    /// Bytes of requests that may still be taken.
    pub(super) bodies: Arc<Semaphore>,
    batches: Arc<Semaphore>,
    appends: Places,
    reads: Places,
    draining: Draining,
}

/// A kind of session.
#[derive(Debug, Clone, Copy)]
pub(super) enum Session {
    Append,
    Read,
}

impl Facade {
    pub(super) fn new(client: Client, draining: Draining) -> Self {
        Self {
            client,
            pending: Pending::default(),
            bodies: Arc::new(Semaphore::new(BODIES_BYTES_MAX)),
            batches: Arc::new(Semaphore::new(SESSION_BYTES_MAX)),
            appends: Places::new(SESSIONS_MAX),
            reads: Places::new(SESSIONS_MAX),
            draining,
        }
    }

    /// True once the façade is about to end.
    pub(super) fn draining(&self) -> Draining {
        self.draining.clone()
    }

    /// A place for a session over this version of HTTP.
    ///
    /// # Errors
    /// As [`Places::take`].
    pub(super) fn place(&self, session: Session, version: Version) -> Result<Place> {
        match session {
            Session::Append => self.appends.take(version),
            Session::Read => self.reads.take(version),
        }
    }

    /// How many bytes of records a read may have under way to it.
    pub(super) fn credit_bytes(&self) -> u32 {
        if self.reads.taken() <= MANY_READS { CREDIT_BYTES } else { CREDIT_BYTES_OF_MANY }
    }

    /// Room for a batch of a session, given back when it is dropped; waits for it.
    pub(super) async fn room(&self, bytes: usize) -> OwnedSemaphorePermit {
        let bytes = u32::try_from(bytes.min(SESSION_BYTES_MAX)).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.batches).acquire_many_owned(bytes).await else {
            unreachable!("it is never closed")
        };
        room
    }

    /// The basin that the header of a request names.
    ///
    /// # Errors
    /// `bad_header`.
    pub(super) fn basin(headers: &HeaderMap) -> Result<BucketName> {
        let bad = |message: String| Failure::new(Code::BadHeader, message);
        let Some(value) = headers.get("s2-basin") else {
            return Err(bad("the header s2-basin is missing: it names the basin of the stream".to_owned()));
        };
        let name = value.to_str().map_err(|_| bad("the header s2-basin is no text".to_owned()))?;
        names::basin(name).map_err(|message| bad(format!("the header s2-basin: {message}")))
    }

    /// The stream of a request.
    ///
    /// # Errors
    /// As [`Facade::basin`].
    pub(super) fn address(headers: &HeaderMap, key: client::Key) -> Result<Address> {
        Ok(Address { bucket: Self::basin(headers)?, key })
    }

    /// Why a call about a stream failed: what is not there is the stream or its basin.
    pub(super) async fn refused(&self, bucket: &BucketName, error: &Error) -> Failure {
        let missing =
            if error.reason() == Reason::NotFound { self.missing(bucket).await } else { Code::StreamNotFound };
        Failure::of(error, missing)
    }

    async fn missing(&self, bucket: &BucketName) -> Code {
        match self.client.get_bucket(bucket).await {
            Err(error) if error.reason() == Reason::NotFound => Code::BasinNotFound,
            _ => Code::StreamNotFound,
        }
    }
}
