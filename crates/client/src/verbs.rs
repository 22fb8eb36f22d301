//! What is done to a stream outside of sessions: one-shot appends, tail, trim and fence.

use bytes::Bytes;
use wire::batch::BatchBuilder;
use wire::frame::Kind;
use wire::ids::{Position, SeqNum};
use wire::message::{
    AppendOnce, Appended, CheckTail, Fence, Fenced, GetToken, Message, Tail, Token, Trim, TrimTo, Trimmed,
};
use wire::names::{Address, FencingToken};
use wire::reason::Reason;
use wire::terms::Terms;

use crate::client::{Again, Client};
use crate::error::{Error, Result};
use crate::http::wire_only;
use crate::record::AppendRecord;

/// What goes with a one-shot append.
#[derive(Debug, Clone, Default)]
pub struct OneShot {
    /// The token presented; empty is not presenting.
    pub fencing_token: FencingToken,
    /// The sequence number that the first record must get.
    pub match_seq_num: Option<SeqNum>,
    /// A random key, not 0, under which the batch is stored once: after an ambiguous failure the same call with the same
    /// key gets the first one's answer, as long as the leader remembers it.
    pub idempotency_key: Option<u128>,
    /// What else the batch asks for; nothing by default.
    pub terms: Terms,
}

/// A client whose one-shot appends present a fencing token; see [`Client::presenting`].
#[derive(Debug, Clone)]
pub struct Presenting {
    client: Client,
    fencing_token: FencingToken,
}

impl Presenting {
    /// As [`Client::append`], presenting the token.
    ///
    /// # Errors
    /// As [`Client::append`]; `fenced_out` when another token is installed, or none.
    pub async fn append<R: Into<AppendRecord>>(
        &self,
        address: &Address,
        records: impl IntoIterator<Item = R>,
    ) -> Result<Appended> {
        let fencing_token = self.fencing_token.clone();
        let with = OneShot { fencing_token, ..OneShot::default() };
        self.client.append_with(address, with, records).await
    }

    /// As [`Client::append_match`], presenting the token.
    ///
    /// # Errors
    /// As [`Client::append_match`]; `fenced_out` when another token is installed, or none.
    pub async fn append_match<R: Into<AppendRecord>>(
        &self,
        address: &Address,
        match_seq_num: SeqNum,
        records: impl IntoIterator<Item = R>,
    ) -> Result<Appended> {
        let fencing_token = self.fencing_token.clone();
        let with = OneShot { fencing_token, match_seq_num: Some(match_seq_num), ..OneShot::default() };
        self.client.append_with(address, with, records).await
    }
}

/// One-shot appends.
impl Client {
    /// Appends records as one batch, outside of any session.
    ///
    /// It is sent at most once: a failure after that with [`Error::no_side_effect`] false may have landed, and a retry may
    /// store the records twice. Check the tail and read the suffix, or use [`OneShot::idempotency_key`].
    ///
    /// ```no_run
    /// # async fn f(client: client::Client) -> client::Result<()> {
    /// let appended = client.append(&"nova://demo/events".parse()?, ["hello", "world"]).await?;
    /// assert_eq!(appended.end.seq_num.since(appended.start.seq_num), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `not_found`, `fenced_out`, `writer_held`, `resource_exhausted`; `invalid` or `too_large` for records that break a
    /// bound; `unavailable` and `deadline_exceeded` when nobody answered.
    pub async fn append<R: Into<AppendRecord>>(
        &self,
        address: &Address,
        records: impl IntoIterator<Item = R>,
    ) -> Result<Appended> {
        self.append_with(address, OneShot::default(), records).await
    }

    /// Appends records as one batch if the first of them gets this sequence number. It is one attempt, so a
    /// `sequence_mismatch` says for certain that nothing was appended, and carries the tail to try at next.
    ///
    /// # Errors
    /// As [`Client::append`], and `sequence_mismatch`.
    pub async fn append_match<R: Into<AppendRecord>>(
        &self,
        address: &Address,
        match_seq_num: SeqNum,
        records: impl IntoIterator<Item = R>,
    ) -> Result<Appended> {
        let with = OneShot { match_seq_num: Some(match_seq_num), ..OneShot::default() };
        self.append_with(address, with, records).await
    }

