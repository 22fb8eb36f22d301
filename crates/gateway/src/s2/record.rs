//! How do S2's records become nova's, and back?
//!
//! A command is a record whose only header has an empty name; its value says what it commands (`fence`, `trim`), its body
//! to what. nova has no empty names, so it is kept as a record with the one header [`COMMAND`], and its effect goes with the
//! batch. That header is kept for commands: nobody else may write it through the façade.

use bytes::Bytes;
use client::{AppendRecord, Effect, FencingToken, Header, Position, Record, SeqNum};
use wire::limits::RECORD_HEADERS_MAX;

use super::failure::{Failure, Result};
use super::proto;

/// The name of the one header of a command, as nova keeps it.
pub(super) const COMMAND: &[u8] = b"s2-command";
const FENCE: &[u8] = b"fence";
const TRIM: &[u8] = b"trim";

/// Most records of a batch.
pub(super) const BATCH_RECORDS_MAX: usize = 1_000;
/// Most metered bytes of a record, and of a batch.
pub(super) const METERED_BYTES_MAX: usize = 1 << 20;

/// A batch on its way in, checked.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) records: Vec<AppendRecord>,
    pub(super) match_seq_num: Option<SeqNum>,
    /// The token that must be installed, the empty one for none.
    pub(super) fencing_token: Option<FencingToken>,
    commands: Commands,
}

/// What the commands of a batch ask for together.
#[derive(Debug, Default)]
struct Commands {
    /// The last one counts.
    token: Option<FencingToken>,
    /// The highest one counts.
    trim: Option<SeqNum>,
    /// The highest one that other records of the batch stand behind.
    trim_before_others: Option<SeqNum>,
}

impl Input {
    /// What applies with the batch.
    pub(super) fn effect(&self) -> Option<Effect> {
        Effect::of(self.commands.token.clone(), self.commands.trim)
    }

    /// A trim point that must not lie past the tail. S2 trims up to the command itself at most, nova up to the end of the
    /// batch: it is the same unless records stand behind the command and the point lies behind it too.
    pub(super) fn trim_within_tail(&self) -> Option<SeqNum> {
        self.commands.trim_before_others
    }
}

/// A record as either form of S2 has it.
pub(super) struct Parts {
    pub(super) timestamp: Option<u64>,
    pub(super) headers: Vec<Header>,
    pub(super) body: Bytes,
}

/// Checks a batch and finds its commands.
///
/// # Errors
/// `invalid`, with the record and what is wrong with it.
pub(super) fn input(records: Vec<Parts>, match_seq_num: Option<u64>, fencing_token: Option<&str>) -> Result<Input> {
    let count = records.len();
    if count == 0 {
        return Err(Failure::invalid(format!("the batch has 0 records: it must have 1 to {BATCH_RECORDS_MAX}")));
    }
    if count > BATCH_RECORDS_MAX {
        return Err(too_many_records());
    }
    let mut commands = Commands::default();
    let mut taken = Vec::with_capacity(count);
    let mut bytes = 0;
    for (at, record) in records.into_iter().enumerate() {
        bytes += metered(&record.headers, &record.body);
        if bytes > METERED_BYTES_MAX {
            let message = format!("the batch has over {METERED_BYTES_MAX} metered bytes at record {at}");
            return Err(Failure::invalid(message));
        }
        taken.push(commands.take(at, at + 1 == count, record)?);
    }
    let fencing_token = fencing_token.map(FencingToken::new).transpose();
    let fencing_token = fencing_token.map_err(|error| Failure::invalid(error.to_string()))?;
    Ok(Input { records: taken, match_seq_num: match_seq_num.map(SeqNum::new), fencing_token, commands })
}

/// Why a batch is refused; those over the bound are not counted.
pub(super) fn too_many_records() -> Failure {
    Failure::invalid(format!("the batch has over {BATCH_RECORDS_MAX} records: it must have 1 to {BATCH_RECORDS_MAX}"))
}

/// Why the record at this place is refused; those over the bound are not counted.
pub(super) fn too_many_headers(at: usize) -> Failure {
    Failure::invalid(format!("record {at} has over {RECORD_HEADERS_MAX} headers, which is the bound"))
}

