use std::time::Duration;

use wire::config::Class;

use super::{Fault, VerifyOptions, VerifyReport, run};
use crate::error::BenchError;
use crate::tests::scripted::{Fault as Planted, Scripted};

fn options(server: &Scripted, journal: &std::path::Path) -> VerifyOptions {
    VerifyOptions {
        addr: server.addr.clone(),
        bucket: None,
        class: Class::Express,
        streams: 3,
        writers: 2,
        record_bytes: 48,
        records_per_batch: 3,
        // Long enough for any fault to be met; a run ends with the first one.
        duration: Duration::from_secs(20),
        journal: journal.to_owned(),
        outage_max: Duration::from_secs(5),
    }
}

/// The first fault that is found in a server that has this one. One writer takes its streams in turn, so that an append's number
/// says what it is for: 40 is a plain one, neither one of a race nor under a token before.
fn found(planted: Planted) -> Fault {
    let (server, journal) = (Scripted::start(planted, 16), tempfile::tempdir().unwrap());
    let options = VerifyOptions { writers: 1, ..options(&server, journal.path()) };
    match run(&options, None, &mut |_| ()) {
        Err(BenchError::Unkept { report, .. }) => report.faults[0].fault.clone(),
        other => panic!("{planted:?} is not found: {other:?}"),
    }
}

fn short(server: &Scripted, journal: &std::path::Path) -> Result<VerifyReport, BenchError> {
    let options = VerifyOptions { duration: Duration::from_millis(400), ..options(server, journal) };
    run(&options, None, &mut |_| ())
}

#[test]
fn a_server_that_keeps_its_promises_is_whole_and_a_later_run_goes_on() {
    let (server, journal) = (Scripted::start(Planted::None, 16), tempfile::tempdir().unwrap());
    let first = short(&server, journal.path()).unwrap();
    assert!(first.records_acked > 20 && first.records_checked == first.records_acked, "{first}");
    let second = short(&server, journal.path()).unwrap();
    assert!(second.records_acked > first.records_acked, "{second}");
    assert_eq!(server.ends().len(), 3, "it goes on with the streams of the journal");
    let only_checked = VerifyOptions { duration: Duration::ZERO, ..options(&server, journal.path()) };
    let third = run(&only_checked, None, &mut |_| ()).unwrap();
    assert_eq!(third.records_checked, second.records_acked, "{third}");
}

#[test]
fn an_acked_batch_that_is_not_there_is_a_loss() {
    let fault = found(Planted::Lost(40));
    assert!(matches!(fault, Fault::Loss { .. }), "{fault}");
}

#[test]
fn a_batch_that_is_stored_twice_is_a_double() {
    let fault = found(Planted::StoredTwice(40));
    assert!(matches!(fault, Fault::Double { .. }), "{fault}");
}

#[test]
fn batches_that_are_served_in_another_order_are_a_reorder() {
    let fault = found(Planted::Swapped(4));
    assert!(matches!(fault, Fault::Reorder { .. }), "{fault}");
}

#[test]
fn sequence_numbers_without_records_are_a_gap() {
    let fault = found(Planted::Gap(40));
    assert!(matches!(fault, Fault::Gap { .. }), "{fault}");
    // Nothing may stand behind it yet.
    let fault = found(Planted::Unread(2));
    assert!(matches!(fault, Fault::Gap { .. } | Fault::Tail { .. }), "{fault}");
}

#[test]
fn a_body_that_is_not_the_one_that_was_sent_is_wrong() {
    let fault = found(Planted::OtherBody(4));
    assert!(matches!(fault, Fault::Body { .. }), "{fault}");
}

#[test]
fn an_append_that_is_accepted_under_the_token_before_is_late() {
    let fault = found(Planted::Unfenced);
    assert!(matches!(fault, Fault::LateAppend { .. }), "{fault}");
}

#[test]
fn two_appends_that_are_accepted_at_one_sequence_number_are_two_winners() {
    let fault = found(Planted::TwoWinners);
    assert!(matches!(fault, Fault::TwoWinners { .. }), "{fault}");
}

#[test]
fn a_record_that_a_reader_got_and_that_is_another_one_then_was_read_and_lost() {
    let fault = found(Planted::ReadThenLost(40));
    assert!(matches!(fault, Fault::ReadThenLost { .. }), "{fault}");
}

#[test]
fn a_tail_past_the_last_record_or_before_it_is_wrong() {
    for planted in [Planted::Tail(40, 1), Planted::Tail(40, -3)] {
        let fault = found(planted);
        assert!(matches!(fault, Fault::Tail { .. }), "{planted:?}: {fault}");
    }
}

#[test]
fn a_record_that_is_stamped_before_the_one_before_it_is_out_of_order() {
    let fault = found(Planted::StampFalls(4));
    assert!(matches!(fault, Fault::Stamps { .. }), "{fault}");
}

#[test]
fn writers_wait_for_a_server_that_goes_away_and_comes_back() {
    let (server, journal) = (Scripted::start(Planted::Close(30), 16), tempfile::tempdir().unwrap());
    let report = short(&server, journal.path()).unwrap();
    assert!(report.outages > 0 && report.faults.is_empty(), "{report}");
}

#[test]
fn a_check_of_what_no_earlier_run_wrote_is_refused_and_makes_nothing() {
    let (server, folder) = (Scripted::start(Planted::None, 16), tempfile::tempdir().unwrap());
    let journal = folder.path().join("journal");
    let only_checked = VerifyOptions { duration: Duration::ZERO, ..options(&server, &journal) };
    let error = run(&only_checked, None, &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("journal is {}", journal.display())), "{error}");
    assert!(!journal.exists());
}

#[test]
fn a_check_that_comes_past_no_record_does_not_pass() {
    let (server, journal) = (Scripted::start(Planted::None, 16), tempfile::tempdir().unwrap());
    let text = r#"{"bucket":"bench","key_prefix":"verify-7","streams":3,"writers":2}"#;
    std::fs::write(journal.path().join("run.json"), text).unwrap();
    let only_checked = VerifyOptions { duration: Duration::ZERO, ..options(&server, journal.path()) };
    match run(&only_checked, None, &mut |_| ()) {
        Err(BenchError::Unchecked { report }) => assert_eq!(report.records_checked, 0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_journal_that_can_t_be_read_is_no_new_one() {
    let (server, journal) = (Scripted::start(Planted::None, 16), tempfile::tempdir().unwrap());
    for bytes in [&b"{"[..], b"\xff\xfe"] {
        std::fs::write(journal.path().join("run.json"), bytes).unwrap();
        let error = short(&server, journal.path()).unwrap_err();
        assert!(matches!(error, BenchError::File { action: "reading", .. }), "{error}");
        assert_eq!(std::fs::read(journal.path().join("run.json")).unwrap(), bytes);
    }
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let (server, journal) = (Scripted::start(Planted::None, 16), tempfile::tempdir().unwrap());
    let base = options(&server, journal.path());
    let of = |options: VerifyOptions| run(&options, None, &mut |_| ()).unwrap_err().to_string();
    assert!(of(VerifyOptions { record_bytes: 8, ..base.clone() }).starts_with("record_bytes is 8: it must be 32 to"));
    assert!(of(VerifyOptions { writers: 4, ..base.clone() }).starts_with("writers"));
    assert!(of(VerifyOptions { streams: 0, ..base }).starts_with("streams"));
}
