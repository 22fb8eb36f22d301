use std::time::Duration;

use clap::{CommandFactory, Parser};
use wire::config::{Class, ConfigPatch, ProducerPolicy, TimestampingMode};

use super::{BucketCommand, Command, Format, Nova, Output, StreamCommand};
use crate::usage::{Told, told};

fn parse(line: &str) -> Nova {
    Nova::try_parse_from(words(line)).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// What the command line is refused with.
fn check(line: &str) -> String {
    let error = Nova::try_parse_from(words(line)).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{line}");
    match told(&error, "nova") {
        Told::Wrong(text) => {
            assert!(!text.contains('\n'), "one line: {text}");
            text
        }
        other => panic!("{line}: {other:?}"),
    }
}

fn words(line: &str) -> Vec<String> {
    std::iter::once("nova").chain(line.split_whitespace()).map(str::to_owned).collect()
}

#[test]
fn the_command_line_is_consistent() {
    Nova::command().debug_assert();
}

#[test]
fn an_amount_may_have_a_unit() {
    let line =
        "stream create nova://demo/x --retention-max-age-ms 7d --retention-max-bytes 64MiB --batch-max-bytes 4KiB";
    let Command::Stream(StreamCommand::Create(args)) = parse(line).command else { panic!("not a create") };
    let patch = args.config.0;
    assert_eq!((patch.retention_max_age_ms, patch.retention_max_bytes), (Some(604_800_000), Some(64 << 20)));
    assert_eq!(patch.batch_max_bytes, Some(4096));
    let narrow = check("stream create nova://demo/x --batch-max-bytes 4GiB");
    assert!(narrow.contains("4294967296 is more than 4294967295"), "{narrow}");
    let counted = check("stream create nova://demo/x --batch-max-records 1KiB");
    assert!(counted.contains("no whole number"), "{counted}");
}

#[test]
fn a_bucket_takes_the_fields_of_its_streams_with_default_in_front() {
    let line = "bucket create ledger --create-on-append --create-on-read=false --location eu \
        --creation-token t --default-class standard --default-producer-policy fenced \
        --default-timestamping-mode arrival --default-timestamping-uncapped \
        --default-retention-max-age-ms 1 --default-retention-max-bytes 2 --default-retention-by-arrival \
        --default-delete-on-empty-ms 7 --default-batch-max-bytes 3 \
        --default-batch-max-records 4 --default-batch-max-delay-ms 5 \
        --default-throughput-max-bytes-per-second 6";
    let Command::Bucket(BucketCommand::Create(args)) = parse(line).command else { panic!("not a create") };
    assert_eq!(args.bucket.name.as_str(), "ledger");
    assert_eq!(args.switches.create_on_append, Some(true));
    assert_eq!(args.switches.create_on_read, Some(false));
    assert_eq!((args.location.as_str(), args.creation_token.as_str()), ("eu", "t"));
    let expected = ConfigPatch {
        class: Some(Class::Standard),
        producer_policy: Some(ProducerPolicy::Fenced),
        timestamping_mode: Some(TimestampingMode::Arrival),
        timestamping_uncapped: Some(true),
        retention_max_age_ms: Some(1),
        retention_max_bytes: Some(2),
        retention_by_arrival: Some(true),
        delete_on_empty_ms: Some(7),
        batch_max_bytes: Some(3),
        batch_max_records: Some(4),
        batch_max_delay_ms: Some(5),
        throughput_max_bytes_per_second: Some(6),
    };
    assert_eq!(args.defaults.0, expected);
}

#[test]
fn what_a_reconfigure_does_not_say_is_absent_and_zero_is_zero() {
    let line = "stream reconfigure nova://demo/a/b --retention-max-bytes 0 --timestamping-uncapped=false";
    let Command::Stream(StreamCommand::Reconfigure(args)) = parse(line).command else { panic!("not a reconfigure") };
    assert_eq!(args.stream.address.key.as_str(), "a/b");
    let expected =
        ConfigPatch { retention_max_bytes: Some(0), timestamping_uncapped: Some(false), ..ConfigPatch::default() };
    assert_eq!(args.config.0, expected);
}

#[test]
fn an_append_takes_its_token_match_and_linger() {
    let line =
        "append nova://demo/e --format json --base64 --fencing-token gen-42 --match-seq-num 7 --linger 5 --output json";
    let nova = parse(line);
    assert_eq!(nova.global.output, Output::Json);
    let Command::Append(args) = nova.command else { panic!("not an append") };
    assert_eq!(args.format, Format::Json);
    assert!(args.base64);
    assert_eq!(args.fencing_token.unwrap().as_str(), "gen-42");
    assert_eq!(args.match_seq_num, Some(7));
    assert_eq!(args.linger, Duration::from_millis(5));
}

#[test]
fn the_global_flags_stand_before_or_after_the_command() {
    let before = parse("--addr a:1,b:2 --output json tail nova://demo/e").global;
    let after = parse("tail nova://demo/e --addr a:1,b:2 --output json").global;
    assert_eq!(before.addr, ["a:1", "b:2"]);
    assert_eq!((before.addr, before.output), (after.addr, after.output));
}

#[test]
fn a_start_is_one_of_three() {
    let Command::Read(args) = parse("read nova://demo/e --from-ms -5 --clamp --limit 3").command else {
        panic!("not a read")
    };
    assert_eq!((args.start.from_ms, args.start.clamp, args.limit), (Some(-5), true, Some(3)));
    let error = check("read nova://demo/e --from 1 --last 2");
    assert!(error.contains("cannot be used with"), "{error}");
}

#[test]
fn a_trim_needs_one_place_to_go_to() {
    assert!(matches!(parse("trim nova://demo/e 1000").command, Command::Trim(args) if args.seq_num == Some(1000)));
    assert!(matches!(parse("trim nova://demo/e --from-ms 9").command, Command::Trim(args) if args.from_ms == Some(9)));
    assert!(check("trim nova://demo/e").contains("required"));
    assert!(check("trim nova://demo/e 1 --from-ms 2").contains("cannot be used with"));
}

#[test]
fn a_fence_without_a_token_clears() {
    assert!(matches!(parse("fence nova://demo/e").command, Command::Fence(args) if args.token.is_empty()));
}

#[test]
fn names_that_are_none_are_told_with_their_rule() {
    assert!(check("tail demo/e").contains("nova://bucket/key"));
    assert!(check("tail nova://demo").contains("nova://bucket/key"));
    assert!(check("tail nova://DEMO/e").contains("a-z, 0-9"));
    assert!(check("bucket get xy").contains("3 to 63"));
    let key = "k".repeat(513);
    assert!(check(&format!("tail nova://demo/{key}")).contains("513 bytes"));
    let token = "t".repeat(37);
    assert!(check(&format!("fence nova://demo/e {token}")).contains("37 bytes"));
    assert!(check(&format!("append nova://demo/e --fencing-token {token}")).contains("at most 36"));
    assert!(check("append nova://demo/e --linger 1001").contains("1000"));
    assert!(check("bucket create demo --default-class fast").contains("express"));
    assert!(check("stream create nova://demo/e --batch-max-records 4294967296").contains("4294967295"));
}

#[test]
fn a_list_asks_for_no_more_than_is_wanted() {
    let Command::Bucket(BucketCommand::List(page)) = parse("bucket list --limit 1001").command else {
        panic!("not a list")
    };
    assert_eq!(page.next_rows(0), 1000);
    assert_eq!(page.next_rows(1000), 1);
    assert_eq!(page.next_rows(1001), 0);
}
