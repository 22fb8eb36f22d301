//! Logs in memory that crash, fail and fill up; each run follows from its seed.

mod releases;
mod room;
mod simulation;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use wire::ids::SegmentId;
use wire::log_frame::{BLOCK_BYTES, FrameHeader};
use wire::segment::FRAMES_AT;

use super::*;
use crate::SyncMode;
use crate::core::space::{Blank, Space, SpaceLimits};
use crate::device::memory::{Draw, Faults, RecoveredRemains, Remains, World};
use crate::recovery::Verdict;

impl Log<World> {
    /// Goes on with a recovered log in memory, as [`Log::open`] does on a disk; the options are not checked, so
    /// that segments may be small.
    async fn open_in(
        world: World,
        options: LogOptions,
        recovered: RecoveredRemains,
        epoch: Epoch,
        calls: Calls,
    ) -> Result<Self, OpenError> {
        open::check(&recovered.ends, epoch)?;
        Self::open_on(world, options, recovered.ends, epoch, calls).await
    }
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        log_bytes_max: 64 << 20,
        commits_in_flight: 2,
        commit_start_bytes: 4 << 10,
        commit_bytes_max: 16 << 10,
        pending_bytes_max: 48 << 10,
        sync: SyncMode::Dsync,
        ready_segments: 1,
        idle_segments: 1,
        inline_commit: false,
    }
}

/// What one life of a log did.
#[derive(Debug, Default)]
struct Told {
    appended: RefCell<Vec<Vec<u8>>>,
    durable: Cell<Lsn>,
    calls: Cell<u64>,
    fatal: Cell<u64>,
}

type Opened = Rc<RefCell<Option<Log<World>>>>;

/// Starts to open a log; it stands in the second answer once enough steps were done.
fn start(world: &World, recovered: RecoveredRemains, epoch: u64, options: LogOptions) -> (Rc<Told>, Opened) {
    let told = Rc::new(Told { durable: Cell::new(Lsn::new(recovered.end_lsn().get() - 1)), ..Told::default() });
    let opened = Opened::default();
    let (on_durable, on_fatal, put) = (Rc::clone(&told), Rc::clone(&told), Rc::clone(&opened));
    let calls = Calls::new(
        move |lsn| {
            assert!(lsn > on_durable.durable.get(), "the durable LSN moves on with each call");
            assert_eq!(on_durable.fatal.get(), 0, "nothing is acked after a failure");
            on_durable.durable.set(lsn);
            on_durable.calls.set(on_durable.calls.get() + 1);
        },
        move |_| on_fatal.fatal.set(on_fatal.fatal.get() + 1),
    );
    let own = world.clone();
    crate::Device::spawn(world, async move {
        let log = Log::open_in(own, options, recovered, Epoch::new(epoch), calls).await;
        put.replace(log.ok());
    });
    (told, opened)
}

fn open(world: &World, recovered: RecoveredRemains, epoch: u64, options: LogOptions) -> (Rc<Told>, Log<World>) {
    let (told, opened) = start(world, recovered, epoch, options);
    while opened.borrow().is_none() {
        assert!(world.step(), "the log opens");
    }
    let log = opened.take().unwrap();
    (told, log)
}

fn entry(epoch: u64, number: usize, draw: &mut Draw) -> Vec<u8> {
    let bytes = match draw.below(20) {
        0 => draw.below(20_000),
        1..4 => draw.below(5_000),
        _ => draw.below(300),
    };
    let mut entry = format!("{epoch}/{number}/").into_bytes();
    let byte = u8::try_from(draw.below(256)).unwrap();
    entry.resize(entry.len() + bytes, byte);
    entry
}

fn append(log: &Log<World>, told: &Told, bytes: Vec<u8>, class: RoomClass) -> Result<(Lsn, EntryPos), NoRoom> {
    log.room(bytes.len(), class)?;
    let (lsn, pos, ()) = log.append(bytes.len(), |out| out.copy_from_slice(&bytes));
    told.appended.borrow_mut().push(bytes);
    Ok((lsn, pos))
}

