use std::fs;
use std::path::Path;

use express_log::{Backfill, Recovery};
use wire::entry::Entry;
use wire::ids::{LogId, Lsn, StreamId};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use crate::star::tests::harness::{data, recover, serve};
use crate::{HeadLogs, RecoveredStar, Settled, StartError};

/// A store that holds a log up to an entry, and the rows of its index.
#[derive(Debug, Default)]
struct Store {
    upto: Lsn,
    rows: Option<Vec<StreamRow>>,
    asked: Vec<(Slot, StreamId)>,
}

impl Store {
    /// What the store has once the first entries of log 0 are settled.
    fn with_settled(data: &Path, upto: Lsn) -> Self {
        let dir = data.join("log/0");
        let log = Recovery::open(&dir).unwrap().log_id().unwrap();
        let mut rows: Vec<StreamRow> = Vec::new();
        let mut fold = |entry: express_log::ReplayedEntry<'_>| {
            let (entry, _) = Entry::decode(entry.bytes).unwrap();
            let place = entry.place();
            match (rows.iter_mut().find(|row| row.stream_id == place.stream_id), &entry) {
                (Some(row), _) => drop(row.apply(&entry, 27).unwrap()),
                (None, Entry::Verb { verb, .. }) => rows.push(StreamRow::created(place, verb).unwrap()),
                (None, _) => panic!("no creation"),
            }
        };
        let next = Backfill::open(&dir, log).unwrap().read(Lsn::new(1), upto, usize::MAX, &mut fold).unwrap();
        assert_eq!(next, upto.next());
        Self { upto, rows: Some(rows), asked: Vec::new() }
    }

    fn recover(&mut self, data: &Path) -> Result<RecoveredStar, StartError> {
        let logs = HeadLogs::open(data, 1).unwrap();
        let epoch = logs.facts()[0].last_epoch.next();
        logs.recover(epoch, self, |_| ())
    }
}

impl Settled for Store {
    fn upto(&self, _log: LogId) -> Lsn {
        self.upto
    }

    fn rows(&mut self, streams: &[(Slot, StreamId)]) -> Result<Vec<StreamRow>, Refusal> {
        self.asked.extend(streams);
        let rows = self.rows.as_ref().ok_or_else(|| Refusal::new(Reason::Unavailable, "no index"))?;
        let wanted = |row: &&StreamRow| streams.contains(&(row.slot(), row.stream_id));
        Ok(rows.iter().filter(wanted).cloned().collect())
    }
}

fn star_with_records(data: &Path) {
    let star = serve(data, 1);
    let mut client = star.client();
    let session = client.open("orders").session;
    for no in 0..20 {
        client.append(session, no..no + 1, b"a body that is easy to find");
    }
    star.stop();
}

/// Flips a bit of the first such bytes in a segment of log 0.
fn flip(data: &Path, bytes: &[u8]) {
    let files = fs::read_dir(data.join("log/0")).unwrap().map(|file| file.unwrap().path());
    for path in files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("seg-")) {
        let mut content = fs::read(&path).unwrap();
        if let Some(at) = content.windows(bytes.len()).position(|window| window == bytes) {
            content[at] ^= 1;
            return fs::write(&path, content).unwrap();
        }
    }
    panic!("the bytes are in no segment");
}

#[test]
fn a_flipped_bit_among_acked_records_is_told_and_never_skipped() {
    let data = data();
    star_with_records(data.path());
    flip(data.path(), b"a body that is easy to find");
    let error = recover(data.path(), 1).unwrap_err();
    assert!(matches!(&error, StartError::Corrupt { damages, .. } if !damages.is_empty()), "{error}");
    let sentence = error.to_string();
    for part in ["log/0", "segment 0", "offset", "lsn", "put back an intact copy"] {
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn every_log_that_is_found_is_recovered_and_the_epoch_is_above_them_all() {
    let data = data();
    star_with_records(data.path());
    let first = recover(data.path(), 3).unwrap();
    assert_eq!((first.logs.len(), first.streams.len(), first.progress().streams), (3, 3, 1));
    assert_eq!(first.progress().entries, 21, "a creation and 20 batches");
    assert!(first.epoch() > wire::ids::Epoch::new(1));
    let in_use = recover(data.path(), 3).unwrap_err();
    assert!(in_use.to_string().contains("in use"), "{in_use}");
}

#[test]
fn a_stream_that_was_made_in_what_is_settled_goes_on_from_its_row() {
    let data = data();
    star_with_records(data.path());
    let whole = recover(data.path(), 1).unwrap();
    let bucket = whole.streams[0].bucket_id(0);
    let (tail, rev, extents) = {
        let row = whole.streams[0].after(bucket, "").next().unwrap();
        (row.tail, row.rev, row.extents.clone())
    };
    // It holds the logs.
    drop(whole);
    let mut store = Store::with_settled(data.path(), Lsn::new(8));
    let recovered = store.recover(data.path()).unwrap();
    assert_eq!(
        (recovered.progress().entries, recovered.progress().streams),
        (13, 1),
        "what is settled is not read again"
    );
    let row = recovered.streams[0].after(bucket, "").next().unwrap();
    assert_eq!((row.tail, row.rev), (tail, rev));
    assert!(row.is_history(wire::ids::SeqNum::new(6)) && !row.is_history(wire::ids::SeqNum::new(7)));
    assert_eq!(row.extents.last().unwrap().end_offset(), extents.last().unwrap().end_offset());
    assert_eq!(store.asked, [(row.slot, row.stream_id)], "once");
}

#[test]
fn what_is_all_settled_asks_for_no_rows() {
    let data = data();
    star_with_records(data.path());
    let mut store = Store::with_settled(data.path(), Lsn::new(21));
    let recovered = store.recover(data.path()).unwrap();
    assert_eq!((recovered.progress().entries, recovered.progress().streams), (0, 0));
    assert_eq!(store.asked, []);
}

#[test]
fn a_log_that_ends_before_what_the_store_holds_of_it_is_refused() {
    let data = data();
    star_with_records(data.path());
    let mut store = Store { upto: Lsn::new(22), rows: Some(Vec::new()), ..Store::default() };
    let error = store.recover(data.path()).unwrap_err();
    assert_eq!(error.lost_log(), Some(data.path().join("log/0").as_path()));
    let sentence = error.to_string();
    for part in ["log/0", "ends at lsn 22", "up to lsn 22", "--accept-loss"] {
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn without_the_row_or_the_index_a_star_does_not_start() {
    let data = data();
    star_with_records(data.path());
    let mut store = Store { upto: Lsn::new(8), rows: Some(Vec::new()), ..Store::default() };
    let error = store.recover(data.path()).unwrap_err();
    assert!(error.to_string().contains("without the stream's creation"), "{error}");
    let error = Store { rows: None, ..store }.recover(data.path()).unwrap_err();
    assert_eq!((error.reason(), error.lost_log()), (Reason::Unavailable, None));
}
