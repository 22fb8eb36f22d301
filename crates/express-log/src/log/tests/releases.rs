//! Logs in memory that give up what is settled, and crash while they do.

use super::*;

/// Small segments, so that a few entries fill some.
const SEGMENT_BYTES: u64 = 64 << 10;

fn step(world: &World) {
    let _ = world.step();
}

fn wait_until(world: &World, what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if is_so() {
            return;
        }
        world.step();
    }
    panic!("never: {what}");
}

fn content(number: u64) -> Vec<u8> {
    let mut bytes = format!("{number}/").into_bytes();
    bytes.resize(3_000, b'.');
    bytes
}

/// Appends `entries` entries, each durable before the next, with the LSN for content; answers where they lie.
fn write(world: &World, log: &Log<World>, told: &Told, entries: usize) -> Vec<(Lsn, EntryPos)> {
    let mut places = Vec::new();
    for _ in 0..entries {
        wait_until(world, "room", || log.room(3_000, RoomClass::Data).is_ok());
        let bytes = content(log.assigned_lsn().get() + 1);
        places.push(append(log, told, bytes, RoomClass::Data).unwrap());
        log.kick();
        wait_until(world, "durable", || log.durable_lsn() == log.assigned_lsn());
    }
    places
}

type ThirdLife = (World, Rc<Told>, Log<World>, Vec<(Lsn, EntryPos)>);

async fn seal_it(log: Log<World>) {
    log.seal().await;
}

async fn room_again(log: Log<World>) {
    while log.room(3_000, RoomClass::Data).is_err() {
        log.wait_for_room().await.unwrap();
    }
}

/// Three lives with 40 entries each, the last one just opened and written: a world with a log of two earlier epochs.
fn three_epochs(seed: u64, faults: Faults) -> ThirdLife {
    let mut remains = Remains::default();
    let mut places = Vec::new();
    for epoch in 1..3 {
        let world = World::new(remains.clone(), seed + epoch, Faults::default(), false);
        let (told, log) = open(&world, recover(&remains).2, epoch, options());
        places.extend(write(&world, &log, &told, 40));
        if epoch == 1 {
            world.run(async move { log.seal().await });
        }
        remains = world.crash();
    }
    let world = World::new(remains.clone(), seed, Faults::default(), false);
    let (told, log) = open(&world, recover(&remains).2, 3, options());
    places.extend(write(&world, &log, &told, 40));
    world.set_faults(faults);
    (world, told, log, places)
}

/// Checks that all from some entry at or below `settled.next()` up to `end` is there, and answers which is the first.
fn check_kept(remains: &Remains, settled: Lsn, end: Lsn) -> Lsn {
    let (entries, lsns, recovered) = recover(remains);
    assert!(!matches!(recovered.verdict(), Verdict::Corrupt(_)), "settled {settled}: {:?}", recovered.verdict());
    assert!(recovered.end_lsn() >= end, "settled {settled}: ends at {} of {end}", recovered.end_lsn());
    let first = recovered.ends.first_lsn();
    assert!(first <= settled.next(), "settled {settled}: {first} is the first that is there");
    assert!(lsns.iter().map(|lsn| lsn.get()).eq(first.get()..recovered.end_lsn().get()), "{lsns:?} from {first}");
    for (entry, lsn) in entries.iter().zip(lsns) {
        assert_eq!(entry, &content(lsn.get()), "entry {lsn}");
    }
    first
}

/// The first segment that holds an entry above `settled`.
fn first_needed(places: &[(Lsn, EntryPos)], settled: Lsn) -> SegmentId {
    places
        .iter()
        .find(|(lsn, _)| *lsn > settled)
        .map_or_else(|| places.last().unwrap().1.segment, |(_, pos)| pos.segment)
}

