//! Does a star whose disk fails, or has no room, stop or refuse, and is what it acked there after the next start?

use std::time::{Duration, Instant};

use tests::within;

use crate::alone::alone;
use crate::cut::{Cut, Loss};
use crate::device::Fault;
use crate::disk::FileSystem;
use crate::known::Known;
use crate::load::Load;
use crate::rig::{Ground, Recorded, Rig};
use crate::trial::Choice;

const SECONDS_MAX: u64 = 300;
/// Acks that each session gets before the disk fails, and after a failure that a star may live through.
const ACKS: usize = 8;
/// A star whose disk takes nothing any more has ended by then.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
/// Appends that are refused on a full disk before the power goes.
const REFUSED: usize = 20;
const IMAGES: usize = 5;

async fn loaded(rig: &Rig, seed: u64) -> Load {
    rig.recording().phase("the first writes");
    let mut load = rig.load(seed).await;
    load.run(&rig.client(), ACKS, || false).await;
    load
}

fn rig(kind: FileSystem) -> Rig {
    Rig::new(Ground::one(kind)).unwrap_or_else(|why| panic!("no disk that records here: {why}"))
}

/// What a disk holds after a fault, with the power gone during it and at its end.
fn hold(recorded: &Recorded, choice: Choice) {
    let chosen = |number| Cut::choose_late(&recorded.events, 1, number, choice.of_image(number));
    let chosen = (0..choice.images).map(chosen);
    let ends = [Loss::All, Loss::Nothing, Loss::Torn].map(|loss| Cut {
        at: recorded.events.len(),
        losses: vec![loss],
        lies_from: usize::MAX,
        seed: choice.seed,
    });
    recorded.try_each(choice, chosen.chain(ends));
}

/// A disk that takes nothing any more ends its star, which does not pretend to be well when it is started again there.
fn ends_the_star(test: &'static str, kind: FileSystem, fault: Fault) {
    alone(|| {
        let choice = Choice::of(test, IMAGES);
        let mut rig = rig(kind);
        let recorded = within(SECONDS_MAX, async {
            let mut load = loaded(&rig, choice.seed).await;
            rig.recording().phase("a disk that fails");
            rig.fail(fault);
            let until = Instant::now() + ENDS_WITHIN;
            let client = rig.client();
            load.run(&client, usize::MAX, || !rig.novad.is_alive() || Instant::now() > until).await;
            assert!(!rig.novad.is_alive(), "it goes on while its disk takes nothing: {}", rig.novad.log());
            let ended = rig.novad.wait();
            assert!(!ended.success(), "{ended}: {}", rig.novad.log());
            start_there(&mut rig).await;
            rig.cut_power()
        });
        hold(&recorded, choice);
    });
}

/// The disk still fails: a start there is refused, or serves what it has.
async fn start_there(rig: &mut Rig) {
    match rig.novad.try_restart() {
        Err(ended) => {
            eprintln!("a start there: {}", ended.line);
            assert!(ended.code != Some(0) && !ended.line.is_empty(), "{ended:?}");
        }
        Ok(()) => {
            let mut known = Known::of(&rig.recording().events());
            let held = known.check(&rig.client()).await;
            held.unwrap_or_else(|why| panic!("{why}\n{}", rig.novad.log()));
        }
    }
}

#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn flushes_that_fail_end_a_star_on_ext4_and_take_nothing_that_was_acked() {
    ends_the_star("flushes_that_fail_end_a_star_on_ext4", FileSystem::Ext4, Fault::Flushes);
}

#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn flushes_that_fail_end_a_star_on_xfs_and_take_nothing_that_was_acked() {
    ends_the_star("flushes_that_fail_end_a_star_on_xfs", FileSystem::Xfs, Fault::Flushes);
}

#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn writes_that_fail_end_a_star_and_take_nothing_that_was_acked() {
    ends_the_star("writes_that_fail_end_a_star", FileSystem::Ext4, Fault::Writes);
}

/// A disk that promised more than it has: the file system thinks that there is room, and there is none.
#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn a_disk_that_has_less_room_than_it_says_ends_a_star_and_takes_nothing_that_was_acked() {
    ends_the_star("a_disk_that_has_less_room_than_it_says", FileSystem::Ext4, Fault::Room);
}

/// Whose flush it is that fails, the star's or the file system's, is left to chance.
#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn one_flush_that_fails_takes_nothing_that_was_acked() {
    alone(|| {
        let choice = Choice::of("one_flush_that_fails", IMAGES);
        let mut rig = rig(FileSystem::Ext4);
        let recorded = within(SECONDS_MAX, async {
            let mut load = loaded(&rig, choice.seed).await;
            rig.recording().phase("a flush that fails");
            rig.fail(Fault::NextFlush);
            let client = rig.client();
            load.run(&client, ACKS, || !rig.novad.is_alive()).await;
            eprintln!("the star {}", if rig.novad.is_alive() { "goes on" } else { "ended" });
            rig.cut_power()
        });
        hold(&recorded, choice);
    });
}

/// Others take all room: records are refused, and a start on what a loss of power leaves of that has all that was acked.
#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn a_full_disk_that_loses_its_power_has_all_that_was_acked() {
    alone(|| {
        let choice = Choice::of("a_full_disk_that_loses_its_power", 2 * IMAGES);
        let rig = rig(FileSystem::Ext4);
        let mut recorded = within(SECONDS_MAX, async {
            let mut load = loaded(&rig, choice.seed).await;
            rig.recording().phase("a full disk");
            rig.fill(0, 1 << 20);
            let refused = load.refused();
            load.run(&rig.client(), usize::MAX, || refused.get() >= REFUSED).await;
            rig.cut_power()
        });
        recorded.is_full = true;
        hold(&recorded, choice);
    });
}