    /// Appends records as one batch, with all that may go with it.
    ///
    /// # Errors
    /// As [`Client::append`] and [`Client::append_match`].
    pub async fn append_with<R: Into<AppendRecord>>(
        &self,
        address: &Address,
        with: OneShot,
        records: impl IntoIterator<Item = R>,
    ) -> Result<Appended> {
        if let Some(http) = self.http() {
            let records: Vec<AppendRecord> = records.into_iter().map(Into::into).collect();
            halves(with.idempotency_key)?;
            if with.terms != Terms::default() {
                return Err(wire_only("an append on terms"));
            }
            return http.append(address, with, records).await;
        }
        let mut builder = BatchBuilder::new();
        for record in records {
            let record = record.into();
            builder.push(record.timestamp_ms, &record.headers, &record.body)?;
        }
        let mut batch = Vec::new();
        let batch_crc = builder.finish(&mut batch)?;
        let request = AppendOnce {
            address: address.clone(),
            fencing_token: with.fencing_token,
            match_seq_num: with.match_seq_num,
            idempotency: halves(with.idempotency_key)?,
            terms: with.terms,
            batch_crc,
        };
        let frame = |correlation| {
            let mut out = Vec::with_capacity(batch.len() + 1024);
            request.frame_with(correlation, &batch, &mut out);
            Bytes::from(out)
        };
        let answer = self.call(Again::Never, Kind::Appended, frame).await?;
        answer.message().map_err(|broken| Error::ambiguous(Reason::Internal, broken.to_string()))
    }

    /// A view of this client whose one-shot appends present a fencing token. Presenting installs nothing.
    ///
    /// ```no_run
    /// # async fn f(client: client::Client) -> client::Result<()> {
    /// use client::FencingToken;
    ///
    /// let address = "nova://demo/events".parse()?;
    /// client.presenting(FencingToken::new("gen-42")?).append(&address, ["x"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn presenting(&self, fencing_token: FencingToken) -> Presenting {
        Presenting { client: self.clone(), fencing_token }
    }
}

/// An idempotency key as the wire carries it, where 0 stands for none.
fn halves(key: Option<u128>) -> Result<(u64, u64)> {
    let Some(key) = key else { return Ok((0, 0)) };
    if key == 0 {
        return Err(Error::harmless(Reason::Invalid, "the idempotency key 0 stands for none: draw it at random"));
    }
    let bytes = key.to_be_bytes();
    let half = |at: usize| bytes[at..at + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Ok((half(0), half(8)))
}

/// Tail, trim and fence.
impl Client {
    /// The committed tail, strongly consistent: the next sequence number and the last record's stamp; 0 and 0 on a stream
    /// that has had no record. Creates nothing.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn check_tail(&self, address: &Address) -> Result<Position> {
        if let Some(http) = self.http() {
            return http.check_tail(address).await;
        }
        let answer: Tail = self.ask(&CheckTail { address: address.clone() }, Again::Asks).await?;
        Ok(answer.tail)
    }

    /// Makes all records below `to` go away, and answers where the trim point stands then. Backwards is a no-op, past the
    /// tail is the tail.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn trim(&self, address: &Address, to: SeqNum) -> Result<SeqNum> {
        self.trim_to(address, TrimTo::SeqNum(to)).await
    }

    /// As [`Client::trim`], to the first record stamped at or after `from_ms`.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn trim_from(&self, address: &Address, from_ms: i64) -> Result<SeqNum> {
        self.trim_to(address, TrimTo::Timestamp(from_ms)).await
    }

    async fn trim_to(&self, address: &Address, to: TrimTo) -> Result<SeqNum> {
        if let Some(http) = self.http() {
            return http.trim(address, to).await;
        }
        let request = Trim { address: address.clone(), to };
        let answer: Trimmed = self.ask(&request, Again::Idempotent).await?;
        Ok(answer.trim_point)
    }

    /// Installs or rotates the fencing token, or clears it with the empty one. When it answers, every session that
    /// presented another is superseded, and all below the answer's sequence number came in under the token before.
    ///
    /// Takeover is fence, then open; the current token need not be known:
    ///
    /// ```no_run
    /// # async fn f(client: client::Client) -> client::Result<()> {
    /// use client::{FencingToken, ProducerOptions};
    ///
    /// let (address, token) = ("nova://demo/ledger".parse()?, FencingToken::new("gen-42")?);
    /// let boundary = client.fence(&address, &token).await?;
    /// let producer = client.open(&address, ProducerOptions::default().fencing_token(token)).await?;
    /// producer.append_match(boundary.seq_num, ["the first of generation 42"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `not_found`.
    pub async fn fence(&self, address: &Address, fencing_token: &FencingToken) -> Result<Position> {
        if let Some(http) = self.http() {
            return http.fence(address, fencing_token).await;
        }
        let request = Fence { address: address.clone(), fencing_token: fencing_token.clone() };
        let answer: Fenced = self.ask(&request, Again::Never).await?;
        Ok(answer.tail)
    }

    /// The installed fencing token; empty when none is.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn fencing_token(&self, address: &Address) -> Result<FencingToken> {
        if let Some(http) = self.http() {
            return http.fencing_token(address).await;
        }
        let answer: Token = self.ask(&GetToken { address: address.clone() }, Again::Asks).await?;
        Ok(answer.fencing_token)
    }
}

#[cfg(test)]
mod tests;