#[test]
fn segments_whose_entries_are_all_settled_are_freed_oldest_first_in_every_epoch() {
    for settled in [0, 1, 13, 14, 39, 40, 41, 79, 80, 81, 100, 119, 120].map(Lsn::new) {
        let (world, _, log, places) = three_epochs(5, Faults::default());
        let before = log.metrics();
        let needed = first_needed(&places, settled);
        log.release(settled);
        wait_until(&world, "freed", || log.first_segment() == needed && !log.shared.release.borrow().is_busy());
        let first_lsn = places.iter().find(|(_, pos)| pos.segment == needed).unwrap().0;
        assert_eq!((log.first_lsn(), log.released_lsn()), (first_lsn, settled));
        let after = log.metrics();
        let gone: std::collections::BTreeSet<_> =
            places.iter().map(|(_, pos)| pos.segment).filter(|segment| *segment < needed).collect();
        assert_eq!((after.freed_segments, after.first_lsn), (gone.len() as u64, first_lsn));
        assert_eq!(after.used_bytes < before.used_bytes, !gone.is_empty());
        let remains = world.crash();
        assert!(gone.iter().all(|segment| !remains.segments.contains_key(segment)), "the files are gone");
        assert_eq!(check_kept(&remains, settled, Lsn::new(121)), first_lsn);
    }
}

#[test]
fn what_is_settled_never_moves_back_and_the_segment_that_takes_frames_stays() {
    let (world, told, log, places) = three_epochs(6, Faults::default());
    log.release(Lsn::new(1_000));
    let active = places.last().unwrap().1.segment;
    wait_until(&world, "freed", || log.first_segment() == active);
    log.release(Lsn::new(3));
    assert_eq!(log.released_lsn(), Lsn::new(1_000));
    write(&world, &log, &told, 30);
    assert_eq!(log.first_segment(), active, "nothing is freed unasked");
    world.run(async move { log.seal().await });
    let first = check_kept(&world.crash(), Lsn::new(120), Lsn::new(151));
    assert!(first > Lsn::new(100));
}

#[test]
fn many_calls_are_one_superblock_and_one_that_frees_nothing_writes_none() {
    let (world, _, log, _) = three_epochs(7, Faults::default());
    let before = log.shared.superblock.borrow().sequence;
    for settled in 1..=80 {
        log.release(Lsn::new(settled));
    }
    wait_until(&world, "freed", || log.metrics().freed_segments > 0);
    while log.shared.release.borrow().is_busy() {
        world.step();
    }
    for _ in 0..10 {
        log.release(Lsn::new(81));
        (0..50).for_each(|_| step(&world));
    }
    assert_eq!(log.shared.superblock.borrow().sequence, before + 1);
}

#[test]
fn a_crash_at_any_step_of_a_release_loses_nothing_above_it_and_brings_nothing_back_that_contradicts() {
    for (settled, seal) in [(Lsn::new(30), false), (Lsn::new(85), false), (Lsn::new(115), true)] {
        let (mut partly, mut steps) = (0, 0);
        loop {
            let (world, _, log, places) = three_epochs(steps, Faults::default());
            let needed = first_needed(&places, settled);
            let before = check_kept(&world.snapshot(), Lsn::ZERO, Lsn::new(121));
            assert_eq!(before, Lsn::new(1));
            log.release(settled);
            if seal {
                let log = log.clone();
                crate::Device::spawn(&world, seal_it(log));
            }
            (0..steps).for_each(|_| step(&world));
            let is_freed = log.metrics().freed_segments > 0 && !log.shared.release.borrow().is_busy();
            let is_done = is_freed || log.shared.stopped.get();
            let remains = world.crash();
            check_kept(&remains, settled, Lsn::new(121));
            partly += u32::from(remains.segments.keys().next() < Some(&needed) && first_of(&remains) == needed);
            check_life_after(remains, settled);
            if is_done && steps > 40 {
                break;
            }
            steps += 1;
            assert!(steps < 1_000, "the release comes to its end");
        }
        assert!(partly > 3 || seal, "{partly} crashes between the superblock and the last file");
    }
}

fn first_of(remains: &Remains) -> SegmentId {
    recover(remains).2.ends.superblock.unwrap().0.first_segment
}

/// The log goes on, gives up more, is sealed and comes back.
fn check_life_after(remains: Remains, settled: Lsn) {
    let world = World::new(remains.clone(), settled.get(), Faults::default(), false);
    let (told, log) = open(&world, recover(&remains).2, 4, options());
    let first = log.first_segment();
    assert!(world.snapshot().segments.keys().all(|segment| *segment >= first), "what was left over is removed");
    let end = log.assigned_lsn();
    write(&world, &log, &told, 10);
    log.release(end);
    wait_until(&world, "freed", || log.first_lsn() == end.next());
    world.run(async move { log.seal().await });
    let remains = world.crash();
    assert_eq!(check_kept(&remains, end, Lsn::new(end.get() + 11)), end.next());
    assert_eq!(recover(&remains).2.verdict(), &Verdict::Clean);
}