/// Appends at random until `turns` are over, and sometimes seals.
fn live(world: &World, log: &Log<World>, told: &Told, (epoch, turns): (u64, usize), draw: &mut Draw) {
    for _ in 0..turns {
        for _ in 0..draw.below(6) {
            let number = told.appended.borrow().len();
            let class = if draw.happens(50) { RoomClass::Control } else { RoomClass::Data };
            let _ = append(log, told, entry(epoch, number, draw), class);
        }
        log.kick();
        let steps = if draw.happens(50) { 60 } else { draw.below(8) };
        for _ in 0..steps {
            world.step();
        }
    }
    if draw.happens(200) {
        let log = log.clone();
        world.run(async move { log.seal().await });
    }
}

fn recover(remains: &Remains) -> (Vec<Vec<u8>>, Vec<Lsn>, RecoveredRemains) {
    let (mut entries, mut lsns) = (Vec::new(), Vec::new());
    let recovered = remains
        .recover(&mut |entry| {
            let file = &remains.segments[&entry.pos.segment];
            let at = entry.pos.offset as usize;
            assert_eq!(&file[at..at + entry.pos.bytes as usize], entry.bytes, "the place is right");
            entries.push(entry.bytes.to_vec());
            lsns.push(entry.lsn);
        })
        .unwrap();
    (entries, lsns, recovered)
}

/// One history: lives that each end in a crash, some sealed before; answers the last remains, what was acked, and how many
/// lives there were.
fn history(seed: u64, faults: Faults, options: LogOptions) -> (Remains, Vec<Vec<u8>>) {
    let mut draw = Draw::new(seed);
    let mut remains = Remains::default();
    let mut truth: Vec<Vec<u8>> = Vec::new();
    let mut acked = 0;
    for epoch in 1..2 + draw.below(4) as u64 {
        let (entries, lsns, recovered) = recover(&remains);
        check_life(seed, (&truth, acked), &entries, &lsns, recovered.verdict());
        truth = entries;
        acked = truth.len();
        let world = World::new(remains, draw.next_number(), faults, options.sync == SyncMode::Fdatasync);
        let (told, opened) = start(&world, recovered, epoch, options);
        for _ in 0..draw.below(200) {
            world.step();
        }
        let turns = draw.below(60);
        if let Some(log) = opened.take() {
            live(&world, &log, &told, (epoch, turns), &mut draw);
        }
        acked = acked.max(usize::try_from(told.durable.get().get()).unwrap());
        truth.extend(told.appended.take());
        assert!(told.fatal.get() <= 1);
        remains = world.crash();
    }
    let (entries, lsns, recovered) = recover(&remains);
    check_life(seed, (&truth, acked), &entries, &lsns, recovered.verdict());
    truth.truncate(acked);
    (remains, truth)
}

fn check_life(seed: u64, (truth, acked): (&[Vec<u8>], usize), entries: &[Vec<u8>], lsns: &[Lsn], verdict: &Verdict) {
    assert!(!matches!(verdict, Verdict::Corrupt(_)), "seed {seed}: a crash is no corruption: {verdict:?}");
    assert!(entries.len() >= acked, "seed {seed}: {} of {acked} acked entries are there", entries.len());
    assert!(entries == &truth[..entries.len()], "seed {seed}: entries come back as they were appended, in order");
    assert!(lsns.iter().map(|lsn| lsn.get()).eq(1..=lsns.len() as u64), "seed {seed}: LSNs are dense");
}

#[test]
fn acked_entries_survive_crashes_in_order_and_nothing_older_comes_back() {
    let mut acked = 0;
    for seed in 0..1_000 {
        acked += history(seed, Faults::default(), options()).1.len();
    }
    assert!(acked > 20_000, "the runs did something: {acked} entries");
}

