use super::*;

const YEAR_MS: i64 = 365 * 86_400_000;
const START_MS: i64 = 1_700_000_000_000;

fn look(boot: u8, boot_ms: i64, wall_ms: i64) -> ClockLook {
    ClockLook { boot_id: [boot; 16], boot_ms, wall_ms, store_skew_ms: None }
}

fn noted(boot: u8, boot_ms: i64, wall_ms: i64) -> Noted {
    Noted { boot_id: [boot; 16], boot_ms, wall_ms, is_stopped: false }
}

fn start(now: ClockLook, noted: Option<Noted>, newest_ms: Option<i64>) -> Option<ClockFault> {
    ClockGuard::new(now, Ok(noted), newest_ms).fault()
}

#[test]
fn clocks_that_move_together_are_believed_however_long_the_pause() {
    let mut guard = ClockGuard::new(look(1, 0, START_MS), Ok(None), None);
    for ms in [1000, 2000, YEAR_MS, YEAR_MS + 1] {
        assert_eq!(guard.on_look(look(1, ms, START_MS + ms + ms.min(59_000))), None);
        guard.on_look(look(1, ms, START_MS + ms));
        assert_eq!((guard.fault(), guard.steady_ms()), (None, Some(START_MS + ms)));
    }
}

#[test]
fn a_step_in_either_direction_is_said_once_and_stops_until_it_is_confirmed() {
    for step_ms in [YEAR_MS, -YEAR_MS, 60_001, -60_001] {
        let mut guard = ClockGuard::new(look(1, 0, START_MS), Ok(None), None);
        let fault = ClockFault::Stepped { step_ms };
        assert_eq!(guard.on_look(look(1, 1000, START_MS + 1000 + step_ms)), Some(fault));
        assert_eq!(guard.on_look(look(1, 2000, START_MS + 2000 + step_ms)), None);
        // Back again is no proof either.
        assert_eq!(guard.on_look(look(1, 3000, START_MS + 3000)), None);
        assert_eq!((guard.fault(), guard.steady_ms()), (Some(fault), Some(START_MS + 3000)));
        assert_eq!(guard.noted(), Some(Noted { is_stopped: true, ..noted(1, 0, START_MS) }));
        guard.on_confirm();
        assert_eq!((guard.fault(), guard.noted()), (None, Some(noted(1, 3000, START_MS + 3000))));
    }
}

#[test]
fn a_start_in_the_same_boot_finds_a_step_in_either_direction() {
    let before = Some(noted(1, 5000, START_MS));
    assert_eq!(start(look(1, 6000, START_MS + 1000), before, None), None);
    for step_ms in [YEAR_MS, -YEAR_MS] {
        let fault = start(look(1, 6000, START_MS + 1000 + step_ms), before, None);
        assert_eq!(fault, Some(ClockFault::Stepped { step_ms }));
        // It is noted that it was found, with the moment of before, and time goes on from that.
        let guard = ClockGuard::new(look(1, 6000, START_MS + 1000 + step_ms), Ok(before), None);
        assert_eq!(guard.noted(), before.map(|before| Noted { is_stopped: true, ..before }));
        assert_eq!(guard.steady_ms(), Some(START_MS + 1000));
    }
}

#[test]
fn a_start_in_another_boot_finds_that_time_goes_back() {
    let before = Some(noted(1, 5000, START_MS));
    assert_eq!(start(look(2, 10, START_MS + YEAR_MS), before, None), None);
    assert_eq!(start(look(2, 10, START_MS - 60_000), before, None), None);
    let behind = Some(ClockFault::Behind { behind_ms: YEAR_MS });
    assert_eq!(start(look(2, 10, START_MS - YEAR_MS), before, None), behind);
    assert_eq!(start(look(2, 10, START_MS), None, Some(START_MS + YEAR_MS)), behind);
    assert_eq!(start(look(2, 10, START_MS), before, Some(START_MS + YEAR_MS)), behind);
}

#[test]
fn what_was_stopped_or_cannot_be_read_stays_stopped() {
    let stopped = Noted { is_stopped: true, ..noted(1, 5000, START_MS) };
    let guard = ClockGuard::new(look(2, 10, START_MS + 10), Ok(Some(stopped)), None);
    assert_eq!((guard.fault(), guard.steady_ms(), guard.noted()), (Some(ClockFault::Earlier), None, Some(stopped)));
    let mut guard = ClockGuard::new(look(2, 10, START_MS), Err(ClockFault::Unreadable), None);
    assert_eq!(guard.fault(), Some(ClockFault::Unreadable));
    guard.on_confirm();
    assert_eq!((guard.fault(), guard.steady_ms()), (None, Some(START_MS)));
}

#[test]
fn a_store_with_another_time_stops_it_until_that_skew_is_confirmed() {
    let with = |skew_ms, at| ClockLook { store_skew_ms: Some(skew_ms), ..look(1, at, START_MS + at) };
    let skewed = Some(ClockFault::Store { skew_ms: -YEAR_MS });
    assert_eq!(start(with(-YEAR_MS, 0), None, None), skewed);
    assert_eq!(start(with(5000, 0), None, None), None);
    let mut guard = ClockGuard::new(look(1, 0, START_MS), Ok(None), None);
    assert_eq!(guard.on_look(with(-YEAR_MS, 1000)), skewed);
    guard.on_confirm();
    assert_eq!(guard.on_look(with(-YEAR_MS + 500, 2000)), None);
    assert_eq!(guard.fault(), None);
    assert!(guard.on_look(with(0, 3000)).is_some());
}
