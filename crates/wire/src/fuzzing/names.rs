//! What must hold of names, ids and configurations?

use std::str::FromStr;

use crate::config::{CONFIG_BYTES, Class, ConfigPatch, PATCH_BYTES, ProducerPolicy, StreamConfig, TimestampingMode};
use crate::ids::StreamId;
use crate::names::{Address, BucketName, FencingToken, Key};

/// A text, or bytes that are none, where names, ids and words of a configuration are due.
///
/// What is taken is the same once it is written and read again.
///
/// # Panics
/// When that is not so.
pub fn names(bytes: &[u8]) {
    for text in [
        BucketName::from_bytes(bytes).map(|name| name.as_str().to_owned()),
        Key::from_bytes(bytes).map(|key| key.as_str().to_owned()),
        FencingToken::from_bytes(bytes).map(|token| token.as_str().to_owned()),
    ]
    .into_iter()
    .flatten()
    {
        assert_eq!(text.as_bytes(), bytes);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    comes_back::<Address>(text);
    comes_back::<Class>(text);
    comes_back::<ProducerPolicy>(text);
    comes_back::<TimestampingMode>(text);
    if let Ok(id) = StreamId::parse(text) {
        assert_eq!(StreamId::parse(&id.to_string()), Ok(id));
    }
}

fn comes_back<T: FromStr + ToString>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    assert_eq!(value.to_string(), text);
}

/// A configuration, and what it sets of another one: a change, and the configuration behind it.
///
/// A configuration that is taken is the same bytes once it is written again. A change is the same once it is written and read again, and
/// changes nothing when it is made twice.
///
/// # Panics
/// When that is not so.
pub fn config(bytes: &[u8]) {
    let Some((patch, rest)) = bytes.split_first_chunk::<PATCH_BYTES>() else { return };
    let config = rest.first_chunk::<CONFIG_BYTES>().and_then(|bytes| {
        let config = StreamConfig::from_bytes(bytes).ok()?;
        assert_eq!(config.to_bytes(), *bytes);
        Some(config)
    });
    let Ok(patch) = ConfigPatch::from_bytes(patch) else { return };
    assert_eq!(ConfigPatch::from_bytes(&patch.to_bytes()), Ok(patch));
    let config = config.unwrap_or_default();
    let changed = patch.apply(&config);
    assert_eq!((patch.apply(&changed), StreamConfig::from_bytes(&changed.to_bytes())), (changed, Ok(changed)));
    let made = patch.fill(&config);
    assert_eq!(patch.fill(&made), made);
    let _judged = (config.check(), changed.check(), config.needs_hand_off(&changed));
}