#[test]
fn a_file_that_is_not_removed_is_removed_with_the_next_release_or_when_the_log_is_opened() {
    let (world, _, log, places) = three_epochs(8, Faults { not_removed: 1000, ..Faults::default() });
    let used = log.metrics().used_bytes;
    let needed = first_needed(&places, Lsn::new(60));
    log.release(Lsn::new(60));
    wait_until(&world, "tried", || log.first_segment() == needed && !log.shared.release.borrow().is_busy());
    assert_eq!((log.metrics().freed_segments, log.metrics().used_bytes), (0, used));
    let left = world.snapshot();
    world.set_faults(Faults::default());
    log.release(Lsn::new(60));
    wait_until(&world, "removed", || log.metrics().freed_segments > 0);
    assert!(log.metrics().used_bytes < used);
    assert!(world.snapshot().segments.keys().all(|segment| *segment >= needed));
    check_life_after(left, Lsn::new(60));
}

#[test]
fn a_full_log_takes_data_again_after_a_release_even_after_a_restart() {
    let small = LogOptions { log_bytes_max: 4 * SEGMENT_BYTES, ..options() };
    let mut remains = Remains::default();
    for epoch in 1..6 {
        let world = World::new(remains.clone(), epoch, Faults::default(), false);
        let (told, log) = open(&world, recover(&remains).2, epoch, small);
        for round in 0..5 {
            let (_, refused) = fill(&world, &log, &told, RoomClass::Data);
            assert!(matches!(refused, NoRoom::Full { .. }), "{refused:?}");
            wait_until(&world, "durable", || log.durable_lsn() == log.assigned_lsn());
            let waiting = log.clone();
            log.release(log.durable_lsn());
            world.run(room_again(waiting));
            append(&log, &told, vec![7; 3_000], RoomClass::Data).unwrap();
            log.kick();
            assert!(log.metrics().used_bytes <= 4 * SEGMENT_BYTES, "round {round} of epoch {epoch}");
        }
        fill(&world, &log, &told, RoomClass::Data);
        remains = world.crash();
    }
}

#[test]
fn a_failed_superblock_is_fatal_and_frees_nothing() {
    let (world, told, log, places) = three_epochs(9, Faults::default());
    world.set_superblock_fails(true);
    log.release(Lsn::new(100));
    wait_until(&world, "failed", || told.fatal.get() == 1);
    assert_eq!(log.room(1, RoomClass::Control), Err(NoRoom::Closed));
    let remains = world.crash();
    assert!(places.iter().all(|(_, pos)| remains.segments.contains_key(&pos.segment)));
    assert_eq!(check_kept(&remains, Lsn::ZERO, Lsn::new(121)), Lsn::new(1));
}

#[test]
fn a_kept_segment_that_is_missing_after_a_release_is_reported() {
    let (world, _, log, places) = three_epochs(10, Faults::default());
    log.release(Lsn::new(50));
    wait_until(&world, "freed", || log.metrics().freed_segments > 0);
    let first = log.first_segment();
    let active = places.last().unwrap().1.segment;
    let mut kept: Vec<SegmentId> = places.iter().map(|(_, pos)| pos.segment).collect();
    kept.dedup();
    kept.retain(|segment| *segment >= first && *segment < active);
    assert!(kept.len() > 4);
    let remains = world.crash();
    for segment in kept {
        let mut bad = remains.clone();
        bad.segments.remove(&segment);
        let (_, _, recovered) = recover(&bad);
        assert!(matches!(recovered.verdict(), Verdict::Corrupt(_)), "{segment}: {:?}", recovered.verdict());
    }
}

#[test]
fn a_loss_that_was_accepted_is_no_new_one_when_the_segments_around_it_are_freed() {
    let (world, _, _, places) = three_epochs(11, Faults::default());
    let mut remains = world.crash();
    let (_, lost) = places[45];
    remains.segments.get_mut(&lost.segment).unwrap()[lost.offset as usize] ^= 1;
    let (_, _, recovered) = recover(&remains);
    assert!(matches!(recovered.verdict(), Verdict::Corrupt(_)));
    let mut firsts = Vec::new();
    for settled in (40..=60).filter(|number| number + 1 != 46).map(Lsn::new) {
        let world = World::new(remains.clone(), settled.get(), Faults::default(), false);
        let (_, log) = open(&world, recovered.clone().accept_loss(), 4, options());
        log.release(settled);
        wait_until(&world, "freed", || log.metrics().freed_segments > 0 && !log.shared.release.borrow().is_busy());
        firsts.push(log.first_lsn());
        let (_, lsns, again) = recover(&world.crash());
        assert!(!matches!(again.verdict(), Verdict::Corrupt(_)), "settled {settled}: {:?}", again.verdict());
        assert!(lsns.contains(&settled.next()) && lsns.contains(&Lsn::new(120)), "settled {settled}: {lsns:?}");
    }
    firsts.dedup();
    assert!(firsts.len() > 1, "{firsts:?}");
}

