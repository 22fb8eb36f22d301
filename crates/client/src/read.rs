//! Reading a page of a stream.

use std::time::Duration;

use wire::frame::Kind;
use wire::hot::RecordsHead;
use wire::ids::SeqNum;
use wire::message::{Read, Start};
use wire::names::Address;
use wire::reason::Reason;

use crate::client::{Again, Client};
use crate::error::{Error, Result};
use crate::link::framed;
use crate::page::{self, Page};

/// From where to read, and how much.
///
/// ```
/// use client::ReadOptions;
///
/// let from_the_start = ReadOptions::from(0).limit(100);
/// let the_last_ten = ReadOptions::last(10);
/// let since = ReadOptions::from_ms(1_700_000_000_000).until_ms(1_700_000_060_000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// From where.
    pub start: Start,
    /// Most records; 0 is the bound of 1 000, more is clamped to it.
    pub limit: u32,
    /// Most content, in bytes; 0 is the bound of 1 MiB, more is clamped to it. One record is always answered.
    pub max_bytes: u32,
    /// Cuts at the first record stamped at or after it.
    pub until_ms: Option<i64>,
    /// Pulls a start below the trim point or past the tail into range instead of refusing it.
    pub clamp: bool,
}

impl ReadOptions {
    fn at(start: Start) -> Self {
        Self { start, limit: 0, max_bytes: 0, until_ms: None, clamp: false }
    }

    /// From a sequence number.
    #[must_use]
    pub fn from(seq_num: u64) -> Self {
        Self::at(Start::SeqNum(SeqNum::new(seq_num)))
    }

    /// From the first record stamped at or after it.
    #[must_use]
    pub fn from_ms(timestamp_ms: i64) -> Self {
        Self::at(Start::Timestamp(timestamp_ms))
    }

    /// The last so many records.
    #[must_use]
    pub fn last(records: u64) -> Self {
        Self::at(Start::Last(records))
    }

    /// The same with another [`limit`](Self::limit).
    #[must_use]
    pub fn limit(mut self, records: u32) -> Self {
        self.limit = records;
        self
    }

    /// The same with another [`max_bytes`](Self::max_bytes).
    #[must_use]
    pub fn max_bytes(mut self, bytes: u32) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// The same, cut at the first record stamped at or after `timestamp_ms`.
    #[must_use]
    pub fn until_ms(mut self, timestamp_ms: i64) -> Self {
        self.until_ms = Some(timestamp_ms);
        self
    }

    /// The same with the start pulled into range.
    #[must_use]
    pub fn clamp(mut self) -> Self {
        self.clamp = true;
        self
    }
}

impl Default for ReadOptions {
    /// From the first record.
    fn default() -> Self {
        Self::from(0)
    }
}

/// Reads.
impl Client {
    /// Reads a page. No records means caught up, unless `until_ms` cut them; [`Page::end`] is where the next page starts.
    ///
    /// ```no_run
    /// # async fn f(client: client::Client) -> client::Result<()> {
    /// use client::ReadOptions;
    ///
    /// let address = "nova://demo/events".parse()?;
    /// let mut next = 0;
    /// loop {
    ///     let page = client.read(&address, ReadOptions::from(next)).await?;
    ///     for record in &page.records {
    ///         println!("{} {:?}", record.seq_num, record.body);
    ///     }
    ///     if page.records.is_empty() {
    ///         break;
    ///     }
    ///     next = page.end.get();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `not_found`; without `clamp` also `trimmed` (with trim point and tail) and `out_of_range` (with the tail);
    /// `internal` when what came back is damaged.
    pub async fn read(&self, address: &Address, options: ReadOptions) -> Result<Page> {
        if let Some(http) = self.http() {
            return http.read(address, options, Duration::ZERO).await;
        }
        let ReadOptions { start, limit, max_bytes, until_ms, clamp } = options;
        let request = Read { address: address.clone(), start, clamp, limit, max_bytes, until_ms };
        let answer = self.call(Again::Asks, Kind::Page, |correlation| framed(correlation, &request)).await?;
        let damaged = |error: &dyn std::fmt::Display| {
            Error::harmless(Reason::Internal, format!("a page of {address} is damaged: {error}"))
        };
        let head = RecordsHead::decode(&answer.head).map_err(|error| damaged(&error))?;
        page::decode(&head, head.start, &answer.payload, None).map_err(|error| damaged(&error))
    }
}