#[test]
fn the_same_holds_with_a_sync_after_each_write() {
    for seed in 0..400 {
        history(seed, Faults::default(), LogOptions { sync: SyncMode::Fdatasync, ..options() });
    }
}

#[test]
fn the_same_holds_with_commits_in_place_and_with_four_in_flight() {
    for seed in 0..300 {
        history(seed, Faults::default(), LogOptions { inline_commit: true, ..options() });
        history(seed, Faults::default(), LogOptions { commits_in_flight: 4, ..options() });
    }
}

#[test]
fn a_disk_that_fails_or_writes_short_or_fills_up_loses_nothing_that_was_acked() {
    let faults = Faults { io_error: 10, short_write: 10, no_space: 200, not_removed: 200, ..Faults::default() };
    for seed in 0..400 {
        history(seed, faults, LogOptions { sync: SyncMode::Fdatasync, ..options() });
    }
}

#[test]
fn one_seed_gives_one_history() {
    let (one, two) = (history(7, Faults::default(), options()), history(7, Faults::default(), options()));
    assert!(one.0.segments == two.0.segments && one.1 == two.1);
}

/// The highest durable LSN that stands in any frame of `remains` but those of block `but`.
fn told_on_disk(remains: &Remains, but: (SegmentId, usize)) -> Lsn {
    let mut told = Lsn::ZERO;
    for (&segment, bytes) in &remains.segments {
        for (block, at) in bytes.chunks(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES)) {
            if let Ok(header) = FrameHeader::decode(block)
                && (segment, at) != but
            {
                told = told.max(header.durable_lsn);
            }
        }
    }
    told
}

#[test]
fn a_flipped_bit_in_an_acked_region_is_reported_and_never_skipped() {
    let (mut reported, mut harmless, mut last_group) = (0, 0, 0);
    for seed in 0..1_000 {
        let (mut remains, acked) = history(seed, Faults::default(), options());
        let mut draw = Draw::new(seed ^ 0xF11B);
        let with_frames: Vec<SegmentId> =
            remains.segments.iter().filter(|(_, bytes)| bytes.len() > BLOCK_BYTES).map(|(&id, _)| id).collect();
        if with_frames.is_empty() {
            continue;
        }
        let segment = with_frames[draw.below(with_frames.len())];
        let bytes = remains.segments.get_mut(&segment).unwrap();
        let at = draw.below(bytes.len());
        bytes[at] ^= 1 << draw.below(8);
        let (entries, lsns, recovered) = recover(&remains);
        for (entry, lsn) in entries.iter().zip(&lsns) {
            let number = usize::try_from(lsn.get()).unwrap() - 1;
            assert!(acked.get(number).is_none_or(|acked| acked == entry), "seed {seed}: no entry is ever wrong");
        }
        let kept = |number: &usize| lsns.binary_search(&Lsn::new(*number as u64 + 1)).is_ok();
        let first_lost = (0..acked.len()).find(|number| !kept(number));
        match (recovered.verdict(), first_lost) {
            (Verdict::Corrupt(damages), Some(lost)) => {
                let lost = Lsn::new(lost as u64 + 1);
                assert!(damages.iter().any(|damage| damage.lsns.contains(&lost)), "seed {seed}: {damages:?} {lost}");
                reported += 1;
            }
            (_, None) => harmless += 1,
            (verdict, Some(lost)) => {
                let told = told_on_disk(&remains, (segment, at / BLOCK_BYTES * BLOCK_BYTES));
                assert!(told.get() <= lost as u64, "seed {seed}: {verdict:?} though {lost} was durable by {told}");
                last_group += 1;
            }
        }
    }
    assert!(reported > 200 && harmless > 100, "{reported} reported, {harmless} harmless, {last_group} undecidable");
    assert!(last_group * 10 < reported, "{reported} reported, {last_group} undecidable");
}

