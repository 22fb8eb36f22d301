//! Are values read, bounded and layered as written, and is each refusal a sentence that helps?

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;

use super::{BlockCache, Layers, Loaded, LogSync, Origin, Settings, SettingsError, StoreAddress};
use crate::units::{Bytes, Millis};

fn setting(name: &str) -> &'static super::Setting {
    Settings::all().find(|setting| setting.name == name).unwrap()
}

fn file_of(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn from_file(text: &str) -> Result<Loaded, SettingsError> {
    Layers::default().file(file_of(text).path())?.finish()
}

fn from_environment(pairs: &[(&str, &str)]) -> Result<Loaded, SettingsError> {
    let pairs = pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Layers::default().environment(pairs)?.finish()
}

/// The sentence that refuses this file, which is called F in it.
fn refusal(text: &str) -> String {
    let file = file_of(text);
    let outcome = Layers::default().file(file.path()).and_then(Layers::finish);
    let path = file.path().display().to_string();
    outcome.unwrap_err().to_string().replace(&path, "F")
}

#[test]
fn the_defaults_hold_together_and_lie_in_their_ranges() {
    let loaded = Layers::default().finish().unwrap();
    for setting in Settings::all() {
        let text = (setting.default)();
        assert_eq!(loaded.settings().show(setting), text, "{}", setting.name);
        let layers = Layers::default().flag(setting, &text).unwrap();
        assert_eq!(layers.finish().unwrap().settings(), loaded.settings(), "{}", setting.name);
    }
}

#[test]
fn names_variables_and_flags_are_unique_and_there_are_fewer_than_forty() {
    let count = Settings::all().count();
    assert!(count < 40, "{count}");
    let variables: BTreeSet<_> = Settings::all().map(super::Setting::variable).collect();
    let flags: BTreeSet<_> = Settings::all().map(super::Setting::flag).collect();
    assert_eq!((variables.len(), flags.len()), (count, count));
}

#[test]
fn both_ends_of_every_range_are_taken_and_nothing_past_them() {
    let mut ranged = 0;
    for setting in Settings::all() {
        let Some((low, high)) = (setting.range)() else {
            continue;
        };
        ranged += 1;
        Layers::default().flag(setting, &low).unwrap();
        Layers::default().flag(setting, &high).unwrap();
        let past = "18446744073709551615";
        let error = Layers::default().flag(setting, past).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(setting.name) && text.contains(past), "{text}");
    }
    assert!(ranged > 5);
}

