use super::*;
use crate::recording::Recording;

/// A write of two sectors of one letter, behind what is written whole.
fn write(recording: &Recording, offset: u64, letter: u8) -> usize {
    let offset = WHOLE_BYTES + offset;
    recording.add(Event::Written { disk: 0, offset, content: Content::of(&[letter; 1024]) })
}

fn flush(recording: &Recording) {
    let came = recording.len();
    recording.add(Event::Flushed { disk: 0, came });
}

/// What is in four sectors of a disk, a letter a sector.
fn left(recording: &Recording, loss: Loss, seed: u64, lies_from: usize) -> String {
    let events = recording.events();
    let cut = Cut { at: events.len(), losses: vec![loss], lies_from, seed };
    let place = tempfile::NamedTempFile::new().expect("a file");
    lay(&cut.left(&events, 0), place.path(), WHOLE_BYTES + 2048).expect("a disk");
    let bytes = std::fs::read(place.path()).expect("the disk").split_off(4096);
    bytes.chunks(512).map(|sector| if sector[0] == 0 { '-' } else { char::from(sector[0]) }).collect()
}

fn all(recording: &Recording, loss: Loss) -> std::collections::BTreeSet<String> {
    (0..256).map(|seed| left(recording, loss, seed, usize::MAX)).collect()
}

#[test]
fn a_flush_covers_what_was_answered_before_it_came() {
    let recording = Recording::default();
    let answered = write(&recording, 0, b'a');
    recording.add(Event::Answered(answered));
    let came = recording.len();
    let late = write(&recording, 1024, b'b');
    recording.add(Event::Answered(late));
    assert_eq!(left(&recording, Loss::All, 0, usize::MAX), "----", "no flush came");
    recording.add(Event::Flushed { disk: 0, came });
    assert_eq!(left(&recording, Loss::All, 0, usize::MAX), "aa--", "the second was answered after it came");
    let lies_from = recording.len();
    flush(&recording);
    assert_eq!(left(&recording, Loss::All, 0, usize::MAX), "aabb");
    assert_eq!(left(&recording, Loss::All, 0, lies_from), "aa--", "it was a lie");
}

#[test]
fn a_flush_covers_nothing_that_is_unanswered_or_of_another_disk() {
    let recording = Recording::default();
    write(&recording, 0, b'a');
    flush(&recording);
    assert_eq!(left(&recording, Loss::All, 0, usize::MAX), "----", "a write that failed, or is under way");
    let answered = write(&recording, 0, b'b');
    recording.add(Event::Answered(answered));
    let came = recording.len();
    recording.add(Event::Flushed { disk: 1, came });
    assert_eq!(left(&recording, Loss::All, 0, usize::MAX), "----");
}

#[test]
fn every_loss_leaves_what_it_says_of_open_writes() {
    let recording = Recording::default();
    let under = write(&recording, 0, b'u');
    recording.add(Event::Answered(under));
    flush(&recording);
    for (offset, letter) in [(0, b'a'), (1024, b'b')] {
        let write = write(&recording, offset, letter);
        recording.add(Event::Answered(write));
    }
    let set = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    assert_eq!(all(&recording, Loss::All), set(&["uu--"]));
    assert_eq!(all(&recording, Loss::Nothing), set(&["aabb"]));
    assert_eq!(all(&recording, Loss::Some), set(&["uu--", "aa--", "uubb", "aabb"]));
    assert_eq!(all(&recording, Loss::First), set(&["uu--", "uubb", "aabb"]));
    assert_eq!(all(&recording, Loss::Torn).len(), 16, "{:?}", all(&recording, Loss::Torn));
}

#[test]
fn zeroes_that_are_kept_take_away_what_was_there() {
    let recording = Recording::default();
    for letter in [b'a', 0] {
        let write = write(&recording, 512, letter);
        recording.add(Event::Answered(write));
    }
    assert_eq!(all(&recording, Loss::Nothing).into_iter().next().expect("one"), "----");
    assert!(all(&recording, Loss::Some).contains("-aa-"));
}

#[test]
fn cuts_come_in_every_phase_and_lose_in_every_way() {
    let recording = Recording::default();
    for phase in ["one", "two", "three"] {
        recording.phase(phase);
        let write = write(&recording, 0, b'a');
        recording.add(Event::Answered(write));
        flush(&recording);
    }
    let events = recording.events();
    let cuts: Vec<Cut> = (0..15).map(|number| Cut::choose(&events, 2, number, number as u64)).collect();
    let seen: std::collections::BTreeSet<_> =
        cuts.iter().map(|cut| (cut.phase(&events), format!("{:?}", cut.losses[0]))).collect();
    assert_eq!(seen.len(), 15, "{seen:?}");
    assert!(cuts.iter().all(|cut| cut.at <= events.len() && cut.losses.len() == 2));
}

#[test]
fn the_first_block_is_not_torn_and_what_comes_behind_it_is() {
    let recording = Recording::default();
    let bytes = [[b'a'; 4096], [b'b'; 4096]].concat();
    recording.add(Event::Written { disk: 0, offset: 0, content: Content::of(&bytes) });
    let events = recording.events();
    let sizes = |seed| {
        let cut = Cut { at: events.len(), losses: vec![Loss::Torn], lies_from: usize::MAX, seed };
        let left = cut.left(&events, 0).into_iter();
        let below = |(offset, content): (u64, Content)| WHOLE_BYTES.saturating_sub(offset).min(content.bytes());
        left.map(below).sum::<u64>()
    };
    let seen: std::collections::BTreeSet<u64> = (0..64).map(sizes).collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, WHOLE_BYTES]);
}
