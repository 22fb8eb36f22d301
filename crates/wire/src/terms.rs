//! On which terms is a batch appended, besides its match and its session's token?
//!
//! Its bytes: nothing for none, else flags (1 installed, 2 ignores stamps, 4 chained), the length of the token that must be
//! installed, the token, then the effect up to the end.

use crate::entry::Effect;
use crate::limits::FENCING_TOKEN_BYTES_MAX;
use crate::names::FencingToken;
use crate::refusal::Refusal;

const INSTALLED: u8 = 1;
const IGNORES_STAMPS: u8 = 2;
const CHAINED: u8 = 4;

/// What a batch asks for besides being appended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    /// Exactly this token must be installed, judged where the match is; the empty one says that none may be. On a `fenced`
    /// stream what the session or one-shot presents is judged too.
    pub installed: Option<FencingToken>,
    /// Where the stream's mode is `arrival`, the producer's stamps are ignored instead of refused.
    pub ignores_stamps: bool,
    /// Refused once an earlier batch of its session was refused, with the same refusal.
    pub chained: bool,
    /// What applies together with the batch.
    pub effect: Option<Effect>,
}

impl Terms {
    /// Whether a batch on these terms may share one with others on the same.
    #[must_use]
    pub const fn may_share(&self) -> bool {
        self.installed.is_none() && self.effect.is_none()
    }

    /// Its bytes; none for the default.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let token = self.installed.as_ref().map_or(&[][..], |token| token.as_str().as_bytes());
        let flags = flag(self.installed.is_some(), INSTALLED)
            | flag(self.ignores_stamps, IGNORES_STAMPS)
            | flag(self.chained, CHAINED);
        let token_bytes = u8::try_from(token.len()).unwrap_or_else(|_| unreachable!("tokens are short"));
        let effect = self.effect.as_ref().map(Effect::to_bytes).unwrap_or_default();
        [&[flags, token_bytes], token, &effect].concat()
    }

    /// The terms of these bytes.
    ///
    /// # Errors
    /// A refusal that says what of them is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Refusal> {
        let wrong = || Refusal::invalid("the terms of an append don't validate");
        let [flags, token_bytes, rest @ ..] = bytes else {
            return if bytes.is_empty() { Ok(Self::default()) } else { Err(wrong()) };
        };
        let token_bytes = usize::from(*token_bytes);
        if flags & !(INSTALLED | IGNORES_STAMPS | CHAINED) != 0 || token_bytes > FENCING_TOKEN_BYTES_MAX.min(rest.len())
        {
            return Err(wrong());
        }
        let (token, effect) = rest.split_at(token_bytes);
        let installed = (flags & INSTALLED != 0).then(|| FencingToken::from_bytes(token)).transpose()?;
        if installed.is_none() && !token.is_empty() {
            return Err(wrong());
        }
        let effect = (!effect.is_empty()).then(|| Effect::from_bytes(effect)).transpose().map_err(|_| wrong())?;
        Ok(Self { installed, ignores_stamps: flags & IGNORES_STAMPS != 0, chained: flags & CHAINED != 0, effect })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::SeqNum;

    fn some() -> Vec<Terms> {
        let token = |text| FencingToken::new(text).unwrap();
        vec![
            Terms::default(),
            Terms { installed: Some(token("")), ..Terms::default() },
            Terms { installed: Some(token("gen-42")), chained: true, ..Terms::default() },
            Terms { ignores_stamps: true, effect: Some(Effect::Trim(SeqNum::new(3))), ..Terms::default() },
            Terms {
                installed: Some(token("a")),
                ignores_stamps: true,
                chained: true,
                effect: Some(Effect::Both(token("b"), SeqNum::new(4))),
            },
        ]
    }

    #[test]
    fn terms_come_back_as_they_were() {
        for terms in some() {
            assert_eq!(Terms::from_bytes(&terms.to_bytes()), Ok(terms));
        }
        assert!(Terms::default().to_bytes().is_empty());
    }

    #[test]
    fn the_bytes_of_terms_are_golden() {
        let golden = [5, 6, b'g', b'e', b'n', b'-', b'4', b'2'];
        assert_eq!(some()[2].to_bytes(), golden);
        let both = [7, 1, b'a', 3, 4, 0, 0, 0, 0, 0, 0, 0, b'b'];
        assert_eq!(some()[4].to_bytes(), both);
    }

    #[test]
    fn a_token_without_its_flag_an_unknown_flag_and_a_cut_are_refused() {
        for bytes in [&[0, 1, b'a'][..], &[8, 0], &[1], &[1, 2, b'a'], &[0, 0, 9], &[1, 37]] {
            assert!(Terms::from_bytes(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Terms::from_bytes(&bytes);
        }
    }
}