#[test]
fn a_file_may_write_numbers_and_units() {
    let loaded = from_file(
        "shards = 2\ndata = '/srv/nova'\nkeepalive_ms = '20s'\n\
         [log]\nsegment_bytes = 33554432\nsync = 'fdatasync'\ninline_commit = false\n",
    )
    .unwrap();
    let settings = loaded.settings();
    assert_eq!(settings.shards, 2);
    assert_eq!(settings.data.to_str(), Some("/srv/nova"));
    assert_eq!(settings.keepalive_ms, Millis::seconds(20));
    assert_eq!(settings.log.segment_bytes, Bytes::mib(32));
    assert_eq!(settings.log.sync, LogSync::Fdatasync);
    assert!(!settings.log.inline_commit);
    assert_eq!(settings.memory, Settings::default().memory);
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file() {
    let file = file_of("shards = 1\nappend_window = 1\nconnections_max = 100\n");
    let variables = [("NOVA_SHARDS", "2"), ("NOVA_APPEND_WINDOW", "2")]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let layers = Layers::default().file(file.path()).unwrap().environment(variables).unwrap();
    let loaded = layers.flag(setting("shards"), "3").unwrap().finish().unwrap();
    let settings = loaded.settings();
    assert_eq!((settings.shards, settings.append_window, settings.connections_max), (3, 2, 100));
    assert_eq!(loaded.origin(setting("shards")), &Origin::Flag("shards".into()));
    let variable = Origin::Variable("NOVA_APPEND_WINDOW".into());
    assert_eq!(loaded.origin(setting("append_window")), &variable);
    assert_eq!(loaded.origin(setting("connections_max")), &Origin::File(file.path().to_owned()));
    assert_eq!(loaded.origin(setting("listen")), &Origin::Default);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    for (text, want) in [
        ("shard = 2", "there is no setting `shard` (set in F); did you mean `shards`?"),
        (
            "[log]\nsegmant_bytes = 1",
            "there is no setting `log.segmant_bytes` (set in F); did you mean `log.segment_bytes`?",
        ),
        ("segment_bytes = 1", "there is no setting `segment_bytes` (set in F); did you mean `log.segment_bytes`?"),
        ("colour = 'red'", "there is no setting `colour` (set in F)"),
        ("[paint]", "there is no setting `paint` (set in F)"),
    ] {
        assert_eq!(refusal(text), want);
    }
}

#[test]
fn a_value_that_is_not_taken_is_named_with_what_would_be() {
    for (text, want) in [
        (
            "[log]\nsegment_bytes = '4MiB'",
            "`log.segment_bytes` is set in F to `4MiB`, and must lie within 8MiB and 1GiB",
        ),
        ("listen = 7781", "`listen` is set in F to `7781`, and wants an IP address and a port, such as 127.0.0.1:7781"),
        ("[log]\nsync = 'never'", "`log.sync` is set in F to `never`, and wants dsync or fdatasync"),
        ("shards = [1]", "`shards` is set in F to a TOML array, and wants a whole number"),
        ("shards = -1", "`shards` is set in F to `-1`, and wants a whole number"),
        ("insecure = 'yes'", "`insecure` is set in F to `yes`, and wants true or false"),
        ("data = ''", "`data` is set in F to ``, and wants a path, not empty"),
    ] {
        assert_eq!(refusal(text), want);
    }
}

#[test]
fn a_file_that_is_not_toml_or_not_there_says_where() {
    let text = refusal("shards = 1\nlisten = = 2\n");
    assert!(text.starts_with("the settings file F is not valid TOML, line 2: "), "{text}");
    let missing = Layers::default().file(std::path::Path::new("/nonexistent/nova.toml"));
    assert!(matches!(missing, Err(SettingsError::Unreadable { .. })));
}

#[test]
fn a_variable_one_slip_off_is_refused_and_a_foreign_one_is_not() {
    let error = from_environment(&[("NOVA_LOG_SEGMENT_BYTE", "64MiB")]).unwrap_err().to_string();
    assert!(error.contains("did you mean `NOVA_LOG_SEGMENT_BYTES`?"), "{error}");
    let foreign = [
        ("NOVA_SERVICE_HOST", "10.0.0.1"),
        ("NOVA_PORT", "tcp://10.0.0.1:7781"),
        ("NOVA_ADDR", "127.0.0.1:7781"),
        ("NOVA_CONFIG", "nova.toml"),
        ("NOVA_BLESS", "1"),
        ("PATH", "/bin"),
    ];
    assert_eq!(from_environment(&foreign).unwrap().settings(), &Settings::default());
}

#[test]
fn an_address_that_others_can_reach_needs_plain_words() {
    for address in ["0.0.0.0:7781", "192.168.1.4:7781", "[::]:7781"] {
        let error = from_environment(&[("NOVA_LISTEN", address)]).unwrap_err();
        assert!(matches!(error, SettingsError::Exposed { .. }), "{error}");
        assert!(error.to_string().contains(address), "{error}");
        from_environment(&[("NOVA_LISTEN", address), ("NOVA_INSECURE", "true")]).unwrap();
    }
    from_environment(&[("NOVA_LISTEN", "[::1]:7781")]).unwrap();
    let error = from_environment(&[("NOVA_HTTP", "0.0.0.0:80")]).unwrap_err().to_string();
    assert!(error.contains("`http`") && error.contains("0.0.0.0:80"), "{error}");
    let error = from_environment(&[("NOVA_S2", "0.0.0.0:80")]).unwrap_err().to_string();
    assert!(error.contains("`s2`") && error.contains("0.0.0.0:80"), "{error}");
    assert_eq!(from_environment(&[]).unwrap().settings().s2.addr(), None);
}

#[test]
fn http_may_be_off() {
    let loaded = from_environment(&[("NOVA_HTTP", "off")]).unwrap();
    assert_eq!(loaded.settings().http.addr(), None);
    let loaded = from_environment(&[("NOVA_HTTP", "127.0.0.1:0")]).unwrap();
    assert_eq!(loaded.settings().http.addr().unwrap().port(), 0);
}

#[test]
fn a_ring_past_half_of_the_memory_and_a_segment_past_a_quarter_of_the_log_are_refused() {
    let error = from_environment(&[("NOVA_MEMORY_SHARD_BYTES_MAX", "128MiB")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`memory.ring_bytes_max` = 128MiB (set by default), which is more than half of \
         `memory.shard_bytes_max` = 128MiB (set in the environment as \
         NOVA_MEMORY_SHARD_BYTES_MAX): lower the first or raise the second"
    );
    let log = from_environment(&[("NOVA_LOG_BYTES_MAX", "255MiB")]).unwrap_err();
    assert!(log.to_string().starts_with("`log.segment_bytes` = 64MiB"), "{log}");
    from_environment(&[("NOVA_LOG_BYTES_MAX", "256MiB")]).unwrap();
}

#[test]
fn a_store_is_a_directory_or_a_bucket_and_no_other_scheme() {
    let store = |text: &str| {
        let loaded = Layers::default().flag(setting("store"), text)?.finish()?;
        Ok::<_, SettingsError>(loaded.settings().store.clone())
    };
    let data = std::path::Path::new("/d");
    assert_eq!(store("in-data").unwrap().directory(data), Some("/d/store".into()));
    assert_eq!(store("/srv/s").unwrap().directory(data), Some("/srv/s".into()));
    let s3 = StoreAddress::S3 { bucket: "b".into(), prefix: "p/q".into() };
    assert_eq!(store("s3://b/p/q").unwrap(), s3);
    assert_eq!(s3.directory(data), None);
    for text in ["", "s3://", "gs://b/p", "s3:///p", "s3:/b/p", "s3:b"] {
        assert!(matches!(store(text), Err(SettingsError::Malformed { .. })), "{text}");
    }
}

#[test]
fn an_endpoint_of_nothing_but_slashes_is_none() {
    let endpoint = |url: &str| from_file(&format!("[s3]\nendpoint = '{url}'\n"));
    for url in ["http://", "http:///", "https:////"] {
        assert!(matches!(endpoint(url), Err(SettingsError::Malformed { name: "s3.endpoint", .. })), "{url}");
    }
    let loaded = endpoint("http://host:9000//").unwrap();
    assert_eq!(loaded.settings().show(setting("s3.endpoint")), "http://host:9000");
}

#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let value = OsString::from_vec(vec![b'/', 0xff]);
    let error = Layers::default().environment([(OsString::from("NOVA_DATA"), value)]);
    assert!(matches!(error, Err(SettingsError::Malformed { wanted: "text in UTF-8", .. })));
}

#[test]
fn a_segment_is_whole_blocks() {
    let error = from_environment(&[("NOVA_LOG_SEGMENT_BYTES", "8388609")]).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("which is not a multiple of 4KiB: round it to one"), "{text}");
    from_environment(&[("NOVA_LOG_SEGMENT_BYTES", "8392704")]).unwrap();
}

#[test]
fn a_block_cache_is_left_to_nova_or_none_or_large_enough_to_be_one() {
    let cache = |text: &str| {
        from_environment(&[("NOVA_BLOCK_CACHE_BYTES", text)]).map(|loaded| loaded.settings().block_cache_bytes)
    };
    assert_eq!(cache("auto").unwrap(), BlockCache::Auto);
    assert_eq!(cache("0").unwrap(), BlockCache::Bytes(Bytes::new(0)));
    assert_eq!(cache("16MiB").unwrap(), BlockCache::Bytes(Bytes::mib(16)));
    for text in ["1MiB", "17TiB", "none", "-1"] {
        let error = cache(text).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("auto, 0 for none, or a size of 16MiB to 16TiB"), "{error}");
    }
}
