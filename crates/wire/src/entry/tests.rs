//! Entries, whole and broken.

use proptest::prelude::*;

use super::*;
use crate::batch::BatchBuilder;
use crate::ids::BucketId;
use crate::names::{FencingToken, Key};

fn place() -> Place {
    Place {
        stream_id: StreamId::from_bytes([3; 16]),
        slot: Slot::default(),
        slot_epoch: Epoch::new(4),
        rev: Rev::new(5),
    }
}

fn head(batch_crc: u32) -> BatchHead {
    BatchHead {
        place: place(),
        first: SeqNum::new(100),
        records: 2,
        stamping: Stamping { arrival_ms: 1000, previous_ms: 900, capped: true, client_stamps: true },
        last_ms: 1000,
        numbered: Numbered { producer: ProducerId::new(7), no: BatchNo::new(8), one_shot: false },
        session_epoch: 9,
        batch_crc,
    }
}

fn batch() -> (Vec<u8>, u32) {
    let mut builder = BatchBuilder::new();
    builder.push::<&str, &str>(Some(950), &[], b"one").unwrap();
    builder.push::<&str, &str>(Some(2000), &[], b"two").unwrap();
    let mut out = Vec::new();
    let crc = builder.finish(&mut out).unwrap();
    (out, crc)
}

pub(crate) fn entries() -> Vec<Vec<u8>> {
    let (bytes, crc) = batch();
    let mut plain = vec![0; batch_entry_bytes(bytes.len())];
    encode_batch(&head(crc), &bytes, &mut plain);
    let token = FencingToken::new("gen-42").unwrap();
    let key = Key::new("orders/eu").unwrap();
    let verbs = [
        Verb::Create { bucket: BucketId::from_bytes([1; 16]), key, config: StreamConfig::default(), created_at_ms: 77 },
        Verb::Fence { token: token.clone() },
        Verb::Trim { to: SeqNum::new(12) },
        Verb::Reconfigure { config: StreamConfig::default() },
        Verb::Delete,
        Verb::Gap { from: SeqNum::new(1), to: SeqNum::new(1 << 33) },
    ];
    let mut all = vec![
        plain,
        encode_batch_with(&head(crc), &bytes, &Effect::InstallToken(token.clone())),
        encode_batch_with(&head(crc), &bytes, &Effect::Trim(SeqNum::new(3))),
        encode_batch_with(&head(crc), &bytes, &Effect::Both(token, SeqNum::new(3))),
    ];
    all.extend(verbs.iter().map(|verb| verb.encode(place())));
    all
}

#[test]
fn every_entry_comes_back_as_it_was() {
    let (bytes, crc) = batch();
    for encoded in entries() {
        let (entry, entry_bytes) = Entry::decode(&encoded).unwrap();
        assert_eq!((entry_bytes, entry.place()), (encoded.len(), place()));
        let again = match entry {
            Entry::Batch { head: found, batch, effect } => {
                assert_eq!((found, batch), (head(crc), &bytes[..]));
                match effect {
                    Some(effect) => encode_batch_with(&found, batch, &effect),
                    None => {
                        let mut out = vec![0; batch_entry_bytes(batch.len())];
                        encode_batch(&found, batch, &mut out);
                        out
                    }
                }
            }
            Entry::Verb { place, verb } => verb.encode(place),
        };
        assert_eq!(again, encoded);
    }
}

#[test]
fn a_flipped_bit_is_found_in_every_part() {
    for encoded in entries() {
        for at in 0..encoded.len() {
            let mut damaged = encoded.clone();
            damaged[at] ^= 0x10;
            let found = match Entry::decode(&damaged) {
                Err(_) => true,
                Ok((Entry::Batch { head, batch, .. }, _)) => VerifiedBatch::verify(batch, head.batch_crc).is_err(),
                Ok((Entry::Verb { .. }, _)) => false,
            };
            assert!(found, "byte {at} of {encoded:?}");
        }
    }
}

#[test]
fn the_slot_of_an_entry_comes_back_and_one_too_high_is_refused() {
    let place = Place { slot: Slot::new(63).unwrap(), ..place() };
    let (bytes, crc) = batch();
    let mut plain = vec![0; batch_entry_bytes(bytes.len())];
    encode_batch(&BatchHead { place, ..head(crc) }, &bytes, &mut plain);
    let mut verb = Verb::Delete.encode(place);
    for encoded in [&plain, &verb] {
        assert_eq!(Entry::decode(encoded).unwrap().0.place(), place);
    }
    put_u16(&mut plain, BATCH_SLOT_AT, 64);
    let sum = crc32c(&plain[..108]);
    put_u32(&mut plain, 108, sum);
    put_u16(&mut verb, VERB_SLOT_AT, 256);
    let end = verb.len() - SUM_BYTES;
    let sum = crc32c(&verb[..end]);
    put_u32(&mut verb, end, sum);
    for (encoded, found) in [(plain, 64), (verb, 256)] {
        assert_eq!(Entry::decode(&encoded), Err(EntryError::Slot { found }));
        assert_eq!(peek(&encoded), Err(EntryError::Slot { found }));
    }
}

