//! What does the query of a request ask for?

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::failure::{Code, Failure, Result};

/// Rows of a page when nothing, nothing or too much is asked for.
const ROWS_MAX: usize = 1_000;

/// The parameters of a query, decoded.
#[derive(Debug)]
pub(super) struct Query(BTreeMap<String, String>);

fn bad(message: String) -> Failure {
    Failure::new(Code::BadQuery, message)
}

impl Query {
    /// The parameters of a query, each at most once.
    ///
    /// # Errors
    /// `bad_query`.
    pub(super) fn of(query: Option<&str>) -> Result<Self> {
        let mut found = BTreeMap::new();
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decode = |text: &str| {
                let text = text.replace('+', " ");
                percent_decode_str(&text).decode_utf8().map(std::borrow::Cow::into_owned)
            };
            let (Ok(name), Ok(value)) = (decode(name), decode(value)) else {
                return Err(bad("the query is not UTF-8 once it is decoded".to_owned()));
            };
            if found.contains_key(&name) {
                return Err(bad(format!("'{name}' stands twice in the query")));
            }
            found.insert(name, value);
        }
        Ok(Self(found))
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn value<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.0.get(name) else { return Ok(None) };
        let read = text.parse().map_err(|error| {
            let text: String = text.chars().take(40).flat_map(char::escape_debug).collect();
            bad(format!("'{name}' is '{text}': {error}"))
        });
        read.map(Some)
    }
}

/// Which page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) prefix: String,
    pub(super) start_after: String,
    pub(super) limit: usize,
}

impl Listing {
    /// # Errors
    /// `bad_query`.
    pub(super) fn of(query: &Query) -> Result<Self> {
        let limit = query.value::<usize>("limit")?.filter(|limit| (1..=ROWS_MAX).contains(limit));
        Ok(Self {
            prefix: query.text("prefix").to_owned(),
            start_after: query.text("start_after").to_owned(),
            limit: limit.unwrap_or(ROWS_MAX),
        })
    }

    /// The cursor after which names of this page stand: the last start, or right before the prefix.
    pub(super) fn cursor(&self) -> String {
        if self.start_after >= self.prefix { self.start_after.clone() } else { before(&self.prefix) }
    }

    /// Whether names from this one on are past the page.
    pub(super) fn is_past(&self, name: &str) -> bool {
        name > self.prefix.as_str() && !name.starts_with(&self.prefix)
    }

    /// Whether a name is asked for.
    pub(super) fn takes(&self, name: &str) -> bool {
        name.starts_with(&self.prefix) && name > self.start_after.as_str()
    }
}

/// A page that is being put together.
#[derive(Debug)]
pub(super) struct Rows {
    listing: Listing,
    rows: Vec<Value>,
    has_more: bool,
}

impl Rows {
    pub(super) fn of(listing: Listing) -> Self {
        Self { listing, rows: Vec::new(), has_more: false }
    }

    /// Takes the next row in order, if it is asked for; true once the page is whole.
    pub(super) fn offer(&mut self, name: &str, show: impl FnOnce() -> Value) -> bool {
        if self.listing.is_past(name) {
            return true;
        }
        if !self.listing.takes(name) {
            return false;
        }
        self.has_more = self.rows.len() == self.listing.limit;
        if !self.has_more {
            self.rows.push(show());
        }
        self.has_more
    }

    /// The page, its rows under this name.
    pub(super) fn page(self, what: &str) -> Value {
        json!({ what: self.rows, "has_more": self.has_more })
    }
}

/// A text that is below `prefix` and above about everything else that is.
fn before(prefix: &str) -> String {
    const FILL: usize = 16;
    let Some(last) = prefix.chars().next_back() else { return String::new() };
    let stem = &prefix[..prefix.len() - last.len_utf8()];
    match u32::from(last).checked_sub(1).map(|code| char::from_u32(code).unwrap_or('\u{d7ff}')) {
        Some(lower) if lower != '\0' => format!("{stem}{lower}{}", "\u{10ffff}".repeat(FILL)),
        _ => stem.to_owned(),
    }
}

/// Where a read starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    SeqNum(u64),
    Timestamp(u64),
    /// So many before the tail.
    TailOffset(u64),
}

