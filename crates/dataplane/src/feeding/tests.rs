use std::time::Duration;

use wire::ids::Lsn;

use super::Backlog;

const AGE_MAX: Duration = Duration::from_secs(64);

fn age(backlog: &mut Backlog, settled: u64, end: u64, now_s: u64) -> u64 {
    let age = backlog.age(Lsn::new(settled), Lsn::new(end), (Duration::from_secs(now_s), AGE_MAX));
    age.as_secs()
}

#[test]
fn a_backlog_is_as_old_as_its_oldest_entry() {
    let mut backlog = Backlog::default();
    assert_eq!(age(&mut backlog, 0, 1, 5), 0, "there is none");
    assert_eq!(age(&mut backlog, 0, 4, 10), 0);
    assert_eq!(age(&mut backlog, 0, 9, 40), 30);
    assert_eq!(age(&mut backlog, 2, 9, 50), 40, "the third is not settled");
    assert_eq!(age(&mut backlog, 3, 9, 60), 20, "the fourth was there at 40 s");
    assert_eq!(age(&mut backlog, 8, 9, 70), 0);
    assert_eq!(age(&mut backlog, 8, 10, 100), 0, "it is new");
}

#[test]
fn a_backlog_that_grows_all_the_time_keeps_a_bounded_number_of_marks() {
    let mut backlog = Backlog::default();
    for ms in 0..200_000_u64 {
        let settled = (ms / 2).saturating_sub(20_000);
        let times = (Duration::from_millis(ms), AGE_MAX);
        let age = backlog.age(Lsn::new(settled), Lsn::new(ms + 2), times);
        let exact = Duration::from_millis(ms - settled);
        assert!(age <= exact && exact - age <= AGE_MAX / 32, "{age:?} and {exact:?} at {ms}");
    }
    assert!(backlog.0.len() <= 130, "{}", backlog.0.len());
}
