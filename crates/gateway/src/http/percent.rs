//! What text does a part of a URL stand for?

use percent_encoding::percent_decode_str;
use wire::refusal::Refusal;

/// The bytes that a part of a URL stands for, decoded exactly once.
///
/// # Errors
/// `invalid` for a `%` that no two hexadecimal digits follow.
pub(super) fn decode(what: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let mut signs = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if let Some((at, _)) = signs.find(|(at, _)| !is_digit(at + 1) || !is_digit(at + 2)) {
        let found: String = text[at..].chars().take(3).collect();
        return Err(Refusal::invalid(format!(
            "{what} has '{found}' at byte {at}: a % is followed by two hexadecimal digits, and stands for itself as %25"
        )));
    }
    Ok(percent_decode_str(text).collect())
}

/// The same as text.
///
/// # Errors
/// `invalid` also for what is not UTF-8.
pub(super) fn decode_text(what: &str, text: &str) -> Result<String, Refusal> {
    String::from_utf8(decode(what, text)?).map_err(|error| {
        Refusal::invalid(format!("{what} is not UTF-8 from byte {} on", error.utf8_error().valid_up_to()))
    })
}

#[cfg(test)]
mod tests {
    use super::{decode, decode_text};

    #[test]
    fn a_part_is_decoded_exactly_once() {
        assert_eq!(decode("key", "a%2Fb%252F%00").unwrap(), b"a/b%2F\0");
        assert_eq!(decode_text("key", "%C3%A4+..").unwrap(), "ä+..");
    }

    #[test]
    fn what_is_encoded_wrongly_is_told_with_its_place() {
        for (text, found) in [("a%", "'%' at byte 1"), ("%2", "'%2'"), ("%zz", "'%zz' at byte 0"), ("ab%4g", "'%4g'")] {
            let refusal = decode("key", text).unwrap_err();
            assert!(refusal.message.contains(found), "{refusal}");
        }
        assert!(decode_text("key", "a%ff").unwrap_err().message.contains("UTF-8 from byte 1"));
    }
}
