use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::{LOOK_EVERY, LOOP_MAX, Pulse, STALL_MIN, STUCK_MAX, Seen, Task, look};

#[derive(Default)]
struct Pokes(AtomicU64);

impl Wake for Pokes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_silent_shard_is_poked_after_a_second_and_counted_once() {
    let (pulse, pokes, mut seen) = (Pulse::default(), Arc::new(Pokes::default()), Seen::default());
    pulse.arm(&Waker::from(Arc::clone(&pokes)));
    pulse.beat(Duration::from_millis(3));
    look(0, &pulse, &mut seen, LOOK_EVERY);
    let mut looks = 0;
    while pokes.0.load(Ordering::Relaxed) == 0 {
        look(0, &pulse, &mut seen, LOOK_EVERY);
        looks += 1;
    }
    assert_eq!(LOOK_EVERY * looks, STALL_MIN);
    look(0, &pulse, &mut seen, LOOK_EVERY);
    assert_eq!(pulse.counters()[..3], [("stalls", 1), ("stall_last_ms", 1_200), ("beat_late_max_ms", 3)]);
    pulse.beat(Duration::ZERO);
    look(0, &pulse, &mut seen, LOOK_EVERY);
    assert_eq!(seen.silent, Duration::ZERO);
}

#[test]
fn a_shard_that_stood_still_says_in_which_task_also_when_it_turns_again() {
    let (pulse, mut seen) = (Pulse::default(), Seen::default());
    pulse.beat(Duration::ZERO);
    pulse.enter(Task::Timer);
    look(0, &pulse, &mut seen, LOOK_EVERY);
    assert_eq!(pulse.stood_still_in(), None);
    pulse.enter(Task::Mail);
    look(0, &pulse, &mut seen, STALL_MIN);
    assert_eq!(pulse.stood_still_in(), Some("mail"));
    pulse.beat(Duration::ZERO);
    pulse.enter(Task::Drain);
    look(0, &pulse, &mut seen, LOOK_EVERY);
    assert_eq!(pulse.stood_still_in(), Some("mail"));
    look(0, &pulse, &mut seen, STALL_MIN);
    assert_eq!(pulse.stood_still_in(), Some("drain"));
}

#[test]
fn a_shard_that_has_not_begun_or_has_ended_does_not_stall() {
    let (pulse, mut seen) = (Pulse::default(), Seen::default());
    for _ in 0..100 {
        look(0, &pulse, &mut seen, LOOK_EVERY);
    }
    pulse.beat(Duration::ZERO);
    pulse.end();
    for _ in 0..100 {
        look(0, &pulse, &mut seen, LOOK_EVERY);
    }
    assert_eq!(pulse.counters()[0], ("stalls", 0));
}

/// A look at a silent shard in one turn whose thread has run for so long in all.
fn looked(seen: &mut Seen, ran: Option<Duration>) -> Option<String> {
    seen.add(LOOK_EVERY, 0, ran);
    seen.verdict()
}

#[test]
fn a_shard_that_works_on_one_turn_ends_the_process_within_a_second_and_one_that_waits_does_not() {
    let mut seen = Seen { ran: Some(Duration::ZERO), ..Seen::default() };
    let looks = u32::try_from(LOOP_MAX.as_millis() / LOOK_EVERY.as_millis()).unwrap();
    let verdict = (1..=looks).find(|looks| looked(&mut seen, Some(LOOK_EVERY * *looks)).is_some());
    assert_eq!(verdict, Some(looks));
    assert!(LOOK_EVERY + LOOP_MAX <= Duration::from_secs(1), "it may begin right after a look");
    // It waits: for the disk, or for its CPU.
    let mut seen = Seen { ran: Some(Duration::ZERO), ..Seen::default() };
    let looks = u32::try_from(STUCK_MAX.as_millis() / LOOK_EVERY.as_millis()).unwrap();
    assert_eq!((1..looks).find(|_| looked(&mut seen, Some(Duration::from_millis(3))).is_some()), None);
    assert!(looked(&mut seen, Some(Duration::from_millis(3))).is_some_and(|why| why.contains("not turned for 30 s")));
}

#[test]
fn a_shard_that_is_busy_with_one_turn_after_the_other_does_not_loop() {
    let mut seen = Seen { ran: Some(Duration::ZERO), ..Seen::default() };
    for look in 1..100 {
        seen.add(LOOK_EVERY, u64::from(look) / 4, Some(LOOK_EVERY * look));
        assert_eq!(seen.verdict(), None, "look {look}");
    }
    let pulse = Pulse::default();
    let turns = [Task::Mail, Task::Mail, Task::Timer].map(|task| {
        pulse.enter(task);
        pulse.turn.load(Ordering::Relaxed)
    });
    assert!(turns[0] != turns[1] && turns[1] != turns[2], "two turns of one task are two");
}

#[test]
fn a_thread_that_seems_to_have_run_for_long_at_once_did_not_loop() {
    let mut seen = Seen { ran: Some(Duration::ZERO), ..Seen::default() };
    assert_eq!(looked(&mut seen, Some(Duration::from_secs(20))), None);
    assert_eq!(seen.worked, LOOK_EVERY);
    // The kernel tells nothing.
    let mut seen = Seen::default();
    assert!((0..50).all(|_| looked(&mut seen, None).is_none()) && seen.worked.is_zero());
}
