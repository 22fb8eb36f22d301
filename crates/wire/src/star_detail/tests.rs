//! Details of stars, whole and broken.

use proptest::prelude::*;

use super::*;

const US: Duration = Duration::from_micros(1);

fn times(all: &[(Duration, u64)]) -> Histogram {
    let mut times = Histogram::default();
    all.iter().for_each(|(took, count)| times.note(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), *count));
    times
}

fn detail() -> StarDetail {
    let timing = |shard, operation, phase, times| Timing { shard, operation, phase, times };
    StarDetail {
        timings: vec![
            timing(0, Operation::Append, Phase::Queue, Histogram::default()),
            timing(1, Operation::Open, Phase::Reply, times(&[(3 * US, 2), (Duration::from_secs(60), 1)])),
        ],
        heaviest: vec![HeavyStream {
            shard: 1,
            bucket: BucketName::new("shop").unwrap(),
            key: Key::new("orders/eu \"1\"").unwrap(),
            bytes_per_s: 1_000,
        }],
        stood_still: vec![StoodStill { shard: 1, task: "mail".to_owned() }],
    }
}

/// The same bytes with a sum that holds.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_detail_comes_back_as_it_was() {
    assert_eq!(StarDetail::from_bytes(&detail().to_bytes()), Ok(detail()));
    assert_eq!(StarDetail::from_bytes(&StarDetail::default().to_bytes()), Ok(StarDetail::default()));
    assert_eq!(StarDetail::from_bytes(&[]), Ok(StarDetail::default()), "a star that tells nothing");
}

#[test]
fn the_bytes_of_a_detail_are_golden() {
    let hex: String = detail().to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN.concat(), "the layout changed: it needs a new version");
}

const GOLDEN: [&str; 9] = [
    "921e92bf",
    "01",
    "0200",
    "000000000000000000000000000000000000000000",
    "01000c05706f47f80d000000000000000000000002020200000000000000190100000000000000",
    "0100",
    "0100e803000000000000040073686f700d006f72646572732f657520223122",
    "0100",
    "010004006d61696c",
];

#[test]
fn what_a_later_star_tells_is_left_out() {
    let mut bytes = detail().to_bytes();
    bytes[4] = 2;
    assert_eq!(StarDetail::from_bytes(&summed(bytes)), Ok(StarDetail::default()), "another version");
    let mut bytes = detail().to_bytes();
    bytes.extend_from_slice(&[7; 9]);
    assert_eq!(StarDetail::from_bytes(&summed(bytes)), Ok(detail()), "more lists");
    // Operation and phase of the first histogram, which stands behind sum, version, count and shard.
    for at in [9, 10] {
        let mut bytes = detail().to_bytes();
        bytes[at] = 200;
        let found = StarDetail::from_bytes(&summed(bytes)).unwrap();
        assert_eq!(found.timings, detail().timings[1..], "an operation or phase that is not known");
        assert_eq!(found.heaviest, detail().heaviest);
    }
}

#[test]
fn damage_cuts_and_buckets_that_are_not_there_are_told() {
    let bytes = detail().to_bytes();
    let mut damaged = bytes.clone();
    damaged[20] ^= 1;
    assert!(matches!(StarDetail::from_bytes(&damaged), Err(StarDetailError::Checksum { .. })));
    for cut in 4..bytes.len() {
        let cut = summed(bytes[..cut].to_vec());
        assert!(matches!(StarDetail::from_bytes(&cut), Err(StarDetailError::Short { .. })), "{}", cut.len());
    }
    // The first bucket of the second histogram.
    let mut bytes = detail().to_bytes();
    bytes[49] = 26;
    assert_eq!(StarDetail::from_bytes(&summed(bytes)), Err(StarDetailError::Bucket { found: 26 }));
}

#[test]
fn a_bucket_ends_at_twice_the_one_before_and_holds_its_end() {
    let held = |took: Duration| {
        let all = times(&[(took, 1)]);
        all.buckets().find(|(_, count)| *count > 0).map(|(end, _)| end)
    };
    for (took, end) in [
        (Duration::ZERO, Some(US)),
        (US, Some(US)),
        (US + Duration::from_nanos(1), Some(2 * US)),
        (2 * US, Some(2 * US)),
        (3 * US, Some(4 * US)),
        (1_024 * US, Some(1_024 * US)),
        (1_025 * US, Some(2_048 * US)),
        ((1 << 24) * US, Some((1 << 24) * US)),
        ((1 << 24) * US + Duration::from_nanos(1), None),
        (Duration::MAX, None),
    ] {
        assert_eq!(held(took), Some(end), "{took:?}");
    }
    assert_eq!(times(&[]).buckets().count(), BUCKETS);
}

#[test]
fn what_is_noted_is_counted_and_added_up() {
    let all = times(&[(3 * US, 5), (100 * US, 94), (Duration::from_secs(60), 1)]);
    assert_eq!(all.count(), 100);
    assert_eq!(all.sum_ns(), 15_000 + 9_400_000 + 60_000_000_000);
    for (percent, end) in [(0, 4), (5, 4), (6, 128), (50, 128), (99, 128), (100, 1 << 24)] {
        assert_eq!(all.percentile(percent), Some(end * US), "{percent}");
    }
    assert_eq!(times(&[]).percentile(99), None);
}

proptest! {
    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = StarDetail::from_bytes(&bytes);
        if bytes.len() > 4 {
            let mut bytes = bytes;
            bytes[4] = VERSION;
            let _ = StarDetail::from_bytes(&summed(bytes));
        }
    }
}
