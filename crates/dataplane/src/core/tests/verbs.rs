//! Making, changing, trimming, deleting, listing.

use wire::config::ConfigPatch;
use wire::handoff::{ToControl, ToShard};
use wire::ids::{BucketId, Lsn, ProducerId, SeqNum};
use wire::message::{
    CheckTail, Fence, Open, Start, StreamCreate, StreamDelete, StreamGet, StreamReconfigure, Trim, TrimTo,
};
use wire::reason::Reason;

use super::world::*;

fn create(key: &str, config: ConfigPatch) -> StreamCreate {
    StreamCreate { address: address(key), config }
}

fn reason(told: Vec<Told>) -> Reason {
    match &told[..] {
        [Told::Refused(_, refusal)] => refusal.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_is_made_once_and_found_after_a_crash() {
    let mut test = Test::new();
    let id = stream_id(&test.call(A, &create("s", ConfigPatch::default())));
    assert_eq!(reason(test.call(A, &create("s", ConfigPatch::default()))), Reason::AlreadyExists);
    let mut test = test.crashed();
    assert_eq!(stream_id(&test.call(A, &StreamGet { address: address("s") })), id);
}

#[test]
fn an_answer_that_stands_on_an_undurable_creation_waits_for_it() {
    let mut test = Test::new();
    test.ask(A, &create("s", ConfigPatch::default()));
    test.ask(B, &create("s", ConfigPatch::default()));
    test.ask(B, &CheckTail { address: address("s") });
    assert_eq!((test.told(A), test.told(B)), (vec![], vec![]));
    test.commit();
    assert!(matches!(test.told(B)[..], [Told::Refused(..), Told::Tail(_)]));
}

#[test]
fn only_a_bucket_that_says_so_makes_streams_and_check_tail_never_does() {
    let mut test = Test::new();
    assert_eq!(reason(test.call(A, &CheckTail { address: address("s") })), Reason::NotFound);
    let mut closed = bucket(ConfigPatch::default());
    (closed.create_stream_on_append, closed.create_stream_on_read) = (false, false);
    test.table(2, [closed]);
    assert_eq!(test.put("s", &["x"]).unwrap_err().reason, Reason::NotFound);
    assert_eq!(test.open(A, "s", 7, "").unwrap_err().reason, Reason::NotFound);
    assert_eq!(test.page(&Test::reading("s", Start::Last(1))).unwrap_err().reason, Reason::NotFound);
    test.table(3, []);
    assert_eq!(test.put("s", &["x"]).unwrap_err().reason, Reason::NotFound);
}

#[test]
fn a_trim_is_monotonic_clamped_and_survives() {
    let mut test = Test::new();
    test.put("s", &["a", "b", "c"]).unwrap();
    let trim = |seq_num| Trim { address: address("s"), to: TrimTo::SeqNum(SeqNum::new(seq_num)) };
    assert_eq!(test.call(A, &trim(2)), vec![Told::Trimmed(2)]);
    assert_eq!(test.call(A, &trim(1)), vec![Told::Trimmed(2)]);
    let mut test = test.crashed();
    let refusal = test.page(&Test::reading("s", Start::SeqNum(SeqNum::new(1)))).unwrap_err();
    assert_eq!((refusal.reason, refusal.details.unwrap().trim_point), (Reason::Trimmed, Some(SeqNum::new(2))));
    assert_eq!(test.call(A, &trim(99)), vec![Told::Trimmed(3)]);
    assert_eq!(test.call(A, &CheckTail { address: address("s") }), vec![Told::Tail(position(3, 1000))]);
    assert_eq!(test.put("s", &["d"]).unwrap().start.seq_num, SeqNum::new(3));
}

#[test]
fn a_trim_by_time_keeps_the_first_record_at_or_after_it() {
    let mut test = Test::new();
    for at in [1000, 2000, 3000] {
        test.world.wall_ms = at;
        test.put("s", &["x", "y"]).unwrap();
    }
    let trim = |ms| Trim { address: address("s"), to: TrimTo::Timestamp(ms) };
    test.ask(A, &trim(2000));
    test.serve_fetches();
    test.commit();
    assert_eq!(test.told(A), vec![Told::Trimmed(2)]);
    assert_eq!(test.call(A, &trim(9000)), vec![Told::Trimmed(6)]);
}

#[test]
fn a_delete_is_idempotent_and_a_recreation_is_another_stream() {
    let mut test = Test::new();
    assert!(matches!(test.call(A, &StreamDelete { address: address("s") })[..], [Told::Done(_)]));
    test.put("s", &["a"]).unwrap();
    let old = test.open(A, "s", 7, "").unwrap();
    test.ask(B, &StreamDelete { address: address("s") });
    test.ask(B, &CheckTail { address: address("s") });
    assert_eq!(test.told(B), vec![], "neither is said before the delete is durable");
    test.commit();
    let told = test.told(B);
    assert!(
        matches!(&told[..], [Told::Done(_), Told::Refused(_, refusal)] if refusal.reason == Reason::NotFound),
        "{told:?}"
    );
    assert_eq!(test.told(A), vec![Told::Ended(old.session, Reason::NotFound)]);
    assert_eq!(test.put("s", &["new"]).unwrap().start.seq_num, SeqNum::ZERO);
    let resume = Open {
        address: address("s"),
        producer: ProducerId::new(7),
        fencing_token: token(""),
        resume: Some(old.stream_id),
    };
    assert_eq!(reason(test.call(B, &resume)), Reason::NotFound);
    let mut test = test.crashed();
    let page = test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap();
    assert_eq!(page.bodies, vec!["new"]);
}

#[test]
fn a_recreation_in_the_same_commit_as_the_delete_is_kept() {
    let mut test = Test::new();
    test.put("s", &["old"]).unwrap();
    test.ask(B, &StreamDelete { address: address("s") });
    assert_eq!(test.put("s", &["new"]).unwrap().start.seq_num, SeqNum::ZERO);
    let mut test = test.crashed();
    let page = test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap();
    assert_eq!(page.bodies, vec!["new"]);
}

#[test]
fn a_reconfigure_hands_the_stream_off_unless_it_only_changes_retention() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let retention = ConfigPatch { retention_max_bytes: Some(5), ..ConfigPatch::default() };
    test.call(B, &StreamReconfigure { address: address("s"), config: retention });
    assert_eq!(test.told(A), vec![]);
    let batch = ConfigPatch { batch_max_bytes: Some(5), ..ConfigPatch::default() };
    let _ = test.append(A, session, 1, &["before"]);
    let told = test.call(B, &StreamReconfigure { address: address("s"), config: batch });
    let [Told::Stream(answer)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((answer.stream.config.batch.max_bytes, answer.stream.config.retention.max_bytes), (5, 5));
    let told = test.told(A);
    assert!(matches!(told[..], [Told::Acked(..), Told::Ended(_, Reason::Unavailable)]), "{told:?}");
}

#[test]
fn a_list_is_in_key_order_and_leaves_out_what_is_not_durable() {
    let mut test = Test::new();
    for key in ["b", "a", "c"] {
        test.put(key, &["x"]).unwrap();
    }
    test.ask(A, &create("aa", ConfigPatch::default()));
    let keys = |test: &Test, after: &str, limit| {
        let list = test.shard.list(BucketId::from_bytes([1; 16]), after, limit);
        list.iter().map(|stream| stream.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&test, "", 10), vec!["a", "b", "c"]);
    assert_eq!(keys(&test, "a", 1), vec!["b"]);
    test.commit();
    assert_eq!(keys(&test, "a", 1), vec!["aa"]);
}

#[test]
fn a_frozen_bucket_makes_no_more_streams_and_says_which_entries_to_wait_for() {
    let mut test = Test::new();
    test.put("s", &["x"]).unwrap();
    test.ask(A, &StreamDelete { address: address("s") });
    test.shard.on_control(ToShard::Freeze { bucket: BucketId::from_bytes([1; 16]) }, &mut test.world);
    let Some(ToControl::Frozen { express: (_, last), .. }) = test.world.told.last() else { panic!() };
    assert_eq!(*last, Lsn::new(3), "a crash would bring back what is deleted but not durable");
    test.commit();
    test.told(A);
    assert_eq!(reason(test.call(A, &create("t", ConfigPatch::default()))), Reason::FailedPrecondition);
    test.table(2, [bucket(ConfigPatch::default())]);
    test.put("t", &["x"]).unwrap();
}

#[test]
fn a_configuration_that_no_stream_has_is_not_kept() {
    let mut test = Test::new();
    test.call(A, &create("kept", ConfigPatch { retention_max_bytes: Some(1), ..ConfigPatch::default() }));
    for bytes in 2..200 {
        test.call(A, &create("s", ConfigPatch { retention_max_bytes: Some(bytes), ..ConfigPatch::default() }));
        test.call(A, &StreamDelete { address: address("s") });
    }
    assert!(test.shard.streams.configs.len() <= 64, "{}", test.shard.streams.configs.len());
}

#[test]
fn control_verbs_go_on_when_the_log_is_full() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    test.world.room = Some(express_log::NoRoom::Full { used_bytes: 1, log_bytes_max: 1 });
    assert_eq!(test.put("s", &["x"]).unwrap_err().reason, Reason::ResourceExhausted);
    assert_eq!(test.put("new", &["x"]).unwrap_err().reason, Reason::ResourceExhausted);
    let trim = Trim { address: address("s"), to: TrimTo::SeqNum(SeqNum::new(1)) };
    assert_eq!(test.call(A, &trim), vec![Told::Trimmed(1)]);
    let fence = Fence { address: address("s"), fencing_token: token("t") };
    assert!(matches!(test.call(A, &fence)[..], [Told::Fenced(_)]));
    assert!(matches!(test.call(A, &StreamDelete { address: address("s") })[..], [Told::Done(_)]));
}