#[test]
fn flags_of_a_later_build_are_refused_though_the_sums_hold() {
    for mut encoded in entries() {
        encoded[1] |= 0x40;
        let summed = if encoded[0] == KIND_BATCH { 108 } else { encoded.len() - SUM_BYTES };
        let sum = crc32c(&encoded[..summed]);
        put_u32(&mut encoded, summed, sum);
        let refused = EntryError::Flags { found: encoded[1] };
        assert_eq!((Entry::decode(&encoded), peek(&encoded)), (Err(refused.clone()), Err(refused)));
    }
}

#[test]
fn a_batch_of_no_record_is_no_entry() {
    let (bytes, crc) = batch();
    let mut encoded = vec![0; batch_entry_bytes(bytes.len())];
    encode_batch(&BatchHead { records: 0, ..head(crc) }, &bytes, &mut encoded);
    let refused = EntryError::Length { what: "a batch of no record" };
    assert_eq!((Entry::decode(&encoded), peek(&encoded)), (Err(refused.clone()), Err(refused)));
}

#[test]
fn a_peek_tells_what_a_decode_tells_of_the_head() {
    for encoded in entries() {
        let found = peek(&[&encoded[..], b"behind"].concat()).unwrap();
        let records = match Entry::decode(&encoded).unwrap().0 {
            Entry::Batch { head, .. } => Some(PeekedRecords {
                first: head.first,
                records: head.records,
                last_ms: head.last_ms,
                arrival_ms: head.stamping.arrival_ms,
            }),
            Entry::Verb { .. } => None,
        };
        assert_eq!(found, Peek { place: place(), entry_bytes: encoded.len(), records });
        for at in 0..44 {
            let mut damaged = encoded.clone();
            damaged[at] ^= 0x10;
            assert!(peek(&damaged).is_err(), "byte {at}");
        }
    }
}

#[test]
fn sequence_numbers_past_the_last_one_are_refused() {
    let (bytes, crc) = batch();
    let mut plain = vec![0; batch_entry_bytes(bytes.len())];
    encode_batch(&BatchHead { first: SeqNum::new(u64::MAX - 1), ..head(crc) }, &bytes, &mut plain);
    let wrong = EntryError::Length { what: "its sequence numbers" };
    assert_eq!((Entry::decode(&plain), peek(&plain)), (Err(wrong.clone()), Err(wrong)));
}

#[test]
fn a_rev_that_none_can_follow_is_refused_and_so_is_a_gap_that_goes_backwards() {
    let last = Place { rev: Rev::new(u64::MAX), ..place() };
    let (bytes, crc) = batch();
    let mut plain = vec![0; batch_entry_bytes(bytes.len())];
    encode_batch(&BatchHead { place: last, ..head(crc) }, &bytes, &mut plain);
    for encoded in [plain, Verb::Delete.encode(last)] {
        let wrong = EntryError::Rev { found: u64::MAX };
        assert_eq!((Entry::decode(&encoded), peek(&encoded)), (Err(wrong.clone()), Err(wrong)));
    }
    let gap = |from, to| Verb::Gap { from: SeqNum::new(from), to: SeqNum::new(to) }.encode(place());
    assert!(Entry::decode(&gap(5, 5)).is_ok());
    assert_eq!(Entry::decode(&gap(5, 4)), Err(EntryError::Gap { from: 5, to: 4 }));
}

#[test]
fn stamps_never_fall_and_are_capped_at_arrival() {
    let (bytes, crc) = batch();
    let batch = VerifiedBatch::verify(&bytes, crc).unwrap();
    let stamping = head(crc).stamping;
    assert_eq!(stamping.last(&batch), 1000, "2000 is capped at the arrival");
    assert_eq!(Stamping { capped: false, ..stamping }.last(&batch), 2000);
    assert_eq!(Stamping { client_stamps: false, ..stamping }.last(&batch), 1000);
    assert_eq!(Stamping { previous_ms: 5000, ..stamping }.last(&batch), 5000, "raised to its predecessor's");
}

#[test]
fn the_bytes_of_entries_are_golden() {
    let sums: Vec<u32> = entries().iter().map(|entry| crc32c(&entry[..entry.len() - SUM_BYTES])).collect();
    assert_eq!(sums, GOLDEN, "a layout changed: it needs a new format");
}

const GOLDEN: [u32; 10] = [
    3623421680, 3146938410, 2648069908, 537777657, 2197580571, 2329441479, 847354824, 951964731, 680299220, 4228707683,
];

proptest! {
    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = (Entry::decode(&bytes), peek(&bytes));
    }

    #[test]
    fn a_mutated_entry_is_judged(which in 0..10usize, edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)) {
        let mut bytes = entries().swap_remove(which);
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = Entry::decode(&bytes);
    }
}