impl Commands {
    fn take(&mut self, at: usize, is_last: bool, record: Parts) -> Result<AppendRecord> {
        let wrong = |what: &str| Failure::invalid(format!("record {at} {what}"));
        let Parts { timestamp, mut headers, body } = record;
        let timestamp_ms = timestamp.map(i64::try_from).transpose();
        let timestamp_ms = timestamp_ms.map_err(|_| wrong("has a timestamp of 2^63 or more, which is not kept"))?;
        match &headers[..] {
            [(name, command)] if name.is_empty() => {
                self.command(command, &body, is_last).map_err(|what| wrong(&what))?;
                headers[0].0 = Bytes::from_static(COMMAND);
            }
            [(name, command)] if name == COMMAND && (command == FENCE || command == TRIM) => {
                return Err(wrong("has the header that commands are kept under: give its name another spelling"));
            }
            headers if headers.len() > RECORD_HEADERS_MAX => return Err(too_many_headers(at)),
            headers if headers.iter().any(|(name, _)| name.is_empty()) => {
                return Err(wrong("has a header with an empty name beside others: only a command has one, alone"));
            }
            _ => {}
        }
        Ok(AppendRecord { body, headers, timestamp_ms })
    }

    fn command(&mut self, command: &[u8], body: &[u8], is_last: bool) -> Result<(), String> {
        if command == FENCE {
            let token = FencingToken::from_bytes(body).map_err(|error| format!("fences with a bad token: {error}"))?;
            self.token = Some(token);
        } else if command == TRIM {
            let to: [u8; 8] = body.try_into().map_err(|_| {
                format!("trims with a body of {} bytes: it is a sequence number of 8 bytes", body.len())
            })?;
            let to = Some(SeqNum::new(u64::from_be_bytes(to)));
            self.trim = self.trim.max(to);
            if !is_last {
                self.trim_before_others = self.trim_before_others.max(to);
            }
        } else {
            let name: String = String::from_utf8_lossy(command).chars().take(20).collect();
            return Err(format!(
                "is the command '{}', which is unknown: there are fence and trim",
                name.escape_debug()
            ));
        }
        Ok(())
    }
}

/// What S2 counts a record as, in bytes.
fn metered(headers: &[Header], body: &[u8]) -> usize {
    let content: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    8 + 2 * headers.len() + content + body.len()
}

/// What S2 counts a record of nova as, in bytes.
pub(super) fn metered_record(record: &Record) -> usize {
    let bytes = metered(&record.headers, &record.body);
    if is_command(&record.headers) { bytes - COMMAND.len() } else { bytes }
}

fn is_command(headers: &[Header]) -> bool {
    matches!(headers, [(name, command)] if name == COMMAND && (command == FENCE || command == TRIM))
}

/// The headers as S2 has them.
pub(super) fn headers(record: &Record) -> Vec<Header> {
    let mut headers = record.headers.clone();
    if is_command(&headers) {
        headers[0].0 = Bytes::new();
    }
    headers
}

/// A stamp as S2 has it, where none is below 0.
pub(super) fn timestamp(timestamp_ms: i64) -> u64 {
    u64::try_from(timestamp_ms).unwrap_or_default()
}

impl proto::AppendInput {
    /// The batch, checked.
    ///
    /// # Errors
    /// `invalid`.
    pub(super) fn checked(self) -> Result<Input> {
        let records = self.records.into_iter().map(|record| Parts {
            timestamp: record.timestamp,
            headers: record.headers.into_iter().map(|header| (header.name, header.value)).collect(),
            body: record.body,
        });
        input(records.collect(), self.match_seq_num, self.fencing_token.as_deref())
    }
}

impl From<Position> for proto::StreamPosition {
    fn from(position: Position) -> Self {
        Self { seq_num: position.seq_num.get(), timestamp: timestamp(position.timestamp_ms) }
    }
}

impl From<client::Appended> for proto::AppendAck {
    fn from(appended: client::Appended) -> Self {
        let client::Appended { start, end, tail, .. } = appended;
        Self { start: Some(start.into()), end: Some(end.into()), tail: Some(tail.into()) }
    }
}

impl From<&Record> for proto::SequencedRecord {
    fn from(record: &Record) -> Self {
        let headers = headers(record).into_iter().map(|(name, value)| proto::Header { name, value });
        Self {
            seq_num: record.seq_num.get(),
            timestamp: timestamp(record.timestamp_ms),
            headers: headers.collect(),
            body: record.body.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