#[test]
fn many_restarts_of_a_log_that_is_settled_fill_neither_superblock_nor_disk() {
    let mut remains = Remains::default();
    for epoch in 1..200 {
        let world = World::new(remains.clone(), epoch, Faults::default(), false);
        let (_, _, recovered) = recover(&remains);
        assert_eq!(recovered.end_lsn(), Lsn::new(3 * (epoch - 1) + 1));
        let (told, log) = open(&world, recovered, epoch, options());
        let before = log.assigned_lsn();
        write(&world, &log, &told, 3);
        log.release(before);
        wait_until(&world, "freed", || log.first_lsn() == before.next());
        if epoch % 2 == 0 {
            world.run(async move { log.seal().await });
        }
        remains = world.crash();
        assert!(remains.segments.len() <= 4, "{:?}", remains.segments.keys());
    }
    assert!(recover(&remains).2.ends.superblock.unwrap().0.segments.len() <= 4);
}

/// One history with releases at random, whose lives end in crashes.
fn history_with_releases(seed: u64, faults: Faults, options: LogOptions) -> u64 {
    let mut draw = Draw::new(seed);
    let mut remains = Remains::default();
    let (mut truth, mut acked, mut settled, mut freed): (Vec<Vec<u8>>, _, _, _) = (Vec::new(), 0, Lsn::ZERO, 0);
    for epoch in 1..8 {
        let (entries, lsns, recovered) = recover(&remains);
        let (first, end) = (recovered.ends.first_lsn(), recovered.end_lsn());
        let verdict = recovered.verdict();
        assert!(!matches!(verdict, Verdict::Corrupt(_)), "seed {seed}, epoch {epoch}: {verdict:?}");
        assert!(first <= settled.next() && end.get() > acked, "seed {seed}: {first}..{end}, {settled}, {acked}");
        assert!(lsns.iter().map(|lsn| lsn.get()).eq(first.get()..end.get()), "seed {seed}: {first} {end} {lsns:?}");
        for (entry, lsn) in entries.iter().zip(&lsns) {
            assert!(entry == &truth[usize::try_from(lsn.get()).unwrap() - 1], "seed {seed}: entry {lsn}");
        }
        truth.truncate(usize::try_from(end.get()).unwrap() - 1);
        let world = World::new(remains, draw.next_number(), faults, options.sync == SyncMode::Fdatasync);
        let (told, opened) = start(&world, recovered, epoch, options);
        for _ in 0..draw.below(400) {
            world.step();
        }
        if let Some(log) = opened.take() {
            for _ in 0..1 + draw.below(4) {
                let turns = draw.below(25);
                live(&world, &log, &told, (epoch, turns), &mut draw);
                settled = settled.max(Lsn::new(draw.next_number() % told.durable.get().next().get()));
                log.release(settled);
                (0..draw.below(60)).for_each(|_| step(&world));
            }
            freed += log.metrics().freed_segments;
        }
        acked = told.durable.get().get();
        truth.extend(told.appended.take());
        remains = world.crash();
    }
    freed
}

#[test]
fn entries_that_are_not_settled_survive_crashes_whatever_is_released_meanwhile() {
    let faults = Faults { io_error: 2, short_write: 2, no_space: 100, not_removed: 200, ..Faults::default() };
    let mut freed = 0;
    for seed in 0..300 {
        freed += history_with_releases(seed, Faults::default(), options());
        freed += history_with_releases(seed, Faults::default(), LogOptions { inline_commit: true, ..options() });
        freed += history_with_releases(seed, faults, LogOptions { sync: SyncMode::Fdatasync, ..options() });
    }
    assert!(freed > 1_000, "{freed} segments were freed");
}
