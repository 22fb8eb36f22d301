//! What do all requests share?

use std::sync::atomic::{AtomicU64, Ordering};

use client::Client;
use http::HeaderMap;

use super::bounds::{HELD_BYTES_MAX, REQUEST_ID_BYTES_MAX, UNCOUNTED_BYTES};
use super::budget::Budget;
use super::feed::Feeds;
use super::metrics::Counts;
use crate::surface::Draining;

/// What the handlers of all requests share.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) client: Client,
    pub(super) budget: Budget,
    pub(super) feeds: Feeds,
    pub(super) counts: Counts,
    draining: Draining,
    /// Drawn at the start, so that ids of two starts differ.
    request_prefix: u32,
    requests: AtomicU64,
}

impl Gateway {
    pub(super) fn new(client: Client, draining: Draining) -> Self {
        Self {
            feeds: Feeds::new(client.clone()),
            client,
            budget: Budget::new(HELD_BYTES_MAX, UNCOUNTED_BYTES),
            counts: Counts::default(),
            draining,
            // Ids without randomness still differ within one start.
            request_prefix: getrandom::u32().unwrap_or_default(),
            requests: AtomicU64::new(0),
        }
    }

    /// Told when the server is about to stop.
    pub(super) fn draining(&self) -> Draining {
        self.draining.clone()
    }

    /// What logs call a request: what its client calls it if that is fit for a line, else a number of our own.
    pub(super) fn request_id(&self, headers: &HeaderMap) -> String {
        let given = headers.get("x-request-id").and_then(|id| id.to_str().ok());
        let is_fit = |id: &&str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
            !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.chars().all(fits)
        };
        given.filter(is_fit).map_or_else(
            || format!("{:08x}-{}", self.request_prefix, self.requests.fetch_add(1, Ordering::Relaxed)),
            str::to_owned,
        )
    }
}