/// A log of some entries that was sealed; idle before, so that its heartbeat stands there.
fn sealed(entries: usize) -> (Remains, Vec<EntryPos>) {
    let world = World::new(Remains::default(), 1, Faults::default(), false);
    let (told, log) = open(&world, recover(&Remains::default()).2, 1, options());
    let mut places = Vec::new();
    for number in 0..entries {
        while log.room(200, RoomClass::Data).is_err() {
            assert!(world.step());
        }
        let (_, pos) = append(&log, &told, vec![b'x'; 100 + number], RoomClass::Data).unwrap();
        places.push(pos);
        log.kick();
        while log.durable_lsn() < log.assigned_lsn() {
            world.step();
        }
    }
    world.run(async move { log.seal().await });
    (world.crash(), places)
}

#[test]
fn a_sealed_log_is_clean_and_any_lost_entry_of_it_is_reported() {
    let (remains, places) = sealed(20);
    assert_eq!(recover(&remains).2.verdict(), &Verdict::Clean);
    for (number, pos) in places.iter().enumerate() {
        let mut bad = remains.clone();
        bad.segments.get_mut(&pos.segment).unwrap()[pos.offset as usize] ^= 1;
        let (entries, _, recovered) = recover(&bad);
        let Verdict::Corrupt(damages) = recovered.verdict() else {
            panic!("{:?}", recovered.verdict());
        };
        assert_eq!(damages[0].lsns, Lsn::new(number as u64 + 1)..Lsn::new(number as u64 + 2));
        assert_eq!(entries.len(), 19, "all others can still be read");
    }
}

#[test]
fn a_corrupt_log_is_not_written_to_until_the_loss_is_accepted() {
    let (mut remains, places) = sealed(20);
    remains.segments.get_mut(&places[4].segment).unwrap()[places[4].offset as usize] ^= 1;
    let (_, _, recovered) = recover(&remains);
    let world = World::new(remains, 2, Faults::default(), false);
    let (own, refused) = (world.clone(), recovered.clone());
    let answer = world.run(async move {
        Log::open_in(own, options(), refused, Epoch::new(2), Calls::new(|_| {}, |_| {})).await.map(drop)
    });
    assert!(matches!(answer, Err(OpenError::Corrupt { .. })), "{answer:?}");
    let (told, log) = open(&world, recovered.accept_loss(), 2, options());
    let (lsn, _) = append(&log, &told, b"after".to_vec(), RoomClass::Data).unwrap();
    assert_eq!(lsn, Lsn::new(21), "the number of a lost entry is not given again");
    world.run(async move { log.seal().await });
    let (entries, lsns, recovered) = recover(&world.crash());
    assert_eq!(recovered.verdict(), &Verdict::Clean);
    assert_eq!((entries.len(), entries[19].as_slice(), lsns[19]), (20, &b"after"[..], Lsn::new(21)));
}

#[test]
fn a_loss_at_the_end_of_a_segment_that_was_accepted_is_no_new_one() {
    let (remains, places) = sealed(40);
    let first = places.iter().rposition(|pos| pos.segment == places[0].segment).expect("it begins there");
    let mut bad = remains;
    bad.segments.get_mut(&places[first].segment).unwrap()[places[first].offset as usize] ^= 1;
    let (_, _, recovered) = recover(&bad);
    let lost = Lsn::new(first as u64 + 1);
    let Verdict::Corrupt(damages) = recovered.verdict() else { panic!("{:?}", recovered.verdict()) };
    assert_eq!(damages[0].lsns, lost..lost.next());
    let world = World::new(bad, 2, Faults::default(), false);
    let (_, log) = open(&world, recovered.accept_loss(), 2, options());
    drop(log);
    let mut remains = world.crash();
    let (_, lsns, recovered) = recover(&remains);
    assert!(matches!(recovered.verdict(), Verdict::Ended { .. }), "{:?}", recovered.verdict());
    assert_eq!((lsns.len(), lsns.contains(&lost)), (39, false));
    let next = places[first + 1];
    remains.segments.get_mut(&next.segment).unwrap()[next.offset as usize] ^= 1;
    let (_, _, recovered) = recover(&remains);
    let Verdict::Corrupt(damages) = recovered.verdict() else { panic!("{:?}", recovered.verdict()) };
    assert_eq!((damages.len(), damages[0].lsns.start), (1, lost.next()), "what is lost beside it is news");
}

