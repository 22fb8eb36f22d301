//! A bucket in the store.

use super::*;

fn bucket() -> Bucket {
    let name = BucketName::new("ledger").unwrap();
    let spec = BucketSpec { create_stream_on_append: true, creation_token: "t".into(), ..BucketSpec::named(name) };
    Bucket::made(&spec, BucketId::from_bytes([7; 16]), 1_700_000_000_000)
}

#[test]
fn a_bucket_comes_back_as_it_was() {
    let deleting = Bucket { state: BucketState::Deleting, ..bucket() };
    for bucket in [bucket(), deleting] {
        assert_eq!(Bucket::decode(&bucket.encode()), Ok(bucket));
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let bytes = bucket().encode();
    for at in (0..bytes.len()).filter(|at| !(6..8).contains(at)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(Bucket::decode(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn a_row_of_another_format_is_refused_by_number() {
    let mut bytes = bucket().encode();
    bytes[4] = 9;
    assert_eq!(Bucket::decode(&bytes), Err(BucketDecodeError::Format { found: 9 }));
}

#[test]
fn the_bytes_of_a_bucket_are_golden() {
    assert_eq!(crc32c(&bucket().encode()), GOLDEN, "the layout changed: it needs a new format number");
}

const GOLDEN: u32 = 0xe6478d17;
