//! Is what was acked there after a loss of power, wherever it comes?

use tests::within;

use crate::alone::alone;
use crate::cut::{Cut, Loss};
use crate::disk::FileSystem;
use crate::known::{Fact, Known, What};
use crate::recording::Event;
use crate::rig::{Ground, Recorded, Rig};
use crate::stream::SESSIONS;
use crate::trial::{Choice, Sequel};

const RECORDING_SECONDS_MAX: u64 = 300;
/// Acks that each session gets between two things that are done to the star.
const ACKS: usize = 40;
/// Rounds of what is done after a loss.
const ROUNDS: usize = 12;
/// Losses in which a lie of a disk must show.
const BUDGET: usize = 8;
/// So many flushes are lies. Others come between the one that an ack stands on and the ack.
const LIES: [usize; 4] = [4, 8, 16, 32];

/// A star under load that is killed, stopped in order, and started again on the way.
fn record(ground: Ground, seed: u64) -> Recorded {
    let rig = Rig::new(ground).unwrap_or_else(|why| panic!("no disk that records here: {why}"));
    within(RECORDING_SECONDS_MAX, run(rig, seed))
}

async fn run(mut rig: Rig, seed: u64) -> Recorded {
    rig.recording().phase("the first writes");
    let mut load = rig.load(seed).await;
    load.run(&rig.client(), ACKS, || false).await;
    rig.recording().phase("a start after kill -9");
    rig.novad.kill9();
    rig.novad.restart();
    rig.recording().phase("writes after kill -9");
    load.run(&rig.client(), ACKS, || false).await;
    rig.recording().phase("a stop in order, and a start");
    rig.novad.sigterm();
    rig.novad.restart();
    rig.recording().phase("writes after a stop in order");
    load.run(&rig.client(), ACKS, || false).await;
    rig.cut_power()
}

#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn a_loss_of_power_on_ext4_takes_nothing_that_was_acked() {
    alone(|| {
        let choice = Choice::of("a_loss_of_power_on_ext4", 30);
        record(Ground::one(FileSystem::Ext4), choice.seed).try_all(choice);
    });
}

#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn a_loss_of_power_on_xfs_takes_nothing_that_was_acked() {
    alone(|| {
        let choice = Choice::of("a_loss_of_power_on_xfs", 20);
        record(Ground::one(FileSystem::Xfs), choice.seed).try_all(choice);
    });
}

/// Each disk loses in its own way, or one of them nothing at all.
#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn a_loss_of_power_of_a_star_and_of_its_store_on_another_disk_takes_nothing_that_was_acked() {
    alone(|| {
        let choice = Choice::of("a_loss_of_power_of_a_star_and_of_its_store", 20);
        record(Ground::two(FileSystem::Ext4), choice.seed).try_all(choice);
    });
}

/// The power goes again while the star finds out what the first loss left, and while it goes on from there.
#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn a_second_loss_of_power_takes_nothing_that_was_acked() {
    alone(|| {
        let choice = Choice::of("a_second_loss_of_power", 15);
        let first = record(Ground::one(FileSystem::Ext4), choice.seed);
        let phase = 1 + usize::try_from(choice.seed % 5).expect("a small number");
        let cut = Cut::choose(&first.events, 1, phase, choice.seed).losing(Loss::Torn);
        second(&first, &cut).try_all(choice);
    });
}

/// A star on what a loss left, whose power goes while it recovers and goes on.
fn second(first: &Recorded, cut: &Cut) -> Recorded {
    let mut known = Known::of(&first.events[..cut.at]);
    let rig = Rig::on(first.ground, &[cut.left(&first.events, 0)], known.clone());
    let mut rig = rig.unwrap_or_else(|why| panic!("{}", first.told(cut, &why)));
    let recording = rig.recording().clone();
    let go_on = async |rig: &Rig, known: &mut Known| -> Result<(), String> {
        known.check(&rig.novad.client()).await?;
        recording.add(Event::Knew(Box::new(known.clone())));
        for _ in 0..ROUNDS {
            let client = rig.novad.client();
            Sequel { client, known: &mut *known, recording: &recording, is_full: false }.go_on().await?;
        }
        Ok(())
    };
    let held = within(RECORDING_SECONDS_MAX, async {
        recording.phase("writes after a loss");
        go_on(&rig, &mut known).await?;
        recording.phase("a start after a loss and kill -9");
        rig.novad.kill9();
        rig.novad.restart();
        recording.phase("writes after a loss and kill -9");
        go_on(&rig, &mut known).await
    });
    held.unwrap_or_else(|why| panic!("{}", first.told(cut, &why)));
    rig.cut_power()
}

/// A disk that says that it has flushed and has not is the same as an ack before the flush: it must show.
#[test]
#[ignore = "it takes root, /dev/fuse and loop devices"]
fn a_disk_that_lies_about_flushes_is_found_out() {
    alone(|| {
        let choice = Choice::of("a_disk_that_lies_about_flushes", BUDGET);
        let recorded = record(Ground::one(FileSystem::Ext4), choice.seed);
        let lies = (0..choice.images).map(|number| lie(&recorded, number, choice));
        let found: Vec<String> = lies.filter_map(|cut| recorded.hold(&cut).err()).collect();
        eprintln!("{} of {} lies showed: {:#?}", found.len(), choice.images, first_lines(&found));
        assert!(found.iter().any(|why| why.contains("LOST")), "no lie showed as a loss: {found:?}");
    });
}

fn first_lines(texts: &[String]) -> Vec<&str> {
    texts.iter().filter_map(|text| text.lines().next()).collect()
}

/// The power goes just after an ack of an Express stream, and some flushes before it were lies: a few, or all of some time.
fn lie(recorded: &Recorded, number: usize, choice: Choice) -> Cut {
    let is_ack =
        |event: &Event| matches!(event, Event::Told(Fact::Of(place, What::Acked { .. })) if *place == SESSIONS[0]);
    let acks: Vec<usize> = (0..recorded.events.len()).filter(|at| is_ack(&recorded.events[*at])).collect();
    let ack = acks[(number % BUDGET + 1) * acks.len() / (BUDGET + 2)];
    let flushes = (0..ack).rev().filter(|at| matches!(recorded.events[*at], Event::Flushed { .. }));
    let lies_from = flushes.take(LIES[number % LIES.len()]).last().expect("flushes before an ack");
    Cut { at: ack + 1, losses: vec![Loss::All], lies_from, seed: choice.of_image(number) }
}
