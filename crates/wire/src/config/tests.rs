//! What a create, an update and a reconfigure make of a configuration.

use super::*;

fn strict() -> StreamConfig {
    StreamConfig {
        class: Class::Express,
        retention: Retention { max_age_ms: 1000, by_arrival: false, max_bytes: 5 },
        batch: BatchPolicy { max_bytes: 1, max_records: 2, max_delay_ms: 3 },
        throughput_max_bytes_per_second: 9,
        ..StreamConfig::default()
    }
}

#[test]
fn a_create_cannot_set_a_scalar_back_to_zero_and_a_reconfigure_can() {
    let zero = ConfigPatch {
        retention_max_age_ms: Some(0),
        throughput_max_bytes_per_second: Some(0),
        ..ConfigPatch::default()
    };
    assert_eq!(zero.fill(&strict()), strict());
    let relaxed = zero.apply(&strict());
    assert_eq!((relaxed.retention.max_age_ms, relaxed.retention.max_bytes), (0, 5));
    assert_eq!(relaxed.throughput_max_bytes_per_second, 0);
}

#[test]
fn uncapped_and_age_exclude_each_other_on_the_merged_configuration() {
    let uncapped = ConfigPatch { timestamping_uncapped: Some(true), ..ConfigPatch::default() };
    assert_eq!(uncapped.fill(&strict()).check(), Err(ConfigError::UncappedWithAge { max_age_ms: 1000 }));
    assert_eq!(uncapped.fill(&StreamConfig::default()).check(), Ok(()));
    let by_arrival = ConfigPatch { retention_by_arrival: Some(true), ..uncapped };
    assert_eq!(by_arrival.fill(&strict()).check(), Ok(()), "arrivals follow the wall clock");
}

#[test]
fn what_was_stamped_uncapped_excludes_an_age_by_stamps_whatever_the_mode_is_now() {
    assert_eq!(strict().check_over(false), Ok(()));
    assert_eq!(strict().check_over(true), Err(ConfigError::AgeAfterUncapped { max_age_ms: 1000 }));
    let by_arrival = ConfigPatch { retention_by_arrival: Some(true), ..ConfigPatch::default() };
    assert_eq!(by_arrival.apply(&strict()).check_over(true), Ok(()));
    assert_eq!(StreamConfig::default().check_over(true), Ok(()));
    let uncapped = ConfigPatch { timestamping_uncapped: Some(true), ..ConfigPatch::default() }.apply(&strict());
    assert_eq!(uncapped.check_over(false), Err(ConfigError::UncappedWithAge { max_age_ms: 1000 }));
}

#[test]
fn only_retention_changes_without_a_hand_off() {
    let retention = ConfigPatch { retention_max_bytes: Some(7), ..ConfigPatch::default() };
    assert!(!strict().needs_hand_off(&retention.apply(&strict())));
    let empty = ConfigPatch { delete_on_empty_ms: Some(7), retention_by_arrival: Some(true), ..ConfigPatch::default() };
    assert!(!strict().needs_hand_off(&empty.apply(&strict())));
    let class = ConfigPatch { class: Some(Class::Standard), ..ConfigPatch::default() };
    assert!(strict().needs_hand_off(&class.apply(&strict())));
}

#[test]
fn the_bytes_of_a_configuration_are_golden() {
    let mut golden = [0; CONFIG_BYTES];
    golden[..4].copy_from_slice(&[1, 1, 1, 0]);
    golden[4] = 1;
    golden[8] = 2;
    golden[12] = 3;
    golden[16..18].copy_from_slice(&[0xe8, 3]);
    golden[24] = 5;
    golden[32] = 9;
    assert_eq!(strict().to_bytes(), golden);
    assert_eq!(StreamConfig::from_bytes(&golden), Ok(strict()));
}

#[test]
fn a_patch_comes_back_as_it_was() {
    let patch = ConfigPatch {
        class: Some(Class::Express),
        timestamping_uncapped: Some(false),
        batch_max_delay_ms: Some(0),
        retention_by_arrival: Some(true),
        delete_on_empty_ms: Some(60_000),
        ..ConfigPatch::default()
    };
    assert_eq!(ConfigPatch::from_bytes(&patch.to_bytes()), Ok(patch));
    let mut unknown = patch.to_bytes();
    unknown[1] = 0x80;
    assert!(ConfigPatch::from_bytes(&unknown).is_err());
    let mut bad = patch.to_bytes();
    bad[4] = 9;
    assert_eq!(ConfigPatch::from_bytes(&bad), Err(ConfigError::Bytes { at: 0, value: 9 }));
}