#[test]
fn a_log_that_ends_with_its_segment_is_sealed_in_the_next_one() {
    let small = LogOptions { segment_bytes: 16 << 10, ..options() };
    let world = World::new(Remains::default(), 1, Faults::default(), false);
    let (told, log) = open(&world, recover(&Remains::default()).2, 1, small);
    while log.shared.pipeline.borrow().space.has_block() {
        while log.room(3_000, RoomClass::Data).is_err() {
            assert!(world.step());
        }
        append(&log, &told, vec![7; 3_000], RoomClass::Data).unwrap();
        log.kick();
        while log.durable_lsn() < log.assigned_lsn() {
            world.step();
        }
    }
    world.run(async move { log.seal().await });
    assert_eq!(recover(&world.crash()).2.verdict(), &Verdict::Clean);
}

#[test]
fn a_missing_segment_is_reported() {
    let (mut remains, places) = sealed(40);
    let second = places.iter().map(|pos| pos.segment).find(|&id| id > places[0].segment).expect("it has rolled");
    remains.segments.remove(&second);
    let (_, _, recovered) = recover(&remains);
    assert!(matches!(recovered.verdict(), Verdict::Corrupt(_)), "{:?}", recovered.verdict());
}

#[test]
fn a_stale_epoch_cannot_open_the_log() {
    let (remains, _) = sealed(3);
    let (_, _, recovered) = recover(&remains);
    let world = World::new(remains, 2, Faults::default(), false);
    let own = world.clone();
    let answer = world.run(async move {
        Log::open_in(own, options(), recovered, Epoch::new(1), Calls::new(|_| {}, |_| {})).await.map(drop)
    });
    assert!(matches!(answer, Err(OpenError::StaleEpoch { .. })), "{answer:?}");
}

#[test]
fn an_idle_log_writes_one_heartbeat_with_its_durable_lsn() {
    let world = World::new(Remains::default(), 3, Faults::default(), false);
    let (told, log) = open(&world, recover(&Remains::default()).2, 1, options());
    let (lsn, pos) = append(&log, &told, b"entry".to_vec(), RoomClass::Data).unwrap();
    log.kick();
    while log.metrics().heartbeats == 0 {
        assert!(world.step());
    }
    let own = world.clone();
    world.run(async move { crate::Device::sleep(&own, Duration::from_secs(1)).await });
    assert_eq!(log.metrics().heartbeats, 1);
    assert_eq!(told.durable.get(), lsn);
    let mut remains = world.crash();
    remains.segments.get_mut(&pos.segment).unwrap()[pos.offset as usize] ^= 1;
    assert!(matches!(recover(&remains).2.verdict(), Verdict::Corrupt(_)), "the only commit is covered");
}

fn fill(world: &World, log: &Log<World>, told: &Told, class: RoomClass) -> (usize, NoRoom) {
    let mut appended = 0;
    loop {
        match append(log, told, vec![7; 3_000], class) {
            Ok(_) => appended += 1,
            Err(NoRoom::Busy) => assert!(world.step(), "busy passes by itself"),
            Err(other) => return (appended, other),
        }
        log.kick();
    }
}

#[test]
fn a_full_log_refuses_data_and_still_takes_control_entries() {
    let world = World::new(Remains::default(), 4, Faults::default(), false);
    let small = LogOptions { log_bytes_max: 4 * (64 << 10), ..options() };
    let (told, log) = open(&world, recover(&Remains::default()).2, 1, small);
    let (data, refused) = fill(&world, &log, &told, RoomClass::Data);
    assert_eq!(refused, NoRoom::Full { used_bytes: 256 << 10, log_bytes_max: 256 << 10 });
    assert!(data > 30, "three segments took {data} entries");
    let (control, refused) = fill(&world, &log, &told, RoomClass::Control);
    assert!(control >= 10, "the reserve took {control} entries");
    assert_eq!(refused, NoRoom::Full { used_bytes: 256 << 10, log_bytes_max: 256 << 10 });
    assert!(append(&log, &told, vec![7], RoomClass::Data).is_err());
    world.run(async move { log.seal().await });
    let (entries, _, _) = recover(&world.crash());
    assert_eq!(entries.len(), data + control);
}

