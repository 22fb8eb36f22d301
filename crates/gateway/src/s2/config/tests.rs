//! What is left out, what is cleared and what is set.

use super::*;

fn stream(json: &str) -> StreamJson {
    serde_json::from_str(json).unwrap()
}

fn basin(json: &str) -> BasinJson {
    serde_json::from_str(json).unwrap()
}

fn message<T: std::fmt::Debug>(refused: Result<T>) -> String {
    let Err(Failure::Coded { message, .. }) = refused else { panic!("{refused:?}") };
    message
}

#[test]
fn a_create_takes_what_is_left_out_from_the_basin_and_the_basin_from_s2() {
    let Wanted(defaults) = basin(r#"{"default_stream_config":{"storage_class":"express"}}"#).created().unwrap();
    assert_eq!((defaults.class, defaults.retention.max_age_ms), (Class::Express, AGE_DEFAULT_MS));
    assert!(defaults.retention.by_arrival);
    let json = r#"{"retention_policy":{"infinite":{}},"timestamping":{"uncapped":true},"storage_class":null}"#;
    let wanted = stream(json).created(&defaults).unwrap();
    assert_eq!((wanted.0.class, wanted.0.retention.max_age_ms), (Class::Express, 0));
    assert!(wanted.0.timestamping.uncapped);
    assert!(!wanted.is(&wanted.patch().fill(&defaults)), "a create can't take the age away");
    assert!(wanted.is(&wanted.patch().apply(&defaults)));
    assert_eq!(wanted.0.check(), Ok(()));
}

#[test]
fn the_configuration_of_the_benchmark_is_taken() {
    let json = r#"{"retention_policy":{"age":3600},"delete_on_empty":{"min_age_secs":60},
        "timestamping":{"mode":"client-require","uncapped":true}}"#;
    let Wanted(config) = stream(json).created(&built_in()).unwrap();
    assert_eq!(config.check(), Ok(()), "age by arrival goes with stamps of any scale");
    assert_eq!(config.delete_on_empty_ms, 60_000);
    let shown = show(&config);
    assert_eq!(shown["retention_policy"]["age"], 3600);
    assert_eq!(shown["timestamping"], json!({ "mode": "client-require", "uncapped": true }));
}

#[test]
fn a_change_clears_what_is_null_and_leaves_what_is_not_there() {
    let defaults = built_in();
    let set = r#"{"storage_class":"express","retention_policy":{"age":5},"timestamping":{"mode":"arrival"},
        "delete_on_empty":{"min_age_secs":7}}"#;
    let Wanted(config) = stream(set).created(&defaults).unwrap();
    let same = |json: &str| stream(json).changed(&config, &defaults).unwrap().0;
    assert_eq!(same("{}"), config);
    assert_eq!(same(r#"{"timestamping":{}}"#), config);
    assert_eq!(same(r#"{"timestamping":{"mode":null}}"#).timestamping.mode, TimestampingMode::ClientPrefer);
    assert_eq!(same(r#"{"retention_policy":null}"#).retention, defaults.retention);
    assert_eq!(same(r#"{"delete_on_empty":{"min_age_secs":0}}"#).delete_on_empty_ms, 0);
    let cleared = r#"{"storage_class":null,"retention_policy":null,"timestamping":null,"delete_on_empty":null}"#;
    assert_eq!(same(cleared), defaults);
    let cleared = basin(r#"{"default_stream_config":null,"create_stream_on_append":true}"#);
    assert_eq!(cleared.changed(&config).unwrap().0, built_in());
    assert_eq!(cleared.flags(), (Some(true), None));
}

#[test]
fn values_that_cant_be_are_refused_by_name() {
    let wrong = |json: &str| message(stream(json).created(&built_in()));
    assert!(wrong(r#"{"retention_policy":{"age":0}}"#).contains("0 seconds"));
    assert!(wrong(r#"{"storage_class":"native"}"#).contains("'native'"));
    assert!(wrong(r#"{"delete_on_empty":{"min_age_secs":18446744073709551615}}"#).contains("out of range"));
    assert!(message(basin(r#"{"stream_cipher":"aegis-256"}"#).check()).contains("aegis-256"));
    assert!(basin(r#"{"stream_cipher":null}"#).check().is_ok());
}
