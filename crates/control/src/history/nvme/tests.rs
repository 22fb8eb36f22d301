use std::io::{Seek, SeekFrom, Write};
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::core::read_plan::tests::object;

const BLOCK_BYTES: u64 = 10_000;

fn directory() -> TempDir {
    tempfile::Builder::new().prefix("nova-blocks-").tempdir_in("/var/tmp").unwrap()
}

/// A file of three slots.
fn open(directory: &TempDir) -> Nvme {
    let options = NvmeOptions { directory: directory.path().to_owned(), bytes: 3 * 12_288 + 5 };
    Nvme::open(&options, BLOCK_BYTES, Arc::default()).unwrap()
}

fn id(no: u32) -> BlockId {
    (object(9), no)
}

fn block(no: u32) -> Bytes {
    vec![u8::try_from(no).unwrap(); 9000 + no as usize].into()
}

async fn write(nvme: &Nvme, no: u32) {
    nvme.offer(id(no), block(no));
    while !nvme.contains(id(no)) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Spoils a byte of the file.
fn spoil(directory: &TempDir, at: u64) {
    let mut file = OpenOptions::new().write(true).open(directory.path().join(FILE_NAME)).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[0xee]).unwrap();
}

#[tokio::test]
async fn a_block_comes_back_as_it_was_and_never_more_stay_than_fit() {
    let directory = directory();
    let nvme = open(&directory);
    for no in 0..20 {
        write(&nvme, no).await;
        assert_eq!(nvme.get(id(no)).await, Some(block(no)));
    }
    assert_eq!((0..20).filter(|no| nvme.contains(id(*no))).count(), 2);
    assert_eq!(nvme.get(id(0)).await, None);
    assert_eq!(std::fs::metadata(directory.path().join(FILE_NAME)).unwrap().len(), 3 * 12_288);
}

#[tokio::test]
async fn a_slot_that_is_damaged_or_holds_another_block_is_a_miss() {
    let directory = directory();
    let nvme = open(&directory);
    for at in [0, 9, 13, 20, 32, 5000] {
        write(&nvme, 1).await;
        let slot = nvme.disk.slots().taken.get(&id(1)).copied().unwrap();
        spoil(&directory, slot.no * 12_288 + at);
        assert_eq!(nvme.get(id(1)).await, None, "byte {at}");
        assert!(!nvme.contains(id(1)));
    }
    assert_eq!(nvme.disk.counters.nvme_stale.get(), 6);
    write(&nvme, 2).await;
    let slot = nvme.disk.slots().taken.get(&id(2)).copied().unwrap();
    assert_eq!(nvme.disk.read(id(1), slot).unwrap(), None);
    assert_eq!(nvme.disk.read((object(8), 2), slot).unwrap(), None);
    assert_eq!(nvme.disk.read(id(2), slot).unwrap(), Some(block(2)));
}

#[tokio::test]
async fn what_a_file_held_before_the_start_is_forgotten() {
    let directory = directory();
    write(&open(&directory), 1).await;
    let nvme = open(&directory);
    assert_eq!(nvme.get(id(1)).await, None);
    write(&nvme, 1).await;
    nvme.remove(id(1));
    assert_eq!(nvme.get(id(1)).await, None);
}

#[tokio::test]
async fn after_an_error_of_the_device_the_file_is_left_alone() {
    let directory = directory();
    let nvme = open(&directory);
    write(&nvme, 1).await;
    OpenOptions::new().write(true).open(directory.path().join(FILE_NAME)).unwrap().set_len(0).unwrap();
    assert_eq!(nvme.get(id(1)).await, None);
    nvme.offer(id(2), block(2));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!nvme.contains(id(2)) && !nvme.disk.is_usable());
}

#[tokio::test]
async fn a_file_that_can_not_be_made_says_why() {
    let directory = directory();
    let options = |directory: &Path, bytes| NvmeOptions { directory: directory.to_owned(), bytes };
    let small = Nvme::open(&options(directory.path(), 20_000), BLOCK_BYTES, Arc::default()).unwrap_err();
    assert!(matches!(small, NvmeOpenError::Small { bytes_min: 24_576, .. }), "{small}");
    let nowhere = Nvme::open(&options(&directory.path().join("no"), 1 << 20), BLOCK_BYTES, Arc::default()).unwrap_err();
    assert!(nowhere.to_string().contains("no/blocks.cache"), "{nowhere}");
}
