//! What weighs most is found among many.

use super::*;

fn id(number: u8) -> StreamId {
    StreamId::from_bytes([number; 16])
}

/// Rows that are told, the heaviest first.
fn rows(heaviest: &Heaviest) -> Vec<u32> {
    heaviest.told().into_iter().map(|(row, ..)| row).collect()
}

#[test]
fn what_is_appended_now_and_then_is_counted_as_it_is() {
    let mut heaviest = Heaviest::new();
    for _ in 0..3 {
        heaviest.note(1, id(1), 400);
        heaviest.note(2, id(2), 800);
        heaviest.note(3, id(3), 0);
    }
    let bytes: Vec<u64> = heaviest.places.iter().map(|place| place.bytes).collect();
    assert_eq!(bytes.iter().sum::<u64>(), 3_600);
    assert_eq!(rows(&heaviest), [2, 1], "a stream without content weighs nothing");
}

#[test]
fn under_load_few_are_sampled_and_the_heavy_are_found_in_their_order() {
    let mut heaviest = Heaviest::new();
    // Thousands of light streams that take turns with three heavy ones.
    for turn in 0..200_000_u32 {
        let light = 100 + turn % 5_000;
        heaviest.note(light, id(9), 100);
        for (row, every) in [(1, 1), (2, 2), (3, 4_u32)] {
            if turn.is_multiple_of(every) {
                heaviest.note(row, id(1), 1_000);
            }
        }
    }
    assert_eq!(rows(&heaviest)[..3], [1, 2, 3]);
    assert!(heaviest.stride > 10_000, "{}", heaviest.stride);
    assert!(heaviest.places.len() <= PLACES && heaviest.told().len() <= TOLD_MAX);
    let (told, real) = (heaviest.told()[0].2 * FADES, 200_000_000);
    assert!(told > real / 2 && told < real * 3 / 2, "{told} of {real}");
}

#[test]
fn what_is_appended_no_more_fades_and_is_forgotten() {
    let mut heaviest = Heaviest::new();
    heaviest.note(1, id(1), 1_000_000);
    heaviest.fade();
    heaviest.note(2, id(2), 900_000);
    assert_eq!(rows(&heaviest), [2, 1], "the newer one weighs more");
    (0..100).for_each(|_| heaviest.fade());
    assert_eq!((rows(&heaviest), heaviest.places.len(), heaviest.stride), (Vec::new(), 0, 1));
}

#[test]
fn a_constant_rate_is_told_as_it_is() {
    let mut heaviest = Heaviest::new();
    for _ in 0..60 {
        heaviest.fade();
        heaviest.note(1, id(1), 8_000);
    }
    let told = heaviest.told()[0].2;
    assert!((7_900..=8_000).contains(&told), "{told}");
}

#[test]
fn a_row_that_went_to_another_stream_is_another() {
    let mut heaviest = Heaviest::new();
    heaviest.note(1, id(1), 1_000);
    heaviest.note(1, id(2), 3_000);
    let ids: Vec<StreamId> = heaviest.told().into_iter().map(|(_, stream_id, _)| stream_id).collect();
    assert_eq!(ids, [id(2), id(1)]);
}