/// What a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) from: From,
    pub(super) clamp: bool,
    pub(super) count: Option<u64>,
    /// Metered.
    pub(super) bytes: Option<u64>,
    /// Ends before the first record stamped at or after it.
    pub(super) until: Option<u64>,
    /// Between deliveries; without it as long as nothing else bounds the read.
    pub(super) wait: Option<Duration>,
}

impl Reading {
    /// # Errors
    /// `bad_query`; `invalid` for two starts, or one at the end.
    pub(super) fn of(query: &Query) -> Result<Self> {
        let seq_num = query.value("seq_num")?.map(From::SeqNum);
        let timestamp = query.value("timestamp")?.map(From::Timestamp);
        let tail_offset = query.value("tail_offset")?.map(From::TailOffset);
        let mut starts = [seq_num, timestamp, tail_offset].into_iter().flatten();
        let from = starts.next().unwrap_or(From::TailOffset(0));
        if starts.next().is_some() {
            return Err(Failure::invalid("of seq_num, timestamp and tail_offset only one may be given"));
        }
        let until = query.value("until")?;
        if let (From::Timestamp(from), Some(until)) = (from, until)
            && from >= until
        {
            return Err(Failure::invalid(format!(
                "the start at timestamp {from} is not before the end, until {until}"
            )));
        }
        let wait: Option<u32> = query.value("wait")?;
        Ok(Self {
            from,
            clamp: query.value("clamp")?.unwrap_or(false),
            count: query.value("count")?,
            bytes: query.value("bytes")?,
            until,
            wait: wait.map(|secs| Duration::from_secs(secs.into())),
        })
    }

    /// Whether it may wait for records at the tail.
    pub(super) fn may_follow(&self) -> bool {
        let is_bounded = self.count.is_some() || self.bytes.is_some() || self.until.is_some();
        self.wait.map_or(!is_bounded, |wait| !wait.is_zero() || !is_bounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(query: &str) -> Result<Reading> {
        Reading::of(&Query::of(Some(query))?)
    }

    fn code(refused: Result<Reading>) -> Code {
        let Err(Failure::Coded { code, .. }) = refused else { panic!("{refused:?}") };
        code
    }

    #[test]
    fn a_read_starts_at_the_tail_unless_it_says_where() {
        assert_eq!(reading("").unwrap().from, From::TailOffset(0));
        assert_eq!(reading("seq_num=18446744073709551615").unwrap().from, From::SeqNum(u64::MAX));
        assert_eq!(reading("timestamp=3&until=4").unwrap().until, Some(4));
        assert_eq!(code(reading("seq_num=1&tail_offset=1")), Code::Invalid);
        assert_eq!(code(reading("timestamp=4&until=4")), Code::Invalid);
        for query in ["seq_num=-1", "count=x", "clamp=1", "wait=99999999999", "count=1&count=2", "%ff=1"] {
            assert_eq!(code(reading(query)), Code::BadQuery, "{query}");
        }
    }

    #[test]
    fn an_unbounded_read_waits_and_a_bounded_one_when_it_is_told_to() {
        for (query, follows) in
            [("", true), ("count=1", false), ("until=9", false), ("count=1&wait=1", true), ("bytes=0&wait=0", false)]
        {
            assert_eq!(reading(query).unwrap().may_follow(), follows, "{query}");
        }
    }

    #[test]
    fn a_page_has_up_to_a_thousand_rows_whatever_is_asked_for() {
        let listing = |query| Listing::of(&Query::of(Some(query)).unwrap()).unwrap();
        for (query, limit) in [("", 1000), ("limit=0", 1000), ("limit=5000", 1000), ("limit=3", 3)] {
            assert_eq!(listing(query).limit, limit, "{query}");
        }
        let page = listing("prefix=b%2Fc&start_after=b");
        assert_eq!(page.prefix, "b/c");
        assert!(page.takes("b/c") && page.takes("b/cd") && !page.takes("b/d"));
        assert!(page.is_past("b/d") && !page.is_past("b/b") && !page.is_past("b/cz"));
        assert!(page.cursor() < page.prefix && page.cursor().as_str() > "b/bzzz");
        assert_eq!(listing("prefix=a&start_after=b+c").cursor(), "b c");
        assert_eq!(before("\u{1}"), "");
        assert!(before("\u{e000}").as_str() < "\u{e000}");
    }
}