#[test]
fn a_full_log_is_full_again_after_a_restart() {
    let world = World::new(Remains::default(), 4, Faults::default(), false);
    let small = LogOptions { log_bytes_max: 4 * (64 << 10), ..options() };
    let (told, log) = open(&world, recover(&Remains::default()).2, 1, small);
    fill(&world, &log, &told, RoomClass::Data);
    fill(&world, &log, &told, RoomClass::Control);
    let mut remains = world.crash();
    for epoch in 2..5 {
        let world = World::new(remains.clone(), epoch, Faults::default(), false);
        let (told, log) = open(&world, recover(&remains).2, epoch, small);
        let (data, refused) = fill(&world, &log, &told, RoomClass::Data);
        assert!(data == 0 && matches!(refused, NoRoom::Full { .. }), "{data} entries in epoch {epoch}: {refused:?}");
        append(&log, &told, vec![7; 100], RoomClass::Control).unwrap();
        log.kick();
        world.run(async move { log.seal().await });
        remains = world.crash();
    }
}

#[test]
fn a_log_makes_no_more_segments_than_it_can_list_when_it_is_opened_again() {
    let limits = SpaceLimits {
        segment_bytes: 64 << 10,
        log_bytes_max: 1 << 40,
        segments_max: 3,
        ready_segments: 8,
        idle_segments: 8,
    };
    let mut space = Space::new(limits, Blank { segment: SegmentId::new(1), salt: 1 }, 64 << 10);
    let wishes: Vec<_> = std::iter::from_fn(|| space.take_wish(false)).collect();
    assert_eq!(wishes.len(), 3);
    space.on_not_made();
    space.on_retry();
    assert!(space.take_wish(false).is_some() && space.take_wish(false).is_none());
}

#[test]
fn an_idle_log_makes_more_segments_ahead_than_one_under_load() {
    let limits = SpaceLimits {
        segment_bytes: 64 << 10,
        log_bytes_max: 1 << 40,
        segments_max: 9,
        ready_segments: 1,
        idle_segments: 3,
    };
    let mut space = Space::new(limits, Blank { segment: SegmentId::new(1), salt: 1 }, 64 << 10);
    let made_while = |space: &mut Space, is_idle| std::iter::from_fn(|| space.take_wish(is_idle)).count();
    assert_eq!(made_while(&mut space, false), 2, "one, and the reserve");
    assert_eq!(made_while(&mut space, true), 2);
    assert_eq!(made_while(&mut space, false), 0);
}

#[test]
fn a_disk_without_space_refuses_and_goes_on_when_there_is_space_again() {
    let world = World::new(Remains::default(), 5, Faults::default(), false);
    let (told, log) = open(&world, recover(&Remains::default()).2, 1, options());
    world.set_faults(Faults { no_space: 1000, ..Faults::default() });
    let (_, refused) = fill(&world, &log, &told, RoomClass::Data);
    assert!(matches!(refused, NoRoom::Full { .. }), "{refused:?}");
    assert_eq!(told.fatal.get(), 0);
    world.set_faults(Faults::default());
    let own = log.clone();
    world.run(async move {
        while own.room(3_000, RoomClass::Data).is_err() {
            own.wait_for_room().await.unwrap()
        }
    });
    append(&log, &told, vec![7; 3_000], RoomClass::Data).unwrap();
}

