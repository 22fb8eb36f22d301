use super::{ABSENT_MAX, KnownLogs, LogFacts, LogFault, judge, note, take};
use crate::channel::cluster::{Cluster, Owner};
use wire::ids::{ClusterId, Epoch, LogId, Lsn, StarId};

const STAR: StarId = StarId::from_bytes([5; 16]);

fn facts(log: u8, epoch: u64, end: u64) -> LogFacts {
    LogFacts {
        log: LogId::from_bytes([log; 16]),
        number: u16::from(log),
        last_epoch: Epoch::new(epoch),
        end_lsn: Lsn::new(end),
        clean: false,
    }
}

/// A cluster that was joined, where these logs were in use.
fn cluster(dirty: &[LogFacts], clean: &[LogFacts]) -> Cluster {
    let mut cluster = Cluster::new(ClusterId::from_bytes([1; 16]));
    cluster.owner = Some(Owner { star: STAR, incarnation: Epoch::new(3), released: false });
    cluster.next_epoch = Epoch::new(9);
    note(&mut cluster, STAR, dirty, |_| false);
    note(&mut cluster, STAR, clean, |_| true);
    cluster
}

#[test]
fn logs_that_reached_as_far_or_further_are_served() {
    let cluster = cluster(&[facts(1, 3, 10)], &[facts(2, 3, 20)]);
    assert_eq!(judge(&cluster, &[facts(1, 3, 10), facts(2, 3, 20)]), []);
    assert_eq!(judge(&cluster, &[facts(1, 4, 11), facts(2, 4, 21), facts(3, 0, 1), facts(4, 0, 0)]), []);
}

#[test]
fn a_log_in_use_that_is_missing_is_named_and_a_settled_one_is_not() {
    let cluster = cluster(&[facts(1, 3, 10)], &[facts(2, 3, 20)]);
    let faults = judge(&cluster, &[]);
    assert_eq!(faults.len(), 1);
    let text = faults[0].to_string();
    for part in ["01010101-0101-0101-0101-010101010101", "number 1 of star 05050505", "LSN 10", "epoch 3"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn an_old_copy_is_named_even_of_a_settled_log() {
    let cluster = cluster(&[facts(1, 3, 10), facts(2, 3, 20)], &[facts(4, 3, 30)]);
    let faults = judge(&cluster, &[facts(1, 2, 10), facts(2, 3, 19), facts(4, 3, 29)]);
    assert_eq!(faults.iter().map(LogFault::log).collect::<Vec<_>>(), [1, 2, 4].map(|log| LogId::from_bytes([log; 16])));
    let text = faults[1].to_string();
    for part in ["number 2", "LSN 19", "LSN 20", "epoch 3"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_log_of_another_store_is_foreign_to_this_one_unless_this_one_is_new() {
    let known = cluster(&[facts(1, 3, 10)], &[]);
    let faults = judge(&known, &[facts(1, 3, 10), facts(7, 8, 90)]);
    assert!(matches!(faults[..], [LogFault::Foreign { number: 7, .. }]), "{faults:?}");
    let new = Cluster::new(ClusterId::from_bytes([1; 16]));
    assert_eq!(judge(&new, &[facts(7, 8, 90)]), []);
}

#[test]
fn how_far_a_log_reaches_is_judged_once_it_is_read_and_no_less_is_noted_later() {
    let mut cluster = cluster(&[], &[facts(1, 3, 10), facts(2, 3, 0)]);
    let unread = [facts(1, 3, 0), facts(2, 3, 0), facts(7, 8, 0)];
    assert_eq!(judge(&cluster, &unread), []);
    let known = KnownLogs::of(&cluster);
    take(&mut cluster, STAR, &unread, &[], false);
    let noted: Vec<_> = cluster.logs.iter().map(|known| (known.number, known.end_lsn.get())).collect();
    assert_eq!(noted, [(1, 10), (2, 0)], "what may be another store's is not noted");
    assert_eq!(known.faults(&[facts(1, 3, 10), facts(2, 3, 5), facts(7, 8, 1)]), []);
    let faults = known.faults(&[facts(1, 3, 9), facts(2, 3, 5), facts(7, 8, 90)]);
    assert!(matches!(faults[..], [LogFault::Old { number: 1, .. }, LogFault::Foreign { number: 7, .. }]), "{faults:?}");
    let [old, foreign] = [&faults[0], &faults[1]].map(ToString::to_string);
    assert!(old.contains("epoch 3 at LSN 9") && old.contains("epoch 3 at LSN 10"), "{old}");
    assert!(foreign.contains("epoch 8 at LSN 90"), "{foreign}");
}

#[test]
fn a_log_that_is_newer_than_the_store_is_named_and_what_is_not_known_is_not_told() {
    let cluster = cluster(&[facts(1, 3, 0)], &[]);
    let faults = judge(&cluster, &[facts(1, 9, 0)]);
    assert!(matches!(faults[..], [LogFault::Ahead { number: 1, .. }]), "{faults:?}");
    let text = faults[0].to_string();
    assert!(text.contains("epoch 9") && text.contains("older copy"), "{text}");
    for faults in [judge(&cluster, &[]), judge(&cluster, &[facts(1, 2, 0)])] {
        let text = faults[0].to_string();
        assert!(text.contains("epoch 3") && !text.contains("LSN"), "{text}");
    }
}

#[test]
fn what_is_given_up_is_forgotten_and_what_is_taken_is_in_use() {
    let mut cluster = cluster(&[facts(1, 3, 10), facts(2, 3, 20)], &[facts(3, 3, 30), facts(4, 3, 40)]);
    let here = [facts(2, 2, 20), facts(3, 3, 30), facts(7, 8, 90)];
    let faults = judge(&cluster, &here);
    assert_eq!(faults.len(), 3);
    take(&mut cluster, STAR, &here, &faults, false);
    let left: Vec<_> = cluster.logs.iter().map(|known| (known.number, known.clean)).collect();
    assert_eq!(left, [(3, false), (4, true)]);
    // If one of them is served all the same, the next start says so.
    assert_eq!(judge(&cluster, &here).len(), 2);
}

#[test]
fn settled_logs_that_do_not_come_back_do_not_gather_for_ever() {
    let number = |log: usize| u64::try_from(log).unwrap();
    let many: Vec<_> = (0..ABSENT_MAX + 5)
        .map(|log| LogFacts {
            log: LogId::from_bytes(u128::try_from(log).unwrap().to_be_bytes()),
            ..facts(1, number(log), 2)
        })
        .collect();
    let mut cluster = cluster(&[facts(250, 1, 1)], &many);
    take(&mut cluster, STAR, &[facts(250, 1, 1)], &[], false);
    assert_eq!(cluster.logs.len(), ABSENT_MAX + 1);
    assert!(cluster.logs.iter().any(|known| !known.clean));
    assert!(cluster.logs.iter().filter(|known| known.clean).all(|known| known.epoch >= Epoch::new(5)));
}
