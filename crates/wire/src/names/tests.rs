//! Which texts are names.

use super::*;

#[test]
fn bucket_names_keep_to_their_letters_and_length() {
    for name in ["abc", "a-b", "0x9", &"a".repeat(63)] {
        assert_eq!(BucketName::new(name).unwrap().as_str(), name);
    }
    for name in ["", "ab", "-ab", "ab-", "aBc", "a_b", "a.b", "a/b", "äbc", &"a".repeat(64)] {
        assert!(BucketName::new(name).is_err(), "{name}");
    }
}

#[test]
fn keys_are_any_text_without_nul() {
    for key in ["a", "/", "orders/", "..", "ü", &"k".repeat(512)] {
        assert_eq!(Key::new(key).unwrap().as_str(), key);
    }
    assert!(matches!(Key::new(""), Err(NameError::KeyLength { bytes: 0, .. })));
    assert!(matches!(Key::new(&"k".repeat(513)), Err(NameError::KeyLength { bytes: 513, .. })));
    assert!(matches!(Key::new("a\0b"), Err(NameError::KeyNul { at: 1, .. })));
    assert!(matches!(Key::from_bytes(b"a\xff"), Err(NameError::NotUtf8 { valid_up_to: 1, .. })));
}

#[test]
fn a_token_has_at_most_36_bytes() {
    assert!(FencingToken::new("").unwrap().is_empty());
    assert!(FencingToken::new(&"t".repeat(36)).is_ok());
    assert_eq!(FencingToken::new(&"t".repeat(37)), Err(NameError::TokenLength { bytes: 37 }));
    assert_eq!(FencingToken::from_bytes(&[0xff; 37]), Err(NameError::TokenLength { bytes: 37 }));
}

#[test]
fn an_address_ends_its_bucket_at_the_first_slash() {
    let address: Address = "nova://demo/orders//eu/".parse().unwrap();
    assert_eq!((address.bucket.as_str(), address.key.as_str()), ("demo", "orders//eu/"));
    assert_eq!(address.to_string(), "nova://demo/orders//eu/");
    for text in ["demo/x", "nova://demo", "nova://demo/", "http://demo/x", "nova:///x"] {
        assert!(text.parse::<Address>().is_err(), "{text}");
    }
}

#[test]
fn a_message_never_carries_a_control_byte_or_a_whole_long_key() {
    let text = Key::new(&"\n".repeat(600)).unwrap_err().to_string();
    assert!(!text.contains('\n') && text.len() < 400, "{text}");
}
