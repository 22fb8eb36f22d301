//! Is what came back what was acked: all of it, in order, once?

use std::collections::BTreeMap;

use client::{Address, Client, ReadOptions, Record};

/// Which writer wrote a record, and as its how manieth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    /// The writer.
    pub writer: u32,
    /// Counts up from 0.
    pub index: u64,
}

impl Tag {
    /// The body of its record, padded to `bytes` at least.
    #[must_use]
    pub fn body(self, bytes: usize) -> String {
        let Self { writer, index } = self;
        let mut body = format!("{writer}:{index}:");
        // A width in a format goes up to 65 535 alone.
        body.extend(std::iter::repeat_n('.', bytes.saturating_sub(body.len())));
        body
    }

    /// The tag of a record.
    ///
    /// # Panics
    /// When it was written by nobody that is tested.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let text = std::str::from_utf8(&record.body).expect("text");
        let mut parts = text.split(':');
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (Some(writer), Some(index)) = (number(), number()) else { panic!("a foreign record: {text}") };
        Self { writer: u32::try_from(writer).expect("a writer"), index }
    }
}

/// What one writer knows: where each record that was acked must stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acked(BTreeMap<u64, u64>);

impl Acked {
    /// The record of this index was acked at this sequence number.
    ///
    /// # Panics
    /// When it was acked elsewhere before.
    pub fn add(&mut self, index: u64, seq_num: u64) {
        let before = self.0.insert(index, seq_num);
        assert!(before.is_none_or(|before| before == seq_num), "record {index} was acked at {before:?} and {seq_num}");
    }

    /// How many were acked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that were acked at this sequence number or after it: what a trim has left.
    #[must_use]
    pub fn since(&self, seq_num: u64) -> Self {
        Self(self.0.iter().filter(|(_, at)| **at >= seq_num).map(|(index, at)| (*index, *at)).collect())
    }

    /// Forgets those before this sequence number: they are trimmed.
    pub fn forget_before(&mut self, seq_num: u64) {
        self.0.retain(|_, at| *at >= seq_num);
    }

    /// Where the last one stands.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        self.0.values().copied().max()
    }

    /// Holds a whole stream against what `writer` was told: each acked record stands where it was acked, no record stands
    /// there twice, and the writer's records stand in the order in which it wrote them.
    ///
    /// # Panics
    /// When one of that is not so.
    pub fn check(&self, writer: u32, records: &[Record]) {
        check_dense(records);
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last = None;
        for record in records {
            let tag = Tag::of(record);
            if tag.writer != writer {
                continue;
            }
            let seq_num = record.seq_num.get();
            assert!(last < Some(tag.index), "{writer}:{} at {seq_num} comes after {last:?}", tag.index);
            last = Some(tag.index);
            found.insert(tag.index, seq_num);
        }
        for (index, seq_num) in &self.0 {
            assert_eq!(found.get(index), Some(seq_num), "acked record {writer}:{index}");
        }
    }
}

/// Reads a whole stream, a page at a time; what is trimmed meanwhile is left out.
///
/// # Panics
/// When a page doesn't come.
pub async fn read_all(client: &Client, address: &Address) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut options = ReadOptions::from(0).clamp();
    loop {
        let page = match client.read(address, options).await {
            Ok(page) => page,
            Err(error) => {
                let left = error.trim_point().unwrap_or_else(|| panic!("a page: {error:?}"));
                records.clear();
                options = ReadOptions::from(left.get()).clamp();
                continue;
            }
        };
        if page.records.is_empty() {
            return records;
        }
        options = ReadOptions::from(page.end.get()).clamp();
        records.extend(page.records);
    }
}

/// Sequence numbers are dense, and stamps never fall.
///
/// # Panics
/// When it is not so.
pub fn check_dense(records: &[Record]) {
    for pair in records.windows(2) {
        let (seq_num, next) = (pair[0].seq_num.get(), pair[1].seq_num.get());
        assert_eq!(next, seq_num + 1, "after {seq_num}");
        assert!(pair[0].timestamp_ms <= pair[1].timestamp_ms, "the stamp falls at {next}");
    }
}
