//! What must hold of what a server answers, and of records that someone wrote as JSON?

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::bucket::{Bucket, BucketState};
use wire::fuzzing::{Target, mend_entry, with_mended_sums};
use wire::hot::{RECORDS_HEAD_BYTES, RecordsHead};
use wire::ids::SeqNum;
use wire::message::{Appended, StreamInfo};

use crate::json::{
    Ack, BucketForm, BucketsForm, Coding, FailureForm, PageForm, StreamForm, StreamsForm, cursor, of_json, write_json,
    write_page,
};
use crate::page::{Page, decode};
use crate::record::Record;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "json_answers", check: json_answers },
    Target { name: "json_record", check: json_record },
    Target { name: "page", check: page },
];

/// The head and the payload of a page, and how much of it was delivered before.
///
/// Records that are taken are those that were asked for, in order, and come back from JSON as they went in.
///
/// # Panics
/// When that is not so.
pub fn page(bytes: &[u8]) {
    let Some((delivered, frame)) = bytes.split_first() else { return };
    let Some((head, payload)) = frame.split_at_checked(RECORDS_HEAD_BYTES) else { return };
    let Ok(head) = RecordsHead::decode(head) else { return };
    let from = SeqNum::new(head.start.get().saturating_add((delivered % 8).into()));
    with_mended_sums(payload, mend_entries, |payload| check_page(&head, from, payload));
}

fn mend_entries(mut payload: &mut [u8]) {
    while !payload.is_empty() {
        let end = mend_entry(payload).clamp(1, payload.len());
        payload = payload.split_at_mut(end).1;
    }
}

fn check_page(head: &RecordsHead, from: SeqNum, payload: &[u8]) {
    let Ok(page) = decode(head, from, &Bytes::copy_from_slice(payload), None) else { return };
    assert_eq!((page.start, page.end), (from, head.end.max(from)));
    let asked = from..head.end;
    assert!(page.records.iter().all(|record| asked.contains(&record.seq_num)), "only what was asked for: {asked:?}");
    assert!(page.records.is_sorted_by(|left, right| left.seq_num < right.seq_num));
    for coding in [Coding::Base64, Coding::Utf8] {
        let mut out = Vec::new();
        let written = write_page(&page, coding, &mut out);
        if written.is_ok() {
            assert_eq!(page_of(&out, coding).as_ref(), Some(&page));
        }
        assert!(written.is_ok() || coding == Coding::Utf8, "all bytes stand in base64");
    }
}

fn page_of(json: &[u8], coding: Coding) -> Option<Page> {
    serde_json::from_slice::<PageForm<'_>>(json).ok()?.into_page(coding).ok()
}

/// A record as a line of JSON, its bytes as text or in base64.
///
/// One that is taken is the same once it is written and read again.
///
/// # Panics
/// When that is not so.
pub fn json_record(bytes: &[u8]) {
    let Some((coding, line)) = bytes.split_first() else { return };
    let coding = if coding % 2 == 0 { Coding::Utf8 } else { Coding::Base64 };
    let Ok(record) = of_json(line, coding) else { return };
    let (seq_num, timestamp_ms) = (SeqNum::new(7), record.timestamp_ms.unwrap_or_default());
    let read = Record { seq_num, timestamp_ms, headers: record.headers, body: record.body };
    for coding in [coding, Coding::Base64] {
        let mut out = Vec::new();
        write_json(&read, coding, &mut out).expect("what came as text is text");
        let again = of_json(&out, coding).expect("what is written is a record");
        assert_eq!(
            (again.timestamp_ms, again.headers, again.body),
            (Some(timestamp_ms), read.headers.clone(), read.body.clone())
        );
    }
}

/// An answer over HTTP: the first byte says which.
///
/// One that is taken is the same once it is written and read again.
///
/// # Panics
/// When that is not so.
pub fn json_answers(bytes: &[u8]) {
    let Some((which, json)) = bytes.split_first() else { return };
    match which {
        0 => check_form::<BucketForm>(json, |form| {
            let Ok(bucket) = Bucket::try_from(form) else { return };
            let shown = Bucket { state: BucketState::Live, ..bucket.clone() };
            assert_eq!(Bucket::try_from(BucketForm::from(&bucket)), Ok(shown));
        }),
        1 => check_form::<StreamForm>(json, |form| {
            let Ok(stream) = StreamInfo::try_from(form) else { return };
            assert_eq!(StreamInfo::try_from(StreamForm::from(&stream)), Ok(stream));
        }),
        2 => check_form::<Ack>(json, |form| {
            let Ok(appended) = Appended::try_from(form) else { return };
            assert_eq!(Appended::try_from(Ack::from(&appended)), Ok(appended));
        }),
        3 => check_form::<FailureForm>(json, |form| {
            let refusal = form.refusal();
            assert_eq!(FailureForm::new(&refusal, true, false, String::new()).refusal(), refusal);
        }),
        4 => check_form::<BucketsForm>(json, drop),
        5 => check_form::<StreamsForm>(json, |form| {
            let Ok(next) = cursor::read(&form.next.unwrap_or_default()) else { return };
            assert_eq!(cursor::read(&cursor::show(&next)), Ok(next));
        }),
        _ => {
            let coding = if which % 2 == 0 { Coding::Utf8 } else { Coding::Base64 };
            let Some(page) = page_of(json, coding) else { return };
            let mut out = Vec::new();
            write_page(&page, coding, &mut out).expect("what came as text is text");
            assert_eq!(page_of(&out, coding), Some(page));
        }
    }
}

/// A form that is read can be written and read again. Fields that mean nothing may hold a number that comes back in its last digit only.
fn check_form<T: Serialize + DeserializeOwned>(json: &[u8], check: impl Fn(T)) {
    let Ok(form) = serde_json::from_slice::<T>(json) else { return };
    let again = serde_json::to_vec(&form).expect("a form can be written");
    check(form);
    check(serde_json::from_slice(&again).expect("a form that was written can be read"));
}

#[cfg(test)]
mod tests;