#[test]
fn too_much_pending_is_busy_and_passes() {
    let world = World::new(Remains::default(), 6, Faults::default(), false);
    let (told, log) = open(&world, recover(&Remains::default()).2, 1, options());
    while append(&log, &told, vec![7; 3_000], RoomClass::Data).is_ok() {}
    assert_eq!(log.room(3_000, RoomClass::Data), Err(NoRoom::Busy));
    log.kick();
    world.run(async move {
        while log.room(3_000, RoomClass::Data).is_err() {
            log.wait_for_room().await.unwrap()
        }
    });
}

#[test]
fn an_error_is_fatal_once_and_nothing_is_acked_after() {
    for faults in [Faults { io_error: 1000, ..Faults::default() }, Faults { short_write: 1000, ..Faults::default() }] {
        let world = World::new(Remains::default(), 8, Faults::default(), false);
        let (told, log) = open(&world, recover(&Remains::default()).2, 1, options());
        append(&log, &told, b"good".to_vec(), RoomClass::Data).unwrap();
        log.kick();
        while told.durable.get() == Lsn::ZERO {
            world.step();
        }
        world.set_faults(faults);
        append(&log, &told, vec![1; 9_000], RoomClass::Data).unwrap();
        log.kick();
        append(&log, &told, vec![2; 9_000], RoomClass::Data).unwrap();
        log.kick();
        while world.step() {}
        assert_eq!((told.fatal.get(), told.durable.get()), (1, Lsn::new(1)));
        assert_eq!(log.room(1, RoomClass::Control), Err(NoRoom::Closed));
        world.run(async move { log.seal().await });
        let (entries, _, recovered) = recover(&world.crash());
        assert_eq!(entries[0], b"good");
        assert!(matches!(recovered.verdict(), Verdict::Ended { .. }), "{:?}", recovered.verdict());
    }
}

#[test]
fn the_longest_entry_goes_alone_in_a_commit_of_its_own() {
    let world = World::new(Remains::default(), 9, Faults::default(), false);
    let large = LogOptions { segment_bytes: 8 << 20, pending_bytes_max: 8 << 20, ..options() };
    let (told, log) = open(&world, recover(&Remains::default()).2, 1, large);
    let longest = wire::log_frame::ENTRY_BYTES_MAX;
    let (_, small) = append(&log, &told, vec![1; 10], RoomClass::Data).unwrap();
    let (_, long) = append(&log, &told, vec![2; longest], RoomClass::Data).unwrap();
    assert_eq!((small.offset / 4096, long.offset / 4096), (FRAMES_AT / 4096, FRAMES_AT / 4096 + 1));
    world.run(async move { log.seal().await });
    let (entries, _, _) = recover(&world.crash());
    assert_eq!((entries.len(), entries[1].len()), (2, longest));
}

proptest::proptest! {
    #[test]
    fn any_bytes_in_the_files_are_survived(
        changes in proptest::collection::vec((0usize..1 << 20, proptest::prelude::any::<u8>()), 1..60),
        (cut, in_superblock) in (0usize..200, proptest::prelude::any::<bool>()),
    ) {
        thread_local!(static SEALED: Remains = sealed(40).0);
        let mut remains = SEALED.with(Clone::clone);
        let last = *remains.segments.keys().next_back().unwrap();
        remains.segments.get_mut(&last).unwrap().truncate(cut * BLOCK_BYTES);
        let ids: Vec<SegmentId> = remains.segments.keys().copied().collect();
        for (at, byte) in changes {
            let file = match in_superblock {
                true => &mut remains.superblock,
                false => remains.segments.get_mut(&ids[at % ids.len()]).unwrap(),
            };
            let len = file.len().max(1);
            if let Some(place) = file.get_mut(at % len) {
                *place = byte;
            }
        }
        let mut next = Lsn::new(1);
        let recovered = remains.recover(&mut |entry| {
            assert!(entry.lsn >= next, "LSNs only go up");
            next = entry.lsn.next();
        });
        if let Ok(recovered) = recovered {
            proptest::prop_assert!(recovered.end_lsn() >= next);
        }
    }
}
