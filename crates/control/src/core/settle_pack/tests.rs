use super::*;

const RULES: BundleRules = BundleRules { bytes: 100, chunks: 5, age_ms: 1000 };

fn chunks(bytes: &[u64]) -> Vec<Fill> {
    bytes.iter().map(|bytes| Fill { live_bytes: *bytes, bytes: *bytes, created_ms: 50 }).collect()
}

#[test]
fn chunks_are_bundled_once_they_are_large_many_or_old() {
    assert_eq!(due(&[], RULES, i64::MAX), 0);
    assert_eq!(due(&chunks(&[40, 40]), RULES, 60), 0);
    assert_eq!(due(&chunks(&[40, 40]), RULES, 1050), 2, "old");
    assert_eq!(due(&chunks(&[40, 40, 40, 40]), RULES, 60), 3, "large");
    assert_eq!(due(&chunks(&[1; 4]), RULES, 60), 0);
    assert_eq!(due(&chunks(&[1; 7]), RULES, 60), 5, "many");
    assert_eq!(due(&chunks(&[40]), RULES, i64::MIN), 0, "a clock that went back makes nothing old");
}

#[test]
fn copying_rests_only_while_what_waits_is_neither_much_nor_old() {
    let rests = |chunks, now_ms| may_rest(Backlog { chunks, oldest_ms: 50 }, RULES, now_ms);
    assert!(may_rest(Backlog::default(), RULES, i64::MAX), "nothing waits");
    assert_eq!((rests(1, 60), rests(19, 60), rests(20, 60)), (true, true, false), "four times as many as are bundled");
    assert_eq!((rests(1, 2049), rests(1, 2050)), (true, false), "twice as old as what is bundled");
    assert!(rests(1, i64::MIN), "a clock that went back makes nothing old");
    let late = BundleRules { age_ms: i64::MAX, chunks: usize::MAX, ..RULES };
    assert!(may_rest(Backlog { chunks: 1_000, oldest_ms: 0 }, late, i64::MAX - 1));
}

#[test]
fn bundles_that_are_half_dead_or_small_and_many_are_rewritten() {
    let rules = CompactRules { small_bytes: 10, small_count: 3, bytes: 100 };
    let fill = |live_bytes, bytes| Fill { live_bytes, bytes, created_ms: 0 };
    assert_eq!(to_compact(&[fill(50, 50), fill(24, 50), fill(25, 50), fill(0, 50)], rules), [1]);
    assert!(to_compact(&[fill(5, 5), fill(5, 5)], rules).is_empty());
    assert_eq!(to_compact(&[fill(5, 5), fill(50, 50), fill(5, 5), fill(5, 5)], rules), [0, 2, 3]);
    assert_eq!(to_compact(&[fill(1, 60), fill(1, 60)], rules), [0], "what is read at once has a bound");
    assert_eq!(to_compact(&[fill(1, 600)], rules), [0]);
}

/// Numbers that a seed decides.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn check(streams: &[Vec<u32>]) {
    let rules = PackRules { own_bytes: 80, object_bytes: 120, streams: 4 };
    let mut found = vec![0; streams.len()];
    for object in &pack(streams, rules) {
        assert!(!object.is_empty() && object.len() <= 4);
        let mut bytes = 0;
        for (stream, pieces) in object {
            assert_eq!(pieces.start, found[*stream]);
            found[*stream] = pieces.end;
            bytes += streams[*stream][pieces.clone()].iter().sum::<u32>();
            let whole: u32 = streams[*stream].iter().sum();
            assert!(object.len() == 1 || whole < 80, "a large stream has objects of its own");
        }
        assert!(bytes <= 120, "{bytes} bytes");
    }
    assert_eq!(found, streams.iter().map(Vec::len).collect::<Vec<_>>());
}

#[test]
fn every_piece_lies_in_one_object_in_order_and_objects_have_their_bounds() {
    let mut random = Random(1);
    for _ in 0..2000 {
        let mut pieces = || (0..random.below(8)).map(|_| u32::try_from(random.below(60) + 1).unwrap()).collect();
        let streams: Vec<Vec<u32>> = (0..20).map(|_| pieces()).collect();
        check(&streams);
    }
}

#[test]
fn a_piece_over_the_bound_lies_alone() {
    let rules = PackRules { own_bytes: 80, object_bytes: 120, streams: 4 };
    assert_eq!(pack(&[vec![10, 500, 10]], rules), [vec![(0, 0..1)], vec![(0, 1..2)], vec![(0, 2..3)]]);
}
