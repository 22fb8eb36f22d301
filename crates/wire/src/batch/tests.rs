//! Batches survive the way, and nothing else passes for one.

use proptest::prelude::*;

use super::*;

type Owned = (Option<i64>, Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>);

fn encode(records: &[Owned]) -> (Vec<u8>, u32) {
    let mut builder = BatchBuilder::new();
    for (stamp, headers, body) in records {
        builder.push(*stamp, headers, body).unwrap();
    }
    let mut out = Vec::new();
    let crc = builder.finish(&mut out).unwrap();
    (out, crc)
}

fn decode(bytes: &[u8], crc: u32) -> Result<Vec<Owned>, BatchError> {
    let batch = VerifiedBatch::verify(bytes, crc)?;
    Ok(batch
        .iter()
        .map(|r| {
            let headers = r.headers().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
            (r.timestamp_ms, headers, r.body.to_vec())
        })
        .collect())
}

fn records() -> impl Strategy<Value = Vec<Owned>> {
    let bytes = |min| prop::collection::vec(any::<u8>(), min..40);
    let headers = prop::collection::vec((bytes(1), bytes(0)), 0..4);
    let stamp = prop::option::of((i64::MIN + 1)..);
    prop::collection::vec((stamp, headers, bytes(0)), 1..30)
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(records in records()) {
        let (bytes, crc) = encode(&records);
        prop_assert_eq!(decode(&bytes, crc).unwrap(), records);
    }

    #[test]
    fn a_changed_byte_is_found(records in records(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let (mut bytes, crc) = encode(&records);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(matches!(decode(&bytes, crc), Err(BatchError::Checksum { .. })), "byte {}", at);
    }

    #[test]
    fn a_well_summed_mutation_is_walked_or_refused_and_never_more(
        records in records(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (mut bytes, _) = encode(&records);
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let crc = crc32c(&bytes);
        let _ = decode(&bytes, crc);
    }

    #[test]
    fn any_bytes_are_walked_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let crc = crc32c(&bytes);
        let _ = decode(&bytes, crc);
    }
}

#[test]
fn every_bound_refuses_and_leaves_the_builder_as_it_was() {
    const NONE: &[(&str, &str)] = &[];
    let mut builder = BatchBuilder::new();
    let mib = vec![0; 1 << 20];
    let over = vec![0; (1 << 20) + 1];
    assert_eq!(builder.push(None, NONE, &over), Err(BatchError::RecordContent { record: 0, bytes: (1 << 20) + 1 }));
    assert_eq!(builder.push(None, &[("", "v")], b""), Err(BatchError::EmptyHeaderName { record: 0 }));
    assert_eq!(builder.push(None, &[("n", "v"); 101], b""), Err(BatchError::Headers { record: 0, headers: 101 }));
    assert_eq!(builder.push(Some(i64::MIN), NONE, b""), Err(BatchError::Stamp { record: 0 }));
    assert_eq!(builder.finish(&mut Vec::new()), Err(BatchError::Records { records: 0 }));
    builder.push(None, NONE, &mib).unwrap();
    assert_eq!(builder.push(None, NONE, b"x"), Err(BatchError::Content { bytes: (1 << 20) + 1 }));
    let mut out = Vec::new();
    let crc = builder.finish(&mut out).unwrap();
    assert_eq!(VerifiedBatch::verify(&out, crc).unwrap().content_bytes(), 1 << 20);
    for _ in 0..1000 {
        builder.push(None, NONE, b"").unwrap();
    }
    assert_eq!(builder.push(None, NONE, b""), Err(BatchError::Records { records: 1001 }));
}

#[test]
fn the_largest_batch_there_is_fits_its_bound() {
    let mut builder = BatchBuilder::new();
    for record in 0..1000 {
        let body = vec![0; if record < 500 { 848 } else { 849 }];
        builder.push(Some(1), &[("a", "b"); 100], &body).unwrap();
    }
    let mut out = Vec::new();
    let crc = builder.finish(&mut out).unwrap();
    assert!(out.len() <= BATCH_BYTES_MAX, "{}", out.len());
    assert_eq!(VerifiedBatch::verify(&out, crc).unwrap().records(), 1000);
}

#[test]
fn the_bytes_of_a_batch_are_golden() {
    let records = [(Some(5), vec![(b"n".to_vec(), b"v".to_vec())], b"one".to_vec()), (None, vec![], b"two".to_vec())];
    let (bytes, crc) = encode(&records);
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!((hex.as_str(), crc), (GOLDEN, GOLDEN_CRC), "the layout changed: it needs a new wire version");
}

const GOLDEN: &str = "050000000800000005000000000000000000000000000080010001000000010000006e766f6e6574776fd6ffffff02000000d6ffffff02000000deffffff02000000d8ffffff02000000d8ffffff08000000";
const GOLDEN_CRC: u32 = 0x522c7189;
