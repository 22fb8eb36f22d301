use std::fs;
use std::path::Path;

use crate::StartError;
use crate::star::tests::harness::{data, serve};

use super::recover;

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
    let error = recover(data.path(), 1, |_| ()).unwrap_err();
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
    let first = recover(data.path(), 3, |_| ()).unwrap();
    assert_eq!((first.logs.len(), first.streams.len(), first.progress().streams), (3, 3, 1));
    assert_eq!(first.progress().entries, 21, "a creation and 20 batches");
    assert!(first.epoch() > wire::ids::Epoch::new(1));
    let in_use = recover(data.path(), 3, |_| ()).unwrap_err();
    assert!(in_use.to_string().contains("in use"), "{in_use}");
}
